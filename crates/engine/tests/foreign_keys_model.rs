//! Random schemas and random changes of four sessions against a model of constraints: every answer, every row, no orphan.
//!
//! A failure names its seed; `PBXT_SEED=<seed> cargo test -p pbxt --test foreign_keys_model one_family` plays it again. `PBXT_LIVES` gives
//! the number of lives, of 400 changes each.

mod common {
    pub(crate) mod family;
    pub(crate) mod kin;
}

use common::family::{Opened, Plan, Row, User, encode, find, options, record};
use common::kin::{Before, Kin, Verdict};
use pbxt::{Action, ConflictMode, Database, Error, Isolation};
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;

const CHANGES: u64 = 400;
const SESSIONS: usize = 4;
const COLUMNS: usize = 5;
const ACTIONS: [Action; 8] = [
    Action::Restrict,
    Action::NoAction,
    Action::Cascade,
    Action::Cascade,
    Action::Cascade,
    Action::SetNull,
    Action::SetNull,
    Action::SetDefault,
];

/// What a session has changed since its transaction began.
struct Member {
    user: User,
    changes: Vec<Before>,
    is_open: bool,
    /// Reads rows for change by a snapshot: what it finds may have changed since, which is a write conflict.
    is_stale: bool,
}

struct Family {
    seed: u64,
    dice: Rng,
    disk: SimDisk,
    db: Arc<Database>,
    tables: Vec<Opened>,
    members: Vec<Member>,
    kin: Kin,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    done: u64,
    refused: u64,
    busy: u64,
    acted: u64,
    ended: u64,
}

fn value(dice: &mut Rng) -> Option<u32> {
    (!dice.chance(20)).then(|| dice.below(5) as u32)
}

/// Up to eight tables with up to three constraints each, to any table.
fn schema(dice: &mut Rng) -> Vec<Plan> {
    let count = 1 + dice.below(8) as usize;
    let mut plans: Vec<Plan> = (0..count)
        .map(|number| {
            let mut plan = Plan::new(&format!("d/t{number}"), COLUMNS)
                .index(&[1])
                .index(&[2, 3]);
            for column in 1..COLUMNS {
                plan = plan.default(column, value(dice));
            }
            if dice.chance(25) { plan.unique(&[4]) } else { plan }
        })
        .collect();
    let mut name = 0;
    for child_plan in &mut plans {
        for _ in 0..dice.below(4) {
            let parent = format!("d/t{}", dice.below(count as u64));
            let columns: &[usize] =
                [&[1][..], &[2], &[3], &[4], &[1, 2], &[3, 1], &[4, 2]][dice.below(7) as usize];
            let theirs: &[usize] = match (columns.len(), dice.chance(60)) {
                (1, true) => &[0],
                (1, false) => &[1],
                _ => &[2, 3],
            };
            let action = |dice: &mut Rng| ACTIONS[dice.below(ACTIONS.len() as u64) as usize];
            let (on_delete, on_update) = (action(dice), action(dice));
            name += 1;
            *child_plan = child_plan.clone().key(
                &format!("k{name}"),
                columns,
                &parent,
                theirs,
                on_delete,
                on_update,
            );
        }
    }
    plans
}

impl Family {
    fn new(seed: u64) -> Self {
        let mut dice = Rng::new(seed);
        let disk = SimDisk::new();
        let db = Database::open(Arc::new(disk.clone()), &options()).expect("the database opens");
        let plans = schema(&mut dice);
        for plan in &plans {
            plan.create_unchecked(&db).expect("created");
        }
        let mut family = Self {
            seed,
            dice,
            disk,
            db,
            tables: Vec::new(),
            members: Vec::new(),
            kin: Kin::new(plans),
            totals: Totals::default(),
        };
        family.open();
        family
    }

    fn open(&mut self) {
        let plans = self.kin.plans.iter();
        self.tables = plans.map(|plan| Opened::open(&self.db, plan.clone())).collect();
        let levels = [
            Isolation::ReadCommitted,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ];
        self.members = (0..SESSIONS)
            .map(|number| {
                // Mostly a level under which every session finds the newest rows.
                let level = levels[(self.dice.below(6) as usize).saturating_sub(3)];
                let mode = if self.dice.chance(50) {
                    ConflictMode::Wait
                } else {
                    ConflictMode::Error
                };
                Member {
                    user: User::new(&self.db, number).with_level(level).with_mode(mode),
                    changes: Vec::new(),
                    is_open: false,
                    is_stale: level == Isolation::Serializable
                        || (level == Isolation::RepeatableRead && mode == ConflictMode::Error),
                }
            })
            .collect();
    }

