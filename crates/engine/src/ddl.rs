//! DDL: create, drop, rename, redefine, truncate; each atomic, durable on return.
//!
//! Why it exists: a definition changes under running transactions; the rules about who waits for whom are here.
//! Rules: K4 one statement, one transaction with its own END. T19 DDL takes the table exclusively: it waits for every
//! transaction that wrote the table, prepared ones without a session included. Temporary tables belong to one session
//! and are not locked. FK2, FK5 to FK7: constraints are checked before anything is logged, and bound before anybody meets the table.
//! EN18 before an encrypted table is logged, files are.
//! Latches and I/O: one latch for all DDL, held across the log flush: DDL is rare and its order must be the log's.
//! After a crash: either all of a statement is there or nothing.

use crate::catalog::CatalogOp;
use crate::database::Database;
use crate::definition::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::foreign_key::ForeignKey;
use crate::index_build::IndexBuild;
use crate::session::{FlushAtCommit, Session};
use crate::table::Table;
use crate::waits::Turn;
use pbxt_base::{CommitTs, TableId, TxnId, stop_point};
use pbxt_txlog::{CatalogRecord, EndRecord, Outcome, Space};
use pbxt_txn::{LockMode, Resource, TxnStatus};
use std::sync::Arc;

/// A table and its changed definition.
pub(crate) type Redefined = (Arc<Table>, TableDef);

/// What a new table is to be.
#[derive(Debug, Clone, Copy)]
pub struct Creation<'a> {
    /// Constraints that cannot be kept are refused (rules FK5, FK6).
    pub checks: bool,
    /// The table whose place it will take: the new one is provisional until then (rule FK8), and the names of its constraints may be
    /// those of the other.
    pub replaces: Option<&'a str>,
}

impl Default for Creation<'_> {
    fn default() -> Self {
        Self {
            checks: true,
            replaces: None,
        }
    }
}

/// What a change of a name means to constraints.
#[derive(Debug, Clone, Copy, Default)]
pub struct Renaming {
    /// Constraints go on to mean the name, whichever table has it (rule FK7).
    pub keep_references: bool,
    /// The table leaves a name that another one will take: it becomes provisional (rule FK8).
    pub sets_aside: bool,
    /// The table gets the name it was made for: it is provisional no more.
    pub takes_place: bool,
    /// Constraints that wait for the name have to fit (rule FK6).
    pub checks: bool,
}

impl Database {
    /// Creates a table. Ids in `def` are given here. Its constraints have to fit.
    pub fn create_table(self: &Arc<Self>, def: TableDef, next_auto_increment: u64) -> Result<Arc<Table>> {
        self.create_table_with(def, next_auto_increment, Creation::default())
    }

    /// Creates a table.
    ///
    /// # Errors
    /// `TableExists`; `BadForeignKey` for a constraint that cannot be kept; `ForeignKeyNameTaken`; `NoKey` if it is to be encrypted and
    /// there is no key for that.
    pub fn create_table_with(
        self: &Arc<Self>,
        mut def: TableDef,
        next_auto_increment: u64,
        creation: Creation<'_>,
    ) -> Result<Arc<Table>> {
        let _turn = self.ddl.lock();
        if self.catalog.by_name(&def.name).is_some() {
            return Err(Error::TableExists { name: def.name });
        }
        def.id = self.catalog.next_table_id()?;
        def.created = self.clock.unix_seconds();
        def.provisional |= creation.replaces.is_some();
        for index in &mut def.indexes {
            index.id = self.catalog.next_index_id()?;
            index.spec.check(&def.schema)?;
        }
        self.check_new_constraints(&def, creation.replaces, creation.checks)?;
        self.ready_files_for(&def)?;
        let next_auto_increment = next_auto_increment.max(1);
        let ts = self.log_ddl(
            &[CatalogOp::Put(Box::new(def.clone()), next_auto_increment)],
            Space::Spare,
        )?;
        let table = Arc::new(Table::new(def, ts, next_auto_increment, 0));
        table.stand_in_for(creation.replaces.map(Arc::from));
        let mut tables = self.catalog.tables();
        tables.push(Arc::clone(&table));
        self.bind_references_among(&tables);
        self.catalog.put(Arc::clone(&table));
        stop_point!("ddl.after_publish");
        Ok(table)
    }

