//! Blobs: values of every size come back, damage is found, segments roll over.

use super::*;
use crate::geometry::Geometry;
use crate::store::OpenMode;
use pbxt_io::OsDisk;

fn open(directory: &tempfile::TempDir) -> BlobStore {
    let mode = OpenMode {
        create: Some(Geometry::small()),
        read_only: false,
        new_uuid: 5,
        now: 0,
    };
    let disk = Arc::new(OsDisk::open(directory.path(), false).expect("the directory"));
    BlobStore::open(Arc::new(SegmentStore::open(disk, mode).expect("a store"))).expect("blobs")
}

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 3) as u8).collect()
}

#[test]
fn values_of_every_size_come_back_also_after_reopening() {
    let directory = tempfile::tempdir().expect("a directory");
    let sizes = [
        1,
        8,
        4096,
        FRAME_BYTES_MAX - 1,
        FRAME_BYTES_MAX,
        FRAME_BYTES_MAX + 1,
        3 * FRAME_BYTES_MAX + 17,
    ];
    let blobs = open(&directory);
    let refs: Vec<BlobRef> = sizes
        .iter()
        .map(|&len| blobs.append(&value(len)).expect("written"))
        .collect();
    blobs.sync().expect("synced");
    assert!(blobs.durable_end() > refs.last().expect("one").addr.raw());
    drop(blobs);
    let blobs = open(&directory);
    let mut back = Vec::new();
    for (blob, len) in refs.iter().zip(sizes) {
        blobs.read(blob, &mut back).expect("readable");
        assert_eq!(back, value(len), "{len}");
    }
    let next = blobs.append(&value(10)).expect("written");
    assert!(
        next.addr.segment() > refs.last().expect("one").addr.segment(),
        "P1: a new life, a new segment"
    );
}

#[test]
fn bytes_of_a_value_as_the_format_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let blobs = open(&directory);
    let blob = blobs.append(b"abc").expect("written");
    assert_eq!((blob.addr.offset(), blob.len), (4096, 3));
    let bytes = std::fs::read(directory.path().join("blob-00000001.seg")).expect("readable");
    let crc = checksum::crc32c((1 << 32) ^ 4096, b"abc").to_le_bytes();
    assert_eq!(
        &bytes[4096..],
        [&[3, 0, 0, 0][..], &crc, b"abc", &[0; 5]].concat()
    );
}

#[test]
fn a_flipped_byte_names_file_and_offset() {
    let directory = tempfile::tempdir().expect("a directory");
    let blobs = open(&directory);
    let blob = blobs.append(&value(1000)).expect("written");
    let path = directory.path().join("blob-00000001.seg");
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes[4096 + 500] ^= 1;
    std::fs::write(&path, bytes).expect("writable");
    let message = blobs
        .read(&blob, &mut Vec::new())
        .expect_err("damaged")
        .to_string();
    assert!(
        message.contains("blob-00000001.seg") && message.contains("offset 4096"),
        "{message}"
    );
    let missing = BlobRef { len: 1 << 20, ..blob };
    assert!(blobs.read(&missing, &mut Vec::new()).is_err());
}

#[test]
fn the_durable_end_stays_below_a_value_still_being_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let blobs = open(&directory);
    blobs.append(&value(100)).expect("written");
    let (_, id, offset) = blobs.reserve(512).expect("reserved");
    blobs.append(&value(100)).expect("written");
    blobs.sync().expect("synced");
    assert_eq!(
        blobs.durable_end(),
        Addr::in_segment(AddrClass::Blob, id, offset).raw()
    );
}
