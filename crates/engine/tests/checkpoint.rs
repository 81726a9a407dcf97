//! Checkpoints: what is below one is found without the log, whatever was going on when it was made.
//!
//! The power fails before every operation of the disk in a life with two checkpoints (rules D19 to D27).

mod common;

use common::{Bench, open, row};
use pbxt::{Database, Error};
use pbxt_base::{Error as StorageError, SegmentId};
use pbxt_io::Disk;
use pbxt_segment::SegmentClass;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::{Fault, SimDisk, Sweep};
use std::sync::Arc;

fn tagged(id: u32, tag: u32) -> PlayRow {
    PlayRow {
        tag: Some(tag),
        group: Some(id % 7),
        ..row(id)
    }
}

fn fill(bench: &mut Bench, ids: std::ops::Range<u32>) {
    for id in ids {
        bench
            .client
            .insert(&bench.table, &tagged(id, id))
            .expect("inserted");
    }
    bench.client.session.commit().expect("committed");
}

fn checkpoint(db: &Database) {
    db.checkpoint_step().expect("a checkpoint");
}

fn ids(bench: &mut Bench) -> Vec<u32> {
    let mut ids: Vec<u32> = bench.rows().iter().map(|(_, row)| row.id).collect();
    ids.sort_unstable();
    ids
}

fn files(disk: &SimDisk, beginning: &str) -> Vec<String> {
    let mut names = disk.list().expect("a listing");
    names.retain(|name| name.starts_with(beginning));
    names
}

#[test]
fn only_the_tail_behind_a_checkpoint_is_read() {
    let mut bench = Bench::new();
    fill(&mut bench, 1..300);
    checkpoint(&bench.db);
    fill(&mut bench, 300..303);
    let whole = bench.db.log().tail().raw();
    bench.crash_reopen();
    let status = bench.db.status();
    assert!(
        status.recovery_bytes < whole / 20 && status.recovery_records < 20,
        "{} of {whole} bytes, {} records",
        status.recovery_bytes,
        status.recovery_records
    );
    assert_eq!(ids(&mut bench), (1..303).collect::<Vec<_>>());
}

#[test]
fn after_an_orderly_close_no_record_is_read() {
    let mut bench = Bench::new();
    fill(&mut bench, 1..50);
    bench.reopen();
    assert_eq!(bench.db.status().recovery_records, 0);
    assert_eq!(ids(&mut bench), (1..50).collect::<Vec<_>>());
    bench.reopen();
    assert_eq!(ids(&mut bench), (1..50).collect::<Vec<_>>());
    assert_eq!(bench.db.maintenance_status().checkpoints, 0);
}

#[test]
fn keys_that_move_before_and_behind_a_checkpoint_are_found_where_they_are() {
    let mut bench = Bench::new();
    fill(&mut bench, 1..40);
    let rows = bench.rows();
    let change = |bench: &mut Bench, from: usize, by: u32| {
        for (at, (id, _)) in rows.iter().enumerate().skip(from) {
            if at % 3 == 0 {
                bench.client.delete(&bench.table, *id).expect("deleted");
            } else {
                bench
                    .client
                    .update(&bench.table, *id, |old| PlayRow {
                        tag: old.tag.map(|tag| tag + by),
                        group: if at % 2 == 0 { None } else { Some(by) },
                        name: format!("name {by}").into_bytes(),
                        ..old.clone()
                    })
                    .expect("updated");
            }
        }
        bench.client.session.commit().expect("committed");
    };
    change(&mut bench, 30, 1000);
    checkpoint(&bench.db);
    change(&mut bench, 20, 2000);
    bench.settle();
    let before = bench.rows();
    bench.crash_reopen();
    assert_eq!(bench.rows(), before);
    checkpoint(&bench.db);
    change(&mut bench, 10, 4000);
    let before = bench.rows();
    bench.crash_reopen();
    assert_eq!(bench.rows(), before);
}

