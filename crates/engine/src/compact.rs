//! Compact: all the space that background work can give back, given back because somebody asks for it.
//!
//! Why it exists: background work leaves what would cost more writes than it gives back: rows of the segment of the log that is being
//! written, a tenth of a base in upper runs (rules S37, S38). Who has removed half of a table, or is about to copy the files,
//! would rather have it done.
//! Rules: S55. Everything is done by the steps that background work takes, so what holds for them holds here.
//! Latches and I/O: those of the steps, and none between them.
//! After a crash: as after a crash in one of them; nothing on disk says that there was such a call.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::pacing::Progress;
use crate::row_merge_plan::Need;
use pbxt_base::{Error as StorageError, Lsn};
use pbxt_txlog::Space;
use std::sync::atomic::Ordering;

/// Merges read at most so many times the bytes that there are at the beginning, and so many more: each job reads upper pieces with the
/// base beneath them, and who writes all the time gives them new ones for ever.
const READS_PER_BYTE: u64 = 4;
const READS_MIN: u64 = 64 << 20;

/// How far a compaction has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Steps taken.
    pub steps: u64,
    /// Bytes of log that are kept for the rows in it.
    pub log_bytes: u64,
    /// Bytes of runs that are not the oldest ones of their tables and indexes.
    pub upper_bytes: u64,
}

impl Database {
    /// Homes every settled row, merges all runs into the oldest ones, and makes the checkpoints that let the files go which are needed
    /// no more (rule S55). Calls `goes_on` after each step, of at most about 64 MiB; false ends the work, and what was done stays.
    /// True if all was done: what an open snapshot or an unfinished transaction needs stays, and so may what others write meanwhile.
    /// False too if a full disk ended a step.
    ///
    /// # Errors
    /// Those of the steps but for want of space; what was done before stays.
    pub fn compact(&self, mut goes_on: impl FnMut(&Compaction) -> bool) -> Result<bool> {
        // A checkpoint lets stamps of loads be settled, and what they kept be merged: nothing must be left to do behind it either.
        let mut is_behind = self.log.tail().raw() == self.upkeep.compacted_at.load(Ordering::Relaxed);
        let counters = &self.upkeep.counters;
        let without_space = counters.steps_without_space.get();
        if !is_behind {
            // A disk that has no room for the next segment needs the rest all the more.
            self.spare(self.finish_segment())?;
        }
        let reads_max = counters.merge_bytes_read.get() + self.reads_of_compaction();
        let mut steps = 0;
        loop {
            self.housekeeping_step();
            let made = self.spare(self.maintenance_step(true))?.unwrap_or(false);
            let worked = self.upkeep_step_for(Need::Possible)? == Progress::Worked;
            let is_idle = !made && !worked;
            if is_idle && is_behind {
                break;
            }
            if is_idle {
                self.spare(self.checkpoint_step())?;
            }
            is_behind = is_idle;
            steps += 1;
            if !goes_on(&self.compaction(steps)) {
                return Ok(false);
            }
            if counters.merge_bytes_read.get() > reads_max {
                self.spare(self.checkpoint_step())?;
                break;
            }
        }
        let is_all = counters.steps_without_space.get() == without_space;
        if is_all {
            let tail = self.log.tail().raw();
            self.upkeep.compacted_at.store(tail, Ordering::Relaxed);
        }
        Ok(is_all)
    }

    /// What a step says, or nothing if a full disk ended it.
    fn spare<T>(&self, step: Result<T>) -> Result<Option<T>> {
        match step {
            Err(Error::Storage(StorageError::NoSpace { .. })) => {
                self.upkeep.counters.steps_without_space.add(1);
                Ok(None)
            }
            step => step.map(Some),
        }
    }

    /// Bytes that its merges read at most.
    fn reads_of_compaction(&self) -> u64 {
        let tables = self.catalog.tables();
        let stored: u64 = tables.iter().map(|table| table.stored_bytes()).sum();
        (stored + self.hot_bytes()) * READS_PER_BYTE + READS_MIN
    }

    fn compaction(&self, steps: u64) -> Compaction {
        let tables = self.catalog.tables();
        let upper = tables.iter().map(|table| table.upper_bytes());
        Compaction {
            steps,
            log_bytes: self.hot_bytes(),
            upper_bytes: upper.sum(),
        }
    }

    /// Fills the segment of the log that is being written, so that its rows can be homed and it can go.
    pub(crate) fn finish_segment(&self) -> Result<()> {
        let bytes = self.store.geometry().hot_segment_bytes;
        let segment_of = |lsn: Lsn| lsn.raw() / bytes;
        let open = segment_of(self.log.tail());
        // Of half the length that can be: the first chunk of the next segment keeps room for what a checkpoint logs.
        let filler = self.log.record_bytes_max() / 16 * 8;
        while segment_of(self.log.tail()) == open {
            // Given up at once, it is a filler.
            drop(self.log.reserve(filler, Space::Row)?);
        }
        // Durable now: that the log goes on in the next segment. Before it does, this one counts as being written.
        Ok(self.log.wait_durable(self.log.tail())?)
    }
}
