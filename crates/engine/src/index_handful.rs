//! Index handful: a few entries taken at once, so that the waits for their rows are one.
//!
//! Why it exists: rows that stand together in an index are strewn over the row blocks. Each is two waits for memory, one for its block
//! and one for itself, and a scan that goes from row to row waits for them one behind the other. Of a handful all blocks are asked
//! for, then all rows, and by the time the first one is shown the others are there. Nothing is copied and nothing is read from disk for
//! it: longer scans, and those whose blocks are not at hand, do otherwise (fetch_ahead.rs). And what is the same for all of a handful is
//! asked once: lone entries are taken as a strip (rule X56), and the next row is shown without the questions of a move.
//! State: entries that the reader may see, with what was found of their rows. The position of the scan is the entry shown last; the
//! cursor beneath stands behind the handful.
//! Rules: X60, X56. B2, as in ready_row.rs. X12 an entry that is found dead for everyone is marked, though the cursor has gone on.
//! Latches and I/O: none held between calls.

use super::{Access, Cursor, Session, Show, is_beyond};
use crate::cursor::Visit;
use crate::error::Result;
use crate::ready_row::{READY_MAX, ReadyPlace, ReadyRows};
use crate::version::RowVersion;
use pbxt_base::RowId;
use pbxt_index::{Copied, EntryMark, Strip};

/// Rows that a scan of unknown length has come to by themselves before a handful is taken, and entries of the first one.
const ALONE: u64 = 2;
const FIRST: usize = 4;
/// Entries that have to be wanted for a strip: it takes searches.
const STRIP_MIN: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Taken {
    row: RowId,
    key_end: usize,
    /// Its first event.
    mark: Option<EntryMark>,
    ready: Option<ReadyPlace>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handful {
    entries: Vec<Taken>,
    /// Of all entries, one behind the other.
    keys: Vec<u8>,
    rows: ReadyRows,
    /// Memory for lone entries on their way here.
    strip: Strip,
    /// All entries have the prefix of the last seek.
    is_of_prefix: bool,
    /// The border of the scan has changed since they were taken.
    pub(super) is_outdated: bool,
    /// Entries that have had their turn.
    at: usize,
    /// Rows that the scan has come to.
    moves: u64,
    /// Entries of the next handful, where nobody said how many rows are wanted.
    size: usize,
}

impl Handful {
    /// Forgets everything: the scan begins anew.
    #[inline]
    pub(super) fn reset(&mut self) {
        if !self.entries.is_empty() {
            self.clear();
        }
        (self.moves, self.size) = (0, FIRST);
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.keys.clear();
        self.rows.clear();
        self.at = 0;
    }

    /// True if what was asked of the entries when they were taken holds for a move with the prefix of the last seek, or without.
    #[inline]
    fn is_for(&self, same: bool) -> bool {
        !self.is_outdated && (self.is_of_prefix || !same)
    }

    /// True if entries are waiting.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.at < self.entries.len()
    }

    /// The next row of the scan is wanted, of so many that were expected (0: nobody knows). True if it is worth it to take others with it.
    #[inline]
    fn is_due(&mut self, expected: u64) -> bool {
        self.moves += 1;
        expected > self.moves || self.moves > ALONE
    }

    /// How many entries are to be taken then.
    fn next_size(&mut self, expected: u64) -> usize {
        let before = self.moves - 1;
        if expected > before {
            return (expected - before).min(READY_MAX as u64) as usize;
        }
        let size = self.size;
        self.size = (size * 2).min(READY_MAX);
        size
    }

    fn push(&mut self, key: &[u8], row: RowId, mark: Option<EntryMark>) {
        self.keys.extend_from_slice(key);
        self.entries.push(Taken {
            row,
            key_end: self.keys.len(),
            mark,
            ready: None,
        });
    }

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.entries[before].key_end);
        &self.keys[begin..self.entries[at].key_end]
    }
}

impl Cursor {
    /// Shows the next row of a handful that waits, or of the next one; none if the scan goes on by itself, or has to be asked whether it has
    /// ended.
    #[inline]
    pub(super) fn show_of_handful(
        &mut self,
        session: &mut Session,
        show: &mut impl Show,
    ) -> Result<Option<bool>> {
        if !self.index.handful.is_waiting() {
            let expected = self.index.ahead.expected();
            if !self.index.handful.is_due(expected)
                || self.access != Access::Snapshot
                || self.is_noting
                || self.index.is_of_key
                || show.wants_key()
                || show.is_choosy()
            {
                return Ok(None);
            }
            let size = self.index.handful.next_size(expected);
            self.take_handful(session, size)?;
        }
        let same = self.index.must_match;
        let found = self.serve_handful(session, same, show)?;
        Ok((found || self.index.ended).then_some(found))
    }

    #[inline(never)]
    fn take_handful(&mut self, session: &mut Session, size: usize) -> Result<()> {
        let mut handful = std::mem::take(&mut self.index.handful);
        handful.clear();
        handful.is_of_prefix = self.index.must_match;
        handful.is_outdated = false;
        let taken = self.take_into(session, size, &mut handful);
        self.index.handful = handful;
        taken
    }