    /// Drops a table, whoever refers to it (rule FK2).
    pub fn drop_table(self: &Arc<Self>, session: Option<&Session>, name: &str) -> Result<()> {
        self.drop_table_unless(session, name, false)
    }

    /// Drops a table; with `unless_referenced` only if no other table refers to it, provisional ones aside.
    ///
    /// # Errors
    /// `RowIsReferenced` names the constraint that stands against it.
    pub fn drop_table_unless(
        self: &Arc<Self>,
        session: Option<&Session>,
        name: &str,
        unless_referenced: bool,
    ) -> Result<()> {
        let table = self.catalog.find(name)?;
        let locked = self.lock_for_ddl(session, &table)?;
        let _turn = self.ddl.lock();
        if unless_referenced {
            self.check_unreferenced(&table)?;
        }
        self.log_ddl(&[CatalogOp::Drop(table.id)], Space::Spare)?;
        let mut tables = self.catalog.tables();
        tables.retain(|other| other.id != table.id);
        // Rule FK23: who is refused because the table is gone can see that bindings have changed.
        self.bind_references_among(&tables);
        self.catalog.remove(table.id);
        self.maintenance.note_dropped(table.stored_bytes());
        self.suspect_values();
        self.row_locks.forget_table(table.id);
        drop(locked);
        Ok(())
    }

    /// Renames a table, also in the constraints that name it.
    pub fn rename_table(self: &Arc<Self>, session: Option<&Session>, from: &str, to: &str) -> Result<()> {
        let renaming = Renaming {
            checks: true,
            ..Renaming::default()
        };
        self.rename_table_with(session, from, to, renaming)
    }

    /// Renames a table.
    ///
    /// # Errors
    /// `TableExists`; `BadForeignKey` for a constraint that waits for the name and does not fit; `ForeignKeyNameTaken` for one that the
    /// table brings along.
    pub fn rename_table_with(
        self: &Arc<Self>,
        session: Option<&Session>,
        from: &str,
        to: &str,
        renaming: Renaming,
    ) -> Result<()> {
        let table = self.catalog.find(from)?;
        let locked = self.lock_for_ddl(session, &table)?;
        let _turn = self.ddl.lock();
        if self.catalog.by_name(to).is_some() {
            return Err(Error::TableExists { name: to.to_owned() });
        }
        let changed = self.renamed(&table, from, to, renaming)?;
        self.log_redefinitions(&changed)?;
        if renaming.takes_place {
            table.stand_in_for(None);
        }
        self.bind_references();
        drop(locked);
        Ok(())
    }

    /// Definitions after a change of a name: of the table, and of those that refer to it.
    fn renamed(
        &self,
        table: &Arc<Table>,
        from: &str,
        to: &str,
        renaming: Renaming,
    ) -> Result<Vec<Redefined>> {
        let mut def = TableDef::clone(&table.def());
        to.clone_into(&mut def.name);
        def.provisional = (def.provisional || renaming.sets_aside) && !renaming.takes_place;
        self.check_moved_names(&def, from)?;
        if renaming.checks && !def.provisional {
            self.check_waiting(&def, to)?;
        }
        if renaming.keep_references {
            return Ok(vec![(Arc::clone(table), def)]);
        }
        let rename = |def: &mut TableDef| {
            let keys = def.foreign_keys.iter_mut();
            let mut has_changed = false;
            for key in keys.filter(|key| key.parent == from) {
                to.clone_into(&mut key.parent);
                has_changed = true;
            }
            has_changed
        };
        rename(&mut def);
        let mut changed = vec![(Arc::clone(table), def)];
        for other in self
            .catalog
            .children()
            .iter()
            .filter(|other| other.id != table.id)
        {
            let mut def = TableDef::clone(&other.def());
            if rename(&mut def) {
                changed.push((Arc::clone(other), def));
            }
        }
        Ok(changed)
    }

