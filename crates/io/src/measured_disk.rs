//! `MeasuredDisk`: a disk that tells instruments what is done to its files.
//!
//! Why it exists: it stands before another disk only where somebody keeps accounts, so that nobody else pays for it: no load, no branch
//! and no allocation (rule PS1 of docs/instruments.md).
//! What is told: opening, making and removing files, reading, writing, syncing and giving back room, syncs of the directory. Questions
//! (length, existence, lists, free space), the lock file and renames, which this engine does not make, are not.
//! Rules: PS2 one call is one event, with the bytes that the caller wants to have read or written. PS3 a batch of reads is one event.
//! PS4 nothing is told of a file once it is removed: the removal waits for what is under way at it.
//! Latches and I/O: the list of files is latched for moments, when files are opened and removed; each file has a latch that is held
//! shared during its reads and writes, and exclusively during its removal.

use crate::disk::{Disk, DiskFile, DiskLock, ReadRequest};
use crate::instruments::{AtEnd, FileKind, FileWork, Instruments, Place};
use parking_lot::{Mutex, RwLock};
use pbxt_base::Result;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;

/// True once the file was removed (rule PS4). All handles of a file share one.
type IsGone = Arc<RwLock<bool>>;

/// See the module.
#[derive(Debug)]
pub struct MeasuredDisk {
    inner: Arc<dyn Disk>,
    instruments: Arc<dyn Instruments>,
    kind_of: fn(&str) -> FileKind,
    /// Files that were opened and not removed.
    files: Mutex<HashMap<String, IsGone>>,
    /// The directory itself, if somebody wants to hear of it.
    directory: Option<Measure>,
}

impl MeasuredDisk {
    /// Stands before `inner`. `kind_of` says of a file's name what it is for.
    pub fn new(
        inner: Arc<dyn Disk>,
        instruments: Arc<dyn Instruments>,
        kind_of: fn(&str) -> FileKind,
    ) -> Self {
        let mut disk = Self {
            inner,
            instruments,
            kind_of,
            files: Mutex::default(),
            directory: None,
        };
        let path = CString::new(disk.inner.location());
        let opened = disk.open_as(path.ok(), FileKind::Directory, false, || Ok(()));
        if let Ok(((), file @ 1..)) = opened {
            disk.directory = Some(disk.measure(file, IsGone::default()));
        }
        disk
    }

    fn path(&self, name: &str) -> Option<CString> {
        CString::new(format!("{}/{name}", self.inner.location())).ok()
    }

    /// Opens by `open` and tells of it; the instruments' number of the file besides.
    fn open_as<A>(
        &self,
        path: Option<CString>,
        kind: FileKind,
        is_new: bool,
        open: impl FnOnce() -> Result<A>,
    ) -> Result<(A, usize)> {
        let mut place = Place::default();
        let wanted = path.filter(|path| self.instruments.opening(&mut place, kind, path, is_new));
        let opened = open();
        // The path lives until here: the instruments may have kept its address.
        let file = match &wanted {
            Some(_) => self.instruments.opened(&mut place, opened.is_ok()),
            None => 0,
        };
        opened.map(|opened| (opened, file))
    }

    fn measure(&self, file: usize, is_gone: IsGone) -> Measure {
        Measure {
            instruments: Arc::clone(&self.instruments),
            file,
            is_gone,
        }
    }

    fn open_file(
        &self,
        name: &str,
        is_new: bool,
        open: impl FnOnce() -> Result<Arc<dyn DiskFile>>,
    ) -> Result<Arc<dyn DiskFile>> {
        let (inner, file) = self.open_as(self.path(name), (self.kind_of)(name), is_new, open)?;
        if file == 0 {
            return Ok(inner);
        }
        let is_gone = Arc::clone(self.files.lock().entry(name.to_owned()).or_default());
        let measure = self.measure(file, is_gone);
        Ok(Arc::new(MeasuredFile { inner, measure }))
    }
}

