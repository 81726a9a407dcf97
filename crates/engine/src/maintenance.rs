//! Maintenance: when checkpoints are made, and what is known about them.
//!
//! Why it exists: a checkpoint is due when recovery would read too much log or index entries take too much memory; both grow
//! with every statement, so one thread looks at them all the time and writers feel it only when it cannot keep up.
//! State: figures for status reports; the limits, which follow from the cache's size.
//! Rules: D25 a writer is slowed down, never stopped (pressure.rs). D28, D29 a checkpoint that gives back enough is due, less
//! is enough when the database is idle (budget.rs). A failed checkpoint is tried again after a pause.
//! Latches and I/O: one turn for checkpoints, held for a whole one.
//! After a crash: nothing of this is on disk.

use crate::database::Database;
use crate::errand::Errand;
use crate::error::Result;
use parking_lot::{Mutex, MutexGuard};
use pbxt_base::{Error as StorageError, Lsn};
use pbxt_io::{Clock, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Log behind the last checkpoint that recovery may have to read, at most and at least.
const LOG_BYTES: (u64, u64) = (32 << 20, 256 << 20);
/// Least limit of the memory that trees take.
const TREE_BYTES_MIN: u64 = 16 << 20;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after a failure.
const RETRY_MILLIS: u64 = 5_000;
/// Pause between two looks of who has ordered a checkpoint.
const ORDER_LOOK: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Maintenance {
    turn: Mutex<()>,
    /// LSN of the newest durable checkpoint; 0 without one.
    start: AtomicU64,
    /// The log's end when nothing was left to be saved.
    quiet_at: AtomicU64,
    checkpoints: AtomicU64,
    last_millis: AtomicU64,
    failures: AtomicU64,
    running: AtomicU64,
    tree_bytes: AtomicU64,
    log_limit: u64,
    tree_limit: u64,
    retry_at: AtomicU64,
    /// A checkpoint is wanted that begins beyond this LSN.
    ordered: AtomicU64,
    /// LSN of the newest durable checkpoint of which nothing is left to do: its files are gone, and so is its snapshot.
    ended: AtomicU64,
    /// Bytes of files of dropped tables and indexes, and of dead values, that wait for a checkpoint.
    dropped: AtomicU64,
    /// How much had been merged away when files without a name were counted, and their bytes.
    pub unnamed: Mutex<(u64, u64)>,
    /// Loads whose records lie at or behind the newest durable checkpoint: LSN of their stamp, of the record (rule D23).
    loads: Mutex<Vec<(Lsn, Lsn)>>,
    /// Samples of indexes that questions have taken, and how many of them the newest checkpoint has (rule ST5).
    samples: AtomicU64,
    samples_saved: AtomicU64,
    worker: Mutex<Option<Worker>>,
}

/// Figures about checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStatus {
    /// Made since open.
    pub checkpoints: u64,
    /// Failed since open.
    pub failures: u64,
    /// Milliseconds the last one took.
    pub last_millis: u64,
    /// Running now.
    pub running: u64,
    /// LSN from which recovery would read the log.
    pub start: u64,
    /// Bytes of index entries in memory when last looked at.
    pub tree_bytes: u64,
}

/// The right to make a checkpoint.
pub(crate) struct CheckpointTurn<'a> {
    maintenance: &'a Maintenance,
    clock: &'a dyn Clock,
    began: u64,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for CheckpointTurn<'_> {
    fn drop(&mut self) {
        let took = self.clock.now_millis().saturating_sub(self.began);
        self.maintenance.last_millis.store(took, Ordering::Relaxed);
        self.maintenance.running.fetch_sub(1, Ordering::Relaxed);
        let start = self.maintenance.start.load(Ordering::Acquire);
        self.maintenance.ended.fetch_max(start, Ordering::AcqRel);
    }
}

impl Maintenance {
    /// For a cache of this size.
    pub(crate) fn new(cache_bytes: u64) -> Self {
        Self {
            turn: Mutex::new(()),
            start: AtomicU64::new(0),
            quiet_at: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            last_millis: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            running: AtomicU64::new(0),
            tree_bytes: AtomicU64::new(0),
            log_limit: cache_bytes.clamp(LOG_BYTES.0, LOG_BYTES.1),
            tree_limit: (cache_bytes / 8).max(TREE_BYTES_MIN),
            retry_at: AtomicU64::new(0),
            ordered: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unnamed: Mutex::default(),
            loads: Mutex::new(Vec::new()),
            samples: AtomicU64::new(0),
            samples_saved: AtomicU64::new(0),
            worker: Mutex::new(None),
        }
    }

