//! T3, T4, T7, T13, T16, T30 in every interleaving: `RUSTFLAGS="--cfg loom" cargo test -p pbxt-txn --test loom
//! --release`.
#![cfg(loom)]

use std::convert::Infallible;

use crossbeam_epoch::pin;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pbxt_base::ids::{CommitTs, RowId, TableId, TxnId};
use pbxt_txn::{
    Enqueued, LockMode, Resource, RowAccess, RowChange, RowLockList, RowLocks, Serializer, StillLocked,
    TxnStatus, TxnTable, WaitGraph, WaitRequest, WaitState, Wakes,
};

fn commit(table: &TxnTable, id: TxnId) -> CommitTs {
    table
        .commit_critical(id, |_| Ok::<(), Infallible>(()))
        .expect("the closure cannot fail")
        .0
}

fn sees(table: &TxnTable, id: TxnId, snapshot: CommitTs) -> bool {
    match table.status(id, &pin()) {
        TxnStatus::Settled => true,
        TxnStatus::Committed(ts) => ts <= snapshot,
        TxnStatus::Active | TxnStatus::Prepared | TxnStatus::Aborted => false,
    }
}

#[test]
fn a_snapshot_that_includes_a_commit_finds_its_word() {
    loom::model(|| {
        let table = Arc::new(TxnTable::new());
        let ids = [table.begin(), table.begin()];
        let writers = ids.map(|id| {
            let table = Arc::clone(&table);
            thread::spawn(move || commit(&table, id))
        });
        let snapshot = table.open_snapshot();
        let seen = ids.map(|id| sees(&table, id, snapshot.ts()));
        let stamps = writers.map(|writer| writer.join().expect("a commit does not fail"));
        for (ts, seen) in stamps.into_iter().zip(seen) {
            assert_eq!(
                ts <= snapshot.ts(),
                seen,
                "T3: committed at {ts}, snapshot {}",
                snapshot.ts()
            );
        }
    });
}

#[test]
fn no_scan_passes_a_snapshot_it_did_not_see() {
    loom::model(|| {
        let table = Arc::new(TxnTable::new());
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let id = table.begin();
                commit(&table, id);
                table.live_snapshots()
            })
        };
        let snapshot = table.open_snapshot();
        let live = writer.join().expect("a scan does not fail");
        assert!(
            live.horizon() <= snapshot.ts(),
            "T4: horizon {}, snapshot {}",
            live.horizon(),
            snapshot.ts()
        );
        let told_apart = live.class_of(snapshot.ts()) != Some(live.timestamps().len());
        let missed = !live.timestamps().contains(&snapshot.ts());
        assert!(
            !missed || snapshot.ts() >= live.frontier() || told_apart,
            "T6: no class spans a live snapshot"
        );
    });
}

#[test]
fn a_word_that_moves_is_not_lost() {
    loom::model(|| {
        let table = Arc::new(TxnTable::new());
        let late = table.begin();
        for _ in 0..3 {
            let id = table.begin();
            commit(&table, id);
        }
        assert_eq!(table.begin(), TxnId::new(5), "the first page is full");
        let sweeper = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.advance_low_water(&table.live_snapshots()).pages_freed)
        };
        let committer = {
            let table = Arc::clone(&table);
            thread::spawn(move || commit(&table, late))
        };
        let snapshot = table.open_snapshot();
        let seen = sees(&table, late, snapshot.ts());
        let ts = committer.join().expect("a commit does not fail");
        assert_eq!(
            ts <= snapshot.ts(),
            seen,
            "T7: committed at {ts}, snapshot {}",
            snapshot.ts()
        );
        let freed = sweeper.join().expect("a step does not fail");
        let freed_later = table.advance_low_water(&table.live_snapshots()).pages_freed;
        assert_eq!(
            freed + freed_later,
            1,
            "T5: at the latest, a look after the commit lets the page go"
        );
        assert_eq!(
            sees(&table, late, snapshot.ts()),
            seen,
            "T7: the answer for a snapshot never changes"
        );
        assert!(
            sees(&table, late, table.open_snapshot().ts()),
            "T7: the exception has the last word"
        );
    });
}

/// What an engine has around the graph: one latch, and something to sleep on.
struct Waits {
    graph: Mutex<WaitGraph>,
    woken: Condvar,
}

