//! Client: one session and the statements it makes, each with its own begin, end and undo.
//!
//! Why it exists: hosts bracket statements; tests that forget the bracket test another engine.
//! Rules: a failed statement is rolled back before the next one; a deadlock has rolled the transaction back already.

use crate::table::{PlayRow, PlayTable};
use pbxt::{Bind, Cursor, Database, NewVersion, Result, Seek, Session, SessionConfig};
use pbxt_base::RowId;
use std::sync::Arc;

/// One connection.
#[derive(Debug)]
pub struct Client {
    /// Its session.
    pub session: Session,
}

/// Rows with their ids, in the order in which they were read.
pub type Read = Vec<(RowId, PlayRow)>;

impl Client {
    /// A session that does not wait for locks.
    pub fn new(db: &Arc<Database>, number: usize) -> Self {
        let mut session = Session::open(db, number, number as u64);
        session.configure(SessionConfig {
            lock_wait_timeout_ms: 0,
            ..SessionConfig::default()
        });
        Self { session }
    }

    /// Runs one statement.
    pub fn statement<T>(&mut self, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        self.session.begin_statement()?;
        match work(&mut self.session) {
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

    /// Inserts a row.
    pub fn insert(&mut self, table: &PlayTable, row: &PlayRow) -> Result<RowId> {
        self.statement(|session| insert(session, table, row))
    }

    /// Inserts a row, or locks the one that has a key of it.
    pub fn insert_or_hold(&mut self, table: &PlayTable, row: &PlayRow) -> Result<RowId> {
        self.statement(|session| {
            let keys = table.key_changes(None, row)?;
            let payload = table.encode_for(session, row)?;
            let version = NewVersion {
                payload: &payload,
                schema_version: table.schema_version(),
                keys: &keys,
            };
            let inserted = session.insert_or_hold(&table.table, version)?;
            Ok(inserted.unwrap_or(RowId::new(0)))
        })
    }

    /// Inserts several rows in one statement.
    pub fn insert_all(&mut self, table: &PlayTable, rows: &[PlayRow]) -> Result<Vec<RowId>> {
        self.statement(|session| rows.iter().map(|row| insert(session, table, row)).collect())
    }

    /// Reads a row for change and puts what `change` makes of it in its place. Answers (row before, row after); none if
    /// there is no such row for this statement.
    pub fn update(
        &mut self,
        table: &PlayTable,
        row: RowId,
        change: impl FnOnce(&PlayRow) -> PlayRow,
    ) -> Result<Option<(PlayRow, PlayRow)>> {
        self.statement(|session| {
            let Some(old) = fetch_for_write(session, table, row)? else {
                return Ok(None);
            };
            let new = change(&old);
            let keys = table.key_changes(Some(&old), &new)?;
            let payload = table.encode_for(session, &new)?;
            let version = NewVersion {
                payload: &payload,
                schema_version: table.schema_version(),
                keys: &keys,
            };
            session.update(&table.table, row, version)?;
            Ok(Some((old, new)))
        })
    }

    /// Reads a row for change and deletes it. None if there is no such row for this statement.
    pub fn delete(&mut self, table: &PlayTable, row: RowId) -> Result<Option<PlayRow>> {
        self.statement(|session| {
            let old = fetch_for_write(session, table, row)?;
            if old.is_some() {
                session.delete(&table.table, row)?;
            }
            Ok(old)
        })
    }

    /// All rows, by table scan.
    pub fn scan(&mut self, table: &PlayTable) -> Result<Read> {
        self.statement(|session| scan(session, table, Bind::default()))
    }

    /// All rows, by table scan with a lock on each.
    pub fn scan_locking(&mut self, table: &PlayTable, bind: Bind) -> Result<Read> {
        self.statement(|session| scan(session, table, bind))
    }

    /// All rows in the order of an index.
    pub fn index_scan(&mut self, table: &PlayTable, index: usize, forward: bool) -> Result<Read> {
        self.statement(|session| index_scan(session, table, index, forward))
    }

    /// The row that a seek finds.
    pub fn seek(
        &mut self,
        table: &PlayTable,
        index: usize,
        prefix: &[u8],
        seek: Seek,
    ) -> Result<Option<(RowId, PlayRow)>> {
        self.statement(|session| {
            let mut cursor = Cursor::new(&table.table);
            cursor.bind(session, Bind::default())?;
            cursor.index_start(session, index)?;
            let mut shown = None;
            cursor.seek(session, prefix, seek, |version| {
                shown = Some(table.decode(version.payload())?);
                Ok(())
            })?;
            Ok(shown.map(|row| (cursor.row(), row)))
        })
    }

    /// Number of rows, without reading them.
    pub fn count(&mut self, table: &PlayTable) -> Result<u64> {
        self.statement(|session| session.count(&table.table))
    }

    /// What full scan, scans with conditions, every index and the row count say of the table, if they all say the same; else what differs.
    pub fn agreed(&mut self, table: &PlayTable) -> Result<std::result::Result<Read, String>> {
        self.statement(|session| {
            let rows = scan(session, table, Bind::default())?;
            for index in 0..table.indexes() {
                if let Err(differs) = agrees(session, table, index, &rows)? {
                    return Ok(Err(differs));
                }
            }
            if let Err(differs) = crate::filtered::agrees(session, table, &rows)? {
                return Ok(Err(differs));
            }
            let count = session.count(&table.table)?;
            if count != rows.len() as u64 {
                return Ok(Err(format!(
                    "the count says {count}, the table scan gives {} rows",
                    rows.len()
                )));
            }
            Ok(Ok(rows))
        })
    }

    /// What the engine's own check finds in the table.
    pub fn check(&mut self, table: &PlayTable) -> Result<Vec<String>> {
        self.statement(|session| {
            let mut findings = Vec::new();
            let mut tell = |finding: &str| findings.push(finding.to_owned());
            pbxt::check_table(session, &table.table, &mut tell, &mut |_, _| {})?;
            Ok(findings)
        })
    }
}

/// Whether an index shows exactly `rows`, in its order, in both directions.
fn agrees(
    session: &mut Session,
    table: &PlayTable,
    index: usize,
    rows: &Read,
) -> Result<std::result::Result<(), String>> {
    let keyed = |read: &Read| -> Vec<(Vec<u8>, RowId)> {
        read.iter()
            .map(|(id, row)| (table.key(index, row), *id))
            .collect()
    };
    let mut expected = keyed(rows);
    expected.sort();
    let up = keyed(&index_scan(session, table, index, true)?);
    let mut down = keyed(&index_scan(session, table, index, false)?);
    down.reverse();
    for (direction, found) in [("forward", up), ("backward", down)] {
        if found != expected {
            return Ok(Err(format!(
                "index {index} read {direction} shows {found:?}, the table scan gives {expected:?}"
            )));
        }
    }
    Ok(Ok(()))
}

fn insert(session: &mut Session, table: &PlayTable, row: &PlayRow) -> Result<RowId> {
    let keys = table.key_changes(None, row)?;
    let payload = table.encode_for(session, row)?;
    let version = NewVersion {
        payload: &payload,
        schema_version: table.schema_version(),
        keys: &keys,
    };
    session.insert(&table.table, version)
}

fn fetch_for_write(session: &mut Session, table: &PlayTable, row: RowId) -> Result<Option<PlayRow>> {
    let mut cursor = Cursor::new(&table.table);
    let bind = Bind {
        for_write: true,
        ..Bind::default()
    };
    cursor.bind(session, bind)?;
    let mut shown = None;
    cursor.fetch(session, row, |version| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    })?;
    Ok(shown)
}

fn scan(session: &mut Session, table: &PlayTable, bind: Bind) -> Result<Read> {
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, bind)?;
    cursor.scan_start(session)?;
    let mut rows = Vec::new();
    let mut shown = None;
    while cursor.scan_next(session, |version| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    })? {
        rows.extend(shown.take().map(|row| (cursor.row(), row)));
    }
    Ok(rows)
}

fn index_scan(session: &mut Session, table: &PlayTable, index: usize, forward: bool) -> Result<Read> {
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, index)?;
    let mut rows = Vec::new();
    let mut shown = None;
    let mut found = cursor.index_edge(session, !forward, |version| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    })?;
    while found {
        rows.extend(shown.take().map(|row| (cursor.row(), row)));
        found = cursor.index_move(session, forward, false, |version| {
            shown = Some(table.decode(version.payload())?);
            Ok(())
        })?;
    }
    Ok(rows)
}
