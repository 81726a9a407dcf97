//! An encrypted table comes among plain ones: nothing of it is in any file, whenever the power fails and whatever was under way, and it
//! is one until it is dropped (rules EN17 to EN21 of docs/encryption.md). The test at stop points needs feature `stop-points`.

mod common;
#[cfg(feature = "stop-points")]
#[path = "common/hold.rs"]
mod hold;
#[path = "common/secrets.rs"]
mod secrets;

use common::{options, put};
use pbxt::{Alteration, Compression, Database, Error, Result, TableDef, file_kind};
use pbxt_base::Error as StorageError;
use pbxt_io::{Disk, FileKind};
use pbxt_sim::client::Client;
use pbxt_sim::table::{LARGE, PlayRow, PlayTable, definition};
use pbxt_testkit::{SimDisk, Sweep};
use secrets::{
    Keys, New, SECRET, TABLE, expected, has, is_ours, open_on, open_with_key, row, rows_in, rows_of, settle,
};
use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A table whose rows anybody may read.
const PLAIN: &str = "prices_of_everything";
/// How encrypted files begin.
const MAGIC: &[u8] = b"PBXTENC1";

fn open(disk: &SimDisk, keys: &Arc<Keys>) -> Result<Arc<Database>> {
    open_on(Arc::new(disk.clone()), keys, New::AsTablesAsk)
}

/// Its blocks are not compressed, so that what is in them is found.
fn create(db: &Arc<Database>, name: &str, encrypted: bool) -> Result<PlayTable> {
    let def = TableDef {
        encrypted,
        compression: Compression::None,
        ..definition(name)?
    };
    db.create_table(def, 1)?;
    PlayTable::open(db, name)
}

fn open_or_create(db: &Arc<Database>, name: &str, encrypted: bool) -> PlayTable {
    let table = PlayTable::open(db, name).or_else(|_| create(db, name, encrypted));
    table.expect("the table")
}

/// A row of the plain table.
fn price(id: u32) -> PlayRow {
    let bytes = if id.is_multiple_of(4) { LARGE + 50 } else { 60 };
    PlayRow {
        tag: Some(id),
        name: format!("price {id}").into_bytes(),
        memo: Some(Arc::from(vec![id as u8; bytes])),
        ..PlayRow::new(id)
    }
}

fn prices(last: u32) -> Vec<PlayRow> {
    (1..=last).map(price).collect()
}

/// Inserts rows in single commits; `told` is the last one that was acknowledged.
fn insert(
    client: &mut Client,
    table: &PlayTable,
    ids: RangeInclusive<u32>,
    make: fn(u32) -> PlayRow,
    told: &mut u32,
) -> Result<()> {
    for id in ids {
        client.insert(table, &make(id))?;
        client.session.commit()?;
        *told = id;
    }
    Ok(())
}

/// What was acknowledged of a life.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    prices: u32,
    secrets: u32,
    has_secrets: bool,
}

/// Rows of a load, in one transaction.
const LOADED: u32 = 4;

/// A plain table, in all places that rows can be in; then one with secrets, which is `encrypted`, and both go on.
fn live(disk: &SimDisk, encrypted: bool, told: &mut Told) -> Result<()> {
    let db = open(disk, &Keys::of(&[(1, 9)]))?;
    let plain = create(&db, PLAIN, false)?;
    let (mut client, mut other) = (Client::new(&db, 1), Client::new(&db, 2));
    insert(&mut client, &plain, 1..=8, price, &mut told.prices)?;
    settle(&db)?;
    insert(&mut client, &plain, 9..=11, price, &mut told.prices)?;
    other.insert(&plain, &price(1000))?;
    let secret = create(&db, TABLE, encrypted)?;
    told.has_secrets = true;
    for id in 1..=10 {
        insert(&mut client, &secret, id..=id, row, &mut told.secrets)?;
        insert(&mut client, &plain, 11 + id..=11 + id, price, &mut told.prices)?;
        if id % 4 == 0 {
            settle(&db)?;
        }
    }
    other.session.rollback()?;
    let rows: Vec<PlayRow> = (11..=10 + LOADED).map(row).collect();
    client.statement(|session| {
        session.bulk_begin(&secret.table, u64::MAX, false);
        let done = rows.iter().try_for_each(|row| put(session, &secret, row));
        let ended = session.bulk_end(&secret.table, done.is_err());
        done.and(ended)
    })?;
    client.session.commit()?;
    told.secrets += LOADED;
    settle(&db)?;
    drop((client, other, plain, secret));
    db.close()
}