    fn fail(&self, what: &str) -> ! {
        let seed = self.seed;
        for plan in &self.kin.plans {
            println!("{} {:?} defaults {:?}", plan.name, plan.indexes, plan.defaults);
            for key in &plan.keys {
                println!("    {key:?}");
            }
        }
        panic!(
            "seed {seed}: {what}\nagain: PBXT_SEED={seed} cargo test -p pbxt --test foreign_keys_model one_family"
        )
    }

    /// One random step.
    fn step(&mut self) {
        let number = self.dice.below(SESSIONS as u64) as usize;
        match self.dice.below(100) {
            0..65 => self.change(number),
            65..86 => self.end(number, true),
            86..92 => self.end(number, false),
            92..97 => self.background(),
            97 => self.die(),
            _ => self.settle(),
        }
    }

    /// A row that mostly refers to rows that are there.
    fn random_row(&mut self, table: usize, id: u32) -> Row {
        let mut row = vec![Some(id)];
        row.extend((1..COLUMNS).map(|_| value(&mut self.dice).filter(|_| self.dice.chance(50))));
        for key in &self.kin.plans[table].keys {
            let parents = &self.kin.tables[self.kin.table(&key.parent)];
            if parents.is_empty() || self.dice.chance(30) {
                continue;
            }
            let chosen = self.dice.below(parents.len() as u64) as usize;
            let Some(parent) = parents.values().nth(chosen) else {
                continue;
            };
            for (ours, theirs) in Kin::child_columns(key).into_iter().zip(Kin::parent_columns(key)) {
                row[ours] = parent[theirs];
            }
        }
        row
    }

    fn change(&mut self, number: usize) {
        let table = self.dice.below(self.tables.len() as u64) as usize;
        let kind = self.dice.below(10);
        let mut id = self.dice.below(7) as u32;
        let rows = &self.kin.tables[table];
        if kind >= 4 && !rows.is_empty() {
            let chosen = self.dice.below(rows.len() as u64) as usize;
            id = rows.values().nth(chosen).and_then(|row| row[0]).unwrap_or(id);
        }
        let new_id = if self.dice.chance(30) {
            self.dice.below(7) as u32
        } else {
            id
        };
        let mut row = self.random_row(table, if kind < 4 { id } else { new_id });
        let found = self.kin.find(table, id);
        if let (4..7, Some((_, old))) = (kind, &found) {
            // Some columns only.
            for column in 1..COLUMNS {
                if self.dice.chance(60) {
                    row[column] = old[column];
                }
            }
        }
        let acted = self.db.counters.rows_acted_on.get();
        let opened = &self.tables[table];
        let member = &mut self.members[number];
        member.is_open = true;
        let answer = match kind {
            0..4 => member.user.insert(opened, &row).map(|()| true),
            4..7 => member.user.update(opened, id, &row),
            7..9 => member.user.delete(opened, id),
            _ => {
                // The row is refused alone, the statement goes on, as with IGNORE.
                member.user.statement(opened, |session, cursor| {
                    match find(session, cursor, opened, id)? {
                        None => return Ok(false),
                        Some((place, old)) => {
                            cursor.update(session, place, record(&old), record(&encode(&row)))?;
                        }
                    }
                    Ok(true)
                })
            }
        };
        let what = format!(
            "session {number}, kind {kind} of {} {id}: {row:?}, {found:?}",
            opened.plan.name
        );
        let expected = |kin: &mut Kin, changes: &mut Vec<Before>| match (kind, &found) {
            (0..4, _) => kin.insert(table, &row, changes),
            (_, None) => Verdict::Done,
            (7..9, Some((seq, _))) => kin.change(table, *seq, None, changes),
            (_, Some((seq, _))) => kin.change(table, *seq, Some(&row), changes),
        };
        let is_stale = member.is_stale;
        match answer {
            Ok(true) => {
                self.totals.acted += self.db.counters.rows_acted_on.get() - acted;
                self.totals.done += 1;
                let member = &mut self.members[number];
                let verdict = expected(&mut self.kin, &mut member.changes);
                let is_right = verdict == Verdict::Done && (kind < 4 || found.is_some());
                if !is_right {
                    self.fail(&format!("{what} was done, but {verdict:?}"));
                }
            }
            // A snapshot may not have it yet.
            Ok(false) if found.is_none() || is_stale => {}
            Ok(false) => self.fail(&format!("{what} was not found")),
            Err(error) => self.undone(number, &what, &error, is_stale, expected),
        }
    }