    fn take_into(&mut self, session: &mut Session, size: usize, handful: &mut Handful) -> Result<()> {
        while handful.entries.len() < size && !self.index.is_past_wish() {
            let Some(first) = self.index.entries.peek() else {
                break;
            };
            if is_beyond(&self.index, first.key()) {
                break;
            }
            self.check_kill(session)?;
            if self.index.forward && self.take_strip_into(session, size, handful)? {
                continue;
            }
            if self.take_group(session, false)? {
                let scan = &self.index;
                handful.push(&scan.group_key, scan.group_row, scan.group_mark);
            }
        }
        let Handful { entries, rows, .. } = handful;
        self.table.prefetch_words(entries.iter().map(|entry| entry.row));
        let places = entries.iter_mut().map(|entry| (entry.row, &mut entry.ready));
        self.table.make_all_ready(&session.db, rows, places);
        Ok(())
    }

    /// Takes lone entries at the position, at most up to `size` in all; false if there are none, or it is not worth to look.
    fn take_strip_into(&mut self, session: &Session, size: usize, handful: &mut Handful) -> Result<bool> {
        let more = size - handful.entries.len();
        if more < STRIP_MIN {
            return Ok(false);
        }
        let first = self.index.entries.mark();
        self.index
            .take_lone_into(more, Copied::Entries, &mut handful.strip);
        if handful.strip.is_empty() {
            return Ok(false);
        }
        let strip = std::mem::take(&mut handful.strip);
        if self.sees_strip(session, &strip)? {
            let mut at = 0;
            while let Some((key, _, row)) = strip.get(at) {
                handful.push(key, row, first.map(|first| first.behind(at)));
                at += 1;
            }
        }
        handful.strip = strip;
        Ok(true)
    }

    /// True if a move goes on in the handful, and nothing has to be asked but the row's word: the first questions of a move, with the
    /// answers that they mostly have.
    #[inline]
    pub(super) fn goes_on_in_handful(&self, forward: bool, same: bool, show: &impl Show) -> bool {
        let scan = &self.index;
        let goes_on = scan.handful.is_waiting() && scan.handful.is_for(same) && scan.forward == forward;
        let is_elsewhere = scan.is_outdated || scan.lone.is_waiting() || scan.ahead.is_waiting();
        let shows_rows = self.access == Access::Snapshot && !show.wants_key() && !show.is_choosy();
        goes_on && shows_rows && !is_elsewhere && (same || !scan.is_of_key) && !self.asks_more_of_moves()
    }

    /// Shows the next row of the handful; false if none of its rows is left.
    #[inline]
    pub(super) fn serve_handful(
        &mut self,
        session: &mut Session,
        same: bool,
        show: &mut impl Show,
    ) -> Result<bool> {
        let is_asked = self.index.handful.is_for(same);
        while self.index.handful.is_waiting() {
            let at = self.index.handful.at;
            self.index.handful.at += 1;
            if !is_asked && is_beyond(&self.index, self.index.handful.key(at)) {
                self.index.handful.clear();
                self.index.ended = true;
                return Ok(false);
            }
            let Taken { row, mark, ready, .. } = self.index.handful.entries[at];
            if self.visit_ready(session, row, ready, show)? == Visit::Shown {
                self.note_served(at, row);
                return Ok(true);
            }
            if let Some(mark) = mark
                && self.is_gone_for_all(session, row)?
            {
                // Rule X12.
                self.index.entries.mark_dead(mark);
            }
        }
        Ok(false)
    }

    /// The row of this entry was shown.
    // Each kind of `Show` calls it once a row; the call would cost more than what it does.
    #[inline(always)]
    fn note_served(&mut self, at: usize, row: RowId) {
        let super::IndexScan {
            handful,
            current_key,
            current_row,
            ahead,
            ..
        } = &mut self.index;
        current_key.clear();
        current_key.extend_from_slice(handful.key(at));
        *current_row = row;
        if at > 0 {
            handful.moves += 1;
            ahead.is_worth_it();
        }
    }

    /// As `visit`, for a snapshot and a row that may have been made ready.
    #[inline]
    fn visit_ready(
        &mut self,
        session: &mut Session,
        row: RowId,
        ready: Option<ReadyPlace>,
        show: &mut impl Show,
    ) -> Result<Visit> {
        if let Some(place) = ready {
            self.check_kill(session)?;
            let word = self.table.map.load_in(row, &crossbeam_epoch::pin());
            let rows = &self.index.handful.rows;
            if word.is_absent() && rows.are_current(&self.table.base) {
                show.row(&rows.version(row, place))?;
                self.note_shown(row);
                return Ok(Visit::Shown);
            }
        }
        let mut show = |version: &RowVersion<'_>| show.row(version);
        self.visit(session, row, &mut show)
    }
}
