//! Noting: what a SERIALIZABLE transaction reads is noted before it is read, and who changes rows looks for such notes.
//!
//! Why it exists: the footprints of `txn::Serializer` know tables, rows and key ranges; which of them a statement reads, and when
//! it is about to, is decided at many places of cursors and writers, all of which call here.
//! State: of an index scan, the range that is noted and whether the scan may leave it. A scan whose end nobody knows notes
//! all it may come to and is trimmed to what it read when it ends.
//! Rules: T30, T34. Temporary tables belong to one session: nothing of them is noted.
//! Latches and I/O: those of the serializer, for a moment each.
//! After a crash: nothing survives.

use crate::cursor::Cursor;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::index_cursor::{IndexScan, Seek};
use crate::keys::KeyChanges;
use crate::session::{Isolation, Phase, Session};
use crate::table::Table;
use crate::unique::Probe;
use crate::view::{Resolved, View};
use pbxt_base::{RowId, TxnId, planted};
use pbxt_txn::{
    IndexEvent, KeyRange, OpenScan, ReadMode, RowChange, SerialReader, SerialTxn, SerialUsage, Snapshot,
    Viewer, WholeTable, behind_prefix,
};
use std::sync::Arc;

const VICTIM: &str = "no serial order has it and the SERIALIZABLE transactions that ran beside it";

/// What of an index is noted for the scan that goes on.
#[derive(Debug, Default)]
pub(crate) struct NotedScan {
    open: Option<Open>,
    /// Nothing beyond the prefix of the seek is noted.
    is_exact: bool,
    /// The scan's border was changed since the range was noted.
    pub is_outgrown: bool,
    /// The scan stands on a row that it has shown; else it may have come to the end.
    pub has_shown: bool,
}

#[derive(Debug)]
struct Open {
    db: Arc<Database>,
    scan: OpenScan,
    range: KeyRange,
}

impl NotedScan {
    /// True if a move may leave what is noted.
    pub(crate) fn is_outgrown_by(&self, same: bool) -> bool {
        self.is_outgrown || (self.is_exact && !same)
    }
}

impl IndexScan {
    /// The scan reads no more: what it did not come to is not noted any longer.
    pub(crate) fn close_noted(&mut self) {
        if let Some(Open { db, scan, range }) = self.noted.open.take() {
            let read = match self.last_shown().filter(|_| self.noted.has_shown) {
                None => range,
                Some((key, true)) => range.up_to(key),
                Some((key, false)) => range.from(key),
            };
            db.serial.close_scan(scan, read);
        }
    }
}

impl Drop for IndexScan {
    fn drop(&mut self) {
        self.close_noted();
    }
}

impl Cursor {
    /// Decides at the start of reading whether what is read is noted.
    pub(crate) fn note_reads(&mut self, session: &Session) {
        let serial = session.work.serial.as_ref().filter(|_| !self.table.temporary);
        self.is_noting = serial.is_some();
        // Where the newest version counts, nothing is passed over.
        if self.view.viewer.mode == ReadMode::Snapshot {
            self.view.reader = serial.map_or(SerialReader::default(), |serial| serial.reader());
        }
    }

    /// A row is about to be read.
    #[inline]
    pub(crate) fn note_row(&self, session: &mut Session, row: RowId) {
        if self.is_noting {
            session.note_row_read(&self.table, row);
        }
    }

    /// A seek is about to read.
    pub(crate) fn note_seek(&mut self, session: &mut Session, prefix: &[u8], seek: Seek) {
        let all = KeyRange::everything();
        let (range, forward) = match seek {
            Seek::Exact | Seek::Key | Seek::Last => {
                self.note_exact(session, prefix);
                return;
            }
            Seek::OrNext => (all.from(prefix), true),
            Seek::After => match behind_prefix(prefix) {
                Some(behind) => (all.from(&behind), true),
                None => (KeyRange::of_prefix(prefix), true),
            },
            Seek::OrPrev => (KeyRange::new(Vec::new(), behind_prefix(prefix)), false),
            Seek::Before => (KeyRange::new(Vec::new(), Some(prefix.to_vec())), false),
        };
        self.note_open_range(session, range, forward);
    }

    fn note_exact(&mut self, session: &mut Session, prefix: &[u8]) {
        self.index.close_noted();
        self.index.noted = NotedScan {
            is_exact: true,
            ..NotedScan::default()
        };
        let index = self.table.indexes[self.index.number()].def.id;
        if let Some((db, serial)) = session.serial()
            && !planted!("serializable.no_ranges")
        {
            db.serial.note_range(serial, index, KeyRange::of_prefix(prefix));
        }
    }

