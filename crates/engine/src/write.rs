//! Write: insert, update and delete of one row.
//!
//! Why it exists: this is where the order of steps that are not one step is kept.
//! Rules: FK24 a row that has to be under a key is asked for it between the look at its word and the swap. S28 a value is shared with the version directly beneath alone. T23 one failed row leaves nothing: locks and claims come first, the record last. D15 the head is read and
//! judged, then space is reserved, the record filled, the head swapped; a lost swap turns the record into a filler, so
//! LSN order of a row is chain order. X11 a change of no key, and a delete, touch no index. T24 a version over an own
//! version that no live mark can restore, and that has no images of keys, takes its place in the chain; over any other it also names
//! the newest foreign version, which everyone else follows.
//! Latches and I/O: none held across waits; the reservation is held from fill to swap only.
//! After a crash: the record with the greatest LSN of a committed transaction that is not void is the row.

use crate::blob_reclaim::large_values;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::keys::KeyChanges;
use crate::locking::{Linked, blockers_of};
use crate::overtake::Overtaken;
use crate::reinsert::Removed;
use crate::row_shape::Again;
use crate::session::Session;
use crate::table::Table;
use crate::unique::Claim;
use crate::version::Found;
use crate::view::{Resolved, View};
use crate::waits::Turn;
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, Lsn, RowId, stop_point};
use pbxt_index::Sign;
use pbxt_rowmap::MapWord;
use pbxt_rows::BlobRef;
use pbxt_txlog::{KeyImage, RowKind, RowRecord, Space};
use pbxt_txn::{LockMode, Resource, RowChange, Viewer};
use std::sync::Arc;

/// A new version.
#[derive(Debug, Clone, Copy)]
pub struct NewVersion<'a> {
    /// Encoded columns.
    pub payload: &'a [u8],
    /// Schema they were encoded with.
    pub schema_version: u16,
    /// Index events.
    pub keys: &'a KeyChanges,
}

/// What lies beneath the version about to be written.
pub(crate) struct Beneath {
    pub word: MapWord,
    pub prev: Addr,
    pub foreign: Option<Addr>,
    /// Bytes of the version that is replaced; none if it lies in a block that was not read.
    pub payload_bytes: Option<usize>,
    /// The version beneath is newer than the writer's snapshot.
    pub overtaken: bool,
    /// It is the writer's own.
    pub is_own: bool,
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// The new version is there.
    Written,
    /// The payload is the same: nothing was written.
    Same,
    /// The version beneath does not name a value that was to be shared: nothing was written.
    Unshared,
    /// Bindings have changed since the caller looked at them: nothing was written (rule FK23).
    Rebound,
}

/// What a change asks for besides being done.
#[derive(Debug, Default)]
pub(crate) struct Terms<'a> {
    /// Gets the version that is replaced.
    pub old: Option<&'a mut OldRow>,
    /// The row has to be under this key of this index, or it is not the row that is meant.
    pub under: Option<(usize, &'a [u8])>,
    /// Changes of bindings that the caller knows of; with more of them nothing is written (rule FK23).
    pub bindings: Option<u64>,
}

impl Terms<'_> {
    /// No terms but that bindings are those.
    pub(crate) fn bound(bindings: Option<u64>) -> Self {
        Self {
            bindings,
            ..Self::default()
        }
    }
}

/// A version that was replaced.
#[derive(Debug, Default)]
pub(crate) struct OldRow {
    pub payload: Vec<u8>,
}

/// What is to be written, and values in it that the version beneath has to name (rule S28).
pub(crate) type Sharing<'a> = (NewVersion<'a>, &'a [BlobRef]);

/// What a version about to be written would lie on.
enum Judged {
    Free(Beneath),
    Same,
    Unshared,
}

/// How an attempt to write ended.
pub(crate) enum Attempt {
    Done(Lsn),
    Changed,
    Blocked,
}

impl Session {
    /// Inserts a row; returns its id.
    pub fn insert(&mut self, table: &Arc<Table>, version: NewVersion<'_>) -> Result<RowId> {
        let result = self.insert_row(table, version);
        self.settle(result)
    }

    /// The error of an insert that meets a taken key. Nothing is written, and no key stays claimed.
    pub(crate) fn refuse_taken(&mut self, table: &Arc<Table>, keys: &KeyChanges) -> Result<()> {
        let free = self.ask_for_keys(table, keys);
        self.settle(free)
    }

    fn ask_for_keys(&mut self, table: &Arc<Table>, keys: &KeyChanges) -> Result<()> {
        self.flush_bulk(table)?;
        self.enter_table(table)?;
        table.check_current()?;
        let claims = self.claim_all(table, table.map.allocate(), keys)?;
        self.withdraw(table, &claims)
    }

