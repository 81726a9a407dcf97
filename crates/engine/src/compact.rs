//! Compact: all the space that background work can give back, given back because somebody asks for it.
//!
//! Why it exists: background work leaves what would cost more writes than it gives back: rows of the segment of the log that is being
//! written, a tenth of a base in upper runs (rules S37, S38). Who has removed half of a table, or is about to copy the files,
//! would rather have it done.
//! Rules: S55, D38. Everything is done by the steps that background work takes, so what holds for them holds here. As the threads of that
//! may, row merges, index merges and checkpoints go on beside each other; without threads they follow each other in one order.
//! Latches and I/O: those of the steps, and none between them but that of the caller's function, which is called by one thread at a time.
//! After a crash: as after a crash in one of them; nothing on disk says that there was such a call.

use crate::database::Database;
use crate::errand::Errand;
use crate::error::{Error, Result};
use crate::gone_sweep::CutOf;
use crate::pacing::Progress;
use parking_lot::{Condvar, Mutex};
use pbxt_base::{Error as StorageError, Lsn};
use pbxt_io::{for_each_parallel, parallelism};
use pbxt_txlog::Space;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Merges read at most so many times the bytes that there are at the beginning, and so many more: each job reads upper pieces with the
/// base beneath them, and who writes all the time gives them new ones for ever.
const READS_PER_BYTE: u64 = 4;
const READS_MIN: u64 = 64 << 20;
/// Bytes of superseded pieces beyond which row merges wait for a checkpoint.
const SUPERSEDED_MAX: u64 = 128 << 20;
/// Pause between two looks for work while rows are merged.
const LOOK: Duration = Duration::from_millis(5);

/// One compaction under way.
struct Course<'d, F> {
    db: &'d Database,
    errand: Errand<'static>,
    reads_max: u64,
    goes_on: Mutex<F>,
    is_over: AtomicBool,
    steps: AtomicU64,
    /// The first failure of a step that keeps no other from its turn (rule S53).
    failed: Mutex<Option<Error>>,
    /// Row merges have nothing left to do; told to who waits for work.
    rows_are_done: Mutex<bool>,
    rows_changed: Condvar,
}

