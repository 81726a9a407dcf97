//! Prepared transactions without a session: detached ones and those that recovery found.
//!
//! Why it exists: XA transactions outlive connections and crashes. The votes are kept beside, from PREPARE to END, also of
//! transactions that have a session: a checkpoint saves those whose PREPARE lies below it.
//! Rules: T18 they keep their table locks and the rows they wrote. An XA id that is not ours changes nothing. D19 a vote is
//! entered under the latch under which its PREPARE is appended, and leaves after END is.
//! Latches: one latch for the map; one for the votes, under which log space is reserved but no disk waited for.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::image::PreparedImage;
use crate::session::{FlushAtCommit, Work};
use parking_lot::Mutex;
use pbxt_base::{Lsn, TxnId};
use pbxt_txlog::CountDelta;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Prepared transactions by XA id.
#[derive(Debug, Default)]
pub struct PreparedSet {
    by_xid: Mutex<BTreeMap<Vec<u8>, Work>>,
    /// Votes between PREPARE and END.
    votes: Mutex<BTreeMap<TxnId, PreparedImage>>,
    /// Number of votes, so that other ends need not look.
    vote_count: AtomicUsize,
}

impl PreparedSet {
    pub(crate) fn insert(&self, work: Work) {
        self.by_xid.lock().insert(work.xid.clone(), work);
    }

    /// Appends PREPARE and enters the vote (rule D19). Returns the end of the record.
    pub(crate) fn vote(&self, vote: PreparedImage, append: impl FnOnce() -> Result<Lsn>) -> Result<Lsn> {
        let mut votes = self.votes.lock();
        let end = append()?;
        votes.insert(vote.txn, vote);
        self.vote_count.store(votes.len(), Ordering::Release);
        Ok(end)
    }

    /// Enters a vote whose PREPARE recovery found.
    pub(crate) fn note_vote(&self, vote: PreparedImage) {
        let mut votes = self.votes.lock();
        votes.insert(vote.txn, vote);
        self.vote_count.store(votes.len(), Ordering::Release);
    }

    /// END was appended.
    pub(crate) fn forget_vote(&self, txn: TxnId) {
        if self.vote_count.load(Ordering::Acquire) > 0 {
            let mut votes = self.votes.lock();
            votes.remove(&txn);
            self.vote_count.store(votes.len(), Ordering::Release);
        }
    }

    /// All votes; some may have ended just now.
    pub(crate) fn votes(&self) -> Vec<PreparedImage> {
        self.votes.lock().values().cloned().collect()
    }

    fn take(&self, xid: &[u8]) -> Result<Work> {
        self.by_xid.lock().remove(xid).ok_or(Error::NoSuchXid)
    }

    /// XA ids in order.
    pub fn xids(&self) -> Vec<Vec<u8>> {
        self.by_xid.lock().keys().cloned().collect()
    }

    /// Transaction ids, rows written, and when they began (milliseconds of the database's clock; 0 before this open).
    pub fn txns(&self) -> Vec<(TxnId, u64, u64)> {
        self.by_xid
            .lock()
            .values()
            .map(|work| (work.txn, work.rows_written, work.started_millis))
            .collect()
    }
}

impl Database {
    /// Commits a detached prepared transaction; durable on return.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        let work = self.prepared.take(xid)?;
        let deltas: Vec<CountDelta> = work
            .tables
            .iter()
            .map(|table| CountDelta {
                table: table.table.id,
                rows: table.rows,
            })
            .collect();
        match self.publish_commit(&work, &deltas) {
            Ok(end) => {
                self.release(work);
                self.wait_for(end, FlushAtCommit::Durable)
            }
            Err(error) => {
                self.prepared.insert(work);
                Err(error)
            }
        }
    }

    /// Rolls a detached prepared transaction back; durable on return.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        let work = self.prepared.take(xid)?;
        self.abort(work.txn, true)?;
        self.release(work);
        // Durable now: the outcome. Without it the transaction would come back prepared after a crash.
        self.wait_for(self.log.tail(), FlushAtCommit::Durable)
    }
}
