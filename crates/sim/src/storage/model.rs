//! Model of a storage life: tables as maps from id to row, transactions as lists of what they changed.
//!
//! Why it exists: it knows no log, no versions, no files and no indexes, so where it and the engine agree they do so for different reasons.
//! What it says: what each session sees (READ COMMITTED: the newest committed rows and its own), which statements must fail,
//! which must not, and `State`: what is found after a restart if the log ends here.
//! What it leaves open: a statement may always be told that another transaction is in its way, if there is one.

use crate::storage::rows::Row;
use crate::storage::shape::{PARENT, Shape};
use pbxt::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows by id.
pub(super) type Rows = BTreeMap<u32, Arc<Row>>;
/// Name of a prepared transaction.
pub(super) type Xid = Vec<u8>;
/// What a transaction made of rows: table and id, and what is there now.
pub(super) type Changes = BTreeMap<(String, u32), Option<Arc<Row>>>;

/// Why a statement has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A unique key is taken.
    Duplicate,
    /// There is no such parent.
    Missing,
    /// There are children.
    Referenced,
}

impl Fault {
    /// The fault that an error of the engine means.
    pub(super) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::DuplicateKey { .. } => Some(Self::Duplicate),
            Error::NoReferencedRow { .. } => Some(Self::Missing),
            Error::RowIsReferenced { .. } => Some(Self::Referenced),
            _ => None,
        }
    }
}

/// Faults, any of which may be told; none: the statement succeeds.
pub(super) type Faults = BTreeSet<Fault>;

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableState {
    pub shape: Shape,
    pub rows: Rows,
}

/// What a restart finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub tables: BTreeMap<String, Arc<TableState>>,
    pub prepared: BTreeMap<Xid, Changes>,
}

impl State {
    /// Tables and names of prepared transactions are the same: what these are going to change, no file says before they end.
    pub(super) fn is_like(&self, found: &Self) -> bool {
        self.prepared.keys().eq(found.prepared.keys()) && self.tables == found.tables
    }

    /// The transaction's changes are there for all.
    pub(super) fn apply(&mut self, changes: Changes) {
        for ((name, id), row) in changes {
            if let Some(table) = self.tables.get_mut(&name) {
                let rows = &mut Arc::make_mut(table).rows;
                match row {
                    Some(row) => rows.insert(id, row),
                    None => rows.remove(&id),
                };
            }
        }
    }

    /// A row without its parent.
    pub(super) fn orphan(&self) -> Option<String> {
        for (name, table) in &self.tables {
            let parent = table
                .shape
                .parent
                .as_ref()
                .and_then(|parent| self.tables.get(&parent.table));
            let Some(parent) = parent else { continue };
            let is_orphan =
                |row: &&Arc<Row>| row.numbers[PARENT].is_some_and(|id| !parent.rows.contains_key(&id));
            if let Some(row) = table.rows.values().find(is_orphan) {
                return Some(format!("row {row:?} of {name} has no parent"));
            }
        }
        None
    }

    /// First difference, in few words.
    pub(super) fn differs_from(&self, found: &Self) -> String {
        let names = |state: &Self| state.tables.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(found) {
            return format!("tables {:?}, expected {:?}", names(found), names(self));
        }
        for (name, table) in &self.tables {
            let other = &found.tables[name];
            if table.shape != other.shape {
                return format!("table {name} is {:?}, expected {:?}", other.shape, table.shape);
            }
            if let Some(text) = difference(&table.rows, &other.rows) {
                return format!("table {name}: {text}");
            }
        }
        let xids = |state: &Self| state.prepared.keys().map(|xid| text(xid)).collect::<Vec<_>>();
        format!("prepared {:?}, expected {:?}", xids(found), xids(self))
    }
}

/// An XA id as text.
pub(super) fn text(xid: &[u8]) -> String {
    String::from_utf8_lossy(xid).into_owned()
}

/// First row that differs.
pub(super) fn difference(expected: &Rows, found: &Rows) -> Option<String> {
    let ids: BTreeSet<&u32> = expected.keys().chain(found.keys()).collect();
    let differs = |id: &&&u32| expected.get(**id) != found.get(**id);
    let all: Vec<_> = ids.iter().filter(differs).collect();
    let first = all.first()?;
    Some(format!(
        "row {first} is {:?}, expected {:?}; {} rows differ of {}",
        found.get(**first),
        expected.get(**first),
        all.len(),
        expected.len()
    ))
}

/// What one session sees.
pub(super) struct View<'a> {
    pub state: &'a State,
    pub own: &'a Changes,
}

