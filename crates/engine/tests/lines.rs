//! Lines of waiters: who comes later stands behind, whatever it wants; who wants another row does not.
//!
//! A waiter is held between its place in line and its sleep; the row it waits for becomes free, and others come. Needs feature
//! `stop-points`.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]
#![cfg(feature = "stop-points")]

mod common;
#[path = "common/hold.rs"]
mod hold;

use common::{Bench, row};
use hold::{Held, Turn, hold_at, turn};
use pbxt::{Bind, Busy, ConflictMode, Error, Isolation, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_txn::LockMode;
use std::sync::Arc;

const NEIGHBOURS: u32 = 8_000;

fn session(bench: &Bench, number: usize, conflict_mode: ConflictMode, milliseconds: u64) -> Client {
    let mut client = bench.other(number);
    client.session.configure(SessionConfig {
        conflict_mode,
        isolation: Isolation::RepeatableRead,
        lock_wait_timeout_ms: milliseconds,
        ..SessionConfig::default()
    });
    client
}

fn rename(client: &mut Client, table: &PlayTable, row: RowId, group: u32) -> pbxt::Result<()> {
    let change = |old: &PlayRow| PlayRow {
        group: Some(group),
        ..old.clone()
    };
    client.update(table, row, change).map(|_| ())
}

/// Rows 1 and 2; a waiter for row 1, which the bench's own client has changed, stands in line and does not sleep yet.
fn with_a_waiter(turn: &Turn) -> (Bench, [RowId; 2], Held<Client>) {
    let mut bench = Bench::new();
    let rows = [1, 2].map(|id| bench.client.insert(&bench.table, &row(id)).unwrap());
    bench.client.session.commit().unwrap();
    rename(&mut bench.client, &bench.table, rows[0], 1).unwrap();
    let mut waiter = session(&bench, 2, ConflictMode::Wait, 20_000);
    let (table, target) = (bench.table.clone(), rows[0]);
    let held = hold_at(turn, "wait.after_enqueue", move || {
        rename(&mut waiter, &table, target, 2).unwrap();
        waiter
    });
    (bench, rows, held)
}

fn locks(mode: LockMode, busy: Busy) -> Bind {
    Bind {
        lock: Some(mode),
        busy,
        ..Bind::default()
    }
}

#[test]
fn a_row_that_became_free_is_for_the_first_in_line() {
    // T15.
    let turn = turn();
    let (mut bench, rows, held) = with_a_waiter(&turn);
    bench.client.session.rollback().unwrap();
    for mode in [ConflictMode::Error, ConflictMode::Wait] {
        let mut writer = session(&bench, 3, mode, 0);
        let refused = rename(&mut writer, &bench.table, rows[0], 3);
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "{mode:?}: {refused:?}"
        );
        writer.session.rollback().unwrap();
    }
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        let mut reader = session(&bench, 4, ConflictMode::Wait, 20_000);
        let refused = reader.scan_locking(&bench.table, locks(mode, Busy::Fail));
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "{mode:?}: {refused:?}"
        );
        let others = reader
            .scan_locking(&bench.table, locks(mode, Busy::Skip))
            .unwrap();
        assert_eq!(
            others.iter().map(|(_, row)| row.id).collect::<Vec<_>>(),
            [2],
            "{mode:?}"
        );
        reader.session.rollback().unwrap();
    }
    let mut waiter = held.release();
    waiter.session.commit().unwrap();
    let groups: Vec<_> = bench.rows().into_iter().map(|(_, row)| row.group).collect();
    assert_eq!(groups, [Some(2), None]);
    bench.settle();
}

#[test]
fn a_writer_does_not_go_past_ddl_in_line() {
    // T15: or writers that come one after the other keep it out for ever.
    let turn = turn();
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(1)).unwrap();
    let db = Arc::clone(&bench.db);
    let held = hold_at(&turn, "wait.after_enqueue", move || {
        db.rename_table(None, "t", "u")
    });
    // Who has the table goes on.
    bench.client.insert(&bench.table, &row(2)).unwrap();
    let mut newcomer = session(&bench, 3, ConflictMode::Error, 0);
    let refused = newcomer.insert(&bench.table, &row(3));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    newcomer.session.rollback().unwrap();
    bench.client.session.commit().unwrap();
    held.release().unwrap();
    newcomer.insert(&bench.table, &row(3)).unwrap();
    newcomer.session.commit().unwrap();
    assert_eq!(bench.rows().len(), 3);
    bench.settle();
}

