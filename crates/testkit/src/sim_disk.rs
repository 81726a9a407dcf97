//! SimDisk: a disk in memory that behaves as badly as the medium is allowed to, at moments a test chooses.
//!
//! Why it exists: docs/durability.md says what a medium may do (M1 to M6); this is that contract turned into code, at its
//! least helpful.
//! Fault model:
//! - a power cut keeps, of what was not synced, any subset of 512-byte sectors, drawn for each file by itself; of several
//!   writes to one sector those up to some moment; any length between the durable and the last one;
//! - names come and go durably with `sync_dir` only; before it, each name's changes are kept up to some moment;
//! - a sync that failed leaves its writes uncertain for ever; a failed write leaves half of its bytes;
//! - the medium may be full, bits may flip, sectors may become unreadable, bytes may land where others stood, a read may fail once;
//! - a slow medium takes time: it moves the clock that it was given;
//! - a planted `SkipSync` makes syncs do nothing, to prove that a test catches a forgotten one.
//!
//! Rules held: P1 no byte range of a segment file (`*.seg`) is written twice; a second write panics, unless it is one of the two
//! that `SimFile::broken_by` knows. A life of the database begins when its lock is taken.
//! Latches: one per disk, never held across anything but memory. Operations (creations, removals, renames, writes and
//! syncs) are counted; `cut_power_at` ends the world before the operation with that number, so a sweep meets them all. `footprint`
//! is a hash of all of them with their bytes: two runs of one seed have the same.

