//! A decoded run block: entries as the tree has them, in memory of the block's own.
//!
//! Why it exists:    readers merge trees and runs. If the entries of both look alike, a merge compares and hands out one
//!                   type, and a block that is read a thousand times is decoded once.
//! Format / state:   stored: `docs/indexes.md`, run blocks; decoded: entries of [`crate::entry`] back to back, each at a
//!                   multiple of 8, and a list of where each begins.
//! Rules:            X1, X2 (entries never change, except that DEAD is set), X30 damage is an error and nothing is
//!                   guessed, X31 in a tagged run each entry gets the run's stamp.
//! Latches and I/O:  none. DEAD is a hint that dies with the cached block.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use pbxt_base::codec::Reader;
use pbxt_base::{Lsn, Result, TxnId, invariant};

use crate::columns::damaged;
use crate::entry::{EntryView, NewEntry};
use crate::run_decode::Columns;
use crate::seek::{SeekPos, head_of};

/// Equal heads are looked for among this many first.
const HEADS_NEAR: usize = 8;

/// Eight bytes that are written once, before the block is shown to anyone; but for the flags in them.
type Word = MaybeUninit<UnsafeCell<u64>>;
const WORD: usize = size_of::<Word>();

/// Decoded entries of one block of a run, in the order of the index.
pub struct RunBlock {
    memory: Box<[Word]>,
    /// Where each entry begins, in words.
    starts: Box<[u32]>,
    /// Bytes that all keys begin with, and the head of each key behind them: a search reads few entries.
    prefix_len: usize,
    heads: Box<[u32]>,
    dead: AtomicU32,
}

// SAFETY: entries are written before the block is shared and never change afterwards (X2), except for their flags, which
// are only ever reached as atomics.
unsafe impl Send for RunBlock {}
// SAFETY: as above.
unsafe impl Sync for RunBlock {}

impl RunBlock {
    /// Entries of stored bytes. `tag` is the stamp of a tagged run.
    ///
    /// # Errors
    /// `Corrupt` without a file name, if the bytes are not those of a run block.
    pub fn decode(bytes: &[u8], tag: Option<(TxnId, Lsn)>) -> Result<RunBlock> {
        let mut reader = Reader::new(bytes);
        let columns = Columns::read(&mut reader)?;
        if !reader.rest().is_empty() {
            let left = format!("{} bytes more", reader.rest().len());
            return Err(damaged(&reader, "the end of the block", &left));
        }
        let mut builder = Builder::new(columns.memory_bytes(&reader)?, columns.entries);
        columns.each(&reader, tag, |entry| builder.push(entry))?;
        Ok(builder.finish())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if there is no entry; a block that was read has one.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Entry `index`.
    ///
    /// # Panics
    /// Beyond the last entry.
    #[inline]
    pub fn entry(&self, index: usize) -> EntryView<'_> {
        let start = self.starts[index] as usize;
        let at = NonNull::from(&self.memory[start..]).cast::<u8>();
        // SAFETY: `starts` names entries that `build` wrote into this memory, which stays as long as the block does.
        unsafe { EntryView::new(at) }
    }

    /// Number of entries left of the cut.
    pub fn partition_point(&self, pos: &SeekPos<'_>) -> usize {
        let (mut low, mut high) = self.open_range(pos);
        while low < high {
            let middle = usize::midpoint(low, high);
            if pos.is_right_of(self.entry(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Entries that their heads alone do not place on a side of the cut: those before lie left of it, those behind right.
    fn open_range(&self, pos: &SeekPos<'_>) -> (usize, usize) {
        let skip = self.prefix_len;
        if self.is_empty() || pos.key.get(..skip) != Some(&self.entry(0).key()[..skip]) {
            return (0, self.len());
        }
        let (least, greatest) = pos.open_heads(skip);
        let from = self.heads.partition_point(|&head| head < least);
        let rest = &self.heads[from..];
        let is_short = rest.get(HEADS_NEAR).is_none_or(|&head| head > greatest);
        let rest = if is_short {
            &rest[..rest.len().min(HEADS_NEAR)]
        } else {
            rest
        };
        (from, from + rest.partition_point(|&head| head <= greatest))
    }

    /// Marks entry `index` dead, as a hint to those who read this copy of the block.
    pub fn mark_dead(&self, index: usize) {
        if self.entry(index).set_dead() {
            self.dead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if some entry is marked dead.
    #[inline]
    pub fn has_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) > 0
    }

    /// True if every entry is marked dead.
    pub fn is_all_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) as usize == self.len()
    }

    /// Bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<RunBlock>()
            + size_of_val(&*self.memory)
            + size_of_val(&*self.starts)
            + size_of_val(&*self.heads)
    }
}

/// A block being filled, in memory measured before.
struct Builder {
    memory: Box<[Word]>,
    used: usize,
    starts: Vec<u32>,
}

impl Builder {
    fn new(bytes: usize, entries: usize) -> Builder {
        Builder {
            memory: Box::new_uninit_slice(bytes.div_ceil(WORD)),
            used: 0,
            starts: Vec::with_capacity(entries),
        }
    }

    fn push(&mut self, entry: &NewEntry<'_>) {
        let words = entry.bytes().div_ceil(WORD);
        let room = &mut self.memory[self.used..];
        invariant!(words <= room.len(), "X30: a block's entries were measured before");
        // SAFETY: the room is 8-aligned, as long as the entry, and nobody else knows this memory yet.
        unsafe { entry.write(NonNull::from(room).cast()) };
        self.starts.push(self.used as u32);
        self.used += words;
    }

    fn finish(self) -> RunBlock {
        let mut block = RunBlock {
            memory: self.memory,
            starts: self.starts.into_boxed_slice(),
            prefix_len: 0,
            heads: Box::default(),
            dead: AtomicU32::new(0),
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

impl fmt::Debug for RunBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBlock")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "run_block_tests.rs"]
mod tests;
