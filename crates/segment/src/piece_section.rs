//! Sections of a piece file: who owns which blocks, and the first key of each block (*fences*).
//!
//! Why it exists: a lookup finds its block in memory and reads that one block; so the fences of every open piece are kept,
//! as compactly as can be: per section one array for keys and four of numbers, no allocation a fence. A search reads *words*, eight
//! bytes of each key, and keys only where words are equal.
//! Format: docs/format.md#piece-files, directory.
//! Latches and I/O: none; an open section never changes.

use pbxt_base::codec::{Reader, push_bytes, push_u8, push_u64, put_varint, word_of};
use pbxt_base::{Error, Result, invariant};
use std::ops::Range;

/// Bytes of a key that a word has.
const WORD_BYTES: usize = size_of::<u64>();

/// So far from where a word would stand in an even row it is looked for.
const GUESSED: usize = 4;
/// Words among which that pays: fewer are near.
const GUESSED_AMONG: usize = 256;

/// Where a word would stand among these if they rose evenly.
#[inline]
fn guess(words: &[u64], word: u64) -> usize {
    let (Some(&first), Some(&last)) = (words.first(), words.last()) else {
        return 0;
    };
    let span = last.saturating_sub(first);
    let way = word.saturating_sub(first).min(span);
    // A product of less than 64 bits spares a long division.
    let steps = words.len() as u64 - 1;
    match way.checked_mul(steps) {
        Some(product) if span > 0 => (product / span) as usize,
        _ => 0,
    }
}

/// A run of blocks with rising first keys and one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Index or table it belongs to.
    pub owner: u64,
    /// What it holds; the caller's number.
    pub kind: u8,
    /// Entries in all blocks.
    pub entries: u64,
    /// Bytes of all blocks before compression.
    pub raw_bytes: u64,
    /// Bytes of all blocks in the file, heads included.
    pub stored_bytes: u64,
    /// The caller's bytes.
    pub extra: Box<[u8]>,
    /// Key of the last entry.
    pub last_key: Box<[u8]>,
    /// Offset of the first block in the file.
    pub(crate) begin: u64,
    /// End of each block, counted from `begin`.
    ends: Vec<u32>,
    /// Entries up to the end of each block.
    entries_to: Vec<u64>,
    /// First keys of all blocks, one behind the other.
    keys: Vec<u8>,
    /// End of each first key in `keys`.
    key_ends: Vec<u32>,
    /// The first eight bytes of each first key behind `skipped`, as `word_of` has them.
    words: Vec<u64>,
    /// Bytes that all first keys begin with and words leave out; 0 if no key is longer than a word.
    skipped: usize,
    /// Bytes of the longest first key.
    key_bytes_max: usize,
}

impl Section {
    pub(crate) fn new(owner: u64, kind: u8, begin: u64) -> Self {
        Self {
            owner,
            kind,
            begin,
            ..Self::default()
        }
    }

    /// Blocks.
    pub fn block_count(&self) -> usize {
        self.ends.len()
    }

    /// First key of a block.
    pub fn first_key(&self, block: usize) -> &[u8] {
        let begin = block.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.keys[begin as usize..self.key_ends[block] as usize]
    }

    /// Entries of a block.
    pub fn block_entries(&self, block: usize) -> u32 {
        (self.entries_to[block] - self.entries_before(block)) as u32
    }

    /// Entries in all blocks before this one; of `block_count()`, in the whole section.
    pub fn entries_before(&self, block: usize) -> u64 {
        block.checked_sub(1).map_or(0, |before| self.entries_to[before])
    }

