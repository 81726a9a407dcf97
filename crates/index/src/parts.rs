//! `IndexParts`: the trees and runs that one index consists of at a moment.
//!
//! Why it exists:    readers take one reference to it and see parts that fit together, whatever checkpoints and merges
//!                   install meanwhile.
//! Format / state:   the tree that takes inserts, frozen trees and runs, both newest first. A set of parts never changes;
//!                   a new set replaces it.
//! Rules:            X34 every event of the index lies in exactly one part; which part is newer decides nothing, the
//!                   events' LSNs do.
//! Latches and I/O:  none; runs are read through the cache.

use std::sync::Arc;

use pbxt_base::Result;
use pbxt_segment::BlockCache;

use crate::batch::Batch;
use crate::entry::EntryView;
use crate::entry_room::EntryRoom;
use crate::run::{Run, RunPiece};
use crate::seek::SeekPos;
use crate::tree::Tree;

/// Entries read at once by a probe of a key.
const PROBE_BATCH: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct IndexParts {
    /// Takes inserts.
    pub active: Arc<Tree>,
    /// Take none any more, newest first.
    pub frozen: Vec<Arc<Tree>>,
    /// On disk, newest first.
    pub runs: Vec<Arc<Run>>,
}

/// What the reader of an entry says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Somebody may still see it.
    Keep,
    /// Nobody can see what it stands for any more: to be marked dead.
    Dead,
}

impl IndexParts {
    /// An index without entries.
    pub fn new() -> IndexParts {
        IndexParts::of_tree(Arc::new(Tree::new()))
    }

    /// An index that is one tree.
    pub fn of_tree(active: Arc<Tree>) -> IndexParts {
        IndexParts {
            active,
            frozen: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// All trees, newest first.
    pub fn trees(&self) -> impl Iterator<Item = &Arc<Tree>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// No part has an entry of a row that was gone at this cut or before; none without entries.
    pub fn swept(&self) -> Option<u64> {
        let trees = self.trees().filter(|tree| !tree.is_empty());
        let pieces = self.runs.iter().flat_map(|run| &run.pieces);
        let cuts = trees.map(|tree| tree.swept().cut());
        cuts.chain(pieces.map(|piece| piece.swept().cut())).min()
    }

    /// Number of entries, anti-entries and dead ones included.
    pub fn entries(&self) -> u64 {
        let runs: u64 = self.runs.iter().map(|run| run.entries()).sum();
        runs + self.trees().map(|tree| tree.len()).sum::<u64>()
    }

    /// Number of trees and runs that have entries.
    pub fn filled(&self) -> usize {
        let runs = self.runs.iter().filter(|run| !run.is_empty());
        self.trees().filter(|tree| !tree.is_empty()).count() + runs.count()
    }

    /// About how many entries lie right of `low` and left of `high`; of a short range, all of them are counted (rule X37). Reads
    /// two blocks of each run at most; one that cannot be read is left to those who need what is in it.
    pub fn range_count(&self, low: &SeekPos<'_>, high: &SeekPos<'_>, cache: &BlockCache) -> u64 {
        let of_run = |run: &Arc<Run>| {
            let counted = run.range_count(low, high, cache);
            counted.unwrap_or_else(|_| run.range_count_estimate(low, high))
        };
        let runs = self.runs.iter().map(of_run);
        let trees = self.trees().map(|tree| tree.range_count_estimate(low, high));
        runs.chain(trees).sum()
    }

    /// True if entries with exactly this key can be in a run. No I/O.
    pub fn runs_may_contain(&self, key: &[u8]) -> bool {
        self.runs.iter().any(|run| run.may_contain(key))
    }

    /// Calls `f` for the entries of one leaf or block, in order, so chosen that shares (0 to 1) spread evenly see the parts
    /// by their size. Dead entries are left out. The answer is how much what was shown counts: a leaf or block that is seldom chosen
    /// stands for more than one that often is, so what is counted in each, times this, adds up to what all of them have.
    pub fn sample(
        &self,
        share: f64,
        cache: &BlockCache,
        batch: &mut Batch,
        mut f: impl FnMut(EntryView<'_>),
    ) -> Result<f64> {
        let all = self.entries() as f64;
        let mut at = share.clamp(0.0, 1.0) * all;
        for tree in self.trees() {
            let entries = tree.len() as f64;
            if at < entries {
                let leaves = tree.sample(at / entries, batch);
                batch.entries(tree).for_each(f);
                return Ok(leaves * all / entries);
            }
            at -= entries;
        }
        let filled = self.runs.iter().filter(|run| !run.is_empty());
        let mut last = None;
        for run in filled {
            let entries = run.entries() as f64;
            last = Some((run, (at / entries).min(1.0)));
            if at < entries {
                break;
            }
            at -= entries;
        }
        let Some((run, share)) = last else { return Ok(0.0) };
        let Some(block) = run.sample(cache, share)? else {
            return Ok(0.0);
        };
        block.hold(&mut batch.room);
        for index in (0..block.len()).filter(|&index| !block.is_dead(index)) {
            f(block.show(index, &mut batch.room));
        }
        Ok(all / block.len().max(1) as f64)
    }

    /// Calls `f` for every entry under exactly `key` that is not dead: part by part, newest first, within a part in order.
    /// Events of one row may so come apart. Runs that cannot have the key are passed without I/O.
    pub fn for_each_under_key(
        &self,
        key: &[u8],
        cache: &BlockCache,
        batch: &mut Batch,
        mut f: impl FnMut(EntryView<'_>) -> Fate,
    ) -> Result<()> {
        for tree in self.trees() {
            tree_under_key(tree, key, batch, &mut f);
        }
        for run in &self.runs {
            for piece in run.pieces_with_key(key) {
                if piece.may_contain(key) {
                    piece_under_key(piece, key, cache, &mut batch.room, &mut f)?;
                }
            }
        }
        Ok(())
    }
}

impl Default for IndexParts {
    fn default() -> IndexParts {
        IndexParts::new()
    }
}

fn tree_under_key(tree: &Tree, key: &[u8], batch: &mut Batch, f: &mut impl FnMut(EntryView<'_>) -> Fate) {
    tree.read_batch_forward(&SeekPos::lower_bound(key), batch, PROBE_BATCH);
    loop {
        for (at, entry) in batch.entries(tree).enumerate() {
            if entry.key() != key {
                return;
            }
            if f(entry) == Fate::Dead
                && let Some(entry) = tree.entry_ref(batch, at)
            {
                tree.mark_dead(entry);
            }
        }
        if batch.reached_end() || batch.is_empty() {
            return;
        }
        tree.read_batch_on(batch, PROBE_BATCH);
    }
}

fn piece_under_key(
    piece: &RunPiece,
    key: &[u8],
    cache: &BlockCache,
    room: &mut EntryRoom,
    f: &mut impl FnMut(EntryView<'_>) -> Fate,
) -> Result<()> {
    let from = SeekPos::lower_bound(key);
    for number in piece.blocks_with_key(key) {
        let block = piece.load(cache, number)?;
        for index in block.partition_point(&from)..block.len() {
            if !block.has_key(index, key) {
                return Ok(());
            }
            if !block.is_dead(index) && f(block.entry(index, room)) == Fate::Dead {
                block.mark_dead(index);
            }
        }
    }
    Ok(())
}
