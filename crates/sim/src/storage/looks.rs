//! Looks: everything that there is, read in every way, and what the bytes on disk are for.
//!
//! Why it exists: what a step did wrong shows in what is there afterwards, to whom and by which way; so all ways are gone.
//! Rules: SM5 rows by table scan, by every index in both directions, counts by index and count of the table agree with each other and
//! with the model, and the engine's own check finds nothing. SM6 a snapshot sees the same for as long as it is held, whatever is moved
//! meanwhile; an index that was built later says that it was. SM7 behind a checkpoint every byte on disk is accounted for, and no file
//! is there that nothing names.

use crate::storage::deeds::Deed;
use crate::storage::life::{Life, Reader, Step, Stop, geometry, names_a_file};
use crate::storage::model::{Changes, Faults, Rows, State, TableState, difference};
use crate::storage::rows::Row;
use crate::storage::user::{Opened, User};
use pbxt::{Database, Error, Isolation, Progress};
use pbxt_io::Disk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a session that only looks.
const LOOKER: usize = 50;
/// Snapshots held at once.
const READERS: usize = 2;
/// Steps of background work after which there must be none left.
const STEPS_MAX: usize = 2000;

/// Whether an index, by its name, was built after the snapshot.
type IsYounger<'a> = &'a dyn Fn(&str) -> bool;

impl Life {
    /// Everything that is there. None: damage was noticed.
    pub(super) fn read_state_if_sound(&mut self) -> Step<Option<State>> {
        let db = Arc::clone(self.db());
        let mut state = State::default();
        let mut user = User::new(&db, LOOKER, Isolation::ReadCommitted);
        for name in db.catalog.names("") {
            let Some(table) = self.table(&name)? else {
                return Ok(None);
            };
            let Some(rows) = self.agreed(&mut user, &table, &|_| false)? else {
                return Ok(None);
            };
            if !self.checks(&mut user, &table)? {
                return Ok(None);
            }
            let shape = table.shape;
            state.tables.insert(name, Arc::new(TableState { shape, rows }));
        }
        let ended = user.session.rollback();
        self.must("rollback", ended)?;
        let xids = db.prepared.xids().into_iter();
        state.prepared.extend(xids.map(|xid| (xid, Changes::new())));
        Ok(Some(state))
    }

    /// Everything that is there.
    pub(super) fn read_state(&mut self) -> Step<State> {
        match self.read_state_if_sound()? {
            Some(state) => Ok(state),
            None => Err(Stop::Broken("damage was noticed".into())),
        }
    }

    /// What the engine's check finds is nothing; false: it found the damage.
    fn checks(&mut self, user: &mut User, table: &Opened) -> Step<bool> {
        let findings = user.check(table);
        let Some(findings) = self.judge("check", findings, Deed::Read)? else {
            return Ok(false);
        };
        let Some(first) = findings.first() else {
            return Ok(true);
        };
        let may_be = self.trouble.damaged || self.trouble.breaks;
        if may_be && (first.contains(".seg'") || first.contains("pbxt.manifest")) {
            self.done.noticed += 1;
            return Ok(false);
        }
        Err(self.wrong(&format!("SM5: the check of a table finds {findings:?}")))
    }

    /// All rows that a session sees, if all ways of reading show the same.
    fn agreed(&mut self, user: &mut User, table: &Opened, is_younger: IsYounger<'_>) -> Step<Option<Rows>> {
        let scanned = user.scan(table);
        let Some(scanned) = self.judge("scan", scanned, Deed::Read)? else {
            return Ok(None);
        };
        let count = scanned.len();
        let rows: Rows = scanned.into_iter().map(|row| (row.id(), Arc::new(row))).collect();
        if rows.len() != count {
            return Err(self.wrong(&format!("SM5: a scan shows {count} rows with {} ids", rows.len())));
        }
        for number in 0..table.shape.indexes.len() {
            if !self.agrees(user, table, number, &rows, is_younger)? {
                return Ok(None);
            }
        }
        let counted = user.count(table);
        let Some(counted) = self.judge("count", counted, Deed::Read)? else {
            return Ok(None);
        };
        if counted != rows.len() as u64 {
            return Err(self.wrong(&format!(
                "SM5: the count is {counted}, a scan shows {} rows",
                rows.len()
            )));
        }
        Ok(Some(rows))
    }