    /// Number of leading blocks whose first key satisfies `is_before`, which must be true up to some block and false from
    /// there on.
    pub fn partition_point(&self, mut is_before: impl FnMut(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.block_count());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.first_key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Number of leading blocks whose first key is below `key`, bytewise.
    #[inline]
    pub fn blocks_below(&self, key: &[u8]) -> usize {
        self.search(key, |first_key| first_key < key)
    }

    /// Number of leading blocks whose first key is at or below `key`, bytewise.
    #[inline]
    pub fn blocks_up_to(&self, key: &[u8]) -> usize {
        self.search(key, |first_key| first_key <= key)
    }

    /// The same where all keys have eight bytes, for who has such a key as a word. Of other keys it says nothing.
    #[inline]
    pub fn blocks_up_to_word(&self, word: u64) -> usize {
        if self.words.len() < GUESSED_AMONG {
            return self.words.partition_point(|&first| first <= word);
        }
        // Rows of one size fill blocks evenly, so the place is about where the word lies between the first and the last one: a look there
        // takes the place of a dozen, each of which waits for the one before.
        let guess = guess(&self.words, word);
        let (low, high) = (
            guess.saturating_sub(GUESSED),
            (guess + GUESSED).min(self.words.len()),
        );
        let is_left = low == 0 || self.words[low - 1] <= word;
        let is_right = high == self.words.len() || self.words[high] > word;
        if is_left && is_right {
            let near = &self.words[low..high];
            return low + near.iter().filter(|&&first| first <= word).count();
        }
        self.words.partition_point(|&first| first <= word)
    }

    /// As `partition_point`, of keys that are compared with `key` as wholes.
    #[inline]
    fn search(&self, key: &[u8], is_before: impl Fn(&[u8]) -> bool) -> usize {
        let Range { start, end } = self.undecided_by_words(key);
        let (mut low, mut high) = (start, end);
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.first_key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Blocks of whose first keys the words do not tell on which side of `key` they lie: those before lie below it, those behind
    /// above it.
    #[inline]
    fn undecided_by_words(&self, key: &[u8]) -> Range<usize> {
        let Some(prefix) = self.keys.get(..self.skipped) else {
            return 0..0;
        };
        let Some(rest) = key.strip_prefix(prefix) else {
            // All first keys begin with the prefix, so they lie on one side.
            let at = if key < prefix { 0 } else { self.block_count() };
            return at..at;
        };
        let word = word_of(rest);
        let start = self.words.partition_point(|&first| first < word);
        let rest = &self.words[start..];
        if rest.first() != Some(&word) {
            return start..start;
        }
        start..start + rest.partition_point(|&first| first == word)
    }

    /// The last block whose first key is at or below `key`, bytewise; the first one if there is none. Where one key spans
    /// several blocks, entries with it may lie in earlier blocks too: then look with `partition_point`.
    pub fn find_block(&self, key: &[u8]) -> usize {
        self.blocks_up_to(key).saturating_sub(1)
    }

    /// Offset of a block in the file: with class and segment its name for the block cache.
    pub fn block_offset(&self, block: usize) -> u64 {
        let before = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.begin + u64::from(before)
    }

    /// Bytes of a block in the file.
    pub fn block_stored_bytes(&self, block: usize) -> usize {
        (self.block_offset(block + 1) - self.block_offset(block)) as usize
    }

    /// How many blocks from `from` on a read of `bytes` takes in; at least one, unless the section ends there.
    pub fn blocks_within(&self, from: usize, bytes: usize) -> usize {
        let Some(rest) = self.ends.get(from..).filter(|rest| !rest.is_empty()) else {
            return 0;
        };
        let limit = self.block_offset(from) - self.begin + bytes as u64;
        rest.partition_point(|end| u64::from(*end) <= limit).max(1)
    }

    /// Bytes of memory the section takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.extra.len()
            + self.last_key.len()
            + self.keys.capacity()
            + 4 * (self.ends.capacity() + self.key_ends.capacity())
            + 8 * (self.entries_to.capacity() + self.words.capacity())
    }

    pub(crate) fn push_block(
        &mut self,
        first_key: &[u8],
        entries: u32,
        raw_bytes: usize,
        stored_bytes: usize,
    ) -> Result<()> {
        let end = fits(
            "a section of a piece file",
            self.stored_bytes + stored_bytes as u64,
        )?;
        let key_end = fits(
            "the keys of a section",
            (self.keys.len() + first_key.len()) as u64,
        )?;
        self.entries += u64::from(entries);
        self.raw_bytes += raw_bytes as u64;
        self.stored_bytes = u64::from(end);
        self.ends.push(end);
        self.entries_to.push(self.entries);
        self.keys.extend_from_slice(first_key);
        self.key_ends.push(key_end);
        self.push_word();
        Ok(())
    }

    /// Adds the word of the last block. Words are made anew where it begins with less than what all keys before begin with.
    fn push_word(&mut self) {
        let block = self.block_count() - 1;
        let (first, key) = (self.first_key(0), self.first_key(block));
        let same = first.iter().zip(key).take_while(|(a, b)| a == b).count();
        let longest = self.key_bytes_max.max(key.len());
        let known = if block == 0 { same } else { self.skipped.min(same) };
        let skipped = if longest > WORD_BYTES { known } else { 0 };
        let begin = if skipped == self.skipped { block } else { 0 };
        self.words.truncate(begin);
        for block in begin..=block {
            let word = word_of(&self.first_key(block)[skipped..]);
            self.words.push(word);
        }
        (self.skipped, self.key_bytes_max) = (skipped, longest);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        push_u64(out, self.owner);
        push_u8(out, self.kind);
        put_varint(out, self.begin);
        put_varint(out, self.raw_bytes);
        push_bytes(out, &self.extra);
        push_bytes(out, &self.last_key);
        put_varint(out, self.block_count() as u64);
        let mut before: &[u8] = &[];
        for block in 0..self.block_count() {
            let key = self.first_key(block);
            let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
            put_varint(out, self.block_stored_bytes(block) as u64);
            put_varint(out, u64::from(self.block_entries(block)));
            put_varint(out, shared as u64);
            push_bytes(out, &key[shared..]);
            before = key;
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let (owner, kind, begin) = (reader.u64()?, reader.u8()?, reader.varint()?);
        let mut section = Self::new(owner, kind, begin);
        let raw_bytes = reader.varint()?;
        section.extra = reader.length_prefixed()?.into();
        section.last_key = reader.length_prefixed()?.into();
        let blocks = reader.varint()?;
        let mut key = Vec::new();
        for _ in 0..blocks {
            let stored_bytes = fits("a block", reader.varint()?)? as usize;
            let entries = fits("the entries of a block", reader.varint()?)?;
            let shared = reader.varint()?;
            if shared > key.len() as u64 {
                return Err(malformed(reader, "a key that shares bytes with the one before"));
            }
            key.truncate(shared as usize);
            key.extend_from_slice(reader.length_prefixed()?);
            section.push_block(&key, entries, 0, stored_bytes)?;
        }
        section.raw_bytes = raw_bytes;
        section.ends.shrink_to_fit();
        section.entries_to.shrink_to_fit();
        section.keys.shrink_to_fit();
        section.key_ends.shrink_to_fit();
        section.words.shrink_to_fit();
        Ok(section)
    }
}

fn fits(what: &'static str, number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::TooLarge {
        what,
        bytes: number,
        limit: u64::from(u32::MAX),
    })
}

