//! Block cache: decoded blocks of piece files, one budget of bytes for all of them.
//!
//! Why it exists: index blocks and row blocks compete for the same memory; what is used more stays, whatever it is. What
//! is kept is decoded and ready to search, so a hit costs no decompression.
//! States: absent, being loaded (others who want it wait for the one who loads), present.
//! Rules: a block is named by class, segment and offset; ids of piece files are not used twice in a life, so blocks of a
//! dropped file are never met again and only take room until `forget_segment` or until they are pushed out. S54 a block that is
//! asked for again stands on the shelf of its section too, and some of its uses there are told to the cache. S61 a block is not used
//! again by who uses it right after it was loaded.
//! Latches and I/O: the latch of one of many shards, shared for hits; none of them during a load.

use crate::block_shelf::{BlockShelf, ShelfPlace};
use crate::names::SegmentClass;
use pbxt_base::{Result, SegmentId};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use std::any::Any;
use std::collections::HashSet;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What an entry costs besides its block.
const ENTRY_BYTES: u64 = 96;
/// A block is expected to take this much, for the size of the tables.
const BLOCK_BYTES_EXPECTED: u64 = 16 << 10;
/// Names fall on shards by chance: with so many blocks in each (a few thousand), one that gets more than its share lets go of one in fifty
/// while others have room. Most uses of blocks ask no shard (rule S54), so few are enough.
const SHARD_BYTES_MIN: u64 = 32 << 20;
const SHARDS_MAX: u64 = 64;
/// Part of a shard for blocks that were used again. New ones have the rest: what a statement reads must still be there when the
/// same statement changes it, however often the others are used.
const USED_AGAIN: f64 = 0.75;
/// The cache could remember names of blocks it let go of and take them for used again at once. These are not held to
/// `USED_AGAIN`: with more data than memory they take the whole shard, and new blocks go in the moment they come.
const REMEMBERED: f64 = 0.0;
/// Of the uses of blocks on shelves, one of so many is told to the cache (rule S54).
const USES_TOLD: u64 = 8;
/// For so many loads of any blocks a block is young (rule S61): at most so many, ...
const YOUNG_LOADS_MAX: u64 = 256;
/// and one for so many bytes of budget, so that a block grows older before it has to leave the part for new ones.
const YOUNG_LOAD_BYTES: u64 = 256 << 10;
/// Words that these uses are counted in: threads that read side by side should have one each.
const USE_WORDS: usize = 16;

/// A decoded block.
pub trait CachedBlock: Any + Send + Sync {
    /// Bytes of memory it takes.
    fn bytes(&self) -> usize;

    /// True if it counts as used again from the first. Blocks of indexes do: one stands for hundreds of rows and is asked for at
    /// every hundredth of them, which with more data than memory is too late for a new one.
    fn is_used_again(&self) -> bool {
        false
    }

