//! Atomics and latches: the primitives of this crate, exchanged for loom's under `cfg(loom)`.
//!
//! Why it exists: the publication of slots and snapshots is proved by running every interleaving under loom,
//! and loom sees only its own primitives; one module chooses, so the rest of the crate is written once.
//! State: none.
//! Rules: none of its own; T2, T3 and T4 are proved through it.
//! Latches and I/O: `Latch` is the only latch type of the crate; never held across I/O (there is none here)
//! nor across a lock wait.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A mutual exclusion latch, held by one thread for a moment. Counts how often it was found taken: who finds it free
/// pays nothing for that.
#[derive(Debug)]
pub(crate) struct Latch<T> {
    #[cfg(not(loom))]
    inner: parking_lot::Mutex<T>,
    #[cfg(not(loom))]
    contended: AtomicU64,
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
}

#[cfg(not(loom))]
pub(crate) type LatchGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
#[cfg(loom)]
pub(crate) type LatchGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Latch<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        let inner = parking_lot::Mutex::new(value);
        #[cfg(loom)]
        let inner = loom::sync::Mutex::new(value);
        Latch {
            inner,
            #[cfg(not(loom))]
            contended: AtomicU64::new(0),
        }
    }

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock(&self) -> LatchGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    #[cfg(not(loom))]
    #[cold]
    fn lock_contended(&self) -> LatchGuard<'_, T> {
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.inner.lock()
    }

    /// Times that somebody found it taken.
    #[cfg(not(loom))]
    pub(crate) fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }

    /// Nothing is counted under loom.
    #[cfg(loom)]
    pub(crate) fn contended(&self) -> u64 {
        0
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> LatchGuard<'_, T> {
        self.inner
            .lock()
            .expect("no closure run under a latch panics in a loom model")
    }
}

/// Keeps a hot atomic on cache lines of its own, so that its writers do not slow down readers of its
/// neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// Spreads ids over a power of two of buckets: neighbouring ids fall into different ones (finaliser of
/// splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let a = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}