    /// What opening found: where recovery began, and the log's end if there was nothing behind.
    pub(crate) fn note_opened(&self, start: Option<Lsn>, quiet_at: Option<Lsn>) {
        self.start.store(start.map_or(0, Lsn::raw), Ordering::Relaxed);
        self.quiet_at
            .store(quiet_at.map_or(0, Lsn::raw), Ordering::Relaxed);
    }

    /// Waits for the turn.
    pub(crate) fn begin<'a>(&'a self, db: &'a Database) -> CheckpointTurn<'a> {
        let turn = self.turn.lock();
        self.running.fetch_add(1, Ordering::Relaxed);
        CheckpointTurn {
            maintenance: self,
            clock: &*db.clock,
            began: db.clock.now_millis(),
            _turn: turn,
        }
    }

    /// A record of a load with this stamp is in the log, or was found there. Called inside the operation that appends it.
    pub(crate) fn note_load(&self, stamp: Lsn, record: Lsn) {
        self.loads.lock().push((stamp, record));
    }

    /// A table with so many bytes of files is gone.
    pub(crate) fn note_dropped(&self, bytes: u64) {
        self.dropped.fetch_add(bytes, Ordering::Release);
    }

    /// Bytes of what is gone: a checkpoint that begins now gives them back.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.dropped.load(Ordering::Acquire)
    }

    /// A question has taken a sample, and it is in its place.
    pub(crate) fn note_sample(&self) {
        self.samples.fetch_add(1, Ordering::Release);
    }

    /// Samples that questions have taken: a checkpoint that begins now has them.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Acquire)
    }

    /// A checkpoint counts that has the first so many samples.
    pub(crate) fn note_samples_saved(&self, samples: u64) {
        self.samples_saved.store(samples, Ordering::Relaxed);
    }

    fn has_unsaved_samples(&self) -> bool {
        self.samples() != self.samples_saved.load(Ordering::Relaxed)
    }

    /// A checkpoint counts, which began when so many bytes were gone. It names what went since, so that waits for the next one.
    pub(crate) fn note_done(&self, start: Lsn, dropped: u64) {
        let mut loads = self.loads.lock();
        loads.retain(|(_, record)| *record >= start);
        self.start.store(start.raw(), Ordering::Release);
        drop(loads);
        self.quiet_at.store(start.raw(), Ordering::Relaxed);
        self.dropped.fetch_sub(dropped, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }
}

impl Database {
    /// The log's tail names no run whose stamp lies below this: such runs may be settled and merged (rule D23). It is the
    /// LSN of the newest durable checkpoint, or the stamp of a load that began before and ended behind it.
    pub fn checkpoint_start(&self) -> Lsn {
        let loads = self.maintenance.loads.lock();
        let start = Lsn::new(self.maintenance.start.load(Ordering::Acquire));
        loads.iter().fold(start, |least, (stamp, _)| least.min(*stamp))
    }

    /// Figures about checkpoints.
    pub fn maintenance_status(&self) -> MaintenanceStatus {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let figures = &self.maintenance;
        MaintenanceStatus {
            checkpoints: get(&figures.checkpoints),
            failures: get(&figures.failures),
            last_millis: get(&figures.last_millis),
            running: get(&figures.running),
            start: get(&figures.start),
            tree_bytes: get(&figures.tree_bytes),
        }
    }

    /// True if recovery would read too much log, index entries take too much memory, or unused files too much room.
    pub fn checkpoint_due(&self) -> bool {
        let trees: u64 = self
            .catalog
            .tables()
            .iter()
            .map(|table| table.index_bytes())
            .sum();
        let figures = &self.maintenance;
        figures.tree_bytes.store(trees, Ordering::Relaxed);
        trees >= figures.tree_limit || self.log_behind_checkpoint() >= figures.log_limit || self.gain_is_due()
    }

    /// Keeps the figure of D25 true while a checkpoint runs, which may take long, and between attempts.
    pub(crate) fn watch_trees(&self) {
        let figures = &self.maintenance;
        let is_waiting = self.clock.now_millis() < figures.retry_at.load(Ordering::Relaxed);
        if is_waiting || figures.running.load(Ordering::Relaxed) > 0 {
            self.checkpoint_due();
        }
    }

    /// Bytes of log that recovery would read.
    pub(crate) fn log_behind_checkpoint(&self) -> u64 {
        // The first segment has number 1.
        let first = self.store.geometry().hot_segment_bytes;
        let start = self.maintenance.start.load(Ordering::Relaxed);
        let start = start.max(self.log.start().raw()).max(first);
        self.log.tail().raw().saturating_sub(start)
    }

