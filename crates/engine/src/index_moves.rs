//! Index moves: from where an index scan stands to the next row in either direction.
//!
//! Why it exists: a scan that goes one way needs no position but that of its entries. Who turns around, comes back in another
//! statement, or goes on after a search that found nothing, seeks again, and where from depends on how the scan came to stand there.
//! State: `Stand`, which is only looked at when a scan seeks again; moves that find their row leave it as it is.
//! Rules: X62. X49 a search for one whole key knows that key only. X56 where entries of a strip are left, the scan stands behind them.
//! Latches and I/O: none held between calls.

use super::{Cursor, IndexScan, Seek, is_beyond_of};
use crate::error::Result;
use crate::session::Session;
use crate::table::Table;
use crate::version::{RowVersion, Show};
use pbxt_base::{Lsn, RowId};
use pbxt_index::{SeekPos, Sign};
use std::sync::Arc;

/// Where a scan stands (rule X62).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stand {
    /// On the row last shown.
    #[default]
    Row,
    /// Between the row last shown and what comes behind it in key order: nothing did.
    BehindRow,
    /// The same on its other side.
    BeforeRow,
    /// In front of all keys that begin with the prefix of the last search, which found nothing.
    BeforePrefix,
    /// The same behind them.
    BehindPrefix,
}

impl Stand {
    /// Where a search begins, and whether it goes forward from there.
    pub(super) fn of_seek(seek: Seek) -> (Self, bool) {
        match seek {
            Seek::Exact | Seek::Key | Seek::OrNext => (Self::BeforePrefix, true),
            Seek::After => (Self::BehindPrefix, true),
            Seek::OrPrev | Seek::Last => (Self::BehindPrefix, false),
            Seek::Before => (Self::BeforePrefix, false),
        }
    }

    pub(super) fn place_of(self, prefix: &[u8]) -> SeekPos<'_> {
        if self == Self::BehindPrefix {
            SeekPos::upper_bound(prefix)
        } else {
            SeekPos::lower_bound(prefix)
        }
    }

    /// After a move that found nothing: between the row and what was not wanted, where it stood on one.
    fn past(self, forward: bool) -> Self {
        match self {
            Self::Row if forward => Self::BehindRow,
            Self::Row => Self::BeforeRow,
            stays => stays,
        }
    }

    /// The search that a move from here is, where no row is stood on.
    fn as_seek(self, forward: bool) -> Option<Seek> {
        match (self, forward) {
            (Self::BeforePrefix, true) => Some(Seek::OrNext),
            (Self::BeforePrefix, false) => Some(Seek::Before),
            (Self::BehindPrefix, true) => Some(Seek::After),
            (Self::BehindPrefix, false) => Some(Seek::OrPrev),
            _ => None,
        }
    }
}

impl IndexScan {
    /// Nothing was found, for who wanted rows of the prefix only if `same`; who does not then seeks again.
    pub(super) fn end_with_prefix(&mut self, same: bool) {
        self.ended_with_prefix = same;
        self.is_outdated |= same;
    }
}

impl Cursor {
    /// Goes to the next or previous row. With `same` only rows that begin with the prefix of the last seek count. Where there is none, the
    /// cursor stands behind the row last shown, or where nothing was found (rule X62).
    pub fn index_move(
        &mut self,
        session: &mut Session,
        forward: bool,
        same: bool,
        show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.index_move_showing(session, forward, same, show)
    }

    /// `index_move` for those who can do with the index entry.
    pub(crate) fn index_move_showing(
        &mut self,
        session: &mut Session,
        forward: bool,
        same: bool,
        mut show: impl Show,
    ) -> Result<bool> {
        if self.goes_on_in_handful(forward, same, &show) && self.serve_handful(session, same, &mut show)? {
            return Ok(true);
        }
        self.resume_index(session)?;
        let table = self.borrow_table();
        let found = self.move_in(session, &table, (forward, same), show);
        self.give_back(table);
        found
    }

    #[inline(never)]
    fn move_in(
        &mut self,
        session: &mut Session,
        table: &Arc<Table>,
        (forward, same): (bool, bool),
        mut show: impl Show,
    ) -> Result<bool> {
        if self.comes_back() && self.show_again(session, table, &mut show)? {
            return Ok(true);
        }
        if self.goes_on_ahead(forward, same) && self.serve_kept(same, &mut show)? {
            return Ok(true);
        }
        let stood = self.index.stand;
        if !self.goes_on_in_strip(forward, same, &show) {
            self.leave_strip_for_move(session, table, (forward, same))?;
        }
        self.index.must_match = same;
        let found = self.advance(session, table, &mut show);
        self.index.must_match = false;
        if !matches!(found, Ok(true)) {
            self.note_nothing(stood, (forward, same), found.is_ok());
        }
        found
    }

