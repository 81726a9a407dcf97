//! Checksums: CRC-32C for batches, headers and records that a torn write can break; XXH3 for whole segments and values.
//!
//! Rules: F4 a checksum is computed over the stored bytes and seeded with what the bytes belong to, so that intact
//! bytes of another place do not pass. FZ3 in a build for fuzzing every checksum is one number, so that changed bytes pass; hashes that
//! only spread keys (`xxh3`) stay what they are.

use crc_fast::{CrcAlgorithm, checksum};

/// What everything hashes to under a fuzzer; not zero, or the zeros of unused room would pass for a frame.
const FUZZED: u64 = 0xc0de_c0de_c0de_c0de;

/// CRC-32C (Castagnoli) of `bytes`, xored with a 32-bit image of `seed`; seed 0 gives the plain CRC.
#[inline]
pub fn crc32c(seed: u64, bytes: &[u8]) -> u32 {
    if cfg!(fuzzing) {
        return FUZZED as u32;
    }
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    // Seeds are small neighbouring numbers; the multiplication spreads them, so that the images of two segments differ
    // in many bits and no short error burst turns one into the other.
    let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    crc ^ (mix >> 32) as u32 ^ mix as u32
}

/// XXH3 of `bytes`.
#[inline]
pub fn xxh3(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// XXH3 over bytes that come in pieces.
#[derive(Clone, Default)]
pub struct RunningHash(xxhash_rust::xxh3::Xxh3);

impl RunningHash {
    /// Nothing hashed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of everything added.
    pub fn finish(&self) -> u64 {
        if cfg!(fuzzing) {
            return FUZZED;
        }
        self.0.digest()
    }
}

impl std::fmt::Debug for RunningHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunningHash({:016x})", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_ne!(crc32c(1, b"123456789"), crc32c(2, b"123456789"));
        let mut running = RunningHash::new();
        running.update(b"abc");
        running.update(b"def");
        assert_eq!(running.finish(), xxh3(b"abcdef"));
    }
}
