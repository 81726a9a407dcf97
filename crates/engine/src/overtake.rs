//! Overtaking: index events of a change made over a version the writer's own snapshot does not see.
//!
//! Why it exists: in conflict mode wait under REPEATABLE READ a transaction changes the newest version of a row although
//! its snapshot still sees an older one; so do actions of constraints, and under READ COMMITTED what a statement does by its triggers.
//! The new version is visible to the writer, but the index events that led from the old key to the newest one are not: it would find
//! its own row under the wrong key.
//! Rules: T11 such a change also writes the row's newest key as an entry and the key the snapshot sees as an anti-entry,
//! in every index where they differ. They are read from the images of keys in the chain, where T24 keeps them, and, of a row that a load
//! has brought and that has no record, from its payload. T23 they are made before the change is written. The events belong to the writer
//! alone and need no place in the log: no snapshot survives a crash.
//! Latches and I/O: none; may read versions.

use crate::error::{Error, Result};
use crate::index_keys::RowKeys;
use crate::keys::KeyChanges;
use crate::session::Session;
use crate::table::{Index, Table};
use crate::version::Found;
use crate::view::{Resolved, View, head_addr, read_version};
use crate::write::Beneath;
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, CommitTs, Lsn, RowId, TxnId};
use pbxt_index::Sign;
use pbxt_rowmap::MapWord;
use pbxt_rows::ColumnKind;
use pbxt_txlog::RowRef;
use pbxt_txn::{TxnStatus, Viewer};
use std::borrow::Cow;
use std::sync::Arc;

/// What a change over a version that the snapshot does not see brings with it.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    /// The snapshot has no such row: it appears to its transaction by being changed.
    pub is_unseen: bool,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Event {
    index: usize,
    sign: Sign,
    key: Vec<u8>,
    unpack: Vec<u8>,
}

/// Where a row stood in an index for a snapshot, and where it stands.
#[derive(Clone, Default)]
struct MovedKey<'g> {
    then: Option<&'g [u8]>,
    now: Option<Cow<'g, [u8]>>,
    unpack: Cow<'g, [u8]>,
}

impl Session {
    /// True if the version by `txn` is newer than this transaction's snapshot.
    pub(crate) fn overtakes(&self, txn: TxnId, guard: &Guard) -> bool {
        let Some(snapshot) = &self.work.snapshot else {
            return false;
        };
        txn != self.work.txn
            && matches!(self.db.txns.status(txn, guard), TxnStatus::Committed(ts) if ts > snapshot.ts())
    }

    /// What a change to these keys, or a deletion, brings with it (rule T11). Asked before it is written: a key that nobody can make
    /// refuses it.
    #[inline]
    pub(crate) fn overtake(
        &self,
        table: &Arc<Table>,
        row: RowId,
        beneath: &Beneath,
        keys: Option<&KeyChanges>,
    ) -> Result<Overtaken> {
        match &self.work.snapshot {
            Some(snapshot) if beneath.overtaken => {
                self.overtake_since(snapshot.ts(), table, row, beneath.word, keys)
            }
            _ => Ok(Overtaken::default()),
        }
    }

    #[cold]
    fn overtake_since(
        &self,
        snapshot: CommitTs,
        table: &Arc<Table>,
        row: RowId,
        before: MapWord,
        keys: Option<&KeyChanges>,
    ) -> Result<Overtaken> {
        let guard = crossbeam_epoch::pin();
        let past = Viewer::snapshot(snapshot, TxnId::new(0), Viewer::NO_CURSOR);
        let seen = self.version_behind(table, row, before, past, &guard)?;
        let mut overtaken = Overtaken {
            is_unseen: seen.is_none(),
            events: Vec::new(),
        };
        let Some(keys) = keys else {
            return Ok(overtaken);
        };
        let mut moved = vec![MovedKey::default(); table.indexes.len()];
        self.read_images(table, before, seen.as_ref().map(Found::addr), &guard, &mut moved)?;
        if seen.is_none() {
            self.appear(table, row, before, &guard, &mut moved)?;
        }
        for (index, moved) in moved.into_iter().enumerate() {
            overtaken.note(index, moved, keys);
        }
        Ok(overtaken)
    }

