//! One thread stands between two steps that are not one step; others read, write, wait, and the power fails.
//!
//! Each test names the rule whose gap it stands in. Needs feature `stop-points`.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]
#![cfg(feature = "stop-points")]

mod common;
#[path = "common/hold.rs"]
mod hold;

use common::{Bench, open, row};
use hold::{Turn, hold_at, turn};
use pbxt::{Bind, ConflictMode, Cursor, Error, FlushAtCommit, Isolation, Seek, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, TAG_INDEX};
use pbxt_testkit::SimDisk;
use pbxt_txn::LockMode;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WRITE: [&str; 4] = [
    "write.after_reserve",
    "write.after_fill",
    "write.after_link",
    "write.after_index_event",
];

fn grouped(id: u32) -> PlayRow {
    PlayRow {
        group: Some(1),
        tag: Some(id),
        ..row(id)
    }
}

/// A session that commits without waiting for the log, which waits for the held thread's record.
fn hasty(bench: &Bench) -> Client {
    let mut client = bench.other(9);
    client.session.configure(SessionConfig {
        flush: FlushAtCommit::Background,
        lock_wait_timeout_ms: 0,
        ..SessionConfig::default()
    });
    client
}

/// A session that waits for locks, in conflict mode wait.
fn patient(bench: &Bench, milliseconds: u64) -> Client {
    let mut client = bench.other(8);
    client.session.configure(SessionConfig {
        conflict_mode: ConflictMode::Wait,
        isolation: Isolation::ReadCommitted,
        lock_wait_timeout_ms: milliseconds,
        ..SessionConfig::default()
    });
    client
}

fn ids(client: &mut Client, table: &PlayTable) -> BTreeSet<u32> {
    let rows = client
        .agreed(table)
        .unwrap()
        .unwrap_or_else(|differs| panic!("{differs}"));
    rows.into_iter().map(|(_, row)| row.id).collect()
}

/// What restarts after a power cut now would find: one set of ids for each of several images.
fn after_power_cuts(disk: &SimDisk) -> BTreeSet<BTreeSet<u32>> {
    let found = (0..12).map(|seed| {
        let db = open(&disk.crash(seed));
        let table = PlayTable::open(&db, "t").expect("the table was there before");
        let mut client = Client::new(&db, 1);
        assert_eq!(client.check(&table).unwrap(), Vec::<String>::new());
        ids(&mut client, &table)
    });
    found.collect()
}

fn committed(bench: &mut Bench, rows: &[u32]) -> Vec<RowId> {
    let made = rows
        .iter()
        .map(|id| bench.client.insert(&bench.table, &grouped(*id)).unwrap())
        .collect();
    bench.client.session.commit().unwrap();
    made
}

fn insert_held(turn: &Turn, bench: &Bench, point: &'static str, id: u32) -> hold::Held<Client> {
    let (mut client, table) = (hasty(bench), bench.table.clone());
    hold_at(turn, point, move || {
        client.insert(&table, &grouped(id)).unwrap();
        client
    })
}

#[test]
fn a_half_made_insert_is_seen_by_nobody_and_its_key_is_taken() {
    // T23, X9: claims come before the record; D13: without END there is no row.
    let turn = turn();
    for point in WRITE {
        let mut bench = Bench::new();
        committed(&mut bench, &[1]);
        let held = insert_held(&turn, &bench, point, 5);
        let mut other = hasty(&bench);
        assert_eq!(ids(&mut other, &bench.table), BTreeSet::from([1]), "{point}");
        let taken = other.insert(&bench.table, &grouped(5));
        assert!(
            matches!(taken, Err(Error::LockTimeout { .. })),
            "{point}: {taken:?}"
        );
        other.insert(&bench.table, &grouped(6)).unwrap();
        other.session.commit().unwrap();
        for found in after_power_cuts(&bench.disk) {
            assert_eq!(found, BTreeSet::from([1]), "{point}: neither is durable");
        }
        let mut client = held.release();
        assert_eq!(
            ids(&mut client, &bench.table),
            BTreeSet::from([1, 5, 6]),
            "{point}"
        );
        client.session.commit().unwrap();
        drop((client, other));
        bench.db.flush().unwrap();
        bench.settle();
        bench.crash_reopen();
        assert_eq!(
            ids(&mut bench.client, &bench.table),
            BTreeSet::from([1, 5, 6]),
            "{point}"
        );
    }
}

