//! redb: a B-tree of copied pages in one file, one writer at a time.

use crate::pairs::{Feed, Key};
use crate::store::{About, Budget, Durability, Result, Session, Store, View, locked_version, missing};
use redb::{
    Database, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
};
use std::path::Path;

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("pairs");

struct Redb {
    db: Database,
    budget: Budget,
}

pub(super) fn open(directory: &Path, budget: Budget) -> Result<Box<dyn Store>> {
    let mut builder = Database::builder();
    builder.set_cache_size(budget.bytes as usize);
    let db = builder.create(directory.join("pairs.redb"))?;
    let txn = db.begin_write()?;
    txn.open_table(TABLE)?;
    txn.commit()?;
    Ok(Box::new(Redb { db, budget }))
}

impl Store for Redb {
    fn about(&self) -> About {
        About {
            version: locked_version("redb"),
            memory: format!("a cache of {} MiB", self.budget.bytes >> 20),
            synced: "changed pages written, one sync (its default)",
            relaxed: "in memory of the process: Durability::None",
            load: "one transaction",
            compaction: "Database::compact",
        }
    }

    fn session(&self, _sharers: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection { db: &self.db }))
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Connection<'a> {
    db: &'a Database,
}

impl Session for Connection<'_> {
    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        if durability == Durability::Relaxed {
            txn.set_durability(redb::Durability::None)?;
        }
        let mut table = txn.open_table(TABLE)?;
        while let Some((key, value)) = feed.next_pair() {
            table.insert(key.as_slice(), value)?;
        }
        drop(table);
        Ok(txn.commit()?)
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        let txn = self.db.begin_write()?;
        let mut table = txn.open_table(TABLE)?;
        for key in keys {
            if table.remove(key.as_slice())?.is_none() {
                return Err(missing(&key));
            }
        }
        drop(table);
        Ok(txn.commit()?)
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(TABLE)?;
        work(&mut Snapshot { table })
    }
}

struct Snapshot {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl View for Snapshot {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // By the trait: the method of the same name counts a reference to the transaction at each call.
        let found = ReadableTable::get(&self.table, key)?;
        if let Some(value) = &found {
            see(value.value());
        }
        Ok(found.is_some())
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut entries = ReadableTable::range(&self.table, from..)?;
        for _ in 0..most {
            let Some(entry) = entries.next() else { break };
            let (key, value) = entry?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.table.len()?)
    }
}
