//! `SegmentStore`: opens a database directory and hands out its segment files.
//!
//! Why it exists: start-up decides here what the directory is (new, closed in order, crashed, damaged, of another
//! version, not ours, in use); afterwards nobody else knows file names, headers or footers.
//! Format: docs/format.md#files.
//! Rules: P1 a writer owns the end of its segment, there is no call that writes elsewhere, and a segment file of an
//! earlier life is made anew before it is begun; D34 is the exception. F7, F8, F10. D10 a segment is prepared (created, all of
//! its space set aside, its name durable) before the log may reach it, so a full disk is an ordinary error of the preparer and never
//! of a commit.
//! Latches and I/O: `preparing` is held while a segment is made, so only other preparers wait for that; short latches
//! for the maps of open and of prepared files, opening a file the only I/O under one of them.
//! After a crash: prepared and never begun segments have no header and are made anew; a manifest that was being made for
//! a new database, with no segment beside it, is made anew too.

use crate::footer::{FOOTER_BYTES, SegmentFooter};
use crate::geometry::Geometry;
use crate::hashing_file::{HashState, HashingFile, hash_of};
use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::leftovers::Found;
use crate::manifest::{Manifest, is_as_before};
use crate::manifest_file::Facts;
use crate::manifest_record::{ManifestRecord, SealedSegment};
use crate::names::{SegmentClass, parse_segment_name, segment_name};
use crate::piece::is_missing;
use crate::sealed_walk::SealedWalk;
use crate::store_pieces::PieceIds;
use parking_lot::{Mutex, RwLock};
use pbxt_base::{Error, Lsn, Result, SegmentId, invariant, stop_point};
use pbxt_io::{Disk, DiskFile, DiskLock, Poison};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

const LOCK_NAME: &str = "pbxt.lock";
/// Open files kept at most, besides those in use: a database may have more segments than a process may have files.
const OPEN_FILES_MAX: usize = 256;
/// Bytes of a sealed segment that are read at once.
const VERIFIED_AT_ONCE: usize = 1 << 20;

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

/// What the directory was. The other cases are errors: `Corrupt` (damaged), `WrongVersion`, `NotADatabase` (not ours,
/// or nothing there and nothing may be made), `Locked` (in use).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartState {
    /// There was no database; there is one now.
    New,
    /// Closed in order; the log ends here.
    Clean(Lsn),
    /// Not closed: recovery finds the end of the log.
    Crashed,
}

type FileMap = HashMap<(SegmentClass, SegmentId), Arc<dyn DiskFile>>;

/// A hot segment that nothing was written to.
#[derive(Debug)]
struct Prepared {
    /// Open for the log.
    log: Arc<dyn DiskFile>,
    /// Open for its footer.
    file: Arc<dyn DiskFile>,
}

/// A hot segment that is being written. D10: its file is kept open, as a failure to open it again would be a commit's.
#[derive(Debug)]
struct Unsealed {
    file: Arc<dyn DiskFile>,
    hash: Arc<Mutex<HashState>>,
}

/// The files of an open database.
#[derive(Debug)]
pub struct SegmentStore {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) manifest: Manifest,
    geometry: Geometry,
    uuid: u128,
    incarnation: u32,
    state: StartState,
    pub(crate) read_only: bool,
    pub(crate) piece_ids: PieceIds,
    pub(crate) found: Found,
    files: RwLock<FileMap>,
    /// Held by the thread that prepares a segment.
    preparing: Mutex<()>,
    /// Hot segments this life has prepared and not begun.
    prepared: Mutex<HashMap<SegmentId, Prepared>>,
    /// Hot segments this life has begun and not sealed.
    unsealed: Mutex<HashMap<SegmentId, Unsealed>>,
    _lock: DiskLock,
}

