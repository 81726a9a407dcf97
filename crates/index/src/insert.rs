//! Insert: put an entry into its leaf, making room on the way down; and marking entries dead.
//!
//! Why it exists:    a full node is split when an insert passes it, so that its parent always has room for one more
//!                   separator and a split never climbs.
//! Format / state:   one change per attempt: an insert that meets a full node splits or grows it and begins again.
//! Rules:            X4 to X7; X9 latches are taken parent before child, left before right, the second never waited for.
//! Latches and I/O:  insert: one leaf. Split: parent, node, and for leaves the right neighbour.

use crate::body::{Body, LeafPos};
use crate::entry::EntryView;
use crate::latch::{Held, Latch, Restart, Version};
use crate::node::{Counts, FIRST_SLOTS, NodeRef};
use crate::seek::SeekPos;
use crate::sync::Ordering;

/// A split at the right edge moves this part of the left node, so that ascending loads leave full nodes behind.
const EDGE_SPLIT_PART: usize = 16;

/// What an insert knows of the node above the one at hand.
#[derive(Clone, Copy)]
struct Above<'t> {
    /// None above the root: then the root word is what leads here.
    node: Option<NodeRef<'t>>,
    version: Version,
    /// Which child of `node` the path takes.
    index: usize,
}

impl Body {
    /// Puts the entry at `place` into its leaf.
    #[inline]
    pub(crate) fn try_insert(&self, place: u32) -> Result<(), Restart> {
        let entry = self.entry(place);
        if self.try_append(place, entry)? {
            return Ok(());
        }
        let pos = SeekPos::before_entry(entry);
        let root_version = self.root_latch.read()?;
        let (mut node, mut version) = self.enter()?;
        self.root_latch.validate(root_version)?;
        let mut above = Above {
            node: None,
            version: root_version,
            index: 0,
        };
        loop {
            if node.is_full() {
                self.make_room(node, version, above, &pos)?;
                return Err(Restart);
            }
            let index = node.position(&self.arena, &pos)?;
            if node.level() == 0 {
                let _held = node.latch().upgrade(version)?;
                node.insert_slot(&self.arena, index, place, None);
                return Ok(());
            }
            above = Above {
                node: Some(node),
                version,
                index,
            };
            (node, version) = self.step_down(node, version, index)?;
        }
    }

    /// Appends to the rightmost leaf if the entry belongs behind all others and there is room.
    #[inline]
    fn try_append(&self, place: u32, entry: EntryView<'_>) -> Result<bool, Restart> {
        let leaf = self.node(self.right_edge.load(Ordering::Acquire));
        let Ok(version) = leaf.latch().read() else {
            return Ok(false);
        };
        let Counts { count, .. } = leaf.counts();
        if count == 0 || count == leaf.capacity() || leaf.next() != 0 {
            return Ok(false);
        }
        let last = leaf.entry(&self.arena, count - 1)?;
        if last.order(entry).is_gt() {
            return Ok(false);
        }
        let _held = leaf.latch().upgrade(version)?;
        leaf.insert_slot(&self.arena, count, place, None);
        Ok(true)
    }

    /// Grows or splits a full node.
    #[cold]
    fn make_room(
        &self,
        node: NodeRef<'_>,
        version: Version,
        above: Above<'_>,
        pos: &SeekPos<'_>,
    ) -> Result<(), Restart> {
        let Some(parent) = above.node else {
            let _held_root_word = self.root_latch.upgrade(above.version)?;
            let held = node.latch().upgrade(version)?;
            if node.grown_capacity() > node.capacity() {
                self.grow(node, held);
                return Ok(());
            }
            let root = NodeRef::create(&self.arena, node.level() + 1, FIRST_SLOTS);
            root.set_child(0, node.place);
            let at_edge = self.at_right_edge(node, pos)?;
            self.split(node, root, 0, at_edge)?;
            self.root.store(root.place, Ordering::Release);
            return Ok(());
        };
        let _held_parent = parent.latch().upgrade(above.version)?;
        let _held = node.latch().upgrade(version)?;
        let at_edge = above.index == parent.counts().count && self.at_right_edge(node, pos)?;
        self.split(node, parent, above.index, at_edge)
    }

    /// True if the cut runs behind everything in `node` and nothing lies right of it.
    fn at_right_edge(&self, node: NodeRef<'_>, pos: &SeekPos<'_>) -> Result<bool, Restart> {
        Ok(node.next() == 0 && node.position(&self.arena, pos)? == node.counts().count)
    }

