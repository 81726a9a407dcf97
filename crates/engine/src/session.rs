//! Session: one connection's place in the engine: at most one transaction, its marks and its settings.
//!
//! Why it exists: hosts speak of connections, statements and savepoints; the log knows only transactions and LSNs.
//! State machine of `Phase`:
//! ```text
//!   Idle --first snapshot, lock or change--> Active --prepare--> Prepared --commit_ordered--> Ordered
//!    ^                                         |                    |                            |
//!    +---------- commit, rollback -------------+--------------------+----------------------------+
//!                                          Active --deadlock--> Doomed --commit (an error), rollback--> Idle
//! ```
//! Rules: FK13 a row has a mark of its own while constraints may forbid its change. T42 so it has while the host judges it. T21 a transaction id is taken at the first change or lock, never by a reader. T8 a savepoint is the log
//! end at its moment plus a copy of the row-count deltas; rolling back to it costs one record whatever it undoes.
//! Latches: none of its own; the shared parts (`SessionGate`, `Shown`) are what other threads may touch.
//! After a crash: active transactions are aborted because they have no END; prepared ones come back detached.

use crate::bulk::Brackets;
use crate::database::Database;
use crate::definition::ConflictMode;
use crate::error::{Error, Result};
use crate::reinsert::{OldKeys, Reinserted, Removed};
use crate::shown::{Shown, TableShown};
use crate::table::Table;
use crate::unique::ProbeBuffers;
use crate::waits::SessionGate;
use crate::who::SessionView;
use pbxt_base::{CommitTs, Lsn, RowId, TxnId, planted};
use pbxt_segment::{BlobRef, ValueHold};
use pbxt_txlog::{CountDelta, KeyImageBuf, VoidRange};
use pbxt_txn::{RowLockList, SerialTxn, Snapshot};
use std::sync::Arc;

/// What a transaction sees of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// A new snapshot for each statement.
    ReadCommitted,
    /// One snapshot for the transaction.
    #[default]
    RepeatableRead,
    /// One snapshot; transactions that fit into no serial order are ended (rule T29).
    Serializable,
}

/// When an ended transaction is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushAtCommit {
    /// Within a second.
    Background,
    /// Before commit returns.
    #[default]
    Durable,
    /// Written to the operating system before commit returns.
    Written,
}

/// Settings of a session; taken over at the next transaction start.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// Isolation level.
    pub isolation: Isolation,
    /// What an update of a changed row does.
    pub conflict_mode: ConflictMode,
    /// Longest wait for a lock, in milliseconds; 0 = do not wait.
    pub lock_wait_timeout_ms: u64,
    /// Durability of commits.
    pub flush: FlushAtCommit,
    /// The transaction is not going to change rows. Under SERIALIZABLE it may then cost less, and is held to it.
    pub read_only: bool,
    /// Its transactions have a place in an order of commits given from outside (an applier of a replica): of its waits
    /// the host hears also who is before it in line (rule V4).
    pub ordered: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            conflict_mode: ConflictMode::Default,
            lock_wait_timeout_ms: 50_000,
            flush: FlushAtCommit::default(),
            read_only: false,
            ordered: false,
        }
    }
}

/// Where the session's transaction is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Active,
    Prepared,
    Ordered,
    Doomed(&'static str),
}

/// Rows a transaction added to one table.
#[derive(Debug)]
pub(crate) struct TableWork {
    pub table: Arc<Table>,
    pub rows: i64,
    /// Rows changed although the running snapshot has none there: the transaction's own count has them, those of others never.
    pub unseen: i64,
    pub bytes: i64,
    /// The intent lock is held.
    pub written: bool,
    /// Rule T51.
    pub removed: Removed,
    /// What others may know of the changes in the table.
    pub shown: Arc<TableShown>,
}

/// What a mark remembers of one table: `rows` and `unseen` of its `TableWork`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MarkedRows {
    pub rows: i64,
    pub unseen: i64,
}

/// A place to roll back to (rule T8).
#[derive(Debug)]
pub(crate) struct Mark {
    pub lsn: Lsn,
    pub rows: Vec<MarkedRows>,
}

