//! Block cache: hits, budget, failures, many threads.

use pbxt_base::{Error, Result, SegmentId};
use pbxt_segment::{BlockCache, BlockKey, CachedBlock, SegmentClass};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

struct Row(Vec<u8>);
struct Index(u64);

impl CachedBlock for Row {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl CachedBlock for Index {
    fn bytes(&self) -> usize {
        16
    }

    fn is_used_again(&self) -> bool {
        true
    }
}

fn key(segment: u32, offset: u64) -> BlockKey {
    BlockKey {
        class: SegmentClass::Cold,
        segment: SegmentId::new(segment),
        offset,
    }
}

fn never<B>() -> Result<B> {
    panic!("loaded again")
}

#[test]
fn a_block_is_loaded_once_and_comes_back_as_its_type() {
    let cache = BlockCache::new(1 << 20);
    let index = BlockKey {
        class: SegmentClass::Meta,
        ..key(1, 4096)
    };
    cache
        .get_or_load(key(1, 4096), || Ok(Row(vec![7; 100])))
        .expect("loaded");
    cache.get_or_load(index, || Ok(Index(9))).expect("loaded");
    assert_eq!(
        cache.get_or_load(key(1, 4096), never::<Row>).expect("there").0,
        [7; 100]
    );
    assert_eq!(cache.get_or_load(index, never::<Index>).expect("there").0, 9);
    assert!(cache.peek::<Row>(key(1, 4096)).is_some() && cache.peek::<Row>(key(1, 8192)).is_none());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.blocks), (2, 2, 2));
    assert!((116..1000).contains(&stats.bytes), "{stats:?}");
}

#[test]
fn a_failed_load_is_told_and_tried_again() {
    let cache = BlockCache::new(1 << 20);
    let failed = cache.get_or_load::<Row>(key(1, 0), || Err(Error::Closed));
    assert!(matches!(failed, Err(Error::Closed)));
    cache.get_or_load(key(1, 0), || Ok(Row(vec![1]))).expect("loaded");
}

#[test]
fn the_budget_is_kept_and_may_change() {
    let cache = BlockCache::new(4 << 20);
    let fill = || {
        for offset in 0..400 {
            cache
                .get_or_load(key(1, offset), || Ok(Row(vec![0; 32 << 10])))
                .expect("loaded");
            assert!(cache.stats().bytes <= cache.budget(), "{cache:?}");
        }
    };
    fill();
    assert!(cache.stats().bytes > 3 << 20, "{cache:?}");
    cache.set_budget(1 << 20);
    assert!(cache.stats().bytes <= 1 << 20, "{cache:?}");
    fill();
    cache.set_budget(8 << 20);
    fill();
    assert!(cache.stats().bytes > 6 << 20, "{cache:?}");
    cache.set_budget(0);
    let row = cache
        .get_or_load(key(2, 0), || Ok(Row(vec![3])))
        .expect("a cache of nothing still loads");
    assert_eq!((row.0[0], cache.stats().bytes), (3, 0));
    let none = BlockCache::new(0);
    assert_eq!(
        none.get_or_load(key(2, 0), || Ok(Row(vec![3])))
            .expect("loaded")
            .0,
        [3]
    );
    let larger = cache
        .get_or_load(key(3, 0), || Ok(Row(vec![4; 1 << 20])))
        .expect("larger than the budget");
    assert_eq!(larger.0.len(), 1 << 20);
}

#[test]
fn a_new_block_stays_for_a_while_though_all_others_are_used_again() {
    const BLOCK_BYTES: usize = 96 << 10;
    const BETWEEN: u64 = 16; // loads of other readers between two looks of one
    for budget in [8 << 20, 128 << 20] {
        let cache = BlockCache::new(budget);
        let load = |segment, offset| {
            let new = || Ok(Row(vec![0; BLOCK_BYTES]));
            cache.get_or_load(key(segment, offset), new).expect("loaded");
        };
        for _ in 0..4 {
            (0..budget / BLOCK_BYTES as u64).for_each(|offset| load(1, offset));
        }
        let between = BETWEEN.min(budget >> 22);
        let before = cache.stats().misses;
        for offset in 0..1000 {
            load(2, offset);
            if offset >= between {
                load(2, offset - between);
            }
        }
        let again = cache.stats().misses - before - 1000;
        assert!(
            again < 50,
            "{again} of 1000 blocks were loaded twice with {budget} bytes"
        );
    }
}

