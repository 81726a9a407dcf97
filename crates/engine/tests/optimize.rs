//! Optimize: one table comes into as few and as full files as can be while others read and write it, and whatever ends that loses
//! nothing (rules OP1 to OP6 of docs/storage.md).

mod common;
#[cfg(feature = "stop-points")]
#[path = "common/hold.rs"]
mod hold;
#[path = "common/store.rs"]
mod store;

use common::put;
use pbxt::{Error, Optimized, Progress, RunLevel, RunLine, WaitObserver, optimize_table};
use pbxt_base::{Error as StorageError, Lsn, RowId};
use pbxt_index::RunPiece;
use pbxt_io::Disk;
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::table::{NAME_INDEX, PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Reasons, Store};

fn optimize(store: &mut Store) -> pbxt::Result<Optimized> {
    let table = Arc::clone(&store.table.table);
    let done = optimize_table(&store.client.session, &table, &mut |_, _| {});
    store.client.session.commit().expect("nothing to commit");
    done
}

fn optimized(store: &mut Store) -> Optimized {
    optimize(store).expect("optimized")
}

fn change(store: &mut Store, id: u64, round: u32) {
    let changed = store.client.update(&store.table, RowId::new(id), |row| PlayRow {
        group: Some(round),
        ..row.clone()
    });
    changed.expect("updated").expect("there");
}

/// 300 rows in oldest runs, of which some have newer versions in newer runs, some in the log, and some were deleted; what is left.
fn worn(store: &mut Store) -> Vec<u32> {
    store.insert(0..300);
    store.fill();
    store.compact();
    store.merge();
    store.db.checkpoint_step().expect("a checkpoint");
    for id in (1..=300).step_by(20) {
        change(store, id, 1);
    }
    store.client.session.commit().expect("committed");
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    for id in (5..=300).step_by(30) {
        change(store, id, 2);
    }
    let is_removed = |id: &u32| (id + 1).is_multiple_of(4);
    for id in (0..300).filter(is_removed) {
        let removed = store.client.delete(&store.table, RowId::new(u64::from(id) + 1));
        removed.expect("deletable").expect("there");
    }
    store.client.session.commit().expect("committed");
    (0..300).filter(|id| !is_removed(id)).collect()
}

/// The same, in files that no other table has a part of.
fn worn_alone(store: &mut Store) -> Vec<u32> {
    let left = worn(store);
    store.db.drop_table(None, "other").expect("dropped");
    left
}

fn runs_of(store: &Store, table: &str) -> Vec<RunLine> {
    let mut runs = store.db.list_runs();
    runs.retain(|run| &*run.table == table);
    runs
}

fn row_bytes(store: &Store, table: &str) -> u64 {
    let runs = runs_of(store, table).into_iter();
    runs.filter(|run| run.index.is_none()).map(|run| run.bytes).sum()
}

/// Sections in the files of a class, with file and owner.
fn sections(store: &Store, class: SegmentClass) -> Vec<(Arc<PieceFile>, u32, u64)> {
    let files = store.db.store().list(class).expect("listed").into_iter();
    let opened = files.filter_map(|id| PieceFile::open(store.db.store(), class, id).ok());
    let mut found = Vec::new();
    for file in opened {
        for (number, section) in file.sections().iter().enumerate() {
            found.push((Arc::clone(&file), number as u32, section.owner));
        }
    }
    found
}

/// The greatest LSN that entries of the table's indexes have in any file.
fn greatest_lsn(store: &Store) -> Lsn {
    let own: Vec<u64> = store
        .table
        .table
        .def()
        .indexes
        .iter()
        .map(|index| u64::from(index.id.raw()))
        .collect();
    let pieces = sections(store, SegmentClass::Meta).into_iter();
    let pieces = pieces.filter(|(_, _, owner)| own.contains(owner));
    let lsns = pieces.filter_map(|(file, number, _)| RunPiece::open(file, number).ok());
    lsns.map(|piece| piece.greatest_lsn())
        .max()
        .expect("pieces of indexes")
}

