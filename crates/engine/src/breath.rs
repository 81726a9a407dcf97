//! Breath: how background work shares the machine with the foreground while it is not behind.
//!
//! Why it exists: homing and merging come in steps of megabytes. At full speed such a step takes a processor for seconds, then there
//! is nothing to do for as long; whoever waits for a commit feels the change. Spread over the time there is, the same work is
//! felt by nobody.
//! State: a lag, computed twice a second while something is done; of the thread, since when it has worked without a pause.
//! Rules: S43 under load the threads of background work pause after each stretch of work, the longer the less they are behind; they never
//! pause when something is as far behind as it may be, when the foreground is idle, or when they are to end.
//! Latches and I/O: pauses under the latches of merges and the turn of checkpoints, for which nobody in the foreground waits, and with no
//! epoch pinned.

use crate::database::Database;
use crate::row_merge_plan::{lag_of, lag_of_runs};
use crate::table::Table;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds of work without a pause.
const STRETCH_MICROS: u64 = 2_000;
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Share of its time that a thread works that is not behind at all, in thousandths.
const SHARE_MIN: u64 = 300;
/// Time between two looks at the lag, in milliseconds: a step of merging takes many seconds, others are over at once.
const LOOK_MILLIS: u64 = 500;
/// All of something, in thousandths.
pub(crate) const WHOLE: u64 = 1000;
/// Log of so many times its limit may wait before homing takes all the time it needs: a limit and this part of it.
const LOG_LAG: u64 = 2;

thread_local! {
    /// Since when this thread has worked without a pause, in microseconds of the database's clock; none if it is not to pause.
    static SINCE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What is known of the lag between two looks.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Of merges and checkpoints, in thousandths of what may be.
    others: AtomicU64,
    /// Log beyond which rows are homed.
    log_limit: AtomicU64,
    /// When both were computed, in milliseconds of the database's clock.
    looked_at: AtomicU64,
}

/// The calling thread pauses as S43 says until this is dropped.
pub(crate) struct Breathing(());

impl Drop for Breathing {
    fn drop(&mut self) {
        SINCE.set(None);
    }
}

impl Database {
    /// A step of background work begins; it pauses unless the foreground is idle.
    pub(crate) fn begin_breathing(&self, is_idle: bool) -> Breathing {
        if !is_idle {
            self.look_at_lag();
            SINCE.set(Some(self.clock.now_micros()));
        }
        Breathing(())
    }

    /// Computes the lag, unless that was done a moment ago.
    fn look_at_lag(&self) {
        let lag = &self.upkeep.lag;
        let now = self.clock.now_millis();
        if now.saturating_sub(lag.looked_at.load(Ordering::Relaxed)) < LOOK_MILLIS {
            return;
        }
        lag.looked_at.store(now, Ordering::Relaxed);
        let tables = self.catalog.tables();
        let merges = tables.iter().map(|table| merge_lag(table)).max();
        let (trees, tree_limit) = self.tree_bytes();
        let trees = part_of(trees.saturating_sub(tree_limit), tree_limit);
        let others = merges.unwrap_or(0).max(trees);
        lag.others.store(others, Ordering::Relaxed);
        lag.log_limit.store(self.homing_limit(), Ordering::Relaxed);
    }

    /// To be called every few rows by background work.
    pub(crate) fn breathe(&self) {
        let Some(since) = SINCE.get() else { return };
        let worked = self.clock.now_micros().saturating_sub(since);
        if worked < STRETCH_MICROS {
            return;
        }
        self.look_at_lag();
        let lag = &self.upkeep.lag;
        let log = log_lag(self.log_backlog(), lag.log_limit.load(Ordering::Relaxed));
        let pause = pause_after(
            Duration::from_micros(worked),
            lag.others.load(Ordering::Relaxed).max(log),
        );
        if !pause.is_zero() && !self.upkeep.is_stopping() && !self.upkeep.is_compacting() {
            std::thread::sleep(pause);
        }
        SINCE.set(Some(self.clock.now_micros()));
    }
}

/// How far the merges of a table and of its indexes are behind, in thousandths of what may be.
fn merge_lag(table: &Table) -> u64 {
    let indexes = table.indexes.iter().map(|index| {
        let parts = index.parts();
        lag_of_runs(parts.runs.iter().filter(|run| run.tag.is_none()).count())
    });
    indexes.max().unwrap_or(0).max(lag_of(&table.base.shape()))
}

/// How far homing is behind, in thousandths of what may be.
fn log_lag(waiting: u64, limit: u64) -> u64 {
    part_of(waiting.saturating_sub(limit), limit / LOG_LAG)
}

/// In thousandths, all at most.
fn part_of(part: u64, whole: u64) -> u64 {
    (part.saturating_mul(WHOLE) / whole.max(1)).min(WHOLE)
}

/// The pause behind a stretch of work.
pub(crate) fn pause_after(worked: Duration, lag: u64) -> Duration {
    let share = SHARE_MIN + (WHOLE - SHARE_MIN) * lag.min(WHOLE) / WHOLE;
    let pause = worked.as_nanos() * u128::from(WHOLE - share) / u128::from(share);
    Duration::from_nanos(u64::try_from(pause).unwrap_or(u64::MAX)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_shorter_the_more_waits_and_end_where_all_waits() {
        let worked = Duration::from_millis(3);
        assert_eq!(pause_after(worked, 0), Duration::from_millis(7), "S43: 3 of 10");
        assert_eq!(pause_after(worked, WHOLE), Duration::ZERO);
        assert_eq!(pause_after(worked, 5 * WHOLE), Duration::ZERO);
        let pauses: Vec<_> = (0..=10).map(|lag| pause_after(worked, lag * 100)).collect();
        assert!(pauses.is_sorted_by(|a, b| a > b), "{pauses:?}");
        assert_eq!(pause_after(Duration::from_mins(1), 0), PAUSE_MAX);
    }

    #[test]
    fn log_lags_from_its_limit_to_a_half_more() {
        assert_eq!(log_lag(0, 100), 0);
        assert_eq!(log_lag(100, 100), 0);
        assert_eq!(log_lag(125, 100), WHOLE / 2);
        assert_eq!(log_lag(150, 100), WHOLE);
        assert_eq!(log_lag(u64::MAX, 100), WHOLE);
        assert_eq!(log_lag(1, 0), WHOLE);
    }

    #[test]
    fn merges_lag_from_one_run_more_than_may_be_to_twice_as_many() {
        assert_eq!(lag_of_runs(0), 0);
        assert_eq!(lag_of_runs(6), 0, "S43: a base and five, of which a merge is due");
        assert_eq!(lag_of_runs(8), WHOLE / 2);
        assert_eq!(lag_of_runs(10), WHOLE);
        assert_eq!(lag_of_runs(usize::MAX), WHOLE);
    }

    #[test]
    fn a_thread_that_never_began_does_not_pause() {
        assert!(SINCE.get().is_none());
    }
}
