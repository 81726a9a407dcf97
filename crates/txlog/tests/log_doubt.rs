//! A sync fails, the process dies, the database is opened again and goes on, the power fails: nothing that was read is missing (D34).

mod common;

use common::{Fixture, write_row};
use pbxt_testkit::{Fault, SimDisk};

/// Rows of the first life that are durable, and those whose sync fails.
const DURABLE: u64 = 5;
const DOUBTFUL: u64 = 40;

fn fail_sync(prefix: &str, nth: u64) -> Fault {
    Fault::FailSync {
        prefix: prefix.into(),
        nth,
    }
}

/// Writes rows from `numbers`, durable one by one; how many were acknowledged.
fn write_some(fixture: &Fixture, numbers: std::ops::Range<u64>) -> u64 {
    let count = numbers.clone().count() as u64;
    let failed = numbers.into_iter().position(|number| {
        write_row(&fixture.log, number, 700)
            .and_then(|(_, end)| fixture.log.wait_durable(end))
            .is_err()
    });
    failed.map_or(count, |failed| failed as u64)
}

/// A life whose last rows are written, and whose sync failed; the machine lives on.
fn after_a_failed_sync() -> SimDisk {
    let disk = SimDisk::new();
    let first = Fixture::open_sim(&disk).expect("opens");
    assert_eq!(write_some(&first, 0..DURABLE), DURABLE);
    for number in DURABLE..DOUBTFUL {
        write_row(&first.log, number, 700).expect("space");
        let end = first.log.tail();
        first.log.wait_written(end).expect("written");
    }
    disk.plant(fail_sync("hot-", 1));
    let (_, end) = write_row(&first.log, DOUBTFUL, 700).expect("space");
    first.log.wait_durable(end).expect_err("the sync failed");
    disk.kill()
}

#[test]
fn what_a_failed_sync_left_is_durable_after_the_next_opening() {
    for seed in 0..60 {
        let disk = after_a_failed_sync();
        let second = Fixture::open_sim(&disk).expect("opens");
        let mut known = second.numbers();
        assert_eq!(known, (0..=DOUBTFUL).collect::<Vec<_>>());
        assert_eq!(write_some(&second, 100..101), 1);
        known.push(100);
        let third = Fixture::open_sim(&disk.crash(seed))
            .unwrap_or_else(|error| panic!("seed {seed}: does not open: {error}"));
        assert_eq!(third.numbers(), known, "seed {seed}");
    }
}

#[test]
fn only_what_may_not_be_durable_is_written_again() {
    let disk = after_a_failed_sync();
    let before = disk.bytes_written();
    let _second = Fixture::open_sim(&disk).expect("opens");
    let again = disk.bytes_written() - before;
    let doubtful = (DOUBTFUL - DURABLE + 2) * 1024;
    // Beside it, the header of a segment and the manifest.
    assert!(again < doubtful + 4096 + 2048, "{again} bytes for {doubtful}");
}

#[test]
fn a_segment_whose_header_was_not_synced_is_no_gap_later() {
    for (nth, seed) in (1..=3).flat_map(|nth| (0..40).map(move |seed| (nth, seed))) {
        let case = format!("sync {nth}, seed {seed}");
        let disk = after_a_failed_sync();
        // The second life's segment: its preparation, its header, its first batch.
        disk.plant(fail_sync("hot-00000002", nth));
        let acknowledged = Fixture::open_sim(&disk).map_or(0, |second| write_some(&second, 100..110));
        let disk = disk.kill();
        let third = Fixture::open_sim(&disk).unwrap_or_else(|error| panic!("{case}: {error}"));
        let mut known = third.numbers();
        assert!(known.len() as u64 > DOUBTFUL + acknowledged, "{case}: {known:?}");
        assert_eq!(write_some(&third, 200..203), 3, "{case}");
        known.extend(200..203);
        let last = Fixture::open_sim(&disk.crash(seed)).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(last.numbers(), known, "{case}");
    }
}

#[test]
fn a_failed_sync_of_the_manifest_is_no_gap_later() {
    for (nth, seed) in (1..=6).flat_map(|nth| (0..60).map(move |seed| (nth, seed))) {
        let case = format!("sync {nth}, seed {seed}");
        let disk = SimDisk::new();
        drop(Fixture::open_sim(&disk).map(|first| write_some(&first, 0..DURABLE)));
        let disk = disk.kill();
        disk.plant(fail_sync("pbxt.manifest", nth));
        // Long enough for some segments.
        let acknowledged = Fixture::open_sim(&disk).map_or(0, |second| {
            let acknowledged = write_some(&second, 100..700);
            drop(second.log.close());
            acknowledged
        });
        let disk = disk.kill();
        let third = Fixture::open_sim(&disk).unwrap_or_else(|error| panic!("{case}: {error}"));
        let mut known = third.numbers();
        assert!(known.len() as u64 >= DURABLE + acknowledged, "{case}");
        assert_eq!(write_some(&third, 1000..1400), 400, "{case}");
        known.extend(1000..1400);
        let last = Fixture::open_sim(&disk.crash(seed)).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(last.numbers(), known, "{case}");
    }
}
