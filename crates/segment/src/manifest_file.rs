//! Manifest file: one of the two files, as bytes.
//!
//! Why it exists: the manifest decides what exists, so a file of it must tell by itself whether it is whole, was being
//! made when the power failed, ends in a torn append, or is damaged.
//! Format: docs/format.md#manifest: header of 64 bytes, the records it began with (the *image*, covered by the header),
//! appended records, zeros.
//! Rules: F10 a file counts only if its image is whole. F11 an append that does not verify is torn, and taken as never
//! made, only if no whole record follows; otherwise it is damage. F17 no file is longer than 1 GiB.
//! Latches and I/O: none but the one read of a whole file; bytes in, facts out.

use crate::geometry::Geometry;
use crate::manifest_record::{Checkpoint, ManifestRecord, SealedSegment, frame, unframe};
use crate::names::SegmentClass;
use pbxt_base::codec::{get_u32, get_u64, put_u32, put_u64};
use pbxt_base::limits::FORMAT_VERSION;
use pbxt_base::{Error, Lsn, Result, SegmentId, checksum};
use pbxt_io::DiskFile;
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: u64 = u64::from_le_bytes(*b"PBXTMAN1");
const HEADER_BYTES: usize = 64;
const CRC_AT: usize = HEADER_BYTES - 4;
/// Bytes that a file has at most: what is longer is no manifest, and nobody takes memory for it (rule F17).
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;

/// What the manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub uuid: u128,
    pub geometry: Geometry,
    pub created: u64,
    pub incarnation: u32,
    pub sealed: BTreeMap<(SegmentClass, SegmentId), SealedSegment>,
    /// Begun and not yet sealed.
    pub begun: BTreeSet<(SegmentClass, SegmentId)>,
    /// Greatest id ever told of, per class: ids are not reused even after the file is gone (F2).
    pub highest: BTreeMap<SegmentClass, SegmentId>,
    /// Set from a close in order until the next life begins to write.
    pub closed: Option<Lsn>,
    /// The newest checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The generation that replaced this file.
    pub superseded: Option<u64>,
}

impl Facts {
    pub(crate) fn apply(&mut self, record: ManifestRecord) {
        match record {
            ManifestRecord::Create {
                uuid,
                geometry,
                created,
            } => {
                *self = Self {
                    uuid,
                    geometry,
                    created,
                    ..Self::default()
                };
            }
            ManifestRecord::Opened { incarnation } => {
                self.incarnation = incarnation;
                self.closed = None;
            }
            ManifestRecord::Sealed(sealed) => {
                self.note(sealed.class, sealed.id);
                self.begun.remove(&(sealed.class, sealed.id));
                self.sealed.insert((sealed.class, sealed.id), sealed);
                self.forget_below_log();
            }
            ManifestRecord::Dropped { class, id } => {
                self.note(class, id);
                self.begun.remove(&(class, id));
                self.sealed.remove(&(class, id));
            }
            ManifestRecord::Closed { end } => self.closed = Some(end),
            ManifestRecord::Begun { class, id } => {
                self.note(class, id);
                self.begun.insert((class, id));
                self.forget_below_log();
            }
            ManifestRecord::Superseded { generation } => self.superseded = Some(generation),
            ManifestRecord::Checkpoint(checkpoint) => {
                self.note(SegmentClass::Meta, checkpoint.image);
                self.checkpoint = Some(checkpoint);
                self.forget_below_log();
            }
        }
    }

    /// The manifest vouches for no file that may go without another word (F15).
    fn forget_below_log(&mut self) {
        let Some(first) = self.first_hot() else { return };
        let below = (SegmentClass::Hot, SegmentId::new(0))..(SegmentClass::Hot, first);
        let begun: Vec<_> = self.begun.range(below.clone()).copied().collect();
        let sealed: Vec<_> = self.sealed.range(below).map(|(key, _)| *key).collect();
        for key in begun.into_iter().chain(sealed) {
            self.begun.remove(&key);
            self.sealed.remove(&key);
        }
    }

    /// The first hot segment the newest checkpoint has a use for. Files below it may be there, and nobody reads them.
    pub(crate) fn first_hot(&self) -> Option<SegmentId> {
        let log_start = self.checkpoint?.log_start.raw();
        let first = log_start
            .checked_div(self.geometry.hot_segment_bytes)
            .unwrap_or(0);
        Some(SegmentId::new(u32::try_from(first).unwrap_or(u32::MAX)))
    }

    fn note(&mut self, class: SegmentClass, id: SegmentId) {
        let highest = self.highest.entry(class).or_default();
        *highest = id.max(*highest);
    }

    /// The shortest list of records that says the same. An id above all that are left is told of as dropped.
    pub(crate) fn records(&self) -> Vec<ManifestRecord> {
        let Self {
            uuid,
            geometry,
            created,
            incarnation,
            ..
        } = *self;
        let mut records = vec![ManifestRecord::Create {
            uuid,
            geometry,
            created,
        }];
        records.push(ManifestRecord::Opened { incarnation });
        let image = self
            .checkpoint
            .map(|checkpoint| (SegmentClass::Meta, checkpoint.image));
        let gone = |&(&class, &id): &(&SegmentClass, &SegmentId)| {
            let key = (class, id);
            !self.sealed.contains_key(&key) && !self.begun.contains(&key) && image != Some(key)
        };
        let dropped = self.highest.iter().filter(gone);
        records.extend(dropped.map(|(&class, &id)| ManifestRecord::Dropped { class, id }));
        records.extend(self.sealed.values().map(|sealed| ManifestRecord::Sealed(*sealed)));
        records.extend(
            self.begun
                .iter()
                .map(|&(class, id)| ManifestRecord::Begun { class, id }),
        );
        records.extend(self.checkpoint.map(ManifestRecord::Checkpoint));
        records.extend(self.closed.map(|end| ManifestRecord::Closed { end }));
        records
    }
}

