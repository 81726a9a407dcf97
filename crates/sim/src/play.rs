//! Play: one random operation after the other, each compared with the model.
//!
//! Why it exists: the mix of operations is what finds mistakes; it stands in one table, `Play::choose`.
//! Rules held: every choice comes from the world's random numbers, so that a seed plays the same life again.

use crate::model::{Fault, Faults, Spot, either};
use crate::table::{LARGE, PlayRow, PlayTable};
use crate::world::{SESSIONS, Step, World};
use pbxt::{FlushAtCommit, Seek};
use pbxt_base::{RowId, TableId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names that tables have.
const NAMES: [&str; 3] = ["one", LEAN, "three"];
/// Who gets this name when it is created is lean.
const LEAN: &str = "two";

impl World {
    /// Plays so many operations.
    pub fn play(&mut self, operations: u64) -> Step {
        for _ in 0..operations {
            self.step()?;
        }
        Ok(())
    }

    /// Plays one operation.
    pub fn step(&mut self) -> Step {
        let me = self.rng.below(SESSIONS as u64) as usize;
        let choice = self.rng.below(100);
        let Some(name) = self.some_table() else {
            return self.create_table(me);
        };
        if self.model.txns[me].prepared.is_some() {
            return self.end_prepared_of_session(me, choice);
        }
        match choice {
            0..24 => self.insert(me, &name),
            24..29 => self.insert_several(me, &name),
            29..47 => self.change(me, &name, false),
            47..54 => self.change(me, &name, true),
            54..61 => self.read(me, &name),
            61..66 => self.seek(me, &name),
            66..70 => self.savepoint(me),
            70..74 => self.roll_back_to(me),
            74..85 => self.commit(me),
            85..88 => self.rollback(me),
            88..91 => self.prepare(me),
            91..94 => self.end_detached(),
            94..96 => self.reserve_values(&name),
            96 => self.ddl(me, &name),
            97 => self.check(me, &name),
            98 => {
                self.db().housekeeping_step();
                Ok(())
            }
            _ => self.restart(),
        }
    }

    fn some_table(&mut self) -> Option<String> {
        let names: Vec<String> = self.model.state.names.keys().cloned().collect();
        if names.is_empty() {
            return None;
        }
        Some(names[self.rng.below(names.len() as u64) as usize].clone())
    }

    fn table(&mut self, name: &str) -> Step<PlayTable> {
        let opened = PlayTable::open(self.db(), name);
        match self.judge("open a table", opened, &Faults::new())? {
            Some(table) => Ok(table),
            None => Err(self.wrong(&format!("table '{name}' could not be opened"))),
        }
    }

    fn some_row(&mut self) -> PlayRow {
        let mut row = PlayRow::new(self.rng.below(30) as u32);
        self.reshape(&mut row);
        row
    }

    /// Changes the columns beside the id.
    fn reshape(&mut self, row: &mut PlayRow) {
        row.group = self.rng.chance(80).then(|| self.rng.below(4) as u32);
        row.tag = self.rng.chance(50).then(|| self.rng.below(20) as u32);
        row.name = vec![b'a' + self.rng.below(5) as u8; self.rng.below(6) as usize];
        let length = match self.rng.below(10) {
            0..5 => None,
            5..8 => Some(self.rng.below(60)),
            8 => Some(LARGE as u64 - 2 + self.rng.below(4)),
            _ => Some(self.rng.below(20_000)),
        };
        row.memo = length.map(|length| {
            let mut bytes = vec![0; length as usize];
            self.rng.fill(&mut bytes);
            Arc::from(bytes)
        });
    }

    fn mutate(&mut self, old: &PlayRow) -> PlayRow {
        let mut new = old.clone();
        match self.rng.below(6) {
            0 => new.id = self.rng.below(30) as u32,
            1 => new.tag = self.rng.chance(70).then(|| self.rng.below(20) as u32),
            2 => new.group = self.rng.chance(70).then(|| self.rng.below(4) as u32),
            3 => new.name = vec![b'a' + self.rng.below(5) as u8; self.rng.below(6) as usize],
            4 => self.reshape(&mut new),
            _ => {}
        }
        new
    }

    /// Mostly a row that there is, sometimes one that was or never will be.
    fn some_spot(&mut self, me: usize, table: TableId) -> Spot {
        let mut known: Vec<Spot> = self.model.state.rows.keys().copied().collect();
        known.extend(self.model.txns[me].pending.rows.keys().copied());
        known.retain(|spot| spot.0 == table);
        if known.is_empty() || self.rng.chance(8) {
            return (table, RowId::new(1 + self.rng.below(40)));
        }
        known[self.rng.below(known.len() as u64) as usize]
    }

    /// In every second case the primary key of a row that this transaction has removed, if there is one (rule T51).
    fn some_removed_id(&mut self, me: usize, table: TableId) -> Option<u32> {
        let state = &self.model.state.rows;
        let pending = self.model.txns[me].pending.rows.iter();
        let removed = pending.filter(|(spot, change)| spot.0 == table && change.now.is_none());
        let ids: Vec<u32> = removed
            .filter_map(|(spot, _)| state.get(spot).map(|row| row.id))
            .collect();
        if ids.is_empty() || self.rng.chance(50) {
            return None;
        }
        Some(ids[self.rng.below(ids.len() as u64) as usize])
    }

    fn insert(&mut self, me: usize, name: &str) -> Step {
        let table = self.table(name)?;
        let mut row = self.some_row();
        if let Some(id) = self.some_removed_id(me, table.id()) {
            row.id = id;
        }
        self.note(format!("{me}: insert into {name} {}", row.brief()));
        let held = self.model.txns[me].pending.tables.clone();
        let faults = self.model.predict_insert(me, table.id(), &row);
        let inserted = self.clients[me].insert(&table, &row);
        if let Some(id) = self.judge_change(me, "insert", held, inserted, &faults)? {
            self.note(format!("   row {id}"));
            self.model.note_change(me, (table.id(), id), None, Some(&row));
        }
        Ok(())
    }

    /// Judges a change of rows; `held` are the tables that the session held before it.
    fn judge_change<T>(
        &mut self,
        me: usize,
        what: &str,
        held: BTreeSet<TableId>,
        result: pbxt::Result<T>,
        faults: &Faults,
    ) -> Step<Option<T>> {
        let refused = self.refused;
        let done = self.judge(what, result, faults)?;
        if self.refused > refused {
            self.model.note_refusal(me, held);
        }
        Ok(done)
    }

    /// One statement, several rows: all or none.
    fn insert_several(&mut self, me: usize, name: &str) -> Step {
        let table = self.table(name)?;
        let rows: Vec<PlayRow> = (0..2 + self.rng.below(3)).map(|_| self.some_row()).collect();
        self.note(format!(
            "{me}: insert into {name} {}",
            rows.iter().map(PlayRow::brief).collect::<Vec<_>>().join(", ")
        ));
        let before = self.model.txns[me].pending.clone();
        let mut faults = Faults::new();
        for (number, row) in rows.iter().enumerate() {
            faults = either(faults, self.model.predict_insert(me, table.id(), row));
            if !faults.is_empty() && !faults.contains(&Fault::Maybe) {
                break;
            }
            // The true row id is not known yet; any that nobody has will do for the prediction.
            let spot = (table.id(), RowId::new((1 << 40) + number as u64));
            self.model.note_change(me, spot, None, Some(row));
        }
        let inserted = self.clients[me].insert_all(&table, &rows);
        let inserted = self.judge_change(me, "insert", before.tables, inserted, &faults)?;
        self.model.txns[me].pending.rows = before.rows;
        for (id, row) in inserted.iter().flatten().zip(&rows) {
            self.model.note_change(me, (table.id(), *id), None, Some(row));
        }
        Ok(())
    }

    fn change(&mut self, me: usize, name: &str, deletes: bool) -> Step {
        let table = self.table(name)?;
        let spot = self.some_spot(me, table.id());
        let verb = if deletes { "delete" } else { "update" };
        self.note(format!("{me}: {verb} in {name} row {}", spot.1));
        let fetched = match self.model.predict_fetch(me, spot) {
            Ok(fetched) => fetched,
            Err(faults) => {
                let result = self.clients[me].delete(&table, spot.1).map(|_| ());
                return self.judge(verb, result, &faults).map(|_| ());
            }
        };
        let Some(old) = fetched else {
            let found = self.clients[me].delete(&table, spot.1);
            return match self.judge(verb, found, &Faults::new())? {
                Some(Some(row)) => Err(self.wrong(&format!("{verb} found {}, expected no row", row.brief()))),
                _ => Ok(()),
            };
        };
        let new = (!deletes).then(|| self.mutate(&old));
        self.note(format!(
            "   {} to {}",
            old.brief(),
            new.as_ref().map_or("nothing".into(), PlayRow::brief)
        ));
        let held = self.model.txns[me].pending.tables.clone();
        let faults = self.model.predict_change(me, spot, &old, new.as_ref());
        let result = match &new {
            Some(new) => {
                let updated = self.clients[me].update(&table, spot.1, |_| new.clone());
                updated.map(|pair| pair.map(|(old, _)| old))
            }
            None => self.clients[me].delete(&table, spot.1),
        };
        let found = if deletes && faults.is_empty() {
            self.must(verb, result)?
        } else if let Some(found) = self.judge_change(me, verb, held, result, &faults)? {
            found
        } else {
            return Ok(());
        };
        if found.as_ref() != Some(&old) {
            return Err(self.wrong(&format!("{verb} found {found:?}, expected {old:?}")));
        }
        self.model.note_change(me, spot, Some(&old), new.as_ref());
        Ok(())
    }

    fn read(&mut self, me: usize, name: &str) -> Step {
        let table = self.table(name)?;
        self.note(format!("{me}: read {name}"));
        let (expected, faults) = match self.model.visible(me, table.id()) {
            Ok(rows) => (rows, Faults::new()),
            Err(faults) => (crate::model::Rows::new(), faults),
        };
        let Some(rows) = self.agreed(me, &table, &faults)? else {
            return Ok(());
        };
        let found = rows
            .into_iter()
            .map(|(id, row)| ((table.id(), id), row))
            .collect();
        if expected != found {
            return Err(self.wrong(&format!("read {found:?}, expected {expected:?}")));
        }
        Ok(())
    }

    fn seek(&mut self, me: usize, name: &str) -> Step {
        let table = self.table(name)?;
        let (index, wanted) = (self.rng.below(3) as usize, self.rng.below(30) as u32);
        let prefix = table.prefix(index, &[Some(wanted % [30, 5, 20][index])]);
        let seek = [
            Seek::Exact,
            Seek::OrNext,
            Seek::After,
            Seek::OrPrev,
            Seek::Before,
            Seek::Last,
        ][self.rng.below(6) as usize];
        // Of the unique ones what is sought is a whole key.
        let seek = match seek {
            Seek::Exact if index != 1 && !wanted.is_multiple_of(4) => Seek::Key,
            other => other,
        };
        self.note(format!("{me}: seek in {name} index {index} {seek:?} {wanted}"));
        let (rows, faults) = match self.model.visible(me, table.id()) {
            Ok(rows) => (rows, Faults::new()),
            Err(faults) => (crate::model::Rows::new(), faults),
        };
        let mut keys: Vec<(Vec<u8>, RowId)> = rows
            .iter()
            .map(|(spot, row)| (table.key(index, row), spot.1))
            .collect();
        keys.sort();
        let begins = |key: &Vec<u8>| key.starts_with(&prefix);
        let is_below = |key: &Vec<u8>| *key < prefix && !begins(key);
        let is_above = |key: &Vec<u8>| *key > prefix && !begins(key);
        let expected = match seek {
            Seek::Exact | Seek::Key => keys.iter().find(|(key, _)| begins(key)),
            Seek::OrNext => keys.iter().find(|(key, _)| !is_below(key)),
            Seek::After => keys.iter().find(|(key, _)| is_above(key)),
            Seek::OrPrev => keys.iter().rev().find(|(key, _)| !is_above(key)),
            Seek::Before => keys.iter().rev().find(|(key, _)| is_below(key)),
            Seek::Last => keys.iter().rev().find(|(key, _)| begins(key)),
        };
        // Of a whole key the first search may leave a hint that the second one follows (rule X58).
        self.db().give_hints();
        let times = if seek == Seek::Key { 2 } else { 1 };
        for _ in 0..times {
            let found = self.clients[me].seek(&table, index, &prefix, seek);
            let Some(found) = self.judge("seek", found, &faults)? else {
                return Ok(());
            };
            if found.as_ref().map(|(id, _)| *id) != expected.map(|(_, id)| *id) {
                return Err(self.wrong(&format!("seek found {found:?}, expected {expected:?}")));
            }
        }
        Ok(())
    }

    fn savepoint(&mut self, me: usize) -> Step {
        self.note(format!("{me}: savepoint"));
        let made = self.clients[me].session.savepoint();
        if let Some(lsn) = self.judge("savepoint", made, &Faults::new())? {
            let txn = &mut self.model.txns[me];
            if txn.savepoints.last().is_none_or(|(newest, _)| *newest < lsn) {
                let rows = txn.pending.rows.clone();
                txn.savepoints.push((lsn, rows));
            }
        }
        Ok(())
    }

    fn roll_back_to(&mut self, me: usize) -> Step {
        let count = self.model.txns[me].savepoints.len() as u64;
        if count == 0 {
            return self.savepoint(me);
        }
        let position = self.rng.below(count) as usize;
        self.roll_back_to_position(me, position)?;
        self.come_back(me, position)
    }

    /// Sometimes a removed row comes back once or twice more, and each time the same savepoint takes it away.
    fn come_back(&mut self, me: usize, position: usize) -> Step {
        let removed = self.model.txns[me].pending.rows.iter();
        let removed = removed.filter(|(_, change)| change.now.is_none());
        let tables: Vec<TableId> = removed.map(|((table, _), _)| *table).collect();
        let mut names = self.model.state.names.iter();
        let name = names.find(|(_, table)| tables.contains(*table));
        let Some(name) = name.map(|(name, _)| name.clone()) else {
            return Ok(());
        };
        for _ in 0..self.rng.below(3) {
            self.insert(me, &name)?;
            if self.model.txns[me].savepoints.len() <= position {
                // It was rolled back whole.
                return Ok(());
            }
            self.roll_back_to_position(me, position)?;
        }
        Ok(())
    }

    fn roll_back_to_position(&mut self, me: usize, position: usize) -> Step {
        self.note(format!("{me}: rollback to savepoint {position}"));
        let lsn = self.model.txns[me].savepoints[position].0;
        let undone = self.clients[me].session.rollback_to(lsn);
        self.must("rollback to savepoint", undone)?;
        self.model.roll_back_to(me, position);
        Ok(())
    }

    fn commit(&mut self, me: usize) -> Step {
        let flush = self.clients[me].session.config().flush;
        self.note(format!("{me}: commit {flush:?}"));
        let mode = self.model.txns[me].mode;
        let is_logged = self.clients[me].session.has_changes();
        self.model.commit(me, mode);
        self.request();
        let done = self.clients[me].session.commit();
        self.must("commit", done)?;
        if is_logged {
            self.acknowledge(flush);
        }
        if self.rng.chance(40) {
            // What nobody can see any more may be forgotten from now on.
            self.db().housekeeping_step();
        }
        self.model.txns[me].mode = self.next_mode(me);
        Ok(())
    }

    fn rollback(&mut self, me: usize) -> Step {
        self.note(format!("{me}: rollback"));
        let mode = self.next_mode(me);
        self.model.rollback(me, mode);
        let done = self.clients[me].session.rollback();
        self.must("rollback", done)?;
        Ok(())
    }

    fn prepare(&mut self, me: usize) -> Step {
        if self.model.txns[me].pending.rows.is_empty() {
            return Ok(());
        }
        let xid = format!("xid {}", self.next_xid).into_bytes();
        self.next_xid += 1;
        self.note(format!("{me}: prepare {}", self.next_xid - 1));
        self.model.prepare(me, &xid);
        self.request();
        let done = self.clients[me].session.prepare(&xid);
        self.judge("prepare", done, &Faults::new())?;
        self.acknowledge(FlushAtCommit::Durable);
        Ok(())
    }

    /// A session with a prepared transaction can only end it or let go of it.
    fn end_prepared_of_session(&mut self, me: usize, choice: u64) -> Step {
        match choice {
            0..30 => self.commit(me),
            30..60 => self.commit_ordered(me),
            60..75 => self.rollback_attached(me),
            _ => {
                self.note(format!("{me}: detach"));
                self.clients[me].session.detach_prepared();
                let mode = self.next_mode(me);
                self.model.detach(me, mode);
                Ok(())
            }
        }
    }

    /// The host's own log has decided: visible at once, durable later.
    fn commit_ordered(&mut self, me: usize) -> Step {
        self.note(format!("{me}: commit ordered"));
        let mode = self.model.txns[me].mode;
        self.model.commit(me, mode);
        self.request();
        let visible = self.clients[me].session.commit_ordered();
        self.must("commit_ordered", visible)?;
        let done = self.clients[me].session.commit();
        self.must("commit after commit_ordered", done)?;
        self.model.txns[me].mode = self.next_mode(me);
        Ok(())
    }

    fn rollback_attached(&mut self, me: usize) -> Step {
        self.note(format!("{me}: rollback of the prepared transaction"));
        let mode = self.next_mode(me);
        self.model.rollback(me, mode);
        self.request();
        let done = self.clients[me].session.rollback();
        self.must("rollback of a prepared transaction", done)?;
        Ok(())
    }

    fn end_detached(&mut self) -> Step {
        let attached: Vec<_> = self
            .model
            .txns
            .iter()
            .filter_map(|txn| txn.prepared.clone())
            .collect();
        let mut xids: Vec<_> = self.model.state.prepared.keys().cloned().collect();
        xids.retain(|xid| !attached.contains(xid));
        if xids.is_empty() {
            return Ok(());
        }
        let xid = xids[self.rng.below(xids.len() as u64) as usize].clone();
        let commits = self.rng.chance(70);
        self.note(format!(
            "end prepared {} commit={commits}",
            String::from_utf8_lossy(&xid)
        ));
        self.model.end_prepared(&xid, commits);
        self.request();
        let db = Arc::clone(self.db());
        let done = if commits {
            db.commit_prepared(&xid)
        } else {
            db.rollback_prepared(&xid)
        };
        self.must("end of a prepared transaction", done)?;
        self.acknowledge(FlushAtCommit::Durable);
        Ok(())
    }

    fn reserve_values(&mut self, name: &str) -> Step {
        let table = self.table(name)?;
        let count = 1 + self.rng.below(600);
        self.note(format!("reserve {count} values of {name}"));
        let db = Arc::clone(self.db());
        let reserved = table.table.autoinc.reserve(db.log(), table.id(), 1, 1, count);
        let Some(reserved) = self.judge("reserve values", reserved, &Faults::new())? else {
            return Ok(());
        };
        let last = self.values.entry(table.id()).or_default();
        if reserved.first <= *last {
            let last = *last;
            return Err(self.wrong(&format!(
                "A1: value {} given again, {last} was the last",
                reserved.first
            )));
        }
        *last = reserved.first + reserved.count - 1;
        Ok(())
    }

    fn check(&mut self, me: usize, name: &str) -> Step {
        let table = self.table(name)?;
        self.note(format!("{me}: check {name}"));
        let faults = self.model.visible(me, table.id()).err().unwrap_or_default();
        let found = self.clients[me].check(&table);
        match self.judge("check", found, &faults)? {
            Some(findings) if !findings.is_empty() => Err(self.wrong(&format!("check finds {findings:?}"))),
            _ => Ok(()),
        }
    }

    fn restart(&mut self) -> Step {
        if self.rng.chance(50) {
            self.close()?;
        } else {
            self.kill();
        }
        self.open()
    }

    fn create_table(&mut self, me: usize) -> Step {
        let name = NAMES
            .into_iter()
            .find(|name| !self.model.state.names.contains_key(*name))
            .unwrap_or(NAMES[0]);
        self.note(format!("{me}: create {name}"));
        let before = self.model.clone();
        self.model.create(name, TableId::new(0));
        self.request();
        let db = Arc::clone(self.db());
        let created = if name == LEAN {
            PlayTable::create_lean(&db, name)
        } else {
            PlayTable::create(&db, name)
        };
        let created = self.judge("create table", created, &Faults::new())?;
        self.model = before;
        if let Some(table) = &created {
            self.model.create(name, table.id());
        }
        self.correct_request();
        if created.is_some() {
            self.acknowledge(FlushAtCommit::Durable);
        }
        Ok(())
    }

    /// DDL by a session that has not changed anything.
    fn ddl(&mut self, me: usize, name: &str) -> Step {
        if self.model.may_hold(me) {
            return Ok(());
        }
        let db = Arc::clone(self.db());
        let id = self.model.state.names[name];
        let faults = self.model.ddl_faults(id);
        let before = self.model.clone();
        let free = NAMES
            .into_iter()
            .find(|name| !self.model.state.names.contains_key(*name));
        let choice = self.rng.below(4);
        let done = match (choice, free) {
            (0, Some(_)) => return self.create_table(me),
            (1, Some(to)) => {
                self.trace_ddl(me, "rename", name);
                self.model.rename(name, to);
                self.request();
                db.rename_table(Some(&self.clients[me].session), name, to)
            }
            (2, _) => {
                self.trace_ddl(me, "drop", name);
                self.model.drop_table(name);
                self.request();
                db.drop_table(Some(&self.clients[me].session), name)
            }
            _ => {
                self.trace_ddl(me, "truncate", name);
                self.model.drop_table(name);
                self.model.create(name, TableId::new(0));
                self.request();
                db.truncate_table(Some(&self.clients[me].session), name)
            }
        };
        if self.judge("DDL", done, &faults)?.is_none() {
            self.model = before;
            self.correct_request();
            return Ok(());
        }
        if let Some(table) = db.catalog.by_name(name).filter(|table| table.id != id) {
            self.model.drop_table(name);
            self.model.create(name, table.id);
        }
        self.correct_request();
        self.acknowledge(FlushAtCommit::Durable);
        Ok(())
    }

    fn trace_ddl(&mut self, me: usize, verb: &str, name: &str) {
        self.note(format!("{me}: {verb} {name}"));
    }
}
