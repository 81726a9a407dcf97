//! Letters: texts of a small alphabet, packed into as few bits as its letters need.
//!
//! Why it exists:    digits, hashes, ids and telephone numbers are random letters of few. An entropy coder makes them hardly smaller
//!                   than this does, and is ten times slower to read.
//! Format / state:   docs/format-rows.md#values. Eleven letters one by one would need 4 bits each; two of them together need 7. So
//!                   letters are packed in *groups*: numbers whose digits, to the base of the alphabet, are the letters' places in it.
//! Rules:            F20: callers take exactly `packed_len` bytes before they unpack; nothing is read behind them.
//! After a crash:    nothing.

use super::bits::{bits_of, pack, packed_len};
use pbxt_base::codec::get_u64;

/// Most letters of an alphabet; more would save less than a bit.
pub(super) const LETTERS_MAX: usize = 64;
/// Most letters and bits of a group: all groups are listed to read them, and a longer list would not stay in the first cache.
const GROUP_MAX: u32 = 3;
const GROUP_BITS_MAX: u32 = 11;
/// Numbers that a group's bits can make.
const GROUPS: usize = 1 << GROUP_BITS_MAX;
/// Says of a number that it is no group; letters have the bytes below.
const NO_GROUP: u32 = 1 << 31;
/// Bits of a loaded word that are a group's, wherever in a byte it begins.
const WORD_BITS: usize = 56;
/// Scale of `slots_64ths`.
const SCALE: u128 = 64;

/// How letters of one alphabet are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    letters: usize,
    /// Letters of a group.
    group: u32,
    /// Bits of a group.
    bits: u32,
}

impl Packing {
    /// One letter after the other.
    pub(super) fn single(letters: usize) -> Self {
        Self {
            letters,
            group: 1,
            bits: bits_of(letters as u64 - 1),
        }
    }

    /// Groups of the size that needs the fewest bits for a letter; of two that need as many, the smaller one.
    pub(super) fn grouped(letters: usize) -> Self {
        let mut best = Self::single(letters);
        let mut numbers = letters as u64;
        for group in 2..=GROUP_MAX {
            numbers *= letters as u64;
            let bits = bits_of(numbers - 1);
            if bits > GROUP_BITS_MAX {
                break;
            }
            if bits * best.group < best.bits * group {
                best = Self { letters, group, bits };
            }
        }
        best
    }

    /// True if letters stand one by one.
    pub(super) fn is_single(self) -> bool {
        self.group == 1
    }

    /// Bytes of `count` packed letters.
    pub(super) fn packed_len(self, count: usize) -> usize {
        packed_len(count.div_ceil(self.group as usize), self.bits)
    }

