//! Model of constraints: tables as plain maps, actions as a plain list, written from the rules and not from the engine.
//!
//! What the rules leave open, in which order actions reach rows, is played as the engine does it: constraints that refuse first,
//! then a list of (constraint, value) from which the newest is taken, children in the order in which they were inserted.

use super::family::{Plan, Row};
use pbxt::{Action, ForeignKey};
use std::collections::BTreeMap;

/// Rows by the order of their insertion.
pub(crate) type Rows = BTreeMap<u64, Row>;

/// How a change ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// No parent, by this constraint.
    Missing(String),
    /// Children, by this constraint.
    Referenced(String),
    Duplicate,
}

/// One row as it was: table, row, content.
pub(crate) type Before = (usize, u64, Option<Row>);

/// All tables with what everybody has done so far, committed or not.
#[derive(Clone)]
pub(crate) struct Kin {
    pub(crate) plans: Vec<Plan>,
    pub(crate) tables: Vec<Rows>,
    next: u64,
}

#[derive(Clone)]
enum Deed {
    Delete,
    Set(Row),
}

/// Children of a value by constraint `key` of table `child`.
struct Item {
    child: usize,
    key: usize,
    value: Row,
    deed: Deed,
}

fn pick(row: &Row, columns: &[usize]) -> Row {
    columns.iter().map(|&column| row[column]).collect()
}

