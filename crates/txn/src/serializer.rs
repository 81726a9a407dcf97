//! Serializer: what SERIALIZABLE transactions have read, and who of them must be ended so that all others are as if they had
//! run one after the other.
//!
//! Why it exists: serializable snapshot isolation. Locks on what was read make readers wait for writers and writers for
//! readers; here nobody waits, and who would close a circle is told to try again (docs/decisions/0006).
//! State: footprints in latched shards, and the graph under one latch, which is taken when a transaction begins, ends, or
//! meets another one's footprint or change.
//! Rules: T29 to T33. Transactions of other levels have no part in it and take none of its latches.
//! Latches and I/O: summary, graph, core latch, shard of a footprint, in this order; no I/O.
//! After a crash: prepared transactions are adopted (rule T33), everything else is over.

use std::sync::Arc;

use pbxt_base::ids::{CommitTs, IndexId, RowId, TableId, TxnId};

use crate::footprint_own::{OwnFootprint, RowChange, WholeTable};
use crate::footprints::Footprints;
use crate::key_ranges::KeyRange;
use crate::serial_graph::{Released, SerialGraph, SerialId, Unserializable, VictimFlag};
use crate::snapshots::Snapshot;
use crate::sync::Latch;
use crate::txn_table::TxnTable;

/// Committed transactions that are kept at most; when there are more, half of them are summarised.
const ENDED_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub struct Serializer {
    graph: Latch<SerialGraph>,
    footprints: Footprints,
    /// What summarised transactions had read.
    summary: Latch<OwnFootprint>,
    ended_max: usize,
}

/// One SERIALIZABLE transaction, from its snapshot to its end; owned by its session.
#[derive(Debug)]
pub struct SerialTxn {
    id: SerialId,
    victim: Arc<VictimFlag>,
    own: OwnFootprint,
    found: Vec<SerialId>,
}

impl SerialTxn {
    fn new(id: SerialId, victim: Arc<VictimFlag>) -> Self {
        Self {
            id,
            victim,
            own: OwnFootprint::default(),
            found: Vec::new(),
        }
    }

    /// True if it must be ended (rule T29).
    #[inline]
    pub fn is_victim(&self) -> bool {
        self.victim.is_chosen()
    }

    /// Names it to those that judge versions for it.
    pub fn reader(&self) -> SerialReader {
        SerialReader(self.id.0)
    }
}

/// Who judges versions; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerialReader(u64);

impl SerialReader {
    /// True if nobody wants to know what is passed over.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A scan whose end is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenScan {
    reader: SerialId,
    index: IndexId,
    number: u64,
}

/// Figures for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialUsage {
    /// Transactions in the graph, ended ones included.
    pub txns: usize,
    /// Of those, ended ones that are kept because of others.
    pub ended: usize,
    /// Entries of footprints.
    pub footprints: usize,
}

impl Default for Serializer {
    fn default() -> Self {
        Self::with_ended_max(ENDED_MAX)
    }
}

impl Serializer {
    /// With another bound of kept transactions, for tests.
    pub fn with_ended_max(ended_max: usize) -> Self {
        Self {
            graph: Latch::new(SerialGraph::default()),
            footprints: Footprints::new(),
            summary: Latch::new(OwnFootprint::default()),
            ended_max,
        }
    }

    /// Begins a transaction and takes its snapshot. None if nothing it reads can ever matter: it said that it is a reader, and
    /// nobody who may write runs beside it (rule T30).
    pub fn begin(&self, txns: &TxnTable, is_reader: bool) -> (Snapshot, Option<SerialTxn>) {
        // The snapshot and the place in the graph are one moment: who commits before it is seen, who commits after it meets it.
        let mut graph = self.graph.lock();
        let begun = graph.begin(is_reader);
        let snapshot = txns.open_snapshot();
        drop(graph);
        (snapshot, begun.map(|(id, victim)| SerialTxn::new(id, victim)))
    }

    /// A prepared transaction that recovery found (rule T33).
    pub fn adopt(&self, txn: TxnId, tables: Vec<TableId>) -> SerialTxn {
        let (id, victim) = self.graph.lock().adopt(txn, tables);
        SerialTxn::new(id, victim)
    }