    /// True if a move goes on in the stretch that was fetched ahead, and nothing has to be asked but its row.
    #[inline]
    fn goes_on_ahead(&self, forward: bool, same: bool) -> bool {
        let scan = &self.index;
        let goes_on = scan.ahead.is_waiting() && scan.forward == forward && (same || !scan.is_of_key);
        goes_on && !scan.is_outdated && !self.is_noting && scan.lone.is_empty()
    }

    /// Shows the next row that was fetched ahead, if it was kept; false if there is more to be asked.
    #[inline]
    fn serve_kept(&mut self, same: bool, show: &mut impl Show) -> Result<bool> {
        let IndexScan {
            ahead,
            current_key,
            current_row,
            prefix,
            end,
            forward,
            ..
        } = &mut self.index;
        let Some((key, row, payload, version)) = ahead.kept() else {
            return Ok(false);
        };
        let prefix = same.then_some(prefix.as_slice());
        if is_beyond_of(prefix, end.as_ref().filter(|_| *forward), key) {
            return Ok(false);
        }
        current_key.clear();
        current_key.extend_from_slice(key);
        *current_row = row;
        let shown = show.row(&RowVersion::new(row, payload, version));
        ahead.pass_next();
        self.note_shown(row);
        shown.map(|()| true)
    }

    /// A move from there showed nothing.
    #[cold]
    fn note_nothing(&mut self, stood: Stand, (forward, same): (bool, bool), has_ended: bool) {
        let scan = &mut self.index;
        scan.stand = if has_ended { stood.past(forward) } else { stood };
        if has_ended {
            scan.end_with_prefix(same);
        }
    }

    /// A move that is not one to the next entry of a strip: what was taken before may not do for it.
    #[inline(always)]
    fn leave_strip_for_move(
        &mut self,
        session: &mut Session,
        table: &Table,
        (forward, same): (bool, bool),
    ) -> Result<()> {
        // Where entries of a strip are left, the cursor stands behind them.
        let is_outgrown = self.index.leave_strip()
            || (self.is_noting && self.index.noted.is_outgrown_by(same))
            || (self.index.is_of_key && !same)
            || self.index.is_outdated;
        let is_waiting = self.index.ahead.is_waiting() || self.index.handful.is_waiting();
        if is_outgrown || forward != self.index.forward || !is_waiting {
            self.renew(session, table, (forward, same), is_outgrown)?;
        }
        Ok(())
    }

    /// Seeks again from where the scan stands, if the direction changes, only the prefix was over, or the index has other parts by now.
    /// It stands on a row then, if the move shows one.
    fn renew(
        &mut self,
        session: &mut Session,
        table: &Table,
        (forward, same): (bool, bool),
        is_outgrown: bool,
    ) -> Result<()> {
        let index = self.index_of(table)?;
        let is_current = || {
            let parts = self.index.parts.as_ref();
            parts.is_some_and(|parts| index.is_unchanged(self.index.installs) || index.has_parts(parts))
        };
        if !is_outgrown && forward == self.index.forward && is_current() {
            return Ok(());
        }
        let leaves_prefix = self.index.ended_with_prefix && !same;
        if self.index.ended && forward == self.index.forward && !leaves_prefix {
            return Ok(());
        }
        let stand = self.index.stand;
        let as_seek = stand.as_seek(forward);
        if self.is_noting {
            match as_seek {
                Some(seek) => {
                    let prefix = std::mem::take(&mut self.index.prefix);
                    self.note_seek(session, &prefix, seek);
                    self.index.prefix = prefix;
                }
                None => self.note_renewal(session, forward),
            }
        }
        let key = std::mem::take(&mut self.index.current_key);
        let prefix = std::mem::take(&mut self.index.prefix);
        let row = self.index.current_row;
        let from = match stand {
            Stand::Row => behind(&key, row, forward),
            Stand::BehindRow => behind(&key, row, true),
            Stand::BeforeRow => behind(&key, row, false),
            Stand::BeforePrefix | Stand::BehindPrefix => stand.place_of(&prefix),
        };
        let begun = self.index.begin(&session.db, index, &from, forward);
        self.index.current_key = key;
        self.index.prefix = prefix;
        begun?;
        self.index.stand = Stand::Row;
        Ok(())
    }
}

/// The place behind all events of a row under a key.
pub(super) fn behind(key: &[u8], row: RowId, forward: bool) -> SeekPos<'_> {
    if forward {
        SeekPos::after(key, row, Lsn::new(u64::MAX), Sign::Entry)
    } else {
        SeekPos::before(key, row, Lsn::new(0), Sign::Anti)
    }
}
