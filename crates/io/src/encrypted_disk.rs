//! `EncryptedDisk`: a disk whose files are encrypted, each with a key of its own.
//!
//! Why it exists: it stands before another disk, as `MeasuredDisk` does, so that no floor above knows of encryption, and a database
//! without any has no such disk.
//! Format: docs/encryption.md#format.
//! Rules: EN2 a file's header decides whether it is encrypted; EN3 new files are if a key to write with was named, with the newest
//! version of that key; EN10 every key is looked at before anything is done with the directory; EN11 want of a key is never taken for
//! damage; EN12 the lock file and files of others are left alone, and without anything encrypted all files are; EN18 encryption of new
//! files can begin at any time, and does not end.
//! Latches and I/O: `files` is latched for moments; headers are read, and keys are asked for, outside of it. `newest` is held while the
//! key source is asked for the newest version, when a file is made.
//! After a crash: a file whose header is not there was never synced: it is found as a plain file of zeros, or as an orphan.

use crate::disk::{Disk, DiskFile, DiskLock};
use crate::encrypted_file::{EXTRA_BYTES, EncryptedFile, FileState, Growth};
use crate::encryption_header::{EncryptionHeader, HEADER_BYTES};
use crate::file_cipher::{FileCipher, SALT_BYTES};
use crate::keys::{KEY_BYTES_MIN, KeySource, SecretKey};
use crate::parallel::fill_randomly;
use parking_lot::Mutex;
use pbxt_base::limits::SECTOR_BYTES;
use pbxt_base::{Error, Result};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Debug)]
pub struct EncryptedDisk {
    inner: Arc<dyn Disk>,
    keys: Arc<dyn KeySource>,
    /// Number of the key for new files, if there may be encrypted ones.
    key_id: Option<u32>,
    /// Set from when on new files are encrypted.
    writing: OnceLock<Writing>,
    /// No file was encrypted, so none is looked at before new ones are (EN12).
    stands_by: bool,
    /// What is known of files: those that were met and not removed. `None` for a plain one.
    files: Mutex<HashMap<String, Option<Arc<FileState>>>>,
}

/// What new files are encrypted with.
#[derive(Debug)]
struct Writing {
    key_id: u32,
    newest: Mutex<(u32, SecretKey)>,
}

impl EncryptedDisk {
    /// Stands before `inner`. New files are encrypted with the key of number `write_with`, whose newest version must be there; without
    /// a number they are not encrypted. Files that are there are read with the keys they name.
    pub fn new(inner: Arc<dyn Disk>, keys: Arc<dyn KeySource>, write_with: Option<u32>) -> Result<Self> {
        let disk = Self {
            inner,
            keys,
            key_id: write_with,
            writing: OnceLock::new(),
            stands_by: false,
            files: Mutex::default(),
        };
        if write_with.is_some() {
            disk.encrypt_new_files()?;
        }
        Ok(disk)
    }

    /// The same, with the number of the key that new files get once `encrypt_new_files` is called.
    #[must_use]
    pub fn with_key(self, key_id: u32) -> Self {
        Self {
            key_id: Some(key_id),
            ..self
        }
    }

    /// The same where no file is encrypted, as `check_keys` has found: it hands everything on until new files are.
    #[must_use]
    pub fn standing_by(self) -> Self {
        Self {
            stands_by: true,
            ..self
        }
    }

    /// The same before another disk, which has the same files.
    pub fn over(self, inner: Arc<dyn Disk>) -> Self {
        Self { inner, ..self }
    }