use crate::crash::{self, DirectoryChange};
use crate::faults::{Fault, Faults, Outcome};
use crate::rng::Rng;
use crate::sim_clock::SimClock;
use crate::sim_file::{SECTOR, SimFile};
use parking_lot::Mutex;
use pbxt_base::checksum::xxh3;
use pbxt_base::{Error, Result};
use pbxt_io::{Disk, DiskFile, DiskLock, GIVE_BACK_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
struct State {
    files: BTreeMap<u64, SimFile>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    changes: Vec<DirectoryChange>,
    locks: BTreeSet<String>,
    faults: Faults,
    next_file: u64,
    operations: u64,
    syncs: u64,
    listings: u64,
    bytes_written: u64,
    sector_writes: u64,
    cut_at: Option<u64>,
    is_off: bool,
    free_bytes: Option<u64>,
    footprint: u64,
    /// A clock, and by how many milliseconds each operation moves it.
    slowness: Option<(Arc<SimClock>, u64)>,
}

/// A simulated disk; clones are handles of the same one.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk as it is found after a power cut now. This one is not changed; its open files stay with it.
    pub fn crash(&self, seed: u64) -> Self {
        let before = self.state.lock().clone();
        let mut rng = Rng::new(seed);
        let names = crash::directory_after(&before.durable_names, &before.changes, &mut rng);
        let mut files = BTreeMap::new();
        for file in names.values() {
            if let Some(content) = before.files.get(file) {
                files.insert(*file, crash::file_after(content, &mut rng));
            }
        }
        let durable_names = names.clone();
        let next_file = before.next_file;
        let after = State {
            files,
            names,
            durable_names,
            next_file,
            footprint: before.footprint,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(after)),
        }
    }

    /// The disk as it is found after the process died and the machine went on: everything written is there.
    pub fn kill(&self) -> Self {
        let before = self.state.lock().clone();
        let after = State {
            locks: BTreeSet::new(),
            faults: Faults::default(),
            is_off: false,
            cut_at: None,
            ..before
        };
        Self {
            state: Arc::new(Mutex::new(after)),
        }
    }

    /// Plants a fault.
    pub fn plant(&self, fault: Fault) {
        self.state.lock().faults.plant(fault);
    }

    /// Bytes the medium has left; `None` for as many as anybody wants.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.state.lock().free_bytes = bytes;
    }

    /// Cuts the power before the operation with this number (the first one has number 0): it and all after it fail.
    pub fn cut_power_at(&self, operation: u64) {
        self.state.lock().cut_at = Some(operation);
    }

    /// True once the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Listings of the directory so far.
    pub fn listings(&self) -> u64 {
        self.state.lock().listings
    }

    /// Syncs of files and of the directory so far.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.state.lock().bytes_written
    }

    /// Writes of whole sectors, which a sync was to follow, so far.
    pub fn sector_writes(&self) -> u64 {
        self.state.lock().sector_writes
    }

    /// A hash of all operations so far, with names, places and bytes.
    pub fn footprint(&self) -> u64 {
        self.state.lock().footprint
    }

    /// From now on each operation takes so many milliseconds of this clock.
    pub fn slow_down(&self, clock: &Arc<SimClock>, millis: u64) {
        self.state.lock().slowness = Some((Arc::clone(clock), millis));
    }

    /// Whole content of a file, as a reader sees it.
    pub fn content(&self, name: &str) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        let file = state.file(name, "read")?;
        let mut bytes = vec![0; file.visible.len() as usize];
        file.visible.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Replaces the content of a file, or makes it; durable at once. For damage of every kind and for files of old.
    pub fn replace(&self, name: &str, content: &[u8]) {
        let mut state = self.state.lock();
        let mut file = SimFile::default();
        file.write(content, 0);
        file.sync();
        let number = state.new_file(name, file);
        state.durable_names.insert(name.to_owned(), number);
    }

    /// Flips one bit, on the medium and for readers.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u32) -> Result<()> {
        let mut state = self.state.lock();
        let file = state.file(name, "flip a bit in")?;
        for bytes in [&mut file.visible, &mut file.durable] {
            let mut byte = [0];
            if bytes.read(&mut byte, offset) {
                bytes.write(&[byte[0] ^ (1 << (bit % 8))], offset);
            }
        }
        Ok(())
    }

    /// Puts bytes over those of a file, on the medium and for readers: a write that was meant for another place. False if they are the
    /// same, or the file is shorter.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<bool> {
        let mut state = self.state.lock();
        let file = state.file(name, "write over")?;
        let mut before = vec![0; bytes.len()];
        if !file.visible.read(&mut before, offset) || before == bytes {
            return Ok(false);
        }
        for medium in [&mut file.visible, &mut file.durable] {
            if medium.read(&mut before, offset) {
                medium.write(bytes, offset);
            }
        }
        Ok(true)
    }

    /// Cuts a file off.
    pub fn truncate(&self, name: &str, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let file = state.file(name, "cut")?;
        file.unsynced.clear();
        file.visible.set_len(len);
        file.durable = file.visible.clone();
        Ok(())
    }

    /// Makes the sector at `offset` unreadable.
    pub fn make_unreadable(&self, name: &str, offset: u64) -> Result<()> {
        self.state
            .lock()
            .file(name, "break")?
            .unreadable
            .push(offset / SECTOR);
        Ok(())
    }
}

impl State {
    /// Counts an operation, or fails because the power is off.
    fn operate(&mut self, name: &str, op: &'static str) -> Result<()> {
        if self.cut_at.is_some_and(|at| self.operations >= at) {
            self.is_off = true;
        }
        self.powered(name, op)?;
        self.operations += 1;
        self.mark(name.as_bytes());
        self.mark(op.as_bytes());
        if let Some((clock, millis)) = &self.slowness {
            clock.advance_millis(*millis);
        }
        Ok(())
    }

