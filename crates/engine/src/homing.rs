//! Homing: which version of a row leaves the hot log, and what then becomes of the row's word.
//!
//! Why it exists: the compactor asks this for every row of a segment, and a wrong answer loses a row; so it is one function
//! without side effects.
//! Rules: S1 a version is settled if its transaction committed at or below the horizon and no rollback made it void; it
//! hides all beneath it from everybody. S2 what is void or of an aborted transaction is nobody's. S3 the newest settled
//! version of a row is homed; its word is cleared only if nothing but S2 stands above it.
//! Latches and I/O: none; may load chunks of the log.

use crate::database::Database;
use crate::error::Result;
use crate::table::Table;
use crate::view::read_version;
use crossbeam_epoch::Guard;
use pbxt_base::{CommitTs, Lsn, RowId, TxnId};
use pbxt_rowmap::MapWord;
use pbxt_txn::TxnStatus;

/// What can still happen to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everybody sees it (rule S1).
    Settled,
    /// Nobody sees it, ever (rule S2).
    Dead,
    /// Its transaction has not ended.
    Unfinished,
    /// Committed after the horizon, at this timestamp.
    Recent(CommitTs),
}

/// How the version at `lsn` stands when everybody sees what committed at or before `horizon`.
#[inline]
pub(crate) fn standing_of(db: &Database, txn: TxnId, lsn: Lsn, horizon: CommitTs, guard: &Guard) -> Standing {
    let standing = db.txns.standing(txn, lsn, guard);
    match standing.status {
        _ if standing.void => Standing::Dead,
        TxnStatus::Aborted => Standing::Dead,
        TxnStatus::Settled => Standing::Settled,
        TxnStatus::Committed(ts) if ts <= horizon => Standing::Settled,
        TxnStatus::Committed(ts) => Standing::Recent(ts),
        TxnStatus::Active | TxnStatus::Prepared => Standing::Unfinished,
    }
}

/// What is to be done with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFate {
    /// It has no hot version that counts.
    None,
    /// All its hot versions are nobody's: this word is cleared.
    Clear(MapWord),
    /// The version at `lsn` is homed, and then this word cleared, if one is given (rule S3).
    Home {
        lsn: Lsn,
        is_tombstone: bool,
        word: Option<MapWord>,
    },
}

/// Decides for one row. `seen` is told of every version that is or may become somebody's, newest first.
pub(crate) fn fate_of<'g>(
    db: &Database,
    table: &Table,
    row: RowId,
    horizon: CommitTs,
    guard: &'g Guard,
    mut seen: impl FnMut(&pbxt_txlog::RowRef<'g>),
) -> Result<RowFate> {
    let word = table.map.load_in(row, guard);
    if word.is_absent() {
        return Ok(RowFate::None);
    }
    let mut addr = word.addr();
    let mut is_free = true;
    while !addr.is_none() {
        let Some(version) = read_version(db, addr, guard)? else {
            break;
        };
        let lsn = addr.lsn();
        match standing_of(db, version.txn(), lsn, horizon, guard) {
            Standing::Dead => {}
            Standing::Settled => {
                seen(&version);
                return Ok(RowFate::Home {
                    lsn,
                    is_tombstone: version.is_tombstone(),
                    word: is_free.then_some(word),
                });
            }
            Standing::Unfinished | Standing::Recent(_) => {
                seen(&version);
                is_free = false;
            }
        }
        addr = version.prev();
    }
    Ok(if is_free {
        RowFate::Clear(word)
    } else {
        RowFate::None
    })
}
