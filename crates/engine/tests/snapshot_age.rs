//! Old snapshots: when they are ended, and what their transactions can still do.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

#[path = "common/store.rs"]
mod store;

use pbxt::Error;
use pbxt_sim::client::Client;
use store::Store;

const HOUR: u64 = 3600 * 1000;

/// Twenty rows, a transaction that has read them, and after that more log than is kept without need.
fn with_old_reader() -> (Store, Client) {
    let mut store = Store::new();
    store.db.set_max_snapshot_age(3600);
    store.insert(0..20);
    let mut old = Client::new(&store.db, 2);
    assert_eq!(old.scan(&store.table).expect("read").len(), 20);
    store.insert(20..21);
    assert_eq!(store.db.end_old_snapshots(HOUR), 0, "its age begins here");
    write_much(&mut store);
    (store, old)
}

fn write_much(store: &mut Store) {
    let from = store.db.log().tail().raw();
    while store.db.log().tail().raw() - from <= store.db.hot_bytes_limit() {
        store.fill();
    }
}

#[test]
fn a_snapshot_that_is_too_old_and_keeps_much_log_is_ended() {
    let (mut store, mut old) = with_old_reader();
    assert_eq!(store.db.end_old_snapshots(2 * HOUR - 1), 0, "T28: not old enough");
    let oldest = store.db.oldest_snapshot(2 * HOUR);
    assert_eq!(oldest.age_seconds, 3600);
    assert!(oldest.log_bytes > store.db.hot_bytes_limit());
    store.compact();
    let held = store.db.log_floor();
    assert_eq!(store.db.end_old_snapshots(2 * HOUR), 1);
    let error = old.scan(&store.table).expect_err("T28: the next read fails");
    assert!(
        matches!(
            error,
            Error::SnapshotTooOld {
                limit_seconds: 3600,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("pbxt_max_snapshot_age"), "{error}");
    store.compact();
    assert!(store.db.log_floor() > held, "T28: its pin is gone");
    assert!(old.count(&store.table).is_err(), "T28: so does every later one");
    old.session.commit().expect("T28: it can be ended");
    assert_eq!(old.scan(&store.table).expect("a new snapshot").len(), 21);
    old.session.commit().expect("ended");
    store.shows(0..21);
}

#[test]
fn what_a_transaction_wrote_before_its_snapshot_was_ended_is_committed() {
    let (mut store, mut old) = with_old_reader();
    old.insert(&store.table, &Store::row(500))
        .expect("a later change");
    assert_eq!(store.db.end_old_snapshots(2 * HOUR), 1);
    assert!(
        old.insert(&store.table, &Store::row(501)).is_err(),
        "T28: conflicts could not be found any more"
    );
    old.session.commit().expect("committed");
    store.shows((0..21).chain([500]));
}

#[test]
fn without_a_limit_or_with_little_log_no_snapshot_is_ended() {
    let (store, mut old) = with_old_reader();
    store.db.set_max_snapshot_age(0);
    assert_eq!(store.db.end_old_snapshots(1000 * HOUR), 0, "T28: no limit");
    assert_eq!(old.scan(&store.table).expect("read").len(), 20);
    let mut store = Store::new();
    store.insert(0..20);
    let mut old = Client::new(&store.db, 2);
    assert_eq!(old.scan(&store.table).expect("read").len(), 20);
    store.insert(20..21);
    store.db.end_old_snapshots(0);
    assert_eq!(
        store.db.end_old_snapshots(1000 * HOUR),
        0,
        "T28: it keeps no log to speak of"
    );
    assert_eq!(old.scan(&store.table).expect("read").len(), 20);
}

#[test]
fn a_statement_that_runs_is_not_ended_under_its_reads() {
    let (store, mut old) = with_old_reader();
    old.session.begin_statement().expect("begun");
    assert_eq!(
        store.db.end_old_snapshots(2 * HOUR),
        0,
        "T27: somebody may be reading by it"
    );
    old.session.end_statement();
    assert_eq!(store.db.end_old_snapshots(2 * HOUR), 1);
    assert!(old.session.begin_statement().is_err());
    old.session.rollback().expect("rolled back");
}
