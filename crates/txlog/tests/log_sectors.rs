//! Which way the log is written: past the page cache what a sync follows at once, through it what nobody waits for (D30), and that
//! readers and recovery see both (D32).

mod common;

use common::{Fixture, by_hand, number_of, write_commit, write_row};
use pbxt_io::{DirectIo, Disk, OsDisk};
use pbxt_segment::Geometry;
use pbxt_testkit::{Fault, SimDisk};
use pbxt_txlog::LogOptions;
use std::path::Path;
use std::sync::Arc;

#[test]
fn what_a_sync_follows_is_written_in_sectors_and_the_rest_is_not() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let mut number = 0;
    let mut sector_writes = || {
        number += 1;
        write_row(&fixture.log, number, 100).expect("space");
        let before = disk.sector_writes();
        let end = write_commit(&fixture.log, number).expect("space");
        (end, before)
    };
    let (end, before) = sector_writes();
    fixture.log.wait_written(end).expect("written");
    assert_eq!(disk.sector_writes(), before, "flush mode 2 waits for no medium");
    let (end, before) = sector_writes();
    fixture.log.wait_durable(end).expect("durable");
    assert_eq!(
        disk.sector_writes(),
        before + 1,
        "a commit is one write of sectors"
    );
    let (_, before) = sector_writes();
    fixture.log.flush_step().expect("flushed");
    assert_eq!(disk.sector_writes(), before + 1, "and so is a flush that syncs");
    fixture.log.close().expect("closes");
}

#[test]
fn a_failed_write_of_sectors_poisons() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let (_, end) = write_row(&fixture.log, 1, 100).expect("space");
    fixture.log.wait_written(end).expect("written");
    disk.plant(Fault::FailWrite {
        prefix: "hot-".into(),
        nth: 1,
    });
    let before = disk.sector_writes();
    let (_, end) = write_row(&fixture.log, 2, 900).expect("space");
    fixture.log.wait_durable(end).expect_err("the medium refused it");
    assert_eq!(disk.sector_writes(), before + 1);
    assert!(fixture.poison.is_set());
    let again = Fixture::open_sim(&disk.kill()).expect("opens");
    assert_eq!(again.numbers(), [1], "half a batch is a torn tail");
}

fn open(directory: &Path, wanted: DirectIo) -> Fixture {
    let disk = OsDisk::open(directory, true).expect("a directory");
    let disk: Arc<dyn Disk> = Arc::new(disk.with_direct_io(wanted));
    let options = LogOptions {
        cache_bytes: 32 << 10,
        ..by_hand()
    };
    Fixture::open_with(disk, Geometry::small(), options).expect("opens")
}

/// The directory as it is found after the process died now.
fn killed(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(from).expect("a listing") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("a copy");
    }
    to
}

#[test]
fn readers_and_recovery_see_what_was_written_both_ways() {
    for wanted in [DirectIo::Auto, DirectIo::Off] {
        let mut directory = tempfile::tempdir().expect("a directory");
        let mut expected = Vec::new();
        for life in 0..3_u64 {
            let fixture = open(directory.path(), wanted);
            assert_eq!(fixture.numbers(), expected, "{wanted:?}, life {life}");
            let mut places = Vec::new();
            for i in 0..900 {
                let number = life * 10_000 + i;
                let (lsn, end) = write_row(&fixture.log, number, 8 + (i as usize * 37) % 900).expect("space");
                places.push((number, lsn));
                expected.push(number);
                match i % 5 {
                    0 => fixture.log.wait_durable(end).expect("durable"),
                    2 | 3 => fixture.log.wait_written(end).expect("written"),
                    _ => {}
                }
                // Chunks that left memory come back from pages next to those that are being written.
                let (old, lsn) = places[i as usize / 3];
                let guard = crossbeam_epoch::pin();
                let record = fixture.log.read(lsn, &guard).expect("reads");
                assert_eq!(number_of(record.as_row().expect("a row").payload()), old);
            }
            assert!(fixture.log.stats().cache_misses > 0, "{:?}", fixture.log.stats());
            fixture.log.wait_written(fixture.log.tail()).expect("written");
            directory = killed(directory.path());
        }
    }
}
