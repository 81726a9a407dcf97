//! Space: what is on disk beyond what lives stays in proportion to it under load, goes when nothing happens, and then there is
//! silence.

#[path = "common/store.rs"]
mod store;

use pbxt::{Database, Options, Progress, Space};
use pbxt_base::RowId;
use pbxt_io::Disk;
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_sim::world::geometry;
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;
use store::Store;

fn space(store: &Store) -> Space {
    store.db.space().expect("a size of every file")
}

/// Background work until there is none.
fn work(store: &Store, is_idle: bool) -> u32 {
    let mut steps = 0;
    loop {
        store.db.housekeeping_step();
        let worked = store.db.upkeep_step(is_idle).expect("a step") == Progress::Worked;
        let made = !worked && store.db.maintenance_step(is_idle).expect("a checkpoint");
        if !made && !worked {
            return steps;
        }
        steps += 1;
    }
}

/// Only what shapes are made of: homing and merges, without a checkpoint.
fn merge_rows(store: &Store) -> u64 {
    let before = store.db.upkeep_counters().merge_bytes_written.get();
    while store.db.row_merge_step().expect("merged") == Progress::Worked {}
    store.db.upkeep_counters().merge_bytes_written.get() - before
}

/// Changes every `of`-th row and brings the new versions into a newer run.
fn change(store: &mut Store, rows: u64, of: u64, round: u32) {
    for id in (1..=rows).filter(|id| id % of == u64::from(round) % of) {
        let changed = store.client.update(&store.table, RowId::new(id), |row| {
            let mut row = row.clone();
            row.group = Some(round);
            row
        });
        changed.expect("updated").expect("there");
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
}

/// A table whose oldest run has pieces of these numbers of rows.
fn with_pieces(pieces: &[u32]) -> Store {
    let mut store = Store::new();
    let mut from = 0;
    for rows in pieces {
        store.insert(from..from + rows);
        from += rows;
        store.fill();
        store.compact();
        store.merge();
    }
    store
}

#[test]
fn every_byte_on_disk_is_for_something() {
    let mut store = with_pieces(&[200, 100]);
    change(&mut store, 300, 10, 1);
    store.db.checkpoint_step().expect("a checkpoint");
    change(&mut store, 300, 2, 1);
    merge_rows(&store);
    let mut bytes = 0;
    for name in store.disk.list().expect("listed") {
        let is_lock = name == "pbxt.lock";
        bytes += u64::from(!is_lock) * store.disk.size(&name).expect("a size");
    }
    let space = space(&store);
    assert_eq!(space.total(), bytes, "{space:?}");
    for part in [
        space.log_rows,
        space.log_ahead,
        space.row_base,
        space.row_unnamed,
        space.image,
        space.manifest,
    ] {
        assert!(part > 0, "{space:?}");
    }
}

#[test]
fn rows_leave_the_log_earlier_where_little_lives() {
    let disk = SimDisk::new();
    let options = Options {
        geometry: geometry(),
        cache_bytes: 64 << 20,
        background: false,
        ..Options::default()
    };
    let db = Database::open(Arc::new(disk.clone()), &options).expect("the database opens");
    let table = PlayTable::create(&db, "t").expect("a new table");
    let client = Client::new(&db, 1);
    let mut store = Store {
        db,
        table,
        client,
        disk,
    };
    let segment = geometry().hot_segment_bytes;
    assert_eq!(store.db.hot_bytes_limit(), 16 << 20, "a quarter of the cache");
    assert_eq!(store.db.homing_limit(), 2 * segment, "S33: nothing lives");
    store.insert(0..600);
    store.db.flush().expect("flushed");
    assert!(store.db.hot_bytes() > 2 * segment);
    work(&store, false);
    assert!(
        store.db.hot_bytes() <= 2 * segment,
        "S33: {}",
        store.db.hot_bytes()
    );
    store.shows(0..600);
}

#[test]
fn a_base_of_several_pieces_is_merged_when_a_fifth_of_it_is_superseded() {
    let mut store = with_pieces(&[280, 140, 70, 30, 30]);
    let rows = 550;
    merge_rows(&store);
    change(&mut store, rows, 10, 1);
    assert_eq!(merge_rows(&store), 0, "a tenth is not enough");
    change(&mut store, rows, 10, 2);
    assert!(
        merge_rows(&store) > 0,
        "S34: a fifth is, though no piece has a quarter"
    );
    store.shows(0..rows as u32);
}

/// Bytes of sections in files of rows beyond those that live.
fn dead_rows(store: &Store) -> u64 {
    let files = store.db.store().list(SegmentClass::Cold).expect("listed");
    let bytes = |id| -> u64 {
        let file = PieceFile::open(store.db.store(), SegmentClass::Cold, id).expect("a file");
        file.sections().iter().map(|section| section.stored_bytes).sum()
    };
    let now = space(store);
    files.into_iter().map(bytes).sum::<u64>() - now.row_base - now.row_upper
}

/// Each file of a homing step has rows of two tables, of which those of one are soon superseded.
#[test]
fn superseded_pieces_do_not_hide_beside_living_ones() {
    let mut store = with_pieces(&[300]);
    for round in 0..24 {
        change(&mut store, 300, 3, round);
        work(&store, false);
        store.db.checkpoint_step().expect("a checkpoint");
        let (dead, now) = (dead_rows(&store), space(&store));
        let living = now.row_base + now.row_upper;
        assert!(
            dead * 16 <= living,
            "S39: {dead} dead bytes, {living} live, after round {round}"
        );
    }
    store.shows(0..300);
}

#[test]
fn merges_wait_for_the_checkpoint_that_gives_their_files_back() {
    let mut store = with_pieces(&[300]);
    let live = space(&store).row_base;
    let most = geometry().hot_segment_bytes + 3 * live;
    for round in 0..30 {
        change(&mut store, 300, 2, round);
        while store.db.upkeep_step(false).expect("a step") == Progress::Worked {}
        let waiting = space(&store).row_unnamed;
        assert!(
            waiting <= most,
            "S35: {waiting} bytes wait, {live} live, after round {round}"
        );
    }
    assert!(store.db.checkpoint_due(), "D28");
    assert!(store.db.maintenance_step(false).expect("a checkpoint"), "D28");
    assert_eq!(space(&store).row_unnamed, 0, "D28: and all goes");
    assert_eq!(
        store.db.upkeep_step(false).expect("a step"),
        Progress::Worked,
        "S35: now they go on"
    );
    store.shows(0..300);
}

#[test]
fn log_that_no_row_needs_brings_a_checkpoint_about() {
    let mut store = Store::new();
    store.insert(0..300);
    store.fill();
    store.db.housekeeping_step();
    assert!(
        !store.db.maintenance_step(false).expect("none"),
        "nothing could be given back"
    );
    while store.db.compact_step().expect("compacted") == Progress::Worked {}
    assert!(space(&store).log_unneeded >= geometry().hot_segment_bytes);
    assert!(store.db.maintenance_step(false).expect("a checkpoint"), "D28");
    assert_eq!(space(&store).log_unneeded, 0);
    store.shows(0..300);
}

#[test]
fn an_idle_database_comes_near_its_compacted_size_and_work_is_bounded() {
    let mut store = with_pieces(&[240, 116, 56, 26, 24]);
    let rows = 462;
    work(&store, true);
    let compacted = space(&store);
    change(&mut store, rows, 6, 1);
    work(&store, false);
    let busy = space(&store);
    assert!(
        busy.row_upper * 10 > busy.row_base,
        "a sixth stays under load: {busy:?}"
    );
    let before = store.db.upkeep_counters().merge_bytes_written.get();
    assert!(
        store.db.background_jobs().expect("a number") > 0,
        "it will go on by itself"
    );
    work(&store, true);
    let idle = space(&store);
    assert!(idle.row_upper * 10 <= idle.row_base, "S37: {idle:?}");
    let waiting = idle.row_unnamed + idle.index_unnamed + idle.log_unneeded;
    // What waits for a checkpoint has a bound of its own, which is a sixth of a database as small as this one.
    assert!(waiting <= 2 * geometry().hot_segment_bytes, "D29: {idle:?}");
    assert!(
        (idle.total() - waiting) * 100 <= compacted.total() * 115,
        "S37: {idle:?}, compacted {compacted:?}"
    );
    let written = store.db.upkeep_counters().merge_bytes_written.get() - before;
    assert!(
        written <= busy.row_base + busy.row_upper + busy.index_base + busy.index_upper,
        "S37: a piece is rewritten once, {written} bytes"
    );
    store.shows(0..rows as u32);
}

#[test]
fn files_that_nobody_names_go_when_idle() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut store = with_pieces(&[300, 200, 150, 100]);
        work(&store, true);
        for round in 0..6 + rng.below(6) {
            change(&mut store, 750, 3 + rng.below(9), round as u32);
            store.fill();
            for _ in 0..rng.below(12) {
                let _ = store.db.upkeep_step(false).expect("worked");
            }
            if rng.chance(40) {
                store.db.checkpoint_step().expect("a checkpoint");
            }
        }
        work(&store, true);
        let idle = space(&store);
        let unnamed = idle.row_unnamed + idle.index_unnamed;
        assert!(
            unnamed < geometry().hot_segment_bytes,
            "D29: seed {seed}: {unnamed} bytes, {idle:?}"
        );
    }
}