/// A mark that the host has set once or more often at one place of the log.
#[derive(Debug)]
pub(crate) struct Savepoint {
    pub mark: Mark,
    /// How many savepoints of the host it stands for.
    pub users: u32,
}

/// What the running transaction did so far.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub txn: TxnId,
    pub snapshot: Option<Snapshot>,
    pub statement: Option<Mark>,
    pub savepoints: Vec<Savepoint>,
    /// Where the running change of one row returns to if a constraint forbids it (rule FK13).
    pub row: Option<Mark>,
    /// Where the host may let a change of one row return to that is over (rule T42).
    pub held_row: Option<Mark>,
    pub tables: Vec<TableWork>,
    /// Rule T51, in the order of their versions.
    pub reinserted: Vec<Reinserted>,
    pub voids: Vec<VoidRange>,
    pub xid: Vec<u8>,
    /// Log records were written (a FIRST record exists).
    pub logged: bool,
    /// Rows were removed.
    pub has_removed: bool,
    /// End of the newest record of this transaction.
    pub last_lsn: Lsn,
    /// End of the log when its id was first asked for to be part of a row that is still there (rule T47).
    pub stamped: Option<Lsn>,
    pub row_locks: Option<RowLockList>,
    /// Explicit locks of rows, counted once per mode.
    pub rows_locked: u64,
    /// End of the log when it got its id; 0 if that was before the database was opened.
    pub first_lsn: Lsn,
    pub rows_written: u64,
    pub started_millis: u64,
    pub isolation: Isolation,
    pub read_only: bool,
    /// What it has read, under SERIALIZABLE, and whether it fits (rule T29).
    pub serial: Option<Box<SerialTxn>>,
    /// Large values were stored that rows may come to name (rule S26).
    pub values: Option<ValueHold>,
}

impl Work {
    /// Something of it is left when its session has gone: changes of tables that are not temporary (rule V11).
    pub(crate) fn outlives_session(&self) -> bool {
        self.logged && self.tables.iter().any(|table| !table.table.temporary)
    }

    /// Makes it that of a transaction that has not begun; room in its lists is kept, which most transactions need again.
    pub(crate) fn clear(&mut self) {
        let Self {
            txn,
            snapshot,
            statement,
            savepoints,
            row,
            held_row,
            tables,
            reinserted,
            voids,
            xid,
            logged,
            has_removed,
            last_lsn,
            stamped,
            row_locks,
            rows_locked,
            first_lsn,
            rows_written,
            started_millis,
            isolation,
            read_only,
            serial,
            values,
        } = self;
        (*txn, *last_lsn, *first_lsn) = (TxnId::new(0), Lsn::new(0), Lsn::new(0));
        (*snapshot, *row_locks, *serial, *values) = (None, None, None, None);
        *stamped = None;
        (*statement, *row, *held_row) = (None, None, None);
        (*rows_locked, *rows_written, *started_millis) = (0, 0, 0);
        (*logged, *read_only, *isolation) = (false, false, Isolation::default());
        *has_removed = false;
        savepoints.clear();
        tables.clear();
        reinserted.clear();
        voids.clear();
        xid.clear();
        if tables.capacity() > TABLES_KEPT {
            *tables = Vec::new();
        }
        if reinserted.capacity() > REINSERTED_KEPT {
            *reinserted = Vec::new();
        }
    }
}

/// Tables of a transaction that the session keeps room for.
const TABLES_KEPT: usize = 64;
/// The same of rows that it went on with.
const REINSERTED_KEPT: usize = 64;
/// Rows a session writes between two looks at whether background work keeps up.
pub(crate) const ROWS_BETWEEN_LOOKS: u64 = 256;

