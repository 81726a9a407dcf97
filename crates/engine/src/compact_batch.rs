//! Compact batch: what one step of the compactor has read of its segments.
//!
//! Why it exists: the rows of a segment lie in the order in which they were written; they are homed in row id order. One
//! pass collects them, with the bytes of those that are the newest of their row, so that no chunk is read twice.
//! Rules: S1, S4 a segment is needed as long as it holds a version of a transaction that is not settled and not dead.
//! Latches and I/O: reads segments from disk, past the cache.

use crate::blob_reclaim::{has_large, large_values};
use crate::database::Database;
use crate::error::Result;
use crate::homing::{Standing, standing_of};
use crate::table::Table;
use pbxt_base::{Addr, CommitTs, Lsn, RowId, SegmentId, TableId, TxnId};
use pbxt_rows::BlobRef;
use pbxt_txlog::RowRef;
use std::collections::HashMap;
use std::sync::Arc;

/// Records between two looks at the epoch.
const RECORDS_PER_PIN: u64 = 256;

/// What still needs the versions of a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeper {
    /// Transactions that had not ended.
    pub unfinished: Vec<TxnId>,
    /// The greatest commit that was beyond the horizon.
    pub ts: CommitTs,
}

/// A row of which a segment has a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub table: usize,
    pub row: RowId,
    pub lsn: Lsn,
    /// Place of its payload in `payloads`, if it was kept.
    pub kept: Option<(u32, u32)>,
    /// What it is, if the row's word named it and it was settled: nothing that comes later takes that from it.
    pub settled_head: Option<Settled>,
}

/// What a settled version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Row,
    Tombstone,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CompactBatch {
    pub tables: Vec<Arc<Table>>,
    by_id: HashMap<TableId, Option<usize>>,
    pub rows: Vec<Candidate>,
    pub payloads: Vec<u8>,
    pub keepers: Vec<(SegmentId, Keeper)>,
    /// Large values that versions named, with table and row.
    pub large: Vec<(usize, RowId, BlobRef)>,
    pub records: u64,
}

impl Keeper {
    /// True if nothing needs the segment.
    pub(crate) fn is_free(&self) -> bool {
        self.unfinished.is_empty() && self.ts.raw() == 0
    }

    /// True if another look may find that nothing needs the segment any more.
    pub(crate) fn is_worth_a_look(&self, db: &Database, horizon: CommitTs) -> bool {
        let guard = crossbeam_epoch::pin();
        let ended = |txn: &TxnId| {
            matches!(
                standing_of(db, *txn, Lsn::new(0), horizon, &guard),
                Standing::Settled | Standing::Dead
            )
        };
        self.ts <= horizon && self.unfinished.iter().all(ended)
    }

    fn note(&mut self, txn: TxnId, standing: Standing) {
        match standing {
            Standing::Unfinished if !self.unfinished.contains(&txn) => self.unfinished.push(txn),
            Standing::Recent(ts) => self.ts = self.ts.max(ts),
            _ => {}
        }
    }
}

/// Large values that a version names, also those of columns that went (rule AL14).
fn values_named(table: &Table, row: &RowRef<'_>) -> Result<Vec<BlobRef>> {
    let schema = table.versions().schema(row.schema_version());
    large_values(schema.ok_or_else(|| table.superseded_error())?, row.payload())
}

impl CompactBatch {
    /// Reads a finished segment. False if it is still being written.
    pub(crate) fn read(&mut self, db: &Database, segment: SegmentId, horizon: CommitTs) -> Result<bool> {
        let Some(mut scan) = db.log.scan_finished(segment)? else {
            return Ok(false);
        };
        let mut keeper = Keeper::default();
        let mut guard = crossbeam_epoch::pin();
        while let Some((lsn, record)) = scan.next_record()? {
            self.records += 1;
            if self.records.is_multiple_of(RECORDS_PER_PIN) {
                guard.repin_after(|| db.breathe());
            }
            let Some(row) = record.as_row() else { continue };
            let Some(table) = self.table_of(db, row.table()) else {
                continue;
            };
            let standing = standing_of(db, row.txn(), lsn, horizon, &guard);
            keeper.note(row.txn(), standing);
            if matches!(standing, Standing::Settled | Standing::Dead) && has_large(row.payload()) {
                let values = values_named(&self.tables[table], &row)?;
                self.large
                    .extend(values.into_iter().map(|value| (table, row.row(), value)));
            }
            let word = self.tables[table].map.load_in(row.row(), &guard);
            if !word.is_absent() {
                let is_head = word.addr() == Addr::hot(lsn);
                self.add(table, lsn, &row, is_head.then_some(standing))?;
            }
        }
        self.keepers.push((segment, keeper));
        Ok(true)
    }

    /// `head` is how the version stands if the row's word names it.
    fn add(&mut self, table: usize, lsn: Lsn, row: &RowRef<'_>, head: Option<Standing>) -> Result<()> {
        let mut kept = None;
        if head.is_some() {
            let start = self.payloads.len();
            if !row.is_tombstone() {
                // Rule AL12.
                self.tables[table].append_payload(row, &mut self.payloads)?;
            }
            kept = Some((start as u32, (self.payloads.len() - start) as u32));
        }
        let what = if row.is_tombstone() {
            Settled::Tombstone
        } else {
            Settled::Row
        };
        self.rows.push(Candidate {
            table,
            row: row.row(),
            lsn,
            kept,
            settled_head: (head == Some(Standing::Settled)).then_some(what),
        });
        Ok(())
    }

    /// Number of the table in `tables`; none if it exists no more: its records mean nothing.
    fn table_of(&mut self, db: &Database, id: TableId) -> Option<usize> {
        let tables = &mut self.tables;
        *self.by_id.entry(id).or_insert_with(|| {
            let table = db.catalog.by_id(id).filter(|table| !table.is_dropped())?;
            tables.push(table);
            Some(tables.len() - 1)
        })
    }

    /// Puts rows in order of table and row id, and what is large too.
    pub(crate) fn sort(&mut self) {
        self.rows
            .sort_unstable_by_key(|found| (found.table, found.row, found.lsn));
        self.large
            .sort_unstable_by_key(|(table, row, value)| (*table, *row, value.addr));
    }

    /// A payload that was kept.
    pub(crate) fn payload(&self, (start, bytes): (u32, u32)) -> &[u8] {
        &self.payloads[start as usize..start as usize + bytes as usize]
    }
}