#[test]
fn entries_of_newer_runs_come_into_the_oldest_one_when_idle() {
    let mut store = with_pieces(&[400]);
    store.db.checkpoint_step().expect("a checkpoint");
    work(&store, true);
    change(&mut store, 400, 10, 1);
    store.db.checkpoint_step().expect("a checkpoint");
    while store.db.index_merge_step().expect("merged") == Progress::Worked {}
    assert!(space(&store).index_upper > 0, "S17: a few stay under load");
    work(&store, true);
    let idle = space(&store);
    assert!(idle.index_upper * 10 <= idle.index_base, "S38: {idle:?}");
    store.shows(0..400);
}

#[test]
fn an_idle_database_falls_silent() {
    let mut store = with_pieces(&[200]);
    for round in 0..3 {
        change(&mut store, 200, 5, round);
        store.insert(200 + round * 20..220 + round * 20);
        store.fill();
        assert!(work(&store, true) > 0);
        let segments = store.disk.list().expect("listed");
        let segments = segments.iter().filter(|name| name.starts_with("hot-")).count();
        assert!(
            segments <= 2,
            "D29: one is written, one set aside, {segments} are there"
        );
        let made = store.db.maintenance_status().checkpoints;
        let (tail, files) = (store.db.log().tail(), store.disk.list().expect("listed"));
        let before = space(&store);
        assert_eq!(store.db.background_jobs().expect("a number"), 0);
        for _ in 0..100 {
            assert_eq!(work(&store, true), 0, "D29: there is nothing to gain");
        }
        assert_eq!(store.db.maintenance_status().checkpoints, made, "D29");
        assert_eq!(
            (store.db.log().tail(), store.disk.list().expect("listed")),
            (tail, files)
        );
        assert_eq!(space(&store), before, "not a byte was written");
    }
    store.shows(0..260);
}

