//! Prepared transactions without a session: detached ones and those that recovery found.
//!
//! Rules: T18 they keep their table locks and the rows they wrote. An XA id that is not ours changes nothing.
//! Latches: one latch for the map.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::session::{FlushAtCommit, Work};
use parking_lot::Mutex;
use pbxt_base::TxnId;
use pbxt_txlog::CountDelta;
use std::collections::BTreeMap;

/// Prepared transactions by XA id.
#[derive(Debug, Default)]
pub struct PreparedSet {
    by_xid: Mutex<BTreeMap<Vec<u8>, Work>>,
}

impl PreparedSet {
    pub(crate) fn insert(&self, work: Work) {
        self.by_xid.lock().insert(work.xid.clone(), work);
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
