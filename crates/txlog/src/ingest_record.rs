//! Ingest records: pieces of runs that a bulk load wrote beside the log and that belong to its transaction.
//!
//! Why it exists:    a bulk load writes sorted runs and not one record per row; this record is all the log knows of them, so
//!                   the tail of the log alone brings them back, and the transaction's END decides about them.
//! Format / state:   docs/format-log.md#ingest-record.
//! Rules:            D18: the pieces are durable before the record is reserved.
//! Latches and I/O:  none.
//! After a crash:    pieces that no record in the valid log names were written in vain; the engine removes their files.

use crate::record::{FLAG_FIRST, RecordFault, RecordKind, RecordRef, align_up, put_header};
use pbxt_base::codec;
use pbxt_base::ids::{IndexId, SegmentId, TableId, TxnId};

const FIXED_BYTES: usize = 48;
const PIECE_BYTES: usize = 12;
/// Pieces one record can name.
pub const INGEST_PIECES_MAX: usize = 1000;

/// A section of a segment file that holds a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestPiece {
    /// Class of the segment, as in its name.
    pub class: u8,
    /// The segment.
    pub segment: SegmentId,
    /// Number of the section in its segment.
    pub section: u32,
}

/// An ingest record about to be written.
#[derive(Clone, Copy, Debug)]
pub struct IngestRecord<'a> {
    /// First record of its transaction.
    pub first: bool,
    /// The transaction.
    pub txn: TxnId,
    /// The table generation.
    pub table: TableId,
    /// The index whose entries the pieces hold; 0 for the rows of the table.
    pub index: IndexId,
    /// The pieces, in the order of the run; at most `INGEST_PIECES_MAX`.
    pub pieces: &'a [IngestPiece],
    /// Smallest row id in them.
    pub first_row: u64,
    /// Greatest row id in them.
    pub last_row: u64,
    /// Rows or entries in them.
    pub rows: u64,
}

impl IngestRecord<'_> {
    fn exact_bytes(&self) -> usize {
        FIXED_BYTES + self.pieces.len() * PIECE_BYTES
    }

    /// Bytes to reserve.
    pub fn encoded_len(&self) -> usize {
        align_up(self.exact_bytes())
    }

    /// Writes the record; `out` must be exactly `encoded_len()` bytes.
    pub fn encode_into(&self, out: &mut [u8]) {
        assert!(
            self.pieces.len() <= INGEST_PIECES_MAX,
            "an ingest record names at most 1000 pieces"
        );
        let flags = if self.first { FLAG_FIRST } else { 0 };
        put_header(
            out,
            RecordKind::Ingest,
            flags,
            self.exact_bytes(),
            self.table.raw(),
        );
        codec::put_u64(out, 8, self.txn.raw());
        codec::put_u32(out, 16, self.index.raw());
        codec::put_u32(out, 20, self.pieces.len() as u32);
        codec::put_u64(out, 24, self.first_row);
        codec::put_u64(out, 32, self.last_row);
        codec::put_u64(out, 40, self.rows);
        for (number, piece) in self.pieces.iter().enumerate() {
            let at = FIXED_BYTES + number * PIECE_BYTES;
            out[at..at + 4].copy_from_slice(&[piece.class, 0, 0, 0]);
            codec::put_u32(out, at + 4, piece.segment.raw());
            codec::put_u32(out, at + 8, piece.section);
        }
    }
}

/// An ingest record read back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IngestRef<'a> {
    record: RecordRef<'a>,
}

impl<'a> IngestRef<'a> {
    pub(crate) fn new(record: RecordRef<'a>) -> IngestRef<'a> {
        IngestRef { record }
    }

    pub(crate) fn check(record: &RecordRef<'_>) -> Result<(), RecordFault> {
        record.check_length(
            FIXED_BYTES,
            "expected an ingest record of at least 48 bytes, found",
        )?;
        let pieces = record.u32_at(20);
        let room = record.bytes().len() - FIXED_BYTES;
        if u64::from(pieces) * PIECE_BYTES as u64 == room as u64 {
            return Ok(());
        }
        Err(RecordFault::new(
            "expected pieces to fill their ingest record, found pieces",
            pieces.into(),
        ))
    }

    /// The transaction.
    pub fn txn(&self) -> TxnId {
        TxnId::new(self.record.u64_at(8))
    }

    /// The table generation.
    pub fn table(&self) -> TableId {
        TableId::new(self.record.aux())
    }

    /// The index whose entries the pieces hold; 0 for the rows of the table.
    pub fn index(&self) -> IndexId {
        IndexId::new(self.record.u32_at(16))
    }

    /// Smallest row id in the pieces.
    pub fn first_row(&self) -> u64 {
        self.record.u64_at(24)
    }

    /// Greatest row id in the pieces.
    pub fn last_row(&self) -> u64 {
        self.record.u64_at(32)
    }

    /// Rows or entries in the pieces.
    pub fn rows(&self) -> u64 {
        self.record.u64_at(40)
    }

    /// The pieces, in the order of the run.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = IngestPiece> + use<'a> {
        let record = self.record;
        (0..record.u32_at(20) as usize).map(move |number| {
            let at = FIXED_BYTES + number * PIECE_BYTES;
            IngestPiece {
                class: record.bytes()[at],
                segment: SegmentId::new(record.u32_at(at + 4)),
                section: record.u32_at(at + 8),
            }
        })
    }

    /// The record under this view.
    pub fn record(&self) -> RecordRef<'a> {
        self.record
    }
}
