//! T1, T2, T3: states change along the diagram only, and a commit is one step for everybody else.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_epoch::pin;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{TxnStatus, TxnTable};

fn commit(table: &TxnTable, id: TxnId) -> CommitTs {
    table
        .commit_critical(id, |_| Ok::<(), Infallible>(()))
        .expect("the closure cannot fail")
        .0
}

fn refuses(table: &TxnTable, step: impl FnOnce(&TxnTable)) -> bool {
    catch_unwind(AssertUnwindSafe(|| step(table))).is_err()
}

#[test]
fn every_legal_change_is_allowed() {
    let table = TxnTable::new();
    let status = |id| table.status(id, &pin());
    let one = table.begin();
    assert_eq!((one, status(one)), (TxnId::new(1), TxnStatus::Active));
    assert_eq!(commit(&table, one), CommitTs::new(1));
    assert_eq!(status(one), TxnStatus::Committed(CommitTs::new(1)));
    let two = table.begin();
    table.prepare(two);
    assert_eq!(status(two), TxnStatus::Prepared);
    assert_eq!(commit(&table, two), CommitTs::new(2));
    assert_eq!(status(two), TxnStatus::Committed(CommitTs::new(2)));
    let three = table.begin();
    table.abort(three);
    assert_eq!(status(three), TxnStatus::Aborted);
    let four = table.begin();
    table.prepare(four);
    table.abort(four);
    assert_eq!(status(four), TxnStatus::Aborted);
    assert_eq!(
        table.published(),
        CommitTs::new(2),
        "T2: an abort takes no timestamp"
    );
    assert_eq!(
        status(TxnId::new(0)),
        TxnStatus::Settled,
        "no transaction means settled work"
    );
}

#[test]
fn an_ended_transaction_changes_no_more() {
    let table = TxnTable::new();
    let committed = table.begin();
    commit(&table, committed);
    let aborted = table.begin();
    table.abort(aborted);
    let prepared = table.begin();
    table.prepare(prepared);
    for ended in [committed, aborted] {
        let before = table.status(ended, &pin());
        assert!(refuses(&table, |table| table.prepare(ended)), "T1");
        assert!(refuses(&table, |table| table.abort(ended)), "T1");
        assert!(
            refuses(&table, |table| {
                commit(table, ended);
            }),
            "T1"
        );
        assert!(
            refuses(&table, |table| table.add_void(ended, Lsn::new(8)..Lsn::new(16))),
            "T8"
        );
        assert_eq!(
            table.status(ended, &pin()),
            before,
            "a refused change changes nothing"
        );
    }
    assert!(
        refuses(&table, |table| table.prepare(prepared)),
        "T1: prepared once"
    );
    assert!(
        refuses(&table, |table| {
            table.prepare(TxnId::new(9_999_999));
        }),
        "T1: never begun"
    );
    assert_eq!(table.published(), CommitTs::new(1));
}

#[test]
fn a_refused_or_panicking_closure_consumes_no_timestamp() {
    let table = TxnTable::new();
    let (one, two) = (table.begin(), table.begin());
    let refused = table.commit_critical(one, |ts| Err::<(), u64>(ts.raw()));
    assert_eq!(refused.expect_err("the closure refused"), 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let never = table.commit_critical(one, |_| -> Result<(), Infallible> { panic!("no space for END") });
        assert!(never.is_err(), "the panic passes through");
    }));
    assert!(panicked.is_err());
    assert_eq!(
        table.status(one, &pin()),
        TxnStatus::Active,
        "T2: nothing has happened"
    );
    assert_eq!(table.published(), CommitTs::new(0));
    assert_eq!(
        commit(&table, two),
        CommitTs::new(1),
        "T2: the timestamp goes to the next commit"
    );
    assert_eq!(commit(&table, one), CommitTs::new(2));
}

