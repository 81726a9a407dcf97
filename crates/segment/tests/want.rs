//! Want of descriptors passes, and is the error of whoever asked for something new.

mod common;

use common::{begin, first_lsn, mode, names};
use pbxt_base::{Error, Lsn, Result, SegmentId};
use pbxt_io::{Disk, DiskFile, DiskLock, is_passing_want};
use pbxt_segment::{BlobStore, Checkpoint, Codec, PieceWriter, SegmentClass, SegmentStore};
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

/// An image as far as the store looks at it.
fn image(store: &Arc<SegmentStore>) -> SegmentId {
    let mut writer = PieceWriter::create(store, SegmentClass::Meta).expect("created");
    writer.begin_section(0, 1);
    writer
        .push_block(b"", 1, b"an image", Codec::Plain)
        .expect("written");
    writer.end_section(b"", b"");
    writer.finish().expect("finished")
}

#[test]
fn an_image_goes_that_there_was_no_descriptor_to_name() {
    let medium = SimDisk::new();
    let disk = Wanting::new(&medium);
    let store = Arc::new(SegmentStore::open(disk.clone(), mode()).expect("created"));
    let note = |number: u64| {
        store.note_checkpoint(Checkpoint {
            image: image(&store),
            start: Lsn::new(number * 8),
            log_start: Lsn::new(0),
        })
    };
    note(1).expect("noted");
    disk.refuse(Some("pbxt.manifest."));
    let failed = (2..10_000).find(|number| note(*number).is_err());
    let failed = failed.expect("the manifest takes no further fact");
    let counted = store.checkpoint().expect("the last one that was noted");
    assert_eq!(counted.start, Lsn::new((failed - 1) * 8));
    let before = names(&medium);
    for _ in 0..3 {
        let error = note(failed).expect_err("no descriptor");
        assert!(is_passing_want(&error), "{error}");
    }
    assert_eq!(names(&medium), before, "F10: no image stays that nobody names");
    disk.refuse(None);
    note(failed).expect("descriptors are back");
    drop(store);
    let store = SegmentStore::open(disk.clone(), mode()).expect("opened");
    let found = store.checkpoint().expect("the newest one");
    assert_eq!(found.start, Lsn::new(failed * 8));
}

#[test]
fn attempts_in_want_of_descriptors_leave_nothing_behind() {
    let medium = SimDisk::new();
    let disk = Wanting::new(&medium);
    let store = Arc::new(SegmentStore::open(disk.clone(), mode()).expect("created"));
    let blobs = BlobStore::open(Arc::clone(&store)).expect("large values");
    disk.refuse(Some("pbxt.manifest."));
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

#[test]
fn the_log_goes_on_to_the_next_segment_without_a_new_descriptor() {
    let medium = SimDisk::new();
    let disk = Wanting::new(&medium);
    let store = SegmentStore::open(disk.clone(), mode()).expect("created");
    let file = begin(&store, 1).expect("begun");
    file.write_at(&[1; 700], 4096).expect("written");
    file.sync_data().expect("synced");
    // So many that the store closes those that nobody uses; this one does not exist, which is found out afterwards.
    for id in 2..=260 {
        store.prepare(SegmentId::new(id)).expect("prepared");
    }
    let missing = store.file(SegmentClass::Blob, SegmentId::new(1));
    missing.expect_err("no such file");
    disk.refuse(Some("hot-"));
    let end = Lsn::new(first_lsn(1).raw() + 4796);
    store
        .seal(SegmentId::new(1), end)
        .expect("D10: what is being written is open");
    let next = store.begin(SegmentId::new(2), SegmentId::new(1), end, 7, first_lsn(2));
    next.expect("D10: what was prepared is open");
    disk.refuse(None);
    store
        .verify_sealed(SegmentClass::Hot, SegmentId::new(1))
        .expect("sealed as it was written");
}
