//! The radix tree under the row map: leaves of 4096 words, inner nodes of 512 children, both made on first touch.
//!
//! Why it exists:    a flat array would need its full length up front, a hash table would scatter neighbours. Row ids
//!                   are dense, so a tree of arrays costs one or two loads per look-up and keeps scans sequential.
//! Format / state:   a node's kind is its type (`Inner<Inner<Leaf>>` is two levels), so a look-up compiles to shifts
//!                   and loads. Inner nodes stay; a leaf whose words are all 0 can be sealed and taken out (M3):
//!                   every word goes 0 -> SEALED by compare-and-swap, then the slot is emptied. A word that is not 0
//!                   undoes it. A sealed word never changes but back to 0, so no swap is lost.
//!                   Beside its words a leaf has a bit for each row that was ever given a tombstone (M4), so that who
//!                   only asks for that reads an eighth of a byte per row and not eight.
//! Latches and I/O:  none here; `RowMap` holds its release latch around `release`.

use crate::slot::Slot;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::word::LOCKED;
use crossbeam_epoch::Guard;

/// Binary logarithm of [`LEAF_WORDS`].
#[cfg(not(loom))]
pub const LEAF_WORDS_LOG2: u32 = 12;
/// Binary logarithm of [`LEAF_WORDS`], small enough to try every interleaving.
#[cfg(loom)]
pub const LEAF_WORDS_LOG2: u32 = 1;
/// Words per leaf, and so rows per leaf number.
pub const LEAF_WORDS: usize = 1 << LEAF_WORDS_LOG2;
/// Binary logarithm of the children of an inner node.
pub(crate) const FANOUT_LOG2: u32 = 9;
const FANOUT: usize = 1 << FANOUT_LOG2;

/// The word of a leaf that is about to be taken out. Readers take it for 0; a swap never expects it.
pub(crate) const SEALED: u64 = 1 << 63;

/// Words that hold a bit for each row of a leaf.
const DELETED_WORDS: usize = LEAF_WORDS.div_ceil(64);

/// Part of the tree below (and with) one node. Leaf numbers given to it are relative to its first leaf.
pub(crate) trait Subtree: Sized {
    /// How many low bits of a leaf number are decided inside this subtree.
    const LEAF_BITS: u32;

    /// A node with nothing in it.
    #[expect(
        clippy::unnecessary_box_returns,
        reason = "a leaf has 32 KiB and must not travel over the stack"
    )]
    fn empty() -> Box<Self>;

    /// A leaf, if it is there.
    fn find<'g>(&'g self, leaf_no: u64, guard: &'g Guard) -> Option<&'g Leaf>;

    /// A leaf; makes it and what lies above it. Adds what that costs to `memory`, in bytes.
    fn find_or_create<'g>(&'g self, leaf_no: u64, memory: &AtomicUsize, guard: &'g Guard) -> &'g Leaf;

    /// Smallest number of an existing leaf at or after `from`.
    fn next_leaf(&self, from: u64, guard: &Guard) -> Option<u64>;

    /// Takes leaf `leaf_no` out of the subtree in `slot` if all its words are 0. One thread at a time.
    fn release(slot: &Slot<Self>, leaf_no: u64, memory: &AtomicUsize, guard: &Guard) -> bool;
}

/// 4096 row map words, and which of their rows were ever given a tombstone.
pub(crate) struct Leaf {
    pub(crate) words: [AtomicU64; LEAF_WORDS],
    deleted: [AtomicU64; DELETED_WORDS],
}

impl Leaf {
    /// Says that row `offset` may have a tombstone from now on (M4).
    pub(crate) fn note_deleted(&self, offset: usize) {
        // Release: who finds the bit finds the words as they were before it, or later.
        self.deleted[offset / 64].fetch_or(1 << (offset % 64), Ordering::Release);
    }

    /// False if row `offset` never had a tombstone.
    #[inline]
    pub(crate) fn may_be_deleted(&self, offset: usize) -> bool {
        self.deleted[offset / 64].load(Ordering::Acquire) & 1 << (offset % 64) != 0
    }

    /// True if the words name no version and say nothing but LOCKED, of one row at least.
    pub(crate) fn has_only_locks(&self) -> bool {
        let mut found = 0;
        for word in &self.words {
            let word = word.load(Ordering::Relaxed);
            if word & !LOCKED != 0 {
                return false;
            }
            found |= word;
        }
        found != 0
    }

