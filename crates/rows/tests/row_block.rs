//! Row blocks: what was pushed comes back, and damaged blocks give an error or a block, never a panic or much memory.
//!
//! Rules: F20, F30 - F34 of docs/format-rows.md. Random tables are made from one number each, which a failure prints.

mod support;

use pbxt_base::RowId;
use pbxt_rows::*;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::blocks::*;

/// Remembers the largest piece of memory anybody asked for.
struct LargestRequest;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all requests go to the system's allocator unchanged.
unsafe impl GlobalAlloc for LargestRequest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and all memory is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: LargestRequest = LargestRequest;

fn block_of(schema: &Schema, rows: &[BlockRow]) -> Vec<u8> {
    let mut builder = RowBlockBuilder::new(schema);
    push_all(&mut builder, rows);
    let mut bytes = b"before".to_vec();
    let tail = builder.finish(&mut bytes);
    assert!(tail <= bytes.len() - 6);
    assert_eq!(builder.rows(), 0);
    bytes.split_off(6)
}

fn push_all(builder: &mut RowBlockBuilder, rows: &[BlockRow]) {
    for (count, (row, payload)) in rows.iter().enumerate() {
        assert_eq!(builder.rows(), count);
        builder
            .push(RowId::new(*row), payload.as_deref())
            .expect("a payload of the schema");
        assert_eq!(builder.first_row(), Some(RowId::new(rows[0].0)));
    }
    let bytes: usize = rows
        .iter()
        .map(|(_, payload)| payload.as_ref().map_or(0, Vec::len))
        .sum();
    assert_eq!(builder.raw_bytes(), bytes + 8 * rows.len());
}

fn assert_holds(block: &RowBlock, rows: &[BlockRow]) {
    assert_eq!(block.len(), rows.len());
    assert_eq!(block.is_empty(), rows.is_empty());
    for (index, (row, payload)) in rows.iter().enumerate() {
        let id = RowId::new(*row);
        assert_eq!(block.row_id(index), id);
        assert_eq!(block.find(id), Some(index));
        assert_eq!(block.lower_bound(id), index);
        assert_eq!(block.payload(index), payload.as_deref(), "row {row}");
        for near in [row.wrapping_sub(1), row + 1] {
            let expected = rows.iter().position(|(row, _)| *row == near);
            assert_eq!(block.find(RowId::new(near)), expected);
            let above = rows
                .iter()
                .position(|(row, _)| *row >= near)
                .unwrap_or(rows.len());
            assert_eq!(block.lower_bound(RowId::new(near)), above);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 400 }))]

    #[test]
    fn rows_come_back_from_their_block(seed in any::<u64>()) {
        let (schema, rows) = random_rows(seed, if cfg!(miri) { 20 } else { 700 });
        let bytes = block_of(&schema, &rows);
        prop_assert_eq!(RowBlock::schema_version_of(&bytes).expect("just written"), schema.version());
        let block = RowBlock::decode(&schema, &bytes).expect("just written");
        prop_assert_eq!(block.schema_version(), schema.version());
        assert_holds(&block, &rows);
        for (_, payload) in &rows {
            if let Some(payload) = payload {
                RowView::new(&schema, payload).expect("a payload").check().expect("a checked payload");
            }
        }
    }

    #[test]
    fn a_builder_writes_block_after_block_alike(seed in any::<u64>()) {
        let (schema, rows) = random_rows(seed, 60);
        let mut builder = RowBlockBuilder::new(&schema);
        let mut blocks = [Vec::new(), Vec::new()];
        for block in &mut blocks {
            push_all(&mut builder, &rows);
            builder.finish(block);
        }
        prop_assert_eq!(&blocks[0], &blocks[1]);
    }
}

#[test]
fn rows_of_one_length_take_no_list_of_where_they_begin() {
    let column = |kind| Column {
        kind,
        nullable: false,
    };
    let columns = vec![column(ColumnKind::Fixed(8)), column(ColumnKind::Var)];
    let schema = Schema::new(1, columns).expect("two columns");
    let listed = |length: &dyn Fn(u64) -> usize| -> usize {
        let mut builder = RowBuilder::new(&schema);
        let row = |number: u64| -> BlockRow {
            builder.set(0, Some(&number.to_le_bytes())).expect("eight bytes");
            builder.set(1, Some(&vec![1; length(number)])).expect("any");
            let mut payload = Vec::new();
            builder.finish(&mut payload).expect("all columns are set");
            (number, Some(payload))
        };
        let rows: Vec<BlockRow> = (1..=200).map(row).collect();
        let block = RowBlock::decode(&schema, &block_of(&schema, &rows)).expect("just written");
        assert_holds(&block, &rows);
        let payloads: usize = rows.iter().flat_map(|(_, payload)| payload).map(Vec::len).sum();
        block.memory_bytes() - size_of::<RowBlock>() - payloads
    };
    assert!(listed(&|_| 20) < 200, "alike");
    assert!(
        listed(&|number| 20 + usize::from(number == 200)) >= 800,
        "all but one"
    );
}

