//! Manifest: the list of what exists, in two alternating append-only files.
//!
//! Why it exists: which segments are sealed and with which content must not be told by the segments alone; a segment
//! that vanished, or whole old content under a right name, would pass.
//! Format: docs/format.md#manifest. `pbxt.manifest.a` and `.b`; header of 64 bytes (magic, version, uuid, generation,
//! crc), then records. The file with the greater generation counts.
//! Rules: F10 records are only appended, and each append is synced before it is relied on; a new generation is written
//! whole and synced before the other file is replaced. F11 a record that does not verify ends the manifest only if
//! nothing follows it; otherwise, and in a file's first record, it is damage.
//! Latches and I/O: one latch, held across append and sync: manifest records are rare (one a segment).
//! After a crash: an append in flight is not there; its fact is found again from the segments by whoever wrote it.

use crate::geometry::Geometry;
use crate::manifest_record::{ManifestRecord, SealedSegment};
use crate::names::SegmentClass;
use parking_lot::Mutex;
use pbxt_base::codec::{get_u32, get_u64, put_u32, put_u64};
use pbxt_base::limits::FORMAT_VERSION;
use pbxt_base::{Error, Lsn, Result, SegmentId, checksum};
use pbxt_io::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMES: [&str; 2] = ["pbxt.manifest.a", "pbxt.manifest.b"];
const MAGIC: u64 = u64::from_le_bytes(*b"PBXTMAN1");
const HEADER_BYTES: usize = 64;
const RECORD_HEAD_BYTES: usize = 8;
/// A file longer than this is replaced by a new generation.
const FILE_BYTES_MAX: u64 = if cfg!(test) { 8 << 10 } else { 1 << 20 };

/// What the manifest says now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub uuid: u128,
    pub geometry: Geometry,
    pub created: u64,
    pub incarnation: u32,
    pub sealed: BTreeMap<(SegmentClass, SegmentId), SealedSegment>,
    /// Set while the last thing that happened is a close in order.
    pub closed: Option<Lsn>,
}

impl Facts {
    fn apply(&mut self, record: ManifestRecord) {
        match record {
            ManifestRecord::Create { uuid, geometry, created } => {
                *self = Self { uuid, geometry, created, ..Self::default() };
            }
            ManifestRecord::Opened { incarnation } => {
                self.incarnation = incarnation;
                self.closed = None;
            }
            ManifestRecord::Sealed(sealed) => {
                self.sealed.insert((sealed.class, sealed.id), sealed);
            }
            ManifestRecord::Dropped { class, id } => {
                self.sealed.remove(&(class, id));
            }
            ManifestRecord::Closed { end } => self.closed = Some(end),
        }
    }

    /// The shortest list of records that says the same.
    fn records(&self) -> Vec<ManifestRecord> {
        let Self { uuid, geometry, created, incarnation, .. } = *self;
        let mut records = vec![ManifestRecord::Create { uuid, geometry, created }];
        records.push(ManifestRecord::Opened { incarnation });
        records.extend(self.sealed.values().map(|sealed| ManifestRecord::Sealed(*sealed)));
        records.extend(self.closed.map(|end| ManifestRecord::Closed { end }));
        records
    }
}

#[derive(Debug)]
struct Writer {
    facts: Facts,
    generation: u64,
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Writer {
    /// Only then may the other file be half made: a switch writes it when this one is full (rule F10).
    fn is_before_a_switch(&self) -> bool {
        self.end >= FILE_BYTES_MAX
    }
}

/// The manifest of an open database.
#[derive(Debug)]
pub struct Manifest {
    disk: Arc<dyn Disk>,
    writer: Mutex<Writer>,
}

impl Manifest {
    /// True if the directory has a manifest file.
    pub(crate) fn exists(disk: &dyn Disk) -> Result<bool> {
        Ok(disk.exists(NAMES[0])? || disk.exists(NAMES[1])?)
    }

    /// Makes the manifest of a new database; durable on return.
    pub(crate) fn create(disk: Arc<dyn Disk>, uuid: u128, geometry: Geometry, created: u64) -> Result<Self> {
        geometry.check()?;
        let facts = Facts { uuid, geometry, created, ..Facts::default() };
        let (file, end) = write_generation(&*disk, &facts, 1)?;
        Ok(Self { disk, writer: Mutex::new(Writer { facts, generation: 1, file, end }) })
    }

    /// Reads the newer of the two files. A file whose header does not verify was being made when the power went and is
    /// ignored if the other one is whole.
    pub(crate) fn open(disk: Arc<dyn Disk>, writable: bool) -> Result<Self> {
        let mut found = Vec::new();
        let mut failure = None;
        for name in NAMES {
            if disk.exists(name)? {
                match read_file(&*disk, name, writable) {
                    Ok(read) => found.push(read),
                    Err(error @ Error::WrongVersion { .. }) => return Err(error),
                    Err(error) => failure = Some(error),
                }
            }
        }
        found.sort_by_key(|read| read.generation);
        match found.pop() {
            Some(newest) if failure.is_none() || newest.is_before_a_switch() => Ok(Self { disk, writer: Mutex::new(newest) }),
            _ => Err(failure.unwrap_or(Error::NotADatabase { path: disk.location(), why: "its manifest is missing".into() })),
        }
    }

