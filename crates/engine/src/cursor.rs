//! Cursor: one position in one table: table scan, fetch by row id, and what both share with index scans.
//!
//! Why it exists: which version of a row a statement may see, and which lock it takes first, depends on isolation,
//! conflict mode and statement; here it is decided once, at bind and scan start.
//! Rules: T9 the cursor LSN is fixed when a scan starts: own later versions are passed over. T30 what a SERIALIZABLE
//! transaction is about to read is noted first. T22 where the newest version counts (READ COMMITTED, conflict mode wait, locking
//! reads) the row is locked first and judged afterwards. No epoch guard survives a return to the caller.
//! Latches and I/O: none held between calls; reading a version may load its chunk.

use crate::database::Database;
use crate::definition::ConflictMode;
use crate::error::{Error, Result};
use crate::index_cursor::IndexScan;
use crate::locking::{Busy, RowLock, blockers_of};
use crate::ready_row::ReadyRow;
use crate::semi_consistent::Semi;
use crate::session::{Isolation, Session};
use crate::table::Table;
use crate::table_scan::{Step, TableScan};
use crate::version::{BaseRow, RowVersion};
use crate::view::{Resolved, View};
use crate::waits::Turn;
use pbxt_base::{CommitTs, Lsn, RowId, planted};
use pbxt_rows::RowFilter;
use pbxt_txn::{LockMode, Resource, Verdict, Viewer};
use std::sync::Arc;

/// What a statement is going to do with a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bind {
    /// Explicit lock of the rows read.
    pub lock: Option<LockMode>,
    /// The statement may change the table.
    pub for_write: bool,
    /// The newest versions count on every isolation level, also those of transactions younger than the snapshot.
    pub newest: bool,
    /// What to do about rows others have locked.
    pub busy: Busy,
    /// Changes by record buffers keep the constraints (rule FK18).
    pub check_foreign_keys: bool,
    /// Table scans of a statement that neither changes nor locks rows leave out what cannot be read (rule B13).
    pub leave_out_damaged: bool,
}

/// How rows are reached, decided from bind, isolation and conflict mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The snapshot's version, no lock.
    Snapshot,
    /// The newest version; waits for unfinished ones, no lock.
    Current,
    /// What the snapshot sees, locked; changed since then is a write conflict.
    LockSeen(LockMode),
    /// Locked, then the newest version.
    LockNewest(LockMode),
}

/// What became of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    Shown,
    Hidden,
}

/// Rows read between two looks at the kill flag.
const KILL_CHECK_ROWS: u32 = 4096;

/// A position in a table.
#[derive(Debug)]
pub struct Cursor {
    pub(crate) table: Arc<Table>,
    /// The same by another reference, for moves that need the cursor whole beside it: a reference of its own for each would write
    /// to a word that all sessions write to.
    own_table: Option<Arc<Table>>,
    pub(crate) bind: Bind,
    pub(crate) access: Access,
    pub(crate) view: View,
    pub(crate) scan: TableScan,
    filter: Option<Arc<RowFilter>>,
    pub(crate) index: IndexScan,
    /// The row that was looked for ahead, and what was found; the same of the present index entry.
    pub(crate) ready_of: RowId,
    pub(crate) ready: Option<ReadyRow>,
    pub(crate) at_hand: Option<ReadyRow>,
    /// The row that a snapshot was last asked for was in the log.
    pub(crate) was_hot: bool,
    row: RowId,
    /// The lock of the row last read, if the transaction did not have it before that read.
    new_lock: Option<LockMode>,
    /// Rows that others have locked are looked at first (rule T40).
    pub(crate) semi: Semi,
    /// What is read is noted (rule T30).
    pub(crate) is_noting: bool,
    /// A row whose newest version is no tombstone may be hidden by one of this transaction that came before the scan (rule T51).
    pub(crate) may_be_removed: bool,
    /// The statement that read last is over.
    is_suspended: bool,
    until_kill_check: u32,
    /// Rows shown and not yet added to the database's total.
    shown: u64,
}

