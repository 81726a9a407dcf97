//! Disk and DiskFile: the contract with the medium.
//!
//! What the medium must guarantee (docs/durability.md): bytes written and then synced come back after a power cut; of
//! bytes written and not synced any subset of 512-byte sectors may be there; a sector is old or new, never mixed; a
//! file's name is there after `sync_dir`; a sync that fails is never made good by another one.
//! Rules: P1 nothing above writes a byte range of a segment twice; implementations used in tests check it.

use pbxt_base::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Room is given back in blocks of so many bytes. Where the file system's blocks are larger, those that are not given
/// back as a whole keep their room.
pub const GIVE_BACK_BYTES: u64 = 4096;

/// Held for as long as this process uses the directory.
pub type DiskLock = Box<dyn Any + Send + Sync>;

/// One directory with files under flat names.
pub trait Disk: Send + Sync + Debug {
    /// The directory, for messages.
    fn location(&self) -> String;
    /// Creates a file of `preallocate` zero bytes; fails if it exists. A full disk is `NoSpace` and leaves no file.
    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>>;
    /// The same with room for all bytes but these, whose borders are multiples of `GIVE_BACK_BYTES`: `take_room` sets it aside before they are
    /// written (rule D38). Who cannot do it sets room aside for all.
    fn create_lacking(&self, name: &str, bytes: u64, lacking: Range<u64>) -> Result<Arc<dyn DiskFile>> {
        let _ = lacking;
        self.create(name, bytes)
    }
    /// Opens an existing file.
    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>>;
    /// Opens a file that is finished and will be read block by block, many of them at once: past the system's page cache
    /// where the medium can.
    fn open_blocks(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open(name, false)
    }
    /// Opens an existing file for whoever compares what the medium has with what was written: past the system's page cache where the
    /// medium can, and what that has of the file stays there.
    fn open_past_cache(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open(name, false)
    }
    /// Opens an existing file, which was preallocated, for the one who writes it upwards and syncs often.
    fn open_log(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open(name, true)
    }
    /// How `open_log` writes, as a sentence without a subject: "past the page cache ...".
    fn log_writes(&self) -> String {
        "as everything else".into()
    }
    /// How `open_blocks` reads, as a sentence without a subject: "past the page cache ...".
    fn block_reads(&self) -> String {
        "one at a time".into()
    }
    /// Removes a file; durable after `sync_dir`.
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file, replacing `to`; durable after `sync_dir`.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// True if the file exists.
    fn exists(&self, name: &str) -> Result<bool>;
    /// The first bytes of an existing file, so many or all there are, as they stand on the medium: what they mean is not asked.
    fn first_bytes(&self, name: &str, bytes: usize) -> Result<Vec<u8>> {
        let file = self.open(name, false)?;
        let mut first = vec![0; file.len()?.min(bytes as u64) as usize];
        file.read_at(&mut first, 0)?;
        Ok(first)
    }
    /// Bytes of an existing file.
    fn size(&self, name: &str) -> Result<u64> {
        self.open(name, false)?.len()
    }
    /// Bytes an existing file takes on the medium: at most `size`, less where room was given back.
    fn room(&self, name: &str) -> Result<u64> {
        self.size(name)
    }
    /// All names, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, removals and renames durable.
    fn sync_dir(&self) -> Result<()>;
    /// Takes the exclusive lock file; `Locked` names the process that has it.
    fn lock(&self, name: &str) -> Result<DiskLock>;
    /// Bytes free on the medium.
    fn free_bytes(&self) -> Result<u64>;
    /// True if every file that is made from now on is encrypted.
    fn encrypts_new_files(&self) -> bool {
        false
    }
    /// True if a file that is made now would be encrypted as this one is: with the same version of the same key, or not at all.
    fn is_as_new_files(&self, name: &str) -> Result<bool> {
        let _ = name;
        Ok(true)
    }
    /// From now on every file that is made is encrypted (rule EN18); those that are there stay as they are.
    ///
    /// # Errors
    /// `NoKey` where there is no key for it; nothing has changed then.
    fn encrypt_new_files(&self) -> Result<()> {
        Err(Error::NoKey {
            path: self.location(),
            key_id: 0,
            why: "no keys were given: open the directory through an EncryptedDisk that has them".into(),
        })
    }
}

/// One of the reads of a batch.
#[derive(Debug)]
pub struct ReadRequest<'b> {
    /// Where in the file.
    pub offset: u64,
    /// All of it is filled.
    pub buf: &'b mut [u8],
}

/// One open file. May be shared by threads.
pub trait DiskFile: Send + Sync + Debug {
    /// Name, for messages.
    fn name(&self) -> &str;
    /// Bytes.
    fn len(&self) -> Result<u64>;
    /// True if the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills all of `buf`; a shorter file is an error.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Fills the buffers of all requests, which the medium may answer side by side. After an error, which names the place of
    /// one that failed, nothing is known of the others.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        for request in requests {
            self.read_at(request.buf, request.offset)?;
        }
        Ok(())
    }
    /// Writes all of `buf`.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Writes all of `buf`, of which a sync will follow at once: past the system's page cache where the medium can. Place and
    /// length are whole sectors.
    fn write_sectors_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
    }
    /// Makes everything written durable. Never called again after it failed.
    fn sync_data(&self) -> Result<()>;
    /// These bytes were written and will be synced with others before long: the medium may begin with them now. Nothing is promised; a
    /// failure is told by the sync.
    fn begin_write_back(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Sets room aside for bytes whose room was given back, and on which nothing was written since (rule D38). A full disk is `NoSpace` and
    /// changes nothing.
    fn take_room(&self, range: Range<u64>) -> Result<()> {
        let _ = range;
        Ok(())
    }
    /// Gives the room of these bytes back; they read as zeros from now on (contract M8). Borders are multiples of
    /// `GIVE_BACK_BYTES`. Says false, and changes nothing, if the medium cannot.
    fn give_back(&self, range: Range<u64>) -> Result<bool> {
        let _ = range;
        Ok(false)
    }
}
