//! Stamps: ids of transactions as values in rows, for hosts that keep former rows by transaction.
//!
//! Why it exists: such a host writes the id of the transaction into rows, and at the commit a second id of the same sequence
//! into a list of its own, which may be in another engine. That list must not know an id that is given again later.
//! Rules: T47, T48.
//! Latches and I/O: the latch of the mark, for one record and one sync in many thousands of commits.
//! After a crash: ids go on above all that may have been told (rule T48).

use crate::commit::append;
use crate::database::Database;
use crate::error::Result;
use crate::session::Session;
use parking_lot::Mutex;
use pbxt_base::TxnId;
use pbxt_txlog::{EndRecord, Outcome};

/// By how much ids that were told may be greater than the greatest one that is known to be in the log for good.
pub(crate) const TOLD_AHEAD: u64 = 1 << 16;

/// The greatest id that is known to be in the log for good (rule T48); 0 until the first one is told.
#[derive(Debug, Default)]
pub(crate) struct LoggedId(Mutex<u64>);

impl Session {
    /// The id of the running transaction, which begins one if need be, to be part of a row (rule T47).
    pub fn stamp(&mut self) -> Result<TxnId> {
        let txn = self.ensure_txn()?;
        if self.work.stamped.is_none() {
            self.work.stamped = Some(self.db.log.tail());
        }
        Ok(txn)
    }

    /// The id of the running transaction and one for its commit, greater than all before; none if there is no row
    /// with the first (rule T47).
    pub fn commit_stamp(&mut self) -> Result<Option<(TxnId, TxnId)>> {
        self.refuse_if_over()?;
        if self.work.stamped.is_none() {
            return Ok(None);
        }
        self.flush_all_bulk()?;
        Ok(Some((self.work.txn, self.db.tell_id()?)))
    }
}

impl Database {
    /// An id that belongs to no transaction and is given to none, whatever happens (rule T48).
    fn tell_id(&self) -> Result<TxnId> {
        let id = self.txns.spend();
        let mut logged = self.logged_id.0.lock();
        if *logged != 0 && id.raw() <= *logged + TOLD_AHEAD {
            return Ok(id);
        }
        let record = EndRecord {
            txn: id,
            outcome: Outcome::Abort,
            deltas: &[],
            voids: &[],
        };
        let end = append(&self.log, record.encoded_len(), |out| record.encode_into(out))?;
        // With it on disk no id up to it is given again. Without it a crash could forget that the id was told, and whoever got it
        // next would be taken for this commit.
        self.log.wait_durable(end)?;
        *logged = id.raw();
        Ok(id)
    }
}
