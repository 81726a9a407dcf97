//! Catalog and auto-increment records.
//!
//! Why it exists:    the catalog lives in the log, so DDL is atomic and travels with the data; an auto-increment high
//!                   mark is logged before any number below it is handed out, so no number is given twice after a crash.
//! Format / state:   docs/format-log.md#catalog-record, #auto-increment-record.
//! Rules:            F: what a catalog record's operation and bytes mean is settled by the engine's catalog, one floor up.
//! Latches and I/O:  none.
//! After a crash:    a catalog record counts if its transaction committed; an auto-increment record always counts.

use crate::record::{FLAG_FIRST, RecordFault, RecordKind, RecordRef, align_up, put_header};
use pbxt_base::codec;
use pbxt_base::ids::{TableId, TxnId};

const CATALOG_FIXED_BYTES: usize = 16;
const AUTO_INC_BYTES: usize = 16;

/// A catalog record about to be written.
#[derive(Clone, Copy, Debug)]
pub struct CatalogRecord<'a> {
    /// First record of its transaction.
    pub first: bool,
    /// The transaction.
    pub txn: TxnId,
    /// Number of the operation, defined by the catalog.
    pub op: u32,
    /// The operation's operand, defined by the catalog.
    pub bytes: &'a [u8],
}

impl CatalogRecord<'_> {
    /// Bytes to reserve.
    pub fn encoded_len(&self) -> usize {
        align_up(CATALOG_FIXED_BYTES + self.bytes.len())
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes.
    pub fn encode_into(&self, out: &mut [u8]) {
        let exact = CATALOG_FIXED_BYTES + self.bytes.len();
        let flags = if self.first { FLAG_FIRST } else { 0 };
        put_header(out, RecordKind::Catalog, flags, exact, self.op);
        codec::put_u64(out, 8, self.txn.raw());
        out[CATALOG_FIXED_BYTES..exact].copy_from_slice(self.bytes);
    }
}

/// An auto-increment record about to be written.
#[derive(Clone, Copy, Debug)]
pub struct AutoIncRecord {
    /// The table generation.
    pub table: TableId,
    /// Numbers below this may have been handed out.
    pub high_mark: u64,
}

impl AutoIncRecord {
    /// Bytes to reserve.
    #[expect(clippy::unused_self, reason = "asked like every other record")]
    pub fn encoded_len(&self) -> usize {
        AUTO_INC_BYTES
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes.
    pub fn encode_into(&self, out: &mut [u8]) {
        put_header(out, RecordKind::AutoInc, 0, AUTO_INC_BYTES, self.table.raw());
        codec::put_u64(out, 8, self.high_mark);
    }
}

/// A catalog record read back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CatalogRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> CatalogRef<'a> {
    pub(crate) fn new(record: RecordRef<'a>) -> CatalogRef<'a> {
        CatalogRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(
            CATALOG_FIXED_BYTES,
            "expected a catalog record of at least 16 bytes, found",
        )
    }

    /// The transaction.
    pub fn txn(&self) -> TxnId {
        TxnId::new(self.record.u64_at(8))
    }

    /// Number of the operation.
    pub fn op(&self) -> u32 {
        self.record.aux()
    }

    /// The operand.
    pub fn bytes(&self) -> &'a [u8] {
        &self.record.bytes()[CATALOG_FIXED_BYTES..]
    }
}

/// An auto-increment record read back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AutoIncRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> AutoIncRef<'a> {
    pub(crate) fn new(record: RecordRef<'a>) -> AutoIncRef<'a> {
        AutoIncRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(
            AUTO_INC_BYTES,
            "expected an auto-increment record of 16 bytes, found",
        )
    }

    /// The table generation.
    pub fn table(&self) -> TableId {
        TableId::new(self.record.aux())
    }

    /// Numbers below this may have been handed out.
    pub fn high_mark(&self) -> u64 {
        self.record.u64_at(8)
    }
}
