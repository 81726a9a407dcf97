//! Recovery: what open() makes of the newest checkpoint and of the log behind it.
//!
//! Why it exists: transaction states, row maps, counts and the newest index entries live in memory; image and log are their
//! home. Without a checkpoint the log alone is.
//! Passes: A reads the tail once, in order: outcome of every transaction, void ranges, catalog, row-count deltas,
//! auto-increment marks, loads. Then the image is read (recovery_image). B1, in parallel by segment, finds the newest
//! surviving version of every row of the tail. B2, in parallel by segment, makes the index events of the tail
//! (recovery_index).
//! Rules: D6, D13 (of a row the surviving version with the greatest LSN is the head, and one of the tail wins over the
//! image's), D14, D20 to D23, D40 (who waits is told how far it is).
//! Latches and I/O: no other thread uses the database yet.
//! After a crash during recovery: it starts again.

use crate::blob_reclaim::BlobAccounts;
use crate::catalog::{Catalog, CatalogOp};
use crate::counts::check_delta;
use crate::database::Database;
use crate::definition::TableDef;
use crate::error::Result;
use crate::fates::{Fate, Fates, check_void};
use crate::held_rows::HeldRow;
use crate::image::{PreparedImage, damage};
use crate::opening_progress::OpeningProgress;
use crate::recovery_image::{ImageFacts, OpenImage, Pieces, Tail, in_log};
use crate::recovery_index::IndexRebuilder;
use crate::reinsert::Removed;
use crate::session::{TableWork, Work};
use crate::shown::TableShown;
use crate::stamp::TOLD_AHEAD;
use crate::table::Table;
use parking_lot::Mutex;
use pbxt_base::{Addr, CommitTs, IndexId, Lsn, RowId, SegmentId, TableId, TxnId, planted};
use pbxt_io::for_each_parallel;
use pbxt_rowmap::MapWord;
use pbxt_segment::{BlobStore, SegmentStore};
use pbxt_txlog::{
    EndRef, IngestPiece, IngestRef, LogEnd, LogScan, Outcome, PrepareRef, Record, RecordRef, RowRef,
    SegmentScan,
};
use pbxt_txn::{LockMode, TxnTableImage};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Everything recovery found.
pub(crate) struct Found {
    pub end: LogEnd,
    pub catalog: Catalog,
    pub txns: TxnTableImage,
    pub prepared: Vec<PreparedImage>,
    /// What the image kept for whoever reclaims large values.
    pub blobs: BlobAccounts,
    pub records: u64,
    /// Bytes of log that were read.
    pub bytes: u64,
    /// Where recovery began to read the log; `None` without a checkpoint.
    pub start: Option<Lsn>,
    /// LSNs of records of loads in the tail.
    pub loads: Vec<Lsn>,
    /// Versions of prepared transactions in the tail, not linked yet (rule S24).
    pub held: Vec<HeldRow>,
    /// What is named; all else can go once the log is open.
    pub pieces: Pieces,
}

/// Pieces of one run that a load named in the tail.
pub(crate) struct FoundLoad {
    pub txn: TxnId,
    pub lsn: Lsn,
    pub table: TableId,
    /// 0: rows.
    pub index: IndexId,
    pub pieces: Vec<IngestPiece>,
    /// Of a build: number of the run.
    pub first_row: u64,
    pub last_row: u64,
}

impl FoundLoad {
    /// An ALTER built the index; it brought no rows (rule AL22).
    pub(crate) fn is_build(&self) -> bool {
        self.index.raw() != 0 && self.last_row == 0
    }
}

/// What pass A collects.
#[derive(Default)]
struct PassA {
    fates: Fates,
    prepared: BTreeMap<TxnId, PreparedImage>,
    /// Their ids.
    xids: HashMap<Vec<u8>, TxnId>,
    pending_ops: HashMap<TxnId, Vec<CatalogOp>>,
    ops: Vec<CatalogOp>,
    /// Count deltas of the tail.
    rows: HashMap<TableId, i64>,
    marks: HashMap<TableId, u64>,
    loads: Vec<FoundLoad>,
    last_txn: u64,
    last_ts: CommitTs,
    records: u64,
}

