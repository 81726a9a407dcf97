//! Pacing: which background work comes next, so that none falls behind and nobody in the foreground has to wait for it.
//!
//! Why it exists: homing and merging cost about as much as the writes that cause them. Done in small steps, each chosen by
//! what is most overdue, they keep pace; when the machine is idle they also do what is merely useful.
//! State: `Upkeep` holds what compactor and merges know between steps. All of it can be lost.
//! Rules: S21 a step is at most about 64 MiB; a full disk ends it, its files are removed, and it is tried again later.
//! S22 when the log grows beyond its limit compaction takes every second step at least, merges the others. S35 merges wait for
//! a checkpoint that has much to give back. S36 what idle means, S37 and S38 what is merged then. S43 pauses within a step (breath.rs). S62 what
//! is neither has its turn under load too.
//! Latches and I/O: those of the steps.

use crate::blob_reclaim::BlobAccounts;
use crate::breath::Lag;
use crate::budget::{LIVE_PER_DEAD, LIVE_PER_DEAD_POSSIBLE};
use crate::compact_batch::CompactBatch;
use crate::compactor::Compactor;
use crate::counters::Counter;
use crate::database::Database;
use crate::errand::Errand;
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::forget::Forgetter;
use crate::idle::IdleWatch;
use crate::index_merge::IndexMerger;
use crate::row_merge::RowMerger;
use crate::row_merge_plan::Need;
use crate::set_aside::SetAside;
use parking_lot::Mutex;
use pbxt_base::{Error as StorageError, SegmentId, TableId};
use pbxt_io::{Rank, Worker};
use pbxt_segment::SegmentClass;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a step of background work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There was nothing to do.
    Idle,
    /// Something was done; there may be more.
    Worked,
}

/// What background work knows between steps.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    pub compactor: Mutex<Compactor>,
    pub rows: Mutex<RowMerger>,
    pub indexes: Mutex<IndexMerger>,
    pub forgetter: Mutex<Forgetter>,
    /// Tables of which a loaded run cannot be settled.
    pub unsettled: Mutex<SetAside<TableId>>,
    pub blobs: BlobAccounts,
    pub failures: Failures,
    pub counters: UpkeepCounters,
    /// See `Database::log_floor`.
    floor: AtomicU64,
    /// End of the last segment that the compactor has looked at.
    looked_at: AtomicU64,
    turn: AtomicU64,
    /// The log's end when everything had been compacted that could be (rule S55).
    pub compacted_at: AtomicU64,
    /// Bytes of pieces merged away when the newest checkpoint began.
    given_back: AtomicU64,
    /// How far it is behind (rule S43).
    pub lag: Lag,
    /// The foreground is idle (rule S36).
    is_idle: AtomicBool,
    /// The thread is between two steps of which the first did something.
    is_busy: AtomicBool,
    stopping: AtomicBool,
    /// Compactions on demand that are under way (rule S55).
    compactions: AtomicU64,
    worker: Mutex<Option<Worker>>,
}

/// A compaction on demand, which takes all steps itself.
pub(crate) struct Compacting<'u>(&'u Upkeep);

impl Drop for Compacting<'_> {
    fn drop(&mut self) {
        self.0.compactions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Totals since open.
#[derive(Debug, Default)]
pub struct UpkeepCounters {
    /// Segments of the log read for homing.
    pub segments_compacted: Counter,
    /// Rows homed or found to need no place.
    pub rows_homed: Counter,
    /// Bytes of row pieces written for them.
    pub homing_bytes_written: Counter,
    /// Bytes of pieces that merges read.
    pub merge_bytes_read: Counter,
    /// Bytes of pieces that merges wrote and installed.
    pub merge_bytes_written: Counter,
    /// Steps that a full disk ended.
    pub steps_without_space: Counter,
}

impl UpkeepCounters {
    pub(crate) fn compacted(&self, batch: &CompactBatch, rows: usize, bytes: u64) {
        self.homing_bytes_written.add(bytes);
        self.segments_compacted.add(batch.parts.len() as u64);
        self.rows_homed.add(rows as u64);
    }

    pub(crate) fn merged(&self, read: u64, written: u64) {
        self.merge_bytes_read.add(read);
        self.merge_bytes_written.add(written);
    }
}

impl Upkeep {
    /// As the checkpoint image has it.
    pub(crate) fn restore(blobs: BlobAccounts) -> Self {
        Self {
            blobs,
            ..Self::default()
        }
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.load(Ordering::Relaxed)
    }

    pub(crate) fn note_looked_at(&self, end: u64) {
        self.looked_at.fetch_max(end, Ordering::Relaxed);
    }

    pub(crate) fn raise_floor(&self, lsn: u64) {
        self.floor.fetch_max(lsn, Ordering::AcqRel);
    }

    /// Bytes of pieces that merges have superseded since open.
    pub(crate) fn merged_away(&self) -> u64 {
        self.counters.merge_bytes_read.get()
    }

    /// Of those, what no checkpoint has let go of.
    pub(crate) fn superseded_bytes(&self) -> u64 {
        let given_back = self.given_back.load(Ordering::Relaxed);
        self.merged_away().saturating_sub(given_back)
    }

    /// A checkpoint counts that began when so much had been merged away.
    pub(crate) fn note_given_back(&self, bytes: u64) {
        self.given_back.fetch_max(bytes, Ordering::Relaxed);
    }

    /// True if neither the foreground nor the upkeep thread does anything.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed) && !self.is_busy.load(Ordering::Relaxed)
    }

    /// From now on the threads of background work begin no step of their own, and finish one under way without a pause.
    pub(crate) fn begin_compaction(&self) -> Compacting<'_> {
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Compacting(self)
    }

    /// True if somebody has asked for a compaction, and it is not over.
    pub(crate) fn is_compacting(&self) -> bool {
        self.compactions.load(Ordering::Relaxed) > 0
    }

    /// True if steps that take long are to end as soon as they can, without a result.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// Bytes of all sections of files, and of those that a shape names.