/// Transactions in every state around a checkpoint, each with a row of its own; `(id, is there afterwards)`.
fn states_around_a_checkpoint(bench: &mut Bench, end_behind: bool) -> Vec<(u32, bool)> {
    let table = bench.table.clone();
    let begin = |bench: &Bench, id: u32| {
        let mut client = bench.other(id as usize);
        client.insert(&table, &tagged(id, id)).expect("inserted");
        client
    };
    let mut rolled_back = begin(bench, 1);
    rolled_back.session.rollback().expect("rolled back");
    let mut voided = begin(bench, 2);
    let savepoint = voided.session.savepoint().expect("a savepoint");
    voided.insert(&table, &tagged(3, 3)).expect("inserted");
    voided.session.rollback_to(savepoint).expect("rolled back");
    let mut voided_behind = begin(bench, 4);
    let second = voided_behind.session.savepoint().expect("a savepoint");
    voided_behind.insert(&table, &tagged(5, 5)).expect("inserted");
    let mut prepared = begin(bench, 6);
    prepared.session.prepare(b"six").expect("prepared");
    let mut prepared_behind = begin(bench, 7);
    let unfinished = begin(bench, 8);
    let mut committed_behind = begin(bench, 9);
    let mut aborted_behind = begin(bench, 10);
    let mut voided_and_committed = begin(bench, 11);
    let third = voided_and_committed.session.savepoint().expect("a savepoint");
    voided_and_committed
        .insert(&table, &tagged(12, 12))
        .expect("inserted");
    voided_and_committed
        .session
        .rollback_to(third)
        .expect("rolled back");
    voided_and_committed.session.commit().expect("committed");
    checkpoint(&bench.db);
    voided_behind.session.rollback_to(second).expect("rolled back");
    prepared_behind.session.prepare(b"seven").expect("prepared");
    aborted_behind.session.rollback().expect("rolled back");
    if end_behind {
        for client in [&mut voided, &mut voided_behind, &mut committed_behind] {
            client.session.commit().expect("committed");
        }
        prepared.session.commit().expect("committed");
    }
    bench.db.flush().expect("flushed");
    bench.disk = bench.disk.kill();
    for client in [voided, voided_behind, unfinished, committed_behind] {
        // Their session died with the process that the image was taken of.
        drop(client);
    }
    prepared.session.detach_prepared();
    prepared_behind.session.detach_prepared();
    let ended = |id| (id, end_behind);
    vec![
        (1, false),
        ended(2),
        (3, false),
        ended(4),
        (5, false),
        (6, true),
        (7, true),
        (8, false),
        ended(9),
        (10, false),
        (11, true),
        (12, false),
    ]
}

#[test]
fn transactions_in_every_state_come_out_of_a_checkpoint_as_they_were() {
    for end_behind in [false, true] {
        let mut bench = Bench::new();
        let expected = states_around_a_checkpoint(&mut bench, end_behind);
        let db = open(&bench.disk);
        let table = PlayTable::open(&db, "t").expect("the table");
        let mut client = Client::new(&db, 1);
        let mut xids = db.prepared.xids();
        xids.sort();
        let waiting: &[&[u8]] = if end_behind {
            &[b"seven"]
        } else {
            &[b"seven", b"six"]
        };
        assert_eq!(xids, waiting, "ended behind: {end_behind}");
        let seen = client.agreed(&table).expect("readable").expect("all ways agree");
        assert!(seen.iter().all(|(_, row)| row.id != 7), "prepared is not visible");
        // The prepared row is locked, and its key taken.
        assert!(client.insert(&table, &tagged(100, 7)).is_err());
        client.session.rollback().expect("rolled back");
        // Prepared transactions and void ranges outlive a further checkpoint.
        checkpoint(&db);
        drop(client);
        let disk = bench.disk.kill();
        drop(db);
        let db = open(&disk);
        for xid in xids {
            db.commit_prepared(&xid).expect("committed");
        }
        let table = PlayTable::open(&db, "t").expect("the table");
        let mut client = Client::new(&db, 1);
        let rows = client.agreed(&table).expect("readable").expect("all ways agree");
        let found: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
        for (id, is_there) in expected {
            assert_eq!(
                found.contains(&id),
                is_there,
                "row {id}, ended behind: {end_behind}"
            );
        }
        assert_eq!(client.check(&table).expect("checkable"), Vec::<String>::new());
        // Everything that is not there may be taken by others.
        for id in [1, 3, 5, 8, 10, 12] {
            client.insert(&table, &tagged(id, id)).expect("nobody has it");
        }
        client.session.commit().expect("committed");
    }
}

