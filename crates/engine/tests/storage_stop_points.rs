//! Readers and writers that stand between two steps while rows move. Needs feature `stop-points`.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]
#![cfg(feature = "stop-points")]

#[path = "common/hold.rs"]
mod hold;
#[path = "common/store.rs"]
mod store;

use hold::{hold_at, turn};
use pbxt::Progress;
use pbxt_sim::client::Client;
use pbxt_sim::table::{LARGE, PlayRow, PlayTable};
use std::sync::Arc;
use store::Store;

#[test]
fn a_reader_between_word_and_shape_finds_the_row_wherever_it_went() {
    let turn = turn();
    let mut store = Store::new();
    store.insert(0..50);
    store.fill();
    let (db, table) = (
        Arc::clone(&store.db),
        PlayTable::open(&store.db, "t").expect("the table"),
    );
    let reader = hold_at(&turn, "read.after_word", move || {
        let mut client = Client::new(&db, 7);
        client.scan(&table).expect("read").len()
    });
    store.compact();
    store.merge();
    assert_eq!(reader.release(), 50, "B2: the shape was taken after the word");
    store.shows(0..50);
}

#[test]
fn a_reader_that_is_about_to_take_the_shape_takes_the_newest() {
    let turn = turn();
    let mut store = Store::new();
    store.insert(0..50);
    store.fill();
    store.compact();
    let (db, table) = (
        Arc::clone(&store.db),
        PlayTable::open(&store.db, "t").expect("the table"),
    );
    let row = pbxt_base::RowId::new(10);
    let reader = hold_at(&turn, "read.before_shape", move || {
        let mut client = Client::new(&db, 7);
        let found = client.update(&table, row, PlayRow::clone).expect("read");
        found.map(|(old, _)| old.id)
    });
    store.insert(50..60);
    store.fill();
    store.compact();
    store.merge();
    assert_eq!(reader.release(), Some(9));
    store.shows(0..60);
}

/// So many transactions of one row each in a table of their own.
fn transactions(client: &mut Client, table: &PlayTable, ids: std::ops::Range<u32>) {
    for id in ids {
        client.insert(table, &PlayRow::new(id)).expect("inserted");
        client.session.commit().expect("committed");
    }
}

/// Homes what can be, makes a checkpoint and looks for transactions to forget; true if some were.
fn forgets(store: &Store) -> bool {
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    let mut forgot = false;
    for _ in 0..2 {
        forgot |= store.db.forget_step().expect("a look") == Progress::Worked;
    }
    forgot
}

#[test]
fn a_reader_that_has_a_rolled_back_version_still_learns_that_it_was() {
    const A_PAGE: u32 = 4096;
    let turn = turn();
    let mut store = Store::new();
    store.insert(0..1);
    let change = |old: &PlayRow| PlayRow {
        group: Some(77),
        ..old.clone()
    };
    let row = pbxt_base::RowId::new(1);
    let updated = store.client.update(&store.table, row, change).expect("updated");
    updated.expect("there");
    store.client.session.rollback().expect("rolled back");
    // Its place among the transactions is needed for others, and it is noted.
    let (mut worker, other) = (
        Client::new(&store.db, 2),
        PlayTable::create(&store.db, "o").expect("a table"),
    );
    transactions(&mut worker, &other, 0..A_PAGE + 100);
    store.db.housekeeping_step();
    assert_eq!(store.db.forget_step().expect("a look"), Progress::Idle);
    transactions(&mut worker, &other, A_PAGE + 100..2 * A_PAGE);
    let (db, table) = (
        Arc::clone(&store.db),
        PlayTable::open(&store.db, "t").expect("the table"),
    );
    let reader = hold_at(&turn, "read.after_version", move || {
        let mut client = Client::new(&db, 7);
        let found = client.update(&table, row, PlayRow::clone).expect("read");
        found.map(|(old, _)| old.group)
    });
    assert!(!forgets(&store), "S23: a reader may have a version of it");
    assert_eq!(reader.release(), Some(None), "S23");
    let forgot = store.db.forget_step().expect("a look");
    assert_eq!(forgot, Progress::Worked, "S23: nobody has one any more");
    store.shows(0..1);
}

#[test]
fn an_update_between_install_and_clear_keeps_its_word() {
    let turn = turn();
    let mut store = Store::new();
    store.insert(0..50);
    store.fill();
    let row = pbxt_base::RowId::new(10);
    let db = Arc::clone(&store.db);
    let compactor = hold_at(&turn, "compact.after_install", move || {
        db.housekeeping_step();
        db.compact_step().expect("compacted")
    });
    let mut writer = Client::new(&store.db, 2);
    let change = |old: &PlayRow| PlayRow {
        group: Some(77),
        ..old.clone()
    };
    writer
        .update(&store.table, row, change)
        .expect("updated")
        .expect("there");
    assert_eq!(compactor.release(), Progress::Worked);
    assert_ne!(
        store.table.table.map.load(row).raw(),
        0,
        "S3: the row changed, its word stays"
    );
    store.compact();
    let group_of = |client: &mut Client, table: &PlayTable| {
        let rows = client.scan(table).expect("read");
        client.session.commit().expect("nothing to commit");
        rows.iter()
            .find(|(id, _)| *id == row)
            .and_then(|(_, row)| row.group)
    };
    assert_eq!(group_of(&mut store.client, &store.table), None);
    writer.session.commit().expect("committed");
    assert_eq!(group_of(&mut store.client, &store.table), Some(77));
    store.fill();
    store.compact();
    assert_eq!(group_of(&mut store.client, &store.table), Some(77));
    store.shows(0..50);
}

#[test]
fn room_of_values_found_dead_during_a_checkpoint_waits_for_the_next_one() {
    // S50: the image that is being finished does not have them, and nothing is logged that would tell the two moments apart.
    let turn = turn();
    let mut store = Store::new();
    let large = |id: u32| PlayRow {
        memo: Some(Arc::from(vec![id as u8 + 1; LARGE + 5000])),
        ..Store::row(id)
    };
    let rows: Vec<_> = (0..64)
        .map(|id| store.client.insert(&store.table, &large(id)).expect("inserted"))
        .collect();
    store.client.session.commit().expect("committed");
    for row in rows.iter().skip(1) {
        store.client.delete(&store.table, *row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    let room = |store: &Store| store.db.space().expect("the bytes").blob;
    let before = room(&store);
    let db = Arc::clone(&store.db);
    let checkpoint = hold_at(&turn, "checkpoint.after_txns", move || db.checkpoint_step());
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    checkpoint.release().expect("made");
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    let known = pbxt::dead_values(store.db.store()).expect("an image");
    let known: u64 = known
        .values()
        .flatten()
        .map(|range| range.end - range.start)
        .sum();
    assert!(
        room(&store) + known >= before,
        "{} bytes were given back, and the image knows of {known} that are dead",
        before - room(&store)
    );
    store.db.checkpoint_step().expect("made");
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    assert!(room(&store) < before / 4, "it comes back in the end");
    store.shows(0..1);
}
