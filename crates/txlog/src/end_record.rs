//! END, PREPARE and ROLLBACK-TO: the records that decide what a transaction's versions are worth.
//!
//! Why it exists:    commit and rollback cost one record each, whatever the transaction did; so that record carries what
//!                   cannot be found elsewhere: commit timestamp, row-count deltas, void ranges, and for PREPARE the
//!                   tables whose locks recovery takes again.
//! Format / state:   docs/format-log.md#end-record, #prepare-record, #rollback-to-record.
//! Rules:            D6: committed iff END(commit) lies in the valid log; prepared iff PREPARE does and END does not.
//!                   The void ranges of a transaction are the union of those in all its records.
//! Latches and I/O:  none; encoding writes into reserved memory and allocates nothing, so it may stand between taking
//!                   a commit timestamp and publishing it.
//! After a crash:    recovery reads these records in pass A.

use crate::record::{FLAG_ABORT, RecordFault, RecordKind, RecordRef, align_up, put_header};
use pbxt_base::codec;
use pbxt_base::ids::{CommitTs, Lsn, TableId, TxnId};
use pbxt_base::limits::XID_BYTES_MAX;

const END_FIXED_BYTES: usize = 32;
const PREPARE_FIXED_BYTES: usize = 24;
const ROLLBACK_BYTES: usize = 32;
const DELTA_BYTES: usize = 16;
const VOID_BYTES: usize = 16;

/// How many rows a transaction added to a table (less those it deleted). A PREPARE lists every table the transaction
/// wrote, with 0 where nothing changed in number, so the list is also the list of its table locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountDelta {
    /// The table generation.
    pub table: TableId,
    /// Rows added, negative for rows removed.
    pub rows: i64,
}

/// LSNs `from <= lsn < to` of one transaction that a savepoint or statement rollback has undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoidRange {
    /// First void LSN.
    pub from: Lsn,
    /// First LSN behind the range.
    pub to: Lsn,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed at this timestamp.
    Commit(CommitTs),
    /// Aborted.
    Abort,
}

/// An END record about to be written.
#[derive(Clone, Copy, Debug)]
pub struct EndRecord<'a> {
    /// The transaction.
    pub txn: TxnId,
    /// Commit or abort. Its timestamp may be filled in after `encoded_len` was asked: it does not change the length.
    pub outcome: Outcome,
    /// Row-count deltas; empty for an abort.
    pub deltas: &'a [CountDelta],
    /// Void ranges.
    pub voids: &'a [VoidRange],
}

impl EndRecord<'_> {
    /// Bytes to reserve.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        END_FIXED_BYTES + self.deltas.len() * DELTA_BYTES + self.voids.len() * VOID_BYTES
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes.
    pub fn encode_into(&self, out: &mut [u8]) {
        let (flags, commit_ts) = match self.outcome {
            Outcome::Commit(ts) => (0, ts.raw()),
            Outcome::Abort => (FLAG_ABORT, 0),
        };
        put_header(
            out,
            RecordKind::End,
            flags,
            self.encoded_len(),
            self.deltas.len() as u32,
        );
        codec::put_u64(out, 8, self.txn.raw());
        codec::put_u64(out, 16, commit_ts);
        codec::put_u64(out, 24, self.voids.len() as u64);
        let at = put_deltas(out, END_FIXED_BYTES, self.deltas);
        put_voids(out, at, self.voids);
    }
}

/// A PREPARE record about to be written.
#[derive(Clone, Copy, Debug)]
pub struct PrepareRecord<'a> {
    /// The transaction.
    pub txn: TxnId,
    /// The host's global transaction id, opaque, at most `XID_BYTES_MAX` bytes.
    pub xid: &'a [u8],
    /// Every table the transaction wrote, with its row-count delta.
    pub deltas: &'a [CountDelta],
    /// Void ranges so far.
    pub voids: &'a [VoidRange],
}

impl PrepareRecord<'_> {
    fn exact_bytes(&self) -> usize {
        PREPARE_FIXED_BYTES + self.deltas.len() * DELTA_BYTES + self.voids.len() * VOID_BYTES + self.xid.len()
    }

    /// Bytes to reserve.
    pub fn encoded_len(&self) -> usize {
        align_up(self.exact_bytes())
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes and the xid within its limit.
    pub fn encode_into(&self, out: &mut [u8]) {
        assert!(
            self.xid.len() <= XID_BYTES_MAX,
            "a global transaction id has at most 255 bytes"
        );
        put_header(
            out,
            RecordKind::Prepare,
            0,
            self.exact_bytes(),
            self.deltas.len() as u32,
        );
        codec::put_u64(out, 8, self.txn.raw());
        codec::put_u32(out, 16, self.voids.len() as u32);
        codec::put_u32(out, 20, self.xid.len() as u32);
        let at = put_deltas(out, PREPARE_FIXED_BYTES, self.deltas);
        let at = put_voids(out, at, self.voids);
        out[at..at + self.xid.len()].copy_from_slice(self.xid);
    }
}

/// A ROLLBACK-TO record about to be written.
#[derive(Clone, Copy, Debug)]
pub struct RollbackToRecord {
    /// The transaction.
    pub txn: TxnId,
    /// What became void.
    pub range: VoidRange,
}

