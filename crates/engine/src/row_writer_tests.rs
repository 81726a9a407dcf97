//! Sizes of blocks: small ones unless the compressor needs more rows at once (rule S31); levels: quick ones where nothing is found (S59).

use super::*;
use crate::row_shape::RowPiece;
use pbxt_rows::{Column, ColumnKind, RowBuilder};
use pbxt_segment::{Geometry, OpenMode, PieceFile, SegmentClass, SegmentStore};
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;

/// One column of bytes.
pub(crate) fn schema() -> Schema {
    let kind = ColumnKind::Var;
    let column = Column {
        kind,
        nullable: false,
    };
    Schema::new(1, vec![column]).expect("one column")
}

/// A piece on a simulated disk, with the rows 1, 2, ... that have these values.
pub(crate) fn piece_of(
    disk: &SimDisk,
    schema: &Schema,
    codec: Codec,
    values: &mut dyn Iterator<Item = Vec<u8>>,
) -> RowPiece {
    let mode = OpenMode {
        create: Some(Geometry::small()),
        read_only: false,
        new_uuid: 7,
        now: 0,
    };
    let store = SegmentStore::open(Arc::new(disk.clone()), mode).expect("a new database");
    let store = Arc::new(store);
    let mut out = PieceWriter::create(&store, SegmentClass::Cold).expect("a new file");
    RowWriter::begin(&mut out, TableId::new(1));
    let mut writer = RowWriter::new(schema, codec);
    for (row, value) in (1..).zip(values) {
        let mut builder = RowBuilder::new(schema);
        builder.set(0, Some(&value)).expect("a value");
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("a payload");
        writer
            .push(&mut out, RowId::new(row), Some(&payload))
            .expect("written");
    }
    let section = writer.end(&mut out).expect("written");
    let id = out.finish().expect("durable");
    let file = PieceFile::open(&store, SegmentClass::Cold, id).expect("a whole file");
    RowPiece::open(file, section).expect("a piece")
}

const ROWS: usize = 6000;
const VALUE_BYTES: usize = 200;

/// Lines of a log: each is like many before it in parts of it, and none is the same.
fn lines() -> impl FnMut() -> Vec<u8> {
    let mut rng = Rng::new(33);
    let mut word = || -> String {
        let letters = 3 + rng.below(9);
        (0..letters)
            .map(|_| char::from(b'a' + rng.below(26) as u8))
            .collect()
    };
    let words: Vec<String> = (0..400).map(|_| word()).collect();
    let mut rng = Rng::new(34);
    let mut one_of = move |few: u64| rng.below(few) as usize;
    move || {
        let (user, action) = (&words[one_of(400)], &words[one_of(20)]);
        let (folder, page) = (&words[one_of(50)], &words[one_of(50)]);
        format!(
            "user={user} action={action} item={} path=/{folder}/{page} ",
            one_of(1000)
        )
        .into_bytes()
    }
}

/// The codec that a job of rows with these values ends with.
fn settled(codec: Codec, mut value: impl FnMut() -> Vec<u8>) -> Codec {
    let schema = schema();
    let mode = OpenMode {
        create: Some(Geometry::small()),
        read_only: false,
        new_uuid: 7,
        now: 0,
    };
    let store = SegmentStore::open(Arc::new(SimDisk::new()), mode).expect("a new database");
    let mut out = PieceWriter::create(&Arc::new(store), SegmentClass::Cold).expect("a new file");
    RowWriter::begin(&mut out, TableId::new(1));
    let mut writer = RowWriter::new(&schema, codec);
    for row in 1..=4000 {
        let mut builder = RowBuilder::new(&schema);
        builder.set(0, Some(&value())).expect("a value");
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("a payload");
        writer
            .push(&mut out, RowId::new(row), Some(&payload))
            .expect("written");
    }
    writer.codec
}

/// Blocks and stored bytes of rows with these values.
fn packed(codec: Codec, value: impl FnMut() -> Vec<u8>) -> (usize, u64) {
    let piece = piece_of(
        &SimDisk::new(),
        &schema(),
        codec,
        &mut std::iter::repeat_with(value).take(ROWS),
    );
    (piece.block_count(), piece.section().stored_bytes)
}

/// Values that have nothing in common but their alphabet.
fn digits() -> impl FnMut() -> Vec<u8> {
    let mut rng = Rng::new(31);
    move || (0..VALUE_BYTES).map(|_| b'0' + rng.below(10) as u8).collect()
}

/// Values of which each comes back, but seldom within a small block.
fn phrases() -> impl FnMut() -> Vec<u8> {
    let mut rng = Rng::new(32);
    let all: Vec<Vec<u8>> = (0..300)
        .map(|_| (0..VALUE_BYTES).map(|_| rng.below(256) as u8).collect())
        .collect();
    move || all[rng.below(all.len() as u64) as usize].clone()
}

#[test]
fn rows_that_share_nothing_are_packed_in_small_blocks() {
    let raw = ROWS * VALUE_BYTES;
    for codec in [Codec::Zstd(3), Codec::Lz4, Codec::Plain] {
        let (blocks, _) = packed(codec, digits());
        let first = usize::from(codec != Codec::Plain) * (BLOCK_BYTES / SMALL_BLOCK_BYTES - 1);
        let expected = raw / SMALL_BLOCK_BYTES - first;
        assert!(
            blocks.abs_diff(expected) <= expected / 10,
            "S31: {blocks} blocks, {expected} expected with {codec:?}"
        );
    }
}

#[test]
fn rows_that_repeat_each_other_are_packed_in_large_blocks() {
    let (blocks, stored) = packed(Codec::Zstd(3), phrases());
    let expected = ROWS * VALUE_BYTES / BLOCK_BYTES;
    assert!(
        blocks.abs_diff(expected) <= 2,
        "S31: {blocks} blocks, {expected} expected"
    );
    assert!(
        (stored as usize) < ROWS * VALUE_BYTES * 4 / 5,
        "a value is stored once a block: {stored}"
    );
}

#[test]
fn rows_in_which_nothing_is_found_are_packed_quickly_from_the_second_block_on() {
    for thorough in [Codec::Zstd(5), Codec::Zstd(9)] {
        assert_eq!(settled(thorough, digits()), Codec::Zstd(1), "S59");
        let (_, quick) = packed(Codec::Zstd(1), digits());
        let (_, stored) = packed(thorough, digits());
        assert!(
            stored <= quick + quick / QUICK_COST as u64,
            "{stored} and {quick} bytes"
        );
    }
}

#[test]
fn rows_in_which_a_longer_search_finds_more_are_packed_thoroughly() {
    assert_eq!(settled(Codec::Zstd(5), lines()), Codec::Zstd(5), "S59");
    let (_, quick) = packed(Codec::Zstd(1), lines());
    let (_, stored) = packed(Codec::Zstd(5), lines());
    assert!(
        stored < quick - quick / QUICK_COST as u64,
        "{stored} and {quick} bytes"
    );
}

#[test]
fn what_is_not_zstandard_stays_what_it_is() {
    for codec in [Codec::Zstd(1), Codec::Lz4, Codec::Plain] {
        assert_eq!(settled(codec, digits()), codec, "S59");
    }
}
