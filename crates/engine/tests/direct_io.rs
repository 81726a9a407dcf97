//! The same life of a database on a real directory, with its files read past the page cache and through it.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

use pbxt::{Database, Options, Progress};
use pbxt_io::{DirectIo, OsDisk};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use std::path::Path;
use std::sync::Arc;

const ROWS: u32 = 3000;

fn open(directory: &Path, wanted: DirectIo, cache_bytes: u64) -> Arc<Database> {
    let disk = OsDisk::open(directory, true).expect("the directory");
    let options = Options {
        geometry: geometry(),
        cache_bytes,
        background: false,
        ..Options::default()
    };
    Database::open(Arc::new(disk.with_direct_io(wanted)), &options).expect("the database opens")
}

fn row(id: u32, version: u32) -> PlayRow {
    let mut row = PlayRow::new(id);
    row.group = Some(version);
    let bytes: Vec<u8> = (0..300_u32)
        .map(|at| (at.wrapping_mul(id + 7 + version) >> 3) as u8)
        .collect();
    row.memo = Some(Arc::from(bytes));
    row
}

fn settle(db: &Database) {
    db.checkpoint_step().expect("a checkpoint");
    for _ in 0..200 {
        let worked = [
            db.compact_step().expect("compacted"),
            db.row_merge_step().expect("merged"),
            db.index_merge_step().expect("merged"),
        ];
        if worked.iter().all(|progress| *progress == Progress::Idle) {
            break;
        }
    }
    db.checkpoint_step().expect("a checkpoint");
}

/// Inserts, changes and deletes rows until most stand in runs, opens the database anew, and reads everything.
fn live(directory: &Path, wanted: DirectIo, cache_bytes: u64) -> Vec<PlayRow> {
    let db = open(directory, wanted, cache_bytes);
    let table = PlayTable::create(&db, "t").expect("a new table");
    let mut client = Client::new(&db, 1);
    for id in 0..ROWS {
        client.insert(&table, &row(id, 0)).expect("inserted");
        if id % 100 == 99 {
            client.session.commit().expect("committed");
        }
    }
    settle(&db);
    let ids: Vec<_> = client
        .scan(&table)
        .expect("read")
        .iter()
        .map(|(id, _)| *id)
        .collect();
    client.session.commit().expect("committed");
    for (at, id) in ids.iter().enumerate().filter(|(at, _)| at % 3 == 0) {
        let change = client.update(&table, *id, |_| row(at as u32, 1));
        change.expect("updated").expect("there");
    }
    for id in ids.iter().skip(1).step_by(7).filter(|id| id.raw() % 3 == 2) {
        client.delete(&table, *id).expect("deleted");
    }
    client.session.commit().expect("committed");
    settle(&db);
    drop((client, table));
    db.close().expect("closed");
    drop(db);
    let db = open(directory, wanted, cache_bytes);
    let table = PlayTable::open(&db, "t").expect("the table");
    let mut client = Client::new(&db, 1);
    let rows = client
        .scan(&table)
        .expect("read")
        .into_iter()
        .map(|(_, row)| row)
        .collect();
    client.session.commit().expect("committed");
    let report = db.status_report();
    let through = "Rows and indexes are read through the page cache";
    assert!(report.contains("Rows and indexes are read "), "{report}");
    assert!(wanted == DirectIo::Auto || report.contains(through), "{report}");
    let through = "The log is written through the page cache";
    assert!(report.contains("The log is written "), "{report}");
    assert!(wanted == DirectIo::Auto || report.contains(through), "{report}");
    drop((client, table));
    db.close().expect("closed");
    rows
}

#[test]
fn a_database_is_the_same_past_the_page_cache_and_through_it() {
    let mut lives = Vec::new();
    for wanted in [DirectIo::Auto, DirectIo::Off] {
        for cache_bytes in [1 << 20, 64 << 20] {
            let directory = tempfile::tempdir().expect("a temporary directory");
            lives.push(live(directory.path(), wanted, cache_bytes));
        }
    }
    assert!(lives[0].len() > ROWS as usize / 2 && lives[0].len() < ROWS as usize);
    assert!(
        lives.iter().all(|life| *life == lives[0]),
        "all four saw the same rows"
    );
}
