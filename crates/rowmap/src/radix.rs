//! The radix tree under the row map: leaves of 4096 words, inner nodes of 512 children, both made on first touch.
//!
//! Why it exists:    a flat array would need its full length up front, a hash table would scatter neighbours. Row ids
//!                   are dense, so a tree of arrays costs one or two loads per look-up and keeps scans sequential.
//! Format / state:   a node's kind is its type (`Inner<Inner<Leaf>>` is two levels), so a look-up compiles to shifts
//!                   and loads. A child is empty or set once (`OnceLock`); that is the whole protocol, and it holds
//!                   rule M3 without any unsafe pointer.
//! Latches and I/O:  `OnceLock` makes two threads that create the same child agree on one; nobody else waits.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Binary logarithm of [`LEAF_WORDS`].
pub const LEAF_WORDS_LOG2: u32 = 12;
/// Words per leaf, and so rows per leaf number.
pub const LEAF_WORDS: usize = 1 << LEAF_WORDS_LOG2;
/// Binary logarithm of the children of an inner node.
pub(crate) const FANOUT_LOG2: u32 = 9;
const FANOUT: usize = 1 << FANOUT_LOG2;

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

    /// The words of a leaf, if it was ever touched.
    fn find(&self, leaf_no: u64) -> Option<&[AtomicU64; LEAF_WORDS]>;

    /// The words of a leaf; makes it and what lies above it. Adds what that costs to `memory`, in bytes.
    fn find_or_create(&self, leaf_no: u64, memory: &AtomicUsize) -> &[AtomicU64; LEAF_WORDS];

    /// Smallest number of an existing leaf at or after `from`.
    fn next_leaf(&self, from: u64) -> Option<u64>;
}

/// 4096 row map words.
pub(crate) struct Leaf([AtomicU64; LEAF_WORDS]);

impl Subtree for Leaf {
    const LEAF_BITS: u32 = 0;

    fn empty() -> Box<Leaf> {
        // Zeroed memory from the allocator, not an array written word by word: a table of three rows then costs the
        // pages it touches and not 32 KiB.
        // SAFETY: a Leaf is an array of AtomicU64, for which all-zero bytes are a valid value (0, the absent word).
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[inline]
    fn find(&self, _leaf_no: u64) -> Option<&[AtomicU64; LEAF_WORDS]> {
        Some(&self.0)
    }

    #[inline]
    fn find_or_create(&self, _leaf_no: u64, _memory: &AtomicUsize) -> &[AtomicU64; LEAF_WORDS] {
        &self.0
    }

    fn next_leaf(&self, from: u64) -> Option<u64> {
        (from == 0).then_some(0)
    }
}

/// 512 children, each empty or set for good.
pub(crate) struct Inner<C>([OnceLock<Box<C>>; FANOUT]);

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
        Box::new(Inner([const { OnceLock::new() }; FANOUT]))
    }

    #[inline]
    fn find(&self, leaf_no: u64) -> Option<&[AtomicU64; LEAF_WORDS]> {
        let (child, rest) = Self::place(leaf_no);
        self.0[child].get()?.find(rest)
    }

    #[inline]
    fn find_or_create(&self, leaf_no: u64, memory: &AtomicUsize) -> &[AtomicU64; LEAF_WORDS] {
        let (child, rest) = Self::place(leaf_no);
        get_or_create(&self.0[child], memory).find_or_create(rest, memory)
    }

    fn next_leaf(&self, from: u64) -> Option<u64> {
        let (first, rest) = Self::place(from);
        self.0.iter().enumerate().skip(first).find_map(|(number, child)| {
            let from = if number == first { rest } else { 0 };
            let found = child.get()?.next_leaf(from)?;
            Some(((number as u64) << C::LEAF_BITS) | found)
        })
    }
}

/// The node in `slot`; makes it if this is the first touch and counts its bytes once.
#[inline]
pub(crate) fn get_or_create<'a, C: Subtree>(slot: &'a OnceLock<Box<C>>, memory: &AtomicUsize) -> &'a C {
    slot.get_or_init(|| {
        memory.fetch_add(size_of::<C>(), Ordering::Relaxed);
        C::empty()
    })
}
