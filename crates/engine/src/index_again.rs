//! Index again: whether a search that found nothing has to be made once more.
//!
//! Why it exists: entries are read some at once, and their rows are locked and judged one by one, later. One transaction may take a key from a
//! row that the search comes to and give it to one that it has passed, or whose entry came behind those it had read: at every moment a row had
//! the key, and the search finds none.
//! Rules: T55. Of a row that had the key when the search began it met an entry. So nothing is missed unless somebody has committed since who brought
//! a row there, whose entry is of him. Rows that only went are not missed: queues are searched by many who remove them.
//! Latches and I/O: none held between calls; may read blocks of the index. Only where nothing was found, and only if anybody committed.

use super::{Access, Cursor, Seek, is_beyond_of, stamp_of};
use crate::database::Database;
use crate::error::Result;
use crate::session::Session;
use pbxt_base::CommitTs;
use pbxt_index::{MergedCursor, SeekPos, Sign};
use pbxt_txn::{Snapshot, Stamp, TxnStatus};

/// When a search began.
#[derive(Debug)]
pub(crate) struct Since {
    ts: CommitTs,
    /// Keeps commits since then from being forgotten, where the transaction has no snapshot that does.
    horizon: Option<Snapshot>,
}

impl Since {
    pub(crate) fn now(db: &Database) -> Self {
        Self {
            ts: db.txns.published(),
            horizon: None,
        }
    }

    /// True if whoever wrote this has committed since.
    fn has_committed(&self, session: &Session, stamp: Stamp) -> bool {
        if stamp.txn.raw() == 0 || stamp.txn == session.work.txn {
            return false;
        }
        let guard = crossbeam_epoch::pin();
        let standing = session.db.txns.standing(stamp.txn, stamp.lsn, &guard);
        !standing.void && matches!(standing.status, TxnStatus::Committed(ts) if ts > self.ts)
    }
}

impl Cursor {
    /// When a search begins that rule T55 is about; none where a snapshot decides what there is, or what is newer is a conflict.
    #[inline]
    pub(super) fn since(&self, session: &Session) -> Option<Since> {
        let goes_by_newest = matches!(self.access, Access::LockNewest(_) | Access::Current);
        (goes_by_newest && !self.view.refuses_newer()).then(|| Since::now(&session.db))
    }

    /// True if a row of the range may have been missed by a search forward, or of its prefix only, that began then and found nothing. Whoever
    /// searches again does so since now.
    pub(crate) fn was_overtaken(
        &mut self,
        session: &mut Session,
        seek: Seek,
        since: &mut Since,
    ) -> Result<bool> {
        let db = &session.db;
        let now = db.txns.published();
        let has_end = matches!(seek, Seek::OrNext | Seek::After) && self.index.end.is_some();
        let is_bounded = seek.is_of_prefix() || has_end;
        if now == since.ts || !is_bounded {
            return Ok(false);
        }
        let mut snapshot = session.work.snapshot.iter().chain(&since.horizon);
        if !snapshot.any(|snapshot| snapshot.ts() <= since.ts) {
            // Commits since then may have been settled, and look like old ones.
            since.horizon = Some(db.txns.open_snapshot());
            since.ts = db.txns.published();
            return Ok(true);
        }
        let overtaken = self.has_arrivals_since(session, seek, since)?;
        since.ts = now;
        Ok(overtaken)
    }

    /// True if somebody who has committed since has brought a row into the range.
    fn has_arrivals_since(&mut self, session: &mut Session, seek: Seek, since: &Since) -> Result<bool> {
        let parts = self.table.indexes[self.index.number].parts();
        let from = match seek {
            Seek::After => SeekPos::upper_bound(&self.index.prefix),
            _ => SeekPos::lower_bound(&self.index.prefix),
        };
        let mut entries = std::mem::take(&mut session.probe.entries);
        let begun = entries.seek(&parts, &session.db.cache, &from, true);
        let overtaken = match begun {
            Ok(()) => self.comes_to_one_since(session, seek, since, &mut entries),
            Err(error) => Err(error.into()),
        };
        entries.clear();
        session.probe.entries = entries;
        overtaken
    }

    fn comes_to_one_since(
        &mut self,
        session: &Session,
        seek: Seek,
        since: &Since,
        entries: &mut MergedCursor,
    ) -> Result<bool> {
        while let Some(entry) = entries.peek()
            && !self.is_behind_range(seek, entry.key())
        {
            self.check_kill(session)?;
            if entry.sign() == Sign::Entry
                && !entry.is_dead()
                && since.has_committed(session, stamp_of(entry))
            {
                return Ok(true);
            }
            entries.advance()?;
        }
        Ok(false)
    }

    fn is_behind_range(&self, seek: Seek, key: &[u8]) -> bool {
        let prefix = seek.is_of_prefix().then_some(self.index.prefix.as_slice());
        is_beyond_of(
            prefix,
            self.index.end.as_ref().filter(|_| seek != Seek::Last),
            key,
        )
    }
}
