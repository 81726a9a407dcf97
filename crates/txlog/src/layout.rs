//! Layout: arithmetic between LSNs, chunks and segments of the hot log.
//!
//! Why it exists:    the same five divisions are needed by writer, flusher, cache and recovery; done once, they agree.
//! Format / state:   docs/format-log.md#positions. Segment k holds the LSNs [k * segment_bytes, (k + 1) * segment_bytes);
//!                   chunks are aligned pieces of a segment; the first one begins behind the segment header, the last one
//!                   ends before the footer.
//! Rules:            D3: the last sector of a chunk's room takes no record, so that wherever a batch ends there is room
//!                   for the header of the next one in the same chunk.
//! Latches and I/O:  none.

use crate::batch::BATCH_ALIGN;
use crate::tail::BATCH_HEADER_BYTES;
use pbxt_base::{SegmentId, invariant};

/// Most bytes kept in reserve (D10).
const RESERVE_BYTES_MAX: u64 = 2 << 20;

/// Sizes of a hot log; fixed when the database is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    segment_shift: u32,
    chunk_shift: u32,
    header_bytes: u64,
    footer_bytes: u64,
}

impl Layout {
    /// `segment_bytes` and `chunk_bytes` are powers of two, header and footer multiples of the sector within one chunk.
    pub(crate) fn new(segment_bytes: u64, chunk_bytes: u64, header_bytes: u64, footer_bytes: u64) -> Layout {
        let are_powers = segment_bytes.is_power_of_two() && chunk_bytes.is_power_of_two();
        invariant!(
            are_powers && chunk_bytes < segment_bytes,
            "D3: sizes are powers of two"
        );
        let are_sectors =
            header_bytes.is_multiple_of(BATCH_ALIGN) && footer_bytes.is_multiple_of(BATCH_ALIGN);
        invariant!(are_sectors, "D3: header and footer are whole sectors");
        let used_bytes = header_bytes + footer_bytes + 2 * BATCH_ALIGN;
        invariant!(used_bytes <= chunk_bytes, "D3: every chunk has room for a record");
        let (segment_shift, chunk_shift) = (segment_bytes.trailing_zeros(), chunk_bytes.trailing_zeros());
        Layout {
            segment_shift,
            chunk_shift,
            header_bytes,
            footer_bytes,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        1 << self.segment_shift
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    pub(crate) fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// Bytes of set aside room that are kept for what ends transactions (D10).
    pub(crate) fn reserve_bytes(&self) -> u64 {
        (self.segment_bytes() / 2).min(RESERVE_BYTES_MAX)
    }

    /// The segment that holds an LSN.
    pub(crate) fn segment_of(&self, lsn: u64) -> SegmentId {
        SegmentId::new((lsn >> self.segment_shift) as u32)
    }

    /// LSN of the first byte of a segment, its header.
    pub(crate) fn segment_start(&self, segment: SegmentId) -> u64 {
        u64::from(segment.raw()) << self.segment_shift
    }

    /// LSN of the first batch of a segment.
    pub(crate) fn segment_body(&self, segment: SegmentId) -> u64 {
        self.segment_start(segment) + self.header_bytes
    }

    /// LSN behind the last byte batches of a segment may use.
    pub(crate) fn segment_body_end(&self, segment: SegmentId) -> u64 {
        self.segment_start(segment) + self.segment_bytes() - self.footer_bytes
    }

    /// Byte offset of an LSN in its segment's file.
    pub(crate) fn file_offset(&self, lsn: u64) -> u64 {
        lsn & (self.segment_bytes() - 1)
    }

    /// The chunk that holds an LSN.
    #[inline]
    pub(crate) fn chunk_of(&self, lsn: u64) -> u64 {
        lsn >> self.chunk_shift
    }

    /// The last chunk of a segment.
    pub(crate) fn last_chunk(&self, segment: SegmentId) -> u64 {
        self.chunk_of(self.segment_start(segment) + self.segment_bytes() - 1)
    }

    /// LSN of the first byte of a chunk.
    #[inline]
    pub(crate) fn chunk_start(&self, chunk: u64) -> u64 {
        chunk << self.chunk_shift
    }

    /// LSN of the first batch of a chunk.
    pub(crate) fn chunk_body(&self, chunk: u64) -> u64 {
        let start = self.chunk_start(chunk);
        start.max(self.segment_body(self.segment_of(start)))
    }

    /// LSN behind the last byte of a chunk that batches may use.
    pub(crate) fn chunk_end(&self, chunk: u64) -> u64 {
        let start = self.chunk_start(chunk);
        (start + self.chunk_bytes()).min(self.segment_body_end(self.segment_of(start)))
    }

    /// LSN that no record of a chunk may pass (D3).
    pub(crate) fn chunk_room_end(&self, chunk: u64) -> u64 {
        self.chunk_end(chunk) - BATCH_ALIGN
    }

    /// Bytes of the longest record that fits every chunk.
    #[inline]
    pub(crate) fn record_bytes_max(&self) -> usize {
        let narrowest =
            self.chunk_bytes() - self.header_bytes - self.footer_bytes - BATCH_ALIGN - BATCH_HEADER_BYTES;
        (narrowest as usize).min(crate::record::RECORD_BYTES_MAX)
    }
}

/// Where the batch after one that ends at `end` starts, in the same chunk (D3).
pub(crate) fn next_batch_start(end: u64) -> u64 {
    end.next_multiple_of(BATCH_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_lie_inside_segments() {
        let layout = Layout::new(64 << 10, 8 << 10, 4096, 512);
        assert_eq!(
            layout.chunk_body(8),
            (64 << 10) + 4096,
            "the first chunk begins behind the segment header"
        );
        assert_eq!(layout.chunk_body(9), 72 << 10);
        assert_eq!(layout.chunk_end(14), 120 << 10);
        assert_eq!(
            layout.chunk_end(15),
            (128 << 10) - 512,
            "the last chunk ends before the footer"
        );
        assert_eq!(layout.chunk_room_end(15), (128 << 10) - 1024);
        assert_eq!(layout.segment_of(layout.chunk_start(15)), SegmentId::new(1));
        assert_eq!(layout.file_offset(layout.chunk_body(8)), 4096);
        assert_eq!(layout.record_bytes_max(), 8192 - 4096 - 512 - 512 - 64);
    }
}
