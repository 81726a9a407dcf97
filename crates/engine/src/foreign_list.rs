//! Foreign list: the constraints of a table and those that name it, for hosts and tools.
//!
//! Why it exists: hosts print definitions and decide which tables a statement may touch; they see names, never bindings.
//! Rules: FK2 what is bound is read when the list is made. FK8 what provisional tables refuse. FK52 order.
//! Latches and I/O: the catalog's, for one look-up at a time; none while the caller reads the list.

use crate::database::Database;
use crate::definition::TableDef;
use crate::error::Result;
use crate::foreign_key::{Action, ForeignKey, KeyColumn};
use crate::references::{Link, Outgoing};
use std::sync::Arc;

/// One column of a constraint in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKeyColumn {
    /// Name in the child.
    pub child: String,
    /// Name in the parent.
    pub parent: String,
    /// May be NULL in the child.
    pub child_nullable: bool,
    /// May be NULL in the parent; false without one.
    pub parent_nullable: bool,
}

/// One constraint in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKeyInfo {
    /// Its name.
    pub name: String,
    /// Table that refers.
    pub child: String,
    /// Table referred to, which may not exist.
    pub parent: String,
    /// In the constraint's order.
    pub columns: Vec<ForeignKeyColumn>,
    /// What a deletion of the parent does.
    pub on_delete: Action,
    /// What a change of the parent's columns does.
    pub on_update: Action,
    /// Index by which parents are found; none if it is not bound.
    pub parent_index: Option<String>,
}

impl Database {
    /// The constraints of a table, in the order of their names (FK52).
    pub fn foreign_keys_of(&self, table: &str) -> Result<Vec<ForeignKeyInfo>> {
        let child = self.catalog.find(table)?;
        let def = child.def();
        let references = child.references();
        // A binding that is not there yet, or no more, shows as unbound.
        let link = |number: usize, key: &ForeignKey| match references.outgoing.get(number) {
            Some(Outgoing::Bound(link)) if link.key == *key => Some(Arc::clone(link)),
            _ => None,
        };
        let keys = def.foreign_keys.iter().enumerate();
        let mut list: Vec<_> = keys
            .map(|(number, key)| describe(&def, key, link(number, key).as_deref()))
            .collect();
        list.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// A number that is another whenever a list made before may be wrong: who keeps one reads the number first, then makes the list.
    pub fn foreign_key_changes(&self) -> u64 {
        // Both only grow.
        self.catalog.changes() + self.bindings()
    }

    /// The constraints that changes of a table mind, ordered by child. One of a table that is to take another's place stands under the
    /// other's name, with what it does now (rule FK8): that is the table a host has to lock.
    pub fn foreign_keys_to(&self, table: &str) -> Result<Vec<ForeignKeyInfo>> {
        let references = self.catalog.find(table)?.references();
        let info = |link: &Arc<Link>| {
            let mut info = describe(&link.child.upgrade()?.def(), &link.key, Some(link));
            if let Some(replaced) = &link.stands_in_for {
                info.child = replaced.to_string();
            }
            (info.on_delete, info.on_update) = (link.on_delete(), link.on_update());
            Some(info)
        };
        Ok(references.incoming.iter().filter_map(info).collect())
    }
}

fn describe(child: &TableDef, key: &ForeignKey, link: Option<&Link>) -> ForeignKeyInfo {
    let parent = link
        .and_then(|link| link.parent.upgrade())
        .map(|table| table.def());
    let column = |(position, column): (usize, &KeyColumn)| {
        let record = child.host_record.as_ref();
        let ours = record.and_then(|record| record.columns.get(usize::from(column.child)));
        let theirs = link.zip(parent.as_ref()).and_then(|(link, parent)| {
            let number = *link.parent_columns.get(position)?;
            parent.host_record.as_ref()?.columns.get(number)
        });
        ForeignKeyColumn {
            child: ours.map_or_else(String::new, |ours| ours.name.clone()),
            parent: theirs.map_or(&column.parent, |theirs| &theirs.name).clone(),
            child_nullable: ours.is_some_and(|ours| ours.place.null_bit != 0),
            parent_nullable: theirs.is_some_and(|theirs| theirs.place.null_bit != 0),
        }
    };
    let index_of = |link: &Link| Some(parent.as_ref()?.indexes.get(link.parent_index)?.name.clone());
    ForeignKeyInfo {
        name: key.name.clone(),
        child: child.name.clone(),
        parent: key.parent.clone(),
        columns: key.columns.iter().enumerate().map(column).collect(),
        on_delete: key.on_delete,
        on_update: key.on_update,
        parent_index: link.and_then(index_of),
    }
}
