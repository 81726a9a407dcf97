//! Background work is over exactly when the number of its jobs is 0; figures say what it did.

#[path = "common/store.rs"]
mod store;

use pbxt::Progress;
use store::Store;

fn jobs(store: &Store) -> u64 {
    store.db.background_jobs().expect("a number")
}

/// All steps that are due, as the threads would take them when the database is idle.
fn work(store: &Store) -> u32 {
    let mut steps = 0;
    loop {
        store.db.housekeeping_step();
        let made = store.db.maintenance_step(true).expect("a checkpoint");
        let worked = store.db.upkeep_step(true).expect("a step") == Progress::Worked;
        if !made && !worked {
            return steps;
        }
        steps += 1;
    }
}

#[test]
fn jobs_are_due_until_nothing_is_left_to_do() {
    let mut store = Store::new();
    assert_eq!(jobs(&store), 0, "a new database");
    for round in 0..4 {
        store.insert(round * 100..round * 100 + 100);
        store.fill();
        assert!(jobs(&store) > 0, "finished segments wait for the compactor");
        assert!(work(&store) > 0);
        assert_eq!(jobs(&store), 0, "all is done");
        assert_eq!(work(&store), 0, "and so the threads see it");
    }
    let status = store.db.status();
    assert!(status.rows_homed >= 300, "{status:?}");
    assert!(
        status.row_runs.runs >= 2 && status.row_runs.bytes > 0,
        "{status:?}"
    );
    assert_eq!(status.background_jobs, 0);
    store.shows(0..400);
}

#[test]
fn what_waits_for_a_reader_is_not_due() {
    let mut store = Store::new();
    store.insert(0..100);
    store
        .client
        .scan(&store.table)
        .expect("a snapshot of a hundred rows");
    let mut writer = pbxt_sim::client::Client::new(&store.db, 2);
    for id in 1..50 {
        writer
            .update(&store.table, pbxt_base::RowId::new(id), |row| {
                let mut row = row.clone();
                row.group = Some(7);
                row
            })
            .expect("updated");
    }
    writer.session.commit().expect("committed");
    let mut filler = Store {
        db: store.db.clone(),
        table: store.table.clone(),
        client: writer,
        disk: store.disk.clone(),
    };
    filler.fill();
    work(&store);
    assert_eq!(jobs(&store), 0, "the rest waits for the snapshot");
    store.client.session.commit().expect("nothing to commit");
    assert!(jobs(&store) > 0, "now it does not");
    work(&store);
    assert_eq!(jobs(&store), 0);
}

#[test]
fn the_size_of_a_table_is_what_its_runs_take() {
    let mut store = Store::new();
    store.insert(0..300);
    let hot = store.table.table.info();
    assert!(
        hot.data_bytes > 300 * 400,
        "in the log nothing is compressed: {hot:?}"
    );
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
    let cold = store.table.table.info();
    let status = store.db.status();
    assert!(
        cold.data_bytes > 0 && cold.data_bytes <= status.row_runs.bytes,
        "{cold:?} of {:?}",
        status.row_runs
    );
    assert!(
        cold.index_bytes > 0 && cold.index_bytes <= status.index_runs.bytes + store.table.table.index_bytes(),
        "{cold:?} of {:?}",
        status.index_runs
    );
    assert_eq!(
        cold.mean_row_bytes, hot.mean_row_bytes,
        "rows are as long as before"
    );
    let rows = store.client.scan(&store.table).expect("a scan");
    for (row, _) in rows.iter().take(200) {
        let deleted = store.client.delete(&store.table, *row).expect("deleted");
        assert!(deleted.is_some());
    }
    store.client.session.commit().expect("a commit");
    let left = store.table.table.info();
    assert!(
        left.mean_row_bytes.abs_diff(cold.mean_row_bytes) * 10 < cold.mean_row_bytes,
        "rows that nobody read when they were deleted took their bytes along: {left:?} of {cold:?}"
    );
}
