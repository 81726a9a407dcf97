//! Waiter counts: a hint, without a latch, whether anybody waits for a resource.
//!
//! Why it exists: a newcomer must queue behind waiters instead of barging in, but must not visit the
//! wait-graph latch for every row it writes.
//! State: counters by hash of the resource; two resources may share one, so zero means "nobody", more means
//! "ask".
//! Rules: T15 (newcomers).
//! Latches and I/O: none.

use crate::resource::Resource;
use crate::sync::{AtomicU64, Ordering, mix};

#[cfg(not(loom))]
const COUNTERS: usize = 1024;
#[cfg(loom)]
const COUNTERS: usize = 2;

/// Counts of waiters by hash of what they wait for.
#[derive(Debug)]
pub struct WaiterCounts {
    counters: [AtomicU64; COUNTERS],
}

impl WaiterCounts {
    pub(crate) fn new() -> Self {
        WaiterCounts {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn counter(&self, resource: Resource) -> &AtomicU64 {
        let at = mix(resource.hash()) as usize % COUNTERS;
        self.counters
            .get(at)
            .expect("rule T15: a remainder of COUNTERS is below COUNTERS")
    }

    /// False: at the moment of the call nobody waited for `resource`. True: somebody may; the wait graph
    /// knows.
    #[inline]
    pub fn may_have_waiters(&self, resource: Resource) -> bool {
        self.counter(resource).load(Ordering::Acquire) != 0
    }

    pub(crate) fn came(&self, resource: Resource) {
        self.counter(resource).fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn left(&self, resource: Resource) {
        self.counter(resource).fetch_sub(1, Ordering::AcqRel);
    }
}