    /// Exchanges what the host has told of a table: names and defaults of columns, its own image, options and constraints. Rows and keys stay as
    /// they are. A column that gets another name gets it in the constraints that refer to it, too.
    ///
    /// # Errors
    /// `DefinitionChanged` if stored columns or indexes differ; `BadForeignKey` for a constraint that cannot be kept.
    pub fn redefine_table(
        self: &Arc<Self>,
        session: Option<&Session>,
        mut def: TableDef,
        checks: bool,
    ) -> Result<()> {
        let table = self.catalog.find(&def.name)?;
        let locked = self.lock_for_ddl(session, &table)?;
        let _turn = self.ddl.lock();
        let old = table.def();
        take_identity(&mut def, &old)?;
        let renames = renamed_columns(&old, &def);
        follow(&mut def.foreign_keys, &old.name, &renames);
        let mut changed = vec![(Arc::clone(&table), def)];
        changed.extend(self.followers(&table, &old.name, &renames));
        self.check_redefinitions(&changed, checks)?;
        self.log_redefinitions(&changed)?;
        self.bind_references();
        drop(locked);
        Ok(())
    }

    /// Other tables whose constraints follow renamed columns of this one, with their next definitions. Asked of each part of a table,
    /// so only tables that have constraints are looked at (rule K6).
    pub(crate) fn followers(
        &self,
        table: &Table,
        name: &str,
        renames: &[(String, String)],
    ) -> Vec<Redefined> {
        if renames.is_empty() {
            return Vec::new();
        }
        let others = self
            .catalog
            .children()
            .into_iter()
            .filter(|other| other.id != table.id);
        let followed = others.filter_map(|other| {
            let mut def = TableDef::clone(&other.def());
            follow(&mut def.foreign_keys, name, renames).then_some((other, def))
        });
        followed.collect()
    }

    /// Logs changed definitions of known generations as one transaction and takes them over.
    fn log_redefinitions(&self, changed: &[Redefined]) -> Result<()> {
        let op = |(table, def): &Redefined| {
            let old = table.def();
            let is_name_only = old.provisional == def.provisional
                && old.foreign_keys == def.foreign_keys
                && old.host_image == def.host_image
                && old.host_record == def.host_record
                && old.name != def.name;
            if is_name_only {
                CatalogOp::Rename(table.id, def.name.clone())
            } else {
                CatalogOp::Put(Box::new(def.clone()), 1)
            }
        };
        let ops: Vec<CatalogOp> = changed.iter().map(op).collect();
        self.log_ddl(&ops, Space::Spare)?;
        for (table, def) in changed {
            self.catalog.alter(table, def);
        }
        Ok(())
    }

    /// Empties a table: a new generation under the same name, auto-increment from 1.
    pub fn truncate_table(self: &Arc<Self>, session: Option<&Session>, name: &str) -> Result<()> {
        let old = self.catalog.find(name)?;
        let locked = self.lock_for_ddl(session, &old)?;
        let _turn = self.ddl.lock();
        let def = self.next_generation(&old.def())?;
        let ops = [CatalogOp::Drop(old.id), CatalogOp::Put(Box::new(def.clone()), 1)];
        let ts = self.log_ddl(&ops, Space::Spare)?;
        let table = Arc::new(Table::new(def, ts, 1, 0));
        let mut tables = self.catalog.tables();
        tables.retain(|other| other.id != old.id);
        tables.push(Arc::clone(&table));
        self.bind_references_among(&tables);
        self.catalog.remove(old.id);
        self.maintenance.note_dropped(old.stored_bytes());
        self.suspect_values();
        self.catalog.put(table);
        drop(locked);
        Ok(())
    }

