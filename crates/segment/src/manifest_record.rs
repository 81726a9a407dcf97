//! Manifest records: what the manifest says, one self-contained fact each.
//!
//! Format: docs/format.md#manifest-record: length (u32), crc32c (u32) over what follows, kind (u8), fields.
//! Rules: F9 a record's checksum is seeded with the manifest's generation and the record's offset, so bytes of an older
//! file under the same name never pass.

use crate::geometry::Geometry;
use crate::names::SegmentClass;
use pbxt_base::codec::{Reader, push_u8, push_u32, push_u64};
use pbxt_base::{Lsn, Result, SegmentId};

/// A sealed segment as the manifest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// Class.
    pub class: SegmentClass,
    /// Number.
    pub id: SegmentId,
    /// XXH3 of everything before the footer.
    pub hash: u64,
    /// End of its log or of its values.
    pub end: Lsn,
}

/// One fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestRecord {
    /// First record of every manifest file.
    Create {
        /// Database.
        uuid: u128,
        /// Sizes.
        geometry: Geometry,
        /// Unix seconds of creation.
        created: u64,
    },
    /// The database was opened for writing.
    Opened {
        /// Number of this opening, from 1.
        incarnation: u32,
    },
    /// A segment was sealed.
    Sealed(SealedSegment),
    /// A segment file is gone for good.
    Dropped {
        /// Class.
        class: SegmentClass,
        /// Number.
        id: SegmentId,
    },
    /// The database was closed in order; the log ends here.
    Closed {
        /// End of the log.
        end: Lsn,
    },
}

impl ManifestRecord {
    /// Appends kind and fields.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Create { uuid, geometry, created } => {
                push_u8(out, 1);
                push_u64(out, uuid as u64);
                push_u64(out, (uuid >> 64) as u64);
                push_u64(out, geometry.hot_segment_bytes);
                push_u64(out, geometry.chunk_bytes);
                push_u64(out, geometry.blob_segment_bytes);
                push_u64(out, created);
            }
            Self::Opened { incarnation } => {
                push_u8(out, 2);
                push_u32(out, incarnation);
            }
            Self::Sealed(sealed) => {
                push_u8(out, 3);
                push_u8(out, sealed.class as u8);
                push_u32(out, sealed.id.raw());
                push_u64(out, sealed.hash);
                push_u64(out, sealed.end.raw());
            }
            Self::Dropped { class, id } => {
                push_u8(out, 4);
                push_u8(out, class as u8);
                push_u32(out, id.raw());
            }
            Self::Closed { end } => {
                push_u8(out, 5);
                push_u64(out, end.raw());
            }
        }
    }

    /// Reads kind and fields; `None` for a kind this version does not know.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes);
        let record = match reader.u8()? {
            1 => Self::Create {
                uuid: u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64,
                geometry: Geometry {
                    hot_segment_bytes: reader.u64()?,
                    chunk_bytes: reader.u64()?,
                    blob_segment_bytes: reader.u64()?,
                },
                created: reader.u64()?,
            },
            2 => Self::Opened { incarnation: reader.u32()? },
            3 => {
                let class = SegmentClass::from_disk(reader.u8()?);
                let id = SegmentId::new(reader.u32()?);
                let (hash, end) = (reader.u64()?, Lsn::new(reader.u64()?));
                let Some(class) = class else { return Ok(None) };
                Self::Sealed(SealedSegment { class, id, hash, end })
            }
            4 => {
                let class = SegmentClass::from_disk(reader.u8()?);
                let id = SegmentId::new(reader.u32()?);
                let Some(class) = class else { return Ok(None) };
                Self::Dropped { class, id }
            }
            5 => Self::Closed { end: Lsn::new(reader.u64()?) },
            _ => return Ok(None),
        };
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_bytes_are_as_the_format_says() {
        let sealed = SealedSegment { class: SegmentClass::Blob, id: SegmentId::new(5), hash: 0x0102_0304_0506_0708, end: Lsn::new(9) };
        let cases: [(ManifestRecord, &[u8]); 4] = [
            (ManifestRecord::Opened { incarnation: 2 }, &[2, 2, 0, 0, 0]),
            (ManifestRecord::Sealed(sealed), &[3, 3, 5, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0]),
            (ManifestRecord::Dropped { class: SegmentClass::Hot, id: SegmentId::new(1) }, &[4, 0, 1, 0, 0, 0]),
            (ManifestRecord::Closed { end: Lsn::new(16) }, &[5, 16, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (record, expected) in cases {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(bytes, expected);
            assert_eq!(ManifestRecord::decode(&bytes).expect("intact"), Some(record));
            assert!(ManifestRecord::decode(&bytes[..bytes.len() - 1]).is_err());
        }
        assert_eq!(ManifestRecord::decode(&[99]).expect("readable"), None);
    }
}