    /// One index; false if trouble was in the way.
    fn agrees(
        &mut self,
        user: &mut User,
        table: &Opened,
        number: usize,
        rows: &Rows,
        is_younger: IsYounger<'_>,
    ) -> Step<bool> {
        let index = &table.shape.indexes[number];
        for forward in [true, false] {
            let found = user.index_scan(table, number, forward);
            if let Err(Error::DefinitionChanged { why, .. }) = &found
                && is_younger(&index.name)
                && why.contains("was built after")
            {
                return Ok(true);
            }
            let Some(mut found) = self.judge("index scan", found, Deed::Read)? else {
                return Ok(false);
            };
            if !forward {
                found.reverse();
            }
            let key = |row: &Row| (row.numbers[index.column], if index.unique { 0 } else { row.id() });
            if let Some((before, after)) = found
                .iter()
                .zip(found.iter().skip(1))
                .find(|(before, after)| key(before) > key(after))
            {
                return Err(self.wrong(&format!(
                    "SM5: index {} forward {forward} is out of order: {:?} before {:?}",
                    index.name, before, after
                )));
            }
            let count = found.len();
            let found: Rows = found.into_iter().map(|row| (row.id(), Arc::new(row))).collect();
            if let Some(text) = difference(rows, &found) {
                let name = &index.name;
                return Err(self.wrong(&format!("SM5: by index {name}, forward {forward}: {text}")));
            }
            if count != rows.len() {
                return Err(self.wrong(&format!("SM5: index {} shows a row twice", index.name)));
            }
        }
        let counted = user.index_count(table, number);
        let Some(counted) = self.judge("count by index", counted, Deed::Read)? else {
            return Ok(false);
        };
        if counted != rows.len() as u64 {
            return Err(self.wrong(&format!(
                "SM5: index {} has {counted} entries for {} rows",
                index.name,
                rows.len()
            )));
        }
        Ok(true)
    }

    /// One table, as everybody sees it now.
    pub(super) fn look_at(&mut self, name: &str) -> Step {
        self.note(format!("look at {name}"));
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        let db = Arc::clone(self.db());
        let mut user = User::new(&db, LOOKER, Isolation::ReadCommitted);
        if let Some(rows) = self.agreed(&mut user, &table, &|_| false)? {
            let wanted = self.state.tables.get(name);
            if let Some(text) = wanted.and_then(|table| difference(&table.rows, &rows)) {
                return Err(self.wrong(&format!("SM5: table {name}: {text}")));
            }
        }
        self.checks(&mut user, &table)?;
        let ended = user.session.rollback();
        self.must("rollback", ended)?;
        for me in 0..self.writers.len() {
            self.look_as_writer(me, name, &table)?;
        }
        Ok(())
    }

    /// What a transaction sees of its own changes.
    fn look_as_writer(&mut self, me: usize, name: &str, table: &Opened) -> Step {
        if self.writers[me].changes.is_empty() || self.writers[me].xid.is_some() {
            return Ok(());
        }
        let found = self.writers[me].user.scan(table);
        let counted = self.writers[me].user.count(table);
        let Some(found) = self.judge("scan", found, Deed::Read)? else {
            return self.rollback(me);
        };
        let Some(counted) = self.judge("count", counted, Deed::Read)? else {
            return self.rollback(me);
        };
        let expected = self.view(me).rows(name);
        if counted != expected.len() as u64 {
            return Err(self.wrong(&format!(
                "SM5: writer {me} counts {counted} rows of {name}, expected {}",
                expected.len()
            )));
        }
        let found: Rows = found.into_iter().map(|row| (row.id(), Arc::new(row))).collect();
        match difference(&expected, &found) {
            Some(text) => Err(self.wrong(&format!("SM5: writer {me} in table {name}: {text}"))),
            None => Ok(()),
        }
    }

    /// All tables, and all that the snapshots see.
    pub(super) fn look_at_all(&mut self) -> Step {
        if let Some(text) = self.state.orphan() {
            return Err(self.wrong(&format!("SM5: {text}")));
        }
        let names: Vec<String> = self.state.tables.keys().cloned().collect();
        names.iter().try_for_each(|name| self.look_at(name))?;
        (0..self.readers.len()).try_for_each(|_| self.read_old())
    }

    /// A snapshot more or less.
    pub(super) fn change_reader(&mut self) -> Step {
        let db = Arc::clone(self.db());
        if self.readers.len() < READERS && self.rng.chance(75) {
            self.note("a snapshot is taken".into());
            let mut user = User::new(&db, LOOKER + 1 + self.readers.len(), Isolation::RepeatableRead);
            user.session.snapshot();
            let mut tables = BTreeMap::new();
            for (name, table) in &self.state.tables {
                if let Some(found) = db.catalog.by_name(name) {
                    tables.insert(found.id, (table.shape.clone(), table.rows.clone()));
                }
            }
            self.readers.push(Reader { user, tables });
            return Ok(());
        }
        if let Some(mut reader) = self.readers.pop() {
            self.note("a snapshot goes".into());
            let ended = reader.user.session.rollback();
            self.must("rollback", ended)?;
        }
        Ok(())
    }

