//! Indexes that an ALTER builds over the rows that are there, rule by rule (docs/alter.md, AL17 to AL31).

#[path = "common/altered.rs"]
mod altered;
#[path = "common/shifting.rs"]
mod shifting;

use altered::Bench;
use pbxt::{Database, Error, IndexBuild, Progress, Session};
use pbxt_io::Disk;
use pbxt_rows::Order;
use pbxt_testkit::{Rng, SimDisk, Sweep};
use shifting::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A column whose values differ from row to row.
const MORE: u32 = 3;

/// A shape with a column more than others have.
fn wide() -> Shape {
    let mut shape = Shape::new();
    shape.columns.push(number(MORE, 8, Order::Uint, true));
    shape
}

fn with_index(shape: &Shape, label: u32, unique: bool) -> Shape {
    let mut next = shape.clone();
    next.indexes.push(Idx {
        name: format!("built {label}"),
        label,
        unique,
    });
    next
}

impl Bench {
    /// Gives each `step`th row other values.
    fn change(&mut self, step: usize, value: u64) {
        let ids: Vec<u64> = self.rows.keys().copied().step_by(step).collect();
        for id in ids {
            let old = self.rows[&id].clone();
            let mut new = old.clone();
            new.insert(MORE, Cell::Bytes((value + id).to_le_bytes().to_vec()));
            update(&mut self.session, &self.table, &self.shape, id, (&old, &new)).expect("updated");
            self.rows.insert(id, new);
        }
        self.session.commit().expect("committed");
    }

    fn remove(&mut self, step: usize) {
        let ids: Vec<u64> = self.rows.keys().copied().step_by(step).collect();
        for id in ids {
            delete(&mut self.session, &self.table, id).expect("deleted");
            self.rows.remove(&id);
        }
        self.session.commit().expect("committed");
    }

    fn add(&mut self, label: u32, unique: bool) -> Result<(), Error> {
        let next = with_index(&self.shape, label, unique);
        alter(&self.db, None, &self.shape, &next)?;
        self.shape = next;
        self.table = find(&self.db);
        Ok(())
    }

    fn reopen(&mut self) {
        self.disk = self.disk.kill();
        self.db = open(&self.disk);
        self.table = find(&self.db);
        self.session = session(&self.db, 1);
    }
}

fn piece_files(disk: &SimDisk) -> BTreeSet<String> {
    let names = disk.list().expect("a list of files").into_iter();
    names
        .filter(|name| name.contains("cold") || name.contains("meta"))
        .collect()
}

#[test]
fn an_added_index_has_all_rows_wherever_they_stand() {
    let mut bench = Bench::new(wide());
    bench.fill(0..1200);
    bench.settle();
    bench.fill(1200..1300);
    bench.change(5, 1_000_000);
    bench.remove(7);
    let passing = row_of(&bench.shape, 5000, Some(1));
    insert(&mut bench.session, &bench.table, &bench.shape, &passing).expect("inserted");
    bench.session.rollback().expect("rolled back");
    bench.add(MORE, false).expect("built");
    bench.look();
    bench.change(3, 2_000_000);
    bench.remove(11);
    bench.fill(1300..1400);
    bench.look();
    bench.settle();
    bench.look();
    bench.reopen();
    bench.look();
    let column = bench.shape.columns.len();
    let mut next = bench.shape.clone();
    next.columns.insert(1, number(10, 4, Order::Uint, false));
    alter(&bench.db, None, &bench.shape, &next).expect("altered");
    for row in bench.rows.values_mut() {
        *row = next.altered(&bench.shape, row);
    }
    bench.shape = next;
    bench.table = find(&bench.db);
    assert_eq!(bench.table.schema().columns().len(), column + 1);
    bench.add(10, false).expect("built of rows of an older version");
    bench.look();
}

#[test]
fn an_empty_table_gets_an_index_without_a_file() {
    let mut bench = Bench::new(wide());
    bench.add(MORE, true).expect("built");
    assert_eq!(piece_files(&bench.disk).len(), 0);
    bench.fill(0..20);
    bench.look();
    bench.reopen();
    bench.look();
}

#[test]
fn many_rows_are_sorted_outside_memory() {
    let mut bench = Bench::new(wide());
    bench.fill(0..9000);
    bench.add(MORE, false).expect("built");
    bench.look();
    let named = piece_files(&bench.disk);
    bench.db.checkpoint_step().expect("made");
    assert!(
        piece_files(&bench.disk).is_superset(&named),
        "L4: nothing but runs is left"
    );
}

