//! Locking: row locks without a write, table locks, and the one place where a new version becomes the head.
//!
//! Why it exists: a head of an unfinished transaction is the exclusive lock of its row; FOR UPDATE, shared locks and
//! DDL need locks that are not versions, and writers must respect both kinds.
//! Rules: T16 the map word's LOCKED bit is set by compare-and-swap under the lock partition's latch; a writer's
//! compare-and-swap expects it clear, else it goes through the lock table. T18 table locks are held until END, but for those of rule
//! FK54. T43 a lock that is asked for outlives the own version that stands for it.
//! Latches and I/O: the partition latch around one compare-and-swap; waits hold nothing.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::reinsert::Removed;
use crate::session::{Session, TableWork};
use crate::table::Table;
use crate::version::Found;
use crate::view::{Resolved, View};
use crate::waits::Turn;
use pbxt_base::{Lsn, RowId, TxnId, planted};
use pbxt_rowmap::{LEAF_WORDS_LOG2, MapWord};
use pbxt_txn::{LEAF_ROWS, LockMode, Resource, RowAccess, RowLockList, TableAccess, Viewer};
use std::sync::Arc;

/// What to do about a row somebody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Busy {
    /// Wait up to the session's limit.
    #[default]
    Wait,
    /// Fail at once.
    Fail,
    /// Leave the row out.
    Skip,
}

/// Answer to a row lock request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLock {
    /// Ours; true if it was not before.
    Held(bool),
    /// No row with this id for anybody.
    Gone,
    /// Somebody has it and the caller does not wait.
    Skipped,
}

/// How an attempt to make a version the head ended.
pub(crate) enum Linked {
    Done,
    /// The word changed since it was read.
    Changed,
    /// Explicit locks of others stand against it.
    Blocked,
}

// A leaf of the row map is a leaf of the table of row locks: both are looked at by the same number (rule T17).
const _: () = assert!(LEAF_ROWS == 1 << LEAF_WORDS_LOG2);

impl Database {
    /// Gives back the memory of row map leaves that say nothing any more, of all tables. How many went.
    pub fn release_leaves(&self) -> usize {
        let tables = self.catalog.tables();
        tables.iter().map(|table| self.release_leaves_of(table)).sum()
    }

    /// `release_leaves` of one table. Bits of locks that are gone do not keep a leaf (rules T17, M5).
    pub(crate) fn release_leaves_of(&self, table: &Table) -> usize {
        // Not the last leaf: row ids are being handed out there.
        let leaves = 0..table.map.high_mark() >> LEAF_WORDS_LOG2;
        table.map.release_leaves(leaves, |leaf, clear| {
            let first = RowId::new(leaf << LEAF_WORDS_LOG2);
            self.row_locks.in_unlocked_leaf(table.id, first, clear);
        })
    }
}

impl Session {
    /// Locks a row explicitly. The newest version for others cannot change until the end of this transaction.
    pub(crate) fn lock_row(
        &mut self,
        table: &Table,
        row: RowId,
        mode: LockMode,
        busy: Busy,
    ) -> Result<RowLock> {
        let own = self.ensure_txn()?;
        let db = Arc::clone(&self.db);
        let resource = Resource::Row(table.id, row);
        let mut turn = Turn::none(&db.waits);
        let mut view = View::new(Viewer::current(own));
        loop {
            let (word, head, is_own) = {
                let guard = crossbeam_epoch::pin();
                let word = table.map.load_in(row, &guard);
                let resolved = view.resolve_unread(&db, table, row, word, &guard)?;
                let is_own = matches!(&resolved, Resolved::Row(version) if version.txn() == own);
                let head = match resolved {
                    Resolved::Wait(txn, lsn) => Some((txn, lsn)),
                    // An own unfinished version is the lock already: only void or aborted ones can lie above it, and
                    // a foreign writer that skips those meets it and waits.
                    Resolved::Row(version) if is_own && !self.may_free(&version) => {
                        turn.took();
                        return Ok(RowLock::Held(false));
                    }
                    Resolved::Row(..) => None,
                    Resolved::Absent | Resolved::Conflict => return Ok(RowLock::Gone),
                };
                (word, head, is_own)
            };
            // Whoever stands in line for an own version waits for this transaction.
            if head.is_none() && (is_own || !self.must_queue(&turn, table, row, mode)) {
                match self.try_lock(table, row, mode, word) {
                    Ok(Some(new)) => {
                        turn.took();
                        return Ok(RowLock::Held(new));
                    }
                    Ok(None) => {}
                    Err(Retry) => continue,
                }
            }
            if busy == Busy::Skip {
                return Ok(RowLock::Skipped);
            }
            let blockers = || blockers_of(&db, own, table, row, mode, head);
            self.wait(&mut turn, table, resource, mode, busy == Busy::Fail, blockers)?;
        }
    }

