//! Table: the one table shape that simulations play with, and its rows.
//!
//! Why it exists: it has one of everything that goes a way of its own through the engine: a primary key, a secondary
//! index of two parts with a descending one, a unique index that lets NULL repeat, an index whose keys only the host can
//! make (their images travel in the log), and a value that may move to the blob store.
//! Rules held: D2 a large value is in the blob store before the row that names it is written.

use pbxt::{Database, IndexDef, KeyChanges, Result, Session, Table, TableDef};
use pbxt_base::{IndexId, TableId};
use pbxt_rows::{
    BlobRef, Column, ColumnKind, KeyEncoding, KeyPart, KeySpec, Order, PayloadKeyMaker, RowBuilder, RowView,
    Schema, Value, WeightScheme,
};
use std::sync::Arc;

/// Values of this length and more go to the blob store.
pub const LARGE: usize = 700;
/// Number of indexes of a table that is not lean.
pub const INDEXES: usize = 4;
/// Position of the unique index on `tag`.
pub const TAG_INDEX: usize = 2;
/// Position of the index whose keys only the host makes.
pub const NAME_INDEX: usize = 3;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayRow {
    /// Primary key.
    pub id: u32,
    /// Indexed with the id, descending.
    pub group: Option<u32>,
    /// Unique where not NULL.
    pub tag: Option<u32>,
    /// Ordered by the host.
    pub name: Vec<u8>,
    /// Any length.
    pub memo: Option<Arc<[u8]>>,
}

impl PlayRow {
    /// A row without optional values.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            group: None,
            tag: None,
            name: format!("name {id}").into_bytes(),
            memo: None,
        }
    }

    /// True if the memo goes to the blob store.
    pub fn has_blob(&self) -> bool {
        self.memo.as_ref().is_some_and(|memo| memo.len() >= LARGE)
    }

    /// The row in few words.
    pub fn brief(&self) -> String {
        let Self {
            id, group, tag, name, ..
        } = self;
        let memo = self
            .memo
            .as_ref()
            .map_or("-".into(), |memo| format!("{} bytes", memo.len()));
        let number = |value: &Option<u32>| value.map_or("-".into(), |value| value.to_string());
        let name = String::from_utf8_lossy(name);
        format!("({id} {} {} '{name}' {memo})", number(group), number(tag))
    }

    /// The keys of the unique indexes: index position and value.
    pub fn unique_keys(&self) -> impl Iterator<Item = (usize, u32)> {
        [(0, Some(self.id)), (TAG_INDEX, self.tag)]
            .into_iter()
            .filter_map(|(index, key)| key.map(|key| (index, key)))
    }
}

/// The table, with everything needed to encode its rows.
#[derive(Clone, Debug)]
pub struct PlayTable {
    /// The table of the engine.
    pub table: Arc<Table>,
    db: Arc<Database>,
    schema: Schema,
    makers: Vec<PayloadKeyMaker>,
}

fn part(column: u16, nullable: bool, descending: bool) -> KeyPart {
    KeyPart {
        column,
        length: 4,
        prefix: false,
        nullable,
        descending,
        encoding: KeyEncoding::Uint,
    }
}

fn name_part() -> KeyPart {
    KeyPart {
        column: 3,
        length: 255,
        prefix: false,
        nullable: false,
        descending: false,
        encoding: KeyEncoding::Host {
            collation: 1,
            scheme: WeightScheme::NoPad,
        },
    }
}

fn schema() -> Result<Schema> {
    let column = |kind, nullable| Column { kind, nullable };
    let orders = [
        Order::Uint,
        Order::Uint,
        Order::Uint,
        Order::Unknown,
        Order::Bytes,
    ];
    let schema = Schema::new(
        1,
        vec![
            column(ColumnKind::Fixed(4), false),
            column(ColumnKind::Fixed(4), true),
            column(ColumnKind::Fixed(4), true),
            column(ColumnKind::Var, false),
            column(ColumnKind::Var, true),
        ],
    )?;
    Ok(schema.with_orders(&orders)?)
}

