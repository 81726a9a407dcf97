//! Chunk cache: the log in memory is the cache of row versions.
//!
//! Why it exists:    what was just written is what is read next, so a written chunk simply stays; older chunks come back
//!                   when somebody reads a version in them. One budget covers both.
//! State:            a ring of the numbers of complete chunks, swept by a CLOCK hand; chunks still filling are counted but
//!                   not in the ring, so nothing dirty can be dropped.
//! Rules:            D12: only complete chunks leave; a loaded chunk is believed only if all its batches verify. D33: what is
//!                   missed now and then is read alone (`alone`). D16: chunks below the start of the log leave when it rises.
//! Latches and I/O:  a load latch (one of 16, by chunk) is held over the read, so a chunk is loaded once; the ring latch
//!                   is held for moments and never over I/O. A reader that finds its chunk takes no latch.

use crate::alone::Misses;
use crate::batch::BatchHeader;
use crate::chunk::Chunk;
use crate::core::Core;
use crate::record::{RECORD_HEADER_BYTES, RecordRef, stride_of};
use crate::stats::count;
use crossbeam_epoch::Guard;
use parking_lot::Mutex;
use pbxt_base::{Error, Lsn, Result};
use std::sync::atomic::{AtomicU64, Ordering};

const LOAD_LATCHES: usize = 16;
/// Complete chunks that stay even when unwritten ones use up the budget: a reader needs the one it has just loaded.
const COMPLETE_CHUNKS_MIN: usize = 4;

/// How a read is going to continue; decides whether the chunk's use is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadHint {
    /// Any version may be asked for next: what was used stays.
    Random,
    /// A scan that passes once: the chunk may leave as soon as there is need.
    Sequential,
}

/// Budget and ring; the chunks themselves stand in the directory.
#[derive(Debug)]
pub(crate) struct Cache {
    budget_bytes: u64,
    chunk_bytes: u64,
    resident_chunks: AtomicU64,
    ring: Mutex<Ring>,
    loading: [Mutex<()>; LOAD_LATCHES],
    pub(crate) misses: Misses,
}

#[derive(Debug, Default)]
struct Ring {
    chunks: Vec<u64>,
    hand: usize,
}

impl Cache {
    /// A cache that keeps at most `budget_bytes` of complete chunks and chunks being filled together, but always
    /// what is unwritten.
    pub(crate) fn new(budget_bytes: u64, chunk_bytes: u64) -> Cache {
        let (resident_chunks, ring, loading) = (AtomicU64::new(0), Mutex::default(), Default::default());
        let misses = Misses::default();
        Cache {
            budget_bytes,
            chunk_bytes,
            resident_chunks,
            ring,
            loading,
            misses,
        }
    }

