//! Checks of constraints when they are defined: whether child and parent fit, and in words why not.
//!
//! Why it exists: a constraint that cannot be kept is refused where somebody can still do something about it, with the column
//! and what would do; the same comparison decides later what a constraint is bound to.
//! Rules: FK1 names, FK3 indexes, FK4 types, FK5 and FK6 who has to fit, FK9 actions, FK10 temporary tables.
//! Latches and I/O: none; the caller holds the latch of DDL where the catalog is asked.

use crate::database::Database;
use crate::ddl::Redefined;
use crate::definition::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::foreign_key::{Action, ForeignKey};
use crate::host_record::{HostRecordDef, RecordColumn};
use crate::references::Outgoing;
use crate::table::Table;
use pbxt_rows::{HostKind, KeyEncoding, KeyPart, WeightScheme};
use std::sync::Arc;

/// Most parts of an index, and so most columns of a constraint (rule FK3).
const COLUMNS_MAX: usize = 64;
/// Most constraints of a table: the catalog counts them in two bytes (docs/format-catalog.md).
const CONSTRAINTS_MAX: usize = u16::MAX as usize;

/// How a constraint is kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub child_index: usize,
    pub parent_index: usize,
    pub parent_columns: Vec<usize>,
}

/// Why something does not do, and what would.
type Reason<T> = std::result::Result<T, String>;

/// Whether the constraint can be kept between these two tables (rules FK3, FK4, FK10).
pub(crate) fn fit(key: &ForeignKey, child: &TableDef, parent: &TableDef) -> Reason<Fit> {
    if let Some(table) = [child, parent].iter().find(|table| table.temporary) {
        return Err(format!(
            "table '{}' is temporary: temporary tables neither have foreign keys nor are referred to",
            table.name
        ));
    }
    let (child_record, parent_record) = (record_of(child)?, record_of(parent)?);
    let mut parent_columns = Vec::with_capacity(key.columns.len());
    for column in &key.columns {
        let Some(number) = parent_record.column(&column.parent) else {
            return Err(format!(
                "table '{}' has no column '{}': refer to a column that it has",
                parent.name, column.parent
            ));
        };
        let ours = column_of(child_record, child, column.child)?;
        check_types(ours, &parent_record.columns[number], &parent.name)?;
        parent_columns.push(number);
    }
    let child_columns: Vec<usize> = key
        .columns
        .iter()
        .map(|column| usize::from(column.child))
        .collect();
    let children = leading(child, &child_columns);
    if children.is_empty() {
        return Err(no_index(child, child_record, &child_columns));
    }
    let parents = leading(parent, &parent_columns);
    if parents.is_empty() {
        return Err(no_index(parent, parent_record, &parent_columns));
    }
    let pairs = parents
        .iter()
        .flat_map(|&parent| children.iter().map(move |&child| (child, parent)));
    let parts = child_columns.len();
    let mut fitting: Vec<(usize, usize)> = pairs
        .filter(|&(ours, theirs)| {
            let (ours, theirs) = (&child.indexes[ours], &parent.indexes[theirs]);
            (0..parts).all(|part| compare_alike((child_record, ours), (parent_record, theirs), part))
        })
        .collect();
    // The parent's key first if it is one, then the index with the fewest parts beyond the constraint's.
    fitting.sort_by_key(|&(ours, theirs)| {
        let (ours, theirs) = (&child.indexes[ours], &parent.indexes[theirs]);
        (
            theirs.spec.declared().len(),
            !theirs.unique,
            ours.spec.declared().len(),
        )
    });
    let Some(&(child_index, parent_index)) = fitting.first() else {
        return Err(format!(
            "the columns in '{}' and in '{}' have lengths or collations whose index keys cannot be compared: \
             declare them with the same length and collation",
            child.name, parent.name
        ));
    };
    Ok(Fit {
        child_index,
        parent_index,
        parent_columns,
    })
}

fn record_of(table: &TableDef) -> Reason<&HostRecordDef> {
    table.host_record.as_ref().ok_or_else(|| {
        format!(
            "table '{}' was made by an older version, which did not keep the names of columns: copy it with ALTER TABLE ... \
             FORCE",
            table.name
        )
    })
}

