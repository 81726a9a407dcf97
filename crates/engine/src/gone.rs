//! Gone rows: the set of rows of a table whose deletion is settled.
//!
//! Why it exists: a delete writes no index event, so the entries of a deleted row stay until a merge meets them. Readers that
//! need nothing but the entry ask this set instead of reading the row, for each entry: a latch, even a shared one, would be a
//! cache line that all of them write.
//! State: an immutable generation behind one pointer: nodes of 2^24 row ids, leaves of 2^16. A change copies the leaves it
//! touches, their nodes, and a list of nodes; the rest is shared with the generation before.
//! Rules: B7 a row is in the set before its word is cleared; B9 to B11 when it leaves the set (see gone_sweep.rs).
//! Latches and I/O: readers none; changes of one table one after the other, under a latch of their own.
//! After a crash: the checkpoint image has the set.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pbxt_base::{RowId, verify};
use pbxt_rowmap::ROW_MAX;
use roaring::{RoaringBitmap, RoaringTreemap};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEAF_LOG2: u32 = 16;
const NODE_LOG2: u32 = 24;
const LEAVES: usize = 1 << (NODE_LOG2 - LEAF_LOG2);

/// Leaves of 2^24 row ids that follow each other.
type Node = [Option<Arc<RoaringBitmap>>; LEAVES];

/// One generation.
#[derive(Debug, Clone, Default)]
pub(crate) struct GoneSet {
    /// By the row id's upper bits.
    nodes: BTreeMap<u64, Arc<Node>>,
    len: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GoneRows {
    now: ArcSwap<GoneSet>,
    /// Rows in it; stored after the generation, so a reader that finds 0 need not look at that.
    len: AtomicU64,
    changing: Mutex<()>,
}

fn place_of(row: u64) -> (u64, usize, u32) {
    let leaf = (row >> LEAF_LOG2) as usize % LEAVES;
    (row >> NODE_LOG2, leaf, (row & ((1 << LEAF_LOG2) - 1)) as u32)
}

impl GoneSet {
    #[inline]
    pub(crate) fn contains(&self, row: RowId) -> bool {
        let (node, leaf, bit) = place_of(row.raw());
        let Some(node) = self.nodes.get(&node) else {
            return false;
        };
        node[leaf].as_ref().is_some_and(|leaf| leaf.contains(bit))
    }

    /// All rows, rising.
    #[cfg(test)]
    fn rows(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().flat_map(|(number, node)| {
            node.iter().enumerate().flat_map(move |(place, leaf)| {
                let first = (number << NODE_LOG2) | ((place as u64) << LEAF_LOG2);
                let bits = leaf.iter().flat_map(|leaf| leaf.iter());
                bits.map(move |bit| first | u64::from(bit))
            })
        })
    }

    /// All rows, as the image has them.
    pub(crate) fn to_treemap(&self) -> RoaringTreemap {
        let mut parts: BTreeMap<u32, RoaringBitmap> = BTreeMap::new();
        for (number, node) in &self.nodes {
            let part = parts.entry((number >> (32 - NODE_LOG2)) as u32).or_default();
            let first = (number << NODE_LOG2) as u32;
            for (place, leaf) in node.iter().enumerate() {
                let first = first | (place as u32) << LEAF_LOG2;
                // They rise, so each is put behind the one before, and no place is looked for.
                let rows = leaf.iter().flat_map(|leaf| leaf.iter());
                let appended = part.append(rows.map(|row| first | row));
                debug_assert!(appended.is_ok(), "rows of a set rise");
            }
        }
        RoaringTreemap::from_bitmaps(parts)
    }

    fn leaf_mut(&mut self, row: u64) -> &mut RoaringBitmap {
        let (node, leaf, _) = place_of(row);
        let node = self
            .nodes
            .entry(node)
            .or_insert_with(|| Arc::new(std::array::from_fn(|_| None)));
        Arc::make_mut(Arc::make_mut(node)[leaf].get_or_insert_default())
    }

    fn insert(&mut self, rows: impl Iterator<Item = u64>) {
        self.change_leaves(rows, RoaringBitmap::insert);
    }

    fn remove(&mut self, rows: impl Iterator<Item = u64>) {
        self.change_leaves(rows, RoaringBitmap::remove);
    }

    /// Changes one bit for each row. A leaf is looked for once for all its rows that follow each other.
    fn change_leaves(
        &mut self,
        rows: impl Iterator<Item = u64>,
        change: impl Fn(&mut RoaringBitmap, u32) -> bool,
    ) {
        let mut rows = rows.peekable();
        while let Some(first) = rows.peek().copied() {
            let leaf = self.leaf_mut(first);
            let before = leaf.len();
            while let Some(row) = rows.next_if(|row| row >> LEAF_LOG2 == first >> LEAF_LOG2) {
                change(leaf, place_of(row).2);
            }
            let now = leaf.len();
            self.len = self.len + now - before;
        }
    }

