//! SectorFile: a preallocated file that one writer fills upwards, and whose syncs write what was written and no more.
//!
//! Why it exists: a commit is some hundred bytes, and a page of the system's cache is 4096. Each sync of a page that was filled in
//! part writes all of it, and the next one writes it again: more than half of what reached the disk while single rows were updated
//! (docs/decisions/0009). Past the page cache a write of whole sectors is only that.
//! How: two descriptors of one file. What a sync follows at once goes through the one with O_DIRECT; other writes, and reads, through
//! the page cache. The system keeps both in step (docs/durability.md, M7).
//! Rules: D30 whole sectors. D31 a write that is refused as such (EINVAL) has written nothing; it, and all later ones of the
//! directory, go through the page cache. Every other failure is the caller's.
//! Latches and I/O: none; `pwrite` on shared descriptors.

use crate::block_file::{DirectIo, is_refusal};
use crate::disk::DiskFile;
use crate::os_disk::{OsFile, failure};
use pbxt_base::limits::SECTOR_BYTES;
use pbxt_base::{Result, invariant};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// What is known of a directory.
#[derive(Debug)]
pub(crate) struct SectorWrites {
    wanted: DirectIo,
    /// What memory must begin at a multiple of.
    memory_align: usize,
    /// Why files are not written past the page cache.
    refusal: OnceLock<String>,
}

