//! Gone sweep: takes rows out of the set of gone rows once nothing has an entry or a slot of them any more.
//!
//! Why it exists: without it the set grows with every row ever deleted, and entries of deleted rows stay in parts of an index
//! that nothing else makes worth a merge.
//! States of a table: no cut -> cut (some rows of the set are noted) -> swept (no part has an entry of them) -> removed.
//! Rules: B9, B11 (docs/storage.md), X36 which part is swept; S25 when an index is merged for nothing but this; S55 a cut that waits for
//! merges. A cut's rows leave the set only if none of them has a slot when its sweep is over.
//! Latches and I/O: its own, and the shape latch for a cut and for a look at the parts; no I/O.
//! After a crash: the set is as the image has it, and the parts count as not swept.

use crate::database::Database;
use crate::error::Result;
use crate::pacing::Progress;
use crate::row_merge_plan::Need;
use crate::row_shape::RowShape;
use crate::table::{Index, Table};
use parking_lot::Mutex;
use pbxt_base::{CommitTs, stop_point};
use roaring::RoaringTreemap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::gone::GoneSet;

/// Entries of an index for one row of a cut, at most, for its parts to be merged because of the cut alone.
const ENTRIES_PER_GONE: u64 = 4;

/// Which rows a cut has, and when it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOf {
    /// Rows without a slot.
    Slotless,
    /// Slots too, which merges are about to drop: it waits for them, and indexes are swept meanwhile (rule S55).
    All,
}

/// How rows of one table leave its set.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Number of the newest cut.
    cut: AtomicU64,
    /// Rows of a cut that was not removed yet.
    pending: AtomicU64,
    state: Mutex<SweepState>,
}

#[derive(Debug, Default)]
struct SweepState {
    /// Rows of the newest cut.
    rows: Option<RoaringTreemap>,
    /// When no part had an entry of theirs any more.
    swept_at: Option<CommitTs>,
    /// Set and shape when last looked at without finding a row to note.
    looked_at: Option<(Weak<GoneSet>, Weak<RowShape>)>,
}

impl Sweep {
    /// What begins now may give its output this number (rule X36).
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Acquire)
    }

    /// The cut that the index is to be merged for (rules S25, S55).
    pub(crate) fn wants(&self, index: &Index, need: Need) -> Option<u64> {
        let pending = self.pending.load(Ordering::Acquire);
        if pending == 0 {
            return None;
        }
        let parts = index.parts();
        let cut = self.cut();
        let mut pieces = parts.runs.iter().flat_map(|run| &run.pieces);
        let is_enough = need == Need::Possible || is_worth_a_sweep(pending, index);
        (is_enough && pieces.any(|piece| piece.swept().cut() < cut)).then_some(cut)
    }

    /// True if an index would be merged for a cut of so many rows, and is not for the one that there is, which is a good deal smaller: pieces
    /// that were rid of the rows of that one have to be written once more.
    fn is_worth_another(&self, rows: u64, table: &Table) -> bool {
        let pending = self.pending.load(Ordering::Acquire);
        let gains = |index: &Index| is_worth_a_sweep(rows, index) && !is_worth_a_sweep(pending, index);
        rows * 4 > pending * 5 && table.indexes.iter().any(gains)
    }
}

impl Database {
    /// Takes one step with the set of each table.
    pub fn gone_step(&self) -> Result<Progress> {
        self.gone_step_with(CutOf::Slotless)
    }

    /// The same with other cuts.
    pub(crate) fn gone_step_with(&self, cut_of: CutOf) -> Result<Progress> {
        self.poison.check()?;
        let mut did = Progress::Idle;
        for table in self.catalog.tables() {
            if table.gone.len() > 0 && table.sweep.step(self, &table, cut_of) {
                did = Progress::Worked;
            }
        }
        Ok(did)
    }

    /// The same for one table.
    pub(crate) fn gone_step_of(&self, table: &Table) -> Result<Progress> {
        self.poison.check()?;
        let does = table.gone.len() > 0 && table.sweep.step(self, table, CutOf::Slotless);
        Ok(if does { Progress::Worked } else { Progress::Idle })
    }

    /// True if a step would do something now.
    pub(crate) fn gone_due(&self) -> bool {
        let is_due = |table: &Arc<Table>| table.gone.len() > 0 && table.sweep.is_due(self, table);
        self.catalog.tables().iter().any(is_due)
    }
}

impl Sweep {
    fn is_due(&self, db: &Database, table: &Table) -> bool {
        let state = self.state.lock();
        match (&state.rows, state.swept_at) {
            (None, _) => !state.has_looked_at(table),
            (Some(_), None) => is_swept(table, self.cut()) || self.may_begin_anew(&state, table),
            (Some(_), Some(at)) => is_unread(db, at),
        }
    }

