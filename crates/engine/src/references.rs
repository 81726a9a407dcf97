//! References: which constraints join which tables now.
//!
//! Why it exists: a constraint names its parent (rule FK2); what is found under the name, and by which index, is worked out once
//! whenever the catalog changes, so that no row looks a table up.
//! State: each table has its `References`, exchanged whole. A link knows its tables weakly: a table that was dropped is not kept
//! alive by one that refers to it. The database counts changes of bindings; who keeps anything made of them compares that number.
//! Rules: FK2, FK3, FK8. FK23 a changed binding is published, counted, and then the row operations under way are waited for.
//! Latches and I/O: called under the latch that puts DDL statements in order; waits for row operations, not for transactions.
//! After a crash: nothing of it is stored; opening binds all tables.

use crate::database::Database;
use crate::definition::TableDef;
use crate::foreign_key::{Action, ForeignKey};
use crate::foreign_key_check::{Fit, fit};
use crate::table::Table;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A constraint and the two tables it joins.
#[derive(Debug)]
pub struct Link {
    /// The constraint.
    pub key: ForeignKey,
    /// Table that refers.
    pub child: Weak<Table>,
    /// Table referred to.
    pub parent: Weak<Table>,
    /// Position of the index of the child that begins with the constraint's columns.
    pub child_index: usize,
    /// Position of the parent's index.
    pub parent_index: usize,
    /// Numbers of the columns referred to.
    pub parent_columns: Vec<usize>,
    /// The table whose place the child is to take; until then the constraint refuses and never acts (rule FK8).
    pub stands_in_for: Option<Arc<str>>,
}

/// Why a constraint is bound to no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No table has the name.
    Table,
    /// Columns or indexes do not fit (rules FK3, FK4).
    Fit,
}

/// A constraint of a table, bound or not.
#[derive(Debug, Clone)]
pub enum Outgoing {
    /// Joined with its parent.
    Bound(Arc<Link>),
    /// New values are refused (rule FK2).
    Unbound(ForeignKey, Missing),
}

/// The constraints that a table has and those that lead to it.
#[derive(Debug, Default)]
pub struct References {
    /// Of the table itself, in the order of its definition.
    pub outgoing: Vec<Outgoing>,
    /// Of tables that are not provisional, and what rule FK8 has of others, by name of the table and order of its definition.
    pub incoming: Vec<Arc<Link>>,
}

impl Missing {
    /// For people: what has to be there before the constraint takes new values.
    pub fn why(self) -> &'static str {
        match self {
            Self::Table => "there is no such table: create it first",
            Self::Fit => "that table has no columns or no index that fit: see the rules for foreign keys",
        }
    }
}

impl Link {
    /// True if the parent is the child.
    pub fn is_to_itself(&self) -> bool {
        self.child.ptr_eq(&self.parent)
    }

    /// What a deletion of the parent does now.
    pub fn on_delete(&self) -> Action {
        self.now(self.key.on_delete)
    }

    /// What a change of the parent's columns does now.
    pub fn on_update(&self) -> Action {
        self.now(self.key.on_update)
    }

    fn now(&self, action: Action) -> Action {
        if self.stands_in_for.is_some() {
            Action::Restrict
        } else {
            action
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
            && self.stands_in_for == other.stands_in_for
            && self.child.ptr_eq(&other.child)
            && self.parent.ptr_eq(&other.parent)
            && (self.child_index, self.parent_index) == (other.child_index, other.parent_index)
            && self.parent_columns == other.parent_columns
    }
}

impl Outgoing {
    /// The constraint.
    pub fn key(&self) -> &ForeignKey {
        match self {
            Self::Bound(link) => &link.key,
            Self::Unbound(key, _) => key,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bound(a), Self::Bound(b)) => a.is_same(b),
            (Self::Unbound(a, why), Self::Unbound(b, other)) => a == b && why == other,
            (Self::Bound(_), Self::Unbound(..)) | (Self::Unbound(..), Self::Bound(_)) => false,
        }
    }
}

impl References {
    /// True if the table neither has constraints nor is referred to.
    pub fn is_empty(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.outgoing.len() == other.outgoing.len()
            && self.incoming.len() == other.incoming.len()
            && self
                .outgoing
                .iter()
                .zip(&other.outgoing)
                .all(|(a, b)| a.is_same(b))
            && self
                .incoming
                .iter()
                .zip(&other.incoming)
                .all(|(a, b)| a.is_same(b))
    }
}

impl Database {
    /// How often bindings have changed since the database was opened.
    #[inline]
    pub(crate) fn bindings(&self) -> u64 {
        self.bindings.load(Ordering::Acquire)
    }