    /// Publishes the events for the version at `lsn`.
    pub(crate) fn publish_overtaken(
        &self,
        table: &Table,
        row: RowId,
        lsn: Lsn,
        overtaken: &Overtaken,
    ) -> Result<()> {
        for event in &overtaken.events {
            let index = &table.indexes[event.index];
            index.insert(&event.key, row, self.work.txn, lsn, event.sign, &event.unpack)?;
        }
        Ok(())
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

    /// Takes the images of the versions above the one at `seen` that count, newest first. All are hot: what is not is older than any
    /// snapshot, or a load brought it.
    fn read_images<'g>(
        &self,
        table: &Table,
        word: MapWord,
        seen: Option<Addr>,
        guard: &'g Guard,
        moved: &mut [MovedKey<'g>],
    ) -> Result<()> {
        let mut addr = head_addr(word);
        while !addr.is_none() && Some(addr) != seen {
            let Some(version) = read_version(&self.db, addr, guard)? else {
                break;
            };
            let standing = self.db.txns.standing(version.txn(), addr.lsn(), guard);
            if !standing.void && standing.status != TxnStatus::Aborted {
                take_images(table, &version, moved);
            }
            addr = version.prev();
        }
        Ok(())
    }

    /// The row was under no key, and is under all that its newest version has.
    fn appear(
        &self,
        table: &Arc<Table>,
        row: RowId,
        before: MapWord,
        guard: &Guard,
        moved: &mut [MovedKey<'_>],
    ) -> Result<()> {
        for moved in &mut *moved {
            moved.then = None;
        }
        let unknown = moved.iter().enumerate().filter(|(_, moved)| moved.now.is_none());
        let unknown: Vec<usize> = unknown.map(|(index, _)| index).collect();
        let newest = Viewer::current(TxnId::new(0));
        let Some(newest) = self.version_behind(table, row, before, newest, guard)? else {
            return Ok(());
        };
        if !unknown
            .iter()
            .all(|&index| is_made_of_stored(table, &table.indexes[index]))
        {
            self.db.counters.write_conflicts.add(1);
            return Err(Error::WriteConflict {
                table: table.name().to_string(),
                row,
            });
        }
        let mut keys = RowKeys::new(&self.db, table, &unknown)?;
        keys.each(newest.payload(), |at, key, _, unpack| {
            let moved = &mut moved[unknown[at]];
            moved.now = Some(Cow::Owned(key.to_vec()));
            moved.unpack = Cow::Owned(unpack.to_vec());
        })
    }
}

impl Overtaken {
    /// Where the change itself moves the key, its own events say that the newest key is left and what comes: an entry or anti-entry of
    /// the same LSN here would contradict them.
    fn note(&mut self, index: usize, moved: MovedKey<'_>, keys: &KeyChanges) {
        let change = keys.items().iter().find(|change| change.index == index);
        let new = change.and_then(|change| keys.new_key(change));
        let now = moved.now.as_deref();
        if let Some(key) = moved.then.filter(|then| now != Some(*then) && new != Some(*then)) {
            self.events.push(Event {
                index,
                sign: Sign::Anti,
                key: key.to_vec(),
                unpack: Vec::new(),
            });
        }
        // Also under the key of then: its entry may have other unpack information (rule X11).
        if let Some(key) = moved.now.filter(|_| change.is_none()) {
            self.events.push(Event {
                index,
                sign: Sign::Entry,
                key: key.into_owned(),
                unpack: moved.unpack.into_owned(),
            });
        }
    }
}

/// Takes what an older version than those before says of keys.
fn take_images<'g>(table: &Table, version: &RowRef<'g>, moved: &mut [MovedKey<'g>]) {
    for image in version.key_images().flatten() {
        let number = table.indexes.iter().position(|index| index.def.id == image.index);
        let Some(moved) = number.map(|number| &mut moved[number]) else {
            continue;
        };
        if image.sign == pbxt_txlog::Sign::AntiEntry {
            moved.then = Some(image.key);
        } else if moved.now.is_none() {
            moved.now = Some(Cow::Borrowed(image.key));
            moved.unpack = Cow::Borrowed(image.unpack);
        }
    }
}

/// True if the keys of the index can be made of stored rows, by the core or by a record of the host.
fn is_made_of_stored(table: &Table, index: &Index) -> bool {
    let is_stored = |column: u16| {
        let column = table.schema().column(usize::from(column));
        column.is_some_and(|column| column.kind != ColumnKind::Virtual)
    };
    index.derivable
        || table.def().host_record.is_some()
            && index.def.spec.parts().iter().all(|part| is_stored(part.column))
}
