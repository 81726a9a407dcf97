//! The power fails at every stop point that one life of a database comes by, and each name in the list is come by.
//!
//! D6: of single-row commits numbered 1, 2, 3, ... a restart finds 1 to k, where k is between the last acknowledged and
//! the last requested one. Needs feature `stop-points`.

#![cfg(feature = "stop-points")]

mod common;
#[path = "common/family.rs"]
mod family;

use common::{open, put, row};
use family::{Opened, Plan, User};
use parking_lot::Mutex;
use pbxt::{Action, Alteration, ConflictMode, Database, Progress, SessionConfig};
use pbxt_base::RowId;
use pbxt_base::stop_point::{NAMES, set_hook};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Images kept of each stop point.
const KEPT: usize = 12;

struct Image {
    disk: SimDisk,
    acknowledged: u32,
    requested: u32,
}

#[derive(Default)]
struct Camera {
    images: Mutex<BTreeMap<&'static str, Vec<Image>>>,
    seen: Mutex<BTreeMap<&'static str, u64>>,
    acknowledged: AtomicU32,
    requested: AtomicU32,
}

impl Camera {
    fn look(&self, disk: &SimDisk, name: &'static str) {
        let mut seen = self.seen.lock();
        let times = seen.entry(name).or_default();
        *times += 1;
        // The first few, and then ever fewer.
        let mut images = self.images.lock();
        let kept = images.entry(name).or_default();
        if kept.len() < KEPT && (*times < 5 || times.is_power_of_two()) {
            kept.push(Image {
                disk: disk.crash(*times * 31),
                acknowledged: self.acknowledged.load(Ordering::SeqCst),
                requested: self.requested.load(Ordering::SeqCst),
            });
        }
    }
}

/// Commits the rows 1, 2, 3, ... one by one, and does a bit of everything between.
fn live(disk: &SimDisk, camera: &Camera) {
    let db = open(disk);
    let table = PlayTable::create(&db, "t").expect("no fault is planted");
    let (mut client, mut other) = (Client::new(&db, 1), Client::new(&db, 2));
    other.session.configure(SessionConfig {
        conflict_mode: ConflictMode::Wait,
        lock_wait_timeout_ms: 1,
        ..SessionConfig::default()
    });
    let mut first = RowId::new(u64::MAX);
    for id in 1..=400_u32 {
        let memo = vec![id as u8; if id % 9 == 0 { 3000 } else { 200 }];
        let content = PlayRow {
            tag: Some(id),
            memo: Some(memo.into()),
            ..row(id)
        };
        let made = client.insert(&table, &content).expect("no fault is planted");
        first = first.min(made);
        match id % 10 {
            1 => {
                let savepoint = client.session.savepoint().expect("no fault is planted");
                client.insert(&table, &row(100_000)).expect("no fault is planted");
                client
                    .session
                    .rollback_to(savepoint)
                    .expect("no fault is planted");
            }
            2 => {
                assert!(other.insert(&table, &content).is_err(), "the key is taken");
                other.session.rollback().expect("no fault is planted");
            }
            3 => {
                client
                    .update(&table, made, |old| PlayRow {
                        group: Some(id),
                        ..old.clone()
                    })
                    .expect("no fault is planted");
            }
            4 => {
                camera.requested.store(id, Ordering::SeqCst);
                client
                    .session
                    .prepare(format!("{id}").as_bytes())
                    .expect("no fault is planted");
            }
            5 if id % 50 == 5 => {
                PlayTable::create(&db, "passing").expect("no fault is planted");
                db.drop_table(None, "passing").expect("no fault is planted");
            }
            _ => {}
        }
        camera.requested.store(id, Ordering::SeqCst);
        client.session.commit().expect("no fault is planted");
        camera.acknowledged.store(id, Ordering::SeqCst);
        db.housekeeping_step();
        if id % 40 == 20 {
            move_rows(&db, &mut client, &table, first, id);
        }
        if id % 80 == 40 {
            db.checkpoint_step().expect("no fault is planted");
        }
    }
    forget_rows(&db, &mut client);
    load(&mut client, &table, camera);
    refer(&db);
    build(&db);
    drop((client, other));
    db.close().expect("no fault is planted");
}

