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
        let stored = pbxt_segment::BlobRef {
            addr: blob.addr,
            len: blob.len,
            hash: blob.hash,
        };
        self.blobs.read(&stored, &mut self.value)?;
        Ok(&self.value)
    }
}
