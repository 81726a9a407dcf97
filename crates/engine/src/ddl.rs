//! DDL: create, drop, rename, truncate; each atomic, durable on return.
//!
//! Why it exists: a definition changes under running transactions; the rules about who waits for whom are here.
//! Rules: K4 one statement, one transaction with its own END. T19 DDL takes the table exclusively: it waits for every
//! transaction that wrote the table, prepared ones without a session included. Temporary tables belong to one session
//! and are not locked.
//! Latches and I/O: one latch for all DDL, held across the log flush: DDL is rare and its order must be the log's.
//! After a crash: either all of a statement is there or nothing.

use crate::catalog::CatalogOp;
use crate::commit::append;
use crate::database::Database;
use crate::definition::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::session::{FlushAtCommit, Session};
use crate::table::Table;
use crate::waits::Turn;
use pbxt_base::{CommitTs, TableId, TxnId, stop_point};
use pbxt_txlog::{CatalogRecord, EndRecord, Outcome, Space};
use pbxt_txn::{LockMode, Resource};
use std::sync::Arc;

impl Database {
    /// Creates a table. Ids in `def` are given here.
    pub fn create_table(self: &Arc<Self>, mut def: TableDef, next_auto_increment: u64) -> Result<Arc<Table>> {
        let _turn = self.ddl.lock();
        if self.catalog.by_name(&def.name).is_some() {
            return Err(Error::TableExists { name: def.name });
        }
        def.id = self.catalog.next_table_id();
        def.created = self.clock.unix_seconds();
        for index in &mut def.indexes {
            index.id = self.catalog.next_index_id();
            index.spec.check(&def.schema)?;
        }
        let next_auto_increment = next_auto_increment.max(1);
        let ts = self.log_ddl(&[CatalogOp::Put(Box::new(def.clone()), next_auto_increment)])?;
        let table = Arc::new(Table::new(def, ts, next_auto_increment, 0));
        self.catalog.put(Arc::clone(&table));
        stop_point!("ddl.after_publish");
        Ok(table)
    }

    /// Drops a table.
    pub fn drop_table(self: &Arc<Self>, session: Option<&Session>, name: &str) -> Result<()> {
        let table = self.catalog.find(name)?;
        let locked = self.lock_for_ddl(session, &table)?;
        let _turn = self.ddl.lock();
        self.log_ddl(&[CatalogOp::Drop(table.id)])?;
        self.catalog.remove(table.id);
        self.maintenance.note_dropped(table.stored_bytes());
        self.suspect_values();
        self.row_locks.forget_table(table.id);
        drop(locked);
        Ok(())
    }

    /// Renames a table. Fine if `from` is gone and `to` is there: the statement was done before.
    pub fn rename_table(self: &Arc<Self>, session: Option<&Session>, from: &str, to: &str) -> Result<()> {
        let table = self.catalog.find(from)?;
        let locked = self.lock_for_ddl(session, &table)?;
        let _turn = self.ddl.lock();
        if self.catalog.by_name(to).is_some() {
            return Err(Error::TableExists { name: to.to_owned() });
        }
        self.log_ddl(&[CatalogOp::Rename(table.id, to.to_owned())])?;
        self.catalog.rename(table.id, to);
        drop(locked);
        Ok(())
    }

    /// Empties a table: a new generation under the same name, auto-increment from 1.
    pub fn truncate_table(self: &Arc<Self>, session: Option<&Session>, name: &str) -> Result<()> {
        let old = self.catalog.find(name)?;
        let locked = self.lock_for_ddl(session, &old)?;
        let _turn = self.ddl.lock();
        let def = self.next_generation(&old.def());
        let ops = [CatalogOp::Drop(old.id), CatalogOp::Put(Box::new(def.clone()), 1)];
        let ts = self.log_ddl(&ops)?;
        self.catalog.remove(old.id);
        self.maintenance.note_dropped(old.stored_bytes());
        self.suspect_values();
        self.catalog.put(Arc::new(Table::new(def, ts, 1, 0)));
        drop(locked);
        Ok(())
    }

    fn next_generation(&self, old: &TableDef) -> TableDef {
        let fresh = |index: &IndexDef| IndexDef {
            id: self.catalog.next_index_id(),
            ..index.clone()
        };
        TableDef {
            id: self.catalog.next_table_id(),
            indexes: old.indexes.iter().map(fresh).collect(),
            ..old.clone()
        }
    }

    /// Waits until nobody else has the table (rule T19); the answer holds it until dropped.
    fn lock_for_ddl(
        self: &Arc<Self>,
        session: Option<&Session>,
        table: &Arc<Table>,
    ) -> Result<Option<Session>> {
        if table.temporary {
            return Ok(None);
        }
        let mut holder = match session {
            Some(session) => session.for_ddl(),
            None => Session::open(self, 0, 0),
        };
        let own = session.map_or(TxnId::new(0), Session::txn);
        if own.raw() != 0
            && self
                .table_locks
                .holders(table.id)
                .iter()
                .any(|(txn, _)| *txn == own)
        {
            self.wait_for_others(&mut holder, own, table)?;
        } else {
            holder.lock_table(table, LockMode::Exclusive)?;
        }
        Ok(Some(holder))
    }

    /// The statement's own session has written the table: its locks do not stand against itself, and the host keeps new
    /// writers away.
    fn wait_for_others(self: &Arc<Self>, holder: &mut Session, own: TxnId, table: &Arc<Table>) -> Result<()> {
        holder.ensure_txn()?;
        let mut turn = Turn::none(&self.waits);
        loop {
            let others = || self.table_locks.blockers(own, table.id, LockMode::Exclusive);
            if others().is_empty() {
                return Ok(());
            }
            holder.wait(
                &mut turn,
                table,
                Resource::Table(table.id),
                LockMode::Exclusive,
                false,
                others,
            )?;
        }
    }

    /// Logs one DDL transaction, durable on return (rule K4).
    fn log_ddl(&self, ops: &[CatalogOp]) -> Result<CommitTs> {
        self.poison.check()?;
        let txn = self.txns.begin();
        let logged = ops
            .iter()
            .enumerate()
            .try_for_each(|(position, op)| self.log_op(txn, position == 0, op));
        if let Err(error) = logged {
            self.abort(txn, true)?;
            return Err(error);
        }
        stop_point!("ddl.after_append");
        let (ts, end) = self.txns.commit_critical(txn, |ts| -> Result<_> {
            let record = EndRecord {
                txn,
                outcome: Outcome::Commit(ts),
                deltas: &[],
                voids: &[],
            };
            let mut reservation = self.log.reserve(record.encoded_len(), Space::Spare)?;
            record.encode_into(reservation.bytes_mut());
            Ok(reservation.publish())
        })?;
        self.wait_for(end, FlushAtCommit::Durable)?;
        Ok(ts)
    }

    fn log_op(&self, txn: TxnId, first: bool, op: &CatalogOp) -> Result<()> {
        let (op, bytes) = op.encode();
        let record = CatalogRecord {
            first,
            txn,
            op,
            bytes: &bytes,
        };
        append(&self.log, record.encoded_len(), |out| record.encode_into(out))?;
        Ok(())
    }

    /// The table generation of a name, for callers that only want to know whether it exists.
    pub fn table_id(&self, name: &str) -> Option<TableId> {
        self.catalog.by_name(name).map(|table| table.id)
    }
}