    /// True if a rollback to a live savepoint would leave the row to others although this transaction has asked for its lock (rule T43). What
    /// a failed statement has read counts for nothing, so its mark does not matter; nor do rows that nobody had before.
    fn may_free(&self, own: &Found<'_>) -> bool {
        let (Found::Hot(record, lsn) | Found::Older { record, lsn, .. }) = own else {
            return false;
        };
        // Marks rise, so the oldest answers for all.
        let oldest = self.work.savepoints.first();
        oldest.is_some_and(|set| set.mark.lsn <= *lsn) && !record.prev().is_none()
    }

    /// A newcomer stands in line behind waiters whose mode does not go with its own (rule T15), unless it holds a lock of
    /// the row.
    #[inline]
    pub(crate) fn must_queue(&self, turn: &Turn<'_>, table: &Table, row: RowId, mode: LockMode) -> bool {
        !turn.is_due()
            && self.db.waits.stands_against(Resource::Row(table.id, row), mode)
            && !self
                .db
                .row_locks
                .holds(self.work.txn, table.id, row, LockMode::Shared)
    }

    /// Whether the lock is a new one; `None` if others' locks stand against it.
    fn try_lock(
        &mut self,
        table: &Table,
        row: RowId,
        mode: LockMode,
        word: MapWord,
    ) -> std::result::Result<Option<bool>, Retry> {
        let txn = self.work.txn;
        let new = !(word.is_locked() && self.db.row_locks.holds(txn, table.id, row, mode));
        let list = self.work.row_locks.get_or_insert_with(|| RowLockList::new(txn));
        let set_bit = || {
            if word.is_locked() {
                return if table.map.load(row) == word {
                    Ok(())
                } else {
                    Err(Retry)
                };
            }
            table
                .map
                .compare_exchange(row, word, word.with_lock())
                .map_err(|_| Retry)
        };
        match self.db.row_locks.lock(list, table.id, row, mode, set_bit)? {
            RowAccess::Granted(()) => {
                if new {
                    self.work.rows_locked += 1;
                    self.shown.rows_locked(self.work.rows_locked);
                }
                Ok(Some(new))
            }
            RowAccess::Blocked(_) => Ok(None),
        }
    }

    /// Gives up the explicit lock of a row in the mode in which it was locked last (rule T17).
    pub(crate) fn unlock_row(&mut self, table: &Table, row: RowId, mode: LockMode) {
        let Some(list) = &self.work.row_locks else { return };
        if self.db.row_locks.unlock(list, table.id, row, mode) {
            self.work.rows_locked = self.work.rows_locked.saturating_sub(1);
            self.shown.rows_locked(self.work.rows_locked);
            self.db
                .waits
                .released_one(self.work.txn, Resource::Row(table.id, row));
        }
    }

    /// Makes `new` the head if the word is still `old` (rule T16).
    pub(crate) fn link(&self, table: &Table, row: RowId, old: MapWord, new: MapWord) -> Linked {
        let swapped = if old.is_locked() && !planted!("link.ignores_locks") {
            let swap = |still: pbxt_txn::StillLocked| {
                let new = if still.0 { new.with_lock() } else { new };
                table.map.compare_exchange(row, old, new)
            };
            match self.db.row_locks.write(self.work.txn, table.id, row, swap) {
                RowAccess::Granted(swapped) => swapped,
                RowAccess::Blocked(_) => return Linked::Blocked,
            }
        } else {
            table.map.compare_exchange(row, old, new)
        };
        if swapped.is_ok() {
            Linked::Done
        } else {
            Linked::Changed
        }
    }