    /// Adds to the footprint.
    fn mark(&mut self, bytes: &[u8]) {
        self.footprint = (self.footprint.rotate_left(7) ^ xxh3(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn powered(&self, name: &str, op: &'static str) -> Result<()> {
        if self.is_off {
            Err(failure(name, op, "the power is off"))
        } else {
            Ok(())
        }
    }

    fn file(&mut self, name: &str, op: &'static str) -> Result<&mut SimFile> {
        let number = self.names.get(name).copied();
        let file = number.and_then(|number| self.files.get_mut(&number));
        file.ok_or_else(|| {
            let source = io::Error::from(io::ErrorKind::NotFound);
            Error::Io {
                file: name.to_owned(),
                op,
                source,
            }
        })
    }

    fn new_file(&mut self, name: &str, file: SimFile) -> u64 {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, file);
        self.names.insert(name.to_owned(), number);
        number
    }

    fn take_space(&mut self, name: &str, bytes: u64) -> Result<()> {
        match self.free_bytes {
            Some(free) if free < bytes => Err(Error::NoSpace {
                what: format!("'{name}'"),
            }),
            Some(free) => {
                self.free_bytes = Some(free - bytes);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: DirectoryChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn give_back_space(&mut self, number: u64) {
        let bytes = self.files.get(&number).map_or(0, |file| {
            file.visible.len().max(file.preallocated) - file.given_back
        });
        if let Some(free) = &mut self.free_bytes {
            *free += bytes;
        }
    }
}

fn failure(name: &str, op: &'static str, why: &str) -> Error {
    Error::Io {
        file: name.to_owned(),
        op,
        source: io::Error::other(why.to_owned()),
    }
}

impl Disk for SimDisk {
    fn location(&self) -> String {
        "simulated disk".into()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        self.create_lacking(name, preallocate, preallocate..preallocate)
    }

    fn create_lacking(&self, name: &str, bytes: u64, lacking: Range<u64>) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.operate(name, "create")?;
        if state.names.contains_key(name) {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::Io {
                file: name.to_owned(),
                op: "create",
                source,
            });
        }
        state.take_space(name, bytes - (lacking.end - lacking.start))?;
        let number = state.new_file(name, SimFile::lacking(bytes, lacking));
        state
            .changes
            .push(DirectoryChange::Create(name.to_owned(), number));
        Ok(Arc::new(Handle {
            state: Arc::clone(&self.state),
            name: name.to_owned(),
            number,
            writable: true,
        }))
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.powered(name, "open")?;
        state.file(name, "open")?;
        let number = state.names[name];
        Ok(Arc::new(Handle {
            state: Arc::clone(&self.state),
            name: name.to_owned(),
            number,
            writable,
        }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        state.operate(name, "remove")?;
        state.file(name, "remove")?;
        let number = state.names[name];
        state.give_back_space(number);
        state.change(DirectoryChange::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = self.state.lock();
        state.operate(from, "rename")?;
        state.file(from, "rename")?;
        state.change(DirectoryChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn room(&self, name: &str) -> Result<u64> {
        let mut state = self.state.lock();
        state.powered(name, "ask for the room of")?;
        let file = state.file(name, "ask for the room of")?;
        Ok(file.visible.len() - file.given_back)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let state = self.state.lock();
        state.powered(name, "look for")?;
        Ok(state.names.contains_key(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut state = self.state.lock();
        state.listings += 1;
        state.powered("simulated disk", "list")?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.operate("simulated disk", "sync")?;
        state.syncs += 1;
        if state.faults.of_directory_sync() == Outcome::Done {
            state.durable_names = state.names.clone();
            state.changes.clear();
        }
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        let mut state = self.state.lock();
        state.powered(name, "lock")?;
        if !state.locks.insert(name.to_owned()) {
            return Err(Error::Locked {
                path: name.to_owned(),
                holder: format!("process {}", std::process::id()),
            });
        }
        state.files.values_mut().for_each(SimFile::begin_life);
        Ok(Box::new(HeldLock {
            state: Arc::clone(&self.state),
            name: name.to_owned(),
        }))
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(self.state.lock().free_bytes.unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct HeldLock {
    state: Arc<Mutex<State>>,
    name: String,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.state.lock().locks.remove(&self.name);
    }
}

#[derive(Debug)]
struct Handle {
    state: Arc<Mutex<State>>,
    name: String,
    number: u64,
    writable: bool,
}

impl DiskFile for Handle {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        let state = self.state.lock();
        state.powered(&self.name, "ask for the length of")?;
        Ok(state.files.get(&self.number).map_or(0, |file| file.visible.len()))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.powered(&self.name, "read")?;
        if state.faults.of_read(&self.name) == Outcome::Failed {
            return Err(failure(&self.name, "read", "input/output error"));
        }
        let range = offset..offset + buf.len() as u64;
        let file = state
            .files
            .get(&self.number)
            .ok_or_else(|| failure(&self.name, "read", "no such file"))?;
        if file.unreadable_in(&range).is_some() {
            return Err(failure(&self.name, "read", "unreadable sector"));
        }
        if file.visible.read(buf, offset) {
            return Ok(());
        }
        let source = io::Error::from(io::ErrorKind::UnexpectedEof);
        Err(Error::Io {
            file: self.name.clone(),
            op: "read",
            source,
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.operate(&self.name, "write")?;
        if !self.writable {
            return Err(Error::ReadOnlyMedia {
                path: self.name.clone(),
            });
        }
        let range = offset..offset + buf.len() as u64;
        let file = state
            .files
            .get(&self.number)
            .ok_or_else(|| failure(&self.name, "write", "no such file"))?;
        if let Some(twice) = file
            .broken_by(buf, offset)
            .filter(|_| self.name.strip_suffix(".seg").is_some())
        {
            drop(state);
            panic!("P1: bytes {twice:?} of '{}' are written twice", self.name);
        }
        if file.lacks(&range) > 0 {
            drop(state);
            panic!(
                "D38: bytes {range:?} of '{}' are written where no room is",
                self.name
            );
        }
        let growth = range
            .end
            .saturating_sub(file.visible.len().max(file.preallocated));
        state.take_space(&self.name, growth)?;
        let failed = state.faults.of_write(&self.name) == Outcome::Failed;
        let written = if failed { &buf[..buf.len() / 2] } else { buf };
        state.bytes_written += written.len() as u64;
        state.mark(&offset.to_le_bytes());
        state.mark(written);
        if let Some(file) = state.files.get_mut(&self.number) {
            file.write(written, offset);
        }
        if failed {
            Err(failure(&self.name, "write", "input/output error"))
        } else {
            Ok(())
        }
    }

    fn write_sectors_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        assert!(
            offset.is_multiple_of(SECTOR) && (buf.len() as u64).is_multiple_of(SECTOR),
            "D30: {} bytes at {offset} of '{}' are not whole sectors",
            buf.len(),
            self.name
        );
        self.state.lock().sector_writes += 1;
        self.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.operate(&self.name, "sync")?;
        state.syncs += 1;
        let outcome = state.faults.of_sync(&self.name);
        let file = state
            .files
            .get_mut(&self.number)
            .ok_or_else(|| failure(&self.name, "sync", "no such file"))?;
        match outcome {
            Outcome::Done => file.sync(),
            Outcome::Skipped => {}
            Outcome::Failed => {
                file.fail_sync();
                return Err(failure(&self.name, "sync", "input/output error"));
            }
        }
        Ok(())
    }

    fn take_room(&self, range: Range<u64>) -> Result<()> {
        let mut state = self.state.lock();
        state.operate(&self.name, "set room aside for")?;
        let bytes = state.files.get(&self.number).map_or(0, |file| file.lacks(&range));
        state.take_space(&self.name, bytes)?;
        if let Some(file) = state.files.get_mut(&self.number) {
            file.take_room(&range);
        }
        Ok(())
    }

    fn give_back(&self, range: Range<u64>) -> Result<bool> {
        let mut state = self.state.lock();
        state.operate(&self.name, "give back room of")?;
        let is_whole = |border: u64| border.is_multiple_of(GIVE_BACK_BYTES);
        let file = state
            .files
            .get_mut(&self.number)
            .ok_or_else(|| failure(&self.name, "give back room of", "no such file"))?;
        if !is_whole(range.start) || !is_whole(range.end) || range.end > file.visible.len() {
            drop(state);
            panic!("S52: bytes {range:?} of '{}' are given back", self.name);
        }
        let bytes = file.give_back(range);
        if let Some(free) = &mut state.free_bytes {
            *free += bytes;
        }
        Ok(true)
    }
}
