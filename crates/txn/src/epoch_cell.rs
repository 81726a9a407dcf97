//! Epoch cell: a value that readers use without a latch while a writer replaces it whole.
//!
//! Why it exists: the directory of the transaction table is read for every version judged and replaced every
//! few thousand transactions; a reference count would put all readers on one cache line.
//! State: one pointer, never null. A replaced value is freed when every thread pinned at that moment has
//! unpinned.
//! Rules: none of its own.
//! Latches and I/O: none; writers bring their own latch.

use crossbeam_epoch::{Atomic, Guard, Owned};
use std::sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct EpochCell<T> {
    pointer: Atomic<T>,
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    pub(crate) fn new(value: T) -> Self {
        EpochCell {
            pointer: Atomic::new(value),
        }
    }

    pub(crate) fn load<'a>(&'a self, guard: &'a Guard) -> &'a T {
        let shared = self.pointer.load(Ordering::Acquire, guard);
        // SAFETY: the pointer is never null (`new` and `replace` store owned values only) and what it points
        // to was fully written before the Release store that published it. A value is handed to
        // `defer_destroy` only after it was unlinked, so it outlives every guard pinned while it could still
        // be loaded, `guard` included; the borrow of `self` keeps `drop` away.
        unsafe { shared.deref() }
    }

    /// Puts `value` in place of the current one. Callers are serialised by the latch around what they read to
    /// build `value`.
    pub(crate) fn replace(&self, value: T, guard: &Guard) {
        let old = self.pointer.swap(Owned::new(value), Ordering::AcqRel, guard);
        // SAFETY: the swap unlinked `old`, and only the thread that unlinks a value destroys it, so it
        // happens once; threads that loaded it before are pinned and delay the destruction.
        unsafe {
            guard.defer_destroy(old);
        }
    }
}

impl<T> Drop for EpochCell<T> {
    fn drop(&mut self) {
        let pointer = std::mem::replace(&mut self.pointer, Atomic::null());
        // SAFETY: `&mut self` proves that no other thread can load the pointer any more, and references given
        // out by `load` borrow the cell and so have ended; the value was never unlinked, so nobody else frees
        // it.
        drop(unsafe { pointer.try_into_owned() });
    }
}

#[cfg(test)]
#[path = "epoch_cell_tests.rs"]
mod epoch_cell_tests;
