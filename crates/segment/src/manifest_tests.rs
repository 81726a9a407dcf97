//! Manifest: what a reader finds after appends, switches, torn tails and damage.

use super::*;
use pbxt_io::OsDisk;

fn disk(directory: &tempfile::TempDir) -> Arc<dyn Disk> {
    Arc::new(OsDisk::open(directory.path(), false).expect("the directory"))
}

fn sealed(id: u32) -> SealedSegment {
    SealedSegment { class: SegmentClass::Hot, id: SegmentId::new(id), hash: u64::from(id) * 77, end: Lsn::new(u64::from(id) * 4096) }
}

fn newest_path(directory: &tempfile::TempDir) -> std::path::PathBuf {
    directory.path().join(NAMES[1])
}

#[test]
fn facts_come_back_after_reopening() {
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = Manifest::create(disk(&directory), 42, Geometry::small(), 1000).expect("created");
    manifest.append(ManifestRecord::Opened { incarnation: 1 }).expect("appended");
    manifest.append(ManifestRecord::Sealed(sealed(1))).expect("appended");
    manifest.append(ManifestRecord::Closed { end: Lsn::new(512) }).expect("appended");
    let facts = Manifest::open(disk(&directory), true).expect("opened").facts();
    assert_eq!((facts.uuid, facts.incarnation, facts.closed), (42, 1, Some(Lsn::new(512))));
    assert_eq!(facts.sealed.values().copied().collect::<Vec<_>>(), [sealed(1)]);
}

#[test]
fn generations_alternate_and_lose_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = Manifest::create(disk(&directory), 42, Geometry::small(), 0).expect("created");
    let count = (FILE_BYTES_MAX / 30 + 2000) as u32;
    for id in 1..=count {
        manifest.append(ManifestRecord::Sealed(sealed(id % 50 + 1))).expect("appended");
    }
    assert!(manifest.writer.lock().generation >= 2);
    assert_eq!(Manifest::open(disk(&directory), true).expect("opened").facts().sealed.len(), 50);
}

#[test]
fn a_torn_last_record_is_not_there_and_damage_before_it_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = Manifest::create(disk(&directory), 42, Geometry::small(), 0).expect("created");
    manifest.append(ManifestRecord::Sealed(sealed(1))).expect("appended");
    manifest.append(ManifestRecord::Sealed(sealed(2))).expect("appended");
    let path = newest_path(&directory);
    let whole = std::fs::read(&path).expect("readable");
    std::fs::write(&path, &whole[..whole.len() - 3]).expect("cut");
    assert_eq!(Manifest::open(disk(&directory), true).expect("opened").facts().sealed.len(), 1);

    let mut damaged = whole.clone();
    let first_sealed = whole.len() - 2 * 30 + 12;
    damaged[first_sealed] ^= 0x10;
    std::fs::write(&path, &damaged).expect("damaged");
    let message = Manifest::open(disk(&directory), true).expect_err("refused").to_string();
    assert!(message.contains("pbxt.manifest.b") && message.contains("offset"), "{message}");
}

#[test]
fn a_file_of_another_format_version_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    Manifest::create(disk(&directory), 42, Geometry::small(), 0).expect("created");
    let path = newest_path(&directory);
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes[8] = 9;
    std::fs::write(&path, bytes).expect("changed");
    let message = Manifest::open(disk(&directory), true).expect_err("refused").to_string();
    assert!(message.contains("format version 9"), "{message}");
}
