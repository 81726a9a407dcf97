//! Deeds: one random statement or end of a transaction after the other, each compared with the model.
//!
//! Why it exists: the mix is what finds mistakes; it stands in `Life::step`.
//! Rules: SM3 a statement fails if the model says so, and otherwise only because another transaction is in its way or the medium has
//! the trouble that it was told to have.

use crate::storage::life::{Life, Step, WRITERS};
use crate::storage::model::{Changes, Fault, Faults, View, text};
use crate::storage::rows::Row;
use crate::storage::shape::{PARENT, Shape, TEXT_MAX};
use pbxt::FlushAtCommit;
use std::sync::Arc;

/// What is done, as far as it matters for what may come of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed<'a> {
    /// It has to work.
    Read,
    /// It has to fail in one of these ways, and may meet others' locks.
    Change { faults: &'a Faults, may_wait: bool },
}

/// Ids that rows have, but for those of bulk loads.
const IDS: u64 = 60;
/// Values of the number that only one row may have.
const TAGS: u64 = 60;
/// Rows of a bulk load: together more than the least that is worth one.
const LOAD_ROWS: u64 = 500;
/// Ids of bulk loads begin here.
const LOAD_IDS: u64 = 1000;

impl Life {
    /// Plays so many steps.
    pub(super) fn play(&mut self, steps: u64) -> Step {
        (0..steps).try_for_each(|_| self.step())
    }

    /// One random step.
    pub(super) fn step(&mut self) -> Step {
        let me = self.rng.below(WRITERS as u64) as usize;
        let choice = self.rng.below(100);
        let Some(name) = self.some_table() else {
            return self.create_table(me);
        };
        if self.writers[me].xid.is_some() {
            return self.end_prepared(me, choice);
        }
        if self.building.is_some() && self.rng.chance(12) {
            return self.go_on_building(me);
        }
        match choice {
            0..18 => self.insert(me, &name),
            18..32 => self.update(me, &name),
            32..38 => self.delete(me, &name),
            38..42 => self.look_up(me, &name),
            42..46 => self.savepoint(me),
            46..50 => self.roll_back_to(me),
            50..62 => self.commit(me),
            62..65 => self.rollback(me),
            65..68 => self.prepare(me),
            68..70 => self.end_detached(),
            70..72 => self.load(me, &name),
            72..74 => self.delete_many(me, &name),
            74..79 => self.change_schema(me, &name),
            79..82 => self.change_reader(),
            82..84 => self.read_old(),
            84 => self.look_at(&name),
            _ => self.background(),
        }
    }

    fn some_table(&mut self) -> Option<String> {
        let names: Vec<&String> = self.state.tables.keys().collect();
        if names.is_empty() {
            return None;
        }
        let at = self.rng.below(names.len() as u64) as usize;
        names.get(at).map(|name| (*name).clone())
    }

    fn some_row(&mut self, shape: &Shape, id: u32) -> Row {
        let rng = &mut self.rng;
        let mut numbers = vec![
            Some(id),
            rng.chance(80).then(|| rng.below(5) as u32),
            rng.chance(50).then(|| rng.below(TAGS) as u32),
            None,
        ];
        numbers.extend(
            shape
                .added
                .iter()
                .map(|_| rng.chance(70).then(|| rng.below(8) as u32)),
        );
        let length = match rng.below(10) {
            0..3 => None,
            3..8 => Some(rng.below(120)),
            8 => Some(1500 + rng.below(1200)),
            _ => Some(TEXT_MAX as u64 - rng.below(900)),
        };
        let text = length.map(|length| {
            let mut bytes = vec![0; length as usize];
            rng.fill(&mut bytes);
            Arc::from(bytes)
        });
        let mut row = Row { numbers, text };
        if let Some(parent) = &shape.parent {
            row.numbers[PARENT] = self.some_parent(&parent.table);
        }
        row
    }

    /// Mostly a row that is there.
    fn some_parent(&mut self, table: &str) -> Option<u32> {
        let chance = self.rng.below(10);
        let ids: Vec<u32> = self.state.tables.get(table)?.rows.keys().copied().collect();
        match chance {
            0 => Some(self.rng.below(IDS) as u32),
            1 | 2 => None,
            _ if ids.is_empty() => None,
            _ => Some(ids[self.rng.below(ids.len() as u64) as usize]),
        }
    }

    /// Mostly a row that the writer sees.
    fn some_id(&mut self, me: usize, table: &str) -> u32 {
        let ids: Vec<u32> = self.view(me).rows(table).into_keys().collect();
        if ids.is_empty() || self.rng.chance(8) {
            return self.rng.below(IDS) as u32;
        }
        ids[self.rng.below(ids.len() as u64) as usize]
    }

