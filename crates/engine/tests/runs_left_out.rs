//! Runs of loads that a merge leaves out: what was written about their rows afterwards must not be dropped before they are merged.
//!
//! Rules S18, S20 and D23 of storage.md and durability.md, X48 of indexes.md.

mod common;

use common::{Bench, put, row};
use pbxt::Progress;
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};

/// More rows than statements put into the log.
const MANY: u32 = 3000;
/// Rows of the base.
const FEW: u32 = 200;

fn full(id: u32) -> PlayRow {
    PlayRow {
        group: Some(id % 7),
        ..row(id)
    }
}

fn load(client: &mut Client, table: &PlayTable, ids: std::ops::Range<u32>) {
    load_rows(client, table, ids.map(full));
}

fn load_rows(client: &mut Client, table: &PlayTable, rows: impl Iterator<Item = PlayRow>) {
    let session = &mut client.session;
    session.begin_statement().expect("a statement");
    session.bulk_begin(&table.table, u64::MAX, false);
    for row in rows {
        put(session, table, &row).expect("a row of a load");
    }
    session.bulk_end(&table.table, false).expect("a load");
    session.end_statement();
    session.commit().expect("a commit");
}

/// A base that bears no stamp.
fn with_base() -> Bench {
    let mut bench = Bench::new();
    for id in 0..FEW {
        bench.client.insert(&bench.table, &full(id)).expect("an insert");
    }
    bench.client.session.commit().expect("a commit");
    bench.db.checkpoint_step().expect("a checkpoint");
    bench
}

/// Moves every second row from `first` on to another group, from `group` on, and makes runs of the entries that says so.
fn regroup(bench: &mut Bench, first: u32, group: u32) {
    let found: Vec<(RowId, u32)> = bench.rows().into_iter().map(|(row, old)| (row, old.id)).collect();
    for (row, id) in found.into_iter().filter(|(_, id)| *id >= first && id % 2 == 0) {
        let regrouped = |old: &PlayRow| PlayRow {
            group: Some(group + id % 3),
            ..old.clone()
        };
        let changed = bench.client.update(&bench.table, row, regrouped);
        changed.expect("an update").expect("a row");
    }
    bench.client.session.commit().expect("a commit");
    bench.db.checkpoint_step().expect("a checkpoint");
}

fn merge(bench: &Bench) {
    while bench.db.index_merge_step().expect("a merge") == Progress::Worked {}
}

#[test]
fn entries_are_not_taken_back_to_life_when_recovery_finds_another_load() {
    let mut bench = with_base();
    let other = PlayTable::create(&bench.db, "other").expect("another table");
    load(&mut bench.client, &bench.table, FEW..MANY);
    regroup(&mut bench, FEW, 100);
    // It keeps the runs of all loads out of merges until the next checkpoint (D23).
    load(&mut bench.client, &other, 0..MANY);
    drop(other);
    bench.crash_reopen();
    merge(&bench);
    bench.settle();
    bench.crash_reopen();
    bench.client.session.rollback().expect("no transaction");
    bench.db.checkpoint_step().expect("a checkpoint");
    merge(&bench);
    bench.settle();
}

fn in_group(id: u32, group: u32) -> PlayRow {
    PlayRow {
        group: Some(group),
        ..row(id)
    }
}

/// What a base says of a run that was left out of it stays when pieces of that base are merged alone.
#[test]
fn anti_entries_stay_when_pieces_of_the_base_are_merged_alone() {
    let mut bench = Bench::new();
    for id in 0..10_000 {
        let row = in_group(id, 1000 + id % 7);
        bench.client.insert(&bench.table, &row).expect("an insert");
    }
    bench.client.session.commit().expect("a commit");
    bench.db.checkpoint_step().expect("a checkpoint");
    let loaded = (20_000..22_800).map(|id| in_group(id, 1000 + id % 7));
    load_rows(&mut bench.client, &bench.table, loaded);
    regroup(&mut bench, 20_000, 2000);
    let other = PlayTable::create(&bench.db, "other").expect("another table");
    load(&mut bench.client, &other, 0..MANY);
    drop(other);
    bench.crash_reopen();
    bench.client.session.rollback().expect("no transaction");
    merge(&bench);
    // The index is a descending one: smaller groups lie to the right, where pieces of a base are merged.
    for round in 0..4 {
        for number in 0..6000 {
            let row = in_group(100_000 + round * 6000 + number * 7919 % 6000, 500 - 100 * round);
            bench.client.insert(&bench.table, &row).expect("an insert");
        }
        bench.client.session.commit().expect("a commit");
        bench.db.checkpoint_step().expect("a checkpoint");
    }
    merge(&bench);
    bench.settle();
}
