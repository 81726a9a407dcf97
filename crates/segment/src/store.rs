//! `SegmentStore`: opens a database directory and hands out its segment files.
//!
//! Why it exists: start-up decides here what the directory is (new, closed in order, crashed, damaged, of another
//! version, not ours, in use); afterwards nobody else knows file names, headers or footers.
//! Format: docs/format.md#files.
//! Rules: P1 a writer owns the end of its segment, there is no call that writes elsewhere. F7, F8, F10. D9 a segment is
//! prepared (created, all of its space allocated, its name durable) before the log may reach it, so a full disk is an
//! ordinary error of the preparer and never of a commit.
//! Latches and I/O: one short latch for the map of open files.
//! After a crash: prepared and never begun segments have no header; they are used again.

use crate::footer::{FOOTER_BYTES, SegmentFooter};
use crate::geometry::Geometry;
use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::manifest::{Facts, Manifest};
use crate::manifest_record::{ManifestRecord, SealedSegment};
use crate::names::{SegmentClass, parse_segment_name, segment_name};
use parking_lot::Mutex;
use pbxt_base::checksum::RunningHash;
use pbxt_base::{Error, Lsn, Result, SegmentId, stop_point};
use pbxt_io::{Disk, DiskFile, DiskLock};
use std::collections::HashMap;
use std::sync::Arc;

const LOCK_NAME: &str = "pbxt.lock";

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenMode {
    /// Make a new database, with these sizes, where there is none.
    pub create: Option<Geometry>,
    /// Change nothing.
    pub read_only: bool,
    /// Identity of a database that is made.
    pub new_uuid: u128,
    /// Unix seconds now.
    pub now: u64,
}

/// What the directory was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartState {
    /// There was no database; there is one now.
    New,
    /// Closed in order; the log ends here.
    Clean(Lsn),
    /// Not closed: recovery finds the end of the log.
    Crashed,
}

/// The files of an open database.
#[derive(Debug)]
pub struct SegmentStore {
    disk: Arc<dyn Disk>,
    manifest: Manifest,
    geometry: Geometry,
    uuid: u128,
    incarnation: u32,
    state: StartState,
    files: Mutex<HashMap<(SegmentClass, SegmentId), Arc<dyn DiskFile>>>,
    hashes: Mutex<HashMap<SegmentId, Arc<Mutex<HashState>>>>,
    _lock: DiskLock,
}

impl SegmentStore {
    /// Opens the directory. Every refusal is a sentence that names the file and what to do.
    pub fn open(disk: Arc<dyn Disk>, mode: OpenMode) -> Result<Self> {
        let lock = disk.lock(LOCK_NAME)?;
        let (manifest, state) = if Manifest::exists(&*disk)? {
            let manifest = Manifest::open(Arc::clone(&disk), !mode.read_only)?;
            let state = manifest.facts().closed.map_or(StartState::Crashed, StartState::Clean);
            (manifest, state)
        } else {
            (Self::create(&disk, mode)?, StartState::New)
        };
        let facts = manifest.facts();
        facts.geometry.check()?;
        let incarnation = facts.incarnation + 1;
        if !mode.read_only {
            manifest.append(ManifestRecord::Opened { incarnation })?;
        }
        let store = Self {
            disk,
            geometry: facts.geometry,
            uuid: facts.uuid,
            manifest,
            incarnation,
            state,
            files: Mutex::default(),
            hashes: Mutex::default(),
            _lock: lock,
        };
        store.check_sealed_are_there(&facts)?;
        Ok(store)
    }

    fn create(disk: &Arc<dyn Disk>, mode: OpenMode) -> Result<Manifest> {
        let path = disk.location();
        if let Some(stray) = disk.list()?.into_iter().find(|name| parse_segment_name(name).is_some()) {
            return Err(Error::NotADatabase { path, why: format!("'{stray}' is there but the manifest is missing: restore it from a backup") });
        }
        let Some(geometry) = mode.create.filter(|_| !mode.read_only) else {
            return Err(Error::NotADatabase { path, why: "there is no manifest".into() });
        };
        Manifest::create(Arc::clone(disk), mode.new_uuid, geometry, mode.now)
    }

    fn check_sealed_are_there(&self, facts: &Facts) -> Result<()> {
        for sealed in facts.sealed.values() {
            let name = segment_name(sealed.class, sealed.id);
            if !self.disk.exists(&name)? {
                return Err(Error::Corrupt {
                    file: format!("{}/{name}", self.disk.location()),
                    offset: 0,
                    expected: "a sealed segment the manifest lists".into(),
                    found: "no such file".into(),
                });
            }
        }
        Ok(())
    }

