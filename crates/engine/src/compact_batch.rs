//! Compact batch: what one step of the compactor has read of its segments.
//!
//! Why it exists: the rows of a segment lie in the order in which they were written; they are homed in row id order. One
//! pass collects them, with the bytes of those that are the newest of their row, so that no chunk is read twice. Each segment is a part of
//! its own, read and sorted by one thread (rule S60): what a step homes is walked over all parts at once (home_range.rs), never put together.
//! Memory: a removed row leaves 24 bytes here. A step has a million of them, and memory that is touched for the first time costs more than
//! reading the record did: so nothing is kept that can be asked for again, and lists are made as long as they are going to be.
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
use pbxt_txlog::{RowRef, SegmentScan};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Records between two looks at the epoch.
const RECORDS_PER_PIN: u64 = 256;
/// Rows of a list from which on it is made as long as the rest of the segment will need.
const ROWS_KNOWN: usize = 4096;

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
    pub row: RowId,
    pub lsn: Lsn,
    /// Its payload, if that was kept.
    pub kept: Option<KeptNo>,
    /// What it is, if the row's word named it and it was settled: nothing that comes later takes that from it.
    pub settled_head: Option<Settled>,
}

const _: () = assert!(size_of::<Candidate>() == 24);

/// Number of a payload that was kept, from 1.
pub(crate) type KeptNo = std::num::NonZeroU32;

/// A payload that was kept: place in `payloads`, and the version of its columns.
#[derive(Clone, Copy, Debug)]
struct Kept {
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
    /// Of segments that follow each other.
    pub parts: Vec<SegmentPart>,
}

/// What was read of one segment.
#[derive(Debug)]
pub(crate) struct SegmentPart {
    pub segment: SegmentId,
    pub keeper: Keeper,
    tables: Vec<TablePart>,
    /// Places in `tables`; none for tables that exist no more.
    by_id: HashMap<TableId, Option<usize>>,
    kept: Vec<Kept>,
    payloads: Vec<u8>,
    /// Large values that versions named, with table and row.
    large: Vec<(TableId, RowId, BlobRef)>,
}

/// The versions that a segment has of one table, in order of row id and LSN.
#[derive(Debug)]
struct TablePart {
    table: Arc<Table>,
    rows: Vec<Candidate>,
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
    /// Tables of which there are versions, in order of their ids.
    pub(crate) fn tables(&self) -> BTreeMap<TableId, &Arc<Table>> {
        let tables = self.parts.iter().flat_map(|part| &part.tables);
        tables.map(|part| (part.table.id, &part.table)).collect()
    }

    /// Versions of a table, by part.
    pub(crate) fn rows_of(&self, table: TableId) -> impl Iterator<Item = (usize, &[Candidate])> {
        let parts = self.parts.iter().enumerate();
        parts.filter_map(move |(number, part)| {
            let place = part.by_id.get(&table).copied().flatten()?;
            Some((number, part.tables[place].rows.as_slice()))
        })
    }

    /// Large values that versions named, in order of table, row, and place.
    pub(crate) fn take_large(&mut self) -> Vec<(TableId, RowId, BlobRef)> {
        let parts = self.parts.iter_mut();
        let mut large: Vec<_> = parts.flat_map(|part| std::mem::take(&mut part.large)).collect();
        large.sort_unstable_by_key(|(table, row, value)| (*table, *row, value.addr));
        large
    }

    /// A payload of the table that a part kept, with the columns of now (rule AL12); `scratch` is for one that has others.
    pub(crate) fn payload<'b>(
        &'b self,
        table: &Table,
        (part, kept): (usize, KeptNo),
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let part = &self.parts[part];
        let kept = part.kept[kept.get() as usize - 1];
        let start = kept.start as usize;
        let stored = &part.payloads[start..start + kept.bytes as usize];
        if kept.version == table.schema().version() {
            return Ok(stored);
        }
        scratch.clear();
        table.append_converted(kept.version, stored, scratch)?;
        Ok(scratch)
    }
}

