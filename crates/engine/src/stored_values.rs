//! Stored values: large values of a row for those who make keys from payloads (recovery, check, overtaking).
//!
//! Why it exists: an index may begin with a part of a value that left its row; the payload then holds only a reference.
//! Latches and I/O: reads blob segments.

use pbxt_rows::{BlobRef, BlobSink};
use pbxt_segment::BlobStore;

/// Loads external values one at a time.
pub(crate) struct StoredValues<'a> {
    blobs: &'a BlobStore,
    value: Vec<u8>,
}

impl<'a> StoredValues<'a> {
    pub(crate) fn new(blobs: &'a BlobStore) -> Self {
        Self {
            blobs,
            value: Vec::new(),
        }
    }
}

impl BlobSink for StoredValues<'_> {
    fn keep(&mut self, _column: usize, value: &[u8]) -> *const u8 {
        value.as_ptr()
    }

    fn load(&mut self, _column: usize, blob: &BlobRef) -> pbxt_rows::Result<&[u8]> {
        self.blobs.read(&stored(blob), &mut self.value)?;
        Ok(&self.value)
    }
}

/// A value that a row names, as the store of values knows it.
pub(crate) fn stored(value: &BlobRef) -> pbxt_segment::BlobRef {
    pbxt_segment::BlobRef {
        addr: value.addr,
        len: value.len,
        hash: value.hash,
    }
}

/// Begin and end of a value in its segment.
pub(crate) fn place_of(value: &BlobRef) -> (u64, u64) {
    let begin = value.addr.offset();
    (begin, begin + stored(value).stored_bytes())
}
