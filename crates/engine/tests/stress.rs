//! Many threads at once, and what must hold whatever they do.
//!
//! Sums that transfers keep, keys that only one may have, deadlocks found when they form, kills that end a wait at once.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

mod common;

use common::{Bench, row};
use pbxt::{Bind, ConflictMode, Database, Error, Isolation, Options, SessionConfig};
use pbxt_base::RowId;
use pbxt_segment::Geometry;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::{Rng, SimDisk};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

const THREADS: u64 = 8;
const ACCOUNTS: u32 = 12;
const START: u32 = 1000;

/// With all background threads.
fn busy_database(disk: &SimDisk) -> Arc<Database> {
    let options = Options {
        geometry: Geometry::small(),
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    Database::open(Arc::new(disk.clone()), &options).expect("the database opens")
}

fn config(conflict_mode: ConflictMode, isolation: Isolation, milliseconds: u64) -> SessionConfig {
    SessionConfig {
        conflict_mode,
        isolation,
        lock_wait_timeout_ms: milliseconds,
        ..SessionConfig::default()
    }
}

fn is_expected(error: &Error) -> bool {
    matches!(
        error,
        Error::WriteConflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. } | Error::Killed
    )
}

/// Moves one unit; the balance is the group.
fn transfer(client: &mut Client, table: &PlayTable, from: RowId, to: RowId) -> pbxt::Result<()> {
    let add = |by: i32| {
        move |old: &PlayRow| PlayRow {
            group: old.group.map(|balance| balance.wrapping_add_signed(by)),
            ..old.clone()
        }
    };
    client.update(table, from, add(-1))?;
    client.update(table, to, add(1))?;
    client.session.commit()
}

/// Wraps as the transfers do: a single account may pass zero.
fn balance(rows: &[(RowId, PlayRow)]) -> u32 {
    rows.iter()
        .filter_map(|(_, row)| row.group)
        .fold(0, u32::wrapping_add)
}

