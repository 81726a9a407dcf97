//! Index keys: the entries of stored rows in indexes that are built over them.
//!
//! Rules: AL18. X26 keys are those that the row's insert would have made. Where the core can make them it does; the others are made of
//! a record of the host (host_build).
//! Latches and I/O: none; large values are read from their segments.

use crate::bulk_chunk::KeyArena;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::host::StoredRecords;
use crate::keys::key_limit;
use crate::stored_values::StoredValues;
use crate::table::Table;
use pbxt_rows::PayloadKeyMaker;
use std::sync::Arc;

/// Who makes the keys of an index.
enum Maker {
    Core(PayloadKeyMaker),
    Host,
}

/// See the module.
pub(crate) struct RowKeys {
    db: Arc<Database>,
    table: Arc<Table>,
    /// With the positions of the indexes.
    makers: Vec<(usize, Maker)>,
    /// Of indexes that need one.
    records: Option<StoredRecords>,
    limit: usize,
    key: Vec<u8>,
    unpack: Vec<u8>,
}

impl RowKeys {
    /// For rows of the newest version of `table`, and the indexes at these positions.
    pub(crate) fn new(db: &Arc<Database>, table: &Arc<Table>, indexes: &[usize]) -> Result<Self> {
        let maker = |&number: &usize| -> Result<(usize, Maker)> {
            let index = &table.indexes[number];
            let maker = if index.derivable {
                Maker::Core(PayloadKeyMaker::new(&index.def.spec, table.schema())?)
            } else {
                Maker::Host
            };
            Ok((number, maker))
        };
        let makers = indexes.iter().map(maker).collect::<Result<Vec<_>>>()?;
        let of_host = makers.iter().filter(|(_, maker)| matches!(maker, Maker::Host));
        let of_host: Vec<usize> = of_host.map(|(number, _)| *number).collect();
        let records = if of_host.is_empty() {
            None
        } else {
            Some(StoredRecords::open(db, table, &of_host)?)
        };
        Ok(Self {
            db: Arc::clone(db),
            table: Arc::clone(table),
            makers,
            records,
            limit: key_limit(db.log().record_bytes_max()),
            key: Vec::new(),
            unpack: Vec::new(),
        })
    }

    /// Appends the entries of the row of this number, one to each arena.
    pub(crate) fn add(&mut self, row: u32, payload: &[u8], arenas: &mut [KeyArena]) -> Result<()> {
        self.each(payload, |at, key, claim, unpack| {
            arenas[at].push(row, key, claim, unpack);
        })
    }

    /// Calls `f` for each index, in order, with key, whether no other row may have it, and unpack information.
    pub(crate) fn each(
        &mut self,
        payload: &[u8],
        mut f: impl FnMut(usize, &[u8], bool, &[u8]),
    ) -> Result<()> {
        if let Some(records) = &mut self.records {
            records.read(payload)?;
        }
        let (key, unpack) = (&mut self.key, &mut self.unpack);
        for (at, (number, maker)) in self.makers.iter().enumerate() {
            key.clear();
            unpack.clear();
            let claim = match (maker, &self.records) {
                (Maker::Core(maker), _) => {
                    let mut values = StoredValues::new(self.db.blobs());
                    maker.key_from_payload(payload, &mut values, key)?;
                    maker.unpack_from_payload(payload, &mut values, unpack)?;
                    self.table.indexes[*number].def.unique && !maker.has_null(payload)?
                }
                (Maker::Host, Some(records)) => records.key(*number, key, unpack)?,
                (Maker::Host, None) => unreachable!("AL18: who needs records has opened them"),
            };
            if key.len() > self.limit {
                return Err(Error::KeyTooLarge {
                    table: self.table.name().to_string(),
                    index: self.table.indexes[*number].def.name.clone(),
                    bytes: key.len(),
                    limit: self.limit,
                });
            }
            f(at, key, claim, unpack);
        }
        Ok(())
    }
}
