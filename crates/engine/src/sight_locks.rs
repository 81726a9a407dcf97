//! Sight of locks: who holds what, and who waits for whom.
//!
//! Why it exists: a lock is where it is cheapest: in the head of a row, in a bitmap, in a table's counters, in an index
//! entry. Who looks for the holder of one must not have to know.
//! State: none of its own; plain copies.
//! Rules: T35: one line for each (transaction, table, mode), rows by name where they are few or waited for; 10,000
//! lines at most, the others are counted.
//! Latches and I/O: one latch at a time (shards of table locks, 64 leaves of row locks, 1,024 waits, the list of sessions),
//! none of them across another. Rows named by a transaction that wrote them are looked up one by one, as a reader would.

use crate::database::Database;
use crate::error::Blocker;
use crate::shown::{FEW_ROWS, TableShown};
use crate::sight::{Locked, Names, Now, WAITS_MAX};
use crate::table::Table;
use crate::unique::unfinished;
use crate::view::{Resolved, View};
use pbxt_base::{RowId, TableId, TxnId};
use pbxt_txn::{LockMode, Resource, SurveyLimits, Viewer, WaitSeen, WaitState};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Lines of a list at most.
const LINES_MAX: usize = 10_000;

/// How a lock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Held because the row was changed, or the key is that of such a row.
    Changed,
    /// Held because it was asked for.
    Granted,
    /// Waited for.
    Waiting,
}

/// One line of the list of locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Whose, and on which connection.
    pub owner: Blocker,
    /// On what.
    pub what: Locked,
    /// In which mode.
    pub mode: LockMode,
    /// How it stands.
    pub state: LockState,
    /// Locks in this line. Of changed rows that are not named, the changes: a row changed twice counts twice, one whose
    /// change was undone still does.
    pub count: u64,
}

/// One line of the list of waits: a waiter, and one of those it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWaitInfo {
    /// Who waits.
    pub waiter: Blocker,
    /// For what.
    pub what: Locked,
    /// In which mode.
    pub mode: LockMode,
    /// Since when, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// For how long.
    pub waited_millis: u64,
    /// For whom.
    pub blocker: Blocker,
    /// That one holds nothing that stands against it: it only stands right before it in line.
    pub in_line: bool,
    /// All it waits for, those without a line of their own included.
    pub blockers: u64,
}

/// A list that may be cut.
#[derive(Debug, Clone)]
pub struct Listing<T> {
    /// The lines.
    pub lines: Vec<T>,
    /// What found no room: locks or waits.
    pub left_out: u64,
}

/// A list of locks under way.
struct LockList<'a> {
    db: &'a Database,
    names: Names<'a>,
    threads: HashMap<TxnId, u64>,
    /// Rows and keys that have a line.
    named: BTreeSet<(TxnId, Resource)>,
    list: Listing<LockInfo>,
}

impl Database {
    /// Locks held and waited for (rule T35). Keys are shown where somebody waits for them.
    pub fn list_locks(&self) -> Listing<LockInfo> {
        let attached = self.waits.attached_txns();
        let mut list = LockList {
            db: self,
            names: Names::new(self),
            threads: attached
                .iter()
                .map(|(txn, view)| (*txn, view.gate.host_thread))
                .collect(),
            named: BTreeSet::new(),
            list: Listing {
                lines: Vec::new(),
                left_out: 0,
            },
        };
        list.tables();
        for (txn, view) in &attached {
            list.changes(*txn, &view.shown.tables_of(*txn));
        }
        for found in self.prepared.listed() {
            list.changes(found.txn, &found.tables);
        }
        list.explicit_rows();
        list.waits();
        list.list
    }

    /// Who waits for whom (rule T35): a line for each holder, and one for who stands right before in line.
    pub fn list_lock_waits(&self) -> Listing<LockWaitInfo> {
        let now = self.now();
        let mut names = Names::new(self);
        let mut list = Listing {
            lines: Vec::new(),
            left_out: 0,
        };
        let waits = self.waits.survey(WAITS_MAX);
        for seen in waits.iter().filter(|seen| seen.state == WaitState::Waiting) {
            if list.lines.len() >= LINES_MAX {
                list.left_out += 1;
                continue;
            }
            self.add_wait(seen, now, &mut names, &mut list.lines);
        }
        list
    }

    fn add_wait(&self, seen: &WaitSeen, now: Now, names: &mut Names<'_>, lines: &mut Vec<LockWaitInfo>) {
        let Some(view) = self.waits.session_of(seen.txn) else {
            // It has ended since.
            return;
        };
        let since = view.shown.figures().and_then(|figures| figures.waiting_since);
        let since = since.unwrap_or(now.millis);
        let what = names.of(seen.resource, || view.shown.key());
        let waiter = Blocker {
            txn: seen.txn,
            host_thread: view.gate.host_thread,
        };
        let blockers = seen.holders().map(|txn| (txn, false));
        for (txn, in_line) in blockers.chain(seen.ahead.map(|txn| (txn, true))) {
            lines.push(LockWaitInfo {
                waiter,
                what: what.clone(),
                mode: seen.mode,
                since_unix_seconds: now.unix_at(since),
                waited_millis: now.millis.saturating_sub(since),
                blocker: self.waits.blocker(txn),
                in_line,
                blockers: (seen.holder_count + seen.ahead_count) as u64,
            });
        }
    }

