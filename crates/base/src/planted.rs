//! Planted faults: named places where a test can make the code do wrong.
//!
//! Why it exists: a net that never caught anything may have a hole. A test plants one fault, and the net has to catch it.
//! Without feature `planted-faults` every place is the constant `false`.
//! Rules: all names stand in `NAMES`; planting an unlisted one is a panic. A fault is planted for the thread that plants it.

/// Every fault, with what it breaks.
pub const NAMES: &[&str] = &[
    // A snapshot sees the first commit after it (rule T4).
    "snapshot.one_late",
    // Consistent reads see versions of unfinished transactions (T9).
    "read.unfinished",
    // A row changed since the snapshot is no write conflict (T20).
    "write.no_conflict",
    // Anti-entries are passed over: a row stays under keys it had (T11).
    "index.no_anti_entries",
    // A row found through an index is not looked up there again once it is locked (T22).
    "index.no_second_look",
    // A row that was looked at without a lock is changed all the same (T40).
    "semi.no_return",
    // Writers pass over explicit row locks (T16).
    "link.ignores_locks",
    // Rows that a SERIALIZABLE transaction reads are not noted (T30).
    "serializable.no_rows",
    // Key ranges that it reads are not noted (T30).
    "serializable.no_ranges",
    // Tables that it scans are not noted (T30).
    "serializable.no_tables",
    // Nobody hears of versions that it passes over (T29).
    "serializable.no_passing_over",
    // T3 of a dangerous pair commits and ends nobody (T29).
    "serializable.no_check_at_end",
    // A piece file is named before its bytes are durable (F13).
    "piece.no_sync",
    // A commit that asks for it does not wait for the disk (D1).
    "commit.not_awaited",
    // Files that only the checkpoint before names go before the manifest names the new one (F15).
    "checkpoint.removal_first",
    // Files that nothing names any more stay (D24).
    "pieces.leaked",
    // The count of a table misses a row of each bulk load.
    "load.count_off",
    // Prepared transactions that only the checkpoint knows are not taken over (D19).
    "recovery.prepared_forgotten",
    // The numbers of rows that a checkpoint has are taken for less than none (C4).
    "recovery.count_below_none",
    // Batches of the log are believed without a look at their checksum (D5).
    "log.checksum_unchecked",
    // A merge of an index drops the entries of some rows (X35).
    "merge.entry_lost",
    // A merge of an index drops what only older snapshots see (S20).
    "merge.past_snapshots",
    // A version replaces one that an older snapshot sees when it leaves the log (S1).
    "homing.past_snapshots",
    // A blob segment goes although some of its values live (S16).
    "blob.dropped_alive",
    // The first row behind a savepoint outlives the rollback to it (T8).
    "savepoint.row_left",
    // An index that is built misses some rows (AL18).
    "build.row_missed",
    // Some rows that are changed while an index is built are missed (AL29).
    "build.change_missed",
    // A leaf of the row map is freed while readers may look at it (M3).
    "map.freed_early",
    // A leaf of the row map is published without what was written to it before (M3).
    "map.unpublished",
];

/// True if a test planted the fault with this name.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_planted($name)
    };
}

#[cfg(feature = "planted-faults")]
mod active {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// A fault; gone when dropped.
    #[derive(Debug)]
    pub struct Planted(());

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    /// Plants a fault for this thread, in place of one planted before.
    pub fn plant(name: &'static str) -> Planted {
        assert!(super::NAMES.contains(&name), "fault '{name}' is not listed");
        PLANTED.set(Some(name));
        Planted(())
    }

    /// Called by `planted!`.
    #[inline]
    pub fn is_planted(name: &'static str) -> bool {
        PLANTED.get() == Some(name)
    }
}

/// Called by `planted!`; a constant without feature `planted-faults`.
#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub const fn is_planted(_name: &'static str) -> bool {
    false
}

#[cfg(feature = "planted-faults")]
pub use active::{Planted, is_planted, plant};
