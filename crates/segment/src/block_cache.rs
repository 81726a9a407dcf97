//! Block cache: decoded blocks of piece files, one budget of bytes for all of them.
//!
//! Why it exists: index blocks and row blocks compete for the same memory; what is used more stays, whatever it is. What
//! is kept is decoded and ready to search, so a hit costs no decompression.
//! States: absent, being loaded (others who want it wait for the one who loads), present.
//! Rules: a block is named by class, segment and offset; ids of piece files are not used twice in a life, so blocks of a
//! dropped file are never met again and only take room until `forget_segment` or until they are pushed out.
//! Latches and I/O: the latch of one of many shards, shared for hits; none of them during a load.

use crate::names::SegmentClass;
use pbxt_base::{Result, SegmentId};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry costs besides its block.
const ENTRY_BYTES: u64 = 96;
/// A block is expected to take this much, for the size of the tables.
const BLOCK_BYTES_EXPECTED: u64 = 16 << 10;
/// A shard of less could not hold some of the larger blocks in the part for new ones.
const SHARD_BYTES_MIN: u64 = 8 << 20;
const SHARDS_MAX: u64 = 64;
/// Part of a shard for blocks that were used again. New ones have the rest: what a statement reads must still be there when the
/// same statement changes it, however often the others are used.
const USED_AGAIN: f64 = 0.75;
/// The cache could remember names of blocks it let go of and take them for used again at once. These are not held to
/// `USED_AGAIN`: with more data than memory they take the whole shard, and new blocks go in the moment they come.
const REMEMBERED: f64 = 0.0;

/// A decoded block.
pub trait CachedBlock: Any + Send + Sync {
    /// Bytes of memory it takes.
    fn bytes(&self) -> usize;

    /// True if it counts as used again from the first. Blocks of indexes do: one stands for hundreds of rows and is asked for at
    /// every hundredth of them, which with more data than memory is too late for a new one.
    fn is_used_again(&self) -> bool {
        false
    }
}

/// Name of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// Class of its file.
    pub class: SegmentClass,
    /// Number of its file.
    pub segment: SegmentId,
    /// Its offset in the file.
    pub offset: u64,
}

/// What the cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCacheStats {
    /// Blocks that were there.
    pub hits: u64,
    /// Blocks that had to be loaded.
    pub misses: u64,
    /// Bytes it holds.
    pub bytes: u64,
    /// Blocks it holds.
    pub blocks: u64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<BlockKey, Arc<dyn CachedBlock>> for Bytes {
    fn weight(&self, _: &BlockKey, block: &Arc<dyn CachedBlock>) -> u64 {
        block.bytes() as u64 + ENTRY_BYTES
    }
}

/// See the module.
pub struct BlockCache {
    cache: Cache<BlockKey, Arc<dyn CachedBlock>, Bytes>,
    /// The cache's own number is a sum over all shards, each under its latch; every search in an index asks for it.
    budget: AtomicU64,
    /// Loads begun. The cache counts a look-up that ends in a load more than once; hits it counts by shard, which costs
    /// readers no common word.
    loads: AtomicU64,
    /// Uses of its own, by which a block counts as used again.
    own_uses: AtomicU64,
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({:?})", self.stats())
    }
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> Self {
        let shards = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize;
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity((bytes / BLOCK_BYTES_EXPECTED).max(64) as usize)
            .weight_capacity(bytes)
            .hot_allocation(USED_AGAIN)
            .ghost_allocation(REMEMBERED)
            .build()
            .expect("rule F14: both sizes are given");
        let cache = Cache::with_options(
            options,
            Bytes,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        Self {
            cache,
            budget: AtomicU64::new(bytes),
            loads: AtomicU64::new(0),
            own_uses: AtomicU64::new(0),
        }
    }

    /// The block, from memory or else from `load`. Of several who want it at once one loads it; after a failed load the next
    /// one tries. The type must be the one the block was first loaded as.
    pub fn get_or_load<B: CachedBlock>(
        &self,
        key: BlockKey,
        load: impl FnOnce() -> Result<B>,
    ) -> Result<Arc<B>> {
        let mut is_used_again = false;
        let load = || {
            self.loads.fetch_add(1, Ordering::Relaxed);
            let block = load()?;
            is_used_again = block.is_used_again();
            Ok(Arc::new(block) as Arc<dyn CachedBlock>)
        };
        let loaded = self.cache.get_or_insert_with(&key, load)?;
        if is_used_again && self.cache.get(&key).is_some() {
            self.own_uses.fetch_add(1, Ordering::Relaxed);
        }
        Ok(typed(loaded))
    }

    /// Keeps another form of a block that is in memory, of the same type.
    pub fn put<B: CachedBlock>(&self, key: BlockKey, block: Arc<B>) {
        self.cache.insert(key, block);
    }

    /// The block if it is in memory; counts as a use of it.
    pub fn get<B: CachedBlock>(&self, key: BlockKey) -> Option<Arc<B>> {
        self.cache.get(&key).map(typed)
    }

    /// The block if it is in memory; for readers in order, who would push out what others need.
    pub fn peek<B: CachedBlock>(&self, key: BlockKey) -> Option<Arc<B>> {
        self.cache.peek(&key).map(typed)
    }

    /// True if the block is in memory now.
    pub fn contains(&self, key: BlockKey) -> bool {
        self.cache.contains_key(&key)
    }

    /// Changes the budget; a smaller one takes effect at once.
    pub fn set_budget(&self, bytes: u64) {
        self.cache.set_capacity(bytes);
        self.budget.store(bytes, Ordering::Relaxed);
    }

    /// The budget in bytes.
    pub fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// What it has done and holds.
    pub fn stats(&self) -> BlockCacheStats {
        BlockCacheStats {
            hits: self
                .cache
                .hits()
                .saturating_sub(self.own_uses.load(Ordering::Relaxed)),
            misses: self.loads.load(Ordering::Relaxed),
            bytes: self.cache.weight(),
            blocks: self.cache.len() as u64,
        }
    }

    /// Forgets the blocks of a dropped file. Looks at every entry: for many files use `forget_segments`.
    pub fn forget_segment(&self, class: SegmentClass, id: SegmentId) {
        self.forget_segments(&HashSet::from([(class, id)]));
    }

    /// Forgets the blocks of dropped files.
    pub fn forget_segments(&self, gone: &HashSet<(SegmentClass, SegmentId)>) {
        if !gone.is_empty() {
            self.cache
                .retain(|key, _| !gone.contains(&(key.class, key.segment)));
        }
    }
}

fn typed<B: CachedBlock>(block: Arc<dyn CachedBlock>) -> Arc<B> {
    let any: Arc<dyn Any + Send + Sync> = block;
    any.downcast()
        .unwrap_or_else(|_| panic!("F14: a block is always asked for as the type it was loaded as"))
}
