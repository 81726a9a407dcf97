//! Host values: large values of the row last read, to which the host's record points.
//!
//! Why it exists: an update of other columns leaves a large value where it is. The host copies records with their pointers, so a
//! value that a new record has at the address where it was read, with the same bytes, needs no second copy on disk.
//! Rules: S28 who writes the row checks that the version beneath names what is shared.
//! Latches and I/O: reads blob segments.

use pbxt_base::RowId;
use pbxt_rows::{BlobRef, BlobSink, External, InlineArena};
use pbxt_segment::BlobStore;
use std::sync::Arc;

/// A large value of the row last read.
#[derive(Debug)]
pub(super) struct Met {
    pub external: External,
    /// Where the record has it, until the next row is read.
    pub address: usize,
}

/// Values of the row last read that the record buffer points to.
#[derive(Debug)]
pub(super) struct RowValues {
    arena: InlineArena,
    blobs: Arc<BlobStore>,
    row: RowId,
    met: Vec<Met>,
}

impl RowValues {
    pub(super) fn new(blobs: &Arc<BlobStore>) -> Self {
        Self {
            arena: InlineArena::default(),
            blobs: Arc::clone(blobs),
            row: RowId::new(0),
            met: Vec::new(),
        }
    }

    /// Forgets the values before those of `row` are read; 0 for none that could be updated.
    pub(super) fn begin(&mut self, row: RowId) {
        self.arena.clear();
        self.met.clear();
        self.row = row;
    }

    /// The large values of `row`, if it was the row last read.
    pub(super) fn of(&self, row: RowId) -> &[Met] {
        if self.row == row { &self.met } else { &[] }
    }
}

impl BlobSink for RowValues {
    fn keep(&mut self, _column: usize, value: &[u8]) -> *const u8 {
        self.arena.copy(value)
    }

    fn load(&mut self, column: usize, blob: &BlobRef) -> pbxt_rows::Result<&[u8]> {
        let mut value = Vec::new();
        let stored = pbxt_segment::BlobRef {
            addr: blob.addr,
            len: blob.len,
            hash: blob.hash,
        };
        self.blobs.read(&stored, &mut value)?;
        self.met.push(Met {
            external: External { column, blob: *blob },
            address: value.as_ptr().addr(),
        });
        Ok(self.arena.adopt(value))
    }
}
