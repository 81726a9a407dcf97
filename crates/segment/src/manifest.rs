//! Manifest: the list of what exists, in two alternating append-only files.
//!
//! Why it exists: which segments are sealed and with which content must not be told by the segments alone; a segment
//! that vanished, or whole old content under a right name, would pass.
//! Format: docs/format.md#manifest; bytes in `manifest_file` and `manifest_record`.
//! Rules: F10 records are only appended, and each append is synced before it is relied on; when a file is half full, or
//! was left torn (or, EN3, at a checkpoint while one of the two is encrypted otherwise than new files), the facts go to the other
//! file as a new generation, synced with its name, and only then the old file
//! gets its last record, `Superseded`. So a file that is not superseded counts, whatever the other one looks like, and
//! a superseded one never does. What a new generation lacks before anything of it is synced, room, descriptors or memory,
//! postpones it. D9 any other failed write or sync ends all appending. D34 what an opening reads may never have been
//! synced: it is written again, as it stands there, before anything follows it.
//! Latches and I/O: one latch, held across append and sync: manifest records are rare (one or two a segment).
//! After a crash: an append in flight is there or not; whoever wanted it finds the fact again from the segments.

use crate::geometry::Geometry;
use crate::manifest_file::{Decoded, FILE_BYTES_MAX, Facts, decode, encode_image, read_whole};
use crate::manifest_record::{Checkpoint, ManifestRecord, SealedSegment, frame};
use crate::names::SegmentClass;
use parking_lot::Mutex;
use pbxt_base::{Error, PoisonCause, Result, SegmentId, stop_point};
use pbxt_io::{Disk, DiskFile, Poison, is_passing_want, refuse_encrypted};
use std::sync::Arc;

pub(crate) const NAMES: [&str; 2] = ["pbxt.manifest.a", "pbxt.manifest.b"];
/// Bytes of a file at least; set aside when it is made, so that appending needs no space.
pub(crate) const FILE_BYTES_MIN: u64 = 64 << 10;

#[derive(Debug)]
struct Writer {
    facts: Facts,
    generation: u64,
    file: Arc<dyn DiskFile>,
    end: u64,
    is_torn: bool,
    /// Why nothing can be appended any more (rule D9).
    failed: Option<String>,
}

impl Writer {
    fn continuing(file: Arc<dyn DiskFile>, found: Decoded) -> Self {
        let Decoded {
            facts,
            generation,
            end,
            is_torn,
        } = found;
        Self {
            facts,
            generation,
            file,
            end: end as u64,
            is_torn,
            failed: None,
        }
    }

