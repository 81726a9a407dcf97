//! FileCipher: the cipher of one file: its keys, made from a key of the source and the file's salt, and what they do to sectors.
//!
//! Why it exists: every file has keys of its own, so that no two files, and no two lives of a file of one name, share anything.
//! How: HKDF with SHA-256 (RFC 5869) makes two keys and the check value; AES-256 in XTS mode (IEEE 1619) with them, the data unit a
//! sector of 512 bytes, its number in the file the tweak. A counter mode, which files that are never overwritten seem to invite, would
//! give the stream away as soon as one place of a file is written with two contents: the place of a torn record of the manifest, and
//! every place of a directory that was put back from a copy and went on from there.
//! Rules: EN5, EN6, EN7, EN13 (docs/encryption.md). Known answers are in the tests: of the standards, and one of ours.
//! Latches and I/O: none.

use crate::keys::SecretKey;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use hkdf::Hkdf;
use pbxt_base::invariant;
use pbxt_base::limits::SECTOR_BYTES;
use sha2::Sha256;
use std::fmt;
use zeroize::Zeroizing;

/// Random bytes in a file's header.
pub(crate) const SALT_BYTES: usize = 32;
/// Bytes that tell whether a key is the right one.
pub(crate) const CHECK_BYTES: usize = 16;

const BLOCK_BYTES: usize = 16;
const BLOCKS: usize = SECTOR_BYTES / BLOCK_BYTES;
const KEY_BYTES: usize = 32;
/// What HKDF is told the keys are for.
const PURPOSE: &[u8] = b"PBXT file encryption 1";

/// See the module.
pub(crate) struct FileCipher {
    data: Aes256,
    tweak: Aes256,
}

impl fmt::Debug for FileCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileCipher(not shown)")
    }
}

impl FileCipher {
    /// The cipher of the file with this salt, and the check value that its header has.
    pub(crate) fn derive(key: &SecretKey, salt: &[u8; SALT_BYTES]) -> (Self, [u8; CHECK_BYTES]) {
        let mut made = Zeroizing::new([0_u8; 2 * KEY_BYTES + CHECK_BYTES]);
        Hkdf::<Sha256>::new(Some(salt), key.bytes())
            .expand(PURPOSE, &mut made[..])
            .expect("EN5: HKDF makes up to 8160 bytes");
        let (data, rest) = made.split_at(KEY_BYTES);
        let (tweak, rest) = rest.split_at(KEY_BYTES);
        let mut check = [0; CHECK_BYTES];
        check.copy_from_slice(rest);
        (Self::of_keys(data, tweak), check)
    }

    fn of_keys(data: &[u8], tweak: &[u8]) -> Self {
        let cipher = |key| Aes256::new_from_slice(key).expect("EN5: a key of AES-256 has 32 bytes");
        Self {
            data: cipher(data),
            tweak: cipher(tweak),
        }
    }

    /// Encrypts whole sectors of the file, the first of which has this number.
    pub(crate) fn encrypt(&self, sectors: &mut [u8], first: u64) {
        for (number, sector) in (first..).zip(whole(sectors)) {
            self.exchange(sector, number, |blocks| self.data.encrypt_blocks(blocks));
        }
    }

    /// Decrypts whole sectors of the file. Sectors of zeros were never written, and stay so (EN7).
    pub(crate) fn decrypt(&self, sectors: &mut [u8], first: u64) {
        for (number, sector) in (first..).zip(whole(sectors)) {
            if sector.iter().any(|byte| *byte != 0) {
                self.exchange(sector, number, |blocks| self.data.decrypt_blocks(blocks));
            }
        }
    }

    /// The mode itself: each block is xored with its tweak, exchanged, and xored again.
    fn exchange(&self, sector: &mut [u8], number: u64, cipher: impl Fn(&mut [Block])) {
        let tweaks = self.tweaks(number);
        let mut blocks = [Block::default(); BLOCKS];
        for ((block, bytes), tweak) in blocks
            .iter_mut()
            .zip(sector.chunks_exact(BLOCK_BYTES))
            .zip(&tweaks)
        {
            *block = Block::from((word(bytes) ^ tweak).to_le_bytes());
        }
        cipher(&mut blocks);
        for ((block, bytes), tweak) in blocks
            .iter()
            .zip(sector.chunks_exact_mut(BLOCK_BYTES))
            .zip(&tweaks)
        {
            bytes.copy_from_slice(&(word(&block[..]) ^ tweak).to_le_bytes());
        }
    }

