//! Changes of one node: insert a slot, keep the common prefix right, copy slots into another node.
//!
//! Why it exists:    inserts, splits and growth consist of these few steps.
//! Rules:            X4 the caller holds the node's latch or is the only one who knows it; every store is a release store,
//!                   so that a reader who sees one also sees that the latch was taken. X5, X6 hold again at the end.
//! Latches and I/O:  takes none itself.

use crate::arena::Arena;
use crate::node::{Counts, INLINE_PREFIX, NodeRef, Slot, entry_at};
use crate::search::prefix_word;
use crate::seek::head_of;
use crate::sync::Ordering;
use pbxt_base::invariant;

/// A longer common prefix is worth new heads if it gains this many bytes; fewer still leave heads that differ.
const PREFIX_GAIN_MIN: usize = 2;

impl<'t> NodeRef<'t> {
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

/// Length of what two byte strings have in common.
fn common_len(left: &[u8], right: &[u8]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}
