//! Failing and full disks: what poisons, what does not, and who gets told.

mod common;

use common::{Fixture, by_hand, number_of, write_commit, write_row};
use pbxt_base::Error;
use pbxt_segment::Geometry;
use pbxt_testkit::{Fault, SimDisk};
use pbxt_txlog::{LogOptions, Space};
use std::sync::Arc;
use std::thread;

fn fail_sync(nth: u64) -> Fault {
    Fault::FailSync {
        prefix: "hot-".into(),
        nth,
    }
}

#[test]
fn a_failed_write_poisons_and_tells_every_waiter() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let (lsn, end) = write_row(&fixture.log, 1, 100).expect("space");
    fixture.log.wait_durable(end).expect("durable");
    disk.plant(Fault::FailWrite {
        prefix: "hot-".into(),
        nth: 1,
    });
    thread::scope(|scope| {
        for number in 2..10 {
            let log = &fixture.log;
            scope.spawn(move || {
                let end = match write_row(log, number, 100) {
                    Ok((_, end)) => end,
                    Err(error) => return assert!(matches!(error, Error::Poisoned { .. }), "{error}"),
                };
                let error = log
                    .wait_durable(end)
                    .expect_err("nobody is told that this is durable");
                assert!(
                    matches!(error, Error::Io { .. } | Error::Poisoned { .. }),
                    "{error}"
                );
            });
        }
    });
    assert!(fixture.poison.is_set());
    let error = fixture
        .log
        .reserve(64, Space::Spare)
        .expect_err("nothing is taken any more");
    assert!(
        error.to_string().contains("hot-00000001.seg"),
        "the reason names the file: {error}"
    );
    assert!(fixture.log.close().is_err());
    let guard = crossbeam_epoch::pin();
    let record = fixture.log.read(lsn, &guard).expect("reading goes on");
    assert_eq!(number_of(record.as_row().expect("a row").payload()), 1);
}

#[test]
fn a_failed_sync_is_never_retried() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    disk.plant(fail_sync(1));
    let (_, end) = write_row(&fixture.log, 1, 100).expect("space");
    fixture.log.wait_durable(end).expect_err("the sync failed");
    let durable = fixture.log.durable();
    let syncs = disk.syncs();
    fixture.log.wait_durable(end).expect_err("and stays failed");
    fixture.log.flush_step().expect_err("for everybody");
    fixture.log.background_step();
    assert_eq!(disk.syncs(), syncs, "no sync after the failed one");
    assert_eq!(
        fixture.log.durable(),
        durable,
        "the durable mark stays where it was"
    );
    assert!(durable < end);
}

#[test]
fn a_full_disk_refuses_rows_and_still_takes_ends() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    disk.set_free_bytes(Some(100 << 10));
    let mut written = Vec::new();
    let error = loop {
        match write_row(&fixture.log, written.len() as u64, 500) {
            Ok(_) => written.push(written.len() as u64),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!fixture.poison.is_set(), "a full disk is an ordinary error");
    for ts in 0..60 {
        let end = write_commit(&fixture.log, ts).expect("transactions can end");
        fixture.log.wait_durable(end).expect("and are durable");
        written.push(u64::MAX - ts);
    }
    disk.set_free_bytes(Some(1 << 20));
    write_row(&fixture.log, 7777, 500).expect("rows go on when space returns");
    written.push(7777);
    fixture.log.close().expect("closes");
    drop(fixture);
    assert_eq!(Fixture::open_sim(&disk).expect("opens").numbers(), written);
}

#[test]
fn the_reserve_ends_in_an_error_and_not_in_a_wait() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    disk.set_free_bytes(Some(0));
    let mut ends = 0_u64;
    let error = loop {
        match write_commit(&fixture.log, ends) {
            Ok(_) => ends += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(ends > 1000, "{ends} ends fit into the segment that was there");
    fixture.log.flush_step().expect("what was taken is written");
}

#[test]
fn no_more_than_the_limit_is_ever_unsynced() {
    let limit = 40 << 10;
    let disk = SimDisk::new();
    let options = LogOptions {
        unsynced_bytes_max: limit,
        ..by_hand()
    };
    let fixture = Fixture::open_with(Arc::new(disk), Geometry::small(), options).expect("opens");
    let mut far = 0;
    for number in 0..2000 {
        let (_, end) = write_row(&fixture.log, number, 700).expect("space");
        if number % 5 == 0 {
            fixture.log.wait_written(end).expect("written");
            let behind = fixture.log.written().raw() - fixture.log.durable().raw();
            // Between two positions lie also the header and footer of a segment, which are not log.
            assert!(
                behind <= limit + 8192,
                "{behind} bytes are written and not synced"
            );
            far = far.max(behind);
        }
    }
    assert!(far > limit / 2, "syncs come only when they must: {far}");
}

#[test]
fn rows_wait_for_the_flusher_and_ends_do_not() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_with(Arc::new(disk), Geometry::small(), by_hand()).expect("opens");
    let (_, first_end) = write_row(&fixture.log, 0, 100).expect("space");
    for number in 1..4000 {
        write_row(&fixture.log, number, 700).expect("space");
    }
    let stats = fixture.log.stats();
    assert!(
        stats.row_waits > 0 && stats.batches > 60,
        "rows made room for themselves: {stats:?}"
    );
    assert!(fixture.log.written() > first_end);
    let waits = stats.row_waits;
    for ts in 0..3000 {
        write_commit(&fixture.log, ts).expect("space");
    }
    assert_eq!(fixture.log.stats().row_waits, waits);
}

#[test]
fn a_segment_that_cannot_be_begun_poisons() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    disk.plant(Fault::FailWrite {
        prefix: "hot-00000002".into(),
        nth: 1,
    });
    let mut failed = false;
    for number in 0..300 {
        failed |= write_row(&fixture.log, number, 900)
            .and_then(|(_, end)| fixture.log.wait_durable(end))
            .is_err();
    }
    assert!(failed && fixture.poison.is_set());
}
