//! Recovery: what open() makes of the log.
//!
//! Why it exists: row maps, indexes, counts, transaction states and catalog live in memory; the log is their only home.
//! Passes: A reads the log once, in order: outcome of every transaction, void ranges, catalog, row-count deltas,
//! auto-increment marks. B1, in parallel by segment, finds the newest surviving version of every row. B2, in parallel by
//! segment, makes the index entries of rows that are alive.
//! Rules: D6 committed iff END(commit) is in the valid log; prepared iff PREPARE is and END is not; else aborted.
//! D13 a version survives iff its transaction committed or is prepared and its LSN is in no void range; of a row the
//! surviving version with the greatest LSN is the head (rule D15 made LSN order chain order). D14 nothing is written.
//! Latches and I/O: no other thread uses the database yet.
//! After a crash during recovery: it starts again.

use crate::catalog::{Catalog, CatalogOp};
use crate::database::Database;
use crate::definition::TableDef;
use crate::error::Result;
use crate::recovery_index::{IndexRebuilder, rebuild_prepared_row};
use crate::session::{TableWork, Work};
use crate::table::Table;
use parking_lot::Mutex;
use pbxt_base::{Addr, CommitTs, Lsn, RowId, SegmentId, TableId, TxnId};
use pbxt_io::{for_each_parallel, parallelism};
use pbxt_rowmap::MapWord;
use pbxt_segment::{BlobStore, SegmentStore};
use pbxt_txlog::{
    CountDelta, EndRef, LogEnd, LogScan, Outcome, PrepareRef, Record, RowRef, SegmentScan, VoidRange,
};
use pbxt_txn::{EndedAs, LockMode, RestoredTxn, TxnTableImage};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Everything recovery found.
pub(crate) struct Found {
    pub end: LogEnd,
    pub catalog: Catalog,
    pub txns: TxnTableImage,
    pub prepared: Vec<FoundPrepared>,
    pub records: u64,
    pub bytes: u64,
}

/// A transaction that was prepared and has no END.
pub(crate) struct FoundPrepared {
    pub txn: TxnId,
    pub xid: Vec<u8>,
    pub deltas: Vec<CountDelta>,
    pub voids: Vec<VoidRange>,
    pub rows: Vec<(TableId, RowId)>,
}

/// Outcome of a transaction as far as the log tells.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    /// Neither PREPARE nor END(commit).
    #[default]
    Aborted,
    Committed,
    Prepared,
}

/// Outcomes of all transactions: one byte each.
#[derive(Default)]
pub(crate) struct Fates {
    by_txn: Vec<Fate>,
    voids: HashMap<TxnId, Vec<VoidRange>>,
}

impl Fates {
    fn set(&mut self, txn: TxnId, fate: Fate) {
        let at = txn.raw() as usize;
        if at >= self.by_txn.len() {
            self.by_txn.resize(at + 1, Fate::default());
        }
        if let Some(slot) = self.by_txn.get_mut(at) {
            *slot = fate;
        }
    }

    fn fate(&self, txn: TxnId) -> Fate {
        self.by_txn.get(txn.raw() as usize).copied().unwrap_or_default()
    }

    fn is_void(&self, txn: TxnId, lsn: Lsn) -> bool {
        self.voids
            .get(&txn)
            .is_some_and(|ranges| ranges.iter().any(|range| range.from <= lsn && lsn < range.to))
    }

    /// Rule D13.
    fn survives(&self, row: &RowRef<'_>, lsn: Lsn) -> bool {
        self.fate(row.txn()) != Fate::Aborted && !self.is_void(row.txn(), lsn)
    }

    /// True for a version that only its transaction's outcome can make visible.
    pub(crate) fn is_prepared(&self, txn: TxnId) -> bool {
        self.fate(txn) == Fate::Prepared
    }
}

/// What pass A collects.
#[derive(Default)]
struct PassA {
    fates: Fates,
    prepared: BTreeMap<TxnId, FoundPrepared>,
    pending_ops: HashMap<TxnId, Vec<CatalogOp>>,
    ops: Vec<CatalogOp>,
    rows: HashMap<TableId, i64>,
    marks: HashMap<TableId, u64>,
    last_txn: u64,
    last_ts: CommitTs,
    records: u64,
}

