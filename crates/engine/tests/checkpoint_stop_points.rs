//! A checkpoint stands at each of its stop points while others write, commit, roll back, prepare and change tables, and then
//! the power fails (rules D19, D20, D24, D26, D27). Needs feature `stop-points`.

#![cfg(feature = "stop-points")]

mod common;
#[path = "common/hold.rs"]
mod hold;

use common::{Bench, open, put, row};
use hold::{hold_at, turn};
use pbxt::Result;
use pbxt_io::Disk;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;
use std::time::Duration;

const POINTS: [&str; 9] = [
    "checkpoint.after_begin",
    "checkpoint.after_freeze",
    "checkpoint.after_install",
    "checkpoint.after_txns",
    "checkpoint.before_log_wait",
    "checkpoint.after_image",
    "checkpoint.before_note",
    "checkpoint.after_note",
    "checkpoint.after_removal",
];

fn tagged(id: u32) -> PlayRow {
    PlayRow {
        tag: Some(id),
        group: Some(id % 5),
        ..row(id)
    }
}

/// Loads rows that bring `memo` bytes each, which no compression shrinks, and no row of which goes by the log.
fn load(client: &mut Client, table: &PlayTable, memo: usize) -> Result<()> {
    client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        let rng = &mut Rng::new(7);
        let done = (1000..4000).try_for_each(|id| {
            let memo: Vec<u8> = (0..memo).map(|_| rng.below(256) as u8).collect();
            let row = PlayRow {
                memo: Some(Arc::from(memo)),
                ..row(id)
            };
            put(session, table, &row)
        });
        let ended = session.bulk_end(&table.table, done.is_err());
        done.and(ended)
    })
}

/// Ids and tags of all rows, which all ways of reading agree on.
fn content(db: &Arc<pbxt::Database>, name: &str) -> Vec<(u32, Option<u32>)> {
    let table = PlayTable::open(db, name).expect("the table");
    let mut client = Client::new(db, 1);
    assert_eq!(client.check(&table).expect("checkable"), Vec::<String>::new());
    let rows = client.agreed(&table).expect("readable").expect("all ways agree");
    let mut rows: Vec<_> = rows.iter().map(|(_, row)| (row.id, row.tag)).collect();
    rows.sort_unstable();
    rows
}

fn reopened(disk: &SimDisk, point: &str) -> Vec<(u32, Option<u32>)> {
    let db = open(disk);
    let mut xids = db.prepared.xids();
    xids.sort();
    assert_eq!(xids, [b"behind".to_vec(), b"below".to_vec()], "{point}");
    for xid in xids {
        db.commit_prepared(&xid).expect("prepared");
    }
    assert_eq!(content(&db, "new"), [(1, None)], "{point}");
    assert!(PlayTable::open(&db, "old").is_err(), "{point}");
    content(&db, "t")
}

#[test]
fn whatever_happens_while_a_checkpoint_is_made_is_there_after_a_power_cut() {
    let turn = turn();
    for point in POINTS {
        let mut bench = Bench::new();
        PlayTable::create(&bench.db, "old").expect("created");
        let mut made = Vec::new();
        for id in 1..=20 {
            made.push(bench.client.insert(&bench.table, &tagged(id)).expect("inserted"));
        }
        bench.client.session.commit().expect("committed");
        let begin = |id: u32| {
            let mut client = bench.other(id as usize);
            client.insert(&bench.table, &tagged(id)).expect("inserted");
            client
        };
        let (mut committing, mut aborting) = (begin(30), begin(31));
        let (mut below, mut behind) = (begin(32), begin(33));
        let savepoint = committing.session.savepoint().expect("a savepoint");
        committing.insert(&bench.table, &tagged(34)).expect("inserted");
        below.session.prepare(b"below").expect("prepared");
        let db = Arc::clone(&bench.db);
        let held = hold_at(&turn, point, move || db.checkpoint_step());
        committing.session.rollback_to(savepoint).expect("rolled back");
        committing.session.commit().expect("committed");
        aborting.session.rollback().expect("rolled back");
        behind.session.prepare(b"behind").expect("prepared");
        for (number, row) in made.iter().enumerate() {
            match number % 4 {
                0 => drop(bench.client.delete(&bench.table, *row).expect("deleted")),
                1 => {
                    let moved = |old: &PlayRow| PlayRow {
                        tag: old.tag.map(|tag| tag + 100),
                        ..old.clone()
                    };
                    bench.client.update(&bench.table, *row, moved).expect("updated");
                }
                _ => {}
            }
        }
        bench.client.insert(&bench.table, &tagged(40)).expect("inserted");
        bench.client.session.commit().expect("committed");
        let expected: Vec<(u32, Option<u32>)> = (1..=20_u32)
            .filter(|id| id % 4 != 1)
            .map(|id| (id, Some(if id % 4 == 2 { id + 100 } else { id })))
            .chain([30, 32, 33, 40].map(|id| (id, Some(id))))
            .collect();
        // A table comes and one goes, unless the checkpoint holds the latch of DDL itself.
        let fresh = PlayTable::create(&bench.db, "new").expect("created");
        bench.client.insert(&fresh, &row(1)).expect("inserted");
        bench.client.session.commit().expect("committed");
        bench.db.drop_table(None, "old").expect("dropped");
        let during: Vec<SimDisk> = (0..4).map(|seed| bench.disk.crash(seed)).collect();
        held.release().expect("a checkpoint");
        let after = bench.disk.crash(9);
        bench.client.session.rollback().expect("nothing to do");
        for image in during.iter().chain([&after]) {
            assert_eq!(reopened(image, point), expected, "{point}");
        }
        below.session.detach_prepared();
        behind.session.detach_prepared();
    }
}

