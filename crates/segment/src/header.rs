//! Segment header: the first 4 KiB of every segment.
//!
//! Why it exists: a segment says by itself which database, class and place it belongs to, so a file of another database
//! or of an earlier life is never read by mistake.
//! Format: docs/format.md#segment-header.
//! Rules: F7 written once, before the first byte of the body; every field is checked when the segment is opened. F12 the checksum comes
//! before the version: no header that is damaged is taken for one of another version.
//! D7 previous segment, cut and checksum say where the log was cut by the recovery that began this segment.

use crate::names::SegmentClass;
use pbxt_base::codec::{get_u32, get_u64, put_u32, put_u64};
use pbxt_base::limits::FORMAT_VERSION;
use pbxt_base::{Error, Lsn, Result, SegmentId, checksum};
use pbxt_io::refuse_encrypted;

/// Bytes of a header.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"PBXTSEG1");
const CRC_AT: usize = SEGMENT_HEADER_BYTES - 4;

/// True if these first bytes are those of a segment, sound or damaged.
pub(crate) fn bears_mark(bytes: &[u8]) -> bool {
    bytes.len() >= size_of::<u64>() && get_u64(bytes, 0) == MAGIC
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Database the segment belongs to.
    pub uuid: u128,
    /// Its number.
    pub id: SegmentId,
    /// Its class.
    pub class: SegmentClass,
    /// Bytes of a segment of this class.
    pub segment_bytes: u64,
    /// Bytes of a chunk (hot segments).
    pub chunk_bytes: u64,
    /// Number of the opening of the database that began the segment.
    pub incarnation: u32,
    /// The segment before this one in the log; 0 for the first.
    pub previous: SegmentId,
    /// Where the log of the previous segment ends (exclusive); bytes behind it are never parsed.
    pub cut: Lsn,
    /// Checksum of the last valid batch before the cut.
    pub cut_checksum: u32,
    /// LSN of the first byte of the segment file.
    pub first_lsn: Lsn,
    /// Always 0: encryption is the disk's affair (docs/encryption.md), and segments with a key of their own are refused.
    pub key_id: u32,
}

