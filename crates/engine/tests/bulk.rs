//! Bulk loads: rows that go around the hot log appear, vanish and collide as if they had come one by one.
//!
//! Each test names the rule it holds. Those at stop points need feature `stop-points`.

mod common;
#[cfg(feature = "stop-points")]
#[path = "common/hold.rs"]
mod hold;

use common::{Bench, put, row, shuffled};
use pbxt::{Database, Error, Result, Session, SessionConfig};
use pbxt_io::Disk;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::{Rng, SimDisk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Several chunks of the small cache that these tests have.
const MANY: u32 = 3000;
/// Fewer rows than a load is made for.
const FEW: u32 = 200;

fn full(id: u32) -> PlayRow {
    PlayRow {
        group: Some(id % 7),
        tag: (!id.is_multiple_of(3)).then_some(id),
        ..row(id)
    }
}

fn bracket(session: &mut Session, table: &PlayTable, rows: &[PlayRow]) -> Result<()> {
    session.bulk_begin(&table.table, u64::MAX, false);
    let done = rows.iter().try_for_each(|row| put(session, table, row));
    let ended = session.bulk_end(&table.table, done.is_err());
    done.and(ended)
}

/// One statement that loads rows.
fn load(client: &mut Client, table: &PlayTable, rows: &[PlayRow]) -> Result<()> {
    client.statement(|session| bracket(session, table, rows))
}

fn rows_of(ids: impl IntoIterator<Item = u32>) -> Vec<PlayRow> {
    ids.into_iter().map(full).collect()
}

/// The rows without their ids, which nobody promises.
fn plain(bench: &mut Bench) -> Vec<PlayRow> {
    let mut rows: Vec<PlayRow> = bench.rows().into_iter().map(|(_, row)| row).collect();
    rows.sort_by_key(|row| row.id);
    rows
}

fn piece_files(bench: &Bench) -> usize {
    let names = bench.disk.list().expect("a list of files");
    names
        .iter()
        .filter(|name| name.contains("cold") || name.contains("meta"))
        .count()
}

fn expect_duplicate(result: Result<()>, index: usize) {
    match result {
        Err(Error::DuplicateKey { index_no, .. }) => assert_eq!(index_no, index),
        other => panic!("a duplicate key in index {index} was expected, not {other:?}"),
    }
}

#[test]
fn a_load_appears_with_its_commit_and_in_every_index() {
    let mut bench = Bench::new();
    let mut other = bench.other(2);
    let rows = rows_of((1..=MANY).rev());
    load(&mut bench.client, &bench.table, &rows).expect("a load");
    assert_eq!(other.count(&bench.table).expect("a count"), 0);
    assert!(other.scan(&bench.table).expect("a scan").is_empty());
    assert_eq!(plain(&mut bench), rows_of(1..=MANY), "the load sees itself");
    other.session.commit().expect("the end of a reader");
    bench.client.session.commit().expect("a commit");
    assert_eq!(other.scan(&bench.table).expect("a scan").len(), MANY as usize);
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
    assert!(piece_files(&bench) > 0, "the rows went to piece files");
    assert_eq!(
        bench.client.check(&bench.table).expect("a check"),
        Vec::<String>::new()
    );
    bench.db.checkpoint_step().expect("a checkpoint");
    bench.client.session.rollback().expect("no transaction");
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
}

#[test]
fn rows_of_a_chunk_stand_in_the_order_of_the_primary_key() {
    let mut bench = Bench::new();
    let rows = rows_of((1..=500).rev());
    load(&mut bench.client, &bench.table, &rows).expect("a load");
    let read = bench.rows();
    assert!(read.windows(2).all(|pair| pair[0].1.id < pair[1].1.id), "L1");
}

#[test]
fn a_load_into_a_table_with_rows_mixes_with_them() {
    let mut bench = Bench::new();
    for id in (2..400).step_by(2) {
        bench.client.insert(&bench.table, &full(id)).expect("an insert");
    }
    bench.client.session.commit().expect("a commit");
    let odd = rows_of((1..MANY).step_by(2));
    load(&mut bench.client, &bench.table, &odd).expect("a load");
    bench.client.session.commit().expect("a commit");
    let mut expected: BTreeMap<u32, PlayRow> = odd.into_iter().map(|row| (row.id, row)).collect();
    expected.extend((2..400).step_by(2).map(|id| (id, full(id))));
    for (at, (id, old)) in bench.rows().into_iter().enumerate() {
        if at % 10 == 0 {
            bench.client.delete(&bench.table, id).expect("a delete");
            expected.remove(&old.id);
        } else if at % 10 == 1 {
            let new = PlayRow {
                group: Some(99),
                ..old.clone()
            };
            bench
                .client
                .update(&bench.table, id, |_| new.clone())
                .expect("an update");
            expected.insert(old.id, new);
        }
    }
    assert_eq!(plain(&mut bench), expected.values().cloned().collect::<Vec<_>>());
    bench.client.session.rollback().expect("a rollback");
    assert_eq!(bench.rows().len(), 199 + (MANY / 2) as usize);
}

#[test]
fn a_load_is_undone_with_its_statement_savepoint_or_transaction() {
    let mut bench = Bench::new();
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    let savepoint = bench.client.session.savepoint().expect("a savepoint");
    load(&mut bench.client, &bench.table, &rows_of(MANY + 1..=2 * MANY)).expect("a load");
    assert_eq!(bench.rows().len(), 2 * MANY as usize);
    bench
        .client
        .session
        .rollback_to(savepoint)
        .expect("a partial rollback");
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
    let failed = bench.client.statement(|session| {
        bracket(session, &bench.table, &rows_of(MANY + 1..=2 * MANY))?;
        Err::<(), _>(Error::Killed)
    });
    assert!(failed.is_err());
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
    load(&mut bench.client, &bench.table, &rows_of(MANY + 1..=2 * MANY)).expect("the keys are free again");
    bench.client.session.rollback().expect("a rollback");
    assert_eq!(bench.rows(), []);
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("the keys are free again");
    bench.client.session.commit().expect("a commit");
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
}

#[test]
fn a_load_is_part_of_the_table_before_its_transaction_reads_or_marks() {
    let mut bench = Bench::new();
    let table = bench.table.clone();
    let seen = bench.client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        rows_of(1..=MANY)
            .iter()
            .try_for_each(|row| put(session, &table, row))?;
        let mut cursor = pbxt::Cursor::new(&table.table);
        cursor.bind(session, pbxt::Bind::default())?;
        cursor.scan_start(session)?;
        let mut seen = 0;
        while cursor.scan_next(session, |_| Ok(()))? {
            seen += 1;
        }
        rows_of(MANY + 1..=2 * MANY)
            .iter()
            .try_for_each(|row| put(session, &table, row))?;
        session.bulk_end(&table.table, false)?;
        Ok(seen)
    });
    assert_eq!(seen.expect("a statement"), MANY, "L7");
    assert_eq!(plain(&mut bench), rows_of(1..=2 * MANY));
}

