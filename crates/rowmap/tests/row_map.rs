//! What the row map promises, tried from outside and from several threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use pbxt_base::{Addr, RowId};
use pbxt_rowmap::{LEAF_WORDS, MapWord, RowMap};
use proptest::prelude::*;

fn word(raw: u64) -> MapWord {
    MapWord::version(Addr::new(raw))
}

#[track_caller]
fn link(map: &RowMap, row: u64, raw: u64) {
    assert_eq!(
        map.compare_exchange(RowId::new(row), MapWord::ABSENT, word(raw)),
        Ok(())
    );
}

#[test]
fn empty_map_costs_no_heap_and_knows_no_row() {
    let map = RowMap::new();
    assert_eq!(map.memory_bytes(), 0);
    assert!(size_of::<RowMap>() <= 128);
    assert_eq!(map.high_mark(), 0);
    assert_eq!(map.load(RowId::new(1)), MapWord::ABSENT);
    assert!(!map.words(0, &mut vec![7]));
    assert_eq!(map.next_leaf(0), None);
    assert_eq!(map.rows_from(RowId::new(1)).count(), 0);
    assert_eq!(map.memory_bytes(), 0, "looking must not allocate");
}

#[test]
fn row_ids_start_at_one_and_never_repeat() {
    let map = RowMap::new();
    assert_eq!(map.allocate(), RowId::new(1));
    assert_eq!(map.allocate_many(10), RowId::new(2));
    assert_eq!(map.allocate(), RowId::new(12));
    map.bump_to(RowId::new(5));
    assert_eq!(map.allocate(), RowId::new(13));
    map.bump_to(RowId::new(1 << 40));
    assert_eq!(map.allocate(), RowId::new((1 << 40) + 1));
    assert_eq!(
        map.memory_bytes(),
        0,
        "an allocated row id costs nothing until a version is linked"
    );
}

#[test]
fn lost_exchange_reports_the_winner_and_changes_nothing() {
    let map = RowMap::new();
    let row = map.allocate();
    map.compare_exchange(row, MapWord::ABSENT, word(8)).unwrap();
    assert_eq!(map.compare_exchange(row, MapWord::ABSENT, word(16)), Err(word(8)));
    assert_eq!(map.load(row), word(8));
    map.compare_exchange(row, word(8), word(16).with_lock()).unwrap();
    assert_eq!(
        map.compare_exchange(row, word(16), word(24)),
        Err(word(16).with_lock()),
        "LOCKED is compared too"
    );
}

#[test]
fn a_row_may_be_deleted_once_a_tombstone_was_meant_for_it() {
    let map = RowMap::new();
    let asked = |map: &RowMap, row: u64| map.may_be_deleted(RowId::new(row), &crossbeam_epoch::pin());
    assert!(!asked(&map, 70));
    assert_eq!(map.memory_bytes(), 0, "looking must not allocate");
    let tombstone = MapWord::tombstone(Addr::new(16));
    link(&map, 70, 8);
    assert!(!asked(&map, 70), "a version is no tombstone");
    map.compare_exchange(RowId::new(70), word(8), tombstone).unwrap();
    assert!(asked(&map, 70));
    assert!(!asked(&map, 69) && !asked(&map, 71) && !asked(&map, 70 + 64));
    map.compare_exchange(RowId::new(70), tombstone, MapWord::ABSENT)
        .unwrap();
    assert!(asked(&map, 70), "M4: the bit stays");
    assert_eq!(map.release_leaves(0..u64::MAX, |_, _| {}), 1);
    assert!(!asked(&map, 70), "M4: the bit goes with the leaf");
    map.store_recovered(RowId::new(70), tombstone);
    assert!(asked(&map, 70));
}

#[test]
#[cfg_attr(
    miri,
    ignore = "walks a hundred leaves; the memory it touches is that of the other tests"
)]
fn every_height_of_the_tree_is_reached() {
    let map = RowMap::new();
    let rows: Vec<u64> = (0..48).flat_map(|bit| [1 << bit, (2 << bit) - 1]).collect();
    for &row in &rows {
        map.store_recovered(RowId::new(row), word(row + 7));
    }
    let mut expected = rows.clone();
    expected.sort_unstable();
    expected.dedup();
    for &row in &expected {
        assert_eq!(map.load(RowId::new(row)), word(row + 7));
    }
    let walked: Vec<u64> = map.rows_from(RowId::new(1)).map(|(row, _)| row.raw()).collect();
    assert_eq!(walked, expected);
    assert_eq!(map.high_mark(), (1 << 48) - 1);
}

#[test]
fn leaf_ends_at_the_high_mark_and_absent_leaves_are_skipped() {
    let map = RowMap::new();
    let per_leaf = LEAF_WORDS as u64;
    map.bump_to(RowId::new(per_leaf * 1000 + 2));
    link(&map, 3, 30);
    link(&map, per_leaf * 1000 + 1, 40);
    assert_eq!(map.next_leaf(0), Some(0));
    assert_eq!(map.next_leaf(1), Some(1000));
    assert_eq!(map.next_leaf(1001), None);
    let mut words = Vec::new();
    assert!(map.words(0, &mut words));
    assert_eq!((words.len(), words[3]), (LEAF_WORDS, 30));
    assert!(map.words(1000, &mut words));
    assert_eq!(words, [0, 40, 0]);
    assert!(!map.words(500, &mut words) && words.is_empty());
}

#[test]
fn sparse_row_ids_cost_one_path_and_not_what_lies_between() {
    let map = RowMap::new();
    map.store_recovered(RowId::new((1 << 47) + 5), word(1));
    assert!(map.memory_bytes() < 4 * 8192 + LEAF_WORDS * 8 + 1);
}

#[test]
fn each_row_has_one_winner_among_many_threads() {
    const THREADS: u64 = 4;
    let rows = if cfg!(miri) { 40 } else { 20_000 };
    let map = Arc::new(RowMap::new());
    map.bump_to(RowId::new(rows));
    let workers: Vec<_> = (1..=THREADS)
        .map(|id| {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut won = 0;
                for row in 1..=rows {
                    let mine = word(row << 8 | id);
                    match map.compare_exchange(RowId::new(row), MapWord::ABSENT, mine) {
                        Ok(()) => won += 1,
                        Err(other) => assert_eq!(other.addr().raw() >> 8, row),
                    }
                    let own = map.allocate();
                    assert_eq!(map.load(own), MapWord::ABSENT);
                }
                won
            })
        })
        .collect();
    let won: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert_eq!(won, rows);
    assert_eq!(map.rows_from(RowId::new(1)).count() as u64, rows);
    assert_eq!(map.high_mark(), rows + THREADS * rows);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 200 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "walks thousands of words per case; the memory it touches is that of the other tests")]
    fn walk_gives_what_was_stored_in_row_order(
        rows in prop::collection::btree_map(prop_oneof![1_u64..20_000, 1_u64..1 << 48], 1_u64..1 << 50, 0..40),
        from in prop_oneof![1_u64..20_000, 1_u64..1 << 48],
    ) {
        let map = RowMap::new();
        for (&row, &raw) in &rows {
            map.store_recovered(RowId::new(row), word(raw));
        }
        let walked: BTreeMap<u64, MapWord> = map.rows_from(RowId::new(from)).map(|(row, word)| (row.raw(), word)).collect();
        let expected: BTreeMap<u64, MapWord> = rows.range(from..).map(|(&row, &raw)| (row, word(raw))).collect();
        prop_assert_eq!(walked, expected);
    }
}
