//! Snapshots: who reads as of which commit timestamp, and the oldest of them, the horizon.
//!
//! Why it exists: whatever a live snapshot may still ask for must not be freed or forgotten. A latch around a
//! list would make every statement of every session meet there.
//! State: an array of slots, one cache line each: 0 = free, 2^62 = ended by others, else timestamp + 1, and bit 63 while its
//! owner may read by it; blocks of slots are added when all are taken and live as long as the registry. `frontier` is the published timestamp at the newest
//! scan.
//! Rules: T4 (register, fence, validate), T27 (only a snapshot by which nobody reads is ended).
//! Latches and I/O: none; registering is one store, one fence, one load in the usual case.
//! After a crash: no snapshot survives.

#[cfg(not(loom))]
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use pbxt_base::ids::CommitTs;
use pbxt_base::{invariant, stop_point};

use crate::sync::{AtomicU64, Ordering, OwnLine, fence};

#[cfg(not(loom))]
const SLOTS_PER_BLOCK: usize = 64;
#[cfg(loom)]
const SLOTS_PER_BLOCK: usize = 2;

const FREE: u64 = 0;
/// Its owner may be reading.
const IN_USE: u64 = 1 << 63;
/// Others have ended it; its owner has not noticed.
const ENDED: u64 = 1 << 62;

type Slot = Arc<OwnLine<AtomicU64>>;

#[derive(Debug)]
struct Block {
    slots: [Slot; SLOTS_PER_BLOCK],
    next: OnceLock<Box<Block>>,
}

impl Block {
    fn new() -> Self {
        Block {
            slots: std::array::from_fn(|_| Arc::new(OwnLine(AtomicU64::new(FREE)))),
            next: OnceLock::new(),
        }
    }
}

/// All live snapshots of a database.
#[derive(Debug)]
pub(crate) struct SnapshotRegistry {
    frontier: OwnLine<AtomicU64>,
    first: Block,
}

/// A registered snapshot: sees what committed at or before its timestamp. Dropping it lets the horizon pass.
#[derive(Debug)]
pub struct Snapshot {
    ts: CommitTs,
    slot: Slot,
}

impl Snapshot {
    /// The newest commit timestamp this snapshot sees.
    pub fn ts(&self) -> CommitTs {
        self.ts
    }

    /// Says that nobody reads by it until the next `enter`: it may be ended meanwhile.
    pub fn leave(&self) {
        let content = self.ts.raw() + 1;
        // One that was ended stays so (rule T27).
        let _ = self
            .slot
            .0
            .compare_exchange(content | IN_USE, content, Ordering::Release, Ordering::Relaxed);
    }

    /// Says that somebody is about to read by it. False if it was ended; then nobody must (rule T27).
    #[must_use]
    pub fn enter(&self) -> bool {
        let content = self.ts.raw() + 1;
        self.slot.0.load(Ordering::Relaxed) == content | IN_USE
            || self
                .slot
                .0
                .compare_exchange(content, content | IN_USE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.slot.0.store(FREE, Ordering::Release);
    }
}

/// One look at all live snapshots. It may be kept: a later snapshot is never older than `frontier`, so
/// decisions taken from an old look are careful, never wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSnapshots {
    /// Timestamps of live snapshots, ascending, without repetition.
    ts: Vec<CommitTs>,
    /// The published timestamp when the look began.
    frontier: CommitTs,
}

impl LiveSnapshots {
    /// The oldest timestamp any live or future snapshot can have: what committed at or before it is seen by
    /// all.
    pub fn horizon(&self) -> CommitTs {
        self.ts
            .first()
            .map_or(self.frontier, |oldest| self.frontier.min(*oldest))
    }

    /// Every snapshot registered after this look has at least this timestamp.
    pub fn frontier(&self) -> CommitTs {
        self.frontier
    }

    /// The live timestamps, ascending, without repetition.
    pub fn timestamps(&self) -> &[CommitTs] {
        &self.ts
    }

    /// The class of a commit timestamp: timestamps of one class are told apart by no live and no future
    /// snapshot, and class 0 is seen by all of them (rule T6). `None` beyond the frontier, where later
    /// snapshots may lie.
    pub fn class_of(&self, ts: CommitTs) -> Option<usize> {
        (ts <= self.frontier).then(|| self.ts.partition_point(|live| *live < ts))
    }
}

