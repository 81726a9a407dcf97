//! Serial graph: which SERIALIZABLE transactions must come before which others, and who is ended so that no circle forms.
//!
//! Why it exists: a snapshot hides what concurrent transactions change, so who reads by it stands *before* them in every
//! serial order. Such an *antidependency* `reader -> writer` is the only way in which a circle can arise, and every circle has
//! two of them in a row, `T1 -> T2 -> T3`, of which T3 committed first (Cahill, Roehm, Fekete 2008; Ports, Grittner 2012,
//! section 3). So only that pair is looked for, not the circle.
//! State: a node per SERIALIZABLE transaction, kept after its commit while one that ran beside it is active; numbers of one
//! counter, which orders begins, preparations and commits; a summary of nodes that were too many.
//! Rules: T29 (dangerous pairs), T31 (what is kept), T32 (prepared ones are no victims).
//! Latches and I/O: none of its own; `Serializer` holds one latch around it.
//! After a crash: prepared transactions come back with `adopt`, as if each had read what an earlier one changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use pbxt_base::ids::{TableId, TxnId};
use pbxt_base::planted;

use crate::footprint_own::OwnFootprint;
use crate::sync::{AtomicU64, Ordering};

/// A SERIALIZABLE transaction: the counter when it began, which is also when its snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SerialId(pub(crate) u64);

impl SerialId {
    /// Whoever was summarised.
    pub(crate) const SUMMARY: Self = Self(0);
}

/// Set when the transaction has to be ended. Its session looks now and then.
#[derive(Debug)]
pub(crate) struct VictimFlag(AtomicU64);

impl VictimFlag {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(0)))
    }

    pub(crate) fn is_chosen(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn choose(&self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    Prepared(u64),
    Committed(u64),
}

/// Earliest numbers of those that a transaction stands before.
#[derive(Clone, Copy, Debug, Default)]
struct Outs {
    /// Of those that committed or prepared.
    any: Option<u64>,
    /// Of those that committed.
    committed: Option<u64>,
}

impl Outs {
    fn add(&mut self, number: u64, is_committed: bool) {
        let least = |old: Option<u64>| Some(old.map_or(number, |old| old.min(number)));
        self.any = least(self.any);
        if is_committed {
            self.committed = least(self.committed);
        }
    }
}

#[derive(Debug)]
struct Node {
    txn: TxnId,
    stage: Stage,
    /// It said that it would not write.
    is_reader: bool,
    has_written: bool,
    victim: Arc<VictimFlag>,
    /// Those that stand before it, ascending. Who is not in the graph any more does not count (rule T31).
    ins: Vec<SerialId>,
    /// Latest commit among summarised ones that stand before it.
    summarised_in: Option<u64>,
    outs: Outs,
    /// Tables it changes.
    tables: Vec<TableId>,
    footprint: Option<Arc<OwnFootprint>>,
}

impl Node {
    fn new() -> Self {
        Self {
            txn: TxnId::new(0),
            stage: Stage::Active,
            is_reader: false,
            has_written: false,
            victim: VictimFlag::new(),
            ins: Vec::new(),
            summarised_in: None,
            outs: Outs::default(),
            tables: Vec::new(),
            footprint: None,
        }
    }

    /// Number of its commit; the greatest one while it has none.
    fn end(&self) -> u64 {
        match self.stage {
            Stage::Committed(number) => number,
            Stage::Active | Stage::Prepared(_) => u64::MAX,
        }
    }

    fn is_active(&self) -> bool {
        self.stage == Stage::Active
    }

    /// True if it is certain that it writes nothing.
    fn is_read_only(&self) -> bool {
        self.is_reader || (!self.has_written && matches!(self.stage, Stage::Committed(_)))
    }
}

/// What is left of nodes that were too many: enough to find every dangerous pair, and some that are none.
#[derive(Clone, Copy, Debug)]
struct Summary {
    last_end: u64,
    txns: (TxnId, TxnId),
    outs: Outs,
}

/// A footprint that nobody asks for any more.
pub(crate) type Released = (SerialId, Arc<OwnFootprint>);

/// The transaction must be ended: an antidependency would close a dangerous pair that only its end can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserializable;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SerialGraph {
    last: u64,
    nodes: BTreeMap<SerialId, Node>,
    by_txn: HashMap<TxnId, SerialId>,
    active: BTreeSet<SerialId>,
    /// Active and prepared ones that may write.
    open_writers: usize,
    /// Committed ones by rising number of the commit.
    ended: VecDeque<(u64, SerialId)>,
    summary: Option<Summary>,
}

