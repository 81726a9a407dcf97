//! Tables of numbers that refer to each other, used through record buffers as a host uses them.

#![allow(dead_code, reason = "each test file uses a part of this")]

use pbxt::host::{HostCursor, HostIndex, HostTable};
use pbxt::{
    Action, Bind, Creation, Database, Error, ForeignKey, HostRecordDef, IndexDef, KeyColumn, Options,
    RecordColumn, Result, Seek, Session, SessionConfig, TableDef,
};
use pbxt_base::{IndexId, RowId, TableId};
use pbxt_rows::{HostColumn, HostKind, HostLayout, HostRecord, KeyEncoding, KeyPart, KeySpec, NoWeigher};
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// A row: the values of its columns.
pub(crate) type Row = Vec<Option<u32>>;

/// How a table of numbers is to be: column 0 is the primary key and cannot be NULL.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) columns: usize,
    /// Columns of each further index, and whether it is unique.
    pub(crate) indexes: Vec<(Vec<usize>, bool)>,
    pub(crate) keys: Vec<ForeignKey>,
    /// Column defaults.
    pub(crate) defaults: Vec<Option<u32>>,
    /// Stands for the type of all columns.
    pub(crate) type_text: String,
}

impl Plan {
    pub(crate) fn new(name: &str, columns: usize) -> Self {
        Self {
            name: name.into(),
            columns,
            indexes: Vec::new(),
            keys: Vec::new(),
            defaults: vec![Some(0); columns],
            type_text: "int".into(),
        }
    }

    pub(crate) fn index(mut self, columns: &[usize]) -> Self {
        self.indexes.push((columns.to_vec(), false));
        self
    }

    pub(crate) fn unique(mut self, columns: &[usize]) -> Self {
        self.indexes.push((columns.to_vec(), true));
        self
    }

    pub(crate) fn default(mut self, column: usize, value: Option<u32>) -> Self {
        self.defaults[column] = value;
        self
    }

    /// Child columns refer to the parent's columns; an index on the child's columns comes with it.
    pub(crate) fn key(
        mut self,
        name: &str,
        columns: &[usize],
        parent: &str,
        parent_columns: &[usize],
        on_delete: Action,
        on_update: Action,
    ) -> Self {
        let pair = |(child, parent): (&usize, &usize)| KeyColumn {
            child: *child as u16,
            parent: format!("c{parent}"),
        };
        self.keys.push(ForeignKey {
            name: name.into(),
            parent: parent.into(),
            columns: columns.iter().zip(parent_columns).map(pair).collect(),
            on_delete,
            on_update,
        });
        self.index(columns)
    }

    pub(crate) fn layout(&self) -> HostLayout {
        let nulls = self.columns.div_ceil(8);
        let column = |number: usize| HostColumn {
            offset: (nulls + 4 * number) as u32,
            kind: HostKind::Fixed(4),
            null_offset: (number / 8) as u32,
            null_bit: if number == 0 { 0 } else { 1 << (number % 8) },
            stored: true,
        };
        HostLayout::new(nulls + 4 * self.columns, (0..self.columns).map(column).collect()).expect("a layout")
    }

    /// Behind the columns of an index that is not unique stands the primary key, if it is not among them (rule X40).
    fn spec(columns: &[usize], unique: bool) -> KeySpec {
        let part = |column: &usize| KeyPart {
            column: *column as u16,
            length: 4,
            prefix: false,
            nullable: *column != 0,
            descending: false,
            encoding: KeyEncoding::Uint,
        };
        let extension: &[usize] = if unique || columns.contains(&0) { &[] } else { &[0] };
        let parts = columns.iter().chain(extension).map(part).collect();
        let spec = KeySpec::new(parts, false).expect("parts");
        spec.with_extension(extension.len()).expect("a part of its own")
    }

    pub(crate) fn definition(&self) -> TableDef {
        let layout = self.layout();
        let index = |name: String, columns: &[usize], unique: bool| IndexDef {
            id: IndexId::new(0),
            primary: columns == [0] && unique,
            name,
            unique,
            spec: Self::spec(columns, unique),
        };
        let mut indexes = vec![index("primary".into(), &[0], true)];
        for (columns, unique) in &self.indexes {
            indexes.push(index(format!("i{columns:?}"), columns, *unique));
        }
        let record = |number: usize| RecordColumn {
            name: format!("c{number}"),
            type_text: self.type_text.clone(),
            place: layout.columns()[number],
            has_default: true,
        };
        TableDef {
            id: TableId::new(0),
            name: self.name.clone(),
            schema: layout.schema(1).expect("a schema"),
            older: Vec::new(),
            indexes,
            host_image: Vec::new(),
            host_version: Vec::new(),
            conflict_mode: pbxt::ConflictMode::Default,
            compression: pbxt::Compression::Default,
            encrypted: false,
            temporary: false,
            provisional: false,
            host_record: Some(HostRecordDef {
                columns: (0..self.columns).map(record).collect(),
                defaults: encode(&self.defaults),
            }),
            foreign_keys: self.keys.clone(),
            created: 0,
        }
    }

