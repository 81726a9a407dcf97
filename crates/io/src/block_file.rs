//! BlockFile: a finished file that is read block by block, past the page cache of the operating system.
//!
//! Why it exists: the engine keeps decoded blocks in a cache of its own, with a budget. What the system keeps of the same files
//! besides is memory nobody has granted, twice the same data, and reading through it copies each page for nothing
//! (docs/decisions/0005).
//! How: O_DIRECT wants offset, length and memory in whole pages, so a read is rounded out to pages into a buffer (page_buffer.rs) and
//! copied from there. Several reads go through a ring; where there is none, and for one read, which is cheaper so, pread.
//! Fall-back: a file system that refuses O_DIRECT is asked once a directory (`BlockReads`); its files are then read as all others.
//! Errors: name file and offset. A short read inside the file is asked for again from where it ended; one at the end is `Corrupt`.
//! Latches and I/O: none; reads only.

use crate::disk::{DiskFile, ReadRequest};
use crate::os_disk::{at_offset, failure, missing_bytes, open_file};
use crate::page_buffer::{BUFFER_BYTES, PageBuffer};
use crate::ring::{DEPTH, ReadSlot, ReadSlots, RingRead};
use pbxt_base::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// What offset, length and memory of a direct read are multiples of; no disk in use asks for more.
const PAGE: u64 = 4096;
/// Bytes that one read takes at most, so that it fits a buffer after it was rounded out.
const READ_BYTES: usize = BUFFER_BYTES - 2 * PAGE as usize;

/// How the blocks of finished files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Past the page cache, many at once, where the system can.
    Auto,
    /// Through the page cache.
    Off,
}

/// What is known of a directory.
#[derive(Debug)]
pub(crate) struct BlockReads {
    wanted: DirectIo,
    /// Why files are not read past the page cache, or that they are.
    refusal: OnceLock<Option<String>>,
    slots: Arc<ReadSlots>,
}

impl BlockReads {
    pub(crate) fn new(wanted: DirectIo) -> Self {
        Self {
            wanted,
            refusal: OnceLock::new(),
            slots: Arc::default(),
        }
    }

    /// The file for direct reads; `None` if the directory has none. What the page cache has of it is given up.
    pub(crate) fn open(&self, path: &Path) -> Result<Option<BlockFile>> {
        let file = self.open_beside_cache(path)?;
        if let Some(file) = &file {
            file.drop_pages();
        }
        Ok(file)
    }