#[test]
fn an_idle_database_makes_a_checkpoint_that_is_not_due_under_load() {
    let mut store = Store::new();
    store.insert(0..200);
    assert!(!store.db.maintenance_step(false).expect("none"), "nothing is due");
    assert!(store.db.background_jobs().expect("a number") > 0, "it will be");
    assert!(store.db.maintenance_step(true).expect("a checkpoint"), "D29");
    assert!(
        !store.db.maintenance_step(true).expect("none"),
        "D29: nothing was written since"
    );
    store.shows(0..200);
}

/// Takes every `of`-th row away, all in the segment of the log that is being written; what is left.
fn remove(store: &mut Store, rows: u32, of: u32) -> Vec<u32> {
    let segment = |store: &Store| store.db.log().tail().raw() / geometry().hot_segment_bytes;
    let before = segment(store);
    let is_removed = |id: &u32| (id + 1).is_multiple_of(of);
    for id in (0..rows).filter(is_removed) {
        let removed = store.client.delete(&store.table, RowId::new(u64::from(id) + 1));
        removed.expect("deletable").expect("there");
    }
    store.client.session.commit().expect("committed");
    assert_eq!(segment(store), before, "so it was meant");
    (0..rows).filter(|id| !is_removed(id)).collect()
}

#[test]
fn a_compaction_leaves_nothing_but_what_lives_in_the_oldest_runs() {
    let mut store = with_pieces(&[300, 200]);
    // 300 rows of another table are there too.
    assert!(store.db.compact(|_| true).expect("compacted"));
    let full = space(&store);
    let left = remove(&mut store, 500, 4);
    work(&store, true);
    let idle = space(&store);
    assert_eq!(
        idle.row_base, full.row_base,
        "the segment that is being written has the removals"
    );
    let mut last = None;
    let is_all = store.db.compact(|compaction| {
        last = Some(*compaction);
        true
    });
    assert!(is_all.expect("compacted"), "S55");
    let compacted = space(&store);
    assert_eq!(
        (compacted.row_upper, compacted.index_upper),
        (0, 0),
        "S55: {compacted:?}"
    );
    assert!(
        compacted.row_base * 100 <= full.row_base * 95,
        "S55: {compacted:?}, full {full:?}"
    );
    assert!(
        compacted.index_base < full.index_base,
        "S55: {compacted:?}, full {full:?}"
    );
    let waiting = compacted.row_unnamed + compacted.index_unnamed + compacted.log_unneeded;
    assert_eq!(waiting, 0, "S55: {compacted:?}");
    let last = last.expect("told of");
    assert!(last.steps > 2 && last.upper_bytes == 0, "{last:?}");
    assert!(last.log_bytes < geometry().hot_segment_bytes, "{last:?}");
    store.shows(left.clone());
    store.reopen();
    store.shows(left);
}

