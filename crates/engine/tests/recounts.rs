//! A number of rows that cannot be is counted anew when the database is opened: rule C4 of docs/transactions.md.

mod common;
#[path = "common/image_numbers.rs"]
mod image_numbers;
#[path = "common/store.rs"]
mod store;
#[path = "common/told.rs"]
mod told;

use image_numbers::{ID_FROM_END, ROWS_FROM_END, with_numbers};
use pbxt::{Database, check_table};
use pbxt_base::RowId;
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::SimDisk;
use std::sync::Arc;
use store::Store;

const ROWS: u32 = 300;
const DELETED: u32 = 20;
/// A database with rows in files; behind its checkpoint some of them are deleted, and one more is when its transaction has voted.
fn crashed() -> SimDisk {
    let mut store = Store::new();
    store.insert(0..ROWS);
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    let mut rows = (1..).map(RowId::new);
    for row in rows.by_ref().take(DELETED as usize) {
        store.client.delete(&store.table, row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    let mut voter = Client::new(&store.db, 2);
    let row = rows.next().expect("another row");
    voter.delete(&store.table, row).expect("deleted");
    voter.session.prepare(b"vote").expect("prepared");
    store.db.flush().expect("flushed");
    let disk = store.disk.kill();
    drop(voter);
    disk
}

fn opened(disk: &SimDisk) -> (Arc<Database>, Vec<String>) {
    let (db, told) = told::open(disk);
    (db.expect("C4: the database opens"), told.damage)
}

fn counted(db: &Arc<Database>) -> u64 {
    let table = PlayTable::open(db, "t").expect("the table is there");
    Client::new(db, 1).count(&table).expect("counted")
}

/// Nothing is found in any table.
fn is_sound(db: &Arc<Database>) {
    for table in db.catalog.tables() {
        let mut session = pbxt::Session::open(db, 0, 0);
        let found = check_table(&mut session, &table, &mut |text| panic!("{text}"), &mut |_, _| {});
        assert_eq!(found.expect("checked"), 0);
    }
}

#[test]
fn an_impossible_number_of_rows_is_counted_anew_and_told() {
    let disk = crashed();
    let (_, told) = opened(&disk);
    assert!(told.is_empty(), "nothing is wrong yet: {told:?}");
    // Below none in the image, or with what the log takes away from it.
    for rows in [-1, i64::MIN, i64::from(DELETED) - 1] {
        let disk = with_numbers(&disk, ROWS_FROM_END, rows);
        let (db, told) = opened(&disk);
        let left = u64::from(ROWS - DELETED);
        assert_eq!(counted(&db), left, "C4: {rows}");
        let of_it: Vec<&String> = told.iter().filter(|text| text.contains("'t'")).collect();
        assert!(
            of_it.len() == 2
                && of_it[0].contains("row ids up to 300: its rows are counted anew")
                && of_it[1].contains(&format!("has {left} rows, as counted anew")),
            "{rows}: {told:?}"
        );
        is_sound(&db);
        db.commit_prepared(b"vote").expect("committed");
        assert_eq!(
            counted(&db),
            left - 1,
            "C4: {rows}: the vote is no part of the count"
        );
        db.close().expect("closed");
        drop(db);
        let (db, told) = opened(&disk);
        assert!(told.is_empty(), "the number is right from here on: {told:?}");
        assert_eq!(counted(&db), left - 1);
        is_sound(&db);
    }
}

#[test]
fn more_rows_than_row_ids_in_an_image_is_damage() {
    let disk = crashed();
    for (from_end, number) in [
        (ROWS_FROM_END, i64::from(ROWS) + 1),
        (ROWS_FROM_END, i64::MAX),
        (ID_FROM_END, i64::from(ROWS) - 1),
    ] {
        let (db, _) = told::open(&with_numbers(&disk, from_end, number));
        let error = db.expect_err("D36: refused").to_string();
        assert!(
            error.contains("meta-") && error.contains("rows, the greatest row id"),
            "{error}"
        );
    }
}

#[test]
fn rows_that_cannot_be_counted_keep_nobody_from_the_others() {
    let disk = with_numbers(&crashed(), ROWS_FROM_END, -1);
    let (db, _) = opened(&disk.kill());
    let table = PlayTable::open(&db, "t").expect("the table is there");
    let owner = u64::from(table.id().raw());
    let ids = db.store().list(SegmentClass::Cold).expect("listed").into_iter();
    let files = ids.map(|id| PieceFile::open(db.store(), SegmentClass::Cold, id).expect("a piece file"));
    let mut places = files.filter_map(|file| {
        let section = file.sections().iter().find(|section| section.owner == owner)?;
        Some((
            file.name().to_owned(),
            section.block_offset(section.block_count() - 1),
        ))
    });
    let (file, offset) = places.next_back().expect("rows in a file");
    drop((table, db));
    disk.flip_bit(&file, offset + 20, 3).expect("the file is there");
    let (db, told) = opened(&disk);
    let told = told.join("\n");
    let before = counted(&db);
    assert!(before < u64::from(ROWS - DELETED), "C4: some cannot be read");
    let said = format!("{before} rows of table 't' were counted anew, up to the first that cannot be read");
    assert!(told.contains(&said) && told.contains(&file), "C4: {said}: {told}");
    let other = PlayTable::open(&db, "other").expect("the other table is there");
    let rows = Client::new(&db, 1).count(&other).expect("counted");
    assert_eq!(rows, 150, "C4: {told}");
}
