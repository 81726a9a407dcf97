//! Bulk loads by their chunks: when they are handed over, which files they go into and hold, and in which order
//! rows stand (rules L13, L15, L16 and B6).

mod common;

use common::{put, row, shuffled};
use pbxt::{Database, KeyChanges, NewVersion, Options, SessionConfig, TableDef};
use pbxt_segment::SegmentClass;
use pbxt_sim::client::Client;
use pbxt_sim::table::{LARGE, PlayRow, PlayTable, definition};
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

/// Files of rows, entries and images.
fn piece_files(db: &Database) -> usize {
    let sizes = db.store().sizes().expect("listed");
    let is_of_pieces = |class: &SegmentClass| [SegmentClass::Cold, SegmentClass::Meta].contains(class);
    sizes.iter().filter(|(class, ..)| is_of_pieces(class)).count()
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

/// A database whose loads have chunks of 384 KiB.
fn small_chunks() -> (Arc<Database>, PlayTable) {
    let options = Options {
        cache_bytes: 8 << 20,
        ..common::options()
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
    let table = PlayTable::create(&db, "t").expect("a new table");
    (db, table)
}

/// Loads rows with these ids, in this order, and gives them as they stand.
fn loaded(ids: &[u32], of: impl Fn(u32) -> PlayRow) -> Vec<PlayRow> {
    let (db, table) = small_chunks();
    let mut client = Client::new(&db, 1);
    let done = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        ids.iter().try_for_each(|&id| put(session, &table, &of(id)))?;
        session.bulk_end(&table.table, false)
    });
    done.expect("a load");
    client.session.commit().expect("a commit");
    let findings = client.check(&table).expect("checkable");
    assert!(findings.is_empty(), "{findings:?}");
    let rows = client.scan(&table).expect("a scan");
    let mut sorted: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
    let mut expected = ids.to_vec();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    for (_, row) in &rows {
        assert_eq!(row, &of(row.id), "each row with its own values");
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// How often a row stands behind one with a greater id.
fn steps_back(rows: &[PlayRow]) -> usize {
    rows.windows(2).filter(|pair| pair[0].id > pair[1].id).count()
}

/// With each value and without it.
fn various(id: u32) -> PlayRow {
    let memo = (!id.is_multiple_of(3)).then(|| Arc::from(vec![id as u8; id as usize % 90]));
    PlayRow {
        group: (!id.is_multiple_of(5)).then_some(id % 7),
        tag: id.is_multiple_of(2).then_some(id),
        memo,
        ..row(id)
    }
}

#[test]
fn rows_that_come_in_no_order_stand_in_that_of_the_primary_key() {
    let rows = loaded(&shuffled(1..=20_000), various);
    assert_eq!(steps_back(&rows), 0, "L16: whatever the number of chunks");
}

#[test]
fn more_chunks_than_are_merged_at_once_make_several_sequences() {
    // A row and its keys have some 100 bytes, a chunk 384 KiB: 32 of them 120,000 rows.
    let rows = loaded(&shuffled(1..=300_000), various);
    let back = steps_back(&rows);
    assert!((1..=6).contains(&back), "L16: {back} sequences and one");
}

#[test]
fn rows_that_come_in_some_order_are_written_once_and_so_are_long_ones() {
    let falling: Vec<u32> = (1..=20_000).rev().collect();
    let back = steps_back(&loaded(&falling, various));
    assert!(back > 3, "L16: a sequence for each chunk, not {back}");
    let long = |id: u32| PlayRow {
        name: vec![id as u8; 1390],
        memo: Some(Arc::from(vec![id as u8; LARGE - 10])),
        ..row(id)
    };
    let back = steps_back(&loaded(&shuffled(1..=2_000), long));
    assert!(back > 3, "L16: a sequence for each chunk, not {back}");
}

#[test]
fn ordered_and_shuffled_chunks_of_one_load_mix() {
    let mut ids: Vec<u32> = shuffled(1..=20_000);
    ids.extend(20_001..=40_000);
    ids.extend(shuffled(40_001..=60_000));
    let rows = loaded(&ids, various);
    let back = steps_back(&rows);
    assert!(back < 6, "L16: {back} of some twelve chunks");
}

/// Nothing is left in the last chunk: all rows of the load wait for others.
#[test]
fn a_load_that_ends_with_a_whole_chunk_keeps_its_gathered_rows() {
    let (db, table) = small_chunks();
    let mut client = Client::new(&db, 1);
    let ids = shuffled(1..=20_000);
    let is_spilled = || {
        let sizes = db.store().sizes().expect("listed");
        sizes.iter().any(|(class, ..)| *class == SegmentClass::Meta)
    };
    assert!(!is_spilled(), "no file of keys so far");
    let put_rows = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        let mut count = 0;
        while !is_spilled() {
            put(session, &table, &various(ids[count]))?;
            count += 1;
        }
        session.bulk_end(&table.table, false)?;
        Ok(count)
    });
    let count = put_rows.expect("a load");
    client.session.commit().expect("a commit");
    assert_eq!(client.scan(&table).expect("a scan").len(), count, "L16");
}

/// Rule B6 is for the files of the load alone: what others supersede while it waits goes with the next checkpoint.
#[test]
fn a_load_that_waits_for_a_key_keeps_no_files_of_others() {
    let (db, table) = small_chunks();
    let [mut loader, mut first, mut other] = [1, 2, 3].map(|number| Client::new(&db, number));
    let beside = PlayTable::create(&db, "beside").expect("a new table");
    let changed = other.insert(&beside, &various(1)).expect("an insert");
    other.session.commit().expect("a commit");
    first.insert(&table, &various(77)).expect("an insert");
    loader.session.configure(SessionConfig {
        lock_wait_timeout_ms: 20_000,
        ..SessionConfig::default()
    });
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let done = loader.statement(|session| {
                session.bulk_begin(&table.table, u64::MAX, false);
                (1..=20_000).try_for_each(|id| put(session, &table, &various(id)))?;
                session.bulk_end(&table.table, false)
            });
            done.expect("a load");
            loader.session.commit().expect("a commit");
        });
        while db.list_lock_waits().lines.is_empty() {
            std::thread::yield_now();
        }
        let files = [1, 2, 3].map(|memo| {
            let updated = other.update(&beside, changed, |row| PlayRow {
                memo: Some(Arc::from([memo])),
                ..row.clone()
            });
            updated.expect("an update").expect("there");
            other.session.commit().expect("a commit");
            // With the first one entries in memory become runs; then only the image is another one.
            db.checkpoint_step().expect("a checkpoint");
            piece_files(&db)
        });
        first.session.rollback().expect("a rollback");
        loading.join().expect("the load ends");
        assert_eq!(files, [files[0]; 3], "images that nothing needs have gone");
    });
    assert_eq!(loader.count(&table).expect("counted"), 20_000);
}