#[test]
fn a_checkpoint_waits_for_an_operation_it_could_pass() {
    let turn = turn();
    for point in [
        "write.after_reserve",
        "write.after_link",
        "write.after_index_event",
    ] {
        let bench = Bench::new();
        let (db, table) = (Arc::clone(&bench.db), bench.table.clone());
        let held = hold_at(&turn, point, move || {
            let mut client = Client::new(&db, 7);
            client.insert(&table, &tagged(1)).expect("inserted");
            client.session.commit().expect("committed");
        });
        std::thread::scope(|scope| {
            let made = scope.spawn(|| bench.db.checkpoint_step());
            std::thread::sleep(Duration::from_millis(30));
            assert!(!made.is_finished(), "D27: {point} is inside an operation");
            held.release();
            made.join().expect("no panic").expect("a checkpoint");
        });
        assert_eq!(
            content(&open(&bench.disk.crash(1)), "t"),
            [(1, Some(1))],
            "{point}"
        );
    }
}

/// Rule X14: the entry of a claim is in a run when the claim is taken back; memory alone must not know of that.
#[test]
fn a_claim_taken_back_after_its_tree_was_frozen_stays_void_over_a_crash() {
    let turn = turn();
    let mut bench = Bench::new();
    let first = bench.client.insert(&bench.table, &tagged(1)).expect("inserted");
    bench.client.insert(&bench.table, &tagged(2)).expect("inserted");
    bench.client.session.commit().expect("committed");
    let mut client = bench.other(1);
    let table = bench.table.clone();
    let held = hold_at(&turn, "unique.after_claim", move || {
        let moved = |old: &PlayRow| PlayRow {
            id: 50,
            tag: Some(2),
            ..old.clone()
        };
        let refused = client.update(&table, first, moved);
        assert!(refused.is_err(), "the tag belongs to another row");
        client.insert(&table, &tagged(60)).expect("inserted");
        client.session.commit().expect("committed");
    });
    bench.db.checkpoint_step().expect("a checkpoint");
    held.release();
    let expected = vec![(1, Some(1)), (2, Some(2)), (60, Some(60))];
    assert_eq!(content(&bench.db, "t"), expected);
    bench
        .client
        .insert(&bench.table, &row(50))
        .expect("the key is free");
    bench.client.session.rollback().expect("rolled back");
    let db = open(&bench.disk.crash(7));
    assert_eq!(content(&db, "t"), expected);
    let table = PlayTable::open(&db, "t").expect("the table");
    let mut client = Client::new(&db, 2);
    client
        .insert(&table, &row(50))
        .expect("the key is free after a crash, too");
}

/// Rules D36, L10: with no record in the batch at hand the log's end, which is the stamp of a load, lies behind that batch's header.
#[test]
fn a_load_that_has_only_claimed_its_keys_when_an_image_is_made_is_gone_after_a_power_cut() {
    let turn = turn();
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &tagged(1)).expect("inserted");
    bench.client.session.commit().expect("committed");
    let db = Arc::clone(&bench.db);
    let checkpoint = hold_at(&turn, "checkpoint.after_install", move || db.checkpoint_step());
    bench.db.flush().expect("flushed");
    let (mut client, table) = (bench.other(5), bench.table.clone());
    let loading = hold_at(&turn, "bulk.after_claims", move || {
        load(&mut client, &table, 8).expect("loaded");
        client.session.commit().expect("committed");
    });
    checkpoint.release().expect("a checkpoint");
    let images: Vec<SimDisk> = (0..4).map(|seed| bench.disk.crash(seed)).collect();
    loading.release();
    for image in &images {
        let db = open(image);
        assert_eq!(content(&db, "t"), [(1, Some(1))]);
        let table = PlayTable::open(&db, "t").expect("the table");
        let mut client = Client::new(&db, 2);
        load(&mut client, &table, 8).expect("L12: the keys are free");
        client.session.commit().expect("committed");
        db.checkpoint_step().expect("a checkpoint");
        assert_eq!(content(&open(&image.crash(9)), "t").len(), 3001);
    }
}

/// Rules D28, D29: the image names the files, so they stay until the next one is made, and nothing else asks for that.
#[test]
fn files_of_a_table_dropped_while_a_checkpoint_is_made_go_with_the_next_one() {
    let turn = turn();
    let mut bench = Bench::new();
    load(&mut bench.client, &bench.table, 400).expect("loaded");
    bench.client.session.commit().expect("committed");
    bench.db.checkpoint_step().expect("a checkpoint");
    let db = Arc::clone(&bench.db);
    let held = hold_at(&turn, "checkpoint.before_log_wait", move || db.checkpoint_step());
    bench.db.drop_table(None, "t").expect("dropped");
    held.release().expect("a checkpoint");
    let pieces = || {
        let names = bench.disk.list().expect("listed").into_iter();
        names
            .filter(|name| name.starts_with("cold-") || name.starts_with("meta-"))
            .count()
    };
    assert!(pieces() > 2, "rows, entries and an image");
    assert!(bench.db.maintenance_step(true).expect("maintained"), "D29");
    assert_eq!(pieces(), 1, "D28: the image");
    assert!(
        !bench.db.maintenance_step(true).expect("maintained"),
        "D29: silent"
    );
}
