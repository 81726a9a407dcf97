//! A file of index entries that is damaged where an opening reads it: rule D39 of docs/durability.md.

mod common;
#[path = "common/store.rs"]
mod store;
#[path = "common/told.rs"]
mod told;

use pbxt::{Database, Seek};
use pbxt_io::Disk;
use pbxt_segment::{PieceFile, SegmentClass, segment_name};
use pbxt_sim::client::Client;
use pbxt_sim::table::{NAME_INDEX, PlayTable};
use pbxt_testkit::SimDisk;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Store;

const ROWS: u32 = 300;
const TAIL_BYTES: u64 = 48;

/// An opening, and the damage that it told.
fn open(disk: &SimDisk) -> (pbxt::Result<Arc<Database>>, Vec<String>) {
    let (opened, told) = told::open(disk);
    (opened, told.damage)
}

fn opened(disk: &SimDisk) -> (Arc<Database>, Vec<String>) {
    let (db, told) = open(disk);
    (db.expect("D39: the database opens"), told)
}

/// A file with index entries of the table.
struct Runs {
    name: String,
    /// Where its directory lies.
    directory: std::ops::Range<u64>,
    /// Names of the table's indexes that have a section in it.
    indexes: BTreeSet<String>,
}

/// A closed database whose table has all entries in runs, and their files.
fn settled() -> (SimDisk, Vec<Runs>) {
    let mut store = Store::new();
    store.insert(0..ROWS);
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    let files = runs_of(&store.db, &store.table, &store.disk);
    store.reopen();
    drop(store.client);
    store.db.close().expect("closed");
    (store.disk.kill(), files)
}

fn runs_of(db: &Arc<Database>, table: &PlayTable, disk: &SimDisk) -> Vec<Runs> {
    let mut found = Vec::new();
    for id in db.store().list(SegmentClass::Meta).expect("listed") {
        let file = PieceFile::open(db.store(), SegmentClass::Meta, id).expect("a piece file");
        let owners: BTreeSet<u64> = file.sections().iter().map(|section| section.owner).collect();
        let indexes = table.table.indexes.iter().map(|index| &index.def);
        let indexes: BTreeSet<String> = indexes
            .filter(|def| owners.contains(&u64::from(def.id.raw())))
            .map(|def| def.name.clone())
            .collect();
        if !indexes.is_empty() {
            let name = segment_name(SegmentClass::Meta, id);
            let content = disk.content(&name).expect("the file is there");
            let tail = &content[content.len() - TAIL_BYTES as usize..];
            let directory = u64::from_le_bytes(tail[8..16].try_into().expect("eight bytes"));
            found.push(Runs {
                name,
                directory: directory..content.len() as u64 - TAIL_BYTES,
                indexes,
            });
        }
    }
    assert!(!found.is_empty(), "there are files of entries");
    found
}

fn names(table: &PlayTable, aside: &Runs) -> Vec<(usize, bool)> {
    let indexes = table.table.indexes.iter().enumerate();
    indexes
        .map(|(at, index)| (at, aside.indexes.contains(&index.def.name)))
        .collect()
}

/// Whoever needs the damaged file is told of it; rows and other indexes are there.
fn is_set_aside(db: &Arc<Database>, runs: &Runs, rows: usize) {
    let table = PlayTable::open(db, "t").expect("the table is there");
    let mut client = Client::new(db, 1);
    let scanned = client.scan(&table).expect("D39: rows are read");
    assert_eq!(scanned.len(), rows);
    assert_eq!(client.count(&table).expect("counted"), rows as u64);
    for (index, is_aside) in names(&table, runs) {
        for forward in [true, false] {
            let read = client.index_scan(&table, index, forward);
            match read {
                Ok(read) => assert!(
                    !is_aside && read.len() == rows,
                    "D39: index {index}: {}",
                    read.len()
                ),
                Err(error) => assert!(
                    is_aside && error.to_string().contains(&runs.name),
                    "D39: index {index}: {error}"
                ),
            }
        }
        if index != NAME_INDEX {
            let sought = client.seek(&table, index, &table.prefix(index, &[Some(7)]), Seek::OrNext);
            assert_eq!(sought.is_err(), is_aside, "D39: index {index}");
        }
    }
    let findings = client.check(&table).expect("checkable");
    assert!(
        findings
            .iter()
            .any(|text| text.contains(&runs.name) && text.contains("set aside")),
        "B15: {findings:?}"
    );
}

#[test]
fn damage_of_a_directory_sets_its_indexes_aside_and_nothing_else() {
    let (disk, files) = settled();
    for runs in &files {
        let damaged = disk.kill();
        let at = runs.directory.start + 20;
        damaged.flip_bit(&runs.name, at, 3).expect("flipped");
        let (db, told) = opened(&damaged);
        for index in &runs.indexes {
            let is_told = |text: &&String| {
                [
                    &format!("index '{index}' of table 't'"),
                    &runs.name,
                    "REPAIR TABLE",
                ]
                .iter()
                .all(|part| text.contains(*part))
            };
            assert_eq!(told.iter().filter(is_told).count(), 1, "D39: {told:?}");
        }
        is_set_aside(&db, runs, ROWS as usize);
    }
}