    /// The unfinished transaction whose version is the head of the row, and so holds it exclusively.
    pub(crate) fn writer_of(&self, table: &Table, row: RowId) -> Option<TxnId> {
        let guard = crossbeam_epoch::pin();
        let word = table.map.load_in(row, &guard);
        let mut view = View::new(Viewer::current(TxnId::default()));
        match view.resolve_unread(self, table, row, word, &guard) {
            Ok(Resolved::Wait(txn, _)) => Some(txn),
            _ => None,
        }
    }

    /// The mode in which a transaction holds a thing, and why, if it does.
    pub(crate) fn held(&self, txn: TxnId, resource: Resource) -> Option<(LockMode, LockState)> {
        match resource {
            Resource::Row(id, row) => {
                let table = self.catalog.by_id(id)?;
                if self.writer_of(&table, row) == Some(txn) {
                    return Some((LockMode::Exclusive, LockState::Changed));
                }
                let modes = [LockMode::Exclusive, LockMode::Shared];
                let held = |mode: &LockMode| self.row_locks.holds(txn, id, row, *mode);
                modes
                    .into_iter()
                    .find(held)
                    .map(|mode| (mode, LockState::Granted))
            }
            Resource::Key(..) => {
                let is_held = !unfinished(self, txn).is_empty();
                is_held.then_some((LockMode::Exclusive, LockState::Changed))
            }
            Resource::Table(id) => {
                let holders = self.table_locks.holders(id);
                let (_, modes) = holders.into_iter().find(|(holder, _)| *holder == txn)?;
                modes.modes().last().map(|mode| (mode, LockState::Granted))
            }
            Resource::Txn(_) => None,
        }
    }
}

impl LockList<'_> {
    fn add(&mut self, txn: TxnId, what: Locked, mode: LockMode, state: LockState, count: u64) {
        if self.list.lines.len() >= LINES_MAX {
            self.list.left_out += count;
            return;
        }
        let owner = match self.threads.get(&txn) {
            Some(thread) => Blocker {
                txn,
                host_thread: *thread,
            },
            // It began since, or nobody holds it.
            None => self.db.waits.blocker(txn),
        };
        self.list.lines.push(LockInfo {
            owner,
            what,
            mode,
            state,
            count,
        });
    }

    /// A row or key by name, once for each transaction.
    fn name(&mut self, txn: TxnId, resource: Resource, mode: LockMode, state: LockState, key: &[u8]) {
        if self.named.insert((txn, resource)) {
            let what = self.names.of(resource, || key.to_vec());
            self.add(txn, what, mode, state, 1);
        }
    }

    fn rows(&mut self, txn: TxnId, table: TableId, mode: LockMode, state: LockState, count: u64) {
        let what = self.names.rows_of(table);
        self.add(txn, what, mode, state, count);
    }

    fn tables(&mut self) {
        let (held, left_out) = self.db.table_locks.survey(LINES_MAX);
        self.list.left_out += left_out;
        for (table, txn, modes) in held {
            for mode in modes.modes() {
                let what = self.names.of(Resource::Table(table), Vec::new);
                self.add(txn, what, mode, LockState::Granted, 1);
            }
        }
    }

    /// Rows that a transaction has changed. Those that are named are looked up: a change may have been undone.
    fn changes(&mut self, txn: TxnId, tables: &[Arc<TableShown>]) {
        for shown in tables.iter().filter(|shown| shown.changed() > 0) {
            let (mode, state) = (LockMode::Exclusive, LockState::Changed);
            // A full list looks no rows up.
            let few = shown.few().filter(|_| self.list.lines.len() < LINES_MAX);
            let Some(few) = few else {
                self.rows(txn, shown.table, mode, state, shown.changed());
                continue;
            };
            let Some(table) = self.db.catalog.by_id(shown.table) else {
                continue;
            };
            let is_held = |row: &RowId| self.db.writer_of(&table, *row) == Some(txn);
            let held: Vec<RowId> = few.into_iter().filter(is_held).collect();
            if !held.is_empty() {
                self.rows(txn, shown.table, mode, state, held.len() as u64);
            }
            for row in held {
                self.name(txn, Resource::Row(shown.table, row), mode, state, &[]);
            }
        }
    }

    fn explicit_rows(&mut self) {
        let found = self.db.row_locks.survey(SurveyLimits {
            few: FEW_ROWS,
            groups: LINES_MAX,
        });
        self.list.left_out += found.left_out;
        for group in found.held {
            self.rows(
                group.txn,
                group.table,
                group.mode,
                LockState::Granted,
                group.count,
            );
            for row in group.rows {
                let what = self.names.of(Resource::Row(group.table, row), Vec::new);
                self.named.insert((group.txn, Resource::Row(group.table, row)));
                self.add(group.txn, what, group.mode, LockState::Granted, 1);
            }
        }
    }

    /// What is waited for, and those who hold it, whatever the number of their locks.
    fn waits(&mut self) {
        for seen in self.db.waits.survey(WAITS_MAX) {
            if seen.state == WaitState::Victim {
                continue;
            }
            let Some(view) = self.db.waits.session_of(seen.txn) else {
                continue;
            };
            let key = view.shown.key();
            let is_single = matches!(seen.resource, Resource::Row(..) | Resource::Key(..));
            for holder in seen.holders().filter(|_| is_single) {
                if let Some((mode, state)) = self.db.held(holder, seen.resource) {
                    self.name(holder, seen.resource, mode, state, &key);
                }
            }
            let what = self.names.of(seen.resource, || key.clone());
            self.add(seen.txn, what, seen.mode, LockState::Waiting, 1);
        }
    }
}
