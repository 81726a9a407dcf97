//! What lists of transactions, locks and waits say, against what the sessions did; and what is told about a deadlock.
//!
//! Rules T35 to T38. Connections are numbered; a client's number is also its host pointer.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

mod common;

use common::{Bench, options, row};
use pbxt::{
    Bind, ConflictMode, Database, Error, Isolation, LockKind, LockState, Options, SessionConfig, TxnInfo,
    TxnState, WaitObserver,
};
use pbxt_base::{RowId, TxnId};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use pbxt_txn::LockMode::{self, Exclusive, Intent, Shared};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

const LONG: u64 = 60_000;

fn patient(client: &mut Client) {
    client.session.configure(SessionConfig {
        isolation: Isolation::ReadCommitted,
        conflict_mode: ConflictMode::Wait,
        lock_wait_timeout_ms: LONG,
        ..SessionConfig::default()
    });
}

/// A table of so many rows.
fn filled(bench: &mut Bench, rows: u32) -> Vec<RowId> {
    let rows: Vec<PlayRow> = (1..=rows).map(row).collect();
    let ids = bench.client.insert_all(&bench.table, &rows).unwrap();
    bench.client.session.commit().unwrap();
    ids
}

fn change(client: &mut Client, table: &PlayTable, row: RowId) -> pbxt::Result<()> {
    let group = |old: &PlayRow| Some(old.group.unwrap_or(0) + 1);
    let changed = client.update(table, row, |old| PlayRow {
        group: group(old),
        ..old.clone()
    });
    changed.map(|_| ())
}

/// Locks every row.
fn lock_all(client: &mut Client, table: &PlayTable, mode: LockMode) {
    let bind = Bind {
        lock: Some(mode),
        ..Bind::default()
    };
    client.scan_locking(table, bind).unwrap();
}

fn txn_on(db: &Database, connection: u64) -> TxnInfo {
    let list = db.list_txns();
    let found: Vec<&TxnInfo> = list.iter().filter(|txn| txn.host_thread == connection).collect();
    assert_eq!(found.len(), 1, "connection {connection} in {list:?}");
    found[0].clone()
}

/// Connection, kind, row, mode, state, count.
type Line = (u64, LockKind, u64, LockMode, LockState, u64);

/// The list of locks, sorted.
fn locks(db: &Database) -> Vec<Line> {
    let list = db.list_locks();
    assert_eq!(list.left_out, 0);
    let line = |lock: &pbxt::LockInfo| {
        assert_eq!(&*lock.what.table, "t", "{lock:?}");
        let owner = lock.owner.host_thread;
        (
            owner,
            lock.what.kind,
            lock.what.row,
            lock.mode,
            lock.state,
            lock.count,
        )
    };
    let mut lines: Vec<Line> = list.lines.iter().map(line).collect();
    lines.sort_by_key(|line| format!("{line:?}"));
    lines
}

fn sorted(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| format!("{line:?}"));
    lines
}

/// Waits until so many transactions wait in line; the observer is asked for nothing.
fn until_waiting(db: &Database, count: usize) {
    while db
        .list_lock_waits()
        .lines
        .iter()
        .filter(|wait| !wait.in_line)
        .count()
        < count
    {
        std::thread::yield_now();
    }
}

#[test]
fn a_transaction_is_listed_with_its_figures_until_it_ends() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 5);
    assert!(bench.db.list_txns().is_empty(), "nobody does anything");
    let mut one = bench.other(7);
    one.session.configure(SessionConfig {
        isolation: Isolation::Serializable,
        conflict_mode: ConflictMode::Wait,
        ..SessionConfig::default()
    });
    one.insert_all(&bench.table, &[row(10), row(11)]).unwrap();
    let mark = one.session.savepoint().unwrap();
    change(&mut one, &bench.table, rows[0]).unwrap();
    one.session.savepoint().unwrap();
    let mut reader = bench.other(8);
    reader.scan(&bench.table).unwrap();

    let writer = txn_on(&bench.db, 7);
    assert_eq!(writer.txn, one.session.txn());
    assert_eq!((writer.state, writer.savepoints), (TxnState::Active, 2));
    assert_eq!(
        (writer.isolation, writer.conflict_mode),
        (Isolation::Serializable, ConflictMode::Wait)
    );
    assert_eq!(writer.rows_changed, 3);
    assert!(writer.log_bytes_held > 0 && writer.wait.is_none(), "{writer:?}");
    let held = writer.log_bytes_held;
    let seen = txn_on(&bench.db, 8);
    assert_eq!(
        (seen.txn, seen.rows_changed, seen.log_bytes_held),
        (TxnId::new(0), 0, 0)
    );
    assert!(seen.snapshot.raw() > 0, "{seen:?}");

    one.session.rollback_to(mark).unwrap();
    let writer = txn_on(&bench.db, 7);
    assert_eq!(
        (writer.savepoints, writer.rows_changed),
        (1, 3),
        "a change undone was a change"
    );
    assert!(writer.log_bytes_held >= held);
    one.session.commit().unwrap();
    reader.session.commit().unwrap();
    assert!(bench.db.list_txns().is_empty());
    bench.settle();
}