    /// What the oldest snapshot sees of one table, and then it is the turn of the next one.
    pub(super) fn read_old(&mut self) -> Step {
        if self.readers.is_empty() || self.state.tables.is_empty() {
            return Ok(());
        }
        let mut reader = self.readers.remove(0);
        let at = self.rng.below(self.state.tables.len() as u64) as usize;
        let name = self.state.tables.keys().nth(at).cloned().unwrap_or_default();
        self.note(format!("a snapshot reads {name}"));
        let Some(table) = self.table(&name)? else {
            self.readers.push(reader);
            return Ok(());
        };
        let done = match reader.tables.get(&table.host.table().id).cloned() {
            Some((shape, rows)) => self.read_as_then(&mut reader.user, &table, &shape, &rows),
            None => self.refuses_younger_table(&mut reader.user, &table),
        };
        self.readers.push(reader);
        done
    }

    fn read_as_then(
        &mut self,
        user: &mut User,
        table: &Opened,
        shape: &crate::storage::shape::Shape,
        rows: &Rows,
    ) -> Step {
        let is_younger = |name: &str| shape.indexes.iter().all(|index| index.name != name);
        let Some(found) = self.agreed(user, table, &is_younger)? else {
            return Ok(());
        };
        self.done.old_reads += 1;
        let altered = |(id, row): (&u32, &Arc<Row>)| (*id, Arc::new(table.shape.altered(shape, row)));
        let expected: Rows = rows.iter().map(altered).collect();
        match difference(&expected, &found) {
            Some(text) => Err(self.wrong(&format!("SM6: a snapshot's {text}"))),
            None => Ok(()),
        }
    }

    /// A table of which the snapshot knows nothing.
    fn refuses_younger_table(&mut self, user: &mut User, table: &Opened) -> Step {
        match user.scan(table) {
            Err(Error::DefinitionChanged { .. }) => Ok(()),
            Ok(rows) => Err(self.wrong(&format!(
                "SM6: a snapshot reads {} rows of a younger table",
                rows.len()
            ))),
            Err(error) => self
                .judge::<()>("a younger table", Err(error), Deed::Read)
                .map(|_| ()),
        }
    }

    /// OPTIMIZE of a table, at times killed on its way.
    fn optimize(&mut self) -> Step {
        let db = Arc::clone(self.db());
        let names = db.catalog.names("");
        if names.is_empty() {
            return Ok(());
        }
        let name = &names[self.rng.below(names.len() as u64) as usize];
        let mut left = if self.rng.chance(50) {
            self.rng.below(12)
        } else {
            u64::MAX
        };
        let Some(table) = self.table(name)? else {
            return Ok(());
        };
        let user = User::new(&db, LOOKER, Isolation::ReadCommitted);
        let done = table.host.optimize(&user.session, &mut |_, _| {
            left = left.saturating_sub(1);
            if left == 0 {
                user.session.gate().kill();
            }
        });
        let done = match done {
            Err(Error::Killed) => Ok(()),
            other => other.map(|_| ()),
        };
        let faults = Faults::new();
        let deed = Deed::Change {
            faults: &faults,
            may_wait: false,
        };
        self.judge("OPTIMIZE", done, deed)?;
        self.scrub()
    }

    /// One random step of background work.
    pub(super) fn background(&mut self) -> Step {
        self.clock.advance_millis(self.rng.below(800));
        let db = Arc::clone(self.db());
        let kind = self.rng.below(17);
        self.note(format!("background {kind}"));
        let done = match kind {
            0..4 => db.compact_step().and_then(|_| {
                db.flush()?;
                db.log().set_start(db.log_floor());
                Ok(())
            }),
            4 | 5 => db.row_merge_step().map(|_| ()),
            6 | 7 => db.index_merge_step().map(|_| ()),
            8 => db.gone_step().map(|_| ()),
            9 => db.settle_tags_step().map(|_| ()),
            10 => db.blob_step().map(|_| ()),
            11 | 12 => db.checkpoint_step(),
            13 => {
                let steps = self.rng.below(20);
                db.compact(|compaction| compaction.steps < steps).map(|_| ())
            }
            14 => return self.optimize(),
            _ => {
                db.housekeeping_step();
                db.upkeep_step(true).map(|_| ())
            }
        };
        // The flush made all of it durable, and so does a compaction when it begins, unless there is no room for the next segment (S55).
        let is_durable = matches!(kind, 0..4) || kind == 13 && !self.trouble.full;
        if is_durable && done.is_ok() {
            self.acknowledge(pbxt::FlushAtCommit::Durable);
        }
        let faults = Faults::new();
        let deed = Deed::Change {
            faults: &faults,
            may_wait: false,
        };
        self.judge("background work", done, deed)?;
        self.scrub()
    }