    /// Replaces the row's visible version. False: the payload is the same, nothing was written.
    pub fn update(&mut self, table: &Arc<Table>, row: RowId, version: NewVersion<'_>) -> Result<bool> {
        let updated = self.update_on(table, row, (version, &[]), &mut Terms::default())?;
        Ok(updated == Updated::Written)
    }

    /// Replaces the row's visible version on these terms, by one that shares large values with it (rule S28).
    pub(crate) fn update_on(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        sharing: Sharing<'_>,
        terms: &mut Terms<'_>,
    ) -> Result<Updated> {
        let result = self.change_row(table, row, Some(sharing), terms);
        self.settle(result)
    }

    /// Deletes the row.
    pub fn delete(&mut self, table: &Arc<Table>, row: RowId) -> Result<()> {
        self.delete_on(table, row, &mut Terms::default()).map(|_| ())
    }

    /// Deletes the row on these terms; `RowNotFound` if it is not the one they mean.
    pub(crate) fn delete_on(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        terms: &mut Terms<'_>,
    ) -> Result<Updated> {
        let result = self.change_row(table, row, None, terms);
        self.settle(result)
    }

    /// A deadlock victim is rolled back whole before the caller hears of it.
    pub(crate) fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::Deadlock { .. }) => self.doom("it was the victim of a deadlock"),
            Err(Error::Unserializable) => self.doom_unserializable(),
            _ => {}
        }
        if result.is_err() {
            self.suspect_kept();
        }
        result
    }

    fn insert_row(&mut self, table: &Arc<Table>, version: NewVersion<'_>) -> Result<RowId> {
        self.flush_bulk(table)?;
        version.keys.check(table, self.db.log.record_bytes_max())?;
        let position = self.enter_table(table)?;
        table.check_current()?;
        if let Some(row) = self.insert_again(table, position, version)? {
            return Ok(row);
        }
        let row = table.map.allocate();
        let claims = self.claim_all(table, row, version.keys)?;
        let beneath = Beneath {
            word: MapWord::ABSENT,
            prev: Addr::NONE,
            foreign: None,
            payload_bytes: Some(0),
            overtaken: false,
            is_own: false,
        };
        let db = Arc::clone(&self.db);
        let operation = db.guards.enter(self.shard);
        let written = self.write_version(table, row, RowKind::Insert, &beneath, Some(version));
        match written {
            Ok(Attempt::Done(lsn)) => {
                self.publish_events(table, row, lsn, version.keys)?;
                drop(operation);
                self.count_insert(table, position, row, version)?;
                Ok(row)
            }
            Ok(Attempt::Changed | Attempt::Blocked) => {
                unreachable!("D15: nobody else knows a row id before its first version is linked")
            }
            Err(error) => {
                drop(operation);
                self.withdraw(table, &claims)?;
                Err(error)
            }
        }
    }

    #[inline]
    pub(crate) fn count_insert(
        &mut self,
        table: &Table,
        position: usize,
        row: RowId,
        version: NewVersion<'_>,
    ) -> Result<()> {
        let work = &mut self.work.tables[position];
        work.rows += 1;
        work.bytes += version.payload.len().cast_signed() as i64;
        self.note_row_written(position, row);
        self.db.counters.rows_inserted.add(1);
        self.meet_readers(table, row, RowChange::Insert, Some(version.keys))
    }

    /// Refuses a row that has left the key by which an action has come to it. Rule FK24: a word that changes after this look is noticed by
    /// the swap.
    #[inline]
    fn must_be_under(&mut self, table: &Table, row: RowId, terms: &Terms<'_>) -> Result<()> {
        match terms.under {
            Some((index, key)) if !self.is_under(table, row, index, key)? => Err(not_found(table, row)),
            _ => Ok(()),
        }
    }

    /// Update (`version`) or delete (`None`).
    fn change_row(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        sharing: Option<Sharing<'_>>,
        terms: &mut Terms<'_>,
    ) -> Result<Updated> {
        self.flush_bulk(table)?;
        let position = self.enter_table(table)?;
        let version = sharing.map(|(version, _)| version);
        if let Some(version) = version {
            version.keys.check(table, self.db.log.record_bytes_max())?;
        }
        let kind = if version.is_some() {
            RowKind::Update
        } else {
            RowKind::Delete
        };
        let db = Arc::clone(&self.db);
        // Rule B8: a change between judging a word that says BASE and swapping it must not be homed before the swap.
        let _horizon = self.work.snapshot.is_none().then(|| db.txns.open_snapshot());
        let mut turn = Turn::none(&db.waits);
        loop {
            let beneath = match self.find_beneath(&db, table, row, sharing, terms, &mut turn)? {
                Judged::Free(beneath) => beneath,
                Judged::Same => return Ok(Updated::Same),
                Judged::Unshared => return Ok(Updated::Unshared),
            };
            self.must_be_under(table, row, terms)?;
            let overtaken = self.overtake(table, row, &beneath, version.map(|version| version.keys))?;
            let claims = match version {
                Some(version) => self.claim_in_turn(table, row, version.keys, &mut turn, &db)?,
                None => Claims::default(),
            };
            let operation = db.guards.enter(self.shard);
            // Rule FK23: DDL that counts a change after this look waits for the guard.
            if terms.bindings.is_some_and(|known| known != db.bindings()) {
                drop(operation);
                self.withdraw(table, &claims)?;
                return Ok(Updated::Rebound);
            }
            match self.write_version(table, row, kind, &beneath, version) {
                Ok(Attempt::Done(lsn)) => {
                    turn.took();
                    self.work.tables[position].unseen += i64::from(overtaken.is_unseen);
                    self.publish_change(table, row, lsn, &overtaken, version)?;
                    drop(operation);
                    self.count_change(position, row, version, &beneath);
                    let change = version.map_or(RowChange::Delete, |_| RowChange::Update);
                    self.meet_readers(table, row, change, version.map(|version| version.keys))?;
                    return Ok(Updated::Written);
                }
                Ok(Attempt::Changed) => {
                    drop(operation);
                    self.withdraw(table, &claims)?;
                }
                Ok(Attempt::Blocked) => {
                    drop(operation);
                    self.withdraw(table, &claims)?;
                    let own = self.work.txn;
                    let blockers = || blockers_of(&db, own, table, row, LockMode::Exclusive, None);
                    let resource = Resource::Row(table.id, row);
                    self.wait(&mut turn, table, resource, LockMode::Exclusive, false, blockers)?;
                }
                Err(error) => {
                    drop(operation);
                    self.withdraw(table, &claims)?;
                    return Err(error);
                }
            }
        }
    }

    /// The events of a version, and those that it brings with it.
    #[inline]
    fn publish_change(
        &mut self,
        table: &Table,
        row: RowId,
        lsn: Lsn,
        overtaken: &Overtaken,
        version: Option<NewVersion<'_>>,
    ) -> Result<()> {
        self.publish_overtaken(table, row, lsn, overtaken)?;
        version.map_or(Ok(()), |version| {
            self.publish_events(table, row, lsn, version.keys)
        })
    }

    /// Claims the keys of a change. A transaction waits for one thing at a time: the turn for the row is given up, and the swap finds out
    /// if the row moved on.
    fn claim_in_turn<'d>(
        &mut self,
        table: &Table,
        row: RowId,
        keys: &KeyChanges,
        turn: &mut Turn<'d>,
        db: &'d Database,
    ) -> Result<Claims> {
        if keys.items().iter().any(|change| change.claim) {
            *turn = Turn::none(&db.waits);
        }
        self.claim_all(table, row, keys)
    }

    fn count_change(
        &mut self,
        position: usize,
        row: RowId,
        version: Option<NewVersion<'_>>,
        beneath: &Beneath,
    ) {
        let work = &mut self.work.tables[position];
        let old_bytes = beneath
            .payload_bytes
            .unwrap_or_else(|| work.table.mean_row_bytes() as usize);
        work.bytes += (version.map_or(0, |version| version.payload.len()).cast_signed()
            - old_bytes.cast_signed()) as i64;
        if version.is_some() {
            self.db.counters.rows_updated.add(1);
        } else {
            work.rows -= 1;
            work.removed = work.removed.max(if beneath.is_own || beneath.overtaken {
                Removed::Changed
            } else {
                Removed::Seen
            });
            self.work.has_removed = true;
            self.db.counters.rows_deleted.add(1);
        }
        self.note_row_written(position, row);
    }

    /// Reads and judges the head until it is free for this transaction and its turn has come (rule T15).
    fn find_beneath(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        sharing: Option<Sharing<'_>>,
        terms: &mut Terms<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Judged> {
        let shared = sharing.map_or(&[][..], |(_, shared)| shared);
        let version = sharing.map(|(version, _)| version);
        let own = self.work.txn;
        let resource = Resource::Row(table.id, row);
        let mut view = View::new(self.write_viewer(table));
        loop {
            let blocker = {
                let guard = crossbeam_epoch::pin();
                let word = table.map.load_in(row, &guard);
                // Only who may write the same row again, or shares a value, has to read what is there.
                let compares = version.is_some_and(|new| new.keys.items().is_empty());
                let resolved = if compares || !shared.is_empty() || terms.old.is_some() {
                    view.resolve_in(db, table, row, word, &guard, &Again(&db.cache))?
                } else {
                    view.resolve_unread(db, table, row, word, &guard)?
                };
                match resolved {
                    Resolved::Row(old)
                        if old.txn() != own && self.must_queue(turn, table, row, LockMode::Exclusive) =>
                    {
                        None
                    }
                    Resolved::Row(old) => {
                        let same = version.is_some_and(|new| {
                            new.keys.items().is_empty()
                                && new.payload == old.payload()
                                && new.schema_version == old.schema_version()
                        });
                        if same {
                            return Ok(Judged::Same);
                        }
                        if !shared.is_empty() && !names_all(table, &old, shared)? {
                            return Ok(Judged::Unshared);
                        }
                        if let Some(kept) = terms.old.as_deref_mut() {
                            kept.payload.clear();
                            kept.payload.extend_from_slice(old.payload());
                        }
                        if self.is_acting {
                            self.follow(old.txn());
                        }
                        return Ok(Judged::Free(self.beneath(word, &old, &guard)));
                    }
                    Resolved::Absent => return Err(not_found(table, row)),
                    Resolved::Conflict => {
                        db.counters.write_conflicts.add(1);
                        return Err(Error::WriteConflict {
                            table: table.name().to_string(),
                            row,
                        });
                    }
                    Resolved::Wait(txn, lsn) => Some((txn, lsn)),
                }
            };
            let blockers = || blockers_of(db, own, table, row, LockMode::Exclusive, blocker);
            self.wait(turn, table, resource, LockMode::Exclusive, false, blockers)?;
        }
    }

    /// How this session looks at a row it is about to change.
    pub(crate) fn write_viewer(&mut self, table: &Table) -> Viewer {
        // Rule FK15: actions change what is there now.
        let error_on_newer = !self.is_acting && self.conflicts_are_errors(table);
        let snapshot = if error_on_newer {
            self.snapshot()
        } else {
            pbxt_base::CommitTs::new(0)
        };
        Viewer::write(snapshot, self.work.txn, error_on_newer)
    }

    /// Rule T24.
    fn beneath(&self, word: MapWord, old: &Found<'_>, guard: &Guard) -> Beneath {
        let payload_bytes = (!matches!(old, Found::Slot(_))).then(|| old.payload().len());
        let over = |prev, foreign| Beneath {
            word,
            prev,
            foreign,
            payload_bytes,
            overtaken: false,
            is_own: old.txn() == self.work.txn,
        };
        let own = match old {
            Found::Hot(record, lsn) if record.txn() == self.work.txn => (record, *lsn),
            Found::Hot(..) | Found::Older { .. } | Found::Base(_) | Found::Slot(_) => {
                return Beneath {
                    overtaken: self.overtakes(old.txn(), guard),
                    ..over(old.addr(), None)
                };
            }
        };
        let (record, lsn) = own;
        // Whoever overtakes this transaction reads in the images which keys the row had (rule T11).
        if self.is_restorable(lsn) || record.key_images().next().is_some() {
            let foreign = record.foreign_prev().unwrap_or_else(|| record.prev());
            return over(Addr::hot(lsn), Some(foreign));
        }
        over(record.prev(), record.foreign_prev())
    }

    /// Claims the new keys of all unique indexes; withdraws those it got if one fails.
    pub(crate) fn claim_all(&mut self, table: &Table, row: RowId, keys: &KeyChanges) -> Result<Claims> {
        let mut claims = Claims::default();
        for change in keys.items().iter().filter(|change| change.claim) {
            let Some(key) = keys.new_key(change) else { continue };
            match self.claim(table, change.index, key, row, keys.unpack(change)) {
                Ok(claim) => claims.push(claim),
                Err(error) => {
                    self.withdraw(table, &claims)?;
                    return Err(error);
                }
            }
        }
        Ok(claims)
    }

    /// Takes claims back: nobody may find the keys taken by a row that was not written. A claim whose tree was frozen
    /// meanwhile may be in a run already: its LSN becomes void for everyone, as that of an undone record does (rule X14).
    pub(crate) fn withdraw(&mut self, table: &Table, claims: &Claims) -> Result<()> {
        let withdrawn = claims
            .iter()
            .try_for_each(|claim| self.withdraw_one(table, claim));
        if claims.iter().next().is_some() {
            // Rule T13: whoever waits because of them has no reason any more.
            self.db.waits.gave_up(self.work.txn);
        }
        withdrawn
    }

    fn withdraw_one(&mut self, table: &Table, claim: &Claim) -> Result<()> {
        let db = Arc::clone(&self.db);
        let _operation = db.guards.enter(self.shard);
        let parts = table.indexes[claim.index].parts();
        if parts.active.id() == Some(claim.entry.tree_id()) {
            parts.active.mark_dead(claim.entry);
            return Ok(());
        }
        self.void_one(claim.lsn)
    }

    /// Reserve, fill, swap, publish (rule D15).
    pub(crate) fn write_version(
        &mut self,
        table: &Table,
        row: RowId,
        kind: RowKind,
        beneath: &Beneath,
        version: Option<NewVersion<'_>>,
    ) -> Result<Attempt> {
        self.log_keys(table, version);
        let db = &self.db;
        let record = RowRecord {
            kind,
            first: !self.work.logged,
            temporary: table.temporary,
            table: table.id,
            txn: self.work.txn,
            row,
            schema_version: version.map_or(0, |version| version.schema_version),
            prev: beneath.prev,
            foreign_prev: beneath.foreign,
            key_images: self.key_images.as_bytes(),
            payload: version.map_or(&[], |version| version.payload),
        };
        let len = record.encoded_len();
        // Rule D10: a full disk still takes deletions, of the reserve.
        let space = version.map_or(Space::Spare, |_| Space::Row);
        let mut reservation = db.log.reserve_patiently(len, space)?;
        stop_point!("write.after_reserve");
        record.encode_into(reservation.bytes_mut());
        stop_point!("write.after_fill");
        let addr = Addr::hot(reservation.lsn());
        let new = if version.is_some() {
            MapWord::version(addr)
        } else {
            MapWord::tombstone(addr)
        };
        // Dropping the reservation turns the record into a filler.
        match self.link(table, row, beneath.word, new) {
            Linked::Changed => return Ok(Attempt::Changed),
            Linked::Blocked => return Ok(Attempt::Blocked),
            Linked::Done => {}
        }
        stop_point!("write.after_link");
        let lsn = reservation.lsn();
        self.work.last_lsn = reservation.publish();
        self.work.logged = true;
        Ok(Attempt::Done(lsn))
    }

    /// Key images for the record: of every key an update changes, and of an insert's keys that the core cannot make from
    /// the payload (rule X13).
    fn log_keys(&mut self, table: &Table, version: Option<NewVersion<'_>>) {
        self.key_images.clear();
        let Some(NewVersion { keys, .. }) = version else {
            return;
        };
        for change in keys.items() {
            let index = &table.indexes[change.index];
            if index.derivable && keys.old(change).is_none() {
                continue;
            }
            let id = index.def.id;
            if let Some(key) = keys.old(change) {
                self.key_images.push(KeyImage {
                    index: id,
                    sign: pbxt_txlog::Sign::AntiEntry,
                    key,
                    unpack: &[],
                });
            }
            if let Some(key) = keys.new_key(change) {
                self.key_images.push(KeyImage {
                    index: id,
                    sign: pbxt_txlog::Sign::Entry,
                    key,
                    unpack: keys.unpack(change),
                });
            }
        }
    }

    /// Index events of a linked version: anti-entries of old keys, entries of new keys that were not claimed.
    pub(crate) fn publish_events(
        &mut self,
        table: &Table,
        row: RowId,
        lsn: Lsn,
        keys: &KeyChanges,
    ) -> Result<()> {
        for change in keys.items() {
            let index = &table.indexes[change.index];
            if let Some(key) = keys.old(change) {
                index.insert(key, row, self.work.txn, lsn, Sign::Anti, &[])?;
            }
            if let (Some(key), false) = (keys.new_key(change), change.claim) {
                index.insert(key, row, self.work.txn, lsn, Sign::Entry, keys.unpack(change))?;
            }
            stop_point!("write.after_index_event");
        }
        Ok(())
    }
}

fn not_found(table: &Table, row: RowId) -> Error {
    Error::RowNotFound {
        table: table.name().to_string(),
        row,
    }
}

/// True if the version names all these values.
fn names_all(table: &Table, version: &Found<'_>, values: &[BlobRef]) -> Result<bool> {
    let named = large_values(table.schema(), version.payload())?;
    Ok(values.iter().all(|value| named.contains(value)))
}

/// Claims made for one row; a few stand in place, more in a list.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    first: [Option<Claim>; 4],
    more: Vec<Claim>,
}

impl Claims {
    fn push(&mut self, claim: Claim) {
        match self.first.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(claim),
            None => self.more.push(claim),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.first.iter().flatten().chain(&self.more)
    }
}