    /// A scan is about to read, in a direction and from one end of this range on; forward only to the scan's border.
    pub(crate) fn note_open_range(&mut self, session: &mut Session, range: KeyRange, forward: bool) {
        self.index.close_noted();
        let range = match self.index.border().filter(|_| forward) {
            Some((end, true)) => range.below(behind_prefix(end)),
            Some((end, false)) => range.below(Some(end.to_vec())),
            None => range,
        };
        let index = self.table.indexes[self.index.number()].def.id;
        let noting = session.serial().filter(|_| !planted!("serializable.no_ranges"));
        let open = noting.map(|(db, serial)| Open {
            db: Arc::clone(db),
            scan: db.serial.open_scan(serial, index, range.clone()),
            range,
        });
        self.index.noted = NotedScan {
            open,
            ..NotedScan::default()
        };
    }

    /// A scan is about to go on, from the row last shown.
    pub(crate) fn note_renewal(&mut self, session: &mut Session, forward: bool) {
        let all = KeyRange::everything();
        let range = if forward {
            all.from(self.current_key())
        } else {
            all.up_to(self.current_key())
        };
        self.note_open_range(session, range, forward);
        // The next key is not before the one that stands there.
        self.index.noted.has_shown = true;
    }
}

impl Database {
    /// What is kept of SERIALIZABLE transactions.
    pub fn serial_usage(&self) -> SerialUsage {
        self.serial.usage()
    }
}

impl Session {
    /// Database and SERIALIZABLE transaction, if it is one that notes.
    pub(crate) fn serial(&mut self) -> Option<(&Arc<Database>, &mut SerialTxn)> {
        let serial = self.work.serial.as_deref_mut()?;
        Some((&self.db, serial))
    }

    /// Takes the snapshot, and under SERIALIZABLE a place among those that run beside it.
    pub(crate) fn open_snapshot(&mut self) -> Snapshot {
        if self.work.isolation != Isolation::Serializable {
            return self.db.txns.open_snapshot();
        }
        let (snapshot, serial) = self.db.serial.begin(&self.db.txns, self.work.read_only);
        self.work.serial = serial.map(Box::new);
        snapshot
    }

    /// The table is about to be changed for the first time: by now the transaction has a snapshot.
    pub(crate) fn begin_serial_write(&mut self, table: &Table) -> Result<()> {
        self.ensure_active();
        if self.isolation() != Isolation::Serializable || table.temporary {
            return Ok(());
        }
        if self.work.read_only {
            return Err(Error::Invalid(format!(
                "table '{}' cannot be changed: the transaction began as one that only reads",
                table.name()
            )));
        }
        self.snapshot();
        Ok(())
    }

    /// Others may find changes of this table from now on.
    pub(crate) fn note_serial_write(&mut self, table: &Table) {
        if let Some(serial) = self.work.serial.as_deref().filter(|_| !table.temporary) {
            self.db.serial.note_write(serial, self.work.txn, table.id);
        }
    }

    pub(crate) fn note_row_read(&mut self, table: &Table, row: RowId) {
        if let Some((db, serial)) = self.serial()
            && !planted!("serializable.no_rows")
        {
            db.serial.note_row(serial, table.id, row);
        }
    }

    pub(crate) fn note_table_read(&mut self, table: &Table) {
        if let Some((db, serial)) = self.serial()
            && !planted!("serializable.no_tables")
        {
            db.serial.note_table(serial, table.id, WholeTable::ALL);
        }
    }

    pub(crate) fn note_count_read(&mut self, table: &Table) {
        if table.temporary {
            return;
        }
        if let Some((db, serial)) = self.serial() {
            db.serial.note_count(serial, table.id);
        }
    }

    /// A version is linked and its index events are in their trees: who has read what they change comes before this transaction.
    #[inline]
    pub(crate) fn meet_readers(
        &mut self,
        table: &Table,
        row: RowId,
        change: RowChange,
        keys: Option<&KeyChanges>,
    ) -> Result<()> {
        match self.work.serial {
            Some(_) if !table.temporary => self.meet(table, row, change, keys),
            _ => Ok(()),
        }
    }

    #[cold]
    fn meet(
        &mut self,
        table: &Table,
        row: RowId,
        change: RowChange,
        keys: Option<&KeyChanges>,
    ) -> Result<()> {
        let Some((db, serial)) = self.serial() else {
            return Ok(());
        };
        let mut met = db.serial.changed_row(serial, table.id, row, change);
        if let Some(keys) = keys {
            for item in keys.items() {
                let index = table.indexes[item.index].def.id;
                for key in [keys.old(item), keys.new_key(item)].into_iter().flatten() {
                    met = met.and(db.serial.changed_key(serial, index, key));
                }
            }
        }
        met.map_err(|_| Error::Unserializable)
    }

