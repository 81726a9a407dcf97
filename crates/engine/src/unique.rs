//! Unique keys: a key is claimed before the row that carries it exists.
//!
//! Why it exists: two transactions that insert the same key at once must not both find it free, and one that fails must
//! leave no trace in the log.
//! Rules: X9 probe all parts of the index without a latch (it may read from disk), then compare under the key's stripe latch that
//! nobody came in between and that the parts are the same, and publish the claim. X15 a bulk load publishes its run and then
//! probes, a claim is published and then looks whether a run came meanwhile: one of the two sees the other. X10 nobody waits or reads under the latch. T20 under REPEATABLE READ
//! and SERIALIZABLE a key whose last holder ended after my snapshot is a write conflict, in both conflict modes. T22 to who goes on with
//! the row that has a key it is named when it is locked and judged under the lock.
//! After a crash: claims are index entries; those of aborted work are not rebuilt.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::index_cursor::event_of;
use crate::keys::KeyChanges;
use crate::locking::{Busy, RowLock};
use crate::session::{Isolation, Session};
use crate::table::Table;
use crate::view::{Resolved, View};
use crate::waits::Turn;
use crate::write::NewVersion;
use pbxt_base::{Lsn, RowId, TxnId, stop_point};
use pbxt_index::{Batch, EntryRef, Fate, IndexParts, KeyGroup, MergedCursor, Sign};
use pbxt_txn::{EventDecision, IndexEvent, LockMode, Resource, Stamp, TxnStatus, Viewer, decide_events};
use std::sync::Arc;

/// What a probe of one key found.
pub(crate) enum Probe {
    Free,
    Taken(RowId),
    Wait(TxnId),
    Conflict(RowId),
}

impl Session {
    /// `insert_or_load` for who goes on with the row that has a key: the row that `DuplicateKey` names is locked, and has the key until
    /// this transaction ends or changes it (rule T22).
    pub fn insert_or_hold(&mut self, table: &Arc<Table>, version: NewVersion<'_>) -> Result<Option<RowId>> {
        self.until_held(table, version.keys, |session| {
            session.insert_or_load(table, version)
        })
    }

    /// `refuse_taken` for the same.
    pub(crate) fn hold_taken(&mut self, table: &Arc<Table>, keys: &KeyChanges) -> Result<()> {
        self.until_held(table, keys, |session| session.refuse_taken(table, keys))
    }

    /// Tries again as long as the row that has a key loses it before it is locked.
    fn until_held<T>(
        &mut self,
        table: &Table,
        keys: &KeyChanges,
        mut attempt: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        loop {
            let done = attempt(self);
            let Err(Error::DuplicateKey { index_no, row, .. }) = &done else {
                return done;
            };
            let held = self.hold_under(table, keys, *index_no, *row);
            if self.settle(held)? {
                return done;
            }
        }
    }

    /// Locks a row that was met under the key of this index. False if it has left the key meanwhile: then it is not locked.
    fn hold_under(&mut self, table: &Table, keys: &KeyChanges, index: usize, row: RowId) -> Result<bool> {
        let mut changes = keys.items().iter().filter(|change| change.index == index);
        let Some(key) = changes.find_map(|change| keys.new_key(change)) else {
            return Ok(true);
        };
        let RowLock::Held(is_new) = self.lock_row(table, row, LockMode::Exclusive, Busy::Wait)? else {
            return Ok(false);
        };
        let stands = self.stands_under(table, row, index, key)?;
        if !stands && is_new {
            self.unlock_row(table, row, LockMode::Exclusive);
        }
        Ok(stands)
    }

    /// Publishes an entry for `row` under `key` in a unique index, when no other row has the key.
    pub(crate) fn claim(
        &mut self,
        table: &Table,
        position: usize,
        key: &[u8],
        row: RowId,
        unpack: &[u8],
    ) -> Result<Claim> {
        let db = Arc::clone(&self.db);
        let index = &table.indexes[position];
        let mut turn = Turn::none(&db.waits);
        loop {
            let given_up = db.waits.given_up();
            let loads = index.loads();
            let parts = index.parts();
            let groups = Groups::of(&parts, key);
            let found = if groups.is_empty() && !parts.runs_may_contain(key) {
                Probe::Free
            } else {
                self.probe(table, &parts, key, row)?
            };
            stop_point!("unique.after_probe");
            match found {
                Probe::Free => {
                    let operation = db.guards.enter(self.shard);
                    let stripe = db.claims.hold(index.def.id, key);
                    if !index.has_parts(&parts) || groups.changed(&parts, key) {
                        continue;
                    }
                    // Rule X14: no record has an odd LSN, so this one can be made void alone.
                    let lsn = Lsn::new(db.log.tail().raw() | 1);
                    let entry = parts
                        .active
                        .insert(key, row, self.work.txn, lsn, Sign::Entry, unpack)?;
                    drop(stripe);
                    if index.loads() != loads {
                        parts.active.mark_dead(entry);
                        drop(operation);
                        db.waits.gave_up(self.work.txn);
                        continue;
                    }
                    drop(operation);
                    turn.took();
                    stop_point!("unique.after_claim");
                    return Ok(Claim {
                        index: position,
                        entry,
                        lsn,
                    });
                }
                Probe::Taken(holder) => {
                    return Err(Error::DuplicateKey {
                        table: table.name().to_string(),
                        index: index.def.name.clone(),
                        index_no: position,
                        row: holder,
                    });
                }
                Probe::Conflict(holder) => {
                    return Err(Error::WriteConflict {
                        table: table.name().to_string(),
                        row: holder,
                    });
                }
                Probe::Wait(blocker) => {
                    let resource = Resource::Key(index.def.id, pbxt_base::checksum::xxh3(key));
                    let blockers = || claimant(&db, blocker, given_up);
                    self.shown.about_key(key);
                    self.wait(&mut turn, table, resource, LockMode::Exclusive, false, blockers)?;
                }
            }
        }
    }