fn life(disk: &SimDisk) -> Told {
    let mut told = Told::default();
    // The first error ends it.
    let _ = live(disk, true, &mut told);
    told
}

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().expect("a listing").into_iter();
    let read = |name: String| {
        let content = disk.content(&name).expect("content");
        (name, content)
    };
    names.filter(|name| is_ours(name)).map(read).collect()
}

fn assert_no_secret(disk: &SimDisk, case: &str) {
    for (name, content) in files(disk) {
        for word in [SECRET, TABLE] {
            assert!(!has(&content, word), "EN18: {case}: '{name}' has '{word}'");
        }
    }
}

/// Files in plain, but for the manifest.
fn plain_files(disk: &SimDisk) -> BTreeSet<String> {
    let files = files(disk).into_iter();
    let plain = files.filter(|(name, content)| {
        file_kind(name) != FileKind::Manifest
            && content.iter().any(|byte| *byte != 0)
            && !content.starts_with(MAGIC)
    });
    plain.map(|(name, _)| name).collect()
}

fn is_encrypted(db: &Database) -> bool {
    db.catalog.find(TABLE).expect("the table").def().encrypted
}

#[test]
fn a_power_cut_at_any_moment_leaves_nothing_of_an_encrypted_table_in_plain() {
    let images = Sweep { seeds: 1, step: 1 }.run(life, |disk, told, case| {
        assert_no_secret(disk, case);
        let keys = Keys::of(&[(1, 9)]);
        let db = open(disk, &keys).unwrap_or_else(|error| panic!("{case}: {error}"));
        let (cheap, secret) = (rows_in(&db, PLAIN, case), rows_of(&db, case));
        let (last, last_secret) = (cheap.len() as u32, secret.len() as u32);
        assert!(
            (told.prices..=told.prices + 1).contains(&last) && cheap == prices(last),
            "{case}"
        );
        let most = told.secrets + if told.secrets == 10 { LOADED } else { 1 };
        assert!(
            (told.secrets..=most).contains(&last_secret) && secret == expected(last_secret),
            "{case}: {last_secret} of {}",
            told.secrets
        );
        assert!(!told.has_secrets || is_encrypted(&db), "{case}");
        // And the next life takes it from there.
        let (plain, table) = (
            open_or_create(&db, PLAIN, false),
            open_or_create(&db, TABLE, true),
        );
        let mut client = Client::new(&db, 1);
        insert(&mut client, &plain, last + 1..=last + 3, price, &mut 0).expect("inserted");
        insert(
            &mut client,
            &table,
            last_secret + 1..=last_secret + 3,
            row,
            &mut 0,
        )
        .expect("inserted");
        drop((client, plain, table));
        settle(&db).expect("settled");
        assert_no_secret(disk, case);
        let again = disk.kill();
        drop(db);
        let db = open(&again, &keys).unwrap_or_else(|error| panic!("{case}, again: {error}"));
        assert!(rows_in(&db, PLAIN, case) == prices(last + 3), "{case}, again");
        assert!(rows_of(&db, case) == expected(last_secret + 3), "{case}, again");
        settle(&db).expect("settled");
        assert_no_secret(&again, case);
    });
    assert!(images > 150, "{images}");
}

#[test]
fn the_net_finds_the_secret_in_every_kind_of_file_where_the_table_is_plain() {
    let disk = SimDisk::new();
    live(&disk, false, &mut Told::default()).expect("nothing fails");
    let told_in = |disk: &SimDisk| -> HashSet<FileKind> {
        let files = files(disk).into_iter();
        let told = files.filter(|(_, content)| has(content, SECRET));
        told.map(|(name, _)| file_kind(&name)).collect()
    };
    let mut kinds = told_in(&disk);
    // An opening finishes the log's segment, so that its rows can be homed.
    let db = open(&disk, &Keys::of(&[])).expect("the database opens");
    settle(&db).expect("settled");
    kinds.extend(told_in(&disk));
    for kind in [FileKind::Log, FileKind::Rows, FileKind::Indexes, FileKind::Blobs] {
        assert!(kinds.contains(&kind), "{kind:?} is not in {kinds:?}");
    }
}