    /// Takes LOCKED out of words that say nothing else.
    pub(crate) fn clear_locks(&self) {
        for word in &self.words {
            if word.load(Ordering::Relaxed) == LOCKED {
                // A word that has changed is somebody's; the leaf stays then.
                let _ = word.compare_exchange(LOCKED, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Seals all words, or none if one of them is not 0.
    fn seal(&self) -> bool {
        if self.words.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            return false;
        }
        for (number, word) in self.words.iter().enumerate() {
            // AcqRel: who finds the word sealed has seen what made it 0.
            let sealed = word.compare_exchange(0, SEALED, Ordering::AcqRel, Ordering::Relaxed);
            if sealed.is_err() {
                for word in &self.words[..number] {
                    word.store(0, Ordering::Release);
                }
                return false;
            }
        }
        true
    }
}

impl Subtree for Leaf {
    const LEAF_BITS: u32 = 0;

    #[cfg(not(loom))]
    fn empty() -> Box<Leaf> {
        // Zeroed memory from the allocator, not an array written word by word: a table of three rows then costs the
        // pages it touches and not 32 KiB.
        // SAFETY: a Leaf is two arrays of AtomicU64, for which all-zero bytes are a valid value (0: the base word, and
        // no bit).
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[cfg(loom)]
    fn empty() -> Box<Leaf> {
        Box::new(Leaf {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            deleted: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    #[inline]
    fn find<'g>(&'g self, _leaf_no: u64, _guard: &'g Guard) -> Option<&'g Leaf> {
        Some(self)
    }

    #[inline]
    fn find_or_create<'g>(&'g self, _leaf_no: u64, _memory: &AtomicUsize, _guard: &'g Guard) -> &'g Leaf {
        self
    }

    fn next_leaf(&self, from: u64, _guard: &Guard) -> Option<u64> {
        (from == 0).then_some(0)
    }

    fn release(slot: &Slot<Leaf>, _leaf_no: u64, memory: &AtomicUsize, guard: &Guard) -> bool {
        let is_sealed = slot.get(guard).is_some_and(Leaf::seal);
        if is_sealed {
            slot.take_out(guard);
            memory.fetch_sub(size_of::<Leaf>(), Ordering::Relaxed);
        }
        is_sealed
    }
}

/// 512 children, each empty or set.
pub(crate) struct Inner<C>([Slot<C>; FANOUT]);

impl<C: Subtree> Inner<C> {
    /// Child number and the leaf number inside that child.
    #[inline]
    fn place(leaf_no: u64) -> (usize, u64) {
        let child = (leaf_no >> C::LEAF_BITS) as usize & (FANOUT - 1);
        (child, leaf_no & ((1 << C::LEAF_BITS) - 1))
    }
}

impl<C: Subtree> Subtree for Inner<C> {
    const LEAF_BITS: u32 = C::LEAF_BITS + FANOUT_LOG2;

    fn empty() -> Box<Inner<C>> {
        Box::new(Inner(std::array::from_fn(|_| Slot::default())))
    }

    #[inline]
    fn find<'g>(&'g self, leaf_no: u64, guard: &'g Guard) -> Option<&'g Leaf> {
        let (child, rest) = Self::place(leaf_no);
        self.0[child].get(guard)?.find(rest, guard)
    }

    #[inline]
    fn find_or_create<'g>(&'g self, leaf_no: u64, memory: &AtomicUsize, guard: &'g Guard) -> &'g Leaf {
        let (child, rest) = Self::place(leaf_no);
        get_or_create(&self.0[child], memory, guard).find_or_create(rest, memory, guard)
    }

    fn next_leaf(&self, from: u64, guard: &Guard) -> Option<u64> {
        let (first, rest) = Self::place(from);
        self.0.iter().enumerate().skip(first).find_map(|(number, child)| {
            let from = if number == first { rest } else { 0 };
            let found = child.get(guard)?.next_leaf(from, guard)?;
            Some(((number as u64) << C::LEAF_BITS) | found)
        })
    }

    fn release(slot: &Slot<Inner<C>>, leaf_no: u64, memory: &AtomicUsize, guard: &Guard) -> bool {
        let (child, rest) = Self::place(leaf_no);
        slot.get(guard)
            .is_some_and(|node| C::release(&node.0[child], rest, memory, guard))
    }
}

/// The node in `slot`; makes it if there is none and counts its bytes once.
#[inline]
pub(crate) fn get_or_create<'g, C: Subtree>(
    slot: &'g Slot<C>,
    memory: &AtomicUsize,
    guard: &'g Guard,
) -> &'g C {
    loop {
        // A leaf may be taken out as soon as it was put in; then it is put in again.
        if let Some(node) = slot.get(guard) {
            return node;
        }
        create(slot, memory);
    }
}

#[cold]
fn create<C: Subtree>(slot: &Slot<C>, memory: &AtomicUsize) {
    // Counted before it can be taken out and counted back.
    memory.fetch_add(size_of::<C>(), Ordering::Relaxed);
    if slot.is_some() || !slot.put(C::empty()) {
        memory.fetch_sub(size_of::<C>(), Ordering::Relaxed);
    }
}
