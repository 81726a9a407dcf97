//! The background thread beside those who wait for the log.

use crate::end_record::EndRecord;
use crate::{Log, LogOptions, LogScan, Outcome, Space};
use pbxt_base::{Lsn, PoisonCause, TxnId};
use pbxt_io::Poison;
use pbxt_segment::{BlobStore, Geometry, OpenMode, SegmentStore};
use pbxt_testkit::SimDisk;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Nothing here takes this long.
const LONG: Duration = Duration::from_secs(10);

/// A log on a new simulated disk, without its background thread.
fn open() -> (Arc<Log>, Arc<Poison>) {
    let mode = OpenMode {
        create: Some(Geometry::small()),
        read_only: false,
        new_uuid: 77,
        now: 1,
    };
    let store = Arc::new(SegmentStore::open(Arc::new(SimDisk::new()), mode).expect("a store"));
    let blobs = Arc::new(BlobStore::open(Arc::clone(&store)).expect("values"));
    let scan = LogScan::new(Arc::clone(&store), Lsn::new(0)).expect("a scan");
    let end = scan.finish().expect("an empty log");
    let poison = Arc::new(Poison::new());
    let options = LogOptions {
        worker: false,
        ..LogOptions::default()
    };
    let log = Log::open(store, blobs, Arc::clone(&poison), end, options);
    (log.expect("a log"), poison)
}

/// Whoever meets the flush latch taken sleeps until somebody who had it says that it is free; the background thread had it too.
#[test]
fn who_met_the_background_thread_at_the_latch_is_woken() {
    let (log, poison) = open();
    let record = EndRecord {
        txn: TxnId::new(1),
        outcome: Outcome::Abort,
        deltas: &[],
        voids: &[],
    };
    let mut reservation = log.reserve(record.encoded_len(), Space::Spare).expect("room");
    record.encode_into(reservation.bytes_mut());
    let end = reservation.publish();
    let latch = log.core.flusher.lock();
    let (sender, waited) = channel();
    let waiting = Arc::clone(&log);
    std::thread::spawn(move || sender.send(waiting.wait_durable(end)));
    assert!(
        waited.recv_timeout(Duration::from_millis(200)).is_err(),
        "the latch is taken"
    );
    let working = Arc::clone(&log);
    let worker = std::thread::spawn(move || working.core.worker_step());
    poison.set(PoisonCause::Disk, "a test");
    drop(latch);
    worker.join().expect("a step");
    let answer = waited.recv_timeout(LONG).expect("D9: nobody sleeps for ever");
    assert!(answer.is_err(), "{answer:?}");
}
