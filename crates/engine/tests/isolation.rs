//! What sessions see of each other: snapshots, conflicts, locking reads, definitions that change.

mod common;
#[path = "common/three.rs"]
mod three;

use common::{Bench, row};
use pbxt::{Bind, Busy, ConflictMode, Error, Isolation, SessionConfig};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_txn::LockMode;
use std::sync::Arc;
use three::{read, renumber, three, waiting, with};

fn repeatable(bench: &Bench) -> Client {
    with(bench, Isolation::RepeatableRead, ConflictMode::Error)
}

#[test]
fn repeatable_read_keeps_its_snapshot_and_read_committed_takes_a_new_one() {
    let (mut bench, rows) = three();
    let mut fixed = repeatable(&bench);
    let mut fresh = with(&bench, Isolation::ReadCommitted, ConflictMode::Error);
    assert_eq!(read(&mut fixed, &bench.table), read(&mut fresh, &bench.table));
    renumber(&mut bench.client, &bench.table, rows[0], 10).unwrap();
    bench.client.delete(&bench.table, rows[1]).unwrap();
    assert_eq!(read(&mut fresh, &bench.table), [1, 2, 3], "nothing is committed");
    bench.client.session.commit().unwrap();
    assert_eq!(read(&mut fixed, &bench.table), [1, 2, 3]);
    assert_eq!(read(&mut fresh, &bench.table), [10, 3]);
    fixed.session.commit().unwrap();
    assert_eq!(read(&mut fixed, &bench.table), [10, 3]);
}

#[test]
fn a_row_changed_since_the_snapshot_is_a_conflict_and_the_transaction_goes_on() {
    let (mut bench, rows) = three();
    let mut late = repeatable(&bench);
    assert_eq!(read(&mut late, &bench.table), [1, 2, 3]);
    renumber(&mut late, &bench.table, rows[2], 30).unwrap();
    renumber(&mut bench.client, &bench.table, rows[0], 10).unwrap();
    bench.client.delete(&bench.table, rows[1]).unwrap();
    bench.client.session.commit().unwrap();
    for changed in &rows[..2] {
        let refused = late.delete(&bench.table, *changed);
        assert!(matches!(refused, Err(Error::WriteConflict { .. })), "{refused:?}");
    }
    late.session.commit().unwrap();
    assert_eq!(read(&mut bench.client, &bench.table), [10, 30]);
}

/// The rows that a statement which changes rows is shown, each of them held and left as it is.
fn hold_all(client: &mut Client, table: &PlayTable) -> pbxt::Result<u32> {
    client.statement(|session| {
        let mut cursor = pbxt::Cursor::new(&table.table);
        cursor.bind(
            session,
            Bind {
                for_write: true,
                ..Bind::default()
            },
        )?;
        cursor.scan_start(session)?;
        let mut held = 0;
        while cursor.scan_next(session, |_| Ok(()))? {
            let row = cursor.row();
            cursor.hold_row(session, row)?;
            held += 1;
        }
        Ok(held)
    })
}

#[test]
fn a_row_that_is_left_as_it_is_is_held_and_judged_like_a_changed_one() {
    // T57.
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let (mut bench, rows) = three();
        let mut late = with(&bench, isolation, ConflictMode::Error);
        renumber(&mut late, &bench.table, rows[2], 30).expect("renumbered");
        assert_eq!(hold_all(&mut late, &bench.table).expect("held"), 3);
        let refused = renumber(&mut bench.client, &bench.table, rows[0], 10);
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "T57: {refused:?}"
        );
        late.session.commit().expect("a commit");
        assert_eq!(read(&mut late, &bench.table), [1, 2, 30]);
        renumber(&mut bench.client, &bench.table, rows[0], 10).expect("free");
        let waits = hold_all(&mut late, &bench.table);
        assert!(matches!(waits, Err(Error::LockTimeout { .. })), "T57: {waits:?}");
        bench.client.delete(&bench.table, rows[1]).expect("deleted");
        bench.client.session.commit().expect("a commit");
        let refused = hold_all(&mut late, &bench.table);
        assert!(
            matches!(refused, Err(Error::WriteConflict { .. })),
            "T57: {refused:?}"
        );
        late.session.rollback().expect("a rollback");
        assert_eq!(hold_all(&mut late, &bench.table).expect("held"), 2);
        late.session.rollback().expect("a rollback");
    }
}

#[test]
fn a_key_whose_holder_ended_after_the_snapshot_is_a_conflict() {
    // T20: otherwise the transaction would see two rows with one key.
    let (mut bench, rows) = three();
    for mut late in [repeatable(&bench), waiting(&bench)] {
        let before = read(&mut late, &bench.table);
        bench.client.delete(&bench.table, rows[0]).unwrap();
        bench.client.session.commit().unwrap();
        if before.contains(&1) {
            let refused = late.insert(&bench.table, &row(1));
            assert!(matches!(refused, Err(Error::WriteConflict { .. })), "{refused:?}");
        }
        late.session.rollback().unwrap();
        late.insert(&bench.table, &row(1)).unwrap();
        late.session.rollback().unwrap();
    }
}

