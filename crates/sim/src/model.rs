//! Model: what the engine should answer, said in plain maps.
//!
//! Why it exists: the model knows no log, no versions and no indexes; a snapshot is a copy of everything. So where engine
//! and model agree, they agree for different reasons.
//! What it says: the rows a session sees (T4, T8), which operations fail and how (T13 waits, T20 conflicts, unique keys),
//! and `State`: what a restart finds if the log ends here (D6).
//! Of several reasons to fail any may be given: a prediction is a set.

use crate::table::PlayRow;
use pbxt::Error;
use pbxt_base::{Lsn, RowId, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// A row of a table generation.
pub type Spot = (TableId, RowId);
/// Rows by place.
pub type Rows = BTreeMap<Spot, PlayRow>;
/// Name of a prepared transaction.
pub type Xid = Vec<u8>;

/// Why an operation is expected to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A unique key is taken.
    Duplicate,
    /// The row or key changed since the snapshot.
    Conflict,
    /// Somebody holds the row, key or table; these sessions do not wait.
    Busy,
    /// The table is newer than the snapshot.
    Definition,
    /// No fault: it may as well succeed.
    Maybe,
}

impl Fault {
    /// The fault that an error of the engine means, if it is one that a prediction can name.
    pub fn of(error: &Error) -> Option<Self> {
        match error {
            Error::DuplicateKey { .. } => Some(Self::Duplicate),
            Error::WriteConflict { .. } => Some(Self::Conflict),
            Error::LockTimeout { .. } => Some(Self::Busy),
            Error::DefinitionChanged { .. } => Some(Self::Definition),
            _ => None,
        }
    }
}

/// Faults, any of which may be reported; none: the operation succeeds.
pub type Faults = BTreeSet<Fault>;

/// What a transaction did to one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The row now; none if deleted.
    pub now: Option<PlayRow>,
    /// Unique keys it has had on the way: nobody else gets them before the end.
    pub keys: BTreeSet<(usize, u32)>,
    /// Unique keys of the version that the transaction's snapshot sees, where a newer one was overtaken (rule T11): others
    /// may have to wait for them although they are free.
    shadow: BTreeSet<(usize, u32)>,
}

/// What a transaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Rows changed.
    pub rows: BTreeMap<Spot, Change>,
    /// Tables it holds against DDL.
    pub tables: BTreeSet<TableId>,
    /// Tables it may hold: the disk refused its first change of one, before or after its lock was taken.
    perhaps: BTreeSet<TableId>,
}

/// What a restart finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Tables by name.
    pub names: BTreeMap<String, TableId>,
    /// Committed rows.
    pub rows: Rows,
    /// Prepared transactions.
    pub prepared: BTreeMap<Xid, Pending>,
}

#[derive(Clone, Debug)]
struct Snapshot {
    seq: u64,
    rows: Rows,
}

/// How a session treats what others changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// REPEATABLE READ, a changed row is a conflict.
    RepeatableError,
    /// REPEATABLE READ, the newest version is changed.
    RepeatableWait,
    /// READ COMMITTED.
    Committed,
}

/// One session's transaction.
#[derive(Clone, Debug)]
pub struct ModelTxn {
    /// Settings.
    pub mode: Mode,
    snapshot: Option<Snapshot>,
    /// Its changes, until it is prepared.
    pub pending: Pending,
    locks: BTreeSet<Spot>,
    /// Savepoints with what they restore.
    pub savepoints: Vec<(Lsn, BTreeMap<Spot, Change>)>,
    /// Set once prepared.
    pub prepared: Option<Xid>,
}

impl ModelTxn {
    /// Nothing done yet.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            snapshot: None,
            pending: Pending::default(),
            locks: BTreeSet::new(),
            savepoints: Vec::new(),
            prepared: None,
        }
    }
}

/// The database and all its sessions.
#[derive(Clone, Debug)]
pub struct Model {
    /// What a restart would find.
    pub state: State,
    /// Sessions.
    pub txns: Vec<ModelTxn>,
    changed_at: BTreeMap<Spot, u64>,
    created_at: BTreeMap<TableId, u64>,
    seq: u64,
    prepared_locks: BTreeMap<Xid, BTreeSet<Spot>>,
}

