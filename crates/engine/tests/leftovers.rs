//! Files that nothing names: rule F18 of docs/format.md.

#[path = "common/store.rs"]
mod store;
#[path = "common/told.rs"]
mod told;

use pbxt::{Database, Progress};
use pbxt_base::SegmentId;
use pbxt_io::Disk;
use pbxt_segment::{SegmentClass, segment_name};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::SimDisk;
use std::sync::Arc;
use store::Store;
use told::open;

fn put(disk: &SimDisk, name: &str, content: &[u8]) {
    let file = disk.create(name, 0).expect("made");
    file.write_at(content, 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir().expect("synced");
}

fn closed() -> SimDisk {
    let mut store = Store::new();
    store.insert(0..200);
    store.fill();
    store.compact();
    store.reopen();
    drop(store.client);
    store.db.close().expect("closed");
    store.disk.kill()
}

const NOTES: &[u8] = b"notes of somebody, in a folder that he took for his";

#[test]
fn files_of_others_stay_and_are_told_and_are_in_nobodys_way() {
    let disk = closed();
    let names = [
        "hot-0000ffff.seg",
        "cold-0000ffff.seg",
        "meta-0000ffff.seg",
        "blob-0000ffff.seg",
        "cold-ffffffff.seg",
    ];
    for name in names {
        put(&disk, name, NOTES);
    }
    for _ in 0..2 {
        let (db, told) = open(&disk);
        let (removed, left) = (told.removed, told.left_alone);
        let db = db.expect("F18: the database opens");
        assert_eq!(removed, [""; 0]);
        assert_eq!(left.len(), names.len(), "F18: {left:?}");
        for name in names {
            assert_eq!(
                left.iter().filter(|text| text.contains(name)).count(),
                1,
                "F18: {left:?}"
            );
        }
        let table = PlayTable::open(&db, "t").expect("the table is there");
        let mut client = Client::new(&db, 1);
        let before = client.count(&table).expect("counted") as u32;
        for id in before..before + 100 {
            client.insert(&table, &Store::row(id)).expect("inserted");
        }
        client.session.commit().expect("committed");
        db.checkpoint_step().expect("a checkpoint");
        db.checkpoint_step().expect("a checkpoint");
        while db.blob_step().expect("looked at") == Progress::Worked {}
        let rows = client.agreed(&table).expect("readable").expect("agreed");
        assert_eq!(rows.len() as u32, before + 100);
        drop((client, table));
        db.close().expect("closed");
        drop(db);
        for name in names {
            assert_eq!(disk.content(name).expect("F18: the file is there"), NOTES);
        }
    }
}

/// The next number of a piece file or of a segment of large values.
fn next(db: &Database, class: SegmentClass) -> SegmentId {
    match class {
        SegmentClass::Blob => {
            let listed = db.store().list(class).expect("listed");
            SegmentId::new(listed.last().map_or(0, |id| id.raw()) + 1)
        }
        _ => db.store().next_piece_id(class),
    }
}

#[test]
fn files_that_appear_while_a_database_is_open_stay_and_are_in_nobodys_way() {
    let disk = closed();
    let mut own = disk.list().expect("listed").into_iter();
    let image = own.rfind(|name| name.starts_with("meta-")).expect("an image");
    let image = disk.content(&image).expect("readable");
    let mut store = Store::of(&disk);
    let mut put_there = Vec::new();
    for class in [SegmentClass::Cold, SegmentClass::Meta, SegmentClass::Blob] {
        let next = next(&store.db, class).raw();
        for (number, content) in [
            (next, NOTES),
            (next + 1, &image),
            (next + 3, NOTES),
            (0xFFFF, &image),
        ] {
            put_there.push((segment_name(class, SegmentId::new(number)), content.to_vec()));
        }
    }
    // Below the log's start.
    put_there.push((segment_name(SegmentClass::Hot, SegmentId::new(1)), image));
    for (name, content) in &put_there {
        put(&disk, name, content);
    }
    for round in 1..4 {
        store.insert(round * 1000..round * 1000 + 200);
        let mut large = Store::row(round * 1000 + 500);
        large.memo = Some(Arc::from(vec![round as u8; 100_000]));
        store.client.insert(&store.table, &large).expect("inserted");
        store.fill();
        store.compact();
        store.db.checkpoint_step().expect("F18: a checkpoint");
        store.merge();
    }
    while store.db.blob_step().expect("looked at") == Progress::Worked {}
    let ids = (1..4).flat_map(|round| (round * 1000..round * 1000 + 200).chain([round * 1000 + 500]));
    let expected: Vec<u32> = (0..200).chain(ids).collect();
    store.shows(expected.clone());
    let sizes = store.db.store().sizes().expect("listed");
    for (name, content) in &put_there {
        assert_eq!(disk.content(name).as_ref().ok(), Some(content), "F18: {name}");
        let is_counted = sizes
            .iter()
            .any(|(class, id, _)| segment_name(*class, *id) == *name);
        assert!(!is_counted, "F18: {name}");
    }
    store.reopen();
    store.shows(expected);
    for (name, content) in put_there.iter().filter(|(_, content)| *content == NOTES) {
        assert_eq!(
            store.disk.content(name).as_ref().ok(),
            Some(content),
            "F18: {name}"
        );
    }
}

#[test]
fn a_file_of_others_in_the_place_of_the_next_log_segment_is_named() {
    let disk = closed();
    let hot = disk
        .list()
        .expect("listed")
        .into_iter()
        .filter(|name| name.starts_with("hot-"));
    let last = hot.max().expect("a log");
    let number = u32::from_str_radix(&last[4..12], 16).expect("a number");
    let next = segment_name(SegmentClass::Hot, SegmentId::new(number + 1));
    put(&disk, &next, NOTES);
    let why = open(&disk).0.expect_err("F18: it is in the way").to_string();
    assert!(why.contains(&next) && why.contains("move it away"), "{why}");
    assert_eq!(disk.content(&next).expect("F18: the file is there"), NOTES);
    Disk::remove(&disk, &next).expect("moved away");
    open(&disk).0.expect("it is not in the way any more");
}

#[test]
fn removed_files_are_told_and_of_many_the_number() {
    let disk = closed();
    let names = disk.list().expect("listed");
    let own = names
        .iter()
        .find(|name| name.starts_with("meta-"))
        .expect("an image");
    let content = disk.content(own).expect("readable");
    for number in 0..13 {
        put(
            &disk,
            &segment_name(SegmentClass::Meta, SegmentId::new(5000 + number)),
            &content,
        );
    }
    put(&disk, "cold-00005000.seg", b"");
    put(&disk, "cold-00005001.seg", &[0; 100]);
    let (db, told) = open(&disk);
    let (removed, left) = (told.removed, told.left_alone);
    drop(db.expect("the database opens"));
    assert_eq!(left, [""; 0]);
    assert_eq!(removed.len(), 11, "F18: {removed:?}");
    assert!(removed[10].contains("5 more files"), "F18: {removed:?}");
    assert!(
        removed[..10].iter().all(|text| text.contains("was removed")),
        "F18: {removed:?}"
    );
    let names = disk.list().expect("listed");
    assert!(
        names
            .iter()
            .all(|name| !name.contains("-0000138") && !name.contains("-00005")),
        "{names:?}"
    );
    let (db, told) = open(&disk.kill());
    drop(db.expect("the database opens"));
    assert_eq!(
        (told.removed, told.left_alone),
        (vec![], vec![]),
        "F18: told once"
    );
}
