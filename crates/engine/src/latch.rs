//! Counted latch: a latch that knows how often it was found taken.
//!
//! Why it exists: whether a latch that all sessions share is a bottleneck can be asked of a running server. Who finds it free
//! pays nothing for the answer.
//! Latches and I/O: this is one.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CountedLatch<T> {
    inner: Mutex<T>,
    contended: AtomicU64,
}

impl<T> CountedLatch<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            inner: Mutex::new(value),
            contended: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, T> {
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.inner.lock()
    }

    /// Times that somebody found it taken.
    pub(crate) fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn only_who_finds_the_latch_taken_is_counted() {
        let latch = CountedLatch::new(0);
        *latch.lock() += 1;
        *latch.lock() += 1;
        assert_eq!(latch.contended(), 0);
        let (held, is_held) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = latch.lock();
                held.send(()).expect("the other thread listens");
                while latch.contended() == 0 {
                    std::thread::yield_now();
                }
                *value += 1;
            });
            is_held.recv().expect("the latch is held");
            assert_eq!(*latch.lock(), 3);
        });
        assert_eq!(latch.contended(), 1);
    }
}