    /// The same, and the page cache keeps what it has.
    pub(crate) fn open_beside_cache(&self, path: &Path) -> Result<Option<BlockFile>> {
        if self.wanted == DirectIo::Off || matches!(self.refusal.get(), Some(Some(_))) {
            return Ok(None);
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        let file = match open_file(path, &options) {
            Ok(file) => file,
            Err(source) if is_refusal(&source) => {
                self.refuse(&source);
                return Ok(None);
            }
            Err(source) => return Err(failure(path, "open", source)),
        };
        let file = BlockFile {
            name: path.display().to_string(),
            file,
            slots: Arc::clone(&self.slots),
        };
        if self.refusal.get().is_none() {
            if let Err(source) = file.try_out() {
                self.refuse(&source);
                return Ok(None);
            }
            self.slots.try_out();
            let _ = self.refusal.set(None);
        }
        Ok(Some(file))
    }

    /// One sentence for people.
    pub(crate) fn describe(&self) -> String {
        let refusal = self.refusal.get();
        match (self.wanted, refusal, self.slots.refusal()) {
            (DirectIo::Off, ..) => "through the page cache, as set".into(),
            (_, None, _) => "past the page cache, if the file system can".into(),
            (_, Some(Some(why)), _) => {
                format!("through the page cache: the file system refused O_DIRECT ({why})")
            }
            (_, Some(None), None) => "past the page cache (O_DIRECT), many at once (io_uring)".into(),
            (_, Some(None), Some(why)) => {
                format!("past the page cache (O_DIRECT), one at a time: io_uring was refused ({why})")
            }
        }
    }

    fn refuse(&self, source: &io::Error) {
        // Whoever was first has said why.
        let _ = self.refusal.set(Some(source.to_string()));
    }
}

/// What a file system says that does not know direct reads.
pub(crate) fn is_refusal(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct BlockFile {
    name: String,
    file: File,
    slots: Arc<ReadSlots>,
}

/// A range of the file, rounded out to pages.
struct Rounded {
    begin: u64,
    len: usize,
    /// Bytes before those that are wanted.
    skip: usize,
}

impl Rounded {
    fn of(offset: u64, bytes: usize) -> Self {
        let skip = offset % PAGE;
        Self {
            begin: offset - skip,
            len: (skip + bytes as u64).next_multiple_of(PAGE) as usize,
            skip: skip as usize,
        }
    }
}

impl BlockFile {
    /// A read of the first page, to see whether it is refused.
    fn try_out(&self) -> io::Result<()> {
        let mut buffer = PageBuffer::new()?;
        match self.file.read_at(&mut buffer.bytes()[..PAGE as usize], 0) {
            Err(source) if is_refusal(&source) => Err(source),
            // Other errors are told to whoever reads.
            _ => Ok(()),
        }
    }

    /// What the system kept of the file while it was written is memory nobody granted.
    fn drop_pages(&self) {
        use std::os::fd::AsRawFd;
        // SAFETY: plain system call on an open descriptor. It is advice: nothing depends on its outcome.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    /// Fills `to` with pages from `begin` on, of which `have` bytes are there; at least `wanted` must come.
    fn fill(&self, to: &mut [u8], begin: u64, mut have: usize, wanted: usize) -> io::Result<()> {
        while have < wanted {
            // A read that ended inside a page is asked for again from its beginning.
            let from = have - have % PAGE as usize;
            match self.file.read_at(&mut to[from..], begin + from as u64) {
                Ok(bytes) if from + bytes > have => have = from + bytes,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(source),
            }
        }
        Ok(())
    }

    fn failure(&self, offset: u64, bytes: usize, source: &io::Error) -> Error {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return missing_bytes(&self.name, offset, bytes);
        }
        failure(Path::new(&self.name), "read", at_offset(offset, bytes, source))
    }

    fn read_one(&self, slot: &mut ReadSlot, buf: &mut [u8], offset: u64) -> Result<()> {
        // A long one goes through the buffer part by part.
        for (number, part) in buf.chunks_mut(READ_BYTES).enumerate() {
            let offset = offset + (number * READ_BYTES) as u64;
            let rounded = Rounded::of(offset, part.len());
            let read = slot.buffer().and_then(|buffer| {
                let to = &mut buffer[..rounded.len];
                self.fill(to, rounded.begin, 0, rounded.skip + part.len())?;
                part.copy_from_slice(&to[rounded.skip..rounded.skip + part.len()]);
                Ok(())
            });
            read.map_err(|source| self.failure(offset, part.len(), &source))?;
        }
        Ok(())
    }

    /// Reads as many of the first requests as fit a round; how many that were.
    fn read_round(&self, slot: &mut ReadSlot, requests: &mut [ReadRequest<'_>]) -> Result<usize> {
        let mut bytes = 0;
        let mut reads = Vec::with_capacity(DEPTH.min(requests.len()));
        for request in requests.iter().take(DEPTH) {
            let rounded = Rounded::of(request.offset, request.buf.len());
            if bytes + rounded.len > BUFFER_BYTES {
                break;
            }
            reads.push(RingRead::new(rounded.begin, bytes..bytes + rounded.len));
            bytes += rounded.len;
        }
        if reads.len() < 2 {
            if let Some(first) = requests.first_mut() {
                self.read_one(slot, first.buf, first.offset)?;
            }
            return Ok(1);
        }
        // Without memory for it there is no ring either, and the single reads say what is wrong.
        let _ = slot.buffer();
        if !self.slots.read(slot, &self.file, &mut reads) {
            for request in &mut requests[..reads.len()] {
                self.read_one(slot, request.buf, request.offset)?;
            }
            return Ok(reads.len());
        }
        let count = reads.len();
        let buffer = slot
            .buffer()
            .map_err(|source| self.failure(requests[0].offset, bytes, &source))?;
        for (read, request) in reads.into_iter().zip(requests) {
            let to = &mut buffer[read.place];
            let (offset, wanted) = (request.offset, request.buf.len());
            let skip = (offset - read.offset) as usize;
            let have = match read.outcome {
                Ok(bytes) => bytes,
                // Asked again below, one at a time.
                Err(source) if is_passing(&source) => 0,
                Err(source) => return Err(self.failure(offset, wanted, &source)),
            };
            let filled = self.fill(to, read.offset, have, skip + wanted);
            filled.map_err(|source| self.failure(offset, wanted, &source))?;
            request.buf.copy_from_slice(&to[skip..skip + wanted]);
        }
        Ok(count)
    }
}

/// What does not say that the read is impossible.
fn is_passing(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), None | Some(libc::EAGAIN | libc::EINTR))
}

impl DiskFile for BlockFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        self.file
            .metadata()
            .map(|metadata| metadata.len())
            .map_err(|source| failure(Path::new(&self.name), "ask for the length of", source))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.slots.with(|slot| self.read_one(slot, buf, offset))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.slots.with(|slot| {
            let mut rest = requests;
            while !rest.is_empty() {
                let read = self.read_round(slot, rest)?;
                rest = &mut rest[read..];
            }
            Ok(())
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::os_disk::OsDisk;

    const BYTES: usize = 3 * 4096 + 1000;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    /// A directory with a file of these bytes; under `/dev/shm` if so asked, which is a tmpfs.
    fn directory_with(bytes: usize, in_memory: bool) -> (tempfile::TempDir, OsDisk) {
        let directory = if in_memory {
            tempfile::tempdir_in("/dev/shm")
        } else {
            tempfile::tempdir()
        };
        let directory = directory.expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        let file = disk.create("blocks", 0).expect("a new file");
        file.write_at(&content(bytes), 0).expect("a write");
        file.sync_data().expect("a sync");
        (directory, disk)
    }

    /// The file, read as the directory allows, without O_DIRECT, and without rings.
    fn all_ways(directory: &Path, disk: &OsDisk) -> Vec<(String, Arc<dyn DiskFile>)> {
        let off = OsDisk::open(directory, false)
            .expect("the directory")
            .with_direct_io(DirectIo::Off);
        let without_rings = BlockReads::new(DirectIo::Auto);
        without_rings
            .slots
            .refuse(&io::Error::from_raw_os_error(libc::EPERM));
        let refused = BlockReads::new(DirectIo::Auto);
        refused.refuse(&io::Error::from_raw_os_error(libc::EINVAL));
        let path = directory.join("blocks");
        assert!(refused.open(&path).expect("an answer").is_none());
        assert!(refused.describe().contains("the file system refused O_DIRECT"));
        let mut ways = vec![
            (disk.block_reads(), disk.open_blocks("blocks").expect("the file")),
            (
                "beside the cache".into(),
                disk.open_past_cache("blocks").expect("the file"),
            ),
            (off.block_reads(), off.open_blocks("blocks").expect("the file")),
        ];
        if let Some(file) = without_rings.open(&path).expect("the file") {
            assert!(without_rings.describe().contains("io_uring was refused"));
            ways.push((without_rings.describe(), Arc::new(file)));
        }
        ways
    }

    #[test]
    fn every_range_comes_back_whatever_the_file_system_allows() {
        for in_memory in [false, true] {
            let (directory, disk) = directory_with(BYTES, in_memory);
            let expected = content(BYTES);
            for (way, file) in all_ways(directory.path(), &disk) {
                for begin in [0, 1, 511, 4095, 4096, 4097, 8000, BYTES - 1, BYTES] {
                    for bytes in [0, 1, 2, 4095, 4096, 5000, BYTES - begin] {
                        let end = begin + bytes;
                        let mut back = vec![0; bytes];
                        let read = file.read_at(&mut back, begin as u64);
                        if end <= BYTES {
                            read.expect("within the file");
                            assert!(back == expected[begin..end], "{way}: {begin}..{end}");
                        } else {
                            let refused = read.expect_err("beyond the end").to_string();
                            assert!(
                                refused.contains("blocks'") && refused.contains(&begin.to_string()),
                                "{refused}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_batch_gives_what_single_reads_give_also_beyond_the_size_of_a_ring() {
        let (directory, disk) = directory_with(5 << 20, false);
        let expected = content(5 << 20);
        let mut seed = 0x5eed_u64;
        let mut next = |below: usize| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        for (way, file) in all_ways(directory.path(), &disk) {
            for count in [0, 1, 2, DEPTH, DEPTH + 1, 3 * DEPTH + 7] {
                // Now and then one that is longer than a round.
                let sizes: Vec<usize> = (0..count)
                    .map(|at| next(if at % 20 == 3 { 4 << 20 } else { 60_000 }))
                    .collect();
                let places: Vec<usize> = sizes.iter().map(|bytes| next((5 << 20) - bytes + 1)).collect();
                let mut bufs: Vec<Vec<u8>> = sizes.iter().map(|bytes| vec![0; *bytes]).collect();
                let mut requests: Vec<_> = bufs
                    .iter_mut()
                    .zip(&places)
                    .map(|(buf, place)| ReadRequest {
                        offset: *place as u64,
                        buf,
                    })
                    .collect();
                file.read_many(&mut requests).expect("within the file");
                for (buf, place) in bufs.iter().zip(&places) {
                    assert!(
                        buf[..] == expected[*place..*place + buf.len()],
                        "{way}: {count} reads"
                    );
                }
            }
        }
    }

    #[test]
    fn a_batch_with_a_read_that_fails_names_its_offset() {
        let (directory, disk) = directory_with(BYTES, false);
        for (way, file) in all_ways(directory.path(), &disk) {
            let mut bufs = [[0; 600]; 5];
            let offsets = [0, 4096, 12_800, 100, 8192];
            let mut requests: Vec<_> = bufs
                .iter_mut()
                .zip(offsets)
                .map(|(buf, offset)| ReadRequest { offset, buf })
                .collect();
            let refused = file
                .read_many(&mut requests)
                .expect_err("the third ends behind the file");
            assert!(
                matches!(refused, Error::Corrupt { offset: 12_800, .. }),
                "{way}: {refused}"
            );
        }
    }

    #[test]
    fn a_refused_read_is_a_sentence_with_file_and_offset() {
        let (directory, _) = directory_with(BYTES, false);
        // A descriptor that may not be read gives an error of the system for each read.
        let path = directory.path().join("blocks");
        let file = BlockFile {
            name: path.display().to_string(),
            file: OpenOptions::new().write(true).open(&path).expect("the file"),
            slots: Arc::default(),
        };
        let mut bufs = [[0; 600]; 2];
        let mut requests: Vec<_> = bufs
            .iter_mut()
            .zip([5, 4100])
            .map(|(buf, offset)| ReadRequest { offset, buf })
            .collect();
        let refused = file.read_many(&mut requests).expect_err("it may not").to_string();
        assert!(
            refused.starts_with("cannot read '") && refused.contains("600 bytes at offset 5: "),
            "{refused}"
        );
        let refused = file
            .read_at(&mut [0; 7], 4100)
            .expect_err("it may not")
            .to_string();
        assert!(refused.contains("7 bytes at offset 4100: "), "{refused}");
    }

    #[test]
    fn more_readers_than_slots_all_get_their_bytes() {
        let (_directory, disk) = directory_with(1 << 20, false);
        let file = disk.open_blocks("blocks").expect("the file");
        let expected = content(1 << 20);
        std::thread::scope(|scope| {
            for thread in 0..40 {
                let (file, expected) = (&file, &expected);
                scope.spawn(move || {
                    for turn in 0..20 {
                        let mut bufs = vec![vec![0; 10_000]; 6];
                        let place =
                            |number: usize| (thread * 20_011 + turn * 7_001 + number * 50_000) % 1_000_000;
                        let requests = bufs.iter_mut().enumerate();
                        let mut requests: Vec<_> = requests
                            .map(|(number, buf)| ReadRequest {
                                offset: place(number) as u64,
                                buf,
                            })
                            .collect();
                        file.read_many(&mut requests).expect("within the file");
                        for (number, buf) in bufs.iter().enumerate() {
                            assert!(buf[..] == expected[place(number)..place(number) + buf.len()]);
                        }
                    }
                });
            }
        });
    }
}