    /// Judges a change, and takes it over if it was made. A storage error in it ends the transaction: it may have been what undoes the
    /// statement that failed.
    fn change<T>(
        &mut self,
        me: usize,
        what: &str,
        expected: Result<Changes, Faults>,
        result: pbxt::Result<T>,
    ) -> Step<Option<T>> {
        let (changes, faults) = match expected {
            Ok(changes) => (Some(changes), Faults::new()),
            Err(faults) => (None, faults),
        };
        let is_full = matches!(
            &result,
            Err(pbxt::Error::Storage(pbxt_base::Error::NoSpace { .. }))
        );
        let is_storage = matches!(&result, Err(pbxt::Error::Storage(_) | pbxt::Error::Row(_)));
        let deed = Deed::Change {
            faults: &faults,
            may_wait: self.has_others(me),
        };
        let made = self.judge(what, result, deed)?;
        let writer = &mut self.writers[me];
        let is_over = made.is_none() && (writer.user.is_lost || is_storage && !is_full);
        writer.user.is_lost = false;
        if let (Some(changes), true) = (changes, made.is_some()) {
            writer.changes = changes;
        }
        if is_over {
            self.rollback(me)?;
        }
        Ok(made)
    }

    fn insert(&mut self, me: usize, name: &str) -> Step {
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        let count = if self.rng.chance(25) {
            2 + self.rng.below(3)
        } else {
            1
        };
        let mut rows = Vec::new();
        for _ in 0..count {
            let id = self.rng.below(IDS) as u32;
            rows.push(self.some_row(&table.shape, id));
        }
        self.note(format!("{me}: insert into {name} {rows:?}"));
        let expected = self.inserted(me, name, &rows);
        let result = self.writers[me].user.insert(&table, &rows, false);
        self.change(me, "insert", expected, result).map(|_| ())
    }

    /// What the writer has changed once these rows are in.
    fn inserted(&self, me: usize, name: &str, rows: &[Row]) -> Result<Changes, Faults> {
        let mut changes = self.writers[me].changes.clone();
        for row in rows {
            let view = View {
                state: &self.state,
                own: &changes,
            };
            changes = view.insert(name, row)?;
        }
        Ok(changes)
    }

    /// Many rows in one statement, around the log.
    fn load(&mut self, me: usize, name: &str) -> Step {
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        let is_large = self.view(me).rows(name).len() > 2 * IDS as usize;
        // Groups of a load repeat.
        let is_narrow = table
            .shape
            .indexes
            .iter()
            .any(|index| index.unique && index.column == 1);
        if table.shape.parent.is_some() || is_large || is_narrow || !self.rng.chance(50) {
            return self.delete_many(me, name);
        }
        let from = (LOAD_IDS + self.rng.below(3) * LOAD_ROWS) as u32;
        let count = LOAD_ROWS - self.rng.below(50);
        let mut rows: Vec<Row> = (0..count as u32)
            .map(|at| loaded_row(&table.shape, from + at))
            .collect();
        if self.rng.chance(10) {
            // One id too many.
            let last = rows.len() - 1;
            rows[last] = loaded_row(&table.shape, from);
        }
        self.note(format!(
            "{me}: load {} rows from {from} on into {name}",
            rows.len()
        ));
        let expected = self.loaded(me, name, &rows);
        let result = self.writers[me].user.insert(&table, &rows, true);
        let made = self.change(me, "load", expected, result)?;
        self.done.loads += u64::from(made.is_some());
        Ok(())
    }

    /// As `inserted`, for many rows whose only unique key is the id.
    fn loaded(&self, me: usize, name: &str, rows: &[Row]) -> Result<Changes, Faults> {
        let view = self.view(me);
        let mut changes = self.writers[me].changes.clone();
        let seen = view.rows(name);
        let mut ids = std::collections::BTreeSet::new();
        for row in rows {
            if seen.contains_key(&row.id()) || !ids.insert(row.id()) {
                return Err(Faults::from([Fault::Duplicate]));
            }
            changes.insert((name.to_owned(), row.id()), Some(Arc::new(row.clone())));
        }
        Ok(changes)
    }