impl SegmentStore {
    /// Opens the directory. Every refusal is a sentence that names the file and what to do.
    pub fn open(disk: Arc<dyn Disk>, mode: OpenMode) -> Result<Self> {
        let lock = match disk.lock(LOCK_NAME) {
            // Where nobody can write, nobody can be writing.
            Err(Error::ReadOnlyMedia { .. }) if mode.read_only => Box::new(()),
            lock => lock?,
        };
        let (manifest, state) = Self::open_or_create(&disk, mode)?;
        let facts = manifest.facts();
        facts.geometry.check()?;
        let found = Found::at_opening(&disk.list()?);
        let mut store = Self {
            disk,
            geometry: facts.geometry,
            uuid: facts.uuid,
            manifest,
            incarnation: 0,
            state,
            read_only: mode.read_only,
            piece_ids: PieceIds::new(SegmentId::new(1), SegmentId::new(1)),
            found,
            files: RwLock::default(),
            preparing: Mutex::default(),
            prepared: Mutex::default(),
            unsealed: Mutex::default(),
            _lock: lock,
        };
        store.check_files_are_there(&facts)?;
        store.check_image()?;
        for class in [SegmentClass::Cold, SegmentClass::Meta] {
            let mut ids = store.list(class)?.into_iter();
            // Behind the greatest number there is none: only somebody else's file can have it.
            let newest = ids.rfind(|id| id.raw() < u32::MAX).unwrap_or_default();
            let told = SegmentId::new(store.manifest.next_id(class).raw() - 1);
            store.bump_next_piece_id(class, newest.max(told));
        }
        store.check_begun(SegmentClass::Hot)?;
        store.incarnation = facts.incarnation.max(store.newest_incarnation()?) + 1;
        if !mode.read_only {
            store.drop_leftovers_below_log()?;
        }
        Ok(store)
    }

    /// Notes that this life begins to write, and with that takes back that the one before was closed in order. To be called before
    /// anything is begun: what is refused or cut off before has changed nothing of what the next opening knows (rules D5, D14).
    pub fn note_opened(&self) -> Result<()> {
        self.manifest.append(ManifestRecord::Opened {
            incarnation: self.incarnation,
        })
    }

    fn open_or_create(disk: &Arc<dyn Disk>, mode: OpenMode) -> Result<(Manifest, StartState)> {
        let path = disk.location();
        let stray = disk
            .list()?
            .into_iter()
            .find(|name| parse_segment_name(name).is_some());
        if Manifest::exists(&**disk)? {
            match Manifest::open(Arc::clone(disk), !mode.read_only) {
                Ok(manifest) => {
                    let state = manifest
                        .facts()
                        .closed
                        .map_or(StartState::Crashed, StartState::Clean);
                    return Ok((manifest, state));
                }
                // The power went while the database was being made: nothing was ever kept in it.
                Err(Error::Corrupt { .. }) if stray.is_none() && mode.create.is_some() && !mode.read_only => {
                }
                Err(error) => return Err(error),
            }
        } else if let Some(stray) = stray {
            let why = format!("'{stray}' is there but the manifest is missing: restore it from a backup");
            return Err(Error::NotADatabase { path, why });
        }
        let Some(geometry) = mode.create.filter(|_| !mode.read_only) else {
            return Err(Error::NotADatabase {
                path,
                why: "there is no manifest".into(),
            });
        };
        Ok((
            Manifest::create(Arc::clone(disk), mode.new_uuid, geometry, mode.now)?,
            StartState::New,
        ))
    }

    fn check_files_are_there(&self, facts: &Facts) -> Result<()> {
        let present: BTreeSet<String> = self.disk.list()?.into_iter().collect();
        for &(class, id) in facts.sealed.keys().chain(&facts.begun) {
            if !present.contains(&segment_name(class, id)) {
                return Err(self.damaged(class, id, 0, "a segment the manifest lists", "no such file"));
            }
        }
        Ok(())
    }