    /// Its place on a shelf; none if it never stands on one.
    fn shelf_place(&self) -> Option<&ShelfPlace> {
        None
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

/// A block, and the number of its load.
#[derive(Clone)]
struct Kept {
    block: Arc<dyn CachedBlock>,
    load: u64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<BlockKey, Kept> for Bytes {
    fn weight(&self, _: &BlockKey, kept: &Kept) -> u64 {
        kept.block.bytes() as u64 + ENTRY_BYTES
    }
}

/// Takes blocks that are pushed out off their shelves.
#[derive(Clone)]
struct Departure {
    /// Some block was pushed out.
    is_full: Arc<AtomicBool>,
}

impl Lifecycle<BlockKey, Kept> for Departure {
    type RequestState = Departed;

    fn on_evict(&self, departed: &mut Departed, _: BlockKey, kept: Kept) {
        if !self.is_full.load(Ordering::Relaxed) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        departed.0.push(kept.block);
    }
}

/// Blocks that one request has pushed out. They leave their shelves when the latch of their shard is free again.
#[derive(Default)]
struct Departed(Vec<Arc<dyn CachedBlock>>);

impl Drop for Departed {
    fn drop(&mut self) {
        for block in &self.0 {
            take_off_shelf(&**block);
        }
    }
}

fn take_off_shelf(block: &dyn CachedBlock) {
    if let Some(place) = block.shelf_place() {
        place.leave();
    }
}

/// Uses of blocks on shelves.
#[derive(Default)]
struct ShelfUses([UseWord; USE_WORDS]);

/// A count on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct UseWord(AtomicU64);

static NEXT_USE_WORD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The word that the thread counts in.
    static USE_WORD: usize = NEXT_USE_WORD.fetch_add(1, Ordering::Relaxed) % USE_WORDS;
}

impl ShelfUses {
    /// True if a block may be used without telling the cache, which counts what it is told.
    #[inline]
    fn is_one_more(&self) -> bool {
        let word = &self.0[USE_WORD.with(|word| *word)];
        word.0.fetch_add(1, Ordering::Relaxed) % USES_TOLD != USES_TOLD - 1
    }

    /// Uses that the cache was not told of.
    fn untold(&self) -> u64 {
        let counts = self.0.iter().map(|word| word.0.load(Ordering::Relaxed));
        counts.map(|count| count - count / USES_TOLD).sum()
    }
}

/// See the module.
pub struct BlockCache {
    cache: Cache<BlockKey, Kept, Bytes, DefaultHashBuilder, Departure>,
    /// A block was pushed out: what counts as a use matters.
    is_full: Arc<AtomicBool>,
    /// Uses that shelves spared the cache.
    shelf_uses: ShelfUses,
    /// The cache's own number is a sum over all shards, each under its latch; every search in an index asks for it.
    budget: AtomicU64,
    /// Loads begun. The cache counts a look-up that ends in a load more than once; hits it counts by shard, which costs
    /// readers no common word.
    loads: AtomicU64,
    /// Uses of its own, by which a block counts as used again.
    own_uses: AtomicU64,
    /// Uses of young blocks, which it was not told of.
    young_uses: AtomicU64,
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
        let is_full = Arc::new(AtomicBool::new(false));
        let departure = Departure {
            is_full: Arc::clone(&is_full),
        };
        let cache = Cache::with_options(options, Bytes, DefaultHashBuilder::default(), departure);
        Self {
            cache,
            is_full,
            shelf_uses: ShelfUses::default(),
            budget: AtomicU64::new(bytes),
            loads: AtomicU64::new(0),
            own_uses: AtomicU64::new(0),
            young_uses: AtomicU64::new(0),
        }
    }

    /// The block, from memory or else from `load`. Of several who want it at once one loads it; after a failed load the next
    /// one tries. The type must be the one the block was first loaded as.
    pub fn get_or_load<B: CachedBlock>(
        &self,
        key: BlockKey,
        load: impl FnOnce() -> Result<B>,
    ) -> Result<Arc<B>> {
        if let Some(young) = self.young(&key) {
            return Ok(typed(young));
        }
        let mut is_used_again = false;
        let load = || {
            let load_no = self.loads.fetch_add(1, Ordering::Relaxed);
            let block = load()?;
            is_used_again = block.is_used_again();
            Ok(Kept {
                block: Arc::new(block),
                load: load_no,
            })
        };
        let loaded = self.cache.get_or_insert_with(&key, load)?.block;
        if is_used_again && self.cache.get(&key).is_some() {
            self.own_uses.fetch_add(1, Ordering::Relaxed);
        }
        Ok(typed(loaded))
    }

    /// The block if it is there and a use of it does not count (rule S61).
    fn young(&self, key: &BlockKey) -> Option<Arc<dyn CachedBlock>> {
        if !self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let kept = self.cache.peek(key)?;
        let loads = self.loads.load(Ordering::Relaxed);
        let young = (self.budget() / YOUNG_LOAD_BYTES).min(YOUNG_LOADS_MAX);
        if loads.saturating_sub(kept.load) > young || kept.block.is_used_again() {
            return None;
        }
        self.young_uses.fetch_add(1, Ordering::Relaxed);
        Some(kept.block)
    }

    /// `get_or_load` of the block that has this number in a section with this shelf; `key` is asked for its name if it does not stand
    /// there (rule S54).
    #[inline]
    pub fn get_or_load_in<B: CachedBlock>(
        &self,
        shelf: &Arc<BlockShelf<B>>,
        number: usize,
        key: impl FnOnce() -> BlockKey,
        load: impl FnOnce() -> Result<B>,
    ) -> Result<Arc<B>> {
        match shelf.get(number) {
            Some(block) if self.shelf_uses.is_one_more() => Ok(block),
            _ => self.get_or_load_beside(shelf, number, key(), load),
        }
    }

    /// The block that has this number in a section with this shelf, if it stands there; counts as a use of it (rule S54).
    #[inline]
    pub fn get_in<B: CachedBlock>(
        &self,
        shelf: &BlockShelf<B>,
        number: usize,
        key: impl FnOnce() -> BlockKey,
    ) -> Option<Arc<B>> {
        let block = shelf.get(number)?;
        if self.shelf_uses.is_one_more() {
            Some(block)
        } else {
            self.get(key())
        }
    }

    /// What `look` finds in the block that has this number in a section with this shelf, if it stands there; counts as a use of it
    /// (rule S54). The block is not counted as held meanwhile, so nothing is written to what all threads read.
    #[inline]
    pub fn look_in<B: CachedBlock, R>(
        &self,
        shelf: &BlockShelf<B>,
        number: usize,
        key: impl FnOnce() -> BlockKey,
        look: impl FnOnce(&B) -> R,
    ) -> Option<R> {
        let place = shelf.look(number);
        let block = place.as_ref()?;
        if !self.shelf_uses.is_one_more() {
            self.get::<B>(key());
        }
        Some(look(block))
    }

    /// `get_or_load_in` past the shelf, on which the block is put if it was used before.
    fn get_or_load_beside<B: CachedBlock>(
        &self,
        shelf: &Arc<BlockShelf<B>>,
        number: usize,
        key: BlockKey,
        load: impl FnOnce() -> Result<B>,
    ) -> Result<Arc<B>> {
        let mut is_new = false;
        let load = || {
            is_new = true;
            load()
        };
        let block = self.get_or_load(key, load)?;
        if !is_new || block.is_used_again() {
            self.put_on_shelf(shelf, number, key, &block);
        }
        Ok(block)
    }

    fn put_on_shelf<B: CachedBlock>(
        &self,
        shelf: &Arc<BlockShelf<B>>,
        number: usize,
        key: BlockKey,
        block: &Arc<B>,
    ) {
        let place = block.shelf_place();
        if shelf.has(number, block) || !place.is_some_and(|place| place.claim(shelf, number)) {
            return;
        }
        shelf.put(number, Some(Arc::clone(block)));
        // S54: whoever pushed it out before may have looked at the shelf before too; who does so from here on finds it there.
        let kept = self.cache.peek(&key);
        if !kept.is_some_and(|kept| ptr::addr_eq(Arc::as_ptr(&kept.block), Arc::as_ptr(block))) {
            shelf.put(number, None);
        }
    }

    /// Keeps another form of the block that has this number in a section with this shelf, of the same type.
    pub fn put_in<B: CachedBlock>(
        &self,
        shelf: &Arc<BlockShelf<B>>,
        number: usize,
        key: BlockKey,
        block: &Arc<B>,
    ) {
        let kept = Kept {
            block: Arc::clone(block) as Arc<dyn CachedBlock>,
            load: self.loads.load(Ordering::Relaxed),
        };
        self.cache.insert(key, kept);
        self.put_on_shelf(shelf, number, key, block);
    }

    /// `peek` at the block that has this number in a section with this shelf.
    #[inline]
    pub fn peek_in<B: CachedBlock>(
        &self,
        shelf: &BlockShelf<B>,
        number: usize,
        key: impl FnOnce() -> BlockKey,
    ) -> Option<Arc<B>> {
        shelf.get(number).or_else(|| self.peek(key()))
    }

    /// The block if it is in memory; counts as a use of it.
    pub fn get<B: CachedBlock>(&self, key: BlockKey) -> Option<Arc<B>> {
        let young = self.young(&key);
        young
            .or_else(|| self.cache.get(&key).map(|kept| kept.block))
            .map(typed)
    }

    /// The block if it is in memory; for readers in order, who would push out what others need.
    pub fn peek<B: CachedBlock>(&self, key: BlockKey) -> Option<Arc<B>> {
        self.cache.peek(&key).map(|kept| typed(kept.block))
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
            hits: (self.cache.hits() + self.shelf_uses.untold() + self.young_uses.load(Ordering::Relaxed))
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
            self.cache.retain(|key, kept| {
                let stays = !gone.contains(&(key.class, key.segment));
                if !stays {
                    take_off_shelf(&*kept.block);
                }
                stays
            });
        }
    }
}

fn typed<B: CachedBlock>(block: Arc<dyn CachedBlock>) -> Arc<B> {
    let any: Arc<dyn Any + Send + Sync> = block;
    any.downcast()
        .unwrap_or_else(|_| panic!("F14: a block is always asked for as the type it was loaded as"))
}
