//! Files that nothing names, at an opening: rule F18 of docs/format.md.

#[path = "common/store.rs"]
mod store;
#[path = "common/told.rs"]
mod told;

use pbxt_base::SegmentId;
use pbxt_io::Disk;
use pbxt_segment::{SegmentClass, segment_name};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::SimDisk;
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
