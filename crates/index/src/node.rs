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
//! Latches and I/O:  methods called `set_`, `insert_`, `move_` or `re-` need the latch or a node nobody else knows.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pbxt_base::invariant;

use crate::arena::Arena;
use crate::entry::EntryView;
use crate::latch::{Latch, Restart};
use crate::seek::{SeekPos, Side, head_of};
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
const INLINE_PREFIX: usize = 32;
const PREFIX_WORDS: usize = INLINE_PREFIX / 8;
/// A longer common prefix is worth new heads if it gains this many bytes; fewer still leave heads that differ.
const PREFIX_GAIN_MIN: usize = 2;

/// Header of a node.
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(crate) latch: Latch,
    /// count | dead << 16 | prefix_len << 32.
    counts: AtomicU64,
    /// First bytes of the common prefix, first byte in the highest bits, zero behind `prefix_len`.
    prefix: [AtomicU64; PREFIX_WORDS],
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
    fn slot_word(self, index: usize) -> &'t AtomicU64 {
        invariant!(
            index < self.capacity(),
            "X6: a slot index is below the node's capacity"
        );
        // SAFETY: checked above; slots are only ever reached as atomics.
        unsafe { self.slot_ptr(index).as_ref() }
    }

    #[inline]
    fn child_word(self, index: usize) -> &'t AtomicU32 {
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

    fn set_slot(self, index: usize, slot: Slot) {
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

    /// How many slots lie left of the cut. Means something only if the node's version is the same afterwards.
    #[inline]
    pub(crate) fn position(self, arena: &'t Arena, pos: &SeekPos<'_>) -> Result<usize, Restart> {
        let Counts {
            count, prefix_len, ..
        } = self.counts();
        if let Some(all_left) = self.side_by_prefix(arena, pos, prefix_len)? {
            return Ok(if all_left { count } else { 0 });
        }
        let (low, high) = pos.open_heads(prefix_len);
        let (mut left, mut right) = (0, count);
        while left < right {
            let middle = (left + right) / 2;
            let slot = self.slot(middle)?;
            let entry_is_left = if slot.head < low {
                true
            } else if slot.head > high {
                false
            } else {
                pos.is_right_of(&entry_at(arena, slot.place))
            };
            if entry_is_left {
                left = middle + 1;
            } else {
                right = middle;
            }
        }
        Ok(left)
    }

    /// Whether the common prefix alone puts all entries on one side of the cut, and on which: `Some(true)` left of it.
    #[inline]
    fn side_by_prefix(
        self,
        arena: &'t Arena,
        pos: &SeekPos<'_>,
        len: usize,
    ) -> Result<Option<bool>, Restart> {
        for (index, word) in self.header().prefix.iter().enumerate().take(len.div_ceil(8)) {
            let ours = word.load(Ordering::Acquire);
            let theirs = prefix_word(pos.key, index, len);
            if ours != theirs {
                // Zero stands for a missing byte of `pos.key` as well; which of the two it is, is settled below.
                let missing = pos.key.len() < len && pos.key.len() < 8 * (index + 1);
                if missing
                    && prefix_word(pos.key, index, pos.key.len()) == ours & word_mask(index, pos.key.len())
                {
                    break;
                }
                return Ok(Some(ours < theirs));
            }
        }
        let checked = pos.key.len().min(len);
        if checked > INLINE_PREFIX {
            let first = self.entry(arena, 0)?;
            let rest = first.key().get(INLINE_PREFIX..checked).ok_or(Restart)?;
            if rest != &pos.key[INLINE_PREFIX..checked] {
                return Ok(Some(rest < &pos.key[INLINE_PREFIX..checked]));
            }
        }
        if checked == len {
            return Ok(None);
        }
        // The cut's key is a proper prefix of all our keys: they are greater, and they start with it.
        Ok(Some(matches!(pos.side, Side::AfterPrefix)))
    }

    /// Puts an entry into slot `index`, and for inner nodes the child right of it. The node has room.
    pub(crate) fn insert_slot(
        self,
        arena: &'t Arena,
        index: usize,
        place: u32,
        right_child: Option<NodeRef<'_>>,
    ) {
        let key = entry_at(arena, place).key();
        self.reach_prefix(arena, key);
        let Counts {
            count,
            dead,
            prefix_len,
        } = self.counts();
        invariant!(
            index <= count && count < self.capacity(),
            "X6: an insert goes where a slot is free"
        );
        for at in (index..count).rev() {
            self.slot_word(at + 1)
                .store(self.slot_word(at).load(Ordering::Relaxed), Ordering::Release);
        }
        self.set_slot(
            index,
            Slot {
                head: head_of(&key[prefix_len..]),
                place,
            },
        );
        if let Some(child) = right_child {
            for at in (index + 1..=count).rev() {
                self.child_word(at + 1)
                    .store(self.child_word(at).load(Ordering::Relaxed), Ordering::Release);
            }
            self.set_child(index + 1, child.place);
        }
        self.set_counts(Counts {
            count: count + 1,
            dead,
            prefix_len,
        });
    }

    /// Shortens the common prefix so far that `key` has it too (X5).
    fn reach_prefix(self, arena: &'t Arena, key: &[u8]) {
        let Counts {
            count, prefix_len, ..
        } = self.counts();
        if count == 0 {
            return self.reset_prefix(arena, key, key.len());
        }
        if prefix_len <= INLINE_PREFIX.min(key.len()) && self.has_inline_prefix(key, prefix_len) {
            return;
        }
        let shared = common_len(self.held_entry(arena, 0).key(), key);
        if shared < prefix_len {
            // A little less than needed: counting keys would otherwise come back for the next byte soon.
            self.reset_prefix(arena, key, shared.saturating_sub(1));
        }
    }

    /// True if `key` begins with the common prefix, as far as the header has it.
    pub(crate) fn has_inline_prefix(self, key: &[u8], prefix_len: usize) -> bool {
        let words = self
            .header()
            .prefix
            .iter()
            .enumerate()
            .take(prefix_len.div_ceil(8));
        words
            .into_iter()
            .all(|(index, word)| word.load(Ordering::Relaxed) == prefix_word(key, index, prefix_len))
    }

    /// Makes the common prefix as long as first and last entry allow, if that is worth while.
    pub(crate) fn stretch_prefix(self, arena: &'t Arena) {
        let Counts {
            count, prefix_len, ..
        } = self.counts();
        if count < 2 {
            return;
        }
        let first = self.held_entry(arena, 0).key();
        let shared = common_len(first, self.held_entry(arena, count - 1).key());
        if shared >= prefix_len + PREFIX_GAIN_MIN {
            self.reset_prefix(arena, first, shared - 1);
        }
    }

    /// Makes the first `prefix_len` bytes of `key` the common prefix and computes all heads anew.
    fn reset_prefix(self, arena: &'t Arena, key: &[u8], prefix_len: usize) {
        let Counts { count, dead, .. } = self.counts();
        for index in 0..count {
            let place = self.slot_word(index).load(Ordering::Relaxed) as u32;
            let rest = entry_at(arena, place).key().get(prefix_len..);
            let rest = rest.expect("X5: every key of a node has its common prefix");
            self.set_slot(
                index,
                Slot {
                    head: head_of(rest),
                    place,
                },
            );
        }
        for (index, word) in self.header().prefix.iter().enumerate() {
            word.store(prefix_word(key, index, prefix_len), Ordering::Release);
        }
        self.set_counts(Counts {
            count,
            dead,
            prefix_len,
        });
    }

    /// Entry of a slot below the count, for the holder of the latch.
    pub(crate) fn held_entry(self, arena: &'t Arena, index: usize) -> EntryView<'t> {
        self.entry(arena, index)
            .ok()
            .expect("X6: a slot below the count names an entry")
    }

    /// Place a slot below the count names, for the holder of the latch.
    pub(crate) fn held_place(self, index: usize) -> u32 {
        self.slot(index)
            .ok()
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
            .ok()
            .expect("X6: an inner node has a child on each side of every separator")
    }

    /// Copies slots `from..` (and the children right of them) behind those of `target`, which nobody else knows.
    /// Both have the same prefix length afterwards; counts of `self` stay.
    pub(crate) fn copy_tail(self, arena: &'t Arena, from: usize, target: NodeRef<'t>) {
        let Counts {
            count, prefix_len, ..
        } = self.counts();
        let mut dead = 0;
        for index in from..count {
            let slot = self
                .slot(index)
                .ok()
                .expect("X6: a slot below the count names an entry");
            target.set_slot(index - from, slot);
            if self.level() > 0 {
                let child = self.child_word(index + 1).load(Ordering::Relaxed);
                target.set_child(index - from + 1, child);
            } else {
                dead += usize::from(entry_at(arena, slot.place).is_dead());
            }
        }
        for (ours, theirs) in self.header().prefix.iter().zip(&target.header().prefix) {
            theirs.store(ours.load(Ordering::Relaxed), Ordering::Release);
        }
        target.set_counts(Counts {
            count: count - from,
            dead,
            prefix_len,
        });
    }
}

/// The entry at a place that a slot names.
#[inline]
pub(crate) fn entry_at(arena: &Arena, place: u32) -> EntryView<'_> {
    // SAFETY: a slot's place is stored with release after the entry was written (or copied from a slot loaded with
    // acquire, or under the latch), and slots are loaded with acquire; so the entry's bytes are visible (X2, X4).
    unsafe { EntryView::new(arena.at(place)) }
}

/// Length of what two byte strings have in common.
fn common_len(left: &[u8], right: &[u8]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

/// Bytes `8 * index ..` of the first `len` bytes of `key` as a number; zero where there are none.
#[inline]
fn prefix_word(key: &[u8], index: usize, len: usize) -> u64 {
    let rest = key.get(8 * index..).unwrap_or(&[]);
    let word = u64::from(head_of(rest)) << 32 | u64::from(head_of(rest.get(4..).unwrap_or(&[])));
    word & word_mask(index, len)
}

/// Keeps those bytes of prefix word `index` that belong to the first `len` bytes.
#[inline]
fn word_mask(index: usize, len: usize) -> u64 {
    match len.saturating_sub(8 * index) {
        0 => 0,
        bytes @ 1..8 => u64::MAX << (64 - 8 * bytes),
        _ => u64::MAX,
    }
}