impl SnapshotRegistry {
    pub(crate) fn new(published: CommitTs) -> Self {
        SnapshotRegistry {
            frontier: OwnLine(AtomicU64::new(published.raw())),
            first: Block::new(),
        }
    }

    /// Registers a snapshot at the published timestamp. Rule T4: the slot is stored, then the frontier is
    /// read; a scan stores the frontier, then reads the slots. With a fence between on both sides at least
    /// one sees the other, so a snapshot a scan has missed is never older than that scan's frontier.
    pub(crate) fn register(&self, published: &AtomicU64) -> Snapshot {
        let mut ts = published.load(Ordering::Acquire);
        stop_point!("snapshot.after_load");
        let slot = self.claim((ts + 1) | IN_USE);
        loop {
            fence(Ordering::SeqCst);
            // Acquire: whoever sees a frontier also sees the published timestamp it was taken from.
            if self.frontier.0.load(Ordering::Acquire) <= ts {
                return Snapshot {
                    ts: CommitTs::new(ts),
                    slot,
                };
            }
            let newer = published.load(Ordering::Acquire);
            invariant!(
                newer > ts,
                "T4: the frontier is never ahead of the published timestamp"
            );
            ts = newer;
            slot.0.store((ts + 1) | IN_USE, Ordering::Release);
        }
    }

    /// Takes a free slot, starting where this thread found one last time.
    fn claim(&self, content: u64) -> Slot {
        let start = hint();
        let mut block = &self.first;
        loop {
            for step in 0..SLOTS_PER_BLOCK {
                let at = (start + step) % SLOTS_PER_BLOCK;
                let Some(slot) = block.slots.get(at) else { continue };
                let free = slot.0.load(Ordering::Relaxed) == FREE;
                if free
                    && slot
                        .0
                        .compare_exchange(FREE, content, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    remember(at);
                    return Arc::clone(slot);
                }
            }
            block = block.next.get_or_init(|| Box::new(Block::new()));
        }
    }

    /// Ends the snapshots at or below `ts` by which nobody reads now; how many.
    pub(crate) fn end_to(&self, ts: CommitTs) -> usize {
        let mut ended = 0;
        let mut block = Some(&self.first);
        while let Some(current) = block {
            for slot in &current.slots {
                let content = slot.0.load(Ordering::Acquire);
                let is_due = content & IN_USE == 0 && content != FREE && content <= ts.raw() + 1;
                // Its owner enters by the same kind of swap, so one of the two fails (rule T27).
                if is_due
                    && slot
                        .0
                        .compare_exchange(content, ENDED, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    ended += 1;
                }
            }
            block = current.next.get().map(AsRef::as_ref);
        }
        ended
    }

    /// Looks at all live snapshots.
    pub(crate) fn scan(&self, published: &AtomicU64) -> LiveSnapshots {
        let frontier = published.load(Ordering::Acquire);
        self.frontier.0.fetch_max(frontier, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let mut ts = Vec::new();
        let mut block = Some(&self.first);
        while let Some(current) = block {
            let taken = current
                .slots
                .iter()
                .map(|slot| slot.0.load(Ordering::Acquire) & !IN_USE);
            ts.extend(
                taken
                    .filter(|content| *content != FREE && *content != ENDED)
                    .map(|content| CommitTs::new(content - 1)),
            );
            block = current.next.get().map(AsRef::as_ref);
        }
        ts.sort_unstable();
        ts.dedup();
        LiveSnapshots {
            ts,
            frontier: CommitTs::new(frontier),
        }
    }
}

#[cfg(not(loom))]
thread_local! {
    /// Where this thread found a free slot last: threads settle on slots of their own.
    static START: Cell<usize> = const { Cell::new(0) };
}

#[cfg(not(loom))]
fn hint() -> usize {
    START.with(Cell::get)
}

#[cfg(not(loom))]
fn remember(at: usize) {
    START.with(|start| start.set(at));
}

/// A model must behave the same in each of its executions, so it remembers nothing.
#[cfg(loom)]
fn hint() -> usize {
    0
}

#[cfg(loom)]
fn remember(_at: usize) {}
