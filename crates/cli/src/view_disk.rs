//! `ViewDisk`: a directory as the storage floors may see it here: for reading only, under names and a manifest of our choice.
//!
//! Why it exists: files are opened by the same code as in a running database, which wants a directory with a whole manifest
//! and a lock; a tool must also read one file alone, a copy under another name, and what is left of a damaged directory,
//! and must not write a byte, not even to the lock file.
//! State: files of the directory, those kept in memory instead of them, and at most one alias.
//! Rules: every call that would change something is refused. The lock is the caller's affair, see `directory`.

use crate::keyed_disk;
use pbxt_base::{Error, Result};
use pbxt_io::{Disk, DiskFile, DiskLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct ViewDisk {
    real: Arc<dyn Disk>,
    /// Files that stand in for those of the directory.
    memory: BTreeMap<String, Arc<MemoryFile>>,
    /// The only file of the directory that is shown: its name here, and its name there.
    only: Option<(String, String)>,
    /// Files that are not shown.
    hidden: BTreeSet<String>,
}

impl ViewDisk {
    /// All files of a directory, but those in `memory` as they stand there.
    pub(crate) fn all(directory: &Path, memory: Vec<(&str, Vec<u8>)>) -> Result<Self> {
        let real = keyed_disk::open(directory)?;
        let location = real.location();
        let memory = memory
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), Arc::new(MemoryFile::new(&location, name, bytes))))
            .collect();
        Ok(Self {
            real,
            memory,
            only: None,
            hidden: BTreeSet::new(),
        })
    }

    /// The same without the files of these names.
    pub(crate) fn without(self, hidden: impl IntoIterator<Item = String>) -> Self {
        let hidden = hidden.into_iter().collect();
        Self { hidden, ..self }
    }

    /// One file `there` of a directory, under the name `here`, and what is in `memory`.
    pub(crate) fn one(
        directory: &Path,
        here: String,
        there: String,
        memory: Vec<(&str, Vec<u8>)>,
    ) -> Result<Self> {
        let all = Self::all(directory, memory)?;
        Ok(Self {
            only: Some((here, there)),
            ..all
        })
    }

    fn refused<T>(&self) -> Result<T> {
        Err(Error::ReadOnlyMedia {
            path: self.real.location(),
        })
    }

    /// Name of a file in the directory, if it is shown.
    fn name_there<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        match &self.only {
            None => (!self.hidden.contains(name)).then_some(name),
            Some((here, there)) => (here == name).then_some(there.as_str()),
        }
    }
}

impl Disk for ViewDisk {
    fn location(&self) -> String {
        self.real.location()
    }

    fn create(&self, _: &str, _: u64) -> Result<Arc<dyn DiskFile>> {
        self.refused()
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        if writable {
            return self.refused();
        }
        if let Some(file) = self.memory.get(name) {
            return Ok(Arc::clone(file) as Arc<dyn DiskFile>);
        }
        self.real.open(self.name_there(name).unwrap_or(name), false)
    }

    fn remove(&self, _: &str) -> Result<()> {
        self.refused()
    }

    fn rename(&self, _: &str, _: &str) -> Result<()> {
        self.refused()
    }

    fn exists(&self, name: &str) -> Result<bool> {
        if self.memory.contains_key(name) {
            return Ok(true);
        }
        match self.name_there(name) {
            Some(there) => self.real.exists(there),
            None => Ok(false),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = self.memory.keys().cloned().collect();
        match &self.only {
            Some((here, _)) => names.push(here.clone()),
            None => names.extend(self.real.list()?),
        }
        names.retain(|name| !self.hidden.contains(name));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn sync_dir(&self) -> Result<()> {
        self.refused()
    }

    fn lock(&self, _: &str) -> Result<DiskLock> {
        Ok(Box::new(()))
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(0)
    }
}

#[derive(Debug)]
struct MemoryFile {
    name: String,
    bytes: Vec<u8>,
}

impl MemoryFile {
    fn new(location: &str, name: &str, bytes: Vec<u8>) -> Self {
        Self {
            name: format!("{location}/{name}"),
            bytes,
        }
    }
}

impl DiskFile for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = begin
            .checked_add(buf.len())
            .and_then(|end| self.bytes.get(begin..end));
        let Some(found) = found else {
            return Err(Error::Corrupt {
                file: self.name.clone(),
                offset,
                expected: format!("{} bytes", buf.len()),
                found: "the end of the file".into(),
            });
        };
        buf.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(Error::ReadOnlyMedia {
            path: self.name.clone(),
        })
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
}