fn transfers_keep_the_sum(conflict_mode: ConflictMode, isolation: Isolation) {
    let disk = SimDisk::new();
    let db = busy_database(&disk);
    let table = PlayTable::create(&db, "t").unwrap();
    let mut client = Client::new(&db, 1);
    let account = |id| PlayRow {
        group: Some(START),
        ..row(id)
    };
    let accounts: Vec<PlayRow> = (0..ACCOUNTS).map(account).collect();
    let rows = client.insert_all(&table, &accounts).unwrap();
    client.session.commit().unwrap();
    let (done, until) = (AtomicU64::new(0), Instant::now() + Duration::from_millis(700));
    scope(|threads| {
        for number in 0..THREADS {
            let (db, table, rows, done) = (&db, &table, &rows, &done);
            threads.spawn(move || {
                let mut client = Client::new(db, number as usize);
                client.session.configure(config(conflict_mode, isolation, 2_000));
                let mut rng = Rng::new(number);
                while Instant::now() < until {
                    let some = |rng: &mut Rng| rows[rng.below(u64::from(ACCOUNTS)) as usize];
                    let (from, to) = (some(&mut rng), some(&mut rng));
                    match transfer(&mut client, table, from, to) {
                        Ok(()) => {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) if is_expected(&error) => client.session.rollback().unwrap(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        threads.spawn(|| {
            let mut reader = Client::new(&db, 100);
            while Instant::now() < until {
                let read = reader
                    .agreed(&table)
                    .unwrap()
                    .unwrap_or_else(|differs| panic!("{differs}"));
                assert_eq!(
                    (balance(&read), read.len()),
                    (ACCOUNTS * START, ACCOUNTS as usize)
                );
                reader.session.commit().unwrap();
            }
        });
    });
    assert!(
        done.load(Ordering::Relaxed) > 100,
        "only {done:?} transfers got through"
    );
    assert_eq!(client.check(&table).unwrap(), Vec::<String>::new());
    drop((client, table));
    db.flush().unwrap();
    let crashed = disk.crash(7);
    drop(db);
    let db = busy_database(&crashed);
    let table = PlayTable::open(&db, "t").unwrap();
    let mut client = Client::new(&db, 1);
    let read = client
        .agreed(&table)
        .unwrap()
        .unwrap_or_else(|differs| panic!("{differs}"));
    assert_eq!(balance(&read), ACCOUNTS * START);
    assert_eq!(client.check(&table).unwrap(), Vec::<String>::new());
}

#[test]
fn transfers_keep_the_sum_where_conflicts_are_errors() {
    transfers_keep_the_sum(ConflictMode::Error, Isolation::RepeatableRead);
}

#[test]
fn transfers_keep_the_sum_where_conflicts_wait() {
    transfers_keep_the_sum(ConflictMode::Wait, Isolation::ReadCommitted);
}

/// What one camera took: what each thread had acknowledged just before, and the disk after a power cut.
struct Image {
    acknowledged: Vec<u64>,
    disk: SimDisk,
}

#[test]
fn a_power_cut_among_busy_threads_takes_back_no_acknowledged_commit() {
    // D1, D6: each thread counts in a row of its own and moves units between two shared ones in the same transaction.
    let disk = SimDisk::new();
    let db = busy_database(&disk);
    let table = PlayTable::create(&db, "t").unwrap();
    let mut client = Client::new(&db, 1);
    let new = |id| PlayRow {
        group: Some(if id < THREADS as u32 { 0 } else { START }),
        ..row(id)
    };
    let contents: Vec<PlayRow> = (0..THREADS as u32 + 2).map(new).collect();
    let rows = client.insert_all(&table, &contents).unwrap();
    client.session.commit().unwrap();
    let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let until = Instant::now() + Duration::from_millis(700);
    let (counting, watched) = (&rows, &acknowledged);
    let images = scope(|threads| {
        for number in 0..THREADS as usize {
            let (db, table) = (&db, &table);
            threads.spawn(move || {
                let mut client = Client::new(db, number);
                client
                    .session
                    .configure(config(ConflictMode::Wait, Isolation::ReadCommitted, 2_000));
                let shared = [counting[THREADS as usize], counting[THREADS as usize + 1]];
                while Instant::now() < until {
                    let counted = rename(&mut client, table, counting[number]);
                    let [from, to] = [shared[number % 2], shared[1 - number % 2]];
                    match counted.and_then(|()| transfer(&mut client, table, from, to)) {
                        Ok(()) => {
                            watched[number].fetch_add(1, Ordering::SeqCst);
                        }
                        Err(error) if is_expected(&error) => client.session.rollback().unwrap(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut images = Vec::new();
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            images.push(Image {
                acknowledged: watched.iter().map(|count| count.load(Ordering::SeqCst)).collect(),
                disk: disk.crash(images.len() as u64),
            });
        }
        images
    });
    assert!(
        acknowledged.iter().all(|count| count.load(Ordering::SeqCst) > 0),
        "{acknowledged:?}"
    );
    for image in images {
        let db = busy_database(&image.disk);
        let table = PlayTable::open(&db, "t").unwrap();
        let mut client = Client::new(&db, 1);
        let read = client
            .agreed(&table)
            .unwrap()
            .unwrap_or_else(|differs| panic!("{differs}"));
        let (counters, shared) = read.split_at(THREADS as usize);
        assert_eq!(balance(shared), 2 * START, "no transfer is there in part");
        for (acknowledged, (_, row)) in image.acknowledged.iter().zip(counters) {
            assert!(
                row.group.map(u64::from) >= Some(*acknowledged),
                "{row:?}, {acknowledged} acknowledged"
            );
        }
        assert_eq!(client.check(&table).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn of_all_who_insert_one_key_exactly_one_gets_it() {
    let db = busy_database(&SimDisk::new());
    let table = PlayTable::create(&db, "t").unwrap();
    let won = AtomicU64::new(0);
    scope(|threads| {
        for number in 0..THREADS {
            let (db, table, won) = (&db, &table, &won);
            threads.spawn(move || {
                let mut client = Client::new(db, number as usize);
                client
                    .session
                    .configure(config(ConflictMode::Error, Isolation::RepeatableRead, 10_000));
                for id in 0..300 {
                    match client.insert(
                        table,
                        &PlayRow {
                            tag: Some(id),
                            ..row(id)
                        },
                    ) {
                        Ok(_) if (id + number as u32).is_multiple_of(3) => client.session.rollback().unwrap(),
                        Ok(_) => {
                            won.fetch_add(1, Ordering::Relaxed);
                            client.session.commit().unwrap();
                        }
                        Err(Error::DuplicateKey { .. }) => client.session.rollback().unwrap(),
                        Err(error) => panic!("key {id}: {error}"),
                    }
                }
            });
        }
    });
    let mut client = Client::new(&db, 99);
    let read = client
        .agreed(&table)
        .unwrap()
        .unwrap_or_else(|differs| panic!("{differs}"));
    let ids: BTreeSet<u32> = read.iter().map(|(_, row)| row.id).collect();
    assert_eq!(
        (ids.len(), read.len() as u64),
        (read.len(), won.load(Ordering::Relaxed))
    );
    assert_eq!(ids.len(), 300, "each key is tried by some thread that commits");
    assert_eq!(client.check(&table).unwrap(), Vec::<String>::new());
}

/// Two rows, two sessions that wait in conflict mode wait.
fn two_on_two() -> (Bench, [RowId; 2], [Client; 2]) {
    let mut bench = Bench::new();
    let rows = [1, 2].map(|id| bench.client.insert(&bench.table, &row(id)).unwrap());
    bench.client.session.commit().unwrap();
    let clients = [1, 2].map(|number| {
        let mut client = bench.other(number);
        client
            .session
            .configure(config(ConflictMode::Wait, Isolation::RepeatableRead, 20_000));
        client
    });
    (bench, rows, clients)
}

fn rename(client: &mut Client, table: &PlayTable, row: RowId) -> pbxt::Result<()> {
    client
        .update(table, row, |old| PlayRow {
            group: Some(old.group.unwrap_or(0) + 1),
            ..old.clone()
        })
        .map(|_| ())
}

#[test]
fn a_deadlock_is_found_when_it_forms_and_the_other_goes_on() {
    let (mut bench, [first, second], [mut one, mut two]) = two_on_two();
    rename(&mut one, &bench.table, first).unwrap();
    rename(&mut two, &bench.table, second).unwrap();
    let started = Instant::now();
    let table = bench.table.clone();
    let waiting = std::thread::spawn(move || {
        let waited = rename(&mut one, &table, second);
        (waited, one)
    });
    std::thread::sleep(Duration::from_millis(100));
    let closing = rename(&mut two, &bench.table, first);
    if closing.is_ok() {
        two.session.commit().unwrap();
    } else {
        two.session.rollback().unwrap();
    }
    let (waited, mut one) = waiting.join().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "nobody waited for the limit"
    );
    let victims = [&closing, &waited]
        .iter()
        .filter(|result| matches!(result, Err(Error::Deadlock { .. })))
        .count();
    assert_eq!(victims, 1, "{closing:?} {waited:?}");
    if waited.is_ok() {
        one.session.commit().unwrap();
    } else {
        assert!(matches!(
            one.session.commit(),
            Err(Error::TransactionAborted { .. })
        ));
        one.session.rollback().unwrap();
    }
    drop((one, two));
    let rows = bench.rows();
    assert!(
        rows.iter().all(|(_, row)| row.group == Some(1)),
        "one of the two changed both: {rows:?}"
    );
    bench.settle();
}

#[test]
fn a_kill_ends_a_wait_at_once_and_only_the_statement() {
    let (mut bench, [first, second], [mut one, mut two]) = two_on_two();
    rename(&mut one, &bench.table, first).unwrap();
    rename(&mut two, &bench.table, second).unwrap();
    let gate = Arc::clone(two.session.gate());
    let table = bench.table.clone();
    let waiting = std::thread::spawn(move || {
        let started = Instant::now();
        (rename(&mut two, &table, first), started.elapsed(), two)
    });
    std::thread::sleep(Duration::from_millis(100));
    gate.kill();
    let (killed, took, mut two) = waiting.join().unwrap();
    assert!(matches!(killed, Err(Error::Killed)), "{killed:?}");
    assert!(took < Duration::from_secs(5));
    two.session.commit().unwrap();
    one.session.rollback().unwrap();
    drop((one, two));
    let groups: Vec<_> = bench.rows().into_iter().map(|(_, row)| row.group).collect();
    assert_eq!(groups, [None, Some(1)]);
    bench.settle();
}

#[test]
fn a_kill_that_came_before_a_statement_does_not_end_it() {
    let (bench, [first, _], [mut one, mut two]) = two_on_two();
    rename(&mut one, &bench.table, first).unwrap();
    two.session
        .configure(config(ConflictMode::Wait, Isolation::ReadCommitted, 50));
    two.session.gate().kill();
    let refused = rename(&mut two, &bench.table, first);
    assert!(
        matches!(refused, Err(Error::LockTimeout { .. })),
        "T39: {refused:?}"
    );
    two.session.gate().kill();
    let held = bench.db.drop_table(Some(&two.session), "t");
    assert!(matches!(held, Err(Error::LockTimeout { .. })), "T39: {held:?}");
    one.session.rollback().unwrap();
}

/// It took no snapshot and changed nothing, so there is no transaction to be ended with it.
#[test]
fn a_kill_of_a_statement_that_began_no_transaction_ends_with_it() {
    let (bench, [first, _], [_, mut two]) = two_on_two();
    for commits in [true, false] {
        two.session.begin_statement().unwrap();
        two.session.gate().kill();
        if commits {
            two.session.commit().unwrap();
        } else {
            two.session.rollback().unwrap();
        }
        two.session.begin_statement().unwrap();
        assert!(!two.session.gate().is_killed(), "T39");
        two.session.end_statement();
        rename(&mut two, &bench.table, first).unwrap();
        two.session.commit().unwrap();
    }
}

#[test]
fn a_wait_ends_at_its_limit_and_the_next_in_line_gets_the_row() {
    let (bench, [first, _], [mut one, mut two]) = two_on_two();
    rename(&mut one, &bench.table, first).unwrap();
    two.session
        .configure(config(ConflictMode::Wait, Isolation::ReadCommitted, 150));
    let mut three = bench.other(3);
    three
        .session
        .configure(config(ConflictMode::Wait, Isolation::ReadCommitted, 20_000));
    let (table, is_done) = (&bench.table, &AtomicBool::new(false));
    scope(|threads| {
        let short = threads.spawn(move || {
            let started = Instant::now();
            (rename(&mut two, table, first), started.elapsed())
        });
        let long = threads.spawn(move || {
            rename(&mut three, table, first).unwrap();
            is_done.store(true, Ordering::SeqCst);
            three.session.commit().unwrap();
        });
        let (timed_out, took) = short.join().unwrap();
        assert!(
            matches!(timed_out, Err(Error::LockTimeout { .. })),
            "{timed_out:?}"
        );
        assert!(
            took >= Duration::from_millis(150) && took < Duration::from_secs(5),
            "{took:?}"
        );
        assert!(!is_done.load(Ordering::SeqCst), "the row is still held");
        one.session.commit().unwrap();
        long.join().unwrap();
    });
}

#[test]
fn locked_rows_and_tables_under_random_kills_come_to_rest() {
    let disk = SimDisk::new();
    let db = busy_database(&disk);
    let table = PlayTable::create(&db, "t").unwrap();
    let mut client = Client::new(&db, 1);
    let accounts: Vec<PlayRow> = (0..6).map(row).collect();
    let rows = client.insert_all(&table, &accounts).unwrap();
    client.session.commit().unwrap();
    let until = Instant::now() + Duration::from_millis(700);
    let locks = Bind {
        lock: Some(pbxt_txn::LockMode::Shared),
        ..Bind::default()
    };
    scope(|threads| {
        let mut gates = Vec::new();
        for number in 0..THREADS {
            let mut client = Client::new(&db, number as usize);
            client
                .session
                .configure(config(ConflictMode::Wait, Isolation::ReadCommitted, 50 * number));
            gates.push(Arc::clone(client.session.gate()));
            let (table, rows) = (&table, &rows);
            threads.spawn(move || {
                let mut rng = Rng::new(number);
                while Instant::now() < until {
                    let step = match rng.below(4) {
                        0 => client.scan_locking(table, locks).map(|_| ()),
                        1 => client.session.commit(),
                        2 => client.insert(table, &row(100 + rng.below(20) as u32)).map(|_| ()),
                        _ => rename(&mut client, table, rows[rng.below(6) as usize]),
                    };
                    match step {
                        Err(error) if is_expected(&error) || matches!(error, Error::DuplicateKey { .. }) => {
                            if rng.chance(60) || matches!(error, Error::Deadlock { .. }) {
                                client.session.rollback().unwrap();
                            }
                        }
                        step => step.unwrap(),
                    }
                }
            });
        }
        let mut rng = Rng::new(99);
        while Instant::now() < until {
            gates[rng.below(THREADS) as usize].kill();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(client.check(&table).unwrap(), Vec::<String>::new());
    client.session.commit().unwrap();
    for row in rows {
        assert!(
            client.delete(&table, row).unwrap().is_some(),
            "no lock is left behind"
        );
    }
    client.session.commit().unwrap();
    assert_eq!(db.list_lock_waits().lines, []);
}

#[test]
fn a_free_row_is_locked_at_once_while_others_wait() {
    // T15: with so many rows some share their counter of waiters with the one that is waited for.
    let mut bench = Bench::new();
    let new: Vec<PlayRow> = (0..4000).map(row).collect();
    let rows = bench.client.insert_all(&bench.table, &new).unwrap();
    bench.client.session.commit().unwrap();
    bench.client.delete(&bench.table, rows[0]).unwrap();
    let (mut waiter, mut locker) = (bench.other(1), bench.other(2));
    waiter
        .session
        .configure(config(ConflictMode::Error, Isolation::RepeatableRead, 100_000));
    let (db, table, held) = (&bench.db, &bench.table, &mut bench.client);
    let is_done = AtomicBool::new(false);
    let bind = Bind {
        lock: Some(pbxt_txn::LockMode::Exclusive),
        ..Bind::default()
    };
    scope(|threads| {
        threads.spawn(|| waiter.delete(table, rows[0]));
        while !db.waits.has_waiters() {
            std::thread::yield_now();
        }
        threads.spawn(|| {
            let locked = locker.statement(|session| {
                let mut cursor = pbxt::Cursor::new(&table.table);
                cursor.bind(session, bind)?;
                for row in &rows[1..] {
                    cursor.fetch(session, *row, |_| Ok(()))?;
                }
                Ok(())
            });
            locked.unwrap();
            is_done.store(true, Ordering::Release);
        });
        let patience = Instant::now() + Duration::from_secs(30);
        while !is_done.load(Ordering::Acquire) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_done = is_done.load(Ordering::Acquire);
        held.session.rollback().unwrap();
        assert!(was_done, "a row that nobody has or waits for cannot be locked");
    });
}

/// Rule T13: who waits because of a claim that is withdrawn has no reason to wait any more, though the transaction goes on.
#[test]
fn a_claim_that_is_withdrawn_lets_others_go_on() {
    let bench = Bench::new();
    let (mut first, mut second, mut third) = (bench.other(1), bench.other(2), bench.other(3));
    for client in [&mut first, &mut second] {
        let patient = config(ConflictMode::Error, Isolation::ReadCommitted, 5_000);
        client.session.configure(patient);
    }
    let tagged = |id: u32, tag: u32| PlayRow {
        tag: Some(tag),
        ..PlayRow::new(id)
    };
    let (db, table) = (&bench.db, &bench.table);
    third.insert(table, &tagged(9, 30)).unwrap();
    scope(|threads| {
        // Claims key 2 and waits for the other one.
        let first = threads.spawn(|| first.insert(table, &tagged(2, 30)));
        while !db.waits.has_waiters() {
            std::thread::yield_now();
        }
        let waiter = threads.spawn(|| second.insert(table, &tagged(2, 40)));
        std::thread::sleep(Duration::from_millis(200));
        third.session.commit().unwrap();
        let refused = first.join().unwrap();
        assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
        let inserted = waiter.join().unwrap();
        assert!(inserted.is_ok(), "the key is free: {inserted:?}");
    });
}
