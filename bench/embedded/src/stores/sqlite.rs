//! SQLite, by rusqlite with the SQLite it brings: a table WITHOUT ROWID, whose rows stand in the tree of the primary key, and a
//! write-ahead log.

use crate::pairs::{Feed, Key};
use crate::store::{About, Budget, Durability, Result, Session, Store, View, missing};
use rusqlite::{Connection as Sqlite, Statement};
use std::path::{Path, PathBuf};

struct SqliteStore {
    file: PathBuf,
    budget: Budget,
}

pub(super) fn open(directory: &Path, budget: Budget) -> Result<Box<dyn Store>> {
    let store = SqliteStore {
        file: directory.join("pairs.sqlite"),
        budget,
    };
    store.connect(1)?.execute_batch(
        "CREATE TABLE IF NOT EXISTS pairs (key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    )?;
    Ok(Box::new(store))
}

impl SqliteStore {
    fn connect(&self, sharers: u32) -> Result<Sqlite> {
        let connection = Sqlite::open(&self.file)?;
        let kib = (self.budget.bytes >> 10) / u64::from(sharers.max(1));
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 60000; PRAGMA cache_size = -{kib}"
        ))?;
        Ok(connection)
    }
}

impl Store for SqliteStore {
    fn about(&self) -> About {
        About {
            version: rusqlite::version().to_owned(),
            memory: format!(
                "caches of {} MiB together, one for each connection",
                self.budget.bytes >> 20
            ),
            synced: "write-ahead log written and synced: synchronous=FULL",
            relaxed: "written to the system, not synced: synchronous=OFF",
            load: "one transaction",
            compaction: "VACUUM, and a checkpoint that cuts the log",
        }
    }

    fn session(&self, sharers: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection {
            sqlite: self.connect(sharers)?,
            durability: Durability::Synced,
        }))
    }

    fn compact(&mut self) -> Result<()> {
        let connection = self.connect(1)?;
        connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Connection {
    sqlite: Sqlite,
    /// As the connection is set now.
    durability: Durability,
}

impl Connection {
    /// One transaction.
    fn transaction(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&Sqlite) -> Result<()>,
    ) -> Result<()> {
        if durability != self.durability {
            self.sqlite.execute_batch(match durability {
                Durability::Synced => "PRAGMA synchronous = FULL",
                Durability::Relaxed => "PRAGMA synchronous = OFF",
            })?;
            self.durability = durability;
        }
        self.sqlite.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        work(&self.sqlite)?;
        self.sqlite.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Session for Connection {
    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()> {
        self.transaction(durability, |sqlite| {
            let mut insert = sqlite.prepare_cached("INSERT INTO pairs (key, value) VALUES (?1, ?2)")?;
            while let Some((key, value)) = feed.next_pair() {
                insert.execute((key.as_slice(), value))?;
            }
            Ok(())
        })
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        self.transaction(Durability::Synced, |sqlite| {
            let mut delete = sqlite.prepare_cached("DELETE FROM pairs WHERE key = ?1")?;
            for key in keys {
                if delete.execute((key.as_slice(),))? != 1 {
                    return Err(missing(&key));
                }
            }
            Ok(())
        })
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        self.sqlite.prepare_cached("BEGIN")?.execute([])?;
        work(&mut Snapshot {
            get: self.sqlite.prepare("SELECT value FROM pairs WHERE key = ?1")?,
            range: self
                .sqlite
                .prepare("SELECT key, value FROM pairs WHERE key >= ?1 ORDER BY key")?,
            count: self.sqlite.prepare("SELECT count(*) FROM pairs")?,
        })?;
        self.sqlite.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

struct Snapshot<'c> {
    get: Statement<'c>,
    range: Statement<'c>,
    count: Statement<'c>,
}

impl View for Snapshot<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut rows = self.get.query((key,))?;
        let Some(row) = rows.next()? else {
            return Ok(false);
        };
        see(row.get_ref(0)?.as_blob()?);
        Ok(true)
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut rows = self.range.query((from,))?;
        for _ in 0..most {
            let Some(row) = rows.next()? else { break };
            see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        let count: i64 = self.count.query_row((), |row| row.get(0))?;
        Ok(u64::try_from(count)?)
    }
}