impl Model {
    /// An empty database with so many sessions.
    pub fn new(sessions: usize) -> Self {
        Self::restarted(State::default(), sessions)
    }

    /// The database after a restart that found `state`.
    pub fn restarted(state: State, sessions: usize) -> Self {
        Self {
            state,
            txns: vec![ModelTxn::new(Mode::RepeatableError); sessions],
            changed_at: BTreeMap::new(),
            created_at: BTreeMap::new(),
            seq: 0,
            prepared_locks: BTreeMap::new(),
        }
    }

    /// Rows of a table that the session sees; takes its snapshot.
    pub fn visible(&mut self, me: usize, table: TableId) -> Result<Rows, Faults> {
        let mut rows = if self.txns[me].mode == Mode::Committed {
            of_table(&self.state.rows, table)
        } else {
            self.take_snapshot(me);
            let snapshot = self.txns[me].snapshot.as_ref().expect("T4: taken above");
            if self
                .created_at
                .get(&table)
                .is_some_and(|created| *created > snapshot.seq)
            {
                return Err(Faults::from([Fault::Definition]));
            }
            of_table(&snapshot.rows, table)
        };
        for (spot, change) in self.txns[me]
            .pending
            .rows
            .iter()
            .filter(|(spot, _)| spot.0 == table)
        {
            match &change.now {
                Some(row) => rows.insert(*spot, row.clone()),
                None => rows.remove(spot),
            };
        }
        Ok(rows)
    }

    fn take_snapshot(&mut self, me: usize) {
        if self.txns[me].mode != Mode::Committed && self.txns[me].snapshot.is_none() {
            self.txns[me].snapshot = Some(Snapshot {
                seq: self.seq,
                rows: self.state.rows.clone(),
            });
        }
    }

    /// All others that have not ended: their changes and explicit locks.
    fn others(&self, me: usize) -> impl Iterator<Item = &Pending> {
        let sessions = self
            .txns
            .iter()
            .enumerate()
            .filter(move |(number, _)| *number != me);
        sessions
            .map(|(_, txn)| &txn.pending)
            .chain(self.state.prepared.values())
    }

    fn is_changed_by_other(&self, me: usize, spot: Spot) -> bool {
        self.others(me).any(|pending| pending.rows.contains_key(&spot))
    }

    fn is_locked_by_other(&self, me: usize, spot: Spot) -> bool {
        let sessions = self.txns.iter().enumerate().filter(|(number, _)| *number != me);
        sessions
            .map(|(_, txn)| &txn.locks)
            .chain(self.prepared_locks.values())
            .any(|locks| locks.contains(&spot))
    }

    /// Faults of giving `row` the unique keys that `old` did not have.
    fn key_faults(&self, me: usize, spot: Spot, old: Option<&PlayRow>, row: &PlayRow) -> Faults {
        let before: BTreeSet<_> = old.into_iter().flat_map(PlayRow::unique_keys).collect();
        let mut faults = Faults::new();
        for key in row.unique_keys().filter(|key| !before.contains(key)) {
            let more = self.one_key_faults(me, spot, key);
            faults = either(faults, more);
        }
        faults
    }

    fn one_key_faults(&self, me: usize, spot: Spot, key: (usize, u32)) -> Faults {
        let has = |row: Option<&PlayRow>| row.is_some_and(|row| row.unique_keys().any(|other| other == key));
        let mut faults = Faults::new();
        let mut is_held = BTreeSet::new();
        for pending in self.others(me) {
            for (other, change) in pending.rows.iter().filter(|(other, _)| other.0 == spot.0) {
                is_held.insert(*other);
                if change.keys.contains(&key) || has(self.state.rows.get(other)) {
                    faults.insert(Fault::Busy);
                } else if change.shadow.contains(&key) {
                    faults.extend([Fault::Busy, Fault::Maybe]);
                }
            }
        }
        let mine = &self.txns[me];
        for (other, change) in mine
            .pending
            .rows
            .iter()
            .filter(|(other, _)| other.0 == spot.0 && **other != spot)
        {
            if has(change.now.as_ref()) {
                faults.insert(Fault::Duplicate);
            }
            is_held.insert(*other);
        }
        let settled = |other: &Spot| other.0 == spot.0 && *other != spot && !is_held.contains(other);
        if self
            .state
            .rows
            .iter()
            .any(|(other, row)| settled(other) && has(Some(row)))
        {
            faults.insert(Fault::Duplicate);
        }
        if let Some(snapshot) = mine.snapshot.as_ref().filter(|_| mine.mode != Mode::Committed) {
            let taken_then = |(other, row): (&Spot, &PlayRow)| {
                let is_foreign =
                    other.0 == spot.0 && *other != spot && !mine.pending.rows.contains_key(other);
                is_foreign && has(Some(row)) && !has(self.state.rows.get(other))
            };
            if snapshot.rows.iter().any(taken_then) {
                faults.insert(Fault::Conflict);
            }
        }
        faults
    }

