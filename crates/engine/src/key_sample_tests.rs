//! Samples are what the entries say, as exact as the document has it, and come back from their bytes.

use super::*;
use pbxt_base::TxnId;
use pbxt_index::Tree;
use pbxt_io::SystemClock;
use pbxt_rows::{HostColumn, HostKind, HostLayout, KeyEncoding, KeyPart, KeySpec};
use pbxt_testkit::Rng;

/// Two numbers of four bytes.
pub(crate) fn maker() -> KeyMaker {
    let column = |offset| HostColumn {
        offset,
        kind: HostKind::Fixed(4),
        null_offset: 0,
        null_bit: 0,
        stored: true,
    };
    let layout = HostLayout::new(8, vec![column(0), column(4)]).expect("two fields side by side");
    let encoding = KeyEncoding::Uint;
    let part = |column| KeyPart {
        column,
        length: 4,
        prefix: false,
        nullable: false,
        descending: false,
        encoding,
    };
    let spec = KeySpec::new(vec![part(0), part(1)], false).expect("two parts");
    KeyMaker::new(&spec, &layout, &[0, 0]).expect("parts fit the columns")
}

pub(crate) fn put(parts: &Arc<IndexParts>, row: u64, first: u32, second: u32, lsn: u64, sign: Sign) {
    put_in(&parts.active, row, (first, second), lsn, sign);
}

#[expect(clippy::big_endian_bytes, reason = "keys order as big-endian numbers do")]
fn put_in(tree: &Tree, row: u64, (first, second): (u32, u32), lsn: u64, sign: Sign) {
    let key = [first.to_be_bytes(), second.to_be_bytes()].concat();
    tree.insert(&key, RowId::new(row), TxnId::new(1), Lsn::new(lsn), sign, &[])
        .expect("a short key");
}

fn sampled(parts: &Arc<IndexParts>, leaves: u32) -> KeySample {
    sampled_with(parts, leaves, &mut || Ok(())).expect("the keys are whole")
}

/// A sample of so many leaves.
fn sampled_with(
    parts: &Arc<IndexParts>,
    leaves: u32,
    step: &mut dyn FnMut() -> Result<()>,
) -> Result<KeySample> {
    let (cache, maker, clock) = (Arc::new(BlockCache::new(1 << 20)), maker(), SystemClock::new());
    let source = SampleSource {
        parts,
        cache: &cache,
        maker: &maker,
        clock: &clock,
    };
    let size = SampleSize {
        by: SampledBy::Analyze,
        leaves,
    };
    KeySample::take(&source, &size, step)
}

/// How values are spread, and by how many percent a sample of 64 and of 1024 leaves is off at most: docs/statistics.md.
const BOUNDS: [(&str, f64, f64); 5] = [
    ("even", 25.0, 5.0),
    ("heavy tail", 25.0, 5.0),
    ("growing", 25.0, 5.0),
    ("half", 25.0, 5.0),
    ("patches", 25.0, 5.0),
];

/// Groups of rows with one value each, in the order of the values, as tables have them.
fn groups(kind: &str, rows: u64, rng: &mut Rng) -> Vec<u64> {
    let mut groups = Vec::new();
    let (mut left, mut number) = (rows, 0_u64);
    while left > 0 {
        number += 1;
        let share = (rng.below(1 << 30) + 1) as f64 / (1_u64 << 30) as f64;
        let size = match kind {
            // Every value has as many rows.
            "even" => 7,
            // Some customers buy much, most buy little.
            "heavy tail" => share.powf(-0.9) as u64,
            // More each day.
            "growing" => 1 + number / 20,
            // One value for those that are done, one each for the others.
            "half" => {
                if number == 1 {
                    rows / 2
                } else {
                    1
                }
            }
            // Stretches of values with one row, and of values with many.
            "patches" => {
                if (number / 5000).is_multiple_of(2) {
                    1
                } else {
                    1 + rng.below(100)
                }
            }
            _ => unreachable!("no such kind"),
        };
        let size = size.clamp(1, left);
        groups.push(size);
        left -= size;
    }
    groups
}

/// By how many percent rows per value are estimated too high or too low, by a sample of so many leaves.
fn error_of(tree: &Arc<IndexParts>, leaves: u32, rows: u64, values: u64) -> f64 {
    let sample = sampled(tree, leaves);
    let distinct = 1.0 + (rows - 1) as f64 * sample.changes[0] as f64 / sample.pairs as f64;
    (values as f64 / distinct - 1.0) * 100.0
}

