//! Model: a store that is a map in memory, and can be told to answer wrongly in one way.
//!
//! Why it exists: the workload's checks must be seen to fail. No other store can be made wrong on purpose.

use crate::pairs::{Feed, Key};
use crate::store::{About, Durability, Result, Session, Store, View, missing};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A bit of each value is another one.
    Values,
    /// Every tenth read finds nothing.
    Reads,
    /// Ranges leave out their second row.
    Ranges,
    /// What is removed stays.
    Removals,
    /// The compaction forgets the greatest key.
    Compaction,
}

/// See the module.
pub(crate) struct Model {
    rows: Mutex<BTreeMap<Key, Vec<u8>>>,
    reads: Mutex<u64>,
    fault: Fault,
}

impl Model {
    /// An empty one.
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            rows: Mutex::new(BTreeMap::new()),
            reads: Mutex::new(0),
            fault,
        }
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for &Model {
    fn about(&self) -> About {
        About {
            version: String::new(),
            memory: String::new(),
            synced: "",
            relaxed: "",
            load: "",
            compaction: "",
        }
    }

    fn session(&self, _sharers: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(*self))
    }

    fn compact(&mut self) -> Result<()> {
        if self.fault == Fault::Compaction {
            self.rows().pop_last();
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for &Model {
    fn insert(&mut self, feed: &mut Feed, _durability: Durability) -> Result<()> {
        while let Some((key, value)) = feed.next_pair() {
            let mut value = value.to_vec();
            if self.fault == Fault::Values {
                value[0] ^= 1;
            }
            self.rows().insert(*key, value);
        }
        Ok(())
    }

    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()> {
        for key in keys.filter(|_| self.fault != Fault::Removals) {
            if self.rows().remove(&key).is_none() {
                return Err(missing(&key));
            }
        }
        Ok(())
    }

    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()> {
        work(self)
    }
}

impl View for &Model {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *reads += 1;
        if self.fault == Fault::Reads && reads.is_multiple_of(10) {
            return Ok(false);
        }
        let rows = self.rows();
        let found = rows.get(key);
        if let Some(value) = found {
            see(value);
        }
        Ok(found.is_some())
    }

    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let from = Key::try_from(from)?;
        let rows = self.rows();
        let left_out = usize::from(self.fault == Fault::Ranges);
        let second = rows.range(from..).nth(1).map(|(key, _)| *key);
        let shown = rows
            .range(from..)
            .filter(|(key, _)| left_out == 0 || Some(**key) != second);
        for (key, value) in shown.take(usize::try_from(most).unwrap_or(usize::MAX)) {
            see(key, value);
        }
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.rows().len() as u64)
    }
}