#[test]
fn a_checkpoint_takes_up_tables_as_they_are_and_the_tail_what_became_of_them() {
    let mut bench = Bench::new();
    fill(&mut bench, 1..30);
    for name in [
        "dropped below",
        "kept",
        "renamed behind",
        "truncated behind",
        "dropped behind",
    ] {
        let table = PlayTable::create(&bench.db, name).expect("created");
        for id in 1..20 {
            bench.client.insert(&table, &row(id)).expect("inserted");
        }
        bench.client.session.commit().expect("committed");
    }
    bench.db.drop_table(None, "dropped below").expect("dropped");
    checkpoint(&bench.db);
    bench
        .db
        .rename_table(None, "renamed behind", "new name")
        .expect("renamed");
    bench
        .db
        .truncate_table(None, "truncated behind")
        .expect("truncated");
    bench.db.drop_table(None, "dropped behind").expect("dropped");
    let late = PlayTable::create(&bench.db, "dropped behind").expect("created");
    bench.client.insert(&late, &row(77)).expect("inserted");
    bench.client.session.commit().expect("committed");
    for round in 0..2 {
        bench.crash_reopen();
        let names = bench.db.catalog.names("");
        assert_eq!(
            names,
            ["dropped behind", "kept", "new name", "t", "truncated behind"],
            "round {round}"
        );
        for (name, rows) in [
            ("dropped behind", 1),
            ("kept", 19),
            ("new name", 19),
            ("truncated behind", 0),
        ] {
            let table = PlayTable::open(&bench.db, name).expect("the table");
            let found = bench
                .client
                .agreed(&table)
                .expect("readable")
                .expect("all ways agree");
            assert_eq!(found.len(), rows, "{name}, round {round}");
        }
        bench.client.session.rollback().expect("nothing to do");
        checkpoint(&bench.db);
    }
}

#[test]
fn numbers_of_a_table_come_back_from_a_checkpoint() {
    let mut bench = Bench::new();
    let table = Arc::clone(&bench.table.table);
    let first = table
        .autoinc
        .reserve(bench.db.log(), table.id, 1, 1, 5)
        .expect("values");
    fill(&mut bench, 1..20);
    checkpoint(&bench.db);
    let info = table.info();
    let last = table
        .autoinc
        .reserve(bench.db.log(), table.id, 1, 1, 5)
        .expect("values");
    drop(table);
    bench
        .db
        .flush()
        .expect("A1: the mark of values that somebody saw is durable with them");
    bench.crash_reopen();
    let table = &bench.table.table;
    assert_eq!(table.info().rows, info.rows);
    assert_eq!(table.info().data_bytes, info.data_bytes);
    let next = table
        .autoinc
        .reserve(bench.db.log(), table.id, 1, 1, 1)
        .expect("a value");
    assert!(first.first < last.first && last.first + last.count <= next.first);
    let row_id = bench.client.insert(&bench.table, &row(500)).expect("inserted");
    assert!(bench.rows().iter().filter(|(id, _)| *id == row_id).count() == 1);
    assert!(row_id.raw() >= 20, "row ids are not handed out again");
}