/// A row that left the log comes back to it, and leaves it again with others.
fn move_rows(db: &Arc<Database>, client: &mut Client, table: &PlayTable, first: RowId, id: u32) {
    let grown = |old: &PlayRow| PlayRow {
        group: Some(id),
        ..old.clone()
    };
    let changed = client.update(table, first, grown).expect("no fault is planted");
    assert!(changed.is_some(), "the first row is there");
    client.session.commit().expect("no fault is planted");
    while db.upkeep_step(true).expect("no fault is planted") == Progress::Worked {}
}

/// A table whose rows are deleted, leave the log, the runs and the indexes, and are forgotten; of each two large values one stays.
fn forget_rows(db: &Arc<Database>, client: &mut Client) {
    let table = PlayTable::create(db, "forgotten").expect("no fault is planted");
    for id in 0..100 {
        let memo = (id >= 90).then(|| vec![id as u8; 10_000].into());
        let content = PlayRow { memo, ..row(id) };
        client.insert(&table, &content).expect("no fault is planted");
    }
    client.session.commit().expect("no fault is planted");
    settle(db, client);
    for (row, found) in client.scan(&table).expect("no fault is planted") {
        if found.id % 2 == 0 {
            client.delete(&table, row).expect("no fault is planted");
        }
    }
    client.session.commit().expect("no fault is planted");
    for _ in 0..4 {
        settle(db, client);
    }
    assert_eq!(db.status().gone_rows, 0, "S25: all are forgotten");
}

/// Fills segments of the log with rows of another table, so that what stands before them can leave it, and does all the work
/// there is.
fn settle(db: &Arc<Database>, client: &mut Client) {
    let filler = PlayTable::open(db, "filler").or_else(|_| PlayTable::create(db, "filler"));
    let filler = filler.expect("no fault is planted");
    let from = client.count(&filler).expect("no fault is planted") as u32;
    for id in from..from + 200 {
        let memo = Some(vec![id as u8; 300].into());
        let content = PlayRow { memo, ..row(id) };
        client.insert(&filler, &content).expect("no fault is planted");
    }
    client.session.commit().expect("no fault is planted");
    db.flush().expect("no fault is planted");
    db.housekeeping_step();
    let steps = [
        Database::compact_step,
        Database::row_merge_step,
        Database::index_merge_step,
        Database::gone_step,
        Database::index_merge_step,
        Database::gone_step,
        Database::blob_step,
    ];
    for step in steps {
        while step(db).expect("no fault is planted") == Progress::Worked {}
    }
    db.checkpoint_step().expect("no fault is planted");
}

/// Commits the rows from 401 on as a bulk load.
fn load(client: &mut Client, table: &PlayTable, camera: &Camera) {
    let rows: Vec<PlayRow> = (401..=1400).map(row).collect();
    camera.requested.store(1400, Ordering::SeqCst);
    let loaded = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        for row in &rows {
            put(session, table, row)?;
        }
        session.bulk_end(&table.table, false)
    });
    loaded.expect("no fault is planted");
    client.session.commit().expect("no fault is planted");
    camera.acknowledged.store(1400, Ordering::SeqCst);
}

/// A parent and a child that goes with it.
fn family() -> [Plan; 2] {
    [
        Plan::new("d/p", 2),
        Plan::new("d/c", 2).key("c", &[1], "d/p", &[0], Action::Cascade, Action::Cascade),
    ]
}

/// Three children of one row, which then goes.
fn refer(db: &Arc<Database>) {
    let [parent, child] = family().map(|plan| Opened::create(db, plan));
    let mut user = User::new(db, 1);
    user.insert(&parent, &family::row(&[7, 0]))
        .expect("no fault is planted");
    for id in 0..3 {
        user.insert(&child, &family::row(&[id, 7]))
            .expect("no fault is planted");
    }
    user.commit();
    user.delete(&parent, 7).expect("no fault is planted");
    user.commit();
}

/// FK15: the row and its children are there together or not at all.
fn check_family(name: &str, db: &Arc<Database>) {
    if !family().iter().all(|plan| db.table_id(&plan.name).is_some()) {
        return;
    }
    let mut user = User::new(db, 1);
    let rows = family().map(|plan| user.rows(&Opened::open(db, plan)).len());
    assert!(
        [[0, 0], [1, 3]].contains(&rows),
        "{name}: parents and children {rows:?}"
    );
}

