//! PBXT, by its library: a table of two columns with a primary key.
//!
//! Why it exists: it is what is compared; and it shows what a program without a server has to do to keep rows: describe the
//! table, encode a row, make its key, and bracket statements.
//! Rules held: a statement is ended before its transaction; keys come from the engine's own key maker (rule X20).

use crate::pairs::{Feed, Key};
use crate::store::{About, Budget, Durability, Result, Session, Store, View, missing};
use pbxt::{
    Bind, Cursor, Database, FlushAtCommit, IndexDef, KeyChanges, NewVersion, Options, RowVersion, Seek,
    SessionConfig, Table, TableDef,
};
use pbxt_io::OsDisk;
use pbxt_rows::{
    Column, ColumnKind, KeyEncoding, KeyPart, KeySpec, Order, PayloadKeyMaker, RowBuilder, RowView, Schema,
    Value,
};
use std::path::Path;
use std::sync::Arc;

const TABLE: &str = "compare/pairs";
const KEY: usize = 0;
const VALUE: usize = 1;
/// The only index.
const PRIMARY: usize = 0;

struct Pbxt {
    db: Arc<Database>,
    table: Arc<Table>,
    schema: Schema,
    maker: PayloadKeyMaker,
    budget: Budget,
}

fn schema() -> Result<Schema> {
    let column = |kind| Column {
        kind,
        nullable: false,
    };
    let columns = vec![
        column(ColumnKind::Fixed(size_of::<Key>() as u16)),
        column(ColumnKind::Var),
    ];
    Ok(Schema::new(1, columns)?.with_orders(&[Order::Bytes, Order::Bytes])?)
}

fn definition(schema: Schema) -> Result<TableDef> {
    let key = KeyPart {
        column: KEY as u16,
        length: size_of::<Key>() as u32,
        prefix: false,
        nullable: false,
        descending: false,
        encoding: KeyEncoding::Raw,
    };
    let primary = IndexDef::primary(KeySpec::new(vec![key], false)?);
    Ok(TableDef::new(TABLE, schema, vec![primary]))
}

pub(super) fn open(directory: &Path, budget: Budget) -> Result<Box<dyn Store>> {
    let disk = Arc::new(OsDisk::open(directory, true)?);
    let db = Database::open(disk, &Options::for_cache(budget.bytes))?;
    let schema = schema()?;
    if db.table_id(TABLE).is_none() {
        db.create_table(definition(schema.clone())?, 1)?;
    }
    let table = db.catalog.find(TABLE)?;
    let maker = PayloadKeyMaker::new(&table.indexes[PRIMARY].def.spec, &schema)?;
    Ok(Box::new(Pbxt {
        db,
        table,
        schema,
        maker,
        budget,
    }))
}

impl Store for Pbxt {
    fn about(&self) -> About {
        About {
            version: "of this tree".to_owned(),
            memory: format!(
                "a cache of {} MiB; log and checkpoints sized by it",
                self.budget.bytes >> 20
            ),
            synced: "one log write and sync, shared by commits that come together",
            relaxed: "written to the system, not synced",
            load: "one transaction, in the engine's bulk bracket",
            compaction: "all that can be given back, by one call",
        }
    }

    fn session(&self, _sharers: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection {
            store: self,
            session: pbxt::Session::open(&self.db, 0, 0),
            cursor: Cursor::new(&self.table),
            row: RowMaker {
                builder: RowBuilder::new(&self.schema),
                maker: &self.maker,
                payload: Vec::new(),
                keys: KeyChanges::new(),
            },
        }))
    }

    fn compact(&mut self) -> Result<()> {
        if self.db.compact(|_| true)? {
            return Ok(());
        }
        Err("the compaction left something to be done".into())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

/// Makes stored rows of pairs, one after the other in the same memory.
struct RowMaker<'a> {
    builder: RowBuilder<'a>,
    maker: &'a PayloadKeyMaker,
    payload: Vec<u8>,
    keys: KeyChanges,
}

impl RowMaker<'_> {
    fn make(&mut self, key: &[u8], value: &[u8]) -> pbxt::Result<()> {
        self.builder.set(KEY, Some(key))?;
        self.builder.set(VALUE, Some(value))?;
        self.payload.clear();
        self.builder.finish(&mut self.payload)?;
        let mut put_key = |out: &mut Vec<u8>| self.maker.key_from_values(&[Some(key)], out);
        self.keys.clear();
        let change = self
            .keys
            .push::<pbxt_rows::Error>(PRIMARY, true, None, Some(&mut put_key), &mut |_| Ok(()));
        Ok(change?)
    }

    fn version(&self, schema_version: u16) -> NewVersion<'_> {
        NewVersion {
            payload: &self.payload,
            schema_version,
            keys: &self.keys,
        }
    }
}