#[test]
fn everything_of_one_table_comes_into_its_oldest_runs() {
    let mut store = Store::new();
    let left = worn_alone(&mut store);
    let before = row_bytes(&store, "t");
    assert!(
        runs_of(&store, "t")
            .iter()
            .any(|run| run.level == RunLevel::Upper),
        "so it was meant"
    );
    assert!(greatest_lsn(&store).raw() > 0, "so it was meant");
    assert_eq!(optimized(&mut store), Optimized::default());
    for run in runs_of(&store, "t") {
        assert_eq!(run.level, RunLevel::Base, "OP1: {run:?}");
        assert_eq!(
            run.entries,
            left.len() as u64,
            "OP1: no slot and no entry of a deleted row: {run:?}"
        );
        assert_eq!(run.owner, None, "OP1: {run:?}");
    }
    let lines = store.db.list_tables();
    let line = lines.iter().find(|line| &*line.table == "t").expect("listed");
    assert_eq!(line.gone_rows, 0, "OP1: {line:?}");
    assert_eq!(
        greatest_lsn(&store),
        Lsn::new(0),
        "OP2: nobody asks when entries were made"
    );
    assert!(
        row_bytes(&store, "t") * 100 < before * 90,
        "OP1: a quarter of the rows went"
    );
    store.shows(left.clone());
    store.reopen();
    store.shows(left);
}

#[test]
fn files_of_what_was_replaced_are_gone_when_it_answers() {
    let mut store = Store::new();
    worn_alone(&mut store);
    let bytes = |store: &Store, class| -> u64 {
        let sections = sections(store, class).into_iter();
        let stored =
            |(file, number, _): (Arc<PieceFile>, u32, u64)| file.sections()[number as usize].stored_bytes;
        sections.map(stored).sum()
    };
    let rows = bytes(&store, SegmentClass::Cold);
    optimized(&mut store);
    let living = row_bytes(&store, "t");
    assert!(
        rows > living * 3 / 2,
        "so it was meant: {rows} bytes, {living} live"
    );
    assert_eq!(
        bytes(&store, SegmentClass::Cold),
        living,
        "OP6: not a byte more is on disk"
    );
    let space = store.db.space().expect("sizes");
    let waiting = (space.row_unnamed, space.index_unnamed, space.log_unneeded);
    assert_eq!(waiting, (0, 0, 0), "OP6: {space:?}");
}