    pub(crate) fn create(&self, db: &Arc<Database>) -> Result<()> {
        db.create_table(self.definition(), 1).map(|_| ())
    }

    /// Creates it although a constraint may not be kept.
    pub(crate) fn create_unchecked(&self, db: &Arc<Database>) -> Result<()> {
        let creation = Creation {
            checks: false,
            ..Creation::default()
        };
        db.create_table_with(self.definition(), 1, creation).map(|_| ())
    }

    pub(crate) fn open(&self, db: &Arc<Database>) -> Result<Arc<HostTable>> {
        let indexes: Vec<HostIndex> = self
            .definition()
            .indexes
            .into_iter()
            .map(|index| HostIndex {
                contexts: vec![0; index.spec.parts().len()],
                spec: index.spec,
            })
            .collect();
        HostTable::open(db, &self.name, self.layout(), &indexes, Arc::new(NoWeigher)).map(Arc::new)
    }
}

/// The record of a row.
pub(crate) fn encode(row: &[Option<u32>]) -> Vec<u8> {
    let nulls = row.len().div_ceil(8);
    let mut record = vec![0; nulls + 4 * row.len()];
    for (number, value) in row.iter().enumerate() {
        match value {
            Some(value) => record[nulls + 4 * number..][..4].copy_from_slice(&value.to_le_bytes()),
            None => record[number / 8] |= 1 << (number % 8),
        }
    }
    record
}

/// The row in a record.
pub(crate) fn decode(record: &[u8], columns: usize) -> Row {
    let nulls = columns.div_ceil(8);
    let value = |number: usize| {
        let bytes = record[nulls + 4 * number..][..4].try_into().expect("four bytes");
        (record[number / 8] & 1 << (number % 8) == 0).then(|| u32::from_le_bytes(bytes))
    };
    (0..columns).map(value).collect()
}

/// A record without pointers.
pub(crate) fn record(bytes: &[u8]) -> HostRecord<'_> {
    // SAFETY: the tables here have no blob columns, so there is no pointer in the record.
    unsafe { HostRecord::new(bytes) }
}

pub(crate) fn options() -> Options {
    Options {
        geometry: Geometry::small(),
        cache_bytes: 4 << 20,
        background: false,
        ..Options::default()
    }
}

/// An open table and who uses it.
pub(crate) struct Opened {
    pub(crate) plan: Plan,
    pub(crate) host: Arc<HostTable>,
}

impl Opened {
    pub(crate) fn create(db: &Arc<Database>, plan: Plan) -> Self {
        plan.create(db)
            .unwrap_or_else(|error| panic!("{}: {error}", plan.name));
        Self::open(db, plan)
    }

    pub(crate) fn open(db: &Arc<Database>, plan: Plan) -> Self {
        let host = plan.open(db).expect("the table opens");
        Self { plan, host }
    }
}

/// A database with room for much log.
pub(crate) fn large_database() -> Arc<Database> {
    let options = Options {
        geometry: Geometry::default(),
        cache_bytes: 64 << 20,
        ..options()
    };
    Database::open(Arc::new(SimDisk::new()), &options).expect("the database opens")
}

/// A database on a simulated disk.
pub(crate) fn database() -> (Arc<Database>, SimDisk) {
    let disk = SimDisk::new();
    let db = Database::open(Arc::new(disk.clone()), &options()).expect("the database opens");
    (db, disk)
}

/// One connection, whose statements are ended or undone.
pub(crate) struct User {
    pub(crate) session: Session,
    pub(crate) checks: bool,
}

impl User {
    /// A connection that does not wait for locks.
    pub(crate) fn new(db: &Arc<Database>, number: usize) -> Self {
        Self::waiting(db, number, 0)
    }

    pub(crate) fn waiting(db: &Arc<Database>, number: usize, lock_wait_timeout_ms: u64) -> Self {
        let mut session = Session::open(db, number, number as u64);
        session.configure(SessionConfig {
            lock_wait_timeout_ms,
            ..SessionConfig::default()
        });
        Self {
            session,
            checks: true,
        }
    }

    pub(crate) fn with_level(mut self, isolation: pbxt::Isolation) -> Self {
        self.session.configure(SessionConfig {
            isolation,
            ..self.session.config()
        });
        self
    }

    pub(crate) fn with_mode(mut self, conflict_mode: pbxt::ConflictMode) -> Self {
        self.session.configure(SessionConfig {
            conflict_mode,
            ..self.session.config()
        });
        self
    }

