//! Table scans with conditions: which blocks they pass over, and which they must not (rules B12, F37).
//!
//! The random lives of `storage_model` and of the simulator ask such questions at every comparison; here stands what must be
//! spared, and the one mistake that would bring old versions to light.

#[path = "common/store.rs"]
mod store;

use pbxt_sim::filtered::{Question, scan};
use pbxt_sim::table::PlayRow;
use store::Store;

const GROUP: usize = 1;
const TAG: usize = 2;

/// Ids of the rows that a scan with these conditions shows, and how many blocks it passed over.
fn ask(store: &mut Store, questions: &[Question]) -> (Vec<u32>, u64) {
    let before = store.db.status().blocks_skipped;
    let rows = scan(&mut store.client.session, &store.table, questions).expect("readable");
    store.client.session.commit().expect("nothing to commit");
    let after = store.db.status().blocks_skipped;
    (rows.iter().map(|(_, row)| row.id).collect(), after - before)
}

/// Changes the rows with these ids.
fn update(store: &mut Store, ids: std::ops::Range<u32>, change: impl Fn(&PlayRow) -> PlayRow) {
    let rows = store.client.scan(&store.table).expect("readable");
    for (row, _) in rows.iter().filter(|(_, row)| ids.contains(&row.id)) {
        let updated = store.client.update(&store.table, *row, &change).expect("updated");
        assert!(updated.is_some());
    }
    store.client.session.commit().expect("committed");
}

fn home(store: &mut Store) {
    store.fill();
    store.compact();
}

/// Rows of about 430 bytes: some 220 of them are a block.
fn settled(rows: u32) -> Store {
    let mut store = Store::new();
    store.insert(0..rows);
    home(&mut store);
    store.merge();
    store
}

#[test]
fn blocks_without_a_wanted_row_are_not_read() {
    let mut store = settled(1500);
    let (found, skipped) = ask(&mut store, &[Question::between(0, 700, 720)]);
    assert_eq!(found, (700..=720).collect::<Vec<_>>());
    assert!(skipped >= 4, "{skipped} of about seven blocks were passed over");
    let (found, skipped) = ask(&mut store, &[Question::between(0, 5000, 6000)]);
    assert!(found.is_empty() && skipped >= 5, "{skipped} blocks");
    let (found, skipped) = ask(&mut store, &[Question::between(GROUP, 0, u32::MAX)]);
    assert!(
        found.is_empty() && skipped >= 5,
        "every group is NULL, {skipped} blocks"
    );
    let (found, skipped) = ask(&mut store, &[Question::null(TAG)]);
    assert_eq!((found.len(), skipped), (1500, 0), "every tag is NULL");
    let hits = store.db.status().block_cache;
    ask(&mut store, &[Question::between(0, 5000, 6000)]);
    let again = store.db.status().block_cache;
    assert_eq!(
        (hits.hits, hits.misses),
        (again.hits, again.misses),
        "no block was asked for"
    );
}

#[test]
fn hot_rows_are_asked_too() {
    let mut store = Store::new();
    store.insert(0..50);
    let (found, skipped) = ask(&mut store, &[Question::between(0, 10, 12)]);
    assert_eq!((found, skipped), (vec![10, 11, 12], 0), "turned away one by one");
}

#[test]
fn a_block_over_older_slots_is_read_though_none_of_its_rows_is_wanted() {
    let mut store = settled(600);
    update(&mut store, 0..600, |row| PlayRow {
        group: Some(1),
        ..row.clone()
    });
    home(&mut store);
    store.merge();
    update(&mut store, 100..400, |row| PlayRow {
        group: Some(2),
        ..row.clone()
    });
    let rows = store.client.scan(&store.table).expect("readable");
    for (row, _) in rows.iter().filter(|(_, row)| row.id >= 500) {
        store.client.delete(&store.table, *row).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    home(&mut store);
    let kept: Vec<u32> = (0..100).chain(400..500).collect();
    let (found, _) = ask(&mut store, &[Question::between(GROUP, 1, 1)]);
    assert_eq!(found, kept, "B12: the new versions hide the old ones");
    let (found, _) = ask(&mut store, &[Question::null(GROUP)]);
    assert_eq!(found, Vec::<u32>::new());
    let (found, skipped) = ask(&mut store, &[Question::between(GROUP, 2, 2)]);
    assert_eq!(found, (100..400).collect::<Vec<_>>());
    assert!(skipped > 0, "blocks of the base hide nothing");
    store.shows((0..500).collect::<Vec<_>>());
}

#[test]
fn rows_behind_all_older_ones_hide_nothing() {
    let mut store = settled(600);
    store.insert(600..1200);
    home(&mut store);
    let (found, skipped) = ask(&mut store, &[Question::between(0, 10, 12)]);
    assert_eq!(found, [10, 11, 12]);
    assert!(skipped >= 4, "{skipped} blocks of both runs were passed over");
}

/// Rule B16: a scan does not walk over row ids that no row has: there are as many as were ever handed out.
#[test]
fn a_scan_passes_a_gap_of_row_ids_at_once() {
    let mut store = Store::new();
    let put = |store: &mut Store, id| {
        let row = PlayRow::new(id);
        store.client.insert(&store.table, &row).expect("inserted");
        store.client.session.commit().expect("committed");
    };
    put(&mut store, 1);
    home(&mut store);
    store.table.table.map.allocate_many(1 << 46);
    put(&mut store, 2);
    store.table.table.map.allocate_many(1 << 46);
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(ask(&mut store, &[]).0));
    let seen = over.recv_timeout(std::time::Duration::from_mins(2));
    let seen = seen.expect("B16: the scan comes to its end");
    assert!(seen.starts_with(&[1]) && seen.ends_with(&[2]), "{seen:?}");
}
