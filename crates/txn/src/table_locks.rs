//! Table locks: intent for writers until END, shared for serializable reads, exclusive for DDL.
//!
//! Why it exists: the host gives up its own locks of a prepared transaction when the session goes away;
//! without these, DDL would take the table from under it. They are also what makes SERIALIZABLE serializable.
//! State: per table the modes of each transaction, and how many transactions hold each mode.
//! Rules: T18 (compatibility; held until END, attached or detached; taken again for prepared ones by
//! recovery).
//! Latches and I/O: one latch per shard.
//! After a crash: recovery takes intent locks on the tables PREPARE lists.

use std::collections::BTreeMap;

use pbxt_base::ids::{TableId, TxnId};

use crate::lock_mode::{LockMode, ModeSet};
use crate::sync::{Latch, LatchGuard, mix};

const SHARDS: usize = 16;

#[derive(Debug, Default)]
struct TableHolders {
    held: BTreeMap<TxnId, ModeSet>,
    /// Transactions per mode, in the order of `LockMode::ALL`.
    counts: [u64; 3],
}

/// Answer to a table lock request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableAccess {
    /// The transaction did not hold this mode and holds it now.
    Granted,
    /// What the transaction held already allows it.
    AlreadyHeld,
    /// Not allowed: these transactions hold modes that do not go with it.
    Blocked(Vec<TxnId>),
}

/// All table locks of a database.
#[derive(Debug)]
pub struct TableLocks {
    shards: [Latch<BTreeMap<TableId, TableHolders>>; SHARDS],
}

impl Default for TableLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl TableHolders {
    /// Decides by the counts alone, so that a thousand writers of one table do not look at each other.
    fn is_free_for(&self, own: ModeSet, mode: LockMode) -> bool {
        LockMode::ALL.into_iter().zip(self.counts).all(|(held, count)| {
            let others = count - u64::from(own.holds(held));
            others == 0 || held.goes_with(mode)
        })
    }

    fn against(&self, txn: TxnId, mode: LockMode) -> Vec<TxnId> {
        let others = self
            .held
            .iter()
            .filter(|(holder, set)| **holder != txn && !set.goes_with(mode));
        others.map(|(holder, _)| *holder).collect()
    }

    fn count(&mut self, mode: LockMode) -> &mut u64 {
        let at = LockMode::ALL.iter().position(|known| *known == mode);
        at.and_then(|at| self.counts.get_mut(at))
            .expect("rule T18: every mode has a count")
    }

    fn set(&mut self, txn: TxnId, new: ModeSet) {
        let old = if new.is_empty() {
            self.held.remove(&txn)
        } else {
            self.held.insert(txn, new)
        };
        old.unwrap_or_default()
            .modes()
            .for_each(|mode| *self.count(mode) -= 1);
        new.modes().for_each(|mode| *self.count(mode) += 1);
    }
}

impl TableLocks {
    /// No locks.
    pub fn new() -> Self {
        TableLocks {
            shards: std::array::from_fn(|_| Latch::new(BTreeMap::new())),
        }
    }

    fn shard(&self, table: TableId) -> LatchGuard<'_, BTreeMap<TableId, TableHolders>> {
        let at = mix(u64::from(table.raw())) as usize % SHARDS;
        self.shards
            .get(at)
            .expect("rule T18: a remainder of SHARDS is below SHARDS")
            .lock()
    }

    /// Locks a table, beside whatever the transaction holds on it already.
    pub fn lock(&self, txn: TxnId, table: TableId, mode: LockMode) -> TableAccess {
        let mut shard = self.shard(table);
        let holders = shard.entry(table).or_default();
        let own = holders.held.get(&txn).copied().unwrap_or_default();
        if own.allows(mode) {
            return TableAccess::AlreadyHeld;
        }
        if holders.is_free_for(own, mode) {
            holders.set(txn, own.with(mode));
            return TableAccess::Granted;
        }
        TableAccess::Blocked(holders.against(txn, mode))
    }

    /// The transactions other than `txn` whose locks do not go with `mode`.
    pub fn blockers(&self, txn: TxnId, table: TableId, mode: LockMode) -> Vec<TxnId> {
        self.shard(table)
            .get(&table)
            .map_or_else(Vec::new, |holders| holders.against(txn, mode))
    }

    /// Gives up one mode. The waiters of the table must be told by `WaitGraph::released_one`.
    pub fn unlock(&self, txn: TxnId, table: TableId, mode: LockMode) {
        self.change(txn, table, |held| held.without(mode));
    }

    /// Gives up everything a transaction holds on the given tables; its waiters are told by
    /// `WaitGraph::released`.
    pub fn release_all(&self, txn: TxnId, tables: impl IntoIterator<Item = TableId>) {
        for table in tables {
            self.change(txn, table, |_| ModeSet::default());
        }
    }

    fn change(&self, txn: TxnId, table: TableId, new: impl FnOnce(ModeSet) -> ModeSet) {
        let mut shard = self.shard(table);
        let Some(holders) = shard.get_mut(&table) else {
            return;
        };
        let held = holders.held.get(&txn).copied().unwrap_or_default();
        holders.set(txn, new(held));
        if holders.held.is_empty() {
            shard.remove(&table);
        }
    }

    /// All table locks as (table, transaction, modes), at most so many; and how many holders were left out (rule T35).
    pub fn survey(&self, at_most: usize) -> (Vec<(TableId, TxnId, ModeSet)>, u64) {
        let (mut found, mut left_out) = (Vec::new(), 0);
        for shard in &self.shards {
            for (table, holders) in &*shard.lock() {
                let room = at_most.saturating_sub(found.len());
                let held = holders.held.iter().take(room);
                found.extend(held.map(|(txn, modes)| (*table, *txn, *modes)));
                left_out += holders.held.len().saturating_sub(room) as u64;
            }
        }
        (found, left_out)
    }

    /// Times that somebody found the latch of a shard taken.
    pub fn contended(&self) -> u64 {
        self.shards.iter().map(Latch::contended).sum()
    }

    /// Who holds what on a table, by transaction id.
    pub fn holders(&self, table: TableId) -> Vec<(TxnId, ModeSet)> {
        let shard = self.shard(table);
        shard.get(&table).map_or_else(Vec::new, |held| {
            held.held.iter().map(|(txn, set)| (*txn, *set)).collect()
        })
    }
}

#[cfg(test)]
#[path = "table_locks_tests.rs"]
mod table_locks_tests;