    fn update(&mut self, me: usize, name: &str) -> Step {
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        let id = self.some_id(me, name);
        let old = self.view(me).row(name, id);
        // Ids of rows that others refer to stay.
        let may_move = !matches!(name, "kin" | "kid");
        let new_id = if may_move && self.rng.chance(15) {
            self.rng.below(IDS) as u32
        } else {
            id
        };
        let mut new = self.some_row(&table.shape, new_id);
        if let Some(old) = &old {
            for (now, before) in new.numbers.iter_mut().zip(&old.numbers).skip(1) {
                if self.rng.chance(55) {
                    *now = *before;
                }
            }
            if self.rng.chance(50) {
                new.text.clone_from(&old.text);
            }
        }
        self.note(format!("{me}: update {name} {id}: {old:?} to {new:?}"));
        let expected = match &old {
            Some(old) => self.view(me).update(name, old, &new),
            None => Ok(self.writers[me].changes.clone()),
        };
        let result = self.writers[me].user.update(&table, id, &new);
        let found = self.change(me, "update", expected, result)?;
        if found.is_some_and(|found| found != old.is_some()) {
            return Err(self.wrong(&format!("SM3: update found {found:?}, expected {old:?}")));
        }
        Ok(())
    }

    fn delete(&mut self, me: usize, name: &str) -> Step {
        let id = self.some_id(me, name);
        self.delete_ids(me, name, &[id])
    }

    /// Rows that a load brought, or some others.
    fn delete_many(&mut self, me: usize, name: &str) -> Step {
        let rows = self.view(me).rows(name);
        let from = if self.rng.chance(70) { LOAD_IDS as u32 } else { 0 };
        let step = 1 + self.rng.below(3) as usize;
        let ids: Vec<u32> = rows.into_keys().filter(|id| *id >= from).step_by(step).collect();
        let is_parent = matches!(name, "kin" | "kid");
        if is_parent || ids.is_empty() {
            return self.delete(me, name);
        }
        self.delete_ids(me, name, &ids)
    }

    pub(super) fn delete_ids(&mut self, me: usize, name: &str, ids: &[u32]) -> Step {
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        self.note(format!(
            "{me}: delete from {name} {} rows, the first is {:?}",
            ids.len(),
            ids.first()
        ));
        let there = ids
            .iter()
            .filter(|id| self.view(me).row(name, **id).is_some())
            .count();
        let expected = self.deleted(me, name, ids);
        let result = self.writers[me].user.delete(&table, ids);
        let found = self.change(me, "delete", expected, result)?;
        if found.is_some_and(|found| found != there) {
            return Err(self.wrong(&format!("SM3: delete found {found:?} rows, expected {there}")));
        }
        Ok(())
    }

    fn deleted(&self, me: usize, name: &str, ids: &[u32]) -> Result<Changes, Faults> {
        let mut changes = self.writers[me].changes.clone();
        for id in ids {
            let view = View {
                state: &self.state,
                own: &changes,
            };
            if view.row(name, *id).is_some() {
                if ids.len() == 1 {
                    changes = view.delete(name, *id)?;
                } else {
                    changes.insert((name.to_owned(), *id), None);
                }
            }
        }
        Ok(changes)
    }

    fn look_up(&mut self, me: usize, name: &str) -> Step {
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        let id = self.some_id(me, name);
        self.note(format!("{me}: look up {id} in {name}"));
        let expected = self.view(me).row(name, id);
        let found = self.writers[me].user.row(&table, id);
        let Some(found) = self.judge("look up", found, Deed::Read)? else {
            return self.rollback(me);
        };
        if found.as_ref() != expected.as_deref() {
            return Err(self.wrong(&format!("SM3: row {id} is {found:?}, expected {expected:?}")));
        }
        Ok(())
    }

    fn savepoint(&mut self, me: usize) -> Step {
        self.note(format!("{me}: savepoint"));
        let made = self.writers[me].user.session.savepoint();
        let lsn = self.must("savepoint", made)?;
        let writer = &mut self.writers[me];
        if writer.savepoints.last().is_none_or(|(newest, _)| *newest < lsn) {
            let changes = writer.changes.clone();
            writer.savepoints.push((lsn, changes));
        }
        Ok(())
    }

    fn roll_back_to(&mut self, me: usize) -> Step {
        let count = self.writers[me].savepoints.len() as u64;
        if count == 0 {
            return self.savepoint(me);
        }
        let at = self.rng.below(count) as usize;
        self.note(format!("{me}: rollback to savepoint {at}"));
        let writer = &mut self.writers[me];
        writer.savepoints.truncate(at + 1);
        let (lsn, changes) = writer.savepoints[at].clone();
        writer.changes = changes;
        let undone = writer.user.session.rollback_to(lsn);
        self.must("rollback to savepoint", undone)
    }