impl Cursor {
    /// A cursor on `table`, bound to nothing.
    pub fn new(table: &Arc<Table>) -> Self {
        Self {
            table: Arc::clone(table),
            own_table: None,
            bind: Bind::default(),
            access: Access::Snapshot,
            view: View::new(Viewer::current(pbxt_base::TxnId::new(0))),
            scan: TableScan::default(),
            filter: None,
            index: IndexScan::default(),
            ready_of: RowId::new(0),
            ready: None,
            at_hand: None,
            was_hot: false,
            row: RowId::new(0),
            new_lock: None,
            semi: Semi::Off,
            is_noting: false,
            may_be_removed: false,
            is_suspended: false,
            until_kill_check: KILL_CHECK_ROWS,
            shown: 0,
        }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The table beside the cursor, until it is given back.
    #[inline]
    pub(crate) fn borrow_table(&mut self) -> Arc<Table> {
        let own = self.own_table.take();
        own.unwrap_or_else(|| Arc::clone(&self.table))
    }

    #[inline]
    pub(crate) fn give_back(&mut self, table: Arc<Table>) {
        self.own_table = Some(table);
    }

    /// Joins the session's transaction for one statement.
    pub fn bind(&mut self, session: &mut Session, bind: Bind) -> Result<()> {
        self.bind = bind;
        self.table.check_current()?;
        session.settle_victim()
    }

    /// Row id of the row last read.
    pub fn row(&self) -> RowId {
        self.row
    }

    /// Adds the rows shown since the last time to the database's total.
    pub(crate) fn count_shown(&mut self, db: &Database) {
        db.counters.rows_read.add(std::mem::take(&mut self.shown));
    }

    /// Table scans that start from now on may leave out rows that this filter turns away. It is of the table's schema.
    pub fn set_filter(&mut self, filter: Option<RowFilter>) {
        self.filter = filter.filter(|filter| !filter.is_empty()).map(Arc::new);
    }

    /// Begins a scan of the whole table.
    pub fn scan_start(&mut self, session: &mut Session) -> Result<()> {
        self.begin_reading(session)?;
        if self.is_noting {
            session.note_table_read(&self.table);
            // That is all of its rows.
            self.is_noting = false;
        }
        // Where another version than the snapshot's counts, the row must be judged, and perhaps locked, before it is asked.
        let filter = self.filter.as_ref().filter(|_| self.access == Access::Snapshot);
        self.scan.start(&self.table, filter.cloned());
        self.scan.salvage.is_on =
            self.bind.leave_out_damaged && !self.bind.for_write && self.bind.lock.is_none();
        Ok(())
    }

    /// The statement is over. Who goes on with its scan, as a host does that keeps places between statements, does so in another one.
    pub(crate) fn suspend(&mut self) {
        self.is_suspended = true;
        self.index.outdate_strip();
    }

    /// Goes on with an index read of a statement before: behind the row last shown, as this statement sees the table.
    pub(crate) fn resume_index(&mut self, session: &mut Session) -> Result<()> {
        if self.is_suspended {
            self.begin_reading(session)?;
            self.forget_ready();
            self.index.is_outdated = true;
        }
        Ok(())
    }

    /// True if the next move has to be told more than where to go: the statement is new, reads are noted, or a row is come back to.
    #[inline]
    pub(crate) fn asks_more_of_moves(&self) -> bool {
        self.is_suspended || self.is_noting || self.semi != Semi::Off
    }

    /// The same of a table scan.
    #[cold]
    fn resume_scan(&mut self, session: &mut Session) -> Result<()> {
        self.begin_reading(session)?;
        self.forget_ready();
        if self.is_noting {
            session.note_table_read(&self.table);
            self.is_noting = false;
        }
        self.scan.resume(&self.table);
        Ok(())
    }

    /// What was looked for ahead was seen otherwise.
    fn forget_ready(&mut self) {
        self.take_ready();
        self.at_hand = None;
    }

    /// Ends scans: trees, files and blocks they kept may go.
    pub fn let_go(&mut self) {
        self.scan.stop();
        self.index.stop();
        self.take_ready();
        self.at_hand = None;
    }

    /// The next visible row in row id order: calls `show` with it. False at the end.
    #[inline]
    pub fn scan_next(
        &mut self,
        session: &mut Session,
        mut show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        if self.is_suspended {
            self.resume_scan(session)?;
        }
        if self.comes_back() {
            let visited = self.visit(session, self.row, &mut show);
            self.is_back();
            if visited? == Visit::Shown {
                return Ok(true);
            }
        }
        loop {
            match self.scan.step(&session.db, &self.table)? {
                Step::Hot(row) => match self.visit_hot(session, row, &mut show) {
                    Ok(Visit::Shown) => return Ok(true),
                    Ok(Visit::Hidden) => {}
                    Err(error) => self.leave_out(row, error)?,
                },
                Step::TurnedAway => {
                    self.until_kill_check = 1;
                    self.check_kill(session)?;
                }
                Step::Base(row, block, at, stamp) => {
                    if block.payload(at).is_none() {
                        continue;
                    }
                    let base = BaseRow { block, at, stamp };
                    match self.visit_base(session, row, &base, &mut show) {
                        Ok(Visit::Shown) => return Ok(true),
                        Ok(Visit::Hidden) => {}
                        Err(error) => self.leave_out(row, error)?,
                    }
                }
                Step::End => return session.settle_victim().map(|()| false),
            }
        }
    }

    /// A row with a word; shown if the filter of the scan, if there is one, admits it.
    #[inline]
    fn visit_hot(
        &mut self,
        session: &mut Session,
        row: RowId,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        // Moved out for the time of the visit: a count for each row would be dear.
        let Some(filter) = self.scan.take_filter() else {
            return self.visit(session, row, show);
        };
        let mut is_admitted = false;
        let visited = self.visit(session, row, &mut |version: &RowVersion<'_>| {
            is_admitted = filter.admits(version.payload(), version.schema_version());
            if is_admitted { show(version) } else { Ok(()) }
        });
        self.scan.put_filter(filter);
        Ok(if is_admitted {
            visited?
        } else {
            visited.map(|_| Visit::Hidden)?
        })
    }