#[test]
fn closures_run_in_timestamp_order_and_published_follows_without_gap() {
    let table = TxnTable::new();
    let log = Mutex::new(Vec::new());
    let commits = if cfg!(miri) { 20 } else { 2000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..commits {
                    let id = table.begin();
                    let reserve = |ts| {
                        let published = table.published();
                        log.lock().expect("no closure panics").push((ts, published));
                        Ok::<(), Infallible>(())
                    };
                    let (ts, ()) = table
                        .commit_critical(id, reserve)
                        .expect("the closure cannot fail");
                    assert!(table.published() >= ts, "T2: published before commit returns");
                }
            });
        }
    });
    let log = log.into_inner().expect("no closure panics");
    assert_eq!(log.len(), 3 * commits);
    for (at, (ts, published)) in log.iter().enumerate() {
        assert_eq!(
            ts.raw(),
            at as u64 + 1,
            "T2: order of closures is order of timestamps"
        );
        assert_eq!(
            published.raw(),
            at as u64,
            "T2: all earlier commits are published, this one is not"
        );
    }
}

#[test]
fn void_versions_are_void_at_once_and_survive_the_commit() {
    let table = TxnTable::new();
    let id = table.begin();
    let void = |lsn| table.is_void(id, Lsn::new(lsn), &pin());
    assert!(!void(100));
    table.add_void(id, Lsn::new(96)..Lsn::new(128));
    assert!(void(100) && !void(128) && !void(88), "T8");
    commit(&table, id);
    assert!(void(100), "T8: a commit does not bring it back");
    let standing = table.standing(id, Lsn::new(100), &pin());
    assert_eq!(
        (standing.status, standing.void),
        (TxnStatus::Committed(CommitTs::new(1)), true)
    );
    assert!(!table.standing(id, Lsn::new(128), &pin()).void);
    assert_eq!(table.void_ranges(id), vec![Lsn::new(96)..Lsn::new(128)]);
}

#[test]
fn readers_never_see_half_a_commit_while_writers_run() {
    let table = TxnTable::new();
    let newest = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let commits = if cfg!(miri) { 30 } else { 20_000 };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| read_until(&table, &newest, &stop)))
            .collect();
        for _ in 0..commits {
            let id = table.begin();
            commit(&table, id);
            newest.store(id.raw(), Ordering::Release);
            table.advance_low_water(&table.live_snapshots());
        }
        stop.store(true, Ordering::Release);
        let looks: u64 = readers
            .into_iter()
            .map(|reader| reader.join().expect("the reader holds T3"))
            .sum();
        assert!(looks > 0);
    });
}

/// Every id up to `newest` was committed before it was announced, so no snapshot taken later may miss it.
fn read_until(table: &TxnTable, newest: &AtomicU64, stop: &AtomicBool) -> u64 {
    let mut looks = 0;
    loop {
        let last = stop.load(Ordering::Acquire);
        let id = TxnId::new(newest.load(Ordering::Acquire));
        let snapshot = table.open_snapshot();
        match table.status(id, &pin()) {
            TxnStatus::Committed(ts) => assert!(
                ts <= snapshot.ts(),
                "T3: {id} at {ts}, snapshot {}",
                snapshot.ts()
            ),
            TxnStatus::Settled => {}
            other => panic!("T3: {id} was committed before this look and is {other:?}"),
        }
        looks += 1;
        if last {
            return looks;
        }
    }
}

/// Rule T53: far away or in the next page slot, nothing is said of it that would let anybody see or remove what it names.
#[test]
fn an_id_that_was_never_handed_out_is_unfinished() {
    let table = TxnTable::new();
    let begun = table.begin();
    assert!(table.has_begun(begun));
    for id in [begun.raw() + 1, 1 << 20, 0xfeff_ffff_ffff_fffc, u64::MAX].map(TxnId::new) {
        let guard = pin();
        assert_eq!(table.status(id, &guard), TxnStatus::Active, "{id:?}");
        assert!(!table.is_void(id, Lsn::new(8), &guard), "{id:?}");
        assert!(!table.has_begun(id), "{id:?}");
    }
}
