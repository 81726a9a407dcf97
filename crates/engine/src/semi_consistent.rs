//! Semi-consistent reads: rows that others have locked are judged by the host before anybody waits for them.
//!
//! Why it exists: most rows that a scan comes to do not fit the condition; to wait for the end of a transaction only to find that out is a
//! wait for nothing, and makes statements that want different rows stand in each other's way.
//! State: whether the host can come back to a row, and whether it wants to come back to the one at hand.
//! Rules: T40. The version shown without a lock is only looked at: what is changed is what stands there once the row is locked (T22).
//! Latches and I/O: none held between calls; a version is kept from being cleaned up while it is read.

use crate::cursor::{Cursor, Visit};
use crate::error::Result;
use crate::locking::Busy;
use crate::session::{Isolation, Session};
use crate::version::RowVersion;
use crate::view::{Resolved, View};
use pbxt_base::{RowId, planted};
use pbxt_txn::{ReadMode, Viewer};

/// How a scan deals with rows that it cannot lock at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Semi {
    /// It waits.
    #[default]
    Off,
    /// It looks first, where it may.
    Try,
    /// The row at hand was looked at.
    Looked,
    /// The host wants the row it has looked at: the next move is to it.
    Wanted,
}

impl Cursor {
    /// From now on the host can come back to a row, or no longer.
    pub fn try_semi_consistent(&mut self, on: bool) {
        self.semi = if on { Semi::Try } else { Semi::Off };
    }

    /// True if the row last read was shown without the lock it needs. The host wants it: the next move of the scan is to the same row.
    pub fn was_semi_consistent(&mut self) -> bool {
        let is_unlocked = matches!(self.semi, Semi::Looked | Semi::Wanted) && !planted!("semi.no_return");
        if is_unlocked {
            self.semi = Semi::Wanted;
        }
        is_unlocked
    }

    /// True if rows that others have locked are looked at before anybody waits for them.
    #[inline]
    pub(crate) fn may_look(&self, session: &Session) -> bool {
        self.semi == Semi::Try
            && session.isolation() == Isolation::ReadCommitted
            && self.bind.for_write
            && self.bind.lock.is_none()
            && self.bind.busy != Busy::Skip
    }

    /// Called by each move of a scan: true if it has to come back to the row at hand. To be followed by `is_back`.
    #[inline]
    pub(crate) fn comes_back(&mut self) -> bool {
        if self.semi == Semi::Looked {
            self.semi = Semi::Try;
        }
        self.semi == Semi::Wanted
    }

    /// The row at hand is locked, or not there any more.
    pub(crate) fn is_back(&mut self) {
        self.leave_row();
    }

    /// The row at hand is none that the host may come back to.
    #[inline]
    pub(crate) fn leave_row(&mut self) {
        if self.semi != Semi::Off {
            self.semi = Semi::Try;
        }
    }

    /// The viewer of what is committed or own, whoever has the row.
    pub(crate) fn looking(&self, session: &Session) -> Viewer {
        Viewer {
            own: session.work.txn,
            mode: ReadMode::ReadCommittedNoWait,
            ..self.view.viewer
        }
    }

    /// Shows the newest committed or own version of a row that others have locked.
    pub(crate) fn look(
        &mut self,
        session: &Session,
        row: RowId,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        let db = &session.db;
        // Whoever has the row may end meanwhile: values of the version it replaces stay while they are read.
        let _horizon = session.work.snapshot.is_none().then(|| db.txns.open_snapshot());
        let mut view = View::new(self.looking(session));
        let guard = crossbeam_epoch::pin();
        let word = self.table.map.load_in(row, &guard);
        match view.resolve(db, &self.table, row, word, &guard)? {
            Resolved::Row(found) => {
                self.semi = Semi::Looked;
                self.count_one();
                show(&found.version(row)).map(|()| Visit::Shown)
            }
            Resolved::Absent | Resolved::Wait(..) | Resolved::Conflict => Ok(Visit::Hidden),
        }
    }
}
