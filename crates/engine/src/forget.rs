//! Forgetting: takes ended transactions out of the exceptions once nothing of theirs is left anywhere.
//!
//! Why it exists: an aborted transaction, or one with void ranges, stays listed as long as a version or an index event of it
//! can be met. Nobody keeps a list of those; they go when the log begins later and runs are rebuilt.
//! Rules: S23 a transaction that had ended when the log's end was at `tail` is forgotten when the log starts at or beyond it,
//! a checkpoint has begun at or beyond it (no tree has an event of it), and no run has a stamp in whose range it lies; and when nobody
//! reads trees or runs any more that were superseded until then, for those may have one; nor has a version in hand that was found in the log
//! before.
//! Latches and I/O: its own, and each table's shape latch, for a look at the names of all runs; no I/O. May wait for readers, a second at most.
//! After a crash: the image lists what was not forgotten when it was made.

use crate::database::Database;
use crate::error::Result;
use crate::grace::Grace;
use crate::pacing::Progress;
use crate::superseded::{Former, is_held};
use pbxt_base::{Lsn, TxnId};

/// Transactions forgotten under one latch.
const AT_ONCE: usize = 1024;
/// A step looks so many times whether readers have passed, about a second; the next one goes on.
const LOOKS: u32 = 10_000;

/// Transactions to be forgotten.
#[derive(Debug, Default)]
pub(crate) struct Forgetter {
    noted: Vec<TxnId>,
    /// Where the log ended when they were noted.
    tail: Lsn,
    /// Where the log started when there was a look for more.
    looked_at: Option<Lsn>,
    /// Those of which nothing was left in the parts of a moment.
    unnamed: Vec<TxnId>,
    /// Superseded parts that somebody had at that moment.
    former: Vec<Former>,
    /// For those who had found a version in the log before that moment.
    grace: Option<Grace>,
}

impl Database {
    /// Forgets transactions of which nothing is left, or notes those that have ended.
    pub fn forget_step(&self) -> Result<Progress> {
        self.poison.check()?;
        let mut forgetter = self.upkeep.forgetter.lock();
        if !forgetter.unnamed.is_empty() {
            return Ok(forgetter.forget(self));
        }
        let start = self.log.start();
        if forgetter.noted.is_empty() {
            if forgetter.looked_at != Some(start) {
                forgetter.looked_at = Some(start);
                forgetter.note(self);
            }
            return Ok(Progress::Idle);
        }
        let checkpoint = self.store.checkpoint().map_or(Lsn::new(0), |found| found.start);
        if start < forgetter.tail || checkpoint < forgetter.tail || forgetter.looked_at == Some(start) {
            return Ok(Progress::Idle);
        }
        forgetter.looked_at = Some(start);
        let mut former = Vec::new();
        let stamps = self.stamps_in_runs(&mut former);
        let is_left = |txn: &TxnId| stamps.iter().any(|(least, most)| least <= txn && txn <= most);
        // Those of which something may be left are noted again with all others: they keep nobody (S23).
        forgetter.unnamed = std::mem::take(&mut forgetter.noted);
        forgetter.unnamed.retain(|txn| !is_left(txn));
        forgetter.former = former;
        forgetter.grace = Some(Grace::begin());
        Ok(forgetter.forget(self))
    }

    /// Ranges of transactions whose stamps are in runs. Adds the superseded parts of this moment that somebody reads.
    fn stamps_in_runs(&self, former: &mut Vec<Former>) -> Vec<(TxnId, TxnId)> {
        let mut stamps = Vec::new();
        for table in self.catalog.tables() {
            // Under the latch under which parts are exchanged: each is either asked for its stamps or noted as superseded.
            let _shaping = table.shaping.lock();
            table.base.held_shapes(former);
            let shape = table.base.shape();
            let tagged = shape.runs.iter().filter(|run| run.is_tagged());
            stamps.extend(tagged.map(|run| (run.stamp.txn, run.stamp.txn)));
            for index in &table.indexes {
                index.held_parts(former);
                // Piece by piece: those of an oldest run may be of its whole life.
                let parts = index.parts();
                let pieces = parts.runs.iter().flat_map(|run| &run.pieces);
                stamps.extend(pieces.filter_map(|piece| piece.stamped_txns()));
                stamps.extend(
                    parts
                        .runs
                        .iter()
                        .filter_map(|run| run.tag.map(|(txn, _)| (txn, txn))),
                );
            }
        }
        stamps
    }
}

impl Forgetter {
    fn note(&mut self, db: &Database) {
        // The list first: who ends later is not in it, and whoever is in it wrote below this end.
        let ended = db.txns.exceptions_below(db.txns.next_id());
        self.noted = ended.into_iter().map(|(txn, _)| txn).collect();
        self.tail = db.log.tail();
    }

    /// Forgets those of which nothing is left, once nobody reads what may have had it.
    fn forget(&mut self, db: &Database) -> Progress {
        self.former.retain(is_held);
        if !self.former.is_empty() || self.grace.as_ref().is_some_and(|grace| !grace.is_over(LOOKS)) {
            return Progress::Idle;
        }
        self.grace = None;
        // Whoever has its slot yet is noted again.
        let unnamed = std::mem::take(&mut self.unnamed);
        let forgot = unnamed
            .chunks(AT_ONCE)
            .filter(|ids| db.txns.forget_all_traces(ids) > 0);
        if forgot.count() > 0 {
            Progress::Worked
        } else {
            Progress::Idle
        }
    }
}
