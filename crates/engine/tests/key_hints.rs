//! A search for a whole key may be led to its row by a hint; what it finds is what it would have found without. Rules X58, X59.

mod common;
#[path = "common/store.rs"]
mod store;

use common::{Bench, row};
use pbxt::{Bind, ConflictMode, Cursor, Error, Isolation, NewVersion, Result, Seek, Session, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::Store;

/// The row with this primary key, and its group.
fn find(client: &mut Client, table: &PlayTable, id: u32) -> Result<Option<(RowId, Option<u32>)>> {
    let key = table.prefix(0, &[Some(id)]);
    let found = client.seek(table, 0, &key, Seek::Key)?;
    Ok(found.map(|(at, row)| {
        assert_eq!(row.id, id, "a row with another key");
        (at, row.group)
    }))
}

fn row_of(client: &mut Client, table: &PlayTable, id: u32) -> Option<RowId> {
    let found = find(client, table, id).expect("readable");
    let again = find(client, table, id).expect("readable");
    assert_eq!(found, again, "X58: by the hint that the first search left");
    found.map(|(at, _)| at)
}

fn client(bench: &Bench, isolation: Isolation) -> Client {
    let mut client = bench.other(5);
    client.session.configure(SessionConfig {
        isolation,
        conflict_mode: ConflictMode::Wait,
        lock_wait_timeout_ms: 0,
        ..SessionConfig::default()
    });
    client
}

/// Rows 1 to 3, and hints.
fn three() -> (Bench, Vec<RowId>) {
    let mut bench = Bench::new();
    let rows = bench.client.insert_all(&bench.table, &[row(1), row(2), row(3)]);
    bench.client.session.commit().expect("a commit");
    bench.db.give_hints();
    (bench, rows.expect("new rows"))
}

/// Uses of decoded blocks by one search.
fn uses(store: &mut Store, id: u32) -> u64 {
    let hits = |store: &Store| store.db.status().block_cache.hits;
    let before = hits(store);
    let table = store.table.clone();
    assert!(find(&mut store.client, &table, id).expect("readable").is_some());
    hits(store) - before
}

#[test]
fn a_row_that_was_found_before_is_found_without_its_index() {
    let mut store = Store::new();
    store.insert(0..200);
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    // Blocks are at hand from the second use on.
    for _ in 0..3 {
        find(&mut store.client, &store.table.clone(), 77).expect("readable");
    }
    let without = uses(&mut store, 77);
    store.db.give_hints();
    uses(&mut store, 77);
    let with = uses(&mut store, 77);
    assert!(
        with < without,
        "X58: {with} blocks were used, {without} without a hint"
    );
    assert!(with >= 1, "the row is read");
}

#[test]
fn a_key_that_went_to_another_row_is_found_there_by_each_snapshot() {
    let (mut bench, rows) = three();
    let table = bench.table.clone();
    let mut old = client(&bench, Isolation::RepeatableRead);
    assert_eq!(row_of(&mut old, &table, 2), Some(rows[1]));
    bench.client.delete(&table, rows[1]).expect("a row");
    bench.client.session.commit().expect("a commit");
    let mut between = client(&bench, Isolation::RepeatableRead);
    assert_eq!(
        row_of(&mut between, &table, 2),
        None,
        "the hint of the row that is gone"
    );
    let new = bench.client.insert(&table, &row(2)).expect("the key is free");
    let mut beside = client(&bench, Isolation::RepeatableRead);
    assert_eq!(row_of(&mut beside, &table, 2), None, "it is not committed");
    bench.client.session.commit().expect("a commit");
    // The row with key 3 takes over key 30, the one with key 1 key 3.
    for (at, id) in [(rows[2], 30), (rows[0], 3)] {
        let change = |old: &PlayRow| PlayRow { id, ..old.clone() };
        bench.client.update(&table, at, change).expect("a row");
    }
    bench.client.session.commit().expect("a commit");
    for _ in 0..2 {
        let mut newest = client(&bench, Isolation::ReadCommitted);
        let of = |client: &mut Client| [1, 2, 3, 30].map(|id| row_of(client, &table, id));
        assert_eq!(of(&mut newest), [None, Some(new), Some(rows[0]), Some(rows[2])]);
        assert_eq!(of(&mut old), [Some(rows[0]), Some(rows[1]), Some(rows[2]), None]);
        assert_eq!(of(&mut between), [Some(rows[0]), None, Some(rows[2]), None]);
        assert_eq!(of(&mut beside), [Some(rows[0]), None, Some(rows[2]), None]);
    }
    bench.settle();
}

/// The row that a search in the running statement comes to.
fn find_in(session: &mut Session, table: &PlayTable, id: u32, seek: Seek) -> Option<RowId> {
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default()).expect("current");
    cursor.index_start(session, 0).expect("an index");
    let found = cursor.seek(session, &table.prefix(0, &[Some(id)]), seek, |_| Ok(()));
    found.expect("readable").then(|| cursor.row())
}

