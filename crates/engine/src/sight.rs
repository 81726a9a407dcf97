//! Sight: the running transactions, and names for what they wait for.
//!
//! Why it exists: who asks what is going on asks when something is stuck; nobody is stopped or waited for to answer.
//! State: none of its own; plain copies of what sessions, locks and the wait graph show.
//! Rules: T35 (steps, bounded memory), T37 (figures without order), T38 (statements by way of the host).
//! Latches and I/O: one at a time, each for a copy: the list of sessions, the wait graph, the ages of snapshots, the host
//! latch of each session. Of the memory a list takes, a line for each session and each wait is all that grows.

use crate::database::Database;
use crate::definition::ConflictMode;
use crate::error::Blocker;
use crate::prepared::Detached;
use crate::session::Isolation;
use crate::shown::{Figures, TxnState};
use crate::table::{Index, Table};
use crate::who::SessionView;
use pbxt_base::{CommitTs, IndexId, Lsn, TableId, TxnId};
use pbxt_txn::{LockMode, Resource, WaitSeen, WaitState};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Bytes of a statement that lists show.
pub(crate) const STATEMENT_BYTES_MAX: usize = 1024;
/// Waits that a list looks at.
pub(crate) const WAITS_MAX: usize = 10_000;

/// What a lock is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// A whole table.
    Table,
    /// One row.
    Row,
    /// All rows that one transaction has in one mode in one table: their number is what is known.
    Rows,
    /// A key of a unique index.
    Key,
    /// The end of another transaction; nobody holds it.
    TxnEnd,
}

/// A thing that is locked or waited for, with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// What it is.
    pub kind: LockKind,
    /// Name of the table as the host gave it; empty if it is gone.
    pub table: Arc<str>,
    /// Name of the index, for keys.
    pub index: Arc<str>,
    /// Row id, for rows; 0 else.
    pub row: u64,
    /// First bytes of the key's image, for keys; empty if they are not known.
    pub key: Vec<u8>,
    /// Hash of the key's image, for keys; 0 else.
    pub key_hash: u64,
}

/// A wait of a transaction.
#[derive(Debug, Clone)]
pub struct TxnWait {
    /// For what.
    pub what: Locked,
    /// In which mode.
    pub mode: LockMode,
    /// Since when, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// For how long.
    pub waited_millis: u64,
    /// One of those it waits for.
    pub blocker: Blocker,
}

/// One running transaction.
#[derive(Debug, Clone)]
pub struct TxnInfo {
    /// 0 if it has changed and locked nothing.
    pub txn: TxnId,
    /// Where it is in its life.
    pub state: TxnState,
    /// The host's number of its connection; 0 if none holds it.
    pub host_thread: u64,
    /// Seconds since 1970; 0 if that was before the database was opened.
    pub started_unix_seconds: u64,
    /// Seconds.
    pub age_seconds: u64,
    /// Its isolation level; of one that was prepared before the database was opened nobody knows it.
    pub isolation: Isolation,
    /// Of the session; a table option wins over it.
    pub conflict_mode: ConflictMode,
    /// What its connection is running.
    pub statement: Option<String>,
    /// Changes, those undone by savepoints and statements included.
    pub rows_changed: u64,
    /// Explicit locks, counted once per mode.
    pub rows_locked: u64,
    /// 0 if it has no snapshot.
    pub snapshot: CommitTs,
    /// Seconds since the first commit that its snapshot does not see.
    pub snapshot_age_seconds: u64,
    /// Bytes logged since its first change, lock or unseen commit.
    pub log_bytes_held: u64,
    /// Set and not undone.
    pub savepoints: u64,
    /// What it waits for.
    pub wait: Option<TxnWait>,
}

/// Names of a table and of an index of it.
type TableAndIndex = (Arc<str>, Arc<str>);