    /// Judges every row that has entries under exactly `key`.
    pub(crate) fn probe(
        &mut self,
        table: &Table,
        parts: &Arc<IndexParts>,
        key: &[u8],
        own_row: RowId,
    ) -> Result<Probe> {
        let mut buffers = std::mem::take(&mut self.probe);
        buffers.events.clear();
        let events = &mut buffers.events;
        collect_events(&self.db, parts, key, &mut buffers.batch, |row, event| {
            events.push((row, event));
        })?;
        events.sort_by_key(|(row, _)| *row);
        let mut current = View::new(Viewer::current(self.work.txn));
        let mut answer = Ok(Probe::Free);
        for group in buffers.events.chunk_by(|a, b| a.0 == b.0) {
            let row = group[0].0;
            if row != own_row {
                answer = self.probe_row(table, &mut current, row, group);
                if !matches!(answer, Ok(Probe::Free)) {
                    break;
                }
            }
        }
        self.probe = buffers;
        answer
    }

    pub(crate) fn probe_row(
        &mut self,
        table: &Table,
        current: &mut View,
        row: RowId,
        events: &[(RowId, IndexEvent)],
    ) -> Result<Probe> {
        let guard = crossbeam_epoch::pin();
        let word = table.map.load(row);
        match decide_events(&current.viewer, events.iter().map(|(_, event)| *event)) {
            EventDecision::Wait(txn) => return Ok(Probe::Wait(txn)),
            EventDecision::Present => match current.resolve_unread(&self.db, table, row, word, &guard)? {
                Resolved::Row(..) => return self.refuse_key(table, current, row),
                Resolved::Wait(txn, _) => return Ok(Probe::Wait(txn)),
                Resolved::Absent | Resolved::Conflict => {}
            },
            EventDecision::Absent | EventDecision::Conflict => {}
        }
        self.take_key_of(events);
        // Rule T20: free now, but does my snapshot still see the row with this key? (Rule FK15: actions do not mind.)
        let Some(snapshot) = self
            .work
            .snapshot
            .as_ref()
            .filter(|_| self.work.isolation != Isolation::ReadCommitted && !self.is_acting)
        else {
            return Ok(Probe::Free);
        };
        let mut past = View::new(Viewer::snapshot(snapshot.ts(), self.work.txn, Viewer::NO_CURSOR));
        if decide_events(&past.viewer, events.iter().map(|(_, event)| *event)) != EventDecision::Present {
            return Ok(Probe::Free);
        }
        let seen = past.resolve_unread(&self.db, table, row, word, &guard)?;
        Ok(if matches!(seen, Resolved::Row(..)) {
            Probe::Conflict(row)
        } else {
            Probe::Free
        })
    }
}

/// Calls `found` for every event under exactly `key` that may count, in no order.
pub(crate) fn collect_events(
    db: &Database,
    parts: &IndexParts,
    key: &[u8],
    batch: &mut Batch,
    mut found: impl FnMut(RowId, IndexEvent),
) -> Result<()> {
    parts.for_each_under_key(key, &db.cache, batch, |entry| {
        let stamp = Stamp {
            txn: entry.txn(),
            lsn: entry.lsn(),
        };
        let event = event_of(db, stamp, entry.sign());
        if event.standing.status == TxnStatus::Aborted {
            // Nobody will ever see it (rule X5): the next probe of this key does not meet it again.
            return Fate::Dead;
        }
        found(entry.row(), event);
        Fate::Keep
    })?;
    Ok(())
}

/// A published claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// Position of the index.
    pub index: usize,
    pub entry: EntryRef,
    /// LSN of the entry, which no other event has.
    pub lsn: Lsn,
}

/// What lay under a key in the trees of an index when it was probed.
struct Groups {
    active: KeyGroup,
    frozen: Vec<KeyGroup>,
}

impl Groups {
    fn of(parts: &IndexParts, key: &[u8]) -> Self {
        Self {
            active: parts.active.key_group(key),
            frozen: parts.frozen.iter().map(|tree| tree.key_group(key)).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.active.entries() == 0 && self.frozen.iter().all(|group| group.entries() == 0)
    }

    /// True if an entry came since; a claim that was under way while its tree was frozen still enters that tree.
    fn changed(&self, parts: &IndexParts, key: &[u8]) -> bool {
        let frozen = parts.frozen.iter().zip(&self.frozen);
        parts.active.group_changed(key, &self.active)
            || frozen
                .into_iter()
                .any(|(tree, group)| tree.group_changed(key, group))
    }
}

/// Buffers of a probe, kept by the session so that a probe allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct ProbeBuffers {
    pub batch: Batch,
    pub entries: MergedCursor,
    pub events: Vec<(RowId, IndexEvent)>,
}

/// The transaction, if it has not ended and its claim, met when so many had been given up, stands for sure (rule T13). Asked under the
/// graph latch; whoever asks probes again if the answer is nobody.
pub(crate) fn claimant(db: &Database, txn: TxnId, given_up: u64) -> Vec<TxnId> {
    if db.waits.given_up() == given_up {
        unfinished(db, txn)
    } else {
        Vec::new()
    }
}

/// The transaction, if it has not ended.
pub(crate) fn unfinished(db: &Database, txn: TxnId) -> Vec<TxnId> {
    let guard = crossbeam_epoch::pin();
    if db.txns.status(txn, &guard).is_unfinished() {
        vec![txn]
    } else {
        Vec::new()
    }
}
