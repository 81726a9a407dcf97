//! An insert under the key of a row that the same transaction has removed goes on with that row, and is an insert to all others. Rule T51.

mod common;
#[path = "common/family.rs"]
mod family;

use common::{Bench, row};
use family::{Opened, Plan, Row, User, decode, encode};
use pbxt::host::HostCursor;
use pbxt::{Bind, ConflictMode, Error, Isolation, Progress, Session, SessionConfig};
use pbxt_base::RowId;
use pbxt_rows::ColumnSet;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, TAG_INDEX};
use std::sync::Arc;

fn grouped(id: u32, group: u32, tag: u32) -> PlayRow {
    PlayRow {
        group: Some(group),
        tag: Some(tag),
        ..row(id)
    }
}

/// Rows 1 to 9 of a lean table, each in a group of three and with a tag of its own.
fn nine() -> (Bench, Vec<RowId>) {
    let mut bench = Bench::new();
    bench.table = PlayTable::create_lean(&bench.db, "lean").expect("a new table");
    let rows: Vec<PlayRow> = (1..10).map(|id| grouped(id, id / 3, id)).collect();
    let ids = bench.client.insert_all(&bench.table, &rows).expect("new rows");
    bench.client.session.commit().expect("a commit");
    (bench, ids)
}

fn remove(bench: &mut Bench, row: RowId) {
    let removed = bench.client.delete(&bench.table, row).expect("deletable");
    assert!(removed.is_some());
}

fn insert(bench: &mut Bench, row: &PlayRow) -> RowId {
    bench.client.insert(&bench.table, row).expect("insertable")
}

fn rows_of(client: &mut Client, table: &PlayTable) -> Vec<(RowId, PlayRow)> {
    let agreed = client.agreed(table).expect("readable");
    agreed.unwrap_or_else(|differs| panic!("{differs}"))
}

fn settles(bench: &mut Bench) {
    bench.client.session.commit().expect("a commit");
    let findings = bench.client.check(&bench.table).expect("checkable");
    assert!(findings.is_empty(), "{findings:?}");
    bench.client.session.commit().expect("a commit");
}

#[test]
fn an_insert_under_a_removed_key_goes_on_with_the_row() {
    let (mut bench, ids) = nine();
    let mut other = bench.other(2);
    let before = rows_of(&mut other, &bench.table);
    remove(&mut bench, ids[4]);
    assert_eq!(bench.rows().len(), 8);
    let moved = grouped(5, 7, 77);
    assert_eq!(insert(&mut bench, &moved), ids[4], "T51");
    assert_eq!(bench.rows()[4], (ids[4], moved.clone()));
    assert_eq!(rows_of(&mut other, &bench.table), before, "nothing is committed");
    bench.client.session.commit().expect("a commit");
    assert_eq!(rows_of(&mut other, &bench.table), before, "its snapshot is older");
    other.session.commit().expect("a commit");
    let mut after = before;
    after[4].1 = moved;
    assert_eq!(rows_of(&mut other, &bench.table), after);
    settles(&mut bench);
}

#[test]
fn it_is_there_after_a_crash_and_not_without_its_commit() {
    for commits in [true, false] {
        let (mut bench, ids) = nine();
        remove(&mut bench, ids[4]);
        assert_eq!(insert(&mut bench, &grouped(5, 7, 77)), ids[4]);
        bench.db.checkpoint_step().expect("a checkpoint");
        remove(&mut bench, ids[5]);
        assert_eq!(insert(&mut bench, &grouped(6, 8, 88)), ids[5]);
        if commits {
            bench.client.session.commit().expect("a commit");
        }
        drop(bench.client);
        let disk = bench.disk.kill();
        let db = common::open(&disk);
        let table = PlayTable::open(&db, "lean").expect("the table is there");
        let mut client = Client::new(&db, 1);
        let read = rows_of(&mut client, &table);
        let groups: Vec<_> = read.iter().skip(4).take(2).map(|(_, row)| row.group).collect();
        let expected = if commits {
            [Some(7), Some(8)]
        } else {
            [Some(1), Some(2)]
        };
        assert_eq!(groups, expected);
        assert_eq!(read.len(), 9);
        let findings = client.check(&table).expect("checkable");
        assert!(findings.is_empty(), "{findings:?}");
        bench.client = client;
    }
}

