//! Error: what can go wrong with files, formats and the disk, in sentences that say what, where and what to do.
//!
//! Rules: F5 damage names file, offset, what was expected and what was found; nothing is guessed past it.

use std::io;

/// Result of the lower floors.
pub type Result<T> = std::result::Result<T, Error>;

/// What made a database read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoisonCause {
    /// A write or sync failed.
    Disk,
    /// A thread of the engine panicked, and left what it was about half done.
    Panic,
}

impl PoisonCause {
    fn name(self) -> &'static str {
        match self {
            Self::Disk => "a disk failure",
            Self::Panic => "an internal error",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Disk => "check the disk",
            Self::Panic => "please report it",
        }
    }
}

/// A failure of the storage floors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {op} '{file}': {source}")]
    Io {
        /// File or directory.
        file: String,
        /// What was tried, as a verb.
        op: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Bytes are not what was written.
    #[error(
        "'{file}' is damaged at offset {offset}: expected {expected}, found {found}; restore it from a backup"
    )]
    Corrupt {
        /// File.
        file: String,
        /// Byte offset.
        offset: u64,
        /// What had to be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The disk is full.
    #[error("no space left for {what}: free some space and try again")]
    NoSpace {
        /// What needed the space.
        what: String,
    },
    /// Something failed earlier behind which nothing may be written.
    #[error("the database is read-only since {} ({reason}): {}, then restart", .cause.name(), .cause.remedy())]
    Poisoned {
        /// What kind of failure it was.
        cause: PoisonCause,
        /// The first failure.
        reason: String,
    },
    /// Written by another format version.
    #[error(
        "'{file}' has format version {found}, this program reads version {expected}: use a matching PBXT version"
    )]
    WrongVersion {
        /// File.
        file: String,
        /// Version found.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// Another process has the directory open.
    #[error("'{path}' is in use by {holder}: stop it first, or use another directory")]
    Locked {
        /// Lock file.
        path: String,
        /// Who holds it.
        holder: String,
    },
    /// The medium cannot be written, or was opened for reading.
    #[error("'{path}' is on a medium that can only be read: mount it for writing, then try again")]
    ReadOnlyMedia {
        /// Path.
        path: String,
    },
    /// This user has no right to do it.
    #[error(
        "this user may not {op} '{file}' ({source}): look at owner, rights and attributes of the file and of the directories above \
         it, and at what guards the system beside them (SELinux, AppArmor), then try again"
    )]
    Denied {
        /// File or directory.
        file: String,
        /// What was tried, as a verb.
        op: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Something is larger than a limit.
    #[error("{what} takes {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The directory holds something else.
    #[error("'{path}' is not a PBXT database: {why}")]
    NotADatabase {
        /// Path.
        path: String,
        /// What speaks against it.
        why: String,
    },
    /// A setting is out of its bounds.
    #[error("{name} is {value}, expected {expected}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A file is encrypted, and its key is not at hand.
    #[error("'{file}' is encrypted with version {version} of key {key_id}: {why}")]
    Encrypted {
        /// File.
        file: String,
        /// Number of the key.
        key_id: u32,
        /// Its version.
        version: u32,
        /// What is wrong with the key, and what to do.
        why: String,
    },
    /// New files are to be encrypted, and the key for that is not at hand.
    #[error("files in '{path}' are to be encrypted with key {key_id}: {why}")]
    NoKey {
        /// Directory.
        path: String,
        /// Number of the key.
        key_id: u32,
        /// What is wrong with the key, and what to do.
        why: String,
    },
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
}

impl Error {
    /// The same error, naming `file` where it had no name yet.
    #[must_use]
    pub fn in_file(self, name: &str) -> Self {
        match self {
            Self::Corrupt {
                file,
                offset,
                expected,
                found,
            } if file.is_empty() => Self::Corrupt {
                file: name.to_owned(),
                offset,
                expected,
                found,
            },
            other => other,
        }
    }
}