/// Rule B14: the mark on a run that all see is set by readers, and may not be too early.
#[test]
fn older_snapshots_do_not_see_a_load_that_others_have_read() {
    let mut bench = Bench::new();
    let (mut old, mut new) = (bench.other(2), bench.other(3));
    let seen_by = |client: &mut Client, table: &PlayTable| {
        let mut count = || {
            let rows = client.agreed(table).expect("readable");
            rows.unwrap_or_else(|differs| panic!("{differs}")).len()
        };
        // Twice: blocks are at hand from their second use on.
        let (first, again) = (count(), count());
        assert_eq!(first, again);
        first
    };
    let table = bench.table.clone();
    assert_eq!(seen_by(&mut old, &table), 0);
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    assert_eq!(seen_by(&mut new, &table), 0, "before its commit");
    new.session.commit().expect("nothing to commit");
    bench.client.session.commit().expect("a commit");
    bench.db.housekeeping_step();
    assert_eq!(seen_by(&mut new, &table), MANY as usize);
    assert_eq!(seen_by(&mut old, &table), 0, "B14: by its snapshot");
    old.session.commit().expect("nothing to commit");
    bench.db.housekeeping_step();
    assert_eq!(seen_by(&mut new, &table), MANY as usize);
    assert_eq!(seen_by(&mut old, &table), MANY as usize);
}

