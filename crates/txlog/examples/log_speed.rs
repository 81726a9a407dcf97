//! What the log costs: nanoseconds per reserve and publish, megabytes per second flushed, commits per second.
//!
//! `cargo run --release -p pbxt-txlog --example log_speed [directory]` (a temporary one by default).

use pbxt_base::{Addr, CommitTs, Lsn, RowId, TableId, TxnId};
use pbxt_io::{OsDisk, Poison};
use pbxt_segment::{BlobStore, Geometry, OpenMode, SegmentStore};
use pbxt_txlog::{EndRecord, Log, LogOptions, LogScan, Outcome, RowKind, RowRecord, Space};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn open(dir: &Path) -> Result<(Arc<SegmentStore>, Arc<Log>, Duration)> {
    let disk = Arc::new(OsDisk::open(dir, true)?);
    let mode = OpenMode {
        create: Some(Geometry::default()),
        read_only: false,
        new_uuid: 1,
        now: 0,
    };
    let store = Arc::new(SegmentStore::open(disk, mode)?);
    let blobs = Arc::new(BlobStore::open(Arc::clone(&store))?);
    let begun = Instant::now();
    let mut scan = LogScan::new(Arc::clone(&store), Lsn::new(0))?;
    let mut records = 0_u64;
    while scan.next_record()?.is_some() {
        records += 1;
    }
    let end = scan.finish()?;
    let took = begun.elapsed();
    println!("recovery scan: {records} records in {took:?}");
    let log = Log::open(
        Arc::clone(&store),
        blobs,
        Arc::new(Poison::new()),
        end,
        LogOptions::default(),
    )?;
    Ok((store, log, took))
}

fn row(payload: &[u8], row: u64) -> RowRecord<'_> {
    RowRecord {
        kind: RowKind::Insert,
        first: false,
        temporary: false,
        table: TableId::new(1),
        txn: TxnId::new(2),
        row: RowId::new(row),
        schema_version: 1,
        prev: Addr::NONE,
        foreign_prev: None,
        key_images: &[],
        payload,
    }
}

fn write_rows(log: &Log, count: u64, payload: &[u8]) -> Result<()> {
    for number in 0..count {
        let record = row(payload, number);
        let mut reservation = log.reserve(record.encoded_len(), Space::Row)?;
        record.encode_into(reservation.bytes_mut());
        reservation.publish();
    }
    Ok(())
}

/// Short bursts that fit the buffers, so that the flusher's work is not in the figure.
fn reserve_and_publish(log: &Log) -> Result<()> {
    let payload = [7; 96];
    let (mut best, mut total, rounds, burst) = (f64::MAX, 0.0, 2000_u32, 2000);
    for _ in 0..rounds {
        log.flush_step()?;
        let begun = Instant::now();
        write_rows(log, burst, &payload)?;
        let nanos = begun.elapsed().as_secs_f64() * 1e9 / burst as f64;
        best = best.min(nanos);
        total += nanos;
    }
    println!(
        "reserve + encode + publish, 120 bytes: best {best:.1} ns, mean {:.1} ns",
        total / f64::from(rounds)
    );
    Ok(())
}

fn flushed_per_second(log: &Log, threads: u64) -> Result<()> {
    let payload = [7; 96];
    let count = 8_000_000 / threads;
    let before = log.stats().bytes_written;
    let begun = Instant::now();
    thread::scope(|scope| {
        let run = || write_rows(log, count, &payload).map_err(|error| error.to_string());
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    log.wait_durable(log.tail())?;
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = (log.stats().bytes_written - before) as f64;
    let rows = (count * threads) as f64;
    println!(
        "{threads} thread(s): {:.0} MB/s flushed and synced, {:.2} million rows/s",
        bytes / 1e6 / seconds,
        rows / 1e6 / seconds
    );
    Ok(())
}

fn commits_per_second(log: &Log, threads: u64) {
    let next_ts = AtomicU64::new(1);
    let syncs = log.stats().syncs;
    let begun = Instant::now();
    let until = begun + Duration::from_secs(2);
    let commits: u64 = thread::scope(|scope| {
        let run = || {
            let mut own = 0_u64;
            while Instant::now() < until {
                let ts = CommitTs::new(next_ts.fetch_add(1, Ordering::Relaxed));
                let outcome = Outcome::Commit(ts);
                let record = EndRecord {
                    txn: TxnId::new(2),
                    outcome,
                    deltas: &[],
                    voids: &[],
                };
                let end = log
                    .reserve(record.encoded_len(), Space::Spare)
                    .map(|mut reservation| {
                        record.encode_into(reservation.bytes_mut());
                        reservation.publish()
                    });
                match end.and_then(|end| log.wait_durable(end)) {
                    Ok(()) => own += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            own
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or(0)).sum()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let syncs = log.stats().syncs - syncs;
    println!(
        "{threads} committer(s): {:.0} commits/s, {:.1} commits per sync",
        commits as f64 / seconds,
        commits as f64 / syncs.max(1) as f64
    );
}

fn reads_per_second(log: &Log) -> Result<()> {
    let payload = [7; 96];
    let mut places = Vec::new();
    for number in 0..200_000 {
        let record = row(&payload, number);
        let mut reservation = log.reserve(record.encoded_len(), Space::Row)?;
        record.encode_into(reservation.bytes_mut());
        places.push(reservation.lsn());
        reservation.publish();
    }
    let begun = Instant::now();
    let mut bytes = 0_usize;
    for lsn in &places {
        let guard = crossbeam_epoch::pin();
        bytes += log
            .read(*lsn, &guard)?
            .as_row()
            .map_or(0, |row| row.payload().len());
    }
    let nanos = begun.elapsed().as_secs_f64() * 1e9 / places.len() as f64;
    println!("read of a resident record: {nanos:.1} ns ({bytes} payload bytes)");
    Ok(())
}

fn main() -> Result<()> {
    let own = tempfile::tempdir()?;
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(|| own.path().to_path_buf(), PathBuf::from);
    let (store, log, _) = open(&dir)?;
    reserve_and_publish(&log)?;
    flushed_per_second(&log, 1)?;
    flushed_per_second(&log, 2)?;
    for threads in [1, 4, 16] {
        commits_per_second(&log, threads);
    }
    reads_per_second(&log)?;
    println!("{:?}", log.stats());
    log.close()?;
    drop((store, log));
    let (_store, log, took) = open(&dir)?;
    println!(
        "recovery scan of {:.2} GB: {:.2} s",
        log.tail().raw() as f64 / 1e9,
        took.as_secs_f64()
    );
    Ok(())
}
