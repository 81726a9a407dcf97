//! Syncs of the log that fail, and processes that die before them: the next life builds on nothing that a later power cut takes
//! back (rule D34).

mod common;

use common::{Bench, open, options, row};
use pbxt::Database;
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::Fault;
use std::ops::Range;
use std::sync::Arc;

fn fail_sync(prefix: &str) -> Fault {
    Fault::FailSync {
        prefix: prefix.into(),
        nth: 1,
    }
}

fn fill(bench: &mut Bench, ids: Range<u32>) {
    for id in ids {
        bench.client.insert(&bench.table, &row(id)).expect("inserted");
    }
    bench.client.session.commit().expect("committed");
}

fn ids(db: &Arc<Database>) -> Vec<u32> {
    let table = PlayTable::open(db, "t").expect("the table");
    let agreed = Client::new(db, 1).agreed(&table).expect("readable");
    let rows = agreed.unwrap_or_else(|differs| panic!("{differs}"));
    let mut ids: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_life_after_a_failed_sync_loses_no_commit() {
    for seed in 0..30 {
        let mut bench = Bench::new();
        fill(&mut bench, 1..20);
        bench.disk.plant(fail_sync("hot-"));
        bench.client.insert(&bench.table, &row(20)).expect("inserted");
        bench.client.session.commit().expect_err("its sync fails");
        let disk = bench.disk.kill();
        let db = open(&disk);
        assert_eq!(ids(&db), (1..21).collect::<Vec<_>>(), "all that was written");
        let table = PlayTable::open(&db, "t").expect("the table");
        let mut client = Client::new(&db, 1);
        client.insert(&table, &row(21)).expect("inserted");
        client.session.commit().expect("committed");
        let after = disk.crash(seed);
        let db =
            Database::open(Arc::new(after), &options()).unwrap_or_else(|error| panic!("{seed}: {error}"));
        assert_eq!(ids(&db), (1..22).collect::<Vec<_>>(), "seed {seed}");
    }
}
