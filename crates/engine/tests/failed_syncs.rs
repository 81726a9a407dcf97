//! Syncs of the log that fail, and processes that die before them: the next life builds on nothing that a later power cut takes
//! back (rules D24, D34); and who is told of such a failure (rule D9).

mod common;
#[path = "common/told.rs"]
mod told;

use common::{Bench, open, options, row};
use pbxt::{Database, FlushAtCommit, Options, SessionConfig, Simulation, WaitObserver};
use pbxt_io::{Clock, SystemClock};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::{Fault, SimDisk};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use told::Told;

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

/// Rule D9: the failure was not one of the log, which would take the END.
#[test]
fn a_commit_that_waits_for_nothing_is_told_of_a_failure_before_it() {
    let mut bench = Bench::new();
    let config = bench.client.session.config();
    bench.client.session.configure(SessionConfig {
        flush: FlushAtCommit::Background,
        ..config
    });
    bench.client.insert(&bench.table, &row(1)).expect("inserted");
    bench.disk.plant(fail_sync("pbxt.manifest"));
    bench
        .db
        .checkpoint_step()
        .expect_err("a sync of the manifest fails");
    let committed = bench.client.session.commit();
    committed.expect_err("D9: nothing will be synced any more");
}

fn told_to(told: &Arc<Told>) -> Options {
    Options {
        observer: Some(Arc::clone(told) as Arc<dyn WaitObserver>),
        ..options()
    }
}

#[test]
fn a_host_is_told_once_that_the_disk_made_the_database_read_only() {
    for failing in ["hot-", "pbxt.manifest"] {
        let (disk, told) = (SimDisk::new(), Arc::<Told>::default());
        let db = Database::open(Arc::new(disk.clone()), &told_to(&told)).expect("the database opens");
        let table = PlayTable::create(&db, "t").expect("a new table");
        let mut client = Client::new(&db, 1);
        client.insert(&table, &row(1)).expect("inserted");
        assert!(!db.status().is_read_only);
        disk.plant(fail_sync(failing));
        db.checkpoint_step().expect_err("a sync fails");
        assert!(db.status().is_read_only, "D9: {failing}");
        client
            .session
            .commit()
            .expect_err("D9: nothing is written any more");
        db.checkpoint_step().expect_err("D9: nothing is tried again");
        let told = std::mem::take(&mut told.0.lock().read_only);
        assert_eq!(told.len(), 1, "D9: {failing}: {told:?}");
        assert!(
            told[0].starts_with("the database is read-only since a disk failure (")
                && told[0].contains(failing)
                && told[0].ends_with("): check the disk, then restart"),
            "D9: {told:?}"
        );
    }
}

/// A clock that is no good for one thread once somebody broke it.
#[derive(Debug)]
struct Clockwork {
    time: SystemClock,
    is_broken: AtomicBool,
}

impl Clock for Clockwork {
    fn now_millis(&self) -> u64 {
        let thread = std::thread::current();
        let is_met = self.is_broken.load(Ordering::Relaxed) && thread.name() == Some("pbxt-housekeeper");
        assert!(!is_met, "the clock\nstands still");
        self.time.now_millis()
    }

    fn unix_seconds(&self) -> u64 {
        self.time.unix_seconds()
    }
}

#[test]
fn a_host_is_told_of_a_panic_of_a_background_thread_by_its_words_and_not_as_a_disk_failure() {
    let told = Arc::<Told>::default();
    let clock = Arc::new(Clockwork {
        time: SystemClock::new(),
        is_broken: AtomicBool::new(false),
    });
    let simulation = Simulation {
        clock: Arc::clone(&clock) as _,
        uuid: 0x5eed,
    };
    let options = Options {
        background: true,
        simulation: Some(simulation),
        ..told_to(&told)
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).expect("the database opens");
    let table = PlayTable::create(&db, "t").expect("a new table");
    clock.is_broken.store(true, Ordering::Relaxed);
    let began = Instant::now();
    while told.0.lock().read_only.is_empty() {
        assert!(began.elapsed() < Duration::from_mins(1), "D9: nobody is told");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sentence = "the database is read-only since an internal error (background thread 'pbxt-housekeeper' failed: \
                    the clock stands still): please report it, then restart";
    assert_eq!(told.0.lock().read_only.as_slice(), [sentence], "D9");
    let mut client = Client::new(&db, 1);
    let refused = client
        .insert(&table, &row(1))
        .expect_err("D9: nothing is written any more");
    assert_eq!(refused.to_string(), sentence);
}

/// A table with pieces whose DROP was written; its sync failed, and the process died.
fn dropped_in_doubt() -> SimDisk {
    let mut bench = Bench::new();
    fill(&mut bench, 1..200);
    bench.db.checkpoint_step().expect("a checkpoint");
    let idle = open(&SimDisk::new());
    bench.client = Client::new(&idle, 0);
    bench.disk.plant(fail_sync("hot-"));
    bench.db.drop_table(None, "t").expect_err("its sync fails");
    bench.disk.kill()
}

#[test]
fn files_of_a_dropped_table_stay_until_the_log_that_says_so_is_durable() {
    let lives = dropped_in_doubt();
    for operation in 0.. {
        let disk = lives.kill();
        disk.cut_power_at(lives.operations() + operation);
        drop(Database::open(Arc::new(disk.clone()), &options()));
        let was_cut = disk.is_off();
        for seed in 0..20 {
            let opened = Database::open(Arc::new(disk.crash(seed)), &options());
            assert!(
                opened.is_ok(),
                "power cut before operation {operation}, seed {seed}: {:?}",
                opened.err()
            );
        }
        if !was_cut {
            assert!(operation > 10, "an opening has more operations than {operation}");
            break;
        }
    }
}
