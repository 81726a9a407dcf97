//! Snapshot age: ends snapshots that have been kept for too long.
//!
//! Why it exists: what a snapshot may ask for cannot be homed, so one forgotten transaction keeps the log of all others, and
//! the disk fills. Nobody but its owner knows whether it is still wanted, so there is a limit.
//! State: since when, and from which end of the log on, each live snapshot has not been the newest. Registering a snapshot
//! writes nothing of this: the housekeeper looks at the live timestamps every 100 ms.
//! Rules: T28 (docs/transactions.md); T27 a snapshot is ended between statements only.
//! Latches and I/O: one, of the housekeeper and of status reports; no I/O.
//! After a crash: no snapshot survives.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::session::Session;
use parking_lot::Mutex;
use pbxt_base::CommitTs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Default of the limit: a day. No dump of a database takes so long whose log would not have to be kept anyway, and a
/// transaction that somebody forgot is found before the disk is full of what a day writes.
const MAX_AGE_SECONDS: u64 = 24 * 3600;

/// See the module.
#[derive(Debug)]
pub(crate) struct SnapshotAges {
    /// Seconds; 0 = no limit.
    limit: AtomicU64,
    /// Snapshots up to this timestamp + 1 are to be ended; 0 = none. Later ones are never that old again.
    ending: AtomicU64,
    /// By timestamp.
    behind: Mutex<BTreeMap<CommitTs, Behind>>,
}

/// Since when a snapshot is not the newest.
#[derive(Debug, Clone, Copy)]
struct Behind {
    millis: u64,
    /// The log's end then.
    tail: u64,
}

/// The oldest live snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OldestSnapshot {
    /// Seconds since somebody first committed what it does not see.
    pub age_seconds: u64,
    /// Bytes logged since: they cannot be given back before it ends.
    pub log_bytes: u64,
}

impl Default for SnapshotAges {
    fn default() -> Self {
        Self {
            limit: AtomicU64::new(MAX_AGE_SECONDS),
            ending: AtomicU64::new(0),
            behind: Mutex::default(),
        }
    }
}

impl Database {
    /// Sets the age in seconds beyond which a snapshot is ended if it holds more log than `hot_bytes_limit`; 0 = never.
    pub fn set_max_snapshot_age(&self, seconds: u64) {
        self.ages.limit.store(seconds, Ordering::Relaxed);
    }

    /// The oldest live snapshot now; zeros if there is none, or nothing was committed since.
    pub fn oldest_snapshot(&self, now_millis: u64) -> OldestSnapshot {
        let behind = self.ages.behind.lock();
        behind
            .values()
            .next()
            .map_or_else(OldestSnapshot::default, |oldest| self.age_of(oldest, now_millis))
    }

    /// Age of the snapshot at `ts`, and the log it keeps; zeros if nothing was committed since.
    pub(crate) fn snapshot_at(&self, ts: CommitTs, now_millis: u64) -> OldestSnapshot {
        let behind = self.ages.behind.lock();
        behind
            .get(&ts)
            .map_or_else(OldestSnapshot::default, |since| self.age_of(since, now_millis))
    }

    fn age_of(&self, behind: &Behind, now_millis: u64) -> OldestSnapshot {
        OldestSnapshot {
            age_seconds: now_millis.saturating_sub(behind.millis) / 1000,
            log_bytes: self.log.tail().raw().saturating_sub(behind.tail),
        }
    }

    /// Ends the snapshots that are too old at this time of the database's clock (rule T28); how many.
    pub fn end_old_snapshots(&self, now_millis: u64) -> usize {
        let live = self.txns.live_snapshots();
        let mut behind = self.ages.behind.lock();
        behind.retain(|ts, _| live.timestamps().binary_search(ts).is_ok());
        let tail = self.log.tail().raw();
        for ts in live.timestamps().iter().filter(|ts| **ts < live.frontier()) {
            behind.entry(*ts).or_insert(Behind {
                millis: now_millis,
                tail,
            });
        }
        let limit = self.ages.limit.load(Ordering::Relaxed);
        let is_too_old = |age: OldestSnapshot| {
            limit > 0 && age.age_seconds >= limit && age.log_bytes > self.hot_bytes_limit()
        };
        // Ages fall as timestamps rise.
        let mut old = behind
            .iter()
            .take_while(|(_, since)| is_too_old(self.age_of(since, now_millis)));
        let Some((last, _)) = old.by_ref().last() else {
            self.ages.ending.store(0, Ordering::Relaxed);
            return 0;
        };
        // Whoever reads by one now sees this and gives up; it is ended when its statement is.
        self.ages.ending.store(last.raw() + 1, Ordering::Relaxed);
        self.txns.end_snapshots(*last)
    }
}

impl Session {
    /// Ends a long statement whose snapshot is to be ended. To be asked now and then.
    pub(crate) fn refuse_if_too_old(&self) -> Result<()> {
        let ending = self.db.ages.ending.load(Ordering::Relaxed);
        match &self.work.snapshot {
            Some(snapshot) if snapshot.ts().raw() < ending => Err(self.snapshot_too_old()),
            _ => Ok(()),
        }
    }

    #[cold]
    pub(crate) fn snapshot_too_old(&self) -> Error {
        let age = self
            .db
            .clock
            .now_millis()
            .saturating_sub(self.work.started_millis);
        Error::SnapshotTooOld {
            age_seconds: age / 1000,
            limit_seconds: self.db.ages.limit.load(Ordering::Relaxed),
        }
    }
}