/// Waits until `owner` has ended; the blocking is the shape every engine wrapper has.
fn wait_for_end(table: &TxnTable, waits: &Waits, own: TxnId, resource: Resource, owner: TxnId) {
    let mut graph = waits.graph.lock().expect("no thread panics under the latch");
    if !table.status(owner, &pin()).is_unfinished() {
        return;
    }
    let request = WaitRequest {
        txn: own,
        resource,
        mode: LockMode::Exclusive,
        blockers: &[owner],
    };
    let Enqueued::Waiting(token, _) = graph.enqueue(request) else {
        panic!("the owner is unfinished")
    };
    while graph.state(token) == WaitState::Waiting {
        graph = waits.woken.wait(graph).expect("no thread panics under the latch");
    }
    assert!(
        !table.status(owner, &pin()).is_unfinished(),
        "T13: woken after the state was stored"
    );
    let Wakes(more) = graph.leave(token);
    if !more.is_empty() {
        waits.woken.notify_all();
    }
}

#[test]
fn a_wait_that_races_with_the_end_of_its_owner_is_woken() {
    loom::model(|| {
        let table = Arc::new(TxnTable::new());
        let waits = Arc::new(Waits {
            graph: Mutex::new(WaitGraph::new()),
            woken: Condvar::new(),
        });
        let [owner, one, two] = [table.begin(), table.begin(), table.begin()];
        let resource = Resource::Row(TableId::new(1), RowId::new(5));
        let waiters = [one, two].map(|own| {
            let (table, waits) = (Arc::clone(&table), Arc::clone(&waits));
            thread::spawn(move || wait_for_end(&table, &waits, own, resource, owner))
        });
        table.abort(owner);
        let Wakes(tokens) = waits
            .graph
            .lock()
            .expect("no thread panics under the latch")
            .released(owner);
        if !tokens.is_empty() {
            waits.woken.notify_all();
        }
        for waiter in waiters {
            waiter.join().expect("T13: every waiter comes back");
        }
    });
}

const LOCKED: u64 = 1 << 63;

#[test]
fn of_a_locker_and_a_writer_that_race_one_judges_again() {
    loom::model(|| {
        let locks = Arc::new(RowLocks::new());
        // A stale LOCKED bit from an earlier lock, so that the writer goes through the side table.
        let word = Arc::new(AtomicU64::new(LOCKED));
        let (table, row) = (TableId::new(1), RowId::new(5));
        let swap =
            |word: &AtomicU64, old, new| word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        let locker = {
            let (locks, word) = (Arc::clone(&locks), Arc::clone(&word));
            thread::spawn(move || {
                let mut list = RowLockList::new(TxnId::new(1));
                let seen = word.load(Ordering::Acquire);
                let free = seen & !LOCKED == 0;
                let bit = || {
                    if free {
                        swap(&word, seen, seen | LOCKED).map(drop)
                    } else {
                        Err(seen)
                    }
                };
                locks.lock(&mut list, table, row, LockMode::Shared, bit) == Ok(RowAccess::Granted(()))
            })
        };
        let seen = word.load(Ordering::Acquire);
        let keep = |StillLocked(still)| if still { LOCKED } else { 0 };
        let wrote = locks.write(TxnId::new(2), table, row, |still| {
            swap(&word, seen, 2 | keep(still)).is_ok()
        });
        let locked = locker.join().expect("a lock does not fail");
        assert!(
            !(locked && wrote == RowAccess::Granted(true)),
            "T16: both hold the row"
        );
        assert!(
            locked || wrote == RowAccess::Granted(true),
            "T16: one of two gets it"
        );
        assert_eq!(
            locked,
            word.load(Ordering::Acquire) == LOCKED,
            "T16: a lock has its bit"
        );
    });
}

#[test]
fn of_a_reader_and_a_writer_who_meet_one_sees_the_other() {
    // T30: the word stands for the row's head; only the latch of the footprint's shard orders it.
    loom::model(|| {
        let table = TxnTable::new();
        let serial = Arc::new(Serializer::with_ended_max(8));
        let word = Arc::new(AtomicU64::new(0));
        let (relation, row, other) = (TableId::new(1), RowId::new(1), RowId::new(2));
        let (_first, reader) = serial.begin(&table, false);
        let (_second, writer) = serial.begin(&table, false);
        let (mut reader, mut writer) = (reader.expect("it may write"), writer.expect("it may write"));
        // The writer stands before the reader already.
        serial.note_row(&mut writer, relation, other);
        assert!(
            serial
                .changed_row(&mut reader, relation, other, RowChange::Update)
                .is_ok()
        );
        let writing = {
            let (serial, word) = (Arc::clone(&serial), Arc::clone(&word));
            thread::spawn(move || {
                word.store(1, Ordering::Relaxed);
                let met = serial.changed_row(&mut writer, relation, row, RowChange::Update);
                assert!(met.is_ok(), "nobody has committed");
                writer
            })
        };
        serial.note_row(&mut reader, relation, row);
        let saw = word.load(Ordering::Relaxed) == 1;
        let writer = writing.join().expect("the writer does not fail");
        serial
            .commit_unchanged(&mut reader)
            .expect("the first may commit");
        assert!(saw || writer.is_victim(), "T30: neither saw the other");
    });
}