    /// Takes a table lock of the running transaction; waits for others up to the session's limit.
    pub(crate) fn lock_table(&mut self, table: &Arc<Table>, mode: LockMode) -> Result<()> {
        let own = self.ensure_txn()?;
        let db = Arc::clone(&self.db);
        let mut turn = Turn::none(&db.waits);
        loop {
            if !self.must_queue_for_table(&turn, table, mode)
                && !matches!(db.table_locks.lock(own, table.id, mode), TableAccess::Blocked(_))
            {
                turn.took();
                self.note_table(table);
                return table.check_current();
            }
            let blockers = || db.table_locks.blockers(own, table.id, mode);
            self.wait(&mut turn, table, Resource::Table(table.id), mode, false, blockers)?;
        }
    }

    /// The same as for a row: writers that come one after the other would keep DDL out for ever (rule T15).
    fn must_queue_for_table(&self, turn: &Turn<'_>, table: &Table, mode: LockMode) -> bool {
        let is_own = |(holder, _): &(TxnId, _)| *holder == self.work.txn;
        !turn.is_due()
            && self.db.waits.stands_against(Resource::Table(table.id), mode)
            && !self.db.table_locks.holders(table.id).iter().any(is_own)
    }

    /// True if the transaction has the table in its list.
    pub(crate) fn has_entered(&self, table: &Table) -> bool {
        self.work.tables.iter().any(|work| work.table.id == table.id)
    }

    /// Gives up the intent lock of a table under which nothing was done (rule FK54); one in which rows were written keeps it (rule T18).
    /// The table stays in the list.
    pub(crate) fn leave_table(&self, table: &Table) {
        let mut tables = self.work.tables.iter();
        if tables.any(|work| work.table.id == table.id && work.written) {
            return;
        }
        self.db
            .table_locks
            .unlock(self.work.txn, table.id, LockMode::Intent);
        self.db
            .waits
            .released_one(self.work.txn, Resource::Table(table.id));
    }

    /// Enters the table into the list of what the transaction holds and changed.
    fn note_table(&mut self, table: &Arc<Table>) {
        if !self.has_entered(table) {
            self.work.tables.push(TableWork {
                table: Arc::clone(table),
                rows: 0,
                unseen: 0,
                removed: Removed::Nothing,
                bytes: 0,
                written: false,
                shown: self.shown.enter(table.id),
            });
        }
    }

    /// Intent lock and place in the list for a table that is about to be written. Costs a look at the list when done.
    #[inline]
    pub(crate) fn enter_table(&mut self, table: &Arc<Table>) -> Result<usize> {
        // Rule V14, also for a table that was entered before the vote.
        self.refuse_if_over()?;
        match self
            .work
            .tables
            .iter()
            .position(|work| work.table.id == table.id && work.written)
        {
            Some(position) => Ok(position),
            None => self.enter_new_table(table),
        }
    }

    #[cold]
    fn enter_new_table(&mut self, table: &Arc<Table>) -> Result<usize> {
        self.begin_serial_write(table)?;
        self.lock_table(table, LockMode::Intent)?;
        self.note_serial_write(table);
        let found = self.work.tables.iter().position(|work| work.table.id == table.id);
        let position = found.ok_or_else(|| dropped(table))?;
        self.work.tables[position].written = true;
        Ok(position)
    }
}

/// The word changed under the lock attempt.
#[derive(Debug)]
struct Retry;

/// Who stands in the way now: an unfinished head, or explicit locks. Asked under the graph latch.
pub(crate) fn blockers_of(
    db: &Database,
    own: TxnId,
    table: &Table,
    row: RowId,
    mode: LockMode,
    head: Option<(TxnId, Lsn)>,
) -> Vec<TxnId> {
    let guard = crossbeam_epoch::pin();
    if let Some((txn, lsn)) = head {
        let standing = db.txns.standing(txn, lsn, &guard);
        if standing.status.is_unfinished() && !standing.void {
            return vec![txn];
        }
    }
    db.row_locks.blockers(own, table.id, row, mode)
}

pub(crate) fn dropped(table: &Table) -> Error {
    Error::DefinitionChanged {
        table: table.name().to_string(),
        why: "it was dropped or truncated".into(),
    }
}
