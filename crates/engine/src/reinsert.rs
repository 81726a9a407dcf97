//! Reinsert: an insert under the key of a row that the same transaction has removed goes on with that row.
//!
//! Why it exists: who removes a row and inserts its key anew means the same row, as a rule. A new row id would take it from its neighbours
//! to the end of the table, and its keys would be entered anew, and the old ones be in the way of every reader until they are merged away.
//! Rules: T51. The version lies on the tombstone, whatever T24 says, because a scan that began between the two meets the tombstone (T9).
//! Its events are those of an update of the version that was removed (X11); for everything else it is an insert.
//! Latches and I/O: none held across waits; reads the block of the removed version.
//! After a crash: the record is that of an update; all versions of the row are of one transaction, so the newest that survives is the row.

use crate::error::Result;
use crate::keys::{KeyChange, KeyChanges};
use crate::row_shape::Again;
use crate::session::Session;
use crate::stored_values::StoredValues;
use crate::table::Table;
use crate::unique::{Probe, collect_events};
use crate::version::Found;
use crate::view::{Resolved, View, read_version};
use crate::write::{Attempt, Beneath, NewVersion};
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, Lsn, RowId};
use pbxt_rowmap::MapWord;
use pbxt_rows::PayloadKeyMaker;
use pbxt_txlog::{RowKind, RowRef};
use pbxt_txn::{EventDecision, Viewer, decide_events};
use std::sync::Arc;

/// What a transaction has removed of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Removed {
    #[default]
    Nothing,
    /// Rows as its snapshot has them: the index entries of each are those of the version beneath its tombstone.
    Seen,
    /// Rows it had changed itself, or that its snapshot has otherwise: which entries they have only their whole chain tells.
    Changed,
}

/// Rows of one transaction that an insert goes on with; each is remembered until its end.
const REINSERTED_MAX: usize = 1 << 16;

/// A row that an insert went on with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reinserted {
    /// Place of the table among those of the transaction.
    position: usize,
    row: RowId,
    /// The first one.
    tombstone: Lsn,
    /// What lies on it: the row, or a tombstone that was written again.
    version: Lsn,
}

/// An own tombstone that is the newest version of its row.
struct Tombstone<'g> {
    word: MapWord,
    lsn: Lsn,
    record: RowRef<'g>,
}

/// Keys of the version that is replaced, and what is reused to make them.
#[derive(Debug, Default)]
pub(crate) struct OldKeys {
    changes: KeyChanges,
    key: Vec<u8>,
    unpack: Vec<u8>,
}

impl Session {
    /// Inserts the row in the place of a removed one; none if there is no such row, and nothing was done.
    pub(crate) fn insert_again(
        &mut self,
        table: &Arc<Table>,
        position: usize,
        version: NewVersion<'_>,
    ) -> Result<Option<RowId>> {
        let is_full = self.work.reinserted.len() >= REINSERTED_MAX;
        if self.work.tables[position].removed != Removed::Seen || is_full {
            return Ok(None);
        }
        let Some(makers) = table
            .key_makers()
            .filter(|makers| makes_all(makers, version.keys))
        else {
            return Ok(None);
        };
        let Some(row) = self.removed_under(table, version.keys)? else {
            return Ok(None);
        };
        let mut old = std::mem::take(&mut self.old_keys);
        let written = self.replace(table, position, (row, makers), version, &mut old);
        self.old_keys = old;
        written
    }

    fn replace(
        &mut self,
        table: &Arc<Table>,
        position: usize,
        (row, makers): (RowId, &[PayloadKeyMaker]),
        version: NewVersion<'_>,
        old: &mut OldKeys,
    ) -> Result<Option<RowId>> {
        let Some(beneath) = self.replaced(table, row, makers, version.keys, old)? else {
            return Ok(None);
        };
        if !self.has_its_keys(table, row, version.keys, &old.changes)? {
            return Ok(None);
        }
        self.write_again(table, position, (row, &beneath), version, &old.changes)
    }

