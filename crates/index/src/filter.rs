//! Filter: says for most keys that a run does not have that they are not there, without a read.
//!
//! Why it exists:    an insert into a unique index asks every run for its key, and nearly always the answer is no.
//! Format / state:   `docs/indexes.md`, filter. A Bloom filter in lines of 64 bytes (blocked Bloom filters: Putze, Sanders
//!                   and Singler, WEA 2007), 10 bits a key; one part for every 64 blocks, so that building one takes
//!                   memory for the keys of 64 blocks only.
//! Rules:            X33 a key that is there is never denied.
//! Latches and I/O:  none.

use pbxt_base::checksum::xxh3;
use pbxt_base::codec::{Reader, put_varint};
use pbxt_base::{Error, Result};

/// Blocks that share a part.
const PART_BLOCKS: usize = 64;
const LINE_BYTES: usize = 64;
const BITS_PER_KEY: usize = 10;
/// Bits of a key; all lie in one line.
const PROBES: usize = 6;

/// A filter being made, key by key and block by block.
#[derive(Default)]
pub(crate) struct FilterBuilder {
    hashes: Vec<u64>,
    blocks: usize,
    /// Bytes up to the end of each finished part.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl FilterBuilder {
    /// Adds a key of the present block; the same key twice in a row costs nothing more.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let hash = key_hash(key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Ends a block.
    pub(crate) fn end_block(&mut self) {
        self.blocks += 1;
        if self.blocks.is_multiple_of(PART_BLOCKS) {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        let lines = (self.hashes.len() * BITS_PER_KEY).div_ceil(8 * LINE_BYTES).max(1);
        let from = self.bytes.len();
        self.bytes.resize(from + lines * LINE_BYTES, 0);
        for hash in self.hashes.drain(..) {
            for (byte, bit) in places(hash, lines) {
                self.bytes[from + byte] |= bit;
            }
        }
        self.ends.push(self.bytes.len());
    }

    /// Appends number of parts, their ends, then the bits.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>) {
        if !self.hashes.is_empty() {
            self.end_part();
        }
        put_varint(out, self.ends.len() as u64);
        for end in &self.ends {
            put_varint(out, *end as u64);
        }
        out.extend_from_slice(&self.bytes);
    }
}

/// Where the parts of a stored filter lie in the bytes it was read from.
#[derive(Debug)]
pub(crate) struct Filter {
    /// Begin of each part, and the end of the last.
    borders: Vec<usize>,
}

impl Filter {
    /// Reads what `finish` wrote at the end of `reader`'s bytes.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Filter> {
        let parts = reader.varint()?;
        let damaged = |reader: &Reader<'_>, found: String| Error::Corrupt {
            file: String::new(),
            offset: reader.position() as u64,
            expected: "the parts of a filter".into(),
            found,
        };
        if parts > reader.rest().len() as u64 {
            return Err(damaged(reader, format!("{parts} of them")));
        }
        let mut ends = Vec::with_capacity(parts as usize);
        for _ in 0..parts {
            ends.push(usize::try_from(reader.varint()?).unwrap_or(usize::MAX));
        }
        let begin = reader.position();
        let left = reader.rest().len();
        let is_whole = |pair: &[usize]| pair[0] < pair[1] && (pair[1] - pair[0]).is_multiple_of(LINE_BYTES);
        let mut borders = vec![0];
        borders.extend(ends);
        if borders.last() != Some(&left) || !borders.windows(2).all(is_whole) {
            return Err(damaged(reader, format!("ends {borders:?} in {left} bytes")));
        }
        reader.bytes(left)?;
        for border in &mut borders {
            *border += begin;
        }
        Ok(Filter { borders })
    }

    /// False only if none of the blocks `from..=to` has the key of this hash. `bytes` are those the filter was read from.
    pub(crate) fn may_contain(&self, bytes: &[u8], hash: u64, from: usize, to: usize) -> bool {
        (from / PART_BLOCKS..=to / PART_BLOCKS).any(|part| {
            let (Some(&begin), Some(&end)) = (self.borders.get(part), self.borders.get(part + 1)) else {
                return true;
            };
            places(hash, (end - begin) / LINE_BYTES).all(|(byte, bit)| bytes[begin + byte] & bit != 0)
        })
    }
}

/// By what filters know a key: for many runs it is made once.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxh3(key)
}

/// Byte and bit of each probe of a hash.
fn places(hash: u64, lines: usize) -> impl Iterator<Item = (usize, u8)> {
    let line = (((hash >> 32) * lines as u64) >> 32) as usize;
    // The low half chose nothing yet; the multiplication spreads it over 54 bits.
    let mut rest = (hash & 0xffff_ffff | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash << 7;
    (0..PROBES).map(move |_| {
        let bit = (rest >> 55) as usize;
        rest <<= 9;
        (line * LINE_BYTES + bit / 8, 1 << (bit % 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_never_denies_a_key_and_admits_few_others() {
        let key = |number: u64| number.wrapping_mul(0x1234_5678_9abc_def1).to_le_bytes();
        let mut builder = FilterBuilder::default();
        let keys_in_block = if cfg!(miri) { 2 } else { 700 };
        let blocks = 150_u64;
        for block in 0..blocks {
            for number in 0..keys_in_block {
                builder.add(&key(block * keys_in_block + number));
            }
            builder.end_block();
        }
        let mut bytes = b"before".to_vec();
        builder.finish(&mut bytes);
        let mut reader = Reader::new(&bytes);
        reader.bytes(6).expect("what stands before");
        let filter = Filter::read(&mut reader).expect("just written");
        assert_eq!(filter.borders.len(), 4, "64 blocks a part");
        let keys = blocks * keys_in_block;
        let has = |number, block| filter.may_contain(&bytes, key_hash(&key(number)), block, block);
        assert!((0..keys).all(|number| has(number, (number / keys_in_block) as usize)));
        let admitted = (keys..2 * keys)
            .filter(|&number| has(number, (number % blocks) as usize))
            .count() as u64;
        assert!(admitted <= keys / 40 + 8, "{admitted} of {keys} others pass");
        for cut in 6..bytes.len().min(20) {
            assert!(Filter::read(&mut Reader::new(&bytes[6..cut])).is_err());
        }
    }
}
