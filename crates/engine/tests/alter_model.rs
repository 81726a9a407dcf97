//! Random ALTERs against a model, beside changes, rollbacks, old snapshots, moving rows and power cuts (docs/alter.md).
//!
//! A failure names its seed; `PBXT_SEED=<seed> cargo test -p pbxt --test alter_model one_altered_life` plays it again.

#[path = "common/shifting.rs"]
mod shifting;

use pbxt::{Database, Error, Progress, Session, Table};
use pbxt_rows::{BlobRef, ColumnKind, Order};
use pbxt_testkit::{Rng, SimDisk};
use shifting::*;
use std::sync::Arc;

const STEPS: u64 = 160;

/// A reader who keeps its snapshot, and what it sees.
struct Reader {
    session: Session,
    rows: Rows,
    /// Indexes that were built since (rule AL20).
    younger: Vec<String>,
}

struct World {
    disk: SimDisk,
    db: Arc<Database>,
    table: Arc<Table>,
    shape: Shape,
    rows: Rows,
    readers: Vec<Reader>,
    session: Session,
    dice: Rng,
    next_label: u32,
    next_id: u32,
    totals: Totals,
}

/// What the lives of a test did in all.
#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    alters: u64,
    refused: u64,
    crashes: u64,
    homed: u64,
    merged: u64,
    large: u64,
    built: u64,
    duplicates: u64,
    refused_indexes: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new();
        let db = open(&disk);
        let shape = Shape::new();
        let table = db.create_table(shape.definition("t"), 1).expect("a new table");
        Self {
            session: session(&db, 1),
            disk,
            db,
            table,
            shape,
            rows: Rows::new(),
            readers: Vec::new(),
            dice: Rng::new(seed),
            next_label: 10,
            next_id: 0,
            totals: Totals::default(),
        }
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..7 => self.change(),
            7..10 => self.alter(),
            10..15 => self.background(),
            15 => self.begin_reader(),
            16 => {
                self.readers.pop();
            }
            17 if self.dice.chance(40) => self.crash(),
            17 => self.add_index(),
            _ => self.look(),
        }
    }

    /// One transaction of some changes; sometimes it is taken back.
    fn change(&mut self) {
        let mut rows = self.rows.clone();
        for _ in 0..=self.dice.below(25) {
            match self.dice.below(6) {
                0..3 => self.insert(&mut rows),
                3 | 4 => self.update(&mut rows),
                _ => self.delete(&mut rows),
            }
        }
        if self.dice.chance(20) {
            self.session.rollback().expect("rolled back");
        } else {
            self.session.commit().expect("committed");
            self.rows = rows;
        }
    }

    /// Puts a large value into a column that can have one, sometimes.
    fn enlarge(&mut self, row: &mut Row) {
        let column = self
            .shape
            .columns
            .iter()
            .find(|column| column.kind == ColumnKind::Var);
        let Some(label) = column.map(|column| column.label) else {
            return;
        };
        if self.dice.chance(12) {
            let value = vec![self.dice.below(250) as u8; LARGE + self.dice.below(3000) as usize];
            let kept = self.session.keep_value(&value).expect("stored");
            let blob = BlobRef {
                addr: kept.addr,
                len: kept.len,
                hash: kept.hash,
            };
            row.insert(label, Cell::Large(blob));
            self.totals.large += 1;
        }
    }

    fn new_row(&mut self) -> Row {
        self.next_id += 1;
        let by = (!self.dice.chance(20)).then(|| self.dice.below(9) as u32);
        row_of(&self.shape, self.next_id, by)
    }

    fn insert(&mut self, rows: &mut Rows) {
        let mut row = self.new_row();
        self.enlarge(&mut row);
        let id = insert(&mut self.session, &self.table, &self.shape, &row).expect("inserted");
        rows.insert(id, row);
    }

    fn pick(&mut self, rows: &Rows) -> Option<u64> {
        let at = self.dice.below(rows.len().max(1) as u64) as usize;
        rows.keys().nth(at).copied()
    }

    fn update(&mut self, rows: &mut Rows) {
        let Some(id) = self.pick(rows) else { return };
        let old = rows[&id].clone();
        let mut new = self.new_row();
        // The id stays, and columns that are not touched.
        for (label, cell) in &old {
            if *label == ID || self.dice.chance(50) {
                new.insert(*label, cell.clone());
            }
        }
        self.enlarge(&mut new);
        update(&mut self.session, &self.table, &self.shape, id, (&old, &new)).expect("updated");
        rows.insert(id, new);
    }

    fn delete(&mut self, rows: &mut Rows) {
        let Some(id) = self.pick(rows) else { return };
        delete(&mut self.session, &self.table, id).expect("deleted");
        rows.remove(&id);
    }

    fn random_column(&mut self) -> Col {
        self.next_label += 1;
        let (label, nullable) = (self.next_label, self.dice.chance(60));
        match self.dice.below(4) {
            0 => text(label, nullable),
            1 => number(label, 1 + self.dice.below(8) as u16, Order::Uint, nullable),
            _ => number(label, 1 + self.dice.below(8) as u16, Order::Int, nullable),
        }
    }

    fn alter(&mut self) {
        let mut next = self.shape.clone();
        for _ in 0..=self.dice.below(2) {
            self.change_shape(&mut next);
        }
        match alter(&self.db, None, &self.shape, &next) {
            Ok(()) => {}
            Err(Error::NeedsCopy { why, .. }) => {
                assert!(why.contains("one record"), "AL6: {why}");
                self.totals.refused += 1;
                return;
            }
            Err(error) => panic!("{error}"),
        }
        self.totals.alters += 1;
        let all =
            std::iter::once(&mut self.rows).chain(self.readers.iter_mut().map(|reader| &mut reader.rows));
        for rows in all {
            for row in rows.values_mut() {
                *row = next.altered(&self.shape, row);
            }
        }
        self.shape = next;
        self.table = find(&self.db);
    }

    fn change_shape(&mut self, next: &mut Shape) {
        let at = self.dice.below(next.columns.len() as u64) as usize;
        match self.dice.below(8) {
            0..3 if next.columns.len() < 9 => {
                let column = self.random_column();
                next.columns.insert(at, column);
            }
            3 if is_free(next, at) => {
                next.columns.remove(at);
            }
            4 => {
                let column = next.columns.remove(at);
                let to = self.dice.below(next.columns.len() as u64 + 1) as usize;
                next.columns.insert(to, column);
            }
            5 if is_free(next, at) => {
                let column = &mut next.columns[at];
                column.nullable = true;
                if let ColumnKind::Fixed(len @ 1..8) = column.kind {
                    column.kind = ColumnKind::Fixed(len + 1);
                    column.default = Cell::Null;
                }
            }
            6 if next.indexes.len() >= 2 && self.dice.chance(20) => {
                next.indexes.pop();
            }
            _ => next.indexes[0].name = format!("primary {}", self.dice.below(99)),
        }
    }

    /// Builds an index over some number. One that only one row may have a key of goes again, for later rows would meet it.
    fn add_index(&mut self) {
        let numbers = self.shape.columns.iter();
        let numbers: Vec<u32> = numbers
            .filter(|column| matches!(column.kind, ColumnKind::Fixed(1..=8)))
            .map(|column| column.label)
            .collect();
        let label = numbers[self.dice.below(numbers.len() as u64) as usize];
        let unique = self.dice.chance(30);
        let has_it = |index: &Idx| (index.label, index.unique) == (label, unique);
        if self.shape.indexes.iter().any(has_it) || self.shape.indexes.len() >= 5 {
            return;
        }
        let name = format!("built {label} {unique}");
        let mut next = self.shape.clone();
        next.indexes.push(Idx {
            name: name.clone(),
            label,
            unique,
        });
        let mut values: Vec<&Cell> = self.rows.values().map(|row| &row[&label]).collect();
        values.retain(|value| **value != Cell::Null);
        let all = values.len();
        let distinct: std::collections::BTreeSet<String> =
            values.iter().map(|value| format!("{value:?}")).collect();
        let has_twins = unique && distinct.len() < all;
        match alter(&self.db, None, &self.shape, &next) {
            Err(Error::DuplicateKey { index_no, .. }) => {
                assert!(has_twins, "AL19: no two rows have one key");
                assert_eq!(index_no, next.indexes.len() - 1);
                self.totals.duplicates += 1;
                return self.look();
            }
            Err(Error::NeedsCopy { why, .. }) if why.contains("one record") => return,
            other => other.expect("built"),
        }
        assert!(!has_twins, "AL19: two rows have one key");
        self.totals.built += 1;
        let before = std::mem::replace(&mut self.shape, next);
        self.table = find(&self.db);
        for reader in &mut self.readers {
            reader.younger.push(name.clone());
        }
        if unique {
            self.look();
            alter(&self.db, None, &self.shape, &before).expect("dropped");
            self.shape = before;
            self.table = find(&self.db);
        }
    }

    fn background(&mut self) {
        let dice = &mut self.dice;
        let done = match dice.below(8) {
            0..3 => self.db.compact_step().inspect(|_| {
                self.db.log().set_start(self.db.log_floor());
            }),
            3 => self.db.row_merge_step(),
            4 => self.db.index_merge_step(),
            5 => self.db.checkpoint_step().map(|()| Progress::Worked),
            6 => self.db.settle_tags_step(),
            _ => {
                self.db.housekeeping_step();
                self.db.upkeep_step(true)
            }
        };
        done.expect("worked");
        let counters = self.db.upkeep_counters();
        self.totals.homed = self.totals.homed.max(counters.rows_homed.get());
        self.totals.merged = self.totals.merged.max(counters.merge_bytes_written.get());
    }

    fn begin_reader(&mut self) {
        if self.readers.len() < 2 {
            let mut reader = Reader {
                session: session(&self.db, 10 + self.readers.len()),
                rows: self.rows.clone(),
                younger: Vec::new(),
            };
            shows(&mut reader.session, &self.table, &self.shape, &reader.rows);
            self.readers.push(reader);
        }
    }

    fn look(&mut self) {
        shows(&mut self.session, &self.table, &self.shape, &self.rows);
        check(&mut self.session, &self.table);
        self.session.commit().expect("nothing to commit");
        for reader in &mut self.readers {
            let is_younger = |index: &str| reader.younger.iter().any(|name| name == index);
            let session = &mut reader.session;
            let refused = shows_what_it_may(session, &self.table, &self.shape, &reader.rows, &is_younger);
            self.totals.refused_indexes += refused as u64;
        }
    }

    /// The process dies, or the power goes.
    fn crash(&mut self) {
        self.totals.crashes += 1;
        self.readers.clear();
        let idle = open(&SimDisk::new());
        self.session = session(&idle, 0);
        self.table = idle
            .create_table(self.shape.definition("t"), 1)
            .expect("a table in passing");
        self.db = idle;
        self.disk = if self.dice.chance(50) {
            self.disk.kill()
        } else {
            self.disk.crash(self.dice.next_u64())
        };
        self.db = open(&self.disk);
        self.table = find(&self.db);
        self.session = session(&self.db, 1);
        assert_eq!(
            self.table.def().older.len(),
            self.table.versions().older().count()
        );
        self.look();
    }
}