/// A table without and with an index that an ALTER builds.
fn without_and_with_index() -> [Plan; 2] {
    let plan = Plan::new("d/b", 2);
    [plan.clone(), plan.index(&[1])]
}

/// Three rows, which get an index and are then analyzed.
fn build(db: &Arc<Database>) {
    let [without, with] = without_and_with_index();
    let table = Opened::create(db, without);
    let mut user = User::new(db, 1);
    let rows: Vec<_> = (0..3).map(|id| family::row(&[id, 7])).collect();
    user.insert_all(&table, &rows).expect("no fault is planted");
    user.commit();
    let change = Alteration {
        columns: vec![Some(0), Some(1)],
        indexes: vec![Some(0), None],
    };
    let opened = db.open_index_build(None, with.definition(), &change);
    let mut index = opened.expect("no fault is planted");
    index.run(&mut |_, _| {}).expect("no fault is planted");
    db.alter_tables_with(None, vec![with.definition()], &change, true, vec![index])
        .expect("no fault is planted");
    drop((user, table));
    let (user, table) = (User::new(db, 1), Opened::open(db, with));
    let analyzed = table.host.analyze(&user.session, &mut |_, _| {});
    analyzed.expect("no fault is planted");
}

/// AL21: all rows are in the index, or it is not there. ST5: its statistics are those of all rows, or there are none.
fn check_built(name: &str, db: &Arc<Database>) {
    let [without, with] = without_and_with_index();
    if db.table_id(&with.name).is_none() {
        return;
    }
    let table = match without.open(db) {
        Ok(host) => Opened { plan: without, host },
        Err(_) => Opened::open(db, with.clone()),
    };
    let mut user = User::new(db, 1);
    let rows = user.rows(&table).len();
    assert!([0, 3].contains(&rows), "{name}: {rows} rows");
    user.check(&table);
    let lines = db.list_index_statistics();
    let mut built = lines.iter().filter(|line| *line.table == *with.name);
    assert!(built.all(|line| line.entries == 3), "{name}: {lines:?}");
}

fn check(name: &str, image: &Image) {
    let db = open(&image.disk);
    check_family(name, &db);
    check_built(name, &db);
    for xid in db.prepared.xids() {
        db.commit_prepared(&xid).expect("the image is whole");
    }
    let mut client = Client::new(&db, 1);
    if let Ok(thinned) = PlayTable::open(&db, "forgotten") {
        let findings = client.check(&thinned).expect("the image is whole");
        assert_eq!(findings, Vec::<String>::new(), "{name}: values that live");
    }
    let Ok(table) = PlayTable::open(&db, "t") else {
        assert_eq!(image.acknowledged, 0, "{name}: the table is lost");
        return;
    };
    assert_eq!(
        client.check(&table).expect("the image is whole"),
        Vec::<String>::new(),
        "{name}"
    );
    let rows = client
        .agreed(&table)
        .expect("the image is whole")
        .unwrap_or_else(|differs| panic!("{name}: {differs}"));
    let found: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
    assert_eq!(found, (1..=found.len() as u32).collect::<Vec<_>>(), "{name}");
    let last = found.len() as u32;
    assert!(
        (image.acknowledged..=image.requested).contains(&last),
        "{name}: found {last} rows, {} acknowledged, {} requested",
        image.acknowledged,
        image.requested
    );
}

#[test]
fn whatever_the_moment_of_the_power_cut_the_acknowledged_rows_are_there_and_no_others() {
    let disk = SimDisk::new();
    let camera = Arc::new(Camera::default());
    let (filmed, behind) = (disk.clone(), Arc::clone(&camera));
    set_hook(Some(Arc::new(move |name| behind.look(&filmed, name))));
    live(&disk, &camera);
    // Every opening adds to the manifest until its file is half full.
    let is_full = || camera.seen.lock().contains_key("manifest.before_supersede");
    for _ in 0..1000 {
        if is_full() {
            break;
        }
        open(&disk).close().expect("the image is whole");
    }
    set_hook(None);
    let images = std::mem::take(&mut *camera.images.lock());
    for (name, images) in &images {
        for image in images {
            check(name, image);
        }
    }
    let never: Vec<_> = NAMES.iter().filter(|name| !images.contains_key(*name)).collect();
    assert!(never.is_empty(), "stop points that no code comes by: {never:?}");
}
