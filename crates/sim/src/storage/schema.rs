//! Schema: statements that change definitions: create, drop, truncate, rename, columns that come and go without a copy, indexes.
//!
//! Rules: SM4 a definition is changed whole or not at all, whenever the power fails; a unique index is refused if two rows have one key,
//! and not otherwise.

use crate::storage::deeds::Deed;
use crate::storage::life::{Building, Life, Step};
use crate::storage::model::{Fault, Faults, Rows, State, TableState};
use crate::storage::rows::Row;
use crate::storage::shape::{Added, BASE, Index, Parent, Shape};
use pbxt::{Action, Alteration, Database, IndexBuild, Session};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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
            1..4 if OTHERS.contains(&name) && self.rng.chance(30) => self.wind_up(me, name),
            1..4 if OTHERS.contains(&name) => self.replace_table(me, name),
            _ => self.alter(me, name),
        }
    }

    /// A table is emptied, altered and replaced: the tail has less than nothing for it, and changes what it then drops.
    fn wind_up(&mut self, me: usize, name: &str) -> Step {
        let ids: Vec<u32> = self.view(me).rows(name).into_keys().collect();
        self.delete_ids(me, name, &ids)?;
        self.commit(me)?;
        // Where the medium had trouble the rows may still be the writer's own.
        if self.writers[me].user.session.holds_locks() {
            return Ok(());
        }
        self.alter(me, name)?;
        if self.state.tables.contains_key(name) {
            self.replace_table(me, name)?;
        }
        Ok(())
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
        // The host would not let it come to this.
        self.building.take_if(|building| building.name == name);
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
        if let Some(building) = self.building.take_if(|building| building.name == name) {
            if self.rng.chance(40) {
                return self.catch_up(me, &table, building);
            }
            return self.make_alter(me, name, &table, &building.next, Some(building.build));
        }
        let next = self.next_shape(&table.shape);
        if next == table.shape {
            return Ok(());
        }
        let adds_indexes = next.since(&table.shape).adds_indexes();
        if adds_indexes && self.building.is_none() && self.rng.chance(40) {
            return self.begin_build(me, name, &table, next);
        }
        self.make_alter(me, name, &table, &next, None)
    }

    /// The build under way gets a round, or its table gets the index.
    pub(super) fn go_on_building(&mut self, me: usize) -> Step {
        let Some(name) = self.building.as_ref().map(|building| building.name.clone()) else {
            return Ok(());
        };
        if self.writers[me].user.session.holds_locks() {
            return self.commit(me);
        }
        self.alter(me, &name)
    }

    /// Builds an index, which others may then change rows of before the table gets it.
    fn begin_build(&mut self, me: usize, name: &str, table: &TableState, next: Shape) -> Step {
        self.note(format!("{me}: build for {name} {:?}", next.indexes));
        let faults = faults_of(table, &next);
        let db = Arc::clone(self.db());
        let session = &self.writers[me].user.session;
        let built = build(&db, session, name, &next.since(&table.shape), &next);
        let deed = Deed::Change {
            faults: &faults,
            may_wait: self.has_others(me),
        };
        if let Some(build) = self.judge("a build", built, deed)? {
            let name = name.to_owned();
            self.building = Some(Building { name, next, build });
        }
        Ok(())
    }

    /// Rule SM4: a round of a build, unless somebody is not over.
    fn catch_up(&mut self, me: usize, table: &TableState, mut building: Building) -> Step {
        self.note(format!("{me}: catch up with {}", building.name));
        let faults = faults_of(table, &building.next);
        let caught_up = building.build.catch_up(Duration::ZERO, &mut |_, _| {});
        if matches!(caught_up, Ok(false)) {
            self.building = Some(building);
            return Ok(());
        }
        let deed = Deed::Change {
            faults: &faults,
            may_wait: false,
        };
        if self.judge("a round of a build", caught_up, deed)?.is_some() {
            self.building = Some(building);
        }
        Ok(())
    }

    fn make_alter(
        &mut self,
        me: usize,
        name: &str,
        table: &TableState,
        next: &Shape,
        build: Option<IndexBuild>,
    ) -> Step {
        self.note(format!(
            "{me}: alter {name} to {:?} {:?}, built: {}",
            next.added,
            next.indexes,
            build.is_some()
        ));
        let faults = faults_of(table, next);
        let db = Arc::clone(self.db());
        let before = self.state.clone();
        let altered = |(id, row): (&u32, &Arc<Row>)| (*id, Arc::new(next.altered(&table.shape, row)));
        let altered = TableState {
            rows: table.rows.iter().map(altered).collect(),
            shape: next.clone(),
        };
        self.state.tables.insert(name.to_owned(), Arc::new(altered));
        self.request();
        let session = &self.writers[me].user.session;
        let done = alter(&db, session, name, (&table.shape, next), build);
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

/// What keeps a table from getting this shape.
fn faults_of(table: &TableState, next: &Shape) -> Faults {
    let is_new = |index: &&Index| !table.shape.indexes.contains(index);
    let mut new = next.indexes.iter().filter(is_new);
    let has_twins = new.any(|index| has_twins(index, &table.rows));
    has_twins.then_some(Fault::Duplicate).into_iter().collect()
}

fn build(
    db: &Arc<Database>,
    session: &Session,
    name: &str,
    change: &Alteration,
    next: &Shape,
) -> pbxt::Result<IndexBuild> {
    let mut build = db.open_index_build(Some(session), next.definition(name)?, change)?;
    build.run(&mut |_, _| {})?;
    Ok(build)
}

/// Builds what is to be built and is not built yet, and makes the change.
fn alter(
    db: &Arc<Database>,
    session: &Session,
    name: &str,
    (shape, next): (&Shape, &Shape),
    built: Option<IndexBuild>,
) -> pbxt::Result<()> {
    let change = next.since(shape);
    db.check_alter(next.definition(name)?, &change, true)?;
    let mut builds: Vec<IndexBuild> = built.into_iter().collect();
    if change.adds_indexes() && builds.is_empty() {
        builds.push(build(db, session, name, &change, next)?);
    }
    db.alter_tables_with(Some(session), vec![next.definition(name)?], &change, true, builds)
}