    /// The transaction is about to read a row.
    #[inline]
    pub fn note_row(&self, txn: &mut SerialTxn, table: TableId, row: RowId) {
        self.footprints.note_row(txn.id, &mut txn.own, table, row);
    }

    /// The transaction is about to read a table as a whole.
    pub fn note_table(&self, txn: &mut SerialTxn, table: TableId, what: WholeTable) {
        self.footprints.note_table(txn.id, &mut txn.own, table, what);
    }

    /// The transaction is about to learn how many rows its snapshot has in a table.
    pub fn note_count(&self, txn: &mut SerialTxn, table: TableId) {
        self.note_table(txn, table, WholeTable::COUNT);
        self.graph.lock().counted(txn.id, table);
    }

    /// The transaction is about to read these keys of an index.
    pub fn note_range(&self, txn: &mut SerialTxn, index: IndexId, range: KeyRange) {
        self.footprints.note_range(txn.id, &mut txn.own, index, range);
    }

    /// The transaction is about to read an index and may come to the end of this range.
    pub fn open_scan(&self, txn: &mut SerialTxn, index: IndexId, range: KeyRange) -> OpenScan {
        let number = self.footprints.open_scan(txn.id, &mut txn.own, index, range);
        OpenScan {
            reader: txn.id,
            index,
            number,
        }
    }

    /// The scan has read this part of its range and reads no more. Its transaction may have ended.
    pub fn close_scan(&self, scan: OpenScan, read: KeyRange) {
        self.footprints
            .close_scan(scan.reader, scan.index, scan.number, read);
    }

    /// A version or index event of `writer` is passed over because the reader's snapshot does not see it.
    #[cold]
    pub fn passed_over(&self, reader: SerialReader, writer: TxnId) {
        self.graph.lock().passed_over(SerialId(reader.0), writer);
    }

    /// The transaction is about to change a table for the first time. Called before anybody can see a change of it.
    pub fn note_write(&self, serial: &SerialTxn, txn: TxnId, table: TableId) {
        self.graph.lock().note_write(serial.id, txn, table);
    }

    /// The transaction has changed a row: its version is linked.
    ///
    /// # Errors
    /// It must be ended.
    pub fn changed_row(
        &self,
        txn: &mut SerialTxn,
        table: TableId,
        row: RowId,
        change: RowChange,
    ) -> Result<(), Unserializable> {
        let mut found = std::mem::take(&mut txn.found);
        self.footprints.readers_of_row(table, row, change, &mut found);
        self.met(txn, found)
    }

    /// The transaction has changed what lies under a key: its event is in the index.
    ///
    /// # Errors
    /// It must be ended.
    pub fn changed_key(&self, txn: &mut SerialTxn, index: IndexId, key: &[u8]) -> Result<(), Unserializable> {
        let mut found = std::mem::take(&mut txn.found);
        self.footprints.readers_of_key(index, key, &mut found);
        self.met(txn, found)
    }

    /// The transaction has added many rows to a table and entries to its indexes.
    ///
    /// # Errors
    /// It must be ended.
    pub fn loaded(
        &self,
        txn: &mut SerialTxn,
        table: TableId,
        indexes: impl Iterator<Item = IndexId>,
    ) -> Result<(), Unserializable> {
        let mut found = std::mem::take(&mut txn.found);
        self.footprints
            .readers_of_row(table, RowId::new(0), RowChange::Insert, &mut found);
        indexes.for_each(|index| self.footprints.readers_of_index(index, &mut found));
        self.met(txn, found)
    }

    /// The transaction took a key that `holder` had and gave up, and that nobody sees any more.
    pub fn took_key_of(&self, txn: &SerialTxn, holder: TxnId) {
        self.graph.lock().overwrote_reading_of(txn.id, holder);
    }

    fn met(&self, txn: &mut SerialTxn, mut found: Vec<SerialId>) -> Result<(), Unserializable> {
        found.retain(|id| *id != txn.id);
        if !found.is_empty() {
            self.graph.lock().overwrote(txn.id, &found);
            found.clear();
        }
        txn.found = found;
        if txn.is_victim() {
            Err(Unserializable)
        } else {
            Ok(())
        }
    }

