//! Lock survey: who holds explicit row locks, without a line for each row.
//!
//! Why it exists: whoever looks for the holder of a lock must be able to see all of them, and must not stop them; a
//! transaction may have locked a hundred million rows.
//! State: none of its own; reads the partitions of row_locks.rs.
//! Rules: T35 (few leaves under one latch, memory by transactions and not by rows).
//! Latches and I/O: one partition latch after the other, each given back after a few leaves.

use std::collections::BTreeMap;
use std::ops::Bound;

use pbxt_base::ids::{RowId, TableId, TxnId};

use crate::lock_mode::LockMode;
use crate::row_locks::{Holder, LeafKey, Partition, RowLocks};
use crate::row_set::{LEAF_ROWS, RowSet};
use crate::sync::Latch;

/// Leaves looked at under one latch: a bitmap is counted in well under a microsecond. Under Miri so few that a survey of few leaves has more than one step.
const LEAVES_PER_STEP: usize = if cfg!(miri) { 2 } else { 64 };

/// Explicit row locks of one transaction on one table in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRows {
    /// Who.
    pub txn: TxnId,
    /// Where.
    pub table: TableId,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Locked rows.
    pub count: u64,
    /// All of them, if they are few; else none.
    pub rows: Vec<RowId>,
}

/// What a survey found. Groups are each as of the moment their leaves were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSurvey {
    /// By transaction, table and mode.
    pub held: Vec<HeldRows>,
    /// Locked rows of groups that found no room.
    pub left_out: u64,
}

/// How much a survey may bring.
#[derive(Clone, Copy, Debug)]
pub struct SurveyLimits {
    /// Groups of at most so many rows bring their row ids.
    pub few: usize,
    /// Groups at most.
    pub groups: usize,
}

type Groups = BTreeMap<(TxnId, TableId, LockMode), HeldRows>;

struct Survey {
    limits: SurveyLimits,
    groups: Groups,
    left_out: u64,
}

impl RowLocks {
    /// All explicit row locks, in groups (rule T35).
    pub fn survey(&self, limits: SurveyLimits) -> LockSurvey {
        let mut survey = Survey {
            limits,
            groups: Groups::new(),
            left_out: 0,
        };
        for partition in &self.partitions {
            let mut after = Bound::Unbounded;
            while let Some(last) = survey.step(partition, after) {
                after = Bound::Excluded(last);
            }
        }
        // Partitions and leaves come in no order.
        survey
            .groups
            .values_mut()
            .for_each(|group| group.rows.sort_unstable());
        LockSurvey {
            held: survey.groups.into_values().collect(),
            left_out: survey.left_out,
        }
    }

    /// Times that somebody found the latch of a partition taken.
    pub fn contended(&self) -> u64 {
        self.partitions.iter().map(Latch::contended).sum()
    }
}

impl Survey {
    /// Some leaves under one latch; the last one, if there may be more.
    fn step(&mut self, partition: &Latch<Partition>, after: Bound<LeafKey>) -> Option<LeafKey> {
        let partition = partition.lock();
        let mut leaves = partition.range((after, Bound::Unbounded));
        let mut last = None;
        for (key, holders) in leaves.by_ref().take(LEAVES_PER_STEP) {
            for holder in holders {
                self.add(*key, holder);
            }
            last = Some(*key);
        }
        last.filter(|_| leaves.next().is_some())
    }

    fn add(&mut self, leaf: LeafKey, holder: &Holder) {
        self.add_set(leaf, holder.txn, LockMode::Shared, &holder.shared);
        self.add_set(leaf, holder.txn, LockMode::Exclusive, &holder.exclusive);
    }

    fn add_set(&mut self, (table, leaf): LeafKey, txn: TxnId, mode: LockMode, set: &RowSet) {
        let count = set.len();
        if count == 0 {
            return;
        }
        let key = (txn, table, mode);
        if self.groups.len() >= self.limits.groups && !self.groups.contains_key(&key) {
            self.left_out += count as u64;
            return;
        }
        let group = self.groups.entry(key).or_insert_with(|| HeldRows {
            txn,
            table,
            mode,
            count: 0,
            rows: Vec::new(),
        });
        group.count += count as u64;
        if group.count > self.limits.few as u64 {
            group.rows = Vec::new();
            return;
        }
        let row = |place: u16| RowId::new(leaf * LEAF_ROWS + u64::from(place));
        set.for_each(|place| group.rows.push(row(place)));
    }
}

#[cfg(test)]
#[path = "lock_survey_tests.rs"]
mod lock_survey_tests;
