//! Key hints: which row had a unique key when it was last looked for.
//!
//! Why it exists:    a search by a whole key goes through every tree and run of its index, and each level is a wait for memory; then
//!                   it goes to the row, which has the key too. A hint leads to the row at once. A cache of keys would have to be
//!                   told of every change; a hint that is held against the row need not be.
//! Format / state:   lines of 64 bytes, each of eight long words or sixteen short ones. A word is 0, or bits of a key's hash above a row
//!                   id. A key's line follows from other bits of the hash. Short words do where row ids have 24 bits at most. Made
//!                   with all its room; who wants more makes another one.
//! Rules:            X58 nothing here is believed.
//! Latches and I/O:  none. Words are read and written whole and without order: a word says nothing about any other memory.
//! After a crash:    gone.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pbxt_base::RowId;

use crate::filter::key_hash;

const LINE_BYTES: usize = 64;
/// Words for so many more hints than keys, one in so many: without it one in ten would push out another one.
const SPARE: u64 = 8;
/// Bits of the greatest row id that short words are made for, and of any.
const SHORT_ROW_BITS: u32 = 24;
const LONG_ROW_BITS: u32 = 48;

/// A word of a line.
trait Word: Default {
    const BITS: u32;

    fn get(&self) -> u64;
    fn put(&self, word: u64);
}

impl Word for AtomicU32 {
    const BITS: u32 = u32::BITS;

    #[inline]
    fn get(&self) -> u64 {
        u64::from(self.load(Ordering::Relaxed))
    }

    #[inline]
    fn put(&self, word: u64) {
        self.store(word as u32, Ordering::Relaxed);
    }
}

impl Word for AtomicU64 {
    const BITS: u32 = u64::BITS;

    #[inline]
    fn get(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn put(&self, word: u64) {
        self.store(word, Ordering::Relaxed);
    }
}

#[repr(align(64))]
struct Line<W, const N: usize>([W; N]);

impl<W: Word, const N: usize> Default for Line<W, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| W::default()))
    }
}

/// A key as a table of hints knows it.
#[derive(Clone, Copy, Debug)]
pub struct HintKey {
    hash: u64,
}

impl HintKey {
    /// The key with these bytes.
    #[inline]
    pub fn of(key: &[u8]) -> HintKey {
        HintKey { hash: key_hash(key) }
    }
}

/// How a word is divided.
#[derive(Clone, Copy)]
struct Split {
    row_bits: u32,
    tag_bits: u32,
}

impl Split {
    fn row_of(self, word: u64) -> u64 {
        word & ((1 << self.row_bits) - 1)
    }

    /// The word of a key and a row; of row 0, which there is not, the key's part of it.
    #[inline]
    fn word(self, key: HintKey, row: u64) -> u64 {
        (key.hash & ((1 << self.tag_bits) - 1)) << self.row_bits | row
    }

    #[inline]
    fn find<W: Word, R>(self, line: &[W], key: HintKey, mut f: impl FnMut(RowId) -> Option<R>) -> Option<R> {
        let of_key = self.word(key, 0);
        line.iter().find_map(|word| {
            let word = word.get();
            let row = self.row_of(word);
            (word - row == of_key && row != 0)
                .then(|| f(RowId::new(row)))
                .flatten()
        })
    }

    #[inline]
    fn set<W: Word>(self, line: &[W], key: HintKey, row: u64) {
        let (word, of_key) = (self.word(key, row), self.word(key, 0));
        let mut place = None;
        for (at, found) in line.iter().enumerate() {
            let found = found.get();
            if found == word {
                return;
            }
            if found == 0 {
                place = place.or(Some(at));
            } else if found - self.row_of(found) == of_key {
                // Most likely what is no longer so.
                place = Some(at);
                break;
            }
        }
        // Bits that decided neither the line nor the key's part of the word.
        let any = (key.hash >> 16) as usize % line.len();
        line[place.unwrap_or(any)].put(word);
    }
}

