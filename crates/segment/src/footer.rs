//! Segment footer: the last 512 bytes of a sealed segment.
//!
//! Why it exists: a sealed segment can be checked by itself; the same hash stands in the manifest, so a whole segment
//! put in the wrong place is found too.
//! Format: docs/format.md#segment-footer.
//! Rules: F8 written once, after the last byte of the body is durable.

use pbxt_base::codec::{get_u32, get_u64, put_u32, put_u64};
use pbxt_base::{Error, Lsn, Result, SegmentId, checksum};

/// Bytes of a footer.
pub const FOOTER_BYTES: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"PBXTEND1");
const CRC_AT: usize = FOOTER_BYTES - 4;

/// What a segment says when it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFooter {
    /// The segment.
    pub id: SegmentId,
    /// XXH3 of everything before the footer.
    pub hash: u64,
    /// End of its log (hot), or of its values.
    pub end: Lsn,
}

impl SegmentFooter {
    /// The footer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FOOTER_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 8, self.id.raw());
        put_u64(&mut bytes, 16, self.hash);
        put_u64(&mut bytes, 24, self.end.raw());
        let crc = checksum::crc32c(MAGIC, &bytes[..CRC_AT]);
        put_u32(&mut bytes, CRC_AT, crc);
        bytes
    }

    /// Reads and checks a footer that begins at `offset` of `file`.
    pub fn decode(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        let damaged = |expected: String, found: String| Error::Corrupt {
            file: file.to_owned(),
            offset,
            expected,
            found,
        };
        if bytes.len() < FOOTER_BYTES || get_u64(bytes, 0) != MAGIC {
            return Err(damaged(
                "the footer of a sealed segment".into(),
                "other bytes".into(),
            ));
        }
        let (crc, stored) = (checksum::crc32c(MAGIC, &bytes[..CRC_AT]), get_u32(bytes, CRC_AT));
        if crc != stored {
            return Err(damaged(
                format!("footer checksum {crc:08x}"),
                format!("{stored:08x}"),
            ));
        }
        Ok(Self {
            id: SegmentId::new(get_u32(bytes, 8)),
            hash: get_u64(bytes, 16),
            end: Lsn::new(get_u64(bytes, 24)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footer_bytes_are_as_the_format_says() {
        let footer = SegmentFooter {
            id: SegmentId::new(9),
            hash: 0x1122_3344_5566_7788,
            end: Lsn::new(4096),
        };
        let bytes = footer.encode();
        assert_eq!(&bytes[..12], b"PBXTEND1\x09\0\0\0");
        assert_eq!(&bytes[16..24], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(SegmentFooter::decode(&bytes, "f", 0).expect("intact"), footer);
        let mut bad = bytes;
        bad[20] ^= 4;
        assert!(SegmentFooter::decode(&bad, "f", 0).is_err());
    }
}
