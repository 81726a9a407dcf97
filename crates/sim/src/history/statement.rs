//! Statement: one statement of a player, moved on by a few rows at a time.
//!
//! Why it exists: between two rows that a statement reads or writes, others have their turn; so a schedule is more than an
//! order of statements.
//! Rules held: the record says of every read as of which moment it should be, or that the newest versions counted (T18, T22).

use crate::history::mix::{Action, Path, Statement};
use crate::history::player::Player;
use crate::history::reach::{self, Shown, Source};
use crate::history::record::{Content, How, Moment, Record, VersionNo};
use crate::history::stage::Stage;
use crate::table::{PlayRow, PlayTable};
use pbxt::{Busy, Cursor, Isolation, NewVersion, Result};
use pbxt_base::RowId;
use std::sync::Arc;

/// A statement under way.
#[derive(Debug)]
pub(super) struct Running {
    pub statement: Statement,
    pub began: Moment,
    pub how: How,
    cursor: Option<Cursor>,
    pub seen: Vec<(VersionNo, Moment)>,
    /// Rows inserted.
    done: usize,
    /// Rows read or written in one step.
    pace: u64,
    /// Waits inside the engine if it has to and may.
    is_patient: bool,
}

impl Player {
    /// Moves the running statement on; true when it is done.
    pub(super) fn advance(&mut self, stage: &Stage) -> Result<bool> {
        let Some(mut running) = self.live.as_mut().and_then(|live| live.running.take()) else {
            return Ok(true);
        };
        let done = self.advance_one(stage, &mut running);
        if let Some(live) = &mut self.live {
            live.running = Some(running);
        }
        done
    }