struct Connection<'a> {
    store: &'a Pbxt,
    session: pbxt::Session,
    cursor: Cursor,
    row: RowMaker<'a>,
}

impl Connection<'_> {
    /// One transaction of one statement.
    fn transaction(
        &mut self,
        flush: FlushAtCommit,
        work: impl FnOnce(&mut Self) -> pbxt::Result<()>,
    ) -> Result<()> {
        if self.session.config().flush != flush {
            self.session.configure(SessionConfig {
                flush,
                ..SessionConfig::default()
            });
        }
        self.session.begin_statement()?;
        work(self)?;
        self.session.end_statement();
        Ok(self.session.commit()?)
    }

    /// Ready to look for keys in one statement.
    fn seekable(&mut self, for_write: bool) -> pbxt::Result<()> {
        let bind = Bind {
            for_write,
            ..Bind::default()
        };
        self.cursor.bind(&mut self.session, bind)?;
        self.cursor.index_start(&mut self.session, PRIMARY)
    }
}

impl Session for Connection<'_> {
    fn load(&mut self, feed: &mut Feed) -> Result<()> {
        let table = &self.store.table;
        let version = self.store.schema.version();
        self.transaction(FlushAtCommit::Durable, |this| {
            this.session.bulk_begin(table, feed.left(), false);
            while let Some((key, value)) = feed.next_pair() {
                this.row.make(key, value)?;
                this.session.insert_or_load(table, this.row.version(version))?;
            }
            this.session.bulk_end(table, false)
        })
    }

    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()> {
        let flush = match durability {
            Durability::Synced => FlushAtCommit::Durable,
            Durability::Relaxed => FlushAtCommit::Written,
        };
        let version = self.store.schema.version();
        self.transaction(flush, |this| {
            while let Some((key, value)) = feed.next_pair() {
                this.row.make(key, value)?;
                this.session
                    .insert(&this.store.table, this.row.version(version))?;
            }
            Ok(())
        })
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        let mut absent = None;
        self.transaction(FlushAtCommit::Durable, |this| {
            this.seekable(true)?;
            let mut image = Vec::new();
            for key in keys {
                image.clear();
                this.store.maker.key_from_values(&[Some(&key)], &mut image)?;
                let found = this
                    .cursor
                    .seek(&mut this.session, &image, Seek::Key, |_| Ok(()))?;
                if found {
                    this.session.delete(&this.store.table, this.cursor.row())?;
                } else {
                    absent = Some(key);
                }
            }
            this.cursor.let_go();
            Ok(())
        })?;
        absent.map_or(Ok(()), |key| Err(missing(&key)))
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        self.session.begin_statement()?;
        self.seekable(false)?;
        work(&mut Snapshot {
            store: self.store,
            session: &mut self.session,
            cursor: &mut self.cursor,
            image: Vec::new(),
        })?;
        self.cursor.let_go();
        self.session.end_statement();
        Ok(self.session.commit()?)
    }
}

struct Snapshot<'s> {
    store: &'s Pbxt,
    session: &'s mut pbxt::Session,
    cursor: &'s mut Cursor,
    image: Vec<u8>,
}

/// The bytes of a column; none if it holds something else.
fn bytes<'a>(view: &RowView<'a>, column: usize) -> pbxt::Result<&'a [u8]> {
    match view.get(column)? {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Null | Value::External(_) => Ok(&[]),
    }
}

impl Snapshot<'_> {
    fn seek(
        &mut self,
        key: &[u8],
        seek: Seek,
        show: impl FnMut(&RowVersion<'_>) -> pbxt::Result<()>,
    ) -> pbxt::Result<bool> {
        self.image.clear();
        self.store.maker.key_from_values(&[Some(key)], &mut self.image)?;
        self.cursor.seek(self.session, &self.image, seek, show)
    }
}

impl View for Snapshot<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let schema = &self.store.schema;
        let found = self.seek(key, Seek::Key, |version| {
            see(bytes(&RowView::new(schema, version.payload())?, VALUE)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let schema = &self.store.schema;
        let mut show = |version: &RowVersion<'_>| -> pbxt::Result<()> {
            let row = RowView::new(schema, version.payload())?;
            see(bytes(&row, KEY)?, bytes(&row, VALUE)?);
            Ok(())
        };
        self.cursor.expect(most);
        let mut found = most > 0 && self.seek(from, Seek::OrNext, &mut show)?;
        let mut seen = 1;
        while found && seen < most {
            found = self.cursor.index_move(self.session, true, false, &mut show)?;
            seen += 1;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.session.count(&self.store.table)?)
    }
}