    /// A row that the scan found outside the hot log.
    #[inline]
    fn visit_base(
        &mut self,
        session: &mut Session,
        row: RowId,
        base: &BaseRow,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        if self.access != Access::Snapshot {
            return self.visit(session, row, show);
        }
        self.check_kill(session)?;
        self.row = row;
        if base.stamp.txn.raw() != 0 {
            self.view.viewer.own = session.work.txn;
            let judge = |view: &mut View| view.judge(&session.db, base.stamp, &crossbeam_epoch::pin());
            let verdict = self.view.kept(base.stamp.txn);
            let verdict = verdict.map_or_else(|| judge(&mut self.view), Ok)?;
            if verdict != Verdict::Visible {
                return Ok(Visit::Hidden);
            }
        }
        self.shown += 1;
        let payload = base.block.payload(base.at).unwrap_or(&[]);
        show(&RowVersion::new(row, payload, base.block.schema_version())).map(|()| Visit::Shown)
    }

    /// The row with this id, as the statement may see it; own changes included. False if there is none.
    pub fn fetch(
        &mut self,
        session: &mut Session,
        row: RowId,
        show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.fetch_judging(session, row, self.bind.for_write, show)
    }

    /// The same for who looks whether it is a row to be changed, and changes or holds it then: where the snapshot counts, the row is shown
    /// as that has it, and judged afterwards (rule T45).
    pub fn fetch_unjudged(
        &mut self,
        session: &mut Session,
        row: RowId,
        show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.fetch_judging(session, row, false, show)
    }

