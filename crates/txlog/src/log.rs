//! Log: the hot log as the engine sees it: reserve, publish, wait, read, close.
//!
//! Why it exists:    a handle that closes the log when the last user drops it; everything it does is one call into `core`.
//! Format / state:   docs/format-log.md.
//! Rules:            D1, D7, D8, D9, D10, D11, D12, D16, D35; each in the module that holds it.
//! Latches and I/O:  `reserve(Space::Spare)` never waits for I/O; `wait_*`, `reserve(Space::Row)`, `reserve_patiently` and a `read` of a chunk
//!                   that is not in memory may.
//! After a crash:    `LogScan` finds the end, `Log::open` continues in a new segment.

use crate::cache::ReadHint;
use crate::core::Core;
use crate::record::RecordRef;
use crate::reservation::Reservation;
use crate::scan::LogEnd;
use crate::segment_scan::SegmentScan;
use crate::stats::LogStats;
use crate::tail::Space;
use crossbeam_epoch::Guard;
use pbxt_base::{Lsn, Result, SegmentId};
use pbxt_io::Poison;
use pbxt_segment::{BlobStore, SegmentStore};
use std::sync::Arc;

/// How far a flush has to bring the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Handed to the operating system: survives the death of the process.
    Written,
    /// Synced: survives a power cut.
    Durable,
}

/// Settings of a log. The defaults are right; tests narrow them.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of chunks kept in memory.
    pub cache_bytes: u64,
    /// Bytes written and not yet synced, at most (D11).
    pub unsynced_bytes_max: u64,
    /// Whether a background thread prepares segments, writes ahead and syncs once a second. Without it the caller calls
    /// `background_step`.
    pub worker: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            cache_bytes: 256 << 20,
            unsynced_bytes_max: 64 << 20,
            worker: true,
        }
    }
}

/// The hot log. Dropping it closes it; call `close` to hear of a failure.
#[derive(Debug)]
pub struct Log {
    pub(crate) core: Arc<Core>,
}

impl Log {
    /// Opens the log behind the end that `LogScan` found, in a new segment (D7), and starts its background thread. The
    /// readable log begins where `end.with_log_start` says, by default at the beginning of the oldest segment.
    ///
    /// # Errors
    /// `NoSpace` if the new segment cannot be had; `Corrupt` if the log ends before it starts; I/O errors.
    pub fn open(
        store: Arc<SegmentStore>,
        blobs: Arc<BlobStore>,
        poison: Arc<Poison>,
        end: LogEnd,
        options: LogOptions,
    ) -> Result<Arc<Log>> {
        Ok(Arc::new(Log {
            core: Core::open(store, blobs, poison, end, options)?,
        }))
    }

