//! Batch header: what makes a run of records one atomic write, and a chain of writes one log.
//!
//! Why it exists:    a power cut may keep any subset of the sectors written since the last sync. A batch says how long it
//!                   is, which one it follows and what it contains, so a torn tail, stale bytes of an earlier life and
//!                   damage are told apart without zeroing anything beforehand.
//! Format / state:   docs/format-log.md#batch-header: 64 bytes in one sector, sealed by their own checksum, which is
//!                   seeded by the segment id and is also the link the next batch repeats.
//! Rules:            D3 (starts on a sector), D4 (chain), D5 (what a later header proves about an earlier break).
//! Latches and I/O:  none.
//! After a crash:    `scan` walks these headers.

use crate::tail::BATCH_HEADER_BYTES;
use pbxt_base::ids::{Lsn, SegmentId};
use pbxt_base::{checksum, codec, planted};

/// Batches start on multiples of this many bytes: the sector of the media assumptions.
pub(crate) const BATCH_ALIGN: u64 = 512;
const MAGIC: u32 = u32::from_le_bytes(*b"PbxB");
const CRC_OFFSET: usize = 60;

/// The header of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Position of the batch itself: a misplaced write does not verify.
    pub(crate) lsn: Lsn,
    /// Bytes of header and records.
    pub(crate) length: u32,
    /// Bytes from this batch to the next one.
    pub(crate) advance: u32,
    /// Counts batches since the database was created.
    pub(crate) sequence: u64,
    /// Counts the openings of the database.
    pub(crate) incarnation: u32,
    /// Highest sequence known durable when this batch was submitted.
    pub(crate) durable_sequence: u64,
    /// Everything of the blob stream below this was durable when this batch was submitted.
    pub(crate) blob_durable: u64,
    /// Checksum field of the previous batch.
    pub(crate) previous: u32,
    /// CRC-32C of the records.
    pub(crate) body: u32,
}

impl BatchHeader {
    /// Writes the header and returns its checksum, the link for the next batch.
    pub(crate) fn encode(&self, segment: SegmentId, out: &mut [u8]) -> u32 {
        codec::put_u32(out, 0, MAGIC);
        codec::put_u32(out, 4, self.length);
        codec::put_u64(out, 8, self.sequence);
        codec::put_u32(out, 16, self.incarnation);
        codec::put_u32(out, 20, self.advance);
        codec::put_u64(out, 24, self.durable_sequence);
        codec::put_u64(out, 32, self.blob_durable);
        codec::put_u64(out, 40, self.lsn.raw());
        codec::put_u32(out, 48, self.previous);
        codec::put_u32(out, 52, self.body);
        codec::put_u32(out, 56, 0);
        let crc = checksum::crc32c(segment.raw().into(), &out[..CRC_OFFSET]);
        codec::put_u32(out, CRC_OFFSET, crc);
        crc
    }

    /// Reads the header of the batch that should stand at `lsn`, with its checksum; `None` if none verifies there.
    pub(crate) fn decode(segment: SegmentId, lsn: Lsn, bytes: &[u8]) -> Option<(BatchHeader, u32)> {
        let header = bytes.first_chunk::<{ BATCH_HEADER_BYTES as usize }>()?;
        let crc = codec::get_u32(header, CRC_OFFSET);
        if codec::get_u32(header, 0) != MAGIC
            || crc != checksum::crc32c(segment.raw().into(), &header[..CRC_OFFSET])
        {
            return None;
        }
        let batch = BatchHeader {
            lsn: Lsn::new(codec::get_u64(header, 40)),
            length: codec::get_u32(header, 4),
            advance: codec::get_u32(header, 20),
            sequence: codec::get_u64(header, 8),
            incarnation: codec::get_u32(header, 16),
            durable_sequence: codec::get_u64(header, 24),
            blob_durable: codec::get_u64(header, 32),
            previous: codec::get_u32(header, 48),
            body: codec::get_u32(header, 52),
        };
        let sane = batch.lsn == lsn
            && u64::from(batch.length) >= BATCH_HEADER_BYTES
            && batch.length <= batch.advance
            && batch.length.is_multiple_of(8)
            && u64::from(batch.advance).is_multiple_of(BATCH_ALIGN);
        sane.then_some((batch, crc))
    }

    /// The records of this batch, if all of them are in `bytes` (which start at the header) and verify.
    pub(crate) fn verified_records<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let records = bytes.get(BATCH_HEADER_BYTES as usize..self.length as usize)?;
        let is_whole = checksum::crc32c(0, records) == self.body || planted!("log.checksum_unchecked");
        is_whole.then_some(records)
    }

    /// Position of the next batch.
    pub(crate) fn next(&self) -> u64 {
        self.lsn.raw() + u64::from(self.advance)
    }
}