    /// Replaces the root by a larger copy of itself. Only roots are ever smaller than a node can be.
    fn grow(&self, node: NodeRef<'_>, held: Held<'_>) {
        let larger = NodeRef::create(&self.arena, node.level(), node.grown_capacity());
        node.copy_tail(&self.arena, 0, larger);
        if node.level() > 0 {
            larger.set_child(0, node.held_child(0));
        } else {
            self.right_edge.store(larger.place, Ordering::Release);
        }
        self.root.store(larger.place, Ordering::Release);
        held.retire();
    }

    /// Moves the right part of `node` into a new node and tells `parent`, whose child `index` it is. All three are
    /// latched or known to nobody else.
    fn split<'t>(
        &'t self,
        node: NodeRef<'t>,
        parent: NodeRef<'t>,
        index: usize,
        at_edge: bool,
    ) -> Result<(), Restart> {
        let counts = node.counts();
        let moved = if at_edge {
            (counts.count / EDGE_SPLIT_PART).max(1)
        } else {
            counts.count / 2
        };
        let keep = counts.count - moved;
        if node.level() == 0 {
            let right = self.split_leaf(node, keep)?;
            parent.insert_slot(&self.arena, index, right.first_place(), Some(right));
        } else {
            // The separator at the cut goes up; it is in neither half afterwards.
            let (separator, keep) = if moved > 1 {
                (keep, keep)
            } else {
                (keep - 1, keep - 1)
            };
            let right = NodeRef::create(&self.arena, node.level(), node.capacity());
            node.copy_tail(&self.arena, separator + 1, right);
            right.set_child(0, node.held_child(separator + 1));
            let place = node.held_place(separator);
            node.set_counts(Counts {
                count: keep,
                ..counts
            });
            right.stretch_prefix(&self.arena);
            node.stretch_prefix(&self.arena);
            parent.insert_slot(&self.arena, index, place, Some(right));
        }
        self.count_split(node.level());
        Ok(())
    }

    /// Moves slots `keep..` of a leaf into a new right neighbour.
    fn split_leaf<'t>(&'t self, leaf: NodeRef<'t>, keep: usize) -> Result<NodeRef<'t>, Restart> {
        let neighbour = leaf.next();
        let neighbour = (neighbour != 0).then(|| self.node(neighbour));
        let _held_neighbour: Option<Held<'_>> =
            neighbour.map(NodeRef::latch).map(Latch::try_hold).transpose()?;
        let counts = leaf.counts();
        let right = NodeRef::create(&self.arena, 0, leaf.capacity());
        leaf.copy_tail(&self.arena, keep, right);
        right.set_prev(leaf.place);
        let dead = counts.dead - right.counts().dead;
        leaf.set_counts(Counts {
            count: keep,
            dead,
            ..counts
        });
        right.stretch_prefix(&self.arena);
        leaf.stretch_prefix(&self.arena);
        match neighbour {
            Some(neighbour) => {
                right.set_next(neighbour.place);
                neighbour.set_prev(right.place);
            }
            None => self.right_edge.store(right.place, Ordering::Release),
        }
        leaf.set_next(right.place);
        Ok(right)
    }

    /// Sets DEAD on the entry at `place` and counts it in its leaf; false if that was done before.
    pub(crate) fn try_mark_dead(&self, place: u32) -> Result<bool, Restart> {
        let entry = self.entry(place);
        let LeafPos {
            mut leaf,
            mut version,
            mut index,
        } = self.find(&SeekPos::before_entry(entry))?;
        loop {
            let counts = leaf.counts();
            if index >= counts.count {
                let next = leaf.next();
                leaf.latch().validate(version)?;
                // An entry that was inserted is in the tree; not to find it means that we looked at moving slots.
                if next == 0 {
                    return Err(Restart);
                }
                let right = self.node(next);
                let right_version = right.latch().read()?;
                leaf.latch().validate(version)?;
                (leaf, version, index) = (right, right_version, 0);
            } else if leaf.slot(index)?.place == place {
                let _held = leaf.latch().upgrade(version)?;
                let newly = entry.set_dead();
                leaf.set_counts(Counts {
                    dead: counts.dead + usize::from(newly),
                    ..counts
                });
                return Ok(newly);
            } else {
                index += 1;
            }
        }
    }
}
