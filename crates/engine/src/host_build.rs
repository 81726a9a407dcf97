//! Host build: stored rows as records of the host, for the keys of an index that is built over them.
//!
//! Why it exists: keys by collations are made of a record by the host's weights. Rows that are there have no record any more; the
//! catalog knows its layout, so one is filled again with the columns that the keys are made of.
//! Rules: AL18. X26 the keys are those that the host's own record would give.
//! Latches and I/O: none; large values are read from their segments.

use super::HostTable;
use super::values::RowValues;
use crate::database::Database;
use crate::error::Result;
use crate::table::Table;
use pbxt_base::RowId;
use pbxt_rows::{ColumnSet, HostRecord, KeySpec, Projection};
use std::sync::Arc;

/// See the module.
pub(crate) struct StoredRecords {
    host: HostTable,
    /// The columns of the indexes.
    projection: Projection,
    record: Vec<u8>,
    values: RowValues,
}

impl StoredRecords {
    /// Records of a table for the keys of these indexes.
    pub(crate) fn open(db: &Arc<Database>, table: &Arc<Table>, indexes: &[usize]) -> Result<Self> {
        let host = HostTable::open_stored(db, table)?;
        let specs = indexes.iter().map(|&number| &table.indexes[number].def.spec);
        let parts = specs.flat_map(KeySpec::parts);
        let columns: ColumnSet = parts.map(|part| usize::from(part.column)).collect();
        Ok(Self {
            projection: host.codec.projection(columns),
            record: vec![0; host.layout().record_length()],
            values: RowValues::new(db.blobs()),
            host,
        })
    }

    /// Takes the next row.
    pub(crate) fn read(&mut self, payload: &[u8]) -> Result<()> {
        self.values.begin(RowId::new(0));
        let codec = &self.host.codec;
        codec.decode(payload, &self.projection, &mut self.record, &mut self.values)?;
        Ok(())
    }

    /// Appends key and unpack information of the row in one of the indexes; true if no other row may have the key.
    pub(crate) fn key(&self, index: usize, key: &mut Vec<u8>, unpack: &mut Vec<u8>) -> Result<bool> {
        // SAFETY: a record of this layout, filled by its codec; what columns of the projection point to is in `values` until the
        // next row is read, and all other columns are zeros.
        let record = unsafe { HostRecord::new(&self.record) };
        let maker = self.host.maker(index)?;
        self.host.key(index, maker, record, key)?;
        maker.unpack_from_record(record, unpack)?;
        Ok(self.host.table.indexes[index].def.unique && !maker.has_null(record)?)
    }

    /// Fills a record of the host with a whole row. What it points to lives as long as this value, or until the next row.
    pub(crate) fn show(&mut self, payload: &[u8], record: &mut [u8]) -> Result<()> {
        self.values.begin(RowId::new(0));
        let codec = &self.host.codec;
        codec.decode(payload, codec.all_columns(), record, &mut self.values)?;
        Ok(())
    }
}