    /// Background work until there is none, with nobody about, and the accounts of what is on disk afterwards.
    pub(super) fn tidy(&mut self) -> Step {
        self.note("tidy".into());
        let db = Arc::clone(self.db());
        let done = work_all(&db, &self.clock);
        if !self.must("background work", done)? {
            return Err(self.wrong(&format!("SM7: background work does not end in {STEPS_MAX} steps")));
        }
        let made = db.checkpoint_step();
        self.must("checkpoint", made)?;
        self.accounts()
    }

    /// Rule SM7.
    fn accounts(&mut self) -> Step {
        let db = Arc::clone(self.db());
        let space = db.space();
        let space = self.must("space", space)?;
        let names = self.disk.list().map_err(Error::from);
        let mut bytes = 0;
        for name in self.must("a list of files", names)? {
            let room = if name == "pbxt.lock" {
                Ok(0)
            } else {
                self.disk.room(&name).map_err(Error::from)
            };
            bytes += self.must("the room of a file", room)?;
        }
        if space.total() != bytes {
            return Err(self.wrong(&format!(
                "SM7: files take {bytes} bytes, {} are accounted for: {space:?}",
                space.total()
            )));
        }
        let unneeded = 2 * geometry().hot_segment_bytes;
        if space.row_unnamed + space.index_unnamed > 0 || space.log_unneeded > unneeded {
            return Err(self.wrong(&format!("SM7: nothing names some files: {space:?}")));
        }
        Ok(())
    }

    /// Without tables and transactions nothing of them is left on disk.
    pub(super) fn nothing_is_left(&mut self) -> Step {
        self.leave_sessions();
        while !self.state.prepared.is_empty() {
            self.end_detached()?;
        }
        let db = Arc::clone(self.db());
        let user = User::new(&db, LOOKER, Isolation::ReadCommitted);
        for name in db.catalog.names("") {
            let dropped = db.drop_table(Some(&user.session), &name);
            self.must("drop", dropped)?;
            self.state.tables.remove(&name);
            self.request();
            self.acknowledge(pbxt::FlushAtCommit::Durable);
        }
        drop(user);
        drop(db);
        self.tidy()?;
        // Large values that nobody vouches for are looked at after the next opening (rule S26).
        self.close()?;
        self.open()?;
        for _ in 0..3 {
            self.tidy()?;
        }
        self.leave_sessions();
        let db = Arc::clone(self.db());
        let space = db.space();
        let space = self.must("space", space)?;
        let rows = space.row_base + space.row_upper + space.row_dead;
        let indexes = space.index_base + space.index_upper + space.index_dead;
        if rows + indexes + space.blob > 0 {
            return Err(self.wrong(&format!("SM7: there is no table, but {space:?}")));
        }
        Ok(())
    }

    /// Opens a damaged copy of a database that was closed in order, and asks it everything (rules TR1, TR2).
    pub(super) fn examine(&mut self, db: pbxt::Result<Arc<Database>>, what: &str) -> Step {
        self.note(format!("damage: {what}"));
        self.done.damages += 1;
        let db = match db {
            Ok(db) => db,
            Err(error) if names_a_file(&error) => {
                self.done.noticed += 1;
                return Ok(());
            }
            Err(error) => {
                return Err(self.wrong(&format!("SM8: refused without the name of a file: {error}")));
            }
        };
        self.db = Some(db);
        self.trouble.damaged = true;
        let found = self.read_state_if_sound();
        self.trouble.damaged = false;
        self.db = None;
        match found? {
            Some(found) if !self.state.is_like(&found) => {
                let text = self.state.differs_from(&found);
                Err(self.wrong(&format!("SM8: damage gave a wrong answer: {text}")))
            }
            _ => Ok(()),
        }
    }
}

/// All background work; false if it does not end.
fn work_all(db: &Arc<Database>, clock: &pbxt_testkit::SimClock) -> pbxt::Result<bool> {
    for _ in 0..STEPS_MAX {
        clock.advance_millis(100);
        db.housekeeping_step();
        let worked = db.upkeep_step(true)? == Progress::Worked;
        if !worked && !db.maintenance_step(true)? {
            return Ok(true);
        }
    }
    Ok(false)
}