    /// The incarnation of the newest begun hot segment; 0 if there is none. The manifest knows it too, unless its last
    /// record rotted away, and an incarnation must never be used twice (rule D7).
    fn newest_incarnation(&self) -> Result<u32> {
        for id in self.list(SegmentClass::Hot)?.into_iter().rev() {
            match self.header(SegmentClass::Hot, id) {
                Ok(Some(header)) => return Ok(header.incarnation),
                Ok(None) | Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Set when a write or sync of the manifest failed; to be shared by everything that writes to this database (rule D9).
    pub fn poison(&self) -> &Arc<Poison> {
        self.manifest.poison()
    }

    /// What the directory was when it was opened.
    pub fn start_state(&self) -> StartState {
        self.state
    }

    /// Sizes of this database.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// See `Disk::encrypts_new_files`.
    pub fn encrypts_new_files(&self) -> bool {
        self.disk.encrypts_new_files()
    }

    /// See `Disk::encrypt_new_files`.
    pub fn encrypt_new_files(&self) -> Result<()> {
        self.disk.encrypt_new_files()
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

    /// Ids of the segment files of a class, rising; without hot segments below the log's start (rule F15).
    pub fn list(&self, class: SegmentClass) -> Result<Vec<SegmentId>> {
        let mut ids = self.files_of(class)?;
        if let Some(first) = self.manifest.first_hot().filter(|_| class == SegmentClass::Hot) {
            ids.retain(|id| *id >= first);
        }
        Ok(ids)
    }

    /// Ids of all segment files of a class, rising; without those that are somebody else's (rule F18).
    pub(crate) fn files_of(&self, class: SegmentClass) -> Result<Vec<SegmentId>> {
        let names = self.disk.list()?;
        let of_class = |name: &String| {
            parse_segment_name(name).filter(|(found, id)| *found == class && self.found.is_ours(class, *id))
        };
        let mut ids: Vec<SegmentId> = names.iter().filter_map(of_class).map(|(_, id)| id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Segments that the manifest vouches for and of which nothing is changed: sealed ones of the log, and those of values.
    pub fn vouched_for(&self) -> Vec<(SegmentClass, SegmentId)> {
        let facts = self.manifest.facts();
        let of_values = facts
            .begun
            .iter()
            .filter(|(class, _)| *class == SegmentClass::Blob);
        facts.sealed.keys().chain(of_values).copied().collect()
    }

    /// Segments of a class that were begun, by the manifest's word, and not sealed.
    pub fn begun(&self, class: SegmentClass) -> BTreeSet<SegmentId> {
        let begun = self.manifest.facts().begun;
        let of_class = begun.into_iter().filter(|(found, _)| *found == class);
        of_class.map(|(_, id)| id).collect()
    }

    /// True if the segment has a file.
    pub fn exists(&self, class: SegmentClass, id: SegmentId) -> Result<bool> {
        self.disk.exists(&segment_name(class, id))
    }

    /// A segment file for whoever compares it with what was written; it is not kept open here.
    pub fn open_past_cache(&self, class: SegmentClass, id: SegmentId) -> Result<Arc<dyn DiskFile>> {
        self.disk.open_past_cache(&segment_name(class, id))
    }

    /// Compares the manifest file that counts with what was written to it; the bytes that were read. Nothing is appended meanwhile.
    pub fn verify_manifest(&self) -> Result<u64> {
        self.manifest.verify()
    }

    /// The manifest's word on a sealed segment.
    pub fn sealed(&self, class: SegmentClass, id: SegmentId) -> Option<SealedSegment> {
        self.manifest.sealed(class, id)
    }

    /// Creates a hot segment of full size (rule D10). Fine if this life has prepared it before; a file that an earlier
    /// life prepared and never begun is made anew, so no byte of it is written twice.
    pub fn prepare(&self, id: SegmentId) -> Result<()> {
        self.prepare_with_room(id, self.geometry.hot_segment_bytes)
    }

    /// The same with room for so many bytes only, a `room_border`.
    pub fn prepare_with_room(&self, id: SegmentId, room: u64) -> Result<()> {
        let _turn = self.preparing.lock();
        if self.prepared.lock().contains_key(&id) {
            return Ok(());
        }
        self.check_not_foreign(SegmentClass::Hot, id)?;
        let name = segment_name(SegmentClass::Hot, id);
        if self.disk.exists(&name)? {
            self.remove_unbegun(id, &name)?;
        }
        let bytes = self.geometry.hot_segment_bytes;
        let file = self.make(SegmentClass::Hot, id, |name| {
            self.disk.create_lacking(name, bytes, room..bytes)
        })?;
        // Durable now: the name and the size. Without them a commit could be written into a file a crash forgets.
        file.sync_data()?;
        self.disk.sync_dir()?;
        // Opened here, where a failure is the preparer's and not a commit's.
        let log = self.disk.open_log(&name)?;
        self.files
            .write()
            .insert((SegmentClass::Hot, id), Arc::clone(&file));
        self.prepared.lock().insert(id, Prepared { log, file });
        Ok(())
    }

    /// Forgets a segment that was prepared, and its open files. False if there is none.
    pub(crate) fn forget_prepared(&self, id: SegmentId) -> bool {
        let is_there = self.prepared.lock().remove(&id).is_some();
        if is_there {
            self.files.write().remove(&(SegmentClass::Hot, id));
        }
        is_there
    }

    fn remove_unbegun(&self, id: SegmentId, name: &str) -> Result<()> {
        let file = self.disk.open(name, false)?;
        let mut bytes = vec![0; file.len()?.min(SEGMENT_HEADER_BYTES as u64) as usize];
        file.read_at(&mut bytes, 0)?;
        if bytes.iter().any(|byte| *byte != 0) {
            let found = "one that has a header";
            return Err(self.damaged(SegmentClass::Hot, id, 0, "a segment that was never begun", found));
        }
        self.remove_file(SegmentClass::Hot, id)
    }

    /// Writes the header of a segment that `prepare` made and gives the file to its one writer, who writes upwards,
    /// never twice; the first sync makes the header durable together with the body.
    pub fn begin(
        &self,
        id: SegmentId,
        previous: SegmentId,
        cut: Lsn,
        cut_checksum: u32,
        first_lsn: Lsn,
    ) -> Result<Arc<dyn DiskFile>> {
        let prepared = self.prepared.lock().remove(&id);
        invariant!(
            prepared.is_some(),
            "D10: segment {id} is prepared once before it is begun"
        );
        let Prepared { log, file } = if let Some(prepared) = prepared {
            prepared
        } else {
            let file = self.file(SegmentClass::Hot, id)?;
            Prepared {
                log: Arc::clone(&file),
                file,
            }
        };
        let header = SegmentHeader {
            segment_bytes: self.geometry.hot_segment_bytes,
            chunk_bytes: self.geometry.chunk_bytes,
            previous,
            cut,
            cut_checksum,
            first_lsn,
            ..self.plain_header(SegmentClass::Hot, id)
        };
        let hash = Arc::new(Mutex::new(HashState::default()));
        let unsealed = Unsealed {
            file,
            hash: Arc::clone(&hash),
        };
        self.unsealed.lock().insert(id, unsealed);
        let writer = Arc::new(HashingFile { file: log, hash });
        writer.write_at(&header.encode(), 0)?;
        // Durable now: the header. Without it the manifest would vouch for a segment that cannot be read.
        writer.sync_data()?;
        // From here on a segment that is missing, empty or without header is damage and not one begun in vain: the log
        // acknowledges nothing in it before this.
        self.manifest.append(ManifestRecord::Begun {
            class: SegmentClass::Hot,
            id,
        })?;
        Ok(writer)
    }

    /// Writes the header of a hot segment of an earlier life again, as it stands there, because its sync may have failed (rule D34).
    /// The next sync of the file makes it durable.
    pub fn write_header_again(&self, id: SegmentId) -> Result<()> {
        let Some(header) = self.header(SegmentClass::Hot, id)? else {
            return Err(self.damaged(
                SegmentClass::Hot,
                id,
                0,
                "the header that stood there a moment ago",
                "zeros",
            ));
        };
        self.file(SegmentClass::Hot, id)?.write_at(&header.encode(), 0)
    }

    /// Header of a segment that continues no other one.
    pub(crate) fn plain_header(&self, class: SegmentClass, id: SegmentId) -> SegmentHeader {
        SegmentHeader {
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
        }
    }

    /// Seals a hot segment whose body up to `end` is durable: footer, then the manifest (rule F8).
    pub fn seal(&self, id: SegmentId, end: Lsn) -> Result<()> {
        stop_point!("segment.before_seal");
        let footer_at = self.geometry.hot_segment_bytes - FOOTER_BYTES as u64;
        let unsealed = self.unsealed.lock().remove(&id);
        let (file, hash) = if let Some(Unsealed { file, hash }) = unsealed {
            (file, hash.lock().finish(footer_at))
        } else {
            let file = self.file(SegmentClass::Hot, id)?;
            let hash = hash_of(&*file, footer_at)?;
            (file, hash)
        };
        file.write_at(&SegmentFooter { id, hash, end }.encode(), footer_at)?;
        // Durable now: the footer. Without it the manifest would vouch for a segment that does not say the same.
        file.sync_data()?;
        self.manifest.append(ManifestRecord::Sealed(SealedSegment {
            class: SegmentClass::Hot,
            id,
            hash,
            end,
        }))?;
        stop_point!("segment.after_seal");
        Ok(())
    }

    /// The header of a segment; `None` if it was prepared and never begun. Refuses a header of another database.
    pub fn header(&self, class: SegmentClass, id: SegmentId) -> Result<Option<SegmentHeader>> {
        self.header_in(class, id, &*self.file(class, id)?)
    }

    /// The same, from this file of the segment.
    pub(crate) fn header_in(
        &self,
        class: SegmentClass,
        id: SegmentId,
        file: &dyn DiskFile,
    ) -> Result<Option<SegmentHeader>> {
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
        if file.len()? < SEGMENT_HEADER_BYTES as u64 {
            return Err(self.damaged(class, id, 0, "a segment header", "a shorter file"));
        }
        file.read_at(&mut bytes, 0)?;
        if self.sealed(class, id).is_none() && bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = SegmentHeader::decode(&bytes, file.name())?;
        self.check_header(class, id, &header)?;
        Ok(Some(header))
    }

    /// Checks the headers of all segments of a class that the manifest calls begun.
    pub(crate) fn check_begun(&self, class: SegmentClass) -> Result<()> {
        for id in self.begun(class) {
            if self.header(class, id)?.is_none() {
                return Err(self.damaged(class, id, 0, "the mark of a PBXT segment", "zeros"));
            }
        }
        Ok(())
    }

    pub(crate) fn check_header(
        &self,
        class: SegmentClass,
        id: SegmentId,
        header: &SegmentHeader,
    ) -> Result<()> {
        if header.uuid != self.uuid {
            return Err(self.damaged(
                class,
                id,
                16,
                "a segment of this database",
                "one of another database",
            ));
        }
        if header.id != id || header.class != class {
            let found = segment_name(header.class, header.id);
            return Err(self.damaged(class, id, 32, "the segment its name says", &format!("'{found}'")));
        }
        let first = u64::from(id.raw()) * self.geometry.hot_segment_bytes;
        let sizes = (header.segment_bytes, header.chunk_bytes, header.first_lsn.raw());
        if class == SegmentClass::Hot
            && sizes != (self.geometry.hot_segment_bytes, self.geometry.chunk_bytes, first)
        {
            return Err(self.damaged(class, id, 40, "the sizes of this database", "other sizes"));
        }
        Ok(())
    }

    /// Compares a sealed segment with its hash in the manifest. Reads all of it.
    pub fn verify_sealed(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        if self.sealed(class, id).is_none() {
            return Ok(());
        }
        let Some(mut walk) = self.sealed_walk(class, id, self.file(class, id)?)? else {
            return Ok(());
        };
        while walk.step(VERIFIED_AT_ONCE)?.is_some() {}
        Ok(())
    }

    /// The same, some of it at a time and from this file of the segment; none if the manifest has no word that it is sealed.
    pub fn sealed_walk(
        &self,
        class: SegmentClass,
        id: SegmentId,
        file: Arc<dyn DiskFile>,
    ) -> Result<Option<SealedWalk>> {
        let sealed = self.sealed(class, id);
        sealed
            .map(|sealed| SealedWalk::new(file, self.name(class, id), sealed))
            .transpose()
    }

    /// An existing segment file; kept open.
    pub fn file(&self, class: SegmentClass, id: SegmentId) -> Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.files.read().get(&(class, id)) {
            return Ok(Arc::clone(file));
        }
        let mut files = self.files.write();
        if let Some(file) = files.get(&(class, id)) {
            return Ok(Arc::clone(file));
        }
        if files.len() >= OPEN_FILES_MAX {
            files.retain(|_, file| Arc::strong_count(file) > 1);
        }
        let file = self.disk.open(&segment_name(class, id), !self.read_only)?;
        files.insert((class, id), Arc::clone(&file));
        Ok(file)
    }

    /// Removes a file, and then its open handle: whoever opens it in between is not left with a handle that keeps its room.
    pub(crate) fn remove_file(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        self.disk.remove(&segment_name(class, id))?;
        self.found.forget(class, id);
        self.files.write().remove(&(class, id));
        Ok(())
    }

    /// Creates the next segment of a class that grows by appending (blobs). File, header, name and the manifest's word
    /// on it are durable on return.
    pub(crate) fn create_growing(&self, class: SegmentClass) -> Result<(SegmentId, Arc<dyn DiskFile>)> {
        let after_files = self.list(class)?.last().map_or(0, |id| id.raw()) + 1;
        let mut next = after_files.max(self.manifest.next_id(class).raw());
        let (id, file) = self.make_next(class, || {
            next += 1;
            SegmentId::new(next - 1)
        })?;
        let begun = self.begin_growing(class, id, &*file);
        if begun.as_ref().is_err_and(is_as_before) {
            // F10: nothing refers to it, and every further attempt would leave another one. After any other failure the
            // manifest may name it, so it stays.
            let _ = self.remove_file(class, id);
        }
        begun?;
        self.files.write().insert((class, id), Arc::clone(&file));
        Ok((id, file))
    }

    fn begin_growing(&self, class: SegmentClass, id: SegmentId, file: &dyn DiskFile) -> Result<()> {
        file.write_at(&self.plain_header(class, id).encode(), 0)?;
        // Durable now: the file. Without it the manifest would vouch for a segment a crash forgets.
        file.sync_data()?;
        self.disk.sync_dir()?;
        self.manifest.append(ManifestRecord::Begun { class, id })
    }

    /// Removes a segment file for good.
    pub fn drop_segment(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        self.manifest.append(ManifestRecord::Dropped { class, id })?;
        if class == SegmentClass::Hot {
            self.unsealed.lock().remove(&id);
            self.prepared.lock().remove(&id);
        }
        self.remove_file(class, id)?;
        self.disk.sync_dir()
    }

    /// Notes an orderly close: the next opening trusts that the log ends at `end`.
    pub fn note_closed(&self, end: Lsn) -> Result<()> {
        self.manifest.append(ManifestRecord::Closed { end })
    }

    /// Bytes that the segment files take on the medium, by class and rising id. A file that goes meanwhile is left out.
    pub fn sizes(&self) -> Result<Vec<(SegmentClass, SegmentId, u64)>> {
        let mut sizes = Vec::new();
        for (class, id) in self
            .disk
            .list()?
            .iter()
            .filter_map(|name| parse_segment_name(name))
            .filter(|(class, id)| self.found.is_ours(*class, *id))
        {
            match self.disk.room(&segment_name(class, id)) {
                Ok(bytes) => sizes.push((class, id, bytes)),
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        sizes.sort_unstable();
        Ok(sizes)
    }

    /// Bytes of the manifest's files.
    pub fn manifest_bytes(&self) -> Result<u64> {
        self.manifest.bytes()
    }

    pub(crate) fn damaged(
        &self,
        class: SegmentClass,
        id: SegmentId,
        offset: u64,
        expected: &str,
        found: &str,
    ) -> Error {
        Error::Corrupt {
            file: self.name(class, id),
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }
}