#[test]
fn a_compaction_on_a_full_disk_does_what_it_can_and_is_no_error() {
    let mut store = with_pieces(&[300]);
    // Some room, but not for another segment.
    store.disk.set_free_bytes(Some(geometry().hot_segment_bytes - 1));
    let mut id = 1000;
    let refused = loop {
        match store.client.insert(&store.table, &Store::row(id)) {
            Ok(_) => store.client.session.commit().expect("committed"),
            Err(error) => break error,
        }
        id += 1;
        assert!(id < 10_000, "the log ends somewhere");
    };
    assert!(refused.to_string().contains("no space"), "D10: {refused}");
    store.client.session.rollback().expect("nothing to be undone");
    let mut steps = 0;
    let is_all = store.db.compact(|compaction| {
        steps = compaction.steps;
        true
    });
    assert!(
        !is_all.expect("S55: want of space is no error"),
        "S55: not all was done"
    );
    assert!(steps > 0, "S55: what can be done is tried");
    store.disk.set_free_bytes(None);
    assert!(store.db.compact(|_| true).expect("compacted"), "S55: now it is");
    store.shows((0..300).chain(1000..id));
}

#[test]
fn a_little_in_newer_runs_is_compacted_too_and_then_there_is_nothing_to_do() {
    let mut store = with_pieces(&[300, 200]);
    work(&store, true);
    change(&mut store, 500, 50, 1);
    store.db.checkpoint_step().expect("a checkpoint");
    work(&store, true);
    let idle = space(&store);
    assert!(idle.row_upper > 0, "S37 leaves a little: {idle:?}");
    assert!(store.db.compact(|_| true).expect("compacted"));
    let compacted = space(&store);
    assert_eq!(
        (compacted.row_upper, compacted.index_upper),
        (0, 0),
        "S55: {compacted:?}"
    );
    let (tail, files) = (store.db.log().tail(), store.disk.list().expect("listed"));
    assert!(store.db.compact(|_| true).expect("compacted"));
    assert_eq!(
        (store.db.log().tail(), store.disk.list().expect("listed")),
        (tail, files),
        "S55: there was nothing to do"
    );
    store.shows(0..500);
}