#[test]
fn a_snapshot_keeps_the_log_of_those_who_commit_after_it() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 1);
    let mut reader = bench.other(8);
    reader.scan(&bench.table).unwrap();
    let before = bench.db.log().tail().raw();
    bench.db.housekeeping_step();
    change(&mut bench.client, &bench.table, rows[0]).unwrap();
    bench.client.session.commit().unwrap();
    bench.db.housekeeping_step();
    change(&mut bench.client, &bench.table, rows[0]).unwrap();
    bench.client.session.commit().unwrap();
    let held = txn_on(&bench.db, 8).log_bytes_held;
    let written = bench.db.log().tail().raw() - before;
    assert!(held > 0 && held <= written, "{held} of {written} bytes");
}

#[test]
fn prepared_transactions_are_listed_with_and_without_a_connection() {
    let mut bench = Bench::new();
    filled(&mut bench, 1);
    let mut one = bench.other(7);
    one.insert_all(&bench.table, &[row(10), row(11)]).unwrap();
    one.session.prepare(b"xid").unwrap();
    let listed = txn_on(&bench.db, 7);
    assert_eq!((listed.state, listed.rows_changed), (TxnState::Prepared, 2));
    one.session.detach_prepared();
    let listed = txn_on(&bench.db, 0);
    assert_eq!((listed.state, listed.rows_changed), (TxnState::Detached, 2));
    let held = locks(&bench.db);
    assert!(
        held.contains(&(0, LockKind::Rows, 0, Exclusive, LockState::Changed, 2)),
        "{held:?}"
    );
    assert!(
        held.contains(&(0, LockKind::Table, 0, Intent, LockState::Granted, 1)),
        "{held:?}"
    );
    drop(one);
    bench.db.commit_prepared(b"xid").unwrap();
    assert!(bench.db.list_txns().is_empty() && locks(&bench.db).is_empty());
    bench.settle();
}

#[test]
fn changed_and_locked_rows_have_a_line_each_while_they_are_few() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 3);
    let mut two = bench.other(8);
    lock_all(&mut two, &bench.table, Shared);
    let mut one = bench.other(7);
    let added = one.insert_all(&bench.table, &[row(10), row(11)]).unwrap();
    let id = |row: RowId| row.raw();
    let granted = LockState::Granted;
    let mut expected = vec![
        (7, LockKind::Table, 0, Intent, granted, 1),
        (7, LockKind::Rows, 0, Exclusive, LockState::Changed, 2),
        (8, LockKind::Rows, 0, Shared, granted, 3),
    ];
    expected.extend(
        added
            .iter()
            .map(|row| (7, LockKind::Row, id(*row), Exclusive, LockState::Changed, 1)),
    );
    expected.extend(
        rows.iter()
            .map(|row| (8, LockKind::Row, id(*row), Shared, granted, 1)),
    );
    assert_eq!(locks(&bench.db), sorted(expected), "T35");
    assert_eq!(txn_on(&bench.db, 8).rows_locked, 3);
    one.session.rollback().unwrap();
    two.session.commit().unwrap();
    assert!(locks(&bench.db).is_empty());
    bench.settle();
}

#[test]
fn rows_whose_change_was_undone_are_not_listed() {
    let mut bench = Bench::new();
    filled(&mut bench, 1);
    let mut one = bench.other(7);
    let first = one.insert(&bench.table, &row(10)).unwrap();
    let mark = one.session.savepoint().unwrap();
    one.insert_all(&bench.table, &[row(11), row(12)]).unwrap();
    one.session.rollback_to(mark).unwrap();
    let expected = vec![
        (7, LockKind::Table, 0, Intent, LockState::Granted, 1),
        (7, LockKind::Rows, 0, Exclusive, LockState::Changed, 1),
        (7, LockKind::Row, first.raw(), Exclusive, LockState::Changed, 1),
    ];
    assert_eq!(locks(&bench.db), sorted(expected));
}

