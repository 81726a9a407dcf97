//! Session: one connection's place in the engine: at most one transaction, its marks and its settings.
//!
//! Why it exists: hosts speak of connections, statements and savepoints; the log knows only transactions and LSNs.
//! State machine of `Phase`:
//! ```text
//!   Idle --first snapshot, lock or change--> Active --prepare--> Prepared --commit_ordered--> Ordered
//!    ^                                         |                    |                            |
//!    +---------- commit, rollback -------------+--------------------+----------------------------+
//!                                          Active --deadlock--> Doomed --rollback--> Idle
//! ```
//! Rules: T21 a transaction id is taken at the first change or lock, never by a reader. T8 a savepoint is the log
//! end at its moment plus a copy of the row-count deltas; rolling back to it costs one record whatever it undoes.
//! Latches: none of its own; the shared part (`SessionGate`) is what other threads may touch.
//! After a crash: active transactions are aborted because they have no END; prepared ones come back detached.

use crate::bulk::Brackets;
use crate::database::Database;
use crate::definition::ConflictMode;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::unique::ProbeBuffers;
use crate::waits::SessionGate;
use pbxt_base::{CommitTs, Lsn, TxnId};
use pbxt_segment::{BlobRef, ValueHold};
use pbxt_txlog::{CountDelta, KeyImageBuf, VoidRange};
use pbxt_txn::{RowLockList, Snapshot};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a transaction sees of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// A new snapshot for each statement.
    ReadCommitted,
    /// One snapshot for the transaction.
    #[default]
    RepeatableRead,
    /// Reads lock the table against writers (rule T18).
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
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            conflict_mode: ConflictMode::Default,
            lock_wait_timeout_ms: 50_000,
            flush: FlushAtCommit::default(),
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
    /// Rows changed although the transaction's snapshot has none there: its own count has them, those of others never.
    pub unseen: i64,
    pub bytes: i64,
    /// The intent lock is held.
    pub written: bool,
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

/// What the running transaction did so far.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub txn: TxnId,
    pub snapshot: Option<Snapshot>,
    pub statement: Option<Mark>,
    pub savepoints: Vec<Mark>,
    pub tables: Vec<TableWork>,
    pub voids: Vec<VoidRange>,
    pub xid: Vec<u8>,
    /// Log records were written (a FIRST record exists).
    pub logged: bool,
    /// End of the newest record of this transaction.
    pub last_lsn: Lsn,
    pub row_locks: Option<RowLockList>,
    pub rows_written: u64,
    pub started_millis: u64,
    pub isolation: Isolation,
    /// Large values were stored that rows may come to name (rule S26).
    pub values: Option<ValueHold>,
}

/// Rows a session writes between two looks at whether background work keeps up.
const ROWS_BETWEEN_LOOKS: u64 = 256;

/// One connection.
#[derive(Debug)]
pub struct Session {
    pub(crate) db: Arc<Database>,
    pub(crate) gate: Arc<SessionGate>,
    pub(crate) config: SessionConfig,
    pub(crate) phase: Phase,
    pub(crate) work: Work,
    pub(crate) delta_buffer: Vec<CountDelta>,
    pub(crate) key_images: KeyImageBuf,
    pub(crate) probe: ProbeBuffers,
    /// Which operation guard it enters.
    pub(crate) shard: usize,
    /// Statements that bring many rows.
    pub(crate) bulk: Brackets,
}

impl Session {
    /// A new session. `host_session` and `host_thread` come back in wait reports and listings.
    pub fn open(db: &Arc<Database>, host_session: usize, host_thread: u64) -> Self {
        let gate = SessionGate::new(host_session, host_thread);
        Self {
            db: Arc::clone(db),
            gate,
            config: SessionConfig::default(),
            phase: Phase::Idle,
            work: Work::default(),
            delta_buffer: Vec::new(),
            key_images: KeyImageBuf::new(),
            probe: ProbeBuffers::default(),
            shard: db.next_shard(),
            bulk: Brackets::default(),
        }
    }

    /// A session for one DDL statement of this one: same limits, ended by the same kill.
    pub(crate) fn for_ddl(&self) -> Self {
        Self {
            db: Arc::clone(&self.db),
            gate: Arc::clone(&self.gate),
            config: self.config,
            phase: Phase::Idle,
            work: Work::default(),
            delta_buffer: Vec::new(),
            key_images: KeyImageBuf::new(),
            probe: ProbeBuffers::default(),
            shard: self.shard,
            bulk: Brackets::default(),
        }
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
    }

    /// Id of the running transaction; 0 if it changed and locked nothing yet.
    pub fn txn(&self) -> TxnId {
        self.work.txn
    }