#[test]
fn files_made_before_stay_plain_and_later_ones_are_encrypted() {
    let disk = SimDisk::new();
    let keys = Keys::of(&[(1, 9)]);
    let db = open(&disk, &keys).expect("the database opens");
    let plain = create(&db, PLAIN, false).expect("a table");
    let mut client = Client::new(&db, 1);
    insert(&mut client, &plain, 1..=12, price, &mut 0).expect("inserted");
    settle(&db).expect("settled");
    let before = disk.list().expect("a listing");
    assert!(
        files(&disk)
            .iter()
            .all(|(_, content)| !content.starts_with(MAGIC)),
        "EN12"
    );
    let secret = create(&db, TABLE, true).expect("a table");
    insert(&mut client, &secret, 1..=12, row, &mut 0).expect("inserted");
    insert(&mut client, &plain, 13..=24, price, &mut 0).expect("inserted");
    settle(&db).expect("settled");
    for name in plain_files(&disk) {
        assert!(before.contains(&name), "EN18: '{name}'");
    }
    assert!(files(&disk).iter().any(|(_, content)| content.starts_with(MAGIC)));
    assert!(rows_in(&db, PLAIN, "mixed") == prices(24) && rows_of(&db, "mixed") == expected(12));
    // What was plain goes with its rows.
    drop((client, plain, secret));
    db.close().expect("closed");
    drop(db);
    let again = disk.kill();
    let db = open(&again, &keys).expect("the database opens");
    settle(&db).expect("settled");
    assert!(
        plain_files(&again)
            .iter()
            .all(|name| file_kind(name) != FileKind::Log),
        "{:?}",
        plain_files(&again)
    );
    assert!(rows_in(&db, PLAIN, "again") == prices(24) && rows_of(&db, "again") == expected(12));
}

#[test]
fn new_files_are_plain_again_from_the_opening_after_the_last_encrypted_table_went() {
    let disk = SimDisk::new();
    let keys = Keys::of(&[(1, 9)]);
    let db = open(&disk, &keys).expect("the database opens");
    let plain = create(&db, PLAIN, false).expect("a table");
    let secret = create(&db, TABLE, true).expect("a table");
    let mut client = Client::new(&db, 1);
    insert(&mut client, &plain, 1..=12, price, &mut 0).expect("inserted");
    insert(&mut client, &secret, 1..=12, row, &mut 0).expect("inserted");
    drop((client, plain, secret));
    db.rename_table(None, TABLE, "passing").expect("renamed");
    db.drop_table(None, "passing").expect("dropped");
    let before = disk.list().expect("a listing");
    settle(&db).expect("settled");
    for name in plain_files(&disk) {
        assert!(before.contains(&name), "EN20: '{name}'");
    }
    drop(db);
    let again = disk.kill();
    let before = plain_files(&again);
    let db = open(&again, &keys).expect("the database opens");
    let plain = PlayTable::open(&db, PLAIN).expect("the table");
    insert(&mut Client::new(&db, 1), &plain, 13..=24, price, &mut 0).expect("inserted");
    settle(&db).expect("settled");
    let after = plain_files(&again);
    let made: HashSet<FileKind> = after.difference(&before).map(|name| file_kind(name)).collect();
    assert!(
        made.contains(&FileKind::Log) && made.contains(&FileKind::Indexes),
        "EN20: {made:?}"
    );
    assert_no_secret(&again, "dropped");
    assert!(rows_in(&db, PLAIN, "again") == prices(24));
}

