//! User: one session of a storage life and its statements, through the record buffers that a host has.
//!
//! Why it exists: constraints, bulk loads and columns that ALTER added live in that way through the engine, and not in the lower one
//! that `client` takes.
//! Rules: a failed statement is undone before the next one. Nobody waits for a lock.

use crate::storage::rows::{Row, decode, encode, record};
use crate::storage::shape::Shape;
use pbxt::host::{HostCursor, HostTable};
use pbxt::{Bind, Database, FlushAtCommit, Isolation, Result, Seek, Session, SessionConfig, check_table};
use pbxt_base::RowId;
use pbxt_rows::ColumnSet;
use std::sync::Arc;

/// A table as it is now.
pub(super) struct Opened {
    pub host: Arc<HostTable>,
    pub shape: Shape,
}

impl Opened {
    /// The table of this name.
    pub(super) fn find(db: &Arc<Database>, name: &str) -> Result<Self> {
        let table = db.catalog.find(name)?;
        let shape = Shape::of(&table.def());
        let unknown = || pbxt::Error::Invalid(format!("table '{name}' has a definition that nobody made"));
        Ok(Self {
            host: Arc::new(HostTable::open_stored(db, &table)?),
            shape: shape.ok_or_else(unknown)?,
        })
    }

    fn buffer(&self) -> Vec<u8> {
        vec![0; self.shape.record_bytes()]
    }
}

/// See the module.
pub(super) struct User {
    pub session: Session,
    /// The last failed statement could not be undone, so the transaction has to go.
    pub is_lost: bool,
}

impl User {
    pub(super) fn new(db: &Arc<Database>, number: usize, isolation: Isolation) -> Self {
        let mut session = Session::open(db, number, number as u64);
        session.configure(SessionConfig {
            isolation,
            lock_wait_timeout_ms: 0,
            ..SessionConfig::default()
        });
        Self {
            session,
            is_lost: false,
        }
    }

    /// How durable its next commits are.
    pub(super) fn flush(&mut self, flush: FlushAtCommit) {
        self.session.configure(SessionConfig {
            flush,
            ..self.session.config()
        });
    }

    /// Runs one statement on one table.
    fn statement<T>(
        &mut self,
        table: &Opened,
        writes: bool,
        work: impl FnOnce(&mut Session, &mut HostCursor) -> Result<T>,
    ) -> Result<T> {
        self.session.begin_statement()?;
        let mut cursor = HostCursor::new(&table.host);
        let bind = Bind {
            for_write: writes,
            check_foreign_keys: writes,
            ..Bind::default()
        };
        let bound = cursor.bind(&mut self.session, bind);
        let done = bound.and_then(|()| work(&mut self.session, &mut cursor));
        match done {
            Ok(done) => {
                self.session.end_statement();
                Ok(done)
            }
            Err(error) => {
                self.is_lost = self.session.rollback_statement().is_err();
                Err(error)
            }
        }
    }

    /// Inserts rows in one statement, in a bracket of a bulk load if it is asked for.
    pub(super) fn insert(&mut self, table: &Opened, rows: &[Row], as_load: bool) -> Result<()> {
        self.statement(table, true, |session, cursor| {
            if as_load {
                cursor.bulk_begin(session, u64::MAX, false);
            }
            let insert = |row: &Row| cursor.insert(session, record(&encode(&table.shape, row)));
            let done = rows.iter().try_for_each(insert);
            if !as_load {
                return done;
            }
            let ended = cursor.bulk_end(session, done.is_err());
            done.and(ended)
        })
    }

    /// Puts a row in the place of the one with this id; false if there is none.
    pub(super) fn update(&mut self, table: &Opened, id: u32, new: &Row) -> Result<bool> {
        self.statement(table, true, |session, cursor| {
            let Some((row, old)) = find(session, cursor, table, id)? else {
                return Ok(false);
            };
            cursor.update(session, row, record(&old), record(&encode(&table.shape, new)))?;
            Ok(true)
        })
    }

    /// Deletes the rows with these ids; how many there were.
    pub(super) fn delete(&mut self, table: &Opened, ids: &[u32]) -> Result<usize> {
        self.statement(table, true, |session, cursor| {
            let mut deleted = 0;
            for id in ids {
                if let Some((row, _)) = find(session, cursor, table, *id)? {
                    cursor.delete(session, row)?;
                    deleted += 1;
                }
            }
            Ok(deleted)
        })
    }

    /// The row with this id.
    pub(super) fn row(&mut self, table: &Opened, id: u32) -> Result<Option<Row>> {
        self.statement(table, false, |session, cursor| {
            let found = find(session, cursor, table, id)?;
            Ok(found.map(|(_, record)| decode(&table.shape, &record)))
        })
    }

    /// All rows, by table scan.
    pub(super) fn scan(&mut self, table: &Opened) -> Result<Vec<Row>> {
        self.statement(table, false, |session, cursor| {
            let (mut rows, mut buffer) = (Vec::new(), table.buffer());
            cursor.scan_start(session)?;
            while cursor.scan_next(session, &mut buffer)? {
                rows.push(decode(&table.shape, &buffer));
            }
            Ok(rows)
        })
    }

    /// All rows in the order of an index.
    pub(super) fn index_scan(&mut self, table: &Opened, index: usize, forward: bool) -> Result<Vec<Row>> {
        self.statement(table, false, |session, cursor| {
            let (mut rows, mut buffer) = (Vec::new(), table.buffer());
            cursor.index_start(session, index)?;
            let mut is_there = cursor.index_edge(session, !forward, &mut buffer)?;
            while is_there {
                rows.push(decode(&table.shape, &buffer));
                is_there = cursor.index_move(session, forward, false, &mut buffer)?;
            }
            Ok(rows)
        })
    }

    /// How many entries an index shows, by itself wherever that is possible.
    pub(super) fn index_count(&mut self, table: &Opened, index: usize) -> Result<u64> {
        let column = table.shape.indexes[index].column;
        self.statement(table, false, |session, cursor| {
            let mut columns = ColumnSet::new();
            columns.insert(column);
            cursor.project(columns);
            let (mut count, mut buffer) = (0, table.buffer());
            cursor.index_start(session, index)?;
            let mut is_there = cursor.index_edge(session, false, &mut buffer)?;
            while is_there {
                count += 1;
                is_there = cursor.index_move(session, true, false, &mut buffer)?;
            }
            Ok(count)
        })
    }

    /// Number of rows, without reading them.
    pub(super) fn count(&mut self, table: &Opened) -> Result<u64> {
        self.statement(table, false, |session, _| session.count(table.host.table()))
    }

    /// What the engine's own check finds in the table.
    pub(super) fn check(&mut self, table: &Opened) -> Result<Vec<String>> {
        self.statement(table, false, |session, _| {
            let mut findings = Vec::new();
            let mut tell = |finding: &str| findings.push(finding.to_owned());
            check_table(session, table.host.table(), &mut tell, &mut |_, _| {})?;
            Ok(findings)
        })
    }
}

/// The row with this id and its record.
fn find(
    session: &mut Session,
    cursor: &mut HostCursor,
    table: &Opened,
    id: u32,
) -> Result<Option<(RowId, Vec<u8>)>> {
    let mut buffer = table.buffer();
    cursor.index_start(session, 0)?;
    let found = cursor.seek(session, 0, &id.to_le_bytes(), 1, Seek::Exact, &mut buffer)?;
    let row = cursor.row();
    cursor.scan_end();
    Ok(found.then_some((row, buffer)))
}