    fn fetch_judging(
        &mut self,
        session: &mut Session,
        row: RowId,
        judges: bool,
        mut show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.begin_reading(session)?;
        self.view.viewer.cursor = Viewer::NO_CURSOR;
        self.note_row(session, row);
        if judges && self.access == Access::Snapshot {
            // A row the snapshot sees must still be the newest; one it does not see was named by a duplicate key.
            let snapshot = self.view.viewer.snapshot;
            let viewer = if self.is_noting || self.is_seen(&session.db, row)? {
                Viewer::write(snapshot, session.txn(), true)
            } else {
                Viewer::current(session.txn())
            };
            self.access = Access::Current;
            self.view = View::new(viewer);
        }
        // Rule T40: no scan comes back to this row.
        let semi = std::mem::take(&mut self.semi);
        let visit = self.visit(session, row, &mut show);
        self.semi = semi;
        self.leave_row();
        let visit = visit?;
        session.settle_victim()?;
        Ok(visit == Visit::Shown)
    }

    /// The row last read did not match: its lock may go where the isolation level allows it.
    pub fn unlock_row(&mut self, session: &mut Session) {
        self.leave_row();
        if session.isolation() == Isolation::ReadCommitted
            && let Some(mode) = self.new_lock.take()
        {
            session.unlock_row(&self.table, self.row, mode);
        }
    }

    /// The statement leaves a row that it was shown as it is, although it is one of those that it changes (rule T57): the row is locked
    /// and judged as if it were changed. A conflict, or a wait that fails, undoes the statement.
    pub fn hold_row(&mut self, session: &mut Session, row: RowId) -> Result<()> {
        if matches!(self.access, Access::LockSeen(_) | Access::LockNewest(_)) {
            return Ok(());
        }
        session.settle_victim()?;
        session.refuse_if_doomed()?;
        let held = self.hold(session, row);
        session.settle(held)
    }

    fn hold(&mut self, session: &mut Session, row: RowId) -> Result<()> {
        loop {
            // One that is gone is judged too: somebody has deleted it since, or an action of this statement.
            if session.lock_row(&self.table, row, LockMode::Exclusive, self.bind.busy)? == RowLock::Skipped {
                return Ok(());
            }
            let mut view = View::new(Viewer::write(self.view.viewer.snapshot, session.txn(), true));
            let guard = crossbeam_epoch::pin();
            let word = self.table.map.load_in(row, &guard);
            match view.resolve_unread(&session.db, &self.table, row, word, &guard)? {
                Resolved::Row(..) | Resolved::Absent => return Ok(()),
                Resolved::Conflict => break,
                Resolved::Wait(..) => {}
            }
        }
        self.conflict_or_skip(session, row).map(|_| ())
    }

    /// True if what is read from now on is what the snapshot sees, and not what is newest.
    pub(crate) fn reads_snapshot(&self) -> bool {
        self.access == Access::Snapshot
    }

    /// Decides access and view for the reads that follow (rules T9, T18, T22).
    pub(crate) fn begin_reading(&mut self, session: &mut Session) -> Result<()> {
        session.settle_victim()?;
        session.refuse_if_doomed()?;
        self.is_suspended = false;
        // Rule L7: rows that are still being collected are rows of this transaction.
        session.flush_bulk(&self.table)?;
        self.leave_row();
        let serializable = session.isolation() == Isolation::Serializable;
        let newest = self.bind.newest
            || session.isolation() == Isolation::ReadCommitted
            || !session.conflicts_are_errors(&self.table);
        let wanted = self
            .bind
            .lock
            .or((self.bind.for_write && newest).then_some(LockMode::Exclusive));
        self.access = match wanted {
            Some(mode) if newest => Access::LockNewest(mode),
            Some(mode) => Access::LockSeen(mode),
            None if serializable && self.bind.newest => Access::Current,
            None => Access::Snapshot,
        };
        let cursor = session.db.log.tail();
        let own = session.txn();
        let viewer = match self.access {
            Access::Snapshot | Access::LockSeen(_) => Viewer::snapshot(self.snapshot(session)?, own, cursor),
            // Rule T34: a newer version than the snapshot's is a write conflict.
            Access::Current | Access::LockNewest(_) if serializable => {
                Viewer::write(self.snapshot(session)?, own, true).with_cursor(cursor)
            }
            Access::Current | Access::LockNewest(_) => {
                session.ensure_active();
                Viewer::write(CommitTs::new(0), own, false).with_cursor(cursor)
            }
        };
        self.view = View::new(viewer);
        self.may_be_removed = session.has_removed_rows(&self.table);
        self.note_reads(session);
        Ok(())
    }

