//! ALTER: other columns and indexes for a table whose rows stay where they are.
//!
//! Why it exists: to copy a table because it gets a column costs as much as it has rows; nothing of them has to change, as long
//! as whoever reads a row written before knows what it had then. So an ALTER is one record of the catalog, whatever the size.
//! Rules: AL1 to AL7, AL10, AL13, AL24, AL32 (docs/alter.md). AL21 indexes that were built (index_build) become part of their tables in the
//! same step. K4 one statement, one transaction, also for the parts of a partitioned table. T19 the tables are taken exclusively. FK6
//! constraints are checked before anything is logged, and bound before anybody meets the altered table.
//! Latches and I/O: the latch of DDL, held across the log flush.
//! After a crash: all of it is there or nothing.

use crate::blob_reclaim::can_be_large;
use crate::catalog::CatalogOp;
use crate::database::Database;
use crate::ddl::{Redefined, follow};
use crate::definition::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::foreign_key::ForeignKey;
use crate::index_build::IndexBuild;
use crate::session::Session;
use crate::table::Table;
use pbxt_base::{IndexId, stop_point};
use pbxt_rows::{ColumnKind, HostColumn, HostKind, KeyEncoding, KeyPart, Origin, Schema, WeightScheme};
use pbxt_txlog::Space;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a log record beside the definition in it.
const RECORD_BYTES: usize = 256;

/// What the columns and indexes of a changed definition were before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alteration {
    /// For each column its number before; none if it is added.
    pub columns: Vec<Option<u16>>,
    /// For each index its position before; none if it is added.
    pub indexes: Vec<Option<u16>>,
}

/// Why something does not do.
type Reason<T> = std::result::Result<T, String>;

/// The id of an added index, at this position of the definition.
pub(crate) type NewId<'a> = &'a dyn Fn(&IndexDef, usize) -> Reason<IndexId>;

impl Alteration {
    /// Every column and index is what it was.
    pub fn nothing(def: &TableDef) -> Self {
        Self {
            columns: (0..def.schema.columns().len() as u16).map(Some).collect(),
            indexes: (0..def.indexes.len() as u16).map(Some).collect(),
        }
    }

    /// True if indexes are added, which have to be built first.
    pub fn adds_indexes(&self) -> bool {
        self.indexes.contains(&None)
    }

    /// The definition with the ids, schema version and older schemas that it gets as the next one of `old`.
    ///
    /// # Errors
    /// `NeedsCopy`.
    pub(crate) fn applied(&self, old: &TableDef, def: TableDef, new_id: NewId<'_>) -> Result<TableDef> {
        let refused = |why: String| Error::NeedsCopy {
            table: old.name.clone(),
            why,
        };
        self.apply(old, def, new_id).map_err(refused)
    }

