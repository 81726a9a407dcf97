//! Counters of the log, for status displays and tests.
//!
//! Why it exists:    the one counter that every read of a row version adds to would be the most contended line of the
//!                   engine, so it is striped over threads; the others are counted by one thread at a time.
//! State:            since the log was opened; never reset, wraps after 2^64.
//! Latches and I/O:  none.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A counter many threads add to at once.
#[derive(Debug, Default)]
pub(crate) struct StripedCounter {
    stripes: [Stripe; STRIPES],
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl StripedCounter {
    #[inline]
    pub(crate) fn add_one(&self) {
        let stripe = STRIPE.with(|stripe| {
            if stripe.get() == usize::MAX {
                stripe.set(NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES);
            }
            stripe.get()
        });
        self.stripes[stripe].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.stripes
            .iter()
            .map(|stripe| stripe.0.load(Ordering::Relaxed))
            .sum()
    }
}

/// What the log counts while it runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cache_hits: StripedCounter,
    pub(crate) cache_misses: AtomicU64,
    pub(crate) read_alone: AtomicU64,
    pub(crate) cache_evictions: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) fillers: AtomicU64,
    pub(crate) row_waits: AtomicU64,
}

/// Adds to a counter of which nobody needs an exact moment.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A reading of the log's counters; each is exact, together they are of about the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Reads of a record whose chunk was in memory.
    pub cache_hits: u64,
    /// Reads of a record whose chunk was not in memory.
    pub cache_misses: u64,
    /// Of these, those that read the record with its batch and did not load the chunk (rule D33).
    pub read_alone: u64,
    /// Chunks dropped from memory for want of budget.
    pub cache_evictions: u64,
    /// Bytes of chunks in memory, those not yet written included.
    pub cache_bytes: u64,
    /// Bytes of memory the log's buffers take: those chunks, chunks that wait for their last reader, free buffers.
    pub buffer_bytes: u64,
    /// Batches written.
    pub batches: u64,
    /// Bytes written to log files, headers and padding included.
    pub bytes_written: u64,
    /// Bytes of records in the batches written.
    pub record_bytes: u64,
    /// Syncs of log files.
    pub syncs: u64,
    /// Reservations that were given up.
    pub fillers: u64,
    /// Row reservations that had to wait for the flusher.
    pub row_waits: u64,
}

impl Counters {
    pub(crate) fn read(&self, cache_bytes: u64, buffer_bytes: u64) -> LogStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            cache_hits: self.cache_hits.sum(),
            cache_misses: load(&self.cache_misses),
            read_alone: load(&self.read_alone),
            cache_evictions: load(&self.cache_evictions),
            cache_bytes,
            buffer_bytes,
            batches: load(&self.batches),
            bytes_written: load(&self.bytes_written),
            record_bytes: load(&self.record_bytes),
            syncs: load(&self.syncs),
            fillers: load(&self.fillers),
            row_waits: load(&self.row_waits),
        }
    }
}
