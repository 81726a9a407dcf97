//! Large values: whose they are, and that the space of those that are nobody's comes back.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

#[path = "common/store.rs"]
mod store;

use pbxt::{Database, KeyChanges, NewVersion, Options, Progress, Table, TableDef};
use pbxt_base::RowId;
use pbxt_io::GIVE_BACK_BYTES;
use pbxt_rows::{BlobRef, Column, ColumnKind, RowBuilder, Schema};
use pbxt_segment::{Geometry, SEGMENT_HEADER_BYTES};
use pbxt_sim::client::Client;
use pbxt_sim::table::{LARGE, PlayRow, PlayTable, definition};
use pbxt_testkit::{SimClock, SimDisk};
use std::sync::Arc;
use store::Store;

/// A row with a value that leaves it.
fn large(id: u32) -> PlayRow {
    let mut row = PlayRow::new(id);
    let bytes: Vec<u8> = (0..LARGE as u32 + 5000)
        .map(|at| (at.wrapping_mul(id + 7) >> 3) as u8)
        .collect();
    row.memo = Some(Arc::from(bytes));
    row
}

fn insert(client: &mut Client, table: &PlayTable, ids: std::ops::Range<u32>) -> Vec<RowId> {
    let rows = ids
        .map(|id| client.insert(table, &large(id)).expect("inserted"))
        .collect();
    client.session.commit().expect("committed");
    rows
}

/// All background work, twice a checkpoint between: what is found dead before one goes after it.
fn settle(store: &Store) {
    for _ in 0..2 {
        while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
        store.db.checkpoint_step().expect("made");
    }
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
}

/// Where the first value of a segment begins.
const FIRST_VALUE: u64 = SEGMENT_HEADER_BYTES as u64;

