//! Encrypted databases: nothing of them can be read in their files, and a power cut, a missing key and a change of keys lose nothing
//! (rules EN1 to EN14 of docs/encryption.md).

mod common;
#[path = "common/secrets.rs"]
mod secrets;

use common::options;
use pbxt::{Database, Error, file_kind};
use pbxt_base::Error as StorageError;
use pbxt_io::{Disk, EncryptedDisk, FileKind, OsDisk};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::{Fault, SimDisk, Sweep};
use secrets::{Keys, New, SECRET, TABLE, expected, has, is_ours, open_on, row, rows_of, settle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

fn open(disk: &SimDisk, keys: &Arc<Keys>) -> pbxt::Result<Arc<Database>> {
    open_on(Arc::new(disk.clone()), keys, New::Encrypted)
}

const ROWS: u32 = 24;

/// Rows 1, 2, 3, ... in single commits, with work in the background between, and an orderly close. Answers the last that was
/// acknowledged.
fn life(disk: &SimDisk) -> u32 {
    let mut acknowledged = 0;
    // The first error ends it.
    let _ = live(disk, &mut acknowledged);
    acknowledged
}

fn live(disk: &SimDisk, acknowledged: &mut u32) -> pbxt::Result<()> {
    let db = open(disk, &Keys::of(&[(1, 9)]))?;
    let table = PlayTable::create(&db, TABLE)?;
    let mut client = Client::new(&db, 1);
    for id in 1..=ROWS {
        client.insert(&table, &row(id))?;
        client.session.commit()?;
        *acknowledged = id;
        if id % 9 == 0 {
            settle(&db)?;
        }
    }
    drop((client, table));
    db.close()
}

/// No file has the secret, or a name.
fn assert_unreadable(disk: &SimDisk) {
    for name in disk
        .list()
        .expect("a listing")
        .iter()
        .filter(|name| is_ours(name))
    {
        let content = disk.content(name).expect("the file");
        for plain in [SECRET, TABLE, "PBXTSEG1", "PBXTMAN1"] {
            assert!(!has(&content, plain), "EN1: '{name}' has '{plain}'");
        }
    }
}

#[test]
fn nothing_of_a_database_can_be_read_in_its_files() {
    let disk = SimDisk::new();
    let mut acknowledged = 0;
    live(&disk, &mut acknowledged).expect("nothing fails");
    assert_eq!(acknowledged, ROWS);
    assert_unreadable(&disk);
    // An opening finishes the log's segment, so that its rows can be homed.
    let db = open(&disk, &Keys::of(&[(1, 9)])).expect("the database opens");
    settle(&db).expect("settled");
    assert!(rows_of(&db, "opened again") == expected(ROWS));
    assert_unreadable(&disk);
    // Of every kind of file there is one, or the net has a hole.
    let names = disk.list().expect("a listing");
    let kinds: Vec<FileKind> = names.iter().map(|name| file_kind(name)).collect();
    for kind in [
        FileKind::Log,
        FileKind::Rows,
        FileKind::Indexes,
        FileKind::Blobs,
        FileKind::Manifest,
    ] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn the_net_finds_the_value_where_nothing_is_encrypted() {
    let disk = SimDisk::new();
    let db = open_on(Arc::new(disk.clone()), &Keys::of(&[]), New::Plain).expect("the database opens");
    let table = PlayTable::create(&db, TABLE).expect("a table");
    let mut client = Client::new(&db, 1);
    client.insert(&table, &row(1)).expect("inserted");
    client.session.commit().expect("committed");
    let found = catch_unwind(AssertUnwindSafe(|| assert_unreadable(&disk))).expect_err("it is there");
    let text = found.downcast_ref::<String>().expect("a sentence");
    assert!(text.starts_with("EN1: '"), "{text}");
}

#[test]
fn a_power_cut_before_any_operation_of_an_encrypted_life_loses_nothing() {
    let images = Sweep { seeds: 2, step: 1 }.run(life, |disk, &acknowledged, case| {
        assert_unreadable(disk);
        let keys = Keys::of(&[(1, 9)]);
        let db = open(disk, &keys).unwrap_or_else(|error| panic!("{case}: {error}"));
        let found = rows_of(&db, case);
        let last = found.len() as u32;
        assert!(
            (acknowledged..=acknowledged + 1).contains(&last),
            "{case}: {last} of {acknowledged}"
        );
        assert!(found == expected(last), "{case}");
        // And the next life takes it from there.
        let table = PlayTable::open(&db, TABLE).or_else(|_| PlayTable::create(&db, TABLE));
        let (table, mut client) = (table.expect("the table"), Client::new(&db, 1));
        for id in last + 1..last + 4 {
            client.insert(&table, &row(id)).expect("inserted");
            client.session.commit().expect("committed");
        }
        drop((client, table));
        settle(&db).expect("settled");
        let again = disk.kill();
        drop(db);
        let db = open(&again, &keys).unwrap_or_else(|error| panic!("{case}, again: {error}"));
        assert!(rows_of(&db, case) == expected(last + 3), "{case}, again");
        assert_unreadable(&again);
    });
    assert!(images > 150, "{images}");
}

#[test]
fn an_encrypted_life_after_a_failed_sync_loses_no_commit() {
    let keys = Keys::of(&[(1, 9)]);
    let insert = |db: &Arc<Database>, ids: std::ops::RangeInclusive<u32>| -> pbxt::Result<()> {
        let table = PlayTable::open(db, TABLE).or_else(|_| PlayTable::create(db, TABLE))?;
        let mut client = Client::new(db, 1);
        for id in ids {
            client.insert(&table, &row(id))?;
            client.session.commit()?;
        }
        Ok(())
    };
    for seed in 0..20 {
        let disk = SimDisk::new();
        let db = open(&disk, &keys).expect("the database opens");
        insert(&db, 1..=6).expect("inserted");
        disk.plant(Fault::FailSync {
            prefix: "hot-".into(),
            nth: 1,
        });
        insert(&db, 7..=7).expect_err("its sync fails");
        let lives = disk.kill();
        drop(db);
        let db = open(&lives, &keys).expect("the database opens");
        assert!(rows_of(&db, "all that was written") == expected(7));
        insert(&db, 8..=8).expect("inserted");
        let db = open(&lives.crash(seed), &keys).unwrap_or_else(|error| panic!("D34: seed {seed}: {error}"));
        assert!(rows_of(&db, "after the power cut") == expected(8), "seed {seed}");
    }
}

fn refusal(disk: &SimDisk, keys: &Arc<Keys>) -> String {
    match open(disk, keys) {
        Ok(_) => panic!("it opened"),
        Err(Error::Storage(error @ StorageError::Encrypted { .. })) => error.to_string(),
        Err(error) => panic!("EN11: {error}"),
    }
}

fn content(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().expect("a listing");
    let read = |name: String| (name.clone(), disk.content(&name).expect("content"));
    names.into_iter().map(read).collect()
}

#[test]
fn a_missing_or_wrong_key_refuses_by_name_and_loses_nothing() {
    // Closed in order, and as a power cut leaves it: no file may be taken for torn or for an orphan.
    let closed = SimDisk::new();
    life(&closed);
    let dead = SimDisk::new();
    dead.cut_power_at(closed.operations() * 2 / 3);
    let acknowledged = life(&dead);
    for (disk, last) in [(closed.kill(), ROWS), (dead.crash(7), acknowledged)] {
        let before = content(&disk);
        // There is a key to write with, of another version than that of the files.
        let missing = refusal(&disk, &Keys::of(&[(2, 10)]));
        let words = "' is encrypted with version 1 of key 1: there is no such key: ask the test";
        assert!(missing.contains(words), "{missing}");
        let wrong = refusal(&disk, &Keys::of(&[(1, 10)]));
        let words = "version 1 of key 1: the key of that number and version is another one now: ask";
        assert!(wrong.contains(words), "{wrong}");
        let none = Database::open(Arc::new(disk.clone()), &options());
        let none = none.expect_err("no keys at all").to_string();
        assert!(
            none.contains("is encrypted with version 1 of key 1: no keys were given"),
            "{none}"
        );
        assert!(content(&disk) == before, "EN11: a refusal changes nothing");
        let db = open(&disk, &Keys::of(&[(1, 9)])).expect("with its key it opens");
        let rows = rows_of(&db, "after refusals");
        assert!(rows.len() as u32 >= last && rows == expected(rows.len() as u32));
    }
}

#[test]
fn a_full_or_failing_disk_cancels_what_it_cancels_without_encryption() {
    let faults = [
        None,
        Some(Fault::FailWrite {
            prefix: "meta".into(),
            nth: 1,
        }),
        Some(Fault::FailWrite {
            prefix: "meta".into(),
            nth: 3,
        }),
        Some(Fault::FailSync {
            prefix: "meta".into(),
            nth: 1,
        }),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let disk = SimDisk::new();
        let keys = Keys::of(&[(1, 9)]);
        let db = open(&disk, &keys).expect("the database opens");
        let table = PlayTable::create(&db, TABLE).expect("a table");
        let mut client = Client::new(&db, 1);
        let mut insert = |ids: std::ops::RangeInclusive<u32>| {
            for id in ids {
                client.insert(&table, &row(id)).expect("inserted");
                client.session.commit().expect("committed");
            }
        };
        insert(1..=12);
        let before = disk.list().expect("a listing");
        match fault {
            Some(fault) => disk.plant(fault),
            None => disk.set_free_bytes(Some(3000)),
        }
        let refused = db.checkpoint_step().expect_err("no room, or a failure");
        let is_full = matches!(refused, Error::Storage(StorageError::NoSpace { .. }));
        assert_eq!(is_full, number == 0, "fault {number}: {refused}");
        assert_eq!(db.poisoned(), None, "fault {number}");
        assert_eq!(
            disk.list().expect("a listing"),
            before,
            "fault {number}: what was begun is gone"
        );
        disk.set_free_bytes(None);
        insert(13..=20);
        db.checkpoint_step().expect("a checkpoint");
        assert!(rows_of(&db, "after it") == expected(20), "fault {number}");
        let db = open(&disk.kill(), &keys).expect("the database opens");
        assert!(rows_of(&db, "opened again") == expected(20), "fault {number}");
    }
}

/// Bits between two that are flipped: a prime, so that all places of a sector are met.
const STRIDE: u64 = 6007;

/// All rows, or the error that somebody gets who asks for them.
fn ask(disk: &SimDisk, keys: &Arc<Keys>, case: &str) -> pbxt::Result<Vec<PlayRow>> {
    let db = open(disk, keys)?;
    let table = PlayTable::open(&db, TABLE)?;
    let agreed = Client::new(&db, 1).agreed(&table)?;
    let rows = agreed.unwrap_or_else(|differs| panic!("{case}: {differs}"));
    let mut rows: Vec<PlayRow> = rows.into_iter().map(|(_, row)| row).collect();
    rows.sort_unstable_by_key(|row| row.id);
    Ok(rows)
}

#[test]
fn a_flipped_bit_of_an_encrypted_file_gives_an_error_or_the_right_answer() {
    let disk = SimDisk::new();
    life(&disk);
    let (keys, wanted, mut found) = (Keys::of(&[(1, 9)]), expected(ROWS), 0);
    for name in disk
        .list()
        .expect("a listing")
        .iter()
        .filter(|name| is_ours(name))
    {
        let bits = 8 * disk.content(name).expect("the file").len() as u64;
        // The header's sector more closely.
        let places = (0..4096).step_by(61).chain((4096..bits).step_by(STRIDE as usize));
        for bit in places {
            let damaged = disk.kill();
            damaged
                .flip_bit(name, bit / 8, (bit % 8) as u32)
                .expect("flipped");
            let case = format!("bit {bit} of '{name}'");
            match ask(&damaged, &keys, &case) {
                Ok(rows) => assert!(rows == wanted, "TR1: {case}"),
                Err(Error::Storage(StorageError::Encrypted { .. })) => panic!("EN11: {case}"),
                Err(_) => found += 1,
            }
        }
    }
    assert!(found > 100, "{found}");
}

#[test]
fn a_plain_database_becomes_encrypted_and_plain_again_as_its_files_are_replaced() {
    let disk = SimDisk::new();
    let keys = Keys::of(&[(1, 9)]);
    let mut last = 0;
    // Off, on, another version, off.
    let (on, off) = (New::Encrypted, New::Plain);
    for (round, write) in [off, on, on, off].into_iter().enumerate() {
        if round == 2 {
            keys.0.lock().insert(2, 10);
        }
        let db = open_on(Arc::new(disk.clone()), &keys, write).expect("the database opens");
        assert!(rows_of(&db, "mixed") == expected(last), "EN2: round {round}");
        let table = PlayTable::open(&db, TABLE).or_else(|_| PlayTable::create(&db, TABLE));
        let (table, mut client) = (table.expect("the table"), Client::new(&db, 1));
        for id in last + 1..=last + 12 {
            client.insert(&table, &row(id)).expect("inserted");
            client.session.commit().expect("committed");
        }
        last += 12;
        settle(&db).expect("settled");
        assert!(rows_of(&db, "mixed") == expected(last), "EN2: round {round}");
        for _ in 0..2 {
            last += 1;
            client.insert(&table, &row(last)).expect("inserted");
            client.session.commit().expect("committed");
            db.checkpoint_step().expect("made");
        }
        let now = EncryptedDisk::new(Arc::new(disk.clone()), keys.clone(), (write == on).then_some(1));
        let now = now.expect("the key is there");
        for name in ["pbxt.manifest.a", "pbxt.manifest.b"] {
            let is_renewed =
                !disk.exists(name).expect("listed") || now.is_as_new_files(name).expect("readable");
            assert!(is_renewed, "EN3: round {round}: '{name}' keeps the key of before");
        }
        drop((client, table));
        if round % 2 == 0 {
            db.close().expect("closed");
        }
        drop(db);
        let db = open_on(Arc::new(disk.kill()), &keys, write).expect("the database opens");
        assert!(
            rows_of(&db, "mixed") == expected(last),
            "EN2: round {round}, opened again"
        );
    }
}

#[test]
fn a_real_directory_is_encrypted_past_the_page_cache_too() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, keys) = (directory.path(), Keys::of(&[(1, 9)]));
    let on = |path: &Path| -> Arc<dyn Disk> { Arc::new(OsDisk::open(path, true).expect("the directory")) };
    {
        let db = open_on(on(path), &keys, New::Encrypted).expect("the database opens");
        let table = PlayTable::create(&db, TABLE).expect("a table");
        let mut client = Client::new(&db, 1);
        for id in 1..=300 {
            client.insert(&table, &row(id)).expect("inserted");
            client.session.commit().expect("committed");
        }
        settle(&db).expect("settled");
        assert!(rows_of(&db, "first life") == expected(300));
        drop((client, table));
        db.close().expect("closed");
    }
    for entry in std::fs::read_dir(path).expect("a listing") {
        let file = entry.expect("an entry").path();
        let content = std::fs::read(&file).expect("the file");
        assert!(!has(&content, SECRET), "EN1: {}", file.display());
    }
    let db = open_on(on(path), &keys, New::Plain).expect("the database opens");
    assert!(rows_of(&db, "second life") == expected(300));
}