fn column_of<'a>(record: &'a HostRecordDef, table: &TableDef, number: u16) -> Reason<&'a RecordColumn> {
    let column = record.columns.get(usize::from(number));
    column.ok_or_else(|| format!("table '{}' has no column number {number}", table.name))
}

/// Rules FK3, FK4.
fn check_types(ours: &RecordColumn, theirs: &RecordColumn, parent: &str) -> Reason<()> {
    if !theirs.place.stored {
        return Err(format!(
            "column '{}' of table '{parent}' is computed and not stored: refer to a stored column",
            theirs.name
        ));
    }
    if ours.type_text != theirs.type_text {
        return Err(format!(
            "column '{}' is of type {}, and column '{}' of table '{parent}' is of type {}: both have to be of the same type",
            ours.name, ours.type_text, theirs.name, theirs.type_text
        ));
    }
    Ok(())
}

/// Positions of the indexes that begin with these columns, whole, in this order.
fn leading(table: &TableDef, columns: &[usize]) -> Vec<usize> {
    let begins = |index: &IndexDef| {
        // What the primary key lends (rule X40) is not what the index was declared for.
        let parts = index.spec.declared();
        parts.len() >= columns.len()
            && parts
                .iter()
                .zip(columns)
                .all(|(part, column)| usize::from(part.column) == *column && !part.prefix)
    };
    let indexes = table.indexes.iter().enumerate();
    indexes
        .filter(|(_, index)| begins(index))
        .map(|(number, _)| number)
        .collect()
}

fn no_index(table: &TableDef, record: &HostRecordDef, columns: &[usize]) -> String {
    let names: Vec<&str> = columns
        .iter()
        .filter_map(|&column| record.columns.get(column))
        .map(|column| column.name.as_str())
        .collect();
    format!(
        "table '{}' has no index that begins with ({}), whole columns in this order: add one",
        table.name,
        names.join(", ")
    )
}

/// True if equal values of the two columns have keys that are equal but for NULL and direction, and others do not.
fn compare_alike(
    ours: (&HostRecordDef, &IndexDef),
    theirs: (&HostRecordDef, &IndexDef),
    part: usize,
) -> bool {
    let place = |(record, index): (&HostRecordDef, &IndexDef)| -> Option<(KeyPart, HostKind)> {
        let part = *index.spec.declared().get(part)?;
        Some((part, record.columns.get(usize::from(part.column))?.place.kind))
    };
    let (Some((ours, our_kind)), Some((theirs, their_kind))) = (place(ours), place(theirs)) else {
        return false;
    };
    let is_padded = |kind| matches!(kind, HostKind::Padded { .. });
    let same_length = ours.length == theirs.length;
    match (ours.encoding, theirs.encoding) {
        (KeyEncoding::Raw, KeyEncoding::Raw) => {
            same_length || (is_padded(our_kind) && is_padded(their_kind) && pad(our_kind) == pad(their_kind))
        }
        (
            KeyEncoding::Host {
                collation: a,
                scheme: our_scheme,
            },
            KeyEncoding::Host {
                collation: b,
                scheme: their_scheme,
            },
        ) => {
            let is_whole = |kind| matches!(kind, HostKind::Fixed(_) | HostKind::Padded { .. });
            // A host cuts or fills such values by the length of the column.
            let by_length = matches!(our_scheme, WeightScheme::FixedLen(_))
                || (our_scheme == WeightScheme::NoPad && (is_whole(our_kind) || is_whole(their_kind)));
            a == b && our_scheme == their_scheme && (same_length || !by_length)
        }
        (ours_is, theirs_is) => {
            ours_is == theirs_is && (same_length || matches!(ours_is, KeyEncoding::VarBinary))
        }
    }
}

fn pad(kind: HostKind) -> Option<u8> {
    match kind {
        HostKind::Padded { pad, .. } => Some(pad),
        HostKind::Fixed(_) | HostKind::Var1(_) | HostKind::Var2(_) | HostKind::Blob(_) => None,
    }
}

fn bad(key: &ForeignKey, child: &TableDef, why: String) -> Error {
    Error::BadForeignKey {
        constraint: key.name.clone(),
        child: child.name.clone(),
        why,
    }
}