#[test]
fn a_key_of_two_rows_is_told_and_nothing_is_left() {
    let mut bench = Bench::new(wide());
    bench.fill(0..300);
    bench.settle();
    bench.fill(300..310);
    let before = piece_files(&bench.disk);
    match bench.add(BY, true) {
        Err(Error::DuplicateKey { index_no, index, .. }) => {
            assert_eq!((index_no, index.as_str()), (2, "built 1"), "AL19");
        }
        other => panic!("AL19: {other:?}"),
    }
    assert_eq!(piece_files(&bench.disk), before, "AL25");
    bench.look();
    bench.fill(310..320);
    bench.look();
}

#[test]
fn rows_without_a_value_are_no_duplicates() {
    let mut bench = Bench::new(wide());
    for id in 0..40 {
        let row = row_of(&bench.shape, id, (id % 2 == 0).then_some(id));
        let at = insert(&mut bench.session, &bench.table, &bench.shape, &row).expect("inserted");
        bench.rows.insert(at, row);
    }
    bench.session.commit().expect("committed");
    bench.add(BY, true).expect("AL19: NULL is no key");
    bench.look();
    let taken = row_of(&bench.shape, 900, Some(4));
    let refused = insert(&mut bench.session, &bench.table, &bench.shape, &taken);
    assert!(
        matches!(refused, Err(Error::DuplicateKey { index_no: 2, .. })),
        "a built index keeps its promise: {refused:?}"
    );
    bench.session.rollback().expect("rolled back");
    bench.remove(2);
    let free = row_of(&bench.shape, 901, Some(4));
    let at = insert(&mut bench.session, &bench.table, &bench.shape, &free).expect("the key is free");
    bench.session.commit().expect("committed");
    bench.rows.insert(at, free);
    bench.look();
}

#[test]
fn an_older_snapshot_is_refused_by_the_index_alone() {
    let mut bench = Bench::new(wide());
    bench.fill(0..300);
    let mut older = session(&bench.db, 2);
    let then = bench.rows.clone();
    shows(&mut older, &bench.table, &bench.shape, &then);
    bench.change(2, 7_000_000);
    bench.add(MORE, false).expect("built");
    bench.change(3, 9_000_000);
    bench.settle();
    let is_built = |name: &str| name == "built 3";
    let refused = shows_what_it_may(&mut older, &bench.table, &bench.shape, &then, &is_built);
    assert_eq!(refused, 1, "AL20");
    older.commit().expect("ended");
    shows(&mut older, &bench.table, &bench.shape, &bench.rows);
    bench.look();
}

#[test]
fn a_snapshot_taken_during_the_build_may_read() {
    let mut bench = Bench::new(wide());
    bench.fill(0..100);
    let next = with_index(&bench.shape, MORE, false);
    let builds = build(&bench.db, None, &bench.shape, &next).expect("built");
    let mut reader = session(&bench.db, 2);
    shows(&mut reader, &bench.table, &bench.shape, &bench.rows);
    let change = next.since(&bench.shape);
    let defs = vec![next.definition("t")];
    bench
        .db
        .alter_tables_with(None, defs, &change, true, builds)
        .expect("altered");
    bench.shape = next;
    bench.table = find(&bench.db);
    shows(&mut reader, &bench.table, &bench.shape, &bench.rows);
}

/// A build that was run and is not yet part of its table, and what the ALTER makes of the table.
struct Underway {
    build: IndexBuild,
    next: Shape,
}

impl Bench {
    fn begin(&self, label: u32, unique: bool) -> Underway {
        let next = with_index(&self.shape, label, unique);
        let mut builds = build(&self.db, None, &self.shape, &next).expect("built");
        Underway {
            build: builds.remove(0),
            next,
        }
    }

    fn finish(&mut self, underway: Underway) -> Result<(), Error> {
        let Underway { build, next } = underway;
        let change = next.since(&self.shape);
        let defs = vec![next.definition("t")];
        self.db
            .alter_tables_with(None, defs, &change, true, vec![build])?;
        self.shape = next;
        self.table = find(&self.db);
        Ok(())
    }

    /// Other values, new rows and rows that go, some of them twice, some taken back.
    fn work(&mut self, round: u64) {
        let first = 10_000 * round as u32;
        self.change(3, round << 32);
        self.remove(7);
        self.fill(first..first + 40);
        self.change(5, round << 40);
        let passing = row_of(&self.shape, first + 500, Some(1));
        insert(&mut self.session, &self.table, &self.shape, &passing).expect("inserted");
        self.session.rollback().expect("rolled back");
    }
}

