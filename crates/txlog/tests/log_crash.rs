//! Power cuts: at every operation, with independent loss per file and sector, and again after more commits.

mod common;

use common::{Fixture, write_commit, write_row};
use pbxt_base::Result;
use pbxt_testkit::{Fault, SimDisk, Sweep};
use std::cell::Cell;

/// Writes transactions `from..to`, each some rows and a commit, and waits for every third one. What was written, in
/// order, goes to `written`; the length of the acknowledged part is returned along with the first error.
fn work(fixture: &Fixture, from: u64, to: u64, written: &mut Vec<u64>) -> (usize, Result<()>) {
    let mut acknowledged = 0;
    let mut run = || -> Result<()> {
        for txn in from..to {
            for row in 0..=txn % 4 {
                let number = txn * 100 + row;
                written.push(number);
                write_row(&fixture.log, number, 40 + (number as usize * 13) % 3000)?;
            }
            written.push(u64::MAX - txn);
            let end = write_commit(&fixture.log, txn)?;
            if txn % 3 == 0 {
                fixture.log.wait_durable(end)?;
                acknowledged = written.len();
            } else if txn % 3 == 1 {
                fixture.log.wait_written(end)?;
            }
            if txn % 10 == 0 {
                fixture.log.background_step();
            }
        }
        Ok(())
    };
    let result = run();
    (acknowledged, result)
}

/// Opens a new database, works, and crashes with everything in flight. Returns what was written and how much of it
/// was acknowledged.
fn first_life(disk: &SimDisk) -> (Vec<u64>, usize) {
    let mut written = Vec::new();
    let Ok(fixture) = Fixture::open_sim(disk) else {
        return (written, 0);
    };
    let (acknowledged, _) = work(&fixture, 1, 60, &mut written);
    (written, acknowledged)
}

fn check_prefix(found: &[u64], written: &[u64], acknowledged: usize, case: &str) {
    assert!(
        written.starts_with(found),
        "{case}: recovery found something that was not written"
    );
    assert!(
        found.len() >= acknowledged,
        "{case}: {} of {acknowledged} acknowledged records are left",
        found.len()
    );
}

#[test]
fn everything_acknowledged_survives_every_crash() {
    let sweep = Sweep { seeds: 3, step: 1 };
    let images = sweep.run(first_life, |image, (written, acknowledged), case| {
        let fixture = match Fixture::open_sim(image) {
            Ok(fixture) => fixture,
            Err(error) => {
                assert_eq!(*acknowledged, 0, "{case}: does not open: {error}");
                return;
            }
        };
        check_prefix(&fixture.numbers(), written, *acknowledged, case);
    });
    assert!(images > 300, "{images} images");
}

#[test]
fn a_power_cut_while_segments_are_left_loses_nothing() {
    let life = |disk: &SimDisk| {
        let mut written = Vec::new();
        let Ok(fixture) = Fixture::open_sim(disk) else {
            return (written, 0);
        };
        let (first, done) = work(&fixture, 1, 12, &mut written);
        if done.and_then(|()| fixture.log.leave_segments()).is_err() {
            return (written, first);
        }
        let (second, _) = work(&fixture, 12, 24, &mut written);
        (written, first.max(second))
    };
    let images = Sweep { seeds: 2, step: 1 }.run(life, |image, (written, acknowledged), case| {
        let fixture = match Fixture::open_sim(image) {
            Ok(fixture) => fixture,
            Err(error) => {
                assert_eq!(*acknowledged, 0, "{case}: does not open: {error}");
                return;
            }
        };
        check_prefix(&fixture.numbers(), written, *acknowledged, case);
    });
    assert!(images > 100, "{images} images");
}

/// Counts the images in which something acknowledged is lost when syncs of these files do nothing.
fn losses_without_sync(prefix: &str) -> u64 {
    let losses = Cell::new(0);
    let fault = Fault::SkipSync {
        prefix: prefix.into(),
    };
    Sweep { seeds: 2, step: 5 }.run_prepared(
        |disk| disk.plant(fault.clone()),
        first_life,
        |image, (_, acknowledged), _| {
            let found = Fixture::open_sim(image).map_or(0, |fixture| fixture.seen.len());
            losses.set(losses.get() + u64::from(found < *acknowledged));
        },
    );
    losses.get()
}