    /// Binds all constraints to what the catalog has now (rule FK2).
    pub(crate) fn bind_references(&self) {
        self.bind_references_among(&self.catalog.tables());
    }

    /// The same for what the catalog is about to have: nobody meets a new table unbound.
    pub(crate) fn bind_references_among(&self, tables: &[Arc<Table>]) {
        let mut bound: HashMap<usize, References> = HashMap::new();
        let by_name: HashMap<Arc<str>, usize> = tables
            .iter()
            .enumerate()
            .map(|(number, table)| (table.name(), number))
            .collect();
        let named = |name: &str| by_name.get(name).map(|number| &tables[*number]);
        for (number, child) in tables.iter().enumerate() {
            let def = child.def();
            for key in &def.foreign_keys {
                let parent = by_name.get(key.parent.as_str()).copied();
                let outgoing = bind(child, &def, key, parent.map(|parent| &tables[parent]));
                if let (Outgoing::Bound(link), Some(parent)) = (&outgoing, parent)
                    && leads(link, &def, &tables[parent], named)
                {
                    let incoming = &mut bound.entry(parent).or_default().incoming;
                    incoming.push(Arc::clone(link));
                }
                bound.entry(number).or_default().outgoing.push(outgoing);
            }
        }
        self.install_references(tables, bound);
    }

    /// True if a table is about to have the name, or has it and constraints are about to be bound to it (rule FK54).
    pub(crate) fn is_to_come(&self, name: &str) -> bool {
        let takes_it = |table: &Arc<Table>| table.stands_in_for().as_deref() == Some(name);
        self.catalog.tables().iter().any(takes_it) || self.catalog.by_name(name).is_some()
    }

    fn install_references(&self, tables: &[Arc<Table>], mut bound: HashMap<usize, References>) {
        let mut has_changed = false;
        for (number, table) in tables.iter().enumerate() {
            let references = bound.remove(&number).unwrap_or_default();
            if !table.references().is_same(&references) {
                table.bind(references);
                has_changed = true;
            }
        }
        if has_changed {
            self.bindings.fetch_add(1, Ordering::AcqRel);
            // Rule FK23.
            self.guards.drain();
        }
    }
}

fn bind(child: &Arc<Table>, def: &TableDef, key: &ForeignKey, parent: Option<&Arc<Table>>) -> Outgoing {
    let Some(parent) = parent else {
        return Outgoing::Unbound(key.clone(), Missing::Table);
    };
    match fit(key, def, &parent.def()) {
        Ok(Fit {
            child_index,
            parent_index,
            parent_columns,
        }) => Outgoing::Bound(Arc::new(Link {
            key: key.clone(),
            child: Arc::downgrade(child),
            parent: Arc::downgrade(parent),
            child_index,
            parent_index,
            parent_columns,
            stands_in_for: child.stands_in_for(),
        })),
        Err(_) => Outgoing::Unbound(key.clone(), Missing::Fit),
    }
}

/// Rule FK8: whether changes of the parent mind the constraint.
fn leads<'a>(
    link: &Link,
    def: &TableDef,
    parent: &Table,
    named: impl Fn(&str) -> Option<&'a Arc<Table>>,
) -> bool {
    let Some(replaced) = &link.stands_in_for else {
        return !def.provisional;
    };
    // What the replaced table keeps itself it keeps by its own rows, with its own action.
    !named(replaced).is_some_and(|replaced| {
        let before = replaced.def();
        let is_it = |own: &&ForeignKey| is_same_constraint((own, &before), (&link.key, def));
        let own = before.foreign_keys.iter().find(is_it);
        own.is_some_and(|own| fit(own, &before, &parent.def()).is_ok())
    })
}

/// The same name, and the same columns by name, for numbers may be others in a copy.
fn is_same_constraint(
    (one, def): (&ForeignKey, &TableDef),
    (other, other_def): (&ForeignKey, &TableDef),
) -> bool {
    one.name == other.name && one.parent == other.parent && pairs(one, def).eq(pairs(other, other_def))
}

/// The names of a constraint's columns in child and parent.
fn pairs<'a>(key: &'a ForeignKey, def: &'a TableDef) -> impl Iterator<Item = (Option<&'a str>, &'a str)> {
    key.columns.iter().map(|column| {
        let record = def.host_record.as_ref();
        let ours = record.and_then(|record| record.columns.get(usize::from(column.child)));
        (ours.map(|ours| ours.name.as_str()), column.parent.as_str())
    })
}
