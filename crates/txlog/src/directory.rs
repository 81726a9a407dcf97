//! Chunk directory: from a chunk's number to the chunk in memory, if it is there.
//!
//! Why it exists:    every read of a row version asks it, from every thread; a latched map would be felt everywhere. Two
//!                   dependent atomic loads answer, and epochs keep the chunk alive for as long as the reader looks.
//! State:            a fixed root of lazily made leaves; leaves stay until the log is dropped, chunks come and go. The places are a
//!                   ring: a chunk has that of the one that was written so many chunks before it.
//! Rules:            D12: only `cache` removes chunks, and only complete ones. No two chunks that can be in memory at once have one
//!                   place: the opener refuses a chunk that is half a ring from the log's start, and what lies below the start was
//!                   less than another half from it when it rose, and leaves then.
//! Latches and I/O:  none.

use crate::chunk::Chunk;
use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use pbxt_base::{Error, Result, invariant};
use std::sync::atomic::{AtomicPtr, Ordering};

const LEAF_SLOTS: usize = 4096;
const ROOT_SLOTS: usize = 16384;
/// Chunks from the start of a log to its tail, at most: half a ring. With chunks of 256 KiB this is 8 TiB of log.
const CHUNK_COUNT_MAX: u64 = (LEAF_SLOTS * ROOT_SLOTS / 2) as u64;

/// Refuses a chunk that is too far from the first one that can be read (D12).
pub(crate) fn check_distance(chunk: u64, first: u64) -> Result<()> {
    let chunks = chunk.saturating_sub(first) + 1;
    if chunks <= CHUNK_COUNT_MAX {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "the transaction log from its start on, in chunks",
        bytes: chunks,
        limit: CHUNK_COUNT_MAX,
    })
}

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
        let leaf = self.root.get(root_of(number))?.load(Ordering::Acquire);
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
        if self.slot(number).is_none() {
            let fresh = Leaf {
                slots: (0..LEAF_SLOTS).map(|_| Atomic::null()).collect(),
            };
            let fresh = Box::into_raw(Box::new(fresh));
            let root = &self.root[root_of(number)];
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

/// Place of a chunk's leaf in the root.
#[inline]
fn root_of(number: u64) -> usize {
    number as usize / LEAF_SLOTS % ROOT_SLOTS
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::BufferPool;

    #[test]
    fn a_place_is_used_again_and_no_chunk_is_too_far_from_the_start() {
        let (directory, pool) = (Directory::new(), BufferPool::new(64));
        let ring = 2 * CHUNK_COUNT_MAX;
        for number in [5, ring + 5, 7 * ring + 5] {
            let guard = crossbeam_epoch::pin();
            directory.install(number, Chunk::filling(number, &pool), &guard);
            assert_eq!(directory.get(number, &guard).map(Chunk::start), Some(number));
            assert!(directory.remove(number, &guard), "D12");
        }
        let first = 3 * ring;
        check_distance(first + CHUNK_COUNT_MAX - 1, first).expect("it has a place of its own");
        let refused = check_distance(first + CHUNK_COUNT_MAX, first);
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "D12: {refused:?}");
    }
}