/// What a constraint may not be whatever the parent is like (rules FK1, FK9, FK10): checked even with checks off.
fn check_alone(def: &TableDef, key: &ForeignKey) -> Reason<()> {
    if def.temporary {
        return Err(format!(
            "table '{}' is temporary: temporary tables have no foreign keys",
            def.name
        ));
    }
    if key.columns.is_empty() {
        return Err("it has no columns: name at least one".into());
    }
    if key.columns.len() > COLUMNS_MAX {
        return Err(format!(
            "it has {} columns, and no index has more than {COLUMNS_MAX} parts: name fewer",
            key.columns.len()
        ));
    }
    let record = record_of(def)?;
    for (at, column) in key.columns.iter().enumerate() {
        let ours = column_of(record, def, column.child)?;
        if key.columns[..at]
            .iter()
            .any(|before| before.child == column.child)
        {
            return Err(format!("column '{}' is in it twice: name it once", ours.name));
        }
        check_actions(def, key, ours, column.child)?;
    }
    Ok(())
}

/// Rule FK9.
fn check_actions(def: &TableDef, key: &ForeignKey, ours: &RecordColumn, number: u16) -> Reason<()> {
    let is_nullable = def
        .schema
        .column(usize::from(number))
        .is_some_and(|column| column.nullable);
    for (action, what) in [(key.on_delete, "ON DELETE"), (key.on_update, "ON UPDATE")] {
        let writes = match action {
            Action::Restrict | Action::NoAction => false,
            Action::Cascade => what == "ON UPDATE",
            Action::SetNull | Action::SetDefault => true,
        };
        if writes && !ours.place.stored {
            return Err(format!(
                "{what} would change column '{}', which is computed: use RESTRICT, or refer with a stored column",
                ours.name
            ));
        }
        if action == Action::SetNull && !is_nullable {
            return Err(format!(
                "{what} SET NULL wants column '{}' to allow NULL: declare it without NOT NULL, or use another action",
                ours.name
            ));
        }
        if action == Action::SetDefault && !ours.has_default {
            return Err(format!(
                "{what} SET DEFAULT wants a constant default of column '{}': declare one, or use another action",
                ours.name
            ));
        }
    }
    Ok(())
}

/// The part of a table's name up to the last `/`.
fn scope(name: &str) -> &str {
    name.rfind('/').map_or("", |at| &name[..=at])
}

impl Database {
    /// Checks the constraints of a definition that is about to be kept (rules FK1, FK3 to FK6, FK9, FK10). `replaces`: the table whose
    /// place it will take; that one's constraints may have the same names, and who refers to that one will refer to it.
    pub(crate) fn check_new_constraints(
        &self,
        def: &TableDef,
        replaces: Option<&str>,
        checks: bool,
    ) -> Result<()> {
        self.check_constraints_alone(def, replaces)?;
        if !checks {
            return Ok(());
        }
        for key in &def.foreign_keys {
            if !self.waits_already(replaces, key) {
                self.check_parent(def, replaces, key)?;
            }
        }
        self.check_waiting(def, replaces.unwrap_or(&def.name))
    }

    /// What is asked even with checks off (rules FK1, FK9, FK10).
    fn check_constraints_alone(&self, def: &TableDef, replaces: Option<&str>) -> Result<()> {
        if let Some(key) = def.foreign_keys.get(CONSTRAINTS_MAX) {
            let why = format!(
                "table '{}' has {CONSTRAINTS_MAX} constraints without it, the most there can be",
                def.name
            );
            return Err(bad(key, def, why));
        }
        for (at, key) in def.foreign_keys.iter().enumerate() {
            check_alone(def, key).map_err(|why| bad(key, def, why))?;
            let is_twice = def.foreign_keys[..at]
                .iter()
                .any(|before| before.name == key.name);
            let replaced = if is_twice { None } else { replaces };
            self.check_name_is_free(def, replaced, &key.name)?;
            if is_twice {
                let why =
                    "the definition has another constraint of this name: choose another name".to_owned();
                return Err(bad(key, def, why));
            }
        }
        Ok(())
    }

    /// Rule FK1, of a table that comes from `from`.
    pub(crate) fn check_moved_names(&self, def: &TableDef, from: &str) -> Result<()> {
        if scope(from) == scope(&def.name) {
            return Ok(());
        }
        let mut keys = def.foreign_keys.iter();
        keys.try_for_each(|key| self.check_name_is_free(def, None, &key.name))
    }

