//! Every case of start-up and every class of damage, with the sentence that the user gets.

mod common;

use common::{SEGMENT_BYTES, begin, first_lsn, mode, names, open, overwrite, write_sealed};
use pbxt_base::{Error, Lsn, SegmentId, checksum, codec};
use pbxt_io::{Disk, OsDisk};
use pbxt_segment::{BlobStore, OpenMode, SegmentClass, SegmentStore, StartState};
use pbxt_testkit::{Fault, SimDisk};
use std::sync::Arc;

const ONE: SegmentId = SegmentId::new(1);

fn with_sealed_segment() -> SimDisk {
    let disk = SimDisk::new();
    write_sealed(&open(&disk).expect("created"), 1).expect("written");
    disk.kill()
}

/// The sentence with which the database, its sealed segment or its values are refused.
fn refusal(disk: &SimDisk) -> String {
    let checked = open(disk).and_then(|store| {
        store.header(SegmentClass::Hot, ONE)?;
        store.verify_sealed(SegmentClass::Hot, ONE)?;
        BlobStore::open(Arc::new(store)).map(drop)
    });
    checked.expect_err("refused").to_string()
}

#[test]
fn an_empty_directory_is_new_and_then_crashed_or_clean() {
    let disk = SimDisk::new();
    let state = |disk: &SimDisk| open(disk).expect("opened").start_state();
    assert_eq!(state(&disk), StartState::New);
    assert_eq!(state(&disk), StartState::Crashed);
    open(&disk)
        .expect("opened")
        .note_closed(Lsn::new(4096))
        .expect("closed");
    assert_eq!(state(&disk), StartState::Clean(Lsn::new(4096)));
    assert_eq!(
        state(&disk),
        StartState::Crashed,
        "the opening before did not close"
    );
}

/// Rule D14.
#[test]
fn who_has_written_nothing_leaves_a_closed_database_closed() {
    let disk = SimDisk::new();
    open(&disk)
        .expect("opened")
        .note_closed(Lsn::new(4096))
        .expect("closed");
    let opened = || SegmentStore::open(Arc::new(disk.clone()), mode()).expect("opened");
    for _ in 0..2 {
        let store = opened();
        assert_eq!(store.start_state(), StartState::Clean(Lsn::new(4096)));
        assert_eq!(store.incarnation(), 2, "nothing has this number yet");
    }
    let store = opened();
    store.note_opened().expect("noted");
    drop(store);
    let store = opened();
    assert_eq!(
        (store.start_state(), store.incarnation()),
        (StartState::Crashed, 3)
    );
}

#[test]
fn a_second_opener_is_refused_with_the_holder() {
    let disk = SimDisk::new();
    let _first = open(&disk).expect("opened");
    let refused = open(&disk).expect_err("in use").to_string();
    assert!(refused.contains("is in use by process"), "{refused}");
}

#[test]
fn without_leave_to_create_nothing_is_created() {
    let disk = SimDisk::new();
    let refused = SegmentStore::open(
        Arc::new(disk.clone()),
        OpenMode {
            create: None,
            ..mode()
        },
    );
    assert!(
        refused
            .expect_err("refused")
            .to_string()
            .contains("is not a PBXT database: there is no manifest")
    );
    assert_eq!(names(&disk), Vec::<String>::new());
}

#[test]
fn segments_without_manifest_are_never_taken_for_a_new_database() {
    let disk = with_sealed_segment();
    disk.remove("pbxt.manifest.b").expect("a removal");
    let refused = refusal(&disk);
    assert!(
        refused.contains("'hot-00000001.seg' is there but the manifest is missing"),
        "{refused}"
    );
}

#[test]
fn a_creation_cut_short_is_made_anew_and_a_damaged_manifest_with_segments_is_not() {
    let disk = SimDisk::new();
    disk.replace("pbxt.manifest.b", &[0; 4096]);
    assert_eq!(open(&disk).expect("created").start_state(), StartState::New);
    let disk = with_sealed_segment();
    disk.replace("pbxt.manifest.b", &[0; 4096]);
    let refused = refusal(&disk);
    assert!(
        refused.contains("'pbxt.manifest.b' is damaged at offset 0"),
        "{refused}"
    );
}

/// Names of files, and how long their headers are.
const HEADERS: [(&str, usize); 2] = [("pbxt.manifest.b", 64), ("hot-00000001.seg", 4096)];

/// Gives the file the header that another version of the engine would have written.
fn set_version(disk: &SimDisk, name: &str, bytes: usize, version: u32) {
    let mut header = disk.content(name).expect("the file is there");
    header.truncate(bytes);
    codec::put_u32(&mut header, 8, version);
    let crc = checksum::crc32c(codec::get_u64(&header, 0), &header[..bytes - 4]);
    codec::put_u32(&mut header, bytes - 4, crc);
    overwrite(disk, name, 0, &header);
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    for (name, bytes) in HEADERS {
        let disk = with_sealed_segment();
        set_version(&disk, name, bytes, 7);
        let refused = refusal(&disk);
        assert!(
            refused.contains(&format!(
                "'{name}' has format version 7, this program reads version 1"
            )),
            "F12: {refused}"
        );
    }
}

