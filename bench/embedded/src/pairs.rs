//! Pairs: the keys and values of the comparison, each made from its number when it is asked for.
//!
//! Why it exists: all stores must be given the same pairs, and every answer must be checked. A list of a million pairs would
//! count as memory of the store; so a key is made from its number, and a value from its key: whoever reads one can tell
//! whether it is right.
//! Format: a key is 24 bytes without order; a value has any length and does not compress.

use std::ops::Range;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 24;

/// A key.
pub(crate) type Key = [u8; KEY_BYTES];

/// Distance of the states of a stream.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Random numbers after SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

/// The numbers' mixing: different numbers give different results.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Stream {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// The next number below a limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// The next key.
    pub(crate) fn key(&mut self) -> Key {
        let first = self.number();
        key_of(first)
    }
}

/// The key that begins with these eight bytes.
fn key_of(first: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    let mut rest = Stream::new(first);
    key[..8].copy_from_slice(&first.to_le_bytes());
    key[8..16].copy_from_slice(&rest.number().to_le_bytes());
    key[16..].copy_from_slice(&rest.number().to_le_bytes());
    key
}

/// The first eight bytes of a key or value as a number; 0 of less.
pub(crate) fn head(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// All pairs of a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    seed: u64,
    value_bytes: usize,
}

impl Pairs {
    /// Pairs with values of so many bytes.
    pub(crate) fn new(seed: u64, value_bytes: usize) -> Self {
        Self { seed, value_bytes }
    }

    /// The key of a number; no two numbers have the same.
    pub(crate) fn key(&self, number: u64) -> Key {
        key_of(mix(number ^ mix(self.seed)))
    }

    /// Puts the value of a key into `out`.
    pub(crate) fn value(&self, key: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let mut stream = self.values(key);
        while out.len() < self.value_bytes {
            let bytes = stream.number().to_le_bytes();
            let wanted = (self.value_bytes - out.len()).min(bytes.len());
            out.extend_from_slice(&bytes[..wanted]);
        }
    }

    /// True if the value is that of the key.
    pub(crate) fn is_value(&self, key: &[u8], value: &[u8]) -> bool {
        let mut stream = self.values(key);
        key.len() == KEY_BYTES
            && value.len() == self.value_bytes
            && value
                .chunks(8)
                .all(|chunk| chunk == &stream.number().to_le_bytes()[..chunk.len()])
    }

    /// The pairs of these numbers, one after the other.
    pub(crate) fn feed(&self, numbers: Range<u64>) -> Feed {
        Feed {
            pairs: *self,
            numbers,
            key: [0; KEY_BYTES],
            value: Vec::with_capacity(self.value_bytes),
        }
    }

    fn values(&self, key: &[u8]) -> Stream {
        Stream::new(self.seed ^ head(key) ^ head(key.get(16..).unwrap_or_default()).rotate_left(32))
    }
}

/// Pairs to be written. They are lent, so that none of them costs an allocation.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pairs: Pairs,
    numbers: Range<u64>,
    key: Key,
    value: Vec<u8>,
}

impl Feed {
    /// The next pair.
    pub(crate) fn next_pair(&mut self) -> Option<(&Key, &[u8])> {
        let number = self.numbers.next()?;
        self.key = self.pairs.key(number);
        self.pairs.value(&self.key, &mut self.value);
        Some((&self.key, &self.value))
    }

    /// Pairs that are left.
    pub(crate) fn left(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_number_has_the_same_pair_each_time_and_no_other_number_has_it() {
        let pairs = Pairs::new(7, 150);
        let keys: HashSet<Key> = (0..20_000).map(|number| pairs.key(number)).collect();
        assert_eq!(keys.len(), 20_000);
        assert_eq!(pairs.key(5), Pairs::new(7, 10).key(5));
        assert_ne!(pairs.key(5), Pairs::new(8, 150).key(5));
    }

    #[test]
    fn a_value_is_known_by_its_key_alone() {
        for length in [0, 1, 7, 8, 9, 150] {
            let pairs = Pairs::new(3, length);
            let (key, mut value) = (pairs.key(11), Vec::new());
            pairs.value(&key, &mut value);
            assert_eq!(value.len(), length);
            assert!(pairs.is_value(&key, &value));
            assert!(!pairs.is_value(&key[1..], &value), "half a key has no value");
            value.push(0);
            assert!(!pairs.is_value(&key, &value), "longer");
            value.pop();
            if let Some(last) = value.last_mut() {
                *last ^= 1;
                assert!(!pairs.is_value(&key, &value), "a flipped bit");
            }
        }
    }

    #[test]
    fn a_value_of_another_key_is_wrong() {
        let pairs = Pairs::new(3, 150);
        let mut value = Vec::new();
        pairs.value(&pairs.key(1), &mut value);
        assert!(!pairs.is_value(&pairs.key(2), &value));
    }

    #[test]
    fn a_feed_has_its_numbers_and_ends() {
        let pairs = Pairs::new(3, 16);
        let mut feed = pairs.feed(4..6);
        assert_eq!(feed.left(), 2);
        for number in 4..6 {
            let (key, value) = feed.next_pair().expect("a pair");
            assert_eq!(*key, pairs.key(number));
            assert!(pairs.is_value(key, value));
        }
        assert!(feed.next_pair().is_none() && feed.left() == 0);
    }

    #[test]
    fn draws_stay_below_their_limit_and_meet_every_part_of_it() {
        let mut stream = Stream::new(1);
        let mut met = [0; 10];
        for _ in 0..1000 {
            met[stream.below(10) as usize] += 1;
        }
        assert!(met.iter().all(|&count| count > 50), "{met:?}");
    }
}