impl SectorWrites {
    pub(crate) fn new(wanted: DirectIo) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            memory_align: SECTOR_BYTES,
            refusal: OnceLock::new(),
        })
    }

    fn are_allowed(&self) -> bool {
        self.wanted != DirectIo::Off && self.refusal.get().is_none()
    }

    fn refuse(&self, source: &io::Error) {
        // Whoever was first has said why.
        let _ = self.refusal.set(source.to_string());
    }

    /// One sentence for people.
    pub(crate) fn describe(&self) -> String {
        match (self.wanted, self.refusal.get()) {
            (DirectIo::Off, _) => "through the page cache, as set".into(),
            (_, Some(why)) => format!("through the page cache: the file system refused O_DIRECT ({why})"),
            (_, None) => "past the page cache in whole sectors (O_DIRECT) where a sync follows".into(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SectorFile {
    plain: OsFile,
    /// None if the directory has none.
    direct: Option<File>,
    writes: Arc<SectorWrites>,
}

impl SectorFile {
    /// The existing file at `path`, whose ordinary descriptor is `plain`.
    pub(crate) fn open(path: &Path, plain: OsFile, writes: &Arc<SectorWrites>) -> Result<Self> {
        let mut file = Self {
            plain,
            direct: None,
            writes: Arc::clone(writes),
        };
        if writes.are_allowed() {
            let opened = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_DIRECT)
                .open(path);
            match opened {
                Ok(direct) => file.direct = Some(direct),
                Err(source) if is_refusal(&source) => writes.refuse(&source),
                Err(source) => return Err(failure(path, "open", source)),
            }
        }
        Ok(file)
    }

    /// The descriptor for this write, if it can go past the page cache.
    fn direct_for(&self, buf: &[u8]) -> Option<&File> {
        let is_aligned = buf.as_ptr().addr().is_multiple_of(self.writes.memory_align);
        self.direct
            .as_ref()
            .filter(|_| is_aligned && self.writes.are_allowed())
    }
}

impl DiskFile for SectorFile {
    fn name(&self) -> &str {
        self.plain.name()
    }

    fn len(&self) -> Result<u64> {
        self.plain.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.plain.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.plain.write_at(buf, offset)
    }

    fn write_sectors_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let sector = SECTOR_BYTES as u64;
        invariant!(
            offset.is_multiple_of(sector) && (buf.len() as u64).is_multiple_of(sector),
            "D30: a write past the page cache is whole sectors"
        );
        if let Some(direct) = self.direct_for(buf) {
            match direct.write_all_at(buf, offset) {
                Err(source) if is_refusal(&source) => self.writes.refuse(&source),
                written => {
                    return written.map_err(|source| failure(Path::new(self.name()), "write", source));
                }
            }
        }
        self.plain.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        // Both descriptors are of one file, and a sync is of the file.
        self.plain.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::os_disk::OsDisk;

    const BYTES: u64 = 64 << 10;

    /// Memory that begins at a multiple of 4096, so many bytes behind it.
    struct Memory {
        all: Vec<u8>,
        begin: usize,
    }

    impl Memory {
        fn new(bytes: usize, off: usize, fill: impl Fn(usize) -> u8) -> Self {
            let mut all = vec![0; bytes + 8192];
            let begin = all.as_ptr().align_offset(4096) + off;
            for (at, byte) in all[begin..begin + bytes].iter_mut().enumerate() {
                *byte = fill(at);
            }
            Self { all, begin }
        }

        fn bytes(&self, count: usize) -> &[u8] {
            &self.all[self.begin..self.begin + count]
        }
    }

    fn disks(directory: &Path) -> [OsDisk; 2] {
        [DirectIo::Auto, DirectIo::Off].map(|wanted| {
            OsDisk::open(directory, false)
                .expect("the directory")
                .with_direct_io(wanted)
        })
    }

    fn places() -> [tempfile::TempDir; 2] {
        let places = [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")];
        places.map(|place| place.expect("a temporary directory"))
    }

    /// Bytes this thread's process has caused to be written.
    fn written_bytes() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?;
        line.trim().parse().ok()
    }

    #[test]
    fn reads_see_what_was_written_whichever_way_it_went() {
        for place in places() {
            for (number, disk) in disks(place.path()).into_iter().enumerate() {
                let name = format!("log{number}");
                disk.create(&name, BYTES).expect("a new file");
                let (log, reader) = (
                    disk.open_log(&name).expect("the log"),
                    disk.open(&name, false).expect("a reader"),
                );
                let mut expected = vec![0; BYTES as usize];
                let mut seed = 0x5eed_u64;
                let mut next = |below: u64| {
                    seed = seed
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    (seed >> 33) % below
                };
                let mut at = 0;
                while at < BYTES as usize {
                    let bytes = (512 * (1 + next(9) as usize)).min(BYTES as usize - at);
                    let memory = Memory::new(bytes, [0, 512, 8][next(3) as usize], |byte| {
                        (at + byte) as u8 ^ (at / 256) as u8
                    });
                    expected[at..at + bytes].copy_from_slice(memory.bytes(bytes));
                    if next(3) == 0 {
                        log.write_at(memory.bytes(bytes), at as u64).expect("a write");
                    } else {
                        log.write_sectors_at(memory.bytes(bytes), at as u64)
                            .expect("a write of sectors");
                    }
                    if next(2) == 0 {
                        log.sync_data().expect("a sync");
                    }
                    at += bytes;
                    // All of it, so that the page cache has also what is written next.
                    for file in [&log, &reader] {
                        let mut back = vec![1; BYTES as usize];
                        file.read_at(&mut back, 0).expect("a read");
                        assert!(back == expected, "{}, up to {at}", disk.log_writes());
                    }
                }
            }
        }
    }

    #[test]
    fn a_sync_writes_the_sectors_and_not_the_pages_around_them() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let [disk, _] = disks(place.path());
        disk.create("log", BYTES).expect("a new file");
        let log = disk.open_log("log").expect("the log");
        let memory = Memory::new(512, 0, |at| at as u8);
        let before = written_bytes();
        for sector in 0..64 {
            log.write_sectors_at(memory.bytes(512), sector * 512)
                .expect("a write");
            log.sync_data().expect("a sync");
        }
        if !disk.log_writes().contains("O_DIRECT) where") {
            return; // a file system that refuses has no such figure
        }
        if let (Some(before), Some(after)) = (before, written_bytes()) {
            assert!(
                after - before <= 2 * 64 * 512,
                "{} bytes were written for {}",
                after - before,
                64 * 512
            );
        }
    }

    #[test]
    fn a_refused_write_goes_through_the_page_cache_and_so_do_all_after_it() {
        for place in places() {
            let path = place.path().join("log");
            let disk = OsDisk::open(place.path(), false).expect("the directory");
            disk.create("log", BYTES).expect("a new file");
            // Memory that a disk cannot read from: the file system refuses, where it does not copy.
            let writes = Arc::new(SectorWrites {
                wanted: DirectIo::Auto,
                memory_align: 1,
                refusal: OnceLock::new(),
            });
            let plain = OsFile::open(&path, true).expect("the file");
            let log = SectorFile::open(&path, plain, &writes).expect("the log");
            let memory = Memory::new(1024, 1, |at| at as u8 | 1);
            for offset in [0, 1024] {
                log.write_sectors_at(memory.bytes(1024), offset)
                    .expect("a write one way or the other");
            }
            log.sync_data().expect("a sync");
            let mut back = vec![0; 2048];
            log.read_at(&mut back, 0).expect("a read");
            assert!(back[..1024] == *memory.bytes(1024) && back[1024..] == *memory.bytes(1024));
            if let Some(why) = writes.refusal.get() {
                assert!(
                    writes.describe().contains(why) && log.direct_for(memory.bytes(512)).is_none(),
                    "{why}"
                );
            }
        }
    }

    #[test]
    fn a_write_that_fails_otherwise_is_an_error_and_is_not_tried_another_way() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path().join("log");
        let disk = OsDisk::open(place.path(), false).expect("the directory");
        disk.create("log", BYTES).expect("a new file");
        let log = SectorFile {
            plain: OsFile::open(&path, true).expect("the file"),
            // Opened for reading only: every write fails.
            direct: Some(File::open(&path).expect("the file")),
            writes: SectorWrites::new(DirectIo::Auto),
        };
        let memory = Memory::new(512, 0, |_| 7);
        let error = log
            .write_sectors_at(memory.bytes(512), 0)
            .expect_err("it cannot be written")
            .to_string();
        assert!(error.contains("/log'") && error.contains("write"), "{error}");
        let mut back = [1; 512];
        log.read_at(&mut back, 0).expect("a read");
        assert!(back.iter().all(|byte| *byte == 0), "nothing was written");
        assert!(log.writes.are_allowed());
    }

    #[test]
    fn parts_of_sectors_are_refused() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(place.path(), false).expect("the directory");
        disk.create("log", BYTES).expect("a new file");
        let log = disk.open_log("log").expect("the log");
        let write = |bytes: usize, offset| {
            let call = std::panic::AssertUnwindSafe(|| log.write_sectors_at(&vec![0; bytes], offset));
            std::panic::catch_unwind(call).is_err()
        };
        assert!(write(100, 0) && write(512, 100) && !write(512, 512));
    }

    #[test]
    fn a_missing_log_is_named() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(place.path(), false).expect("the directory");
        let error = disk.open_log("log").expect_err("there is none").to_string();
        assert!(error.contains("/log'"), "{error}");
    }
}