impl<'d, F: FnMut(&Compaction) -> bool + Send> Course<'d, F> {
    fn of(db: &'d Database, reads_max: u64, goes_on: F) -> Self {
        // Without background threads the caller takes all steps, in an order that can be repeated.
        let threads = if db.has_background() { parallelism() } else { 1 };
        Self {
            db,
            errand: Errand::of_compaction(threads),
            reads_max,
            goes_on: Mutex::new(goes_on),
            is_over: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            failed: Mutex::new(None),
            rows_are_done: Mutex::new(false),
            rows_changed: Condvar::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn has_read_all(&self) -> bool {
        self.db.upkeep.counters.merge_bytes_read.get() > self.reads_max
    }

    /// Tells the caller that a step was taken, and asks whether to go on.
    fn tell(&self) {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.is_over() && !(self.goes_on.lock())(&self.db.compaction(steps)) {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// What a step has done. A full disk and what rule S53 says of end the step and nothing else.
    fn take(&self, step: Result<bool>) -> Result<bool> {
        match self.db.spare(step) {
            Ok(worked) => Ok(worked.unwrap_or(false)),
            // D9: nothing more is written to a disk that failed.
            Err(error) if self.db.poison.check().is_err() => Err(error),
            Err(error) => {
                self.failed.lock().get_or_insert(error);
                Ok(false)
            }
        }
    }

    /// Some steps of everything: the log first, because what leaves it is merged. False if there was nothing to do.
    fn go_on(&self, cut_of: CutOf) -> Result<bool> {
        let db = self.db;
        let mut worked = self.take(has_worked(db.settle_tags_step()))?;
        worked |= self.take(has_worked(db.compact_step_for(&self.errand, Lsn::new(u64::MAX))))?;
        if !worked {
            worked |= self.take(has_worked(db.gone_step_with(cut_of)))?;
            worked |= if self.errand.threads > 1 {
                self.merge_side_by_side()?
            } else {
                self.take(db.maintenance_step(true))?
                    | self.take(has_worked(db.index_merge_step_for(&self.errand)))?
                    | self.take(has_worked(db.row_merge_step_for(&self.errand)))?
            };
            let others = [Database::blob_step, Database::forget_step, Database::census_step];
            for step in others {
                worked |= self.take(has_worked(step(db)))?;
            }
        }
        self.failed.lock().take().map_or(Ok(worked), Err)
    }

    /// Merges rows, and beside them indexes, with the checkpoints for what both have superseded.
    fn merge_side_by_side(&self) -> Result<bool> {
        *self.rows_are_done.lock() = false;
        let works: [&(dyn Fn() -> Result<bool> + Sync); 2] =
            [&|| self.merge_rows(), &|| self.merge_indexes_and_save()];
        let any = AtomicBool::new(false);
        for_each_parallel(&works, works.len(), |work| {
            any.fetch_or(work()?, Ordering::Relaxed);
            Ok::<(), Error>(())
        })?;
        Ok(any.into_inner())
    }

    fn merge_rows(&self) -> Result<bool> {
        let _end = RowsEnd {
            are_done: &self.rows_are_done,
            changed: &self.rows_changed,
        };
        let mut any = false;
        while self.merge_rows_once()? {
            any = true;
            self.rows_changed.notify_all();
        }
        Ok(any)
    }

    fn merge_rows_once(&self) -> Result<bool> {
        if self.is_over() || self.has_read_all() {
            return Ok(false);
        }
        if self.db.upkeep.superseded_bytes() > SUPERSEDED_MAX {
            self.take(self.db.checkpoint_step().map(|()| true))?;
        }
        let worked = self.take(has_worked(self.db.row_merge_step_for(&self.errand)))?;
        if worked {
            self.tell();
        }
        Ok(worked)
    }

    /// Until neither has anything to do and no row merge goes on.
    fn merge_indexes_and_save(&self) -> Result<bool> {
        let mut any = false;
        loop {
            if self.is_over() {
                return Ok(any);
            }
            let mut worked = self.take(self.db.maintenance_step(true))?;
            if !self.has_read_all() {
                worked |= self.take(has_worked(self.db.index_merge_step_for(&self.errand)))?;
            }
            any |= worked;
            if worked {
                self.tell();
                continue;
            }
            let mut rows_are_done = self.rows_are_done.lock();
            if *rows_are_done {
                return Ok(any);
            }
            self.rows_changed.wait_for(&mut rows_are_done, LOOK);
        }
    }
}

/// Says that row merges are done, also after an error or a panic: somebody waits for it.
struct RowsEnd<'c> {
    are_done: &'c Mutex<bool>,
    changed: &'c Condvar,
}

impl Drop for RowsEnd<'_> {
    fn drop(&mut self) {
        *self.are_done.lock() = true;
        self.changed.notify_all();
    }
}

fn has_worked(step: Result<Progress>) -> Result<bool> {
    step.map(|progress| progress == Progress::Worked)
}

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
    /// no more (rule S55). Calls `goes_on` after each step, of at most about 64 MiB and from any thread; false ends the work, and what was
    /// done stays.
    /// True if all was done: what an open snapshot or an unfinished transaction needs stays, and so may what others write meanwhile.
    /// False too if a full disk ended a step.
    ///
    /// # Errors
    /// Those of the steps but for want of space; what was done before stays.
    pub fn compact(&self, goes_on: impl FnMut(&Compaction) -> bool + Send) -> Result<bool> {
        // A checkpoint lets stamps of loads be settled, and what they kept be merged: nothing must be left to do behind it either.
        let mut is_behind = self.log.tail().raw() == self.upkeep.compacted_at.load(Ordering::Relaxed);
        let counters = &self.upkeep.counters;
        let _alone = self.upkeep.begin_compaction();
        let without_space = counters.steps_without_space.get();
        if !is_behind {
            // A disk that has no room for the next segment needs the rest all the more.
            self.spare(self.finish_segment())?;
        }
        let reads_max = counters.merge_bytes_read.get() + self.reads_of_compaction();
        let course = Course::of(self, reads_max, goes_on);
        let mut cut_of = CutOf::All;
        loop {
            self.housekeeping_step();
            let worked = course.go_on(cut_of)?;
            if !worked && cut_of == CutOf::All {
                // What has a slot now keeps it.
                cut_of = CutOf::Slotless;
                continue;
            }
            let is_idle = !worked;
            if is_idle && is_behind {
                break;
            }
            if is_idle {
                self.spare(self.checkpoint_step())?;
            }
            is_behind = is_idle;
            course.tell();
            if course.is_over() {
                return Ok(false);
            }
            if course.has_read_all() {
                self.spare(self.checkpoint_step())?;
                break;
            }
        }
        // What cannot be given back stays.
        self.spare(self.log.give_back_ahead().map_err(Error::from))?;
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
