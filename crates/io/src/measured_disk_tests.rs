//! MeasuredDisk: hands everything on, and tells of it what the rules PS2 to PS4 and PS7 say.

use super::*;
use crate::instruments::instruments_tests::{Recorder, Told};
use crate::os_disk::OsDisk;
use FileWork::{Close, GiveBack, Read, Sync, Write};
use pbxt_base::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The directory is the first file that is told of.
const DIRECTORY: usize = 1;

fn kind_of(name: &str) -> FileKind {
    if name.starts_with("log") {
        FileKind::Log
    } else {
        FileKind::Other
    }
}

fn measured(directory: &Path) -> (MeasuredDisk, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let inner = Arc::new(OsDisk::open(directory, false).expect("the directory"));
    let instruments: Arc<dyn Instruments> = Arc::clone(&recorder) as _;
    (MeasuredDisk::new(inner, instruments, kind_of), recorder)
}

fn place() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display().to_string();
    (directory, path)
}

#[test]
fn what_is_done_to_a_file_is_told_with_its_bytes() {
    let (directory, path) = place();
    let (disk, recorder) = measured(directory.path());
    let log = format!("{path}/log1");
    let file = disk.create("log1", 8192).expect("a new file");
    file.write_at(&[7; 100], 0).expect("a write");
    let sectors = disk.open_log("log1").expect("the log");
    sectors.write_sectors_at(&[8; 1024], 512).expect("a write");
    sectors.sync_data().expect("a sync");
    file.read_at(&mut [0; 50], 0).expect("a read");
    let mut bufs = [vec![0; 10], vec![0; 20], vec![0; 30]];
    let mut requests: Vec<_> = bufs
        .iter_mut()
        .map(|buf| ReadRequest { offset: 0, buf })
        .collect();
    file.read_many(&mut requests).expect("three reads");
    file.read_many(&mut []).expect("nothing to read");
    file.give_back(0..4096).expect("an answer");
    disk.sync_dir().expect("a sync");
    drop((sectors, file));
    disk.remove("log1").expect("a removal");
    drop(disk);
    assert_eq!(
        recorder.take(),
        [
            Told::Opened(FileKind::Directory, path, false),
            Told::Opened(FileKind::Log, log.clone(), true),
            Told::Done(2, Write, 100),
            Told::Opened(FileKind::Log, log.clone(), false),
            Told::Done(3, Write, 1024),
            Told::Done(3, Sync, 0),
            Told::Done(2, Read, 50),
            Told::Done(2, Read, 60),
            Told::Done(2, GiveBack, 0),
            Told::Done(DIRECTORY, Sync, 0),
            Told::Done(3, Close, 0),
            Told::Done(2, Close, 0),
            Told::Removed(FileKind::Log, log, true),
            Told::Done(DIRECTORY, Close, 0),
        ]
    );
}

#[test]
fn what_fails_is_told_without_bytes() {
    let (directory, path) = place();
    let (disk, recorder) = measured(directory.path());
    let file = disk.create("a", 100).expect("a new file");
    recorder.take();
    file.read_at(&mut [0; 8], 96).expect_err("4 bytes are missing");
    disk.open("b", false).expect_err("there is none");
    disk.open_blocks("b").expect_err("there is none");
    disk.create("a", 0).expect_err("it is there");
    disk.remove("b").expect_err("there is none");
    let refused = |name| Told::Refused(FileKind::Other, format!("{path}/{name}"));
    assert_eq!(
        recorder.take(),
        [
            Told::Failed(2, Read),
            refused("b"),
            refused("b"),
            refused("a"),
            Told::Removed(FileKind::Other, format!("{path}/b"), false),
        ]
    );
}

