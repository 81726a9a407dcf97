//! Encryption header: how an encrypted file begins.
//!
//! Why it exists: a file says by itself whether it is encrypted, with which key, and whether a key is the right one, so files of both
//! kinds, and of several keys, stand side by side.
//! Format: docs/encryption.md#format.
//! Rules: EN2 the first bytes decide. EN4 it is one sector, so that a power cut leaves all of it or nothing, and has a page of its
//! own, so that what is aligned in the file stays aligned on the medium.
//! After a crash: a file whose header did not reach the medium has zeros there and reads as a plain file that nobody has written to.

use crate::file_cipher::{CHECK_BYTES, SALT_BYTES};
use pbxt_base::codec::{get_u32, get_u64, put_u32, put_u64};
use pbxt_base::limits::SECTOR_BYTES;
use pbxt_base::{Error, Result, checksum};

/// Bytes of the file before its content.
pub(crate) const HEADER_BYTES: u64 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"PBXTENC1");
const VERSION: u32 = 1;
/// AES-256-XTS in sectors of 512 bytes, keys by HKDF-SHA-256.
const CIPHER: u32 = 1;
const SALT_AT: usize = 24;
const CHECK_AT: usize = SALT_AT + SALT_BYTES;
const CRC_AT: usize = SECTOR_BYTES - 4;

/// What an encrypted file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EncryptionHeader {
    pub(crate) key_id: u32,
    pub(crate) key_version: u32,
    /// Random; no other file has the same.
    pub(crate) salt: [u8; SALT_BYTES],
    /// Made from key and salt.
    pub(crate) check: [u8; CHECK_BYTES],
}

impl EncryptionHeader {
    /// The header's sector.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u32(&mut bytes, 12, CIPHER);
        put_u32(&mut bytes, 16, self.key_id);
        put_u32(&mut bytes, 20, self.key_version);
        bytes[SALT_AT..][..SALT_BYTES].copy_from_slice(&self.salt);
        bytes[CHECK_AT..][..CHECK_BYTES].copy_from_slice(&self.check);
        let crc = checksum::crc32c(MAGIC, &bytes[..CRC_AT]);
        put_u32(&mut bytes, CRC_AT, crc);
        bytes
    }

    /// Reads the first sector of a file; `None` if the file is not encrypted.
    pub(crate) fn decode(bytes: &[u8], file: &str) -> Result<Option<Self>> {
        if bytes.len() < SECTOR_BYTES || get_u64(bytes, 0) != MAGIC {
            return Ok(None);
        }
        let damaged = |offset: usize, expected: String, found: String| Error::Corrupt {
            file: file.to_owned(),
            offset: offset as u64,
            expected,
            found,
        };
        let (crc, stored) = (checksum::crc32c(MAGIC, &bytes[..CRC_AT]), get_u32(bytes, CRC_AT));
        if crc != stored {
            return Err(damaged(
                CRC_AT,
                format!("checksum {crc:08x} of the encryption header"),
                format!("{stored:08x}"),
            ));
        }
        let (version, cipher) = (get_u32(bytes, 8), get_u32(bytes, 12));
        if version != VERSION {
            return Err(Error::WrongVersion {
                file: format!("{file} (encryption header)"),
                found: version,
                expected: VERSION,
            });
        }
        if cipher != CIPHER {
            return Err(damaged(
                12,
                format!("cipher {CIPHER}"),
                format!("cipher {cipher}, which this version does not know"),
            ));
        }
        let mut header = Self {
            key_id: get_u32(bytes, 16),
            key_version: get_u32(bytes, 20),
            salt: [0; SALT_BYTES],
            check: [0; CHECK_BYTES],
        };
        header.salt.copy_from_slice(&bytes[SALT_AT..][..SALT_BYTES]);
        header.check.copy_from_slice(&bytes[CHECK_AT..][..CHECK_BYTES]);
        Ok(Some(header))
    }

    /// Error for a file whose key is not there, or is not the one.
    pub(crate) fn refusal(&self, file: &str, why: String) -> Error {
        Error::Encrypted {
            file: file.to_owned(),
            key_id: self.key_id,
            version: self.key_version,
            why,
        }
    }
}

/// True if these first bytes are those of a file that an `EncryptedDisk` has made.
pub fn bears_mark_of_encryption(bytes: &[u8]) -> bool {
    bytes.len() >= size_of::<u64>() && get_u64(bytes, 0) == MAGIC
}

/// Refuses the first bytes of a file that is encrypted, for readers that were given no keys: what they would find is no damage.
pub fn refuse_encrypted(bytes: &[u8], file: &str) -> Result<()> {
    match EncryptionHeader::decode(bytes, file)? {
        None => Ok(()),
        Some(header) => Err(header.refusal(
            file,
            "no keys were given: open the directory through an EncryptedDisk that has them".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> EncryptionHeader {
        EncryptionHeader {
            key_id: 0x0102_0304,
            key_version: 7,
            salt: std::array::from_fn(|at| at as u8 + 1),
            check: std::array::from_fn(|at| at as u8 + 0xc0),
        }
    }

    #[test]
    fn header_bytes_are_as_the_format_says() {
        let bytes = header().encode();
        assert_eq!(bytes.len(), SECTOR_BYTES);
        assert_eq!(&bytes[..8], b"PBXTENC1");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[16..24], [4, 3, 2, 1, 7, 0, 0, 0]);
        assert_eq!(bytes[24..56], (1..=32).collect::<Vec<u8>>());
        assert_eq!(bytes[56..72], (0xc0..0xd0).collect::<Vec<u8>>());
        assert!(bytes[72..508].iter().all(|byte| *byte == 0));
        let crc = checksum::crc32c(u64::from_le_bytes(*b"PBXTENC1"), &bytes[..508]);
        assert_eq!(bytes[508..], crc.to_le_bytes());
        let back = EncryptionHeader::decode(&bytes, "f").expect("whole");
        assert_eq!(back, Some(header()));
    }

    #[test]
    fn every_flipped_bit_is_found_or_makes_it_no_header() {
        let whole = header().encode();
        for bit in 0..8 * SECTOR_BYTES {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match EncryptionHeader::decode(&bytes, "f") {
                Ok(None) => assert!(bit < 64, "bit {bit}"),
                Ok(Some(_)) => panic!("bit {bit} makes no difference"),
                Err(error) => assert!(error.to_string().contains("'f' is damaged at offset"), "{error}"),
            }
        }
    }

    #[test]
    fn later_versions_and_ciphers_are_refused_by_name() {
        for (at, word) in [(8, "version 2"), (12, "cipher 2")] {
            let mut bytes = header().encode();
            put_u32(&mut bytes, at, 2);
            let crc = checksum::crc32c(MAGIC, &bytes[..CRC_AT]);
            put_u32(&mut bytes, CRC_AT, crc);
            let refused = EncryptionHeader::decode(&bytes, "f")
                .expect_err("unknown")
                .to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn readers_without_keys_are_told_which_key_the_file_has() {
        refuse_encrypted(b"PBXTMAN1", "f").expect("not encrypted");
        let refused = refuse_encrypted(&header().encode(), "f").expect_err("encrypted");
        assert!(
            refused
                .to_string()
                .starts_with("'f' is encrypted with version 7 of key 16909060: no keys were given"),
            "{refused}"
        );
    }
}
