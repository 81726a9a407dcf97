//! Settled: whether a version has reached its last standing, for whoever moves versions out of the log.
//!
//! Why it exists: compactor and merges may strip a version of its stamp, or drop it, only when no snapshot and no
//! outcome can change what it means.
//! State: none.
//! Rules: T26 (settled for good), T6 (below the mark a later timestamp of the same class is as good), T8.
//! Latches and I/O: as `standing`: a shard latch of the void ranges for versions of void-carrying transactions;
//! `exceptions_below` none.

use crossbeam_epoch::Guard;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};

use crate::image::EndedAs;
use crate::status::TxnStatus;
use crate::txn_table::TxnTable;

/// What will be said about a version from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettledAs {
    /// Every live and later snapshot sees it.
    Committed,
    /// Nobody ever sees it: its transaction aborted, or it is void.
    Gone,
    /// Not settled yet: some snapshot may see it and some other not, or its transaction has not ended.
    Unsettled,
}

impl TxnTable {
    /// How the version that `id` wrote at `lsn` is settled, `horizon` being some horizon of this table, as old as may
    /// be (T26).
    #[inline]
    pub fn is_settled(&self, id: TxnId, lsn: Lsn, horizon: CommitTs, guard: &Guard) -> SettledAs {
        let standing = self.standing(id, lsn, guard);
        match standing.status {
            _ if standing.void => SettledAs::Gone,
            TxnStatus::Aborted => SettledAs::Gone,
            TxnStatus::Settled => SettledAs::Committed,
            TxnStatus::Committed(ts) if ts <= horizon => SettledAs::Committed,
            TxnStatus::Committed(_) | TxnStatus::Active | TxnStatus::Prepared => SettledAs::Unsettled,
        }
    }

    /// The ended transactions below both `id` and the low-water mark that are still special: aborted ones, and
    /// committed ones with void ranges. When all that was written in their time has been rewritten or dropped, they are
    /// for `forget_traces`.
    pub fn exceptions_below(&self, id: TxnId) -> Vec<(TxnId, EndedAs)> {
        let guard = crossbeam_epoch::pin();
        let directory = self.directory.load(&guard);
        let below = directory.exceptions.iter().take_while(|(found, _)| *found < id);
        let special = |(found, word): (TxnId, crate::status::Word)| match word.status() {
            TxnStatus::Aborted => Some((found, EndedAs::Aborted)),
            TxnStatus::Committed(ts) if word.has_void() => Some((found, EndedAs::Committed(ts))),
            _ => None,
        };
        below.filter_map(special).collect()
    }
}
