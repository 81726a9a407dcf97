//! Atomics and the latch of the row map, exchanged for loom's under `cfg(loom)`.
//!
//! Why it exists:    loom sees only its own primitives; one module chooses, so the map is written once.
//! Rules:            M3 is tried through it.
//! Latches and I/O:  `Latch` is the one latch of the crate.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// A mutual exclusion latch without a value.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    #[cfg(not(loom))]
    inner: parking_lot::Mutex<()>,
    #[cfg(loom)]
    inner: loom::sync::Mutex<()>,
}

impl Latch {
    /// Runs `work` while no other thread does.
    pub(crate) fn hold<R>(&self, work: impl FnOnce() -> R) -> R {
        #[cfg(not(loom))]
        let _held = self.inner.lock();
        #[cfg(loom)]
        let _held = self
            .inner
            .lock()
            .expect("no closure run under a latch panics in a loom model");
        work()
    }
}