impl SerialGraph {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A transaction begins; its snapshot is taken under the same latch. A reader that nobody could come before needs no node
    /// (rule T30): none is given.
    pub(crate) fn begin(&mut self, is_reader: bool) -> Option<(SerialId, Arc<VictimFlag>)> {
        // Rule T30: only who runs beside the reader can come to stand after it and before what it sees.
        if is_reader && self.open_writers == 0 {
            return None;
        }
        self.open_writers += usize::from(!is_reader);
        let id = SerialId(self.number());
        let node = Node {
            is_reader,
            ..Node::new()
        };
        let victim = Arc::clone(&node.victim);
        self.nodes.insert(id, node);
        self.active.insert(id);
        Some((id, victim))
    }

    /// A prepared transaction that recovery found: nobody knows what it had read (rule T33).
    pub(crate) fn adopt(&mut self, txn: TxnId, tables: Vec<TableId>) -> (SerialId, Arc<VictimFlag>) {
        let id = SerialId(self.number());
        let mut node = Node {
            txn,
            stage: Stage::Prepared(id.0),
            has_written: true,
            tables,
            ..Node::new()
        };
        node.outs.add(0, true);
        let victim = Arc::clone(&node.victim);
        self.open_writers += 1;
        self.nodes.insert(id, node);
        self.by_txn.insert(txn, id);
        (id, victim)
    }

    /// The transaction is about to change a table for the first time.
    pub(crate) fn note_write(&mut self, id: SerialId, txn: TxnId, table: TableId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.txn = txn;
        node.has_written = true;
        if !node.tables.contains(&table) {
            node.tables.push(table);
        }
        self.by_txn.insert(txn, id);
    }

    /// `reader` passed over a version of `writer` that its snapshot does not see.
    pub(crate) fn passed_over(&mut self, reader: SerialId, writer: TxnId) {
        if let Some(&writer) = self.by_txn.get(&writer) {
            self.add(reader, writer);
        } else if let Some(summary) = self.summary
            && (summary.txns.0..=summary.txns.1).contains(&writer)
        {
            self.add_summarised_writer(reader, summary);
        }
    }

    /// `reader` counted the rows of a table: whoever changes it without being seen comes after it.
    pub(crate) fn counted(&mut self, reader: SerialId, table: TableId) {
        let is_unseen = |(id, node): &(&SerialId, &Node)| {
            node.tables.contains(&table) && node.end() > reader.0 && **id != reader
        };
        let writers: Vec<SerialId> = self.nodes.iter().filter(is_unseen).map(|(id, _)| *id).collect();
        for writer in writers {
            self.add(reader, writer);
        }
        if let Some(summary) = self.summary.filter(|summary| summary.last_end > reader.0) {
            self.add_summarised_writer(reader, summary);
        }
    }

    /// `writer` changed what these have read.
    pub(crate) fn overwrote(&mut self, writer: SerialId, readers: &[SerialId]) {
        for &reader in readers {
            if reader == SerialId::SUMMARY {
                self.add_summarised_reader(writer);
            } else {
                self.add(reader, writer);
            }
        }
    }

    /// As `overwrote`, for a reader named by its transaction.
    pub(crate) fn overwrote_reading_of(&mut self, writer: SerialId, reader: TxnId) {
        if let Some(&reader) = self.by_txn.get(&reader) {
            self.add(reader, writer);
        }
    }

    /// The antidependency `reader -> writer`, if both are there and ran side by side.
    fn add(&mut self, reader: SerialId, writer: SerialId) {
        if reader == writer {
            return;
        }
        let (Some(before), Some(after)) = (self.nodes.get(&reader), self.nodes.get(&writer)) else {
            return;
        };
        if before.end() < writer.0 || after.end() < reader.0 {
            return;
        }
        let Err(place) = after.ins.binary_search(&reader) else {
            return;
        };
        let stage = after.stage;
        if let Some(after) = self.nodes.get_mut(&writer) {
            after.ins.insert(place, reader);
        }
        if let Some(before) = self.nodes.get_mut(&reader) {
            match stage {
                Stage::Active => {}
                Stage::Prepared(number) => before.outs.add(number, false),
                Stage::Committed(number) => before.outs.add(number, true),
            }
        }
        self.break_pair(reader, writer);
        if stage != Stage::Active {
            self.break_pairs_around(reader);
        }
    }

