//! Manifests: the two manifest files of a directory, each by itself, and which of them counts.
//!
//! Why it exists: an opening says only that it refuses; here is shown what each file says, and why one of them decides.
//! Format: docs/format.md#manifest. The decoder is that of crate segment, see `main`.
//! Rules: F10 the file that is not superseded counts. F11 only the last append may be torn.

use crate::failure::is_unread;
use crate::manifest_file::{Decoded, Facts, decode, encode_image, read_whole};
use pbxt_base::{Error, Result};
use pbxt_io::Disk;

/// Names of the files: even generations, odd generations.
pub(crate) const NAMES: [&str; 2] = ["pbxt.manifest.a", "pbxt.manifest.b"];
/// A generation that stands under the first name.
const GENERATION_SHOWN: u64 = 2;

/// One file as it was found.
#[derive(Debug)]
pub(crate) enum ManifestFile {
    Missing,
    Whole(Box<Decoded>),
    Unreadable(Error),
    /// Nobody knows what it holds: there is no key for it, or no right to read it.
    Unread(Error),
}

/// Both files.
#[derive(Debug)]
pub(crate) struct Manifests {
    pub(crate) files: [ManifestFile; 2],
}

/// Which file counts, and why; no facts if none does.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) counts: Option<usize>,
    pub(crate) why: String,
}

impl Manifests {
    /// Reads both; errors only if the medium fails.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Self> {
        Ok(Self {
            files: [read(disk, 0)?, read(disk, 1)?],
        })
    }

    /// True if there is a file of either name.
    pub(crate) fn are_there(&self) -> bool {
        !self
            .files
            .iter()
            .all(|file| matches!(file, ManifestFile::Missing))
    }

    /// What the file that counts says.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.whole(self.verdict().counts?).map(|decoded| &decoded.facts)
    }

    pub(crate) fn whole(&self, index: usize) -> Option<&Decoded> {
        match &self.files[index] {
            ManifestFile::Whole(decoded) => Some(decoded),
            ManifestFile::Missing | ManifestFile::Unreadable(_) | ManifestFile::Unread(_) => None,
        }
    }

    /// Judges as an opening does (F10).
    pub(crate) fn verdict(&self) -> Verdict {
        let none = |why: String| Verdict { counts: None, why };
        let generation = |index| self.whole(index).map(|decoded| decoded.generation);
        let newer = usize::from(generation(1) > generation(0));
        let other = 1 - newer;
        let is_unread = |index: usize| matches!(self.files[index], ManifestFile::Unread(_));
        let Some(newest) = self.whole(newer) else {
            if is_unread(newer) || is_unread(other) {
                return none(
                    "no manifest could be looked at, so nobody can say which files there have to be".into(),
                );
            }
            return none("neither file can be read: restore the directory from a backup".into());
        };
        let (name, number) = (NAMES[newer], newest.generation);
        if let Some(older) = self
            .whole(other)
            .filter(|older| older.facts.uuid != newest.facts.uuid)
        {
            let (a, b) = (older.facts.uuid, newest.facts.uuid);
            return none(format!(
                "the files belong to two databases, {a:032x} and {b:032x}: restore the right one from a backup"
            ));
        }
        if let Some(successor) = newest.facts.superseded {
            if is_unread(other) {
                return none(format!(
                    "'{name}' was superseded by generation {successor}, and '{}' could not be looked at",
                    NAMES[other]
                ));
            }
            return none(format!(
                "'{name}' was superseded by generation {successor}, and '{}' is not that: restore it from a backup",
                NAMES[other]
            ));
        }
        let why = match &self.files[other] {
            ManifestFile::Missing => {
                format!("'{name}' counts: there is no other file, and it is not superseded")
            }
            ManifestFile::Unreadable(_) | ManifestFile::Unread(_) => format!(
                "'{name}' counts: generation {number} is not superseded, so what '{}' holds is older, or was being made \
                 when the power failed",
                NAMES[other]
            ),
            ManifestFile::Whole(older) => match older.facts.superseded {
                Some(_) => format!(
                    "'{name}' counts: '{}' of generation {} says that generation {number} supersedes it",
                    NAMES[other], older.generation
                ),
                None => format!(
                    "'{name}' counts: generation {number} is greater than {}; the power failed before '{}' could say \
                     that it is superseded, which the next opening makes good",
                    older.generation, NAMES[other]
                ),
            },
        };
        Verdict {
            counts: Some(newer),
            why,
        }
    }
}

/// A manifest that says exactly `facts`: name and bytes.
pub(crate) fn made_of(facts: &Facts) -> (&'static str, Vec<u8>) {
    let index = (GENERATION_SHOWN % 2) as usize;
    (NAMES[index], encode_image(facts, GENERATION_SHOWN))
}

/// All bytes of a manifest file.
pub(crate) fn bytes_of(disk: &dyn Disk, name: &str) -> Result<Vec<u8>> {
    read_whole(&*disk.open(name, false)?)
}

fn read(disk: &dyn Disk, index: usize) -> Result<ManifestFile> {
    let name = NAMES[index];
    if !disk.exists(name)? {
        return Ok(ManifestFile::Missing);
    }
    let full = format!("{}/{name}", disk.location());
    match bytes_of(disk, name).and_then(|bytes| decode(&bytes, &full)) {
        Ok(decoded) if decoded.generation % 2 == index as u64 => Ok(ManifestFile::Whole(Box::new(decoded))),
        Ok(decoded) => Ok(ManifestFile::Unreadable(Error::Corrupt {
            file: full,
            offset: 32,
            expected: format!("a generation for '{name}'"),
            found: format!("generation {}", decoded.generation),
        })),
        Err(error @ (Error::Corrupt { .. } | Error::WrongVersion { .. })) => {
            Ok(ManifestFile::Unreadable(error))
        }
        Err(error) if is_unread(&error) => Ok(ManifestFile::Unread(error)),
        Err(error) => Err(error),
    }
}