    fn apply(&self, old: &TableDef, mut def: TableDef, new_id: NewId<'_>) -> Reason<TableDef> {
        if (def.compression, def.temporary) != (old.compression, old.temporary) || old.temporary {
            return Err("it is temporary, or is to be compressed otherwise".into());
        }
        if def.encrypted != old.encrypted {
            return Err("it is to be encrypted, or not any more".into());
        }
        if self.columns.len() != def.schema.columns().len() || self.indexes.len() != def.indexes.len() {
            return Err("not every column and index says what it was before".into());
        }
        for (number, (index, origin)) in def.indexes.iter_mut().zip(&self.indexes).enumerate() {
            let id = match origin {
                Some(origin) => {
                    let before = old.indexes.get(usize::from(*origin));
                    let before = before.ok_or_else(|| format!("index '{}' was none before", index.name))?;
                    self.check_index(index, before, old)?;
                    before.id
                }
                None => new_id(index, number)?,
            };
            let fits = index.spec.check(&def.schema);
            fits.map_err(|fault| format!("index '{}': {fault}", index.name))?;
            index.id = id;
        }
        let mut origins: Vec<_> = self.indexes.iter().flatten().collect();
        origins.sort_unstable();
        if origins.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("two indexes say that they were the same one before".into());
        }
        self.apply_columns(old, &mut def)?;
        self.check_added(old, &def)?;
        def.id = old.id;
        def.created = old.created;
        def.provisional = old.provisional;
        Ok(def)
    }

    /// Rule AL24.
    fn check_added(&self, old: &TableDef, def: &TableDef) -> Reason<()> {
        let added = def.indexes.iter().zip(&self.indexes);
        for (index, _) in added.filter(|(_, origin)| origin.is_none()) {
            let is_virtual =
                |part: &KeyPart| kind_of(&def.schema, usize::from(part.column)) == Some(ColumnKind::Virtual);
            let why = if def.schema.version() != old.schema.version() {
                "columns change with it: ALTER them in a statement of their own"
            } else if index.primary {
                "rows stand in the order of the primary key"
            } else if index.spec.parts().iter().any(is_virtual) {
                "has a column that is computed"
            } else if def.host_record.is_none() && !index.spec.derivable(&def.schema) {
                "nothing is known of the host's records"
            } else {
                continue;
            };
            return Err(format!("index '{}' is to be built, and {why}", index.name));
        }
        Ok(())
    }

    /// Rules AL1, AL3 to AL6.
    fn apply_columns(&self, old: &TableDef, def: &mut TableDef) -> Reason<()> {
        let version = old.schema.version();
        let same = def.schema.clone().with_version(version);
        if same == old.schema && *self == Self::same_columns(old, &self.indexes) {
            def.schema = same;
            def.older.clone_from(&old.older);
            return Ok(());
        }
        let next = version.checked_add(1);
        let next = next.ok_or("it has had 65535 versions of its columns, the most there can be")?;
        def.schema = same.with_version(next);
        let origins = (0..self.columns.len()).map(|column| self.origin_of(def, column));
        let origins = origins.collect::<Reason<Vec<_>>>()?;
        let versions = old.versions().altered(def.schema.clone(), &origins);
        let versions = versions.map_err(|fault| match fault {
            pbxt_rows::Error::BadLayout { column, why } => format!("column {}: {why}", name_of(def, column)),
            other => other.to_string(),
        })?;
        def.older = versions.older().cloned().collect();
        Ok(())
    }

    fn same_columns(old: &TableDef, indexes: &[Option<u16>]) -> Self {
        Self {
            indexes: indexes.to_vec(),
            ..Self::nothing(old)
        }
    }

    /// Rule AL5.
    fn origin_of(&self, def: &TableDef, column: usize) -> Reason<Origin> {
        if let Some(number) = self.columns[column] {
            return Ok(Origin::Column(number));
        }
        if kind_of(&def.schema, column) == Some(ColumnKind::Virtual) {
            return Ok(Origin::Constant(None));
        }
        let record = def.host_record.as_ref();
        let value = record.and_then(|record| {
            let place = &record.columns.get(column)?.place;
            stored_default(place, &record.defaults)
        });
        value.map(Origin::Constant).ok_or_else(|| {
            format!(
                "nothing is known of the default of column {}",
                name_of(def, column)
            )
        })
    }

    /// Rule AL10.
    fn check_index(&self, index: &IndexDef, before: &IndexDef, old: &TableDef) -> Reason<()> {
        let same_part = |(new, part): (&KeyPart, &KeyPart)| {
            let origin = self.columns.get(usize::from(new.column)).copied().flatten();
            let is_var = kind_of(&old.schema, usize::from(part.column)) == Some(ColumnKind::Var);
            let as_before = KeyPart {
                column: part.column,
                length: part.length,
                ..*new
            };
            origin == Some(part.column)
                && as_before == *part
                && (new.length == part.length
                    || (is_var && !part.prefix && new.length > part.length && has_any_length(part)))
        };
        let (parts, parts_before) = (index.spec.parts(), before.spec.parts());
        let is_same = parts.len() == parts_before.len()
            && index.spec.declared().len() == before.spec.declared().len()
            && index.spec.unpack() == before.spec.unpack()
            && index.unique == before.unique
            && parts.iter().zip(parts_before).all(same_part);
        if is_same {
            Ok(())
        } else {
            Err(format!("keys of index '{}' are to be made otherwise", index.name))
        }
    }
}

/// Keys of equal values are equal whatever the length of the column.
fn has_any_length(part: &KeyPart) -> bool {
    match part.encoding {
        KeyEncoding::VarBinary => true,
        KeyEncoding::Host { scheme, .. } => !matches!(scheme, WeightScheme::FixedLen(_)),
        KeyEncoding::Uint | KeyEncoding::Int | KeyEncoding::F32 | KeyEncoding::F64 | KeyEncoding::Raw => {
            false
        }
    }
}

fn kind_of(schema: &Schema, column: usize) -> Option<ColumnKind> {
    schema.column(column).map(|column| column.kind)
}

fn name_of(def: &TableDef, column: usize) -> String {
    let record = def.host_record.as_ref();
    match record.and_then(|record| record.columns.get(column)) {
        Some(column) => format!("'{}'", column.name),
        None => format!("number {column}"),
    }
}