    /// What an insert should answer. The row id is known afterwards only; nobody else has it.
    pub fn predict_insert(&mut self, me: usize, table: TableId, row: &PlayRow) -> Faults {
        self.txns[me].pending.tables.insert(table);
        self.key_faults(me, (table, RowId::new(0)), None, row)
    }

    /// The row that a read for change should give: none if there is none.
    pub fn predict_fetch(&mut self, me: usize, spot: Spot) -> Result<Option<PlayRow>, Faults> {
        let busy = Err(Faults::from([Fault::Busy]));
        if self.txns[me].mode == Mode::RepeatableError {
            let seen = self.visible(me, spot.0)?.get(&spot).cloned();
            if self.txns[me].pending.rows.contains_key(&spot) {
                return Ok(seen);
            }
            if self.is_changed_by_other(me, spot) {
                return busy;
            }
            let seq = self.txns[me].snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
            let changed = self.changed_at.get(&spot).is_some_and(|at| *at > seq);
            return if changed && (seen.is_some() || self.state.rows.contains_key(&spot)) {
                if seen.is_none() {
                    // Such a row can be read by its id; only the change finds out, with the table's lock held.
                    self.txns[me].pending.tables.insert(spot.0);
                }
                Err(Faults::from([Fault::Conflict]))
            } else {
                Ok(seen)
            };
        }
        if let Some(change) = self.txns[me].pending.rows.get(&spot) {
            return Ok(change.now.clone());
        }
        if self.is_changed_by_other(me, spot) {
            return busy;
        }
        let newest = self.state.rows.get(&spot).cloned();
        if newest.is_some() {
            if self.is_locked_by_other(me, spot) {
                return busy;
            }
            self.txns[me].locks.insert(spot);
        }
        Ok(newest)
    }

    /// What a change of a fetched row should answer; `new` is none for a delete.
    pub fn predict_change(&mut self, me: usize, spot: Spot, old: &PlayRow, new: Option<&PlayRow>) -> Faults {
        self.txns[me].pending.tables.insert(spot.0);
        let is_same = new.is_some_and(|new| new == old && !new.has_blob());
        let mut faults = new.map_or_else(Faults::new, |new| self.key_faults(me, spot, Some(old), new));
        if !is_same && self.is_locked_by_other(me, spot) {
            faults = either(faults, Faults::from([Fault::Busy]));
        }
        faults
    }

    /// Notes a change that was made.
    pub fn note_change(&mut self, me: usize, spot: Spot, old: Option<&PlayRow>, new: Option<&PlayRow>) {
        if old.is_some() && new == old && !old.is_some_and(PlayRow::has_blob) {
            return;
        }
        let txn = &mut self.txns[me];
        let change = txn.pending.rows.entry(spot).or_default();
        if let Some(snapshot) = txn.snapshot.as_ref().filter(|_| txn.mode == Mode::RepeatableWait) {
            let seen = snapshot.rows.get(&spot);
            change
                .shadow
                .extend(seen.into_iter().flat_map(PlayRow::unique_keys));
        }
        change.keys.extend(new.into_iter().flat_map(PlayRow::unique_keys));
        change.now = new.cloned();
    }

    /// Rolls back to the savepoint at this LSN.
    pub fn roll_back_to(&mut self, me: usize, position: usize) {
        let txn = &mut self.txns[me];
        txn.savepoints.truncate(position + 1);
        if let Some((_, rows)) = txn.savepoints.last() {
            txn.pending.rows.clone_from(rows);
        }
    }