#[test]
fn few_rows_are_written_one_by_one() {
    let mut bench = Bench::new();
    load(&mut bench.client, &bench.table, &rows_of(1..=FEW)).expect("a load");
    assert_eq!(piece_files(&bench), 0, "L5");
    assert_eq!(plain(&mut bench), rows_of(1..=FEW));
    expect_duplicate(load(&mut bench.client, &bench.table, &rows_of([FEW + 1, 7])), 0);
    let refused = bench
        .client
        .session
        .refused_row()
        .expect("the refused row")
        .to_vec();
    assert_eq!(bench.table.decode(&refused).expect("a row"), full(7));
    assert_eq!(plain(&mut bench), rows_of(1..=FEW));
}

/// Loads rows that must be refused for a duplicate of `id` in an index; nothing may stay of them.
fn refuse(bench: &mut Bench, rows: &[PlayRow], index: usize, refused: &PlayRow) {
    let before = plain(bench);
    let files = piece_files(bench);
    expect_duplicate(load(&mut bench.client, &bench.table, rows), index);
    let payload = bench
        .client
        .session
        .refused_row()
        .expect("the refused row")
        .to_vec();
    assert_eq!(&bench.table.decode(&payload).expect("a row"), refused);
    assert_eq!(plain(bench), before);
    assert!(files <= piece_files(bench));
}

#[test]
fn a_commit_that_finds_a_load_impossible_rolls_back() {
    let mut bench = Bench::new();
    let table = bench.table.clone();
    bench.client.insert(&table, &full(MANY + 1)).expect("inserted");
    let session = &mut bench.client.session;
    session.bulk_begin(&table.table, u64::MAX, false);
    for row in rows_of((1..=MANY).chain([17])) {
        put(session, &table, &row).expect("duplicates are found when all are there");
    }
    expect_duplicate(session.commit(), 0);
    assert_eq!(session.txn().raw(), 0, "T44: it is over");
    let _ = session.bulk_end(&table.table, true);
    session.commit().expect("there is nothing to commit");
    assert_eq!(bench.rows(), []);
}

#[test]
fn a_duplicate_inside_a_load_is_found_and_named() {
    let mut bench = Bench::new();
    let mut rows = rows_of(1..=MANY);
    rows[2500].id = 17;
    let refused = rows[2500].clone();
    refuse(&mut bench, &rows, 0, &refused);
    assert_eq!(piece_files(&bench), 0, "L4");
    // Of rows that are gathered it is the one that came later, too.
    let mut rows = shuffled(rows_of(1..=4 * MANY));
    rows[9000].id = rows[10].id;
    let refused = rows[9000].clone();
    refuse(&mut bench, &rows, 0, &refused);
    assert_eq!(piece_files(&bench), 0, "L4");
    let mut rows = rows_of(1..=MANY);
    rows[2600].tag = Some(1);
    let refused = rows[2600].clone();
    refuse(&mut bench, &rows, 2, &refused);
    for row in &mut rows {
        row.tag = None;
    }
    load(&mut bench.client, &bench.table, &rows).expect("NULL is no duplicate of NULL");
    assert_eq!(bench.rows().len(), MANY as usize);
}

