//! Index cursor: positions in an index, both directions, with the row behind every visible entry.
//!
//! Why it exists: an index entry is an event of a (key, row id); which rows a reader finds under a key is decided from
//! those events by the same visibility rules as versions.
//! Rules: T11 of the visible events of one (key, row id) the greatest LSN decides, the entry wins at equal LSN. T22 where
//! the row is locked first, its events are read again afterwards. X12 an entry found dead for everyone is marked so that
//! later readers pass it without a look at the row.
//! Latches and I/O: none held between calls. Entries are immutable and live as long as the tree.

use crate::cursor::{Access, Cursor, Visit};
use crate::database::Database;
use crate::error::Result;
use crate::session::Session;
use crate::table::{Index, Table};
use crate::unique::BATCH_MAX;
use crate::view::{View, read_version};
use pbxt_base::{Lsn, RowId};
use pbxt_index::{Batch, EntryView, SeekPos, Sign};
use pbxt_txlog::RowRef;
use pbxt_txn::{EventDecision, IndexEvent, Stamp, TxnStatus, Verdict, Viewer, decide_events};
use std::sync::Arc;

/// Where to go in an index, by a key prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// First entry equal to the prefix.
    Exact,
    /// First entry not below the prefix.
    OrNext,
    /// First entry above all that begin with the prefix.
    After,
    /// Last entry not above the prefix.
    OrPrev,
    /// Last entry below the prefix.
    Before,
    /// Last entry equal to the prefix.
    Last,
}

/// State of an index scan.
#[derive(Debug, Default)]
pub(crate) struct IndexScan {
    number: usize,
    batch: Batch,
    at: usize,
    forward: bool,
    ended: bool,
    prefix: Vec<u8>,
    must_match: bool,
    end: Option<(Vec<u8>, bool)>,
    current_key: Vec<u8>,
    current_row: RowId,
    events: Vec<IndexEvent>,
    limit: usize,
}

/// Entries of the first read of a seek; a seek by a whole unique key looks at one or two.
const FIRST_BATCH: usize = 8;

impl IndexScan {
    fn begin(&mut self, tree: &pbxt_index::Tree, from: &SeekPos<'_>, forward: bool) {
        self.forward = forward;
        self.at = 0;
        self.ended = false;
        self.limit = FIRST_BATCH;
        if forward {
            tree.read_batch_forward(from, &mut self.batch, FIRST_BATCH);
        } else {
            tree.read_batch_backward(from, &mut self.batch, FIRST_BATCH);
        }
    }

    /// The entry at the position, reading on where the batch ends.
    #[inline]
    fn peek<'t>(&mut self, tree: &'t pbxt_index::Tree) -> Option<EntryView<'t>> {
        loop {
            if let Some(entry) = self.batch.entry(tree, self.at) {
                return Some(entry);
            }
            if self.batch.reached_end() {
                return None;
            }
            self.limit = (self.limit * 4).min(BATCH_MAX);
            self.at = 0;
            tree.read_batch_on(&mut self.batch, self.limit);
            if self.batch.is_empty() {
                return None;
            }
        }
    }
}

impl Cursor {
    /// Begins reading through index `number`.
    pub fn index_start(&mut self, session: &mut Session, number: usize) -> Result<()> {
        self.begin_reading(session)?;
        self.index.number = number;
        self.index.ended = true;
        self.index.end = None;
        self.index.must_match = false;
        Ok(())
    }

    /// Entries beyond this border end forward moves.
    pub fn set_end(&mut self, end: Option<(&[u8], bool)>) {
        self.index.end = end.map(|(key, inclusive)| (key.to_vec(), inclusive));
    }

