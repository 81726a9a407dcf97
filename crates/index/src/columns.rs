//! Columns: lists of numbers in a run block, bit-packed or as varints, whichever is smaller.
//!
//! Why it exists:    row ids, lengths and stamps of a block are numbers from a narrow range; a general compressor sees
//!                   bytes that look random and keeps all of them.
//! Format / state:   `docs/indexes.md`, run blocks. Form (1), then 0: one varint that holds for all; 1: frames of 128
//!                   numbers, each width in bits (1), least number (varint), packed differences to it; 2: varints.
//! Rules:            X30 a column of a damaged block is an error; no number in it makes the reader allocate more than
//!                   the block may have.

use pbxt_base::codec::{Reader, get_u64, put_varint};
use pbxt_base::{Error, Result};

/// Numbers packed with one width.
const FRAME: usize = 128;

const FORM_EQUAL: u8 = 0;
const FORM_FRAMES: u8 = 1;
const FORM_VARINTS: u8 = 2;

/// Least number of a frame, and the bits that the largest difference to it takes.
#[derive(Clone, Copy)]
struct Shape {
    base: u64,
    width: u32,
}

impl Shape {
    fn of(frame: &[u64]) -> Shape {
        let (mut least, mut most) = (u64::MAX, 0);
        for &value in frame {
            least = least.min(value);
            most = most.max(value);
        }
        Shape {
            base: least,
            width: u64::BITS - (most - least).leading_zeros(),
        }
    }

    fn bytes(self, values: usize) -> usize {
        1 + varint_bytes(self.base) + packed_bytes(values, self.width)
    }
}

fn packed_bytes(values: usize, width: u32) -> usize {
    (values * width as usize).div_ceil(8)
}

fn varint_bytes(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Which form is smallest, and its size.
fn choose(values: &[u64]) -> (u8, usize) {
    let Some(&first) = values.first() else {
        return (FORM_VARINTS, 1);
    };
    if values.iter().all(|&value| value == first) {
        return (FORM_EQUAL, 1 + varint_bytes(first));
    }
    let frames: usize = values
        .chunks(FRAME)
        .map(|frame| Shape::of(frame).bytes(frame.len()))
        .sum();
    let varints: usize = values.iter().map(|&value| varint_bytes(value)).sum();
    if varints < frames {
        (FORM_VARINTS, 1 + varints)
    } else {
        (FORM_FRAMES, 1 + frames)
    }
}

/// Bytes that `put` would append.
pub(crate) fn size_of(values: &[u64]) -> usize {
    choose(values).1
}

/// Appends a column. How many numbers it has is for the reader to know.
pub(crate) fn put(out: &mut Vec<u8>, values: &[u64]) {
    let (form, _) = choose(values);
    out.push(form);
    match form {
        FORM_EQUAL => put_varint(out, values[0]),
        FORM_FRAMES => {
            for frame in values.chunks(FRAME) {
                let shape = Shape::of(frame);
                out.push(shape.width as u8);
                put_varint(out, shape.base);
                pack(out, frame, shape);
            }
        }
        _ => {
            for &value in values {
                put_varint(out, value);
            }
        }
    }
}

fn pack(out: &mut Vec<u8>, frame: &[u64], shape: Shape) {
    let (mut held, mut bits) = (0_u128, 0);
    for &value in frame {
        held |= u128::from(value - shape.base) << bits;
        bits += shape.width;
        while bits >= 8 {
            out.push(held as u8);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(held as u8);
    }
}

/// Reads a column of `count` numbers; the caller has bounded `count`.
pub(crate) fn get(reader: &mut Reader<'_>, count: usize) -> Result<Vec<u64>> {
    let mut values = Vec::with_capacity(count);
    match reader.u8()? {
        FORM_EQUAL => {
            let value = reader.varint()?;
            values.resize(count, value);
        }
        FORM_FRAMES => {
            while values.len() < count {
                let width = u32::from(reader.u8()?);
                if width > u64::BITS {
                    return Err(damaged(reader, "a width of at most 64 bits", &width.to_string()));
                }
                let base = reader.varint()?;
                let here = FRAME.min(count - values.len());
                let packed = reader.bytes(packed_bytes(here, width))?;
                unpack(&mut values, packed, here, Shape { base, width });
            }
        }
        FORM_VARINTS => {
            for _ in 0..count {
                values.push(reader.varint()?);
            }
        }
        form => {
            return Err(damaged(
                reader,
                "a column of form 0, 1 or 2",
                &format!("form {form}"),
            ));
        }
    }
    Ok(values)
}

fn unpack(values: &mut Vec<u64>, packed: &[u8], count: usize, shape: Shape) {
    let Shape { base, width } = shape;
    if width == 0 {
        values.resize(values.len() + count, base);
        return;
    }
    let mask = u64::MAX >> (u64::BITS - width);
    let wide = width > u64::BITS - 7;
    for index in 0..count {
        let at = index * width as usize;
        let (from, shift) = (at / 8, at % 8);
        let value = if wide || from + 8 > packed.len() {
            slow_bits(&packed[from..], shift)
        } else {
            get_u64(packed, from) >> shift
        };
        values.push(base.wrapping_add(value & mask));
    }
}

/// Up to 64 bits from `shift` on, where fewer than eight bytes are left or the number spans nine.
fn slow_bits(bytes: &[u8], shift: usize) -> u64 {
    let held = bytes
        .iter()
        .take(9)
        .rev()
        .fold(0_u128, |held, &byte| held << 8 | u128::from(byte));
    (held >> shift) as u64
}

/// A difference (wrapping) as a number that is small where the difference is near zero on either side.
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0_u64.wrapping_sub(difference >> 63)
}

/// What `zigzag` was made from.
pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ 0_u64.wrapping_sub(value & 1)
}

/// An error about the place where the reader stands.
pub(crate) fn damaged(reader: &Reader<'_>, expected: &str, found: &str) -> Error {
    Error::Corrupt {
        file: String::new(),
        offset: reader.position() as u64,
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn back(values: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        put(&mut out, values);
        assert_eq!(out.len(), size_of(values));
        let mut reader = Reader::new(&out);
        let found = get(&mut reader, values.len()).expect("a column just written");
        assert!(reader.rest().is_empty());
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn columns_come_back_at_every_width(
            width in 0_u32..=64,
            base: u64,
            raw in proptest::collection::vec(any::<u64>(), 0..400),
        ) {
            let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
            let values: Vec<u64> = raw.iter().map(|value| (base & !mask) | (value & mask)).collect();
            prop_assert_eq!(back(&values), values);
        }

        #[test]
        fn zigzag_comes_back_and_is_small_near_zero(value: u64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
            prop_assert_eq!(zigzag(value) >> 1, value.min(!value));
        }

        #[test]
        fn damaged_columns_are_errors_or_numbers(bytes in proptest::collection::vec(any::<u8>(), 0..300), count in 0_usize..400) {
            if let Ok(values) = get(&mut Reader::new(&bytes), count) {
                prop_assert_eq!(values.len(), count);
            }
        }
    }

    #[test]
    fn each_form_is_taken_where_it_is_smallest() {
        assert_eq!(size_of(&[7; 1000]), 2);
        let near: Vec<u64> = (0..1000).map(|index| 1_000_000 + index % 5).collect();
        assert_eq!(size_of(&near), 1 + 8 * 4 + 375);
        let mut far = vec![1; 200];
        far[50] = u64::MAX;
        far[150] = u64::MAX;
        assert_eq!(size_of(&far), 1 + 198 + 20);
    }
}
