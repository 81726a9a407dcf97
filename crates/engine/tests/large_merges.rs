//! Merges that take more than one file.

mod common;

use common::put;
use pbxt::{Database, Error, Options, Progress};
use pbxt_base::Error as StorageError;
use pbxt_io::Disk;
use pbxt_segment::{SegmentClass, segment_name};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::{Fault, Rng, SimDisk};
use std::sync::Arc;

/// Rows of a load: with names of this length some 19 MiB of index.
const ROWS: u32 = 80_000;
const NAME_BYTES: usize = 240;
/// Enough for a file of the merge, not for all.
const FREE: u64 = 36 << 20;
/// Rows of which half are more than a file that gets no further section (rule S32).
const FILE_ROWS: u32 = 10_000;
/// Enough for what is left of one such table, not of two.
const FREE_FOR_ONE: u64 = 2 << 20;

fn open(disk: &SimDisk) -> Arc<Database> {
    let options = Options {
        geometry: geometry(),
        cache_bytes: 64 << 20,
        background: false,
        ..Options::default()
    };
    Database::open(Arc::new(disk.clone()), &options).expect("the database opens")
}

/// From here on the stamps of loads say nothing more (rule D23).
fn settle(db: &Database) {
    db.checkpoint_step().expect("a checkpoint");
    db.housekeeping_step();
    while db.settle_tags_step().expect("settled") == Progress::Worked {}
}

fn is_want_of_space<T>(result: &pbxt::Result<T>) -> bool {
    matches!(result, Err(Error::Storage(StorageError::NoSpace { .. })))
}

fn load(client: &mut Client, table: &PlayTable, rng: &mut Rng, ids: impl IntoIterator<Item = u32>) {
    let loaded = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        for id in ids {
            let mut name = vec![0; NAME_BYTES];
            rng.fill(&mut name);
            put(
                session,
                table,
                &PlayRow {
                    name,
                    ..PlayRow::new(id)
                },
            )?;
        }
        session.bulk_end(&table.table, false)
    });
    loaded.expect("a load");
    client.session.commit().expect("a commit");
}

/// Rule S21.
#[test]
fn a_large_merge_that_fails_leaves_none_of_its_files() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let table = PlayTable::create(&db, "t").expect("a new table");
    let mut client = Client::new(&db, 1);
    let mut rng = Rng::new(1);
    load(&mut client, &table, &mut rng, 0..ROWS);
    load(&mut client, &table, &mut rng, ROWS..2 * ROWS);
    settle(&db);
    // The small indexes, all in one step.
    assert_eq!(db.index_merge_step().expect("merged"), Progress::Worked);
    disk.set_free_bytes(Some(FREE));
    let ended = loop {
        match db.index_merge_step() {
            Ok(Progress::Worked) => {}
            ended => break ended,
        }
    };
    assert!(is_want_of_space(&ended), "{ended:?} with {FREE} bytes");
    // Without a checkpoint, which needs room itself.
    let left = disk.free_bytes().expect("a number");
    assert!(left >= FREE - (2 << 20), "S21: {left} of {FREE} bytes are free");
}

/// Rule S21: the rows of each table fill a file of their own, and the second one finds no room.
#[test]
fn a_step_that_fails_at_its_second_file_does_not_leave_the_first() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let mut client = Client::new(&db, 1);
    let mut rng = Rng::new(2);
    let tables = ["t", "u"].map(|name| PlayTable::create(&db, name).expect("a new table"));
    for table in &tables {
        load(&mut client, table, &mut rng, 0..FILE_ROWS);
    }
    settle(&db);
    for table in &tables {
        let rows = client.scan(table).expect("read");
        for (row, _) in rows.iter().step_by(2) {
            client.delete(table, *row).expect("deletable").expect("there");
        }
        client.session.commit().expect("a commit");
    }
    db.flush().expect("flushed");
    db.housekeeping_step();
    while db.compact_step().expect("homed") == Progress::Worked {}
    let files = disk.list().expect("listed");
    disk.set_free_bytes(Some(FREE_FOR_ONE));
    for _ in 0..3 {
        let merged = db.row_merge_step();
        assert!(is_want_of_space(&merged), "{merged:?} with {FREE_FOR_ONE} bytes");
        assert_eq!(disk.list().expect("listed"), files, "S21");
        assert_eq!(disk.free_bytes().expect("a number"), FREE_FOR_ONE, "S21");
    }
    disk.set_free_bytes(None);
    assert_eq!(db.row_merge_step().expect("merged"), Progress::Worked);
    for table in &tables {
        let left = client.count(table).expect("counted");
        assert_eq!(left, u64::from(FILE_ROWS / 2));
    }
}