/// Header and image of a new file.
pub(crate) fn encode_image(facts: &Facts, generation: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    for record in facts.records() {
        let offset = bytes.len() as u64;
        frame(record, generation, offset, &mut bytes);
    }
    let image_bytes = bytes.len() as u32;
    let image_crc = checksum::crc32c(generation, &bytes[HEADER_BYTES..]);
    put_u64(&mut bytes, 0, MAGIC);
    put_u32(&mut bytes, 8, FORMAT_VERSION);
    put_u32(&mut bytes, 12, image_bytes);
    put_u64(&mut bytes, 16, facts.uuid as u64);
    put_u64(&mut bytes, 24, (facts.uuid >> 64) as u64);
    put_u64(&mut bytes, 32, generation);
    put_u32(&mut bytes, 40, image_crc);
    let crc = checksum::crc32c(MAGIC, &bytes[..CRC_AT]);
    put_u32(&mut bytes, CRC_AT, crc);
    bytes
}

/// What a file says.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub facts: Facts,
    pub generation: u64,
    /// Where the next record belongs.
    pub end: usize,
    /// True if an append was torn; the file takes no further one.
    pub is_torn: bool,
}

/// Reads a whole file; `file` is its name, for messages.
pub(crate) fn decode(bytes: &[u8], file: &str) -> Result<Decoded> {
    let damaged = |offset: usize, expected: String, found: String| Error::Corrupt {
        file: file.to_owned(),
        offset: offset as u64,
        expected,
        found,
    };
    let (generation, image_bytes) = decode_header(bytes, file)?;
    let mut decoded = Decoded {
        facts: Facts::default(),
        generation,
        end: HEADER_BYTES,
        is_torn: false,
    };
    while let Some((body, next)) = unframe(bytes, decoded.end, generation) {
        let at = decoded.end;
        let unknown = || {
            let kind = body.first().copied().unwrap_or_default();
            damaged(
                at,
                "a manifest record this version knows".into(),
                format!("one of kind {kind}"),
            )
        };
        let record = ManifestRecord::decode(body)
            .map_err(|_| unknown())?
            .ok_or_else(unknown)?;
        decoded.facts.apply(record);
        decoded.end = next;
    }
    let broken = decoded.end;
    if broken < image_bytes {
        return Err(damaged(
            broken,
            "a record of the image".into(),
            "other bytes".into(),
        ));
    }
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    decoded.is_torn = used > broken;
    // Rule F11: only the very last append may be torn.
    let follows = (broken + 1..used).find(|at| unframe(bytes, *at, generation).is_some());
    if let Some(next) = follows.filter(|_| decoded.facts.superseded.is_none()) {
        let expected = "a manifest record with its checksum".into();
        return Err(damaged(
            broken,
            expected,
            format!("other bytes, and a whole record behind them at {next}"),
        ));
    }
    Ok(decoded)
}

/// All bytes of a file.
///
/// # Errors
/// Those of the medium; `Corrupt` if it is longer than a manifest can be.
pub(crate) fn read_whole(file: &dyn DiskFile) -> Result<Vec<u8>> {
    let len = file.len()?;
    if len > FILE_BYTES_MAX {
        return Err(Error::Corrupt {
            file: file.name().to_owned(),
            offset: FILE_BYTES_MAX,
            expected: "the end of a manifest".into(),
            found: format!("{len} bytes"),
        });
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Generation, and bytes of header and image.
fn decode_header(bytes: &[u8], file: &str) -> Result<(u64, usize)> {
    let damaged = |offset: usize, expected: String, found: String| Error::Corrupt {
        file: file.to_owned(),
        offset: offset as u64,
        expected,
        found,
    };
    let Some(header) = bytes
        .get(..HEADER_BYTES)
        .filter(|header| get_u64(header, 0) == MAGIC)
    else {
        return Err(damaged(
            0,
            "the header of a PBXT manifest".into(),
            "other bytes".into(),
        ));
    };
    // F12: before the version, which no damage is to be taken for.
    let (crc, stored) = (
        checksum::crc32c(MAGIC, &header[..CRC_AT]),
        get_u32(header, CRC_AT),
    );
    if crc != stored {
        return Err(damaged(
            CRC_AT,
            format!("header checksum {crc:08x}"),
            format!("{stored:08x}"),
        ));
    }
    let version = get_u32(header, 8);
    if version != FORMAT_VERSION {
        return Err(Error::WrongVersion {
            file: file.to_owned(),
            found: version,
            expected: FORMAT_VERSION,
        });
    }
    let (generation, image_bytes) = (get_u64(header, 32), get_u32(header, 12) as usize);
    let image = bytes.get(HEADER_BYTES..image_bytes).unwrap_or_default();
    let (crc, stored) = (checksum::crc32c(generation, image), get_u32(header, 40));
    if image.is_empty() || crc != stored {
        return Err(damaged(
            HEADER_BYTES,
            format!("an image with checksum {stored:08x}"),
            format!("{crc:08x}"),
        ));
    }
    Ok((generation, image_bytes))
}
