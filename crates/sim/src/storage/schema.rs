//! Schema: statements that change definitions: create, drop, truncate, rename, columns that come and go without a copy, indexes.
//!
//! Rules: SM4 a definition is changed whole or not at all, whenever the power fails; a unique index is refused if two rows have one key,
//! and not otherwise.

use crate::storage::deeds::Deed;
use crate::storage::life::{Life, Step};
use crate::storage::model::{Fault, Faults, Rows, State, TableState};
use crate::storage::rows::Row;
use crate::storage::shape::{Added, BASE, Index, Parent, Shape};
use pbxt::{Action, Database, Session};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tables whose rows refer to those of the one before; they stay.
const FAMILY: [&str; 3] = ["kin", "kid", "grandkid"];
/// Tables that come and go.
const OTHERS: [&str; 3] = ["one", "two", "three"];
/// What becomes of children.
const ACTIONS: [Action; 4] = [
    Action::Cascade,
    Action::SetNull,
    Action::Restrict,
    Action::NoAction,
];
/// What becomes of a table as a whole.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    Dropped,
    Renamed(&'static str),
    Truncated,
}

/// Added columns and indexes of a table, at most.
const ADDED_MAX: usize = 5;
const INDEXES_MAX: usize = 6;

impl Life {
    /// A family and one other table.
    pub(super) fn create_first(&mut self) -> Step {
        while self.state.tables.len() <= FAMILY.len() {
            let before = self.state.tables.len();
            self.create_table(0)?;
            if self.state.tables.len() == before {
                return Err(self.wrong("SM4: a table could not be created"));
            }
        }
        Ok(())
    }

    /// Creates the first table that is not there.
    pub(super) fn create_table(&mut self, me: usize) -> Step {
        let is_free = |name: &&str| !self.state.tables.contains_key(*name);
        let Some(name) = FAMILY.into_iter().chain(OTHERS).find(is_free) else {
            return self.background();
        };
        let above = FAMILY.iter().position(|other| *other == name);
        let above = above.and_then(|at| at.checked_sub(1));
        let on_delete = ACTIONS[self.rng.below(ACTIONS.len() as u64) as usize];
        let shape = Shape::new(above.map(|at| Parent {
            table: FAMILY[at].into(),
            on_delete,
        }));
        self.note(format!("{me}: create {name}, its parent is {:?}", shape.parent));
        let db = Arc::clone(self.db());
        let before = self.state.clone();
        let created = TableState {
            shape: shape.clone(),
            rows: Rows::new(),
        };
        self.state.tables.insert(name.into(), Arc::new(created));
        self.request();
        let done = shape.definition(name).and_then(|def| db.create_table(def, 1));
        self.changed_schema(me, before, &Faults::new(), done.map(|_| ()))
    }

    /// A change of a definition was asked for, and entered as if it were made.
    fn changed_schema(&mut self, me: usize, before: State, faults: &Faults, done: pbxt::Result<()>) -> Step {
        let deed = Deed::Change {
            faults,
            may_wait: self.has_others(me),
        };
        if self.judge("a change of a definition", done, deed)?.is_some() {
            self.done.schema_changes += 1;
            self.acknowledge(pbxt::FlushAtCommit::Durable);
        } else {
            self.state = before;
            self.withdraw_request();
        }
        Ok(())
    }

    /// One statement by a session that holds nothing.
    pub(super) fn change_schema(&mut self, me: usize, name: &str) -> Step {
        if self.writers[me].user.session.holds_locks() {
            return self.commit(me);
        }
        match self.rng.below(10) {
            0 => self.create_table(me),
            1..4 if OTHERS.contains(&name) => self.replace_table(me, name),
            _ => self.alter(me, name),
        }
    }