#[test]
fn what_a_damaged_file_of_entries_has_is_named_until_it_is_made_anew() {
    let (disk, files) = settled();
    let runs = &files[0];
    disk.flip_bit(&runs.name, runs.directory.start + 5, 0)
        .expect("flipped");
    let (db, _) = opened(&disk);
    let table = PlayTable::open(&db, "t").expect("the table is there");
    let mut client = Client::new(&db, 1);
    let refused = client.insert(&table, &Store::row(ROWS + 7));
    let is_refused = refused
        .as_ref()
        .is_err_and(|error| error.to_string().contains(&runs.name));
    assert!(
        is_refused,
        "D39: nobody can say whether its key is free: {refused:?}"
    );
    client.session.rollback().expect("nothing to keep");
    let (row, _) = *client
        .scan(&table)
        .expect("rows are read")
        .first()
        .expect("a row");
    client.delete(&table, row).expect("a delete asks no index");
    client.session.commit().expect("committed");
    for _ in 0..3 {
        db.checkpoint_step().expect("a checkpoint");
        while db
            .index_merge_step()
            .is_ok_and(|done| done == pbxt::Progress::Worked)
        {}
        db.forget_step().expect("nothing is forgotten");
    }
    drop(client);
    db.close().expect("closed");
    drop((table, db));
    assert!(
        disk.exists(&runs.name).expect("asked"),
        "D39: it is named by the new image"
    );
    let (db, told) = opened(&disk);
    assert!(!told.is_empty(), "D39: it is told at each opening");
    is_set_aside(&db, runs, ROWS as usize - 1);
    drop(db);
    let mended = disk.kill();
    mended
        .flip_bit(&runs.name, runs.directory.start + 5, 0)
        .expect("flipped");
    let (db, told) = opened(&mended);
    assert_eq!(told, [""; 0]);
    let table = PlayTable::open(&db, "t").expect("the table is there");
    let mut client = Client::new(&db, 1);
    let rows = client.agreed(&table).expect("readable").expect("agreed");
    assert_eq!(
        rows.len(),
        ROWS as usize - 1,
        "D39: who puts the file back has the index back"
    );
    assert_eq!(client.check(&table).expect("checkable"), [""; 0]);
}

#[test]
fn a_missing_or_foreign_file_of_entries_is_refused() {
    let (disk, files) = settled();
    let name = &files[0].name;
    let missing = disk.kill();
    Disk::remove(&missing, name).expect("removed");
    missing.sync_dir().expect("synced");
    let why = open(&missing).0.expect_err("D22: it is lost").to_string();
    assert!(why.contains(name) && why.contains("no such file"), "{why}");
    let exchanged = disk.kill();
    let mut names = disk.list().expect("listed").into_iter();
    let other = names.find(|other| other.starts_with("meta") && other != name);
    let others = disk
        .content(&other.expect("the image"))
        .expect("the file is there");
    Disk::remove(&exchanged, name).expect("removed");
    let file = exchanged.create(name, 0).expect("made");
    file.write_at(&others, 0).expect("written");
    drop(file);
    let why = open(&exchanged)
        .0
        .expect_err("D39: files were mixed up")
        .to_string();
    assert!(
        why.contains(name) && why.contains("the segment its name says"),
        "{why}"
    );
}

/// Of a load that no checkpoint has, the stamp stands in its files.
#[test]
fn a_load_of_the_tail_whose_files_are_damaged_is_set_aside() {
    let store = Store::new();
    let mut client = Client::new(&store.db, 7);
    let rows: Vec<_> = (0..ROWS * 4).map(Store::row).collect();
    let loaded = client.statement(|session| {
        session.bulk_begin(&store.table.table, u64::MAX, false);
        let done = rows
            .iter()
            .try_for_each(|row| common::put(session, &store.table, row));
        session.bulk_end(&store.table.table, done.is_err()).and(done)
    });
    loaded.expect("a load");
    client.session.commit().expect("committed");
    store.db.flush().expect("durable");
    let files = runs_of(&store.db, &store.table, &store.disk);
    let damaged = store.disk.kill();
    for runs in &files {
        damaged
            .flip_bit(&runs.name, runs.directory.start + 20, 3)
            .expect("flipped");
    }
    let (db, told) = opened(&damaged);
    assert_eq!(
        told.len(),
        files.iter().map(|runs| runs.indexes.len()).sum::<usize>(),
        "D39: {told:?}"
    );
    let table = PlayTable::open(&db, "t").expect("the table is there");
    let mut client = Client::new(&db, 1);
    assert_eq!(client.scan(&table).expect("rows are read").len(), rows.len());
    assert!(client.index_scan(&table, 0, true).is_err(), "D39");
    client.session.rollback().expect("nothing was changed");
    db.checkpoint_step().expect("a checkpoint");
    drop((client, table, db));
    let mended = damaged.kill();
    for runs in &files {
        mended
            .flip_bit(&runs.name, runs.directory.start + 20, 3)
            .expect("flipped");
    }
    for disk in [damaged.kill(), mended] {
        let (db, told) = opened(&disk);
        let table = PlayTable::open(&db, "t").expect("the table is there");
        let mut client = Client::new(&db, 1);
        assert_eq!(
            client.index_scan(&table, 0, true).is_ok(),
            told.is_empty(),
            "D39: {told:?}"
        );
        assert_eq!(client.scan(&table).expect("rows are read").len(), rows.len());
    }
}