#[test]
fn an_update_that_loses_the_swap_leaves_no_record_that_counts() {
    // D15: the lost record becomes a filler; after a crash the winner's version is the row.
    let turn = turn();
    for point in &WRITE[..2] {
        let mut bench = Bench::new();
        let [target, witness] = committed(&mut bench, &[1, 2])[..] else {
            panic!("two rows")
        };
        let (mut client, table) = (hasty(&bench), bench.table.clone());
        let held = hold_at(&turn, point, move || {
            let lost = client.update(&table, target, |old| PlayRow {
                id: 100,
                ..old.clone()
            });
            (client, lost)
        });
        let mut other = hasty(&bench);
        other
            .update(&bench.table, target, |old| PlayRow {
                id: 200,
                ..old.clone()
            })
            .unwrap();
        other.session.commit().unwrap();
        let (mut client, lost) = held.release();
        assert!(
            matches!(lost, Err(Error::WriteConflict { .. })),
            "{point}: {lost:?}"
        );
        client
            .update(&bench.table, witness, |old| PlayRow { id: 3, ..old.clone() })
            .unwrap();
        client.session.commit().unwrap();
        drop((client, other));
        bench.db.flush().unwrap();
        bench.settle();
        bench.crash_reopen();
        assert_eq!(
            ids(&mut bench.client, &bench.table),
            BTreeSet::from([200, 3]),
            "{point}"
        );
    }
}

#[test]
fn a_linked_version_is_the_lock_of_its_row() {
    // T16: between the swap and the end nobody else writes the row, and readers see the old version by every index.
    let turn = turn();
    for point in &WRITE[2..] {
        let mut bench = Bench::new();
        let target = committed(&mut bench, &[1])[0];
        let (mut client, table) = (hasty(&bench), bench.table.clone());
        let held = hold_at(&turn, point, move || {
            client
                .update(&table, target, |old| PlayRow {
                    id: 9,
                    group: Some(3),
                    tag: None,
                    ..old.clone()
                })
                .unwrap();
            client.session.rollback().unwrap();
        });
        let mut other = hasty(&bench);
        let refused = other.update(&bench.table, target, |old| PlayRow {
            group: None,
            ..old.clone()
        });
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "{point}: {refused:?}"
        );
        assert_eq!(ids(&mut other, &bench.table), BTreeSet::from([1]), "{point}");
        held.release();
        other
            .update(&bench.table, target, |old| PlayRow { id: 4, ..old.clone() })
            .unwrap();
        other.session.commit().unwrap();
        drop(other);
        bench.settle();
        bench.reopen();
        assert_eq!(
            ids(&mut bench.client, &bench.table),
            BTreeSet::from([4]),
            "{point}"
        );
    }
}

#[test]
fn two_inserts_of_one_key_do_not_both_find_it_free() {
    // X9: what was probed is compared under the stripe latch before the claim is published.
    let turn = turn();
    let mut bench = Bench::new();
    let (mut client, table) = (hasty(&bench), bench.table.clone());
    let held = hold_at(&turn, "unique.after_probe", move || {
        client.insert(&table, &grouped(5))
    });
    bench.client.insert(&bench.table, &grouped(5)).unwrap();
    bench.client.session.commit().unwrap();
    let second = held.release();
    assert!(matches!(second, Err(Error::DuplicateKey { .. })), "{second:?}");
    bench.settle();
}

/// What becomes of the row that has a key while another transaction has met it and not locked it yet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Renumbered,
    Deleted,
    Rewritten,
}