#[test]
fn who_has_changed_the_table_goes_the_normal_way() {
    let (mut bench, rows) = three();
    let table = bench.table.clone();
    let mut other = client(&bench, Isolation::ReadCommitted);
    let session = &mut other.session;
    session.begin_statement().expect("idle");
    assert_eq!(find_in(session, &table, 2, Seek::Key), Some(rows[1]));
    bench.client.delete(&table, rows[1]).expect("a row");
    bench.client.session.commit().expect("a commit");
    // The statement goes on seeing the row that is gone, and gives its key to another one, which the index has before it.
    let (old, new) = (row(1), row(2));
    let keys = table.key_changes(Some(&old), &new).expect("keys");
    let payload = table.encode(&new).expect("a row");
    let version = NewVersion {
        payload: &payload,
        schema_version: table.schema_version(),
        keys: &keys,
    };
    session
        .update(&table.table, rows[0], version)
        .expect("the key is free");
    let by_index = find_in(session, &table, 2, Seek::Exact);
    assert_eq!(by_index, Some(rows[0]));
    for _ in 0..3 {
        assert_eq!(row_of(&mut bench.client, &table, 2), None);
        assert_eq!(
            find_in(session, &table, 2, Seek::Key),
            by_index,
            "X58: the same one as without hints"
        );
    }
    session.end_statement();
    session.commit().expect("a commit");
    let own = row_of(&mut other, &table, 2).expect("its own row");
    assert_eq!(own, rows[0]);
    bench.client.session.commit().expect("nothing to commit");
    assert_eq!(row_of(&mut bench.client, &table, 2), Some(own));
    // What is rolled back was never there.
    bench.client.delete(&table, own).expect("a row");
    assert_eq!(row_of(&mut bench.client, &table, 2), None);
    bench.client.session.rollback().expect("a rollback");
    assert_eq!(row_of(&mut bench.client, &table, 2), Some(own));
    bench.client.session.commit().expect("nothing to commit");
}

#[test]
fn what_is_read_by_a_hint_is_noted_as_ever() {
    let (mut bench, rows) = three();
    let table = bench.table.clone();
    assert_eq!(row_of(&mut bench.client, &table, 1), Some(rows[0]));
    assert_eq!(row_of(&mut bench.client, &table, 2), Some(rows[1]));
    bench.client.session.commit().expect("nothing to commit");
    let mut both = [0, 1].map(|_| client(&bench, Isolation::Serializable));
    for (at, client) in both.iter_mut().enumerate() {
        assert_eq!(row_of(client, &table, 2 - at as u32), Some(rows[1 - at]));
    }
    let [one, two] = &mut both;
    let change = |old: &PlayRow| PlayRow {
        group: Some(7),
        ..old.clone()
    };
    one.update(&table, rows[0], change).expect("nobody has it");
    let second = two.update(&table, rows[1], change);
    one.session.commit().expect("the first to commit may");
    let end = match second {
        Ok(_) => two.session.commit(),
        Err(error) => Err(error),
    };
    assert!(matches!(end, Err(Error::Unserializable)), "T30: {end:?}");
}

#[test]
fn a_truncated_table_has_none_of_its_rows() {
    let (mut bench, rows) = three();
    assert_eq!(row_of(&mut bench.client, &bench.table, 3), Some(rows[2]));
    bench.client.session.commit().expect("nothing to commit");
    bench.db.truncate_table(None, "t").expect("nobody uses it");
    bench.table = PlayTable::open(&bench.db, "t").expect("the table is there");
    bench.db.give_hints();
    let table = bench.table.clone();
    assert_eq!(row_of(&mut bench.client, &table, 3), None);
    // Row ids begin anew.
    let new = bench.client.insert_all(&table, &[row(3), row(2), row(1)]);
    bench.client.session.commit().expect("a commit");
    assert_eq!(
        row_of(&mut bench.client, &table, 3),
        Some(new.expect("new rows")[0])
    );
    bench.settle();
}

