//! Index moves: from where an index scan stands to the next row in either direction.
//!
//! Why it exists: a scan that goes one way needs no position but that of its entries. Who turns around, comes back in another
//! statement, or goes on after a search that found nothing, seeks again, and where from depends on how the scan came to stand there.
//! State: `Stand`, which is only looked at when a scan seeks again; moves that find their row leave it as it is.
//! Rules: X62. X49 a search for one whole key knows that key only. X56 where entries of a strip are left, the scan stands behind them.
//! Latches and I/O: none held between calls.

use super::{Cursor, Seek};
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
        let in_strip = self.index.lone.is_waiting() && self.goes_on_in_strip(forward, same, &show);
        // Where entries of a strip are left, the cursor stands behind them.
        let is_outgrown = (!in_strip && self.index.leave_strip())
            || (self.is_noting && self.index.noted.is_outgrown_by(same))
            || (self.index.is_of_key && !same)
            || self.index.is_outdated;
        let is_waiting = in_strip || self.index.ahead.is_waiting() || self.index.handful.is_waiting();
        if is_outgrown || forward != self.index.forward || !is_waiting {
            self.renew(session, table, (forward, same), is_outgrown)?;
        }
        self.index.must_match = same;
        let found = self.advance(session, table, show);
        self.index.must_match = false;
        match found {
            Ok(true) => self.index.stand = Stand::Row,
            Ok(false) => {
                self.index.stand = self.index.stand.past(forward);
                self.index.ended_with_prefix = same;
            }
            Err(_) => {}
        }
        found
    }

    /// Seeks again from where the scan stands, if the direction changes, only the prefix was over, or the index has other parts by now.
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
        if forward == self.index.forward {
            let has_ended = self.index.ended;
            let leaves_prefix = has_ended && self.index.ended_with_prefix && !same;
            if !leaves_prefix && (has_ended || (!is_outgrown && is_current())) {
                return Ok(());
            }
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
        begun
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
