//! View: how one reader judges versions and walks version chains.
//!
//! Why it exists: `txn::judge` answers for one version; scans ask it for millions of versions of few transactions, so
//! the last foreign verdict is kept.
//! Rules: B2 a word is loaded before the row shape is. B4 an address below the start of the log reads as BASE. T10 the first answer other than "skip" on the way down a chain is the chain's answer. T9 the cursor LSN
//! hides own later versions. In snapshot mode a foreign transaction without void ranges has one verdict for the life of
//! the snapshot, so keeping it is exact.
//! Latches and I/O: none, except that reading a version may load its chunk; callers hold an epoch guard and no latch.

use crate::database::Database;
use crate::error::Result;
use crate::row_shape::{BlockSource, Slot};
use crate::table::Table;
use crate::version::Found;
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, AddrClass, Error as StorageError, Lsn, RowId, TxnId, planted, stop_point};
use pbxt_rowmap::MapWord;
use pbxt_txlog::RowRef;
use pbxt_txn::{ReadMode, SerialReader, Stamp, Standing, TxnStatus, Verdict, Viewer, judge};

/// A reader.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub viewer: Viewer,
    /// Who wants to hear of versions that are passed over (rule T29).
    pub reader: SerialReader,
    kept_txn: TxnId,
    kept: Verdict,
}

/// What a chain holds for a reader.
#[derive(Clone)]
pub(crate) enum Resolved<'g> {
    /// This version, which is not a tombstone.
    Row(Found<'g>),
    /// No row: never there, deleted, or not yet there.
    Absent,
    /// Wait for the transaction (its version at this LSN is in the way).
    Wait(TxnId, Lsn),
    /// Committed after the snapshot.
    Conflict,
}

impl View {
    pub(crate) fn new(viewer: Viewer) -> Self {
        Self {
            viewer,
            reader: SerialReader::default(),
            kept_txn: TxnId::new(u64::MAX),
            kept: Verdict::Skip,
        }
    }

    /// True if a version newer than the snapshot is a write conflict.
    pub(crate) fn refuses_newer(&self) -> bool {
        let mode = ReadMode::Write { error_on_newer: true };
        self.viewer.mode == mode
    }

    /// Judges one version or index event.
    #[inline]
    pub(crate) fn judge(&mut self, db: &Database, stamp: Stamp, guard: &Guard) -> Result<Verdict> {
        if stamp.txn == self.kept_txn {
            Ok(self.kept)
        } else {
            self.judge_anew(db, stamp, guard)
        }
    }

    fn judge_anew(&mut self, db: &Database, stamp: Stamp, guard: &Guard) -> Result<Verdict> {
        let (standing, has_voids) = db.txns.standing_with_voids(stamp.txn, stamp.lsn, guard);
        if standing.status == TxnStatus::Active && !db.txns.has_begun(stamp.txn) {
            return Err(never_begun(db, stamp).into());
        }
        let verdict = judge(&self.viewer, stamp, standing);
        if !self.reader.is_none() {
            self.pass_over(db, stamp.txn, standing);
        }
        let settled_question = self.viewer.mode == ReadMode::Snapshot && stamp.txn != self.viewer.own;
        if settled_question && !has_voids {
            self.kept_txn = stamp.txn;
            self.kept = verdict;
        }
        Ok(verdict)
    }

    /// The verdict on everything of a transaction, if it was asked last and is the same for all: no guard is needed for it.
    #[inline]
    pub(crate) fn kept(&self, txn: TxnId) -> Option<Verdict> {
        (txn == self.kept_txn).then_some(self.kept)
    }

    /// Tells of a version or index event that only the snapshot hides (rule T29).
    pub(crate) fn pass_over(&self, db: &Database, writer: TxnId, standing: Standing) {
        let is_hidden = match standing.status {
            TxnStatus::Active | TxnStatus::Prepared => true,
            TxnStatus::Committed(ts) => ts > self.viewer.snapshot,
            TxnStatus::Settled | TxnStatus::Aborted => false,
        };
        let is_told = !planted!("serializable.no_passing_over");
        if is_hidden && is_told && !standing.void && writer != self.viewer.own {
            db.serial.passed_over(self.reader, writer);
        }
    }

