//! fjall: an LSM-tree with a log, written in Rust.
//!
//! Rules held: `insert` and `remove` are atomic batches, which do not look for keys that are there or missing. A load, and the removal of
//! many keys, are several batches: one would stand in memory as a whole.

use crate::pairs::{Feed, Key};
use crate::store::{About, Budget, Durability, Result, Session, Store, View, locked_version};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::path::Path;

/// Pairs of a batch at most.
const BATCH_PAIRS: usize = 10_000;

struct Fjall {
    db: Database,
    pairs: Keyspace,
    budget: Budget,
}

/// The budget's parts: cache, and the table in memory that fills up while an older one is written.
fn parts(budget: Budget) -> (u64, u64) {
    (budget.bytes / 4 * 3, budget.bytes / 8)
}

pub(super) fn open(directory: &Path, budget: Budget) -> Result<Box<dyn Store>> {
    let (cache, table) = parts(budget);
    let db = Database::builder(directory.join("fjall"))
        .cache_size(cache)
        .worker_threads(budget.threads.max(1) as usize)
        .open()?;
    let pairs = db.keyspace("pairs", || {
        KeyspaceCreateOptions::default().max_memtable_size(table)
    })?;
    Ok(Box::new(Fjall { db, pairs, budget }))
}

impl Store for Fjall {
    fn about(&self) -> About {
        let (cache, table) = parts(self.budget);
        About {
            version: locked_version("fjall"),
            memory: format!(
                "a block cache of {} MiB and tables of {} MiB in memory",
                cache >> 20,
                table >> 20
            ),
            synced: "log written and synced: SyncData",
            relaxed: "written to the system, not synced: Buffer",
            load: "batches of 10,000 pairs, the last one synced; removals the same",
            compaction: "memory written out, then a major compaction",
        }
    }

    fn session(&self, _sharers: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection { store: self }))
    }

    fn compact(&mut self) -> Result<()> {
        self.pairs.rotate_memtable_and_wait()?;
        Ok(self.pairs.major_compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

struct Connection<'a> {
    store: &'a Fjall,
}

impl Connection<'_> {
    /// Puts at most so many pairs into one batch and commits it.
    fn insert_some(&self, feed: &mut Feed, most: usize, mode: PersistMode) -> Result<()> {
        let mut batch = self.store.db.batch().durability(Some(mode));
        for _ in 0..most {
            let Some((key, value)) = feed.next_pair() else {
                break;
            };
            batch.insert(&self.store.pairs, key.as_slice(), value);
        }
        Ok(batch.commit()?)
    }
}

impl Session for Connection<'_> {
    fn load(&mut self, feed: &mut Feed) -> Result<()> {
        while feed.left() > 0 {
            self.insert_some(feed, BATCH_PAIRS, PersistMode::Buffer)?;
        }
        Ok(self.store.db.persist(PersistMode::SyncData)?)
    }

    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()> {
        let mode = match durability {
            Durability::Synced => PersistMode::SyncData,
            Durability::Relaxed => PersistMode::Buffer,
        };
        self.insert_some(feed, usize::MAX, mode)
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            let mut batch = self.store.db.batch().durability(Some(PersistMode::Buffer));
            for key in keys.by_ref().take(BATCH_PAIRS) {
                batch.remove(&self.store.pairs, key.as_slice());
            }
            batch.commit()?;
        }
        Ok(self.store.db.persist(PersistMode::SyncData)?)
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        work(&mut Snapshot {
            pairs: &self.store.pairs,
            snapshot: self.store.db.snapshot(),
        })
    }
}

struct Snapshot<'a> {
    pairs: &'a Keyspace,
    snapshot: fjall::Snapshot,
}

impl View for Snapshot<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.snapshot.get(self.pairs, key)?;
        if let Some(value) = &found {
            see(value);
        }
        Ok(found.is_some())
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut entries = self.snapshot.range(self.pairs, from..);
        for _ in 0..most {
            let Some(entry) = entries.next() else { break };
            let (key, value) = entry.into_inner()?;
            see(&key, &value);
        }
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.snapshot.len(self.pairs)? as u64)
    }
}
