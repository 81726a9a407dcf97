//! Index handful: a few entries taken at once, so that the waits for their rows are one.
//!
//! Why it exists: rows that stand together in an index are strewn over the row blocks. Each is two waits for memory, one for its block
//! and one for itself, and a scan that goes from row to row waits for them one behind the other. Of a handful all blocks are asked
//! for, then all rows, and by the time the first one is shown the others are there. Nothing is copied and nothing is read from disk for
//! it: longer scans, and those whose blocks are not at hand, do otherwise (fetch_ahead.rs).
//! State: entries that the reader may see, with what was found of their rows. The position of the scan is the entry shown last; the
//! cursor beneath stands behind the handful.
//! Rules: X60. B2, as in ready_row.rs. X12 an entry that is found dead for everyone is marked, though the cursor has gone on.
//! Latches and I/O: none held between calls.

use super::{Access, Cursor, Index, Session, Show, is_beyond};
use crate::error::Result;
use crate::ready_row::{READY_MAX, ReadyRow};
use pbxt_base::RowId;
use pbxt_index::EntryMark;

/// Rows that a scan of unknown length has come to by themselves before a handful is taken, and entries of the first one.
const ALONE: u64 = 2;
const FIRST: usize = 4;

#[derive(Debug)]
struct Taken {
    row: RowId,
    key_end: usize,
    /// Its first event.
    mark: Option<EntryMark>,
    ready: Option<ReadyRow>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handful {
    entries: Vec<Taken>,
    /// Of all entries, one behind the other.
    keys: Vec<u8>,
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
        self.at = 0;
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

    /// The key of an entry, of all `keys`.
    #[inline]
    fn key_in<'k>(&self, keys: &'k [u8], at: usize) -> &'k [u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.entries[before].key_end);
        &keys[begin..self.entries[at].key_end]
    }
}

impl Cursor {
    /// Shows the next row of a handful that waits, or of the next one; none if the scan goes on by itself, or has to be asked whether it has
    /// ended.
    #[inline]
    pub(super) fn show_of_handful(
        &mut self,
        session: &mut Session,
        index: &Index,
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
        self.serve_handful(session, index, show)
    }

    #[inline(never)]
    fn take_handful(&mut self, session: &mut Session, size: usize) -> Result<()> {
        let mut handful = std::mem::take(&mut self.index.handful);
        handful.clear();
        while handful.entries.len() < size && !self.index.is_past_wish() {
            let Some(first) = self.index.entries.peek() else {
                break;
            };
            if is_beyond(&self.index, first.key()) {
                break;
            }
            self.check_kill(session)?;
            if self.take_group(session, false)? {
                let scan = &self.index;
                handful.push(&scan.group_key, scan.group_row, scan.group_mark);
            }
        }
        let db = &session.db;
        let entries = handful.entries.iter_mut();
        self.table
            .make_all_ready(db, entries.map(|entry| (entry.row, &mut entry.ready)));
        self.index.handful = handful;
        Ok(())
    }

    #[inline(never)]
    fn serve_handful(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<Option<bool>> {
        // Shown rows may be asked for their keys; the entries stay where they are.
        let keys = std::mem::take(&mut self.index.handful.keys);
        let served = self.serve_of(session, index, &keys, show);
        self.index.handful.keys = keys;
        served
    }

    fn serve_of(
        &mut self,
        session: &mut Session,
        index: &Index,
        keys: &[u8],
        show: &mut impl Show,
    ) -> Result<Option<bool>> {
        while self.index.handful.is_waiting() {
            let at = self.index.handful.at;
            self.index.handful.at += 1;
            let key = self.index.handful.key_in(keys, at);
            if is_beyond(&self.index, key) {
                self.index.handful.clear();
                self.index.ended = true;
                return Ok(Some(false));
            }
            let entry = &mut self.index.handful.entries[at];
            let (row, mark) = (entry.row, entry.mark);
            self.at_hand = entry.ready.take();
            let shown = self.show_entry(session, index, key, row, show);
            // A row whose word says otherwise had no use for it.
            self.at_hand = None;
            if shown? {
                self.index.current_key.clear();
                self.index.current_key.extend_from_slice(key);
                self.index.current_row = row;
                if at > 0 {
                    self.index.handful.moves += 1;
                    self.index.ahead.is_worth_it();
                }
                return Ok(Some(true));
            }
            if let Some(mark) = mark
                && self.is_gone_for_all(session, row)?
            {
                // Rule X12.
                self.index.entries.mark_dead(mark);
            }
        }
        Ok(None)
    }
}