    fn step(&self, db: &Database, table: &Table, cut_of: CutOf) -> bool {
        let mut state = self.state.lock();
        if state.rows.is_none() {
            return self.begin(&mut state, table, cut_of);
        }
        if state.swept_at.is_none() && is_swept(table, self.cut()) {
            if !state.leave_slots(table, cut_of) {
                return false;
            }
            stop_point!("gone.after_swept");
            // After the look at parts and slots: who registers a snapshot beyond this finds swept ones, and none of these.
            state.swept_at = Some(db.txns.published());
        }
        let Some(at) = state.swept_at else {
            return self.may_begin_anew(&state, table) && self.begin_anew(&mut state, table);
        };
        if !is_unread(db, at) {
            return false;
        }
        stop_point!("gone.before_remove");
        self.pending.store(0, Ordering::Release);
        state.swept_at = None;
        state.looked_at = None;
        if let Some(rows) = state.rows.take() {
            table.gone.remove(&rows);
        }
        true
    }

    /// Makes a cut of rows; none of them gets a slot again.
    fn begin(&self, state: &mut SweepState, table: &Table, cut_of: CutOf) -> bool {
        if state.has_looked_at(table) {
            return false;
        }
        let rows = state.look_at(table, cut_of);
        !rows.is_empty() && self.note(state, table, rows)
    }

    /// True if there may be rows for another cut (rule S25). The set is counted with the rows that have a slot.
    fn may_begin_anew(&self, state: &SweepState, table: &Table) -> bool {
        self.is_worth_another(table.gone.len(), table) && !state.has_looked_at(table)
    }

    /// Makes a larger cut in place of one that is not worth a merge to some index and would wait for ever (rule S25).
    fn begin_anew(&self, state: &mut SweepState, table: &Table) -> bool {
        let rows = state.look_at(table, CutOf::Slotless);
        self.is_worth_another(rows.len(), table) && self.note(state, table, rows)
    }

    fn note(&self, state: &mut SweepState, table: &Table, rows: RoaringTreemap) -> bool {
        // Under the latch under which trees get their cut: who sees the new number sees the rows in the set.
        let _shaping = table.shaping.lock();
        self.cut.fetch_add(1, Ordering::AcqRel);
        self.pending.store(rows.len(), Ordering::Release);
        state.rows = Some(rows);
        true
    }
}

impl SweepState {
    /// Leaves rows out of the cut that still have a slot: they are in the next one (rule B9). False, and nothing changed, if they are
    /// waited for.
    fn leave_slots(&mut self, table: &Table, cut_of: CutOf) -> bool {
        let Some(rows) = &mut self.rows else { return true };
        let mut slotless = rows.clone();
        leave_slots(&mut slotless, &table.base.shape());
        if cut_of == CutOf::All && slotless.len() < rows.len() {
            return false;
        }
        *rows = slotless;
        true
    }

    /// The rows of a cut that begins now.
    fn look_at(&mut self, table: &Table, cut_of: CutOf) -> RoaringTreemap {
        let (set, shape) = (table.gone.now(), table.base.shape());
        self.looked_at = Some((Arc::downgrade(&set), Arc::downgrade(&shape)));
        let mut rows = set.to_treemap();
        if cut_of == CutOf::Slotless {
            leave_slots(&mut rows, &shape);
        }
        rows
    }

    fn has_looked_at(&self, table: &Table) -> bool {
        self.looked_at.as_ref().is_some_and(|(set, shape)| {
            Weak::as_ptr(set) == Arc::as_ptr(&table.gone.now())
                && Weak::as_ptr(shape) == Arc::as_ptr(&table.base.shape())
        })
    }
}

/// True if parts of the index are merged because of a cut of so many rows alone (rule S25).
fn is_worth_a_sweep(rows: u64, index: &Index) -> bool {
    let parts = index.parts();
    let entries: u64 = parts.runs.iter().map(|run| run.entries()).sum();
    rows * ENTRIES_PER_GONE >= entries
}

fn leave_slots(rows: &mut RoaringTreemap, shape: &RowShape) {
    for piece in shape.runs.iter().flat_map(|run| &run.pieces) {
        *rows -= &piece.rows;
    }
}

/// True if no part of any index has an entry of the cut's rows.
fn is_swept(table: &Table, cut: u64) -> bool {
    let _shaping = table.shaping.lock();
    let parts = table.indexes.iter().map(Index::parts);
    parts.filter_map(|parts| parts.swept()).all(|swept| swept >= cut)
}

/// True if every live snapshot was registered after `at` was the newest commit's timestamp.
fn is_unread(db: &Database, at: CommitTs) -> bool {
    let live = db.txns.live_snapshots();
    live.timestamps().first().is_none_or(|oldest| *oldest > at)
}
