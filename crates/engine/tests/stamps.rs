//! Ids of transactions that a host writes into rows (rules T47, T48 of docs/transactions.md).

mod common;

use common::{Bench, open, row};
use pbxt_base::TxnId;

/// The id that is told for the commit of a transaction that has written a row.
fn told(bench: &mut Bench, id: u32) -> (TxnId, TxnId) {
    let stamp = bench.client.session.stamp().expect("an id");
    bench.client.insert(&bench.table, &row(id)).expect("inserted");
    let told = bench.client.session.commit_stamp().expect("told");
    let (txn, commit) = told.expect("a row was written");
    assert_eq!(txn, stamp);
    (txn, commit)
}

#[test]
fn a_commit_has_an_id_greater_than_all_before() {
    // T47.
    let mut bench = Bench::new();
    let mut last = TxnId::new(0);
    for id in 1..20 {
        let (txn, commit) = told(&mut bench, id);
        assert!(last < txn && txn < commit, "{last} {txn} {commit}");
        let mut other = bench.other(id as usize);
        let began_later = other.session.stamp().expect("an id");
        assert!(commit < began_later);
        other.session.rollback().expect("rolled back");
        bench.client.session.commit().expect("committed");
        last = began_later;
    }
    assert_eq!(bench.rows().len(), 19);
}

#[test]
fn without_a_row_that_has_the_id_there_is_none_for_the_commit() {
    // T47.
    let mut bench = Bench::new();
    let none = |bench: &mut Bench| bench.client.session.commit_stamp().expect("an answer");
    assert_eq!(none(&mut bench), None);
    bench.client.insert(&bench.table, &row(1)).expect("inserted");
    assert_eq!(none(&mut bench), None);
    let savepoint = bench.client.session.savepoint().expect("a savepoint");
    told(&mut bench, 2);
    bench.client.session.rollback_to(savepoint).expect("rolled back");
    assert_eq!(none(&mut bench), None);
    told(&mut bench, 3);
    let savepoint = bench.client.session.savepoint().expect("a savepoint");
    told(&mut bench, 4);
    bench.client.session.rollback_to(savepoint).expect("rolled back");
    assert!(none(&mut bench).is_some());
    bench.client.session.commit().expect("committed");
    assert_eq!(none(&mut bench), None);
}

#[test]
fn what_was_told_is_given_to_nobody_after_a_crash() {
    // T48: no row, no END of the transaction and of those between need be in the log.
    let mut bench = Bench::new();
    let mut seed = 0;
    for round in 0..4 {
        let mut greatest = told(&mut bench, round).1;
        for _ in 0..round * 40_000 {
            let mut other = bench.other(1);
            other.session.stamp().expect("an id");
            other.session.rollback().expect("rolled back");
        }
        greatest = greatest.max(told(&mut bench, round + 10).1);
        seed += 1;
        let db = open(&bench.disk.crash(seed));
        let mut session = pbxt::Session::open(&db, 0, 0);
        let next = session.stamp().expect("an id");
        assert!(greatest < next, "{next} after {greatest}");
        drop((session, db));
        bench.client.session.rollback().expect("rolled back");
        bench.crash_reopen();
    }
}