/// Names for ids, looked up once a list.
pub(crate) struct Names<'a> {
    db: &'a Database,
    tables: HashMap<TableId, Arc<str>>,
    indexes: Option<HashMap<IndexId, TableAndIndex>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(db: &'a Database) -> Self {
        Self {
            db,
            tables: HashMap::new(),
            indexes: None,
        }
    }

    fn table(&mut self, id: TableId) -> Arc<str> {
        let name = || {
            self.db
                .catalog
                .by_id(id)
                .map_or_else(|| Arc::from(""), |table| table.name())
        };
        Arc::clone(self.tables.entry(id).or_insert_with(name))
    }

    fn index(&mut self, id: IndexId) -> TableAndIndex {
        let all = || {
            let tables = self.db.catalog.tables();
            let named = |index: &Index, table: &Arc<str>| {
                (
                    index.def.id,
                    (Arc::clone(table), Arc::from(index.def.name.as_str())),
                )
            };
            let of_table = |table: &Arc<Table>| {
                let name = table.name();
                table
                    .indexes
                    .iter()
                    .map(|index| named(index, &name))
                    .collect::<Vec<_>>()
            };
            tables.iter().flat_map(of_table).collect()
        };
        let found = self.indexes.get_or_insert_with(all).get(&id);
        found.cloned().unwrap_or_else(|| (Arc::from(""), Arc::from("")))
    }

    /// The thing behind a resource; `key` gives the bytes of a key.
    pub(crate) fn of(&mut self, resource: Resource, key: impl FnOnce() -> Vec<u8>) -> Locked {
        let thing = |kind, table| Locked {
            kind,
            table,
            index: Arc::from(""),
            row: 0,
            key: Vec::new(),
            key_hash: 0,
        };
        match resource {
            Resource::Table(table) => thing(LockKind::Table, self.table(table)),
            Resource::Row(table, row) => Locked {
                row: row.raw(),
                ..thing(LockKind::Row, self.table(table))
            },
            Resource::Key(index, key_hash) => {
                let (table, index) = self.index(index);
                Locked {
                    index,
                    key: key(),
                    key_hash,
                    ..thing(LockKind::Key, table)
                }
            }
            Resource::Txn(_) => thing(LockKind::TxnEnd, Arc::from("")),
        }
    }

    /// All rows of a table that one transaction has.
    pub(crate) fn rows_of(&mut self, table: TableId) -> Locked {
        let what = self.of(Resource::Table(table), Vec::new);
        Locked {
            kind: LockKind::Rows,
            ..what
        }
    }
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.strip_prefix("./").unwrap_or(&self.table);
        match self.kind {
            LockKind::Table => write!(f, "table {table}"),
            LockKind::Row => write!(f, "row {} of table {table}", self.row),
            LockKind::Rows => write!(f, "rows of table {table}"),
            LockKind::Key if self.key.is_empty() => {
                write!(
                    f,
                    "the key with hash {:016x} of index {} of table {table}",
                    self.key_hash, self.index
                )
            }
            LockKind::Key => {
                f.write_str("key 0x")?;
                self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                write!(f, " of index {} of table {table}", self.index)
            }
            LockKind::TxnEnd => f.write_str("the end of a transaction"),
        }
    }
}

/// One moment, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) millis: u64,
    unix_seconds: u64,
}

impl Now {
    /// Seconds since 1970 at an earlier moment of the database's clock.
    pub(crate) fn unix_at(&self, millis: u64) -> u64 {
        self.unix_seconds
            .saturating_sub(self.millis.saturating_sub(millis) / 1000)
    }
}

impl Database {
    pub(crate) fn now(&self) -> Now {
        Now {
            millis: self.clock.now_millis(),
            unix_seconds: self.clock.unix_seconds(),
        }
    }