fn value_bytes(store: &Store) -> u64 {
    let segments = store.db.blobs().segments().expect("a listing");
    segments.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn values_of_dropped_and_truncated_tables_go() {
    for homes in [false, true] {
        let mut store = Store::new();
        insert(&mut store.client, &store.table, 0..5);
        let before = value_bytes(&store);
        let passing = PlayTable::create(&store.db, "passing").expect("a table");
        insert(&mut store.client, &passing, 0..30);
        if homes {
            store.fill();
            store.compact();
            store.merge();
        }
        assert!(value_bytes(&store) > 4 * before);
        store.db.truncate_table(None, "passing").expect("emptied");
        settle(&store);
        let segment = 2 * pbxt_sim::world::geometry().blob_segment_bytes;
        assert!(value_bytes(&store) <= before + segment, "homed: {homes}");
        let passing = PlayTable::open(&store.db, "passing").expect("a table");
        insert(&mut store.client, &passing, 0..30);
        drop(passing);
        store.db.drop_table(None, "passing").expect("dropped");
        settle(&store);
        assert!(value_bytes(&store) <= before + segment, "homed: {homes}");
        store.shows(0..5);
    }
}

#[test]
fn who_still_reads_a_dropped_table_is_told_that_it_is_gone() {
    // Nothing keeps readers away from a table that goes, and what it had is given back: that is no damage.
    for homes in [false, true] {
        let mut store = Store::new();
        let passing = PlayTable::create(&store.db, "passing").expect("a table");
        insert(&mut store.client, &passing, 0..300);
        if homes {
            store.fill();
            store.compact();
            store.merge();
        }
        let mut cursor = pbxt::Cursor::new(&passing.table);
        let mut reader = Client::new(&store.db, 9);
        let session = &mut reader.session;
        cursor.bind(session, pbxt::Bind::default()).expect("bound");
        cursor.scan_start(session).expect("begun");
        let mut next = || {
            let mut id = None;
            let found = cursor.scan_next(session, |version| {
                id = Some(passing.decode(version.payload())?.id);
                Ok(())
            });
            found.map(|_| id)
        };
        assert_eq!(next().expect("read"), Some(0));
        store.db.drop_table(None, "passing").expect("dropped");
        settle(&store);
        store.fill();
        settle(&store);
        let mut told = 0;
        for _ in 1..300 {
            match next() {
                Ok(_) => {}
                Err(pbxt::Error::DefinitionChanged { .. }) => told += 1,
                Err(other) => panic!("homed: {homes}: {other:?}"),
            }
        }
        assert!(told > 0, "homed: {homes}: nothing was given back");
    }
}

#[test]
fn dead_values_go_although_there_is_always_log_to_be_homed() {
    let mut store = Store::new();
    let rows = insert(&mut store.client, &store.table, 0..60);
    for row in rows {
        let small = store
            .client
            .update(&store.table, row, |old| PlayRow::new(old.id))
            .expect("updated");
        small.expect("there");
    }
    store.client.session.commit().expect("committed");
    let before = value_bytes(&store);
    for _ in 0..40 {
        store.fill();
        store.fill();
        store.db.housekeeping_step();
        let worked = store.db.upkeep_step(false).expect("worked");
        assert_eq!(worked, Progress::Worked, "there is always something to do");
        store.db.maintenance_step(false).expect("a look");
    }
    assert!(
        value_bytes(&store) <= 2 * pbxt_sim::world::geometry().blob_segment_bytes,
        "S62: {} of {before}",
        value_bytes(&store)
    );
    store.shows(0..60);
}

#[test]
fn values_of_rows_that_were_not_written_or_were_taken_back_go() {
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..3);
    for id in 0..3 {
        store
            .client
            .insert(&store.table, &large(id))
            .expect_err("the key is taken");
    }
    store.client.session.rollback().expect("rolled back");
    store.client.insert(&store.table, &large(10)).expect("inserted");
    let savepoint = store.client.session.savepoint().expect("set");
    for id in 20..30 {
        store.client.insert(&store.table, &large(id)).expect("inserted");
    }
    store.client.session.rollback_to(savepoint).expect("rolled back");
    store.client.session.commit().expect("committed");
    for id in 20..30 {
        store.client.insert(&store.table, &large(id)).expect("inserted");
    }
    store.client.session.rollback().expect("rolled back");
    settle(&store);
    store.shows([0, 1, 2, 10]);
    let rows = store.client.scan(&store.table).expect("readable");
    for (row, _) in rows {
        store.client.delete(&store.table, row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    settle(&store);
    store.shows([]);
    assert_eq!(value_bytes(&store), 0, "nothing is left");
}

#[test]
fn values_whose_transaction_a_crash_ended_go() {
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..2);
    store.db.checkpoint_step().expect("made");
    let mut other = Client::new(&store.db, 7);
    for id in 100..140 {
        other.insert(&store.table, &large(id)).expect("inserted");
    }
    store.db.blobs().sync().expect("synced");
    store.db.flush().expect("flushed");
    let before = value_bytes(&store);
    drop(other);
    store.kill();
    assert!(value_bytes(&store) >= before, "the crash leaves them");
    settle(&store);
    store.shows(0..2);
    assert!(
        value_bytes(&store) < before / 4,
        "{} of {before}",
        value_bytes(&store)
    );
}

#[test]
fn values_of_unfinished_work_and_of_old_snapshots_stay() {
    let mut store = Store::new();
    let rows = insert(&mut store.client, &store.table, 0..4);
    let mut reader = Client::new(&store.db, 3);
    assert_eq!(reader.scan(&store.table).expect("read").len(), 4);
    for row in rows {
        store.client.delete(&store.table, row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    let mut writer = Client::new(&store.db, 4);
    writer.insert(&store.table, &large(50)).expect("inserted");
    // Stored, but no row names it yet.
    let row = large(51);
    let payload = store.table.encode_for(&mut writer.session, &row).expect("stored");
    settle(&store);
    let rows = reader.scan(&store.table).expect("values are read");
    assert_eq!(rows.len(), 4);
    reader.session.commit().expect("ended");
    let keys = store.table.key_changes(None, &row).expect("keys");
    let version = NewVersion {
        payload: &payload,
        schema_version: store.table.schema_version(),
        keys: &keys,
    };
    writer
        .session
        .insert(&store.table.table, version)
        .expect("inserted");
    writer.session.commit().expect("committed");
    settle(&store);
    store.shows([50, 51]);
    let rows = store.client.scan(&store.table).expect("read");
    for (_, row) in rows {
        assert_eq!(row, large(row.id));
    }
}

/// What background work does while the foreground writes on, with checkpoints as they come.
fn keep_pace(store: &Store) {
    for _ in 0..2 {
        while store.db.upkeep_step(false).expect("worked") == Progress::Worked {}
        store.db.checkpoint_step().expect("made");
    }
    while store.db.upkeep_step(false).expect("worked") == Progress::Worked {}
}

#[test]
fn values_of_work_that_was_taken_back_go_under_load_too() {
    // S63: a server that is never idle keeps no values that nobody met.
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..4);
    let segment = pbxt_sim::world::geometry().blob_segment_bytes;
    let living = value_bytes(&store);
    for round in 0..20 {
        for id in 100..120 {
            store.client.insert(&store.table, &large(id)).expect("inserted");
        }
        store.client.session.rollback().expect("rolled back");
        let passing = PlayTable::create(&store.db, "passing").expect("a table");
        insert(&mut store.client, &passing, 0..20);
        drop(passing);
        store.db.drop_table(None, "passing").expect("dropped");
        keep_pace(&store);
        let (left, most) = (room(&store), 2 * living + 2 * segment);
        assert!(
            left <= most,
            "S63: {left} bytes of {living} that live, round {round}"
        );
    }
    store.shows(0..4);
}

#[test]
fn a_census_goes_on_while_rows_move_and_tables_change() {
    let mut store = Store::new();
    let rows = insert(&mut store.client, &store.table, 0..40);
    store.fill();
    store.compact();
    store.merge();
    insert(&mut store.client, &store.table, 40..60);
    for id in 200..230 {
        store.client.insert(&store.table, &large(id)).expect("inserted");
    }
    store.client.session.rollback().expect("rolled back");
    let passing = PlayTable::create(&store.db, "passing").expect("a table");
    insert(&mut store.client, &passing, 0..10);
    drop(passing);
    let (mut steps, mut next) = (0, 60);
    while store.db.census_step().expect("counted") == Progress::Worked {
        // Rows leave the log, take other values, go, and come; a table goes in the middle.
        match steps % 4 {
            0 => store.fill(),
            1 => store.compact(),
            2 => store.merge(),
            _ => {}
        }
        if steps == 3 {
            store.db.drop_table(None, "passing").expect("dropped");
        }
        if let Some(row) = rows.get(steps).filter(|_| steps % 2 == 0) {
            store.client.delete(&store.table, *row).expect("deleted");
            store.client.insert(&store.table, &large(next)).expect("inserted");
            store.client.session.commit().expect("committed");
            next += 1;
        }
        steps += 1;
        assert!(steps < 1000, "it ends");
    }
    assert!(steps > 8, "S21: a census of many rows takes steps, not {steps}");
    settle(&store);
    let gone: Vec<u32> = (0..40)
        .filter(|id| id % 2 == 0 && (*id as usize) < steps)
        .collect();
    store.shows((0..next).filter(|id| !gone.contains(id)));
    for (_, row) in store.client.scan(&store.table).expect("values are read") {
        if row.memo.is_some() {
            assert_eq!(row, large(row.id));
        }
    }
}

#[test]
fn what_lives_asks_for_no_census_under_load() {
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..64);
    settle(&store);
    for id in 64..70 {
        insert(&mut store.client, &store.table, id..id + 1);
        store.client.insert(&store.table, &large(1000)).expect("inserted");
        store.client.session.rollback().expect("rolled back");
        keep_pace(&store);
    }
    let first = store.db.census_step().expect("counted");
    assert_eq!(
        first,
        Progress::Worked,
        "S63: it was left to the first idle moment"
    );
    store.shows(0..70);
}

#[test]
fn an_idle_database_rests_between_two_censuses_of_many_rows() {
    let clock = Arc::new(SimClock::new());
    let mut store = Store::with_clock(&clock);
    insert(&mut store.client, &store.table, 0..100);
    store.insert(1_000..12_000);
    settle(&store);
    clock.advance_millis(60_000);
    for _ in 0..3 {
        for id in 100..120 {
            store.client.insert(&store.table, &large(id)).expect("inserted");
        }
        store.client.session.rollback().expect("rolled back");
        clock.advance_millis(60_000);
        settle(&store);
        assert_eq!(store.db.background_jobs().expect("counted"), 0, "all is done");
        let left = value_bytes(&store);
        for id in 100..120 {
            store.client.insert(&store.table, &large(id)).expect("inserted");
        }
        store.client.session.rollback().expect("rolled back");
        settle(&store);
        assert!(value_bytes(&store) > left, "S64: it rests");
        assert_eq!(store.db.background_jobs().expect("counted"), 1, "S64: it is due");
    }
    assert_eq!(
        store.db.census_step().expect("taken"),
        Progress::Worked,
        "asked for"
    );
    store.shows((0..100).chain(1_000..12_000));
}

/// Rows of which three in four are gone, so that every file has dead values beside living ones.
fn thinned(rows: u32) -> Store {
    let mut store = Store::new();
    for (id, row) in insert(&mut store.client, &store.table, 0..rows)
        .into_iter()
        .enumerate()
    {
        if id % 4 != 0 {
            store.client.delete(&store.table, row).expect("deleted");
        }
    }
    store.client.session.commit().expect("committed");
    store
}

fn has_every_fourth(db: &Arc<Database>, rows: u32) {
    let table = PlayTable::open(db, "t").expect("the table is there");
    let mut client = Client::new(db, 9);
    let found = client.scan(&table).expect("values are read");
    let mut found: Vec<_> = found.into_iter().map(|(_, row)| row).collect();
    found.sort_by_key(|row| row.id);
    let expected: Vec<_> = (0..rows).step_by(4).map(large).collect();
    assert!(found == expected, "{} rows", found.len());
    client.session.commit().expect("ended");
}

/// Of each dead stretch of 64 rows the blocks at both ends can be shared with values that live.
const BORDERS: u64 = 2 * GIVE_BACK_BYTES * 16;

fn room(store: &Store) -> u64 {
    store.db.space().expect("the bytes").blob
}

#[test]
fn room_of_dead_values_beside_living_ones_is_given_back() {
    let mut store = thinned(64);
    let before = room(&store);
    assert_eq!(before, value_bytes(&store));
    settle(&store);
    let (most, least) = (before / 4 + BORDERS, before / 4);
    assert!(
        (least..=most).contains(&room(&store)),
        "{} of {before}",
        room(&store)
    );
    assert_eq!(value_bytes(&store), before, "the files are as long as before");
    has_every_fourth(&store.db, 64);
    for seed in 0..20 {
        has_every_fourth(&store.after_power_cut(seed), 64);
    }
    store.kill();
    settle(&store);
    has_every_fourth(&store.db, 64);
    for (row, _) in store.client.scan(&store.table).expect("read") {
        store.client.delete(&store.table, row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    settle(&store);
    assert_eq!(value_bytes(&store), 0, "nothing is left");
}

#[test]
fn power_that_goes_while_room_is_given_back_costs_no_value() {
    for cut in 0.. {
        let store = thinned(24);
        while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
        store.db.checkpoint_step().expect("made");
        store.disk.cut_power_at(store.disk.operations() + cut);
        let given = loop {
            match store.db.blob_step() {
                Ok(Progress::Worked) => {}
                done => break done,
            }
        };
        has_every_fourth(&store.after_power_cut(cut), 24);
        if given.is_ok() {
            assert!(cut > 4, "room was given back in {cut} calls");
            break;
        }
    }
}

#[test]
fn no_room_is_given_back_before_a_checkpoint_knows_of_it() {
    let store = thinned(24);
    let before = room(&store);
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    assert_eq!(room(&store), before, "S50");
}

/// One listing serves the segments that go and the room of others, and one the question whether a census is due.
#[test]
fn a_step_lists_the_directory_once() {
    let store = thinned(64);
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    for _ in 0..3 {
        let before = store.disk.listings();
        store.db.blob_step().expect("worked");
        assert_eq!(store.disk.listings() - before, 1);
    }
    let before = store.disk.listings();
    store.db.background_jobs().expect("counted");
    assert!(store.disk.listings() - before <= 1, "of a census, or none");
}

#[test]
fn what_the_image_has_is_offered_after_an_opening() {
    let mut store = thinned(64);
    let before = room(&store);
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    store.db.checkpoint_step().expect("made");
    store.kill();
    let steps = |store: &Store| while store.db.blob_step().expect("worked") == Progress::Worked {};
    steps(&store);
    assert_eq!(room(&store), before, "S50: no checkpoint since");
    store.db.checkpoint_step().expect("made");
    steps(&store);
    let most = before / 4 + BORDERS;
    assert!(room(&store) <= most, "S51: {} of {before}", room(&store));
    has_every_fourth(&store.db, 64);
}

#[test]
fn values_go_of_which_a_power_cut_left_less_than_was_known_to_be_dead() {
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..1);
    let living = value_bytes(&store);
    let mut other = Client::new(&store.db, 7);
    for id in 100..108 {
        other.insert(&store.table, &large(id)).expect("inserted");
    }
    assert_eq!(store.db.blobs().segments().expect("a listing").len(), 1);
    drop(other);
    store.kill();
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    store.db.checkpoint_step().expect("made");
    assert!(value_bytes(&store) > 3 * living, "it has a value that lives");
    store
        .disk
        .truncate("blob-00000001.seg", living)
        .expect("cut where the last synced value ends");
    store.kill();
    store.shows(0..1);
    store.db.drop_table(None, "t").expect("dropped");
    settle(&store);
    assert_eq!(value_bytes(&store), 0, "nothing is left");
}

#[test]
fn segments_without_a_value_go() {
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..1);
    let living = value_bytes(&store);
    store.kill();
    store.disk.set_free_bytes(Some(FIRST_VALUE));
    store
        .client
        .insert(&store.table, &large(1))
        .expect_err("there is room for a header");
    store.client.session.rollback().expect("rolled back");
    store.disk.set_free_bytes(None);
    assert_eq!(value_bytes(&store), living + FIRST_VALUE);
    store.kill();
    settle(&store);
    assert_eq!(value_bytes(&store), living, "a segment that was only begun goes");
    store.shows(0..1);
}

#[test]
fn what_was_dead_at_an_orderly_close_goes_without_another_checkpoint() {
    let mut store = Store::new();
    insert(&mut store.client, &store.table, 0..2);
    store.db.drop_table(None, "t").expect("dropped");
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    assert!(value_bytes(&store) > 0, "S16: no checkpoint since");
    let passing = PlayTable::create(&store.db, "t").expect("a table");
    drop(passing);
    store.reopen();
    let checkpoints = store.db.maintenance_status().checkpoints;
    assert_eq!(store.db.blob_step().expect("worked"), Progress::Worked);
    assert_eq!(value_bytes(&store), 0, "nothing is left");
    assert_eq!(store.db.maintenance_status().checkpoints, checkpoints);
}

#[test]
fn values_of_a_load_stay_while_its_rows_wait() {
    let mut store = Store::new();
    let table = &store.table;
    let session = &mut store.client.session;
    session.begin_statement().expect("begun");
    session.bulk_begin(&table.table, u64::MAX, false);
    for id in 0..20 {
        let row = large(id);
        let payload = table.encode_for(session, &row).expect("stored");
        let keys = table.key_changes(None, &row).expect("keys");
        let version = NewVersion {
            payload: &payload,
            schema_version: table.schema_version(),
            keys: &keys,
        };
        session.insert_or_load(&table.table, version).expect("taken");
    }
    settle(&store);
    let session = &mut store.client.session;
    session.bulk_end(&store.table.table, false).expect("loaded");
    session.end_statement();
    session.commit().expect("committed");
    settle(&store);
    store.shows(0..20);
    let rows = store.client.scan(&store.table).expect("read");
    for (_, row) in rows {
        assert_eq!(row, large(row.id));
    }
}

/// A table of nothing but a number and a text that is filled up with spaces, which are not stored.
fn padded(db: &Arc<Database>) -> Arc<Table> {
    let kinds = [ColumnKind::Fixed(4), ColumnKind::Padded { len: 8000, pad: b' ' }];
    let column = |kind| Column {
        kind,
        nullable: false,
    };
    let def = TableDef {
        schema: Schema::new(1, kinds.map(column).to_vec()).expect("two columns"),
        indexes: Vec::new(),
        ..definition("padded").expect("a definition")
    };
    db.create_table(def, 1).expect("a new table")
}

#[test]
fn values_of_padded_columns_stay() {
    // S27: such a text leaves a row that is too long as any other does.
    for homes in [false, true] {
        let mut store = Store::new();
        let (table, value) = (padded(&store.db), vec![7; 6000]);
        let insert = store.client.statement(|session| {
            let kept = session.keep_value(&value)?;
            let mut row = RowBuilder::new(table.schema());
            row.set(0, Some(&[1, 0, 0, 0]))?;
            let (addr, len, hash) = (kept.addr, kept.len, kept.hash);
            row.set_external(1, BlobRef { addr, len, hash })?;
            let (mut payload, keys) = (Vec::new(), KeyChanges::new());
            row.finish(&mut payload)?;
            let version = NewVersion {
                payload: &payload,
                schema_version: table.schema().version(),
                keys: &keys,
            };
            session.insert(&table, version)?;
            Ok(kept)
        });
        let kept = insert.expect("inserted");
        store.client.session.commit().expect("committed");
        if homes {
            store.fill();
            store.compact();
            store.merge();
        }
        settle(&store);
        let mut back = Vec::new();
        let read = store.db.blobs().read(&kept, &mut back);
        read.unwrap_or_else(|error| panic!("homed: {homes}: {error}"));
        assert!(back == value, "homed: {homes}");
    }
}

#[test]
fn a_census_after_every_change_leaves_no_segment_for_every_value() {
    // S26: a server that has little to do takes one whenever it has a moment.
    let disk = SimDisk::new();
    let segment_bytes = 4 << 20;
    let options = Options {
        geometry: Geometry {
            blob_segment_bytes: segment_bytes,
            ..pbxt_sim::world::geometry()
        },
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    let db = Database::open(Arc::new(disk.clone()), &options).expect("the database opens");
    let table = PlayTable::create(&db, "t").expect("a new table");
    let client = Client::new(&db, 1);
    let mut store = Store {
        db,
        table,
        client,
        disk,
    };
    let rows = insert(&mut store.client, &store.table, 0..1);
    for id in 1..200 {
        insert(&mut store.client, &store.table, id..id + 1);
        let grouped = |row: &PlayRow| PlayRow {
            group: Some(id),
            ..row.clone()
        };
        let updated = store.client.update(&store.table, rows[0], grouped);
        assert!(updated.expect("updated").is_some(), "the row is there");
        store.client.session.commit().expect("committed");
        while store.db.census_step().expect("taken") == Progress::Worked {}
    }
    let segments = store.db.blobs().segments().expect("a listing").len() as u64;
    let most = 16 + value_bytes(&store).div_ceil(segment_bytes / 16);
    assert!(segments <= most, "{segments} segments, and {most} would do");
    // What a census finds in the end is all there is.
    for (row, _) in store.client.scan(&store.table).expect("read") {
        store.client.delete(&store.table, row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    settle(&store);
    assert_eq!(value_bytes(&store), 0, "nothing is left");
}
