//! A wide block: decoded entries as the tree has them, in memory of the block's own.
//!
//! Why it exists:    entries that carry stamps differ in everything; readers take them where they lie.
//! Format / state:   entries of [`crate::entry`] back to back, each at a multiple of 8, and a list of where each begins.
//! Rules:            X1, X2 (entries never change, except that DEAD is set).
//! Latches and I/O:  none.

use std::ptr::NonNull;

use pbxt_base::invariant;

use crate::entry::{EntryView, NewEntry};
use crate::entry_room::{WORD, Word};
use crate::seek::{SeekPos, head_of, open_range, partition};

/// Entries in the order of the index; see the module.
pub(crate) struct WideBlock {
    memory: Box<[Word]>,
    /// Where each entry begins, in words.
    starts: Box<[u32]>,
    /// Bytes that all keys begin with, and the head of each key behind them: a search reads few entries.
    prefix_len: usize,
    heads: Box<[u32]>,
}

// SAFETY: entries are written before the block is shared and never change afterwards (X2), except for their flags, which
// are only ever reached as atomics.
unsafe impl Send for WideBlock {}
// SAFETY: as above.
unsafe impl Sync for WideBlock {}

impl WideBlock {
    fn len(&self) -> usize {
        self.starts.len()
    }

    #[inline]
    pub(crate) fn entry(&self, index: usize) -> EntryView<'_> {
        let start = self.starts[index] as usize;
        let at = NonNull::from(&self.memory[start..]).cast::<u8>();
        // SAFETY: `starts` names entries that `push` wrote into this memory, which stays as long as the block does.
        unsafe { EntryView::new(at) }
    }

    /// Number of entries left of the cut.
    pub(crate) fn partition_point(&self, pos: &SeekPos<'_>) -> usize {
        let skip = self.prefix_len;
        let has_prefix = pos.key.get(..skip) == self.entry(0).key().get(..skip);
        let open = if has_prefix {
            open_range(self.len(), pos.open_heads(skip), |index| self.heads[index])
        } else {
            0..self.len()
        };
        partition(open, |index| pos.is_right_of(self.entry(index)))
    }

    /// Bytes of memory it takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.memory) + size_of_val(&*self.starts) + size_of_val(&*self.heads)
    }
}

/// A block being filled, in memory measured before.
pub(crate) struct WideBuilder {
    memory: Box<[Word]>,
    used: usize,
    starts: Vec<u32>,
}

impl WideBuilder {
    pub(crate) fn new(bytes: usize, entries: usize) -> WideBuilder {
        WideBuilder {
            memory: Box::new_uninit_slice(bytes.div_ceil(WORD)),
            used: 0,
            starts: Vec::with_capacity(entries),
        }
    }

    pub(crate) fn push(&mut self, entry: &NewEntry<'_>) {
        let words = entry.bytes().div_ceil(WORD);
        let room = &mut self.memory[self.used..];
        invariant!(words <= room.len(), "X30: a block's entries were measured before");
        // SAFETY: the room is 8-aligned, as long as the entry, and nobody else knows this memory yet.
        unsafe { entry.write(NonNull::from(room).cast()) };
        self.starts.push(self.used as u32);
        self.used += words;
    }

    /// The block; there is an entry.
    pub(crate) fn finish(self) -> WideBlock {
        let mut block = WideBlock {
            memory: self.memory,
            starts: self.starts.into_boxed_slice(),
            prefix_len: 0,
            heads: Box::default(),
        };
        let last = block.len() - 1;
        let (first, last) = (block.entry(0).key(), block.entry(last).key());
        let skip = first
            .iter()
            .zip(last)
            .take_while(|(first, last)| first == last)
            .count();
        let heads =
            (0..block.len()).map(|index| head_of(block.entry(index).key().get(skip..).unwrap_or(&[])));
        block.heads = heads.collect();
        block.prefix_len = skip;
        block
    }
}