#[test]
fn a_crash_leaves_values_of_a_small_type() {
    // A1: of a TINYINT.
    let mut bench = Bench::new();
    let mut last = 0;
    for values in [3, 40, 60] {
        let table = Arc::clone(&bench.table.table);
        let given = table
            .autoinc
            .reserve(bench.db.log(), table.id, 1, 1, values)
            .expect("values");
        assert!(given.first > last, "A1: {given:?} after {last}");
        last = given.first + given.count - 1;
        assert!(last <= 127, "A1: {given:?} are none of the type");
        bench.db.flush().expect("durable");
        drop(table);
        bench.crash_reopen();
    }
    let next = bench.table.table.autoinc.next();
    assert!(last < next && next <= 127, "A1: {next} after {last}");
}

#[test]
fn files_that_nothing_names_go_after_a_checkpoint_and_at_an_opening() {
    let mut bench = Bench::new();
    for round in 0..4 {
        fill(&mut bench, round * 100 + 1..round * 100 + 90);
        checkpoint(&bench.db);
        let named = round as usize + 2;
        assert_eq!(
            files(&bench.disk, "meta").len(),
            named,
            "round {round}: an image, and a run file a round"
        );
    }
    bench.db.drop_table(None, "t").expect("dropped");
    checkpoint(&bench.db);
    assert_eq!(files(&bench.disk, "meta").len(), 1, "the image alone");
    let image = files(&bench.disk, "meta").remove(0);
    let content = bench.disk.content(&image).expect("the image");
    let db = open(&SimDisk::new());
    bench.db = db;
    let disk = bench.disk.kill();
    let orphan = pbxt_segment::segment_name(SegmentClass::Meta, SegmentId::new(0x999));
    disk.replace(&orphan, &content);
    drop(open(&disk));
    assert_eq!(files(&disk, "meta"), [image]);
}

#[test]
fn a_full_disk_cancels_a_checkpoint_and_nothing_else() {
    let mut bench = Bench::new();
    fill(&mut bench, 1..200);
    let before = files(&bench.disk, "meta");
    bench.disk.set_free_bytes(Some(3000));
    let refused = bench.db.checkpoint_step();
    assert!(
        matches!(refused, Err(Error::Storage(StorageError::NoSpace { .. }))),
        "{refused:?}"
    );
    assert_eq!(files(&bench.disk, "meta"), before, "what was begun is gone");
    assert_eq!(bench.db.poisoned(), None);
    bench.settle();
    bench.disk.set_free_bytes(None);
    fill(&mut bench, 200..210);
    checkpoint(&bench.db);
    bench.crash_reopen();
    assert_eq!(ids(&mut bench), (1..210).collect::<Vec<_>>());
}

#[test]
fn a_failed_write_of_a_run_or_image_cancels_a_checkpoint_and_nothing_else() {
    for nth in 1..4 {
        let mut bench = Bench::new();
        fill(&mut bench, 1..100);
        let fault = if nth % 2 == 0 {
            Fault::FailSync {
                prefix: "meta".into(),
                nth: nth / 2,
            }
        } else {
            Fault::FailWrite {
                prefix: "meta".into(),
                nth: nth.div_ceil(2),
            }
        };
        bench.disk.plant(fault);
        assert!(bench.db.checkpoint_step().is_err(), "fault {nth}");
        assert_eq!(bench.db.poisoned(), None, "fault {nth}");
        bench.settle();
        checkpoint(&bench.db);
        fill(&mut bench, 100..110);
        bench.crash_reopen();
        assert_eq!(ids(&mut bench), (1..110).collect::<Vec<_>>(), "fault {nth}");
    }
}

