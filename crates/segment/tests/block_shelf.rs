//! Block shelf: blocks of a section beside the cache (rule S54 of docs/storage.md).

use pbxt_base::{Error, SegmentId};
use pbxt_segment::{BlockCache, BlockKey, BlockShelf, CachedBlock, SegmentClass, ShelfPlace};
use std::sync::{Arc, Barrier};

/// A block with its number.
struct Block {
    number: u64,
    bytes: usize,
    place: ShelfPlace,
}

impl Block {
    fn new(number: u64, bytes: usize) -> Self {
        Self {
            number,
            bytes,
            place: ShelfPlace::default(),
        }
    }
}

impl CachedBlock for Block {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn shelf_place(&self) -> Option<&ShelfPlace> {
        Some(&self.place)
    }
}

/// The blocks of one section, each in the cache by its number.
struct Section {
    cache: Arc<BlockCache>,
    shelf: Arc<BlockShelf<Block>>,
    segment: u32,
    bytes: usize,
}

impl Section {
    fn new(cache: &Arc<BlockCache>, segment: u32, blocks: usize, bytes: usize) -> Self {
        Self {
            cache: Arc::clone(cache),
            shelf: BlockShelf::new(blocks),
            segment,
            bytes,
        }
    }

    fn key(&self, number: usize) -> BlockKey {
        BlockKey {
            class: SegmentClass::Cold,
            segment: SegmentId::new(self.segment),
            offset: number as u64,
        }
    }

    /// A block as readers get it.
    fn read(&self, number: usize) -> Arc<Block> {
        let load = || Ok(Block::new(number as u64, self.bytes));
        let block = self
            .cache
            .get_or_load_in(&self.shelf, number, || self.key(number), load);
        let block = block.expect("loaded");
        assert_eq!(block.number, number as u64);
        block
    }

    /// True if the block stands on the shelf: it is found there although nobody tells its name.
    fn is_on_shelf(&self, number: usize) -> bool {
        let nothing = self.key(usize::MAX);
        self.cache.peek_in(&self.shelf, number, || nothing).is_some()
    }

    fn is_cached(&self, number: usize) -> bool {
        self.cache.contains(self.key(number))
    }
}

#[test]
fn a_block_asked_for_again_stands_on_the_shelf_until_the_cache_lets_go_of_it() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let section = Section::new(&cache, 1, 64, 32 << 10);
    let first = section.read(0);
    assert!(!section.is_on_shelf(0), "it was asked for once");
    assert!(Arc::ptr_eq(&first, &section.read(0)));
    assert!(section.is_on_shelf(0));
    assert!(Arc::ptr_eq(&first, &section.read(0)));
    let place = Arc::downgrade(&first);
    drop(first);
    cache.set_budget(0);
    assert!(!section.is_cached(0) && !section.is_on_shelf(0));
    assert!(place.upgrade().is_none(), "nobody has it any more");
    cache.set_budget(1 << 20);
    for number in 0..64 {
        for _ in 0..2 {
            section.read(number);
        }
        let kept: Vec<usize> = (0..64).filter(|&number| section.is_on_shelf(number)).collect();
        assert!(kept.iter().all(|&number| section.is_cached(number)), "{kept:?}");
    }
    assert!(cache.stats().bytes <= 1 << 20);
}

#[test]
fn every_use_is_counted_once() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let section = Section::new(&cache, 1, 2, 100);
    for uses in 1..100 {
        section.read(1);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (uses - 1, 1));
    }
}

#[test]
fn a_block_that_is_looked_at_stays_until_the_look_is_over_and_counts_as_used() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let section = Section::new(&cache, 1, 2, 100);
    let look = |number| {
        cache.look_in(
            &section.shelf,
            number,
            || section.key(number),
            |block| block.number,
        )
    };
    section.read(1);
    assert_eq!(look(1), None, "it was asked for once");
    section.read(1);
    let before = cache.stats().hits;
    for uses in 1..100 {
        section.shelf.prefetch(1);
        section.shelf.prefetch(7);
        assert_eq!(look(1), Some(1));
        assert_eq!(cache.stats().hits, before + uses);
    }
    assert_eq!((look(0), look(7)), (None, None));
    let beside = |block: &Block| {
        cache.set_budget(0);
        assert!(!section.is_on_shelf(1));
        block.number
    };
    let seen = cache.look_in(&section.shelf, 1, || section.key(1), beside);
    assert_eq!((seen, look(1)), (Some(1), None), "S54");
}

#[test]
fn a_block_used_by_its_shelf_outlives_others() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let used = Section::new(&cache, 1, 1, 32 << 10);
    let others = Section::new(&cache, 2, 10_000, 32 << 10);
    let first = used.read(0);
    for number in 0..10_000 {
        others.read(number);
        for _ in 0..2 {
            assert!(Arc::ptr_eq(&first, &used.read(0)), "after {number} others");
        }
    }
}

#[test]
fn blocks_of_dropped_files_leave_their_shelves() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let sections = [1, 2].map(|segment| Section::new(&cache, segment, 1, 100));
    for section in &sections {
        section.read(0);
        section.read(0);
        assert!(section.is_on_shelf(0));
    }
    cache.forget_segment(SegmentClass::Cold, SegmentId::new(1));
    assert!(!sections[0].is_on_shelf(0) && sections[1].is_on_shelf(0));
}

#[test]
fn another_form_of_a_block_takes_its_place_on_the_shelf() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let section = Section::new(&cache, 1, 1, 100);
    section.read(0);
    section.read(0);
    let other = Arc::new(Block::new(0, 200));
    cache.put_in(&section.shelf, 0, section.key(0), &other);
    assert!(Arc::ptr_eq(&other, &section.read(0)));
    assert!(section.is_on_shelf(0));
}

#[test]
fn a_block_stands_on_one_shelf_only() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let one = Section::new(&cache, 1, 1, 100);
    let other = Section::new(&cache, 1, 1, 100);
    one.read(0);
    one.read(0);
    for _ in 0..3 {
        other.read(0);
    }
    assert!(
        one.is_on_shelf(0) && !other.is_on_shelf(0),
        "S54: it could not be found there when it goes"
    );
}

#[test]
fn a_failed_load_leaves_nothing_and_a_number_beyond_the_shelf_is_read_past_it() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let section = Section::new(&cache, 1, 1, 100);
    let failed = cache.get_or_load_in(&section.shelf, 0, || section.key(0), || Err(Error::Closed));
    assert!(failed.is_err() && !section.is_cached(0));
    for _ in 0..3 {
        section.read(7);
    }
    assert!(!section.is_on_shelf(7));
}

#[test]
fn threads_that_push_each_others_blocks_out_leave_none_behind() {
    const THREADS: usize = 4;
    let rounds = if cfg!(miri) { 20 } else { 4_000 };
    let cache = Arc::new(BlockCache::new(256 << 10));
    let section = Section::new(&cache, 1, 16, 32 << 10);
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (section, barrier) = (&section, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..rounds {
                    section.read((round * (thread + 1) / 3) % 16);
                }
            });
        }
    });
    for number in 0..16 {
        assert!(
            !section.is_on_shelf(number) || section.is_cached(number),
            "block {number} stands on the shelf and is not in the cache"
        );
    }
}
