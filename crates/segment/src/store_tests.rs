//! Segment store: every start-up case and every kind of damage to a segment, with the sentence the user gets.

use super::*;
use pbxt_io::OsDisk;
use std::path::PathBuf;

const MODE: OpenMode = OpenMode {
    create: Some(Geometry {
        hot_segment_bytes: 128 << 10,
        chunk_bytes: 16 << 10,
        blob_segment_bytes: 256 << 10,
    }),
    read_only: false,
    new_uuid: 99,
    now: 1,
};

fn open(directory: &tempfile::TempDir) -> Result<SegmentStore> {
    SegmentStore::open(Arc::new(OsDisk::open(directory.path(), false)?), MODE)
}

fn with_sealed_segment() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(&directory).expect("created");
    let id = SegmentId::new(1);
    store.prepare(id).expect("prepared");
    let file = store
        .begin(id, SegmentId::new(0), Lsn::new(0), 0, Lsn::new(128 << 10))
        .expect("begun");
    file.write_at(b"some records", 4096).expect("written");
    file.write_at(b"more records", 9000).expect("written");
    file.sync_data().expect("synced");
    store.seal(id, Lsn::new((128 << 10) + 9012)).expect("sealed");
    drop((file, store));
    let path = directory.path().join("hot-00000001.seg");
    (directory, path)
}

fn flip(path: &PathBuf, offset: usize) {
    let mut bytes = std::fs::read(path).expect("readable");
    bytes[offset] ^= 0x40;
    std::fs::write(path, bytes).expect("writable");
}

#[test]
fn start_states_follow_the_life_of_a_database() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(&directory).expect("created");
    assert_eq!((store.start_state(), store.incarnation()), (StartState::New, 1));
    drop(store);
    let store = open(&directory).expect("reopened");
    assert_eq!(
        (store.start_state(), store.incarnation()),
        (StartState::Crashed, 2)
    );
    store.note_closed(Lsn::new(4096)).expect("closed");
    drop(store);
    let store = open(&directory).expect("reopened");
    assert_eq!(
        (store.start_state(), store.uuid()),
        (StartState::Clean(Lsn::new(4096)), 99)
    );
    let second = open(&directory).expect_err("in use").to_string();
    assert!(second.contains("in use by process"), "{second}");
}

#[test]
fn a_directory_without_manifest_is_refused_if_it_has_segments_or_nothing_may_be_created() {
    let (directory, _) = with_sealed_segment();
    std::fs::remove_file(directory.path().join("pbxt.manifest.b")).expect("removed");
    let message = open(&directory).expect_err("refused").to_string();
    assert!(
        message.contains("hot-00000001.seg") && message.contains("manifest is missing"),
        "{message}"
    );
    let empty = tempfile::tempdir().expect("a directory");
    let mode = OpenMode { create: None, ..MODE };
    let disk = Arc::new(OsDisk::open(empty.path(), false).expect("the directory"));
    assert!(
        SegmentStore::open(disk, mode)
            .expect_err("refused")
            .to_string()
            .contains("not a PBXT database")
    );
}

#[test]
fn an_intact_sealed_segment_verifies_and_its_hash_is_that_of_the_file() {
    let (directory, _) = with_sealed_segment();
    let store = open(&directory).expect("reopened");
    let id = SegmentId::new(1);
    store.verify_sealed(SegmentClass::Hot, id).expect("intact");
    assert_eq!(
        store
            .header(SegmentClass::Hot, id)
            .expect("intact")
            .expect("begun")
            .first_lsn,
        Lsn::new(128 << 10)
    );
    store.prepare(SegmentId::new(2)).expect("prepared");
    assert_eq!(
        store
            .header(SegmentClass::Hot, SegmentId::new(2))
            .expect("readable"),
        None
    );
    assert_eq!(
        store.list(SegmentClass::Hot).expect("listed"),
        [id, SegmentId::new(2)]
    );
}

#[test]
fn a_flipped_byte_in_body_gap_header_or_footer_names_the_file() {
    for offset in [100, 4100, 7000, (128 << 10) - 500] {
        let (directory, path) = with_sealed_segment();
        flip(&path, offset);
        let store = open(&directory).expect("reopened");
        let id = SegmentId::new(1);
        let checked = store
            .header(SegmentClass::Hot, id)
            .and_then(|_| store.verify_sealed(SegmentClass::Hot, id));
        let message = checked.expect_err("damaged").to_string();
        assert!(message.contains("hot-00000001.seg"), "offset {offset}: {message}");
    }
}

#[test]
fn a_missing_sealed_segment_is_refused_at_open() {
    let (directory, path) = with_sealed_segment();
    std::fs::remove_file(path).expect("removed");
    let message = open(&directory).expect_err("refused").to_string();
    assert!(
        message.contains("hot-00000001.seg") && message.contains("no such file"),
        "{message}"
    );
}