#[test]
fn hints_come_with_use_and_go_without() {
    let mut store = Store::new();
    store.insert(0..1100);
    let table = store.table.clone();
    let bytes = |store: &Store| store.db.memory_use().hints;
    let ask = |store: &mut Store| {
        let session = &mut store.client.session;
        session.begin_statement().expect("idle");
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default()).expect("current");
        cursor.index_start(session, 0).expect("an index");
        for number in 0..4200_u32 {
            let key = table.prefix(0, &[Some(number % 1100)]);
            let found = cursor.seek(session, &key, Seek::Key, |_| Ok(()));
            assert!(found.expect("readable"));
        }
        cursor.let_go();
        session.end_statement();
        session.commit().expect("nothing to commit");
    };
    store.db.housekeeping_step();
    assert_eq!(bytes(&store), 0, "nobody asked");
    ask(&mut store);
    assert_eq!(bytes(&store), 0, "X59: no reader makes them");
    store.db.housekeeping_step();
    let taken = bytes(&store);
    assert!((1100 * 4..32 << 10).contains(&taken), "{taken} bytes");
    ask(&mut store);
    for _ in 0..590 {
        store.db.housekeeping_step();
    }
    assert_eq!(bytes(&store), taken, "not a minute without use");
    for _ in 0..30 {
        store.db.housekeeping_step();
    }
    assert_eq!(bytes(&store), 0, "X59: nobody asks any more");
}

#[test]
fn hints_that_are_given_to_many_indexes_take_the_part_of_all() {
    let mut bench = Bench::new();
    let rows: Vec<PlayRow> = (0..1100).map(row).collect();
    for number in 0..24 {
        let table = PlayTable::create(&bench.db, &format!("t{number}")).expect("a new table");
        bench.client.insert_all(&table, &rows).expect("new rows");
        bench.client.session.commit().expect("a commit");
    }
    bench.db.give_hints();
    let (taken, budget) = (bench.db.memory_use().hints, common::options().cache_bytes / 16);
    assert!(taken > budget / 2, "X59: {taken} bytes of {budget}");
    assert!(taken <= budget, "X59: {taken} bytes of {budget}");
}

/// Searches of a thread that reads while keys change hands.
fn watch(session: &mut Session, table: &PlayTable, keys: u32, round: u32) -> Result<()> {
    session.begin_statement()?;
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, 0)?;
    let mut first = vec![None; keys as usize];
    // Each key twice: the second time there is a hint, of this thread or of another one.
    for number in 0..2 * keys {
        let id = (number * 7 + round) % keys;
        let mut shown = None;
        let found = cursor.seek(session, &table.prefix(0, &[Some(id)]), Seek::Key, |version| {
            shown = Some(table.decode(version.payload())?);
            Ok(())
        })?;
        let shown = shown.filter(|_| found);
        let shown = shown.unwrap_or_else(|| panic!("X58: key {id} is in every snapshot"));
        assert_eq!(shown.id, id, "X58: a row with another key");
        let seen = (cursor.row(), shown.group);
        let before = first[id as usize].replace(seen);
        assert!(
            before.is_none_or(|before| before == seen),
            "key {id}: {before:?}, {seen:?}"
        );
    }
    session.end_statement();
    session.commit()
}

/// A transaction of the writer: a key goes to a new row, or two rows change keys by way of a third one.
fn shift(client: &mut Client, table: &PlayTable, keys: u32, round: u32) -> Result<()> {
    let [id, other] = [round % keys, (round * 5 + 1) % keys];
    let at =
        |client: &mut Client, id| find(client, table, id).map(|found| found.expect("each key is there").0);
    let one = at(client, id)?;
    if round.is_multiple_of(3) && id != other {
        let two = at(client, other)?;
        for (at, id) in [(one, keys + round), (two, id), (one, other)] {
            client.update(table, at, |old| PlayRow { id, ..old.clone() })?;
        }
    } else {
        client.delete(table, one)?;
        let row = PlayRow {
            group: Some(round),
            ..row(id)
        };
        client.insert(table, &row)?;
    }
    if round % 7 == 6 {
        client.session.rollback()
    } else {
        client.session.commit()
    }
}

#[test]
fn keys_that_change_hands_are_there_in_every_snapshot() {
    const KEYS: u32 = 24;
    const ROUNDS: u32 = 1500;
    let mut bench = Bench::new();
    let rows: Vec<PlayRow> = (0..KEYS).map(row).collect();
    bench.client.insert_all(&bench.table, &rows).expect("new rows");
    bench.client.session.commit().expect("a commit");
    bench.db.give_hints();
    let is_over = AtomicBool::new(false);
    let (db, table) = (&bench.db, &bench.table);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let is_over = &is_over;
            let mut reader = Client::new(db, 2 + number);
            scope.spawn(move || {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) || round < 10 {
                    watch(&mut reader.session, table, KEYS, round).expect("readable");
                    round += 1;
                }
            });
        }
        let is_over = &is_over;
        scope.spawn(move || {
            // Rows leave the log and are merged meanwhile.
            while !is_over.load(Ordering::Relaxed) {
                db.housekeeping_step();
                db.upkeep_step(true).expect("upkeep");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut writer = Client::new(db, 7);
        let done = (0..ROUNDS).try_for_each(|round| shift(&mut writer, table, KEYS, round));
        is_over.store(true, Ordering::Relaxed);
        done.expect("nobody else writes");
    });
    bench.settle();
}