    /// The session's snapshot, refused if the table is newer than it (rule T19).
    fn snapshot(&self, session: &mut Session) -> Result<CommitTs> {
        let mut snapshot = session.snapshot();
        if planted!("snapshot.one_late") {
            snapshot = CommitTs::new(snapshot.raw() + 1);
        }
        if !self.table.temporary && self.table.created_ts() > snapshot {
            return Err(Error::DefinitionChanged {
                table: self.table.name().to_string(),
                why: "it was created or altered after this transaction's snapshot".into(),
            });
        }
        Ok(snapshot)
    }

    /// Shows one row, if the statement may see it.
    #[inline]
    pub(crate) fn visit(
        &mut self,
        session: &mut Session,
        row: RowId,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        self.visit_unexplained(session, row, show)
            .map_err(|error| self.table.explain(error))
    }

    #[inline]
    fn visit_unexplained(
        &mut self,
        session: &mut Session,
        row: RowId,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        self.check_kill(session)?;
        self.view.viewer.own = session.work.txn;
        self.row = row;
        self.note_row(session, row);
        if self.access != Access::Snapshot {
            let result = self.visit_current(session, row, show);
            return session.settle(result);
        }
        let guard = crossbeam_epoch::pin();
        let word = self.table.map.load_in(row, &guard);
        self.was_hot = !word.is_absent();
        if let Some(ready) = self.at_hand.take()
            && word.is_absent()
            && ready.is_current(row, &self.table.base)
        {
            self.shown += 1;
            return show(&ready.version()).map(|()| Visit::Shown);
        }
        if word.is_absent() {
            self.index.note_miss();
        }
        match self.view.resolve(&session.db, &self.table, row, word, &guard)? {
            Resolved::Row(found) => {
                self.shown += 1;
                show(&found.version(row)).map(|()| Visit::Shown)
            }
            Resolved::Absent | Resolved::Wait(..) | Resolved::Conflict => Ok(Visit::Hidden),
        }
    }

    fn visit_current(
        &mut self,
        session: &mut Session,
        row: RowId,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        self.new_lock = None;
        let mut view = self.view.clone();
        match self.access {
            Access::LockSeen(mode) => {
                if !self.is_seen(&session.db, row)? {
                    return Ok(Visit::Hidden);
                }
                view = View::new(
                    Viewer::write(self.view.viewer.snapshot, session.work.txn, true)
                        .with_cursor(self.view.viewer.cursor),
                );
                match self.lock(session, row, mode, self.bind.busy)? {
                    RowLock::Held(_) => {}
                    RowLock::Skipped => return Ok(Visit::Hidden),
                    // The snapshot sees it, so it was deleted since.
                    RowLock::Gone => return self.conflict_or_skip(session, row),
                }
            }
            Access::LockNewest(mode) => {
                let may_look = self.may_look(session);
                let busy = if may_look { Busy::Skip } else { self.bind.busy };
                match self.lock(session, row, mode, busy)? {
                    RowLock::Held(_) => {}
                    // Rule T34: if the snapshot sees it, that is a write conflict.
                    RowLock::Gone if view.refuses_newer() => {}
                    RowLock::Skipped if may_look => return self.look(session, row, show),
                    RowLock::Gone | RowLock::Skipped => return Ok(Visit::Hidden),
                }
            }
            Access::Current | Access::Snapshot => {}
        }
        view.viewer.own = session.work.txn;
        self.show_newest(session, row, &mut view, show)
    }