#[test]
fn who_goes_on_with_the_row_that_has_a_key_is_told_of_no_row_that_has_left_it() {
    // T22: the row is locked and judged anew before it is named, also if that has to wait.
    let turn = turn();
    let configs = [
        (Isolation::ReadCommitted, ConflictMode::Default),
        (Isolation::RepeatableRead, ConflictMode::Wait),
        (Isolation::RepeatableRead, ConflictMode::Error),
    ];
    for (isolation, conflict_mode) in configs {
        for (fate, waits) in [
            (Fate::Renumbered, false),
            (Fate::Renumbered, true),
            (Fate::Deleted, false),
            (Fate::Deleted, true),
            (Fate::Rewritten, true),
        ] {
            let mut bench = Bench::new();
            let target = committed(&mut bench, &[5])[0];
            let (mut client, table) = (patient(&bench, 10_000), bench.table.clone());
            client.session.configure(SessionConfig {
                isolation,
                conflict_mode,
                ..client.session.config()
            });
            let held = hold_at(&turn, "unique.after_probe", move || {
                let inserted = client.insert_or_hold(&table, &grouped(5));
                client.session.commit().unwrap();
                inserted
            });
            let other = &mut bench.client;
            match fate {
                Fate::Deleted => other.delete(&bench.table, target).map(|_| ()),
                Fate::Renumbered => other.update(&bench.table, target, |_| grouped(6)).map(|_| ()),
                Fate::Rewritten => other
                    .update(&bench.table, target, |old| PlayRow {
                        group: Some(9),
                        ..old.clone()
                    })
                    .map(|_| ()),
            }
            .unwrap();
            if waits {
                held.let_go();
                while !held.is_over() && !bench.db.waits.has_waiters() {
                    std::thread::yield_now();
                }
            }
            bench.client.session.commit().unwrap();
            let inserted = held.release();
            let case = format!("{isolation:?} {conflict_mode:?} {fate:?} {waits}");
            if fate == Fate::Rewritten {
                assert!(
                    matches!(inserted, Err(Error::DuplicateKey { row, .. }) if row == target),
                    "{case}: {inserted:?}"
                );
            } else {
                assert!(inserted.is_ok(), "T22: {case}: {inserted:?}");
            }
            let left = if fate == Fate::Renumbered {
                vec![5, 6]
            } else {
                vec![5]
            };
            assert_eq!(
                ids(&mut bench.client, &bench.table),
                BTreeSet::from_iter(left),
                "{case}"
            );
            bench.settle();
        }
    }
}

#[test]
fn a_row_named_to_who_goes_on_with_it_is_locked() {
    // T22; who only hears that the key is taken locks nothing.
    let _turn = turn();
    let mut bench = Bench::new();
    let target = committed(&mut bench, &[5])[0];
    for holds in [false, true] {
        let mut client = hasty(&bench);
        let taken = if holds {
            client.insert_or_hold(&bench.table, &grouped(5))
        } else {
            client.insert(&bench.table, &grouped(5))
        };
        assert!(
            matches!(taken, Err(Error::DuplicateKey { row, .. }) if row == target),
            "{taken:?}"
        );
        let deleted = bench.client.delete(&bench.table, target);
        assert_eq!(
            matches!(deleted, Err(Error::LockTimeout { .. })),
            holds,
            "{deleted:?}"
        );
        bench.client.session.rollback().unwrap();
        client.session.commit().unwrap();
    }
    bench.settle();
}