fn malformed(reader: &Reader<'_>, expected: &str) -> Error {
    Error::Corrupt {
        file: String::new(),
        offset: reader.position() as u64,
        expected: expected.into(),
        found: "another number".into(),
    }
}

/// The directory's bytes before compression.
pub(crate) fn encode_directory(sections: &[Section]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, sections.len() as u64);
    for section in sections {
        section.encode(&mut out);
    }
    out
}

/// Reads a directory; the blocks of its sections fill the file from `begin` to `end` without a gap. An error's offset is
/// one in the directory.
pub(crate) fn decode_directory(bytes: &[u8], begin: u64, end: u64) -> Result<Vec<Section>> {
    invariant!(begin <= end, "F14: a directory stands behind the header");
    let mut reader = Reader::new(bytes);
    let (count, mut at) = (reader.varint()?, begin);
    let mut sections = Vec::new();
    for _ in 0..count {
        let section = Section::decode(&mut reader)?;
        if section.begin != at {
            return Err(malformed(&reader, "a section behind the one before"));
        }
        at = at.saturating_add(section.stored_bytes);
        sections.push(section);
    }
    if at != end || !reader.rest().is_empty() {
        return Err(malformed(
            &reader,
            "sections up to the directory, and nothing else",
        ));
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two sections from 4096 on, as docs/format.md says, byte for byte.
    const DIRECTORY: &[u8] = &[
        2, //
        5, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0x20, 44, 2, b'e', b'x', 3, b'a', b'b', b'z',
        2, // 44 raw bytes, 2 blocks
        30, 3, 0, 2, b'a', b'a', // stored, entries, shared, further bytes
        40, 4, 1, 1, b'b', //
        6, 0, 0, 0, 0, 0, 0, 0, 2, 0xc6, 0x20, 0, 0, 0, 0, // no block
    ];

    fn sections() -> Vec<Section> {
        let mut first = Section::new(5, 1, 4096);
        first.push_block(b"aa", 3, 20, 30).expect("fits");
        first.push_block(b"ab", 4, 24, 40).expect("fits");
        first.extra = (*b"ex").into();
        first.last_key = (*b"abz").into();
        vec![first, Section::new(6, 2, 4096 + 70)]
    }

    #[test]
    fn directory_bytes_are_as_the_format_says() {
        assert_eq!(encode_directory(&sections()), DIRECTORY);
        assert_eq!(
            decode_directory(DIRECTORY, 4096, 4166).expect("readable"),
            sections()
        );
    }

    fn rows_of(firsts: &[u64]) -> Section {
        let mut section = Section::new(5, 1, 4096);
        for first in firsts {
            section.push_block(&first.to_be_bytes(), 1, 1, 1).expect("fits");
        }
        section
    }

    #[test]
    fn a_word_is_found_where_a_search_finds_it() {
        let even: Vec<u64> = (0..500).map(|block| 1000 + block * 88).collect();
        let bent: Vec<u64> = (0..500_u64).map(|block| 7 + block * block * block).collect();
        let wide = [0, 1, 2, u64::MAX / 3, u64::MAX - 1, u64::MAX];
        for firsts in [&even[..], &bent, &wide, &even[..1], &[]] {
            let section = rows_of(firsts);
            let near = firsts
                .iter()
                .flat_map(|&first| [first.saturating_sub(1), first, first.saturating_add(1)]);
            for word in near.chain([0, 999, 1 << 40, u64::MAX]) {
                let expected = firsts.partition_point(|&first| first <= word);
                assert_eq!(section.blocks_up_to_word(word), expected, "{word}");
            }
        }
    }

    #[test]
    fn a_directory_that_does_not_fill_the_file_or_is_cut_is_refused() {
        assert!(decode_directory(DIRECTORY, 4096, 4165).is_err());
        assert!(decode_directory(DIRECTORY, 4096, 4167).is_err());
        assert!(decode_directory(DIRECTORY, 4095, 4166).is_err());
        for bytes in 0..DIRECTORY.len() {
            assert!(
                decode_directory(&DIRECTORY[..bytes], 4096, 4166).is_err(),
                "{bytes}"
            );
        }
        assert!(decode_directory(&[DIRECTORY, &[0]].concat(), 4096, 4166).is_err());
    }

    #[test]
    fn sections_and_keys_beyond_four_gigabytes_are_refused() {
        let mut section = Section::new(1, 1, 4096);
        section
            .push_block(b"a", 1, 0, u32::MAX as usize - 1)
            .expect("fits");
        let refused = section
            .push_block(b"b", 1, 0, 2)
            .expect_err("too large")
            .to_string();
        assert!(
            refused.contains("a section of a piece file takes 4294967296 bytes"),
            "{refused}"
        );
        assert_eq!(
            (section.block_count(), section.entries),
            (1, 1),
            "nothing was added"
        );
    }

    /// Keys of at most `longest` bytes of which many are alike, in order.
    fn keys_in_order(longest: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let key = proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..=longest);
        proptest::collection::vec(key, 0..40).prop_map(|mut keys| {
            keys.sort();
            keys
        })
    }

    proptest! {
        #[test]
        fn words_find_the_block_that_keys_would_find(
            common in proptest::collection::vec(any::<u8>(), 0..12),
            keys in prop_oneof![keys_in_order(3), keys_in_order(12)],
            sought in keys_in_order(12),
        ) {
            let mut section = Section::new(1, 1, 4096);
            let whole = |key: &[u8]| [&common[..], key].concat();
            for key in &keys {
                section.push_block(&whole(key), 1, 1, 1).expect("fits");
            }
            let cut = common.get(1..).unwrap_or_default().to_vec();
            for key in sought.iter().map(|key| whole(key)).chain(sought.clone()).chain([cut, common.clone()]) {
                prop_assert_eq!(section.blocks_below(&key), section.partition_point(|first| *first < key[..]));
                prop_assert_eq!(section.blocks_up_to(&key), section.partition_point(|first| *first <= key[..]));
            }
        }

        #[test]
        fn arbitrary_and_altered_directories_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0..DIRECTORY.len(), byte in any::<u8>(),
        ) {
            let _ = decode_directory(&bytes, 4096, 4166);
            let mut altered = DIRECTORY.to_vec();
            altered[at] = byte;
            if let Ok(sections) = decode_directory(&altered, 4096, 4166) {
                prop_assert_eq!(sections.iter().map(|section| section.stored_bytes).sum::<u64>(), 70);
            }
        }
    }
}