#[test]
fn errors_are_those_that_the_document_has() {
    let rows = 200_000;
    for (kind, of_use, of_analyze) in BOUNDS {
        for seed in 1..=2 {
            let groups = groups(kind, rows, &mut Rng::new(seed));
            let tree = Arc::new(IndexParts::new());
            let sizes = groups.iter().enumerate();
            let values: Vec<u32> = sizes
                .flat_map(|(value, size)| (0..*size).map(move |_| value as u32))
                .collect();
            // Rows come in no order of their values.
            for row in 0..rows {
                let shuffled = row * 7_919 % rows;
                put(&tree, row, values[shuffled as usize], row as u32, 8, Sign::Entry);
            }
            for (leaves, bound) in [(64, of_use), (1024, of_analyze)] {
                let error = error_of(&tree, leaves, rows, groups.len() as u64);
                println!("ST2: {kind}, seed {seed}, {leaves} leaves: {error:+.1} %");
                assert!(
                    error.abs() <= bound,
                    "ST2: {kind}, seed {seed}, {leaves} leaves: {error:+.1} %"
                );
            }
        }
    }
}

/// Rows of the same values in several parts: each part has some of the rows of a value, so its own neighbours differ more often.
#[test]
fn rows_of_a_value_count_together_whatever_part_they_are_in() {
    let (rows, of_value) = (100_000, 10);
    for frozen in [1, 2, 7] {
        for small in [1, 40] {
            let all: Vec<_> = (0..=frozen).map(|_| Arc::new(Tree::new())).collect();
            let mut parts = IndexParts::of_tree(Arc::clone(&all[0]));
            parts.frozen = all[1..].to_vec();
            let parts = Arc::new(parts);
            for row in 0..rows {
                // The active tree has one of so many rows, and the others the rest in turns.
                let number = if row % small == 0 { 0 } else { 1 + row % frozen };
                let value = (row * 7_919 % rows) / of_value;
                put_in(
                    &all[number as usize],
                    row,
                    (value as u32, row as u32),
                    8,
                    Sign::Entry,
                );
            }
            for leaves in [64, 512] {
                let error = error_of(&parts, leaves, rows, rows / of_value);
                assert!(
                    error.abs() <= 10.0,
                    "ST1: {frozen} parts beside one with one row in {small}, {leaves} leaves: {error:+.1} %"
                );
            }
        }
    }
}

#[test]
fn all_of_an_index_is_compared_over_the_ends_of_stretches() {
    let tree = Arc::new(IndexParts::new());
    let rows = 3 * STRETCH_ENTRIES as u64;
    put(&tree, rows, 0, 0, 8, Sign::Entry);
    for row in 0..rows {
        put(&tree, row, 7, row as u32, 8, Sign::Entry);
        // Events of one row under one key, of which the last one counts: a stretch may not end between them.
        put(&tree, row, 7, row as u32, 16, Sign::Anti);
        put(&tree, row, 8 + (row / 10) as u32, row as u32, 24, Sign::Entry);
    }
    let (mut steps, leaves) = (0, (3 * rows / ENTRIES_PER_LEAF) as u32 + 1);
    let sample = sampled_with(&tree, leaves, &mut || {
        steps += 1;
        Ok(())
    });
    let sample = sample.expect("the keys are whole");
    assert_eq!((sample.entries, sample.pairs), (3 * rows + 1, rows), "ST1");
    assert_eq!(sample.changes, [(rows - 1) / 10 + 1, rows], "ST1");
    assert!(steps >= 8, "{steps} steps");
    let mut left = 2;
    let ended = sampled_with(&tree, leaves, &mut || {
        left -= 1;
        if left == 0 {
            return Err(crate::error::Error::Killed);
        }
        Ok(())
    });
    assert!(
        matches!(ended, Err(crate::error::Error::Killed)),
        "ST4: {ended:?}"
    );
}

fn an_image() -> (KeySample, Vec<u8>) {
    let sample = KeySample {
        entries: 0x0300,
        taken: 0x6500_0000,
        by: SampledBy::Analyze,
        pairs: 0x0200,
        changes: vec![5, 0x0100],
    };
    let expected = [
        &[0, 3, 0, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 0x65, 0, 0, 0, 0],
        &[1],
        &[0, 2, 0, 0, 0, 0, 0, 0],
        &[2, 0],
        &[5, 0, 0, 0, 0, 0, 0, 0],
        &[0, 1, 0, 0, 0, 0, 0, 0],
    ];
    (sample, expected.concat())
}

#[test]
fn golden_sample() {
    let (sample, expected) = an_image();
    let mut bytes = Vec::new();
    sample.encode(&mut bytes);
    assert_eq!(bytes, expected);
    assert_eq!(KeySample::decode(&bytes).expect("its own bytes"), sample);
}

#[test]
fn bytes_that_no_sample_has_are_refused() {
    let (_, bytes) = an_image();
    let refused = |bytes: &[u8], expected: &str| {
        let error = KeySample::decode(bytes).expect_err("ST7").to_string();
        assert!(error.contains(expected), "ST7: {error}");
    };
    for cut in 0..bytes.len() {
        assert!(
            KeySample::decode(&bytes[..cut]).is_err(),
            "ST7: cut after {cut} bytes"
        );
    }
    refused(&[&bytes[..], &[0]].concat(), "the end of a sample");
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    refused(&with(16, 2), "who sampled an index");
    refused(&with(36, 3), "5 to 512 neighbours that differ");
    refused(&with(28, 1), "261 to 512 neighbours that differ");
}