    /// Votes yes (rule T32) by `vote`.
    ///
    /// # Errors
    /// `Err(Unserializable)` if it must be ended, `Ok(Err(_))` if `vote` failed; in both cases nothing has happened.
    pub fn prepare<R, E>(
        &self,
        txn: &SerialTxn,
        vote: impl FnOnce() -> Result<R, E>,
    ) -> Result<Result<R, E>, Unserializable> {
        let mut released = Vec::new();
        let mut graph = self.graph.lock();
        graph.may_prepare(txn.id)?;
        let voted = vote();
        if voted.is_err() {
            return Ok(voted);
        }
        graph.prepared(txn.id);
        let summary_is_over = graph.sweep(&mut released);
        drop(graph);
        self.release(&released, summary_is_over);
        Ok(voted)
    }

    /// Commits: `publish` takes the commit timestamp. Numbers of the graph and timestamps have one order.
    ///
    /// # Errors
    /// `Err(Unserializable)` if it must be ended, `Ok(Err(_))` if `publish` failed; in both cases nothing has happened.
    pub fn commit<R, E>(
        &self,
        txn: &mut SerialTxn,
        publish: impl FnOnce() -> Result<(CommitTs, R), E>,
    ) -> Result<Result<(CommitTs, R), E>, Unserializable> {
        let mut graph = self.graph.lock();
        graph.may_commit(txn.id)?;
        let published = publish();
        if published.is_ok() {
            graph.committed(txn.id, Arc::new(std::mem::take(&mut txn.own)));
        }
        drop(graph);
        Ok(published)
    }

    /// Commits a transaction that has changed nothing.
    ///
    /// # Errors
    /// It must be ended.
    pub fn commit_unchanged(&self, txn: &mut SerialTxn) -> Result<(), Unserializable> {
        let nothing = || Ok::<_, std::convert::Infallible>((CommitTs::new(0), ()));
        self.commit(txn, nothing).map(|_| ())
    }

    /// The transaction is over. If it did not commit, it never was.
    pub fn end(&self, txn: SerialTxn) {
        let mut released: Vec<Released> = Vec::new();
        let mut graph = self.graph.lock();
        if !graph.is_committed(txn.id) {
            graph.aborted(txn.id);
            released.push((txn.id, Arc::new(txn.own)));
        }
        let summary_is_over = graph.sweep(&mut released);
        let are_many = graph.ended_count() > self.ended_max;
        drop(graph);
        self.release(&released, summary_is_over);
        if are_many {
            self.summarise();
        }
    }

    fn release(&self, released: &[Released], summary_is_over: bool) {
        for (id, footprint) in released {
            self.footprints.remove(*id, footprint);
        }
        if summary_is_over {
            let mut summary = self.summary.lock();
            // Another one may have begun since.
            if !self.graph.lock().has_summary() {
                self.footprints.remove(SerialId::SUMMARY, &summary);
                *summary = OwnFootprint::default();
            }
        }
    }

    /// Rule T31: what is kept has a bound. The summary has read what they have read before they leave the graph.
    fn summarise(&self) {
        let mut summary = self.summary.lock();
        let oldest = {
            let graph = self.graph.lock();
            if graph.ended_count() <= self.ended_max {
                return;
            }
            graph.oldest_ended(self.ended_max / 2)
        };
        for (id, footprint) in &oldest {
            self.footprints
                .inherit(*id, footprint, SerialId::SUMMARY, &mut summary);
        }
        let ids: Vec<SerialId> = oldest.iter().map(|(id, _)| *id).collect();
        let mut released = Vec::new();
        let has_summary = {
            let mut graph = self.graph.lock();
            graph.summarise(&ids, &mut released);
            graph.has_summary()
        };
        for (id, footprint) in &released {
            self.footprints.remove(*id, footprint);
        }
        if !has_summary {
            // All of them were forgotten meanwhile.
            self.footprints.remove(SerialId::SUMMARY, &summary);
            *summary = OwnFootprint::default();
        }
    }

    /// Figures now.
    pub fn usage(&self) -> SerialUsage {
        let (txns, ended) = {
            let graph = self.graph.lock();
            (graph.len(), graph.ended_count())
        };
        SerialUsage {
            txns,
            ended,
            footprints: self.footprints.len(),
        }
    }
}

#[cfg(test)]
#[path = "serializer_tests.rs"]
mod serializer_tests;