    fn next_generation(&self, old: &TableDef) -> Result<TableDef> {
        let fresh = |index: &IndexDef| -> Result<IndexDef> {
            Ok(IndexDef {
                id: self.catalog.next_index_id()?,
                ..index.clone()
            })
        };
        Ok(TableDef {
            id: self.catalog.next_table_id()?,
            indexes: old.indexes.iter().map(fresh).collect::<Result<_>>()?,
            // It has no rows.
            older: Vec::new(),
            ..old.clone()
        })
    }

    /// Waits until nobody else has the table (rule T19); the answer holds it until dropped.
    pub(crate) fn lock_for_ddl(
        self: &Arc<Self>,
        session: Option<&Session>,
        table: &Arc<Table>,
    ) -> Result<Option<Session>> {
        self.lock_all_for_ddl(session, std::slice::from_ref(table))
    }

    /// The same of several tables. One session has them all: who waits for one of them waits for whoever this waits for (rule T14).
    pub(crate) fn lock_all_for_ddl(
        self: &Arc<Self>,
        session: Option<&Session>,
        tables: &[Arc<Table>],
    ) -> Result<Option<Session>> {
        let shared: Vec<&Arc<Table>> = tables.iter().filter(|table| !table.temporary).collect();
        if shared.is_empty() {
            return Ok(None);
        }
        let mut holder = match session {
            Some(session) => session.for_ddl(),
            None => Session::open(self, 0, 0),
        };
        let own = session.map_or(TxnId::new(0), Session::txn);
        for table in shared {
            let holders = self.table_locks.holders(table.id);
            if own.raw() != 0 && holders.iter().any(|(txn, _)| *txn == own) {
                self.wait_for_others(&mut holder, own, table)?;
            } else {
                holder.lock_table(table, LockMode::Exclusive)?;
            }
        }
        Ok(Some(holder))
    }

    /// The statement's own session has written the table: its locks do not stand against itself, and the host keeps new
    /// writers away.
    fn wait_for_others(self: &Arc<Self>, holder: &mut Session, own: TxnId, table: &Arc<Table>) -> Result<()> {
        self.wait_while(holder, table, || {
            self.table_locks.blockers(own, table.id, LockMode::Exclusive)
        })
    }

    /// Waits until no prepared transaction has written to the table (rule T54), for who is about to copy it.
    ///
    /// # Errors
    /// `LockTimeout` after the session's limit, `Killed`.
    pub fn wait_for_prepared(self: &Arc<Self>, session: &Session, table: &Arc<Table>) -> Result<()> {
        let prepared = || {
            let guard = crossbeam_epoch::pin();
            let mut writers = self
                .table_locks
                .blockers(session.txn(), table.id, LockMode::Exclusive);
            writers.retain(|txn| self.txns.status(*txn, &guard) == TxnStatus::Prepared);
            writers
        };
        if prepared().is_empty() {
            return Ok(());
        }
        self.wait_while(&mut session.guest(), table, prepared)
    }

    /// Waits for the table until nobody is left that `others` names.
    fn wait_while(
        self: &Arc<Self>,
        holder: &mut Session,
        table: &Arc<Table>,
        others: impl Fn() -> Vec<TxnId>,
    ) -> Result<()> {
        holder.ensure_txn()?;
        let mut turn = Turn::none(&self.waits);
        while !others().is_empty() {
            let resource = Resource::Table(table.id);
            holder.wait(&mut turn, table, resource, LockMode::Exclusive, false, &others)?;
        }
        Ok(())
    }

    /// Logs one DDL transaction, durable on return (rule K4). What makes definitions grow asks for space as rows do, and leaves the reserve
    /// alone; on a full disk it is refused.
    pub(crate) fn log_ddl(&self, ops: &[CatalogOp], space: Space) -> Result<CommitTs> {
        self.log_ddl_with(ops, &mut [], space)
    }

