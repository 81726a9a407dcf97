//! Key hints of all indexes: which have some, and how much memory they take.
//!
//! Why it exists: hints pay where keys are sought again and again, and take memory that blocks could have. So an index gets them when it has been
//! asked for many keys, and loses them when nobody asks it any more.
//! State: of each index its hints, if it has any, and how often it was asked. All that is decided is decided by housekeeping: a
//! reader never waits for memory to be made ready.
//! Rules: X58, X59 of docs/indexes.md; S41 of docs/storage.md.
//! Latches and I/O: none.
//! After a crash: nothing is left.

use crate::database::Database;
use crate::definition::IndexDef;
use crate::table::{Index, Table};
use arc_swap::ArcSwapOption;
use pbxt_index::KeyHints;
use pbxt_rows::{PayloadKeyMaker, Schema};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Searches that a cursor counts before it tells the index of them.
pub(crate) const SEEKS_TOLD: u64 = 64;
/// Searches between two looks at all indexes that are worth hints.
const SEEKS_WORTH_IT: u64 = 4096;
/// Entries of an index that is worth hints: a smaller one is near anyway.
const ENTRIES_MIN: u64 = 1024;
/// Hints of all indexes may take one byte in so many of the cache budget.
const SHARE: u64 = 16;
/// An index that can have hints for less than one in so many of its entries has none.
const PART_MIN: u64 = 16;
/// Rounds of housekeeping between two looks at all indexes, unless one is asked for.
const ROUNDS: u32 = 10;
/// Looks that find no search before hints go.
const LOOKS_KEPT: u32 = 60;

/// Hints of one index.
#[derive(Debug, Default)]
pub(crate) struct HintsOfIndex {
    hints: ArcSwapOption<KeyHints>,
    /// How often they were exchanged: those who read ask for this number, and not for hints that are as they were.
    exchanges: AtomicU64,
    /// Searches for whole keys that were told of; those at the last look, and looks since then that found no more.
    seeks: AtomicU64,
    seen: AtomicU64,
    idle_looks: AtomicU32,
}

impl HintsOfIndex {
    /// A number that says whether `now` would be the same as before; to be asked for first.
    #[inline]
    pub(crate) fn exchanges(&self) -> u64 {
        self.exchanges.load(Ordering::Acquire)
    }

    /// The hints now.
    pub(crate) fn now(&self) -> Option<Arc<KeyHints>> {
        self.hints.load_full()
    }

    fn exchange(&self, hints: Option<KeyHints>) {
        self.hints.store(hints.map(Arc::new));
        self.exchanges.fetch_add(1, Ordering::Release);
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.hints.load().as_ref().map_or(0, |hints| hints.memory_bytes())
    }
}

/// What the database knows of all hints.
#[derive(Debug, Default)]
pub(crate) struct HintRoom {
    /// Bytes at the last look.
    taken: AtomicU64,
    /// An index has been asked for many keys since then.
    is_asked: AtomicBool,
    rounds: AtomicU32,
}

impl HintRoom {
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// An index was asked for so many keys.
    pub(crate) fn note_seeks(&self, of: &HintsOfIndex, seeks: u64) {
        let before = of.seeks.fetch_add(seeks, Ordering::Relaxed);
        let is_worth_it = before + seeks >= of.seen.load(Ordering::Relaxed) + SEEKS_WORTH_IT;
        if is_worth_it && of.hints.load().is_none() {
            self.is_asked.store(true, Ordering::Relaxed);
        }
    }

    /// True if it is time to look at all indexes, and whether that is a regular look.
    fn is_due(&self) -> Option<bool> {
        let is_asked = self.is_asked.swap(false, Ordering::Relaxed);
        let is_regular = (self.rounds.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(ROUNDS);
        (is_asked || is_regular).then_some(is_regular)
    }
}

/// What tells whether a row has a key of the index; none where more than one row may have it, or keys need the host (rule X58).
pub(crate) fn finder_of(def: &IndexDef, schema: &Schema) -> Option<PayloadKeyMaker> {
    let is_of_one_row = def.unique && def.spec.parts().iter().all(|part| !part.nullable);
    let is_derivable = is_of_one_row && def.spec.derivable(schema);
    // One that does not fit its columns says so where keys are made.
    is_derivable
        .then(|| PayloadKeyMaker::new(&def.spec, schema).ok())
        .flatten()
}

/// Bytes of hints for an index whose hints of all entries would take so many, and now take so many if it has some; none if it goes on with
/// what it has.
fn wish((entries, all): (u64, u64), now: Option<u64>, left: u64) -> Option<u64> {
    let bytes = all.min(left);
    match now {
        None => (entries >= ENTRIES_MIN && bytes >= all / PART_MIN).then_some(bytes),
        // What is known is lost, so it must be worth while.
        Some(now) => (bytes >= now.saturating_mul(2)).then_some(bytes),
    }
}

impl Database {
    /// Bytes that all hints may take.
    pub(crate) fn hint_budget(&self) -> u64 {
        self.cache_bytes / SHARE
    }