    /// Walks the chain of `row` that begins at `word` (rule T10). The word is loaded before this is called (rule B2).
    #[inline]
    pub(crate) fn resolve<'g>(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        word: MapWord,
        guard: &'g Guard,
    ) -> Result<Resolved<'g>> {
        self.resolve_in(db, table, row, word, guard, &*db.cache)
    }

    /// `resolve` for who has blocks at hand.
    #[inline]
    pub(crate) fn resolve_in<'g>(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        word: MapWord,
        guard: &'g Guard,
        blocks: &impl BlockSource,
    ) -> Result<Resolved<'g>> {
        self.walk(db, table, row, word, guard, |view, db, table, row, guard| {
            view.resolve_base(db, table, row, guard, blocks)
        })
    }

    /// `resolve` for who needs no payload of a row that is not hot: its block is not read. Writers change a row they have
    /// read before, often much before, and its block may have left memory.
    #[inline]
    pub(crate) fn resolve_unread<'g>(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        word: MapWord,
        guard: &'g Guard,
    ) -> Result<Resolved<'g>> {
        self.walk(db, table, row, word, guard, |view, db, table, row, guard| {
            view.resolve_slot(db, table, row, guard)
        })
    }

    #[inline]
    fn walk<'g>(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        word: MapWord,
        guard: &'g Guard,
        base: impl FnOnce(&mut Self, &Database, &Table, RowId, &'g Guard) -> Result<Resolved<'g>>,
    ) -> Result<Resolved<'g>> {
        stop_point!("read.after_word");
        let mut addr = head_addr(word);
        while !addr.is_none() {
            let Some(record) = read_version(db, addr, guard)? else {
                return base(self, db, table, row, guard);
            };
            let lsn = addr.lsn();
            let txn = record.txn();
            stop_point!("read.after_version");
            match self.judge(db, Stamp { txn, lsn }, guard)? {
                Verdict::Visible if record.is_tombstone() => return Ok(Resolved::Absent),
                Verdict::Visible => return Ok(Resolved::Row(table.present(record, lsn)?)),
                Verdict::Wait(blocker) => return Ok(Resolved::Wait(blocker, lsn)),
                Verdict::Conflict => return Ok(Resolved::Conflict),
                Verdict::Skip => addr = self.beneath(db, &record, lsn, guard),
            }
        }
        Ok(Resolved::Absent)
    }

    /// The row as its table's shape has it: settled, or of a tagged run that is judged like any version.
    fn resolve_base<'g>(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        guard: &'g Guard,
        blocks: &impl BlockSource,
    ) -> Result<Resolved<'g>> {
        let Slot::Row(base) = table.find_base(blocks, row)? else {
            return Ok(Resolved::Absent);
        };
        let stamp = base.stamp;
        self.judge_base(db, stamp, guard, Found::Base(base))
    }

    /// As `resolve_base`, from the sets of row ids alone (rules B7, B10).
    fn resolve_slot<'g>(
        &mut self,
        db: &Database,
        table: &Table,
        row: RowId,
        guard: &'g Guard,
    ) -> Result<Resolved<'g>> {
        // Rule B10: the set before the shape.
        if table.gone.contains(row) {
            return Ok(Resolved::Absent);
        }
        stop_point!("read.after_gone");
        let Some(stamp) = table.base.stamp_of(row) else {
            return Ok(Resolved::Absent);
        };
        self.judge_base(db, stamp, guard, Found::Slot(stamp))
    }

    #[inline]
    fn judge_base<'g>(
        &mut self,
        db: &Database,
        stamp: Stamp,
        guard: &'g Guard,
        found: Found<'g>,
    ) -> Result<Resolved<'g>> {
        if stamp.txn.raw() == 0 {
            return Ok(Resolved::Row(found));
        }
        Ok(match self.judge(db, stamp, guard)? {
            Verdict::Visible => Resolved::Row(found),
            Verdict::Wait(blocker) => Resolved::Wait(blocker, stamp.lsn),
            Verdict::Conflict => Resolved::Conflict,
            Verdict::Skip => Resolved::Absent,
        })
    }

    /// Where to go on below a skipped version. All of a foreign transaction that did not commit for this reader can be
    /// skipped at once; beneath a void or an own version every version counts.
    fn beneath(&self, db: &Database, row: &RowRef<'_>, lsn: Lsn, guard: &Guard) -> Addr {
        match row.foreign_prev() {
            Some(foreign) if row.txn() != self.viewer.own && !db.txns.is_void(row.txn(), lsn, guard) => {
                foreign
            }
            _ => row.prev(),
        }
    }
}

/// Where a row's chain begins: a word that names no version means the table's row shape.
#[inline]
pub(crate) fn head_addr(word: MapWord) -> Addr {
    if word.is_absent() { Addr::BASE } else { word.addr() }
}

/// The version at an address that a row map word or a predecessor names; `None` where the row shape has it: BASE, or an
/// address below the start of the log (rule B4).
#[inline]
pub(crate) fn read_version<'g>(db: &Database, addr: Addr, guard: &'g Guard) -> Result<Option<RowRef<'g>>> {
    if addr == Addr::BASE {
        return Ok(None);
    }
    if addr.class() != AddrClass::Hot {
        return Err(dangling(db, addr, "a version in the log").into());
    }
    let Some(record) = db.log.try_read(addr.lsn(), guard)? else {
        return Ok(None);
    };
    match record.as_row() {
        Some(row) => Ok(Some(row)),
        None => Err(dangling(db, addr, "a row record").into()),
    }
}

/// Rule T53.
#[cold]
fn never_begun(db: &Database, stamp: Stamp) -> StorageError {
    StorageError::Corrupt {
        file: db.store.location(),
        offset: stamp.lsn.raw(),
        expected: "something that a transaction of this database wrote".into(),
        found: format!("number {}, which no transaction has had", stamp.txn.raw()),
    }
}

fn dangling(db: &Database, addr: Addr, expected: &str) -> StorageError {
    StorageError::Corrupt {
        file: db.store.location(),
        offset: addr.lsn().raw(),
        expected: format!("{expected} at {addr:?}"),
        found: "something else".into(),
    }
}