    /// Looks at the first bytes of all files that `is_ours` wants, by their names, and at the keys of those that are encrypted. The
    /// error is the first key that is missing or wrong (EN10). Answers how many files are encrypted. Nothing of it is remembered:
    /// whoever has the directory open now may still replace files.
    pub fn check_keys(&self, is_ours: impl Fn(&str) -> bool) -> Result<usize> {
        let mut encrypted = 0;
        for name in self.inner.list()?.iter().filter(|name| is_ours(name)) {
            match self.inner.open(name, false).and_then(|file| self.read(&*file)) {
                Ok(state) => encrypted += usize::from(state.is_some()),
                // It has gone meanwhile, or its header is damaged, which concerns who opens it, if anybody does.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(encrypted)
    }

    /// True if files may be encrypted.
    fn looks(&self) -> bool {
        !self.stands_by || self.writing.get().is_some()
    }

    /// What is known of a file, or its header says. `None` if it is not encrypted.
    fn known(&self, name: &str, file: &dyn DiskFile) -> Result<Option<Arc<FileState>>> {
        if let Some(known) = self.files.lock().get(name) {
            return Ok(known.clone());
        }
        let state = self.read(file)?;
        // Whoever was first has made the latch that all handles share.
        let mut files = self.files.lock();
        Ok(files.entry(name.to_owned()).or_insert(state).clone())
    }

    /// What the header of a file says. `None` if it has none.
    fn read(&self, file: &dyn DiskFile) -> Result<Option<Arc<FileState>>> {
        let len = file.len()?;
        if len < SECTOR_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; SECTOR_BYTES];
        file.read_at(&mut bytes, 0)?;
        let Some(header) = EncryptionHeader::decode(&bytes, file.name())? else {
            return Ok(None);
        };
        let cipher = self.cipher_of(&header, file.name())?;
        let key = (header.key_id, header.key_version);
        Ok(Some(FileState::new(cipher, key, len.saturating_sub(EXTRA_BYTES))))
    }

    fn cipher_of(&self, header: &EncryptionHeader, file: &str) -> Result<FileCipher> {
        let refusal = |why: &str| header.refusal(file, format!("{why}: {}", self.keys.remedy()));
        let key = self.keys.key(header.key_id, header.key_version);
        let key = key.ok_or_else(|| refusal("there is no such key"))?;
        let (cipher, check) = FileCipher::derive(&key, &header.salt);
        if check == header.check {
            Ok(cipher)
        } else {
            Err(refusal("the key of that number and version is another one now"))
        }
    }

    /// Header and state of a new file.
    fn begin(&self, writing: &Writing, known_len: u64) -> Result<(EncryptionHeader, Arc<FileState>)> {
        let mut salt = [0; SALT_BYTES];
        fill_randomly(&mut salt)?;
        let (key_version, key) = writing.newest_of(&*self.keys);
        let (cipher, check) = FileCipher::derive(&key, &salt);
        let header = EncryptionHeader {
            key_id: writing.key_id,
            key_version,
            salt,
            check,
        };
        let key = (header.key_id, header.key_version);
        Ok((header, FileState::new(cipher, key, known_len)))
    }

    fn create_encrypted(
        &self,
        writing: &Writing,
        name: &str,
        preallocate: u64,
        lacking: Range<u64>,
    ) -> Result<Arc<dyn DiskFile>> {
        let (header, state) = self.begin(writing, preallocate)?;
        let mut first = header.encode();
        let file = if preallocate == 0 {
            // An empty file has its header and what follows the content too (EN9).
            first.resize(EXTRA_BYTES as usize, 0);
            self.inner.create(name, 0)?
        } else {
            let lacking = HEADER_BYTES + lacking.start..HEADER_BYTES + lacking.end;
            self.inner
                .create_lacking(name, preallocate + EXTRA_BYTES, lacking)?
        };
        if let Err(error) = file.write_at(&first, 0) {
            drop(file);
            // Of no use to anybody; if it cannot go either, start-up removes it as an orphan.
            let _ = self.inner.remove(name);
            return Err(error);
        }
        self.files
            .lock()
            .insert(name.to_owned(), Some(Arc::clone(&state)));
        Ok(Arc::new(EncryptedFile::new(file, state, Growth::Possible)))
    }

    fn wrap(&self, name: &str, file: Arc<dyn DiskFile>, growth: Growth) -> Result<Arc<dyn DiskFile>> {
        if !self.looks() {
            return Ok(file);
        }
        Ok(match self.known(name, &*file)? {
            None => file,
            Some(state) => Arc::new(EncryptedFile::new(file, state, growth)),
        })
    }

    /// By how much a file is longer than its content.
    fn extra(&self, name: &str) -> Result<u64> {
        if !self.looks() {
            return Ok(0);
        }
        if let Some(known) = self.files.lock().get(name) {
            return Ok(if known.is_some() { EXTRA_BYTES } else { 0 });
        }
        let file = self.inner.open(name, false)?;
        match self.known(name, &*file) {
            Ok(known) => Ok(known.map_or(0, |_| EXTRA_BYTES)),
            // It is encrypted; that its header is damaged concerns who reads it.
            Err(Error::Corrupt { .. }) => Ok(EXTRA_BYTES),
            Err(error) => Err(error),
        }
    }
}

impl Writing {
    /// With the newest version of a key, which must be there; `path` is the directory.
    fn with(key_id: u32, keys: &dyn KeySource, path: String) -> Result<Self> {
        let Some(found) = newest_of(keys, key_id) else {
            let remedy = keys.remedy();
            let why = format!("there is no such key, or it has less than {KEY_BYTES_MIN} bytes: {remedy}");
            return Err(Error::NoKey { path, key_id, why });
        };
        let newest = Mutex::new(found);
        Ok(Self { key_id, newest })
    }

