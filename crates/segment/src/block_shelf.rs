//! Block shelf: those decoded blocks of one section that are asked for again and again, by their number.
//!
//! Why it exists: who asks the cache for a block hashes its name, takes a latch that others take, and writes to four words that
//! others write too. A reader of small rows does that twice a row, and it costs more than the row. A block on the shelf of its
//! section is reached by one load of a counted pointer.
//! State: of each block nothing, or the block that the cache has.
//! Rules: S54 what stays in memory the cache alone decides: a block it lets go of leaves its shelf.
//! Latches and I/O: none.

use crate::block_cache::CachedBlock;
use arc_swap::{ArcSwapOption, Guard};
use pbxt_base::prefetch_at;
use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

/// See the module.
pub struct BlockShelf<B>(Box<[ArcSwapOption<B>]>);

/// Which shelf a block stands on, if it was ever put on one, and its number there. Part of the block.
#[derive(Debug, Default)]
pub struct ShelfPlace(OnceLock<(Weak<dyn Shelf>, u32)>);

/// A shelf of whatever blocks.
trait Shelf: Send + Sync {
    /// Takes the block of this number off.
    fn take_off(&self, number: u32);
}

impl<B: CachedBlock> Shelf for BlockShelf<B> {
    fn take_off(&self, number: u32) {
        // Most blocks that go were never put here again; an exchange would look at what all threads read.
        let number = number as usize;
        if self.0.get(number).is_some_and(|place| place.load().is_some()) {
            self.put(number, None);
        }
    }
}

impl<B: CachedBlock> BlockShelf<B> {
    /// An empty shelf for so many blocks.
    pub fn new(blocks: usize) -> Arc<Self> {
        Arc::new(Self((0..blocks).map(|_| ArcSwapOption::empty()).collect()))
    }

    /// Bytes of memory that it takes, blocks aside.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// The block of this number, if it stands here.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<Arc<B>> {
        self.0.get(number)?.load_full()
    }

    /// What stands at this number, for a look that keeps it no longer than that.
    #[inline]
    pub(crate) fn look(&self, number: usize) -> Guard<Option<Arc<B>>> {
        self.0
            .get(number)
            .map_or_else(|| Guard::from_inner(None), ArcSwapOption::load)
    }

    /// Asks for the first line of the block of this number, if it stands here. No use of it.
    #[inline]
    pub fn prefetch(&self, number: usize) {
        if let Some(block) = self.look(number).as_ref() {
            prefetch_at(Arc::as_ptr(block).cast(), 1);
        }
    }

    /// True if this very block stands here.
    pub(crate) fn has(&self, number: usize, block: &Arc<B>) -> bool {
        let Some(place) = self.0.get(number) else {
            return false;
        };
        place
            .load()
            .as_ref()
            .is_some_and(|found| Arc::ptr_eq(found, block))
    }

    pub(crate) fn put(&self, number: usize, block: Option<Arc<B>>) {
        if let Some(place) = self.0.get(number) {
            place.store(block);
        }
    }
}

impl<B> fmt::Debug for BlockShelf<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockShelf({} blocks)", self.0.len())
    }
}

impl ShelfPlace {
    /// Gives the block its place, if it has none. False if it has another one.
    pub(crate) fn claim<B: CachedBlock>(&self, shelf: &Arc<BlockShelf<B>>, number: usize) -> bool {
        let (found, at) = self.0.get_or_init(|| {
            let shelf = Arc::downgrade(shelf);
            (shelf as Weak<dyn Shelf>, number as u32)
        });
        ptr::addr_eq(found.as_ptr(), Arc::as_ptr(shelf)) && *at as usize == number
    }

    /// Takes the block off its shelf.
    pub(crate) fn leave(&self) {
        if let Some((shelf, number)) = self.0.get()
            && let Some(shelf) = shelf.upgrade()
        {
            shelf.take_off(*number);
        }
    }
}