impl Disk for MeasuredDisk {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        self.open_file(name, true, || self.inner.create(name, preallocate))
    }

    fn create_lacking(&self, name: &str, bytes: u64, lacking: Range<u64>) -> Result<Arc<dyn DiskFile>> {
        self.open_file(name, true, || self.inner.create_lacking(name, bytes, lacking))
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        self.open_file(name, false, || self.inner.open(name, writable))
    }

    fn open_blocks(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_file(name, false, || self.inner.open_blocks(name))
    }

    fn open_past_cache(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_file(name, false, || self.inner.open_past_cache(name))
    }

    fn open_log(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_file(name, false, || self.inner.open_log(name))
    }

    fn log_writes(&self) -> String {
        self.inner.log_writes()
    }

    fn block_reads(&self) -> String {
        self.inner.block_reads()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let is_gone = self.files.lock().remove(name).unwrap_or_default();
        // Reads and writes that are under way end first; those that come are not told (PS4).
        let mut gone = is_gone.write();
        let mut place = Place::default();
        let path = self.path(name);
        let wanted = path.filter(|path| self.instruments.removing(&mut place, (self.kind_of)(name), path));
        let result = self.inner.remove(name);
        if wanted.is_some() {
            self.instruments.removed(&mut place, result.is_ok());
        }
        if result.is_ok() {
            *gone = true;
        } else {
            self.files.lock().insert(name.to_owned(), Arc::clone(&is_gone));
        }
        result
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.inner.size(name)
    }

    fn room(&self, name: &str) -> Result<u64> {
        self.inner.room(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync_dir(&self) -> Result<()> {
        match &self.directory {
            Some(directory) => directory.tell(FileWork::Sync, 0, || self.inner.sync_dir()),
            None => self.inner.sync_dir(),
        }
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.inner.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }
}

/// One handle of a file somebody wants to hear of. That it closes is told when it is dropped.
#[derive(Debug)]
struct Measure {
    instruments: Arc<dyn Instruments>,
    /// The instruments' number of the file.
    file: usize,
    is_gone: IsGone,
}

impl Measure {
    /// Does the work and tells of it.
    fn tell<A>(&self, work: FileWork, bytes: usize, io: impl FnOnce() -> Result<A>) -> Result<A> {
        let gone = self.is_gone.read();
        let mut place = Place::default();
        if *gone || !self.instruments.begin(&mut place, self.file, work, bytes) {
            drop(gone);
            return io();
        }
        let done = Cell::new(None);
        let end = AtEnd(|| {
            self.instruments
                .end(&mut place, done.get().unwrap_or(0), done.get().is_some());
        });
        let result = io();
        if result.is_ok() {
            done.set(Some(bytes));
        }
        drop(end);
        result
    }
}

impl Drop for Measure {
    fn drop(&mut self) {
        // There is no outcome: closing a descriptor has none that anybody could act on.
        let _ = self.tell(FileWork::Close, 0, || Ok(()));
    }
}

/// A file somebody wants to hear of.
#[derive(Debug)]
struct MeasuredFile {
    inner: Arc<dyn DiskFile>,
    measure: Measure,
}

impl DiskFile for MeasuredFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.inner.is_empty()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let bytes = buf.len();
        self.measure
            .tell(FileWork::Read, bytes, || self.inner.read_at(buf, offset))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        // One event: the batch is handed over, and awaited, as a whole (PS3).
        let bytes = requests.iter().map(|request| request.buf.len()).sum();
        self.measure
            .tell(FileWork::Read, bytes, || self.inner.read_many(requests))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.measure
            .tell(FileWork::Write, buf.len(), || self.inner.write_at(buf, offset))
    }

    fn write_sectors_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.measure.tell(FileWork::Write, buf.len(), || {
            self.inner.write_sectors_at(buf, offset)
        })
    }

    fn sync_data(&self) -> Result<()> {
        self.measure.tell(FileWork::Sync, 0, || self.inner.sync_data())
    }

    fn begin_write_back(&self, range: Range<u64>) {
        // It waits for nothing, so there is nothing to be measured.
        self.inner.begin_write_back(range);
    }

    fn take_room(&self, range: Range<u64>) -> Result<()> {
        self.inner.take_room(range)
    }

    fn give_back(&self, range: Range<u64>) -> Result<bool> {
        self.measure
            .tell(FileWork::GiveBack, 0, || self.inner.give_back(range))
    }
}

#[cfg(test)]
#[path = "measured_disk_tests.rs"]
mod measured_disk_tests;