    /// True if a checkpoint is being made or due, or will be as soon as nothing else happens.
    pub(crate) fn checkpoint_is_coming(&self) -> bool {
        self.maintenance.running.load(Ordering::Relaxed) > 0
            || self.checkpoint_due()
            || self.idle_gain_is_due()
    }

    /// One round of the checkpoint thread; `is_idle`: the foreground is, and no other background work is left (rule D29). True if a
    /// checkpoint was made.
    pub fn maintenance_step(&self, is_idle: bool) -> Result<bool> {
        let figures = &self.maintenance;
        let ordered = figures.ordered.load(Ordering::Acquire);
        let is_ordered = || ordered > 0 && figures.start.load(Ordering::Acquire) <= ordered;
        let is_due = || self.checkpoint_due() || is_ordered() || is_idle && self.idle_gain_is_due();
        // One that is being made by somebody else is no reason for another; what it leaves is asked for again.
        let is_made = figures.running.load(Ordering::Relaxed) > 0;
        if is_made || self.clock.now_millis() < figures.retry_at.load(Ordering::Relaxed) || !is_due() {
            return Ok(false);
        }
        let made = {
            // Only now: how far all tables are behind is asked for a checkpoint, not for each look.
            let _breathing = self.begin_breathing(is_idle);
            self.checkpoint_step()
        };
        self.tell_of_checkpoint(&made);
        if made.is_err() {
            figures.failures.fetch_add(1, Ordering::Relaxed);
            let retry = self.clock.now_millis() + RETRY_MILLIS;
            figures.retry_at.store(retry, Ordering::Relaxed);
        }
        self.checkpoint_due();
        made.map(|()| true)
    }

    /// Waits for a checkpoint that is being made: its snapshot is older than what was committed since it began. Those that follow have
    /// younger ones.
    pub(crate) fn let_checkpoint_end(&self, errand: &Errand<'_>) -> Result<()> {
        drop(errand.turn(self, &self.maintenance.turn)?);
        Ok(())
    }

    /// A checkpoint for a command (rule OP6). The thread makes it, where there is one: who waits for it can be killed.
    pub(crate) fn checkpoint_for(&self, errand: &Errand<'_>) -> Result<()> {
        errand.check(self)?;
        let figures = &self.maintenance;
        let (wanted, failed) = (self.log.tail().raw(), figures.failures.load(Ordering::Relaxed));
        figures.ordered.fetch_max(wanted, Ordering::AcqRel);
        if !self.wake_background() {
            return self.checkpoint_step();
        }
        while figures.ended.load(Ordering::Acquire) <= wanted {
            errand.check(self)?;
            self.poison.check()?;
            if figures.failures.load(Ordering::Relaxed) != failed {
                // For its error.
                return self.checkpoint_step();
            }
            std::thread::sleep(ORDER_LOOK);
        }
        Ok(())
    }

    /// Bytes that trees took when last looked at, and how many they should take at most.
    pub(crate) fn tree_bytes(&self) -> (u64, u64) {
        let figures = &self.maintenance;
        (figures.tree_bytes.load(Ordering::Relaxed), figures.tree_limit)
    }

    /// Lets background threads look at once for what is to be done. False if there are none.
    pub(crate) fn wake_background(&self) -> bool {
        let worker = self.maintenance.worker.lock();
        let Some(worker) = &*worker else { return false };
        worker.wake();
        self.wake_upkeep();
        true
    }

    /// Starts the checkpoint thread.
    pub(crate) fn start_checkpoints(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let step = move || {
            if let Some(db) = weak.upgrade() {
                // A failure is counted, told (D9, S65) and tried again.
                let _ = db.maintenance_step(db.upkeep.is_at_rest());
            }
        };
        let worker = Worker::spawn("pbxt-checkpoint", Arc::clone(&self.poison), PAUSE, step);
        let failed = |source| StorageError::Io {
            file: self.store.location(),
            op: "start a thread for",
            source,
        };
        *self.maintenance.worker.lock() = Some(worker.map_err(failed)?);
        Ok(())
    }

    /// Stops the checkpoint thread, after the checkpoint it may be making.
    pub(crate) fn stop_checkpoints(&self) {
        let worker = self.maintenance.worker.lock().take();
        if let Some(mut worker) = worker {
            worker.stop();
        }
    }

    /// The last checkpoint of an orderly close, so that the next opening reads no log. That it fails is no reason not to
    /// close: the log has everything.
    pub(crate) fn checkpoint_for_close(&self) -> Result<()> {
        let is_quiet = self.maintenance.quiet_at.load(Ordering::Relaxed) == self.log.tail().raw();
        if is_quiet && !self.maintenance.has_unsaved_samples() {
            return Ok(());
        }
        if self.checkpoint_step().is_err() {
            self.maintenance.failures.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.poison.check()?)
    }
}