#[test]
fn a_claim_without_a_row_is_waited_for_and_given_up_by_rollback() {
    // T13, T23: the waiter gets the key when the claim's owner rolls back.
    let turn = turn();
    let mut bench = Bench::new();
    let (mut client, table) = (hasty(&bench), bench.table.clone());
    let held = hold_at(&turn, "unique.after_claim", move || {
        client.insert(&table, &grouped(5)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        client.session.rollback().unwrap();
    });
    let (mut waiter, table) = (patient(&bench, 10_000), bench.table.clone());
    let waiting = std::thread::spawn(move || {
        waiter.insert(&table, &grouped(5)).unwrap();
        waiter.session.commit().unwrap();
    });
    std::thread::sleep(Duration::from_millis(50));
    held.release();
    waiting.join().unwrap();
    assert_eq!(ids(&mut bench.client, &bench.table), BTreeSet::from([5]));
    bench.settle();
}

/// True if a search by tag finds a row that it can lock.
fn locks_tagged(client: &mut Client, table: &PlayTable, tag: u32) -> bool {
    let key = table.prefix(TAG_INDEX, &[Some(tag)]);
    let found = client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        let bind = Bind {
            lock: Some(LockMode::Exclusive),
            ..Bind::default()
        };
        cursor.bind(session, bind)?;
        cursor.index_start(session, TAG_INDEX)?;
        cursor.seek(session, &key, Seek::Exact, |_| Ok(()))
    });
    found.unwrap()
}

#[test]
fn a_claim_whose_row_is_not_written_hides_no_row_from_who_has_locked_it() {
    // T22: the row came to the key while the claimant waited for another one, and the claim is the newer of the two events.
    let turn = turn();
    let mut bench = Bench::new();
    let target = committed(&mut bench, &[1])[0];
    let mut holder = hasty(&bench);
    holder.insert(&bench.table, &grouped(50)).unwrap();
    let (mut mover, table, db) = (hasty(&bench), bench.table.clone(), Arc::clone(&bench.db));
    let others = std::thread::spawn(move || {
        while !db.waits.has_waiters() {
            std::thread::yield_now();
        }
        let moved = mover.update(&table, target, |old| PlayRow {
            tag: Some(9),
            ..old.clone()
        });
        moved.unwrap();
        mover.session.commit().unwrap();
        holder.session.rollback().unwrap();
    });
    let (mut claimant, table) = (bench.other(7), bench.table.clone());
    claimant.session.configure(SessionConfig {
        lock_wait_timeout_ms: 10_000,
        ..SessionConfig::default()
    });
    let held = hold_at(&turn, "write.after_reserve", move || {
        claimant.update(&table, target, |old| PlayRow {
            id: 50,
            tag: Some(9),
            ..old.clone()
        })
    });
    others.join().unwrap();
    let mut locker = patient(&bench, 0);
    assert!(locks_tagged(&mut locker, &bench.table, 9), "T22");
    locker.session.rollback().unwrap();
    let lost = held.release();
    assert!(matches!(lost, Err(Error::WriteConflict { .. })), "{lost:?}");
    bench.settle();
}

#[test]
fn a_commit_between_its_timestamp_and_its_publication_is_invisible_and_keeps_order() {
    // T2: timestamp, END and publication are one section; others commit behind it, readers do not see it yet.
    let turn = turn();
    for point in ["commit.after_ts", "commit.before_publish"] {
        let mut bench = Bench::new();
        committed(&mut bench, &[1]);
        let (mut client, table) = (hasty(&bench), bench.table.clone());
        client.insert(&table, &grouped(2)).unwrap();
        let held = hold_at(&turn, point, move || client.session.commit().unwrap());
        assert_eq!(
            ids(&mut bench.client, &bench.table),
            BTreeSet::from([1]),
            "{point}"
        );
        bench.client.session.commit().unwrap();
        assert_eq!(
            after_power_cuts(&bench.disk),
            BTreeSet::from([BTreeSet::from([1])]),
            "{point}"
        );
        held.release();
        assert_eq!(
            ids(&mut bench.client, &bench.table),
            BTreeSet::from([1, 2]),
            "{point}"
        );
        bench.settle();
    }
}

#[test]
fn a_published_commit_is_whole_before_it_is_durable() {
    // D6: visible at once; after a power cut all of it or nothing.
    let turn = turn();
    let mut bench = Bench::new();
    committed(&mut bench, &[1]);
    let mut client = bench.other(2);
    client
        .insert_all(&bench.table, &[grouped(2), grouped(3)])
        .unwrap();
    let held = hold_at(&turn, "commit.after_publish", move || {
        client.session.commit().unwrap();
    });
    assert_eq!(ids(&mut bench.client, &bench.table), BTreeSet::from([1, 2, 3]));
    for found in after_power_cuts(&bench.disk) {
        assert_eq!(found, BTreeSet::from([1]));
    }
    held.release();
    assert_eq!(
        after_power_cuts(&bench.disk),
        BTreeSet::from([BTreeSet::from([1, 2, 3])])
    );
}