/// A column that may go or change.
fn is_free(shape: &Shape, at: usize) -> bool {
    let label = shape.columns[at].label;
    label > BY && shape.indexes.iter().all(|index| index.label != label)
}

fn live(seed: u64, steps: u64) -> Totals {
    struct Tell(u64);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "again: PBXT_SEED={} cargo test -p pbxt --test alter_model one_altered_life",
                    self.0
                );
            }
        }
    }
    let _tell = Tell(seed);
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.look();
    world.crash();
    world.totals
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_alters_agree_with_the_model_while_rows_move() {
    let mut all = Totals::default();
    for seed in 0..number_of("PBXT_LIVES").unwrap_or(60) {
        let one = live(seed, STEPS);
        all.alters += one.alters;
        all.refused += one.refused;
        all.crashes += one.crashes;
        all.homed += one.homed;
        all.merged += one.merged;
        all.large += one.large;
        all.built += one.built;
        all.duplicates += one.duplicates;
        all.refused_indexes += one.refused_indexes;
    }
    println!("{all:?}");
    let is_much = all.alters > 300 && all.crashes > 20 && all.homed > 100 && all.merged > 0 && all.large > 0;
    let is_much = is_much && all.built > 30 && all.duplicates > 3 && all.refused_indexes > 0;
    assert!(is_much, "the lives did little: {all:?}");
}

#[test]
fn one_altered_life() {
    live(number_of("PBXT_SEED").unwrap_or(1_000_000), 600);
}
