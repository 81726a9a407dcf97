//! Counts: the exact number of rows of a table for every snapshot, without reading a row.
//!
//! Why it exists: COUNT(*) of other engines is a scan because no single number is right for all readers. Here
//! each commit brings one delta per table it wrote (kept in its END record), so a snapshot's count is a search
//! in a short list.
//! State: `base` = rows at all commits up to `base_ts`; `recent` = (commit ts, rows after that commit), rising.
//! Rules: C1 a delta is entered inside the commit's critical section, before its ts is published, so list order
//! is commit order and no snapshot sees a ts without its delta. C2 only entries some live snapshot can select,
//! and those newer than the newest snapshot, are kept (`prune`). C3 what a
//! transaction is said to have added is believed within bounds only. C4 what cannot be is counted anew (recount.rs).
//! Latches: one per table, held for a push or a binary search; never across I/O.
//! After a crash: rebuilt from the END records of the log.

use crate::error::Result;
use crate::image::damage;
use parking_lot::Mutex;
use pbxt_base::{CommitTs, invariant};
use pbxt_rowmap::ROW_MAX;
use pbxt_txlog::CountDelta;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

/// Entries kept before the next push prunes.
const PRUNE_AT: usize = 128;

/// Row counter of one table generation.
#[derive(Debug, Default)]
pub struct RowCount {
    latest: AtomicI64,
    list: Mutex<CountList>,
}

#[derive(Debug, Default)]
struct CountList {
    base: i64,
    recent: VecDeque<(CommitTs, i64)>,
}

impl RowCount {
    /// A counter whose committed rows are `rows` for every snapshot.
    pub fn starting_at(rows: i64) -> Self {
        Self {
            latest: AtomicI64::new(rows),
            list: Mutex::new(CountList {
                base: rows,
                recent: VecDeque::new(),
            }),
        }
    }

    /// Enters the delta of the commit `ts` (rule C1). Commits come in ts order.
    pub fn push(&self, ts: CommitTs, delta: i64) {
        let mut list = self.list.lock();
        let last = list.recent.back().copied();
        invariant!(
            last.is_none_or(|(last_ts, _)| last_ts < ts),
            "C1: row count deltas come in commit order"
        );
        let rows = last.map_or(list.base, |(_, rows)| rows) + delta;
        list.recent.push_back((ts, rows));
        self.latest.store(rows, Ordering::Relaxed);
    }

    /// Rows seen by a snapshot at `ts`.
    pub fn at(&self, ts: CommitTs) -> i64 {
        let list = self.list.lock();
        let newer = list.recent.partition_point(|(entry_ts, _)| *entry_ts <= ts);
        match newer.checked_sub(1) {
            Some(last_seen) => list.recent[last_seen].1,
            None => list.base,
        }
    }

    /// Rows for every snapshot from here on, where nobody has one yet (rule C4).
    pub(crate) fn restart(&self, rows: i64) {
        let mut list = self.list.lock();
        list.base = rows;
        list.recent.clear();
        self.latest.store(rows, Ordering::Relaxed);
    }

    /// Rows after the newest commit; for estimates.
    pub fn latest(&self) -> i64 {
        self.latest.load(Ordering::Relaxed)
    }

    /// True when the list is long enough to be worth pruning.
    pub fn wants_prune(&self) -> bool {
        self.list.lock().recent.len() >= PRUNE_AT
    }

    /// Drops the entries that no snapshot in `live` (rising) nor a later one can select (rule C2).
    pub fn prune(&self, live: &[CommitTs], newest: CommitTs) {
        let mut list = self.list.lock();
        let mut kept = VecDeque::new();
        let mut base = list.base;
        for (position, &(ts, rows)) in list.recent.iter().enumerate() {
            let next_ts = list.recent.get(position + 1).map(|(next, _)| *next);
            let selected_by_future = next_ts.is_none_or(|next| next > newest);
            let selected_by_live = live
                .iter()
                .any(|&snapshot| snapshot >= ts && next_ts.is_none_or(|next| snapshot < next));
            if ts > newest || selected_by_future || selected_by_live {
                kept.push_back((ts, rows));
            } else if kept.is_empty() {
                base = rows;
            }
        }
        // The base must answer for the oldest live snapshot below the first kept entry.
        if let Some(oldest) = live.first() {
            let below = list.recent.iter().rev().find(|(ts, _)| ts <= oldest);
            base = below.map_or(list.base, |&(_, rows)| rows);
        }
        list.base = base;
        list.recent = kept;
    }
}

/// Rule C3: the delta of one transaction.
pub(crate) fn check_delta(delta: CountDelta) -> Result<()> {
    if delta.rows.unsigned_abs() <= ROW_MAX {
        return Ok(());
    }
    let expected = format!("a number of rows of table {} that it can have", delta.table);
    Err(damage(expected, delta.rows.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pbxt_base::TableId;

    #[test]
    fn a_number_of_rows_that_no_table_can_have_is_damage() {
        let most = ROW_MAX.cast_signed();
        for (rows, fits) in [
            (0, true),
            (most, true),
            (-most, true),
            (most + 1, false),
            (-most - 1, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            let table = TableId::new(3);
            assert_eq!(
                check_delta(CountDelta { table, rows }).is_ok(),
                fits,
                "C3: {rows}"
            );
        }
    }

    #[test]
    fn a_count_that_was_restarted_is_that_of_every_snapshot() {
        let count = RowCount::starting_at(-3);
        count.push(ts(5), 2);
        count.restart(7);
        assert_eq!([0, 5, 9].map(|at| count.at(ts(at))), [7; 3], "C4");
        assert_eq!(count.latest(), 7);
        count.push(ts(9), 1);
        assert_eq!([8, 9].map(|at| count.at(ts(at))), [7, 8]);
    }

    fn ts(raw: u64) -> CommitTs {
        CommitTs::new(raw)
    }

    #[test]
    fn every_snapshot_gets_the_count_of_its_own_commit() {
        let count = RowCount::starting_at(10);
        count.push(ts(5), 3);
        count.push(ts(9), -4);
        assert_eq!([4, 5, 8, 9, 100].map(|at| count.at(ts(at))), [10, 13, 13, 9, 9]);
        assert_eq!(count.latest(), 9);
    }

    #[test]
    fn pruning_never_changes_an_answer_a_live_snapshot_can_get() {
        for live_set in 0..64_u64 {
            let count = RowCount::starting_at(100);
            for step in 1..=6 {
                count.push(ts(step * 2), i64::try_from(step).expect("small"));
            }
            let live: Vec<CommitTs> = (0..6)
                .filter(|bit| live_set >> bit & 1 == 1)
                .map(|bit| ts(bit * 2 + 1))
                .collect();
            let before: Vec<i64> = live.iter().map(|&at| count.at(at)).collect();
            count.prune(&live, ts(12));
            assert_eq!(
                before,
                live.iter().map(|&at| count.at(at)).collect::<Vec<_>>(),
                "live set {live_set:b}"
            );
            assert_eq!(count.at(ts(12)), 121);
        }
    }
}