    /// The transaction's changes go to the prepared ones.
    pub fn prepare(&mut self, me: usize, xid: &[u8]) {
        let txn = &mut self.txns[me];
        let pending = std::mem::take(&mut txn.pending);
        txn.prepared = Some(xid.to_vec());
        self.state.prepared.insert(xid.to_vec(), pending);
    }

    /// The session lets go of its prepared transaction; explicit locks stay.
    pub fn detach(&mut self, me: usize, mode: Mode) {
        let txn = std::mem::replace(&mut self.txns[me], ModelTxn::new(mode));
        if let Some(xid) = txn.prepared {
            self.prepared_locks.insert(xid, txn.locks);
        }
    }

    /// Commits the session's transaction, prepared or not.
    pub fn commit(&mut self, me: usize, mode: Mode) {
        let txn = std::mem::replace(&mut self.txns[me], ModelTxn::new(mode));
        match txn.prepared {
            Some(xid) => self.end_prepared(&xid, true),
            None => self.apply(txn.pending),
        }
    }

    /// Rolls the session's transaction back, prepared or not.
    pub fn rollback(&mut self, me: usize, mode: Mode) {
        let txn = std::mem::replace(&mut self.txns[me], ModelTxn::new(mode));
        if let Some(xid) = txn.prepared {
            self.end_prepared(&xid, false);
        }
    }

    /// Ends a prepared transaction.
    pub fn end_prepared(&mut self, xid: &[u8], commits: bool) {
        self.prepared_locks.remove(xid);
        if let Some(pending) = self.state.prepared.remove(xid).filter(|_| commits) {
            self.apply(pending);
        }
    }

    fn apply(&mut self, pending: Pending) {
        self.seq += 1;
        for (spot, change) in pending.rows {
            self.changed_at.insert(spot, self.seq);
            match change.now {
                Some(row) => self.state.rows.insert(spot, row),
                None => self.state.rows.remove(&spot),
            };
        }
    }

    /// What DDL on this table should answer.
    pub fn ddl_faults(&self, table: TableId) -> Faults {
        let mut faults = Faults::new();
        for pending in self.others(usize::MAX) {
            if pending.tables.contains(&table) {
                return Faults::from([Fault::Busy]);
            }
            if pending.perhaps.contains(&table) {
                faults.extend([Fault::Busy, Fault::Maybe]);
            }
        }
        faults
    }

    /// True if a session may keep DDL from a table.
    pub fn may_hold(&self, me: usize) -> bool {
        let pending = &self.txns[me].pending;
        !pending.tables.is_empty() || !pending.perhaps.is_empty()
    }

    /// Notes that the disk refused a change: `held` are the tables that the session held before it.
    pub fn note_refusal(&mut self, me: usize, held: BTreeSet<TableId>) {
        let pending = &mut self.txns[me].pending;
        let unsure = std::mem::replace(&mut pending.tables, held);
        let unsure = unsure.difference(&pending.tables);
        pending.perhaps.extend(unsure.copied());
    }

    /// A table appears under a name.
    pub fn create(&mut self, name: &str, table: TableId) {
        self.seq += 1;
        self.created_at.insert(table, self.seq);
        self.state.names.insert(name.to_owned(), table);
    }

    /// A table goes.
    pub fn drop_table(&mut self, name: &str) {
        self.seq += 1;
        if let Some(table) = self.state.names.remove(name) {
            self.state.rows.retain(|spot, _| spot.0 != table);
        }
    }

    /// A table gets another name.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(table) = self.state.names.remove(from) {
            self.state.names.insert(to.to_owned(), table);
        }
    }
}

/// What two steps may answer together: only if neither is sure to fail the whole may succeed.
pub fn either(first: Faults, second: Faults) -> Faults {
    let is_sure = |faults: &Faults| !faults.is_empty() && !faults.contains(&Fault::Maybe);
    let is_sure = is_sure(&first) || is_sure(&second);
    let mut both = first;
    both.extend(second);
    if is_sure {
        both.remove(&Fault::Maybe);
    }
    both
}

fn of_table(rows: &Rows, table: TableId) -> Rows {
    let range = (table, RowId::new(0))..=(table, RowId::new(u64::MAX >> 16));
    rows.range(range)
        .map(|(spot, row)| (*spot, row.clone()))
        .collect()
}