    /// The same, with indexes that were built for the definitions (rule AL21).
    pub(crate) fn log_ddl_with(
        &self,
        ops: &[CatalogOp],
        builds: &mut [IndexBuild],
        space: Space,
    ) -> Result<CommitTs> {
        self.poison.check()?;
        let txn = self.txns.begin();
        let logged = ops
            .iter()
            .enumerate()
            .try_for_each(|(position, op)| self.log_op(txn, position == 0, op, space));
        let logged = logged.and_then(|()| builds.iter_mut().try_for_each(|build| build.log(txn, space)));
        if let Err(error) = logged {
            self.abort(txn, true)?;
            return Err(error);
        }
        builds.iter_mut().for_each(IndexBuild::keep_files);
        stop_point!("ddl.after_append");
        let committed = self.txns.commit_critical(txn, |ts| -> Result<_> {
            let record = EndRecord {
                txn,
                outcome: Outcome::Commit(ts),
                deltas: &[],
                voids: &[],
            };
            let mut reservation = self.log.reserve(record.encoded_len(), Space::Spare)?;
            record.encode_into(reservation.bytes_mut());
            Ok(reservation.publish())
        });
        let (ts, end) = match committed {
            Ok(committed) => committed,
            Err(error) => {
                // Without an END in the log it is aborted after a crash too.
                let _ = self.abort(txn, true);
                return Err(error);
            }
        };
        self.wait_for(end, FlushAtCommit::Durable)?;
        Ok(ts)
    }

    fn log_op(&self, txn: TxnId, first: bool, op: &CatalogOp, space: Space) -> Result<()> {
        let (op, bytes) = op.encode();
        let record = CatalogRecord {
            first,
            txn,
            op,
            bytes: &bytes,
        };
        let mut reservation = self.log.reserve_patiently(record.encoded_len(), space)?;
        record.encode_into(reservation.bytes_mut());
        reservation.publish();
        Ok(())
    }

    /// The table generation of a name, for callers that only want to know whether it exists.
    pub fn table_id(&self, name: &str) -> Option<TableId> {
        self.catalog.by_name(name).map(|table| table.id)
    }
}

/// Gives a changed definition the ids of the old one, if rows and keys are the same.
fn take_identity(def: &mut TableDef, old: &TableDef) -> Result<()> {
    let same_index = |(new, old): (&IndexDef, &IndexDef)| {
        new.name == old.name && new.spec == old.spec && (new.unique, new.primary) == (old.unique, old.primary)
    };
    def.schema = def.schema.clone().with_version(old.schema.version());
    let is_same = def.schema == old.schema
        && (def.compression, def.encrypted) == (old.compression, old.encrypted)
        && def.temporary == old.temporary
        && def.indexes.len() == old.indexes.len()
        && def.indexes.iter().zip(&old.indexes).all(same_index);
    if !is_same {
        return Err(Error::DefinitionChanged {
            table: old.name.clone(),
            why: "stored columns or indexes are not those it has: it has to be copied".into(),
        });
    }
    def.id = old.id;
    def.created = old.created;
    def.older.clone_from(&old.older);
    def.provisional = old.provisional;
    def.indexes.clone_from(&old.indexes);
    Ok(())
}

/// Columns with another name than before: old and new name.
fn renamed_columns(old: &TableDef, new: &TableDef) -> Vec<(String, String)> {
    let (Some(old), Some(new)) = (&old.host_record, &new.host_record) else {
        return Vec::new();
    };
    let pairs = old.columns.iter().zip(&new.columns);
    pairs
        .filter(|(old, new)| old.name != new.name)
        .map(|(old, new)| (old.name.clone(), new.name.clone()))
        .collect()
}

/// Gives the renamed columns of `parent` their new names in constraints that refer to them. True if there were any.
pub(crate) fn follow(keys: &mut [ForeignKey], parent: &str, renames: &[(String, String)]) -> bool {
    let mut has_changed = false;
    let keys = keys.iter_mut().filter(|key| key.parent == parent);
    for column in keys.flat_map(|key| &mut key.columns) {
        let is_it = |(old, _): &&(String, String)| old.to_lowercase() == column.parent.to_lowercase();
        if let Some((_, new)) = renames.iter().find(is_it) {
            column.parent.clone_from(new);
            has_changed = true;
        }
    }
    has_changed
}
