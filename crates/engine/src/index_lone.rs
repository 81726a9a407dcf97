//! Index lone: entries shown many at a time where nothing can be beside them.
//!
//! Why it exists: of most entries that a covering scan meets there is no other event of the same key and row, and they lie in a block
//! whose entries have one stamp. What each would be asked for by itself (is another event next, in which part, is the border passed,
//! does the snapshot see it) is so of the whole strip of them, and asked once.
//! State: a strip of entries that begins small and grows while the scan goes on. Until it has been shown the position of the scan is its
//! next entry, though the cursor beneath stands behind it.
//! Rules: X56, X61. B7 is still asked of each row. Only for snapshots: what they see does not change while a strip waits.
//! Latches and I/O: none held between calls.

use super::{Cursor, Index, IndexScan, Session, Show};
use crate::cursor::Access;
use crate::error::Result;
use pbxt_base::RowId;
use pbxt_index::{Copied, SeekPos, Strip};
use pbxt_txn::{Stamp, Verdict};

/// Entries shown one by one before a strip is taken: that takes searches, which a short scan would pay for nothing.
const SHOWN_BEFORE: u32 = 16;
/// Entries of the first strip, and of one at most.
const FIRST: usize = 16;
const MOST: usize = 256;

/// A strip and how far it has been shown.
#[derive(Debug, Default)]
pub(super) struct LoneWalk {
    strip: Strip,
    /// Entries of the strip that have been shown or passed, and how many there were when the last one was shown.
    at: usize,
    shown_to: usize,
    /// Places of entries whose rows have to be looked at (rule B7), the last one first.
    doubtful: Vec<usize>,
    /// It ends with the prefix of the last seek.
    is_of_prefix: bool,
    /// Since it was taken the border of the scan has changed, or the statement is over.
    is_outdated: bool,
    /// Entries shown by themselves since there was a strip.
    shown: u32,
    /// Entries of the next strip at most.
    most: usize,
}

impl LoneWalk {
    /// Forgets the strip, as a seek does.
    pub(super) fn reset(&mut self) {
        self.strip.clear();
        (self.at, self.shown_to) = (0, 0);
        self.shown = 0;
        self.most = FIRST;
    }

    /// Notes an entry shown by itself.
    #[inline]
    pub(super) fn count(&mut self) {
        self.shown += 1;
    }

    /// True if there is no strip, shown or not.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.strip.is_empty()
    }

    /// True if entries wait to be shown.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.at < self.strip.len()
    }

    /// True if the entries that wait are those of a move forward, with the prefix of the last seek or without.
    #[inline]
    pub(super) fn is_for(&self, same: bool) -> bool {
        self.is_of_prefix == same && !self.is_outdated
    }

    /// The entry of the strip that was shown last.
    #[inline]
    pub(super) fn last(&self) -> Option<(&[u8], RowId)> {
        let (key, _, row) = self.strip.get(self.shown_to.checked_sub(1)?)?;
        Some((key, row))
    }
}

impl IndexScan {
    /// What is left of the strip, or of a handful, is not to be shown as it is.
    pub(crate) fn outdate_strip(&mut self) {
        self.lone.is_outdated = true;
        self.handful.is_outdated = true;
    }

    /// Gives the strip up: the entry shown last becomes the scan's own. True if entries were left.
    #[inline]
    pub(super) fn leave_strip(&mut self) -> bool {
        if self.lone.strip.is_empty() {
            return false;
        }
        if let Some((key, row)) = self.lone.last() {
            self.current_key.clear();
            self.current_key.extend_from_slice(key);
            self.current_row = row;
        }
        let is_left = self.lone.is_waiting();
        self.lone.strip.clear();
        (self.lone.at, self.lone.shown_to) = (0, 0);
        is_left
    }

    /// Takes the lone entries at the position, if there are any.
    fn take_lone(&mut self, copied: Copied) {
        let mut strip = std::mem::take(&mut self.lone.strip);
        let most = match copied {
            Copied::Entries => self.lone.most,
            Copied::Rows => MOST,
        };
        self.take_lone_into(most, copied, &mut strip);
        let lone = &mut self.lone;
        lone.strip = strip;
        lone.is_of_prefix = self.must_match;
        lone.is_outdated = false;
        // Where there is none, more are shown by themselves before the next look.
        lone.shown = if lone.strip.is_empty() { 0 } else { SHOWN_BEFORE };
        lone.most = (lone.most * 2).min(MOST);
    }

    /// Takes up to `most` lone entries at the position, up to the border and the end of the prefix.
    pub(super) fn take_lone_into(&mut self, most: usize, copied: Copied, strip: &mut Strip) {
        let Self {
            end,
            prefix,
            entries,
            must_match,
            ..
        } = self;
        let end = end.as_ref().map(|(key, inclusive)| {
            if *inclusive {
                SeekPos::upper_bound(key)
            } else {
                SeekPos::lower_bound(key)
            }
        });
        let prefix = must_match.then(|| SeekPos::upper_bound(prefix));
        entries.take_lone([end, prefix], most, copied, strip);
    }
}

impl Cursor {
    /// True if scans show what entries say, and a snapshot is what decides.
    #[inline]
    fn goes_by_entries(&self, show: &impl Show) -> bool {
        self.access == Access::Snapshot && !self.is_noting && show.wants_key() && !show.is_choosy()
    }

    /// True if a move is one to the next entry of the strip.
    #[inline]
    pub(super) fn goes_on_in_strip(&self, forward: bool, same: bool, show: &impl Show) -> bool {
        let scan = &self.index;
        let is_there = scan.lone.is_waiting() && !scan.is_outdated && (same || !scan.is_of_key);
        is_there && forward && scan.lone.is_for(same) && self.goes_by_entries(show)
    }

