//! Large values of a row: which ones leave the payload, what stays in their place, and how they come back.
//!
//! Why it exists:    values of several KiB go to blob files (design rule 29 bounds the payload of a row record); the codec decides
//!                   which, the caller stores them, the payload keeps a 24-byte reference.
//! Format / state:   docs/format-rows.md#external-values.
//! Rules:            F24: a reference says the exact length; a value that comes back with another length is damage.
//! Latches and I/O:  none here; a `BlobSink` may read files on the calling thread.

use crate::error::{Error, Result};
use pbxt_base::Addr;
use pbxt_base::codec::{get_u64, put_u64};
use pbxt_base::limits::{BLOB_BYTES_MIN, PAYLOAD_BYTES_MAX};

/// Names a value kept outside the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRef {
    /// Address of the first byte.
    pub addr: Addr,
    /// Length of the value in bytes.
    pub len: u64,
    /// Hash of the value, as the blob store computes it.
    pub hash: u64,
}

impl BlobRef {
    /// Bytes of an encoded reference.
    pub const BYTES: usize = 24;

    /// The bytes that stand in the payload.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put_u64(&mut bytes, 0, self.addr.raw());
        put_u64(&mut bytes, 8, self.len);
        put_u64(&mut bytes, 16, self.hash);
        bytes
    }

    /// Reads what `to_bytes` wrote.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            addr: Addr::from_raw(get_u64(bytes, 0)),
            len: get_u64(bytes, 8),
            hash: get_u64(bytes, 16),
        }
    }

    pub(crate) fn from_value(value: &[u8], offset: usize) -> Result<Self> {
        let bytes = value.try_into().map_err(|_| Error::Corrupt {
            image: "row payload",
            offset,
            expected: "a blob reference of 24 bytes",
            found: value.len() as u64,
        })?;
        Ok(Self::from_bytes(bytes))
    }
}

/// When a value leaves the row. Both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Values of this length and more always leave.
    pub blob_min: usize,
    /// While the payload is larger than this, the largest remaining value leaves.
    pub inline_max: usize,
}

impl Default for Limits {
    /// The limits of the base crate.
    fn default() -> Self {
        Self {
            blob_min: BLOB_BYTES_MIN,
            inline_max: PAYLOAD_BYTES_MAX,
        }
    }
}

/// A value that is to be stored outside its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeValue<'a> {
    /// Column number.
    pub column: usize,
    /// The bytes to store.
    pub value: &'a [u8],
}

/// A value that was stored outside its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// Column number.
    pub column: usize,
    /// Where it is now.
    pub blob: BlobRef,
}

/// Receives the values that a host's record buffer names by pointer.
pub trait BlobSink {
    /// Gives an address at which `value` (a slice of the payload or key being decoded) can be read until the host's next read.
    /// The sink copies it, or returns `value.as_ptr()` if the decoded bytes themselves live that long.
    fn keep(&mut self, column: usize, value: &[u8]) -> *const u8;

    /// Reads an external value; the slice must stay valid until the host's next read.
    ///
    /// # Errors
    /// Whatever reading the blob file gives.
    fn load(&mut self, column: usize, blob: &BlobRef) -> Result<&[u8]>;
}

/// A sink for tables without large values: copies nothing, has no blobs to load.
///
/// `keep` returns the address inside the decoded bytes, so those must outlive the host's use of the record.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBlobs;

impl BlobSink for NoBlobs {
    fn keep(&mut self, _column: usize, value: &[u8]) -> *const u8 {
        value.as_ptr()
    }

    fn load(&mut self, _column: usize, blob: &BlobRef) -> Result<&[u8]> {
        Err(Error::Corrupt {
            image: "row payload",
            offset: 0,
            expected: "no external value in this place",
            found: blob.len,
        })
    }
}

/// Memory for the values of one row at addresses that do not move until `clear`.
///
/// A sink puts inline values here with `copy` and the bytes of a loaded blob with `adopt`.
#[derive(Debug, Default)]
pub struct InlineArena {
    chunks: Vec<Vec<u8>>,
    adopted: Vec<Vec<u8>>,
}

const ARENA_CHUNK_BYTES: usize = 16 * 1024;

impl InlineArena {
    /// Forgets all values; keeps one chunk of memory for the next row.
    pub fn clear(&mut self) {
        self.adopted.clear();
        self.chunks.truncate(1);
        if let Some(chunk) = self.chunks.first_mut() {
            chunk.clear();
        }
    }

    /// Copies `value` and returns its address, valid until `clear`.
    pub fn copy(&mut self, value: &[u8]) -> *const u8 {
        let full = self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.capacity() - chunk.len() < value.len());
        if full {
            self.chunks
                .push(Vec::with_capacity(value.len().max(ARENA_CHUNK_BYTES)));
        }
        let chunk = self
            .chunks
            .last_mut()
            .expect("rule F24: a chunk with room was just made sure of");
        let start = chunk.len();
        chunk.extend_from_slice(value); // within its capacity, so earlier values keep their addresses
        chunk.get(start..).unwrap_or_default().as_ptr()
    }

    /// Takes the bytes over and returns them, valid until `clear`.
    pub fn adopt(&mut self, value: Vec<u8>) -> &[u8] {
        self.adopted.push(value);
        self.adopted.last().map_or(&[], Vec::as_slice)
    }
}