#[test]
fn a_flipped_bit_of_a_version_is_damage_and_no_other_version() {
    for (name, _) in HEADERS {
        for bit in 0..32 {
            let disk = with_sealed_segment();
            disk.flip_bit(name, 8 + bit / 8, (bit % 8) as u32)
                .expect("a flip");
            let refused = refusal(&disk);
            assert!(
                refused.contains(&format!("'{name}' is damaged")) && refused.contains("checksum"),
                "F12, bit {bit}: {refused}"
            );
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_sealed_segment_is_found() {
    let clean = with_sealed_segment();
    for offset in (0..SEGMENT_BYTES).step_by(509).chain([SEGMENT_BYTES - 1]) {
        let disk = clean.kill();
        disk.flip_bit("hot-00000001.seg", offset, (offset % 8) as u32)
            .expect("a flip");
        let refused = refusal(&disk);
        assert!(refused.contains("hot-00000001.seg"), "offset {offset}: {refused}");
    }
}

#[test]
fn damage_is_told_by_place_and_kind() {
    let of = |change: fn(&SimDisk)| {
        let disk = with_sealed_segment();
        change(&disk);
        refusal(&disk)
    };
    let expect = |sentence: String, part: &str| assert!(sentence.contains(part), "{sentence}");
    expect(
        of(|d| overwrite(d, "hot-00000001.seg", 0, b"X")),
        "expected the mark of a PBXT segment",
    );
    expect(
        of(|d| overwrite(d, "hot-00000001.seg", 20, b"X")),
        "expected header checksum",
    );
    expect(
        of(|d| overwrite(d, "hot-00000001.seg", 5000, b"X")),
        "expected content hash",
    );
    expect(
        of(|d| overwrite(d, "hot-00000001.seg", SEGMENT_BYTES as usize - 511, b"X")),
        "footer",
    );
    expect(
        of(|d| d.truncate("hot-00000001.seg", 100).expect("cut")),
        "expected a segment header, found a shorter file",
    );
    expect(
        of(|d| d.truncate("hot-00000001.seg", 9000).expect("cut")),
        "expected the footer of a sealed segment",
    );
    expect(
        of(|d| d.remove("hot-00000001.seg").expect("removed")),
        "a segment the manifest lists, found no such file",
    );
    expect(
        of(|d| d.make_unreadable("hot-00000001.seg", 5000).expect("broken")),
        "cannot read 'hot-00000001.seg'",
    );
}

#[test]
fn a_segment_of_another_database_or_under_another_name_is_refused() {
    let other = SimDisk::new();
    let foreign_mode = OpenMode {
        new_uuid: 5,
        ..mode()
    };
    let store = SegmentStore::open(Arc::new(other.clone()), foreign_mode).expect("created");
    write_sealed(&store, 1).expect("written");
    let disk = with_sealed_segment();
    disk.replace(
        "hot-00000001.seg",
        &other.content("hot-00000001.seg").expect("the file"),
    );
    assert!(refusal(&disk).contains("expected a segment of this database, found one of another database"));

    let disk = with_sealed_segment();
    disk.replace(
        "hot-00000002.seg",
        &disk.content("hot-00000001.seg").expect("the file"),
    );
    let header = open(&disk)
        .expect("opened")
        .header(SegmentClass::Hot, SegmentId::new(2));
    let refused = header.expect_err("refused").to_string();
    assert!(
        refused.contains("expected the segment its name says, found 'hot-00000001.seg'"),
        "{refused}"
    );
}

#[test]
fn whole_old_content_under_the_right_name_is_found_by_the_manifest_alone() {
    let (disk, other) = (with_sealed_segment(), SimDisk::new());
    let store = open(&other).expect("created");
    let file = begin(&store, 1).expect("begun");
    file.write_at(b"another history of the same segment", 4096)
        .expect("written");
    file.sync_data().expect("synced");
    store
        .seal(ONE, Lsn::new(first_lsn(1).raw() + 9011))
        .expect("sealed");
    store
        .verify_sealed(SegmentClass::Hot, ONE)
        .expect("it is whole in its own database");
    disk.replace(
        "hot-00000001.seg",
        &other.content("hot-00000001.seg").expect("the file"),
    );
    assert!(refusal(&disk).contains("expected content hash"));
}

#[test]
fn a_lost_or_foreign_blob_segment_is_refused_at_opening() {
    let with_value = || {
        let disk = SimDisk::new();
        let blobs = BlobStore::open(Arc::new(open(&disk).expect("created"))).expect("blobs");
        blobs.append(&[1; 1000]).expect("written");
        blobs.sync().expect("synced");
        disk.kill()
    };
    let disk = with_value();
    disk.remove("blob-00000001.seg").expect("a removal");
    assert!(
        open(&disk)
            .expect_err("refused")
            .to_string()
            .contains("blob-00000001.seg' is damaged")
    );
    let disk = with_value();
    disk.replace("blob-00000001.seg", &[0; 8192]);
    let blobs = BlobStore::open(Arc::new(open(&disk).expect("opened")));
    assert!(
        blobs
            .expect_err("refused")
            .to_string()
            .contains("expected the mark of a PBXT segment, found zeros")
    );
}

#[test]
fn an_incarnation_is_never_used_twice_even_if_the_manifest_lost_its_last_record() {
    let disk = SimDisk::new();
    let store = open(&disk).expect("created");
    begin(&store, 1).expect("begun").sync_data().expect("synced");
    assert_eq!(store.incarnation(), 1);
    drop(store);
    let content = disk.content("pbxt.manifest.b").expect("the file");
    let end = content.iter().rposition(|byte| *byte != 0).expect("not empty") + 1;
    // The last record is `Opened`, with its incarnation as its last four bytes.
    disk.flip_bit("pbxt.manifest.b", end as u64 - 4, 0)
        .expect("a flip");
    assert_eq!(open(&disk.kill()).expect("opened").incarnation(), 2);
}

#[test]
fn a_prepared_segment_of_an_earlier_life_is_made_anew_and_a_begun_one_is_never_lost() {
    let disk = SimDisk::new();
    let store = open(&disk).expect("created");
    store.prepare(ONE).expect("prepared");
    store.prepare(ONE).expect("again is fine");
    drop(store);
    let store = open(&disk).expect("opened");
    assert_eq!(store.header(SegmentClass::Hot, ONE).expect("readable"), None);
    begin(&store, 1)
        .expect("begun")
        .write_at(b"x", 4096)
        .expect("written");
    drop(store);
    let store = open(&disk).expect("opened");
    let refused = store.prepare(ONE).expect_err("it is begun").to_string();
    assert!(
        refused.contains("expected a segment that was never begun"),
        "{refused}"
    );
    store.drop_segment(SegmentClass::Hot, ONE).expect("dropped");
    begin(&store, 1).expect("a new file under the old name");
}

#[test]
fn a_full_disk_refuses_a_new_segment_and_the_database_goes_on() {
    let disk = SimDisk::new();
    let store = open(&disk).expect("created");
    write_sealed(&store, 1).expect("written");
    disk.set_free_bytes(Some(SEGMENT_BYTES - 1));
    let refused = store.prepare(SegmentId::new(2)).expect_err("no space");
    assert!(
        matches!(refused, Error::NoSpace { .. }) && refused.to_string().contains("hot-00000002.seg"),
        "{refused}"
    );
    assert_eq!(
        store.list(SegmentClass::Hot).expect("listed"),
        [ONE],
        "nothing is left behind"
    );
    disk.set_free_bytes(Some(SEGMENT_BYTES));
    write_sealed(&store, 2).expect("space is back, and sealing needs none");
}

#[test]
fn a_read_only_opening_changes_nothing() {
    let disk = with_sealed_segment();
    let (before, operations) = (
        disk.content("pbxt.manifest.b").expect("the file"),
        disk.operations(),
    );
    let store = SegmentStore::open(
        Arc::new(disk.clone()),
        OpenMode {
            read_only: true,
            ..mode()
        },
    )
    .expect("opened");
    store.verify_sealed(SegmentClass::Hot, ONE).expect("intact");
    assert_eq!(disk.content("pbxt.manifest.b").expect("the file"), before);
    assert_eq!(disk.operations(), operations);
}

#[test]
fn a_failed_sync_of_footer_or_manifest_is_reported_and_the_segment_is_not_called_sealed() {
    for prefix in ["hot-", "pbxt.manifest"] {
        let disk = SimDisk::new();
        let store = open(&disk).expect("created");
        let file = begin(&store, 1).expect("begun");
        file.sync_data().expect("synced");
        disk.plant(Fault::FailSync {
            prefix: prefix.into(),
            nth: 1,
        });
        let refused = store
            .seal(ONE, first_lsn(1))
            .expect_err("the planted fault")
            .to_string();
        assert!(refused.contains(prefix), "{refused}");
        assert_eq!(store.sealed(SegmentClass::Hot, ONE), None);
    }
}

#[test]
fn a_database_in_a_real_directory_behaves_as_the_simulated_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = || Arc::new(OsDisk::open(directory.path(), false).expect("the directory")) as Arc<dyn Disk>;
    let store = SegmentStore::open(disk(), mode()).expect("created");
    write_sealed(&store, 1).expect("written");
    store.note_closed(Lsn::new(1)).expect("closed");
    let bytes: u64 = store
        .sizes()
        .expect("listed")
        .iter()
        .map(|(.., bytes)| bytes)
        .sum();
    assert_eq!(bytes, SEGMENT_BYTES);
    drop(store);
    let store = SegmentStore::open(disk(), mode()).expect("opened");
    assert_eq!(store.start_state(), StartState::Clean(Lsn::new(1)));
    store.verify_sealed(SegmentClass::Hot, ONE).expect("intact");
}
