//! Geometry: the sizes that are fixed for the life of a database.
//!
//! Why it exists: an LSN names a segment and an offset by division; the divisor must never change.
//! Rules: F6 sizes of hot segments and chunks are powers of two; a hot segment has at least four chunks; a chunk has at
//! least 4 KiB more than a segment header; no segment is larger than an address can reach (1 GiB).

use pbxt_base::{Error, Result, limits};

/// An address has 27 bits for the offset in units of 8 bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

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
    /// Sizes of a database with a cache of so many bytes. One or two hot segments are always set aside, and rows leave the log by whole
    /// ones, so with a small cache, which stands for little data, they are small: a sixteenth of it, 4 MiB at least.
    pub fn for_cache(cache_bytes: u64) -> Self {
        let most = limits::HOT_SEGMENT_BYTES;
        let wanted = (cache_bytes / 16).clamp(limits::HOT_SEGMENT_BYTES_MIN, most);
        Self {
            // The greatest power of two that is not more.
            hot_segment_bytes: (wanted / 2 + 1).next_power_of_two(),
            ..Self::default()
        }
    }

    /// Small sizes, so that tests cross every border often.
    pub fn small() -> Self {
        Self {
            hot_segment_bytes: 128 << 10,
            chunk_bytes: 16 << 10,
            blob_segment_bytes: 256 << 10,
        }
    }

    /// Refuses sizes that break rule F6.
    pub fn check(&self) -> Result<()> {
        let setting = |name, value, expected| {
            Err(Error::Setting {
                name,
                value,
                expected,
            })
        };
        if !self.chunk_bytes.is_power_of_two() || self.chunk_bytes < 8 << 10 {
            return setting(
                "the chunk size",
                self.chunk_bytes,
                "a power of two of at least 8 KiB",
            );
        }
        let hot = self.hot_segment_bytes;
        if !hot.is_power_of_two() || hot < 4 * self.chunk_bytes || hot > SEGMENT_BYTES_MAX {
            return setting(
                "the size of hot segments",
                hot,
                "a power of two from four chunks to 1 GiB",
            );
        }
        if !(64 << 10..=SEGMENT_BYTES_MAX).contains(&self.blob_segment_bytes) {
            return setting(
                "the size of blob segments",
                self.blob_segment_bytes,
                "64 KiB to 1 GiB",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_a_part_of_the_cache() {
        let mib = |cache: u64| Geometry::for_cache(cache << 20).hot_segment_bytes >> 20;
        let found = [0, 64, 100, 128, 256, 500, 512, 1 << 20].map(mib);
        assert_eq!(found, [4, 4, 4, 8, 16, 16, 32, 32]);
        assert_eq!(Geometry::for_cache(1 << 40), Geometry::default());
    }

    #[test]
    fn sizes_that_cannot_work_are_refused_with_what_is_allowed() {
        Geometry::default().check().expect("the default");
        Geometry::small().check().expect("the small one");
        let refused = |change: fn(&mut Geometry)| {
            let mut geometry = Geometry::default();
            change(&mut geometry);
            geometry.check().expect_err("refused").to_string()
        };
        assert!(refused(|g| g.chunk_bytes = 100_000).starts_with("the chunk size is 100000, expected"));
        assert!(refused(|g| g.chunk_bytes = 4096).contains("at least 8 KiB"));
        assert!(refused(|g| g.hot_segment_bytes = 2 * g.chunk_bytes).contains("four chunks"));
        assert!(refused(|g| g.hot_segment_bytes = 2 << 30).contains("1 GiB"));
        assert!(refused(|g| g.blob_segment_bytes = 0).contains("blob segments"));
    }
}