impl SegmentPart {
    /// Reads a finished segment. None if it is still being written.
    pub(crate) fn read(db: &Database, segment: SegmentId, horizon: CommitTs) -> Result<Option<Self>> {
        let Some(scan) = db.log.scan_finished(segment)? else {
            return Ok(None);
        };
        let mut part = Self {
            segment,
            keeper: Keeper::default(),
            tables: Vec::new(),
            by_id: HashMap::new(),
            kept: Vec::new(),
            payloads: Vec::new(),
            large: Vec::new(),
        };
        part.read_all(db, scan, horizon)?;
        for found in &mut part.tables {
            // Stable, because it sees the stretches that rise: rows that were changed in their order are sorted by looking at them. Versions
            // of a row come in their order.
            found.rows.sort_by_key(|found| found.row);
        }
        Ok(Some(part))
    }

    fn read_all(&mut self, db: &Database, mut scan: SegmentScan, horizon: CommitTs) -> Result<()> {
        let mut records = 0_u64;
        let mut guard = crossbeam_epoch::pin();
        while let Some((lsn, record)) = scan.next_record()? {
            records += 1;
            if records.is_multiple_of(RECORDS_PER_PIN) {
                guard.repin_after(|| db.breathe());
            }
            let Some(row) = record.as_row() else { continue };
            let Some(place) = self.place_of(db, row.table()) else {
                continue;
            };
            let standing = standing_of(db, row.txn(), lsn, horizon, &guard);
            self.keeper.note(row.txn(), standing);
            let table = &self.tables[place].table;
            if matches!(standing, Standing::Settled | Standing::Dead) && has_large(row.payload()) {
                let values = values_named(table, &row)?.into_iter();
                self.large
                    .extend(values.map(|value| (row.table(), row.row(), value)));
            }
            let word = table.map.load_in(row.row(), &guard);
            if !word.is_absent() {
                let is_head = word.addr() == Addr::hot(lsn);
                let rest = db.store.geometry().hot_segment_bytes;
                self.add(place, (lsn, rest), &row, is_head.then_some(standing));
            }
        }
        Ok(())
    }

    /// `head` is how the version stands if the row's word names it.
    fn add(
        &mut self,
        place: usize,
        (lsn, segment_bytes): (Lsn, u64),
        row: &RowRef<'_>,
        head: Option<Standing>,
    ) {
        let is_kept = head.is_some() && !row.is_tombstone();
        let kept = is_kept.then(|| self.keep(row)).flatten();
        let what = if row.is_tombstone() {
            Settled::Tombstone
        } else {
            Settled::Row
        };
        let rows = &mut self.tables[place].rows;
        if rows.len() == rows.capacity() && rows.len() >= ROWS_KNOWN {
            // As many for each byte as there were until here, and a little more.
            let passed = (lsn.raw() % segment_bytes).max(1);
            let expected = rows.len() as u64 * (segment_bytes - passed) / passed;
            rows.reserve_exact((expected + expected / 16) as usize + ROWS_KNOWN);
        }
        rows.push(Candidate {
            row: row.row(),
            lsn,
            kept,
            settled_head: (head == Some(Standing::Settled)).then_some(what),
        });
    }

    /// Keeps a payload; its number.
    fn keep(&mut self, row: &RowRef<'_>) -> Option<KeptNo> {
        let (start, payload) = (self.payloads.len(), row.payload());
        self.payloads.extend_from_slice(payload);
        self.kept.push(Kept {
            start: start as u32,
            bytes: payload.len() as u32,
            version: row.schema_version(),
        });
        KeptNo::new(self.kept.len() as u32)
    }

    /// Place of the table in `tables`; none if it exists no more: its records mean nothing.
    fn place_of(&mut self, db: &Database, id: TableId) -> Option<usize> {
        let tables = &mut self.tables;
        *self.by_id.entry(id).or_insert_with(|| {
            let table = db.catalog.by_id(id).filter(|table| !table.is_dropped())?;
            let rows = Vec::new();
            tables.push(TablePart { table, rows });
            Some(tables.len() - 1)
        })
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
        let part = SegmentPart::read(&db, segments[0], db.txns.horizon());
        let part = part.expect("readable").expect("finished");
        let kept: Vec<KeptNo> = part.tables[0].rows.iter().filter_map(|row| row.kept).collect();
        assert!(kept.len() > 1000, "{} rows", kept.len());
        let segment_bytes = db.store.geometry().hot_segment_bytes;
        let bytes = part.payloads.len();
        assert!(bytes as u64 <= segment_bytes, "AL12: {bytes} of {segment_bytes}");
        let (batch, mut scratch) = (CompactBatch { parts: vec![part] }, Vec::new());
        let payload = batch
            .payload(&table, (0, kept[1000]), &mut scratch)
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
