//! Check: walk a whole tree and compare it with its rules.
//!
//! Why it exists:    tests and the host's CHECK TABLE want one answer to "is this tree sound", in words.
//! Format / state:   none.
//! Rules:            tests X1 (order), X5 (prefix and heads), X6 (counts, separators), X7 (dead counts), and that leaf
//!                   links, root word and right edge agree with the tree.
//! Latches and I/O:  none; no other thread may be inserting meanwhile.

use std::result::Result;

use crate::body::Body;
use crate::entry::EntryView;
use crate::node::{Counts, NodeRef};
use crate::seek::head_of;
use crate::sync::Ordering;

/// What the walk has seen so far.
#[derive(Default)]
struct Walk<'t> {
    entries: u64,
    last: Option<EntryView<'t>>,
    /// Leaf walked last, and the right neighbour it names.
    leaf: u32,
    next: u32,
}

impl Body {
    /// Says what is wrong, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let root = self.node(self.root.load(Ordering::Acquire));
        let mut walk = Walk::default();
        self.check_node(root, None, None, &mut walk)?;
        ensure(walk.next == 0, || {
            format!("X6: the last leaf {} has a right neighbour", walk.leaf)
        })?;
        let edge = self.right_edge.load(Ordering::Acquire);
        ensure(edge == walk.leaf, || {
            format!(
                "X6: the right edge is leaf {edge}, but the last leaf is {}",
                walk.leaf
            )
        })?;
        let inserted = self.arena.entries();
        ensure(walk.entries == inserted, || {
            format!("X6: {inserted} entries inserted, {} found", walk.entries)
        })
    }

    fn check_node<'t>(
        &'t self,
        node: NodeRef<'t>,
        low: Option<EntryView<'t>>,
        high: Option<EntryView<'t>>,
        walk: &mut Walk<'t>,
    ) -> Result<(), String> {
        node.latch()
            .read()
            .map_err(|_| format!("X4: node {} was replaced, but the tree leads to it", node.place))?;
        self.check_slots(node, low, high)?;
        if node.level() == 0 {
            return self.check_leaf(node, walk);
        }
        let count = node.counts().count;
        ensure(count > 0, || {
            format!("X6: inner node {} has no separator", node.place)
        })?;
        for index in 0..=count {
            let child = self.node(node.held_child(index));
            let level = child.level();
            ensure(level + 1 == node.level(), || {
                format!("X6: child {} of node {} is on level {level}", index, node.place)
            })?;
            let low = if index == 0 {
                low
            } else {
                Some(node.held_entry(&self.arena, index - 1))
            };
            let high = if index == count {
                high
            } else {
                Some(node.held_entry(&self.arena, index))
            };
            self.check_node(child, low, high, walk)?;
        }
        Ok(())
    }

    /// Order inside a node, bounds by the separators above, common prefix and heads.
    fn check_slots<'t>(
        &'t self,
        node: NodeRef<'t>,
        low: Option<EntryView<'t>>,
        high: Option<EntryView<'t>>,
    ) -> Result<(), String> {
        let Counts {
            count, prefix_len, ..
        } = node.counts();
        let mut before = low;
        for index in 0..count {
            let entry = node.held_entry(&self.arena, index);
            let place = || format!("slot {index} of node {}", node.place);
            let sorted = before.is_none_or(|before| before.order(entry).is_le());
            ensure(sorted, || {
                format!("X1: {} is less than what lies left of it: {entry:?}", place())
            })?;
            let first = node.held_entry(&self.arena, 0).key();
            let prefix = entry.key().get(..prefix_len);
            ensure(prefix == first.get(..prefix_len) && prefix.is_some(), || {
                format!(
                    "X5: {} does not have the common prefix of {prefix_len} bytes: {entry:?}",
                    place()
                )
            })?;
            ensure(node.has_inline_prefix(entry.key(), prefix_len), || {
                format!(
                    "X5: the header of node {} has another prefix than its entries",
                    node.place
                )
            })?;
            let head = node.slot(index).map_or(0, |slot| slot.head);
            ensure(head == head_of(&entry.key()[prefix_len..]), || {
                format!("X5: the head of {} is wrong", place())
            })?;
            before = Some(entry);
        }
        let bounded = before
            .zip(high)
            .is_none_or(|(last, high)| last.order(high).is_le());
        ensure(bounded, || {
            format!(
                "X6: node {} has entries right of its upper separator {high:?}",
                node.place
            )
        })
    }

    fn check_leaf<'t>(&'t self, leaf: NodeRef<'t>, walk: &mut Walk<'t>) -> Result<(), String> {
        let Counts { count, dead, .. } = leaf.counts();
        let linked = leaf.prev() == walk.leaf && (walk.leaf == 0 || walk.next == leaf.place);
        ensure(linked, || {
            format!(
                "X6: leaves {} and {} are not linked to each other",
                walk.leaf, leaf.place
            )
        })?;
        let found = (0..count)
            .filter(|&index| leaf.held_entry(&self.arena, index).is_dead())
            .count();
        ensure(found == dead, || {
            format!(
                "X7: leaf {} counts {dead} dead entries and has {found}",
                leaf.place
            )
        })?;
        for index in 0..count {
            let entry = leaf.held_entry(&self.arena, index);
            let sorted = walk.last.is_none_or(|last| last.order(entry).is_le());
            ensure(sorted, || {
                format!(
                    "X1: leaf {} begins before its left neighbour ends: {entry:?}",
                    leaf.place
                )
            })?;
            walk.last = Some(entry);
        }
        walk.entries += count as u64;
        (walk.leaf, walk.next) = (leaf.place, leaf.next());
        Ok(())
    }
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}
