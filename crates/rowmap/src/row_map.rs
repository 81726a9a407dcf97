//! `RowMap`: the rows of one table generation, each a word that names its newest version.
//!
//! Why it exists:    see the crate's documentation.
//! Format / state:   one radix tree per height. A row id belongs to the lowest tree whose reach covers it, so the map
//!                   grows in height by touching the next tree, and no root is ever replaced.
//! Rules:            M1 to M5 of the crate.
//! Latches and I/O:  the release latch, held while one leaf is sealed and taken out, some microseconds; only writers that
//!                   meet a sealed word wait for it. No I/O.
//! After a crash:    gone; `store_recovered` and `bump_to` build it anew.

use std::fmt;
use std::ops::Range;

use crossbeam_epoch::Guard;
use pbxt_base::{RowId, invariant, prefetch_at};

use crate::MapWord;
use crate::radix::{FANOUT_LOG2, Inner, LEAF_WORDS, LEAF_WORDS_LOG2, Leaf, SEALED, Subtree, get_or_create};
use crate::slot::Slot;
use crate::sync::{AtomicU64, AtomicUsize, Latch, Ordering};

type Height1 = Inner<Leaf>;
type Height2 = Inner<Height1>;
type Height3 = Inner<Height2>;
type Height4 = Inner<Height3>;

/// Greatest row id: 48 bits.
pub const ROW_MAX: u64 = (1 << 48) - 1;

/// Row id -> newest version, for one generation of a table. All methods may be called from any thread.
///
/// An untouched map holds no heap memory. The plain methods pin the epoch themselves; those that take a guard save that
/// for callers that have one.
#[derive(Default)]
pub struct RowMap {
    /// Greatest row id handed out; 0 if none.
    high_mark: AtomicU64,
    /// Heap bytes of all nodes.
    memory: AtomicUsize,
    height0: Slot<Leaf>,
    height1: Slot<Height1>,
    height2: Slot<Height2>,
    height3: Slot<Height3>,
    height4: Slot<Height4>,
    /// Held while a leaf is sealed and taken out.
    releasing: Latch,
}

impl RowMap {
    /// A map of no rows.
    pub fn new() -> RowMap {
        RowMap::default()
    }

    /// Hands out the next row id. The row is absent until someone swaps a version in.
    pub fn allocate(&self) -> RowId {
        self.allocate_many(1)
    }

    /// Hands out `count` consecutive row ids and returns the first of them.
    pub fn allocate_many(&self, count: u64) -> RowId {
        invariant!(
            count > 0 && count <= ROW_MAX,
            "M1: an allocation takes at least one row id"
        );
        let before = self.high_mark.fetch_add(count, Ordering::Relaxed);
        invariant!(
            before + count <= ROW_MAX,
            "M1: the 48-bit row ids of this table are used up"
        );
        RowId::new(before + 1)
    }

    /// Makes sure that `row` and everything below it is never handed out (again). For recovery.
    pub fn bump_to(&self, row: RowId) {
        self.high_mark.fetch_max(row.raw(), Ordering::Relaxed);
    }

    /// Greatest row id handed out so far; 0 if none was.
    pub fn high_mark(&self) -> u64 {
        self.high_mark.load(Ordering::Acquire)
    }

    /// The row's word now; `ABSENT` if no version in the log is linked.
    #[inline]
    pub fn load(&self, row: RowId) -> MapWord {
        self.load_in(row, &crossbeam_epoch::pin())
    }

    /// `load` for a caller that is pinned already.
    #[inline]
    pub fn load_in(&self, row: RowId, guard: &Guard) -> MapWord {
        self.find(leaf_no(row), guard).map_or(MapWord::ABSENT, |leaf| {
            MapWord::from_raw(leaf.words[offset(row)].load(Ordering::Acquire))
        })
    }

    /// Asks the processor for the row's word, which will be loaded soon.
    #[inline]
    pub fn prefetch(&self, row: RowId, guard: &Guard) {
        if let Some(leaf) = self.find(leaf_no(row), guard) {
            let word = &raw const leaf.words[offset(row)];
            prefetch_at(word.cast(), size_of::<u64>());
        }
    }

    /// False if the row's word is no tombstone, and was none since its leaf was made (rule M4). Reads less than `load`.
    #[inline]
    pub fn may_be_deleted(&self, row: RowId, guard: &Guard) -> bool {
        self.find(leaf_no(row), guard)
            .is_some_and(|leaf| leaf.may_be_deleted(offset(row)))
    }