#[test]
fn a_savepoint_brings_back_what_it_marked() {
    let (mut bench, ids) = nine();
    let before = bench.rows();
    let whole = bench.client.session.savepoint().expect("a savepoint");
    remove(&mut bench, ids[4]);
    let removed = bench.client.session.savepoint().expect("a savepoint");
    assert_eq!(insert(&mut bench, &grouped(5, 7, 77)), ids[4], "T51");
    assert_eq!(bench.rows().len(), 9);
    bench.client.session.rollback_to(removed).expect("back");
    assert_eq!(bench.rows().len(), 8, "removed, as it was then");
    assert_eq!(insert(&mut bench, &grouped(5, 6, 66)), ids[4], "T51, once more");
    assert_eq!(bench.rows().len(), 9);
    bench.client.session.rollback_to(whole).expect("back");
    assert_eq!(bench.rows(), before);
    let taken = bench.client.insert(&bench.table, &row(5)).map(|_| ());
    assert!(matches!(taken, Err(Error::DuplicateKey { .. })), "{taken:?}");
    settles(&mut bench);
}

fn tail_of(bench: &Bench) -> u64 {
    bench.db.status().tail
}

#[test]
fn going_back_again_and_again_costs_the_same_each_time() {
    let (mut bench, ids) = nine();
    remove(&mut bench, ids[4]);
    let removed = bench.client.session.savepoint().expect("a savepoint");
    let mut ends = vec![tail_of(&bench)];
    for _ in 0..30 {
        assert_eq!(insert(&mut bench, &grouped(5, 7, 77)), ids[4], "T51");
        bench.client.session.rollback_to(removed).expect("back");
        ends.push(tail_of(&bench));
    }
    let bytes: Vec<u64> = ends.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(bytes[1], bytes[29], "{bytes:?}");
    settles(&mut bench);
    assert_eq!(bench.rows().len(), 8);
}

/// What a savepoint takes back above a tombstone that stays is not there for others either, whether they go by entries or rows.
#[test]
fn a_row_that_came_back_for_a_while_is_gone_after_the_commit() {
    for crashes in [false, true] {
        let (mut bench, ids) = nine();
        let mut old = bench.other(2);
        let before = rows_of(&mut old, &bench.table);
        remove(&mut bench, ids[4]);
        let removed = bench.client.session.savepoint().expect("a savepoint");
        assert_eq!(insert(&mut bench, &grouped(5, 7, 76)), ids[4], "T51");
        bench.client.session.rollback_to(removed).expect("back");
        // The tombstone that was written again is taken back with what lies on it; the first one stays.
        assert_eq!(insert(&mut bench, &grouped(5, 7, 77)), ids[4], "T51");
        if crashes {
            // The image names the version that is taken back afterwards.
            bench.db.checkpoint_step().expect("a checkpoint");
        }
        bench.client.session.rollback_to(removed).expect("back");
        // And once more, with nothing on it.
        insert(&mut bench, &grouped(50, 7, 78));
        bench.client.session.rollback_to(removed).expect("back");
        bench.client.session.commit().expect("a commit");
        assert_eq!(rows_of(&mut old, &bench.table), before, "its snapshot is older");
        old.session.commit().expect("a commit");
        assert_eq!(rows_of(&mut old, &bench.table).len(), 8);
        drop(old);
        bench.client.session.commit().expect("a commit");
        let Bench {
            client,
            db,
            disk,
            table,
        } = bench;
        drop((client, table));
        let disk = if crashes {
            drop(db);
            disk.kill()
        } else {
            db.close().expect("an orderly close");
            drop(db);
            disk
        };
        let db = common::open(&disk);
        let table = PlayTable::open(&db, "lean").expect("the table is there");
        let mut client = Client::new(&db, 1);
        assert_eq!(rows_of(&mut client, &table).len(), 8);
        let findings = client.check(&table).expect("checkable");
        assert!(findings.is_empty(), "{findings:?}");
    }
}