    /// False if this transaction has given a unique key that stays to another row. Nobody else can have: he waits for the tombstone.
    fn has_its_keys(
        &mut self,
        table: &Table,
        row: RowId,
        keys: &KeyChanges,
        changes: &KeyChanges,
    ) -> Result<bool> {
        let claimed = keys.items().iter().filter(|change| change.claim);
        // The first one has been looked for.
        for change in claimed.skip(1) {
            let is_claimed_anew = |other: &&KeyChange| other.index == change.index && other.claim;
            let Some(key) = keys.new_key(change) else { continue };
            if changes.items().iter().any(|other| is_claimed_anew(&other)) {
                continue;
            }
            let parts = table.indexes[change.index].parts();
            if !matches!(self.probe(table, &parts, key, row)?, Probe::Free) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The removed row that has the first unique key of `keys`, if no other row has it.
    fn removed_under(&mut self, table: &Table, keys: &KeyChanges) -> Result<Option<RowId>> {
        let Some(change) = keys.items().iter().find(|change| change.claim) else {
            return Ok(None);
        };
        let Some(key) = keys.new_key(change) else {
            return Ok(None);
        };
        let parts = table.indexes[change.index].parts();
        let mut buffers = std::mem::take(&mut self.probe);
        buffers.events.clear();
        let events = &mut buffers.events;
        let collected = collect_events(&self.db, &parts, key, &mut buffers.batch, |row, event| {
            events.push((row, event));
        });
        events.sort_by_key(|(row, _)| *row);
        let found = collected.and_then(|()| {
            let mut current = View::new(Viewer::current(self.work.txn));
            let mut removed = None;
            for group in events.chunk_by(|a, b| a.0 == b.0) {
                let row = group[0].0;
                let standing = decide_events(&current.viewer, group.iter().map(|(_, event)| *event));
                if removed.is_none() && standing == EventDecision::Present && self.has_removed(table, row)? {
                    self.take_key_of(group);
                    removed = Some(row);
                } else if !matches!(self.probe_row(table, &mut current, row, group)?, Probe::Free) {
                    return Ok(None);
                }
            }
            Ok(removed)
        });
        self.probe = buffers;
        found
    }

    fn has_removed(&self, table: &Table, row: RowId) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        Ok(self.own_tombstone(table, row, &guard)?.is_some())
    }

    fn own_tombstone<'g>(
        &self,
        table: &Table,
        row: RowId,
        guard: &'g Guard,
    ) -> Result<Option<Tombstone<'g>>> {
        let word = table.map.load_in(row, guard);
        if !word.is_tombstone() {
            return Ok(None);
        }
        let lsn = word.addr().lsn();
        let record = read_version(&self.db, word.addr(), guard)?;
        let own = record.filter(|record| record.txn() == self.work.txn);
        Ok(own
            .filter(|_| !self.db.txns.is_void(self.work.txn, lsn, guard))
            .map(|record| Tombstone { word, lsn, record }))
    }

    /// What the new version lies on; `old` gets what it changes of the keys that the row had. None if the removed version cannot be had.
    fn replaced(
        &self,
        table: &Table,
        row: RowId,
        makers: &[PayloadKeyMaker],
        keys: &KeyChanges,
        old: &mut OldKeys,
    ) -> Result<Option<Beneath>> {
        let guard = crossbeam_epoch::pin();
        let Some(tombstone) = self.own_tombstone(table, row, &guard)? else {
            return Ok(None);
        };
        // One that was written again lies on the first one, which outlives it if that is taken back, too.
        let (first, foreign) = match tombstone.record.foreign_prev() {
            Some(foreign) => (tombstone.record.prev(), foreign),
            None => (Addr::hot(tombstone.lsn), tombstone.record.prev()),
        };
        let word = if foreign == Addr::BASE {
            MapWord::ABSENT
        } else {
            MapWord::version(foreign)
        };
        let mut current = View::new(Viewer::current(self.work.txn));
        let removed = current.resolve_in(&self.db, table, row, word, &guard, &Again(&self.db.cache))?;
        let Resolved::Row(removed) = removed else {
            return Ok(None);
        };
        self.changed_keys(&removed, makers, keys, old)?;
        Ok(Some(Beneath {
            word: tombstone.word,
            prev: first,
            foreign: Some(foreign),
            payload_bytes: Some(0),
            overtaken: false,
            is_own: true,
        }))
    }

    /// Rule X11, for a row that comes from `removed` to the new keys of `keys`.
    fn changed_keys(
        &self,
        removed: &Found<'_>,
        makers: &[PayloadKeyMaker],
        keys: &KeyChanges,
        old: &mut OldKeys,
    ) -> Result<()> {
        old.changes.clear();
        let mut values = StoredValues::new(self.db.blobs());
        for (change, maker) in keys.items().iter().zip(makers) {
            old.key.clear();
            old.unpack.clear();
            maker.key_from_payload(removed.payload(), &mut values, &mut old.key)?;
            maker.unpack_from_payload(removed.payload(), &mut values, &mut old.unpack)?;
            let (new, unpack) = (keys.new_key(change).unwrap_or_default(), keys.unpack(change));
            let stays = new == old.key;
            if !(stays && unpack == old.unpack) {
                let claim = change.claim && !stays;
                old.changes
                    .push_keys(change.index, claim, (&old.key, new), unpack);
            }
        }
        Ok(())
    }

    fn write_again(
        &mut self,
        table: &Arc<Table>,
        position: usize,
        (row, beneath): (RowId, &Beneath),
        version: NewVersion<'_>,
        changes: &KeyChanges,
    ) -> Result<Option<RowId>> {
        let db = Arc::clone(&self.db);
        let claims = self.claim_all(table, row, changes)?;
        let operation = db.guards.enter(self.shard);
        let changed = NewVersion {
            keys: changes,
            ..version
        };
        match self.write_version(table, row, RowKind::Update, beneath, Some(changed)) {
            Ok(Attempt::Done(lsn)) => {
                self.work.reinserted.push(Reinserted {
                    position,
                    row,
                    tombstone: beneath.prev.lsn(),
                    version: lsn,
                });
                self.publish_events(table, row, lsn, changes)?;
                drop(operation);
                self.count_insert(table, position, row, version)?;
                Ok(Some(row))
            }
            // Nobody else writes above an own version, but its lock bit may have come or gone: a new row will do.
            Ok(Attempt::Changed | Attempt::Blocked) => {
                drop(operation);
                self.withdraw(table, &claims)?;
                Ok(None)
            }
            Err(error) => {
                drop(operation);
                self.withdraw(table, &claims)?;
                Err(error)
            }
        }
    }

    /// All since this mark is void. A row that was removed before and came back since is removed by another tombstone above what is void:
    /// once the transaction has committed, a newest version that is no tombstone says that the row is there (rule B7). That tombstone may
    /// become void in turn, and recovery begins with an image that knows only what lies under it: it is remembered like what it hides.
    pub(crate) fn remove_again(&mut self, mark: Lsn) -> Result<()> {
        let void = |reinserted: &Reinserted| reinserted.version >= mark;
        let from = self
            .work
            .reinserted
            .partition_point(|reinserted| !void(reinserted));
        let mut removed = self.work.reinserted.split_off(from);
        removed.retain(|reinserted| reinserted.tombstone < mark);
        // A row that came and went is there as a version and as a tombstone.
        removed.sort_unstable_by_key(|reinserted| (reinserted.position, reinserted.row));
        removed.dedup_by_key(|reinserted| (reinserted.position, reinserted.row));
        for last in removed {
            let table = Arc::clone(&self.work.tables[last.position].table);
            let version = self.write_tombstone_again(&table, last)?;
            self.work.reinserted.push(Reinserted { version, ..last });
        }
        Ok(())
    }

    fn write_tombstone_again(&mut self, table: &Table, last: Reinserted) -> Result<Lsn> {
        let db = Arc::clone(&self.db);
        let _operation = db.guards.enter(self.shard);
        loop {
            let (word, foreign) = {
                let guard = crossbeam_epoch::pin();
                let record = read_version(&db, Addr::hot(last.version), &guard)?;
                let word = table.map.load_in(last.row, &guard);
                (word, record.and_then(|record| record.foreign_prev()))
            };
            let beneath = Beneath {
                word,
                prev: Addr::hot(last.tombstone),
                foreign,
                payload_bytes: Some(0),
                overtaken: false,
                is_own: true,
            };
            match self.write_version(table, last.row, RowKind::Delete, &beneath, None)? {
                Attempt::Done(lsn) => return Ok(lsn),
                // The row has been locked or unlocked.
                Attempt::Changed => {}
                Attempt::Blocked => {
                    unreachable!("T16: nobody can lock a row whose newest version is not ended")
                }
            }
        }
    }
}

/// True if these makers make all keys of the row.
fn makes_all(makers: &[PayloadKeyMaker], keys: &KeyChanges) -> bool {
    let is_whole = |(number, change): (usize, _)| keys.new_key(change).is_some() && change.index == number;
    makers.len() == keys.items().len() && keys.items().iter().enumerate().all(is_whole)
}
