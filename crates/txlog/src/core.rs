//! Core: the state of an open log, shared by its users and its background thread.
//!
//! Why it exists:    tail, chunks, cache, flusher and marks belong together and are used by the modules of this crate; the
//!                   thread needs them for as long as it runs, so `Log` is a handle and this is what it holds.
//! Format / state:   open -> (poisoned | closed); poisoned and closed logs can still be read.
//! Rules:            D7, D9, D16; the others in the modules that extend this type.
//! Latches and I/O:  order: flush latch, preparing latch, opening latch, then filled, ring and worker latches. Only
//!                   the flush and the preparing latch are held across I/O.
//! After a crash:    nothing of this is on disk.

use crate::cache::Cache;
use crate::chunk::{BufferPool, Chunk};
use crate::directory::{Directory, check_distance};
use crate::files::HotFiles;
use crate::flush::Flusher;
use crate::layout::Layout;
use crate::log::{Goal, LogOptions};
use crate::marks::Marks;
use crate::opener::{BATCH_SLOTS, Backlog, Opener};
use crate::reservation::Reservation;
use crate::scan::LogEnd;
use crate::stats::{Counters, LogStats};
use crate::tail::{BATCH_HEADER_BYTES, Space, Tail};
use parking_lot::{Condvar, Mutex};
use pbxt_base::{Error, PoisonCause, Result, invariant};
use pbxt_io::{Clock, Poison, SystemClock, Worker};
use pbxt_segment::{BlobStore, SegmentStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The background thread runs at least this often; half of what D11 allows between two syncs.
const WORKER_PAUSE: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) layout: Layout,
    pub(crate) tail: Tail,
    pub(crate) directory: Directory,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) cache: Cache,
    pub(crate) opener: Mutex<Opener>,
    pub(crate) backlog: Backlog,
    /// Held by the thread that prepares segments.
    pub(crate) preparing: Mutex<()>,
    pub(crate) flusher: Mutex<Flusher>,
    pub(crate) marks: Marks,
    filled: Mutex<()>,
    filled_changed: Condvar,
    pub(crate) files: HotFiles,
    pub(crate) blobs: Arc<BlobStore>,
    poison: Arc<Poison>,
    closed: AtomicBool,
    pub(crate) clock: SystemClock,
    pub(crate) counters: Counters,
    pub(crate) options: LogOptions,
    /// How the log ended when it was opened; what lies before is read with its cuts in mind.
    pub(crate) past: LogEnd,
    /// Nothing below this is read any more (D16).
    pub(crate) start: AtomicU64,
    worker: Mutex<Option<Worker>>,
}

impl Core {
    /// See `Log::open`.
    pub(crate) fn open(
        store: Arc<SegmentStore>,
        blobs: Arc<BlobStore>,
        poison: Arc<Poison>,
        end: LogEnd,
        options: LogOptions,
    ) -> Result<Arc<Core>> {
        let files = HotFiles::new(store);
        let layout = files.layout();
        end.check_log_start(&files)?;
        let (segment, prepared_end) = files.make_room_behind(&end)?;
        let start = layout.segment_body(segment);
        let chunk = layout.chunk_of(start);
        check_distance(chunk, layout.chunk_of(end.log_start.raw()))?;
        let file = files.begin(segment, end.segment, end.cut.raw(), end.checksum)?;
        let sequence = end.sequence + 1;
        let flusher = Flusher {
            next_sequence: sequence,
            previous: end.checksum,
            durable_sequence: end.sequence,
            incarnation: files.incarnation(),
            segment,
            file,
            unsynced_bytes: 0,
            synced_at_millis: 0,
            spans: Vec::new(),
        };
        let pool = BufferPool::new(layout.chunk_bytes() as usize);
        let opener = Opener {
            sequence,
            batch_start: start,
            chunk,
            prepared_end,
        };
        let core = Core {
            layout,
            tail: Tail::new(start, sequence, BATCH_SLOTS),
            directory: Directory::new(),
            cache: Cache::new(options.cache_bytes, layout.chunk_bytes()),
            backlog: Backlog::starting_at(chunk, sequence),
            preparing: Mutex::new(()),
            marks: Marks::starting_at(start + BATCH_HEADER_BYTES),
            flusher: Mutex::new(flusher),
            filled: Mutex::new(()),
            filled_changed: Condvar::new(),
            files,
            blobs,
            poison,
            closed: AtomicBool::new(false),
            clock: SystemClock::new(),
            counters: Counters::default(),
            options,
            worker: Mutex::new(None),
            start: AtomicU64::new(end.log_start.raw()),
            past: end,
            opener: Mutex::new(opener),
            pool,
        };
        core.install_first_chunk(chunk);
        core.give_back_ahead()?;
        let core = Arc::new(core);
        core.start_worker()?;
        Ok(core)
    }

    fn install_first_chunk(&self, chunk: u64) {
        let guard = crossbeam_epoch::pin();
        self.directory.install(
            chunk,
            Chunk::filling(self.layout.chunk_start(chunk), &self.pool),
            &guard,
        );
        self.cache.note_installed();
        self.publish_ends(&self.opener.lock());
    }

    fn start_worker(self: &Arc<Core>) -> Result<()> {
        if !self.options.worker {
            return Ok(());
        }
        let core = Arc::clone(self);
        let step = move || core.worker_step();
        let worker = Worker::spawn("pbxt-log", Arc::clone(&self.poison), WORKER_PAUSE, step);
        let worker = worker.map_err(|source| Error::Io {
            file: "pbxt-log".into(),
            op: "start the thread",
            source,
        })?;
        *self.worker.lock() = Some(worker);
        Ok(())
    }