#[test]
fn an_encrypted_table_stays_one_whatever_is_done_with_it() {
    let disk = SimDisk::new();
    let keys = Keys::of(&[(1, 9)]);
    let db = open(&disk, &keys).expect("the database opens");
    create(&db, TABLE, true).expect("a table");
    db.truncate_table(None, TABLE).expect("truncated");
    db.rename_table(None, TABLE, "elsewhere").expect("renamed");
    db.rename_table(None, "elsewhere", TABLE).expect("renamed");
    assert!(is_encrypted(&db));
    let old = db.catalog.find(TABLE).expect("the table").def();
    let plain = TableDef {
        encrypted: false,
        ..TableDef::clone(&old)
    };
    let refused = db.check_alter(plain.clone(), &Alteration::nothing(&old), true);
    assert!(
        matches!(refused, Err(Error::NeedsCopy { .. })),
        "EN21: {refused:?}"
    );
    let refused = db.redefine_table(None, plain, true);
    assert!(
        matches!(refused, Err(Error::DefinitionChanged { .. })),
        "EN21: {refused:?}"
    );
    let mut again = disk.kill();
    drop(db);
    // First from the log alone, then from an image.
    for round in 0..3 {
        let db = open(&again, &keys).expect("the database opens");
        assert!(is_encrypted(&db), "round {round}");
        let before = plain_files(&again);
        let table = PlayTable::open(&db, TABLE).expect("the table");
        let last = 6 * (round + 1);
        insert(&mut Client::new(&db, 1), &table, last - 5..=last, row, &mut 0).expect("inserted");
        settle(&db).expect("settled");
        assert!(plain_files(&again).is_subset(&before), "EN20: round {round}");
        assert_no_secret(&again, "opened again");
        assert!(rows_of(&db, "opened again") == expected(last), "round {round}");
        drop(table);
        drop(db);
        again = again.kill();
    }
}

fn refusal<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Storage(error @ (StorageError::NoKey { .. } | StorageError::Encrypted { .. }))) => {
            error.to_string()
        }
        Err(error) => panic!("EN11: {error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn without_a_key_an_encrypted_table_is_refused_and_so_is_an_opening() {
    let disk = SimDisk::new();
    let keys = Keys::of(&[]);
    let db = open(&disk, &keys).expect("no key is needed yet");
    let plain = create(&db, PLAIN, false).expect("a table");
    let refused = refusal(create(&db, TABLE, true));
    assert!(
        refused.contains("are to be encrypted with key 1: there is no such key"),
        "{refused}"
    );
    assert!(db.table_id(TABLE).is_none());
    insert(&mut Client::new(&db, 1), &plain, 1..=4, price, &mut 0).expect("inserted");
    settle(&db).expect("settled");
    assert!(
        files(&disk)
            .iter()
            .all(|(_, content)| !content.starts_with(MAGIC))
    );
    keys.0.lock().insert(1, 9);
    let secret = create(&db, TABLE, true).expect("now there is one");
    insert(&mut Client::new(&db, 1), &secret, 1..=4, row, &mut 0).expect("inserted");
    assert_no_secret(&disk, "refused once");
    drop((plain, secret));
    drop(db);
    let dead = disk.kill();
    let missing = refusal(open(&dead, &Keys::of(&[])));
    assert!(
        missing.contains("is encrypted with version 1 of key 1: there is no such key"),
        "{missing}"
    );
    // The files can be read, and new ones could not be made.
    let missing = refusal(open_with_key(Arc::new(dead.kill()), &keys, New::AsTablesAsk, 7));
    assert!(
        missing.contains("are to be encrypted with key 7: there is no such key"),
        "{missing}"
    );
    let db = open(&dead, &keys).expect("with its key it opens");
    assert!(
        rows_in(&db, PLAIN, "after refusals") == prices(4) && rows_of(&db, "after refusals") == expected(4)
    );
    // Who has no keys at all is told what to do.
    let bare = Database::open(Arc::new(SimDisk::new()), &options()).expect("a database");
    let refused = refusal(create(&bare, TABLE, true));
    assert!(
        refused.contains("no keys were given: open the directory through"),
        "{refused}"
    );
}

