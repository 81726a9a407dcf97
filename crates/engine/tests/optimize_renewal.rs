//! Optimize writes anew what is whole and yet not what would be written today (rule OP2 of docs/storage.md).

#[path = "common/altered.rs"]
mod altered;
mod common;
#[path = "common/secrets.rs"]
mod secrets;
#[path = "common/shifting.rs"]
mod shifting;

use altered::Bench;
use pbxt::optimize_table;
use pbxt_io::{Disk, FileKind};
use pbxt_rows::{Order, SectionExtra};
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::SimDisk;
use secrets::{Keys, New, TABLE, expected, open_on, row, rows_of, settle};
use shifting::{Shape, number};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Versions of columns that rows on disk have.
fn versions(bench: &Bench) -> BTreeSet<u16> {
    let store = bench.db.store();
    let own = u64::from(bench.table.id.raw());
    let mut found = BTreeSet::new();
    for id in store.list(SegmentClass::Cold).expect("listed") {
        let file = PieceFile::open(store, SegmentClass::Cold, id).expect("a piece file");
        for section in file.sections().iter().filter(|section| section.owner == own) {
            let extra = SectionExtra::decode(&section.extra, section.block_count()).expect("decodes");
            found.insert(extra.zones.schema_version());
        }
    }
    found
}

#[test]
fn rows_of_before_an_alter_get_the_columns_of_now() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..600);
    bench.settle();
    bench.alter(|shape| shape.columns.insert(1, number(10, 8, Order::Int, false)));
    bench.fill(600..620);
    assert!(versions(&bench).contains(&1), "so it was meant");
    let optimized = optimize_table(&bench.session, &bench.table, &mut |_, _| {});
    assert!(!optimized.expect("optimized").is_held);
    bench.session.commit().expect("nothing to commit");
    assert_eq!(versions(&bench), BTreeSet::from([2]), "OP2");
    bench.look();
    let tail = bench.db.log().tail();
    optimize_table(&bench.session, &bench.table, &mut |_, _| {}).expect("optimized");
    assert_eq!(bench.db.log().tail(), tail, "OP2: once");
}

/// Versions of keys with which files of rows and of indexes are encrypted; 0: not at all.
fn keys_of_files(disk: &SimDisk) -> BTreeSet<u32> {
    let is_piece = |name: &String| matches!(pbxt::file_kind(name), FileKind::Rows | FileKind::Indexes);
    let names = disk.list().expect("listed").into_iter().filter(is_piece);
    names
        .map(|name| {
            let content = disk.content(&name).expect("there");
            let version = content[20..24].try_into().expect("four bytes");
            if content.starts_with(b"PBXTENC1") {
                u32::from_le_bytes(version)
            } else {
                0
            }
        })
        .collect()
}

#[test]
fn no_file_of_an_older_key_is_left() {
    let (disk, keys) = (SimDisk::new(), Keys::of(&[(1, 9)]));
    let db = open_on(Arc::new(disk.clone()), &keys, New::Plain).expect("opens");
    let table = PlayTable::create(&db, TABLE).expect("a new table");
    let mut client = Client::new(&db, 1);
    for id in 1..=120 {
        client.insert(&table, &row(id)).expect("inserted");
    }
    client.session.commit().expect("committed");
    let optimize = |table: &PlayTable, client: &mut Client| {
        optimize_table(&client.session, &table.table, &mut |_, _| {}).expect("optimized");
        client.session.commit().expect("nothing to commit");
    };
    optimize(&table, &mut client);
    assert_eq!(keys_of_files(&disk), BTreeSet::from([0]));
    drop((client, table));
    db.close().expect("closed");
    drop(db);
    let disk = disk.kill();
    let db = open_on(Arc::new(disk.clone()), &keys, New::Encrypted).expect("opens");
    settle(&db).expect("settled");
    let table = PlayTable::open(&db, TABLE).expect("there");
    let mut client = Client::new(&db, 1);
    assert!(
        keys_of_files(&disk).contains(&0),
        "EN3: upkeep has no reason to write it anew"
    );
    optimize(&table, &mut client);
    assert_eq!(
        keys_of_files(&disk),
        BTreeSet::from([1]),
        "OP2: nothing plain is left"
    );
    keys.0.lock().insert(2, 77);
    optimize(&table, &mut client);
    assert_eq!(
        keys_of_files(&disk),
        BTreeSet::from([2]),
        "OP2: nor anything of the old version"
    );
    let (tail, files) = (db.log().tail(), disk.list().expect("listed"));
    optimize(&table, &mut client);
    assert_eq!(
        (db.log().tail(), disk.list().expect("listed")),
        (tail, files),
        "OP2: once"
    );
    drop((client, table));
    assert!(rows_of(&db, "under another key") == expected(120));
}