#[test]
fn a_compaction_ends_when_it_is_told_to_and_goes_on_at_the_next_call() {
    let mut store = with_pieces(&[300, 200]);
    assert!(store.db.compact(|_| true).expect("compacted"));
    let left = remove(&mut store, 500, 4);
    let mut steps = 0;
    let is_all = store.db.compact(|_| {
        steps += 1;
        steps < 2
    });
    assert!(!is_all.expect("ended"), "S55");
    assert_eq!(steps, 2);
    store.shows(left.clone());
    assert!(store.db.compact(|_| true).expect("compacted"));
    assert_eq!(space(&store).row_upper, 0);
    store.shows(left);
}

#[test]
fn what_an_open_snapshot_sees_outlives_a_compaction() {
    let mut store = with_pieces(&[300]);
    assert!(store.db.compact(|_| true).expect("compacted"));
    let mut reader = Client::new(&store.db, 2);
    let before = reader.scan(&store.table).expect("readable").len();
    let left = remove(&mut store, 300, 3);
    let _ = store.db.compact(|_| true).expect("compacted");
    assert_eq!(reader.scan(&store.table).expect("readable").len(), before, "S1");
    reader.session.commit().expect("nothing to commit");
    assert!(store.db.compact(|_| true).expect("compacted"));
    assert_eq!(reader.scan(&store.table).expect("readable").len(), left.len());
    store.shows(left);
}

/// Bytes of all sections of files with index runs that no run names.
fn dead_index_bytes(store: &Store) -> u64 {
    let (files, space) = (store.db.store(), space(store));
    let image = files.checkpoint().map(|checkpoint| checkpoint.image);
    let ids = files.list(SegmentClass::Meta).expect("listed").into_iter();
    let bytes_of = |id| {
        let file = PieceFile::open(files, SegmentClass::Meta, id).expect("a whole file");
        let sections = file.sections().iter();
        sections.map(|section| section.stored_bytes).sum::<u64>()
    };
    let all: u64 = ids.filter(|id| Some(*id) != image).map(bytes_of).sum();
    all - space.index_base - space.index_upper
}

#[test]
fn indexes_that_are_seldom_changed_keep_no_files_of_others() {
    let mut store = Store::new();
    store.insert(0..200);
    let seldom: Vec<_> = (0..20)
        .map(|number| PlayTable::create(&store.db, &format!("seldom{number}")).expect("a table"))
        .collect();
    for (round, table) in (1..).zip(&seldom) {
        store.client.insert(table, &Store::row(1)).expect("inserted");
        change(&mut store, 200, 1, round);
        // The runs of all indexes that were changed share a file.
        store.db.checkpoint_step().expect("a checkpoint");
        work(&store, false);
        store.db.checkpoint_step().expect("a checkpoint");
    }
    let (dead, space) = (dead_index_bytes(&store), space(&store));
    let live = space.index_base + space.index_upper;
    assert!(dead * 16 <= live, "S14, S39: {dead} bytes are dead, {space:?}");
    for table in &seldom {
        assert_eq!(store.client.count(table).expect("counted"), 1);
    }
    store.shows(0..200);
}