/// The definition under a name.
pub fn definition(name: &str) -> Result<TableDef> {
    let index = |name: &str, unique: bool, parts: Vec<KeyPart>| -> Result<IndexDef> {
        Ok(IndexDef {
            id: IndexId::new(0),
            name: name.to_owned(),
            unique,
            primary: name == "primary",
            spec: KeySpec::new(parts, false)?,
        })
    };
    // Its last part is the primary key (rule X40), so its runs have suffixes.
    let extended = |index: IndexDef| -> Result<IndexDef> {
        Ok(IndexDef {
            spec: index.spec.with_extension(1)?,
            ..index
        })
    };
    Ok(TableDef {
        id: TableId::new(0),
        name: name.to_owned(),
        schema: schema()?,
        older: Vec::new(),
        indexes: vec![
            index("primary", true, vec![part(0, false, false)])?,
            extended(index(
                "by_group",
                false,
                vec![part(1, true, true), part(0, false, false)],
            )?)?,
            index("by_tag", true, vec![part(2, true, false)])?,
            index("by_name", false, vec![name_part()])?,
        ],
        host_image: Vec::new(),
        host_version: Vec::new(),
        conflict_mode: pbxt::ConflictMode::Default,
        compression: pbxt::Compression::Default,
        encrypted: false,
        temporary: false,
        provisional: false,
        host_record: None,
        foreign_keys: Vec::new(),
        created: 0,
    })
}

impl PlayTable {
    /// Creates the table.
    pub fn create(db: &Arc<Database>, name: &str) -> Result<Self> {
        db.create_table(definition(name)?, 1)?;
        Self::open(db, name)
    }

    /// Creates a *lean* table: one without the index whose keys the core cannot make.
    pub fn create_lean(db: &Arc<Database>, name: &str) -> Result<Self> {
        let mut definition = definition(name)?;
        definition.indexes.truncate(NAME_INDEX);
        db.create_table(definition, 1)?;
        Self::open(db, name)
    }

    /// Opens the table that has this name now.
    pub fn open(db: &Arc<Database>, name: &str) -> Result<Self> {
        let table = db.catalog.find(name)?;
        let schema = schema()?;
        let makers = table
            .indexes
            .iter()
            .take(NAME_INDEX)
            .map(|index| Ok(PayloadKeyMaker::new(&index.def.spec, &schema)?))
            .collect::<Result<_>>()?;
        Ok(Self {
            table,
            db: Arc::clone(db),
            schema,
            makers,
        })
    }

    /// Id of the generation.
    pub fn id(&self) -> TableId {
        self.table.id
    }

    /// Number of its indexes.
    pub fn indexes(&self) -> usize {
        self.table.indexes.len()
    }

    /// Version of the stored columns.
    pub fn schema_version(&self) -> u16 {
        self.schema.version()
    }

    /// The key of a row in an index.
    pub fn key(&self, index: usize, row: &PlayRow) -> Vec<u8> {
        match index {
            0 => self.prefix(0, &[Some(row.id)]),
            1 => self.prefix(1, &[row.group, Some(row.id)]),
            TAG_INDEX => self.prefix(TAG_INDEX, &[row.tag]),
            _ => name_key(&row.name),
        }
    }

    /// The key prefix of the first values of an index of numbers.
    pub fn prefix(&self, index: usize, values: &[Option<u32>]) -> Vec<u8> {
        let bytes: Vec<Option<[u8; 4]>> = values.iter().map(|value| value.map(u32::to_le_bytes)).collect();
        let parts: Vec<Option<&[u8]>> = bytes
            .iter()
            .map(|value| value.as_ref().map(<[u8; 4]>::as_slice))
            .collect();
        let mut key = Vec::new();
        self.makers[index]
            .key_from_values(&parts, &mut key)
            .expect("X20: numbers of four bytes fit the parts of this table");
        key
    }

