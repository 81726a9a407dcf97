//! View: how one reader judges versions and walks version chains.
//!
//! Why it exists: `txn::judge` answers for one version; scans ask it for millions of versions of few transactions, so
//! the last foreign verdict is kept.
//! Rules: T10 the first answer other than "skip" on the way down a chain is the chain's answer. T9 the cursor LSN
//! hides own later versions. In snapshot mode a foreign transaction without void ranges has one verdict for the life of
//! the snapshot, so keeping it is exact.
//! Latches and I/O: none, except that reading a version may load its chunk; callers hold an epoch guard and no latch.

use crate::database::Database;
use crate::error::Result;
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, AddrClass, Error as StorageError, Lsn, TxnId};
use pbxt_rowmap::MapWord;
use pbxt_txlog::RowRef;
use pbxt_txn::{ReadMode, Stamp, Verdict, Viewer, judge};

/// A reader.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub viewer: Viewer,
    kept_txn: TxnId,
    kept: Verdict,
}

/// What a chain holds for a reader.
#[derive(Clone, Copy)]
pub(crate) enum Resolved<'g> {
    /// This version, which is not a tombstone, at this LSN.
    Row(RowRef<'g>, Lsn),
    /// No row: never there, deleted, or not yet there.
    Absent,
    /// Wait for the transaction (its version at this LSN is in the way).
    Wait(TxnId, Lsn),
    /// Committed after the snapshot.
    Conflict,
}

impl View {
    pub(crate) fn new(viewer: Viewer) -> Self {
        Self {
            viewer,
            kept_txn: TxnId::new(u64::MAX),
            kept: Verdict::Skip,
        }
    }

    /// Judges one version or index event.
    #[inline]
    pub(crate) fn judge(&mut self, db: &Database, stamp: Stamp, guard: &Guard) -> Verdict {
        if stamp.txn == self.kept_txn {
            self.kept
        } else {
            self.judge_anew(db, stamp, guard)
        }
    }

    fn judge_anew(&mut self, db: &Database, stamp: Stamp, guard: &Guard) -> Verdict {
        let standing = db.txns.standing(stamp.txn, stamp.lsn, guard);
        let verdict = judge(&self.viewer, stamp, standing);
        let settled_question = self.viewer.mode == ReadMode::Snapshot && stamp.txn != self.viewer.own;
        if settled_question && !db.txns.carries_voids(stamp.txn, guard) {
            self.kept_txn = stamp.txn;
            self.kept = verdict;
        }
        verdict
    }

    /// Walks the chain that begins at `word` (rule T10).
    #[inline]
    pub(crate) fn resolve<'g>(
        &mut self,
        db: &Database,
        word: MapWord,
        guard: &'g Guard,
    ) -> Result<Resolved<'g>> {
        let mut addr = word.addr();
        while !addr.is_none() {
            let row = read_version(db, addr, guard)?;
            let lsn = addr.lsn();
            let txn = row.txn();
            match self.judge(db, Stamp { txn, lsn }, guard) {
                Verdict::Visible if row.is_tombstone() => return Ok(Resolved::Absent),
                Verdict::Visible => return Ok(Resolved::Row(row, lsn)),
                Verdict::Wait(blocker) => return Ok(Resolved::Wait(blocker, lsn)),
                Verdict::Conflict => return Ok(Resolved::Conflict),
                Verdict::Skip => addr = self.beneath(db, &row, lsn, guard),
            }
        }
        Ok(Resolved::Absent)
    }

    /// Where to go on below a skipped version. All of a foreign transaction that did not commit for this reader can be
    /// skipped at once; beneath a void or an own version every version counts.
    fn beneath(&self, db: &Database, row: &RowRef<'_>, lsn: Lsn, guard: &Guard) -> Addr {
        match row.foreign_prev() {
            Some(foreign) if row.txn() != self.viewer.own && !db.txns.is_void(row.txn(), lsn, guard) => {
                foreign
            }
            _ => row.prev(),
        }
    }
}

/// The version at an address that a row map word or a predecessor names.
#[inline]
pub(crate) fn read_version<'g>(db: &Database, addr: Addr, guard: &'g Guard) -> Result<RowRef<'g>> {
    if addr.class() != AddrClass::Hot {
        return Err(dangling(db, addr, "a version in the log").into());
    }
    let record = db.log.read(addr.lsn(), guard)?;
    record
        .as_row()
        .ok_or_else(|| dangling(db, addr, "a row record").into())
}

fn dangling(db: &Database, addr: Addr, expected: &str) -> StorageError {
    StorageError::Corrupt {
        file: db.store.location(),
        offset: addr.lsn().raw(),
        expected: format!("{expected} at {addr:?}"),
        found: "something else".into(),
    }
}