    /// Refuses a name that a constraint of another table of the same scope has, unless that table is replaced (rule FK1).
    fn check_name_is_free(&self, def: &TableDef, replaced: Option<&str>, name: &str) -> Result<()> {
        let is_other = |table: &Arc<Table>| table.id != def.id && replaced != Some(&*table.name());
        let others = self.catalog.tables_under(scope(&def.name));
        for table in others.iter().filter(|table| is_other(table)) {
            let other = table.def();
            if scope(&other.name) == scope(&def.name)
                && !other.provisional
                && other.foreign_keys.iter().any(|key| key.name == name)
            {
                return Err(Error::ForeignKeyNameTaken {
                    constraint: name.to_owned(),
                    child: def.name.clone(),
                    owner: other.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// Rule FK46: true if the table has the constraint now, and it is not bound.
    fn waits_already(&self, table: Option<&str>, key: &ForeignKey) -> bool {
        let Some(table) = table.and_then(|name| self.catalog.by_name(name)) else {
            return false;
        };
        let is_it = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Unbound(waiting, _) if waiting.name == key.name);
        table.references().outgoing.iter().any(is_it)
    }

    /// Rule FK5.
    fn check_parent(&self, def: &TableDef, replaces: Option<&str>, key: &ForeignKey) -> Result<()> {
        let is_itself = key.parent == def.name || replaces == Some(key.parent.as_str());
        let fits = if is_itself {
            fit(key, def, def)
        } else {
            match self.catalog.by_name(&key.parent) {
                Some(parent) => fit(key, def, &parent.def()),
                None => Err(format!(
                    "there is no table '{}': create it first, or switch the checks off meanwhile",
                    key.parent
                )),
            }
        };
        fits.map(|_| ()).map_err(|why| bad(key, def, why))
    }

    /// Rule FK6: who refers to `name` has to fit this definition.
    pub(crate) fn check_waiting(&self, def: &TableDef, name: &str) -> Result<()> {
        if def.temporary {
            return Ok(());
        }
        for table in self.catalog.children() {
            let child = table.def();
            if child.provisional || child.id == def.id || child.name == name {
                continue;
            }
            for key in child.foreign_keys.iter().filter(|key| key.parent == name) {
                fit(key, &child, def).map_err(|why| bad(key, &child, why))?;
            }
        }
        Ok(())
    }

    /// Checks changed definitions of generations that are there: the first one, and those that follow its changes.
    pub(crate) fn check_redefinitions(&self, changed: &[Redefined], checks: bool) -> Result<()> {
        let Some((_, def)) = changed.first() else {
            return Ok(());
        };
        let of_others = |id| changed.iter().any(|(table, _)| table.id == id);
        self.check_constraints_alone(def, None)?;
        if !checks {
            return Ok(());
        }
        for key in &def.foreign_keys {
            if !self.waits_already(Some(&def.name), key) {
                self.check_parent(def, None, key)?;
            }
        }
        for (_, child) in changed.iter().skip(1) {
            for key in child.foreign_keys.iter().filter(|key| key.parent == def.name) {
                fit(key, child, def).map_err(|why| bad(key, child, why))?;
            }
        }
        for table in self
            .catalog
            .children()
            .iter()
            .filter(|table| !of_others(table.id))
        {
            let child = table.def();
            let names_it = |key: &&ForeignKey| key.parent == def.name && !child.provisional;
            for key in child.foreign_keys.iter().filter(names_it) {
                fit(key, &child, def).map_err(|why| bad(key, &child, why))?;
            }
        }
        Ok(())
    }

    /// Refuses to take away a table that others refer to.
    pub(crate) fn check_unreferenced(&self, table: &Table) -> Result<()> {
        let name = table.name();
        for other in self.catalog.children() {
            let child = other.def();
            if child.provisional || child.id == table.id {
                continue;
            }
            if let Some(key) = child.foreign_keys.iter().find(|key| key.parent == *name) {
                return Err(Error::RowIsReferenced {
                    constraint: key.name.clone(),
                    child: child.name.clone(),
                    parent: name.to_string(),
                });
            }
        }
        Ok(())
    }
}
