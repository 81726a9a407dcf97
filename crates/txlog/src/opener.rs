//! Opening the next chunk: the slow path of a reservation, and the limits that say when it is taken.
//!
//! Why it exists:    most reservations are one compare-and-swap; the one that meets the end of the open chunk has to find
//!                   memory, respect the disk and the flusher's backlog, and do so without ever making END wait for I/O.
//! State:            the open chunk, its batch's full sequence, how far segments are prepared. Limits in `Tail` mirror it.
//! Rules:            D8 (slots are ready before they are named), D10 (the reserve is for spare reservations; rows wait while
//!                   64 chunks are unwritten), D35 (segments are left chunk by chunk), D38 (room that nobody needs is given back).
//! Latches and I/O:  the opening latch; memory is allocated under it, never I/O, never another latch but the pool's.
//! After a crash:    nothing of this is on disk; segments prepared ahead are found empty.

use crate::chunk::Chunk;
use crate::core::Core;
use crate::directory::check_distance;
use crate::layout::{Layout, next_batch_start};
use crate::log::Goal;
use crate::tail::{BATCH_HEADER_BYTES, Claim, Space};
use pbxt_base::{Error, Result, SegmentId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows wait while more chunks than this are unwritten.
pub(crate) const ROW_CHUNKS_MAX: u64 = 64;
/// Spare reservations may go on for as many again; a backlog that long means that nothing has been written for ages.
pub(crate) const SPARE_CHUNKS_MAX: u64 = 2 * ROW_CHUNKS_MAX;
/// Batch slots: more than batches can be unwritten, as each chunk has one and each flush adds at most one.
pub(crate) const BATCH_SLOTS: usize = 256;
/// The worker is woken when this many bytes are unwritten.
const WAKE_BYTES: u64 = 1 << 20;

/// What the opening latch protects.
#[derive(Debug)]
pub(crate) struct Opener {
    /// Full sequence of the open batch.
    pub(crate) sequence: u64,
    /// LSN of the open batch's header.
    pub(crate) batch_start: u64,
    /// The chunk being filled.
    pub(crate) chunk: u64,
    /// LSN behind the last byte that has room: the end of a segment, or a place in one (D38).
    pub(crate) prepared_end: u64,
}

/// How one attempt to reserve under the opening latch ended.
#[derive(Debug)]
enum Attempt {
    /// Space was taken.
    Taken(Claim),
    /// A chunk was opened, and others were faster: try again.
    Again,
    /// The flusher must write first, behind this LSN.
    Backlog(u64),
    /// A segment must be prepared first.
    Segment,
}

impl Opener {
    /// LSN that no row may pass (D10).
    fn row_cap(&self, layout: &Layout) -> u64 {
        self.prepared_end.saturating_sub(layout.reserve_bytes())
    }
}

/// Where the unwritten part of the log begins; published by the flusher for the limits above.
#[derive(Debug)]
pub(crate) struct Backlog {
    chunk: AtomicU64,
    sequence: AtomicU64,
}

impl Backlog {
    pub(crate) fn starting_at(chunk: u64, sequence: u64) -> Backlog {
        Backlog {
            chunk: AtomicU64::new(chunk),
            sequence: AtomicU64::new(sequence),
        }
    }

    fn first_unwritten(&self) -> u64 {
        self.chunk.load(Ordering::Acquire)
    }

    /// True if all of the chunk is written.
    pub(crate) fn is_written(&self, chunk: u64) -> bool {
        chunk < self.first_unwritten()
    }

    fn first_unwritten_sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Everything before this chunk and this batch is written.
    pub(crate) fn advance(&self, chunk: u64, sequence: u64) {
        self.sequence.store(sequence, Ordering::Release);
        self.chunk.store(chunk, Ordering::Release);
    }
}

impl Core {
    /// Reserves when the fast path could not.
    #[cold]
    pub(crate) fn reserve_slow(&self, len: u64, space: Space) -> Result<Claim> {
        loop {
            match self.try_open(len, space)? {
                Attempt::Taken(claim) => return Ok(claim),
                Attempt::Again => {}
                Attempt::Backlog(before) => self.wait_for_backlog(before)?,
                Attempt::Segment if space == Space::Row => self.prepare_ahead()?,
                Attempt::Segment => {
                    return Err(Error::NoSpace {
                        what: "the transaction log, its reserve included".into(),
                    });
                }
            }
        }
    }

    fn try_open(&self, len: u64, space: Space) -> Result<Attempt> {
        let mut opener = self.opener.lock();
        self.check_usable()?;
        if let Some(claim) = self.tail.try_reserve(len, space) {
            return Ok(Attempt::Taken(claim));
        }
        if self.tail.lsn() + len <= self.layout.chunk_room_end(opener.chunk) {
            // Only the reserve of D10 stands in the way of a record that fits.
            return Ok(Attempt::Segment);
        }
        if let Some(obstacle) = self.open_next(&mut opener, len, space)? {
            return Ok(obstacle);
        }
        Ok(self
            .tail
            .try_reserve(len, space)
            .map_or(Attempt::Again, Attempt::Taken))
    }

    /// Opens the chunk behind the open one, for a record of `len` bytes. Answers what is in the way, if anything is.
    fn open_next(&self, opener: &mut Opener, len: u64, space: Space) -> Result<Option<Attempt>> {
        let chunk = opener.chunk + 1;
        let cap = if space == Space::Row {
            opener.row_cap(&self.layout)
        } else {
            opener.prepared_end
        };
        if self.layout.chunk_body(chunk) + BATCH_HEADER_BYTES + len > cap {
            return Ok(Some(Attempt::Segment));
        }
        // Before the look: what is written after it must not be waited for.
        let written = self.marks.get(Goal::Written);
        if !self.backlog_allows(opener, space) {
            return Ok(Some(Attempt::Backlog(written)));
        }
        check_distance(chunk, self.layout.chunk_of(self.start().raw()))?;
        self.open_chunk(opener, chunk);
        Ok(None)
    }

    /// See `Log::leave_segments`.
    pub(crate) fn leave_segments(&self) -> Result<()> {
        let end = {
            // A file that is being made is waited for, and left too.
            let _turn = self.preparing.lock();
            let mut end = self.opener.lock().prepared_end;
            if self.is_partial(end) {
                // Chunks that are left have batches too, and those need room (D38).
                self.prepare_next(end)?;
                end = self.opener.lock().prepared_end;
            }
            // First, because without it nothing may be left.
            self.prepare_next(end)?;
            end
        };
        while let Some(obstacle) = self.leave_chunk(end)? {
            match obstacle {
                Attempt::Backlog(before) => self.wait_for_backlog(before)?,
                Attempt::Segment => self.prepare_ahead()?,
                Attempt::Taken(_) | Attempt::Again => {}
            }
        }
        Ok(())
    }

    /// Closes the open chunk, however full, if it lies below `end`. `None` if it does not.
    fn leave_chunk(&self, end: u64) -> Result<Option<Attempt>> {
        let mut opener = self.opener.lock();
        self.check_usable()?;
        if self.layout.chunk_start(opener.chunk) >= end {
            return Ok(None);
        }
        let obstacle = self.open_next(&mut opener, 0, Space::Row)?;
        Ok(Some(obstacle.unwrap_or(Attempt::Again)))
    }

    /// Whether one more chunk may be unwritten, and a slot is free for its batch.
    fn backlog_allows(&self, opener: &Opener, space: Space) -> bool {
        let chunks_max = if space == Space::Row {
            ROW_CHUNKS_MAX
        } else {
            SPARE_CHUNKS_MAX
        };
        opener.chunk - self.backlog.first_unwritten() < chunks_max && self.slot_is_free(opener.sequence + 1)
    }

    fn slot_is_free(&self, sequence: u64) -> bool {
        sequence - self.backlog.first_unwritten_sequence() < self.tail.slot_count()
    }

    /// Closes the open batch and starts one in `chunk`. Memory first, then the word that sends writers there.
    fn open_chunk(&self, opener: &mut Opener, chunk: u64) {
        let guard = crossbeam_epoch::pin();
        let start = self.layout.chunk_start(chunk);
        self.directory
            .install(chunk, Chunk::filling(start, &self.pool), &guard);
        self.cache.note_installed();
        let body = self.layout.chunk_body(chunk);
        let (_, sleeper) = self.tail.seal(opener.sequence, |_| body);
        opener.sequence += 1;
        opener.batch_start = body;
        opener.chunk = chunk;
        self.publish_ends(opener);
        if sleeper {
            self.wake_filled();
        }
        let unwritten = (chunk - self.backlog.first_unwritten()) * self.layout.chunk_bytes();
        if unwritten >= WAKE_BYTES || chunk == self.second_chunk(self.layout.segment_of(body)) {
            self.wake_worker();
        }
    }

    /// Closes the open batch where it stands, if it has records, and starts the next one behind it. Returns the
    /// sequence of the batch that is open now: all before it are sealed.
    pub(crate) fn seal_open_batch(&self) -> u64 {
        let mut opener = self.opener.lock();
        let is_empty = self.tail.lsn() == opener.batch_start + BATCH_HEADER_BYTES;
        if !is_empty && self.slot_is_free(opener.sequence + 1) {
            let (span, _) = self.tail.seal(opener.sequence, next_batch_start);
            opener.sequence += 1;
            opener.batch_start = span.next;
        }
        opener.sequence
    }

    /// Sets the limits of the fast path to what the opener knows; zero once the log takes no more records.
    pub(crate) fn publish_ends(&self, opener: &Opener) {
        if self.check_usable().is_err() {
            self.tail.set_ends(0, 0);
            return;
        }
        let room_end = self.layout.chunk_room_end(opener.chunk);
        self.tail
            .set_ends(room_end.min(opener.row_cap(&self.layout)), room_end);
    }

    /// The chunk of a segment from which on the next one is prepared: none is for a log in which nothing happens.
    fn second_chunk(&self, segment: SegmentId) -> u64 {
        self.layout.chunk_of(self.layout.segment_start(segment)) + 1
    }

    /// Prepares segments until the one after the open one exists, or the open one if that is in its first chunk. Called by the
    /// worker ahead of need, and by whoever may wait and cannot go on without, which is never in the first chunk: a segment has four or more.
    pub(crate) fn prepare_ahead(&self) -> Result<()> {
        let _turn = self.preparing.lock();
        let mut has_more = false;
        loop {
            let (prepared_end, wanted) = {
                let opener = self.opener.lock();
                let open = self.layout.segment_of(self.layout.chunk_start(opener.chunk));
                if self.is_partial(opener.prepared_end) && opener.prepared_end >= self.least_end(&opener) {
                    return Ok(());
                }
                let segments = if opener.chunk < self.second_chunk(open) {
                    1
                } else {
                    2
                };
                (
                    opener.prepared_end,
                    self.layout.segment_start(open) + segments * self.layout.segment_bytes(),
                )
            };
            if prepared_end >= wanted && !self.is_partial(prepared_end) {
                return Ok(());
            }
            match self.prepare_next(prepared_end) {
                // Who needs the segment behind what this has brought asks again.
                Err(_) if has_more => return Ok(()),
                prepared => prepared?,
            }
            has_more = true;
        }
    }

    /// Prepares the segment behind those that are. The caller has the preparing latch.
    fn prepare_next(&self, prepared_end: u64) -> Result<()> {
        let segment = self.layout.segment_of(prepared_end);
        if self.is_partial(prepared_end) {
            self.files.take_room_behind(prepared_end)?;
        } else {
            self.files.prepare(segment)?;
        }
        let mut opener = self.opener.lock();
        opener.prepared_end = self.layout.segment_start(segment) + self.layout.segment_bytes();
        self.publish_ends(&opener);
        Ok(())
    }

    fn is_partial(&self, prepared_end: u64) -> bool {
        self.layout.file_offset(prepared_end) != 0
    }

    /// Where room may end (D38): behind the open chunk, the one after it, and the reserve.
    fn least_end(&self, opener: &Opener) -> u64 {
        let next_end = self.layout.chunk_end(opener.chunk + 1);
        self.files.room_border(next_end + self.layout.reserve_bytes())
    }

    /// See `Log::give_back_ahead`.
    pub(crate) fn give_back_ahead(&self) -> Result<()> {
        let _turn = self.preparing.lock();
        let (begin, end) = {
            let mut opener = self.opener.lock();
            self.check_usable()?;
            let (begin, end) = (self.least_end(&opener), opener.prepared_end);
            if begin >= end {
                return Ok(());
            }
            // First: from here on nobody goes there. Who reserves in the open chunk meanwhile stays below its end.
            opener.prepared_end = begin;
            self.publish_ends(&opener);
            (begin, end)
        };
        self.files.give_back(begin, end)
    }

    /// Gives back all room behind the log, which is closed and written.
    pub(crate) fn give_back_at_close(&self) -> Result<()> {
        let _turn = self.preparing.lock();
        let (begin, end) = {
            let mut opener = self.opener.lock();
            let end = opener.prepared_end;
            opener.prepared_end = self.files.room_border(opener.batch_start).min(end);
            (opener.prepared_end, end)
        };
        self.files.give_back(begin, end)
    }
}
