//! Row ahead: blocks of rows read many at a time, because the reader knows which ones it wants next.
//!
//! Why it exists: a disk that is asked for one block at a time is idle most of the time. Blocks are read past the system's page
//! cache (docs/decisions/0005), so nobody else reads ahead for a scan or keeps what a merge has read.
//! Two ways: `RowPiece::load_blocks` for a list of blocks, in any piece of a table; `ReadAhead` for a reader in order.
//! State of `ReadAhead`: the stored bytes of the next blocks. They become decoded blocks of the cache one by one, as the reader
//! comes to them, so what is read ahead pushes nothing out; a cached block is never read again.
//! Latches and I/O: none held; reads blocks.

use crate::error::Result;
use crate::row_shape::{BlockSource, CachedRows, RowPiece};
use pbxt_io::{for_each_parallel, parallelism};
use pbxt_rows::Versions;
use pbxt_segment::{BlockCache, BlockKey, StoredBlocks};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Blocks that `load_blocks` reads at once, at most.
pub(crate) const BATCH_BLOCKS: usize = 32;
/// Blocks of a batch that are worth a second thread, and threads at most.
const PARALLEL_BLOCKS_MIN: usize = 8;
const THREADS_MAX: usize = 4;
/// Stored bytes that a reader in order has ahead: at most so many, and at most this part of the cache.
const AHEAD_BYTES: usize = 1 << 20;
const AHEAD_SHARE: u64 = 64;
const AHEAD_BLOCKS: usize = 128;
/// Blocks that a reader in order passes over, at most: a filter spares it some.
const SKIPPED_MAX: usize = 8;

/// Threads that unpack for readers now; all readers together have no more than the machine has processors to spare.
static HELPING: AtomicUsize = AtomicUsize::new(0);

/// Threads that help one reader with one batch.
struct Helpers(usize);

impl Helpers {
    fn for_blocks(missing: usize) -> Self {
        if missing < PARALLEL_BLOCKS_MIN {
            return Self(0);
        }
        let spare = parallelism().saturating_sub(1);
        let share = |busy: usize| spare.saturating_sub(busy).min(THREADS_MAX - 1);
        let order = Ordering::Relaxed;
        let before = HELPING.fetch_update(order, order, |busy| Some(busy + share(busy)));
        Self(share(before.unwrap_or_default()))
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        HELPING.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl RowPiece {
    /// The decoded blocks with these numbers, which rise, in their order: those that are not in the cache are read in one
    /// batch and put there. At most `BATCH_BLOCKS`, as the answer is memory beside the cache's.
    pub(crate) fn load_blocks(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        blocks: &[usize],
    ) -> Result<Vec<Arc<CachedRows>>> {
        debug_assert!(blocks.len() <= BATCH_BLOCKS && blocks.is_sorted());
        self.check_known(versions)?;
        let missing = |block: &usize| !cache.contains(self.block_key(*block));
        let missing: Vec<usize> = blocks.iter().copied().filter(missing).collect();
        let read = self.file.read_batch(self.section, &missing)?;
        let loaded: Vec<OnceLock<Arc<CachedRows>>> = blocks.iter().map(|_| OnceLock::new()).collect();
        let places: Vec<usize> = (0..blocks.len()).collect();
        // Unpacking is most of the work, and each block by itself.
        let helpers = Helpers::for_blocks(missing.len());
        for_each_parallel(&places, 1 + helpers.0, |&place| -> Result<()> {
            let block = blocks[place];
            let stored = read.iter().find(|stored| stored.blocks().contains(&block));
            let rows = match stored {
                Some(stored) => self.block_from(versions, cache, block, stored, &mut Vec::new())?,
                // It was in the cache, and may have left it since.
                None => self.block(versions, cache, block)?,
            };
            let _ = loaded[place].set(rows);
            Ok(())
        })?;
        Ok(loaded.into_iter().filter_map(OnceLock::into_inner).collect())
    }

    /// A block, from the cache or from bytes that were read.
    fn block_from(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        block: usize,
        stored: &StoredBlocks,
        raw: &mut Vec<u8>,
    ) -> Result<Arc<CachedRows>> {
        let load = || {
            stored.decode(block, raw)?;
            self.decode(versions, block, raw)
        };
        let rows = cache.get_or_load(self.block_key(block), load)?;
        self.newest(versions, cache, block, rows)
    }
}

/// Blocks that were loaded together, for look-ups in them: what a batch puts into the cache may leave it again before its turn
/// comes.
pub(crate) struct Together<'c> {
    cache: &'c BlockCache,
    blocks: Vec<(BlockKey, Arc<CachedRows>)>,
    /// Where the last look-up found its block: rows are looked up in the order of their ids, so of their blocks.
    at: Cell<usize>,
}

impl<'c> Together<'c> {
    /// Loads these blocks of a piece; without a piece it has none.
    pub(crate) fn load(
        versions: &Versions,
        cache: &'c BlockCache,
        piece: Option<&Arc<RowPiece>>,
        blocks: &[usize],
    ) -> Result<Self> {
        let mut loaded = Vec::new();
        if let Some(piece) = piece {
            let keys = blocks.iter().map(|&block| piece.block_key(block));
            loaded = keys.zip(piece.load_blocks(versions, cache, blocks)?).collect();
        }
        Ok(Self {
            cache,
            blocks: loaded,
            at: Cell::new(0),
        })
    }
}

impl BlockSource for Together<'_> {
    fn block_of(&self, piece: &RowPiece, versions: &Versions, block: usize) -> Result<Arc<CachedRows>> {
        let key = piece.block_key(block);
        let mut blocks = self.blocks.iter().enumerate().skip(self.at.get());
        match blocks.find(|(_, (held, _))| *held == key) {
            Some((at, (_, rows))) => {
                self.at.set(at);
                Ok(Arc::clone(rows))
            }
            None => piece.block(versions, self.cache, block),
        }
    }
}

