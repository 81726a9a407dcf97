//! Merges of indexes that take more than one file.

mod common;

use common::put;
use pbxt::{Database, Error, Options, Progress};
use pbxt_io::Disk;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::{Rng, SimDisk};
use std::sync::Arc;

/// Rows of a load: with names of this length some 19 MiB of index.
const ROWS: u32 = 80_000;
const NAME_BYTES: usize = 240;
/// Enough for a file of the merge, not for all.
const FREE: u64 = 36 << 20;

fn load(client: &mut Client, table: &PlayTable, rng: &mut Rng, first: u32) {
    let loaded = client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        for id in first..first + ROWS {
            let mut name = vec![0; NAME_BYTES];
            rng.fill(&mut name);
            put(
                session,
                table,
                &PlayRow {
                    name,
                    ..PlayRow::new(id)
                },
            )?;
        }
        session.bulk_end(&table.table, false)
    });
    loaded.expect("a load");
    client.session.commit().expect("a commit");
}

/// Rule S21.
#[test]
fn a_large_merge_that_fails_leaves_none_of_its_files() {
    let disk = SimDisk::new();
    let options = Options {
        geometry: geometry(),
        cache_bytes: 64 << 20,
        background: false,
        ..Options::default()
    };
    let db = Database::open(Arc::new(disk.clone()), &options).expect("the database opens");
    let table = PlayTable::create(&db, "t").expect("a new table");
    let mut client = Client::new(&db, 1);
    let mut rng = Rng::new(1);
    load(&mut client, &table, &mut rng, 0);
    load(&mut client, &table, &mut rng, ROWS);
    // From here on the stamps of both loads say nothing more (rule D23).
    db.checkpoint_step().expect("a checkpoint");
    db.housekeeping_step();
    // The small indexes, all in one step.
    assert_eq!(db.index_merge_step().expect("merged"), Progress::Worked);
    disk.set_free_bytes(Some(FREE));
    let error = loop {
        match db.index_merge_step() {
            Ok(Progress::Worked) => {}
            Ok(Progress::Idle) => panic!("the index of names was merged in {FREE} bytes"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, Error::Storage(pbxt_base::Error::NoSpace { .. })),
        "{error:?}"
    );
    // Without a checkpoint, which needs room itself.
    let left = disk.free_bytes().expect("a number");
    assert!(left >= FREE - (2 << 20), "S21: {left} of {FREE} bytes are free");
}
