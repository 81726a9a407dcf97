//! What recovery costs in the log: megabytes per second of processor time of the first pass and of the row passes.
//!
//! `cargo run --release -p pbxt-txlog --example scan_speed [directory]` (a temporary one by default).

use pbxt_base::{Addr, CommitTs, Lsn, RowId, TableId, TxnId};
use pbxt_io::{OsDisk, Poison};
use pbxt_segment::{BlobStore, Geometry, OpenMode, SegmentStore};
use pbxt_txlog::{EndRecord, Log, LogOptions, LogScan, Outcome, RowKind, RowRecord, SegmentScan, Space};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LOG_BYTES: u64 = 768 << 20;

fn open(dir: &Path) -> Result<Arc<SegmentStore>> {
    let mode = OpenMode {
        create: Some(Geometry::default()),
        read_only: false,
        new_uuid: 1,
        now: 0,
    };
    Ok(Arc::new(SegmentStore::open(
        Arc::new(OsDisk::open(dir, true)?),
        mode,
    )?))
}

/// Transactions of 10 rows each.
fn write(dir: &Path, payload_bytes: usize) -> Result<()> {
    let store = open(dir)?;
    let blobs = Arc::new(BlobStore::open(Arc::clone(&store))?);
    let end = LogScan::new(Arc::clone(&store), Lsn::new(0))?.finish()?;
    let log = Log::open(store, blobs, Arc::new(Poison::new()), end, LogOptions::default())?;
    let payload = vec![7; payload_bytes];
    let mut number = 0;
    let begin = log.tail().raw();
    while log.tail().raw() - begin < LOG_BYTES {
        let txn = TxnId::new(number / 10 + 1);
        let record = RowRecord {
            kind: RowKind::Insert,
            first: number % 10 == 0,
            temporary: false,
            table: TableId::new(1),
            txn,
            row: RowId::new(number),
            schema_version: 1,
            prev: Addr::NONE,
            foreign_prev: None,
            key_images: &[],
            payload: &payload,
        };
        let mut reservation = log.reserve(record.encoded_len(), Space::Row)?;
        record.encode_into(reservation.bytes_mut());
        reservation.publish();
        number += 1;
        if number % 10 == 0 {
            let end = EndRecord {
                txn,
                outcome: Outcome::Commit(CommitTs::new(number)),
                deltas: &[],
                voids: &[],
            };
            let mut reservation = log.reserve(end.encoded_len(), Space::Spare)?;
            end.encode_into(reservation.bytes_mut());
            reservation.publish();
        }
    }
    log.close()?;
    Ok(())
}

/// Time this thread has run, as the Linux scheduler counts it; other work on the machine does not matter then.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .unwrap_or(0)
}

fn report(what: &str, records: u64, begun: u64) {
    let took = (cpu_nanos() - begun) as f64;
    let megabytes = LOG_BYTES as f64 / took * 1e3;
    println!(
        "{what}: {megabytes:.0} MB/s, {:.1} ns/record",
        took / records as f64
    );
}

fn scan(dir: &Path) -> Result<()> {
    let store = open(dir)?;
    let begun = cpu_nanos();
    let mut first_pass = LogScan::new(Arc::clone(&store), Lsn::new(0))?;
    let (mut records, mut sum) = (0, 0);
    while let Some((_, record)) = first_pass.next_record()? {
        records += 1;
        if let Some(row) = record.as_row() {
            sum += row.txn().raw();
        }
    }
    let end = first_pass.finish()?;
    report("first pass, every record", records, begun);
    let begun = cpu_nanos();
    let mut first_pass = LogScan::new(Arc::clone(&store), Lsn::new(0))?;
    while let Some((_, record)) = first_pass.next_other()? {
        sum += record.stride() as u64;
    }
    assert!(first_pass.rows_passed() > 0 && first_pass.last_row_txn() > TxnId::new(1));
    report("first pass, rows passed over", records, begun);
    let begun = cpu_nanos();
    let mut rows = 0;
    for segment in end.segments() {
        let mut scan = SegmentScan::new(Arc::clone(&store), segment, &end)?;
        while let Some((_, record)) = scan.next_record()? {
            if let Some(row) = record.as_row() {
                rows += 1;
                sum += row.row().raw();
            }
        }
    }
    report("row pass, every record", rows, begun);
    let begun = cpu_nanos();
    for segment in end.segments() {
        let mut scan = SegmentScan::new(Arc::clone(&store), segment, &end)?;
        while let Some((_, row)) = scan.next_row()? {
            sum += row.row().raw();
        }
    }
    report("row pass, rows", rows, begun);
    std::hint::black_box(sum);
    Ok(())
}

fn main() -> Result<()> {
    let parent = std::env::args().nth(1);
    for payload_bytes in [32, 200, 2000] {
        let dir = match &parent {
            Some(parent) => tempfile::tempdir_in(parent)?,
            None => tempfile::tempdir()?,
        };
        write(dir.path(), payload_bytes)?;
        println!("rows of {payload_bytes} bytes");
        for _ in 0..2 {
            scan(dir.path())?;
        }
    }
    Ok(())
}