#[test]
fn another_table_is_left_to_upkeep() {
    let mut store = Store::new();
    worn(&mut store);
    let before = runs_of(&store, "other");
    let written = store.db.upkeep_counters().merge_bytes_read.get();
    optimized(&mut store);
    let after = runs_of(&store, "other");
    let rows = |runs: &[RunLine]| {
        runs.iter()
            .filter(|run| run.index.is_none())
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(
        rows(&after).len() >= rows(&before).len(),
        "OP1: {before:?}, {after:?}"
    );
    assert!(store.db.upkeep_counters().merge_bytes_read.get() > written);
    let mut other = Client::new(&store.db, 3);
    let table = PlayTable::open(&store.db, "other").expect("there");
    assert_eq!(
        other.scan(&table).expect("read").len() as u64,
        other.count(&table).expect("counted")
    );
}

#[test]
fn an_optimized_table_is_left_as_it_is() {
    let mut store = Store::new();
    let left = worn(&mut store);
    optimized(&mut store);
    let (tail, files) = (store.db.log().tail(), store.disk.list().expect("listed"));
    let syncs = store.disk.syncs();
    assert_eq!(optimized(&mut store), Optimized::default());
    assert_eq!(
        (store.db.log().tail(), store.disk.list().expect("listed")),
        (tail, files),
        "OP2: there was nothing to do"
    );
    assert_eq!(store.disk.syncs(), syncs, "OP2");
    store.shows(left);
}

#[test]
fn progress_rises_and_ends_with_all_of_it() {
    let mut store = Store::new();
    worn(&mut store);
    let table = Arc::clone(&store.table.table);
    let mut told = Vec::new();
    let done = optimize_table(&store.client.session, &table, &mut |done, total| {
        told.push((done, total));
    });
    done.expect("optimized");
    let (first, last) = (told[0], told[told.len() - 1]);
    assert!(told.len() > 4, "OP4: {told:?}");
    assert!(told.is_sorted_by_key(|(done, _)| *done), "OP4: {told:?}");
    assert!(first.0 * 4 < first.1 && last.0 == last.1, "OP4: {told:?}");
    assert!(
        told.iter().any(|(done, total)| 0 < *done && done < total),
        "OP4: {told:?}"
    );
}

#[test]
fn what_an_open_snapshot_sees_stays_until_it_ends() {
    let mut store = Store::new();
    store.insert(0..300);
    store.fill();
    store.compact();
    let mut reader = Client::new(&store.db, 2);
    assert_eq!(reader.scan(&store.table).expect("read").len(), 300);
    for id in 1..=100 {
        store
            .client
            .delete(&store.table, RowId::new(id))
            .expect("deletable")
            .expect("there");
    }
    for id in 101..=150 {
        change(&mut store, id, 7);
    }
    store.client.session.commit().expect("committed");
    assert!(optimized(&mut store).is_held, "OP3");
    let seen = reader.scan(&store.table).expect("read");
    assert_eq!(seen.len(), 300, "OP3");
    assert!(
        seen.iter().all(|(_, row)| *row == Store::row(row.id)),
        "OP3: as they were"
    );
    store.shows(100..300);
    reader.session.commit().expect("nothing to commit");
    assert!(!optimized(&mut store).is_held, "OP3");
    for run in runs_of(&store, "t") {
        assert_eq!((run.level, run.entries), (RunLevel::Base, 200), "OP1: {run:?}");
    }
    store.shows(100..300);
}

#[test]
fn rows_in_the_order_of_the_primary_key_are_told_from_others() {
    let mut store = Store::new();
    store.insert(0..3000);
    assert!(!optimized(&mut store).is_scattered, "OP5");
    let scattered = PlayTable::create(&store.db, "scattered").expect("a table");
    for number in 0..3000_u64 {
        let row = Store::row((number * 1777 % 3001) as u32);
        store.client.insert(&scattered, &row).expect("inserted");
    }
    store.client.session.commit().expect("committed");
    store.table = scattered;
    assert!(optimized(&mut store).is_scattered, "OP5");
}

/// Kills the session after so many reports. False if it was optimized before that.
fn killed_after(store: &mut Store, reports: u32) -> bool {
    let table = Arc::clone(&store.table.table);
    let gate = Arc::clone(store.client.session.gate());
    let mut left = reports;
    let done = store.client.statement(|session| {
        optimize_table(session, &table, &mut |_, _| {
            left = left.saturating_sub(1);
            if left == 0 {
                gate.kill();
            }
        })
    });
    match done {
        Err(Error::Killed) => true,
        Ok(_) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_kill_at_any_report_ends_it_and_loses_nothing() {
    let mut killed = 0;
    for reports in 1.. {
        let mut store = Store::new();
        let left = worn(&mut store);
        let ended = killed_after(&mut store, reports);
        store.shows(left.clone());
        if !ended {
            break;
        }
        killed += 1;
        optimized(&mut store);
        for run in runs_of(&store, "t") {
            assert_eq!(
                (run.level, run.entries),
                (RunLevel::Base, left.len() as u64),
                "OP4: {run:?}"
            );
        }
        store.shows(left);
    }
    assert!(killed > 2, "OP4: {killed} kills");
}

#[test]
fn who_has_been_killed_before_a_step_begins_none() {
    let mut store = Store::new();
    worn(&mut store);
    let table = Arc::clone(&store.table.table);
    let gate = Arc::clone(store.client.session.gate());
    // A statement begins by forgetting kills of the one before.
    store.client.session.begin_statement().expect("begun");
    gate.kill();
    let done = optimize_table(&store.client.session, &table, &mut |_, _| {});
    assert!(matches!(done, Err(Error::Killed)), "OP4: {done:?}");
}

#[test]
fn a_full_disk_ends_it_with_an_error_and_loses_nothing() {
    let mut store = Store::new();
    let left = worn(&mut store);
    store.disk.set_free_bytes(Some(0));
    let done = optimize(&mut store);
    assert!(
        matches!(done, Err(Error::Storage(StorageError::NoSpace { .. }))),
        "OP4: {done:?}"
    );
    store.shows(left.clone());
    for bytes in (0..60_000).step_by(4_000) {
        store.disk.set_free_bytes(Some(bytes));
        match optimize(&mut store) {
            Ok(_) | Err(Error::Storage(StorageError::NoSpace { .. })) => {}
            Err(other) => panic!("{other}"),
        }
        store.shows(left.clone());
    }
    store.disk.set_free_bytes(None);
    optimized(&mut store);
    assert!(runs_of(&store, "t").iter().all(|run| run.level == RunLevel::Base));
    store.shows(left);
}

#[test]
fn power_that_goes_at_any_moment_of_it_costs_nothing() {
    let mut store = Store::new();
    let left = worn(&mut store);
    let first = store.disk.operations();
    optimized(&mut store);
    let count = store.disk.operations() - first;
    assert!(count > 30, "{count} operations");
    for cut in (0..count).step_by(3) {
        let mut store = Store::new();
        assert_eq!(worn(&mut store), left);
        store.disk.cut_power_at(store.disk.operations() + cut);
        let table = Arc::clone(&store.table.table);
        // It fails, or what it did in memory went with the power.
        let _ = optimize_table(&store.client.session, &table, &mut |_, _| {});
        let db = store.after_power_cut(cut);
        let mut client = Client::new(&db, 1);
        let table = PlayTable::open(&db, "t").expect("the table is there");
        let rows = client
            .agreed(&table)
            .expect("readable")
            .unwrap_or_else(|differs| panic!("cut {cut}: {differs}"));
        let mut found: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
        found.sort_unstable();
        assert_eq!(found, left, "OP4: power cut before operation {cut} of {count}");
        assert!(client.check(&table).expect("checkable").is_empty(), "cut {cut}");
    }
}

/// Rule S53 is for upkeep: who asks is told.
#[test]
fn who_optimizes_a_damaged_table_is_told_each_time() {
    let mut store = Store::new();
    let left = worn(&mut store);
    let own = u64::from(store.table.id().raw());
    for (file, number, _) in sections(&store, SegmentClass::Cold)
        .into_iter()
        .filter(|found| found.2 == own)
    {
        let section = &file.sections()[number as usize];
        store
            .disk
            .flip_bit(file.name(), section.block_offset(0) + 20, 3)
            .expect("flipped");
    }
    for _ in 0..2 {
        let done = optimize(&mut store);
        assert!(
            matches!(done, Err(Error::Storage(StorageError::Corrupt { .. }))),
            "OP4: {done:?}"
        );
    }
    assert_eq!(
        store.client.count(&store.table).expect("counted"),
        left.len() as u64
    );
}

/// Begins a merge of upkeep that takes several steps, of an index of a second table; that table.
fn large_merge_of_another(store: &mut Store) -> PlayTable {
    const ROWS: u32 = 12_000;
    let table = PlayTable::create(&store.db, "large").expect("a table");
    let mut rng = Rng::new(4);
    for ids in [0..ROWS, ROWS..2 * ROWS] {
        let loaded = store.client.statement(|session| {
            session.bulk_begin(&table.table, u64::MAX, false);
            for id in ids {
                let mut row = PlayRow::new(id);
                row.name = vec![0; 240];
                rng.fill(&mut row.name);
                put(session, &table, &row)?;
            }
            session.bulk_end(&table.table, false)
        });
        loaded.expect("a load");
        store.client.session.commit().expect("a commit");
    }
    store.db.checkpoint_step().expect("a checkpoint");
    store.db.housekeeping_step();
    let read = || store.db.upkeep_counters().merge_bytes_read.get();
    loop {
        let before = read();
        assert_eq!(store.db.index_merge_step().expect("merged"), Progress::Worked);
        // The step that begins it does nothing else.
        if read() == before {
            return table;
        }
    }
}

fn name_runs(store: &Store, table: &str) -> usize {
    let runs = runs_of(store, table).into_iter();
    runs.filter(|run| run.index.as_deref() == Some("by_name")).count()
}

/// Rules OP1, OP6: neither is it a part of the command, nor does it count as one.
#[test]
fn a_large_merge_of_another_table_is_left_to_upkeep() {
    let mut store = Store::new();
    let left = worn(&mut store);
    large_merge_of_another(&mut store);
    assert_eq!(name_runs(&store, "large"), 2, "so it was meant");
    optimized(&mut store);
    assert_eq!(name_runs(&store, "large"), 2, "OP1");
    for run in runs_of(&store, "t") {
        assert_eq!(
            (run.level, run.entries),
            (RunLevel::Base, left.len() as u64),
            "OP1: {run:?}"
        );
    }
    store.shows(left);
    while store.db.index_merge_step().expect("merged") == Progress::Worked {}
    assert_eq!(name_runs(&store, "large"), 1, "upkeep goes on with it");
}

/// Rule S53.
#[test]
fn damage_that_a_merge_of_another_table_meets_is_not_told() {
    let reasons = Arc::<Reasons>::default();
    let mut store = Store::telling(&reasons);
    let left = worn(&mut store);
    let damaged = large_merge_of_another(&mut store);
    let own = u64::from(damaged.table.indexes[NAME_INDEX].def.id.raw());
    for (file, number, _) in sections(&store, SegmentClass::Meta)
        .into_iter()
        .filter(|found| found.2 == own)
    {
        let at = file.sections()[number as usize].block_offset(0) + 20;
        store.disk.flip_bit(file.name(), at, 3).expect("flipped");
    }
    optimized(&mut store);
    store.shows(left);
    let merged = store.db.index_merge_step();
    assert!(
        matches!(merged, Err(Error::Storage(StorageError::Corrupt { .. }))),
        "upkeep meets it: {merged:?}"
    );
    let told = reasons.take();
    assert_eq!(told.len(), 1, "S65: {told:?}");
    assert!(told[0].contains("meta-"), "S65: {told:?}");
}

#[test]
fn others_change_the_table_meanwhile_and_nobody_sees_a_difference() {
    let mut store = Store::new();
    let left = worn(&mut store);
    let (db, table) = (Arc::clone(&store.db), Arc::clone(&store.table.table));
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let optimizer = std::thread::spawn(move || {
        let mut client = Client::new(&db, 9);
        let mut count = 0;
        while !ended.load(Ordering::Relaxed) {
            optimize_table(&client.session, &table, &mut |_, _| {}).expect("optimized");
            client.session.commit().expect("nothing to commit");
            count += 1;
        }
        count
    });
    let mut reader = Client::new(&store.db, 2);
    let seen = reader.scan(&store.table).expect("read");
    let mut next = 300;
    for round in 3..60 {
        for id in left.iter().step_by(7) {
            change(&mut store, u64::from(*id) + 1, round);
        }
        store.insert(next..next + 20);
        next += 20;
        let rows = store
            .client
            .agreed(&store.table)
            .expect("readable")
            .unwrap_or_else(|differs| panic!("round {round}: {differs}"));
        let changed = rows.iter().filter(|(_, row)| row.group == Some(round)).count();
        assert_eq!(
            (rows.len(), changed),
            (left.len() + next as usize - 300, left.len().div_ceil(7)),
            "round {round}"
        );
        store.client.session.commit().expect("nothing to commit");
        if round % 10 == 0 {
            assert_eq!(
                reader.scan(&store.table).expect("read"),
                seen,
                "an old snapshot sees what it saw"
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(optimizer.join().expect("ended well") > 1);
    reader.session.commit().expect("nothing to commit");
    store.shows(left.into_iter().chain(300..next));
}

#[test]
fn a_temporary_table_is_optimized_too() {
    let mut store = Store::new();
    let def = pbxt_sim::table::definition("passing").expect("a definition");
    let def = pbxt::TableDef {
        temporary: true,
        ..def
    };
    store.db.create_table(def, 1).expect("a new table");
    store.table = PlayTable::open(&store.db, "passing").expect("there");
    store.insert(0..200);
    for id in (1..=200).step_by(2) {
        store
            .client
            .delete(&store.table, RowId::new(id))
            .expect("deletable")
            .expect("there");
    }
    store.client.session.commit().expect("committed");
    optimized(&mut store);
    let runs = runs_of(&store, "passing");
    assert_eq!(runs.len(), 1 + pbxt_sim::table::INDEXES, "{runs:?}");
    for run in runs {
        assert_eq!((run.level, run.entries), (RunLevel::Base, 100), "OP1: {run:?}");
    }
    store.shows((0..200).filter(|id| id % 2 == 1));
}

#[test]
fn hot_rows_are_homed_only_where_the_table_has_some() {
    let mut store = Store::new();
    worn(&mut store);
    optimized(&mut store);
    let other = PlayTable::open(&store.db, "other").expect("there");
    store.client.insert(&other, &Store::row(9000)).expect("inserted");
    store.client.session.commit().expect("committed");
    let tail = store.db.log().tail();
    optimized(&mut store);
    assert_eq!(
        store.db.log().tail(),
        tail,
        "OP1: no segment is filled for another table's rows"
    );
    change(&mut store, 1, 77);
    store.client.session.commit().expect("committed");
    let segment = |at: Lsn| at.raw() / geometry().hot_segment_bytes;
    optimized(&mut store);
    assert!(
        segment(store.db.log().tail()) > segment(tail),
        "OP1: for its own it is"
    );
    assert!(store.db.compact_step().expect("looked") == Progress::Idle);
}

#[test]
fn a_checkpoint_that_was_ordered_is_made_by_its_thread() {
    let options = pbxt::Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: true,
        ..pbxt::Options::default()
    };
    let disk = pbxt_testkit::SimDisk::new();
    let db = pbxt::Database::open(Arc::new(disk), &options).expect("the database opens");
    let table = PlayTable::create(&db, "t").expect("a new table");
    let mut client = Client::new(&db, 1);
    for round in 0..5 {
        for id in round * 40..round * 40 + 40 {
            client.insert(&table, &Store::row(id)).expect("inserted");
        }
        client.session.commit().expect("committed");
        let before = db.maintenance_status().start;
        optimize_table(&client.session, &table.table, &mut |_, _| {}).expect("optimized");
        assert!(db.maintenance_status().start > before, "OP6");
        assert_eq!(
            table.table.index_bytes(),
            PlayTable::create(&db, &format!("empty{round}"))
                .expect("a table")
                .table
                .index_bytes(),
            "OP6: all entries are in runs"
        );
    }
    let rows = client
        .agreed(&table)
        .expect("readable")
        .unwrap_or_else(|differs| panic!("{differs}"));
    assert_eq!(rows.len(), 200);
    client.session.commit().expect("nothing to commit");
    drop((client, table));
    db.close().expect("closed");
}

/// A host that kills its session at the n-th look at it.
#[derive(Debug, Default)]
struct Impatient {
    left: AtomicU64,
}

impl WaitObserver for Impatient {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {}
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        self.left.load(Ordering::Relaxed) > 0 && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// Steps end between two of their rows too, and their files go.
#[test]
fn a_kill_at_any_look_ends_it_and_leaves_no_file() {
    let mut looks = 0;
    for nth in (1..).step_by(3) {
        let mut store = Store::new();
        let host = Arc::<Impatient>::default();
        let options = pbxt::Options {
            geometry: geometry(),
            cache_bytes: 1 << 20,
            background: false,
            observer: Some(Arc::<Impatient>::clone(&host)),
            ..pbxt::Options::default()
        };
        store.disk = pbxt_testkit::SimDisk::new();
        store.db = pbxt::Database::open(Arc::new(store.disk.clone()), &options).expect("opens");
        store.table = PlayTable::create(&store.db, "t").expect("a new table");
        store.client = Client::new(&store.db, 1);
        let left = worn(&mut store);
        host.left.store(nth, Ordering::Relaxed);
        let done = optimize(&mut store);
        host.left.store(0, Ordering::Relaxed);
        store.shows(left);
        store.db.checkpoint_step().expect("a checkpoint");
        let space = store.db.space().expect("sizes");
        assert_eq!(
            (space.row_unnamed, space.index_unnamed),
            (0, 0),
            "OP4: look {nth}: {space:?}"
        );
        match done {
            Err(Error::Killed) => looks += 1,
            Ok(_) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(looks > 6, "OP4: {looks} looks");
}

/// Checkpoints have a snapshot too, for counts.
#[cfg(feature = "stop-points")]
#[test]
fn a_checkpoint_under_way_is_no_older_snapshot() {
    let turn = hold::turn();
    let mut store = Store::new();
    worn(&mut store);
    let db = Arc::clone(&store.db);
    let checkpoint = hold::hold_at(&turn, "checkpoint.after_begin", move || db.checkpoint_step());
    change(&mut store, 1, 50);
    store.client.session.commit().expect("committed");
    let (db, table) = (Arc::clone(&store.db), Arc::clone(&store.table.table));
    let optimizer = std::thread::spawn(move || {
        let client = Client::new(&db, 9);
        optimize_table(&client.session, &table, &mut |_, _| {})
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    checkpoint.release().expect("made");
    let done = optimizer.join().expect("ended well").expect("optimized");
    assert!(!done.is_held, "OP3");
    let hot = store.table.table.map.rows_from(RowId::new(1)).count();
    assert_eq!(hot, 0, "OP1: rows left the log");
    for run in runs_of(&store, "t") {
        assert_eq!((run.level, run.entries), (RunLevel::Base, 225), "OP1: {run:?}");
    }
}
