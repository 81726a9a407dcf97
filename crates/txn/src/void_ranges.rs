//! Void ranges: the LSN ranges of a transaction that a savepoint or statement rollback made not to have
//! happened.
//!
//! Why it exists: rolling back part of a transaction must cost the same for one row and for fifty million, so
//! nothing is undone row by row; whoever meets a version asks whether its LSN is void.
//! State: per transaction a sorted list of disjoint, not touching, half-open ranges [from, to); written to
//! PREPARE and END records and to the checkpoint by their owners.
//! Rules: T7 (ranges before bit), T8 (void is void for everyone).
//! Latches and I/O: one latch per shard, taken only for transactions whose word says "has void ranges".
//! After a crash: recovery adds the ranges it reads from PREPARE and END.

use std::collections::HashMap;
use std::ops::Range;

use pbxt_base::ids::{Lsn, TxnId};
use pbxt_base::invariant;

use crate::sync::{Latch, mix};

const SHARDS: usize = 16;

#[derive(Debug)]
pub(crate) struct VoidRanges {
    shards: [Latch<HashMap<TxnId, Vec<Range<Lsn>>>>; SHARDS],
}

impl VoidRanges {
    pub(crate) fn new() -> Self {
        VoidRanges {
            shards: std::array::from_fn(|_| Latch::new(HashMap::new())),
        }
    }

    fn shard(&self, id: TxnId) -> &Latch<HashMap<TxnId, Vec<Range<Lsn>>>> {
        let at = mix(id.raw()) as usize % SHARDS;
        self.shards
            .get(at)
            .expect("rule T7: a remainder of SHARDS is below SHARDS")
    }

    pub(crate) fn add(&self, id: TxnId, range: Range<Lsn>) {
        invariant!(
            range.start < range.end,
            "T7: a void range holds at least one byte"
        );
        merge_into(self.shard(id).lock().entry(id).or_default(), range);
    }

    pub(crate) fn contains(&self, id: TxnId, lsn: Lsn) -> bool {
        self.shard(id)
            .lock()
            .get(&id)
            .is_some_and(|ranges| covers(ranges, lsn))
    }

    pub(crate) fn of(&self, id: TxnId) -> Vec<Range<Lsn>> {
        self.shard(id).lock().get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn remove(&self, id: TxnId) {
        self.shard(id).lock().remove(&id);
    }
}

fn covers(ranges: &[Range<Lsn>], lsn: Lsn) -> bool {
    let after = ranges.partition_point(|range| range.start <= lsn);
    after
        .checked_sub(1)
        .and_then(|at| ranges.get(at))
        .is_some_and(|range| lsn < range.end)
}

/// Puts `new` into a sorted list of disjoint ranges and melts everything it overlaps or touches into it.
fn merge_into(ranges: &mut Vec<Range<Lsn>>, new: Range<Lsn>) {
    let first = ranges.partition_point(|range| range.end < new.start);
    let beyond = ranges.partition_point(|range| range.start <= new.end);
    let melted = ranges.get(first..beyond).unwrap_or_default();
    let start = melted
        .first()
        .map_or(new.start, |range| range.start.min(new.start));
    let end = melted.last().map_or(new.end, |range| range.end.max(new.end));
    ranges.splice(first..beyond, std::iter::once(start..end));
}

#[cfg(test)]
#[path = "void_ranges_tests.rs"]
mod void_ranges_tests;