impl PassA {
    fn note(&mut self, record: Record<'_>) -> Result<()> {
        self.records += 1;
        match record {
            Record::Row(row) => self.note_txn(row.txn()),
            Record::End(end) => self.note_end(&end),
            Record::Prepare(prepare) => self.note_prepare(&prepare),
            Record::RollbackTo(rollback) => {
                self.note_txn(rollback.txn());
                self.fates
                    .voids
                    .entry(rollback.txn())
                    .or_default()
                    .push(rollback.range());
            }
            Record::Catalog(catalog) => {
                self.note_txn(catalog.txn());
                let op = CatalogOp::decode(catalog.op(), catalog.bytes())?;
                self.pending_ops.entry(catalog.txn()).or_default().push(op);
            }
            Record::AutoInc(mark) => {
                self.marks.insert(mark.table(), mark.high_mark());
            }
            Record::Filler => {}
        }
        Ok(())
    }

    fn note_txn(&mut self, txn: TxnId) {
        self.last_txn = self.last_txn.max(txn.raw());
    }

    fn note_end(&mut self, end: &EndRef<'_>) {
        let txn = end.txn();
        self.note_txn(txn);
        self.prepared.remove(&txn);
        let ops = self.pending_ops.remove(&txn);
        match end.outcome() {
            Outcome::Commit(ts) => {
                self.fates.set(txn, Fate::Committed);
                self.last_ts = self.last_ts.max(ts);
                self.ops.extend(ops.into_iter().flatten());
                for delta in end.deltas() {
                    *self.rows.entry(delta.table).or_default() += delta.rows;
                }
            }
            Outcome::Abort => self.fates.set(txn, Fate::Aborted),
        }
    }

    fn note_prepare(&mut self, prepare: &PrepareRef<'_>) {
        let txn = prepare.txn();
        self.note_txn(txn);
        self.fates.set(txn, Fate::Prepared);
        let found = FoundPrepared {
            txn,
            xid: prepare.xid().to_vec(),
            deltas: prepare.deltas().collect(),
            voids: Vec::new(),
            rows: Vec::new(),
        };
        self.prepared.insert(txn, found);
    }

    /// Builds the tables that exist at the end of the log.
    fn catalog(&self) -> Catalog {
        let catalog = Catalog::default();
        for op in &self.ops {
            match op {
                CatalogOp::Put(def, _) if def.temporary => catalog.note_ids(def),
                CatalogOp::Put(def, next) => {
                    let rows = self.rows.get(&def.id).copied().unwrap_or(0);
                    let next = self.marks.get(&def.id).copied().unwrap_or(*next);
                    catalog.put(Arc::new(Table::new(
                        TableDef::clone(def),
                        CommitTs::new(0),
                        next,
                        rows,
                    )));
                }
                CatalogOp::Drop(id) => catalog.remove(*id),
                CatalogOp::Rename(id, name) => catalog.rename(*id, name),
            }
        }
        catalog
    }

    fn image(&self) -> TxnTableImage {
        let restored = |found: &FoundPrepared| RestoredTxn {
            id: found.txn,
            ended: EndedAs::Prepared,
            voids: self
                .fates
                .voids
                .get(&found.txn)
                .into_iter()
                .flatten()
                .map(|range| range.from..range.to)
                .collect(),
        };
        TxnTableImage {
            next: TxnId::new(self.last_txn + 1),
            last_ts: self.last_ts,
            exceptions: self.prepared.values().map(restored).collect(),
        }
    }
}