    fn replace_table(&mut self, me: usize, name: &str) -> Step {
        let before = self.state.clone();
        let is_free = |name: &&str| !before.tables.contains_key(*name);
        let free = OTHERS.into_iter().find(is_free);
        let kind = match (self.rng.below(3), free) {
            (0, Some(to)) => Replaced::Renamed(to),
            (1, _) => Replaced::Dropped,
            _ => Replaced::Truncated,
        };
        self.note(format!("{me}: {kind:?}: {name}"));
        let table = self.state.tables.remove(name);
        match kind {
            Replaced::Dropped => {}
            Replaced::Renamed(to) => self
                .state
                .tables
                .extend(table.map(|table| (to.to_owned(), table))),
            Replaced::Truncated => {
                let emptied = table.map(|table| TableState {
                    shape: table.shape.clone(),
                    rows: Rows::new(),
                });
                let emptied = emptied.map(|table| (name.to_owned(), Arc::new(table)));
                self.state.tables.extend(emptied);
            }
        }
        self.request();
        let db = Arc::clone(self.db());
        let session = Some(&self.writers[me].user.session);
        let done = match kind {
            Replaced::Dropped => db.drop_table(session, name),
            Replaced::Renamed(to) => db.rename_table(session, name, to),
            Replaced::Truncated => db.truncate_table(session, name),
        };
        self.changed_schema(me, before, &Faults::new(), done)
    }

    fn alter(&mut self, me: usize, name: &str) -> Step {
        let Some(table) = self.state.tables.get(name).cloned() else {
            return Ok(());
        };
        let next = self.next_shape(&table.shape);
        if next == table.shape {
            return Ok(());
        }
        self.note(format!(
            "{me}: alter {name} to {:?} {:?}",
            next.added, next.indexes
        ));
        let mut faults = Faults::new();
        let is_new = |index: &&Index| !table.shape.indexes.contains(index);
        if next
            .indexes
            .iter()
            .filter(is_new)
            .any(|index| has_twins(index, &table.rows))
        {
            faults.insert(Fault::Duplicate);
        }
        let db = Arc::clone(self.db());
        let before = self.state.clone();
        let altered = |(id, row): (&u32, &Arc<Row>)| (*id, Arc::new(next.altered(&table.shape, row)));
        let altered = TableState {
            rows: table.rows.iter().map(altered).collect(),
            shape: next.clone(),
        };
        self.state.tables.insert(name.to_owned(), Arc::new(altered));
        self.request();
        let done = alter(&db, &self.writers[me].user.session, name, &table.shape, &next);
        self.changed_schema(me, before, &faults, done)
    }

    /// A column or an index more or less.
    fn next_shape(&mut self, shape: &Shape) -> Shape {
        let mut next = shape.clone();
        let last = shape.numbers() - 1;
        let is_indexed = shape.indexes.iter().any(|index| index.column == last);
        match self.rng.below(7) {
            0..2 if shape.added.len() < ADDED_MAX => {
                self.next_label += 1;
                next.added.push(Added {
                    label: self.next_label,
                    default: self.rng.chance(60).then(|| self.rng.below(6) as u32),
                });
            }
            2 if !shape.added.is_empty() && !is_indexed => {
                next.added.pop();
            }
            3 => {
                let last = next.indexes.last();
                if last.is_some_and(|index| index.name.starts_with("more")) {
                    next.indexes.pop();
                }
            }
            _ if shape.indexes.len() < INDEXES_MAX => {
                self.next_label += 1;
                let columns: Vec<usize> = [1].into_iter().chain(BASE..shape.numbers()).collect();
                next.indexes.push(Index {
                    name: format!("more {}", self.next_label),
                    column: columns[self.rng.below(columns.len() as u64) as usize],
                    unique: self.rng.chance(20),
                });
            }
            _ => {}
        }
        next
    }
}

/// True if two rows have one key.
fn has_twins(index: &Index, rows: &Rows) -> bool {
    let mut met = BTreeSet::new();
    let mut values = rows.values().filter_map(|row| row.numbers[index.column]);
    index.unique && values.any(|value| !met.insert(value))
}

/// Builds what is to be built, and makes the change.
fn alter(db: &Arc<Database>, session: &Session, name: &str, shape: &Shape, next: &Shape) -> pbxt::Result<()> {
    let change = next.since(shape);
    db.check_alter(next.definition(name)?, &change, true)?;
    let mut builds = Vec::new();
    if change.adds_indexes() {
        let mut build = db.open_index_build(Some(session), next.definition(name)?, &change)?;
        build.run(&mut |_, _| {})?;
        builds.push(build);
    }
    db.alter_tables_with(Some(session), vec![next.definition(name)?], &change, true, builds)
}
