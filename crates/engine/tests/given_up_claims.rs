//! Claims of unique keys that are given up before their owner's end: who found one goes on, and does not wait for that end.
//!
//! A thread is held between its probe and its place in line (rule T13) while the claim it met goes. Needs feature `stop-points`.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]
#![cfg(feature = "stop-points")]

mod common;
#[path = "common/hold.rs"]
mod hold;

use common::{Bench, put, row};
use hold::{Held, Turn, hold_at, turn};
use pbxt::{Error, Result, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
/// Rows of a load that takes the way around the log.
const MANY: u32 = 3_000;

fn tagged(id: u32, tag: u32) -> PlayRow {
    PlayRow {
        tag: Some(tag),
        ..row(id)
    }
}

/// A session that waits so long for locks.
fn patient(bench: &Bench, number: usize, milliseconds: u64) -> Client {
    let mut client = bench.other(number);
    client.session.configure(SessionConfig {
        lock_wait_timeout_ms: milliseconds,
        ..SessionConfig::default()
    });
    client
}

/// A thread that wants this row, has met a claim of its key, and does not yet stand in line.
fn about_to_wait(turn: &Turn, bench: &Bench, wanted: PlayRow) -> Held<Result<RowId>> {
    let (mut client, table) = (patient(bench, 7, 1_500), bench.table.clone());
    hold_at(turn, "wait.before_enqueue", move || {
        let inserted = client.insert(&table, &wanted);
        if inserted.is_ok() {
            client.session.commit().unwrap();
        }
        inserted
    })
}

fn load(client: &mut Client, table: &PlayTable) -> Result<()> {
    client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        let done = (1..=MANY).try_for_each(|id| put(session, table, &row(id)));
        let ended = session.bulk_end(&table.table, done.is_err());
        done.and(ended)
    })
}

/// A load whose keys are claimed and not yet probed.
fn claiming_load(turn: &Turn, bench: &Bench) -> Held<Result<()>> {
    let (mut client, table) = (patient(bench, 5, 10_000), bench.table.clone());
    hold_at(turn, "bulk.after_claims", move || {
        let loaded = load(&mut client, &table);
        client.session.rollback().unwrap();
        loaded
    })
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_key_given_up_at_a_savepoint_is_not_waited_for() {
    let turn = turn();
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(1)).unwrap();
    let savepoint = bench.client.session.savepoint().unwrap();
    bench.client.insert(&bench.table, &row(5)).unwrap();
    let waiter = about_to_wait(&turn, &bench, row(5));
    bench.client.session.rollback_to(savepoint).unwrap();
    let inserted = waiter.release();
    assert!(inserted.is_ok(), "T13: {inserted:?}");
    bench.client.session.commit().unwrap();
    bench.settle();
}

#[test]
fn a_key_that_is_still_claimed_is_waited_for_although_another_was_given_up() {
    let turn = turn();
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(5)).unwrap();
    let savepoint = bench.client.session.savepoint().unwrap();
    bench.client.insert(&bench.table, &row(6)).unwrap();
    let waiter = about_to_wait(&turn, &bench, row(5));
    bench.client.session.rollback_to(savepoint).unwrap();
    let inserted = waiter.release();
    assert!(
        matches!(inserted, Err(Error::LockTimeout { .. })),
        "T13: {inserted:?}"
    );
    bench.client.session.commit().unwrap();
    bench.settle();
}

#[test]
fn a_key_withdrawn_because_another_one_is_taken_is_not_waited_for() {
    let turn = turn();
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &tagged(1, 9)).unwrap();
    bench.client.session.commit().unwrap();
    let (mut owner, table) = (bench.other(4), bench.table.clone());
    owner.insert(&table, &row(3)).unwrap();
    let claimed = hold_at(&turn, "unique.after_claim", move || {
        let refused = owner.insert(&table, &tagged(5, 9));
        assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
        owner
    });
    let waiter = about_to_wait(&turn, &bench, row(5));
    let mut owner = claimed.release();
    let inserted = waiter.release();
    assert!(inserted.is_ok(), "T13: {inserted:?}");
    owner.session.commit().unwrap();
    bench.settle();
}

#[test]
fn a_load_that_waits_wakes_who_waits_for_its_keys() {
    let turn = turn();
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(50)).unwrap();
    let loading = claiming_load(&turn, &bench);
    let (mut client, table) = (patient(&bench, 8, 5_000), bench.table.clone());
    let waiter = std::thread::spawn(move || {
        client.insert(&table, &row(77))?;
        client.session.commit()
    });
    until("somebody waits for the load", || bench.db.waits.has_waiters());
    loading.let_go();
    let inserted = waiter.join().unwrap();
    assert!(
        inserted.is_ok(),
        "T13: the load waits and claims nothing: {inserted:?}"
    );
    bench.client.session.commit().unwrap();
    let loaded = loading.release();
    assert!(matches!(loaded, Err(Error::DuplicateKey { .. })), "{loaded:?}");
    bench.settle();
}

#[test]
fn a_load_and_a_writer_that_met_its_claims_are_no_circle() {
    let turn = turn();
    let mut bench = Bench::new();
    let (mut writer, table) = (patient(&bench, 8, 5_000), bench.table.clone());
    writer.insert(&table, &row(50)).unwrap();
    let loading = claiming_load(&turn, &bench);
    let about = hold_at(&turn, "wait.before_enqueue", move || {
        let inserted = writer.insert(&table, &row(77));
        (writer, inserted)
    });
    loading.let_go();
    until("the load waits for row 50", || bench.db.waits.has_waiters());
    let (mut writer, inserted) = about.release();
    assert!(inserted.is_ok(), "T13, T14: {inserted:?}");
    writer.session.commit().unwrap();
    let loaded = loading.release();
    assert!(matches!(loaded, Err(Error::DuplicateKey { .. })), "{loaded:?}");
    bench.settle();
}

/// Two loads that meet each other's claims both give them up; one of them comes through, and no circle is made of it.
#[test]
fn loads_that_meet_each_other_do_not_both_fail() {
    let turn = turn();
    let mut bench = Bench::new();
    let first = claiming_load(&turn, &bench);
    let second = claiming_load(&turn, &bench);
    first.let_go();
    second.let_go();
    let loaded = [first.release(), second.release()];
    assert!(loaded.iter().all(Result::is_ok), "T13: {loaded:?}");
    bench.settle();
}