#[test]
fn rows_that_change_meanwhile_are_in_the_index() {
    let mut bench = Bench::new(wide());
    bench.fill(0..400);
    bench.settle();
    bench.fill(400..450);
    let mut underway = bench.begin(MORE, false);
    for round in 1..=3 {
        bench.work(round);
        bench.settle();
        assert!(
            underway
                .build
                .catch_up(Duration::ZERO, &mut |_, _| {})
                .expect("caught up"),
            "AL29"
        );
    }
    bench.work(4);
    bench.finish(underway).expect("altered");
    bench.look();
    bench.work(5);
    bench.look();
    while bench.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    bench.look();
    bench.settle();
    bench.reopen();
    bench.look();
}

#[test]
fn changes_of_a_build_survive_a_restart() {
    for rounds in 0..3 {
        let mut bench = Bench::new(wide());
        bench.fill(0..200);
        let mut underway = bench.begin(MORE, true);
        for round in 0..rounds {
            bench.work(round + 1);
            underway
                .build
                .catch_up(Duration::ZERO, &mut |_, _| {})
                .expect("caught up");
        }
        bench.work(9);
        bench.finish(underway).expect("altered");
        bench.reopen();
        bench.look();
        bench.work(10);
        bench.settle();
        bench.reopen();
        bench.look();
    }
}

#[test]
fn a_round_leaves_what_is_not_over_to_the_next_one() {
    let mut bench = Bench::new(wide());
    bench.fill(0..100);
    let mut underway = bench.begin(MORE, false);
    let late = row_of(&bench.shape, 5000, Some(1));
    let at = insert(&mut bench.session, &bench.table, &bench.shape, &late).expect("inserted");
    let caught_up = underway
        .build
        .catch_up(Duration::ZERO, &mut |_, _| {})
        .expect("no error");
    assert!(!caught_up, "AL29: its writer is not over");
    bench.session.commit().expect("committed");
    bench.rows.insert(at, late);
    assert!(
        underway
            .build
            .catch_up(Duration::ZERO, &mut |_, _| {})
            .expect("caught up"),
        "AL29"
    );
    bench.finish(underway).expect("altered");
    bench.look();
}

#[test]
fn a_key_that_comes_twice_meanwhile_is_told() {
    for beside_writers in [true, false] {
        let mut bench = Bench::new(wide());
        bench.fill(0..300);
        let before = piece_files(&bench.disk);
        let mut underway = bench.begin(MORE, true);
        let taken = bench.rows.values().next().expect("a row")[&MORE].clone();
        let mut twin = row_of(&bench.shape, 7000, Some(7000));
        twin.insert(MORE, taken);
        let at = insert(&mut bench.session, &bench.table, &bench.shape, &twin).expect("inserted");
        bench.session.commit().expect("committed");
        bench.rows.insert(at, twin);
        let refused = if beside_writers {
            let refused = underway.build.catch_up(Duration::ZERO, &mut |_, _| {}).map(drop);
            let taken = bench.finish(underway);
            assert!(matches!(taken, Err(Error::Invalid(_))), "AL25: {taken:?}");
            refused
        } else {
            bench.finish(underway)
        };
        assert!(
            matches!(refused, Err(Error::DuplicateKey { index_no: 2, .. })),
            "AL30: {refused:?}"
        );
        assert_eq!(piece_files(&bench.disk), before, "AL25");
        bench.look();
    }
}

#[test]
fn a_key_that_moves_meanwhile_is_no_duplicate() {
    let mut bench = Bench::new(wide());
    bench.fill(0..50);
    let underway = bench.begin(MORE, true);
    // Two rows exchange their values, by way of a third one.
    let ids: Vec<u64> = bench.rows.keys().copied().take(2).collect();
    let values = ids.iter().map(|id| bench.rows[id][&MORE].clone());
    let values: Vec<Cell> = values.collect();
    let passing = Cell::Bytes(u64::MAX.to_le_bytes().to_vec());
    for (id, value) in [(ids[0], &passing), (ids[1], &values[0]), (ids[0], &values[1])] {
        let old = bench.rows[&id].clone();
        let mut new = old.clone();
        new.insert(MORE, value.clone());
        update(&mut bench.session, &bench.table, &bench.shape, id, (&old, &new)).expect("updated");
        bench.session.commit().expect("committed");
        bench.rows.insert(id, new);
    }
    bench.finish(underway).expect("AL30: each key once");
    bench.look();
}