    /// Ends one of `first` and `pivot` if the pair through the pivot is dangerous: the pivot, if it can still be ended.
    fn break_pair(&mut self, first: SerialId, pivot: SerialId) {
        let (Some(one), Some(two)) = (self.nodes.get(&first), self.nodes.get(&pivot)) else {
            return;
        };
        if !is_dangerous(one, first, two) {
            return;
        }
        if two.is_active() {
            two.victim.choose();
        } else {
            one.victim.choose();
        }
    }

    /// Ends the pivot if anybody stands before it in a dangerous pair.
    fn break_pairs_around(&mut self, pivot: SerialId) {
        let Some(two) = self.nodes.get(&pivot) else { return };
        let is_first = |id: &SerialId| self.nodes.get(id).is_some_and(|one| is_dangerous(one, *id, two));
        let by_summary = two
            .summarised_in
            .is_some_and(|end| two.outs.any.is_some_and(|out| out <= end));
        if by_summary || two.ins.iter().any(is_first) {
            two.victim.choose();
        }
    }

    fn add_summarised_reader(&mut self, writer: SerialId) {
        let Some(summary) = self.summary.filter(|summary| summary.last_end > writer.0) else {
            return;
        };
        if let Some(after) = self.nodes.get_mut(&writer) {
            after.summarised_in = after.summarised_in.max(Some(summary.last_end));
            self.break_pairs_around(writer);
        }
    }

    /// The writer committed after the reader's snapshot; whom it stands before, only the summary of all knows.
    fn add_summarised_writer(&mut self, reader: SerialId, summary: Summary) {
        let Some(before) = self.nodes.get_mut(&reader) else {
            return;
        };
        let is_dangerous = if before.is_read_only() {
            summary.outs.committed.is_some_and(|out| out < reader.0)
        } else {
            summary.outs.any.is_some()
        };
        before.outs.add(reader.0 + 1, true);
        if is_dangerous {
            before.victim.choose();
        }
        self.break_pairs_around(reader);
    }

    /// The transaction votes yes or commits: it becomes the T3 of pairs. Ends the T2s that can be ended.
    fn check_end(&mut self, id: SerialId) -> Result<(), Unserializable> {
        let Some(node) = self.nodes.get(&id) else {
            return Ok(());
        };
        if node.victim.is_chosen() {
            return Err(Unserializable);
        }
        let mut pivots = Vec::new();
        for &before in &node.ins {
            let Some(pivot) = self.nodes.get(&before) else {
                continue;
            };
            if matches!(pivot.stage, Stage::Committed(_)) || pivot.victim.is_chosen() {
                continue;
            }
            let is_first = |first: &SerialId| {
                let Some(one) = self.nodes.get(first) else {
                    return false;
                };
                let is_open = !matches!(one.stage, Stage::Committed(_)) && !one.victim.is_chosen();
                *first == id || (is_open && !one.is_reader)
            };
            if pivot.ins.iter().any(is_first) && !planted!("serializable.no_check_at_end") {
                if !pivot.is_active() {
                    return Err(Unserializable);
                }
                pivots.push(before);
            }
        }
        for pivot in pivots {
            if let Some(pivot) = self.nodes.get(&pivot) {
                pivot.victim.choose();
            }
        }
        Ok(())
    }

    /// Whether the transaction may vote now. `prepared` follows under the same latch, unless the vote fails.
    pub(crate) fn may_prepare(&mut self, id: SerialId) -> Result<(), Unserializable> {
        self.check_end(id)
    }

    /// Rule T32: from here on the transaction is no victim.
    pub(crate) fn prepared(&mut self, id: SerialId) {
        let number = self.number();
        self.end_as(id, Stage::Prepared(number), number);
        self.active.remove(&id);
    }

    /// Whether the transaction may commit now. `committed` or `aborted` follows under the same latch.
    pub(crate) fn may_commit(&mut self, id: SerialId) -> Result<(), Unserializable> {
        match self.nodes.get(&id).map(|node| node.stage) {
            Some(Stage::Active) => self.check_end(id),
            Some(Stage::Prepared(_) | Stage::Committed(_)) | None => Ok(()),
        }
    }

