//! Temporary tables: checkpoints take their index entries out of memory, and nothing of them outlives the process.

#[path = "common/store.rs"]
mod store;

use pbxt::{Database, TableDef};
use pbxt_segment::SegmentClass;
use pbxt_sim::table::{PlayRow, PlayTable, definition};
use std::sync::Arc;
use store::Store;

fn temporary(db: &Arc<Database>) -> PlayTable {
    let def = definition("passing").expect("a definition");
    db.create_table(
        TableDef {
            temporary: true,
            provisional: false,
            host_record: None,
            foreign_keys: Vec::new(),
            ..def
        },
        1,
    )
    .expect("a new table");
    PlayTable::open(db, "passing").expect("the table is there")
}

#[test]
fn a_checkpoint_takes_entries_of_temporary_tables_out_of_memory() {
    let mut store = Store::new();
    store.table = temporary(&store.db);
    let empty = store.table.table.index_bytes();
    store.insert(0..100);
    assert!(store.table.table.index_bytes() > empty);
    store.db.checkpoint_step().expect("a checkpoint");
    assert_eq!(
        store.table.table.index_bytes(),
        empty,
        "X34: all entries are in runs"
    );
    store.shows(0..100);
    let rows = store.client.scan(&store.table).expect("read");
    for (row, _) in rows.iter().take(10) {
        store.client.delete(&store.table, *row).expect("deleted");
    }
    let moved = |row: &PlayRow| PlayRow {
        id: 1000,
        ..row.clone()
    };
    store
        .client
        .update(&store.table, rows[10].0, moved)
        .expect("updated")
        .expect("there");
    store.client.session.commit().expect("committed");
    store.db.checkpoint_step().expect("a checkpoint");
    store.fill();
    store.compact();
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    store.shows((11..100).chain([1000]));
}

#[test]
fn nothing_of_a_temporary_table_outlives_a_crash() {
    let mut store = Store::new();
    store.table = temporary(&store.db);
    store.insert(0..100);
    store.db.checkpoint_step().expect("a checkpoint");
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    let files = |db: &Database| {
        let count = |class| db.store().list(class).expect("listed").len();
        (count(SegmentClass::Meta), count(SegmentClass::Cold))
    };
    let before = files(&store.db);
    // The rows of `other` and the image stay, what the temporary table had goes.
    store.kill();
    assert!(store.db.catalog.find("passing").is_err());
    let after = files(&store.db);
    assert!(
        after.0 < before.0 && after.1 <= before.1,
        "D24: {before:?} files before, {after:?} after"
    );
}

#[test]
fn a_vote_about_temporary_tables_alone_does_not_outlive_them() {
    // V11: whoever prepares it may commit it or go, and after a power cut nobody is asked to end it.
    let mut store = Store::new();
    store.table = temporary(&store.db);
    store.insert(0..3);
    let insert = |store: &mut Store, id: u32| {
        let row = Store::row(id);
        store.client.insert(&store.table, &row).expect("inserted");
    };
    insert(&mut store, 10);
    store.client.session.prepare(b"passing").expect("prepared");
    for seed in 0..4 {
        let db = store.after_power_cut(seed);
        assert_eq!(db.prepared.xids(), Vec::<Vec<u8>>::new(), "seed {seed}");
    }
    store.client.session.commit().expect("committed");
    store.shows([0, 1, 2, 10]);
    insert(&mut store, 11);
    store.client.session.prepare(b"gone").expect("prepared");
    store.client.session.detach_prepared();
    assert_eq!(
        store.db.prepared.xids(),
        Vec::<Vec<u8>>::new(),
        "nobody can reach its tables"
    );
}