#[test]
fn a_duplicate_of_another_row_is_found_wherever_that_is() {
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &full(5000)).expect("an insert");
    bench.client.session.commit().expect("a commit");
    let mut rows = rows_of(1..=MANY);
    rows.push(full(5000));
    // Committed, in a tree.
    refuse(&mut bench, &rows, 0, &full(5000));
    // Committed, in a run, at both ends and between.
    load(&mut bench.client, &bench.table, &rows_of(10_000..10_000 + MANY)).expect("a load");
    bench.client.session.commit().expect("a commit");
    for id in [10_000, 10_000 + MANY - 1, 10_777] {
        let mut rows = rows_of(20_000..20_000 + MANY);
        rows.insert(999, full(id));
        refuse(&mut bench, &rows, 0, &full(id));
    }
    // Of the same transaction, deleted and not.
    let (first, _) = bench.rows()[0];
    let mut rows = rows_of(30_000..30_000 + MANY);
    rows.insert(1234, full(5000));
    refuse(&mut bench, &rows, 0, &full(5000));
    bench.client.delete(&bench.table, first).expect("a delete");
    load(&mut bench.client, &bench.table, &rows).expect("the key is free");
    let count = bench.rows().len();
    refuse(&mut bench, &rows_of(32_000..32_000 + MANY), 0, &full(32_000));
    assert_eq!(bench.rows().len(), count);
}

#[test]
fn a_load_does_not_look_into_what_was_rolled_back() {
    let mut bench = Bench::new();
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    bench.client.session.rollback().expect("a rollback");
    // Whoever reads an entry of it from here on fails.
    let names = bench.disk.list().expect("a list of files");
    for name in names.iter().filter(|name| name.contains("meta")) {
        let bytes = bench.disk.content(name).expect("there").len() as u64;
        for sector in (0..bytes).step_by(512) {
            bench.disk.make_unreadable(name, sector).expect("there");
        }
    }
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("L12: a load of the same keys");
    bench.client.session.commit().expect("a commit");
    assert_eq!(
        bench.client.count(&bench.table).expect("a count"),
        u64::from(MANY)
    );
}

#[test]
fn a_load_waits_for_the_transaction_that_has_one_of_its_keys() {
    let mut bench = Bench::new();
    let mut other = bench.other(2);
    other.insert(&bench.table, &full(77)).expect("an insert");
    let refused = load(&mut bench.client, &bench.table, &rows_of(1..=MANY));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    assert_eq!(bench.rows(), []);
    other.session.rollback().expect("a rollback");
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    let late = other.insert(&bench.table, &full(78));
    assert!(matches!(late, Err(Error::LockTimeout { .. })), "{late:?}");
    bench.client.session.commit().expect("a commit");
    let taken = other.insert(&bench.table, &full(78));
    assert!(matches!(taken, Err(Error::DuplicateKey { .. })), "{taken:?}");
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
}

/// Rules T13, X15: it holds nothing while it waits, so nobody can wait for it.
#[test]
fn a_load_that_meets_a_second_key_leaves_the_line_of_the_first() {
    let patient = SessionConfig {
        lock_wait_timeout_ms: 20_000,
        ..SessionConfig::default()
    };
    let mut bench = Bench::new();
    let (mut first, mut second) = (bench.other(2), bench.other(3));
    bench.client.session.configure(patient);
    second.session.configure(patient);
    first.insert(&bench.table, &full(77)).expect("an insert");
    second.insert(&bench.table, &full(78)).expect("an insert");
    let wait_for = |db: &Database, waiting: usize| {
        while db.list_lock_waits().lines.len() < waiting {
            std::thread::yield_now();
        }
    };
    let (table, db) = (bench.table.clone(), Arc::clone(&bench.db));
    let client = &mut bench.client;
    std::thread::scope(|scope| {
        let to_load = table.clone();
        let loading = scope.spawn(move || load(client, &to_load, &rows_of(1..=MANY)));
        wait_for(&db, 1);
        let wanting = scope.spawn(move || {
            let inserted = second.insert(&table, &full(77));
            (second, inserted)
        });
        wait_for(&db, 2);
        first.session.rollback().expect("a rollback");
        let (mut second, inserted) = wanting.join().expect("the insert ends");
        inserted.expect("nobody has this key");
        second.session.rollback().expect("a rollback");
        loading.join().expect("the load ends").expect("a load");
    });
    bench.client.session.commit().expect("a commit");
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
}