#[test]
fn a_shared_lock_does_not_go_past_a_writer_in_line() {
    // T15: or readers that come one after the other keep a writer out for ever.
    let turn = turn();
    let mut bench = Bench::new();
    let target = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    let share = locks(LockMode::Shared, Busy::Wait);
    assert_eq!(bench.client.scan_locking(&bench.table, share).unwrap().len(), 1);
    let mut writer = session(&bench, 2, ConflictMode::Wait, 20_000);
    let table = bench.table.clone();
    let held = hold_at(&turn, "wait.after_enqueue", move || {
        rename(&mut writer, &table, target, 2).unwrap();
        writer.session.commit().unwrap();
    });
    let mut late = session(&bench, 3, ConflictMode::Wait, 0);
    let refused = late.scan_locking(&bench.table, share);
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    assert_eq!(
        bench.client.scan_locking(&bench.table, share).unwrap().len(),
        1,
        "who holds the lock already stands in no line"
    );
    bench.client.session.commit().unwrap();
    held.release();
    late.session.rollback().unwrap();
    assert_eq!(
        late.scan_locking(&bench.table, share).unwrap()[0].1.group,
        Some(2)
    );
}

#[test]
fn a_waiter_is_nothing_to_those_who_want_other_rows() {
    // T15: the counters by hash say "maybe" for some of so many rows, the graph knows better.
    let turn = turn();
    let (mut bench, _, held) = with_a_waiter(&turn);
    let other = PlayTable::create(&bench.db, "other").unwrap();
    let mut client = session(&bench, 3, ConflictMode::Wait, 0);
    let rows: Vec<PlayRow> = (1..=NEIGHBOURS).map(row).collect();
    client.insert_all(&other, &rows).unwrap();
    client.session.commit().unwrap();
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        let free = client.scan_locking(&other, locks(mode, Busy::Skip)).unwrap();
        assert_eq!(free.len(), rows.len(), "{mode:?}: nobody has any of them");
        client.session.commit().unwrap();
    }
    let locked = client.scan_locking(&other, locks(LockMode::Exclusive, Busy::Wait));
    assert_eq!(
        locked.unwrap().len(),
        rows.len(),
        "and nothing is to be waited for"
    );
    bench.client.session.rollback().unwrap();
    held.release().session.commit().unwrap();
}

#[test]
fn who_does_not_wait_closes_no_circle() {
    // T14: the statement fails, and not the transaction.
    let turn = turn();
    let mut bench = Bench::new();
    let rows = [1, 2].map(|id| bench.client.insert(&bench.table, &row(id)).unwrap());
    bench.client.session.commit().unwrap();
    rename(&mut bench.client, &bench.table, rows[0], 1).unwrap();
    let mut waiter = session(&bench, 2, ConflictMode::Wait, 20_000);
    rename(&mut waiter, &bench.table, rows[1], 2).unwrap();
    let (table, target) = (bench.table.clone(), rows[0]);
    let held = hold_at(&turn, "wait.after_enqueue", move || {
        rename(&mut waiter, &table, target, 2).unwrap();
        waiter
    });
    let client = &mut bench.client;
    let by_limit = rename(client, &bench.table, rows[1], 3);
    client.session.configure(SessionConfig {
        lock_wait_timeout_ms: 20_000,
        ..client.session.config()
    });
    let exclusive = locks(LockMode::Exclusive, Busy::Fail);
    let by_wish = client.scan_locking(&bench.table, exclusive).map(|_| ());
    for refused in [by_limit, by_wish] {
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    }
    client.session.commit().unwrap();
    let mut waiter = held.release();
    waiter.session.commit().unwrap();
    let groups: Vec<_> = bench.rows().into_iter().map(|(_, row)| row.group).collect();
    assert_eq!(groups, [Some(2), Some(2)]);
    bench.settle();
}