    /// How many equally frequent letters would need as many bits, in 64ths, rounded up.
    pub(super) fn slots_64ths(self) -> u64 {
        if self.is_single() {
            return 64 << self.bits;
        }
        let all = SCALE.pow(self.group) << self.bits;
        let (mut low, mut high) = (0, 1_u64 << (6 + self.bits));
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if u128::from(middle).pow(self.group) < all {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Appends texts of the letters of an alphabet, which rises; the last group is filled up with the first letter.
    pub(super) fn pack(self, alphabet: &[u8], text: &[u8], out: &mut Vec<u8>) {
        let mut places = [0_u8; 256];
        for (place, &letter) in (0..).zip(alphabet) {
            places[letter as usize] = place;
        }
        let place = |letter: &u8| u64::from(places[*letter as usize]);
        let (letters, groups) = (self.letters as u64, text.len().div_ceil(self.group as usize));
        // Digits from the lowest on. Only the last group may lack some.
        let digit = |group: &[u8], digit: usize| group.get(digit).map_or(0, place);
        match self.group {
            1 => pack(text.iter().map(place), groups, self.bits, out),
            2 => {
                let number = |group: &[u8]| digit(group, 0) + letters * digit(group, 1);
                pack(text.chunks(2).map(number), groups, self.bits, out);
            }
            _ => {
                let number =
                    |group: &[u8]| digit(group, 0) + letters * (digit(group, 1) + letters * digit(group, 2));
                pack(text.chunks(3).map(number), groups, self.bits, out);
            }
        }
    }

    /// Appends `count` letters of `packed_len(count)` bytes. False, and whatever letters, if there is a group that no letters make.
    pub(super) fn unpack(
        self,
        bytes: &[u8],
        count: usize,
        alphabet: &[u8; LETTERS_MAX],
        out: &mut Vec<u8>,
    ) -> bool {
        if self.is_single() {
            unpack_letters(bytes, count, alphabet, self.bits, out);
            return true;
        }
        let listed = self.listed(alphabet);
        let start = out.len();
        let letters = count.next_multiple_of(self.group as usize);
        // Letters that fill up the last group go again.
        out.resize(start + letters, 0);
        let all = self.unpack_groups(bytes, &listed, &mut out[start..]);
        out.truncate(start + count);
        all & NO_GROUP == 0
    }

    /// The sizes that `grouped` makes.
    fn unpack_groups(self, bytes: &[u8], listed: &[u32; GROUPS], out: &mut [u8]) -> u32 {
        match (self.group, self.bits) {
            (3, 5) => unpack_groups_of::<3, 5>(bytes, listed, out),
            (3, 7) => unpack_groups_of::<3, 7>(bytes, listed, out),
            (3, 8) => unpack_groups_of::<3, 8>(bytes, listed, out),
            (3, 10) => unpack_groups_of::<3, 10>(bytes, listed, out),
            (3, 11) => unpack_groups_of::<3, 11>(bytes, listed, out),
            (2, 7) => unpack_groups_of::<2, 7>(bytes, listed, out),
            (2, 9) => unpack_groups_of::<2, 9>(bytes, listed, out),
            _ => unpack_groups_of::<2, 11>(bytes, listed, out),
        }
    }

    /// The letters of every number of a group's bits, the first one in the lowest byte.
    fn listed(self, alphabet: &[u8; LETTERS_MAX]) -> [u32; GROUPS] {
        let mut listed = [NO_GROUP; GROUPS];
        listed[0] = 0;
        let mut numbers = 1;
        for place in 0..self.group {
            // From the last letter on: the numbers below are still those of the groups without it.
            for digit in (0..self.letters).rev() {
                let letter = u32::from(alphabet[digit]) << (8 * place);
                for number in 0..numbers {
                    listed[digit * numbers + number] = listed[number] | letter;
                }
            }
            numbers *= self.letters;
        }
        listed
    }
}

/// Fills `out` with the letters of groups; all that was listed for their numbers, in one.
fn unpack_groups_of<const GROUP: usize, const BITS: usize>(
    bytes: &[u8],
    listed: &[u32; GROUPS],
    out: &mut [u8],
) -> u32 {
    let mut all = 0;
    let mut give = |letters: &mut [u8], word: u64| {
        let group = listed[word as usize & ((1 << BITS) - 1)];
        all |= group;
        letters.copy_from_slice(&group.to_le_bytes()[..GROUP]);
    };
    let of_word = const { WORD_BITS / BITS };
    // Words that lie in the bytes whole.
    let words = bytes
        .len()
        .saturating_sub(7)
        .div_ceil((of_word * BITS).div_ceil(8));
    let words = words.min(out.len() / (of_word * GROUP));
    let (whole, rest) = out.split_at_mut(words * of_word * GROUP);
    for (number, letters) in whole.chunks_exact_mut(of_word * GROUP).enumerate() {
        let bit = number * of_word * BITS;
        let word = get_u64(bytes, bit / 8) >> (bit % 8);
        for (at, letters) in letters.chunks_exact_mut(GROUP).enumerate() {
            give(letters, word >> (at * BITS));
        }
    }
    for (number, letters) in (words * of_word..).zip(rest.chunks_exact_mut(GROUP)) {
        let bit = number * BITS;
        let mut word = [0; 8];
        let left = bytes.get(bit / 8..).unwrap_or_default();
        let left = &left[..left.len().min(8)];
        word[..left.len()].copy_from_slice(left);
        give(letters, get_u64(&word, 0) >> (bit % 8));
    }
    all
}

/// Appends `count` letters, given as numbers of the alphabet.
fn unpack_letters(bytes: &[u8], count: usize, alphabet: &[u8; LETTERS_MAX], bits: u32, out: &mut Vec<u8>) {
    match bits {
        1 => unpack_letters_of::<1>(bytes, count, alphabet, out),
        2 => unpack_letters_of::<2>(bytes, count, alphabet, out),
        3 => unpack_letters_of::<3>(bytes, count, alphabet, out),
        4 => unpack_letters_of::<4>(bytes, count, alphabet, out),
        5 => unpack_letters_of::<5>(bytes, count, alphabet, out),
        _ => unpack_letters_of::<6>(bytes, count, alphabet, out),
    }
}

/// Eight letters have `BITS` bytes, so each round begins at a byte.
fn unpack_letters_of<const BITS: usize>(
    bytes: &[u8],
    count: usize,
    alphabet: &[u8; LETTERS_MAX],
    out: &mut Vec<u8>,
) {
    let letters = |word: u64| {
        let mut eight = [0; 8];
        for (i, letter) in eight.iter_mut().enumerate() {
            *letter = alphabet[(word >> (i * BITS)) as usize & ((1 << BITS) - 1)];
        }
        eight
    };
    let end = out.len() + count;
    out.reserve(count + 8);
    let mut at = 0;
    while at + 8 <= bytes.len() && out.len() < end {
        out.extend_from_slice(&letters(get_u64(bytes, at)));
        at += BITS;
    }
    while out.len() < end {
        let mut tail = [0; 8];
        let left = bytes.get(at..).unwrap_or_default();
        let left = &left[..left.len().min(8)];
        tail[..left.len()].copy_from_slice(left);
        out.extend_from_slice(&letters(get_u64(&tail, 0)));
        at += BITS;
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_letters_come_back() {
        let alphabet: [u8; LETTERS_MAX] = std::array::from_fn(|i| b'0' + i as u8);
        for letters in (2..=LETTERS_MAX).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for packing in [Packing::single(letters), Packing::grouped(letters)] {
                for count in [0, 1, 2, 7, 8, 9, 31, 100, 1001] {
                    let letter = |i: usize| alphabet[(i * i + 3) % letters];
                    let text: Vec<u8> = (0..count).map(letter).collect();
                    let mut packed = Vec::new();
                    packing.pack(&alphabet[..letters], &text, &mut packed);
                    assert_eq!(packed.len(), packing.packed_len(count), "{packing:?}");
                    let mut back = b"x".to_vec();
                    assert!(
                        packing.unpack(&packed, count, &alphabet, &mut back),
                        "{packing:?}"
                    );
                    assert_eq!(text, back[1..], "{packing:?}, {count} letters");
                }
            }
        }
    }

    #[test]
    fn groups_are_those_that_need_the_fewest_bits() {
        let of = |letters| {
            let packing = Packing::grouped(letters);
            (packing.group, packing.bits)
        };
        assert_eq!(of(2), (1, 1));
        assert_eq!(of(3), (3, 5));
        assert_eq!(of(10), (3, 10), "digits");
        assert_eq!(of(11), (2, 7), "digits and a dash");
        assert_eq!(of(16), (1, 4), "hexadecimal digits");
        assert_eq!(of(17), (2, 9), "with dashes");
        assert_eq!(of(36), (2, 11));
        assert_eq!(of(64), (1, 6));
        let slots: Vec<u64> = [2, 10, 11, 16]
            .map(|letters| Packing::grouped(letters).slots_64ths())
            .into();
        assert_eq!(
            slots,
            [2 * 64, 646, 725, 16 * 64],
            "2, 10.08, 11.31 and 16 letters"
        );
    }

    #[test]
    fn a_group_that_no_letters_make_is_refused() {
        let packing = Packing::grouped(10);
        let alphabet: [u8; LETTERS_MAX] = std::array::from_fn(|i| b'0' + i as u8);
        for (number, is_good) in [(999_u16, true), (1000, false), (1023, false)] {
            let mut out = Vec::new();
            assert_eq!(
                packing.unpack(&number.to_le_bytes(), 3, &alphabet, &mut out),
                is_good
            );
            assert_eq!(out.len(), 3);
        }
    }
}
