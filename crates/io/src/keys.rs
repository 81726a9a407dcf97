//! Keys: where the keys of encrypted files come from, and who may see them.
//!
//! Why it exists: keys belong to whoever embeds the engine, a key management plugin of the server or a file beside a tool; this floor
//! asks for one by number and version.
//! Rules: EN3 a key has versions, and the newest is asked for when a file is made. EN13 a key is wiped when it is dropped, and no
//! error, log line or `Debug` output shows a byte of it (docs/encryption.md).
//! Latches and I/O: a source may do what it likes, it is asked when a file is made or met for the first time; `KeyFile` reads its file
//! once.

use pbxt_base::{Error, Result};
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::Path;
use zeroize::Zeroizing;

/// Bytes that a key has at least.
pub(crate) const KEY_BYTES_MIN: usize = 16;
/// Version of every key of a file of keys, which knows no others.
const ONLY_VERSION: u32 = 1;
/// Bytes that a file of keys has at most, here as in the server's plugin: a device that never ends is none.
const FILE_BYTES_MAX: usize = 1 << 20;
/// How files begin that OpenSSL has encrypted.
const OPENSSL_MARK: &[u8] = b"Salted__";

/// The bytes of a key. Wiped when dropped, and never shown.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<Vec<u8>>);

impl SecretKey {
    /// Takes the bytes over. What was there before them, in buffers of the caller, is the caller's to wipe.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(not shown)")
    }
}

/// Whoever has the keys.
pub trait KeySource: Send + Sync + fmt::Debug {
    /// The newest version of a key; `None` if there is no such key now.
    fn latest_version(&self, key_id: u32) -> Option<u32>;
    /// A key of that version; `None` if there is none now. At least 16 bytes.
    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey>;
    /// What to do where a key is missing, as the end of a sentence: "load the plugin that has it, then start again".
    fn remedy(&self) -> String;
}

/// No keys at all.
#[derive(Debug)]
pub struct NoKeys {
    /// See `KeySource::remedy`.
    pub remedy: String,
}

impl KeySource for NoKeys {
    fn latest_version(&self, _: u32) -> Option<u32> {
        None
    }

    fn key(&self, _: u32, _: u32) -> Option<SecretKey> {
        None
    }

    fn remedy(&self) -> String {
        self.remedy.clone()
    }
}

/// Keys from a file of lines `number;hexadecimal bytes`, as the server's plugin file_key_management reads it; `#` begins a comment.
#[derive(Debug)]
pub struct KeyFile {
    path: String,
    keys: HashMap<u32, SecretKey>,
}

impl KeyFile {
    /// Reads all keys of the file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        match text_of(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(source) => Err(Error::Io {
                file,
                op: "read",
                source,
            }),
        }
    }

    fn parse(text: &[u8], path: &str) -> Result<Self> {
        let damaged = |offset: usize, expected: &str, found: &str| Error::Corrupt {
            file: path.to_owned(),
            offset: offset as u64,
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        if text.len() > FILE_BYTES_MAX {
            return Err(damaged(FILE_BYTES_MAX, "the end of the file", "more of it"));
        }
        if text.starts_with(OPENSSL_MARK) {
            return Err(damaged(
                0,
                "lines of keys that can be read",
                "a file that OpenSSL has encrypted: decrypt it with 'openssl enc -d' and name the result",
            ));
        }
        let (mut keys, mut offset) = (HashMap::new(), 0);
        for line in text.split(|byte| *byte == b'\n') {
            let wanted = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let wanted = wanted.trim_ascii();
            if !wanted.is_empty() {
                // What was found is not repeated: it may be a key (EN13).
                let (number, key) = key_of(wanted)
                    .ok_or_else(|| damaged(offset, "a line 'number;hexadecimal bytes'", "another line"))?;
                if keys.insert(number, key).is_some() {
                    return Err(damaged(
                        offset,
                        "a key of each number",
                        &format!("key {number} again"),
                    ));
                }
            }
            offset += line.len() + 1;
        }
        let path = path.to_owned();
        Ok(Self { path, keys })
    }
}

