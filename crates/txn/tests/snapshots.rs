//! T4: the horizon stands at the oldest live snapshot, also while many come and go.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pbxt_base::ids::CommitTs;
use pbxt_txn::TxnTable;

fn commit_one(table: &TxnTable) {
    let id = table.begin();
    table
        .commit_critical(id, |_| Ok::<(), Infallible>(()))
        .expect("the closure cannot fail");
}

fn ts(raw: u64) -> CommitTs {
    CommitTs::new(raw)
}

#[test]
fn the_horizon_is_the_oldest_live_snapshot_or_the_newest_commit() {
    let table = TxnTable::new();
    assert_eq!(table.horizon(), ts(0));
    commit_one(&table);
    let old = table.open_snapshot();
    let twin = table.open_snapshot();
    commit_one(&table);
    let young = table.open_snapshot();
    commit_one(&table);
    let live = table.live_snapshots();
    assert_eq!(live.timestamps(), [ts(1), ts(2)]);
    assert_eq!((live.horizon(), live.frontier()), (ts(1), ts(3)));
    drop(old);
    assert_eq!(table.horizon(), ts(1), "two snapshots of one moment are two");
    drop(twin);
    assert_eq!(table.horizon(), ts(2));
    drop(young);
    assert_eq!(table.horizon(), ts(3));
}

#[test]
fn only_a_snapshot_by_which_nobody_reads_is_ended() {
    let table = TxnTable::new();
    let (idle, busy) = (table.open_snapshot(), table.open_snapshot());
    commit_one(&table);
    let young = table.open_snapshot();
    [&idle, &young].into_iter().for_each(pbxt_txn::Snapshot::leave);
    assert_eq!(
        table.end_snapshots(ts(0)),
        1,
        "T27: not the one in use, and not the younger one"
    );
    assert!(!idle.enter(), "T27: nobody reads by it any more");
    assert!(busy.enter() && young.enter());
    assert_eq!(table.horizon(), ts(0));
    busy.leave();
    assert_eq!(
        table.live_snapshots().timestamps(),
        [ts(0), ts(1)],
        "who has left is still live"
    );
    assert_eq!(table.end_snapshots(ts(0)), 1);
    assert_eq!(table.horizon(), ts(1), "its pin goes with it");
    drop((idle, busy));
    assert_eq!(table.live_snapshots().timestamps(), [ts(1)]);
}

#[test]
fn classes_are_cut_by_live_snapshots_and_end_at_the_frontier() {
    let table = TxnTable::new();
    let mut held = Vec::new();
    for _ in 0..3 {
        commit_one(&table);
        commit_one(&table);
        held.push(table.open_snapshot());
    }
    commit_one(&table);
    let live = table.live_snapshots();
    let classes: Vec<Option<usize>> = (1..=8).map(|raw| live.class_of(ts(raw))).collect();
    let expected = [
        Some(0),
        Some(0),
        Some(1),
        Some(1),
        Some(2),
        Some(2),
        Some(3),
        None,
    ];
    assert_eq!(classes, expected, "T6: live at 2, 4, 6, frontier 7");
}

#[test]
fn more_snapshots_than_one_block_has_slots_are_all_seen() {
    let table = TxnTable::new();
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(table.open_snapshot());
        commit_one(&table);
    }
    let expected: Vec<CommitTs> = (0..300).map(ts).collect();
    assert_eq!(table.live_snapshots().timestamps(), expected);
    held.drain(..299);
    assert_eq!(table.horizon(), ts(299), "slots are given back");
}

#[test]
fn the_horizon_never_passes_a_live_snapshot_under_load() {
    let table = TxnTable::new();
    let highest_horizon = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                commit_one(&table);
                highest_horizon.fetch_max(table.horizon().raw(), Ordering::SeqCst);
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let snapshot = table.open_snapshot();
                        let horizon = highest_horizon.load(Ordering::SeqCst);
                        assert!(
                            snapshot.ts().raw() >= horizon,
                            "T4: {} is below {horizon}",
                            snapshot.ts()
                        );
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().expect("the reader holds T4");
        }
        stop.store(true, Ordering::Release);
    });
}