impl Kin {
    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        Self {
            tables: vec![Rows::new(); plans.len()],
            plans,
            next: 0,
        }
    }

    pub(crate) fn child_columns(key: &ForeignKey) -> Vec<usize> {
        key.columns
            .iter()
            .map(|column| usize::from(column.child))
            .collect()
    }

    pub(crate) fn parent_columns(key: &ForeignKey) -> Vec<usize> {
        let number = |name: &str| name.trim_start_matches('c').parse().expect("cN");
        key.columns.iter().map(|column| number(&column.parent)).collect()
    }

    pub(crate) fn table(&self, name: &str) -> usize {
        self.plans
            .iter()
            .position(|plan| plan.name == name)
            .expect("a table of the model")
    }

    /// The row of this id.
    pub(crate) fn find(&self, table: usize, id: u32) -> Option<(u64, Row)> {
        let is_it = |(_, row): &(&u64, &Row)| row[0] == Some(id);
        let found = self.tables[table].iter().find(is_it);
        found.map(|(seq, row)| (*seq, row.clone()))
    }

    /// Rows whose parent is missing.
    pub(crate) fn orphans(plans: &[Plan], tables: &[Vec<Row>]) -> Vec<String> {
        let mut orphans = Vec::new();
        for (plan, rows) in plans.iter().zip(tables) {
            for key in &plan.keys {
                let parent = plans
                    .iter()
                    .position(|plan| plan.name == key.parent)
                    .expect("a parent");
                let (ours, theirs) = (Self::child_columns(key), Self::parent_columns(key));
                for row in rows {
                    let value = pick(row, &ours);
                    let is_there = tables[parent].iter().any(|row| pick(row, &theirs) == value);
                    if !value.contains(&None) && !is_there {
                        orphans.push(format!("{row:?} of {} by {}", plan.name, key.name));
                    }
                }
            }
        }
        orphans
    }

    /// Undoes changes, the newest first.
    pub(crate) fn undo(&mut self, changes: &mut Vec<Before>, down_to: usize) {
        while changes.len() > down_to {
            let (table, seq, before) = changes.pop().expect("counted");
            match before {
                Some(row) => self.tables[table].insert(seq, row),
                None => self.tables[table].remove(&seq),
            };
        }
    }

    fn put(&mut self, table: usize, seq: u64, row: Option<Row>, changes: &mut Vec<Before>) {
        // Who writes the same again writes nothing, and others may change the row.
        if self.tables[table].get(&seq) == row.as_ref() {
            return;
        }
        let before = match row {
            Some(row) => self.tables[table].insert(seq, row),
            None => self.tables[table].remove(&seq),
        };
        changes.push((table, seq, before));
    }

    /// The first constraint without parent, of those that have new values or act.
    fn missing(&self, table: usize, old: Option<&Row>, new: &Row, acting: Option<&str>) -> Option<String> {
        for key in &self.plans[table].keys {
            let (ours, theirs) = (Self::child_columns(key), Self::parent_columns(key));
            let value = pick(new, &ours);
            let same = old.is_some_and(|old| pick(old, &ours) == value) && acting != Some(&*key.name);
            if same || value.contains(&None) {
                continue;
            }
            let parent = self.table(&key.parent);
            let is_own = parent == table && pick(new, &theirs) == value;
            if !is_own
                && !self.tables[parent]
                    .values()
                    .any(|row| pick(row, &theirs) == value)
            {
                return Some(key.name.clone());
            }
        }
        None
    }

    fn is_duplicate(&self, table: usize, seq: Option<u64>, new: &Row) -> bool {
        let primary = (vec![0], true);
        let indexes = self.plans[table].indexes.iter().chain([&primary]);
        indexes.filter(|(_, unique)| *unique).any(|(columns, _)| {
            let value = pick(new, columns);
            let has_it = |(other, row): (&u64, &Row)| Some(*other) != seq && pick(row, columns) == value;
            !value.contains(&None) && self.tables[table].iter().any(has_it)
        })
    }

    /// Inserts a row.
    pub(crate) fn insert(&mut self, table: usize, row: &Row, changes: &mut Vec<Before>) -> Verdict {
        // Rule FK12: who has the key is told of rather than a parent that is not there.
        if self.is_duplicate(table, None, row) {
            return Verdict::Duplicate;
        }
        if let Some(name) = self.missing(table, None, row, None) {
            return Verdict::Missing(name);
        }
        self.next += 1;
        self.put(table, self.next, Some(row.clone()), changes);
        Verdict::Done
    }

    /// Changes (`new`) or deletes a row, with all that follows.
    pub(crate) fn change(
        &mut self,
        table: usize,
        seq: u64,
        new: Option<&Row>,
        changes: &mut Vec<Before>,
    ) -> Verdict {
        let start = changes.len();
        let old = self.tables[table][&seq].clone();
        if let Some(new) = new {
            if let Some(name) = self.missing(table, Some(&old), new, None) {
                return Verdict::Missing(name);
            }
            if self.is_duplicate(table, Some(seq), new) {
                return Verdict::Duplicate;
            }
        }
        self.put(table, seq, new.cloned(), changes);
        let mut work = Vec::new();
        let verdict = self
            .note(table, &old, new, &mut work)
            .and_then(|()| self.work_off(work, changes));
        match verdict {
            Ok(()) => Verdict::Done,
            Err(verdict) => {
                self.undo(changes, start);
                verdict
            }
        }
    }

    fn note(&self, table: usize, old: &Row, new: Option<&Row>, work: &mut Vec<Item>) -> Result<(), Verdict> {
        // Links come in the order of the names of child tables; these have one digit.
        let mut items = Vec::new();
        for (child, plan) in self.plans.iter().enumerate() {
            for (number, key) in plan.keys.iter().enumerate() {
                if self.table(&key.parent) != table {
                    continue;
                }
                let theirs = Self::parent_columns(key);
                let value = pick(old, &theirs);
                if value.contains(&None) || new.is_some_and(|new| pick(new, &theirs) == value) {
                    continue;
                }
                let width = theirs.len();
                let action = if new.is_some() {
                    key.on_update
                } else {
                    key.on_delete
                };
                let deed = match (action, new) {
                    (Action::Restrict | Action::NoAction, _) => {
                        if self.children(child, key, &value).is_empty() {
                            continue;
                        }
                        return Err(Verdict::Referenced(key.name.clone()));
                    }
                    (Action::Cascade, None) => Deed::Delete,
                    (Action::Cascade, Some(new)) => Deed::Set(pick(new, &theirs)),
                    (Action::SetNull, _) => Deed::Set(vec![None; width]),
                    (Action::SetDefault, _) => Deed::Set(pick(&plan.defaults, &Self::child_columns(key))),
                };
                items.push(Item {
                    child,
                    key: number,
                    value,
                    deed,
                });
            }
        }
        work.extend(items.into_iter().rev());
        Ok(())
    }

    fn children(&self, child: usize, key: &ForeignKey, value: &Row) -> Vec<u64> {
        let ours = Self::child_columns(key);
        let rows = self.tables[child].iter();
        rows.filter(|(_, row)| pick(row, &ours) == *value)
            .map(|(seq, _)| *seq)
            .collect()
    }

    fn work_off(&mut self, mut work: Vec<Item>, changes: &mut Vec<Before>) -> Result<(), Verdict> {
        while let Some(item) = work.pop() {
            let key = self.plans[item.child].keys[item.key].clone();
            for seq in self.children(item.child, &key, &item.value) {
                self.act(&item, &key, seq, &mut work, changes)?;
            }
        }
        Ok(())
    }

    fn act(
        &mut self,
        item: &Item,
        key: &ForeignKey,
        seq: u64,
        work: &mut Vec<Item>,
        changes: &mut Vec<Before>,
    ) -> Result<(), Verdict> {
        let old = self.tables[item.child][&seq].clone();
        let Deed::Set(values) = &item.deed else {
            self.put(item.child, seq, None, changes);
            return self.note(item.child, &old, None, work);
        };
        let mut new = old.clone();
        for (column, value) in Self::child_columns(key).into_iter().zip(values) {
            new[column] = *value;
        }
        if let Some(name) = self.missing(item.child, Some(&old), &new, Some(&key.name)) {
            return Err(Verdict::Missing(name));
        }
        if self.is_duplicate(item.child, Some(seq), &new) {
            return Err(Verdict::Referenced(key.name.clone()));
        }
        self.put(item.child, seq, Some(new.clone()), changes);
        self.note(item.child, &old, Some(&new), work)
    }
}
