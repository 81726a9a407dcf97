//! Unique keys: a key is claimed before the row that carries it exists.
//!
//! Why it exists: two transactions that insert the same key at once must not both find it free, and one that fails must
//! leave no trace in the log.
//! Rules: X9 probe without a latch (it may read versions from disk), then compare under the key's stripe latch that
//! nobody came in between, and publish the claim. X10 nobody waits or reads under the latch. T20 under REPEATABLE READ
//! and SERIALIZABLE a key whose last holder ended after my snapshot is a write conflict, in both conflict modes.
//! After a crash: claims are index entries; those of aborted work are not rebuilt.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::session::{Isolation, Session};
use crate::table::{Index, Table};
use crate::view::{Resolved, View};
use crate::waits::Turn;
use pbxt_base::{RowId, TxnId, stop_point};
use pbxt_index::{Batch, EntryRef, SeekPos, Sign};
use pbxt_txn::{EventDecision, IndexEvent, LockMode, Resource, Stamp, TxnStatus, Viewer, decide_events};
use std::sync::Arc;

/// What a probe of one key found.
enum Probe {
    Free,
    Taken(RowId),
    Wait(TxnId),
    Conflict(RowId),
}

impl Session {
    /// Publishes an entry for `row` under `key` in a unique index, when no other row has the key.
    pub(crate) fn claim(
        &mut self,
        table: &Table,
        position: usize,
        key: &[u8],
        row: RowId,
        unpack: &[u8],
    ) -> Result<EntryRef> {
        let db = Arc::clone(&self.db);
        let index = &table.indexes[position];
        let mut turn = Turn::none(&db.waits);
        loop {
            let group = index.tree.key_group(key);
            let found = if group.entries() == 0 {
                Probe::Free
            } else {
                self.probe(table, index, key, row)?
            };
            stop_point!("unique.after_probe");
            match found {
                Probe::Free => {
                    let stripe = db.claims.hold(index.def.id, key);
                    if index.tree.group_changed(key, &group) {
                        continue;
                    }
                    let entry =
                        index
                            .tree
                            .insert(key, row, self.work.txn, db.log.tail(), Sign::Entry, unpack)?;
                    drop(stripe);
                    turn.took();
                    stop_point!("unique.after_claim");
                    return Ok(entry);
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
                    let blockers = || unfinished(&db, blocker);
                    self.wait(&mut turn, table, resource, LockMode::Exclusive, false, blockers)?;
                }
            }
        }
    }

    /// Judges every row that has entries under exactly `key`.
    fn probe(&mut self, table: &Table, index: &Index, key: &[u8], own_row: RowId) -> Result<Probe> {
        let mut buffers = std::mem::take(&mut self.probe);
        buffers.events.clear();
        let events = &mut buffers.events;
        collect_events(&self.db, index, key, &mut buffers.batch, |row, event| {
            events.push((row, event));
        });
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

    fn probe_row(
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
            EventDecision::Present => match current.resolve(&self.db, word, &guard)? {
                Resolved::Row(..) => return Ok(Probe::Taken(row)),
                Resolved::Wait(txn, _) => return Ok(Probe::Wait(txn)),
                Resolved::Absent | Resolved::Conflict => {}
            },
            EventDecision::Absent | EventDecision::Conflict => {}
        }
        // Rule T20: free now, but does my snapshot still see the row with this key?
        let Some(snapshot) = self
            .work
            .snapshot
            .as_ref()
            .filter(|_| self.work.isolation != Isolation::ReadCommitted)
        else {
            return Ok(Probe::Free);
        };
        let mut past = View::new(Viewer::snapshot(snapshot.ts(), self.work.txn, Viewer::NO_CURSOR));
        if decide_events(&past.viewer, events.iter().map(|(_, event)| *event)) != EventDecision::Present {
            return Ok(Probe::Free);
        }
        let seen = past.resolve(&self.db, word, &guard)?;
        Ok(if matches!(seen, Resolved::Row(..)) {
            Probe::Conflict(row)
        } else {
            Probe::Free
        })
    }
}

/// Calls `found` for every live entry under exactly `key`, row by row.
pub(crate) fn collect_events(
    db: &Database,
    index: &Index,
    key: &[u8],
    batch: &mut Batch,
    mut found: impl FnMut(RowId, IndexEvent),
) {
    let guard = crossbeam_epoch::pin();
    index
        .tree
        .read_batch_forward(&SeekPos::lower_bound(key), batch, GROUP_FIRST);
    loop {
        for (at, entry) in batch.entries(&index.tree).enumerate() {
            if entry.key() != key {
                if entry.key() > key {
                    return;
                }
                continue;
            }
            if entry.is_dead() {
                continue;
            }
            let stamp = Stamp {
                txn: entry.txn(),
                lsn: entry.lsn(),
            };
            let standing = db.txns.standing(stamp.txn, stamp.lsn, &guard);
            if standing.status == TxnStatus::Aborted {
                // Nobody will ever see it (rule X5): the next probe of this key does not meet it again.
                if let Some(entry) = index.tree.entry_ref(batch, at) {
                    index.tree.mark_dead(entry);
                }
                continue;
            }
            let sign = if entry.sign() == Sign::Entry {
                pbxt_txn::Sign::Entry
            } else {
                pbxt_txn::Sign::AntiEntry
            };
            found(
                entry.row(),
                IndexEvent {
                    sign,
                    stamp,
                    standing,
                },
            );
        }
        if batch.reached_end() {
            return;
        }
        index.tree.read_batch_on(batch, BATCH_MAX);
        if batch.is_empty() {
            return;
        }
    }
}

/// Entries read at once.
pub(crate) const BATCH_MAX: usize = 256;
/// Entries read first of one key: mostly there are one or two.
const GROUP_FIRST: usize = 4;

/// Buffers of a probe, kept by the session so that a probe allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct ProbeBuffers {
    batch: Batch,
    events: Vec<(RowId, IndexEvent)>,
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