    /// What the directory was when it was opened.
    pub fn start_state(&self) -> StartState {
        self.state
    }

    /// Sizes of this database.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Identity of this database.
    pub fn uuid(&self) -> u128 {
        self.uuid
    }

    /// Number of this opening.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The directory, for messages.
    pub fn location(&self) -> String {
        self.disk.location()
    }

    /// Full name of a segment, for messages.
    pub fn name(&self, class: SegmentClass, id: SegmentId) -> String {
        format!("{}/{}", self.disk.location(), segment_name(class, id))
    }

    /// Ids of the segment files of a class, rising.
    pub fn list(&self, class: SegmentClass) -> Result<Vec<SegmentId>> {
        let names = self.disk.list()?;
        let of_class = |name: &String| parse_segment_name(name).filter(|(found, _)| *found == class);
        let mut ids: Vec<SegmentId> = names.iter().filter_map(of_class).map(|(_, id)| id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The manifest's word on a sealed segment.
    pub fn sealed(&self, class: SegmentClass, id: SegmentId) -> Option<SealedSegment> {
        self.manifest.sealed(class, id)
    }

    /// Creates a hot segment of full size (rule D9). Fine if it was prepared before.
    pub fn prepare(&self, id: SegmentId) -> Result<()> {
        let name = segment_name(SegmentClass::Hot, id);
        if self.disk.exists(&name)? {
            if self.disk.open(&name, false)?.len()? == self.geometry.hot_segment_bytes {
                return Ok(());
            }
            // Its creation was cut short by a crash: it has no header yet.
            self.disk.remove(&name)?;
        }
        let file = self.disk.create(&name, self.geometry.hot_segment_bytes)?;
        // Durable now: the name and the size. Without them a commit could be written into a file a crash forgets.
        file.sync_data()?;
        self.disk.sync_dir()
    }

    /// Writes the header of a prepared hot segment and gives the file to its writer.
    pub fn begin(&self, id: SegmentId, previous: SegmentId, cut: Lsn, cut_checksum: u32, first_lsn: Lsn) -> Result<Arc<dyn DiskFile>> {
        let header = SegmentHeader {
            uuid: self.uuid,
            id,
            class: SegmentClass::Hot,
            segment_bytes: self.geometry.hot_segment_bytes,
            chunk_bytes: self.geometry.chunk_bytes,
            incarnation: self.incarnation,
            previous,
            cut,
            cut_checksum,
            first_lsn,
            key_id: 0,
        };
        let file = self.disk.open(&segment_name(SegmentClass::Hot, id), true)?;
        let hash = Arc::new(Mutex::new(HashState::default()));
        self.hashes.lock().insert(id, Arc::clone(&hash));
        self.files.lock().insert((SegmentClass::Hot, id), Arc::clone(&file));
        let writer = Arc::new(HashingFile { file, hash });
        writer.write_at(&header.encode(), 0)?;
        Ok(writer)
    }

    /// Seals a hot segment whose body up to `end` is durable: footer, then the manifest (rule F8).
    pub fn seal(&self, id: SegmentId, end: Lsn) -> Result<()> {
        stop_point!("segment.before_seal");
        let file = self.file(SegmentClass::Hot, id)?;
        let footer_at = self.geometry.hot_segment_bytes - FOOTER_BYTES as u64;
        let hash = match self.hashes.lock().remove(&id) {
            Some(hash) => hash.lock().finish(footer_at),
            None => hash_of(&*file, footer_at)?,
        };
        file.write_at(&SegmentFooter { id, hash, end }.encode(), footer_at)?;
        // Durable now: the footer. Without it the manifest would vouch for a segment that does not say the same.
        file.sync_data()?;
        self.manifest.append(ManifestRecord::Sealed(SealedSegment { class: SegmentClass::Hot, id, hash, end }))?;
        stop_point!("segment.after_seal");
        Ok(())
    }

    /// The header of a segment; `None` if it was prepared and never begun. Refuses a header of another database.
    pub fn header(&self, class: SegmentClass, id: SegmentId) -> Result<Option<SegmentHeader>> {
        let file = self.file(class, id)?;
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
        if file.len()? < SEGMENT_HEADER_BYTES as u64 {
            return Err(self.damaged(class, id, 0, "a segment header", "a shorter file"));
        }
        file.read_at(&mut bytes, 0)?;
        if self.sealed(class, id).is_none() && bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = SegmentHeader::decode(&bytes, file.name())?;
        if header.uuid != self.uuid || header.id != id || header.class != class {
            return Err(self.damaged(class, id, 16, "a segment of this database under its own name", "another one"));
        }
        Ok(Some(header))
    }

    /// Compares a sealed segment with its hash in the manifest. Reads all of it.
    pub fn verify_sealed(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        let Some(sealed) = self.sealed(class, id) else { return Ok(()) };
        let file = self.file(class, id)?;
        let footer_at = file.len()?.saturating_sub(FOOTER_BYTES as u64);
        let mut bytes = vec![0; FOOTER_BYTES];
        file.read_at(&mut bytes, footer_at)?;
        let footer = SegmentFooter::decode(&bytes, file.name(), footer_at)?;
        let hash = hash_of(&*file, footer_at)?;
        if hash != sealed.hash || footer.hash != sealed.hash {
            let expected = format!("content hash {:016x}", sealed.hash);
            return Err(self.damaged(class, id, 0, &expected, &format!("{hash:016x}")));
        }
        Ok(())
    }

    /// An existing segment file; kept open.
    pub fn file(&self, class: SegmentClass, id: SegmentId) -> Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&(class, id)) {
            return Ok(Arc::clone(file));
        }
        let file = self.disk.open(&segment_name(class, id), true)?;
        files.insert((class, id), Arc::clone(&file));
        Ok(file)
    }