    /// The same for a bulk load: who has read of the table's indexes, or all of it, comes before this transaction.
    pub(crate) fn meet_readers_of_load(&mut self, table: &Table) -> Result<()> {
        let Some((db, serial)) = self.serial() else {
            return Ok(());
        };
        let indexes = table.indexes.iter().map(|index| index.def.id);
        let met = db.serial.loaded(serial, table.id, indexes);
        met.map_err(|_| Error::Unserializable)
    }

    /// A unique key is taken by `row`. Under SERIALIZABLE that is an answer only if the snapshot sees the row (rule T34); then it
    /// has read it.
    pub(crate) fn refuse_key(&mut self, table: &Table, current: &mut View, row: RowId) -> Result<Probe> {
        // Rule FK15: an action is refused by whoever has the key now.
        if self.work.serial.is_none() || table.temporary || self.is_acting {
            return Ok(Probe::Taken(row));
        }
        self.note_row_read(table, row);
        let snapshot = self.snapshot();
        let mut past = View::new(Viewer::snapshot(snapshot, self.work.txn, Viewer::NO_CURSOR));
        past.reader = self
            .work
            .serial
            .as_ref()
            .map_or(SerialReader::default(), |serial| serial.reader());
        let guard = crossbeam_epoch::pin();
        // Loaded again: by now the row is noted.
        let word = table.map.load_in(row, &guard);
        let seen = past.resolve_unread(&self.db, table, row, word, &guard)?;
        Ok(
            match current.resolve_unread(&self.db, table, row, word, &guard)? {
                Resolved::Wait(txn, _) => Probe::Wait(txn),
                Resolved::Row(..) if matches!(seen, Resolved::Row(..)) => Probe::Taken(row),
                Resolved::Row(..) | Resolved::Absent | Resolved::Conflict => Probe::Conflict(row),
            },
        )
    }

    /// A key is free whose events are left of others: who took and gave it up beside this transaction has found it free, too.
    pub(crate) fn take_key_of(&mut self, events: &[(RowId, IndexEvent)]) {
        let Some(serial) = self.work.serial.as_deref() else {
            return;
        };
        let mut last = self.work.txn;
        for (_, event) in events {
            let holder = event.stamp.txn;
            if holder != TxnId::new(0) && holder != last && holder != self.work.txn {
                self.db.serial.took_key_of(serial, holder);
                last = holder;
            }
        }
    }

    /// True if the transaction has to be ended because it fits into no serial order (rule T29).
    #[inline]
    pub(crate) fn is_victim(&self) -> bool {
        match &self.work.serial {
            None => false,
            Some(serial) => serial.is_victim() && !matches!(self.phase, Phase::Prepared | Phase::Ordered),
        }
    }

    pub(crate) fn refuse_if_victim(&self) -> Result<()> {
        if self.is_victim() {
            return Err(Error::Unserializable);
        }
        Ok(())
    }

    /// Rolls the transaction back if it has to be ended.
    #[inline]
    pub(crate) fn settle_victim(&mut self) -> Result<()> {
        let result = self.refuse_if_victim();
        if result.is_err() {
            self.doom_unserializable();
        }
        result
    }

    /// The engine rolls the whole transaction back; the session accepts only ROLLBACK afterwards.
    #[cold]
    pub(crate) fn doom_unserializable(&mut self) {
        if !matches!(self.phase, Phase::Doomed(_)) {
            self.db.counters.serialization_failures.add(1);
            self.doom(VICTIM);
        }
    }

    /// The transaction cannot commit: it is rolled back, and over.
    #[cold]
    pub(crate) fn give_up_unserializable(&mut self) -> Error {
        self.db.counters.serialization_failures.add(1);
        // What cannot be logged is rolled back all the same.
        let _ = self.rollback();
        Error::Unserializable
    }

    /// Rule T32: the vote of a SERIALIZABLE transaction says that it fits. One that fails is none: the transaction is as unsure as before.
    pub(crate) fn vote_serial<R>(&mut self, vote: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        let Some(serial) = self.work.serial.as_deref() else {
            return vote(self);
        };
        if let Ok(voted) = self.db.serial.prepare(serial, || vote(self)) {
            return voted;
        }
        self.doom_unserializable();
        Err(Error::Unserializable)
    }
}
