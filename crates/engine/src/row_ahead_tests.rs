//! Blocks many at a time: the rows are those of single reads, few reads bring many blocks, and damage is named.

use super::*;
use crate::row_shape::RowPiece;
use crate::row_writer::row_writer_tests::{piece_of, schema};
use pbxt_base::RowId;
use pbxt_io::Disk;
use pbxt_segment::Codec;
use pbxt_testkit::SimDisk;

const ROWS: u64 = 6000;

fn value(row: u64) -> Vec<u8> {
    (0..400_u64).map(|at| ((at * (row + 11)) >> 3) as u8).collect()
}

/// A piece of many blocks on a simulated disk.
fn versions() -> Versions {
    Versions::new(schema(), Vec::new()).expect("one version")
}

fn piece(disk: &SimDisk, versions: &Versions) -> RowPiece {
    piece_of(disk, versions.current(), Codec::Lz4, &mut (1..=ROWS).map(value))
}

/// First row and number of rows of a block, and its first payload.
fn brief(block: &CachedRows) -> (RowId, usize, Vec<u8>) {
    (
        block.row_id(0),
        block.len(),
        block.payload(0).expect("a row").to_vec(),
    )
}

#[test]
fn blocks_loaded_together_are_those_loaded_one_by_one_and_stay_in_the_cache() {
    let (disk, versions) = (SimDisk::new(), versions());
    let piece = piece(&disk, &versions);
    assert!(piece.block_count() > 20, "{} blocks", piece.block_count());
    let (one_by_one, together) = (BlockCache::new(64 << 20), BlockCache::new(64 << 20));
    let wanted = [0, 1, 2, 5, 9, 10, piece.block_count() - 1];
    piece.block(&versions, &together, 9).expect("loaded");
    let loaded = piece.load_blocks(&versions, &together, &wanted).expect("loaded");
    for (block, loaded) in wanted.iter().zip(&loaded) {
        let expected = piece.block(&versions, &one_by_one, *block).expect("loaded");
        assert_eq!(brief(&expected), brief(loaded));
    }
    assert_eq!(
        together.stats().misses,
        wanted.len() as u64,
        "each was loaded once"
    );
    let again = piece.load_blocks(&versions, &together, &wanted).expect("cached");
    assert!(again.iter().zip(&loaded).all(|(a, b)| Arc::ptr_eq(a, b)));
    assert_eq!(together.stats().misses, wanted.len() as u64);
}

#[test]
fn a_reader_in_order_gets_every_block_also_from_a_cache_that_is_too_small() {
    let (disk, versions) = (SimDisk::new(), versions());
    let piece = piece(&disk, &versions);
    for cache_bytes in [0, 1 << 20, 64 << 20] {
        let cache = BlockCache::new(cache_bytes);
        let mut ahead = ReadAhead::default();
        let mut rows = 0;
        for block in 0..piece.block_count() {
            let found = ahead.block(&versions, &cache, &piece, block).expect("readable");
            assert_eq!(found.row_id(0).raw(), rows + 1);
            rows += found.len() as u64;
        }
        assert_eq!(rows, ROWS);
        // Any order, forwards and back.
        for step in 0..200 {
            let block = step * 7 % piece.block_count();
            let found = ahead.block(&versions, &cache, &piece, block).expect("readable");
            let expected = piece.block(&versions, &cache, block).expect("readable");
            assert_eq!(brief(&found), brief(&expected));
        }
    }
}

#[test]
fn reading_ahead_grows_with_the_way_and_begins_anew_after_a_long_jump() {
    let (disk, versions) = (SimDisk::new(), versions());
    let piece = piece(&disk, &versions);
    let cache = BlockCache::new(256 << 20);
    let mut ahead = ReadAhead::default();
    let mut ends = Vec::new();
    for block in 0..16 {
        ahead.block(&versions, &cache, &piece, block).expect("readable");
        let end = ahead.stored.as_ref().expect("read").blocks().end;
        if ends.last() != Some(&end) {
            ends.push(end);
        }
    }
    assert_eq!(ends, [1, 3, 7, 15, 31.min(piece.block_count())]);
    for (jump, read) in [(20, 20..21), (8, 8..16)] {
        let cache = BlockCache::new(256 << 20);
        let mut ahead = ReadAhead::default();
        for block in [0, 1, 2, 3, jump] {
            ahead.block(&versions, &cache, &piece, block).expect("readable");
        }
        assert_eq!(
            ahead.stored.as_ref().map(StoredBlocks::blocks),
            Some(read),
            "a jump to {jump}"
        );
    }
}

#[test]
fn damage_and_unreadable_sectors_are_told_and_leave_the_other_blocks() {
    let (disk, versions) = (SimDisk::new(), versions());
    let piece = piece(&disk, &versions);
    let name = disk
        .list()
        .expect("a listing")
        .into_iter()
        .find(|name| name.starts_with("cold-"))
        .expect("the file");
    disk.flip_bit(&name, piece.section().block_offset(5) + 50, 1)
        .expect("flipped");
    let cache = BlockCache::new(64 << 20);
    let refused = piece
        .load_blocks(&versions, &cache, &[4, 5, 6])
        .expect_err("5 is damaged");
    let offset = piece.section().block_offset(5).to_string();
    assert!(refused.to_string().contains(&offset), "{refused}");
    piece
        .load_blocks(&versions, &cache, &[4, 6])
        .expect("the others are good");
    disk.make_unreadable(&name, piece.section().block_offset(9) + 600)
        .expect("broken");
    let refused = piece
        .load_blocks(&versions, &cache, &[2, 9, 12])
        .expect_err("9 cannot be read");
    assert!(refused.to_string().contains(&name), "{refused}");
    let mut ahead = ReadAhead::default();
    for block in 0..5 {
        ahead
            .block(&versions, &cache, &piece, block)
            .expect("readable, though what lies behind is damaged");
    }
    ahead.block(&versions, &cache, &piece, 5).expect_err("damaged");
}