impl SegmentHeader {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 8, FORMAT_VERSION);
        put_u32(&mut bytes, 12, self.class as u32);
        put_u64(&mut bytes, 16, self.uuid as u64);
        put_u64(&mut bytes, 24, (self.uuid >> 64) as u64);
        put_u32(&mut bytes, 32, self.id.raw());
        put_u32(&mut bytes, 36, self.incarnation);
        put_u64(&mut bytes, 40, self.segment_bytes);
        put_u64(&mut bytes, 48, self.chunk_bytes);
        put_u64(&mut bytes, 56, self.first_lsn.raw());
        put_u32(&mut bytes, 64, self.previous.raw());
        put_u32(&mut bytes, 68, self.cut_checksum);
        put_u64(&mut bytes, 72, self.cut.raw());
        put_u32(&mut bytes, 80, self.key_id);
        let crc = checksum::crc32c(MAGIC, &bytes[..CRC_AT]);
        put_u32(&mut bytes, CRC_AT, crc);
        bytes
    }

    /// Reads and checks a header.
    pub fn decode(bytes: &[u8], file: &str) -> Result<Self> {
        let damaged = |offset: usize, expected: &str, found: String| Error::Corrupt {
            file: file.to_owned(),
            offset: offset as u64,
            expected: expected.to_owned(),
            found,
        };
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err(damaged(
                0,
                "a segment header of 4096 bytes",
                format!("{} bytes", bytes.len()),
            ));
        }
        if get_u64(bytes, 0) != MAGIC {
            refuse_encrypted(bytes, file)?;
            return Err(damaged(
                0,
                "the mark of a PBXT segment",
                format!("{:016x}", get_u64(bytes, 0)),
            ));
        }
        let (crc, stored) = (checksum::crc32c(MAGIC, &bytes[..CRC_AT]), get_u32(bytes, CRC_AT));
        if crc != stored {
            return Err(damaged(
                CRC_AT,
                &format!("header checksum {crc:08x}"),
                format!("{stored:08x}"),
            ));
        }
        let version = get_u32(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(Error::WrongVersion {
                file: file.to_owned(),
                found: version,
                expected: FORMAT_VERSION,
            });
        }
        if get_u32(bytes, 80) != 0 {
            let found = format!("key {}: the segment is encrypted", get_u32(bytes, 80));
            return Err(damaged(80, "no encryption key, as this version has none", found));
        }
        let class_byte = get_u32(bytes, 12);
        let class = u8::try_from(class_byte).ok().and_then(SegmentClass::from_disk);
        Ok(Self {
            uuid: u128::from(get_u64(bytes, 16)) | (u128::from(get_u64(bytes, 24)) << 64),
            id: SegmentId::new(get_u32(bytes, 32)),
            class: class.ok_or_else(|| damaged(12, "a known segment class", class_byte.to_string()))?,
            incarnation: get_u32(bytes, 36),
            segment_bytes: get_u64(bytes, 40),
            chunk_bytes: get_u64(bytes, 48),
            first_lsn: Lsn::new(get_u64(bytes, 56)),
            previous: SegmentId::new(get_u32(bytes, 64)),
            cut_checksum: get_u32(bytes, 68),
            cut: Lsn::new(get_u64(bytes, 72)),
            key_id: get_u32(bytes, 80),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> SegmentHeader {
        SegmentHeader {
            uuid: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            id: SegmentId::new(7),
            class: SegmentClass::Hot,
            segment_bytes: 64 << 20,
            chunk_bytes: 256 << 10,
            incarnation: 3,
            previous: SegmentId::new(6),
            cut: Lsn::new(0x1234_5678),
            cut_checksum: 0xdead_beef,
            first_lsn: Lsn::new(7 * (64 << 20)),
            key_id: 0,
        }
    }

    #[test]
    fn header_bytes_are_as_the_format_says() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..16], b"PBXTSEG1\x01\0\0\0\0\0\0\0");
        assert_eq!(&bytes[16..24], [0x10, 0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09]);
        assert_eq!(&bytes[32..40], [7, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(
            &bytes[64..80],
            [
                6, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0
            ]
        );
        assert_eq!(SegmentHeader::decode(&bytes, "f").expect("intact"), sample());
    }

    proptest! {
        #[test]
        fn headers_come_back(
            uuid in any::<u128>(), ids in any::<[u32; 4]>(), class in 0_u8..4, sizes in any::<[u64; 4]>(),
        ) {
            let header = SegmentHeader {
                uuid,
                id: SegmentId::new(ids[0]),
                class: SegmentClass::from_disk(class).expect("a class"),
                segment_bytes: sizes[0],
                chunk_bytes: sizes[1],
                incarnation: ids[1],
                previous: SegmentId::new(ids[2]),
                cut: Lsn::new(sizes[2]),
                cut_checksum: ids[3],
                first_lsn: Lsn::new(sizes[3]),
                key_id: 0,
            };
            prop_assert_eq!(SegmentHeader::decode(&header.encode(), "f").expect("intact"), header);
        }
    }

    #[test]
    fn an_encrypted_segment_is_refused_by_a_version_without_encryption() {
        let bytes = SegmentHeader {
            key_id: 3,
            ..sample()
        }
        .encode();
        let message = SegmentHeader::decode(&bytes, "hot-7")
            .expect_err("refused")
            .to_string();
        assert!(message.contains("key 3: the segment is encrypted"), "{message}");
    }

    #[test]
    fn another_version_is_told_only_of_a_whole_header() {
        let mut bytes = sample().encode();
        put_u32(&mut bytes, 8, 2);
        assert!(
            matches!(SegmentHeader::decode(&bytes, "f"), Err(Error::Corrupt { .. })),
            "F12: nobody wrote it so"
        );
        let crc = checksum::crc32c(MAGIC, &bytes[..CRC_AT]);
        put_u32(&mut bytes, CRC_AT, crc);
        let refused = SegmentHeader::decode(&bytes, "f");
        assert!(
            matches!(refused, Err(Error::WrongVersion { found: 2, .. })),
            "F12: {refused:?}"
        );
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let bytes = sample().encode();
        for at in (0..SEGMENT_HEADER_BYTES).step_by(7) {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            let message = SegmentHeader::decode(&bad, "hot-7")
                .expect_err("damaged")
                .to_string();
            assert!(message.contains("hot-7"), "{message}");
        }
        assert!(SegmentHeader::decode(&bytes[..100], "hot-7").is_err());
    }
}
