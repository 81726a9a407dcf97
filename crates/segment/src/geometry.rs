//! Geometry: the sizes that are fixed for the life of a database.
//!
//! Why it exists: an LSN names a segment and an offset by division; the divisor must never change.
//! Rules: F6 powers of two; a hot segment has at least four chunks; a chunk at least four kibibytes more than a header.

use pbxt_base::{Error, Result, limits};

/// Sizes of a database, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a hot segment.
    pub hot_segment_bytes: u64,
    /// Bytes of a chunk of the hot log.
    pub chunk_bytes: u64,
    /// Bytes after which a blob segment takes no further value.
    pub blob_segment_bytes: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            hot_segment_bytes: limits::HOT_SEGMENT_BYTES,
            chunk_bytes: limits::CHUNK_BYTES,
            blob_segment_bytes: limits::BLOB_SEGMENT_BYTES,
        }
    }
}

impl Geometry {
    /// Small sizes, so that tests cross every border often.
    pub fn small() -> Self {
        Self { hot_segment_bytes: 128 << 10, chunk_bytes: 16 << 10, blob_segment_bytes: 256 << 10 }
    }

    /// Refuses sizes that break rule F6.
    pub fn check(&self) -> Result<()> {
        let powers = self.hot_segment_bytes.is_power_of_two() && self.chunk_bytes.is_power_of_two();
        let fits = self.chunk_bytes >= 8 << 10 && self.hot_segment_bytes >= 4 * self.chunk_bytes;
        let bounded = self.hot_segment_bytes <= 1 << 30 && self.blob_segment_bytes <= 1 << 30;
        if powers && fits && bounded {
            return Ok(());
        }
        Err(Error::TooLarge { what: "the segment geometry", bytes: self.hot_segment_bytes, limit: 1 << 30 })
    }
}
