//! Index show: what a scan shows of the row behind an entry, and the second look at the events that led to it.
//!
//! Why it exists: an entry says that a row had a key when the entry was read; by the time the row is locked it may have another one.
//! Rules: T22 where the row is locked first, its events under the key are read again afterwards. T40 a row that was only looked at is
//! come back to. T41 one that is about to get the key is waited for.
//! Latches and I/O: none held between calls; may read blocks of the index.

use super::events_of;
use crate::cursor::{Access, Cursor, Visit};
use crate::database::Database;
use crate::error::Result;
use crate::semi_consistent::Semi;
use crate::session::Session;
use crate::table::{Index, Table};
use crate::version::{RowVersion, Show};
use pbxt_base::{RowId, planted};
use pbxt_index::MergedCursor;
use pbxt_txn::{EventDecision, IndexEvent, Viewer, decide_events};
use std::cell::Cell;
use std::sync::Arc;

/// Memory for looking at the events of a row again.
#[derive(Debug, Default)]
pub(crate) struct SecondLook {
    entries: MergedCursor,
    events: Vec<IndexEvent>,
}

impl SecondLook {
    /// True if the row is under exactly this key for the viewer.
    fn is_under_key(
        &mut self,
        db: &Database,
        index: &Index,
        key: &[u8],
        row: RowId,
        viewer: &Viewer,
    ) -> Result<bool> {
        self.events.clear();
        let events = &mut self.events;
        events_of(db, &index.parts(), key, row, &mut self.entries, |event| {
            // Rule T22: the claim of a key whose row is not written. Who only looks passes over all that is unfinished (T40).
            let is_claim = event.standing.status.is_unfinished() && event.stamp.txn != viewer.own;
            if !is_claim {
                events.push(event);
            }
        })?;
        Ok(decide_events(viewer, self.events.iter().copied()) == EventDecision::Present)
    }

    /// Lets go of trees and blocks.
    pub(crate) fn let_go(&mut self) {
        self.entries.clear();
    }
}

impl Cursor {
    /// Shows the row behind an entry, if it is there for the statement.
    pub(super) fn show_entry(
        &mut self,
        session: &mut Session,
        index: &Index,
        key: &[u8],
        row: RowId,
        show: &mut impl Show,
    ) -> Result<bool> {
        if !matches!(self.access, Access::LockNewest(_) | Access::Current) {
            let mut show = |version: &RowVersion<'_>| show.row(version);
            return Ok(self.visit(session, row, &mut show)? == Visit::Shown);
        }
        let asked = self.semi;
        if self.searches_one(index, key) {
            self.semi = Semi::Off;
        }
        let mut second_look = std::mem::take(&mut self.index.second_look);
        let shown = self.show_locked(session, index, key, row, show, &mut second_look);
        self.index.second_look = second_look;
        if self.semi == Semi::Off {
            self.semi = asked;
        }
        shown
    }

    /// True for a search by a whole key of a unique index: there is no other row to go on with (rule T40).
    fn searches_one(&self, index: &Index, key: &[u8]) -> bool {
        self.index.must_match && index.def.unique && self.index.prefix.len() == key.len()
    }

    /// Rule T22: the row is locked by `visit`; only then its events under this key are final.
    fn show_locked(
        &mut self,
        session: &mut Session,
        index: &Index,
        key: &[u8],
        row: RowId,
        show: &mut impl Show,
        second_look: &mut SecondLook,
    ) -> Result<bool> {
        let viewer = if self.may_look(session) {
            self.looking(session)
        } else {
            Viewer {
                own: session.work.txn,
                ..self.view.viewer
            }
        };
        let under_key = Cell::new(true);
        let db = Arc::clone(&session.db);
        let mut guarded = |version: &RowVersion<'_>| {
            let is_under = planted!("index.no_second_look")
                || second_look.is_under_key(&db, index, key, row, &viewer)?;
            under_key.set(is_under);
            if is_under { show.row(version) } else { Ok(()) }
        };
        let sleeps = session.gate.sleeps();
        let mut visit = self.visit(session, row, &mut guarded)?;
        if self.semi == Semi::Looked && !under_key.get() {
            // Rule T41.
            self.semi = Semi::Wanted;
            under_key.set(true);
            let waited = self.visit(session, row, &mut guarded);
            self.leave_row();
            visit = waited?;
        }
        let under_key = under_key.get();
        self.index.is_stale = !under_key || session.gate.sleeps() != sleeps;
        if visit == Visit::Shown && !under_key {
            self.unlock_row(session);
        }
        Ok(visit == Visit::Shown && under_key)
    }

    /// Comes back to the row last shown, which was only looked at, and shows it locked (rule T40).
    pub(super) fn show_again(
        &mut self,
        session: &mut Session,
        table: &Table,
        show: &mut impl Show,
    ) -> Result<bool> {
        let index = &table.indexes[self.index.number];
        let key = std::mem::take(&mut self.index.current_key);
        let row = self.index.current_row;
        let shown = self.show_entry(session, index, &key, row, show);
        self.is_back();
        let read_on = self.read_on_behind(session, index, &key, row);
        self.index.current_key = key;
        read_on?;
        shown
    }
}
