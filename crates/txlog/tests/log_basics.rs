//! The log in ordinary life: what is written is read, in memory, from disk and after an opening.

mod common;

use common::{Fixture, by_hand, number_of, payload, row, write_commit, write_row};
use pbxt_base::{Error, Lsn, SegmentId};
use pbxt_io::{Disk, OsDisk};
use pbxt_segment::{Geometry, OpenMode, SegmentClass, SegmentStore};
use pbxt_txlog::{LogOptions, SegmentScan, Space};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn os_disk(dir: &tempfile::TempDir) -> Arc<dyn Disk> {
    Arc::new(OsDisk::open(dir.path(), true).expect("a directory"))
}

#[test]
fn what_was_written_is_there_after_an_opening() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut written = Vec::new();
    for opening in 0..4_u64 {
        let fixture = Fixture::open(os_disk(&dir)).expect("opens");
        assert_eq!(fixture.numbers(), written, "opening {opening}");
        for i in 0..1500 {
            let number = opening * 10_000 + i;
            write_row(&fixture.log, number, 8 + (i as usize * 37) % 900).expect("space");
            written.push(number);
            if i % 7 == 0 {
                let end = write_commit(&fixture.log, number).expect("space");
                written.push(u64::MAX - number);
                fixture.log.wait_durable(end).expect("durable");
                assert!(fixture.log.durable() >= end && fixture.log.written() >= fixture.log.durable());
            }
        }
        fixture.log.close().expect("closes");
        assert!(matches!(fixture.log.reserve(8, Space::Spare), Err(Error::Closed)));
    }
}

#[test]
fn records_are_read_from_memory_and_from_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = LogOptions {
        cache_bytes: 64 << 10,
        ..by_hand()
    };
    let fixture = Fixture::open_with(os_disk(&dir), Geometry::small(), options).expect("opens");
    let mut places = Vec::new();
    for number in 0..4000 {
        places.push(
            write_row(&fixture.log, number, 100 + number as usize % 500)
                .expect("space")
                .0,
        );
    }
    fixture.log.flush_step().expect("flushes");
    for (number, lsn) in places.iter().enumerate().rev() {
        let guard = crossbeam_epoch::pin();
        let record = fixture.log.read(*lsn, &guard).expect("reads");
        assert_eq!(
            number_of(record.as_row().expect("a row").payload()),
            number as u64
        );
    }
    let stats = fixture.log.stats();
    assert!(
        stats.cache_misses > 50 && stats.cache_hits > stats.cache_misses,
        "{stats:?}"
    );
    assert!(
        stats.cache_evictions > 50 && stats.cache_bytes <= 96 << 10,
        "{stats:?}"
    );
}

#[test]
fn a_log_goes_on_at_any_position() {
    // D12: the chunk behind this segment has number 2^26.
    let dir = tempfile::tempdir().expect("a directory");
    let geometry = Geometry::small();
    let chunks = geometry.hot_segment_bytes / geometry.chunk_bytes;
    let segment = SegmentId::new(((1_u64 << 26) / chunks) as u32 - 1);
    let start = Lsn::new(u64::from(segment.raw()) * geometry.hot_segment_bytes);
    let mode = OpenMode {
        create: Some(geometry),
        read_only: false,
        new_uuid: 77,
        now: 1,
    };
    let store = SegmentStore::open(os_disk(&dir), mode).expect("a store");
    store.prepare(segment).expect("a file");
    let begun = store.begin(segment, SegmentId::new(0), Lsn::new(0), 0, start);
    drop((begun.expect("a segment"), store));
    let options = LogOptions {
        cache_bytes: 64 << 10,
        ..by_hand()
    };
    let mut written = Vec::new();
    for opening in 0..3_u64 {
        let fixture = Fixture::open_from(os_disk(&dir), geometry, options, Lsn::new(0), start);
        let fixture = fixture.expect("opens");
        assert_eq!(fixture.numbers(), written, "opening {opening}");
        let mut places = Vec::new();
        for number in opening * 10_000..opening * 10_000 + 1000 {
            let (lsn, _) = write_row(&fixture.log, number, 100).expect("space");
            places.push((number, lsn));
            written.push(number);
        }
        fixture.log.flush_step().expect("flushes");
        for (number, lsn) in places {
            let guard = crossbeam_epoch::pin();
            let record = fixture.log.read(lsn, &guard).expect("reads");
            assert_eq!(number_of(record.as_row().expect("a row").payload()), number);
        }
        fixture.log.close().expect("closes");
    }
}

