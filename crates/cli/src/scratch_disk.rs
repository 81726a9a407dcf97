//! `ScratchDisk`: a directory that can be written to without being changed: what is written stays in memory.
//!
//! Why it exists: only the engine knows which files its checkpoint and the log's tail name and which columns tables have, and
//! it knows them after recovery, which writes. Here it may recover; the directory stays as it is.
//! State: for each file its pages that were written, over the file of the directory or over zeros; names that are gone.
//! Rules: nothing is synced, as nothing is to last. Files are opened for reading only.
//! Latches and I/O: a latch for the names, one a file for its pages; reads of the directory under the latter.

use crate::keyed_disk;
use pbxt_base::{Error, Result};
use pbxt_io::{Disk, DiskFile, DiskLock};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE_BYTES: usize = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct ScratchDisk {
    real: Arc<dyn Disk>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Files that were opened or made.
    files: BTreeMap<String, Arc<ScratchFile>>,
    /// Files of the directory that were removed.
    gone: BTreeSet<String>,
}

impl ScratchDisk {
    pub(crate) fn over(directory: &Path) -> Result<Self> {
        Ok(Self {
            real: keyed_disk::open(directory)?,
            names: Mutex::default(),
        })
    }

    /// Names of the files of the directory that were removed.
    pub(crate) fn removed(&self) -> BTreeSet<String> {
        self.names().gone.clone()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        // A panic elsewhere has ended what it was doing; names are whole at any time.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed<T>(&self, name: &str, op: &'static str, kind: std::io::ErrorKind) -> Result<T> {
        Err(Error::Io {
            file: format!("{}/{name}", self.real.location()),
            op,
            source: kind.into(),
        })
    }
}

impl Disk for ScratchDisk {
    fn location(&self) -> String {
        self.real.location()
    }

    fn encrypts_new_files(&self) -> bool {
        // What is written stays in memory.
        true
    }

    fn encrypt_new_files(&self) -> Result<()> {
        Ok(())
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        if self.exists(name)? {
            return self.failed(name, "create", std::io::ErrorKind::AlreadyExists);
        }
        let file = Arc::new(ScratchFile {
            name: format!("{}/{name}", self.real.location()),
            below: None,
            pages: Mutex::new(Pages {
                len: preallocate,
                written: HashMap::new(),
            }),
        });
        self.names().files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str, _: bool) -> Result<Arc<dyn DiskFile>> {
        let mut names = self.names();
        if let Some(file) = names.files.get(name) {
            return Ok(Arc::clone(file) as Arc<dyn DiskFile>);
        }
        if names.gone.contains(name) {
            return self.failed(name, "open", std::io::ErrorKind::NotFound);
        }
        let below = self.real.open(name, false)?;
        let file = Arc::new(ScratchFile {
            name: below.name().to_owned(),
            pages: Mutex::new(Pages {
                len: below.len()?,
                written: HashMap::new(),
            }),
            below: Some(below),
        });
        names.files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut names = self.names();
        names.files.remove(name);
        if self.real.exists(name)? {
            names.gone.insert(name.to_owned());
        }
        Ok(())
    }

    fn rename(&self, from: &str, _: &str) -> Result<()> {
        // No floor above renames files of an open database.
        self.failed(from, "rename", std::io::ErrorKind::Unsupported)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let names = self.names();
        Ok(names.files.contains_key(name) || (!names.gone.contains(name) && self.real.exists(name)?))
    }

    fn list(&self) -> Result<Vec<String>> {
        let names = self.names();
        let mut all: BTreeSet<String> = self.real.list()?.into_iter().collect();
        all.retain(|name| !names.gone.contains(name));
        all.extend(names.files.keys().cloned());
        Ok(all.into_iter().collect())
    }

    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _: &str) -> Result<DiskLock> {
        Ok(Box::new(()))
    }

    fn free_bytes(&self) -> Result<u64> {
        self.real.free_bytes()
    }
}

#[derive(Debug)]
struct Pages {
    len: u64,
    written: HashMap<u64, Box<[u8]>>,
}

#[derive(Debug)]
struct ScratchFile {
    name: String,
    /// The file of the directory; none if it was made here.
    below: Option<Arc<dyn DiskFile>>,
    pages: Mutex<Pages>,
}

impl ScratchFile {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page as the directory has it.
    fn below(&self, page: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        let Some(below) = &self.below else { return Ok(()) };
        let begin = page * PAGE_BYTES as u64;
        let there = below.len()?.saturating_sub(begin).min(PAGE_BYTES as u64);
        below.read_at(&mut out[..there as usize], begin)
    }
}

/// The parts of `count` bytes at `offset`, by page: page, begin in it, begin in the bytes, count.
fn parts(offset: u64, count: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (page, begin) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
        let step = (count - done).min(PAGE_BYTES - begin);
        let part = (page, begin, done, step);
        done += step;
        (step > 0).then_some(part)
    })
}

impl DiskFile for ScratchFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        Ok(self.pages().len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let pages = self.pages();
        if offset + buf.len() as u64 > pages.len {
            return Err(Error::Corrupt {
                file: self.name.clone(),
                offset,
                expected: format!("{} bytes", buf.len()),
                found: "the end of the file".into(),
            });
        }
        if let Some(below) = self.below.as_ref().filter(|_| pages.written.is_empty()) {
            return below.read_at(buf, offset);
        }
        let mut page_of_file = vec![0; PAGE_BYTES];
        for (page, begin, at, count) in parts(offset, buf.len()) {
            let bytes = if let Some(written) = pages.written.get(&page) {
                written
            } else {
                self.below(page, &mut page_of_file)?;
                &page_of_file[..]
            };
            buf[at..at + count].copy_from_slice(&bytes[begin..begin + count]);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut pages = self.pages();
        for (page, begin, at, count) in parts(offset, buf.len()) {
            let bytes = match pages.written.entry(page) {
                Entry::Occupied(written) => written.into_mut(),
                Entry::Vacant(room) => {
                    let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
                    self.below(page, &mut bytes)?;
                    room.insert(bytes)
                }
            };
            bytes[begin..begin + count].copy_from_slice(&buf[at..at + count]);
        }
        pages.len = pages.len.max(offset + buf.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
}
