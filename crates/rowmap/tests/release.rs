//! Leaves whose rows have all been homed are given back, and no swap is lost by it.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use pbxt_base::{Addr, RowId};
use pbxt_rowmap::{LEAF_WORDS, LEAF_WORDS_LOG2, MapWord, RowMap};
use proptest::prelude::*;

const LEAF: u64 = LEAF_WORDS as u64;

fn word(raw: u64) -> MapWord {
    MapWord::version(Addr::new(raw))
}

fn swap(map: &RowMap, row: u64, old: MapWord, new: MapWord) -> Result<(), MapWord> {
    map.compare_exchange(RowId::new(row), old, new)
}

#[test]
fn empty_leaves_go_and_come_back_when_needed() {
    let map = RowMap::new();
    map.bump_to(RowId::new(3 * LEAF));
    for row in [1, LEAF, 2 * LEAF + 5] {
        swap(&map, row, MapWord::ABSENT, word(row)).expect("free");
    }
    let full = map.memory_bytes();
    assert_eq!(map.release_leaves(0..u64::MAX, |_, _| {}), 0, "no leaf is empty");
    for row in [1, LEAF] {
        swap(&map, row, word(row), MapWord::ABSENT).expect("ours");
    }
    assert_eq!(
        map.release_leaves(1..2, |_, _| {}),
        1,
        "only the leaves of the range"
    );
    assert_eq!(map.next_leaf(1), Some(2));
    assert_eq!(map.release_leaves(0..u64::MAX, |_, _| {}), 1);
    assert_eq!(map.memory_bytes(), full - 2 * (LEAF_WORDS * 8 + LEAF_WORDS / 8));
    assert_eq!(map.next_leaf(0), Some(2));
    let guard = crossbeam_epoch::pin();
    for row in [1, LEAF] {
        assert_eq!(map.load(RowId::new(row)), MapWord::ABSENT);
        assert_eq!(map.load_in(RowId::new(row), &guard), MapWord::ABSENT);
        assert_eq!(swap(&map, row, word(8), word(16)), Err(MapWord::ABSENT));
    }
    swap(&map, 7, MapWord::ABSENT, word(70)).expect("free");
    let rows: Vec<_> = map.rows_from(RowId::new(1)).collect();
    assert_eq!(
        rows,
        [
            (RowId::new(7), word(70)),
            (RowId::new(2 * LEAF + 5), word(2 * LEAF + 5))
        ]
    );
}

#[test]
fn a_locked_word_without_address_keeps_its_leaf() {
    let map = RowMap::new();
    map.bump_to(RowId::new(10));
    swap(&map, 9, MapWord::ABSENT, MapWord::ABSENT.with_lock()).expect("free");
    assert_eq!(map.release_leaves(0..u64::MAX, |_, _| {}), 0);
    swap(&map, 9, MapWord::ABSENT.with_lock(), MapWord::ABSENT).expect("ours");
    assert_eq!(map.release_leaves(0..u64::MAX, |_, _| {}), 1);
}

#[test]
fn a_leaf_of_nothing_but_lock_bits_goes_if_nobody_needs_them() {
    let map = RowMap::new();
    map.bump_to(RowId::new(4 * LEAF));
    let locked = MapWord::ABSENT.with_lock();
    for row in [1, 9, LEAF + 3, 2 * LEAF, 3 * LEAF] {
        swap(&map, row, MapWord::ABSENT, locked).expect("free");
    }
    // A version beside the bit, and one in a word of its own.
    swap(&map, 9 + LEAF, MapWord::ABSENT, word(9)).expect("free");
    swap(&map, 2 * LEAF, locked, word(8).with_lock()).expect("ours");
    let mut asked = Vec::new();
    let released = map.release_leaves(0..u64::MAX, |leaf, clear| {
        asked.push(leaf);
        if leaf == 0 {
            clear();
        }
    });
    assert_eq!(asked, [0, 3], "M5: only leaves with nothing but lock bits");
    assert_eq!(released, 1, "M5: only where the bits were cleared");
    assert_eq!(map.next_leaf(0), Some(1));
    assert_eq!(map.load(RowId::new(LEAF + 3)), locked);
    assert_eq!(
        map.load(RowId::new(3 * LEAF)),
        locked,
        "M5: a bit that is needed stays"
    );
    assert_eq!(map.load(RowId::new(9)), MapWord::ABSENT);
    let mut asked = 0;
    map.release_leaves(0..3, |_, _| asked += 1);
    assert_eq!(asked, 0, "none is left in this range");
}