/// The file, or one byte more of it than it may have.
fn text_of(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // Of its full size from the beginning, as in `key_of`.
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    let limit = FILE_BYTES_MAX as u64 + 1;
    std::fs::File::open(path)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

fn key_of(line: &[u8]) -> Option<(u32, SecretKey)> {
    let at = line.iter().position(|byte| *byte == b';')?;
    let number: u32 = std::str::from_utf8(line[..at].trim_ascii()).ok()?.parse().ok()?;
    let digits = line[at + 1..].trim_ascii();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !digits.len().is_multiple_of(2) || digits.len() < 2 * KEY_BYTES_MIN {
        return None;
    }
    // Of its full size from the beginning: a buffer that grows would leave copies behind. Wiped too where a digit ends it (EN13).
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        bytes.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    }
    Some((number, SecretKey(bytes)))
}

impl KeySource for KeyFile {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        self.keys.contains_key(&key_id).then_some(ONLY_VERSION)
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        self.keys
            .get(&key_id)
            .filter(|_| version == ONLY_VERSION)
            .cloned()
    }

    fn remedy(&self) -> String {
        format!("'{}' must have the key that the file was written with", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "# keys of a test\n1;000102030405060708090a0b0c0d0e0f\n\n 7 ; A1a2A3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8  # the other\n";

    #[test]
    fn a_file_of_keys_is_read_as_the_server_reads_it() {
        let keys = KeyFile::parse(KEYS.as_bytes(), "keys").expect("keys");
        let bytes = |id, version| keys.key(id, version).map(|key| key.bytes().to_vec());
        assert_eq!(bytes(1, 1), Some((0..16).collect()));
        assert_eq!(bytes(7, 1), Some((0xa1..0xb9).collect()));
        assert_eq!((bytes(1, 2), bytes(2, 1)), (None, None));
        assert_eq!((keys.latest_version(7), keys.latest_version(2)), (Some(1), None));
    }

    #[test]
    fn what_is_no_key_is_refused_by_its_place_and_not_shown() {
        for (text, place) in [
            ("1;00", 0),
            ("# a\none;000102030405060708090a0b0c0d0e0f", 4),
            ("1;000102030405060708090a0b0c0d0e0g", 0),
            ("1;000102030405060708090a0b0c0d0e0", 0),
            ("1:000102030405060708090a0b0c0d0e0f", 0),
            (
                "1;000102030405060708090a0b0c0d0e0f\n1;000102030405060708090a0b0c0d0e0f",
                35,
            ),
            ("Salted__0123", 0),
        ] {
            let refused = KeyFile::parse(text.as_bytes(), "keys")
                .expect_err(text)
                .to_string();
            assert!(
                refused.contains(&format!("'keys' is damaged at offset {place}:")),
                "{refused}"
            );
            assert!(!refused.contains("0405"), "EN13: {refused}");
        }
    }

    #[test]
    fn a_file_that_does_not_end_is_no_file_of_keys() {
        let refused = KeyFile::open(Path::new("/dev/zero")).expect_err("zeros");
        let place = "'/dev/zero' is damaged at offset 1048576: expected the end of the file";
        assert!(refused.to_string().contains(place), "{refused}");
        let mut longest = KEYS.as_bytes().to_vec();
        longest.resize(FILE_BYTES_MAX, b'#');
        assert_eq!(
            KeyFile::parse(&longest, "keys").map(|keys| keys.keys.len()).ok(),
            Some(2)
        );
    }

    #[test]
    fn nothing_shows_a_key() {
        let keys = KeyFile::parse(KEYS.as_bytes(), "keys").expect("keys");
        let shown = format!("{keys:?} {:?}", keys.key(7, 1)).to_lowercase();
        for secret in ["a1a2", "161, 162", "0x0001", "[0, 1"] {
            assert!(!shown.contains(secret), "EN13: {shown}");
        }
    }
}