#[test]
fn many_rows_take_one_line_and_the_one_waited_for_another() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 300);
    let mut one = bench.other(7);
    lock_all(&mut one, &bench.table, Exclusive);
    let mut two = bench.other(8);
    patient(&mut two);
    let table = bench.table.clone();
    let wanted = rows[150];
    let waiting = std::thread::spawn(move || {
        let changed = change(&mut two, &table, wanted);
        (changed, two)
    });
    until_waiting(&bench.db, 1);
    let waits = bench.db.list_lock_waits().lines;
    let [wait] = waits.as_slice() else {
        panic!("one waits for one: {waits:?}");
    };
    assert_eq!((wait.waiter.host_thread, wait.blocker.host_thread), (8, 7));
    assert_eq!(
        (wait.waiter.txn, wait.blocker.txn),
        (txn_on(&bench.db, 8).txn, one.session.txn())
    );
    assert_eq!(
        (wait.what.kind, wait.what.row, wait.mode),
        (LockKind::Row, wanted.raw(), Exclusive)
    );
    assert_eq!((wait.blockers, wait.in_line), (1, false));
    let listed = txn_on(&bench.db, 8);
    assert_eq!(listed.state, TxnState::Waiting);
    let shown = listed.wait.expect("it waits");
    assert_eq!((shown.blocker.host_thread, &shown.what), (7, &wait.what));
    let held: Vec<Line> = locks(&bench.db)
        .into_iter()
        .filter(|line| line.1 != LockKind::Table)
        .collect();
    let expected = vec![
        (7, LockKind::Rows, 0, Exclusive, LockState::Granted, 300),
        (7, LockKind::Row, wanted.raw(), Exclusive, LockState::Granted, 1),
        (8, LockKind::Row, wanted.raw(), Exclusive, LockState::Waiting, 1),
    ];
    assert_eq!(held, sorted(expected), "T35");
    one.session.commit().unwrap();
    let (changed, mut two) = waiting.join().unwrap();
    changed.unwrap();
    two.session.commit().unwrap();
    assert!(locks(&bench.db).is_empty() && bench.db.list_lock_waits().lines.is_empty());
}

#[test]
fn a_key_that_is_waited_for_is_listed_with_its_bytes_and_holder() {
    let mut bench = Bench::new();
    filled(&mut bench, 1);
    let mut one = bench.other(7);
    one.insert(&bench.table, &row(77)).unwrap();
    let mut two = bench.other(8);
    patient(&mut two);
    let table = bench.table.clone();
    let waiting = std::thread::spawn(move || {
        let inserted = two.insert(&table, &row(77));
        (inserted, two)
    });
    until_waiting(&bench.db, 1);
    let waits = bench.db.list_lock_waits().lines;
    let what = &waits[0].what;
    assert_eq!(
        (what.kind, &*what.index, &*what.table),
        (LockKind::Key, "primary", "t")
    );
    assert_eq!(
        what.key,
        bench.table.key(0, &row(77)),
        "the image that is compared"
    );
    let list = bench.db.list_locks().lines;
    let keys: Vec<_> = list
        .iter()
        .filter(|lock| lock.what.kind == LockKind::Key)
        .collect();
    let mut told: Vec<_> = keys
        .iter()
        .map(|lock| (lock.owner.host_thread, lock.state))
        .collect();
    told.sort_by_key(|(connection, _)| *connection);
    assert_eq!(told, [(7, LockState::Changed), (8, LockState::Waiting)]);
    one.session.rollback().unwrap();
    let (inserted, mut two) = waiting.join().unwrap();
    inserted.unwrap();
    two.session.commit().unwrap();
}

#[test]
fn who_stands_in_line_is_told_whom_it_stands_behind() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 1);
    let mut one = bench.other(7);
    change(&mut one, &bench.table, rows[0]).unwrap();
    let mut threads = Vec::new();
    for number in [8, 9] {
        let mut client = bench.other(number);
        patient(&mut client);
        let (table, wanted) = (bench.table.clone(), rows[0]);
        threads.push(std::thread::spawn(move || {
            change(&mut client, &table, wanted).unwrap();
            client.session.commit().unwrap();
        }));
        until_waiting(&bench.db, threads.len());
    }
    let waits = bench.db.list_lock_waits().lines;
    let told: Vec<_> = waits
        .iter()
        .map(|wait| {
            (
                wait.waiter.host_thread,
                wait.blocker.host_thread,
                wait.in_line,
                wait.blockers,
            )
        })
        .collect();
    assert_eq!(told, [(8, 7, false, 1), (9, 7, false, 2), (9, 8, true, 2)]);
    one.session.commit().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Tells statements by connection and keeps what is told about deadlocks.
