//! Row locks: the explicit locks of rows (FOR UPDATE, LOCK IN SHARE MODE, foreign-key parents).
//!
//! Why it exists: writing a row locks it by itself, its head in the row map names the owner; a lock without a
//! write needs a place, and a shared one needs several owners. A table with an entry per row would make locks
//! a limited resource.
//! State: per (table, map leaf) the transactions holding locks there, each with one row set per mode. The
//! row's map word has a LOCKED bit that is set before any entry exists and may stay when the last is gone:
//! set means "ask here", clear means "no explicit lock". Protocol in docs/transactions.md, section 7.
//! Rules: T16 (bit and entry under one latch), T17 (release touches no row).
//! Latches and I/O: one latch per partition; the engine's closures run under it, they do one compare-and-swap
//! on the map word, or one on each word of a leaf, and must not block.
//! After a crash: explicit locks are gone with their transactions; prepared transactions keep only what they
//! wrote.

use std::collections::BTreeMap;

use pbxt_base::ids::{RowId, TableId, TxnId};
use pbxt_base::invariant;

use crate::lock_mode::LockMode;
use crate::row_set::{LEAF_ROWS, RowSet};
use crate::sync::{Latch, LatchGuard, mix};

const PARTITIONS: usize = 64;

pub(crate) type LeafKey = (TableId, u64);

/// The locks of one transaction in one leaf.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) txn: TxnId,
    pub(crate) shared: RowSet,
    pub(crate) exclusive: RowSet,
}

pub(crate) type Partition = BTreeMap<LeafKey, Vec<Holder>>;

/// All explicit row locks of a database.
#[derive(Debug)]
pub struct RowLocks {
    pub(crate) partitions: [Latch<Partition>; PARTITIONS],
}

/// The leaves in which one transaction holds explicit locks: what it must hand back at its end.
#[derive(Debug)]
pub struct RowLockList {
    txn: TxnId,
    leaves: Vec<LeafKey>,
}

impl RowLockList {
    /// An empty list.
    pub fn new(txn: TxnId) -> Self {
        invariant!(
            txn.raw() != 0,
            "T16: locks belong to a transaction that has begun"
        );
        RowLockList {
            txn,
            leaves: Vec::new(),
        }
    }

    /// True if no explicit lock was ever taken with this list.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }
}

/// Answer to a lock request or to a write of a row whose LOCKED bit is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowAccess<R> {
    /// Allowed; what the closure returned.
    Granted(R),
    /// Not allowed: these transactions hold explicit locks that do not go with the request. The closure did
    /// not run.
    Blocked(Vec<TxnId>),
}

/// What a writer must know of a row whose LOCKED bit is set, to build the new map word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillLocked(
    /// True: somebody (the writer itself) holds an explicit lock, the new word keeps the bit. False: the bit
    /// was stale, the new word drops it.
    pub bool,
);

impl Default for RowLocks {
    fn default() -> Self {
        Self::new()
    }
}

fn leaf_of(row: RowId) -> u64 {
    row.raw() / LEAF_ROWS
}

fn place_of(row: RowId) -> u16 {
    (row.raw() % LEAF_ROWS) as u16
}

impl Holder {
    fn new(txn: TxnId) -> Self {
        Holder {
            txn,
            shared: RowSet::default(),
            exclusive: RowSet::default(),
        }
    }

    fn holds(&self, place: u16, mode: LockMode) -> bool {
        self.exclusive.contains(place) || (mode == LockMode::Shared && self.shared.contains(place))
    }

    fn stands_against(&self, place: u16, mode: LockMode) -> bool {
        self.exclusive.contains(place) || (mode == LockMode::Exclusive && self.shared.contains(place))
    }

    fn holds_any(&self, place: u16) -> bool {
        self.shared.contains(place) || self.exclusive.contains(place)
    }

    fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.exclusive.is_empty()
    }
}

fn against(holders: &[Holder], txn: TxnId, place: u16, mode: LockMode) -> Vec<TxnId> {
    let others = holders.iter().filter(|holder| holder.txn != txn);
    others
        .filter(|holder| holder.stands_against(place, mode))
        .map(|holder| holder.txn)
        .collect()
}

impl RowLocks {
    /// No locks.
    pub fn new() -> Self {
        RowLocks {
            partitions: std::array::from_fn(|_| Latch::new(Partition::new())),
        }
    }