impl View<'_> {
    pub(super) fn row(&self, table: &str, id: u32) -> Option<Arc<Row>> {
        match self.own.get(&(table.to_owned(), id)) {
            Some(row) => row.clone(),
            None => self.state.tables.get(table)?.rows.get(&id).cloned(),
        }
    }

    pub(super) fn rows(&self, table: &str) -> Rows {
        let mut rows = self
            .state
            .tables
            .get(table)
            .map_or_else(Rows::new, |found| found.rows.clone());
        for ((name, id), row) in self
            .own
            .range((table.to_owned(), 0)..=(table.to_owned(), u32::MAX))
        {
            debug_assert_eq!(name, table);
            match row {
                Some(row) => rows.insert(*id, Arc::clone(row)),
                None => rows.remove(id),
            };
        }
        rows
    }

    fn shape(&self, table: &str) -> Option<&Shape> {
        self.state.tables.get(table).map(|table| &table.shape)
    }

    /// True if a row but `but` has this value.
    fn has_value(&self, table: &str, column: usize, value: u32, but: Option<u32>) -> bool {
        let is_it = |id: u32, row: &Row| Some(id) != but && row.numbers[column] == Some(value);
        let own = self
            .own
            .range((table.to_owned(), 0)..=(table.to_owned(), u32::MAX));
        let mut own = own.filter_map(|((_, id), row)| Some((*id, row.as_ref()?)));
        if own.any(|(id, row)| is_it(id, row)) {
            return true;
        }
        let is_seen = |id: &u32| !self.own.contains_key(&(table.to_owned(), *id));
        let mut committed = self
            .state
            .tables
            .get(table)
            .into_iter()
            .flat_map(|table| &table.rows);
        committed.any(|(id, row)| is_it(*id, row) && is_seen(id))
    }

    /// Faults of giving a row these values; `old` is the one it replaces.
    fn faults_of(&self, table: &str, old: Option<&Row>, new: &Row) -> Faults {
        let mut faults = Faults::new();
        let Some(shape) = self.shape(table) else {
            return faults;
        };
        for index in shape.indexes.iter().filter(|index| index.unique) {
            let value = new.numbers[index.column];
            let is_new = old.is_none_or(|old| old.numbers[index.column] != value);
            let but = old.map(Row::id);
            if value.is_some_and(|value| is_new && self.has_value(table, index.column, value, but)) {
                faults.insert(Fault::Duplicate);
            }
        }
        if let (Some(parent), Some(value)) = (&shape.parent, new.numbers[PARENT]) {
            let is_new = old.is_none_or(|old| old.numbers[PARENT] != Some(value));
            if is_new && self.row(&parent.table, value).is_none() {
                faults.insert(Fault::Missing);
            }
        }
        faults
    }

    /// Tables that refer to this one, and what becomes of their rows.
    fn children(&self, table: &str) -> Vec<(String, pbxt::Action)> {
        let tables = self.state.tables.iter();
        let refers = tables.filter_map(|(name, child)| {
            let parent = child.shape.parent.as_ref()?;
            (parent.table == table).then(|| (name.clone(), parent.on_delete))
        });
        refers.collect()
    }

    /// Adds a row to `own`.
    pub(super) fn insert(&self, table: &str, row: &Row) -> Result<Changes, Faults> {
        let faults = self.faults_of(table, None, row);
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut own = self.own.clone();
        own.insert((table.to_owned(), row.id()), Some(Arc::new(row.clone())));
        Ok(own)
    }

    /// Puts a row in the place of another one. The same once more is no change: others may have made one by the time this one ends.
    pub(super) fn update(&self, table: &str, old: &Row, new: &Row) -> Result<Changes, Faults> {
        if old == new {
            return Ok(self.own.clone());
        }
        let faults = self.faults_of(table, Some(old), new);
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut own = self.own.clone();
        own.insert((table.to_owned(), old.id()), None);
        own.insert((table.to_owned(), new.id()), Some(Arc::new(new.clone())));
        Ok(own)
    }

    /// Takes a row away, with what its children's constraints do.
    pub(super) fn delete(&self, table: &str, id: u32) -> Result<Changes, Faults> {
        let mut own = self.own.clone();
        delete_from(self.state, &mut own, table, id)?;
        Ok(own)
    }
}

fn delete_from(state: &State, own: &mut Changes, table: &str, id: u32) -> Result<(), Faults> {
    own.insert((table.to_owned(), id), None);
    let children = View { state, own }.children(table);
    for (child, action) in children {
        let rows = View { state, own }.rows(&child);
        for row in rows.values().filter(|row| row.numbers[PARENT] == Some(id)) {
            match action {
                pbxt::Action::Cascade => delete_from(state, own, &child, row.id())?,
                pbxt::Action::SetNull => {
                    let mut changed = Row::clone(row);
                    changed.numbers[PARENT] = None;
                    own.insert((child.clone(), row.id()), Some(Arc::new(changed)));
                }
                _ => return Err(Faults::from([Fault::Referenced])),
            }
        }
    }
    Ok(())
}