#[derive(Debug, Default)]
struct Host {
    deadlocks: Mutex<Vec<String>>,
}

impl WaitObserver for Host {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {}
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
    fn statement(&self, host_session: usize, bytes_max: usize) -> Option<String> {
        assert!(bytes_max >= 512, "room for {bytes_max} bytes");
        Some(format!("statement of\n{host_session}"))
    }
    fn deadlock(&self, text: &str) {
        self.deadlocks.lock().unwrap().push(text.to_owned());
    }
}

/// Holds those up who are about to sleep, until it is told to let them.
#[derive(Debug)]
struct Slow {
    go: Mutex<Receiver<()>>,
}

impl WaitObserver for Slow {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {
        self.go.lock().unwrap().recv().unwrap();
    }
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
}

#[test]
fn who_has_got_the_turn_waits_for_nothing_though_it_does_not_run_yet() {
    let (go, gate) = channel();
    let options = Options {
        observer: Some(Arc::new(Slow { go: Mutex::new(gate) })),
        ..options()
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).unwrap();
    let table = PlayTable::create(&db, "./bank/t").unwrap();
    let (mut one, mut two) = (Client::new(&db, 7), Client::new(&db, 8));
    let rows = one.insert_all(&table, &[row(1)]).unwrap();
    one.session.commit().unwrap();
    change(&mut one, &table, rows[0]).unwrap();
    patient(&mut two);
    let wanted = rows[0];
    let waiting = std::thread::spawn(move || {
        change(&mut two, &table, wanted).unwrap();
        two.session.commit().unwrap();
    });
    until_waiting(&db, 1);
    assert_eq!(txn_on(&db, 8).state, TxnState::Waiting);
    one.session.commit().unwrap();
    let woken = txn_on(&db, 8);
    assert!(
        woken.state == TxnState::Active && woken.wait.is_none(),
        "{woken:?}"
    );
    go.send(()).unwrap();
    waiting.join().unwrap();
}

fn hosted() -> (Arc<Host>, Arc<Database>, PlayTable) {
    let host = Arc::new(Host::default());
    let observer: Arc<Host> = Arc::clone(&host);
    let options = Options {
        observer: Some(observer),
        ..options()
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).unwrap();
    let table = PlayTable::create(&db, "./bank/t").unwrap();
    (host, db, table)
}

