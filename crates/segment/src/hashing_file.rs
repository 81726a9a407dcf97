//! Hashing file: a segment file that hashes what its one writer writes.
//!
//! Why it exists: the hash of a sealed segment must be that of what was meant to be written, not of what the medium gives
//! back afterwards; and 64 MiB need not be read again to seal them.
//! Rules: P1 each write begins at or behind the end of the one before. F8 the hash covers everything before the footer,
//! with zeros for what was left out.
//! Latches and I/O: one latch for the hash, taken by the one writer and by `seal`; never held across I/O.

use parking_lot::Mutex;
use pbxt_base::Result;
use pbxt_base::checksum::RunningHash;
use pbxt_io::DiskFile;
use std::sync::Arc;

/// Hash of what was written so far, with zeros for what was left out.
#[derive(Debug, Default)]
pub(crate) struct HashState {
    hash: RunningHash,
    end: u64,
}

impl HashState {
    fn zeros_to(&mut self, offset: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.end < offset {
            let step = (offset - self.end).min(ZEROS.len() as u64);
            self.hash.update(&ZEROS[..step as usize]);
            self.end += step;
        }
    }

    fn add(&mut self, bytes: &[u8], offset: u64) {
        pbxt_base::invariant!(offset >= self.end, "P1: a segment is written once and in order");
        self.zeros_to(offset);
        self.hash.update(bytes);
        self.end += bytes.len() as u64;
    }

    /// The hash of the segment up to its footer.
    pub(crate) fn finish(&mut self, footer_at: u64) -> u64 {
        pbxt_base::invariant!(
            footer_at >= self.end,
            "F8: nothing is written into the place of the footer"
        );
        self.zeros_to(footer_at);
        self.hash.finish()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HashingFile {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) hash: Arc<Mutex<HashState>>,
}

impl DiskFile for HashingFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.hash.lock().add(buf, offset);
        self.file.write_at(buf, offset)
    }

    fn write_sectors_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.hash.lock().add(buf, offset);
        self.file.write_sectors_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }
}

/// Hash of the first `end` bytes of a file, read from the medium.
pub(crate) fn hash_of(file: &dyn DiskFile, end: u64) -> Result<u64> {
    let mut hash = RunningHash::new();
    let mut buffer = vec![0; end.min(1 << 20) as usize];
    let mut at = 0;
    while at < end {
        let step = (end - at).min(buffer.len() as u64) as usize;
        file.read_at(&mut buffer[..step], at)?;
        hash.update(&buffer[..step]);
        at += step as u64;
    }
    Ok(hash.finish())
}