#[test]
fn a_waiting_load_goes_on_when_the_key_comes_free() {
    for commits in [false, true] {
        let mut bench = Bench::new();
        let mut other = bench.other(2);
        other.insert(&bench.table, &full(77)).expect("an insert");
        bench.client.session.configure(SessionConfig {
            lock_wait_timeout_ms: 20_000,
            ..SessionConfig::default()
        });
        let table = bench.table.clone();
        let client = &mut bench.client;
        std::thread::scope(|scope| {
            let loading = scope.spawn(move || load(client, &table, &rows_of(1..=MANY)));
            while bench.db.list_lock_waits().lines.is_empty() {
                std::thread::yield_now();
            }
            if commits {
                other.session.commit().expect("a commit");
            } else {
                other.session.rollback().expect("a rollback");
            }
            let loaded = loading.join().expect("the load ends");
            if commits {
                expect_duplicate(loaded, 0);
            } else {
                loaded.expect("a load");
            }
        });
        bench.client.session.commit().expect("a commit");
        let expected = if commits { rows_of([77]) } else { rows_of(1..=MANY) };
        assert_eq!(plain(&mut bench), expected);
    }
}

#[test]
fn a_key_deleted_since_the_snapshot_is_a_write_conflict() {
    let mut bench = Bench::new();
    let id = bench.client.insert(&bench.table, &full(77)).expect("an insert");
    bench.client.session.commit().expect("a commit");
    assert_eq!(bench.rows().len(), 1);
    let mut other = bench.other(2);
    other.delete(&bench.table, id).expect("a delete");
    other.session.commit().expect("a commit");
    let refused = load(&mut bench.client, &bench.table, &rows_of(1..=MANY));
    assert!(
        matches!(refused, Err(Error::WriteConflict { .. })),
        "T20: {refused:?}"
    );
    bench.client.session.rollback().expect("a rollback");
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    assert_eq!(plain(&mut bench), rows_of(1..=MANY));
}

#[test]
fn loads_of_two_transactions_stand_side_by_side() {
    let mut bench = Bench::new();
    let mut other = bench.other(2);
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    load(&mut other, &bench.table, &rows_of(MANY + 1..=2 * MANY)).expect("a load");
    let both = load(&mut other, &bench.table, &rows_of(MANY..=3 * MANY));
    assert!(both.is_err(), "{both:?}");
    bench.client.session.rollback().expect("a rollback");
    other.session.commit().expect("a commit");
    assert_eq!(plain(&mut bench), rows_of(MANY + 1..=2 * MANY));
}

#[test]
fn a_full_disk_ends_the_statement_and_leaves_no_file() {
    let mut bench = Bench::new();
    bench
        .client
        .insert(&bench.table, &full(99_999))
        .expect("an insert");
    bench.client.session.commit().expect("a commit");
    for rows in [rows_of(1..=4 * MANY), shuffled(rows_of(1..=4 * MANY))] {
        for free in [100 << 10, 250 << 10] {
            bench.disk.set_free_bytes(Some(free));
            let refused = load(&mut bench.client, &bench.table, &rows);
            assert!(refused.is_err(), "the disk is full");
            bench.disk.set_free_bytes(None);
            assert_eq!(piece_files(&bench), 0, "L4");
            assert_eq!(plain(&mut bench), rows_of([99_999]));
        }
    }
    load(&mut bench.client, &bench.table, &rows_of(1..=MANY)).expect("a load");
    assert_eq!(bench.rows().len(), MANY as usize + 1);
}