/// Every client has changed the row of its place and asks for the next one's. What each was answered.
fn close_a_circle(db: &Arc<Database>, table: &PlayTable, rows: &[RowId]) -> Vec<pbxt::Result<()>> {
    let mut clients: Vec<Client> = (1..=rows.len()).map(|number| Client::new(db, number)).collect();
    for (client, row) in clients.iter_mut().zip(rows) {
        patient(client);
        change(client, table, *row).unwrap();
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (place, mut client) in clients.into_iter().enumerate() {
            let wanted = rows[(place + 1) % rows.len()];
            threads.push(scope.spawn(move || {
                let changed = change(&mut client, table, wanted);
                let _ = if changed.is_ok() {
                    client.session.commit()
                } else {
                    client.session.rollback()
                };
                changed
            }));
            if place + 1 < rows.len() {
                until_waiting(db, place + 1);
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_deadlock_is_told_with_statements_locks_and_victim() {
    for members in [2, 3] {
        let (host, db, table) = hosted();
        db.waits.print_deadlocks.store(members == 3, Ordering::Relaxed);
        let mut client = Client::new(&db, 50);
        let new: Vec<PlayRow> = (1..=members).map(row).collect();
        let rows = client.insert_all(&table, &new).unwrap();
        client.session.commit().unwrap();
        let answers = close_a_circle(&db, &table, &rows);
        // The last one closed the circle.
        let error = answers.last().unwrap().as_ref().unwrap_err();
        assert!(matches!(error, Error::Deadlock { .. }), "{error}");
        assert!(answers[..rows.len() - 1].iter().all(Result::is_ok), "{answers:?}");
        let sentence = error.to_string();
        assert!(
            sentence.contains("table './bank/t'") && sentence.contains("of connection 1"),
            "{sentence}"
        );

        let text = db.waits.latest_deadlock().expect("it is kept");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("Deadlock 1 at ")
                && lines[0].ends_with(&format!("UTC: {members} transactions in a circle")),
            "{text}"
        );
        assert_eq!(lines.len(), 2 + 4 * rows.len(), "{text}");
        let last = rows.len() - 1;
        for (place, member) in lines[1..].chunks_exact(4).enumerate() {
            // The circle begins with the one that closed it, and goes on with the one it waits for.
            let who = (last + place) % rows.len();
            let connection = format!("of connection {}, ", who + 1);
            assert!(
                member[0].starts_with(&format!("({}) transaction ", place + 1)),
                "{text}"
            );
            assert!(
                member[0].contains(&connection) && member[0].contains(" 1 rows changed"),
                "{text}"
            );
            assert_eq!(member[1], format!("    statement: statement of {}", who + 1));
            let (own, next) = (rows[who].raw(), rows[(who + 1) % rows.len()].raw());
            assert_eq!(
                member[2],
                format!("    holds: row {own} of table bank/t, exclusive")
            );
            let waits =
                format!("    waits for: row {next} of table bank/t, exclusive, because of transaction ");
            assert!(member[3].starts_with(&waits), "{text}");
        }
        let end = lines.last().unwrap();
        let victim =
            format!("of connection {members}, because its request closed the circle. It is rolled back.");
        assert!(
            end.starts_with("Victim: transaction ") && end.ends_with(&victim),
            "{text}"
        );
        assert!(db.status_report().contains(&*text));
        let told = host.deadlocks.lock().unwrap();
        assert_eq!(told.len(), usize::from(members == 3), "only if it is wanted");
        assert!(told.iter().all(|told| **told == *text));
        assert_eq!(db.status().deadlocks, 1);
    }
}

#[test]
fn a_lock_wait_that_times_out_names_the_connection_that_has_the_lock() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 1);
    let mut one = bench.other(7);
    change(&mut one, &bench.table, rows[0]).unwrap();
    let mut two = bench.other(8);
    let error = change(&mut two, &bench.table, rows[0]).unwrap_err();
    let holder = format!("because of transaction {} of connection 7", one.session.txn());
    assert!(error.to_string().contains(&holder), "{error}");
}

#[test]
fn time_slept_in_waits_is_counted_when_they_end() {
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 1);
    let mut one = bench.other(7);
    change(&mut one, &bench.table, rows[0]).unwrap();
    let mut two = bench.other(8);
    patient(&mut two);
    let gate = Arc::clone(two.session.gate());
    let (table, wanted) = (bench.table.clone(), rows[0]);
    let waiting = std::thread::spawn(move || change(&mut two, &table, wanted));
    until_waiting(&bench.db, 1);
    let during = bench.db.status();
    assert_eq!((during.lock_waits_now, during.lock_wait_kills), (1, 0));
    while txn_on(&bench.db, 8)
        .wait
        .is_none_or(|wait| wait.waited_millis < 5)
    {
        std::thread::yield_now();
    }
    gate.kill();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Killed)));
    let after = bench.db.status();
    assert_eq!(
        (after.lock_waits_now, after.lock_wait_kills, after.lock_waits),
        (0, 1, 1)
    );
    assert!(
        after.lock_wait_millis >= 5 && after.lock_wait_millis_max == after.lock_wait_millis,
        "{after:?}"
    );
    one.session.rollback().unwrap();
}

#[test]
fn lists_are_taken_while_many_sessions_work() {
    const SESSIONS: usize = 8;
    let mut bench = Bench::new();
    let rows = filled(&mut bench, 6);
    let (left, table, db) = (AtomicU64::new(SESSIONS as u64), &bench.table, &bench.db);
    std::thread::scope(|scope| {
        for number in 0..SESSIONS {
            let mut client = bench.other(number + 1);
            let (rows, left) = (&rows, &left);
            patient(&mut client);
            scope.spawn(move || {
                for step in 0..300 {
                    let first = change(&mut client, table, rows[(number + step) % rows.len()]);
                    let both = first
                        .and_then(|()| change(&mut client, table, rows[(number * 5 + step) % rows.len()]));
                    match both {
                        Ok(()) => client.session.commit().unwrap(),
                        Err(Error::Deadlock { .. }) => client.session.rollback().unwrap(),
                        Err(error) => panic!("{error}"),
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while left.load(Ordering::SeqCst) > 0 {
            for txn in db.list_txns() {
                assert!(txn.rows_changed <= 2, "T37: figures of one transaction: {txn:?}");
            }
            for lock in db
                .list_locks()
                .lines
                .iter()
                .filter(|lock| lock.what.kind == LockKind::Row)
            {
                assert!(rows.iter().any(|row| row.raw() == lock.what.row), "{lock:?}");
            }
            for wait in db.list_lock_waits().lines {
                assert_ne!(wait.waiter.txn, wait.blocker.txn, "nobody waits for itself");
            }
        }
    });
    assert!(db.list_txns().is_empty() && db.list_locks().lines.is_empty());
    assert!(db.list_lock_waits().lines.is_empty());
    bench.settle();
}