/// Writers take their rows through 0 -> version -> 0 and never lose a step while leaves come and go.
#[test]
fn no_swap_is_lost_while_leaves_are_released() {
    let (threads, rounds) = if cfg!(miri) { (2, 12) } else { (3, 30_000) };
    let map = RowMap::new();
    map.bump_to(RowId::new(2 * LEAF));
    let done = AtomicBool::new(false);
    // The writers go on until a leaf was released under them: on a busy machine they may be through before the sweeper begins.
    let released = AtomicUsize::new(0);
    thread::scope(|scope| {
        let writers: Vec<_> = (1..=threads)
            .map(|id| {
                let (map, released) = (&map, &released);
                scope.spawn(move || {
                    for round in 0_u64.. {
                        if round >= rounds {
                            if released.load(Ordering::Relaxed) > 0 {
                                break;
                            }
                            thread::yield_now();
                        }
                        let row = id + (round % 2) * LEAF;
                        let version = word(round << 8 | id << 3);
                        assert_eq!(swap(map, row, MapWord::ABSENT, version), Ok(()));
                        assert_eq!(map.load(RowId::new(row)), version);
                        assert_eq!(swap(map, row, version, MapWord::ABSENT), Ok(()));
                        assert_eq!(map.load(RowId::new(row)), MapWord::ABSENT);
                    }
                })
            })
            .collect();
        let sweeper = scope.spawn(|| {
            let mut words = Vec::new();
            while !done.load(Ordering::Relaxed) {
                released.fetch_add(map.release_leaves(0..u64::MAX, |_, _| {}), Ordering::Relaxed);
                if map.words(1, &mut words) {
                    assert!(words.iter().all(|word| word >> 58 == 0), "nobody sees a seal");
                }
            }
        });
        for writer in writers {
            writer.join().expect("no step is lost");
        }
        done.store(true, Ordering::Relaxed);
        sweeper.join().expect("no panic");
    });
    map.release_leaves(0..u64::MAX, |_, _| {});
    assert_eq!(map.next_leaf(0), None);
}

#[derive(Clone, Debug)]
enum Step {
    Store(u64, u64),
    Release(u64, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let row = prop_oneof![1..4 * LEAF, 600 * LEAF..602 * LEAF];
    prop_oneof![
        4 => (row, 0_u64..3).prop_map(|(row, version)| Step::Store(row, version * 8)),
        1 => (0_u64..4, prop_oneof![0_u64..5, Just(u64::MAX)]).prop_map(|(from, to)| Step::Release(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 300 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "looks at thousands of words per case; the memory it touches is that of the other tests")]
    fn a_map_that_releases_answers_like_one_that_does_not(steps in prop::collection::vec(any_step(), 1..60)) {
        let map = RowMap::new();
        map.bump_to(RowId::new(700 * LEAF));
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Store(row, raw) => {
                    let old = model.get(&row).copied().unwrap_or(0);
                    prop_assert_eq!(map.load(RowId::new(row)), word(old));
                    prop_assert_eq!(swap(&map, row, word(old + 1), word(raw)), Err(word(old)));
                    prop_assert_eq!(swap(&map, row, word(old), word(raw)), Ok(()));
                    model.insert(row, raw);
                    model.retain(|_, raw| *raw != 0);
                }
                Step::Release(from, to) => {
                    map.release_leaves(from..to, |_, _| {});
                    let used = |leaf: &u64| model.keys().any(|row| row >> LEAF_WORDS_LOG2 == *leaf);
                    let next = map.next_leaf(from);
                    let expected = (from..to.min(700)).find(used);
                    prop_assert_eq!(next.filter(|leaf| *leaf < to), expected);
                }
            }
        }
        let walked: BTreeMap<u64, u64> = map.rows_from(RowId::new(1)).map(|(row, word)| (row.raw(), word.raw())).collect();
        prop_assert_eq!(walked, model);
    }
}
