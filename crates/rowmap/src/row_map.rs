//! `RowMap`: the rows of one table generation, each a word that names its newest version.
//!
//! Why it exists:    see the crate's documentation.
//! Format / state:   one radix tree per height. A row id belongs to the lowest tree whose reach covers it, so the map
//!                   grows in height by touching the next tree, and no root is ever replaced.
//! Rules:            M1 to M3 of the crate.
//! Latches and I/O:  none.
//! After a crash:    gone; `store_recovered` and `bump_to` build it anew.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pbxt_base::{RowId, invariant};

use crate::MapWord;
use crate::radix::{FANOUT_LOG2, Inner, LEAF_WORDS, LEAF_WORDS_LOG2, Leaf, Subtree, get_or_create};

type Height1 = Inner<Leaf>;
type Height2 = Inner<Height1>;
type Height3 = Inner<Height2>;
type Height4 = Inner<Height3>;

/// Greatest row id: 48 bits.
const ROW_MAX: u64 = (1 << 48) - 1;

/// Row id -> newest version, for one generation of a table. All methods may be called from any thread.
///
/// An untouched map holds no heap memory.
#[derive(Default)]
pub struct RowMap {
    /// Greatest row id handed out; 0 if none.
    high_mark: AtomicU64,
    /// Heap bytes of all nodes.
    memory: AtomicUsize,
    height0: OnceLock<Box<Leaf>>,
    height1: OnceLock<Box<Height1>>,
    height2: OnceLock<Box<Height2>>,
    height3: OnceLock<Box<Height3>>,
    height4: OnceLock<Box<Height4>>,
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

    /// The row's word now; absent if the row id was never linked.
    #[inline]
    pub fn load(&self, row: RowId) -> MapWord {
        self.find(leaf_no(row)).map_or(MapWord::ABSENT, |words| {
            MapWord::from_raw(words[offset(row)].load(Ordering::Acquire))
        })
    }

    /// Replaces `old` by `new`. This is how a version becomes the newest, and it is the exclusive row lock (rule M2).
    ///
    /// # Errors
    /// The word that stands there instead, if it is not `old`.
    #[inline]
    pub fn compare_exchange(&self, row: RowId, old: MapWord, new: MapWord) -> Result<(), MapWord> {
        // Release: whoever loads the word may read the version behind it. Acquire: and so may we, if we lose.
        self.word(row)
            .compare_exchange(old.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(MapWord::from_raw)
    }

    /// Sets a word as recovery found it and keeps its row id from being handed out again.
    pub fn store_recovered(&self, row: RowId, word: MapWord) {
        self.word(row).store(word.raw(), Ordering::Release);
        self.bump_to(row);
    }

    /// Words of leaf `leaf_no`, that is of the rows `leaf_no * 4096 ..`, up to the high mark; none if no row of the
    /// leaf was ever linked. Load a word with `Acquire` and wrap it with [`MapWord::from_raw`].
    pub fn leaf(&self, leaf_no: u64) -> Option<&[AtomicU64]> {
        let used = (self.high_mark() + 1)
            .saturating_sub(leaf_no << LEAF_WORDS_LOG2)
            .min(LEAF_WORDS as u64);
        self.find(leaf_no)?.get(..used as usize)
    }

    /// Number of the first existing leaf at or after `from`; skips absent subtrees without walking their leaves.
    pub fn next_leaf(&self, from: u64) -> Option<u64> {
        let first = height_of(from);
        (first..=4).find_map(|height| self.next_leaf_of(height, if height == first { from } else { 0 }))
    }

    /// All linked rows with ids at or above `from`, in id order, as the words are when the walk gets there.
    pub fn rows_from(&self, from: RowId) -> Rows<'_> {
        Rows {
            map: self,
            next: from.raw(),
            words: &[],
            words_first: 0,
        }
    }

    /// Heap bytes reserved for leaves and inner nodes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    fn next_leaf_of(&self, height: u32, from: u64) -> Option<u64> {
        match height {
            0 => self.height0.get()?.next_leaf(from),
            1 => self.height1.get()?.next_leaf(from),
            2 => self.height2.get()?.next_leaf(from),
            3 => self.height3.get()?.next_leaf(from),
            _ => self.height4.get()?.next_leaf(from),
        }
    }

    #[inline]
    fn find(&self, leaf_no: u64) -> Option<&[AtomicU64; LEAF_WORDS]> {
        match height_of(leaf_no) {
            0 => self.height0.get()?.find(leaf_no),
            1 => self.height1.get()?.find(leaf_no),
            2 => self.height2.get()?.find(leaf_no),
            3 => self.height3.get()?.find(leaf_no),
            4 => self.height4.get()?.find(leaf_no),
            _ => None,
        }
    }

    #[inline]
    fn word(&self, row: RowId) -> &AtomicU64 {
        invariant!(
            row.raw() != 0 && row.raw() <= ROW_MAX,
            "M1: row ids are 48 bits and start at 1"
        );
        let leaf_no = leaf_no(row);
        let memory = &self.memory;
        let words = match height_of(leaf_no) {
            0 => get_or_create(&self.height0, memory).find_or_create(leaf_no, memory),
            1 => get_or_create(&self.height1, memory).find_or_create(leaf_no, memory),
            2 => get_or_create(&self.height2, memory).find_or_create(leaf_no, memory),
            3 => get_or_create(&self.height3, memory).find_or_create(leaf_no, memory),
            _ => get_or_create(&self.height4, memory).find_or_create(leaf_no, memory),
        };
        &words[offset(row)]
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
    words: &'a [AtomicU64],
    words_first: u64,
}

impl Rows<'_> {
    /// Takes the next existing leaf at or after `next`; false at the end.
    fn load_leaf(&mut self) -> bool {
        let Some(leaf_no) = self.map.next_leaf(self.next >> LEAF_WORDS_LOG2) else {
            return false;
        };
        self.words_first = leaf_no << LEAF_WORDS_LOG2;
        self.words = self.map.leaf(leaf_no).unwrap_or(&[]);
        self.next = self.next.max(self.words_first);
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
            let word = MapWord::from_raw(word.load(Ordering::Acquire));
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
