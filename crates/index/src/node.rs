//! Nodes: sorted slots of {key head, entry}, and for inner nodes the children between them.
//!
//! Why it exists:    a search should touch few cache lines and few entries. A slot carries four key bytes that follow what
//!                   all keys of the node have in common, so most comparisons end in the node itself (key heads after a
//!                   common prefix: Graefe, "B-tree indexes and CPU caches", ICDE 2001; Neumann and Freitag, "Umbra",
//!                   CIDR 2020).
//! Format / state:   `docs/indexes.md`, nodes. Header of one cache line, then `capacity` slots, then for inner nodes
//!                   `capacity + 1` children. A slot is head << 32 | place of the entry. Child `i` holds what lies left
//!                   of separator `i`; a separator is an entry, the first one of the child right of it when it was made.
//! Rules:            X4 (all but level and capacity changes under the latch, by release stores), X5 common prefix: the
//!                   first `prefix_len` bytes of all keys in the node are equal and every head stands behind them,
//!                   X6 slots below the count name published entries in order X1.
//! Latches and I/O:  `set_` and `held_` methods need the latch, or a node nobody else knows.
//!                   Searching is in `search`, changing in `change`.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pbxt_base::invariant;

use crate::arena::Arena;
use crate::entry::EntryView;
use crate::latch::{Latch, Restart};
use crate::sync::{AtomicU32, AtomicU64, Ordering, prefetch};

/// Slots of a grown leaf.
pub(crate) const LEAF_SLOTS: usize = if cfg!(loom) {
    2
} else if cfg!(miri) {
    8
} else {
    128
};
/// Separators of a grown inner node.
pub(crate) const INNER_SLOTS: usize = if cfg!(loom) {
    3
} else if cfg!(miri) {
    4
} else {
    128
};
/// Slots of the first leaf of a tree, and separators of a new root.
pub(crate) const FIRST_SLOTS: usize = if cfg!(loom) { 2 } else { 4 };
/// How much more a node has when it grows.
const GROWTH: usize = 4;
/// Bytes of the common prefix kept in the header; what goes beyond is read from the node's first entry.
pub(crate) const INLINE_PREFIX: usize = 32;
const PREFIX_WORDS: usize = INLINE_PREFIX / 8;

/// Header of a node.
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(crate) latch: Latch,
    /// count | dead << 16 | prefix_len << 32.
    counts: AtomicU64,
    /// First bytes of the common prefix, first byte in the highest bits, zero behind `prefix_len`.
    pub(crate) prefix: [AtomicU64; PREFIX_WORDS],
    /// Leaf to the right; 0 at the right edge. Unused in inner nodes.
    next: AtomicU32,
    /// Leaf to the left.
    prev: AtomicU32,
    /// Never changes.
    capacity: u16,
    /// 0 for leaves. Never changes.
    level: u8,
}

/// What `Node::counts` holds.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) count: usize,
    /// How many of them are marked dead (leaves only).
    pub(crate) dead: usize,
    pub(crate) prefix_len: usize,
}

/// A slot's content.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) head: u32,
    pub(crate) place: u32,
}

/// A node and the place it lies at. The arena keeps it as long as the tree lives.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'t> {
    ptr: NonNull<Node>,
    pub(crate) place: u32,
    tree: PhantomData<&'t Node>,
}