    /// Goes to the first row that `seek` names. False if there is none.
    pub fn seek(
        &mut self,
        session: &mut Session,
        prefix: &[u8],
        seek: Seek,
        show: impl FnMut(&RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let tree = &table.indexes[self.index.number].tree;
        self.index.prefix.clear();
        self.index.prefix.extend_from_slice(prefix);
        let (from, forward) = match seek {
            Seek::Exact | Seek::OrNext => (SeekPos::lower_bound(prefix), true),
            Seek::After => (SeekPos::upper_bound(prefix), true),
            Seek::OrPrev | Seek::Last => (SeekPos::upper_bound(prefix), false),
            Seek::Before => (SeekPos::lower_bound(prefix), false),
        };
        self.index.begin(tree, &from, forward);
        self.index.must_match = matches!(seek, Seek::Exact | Seek::Last);
        let found = self.advance(session, &table, show);
        self.index.must_match = false;
        found
    }

    /// Goes to the first or last row of the index.
    pub fn index_edge(
        &mut self,
        session: &mut Session,
        last: bool,
        show: impl FnMut(&RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let tree = &table.indexes[self.index.number].tree;
        let from = if last { SeekPos::END } else { SeekPos::START };
        self.index.begin(tree, &from, !last);
        self.advance(session, &table, show)
    }

    /// Goes to the next or previous row. With `same` only rows that begin with the prefix of the last seek count.
    pub fn index_move(
        &mut self,
        session: &mut Session,
        forward: bool,
        same: bool,
        show: impl FnMut(&RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let table = Arc::clone(&self.table);
        if forward != self.index.forward {
            self.turn_around(&table, forward);
        }
        self.index.must_match = same;
        let found = self.advance(session, &table, show);
        self.index.must_match = false;
        found
    }

    /// Key of the row last shown.
    pub(crate) fn current_key(&self) -> &[u8] {
        &self.index.current_key
    }

    fn turn_around(&mut self, table: &Table, forward: bool) {
        let tree = &table.indexes[self.index.number].tree;
        let key = std::mem::take(&mut self.index.current_key);
        let row = self.index.current_row;
        let from = if forward {
            SeekPos::after(&key, row, Lsn::new(u64::MAX), Sign::Entry)
        } else {
            SeekPos::before(&key, row, Lsn::new(0), Sign::Anti)
        };
        self.index.begin(tree, &from, forward);
        self.index.current_key = key;
    }

    /// Walks groups of events of one (key, row id) until one shows its row.
    fn advance(
        &mut self,
        session: &mut Session,
        table: &Arc<Table>,
        mut show: impl FnMut(&RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let index = &table.indexes[self.index.number];
        if self.index.ended {
            return Ok(false);
        }
        while let Some(first) = self.index.peek(&index.tree) {
            let key = first.key();
            if self.is_beyond(key) {
                self.index.ended = true;
                break;
            }
            let row = first.row();
            let first_at = self.index.at;
            if !self.take_group(session, index, first) {
                continue;
            }
            if self.show_entry(session, index, key, row, &mut show)? {
                self.index.current_key.clear();
                self.index.current_key.extend_from_slice(key);
                self.index.current_row = row;
                return Ok(true);
            }
            if self.is_gone_for_all(session, row)? {
                self.mark_dead(index, first_at, first);
            }
        }
        Ok(false)
    }

    /// True if the row was deleted and no live or later snapshot can see it: then every entry of it is dead (rule X5). Keeps
    /// the head of a queue from becoming a graveyard.
    fn is_gone_for_all(&self, session: &Session, row: RowId) -> Result<bool> {
        let word = self.table.map.load(row);
        if !word.is_tombstone() {
            return Ok(false);
        }
        let guard = crossbeam_epoch::pin();
        let tombstone = read_version(&session.db, word.addr(), &guard)?;
        let standing = session
            .db
            .txns
            .standing(tombstone.txn(), word.addr().lsn(), &guard);
        Ok(!standing.void
            && match standing.status {
                TxnStatus::Settled => true,
                TxnStatus::Committed(ts) => ts <= session.db.horizon(),
                TxnStatus::Active | TxnStatus::Prepared | TxnStatus::Aborted => false,
            })
    }

    fn is_beyond(&self, key: &[u8]) -> bool {
        if self.index.must_match && !key.starts_with(&self.index.prefix) {
            return true;
        }
        match &self.index.end {
            Some((end, inclusive)) if self.index.forward => {
                let head = key.get(..end.len()).unwrap_or(key);
                if *inclusive {
                    head > end.as_slice()
                } else {
                    head >= end.as_slice()
                }
            }
            _ => false,
        }
    }

    /// Consumes the events of one (key, row id). True if the row may be under the key for this reader.
    #[inline]
    fn take_group(&mut self, session: &Session, index: &Index, first: EntryView<'_>) -> bool {
        let own = session.work.txn;
        let first_at = self.index.at;
        self.index.at += 1;
        let more = self
            .index
            .peek(&index.tree)
            .is_some_and(|next| next.row() == first.row() && next.key() == first.key());
        self.view.viewer.own = own;
        if !more {
            return !first.is_dead()
                && first.sign() == Sign::Entry
                && self.is_single_visible(session, index, first, first_at);
        }
        self.index.events.clear();
        self.push_event(&session.db, first);
        while let Some(next) = self
            .index
            .peek(&index.tree)
            .filter(|next| next.row() == first.row() && next.key() == first.key())
        {
            self.push_event(&session.db, next);
            self.index.at += 1;
        }
        decide_events(&self.view.viewer, self.index.events.iter().copied()) != EventDecision::Absent
    }

    fn push_event(&mut self, db: &Database, entry: EntryView<'_>) {
        if !entry.is_dead() {
            let guard = crossbeam_epoch::pin();
            let stamp = Stamp {
                txn: entry.txn(),
                lsn: entry.lsn(),
            };
            let sign = if entry.sign() == Sign::Entry {
                pbxt_txn::Sign::Entry
            } else {
                pbxt_txn::Sign::AntiEntry
            };
            self.index.events.push(IndexEvent {
                sign,
                stamp,
                standing: db.txns.standing(stamp.txn, stamp.lsn, &guard),
            });
        }
    }

    #[inline]
    fn is_single_visible(
        &mut self,
        session: &Session,
        index: &Index,
        entry: EntryView<'_>,
        at: usize,
    ) -> bool {
        let guard = crossbeam_epoch::pin();
        let stamp = Stamp {
            txn: entry.txn(),
            lsn: entry.lsn(),
        };
        if self.view.judge(&session.db, stamp, &guard) != Verdict::Skip {
            return true;
        }
        if session.db.txns.status(stamp.txn, &guard) == TxnStatus::Aborted {
            self.mark_dead(index, at, entry);
        }
        false
    }

    /// Rule X12. The batch may have been read on since; then the mark waits for the next reader.
    fn mark_dead(&self, index: &Index, at: usize, entry: EntryView<'_>) {
        let same = |found: &EntryView<'_>| {
            found.row() == entry.row() && found.lsn() == entry.lsn() && found.key() == entry.key()
        };
        if self.index.batch.entry(&index.tree, at).as_ref().is_some_and(same)
            && let Some(entry) = index.tree.entry_ref(&self.index.batch, at)
        {
            index.tree.mark_dead(entry);
        }
    }

    fn show_entry(
        &mut self,
        session: &mut Session,
        index: &Index,
        key: &[u8],
        row: RowId,
        show: &mut impl FnMut(&RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let word = self.table.map.load(row);
        if word.is_absent() {
            // A claim whose row does not exist yet: nobody but its owner could see it, and the owner has not finished.
            return Ok(false);
        }
        if !matches!(self.access, Access::LockNewest(_) | Access::Current) {
            return Ok(self.visit(session, row, word, show)? == Visit::Shown);
        }
        // Rule T22: the row is locked by `visit`; only then its events under this key are final.
        let db = Arc::clone(&session.db);
        let viewer = Viewer {
            own: session.work.txn,
            ..self.view.viewer
        };
        let mut under_key = true;
        let mut guarded = |version: &RowRef<'_>| {
            under_key = is_under_key(&db, index, key, row, &View::new(viewer));
            if under_key { show(version) } else { Ok(()) }
        };
        let visit = self.visit(session, row, word, &mut guarded)?;
        if visit == Visit::Shown && !under_key {
            self.unlock_row(session);
        }
        Ok(visit == Visit::Shown && under_key)
    }
}

/// True if the row is under exactly this key for the viewer.
fn is_under_key(db: &Database, index: &Index, key: &[u8], row: RowId, view: &View) -> bool {
    let mut events = Vec::new();
    let mut batch = Batch::new();
    crate::unique::collect_events(db, index, key, &mut batch, |found, event| {
        if found == row {
            events.push(event);
        }
    });
    decide_events(&view.viewer, events) == EventDecision::Present
}
