//! Index recovery: makes the index events of the log's tail again; older ones stand in runs.
//!
//! Why it exists: events are derived. Each record gives its own: of an insert the keys, made from its payload where the core
//! can and taken from its key images where only the host could; of an update its images, which name old and new keys of
//! every index that changes. So no record below the tail is ever read.
//! Rules: X13 every surviving record of the tail gives its events, with its LSN; those of committed transactions are settled,
//! those of prepared ones keep their transaction. X11 a delete has none. The host is never called. AL22 events of before an index was
//! built are none of it. X43 a key image without room for its index's suffix is damage.
//! Latches and I/O: trees take inserts from several threads.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::image::damage;
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
        let image = image.map_err(|fault| damage("whole key images", fault.to_string()))?;
        let Some(index) = table.index_by_id(image.index) else {
            continue;
        };
        if image.key.len() < index.suffix_bytes() {
            let expected = format!(
                "keys of at least {} bytes in index {}",
                index.suffix_bytes(),
                image.index
            );
            return Err(damage(expected, format!("one of {}", image.key.len())));
        }
        let sign = if image.sign == pbxt_txlog::Sign::Entry {
            Sign::Entry
        } else {
            Sign::Anti
        };
        index.insert(image.key, row.row(), txn, lsn, sign, image.unpack)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::IndexDef;
    use crate::{Error, TableDef};
    use pbxt_base::{Addr, CommitTs, RowId};
    use pbxt_rows::{Column, ColumnKind, KeyEncoding, KeyPart, KeySpec, Schema};
    use pbxt_txlog::{KeyImage, KeyImageBuf, RecordRef, RowRecord};

    /// A table whose second index is extended by a primary key of four bytes.
    fn table() -> Table {
        let column = Column {
            kind: ColumnKind::Fixed(4),
            nullable: false,
        };
        let part = |column| KeyPart {
            column,
            length: 4,
            prefix: false,
            nullable: false,
            descending: false,
            encoding: KeyEncoding::Uint,
        };
        let index = |number, parts: &[u16], extension| {
            let parts = parts.iter().copied().map(part).collect();
            let spec = KeySpec::new(parts, false).and_then(|spec| spec.with_extension(extension));
            IndexDef {
                id: IndexId::new(number),
                ..IndexDef::primary(spec.expect("an index"))
            }
        };
        let schema = Schema::new(1, vec![column, column]).expect("two columns");
        let indexes = vec![index(1, &[0], 0), index(2, &[1, 0], 1)];
        Table::new(TableDef::new("t", schema, indexes), CommitTs::new(0), 1, 0)
    }

    /// What recovery says of a row that was updated, with an image of so many bytes in this index.
    fn added(index: u32, sign: pbxt_txlog::Sign, key_bytes: usize) -> Result<()> {
        let mut images = KeyImageBuf::new();
        images.push(KeyImage {
            index: IndexId::new(index),
            sign,
            key: &vec![7; key_bytes],
            unpack: &[],
        });
        let record = RowRecord {
            kind: RowKind::Update,
            first: false,
            temporary: false,
            table: TableId::new(1),
            txn: TxnId::new(3),
            row: RowId::new(5),
            schema_version: 1,
            prev: Addr::BASE,
            foreign_prev: None,
            key_images: images.as_bytes(),
            payload: b"payload",
        };
        let mut bytes = vec![0; record.encoded_len()];
        record.encode_into(&mut bytes);
        let record = RecordRef::parse(&bytes).expect("just written");
        let row = record.as_row().expect("a row");
        add_images(&table(), &row, TxnId::new(0), Lsn::new(640))
    }

    #[test]
    fn a_key_image_without_room_for_its_suffix_is_damage() {
        for sign in [pbxt_txlog::Sign::Entry, pbxt_txlog::Sign::AntiEntry] {
            for bytes in 0..10 {
                let (whole, extended) = (added(1, sign, bytes), added(2, sign, bytes));
                assert!(whole.is_ok(), "{bytes} bytes: {whole:?}");
                let refused = matches!(&extended, Err(Error::Storage(error)) if error.to_string().contains("at least 4 bytes"));
                assert_eq!(refused, bytes < 4, "{bytes} bytes: {extended:?}");
                assert_eq!(extended.is_ok(), bytes >= 4, "{bytes} bytes: {extended:?}");
            }
        }
    }
}