    pub(super) fn commit(&mut self, me: usize) -> Step {
        let flush = self.writers[me].user.session.config().flush;
        self.note(format!("{me}: commit {flush:?}"));
        let writer = &mut self.writers[me];
        let changes = std::mem::take(&mut writer.changes);
        writer.savepoints.clear();
        let is_logged = writer.user.session.has_changes();
        match writer.xid.take() {
            Some(xid) => {
                let changes = self.state.prepared.remove(&xid).unwrap_or_default();
                self.state.apply(changes);
            }
            None => self.state.apply(changes),
        }
        self.request();
        let done = self.writers[me].user.session.commit();
        self.must("commit", done)?;
        if is_logged {
            self.acknowledge(flush);
        }
        let next = match self.rng.below(5) {
            0 => FlushAtCommit::Background,
            1 => FlushAtCommit::Written,
            _ => FlushAtCommit::Durable,
        };
        self.writers[me].user.flush(next);
        if self.rng.chance(40) {
            self.db().housekeeping_step();
        }
        Ok(())
    }

    pub(super) fn rollback(&mut self, me: usize) -> Step {
        self.note(format!("{me}: rollback"));
        let writer = &mut self.writers[me];
        writer.changes.clear();
        writer.savepoints.clear();
        let is_prepared = writer.xid.take().map(|xid| self.state.prepared.remove(&xid));
        if is_prepared.is_some() {
            self.request();
        }
        let done = self.writers[me].user.session.rollback();
        self.must("rollback", done)
    }

    fn prepare(&mut self, me: usize) -> Step {
        if self.writers[me].changes.is_empty() || !self.writers[me].user.session.has_changes() {
            return self.commit(me);
        }
        let xid = format!("xid {}", self.next_xid).into_bytes();
        self.next_xid += 1;
        self.note(format!("{me}: prepare {}", text(&xid)));
        let writer = &mut self.writers[me];
        let changes = std::mem::take(&mut writer.changes);
        writer.savepoints.clear();
        writer.xid = Some(xid.clone());
        self.state.prepared.insert(xid.clone(), changes);
        self.request();
        let done = self.writers[me].user.session.prepare(&xid);
        self.must("prepare", done)?;
        self.done.votes += 1;
        self.acknowledge(FlushAtCommit::Durable);
        Ok(())
    }

    /// A session that has voted can only end its transaction or let go of it.
    fn end_prepared(&mut self, me: usize, choice: u64) -> Step {
        match choice {
            0..25 => self.commit(me),
            25..45 => self.commit_ordered(me),
            45..60 => self.rollback(me),
            _ => {
                self.note(format!("{me}: detach"));
                let writer = &mut self.writers[me];
                writer.user.session.detach_prepared();
                writer.xid = None;
                Ok(())
            }
        }
    }

    /// The host's own log has decided: visible at once, durable later.
    fn commit_ordered(&mut self, me: usize) -> Step {
        self.note(format!("{me}: commit ordered"));
        if let Some(xid) = self.writers[me].xid.take() {
            let changes = self.state.prepared.remove(&xid).unwrap_or_default();
            self.state.apply(changes);
        }
        self.request();
        let visible = self.writers[me].user.session.commit_ordered();
        self.must("commit_ordered", visible)?;
        let done = self.writers[me].user.session.commit();
        self.must("commit after commit_ordered", done)
    }

    /// Ends a prepared transaction that no session has.
    pub(super) fn end_detached(&mut self) -> Step {
        let attached: Vec<_> = self
            .writers
            .iter()
            .filter_map(|writer| writer.xid.clone())
            .collect();
        let mut xids: Vec<_> = self.state.prepared.keys().cloned().collect();
        xids.retain(|xid| !attached.contains(xid));
        if xids.is_empty() {
            return Ok(());
        }
        let xid = xids[self.rng.below(xids.len() as u64) as usize].clone();
        let commits = self.rng.chance(70);
        self.note(format!("end prepared {}, commit {commits}", text(&xid)));
        let changes = self.state.prepared.remove(&xid).unwrap_or_default();
        if commits {
            self.state.apply(changes);
        }
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
}

/// A row of a bulk load: what it has follows from its id. Incompressible, so that loads have several blocks.
fn loaded_row(shape: &Shape, id: u32) -> Row {
    let mut numbers = vec![Some(id), Some(id % 7), None, None];
    numbers.resize(shape.numbers(), None);
    let byte = |at: u32| ((at + 1).wrapping_mul(id.wrapping_mul(0x9e37_79b1) | 1) >> 13) as u8;
    let text: Vec<u8> = (0..150 + id % 100).map(byte).collect();
    Row {
        numbers,
        text: Some(Arc::from(text)),
    }
}