#[test]
fn a_lock_asked_for_of_an_own_row_outlives_the_rollback_of_its_change() {
    // T43: the version that locked the row goes, the lock that was asked for stays.
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for (mode, is_first) in [
            (LockMode::Exclusive, false),
            (LockMode::Shared, false),
            (LockMode::Exclusive, true),
        ] {
            let (mut bench, rows) = three();
            let mut late = with(&bench, isolation, ConflictMode::Error);
            let bind = Bind {
                lock: Some(mode),
                ..Bind::default()
            };
            if is_first {
                late.scan_locking(&bench.table, bind).expect("locked");
            }
            let savepoint = late.session.savepoint().expect("a savepoint");
            renumber(&mut late, &bench.table, rows[0], 9).expect("renumbered");
            late.scan_locking(&bench.table, bind).expect("locked");
            late.session.rollback_to(savepoint).expect("rolled back");
            let refused = renumber(&mut bench.client, &bench.table, rows[0], 7);
            assert!(
                matches!(refused, Err(Error::LockTimeout { .. })),
                "T43: {isolation:?} {mode:?} {is_first}: {refused:?}"
            );
            late.session.commit().expect("a commit");
            renumber(&mut bench.client, &bench.table, rows[0], 7).expect("free");
            bench.client.session.commit().expect("a commit");
            bench.settle();
        }
    }
}

#[test]
fn a_scan_does_not_meet_what_its_own_statement_writes() {
    // T9: a cursor passes over own versions newer than itself, or an update that moves rows would never end.
    let (mut bench, _) = three();
    let table = bench.table.clone();
    let moved = bench.client.statement(|session| {
        let mut cursor = pbxt::Cursor::new(&table.table);
        cursor.bind(
            session,
            Bind {
                for_write: true,
                ..Bind::default()
            },
        )?;
        cursor.index_start(session, 0)?;
        let mut moved = 0;
        let mut content = None;
        let mut found = cursor.index_edge(session, false, |version| {
            content = Some(table.decode(version.payload())?);
            Ok(())
        })?;
        while found {
            let old = content.take().expect("a row was shown");
            let new = PlayRow {
                id: old.id + 100,
                ..old.clone()
            };
            let (keys, payload) = (table.key_changes(Some(&old), &new)?, table.encode(&new)?);
            let version = pbxt::NewVersion {
                payload: &payload,
                schema_version: table.schema_version(),
                keys: &keys,
            };
            session.update(&table.table, cursor.row(), version)?;
            moved += 1;
            assert!(moved < 10, "the scan meets its own rows again");
            found = cursor.index_move(session, true, false, |version| {
                content = Some(table.decode(version.payload())?);
                Ok(())
            })?;
        }
        Ok(moved)
    });
    assert_eq!(moved.unwrap(), 3);
    assert_eq!(read(&mut bench.client, &bench.table), [101, 102, 103]);
    bench.settle();
}

#[test]
fn shared_row_locks_go_together_and_keep_writers_out() {
    // T16.
    let (mut bench, rows) = three();
    let share = Bind {
        lock: Some(LockMode::Shared),
        ..Bind::default()
    };
    let (mut one, mut two) = (repeatable(&bench), waiting(&bench));
    assert_eq!(one.scan_locking(&bench.table, share).unwrap().len(), 3);
    assert_eq!(two.scan_locking(&bench.table, share).unwrap().len(), 3);
    for client in [&mut one, &mut two] {
        let refused = renumber(client, &bench.table, rows[0], 9);
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "the other one reads it: {refused:?}"
        );
    }
    two.session.commit().unwrap();
    renumber(&mut one, &bench.table, rows[0], 9).unwrap();
    assert_eq!(read(&mut two, &bench.table), [1, 2, 3]);
    one.session.commit().unwrap();
    assert!(
        bench.client.delete(&bench.table, rows[1]).unwrap().is_some(),
        "no lock is left"
    );
    bench.settle();
}

#[test]
fn locked_rows_can_be_left_out_or_refused_at_once() {
    let (bench, rows) = three();
    let lock = |busy| Bind {
        lock: Some(LockMode::Exclusive),
        busy,
        ..Bind::default()
    };
    let mut owner = repeatable(&bench);
    renumber(&mut owner, &bench.table, rows[1], 9).unwrap();
    let mut queue = with(&bench, Isolation::ReadCommitted, ConflictMode::Wait);
    queue.session.configure(SessionConfig {
        lock_wait_timeout_ms: 60_000,
        isolation: Isolation::ReadCommitted,
        ..SessionConfig::default()
    });
    let free = queue.scan_locking(&bench.table, lock(Busy::Skip)).unwrap();
    assert_eq!(free.iter().map(|(_, row)| row.id).collect::<Vec<_>>(), [1, 3]);
    let refused = queue.scan_locking(&bench.table, lock(Busy::Fail));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
}