impl RollbackToRecord {
    /// Bytes to reserve.
    #[expect(clippy::unused_self, reason = "asked like every other record")]
    pub fn encoded_len(&self) -> usize {
        ROLLBACK_BYTES
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes.
    pub fn encode_into(&self, out: &mut [u8]) {
        put_header(out, RecordKind::RollbackTo, 0, ROLLBACK_BYTES, 0);
        codec::put_u64(out, 8, self.txn.raw());
        put_voids(out, 16, &[self.range]);
    }
}

fn put_deltas(out: &mut [u8], mut at: usize, deltas: &[CountDelta]) -> usize {
    for delta in deltas {
        codec::put_u32(out, at, delta.table.raw());
        codec::put_u32(out, at + 4, 0);
        codec::put_u64(out, at + 8, delta.rows.cast_unsigned());
        at += DELTA_BYTES;
    }
    at
}

fn put_voids(out: &mut [u8], mut at: usize, voids: &[VoidRange]) -> usize {
    for range in voids {
        codec::put_u64(out, at, range.from.raw());
        codec::put_u64(out, at + 8, range.to.raw());
        at += VOID_BYTES;
    }
    at
}

/// Refuses counts that do not fit the record; the sums cannot overflow because both counts are below 2^32.
fn check_counts(record: &RecordRef<'_>, fixed: usize, voids: u64, tail: u64) -> Result<(), RecordFault> {
    let deltas = u64::from(record.aux());
    let wanted = voids
        .checked_mul(VOID_BYTES as u64)
        .and_then(|bytes| bytes.checked_add(deltas * DELTA_BYTES as u64 + fixed as u64 + tail));
    if wanted == Some(record.bytes().len() as u64) {
        return Ok(());
    }
    Err(RecordFault::new(
        "expected deltas and void ranges to fill their record, found void ranges",
        voids,
    ))
}

fn delta_at(record: &RecordRef<'_>, at: usize) -> CountDelta {
    CountDelta {
        table: TableId::new(record.u32_at(at)),
        rows: record.u64_at(at + 8).cast_signed(),
    }
}

fn void_at(record: &RecordRef<'_>, at: usize) -> VoidRange {
    VoidRange {
        from: Lsn::new(record.u64_at(at)),
        to: Lsn::new(record.u64_at(at + 8)),
    }
}

/// An END record read back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EndRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> EndRef<'a> {
    pub(crate) fn new(record: RecordRef<'a>) -> EndRef<'a> {
        EndRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(
            END_FIXED_BYTES,
            "expected an END record of at least 32 bytes, found",
        )?;
        check_counts(record, END_FIXED_BYTES, record.u64_at(24), 0)
    }

    /// The transaction.
    pub fn txn(&self) -> TxnId {
        TxnId::new(self.record.u64_at(8))
    }

    /// Commit with its timestamp, or abort.
    pub fn outcome(&self) -> Outcome {
        if self.record.has_flag(FLAG_ABORT) {
            Outcome::Abort
        } else {
            Outcome::Commit(CommitTs::new(self.record.u64_at(16)))
        }
    }

    /// Row-count deltas.
    pub fn deltas(&self) -> impl ExactSizeIterator<Item = CountDelta> + use<'a> {
        let record = self.record;
        (0..record.aux() as usize).map(move |i| delta_at(&record, END_FIXED_BYTES + i * DELTA_BYTES))
    }

    /// Void ranges.
    pub fn voids(&self) -> impl ExactSizeIterator<Item = VoidRange> + use<'a> {
        let record = self.record;
        let start = END_FIXED_BYTES + record.aux() as usize * DELTA_BYTES;
        (0..record.u64_at(24) as usize).map(move |i| void_at(&record, start + i * VOID_BYTES))
    }
}

/// A PREPARE record read back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrepareRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> PrepareRef<'a> {
    pub(crate) fn new(record: RecordRef<'a>) -> PrepareRef<'a> {
        PrepareRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(
            PREPARE_FIXED_BYTES,
            "expected a PREPARE record of at least 24 bytes, found",
        )?;
        let (voids, xid_bytes) = (record.u32_at(16), record.u32_at(20));
        if xid_bytes as usize > XID_BYTES_MAX {
            return Err(RecordFault::new(
                "expected a global transaction id of at most 255 bytes, found",
                xid_bytes.into(),
            ));
        }
        check_counts(record, PREPARE_FIXED_BYTES, voids.into(), xid_bytes.into())
    }

    /// The transaction.
    pub fn txn(&self) -> TxnId {
        TxnId::new(self.record.u64_at(8))
    }

    /// The host's global transaction id.
    pub fn xid(&self) -> &'a [u8] {
        let bytes = self.record.bytes();
        &bytes[bytes.len() - self.record.u32_at(20) as usize..]
    }

    /// Every table the transaction wrote, with its row-count delta.
    pub fn deltas(&self) -> impl ExactSizeIterator<Item = CountDelta> + use<'a> {
        let record = self.record;
        (0..record.aux() as usize).map(move |i| delta_at(&record, PREPARE_FIXED_BYTES + i * DELTA_BYTES))
    }

    /// Void ranges.
    pub fn voids(&self) -> impl ExactSizeIterator<Item = VoidRange> + use<'a> {
        let record = self.record;
        let start = PREPARE_FIXED_BYTES + record.aux() as usize * DELTA_BYTES;
        (0..record.u32_at(16) as usize).map(move |i| void_at(&record, start + i * VOID_BYTES))
    }
}

/// A ROLLBACK-TO record read back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RollbackToRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> RollbackToRef<'a> {
    pub(crate) fn new(record: RecordRef<'a>) -> RollbackToRef<'a> {
        RollbackToRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(ROLLBACK_BYTES, "expected a ROLLBACK-TO record of 32 bytes, found")
    }

    /// The transaction.
    pub fn txn(&self) -> TxnId {
        TxnId::new(self.record.u64_at(8))
    }

    /// What became void.
    pub fn range(&self) -> VoidRange {
        void_at(&self.record, 16)
    }
}
