//! Rows on their way from the hot log to runs: what is homed, what stays, and what readers see meanwhile.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

#[path = "common/store.rs"]
mod store;

use pbxt::Progress;
use pbxt_io::Disk;
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::Fault;
use std::sync::Arc;
use store::{Reasons, Store};

#[test]
fn settled_rows_leave_the_log_and_are_read_from_runs() {
    let mut store = Store::new();
    store.insert(0..100);
    store.fill();
    store.compact();
    assert!(
        store.db.log_floor().raw() > 2 * geometry().hot_segment_bytes,
        "S4: nothing is needed in the first segments"
    );
    assert_eq!(
        store.table.table.map.load(pbxt_base::RowId::new(1)).raw(),
        0,
        "the word is clear"
    );
    store.shows(0..100);
    store.merge();
    store.shows(0..100);
}

#[test]
fn an_unfinished_transaction_keeps_its_segment_and_a_snapshot_what_it_sees() {
    let mut store = Store::new();
    store.insert(0..20);
    let ids: Vec<_> = store
        .client
        .scan(&store.table)
        .expect("read")
        .iter()
        .map(|(id, _)| *id)
        .collect();
    store.client.session.commit().expect("committed");
    let mut old = Client::new(&store.db, 2);
    assert_eq!(
        old.scan(&store.table).expect("read").len(),
        20,
        "a snapshot of twenty rows"
    );
    let mut writer = Client::new(&store.db, 3);
    writer
        .update(&store.table, ids[0], |row| PlayRow {
            id: 1000,
            ..row.clone()
        })
        .expect("updated")
        .expect("there");
    store.client.delete(&store.table, ids[1]).expect("deleted");
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
    let before = store.db.log_floor();
    assert_eq!(
        before.raw(),
        geometry().hot_segment_bytes,
        "S4: the old snapshot and the writer need the first segment"
    );
    assert_eq!(old.scan(&store.table).expect("read").len(), 20);
    writer.session.rollback().expect("rolled back");
    store.compact();
    assert_eq!(old.scan(&store.table).expect("read").len(), 20);
    old.session.commit().expect("ended");
    store.compact();
    store.fill();
    store.compact();
    assert!(store.db.log_floor() > before, "now nothing does");
    store.shows((0..20).filter(|id| *id != 1));
}

#[test]
fn a_version_beneath_an_unfinished_change_is_homed_and_found_after_its_rollback() {
    let mut store = Store::new();
    store.insert(0..10);
    store.fill();
    let ids: Vec<_> = store
        .client
        .scan(&store.table)
        .expect("read")
        .iter()
        .map(|(id, _)| *id)
        .collect();
    store.client.session.commit().expect("committed");
    let mut writer = Client::new(&store.db, 2);
    let change = writer.update(&store.table, ids[3], |row| PlayRow {
        id: 333,
        ..row.clone()
    });
    change.expect("updated").expect("there");
    store.compact();
    assert!(
        store.db.log().start().raw() > geometry().hot_segment_bytes,
        "the version beneath has left the log"
    );
    store.shows(0..10);
    writer.session.rollback().expect("rolled back");
    store.shows(0..10);
    store.fill();
    store.compact();
    store.shows(0..10);
}