/// Reads the blocks of one run for a reader who wants most of them in order. See the module.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    stored: Option<StoredBlocks>,
    /// File, section and number of the block that comes next in order.
    next: Option<(pbxt_base::SegmentId, u32, usize)>,
    /// Blocks to read at once the next time; grows while the reader goes on in order.
    count: usize,
    raw: Vec<u8>,
}

impl ReadAhead {
    /// A block, from the cache or from what was read ahead, or from disk, and then the ones behind it too. The first blocks of
    /// another piece count as the next ones in order.
    pub(crate) fn block(
        &mut self,
        versions: &Versions,
        cache: &BlockCache,
        piece: &RowPiece,
        block: usize,
    ) -> Result<Arc<CachedRows>> {
        let place = (piece.file.id(), piece.section);
        let goes_on = self.next.is_some_and(|(file, section, next)| {
            let skipped = block.checked_sub(next);
            if place == (file, section) {
                skipped.is_some_and(|skipped| skipped <= SKIPPED_MAX)
            } else {
                block <= SKIPPED_MAX
            }
        });
        self.next = Some((place.0, place.1, block + 1));
        if !goes_on {
            self.count = 1;
        }
        piece.check_known(versions)?;
        if let Some(kept) = cache.get(piece.block_key(block)) {
            return piece.newest(versions, cache, block, kept);
        }
        if !self.has(piece, block) {
            let count = self.count_ahead(cache, piece, block);
            self.stored = Some(piece.file.read_blocks_ahead(piece.section, block, count)?);
            self.count = (self.count * 2).min(AHEAD_BLOCKS);
        }
        let stored = self.stored.as_ref().expect("rule F14: blocks were read just now");
        piece.block_from(versions, cache, block, stored, &mut self.raw)
    }

    fn has(&self, piece: &RowPiece, block: usize) -> bool {
        self.stored.as_ref().is_some_and(|stored| {
            stored.is_of(&piece.file, piece.section) && stored.blocks().contains(&block)
        })
    }

    /// How many blocks to read: up to the next one that is in the cache.
    fn count_ahead(&self, cache: &BlockCache, piece: &RowPiece, block: usize) -> usize {
        let bytes = AHEAD_BYTES.min((cache.budget() / AHEAD_SHARE) as usize);
        let most = piece.section().blocks_within(block, bytes).min(self.count);
        let wanted = (1..most).take_while(|ahead| !cache.contains(piece.block_key(block + ahead)));
        wanted.count() + 1
    }
}

#[cfg(test)]
#[path = "row_ahead_tests.rs"]
mod row_ahead_tests;