/// Checkpoints, merges and homing until nothing is left to do.
fn upkeep(bench: &Bench) {
    for _ in 0..3 {
        bench.db.housekeeping_step();
        bench.db.checkpoint_step().expect("a checkpoint");
        for _ in 0..20 {
            bench.db.settle_tags_step().expect("a step");
            bench.db.compact_step().expect("a step");
            bench.db.index_merge_step().expect("a step");
            bench.db.row_merge_step().expect("a step");
        }
    }
}

#[test]
fn random_loads_agree_with_a_map() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new();
        let mut model: BTreeMap<u32, PlayRow> = BTreeMap::new();
        for _ in 0..6 {
            let count = rng.below(2000) as u32 + 1;
            let mut rows: Vec<PlayRow> = (0..count)
                .map(|_| PlayRow {
                    group: rng.chance(70).then(|| rng.below(5) as u32),
                    tag: rng.chance(50).then(|| rng.below(1 << 30) as u32),
                    name: vec![b'a'; rng.below(40) as usize],
                    ..row(rng.below(1 << 22) as u32)
                })
                .collect();
            if rng.chance(50) {
                rows.sort_by_key(|row| row.id);
            }
            let mut after = model.clone();
            let mut tags: std::collections::BTreeSet<u32> =
                model.values().filter_map(|row| row.tag).collect();
            let fits = rows.iter().all(|row| {
                after.insert(row.id, row.clone()).is_none() && row.tag.is_none_or(|tag| tags.insert(tag))
            });
            let loaded = load(&mut bench.client, &bench.table, &rows);
            assert_eq!(loaded.is_ok(), fits, "seed {seed}: {loaded:?}");
            let keep = rng.chance(60);
            if keep {
                bench.client.session.commit().expect("a commit");
            } else {
                bench.client.session.rollback().expect("a rollback");
            }
            if keep && fits {
                model = after;
            }
            match rng.below(5) {
                0 => bench.db.checkpoint_step().expect("a checkpoint"),
                1 => upkeep(&bench),
                2 => bench.crash_reopen(),
                _ => {}
            }
            assert_eq!(
                plain(&mut bench),
                model.values().cloned().collect::<Vec<_>>(),
                "seed {seed}"
            );
        }
    }
}

/// Rules T8, T44: the end of a statement is where its load fails, and the host has nothing left to roll back.
#[test]
fn a_statement_whose_load_fails_at_its_end_is_undone_and_the_next_one_has_a_mark_of_its_own() {
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &full(50)).expect("an insert");
    let table = bench.table.clone();
    let session = &mut bench.client.session;
    session.begin_statement().expect("a statement");
    put(session, &table, &full(9001)).expect("a row");
    session.bulk_begin(&table.table, u64::MAX, false);
    rows_of(1..=MANY)
        .iter()
        .try_for_each(|row| put(session, &table, row))
        .expect("taken in");
    expect_duplicate(session.finish_statement(), 0);
    session.begin_statement().expect("a statement");
    put(session, &table, &full(9002)).expect("a row");
    session.finish_statement().expect("an end");
    session.begin_statement().expect("a statement");
    put(session, &table, &full(9003)).expect("a row");
    session.rollback_statement().expect("undone");
    session.commit().expect("a commit");
    assert_eq!(plain(&mut bench), rows_of([50, 9002]));
}

#[cfg(feature = "stop-points")]
mod at_stop_points {
    use super::*;
    use common::open;
    use hold::{hold_at, turn};

