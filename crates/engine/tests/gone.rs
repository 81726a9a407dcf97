//! Gone rows: deleted rows whose index entries are left, and when they are forgotten.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

#[path = "common/store.rs"]
mod store;

use pbxt::Progress;
use pbxt_sim::client::Client;
use store::Store;

/// A table of 200 rows of which every second one was deleted and homed.
fn half_deleted() -> Store {
    let mut store = Store::new();
    store.insert(0..200);
    store.db.checkpoint_step().expect("a checkpoint");
    store.fill();
    store.compact();
    store.merge();
    for (row, found) in store.client.scan(&store.table).expect("read") {
        if found.id % 2 == 1 {
            store
                .client
                .delete(&store.table, row)
                .expect("deleted")
                .expect("there");
        }
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
    assert_eq!(
        gone(&store),
        100,
        "B7: rows whose deletion is settled are in the set"
    );
    store
}

/// Deletes rows by their ids, and homes that.
fn delete(store: &mut Store, is_one: impl Fn(u32) -> bool) {
    for (row, found) in store.client.scan(&store.table).expect("read") {
        if is_one(found.id) {
            let deleted = store.client.delete(&store.table, row).expect("deleted");
            deleted.expect("there");
        }
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
}

fn gone(store: &Store) -> u64 {
    store.db.status().gone_rows
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "a filter passes references")]
fn is_even(id: &u32) -> bool {
    id.is_multiple_of(2)
}

#[test]
fn gone_rows_are_forgotten_when_no_slot_and_no_entry_is_left() {
    let mut store = half_deleted();
    while store.db.index_merge_step().expect("merged") == Progress::Worked {}
    while store.db.gone_step().expect("a step") == Progress::Worked {}
    assert_eq!(gone(&store), 100, "B9: their slots are still there");
    while store.db.row_merge_step().expect("merged") == Progress::Worked {}
    assert_eq!(store.db.gone_step().expect("a cut"), Progress::Worked);
    assert_eq!(store.db.gone_step().expect("a look"), Progress::Idle);
    assert_eq!(gone(&store), 100, "B9: their entries are still there");
    store.shows((0..200).filter(is_even));
    // S25: nothing but the cut makes a merge due.
    assert_eq!(store.db.index_merge_step().expect("a merge"), Progress::Worked);
    store.merge();
    assert_eq!(gone(&store), 0, "S25, B9: nothing of them is left");
    store.shows((0..200).filter(is_even));
    assert_eq!(store.db.index_merge_step().expect("quiet"), Progress::Idle);
    store.kill();
    store.shows((0..200).filter(is_even));
}

#[test]
fn a_cut_of_few_rows_gives_way_to_one_that_is_worth_a_merge() {
    let mut store = Store::new();
    store.insert(0..400);
    store.db.checkpoint_step().expect("a checkpoint");
    store.fill();
    store.compact();
    store.merge();
    // Rows that no run has ever had are gone at once.
    store.insert(400..404);
    delete(&mut store, |id| id >= 400);
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    assert_eq!(gone(&store), 4, "S25: four of 404 are worth no merge");
    delete(&mut store, |id| id % 2 == 1);
    while store.db.row_merge_step().expect("merged") == Progress::Worked {}
    assert_eq!(gone(&store), 204);
    for _ in 0..3 {
        store.merge();
    }
    assert_eq!(gone(&store), 0, "S25: half of the entries are of gone rows");
    store.shows((0..400).filter(is_even));
    store.kill();
    store.shows((0..400).filter(is_even));
}

#[test]
fn entries_in_trees_keep_gone_rows() {
    let mut store = Store::new();
    store.insert(0..100);
    for (row, _) in store.client.scan(&store.table).expect("read") {
        store
            .client
            .delete(&store.table, row)
            .expect("deleted")
            .expect("there");
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
    assert_eq!(gone(&store), 100);
    store.merge();
    assert_eq!(
        gone(&store),
        100,
        "X36: a tree from before the cut has their entries"
    );
    store.shows([]);
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    assert_eq!(gone(&store), 0);
    store.shows([]);
}

#[test]
fn a_snapshot_that_may_read_superseded_parts_keeps_gone_rows() {
    let mut store = half_deleted();
    let mut reader = Client::new(&store.db, 2);
    assert_eq!(reader.count(&store.table).expect("counted"), 100);
    store.merge();
    store.merge();
    assert_eq!(
        gone(&store),
        100,
        "B9: the reader may have begun before the merge"
    );
    assert_eq!(reader.scan(&store.table).expect("read").len(), 100);
    reader.session.commit().expect("ended");
    store.merge();
    assert_eq!(gone(&store), 0);
    store.shows((0..200).filter(is_even));
}

#[test]
fn gone_rows_come_back_with_the_image_whose_parts_have_their_entries() {
    let mut store = half_deleted();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    store.merge();
    assert_eq!(gone(&store), 0);
    // Back to an image with the entries.
    store.kill();
    assert_eq!(
        gone(&store),
        100,
        "B11: the image has entries and rows of one moment"
    );
    store.shows((0..200).filter(is_even));
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    store.merge();
    assert_eq!(
        gone(&store),
        0,
        "after a restart all parts count as not swept until they are merged"
    );
    store.db.checkpoint_step().expect("a checkpoint");
    store.kill();
    assert_eq!(gone(&store), 0);
    store.shows((0..200).filter(is_even));
}
