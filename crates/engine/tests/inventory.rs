//! Inventory: the lines of every list add up to the totals that the database tells, and each says what its part is for.

#[path = "common/store.rs"]
mod store;

use pbxt::{RunLevel, RunLine, RunTotals, SegmentLine, SegmentState, SegmentUse};
use pbxt_base::RowId;
use store::Store;

/// Rows in a base and in a newer run, in the log, and a transaction of its own.
fn with_all_levels() -> Store {
    let mut store = Store::new();
    store.insert(0..300);
    store.fill();
    store.compact();
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    for id in (1..=300).step_by(30) {
        let changed = store.client.update(&store.table, RowId::new(id), |row| {
            let mut row = row.clone();
            row.group = Some(9);
            row
        });
        changed.expect("updated").expect("there");
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
    store.insert(300..310);
    store
}

fn totals<'l>(lines: impl Iterator<Item = &'l RunLine>) -> RunTotals {
    let of = |line: &RunLine| RunTotals {
        runs: 1,
        pieces: line.pieces,
        bytes: line.bytes,
    };
    lines.map(of).sum()
}

fn bytes_of(segments: &[SegmentLine], holds: SegmentUse, states: &[SegmentState]) -> u64 {
    let found = segments
        .iter()
        .filter(|line| line.holds == holds && states.contains(&line.state));
    found.map(|line| line.bytes).sum()
}

#[test]
fn numbers_are_told_where_the_files_cannot_be_listed() {
    let mut store = with_all_levels();
    let before = store.db.status();
    assert!(before.is_listed && !before.is_read_only && before.space.total() > 0);
    store.disk.cut_power_at(store.disk.operations());
    let failed = store.client.insert(&store.table, &Store::row(90_000));
    let failed = failed.and_then(|_| store.client.session.commit());
    assert!(failed.is_err(), "the disk has gone");
    let after = store.db.status();
    assert!(!after.is_listed && after.is_read_only, "{after:?}");
    assert!(after.rows_inserted >= before.rows_inserted && after.rows_inserted > 0);
    let report = store.db.status_report();
    assert!(
        report.contains("Health: READ-ONLY") && report.contains("are not known: "),
        "{report}"
    );
}

#[test]
fn runs_tables_and_indexes_add_up_to_the_totals() {
    let store = with_all_levels();
    let status = store.db.status();
    let runs = store.db.list_runs();
    assert_eq!(
        totals(runs.iter().filter(|run| run.index.is_none())),
        status.row_runs
    );
    assert_eq!(
        totals(runs.iter().filter(|run| run.index.is_some())),
        status.index_runs
    );

    let tables = store.db.list_tables();
    let names: Vec<&str> = tables.iter().map(|line| &*line.table).collect();
    assert_eq!(names, ["other", "t"], "in the order of names");
    let table = &tables[1];
    assert_eq!(table.info.rows, 310);
    let of_table = runs
        .iter()
        .filter(|run| &*run.table == "t" && run.index.is_none());
    assert_eq!(totals(of_table.clone()), table.runs);
    assert_eq!(of_table.map(|run| run.entries).sum::<u64>(), table.slots);

    let indexes = store.db.list_indexes();
    assert_eq!(
        indexes.iter().map(|line| line.memory_bytes).sum::<u64>(),
        status.index_bytes
    );
    assert_eq!(
        indexes.iter().filter(|line| &*line.table == "t").count() as u64,
        table.indexes
    );
    for line in indexes.iter().filter(|line| &*line.table == "t") {
        let of_index = runs
            .iter()
            .filter(|run| run.table == line.table && run.index.as_ref() == Some(&line.index));
        assert_eq!(totals(of_index), line.runs, "{}", line.index);
    }
}

#[test]
fn the_oldest_run_is_the_base_and_the_others_stand_over_it() {
    let store = with_all_levels();
    let runs = store.db.list_runs();
    let levels: Vec<(u64, RunLevel)> = runs
        .iter()
        .filter(|run| &*run.table == "t" && run.index.is_none())
        .map(|run| (run.number, run.level))
        .collect();
    assert_eq!(levels, [(1, RunLevel::Upper), (2, RunLevel::Base)]);
    assert!(runs.iter().all(|run| run.owner.is_none()), "nobody loads");
}

#[test]
fn segments_add_up_to_what_bytes_on_disk_are_for() {
    let store = with_all_levels();
    let space = store.db.space().expect("sizes");
    let segments = store.db.list_segments().expect("sizes");
    let all: u64 = segments.iter().map(|line| line.bytes).sum();
    assert_eq!(all + space.manifest, space.total());

    let named = |holds| {
        let lines = segments.iter().filter(|line| line.holds == holds);
        lines.filter_map(|line| line.named_bytes).sum::<u64>()
    };
    assert_eq!(named(SegmentUse::Rows), space.row_base + space.row_upper);
    assert_eq!(named(SegmentUse::Indexes), space.index_base + space.index_upper);
    let unneeded = [SegmentState::Unneeded];
    assert_eq!(
        bytes_of(&segments, SegmentUse::Rows, &unneeded),
        space.row_unnamed
    );
    assert_eq!(
        bytes_of(&segments, SegmentUse::Image, &[SegmentState::Needed]),
        space.image
    );
    let current = segments
        .iter()
        .filter(|line| line.holds == SegmentUse::Log && line.state == SegmentState::Current);
    assert_eq!(
        current.count(),
        1,
        "one segment has the end of the log: {segments:?}"
    );
}

#[test]
fn caches_tell_what_the_status_tells() {
    let store = with_all_levels();
    let status = store.db.status();
    let caches = store.db.list_caches();
    let of = |name: &str| *caches.iter().find(|line| line.name == name).expect("a line");
    assert_eq!(of("recent log").hits, Some(status.log.cache_hits));
    assert_eq!(of("blocks of rows and indexes").bytes, status.block_cache.bytes);
    assert_eq!(
        of("blocks of rows and indexes").budget,
        Some(status.block_cache_budget)
    );
    assert_eq!(of("row map").bytes, status.row_map_bytes);
}