/// Reads a damaged block; what is no error must still be payloads that can be taken apart.
/// Bytes of a block of 100 texts that are made of these letters at random.
fn bytes_of_texts(letters: &[u8]) -> usize {
    const ROWS: u64 = 100;
    let schema = Schema::new(
        1,
        vec![Column {
            kind: ColumnKind::Var,
            nullable: false,
        }],
    )
    .expect("one column");
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        letters[(state >> 33) as usize % letters.len()]
    };
    let mut row = |id| {
        let text: Vec<u8> = std::iter::repeat_with(&mut letter).take(120).collect();
        let mut builder = RowBuilder::new(&schema);
        builder.set(0, Some(&text)).expect("a text");
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("every column is set");
        (id, Some(payload))
    };
    let rows: Vec<_> = (0..ROWS).map(&mut row).collect();
    let block = block_of(&schema, &rows);
    assert_holds(&RowBlock::decode(&schema, &block).expect("its own bytes"), &rows);
    block.len()
}

#[test]
#[cfg_attr(miri, ignore = "packs 48,000 letters: too many steps to interpret")]
fn digits_take_ten_bits_for_three() {
    let besides = bytes_of_texts(b"0123456789ABCDEF") - 12_000 / 2;
    assert!(besides < 60, "{besides}");
    assert_eq!(bytes_of_texts(b"0123456789"), besides - 6 + 12_000 / 3 * 10 / 8);
    assert_eq!(bytes_of_texts(b"0123456789-"), besides - 5 + 12_000 / 2 * 7 / 8);
    let letters: Vec<u8> = (0..45).collect();
    assert_eq!(bytes_of_texts(&letters), besides + 29 + 12_000 / 2 * 11 / 8);
    // An entropy coder needs 5.2 bits for one of 36, and groups 5.5.
    assert!(bytes_of_texts(&letters[..36]) > 12_000);
}

fn read_damaged(schema: &Schema, bytes: &[u8]) -> bool {
    let Ok(block) = RowBlock::decode(schema, bytes) else {
        return false;
    };
    for index in 0..block.len() {
        assert_eq!(block.find(block.row_id(index)), Some(index));
        let Some(payload) = block.payload(index) else {
            continue;
        };
        let view = RowView::new(schema, payload).expect("payloads of a block are payloads");
        for column in 0..schema.columns().len() {
            drop(view.get(column));
        }
    }
    true
}

#[test]
fn every_flipped_bit_and_every_cut_gives_an_error_or_a_block() {
    let (mut errors, mut blocks) = (0, 0);
    let (seeds, stride) = if cfg!(miri) { (1, 997) } else { (40, 1) };
    for seed in 0..seeds {
        let (schema, rows) = random_rows(seed, 24);
        let mut bytes = block_of(&schema, &rows);
        for bit in (0..(bytes.len() * 8).min(40_000)).step_by(stride) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            *if read_damaged(&schema, &bytes) {
                &mut blocks
            } else {
                &mut errors
            } += 1;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in (0..bytes.len().min(5000)).step_by(stride) {
            assert!(!read_damaged(&schema, &bytes[..len]), "seed {seed} cut to {len}");
        }
        bytes.push(0);
        assert!(!read_damaged(&schema, &bytes), "seed {seed} with a byte too many");
    }
    assert!(errors > 0 && blocks > 0);
    let limit = 5 * BLOCK_BYTES_MAX;
    assert!(
        LARGEST.load(Ordering::Relaxed) < limit,
        "no request of {limit} bytes or more"
    );
}