/// Columns of the host's table: id, a value with an index, another one.
const COLUMNS: usize = 3;

/// Ids that a scan of the index on column 1 shows from now on.
fn ids_from_here(session: &mut Session, cursor: &mut HostCursor) -> Vec<u32> {
    let mut buffer = encode(&[Some(0); COLUMNS]);
    let mut ids = Vec::new();
    while cursor
        .index_move(session, true, false, &mut buffer)
        .expect("readable")
    {
        ids.extend(decode(&buffer, COLUMNS)[0]);
    }
    ids
}

/// A scan of that index, at its first row.
fn scan_of(session: &mut Session, table: &Opened, covers: bool) -> HostCursor {
    let mut cursor = HostCursor::new(&table.host);
    cursor.bind(session, Bind::default()).expect("bound");
    if covers {
        cursor.project([0, 1].into_iter().collect::<ColumnSet>());
    }
    cursor.index_start(session, 1).expect("begun");
    assert_eq!(cursor.covers(), covers);
    let mut buffer = encode(&[Some(0); COLUMNS]);
    assert!(cursor.index_edge(session, false, &mut buffer).expect("readable"));
    cursor
}

#[test]
fn a_scan_that_began_between_removal_and_insert_meets_the_tombstone() {
    let (db, _) = family::database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1]));
    let mut user = User::new(&db, 1);
    let rows: Vec<Row> = (0..40).map(|id| family::row(&[id, id / 20, id])).collect();
    user.insert_all(&table, &rows).expect("inserted");
    user.commit();
    for _ in 0..3 {
        db.checkpoint_step().expect("a checkpoint");
        while db.index_merge_step().expect("done") == Progress::Worked {}
        while db.settle_tags_step().expect("done") == Progress::Worked {}
    }
    assert!(user.delete(&table, 30).expect("deleted"));
    assert!(user.delete(&table, 31).expect("deleted"));
    user.session.begin_statement().expect("a statement");
    let mut scans = [true, false].map(|covers| scan_of(&mut user.session, &table, covers));
    let mut writer = HostCursor::new(&table.host);
    let bind = Bind {
        for_write: true,
        ..Bind::default()
    };
    writer.bind(&mut user.session, bind).expect("bound");
    // The same key of the index, and another one.
    for row in [&[30, 1, 5], &[31, 9, 5]] {
        let row = encode(&family::row(row));
        writer
            .insert(&mut user.session, family::record(&row))
            .expect("inserted");
    }
    for scan in &mut scans {
        let ids = ids_from_here(&mut user.session, scan);
        let expected: Vec<u32> = (1..40).filter(|id| ![30, 31].contains(id)).collect();
        assert_eq!(ids, expected, "T9");
    }
    let mut later = [true, false].map(|covers| scan_of(&mut user.session, &table, covers));
    for scan in &mut later {
        let ids = ids_from_here(&mut user.session, scan);
        assert_eq!(ids, (1..31).chain(32..40).chain([31]).collect::<Vec<_>>(), "T51");
    }
    user.session.end_statement();
    user.commit();
    user.check(&table);
}

#[test]
fn what_the_transaction_had_changed_before_gets_a_new_row() {
    let (mut bench, ids) = nine();
    bench
        .client
        .update(&bench.table, ids[4], |old| grouped(old.id, 2, 55))
        .expect("updated");
    remove(&mut bench, ids[4]);
    let new = insert(&mut bench, &grouped(5, 1, 5));
    assert_ne!(new, ids[4], "T51");
    assert_eq!(bench.rows().len(), 9);
    settles(&mut bench);
}

