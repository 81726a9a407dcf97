//! EncryptedFile: a file whose content is encrypted sector by sector, with the interface of any other file.
//!
//! Why it exists: whoever reads and writes sees offsets, lengths and bytes as if there were no encryption.
//! Format: docs/encryption.md#format. Content begins behind the header's page, and the file is 512 bytes longer than header and
//! content, so that the content's last sector is whole on the medium whatever the content's length, and lengths only grow (EN9).
//! Rules: EN6 the unit is a sector. EN7 a sector of zeros was never written. EN8 who writes part of a sector writes all of it, with
//! what the rest of it holds.
//! Latches and I/O: `edges`, one a file, is held exclusively while a write completes its first and last sector or makes the file
//! longer, and shared while unfinished files are read, both during the read or write itself: a sector that is being completed must not
//! be read half old and half new, because a block of the cipher may lie across the border of what was there and what comes. Writes of
//! whole sectors, as the log's, take no latch; whole sectors are encrypted before it is taken, and decrypted after it is let go.
//! After a crash: a sector that was being completed is old or new as a whole (contract M2), so what was durable in it still is.

use crate::disk::{DiskFile, ReadRequest};
use crate::encryption_header::HEADER_BYTES;
use crate::file_cipher::FileCipher;
use crate::os_disk::missing_bytes;
use parking_lot::RwLock;
use pbxt_base::Result;
use pbxt_base::limits::SECTOR_BYTES;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// By how much a file is longer than its content.
pub(crate) const EXTRA_BYTES: u64 = HEADER_BYTES + SECTOR;
/// Bytes that are encrypted or decrypted in one piece at most.
const STEP_BYTES: usize = 1 << 20;
/// What memory for direct writes begins at a multiple of.
const MEMORY_ALIGN: usize = 4096;

/// What all handles of one file share.
#[derive(Debug)]
pub(crate) struct FileState {
    cipher: FileCipher,
    /// Number and version of the key.
    pub(crate) key: (u32, u32),
    /// See the module.
    edges: RwLock<()>,
    /// The content has at least so many bytes.
    known_len: AtomicU64,
}

impl FileState {
    pub(crate) fn new(cipher: FileCipher, key: (u32, u32), known_len: u64) -> Arc<Self> {
        Arc::new(Self {
            cipher,
            key,
            edges: RwLock::new(()),
            known_len: AtomicU64::new(known_len),
        })
    }
}

/// Whether somebody may still write to a file that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Possible,
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EncryptedFile {
    inner: Arc<dyn DiskFile>,
    state: Arc<FileState>,
    growth: Growth,
}

/// A range of the content, rounded out to sectors.
struct Rounded {
    begin: u64,
    end: u64,
    /// Bytes before those that are wanted.
    skip: usize,
}

impl Rounded {
    fn of(offset: u64, bytes: usize) -> Self {
        let begin = offset - offset % SECTOR;
        Self {
            begin,
            end: (offset + bytes as u64).next_multiple_of(SECTOR),
            skip: (offset - begin) as usize,
        }
    }

    fn len(&self) -> usize {
        (self.end - self.begin) as usize
    }

    fn first_sector(&self) -> u64 {
        self.begin / SECTOR
    }
}

fn is_whole(place: u64) -> bool {
    place.is_multiple_of(SECTOR)
}

/// Zeros that begin where a direct write wants memory to begin.
struct Memory {
    bytes: Vec<u8>,
    begin: usize,
}

impl Memory {
    fn new(bytes: usize) -> Self {
        let bytes = vec![0; bytes + MEMORY_ALIGN];
        let begin = bytes.as_ptr().align_offset(MEMORY_ALIGN);
        Self { bytes, begin }
    }

    fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.bytes[self.begin + range.start..self.begin + range.end]
    }
}

/// How a part is handed to the file below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Sectors,
}

impl EncryptedFile {
    pub(crate) fn new(inner: Arc<dyn DiskFile>, state: Arc<FileState>, growth: Growth) -> Self {
        Self { inner, state, growth }
    }

    /// An error if the content has no such bytes. The file below has some more, see the module.
    fn check_end(&self, offset: u64, bytes: usize) -> Result<()> {
        let end = offset + bytes as u64;
        if end <= self.state.known_len.load(Ordering::Relaxed) {
            return Ok(());
        }
        let len = self.len()?;
        self.state.known_len.fetch_max(len, Ordering::Relaxed);
        if end <= len {
            Ok(())
        } else {
            Err(missing_bytes(self.name(), offset, bytes))
        }
    }

    /// Reads what no write is just completing.
    fn read_settled(&self, read: impl FnOnce(&dyn DiskFile) -> Result<()>) -> Result<()> {
        let _settled = (self.growth == Growth::Possible).then(|| self.state.edges.read());
        read(&*self.inner)
    }

    /// Reads and decrypts whole sectors.
    fn read_sectors(&self, sectors: &mut [u8], begin: u64) -> Result<()> {
        self.read_settled(|inner| inner.read_at(sectors, HEADER_BYTES + begin))?;
        self.state.cipher.decrypt(sectors, begin / SECTOR);
        Ok(())
    }