#[test]
fn a_transaction_about_to_be_prepared_keeps_its_rows() {
    // T18, D6: prepared iff PREPARE is in the log; whatever the outcome, nobody else gets the row meanwhile.
    let turn = turn();
    let mut bench = Bench::new();
    let target = committed(&mut bench, &[1])[0];
    let (mut client, table) = (bench.other(2), bench.table.clone());
    let held = hold_at(&turn, "prepare.after_append", move || {
        client
            .update(&table, target, |old| PlayRow { id: 7, ..old.clone() })
            .unwrap();
        client.session.prepare(b"x").unwrap();
        client.session.detach_prepared();
    });
    let mut other = hasty(&bench);
    assert!(matches!(
        other.delete(&bench.table, target),
        Err(Error::LockTimeout { .. })
    ));
    assert_eq!(
        after_power_cuts(&bench.disk),
        BTreeSet::from([BTreeSet::from([1])])
    );
    held.release();
    drop(other);
    bench.crash_reopen();
    assert_eq!(bench.db.prepared.xids(), [b"x".to_vec()]);
    assert!(matches!(
        bench.client.delete(&bench.table, target),
        Err(Error::LockTimeout { .. })
    ));
    bench.client.session.rollback().unwrap();
    bench.db.commit_prepared(b"x").unwrap();
    assert_eq!(ids(&mut bench.client, &bench.table), BTreeSet::from([7]));
    bench.settle();
}

#[test]
fn a_power_cut_inside_a_flush_leaves_all_of_a_commit_or_nothing() {
    // D1, D4, D6.
    let turn = turn();
    let points = [
        "flush.before_seal",
        "flush.after_seal",
        "flush.before_write",
        "flush.after_write",
        "flush.before_sync",
        "flush.after_sync",
    ];
    for point in points {
        let mut bench = Bench::new();
        committed(&mut bench, &[1]);
        let mut client = bench.other(2);
        client
            .insert_all(&bench.table, &[grouped(2), grouped(3)])
            .unwrap();
        let held = hold_at(&turn, point, move || client.session.commit().unwrap());
        let (before, after) = (BTreeSet::from([1]), BTreeSet::from([1, 2, 3]));
        for found in after_power_cuts(&bench.disk) {
            let may_be = match point {
                "flush.after_write" | "flush.before_sync" => found == before || found == after,
                "flush.after_sync" => found == after,
                _ => found == before,
            };
            assert!(may_be, "{point}: {found:?}");
        }
        assert_eq!(
            ids(&mut bench.client, &bench.table),
            after,
            "{point}: visible before durable"
        );
        held.release();
        assert_eq!(after_power_cuts(&bench.disk), BTreeSet::from([after]), "{point}");
    }
}

#[test]
fn a_table_is_there_after_a_power_cut_only_if_its_definition_was_logged_whole() {
    // K4.
    let turn = turn();
    for (point, is_there) in [("ddl.after_append", false), ("ddl.after_publish", true)] {
        let mut bench = Bench::new();
        committed(&mut bench, &[1]);
        let db = Arc::clone(&bench.db);
        let held = hold_at(&turn, point, move || PlayTable::create(&db, "second").map(|_| ()));
        for seed in 0..12 {
            let found = open(&bench.disk.crash(seed));
            assert_eq!(
                found.table_id("second").is_some(),
                is_there,
                "{point}, seed {seed}"
            );
        }
        bench.client.insert(&bench.table, &grouped(2)).unwrap();
        bench.settle();
        held.release().unwrap();
        bench.client.session.commit().unwrap();
        bench.crash_reopen();
        assert!(bench.db.table_id("second").is_some());
    }
}

