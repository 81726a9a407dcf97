//! The raw memory under the log, small enough for Miri: writers, flusher, readers and eviction at once.
//!
//! `MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-ignore-leaks" cargo +nightly miri test -p pbxt-txlog
//! --test log_memory`; the epoch crate keeps to tree borrows only, and frees its globals never.

mod common;

use common::{Fixture, by_hand, number_of, write_row};
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use pbxt_txlog::{LogOptions, Space};
use std::sync::Arc;
use std::thread;

const ROWS: u64 = if cfg!(miri) { 40 } else { 2000 };

#[test]
fn writers_readers_and_eviction_share_chunks_but_no_byte() {
    let geometry = Geometry {
        hot_segment_bytes: 32 << 10,
        chunk_bytes: 8 << 10,
        ..Geometry::small()
    };
    let options = LogOptions {
        cache_bytes: 16 << 10,
        ..by_hand()
    };
    let fixture = Fixture::open_with(Arc::new(SimDisk::new()), geometry, options).expect("opens");
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
