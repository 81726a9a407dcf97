//! Want of descriptors passes, and is the error of whoever asked for something new.

mod common;

use common::{mode, names};
use pbxt_base::{Error, Result, SegmentId};
use pbxt_io::{Disk, DiskFile, DiskLock, is_passing_want};
use pbxt_segment::{BlobStore, SegmentClass, SegmentStore};
use pbxt_testkit::SimDisk;
use std::io;
use std::sync::{Arc, Mutex};

/// A medium for whose files there are no descriptors left at times.
#[derive(Debug)]
struct Wanting {
    medium: SimDisk,
    /// Beginning of the names of files that cannot be made or opened.
    refused: Mutex<Option<&'static str>>,
}

impl Wanting {
    fn new(medium: &SimDisk) -> Arc<Self> {
        Arc::new(Self {
            medium: medium.clone(),
            refused: Mutex::default(),
        })
    }

    fn refuse(&self, beginning: Option<&'static str>) {
        *self.refused.lock().expect("a latch") = beginning;
    }

    fn descriptor(&self, name: &str, op: &'static str) -> Result<()> {
        let refused = *self.refused.lock().expect("a latch");
        if refused.is_none_or(|beginning| !name.starts_with(beginning)) {
            return Ok(());
        }
        Err(Error::Io {
            file: name.to_owned(),
            op,
            // EMFILE.
            source: io::Error::from_raw_os_error(24),
        })
    }
}

impl Disk for Wanting {
    fn location(&self) -> String {
        self.medium.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        self.descriptor(name, "create")?;
        self.medium.create(name, preallocate)
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        self.descriptor(name, "open")?;
        self.medium.open(name, writable)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.medium.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.medium.rename(from, to)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.medium.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.medium.list()
    }

    fn sync_dir(&self) -> Result<()> {
        self.medium.sync_dir()
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.medium.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.medium.free_bytes()
    }
}

#[test]
fn attempts_in_want_of_descriptors_leave_nothing_behind() {
    let medium = SimDisk::new();
    let disk = Wanting::new(&medium);
    let store = Arc::new(SegmentStore::open(disk.clone(), mode()).expect("created"));
    let blobs = BlobStore::open(Arc::clone(&store)).expect("large values");
    disk.refuse(Some("manifest."));
    // Facts of the size of the one that a new file needs, until none fits into the manifest any more. That there is no such file to
    // be removed is an error of another kind.
    let is_full = (0..10_000).any(|_| {
        let dropped = store.drop_segment(SegmentClass::Blob, SegmentId::new(1));
        is_passing_want(&dropped.expect_err("no such file, or no room for the fact"))
    });
    assert!(is_full, "the manifest takes no further fact");
    let before = names(&medium);
    for _ in 0..3 {
        let error = blobs.append(&[7; 100]).expect_err("no file, no name");
        assert!(is_passing_want(&error), "{error}");
    }
    assert_eq!(names(&medium), before, "F10: no file stays that nobody names");
    disk.refuse(None);
    let blob = blobs.append(&[7; 100]).expect("descriptors are back");
    let mut value = Vec::new();
    blobs.read(&blob, &mut value).expect("readable");
    assert_eq!(value, [7; 100]);
}