type FileBytes = HashMap<SegmentId, (u64, u64)>;

/// Pause between two looks for work.
const PAUSE: Duration = Duration::from_millis(200);
/// A kind of step.
type Step = fn(&Database, &Errand<'_>) -> Result<Progress>;
/// Steps that cost little and give back what the others have left behind.
const TIDYING: [Step; 3] = [
    |db, _| db.gone_step(),
    |db, _| db.blob_step(),
    |db, _| db.forget_step(),
];
/// Of large values; under load one that is due has such a turn too (rule S63).
const CENSUS: Step = |db, errand| {
    if errand.need.is_more_than_due() && db.census_rests() {
        return Ok(Progress::Idle);
    }
    db.census_step_for(errand.need)
};
/// They have their turn whatever else is due, once in so many (rule S62).
const TURNS_PER_TIDYING: u64 = 8;

impl Database {
    /// One step of whatever is most overdue; when the database is idle, of whatever is useful. Want of disk space is not an
    /// error here: the step is tried again later. A step that fails keeps no other from its turn (rule S53); the error is the first one's.
    pub fn upkeep_step(&self, is_idle: bool) -> Result<Progress> {
        let stepped = self.upkeep_step_for(Need::when(is_idle));
        if let Err(error) = &stepped {
            self.tell_of_step(error);
        }
        stepped
    }

    /// The same, of whatever is needed.
    pub(crate) fn upkeep_step_for(&self, need: Need) -> Result<Progress> {
        let errand = Errand::of_upkeep(need);
        let compacts = self.hot_bytes() > self.homing_limit() || need.is_more_than_due();
        let compact = compacts
            .then_some(|db: &Self, _: &Errand<'_>| db.compact_step())
            .map(|step| step as Step);
        let mut merges: Vec<Step> = Vec::new();
        if !self.gain_is_due() || self.upkeep.superseded_bytes() == 0 {
            merges = vec![Self::row_merge_step_for, Self::index_merge_step_for];
        }
        let turn = self.upkeep.turn.fetch_add(1, Ordering::Relaxed);
        if turn / 2 % 2 == 1 {
            merges.reverse();
        }
        let mut steps: Vec<Step> = vec![|db, _| db.settle_tags_step()];
        if turn.is_multiple_of(2) {
            steps.extend(compact);
            steps.extend(merges);
        } else {
            steps.extend(merges);
            steps.extend(compact);
        }
        let (mut failed, mut worked) = (None, false);
        if turn.is_multiple_of(TURNS_PER_TIDYING) {
            for step in TIDYING {
                worked |= self.take_step(step, &errand, &mut failed)?;
            }
            if !need.is_more_than_due() {
                worked |= self.take_step(CENSUS, &errand, &mut failed)?;
            }
        } else {
            steps.extend(TIDYING);
        }
        steps.push(CENSUS);
        for step in steps {
            if self.take_step(step, &errand, &mut failed)? {
                worked = true;
                break;
            }
        }
        match failed {
            Some(error) => Err(error),
            None if worked => Ok(Progress::Worked),
            None => Ok(Progress::Idle),
        }
    }

    /// True if the step did something. The first that fails for a reason of its own is noted in `failed`; an error is returned where
    /// nothing more may be done.
    fn take_step(&self, step: Step, errand: &Errand<'_>, failed: &mut Option<Error>) -> Result<bool> {
        match step(self, errand) {
            Ok(progress) => return Ok(progress == Progress::Worked),
            Err(Error::Storage(StorageError::NoSpace { .. })) => {
                self.upkeep.counters.steps_without_space.add(1);
            }
            // D9: nothing more is written to a disk that failed.
            Err(error) if self.poison.check().is_err() => return Err(failed.take().unwrap_or(error)),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
        Ok(false)
    }

    /// Kinds of background work that are running, or that will be done without anything else happening; 0 when background
    /// work is over. What waits for a checkpoint that is not due, or for a transaction to end, does not count. A poisoned
    /// database has nothing to do. Counting may open a segment of the log.
    pub fn background_jobs(&self) -> Result<u64> {
        if self.poison.check().is_err() {
            return Ok(0);
        }
        let upkeep = &self.upkeep;
        let compacts = match upkeep.compactor.try_lock() {
            Some(compactor) => compactor.is_due(self)?,
            None => true,
        };
        let merges_rows = upkeep.rows.try_lock().is_none_or(|rows| rows.is_due(self));
        let merges_indexes = upkeep
            .indexes
            .try_lock()
            .is_none_or(|indexes| indexes.is_due(self));
        let jobs = [
            self.checkpoint_is_coming(),
            self.settle_tags_due(),
            compacts,
            merges_rows,
            merges_indexes,
            self.gone_due(),
            self.census_due()?,
        ];
        let count = jobs.iter().filter(|is_due| **is_due).count() as u64;
        Ok(count.max(u64::from(upkeep.is_busy.load(Ordering::Relaxed))))
    }

    /// Starts the thread that takes these steps.
    pub(crate) fn start_upkeep(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let mut watch = IdleWatch::default();
        let step = move || {
            let Some(db) = weak.upgrade() else { return };
            // Failures have been told (D9, S65).
            while !db.upkeep.is_stopping() && !db.upkeep.is_compacting() {
                let is_idle = watch.look(db.clock.now_millis(), db.log.tail().raw());
                db.upkeep.is_idle.store(is_idle, Ordering::Relaxed);
                let _breathing = db.begin_breathing(is_idle);
                if !matches!(db.upkeep_step(is_idle), Ok(Progress::Worked)) {
                    break;
                }
                db.upkeep.is_busy.store(true, Ordering::Relaxed);
            }
            db.upkeep.is_busy.store(false, Ordering::Relaxed);
        };
        let worker = Worker::spawn_ranked("pbxt-upkeep", Rank::Behind, Arc::clone(&self.poison), PAUSE, step);
        let failed = |source| StorageError::Io {
            file: self.store.location(),
            op: "start a thread for",
            source,
        };
        *self.upkeep.worker.lock() = Some(worker.map_err(failed)?);
        Ok(())
    }

    /// Lets the thread look at once.
    pub(crate) fn wake_upkeep(&self) {
        if let Some(worker) = &*self.upkeep.worker.lock() {
            worker.wake();
        }
    }

    /// Stops the thread, after the part of a step that cannot be left.
    pub(crate) fn stop_upkeep(&self) {
        self.upkeep.stopping.store(true, Ordering::Release);
        let worker = self.upkeep.worker.lock().take();
        if let Some(mut worker) = worker {
            worker.stop();
        }
    }

    /// Totals of background work.
    pub fn upkeep_counters(&self) -> &UpkeepCounters {
        &self.upkeep.counters
    }

    /// Files of rows whose living pieces are to be rewritten (`sparse_of`).
    pub(crate) fn sparse_files(&self, need: Need) -> HashSet<SegmentId> {
        let mut files = FileBytes::new();
        for table in self.catalog.tables() {
            let shape = table.base.shape();
            for piece in shape.runs.iter().flat_map(|run| &run.pieces) {
                let all = || {
                    piece
                        .file
                        .sections()
                        .iter()
                        .map(|section| section.stored_bytes)
                        .sum()
                };
                let (_, live) = files.entry(piece.file.id()).or_insert_with(|| (all(), 0));
                *live += piece.stored_bytes();
            }
        }
        self.sparse_of(SegmentClass::Cold, files, need)
    }

    /// The same of files of index runs.
    pub(crate) fn sparse_index_files(&self, need: Need) -> HashSet<SegmentId> {
        let mut files = FileBytes::new();
        for table in self.catalog.tables() {
            for index in &table.indexes {
                for piece in index.parts().runs.iter().flat_map(|run| &run.pieces) {
                    let found = files.entry(piece.reference().0);
                    found.or_insert_with(|| (piece.bytes_beside(), 0)).1 += piece.stored_bytes();
                }
            }
        }
        self.sparse_of(SegmentClass::Meta, files, need)
    }

    /// Those of which less than half is named by a shape (rule S14), and, while too much in all files is dead, the one of which most is
    /// (rule S39); all of which a part is dead if all is asked for (rule OP2). A file that a job still holds is not looked at.
    fn sparse_of(&self, class: SegmentClass, mut files: FileBytes, need: Need) -> HashSet<SegmentId> {
        files.retain(|id, _| !self.flight.holds(class, *id));
        if need == Need::Possible {
            let wastes = |(all, live): &(u64, u64)| (all - live) * LIVE_PER_DEAD_POSSIBLE > *live;
            files.retain(|_, bytes| wastes(bytes));
            return files.into_keys().collect();
        }
        let sum = files
            .values()
            .fold((0, 0), |sum, (all, live)| (sum.0 + all, sum.1 + live));
        let is_too_much = (sum.0 - sum.1) * LIVE_PER_DEAD > sum.1;
        let deadest = files
            .iter()
            .filter(|(_, (all, live))| is_too_much && live < all)
            .max_by_key(|(_, (all, live))| (all - live) * 1000 / all.max(&1));
        let deadest = deadest.map(|(id, _)| *id);
        let half_dead = files.into_iter().filter(|(_, (all, live))| live * 2 < *all);
        half_dead.map(|(id, _)| id).chain(deadest).collect()
    }
}
