//! Statistics answer from the sample at hand as long as it will do, and nobody waits who has one.

use super::*;
use crate::key_sample::tests::{maker, put};
use pbxt_index::{IndexParts, Sign};
use pbxt_io::SystemClock;
use pbxt_segment::BlockCache;
use std::sync::Arc;

fn ask(statistics: &KeyStatistics, tree: &Arc<IndexParts>, rows: u64) -> ([u64; 2], bool) {
    let (cache, maker, clock) = (Arc::new(BlockCache::new(1 << 20)), maker(), SystemClock::new());
    let source = SampleSource {
        parts: tree,
        cache: &cache,
        maker: &maker,
        clock: &clock,
    };
    let mut out = [0, 0];
    let is_new = statistics.rows_per_key(&source, rows, &mut out);
    (out, is_new.expect("the keys are whole"))
}

fn estimate(statistics: &KeyStatistics, tree: &Arc<IndexParts>, rows: u64) -> [u64; 2] {
    ask(statistics, tree, rows).0
}

#[test]
fn a_small_index_is_counted_exactly() {
    let tree = Arc::new(IndexParts::new());
    for row in 0..60_u32 {
        put(&tree, u64::from(row), row / 20, row / 2, 8, Sign::Entry);
    }
    assert_eq!(estimate(&KeyStatistics::default(), &tree, 60), [20, 2]);
}

#[test]
fn an_index_without_entries_has_one_row_per_key() {
    assert_eq!(
        estimate(&KeyStatistics::default(), &Arc::new(IndexParts::new()), 0),
        [1, 1]
    );
}

#[test]
fn rows_that_left_a_key_do_not_count() {
    let tree = Arc::new(IndexParts::new());
    for row in 0..40 {
        put(&tree, u64::from(row), 1, row, 8, Sign::Entry);
        put(&tree, u64::from(row), 1, row, 16, Sign::Anti);
        put(&tree, u64::from(row), 100 + row, 0, 16, Sign::Entry);
    }
    assert_eq!(estimate(&KeyStatistics::default(), &tree, 40), [1, 1]);
}

#[test]
fn a_large_index_is_estimated_within_a_quarter() {
    for per_value in [1_u64, 7, 50] {
        let tree = Arc::new(IndexParts::new());
        let rows = 100_000_u64;
        for row in 0..rows {
            let shuffled = row * 7_919 % rows;
            put(
                &tree,
                row,
                (shuffled / per_value) as u32,
                row as u32,
                8,
                Sign::Entry,
            );
        }
        let [first, both] = estimate(&KeyStatistics::default(), &tree, rows);
        assert!(
            first.abs_diff(per_value) * 4 <= per_value,
            "{first} rows per key, {per_value} expected"
        );
        assert_eq!(both, 1);
    }
}

#[test]
fn a_sample_is_kept_until_the_index_grew_by_a_tenth() {
    let (tree, statistics) = (Arc::new(IndexParts::new()), KeyStatistics::default());
    (0..100).for_each(|row| put(&tree, row, 1, row as u32, 8, Sign::Entry));
    assert_eq!(ask(&statistics, &tree, 100), ([100, 1], true));
    (100..110).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
    assert_eq!(
        ask(&statistics, &tree, 110),
        ([110, 1], false),
        "ST3: the sample at hand knows one value only"
    );
    (110..111).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
    assert_eq!(ask(&statistics, &tree, 111), ([9, 1], true), "ST3");
}

#[test]
fn a_fixed_sample_is_kept_whatever_comes_and_an_empty_one_is_none() {
    let (tree, statistics) = (Arc::new(IndexParts::new()), KeyStatistics::default());
    statistics.set_options(&StatisticsOptions {
        follow: false,
        ..StatisticsOptions::default()
    });
    assert_eq!(ask(&statistics, &tree, 0), ([1, 1], true));
    (0..100).for_each(|row| put(&tree, row, 1, row as u32, 8, Sign::Entry));
    assert_eq!(
        ask(&statistics, &tree, 100),
        ([100, 1], true),
        "ST9: there was nothing to go by"
    );
    (100..400).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
    assert_eq!(ask(&statistics, &tree, 400), ([400, 1], false), "ST9");
    statistics.set_options(&StatisticsOptions::default());
    assert_eq!(ask(&statistics, &tree, 400), ([1, 1], true));
}

#[test]
fn of_two_samples_an_opening_keeps_the_newer_one_and_takes_none_of_other_parts() {
    let sample = |taken, parts| KeySample {
        entries: 9,
        taken,
        by: SampledBy::Analyze,
        pairs: 8,
        changes: vec![4; parts],
    };
    let statistics = KeyStatistics::default();
    for (taken, newest) in [(5, 5), (4, 5), (7, 7)] {
        statistics
            .restore(sample(taken, 2), 2, "an index")
            .expect("of two parts");
        assert_eq!(statistics.sample(), Some(sample(newest, 2)), "ST6");
    }
    let refused = statistics.restore(sample(8, 3), 2, "index 'a' of table 't'");
    let text = refused.expect_err("ST7: it has two parts").to_string();
    assert!(
        text.contains("3 parts of index 'a' of table 't', which has 2"),
        "{text}"
    );
    assert_eq!(statistics.saved_sample(), Some(sample(7, 2)));
    statistics.set_options(&StatisticsOptions {
        saved: false,
        ..StatisticsOptions::default()
    });
    assert_eq!(statistics.saved_sample(), None, "ST8");
}

#[test]
fn tables_say_how_many_leaves_are_looked_at() {
    let statistics = KeyStatistics::default();
    let leaves = |by| statistics.size(by).leaves;
    assert_eq!((leaves(SampledBy::Use), leaves(SampledBy::Analyze)), (64, 1024));
    statistics.set_options(&StatisticsOptions {
        leaves: Some(7),
        ..StatisticsOptions::default()
    });
    let leaves = |by| statistics.size(by).leaves;
    assert_eq!(
        (leaves(SampledBy::Use), leaves(SampledBy::Analyze)),
        (7, 7),
        "ST9"
    );
}

#[test]
fn while_one_samples_the_others_go_by_the_sample_before() {
    let (tree, statistics) = (Arc::new(IndexParts::new()), KeyStatistics::default());
    (0..100).for_each(|row| put(&tree, row, 1, row as u32, 8, Sign::Entry));
    assert_eq!(estimate(&statistics, &tree, 100), [100, 1]);
    (100..200).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
    let sampling = statistics.sampling.lock();
    assert_eq!(estimate(&statistics, &tree, 200), [200, 1], "the old sample");
    drop(sampling);
    assert_eq!(estimate(&statistics, &tree, 200), [2, 1]);
}