fn refusal(disk: &SimDisk) -> String {
    match Database::open(Arc::new(disk.clone()), &common::options()) {
        Ok(_) => panic!("a damaged database opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_missing_or_damaged_image_or_piece_is_refused_by_name() {
    let mut bench = Bench::new();
    fill(&mut bench, 1..100);
    checkpoint(&bench.db);
    let image = bench.db.store().checkpoint().expect("a checkpoint").image;
    let image = pbxt_segment::segment_name(SegmentClass::Meta, image);
    let disk = bench.disk.kill();
    let names = files(&disk, "meta");
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let damaged = disk.kill();
        damaged.remove(&name).expect("removed");
        damaged.sync_dir().expect("synced");
        let why = refusal(&damaged);
        assert!(why.contains(&name) && why.contains("no such file"), "{why}");
        let damaged = disk.kill();
        if name == image {
            // Behind the header: the first block. Of damaged runs rule D39 tells.
            damaged.flip_bit(&name, 4096 + 20, 3).expect("flipped");
            let why = refusal(&damaged);
            assert!(why.contains(&name) && why.contains("is damaged"), "{why}");
        }
    }
}

/// Rows of the life below.
const LIFE: u32 = 23;

/// A life with some checkpoints. Answers the greatest id that was acknowledged: rows are 1, 2, 3, ... in single commits.
fn life(disk: &SimDisk) -> u32 {
    let mut acknowledged = 0;
    // The first error ends it.
    let _ = live(disk, &mut acknowledged);
    acknowledged
}

fn live(disk: &SimDisk, acknowledged: &mut u32) -> pbxt::Result<()> {
    let db = Database::open(Arc::new(disk.clone()), &common::options())?;
    let table = PlayTable::create(&db, "t")?;
    let (mut client, mut other) = (Client::new(&db, 1), Client::new(&db, 2));
    for id in 1..=LIFE {
        let made = client.insert(&table, &tagged(id, id))?;
        match id % 4 {
            0 => {
                let savepoint = client.session.savepoint()?;
                client.insert(&table, &tagged(1000, 1000))?;
                client.session.rollback_to(savepoint)?;
            }
            1 => {
                other.insert(&table, &tagged(2000 + id, 2000 + id))?;
            }
            2 => {
                client.update(&table, made, |old| PlayRow {
                    tag: old.tag.map(|tag| tag + 100),
                    ..old.clone()
                })?;
                other.session.rollback()?;
            }
            _ => client.session.prepare(format!("{id}").as_bytes())?,
        }
        if id % 5 == 0 {
            db.checkpoint_step()?;
        }
        client.session.commit()?;
        *acknowledged = id;
    }
    drop((client, other));
    db.close()
}

fn check_life(disk: &SimDisk, acknowledged: u32, case: &str) {
    let db = open(disk);
    for xid in db.prepared.xids() {
        db.commit_prepared(&xid).expect("the image is whole");
    }
    let Ok(table) = PlayTable::open(&db, "t") else {
        assert_eq!(acknowledged, 0, "{case}: the table is lost");
        return;
    };
    let mut client = Client::new(&db, 1);
    assert_eq!(
        client.check(&table).expect("checkable"),
        Vec::<String>::new(),
        "{case}"
    );
    let rows = client
        .agreed(&table)
        .expect("readable")
        .unwrap_or_else(|differs| panic!("{case}: {differs}"));
    let found: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
    assert_eq!(found, (1..=found.len() as u32).collect::<Vec<_>>(), "{case}");
    let last = found.len() as u32;
    assert!(
        (acknowledged..=acknowledged + 1).contains(&last),
        "{case}: {last} of {acknowledged}"
    );
    // And the next checkpoint and opening take it from there.
    client.session.rollback().expect("nothing to do");
    drop(client);
    db.checkpoint_step().expect("a checkpoint");
    let again = disk.kill();
    drop((table, db));
    let db = open(&again);
    let table = PlayTable::open(&db, "t").expect("the table");
    assert_eq!(
        Client::new(&db, 1).count(&table).expect("countable"),
        u64::from(last),
        "{case}"
    );
}

#[test]
fn a_power_cut_before_any_operation_of_a_life_with_checkpoints_loses_nothing() {
    let mut acknowledged = 0;
    live(&SimDisk::new(), &mut acknowledged).expect("nothing fails before the power does");
    assert_eq!(acknowledged, LIFE);
    let images = Sweep { seeds: 2, step: 1 }.run(life, |disk, acknowledged, case| {
        check_life(disk, *acknowledged, case);
    });
    assert!(images > 150, "{images}");
}
