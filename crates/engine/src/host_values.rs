//! Host values: large values of the row last read, to which the host's record points.
//!
//! Why it exists: an update of other columns leaves a large value where it is. The host copies records with their pointers, so a
//! value that a new record has at the address where it was read, with the same bytes, needs no second copy on disk. Nor does one that
//! a statement brings along and that the row had already, as a REPLACE by the same row does.
//! Rules: S28 who writes the row checks that the version beneath names what is shared.
//! Latches and I/O: reads blob segments.

use super::HostTable;
use crate::error::Result;
use crate::stored_values::stored;
use pbxt_base::RowId;
use pbxt_base::checksum::xxh3;
use pbxt_rows::{BlobRef, BlobSink, External, HostRecord, InlineArena};
use pbxt_segment::BlobStore;
use std::sync::Arc;

/// A large value of the row last read.
#[derive(Debug)]
pub(super) struct Met {
    pub external: External,
    /// Where the record has it, until the next row is read.
    pub address: usize,
}

/// Values of the row last read that the record buffer points to.
#[derive(Debug)]
pub(super) struct RowValues {
    arena: InlineArena,
    blobs: Arc<BlobStore>,
    row: RowId,
    met: Vec<Met>,
}

impl RowValues {
    pub(super) fn new(blobs: &Arc<BlobStore>) -> Self {
        Self {
            arena: InlineArena::default(),
            blobs: Arc::clone(blobs),
            row: RowId::new(0),
            met: Vec::new(),
        }
    }

    /// Forgets the values before those of `row` are read; 0 for none that could be updated.
    pub(super) fn begin(&mut self, row: RowId) {
        self.arena.clear();
        self.met.clear();
        self.row = row;
    }

    /// Those of `row` are read next, and the ones before are forgotten. Where records have no pointers, there is nothing to forget of
    /// most rows: what left a row is copied into the record.
    #[inline]
    pub(super) fn turn_to(&mut self, row: RowId, has_pointers: bool) {
        if has_pointers || !self.met.is_empty() {
            self.begin(row);
        } else {
            self.row = row;
        }
    }

    /// The large values of `row`, if it was the row last read.
    pub(super) fn of(&self, row: RowId) -> &[Met] {
        if self.row == row { &self.met } else { &[] }
    }

    /// The large values that `new` still has of `row` as it was last read, and `old` has it. The place alone proves nothing: a host
    /// may have changed a value where it stands, so its bytes are asked too. Nor does the hash alone: of a value at another place
    /// the bytes are compared with those of `old`.
    pub(super) fn unchanged(
        &self,
        host: &HostTable,
        row: RowId,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
    ) -> Result<Vec<External>> {
        if self.of(row).is_empty() {
            return Ok(Vec::new());
        }
        let before = host.codec.plan(old, host.limits)?;
        let large = host.codec.plan(new, host.limits)?;
        let is_there = |met: &&Met| {
            large.iter().any(|value| {
                value.column == met.external.column
                    && value.value.len() as u64 == met.external.blob.len
                    && (value.value.as_ptr().addr() == met.address || before.contains(value))
                    && xxh3(value.value) == met.external.blob.hash
            })
        };
        let same = self.of(row).iter().filter(is_there);
        Ok(same.map(|met| met.external).collect())
    }
}

impl BlobSink for RowValues {
    fn keep(&mut self, _column: usize, value: &[u8]) -> *const u8 {
        self.arena.copy(value)
    }

    fn load(&mut self, column: usize, blob: &BlobRef) -> pbxt_rows::Result<&[u8]> {
        let mut value = Vec::new();
        self.blobs.read(&stored(blob), &mut value)?;
        self.met.push(Met {
            external: External { column, blob: *blob },
            address: value.as_ptr().addr(),
        });
        Ok(self.arena.adopt(value))
    }
}

#[cfg(test)]
mod tests {
    use crate::cursor::Bind;
    use crate::database::{Database, Options};
    use crate::definition::TableDef;
    use crate::host::{HostCursor, HostTable};
    use crate::session::Session;
    use pbxt_rows::{HostColumn, HostKind, HostLayout, HostRecord, NoWeigher};
    use pbxt_segment::Geometry;
    use pbxt_testkit::SimDisk;
    use std::sync::Arc;

    /// Of a text without a pointer, which leaves its row.
    const VALUE_BYTES: u16 = 5000;
    /// A null byte, two of length, the text.
    const RECORD_BYTES: usize = 3 + VALUE_BYTES as usize;
    const ROWS: u8 = 20;

    fn layout() -> HostLayout {
        let column = HostColumn {
            offset: 1,
            kind: HostKind::Var2(VALUE_BYTES),
            null_offset: 0,
            null_bit: 0,
            stored: true,
        };
        HostLayout::new(RECORD_BYTES, vec![column]).expect("one column")
    }

    fn record(row: u8) -> Vec<u8> {
        let mut record = vec![row; RECORD_BYTES];
        record[0] = 0;
        record[1..3].copy_from_slice(&VALUE_BYTES.to_le_bytes());
        record
    }

    fn table(db: &Arc<Database>) -> Arc<HostTable> {
        let def = TableDef::new("t", layout().schema(1).expect("one column"), Vec::new());
        db.create_table(def, 1).expect("a new table");
        let host = HostTable::open(db, "t", layout(), &[], Arc::new(NoWeigher));
        Arc::new(host.expect("its own layout"))
    }

    #[test]
    fn a_scan_keeps_large_values_of_the_row_last_read_alone() {
        let options = Options {
            geometry: Geometry::small(),
            cache_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
        let mut cursor = HostCursor::new(&table(&db));
        let mut session = Session::open(&db, 1, 1);
        for row in 0..ROWS {
            let record = record(row);
            // SAFETY: a record of this layout, without pointers.
            let record = unsafe { HostRecord::new(&record) };
            cursor.insert(&mut session, record).expect("inserted");
        }
        session.commit().expect("committed");
        assert!(db.blobs().bytes_written() > u64::from(ROWS) * u64::from(VALUE_BYTES));
        cursor.bind(&mut session, Bind::default()).expect("bound");
        cursor.scan_start(&mut session).expect("begun");
        let mut found = vec![0; RECORD_BYTES];
        for row in 0..ROWS {
            assert!(
                cursor.scan_next(&mut session, &mut found).expect("readable"),
                "there is row {row}"
            );
            assert!(found == record(row), "row {row}");
            assert_eq!(cursor.values.met.len(), 1, "what earlier rows had is forgotten");
        }
    }
}
