//! Row record: one version of a row, or its tombstone.
//!
//! Why it exists:    this is the home of row data; a scan of hot rows must find table, transaction and payload with
//!                   fixed offsets, and the common insert must pay only 24 bytes for its header.
//! Format / state:   docs/format-log.md#row-record. Fixed part of 24 bytes; `prev`, foreign predecessor and key image
//!                   length follow only when their flag is set; then the payload, then the key images.
//! Rules:            F: `prev` is a hot address, a tagged-run address or BASE, and is left out when it is NONE. Key
//!                   images stand behind the payload so that a scan never touches them.
//! Latches and I/O:  none; encoding writes into memory the caller has reserved and allocates nothing.
//! After a crash:    recovery reads table, row id, transaction and key images; it never needs the payload's meaning.

use crate::key_image::KeyImages;
use crate::record::{
    FLAG_FIRST, FLAG_FOREIGN, FLAG_KEYS, FLAG_PREV, FLAG_TEMPORARY, RecordFault, RecordKind, RecordRef,
    align_up, put_header,
};
use pbxt_base::codec;
use pbxt_base::ids::{Addr, RowId, TableId, TxnId};

/// Bytes before the optional parts: header, transaction id, row id with schema version.
const FIXED_BYTES: usize = 24;
const ROW_ID_BITS: u32 = 48;
const ROW_ID_MASK: u64 = (1 << ROW_ID_BITS) - 1;

/// What a row record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// First version of a row.
    Insert,
    /// Later version of a row.
    Update,
    /// Tombstone; its payload is empty unless the engine keeps something there.
    Delete,
}

impl RowKind {
    fn record_kind(self) -> RecordKind {
        match self {
            RowKind::Insert => RecordKind::Insert,
            RowKind::Update => RecordKind::Update,
            RowKind::Delete => RecordKind::Delete,
        }
    }
}

/// A row record about to be written. All parts are borrowed; build it, ask `encoded_len`, reserve, `encode_into`.
#[derive(Clone, Copy, Debug)]
pub struct RowRecord<'a> {
    /// Insert, update or tombstone.
    pub kind: RowKind,
    /// First record of its transaction.
    pub first: bool,
    /// Row of a temporary table: recovery skips it.
    pub temporary: bool,
    /// The generation of the table the row belongs to.
    pub table: TableId,
    /// The transaction that writes.
    pub txn: TxnId,
    /// The row.
    pub row: RowId,
    /// Version of the table's schema by which the payload was encoded.
    pub schema_version: u16,
    /// The version beneath this one; `Addr::NONE` for an insert, `Addr::BASE` for the settled version of the base layer.
    pub prev: Addr,
    /// When `prev` is a version of the same transaction: the newest version of another one (`Addr::NONE` if absent).
    pub foreign_prev: Option<Addr>,
    /// An encoded key image section (`KeyImageBuf::as_bytes`), empty if no index event is caused.
    pub key_images: &'a [u8],
    /// The row's columns, encoded by crate `rows`; opaque here.
    pub payload: &'a [u8],
}

impl RowRecord<'_> {
    /// Bytes of everything before the payload.
    fn head_bytes(&self) -> usize {
        FIXED_BYTES
            + 8 * usize::from(self.prev != Addr::NONE)
            + 8 * usize::from(self.foreign_prev.is_some())
            + 4 * usize::from(!self.key_images.is_empty())
    }

    fn exact_bytes(&self) -> usize {
        self.head_bytes() + self.payload.len() + self.key_images.len()
    }

    /// Bytes to reserve for this record, a multiple of 8.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        align_up(self.exact_bytes())
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes.
    #[inline]
    pub fn encode_into(&self, out: &mut [u8]) {
        let exact = self.exact_bytes();
        put_header(
            out,
            self.kind.record_kind(),
            self.flags(),
            exact,
            self.table.raw(),
        );
        codec::put_u64(out, 8, self.txn.raw());
        codec::put_u64(
            out,
            16,
            self.row.raw() & ROW_ID_MASK | u64::from(self.schema_version) << ROW_ID_BITS,
        );
        let mut at = FIXED_BYTES;
        if self.prev != Addr::NONE {
            codec::put_u64(out, at, self.prev.raw());
            at += 8;
        }
        if let Some(foreign) = self.foreign_prev {
            codec::put_u64(out, at, foreign.raw());
            at += 8;
        }
        if !self.key_images.is_empty() {
            codec::put_u32(out, at, self.key_images.len() as u32);
            at += 4;
        }
        let keys_at = at + self.payload.len();
        out[at..keys_at].copy_from_slice(self.payload);
        out[keys_at..exact].copy_from_slice(self.key_images);
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        flag(self.first, FLAG_FIRST)
            | flag(self.temporary, FLAG_TEMPORARY)
            | flag(self.prev != Addr::NONE, FLAG_PREV)
            | flag(self.foreign_prev.is_some(), FLAG_FOREIGN)
            | flag(!self.key_images.is_empty(), FLAG_KEYS)
    }
}

