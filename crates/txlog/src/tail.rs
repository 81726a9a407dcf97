//! Tail of the log: where the next record goes, and when a batch is whole.
//!
//! Why it exists:    many threads place records in one batch and copy them in at the same time, while one flusher
//!                   closes batches under them. A latch around "take space" would be the hottest one of the engine.
//! State:            one word {LSN / 8, low bits of the batch sequence}; reserving is one compare-and-swap on it. A ring
//!                   of batch slots counts the bytes given back: a batch is whole when it is sealed and all bytes
//!                   reserved in it were released.
//!                       open --seal--> sealed --last release--> whole --flush--> (slot reused by sequence + ring length)
//! Rules:            D8: a batch is written only when whole. The sequence changes only under the opening latch of
//!                   `Log`, so the slot of the next batch is ready before the word that names it is visible.
//! Latches and I/O:  none here. The protocol is checked with loom in `tests/loom_tail.rs`.
//! After a crash:    nothing of this is on disk.

use crate::sync::{AtomicU64, Ordering};

/// Bytes of the header a batch begins with.
pub(crate) const BATCH_HEADER_BYTES: u64 = 64;

const SEQUENCE_BITS: u32 = 10;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
/// Someone sleeps until the batch is whole.
const WAITING: u64 = 1 << 63;
/// The batch takes no more reservations; its end is known.
const SEALED: u64 = 1 << 62;
const RELEASED_MASK: u64 = (1 << 32) - 1;

/// What a reservation is for; decides which limit applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Inserts and updates: may wait for the flusher, may be refused when the disk is full.
    Row,
    /// END, PREPARE, ROLLBACK-TO, tombstones and catalog records: may use the space kept in reserve.
    Spare,
}

/// A piece of the log that belongs to one thread until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Position of the record.
    pub(crate) lsn: u64,
    /// Slot of its batch.
    pub(crate) slot: usize,
}

/// The extent of a sealed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchSpan {
    /// Position of its header.
    pub(crate) start: u64,
    /// Position behind its last record.
    pub(crate) end: u64,
    /// Position of the next batch's header.
    pub(crate) next: u64,
}

/// Keeps a hot atomic on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLines<T>(T);

/// See the module.
#[derive(Debug)]
pub(crate) struct Tail {
    word: OwnLines<AtomicU64>,
    /// Positions at which a row, and a spare, reservation must ask `Log` first. Never beyond the open chunk's room.
    ends: OwnLines<[AtomicU64; 2]>,
    slots: Box<[Slot]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// Released bytes with the flags WAITING and SEALED.
    word: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    next: AtomicU64,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            word: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    fn span_if_whole(&self, word: u64) -> Option<BatchSpan> {
        if word & SEALED == 0 {
            return None;
        }
        let span = BatchSpan {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            next: self.next.load(Ordering::Relaxed),
        };
        (word & RELEASED_MASK == span.end - span.start - BATCH_HEADER_BYTES).then_some(span)
    }
}

fn pack(lsn: u64, sequence: u64) -> u64 {
    (lsn >> 3) << SEQUENCE_BITS | sequence & SEQUENCE_MASK
}

fn lsn_of(word: u64) -> u64 {
    (word >> SEQUENCE_BITS) << 3
}

impl Tail {
    /// A tail whose open batch has this sequence and starts at `start`. No reservation succeeds before `set_ends`.
    /// `slot_count` is a power of two, at most 1024, and exceeds the number of batches that can be unwritten at once.
    pub(crate) fn new(start: u64, sequence: u64, slot_count: usize) -> Tail {
        assert!(slot_count.is_power_of_two() && slot_count as u64 <= SEQUENCE_MASK + 1);
        let slots: Box<[Slot]> = (0..slot_count).map(|_| Slot::new()).collect();
        let tail = Tail {
            word: OwnLines(AtomicU64::new(pack(start + BATCH_HEADER_BYTES, sequence))),
            ends: OwnLines([AtomicU64::new(0), AtomicU64::new(0)]),
            slots,
        };
        tail.slot(sequence).start.store(start, Ordering::Relaxed);
        tail
    }