#[test]
fn the_log_leaves_the_segments_that_were_made_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open(os_disk(&dir)).expect("opens");
    let mut written = Vec::new();
    for round in 0..4_u64 {
        for number in 100 * round..100 * round + 50 {
            write_row(&fixture.log, number, 200).expect("space");
            written.push(number);
        }
        if round % 2 == 0 {
            // The next segment is ready, too.
            fixture.log.background_step();
        }
        let made = fixture.store.list(SegmentClass::Hot).expect("a listing");
        fixture.log.leave_segments().expect("space");
        let (lsn, _) = write_row(&fixture.log, 100 * round + 50, 200).expect("space");
        written.push(100 * round + 50);
        let segment = lsn.raw() / Geometry::small().hot_segment_bytes;
        let last = made.last().expect("a segment").raw();
        assert!(segment > u64::from(last), "D35: segment {segment} after {last}");
    }
    fixture.log.close().expect("closes");
    drop(fixture);
    let fixture = Fixture::open(os_disk(&dir)).expect("opens");
    assert_eq!(fixture.numbers(), written);
    let guard = crossbeam_epoch::pin();
    for (lsn, number) in &fixture.seen {
        let record = fixture.log.read(*lsn, &guard).expect("reads");
        assert_eq!(number_of(record.as_row().expect("a row").payload()), *number);
    }
}

#[test]
fn segments_are_left_beside_writers() {
    const WRITERS: u64 = 3;
    const ROWS: u64 = 600;
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open_with(os_disk(&dir), Geometry::small(), LogOptions::default()).expect("opens");
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let log = &fixture.log;
            scope.spawn(move || {
                for number in writer * ROWS..(writer + 1) * ROWS {
                    let (_, end) = write_row(log, number, 300).expect("space");
                    if number.is_multiple_of(50) {
                        log.wait_durable(end).expect("durable");
                    }
                }
            });
        }
        for _ in 0..5 {
            fixture.log.leave_segments().expect("space");
        }
    });
    fixture.log.close().expect("closes");
    drop(fixture);
    let mut found = Fixture::open(os_disk(&dir)).expect("opens").numbers();
    found.sort_unstable();
    assert_eq!(found, (0..WRITERS * ROWS).collect::<Vec<_>>());
}

#[test]
fn a_place_without_a_record_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open(os_disk(&dir)).expect("opens");
    let (lsn, end) = write_row(&fixture.log, 1, 100).expect("space");
    let guard = crossbeam_epoch::pin();
    for bad in [0, lsn.raw() + 4, lsn.raw() - 64, end.raw(), 1 << 40, !7] {
        let error = fixture.log.read(Lsn::new(bad), &guard).expect_err("no record");
        assert!(matches!(error, Error::Corrupt { .. }), "{bad}: {error}");
        assert!(error.to_string().contains("hot-"), "{error}");
    }
}

#[test]
fn a_dropped_reservation_becomes_a_filler() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open(os_disk(&dir)).expect("opens");
    write_row(&fixture.log, 1, 50).expect("space");
    let mut given_up = fixture.log.reserve(4096, Space::Row).expect("space");
    given_up.bytes_mut().fill(0xff);
    drop(given_up);
    let panicked = thread::scope(|scope| {
        let fail = || {
            let _reservation = fixture.log.reserve(64, Space::Row).expect("space");
            panic!("planted");
        };
        scope.spawn(fail).join()
    });
    assert!(panicked.is_err());
    write_row(&fixture.log, 2, 50).expect("space");
    fixture.log.close().expect("a batch with fillers becomes whole");
    assert_eq!(fixture.log.stats().fillers, 2);
    drop(fixture);
    assert_eq!(Fixture::open(os_disk(&dir)).expect("opens").numbers(), [1, 2]);
}

#[test]
fn a_record_too_long_for_a_chunk_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open(os_disk(&dir)).expect("opens");
    let longest = fixture.log.record_bytes_max();
    assert!(matches!(
        fixture.log.reserve(longest + 8, Space::Row),
        Err(Error::TooLarge { .. })
    ));
    for _ in 0..40 {
        fixture
            .log
            .reserve(longest & !7, Space::Row)
            .expect("the longest record fits every chunk");
    }
    fixture.log.flush_step().expect("flushes");
}

