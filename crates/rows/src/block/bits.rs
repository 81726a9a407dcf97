//! Bits: packing of numbers into as few bits as they need, and the test whether a compressor could do more.
//!
//! Why it exists:    a byte-wise compressor cannot see that a number needs 11 bits; packed bits in turn hide what it could see.
//!                   So both are measured: what looks random is packed and kept out of the compressor's way.
//! Format / state:   docs/format-rows.md#row-blocks: value i has bits i*b .. i*b+b of the stream, least significant first.
//! Rules:            F20: callers take exactly `packed_len` bytes before they unpack; nothing is read behind them.
//! After a crash:    nothing.

use pbxt_base::codec::{get_u64, put_u64};

/// Widest numbers that are packed: one unaligned load of 8 bytes must reach all bits.
pub(super) const BITS_MAX: u32 = 56;
/// Bytes behind a source and a target of `copy_over`.
pub(super) const SLACK: usize = 16;

/// Bits that hold every number up to `range`.
#[inline]
pub(super) fn bits_of(range: u64) -> u32 {
    64 - range.leading_zeros()
}

/// Bytes of `count` packed numbers.
pub(super) fn packed_len(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8)
}

/// Appends numbers below 2^`bits`; there must be `count` of them.
#[inline]
pub(super) fn pack(values: impl Iterator<Item = u64>, count: usize, bits: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let end = start + packed_len(count, bits);
    out.resize(end + 8, 0);
    let (mut at, mut word, mut fill) = (start, 0_u64, 0_u32);
    for value in values {
        word |= value << fill;
        fill += bits;
        put_u64(out, at, word);
        at += fill as usize / 8;
        word >>= fill & !7;
        fill &= 7;
    }
    out.truncate(end);
}

/// Replaces `out` by `count` numbers, each mapped.
#[inline]
pub(super) fn unpack(bytes: &[u8], count: usize, bits: u32, out: &mut Vec<u64>, map: impl Fn(u64) -> u64) {
    out.clear();
    if bits == 0 {
        out.resize(count, map(0));
        return;
    }
    let (bits, mask) = (bits as usize, (1_u64 << bits) - 1);
    let fast = match bytes.len().checked_sub(8) {
        Some(last) => ((last * 8 + 7) / bits + 1).min(count),
        None => 0,
    };
    out.extend((0..fast).map(|i| map(get_u64(bytes, i * bits / 8) >> (i * bits % 8) & mask)));
    let base = fast * bits / 8;
    let mut tail = [0; 16];
    let left = bytes.get(base..).unwrap_or_default();
    let left = &left[..left.len().min(8)];
    tail[..left.len()].copy_from_slice(left);
    out.extend((fast..count).map(|i| map(get_u64(&tail, i * bits / 8 - base) >> (i * bits % 8) & mask)));
}

/// Copies `len` bytes and up to 15 behind them: 16 bytes at once are faster than a call with a length only known now. Both
/// sides need `SLACK` bytes behind; what the target loses must be written later.
#[inline]
pub(super) fn copy_over(to: &mut [u8], at: usize, from: &[u8], start: usize, len: usize) {
    if len <= SLACK {
        to[at..at + SLACK].copy_from_slice(&from[start..start + SLACK]);
    } else {
        to[at..at + len].copy_from_slice(&from[start..start + len]);
    }
}

/// How often each byte occurs. A block has fewer bytes than 32 bits can count.
pub(super) fn histogram(bytes: &[u8]) -> [u64; 256] {
    // In turn: the same byte twice in a row would wait for its own count.
    let mut counts = [[0_u32; 256]; 4];
    let mut fours = bytes.chunks_exact(4);
    for four in &mut fours {
        for (counts, &byte) in counts.iter_mut().zip(four) {
            counts[byte as usize] += 1;
        }
    }
    for &byte in fours.remainder() {
        counts[0][byte as usize] += 1;
    }
    std::array::from_fn(|byte| counts.iter().map(|counts| counts[byte] as u64).sum())
}

/// True if symbols occur about equally often: an entropy coder would need 0.97 * `log2(slots)` bits or more. Integer
/// arithmetic, so that the choice is the same on every machine: sum of squares against that of equal counts plus noise. Slots are
/// given in 64ths.
pub(super) fn is_even(counts: &[u64], slots_64ths: u64) -> bool {
    let total: u64 = counts.iter().sum();
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    let expected = u128::from(total * total / 8 * 9) * 64 + u128::from(total * slots_64ths);
    u128::from(squares) * u128::from(slots_64ths) <= expected
}

const SAMPLE: usize = 4096;
const SAMPLE_MIN: usize = 512;

/// True if no compressor will gain much: bytes are even and hardly any six of them come again.
pub(super) fn is_random(bytes: &[u8]) -> bool {
    if bytes.len() < SAMPLE_MIN {
        return false;
    }
    let sample = &bytes[..bytes.len().min(2 * SAMPLE)];
    is_even(&histogram(sample), 256 * 64) && !repeats(bytes)
}

/// True if more than one in 32 sequences of six bytes at the front came before.
pub(super) fn repeats(bytes: &[u8]) -> bool {
    const SLOTS: usize = 1024;
    let mut seen = [0_u64; SLOTS];
    let places = bytes.len().saturating_sub(7).min(SAMPLE);
    // What repeats itself shows it soon.
    let mut hits_left = places / 32;
    for at in 0..places {
        let six = get_u64(bytes, at) << 16;
        let slot = (six.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % SLOTS;
        if std::mem::replace(&mut seen[slot], six) == six {
            match hits_left.checked_sub(1) {
                Some(left) => hits_left = left,
                None => return true,
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_come_back_at_every_width_and_count() {
        for bits in 0..=BITS_MAX {
            for count in [0, 1, 2, 7, 8, 9, 63, 100] {
                let mask = (1_u64 << bits) - 1;
                let values: Vec<u64> = (0..count as u64)
                    .map(|i| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 3 & mask)
                    .collect();
                let mut packed = vec![7];
                pack(values.iter().copied(), count, bits, &mut packed);
                assert_eq!(packed.len(), 1 + packed_len(count, bits));
                let mut back = vec![1, 2, 3];
                unpack(&packed[1..], count, bits, &mut back, |value| value);
                assert_eq!(values, back, "{bits} bits");
            }
        }
    }

    #[test]
    fn random_bytes_are_told_from_text_and_repetition() {
        let mut state = 1_u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(5000)
        .collect();
        assert!(is_random(&random));
        let text: Vec<u8> = random.iter().map(|byte| b'a' + byte % 26).collect();
        assert!(!is_random(&text));
        assert!(!is_random(&random[..600].repeat(5)));
    }
}