    fn undone(
        &mut self,
        number: usize,
        what: &str,
        error: &Error,
        is_stale: bool,
        expected: impl FnOnce(&mut Kin, &mut Vec<Before>) -> Verdict,
    ) {
        let others = self.members.iter().enumerate();
        let is_alone = others
            .filter(|(other, _)| *other != number)
            .all(|(_, member)| !member.is_open);
        let verdict = match error {
            Error::NoReferencedRow { constraint, .. } => Verdict::Missing(constraint.clone()),
            Error::RowIsReferenced { constraint, .. } => Verdict::Referenced(constraint.clone()),
            Error::DuplicateKey { .. } => Verdict::Duplicate,
            Error::LockTimeout { .. } if !is_alone => {
                self.totals.busy += 1;
                return;
            }
            // Of a key, whose holder ended after the snapshot, on every level that has one.
            Error::WriteConflict { .. } => return,
            Error::RowNotFound { .. } if is_stale => return,
            Error::Deadlock { .. } if !is_alone => return self.end(number, false),
            Error::Unserializable | Error::TransactionAborted { .. } if is_stale => {
                return self.end(number, false);
            }
            error => self.fail(&format!("{what}: {error}")),
        };
        self.totals.refused += 1;
        let wanted = expected(&mut self.kin.clone(), &mut Vec::new());
        if wanted != verdict && !is_stale {
            self.fail(&format!("{what}: {verdict:?}, but {wanted:?}"));
        }
    }

    fn end(&mut self, number: usize, commits: bool) {
        let member = &mut self.members[number];
        let committed = commits && member.user.session.commit().is_ok();
        if !committed {
            member.user.rollback();
            self.kin.undo(&mut member.changes, 0);
            self.totals.ended += 1;
        }
        member.changes.clear();
        member.is_open = false;
    }

    fn background(&mut self) {
        self.db.housekeeping_step();
        let done = match self.dice.below(5) {
            0 => self.db.compact_step().map(|_| ()),
            1 => self.db.row_merge_step().map(|_| ()),
            2 => self.db.index_merge_step().map(|_| ()),
            3 => self.db.upkeep_step(true).map(|_| ()),
            _ => self.db.checkpoint_step(),
        };
        if let Err(error) = done {
            self.fail(&format!("background: {error}"));
        }
    }

    /// The power fails; what was committed is there.
    fn die(&mut self) {
        for number in 0..SESSIONS {
            let member = &mut self.members[number];
            self.kin.undo(&mut member.changes, 0);
        }
        // Sessions end before the database does, and after what they might still write is lost.
        let after = self.disk.crash(self.dice.next_u64());
        self.members.clear();
        self.tables.clear();
        self.disk = after;
        self.db = match Database::open(Arc::new(self.disk.clone()), &options()) {
            Ok(db) => db,
            Err(error) => self.fail(&format!("the database does not open: {error}")),
        };
        self.open();
        self.settle();
    }

    /// Everybody ends; then the tables are those of the model.
    fn settle(&mut self) {
        for number in 0..SESSIONS {
            self.end(number, true);
        }
        let mut reader = User::new(&self.db, 9);
        let tables: Vec<Vec<Row>> = self.tables.iter().map(|table| reader.rows(table)).collect();
        reader.rollback();
        for (number, rows) in tables.iter().enumerate() {
            let mut expected: Vec<Row> = self.kin.tables[number].values().cloned().collect();
            expected.sort();
            if *rows != expected {
                let name = &self.kin.plans[number].name;
                self.fail(&format!("{name} has {rows:?}, not {expected:?}"));
            }
        }
        let orphans = Kin::orphans(&self.kin.plans, &tables);
        if !orphans.is_empty() {
            self.fail(&format!("orphans: {orphans:?}"));
        }
    }
}

fn live(seed: u64) -> Totals {
    let mut family = Family::new(seed);
    for _ in 0..CHANGES {
        family.step();
    }
    family.settle();
    let mut reader = User::new(&family.db, 9);
    family.tables.iter().for_each(|table| reader.check(table));
    drop(reader);
    family.members.clear();
    family.totals
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_families_agree_with_the_model() {
    let mut all = Totals::default();
    for seed in 0..number("PBXT_LIVES").unwrap_or(250) {
        let totals = live(seed);
        all.done += totals.done;
        all.refused += totals.refused;
        all.busy += totals.busy;
        all.acted += totals.acted;
        all.ended += totals.ended;
    }
    println!("{all:?}");
    let enough = [all.done, all.refused, all.busy, all.acted];
    assert!(
        enough.iter().all(|count| *count >= 200),
        "every answer is met often: {all:?}"
    );
}

#[test]
fn one_family() {
    live(number("PBXT_SEED").unwrap_or(1_000_000));
}
