//! Two-phase commit as a coordinator and parallel appliers of a replica drive it: rules V2 to V6, V12 to V14 of docs/two-phase.md, and T52.

mod common;

use common::{Bench, open, options, put, row};
use pbxt::{Bind, Database, Error, FlushAtCommit, SessionConfig, WaitObserver};
use pbxt_base::{Lsn, RowId};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use pbxt_txlog::{PrepareRecord, Space, VoidRange};
use pbxt_txn::LockMode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

fn prepared(bench: &Bench, id: u32, xid: &[u8]) -> Client {
    let mut client = bench.other(id as usize);
    client.insert(&bench.table, &row(id)).expect("inserted");
    client.session.prepare(xid).expect("prepared");
    client
}

/// What a new snapshot sees.
fn ids(bench: &mut Bench) -> Vec<u32> {
    bench.client.session.rollback().expect("nothing was changed");
    bench.rows().iter().map(|(_, row)| row.id).collect()
}

#[test]
fn an_answered_rollback_of_a_prepared_transaction_does_not_come_back_prepared() {
    // V2.
    let bench = Bench::new();
    let mut client = prepared(&bench, 1, b"vote");
    client.session.rollback().expect("rolled back");
    for seed in 0..12 {
        let db = open(&bench.disk.crash(seed));
        assert_eq!(db.prepared.xids(), Vec::<Vec<u8>>::new(), "seed {seed}");
    }
}

#[test]
fn an_answered_commit_of_a_prepared_transaction_does_not_come_back_prepared() {
    // V2, whatever the session asks of other commits.
    let bench = Bench::new();
    let mut client = bench.other(1);
    client.session.configure(SessionConfig {
        flush: FlushAtCommit::Background,
        ..client.session.config()
    });
    client.insert(&bench.table, &row(1)).expect("inserted");
    client.session.prepare(b"vote").expect("prepared");
    client.session.commit().expect("committed");
    for seed in 0..12 {
        let db = open(&bench.disk.crash(seed));
        assert_eq!(db.prepared.xids(), Vec::<Vec<u8>>::new(), "seed {seed}");
    }
}

