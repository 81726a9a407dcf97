//! Slot: a place in the tree that is empty or holds one node, made on first touch and, if it is a leaf, taken out again.
//!
//! Why it exists:    readers follow slots without a latch while leaves of homed rows are given back; epochs keep a leaf
//!                   alive for as long as a reader that found it looks at it.
//! State:            empty -> holds a node -> empty (leaves only) -> ...
//! Rules:            M3.
//! Latches and I/O:  none; of two threads that make the same node one throws its own away.

use crate::sync::{AtomicPtr, Ordering};
use crossbeam_epoch::Guard;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slot<T>(AtomicPtr<T>);

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(AtomicPtr::new(std::ptr::null_mut()))
    }
}

impl<T> Slot<T> {
    /// The node, if there is one.
    #[inline]
    pub(crate) fn get<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        let node = self.0.load(Ordering::Acquire);
        // SAFETY: a slot holds null or a node that came from `Box::into_raw` and was complete when it was published
        // (Release). It is freed by `take_out`, after every guard of this moment is gone, `_guard` among them, or by
        // `drop`, which the borrow of `self` keeps away.
        unsafe { node.as_ref() }
    }

    /// True if there is a node.
    pub(crate) fn is_some(&self) -> bool {
        !self.0.load(Ordering::Acquire).is_null()
    }

    /// Puts a node into the slot unless there is one. True if it was this one.
    pub(crate) fn put(&self, node: Box<T>) -> bool {
        let node = Box::into_raw(node);
        let null = std::ptr::null_mut();
        let published = if pbxt_base::planted!("map.unpublished") {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        let put = self.0.compare_exchange(null, node, published, Ordering::Acquire);
        if put.is_err() {
            // SAFETY: `node` came from `Box::into_raw` above and was not published.
            drop(unsafe { Box::from_raw(node) });
        }
        put.is_ok()
    }

    /// Empties the slot; the node's memory goes when the last guard that may see it is gone.
    pub(crate) fn take_out(&self, guard: &Guard) {
        let node = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !node.is_null() {
            free_later(node, guard);
        }
    }
}

#[cfg(not(loom))]
fn free_later<T>(node: *mut T, guard: &Guard) {
    if pbxt_base::planted!("map.freed_early") {
        // SAFETY: none, which is the fault.
        drop(unsafe { Box::from_raw(node) });
        return;
    }
    // SAFETY: the swap that gave `node` to this thread unlinked it, so nobody else frees it and no new reader finds it;
    // readers that found it before are pinned and delay the closure. Nodes hold atomics and boxes of them only, so any
    // thread may free them.
    unsafe { guard.defer_unchecked(move || drop(Box::from_raw(node))) }
}

/// A model ends before the epochs do, so its nodes are left to the process.
#[cfg(loom)]
fn free_later<T>(_node: *mut T, _guard: &Guard) {}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let node = self.0.load(Ordering::Acquire);
        if !node.is_null() {
            // SAFETY: `&mut self` proves that no other thread can find the node any more, and it was not taken out, so
            // nobody else frees it.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}
