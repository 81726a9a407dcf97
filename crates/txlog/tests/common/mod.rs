//! What the tests of the log share: a database on some disk, and small records that say who wrote them.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part")]

use pbxt_base::{Addr, CommitTs, Lsn, Result, RowId, TableId, TxnId};
use pbxt_io::{Disk, Poison};
use pbxt_segment::{BlobStore, Geometry, OpenMode, SegmentStore};
use pbxt_testkit::SimDisk;
use pbxt_txlog::{EndRecord, Log, LogEnd, LogOptions, LogScan, Outcome, Record, RowKind, RowRecord, Space};
use std::sync::Arc;

/// Options without a background thread: the test calls the steps.
pub fn by_hand() -> LogOptions {
    LogOptions {
        worker: false,
        ..LogOptions::default()
    }
}

/// An open database, as far as the log needs one.
pub struct Fixture {
    pub store: Arc<SegmentStore>,
    pub blobs: Arc<BlobStore>,
    pub poison: Arc<Poison>,
    pub end: LogEnd,
    pub log: Arc<Log>,
    /// What recovery read, in order.
    pub seen: Vec<(Lsn, u64)>,
}

impl Fixture {
    pub fn open(disk: Arc<dyn Disk>) -> Result<Fixture> {
        Fixture::open_with(disk, Geometry::small(), by_hand())
    }

    pub fn open_with(disk: Arc<dyn Disk>, geometry: Geometry, options: LogOptions) -> Result<Fixture> {
        Fixture::open_from(disk, geometry, options, Lsn::new(0), Lsn::new(0))
    }

    /// Opens with a checkpoint at `from` and a log that is readable from `log_start` on.
    pub fn open_from(
        disk: Arc<dyn Disk>,
        geometry: Geometry,
        options: LogOptions,
        from: Lsn,
        log_start: Lsn,
    ) -> Result<Fixture> {
        let mode = OpenMode {
            create: Some(geometry),
            read_only: false,
            new_uuid: 77,
            now: 1,
        };
        let store = Arc::new(SegmentStore::open(disk, mode)?);
        let blobs = Arc::new(BlobStore::open(Arc::clone(&store))?);
        let poison = Arc::new(Poison::new());
        let (seen, end) = recover_from(&store, from)?;
        let end = end.with_log_start(log_start);
        let log = Log::open(
            Arc::clone(&store),
            Arc::clone(&blobs),
            Arc::clone(&poison),
            end.clone(),
            options,
        )?;
        Ok(Fixture {
            store,
            blobs,
            poison,
            end,
            log,
            seen,
        })
    }

    /// Opens a simulated disk.
    pub fn open_sim(disk: &SimDisk) -> Result<Fixture> {
        Fixture::open(Arc::new(disk.clone()))
    }

    /// The payload numbers recovery found.
    pub fn numbers(&self) -> Vec<u64> {
        self.seen.iter().map(|(_, number)| *number).collect()
    }
}

/// Reads the whole log: the number of every row and, as `u64::MAX - ts`, every commit.
pub fn recover(store: &Arc<SegmentStore>) -> Result<(Vec<(Lsn, u64)>, LogEnd)> {
    recover_from(store, Lsn::new(0))
}

/// Reads the log from a checkpoint on.
pub fn recover_from(store: &Arc<SegmentStore>, from: Lsn) -> Result<(Vec<(Lsn, u64)>, LogEnd)> {
    let mut scan = LogScan::new(Arc::clone(store), from)?;
    let mut seen = Vec::new();
    while let Some((lsn, record)) = scan.next_record()? {
        match record.view() {
            Record::Row(row) => seen.push((lsn, number_of(row.payload()))),
            Record::End(end) => {
                if let Outcome::Commit(ts) = end.outcome() {
                    seen.push((lsn, u64::MAX - ts.raw()));
                }
            }
            _ => {}
        }
    }
    Ok((seen, scan.finish()?))
}

/// The number a payload made by `payload` begins with; panics if the rest does not follow from it.
pub fn number_of(payload: &[u8]) -> u64 {
    let number = u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
    assert!(
        payload[8..].iter().all(|byte| *byte == number as u8),
        "a payload is whole"
    );
    number
}

pub fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = vec![number as u8; bytes.max(8)];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload
}

pub fn row(payload: &[u8]) -> RowRecord<'_> {
    RowRecord {
        kind: RowKind::Insert,
        first: false,
        temporary: false,
        table: TableId::new(1),
        txn: TxnId::new(2),
        row: RowId::new(3),
        schema_version: 1,
        prev: Addr::NONE,
        foreign_prev: None,
        key_images: &[],
        payload,
    }
}

/// Writes a row record with this number. Returns where it is and where it ends.
pub fn write_row(log: &Log, number: u64, bytes: usize) -> Result<(Lsn, Lsn)> {
    let payload = payload(number, bytes);
    let record = row(&payload);
    let mut reservation = log.reserve(record.encoded_len(), Space::Row)?;
    record.encode_into(reservation.bytes_mut());
    let lsn = reservation.lsn();
    Ok((lsn, reservation.publish()))
}

/// Writes a commit record with this timestamp. Returns where it ends.
pub fn write_commit(log: &Log, ts: u64) -> Result<Lsn> {
    let record = EndRecord {
        txn: TxnId::new(2),
        outcome: Outcome::Commit(CommitTs::new(ts)),
        deltas: &[],
        voids: &[],
    };
    let mut reservation = log.reserve(record.encoded_len(), Space::Spare)?;
    record.encode_into(reservation.bytes_mut());
    Ok(reservation.publish())
}