/// One connection.
#[derive(Debug)]
pub struct Session {
    pub(crate) db: Arc<Database>,
    pub(crate) gate: Arc<SessionGate>,
    /// What lists show of the running transaction.
    pub(crate) shown: Arc<Shown>,
    /// Its number in the list of all sessions.
    number: u64,
    /// The gate is shared with a session that outlives this one.
    is_guest: bool,
    pub(crate) config: SessionConfig,
    pub(crate) phase: Phase,
    pub(crate) work: Work,
    pub(crate) delta_buffer: Vec<CountDelta>,
    pub(crate) key_images: KeyImageBuf,
    pub(crate) probe: ProbeBuffers,
    pub(crate) old_keys: OldKeys,
    /// A constraint acts: rows are changed as they are now, whatever the snapshot (rule FK15).
    pub(crate) is_acting: bool,
    /// Counts what may take away a referenced row that this session has found (rule FK20).
    pub(crate) referenced_changes: u64,
    /// Rows written by transactions that have ended, since there was a look at what waits for background work.
    pub(crate) rows_since_pause: u64,
    /// Which operation guard it enters.
    pub(crate) shard: usize,
    /// Statements that bring many rows.
    pub(crate) bulk: Brackets,
}

impl Session {
    /// A new session. `host_session` and `host_thread` come back in wait reports and listings.
    pub fn open(db: &Arc<Database>, host_session: usize, host_thread: u64) -> Self {
        let gate = SessionGate::new(host_session, host_thread);
        Self::with_gate(db, gate, SessionConfig::default(), db.next_shard())
    }

    fn with_gate(db: &Arc<Database>, gate: Arc<SessionGate>, config: SessionConfig, shard: usize) -> Self {
        let shown = Arc::new(Shown::default());
        let view = SessionView {
            gate: Arc::clone(&gate),
            shown: Arc::clone(&shown),
        };
        Self {
            db: Arc::clone(db),
            gate,
            shown,
            number: db.waits.register(view),
            is_guest: false,
            config,
            phase: Phase::Idle,
            work: Work::default(),
            delta_buffer: Vec::new(),
            key_images: KeyImageBuf::new(),
            probe: ProbeBuffers::default(),
            old_keys: OldKeys::default(),
            is_acting: false,
            referenced_changes: 0,
            rows_since_pause: 0,
            shard,
            bulk: Brackets::default(),
        }
    }

    /// A session for one DDL statement of this one: same limits, ended by the same kill.
    pub(crate) fn for_ddl(&self) -> Self {
        if self.work.statement.is_none() {
            // Rule T39, as in `begin_statement`.
            self.gate.clear_kill();
        }
        self.guest()
    }

    /// A session of its own that can be killed with this one.
    pub(crate) fn guest(&self) -> Self {
        let mut session = Self::with_gate(&self.db, Arc::clone(&self.gate), self.config, self.shard);
        session.is_guest = true;
        session
    }

    /// A session beside this one, whose transactions are its own: what it waits for is waited for by this one, up to the same limit and
    /// until the same kill (rule T52).
    pub fn autonomous(&self) -> Self {
        let mut session = self.guest();
        session.configure(SessionConfig {
            lock_wait_timeout_ms: self.config.lock_wait_timeout_ms,
            ..SessionConfig::default()
        });
        session
    }