    /// Takes space for a record of `len` bytes (a multiple of 8, as `encoded_len` gives it).
    ///
    /// `Space::Row` may wait for the flusher and may be refused for want of disk space. `Space::Spare` takes no latch
    /// that is held across I/O and may use the part of the disk space kept in reserve; it waits only behind a backlog of
    /// 128 chunks.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge` (over `record_bytes_max`), `Poisoned`, `Closed`. Nothing is reserved then.
    #[inline]
    pub fn reserve(&self, len: usize, space: Space) -> Result<Reservation<'_>> {
        self.core.reserve(len, space)
    }

    /// As `reserve`, for callers that may wait for I/O: `Space::Spare` takes of the reserve only where no segment is to be had (D10).
    ///
    /// # Errors
    /// As `reserve`.
    #[inline]
    pub fn reserve_patiently(&self, len: usize, space: Space) -> Result<Reservation<'_>> {
        let reserved = self.reserve(len, Space::Row);
        if space == Space::Row {
            return reserved;
        }
        reserved.or_else(|_| self.reserve(len, Space::Spare))
    }

    /// Bytes of the longest record this log takes.
    pub fn record_bytes_max(&self) -> usize {
        self.core.layout.record_bytes_max()
    }

    /// The position behind everything reserved so far.
    #[inline]
    pub fn tail(&self) -> Lsn {
        Lsn::new(self.core.tail.lsn())
    }

    /// Everything below this survives a power cut.
    #[inline]
    pub fn durable(&self) -> Lsn {
        Lsn::new(self.core.marks.get(Goal::Durable))
    }

    /// Everything below this survives the death of the process.
    #[inline]
    pub fn written(&self) -> Lsn {
        Lsn::new(self.core.marks.get(Goal::Written))
    }

    /// Waits until everything below `lsn` is durable; pass `Reservation::end_lsn`, or `tail()` for all so far. The caller
    /// must hold no unpublished reservation below `lsn`.
    ///
    /// # Errors
    /// `Poisoned` if a write or sync failed; whether the record is durable is then unknown.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.core.wait_for(lsn, Goal::Durable)
    }

    /// Waits until everything below `lsn` is written; as `wait_durable` otherwise.
    ///
    /// # Errors
    /// As `wait_durable`.
    pub fn wait_written(&self, lsn: Lsn) -> Result<()> {
        self.core.wait_for(lsn, Goal::Written)
    }

    /// The record at `lsn`, which must be the position of a published record. From memory if its chunk is there, else
    /// its chunk is loaded and verified. The record stays valid as long as `guard`. Addresses that may lie below the start
    /// of the log are for `try_read`.
    ///
    /// # Errors
    /// `Corrupt` with file and offset if the chunk does not verify or no record stands at `lsn`, as below the
    /// start of the log; I/O errors of the load.
    #[inline]
    pub fn read<'g>(&self, lsn: Lsn, guard: &'g Guard) -> Result<RecordRef<'g>> {
        self.core.read(lsn, ReadHint::Random, guard)
    }

    /// `read` for whoever holds an address that may lie below the log's start: `None` if it does now, or if it did by
    /// the time its segment was found gone (D16).
    ///
    /// # Errors
    /// As `read`.
    #[inline]
    pub fn try_read<'g>(&self, lsn: Lsn, guard: &'g Guard) -> Result<Option<RecordRef<'g>>> {
        self.core.try_read(lsn, ReadHint::Random, guard)
    }

    /// Says that the record at `lsn` will be read: if its chunk is in memory, its bytes are on their way. Changes nothing but time.
    #[inline]
    pub fn prefetch(&self, lsn: Lsn, guard: &Guard) {
        self.core.prefetch(lsn, guard);
    }

    /// `try_read` for a scan that passes once.
    ///
    /// # Errors
    /// As `read`.
    #[inline]
    pub fn try_read_sequential<'g>(&self, lsn: Lsn, guard: &'g Guard) -> Result<Option<RecordRef<'g>>> {
        self.core.try_read(lsn, ReadHint::Sequential, guard)
    }

    /// `read` for a scan that passes once: the chunk may leave memory as soon as there is need.
    ///
    /// # Errors
    /// As `read`.
    #[inline]
    pub fn read_sequential<'g>(&self, lsn: Lsn, guard: &'g Guard) -> Result<RecordRef<'g>> {
        self.core.read(lsn, ReadHint::Sequential, guard)
    }

    /// Where the readable log begins: a version at a lower address is no longer read here (D16).
    #[inline]
    pub fn start(&self) -> Lsn {
        self.core.start()
    }

    /// Raises the start of the log; a lower value changes nothing. Call it when the checkpoint that makes everything
    /// below `lsn` needless is durable. Chunks wholly below leave memory.
    pub fn set_start(&self, lsn: Lsn) {
        self.core.set_start(lsn);
    }

    /// The finished segments that lie wholly below both `below` and the start of the log, rising: their files can be
    /// dropped with `SegmentStore::drop_segment`, in this order.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub fn droppable_segments(&self, below: Lsn) -> Result<Vec<SegmentId>> {
        self.core.droppable_segments(below)
    }

    /// The records of a finished segment, all of them durable; `None` while the log is still being written there.
    ///
    /// # Errors
    /// I/O errors.
    pub fn scan_finished(&self, segment: SegmentId) -> Result<Option<SegmentScan>> {
        match self.core.finished_end(segment) {
            Some(end) => SegmentScan::of_finished(&self.core.files, segment, end).map(Some),
            None => Ok(None),
        }
    }

    /// From its return on records go to segments whose files are made after this call (rule D35).
    ///
    /// # Errors
    /// `NoSpace` if no segment can be had; as `wait_written`.
    pub fn leave_segments(&self) -> Result<()> {
        self.core.leave_segments()
    }

    /// Gives back the room of the log that was set aside ahead, but for what D10 keeps and the next records need (rule D38).
    ///
    /// # Errors
    /// I/O errors; the log goes on all the same.
    pub fn give_back_ahead(&self) -> Result<()> {
        self.core.give_back_ahead()
    }

    /// Writes and syncs everything reserved so far, after a flush that may be running.
    ///
    /// # Errors
    /// As `wait_durable`.
    pub fn flush_step(&self) -> Result<()> {
        self.core.flush_once(Goal::Durable)
    }

    /// One round of the background thread, for callers that opened the log without it.
    pub fn background_step(&self) {
        self.core.background_step();
    }

    /// Takes no more records, stops the background thread, and makes everything durable. Reading goes on.
    ///
    /// # Errors
    /// As `wait_durable`.
    pub fn close(&self) -> Result<()> {
        self.core.close()
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> LogStats {
        self.core.stats()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure; what was acknowledged is durable already.
        drop(self.close());
    }
}