impl PassA {
    fn of_image(facts: &mut ImageFacts) -> Self {
        let prepared: BTreeMap<TxnId, PreparedImage> = std::mem::take(&mut facts.prepared)
            .into_iter()
            .filter(|_| !planted!("recovery.prepared_forgotten"))
            .map(|found| (found.txn, found))
            .collect();
        let ids: BTreeSet<TxnId> = prepared.keys().copied().collect();
        Self {
            last_txn: facts.txns.next.raw().saturating_sub(1),
            last_ts: facts.txns.last_ts,
            fates: Fates::of_image(std::mem::take(&mut facts.txns), &ids),
            xids: prepared
                .values()
                .map(|found| (found.xid.clone(), found.txn))
                .collect(),
            prepared,
            ..Self::default()
        }
    }

    fn note(&mut self, lsn: Lsn, record: RecordRef<'_>) -> Result<()> {
        self.records += 1;
        if let Some(load) = record.as_ingest() {
            self.note_load(lsn, &load);
            return self.check_numbers();
        }
        match record.view() {
            Record::Row(row) => self.note_txn(row.txn()),
            Record::End(end) => self.note_end(&end)?,
            Record::Prepare(prepare) => self.note_prepare(&prepare)?,
            Record::RollbackTo(rollback) => {
                self.note_txn(rollback.txn());
                check_void(rollback.range())?;
                self.fates
                    .add_voids(rollback.txn(), std::iter::once(rollback.range()));
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
        self.check_numbers()
    }

    /// Rule T58.
    fn check_numbers(&self) -> Result<()> {
        let greatest = self.last_txn.max(self.last_ts.raw());
        if greatest < TxnTableImage::NUMBERS_END {
            return Ok(());
        }
        let expected = format!(
            "numbers of transactions and commits below {}",
            TxnTableImage::NUMBERS_END
        );
        Err(damage(expected, greatest.to_string()))
    }

    fn note_txn(&mut self, txn: TxnId) {
        self.last_txn = self.last_txn.max(txn.raw());
    }

    fn note_end(&mut self, end: &EndRef<'_>) -> Result<()> {
        end.voids().try_for_each(check_void)?;
        let txn = end.txn();
        self.note_txn(txn);
        if let Some(found) = self.prepared.remove(&txn) {
            self.xids.remove(&found.xid);
        }
        let ops = self.pending_ops.remove(&txn);
        match end.outcome() {
            Outcome::Commit(ts) => {
                self.fates.add_voids(txn, end.voids());
                self.fates.commit(txn, ts);
                self.last_ts = self.last_ts.max(ts);
                self.ops.extend(ops.into_iter().flatten());
                for delta in end.deltas() {
                    check_delta(delta)?;
                    let rows = self.rows.entry(delta.table).or_default();
                    *rows = rows.saturating_add(delta.rows);
                }
            }
            Outcome::Abort => self.fates.set(txn, Fate::Aborted),
        }
        Ok(())
    }

    fn note_prepare(&mut self, prepare: &PrepareRef<'_>) -> Result<()> {
        prepare.deltas().try_for_each(check_delta)?;
        prepare.voids().try_for_each(check_void)?;
        let txn = prepare.txn();
        self.note_txn(txn);
        self.end_vote_before(txn, prepare.xid());
        self.fates.set(txn, Fate::Prepared);
        self.fates.add_voids(txn, prepare.voids());
        let found = PreparedImage {
            txn,
            xid: prepare.xid().to_vec(),
            rows_written: 0,
            deltas: prepare.deltas().collect(),
            voids: Vec::new(),
        };
        self.prepared.insert(txn, found);
        Ok(())
    }

    /// Rule V12: who votes finds the id free, so the vote that had it is over. Its END is in the log before, unless it was that of a
    /// rollback and found no room there.
    fn end_vote_before(&mut self, txn: TxnId, xid: &[u8]) {
        let before = self.xids.insert(xid.to_vec(), txn);
        if let Some(before) = before.filter(|before| *before != txn) {
            self.prepared.remove(&before);
            self.fates.set(before, Fate::Aborted);
        }
    }

    /// A run bears the stamp of this transaction. It may have begun behind the image's list of transactions and have no END, or
    /// none but that of its rollback: then nothing else says that it did not commit.
    fn note_stamp(&mut self, txn: TxnId, rows: &mut TailRows) {
        self.note_txn(txn);
        if self.fates.fate(txn) == Fate::Aborted {
            rows.traces.insert(txn);
        }
    }

    /// Several records in a row may name the pieces of one run.
    fn note_load(&mut self, lsn: Lsn, load: &IngestRef<'_>) {
        self.note_txn(load.txn());
        let same_run = |last: &&mut FoundLoad| {
            (last.txn, last.table, last.index) == (load.txn(), load.table(), load.index())
                && (last.first_row, last.last_row) == (load.first_row(), load.last_row())
        };
        if let Some(last) = self.loads.last_mut().filter(same_run) {
            last.pieces.extend(load.pieces());
            return;
        }
        self.loads.push(FoundLoad {
            txn: load.txn(),
            lsn,
            table: load.table(),
            index: load.index(),
            pieces: load.pieces().collect(),
            first_row: load.first_row(),
            last_row: load.last_row(),
        });
    }

    /// Applies the tail's changes of the catalog to what the image had. Of a table that the tail drops only the ids count: what the
    /// image had of it is not there to be changed, and its rows are not those of a new one.
    fn finish_catalog(&self, catalog: &Catalog, dropped: &BTreeSet<TableId>) -> Result<()> {
        let is_nothing = |def: &TableDef| def.temporary || dropped.contains(&def.id);
        for op in &self.ops {
            match op {
                CatalogOp::Put(def, _) if is_nothing(def) => catalog.note_ids(def),
                CatalogOp::Put(def, next) => {
                    if let Some(table) = catalog.by_id(def.id) {
                        catalog.alter(&table, def);
                    } else {
                        let rows = self.rows.get(&def.id).copied().unwrap_or(0);
                        let next = self.marks.get(&def.id).copied().unwrap_or(*next);
                        let table = Table::new((**def).clone(), CommitTs::new(0), next, rows);
                        catalog.put(Arc::new(table));
                    }
                }
                CatalogOp::Drop(id) => catalog.remove(*id),
                CatalogOp::Rename(id, name) => catalog.rename(*id, name),
                CatalogOp::Statistics(id, samples) => {
                    if let Some(table) = catalog.by_id(*id) {
                        table.restore_samples(samples)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Tables that the tail dropped: nothing of them is loaded.
    fn dropped(&self) -> BTreeSet<TableId> {
        let dropped = self.ops.iter().filter_map(|op| match op {
            CatalogOp::Drop(id) => Some(*id),
            CatalogOp::Put(..) | CatalogOp::Rename(..) | CatalogOp::Statistics(..) => None,
        });
        dropped.collect()
    }

    /// Reads what `scan` has, which is the log from `start` on.
    fn read_tail(
        &mut self,
        store: &SegmentStore,
        scan: &mut LogScan,
        start: Lsn,
        progress: &OpeningProgress,
    ) -> Result<()> {
        let segments_to =
            |lsn: Lsn| lsn.raw().saturating_sub(start.raw()) / store.geometry().hot_segment_bytes;
        let mut read = 0;
        while let Some((lsn, record)) = scan.next_other()? {
            self.note(lsn, record)
                .map_err(|error| in_log(store, error, lsn))?;
            if segments_to(lsn) > read {
                read = segments_to(lsn);
                progress.tell(|| format!("the log is read, {read} segments so far"));
            }
        }
        self.note_txn(scan.last_row_txn());
        // Of a row that was passed over nobody knows where it is: somewhere from here on.
        self.check_numbers()
            .map_err(|error| in_log(store, error, start))?;
        self.records += scan.rows_passed();
        Ok(())
    }

    /// What of it concerns the image.
    fn tail<'a>(&'a self, dropped: &'a BTreeSet<TableId>, end: &LogEnd) -> Tail<'a> {
        Tail {
            dropped,
            rows: &self.rows,
            marks: &self.marks,
            end: end.lsn(),
            tail_max: end.tail_max(),
        }
    }

    /// Indexes that the tail's ALTERs built, and where.
    fn builds(&self) -> HashMap<IndexId, Lsn> {
        let is_built = |load: &&FoundLoad| load.is_build() && self.fates.survives(load.txn, load.lsn);
        let built = self.loads.iter().filter(is_built);
        built.map(|load| (load.index, load.lsn)).collect()
    }

    fn image(&self, traces: &BTreeSet<TxnId>) -> TxnTableImage {
        let mut traces = traces.clone();
        traces.extend(self.prepared.keys());
        // Rule T48. Before the first table nothing was told to anybody.
        let told = if self.last_txn == 0 { 0 } else { TOLD_AHEAD };
        TxnTableImage {
            next: TxnId::new(self.last_txn + told + 1),
            last_ts: self.last_ts,
            exceptions: self.fates.exceptions(&traces),
        }
    }
}

/// Runs all passes over image and log of `store`, those over rows in so many threads.
pub(crate) fn read_log(
    store: &Arc<SegmentStore>,
    blobs: &BlobStore,
    threads: usize,
    progress: &OpeningProgress,
) -> Result<Found> {
    let checkpoint = store.checkpoint();
    let start = checkpoint.map_or(Lsn::new(0), |checkpoint| checkpoint.start);
    let mut image = match checkpoint {
        Some(checkpoint) => Some(OpenImage::open(store, checkpoint)?),
        None => None,
    };
    let mut pass = match &mut image {
        Some(image) => PassA::of_image(&mut image.facts),
        None => PassA::default(),
    };
    let mut scan = LogScan::new(Arc::clone(store), start)?;
    pass.read_tail(store, &mut scan, start, progress)?;
    let log_start = checkpoint.map_or(Lsn::new(0), |checkpoint| checkpoint.log_start);
    let end = scan.finish()?.with_log_start(log_start);
    pass.fates.settle();
    let mut pieces = Pieces::new(store);
    let catalog = Catalog::default();
    let (has_image, dropped) = (image.is_some(), pass.dropped());
    let accounts = match image {
        Some(image) => image.load(&catalog, &mut pieces, pass.tail(&dropped, &end), progress)?,
        None => BlobAccounts::default(),
    };
    pass.finish_catalog(&catalog, &dropped)
        .map_err(|error| in_log(store, error, end.lsn()))?;
    pieces.add_loads(&catalog, &pass.loads, &pass.fates)?;
    let rows = RowPasses {
        store,
        end: &end,
        threads,
        progress,
    };
    let mut tail_rows = rows.read(blobs, &pass, &catalog, has_image)?;
    for &txn in &pieces.stamps {
        pass.note_stamp(txn, &mut tail_rows);
    }
    pass.check_numbers()
        .map_err(|error| in_log(store, error, end.lsn()))?;
    let txns = pass.image(&tail_rows.traces);
    let mut prepared: Vec<PreparedImage> = std::mem::take(&mut pass.prepared).into_values().collect();
    for found in &mut prepared {
        found.voids = pass.fates.voids(found.txn).to_vec();
        found.rows_written += tail_rows.prepared.get(&found.txn).copied().unwrap_or(0);
    }
    Ok(Found {
        bytes: end.lsn().raw().saturating_sub(start.raw()),
        end,
        catalog,
        txns,
        prepared,
        blobs: accounts,
        records: pass.records,
        start: has_image.then_some(start),
        loads: pass.loads.iter().map(|load| load.lsn).collect(),
        held: std::mem::take(&mut tail_rows.held),
        pieces,
    })
}

/// What the row passes learn besides words and entries.
#[derive(Default)]
struct TailRows {
    /// Transactions with versions that do not count.
    traces: BTreeSet<TxnId>,
    /// Versions by prepared transactions.
    prepared: HashMap<TxnId, u64>,
    /// Their rows.
    held: Vec<HeldRow>,
}

/// Passes B1 and B2: over the rows of the log, by all threads.
struct RowPasses<'a> {
    store: &'a Arc<SegmentStore>,
    end: &'a LogEnd,
    threads: usize,
    progress: &'a OpeningProgress,
}

impl RowPasses<'_> {
    /// Links versions, then makes index entries.
    fn read(&self, blobs: &BlobStore, pass: &PassA, catalog: &Catalog, has_image: bool) -> Result<TailRows> {
        let learned = Mutex::new(TailRows::default());
        self.each_segment("rows of the log are found", |segment| {
            let mut tables = TableCache::new(catalog);
            let mut here = TailRows::default();
            self.each_row(segment, |row, lsn| {
                link_version(&pass.fates, tables.get(row.table()), row, lsn, &mut here);
                Ok(())
            })?;
            let mut all = learned.lock();
            all.traces.append(&mut here.traces);
            all.held.append(&mut here.held);
            for (txn, rows) in here.prepared {
                *all.prepared.entry(txn).or_default() += rows;
            }
            Ok(())
        })?;
        let rebuilder = IndexRebuilder::new(catalog, !has_image && pass.prepared.is_empty(), &pass.builds())?;
        self.each_segment("index entries of the log's rows are made", |segment| {
            let mut worker = rebuilder.worker(blobs);
            self.each_row(segment, |row, lsn| {
                if pass.fates.survives(row.txn(), lsn) {
                    let is_prepared = pass.fates.is_prepared(row.txn());
                    let txn = if is_prepared { row.txn() } else { TxnId::new(0) };
                    worker
                        .add(row, txn, lsn)
                        .map_err(|error| in_log(self.store, error, lsn))?;
                }
                Ok(())
            })
        })?;
        Ok(learned.into_inner())
    }

    fn each_segment(&self, what: &'static str, work: impl Fn(SegmentId) -> Result<()> + Sync) -> Result<()> {
        let segments: Vec<SegmentId> = self.end.segments().collect();
        let pieces = self.progress.pieces(what, segments.len());
        for_each_parallel(&segments, self.threads, |segment| {
            work(*segment)?;
            pieces.done();
            Ok(())
        })
    }

    fn each_row(
        &self,
        segment: SegmentId,
        mut each: impl FnMut(&RowRef<'_>, Lsn) -> Result<()>,
    ) -> Result<()> {
        let mut scan = SegmentScan::new(Arc::clone(self.store), segment, self.end)?;
        while let Some((lsn, row)) = scan.next_row()? {
            each(&row, lsn)?;
        }
        Ok(())
    }
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

/// Pass B1: the greatest LSN wins (rule D13), over the image's word too (rule D20).
fn link_version(fates: &Fates, table: Option<&Table>, row: &RowRef<'_>, lsn: Lsn, learned: &mut TailRows) {
    if let Some(table) = table {
        table.map.bump_to(row.row());
    }
    if !fates.survives(row.txn(), lsn) {
        learned.traces.insert(row.txn());
        return;
    }
    if fates.is_prepared(row.txn()) {
        *learned.prepared.entry(row.txn()).or_default() += 1;
        learned.held.extend(table.map(|table| HeldRow {
            table: table.id,
            row: row.row(),
            lsn,
            is_tombstone: row.is_tombstone(),
        }));
        return;
    }
    if let Some(table) = table {
        link(table, row.row(), row.is_tombstone(), lsn);
    }
}

fn link(table: &Table, row: RowId, is_tombstone: bool, lsn: Lsn) {
    let addr = Addr::hot(lsn);
    let word = if is_tombstone {
        MapWord::tombstone(addr)
    } else {
        MapWord::version(addr)
    };
    let mut old = table.map.load(row);
    while old.is_absent() || old.addr().lsn() < lsn {
        match table.map.compare_exchange(row, old, word) {
            Ok(()) => break,
            Err(now) => old = now,
        }
    }
}

/// Gives prepared transactions their locks back (rule T18); the log is open by now.
pub(crate) fn adopt_prepared(db: &Arc<Database>, prepared: Vec<PreparedImage>) {
    for found in prepared {
        let mut work = Work {
            txn: found.txn,
            xid: found.xid.clone(),
            voids: found.voids.clone(),
            logged: true,
            ..Work::default()
        };
        work.last_lsn = db.log.tail();
        work.rows_written = found.rows_written;
        for delta in &found.deltas {
            if let Some(table) = db.catalog.by_id(delta.table) {
                let _ = db.table_locks.lock(found.txn, delta.table, LockMode::Intent);
                let shown = Arc::new(TableShown::new(delta.table));
                work.tables.push(TableWork {
                    shown,
                    table,
                    rows: delta.rows,
                    unseen: 0,
                    removed: Removed::Nothing,
                    bytes: 0,
                    written: true,
                });
            }
        }
        let tables = work.tables.iter().map(|table| table.table.id).collect();
        work.serial = Some(Box::new(db.serial.adopt(found.txn, tables)));
        db.prepared.note_vote(found);
        db.prepared.insert(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pbxt_txlog::{EndRecord, PrepareRecord, RollbackToRecord, VoidRange};

    /// What pass A says to a record of so many bytes.
    fn noted(len: usize, encode: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = vec![0; len];
        encode(&mut bytes);
        let record = RecordRef::parse(&bytes).expect("just written");
        PassA::default().note(Lsn::new(640), record)
    }

    fn end(txn: u64, ts: u64, voids: &[VoidRange]) -> Result<()> {
        let record = EndRecord {
            txn: TxnId::new(txn),
            outcome: Outcome::Commit(CommitTs::new(ts)),
            deltas: &[],
            voids,
        };
        noted(record.encoded_len(), |out| record.encode_into(out))
    }

    #[test]
    fn a_void_range_of_nothing_is_damage() {
        for (from, to, fits) in [(64, 65, true), (64, 128, true), (64, 64, false), (128, 64, false)] {
            let (from, to) = (Lsn::new(from), Lsn::new(to));
            let range = VoidRange { from, to };
            let txn = TxnId::new(7);
            let voids = &[range];
            let prepare = PrepareRecord {
                txn,
                xid: b"x",
                deltas: &[],
                voids,
            };
            let rollback = RollbackToRecord { txn, range };
            let of_prepare = noted(prepare.encoded_len(), |out| prepare.encode_into(out));
            let of_rollback = noted(rollback.encoded_len(), |out| rollback.encode_into(out));
            let found = [end(7, 7, voids), of_prepare, of_rollback].map(|noted| noted.is_ok());
            assert_eq!(found, [fits; 3], "T8: {from} to {to}");
        }
    }

    #[test]
    fn a_number_that_nobody_handed_out_is_damage_and_its_record_is_named() {
        let end = TxnTableImage::NUMBERS_END;
        for (txn, ts, fits) in [
            (7, 7, true),
            (end - 1, end - 1, true),
            (end, 7, false),
            (7, end, false),
            (u64::MAX, 7, false),
            (7, u64::MAX, false),
        ] {
            assert_eq!(self::end(txn, ts, &[]).is_ok(), fits, "T58: {txn}, {ts}");
        }
        let mut pass = PassA::default();
        pass.note_txn(TxnId::new(u64::MAX));
        assert!(pass.check_numbers().is_err(), "T58: rows that were passed over");
    }
}