    fn slot(&self, sequence: u64) -> &Slot {
        &self.slots[self.slot_index(sequence)]
    }

    fn slot_index(&self, sequence: u64) -> usize {
        (sequence & SEQUENCE_MASK) as usize & (self.slots.len() - 1)
    }

    /// Number of batch slots.
    pub(crate) fn slot_count(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The position behind the last reservation.
    pub(crate) fn lsn(&self) -> u64 {
        lsn_of(self.word.0.load(Ordering::Acquire))
    }

    /// Takes `len` bytes (a multiple of 8) of the open batch, or `None` when the limit for `space` is in the way.
    ///
    /// The limits are read after the word: a limit that belongs to a later chunk implies that the word has moved, so
    /// the exchange fails and no record can cross a chunk.
    #[inline]
    pub(crate) fn try_reserve(&self, len: u64, space: Space) -> Option<Claim> {
        let mut word = self.word.0.load(Ordering::Acquire);
        loop {
            let lsn = lsn_of(word);
            if lsn + len > self.ends.0[space as usize].load(Ordering::Acquire) {
                return None;
            }
            let moved = word + ((len >> 3) << SEQUENCE_BITS);
            match self
                .word
                .0
                .compare_exchange_weak(word, moved, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    return Some(Claim {
                        lsn,
                        slot: self.slot_index(word),
                    });
                }
                Err(current) => word = current,
            }
        }
    }

    /// Gives filled bytes back to their batch. True if somebody sleeps for this batch and must be woken.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self, slot: usize, len: u64) -> bool {
        self.slots[slot].word.fetch_add(len, Ordering::AcqRel) & WAITING != 0
    }

    /// Sets the limits; only under the opening latch.
    pub(crate) fn set_ends(&self, row_end: u64, spare_end: u64) {
        self.ends.0[Space::Row as usize].store(row_end, Ordering::Release);
        self.ends.0[Space::Spare as usize].store(spare_end, Ordering::Release);
    }

    /// Closes batch `sequence` and opens the next one at `next_for(end)`; only under the opening latch, when the slot
    /// of the next sequence is free. Returns the closed extent and whether somebody sleeps for it.
    pub(crate) fn seal(&self, sequence: u64, next_for: impl Fn(u64) -> u64) -> (BatchSpan, bool) {
        let following = self.slot(sequence + 1);
        following.word.store(0, Ordering::Relaxed);
        let mut word = self.word.0.load(Ordering::Acquire);
        let (end, next) = loop {
            debug_assert_eq!(
                word & SEQUENCE_MASK,
                sequence & SEQUENCE_MASK,
                "D8: one sealer at a time"
            );
            let end = lsn_of(word);
            let next = next_for(end);
            following.start.store(next, Ordering::Relaxed);
            let moved = pack(next + BATCH_HEADER_BYTES, sequence + 1);
            match self
                .word
                .0
                .compare_exchange_weak(word, moved, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => break (end, next),
                Err(current) => word = current,
            }
        };
        let slot = self.slot(sequence);
        slot.end.store(end, Ordering::Relaxed);
        slot.next.store(next, Ordering::Relaxed);
        let before = slot.word.fetch_or(SEALED, Ordering::AcqRel);
        (
            BatchSpan {
                start: slot.start.load(Ordering::Relaxed),
                end,
                next,
            },
            before & WAITING != 0,
        )
    }

    /// The extent of batch `sequence` if it is whole. Everything written into it happened before.
    pub(crate) fn whole(&self, sequence: u64) -> Option<BatchSpan> {
        let slot = self.slot(sequence);
        slot.span_if_whole(slot.word.load(Ordering::Acquire))
    }

    /// Like `whole`, and otherwise leaves a mark so that the release that completes the batch reports a sleeper.
    pub(crate) fn whole_or_mark(&self, sequence: u64) -> Option<BatchSpan> {
        let slot = self.slot(sequence);
        slot.span_if_whole(slot.word.fetch_or(WAITING, Ordering::AcqRel))
    }
}