#[test]
fn a_decision_waits_until_the_session_that_voted_lets_go() {
    // V3: the connection is being closed when somebody else commits by the XA id.
    let mut bench = Bench::new();
    let mut client = prepared(&bench, 1, b"late");
    let db = Arc::clone(&bench.db);
    let (begun, begins) = channel();
    let decision = thread::spawn(move || {
        begun.send(()).expect("the test listens");
        db.commit_prepared(b"late")
    });
    begins.recv_timeout(LONG).expect("the thread runs");
    client.session.detach_prepared();
    decision.join().expect("no panic").expect("committed");
    drop(client);
    assert_eq!(ids(&mut bench), [1]);
    bench.crash_reopen();
    assert_eq!(ids(&mut bench), [1]);
    assert_eq!(bench.db.prepared.xids(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_decision_about_a_transaction_of_another_engine_does_not_wait() {
    // V3: coordinators ask every engine.
    let bench = Bench::new();
    let _mine = prepared(&bench, 1, b"mine");
    for answer in [
        bench.db.commit_prepared(b"foreign"),
        bench.db.rollback_prepared(b"foreign"),
    ] {
        assert!(matches!(answer, Err(Error::NoSuchXid)), "{answer:?}");
    }
}

#[test]
fn two_transactions_are_not_prepared_under_one_id() {
    // V12, whether a session still holds the first one or not, and after a crash.
    let mut bench = Bench::new();
    let mut first = prepared(&bench, 1, b"twice");
    let refused = |bench: &Bench, xid: &[u8]| {
        let mut second = bench.other(2);
        second.insert(&bench.table, &row(2)).expect("inserted");
        let answer = second.session.prepare(xid);
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
        second.session.rollback().expect("it was not prepared");
    };
    refused(&bench, b"twice");
    first.session.detach_prepared();
    drop(first);
    refused(&bench, b"twice");
    refused(&bench, &[7; 256]);
    bench.crash_reopen();
    refused(&bench, b"twice");
    bench.db.commit_prepared(b"twice").expect("the first one");
    assert_eq!(ids(&mut bench), [1]);
    let mut again = prepared(&bench, 3, b"twice");
    again.session.commit().expect("the id is free again");
    assert_eq!(ids(&mut bench), [1, 3]);
}

#[test]
fn what_is_ordered_is_committed_whatever_the_session_does_next() {
    // V13.
    let mut bench = Bench::new();
    let mut client = prepared(&bench, 1, b"ordered");
    client.session.commit_ordered().expect("ordered");
    let refused = client.session.rollback();
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(ids(&mut bench), [1], "it is visible");
    client.session.commit().expect("and can be finished");
    let mut client = prepared(&bench, 2, b"closing");
    client.session.commit_ordered().expect("ordered");
    drop(client);
    assert_eq!(ids(&mut bench), [1, 2]);
    bench.db.flush().expect("flushed");
    bench.crash_reopen();
    assert_eq!(ids(&mut bench), [1, 2]);
    assert_eq!(bench.db.prepared.xids(), Vec::<Vec<u8>>::new());
}

#[test]
fn nothing_is_changed_after_the_vote() {
    // V14: not in the table that the transaction has changed before either, whether it is ordered or not.
    let mut bench = Bench::new();
    let mut client = prepared(&bench, 1, b"vote");
    let table = &bench.table;
    for is_ordered in [false, true] {
        if is_ordered {
            client.session.commit_ordered().expect("ordered");
        }
        let inserted = put(&mut client.session, table, &row(2));
        let deleted = client.session.delete(&table.table, RowId::new(1));
        for refused in [inserted, deleted] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
    client.session.commit().expect("finished");
    assert_eq!(ids(&mut bench), [1]);
    assert_eq!(bench.client.count(&bench.table).expect("counted"), 1);
    bench.settle();
}

#[test]
fn a_vote_keeps_nothing_for_a_snapshot() {
    // V14, with a session and without.
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(1)).expect("inserted");
    bench.client.session.commit().expect("committed");
    let mut client = bench.other(2);
    client.scan(&bench.table).expect("read");
    client.insert(&bench.table, &row(2)).expect("inserted");
    client.session.prepare(b"slow").expect("prepared");
    for (id, is_detached) in [(3, false), (4, true)] {
        if is_detached {
            client.session.detach_prepared();
        }
        bench.db.housekeeping_step();
        let before = bench.db.horizon();
        bench.client.insert(&bench.table, &row(id)).expect("inserted");
        bench.client.session.commit().expect("committed");
        bench.db.housekeeping_step();
        assert!(bench.db.horizon() > before, "V14: detached {is_detached}");
    }
    drop(client);
    bench.db.commit_prepared(b"slow").expect("committed");
    assert_eq!(ids(&mut bench), [1, 2, 3, 4]);
}

#[test]
fn void_ranges_of_a_prepare_record_count() {
    // D6: also if a full disk kept out the record of the rollback itself.
    let mut bench = Bench::new();
    let txn = bench.db.txns().begin();
    let range = VoidRange {
        from: Lsn::new(8),
        to: Lsn::new(16),
    };
    let record = PrepareRecord {
        txn,
        xid: b"vote",
        deltas: &[],
        voids: &[range],
    };
    let room = bench.db.log().reserve(record.encoded_len(), Space::Spare);
    let mut reservation = room.expect("room");
    record.encode_into(reservation.bytes_mut());
    reservation.publish();
    bench.db.flush().expect("flushed");
    bench.crash_reopen();
    assert_eq!(bench.db.prepared.xids(), [b"vote"]);
    assert_eq!(bench.db.txns().void_ranges(txn), [range.from..range.to], "D6");
    bench.db.rollback_prepared(b"vote").expect("rolled back");
}

/// What the engine told the host.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Waits(usize, usize),
    Ordered(usize, bool),
}

/// A host that writes down what it hears.
#[derive(Debug, Default)]
struct Listener {
    heard: Mutex<Vec<Told>>,
    db: OnceLock<std::sync::Weak<Database>>,
    /// Where `waiting` says that it was called, and from where it is let go.
    on_wait: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// Sessions with a greater number give way.
    younger_gives_way: AtomicBool,
}

impl WaitObserver for Listener {
    fn waiting(&self, waiter: usize, blocker: usize) {
        self.heard
            .lock()
            .expect("no panic")
            .push(Told::Waits(waiter, blocker));
        if let Some((called, go_on)) = self.on_wait.lock().expect("no panic").take() {
            called.send(()).expect("the test listens");
            go_on.recv_timeout(LONG).expect("the test lets go");
        }
    }

    fn prefer_victim(&self, a: usize, b: usize) -> i32 {
        if self.younger_gives_way.load(Ordering::SeqCst) {
            if a < b { 1 } else { -1 }
        } else {
            0
        }
    }

    fn ordered(&self, host_session: usize) {
        let db = self
            .db
            .get()
            .and_then(std::sync::Weak::upgrade)
            .expect("an open database");
        let durable = db.log().durable() >= db.log().tail();
        self.heard
            .lock()
            .expect("no panic")
            .push(Told::Ordered(host_session, durable));
    }

    fn begin(&self, _: usize) {}
    fn end(&self, _: usize) {}

    fn is_killed(&self, _: usize) -> bool {
        false
    }
}

struct Hosted {
    listener: Arc<Listener>,
    db: Arc<Database>,
    table: PlayTable,
}

impl Hosted {
    fn new() -> Self {
        let listener = Arc::new(Listener::default());
        let with_host = pbxt::Options {
            observer: Some(Arc::clone(&listener) as Arc<dyn WaitObserver>),
            ..options()
        };
        let db = Database::open(Arc::new(SimDisk::new()), &with_host).expect("a new database");
        listener.db.set(Arc::downgrade(&db)).expect("set once");
        let table = PlayTable::create(&db, "t").expect("a new table");
        Self { listener, db, table }
    }

    fn patient(&self, number: usize) -> Client {
        let mut client = Client::new(&self.db, number);
        client.session.configure(SessionConfig {
            lock_wait_timeout_ms: 30_000,
            ..SessionConfig::default()
        });
        client
    }

    fn committed(&self, id: u32) -> RowId {
        let mut client = self.patient(90);
        let made = client.insert(&self.table, &row(id)).expect("inserted");
        client.session.commit().expect("committed");
        self.listener.heard.lock().expect("no panic").clear();
        made
    }

    fn heard(&self) -> Vec<Told> {
        std::mem::take(&mut *self.listener.heard.lock().expect("no panic"))
    }
}

fn regroup(client: &mut Client, table: &PlayTable, target: RowId, group: u32) -> pbxt::Result<()> {
    let change = |old: &PlayRow| PlayRow {
        group: Some(group),
        ..old.clone()
    };
    client.update(table, target, change).map(|_| ())
}

#[test]
fn a_host_hears_of_a_wait_while_the_blocker_cannot_end() {
    // V4: the host looks at both connections, so neither may go away meanwhile.
    let hosted = Hosted::new();
    let target = hosted.committed(1);
    let (called, calls) = channel();
    let (let_go, go_on) = channel();
    *hosted.listener.on_wait.lock().expect("no panic") = Some((called, go_on));
    let (mut blocker, mut waiter) = (hosted.patient(1), hosted.patient(2));
    regroup(&mut blocker, &hosted.table, target, 1).expect("the row is free");
    let table = hosted.table.clone();
    let waiting = thread::spawn(move || {
        let changed = regroup(&mut waiter, &table, target, 2);
        let ended = waiter.session.rollback();
        changed.and(ended)
    });
    calls.recv_timeout(LONG).expect("the host hears of the wait");
    let (ended, ends) = channel();
    let ending = thread::spawn(move || {
        blocker.session.rollback().expect("rolled back");
        ended.send(()).expect("the test listens");
    });
    assert!(
        ends.recv_timeout(Duration::from_millis(300)).is_err(),
        "V4: the blocker has ended while the host was looking at it"
    );
    let_go.send(()).expect("the host waits for it");
    ends.recv_timeout(LONG).expect("the blocker ends now");
    ending.join().expect("no panic");
    waiting.join().expect("no panic").expect("the row was free then");
    assert_eq!(hosted.heard(), [Told::Waits(2, 1)]);
}

#[test]
fn of_an_appliers_wait_the_host_hears_also_who_is_before_it_in_line() {
    // V4: whoever is before it gets the lock next, and waits then for the applier's commit. Explicit locks have a line; those who
    // wait for the end of a transaction are all let go at once.
    let hosted = Hosted::new();
    hosted.committed(1);
    let exclusive = Bind {
        lock: Some(LockMode::Exclusive),
        ..Bind::default()
    };
    let mut holder = hosted.patient(3);
    let locked = holder
        .scan_locking(&hosted.table, exclusive)
        .expect("the row is free");
    assert_eq!(locked.len(), 1);
    let wait = |number: usize, ordered: bool| {
        let (called, calls) = channel();
        let (let_go, go_on) = channel();
        *hosted.listener.on_wait.lock().expect("no panic") = Some((called, go_on));
        let (mut client, table) = (hosted.patient(number), hosted.table.clone());
        let config = client.session.config();
        client.session.configure(SessionConfig { ordered, ..config });
        let waiting = thread::spawn(move || {
            client
                .scan_locking(&table, exclusive)
                .expect("the row is free then");
            client.session.rollback().expect("rolled back");
        });
        calls.recv_timeout(LONG).expect("it waits");
        let_go.send(()).expect("the host waits for it");
        waiting
    };
    let waiting = [wait(2, false), wait(1, true)];
    holder.session.rollback().expect("rolled back");
    for thread in waiting {
        thread.join().expect("no panic");
    }
    let heard = hosted.heard();
    let of_applier: Vec<&Told> = heard
        .iter()
        .filter(|told| matches!(told, Told::Waits(1, _)))
        .collect();
    assert!(
        of_applier.starts_with(&[&Told::Waits(1, 3), &Told::Waits(1, 2)]),
        "V4: {of_applier:?}"
    );
}

#[test]
fn a_commit_is_announced_when_it_has_its_place_and_before_it_is_durable() {
    // V5: whoever has to commit after it may go on, and both wait for the disk together.
    let hosted = Hosted::new();
    let mut client = hosted.patient(7);
    client.insert(&hosted.table, &row(1)).expect("inserted");
    client.session.commit().expect("committed");
    assert_eq!(hosted.heard(), [Told::Ordered(7, false)]);
    client.scan(&hosted.table).expect("readable");
    client.session.commit().expect("a reader ends");
    client.insert(&hosted.table, &row(2)).expect("inserted");
    client.session.prepare(b"x").expect("prepared");
    client.session.commit_ordered().expect("ordered");
    client.session.commit().expect("committed");
    client.insert(&hosted.table, &row(3)).expect("inserted");
    client.session.rollback().expect("rolled back");
    assert_eq!(
        hosted.heard(),
        [],
        "V5: the coordinator that orders commits knows of its own"
    );
}

#[test]
fn a_change_that_commits_by_itself_waits_and_is_killed_with_its_session_and_is_not_announced() {
    // T52.
    let hosted = Hosted::new();
    let target = hosted.committed(1);
    let (mut holder, outer) = (hosted.patient(1), hosted.patient(2));
    let mut own = Client {
        session: outer.session.autonomous(),
    };
    regroup(&mut own, &hosted.table, target, 5).expect("the row is free");
    own.session.commit().expect("committed");
    assert_eq!(
        hosted.heard(),
        [],
        "V5: the transaction that has a place in the order has not committed"
    );
    regroup(&mut holder, &hosted.table, target, 6).expect("the row is free");
    let (called, calls) = channel();
    let (let_go, go_on) = channel();
    *hosted.listener.on_wait.lock().expect("no panic") = Some((called, go_on));
    let table = hosted.table.clone();
    let waiting = thread::spawn(move || regroup(&mut own, &table, target, 7));
    calls.recv_timeout(LONG).expect("it waits");
    assert_eq!(
        hosted.heard(),
        [Told::Waits(2, 1)],
        "T52: the wait is the session's"
    );
    let_go.send(()).expect("the host waits for it");
    outer.session.gate().kill();
    let killed = waiting.join().expect("no panic");
    assert!(matches!(killed, Err(Error::Killed)), "T52: {killed:?}");
    holder.session.rollback().expect("rolled back");
}

#[test]
fn the_host_chooses_who_gives_way_in_a_circle() {
    // V6: of two appliers of a replica the later transaction gives way, whoever closes the circle.
    for closes_last in [1_usize, 2] {
        let hosted = Hosted::new();
        hosted.listener.younger_gives_way.store(true, Ordering::SeqCst);
        let rows = [hosted.committed(1), hosted.committed(2)];
        let mut clients = [hosted.patient(1), hosted.patient(2)];
        for (client, target) in clients.iter_mut().zip(rows) {
            regroup(client, &hosted.table, target, 5).expect("the row is free");
        }
        let [mut first, mut second] = clients;
        let (called, calls) = channel();
        let (let_go, go_on) = channel();
        *hosted.listener.on_wait.lock().expect("no panic") = Some((called, go_on));
        let wants = |client: &mut Client, target| {
            let answer = regroup(client, &hosted.table, target, 6);
            client.session.rollback().expect("rolled back");
            answer
        };
        let (older, younger) = thread::scope(|scope| {
            let (waits, closes) = if closes_last == 2 {
                ((&mut first, rows[1]), (&mut second, rows[0]))
            } else {
                ((&mut second, rows[0]), (&mut first, rows[1]))
            };
            let waiting = scope.spawn(move || wants(waits.0, waits.1));
            calls.recv_timeout(LONG).expect("the first wait");
            let_go.send(()).expect("the host waits for it");
            let closing = wants(closes.0, closes.1);
            let waited = waiting.join().expect("no panic");
            if closes_last == 2 {
                (waited, closing)
            } else {
                (closing, waited)
            }
        });
        assert!(older.is_ok(), "{closes_last}: {older:?}");
        assert!(
            matches!(younger, Err(Error::Deadlock { .. })),
            "{closes_last}: {younger:?}"
        );
    }
}