    /// The transaction has committed. The footprint stays as long as somebody may write over it (rule T31).
    pub(crate) fn committed(&mut self, id: SerialId, footprint: Arc<OwnFootprint>) {
        let number = self.number();
        self.end_as(id, Stage::Committed(number), number);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.footprint = Some(footprint);
            self.open_writers -= usize::from(!node.is_reader);
            self.ended.push_back((number, id));
        }
        self.active.remove(&id);
    }

    fn end_as(&mut self, id: SerialId, stage: Stage, number: u64) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.stage = stage;
        let ins = std::mem::take(&mut node.ins);
        for before in &ins {
            if let Some(before) = self.nodes.get_mut(before) {
                before.outs.add(number, matches!(stage, Stage::Committed(_)));
            }
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.ins = ins;
        }
    }

    /// The transaction never was.
    pub(crate) fn aborted(&mut self, id: SerialId) {
        if let Some(node) = self.nodes.remove(&id) {
            self.by_txn.remove(&node.txn);
            self.open_writers -= usize::from(!node.is_reader);
        }
        self.active.remove(&id);
    }

    /// Forgets the nodes that ended before every active transaction began (rule T31); their footprints, and whether the
    /// summary went too.
    pub(crate) fn sweep(&mut self, released: &mut Vec<Released>) -> bool {
        let oldest = self.active.first().map_or(u64::MAX, |id| id.0);
        while let Some(&(end, id)) = self.ended.front() {
            if end > oldest {
                break;
            }
            self.ended.pop_front();
            self.forget(id, released);
        }
        let is_over = self.summary.is_some_and(|summary| summary.last_end < oldest);
        if is_over {
            self.summary = None;
        }
        is_over
    }

    fn forget(&mut self, id: SerialId, released: &mut Vec<Released>) {
        if let Some(node) = self.nodes.remove(&id) {
            self.by_txn.remove(&node.txn);
            released.extend(node.footprint.map(|footprint| (id, footprint)));
        }
    }

    /// The oldest `count` ended transactions and their footprints, which are to be summarised.
    pub(crate) fn oldest_ended(&self, count: usize) -> Vec<Released> {
        let oldest = self.ended.iter().take(count);
        let footprint = |(_, id): &(u64, SerialId)| Some((*id, self.nodes.get(id)?.footprint.clone()?));
        oldest.filter_map(footprint).collect()
    }

    /// Replaces the oldest `count` ended transactions by the summary. Their footprints are the summary's already.
    pub(crate) fn summarise(&mut self, those: &[SerialId], released: &mut Vec<Released>) {
        let mut gone = Vec::new();
        while let Some(&(end, id)) = self.ended.front() {
            if !those.contains(&id) {
                break;
            }
            self.ended.pop_front();
            gone.push((id, end));
            if let Some(node) = self.nodes.get(&id) {
                let summary = self.summary.get_or_insert(Summary {
                    last_end: end,
                    txns: (TxnId::new(u64::MAX), TxnId::new(0)),
                    outs: Outs::default(),
                });
                summary.last_end = summary.last_end.max(end);
                if node.has_written {
                    summary.txns = (summary.txns.0.min(node.txn), summary.txns.1.max(node.txn));
                }
                if let Some(out) = node.outs.any {
                    summary.outs.add(out, false);
                }
                if let Some(out) = node.outs.committed {
                    summary.outs.add(out, true);
                }
            }
            self.forget(id, released);
        }
        gone.sort_unstable();
        for node in self.nodes.values_mut() {
            let ends = node.ins.iter().filter_map(|id| {
                let place = gone.binary_search_by_key(id, |(gone, _)| *gone).ok()?;
                Some(gone[place].1)
            });
            node.summarised_in = node.summarised_in.max(ends.max());
        }
    }

    /// True if the transaction has committed, perhaps so long ago that nothing is left of it.
    pub(crate) fn is_committed(&self, id: SerialId) -> bool {
        self.nodes
            .get(&id)
            .is_none_or(|node| matches!(node.stage, Stage::Committed(_)))
    }

    /// True if transactions are summarised.
    pub(crate) fn has_summary(&self) -> bool {
        self.summary.is_some()
    }

    /// Transactions that are kept although they have committed.
    pub(crate) fn ended_count(&self) -> usize {
        self.ended.len()
    }

    /// All transactions that have a node.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// Rule T29: `first -> pivot -> T3`, where T3 committed before both. If the first one writes nothing, T3 must have committed
/// before its snapshot; otherwise it stands after nobody who stands after T3.
fn is_dangerous(first: &Node, first_id: SerialId, pivot: &Node) -> bool {
    if first.victim.is_chosen() || pivot.victim.is_chosen() {
        return false;
    }
    let (out, limit) = if first.is_read_only() {
        (pivot.outs.committed, first_id.0 - 1)
    } else {
        (pivot.outs.any, first.end())
    };
    out.is_some_and(|out| out <= limit && out < pivot.end())
}

#[cfg(test)]
#[path = "serial_graph_tests.rs"]
mod serial_graph_tests;