enum Lines {
    Short(Box<[Line<AtomicU32, 16>]>),
    Long(Box<[Line<AtomicU64, 8>]>),
}

/// See the module. All methods may be called from any thread.
pub struct KeyHints {
    lines: Lines,
    split: Split,
}

/// Empty lines in about so many bytes; none if they cannot be had.
fn lines_in<W: Word, const N: usize>(bytes: u64) -> Option<Box<[Line<W, N>]>> {
    let count = usize::try_from(bytes).ok()? / LINE_BYTES;
    let count = count.clamp(1, u32::MAX as usize);
    let mut lines = Vec::new();
    lines.try_reserve_exact(count).ok()?;
    lines.resize_with(count, Line::default);
    Some(lines.into_boxed_slice())
}

/// The line of a key: the upper half of its hash, as a share of all lines.
#[inline]
fn line_of<L>(lines: &[L], key: HintKey) -> &L {
    let number = ((key.hash >> 32) * lines.len() as u64) >> 32;
    &lines[number as usize]
}

impl KeyHints {
    /// Bytes of memory that hints of so many keys should have, where no row id is above `row_max`.
    pub fn bytes_for(keys: u64, row_max: u64) -> u64 {
        let in_line = if row_max >> SHORT_ROW_BITS == 0 { 16 } else { 8 };
        let words = keys + keys / SPARE;
        words.div_ceil(in_line).max(1) * LINE_BYTES as u64
    }

    /// No hints, in about so many bytes of memory; none if they cannot be had. Row ids above `row_max`, and a good deal above that, are
    /// not kept.
    pub fn with_bytes(bytes: u64, row_max: u64) -> Option<KeyHints> {
        if row_max >> SHORT_ROW_BITS != 0 {
            let split = Split {
                row_bits: LONG_ROW_BITS,
                tag_bits: u64::BITS - LONG_ROW_BITS,
            };
            let lines = Lines::Long(lines_in(bytes)?);
            return Some(KeyHints { lines, split });
        }
        // As many rows again may come; the other bits tell keys apart.
        let row_bits = (u64::BITS - row_max.leading_zeros() + 1).clamp(16, SHORT_ROW_BITS);
        let split = Split {
            row_bits,
            tag_bits: <AtomicU32 as Word>::BITS - row_bits,
        };
        let lines = Lines::Short(lines_in(bytes)?);
        Some(KeyHints { lines, split })
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = match &self.lines {
            Lines::Short(lines) => size_of_val(&**lines),
            Lines::Long(lines) => size_of_val(&**lines),
        };
        bytes as u64
    }

    /// Asks for the memory that `find` reads.
    #[inline]
    pub fn prefetch(&self, key: HintKey) {
        let line = match &self.lines {
            Lines::Short(lines) => line_of(lines, key).0.as_ptr().cast(),
            Lines::Long(lines) => line_of(lines, key).0.as_ptr().cast(),
        };
        crate::sync::prefetch(line);
    }

    /// Calls `f` with rows that may have the key (rule X58) until it finds what is sought.
    #[inline]
    pub fn find<R>(&self, key: HintKey, f: impl FnMut(RowId) -> Option<R>) -> Option<R> {
        match &self.lines {
            Lines::Short(lines) => self.split.find(&line_of(lines, key).0, key, f),
            Lines::Long(lines) => self.split.find(&line_of(lines, key).0, key, f),
        }
    }

    /// The row with this key was found.
    #[inline]
    pub fn set(&self, key: HintKey, row: RowId) {
        let row = row.raw();
        if row >> self.split.row_bits != 0 {
            return;
        }
        match &self.lines {
            Lines::Short(lines) => self.split.set(&line_of(lines, key).0, key, row),
            Lines::Long(lines) => self.split.set(&line_of(lines, key).0, key, row),
        }
    }
}