    /// Lets leaves and nodes go that are empty, where rows were removed.
    fn shrink(&mut self, removed: &RoaringTreemap) {
        let mut rest = removed.iter();
        while let Some(row) = rest.next() {
            let (number, place, _) = place_of(row);
            rest.advance_to((row | ((1 << LEAF_LOG2) - 1)).saturating_add(1));
            let Some(node) = self.nodes.get_mut(&number) else {
                continue;
            };
            if node[place].as_ref().is_some_and(|leaf| leaf.is_empty()) {
                Arc::make_mut(node)[place] = None;
            }
            if node.iter().all(Option::is_none) {
                self.nodes.remove(&number);
            }
        }
    }
}

impl GoneRows {
    /// True if the row's deletion is settled and entries of it may be left. For a row whose word is clear, the word is loaded
    /// before (rule B7), the shape after this (rule B10).
    #[inline]
    pub(crate) fn contains(&self, row: RowId) -> bool {
        self.len.load(Ordering::Acquire) != 0 && self.now.load().contains(row)
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The set now.
    pub(crate) fn now(&self) -> Arc<GoneSet> {
        self.now.load_full()
    }

    /// Adds rows; the caller clears their words afterwards (rule B7). Costs the leaves that these are in.
    pub(crate) fn add(&self, rows: impl Iterator<Item = RowId>) {
        self.change(|set| set.insert(rows.map(RowId::raw)));
    }

    /// Removes rows (rule B9).
    pub(crate) fn remove(&self, rows: &RoaringTreemap) {
        self.change(|set| {
            // All of them, as after a compaction: what is removed is in it.
            if rows.len() == set.len {
                verify!(
                    rows.iter().all(|row| set.contains(RowId::new(row))),
                    "B9: a cut is of the set"
                );
                *set = GoneSet::default();
                return;
            }
            set.remove(rows.iter());
            set.shrink(rows);
        });
    }

    fn change(&self, change: impl FnOnce(&mut GoneSet)) {
        let _changing = self.changing.lock();
        let mut set = GoneSet::clone(&self.now.load());
        change(&mut set);
        let len = set.len;
        self.now.store(Arc::new(set));
        self.len.store(len, Ordering::Release);
    }

    /// As the checkpoint image has it.
    pub(crate) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.now().to_treemap().serialize_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Takes over what an image has.
    pub(crate) fn restore(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut rest = bytes;
        let set = RoaringTreemap::deserialize_from(&mut rest)?;
        let is_row = |row: Option<u64>| row.is_some_and(|row| (1..=ROW_MAX).contains(&row));
        // `encode` makes no runs of rows, of which a few bytes would be as many rows as anybody likes.
        let has_runs = set
            .bitmaps()
            .any(|(_, rows)| rows.statistics().n_run_containers > 0);
        let are_rows = set.is_empty() || is_row(set.min()) && is_row(set.max());
        if !rest.is_empty() || has_runs || !are_rows {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!(
                    "rows {:?} to {:?}, {} bytes behind them, runs: {has_runs}",
                    set.min(),
                    set.max(),
                    rest.len()
                ),
            ));
        }
        self.add(set.iter().map(RowId::new));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_of_gone_rows_agrees_with_a_model_and_comes_back_from_its_bytes() {
        let seed = 0x676f_6e65_u64;
        println!("seed {seed}");
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Rows of some leaves of some nodes, at their edges and between.
            let row = state >> 33;
            let row = ((row & 3) << NODE_LOG2) | ((row >> 2 & 3) << LEAF_LOG2) | ((row >> 4) % 7 * 10_922);
            // No row has the number 0.
            row.max(1)
        };
        let (gone, mut model) = (GoneRows::default(), BTreeSet::new());
        for round in 0..400 {
            let rows: BTreeSet<u64> = (0..20).map(|_| next()).collect();
            let kept = gone.now();
            let before: Vec<u64> = kept.rows().collect();
            if round % 3 == 2 {
                model.retain(|row| !rows.contains(row));
                gone.remove(
                    &rows
                        .iter()
                        .copied()
                        .filter(|row| kept.contains(RowId::new(*row)))
                        .collect(),
                );
            } else {
                model.extend(&rows);
                gone.add(rows.iter().copied().map(RowId::new));
            }
            assert!(gone.now().rows().eq(model.iter().copied()), "round {round}");
            assert!(kept.rows().eq(before), "a generation never changes");
            assert_eq!(gone.len(), model.len() as u64);
            for row in rows {
                assert_eq!(gone.contains(RowId::new(row)), model.contains(&row));
            }
        }
        let again = GoneRows::default();
        again.restore(&gone.encode().expect("encoded")).expect("decoded");
        assert!(again.now().rows().eq(model.iter().copied()));
        gone.remove(&model.iter().copied().collect());
        assert!(gone.now().nodes.is_empty(), "what is empty costs nothing");
    }

    #[test]
    fn a_change_copies_only_the_leaves_it_touches() {
        let gone = GoneRows::default();
        gone.add((0..100_u64).map(|number| RowId::new(number << LEAF_LOG2)));
        let before = gone.now();
        gone.add([RowId::new((7 << LEAF_LOG2) + 1)].into_iter());
        let after = gone.now();
        let leaves = |set: &GoneSet| -> Vec<_> {
            let leaves = set.nodes[&0].iter().flatten();
            leaves.map(Arc::as_ptr).collect()
        };
        let pairs = leaves(&before).into_iter().zip(leaves(&after));
        assert_eq!(pairs.filter(|(old, new)| old != new).count(), 1);
    }
}