#[test]
fn nothing_is_told_of_a_file_that_was_removed() {
    let (directory, path) = place();
    let (disk, recorder) = measured(directory.path());
    let (first, second) = (
        disk.create("a", 100).expect("a new file"),
        disk.open("a", false).expect("the file"),
    );
    disk.remove("a").expect("a removal");
    recorder.take();
    for file in [&first, &second] {
        file.read_at(&mut [0; 8], 0)
            .expect("whoever has it open reads on");
    }
    drop((first, second));
    assert!(recorder.take().is_empty(), "PS4");
    let again = disk.create("a", 100).expect("a new file of that name");
    again.write_at(&[1; 9], 0).expect("a write");
    let made = Told::Opened(FileKind::Other, format!("{path}/a"), true);
    assert_eq!(recorder.take(), [made, Told::Done(4, Write, 9)]);
}

#[test]
fn a_file_that_could_not_be_removed_is_told_of_on() {
    let (directory, _) = place();
    let (disk, recorder) = measured(directory.path());
    let file = disk.create("a", 100).expect("a new file");
    std::fs::remove_file(directory.path().join("a")).expect("a removal behind the disk's back");
    disk.remove("a").expect_err("it is not there");
    recorder.take();
    file.read_at(&mut [0; 8], 0).expect("a read");
    assert_eq!(recorder.take(), [Told::Done(2, Read, 8)]);
}

#[test]
fn a_removal_waits_for_what_is_under_way() {
    let (directory, path) = place();
    let (disk, recorder) = measured(directory.path());
    let file = disk.create("a", 100).expect("a new file");
    recorder.take();
    let held = recorder.hold_reads.lock();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut [0; 8], 0));
        while recorder.under_way() == 0 {
            std::thread::yield_now();
        }
        let remover = scope.spawn(|| disk.remove("a"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            disk.exists("a").expect("an answer") && recorder.told().is_empty(),
            "PS4"
        );
        drop(held);
        reader.join().expect("no panic").expect("a read");
        remover.join().expect("no panic").expect("a removal");
    });
    let removed = Told::Removed(FileKind::Other, format!("{path}/a"), true);
    assert_eq!(recorder.take(), [Told::Done(2, Read, 8), removed]);
}

#[test]
fn files_nobody_wants_to_hear_of_are_those_of_the_disk_itself() {
    let (directory, _) = place();
    let (disk, recorder) = measured(directory.path());
    recorder.take();
    recorder.is_deaf.store(true, Ordering::Relaxed);
    let file = disk.create("a", 100).expect("a new file");
    assert!(format!("{file:?}").starts_with("OsFile"), "{file:?}");
    recorder.is_deaf.store(false, Ordering::Relaxed);
    file.write_at(&[1; 9], 0).expect("a write");
    drop(file);
    assert!(recorder.take().is_empty());
}

/// A disk that notes which of its functions was called.
#[derive(Debug, Default)]
struct Probe {
    called: Arc<Mutex<Vec<&'static str>>>,
}

impl Probe {
    fn note(&self, name: &'static str) {
        self.called.lock().push(name);
    }

    fn opens(&self, name: &'static str) -> Arc<dyn DiskFile> {
        self.note(name);
        let called = Arc::clone(&self.called);
        Arc::new(Self { called })
    }
}

impl Disk for Probe {
    fn location(&self) -> String {
        "place".into()
    }
    fn create(&self, _: &str, _: u64) -> Result<Arc<dyn DiskFile>> {
        Ok(self.opens("create"))
    }
    fn open(&self, _: &str, _: bool) -> Result<Arc<dyn DiskFile>> {
        Ok(self.opens("open"))
    }
    fn open_blocks(&self, _: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.opens("open_blocks"))
    }
    fn open_past_cache(&self, _: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.opens("open_past_cache"))
    }
    fn open_log(&self, _: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.opens("open_log"))
    }
    fn log_writes(&self) -> String {
        "log writes".into()
    }
    fn block_reads(&self) -> String {
        "block reads".into()
    }
    fn remove(&self, _: &str) -> Result<()> {
        self.note("remove");
        Ok(())
    }
    fn rename(&self, _: &str, _: &str) -> Result<()> {
        self.note("rename");
        Ok(())
    }
    fn exists(&self, _: &str) -> Result<bool> {
        Ok(true)
    }
    fn size(&self, _: &str) -> Result<u64> {
        Ok(5)
    }
    fn room(&self, _: &str) -> Result<u64> {
        Ok(4)
    }
    fn list(&self) -> Result<Vec<String>> {
        Ok(vec!["a".into()])
    }
    fn sync_dir(&self) -> Result<()> {
        self.note("sync_dir");
        Ok(())
    }
    fn lock(&self, _: &str) -> Result<DiskLock> {
        self.note("lock");
        Err(Error::Closed)
    }
    fn free_bytes(&self) -> Result<u64> {
        Ok(3)
    }
}

