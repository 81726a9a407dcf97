//! Prepared transactions without a session: detached ones and those that recovery found.
//!
//! Why it exists: XA transactions outlive connections and crashes. The votes are kept beside, from PREPARE to END, also of
//! transactions that have a session: a checkpoint saves those whose PREPARE lies below it.
//! Rules: T18 they keep their table locks and the rows they wrote. An XA id that is not ours changes nothing. D19 a vote is
//! entered under the latch under which its PREPARE is appended, and leaves after END is. V3 a decision that comes while the
//! connection that voted is still being closed waits for its session to let go.
//! Latches: one latch for the map; inside it one for the votes, under which log space is reserved but no disk waited for.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::image::PreparedImage;
use crate::session::{FlushAtCommit, Isolation, Work};
use crate::shown::TableShown;
use parking_lot::{Condvar, Mutex};
use pbxt_base::{Lsn, TxnId};
use pbxt_txlog::CountDelta;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a decision waits for the session that voted to let go of its transaction. A closing connection takes
/// microseconds; a session that goes on is a mistake of the host, which gets an answer after this time.
const LET_GO_PATIENCE: Duration = Duration::from_secs(10);

/// Prepared transactions by XA id.
#[derive(Debug, Default)]
pub struct PreparedSet {
    by_xid: Mutex<BTreeMap<Vec<u8>, Work>>,
    /// One more transaction is in the map.
    changed: Condvar,
    /// Votes between PREPARE and END.
    votes: Mutex<BTreeMap<TxnId, PreparedImage>>,
    /// Number of votes, so that other ends need not look.
    vote_count: AtomicUsize,
}

/// One of them, for lists.
#[derive(Debug)]
pub(crate) struct Detached {
    pub txn: TxnId,
    pub isolation: Isolation,
    pub rows_changed: u64,
    pub rows_locked: u64,
    /// Milliseconds of the database's clock; 0 = before this open.
    pub started_millis: u64,
    pub first_lsn: Lsn,
    pub tables: Vec<Arc<TableShown>>,
}

impl PreparedSet {
    pub(crate) fn insert(&self, work: Work) {
        self.by_xid.lock().insert(work.xid.clone(), work);
        self.changed.notify_all();
    }

    /// Appends PREPARE and enters the vote (rule D19), unless another one has its id (rule V12). Returns the end of the record.
    pub(crate) fn vote(&self, vote: PreparedImage, append: impl FnOnce() -> Result<Lsn>) -> Result<Lsn> {
        let mut votes = self.votes.lock();
        if votes.values().any(|other| other.xid == vote.xid) {
            return Err(Error::Invalid(
                "another transaction is prepared under this id: end it, or take another id".into(),
            ));
        }
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

    /// How many votes have neither an END nor been given up.
    pub fn open_votes(&self) -> usize {
        self.vote_count.load(Ordering::Acquire)
    }

    /// All votes; some may have ended just now.
    pub(crate) fn votes(&self) -> Vec<PreparedImage> {
        self.votes.lock().values().cloned().collect()
    }

    /// Takes a detached transaction out. One that a session still holds is waited for (rule V3).
    fn take(&self, xid: &[u8]) -> Result<Work> {
        let mut detached = self.by_xid.lock();
        let mut patience = LET_GO_PATIENCE;
        while !detached.contains_key(xid) && !patience.is_zero() && self.has_vote(xid) {
            // A vote that its own session ends wakes nobody, so the wait is in short pieces.
            let piece = patience.min(Duration::from_millis(20));
            self.changed.wait_for(&mut detached, piece);
            patience = patience.saturating_sub(piece);
        }
        detached.remove(xid).ok_or(Error::NoSuchXid)
    }

    fn has_vote(&self, xid: &[u8]) -> bool {
        self.vote_count.load(Ordering::Acquire) > 0 && self.votes.lock().values().any(|vote| vote.xid == xid)
    }

    /// The id of a vote that is this one but for its first bytes; `None` if there is none (rule V16).
    pub fn alike(&self, xid: &[u8], but_for: usize) -> Option<Vec<u8>> {
        let counts = |id: &[u8]| {
            id.get(but_for..)
                .is_some_and(|rest| xid.get(but_for..) == Some(rest))
        };
        let votes = self.votes.lock();
        let mut found = votes.values().filter(|vote| counts(&vote.xid));
        found.next().map(|vote| vote.xid.clone())
    }

    /// XA ids in order.
    pub fn xids(&self) -> Vec<Vec<u8>> {
        self.by_xid.lock().keys().cloned().collect()
    }

    /// What lists show of them.
    pub(crate) fn listed(&self) -> Vec<Detached> {
        let listed = |work: &Work| Detached {
            txn: work.txn,
            isolation: work.isolation,
            rows_changed: work.rows_written,
            rows_locked: work.rows_locked,
            started_millis: work.started_millis,
            first_lsn: work.first_lsn,
            tables: work.tables.iter().map(|table| Arc::clone(&table.shown)).collect(),
        };
        self.by_xid.lock().values().map(listed).collect()
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.by_xid.lock().len()
    }
}

impl Database {
    /// Commits a detached prepared transaction; durable on return.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        let mut work = self.prepared.take(xid)?;
        let deltas: Vec<CountDelta> = work
            .tables
            .iter()
            .map(|table| CountDelta {
                table: table.table.id,
                rows: table.rows,
            })
            .collect();
        match self.publish_commit(&mut work, &deltas) {
            Ok(end) => {
                self.release(&mut work);
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
        let mut work = self.prepared.take(xid)?;
        let logged = self.abort(work.txn, true);
        // Without an END in the log it may come back prepared after a crash; here and now it holds nothing any more.
        self.prepared.forget_vote(work.txn);
        self.release(&mut work);
        logged?;
        // Durable now: the outcome. Without it the transaction would come back prepared after a crash.
        self.wait_for(self.log.tail(), FlushAtCommit::Durable)
    }
}
