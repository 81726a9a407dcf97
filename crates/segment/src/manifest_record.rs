//! Manifest records: what the manifest says, one self-contained fact each.
//!
//! Why it exists: a fact is read without knowing the one before it, so a reader needs no state but the sum of facts.
//! Format: docs/format.md#manifest-records: length (u32), crc32c (u32) over what follows, kind (u8), fields.
//! Rules: F9 a record's checksum is seeded with the manifest's generation and the record's offset, so bytes of an older
//! file under the same name, or of another place, never pass.

use crate::geometry::Geometry;
use crate::names::SegmentClass;
use pbxt_base::codec::{Reader, get_u32, push_u8, push_u32, push_u64, put_u32};
use pbxt_base::{Lsn, Result, SegmentId, checksum};

/// Bytes of length and checksum before a record's kind.
const HEAD_BYTES: usize = 8;

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

/// A checkpoint as the manifest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The meta piece file that holds its image.
    pub image: SegmentId,
    /// Recovery reads the log from here on.
    pub start: Lsn,
    /// No hot segment that ends at or below this is needed any more; at or below `start`.
    pub log_start: Lsn,
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
    /// A segment was begun; its file, header and name are durable. Nothing in it is acknowledged before this.
    Begun {
        /// Class.
        class: SegmentClass,
        /// Number.
        id: SegmentId,
    },
    /// The other manifest file, of this generation, is durable and counts from now on; the last record of its file.
    Superseded {
        /// Generation of the other file.
        generation: u64,
    },
    /// A checkpoint, whose image and pieces are durable, counts from now on.
    Checkpoint(Checkpoint),
}

impl ManifestRecord {
    /// Appends kind and fields.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Create {
                uuid,
                geometry,
                created,
            } => {
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
                push_segment(out, 3, sealed.class, sealed.id);
                push_u64(out, sealed.hash);
                push_u64(out, sealed.end.raw());
            }
            Self::Dropped { class, id } => push_segment(out, 4, class, id),
            Self::Closed { end } => {
                push_u8(out, 5);
                push_u64(out, end.raw());
            }
            Self::Begun { class, id } => push_segment(out, 6, class, id),
            Self::Superseded { generation } => {
                push_u8(out, 7);
                push_u64(out, generation);
            }
            Self::Checkpoint(checkpoint) => {
                push_u8(out, 8);
                push_u32(out, checkpoint.image.raw());
                push_u64(out, checkpoint.start.raw());
                push_u64(out, checkpoint.log_start.raw());
            }
        }
    }

    /// Reads kind and fields; `None` for a kind or class this version does not know, or bytes behind the last field.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes);
        let record = match reader.u8()? {
            1 => Some(Self::Create {
                uuid: u128::from(reader.u64()?) | (u128::from(reader.u64()?) << 64),
                geometry: Geometry {
                    hot_segment_bytes: reader.u64()?,
                    chunk_bytes: reader.u64()?,
                    blob_segment_bytes: reader.u64()?,
                },
                created: reader.u64()?,
            }),
            2 => Some(Self::Opened {
                incarnation: reader.u32()?,
            }),
            3 => {
                let segment = read_segment(&mut reader)?;
                let (hash, end) = (reader.u64()?, Lsn::new(reader.u64()?));
                segment.map(|(class, id)| Self::Sealed(SealedSegment { class, id, hash, end }))
            }
            4 => read_segment(&mut reader)?.map(|(class, id)| Self::Dropped { class, id }),
            5 => Some(Self::Closed {
                end: Lsn::new(reader.u64()?),
            }),
            6 => read_segment(&mut reader)?.map(|(class, id)| Self::Begun { class, id }),
            7 => Some(Self::Superseded {
                generation: reader.u64()?,
            }),
            8 => Some(Self::Checkpoint(Checkpoint {
                image: SegmentId::new(reader.u32()?),
                start: Lsn::new(reader.u64()?),
                log_start: Lsn::new(reader.u64()?),
            })),
            _ => None,
        };
        Ok(record.filter(|_| reader.rest().is_empty()))
    }
}

fn push_segment(out: &mut Vec<u8>, kind: u8, class: SegmentClass, id: SegmentId) {
    push_u8(out, kind);
    push_u8(out, class as u8);
    push_u32(out, id.raw());
}

fn read_segment(reader: &mut Reader<'_>) -> Result<Option<(SegmentClass, SegmentId)>> {
    let (class, id) = (
        SegmentClass::from_disk(reader.u8()?),
        SegmentId::new(reader.u32()?),
    );
    Ok(class.map(|class| (class, id)))
}

fn seed(generation: u64, offset: u64) -> u64 {
    (generation << 32) ^ offset
}

/// Appends a whole record, with length and checksum, that will stand at `offset` of the manifest file.
pub(crate) fn frame(record: ManifestRecord, generation: u64, offset: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + HEAD_BYTES, 0);
    record.encode(out);
    let body = start + HEAD_BYTES;
    let crc = checksum::crc32c(seed(generation, offset), &out[body..]);
    let length = (out.len() - body) as u32;
    put_u32(out, start, length);
    put_u32(out, start + 4, crc);
}