#[test]
fn a_forgotten_sync_would_be_caught() {
    assert_eq!(losses_without_sync("no such file"), 0);
    assert!(losses_without_sync("hot-") > 20);
}

#[test]
fn a_second_crash_after_more_commits_loses_nothing() {
    let sweep = Sweep { seeds: 2, step: 3 };
    sweep.run(first_life, |image, (written, acknowledged), case| {
        let Ok(second) = Fixture::open_sim(image) else {
            return;
        };
        let mut known = second.numbers();
        check_prefix(&known, written, *acknowledged, case);
        // What an opening has shown to its users stays, acknowledged or not.
        let shown = known.len();
        let (acknowledged, result) = work(&second, 100, 110, &mut known);
        result.expect("the second life has no faults");
        let acknowledged = acknowledged.max(shown);
        for seed in 0..3 {
            let case = format!("{case}, then seed {seed}");
            let third =
                Fixture::open_sim(&image.crash(seed)).unwrap_or_else(|error| panic!("{case}: {error}"));
            check_prefix(&third.numbers(), &known, acknowledged, &case);
        }
    });
}

#[test]
fn what_a_dead_process_left_is_not_lost_by_a_later_power_cut() {
    for seed in 0..40 {
        let disk = SimDisk::new();
        let first = Fixture::open_sim(&disk).expect("opens");
        for number in 0..20 {
            let (_, end) = write_row(&first.log, number, 700).expect("space");
            first.log.wait_written(end).expect("written");
        }
        let machine_lives = disk.kill();
        let second = Fixture::open_sim(&machine_lives).expect("opens");
        let mut known = second.numbers();
        assert_eq!(
            known.len(),
            20,
            "everything written is there after the death of the process"
        );
        let (_, end) = write_row(&second.log, 20, 100).expect("space");
        second.log.wait_durable(end).expect("durable");
        known.push(20);
        let third = Fixture::open_sim(&machine_lives.crash(seed)).expect("opens");
        assert_eq!(third.numbers(), known, "seed {seed}");
    }
}

#[test]
fn blob_streams_are_synced_before_the_batch_is_written() {
    let mut found = 0;
    for seed in 0..60 {
        let disk = SimDisk::new();
        let first = Fixture::open_sim(&disk).expect("opens");
        let mut blobs = Vec::new();
        for number in 0..6 {
            blobs.push(first.blobs.append(&vec![number as u8; 3000]).expect("space"));
            let (_, end) = write_row(&first.log, number, 100).expect("space");
            first.log.wait_written(end).expect("written");
        }
        let second = Fixture::open_sim(&disk.crash(seed)).expect("opens");
        let mut value = Vec::new();
        for number in second.numbers() {
            second
                .blobs
                .read(&blobs[number as usize], &mut value)
                .expect("a row in the log has its value");
            found += 1;
        }
    }
    assert!(found > 30, "some crashes keep some rows: {found}");
}

#[test]
fn bytes_behind_a_cut_are_never_parsed() {
    let disk = SimDisk::new();
    let first = Fixture::open_sim(&disk).expect("opens");
    let mut places = Vec::new();
    for number in 0..3 {
        let (lsn, end) = write_row(&first.log, number, 600).expect("space");
        first.log.wait_written(end).expect("written");
        places.push(lsn);
    }
    let killed = disk.kill();
    // Batch 2 of 3 is torn; batch 3 is whole, and nothing was ever durable.
    killed
        .flip_bit("hot-00000001.seg", places[1].raw() % (128 << 10) + 100, 0)
        .expect("there");
    for opening in 0..3 {
        let again = Fixture::open_sim(&killed).expect("a torn tail is cut without a word");
        let expected: Vec<u64> = std::iter::once(0).chain((0..opening).map(|n| 10 + n)).collect();
        assert_eq!(again.numbers(), expected);
        let guard = crossbeam_epoch::pin();
        again.log.read(places[0], &guard).expect("before the cut");
        assert!(
            again.log.read(places[2], &guard).is_err(),
            "behind the cut there is nothing"
        );
        write_row(&again.log, 10 + opening, 50).expect("space");
        again.log.close().expect("closes");
    }
}