    /// Replaces `old` by `new`. This is how a version becomes the newest, and it is the exclusive row lock (rule M2).
    ///
    /// # Errors
    /// The word that stands there instead, if it is not `old`.
    #[inline]
    pub fn compare_exchange(&self, row: RowId, old: MapWord, new: MapWord) -> Result<(), MapWord> {
        self.compare_exchange_in(row, old, new, &crossbeam_epoch::pin())
    }

    /// `compare_exchange` for a caller that is pinned already.
    ///
    /// # Errors
    /// As `compare_exchange`.
    #[inline]
    pub fn compare_exchange_in(
        &self,
        row: RowId,
        old: MapWord,
        new: MapWord,
        guard: &Guard,
    ) -> Result<(), MapWord> {
        loop {
            // Release: whoever loads the word may read the version behind it. Acquire: and so may we, if we lose.
            let leaf = self.leaf(row, guard);
            if new.is_tombstone() {
                leaf.note_deleted(offset(row));
            }
            let swapped = leaf.words[offset(row)].compare_exchange(
                old.raw(),
                new.raw(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swapped {
                Ok(_) => return Ok(()),
                Err(SEALED) => self.await_release(),
                Err(found) => return Err(MapWord::from_raw(found)),
            }
        }
    }

    /// Waits until the leaf in which a sealed word was met is taken out, or its words are 0 again.
    #[cold]
    fn await_release(&self) {
        self.releasing.hold(|| ());
    }

    /// Sets a word as recovery found it and keeps its row id from being handed out again. Not while leaves are released.
    pub fn store_recovered(&self, row: RowId, word: MapWord) {
        let guard = crossbeam_epoch::pin();
        let leaf = self.leaf(row, &guard);
        if word.is_tombstone() {
            leaf.note_deleted(offset(row));
        }
        leaf.words[offset(row)].store(word.raw(), Ordering::Release);
        self.bump_to(row);
    }

    /// Copies the words of leaf `leaf_no`, that is of the rows `leaf_no * 4096 ..`, up to the high mark, into `out`; wrap
    /// them with [`MapWord::from_raw`]. False, and `out` is empty, if the leaf is not there: all its words are 0.
    pub fn words(&self, leaf_no: u64, out: &mut Vec<u64>) -> bool {
        out.clear();
        let guard = crossbeam_epoch::pin();
        let Some(leaf) = self.find(leaf_no, &guard) else {
            return false;
        };
        let used = (self.high_mark() + 1)
            .saturating_sub(leaf_no << LEAF_WORDS_LOG2)
            .min(LEAF_WORDS as u64);
        // Acquire: whoever finds a version's address in the copy may read it.
        let copied = leaf.words.iter().take(used as usize);
        out.extend(copied.map(|word| word.load(Ordering::Acquire) & !SEALED));
        true
    }

    /// Number of the first existing leaf at or after `from`; skips absent subtrees without walking their leaves.
    pub fn next_leaf(&self, from: u64) -> Option<u64> {
        self.next_leaf_in(from, &crossbeam_epoch::pin())
    }

    fn next_leaf_in(&self, from: u64, guard: &Guard) -> Option<u64> {
        let first = height_of(from);
        (first..=4)
            .find_map(|height| self.next_leaf_of(height, if height == first { from } else { 0 }, guard))
    }

    /// All linked rows with ids at or above `from`, in id order, as the words are when the walk comes to their leaf.
    pub fn rows_from(&self, from: RowId) -> Rows<'_> {
        Rows {
            map: self,
            next: from.raw(),
            words: Vec::new(),
            words_first: 0,
        }
    }

    /// Gives back the leaves with numbers in `leaves` whose words are all 0 (rule M3); `0..u64::MAX` means all. Leave out
    /// the leaves in which row ids are being handed out, or they are made again at once. Returns how many went.
    ///
    /// First asks `unlock` about each leaf in whose words nothing but LOCKED stands (rule M5). It gets the number of the leaf and what clears
    /// the bits, and calls that only where it keeps everybody from setting them meanwhile.
    pub fn release_leaves(&self, leaves: Range<u64>, mut unlock: impl FnMut(u64, &dyn Fn())) -> usize {
        // Pinned before the latch is taken: pinning may free memory.
        let mut guard = crossbeam_epoch::pin();
        let (mut from, mut count) = (leaves.start, 0);
        while let Some(leaf_no) = self
            .next_leaf_in(from, &guard)
            .filter(|found| *found < leaves.end)
        {
            // Not under the release latch: who sets a bit may wait for that one.
            if let Some(leaf) = self.find(leaf_no, &guard).filter(|leaf| leaf.has_only_locks()) {
                unlock(leaf_no, &|| leaf.clear_locks());
            }
            let released = self.releasing.hold(|| self.release(leaf_no, &guard));
            count += usize::from(released);
            from = leaf_no + 1;
            guard.repin();
        }
        guard.flush();
        count
    }

    fn release(&self, leaf_no: u64, guard: &Guard) -> bool {
        let memory = &self.memory;
        match height_of(leaf_no) {
            0 => Subtree::release(&self.height0, leaf_no, memory, guard),
            1 => Subtree::release(&self.height1, leaf_no, memory, guard),
            2 => Subtree::release(&self.height2, leaf_no, memory, guard),
            3 => Subtree::release(&self.height3, leaf_no, memory, guard),
            _ => Subtree::release(&self.height4, leaf_no, memory, guard),
        }
    }

    /// Heap bytes reserved for leaves and inner nodes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    fn next_leaf_of(&self, height: u32, from: u64, guard: &Guard) -> Option<u64> {
        match height {
            0 => self.height0.get(guard)?.next_leaf(from, guard),
            1 => self.height1.get(guard)?.next_leaf(from, guard),
            2 => self.height2.get(guard)?.next_leaf(from, guard),
            3 => self.height3.get(guard)?.next_leaf(from, guard),
            _ => self.height4.get(guard)?.next_leaf(from, guard),
        }
    }