    /// Creates a segment of a class that grows by appending (blobs); its name is durable on return.
    pub(crate) fn create_growing(&self, class: SegmentClass, id: SegmentId) -> Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(&segment_name(class, id), 0)?;
        let header = SegmentHeader {
            uuid: self.uuid,
            id,
            class,
            segment_bytes: self.geometry.blob_segment_bytes,
            chunk_bytes: 0,
            incarnation: self.incarnation,
            previous: SegmentId::new(0),
            cut: Lsn::new(0),
            cut_checksum: 0,
            first_lsn: Lsn::new(0),
            key_id: 0,
        };
        file.write_at(&header.encode(), 0)?;
        self.disk.sync_dir()?;
        self.files.lock().insert((class, id), Arc::clone(&file));
        Ok(file)
    }

    /// Removes a segment file for good.
    pub fn drop_segment(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        self.manifest.append(ManifestRecord::Dropped { class, id })?;
        self.files.lock().remove(&(class, id));
        self.disk.remove(&segment_name(class, id))?;
        self.disk.sync_dir()
    }

    /// Notes an orderly close: the next opening trusts that the log ends at `end`.
    pub fn note_closed(&self, end: Lsn) -> Result<()> {
        self.manifest.append(ManifestRecord::Closed { end })
    }

    /// Bytes of all files in the directory.
    pub fn bytes_on_disk(&self) -> Result<u64> {
        let mut total = 0;
        for name in self.disk.list()? {
            total += self.disk.open(&name, false)?.len()?;
        }
        Ok(total)
    }

    fn damaged(&self, class: SegmentClass, id: SegmentId, offset: u64, expected: &str, found: &str) -> Error {
        Error::Corrupt { file: self.name(class, id), offset, expected: expected.into(), found: found.into() }
    }
}

/// Hash of what was written so far, with zeros for what was left out.
#[derive(Debug, Default)]
struct HashState {
    hash: RunningHash,
    end: u64,
}

impl HashState {
    fn zeros_to(&mut self, offset: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.end < offset {
            let step = (offset - self.end).min(ZEROS.len() as u64);
            self.hash.update(&ZEROS[..step as usize]);
            self.end += step;
        }
    }

    fn add(&mut self, bytes: &[u8], offset: u64) {
        pbxt_base::invariant!(offset >= self.end, "P1: a segment is written once and in order");
        self.zeros_to(offset);
        self.hash.update(bytes);
        self.end += bytes.len() as u64;
    }

    fn finish(&mut self, footer_at: u64) -> u64 {
        self.zeros_to(footer_at);
        self.hash.finish()
    }
}

/// A segment file that hashes what its one writer writes.
#[derive(Debug)]
struct HashingFile {
    file: Arc<dyn DiskFile>,
    hash: Arc<Mutex<HashState>>,
}

impl DiskFile for HashingFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.hash.lock().add(buf, offset);
        self.file.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }
}

fn hash_of(file: &dyn DiskFile, end: u64) -> Result<u64> {
    let mut hash = RunningHash::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < end {
        let step = (end - at).min(buffer.len() as u64) as usize;
        file.read_at(&mut buffer[..step], at)?;
        hash.update(&buffer[..step]);
        at += step as u64;
    }
    Ok(hash.finish())
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod store_tests;