/// The transaction of a row record that was not parsed; 0 if the bytes are too few to be one.
#[inline]
pub(crate) fn row_txn(bytes: &[u8]) -> u64 {
    bytes
        .get(..FIXED_BYTES)
        .map_or(0, |fixed| codec::get_u64(fixed, 8))
}

/// A row record read back. Bounds were checked when the record was parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RowRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> RowRef<'a> {
    #[inline]
    pub(crate) fn new(record: RecordRef<'a>) -> RowRef<'a> {
        RowRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(FIXED_BYTES, "expected a row record of at least 24 bytes, found")?;
        let row = RowRef::new(*record);
        record.check_length(
            row.payload_offset(),
            "expected a row record with room for its flagged parts, found",
        )?;
        let room = record.bytes().len() - row.payload_offset();
        let keys_bytes = row.keys_bytes();
        if keys_bytes > room {
            return Err(RecordFault::new(
                "expected key images inside their row record, found bytes",
                keys_bytes as u64,
            ));
        }
        Ok(())
    }

    /// Insert, update or tombstone.
    #[inline]
    pub fn kind(&self) -> RowKind {
        match self.record.kind() {
            RecordKind::Insert => RowKind::Insert,
            RecordKind::Delete => RowKind::Delete,
            _ => RowKind::Update,
        }
    }

    /// True for a tombstone.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.record.kind() == RecordKind::Delete
    }

    /// True for the first record of its transaction.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.record.is_first()
    }

    /// True for a row of a temporary table.
    #[inline]
    pub fn is_temporary(&self) -> bool {
        self.record.has_flag(FLAG_TEMPORARY)
    }

    /// The table generation.
    #[inline]
    pub fn table(&self) -> TableId {
        TableId::new(self.record.aux())
    }

    /// The transaction that wrote the version.
    #[inline]
    pub fn txn(&self) -> TxnId {
        TxnId::new(self.record.u64_at(8))
    }

    /// The row.
    #[inline]
    pub fn row(&self) -> RowId {
        RowId::new(self.record.u64_at(16) & ROW_ID_MASK)
    }

    /// Version of the schema the payload was encoded by.
    #[inline]
    pub fn schema_version(&self) -> u16 {
        (self.record.u64_at(16) >> ROW_ID_BITS) as u16
    }

    /// The version beneath this one; `Addr::NONE` if there is none.
    #[inline]
    pub fn prev(&self) -> Addr {
        if self.record.has_flag(FLAG_PREV) {
            Addr::from_raw(self.record.u64_at(FIXED_BYTES))
        } else {
            Addr::NONE
        }
    }

    /// The newest version of another transaction, stored only when `prev` is an own version.
    #[inline]
    pub fn foreign_prev(&self) -> Option<Addr> {
        let offset = FIXED_BYTES + 8 * usize::from(self.record.has_flag(FLAG_PREV));
        self.record
            .has_flag(FLAG_FOREIGN)
            .then(|| Addr::from_raw(self.record.u64_at(offset)))
    }

    /// The encoded columns.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        let bytes = self.record.bytes();
        &bytes[self.payload_offset()..bytes.len() - self.keys_bytes()]
    }

    /// The key images of the index events this version causes.
    #[inline]
    pub fn key_images(&self) -> KeyImages<'a> {
        let bytes = self.record.bytes();
        KeyImages::new(&bytes[bytes.len() - self.keys_bytes()..])
    }

    /// The record under this view.
    #[inline]
    pub fn record(&self) -> RecordRef<'a> {
        self.record
    }

    #[inline]
    fn payload_offset(&self) -> usize {
        FIXED_BYTES
            + 8 * usize::from(self.record.has_flag(FLAG_PREV))
            + 8 * usize::from(self.record.has_flag(FLAG_FOREIGN))
            + 4 * usize::from(self.record.has_flag(FLAG_KEYS))
    }

    #[inline]
    fn keys_bytes(&self) -> usize {
        if self.record.has_flag(FLAG_KEYS) {
            self.record.u32_at(self.payload_offset() - 4) as usize
        } else {
            0
        }
    }
}
