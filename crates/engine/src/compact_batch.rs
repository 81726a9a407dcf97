//! Compact batch: what one step of the compactor has read of its segments.
//!
//! Why it exists: the rows of a segment lie in the order in which they were written; they are homed in row id order. One
//! pass collects them, with the bytes of those that are the newest of their row, so that no chunk is read twice.
//! Rules: S1, S4 a segment is needed as long as it holds a version of a transaction that is not settled and not dead. AL12 payloads are
//! kept as the log has them, and get the columns of now when they are written: with the defaults of added columns they may be a hundred
//! times as large as the log.
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
    /// Its payload, if that was kept.
    pub kept: Option<Kept>,
    /// What it is, if the row's word named it and it was settled: nothing that comes later takes that from it.
    pub settled_head: Option<Settled>,
}

/// A payload that was kept: place in `payloads`, and the version of its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    start: u32,
    bytes: u32,
    version: u16,
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
                self.add(table, lsn, &row, is_head.then_some(standing));
            }
        }
        self.keepers.push((segment, keeper));
        Ok(true)
    }

    /// `head` is how the version stands if the row's word names it.
    fn add(&mut self, table: usize, lsn: Lsn, row: &RowRef<'_>, head: Option<Standing>) {
        let is_kept = head.is_some() && !row.is_tombstone();
        let kept = is_kept.then(|| {
            let (start, payload) = (self.payloads.len(), row.payload());
            self.payloads.extend_from_slice(payload);
            Kept {
                start: start as u32,
                bytes: payload.len() as u32,
                version: row.schema_version(),
            }
        });
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
        // Stable, because it sees the stretches that rise: rows that were changed in their order are sorted by looking at them.
        self.rows.sort_by_key(|found| (found.table, found.row, found.lsn));
        self.large
            .sort_unstable_by_key(|(table, row, value)| (*table, *row, value.addr));
    }

    /// A payload of the table that was kept, with the columns of now (rule AL12); `scratch` is for one that has others.
    pub(crate) fn payload<'b>(
        &'b self,
        table: &Table,
        kept: Kept,
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let start = kept.start as usize;
        let stored = &self.payloads[start..start + kept.bytes as usize];
        if kept.version == table.schema().version() {
            return Ok(stored);
        }
        scratch.clear();
        table.append_converted(kept.version, stored, scratch)?;
        Ok(scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Options;
    use crate::definition::TableDef;
    use crate::keys::KeyChanges;
    use crate::session::Session;
    use crate::write::NewVersion;
    use pbxt_rows::{Column, ColumnKind, OlderSchema, Origin, RowBuilder, RowView, Schema, Value};
    use pbxt_segment::{Geometry, SegmentClass};
    use pbxt_testkit::SimDisk;

    /// Bytes that rows of before have in a column that came later.
    const ADDED_BYTES: usize = 8000;

    fn schema(version: u16, kinds: &[ColumnKind]) -> Schema {
        let column = |kind: &ColumnKind| Column {
            kind: *kind,
            nullable: false,
        };
        Schema::new(version, kinds.iter().map(column).collect()).expect("a few columns")
    }

    /// A table with a number, to which a text was added.
    fn definition() -> TableDef {
        let number = ColumnKind::Fixed(4);
        let added = Origin::Constant(Some(vec![7; ADDED_BYTES]));
        TableDef {
            older: vec![OlderSchema {
                schema: schema(1, &[number]),
                origins: vec![Origin::Column(0), added],
            }],
            ..TableDef::new("t", schema(2, &[number, ColumnKind::Var]), Vec::new())
        }
    }

    #[test]
    fn rows_of_before_take_no_more_memory_than_the_log_they_stand_in() {
        let options = Options {
            geometry: Geometry::small(),
            cache_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
        let table = db.create_table(definition(), 1).expect("a new table");
        let (before, keys) = (schema(1, &[ColumnKind::Fixed(4)]), KeyChanges::new());
        let mut session = Session::open(&db, 1, 1);
        session.begin_statement().expect("begun");
        for number in 0..6000_u32 {
            let (mut row, mut payload) = (RowBuilder::new(&before), Vec::new());
            row.set(0, Some(&number.to_le_bytes())).expect("a number");
            row.finish(&mut payload).expect("a row");
            let version = NewVersion {
                payload: &payload,
                schema_version: 1,
                keys: &keys,
            };
            session.insert(&table, version).expect("inserted");
        }
        session.end_statement();
        session.commit().expect("committed");
        db.flush().expect("flushed");
        db.housekeeping_step();
        let segments = db.store.list(SegmentClass::Hot).expect("a list");
        let mut batch = CompactBatch::default();
        let is_finished = batch.read(&db, segments[0], db.txns.horizon());
        assert!(is_finished.expect("readable"), "{segments:?}");
        let kept: Vec<Kept> = batch.rows.iter().filter_map(|row| row.kept).collect();
        assert!(kept.len() > 1000, "{} rows", kept.len());
        let segment_bytes = db.store.geometry().hot_segment_bytes;
        let bytes = batch.payloads.len();
        assert!(bytes as u64 <= segment_bytes, "AL12: {bytes} of {segment_bytes}");
        let mut scratch = Vec::new();
        let payload = batch
            .payload(&table, kept[1000], &mut scratch)
            .expect("converted");
        let row = RowView::new(table.schema(), payload).expect("a row of now");
        assert_eq!(
            row.get(0).expect("a column"),
            Value::Bytes(&1000_u32.to_le_bytes())
        );
        let added = vec![7; ADDED_BYTES];
        assert!(row.get(1).expect("a column") == Value::Bytes(&added), "AL12");
    }
}
