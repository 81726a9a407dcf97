//! Room of the block cache: what the other parts of the cache budget leave.
//!
//! Why it exists: log, loads, scans that fetch ahead, index entries in memory and key hints may each take a part of the budget and mostly take
//! little of it. What they do not take belongs to decoded blocks: with more data than memory every byte of it spares reads.
//! Rules (docs/storage.md): S41 the block cache has what the others leave, and half at least.
//! Latches and I/O: none here; a change of the cache's size takes the latch of each of its shards in turn.

use crate::database::Database;

/// Kept free for what grows between two looks, one byte in so many.
const SPARE: u64 = 64;
/// A change by less than one byte in so many is not made.
const STEP: u64 = 128;

/// Bytes for the block cache, when the others have taken so many of the budget.
fn room(all: u64, taken: u64) -> u64 {
    all.saturating_sub(taken + all / SPARE).max(all / 2)
}

impl Database {
    /// Fits the block cache to what the others have taken now (rule S41).
    pub(crate) fn fit_block_cache(&self) {
        let taken = self.log.stats().cache_bytes
            + self.loads.taken()
            + self.fetches.taken()
            + self.tree_bytes().0
            + self.hints.taken();
        let (room, now) = (room(self.cache_bytes, taken), self.cache.budget());
        if room.abs_diff(now) >= (self.cache_bytes / STEP).max(1) {
            self.cache.set_budget(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::Share;
    use crate::database::Options;
    use pbxt_testkit::SimDisk;
    use std::sync::Arc;

    #[test]
    fn the_block_cache_has_what_the_others_leave() {
        const MIB: u64 = 1 << 20;
        assert_eq!(room(256 * MIB, 0), 252 * MIB);
        assert_eq!(room(256 * MIB, 50 * MIB), 202 * MIB);
        assert_eq!(room(256 * MIB, 120 * MIB), 132 * MIB);
        assert_eq!(room(256 * MIB, 130 * MIB), 128 * MIB);
        assert_eq!(room(256 * MIB, 900 * MIB), 128 * MIB);
        assert_eq!(room(0, 5), 0);
    }

    #[test]
    fn a_load_takes_its_part_back_at_once_and_gives_it_up() {
        let options = Options::for_cache(64 << 20);
        let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
        db.fit_block_cache();
        let before = db.cache.budget();
        assert!(
            before > 48 << 20,
            "{before} bytes for blocks though nobody else has any"
        );
        let share = Share::take(&db).expect("nobody else loads");
        let beside = db.cache.budget();
        assert!(
            beside + (12 << 20) <= before,
            "{before} and {beside} beside a load"
        );
        assert!(beside >= 32 << 20, "S41: half at least, but {beside}");
        drop(share);
        db.housekeeping_step();
        assert_eq!(db.cache.budget(), before);
    }
}
