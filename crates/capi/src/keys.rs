//! Keys: the host's keys behind the trait of crate io, and the disk that uses them.
//!
//! Why it exists: a host has its own way to keep keys; the engine asks for one by number and version.
//! Rules: EN10, EN12, EN13, EN17 of docs/encryption.md. A database of which no file is encrypted has a disk of this kind that stands by;
//! none at all if no table can ask for encryption either.

use pbxt::{Error, file_kind};
use pbxt_io::{Disk, EncryptedDisk, FileKind, KeySource, NoKeys, SecretKey};
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// `PBXT_NO_KEY_VERSION`.
const NO_KEY_VERSION: u32 = u32::MAX;
/// `PBXT_KEY_BYTES_MAX`.
const KEY_BYTES_MAX: u32 = 256;

type LatestVersion = unsafe extern "C" fn(u32) -> u32;
type Key = unsafe extern "C" fn(u32, u32, *mut u8, *mut u32) -> i32;

/// `pbxt_keys`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtKeys {
    pub latest_version: LatestVersion,
    pub key: Key,
    pub remedy: *const c_char,
}

/// The table of a host, kept.
#[derive(Debug)]
struct HostKeys {
    latest_version: LatestVersion,
    key: Key,
    remedy: String,
}

impl KeySource for HostKeys {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        // SAFETY: the host's function, which takes a plain number.
        let version = unsafe { (self.latest_version)(key_id) };
        (version != NO_KEY_VERSION).then_some(version)
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        // Of its full size from the beginning, so that no copy is left where it grew; all of it is wiped.
        let mut bytes = vec![0; KEY_BYTES_MAX as usize];
        let mut len = KEY_BYTES_MAX;
        // SAFETY: the host's function. It writes at most `len` bytes, which is what `bytes` has, and the number of them.
        let refused = unsafe { (self.key)(key_id, version, bytes.as_mut_ptr(), &raw mut len) };
        bytes.truncate(len as usize);
        let key = SecretKey::new(bytes);
        (refused == 0 && len <= KEY_BYTES_MAX).then_some(key)
    }

    fn remedy(&self) -> String {
        self.remedy.clone()
    }
}

/// Which new files are encrypted, and the number of the key for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewFiles {
    /// None, and no table can ask for it.
    Plain,
    /// All while there is a table that asks for it (rule EN17).
    AsTablesAsk(u32),
    /// All.
    Encrypted(u32),
}

/// What stands before the disk, if any file is encrypted or may come to be. Refuses where a key is missing or another one: of a file, or
/// for new ones if they are all to be encrypted.
///
/// # Safety
/// `keys` is null, or a table with all its functions and a string that ends with a zero.
pub(crate) unsafe fn encryption(
    disk: Arc<dyn Disk>,
    keys: *const PbxtKeys,
    new_files: NewFiles,
) -> Result<Option<EncryptedDisk>, Error> {
    // SAFETY: by the contract above.
    let source: Arc<dyn KeySource> = match unsafe { keys.as_ref() } {
        None => Arc::new(NoKeys {
            remedy: "this program has no keys".into(),
        }),
        Some(table) => Arc::new(HostKeys {
            latest_version: table.latest_version,
            key: table.key,
            // SAFETY: by the contract above.
            remedy: unsafe { CStr::from_ptr(table.remedy) }
                .to_string_lossy()
                .into_owned(),
        }),
    };
    let all = match new_files {
        NewFiles::Encrypted(key_id) => Some(key_id),
        NewFiles::Plain | NewFiles::AsTablesAsk(_) => None,
    };
    let mut encrypted = EncryptedDisk::new(disk, source, all)?;
    let files = encrypted.check_keys(|name| file_kind(name) != FileKind::Other)?;
    if let NewFiles::AsTablesAsk(key_id) = new_files {
        encrypted = encrypted.with_key(key_id);
    }
    if files == 0 {
        encrypted = encrypted.standing_by();
    }
    Ok((files > 0 || new_files != NewFiles::Plain).then_some(encrypted))
}