    fn advance_one(&mut self, stage: &Stage, running: &mut Running) -> Result<bool> {
        self.set_patience(stage, running.is_patient);
        if running.began == 0 {
            self.client.session.begin_statement()?;
            running.began = stage.note(Record::tick);
            if self.level.isolation == Isolation::Serializable && !stage.by_locks {
                // Whatever the statement is, it may need the snapshot: the record is to know when it was taken.
                self.take_snapshot(stage);
            }
        }
        for _ in 0..running.pace {
            let is_done = match &running.statement {
                Statement::Insert { .. } => self.insert_one(stage, running)?,
                _ => self.visit_one(stage, running)?,
            };
            if is_done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// So many sessions wait inside the engine at a time; the others are told at once.
    fn set_patience(&mut self, stage: &Stage, is_patient: bool) {
        let mut config = self.client.session.config();
        config.lock_wait_timeout_ms = u64::from(is_patient && stage.waiting.get() < stage.mix.waiters);
        self.client.session.configure(config);
    }

    fn insert_one(&mut self, stage: &Stage, running: &mut Running) -> Result<bool> {
        let Statement::Insert { table, rows } = &running.statement else {
            return Ok(true);
        };
        let Some(values) = rows.get(running.done) else {
            return Ok(true);
        };
        let number = self.number().unwrap_or_default();
        let play = &stage.tables[*table];
        let stamp = stage.stamp();
        let new = stored(*values, stamp);
        let keys = play.key_changes(None, &new)?;
        let session = &mut self.client.session;
        let payload = play.encode_for(session, &new)?;
        let row = session.insert(&play.table, new_version(play, &payload, &keys))?;
        stage.wrote(
            number,
            stamp,
            (*table, row.raw()),
            Some(Content { values: *values }),
        );
        running.done += 1;
        Ok(running.done == rows.len())
    }

    fn visit_one(&mut self, stage: &Stage, running: &mut Running) -> Result<bool> {
        let Statement::Rows {
            predicate,
            path,
            action,
            at_most,
        } = running.statement
        else {
            return Ok(true);
        };
        let table = &stage.tables[predicate.table];
        let path = reach::path_in(table, predicate, path);
        let found = match running.cursor.take() {
            Some(mut cursor) => {
                let found = reach::next(&mut self.client.session, &mut cursor, table, predicate, path);
                running.cursor = Some(cursor);
                found?
            }
            None => self.first(stage, running, table)?,
        };
        let Some(shown) = found else {
            running.how.whole = !matches!(action, Action::Lock(_, Busy::Skip));
            return Ok(true);
        };
        let holds = predicate.holds(Some(&reach::content_of(&shown.content)));
        if !holds && matches!(path, Path::Range { forward: false }) {
            // Downwards nobody but the reader knows where the range ends.
            running.how.whole = !matches!(action, Action::Lock(_, Busy::Skip));
            return Ok(true);
        }
        if let Some(cursor) = &mut running.cursor {
            if !holds && !matches!(path, Path::Range { .. }) {
                cursor.unlock_row(&mut self.client.session);
                return Ok(false);
            }
            if cursor.was_semi_consistent() {
                // The next move is to the same row, with its lock (rule T40).
                return Ok(false);
            }
        }
        let seen = stage.version_of(&shown.content)?;
        let now = stage.note(Record::tick);
        running.seen.push((seen, now));
        match action {
            Action::Update(change) => self.update(stage, table, predicate.table, &shown, change)?,
            Action::Delete => self.delete(stage, table, predicate.table, shown.row)?,
            Action::Look | Action::Lock(..) => {}
        }
        Ok(running.seen.len() >= at_most)
    }

    /// Binds a cursor and goes to the first row.
    fn first(&mut self, stage: &Stage, running: &mut Running, table: &PlayTable) -> Result<Option<Shown>> {
        let Statement::Rows {
            predicate,
            path,
            action,
            ..
        } = running.statement
        else {
            return Ok(None);
        };
        let path = reach::path_in(table, predicate, path);
        let (source, locks) = reach::source_of(self.level, action, stage.by_locks);
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(&mut self.client.session, reach::bind_of(action))?;
        cursor.try_semi_consistent(stage.chance(60));
        running.how.locks = locks;
        running.how.as_of = match source {
            Source::Snapshot => Some(self.take_snapshot(stage)),
            Source::Statement => Some(stage.note(Record::tick)),
            Source::Newest => None,
        };
        let found = reach::first(&mut self.client.session, &mut cursor, table, predicate, path);
        running.cursor = Some(cursor);
        found
    }

    fn update(
        &mut self,
        stage: &Stage,
        table: &PlayTable,
        place: usize,
        old: &Shown,
        change: Option<(usize, Option<u32>)>,
    ) -> Result<()> {
        self.fix_snapshot(stage);
        let stamp = stage.stamp();
        let mut values = reach::content_of(&old.content).values;
        if let Some((column, value)) = change {
            values[column] = value;
        }
        let new = stored(values, stamp);
        let keys = table.key_changes(Some(&old.content), &new)?;
        let session = &mut self.client.session;
        let payload = table.encode_for(session, &new)?;
        session.update(&table.table, old.row, new_version(table, &payload, &keys))?;
        let number = self.number().unwrap_or_default();
        stage.wrote(number, stamp, (place, old.row.raw()), Some(Content { values }));
        Ok(())
    }

    fn delete(&mut self, stage: &Stage, table: &PlayTable, place: usize, row: RowId) -> Result<()> {
        self.fix_snapshot(stage);
        self.client.session.delete(&table.table, row)?;
        let number = self.number().unwrap_or_default();
        let stamp = stage.stamp();
        stage.wrote(number, stamp, (place, row.raw()), None);
        Ok(())
    }

    /// A change that fails on newer versions takes the snapshot, if there is none: now, so that the record knows when.
    fn fix_snapshot(&mut self, stage: &Stage) {
        if !reach::counts_newest(self.level, stage.by_locks) {
            self.take_snapshot(stage);
        }
    }
}

impl Running {
    pub(super) fn new(statement: Statement, stage: &Stage) -> Self {
        let pace = if stage.chance(60) {
            u64::MAX
        } else {
            1 + stage.below(3)
        };
        Self {
            statement,
            began: 0,
            how: How::default(),
            cursor: None,
            seen: Vec::new(),
            done: 0,
            pace,
            is_patient: stage.chance(stage.mix.patience),
        }
    }
}

impl Statement {
    pub(super) fn fails_if_busy(&self) -> bool {
        matches!(
            self,
            Self::Rows {
                action: Action::Lock(_, Busy::Fail),
                ..
            }
        )
    }
}

fn new_version<'a>(table: &PlayTable, payload: &'a [u8], keys: &'a pbxt::KeyChanges) -> NewVersion<'a> {
    NewVersion {
        payload,
        schema_version: table.schema_version(),
        keys,
    }
}

/// The row that is stored for a version: its stamp is the memo.
fn stored(values: [Option<u32>; 4], stamp: u64) -> PlayRow {
    PlayRow {
        id: values[0].unwrap_or_default(),
        group: values[1],
        tag: values[2],
        name: reach::name_of(values[3].unwrap_or_default()),
        memo: Some(Arc::from(stamp.to_le_bytes().as_slice())),
    }
}