#[test]
fn a_block_says_what_it_does_not_take() {
    let schema = Schema::new(
        1,
        vec![Column {
            kind: ColumnKind::Var,
            nullable: false,
        }],
    )
    .expect("one column");
    let mut builder = RowBlockBuilder::new(&schema);
    let payload = [0, 1, 0, b'x'];
    builder.push(RowId::new(5), Some(&payload)).expect("a payload");
    for row in [4, 5] {
        let order = builder.push(RowId::new(row), Some(&payload));
        assert!(matches!(order, Err(Error::RowOrder { last: 5, .. })));
    }
    let damaged: [&[u8]; 4] = [&[], &[4, 0, 0], &[0, 2, 0, b'x'], &[2, 1, 1, 0, b'x']];
    for payload in damaged {
        let refused = builder.push(RowId::new(6), Some(payload));
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{payload:?}");
    }
    assert!(matches!(
        builder.push(RowId::new(1 << 48), None),
        Err(Error::TooLarge { .. })
    ));
    builder
        .push(RowId::new((1 << 48) - 1), None)
        .expect("the last row id");
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    let block = RowBlock::decode(&schema, &bytes).expect("just written");
    assert_holds(&block, &[(5, Some(payload.to_vec())), ((1 << 48) - 1, None)]);
    let other = Schema::new(2, schema.columns().to_vec()).expect("one column");
    assert!(matches!(
        RowBlock::decode(&other, &bytes),
        Err(Error::Corrupt { .. })
    ));
    bytes[0] = 9;
    let later = RowBlock::decode(&schema, &bytes);
    assert!(matches!(later, Err(Error::WrongFormat { found: 9, .. })));
}

#[test]
#[cfg_attr(miri, ignore = "pushes 65,536 rows: too many steps to interpret")]
fn a_full_block_takes_no_more_rows() {
    let schema = Schema::new(1, Vec::new()).expect("no columns");
    let mut builder = RowBlockBuilder::new(&schema);
    for row in 0..BLOCK_ROWS_MAX as u64 {
        builder
            .push(RowId::new(row + 7), Some(&[0]))
            .expect("room for a row");
    }
    let full = builder.push(RowId::new(1 << 40), Some(&[0]));
    assert!(matches!(full, Err(Error::TooLarge { .. })));
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    assert!(
        bytes.len() < 20,
        "constant columns and dense row ids cost nothing"
    );
    let block = RowBlock::decode(&schema, &bytes).expect("just written");
    assert_eq!(block.len(), BLOCK_ROWS_MAX);
    assert_eq!(block.payload(BLOCK_ROWS_MAX - 1), Some(&[0][..]));
    assert!(block.memory_bytes() < BLOCK_ROWS_MAX * 6);
}

#[test]
fn an_empty_block_holds_nothing() {
    let schema = Schema::new(1, Vec::new()).expect("no columns");
    let bytes = block_of_nothing(&schema);
    let block = RowBlock::decode(&schema, &bytes).expect("just written");
    assert!(block.is_empty());
    assert_eq!(block.find(RowId::new(1)), None);
    assert_eq!(block.lower_bound(RowId::new(1)), 0);
}

fn block_of_nothing(schema: &Schema) -> Vec<u8> {
    let mut bytes = Vec::new();
    RowBlockBuilder::new(schema).finish(&mut bytes);
    bytes
}

#[test]
fn sizes_beyond_the_limits_are_refused_at_once() {
    let kind = ColumnKind::Var;
    let schema = Schema::new(
        1,
        vec![Column {
            kind,
            nullable: false,
        }],
    )
    .expect("one column");
    // Rows, first row id, payload bytes, tail; then flags of payloads as a constant, and a constant text of 70000 bytes.
    let text = [&[0, 0xF0, 0xA2, 4][..], &vec![b'l'; 70_000]].concat();
    let wide = [&[1, 0, 1, 0, 1, 5, 0xF5, 0xA2, 4, 0, 0, 1, 0][..], &text].concat();
    let narrow = [&[1, 0, 1, 0, 1, 5, 0xF3, 0xA2, 4, 0, 0, 0, 0][..], &text].concat();
    let block = RowBlock::decode(&schema, &wide).expect("a wide payload");
    assert_eq!(block.payload(0).map(<[u8]>::len), Some(70_005));
    let cases: [(&[u8], &str); 5] = [
        (&narrow, "expected wide end offsets for long values, found 70000"),
        (
            &[1, 0, 1, 0, 0x81, 0x80, 4, 5],
            "expected at most 65536 rows, found 65537",
        ),
        (
            &[1, 0, 1, 0, 1, 5, 0x81, 0x80, 0x80, 8, 0],
            "expected at most 16 MiB of payloads, found 16777217",
        ),
        (
            &[1, 0, 1, 0, 1, 5, 9, 99],
            "expected a packed tail inside the block, found 99",
        ),
        (&[1, 8, 1, 0, 1, 5, 9, 0], "expected known flags, found 8"),
    ];
    for (bytes, expected) in cases {
        let decoded = RowBlock::decode(&schema, bytes).map(|block| block.len());
        let error = decoded.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
