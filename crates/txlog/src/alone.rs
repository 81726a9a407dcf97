//! A record read alone: a version that is not in memory, read with the batch around it instead of with its chunk.
//!
//! Why it exists:    a snapshot that is held open keeps versions in the log that are newer than it, for as long as it lives. When
//!                   they are far more than the cache has room for, reads at random meet another chunk each time, and a chunk is
//!                   hundreds of times the bytes of the record that is wanted.
//! State:            misses counted by chunk, modulo the number of counters: chunks that are missed often are loaded. All of it
//!                   is a guess that may be wrong.
//! Rules:            D33: a record is believed only if its batch verifies, as in a chunk that is loaded. The batch is found by
//!                   going back from the record, sector by sector, to a header that says its own LSN; a header in a row's
//!                   bytes that says so too is no danger, because what does not verify is left to the load of the chunk.
//! Latches and I/O:  one read, two if the batch is longer than what was read at first; no latch.

use crate::batch::{BATCH_ALIGN, BatchHeader};
use crate::core::Core;
use crate::record::{RECORD_ALIGN, RECORD_HEADER_BYTES, RecordRef, stride_of};
use crate::stats::count;
use crate::tail::BATCH_HEADER_BYTES;
use crossbeam_epoch::Guard;
use pbxt_base::{Lsn, Result};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes read before the record's sector, for the header of its batch: commits of some dozen connections.
const BEFORE_BYTES: u64 = 8 << 10;
/// Bytes read from the record on.
const BEHIND_BYTES: u64 = 8 << 10;
/// A batch that is longer is not read alone: not much would be saved.
const BATCH_BYTES_MAX: u64 = 64 << 10;
/// Reading so many records alone costs about as much as loading their chunk, so no order of reads costs much more than twice
/// what it must.
const MISSES_PER_LOAD: u8 = 32;
const COUNTERS: usize = 4096;

/// How often chunks were missed since they were last loaded.
#[derive(Debug)]
pub(crate) struct Misses {
    counts: Box<[AtomicU8]>,
    /// LSN of the last record that was read alone.
    last: AtomicU64,
}

impl Default for Misses {
    fn default() -> Misses {
        Misses {
            counts: (0..COUNTERS).map(|_| AtomicU8::new(0)).collect(),
            last: AtomicU64::new(u64::MAX),
        }
    }
}

impl Misses {
    /// Notes a miss. True if the chunk is to be loaded now: it is missed often, or the reads go through it.
    fn note(&self, core: &Core, lsn: u64, chunk: u64) -> bool {
        let last = self.last.swap(lsn, Ordering::Relaxed);
        let goes_through = last != lsn && last != u64::MAX && core.layout.chunk_of(last) == chunk;
        let counter = &self.counts[chunk as usize % COUNTERS];
        // Two threads that lose a count to each other load a little later.
        let misses = counter.load(Ordering::Relaxed) + 1;
        let is_due = goes_through || misses >= MISSES_PER_LOAD;
        counter.store(if is_due { 0 } else { misses }, Ordering::Relaxed);
        is_due
    }
}

impl Core {
    /// The record at `lsn`, whose chunk is not in memory, if it is better read alone and can be; else the chunk is to be loaded.
    #[cold]
    pub(crate) fn read_alone<'g>(
        &self,
        lsn: u64,
        chunk: u64,
        guard: &'g Guard,
    ) -> Result<Option<RecordRef<'g>>> {
        if self.cache.has_room() || self.cache.misses.note(self, lsn, chunk) {
            return Ok(None);
        }
        let body = self.layout.chunk_body(chunk);
        let end = self.valid_end(chunk).unwrap_or(0);
        if lsn < body || lsn >= end || !lsn.is_multiple_of(RECORD_ALIGN as u64) {
            return Ok(None);
        }
        let from = (lsn - lsn % BATCH_ALIGN).saturating_sub(BEFORE_BYTES).max(body);
        let to = (lsn + BEHIND_BYTES).min(end);
        // Allocated for each read, which costs a hundred times more: a buffer for every thread would be memory that no budget knows.
        let mut window = Vec::new();
        self.append_log(&mut window, from, to)?;
        let Some(header) = self.batch_around(&window, from, lsn) else {
            return Ok(None);
        };
        let batch_end = header.lsn.raw() + u64::from(header.length);
        if batch_end > end {
            return Ok(None);
        }
        self.append_log(&mut window, to, batch_end)?;
        let at = (header.lsn.raw() - from) as usize;
        let Some(records) = header.verified_records(&window[at..]) else {
            return Ok(None);
        };
        let offset = (lsn - header.lsn.raw() - BATCH_HEADER_BYTES) as usize;
        let found = copy_of(&records[offset..], guard);
        if found.is_some() {
            count(&self.counters.cache_misses, 1);
            count(&self.counters.read_alone, 1);
        }
        Ok(found)
    }

    /// Appends the bytes `[from, to)` of one chunk of the log, if there are any.
    fn append_log(&self, window: &mut Vec<u8>, from: u64, to: u64) -> Result<()> {
        let Some(bytes) = to.checked_sub(from).filter(|bytes| *bytes > 0) else {
            return Ok(());
        };
        let old = window.len();
        window.resize(old + bytes as usize, 0);
        let file = self.files.open(self.layout.segment_of(from))?;
        file.read_at(&mut window[old..], self.layout.file_offset(from))
    }

    /// The nearest header before `lsn` that says it stands where it does, if its batch has a record there and is not too long.
    fn batch_around(&self, window: &[u8], from: u64, lsn: u64) -> Option<BatchHeader> {
        let segment = self.layout.segment_of(lsn);
        let sectors = (0..=(lsn - from) / BATCH_ALIGN).rev();
        let (header, _) = sectors
            .map(|sector| sector * BATCH_ALIGN)
            .find_map(|at| BatchHeader::decode(segment, Lsn::new(from + at), &window[at as usize..]))?;
        let records = header.lsn.raw() + BATCH_HEADER_BYTES..header.lsn.raw() + u64::from(header.length);
        (records.contains(&lsn) && u64::from(header.length) <= BATCH_BYTES_MAX).then_some(header)
    }
}

/// The record that `bytes` begin with, in memory of its own that goes with the last guard of this moment.
fn copy_of<'g>(bytes: &[u8], guard: &'g Guard) -> Option<RecordRef<'g>> {
    let stride = stride_of(bytes.get(..RECORD_HEADER_BYTES)?);
    let copy = Box::into_raw(Box::<[u8]>::from(bytes.get(..stride)?));
    // SAFETY: just leaked, so valid and not changed by anybody until it is freed below. That is when every guard pinned now is
    // gone, of which `guard` is one (nobody reads records without a pin), and 'g ends with it at the latest: `repin` asks for
    // the guard alone. `copy` is owned by the deferred function only, whichever thread runs it.
    let record = unsafe {
        guard.defer_unchecked(move || drop(Box::from_raw(copy)));
        &*copy
    };
    RecordRef::parse(record).ok()
}
