//! Foreign probe: looking up parents and children of a row as they are now.
//!
//! Why it exists: between the look at an index entry and the look at its row either may change; here the order of the two is kept,
//! and what to do about transactions that have not ended.
//! Rules: FK11, FK12, T22. FK24 the order: the row's word first, then its events, then the word again; a changed word begins anew.
//! T55 a parent that was not found is looked for again if somebody may have taken its place meanwhile. FK25 under SERIALIZABLE a version newer than the snapshot puts its writer before this transaction.
//! Latches and I/O: waits hold nothing; may read blocks of indexes and rows.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::index_cursor::{Seek, Since, events_of};
use crate::locking::{Busy, RowLock, blockers_of};
use crate::session::Session;
use crate::table::Table;
use crate::view::{Resolved, View};
use crate::waits::Turn;
use pbxt_base::{RowId, TxnId, stop_point};
use pbxt_txn::{EventDecision, LockMode, Resource, Viewer, decide_events};
use std::sync::Arc;

impl Session {
    /// True if the newest version of the row, committed or own, is under exactly `key` of index `number`. Waits for who changes it.
    pub(crate) fn stands_under(
        &mut self,
        table: &Table,
        row: RowId,
        number: usize,
        key: &[u8],
    ) -> Result<bool> {
        let own = self.ensure_txn()?;
        let db = Arc::clone(&self.db);
        let mut turn = Turn::none(&db.waits);
        let mut view = View::new(Viewer::current(own));
        loop {
            let blocker = {
                let guard = crossbeam_epoch::pin();
                let word = table.map.load(row);
                match view.resolve_unread(&db, table, row, word, &guard)? {
                    Resolved::Row(found) => {
                        let writer = found.txn();
                        let is_under = self.is_under(table, row, number, key)?;
                        if table.map.load(row) != word {
                            continue;
                        }
                        self.follow(writer);
                        return Ok(is_under);
                    }
                    Resolved::Absent | Resolved::Conflict => return Ok(false),
                    Resolved::Wait(txn, lsn) => (txn, lsn),
                }
            };
            let blockers = || blockers_of(&db, own, table, row, LockMode::Shared, Some(blocker));
            let resource = Resource::Row(table.id, row);
            self.wait(&mut turn, table, resource, LockMode::Shared, false, blockers)?;
        }
    }

    /// True if events that count put the row under exactly `key`. Of unfinished transactions there are only claims of keys whose rows
    /// are not written, for the row's head is known to be visible; they say nothing yet.
    pub(crate) fn is_under(&mut self, table: &Table, row: RowId, number: usize, key: &[u8]) -> Result<bool> {
        let own = self.work.txn;
        let mut buffers = std::mem::take(&mut self.probe);
        buffers.events.clear();
        let events = &mut buffers.events;
        let parts = table.indexes[number].parts();
        let collected = events_of(&self.db, &parts, key, row, &mut buffers.entries, |event| {
            let is_claim = event.standing.status.is_unfinished() && event.stamp.txn != own;
            if !is_claim {
                events.push((row, event));
            }
        });
        if !self.is_acting {
            // An action goes from child to child, and the next one's entries are near.
            buffers.entries.clear();
        }
        let viewer = Viewer::current(own);
        let decision = decide_events(&viewer, buffers.events.iter().map(|(_, event)| *event));
        self.probe = buffers;
        collected?;
        Ok(decision == EventDecision::Present)
    }

    /// Rule FK25: the writer of a version that this transaction goes on with comes before it.
    #[inline]
    pub(crate) fn follow(&self, writer: TxnId) {
        if let Some(serial) = self.work.serial.as_deref()
            && writer != TxnId::new(0)
            && writer != self.work.txn
        {
            self.db.serial.took_key_of(serial, writer);
        }
    }

    /// Finds a row under `prefix`, which is or is not a whole key, and locks it shared until the transaction ends (rule FK12).
    pub(crate) fn lock_parent(
        &mut self,
        probe: &mut Cursor,
        number: usize,
        prefix: &[u8],
        is_key: bool,
    ) -> Result<bool> {
        self.db.counters.parents_looked_up.add(1);
        let mut since = Since::now(&self.db);
        let found = loop {
            let found = self.look_for_parent(probe, number, prefix, is_key);
            if !matches!(found, Ok(false)) {
                break found;
            }
            match probe.was_overtaken(self, Seek::Exact, &mut since) {
                Ok(true) => {}
                told => break told,
            }
        };
        probe.probe_end();
        let found = self.settle(found)?;
        self.settle_victim()?;
        Ok(found)
    }

    fn look_for_parent(
        &mut self,
        probe: &mut Cursor,
        number: usize,
        prefix: &[u8],
        is_key: bool,
    ) -> Result<bool> {
        self.ensure_txn()?;
        if is_key {
            probe.probe_key_start(self, number, prefix)?;
        } else {
            probe.probe_start(self, number, prefix)?;
        }
        let table = Arc::clone(probe.table());
        while let Some(row) = probe.probe_next(self)? {
            stop_point!("foreign.before_parent_lock");
            match self.lock_row(&table, row, LockMode::Shared, Busy::Wait)? {
                RowLock::Held(is_new) => {
                    // Only now it cannot change any more: another transaction may have changed its key meanwhile.
                    if self.stands_under(&table, row, number, probe.probe_key())? {
                        stop_point!("foreign.after_parent_lock");
                        return Ok(true);
                    }
                    if is_new {
                        self.unlock_row(&table, row, LockMode::Shared);
                    }
                }
                RowLock::Gone | RowLock::Skipped => probe.probe_missed(self)?,
            }
        }
        Ok(false)
    }

    /// True if a row stands under `prefix`; the caller has written the row it would refer to (rule FK13).
    pub(crate) fn has_child(&mut self, probe: &mut Cursor, number: usize, prefix: &[u8]) -> Result<bool> {
        let found = self.look_for_child(probe, number, prefix);
        probe.probe_end();
        let found = self.settle(found)?;
        self.settle_victim()?;
        Ok(found)
    }

    fn look_for_child(&mut self, probe: &mut Cursor, number: usize, prefix: &[u8]) -> Result<bool> {
        stop_point!("foreign.before_children");
        self.ensure_txn()?;
        probe.probe_start(self, number, prefix)?;
        let table = Arc::clone(probe.table());
        while let Some(row) = probe.probe_next(self)? {
            if self.stands_under(&table, row, number, probe.probe_key())? {
                return Ok(true);
            }
            probe.probe_missed(self)?;
        }
        Ok(false)
    }
}
