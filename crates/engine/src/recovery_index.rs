//! Index recovery: makes the index events of the log's tail again; older ones stand in runs.
//!
//! Why it exists: events are derived. Each record gives its own: of an insert the keys, made from its payload where the core
//! can and taken from its key images where only the host could; of an update its images, which name old and new keys of
//! every index that changes. So no record below the tail is ever read.
//! Rules: X13 every surviving record of the tail gives its events, with its LSN; those of committed transactions are settled,
//! those of prepared ones keep their transaction. X11 a delete has none. The host is never called. AL22 events of before an index was
//! built are none of it.
//! Latches and I/O: trees take inserts from several threads.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::stored_values::StoredValues;
use crate::table::Table;
use pbxt_base::{IndexId, Lsn, TableId, TxnId};
use pbxt_index::Sign;
use pbxt_rows::PayloadKeyMaker;
use pbxt_segment::BlobStore;
use pbxt_txlog::{RowKind, RowRef};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Key makers of all tables, shared by the threads of pass B2.
pub(crate) struct IndexRebuilder {
    tables: HashMap<TableId, TableMakers>,
    /// Every head is committed: events of deleted rows mean nothing.
    heads_are_settled: bool,
}

struct TableMakers {
    table: Arc<Table>,
    /// By index position; `None` where only images help.
    makers: Vec<Option<DerivedKeys>>,
}

struct DerivedKeys {
    maker: PayloadKeyMaker,
    /// Records of before have no events in it.
    built_at: Lsn,
}

impl TableMakers {
    fn new(table: Arc<Table>, builds: &HashMap<IndexId, Lsn>) -> Result<Self> {
        let def = table.def();
        let make = |index: &crate::table::Index| -> Result<Option<DerivedKeys>> {
            Ok(if index.derivable {
                Some(DerivedKeys {
                    maker: PayloadKeyMaker::new(&index.def.spec, &def.schema)?,
                    built_at: builds.get(&index.def.id).copied().unwrap_or_default(),
                })
            } else {
                None
            })
        };
        let makers = table.indexes.iter().map(make).collect::<Result<Vec<_>>>()?;
        Ok(Self { table, makers })
    }
}

/// One thread's buffers.
pub(crate) struct RebuildWorker<'a> {
    rebuilder: &'a IndexRebuilder,
    /// The table of the last row: rows of one table mostly stand together in the log.
    last: Option<(TableId, Option<&'a TableMakers>)>,
    key: Vec<u8>,
    unpack: Vec<u8>,
    payload: Vec<u8>,
    values: StoredValues<'a>,
}

impl IndexRebuilder {
    /// `builds`: indexes that an ALTER of the tail built, and where.
    pub(crate) fn new(
        catalog: &Catalog,
        heads_are_settled: bool,
        builds: &HashMap<IndexId, Lsn>,
    ) -> Result<Self> {
        let tables = catalog
            .tables()
            .into_iter()
            .map(|table| Ok((table.id, TableMakers::new(table, builds)?)));
        Ok(Self {
            tables: tables.collect::<Result<_>>()?,
            heads_are_settled,
        })
    }

    pub(crate) fn worker<'a>(&'a self, blobs: &'a BlobStore) -> RebuildWorker<'a> {
        RebuildWorker {
            rebuilder: self,
            last: None,
            key: Vec::new(),
            unpack: Vec::new(),
            payload: Vec::new(),
            values: StoredValues::new(blobs),
        }
    }
}

impl RebuildWorker<'_> {
    /// Adds the events of one surviving version (rule X13); `txn` is 0 if it is committed.
    pub(crate) fn add(&mut self, row: &RowRef<'_>, txn: TxnId, lsn: Lsn) -> Result<()> {
        if self.last.is_none_or(|(last, _)| last != row.table()) {
            self.last = Some((row.table(), self.rebuilder.tables.get(&row.table())));
        }
        let Some((_, Some(makers))) = self.last else {
            return Ok(());
        };
        let head = makers.table.map.load(row.row());
        if head.is_tombstone() && self.rebuilder.heads_are_settled {
            return Ok(());
        }
        if row.kind() == RowKind::Insert {
            if !head.is_tombstone() {
                makers
                    .table
                    .data_bytes
                    .fetch_add(row.payload().len() as u64, Ordering::Relaxed);
            }
            self.add_derived(makers, row, txn, lsn)?;
        }
        add_images(&makers.table, row, txn, lsn)
    }

    fn add_derived(&mut self, makers: &TableMakers, row: &RowRef<'_>, txn: TxnId, lsn: Lsn) -> Result<()> {
        if makers.makers.iter().all(Option::is_none) {
            return Ok(());
        }
        // Keys of columns that an index has are the same in every version (rule AL10).
        let payload = makers.table.payload_of(row, &mut self.payload)?;
        for (index, maker) in makers.table.indexes.iter().zip(&makers.makers) {
            let Some(DerivedKeys { maker, built_at }) = maker else {
                continue;
            };
            if lsn < *built_at {
                continue;
            }
            self.key.clear();
            self.unpack.clear();
            maker.key_from_payload(payload, &mut self.values, &mut self.key)?;
            maker.unpack_from_payload(payload, &mut self.values, &mut self.unpack)?;
            index.insert(&self.key, row.row(), txn, lsn, Sign::Entry, &self.unpack)?;
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
        index.insert(image.key, row.row(), txn, lsn, sign, image.unpack)?;
    }
    Ok(())
}