    fn write(&self, buf: &[u8], offset: u64, way: Way) -> Result<()> {
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            // All parts but the last end with a sector.
            let step = (STEP_BYTES - (at % SECTOR) as usize).min(rest.len());
            self.write_part(&rest[..step], at, way)?;
            (rest, at) = (&rest[step..], at + step as u64);
        }
        Ok(())
    }

    fn write_part(&self, buf: &[u8], offset: u64, way: Way) -> Result<()> {
        let (end, rounded) = (offset + buf.len() as u64, Rounded::of(offset, buf.len()));
        let mut memory = Memory::new(rounded.len());
        memory
            .part(rounded.skip..rounded.skip + buf.len())
            .copy_from_slice(buf);
        let inside = offset.next_multiple_of(SECTOR)..end - end % SECTOR;
        if inside.start < inside.end {
            let place = (inside.start - rounded.begin) as usize..(inside.end - rounded.begin) as usize;
            self.state
                .cipher
                .encrypt(memory.part(place), inside.start / SECTOR);
        }
        let is_there = end <= self.state.known_len.load(Ordering::Relaxed);
        if is_whole(offset) && is_whole(end) && is_there {
            return self.hand_down(memory.part(0..rounded.len()), rounded.begin, way);
        }
        let _alone = self.state.edges.write();
        let have = self.inner.len()?;
        self.complete_edges(&mut memory, &rounded, offset..end, have)?;
        self.hand_down(memory.part(0..rounded.len()), rounded.begin, way)?;
        self.make_longer(end, have)?;
        self.state.known_len.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    fn hand_down(&self, sectors: &[u8], begin: u64, way: Way) -> Result<()> {
        match way {
            Way::Plain => self.inner.write_at(sectors, HEADER_BYTES + begin),
            Way::Sectors => self.inner.write_sectors_at(sectors, HEADER_BYTES + begin),
        }
    }

    /// Fills the first and the last sector of a write up with what they hold, and encrypts them (EN8).
    fn complete_edges(
        &self,
        memory: &mut Memory,
        rounded: &Rounded,
        written: Range<u64>,
        have: u64,
    ) -> Result<()> {
        let last = rounded.end - SECTOR;
        if !is_whole(written.start) {
            self.complete(memory.part(0..SECTOR_BYTES), rounded.begin, &written, have)?;
        }
        if !is_whole(written.end) && (last != rounded.begin || is_whole(written.start)) {
            let place = (last - rounded.begin) as usize;
            self.complete(memory.part(place..place + SECTOR_BYTES), last, &written, have)?;
        }
        Ok(())
    }

    /// Fills up the sector that begins at `begin`, of which the bytes in `written` are there.
    fn complete(&self, sector: &mut [u8], begin: u64, written: &Range<u64>, have: u64) -> Result<()> {
        // A sector that is not whole in the file holds nothing yet (EN9).
        if HEADER_BYTES + begin + SECTOR <= have {
            let mut old = [0; SECTOR_BYTES];
            self.inner.read_at(&mut old, HEADER_BYTES + begin)?;
            self.state.cipher.decrypt(&mut old, begin / SECTOR);
            let before = written.start.saturating_sub(begin) as usize;
            let behind = (written.end - begin).min(SECTOR) as usize;
            sector[..before].copy_from_slice(&old[..before]);
            sector[behind..].copy_from_slice(&old[behind..]);
        }
        self.state.cipher.encrypt(sector, begin / SECTOR);
        Ok(())
    }

    /// Makes a file that had `have` bytes long enough for content up to `end`, which has been written: so nobody sees content of which a
    /// part is missing because the write failed.
    fn make_longer(&self, end: u64, have: u64) -> Result<()> {
        let wanted = end + EXTRA_BYTES;
        if wanted > have {
            // Behind the last sector of the content (EN9).
            self.inner.write_at(&[0], wanted - 1)?;
        }
        Ok(())
    }
}

impl DiskFile for EncryptedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.inner.len()?.saturating_sub(EXTRA_BYTES))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check_end(offset, buf.len())?;
        if is_whole(offset) && is_whole(buf.len() as u64) {
            return self.read_sectors(buf, offset);
        }
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let step = (STEP_BYTES - (at % SECTOR) as usize).min(rest.len());
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(step);
            let rounded = Rounded::of(at, step);
            let mut sectors = vec![0; rounded.len()];
            self.read_sectors(&mut sectors, rounded.begin)?;
            part.copy_from_slice(&sectors[rounded.skip..rounded.skip + step]);
            (rest, at) = (behind, at + step as u64);
        }
        Ok(())
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let mut rounded = Vec::with_capacity(requests.len());
        for request in &*requests {
            self.check_end(request.offset, request.buf.len())?;
            rounded.push(Rounded::of(request.offset, request.buf.len()));
        }
        let mut sectors = vec![0; rounded.iter().map(Rounded::len).sum()];
        let mut reads = Vec::with_capacity(requests.len());
        let mut rest = &mut sectors[..];
        for place in &rounded {
            let (buf, behind) = std::mem::take(&mut rest).split_at_mut(place.len());
            let offset = HEADER_BYTES + place.begin;
            reads.push(ReadRequest { offset, buf });
            rest = behind;
        }
        self.read_settled(|inner| inner.read_many(&mut reads))?;
        for ((request, read), place) in requests.iter_mut().zip(reads).zip(&rounded) {
            let ReadRequest { buf: sectors, .. } = read;
            self.state.cipher.decrypt(sectors, place.first_sector());
            let wanted = place.skip..place.skip + request.buf.len();
            request.buf.copy_from_slice(&sectors[wanted]);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset, Way::Plain)
    }

    fn write_sectors_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset, Way::Sectors)
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }

    fn begin_write_back(&self, range: Range<u64>) {
        self.inner
            .begin_write_back(HEADER_BYTES + range.start..HEADER_BYTES + range.end);
    }

    fn take_room(&self, range: Range<u64>) -> Result<()> {
        self.inner
            .take_room(HEADER_BYTES + range.start..HEADER_BYTES + range.end)
    }

    fn give_back(&self, range: Range<u64>) -> Result<bool> {
        self.inner
            .give_back(HEADER_BYTES + range.start..HEADER_BYTES + range.end)
    }
}