    /// Bytes of chunks in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.resident_chunks.load(Ordering::Relaxed) * self.chunk_bytes
    }

    /// True if a chunk that is loaded pushes no other one out.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() + self.chunk_bytes <= self.budget_bytes
    }

    /// A chunk was put into the directory.
    pub(crate) fn note_installed(&self) {
        self.resident_chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// A chunk is complete and may leave from now on. Makes room if there is too little.
    pub(crate) fn note_complete(&self, core: &Core, chunk: u64) {
        self.ring.lock().chunks.push(chunk);
        self.make_room(core);
    }

    fn make_room(&self, core: &Core) {
        while self.bytes() > self.budget_bytes && self.ring.lock().chunks.len() > COMPLETE_CHUNKS_MIN {
            let guard = crossbeam_epoch::pin();
            let Some(victim) = self.pick_victim(core, &guard) else {
                return;
            };
            if core.directory.remove(victim, &guard) {
                self.resident_chunks.fetch_sub(1, Ordering::Relaxed);
                count(&core.counters.cache_evictions, 1);
            }
        }
    }

    /// Takes the complete chunks with numbers below `end` out of memory.
    pub(crate) fn forget_below(&self, core: &Core, end: u64) {
        let guard = crossbeam_epoch::pin();
        let mut gone = Vec::new();
        self.ring.lock().chunks.retain(|chunk| {
            let stays = *chunk >= end;
            if !stays {
                gone.push(*chunk);
            }
            stays
        });
        for chunk in gone {
            if core.directory.remove(chunk, &guard) {
                self.resident_chunks.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Moves the hand to a chunk not used since it last came by, at most twice around.
    fn pick_victim(&self, core: &Core, guard: &Guard) -> Option<u64> {
        let mut ring = self.ring.lock();
        for _ in 0..2 * ring.chunks.len() {
            if ring.hand >= ring.chunks.len() {
                ring.hand = 0;
            }
            let chunk = ring.chunks[ring.hand];
            let used = core.directory.get(chunk, guard).is_some_and(Chunk::forget_touch);
            if !used {
                let hand = ring.hand;
                ring.chunks.swap_remove(hand);
                return Some(chunk);
            }
            ring.hand += 1;
        }
        None
    }
}

impl Core {
    /// See `Log::read`.
    #[inline]
    pub(crate) fn read<'g>(&self, lsn: Lsn, hint: ReadHint, guard: &'g Guard) -> Result<RecordRef<'g>> {
        if lsn < self.start() {
            return Err(self.no_record_at(lsn.raw(), "a place below the start of the log"));
        }
        self.fetch(lsn, hint, guard)
    }

    #[inline]
    fn fetch<'g>(&self, lsn: Lsn, hint: ReadHint, guard: &'g Guard) -> Result<RecordRef<'g>> {
        let number = self.layout.chunk_of(lsn.raw());
        let chunk = match self.directory.get(number, guard) {
            Some(chunk) => {
                self.counters.cache_hits.add_one();
                chunk
            }
            None => match self.read_alone(lsn.raw(), number, guard)? {
                Some(record) => return Ok(record),
                None => self.load(number, guard)?,
            },
        };
        if hint == ReadHint::Random {
            chunk.touch();
        }
        self.record_in(chunk, lsn.raw())
    }

    /// See `Log::try_read`.
    #[inline]
    pub(crate) fn try_read<'g>(
        &self,
        lsn: Lsn,
        hint: ReadHint,
        guard: &'g Guard,
    ) -> Result<Option<RecordRef<'g>>> {
        if lsn < self.start() {
            return Ok(None);
        }
        match self.fetch(lsn, hint, guard) {
            // D16: the segment went between the look at the start and the read; the start passed the place before.
            Err(_) if lsn < self.start() => Ok(None),
            result => result.map(Some),
        }
    }

    /// See `Log::prefetch`.
    #[inline]
    pub(crate) fn prefetch(&self, lsn: Lsn, guard: &Guard) {
        if let Some(chunk) = self.directory.get(self.layout.chunk_of(lsn.raw()), guard) {
            chunk.buffer().prefetch((lsn.raw() - chunk.start()) as usize);
        }
    }

    #[inline]
    fn record_in<'g>(&self, chunk: &'g Chunk, lsn: u64) -> Result<RecordRef<'g>> {
        let end = chunk
            .readable_end()
            .unwrap_or_else(|| self.tail.lsn().min(chunk.start() + self.layout.chunk_bytes()));
        let offset = (lsn - chunk.start()) as usize;
        let room = end.saturating_sub(lsn) as usize;
        if room < RECORD_HEADER_BYTES || !lsn.is_multiple_of(8) {
            return Err(self.no_record_at(lsn, "the end of the log"));
        }
        // SAFETY: a published record's bytes never change again, and its publication happened before its address
        // reached the caller; in a complete chunk nothing changes at all. The guard keeps the chunk.
        let header = unsafe { chunk.buffer().read(offset, RECORD_HEADER_BYTES) };
        let stride = stride_of(header).min(room);
        // SAFETY: as above; only this record's bytes are covered, not its neighbours that others may be filling.
        let bytes = unsafe { chunk.buffer().read(offset, stride) };
        RecordRef::parse(bytes).map_err(|fault| self.no_record_at(lsn, &fault.to_string()))
    }

    #[cold]
    fn no_record_at(&self, lsn: u64, found: &str) -> Error {
        Error::Corrupt {
            file: self.files.name(self.layout.segment_of(lsn)),
            offset: self.layout.file_offset(lsn),
            expected: format!("a log record at LSN {lsn}"),
            found: found.to_owned(),
        }
    }

    /// Loads a chunk that is not in memory.
    #[cold]
    fn load<'g>(&self, number: u64, guard: &'g Guard) -> Result<&'g Chunk> {
        let _turn = self.cache.loading[number as usize % LOAD_LATCHES].lock();
        if let Some(chunk) = self.directory.get(number, guard) {
            return Ok(chunk);
        }
        count(&self.counters.cache_misses, 1);
        let start = self.layout.chunk_start(number);
        let body = self.layout.chunk_body(number);
        let end = self.valid_end(number).filter(|end| *end > body);
        let Some(end) = end else {
            return Err(self.no_record_at(body, "a place the log does not reach"));
        };
        let mut buffer = self.pool.take();
        let image = &mut buffer.whole_mut()[(body - start) as usize..(end - start) as usize];
        let readable_end = match self.read_verified(body, image) {
            Ok(readable_end) => readable_end,
            Err(error) => {
                // Damaged places are read again and again.
                self.pool.give_back(buffer);
                return Err(error);
            }
        };
        let chunk = self.install_loaded(
            number,
            Chunk::loaded(start, readable_end, buffer, &self.pool),
            guard,
        );
        Ok(chunk)
    }

    /// Reads a chunk's image that starts at LSN `body`. Returns the LSN behind the last record.
    fn read_verified(&self, body: u64, image: &mut [u8]) -> Result<u64> {
        self.files
            .open(self.layout.segment_of(body))?
            .read_at(image, self.layout.file_offset(body))?;
        self.verify_chunk(body, image)
    }

    fn install_loaded<'g>(&self, number: u64, chunk: Chunk, guard: &'g Guard) -> &'g Chunk {
        let chunk = self.directory.install(number, chunk, guard);
        chunk.touch();
        self.cache.note_installed();
        self.cache.note_complete(self, number);
        // D16: if the start passed this chunk while it was read, nobody comes back for it.
        if number < self.layout.chunk_of(self.start().raw()) {
            self.forget_below_start();
        }
        chunk
    }

    /// Checks every batch of a chunk's image that starts at LSN `body`. Returns the LSN behind the last record.
    fn verify_chunk(&self, body: u64, image: &[u8]) -> Result<u64> {
        let segment = self.layout.segment_of(body);
        let (mut at, mut readable_end) = (0, body);
        while at < image.len() {
            let lsn = body + at as u64;
            let header = BatchHeader::decode(segment, Lsn::new(lsn), &image[at..]);
            let Some((header, _)) = header.filter(|(h, _)| h.verified_records(&image[at..]).is_some()) else {
                return Err(Error::Corrupt {
                    file: self.files.name(segment),
                    offset: self.layout.file_offset(lsn),
                    expected: format!("the batch at LSN {lsn} with its checksum"),
                    found: "bytes that do not match it".into(),
                });
            };
            readable_end = lsn + u64::from(header.length);
            at += header.advance as usize;
        }
        Ok(readable_end)
    }
}