#[test]
fn blocks_of_an_index_stay_while_rows_stream_by() {
    let cache = BlockCache::new(8 << 20);
    let index = |offset| BlockKey {
        class: SegmentClass::Meta,
        ..key(1, offset)
    };
    for offset in 0..100 {
        cache
            .get_or_load(index(offset), || Ok(Index(offset)))
            .expect("loaded");
    }
    // Twenty times the cache, each row once.
    for offset in 0..1600 {
        cache
            .get_or_load(key(2, offset), || Ok(Row(vec![0; 100 << 10])))
            .expect("loaded");
        assert!(cache.peek::<Row>(key(2, offset)).is_some());
    }
    let lost = (0..100)
        .filter(|&offset| cache.peek::<Index>(index(offset)).is_none())
        .count();
    assert_eq!(
        lost, 0,
        "S42: blocks of an index, none of which was asked for meanwhile"
    );
    let stats = cache.stats();
    assert_eq!(
        (stats.hits, stats.misses),
        (0, 1700),
        "uses of the cache's own are no hits"
    );
}

#[test]
fn who_uses_a_block_right_after_its_load_pushes_out_nothing_that_is_used_again() {
    const BLOCK_BYTES: usize = 100 << 10;
    let cache = BlockCache::new(8 << 20);
    let load = |segment, offset| {
        let new = || Ok(Row(vec![0; BLOCK_BYTES]));
        cache.get_or_load(key(segment, offset), new).expect("loaded");
    };
    (0..40).for_each(|offset| load(1, offset));
    (0..30).for_each(|offset| load(2, offset));
    (0..40).for_each(|offset| load(1, offset));
    // Twenty times the cache; each row of a block is asked for at once.
    for offset in 0..1600 {
        (0..5).for_each(|_| load(3, offset));
    }
    let lost = (0..40).filter(|&offset| !cache.contains(key(1, offset))).count();
    assert_eq!(
        lost, 0,
        "S61: blocks that were used again, by others than who loaded them"
    );
    let stats = cache.stats();
    assert_eq!(
        (stats.hits, stats.misses),
        (40 + 4 * 1600, 70 + 1600),
        "each use is counted"
    );
    // What is asked for later is used again.
    for offset in 1580..1600 {
        (0..50).for_each(|other| load(4, 50 * offset + other));
        load(3, 1599);
    }
    assert!(cache.contains(key(3, 1599)));
}

#[test]
fn blocks_of_dropped_files_are_forgotten() {
    let cache = BlockCache::new(1 << 20);
    for segment in 1..=4 {
        for offset in 0..3 {
            cache
                .get_or_load(key(segment, offset), || Ok(Row(vec![segment as u8])))
                .expect("loaded");
        }
    }
    cache.forget_segment(SegmentClass::Meta, SegmentId::new(1));
    assert_eq!(cache.stats().blocks, 12);
    cache.forget_segment(SegmentClass::Cold, SegmentId::new(1));
    cache.forget_segments(&HashSet::from(
        [2, 3].map(|id| (SegmentClass::Cold, SegmentId::new(id))),
    ));
    assert_eq!(cache.stats().blocks, 3);
    assert!(cache.peek::<Row>(key(4, 2)).is_some() && cache.peek::<Row>(key(1, 2)).is_none());
}

#[test]
fn threads_share_one_load() {
    let (cache, loads, barrier) = (BlockCache::new(1 << 20), AtomicU64::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for offset in 0..200 {
                    barrier.wait();
                    let load = || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        Ok(Row(vec![offset as u8]))
                    };
                    let row = cache.get_or_load(key(1, offset), load).expect("loaded");
                    assert_eq!(row.0[0], offset as u8);
                }
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 200);
}

#[test]
#[should_panic(expected = "F14: a block is always asked for as the type it was loaded as")]
fn a_block_of_another_type_is_a_mistake() {
    let cache = BlockCache::new(1 << 20);
    cache.get_or_load(key(1, 0), || Ok(Index(1))).expect("loaded");
    let _ = cache.get_or_load(key(1, 0), never::<Row>);
}