#[test]
fn a_savepoint_rollback_half_made_hides_and_shows_the_right_rows() {
    // T8: the record is in the log, the void range not yet known; others never saw either.
    let turn = turn();
    let mut bench = Bench::new();
    let target = committed(&mut bench, &[1])[0];
    let (mut client, table) = (hasty(&bench), bench.table.clone());
    let held = hold_at(&turn, "rollback.after_append", move || {
        let savepoint = client.session.savepoint().unwrap();
        client
            .update(&table, target, |old| PlayRow { id: 2, ..old.clone() })
            .unwrap();
        client.session.rollback_to(savepoint).unwrap();
        client
    });
    let mut other = hasty(&bench);
    assert!(matches!(
        other.delete(&bench.table, target),
        Err(Error::LockTimeout { .. })
    ));
    assert_eq!(ids(&mut other, &bench.table), BTreeSet::from([1]));
    let client = held.release();
    assert!(
        other.delete(&bench.table, target).unwrap().is_some(),
        "a void head is no lock"
    );
    drop((client, other));
    bench.settle();
}

#[test]
fn a_snapshot_taken_while_the_horizon_moves_keeps_what_it_reads() {
    // T4: the slot is stored before the frontier is read again.
    let turn = turn();
    let mut bench = Bench::new();
    let target = committed(&mut bench, &[1])[0];
    let (mut client, table) = (bench.other(2), bench.table.clone());
    let held = hold_at(&turn, "snapshot.after_load", move || ids(&mut client, &table));
    for id in 2..40 {
        bench
            .client
            .update(&bench.table, target, |old| PlayRow { id, ..old.clone() })
            .unwrap();
        bench.client.session.commit().unwrap();
        bench.db.housekeeping_step();
    }
    assert_eq!(
        held.release(),
        BTreeSet::from([39]),
        "the horizon has passed what was loaded first"
    );
    bench.settle();
}

#[test]
fn an_owner_that_ends_while_a_waiter_queues_wakes_it() {
    // T13: state before queue on one side, queue before judgement on the other.
    let turn = turn();
    for point in ["wait.before_enqueue", "wait.after_enqueue"] {
        for commits in [true, false] {
            let mut bench = Bench::new();
            let target = committed(&mut bench, &[1])[0];
            bench
                .client
                .update(&bench.table, target, |old| PlayRow { id: 2, ..old.clone() })
                .unwrap();
            let (mut waiter, table) = (patient(&bench, 10_000), bench.table.clone());
            let held = hold_at(&turn, point, move || {
                let started = Instant::now();
                waiter
                    .update(&table, target, |old| PlayRow {
                        group: Some(8),
                        ..old.clone()
                    })
                    .unwrap();
                waiter.session.commit().unwrap();
                started.elapsed()
            });
            if commits {
                bench.client.session.commit().unwrap();
            } else {
                bench.client.session.rollback().unwrap();
            }
            assert!(
                held.release() < Duration::from_secs(5),
                "{point}: the waiter slept to its limit"
            );
            let rows = bench.rows();
            assert_eq!(
                (rows[0].1.id, rows[0].1.group),
                (1 + u32::from(commits), Some(8)),
                "{point}"
            );
            bench.settle();
        }
    }
}

#[test]
fn a_kill_before_the_sleep_is_not_lost() {
    let turn = turn();
    let mut bench = Bench::new();
    let target = committed(&mut bench, &[1])[0];
    bench
        .client
        .update(&bench.table, target, |old| PlayRow { id: 2, ..old.clone() })
        .unwrap();
    let (mut waiter, table) = (patient(&bench, 10_000), bench.table.clone());
    let gate = Arc::clone(waiter.session.gate());
    let held = hold_at(&turn, "wait.after_enqueue", move || {
        let started = Instant::now();
        (waiter.delete(&table, target), started.elapsed())
    });
    gate.kill();
    let (killed, took) = held.release();
    assert!(matches!(killed, Err(Error::Killed)), "{killed:?}");
    assert!(took < Duration::from_secs(5));
    bench.client.session.rollback().unwrap();
    bench.settle();
}