/// The value of a column in a record of defaults, as rows store it; its own `None` is NULL. Pointers in such a record lead nowhere, so a
/// value behind one is an empty one.
#[expect(clippy::option_option, reason = "no answer, or NULL, or a value")]
fn stored_default(place: &HostColumn, defaults: &[u8]) -> Option<Option<Vec<u8>>> {
    if place.null_bit != 0 && defaults.get(place.null_offset as usize)? & place.null_bit != 0 {
        return Some(None);
    }
    let start = place.offset as usize;
    let bytes = |from: usize, len: usize| defaults.get(from..from + len);
    let value = match place.kind {
        HostKind::Fixed(len) => bytes(start, usize::from(len))?,
        HostKind::Var1(_) => bytes(start + 1, usize::from(*defaults.get(start)?))?,
        HostKind::Var2(_) => {
            let len = bytes(start, 2)?;
            bytes(start + 2, usize::from(len[0]) | usize::from(len[1]) << 8)?
        }
        HostKind::Blob(_) => &[],
        HostKind::Padded { len, pad } => {
            let value = bytes(start, usize::from(len))?;
            let kept = value
                .iter()
                .rposition(|byte| *byte != pad)
                .map_or(0, |last| last + 1);
            &value[..kept]
        }
    };
    Some(Some(value.to_vec()))
}

/// Rule AL32: constraints that stay mean what they mean by now.
fn keep_meaning(keys: &mut [ForeignKey], old: &[ForeignKey]) {
    for key in keys {
        let is_it = |old: &&ForeignKey| old.name == key.name && old.columns.len() == key.columns.len();
        let Some(old) = old.iter().find(is_it) else {
            continue;
        };
        key.parent.clone_from(&old.parent);
        for (column, old) in key.columns.iter_mut().zip(&old.columns) {
            column.parent.clone_from(&old.parent);
        }
    }
}

/// Columns that go on under another name: old and new name.
fn renamed(old: &TableDef, new: &TableDef, columns: &[Option<u16>]) -> Vec<(String, String)> {
    let (Some(old), Some(new)) = (&old.host_record, &new.host_record) else {
        return Vec::new();
    };
    let pairs = new.columns.iter().zip(columns).filter_map(|(column, origin)| {
        let before = old.columns.get(usize::from((*origin)?))?;
        (before.name != column.name).then(|| (before.name.clone(), column.name.clone()))
    });
    pairs.collect()
}

impl Database {
    /// Whether `alter_tables` would do this; if `change` adds indexes, `alter_tables_with` for which they are built.
    ///
    /// # Errors
    /// `NeedsCopy` says what stands against it; `BadForeignKey` for a constraint that could not be kept; `NoSuchTable`.
    pub fn check_alter(&self, def: TableDef, change: &Alteration, checks: bool) -> Result<()> {
        let table = self.catalog.find(&def.name)?;
        let _turn = self.ddl.lock();
        let changed = self.altered_definitions(&table, def, change, &|_, _| Ok(IndexId::new(0)))?;
        self.check_redefinitions(&changed, checks)
    }

    /// Gives tables other columns and indexes, all of them or none; each definition has the name of its table, and `change` holds for all.
    /// A column that gets another name gets it in the constraints that refer to it, too.
    ///
    /// # Errors
    /// As `check_alter`; nothing has changed then.
    pub fn alter_tables(
        self: &Arc<Self>,
        session: Option<&Session>,
        defs: Vec<TableDef>,
        change: &Alteration,
        checks: bool,
    ) -> Result<()> {
        self.alter_tables_with(session, defs, change, checks, Vec::new())
    }

    /// The same with the indexes that `change` adds, built for each of the tables (rule AL21).
    ///
    /// # Errors
    /// As `alter_tables`; `DefinitionChanged` if a table has changed since. What was built is gone then.
    pub fn alter_tables_with(
        self: &Arc<Self>,
        session: Option<&Session>,
        defs: Vec<TableDef>,
        change: &Alteration,
        checks: bool,
        mut builds: Vec<IndexBuild>,
    ) -> Result<()> {
        let mut tables = Vec::with_capacity(defs.len());
        for def in &defs {
            let table = self.catalog.find(&def.name)?;
            self.refuse_own_changes(session, &table)?;
            tables.push(table);
        }
        let locked = self.lock_all_for_ddl(session, &tables)?;
        builds.iter_mut().try_for_each(IndexBuild::catch_up_last)?;
        let _turn = self.ddl.lock();
        let mut changed: Vec<Redefined> = Vec::new();
        for def in defs {
            let table = self.catalog.find(&def.name)?;
            let build = builds.iter().find(|build| build.is_of(&table));
            build.map_or(Ok(()), |build| build.check_still_true(&table))?;
            let new_id = |index: &IndexDef, number: usize| match build {
                Some(build) => build.id_of(index, number),
                None => Err(format!("index '{}' is to be built", index.name)),
            };
            let of_one = self.altered_definitions(&table, def, change, &new_id)?;
            self.check_redefinitions(&of_one, checks)?;
            changed.extend(of_one);
        }
        let is_altered = |build: &IndexBuild| changed.iter().any(|(table, _)| build.is_of(table));
        if !builds.iter().all(is_altered) {
            return Err(Error::Invalid(
                "an index was built for a table that is not altered".into(),
            ));
        }
        let op = |(_, def): &Redefined| CatalogOp::Put(Box::new(def.clone()), 1);
        let ops: Vec<CatalogOp> = changed.iter().map(op).collect();
        self.log_ddl_with(&ops, &mut builds, Space::Row)?;
        self.publish_altered(&changed, &builds);
        stop_point!("ddl.after_publish");
        drop(locked);
        Ok(())
    }

