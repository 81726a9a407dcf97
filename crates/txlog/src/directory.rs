//! Chunk directory: from a chunk's number to the chunk in memory, if it is there.
//!
//! Why it exists:    every read of a row version asks it, from every thread; a latched map would be felt everywhere. Two
//!                   dependent atomic loads answer, and epochs keep the chunk alive for as long as the reader looks.
//! State:            a fixed root of lazily made leaves; leaves stay until the log is dropped, chunks come and go.
//! Rules:            D12: only `cache` removes chunks, and only complete ones.
//! Latches and I/O:  none.

use crate::chunk::Chunk;
use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use pbxt_base::invariant;
use std::sync::atomic::{AtomicPtr, Ordering};

const LEAF_SLOTS: usize = 4096;
const ROOT_SLOTS: usize = 16384;
/// Chunks a log can have; with chunks of 256 KiB this is 16 TiB of log.
pub(crate) const CHUNK_COUNT_MAX: u64 = (LEAF_SLOTS * ROOT_SLOTS) as u64;

#[derive(Debug)]
struct Leaf {
    slots: Box<[Atomic<Chunk>]>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Directory {
    root: Box<[AtomicPtr<Leaf>]>,
}

impl Directory {
    /// An empty directory.
    pub(crate) fn new() -> Directory {
        Directory {
            root: (0..ROOT_SLOTS).map(|_| AtomicPtr::default()).collect(),
        }
    }

    /// The chunk with this number, if it is in memory.
    #[inline]
    pub(crate) fn get<'g>(&self, number: u64, guard: &'g Guard) -> Option<&'g Chunk> {
        let slot = self.slot(number)?;
        // SAFETY: a slot holds null or a chunk put there by `install`; `remove` frees it only after every guard of this
        // moment is gone, and `guard` is one of them.
        unsafe { slot.load(Ordering::Acquire, guard).as_ref() }
    }

    #[inline]
    fn slot(&self, number: u64) -> Option<&Atomic<Chunk>> {
        let leaf = self
            .root
            .get(number as usize / LEAF_SLOTS)?
            .load(Ordering::Acquire);
        // SAFETY: a root slot is null or a leaf that lives until the directory is dropped.
        let leaf = unsafe { leaf.as_ref()? };
        leaf.slots.get(number as usize % LEAF_SLOTS)
    }

    /// Puts a chunk in its place. The place must be empty: its only installer holds the opening or the load latch.
    pub(crate) fn install<'g>(&self, number: u64, chunk: Chunk, guard: &'g Guard) -> &'g Chunk {
        let slot = self.slot_or_new(number);
        let shared = Owned::new(chunk).into_shared(guard);
        let old = slot.swap(shared, Ordering::AcqRel, guard);
        invariant!(old.is_null(), "D12: a chunk is installed once");
        // SAFETY: just installed, not null; freed only after `guard` is gone, as in `get`.
        unsafe { shared.deref() }
    }

    fn slot_or_new(&self, number: u64) -> &Atomic<Chunk> {
        invariant!(
            number < CHUNK_COUNT_MAX,
            "D12: the opener refuses chunks beyond the directory"
        );
        if self.slot(number).is_none() {
            let fresh = Leaf {
                slots: (0..LEAF_SLOTS).map(|_| Atomic::null()).collect(),
            };
            let fresh = Box::into_raw(Box::new(fresh));
            let root = &self.root[number as usize / LEAF_SLOTS];
            let null = std::ptr::null_mut();
            if root
                .compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: `fresh` came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        self.slot(number).expect("D12: the leaf exists from here on")
    }

    /// Takes a chunk out; its memory goes when the last guard that may see it is gone. True if it was there.
    pub(crate) fn remove(&self, number: u64, guard: &Guard) -> bool {
        let Some(slot) = self.slot(number) else {
            return false;
        };
        let old = slot.swap(Shared::null(), Ordering::AcqRel, guard);
        if old.is_null() {
            return false;
        }
        // SAFETY: unlinked just now by this thread alone (swap), so nobody else frees it and no new reader finds it.
        unsafe { guard.defer_destroy(old) };
        // A chunk is large: left to themselves, epochs collect such things by the hundred in every thread.
        guard.flush();
        true
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for root in &mut self.root {
            let leaf = std::mem::replace(root.get_mut(), std::ptr::null_mut());
            if leaf.is_null() {
                continue;
            }
            // SAFETY: leaves come from `Box::into_raw` and are freed only here; `&mut self` excludes readers.
            let leaf = unsafe { Box::from_raw(leaf) };
            for slot in leaf.slots {
                // SAFETY: `&mut self` excludes readers, and an installed chunk is owned by its slot.
                drop(unsafe { slot.try_into_owned() });
            }
        }
    }
}