/// A writer, with what it has done and not committed: rows by id, none where one goes.
struct Hand {
    session: Session,
    open: BTreeMap<u64, Option<Row>>,
}

impl Hand {
    fn new(bench: &Bench, number: usize) -> Self {
        Self {
            session: session(&bench.db, number),
            open: BTreeMap::new(),
        }
    }

    fn give_up(&mut self) {
        self.session.rollback().expect("rolled back");
        self.open.clear();
    }

    fn commit(&mut self, rows: &mut Rows) {
        self.session.commit().expect("committed");
        for (id, row) in std::mem::take(&mut self.open) {
            match row {
                Some(row) => drop(rows.insert(id, row)),
                None => drop(rows.remove(&id)),
            }
        }
    }

    fn insert(&mut self, bench: &Bench, id: u32) {
        let row = row_of(&bench.shape, id, Some(id % 5));
        let at = insert(&mut self.session, &bench.table, &bench.shape, &row).expect("inserted");
        self.open.insert(at, Some(row));
    }

    /// Deletes the row, or gives it another value.
    fn change(&mut self, bench: &Bench, id: u64, value: Option<u64>) {
        let old = &bench.rows[&id];
        let new = value.map(|value| {
            let mut new = old.clone();
            new.insert(MORE, Cell::Bytes(value.to_le_bytes().to_vec()));
            new
        });
        let done = match &new {
            Some(new) => update(&mut self.session, &bench.table, &bench.shape, id, (old, new)).map(drop),
            None => delete(&mut self.session, &bench.table, id),
        };
        match done {
            Ok(()) => drop(self.open.insert(id, new)),
            // Its snapshot is older than the row.
            Err(Error::WriteConflict { .. }) => self.give_up(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// One step of one of two writers, of the build or of background work.
fn step_beside(
    rng: &mut Rng,
    bench: &mut Bench,
    underway: &mut Underway,
    hands: &mut [Hand; 2],
    new_id: u32,
) {
    let me = rng.below(2) as usize;
    match rng.below(12) {
        0 => {
            let caught_up = underway.build.catch_up(Duration::ZERO, &mut |_, _| {});
            caught_up.expect("caught up, or somebody is not over");
        }
        1 if rng.chance(20) => bench.settle(),
        2 => hands[me].give_up(),
        3 | 4 => hands[me].commit(&mut bench.rows),
        5 | 6 => hands[me].insert(bench, new_id),
        what => {
            let ids: Vec<u64> = bench.rows.keys().copied().collect();
            let id = ids.get(rng.below(ids.len().max(1) as u64) as usize);
            let value = (what != 7).then(|| rng.next_u64());
            // A row that nobody has open.
            let is_free = |id: &&u64| hands.iter().all(|hand| !hand.open.contains_key(*id));
            if let Some(&id) = id.filter(is_free) {
                hands[me].change(bench, id, value);
            }
        }
    }
}

/// Several writers, some of whom are not over when a round is made, and background work.
#[test]
fn random_work_beside_builds_is_in_the_index() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new(wide());
        bench.fill(0..rng.below(150) as u32 + 1);
        if rng.chance(50) {
            bench.settle();
        }
        let mut underway = bench.begin(MORE, rng.chance(50));
        let mut hands = [Hand::new(&bench, 2), Hand::new(&bench, 3)];
        for step in 0..120 {
            step_beside(&mut rng, &mut bench, &mut underway, &mut hands, 1000 + step);
        }
        hands.iter_mut().for_each(Hand::give_up);
        drop(hands);
        bench.finish(underway).expect("altered");
        bench.look();
        if rng.chance(50) {
            bench.settle();
        }
        bench.reopen();
        bench.look();
    }
}

#[test]
fn an_index_that_was_not_built_is_refused() {
    let mut bench = Bench::new(wide());
    bench.fill(0..10);
    let next = with_index(&bench.shape, MORE, false);
    let change = next.since(&bench.shape);
    let refused = bench
        .db
        .alter_tables(None, vec![next.definition("t")], &change, true);
    match refused {
        Err(Error::NeedsCopy { why, .. }) => assert!(why.contains("is to be built"), "AL24: {why}"),
        other => panic!("AL24: {other:?}"),
    }
    let builds = build(&bench.db, None, &bench.shape, &next).expect("built");
    let other = with_index(&bench.shape, MORE, true);
    let refused = bench
        .db
        .alter_tables_with(None, vec![other.definition("t")], &change, true, builds);
    assert!(
        matches!(refused, Err(Error::NeedsCopy { .. })),
        "AL24: {refused:?}"
    );
    bench.look();
}

#[test]
fn a_kill_ends_the_build_and_leaves_nothing() {
    let mut bench = Bench::new(wide());
    bench.fill(0..9000);
    let before = piece_files(&bench.disk);
    let next = with_index(&bench.shape, MORE, false);
    let change = next.since(&bench.shape);
    let owner = session(&bench.db, 5);
    let mut building = bench
        .db
        .open_index_build(Some(&owner), next.definition("t"), &change)
        .expect("begun");
    let gate = Arc::clone(owner.gate());
    let mut told = 0;
    let ended = building.run(&mut |done, total| {
        assert!(done <= total);
        told += 1;
        gate.kill();
    });
    assert!(matches!(ended, Err(Error::Killed)), "AL25: {ended:?}");
    assert_eq!(told, 1, "the first look at the flag ends it");
    drop(building);
    assert_eq!(piece_files(&bench.disk), before, "AL25");
    bench.look();
}

#[test]
fn a_full_disk_ends_the_build_and_leaves_nothing() {
    let mut bench = Bench::new(wide());
    bench.fill(0..4000);
    bench.settle();
    let before = piece_files(&bench.disk);
    bench.disk.set_free_bytes(Some(3000));
    let refused = bench.add(MORE, false);
    bench.disk.set_free_bytes(None);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(piece_files(&bench.disk), before, "AL25");
    bench.look();
    bench.add(MORE, false).expect("there is room again");
    bench.look();
}

#[test]
fn changes_of_before_in_the_tail_are_none_of_the_index() {
    let mut bench = Bench::new(wide());
    bench.fill(0..50);
    bench.db.checkpoint_step().expect("made");
    // In the tail: rows whose first keys the index never had.
    bench.fill(50..80);
    bench.change(2, 3_000_000);
    bench.add(MORE, false).expect("built");
    bench.reopen();
    bench.look();
    bench.change(3, 4_000_000);
    // Nothing of the run goes while the tail names it (AL23).
    while bench.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    bench.reopen();
    bench.look();
    bench.settle();
    bench.reopen();
    bench.look();
}

/// Fills a table, adds indexes, and goes on: how many of the steps were acknowledged.
fn life(disk: &SimDisk) -> u32 {
    let mut done = 0;
    let result = (|| -> Result<(), Error> {
        let db = Database::open(Arc::new(disk.clone()), &options())?;
        let shape = wide();
        let table = db.create_table(shape.definition("t"), 1)?;
        let mut session = session(&db, 1);
        for id in 0..30 {
            insert(&mut session, &table, &shape, &row_of(&shape, id, Some(id)))?;
        }
        session.commit()?;
        db.checkpoint_step()?;
        for id in 30..40 {
            insert(&mut session, &table, &shape, &row_of(&shape, id, Some(id)))?;
        }
        session.commit()?;
        done = 1;
        let mut next = with_index(&shape, MORE, false);
        next.indexes.push(Idx {
            name: "second".into(),
            label: BY,
            unique: true,
        });
        alter(&db, None, &shape, &next)?;
        done = 2;
        let table = find(&db);
        insert(&mut session, &table, &next, &row_of(&next, 100, None))?;
        session.commit()?;
        done = 3;
        while db.upkeep_step(true)? == Progress::Worked {}
        db.checkpoint_step()?;
        while db.upkeep_step(true)? == Progress::Worked {}
        db.checkpoint_step()?;
        Ok(())
    })();
    if let Err(error) = result {
        assert!(matches!(error, Error::Storage(_)), "only the disk fails: {error}");
    }
    done
}

#[test]
fn after_a_power_cut_all_indexes_of_the_statement_are_there_or_none() {
    let images = Sweep { seeds: 2, step: 1 }.run(life, |disk, &done, case| {
        let db = Database::open(Arc::new(disk.clone()), &options())
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        let Some(table) = db.catalog.by_name("t") else {
            assert_eq!(done, 0, "{case}: the table is missing");
            return;
        };
        let count = table.indexes.len();
        assert!(
            count == 2 && done <= 1 || count == 4 && done >= 1,
            "AL21: {case}, {count}"
        );
        let mut session = session(&db, 1);
        check(&mut session, &table);
        let found = scan(&mut session, &table, &wide(), None).expect("readable");
        let least = [0, 40, 40, 41][done as usize];
        assert!(found.len() >= least, "{case}: {} rows", found.len());
        session.commit().expect("nothing to commit");
        db.checkpoint_step().expect("made");
        check(&mut session, &table);
    });
    assert!(images > 50, "{images} images");
}

/// Rule B7: whoever writes by row id asks the set of gone rows, also for rows that went when there was no index.
#[test]
fn what_went_before_the_first_index_stays_gone() {
    let mut shape = wide();
    shape.indexes.clear();
    let mut bench = Bench::new(shape);
    bench.fill(0..600);
    bench.settle();
    let gone = *bench.rows.keys().next().expect("a row");
    delete(&mut bench.session, &bench.table, gone).expect("deleted");
    bench.session.commit().expect("committed");
    bench.rows.remove(&gone);
    // So that the segment with the deletion is finished.
    bench.fill(600..1200);
    bench.db.housekeeping_step();
    while bench.db.compact_step().expect("compacted") == Progress::Worked {}
    let word = bench.table.map.load(pbxt_base::RowId::new(gone));
    assert!(word.is_absent(), "the deletion was not homed");
    bench.add(MORE, false).expect("built");
    let refused = delete(&mut bench.session, &bench.table, gone);
    assert!(
        matches!(refused, Err(Error::RowNotFound { .. })),
        "B7: {refused:?}"
    );
    bench.session.rollback().expect("rolled back");
    bench.look();
}

/// Rule AL29: an index is not asked in as many places as there are 256 KiB of changes in a round.
#[test]
fn changes_of_a_round_are_one_run() {
    let options = pbxt::Options {
        cache_bytes: 64 << 20,
        ..options()
    };
    let disk = SimDisk::new();
    let db = Database::open(Arc::new(disk.clone()), &options).expect("the database opens");
    let table = db.create_table(wide().definition("t"), 1).expect("a new table");
    let mut bench = Bench {
        session: session(&db, 1),
        disk,
        db,
        table,
        shape: wide(),
        rows: Rows::new(),
    };
    bench.fill(0..10_000);
    let mut underway = bench.begin(MORE, false);
    bench.change(1, 1 << 32);
    let files = |bench: &Bench| {
        let names = piece_files(&bench.disk);
        names.iter().filter(|name| name.contains("meta")).count()
    };
    let before = files(&bench);
    let caught_up = underway.build.catch_up(Duration::from_secs(2), &mut |_, _| {});
    caught_up.expect("caught up");
    assert_eq!(files(&bench) - before, 1, "AL29: files of one round");
    bench.finish(underway).expect("altered");
    bench.look();
}

/// Rule AL35: a build that waits for others makes rounds of what is worth one, and leaves little to the last one.
#[test]
fn a_build_that_waits_for_others_makes_rounds_of_what_is_much() {
    let mut bench = Bench::new(wide());
    bench.fill(0..11_000);
    let mut underway = bench.begin(MORE, false);
    let mut beside = || underway.build.catch_up_beside(&mut |_, _| {}).expect("caught up");
    assert!(!beside(), "AL35: nothing was written");
    bench.change(2, 1 << 32);
    assert!(!beside(), "AL35: a tenth of a second is left to the last round");
    bench.change(1, 1 << 33);
    assert!(beside(), "AL35: more than 10,000 rows");
    assert!(!beside(), "AL35: nothing is left");
    let held = bench.db.counters.build_rows_held.get();
    bench.change(100, 1 << 34);
    bench.finish(underway).expect("altered");
    assert_eq!(bench.db.counters.build_rows_held.get() - held, 110, "AL35");
    assert_eq!(bench.db.counters.build_rows_beside.get(), 11_000, "AL35");
    bench.look();
}

/// Rule AL35: who writes faster than rounds are made does not keep the ALTER from its end.
#[test]
fn rounds_for_what_was_built_first_end() {
    let mut bench = Bench::new(wide());
    bench.fill(0..10_500);
    let mut underway = bench.begin(MORE, false);
    let mut made = 0;
    loop {
        bench.change(1, made << 32);
        if !underway.build.catch_up_beside(&mut |_, _| {}).expect("caught up") {
            break;
        }
        made += 1;
    }
    assert_eq!(made, 20, "AL35");
    bench.finish(underway).expect("altered");
    bench.look();
}
