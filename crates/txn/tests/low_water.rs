//! T5, T6: the mark rises past everything, and memory stays bounded, whatever old transactions and snapshots
//! exist.

use std::convert::Infallible;

use crossbeam_epoch::pin;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{TxnStatus, TxnTable};

fn commit(table: &TxnTable, id: TxnId) -> CommitTs {
    table
        .commit_critical(id, |_| Ok::<(), Infallible>(()))
        .expect("the closure cannot fail")
        .0
}

fn commit_many(table: &TxnTable, count: u64) {
    for _ in 0..count {
        let id = table.begin();
        commit(table, id);
    }
}

fn advance_fully(table: &TxnTable) {
    let live = table.live_snapshots();
    while table.advance_low_water(&live).more {}
}

const PAGE_BYTES: u64 = 4096 * 8;

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn a_prepared_transaction_of_three_weeks_does_not_hold_the_mark() {
    let table = TxnTable::new();
    let prepared = table.begin();
    table.prepare(prepared);
    let mut peak = 0;
    let weeks = 3;
    for _ in 0..weeks * 20 {
        commit_many(&table, 50_000);
        advance_fully(&table);
        peak = peak.max(table.memory_bytes());
    }
    let begun = table.next_id().raw();
    assert!(
        table.low_water().raw() + 4096 > begun - 4096,
        "T5: the mark {} follows {begun}",
        table.low_water()
    );
    assert!(
        peak <= 2 * PAGE_BYTES + 1024,
        "T5: {peak} bytes after {begun} transactions"
    );
    assert_eq!(table.status(prepared, &pin()), TxnStatus::Prepared);
    let snapshot = table.open_snapshot();
    let ts = commit(&table, prepared);
    assert_eq!(
        table.status(prepared, &pin()),
        TxnStatus::Committed(ts),
        "T7: an exception ends like any other"
    );
    advance_fully(&table);
    assert_eq!(
        table.status(prepared, &pin()),
        TxnStatus::Committed(ts),
        "an older snapshot must not see it"
    );
    drop(snapshot);
    advance_fully(&table);
    assert_eq!(
        table.status(prepared, &pin()),
        TxnStatus::Settled,
        "T6: it joins its neighbours"
    );
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn ten_million_transactions_leave_a_bounded_table() {
    let table = TxnTable::new();
    let mut peak = 0;
    for _ in 0..100 {
        commit_many(&table, 100_000);
        advance_fully(&table);
        peak = peak.max(table.memory_bytes());
    }
    assert!(table.next_id().raw() > 100_000 * 100);
    assert!(peak <= 2 * PAGE_BYTES, "T5: {peak} bytes");
    assert_eq!(table.status(TxnId::new(1), &pin()), TxnStatus::Settled);
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn a_ten_hour_snapshot_costs_ranges_not_timestamps() {
    let table = TxnTable::new();
    commit_many(&table, 5000);
    let dump = table.open_snapshot();
    let mut peak = 0;
    for _ in 0..40 {
        commit_many(&table, 50_000);
        let reader = table.open_snapshot();
        commit_many(&table, 100);
        advance_fully(&table);
        drop(reader);
        peak = peak.max(table.memory_bytes());
    }
    assert!(
        peak <= 2 * PAGE_BYTES + 200_000,
        "T6: {peak} bytes, slots would be {}",
        table.next_id().raw() * 8
    );
    let visible = |id: u64| match table.status(TxnId::new(id), &pin()) {
        TxnStatus::Settled => true,
        TxnStatus::Committed(ts) => ts <= dump.ts(),
        other => panic!("{id} is {other:?}"),
    };
    assert!((1..=5000).all(visible), "T6: what the dump sees");
    assert!(
        (5001..table.next_id().raw()).step_by(7).all(|id| !visible(id)),
        "T6: what it does not see"
    );
    drop(dump);
    advance_fully(&table);
    assert!(
        table.memory_bytes() <= 2 * PAGE_BYTES,
        "T6: ranges go with the snapshot that needed them"
    );
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn aborted_and_void_ones_stay_until_their_traces_are_gone() {
    let table = TxnTable::new();
    let (aborted, partly) = (table.begin(), table.begin());
    table.abort(aborted);
    table.add_void(partly, Lsn::new(64)..Lsn::new(128));
    commit(&table, partly);
    assert!(!table.forget_traces(aborted), "too early: it still has a slot");
    commit_many(&table, 9000);
    advance_fully(&table);
    assert!(table.low_water() > partly);
    assert_eq!(table.status(aborted, &pin()), TxnStatus::Aborted);
    assert!(
        table.is_void(partly, Lsn::new(64), &pin()),
        "T7: void ranges outlive the slot"
    );
    assert!(table.forget_traces(aborted) && table.forget_traces(partly));
    advance_fully(&table);
    for id in [aborted, partly] {
        assert_eq!(table.status(id, &pin()), TxnStatus::Settled);
        assert!(!table.is_void(id, Lsn::new(64), &pin()));
        assert!(table.void_ranges(id).is_empty());
    }
    assert!(
        table.forget_traces(aborted),
        "forgetting twice is forgetting once"
    );
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn many_are_forgotten_in_little_more_time_than_one() {
    let table = TxnTable::new();
    let aborted: Vec<_> = (0..40_000).map(|_| table.begin()).collect();
    for id in &aborted {
        table.abort(*id);
    }
    commit_many(&table, 4096);
    advance_fully(&table);
    let begun = std::time::Instant::now();
    assert_eq!(table.forget_all_traces(&aborted), aborted.len());
    let took = begun.elapsed();
    assert!(took.as_secs() < 2, "T5: {took:?}");
    assert!(table.exceptions_below(table.next_id()).is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn one_step_is_short_and_says_that_there_is_more() {
    let table = TxnTable::new();
    commit_many(&table, 40 * 4096);
    let live = table.live_snapshots();
    let first = table.advance_low_water(&live);
    assert_eq!((first.pages_freed, first.more), (16, true));
    assert_eq!(first.mark, TxnId::new(16 * 4096));
    advance_fully(&table);
    let last = table.advance_low_water(&live);
    assert_eq!(
        (last.pages_freed, last.more, last.mark),
        (0, false, TxnId::new(40 * 4096))
    );
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn an_old_look_at_snapshots_never_lets_the_mark_pass_newer_commits() {
    let table = TxnTable::new();
    let old_look = table.live_snapshots();
    commit_many(&table, 2 * 4096);
    let snapshot = table.open_snapshot();
    commit_many(&table, 2 * 4096);
    assert_eq!(
        table.advance_low_water(&old_look).pages_freed,
        0,
        "T5: all commits are beyond that frontier"
    );
    advance_fully(&table);
    let before = table.status(TxnId::new(3 * 4096), &pin());
    table.advance_low_water(&old_look);
    assert_eq!(
        table.status(TxnId::new(3 * 4096), &pin()),
        before,
        "T6: ranges beyond the frontier are left alone"
    );
    assert!(matches!(before, TxnStatus::Committed(ts) if ts > snapshot.ts()));
}
