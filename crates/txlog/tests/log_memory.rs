//! The raw memory under the log, small enough for Miri: writers, flusher, readers and eviction at once.
//!
//! `MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-ignore-leaks" cargo +nightly miri test -p pbxt-txlog
//! --test log_memory`; the epoch crate keeps to tree borrows only, and frees its globals never.

mod common;

use common::{Fixture, by_hand, number_of, write_row};
use crossbeam_epoch::Guard;
use pbxt_base::Lsn;
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use pbxt_txlog::{LogOptions, RecordRef, Space};
use std::sync::Arc;
use std::thread;

const ROWS: u64 = if cfg!(miri) { 40 } else { 2000 };

/// Little memory, so that most of the log is out of it.
fn open() -> Fixture {
    let geometry = Geometry {
        hot_segment_bytes: 32 << 10,
        chunk_bytes: 8 << 10,
        ..Geometry::small()
    };
    let options = LogOptions {
        cache_bytes: 16 << 10,
        ..by_hand()
    };
    Fixture::open_with(Arc::new(SimDisk::new()), geometry, options).expect("opens")
}

#[test]
fn writers_readers_and_eviction_share_chunks_but_no_byte() {
    let fixture = open();
    let log = &fixture.log;
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let mut places = Vec::new();
                for i in 0..ROWS {
                    let number = thread * ROWS + i;
                    places.push((write_row(log, number, 900).expect("space").0, number));
                    if i % 8 == 3 {
                        drop(log.reserve(64, Space::Row).expect("space"));
                    }
                    if i % 10 == 9 {
                        log.wait_durable(log.tail()).expect("durable");
                    }
                    let (lsn, number) = places[(i / 2) as usize];
                    let guard = crossbeam_epoch::pin();
                    let record = log.read(lsn, &guard).expect("reads");
                    assert_eq!(number_of(record.as_row().expect("a row").payload()), number);
                }
            });
        }
    });
    assert!(log.stats().cache_evictions > 0, "{:?}", log.stats());
}

fn read<'g>(fixture: &Fixture, lsn: Lsn, guard: &'g Guard) -> RecordRef<'g> {
    fixture.log.read(lsn, guard).expect("reads")
}

#[test]
fn a_record_read_alone_lives_as_long_as_its_guard() {
    let fixture = open();
    let write = |number: u64| {
        let (lsn, _) = write_row(&fixture.log, number, 300).expect("space");
        if number % 4 == 3 {
            fixture.log.flush_step().expect("flushes");
        }
        lsn
    };
    let rows = ROWS * 5;
    let places: Vec<_> = (0..rows).map(write).collect();
    // No two that follow each other share a chunk.
    let scattered = |n: u64| n * 73 % rows;
    let guard = crossbeam_epoch::pin();
    let held: Vec<_> = (0..20)
        .map(|n| {
            (
                scattered(n),
                read(&fixture, places[scattered(n) as usize], &guard),
            )
        })
        .collect();
    assert!(fixture.log.stats().read_alone > 8, "{:?}", fixture.log.stats());
    // Others come and go, with what they deferred.
    for n in 20..100 {
        let other = crossbeam_epoch::pin();
        read(&fixture, places[scattered(n) as usize], &other);
        other.flush();
    }
    for (number, record) in held {
        let payload = record.as_row().expect("a row").payload();
        assert_eq!(number_of(payload), number, "D33");
    }
}