    #[inline]
    fn find<'g>(&'g self, leaf_no: u64, guard: &'g Guard) -> Option<&'g Leaf> {
        match height_of(leaf_no) {
            0 => self.height0.get(guard)?.find(leaf_no, guard),
            1 => self.height1.get(guard)?.find(leaf_no, guard),
            2 => self.height2.get(guard)?.find(leaf_no, guard),
            3 => self.height3.get(guard)?.find(leaf_no, guard),
            4 => self.height4.get(guard)?.find(leaf_no, guard),
            _ => None,
        }
    }

    #[inline]
    fn leaf<'g>(&'g self, row: RowId, guard: &'g Guard) -> &'g Leaf {
        invariant!(
            row.raw() != 0 && row.raw() <= ROW_MAX,
            "M1: row ids are 48 bits and start at 1"
        );
        let leaf_no = leaf_no(row);
        let memory = &self.memory;
        match height_of(leaf_no) {
            0 => get_or_create(&self.height0, memory, guard).find_or_create(leaf_no, memory, guard),
            1 => get_or_create(&self.height1, memory, guard).find_or_create(leaf_no, memory, guard),
            2 => get_or_create(&self.height2, memory, guard).find_or_create(leaf_no, memory, guard),
            3 => get_or_create(&self.height3, memory, guard).find_or_create(leaf_no, memory, guard),
            _ => get_or_create(&self.height4, memory, guard).find_or_create(leaf_no, memory, guard),
        }
    }
}

impl fmt::Debug for RowMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowMap")
            .field("high_mark", &self.high_mark())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

/// Walk over linked rows; see [`RowMap::rows_from`].
#[derive(Debug)]
pub struct Rows<'a> {
    map: &'a RowMap,
    /// Row id to look at next.
    next: u64,
    /// Words of the leaf at hand; row `words_first + i` is `words[i]`.
    words: Vec<u64>,
    words_first: u64,
}

impl Rows<'_> {
    /// Takes the next existing leaf at or after `next`; false at the end.
    fn load_leaf(&mut self) -> bool {
        let Some(leaf_no) = self.map.next_leaf(self.next >> LEAF_WORDS_LOG2) else {
            return false;
        };
        self.words_first = leaf_no << LEAF_WORDS_LOG2;
        self.next = self.next.max(self.words_first);
        if !self.map.words(leaf_no, &mut self.words) {
            // It was given back in between: all its words are 0.
            self.next = self.words_first + LEAF_WORDS as u64;
            return true;
        }
        self.next < self.words_first + self.words.len() as u64
    }
}

impl Iterator for Rows<'_> {
    type Item = (RowId, MapWord);

    fn next(&mut self) -> Option<(RowId, MapWord)> {
        loop {
            let Some(word) = self
                .next
                .checked_sub(self.words_first)
                .and_then(|at| self.words.get(at as usize))
            else {
                if !self.load_leaf() {
                    return None;
                }
                continue;
            };
            let row = self.next;
            self.next += 1;
            let word = MapWord::from_raw(*word);
            if word != MapWord::ABSENT {
                return Some((RowId::new(row), word));
            }
        }
    }
}

#[inline]
fn leaf_no(row: RowId) -> u64 {
    row.raw() >> LEAF_WORDS_LOG2
}

#[inline]
fn offset(row: RowId) -> usize {
    row.raw() as usize & (LEAF_WORDS - 1)
}

/// Levels of inner nodes above a leaf of this number.
#[inline]
fn height_of(leaf_no: u64) -> u32 {
    (u64::BITS - leaf_no.leading_zeros()).div_ceil(FANOUT_LOG2)
}
