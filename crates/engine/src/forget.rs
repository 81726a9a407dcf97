//! Forgetting: takes ended transactions out of the exceptions once nothing of theirs is left anywhere.
//!
//! Why it exists: an aborted transaction, or one with void ranges, stays listed as long as a version or an index event of it
//! can be met. Nobody keeps a list of those; they go when the log begins later and runs are rebuilt.
//! Rules: S23 a transaction that had ended when the log's end was at `tail` is forgotten when the log starts at or beyond it,
//! a checkpoint has begun at or beyond it (no tree has an event of it), and no run has a stamp in whose range it lies.
//! Latches and I/O: its own, for a look at the names of all runs; no I/O.
//! After a crash: the image lists what was not forgotten when it was made.

use crate::database::Database;
use crate::error::Result;
use crate::pacing::Progress;
use pbxt_base::{Lsn, TxnId};

/// Transactions to be forgotten.
#[derive(Debug, Default)]
pub(crate) struct Forgetter {
    noted: Vec<TxnId>,
    /// Where the log ended when they were noted.
    tail: Lsn,
    /// Where the log started when there was a look for more.
    looked_at: Option<Lsn>,
}

impl Database {
    /// Forgets transactions of which nothing is left, or notes those that have ended.
    pub fn forget_step(&self) -> Result<Progress> {
        self.poison.check()?;
        let mut forgetter = self.upkeep.forgetter.lock();
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
        let stamps = self.stamps_in_runs();
        let is_left = |txn: &TxnId| stamps.iter().any(|(least, most)| least <= txn && txn <= most);
        let before = forgetter.noted.len();
        forgetter
            .noted
            .retain(|txn| is_left(txn) || !self.txns.forget_traces(*txn));
        let forgot = forgetter.noted.len() < before;
        Ok(if forgot { Progress::Worked } else { Progress::Idle })
    }

    /// Ranges of transactions whose stamps are in runs.
    fn stamps_in_runs(&self) -> Vec<(TxnId, TxnId)> {
        let mut stamps = Vec::new();
        for table in self.catalog.tables() {
            let shape = table.base.shape();
            let tagged = shape.runs.iter().filter(|run| run.is_tagged());
            stamps.extend(tagged.map(|run| (run.stamp.txn, run.stamp.txn)));
            for index in &table.indexes {
                stamps.extend(index.parts().runs.iter().filter_map(|run| run.stamped_txns()));
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
}