    /// One tweak a block: that of the first is the encrypted number of the sector, each further one is twice the one before, in
    /// the field of 2^128 elements.
    fn tweaks(&self, number: u64) -> [u128; BLOCKS] {
        let mut first = Block::from(u128::from(number).to_le_bytes());
        self.tweak.encrypt_block(&mut first);
        let mut next = word(&first[..]);
        std::array::from_fn(|_| {
            let tweak = next;
            next = (tweak << 1) ^ ((tweak >> 127) * 0x87);
            tweak
        })
    }
}

fn whole(sectors: &mut [u8]) -> std::slice::ChunksExactMut<'_, u8> {
    invariant!(
        sectors.len().is_multiple_of(SECTOR_BYTES),
        "EN6: the unit of encryption is a sector"
    );
    sectors.chunks_exact_mut(SECTOR_BYTES)
}

fn word(block: &[u8]) -> u128 {
    let mut bytes = [0; BLOCK_BYTES];
    bytes.copy_from_slice(block);
    u128::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks_exact(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits"))
            .collect()
    }

    fn counting() -> Vec<u8> {
        (0..SECTOR_BYTES).map(|at| at as u8).collect()
    }

    #[test]
    fn the_mode_gives_what_the_standard_says() {
        // IEEE 1619-2007, annex B, vector 10.
        let cipher = FileCipher::of_keys(
            &bytes_of("2718281828459045235360287471352662497757247093699959574966967627"),
            &bytes_of("3141592653589793238462643383279502884197169399375105820974944592"),
        );
        let mut sector = counting();
        cipher.encrypt(&mut sector, 0xff);
        let begin = bytes_of("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b");
        assert_eq!(sector[..32], begin);
        assert_eq!(sector[496..], bytes_of("c4f36ffda9fcea70b9c6e693e148c151"));
        cipher.decrypt(&mut sector, 0xff);
        assert_eq!(sector, counting());
    }

    #[test]
    fn keys_of_a_file_are_as_the_format_says() {
        // Made by HMAC and AES of others: Python's hmac, and a table of AES after FIPS 197.
        let salt: [u8; SALT_BYTES] = std::array::from_fn(|at| at as u8 + 100);
        let (cipher, check) = FileCipher::derive(&SecretKey::new((0..32).collect()), &salt);
        assert_eq!(check[..], bytes_of("3227ee2a037d6e5ee212ff9f61a6a094"));
        let mut sector: Vec<u8> = (0..SECTOR_BYTES).map(|at| (at * 31) as u8).collect();
        cipher.encrypt(&mut sector, 7);
        assert_eq!(sector[..16], bytes_of("698daf6208f446f641e4a13af33f29bd"));
        assert_eq!(sector[496..], bytes_of("25baafc8af66d9359ba5ed602682d8fb"));
    }

    #[test]
    fn the_same_bytes_look_different_at_every_place_and_in_every_file() {
        let key = SecretKey::new(vec![5; 16]);
        let [one, other] = [[1; SALT_BYTES], [2; SALT_BYTES]].map(|salt| FileCipher::derive(&key, &salt).0);
        let mut seen = std::collections::HashSet::new();
        for cipher in [&one, &other] {
            let mut sectors = vec![7; 8 * SECTOR_BYTES];
            cipher.encrypt(&mut sectors, 3);
            for block in sectors.chunks_exact(BLOCK_BYTES) {
                assert!(seen.insert(block.to_vec()), "EN6");
            }
        }
    }

    #[test]
    fn sectors_of_zeros_stay_zeros_and_written_zeros_do_not_look_so() {
        let cipher = FileCipher::derive(&SecretKey::new(vec![5; 32]), &[0; SALT_BYTES]).0;
        let mut sectors = vec![0; 3 * SECTOR_BYTES];
        cipher.decrypt(&mut sectors, 0);
        assert!(sectors.iter().all(|byte| *byte == 0), "EN7");
        cipher.encrypt(&mut sectors[SECTOR_BYTES..2 * SECTOR_BYTES], 1);
        assert!(
            sectors[SECTOR_BYTES..][..SECTOR_BYTES]
                .iter()
                .any(|byte| *byte != 0)
        );
        cipher.decrypt(&mut sectors, 0);
        assert!(sectors.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn nothing_shows_the_keys_of_a_file() {
        let cipher = FileCipher::derive(&SecretKey::new(vec![5; 32]), &[0; SALT_BYTES]).0;
        assert_eq!(format!("{cipher:?}"), "FileCipher(not shown)", "EN13");
    }
}
