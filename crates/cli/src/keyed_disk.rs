//! Keyed disk: a directory of the operating system, read with the keys that the command line names.
//!
//! Why it exists: every command meets encrypted files, and none should know: they open directories here.
//! Rules: EN16 of docs/encryption.md. Without keys plain files are read, and encrypted ones are refused with the number of their key and
//! with what to do.
//! State: the keys of the process, given once, before anything is opened.

use crate::failure::{Failure, Outcome};
use pbxt_base::{Error, Result};
use pbxt_io::{Disk, EncryptedDisk, KeyFile, KeySource, NoKeys, OsDisk};
use std::path::Path;
use std::sync::{Arc, OnceLock};

static KEYS: OnceLock<Arc<dyn KeySource>> = OnceLock::new();

/// Reads the file of keys, if one was named.
pub(crate) fn use_keys(file: Option<&Path>) -> Outcome<()> {
    if let Some(file) = file {
        let keys: Arc<dyn KeySource> = Arc::new(KeyFile::open(file).map_err(refusal)?);
        KEYS.get_or_init(|| keys);
    }
    Ok(())
}

/// A file of keys that is none says nothing of the database, and no backup of it helps.
fn refusal(error: Error) -> Failure {
    match error {
        Error::Corrupt {
            file,
            offset,
            expected,
            found,
        } => Failure::Usage(format!(
            "'{file}' is no file of keys: expected {expected} at offset {offset}, found {found}"
        )),
        other => Failure::Usage(other.to_string()),
    }
}

/// A directory, for reading.
pub(crate) fn open(directory: &Path) -> Result<Arc<dyn Disk>> {
    let none = || -> Arc<dyn KeySource> {
        let remedy = "name a file that has it with --key-file".into();
        Arc::new(NoKeys { remedy })
    };
    let keys = KEYS.get().cloned().unwrap_or_else(none);
    let real = Arc::new(OsDisk::open(directory, false)?);
    Ok(Arc::new(EncryptedDisk::new(real, keys, None)?))
}