    /// True if the snapshot sees the row.
    fn is_seen(&mut self, db: &Database, row: RowId) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        let word = self.table.map.load_in(row, &guard);
        let resolved = self.view.resolve_unread(db, &self.table, row, word, &guard)?;
        Ok(matches!(resolved, Resolved::Row(..)))
    }

    fn lock(&mut self, session: &mut Session, row: RowId, mode: LockMode, busy: Busy) -> Result<RowLock> {
        let lock = session.lock_row(&self.table, row, mode, busy)?;
        self.new_lock = (lock == RowLock::Held(true)).then_some(mode);
        Ok(lock)
    }

    /// A row changed since the snapshot is a write conflict, except for who asked to leave out rows it cannot have
    /// (SKIP LOCKED): a queue whose jobs others have taken is the very case it is for.
    fn conflict_or_skip(&mut self, session: &mut Session, row: RowId) -> Result<Visit> {
        if self.bind.busy == Busy::Skip {
            if let Some(mode) = self.new_lock.take() {
                session.unlock_row(&self.table, row, mode);
            }
            return Ok(Visit::Hidden);
        }
        session.db.counters.write_conflicts.add(1);
        Err(Error::WriteConflict {
            table: self.table.name().to_string(),
            row,
        })
    }

    fn show_newest(
        &mut self,
        session: &mut Session,
        row: RowId,
        view: &mut View,
        show: &mut impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<Visit> {
        let db = Arc::clone(&session.db);
        let mut turn = Turn::none(&db.waits);
        loop {
            let blocker = {
                let guard = crossbeam_epoch::pin();
                let word = self.table.map.load_in(row, &guard);
                match view.resolve(&db, &self.table, row, word, &guard)? {
                    Resolved::Row(found) => {
                        self.shown += 1;
                        return show(&found.version(row)).map(|()| Visit::Shown);
                    }
                    Resolved::Absent => return Ok(Visit::Hidden),
                    Resolved::Conflict => return self.conflict_or_skip(session, row),
                    Resolved::Wait(txn, lsn) => (txn, lsn),
                }
            };
            if self.bind.busy == Busy::Skip {
                return Ok(Visit::Hidden);
            }
            let own = session.ensure_txn()?;
            let blockers = || blockers_of(&db, own, &self.table, row, LockMode::Shared, Some(blocker));
            let resource = Resource::Row(self.table.id, row);
            session.wait(
                &mut turn,
                &self.table,
                resource,
                LockMode::Shared,
                self.bind.busy == Busy::Fail,
                blockers,
            )?;
        }
    }

    /// Counts a row that was shown.
    #[inline]
    pub(crate) fn count_one(&mut self) {
        self.shown += 1;
    }

    /// Counts a row that was shown by its index entry.
    #[inline]
    pub(crate) fn note_shown(&mut self, row: RowId) {
        self.row = row;
        self.shown += 1;
    }

    /// Counts rows that were counted by their entries alone.
    pub(crate) fn note_counted(&mut self, rows: u64) {
        self.shown += rows;
    }

    /// Looks at the kill flag now and then.
    #[inline]
    pub(crate) fn check_kill(&mut self, session: &Session) -> Result<()> {
        self.until_kill_check -= 1;
        if self.until_kill_check == 0 {
            self.until_kill_check = KILL_CHECK_ROWS;
            if session.db.waits.host_killed(&session.gate) {
                return Err(Error::Killed);
            }
            session.refuse_if_too_old()?;
        }
        Ok(())
    }

    /// The mode a changed row is treated with, for messages and tests.
    pub fn conflict_mode(&self, session: &Session) -> ConflictMode {
        if session.conflicts_are_errors(&self.table) {
            ConflictMode::Error
        } else {
            ConflictMode::Wait
        }
    }

    /// LSN at which the running scan was opened.
    pub fn cursor_lsn(&self) -> Lsn {
        self.view.viewer.cursor
    }
}
