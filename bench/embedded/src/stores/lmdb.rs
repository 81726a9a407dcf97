//! LMDB, by heed: a B-tree of copied pages in a mapped file, one writer at a time.
//!
//! Rules held: no transaction is open when the environment is closed for compaction.

use crate::pairs::{Feed, Key};
use crate::store::{About, Budget, Durability, Result, Session, Store, View, missing};
use heed::types::Bytes;
use heed::{CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RoTxn};
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Addresses set aside for the file; they cost nothing until they are used.
const MAP_BYTES: usize = 64 << 30;
const READERS: u32 = 126;

type Pairs = Database<Bytes, Bytes>;

struct Lmdb {
    directory: PathBuf,
    /// None only while it is compacted.
    env: Option<Env>,
    pairs: Pairs,
}

fn open_env(directory: &Path) -> Result<(Env, Pairs)> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS);
    // SAFETY: the directory is this process's own: nobody else maps or changes the file.
    let env = unsafe { options.open(directory)? };
    let mut txn = env.write_txn()?;
    let pairs = env.create_database(&mut txn, None)?;
    txn.commit()?;
    Ok((env, pairs))
}

pub(super) fn open(directory: &Path, _budget: Budget) -> Result<Box<dyn Store>> {
    let (env, pairs) = open_env(directory)?;
    Ok(Box::new(Lmdb {
        directory: directory.to_owned(),
        env: Some(env),
        pairs,
    }))
}

impl Store for Lmdb {
    fn about(&self) -> About {
        About {
            version: heed::lmdb_version().string.to_owned(),
            memory: "no cache of its own: the file is mapped, and its pages count as memory of the process"
                .to_owned(),
            synced: "changed pages written, then synced (its default)",
            relaxed: "written to the system, not synced: NO_SYNC",
            load: "one transaction",
            compaction: "a compacted copy in place of the file",
        }
    }

    fn session(&self, _sharers: u32) -> Result<Box<dyn Session + '_>> {
        let env = self.env.as_ref().ok_or("LMDB is being compacted")?;
        Ok(Box::new(Connection {
            env,
            pairs: self.pairs,
        }))
    }

    fn compact(&mut self) -> Result<()> {
        let env = self.env.take().ok_or("LMDB is being compacted")?;
        let (file, copy) = (self.directory.join("data.mdb"), self.directory.join("copy.mdb"));
        env.copy_to_path(&copy, CompactionOption::Enabled)?.sync_all()?;
        env.prepare_for_closing().wait();
        std::fs::rename(copy, file)?;
        let (env, pairs) = open_env(&self.directory)?;
        (self.env, self.pairs) = (Some(env), pairs);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(env) = self.env {
            env.prepare_for_closing().wait();
        }
        Ok(())
    }
}

struct Connection<'a> {
    env: &'a Env,
    pairs: Pairs,
}

impl Connection<'_> {
    fn set_sync(&self, synced: bool) -> Result<()> {
        let mode = if synced {
            FlagSetMode::Disable
        } else {
            FlagSetMode::Enable
        };
        // SAFETY: only this thread writes, and no transaction of it is open.
        unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
        Ok(())
    }
}

impl Session for Connection<'_> {
    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()> {
        self.set_sync(durability == Durability::Synced)?;
        let mut txn = self.env.write_txn()?;
        while let Some((key, value)) = feed.next_pair() {
            self.pairs.put(&mut txn, key, value)?;
        }
        Ok(txn.commit()?)
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        self.set_sync(true)?;
        let mut txn = self.env.write_txn()?;
        for key in keys {
            if !self.pairs.delete(&mut txn, &key)? {
                return Err(missing(&key));
            }
        }
        Ok(txn.commit()?)
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        let txn = self.env.read_txn()?;
        work(&mut Snapshot {
            txn: &txn,
            pairs: self.pairs,
        })
    }
}

struct Snapshot<'t, 'e> {
    txn: &'t RoTxn<'e>,
    pairs: Pairs,
}

impl View for Snapshot<'_, '_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.pairs.get(self.txn, key)?;
        if let Some(value) = found {
            see(value);
        }
        Ok(found.is_some())
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(from), Bound::Unbounded);
        let mut entries = self.pairs.range(self.txn, &range)?;
        for _ in 0..most {
            let Some(entry) = entries.next() else { break };
            let (key, value) = entry?;
            see(key, value);
        }
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.pairs.len(self.txn)?)
    }
}