    /// Its gate is another session's.
    pub(crate) fn is_guest(&self) -> bool {
        self.is_guest
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// The part of the session other threads may use (kill).
    pub fn gate(&self) -> &Arc<SessionGate> {
        &self.gate
    }

    /// The settings.
    pub fn config(&self) -> SessionConfig {
        self.config
    }

    /// Changes the settings.
    pub fn configure(&mut self, config: SessionConfig) {
        self.config = config;
        self.shown.configured(config.conflict_mode);
    }

    /// Id of the running transaction; 0 if it changed and locked nothing yet.
    pub fn txn(&self) -> TxnId {
        self.work.txn
    }

    /// True if the transaction keeps something from others until it ends: changes, locks, or, under SERIALIZABLE, what it has
    /// read. A rollback to a savepoint gives none of them back (rule T43).
    pub fn holds_locks(&self) -> bool {
        self.work.txn.raw() != 0 || self.work.serial.is_some()
    }

    /// True if others may not take the transaction for committed before it has voted: it wrote anything, or was rolled back whole and has
    /// not been ended since, which its vote says (rule V15), or may still be ended because of what others do (rule T46).
    pub fn has_changes(&self) -> bool {
        self.work.logged || matches!(self.phase, Phase::Doomed(_)) || self.is_known_to_write()
    }

    /// True if other SERIALIZABLE transactions know of tables that this one changes.
    fn is_known_to_write(&self) -> bool {
        let mut tables = self.work.tables.iter();
        self.work.serial.is_some() && tables.any(|work| work.written && !work.table.temporary)
    }

    /// True between prepare and the end.
    pub fn is_prepared(&self) -> bool {
        matches!(self.phase, Phase::Prepared | Phase::Ordered)
    }

    /// Begins a statement: marks where a statement rollback returns to. Costs nothing until the first change.
    pub fn begin_statement(&mut self) -> Result<()> {
        self.settle_victim()?;
        self.refuse_if_doomed()?;
        if self.work.statement.is_none() {
            // Rule T39: a kill that came before means what ran then.
            self.gate.clear_kill();
            self.referenced_changes += 1;
            self.renew_snapshot();
            self.work.statement = Some(self.mark());
        }
        Ok(())
    }

    /// Ends a statement once all that it loads is in its tables. If that fails the statement is undone: the host has told its end and tells
    /// no rollback any more, and a mark that stayed would be taken for that of the next statement.
    pub fn finish_statement(&mut self) -> Result<()> {
        if let Err(error) = self.flush_all_bulk() {
            // The first error is the one that counts; without the second step the transaction is over (rule T44).
            let _ = self.rollback_statement();
            return Err(error);
        }
        self.end_statement();
        // Rule T46: who votes for others next must not learn it from the COMMIT.
        self.settle_victim()
    }

    /// Ends a statement; its work stays part of the transaction.
    pub fn end_statement(&mut self) {
        self.work.statement = None;
        self.renew_snapshot();
        if let Some(snapshot) = &self.work.snapshot {
            snapshot.leave();
        }
        self.gate.clear_kill();
    }

    /// Under READ COMMITTED each statement has a snapshot of its own, and what that of the last one had not is in the next one's.
    fn renew_snapshot(&mut self) {
        if self.work.isolation != Isolation::ReadCommitted || self.work.snapshot.is_none() {
            return;
        }
        self.work.snapshot = None;
        self.shown.snapshot(CommitTs::new(0));
        for table in &mut self.work.tables {
            table.unseen = 0;
        }
    }

    /// Undoes the running statement.
    pub fn rollback_statement(&mut self) -> Result<()> {
        self.forget_bulk();
        self.suspect_kept();
        let Some(mark) = self.work.statement.take() else {
            return Ok(());
        };
        self.roll_back_to_mark(&mark)?;
        self.end_statement();
        Ok(())
    }

    /// Sets a savepoint. O(number of tables written).
    pub fn savepoint(&mut self) -> Result<Lsn> {
        self.refuse_if_over()?;
        self.flush_all_bulk()?;
        self.ensure_active();
        let mark = self.mark();
        let lsn = mark.lsn;
        match self.work.savepoints.last_mut() {
            Some(newest) if newest.mark.lsn >= lsn => newest.users += 1,
            _ => self.work.savepoints.push(Savepoint { mark, users: 1 }),
        }
        self.shown.savepoints(self.work.savepoints.len());
        Ok(lsn)
    }

    /// Forgets a savepoint to which nobody will return, and those set after it if the host has forgotten them too: what they could have
    /// brought back need not be kept (rule T24). Of savepoints at one place of the log the last to be released takes the mark away.
    pub fn release_savepoint(&mut self, savepoint: Lsn, with_newer: bool) {
        let savepoints = &mut self.work.savepoints;
        if with_newer {
            savepoints.retain(|set| set.mark.lsn <= savepoint);
        }
        if let Some(at) = savepoints.iter().position(|set| set.mark.lsn == savepoint) {
            savepoints[at].users -= 1;
            if savepoints[at].users == 0 {
                savepoints.remove(at);
            }
        }
        self.shown.savepoints(savepoints.len());
    }

    /// Undoes everything since the savepoint; later savepoints are gone, this one stays.
    pub fn rollback_to(&mut self, savepoint: Lsn) -> Result<()> {
        self.refuse_if_over()?;
        self.forget_bulk();
        self.suspect_kept();
        self.work.savepoints.retain(|set| set.mark.lsn <= savepoint);
        self.shown.savepoints(self.work.savepoints.len());
        let rows = match self.work.savepoints.last() {
            Some(set) if set.mark.lsn == savepoint => set.mark.rows.clone(),
            _ => {
                return Err(Error::Invalid(format!(
                    "there is no savepoint at LSN {savepoint} in this transaction"
                )));
            }
        };
        // With the fault, whatever begins at the savepoint stays.
        let lsn = Lsn::new(savepoint.raw() + u64::from(planted!("savepoint.row_left")));
        self.roll_back_to_mark(&Mark { lsn, rows })
    }

    /// The snapshot this session's consistent reads use now, taken if there is none.
    pub fn snapshot(&mut self) -> CommitTs {
        self.ensure_active();
        if let Some(snapshot) = &self.work.snapshot {
            return snapshot.ts();
        }
        let snapshot = self.open_snapshot();
        let ts = snapshot.ts();
        self.shown.snapshot(ts);
        self.work.snapshot = Some(snapshot);
        ts
    }

    /// By how much the rows this transaction sees in `table` differ from those of its snapshot.
    pub fn row_delta(&self, table: &Table) -> i64 {
        self.work_on(table).map_or(0, |work| work.rows + work.unseen)
    }

    /// By how much this transaction changes the number of committed rows of `table` if it commits.
    pub fn own_rows(&self, table: &Table) -> i64 {
        self.work_on(table).map_or(0, |work| work.rows)
    }

    fn work_on(&self, table: &Table) -> Option<&TableWork> {
        self.work.tables.iter().find(|work| work.table.id == table.id)
    }

    /// True if the transaction has removed rows of the table.
    #[inline]
    pub(crate) fn has_removed_rows(&self, table: &Table) -> bool {
        self.work.has_removed && self.has_removed_of(table)
    }

    #[cold]
    fn has_removed_of(&self, table: &Table) -> bool {
        let mut tables = self.work.tables.iter();
        tables.any(|work| work.table.id == table.id && work.removed != Removed::Nothing)
    }

    /// Isolation of the running transaction.
    pub fn isolation(&self) -> Isolation {
        if self.phase == Phase::Idle {
            self.config.isolation
        } else {
            self.work.isolation
        }
    }

    /// True if a changed row is a write conflict for this session in `table` (the table option wins); else the newest versions count
    /// where it changes or locks rows.
    pub fn conflicts_are_errors(&self, table: &Table) -> bool {
        match self.isolation() {
            Isolation::ReadCommitted => return false,
            // Rule T34: the newest version is no version of the snapshot.
            Isolation::Serializable => return true,
            Isolation::RepeatableRead => {}
        }
        let option = table.conflict_mode();
        let mode = if option == ConflictMode::Default {
            self.config.conflict_mode
        } else {
            option
        };
        mode != ConflictMode::Wait
    }

    /// Refuses what reads or writes where the transaction can only be ended, or its snapshot was (rule T28).
    pub(crate) fn refuse_if_doomed(&self) -> Result<()> {
        self.refuse_if_over()?;
        self.refuse_if_victim()?;
        match &self.work.snapshot {
            Some(snapshot) if !snapshot.enter() => Err(self.snapshot_too_old()),
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse_if_over(&self) -> Result<()> {
        match self.phase {
            Phase::Doomed(why) => Err(Error::TransactionAborted { why }),
            Phase::Prepared | Phase::Ordered => Err(Error::Invalid(
                "the transaction is prepared: only commit or rollback can follow".into(),
            )),
            Phase::Idle | Phase::Active => Ok(()),
        }
    }

    pub(crate) fn ensure_active(&mut self) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Active;
            self.work.isolation = self.config.isolation;
            self.work.read_only = self.config.read_only;
            self.work.started_millis = self.db.clock.rough_millis();
            let Work {
                started_millis,
                isolation,
                ..
            } = self.work;
            self.shown
                .begin(started_millis, isolation, self.config.conflict_mode);
        }
    }

    /// Takes a transaction id if there is none (rule T21).
    pub(crate) fn ensure_txn(&mut self) -> Result<TxnId> {
        self.refuse_if_doomed()?;
        self.ensure_active();
        if self.work.txn.raw() == 0 {
            self.db.poison.check()?;
            self.work.txn = self.db.txns.begin();
            self.work.first_lsn = self.db.log.tail();
            self.shown.named(self.work.txn, self.work.first_lsn);
            let view = SessionView {
                gate: Arc::clone(&self.gate),
                shown: Arc::clone(&self.shown),
            };
            self.db.waits.attach(self.work.txn, view);
        }
        Ok(self.work.txn)
    }

    /// Stores a large value that a row of this transaction is going to name (rule S26). A row is to be written with it, or it is
    /// garbage, which background work finds.
    pub fn keep_value(&mut self, value: &[u8]) -> Result<BlobRef> {
        self.refuse_if_doomed()?;
        self.ensure_active();
        let blobs = &self.db.blobs;
        let hold = self.work.values.get_or_insert_with(|| blobs.hold());
        Ok(blobs.append_held(value, hold)?)
    }

    /// Rows that were to name values of this transaction may not be there.
    pub(crate) fn suspect_kept(&self) {
        if self.work.values.is_some() {
            self.db.suspect_values();
        }
    }

    /// Counts a written row of the table at this position of the transaction's list.
    #[inline]
    pub(crate) fn note_row_written(&mut self, position: usize, row: RowId) {
        self.work.rows_written += 1;
        if self.work.rows_written.is_multiple_of(ROWS_BETWEEN_LOOKS) {
            self.db.pressure();
        }
        let work = &mut self.work.tables[position];
        work.shown.note(row);
        work.table.watchers.note(row);
    }

    /// A row is about to be changed to which others may refer: from here on it can be taken back alone (rule FK13).
    pub(crate) fn begin_row(&mut self) -> Result<()> {
        self.refuse_if_doomed()?;
        // Rows that were taken in before are none of this row's.
        self.flush_all_bulk()?;
        self.ensure_txn()?;
        self.referenced_changes += 1;
        self.work.row = Some(self.mark());
        Ok(())
    }

    /// The change is complete, or it is taken back with all that followed from it.
    pub(crate) fn end_row<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.take_back_row()?;
        }
        self.work.row = None;
        result
    }

    /// Takes the change of the row back.
    pub(crate) fn take_back_row(&mut self) -> Result<()> {
        match self.work.row.take() {
            Some(mark) if matches!(self.phase, Phase::Active) => {
                self.suspect_kept();
                self.roll_back_to_mark(&mark)
            }
            // A transaction that was rolled back whole has no mark any more.
            _ => Ok(()),
        }
    }

    /// A row is about to be changed that the host judges afterwards: until `release_row` it can be taken back alone (rule
    /// T42).
    pub fn hold_row(&mut self) -> Result<()> {
        self.refuse_if_doomed()?;
        self.flush_all_bulk()?;
        self.ensure_active();
        self.work.held_row = Some(self.mark());
        Ok(())
    }

    /// The row was judged: its change stays, or is taken back with all that followed from it.
    pub fn release_row(&mut self, stays: bool) -> Result<()> {
        // A transaction that was rolled back whole has no mark any more.
        let Some(mark) = self.work.held_row.take() else {
            return Ok(());
        };
        if stays {
            return Ok(());
        }
        self.refuse_if_over()?;
        self.suspect_kept();
        self.roll_back_to_mark(&mark)
    }

    fn mark(&self) -> Mark {
        let marked = |work: &TableWork| MarkedRows {
            rows: work.rows,
            unseen: work.unseen,
        };
        Mark {
            lsn: self.db.log.tail(),
            rows: self.work.tables.iter().map(marked).collect(),
        }
    }

    /// True if an own version at `lsn` could come back by rolling back to a live mark that is not older than it.
    pub(crate) fn is_restorable(&self, lsn: Lsn) -> bool {
        // Marks rise, so the newest of each kind answers for all.
        let newest = self
            .work
            .savepoints
            .last()
            .map(|set| &set.mark)
            .into_iter()
            .chain(self.work.statement.as_ref())
            .chain(self.work.held_row.as_ref())
            .chain(self.work.row.as_ref());
        newest.into_iter().any(|mark| mark.lsn > lsn)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
        self.db.waits.unregister(self.number);
        if !self.is_guest {
            self.gate.close();
        }
    }
}
