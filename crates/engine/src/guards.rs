//! Operation guards: "a row operation of mine is between its first log record and its last derived change".
//!
//! Why it exists: a checkpoint promises that all records below its LSN have left their marks in what it saves. Only the
//! operations that are under way at that moment can break the promise, and they are short: it waits for them.
//! Rules: G1 an operation enters before it loads an index's parts or reserves log space, and leaves after its last swap,
//! bit, count and index event. G2 nobody waits for a lock of another transaction inside. G3 a thread enters once at a time.
//! Latches and I/O: a shared latch out of sixteen, chosen by session, so that sessions do not meet on one cache line.

use parking_lot::{RwLock, RwLockReadGuard};

const SHARDS: usize = 16;

/// One latch on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(RwLock<()>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OperationGuards {
    shards: [Shard; SHARDS],
}

impl OperationGuards {
    /// Enters (rule G1); the operation ends when the answer is dropped.
    #[inline]
    pub(crate) fn enter(&self, shard: usize) -> RwLockReadGuard<'_, ()> {
        self.shards[shard % SHARDS].0.read()
    }

    /// Returns when every operation that was under way at the call has ended.
    pub(crate) fn drain(&self) {
        for shard in &self.shards {
            drop(shard.0.write());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_drain_waits_for_operations_under_way_only() {
        let guards = OperationGuards::default();
        let left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let operation = guards.enter(3);
            let drained = scope.spawn(|| {
                guards.drain();
                assert!(left.load(Ordering::Acquire), "G1: the operation was still inside");
            });
            std::thread::sleep(Duration::from_millis(20));
            left.store(true, Ordering::Release);
            drop(operation);
            drained.join().expect("the drain returns");
        });
        guards.drain();
    }
}
