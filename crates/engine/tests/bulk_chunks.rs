//! Bulk loads by their chunks: when they are handed over, and which files they go into (rules L13 and L15).

mod common;

use common::{put, row};
use pbxt::{Database, KeyChanges, NewVersion, Options, TableDef};
use pbxt_segment::SegmentClass;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, definition};
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;

/// A database whose loads have chunks of 8 MiB and more, and rows for it that do not get smaller.
fn large_load(rows: u32) -> (Arc<Database>, PlayTable, Vec<PlayRow>) {
    let options = Options {
        cache_bytes: 1 << 30,
        ..common::options()
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
    let table = PlayTable::create(&db, "t").expect("a new table");
    let rng = &mut Rng::new(1);
    let of = |id| {
        let mut memo = vec![0; 400];
        rng.fill(&mut memo);
        PlayRow {
            memo: Some(Arc::from(memo)),
            ..row(id)
        }
    };
    (db, table, (1..=rows).map(of).collect())
}

/// Bytes of files of rows.
fn row_file_bytes(db: &Database) -> u64 {
    let sizes = db.store().sizes().expect("listed");
    let of_rows = sizes.iter().filter(|(class, ..)| *class == SegmentClass::Cold);
    of_rows.map(|(.., bytes)| bytes).sum()
}

/// Rule L13, seen in the files: without threads, what was handed over has been written.
#[test]
fn the_thread_of_a_load_has_work_long_before_its_last_row() {
    let (db, table, rows) = large_load(75_000);
    let mut client = Client::new(&db, 1);
    let before_end = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        rows.iter().try_for_each(|row| put(session, &table, row))?;
        let before_end = row_file_bytes(&db);
        session.bulk_end(&table.table, false)?;
        Ok(before_end)
    });
    let before_end = before_end.expect("a load");
    client.session.commit().expect("a commit");
    let all = row_file_bytes(&db);
    assert!(before_end > all / 5 * 4, "L13: {before_end} of {all} bytes");
}

/// Rule L13: behind the first chunk one without keys has a MiB.
#[test]
fn a_load_without_keys_leaves_little_for_its_end() {
    let (db, keyed, rows) = large_load(70_000);
    let def = TableDef {
        indexes: Vec::new(),
        ..definition("plain").expect("a definition")
    };
    let table = db.create_table(def, 1).expect("a new table");
    let mut client = Client::new(&db, 1);
    let keys = KeyChanges::new();
    let before_end = client.statement(|session| {
        session.bulk_begin(&table, u64::MAX, false);
        for row in &rows {
            let version = NewVersion {
                payload: &keyed.encode(row)?,
                schema_version: keyed.schema_version(),
                keys: &keys,
            };
            session.insert_or_load(&table, version)?;
        }
        let before_end = row_file_bytes(&db);
        session.bulk_end(&table, false)?;
        Ok(before_end)
    });
    let before_end = before_end.expect("a load");
    client.session.commit().expect("a commit");
    let left = row_file_bytes(&db) - before_end;
    assert!(left < 2 << 20, "L13: {left} bytes behind {before_end}");
}

/// Rule L15.
#[test]
fn chunks_of_a_load_share_pieces() {
    let (db, table, mut rows) = large_load(75_000);
    for row in &mut rows {
        row.memo = Some(Arc::from(vec![7; 400]));
    }
    let mut client = Client::new(&db, 1);
    let loaded = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        rows.iter().try_for_each(|row| put(session, &table, row))?;
        session.bulk_end(&table.table, false)
    });
    loaded.expect("a load");
    client.session.commit().expect("a commit");
    let run = db
        .list_runs()
        .into_iter()
        .find(|run| run.index.is_none())
        .expect("a run of rows");
    assert_eq!(
        (run.pieces, run.entries),
        (1, 75_000),
        "L15: four chunks and a rest"
    );
    let findings = client.check(&table).expect("checkable");
    assert!(findings.is_empty(), "{findings:?}");
}