/// Runs all passes over the log of `store`.
pub(crate) fn read_log(store: &Arc<SegmentStore>, blobs: &BlobStore) -> Result<Found> {
    let mut pass = PassA::default();
    let mut scan = LogScan::new(Arc::clone(store), Lsn::new(0))?;
    while let Some((_, record)) = scan.next_record()? {
        pass.note(record.view())?;
    }
    let end = scan.finish()?;
    let catalog = pass.catalog();
    let segments: Vec<SegmentId> = end.segments().collect();
    let threads = parallelism();
    let prepared_rows = Mutex::new(Vec::new());
    for_each_parallel(&segments, threads, |segment| {
        let mut tables = TableCache::new(&catalog);
        each_row(store, &end, *segment, |row, lsn| {
            if let Some(table) = tables.get(row.table()) {
                link_version(&pass.fates, table, row, lsn, &prepared_rows);
            }
            Ok(())
        })
    })?;
    let rebuilder = IndexRebuilder::new(&catalog, pass.prepared.is_empty())?;
    for_each_parallel(&segments, threads, |segment| {
        let mut worker = rebuilder.worker(blobs);
        each_row(store, &end, *segment, |row, lsn| {
            if pass.fates.survives(row, lsn) && !pass.fates.is_prepared(row.txn()) {
                worker.add(row, lsn)?;
            }
            Ok(())
        })
    })?;
    for (txn, table, row) in prepared_rows.into_inner() {
        if let Some(found) = pass.prepared.get_mut(&txn) {
            found.rows.push((table, row));
        }
    }
    let txns = pass.image();
    let mut prepared: Vec<FoundPrepared> = std::mem::take(&mut pass.prepared).into_values().collect();
    for found in &mut prepared {
        found.voids = pass.fates.voids.get(&found.txn).cloned().unwrap_or_default();
        found.rows.sort_unstable();
        found.rows.dedup();
    }
    let bytes = end.lsn().raw();
    Ok(Found {
        end,
        catalog,
        txns,
        prepared,
        records: pass.records,
        bytes,
    })
}

fn each_row(
    store: &Arc<SegmentStore>,
    end: &LogEnd,
    segment: SegmentId,
    mut each: impl FnMut(&RowRef<'_>, Lsn) -> Result<()>,
) -> Result<()> {
    let mut scan = SegmentScan::new(Arc::clone(store), segment, end)?;
    while let Some((lsn, record)) = scan.next_record()? {
        if let Some(row) = record.as_row() {
            each(&row, lsn)?;
        }
    }
    Ok(())
}

/// Remembers the table of the last row: rows of one table mostly stand together in the log.
struct TableCache<'a> {
    catalog: &'a Catalog,
    last: Option<(TableId, Option<Arc<Table>>)>,
}

impl<'a> TableCache<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, last: None }
    }

    /// The table, unless it was dropped or is temporary.
    fn get(&mut self, id: TableId) -> Option<&Table> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            self.last = Some((id, self.catalog.by_id(id)));
        }
        self.last.as_ref().and_then(|(_, table)| table.as_deref())
    }
}

/// Pass B1: the greatest LSN wins (rule D13).
fn link_version(
    fates: &Fates,
    table: &Table,
    row: &RowRef<'_>,
    lsn: Lsn,
    prepared_rows: &Mutex<Vec<(TxnId, TableId, RowId)>>,
) {
    table.map.bump_to(row.row());
    if !fates.survives(row, lsn) {
        return;
    }
    if fates.is_prepared(row.txn()) {
        prepared_rows.lock().push((row.txn(), row.table(), row.row()));
    }
    let addr = Addr::hot(lsn);
    let word = if row.is_tombstone() {
        MapWord::tombstone(addr)
    } else {
        MapWord::version(addr)
    };
    let mut old = table.map.load(row.row());
    while old.is_absent() || old.addr().lsn() < lsn {
        match table.map.compare_exchange(row.row(), old, word) {
            Ok(()) => break,
            Err(now) => old = now,
        }
    }
}

/// Gives prepared transactions their locks and index events back (rule T18); the log is open by now.
pub(crate) fn adopt_prepared(db: &Arc<Database>, prepared: Vec<FoundPrepared>) -> Result<()> {
    for found in prepared {
        let mut work = Work {
            txn: found.txn,
            xid: found.xid,
            voids: found.voids,
            logged: true,
            ..Work::default()
        };
        work.last_lsn = db.log.tail();
        work.rows_written = found.rows.len() as u64;
        for delta in found.deltas {
            if let Some(table) = db.catalog.by_id(delta.table) {
                let _ = db.table_locks.lock(found.txn, delta.table, LockMode::Intent);
                work.tables.push(TableWork {
                    table,
                    rows: delta.rows,
                    unseen: 0,
                    bytes: 0,
                    written: true,
                });
            }
        }
        for (table, row) in found.rows {
            if let Some(table) = db.catalog.by_id(table) {
                rebuild_prepared_row(db, &table, row, found.txn)?;
            }
        }
        db.prepared.insert(work);
    }
    Ok(())
}