    /// True if the transaction has a snapshot, a lock or a change.
    pub fn in_transaction(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// True if the transaction wrote anything.
    pub fn has_changes(&self) -> bool {
        self.work.logged
    }

    /// True between prepare and the end.
    pub fn is_prepared(&self) -> bool {
        matches!(self.phase, Phase::Prepared | Phase::Ordered)
    }

    /// Begins a statement: marks where a statement rollback returns to. Costs nothing until the first change.
    pub fn begin_statement(&mut self) -> Result<()> {
        self.refuse_if_doomed()?;
        if self.work.statement.is_none() {
            if self.work.isolation == Isolation::ReadCommitted {
                self.work.snapshot = None;
            }
            self.work.statement = Some(self.mark());
        }
        Ok(())
    }

    /// Ends a statement; its work stays part of the transaction.
    pub fn end_statement(&mut self) {
        self.work.statement = None;
        if self.work.isolation == Isolation::ReadCommitted {
            self.work.snapshot = None;
        }
        if let Some(snapshot) = &self.work.snapshot {
            snapshot.leave();
        }
        self.gate.clear_kill();
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
        if self.work.savepoints.last().is_none_or(|newest| newest.lsn < lsn) {
            self.work.savepoints.push(mark);
        }
        Ok(lsn)
    }

    /// Undoes everything since the savepoint; later savepoints are gone, this one stays.
    pub fn rollback_to(&mut self, savepoint: Lsn) -> Result<()> {
        self.refuse_if_over()?;
        self.forget_bulk();
        self.suspect_kept();
        self.work.savepoints.retain(|mark| mark.lsn <= savepoint);
        let rows = match self.work.savepoints.last() {
            Some(mark) if mark.lsn == savepoint => mark.rows.clone(),
            _ => {
                return Err(Error::Invalid(format!(
                    "there is no savepoint at LSN {savepoint} in this transaction"
                )));
            }
        };
        self.roll_back_to_mark(&Mark { lsn: savepoint, rows })
    }

    /// The snapshot this session's consistent reads use now, taken if there is none.
    pub fn snapshot(&mut self) -> CommitTs {
        self.ensure_active();
        if let Some(snapshot) = &self.work.snapshot {
            return snapshot.ts();
        }
        let snapshot = self.db.txns.open_snapshot();
        let ts = snapshot.ts();
        self.gate.shown.snapshot.store(ts.raw(), Ordering::Relaxed);
        self.work.snapshot = Some(snapshot);
        ts
    }

    /// By how much this transaction's commit will change the number of rows in `table`.
    pub(crate) fn rows_added(&self, table: &Table) -> i64 {
        let mut tables = self.work.tables.iter();
        tables
            .find(|work| work.table.id == table.id)
            .map_or(0, |work| work.rows)
    }

    /// By how much the rows this transaction sees in `table` differ from those of its snapshot.
    pub fn row_delta(&self, table: &Table) -> i64 {
        self.work
            .tables
            .iter()
            .find(|work| work.table.id == table.id)
            .map_or(0, |work| work.rows + work.unseen)
    }

    /// Isolation of the running transaction.
    pub fn isolation(&self) -> Isolation {
        if self.phase == Phase::Idle {
            self.config.isolation
        } else {
            self.work.isolation
        }
    }

    /// True if a changed row is a write conflict for this session in `table` (the table option wins).
    pub(crate) fn conflicts_are_errors(&self, table: &Table) -> bool {
        if self.isolation() == Isolation::ReadCommitted {
            return false;
        }
        let option = table.def().conflict_mode;
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
            self.work.started_millis = self.db.clock.now_millis();
            self.gate
                .shown
                .started_millis
                .store(self.work.started_millis, Ordering::Relaxed);
            self.gate.shown.rows_written.store(0, Ordering::Relaxed);
            self.gate.shown.snapshot.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a transaction id if there is none (rule T21).
    pub(crate) fn ensure_txn(&mut self) -> Result<TxnId> {
        self.refuse_if_doomed()?;
        self.ensure_active();
        if self.work.txn.raw() == 0 {
            self.db.poison.check()?;
            self.work.txn = self.db.txns.begin();
            self.db.waits.attach(self.work.txn, &self.gate);
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

    /// Counts a written row.
    pub(crate) fn note_row_written(&mut self) {
        self.work.rows_written += 1;
        if self.work.rows_written.is_multiple_of(ROWS_BETWEEN_LOOKS) {
            self.db.pressure();
        }
        self.gate
            .shown
            .rows_written
            .store(self.work.rows_written, Ordering::Relaxed);
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
            .into_iter()
            .chain(self.work.statement.as_ref());
        newest.into_iter().any(|mark| mark.lsn > lsn)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