#[test]
fn deleted_rows_vanish_from_runs_and_their_keys_are_free() {
    let mut store = Store::new();
    store.insert(0..200);
    store.fill();
    store.compact();
    let ids: Vec<_> = store
        .client
        .scan(&store.table)
        .expect("read")
        .iter()
        .map(|(id, _)| *id)
        .collect();
    for id in &ids[50..] {
        store.client.delete(&store.table, *id).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
    store.shows(0..50);
    store.merge();
    store.shows(0..50);
    store.insert(50..60);
    store.shows(0..60);
}

#[test]
fn updates_of_all_rows_end_in_one_run_without_superseded_slots() {
    let mut store = Store::new();
    store.insert(0..100);
    store.fill();
    store.compact();
    store.merge();
    let ids: Vec<_> = store
        .client
        .scan(&store.table)
        .expect("read")
        .iter()
        .map(|(id, _)| *id)
        .collect();
    for round in 0..6_u32 {
        for (number, id) in ids.iter().enumerate() {
            let mut row = Store::row(number as u32);
            row.group = Some(round);
            store
                .client
                .update(&store.table, *id, |_| row)
                .expect("updated")
                .expect("there");
        }
        store.client.session.commit().expect("committed");
        store.fill();
        store.compact();
        store.shows(0..100);
    }
    store.merge();
    store.shows(0..100);
    let written = store.db.upkeep_counters().merge_bytes_written.get();
    assert!(written > 0, "S12: the upper runs were merged into the base");
}

#[test]
fn a_full_disk_ends_a_step_and_nothing_else() {
    let mut store = Store::new();
    store.insert(0..100);
    store.fill();
    store.db.housekeeping_step();
    let files = store.disk.list().expect("listed");
    store.disk.set_free_bytes(Some(100));
    let error = store.db.compact_step().expect_err("no space");
    assert!(error.to_string().contains("no space"), "{error}");
    assert_eq!(
        store.disk.list().expect("listed"),
        files,
        "S21: what was begun is removed"
    );
    assert_eq!(store.db.upkeep_step(true).expect("tried in vain"), Progress::Idle);
    store.disk.set_free_bytes(None);
    store.compact();
    store.shows(0..100);
}

#[test]
fn a_step_that_fails_keeps_no_other_from_its_turn() {
    let mut store = Store::new();
    let mut large = Store::row(0);
    large.memo = Some(vec![7; 5000].into());
    let passing = PlayTable::create(&store.db, "passing").expect("a table");
    store.client.insert(&passing, &large).expect("inserted");
    store.client.session.commit().expect("committed");
    drop(passing);
    store.db.drop_table(None, "passing").expect("dropped");
    while store.db.upkeep_step(true).expect("worked") == Progress::Worked {}
    store.db.checkpoint_step().expect("a checkpoint");
    store.insert(0..100);
    store.fill();
    store.db.housekeeping_step();
    assert_eq!(store.db.blobs().segments().expect("listed").len(), 1);
    store.disk.plant(Fault::FailRead {
        prefix: "hot-".into(),
        nth: 1,
    });
    let error = store.db.upkeep_step(true).expect_err("the planted fault");
    assert!(error.to_string().contains("hot-"), "{error}");
    assert_eq!(
        store.db.blobs().segments().expect("listed"),
        [],
        "S53: the segment of values went though the compactor failed"
    );
    store.compact();
    store.shows(0..100);
}

/// Rule S53. The damaged one comes first in the catalog.
#[test]
fn a_damaged_block_keeps_only_its_own_table_from_being_merged() {
    let reasons = Arc::<Reasons>::default();
    let mut store = Store::telling(&reasons);
    let damaged = PlayTable::create(&store.db, "damaged").expect("a second table");
    for id in 0..200 {
        store.client.insert(&damaged, &Store::row(id)).expect("inserted");
    }
    store.insert(0..200);
    store.fill();
    store.compact();
    store.merge();
    store.db.checkpoint_step().expect("made");
    // Upper runs over both bases.
    for table in [damaged.clone(), store.table.clone()] {
        let rows = store.client.scan(&table).expect("read");
        store.client.session.commit().expect("nothing to commit");
        for (row, _) in rows.iter().step_by(2) {
            let change = |old: &PlayRow| PlayRow {
                group: Some(1),
                ..old.clone()
            };
            store.client.update(&table, *row, change).expect("updated");
        }
        store.client.session.commit().expect("committed");
    }
    store.fill();
    store.compact();
    let owner = u64::from(damaged.id().raw());
    let segments = store.db.store().list(SegmentClass::Cold).expect("a list");
    for id in segments {
        let file = PieceFile::open(store.db.store(), SegmentClass::Cold, id).expect("a piece file");
        for section in file.sections().iter().filter(|section| section.owner == owner) {
            for block in 0..section.block_count() {
                let at = section.block_offset(block) + 20;
                store.disk.flip_bit(file.name(), at, 3).expect("flipped");
            }
        }
    }
    let written = |store: &Store| store.db.upkeep_counters().merge_bytes_written.get();
    let before = written(&store);
    let failed = (0..10).filter(|_| store.db.row_merge_step().is_err()).count();
    assert_eq!(failed, 1, "S53: what failed waits for a checkpoint");
    assert!(written(&store) > before, "S53: the other table is merged");
    store.db.checkpoint_step().expect("made");
    let failed = (0..10).filter(|_| store.db.row_merge_step().is_err()).count();
    assert_eq!(failed, 1, "S53: and then it has a turn");
    let told = reasons.take();
    assert_eq!(told.len(), 1, "S65: {told:?}");
    assert!(told[0].contains("cold-"), "S65: {told:?}");
    store.shows(0..200);
}

#[test]
fn homed_rows_are_there_after_a_crash_with_and_without_a_checkpoint() {
    let mut store = Store::new();
    store.insert(0..100);
    store.fill();
    store.compact();
    store.kill();
    store.shows(0..100);
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    store.kill();
    store.shows(0..100);
    store.insert(100..120);
    store.fill();
    store.compact();
    store.kill();
    store.shows(0..120);
    store.compact();
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    store.shows(0..120);
    store.kill();
    store.shows(0..120);
}

#[test]
fn changes_after_a_checkpoint_that_were_homed_come_back_from_the_tail() {
    let mut store = Store::new();
    store.insert(0..60);
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    let ids: Vec<_> = store
        .client
        .scan(&store.table)
        .expect("read")
        .iter()
        .map(|(id, _)| *id)
        .collect();
    store.client.session.commit().expect("committed");
    for id in &ids[..10] {
        store.client.delete(&store.table, *id).expect("deleted");
    }
    store.client.session.commit().expect("committed");
    for (number, id) in ids[10..20].iter().enumerate() {
        let change = |row: &PlayRow| PlayRow {
            id: 1000 + number as u32,
            ..row.clone()
        };
        store
            .client
            .update(&store.table, *id, change)
            .expect("updated")
            .expect("there");
    }
    store.client.session.commit().expect("committed");
    for id in &ids[20..30] {
        store.client.delete(&store.table, *id).expect("deleted");
    }
    store.client.session.rollback().expect("rolled back");
    let expected: Vec<u32> = (20..60).chain(1000..1010).collect();
    store.fill();
    store.compact();
    store.shows(expected.clone());
    store.kill();
    store.shows(expected.clone());
    store.compact();
    store.shows(expected.clone());
    store.db.checkpoint_step().expect("a checkpoint");
    store.kill();
    store.shows(expected.clone());
    store.merge();
    store.kill();
    store.shows(expected);
}

#[test]
fn a_row_beneath_a_prepared_change_outlives_a_crash_that_forgets_its_home() {
    let mut store = Store::new();
    store.db.checkpoint_step().expect("a checkpoint");
    store.insert(0..30);
    store.fill();
    store.compact();
    let row = pbxt_base::RowId::new(7);
    let mut writer = Client::new(&store.db, 2);
    writer.delete(&store.table, row).expect("deleted").expect("there");
    writer.session.prepare(b"held").expect("prepared");
    writer.session.detach_prepared();
    drop(writer);
    store.kill();
    store.shows(0..30);
    store.compact();
    store.shows(0..30);
    store.kill();
    store.db.rollback_prepared(b"held").expect("rolled back");
    store.shows(0..30);
    store.fill();
    store.compact();
    store.shows(0..30);
}
