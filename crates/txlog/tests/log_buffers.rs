//! What memory the log's buffers take while chunks come and go. Alone in its process: a thread that another test lets stand
//! inside an epoch keeps everybody's memory.

mod common;

use common::{Fixture, by_hand, write_row};
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use pbxt_txlog::LogOptions;
use std::sync::Arc;

const ROWS: u64 = 2000;

/// Chunks that were dropped for want of budget must not wait by the dozen, in every thread, for memory to be given back.
#[test]
fn evicted_chunks_give_their_memory_back_soon() {
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
    let mut places = Vec::new();
    for number in 0..ROWS {
        places.push(write_row(log, number, 900).expect("space").0);
        log.wait_durable(log.tail()).expect("durable");
    }
    let written = log.stats().buffer_bytes;
    let mut most = 0;
    for place in places.iter().step_by(8).chain(places.iter().skip(4).step_by(8)) {
        let guard = crossbeam_epoch::pin();
        log.read(*place, &guard).expect("reads");
        most = most.max(log.stats().buffer_bytes);
    }
    let limit = written.max(24 * geometry.chunk_bytes);
    assert!(
        most <= limit,
        "{most} bytes of buffers, {limit} are enough: {:?}",
        log.stats()
    );
}
