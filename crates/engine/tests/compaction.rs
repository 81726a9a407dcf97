//! Compaction on demand (S55) with background threads: jobs of rows side by side, indexes beside them, and the log's room behind it.

#[path = "common/store.rs"]
mod store;

use pbxt::{Database, Options, Space};
use pbxt_base::RowId;
use pbxt_io::Disk;
use pbxt_segment::Geometry;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;
use store::Store;

/// Rows of a base piece: with bytes that do not shrink they fill a file of their own (rule S32).
const PIECE_ROWS: u32 = 3000;
const PIECES: u32 = 3;
const MEMO_BYTES: usize = 400;

fn row(rng: &mut Rng, id: u32) -> PlayRow {
    let mut row = PlayRow::new(id);
    let bytes: Vec<u8> = (0..MEMO_BYTES).map(|_| rng.below(256) as u8).collect();
    row.memo = Some(Arc::from(bytes));
    row
}

/// A table whose oldest run has some pieces, of which every third row was removed lately.
fn with_removals() -> Store {
    let (mut store, mut rng) = (Store::new(), Rng::new(5));
    for piece in 0..PIECES {
        for id in piece * PIECE_ROWS..(piece + 1) * PIECE_ROWS {
            let inserted = store.client.insert(&store.table, &row(&mut rng, id));
            inserted.expect("inserted");
            if id % 100 == 0 {
                store.client.session.commit().expect("committed");
            }
        }
        store.client.session.commit().expect("committed");
        store.fill();
        store.compact();
        store.merge();
    }
    store.db.checkpoint_step().expect("a checkpoint");
    for id in (0..PIECES * PIECE_ROWS).filter(|id| id % 3 == 0) {
        let removed = store.client.delete(&store.table, RowId::new(u64::from(id) + 1));
        removed.expect("deletable").expect("there");
    }
    store.client.session.commit().expect("committed");
    store.db.flush().expect("flushed");
    store
}

fn open(disk: &SimDisk, background: bool) -> Arc<Database> {
    let options = Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background,
        ..Options::default()
    };
    Database::open(Arc::new(disk.clone()), &options).expect("the database opens")
}

/// Every way of reading shows the rows that were not removed, and the check finds nothing.
fn check(db: &Arc<Database>) {
    let mut client = Client::new(db, 1);
    let table = PlayTable::open(db, "t").expect("the table is there");
    let rows = client.agreed(&table).expect("readable");
    let rows = rows.unwrap_or_else(|differs| panic!("{differs}"));
    let mut found: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
    found.sort_unstable();
    let expected = (0..PIECES * PIECE_ROWS).filter(|id| id % 3 != 0);
    assert_eq!(found, expected.collect::<Vec<_>>());
    let findings = client.check(&table).expect("checkable");
    assert!(findings.is_empty(), "{findings:?}");
    client.session.commit().expect("nothing to commit");
}

#[test]
fn a_compaction_by_threads_agrees_with_one_without() {
    let store = with_removals();
    let compacted = [false, true].map(|background| {
        let disk = store.disk.crash(7);
        let db = open(&disk, background);
        let before = db.space().expect("sizes");
        let mut steps = 0;
        let is_all = db.compact(|compaction| {
            assert!(compaction.steps > steps, "S55: told in order");
            steps = compaction.steps;
            true
        });
        assert!(is_all.expect("compacted"), "S55");
        let space: Space = db.space().expect("sizes");
        assert_eq!((space.row_upper, space.index_upper), (0, 0), "S55: {space:?}");
        assert!(
            space.row_base < before.row_base * 3 / 4,
            "S55: {space:?}, before {before:?}"
        );
        check(&db);
        db.close().expect("closed");
        drop(db);
        let db = open(&disk.kill(), false);
        check(&db);
        (space.row_base, space.index_base)
    });
    assert_eq!(compacted[0], compacted[1], "S55");
}

#[test]
fn a_compaction_by_threads_ends_when_it_is_told_to_and_loses_nothing() {
    let store = with_removals();
    for steps in 1..6 {
        let disk = store.disk.crash(steps);
        let db = open(&disk, true);
        let is_all = db.compact(|compaction| compaction.steps < steps);
        assert!(!is_all.expect("ended") || steps > 3, "S55");
        check(&db);
        // Power goes where it stands.
        let after = open(&disk.crash(steps), false);
        check(&after);
        drop(after);
        assert!(db.compact(|_| true).expect("compacted"), "S55");
        check(&db);
    }
}

#[test]
fn a_compaction_leaves_little_room_to_the_log() {
    let disk = SimDisk::new();
    let geometry = Geometry::small();
    let options = Options {
        geometry,
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    let db = Database::open(Arc::new(disk.clone()), &options).expect("a new database");
    let table = PlayTable::create(&db, "t").expect("a new table");
    let (mut client, mut rng) = (Client::new(&db, 1), Rng::new(6));
    for id in 0..600 {
        client.insert(&table, &row(&mut rng, id)).expect("inserted");
        client.session.commit().expect("committed");
    }
    assert!(db.compact(|_| true).expect("compacted"));
    let room = || -> u64 {
        let names = disk.list().expect("a list");
        let hot = names.iter().filter(|name| name.starts_with("hot-"));
        hot.map(|name| disk.room(name).expect("its room")).sum()
    };
    let least = geometry.hot_segment_bytes / 2 + 3 * geometry.chunk_bytes;
    assert!(room() <= least, "D38: {} of {least}", room());
    db.close().expect("closed");
    assert!(room() <= 2 * geometry.chunk_bytes, "D38: {}", room());
}
