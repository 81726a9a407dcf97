//! Counters: totals since open, for status reports.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. On a line of its own: sessions that count different things do not wait for each other.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The total.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened since open.
#[derive(Debug, Default)]
pub struct Counters {
    /// Transactions committed.
    pub committed: Counter,
    /// Transactions rolled back.
    pub rolled_back: Counter,
    /// Rows inserted, also by transactions that were rolled back.
    pub rows_inserted: Counter,
    /// Rows updated.
    pub rows_updated: Counter,
    /// Rows deleted.
    pub rows_deleted: Counter,
    /// Rows shown to readers, counted by scans as they end.
    pub rows_read: Counter,
    /// Row blocks that scans passed over unread.
    pub blocks_skipped: Counter,
    /// Ranges of indexes whose rows were counted and not shown (rule X61).
    pub ranges_counted: Counter,
    /// Statements refused because a row changed after their snapshot.
    pub write_conflicts: Counter,
    /// Transactions ended because no serial order had them (rule T29).
    pub serialization_failures: Counter,
    /// Parents that constraints looked up; keys that a statement remembered are not counted.
    pub parents_looked_up: Counter,
    /// Rows that actions of constraints deleted or changed.
    pub rows_acted_on: Counter,
    /// Rows written beside the build of an index and brought into it beside writers (rule AL29).
    pub build_rows_beside: Counter,
    /// The same, brought into it while nobody could write the table.
    pub build_rows_held: Counter,
    /// Microseconds the last recovery took.
    pub recovery_micros: Counter,
    /// Records it read.
    pub recovery_records: Counter,
    /// Bytes of log it read.
    pub recovery_bytes: Counter,
}