    /// Running transactions, those that only read and prepared ones without a connection included, by id.
    pub fn list_txns(&self) -> Vec<TxnInfo> {
        let now = self.now();
        let mut names = Names::new(self);
        let waits = self.waits.survey(WAITS_MAX);
        // Who has got the turn, and will run as soon as a processor is free, waits for nobody.
        let waits = waits.into_iter().filter(|seen| seen.state == WaitState::Waiting);
        let waits: HashMap<TxnId, WaitSeen> = waits.map(|seen| (seen.txn, seen)).collect();
        let mut list = Vec::new();
        for view in self.waits.all_sessions() {
            if let Some(figures) = view.shown.figures() {
                let wait = waits.get(&figures.txn).filter(|_| figures.txn.raw() != 0);
                list.push(self.txn_of(&view, &figures, wait, &mut names, now));
            }
        }
        list.extend(
            self.prepared
                .listed()
                .iter()
                .map(|found| self.detached(found, now)),
        );
        list.sort_by_key(|info| info.txn);
        list
    }

    fn txn_of(
        &self,
        view: &SessionView,
        figures: &Figures,
        wait: Option<&WaitSeen>,
        names: &mut Names<'_>,
        now: Now,
    ) -> TxnInfo {
        let wait = wait.zip(figures.waiting_since).map(|(seen, since)| TxnWait {
            what: names.of(seen.resource, || view.shown.key()),
            mode: seen.mode,
            since_unix_seconds: now.unix_at(since),
            waited_millis: now.millis.saturating_sub(since),
            blocker: self
                .waits
                .blocker(seen.holders().next().or(seen.ahead).unwrap_or_default()),
        });
        let state = match (figures.is_prepared, &wait) {
            (true, _) => TxnState::Prepared,
            (false, Some(_)) => TxnState::Waiting,
            (false, None) => TxnState::Active,
        };
        let snapshot = self.snapshot_at(figures.snapshot, now.millis);
        TxnInfo {
            txn: figures.txn,
            state,
            host_thread: view.gate.host_thread,
            started_unix_seconds: now.unix_at(figures.started_millis),
            age_seconds: now.millis.saturating_sub(figures.started_millis) / 1000,
            isolation: figures.isolation,
            conflict_mode: figures.conflict_mode,
            statement: self.waits.statement_of(&view.gate, STATEMENT_BYTES_MAX),
            rows_changed: figures.rows_changed,
            rows_locked: figures.rows_locked,
            snapshot: figures.snapshot,
            snapshot_age_seconds: snapshot.age_seconds,
            log_bytes_held: self
                .log_since(figures.txn, figures.first_lsn)
                .max(snapshot.log_bytes),
            savepoints: figures.savepoints,
            wait,
        }
    }

    fn detached(&self, found: &Detached, now: Now) -> TxnInfo {
        let is_of_this_open = found.first_lsn.raw() != 0;
        let started = if is_of_this_open {
            now.unix_at(found.started_millis)
        } else {
            0
        };
        TxnInfo {
            txn: found.txn,
            state: TxnState::Detached,
            host_thread: 0,
            started_unix_seconds: started,
            age_seconds: now.millis.saturating_sub(found.started_millis) / 1000,
            isolation: found.isolation,
            conflict_mode: ConflictMode::Default,
            statement: None,
            rows_changed: found.rows_changed,
            rows_locked: found.rows_locked,
            snapshot: CommitTs::new(0),
            snapshot_age_seconds: 0,
            log_bytes_held: self.log_since(found.txn, found.first_lsn),
            savepoints: 0,
            wait: None,
        }
    }

    /// Bytes logged since a transaction got its id, as far as they are still there.
    fn log_since(&self, txn: TxnId, first: Lsn) -> u64 {
        if txn.raw() == 0 {
            return 0;
        }
        let first = first.max(self.log.start());
        self.log.tail().raw().saturating_sub(first.raw())
    }

    /// How often the latches that all sessions share were found taken: name and times.
    pub fn contended_latches(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.waits.contended().to_vec();
        all.extend([
            ("explicit row locks", self.row_locks.contended()),
            ("table locks", self.table_locks.contended()),
            ("transaction table", self.txns.contended()),
        ]);
        all
    }
}