impl DiskFile for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }
    fn len(&self) -> Result<u64> {
        Ok(6)
    }
    fn is_empty(&self) -> Result<bool> {
        Ok(true)
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        self.note("read_at");
        panic!("planted");
    }
    fn read_many(&self, _: &mut [ReadRequest<'_>]) -> Result<()> {
        self.note("read_many");
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        self.note("write_at");
        Ok(())
    }
    fn write_sectors_at(&self, _: &[u8], _: u64) -> Result<()> {
        self.note("write_sectors_at");
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        self.note("sync_data");
        Err(Error::Closed)
    }
    fn begin_write_back(&self, _: Range<u64>) {
        self.note("begin_write_back");
    }
    fn give_back(&self, _: Range<u64>) -> Result<bool> {
        self.note("give_back");
        Ok(false)
    }
}

#[test]
fn every_call_reaches_the_disk_behind_as_it_is_and_no_other() {
    let (probe, recorder) = (Probe::default(), Arc::new(Recorder::default()));
    let called = Arc::clone(&probe.called);
    let instruments: Arc<dyn Instruments> = Arc::clone(&recorder) as _;
    let disk = MeasuredDisk::new(Arc::new(probe), instruments, kind_of);
    let file = disk.create("a", 0).expect("a file");
    for opened in [
        disk.open("a", true),
        disk.open_blocks("a"),
        disk.open_past_cache("a"),
        disk.open_log("a"),
    ] {
        opened.expect("a file");
    }
    let read = AssertUnwindSafe(|| file.read_at(&mut [0; 4], 0));
    assert!(
        catch_unwind(read).is_err(),
        "PS7: the end of it is told all the same"
    );
    let mut buf = [0; 4];
    file.read_many(&mut [ReadRequest {
        offset: 0,
        buf: &mut buf,
    }])
    .expect("a read");
    file.write_at(&[0; 4], 0).expect("a write");
    file.write_sectors_at(&[0; 4], 0).expect("a write");
    file.sync_data().expect_err("planted");
    assert!(!file.give_back(0..0).expect("an answer"));
    disk.rename("a", "b").expect("a rename");
    disk.lock("c").expect_err("planted");
    disk.sync_dir().expect("a sync");
    disk.remove("a").expect("a removal");
    let expected = "create open open_blocks open_past_cache open_log read_at read_many write_at write_sectors_at \
                    sync_data give_back rename lock sync_dir remove";
    assert_eq!(called.lock().join(" "), expected);
    let told = recorder.take();
    let failed: Vec<_> = told
        .iter()
        .filter(|told| matches!(told, Told::Failed(..)))
        .collect();
    assert_eq!(failed, [&Told::Failed(2, Read), &Told::Failed(2, Sync)]);
    // Questions are answered by the disk behind, and not told.
    let numbers = (disk.size("a"), disk.room("a"), disk.free_bytes(), file.len());
    assert!(matches!(numbers, (Ok(5), Ok(4), Ok(3), Ok(6))), "{numbers:?}");
    assert!(file.is_empty().expect("an answer") && disk.exists("a").expect("an answer"));
    assert_eq!(disk.list().expect("a list"), ["a"]);
    let words = [
        disk.location(),
        disk.log_writes(),
        disk.block_reads(),
        file.name().into(),
    ];
    assert_eq!(words, ["place", "log writes", "block reads", "probe"]);
    assert!(recorder.take().is_empty());
}