    /// Rule X15: a single row and a load want the same key at the same time; one of them gets it.
    #[test]
    fn a_claim_and_a_load_never_get_the_same_key() {
        for point in ["unique.after_probe", "unique.after_claim", "write.after_link"] {
            let turn = turn();
            let mut bench = Bench::new();
            let (mut other, table) = (bench.other(2), bench.table.clone());
            let held = hold_at(&turn, point, move || {
                let inserted = other.insert(&table, &full(77));
                if inserted.is_ok() {
                    other.session.commit().expect("a commit");
                } else {
                    other.session.rollback().expect("a rollback");
                }
                inserted.is_ok()
            });
            let (sender, ended) = std::sync::mpsc::channel();
            let (mut client, table) = (bench.other(3), bench.table.clone());
            let loading = std::thread::spawn(move || {
                let loaded = load(&mut client, &table, &rows_of(1..=MANY));
                let kept = loaded.is_ok() && client.session.commit().is_ok();
                let _ = sender.send(kept);
            });
            // The load may have to wait for the row operation under way.
            let early = ended.recv_timeout(std::time::Duration::from_millis(1500)).ok();
            let inserted = held.release();
            let loaded = early.unwrap_or_else(|| ended.recv().expect("the load ends"));
            loading.join().expect("the load ends");
            assert!(!(loaded && inserted), "{point}: both have the key");
            let rows = plain(&mut bench);
            let expected = match (loaded, inserted) {
                (true, false) => rows_of(1..=MANY),
                (false, true) => rows_of([77]),
                _ => Vec::new(),
            };
            assert_eq!(rows, expected, "{point}");
        }
    }

    #[test]
    fn rows_in_the_way_of_a_published_load_are_refused_and_others_are_not() {
        for point in ["bulk.after_claims", "bulk.before_records", "bulk.after_publish"] {
            let turn = turn();
            let mut bench = Bench::new();
            let (mut loader, table) = (bench.other(2), bench.table.clone());
            let held = hold_at(&turn, point, move || {
                load(&mut loader, &table, &rows_of(1..=MANY)).expect("a load");
                loader.session.commit().expect("a commit");
            });
            let inserted = bench.client.insert(&bench.table, &full(77));
            assert!(
                matches!(inserted, Err(Error::LockTimeout { .. })),
                "{point}: {inserted:?}"
            );
            bench
                .client
                .insert(&bench.table, &full(9000))
                .expect("another key");
            assert_eq!(plain(&mut bench), rows_of([9000]), "{point}");
            bench.client.session.commit().expect("a commit");
            held.release();
            let mut expected = rows_of(1..=MANY);
            expected.push(full(9000));
            assert_eq!(plain(&mut bench), expected, "{point}");
        }
    }

    /// Rule B6: a checkpoint takes no file of a load for an orphan, whether it was finished with a chunk or at the end.
    #[test]
    fn a_checkpoint_leaves_the_files_of_a_load_that_nothing_names_yet() {
        for point in [
            "bulk.after_files",
            "bulk.after_claims",
            "bulk.before_records",
            "bulk.after_publish",
        ] {
            let turn = turn();
            let bench = Bench::new();
            let (mut loader, table) = (bench.other(2), bench.table.clone());
            let held = hold_at(&turn, point, move || {
                let mut rng = Rng::new(5);
                let mut rows = rows_of(1..=8 * MANY);
                for row in &mut rows {
                    let mut memo = vec![0; 500];
                    rng.fill(&mut memo);
                    row.memo = Some(memo.into());
                }
                load(&mut loader, &table, &rows).expect("a load");
                loader.session.commit().expect("a commit");
            });
            let files = bench.disk.list().expect("a listing");
            let row_files = files.iter().filter(|name| name.starts_with("cold-")).count();
            assert!(row_files > 1, "{point}: the load has {row_files} files of rows");
            bench.db.checkpoint_step().expect("a checkpoint");
            held.release();
            bench.db.checkpoint_step().expect("a checkpoint");
            let rows = reopened(&bench.disk.crash(7), point, true);
            assert_eq!(rows.len(), 8 * MANY as usize, "{point}");
        }
    }