    /// Appends; any failure is final, as nobody knows what the medium holds now.
    fn append(&mut self, record: ManifestRecord) -> Result<()> {
        let mut bytes = Vec::new();
        frame(record, self.generation, self.end, &mut bytes);
        stop_point!("manifest.before_write");
        // Durable now: the fact. Without it a reader after a crash would not know of the segment this record names.
        let done = self
            .file
            .write_at(&bytes, self.end)
            .and_then(|()| self.file.sync_data());
        stop_point!("manifest.after_sync");
        match done {
            Ok(()) => {
                self.end += bytes.len() as u64;
                self.facts.apply(record);
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Ends all appending, and says how to tell why.
    fn fail(&mut self, error: Error) -> Error {
        let reason = self.failed.get_or_insert_with(|| error.to_string()).clone();
        // These would promise that nothing has happened.
        if is_as_before(&error) {
            let cause = PoisonCause::Disk;
            Error::Poisoned { cause, reason }
        } else {
            error
        }
    }
}

/// The manifest of an open database.
#[derive(Debug)]
pub struct Manifest {
    disk: Arc<dyn Disk>,
    writer: Mutex<Writer>,
    poison: Arc<Poison>,
}

/// True if the error of an append says that everything is as it was, and the fact is not in the manifest (rule F10).
pub(crate) fn is_as_before(error: &Error) -> bool {
    matches!(error, Error::NoSpace { .. }) || is_passing_want(error)
}

/// Bytes of the last record of a file that is full.
const SUPERSEDED_BYTES: u64 = 8 + 1 + 8;

/// A generation that was written and is not durable: it may be there after a crash or not.
#[derive(Debug)]
struct Begun {
    facts: Facts,
    generation: u64,
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Begun {
    /// Writes the image. While this fails, the file is none that counts.
    fn write(disk: &dyn Disk, facts: Facts, generation: u64) -> Result<Self> {
        let name = name_of(generation);
        if disk.exists(name)? {
            disk.remove(name)?;
        }
        let bytes = encode_image(&facts, generation);
        // Four times the image: half of the file, and so as much again as the image, can be appended before the next switch.
        let wanted = (4 * bytes.len() as u64).next_power_of_two();
        let capacity = wanted.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        let file = disk.create(name, capacity)?;
        file.write_at(&bytes, 0)?;
        Ok(Self {
            facts,
            generation,
            file,
            end: bytes.len() as u64,
        })
    }

    /// Makes it durable. When this fails, it may count after a crash, and nothing may follow in the file before it.
    fn sync(self, disk: &dyn Disk) -> Result<Writer> {
        // Durable now: a whole generation under its name. Without it a crash could leave neither file readable.
        self.file.sync_data()?;
        disk.sync_dir()?;
        Ok(Writer {
            facts: self.facts,
            generation: self.generation,
            file: self.file,
            end: self.end,
            is_torn: false,
            failed: None,
        })
    }
}

/// One file as it was found.
#[derive(Debug)]
enum Found {
    Missing,
    Whole(Whole),
    Unreadable(Error),
}

/// A file that counts, or did.
#[derive(Debug)]
struct Whole {
    file: Arc<dyn DiskFile>,
    decoded: Decoded,
    /// Header and records.
    bytes: Vec<u8>,
}

impl Whole {
    /// Writes what was read again, as it stands there (rule D34).
    fn write_again(&self) -> Result<()> {
        self.file.write_at(&self.bytes, 0)?;
        // Durable now: what was read. Without it a record could follow one that a failed sync left in doubt, and after a power cut
        // stand behind a gap.
        self.file.sync_data()
    }
}

impl Found {
    fn generation(&self) -> Option<u64> {
        match self {
            Self::Whole(whole) => Some(whole.decoded.generation),
            Self::Missing | Self::Unreadable(_) => None,
        }
    }

    fn into_error(self, disk: &dyn Disk) -> Error {
        match self {
            Self::Unreadable(error) => error,
            Self::Missing | Self::Whole(_) => Error::NotADatabase {
                path: disk.location(),
                why: "its manifest is missing".into(),
            },
        }
    }
}

impl Manifest {
    /// True if the directory has a manifest file.
    pub(crate) fn exists(disk: &dyn Disk) -> Result<bool> {
        Ok(disk.exists(NAMES[0])? || disk.exists(NAMES[1])?)
    }

    /// Makes the manifest of a new database; durable on return.
    pub(crate) fn create(disk: Arc<dyn Disk>, uuid: u128, geometry: Geometry, created: u64) -> Result<Self> {
        geometry.check()?;
        let facts = Facts {
            uuid,
            geometry,
            created,
            ..Facts::default()
        };
        let writer = Begun::write(&*disk, facts, 1)?.sync(&*disk)?;
        Ok(Self {
            disk,
            writer: Mutex::new(writer),
            poison: Arc::new(Poison::new()),
        })
    }

    /// Reads the file that counts.
    pub(crate) fn open(disk: Arc<dyn Disk>, writable: bool) -> Result<Self> {
        let [a, b] = [read(&*disk, 0, writable)?, read(&*disk, 1, writable)?];
        let (newer, other) = if a.generation() > b.generation() {
            (a, b)
        } else {
            (b, a)
        };
        let newest = match (newer, &other) {
            (Found::Whole(newest), _) => newest,
            (Found::Unreadable(error), _) => return Err(error),
            (Found::Missing, _) => return Err(other.into_error(&*disk)),
        };
        let facts = &newest.decoded.facts;
        match (other, facts.superseded) {
            (Found::Whole(older), _) if older.decoded.facts.uuid != facts.uuid => {
                let why = format!("'{}' and '{}' belong to two databases", NAMES[0], NAMES[1]);
                return Err(Error::NotADatabase {
                    path: disk.location(),
                    why,
                });
            }
            (other, Some(successor)) => return Err(missing(&*disk, other, successor)),
            (other, None) if writable => settle(&*disk, &newest, other)?,
            (_, None) => {}
        }
        let writer = Writer::continuing(newest.file, newest.decoded);
        Ok(Self {
            disk,
            writer: Mutex::new(writer),
            poison: Arc::new(Poison::new()),
        })
    }

    /// Appends a fact; durable on return (rule F10). `NoSpace`, and want of a descriptor or of memory, leave everything as it was;
    /// any other failure is final.
    pub(crate) fn append(&self, record: ManifestRecord) -> Result<()> {
        let mut writer = self.writer.lock();
        let appended = self.append_with(&mut writer, record);
        let failed = writer.failed.clone();
        drop(writer);
        if let Some(reason) = failed {
            // Whoever asked may take it for the failure of one statement; the database can do nothing more.
            self.poison.set(PoisonCause::Disk, reason);
        }
        appended
    }

    /// Set when an append has failed for good. The log of the database shares it.
    pub(crate) fn poison(&self) -> &Arc<Poison> {
        &self.poison
    }

    fn append_with(&self, writer: &mut Writer, record: ManifestRecord) -> Result<()> {
        if let Some(reason) = &writer.failed {
            return Err(Error::Poisoned {
                cause: PoisonCause::Disk,
                reason: reason.clone(),
            });
        }
        let mut bytes = Vec::new();
        frame(record, writer.generation, writer.end, &mut bytes);
        let (end, len) = (writer.end + bytes.len() as u64, writer.file.len()?);
        let is_due = matches!(record, ManifestRecord::Checkpoint(_)) && !self.is_as_new_files();
        if !writer.is_torn && end <= len / 2 && !is_due {
            return writer.append(record);
        }
        let mut facts = writer.facts.clone();
        facts.apply(record);
        let switched = match Begun::write(&*self.disk, facts, writer.generation + 1) {
            Err(error) if is_as_before(&error) => {
                // The second half of a file is kept for just this.
                let is_kept = !writer.is_torn && end + SUPERSEDED_BYTES <= len;
                return if is_kept {
                    writer.append(record)
                } else {
                    Err(error)
                };
            }
            begun => begun.and_then(|begun| self.switch(writer, begun)),
        };
        switched.map_err(|error| writer.fail(error))
    }

    /// False if a file is encrypted otherwise than a new one would be (rule EN3). One that cannot be asked is left as it is: its key
    /// may be lacking for a while.
    fn is_as_new_files(&self) -> bool {
        let is_new = |name| {
            let there = self.disk.exists(name)?;
            Ok::<_, Error>(!there || self.disk.is_as_new_files(name)?)
        };
        NAMES.into_iter().all(|name| is_new(name).unwrap_or(true))
    }

    /// Lets the next generation count.
    fn switch(&self, writer: &mut Writer, begun: Begun) -> Result<()> {
        let next = begun.sync(&*self.disk)?;
        stop_point!("manifest.before_supersede");
        // A torn append was never part of the file; this takes its place.
        writer.append(ManifestRecord::Superseded {
            generation: next.generation,
        })?;
        *writer = next;
        Ok(())
    }

    /// Compares the file that counts with what was written to it. What the other one holds is older, or was being made when the power
    /// failed: nobody needs it. Nothing is asked of a file that a failed write has left in doubt.
    pub(crate) fn verify(&self) -> Result<u64> {
        let writer = self.writer.lock();
        if writer.failed.is_some() {
            return Ok(0);
        }
        let file = self.disk.open_past_cache(name_of(writer.generation))?;
        let bytes = read_whole(&*file)?;
        let found = decode(&bytes, file.name())?;
        if (found.generation, found.end as u64) != (writer.generation, writer.end) {
            return Err(Error::Corrupt {
                file: file.name().to_owned(),
                offset: found.end as u64,
                expected: format!("records of generation {} up to {}", writer.generation, writer.end),
                found: format!("some of generation {} up to {}", found.generation, found.end),
            });
        }
        Ok(bytes.len() as u64)
    }

    pub(crate) fn facts(&self) -> Facts {
        self.writer.lock().facts.clone()
    }

    /// The sealed segment, if it is one.
    pub fn sealed(&self, class: SegmentClass, id: SegmentId) -> Option<SealedSegment> {
        self.writer.lock().facts.sealed.get(&(class, id)).copied()
    }

    /// The first id of the class that was never used.
    pub(crate) fn next_id(&self, class: SegmentClass) -> SegmentId {
        let highest = self
            .writer
            .lock()
            .facts
            .highest
            .get(&class)
            .copied()
            .unwrap_or_default();
        SegmentId::new(highest.raw() + 1)
    }

    /// Bytes of its files.
    pub(crate) fn bytes(&self) -> Result<u64> {
        let writer = self.writer.lock();
        let mut bytes = 0;
        for name in NAMES {
            if self.disk.exists(name)? {
                bytes += self.disk.size(name)?;
            }
        }
        drop(writer);
        Ok(bytes)
    }

    /// The newest checkpoint.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        self.writer.lock().facts.checkpoint
    }

    /// See `Facts::first_hot`.
    pub(crate) fn first_hot(&self) -> Option<SegmentId> {
        self.writer.lock().facts.first_hot()
    }

    #[cfg(test)]
    pub(crate) fn generation(&self) -> u64 {
        self.writer.lock().generation
    }
}

/// Makes durable what was read of the file that counts, and that its predecessor does not.
fn settle(disk: &dyn Disk, newest: &Whole, other: Found) -> Result<()> {
    newest.write_again()?;
    // Durable now: its name. Without it the predecessor could be the only one, and say that it is superseded.
    disk.sync_dir()?;
    let Found::Whole(older) = other else { return Ok(()) };
    older.write_again()?;
    if older.decoded.facts.superseded.is_some() {
        return Ok(());
    }
    // The end came between the new generation and the last record of the old one.
    let generation = newest.decoded.generation;
    Writer::continuing(older.file, older.decoded).append(ManifestRecord::Superseded { generation })
}

/// Error for a file whose successor is not what it has to be.
fn missing(disk: &dyn Disk, other: Found, successor: u64) -> Error {
    let Found::Unreadable(error) = other else {
        return Error::Corrupt {
            file: format!("{}/{}", disk.location(), name_of(successor)),
            offset: 0,
            expected: format!("generation {successor} of the manifest"),
            found: "an older one, or no such file".into(),
        };
    };
    error
}

fn name_of(generation: u64) -> &'static str {
    NAMES[(generation % 2) as usize]
}

fn read(disk: &dyn Disk, index: u64, writable: bool) -> Result<Found> {
    let name = name_of(index);
    if !disk.exists(name)? {
        return Ok(Found::Missing);
    }
    let file = match disk.open(name, writable) {
        // That of its encryption: the file is as damaged as with a damaged header of its own.
        Err(error @ Error::Corrupt { .. }) => return Ok(Found::Unreadable(error)),
        file => file?,
    };
    let mut bytes = match read_whole(&*file) {
        Err(error @ Error::Corrupt { .. }) => return Ok(Found::Unreadable(error)),
        bytes => bytes?,
    };
    refuse_encrypted(&bytes, file.name())?;
    match decode(&bytes, file.name()) {
        Ok(decoded) if decoded.generation % 2 == index => {
            bytes.truncate(decoded.end);
            Ok(Found::Whole(Whole { file, decoded, bytes }))
        }
        Ok(decoded) => Ok(Found::Unreadable(Error::Corrupt {
            file: file.name().to_owned(),
            offset: 32,
            expected: format!("a generation for '{name}'"),
            found: format!("generation {}", decoded.generation),
        })),
        Err(error @ Error::Corrupt { .. }) => Ok(Found::Unreadable(error)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod manifest_tests;