    /// Appends a fact; durable on return (rule F10).
    pub(crate) fn append(&self, record: ManifestRecord) -> Result<()> {
        let mut writer = self.writer.lock();
        let mut facts = writer.facts.clone();
        facts.apply(record);
        if writer.end >= FILE_BYTES_MAX {
            let generation = writer.generation + 1;
            let (file, end) = write_generation(&*self.disk, &facts, generation)?;
            *writer = Writer { facts, generation, file, end };
            return Ok(());
        }
        let bytes = encode_record(record, writer.generation, writer.end);
        writer.file.write_at(&bytes, writer.end)?;
        // Durable now: the fact. Without it a reader after a crash would not know of the segment this record names.
        writer.file.sync_data()?;
        writer.end += bytes.len() as u64;
        writer.facts = facts;
        Ok(())
    }

    pub(crate) fn facts(&self) -> Facts {
        self.writer.lock().facts.clone()
    }

    /// The sealed segment, if it is one.
    pub fn sealed(&self, class: SegmentClass, id: SegmentId) -> Option<SealedSegment> {
        self.writer.lock().facts.sealed.get(&(class, id)).copied()
    }
}

fn write_generation(disk: &dyn Disk, facts: &Facts, generation: u64) -> Result<(Arc<dyn DiskFile>, u64)> {
    let name = NAMES[(generation % 2) as usize];
    if disk.exists(name)? {
        disk.remove(name)?;
    }
    let file = disk.create(name, 0)?;
    let mut bytes = vec![0; HEADER_BYTES];
    put_u64(&mut bytes, 0, MAGIC);
    put_u32(&mut bytes, 8, FORMAT_VERSION);
    put_u64(&mut bytes, 16, facts.uuid as u64);
    put_u64(&mut bytes, 24, (facts.uuid >> 64) as u64);
    put_u64(&mut bytes, 32, generation);
    let crc = checksum::crc32c(MAGIC, &bytes[..HEADER_BYTES - 4]);
    put_u32(&mut bytes, HEADER_BYTES - 4, crc);
    for record in facts.records() {
        let encoded = encode_record(record, generation, bytes.len() as u64);
        bytes.extend_from_slice(&encoded);
    }
    file.write_at(&bytes, 0)?;
    // Durable now: a whole generation under its name. Without it a crash could leave neither file readable.
    file.sync_data()?;
    disk.sync_dir()?;
    Ok((file, bytes.len() as u64))
}

fn seed(generation: u64, offset: u64) -> u64 {
    generation << 32 ^ offset
}

fn encode_record(record: ManifestRecord, generation: u64, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_HEAD_BYTES];
    record.encode(&mut bytes);
    let length = (bytes.len() - RECORD_HEAD_BYTES) as u32;
    put_u32(&mut bytes, 0, length);
    let crc = checksum::crc32c(seed(generation, offset), &bytes[RECORD_HEAD_BYTES..]);
    put_u32(&mut bytes, 4, crc);
    bytes
}

fn read_file(disk: &dyn Disk, name: &str, writable: bool) -> Result<Writer> {
    let file = disk.open(name, writable)?;
    let length = file.len()?;
    let title = file.name().to_owned();
    let damaged = |offset: u64, expected: &str, found: String| Error::Corrupt {
        file: title.clone(),
        offset,
        expected: expected.to_owned(),
        found,
    };
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_at(&mut bytes, 0)?;
    if bytes.len() < HEADER_BYTES || get_u64(&bytes, 0) != MAGIC {
        return Err(damaged(0, "the header of a manifest", format!("{length} other bytes")));
    }
    let version = get_u32(&bytes, 8);
    if version != FORMAT_VERSION {
        return Err(Error::WrongVersion { file: title.clone(), found: version, expected: FORMAT_VERSION });
    }
    let (crc, stored) = (checksum::crc32c(MAGIC, &bytes[..HEADER_BYTES - 4]), get_u32(&bytes, HEADER_BYTES - 4));
    if crc != stored {
        return Err(damaged(HEADER_BYTES as u64 - 4, &format!("header checksum {crc:08x}"), format!("{stored:08x}")));
    }
    let generation = get_u64(&bytes, 32);
    let mut facts = Facts::default();
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        match read_record(&bytes, at, generation) {
            Some((body, next)) => {
                let record = ManifestRecord::decode(body).map_err(|error| error.in_file(&title))?;
                let unknown = || damaged(at as u64, "a known manifest record", format!("kind {}", body.first().copied().unwrap_or(0)));
                facts.apply(record.ok_or_else(unknown)?);
                at = next;
            }
            // Rule F11: only the very last append may be torn.
            None if facts.uuid != 0 && nothing_follows(&bytes, at, generation) => break,
            None => return Err(damaged(at as u64, "a manifest record with its checksum", "other bytes".into())),
        }
    }
    if facts.uuid == 0 {
        return Err(damaged(HEADER_BYTES as u64, "the record that created the database", "nothing".into()));
    }
    Ok(Writer { facts, generation, file, end: at as u64 })
}

/// Body of the record at `at` and the place behind it, if its checksum is right.
fn read_record(bytes: &[u8], at: usize, generation: u64) -> Option<(&[u8], usize)> {
    let head = bytes.get(at..at + RECORD_HEAD_BYTES)?;
    let start = at + RECORD_HEAD_BYTES;
    let end = start.checked_add(get_u32(head, 0) as usize)?;
    let body = bytes.get(start..end).filter(|body| !body.is_empty())?;
    (checksum::crc32c(seed(generation, at as u64), body) == get_u32(head, 4)).then_some((body, end))
}

/// True if no whole record begins anywhere behind the broken one.
fn nothing_follows(bytes: &[u8], broken: usize, generation: u64) -> bool {
    (broken + 1..bytes.len()).all(|at| read_record(bytes, at, generation).is_none())
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod manifest_tests;