/// Kind and fields of the record at `at` of a manifest file and the place behind it, if its checksum is right.
pub(crate) fn unframe(bytes: &[u8], at: usize, generation: u64) -> Option<(&[u8], usize)> {
    let head = bytes.get(at..at.checked_add(HEAD_BYTES)?)?;
    let start = at + HEAD_BYTES;
    let end = start.checked_add(get_u32(head, 0) as usize)?;
    let body = bytes.get(start..end).filter(|body| !body.is_empty())?;
    (checksum::crc32c(seed(generation, at as u64), body) == get_u32(head, 4)).then_some((body, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_class() -> impl Strategy<Value = SegmentClass> {
        prop_oneof![
            Just(SegmentClass::Hot),
            Just(SegmentClass::Cold),
            Just(SegmentClass::Meta),
            Just(SegmentClass::Blob)
        ]
    }

    fn any_record() -> impl Strategy<Value = ManifestRecord> {
        let id = any::<u32>().prop_map(SegmentId::new);
        let sizes = (any::<u64>(), any::<u64>(), any::<u64>());
        prop_oneof![
            (any::<u128>(), sizes, any::<u64>()).prop_map(|(uuid, (hot, chunk, blob), created)| {
                let geometry = Geometry {
                    hot_segment_bytes: hot,
                    chunk_bytes: chunk,
                    blob_segment_bytes: blob,
                };
                ManifestRecord::Create {
                    uuid,
                    geometry,
                    created,
                }
            }),
            any::<u32>().prop_map(|incarnation| ManifestRecord::Opened { incarnation }),
            (any_class(), id.clone(), any::<u64>(), any::<u64>()).prop_map(|(class, id, hash, end)| {
                ManifestRecord::Sealed(SealedSegment {
                    class,
                    id,
                    hash,
                    end: Lsn::new(end),
                })
            }),
            (any_class(), id.clone()).prop_map(|(class, id)| ManifestRecord::Dropped { class, id }),
            any::<u64>().prop_map(|end| ManifestRecord::Closed { end: Lsn::new(end) }),
            (any_class(), id).prop_map(|(class, id)| ManifestRecord::Begun { class, id }),
            any::<u64>().prop_map(|generation| ManifestRecord::Superseded { generation }),
            (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(image, start, log_start)| {
                ManifestRecord::Checkpoint(Checkpoint {
                    image: SegmentId::new(image),
                    start: Lsn::new(start),
                    log_start: Lsn::new(log_start),
                })
            }),
        ]
    }

    #[test]
    fn golden_record_of_each_kind() {
        let (class, id) = (SegmentClass::Blob, SegmentId::new(5));
        let sealed = SealedSegment {
            class,
            id,
            hash: 0x0102_0304_0506_0708,
            end: Lsn::new(9),
        };
        let geometry = Geometry {
            hot_segment_bytes: 1 << 26,
            chunk_bytes: 1 << 18,
            blob_segment_bytes: 1 << 30,
        };
        let checkpoint = Checkpoint {
            image: id,
            start: Lsn::new(0x0102_0304_0506_0708),
            log_start: Lsn::new(512),
        };
        let create = ManifestRecord::Create {
            uuid: 0x0201,
            geometry,
            created: 7,
        };
        let cases: [(ManifestRecord, &str); 8] = [
            (
                create,
                "01 01020000000000000000000000000000 0000000400000000 0000040000000000 0000004000000000 0700000000000000",
            ),
            (ManifestRecord::Opened { incarnation: 2 }, "02 02000000"),
            (
                ManifestRecord::Sealed(sealed),
                "03 03 05000000 0807060504030201 0900000000000000",
            ),
            (ManifestRecord::Dropped { class, id }, "04 03 05000000"),
            (
                ManifestRecord::Closed { end: Lsn::new(16) },
                "05 1000000000000000",
            ),
            (ManifestRecord::Begun { class, id }, "06 03 05000000"),
            (
                ManifestRecord::Superseded { generation: 3 },
                "07 0300000000000000",
            ),
            (
                ManifestRecord::Checkpoint(checkpoint),
                "08 05000000 0807060504030201 0002000000000000",
            ),
        ];
        for (record, expected) in cases {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let digits: Vec<char> = expected.chars().filter(|digit| *digit != ' ').collect();
            let byte =
                |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("digits");
            assert_eq!(
                bytes,
                digits.chunks(2).map(byte).collect::<Vec<u8>>(),
                "{record:?}"
            );
        }
        assert_eq!(
            ManifestRecord::decode(&[99]).expect("readable"),
            None,
            "F12: an unknown kind"
        );
        assert_eq!(
            ManifestRecord::decode(&[4, 9, 5, 0, 0, 0]).expect("readable"),
            None,
            "F12: an unknown class"
        );
    }

    proptest! {
        #[test]
        fn records_come_back_at_their_own_place_and_nowhere_else(
            record in any_record(), generation in 1..u64::from(u32::MAX), before in 0_usize..100,
        ) {
            let mut bytes = vec![0; before];
            frame(record, generation, before as u64, &mut bytes);
            let (body, end) = unframe(&bytes, before, generation).expect("just written");
            prop_assert_eq!(end, bytes.len());
            prop_assert_eq!(ManifestRecord::decode(body).expect("readable"), Some(record));
            prop_assert!(unframe(&bytes, before, generation + 1).is_none(), "another generation");
            let moved = [&[0; 8], &bytes[..]].concat();
            prop_assert!(unframe(&moved, before + 8, generation).is_none(), "another place");
        }

        #[test]
        fn a_cut_or_lengthened_record_is_refused(record in any_record(), cut in 1_usize..8) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert!(ManifestRecord::decode(shorter).is_err());
            bytes.push(0);
            prop_assert_eq!(ManifestRecord::decode(&bytes).expect("readable"), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0_usize..90) {
            prop_assert!(unframe(&bytes, at, 1).is_none(), "no 32 bits match by chance in so few cases");
            if let Ok(Some(record)) = ManifestRecord::decode(&bytes) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
