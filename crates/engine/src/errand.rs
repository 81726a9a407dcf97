//! Errand: whom a step of background work is for, and how much of it is wanted.
//!
//! Why it exists: what threads of upkeep do for all tables by rules of thumb, OPTIMIZE TABLE wants for one table to the end, and whoever
//! sent it off may change his mind in the middle of a step. A second set of steps for that would have to be proved right
//! a second time.
//! Rules: OP1, OP4 (docs/storage.md). A step that is told to end fails with `Error::Killed`, installs nothing, and takes its files along (S21).
//! Latches and I/O: none of its own. Who waits for the latch of a step looks around meanwhile, because the one who has it may pause (S43).

use crate::database::Database;
use crate::error::{Error, Result};
use crate::row_merge_plan::Need;
use parking_lot::{Mutex, MutexGuard};
use pbxt_base::{SegmentId, TableId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pause between two looks while a latch is somebody else's.
const LOOK: Duration = Duration::from_millis(20);

/// See the module.
pub(crate) struct Errand<'a> {
    pub need: Need,
    /// Threads that a step may spread its jobs over (rule S55); the caller's own is one.
    pub threads: usize,
    one: Option<OneTable<'a>>,
}

/// For one table, at somebody's command.
struct OneTable<'a> {
    table: TableId,
    /// Index pieces in files older than this one may be rewritten for what they keep about transactions (rule OP2).
    renews_before: SegmentId,
    /// Bytes that its merges have read.
    read: &'a AtomicU64,
    is_over: &'a (dyn Fn() -> bool + Sync),
}

impl Errand<'static> {
    /// Of upkeep: for all tables.
    pub(crate) fn of_upkeep(need: Need) -> Self {
        Self {
            need,
            threads: 1,
            one: None,
        }
    }

    /// Of a compaction: whatever can be done for all tables, by so many threads.
    pub(crate) fn of_compaction(threads: usize) -> Self {
        Self {
            threads,
            ..Self::of_upkeep(Need::Possible)
        }
    }
}

impl<'a> Errand<'a> {
    /// For one table, until `is_over`: whatever can be done. `read` is told of the bytes that merges read.
    pub(crate) fn for_table(
        table: TableId,
        renews_before: SegmentId,
        read: &'a AtomicU64,
        is_over: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let one = OneTable {
            table,
            renews_before,
            read,
            is_over,
        };
        Self {
            need: Need::Possible,
            threads: 1,
            one: Some(one),
        }
    }

    /// True if the table is one of those it is for.
    pub(crate) fn is_for(&self, table: TableId) -> bool {
        self.one.as_ref().is_none_or(|one| one.table == table)
    }

    /// True if it is for one table, at somebody's command.
    pub(crate) fn is_command(&self) -> bool {
        self.one.is_some()
    }

    /// True for a file of index pieces that may be rewritten for what they keep about transactions.
    pub(crate) fn renews(&self, file: SegmentId) -> bool {
        self.one.as_ref().is_some_and(|one| file < one.renews_before)
    }

    /// A merge of so many bytes was installed.
    pub(crate) fn note_read(&self, bytes: u64) {
        if let Some(one) = &self.one {
            one.read.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// An error once nobody wants it any more; upkeep has ways of its own to end.
    pub(crate) fn check(&self, db: &Database) -> Result<()> {
        match &self.one {
            Some(one) if db.upkeep.is_stopping() || (one.is_over)() => Err(Error::Killed),
            _ => Ok(()),
        }
    }

    /// The latch of a step.
    pub(crate) fn turn<'m, T>(&self, db: &Database, latch: &'m Mutex<T>) -> Result<MutexGuard<'m, T>> {
        if !self.is_command() {
            return Ok(latch.lock());
        }
        loop {
            self.check(db)?;
            if let Some(turn) = latch.try_lock_for(LOOK) {
                return Ok(turn);
            }
        }
    }
}