    /// Rules D18, L3, L4: whatever the moment, all of a load is there after a crash or nothing, and files nobody needs go.
    #[test]
    fn a_crash_leaves_all_of_a_load_or_nothing() {
        let _turn = turn();
        for seed in 0..4 {
            let mut bench = Bench::new();
            bench.client.insert(&bench.table, &full(9999)).expect("an insert");
            bench.client.session.commit().expect("a commit");
            bench.db.checkpoint_step().expect("a checkpoint");
            let images = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let (disk, film) = (bench.disk.clone(), Arc::clone(&images));
            pbxt_base::stop_point::set_hook(Some(Arc::new(move |name: &'static str| {
                let mut images = film.lock();
                if name.starts_with("bulk.") || name.starts_with("piece.") || name.starts_with("commit.") {
                    let image = disk.crash(seed * 1000 + images.len() as u64);
                    images.push((name, image));
                }
            })));
            let rows = rows_of(1..=MANY);
            let rows = if seed < 2 { rows } else { shuffled(rows) };
            load(&mut bench.client, &bench.table, &rows).expect("a load");
            if seed % 2 == 1 {
                bench.db.checkpoint_step().expect("a checkpoint");
            }
            bench.client.session.commit().expect("a commit");
            pbxt_base::stop_point::set_hook(None);
            let images = std::mem::take(&mut *images.lock());
            assert!(images.iter().any(|(name, _)| *name == "bulk.after_records"));
            for (number, (name, disk)) in images.iter().enumerate() {
                let mut rows = reopened(disk, name, seed % 2 == 1);
                rows.retain(|row| row.id != 9999);
                assert!(
                    rows.is_empty() || *name == "commit.after_publish" && rows == rows_of(1..=MANY),
                    "seed {seed}, {name}, image {number}: {} rows",
                    rows.len()
                );
            }
            let rows = reopened(&bench.disk.crash(seed), "the end", true);
            assert_eq!(rows.len(), MANY as usize + 1, "an acknowledged load is there");
        }
    }

    /// D6: the image lists the transactions of one moment and the runs of a later one; the tail has no END that commits the load.
    #[test]
    fn a_load_that_begins_while_an_image_is_written_stays_rolled_back() {
        let turn = turn();
        let mut bench = Bench::new();
        bench.client.insert(&bench.table, &full(9999)).expect("an insert");
        bench.client.session.commit().expect("a commit");
        let db = Arc::clone(&bench.db);
        let held = hold_at(&turn, "checkpoint.after_txns", move || db.checkpoint_step());
        load(&mut bench.client, &bench.table, &rows_of(1..=2 * MANY)).expect("a load");
        held.release().expect("a checkpoint");
        let unfinished = bench.disk.crash(1);
        bench.client.session.rollback().expect("a rollback");
        assert_eq!(reopened(&unfinished, "unfinished", true), rows_of([9999]));
        assert_eq!(
            reopened(&bench.disk.crash(1), "rolled back", true),
            rows_of([9999])
        );
    }

    /// Rows after a crash, if every way of reading agrees. Files of a load that no checkpoint saved go if it did not commit.
    fn reopened(disk: &SimDisk, name: &str, is_saved: bool) -> Vec<PlayRow> {
        let db = open(disk);
        let table = PlayTable::open(&db, "t").expect("the table is still there");
        let mut client = Client::new(&db, 1);
        let rows = client
            .agreed(&table)
            .expect("readable")
            .unwrap_or_else(|differs| panic!("{name}: {differs}"));
        assert_eq!(
            client.check(&table).expect("a check"),
            Vec::<String>::new(),
            "{name}"
        );
        let files = disk.list().expect("a list of files");
        if rows.len() == 1 && !is_saved {
            let cold = files.iter().filter(|file| file.contains("cold")).count();
            assert_eq!(cold, 0, "{name}: L4: {files:?}");
        }
        // Its keys are free, and stay so.
        load(&mut client, &table, &rows_of(50_000..50_000 + MANY)).expect("a load");
        client.session.rollback().expect("a rollback");
        rows.into_iter().map(|(_, row)| row).collect()
    }
}