#[test]
fn what_is_newer_than_the_snapshot_gets_a_new_row() {
    let (mut bench, ids) = nine();
    bench.client.session.configure(SessionConfig {
        isolation: Isolation::RepeatableRead,
        conflict_mode: ConflictMode::Wait,
        lock_wait_timeout_ms: 0,
        ..SessionConfig::default()
    });
    bench.rows();
    let mut other = bench.other(2);
    other
        .update(&bench.table, ids[4], |old| grouped(old.id, 2, 55))
        .expect("updated");
    other.session.commit().expect("a commit");
    let removed = bench
        .client
        .statement(|session| session.delete(&bench.table.table, ids[4]));
    removed.expect("the newest version is removed");
    assert_ne!(insert(&mut bench, &grouped(5, 1, 5)), ids[4], "T51");
    assert_eq!(bench.rows().len(), 9);
    settles(&mut bench);
}

#[test]
fn another_key_that_is_taken_leaves_the_row_removed() {
    let (mut bench, ids) = nine();
    remove(&mut bench, ids[4]);
    let taken = bench.client.insert(&bench.table, &grouped(5, 1, 6));
    assert!(
        matches!(&taken, Err(Error::DuplicateKey { index_no, .. }) if *index_no == TAG_INDEX),
        "{taken:?}"
    );
    assert_eq!(bench.rows().len(), 8);
    // Its own tag is free, and another row may have it.
    let thief = insert(&mut bench, &grouped(20, 1, 5));
    assert!(!ids.contains(&thief));
    let taken = bench.client.insert(&bench.table, &grouped(5, 1, 5));
    assert!(matches!(taken, Err(Error::DuplicateKey { .. })), "{taken:?}");
    assert_eq!(insert(&mut bench, &grouped(5, 1, 50)), ids[4], "T51");
    settles(&mut bench);
}

#[test]
fn a_key_that_another_row_has_by_now_stays_taken() {
    let (mut bench, ids) = nine();
    remove(&mut bench, ids[4]);
    bench
        .client
        .update(&bench.table, ids[5], |old| PlayRow { id: 5, ..old.clone() })
        .expect("updated");
    let taken = bench.client.insert(&bench.table, &row(5));
    assert!(
        matches!(taken, Err(Error::DuplicateKey { index_no: 0, .. })),
        "{taken:?}"
    );
    let six = insert(&mut bench, &row(6));
    assert!(
        !ids.contains(&six),
        "the row that had this key is there, with another one"
    );
    assert_eq!(bench.rows().len(), 9);
    settles(&mut bench);
}

#[test]
fn others_wait_for_the_key_and_the_row() {
    let (mut bench, ids) = nine();
    remove(&mut bench, ids[4]);
    assert_eq!(insert(&mut bench, &grouped(5, 7, 77)), ids[4]);
    let mut other = bench.other(2);
    let busy = other.insert(&bench.table, &row(5)).map(|_| ());
    assert!(matches!(busy, Err(Error::LockTimeout { .. })), "{busy:?}");
    let busy = other.delete(&bench.table, ids[4]).map(|_| ());
    assert!(busy.is_err(), "{busy:?}");
    other.session.rollback().expect("rolled back");
    bench.client.session.rollback().expect("rolled back");
    let taken = other.insert(&bench.table, &row(5)).map(|_| ());
    assert!(matches!(taken, Err(Error::DuplicateKey { .. })), "{taken:?}");
    settles(&mut bench);
}

#[test]
fn large_values_of_the_removed_row_are_given_up_and_those_of_the_new_one_kept() {
    let (mut bench, ids) = nine();
    let memo = |byte: u8| -> Option<Arc<[u8]>> { Some(Arc::from(vec![byte; 30_000])) };
    for round in 1..6 {
        bench
            .client
            .update(&bench.table, ids[4], |old| PlayRow {
                memo: memo(round),
                ..old.clone()
            })
            .expect("updated");
        bench.client.session.commit().expect("a commit");
        remove(&mut bench, ids[4]);
        let large = PlayRow {
            memo: memo(100 + round),
            ..grouped(5, 7, 77)
        };
        assert_eq!(insert(&mut bench, &large), ids[4], "T51");
        bench.client.session.commit().expect("a commit");
        for _ in 0..4 {
            bench.db.housekeeping_step();
            bench.db.checkpoint_step().expect("a checkpoint");
        }
        assert_eq!(bench.rows()[4].1, large);
    }
    settles(&mut bench);
}
