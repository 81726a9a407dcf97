//! What a tree with at least one entry consists of: arena, root word, and the way down.
//!
//! Why it exists:    an empty tree should cost next to nothing, so all of this is made by the first insert.
//! Format / state:   `root` names the root node and changes under `root_latch`, which so acts as the latch of a parent of
//!                   the root. `right_edge` names the rightmost leaf, a hint that ascending inserts try first.
//! Rules:            X4, X8 (whoever meets a change on the way begins again).
//! Latches and I/O:  the descent takes none.

use std::sync::atomic::AtomicU32 as Counter;
use std::sync::atomic::AtomicU64;

use crate::arena::Arena;
use crate::entry::EntryView;
use crate::latch::{Latch, Restart, Version};
use crate::node::{FIRST_SLOTS, LEAF_SLOTS, NodeRef, entry_at};
use crate::seek::SeekPos;
use crate::sync::{AtomicU32, Ordering, pause};

/// Lines of a node asked for before the search in it begins: header and slots.
const LEAF_LINES: usize = 1 + LEAF_SLOTS / 8;

/// 32 GiB of nodes that are at least half full do not reach this height.
const LEVELS_MAX: usize = 8;

static TREES_MADE: AtomicU64 = AtomicU64::new(0);

/// A tree's memory.
pub(crate) struct Body {
    /// Tells this tree from every other of the process.
    pub(crate) id: u64,
    pub(crate) arena: Arena,
    pub(crate) root_latch: Latch,
    pub(crate) root: AtomicU32,
    pub(crate) right_edge: AtomicU32,
    /// Nodes on each level, for estimates only; nothing is ordered by it.
    nodes: [Counter; LEVELS_MAX],
}

/// A cut's position in a leaf, true at `version`.
#[derive(Clone, Copy)]
pub(crate) struct LeafPos<'t> {
    pub(crate) leaf: NodeRef<'t>,
    pub(crate) version: Version,
    /// Number of slots left of the cut.
    pub(crate) index: usize,
}

impl Body {
    pub(crate) fn new() -> Body {
        let arena = Arena::new();
        let root = NodeRef::create(&arena, 0, FIRST_SLOTS).place;
        Body {
            id: TREES_MADE.fetch_add(1, Ordering::Relaxed),
            arena,
            root_latch: Latch::new(),
            root: AtomicU32::new(root),
            right_edge: AtomicU32::new(root),
            nodes: [const { Counter::new(1) }; LEVELS_MAX],
        }
    }

    /// Number of nodes on a level, at least 1.
    pub(crate) fn nodes_on(&self, level: u8) -> u32 {
        self.nodes[usize::from(level).min(LEVELS_MAX - 1)].load(Ordering::Relaxed)
    }

    /// Notes that a node of this level was split in two.
    pub(crate) fn count_split(&self, level: u8) {
        self.nodes[usize::from(level).min(LEVELS_MAX - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn node(&self, place: u32) -> NodeRef<'_> {
        NodeRef::at(&self.arena, place)
    }

    pub(crate) fn entry(&self, place: u32) -> EntryView<'_> {
        entry_at(&self.arena, place)
    }

    /// The root and its version.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(NodeRef<'_>, Version), Restart> {
        let version = self.root_latch.read()?;
        let root = self.node(self.root.load(Ordering::Acquire));
        let root_version = root.latch().read()?;
        self.root_latch.validate(version)?;
        Ok((root, root_version))
    }

    /// Child `index` of `node` and its version; `node` was still as at `version` when the child's was taken.
    #[inline]
    pub(crate) fn step_down<'t>(
        &'t self,
        node: NodeRef<'t>,
        version: Version,
        index: usize,
    ) -> Result<(NodeRef<'t>, Version), Restart> {
        let child = self.node(node.child(index)?);
        if node.level() == 1 {
            child.prefetch(LEAF_LINES);
        }
        let child_version = child.latch().read()?;
        node.latch().validate(version)?;
        Ok((child, child_version))
    }

    /// Where the cut runs through the leaves. The position still has to be validated by its user.
    #[inline]
    pub(crate) fn find(&self, pos: &SeekPos<'_>) -> Result<LeafPos<'_>, Restart> {
        let (mut node, mut version) = self.enter()?;
        while node.level() > 0 {
            let index = node.position(&self.arena, pos)?;
            (node, version) = self.step_down(node, version, index)?;
        }
        let index = node.position(&self.arena, pos)?;
        Ok(LeafPos {
            leaf: node,
            version,
            index,
        })
    }
}

/// Repeats `attempt` until it meets no change on its way.
#[inline]
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> Result<T, Restart>) -> T {
    let mut round = 0;
    loop {
        if let Ok(done) = attempt() {
            return done;
        }
        pause(round);
        round += 1;
    }
}
