//! Batches of blocks: what comes back is what single reads give, and an error names its own place.

mod common;

use common::open;
use pbxt_base::{Error, SegmentId};
use pbxt_io::{DirectIo, Disk, OsDisk};
use pbxt_segment::{Codec, PieceFile, PieceWriter, SegmentClass, SegmentStore};
use pbxt_testkit::SimDisk;
use proptest::prelude::*;
use std::sync::Arc;

const COLD: SegmentClass = SegmentClass::Cold;

fn raw(block: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + block * 3) as u8).collect()
}

/// A file with one section of blocks of `sizes` bytes.
fn write(store: &Arc<SegmentStore>, sizes: &[usize]) -> SegmentId {
    let mut writer = PieceWriter::create(store, COLD).expect("a new file");
    writer.begin_section(1, 1);
    for (block, bytes) in sizes.iter().enumerate() {
        let key = format!("{block:08}");
        writer
            .push_block(key.as_bytes(), 1, &raw(block, *bytes), Codec::Plain)
            .expect("written");
    }
    writer.end_section(b"z", &[]);
    writer.finish().expect("durable")
}

/// Reads the blocks as a batch and compares each with what was written.
fn check(piece: &Arc<PieceFile>, sizes: &[usize], blocks: &[usize]) {
    let read = piece.read_batch(0, blocks).expect("readable");
    let numbers: Vec<usize> = read.iter().flat_map(pbxt_segment::StoredBlocks::blocks).collect();
    assert_eq!(numbers, blocks, "every block once, in order");
    let (mut out, mut single) = (Vec::new(), Vec::new());
    for stored in &read {
        for block in stored.blocks() {
            stored.decode(block, &mut out).expect("intact");
            piece.read_block(0, block, &mut single).expect("readable");
            assert_eq!(out, raw(block, sizes[block]), "block {block}");
            assert_eq!(out, single, "block {block}");
        }
    }
}

fn stores() -> Vec<(Option<tempfile::TempDir>, Arc<SegmentStore>)> {
    let mut stores = vec![(None, Arc::new(open(&SimDisk::new()).expect("opened")))];
    for wanted in [DirectIo::Auto, DirectIo::Off] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        let disk: Arc<dyn Disk> = Arc::new(disk.with_direct_io(wanted));
        let store = SegmentStore::open(disk, common::mode()).expect("opened");
        stores.push((Some(directory), Arc::new(store)));
    }
    stores
}

#[test]
fn blocks_that_follow_each_other_come_with_one_read_of_limited_size() {
    for (_directory, store) in stores() {
        let sizes = [300_000; 12];
        let piece = PieceFile::open(&store, COLD, write(&store, &sizes)).expect("open");
        let read = piece
            .read_batch(0, &[0, 1, 2, 3, 4, 5, 7, 9, 10])
            .expect("readable");
        let parts: Vec<_> = read.iter().map(pbxt_segment::StoredBlocks::blocks).collect();
        assert_eq!(parts, [0..3, 3..6, 7..8, 9..11], "1 MiB holds three of them");
        check(&piece, &sizes, &(0..12).collect::<Vec<_>>());
        check(&piece, &sizes, &[]);
        assert!(piece.read_batch(0, &[3, 12]).is_err(), "there is no block 12");
    }
}

#[test]
fn a_sector_that_cannot_be_read_fails_the_batch_and_no_other() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("opened"));
    let id = write(&store, &[5000; 20]);
    let piece = PieceFile::open(&store, COLD, id).expect("open");
    let name = format!("cold-{:08x}.seg", id.raw());
    let at = piece.sections()[0].block_offset(8);
    disk.make_unreadable(&name, at + 2500).expect("broken");
    let failed = piece
        .read_batch(0, &[2, 8, 15])
        .expect_err("block 8 cannot be read")
        .to_string();
    assert!(failed.contains(&name), "{failed}");
    piece.read_batch(0, &[2, 7, 9, 15]).expect("the others can");
}

#[test]
fn a_damaged_block_of_a_batch_is_named_by_its_offset_and_the_others_are_good() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("opened"));
    let id = write(&store, &[5000; 20]);
    let piece = PieceFile::open(&store, COLD, id).expect("open");
    let at = piece.sections()[0].block_offset(8);
    disk.flip_bit(&format!("cold-{:08x}.seg", id.raw()), at + 100, 3)
        .expect("flipped");
    let read = piece.read_batch(0, &[7, 8, 9]).expect("readable");
    let mut out = Vec::new();
    read[0].decode(7, &mut out).expect("intact");
    read[0].decode(9, &mut out).expect("intact");
    let refused = read[0].decode(8, &mut out).expect_err("damaged");
    assert!(
        matches!(refused, Error::Corrupt { offset, .. } if offset == at),
        "{refused}"
    );
}

#[test]
fn a_file_that_was_not_synced_is_read_back() {
    for (_directory, store) in stores() {
        let mut writer = PieceWriter::create(&store, COLD).expect("a new file");
        writer.begin_section(1, 1);
        writer
            .push_block(b"a", 1, &raw(0, 70_000), Codec::Lz4)
            .expect("written");
        writer.end_section(b"z", &[]);
        let id = writer.finish_unsynced().expect("written");
        let piece = PieceFile::open_unsynced(&store, COLD, id).expect("open");
        check(&piece, &[70_000], &[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_batch_gives_what_single_reads_give(
        sizes in proptest::collection::vec(0..9000_usize, 1..120), picks in proptest::collection::vec(any::<bool>(), 120),
    ) {
        let blocks: Vec<usize> = (0..sizes.len()).filter(|block| picks[*block]).collect();
        for (_directory, store) in stores() {
            let piece = PieceFile::open(&store, COLD, write(&store, &sizes)).expect("open");
            check(&piece, &sizes, &blocks);
        }
    }
}