#[test]
fn threads_fill_batches_side_by_side() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open_with(os_disk(&dir), Geometry::small(), LogOptions::default()).expect("opens");
    let (threads, each) = (4_u64, 3000_u64);
    thread::scope(|scope| {
        for thread in 0..threads {
            let log = &fixture.log;
            scope.spawn(move || {
                for i in 0..each {
                    let number = thread << 32 | i;
                    let (lsn, end) = write_row(log, number, 8 + (number as usize * 31) % 700).expect("space");
                    if i % 50 == 0 {
                        log.wait_durable(end).expect("durable");
                    }
                    let guard = crossbeam_epoch::pin();
                    let record = log.read(lsn, &guard).expect("own record");
                    assert_eq!(number_of(record.as_row().expect("a row").payload()), number);
                }
            });
        }
    });
    fixture.log.close().expect("closes");
    let stats = fixture.log.stats();
    assert!(stats.syncs <= stats.batches && stats.batches > 60, "{stats:?}");
    drop(fixture);
    let again = Fixture::open(os_disk(&dir)).expect("opens");
    let mut numbers = again.numbers();
    for thread in 0..threads {
        let own: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|number| number >> 32 == thread)
            .collect();
        assert!(
            own.is_sorted(),
            "a thread's records are in the order in which it wrote them"
        );
    }
    numbers.sort_unstable();
    let expected: Vec<u64> = (0..threads)
        .flat_map(|thread| (0..each).map(move |i| thread << 32 | i))
        .collect();
    assert_eq!(numbers, expected);
}

#[test]
fn segments_can_be_scanned_side_by_side() {
    let dir = tempfile::tempdir().expect("a directory");
    for opening in 0..3 {
        let fixture = Fixture::open(os_disk(&dir)).expect("opens");
        for number in 0..900 {
            write_row(&fixture.log, opening * 1000 + number, 300).expect("space");
        }
        fixture.log.flush_step().expect("flushes");
    }
    let fixture = Fixture::open(os_disk(&dir)).expect("opens");
    let parts = thread::scope(|scope| {
        let scan = |segment| {
            let mut scan =
                SegmentScan::new(Arc::clone(&fixture.store), segment, &fixture.end).expect("opens");
            let mut numbers = Vec::new();
            while let Some((_, record)) = scan.next_record().expect("reads") {
                numbers.push(number_of(record.as_row().expect("a row").payload()));
            }
            numbers
        };
        let handles: Vec<_> = fixture
            .end
            .segments()
            .map(|segment| scope.spawn(move || scan(segment)))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no panic"))
            .collect::<Vec<_>>()
    });
    assert!(
        parts.len() >= 9,
        "three openings of several segments each: {}",
        parts.len()
    );
    assert_eq!(parts.concat(), fixture.numbers());
}

#[test]
fn old_segments_are_read_after_an_opening() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut places = Vec::new();
    for opening in 0..3_u64 {
        let fixture = Fixture::open(os_disk(&dir)).expect("opens");
        for number in 0..700 {
            let number = opening * 1000 + number;
            places.push((write_row(&fixture.log, number, 200).expect("space").0, number));
        }
        fixture.log.flush_step().expect("flushes");
        let guard = crossbeam_epoch::pin();
        for (lsn, number) in &places {
            let record = fixture.log.read_sequential(*lsn, &guard).expect("reads");
            assert_eq!(number_of(record.as_row().expect("a row").payload()), *number);
        }
    }
}

#[test]
fn the_background_thread_syncs_what_nobody_waits_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open_with(os_disk(&dir), Geometry::small(), LogOptions::default()).expect("opens");
    let (_, end) = write_row(&fixture.log, 1, 100).expect("space");
    let mut naps = 0;
    while fixture.log.durable() < end {
        thread::sleep(Duration::from_millis(20));
        naps += 1;
        assert!(naps < 1000, "D11: the log is synced at least once a second");
    }
}

#[test]
fn encoded_rows_ask_for_multiples_of_eight() {
    for bytes in 8..40 {
        assert!(row(&payload(1, bytes)).encoded_len().is_multiple_of(8));
    }
}
