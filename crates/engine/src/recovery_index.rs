//! Index recovery: makes the entries of all indexes again from the log.
//!
//! Why it exists: indexes are derived; a key is made from the row's payload where the core can, and taken from the key
//! images of the row records where only the host could.
//! Rules: X13 of a settled row the head gives the derivable keys, and every surviving image is an event of its own; the
//! stamp of a settled event keeps only its LSN. The host is never called.
//! Latches and I/O: trees take inserts from several threads.

use crate::catalog::Catalog;
use crate::database::Database;
use crate::error::Result;
use crate::stored_values::StoredValues;
use crate::table::Table;
use crate::view::read_version;
use pbxt_base::{Addr, Lsn, RowId, TableId, TxnId};
use pbxt_index::Sign;
use pbxt_rows::PayloadKeyMaker;
use pbxt_segment::BlobStore;
use pbxt_txlog::RowRef;
use std::collections::HashMap;
use std::sync::Arc;

/// Key makers of all tables, shared by the threads of pass B2.
pub(crate) struct IndexRebuilder {
    tables: HashMap<TableId, TableMakers>,
    /// Every tombstone at a head is settled.
    no_prepared: bool,
}

struct TableMakers {
    table: Arc<Table>,
    /// By index position; `None` where only images help.
    makers: Vec<Option<PayloadKeyMaker>>,
    has_images: bool,
}

impl TableMakers {
    fn new(table: Arc<Table>) -> Result<Self> {
        let def = table.def();
        let make = |index: &crate::table::Index| -> Result<Option<PayloadKeyMaker>> {
            Ok(if index.derivable {
                Some(PayloadKeyMaker::new(&index.def.spec, &def.schema)?)
            } else {
                None
            })
        };
        let makers = table.indexes.iter().map(make).collect::<Result<Vec<_>>>()?;
        let has_images = makers.iter().any(Option::is_none);
        Ok(Self {
            table,
            makers,
            has_images,
        })
    }
}

/// One thread's buffers.
pub(crate) struct RebuildWorker<'a> {
    rebuilder: &'a IndexRebuilder,
    /// The table of the last row: rows of one table mostly stand together in the log.
    last: Option<(TableId, Option<&'a TableMakers>)>,
    key: Vec<u8>,
    unpack: Vec<u8>,
    values: StoredValues<'a>,
}

impl IndexRebuilder {
    pub(crate) fn new(catalog: &Catalog, no_prepared: bool) -> Result<Self> {
        let tables = catalog
            .tables()
            .into_iter()
            .map(|table| Ok((table.id, TableMakers::new(table)?)));
        Ok(Self {
            tables: tables.collect::<Result<_>>()?,
            no_prepared,
        })
    }

    pub(crate) fn worker<'a>(&'a self, blobs: &'a BlobStore) -> RebuildWorker<'a> {
        RebuildWorker {
            rebuilder: self,
            last: None,
            key: Vec::new(),
            unpack: Vec::new(),
            values: StoredValues::new(blobs),
        }
    }
}

impl RebuildWorker<'_> {
    /// Adds the events of one surviving version of a committed transaction (rule X13).
    pub(crate) fn add(&mut self, row: &RowRef<'_>, lsn: Lsn) -> Result<()> {
        if self.last.is_none_or(|(last, _)| last != row.table()) {
            self.last = Some((row.table(), self.rebuilder.tables.get(&row.table())));
        }
        let Some((_, Some(makers))) = self.last else {
            return Ok(());
        };
        let table = &makers.table;
        let head = table.map.load(row.row());
        if head.is_absent() {
            return Ok(());
        }
        let is_head = head.addr() == Addr::hot(lsn);
        if is_head && !row.is_tombstone() {
            table
                .data_bytes
                .fetch_add(row.payload().len() as u64, std::sync::atomic::Ordering::Relaxed);
            let payload = row.payload();
            self.add_derived(makers, row.row(), lsn, payload)?;
        }
        // A tombstone that is only prepared leaves the row alive for everybody else.
        if makers.has_images && !(head.is_tombstone() && self.rebuilder.no_prepared) {
            add_images(table, row, TxnId::new(0), lsn)?;
        }
        Ok(())
    }

    fn add_derived(&mut self, makers: &TableMakers, row: RowId, lsn: Lsn, payload: &[u8]) -> Result<()> {
        for (index, maker) in makers.table.indexes.iter().zip(&makers.makers) {
            let Some(maker) = maker else { continue };
            self.key.clear();
            self.unpack.clear();
            maker.key_from_payload(payload, &mut self.values, &mut self.key)?;
            maker.unpack_from_payload(payload, &mut self.values, &mut self.unpack)?;
            index
                .tree
                .insert(&self.key, row, TxnId::new(0), lsn, Sign::Entry, &self.unpack)?;
        }
        Ok(())
    }
}

fn add_images(table: &Table, row: &RowRef<'_>, txn: TxnId, lsn: Lsn) -> Result<()> {
    for image in row.key_images() {
        let image = image.map_err(|fault| {
            crate::error::Error::Invalid(format!("a key image in the log is damaged: {fault}"))
        })?;
        let Some(index) = table.index_by_id(image.index) else {
            continue;
        };
        let sign = if image.sign == pbxt_txlog::Sign::Entry {
            Sign::Entry
        } else {
            Sign::Anti
        };
        index
            .tree
            .insert(image.key, row.row(), txn, lsn, sign, image.unpack)?;
    }
    Ok(())
}

/// Events of a row whose head belongs to a prepared transaction: what lies beneath is settled, what the transaction
/// wrote carries its stamp.
pub(crate) fn rebuild_prepared_row(db: &Database, table: &Arc<Table>, row: RowId, txn: TxnId) -> Result<()> {
    let makers = TableMakers::new(Arc::clone(table))?;
    let guard = crossbeam_epoch::pin();
    let mut addr = table.map.load(row).addr();
    let mut newest_own: Option<(RowRef<'_>, Lsn)> = None;
    let mut settled: Option<(RowRef<'_>, Lsn)> = None;
    while !addr.is_none() {
        let version = read_version(db, addr, &guard)?;
        if version.txn() != txn {
            settled = Some((version, addr.lsn()));
            break;
        }
        if !db.txns.is_void(txn, addr.lsn(), &guard) {
            add_images(table, &version, txn, addr.lsn())?;
            newest_own = newest_own.or(Some((version, addr.lsn())));
        }
        addr = version.prev();
    }
    let mut key = Vec::new();
    let mut values = StoredValues::new(db.blobs());
    for (index, maker) in table.indexes.iter().zip(&makers.makers) {
        let Some(maker) = maker else { continue };
        let mut old_key = None;
        if let Some((version, lsn)) = settled.filter(|(version, _)| !version.is_tombstone()) {
            key.clear();
            maker.key_from_payload(version.payload(), &mut values, &mut key)?;
            index
                .tree
                .insert(&key, row, TxnId::new(0), lsn, Sign::Entry, &[])?;
            old_key = Some(key.clone());
        }
        if let Some((version, lsn)) = newest_own.filter(|(version, _)| !version.is_tombstone()) {
            key.clear();
            maker.key_from_payload(version.payload(), &mut values, &mut key)?;
            if old_key.as_ref() != Some(&key) {
                index.tree.insert(&key, row, txn, lsn, Sign::Entry, &[])?;
                if let Some(old_key) = old_key {
                    index.tree.insert(&old_key, row, txn, lsn, Sign::Anti, &[])?;
                }
            }
        }
    }
    Ok(())
}
