//! Removals beside those who open the same file: no handle is kept that keeps the file's room.

mod common;

use common::mode;
use pbxt_base::{Result, SegmentId};
use pbxt_io::{Disk, DiskFile, DiskLock};
use pbxt_segment::{BlobStore, SegmentClass, SegmentStore};
use pbxt_testkit::SimDisk;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

/// A disk on which somebody opens a segment of values in the moment before it is removed.
struct Crossing {
    disk: SimDisk,
    store: Mutex<Weak<SegmentStore>>,
}

impl fmt::Debug for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl Disk for Crossing {
    fn location(&self) -> String {
        self.disk.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        self.disk.create(name, preallocate)
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        self.disk.open(name, writable)
    }

    fn remove(&self, name: &str) -> Result<()> {
        if name == "blob-00000001.seg"
            && let Some(store) = self.store.lock().expect("a latch").upgrade()
        {
            store.file(SegmentClass::Blob, SegmentId::new(1))?;
        }
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.disk.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.disk.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.disk.free_bytes()
    }
}

#[test]
fn a_file_that_is_opened_while_it_is_removed_is_not_kept() {
    let disk = Arc::new(Crossing {
        disk: SimDisk::new(),
        store: Mutex::default(),
    });
    let there: Arc<dyn Disk> = Arc::<Crossing>::clone(&disk);
    let store = Arc::new(SegmentStore::open(there, mode()).expect("a store"));
    let blobs = BlobStore::open(Arc::clone(&store)).expect("values");
    blobs.append(&[7; 99]).expect("a value");
    *disk.store.lock().expect("a latch") = Arc::downgrade(&store);
    let id = SegmentId::new(1);
    store.drop_segment(SegmentClass::Blob, id).expect("dropped");
    assert!(store.file(SegmentClass::Blob, id).is_err(), "a handle was kept");
}