    fn partition(&self, key: LeafKey) -> LatchGuard<'_, Partition> {
        let at = mix((u64::from(key.0.raw()) << 40) ^ key.1) as usize % PARTITIONS;
        self.partitions
            .get(at)
            .expect("rule T16: a remainder of PARTITIONS is below PARTITIONS")
            .lock()
    }

    /// Locks a row for the list's transaction (rule T16). If no explicit lock stands against it, `set_bit`
    /// runs under the partition latch: it sets LOCKED in the map word by compare-and-swap, or returns `Err`
    /// if the head is foreign and unfinished or has changed since it was judged; then nothing is locked.
    ///
    /// A transaction whose own unfinished version is the head has the row already and need not come here.
    pub fn lock<E>(
        &self,
        list: &mut RowLockList,
        table: TableId,
        row: RowId,
        mode: LockMode,
        set_bit: impl FnOnce() -> Result<(), E>,
    ) -> Result<RowAccess<()>, E> {
        invariant!(
            mode != LockMode::Intent,
            "T16: rows are locked shared or exclusive"
        );
        let key = (table, leaf_of(row));
        let place = place_of(row);
        let mut partition = self.partition(key);
        let blockers = partition
            .get(&key)
            .map_or_else(Vec::new, |held| against(held, list.txn, place, mode));
        if !blockers.is_empty() {
            return Ok(RowAccess::Blocked(blockers));
        }
        set_bit()?;
        let holders = partition.entry(key).or_default();
        let at = holders
            .iter()
            .position(|holder| holder.txn == list.txn)
            .unwrap_or_else(|| {
                list.leaves.push(key);
                holders.push(Holder::new(list.txn));
                holders.len() - 1
            });
        let holder = holders
            .get_mut(at)
            .expect("rule T16: the holder was found or pushed");
        if !holder.holds(place, mode) {
            let set = if mode == LockMode::Shared {
                &mut holder.shared
            } else {
                &mut holder.exclusive
            };
            set.insert(place);
        }
        Ok(RowAccess::Granted(()))
    }

    /// Writes a row whose map word has LOCKED set (rule T16): if no other transaction holds an explicit lock
    /// on it, `swap` runs under the partition latch and does the compare-and-swap of the map word.
    pub fn write<R>(
        &self,
        txn: TxnId,
        table: TableId,
        row: RowId,
        swap: impl FnOnce(StillLocked) -> R,
    ) -> RowAccess<R> {
        let key = (table, leaf_of(row));
        let place = place_of(row);
        let partition = self.partition(key);
        let holders = partition.get(&key).map_or(&[] as &[Holder], Vec::as_slice);
        let blockers = against(holders, txn, place, LockMode::Exclusive);
        if !blockers.is_empty() {
            return RowAccess::Blocked(blockers);
        }
        let own = holders
            .iter()
            .any(|holder| holder.txn == txn && holder.holds_any(place));
        RowAccess::Granted(swap(StillLocked(own)))
    }

    /// The transactions other than `txn` whose explicit locks stand against `mode`.
    pub fn blockers(&self, txn: TxnId, table: TableId, row: RowId, mode: LockMode) -> Vec<TxnId> {
        let key = (table, leaf_of(row));
        let partition = self.partition(key);
        partition
            .get(&key)
            .map_or_else(Vec::new, |held| against(held, txn, place_of(row), mode))
    }

    /// True if `txn` holds an explicit lock on the row that allows `mode`.
    pub fn holds(&self, txn: TxnId, table: TableId, row: RowId, mode: LockMode) -> bool {
        let key = (table, leaf_of(row));
        let partition = self.partition(key);
        let mut holders = partition.get(&key).into_iter().flatten();
        holders.any(|holder| holder.txn == txn && holder.holds(place_of(row), mode))
    }

    /// Gives up the lock of one row in one mode before the end (a row read for update that does not match); one in the other
    /// mode stays. True if a lock was held: then the row's waiters must be told by `WaitGraph::released_one`. LOCKED stays;
    /// the next writer drops it.
    pub fn unlock(&self, list: &RowLockList, table: TableId, row: RowId, mode: LockMode) -> bool {
        let key = (table, leaf_of(row));
        let place = place_of(row);
        let mut partition = self.partition(key);
        let mut holders = partition.get_mut(&key).into_iter().flatten();
        let Some(holder) = holders.find(|holder| holder.txn == list.txn) else {
            return false;
        };
        let set = if mode == LockMode::Shared {
            &mut holder.shared
        } else {
            &mut holder.exclusive
        };
        set.remove(place)
    }

    /// Gives up all explicit locks of a transaction (rule T17): one step per leaf, none per row.
    pub fn release_all(&self, list: RowLockList) {
        for key in list.leaves {
            let mut partition = self.partition(key);
            let Some(holders) = partition.get_mut(&key) else {
                continue;
            };
            holders.retain(|holder| holder.txn != list.txn);
            if holders.is_empty() {
                partition.remove(&key);
            }
        }
    }

    /// Runs `work` under the latch of the leaf that `row` is in, if nobody holds an explicit lock of a row of that leaf
    /// (rule T17): while it runs nobody sets LOCKED there. True if it ran.
    pub fn in_unlocked_leaf(&self, table: TableId, row: RowId, work: impl FnOnce()) -> bool {
        let key = (table, leaf_of(row));
        let partition = self.partition(key);
        let holders = partition.get(&key).map_or(&[] as &[Holder], Vec::as_slice);
        let is_unlocked = holders.iter().all(Holder::is_empty);
        if is_unlocked {
            work();
        }
        is_unlocked
    }

    /// Gives up the explicit locks of a table that no longer exists.
    pub fn forget_table(&self, table: TableId) {
        for partition in &self.partitions {
            partition.lock().retain(|(locked, _), _| *locked != table);
        }
    }

    /// Figures for status reports; looks at every lock.
    pub fn usage(&self) -> RowLockUsage {
        let mut usage = RowLockUsage::default();
        for partition in &self.partitions {
            for holder in partition
                .lock()
                .values()
                .flatten()
                .filter(|holder| !holder.is_empty())
            {
                usage.locks += (holder.shared.len() + holder.exclusive.len()) as u64;
                usage.leaves += 1;
                let heap = holder.shared.heap_bytes() + holder.exclusive.heap_bytes();
                usage.bytes += (size_of::<Holder>() + heap) as u64;
            }
        }
        usage
    }
}

/// How much the explicit row locks take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowLockUsage {
    /// Locked rows, counted once per transaction and mode.
    pub locks: u64,
    /// (Transaction, map leaf) pairs.
    pub leaves: u64,
    /// Bytes of memory.
    pub bytes: u64,
}

#[cfg(test)]
#[path = "row_locks_tests.rs"]
mod row_locks_tests;
