//! RocksDB: an LSM-tree with a log; Debian's library.
//!
//! Rules held: `insert` and `remove` are atomic batches, which do not look for keys that are there or missing. A load, and the removal of
//! many keys, are several batches: one would stand in memory as a whole.

use super::rocksdb_c::{Batch, Db, Frozen, Settings};
use crate::pairs::{Feed, Key};
use crate::store::{About, Budget, Durability, Result, Session, Store, View};
use std::path::Path;

/// Changes of a batch at most.
const BATCH_PAIRS: u64 = 10_000;
const BLOOM_BITS_PER_KEY: f64 = 10.0;

struct RocksDb {
    db: Db,
    settings: Settings,
}

pub(super) fn open(directory: &Path, budget: Budget) -> Result<Box<dyn Store>> {
    let quarter = budget.bytes as usize / 4;
    let settings = Settings {
        cache_bytes: 3 * quarter,
        write_buffers_bytes: quarter,
        bloom_bits_per_key: BLOOM_BITS_PER_KEY,
        threads: i32::try_from(budget.threads)?,
    };
    let name = directory.join("rocksdb");
    let name = name.to_str().ok_or("the directory's name is not UTF-8")?;
    let db = Db::open(name, &settings)?;
    Ok(Box::new(RocksDb { db, settings }))
}

impl Store for RocksDb {
    fn about(&self) -> About {
        About {
            version: "7.8.3 (Debian's librocksdb7.8)".to_owned(),
            memory: format!(
                "a block cache of {} MiB with indexes and filters (10 bits a key) in it, write buffers of {} MiB",
                self.settings.cache_bytes >> 20,
                self.settings.write_buffers_bytes >> 20
            ),
            synced: "log written and synced: sync=true",
            relaxed: "written to the system, not synced: sync=false",
            load: "batches of 10,000 pairs, the last one synced; removals the same",
            compaction: "CompactRange over everything",
        }
    }

    fn session(&self, _sharers: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection {
            db: &self.db,
            batch: Batch::new(&self.db),
        }))
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact();
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Connection<'d> {
    db: &'d Db,
    batch: Batch<'d>,
}

impl Connection<'_> {
    /// Writes at most so many pairs as one batch.
    fn insert_some(&mut self, feed: &mut Feed, most: u64, synced: bool) -> Result<()> {
        for _ in 0..most {
            let Some((key, value)) = feed.next_pair() else {
                break;
            };
            self.batch.put(key, value);
        }
        self.batch.write(synced)
    }
}

impl Session for Connection<'_> {
    fn load(&mut self, feed: &mut Feed) -> Result<()> {
        while feed.left() > 0 {
            // The sync of the last batch is one of the log before it too.
            let is_last = feed.left() <= BATCH_PAIRS;
            self.insert_some(feed, BATCH_PAIRS, is_last)?;
        }
        Ok(())
    }

    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()> {
        self.insert_some(feed, u64::MAX, durability == Durability::Synced)
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            for key in keys.by_ref().take(BATCH_PAIRS as usize) {
                self.batch.delete(&key);
            }
            let is_last = keys.peek().is_none();
            self.batch.write(is_last)?;
        }
        Ok(())
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        work(&mut Snapshot(Frozen::new(self.db)))
    }
}

struct Snapshot<'d>(Frozen<'d>);

impl View for Snapshot<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get(key, see)
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut left = most;
        self.0.walk(from, &mut |key, value| {
            if left == 0 {
                return false;
            }
            see(key, value);
            left -= 1;
            left > 0
        })
    }

    fn count(&mut self) -> Result<u64> {
        let mut count = 0;
        self.0.walk(&[], &mut |_, _| {
            count += 1;
            true
        })?;
        Ok(count)
    }
}
