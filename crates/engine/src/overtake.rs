//! Overtaking: index events of a change made over a version the writer's own snapshot does not see.
//!
//! Why it exists: in conflict mode wait under REPEATABLE READ a transaction changes the newest version of a row although
//! its snapshot still sees an older one. Its new version is visible to itself, but the index events that led from the
//! old key to the newest one are not: it would find its own row under the wrong key.
//! Rules: T11 such a change also writes the row's newest key as an entry and the key the snapshot sees as an anti-entry,
//! in every index where they differ. The events belong to the writer alone and need no place in the log: no snapshot
//! survives a crash.
//! Latches and I/O: none; may read versions.

use crate::error::Result;
use crate::keys::KeyChanges;
use crate::session::{Isolation, Session};
use crate::stored_values::StoredValues;
use crate::table::{Index, Table};
use crate::version::Found;
use crate::view::{Resolved, View, head_addr, read_version};
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, Lsn, RowId, TxnId};
use pbxt_index::Sign;
use pbxt_rowmap::MapWord;
use pbxt_rows::PayloadKeyMaker;
use pbxt_txlog::RowRef;
use pbxt_txn::{TxnStatus, Viewer};

impl Session {
    /// True if the version at `lsn` by `txn` is newer than this transaction's snapshot.
    pub(crate) fn overtakes(&self, txn: TxnId, guard: &Guard) -> bool {
        let Some(snapshot) = &self.work.snapshot else {
            return false;
        };
        if self.work.isolation == Isolation::ReadCommitted || txn == self.work.txn {
            return false;
        }
        matches!(self.db.txns.status(txn, guard), TxnStatus::Committed(ts) if ts > snapshot.ts())
    }

    /// Publishes the events of rule T11 for a row whose word was `before` when the version at `lsn` replaced it.
    pub(crate) fn publish_overtaken(
        &self,
        table: &Table,
        row: RowId,
        before: MapWord,
        lsn: Lsn,
        keys: &KeyChanges,
    ) -> Result<()> {
        let guard = crossbeam_epoch::pin();
        let Some(snapshot) = &self.work.snapshot else {
            return Ok(());
        };
        let past = Viewer::snapshot(snapshot.ts(), TxnId::new(0), Viewer::NO_CURSOR);
        let seen = self.version_behind(table, row, before, past, &guard)?;
        let newer = self.newer_versions(before, seen.as_ref().map(Found::addr), &guard)?;
        // A row that a load of another transaction brought has no record; its keys are those of its payload.
        let newest = self.version_behind(table, row, before, Viewer::current(TxnId::new(0)), &guard)?;
        let payload = newest.as_ref().filter(|_| seen.is_none()).map(Found::payload);
        for (number, index) in table.indexes.iter().enumerate() {
            // Where the change itself moves the key, its own events say that the newest key is left and what comes: an
            // entry or anti-entry of the same LSN here would contradict them.
            let change = keys.items().iter().find(|change| change.index == number);
            let new_key = change.and_then(|change| keys.new_key(change));
            let moved = self.moved_key(table, index, &newer, payload)?;
            if moved.then == moved.now {
                continue;
            }
            if let Some(key) = moved.then.filter(|then| new_key != Some(then.as_slice())) {
                index.insert(&key, row, self.work.txn, lsn, Sign::Anti, &[])?;
            }
            if let Some(key) = moved.now.filter(|_| change.is_none()) {
                index.insert(&key, row, self.work.txn, lsn, Sign::Entry, &moved.unpack)?;
            }
        }
        Ok(())
    }

    /// True if this transaction's snapshot has no row behind `before`: the row appears to it by being changed.
    pub(crate) fn snapshot_misses(&self, table: &Table, row: RowId, before: MapWord) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        let Some(snapshot) = &self.work.snapshot else {
            return Ok(false);
        };
        let viewer = Viewer::snapshot(snapshot.ts(), TxnId::new(0), Viewer::NO_CURSOR);
        Ok(self.version_behind(table, row, before, viewer, &guard)?.is_none())
    }

    fn version_behind<'g>(
        &self,
        table: &Table,
        row: RowId,
        word: MapWord,
        viewer: Viewer,
        guard: &'g Guard,
    ) -> Result<Option<Found<'g>>> {
        Ok(
            match View::new(viewer).resolve(&self.db, table, row, word, guard)? {
                Resolved::Row(found) => Some(found),
                Resolved::Absent | Resolved::Wait(..) | Resolved::Conflict => None,
            },
        )
    }

    /// Versions above the one at `seen` that count, newest first. All are hot: what is not is older than any snapshot.
    fn newer_versions<'g>(
        &self,
        word: MapWord,
        seen: Option<Addr>,
        guard: &'g Guard,
    ) -> Result<Vec<RowRef<'g>>> {
        let mut newer = Vec::new();
        let mut addr = head_addr(word);
        while !addr.is_none() && Some(addr) != seen {
            let Some(version) = read_version(&self.db, addr, guard)? else {
                break;
            };
            let standing = self.db.txns.standing(version.txn(), addr.lsn(), guard);
            if !standing.void && standing.status != TxnStatus::Aborted {
                newer.push(version);
            }
            addr = version.prev();
        }
        Ok(newer)
    }

    /// Key of the row in an index for the snapshot and now, from the images of the changes between; `appeared` is the newest
    /// payload of a row that the snapshot does not have.
    fn moved_key(
        &self,
        table: &Table,
        index: &Index,
        newer: &[RowRef<'_>],
        appeared: Option<&[u8]>,
    ) -> Result<MovedKey> {
        let mut moved = MovedKey::default();
        for version in newer {
            for image in version
                .key_images()
                .flatten()
                .filter(|image| image.index == index.def.id)
            {
                if image.sign == pbxt_txlog::Sign::AntiEntry {
                    // The oldest one counts: later ones are overwritten on the way down.
                    moved.then = Some(image.key.to_vec());
                } else if moved.now.is_none() {
                    moved.now = Some(image.key.to_vec());
                    moved.unpack = image.unpack.to_vec();
                }
            }
        }
        let Some(payload) = appeared else {
            return Ok(moved);
        };
        moved.then = None;
        if moved.now.is_none() && index.derivable {
            let maker = PayloadKeyMaker::new(&index.def.spec, &table.def().schema)?;
            let mut key = Vec::new();
            let mut values = StoredValues::new(self.db.blobs());
            maker.key_from_payload(payload, &mut values, &mut key)?;
            maker.unpack_from_payload(payload, &mut values, &mut moved.unpack)?;
            moved.now = Some(key);
        }
        Ok(moved)
    }
}

/// Where a row stood in an index for a snapshot, and where it stands.
#[derive(Debug, Default)]
struct MovedKey {
    then: Option<Vec<u8>>,
    now: Option<Vec<u8>>,
    unpack: Vec<u8>,
}