impl<'t> NodeRef<'t> {
    /// A new node, known to nobody else yet.
    pub(crate) fn create(arena: &'t Arena, level: u8, capacity: usize) -> NodeRef<'t> {
        let children = if level > 0 { capacity + 1 } else { 0 };
        let bytes = size_of::<Node>() + capacity * size_of::<AtomicU64>() + children * size_of::<AtomicU32>();
        let (place, room) = arena.allocate_node(bytes);
        let node = NodeRef {
            ptr: room.cast(),
            place,
            tree: PhantomData,
        };
        let header = Node {
            latch: Latch::new(),
            counts: AtomicU64::new(0),
            prefix: std::array::from_fn(|_| AtomicU64::new(0)),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            capacity: capacity as u16,
            level,
        };
        // SAFETY: the room is on a cache line boundary, `bytes` long and ours alone; slots are 8-aligned behind the
        // header, children behind them.
        unsafe {
            node.ptr.write(header);
            (0..capacity).for_each(|index| node.slot_ptr(index).write(AtomicU64::new(0)));
            (0..children).for_each(|index| node.child_ptr(index).write(AtomicU32::new(0)));
        }
        node
    }

    /// The node at a place that a child word, a link or the root word names.
    #[inline]
    pub(crate) fn at(arena: &'t Arena, place: u32) -> NodeRef<'t> {
        NodeRef {
            ptr: arena.at(place).cast(),
            place,
            tree: PhantomData,
        }
    }

    /// Asks the processor for the header and the slots, all at once instead of one per step of the search.
    #[inline]
    pub(crate) fn prefetch(self, lines: usize) {
        for line in 0..lines {
            prefetch(self.ptr.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }

    #[inline]
    pub(crate) fn header(self) -> &'t Node {
        // SAFETY: made by `create`, whose writes happened before the place was published; the arena outlives 't; all
        // that changes in a header is atomic.
        unsafe { self.ptr.as_ref() }
    }

    /// # Safety
    /// `index` is below the capacity.
    #[inline]
    unsafe fn slot_ptr(self, index: usize) -> NonNull<AtomicU64> {
        // SAFETY: slots follow the header inside the room of the node.
        unsafe { self.ptr.add(1).cast::<AtomicU64>().add(index) }
    }

    /// # Safety
    /// The node is an inner one and `index` is at most the capacity.
    #[inline]
    unsafe fn child_ptr(self, index: usize) -> NonNull<AtomicU32> {
        // SAFETY: children follow the slots inside the room of an inner node.
        unsafe { self.slot_ptr(self.capacity()).cast::<AtomicU32>().add(index) }
    }

    #[inline]
    pub(crate) fn slot_word(self, index: usize) -> &'t AtomicU64 {
        invariant!(
            index < self.capacity(),
            "X6: a slot index is below the node's capacity"
        );
        // SAFETY: checked above; slots are only ever reached as atomics.
        unsafe { self.slot_ptr(index).as_ref() }
    }

    #[inline]
    pub(crate) fn child_word(self, index: usize) -> &'t AtomicU32 {
        invariant!(
            self.level() > 0 && index <= self.capacity(),
            "X6: a child index is at most the node's capacity"
        );
        // SAFETY: checked above; children are only ever reached as atomics.
        unsafe { self.child_ptr(index).as_ref() }
    }

    #[inline]
    pub(crate) fn latch(self) -> &'t Latch {
        &self.header().latch
    }

    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.header().level
    }

    #[inline]
    pub(crate) fn capacity(self) -> usize {
        usize::from(self.header().capacity)
    }

    /// Slots this node would have after growing; the same if it is fully grown.
    pub(crate) fn grown_capacity(self) -> usize {
        (self.capacity() * GROWTH).min(if self.level() == 0 {
            LEAF_SLOTS
        } else {
            INNER_SLOTS
        })
    }

    #[inline]
    pub(crate) fn counts(self) -> Counts {
        let word = self.header().counts.load(Ordering::Acquire);
        let field = |shift: u32| (word >> shift) as usize & 0xffff;
        Counts {
            count: field(0),
            dead: field(16),
            prefix_len: field(32),
        }
    }

    pub(crate) fn set_counts(self, counts: Counts) {
        let Counts {
            count,
            dead,
            prefix_len,
        } = counts;
        invariant!(
            dead <= count && count <= self.capacity(),
            "X6: counts fit the node"
        );
        self.header()
            .counts
            .store((count | dead << 16 | prefix_len << 32) as u64, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_full(self) -> bool {
        self.counts().count == self.capacity()
    }

    #[inline]
    pub(crate) fn next(self) -> u32 {
        self.header().next.load(Ordering::Acquire)
    }

    pub(crate) fn set_next(self, place: u32) {
        self.header().next.store(place, Ordering::Release);
    }

    #[inline]
    pub(crate) fn prev(self) -> u32 {
        self.header().prev.load(Ordering::Acquire)
    }

    pub(crate) fn set_prev(self, place: u32) {
        self.header().prev.store(place, Ordering::Release);
    }

    /// A slot below the count. `Restart` if none was ever stored there: the count was read at another time.
    #[inline]
    pub(crate) fn slot(self, index: usize) -> Result<Slot, Restart> {
        let word = self.slot_word(index).load(Ordering::Acquire);
        let slot = Slot {
            head: (word >> 32) as u32,
            place: word as u32,
        };
        if slot.place == 0 { Err(Restart) } else { Ok(slot) }
    }

    pub(crate) fn set_slot(self, index: usize, slot: Slot) {
        let word = u64::from(slot.head) << 32 | u64::from(slot.place);
        self.slot_word(index).store(word, Ordering::Release);
    }

    /// Place of child `index`. `Restart` if none was ever stored there.
    #[inline]
    pub(crate) fn child(self, index: usize) -> Result<u32, Restart> {
        let place = self.child_word(index).load(Ordering::Acquire);
        if place == 0 { Err(Restart) } else { Ok(place) }
    }

    pub(crate) fn set_child(self, index: usize, place: u32) {
        self.child_word(index).store(place, Ordering::Release);
    }

    /// The entry that slot `index` names.
    #[inline]
    pub(crate) fn entry(self, arena: &'t Arena, index: usize) -> Result<EntryView<'t>, Restart> {
        Ok(entry_at(arena, self.slot(index)?.place))
    }

    /// Entry of a slot below the count, for the holder of the latch.
    pub(crate) fn held_entry(self, arena: &'t Arena, index: usize) -> EntryView<'t> {
        self.entry(arena, index)
            .expect("X6: a slot below the count names an entry")
    }

    /// Place a slot below the count names, for the holder of the latch.
    pub(crate) fn held_place(self, index: usize) -> u32 {
        self.slot(index)
            .expect("X6: a slot below the count names an entry")
            .place
    }

    /// Place of the first entry, for the holder of the latch.
    pub(crate) fn first_place(self) -> u32 {
        self.held_place(0)
    }

    /// Place of child `index` at or below the count, for the holder of the latch.
    pub(crate) fn held_child(self, index: usize) -> u32 {
        self.child(index)
            .expect("X6: an inner node has a child on each side of every separator")
    }
}

/// The entry at a place that a slot names.
#[inline]
pub(crate) fn entry_at(arena: &Arena, place: u32) -> EntryView<'_> {
    // SAFETY: a slot's place is stored with release after the entry was written (or copied from a slot loaded with
    // acquire, or under the latch), and slots are loaded with acquire; so the entry's bytes are visible (X2, X4).
    unsafe { EntryView::new(arena.at(place)) }
}