    /// Gives hints to every index that can have some, whether it is asked for keys or not. Where they pay, housekeeping does that by
    /// itself (rule X59): this is for who knows before, and for tests. What there is no room for gets none.
    pub fn give_hints(&self) {
        let tables = self.catalog.tables();
        let taken = tables.iter().map(|table| table.hint_bytes()).sum();
        let mut left = self.hint_budget().saturating_sub(taken);
        for table in &tables {
            for index in table.indexes.iter().filter(|index| index.finder().is_some()) {
                if index.hints().now().is_none() {
                    let row_max = table.map.high_mark();
                    let all = KeyHints::bytes_for(index.parts().entries(), row_max);
                    let bytes = all.min(left);
                    if bytes < all / PART_MIN || bytes == 0 {
                        continue;
                    }
                    let hints = KeyHints::with_bytes(bytes, row_max);
                    index.hints().exchange(hints);
                    left = left.saturating_sub(index.hints().memory_bytes());
                }
            }
        }
    }

    /// Gives hints to indexes that are asked for keys, and takes them from those that are not (rule X59).
    pub(crate) fn see_to_hints(&self) {
        let Some(is_regular) = self.hints.is_due() else {
            return;
        };
        let tables = self.catalog.tables();
        let of_table = |table: &Arc<Table>| table.hint_bytes();
        let mut taken: u64 = tables.iter().map(of_table).sum();
        let pairs = tables
            .iter()
            .flat_map(|table| table.indexes.iter().map(move |index| (table, index)));
        for (table, index) in pairs.filter(|(_, index)| index.finder().is_some()) {
            let before = index.hints().memory_bytes();
            // Somebody else may give some meanwhile.
            taken = taken.saturating_sub(before);
            let left = self.hint_budget().saturating_sub(taken);
            index.see_to_hints(table.map.high_mark(), left, is_regular);
            taken += index.hints().memory_bytes();
        }
        self.hints.taken.store(taken, Ordering::Relaxed);
    }
}

impl Index {
    fn see_to_hints(&self, row_max: u64, left: u64, is_regular: bool) {
        let of = self.hints();
        // In this order, and each sees what the look before it saw: others may look at the same time.
        let seen = of.seen.load(Ordering::Acquire);
        let seeks = of.seeks.load(Ordering::Relaxed);
        let now = of.hints.load().as_ref().map(|hints| hints.memory_bytes());
        if seeks - seen >= SEEKS_WORTH_IT
            && let entries = self.parts().entries()
            && let Some(bytes) = wish((entries, KeyHints::bytes_for(entries, row_max)), now, left)
        {
            of.exchange(KeyHints::with_bytes(bytes, row_max));
        }
        if !is_regular {
            return;
        }
        of.seen.store(seeks, Ordering::Release);
        let idle = if seeks == seen {
            of.idle_looks.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            of.idle_looks.store(0, Ordering::Relaxed);
            0
        };
        if idle >= LOOKS_KEPT && now.is_some() {
            of.exchange(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_made_for_all_entries_or_for_what_there_is_room_for() {
        const MIB: u64 = 1 << 20;
        let large = |entries| (entries, KeyHints::bytes_for(entries, u64::MAX >> 16));
        let all = large(1_000_000).1;
        assert_eq!(wish(large(1_000_000), None, 16 * MIB), Some(all));
        assert_eq!(wish(large(1_000_000), None, MIB), Some(MIB));
        assert_eq!(
            wish(large(1_000_000), None, MIB / 4),
            None,
            "X59: too few to be worth it"
        );
        assert_eq!(wish(large(100), None, MIB), None, "X59: what is small is near");
        assert_eq!(wish(large(1_000_000), Some(all), 64 * MIB), None);
        assert_eq!(wish(large(1_500_000), Some(all), 64 * MIB), None);
        assert_eq!(wish(large(2_000_000), Some(all), 64 * MIB), Some(2 * all));
        assert_eq!(wish(large(2_000_000), Some(all), all + MIB), None);
    }
}