/// Rule S21: its file is finished by then.
#[test]
fn a_small_merge_whose_file_cannot_be_opened_does_not_leave_it() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let table = PlayTable::create(&db, "t").expect("a new table");
    let mut client = Client::new(&db, 1);
    let mut rng = Rng::new(3);
    for first in [0, 1] {
        load(&mut client, &table, &mut rng, (first..2 * FILE_ROWS).step_by(2));
    }
    settle(&db);
    let files = disk.list().expect("listed");
    let next = db.store().next_piece_id(SegmentClass::Meta);
    disk.plant(Fault::FailRead {
        prefix: segment_name(SegmentClass::Meta, next),
        nth: 1,
    });
    let merged = db.index_merge_step();
    assert!(
        matches!(merged, Err(Error::Storage(StorageError::Io { .. }))),
        "{merged:?}"
    );
    assert_eq!(disk.list().expect("listed"), files, "S21");
    assert_eq!(db.index_merge_step().expect("merged"), Progress::Worked);
    let left = client.count(&table).expect("counted");
    assert_eq!(left, u64::from(2 * FILE_ROWS));
}

/// Rule B6: they are held by nobody.
#[test]
fn a_large_merge_under_way_keeps_no_files_of_others() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let [table, other] = ["t", "other"].map(|name| PlayTable::create(&db, name).expect("a new table"));
    let mut client = Client::new(&db, 1);
    let mut rng = Rng::new(4);
    for first in [0, 1] {
        load(&mut client, &table, &mut rng, (first..2 * FILE_ROWS).step_by(2));
    }
    settle(&db);
    // The small indexes, and then the large one is begun.
    for _ in 0..2 {
        assert_eq!(db.index_merge_step().expect("merged"), Progress::Worked);
    }
    for id in 0..300 {
        client.insert(&other, &PlayRow::new(id)).expect("inserted");
    }
    client.session.commit().expect("a commit");
    for group in 0..2 {
        for (row, _) in client.scan(&other).expect("read") {
            let change = |row: &PlayRow| PlayRow {
                group: Some(group),
                ..row.clone()
            };
            client
                .update(&other, row, change)
                .expect("updated")
                .expect("there");
        }
        client.session.commit().expect("a commit");
        // Until those before are in a segment that is full.
        for id in 0..150 {
            let filler = PlayRow {
                memo: Some(Arc::from(vec![7; 400])),
                ..PlayRow::new(1000 + group * 1000 + id)
            };
            client.insert(&other, &filler).expect("inserted");
        }
        client.session.commit().expect("a commit");
        db.flush().expect("flushed");
        db.housekeeping_step();
        while db.compact_step().expect("homed") == Progress::Worked {}
        while db.row_merge_step().expect("merged") == Progress::Worked {}
    }
    db.checkpoint_step().expect("a checkpoint");
    let space = db.space().expect("a size of every file");
    assert_eq!(space.row_unnamed, 0, "B6: {space:?}");
    while db.index_merge_step().expect("merged") == Progress::Worked {}
    assert_eq!(client.count(&table).expect("counted"), u64::from(2 * FILE_ROWS));
    assert!(client.check(&table).expect("checkable").is_empty());
}
