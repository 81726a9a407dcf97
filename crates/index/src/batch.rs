//! Batch: a reusable buffer of the entries one read found.
//!
//! Why it exists:    a cursor that asked the tree for one entry at a time would pay a descent, or at least two version
//!                   checks, per entry. A batch takes what a leaf holds in one go; its memory is kept between reads.
//! Format / state:   places of entries, in scan order, and where the read stopped.
//! Rules:            X8 a batch is what the leaves held at some moment during the read, each leaf for itself; entries
//!                   marked dead by then are left out (X7). A batch belongs to the tree that filled it.
//! Latches and I/O:  none; holding a batch holds nothing.

use crate::entry::EntryView;
use crate::entry_room::EntryRoom;
use crate::latch::Version;
use crate::tree::Tree;

/// Entries of one tree in the order of the read that found them.
#[derive(Debug, Default)]
pub struct Batch {
    /// Which tree the places belong to; none before the first read.
    pub(crate) tree: Option<u64>,
    pub(crate) places: Vec<u32>,
    pub(crate) stop: Stop,
    /// For entries of packed blocks that are shown between reads of trees.
    pub(crate) room: EntryRoom,
}

/// Where a read ended and how to go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stop {
    pub(crate) direction: Direction,
    /// Place of the last entry found; 0 if there was none.
    pub(crate) last: u32,
    /// Leaf, its version and the index behind `last` in it; good as long as the version is.
    pub(crate) leaf: Option<(u32, Version, usize)>,
    /// Nothing lay beyond when the read ended.
    pub(crate) at_end: bool,
}

/// Which way a read goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Direction {
    #[default]
    Forward,
    Backward,
}

impl Batch {
    /// An empty batch; its buffer is allocated by the first read.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// True if the read went to the end of the tree (in its direction), so that nothing is left to read.
    pub fn reached_end(&self) -> bool {
        self.stop.at_end
    }

    /// Entry `index` of the batch; none beyond its length.
    ///
    /// # Panics
    /// If `tree` is not the tree that filled the batch (rule X8).
    #[inline]
    pub fn entry<'t>(&self, tree: &'t Tree, index: usize) -> Option<EntryView<'t>> {
        let place = *self.places.get(index)?;
        Some(tree.body_of(self).entry(place))
    }

    /// Notes how far a validated read has come.
    pub(crate) fn note(&mut self, leaf: u32, version: Version, index: usize, at_end: bool) {
        if let Some(&last) = self.places.last() {
            self.stop.last = last;
        }
        self.stop.leaf = Some((leaf, version, index));
        self.stop.at_end = at_end;
    }

    /// All entries in order.
    ///
    /// # Panics
    /// If `tree` is not the tree that filled the batch (rule X8).
    pub fn entries<'t>(&self, tree: &'t Tree) -> impl Iterator<Item = EntryView<'t>> {
        (0..self.len()).filter_map(|index| self.entry(tree, index))
    }

    /// Forgets the entries and keeps the buffer.
    pub fn clear(&mut self) {
        self.places.clear();
        self.stop = Stop::default();
    }
}