#[test]
fn a_serializable_reader_keeps_its_snapshot_and_nobody_waits() {
    // T34.
    let (mut bench, rows) = three();
    let mut reader = with(&bench, Isolation::Serializable, ConflictMode::Wait);
    assert_eq!(read(&mut reader, &bench.table), [1, 2, 3]);
    renumber(&mut bench.client, &bench.table, rows[0], 10).unwrap();
    bench.client.insert(&bench.table, &row(4)).unwrap();
    bench.client.session.commit().unwrap();
    assert_eq!(read(&mut reader, &bench.table), [1, 2, 3]);
    assert_eq!(reader.check(&bench.table).unwrap(), Vec::<String>::new());
    reader.session.commit().unwrap();
    assert_eq!(read(&mut reader, &bench.table), [10, 2, 3, 4]);
}

#[test]
fn a_snapshot_older_than_a_table_does_not_read_it() {
    // T19.
    let (mut bench, _) = three();
    let mut old = repeatable(&bench);
    assert_eq!(read(&mut old, &bench.table).len(), 3);
    let stale = bench.table.clone();
    bench.db.truncate_table(Some(&bench.client.session), "t").unwrap();
    bench.table = PlayTable::open(&bench.db, "t").unwrap();
    for table in [&stale, &bench.table.clone()] {
        let refused = old.scan(table);
        assert!(
            matches!(refused, Err(Error::DefinitionChanged { .. })),
            "{refused:?}"
        );
    }
    old.session.commit().unwrap();
    assert_eq!(read(&mut old, &bench.table), [0_u32; 0]);
    drop((old, stale));
    bench.settle();
    bench.reopen();
}

#[test]
fn ddl_waits_for_writers_prepared_ones_included() {
    // T19, T18.
    let (mut bench, rows) = three();
    let mut ddl = repeatable(&bench);
    bench.client.delete(&bench.table, rows[0]).unwrap();
    for detached in [false, true] {
        if detached {
            bench.client.session.prepare(b"gone").unwrap();
            bench.client.session.detach_prepared();
        }
        let refused = bench.db.drop_table(Some(&ddl.session), "t");
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    }
    drop(ddl);
    bench.crash_reopen();
    ddl = repeatable(&bench);
    let refused = bench.db.truncate_table(Some(&ddl.session), "t");
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    bench.db.commit_prepared(b"gone").unwrap();
    assert_eq!(read(&mut ddl, &bench.table), [2, 3]);
    ddl.session.commit().unwrap();
    bench.db.drop_table(Some(&ddl.session), "t").unwrap();
    assert!(matches!(
        bench.db.drop_table(Some(&ddl.session), "t"),
        Err(Error::NoSuchTable { .. })
    ));
}

#[test]
fn a_copy_waits_for_prepared_writers_and_for_no_others() {
    // T54.
    let (mut bench, rows) = three();
    let copier = repeatable(&bench);
    let table = Arc::clone(&bench.table.table);
    let wait = || bench.db.wait_for_prepared(&copier.session, &table);
    wait().expect("nobody has written");
    bench.client.delete(&bench.table, rows[0]).unwrap();
    wait().expect("the host minds those that have a connection");
    bench.client.session.prepare(b"gone").unwrap();
    bench.client.session.detach_prepared();
    let refused = wait();
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    bench.db.commit_prepared(b"gone").unwrap();
    wait().expect("it is over");
}

#[test]
fn a_renamed_table_keeps_its_rows_and_its_open_readers() {
    let (mut bench, _) = three();
    let mut reader = repeatable(&bench);
    assert_eq!(read(&mut reader, &bench.table), [1, 2, 3]);
    bench.client.session.rollback().unwrap();
    bench
        .db
        .rename_table(Some(&bench.client.session), "t", "other")
        .unwrap();
    assert_eq!(read(&mut reader, &bench.table), [1, 2, 3]);
    PlayTable::create(&bench.db, "t").unwrap();
    let taken = bench.db.rename_table(Some(&bench.client.session), "other", "t");
    assert!(matches!(taken, Err(Error::TableExists { .. })), "{taken:?}");
    bench.db.drop_table(Some(&bench.client.session), "t").unwrap();
    bench
        .db
        .rename_table(Some(&bench.client.session), "other", "t")
        .unwrap();
    drop(reader);
    bench.reopen();
    assert_eq!(read(&mut bench.client, &bench.table), [1, 2, 3]);
}

#[test]
fn a_serializable_locking_read_shows_what_a_plain_one_shows() {
    // T34: the transaction's snapshot, which its first change took, is older than the row.
    let (mut bench, rows) = three();
    let other = PlayTable::create(&bench.db, "other").unwrap();
    let mut serial = with(&bench, Isolation::Serializable, ConflictMode::Error);
    renumber(&mut serial, &bench.table, rows[0], 10).unwrap();
    bench.client.insert(&other, &row(7)).unwrap();
    bench.client.session.commit().unwrap();
    let bind = Bind {
        lock: Some(LockMode::Exclusive),
        ..Bind::default()
    };
    let locked = serial.scan_locking(&other, bind).unwrap();
    assert_eq!(locked, serial.scan(&other).unwrap());
    assert_eq!(locked.len(), 0);
    serial.session.commit().unwrap();
}