    /// Shows the next row of this strip or of those behind it; false if none is left, and the position is where the last one was shown.
    pub(super) fn show_of_strips(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<bool> {
        while self.index.lone.is_waiting() || self.take_strip(session, show)? {
            if self.serve_strip(session, index, show)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the next strip; false if there is none.
    fn take_strip(&mut self, session: &Session, show: &impl Show) -> Result<bool> {
        self.index.leave_strip();
        if self.index.lone.shown < SHOWN_BEFORE || !self.index.forward || !self.goes_by_entries(show) {
            return Ok(false);
        }
        self.take_judged(session, Copied::Entries)
    }

    /// The same without asking whether it is worth it.
    fn take_judged(&mut self, session: &Session, copied: Copied) -> Result<bool> {
        self.check_kill(session)?;
        self.index.take_lone(copied);
        self.judge_strip(session)?;
        Ok(!self.index.lone.strip.is_empty())
    }

    /// Counts the rows of the next strip and of all that follow it directly, and goes behind them (rule X61). None if the next entry is no
    /// lone one.
    pub(super) fn count_strips(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<Option<u64>> {
        let mut rows = None;
        self.index.leave_strip();
        while self.index.forward && self.goes_by_entries(show) && self.take_judged(session, Copied::Rows)? {
            rows = Some(rows.unwrap_or(0) + self.count_strip(session, index, show)?);
            self.index.leave_strip();
        }
        Ok(rows)
    }

    /// Counts the rows of a strip that has been judged.
    fn count_strip(&mut self, session: &mut Session, index: &Index, show: &mut impl Show) -> Result<u64> {
        if !self.index.lone.is_waiting() {
            return Ok(0);
        }
        let strip = std::mem::take(&mut self.index.lone.strip);
        let mut rows = (strip.len() - self.index.lone.doubtful.len()) as u64;
        self.note_counted(rows);
        let mut looked = Ok(());
        while let Some(place) = self.index.lone.doubtful.pop() {
            let (_, _, row) = strip.get(place).unwrap_or_default();
            // Of a row that is only looked at no key is needed: that is for rows that are locked.
            match self.show_entry(session, index, &[], row, show) {
                Ok(is_there) => rows += u64::from(is_there),
                Err(error) => {
                    looked = Err(error);
                    break;
                }
            }
        }
        let lone = &mut self.index.lone;
        (lone.at, lone.shown_to) = (strip.len(), strip.len());
        lone.strip = strip;
        looked.map(|()| rows)
    }

    /// Asks of all entries of the strip what is to be asked of each.
    fn judge_strip(&mut self, session: &Session) -> Result<()> {
        let mut doubtful = std::mem::take(&mut self.index.lone.doubtful);
        doubtful.clear();
        let strip = std::mem::take(&mut self.index.lone.strip);
        let is_seen = self.sees_strip(session, &strip);
        self.index.lone.strip = strip;
        let guard = crossbeam_epoch::pin();
        if matches!(is_seen, Ok(true)) {
            let rows = self.index.lone.strip.rows().enumerate();
            let is_doubtful = |(_, row): &(usize, RowId)| !self.is_plain_in(*row, &guard);
            if self.may_be_removed {
                doubtful.extend(rows.map(|(place, _)| place));
            } else {
                doubtful.extend(rows.filter(is_doubtful).map(|(place, _)| place));
            }
            doubtful.reverse();
        } else {
            self.index.lone.at = self.index.lone.strip.len();
        }
        self.index.lone.doubtful = doubtful;
        is_seen.map(|_| ())
    }

    /// True if the reader sees the stamp that all entries of the strip have.
    pub(super) fn sees_strip(&mut self, session: &Session, strip: &Strip) -> Result<bool> {
        let (txn, lsn) = strip.stamp();
        self.view.viewer.own = session.work.txn;
        let stamp = Stamp { txn, lsn };
        Ok(txn.raw() == 0 || self.view.judge(&session.db, stamp, &crossbeam_epoch::pin())? != Verdict::Skip)
    }

    /// Shows the next entry of the strip whose row is there; false if none is left.
    fn serve_strip(&mut self, session: &mut Session, index: &Index, show: &mut impl Show) -> Result<bool> {
        let strip = std::mem::take(&mut self.index.lone.strip);
        let served = self.serve_from(session, index, &strip, show);
        self.index.lone.strip = strip;
        served
    }

    fn serve_from(
        &mut self,
        session: &mut Session,
        index: &Index,
        strip: &Strip,
        show: &mut impl Show,
    ) -> Result<bool> {
        while let Some((key, unpack, row)) = strip.get(self.index.lone.at) {
            let place = self.index.lone.at;
            self.index.lone.at += 1;
            if self.index.lone.doubtful.last() == Some(&place) {
                self.index.lone.doubtful.pop();
                if !self.show_entry(session, index, key, row, show)? {
                    continue;
                }
            } else {
                self.note_shown(row);
            }
            self.index.lone.shown_to = self.index.lone.at;
            // Rule X52.
            return show.key(key, unpack).map(|()| true);
        }
        Ok(false)
    }

    /// Key and unpack information of the next entry of the strip, for a move forward; none if there is more to be asked. The host shows it
    /// as it did those before.
    #[inline]
    pub(crate) fn next_of_strip(&mut self, same: bool) -> Option<(&[u8], &[u8])> {
        let lone = &mut self.index.lone;
        let place = lone.at;
        let row = lone.strip.row(place)?;
        if !lone.is_for(same) || lone.doubtful.last() == Some(&place) || self.access != Access::Snapshot {
            return None;
        }
        lone.at = place + 1;
        lone.shown_to = place + 1;
        self.note_shown(row);
        let (key, unpack, _) = self.index.lone.strip.get(place)?;
        Some((key, unpack))
    }
}