impl std::fmt::Debug for KeyHints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyHints({} bytes)", self.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Greatest row ids for which words are short and long.
    const SHORT: u64 = 40_000;
    const LONG: u64 = 1 << 40;

    fn key(number: u64) -> HintKey {
        HintKey::of(&number.to_le_bytes())
    }

    fn hinted(hints: &KeyHints, number: u64) -> Vec<u64> {
        let mut rows = Vec::new();
        let _: Option<()> = hints.find(key(number), |row| {
            rows.push(row.raw());
            None
        });
        rows
    }

    #[test]
    fn most_hints_of_as_many_keys_as_there_is_room_for_stay() {
        for row_max in [SHORT, LONG] {
            let keys = if cfg!(miri) { 200 } else { 20_000 };
            let bytes = KeyHints::bytes_for(keys, row_max);
            let hints = KeyHints::with_bytes(bytes, row_max).expect("some memory");
            assert_eq!(hints.memory_bytes(), bytes);
            for number in 0..keys {
                assert!(
                    hinted(&hints, number).iter().all(|&row| row <= number),
                    "nothing is hinted that was not said"
                );
                hints.set(key(number), RowId::new(number + 1));
            }
            let kept = (0..keys).filter(|&number| hinted(&hints, number).contains(&(number + 1)));
            let kept = kept.count() as u64;
            assert!(kept * 100 > keys * 85, "{kept} of {keys}");
        }
    }

    #[test]
    fn the_row_found_last_takes_the_place_of_the_one_before() {
        for row_max in [SHORT, LONG] {
            let hints = KeyHints::with_bytes(0, row_max).expect("a line");
            assert_eq!(hints.memory_bytes(), 64);
            assert!(hinted(&hints, 1).is_empty());
            hints.set(key(1), RowId::new(5));
            hints.set(key(2), RowId::new(6));
            hints.set(key(1), RowId::new(7));
            assert_eq!((hinted(&hints, 1), hinted(&hints, 2)), (vec![7], vec![6]));
        }
    }

    #[test]
    fn any_number_of_keys_leaves_a_line_full_of_hints() {
        for (row_max, most) in [(SHORT, 16), (LONG, 8)] {
            let hints = KeyHints::with_bytes(64, row_max).expect("a line");
            (1..=100).for_each(|number| hints.set(key(number), RowId::new(number)));
            let kept: Vec<u64> = (1..=100).flat_map(|number| hinted(&hints, number)).collect();
            assert!((1..=most).contains(&kept.len()), "{kept:?}");
            assert!(kept.contains(&100), "the last one is there");
        }
    }

    #[test]
    fn a_row_id_that_no_word_has_room_for_is_not_kept() {
        for row_max in [1, SHORT, (1 << 24) - 1, 1 << 24] {
            let hints = KeyHints::with_bytes(64, row_max).expect("a line");
            for row in [row_max, row_max << 1 | 1, 1 << 20, (1 << 48) - 1] {
                hints.set(key(1), RowId::new(row));
                let found = hinted(&hints, 1);
                assert!(found.iter().all(|&found| found <= row), "X58: another row");
                assert!(
                    row > row_max || found == [row],
                    "{found:?} for {row} of {row_max}"
                );
            }
        }
    }

    #[test]
    fn threads_find_only_rows_that_were_said() {
        for row_max in [SHORT, LONG] {
            let hints = KeyHints::with_bytes(256, row_max).expect("some lines");
            let rounds = if cfg!(miri) { 50 } else { 20_000 };
            std::thread::scope(|scope| {
                for thread in 0..3_u64 {
                    let hints = &hints;
                    scope.spawn(move || {
                        for round in 0..rounds {
                            let number = (round * 7 + thread) % 64;
                            for row in hinted(hints, number) {
                                assert_eq!(row >> 8, number, "X58: of another key with this tag");
                            }
                            hints.set(key(number), RowId::new((number << 8) + 1 + round % 200));
                        }
                    });
                }
            });
        }
    }
}