    /// See `Log::reserve`.
    #[inline]
    pub(crate) fn reserve(&self, len: usize, space: Space) -> Result<Reservation<'_>> {
        invariant!(
            len.is_multiple_of(8) && len >= 8,
            "D8: records are multiples of 8 bytes"
        );
        let limit = self.layout.record_bytes_max();
        if len > limit {
            return Err(Error::TooLarge {
                what: "a log record",
                bytes: len as u64,
                limit: limit as u64,
            });
        }
        let claim = match self.tail.try_reserve(len as u64, space) {
            Some(claim) => claim,
            None => self.reserve_slow(len as u64, space)?,
        };
        // SAFETY: an unwritten chunk stays in the directory (D12), and this one cannot be written before the claim is
        // released (D8); so no guard is needed to keep it.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let chunk = self.directory.get(self.layout.chunk_of(claim.lsn), guard);
        let chunk = chunk.expect("D8: memory is there before the tail enters it");
        let offset = (claim.lsn - chunk.start()) as usize;
        let bytes = chunk.buffer().pointer(offset, len);
        // SAFETY: the tail gave these bytes to this claim alone, and they stay until it is released.
        Ok(unsafe { Reservation::new(self, claim.lsn, bytes, len, claim.slot) })
    }

    /// One round of the work the background thread does: prepare the next segment, write and sync what there is.
    /// Want of space is not reported here; the row that needs the space gets it.
    pub(crate) fn background_step(&self) {
        if self.check_usable().is_err() {
            return;
        }
        let prepared = self.prepare_ahead();
        let flushed = self.flush_once(Goal::Durable);
        // A failed flush has poisoned already, and a failed preparation comes back to the first row that needs it.
        drop((prepared, flushed));
    }

    /// What the background thread does when it is woken, and at least twice a second: prepare, write; and sync when much
    /// has been written since the last sync, or half a second has passed (D11).
    pub(crate) fn worker_step(&self) {
        let pause = WORKER_PAUSE.as_millis() as u64;
        let is_due = {
            let flusher = self.flusher.lock();
            flusher.unsynced_bytes >= self.options.unsynced_bytes_max / 4
                || self.clock.now_millis().saturating_sub(flusher.synced_at_millis) >= pause
        };
        // Whoever met this latch taken sleeps until somebody who had it says that it is free.
        self.marks.wake_all();
        if self.check_usable().is_ok() {
            let prepared = self.prepare_ahead();
            let flushed = self.flush_once(if is_due { Goal::Durable } else { Goal::Written });
            // As in `background_step`: whoever needs the space or the sync gets the error.
            drop((prepared, flushed));
        }
    }

    /// See `Log::close`. Joins the background thread, which ends its share of the core.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.publish_ends(&self.opener.lock());
        let worker = self.worker.lock().take();
        drop(worker);
        self.flush_once(Goal::Durable)?;
        let end = self.opener.lock().batch_start;
        // A failure costs room and nothing else: the next opening begins another segment (D7).
        drop(self.give_back_at_close());
        self.files.note_closed(end)
    }

    /// Fails if no record can be taken any more.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.poison.check()?;
        if self.closed.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// Fails if nothing can be written any more; a closed log still writes what it has taken.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.poison.check()
    }

    /// Poisons (D9) and stops the fast path.
    pub(crate) fn fail(&self, cause: PoisonCause, reason: &str) {
        self.poison.set(cause, reason);
        self.publish_ends(&self.opener.lock());
    }

    /// How far the batches of a chunk that is not in memory are valid; `None` if the log does not reach it.
    pub(crate) fn valid_end(&self, chunk: u64) -> Option<u64> {
        if chunk > self.layout.chunk_of(self.tail.lsn()) {
            return None;
        }
        let chunk_end = self.layout.chunk_end(chunk);
        let segment = self.layout.segment_of(self.layout.chunk_start(chunk));
        if segment > self.past.segment {
            return self.backlog.is_written(chunk).then_some(chunk_end);
        }
        self.past.end_of(segment).map(|end| end.min(chunk_end))
    }

    pub(crate) fn stats(&self) -> LogStats {
        self.counters.read(self.cache.bytes(), self.pool.made_bytes())
    }

    pub(crate) fn wake_worker(&self) {
        if let Some(worker) = &*self.worker.lock() {
            worker.wake();
        }
    }

    /// Wakes the flusher that sleeps for a batch to become whole.
    #[cold]
    pub(crate) fn wake_filled(&self) {
        drop(self.filled.lock());
        self.filled_changed.notify_all();
    }

    /// Waits until batch `sequence` is whole. Its writers hold reservations for the time of a copy, so this is short;
    /// the mark is left under the latch, so the release that completes the batch is not missed.
    pub(crate) fn wait_until_whole(&self, sequence: u64) -> crate::tail::BatchSpan {
        for _ in 0..64 {
            if let Some(span) = self.tail.whole(sequence) {
                return span;
            }
            std::hint::spin_loop();
        }
        let mut filled = self.filled.lock();
        loop {
            if let Some(span) = self.tail.whole_or_mark(sequence) {
                return span;
            }
            self.filled_changed.wait(&mut filled);
        }
    }
}