    /// The stored form of a row for a transaction that is going to write it; a large memo goes to the blob store.
    pub fn encode_for(&self, session: &mut Session, row: &PlayRow) -> Result<Vec<u8>> {
        self.encode_with(row, |memo| session.keep_value(memo))
    }

    /// The stored form of a row that nobody may write; a large memo is kept until the next opening.
    pub fn encode(&self, row: &PlayRow) -> Result<Vec<u8>> {
        self.encode_with(row, |memo| Ok(self.db.blobs().append(memo)?))
    }

    fn encode_with(
        &self,
        row: &PlayRow,
        mut keep: impl FnMut(&[u8]) -> Result<pbxt_segment::BlobRef>,
    ) -> Result<Vec<u8>> {
        let mut builder = RowBuilder::new(&self.schema);
        builder.set(0, Some(&row.id.to_le_bytes()))?;
        builder.set(
            1,
            row.group.map(u32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice),
        )?;
        builder.set(2, row.tag.map(u32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice))?;
        builder.set(3, Some(&row.name))?;
        match &row.memo {
            Some(memo) if row.has_blob() => {
                let blob = keep(memo)?;
                builder.set_external(
                    4,
                    BlobRef {
                        addr: blob.addr,
                        len: blob.len,
                        hash: blob.hash,
                    },
                )?;
            }
            memo => builder.set(4, memo.as_deref())?,
        }
        let mut payload = Vec::new();
        builder.finish(&mut payload)?;
        Ok(payload)
    }

    /// Reads a stored row back.
    pub fn decode(&self, payload: &[u8]) -> Result<PlayRow> {
        let view = RowView::new(&self.schema, payload)?;
        let number = |column| -> Result<Option<u32>> {
            Ok(match view.get(column)? {
                Value::Bytes(bytes) => bytes.try_into().ok().map(u32::from_le_bytes),
                _ => None,
            })
        };
        let bytes = |column| -> Result<Option<Vec<u8>>> {
            Ok(match view.get(column)? {
                Value::Bytes(bytes) => Some(bytes.to_vec()),
                Value::External(blob) => {
                    let stored = pbxt_segment::BlobRef {
                        addr: blob.addr,
                        len: blob.len,
                        hash: blob.hash,
                    };
                    let mut value = Vec::new();
                    self.db.blobs().read(&stored, &mut value)?;
                    Some(value)
                }
                Value::Null => None,
            })
        };
        Ok(PlayRow {
            id: number(0)?.unwrap_or_default(),
            group: number(1)?,
            tag: number(2)?,
            name: bytes(3)?.unwrap_or_default(),
            memo: bytes(4)?.map(Arc::from),
        })
    }

    /// The index events of an insert (`old` is none) or update.
    pub fn key_changes(&self, old: Option<&PlayRow>, new: &PlayRow) -> Result<KeyChanges> {
        let mut keys = KeyChanges::new();
        for index in 0..self.indexes() {
            let before = old.map(|old| self.key(index, old));
            let after = self.key(index, new);
            if before.as_ref() == Some(&after) {
                continue;
            }
            let claim = index == 0 || index == TAG_INDEX && new.tag.is_some();
            let mut put_before = |out: &mut Vec<u8>| -> Result<()> {
                out.extend_from_slice(before.as_deref().unwrap_or_default());
                Ok(())
            };
            keys.push(
                index,
                claim,
                before.is_some().then_some(&mut put_before),
                Some(&mut |out| {
                    out.extend_from_slice(&after);
                    Ok(())
                }),
                &mut |_| Ok(()),
            )?;
        }
        Ok(keys)
    }
}

/// Weights of a name are its bytes; the zero ends it, so that no key is a prefix of another one.
fn name_key(name: &[u8]) -> Vec<u8> {
    let mut key = name.to_vec();
    key.push(0);
    key
}