#[test]
fn a_full_disk_refuses_an_encrypted_table_and_it_can_be_made_later() {
    let disk = SimDisk::new();
    let db = open(&disk, &Keys::of(&[(1, 9)])).expect("the database opens");
    let plain = create(&db, PLAIN, false).expect("a table");
    let mut client = Client::new(&db, 1);
    insert(&mut client, &plain, 1..=4, price, &mut 0).expect("inserted");
    disk.set_free_bytes(Some(3000));
    match create(&db, TABLE, true) {
        Err(Error::Storage(StorageError::NoSpace { .. })) => {}
        other => panic!("no room: {other:?}"),
    }
    assert!(db.table_id(TABLE).is_none() && db.poisoned().is_none());
    insert(&mut client, &plain, 5..=5, price, &mut 0).expect("the reserve of the log is not touched");
    disk.set_free_bytes(None);
    let secret = create(&db, TABLE, true).expect("a table");
    insert(&mut client, &secret, 1..=4, row, &mut 0).expect("inserted");
    settle(&db).expect("settled");
    assert_no_secret(&disk, "full once");
    assert!(rows_in(&db, PLAIN, "full once") == prices(5) && rows_of(&db, "full once") == expected(4));
}

/// Where background work, a load, or a statement is stopped in the middle of a file.
#[cfg(feature = "stop-points")]
const POINTS: [&str; 10] = [
    "checkpoint.after_begin",
    "checkpoint.after_freeze",
    "checkpoint.after_install",
    "checkpoint.after_txns",
    "checkpoint.before_log_wait",
    "checkpoint.after_image",
    "piece.before_sync",
    "compact.before_install",
    "blob.after_reserve",
    "bulk.after_files",
];

#[cfg(feature = "stop-points")]
fn work_to(point: &str, db: &Arc<Database>) -> Result<()> {
    match point {
        "compact.before_install" => {
            db.housekeeping_step();
            while db.compact_step()? == pbxt::Progress::Worked {}
            Ok(())
        }
        "blob.after_reserve" | "bulk.after_files" => {
            let table = PlayTable::open(db, PLAIN)?;
            let mut client = Client::new(db, 5);
            client.statement(|session| {
                session.bulk_begin(&table.table, u64::MAX, false);
                let done = (40..=3040).try_for_each(|id| put(session, &table, &price(id)));
                let ended = session.bulk_end(&table.table, done.is_err());
                done.and(ended)
            })?;
            client.session.commit()
        }
        _ => db.checkpoint_step(),
    }
}

#[cfg(feature = "stop-points")]
#[test]
fn what_was_under_way_takes_nothing_of_an_encrypted_table_into_a_plain_file() {
    let turn = hold::turn();
    let keys = Keys::of(&[(1, 9)]);
    for point in POINTS {
        let first = SimDisk::new();
        let db = open(&first, &keys).expect("the database opens");
        let plain = create(&db, PLAIN, false).expect("a table");
        insert(&mut Client::new(&db, 1), &plain, 1..=12, price, &mut 0).expect("inserted");
        drop((plain, db));
        // The log's segment is finished, so that its rows can be homed.
        let disk = first.kill();
        let db = open(&disk, &keys).expect("the database opens");
        let plain = PlayTable::open(&db, PLAIN).expect("the table");
        let mut client = Client::new(&db, 1);
        insert(&mut client, &plain, 13..=20, price, &mut 0).expect("inserted");
        let worker = Arc::clone(&db);
        let held = hold::hold_at(&turn, point, move || work_to(point, &worker));
        let before = disk.list().expect("a listing");
        let secret = create(&db, TABLE, true).expect("a table");
        insert(&mut client, &secret, 1..=12, row, &mut 0).expect("inserted");
        assert_no_secret(&disk, point);
        held.release().expect("it goes on");
        insert(&mut client, &secret, 13..=20, row, &mut 0).expect("inserted");
        settle(&db).expect("settled");
        assert_no_secret(&disk, point);
        for name in plain_files(&disk) {
            assert!(before.contains(&name), "EN19: {point}: '{name}'");
        }
        assert!(rows_of(&db, point) == expected(20), "{point}");
        let again = disk.crash(7);
        drop((client, plain, secret));
        drop(db);
        let db = open(&again, &keys).expect("the database opens");
        assert!(rows_of(&db, point) == expected(20), "{point}, again");
        settle(&db).expect("settled");
        assert_no_secret(&again, point);
    }
}