    /// Versions that are not committed have no place in an ALTER (rule AL13).
    pub(crate) fn refuse_own_changes(&self, session: Option<&Session>, table: &Arc<Table>) -> Result<()> {
        let own = session.map(Session::txn).filter(|own| own.raw() != 0);
        let holders = self.table_locks.holders(table.id);
        if own.is_some_and(|own| holders.iter().any(|(txn, _)| *txn == own)) {
            return Err(Error::NeedsCopy {
                table: table.name().to_string(),
                why: "this transaction has changed it: COMMIT first".into(),
            });
        }
        Ok(())
    }

    /// The table's next definition, and those that follow its changes.
    fn altered_definitions(
        &self,
        table: &Arc<Table>,
        def: TableDef,
        change: &Alteration,
        new_id: NewId<'_>,
    ) -> Result<Vec<Redefined>> {
        let old = table.def();
        let mut def = change.applied(&old, def, new_id)?;
        keep_meaning(&mut def.foreign_keys, &old.foreign_keys);
        let renames = renamed(&old, &def, &change.columns);
        follow(&mut def.foreign_keys, &old.name, &renames);
        let mut image = Vec::new();
        def.encode(&mut image);
        if image.len() + RECORD_BYTES > self.log.record_bytes_max() {
            return Err(Error::NeedsCopy {
                table: old.name.clone(),
                why: "its definition, with the columns that older rows have, takes more bytes than the log has for one record"
                    .into(),
            });
        }
        let mut changed = vec![(Arc::clone(table), def)];
        changed.extend(self.followers(table, &old.name, &renames));
        Ok(changed)
    }

    /// Lets everybody meet the altered tables, whose constraints are bound and whose indexes have their entries by then.
    fn publish_altered(&self, changed: &[Redefined], builds: &[IndexBuild]) {
        builds.iter().for_each(IndexBuild::install);
        let mut altered: Vec<(Arc<Table>, Arc<Table>)> = Vec::new();
        for (table, def) in changed {
            if table.takes(def) {
                self.catalog.alter(table, def);
            } else {
                let build = builds.iter().find(|build| build.is_of(table));
                let next = table.altered(def.clone(), build.map(IndexBuild::next));
                altered.push((Arc::clone(table), Arc::new(next)));
            }
        }
        let next: HashMap<_, _> = altered.iter().map(|(old, new)| (old.id, new)).collect();
        let mut tables = self.catalog.tables();
        for table in &mut tables {
            if let Some(new) = next.get(&table.id) {
                *table = Arc::clone(new);
            }
        }
        self.bind_references_among(&tables);
        for (old, new) in altered {
            self.note_what_goes(&old, &new);
            self.catalog.replace(&old, new);
        }
    }

    /// Files of dropped indexes, and values of dropped columns (rules AL10, AL14).
    fn note_what_goes(&self, old: &Table, new: &Table) {
        let gone = old
            .indexes
            .iter()
            .filter(|index| new.index_by_id(index.def.id).is_none());
        let bytes: u64 = gone
            .flat_map(|index| index.parts().runs.clone())
            .map(|run| run.stored_bytes())
            .sum();
        self.maintenance.note_dropped(bytes);
        let version = old.schema().version();
        let step = new
            .versions()
            .older()
            .find(|older| older.schema.version() == version);
        let Some(step) = step else { return };
        let mut columns = step.schema.columns().iter().enumerate();
        let goes = |column: usize| !step.origins.contains(&Origin::Column(column as u16));
        if columns.any(|(number, column)| can_be_large(column.kind) && goes(number)) {
            self.suspect_values();
        }
    }
}
