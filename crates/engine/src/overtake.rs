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
use crate::view::{Resolved, View, read_version};
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, Lsn, RowId, TxnId};
use pbxt_index::Sign;
use pbxt_rowmap::MapWord;
use pbxt_rows::PayloadKeyMaker;
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
        let newest = self.version_behind(before, Viewer::current(TxnId::new(0)), &guard)?;
        let seen = self.version_behind(
            before,
            Viewer::snapshot(snapshot.ts(), TxnId::new(0), Viewer::NO_CURSOR),
            &guard,
        )?;
        for (number, index) in table.indexes.iter().enumerate() {
            // Where the change itself moves the key, its own events say that the newest key is left and what comes: an
            // entry or anti-entry of the same LSN here would contradict them.
            let change = keys.items().iter().find(|change| change.index == number);
            let new_key = change.and_then(|change| keys.new_key(change));
            let now = self.key_of(table, index, newest, &guard)?;
            let then = self.key_of(table, index, seen, &guard)?;
            if now == then {
                continue;
            }
            if let Some(key) = then.filter(|then| new_key != Some(then.as_slice())) {
                index
                    .tree
                    .insert(&key, row, self.work.txn, lsn, Sign::Anti, &[])?;
            }
            if let Some(key) = now.filter(|_| change.is_none()) {
                index
                    .tree
                    .insert(&key, row, self.work.txn, lsn, Sign::Entry, &[])?;
            }
        }
        Ok(())
    }

    /// True if this transaction's snapshot has no row behind `before`: the row appears to it by being changed.
    pub(crate) fn snapshot_misses(&self, before: MapWord) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        let Some(snapshot) = &self.work.snapshot else {
            return Ok(false);
        };
        let viewer = Viewer::snapshot(snapshot.ts(), TxnId::new(0), Viewer::NO_CURSOR);
        Ok(self.version_behind(before, viewer, &guard)?.is_none())
    }

    fn version_behind(&self, word: MapWord, viewer: Viewer, guard: &Guard) -> Result<Addr> {
        Ok(match View::new(viewer).resolve(&self.db, word, guard)? {
            Resolved::Row(_, lsn) => Addr::hot(lsn),
            Resolved::Absent | Resolved::Wait(..) | Resolved::Conflict => Addr::NONE,
        })
    }

    /// Key of the row in an index as of the version at `addr`: from its payload, or from the newest image beneath it.
    fn key_of(&self, table: &Table, index: &Index, mut addr: Addr, guard: &Guard) -> Result<Option<Vec<u8>>> {
        while !addr.is_none() {
            let version = read_version(&self.db, addr, guard)?;
            if index.derivable {
                let maker = PayloadKeyMaker::new(&index.def.spec, &table.def().schema)?;
                let mut key = Vec::new();
                maker.key_from_payload(
                    version.payload(),
                    &mut StoredValues::new(self.db.blobs()),
                    &mut key,
                )?;
                return Ok(Some(key));
            }
            let images = version.key_images().flatten();
            let mut entries =
                images.filter(|image| image.index == index.def.id && image.sign == pbxt_txlog::Sign::Entry);
            let counts = !self.db.txns.is_void(version.txn(), addr.lsn(), guard);
            if let Some(image) = entries.next().filter(|_| counts) {
                return Ok(Some(image.key.to_vec()));
            }
            addr = version.prev();
        }
        Ok(None)
    }
}