    /// The newest version and its key; those known so far if the source does not answer any more (EN3).
    fn newest_of(&self, keys: &dyn KeySource) -> (u32, SecretKey) {
        let mut newest = self.newest.lock();
        let version = keys.latest_version(self.key_id);
        if version.is_some_and(|version| version != newest.0)
            && let Some(found) = newest_of(keys, self.key_id)
        {
            *newest = found;
        }
        newest.clone()
    }
}

/// The newest version of a key that can be used, and the key.
fn newest_of(keys: &dyn KeySource, key_id: u32) -> Option<(u32, SecretKey)> {
    let version = keys.latest_version(key_id)?;
    let key = keys.key(key_id, version)?;
    (key.bytes().len() >= KEY_BYTES_MIN).then_some((version, key))
}

impl Disk for EncryptedDisk {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        if let Some(writing) = self.writing.get() {
            return self.create_encrypted(writing, name, preallocate, preallocate..preallocate);
        }
        let file = self.inner.create(name, preallocate)?;
        self.files.lock().insert(name.to_owned(), None);
        Ok(file)
    }

    fn create_lacking(&self, name: &str, bytes: u64, lacking: Range<u64>) -> Result<Arc<dyn DiskFile>> {
        if let Some(writing) = self.writing.get() {
            return self.create_encrypted(writing, name, bytes, lacking);
        }
        let file = self.inner.create_lacking(name, bytes, lacking)?;
        self.files.lock().insert(name.to_owned(), None);
        Ok(file)
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        self.wrap(name, self.inner.open(name, writable)?, Growth::Possible)
    }

    fn open_blocks(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.wrap(name, self.inner.open_blocks(name)?, Growth::Over)
    }

    fn open_past_cache(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        let file = self.inner.open_past_cache(name)?;
        // What is remembered of a file hides damage of its header, and whoever opens it next has nothing else.
        let is_encrypted = self.read(&*file)?.is_some();
        if is_encrypted != self.known(name, &*file)?.is_some() {
            return Err(Error::Corrupt {
                file: file.name().to_owned(),
                offset: 0,
                expected: "the header of an encrypted file".into(),
                found: "other bytes".into(),
            });
        }
        self.wrap(name, file, Growth::Possible)
    }

    fn open_log(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.wrap(name, self.inner.open_log(name)?, Growth::Possible)
    }

    fn log_writes(&self) -> String {
        self.inner.log_writes()
    }

    fn block_reads(&self) -> String {
        self.inner.block_reads()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        self.files.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)?;
        let mut files = self.files.lock();
        let known = files.remove(from);
        files.remove(to);
        files.extend(known.map(|known| (to.to_owned(), known)));
        Ok(())
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn first_bytes(&self, name: &str, bytes: usize) -> Result<Vec<u8>> {
        self.inner.first_bytes(name, bytes)
    }

    fn size(&self, name: &str) -> Result<u64> {
        Ok(self.inner.size(name)?.saturating_sub(self.extra(name)?))
    }

    fn room(&self, name: &str) -> Result<u64> {
        Ok(self.inner.room(name)?.saturating_sub(self.extra(name)?))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync_dir(&self) -> Result<()> {
        self.inner.sync_dir()
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.inner.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn encrypts_new_files(&self) -> bool {
        self.writing.get().is_some()
    }

    fn is_as_new_files(&self, name: &str) -> Result<bool> {
        if !self.looks() {
            return Ok(true);
        }
        let now = |writing: &Writing| (writing.key_id, writing.newest_of(&*self.keys).0);
        let key = self.writing.get().map(now);
        if let Some(known) = self.files.lock().get(name) {
            return Ok(known.as_ref().map(|state| state.key) == key);
        }
        let file = self.inner.open(name, false)?;
        Ok(self.known(name, &*file)?.map(|state| state.key) == key)
    }

    fn encrypt_new_files(&self) -> Result<()> {
        if self.writing.get().is_some() {
            return Ok(());
        }
        let Some(key_id) = self.key_id else {
            return Err(Error::NoKey {
                path: self.location(),
                key_id: 0,
                why: "no key was named for new files".into(),
            });
        };
        let writing = Writing::with(key_id, &*self.keys, self.location())?;
        // Who was as fast has said the same.
        self.writing.get_or_init(|| writing);
        Ok(())
    }
}

#[cfg(test)]
#[path = "encrypted_disk_tests.rs"]
mod encrypted_disk_tests;