    /// Runs one statement on one table.
    pub(crate) fn statement<T>(
        &mut self,
        table: &Opened,
        work: impl FnOnce(&mut Session, &mut HostCursor) -> Result<T>,
    ) -> Result<T> {
        self.session.begin_statement()?;
        let mut cursor = HostCursor::new(&table.host);
        let bind = Bind {
            for_write: true,
            check_foreign_keys: self.checks,
            ..Bind::default()
        };
        let done = cursor
            .bind(&mut self.session, bind)
            .and_then(|()| work(&mut self.session, &mut cursor));
        match done {
            Ok(done) => {
                self.session.end_statement();
                Ok(done)
            }
            Err(error) => {
                // The first error is the one that counts.
                let _ = self.session.rollback_statement();
                Err(error)
            }
        }
    }

    pub(crate) fn insert(&mut self, table: &Opened, row: &[Option<u32>]) -> Result<()> {
        self.statement(table, |session, cursor| {
            cursor.insert(session, record(&encode(row)))
        })
    }

    pub(crate) fn insert_all(&mut self, table: &Opened, rows: &[Row]) -> Result<()> {
        self.statement(table, |session, cursor| {
            rows.iter()
                .try_for_each(|row| cursor.insert(session, record(&encode(row))))
        })
    }

    /// Changes the row of this id; false if the statement finds none.
    pub(crate) fn update(&mut self, table: &Opened, id: u32, new: &[Option<u32>]) -> Result<bool> {
        self.statement(table, |session, cursor| match find(session, cursor, table, id)? {
            Some((row, old)) => {
                cursor.update(session, row, record(&old), record(&encode(new)))?;
                Ok(true)
            }
            None => Ok(false),
        })
    }

    /// Deletes the row of this id; false if the statement finds none.
    pub(crate) fn delete(&mut self, table: &Opened, id: u32) -> Result<bool> {
        self.statement(table, |session, cursor| match find(session, cursor, table, id)? {
            Some((row, _)) => cursor.delete(session, row).map(|()| true),
            None => Ok(false),
        })
    }

    /// Deletes all these, each by itself as DELETE IGNORE does: how many of them were refused.
    pub(crate) fn delete_ignoring(&mut self, table: &Opened, ids: &[u32]) -> Result<usize> {
        self.statement(table, |session, cursor| {
            let mut refused = 0;
            for id in ids {
                let Some((row, _)) = find(session, cursor, table, *id)? else {
                    continue;
                };
                match cursor.delete(session, row) {
                    Ok(()) => {}
                    Err(Error::RowIsReferenced { .. }) => refused += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok(refused)
        })
    }

    /// All rows, by a scan in the order of the primary key.
    pub(crate) fn rows(&mut self, table: &Opened) -> Vec<Row> {
        let columns = table.plan.columns;
        self.session.begin_statement().expect("a statement");
        let mut cursor = HostCursor::new(&table.host);
        cursor.bind(&mut self.session, Bind::default()).expect("bound");
        cursor.scan_start(&mut self.session).expect("a scan");
        let mut buffer = encode(&vec![Some(0); columns]);
        let mut rows = Vec::new();
        while cursor
            .scan_next(&mut self.session, &mut buffer)
            .expect("readable")
        {
            rows.push(decode(&buffer, columns));
        }
        drop(cursor);
        self.session.end_statement();
        rows.sort();
        rows
    }

    pub(crate) fn commit(&mut self) {
        self.session.commit().expect("committed");
    }

    pub(crate) fn rollback(&mut self) {
        self.session.rollback().expect("rolled back");
    }

    /// Nothing is wrong with the table's indexes and counts.
    pub(crate) fn check(&mut self, table: &Opened) {
        let mut findings = Vec::new();
        let found = table.host.check(
            &mut self.session,
            false,
            &mut |text| findings.push(text.to_owned()),
            &mut |_, _| {},
        );
        assert_eq!(found.expect("checkable"), 0, "{findings:?}");
        self.rollback();
    }
}

/// The row of this id and its record.
pub(crate) fn find(
    session: &mut Session,
    cursor: &mut HostCursor,
    table: &Opened,
    id: u32,
) -> Result<Option<(RowId, Vec<u8>)>> {
    let mut buffer = encode(&vec![Some(0); table.plan.columns]);
    cursor.index_start(session, 0)?;
    let found = cursor.seek(session, 0, &id.to_le_bytes(), 1, Seek::Exact, &mut buffer)?;
    let row = cursor.row();
    cursor.scan_end();
    Ok(found.then_some((row, buffer)))
}

/// A row of these values.
pub(crate) fn row(values: &[u32]) -> Row {
    values.iter().copied().map(Some).collect()
}

pub(crate) fn is_missing<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::NoReferencedRow { .. }))
}

pub(crate) fn is_referenced<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::RowIsReferenced { .. }))
}

pub(crate) fn is_busy<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::LockTimeout { .. }))
}
