//! Numbers: a column of integers as base and packed rest, as steps, as a small dictionary or as byte planes.
//!
//! Why it exists:    ids rise by one, dates span a few years, states have five values. Which form is smallest is computed, not
//!                   guessed; everything integer-like in a block (gaps of row ids, lengths, codes, null bits) passes here.
//! Format / state:   docs/format-rows.md#numbers.
//! Rules:            F20 checked reads. F33: arithmetic wraps at the width of the column, so every column comes back exactly,
//!                   whatever its values mean. Signed and big-endian columns only make other forms the smallest.
//! After a crash:    nothing.

use super::bits::{BITS_MAX, bits_of, is_random, pack, packed_len, unpack};
use super::streams::{StreamReader, StreamWriter};
use crate::error::Result;
use pbxt_base::codec::{get_u64, put_varint};

const BASE: u8 = 0;
const STEPS: u8 = 1;
const DICTIONARY: u8 = 2;
const PLANES: u8 = 3;
const KIND: u8 = 3;
/// The bytes of a value are most significant first.
const SWAPPED: u8 = 4;
/// The packed bits stand in the tail.
const TAIL: u8 = 8;
/// Rows that are NULL have zero, whatever the stream says.
pub(super) const NULLS_ARE_ZERO: u8 = 16;

const DICTIONARY_MAX: usize = 256;
/// A dictionary is tried with so many numbers of low bits, from the fewest on.
const MORE_LOW_BITS: u32 = 4;
/// Most bits below a dictionary's: with a code of 8 they can still be packed.
const LOW_BITS_MAX: u32 = 48;

/// Packing single bytes in more bits would hide them from a compressor, which counts them.
const BYTE_BITS_WORTH: u32 = 4;

/// One way to write a column.
#[derive(Clone, Copy)]
struct Form {
    tag: u8,
    base: u64,
    bits: u32,
    cost: usize,
}

#[inline]
fn mask_of(width: usize) -> u64 {
    u64::MAX >> (64 - 8 * width)
}

#[inline]
fn swap(value: u64, width: usize) -> u64 {
    value.swap_bytes() >> (64 - 8 * width)
}

#[inline]
fn signed(value: u64, width: usize) -> i64 {
    let unused = 64 - 8 * width;
    (value << unused).cast_signed() >> unused
}

/// Appends a column of single bytes as `write_numbers` would: most are parts of longer values, and stay as they are. `numbers` is for
/// those that do not.
pub(super) fn write_bytes(bytes: &[u8], numbers: &mut Vec<u64>, out: &mut StreamWriter) {
    let best = smaller_form_of_bytes(bytes);
    if best.tag == BASE && best.bits > BYTE_BITS_WORTH && !bytes_may_share(bytes, best) {
        let in_tail = is_random(bytes);
        out.front.push(if in_tail { BASE | TAIL } else { BASE });
        put_varint(&mut out.front, 0);
        out.front.push(8);
        return out.push(in_tail, bytes);
    }
    numbers.clear();
    numbers.extend(bytes.iter().map(|&byte| u64::from(byte)));
    write_numbers(numbers, 1, 0, out);
}

/// Appends a column of `width` bytes (1 to 8) per value. `extra` is 0 or `NULLS_ARE_ZERO`.
pub(super) fn write_numbers(values: &[u64], width: usize, extra: u8, out: &mut StreamWriter) {
    let mut best = best_arithmetic(values, width);
    if best.cost == usize::MAX {
        // No arithmetic takes them: a dictionary must be smaller than their bytes.
        best.cost = planes_cost(values, width) + 1;
    }
    if let Some(dictionary) = best_dictionary(values, width, best) {
        return dictionary.write(extra, out);
    }
    if width > 1 && planes_cost(values, width) < best.cost {
        out.front.push(PLANES | extra);
        let mut plane = Vec::with_capacity(values.len());
        for byte in 0..width {
            plane.clear();
            plane.extend(values.iter().map(|value| value >> (8 * byte) & 0xFF));
            write_numbers(&plane, 1, 0, out);
        }
        return;
    }
    if width == 1 && best.tag == BASE && best.bits > BYTE_BITS_WORTH {
        // Packed, they would save less than a compressor finds.
        (best.base, best.bits) = (0, 8);
    }
    write_arithmetic(values, width, best, extra, out);
}

fn write_arithmetic(values: &[u64], width: usize, form: Form, extra: u8, out: &mut StreamWriter) {
    let (mask, bits) = (mask_of(width), form.bits);
    let order = |value: u64| {
        if form.tag & SWAPPED == 0 {
            value
        } else {
            swap(value, width)
        }
    };
    let first = order(values.first().copied().unwrap_or(0));
    let mut packed = Vec::new();
    if form.tag & KIND == STEPS {
        let mut last = first;
        let rest = values.get(1..).unwrap_or_default().iter().map(|&value| {
            let step = order(value).wrapping_sub(last).wrapping_sub(form.base) & mask;
            last = order(value);
            step
        });
        pack(rest, values.len().saturating_sub(1), bits, &mut packed);
    } else {
        let rest = values
            .iter()
            .map(|&value| order(value).wrapping_sub(form.base) & mask);
        pack(rest, values.len(), bits, &mut packed);
    }
    let in_tail = is_random(&packed);
    out.front.push(form.tag | extra | if in_tail { TAIL } else { 0 });
    if form.tag & KIND == STEPS {
        put_varint(&mut out.front, first);
    }
    put_varint(&mut out.front, form.base);
    out.front.push(bits as u8);
    out.push(in_tail, &packed);
}

/// The smallest of base and steps, in both byte orders.
fn best_arithmetic(values: &[u64], width: usize) -> Form {
    if width == 1 {
        return smaller_form_of_bytes(&bytes_of(values));
    }
    let best = smaller_form(values, width, 0, |value| value);
    if best.bits <= 8 {
        return best;
    }
    if swapped_bits_min(values, width).is_some_and(|bits| packed_len(values.len() - 1, bits) >= best.cost) {
        return best;
    }
    let swapped = smaller_form(values, width, SWAPPED, |value| swap(value, width));
    if swapped.cost < best.cost { swapped } else { best }
}

/// Bits that numbers in the other byte order need at least: as many as a few of them. Of those the smallest form may not be that of
/// the fewest bits, but 17 bytes of head and first value are less than three bits each.
fn swapped_bits_min(values: &[u64], width: usize) -> Option<u32> {
    const FEW: usize = 64;
    const HIDDEN_BITS: u32 = 3;
    let few = values.get(..FEW)?;
    let form = smaller_form(few, width, SWAPPED, |value| swap(value, width));
    Some(form.bits.saturating_sub(HIDDEN_BITS))
}

/// Least and greatest of some values; of steps the greatest is the less one if there is none.
struct Ranges {
    unsigned: (u64, u64),
    with_sign: (i64, i64),
    steps: (i64, i64),
}

#[inline]
fn smaller_form(values: &[u64], width: usize, order_tag: u8, order: impl Fn(u64) -> u64) -> Form {
    let first = order(values.first().copied().unwrap_or(0));
    let mut unsigned = (first, first);
    let mut with_sign = (signed(first, width), signed(first, width));
    let mut steps = (i64::MAX, i64::MIN);
    let mut last = first;
    for &value in values.get(1..).unwrap_or_default() {
        let value = order(value);
        unsigned = (unsigned.0.min(value), unsigned.1.max(value));
        let number = signed(value, width);
        with_sign = (with_sign.0.min(number), with_sign.1.max(number));
        let step = signed(value.wrapping_sub(last), width);
        steps = (steps.0.min(step), steps.1.max(step));
        last = value;
    }
    let ranges = Ranges {
        unsigned,
        with_sign,
        steps,
    };
    ranges.smaller_form(values.len(), width, order_tag)
}

/// `smaller_form` of bytes: many of them are compared at once.
fn smaller_form_of_bytes(bytes: &[u8]) -> Form {
    /// Turns numbers with a sign into numbers that have their order.
    const SIGN: u8 = 0x80;
    let Some((_, rest)) = bytes.split_first() else {
        return smaller_form(&[], 1, 0, |value| value);
    };
    let number = |byte: u8| i64::from((byte ^ SIGN).cast_signed());
    let unsigned = extremes(bytes.iter().copied());
    let with_sign = extremes(bytes.iter().map(|byte| byte ^ SIGN));
    let pairs = rest.iter().zip(bytes);
    let steps = extremes(pairs.map(|(next, last)| next.wrapping_sub(*last) ^ SIGN));
    let ranges = Ranges {
        unsigned: (u64::from(unsigned.0), u64::from(unsigned.1)),
        with_sign: (number(with_sign.0), number(with_sign.1)),
        // Of none, the greatest is less than the least.
        steps: (number(steps.0), number(steps.1)),
    };
    ranges.smaller_form(bytes.len(), 1, 0)
}

fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().map(|&value| value as u8).collect()
}

#[inline]
fn extremes(bytes: impl Iterator<Item = u8>) -> (u8, u8) {
    bytes.fold((u8::MAX, u8::MIN), |(least, greatest), byte| {
        (least.min(byte), greatest.max(byte))
    })
}

impl Ranges {
    fn smaller_form(&self, values: usize, width: usize, order_tag: u8) -> Form {
        let form = |kind: u8, min: u64, range: u64, count: usize| {
            let bits = bits_of(range);
            let head = (bits_of(min & mask_of(width)) / 7) as usize;
            let cost = packed_len(count, bits) + head;
            let base = min & mask_of(width);
            let cost = if bits > BITS_MAX { usize::MAX } else { cost };
            Form {
                tag: kind | order_tag,
                base,
                bits,
                cost,
            }
        };
        let (unsigned, with_sign, steps) = (self.unsigned, self.with_sign, self.steps);
        let mut best = form(BASE, unsigned.0, unsigned.1 - unsigned.0, values);
        let range = with_sign.1.wrapping_sub(with_sign.0).cast_unsigned();
        let negative = form(BASE, with_sign.0.cast_unsigned(), range, values);
        if negative.cost < best.cost {
            best = negative;
        }
        if steps.0 <= steps.1 {
            let range = steps.1.wrapping_sub(steps.0).cast_unsigned();
            let mut rising = form(STEPS, steps.0.cast_unsigned(), range, values - 1);
            rising.cost = rising.cost.saturating_add(width);
            if rising.cost < best.cost {
                best = rising;
            }
        }
        best
    }
}

/// Bytes of the planes that are not constant.
fn planes_cost(values: &[u64], width: usize) -> usize {
    let first = values.first().copied().unwrap_or(0);
    let varying = values.iter().fold(0, |all, value| all | value ^ first);
    let planes = (0..width).filter(|byte| varying >> (8 * byte) & 0xFF != 0);
    planes.count() * values.len() + 3 * width
}

/// Upper bits by number in a list of those that occur, lower bits as they are.
struct Dictionary {
    tag: u8,
    low: u32,
    /// Rising.
    entries: Vec<u64>,
    packed: Vec<u8>,
}

/// The smallest dictionary, if it is smaller than `best`. A few more low bits than needed make fewer entries: of a date, the
/// months that occur are listed, and the days are not.
fn best_dictionary(values: &[u64], width: usize, best: Form) -> Option<Dictionary> {
    if best.bits <= 1 || width == 1 && !bytes_may_share(&bytes_of(values), best) {
        return None;
    }
    let order = |value: u64| {
        if best.tag & SWAPPED == 0 {
            value
        } else {
            swap(value, width)
        }
    };
    let ordered: Vec<u64> = values.iter().map(|&value| order(value)).collect();
    let end = best.bits.min(LOW_BITS_MAX);
    let (least, (found, codes)) = fewest_low_bits(&ordered, best.bits)?;
    let mut entries = found.clone();
    entries.sort_unstable();
    let mut smallest = (best.cost, 0, Vec::new());
    for low in least..end.min(least + MORE_LOW_BITS) {
        let bits = bits_of(entries.len() as u64 - 1) + low;
        let list: u32 = gaps_of(&entries).map(|gap| bits_of(gap | 1).div_ceil(7)).sum();
        let size = packed_len(values.len(), bits) + list as usize;
        if size < smallest.0 {
            smallest = (size, low, entries.clone());
        }
        for entry in &mut entries {
            *entry >>= 1;
        }
        entries.dedup();
    }
    let (_, low, entries) = smallest;
    let more = low.saturating_sub(least);
    let number_of = |entry: &u64| {
        let code = entries.partition_point(|upper| *upper < entry >> more) as u64;
        code << low | (entry & ((1 << more) - 1)) << least
    };
    let numbers: Vec<u64> = found.iter().map(number_of).collect();
    let below = (1_u64 << least) - 1;
    let bits = bits_of((entries.len() as u64).checked_sub(1)?) + low;
    let rows = ordered.iter().zip(&codes);
    let mut packed = Vec::new();
    let upper_and_low = rows.map(|(value, &code)| numbers[code as usize] | value & below);
    pack(upper_and_low, values.len(), bits, &mut packed);
    Some(Dictionary {
        tag: DICTIONARY | best.tag & SWAPPED,
        low,
        entries,
        packed,
    })
}

/// False if no dictionary of bytes is smaller than `best`, found by how many different ones there are: of each entry the list has a
/// byte at least.
fn bytes_may_share(bytes: &[u8], best: Form) -> bool {
    /// Of a word with a bit for each byte, those left when so many low bits are dropped, and how far the other half of a pair is.
    const LEVELS: [(u64, u32); MORE_LOW_BITS as usize] = [
        (u64::MAX, 0),
        (0x5555_5555_5555_5555, 1),
        (0x1111_1111_1111_1111, 2),
        (0x0101_0101_0101_0101, 4),
    ];
    /// Gathers the lowest bits of eight bytes in the highest one.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut seen = [0_u8; 256];
    for &byte in bytes {
        seen[byte as usize] = 1;
    }
    let mut words = [0_u64; 4];
    for (place, eight) in seen.chunks_exact(8).enumerate() {
        let bits = get_u64(eight, 0).wrapping_mul(GATHER) >> 56;
        words[place / 8] |= bits << (place % 8 * 8);
    }
    LEVELS.iter().zip(0..best.bits).any(|((mask, apart), low)| {
        for word in &mut words {
            *word = (*word | *word >> apart) & mask;
        }
        let entries = words.iter().map(|word| word.count_ones()).sum::<u32>();
        let bits = bits_of(u64::from(entries.saturating_sub(1))) + low;
        packed_len(bytes.len(), bits) + (entries as usize) < best.cost
    })
}

/// Entries, and the number of each value's.
type Coded = (Vec<u64>, Vec<u16>);

/// The fewest low bits that leave no more entries than a dictionary may have, with what `distinct` gives. None if that cannot pay: where
/// not all bits can be entries there are more than 128, so codes have eight bits, and with them the low bits must be fewer than all.
fn fewest_low_bits(ordered: &[u64], bits: u32) -> Option<(u32, Coded)> {
    const CODE_BITS: u32 = 8;
    if let Some(found) = distinct(ordered, 0) {
        return Some((0, found));
    }
    let most = bits.saturating_sub(CODE_BITS + 1).min(LOW_BITS_MAX - 1);
    if most == 0 {
        return None;
    }
    let (mut low, mut found) = (most, distinct(ordered, most)?);
    // More low bits never leave more entries.
    let mut from = 1;
    while from < low {
        let middle = from.midpoint(low);
        match distinct(ordered, middle) {
            Some(fewer) => (low, found) = (middle, fewer),
            None => from = middle + 1,
        }
    }
    Some((low, found))
}

/// The first entry, then what lies between each and the one before.
fn gaps_of(entries: &[u64]) -> impl Iterator<Item = u64> {
    let gaps = entries.windows(2).map(|pair| pair[1] - pair[0] - 1);
    entries.first().copied().into_iter().chain(gaps)
}

/// All values without their low bits in the order of their first appearance, and the number of each; None if there are too many.
fn distinct(values: &[u64], low: u32) -> Option<Coded> {
    const SLOTS: usize = 1024;
    let mut slots = [0_u16; SLOTS];
    let mut entries: Vec<u64> = Vec::new();
    let mut codes = Vec::with_capacity(values.len());
    for value in values.iter().map(|value| value >> low) {
        let mut slot = (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        loop {
            match slots[slot % SLOTS] {
                0 if entries.len() == DICTIONARY_MAX => return None,
                0 => {
                    entries.push(value);
                    slots[slot % SLOTS] = entries.len() as u16;
                    codes.push(entries.len() as u16 - 1);
                    break;
                }
                entry if entries[entry as usize - 1] == value => {
                    codes.push(entry - 1);
                    break;
                }
                _ => slot += 1,
            }
        }
    }
    (!entries.is_empty()).then_some((entries, codes))
}

impl Dictionary {
    fn write(&self, extra: u8, out: &mut StreamWriter) {
        let in_tail = is_random(&self.packed);
        out.front.push(self.tag | extra | if in_tail { TAIL } else { 0 });
        out.front
            .extend_from_slice(&[(self.entries.len() - 1) as u8, self.low as u8]);
        for gap in gaps_of(&self.entries) {
            put_varint(&mut out.front, gap);
        }
        out.push(in_tail, &self.packed);
    }
}

/// A column of single bytes.
pub(super) enum Bytes<'a> {
    AsTheyAre(&'a [u8]),
    /// They were read as numbers; true if rows that are NULL have zero.
    Numbers(bool),
}

/// Reads a column of `count` single bytes, into `numbers` unless they stand there as they are.
pub(super) fn read_bytes<'a>(
    reader: &mut StreamReader<'a>,
    count: usize,
    numbers: &mut Vec<u64>,
) -> Result<Bytes<'a>> {
    let tag = read_tag(reader)?;
    if tag & !TAIL != BASE {
        return read_form(reader, count, 1, tag, numbers).map(Bytes::Numbers);
    }
    let base = reader.varint()?;
    let bits = read_bits(reader)?;
    let packed = reader.take(tag & TAIL != 0, packed_len(count, bits))?;
    let mask = mask_of(1);
    if bits == 8 && base & mask == 0 {
        return Ok(Bytes::AsTheyAre(packed));
    }
    unpack(packed, count, bits, numbers, |value| {
        value.wrapping_add(base) & mask
    });
    Ok(Bytes::Numbers(false))
}

fn read_tag(reader: &mut StreamReader<'_>) -> Result<u8> {
    let tag = reader.u8()?;
    if tag & !(KIND | SWAPPED | TAIL | NULLS_ARE_ZERO) != 0 {
        return Err(reader.corrupt("a known form of numbers", tag as u64));
    }
    Ok(tag)
}

/// Replaces `out` by a column of `count` values; true if rows that are NULL have zero.
pub(super) fn read_numbers(
    reader: &mut StreamReader<'_>,
    count: usize,
    width: usize,
    out: &mut Vec<u64>,
) -> Result<bool> {
    let tag = read_tag(reader)?;
    read_form(reader, count, width, tag, out)
}

fn read_form(
    reader: &mut StreamReader<'_>,
    count: usize,
    width: usize,
    tag: u8,
    out: &mut Vec<u64>,
) -> Result<bool> {
    match tag & KIND {
        DICTIONARY => read_dictionary(reader, count, width, tag, out)?,
        PLANES if width > 1 => {
            let mut plane = Vec::new();
            out.clear();
            out.resize(count, 0);
            for byte in 0..width {
                read_numbers(reader, count, 1, &mut plane)?;
                for (value, part) in out.iter_mut().zip(&plane) {
                    *value |= part << (8 * byte);
                }
            }
        }
        PLANES => return Err(reader.corrupt("a form of numbers for single bytes", tag as u64)),
        _ => read_arithmetic(reader, count, width, tag, out)?,
    }
    Ok(tag & NULLS_ARE_ZERO != 0)
}

fn read_bits(reader: &mut StreamReader<'_>) -> Result<u32> {
    let bits = reader.u8()? as u32;
    if bits > BITS_MAX {
        return Err(reader.corrupt("numbers of at most 56 bits", bits as u64));
    }
    Ok(bits)
}

fn read_arithmetic(
    reader: &mut StreamReader<'_>,
    count: usize,
    width: usize,
    tag: u8,
    out: &mut Vec<u64>,
) -> Result<()> {
    let mask = mask_of(width);
    if tag & KIND == BASE {
        let base = reader.varint()?;
        let bits = read_bits(reader)?;
        let packed = reader.take(tag & TAIL != 0, packed_len(count, bits))?;
        if tag & SWAPPED == 0 {
            unpack(packed, count, bits, out, |value| value.wrapping_add(base) & mask);
        } else {
            unpack(packed, count, bits, out, |value| {
                swap(value.wrapping_add(base) & mask, width)
            });
        }
        return Ok(());
    }
    let mut value = reader.varint()? & mask;
    let step = reader.varint()?;
    let bits = read_bits(reader)?;
    let packed = reader.take(tag & TAIL != 0, packed_len(count.saturating_sub(1), bits))?;
    unpack(packed, count.saturating_sub(1), bits, out, |rest| {
        rest.wrapping_add(step)
    });
    // Each place takes the value before its own step; the last value is left over.
    for place in out.iter_mut() {
        let next = value.wrapping_add(*place) & mask;
        *place = std::mem::replace(&mut value, next);
    }
    out.resize(count, value);
    if tag & SWAPPED != 0 {
        for value in out.iter_mut() {
            *value = swap(*value, width);
        }
    }
    Ok(())
}

fn read_dictionary(
    reader: &mut StreamReader<'_>,
    count: usize,
    width: usize,
    tag: u8,
    out: &mut Vec<u64>,
) -> Result<()> {
    let mut entries = [0_u64; DICTIONARY_MAX];
    let last = reader.u8()? as usize;
    let low = reader.u8()? as u32;
    if low > LOW_BITS_MAX {
        return Err(reader.corrupt("at most 48 low bits", low as u64));
    }
    let mut next = 0_u64;
    for entry in &mut entries[..=last] {
        next = next.wrapping_add(reader.varint()?);
        *entry = next << low;
        next = next.wrapping_add(1);
    }
    let bits = bits_of(last as u64) + low;
    let packed = reader.take(tag & TAIL != 0, packed_len(count, bits))?;
    unpack(packed, count, bits, out, |code| code);
    let unknown = out.iter().copied().max().unwrap_or(0) >> low;
    if unknown > last as u64 {
        return Err(reader.corrupt("codes of dictionary entries", unknown));
    }
    let (mask, low_mask) = (mask_of(width), (1_u64 << low) - 1);
    for value in out.iter_mut() {
        let entry = entries[(*value >> low) as usize & (DICTIONARY_MAX - 1)];
        *value = (entry | *value & low_mask) & mask;
    }
    if tag & SWAPPED != 0 {
        for value in out.iter_mut() {
            *value = swap(*value, width);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::ImageReader;

    /// Writes, reads back, and returns the bytes it took.
    fn round_trip(values: &[u64], width: usize) -> usize {
        let mut out = StreamWriter::default();
        write_numbers(values, width, 0, &mut out);
        let mut reader = StreamReader::new(ImageReader::new("test", &out.front), &out.tail);
        let mut back = vec![9; 3];
        let nulls = read_numbers(&mut reader, values.len(), width, &mut back).expect("just written");
        assert!(!nulls);
        reader.end().expect("all was read");
        assert_eq!(values, back, "width {width}");
        out.front.len() + out.tail.len()
    }

    /// Columns as tables have them, and as nobody would have them.
    fn columns() -> Vec<(usize, Vec<u64>)> {
        let mut state = 7_u64;
        let mut dice = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 11 ^ state << 40
        };
        let mut columns = Vec::new();
        for width in 1..=8 {
            let mask = mask_of(width);
            for bits in (2..=8 * width as u32).step_by(3) {
                let (base, range) = (dice(), mask_of(8) >> (64 - bits));
                let mut of = |value: &mut dyn FnMut(u64) -> u64| {
                    let values: Vec<u64> = (0..700).map(|at| value(at) & mask).collect();
                    columns.push((width, values));
                };
                of(&mut |_| base.wrapping_add(dice() & range));
                of(&mut |at| base.wrapping_add(at * (dice() & range & 0xFFF)));
                of(&mut |_| swap(base.wrapping_add(dice() & range) & mask, width));
                of(&mut |_| (dice() % 200) << (bits / 2) | dice() & 0x1F);
                of(&mut |_| (dice() % 300) << (bits / 2));
                of(&mut |_| (dice() & range).wrapping_sub(range / 2));
            }
        }
        columns
    }

    #[test]
    #[cfg_attr(
        miri,
        ignore = "tries some 600 columns in every form: too many steps to interpret"
    )]
    fn shortcuts_find_what_trying_everything_finds() {
        let (mut dictionaries, mut spared) = ([0; 2], 0);
        for (width, values) in columns() {
            let best = best_arithmetic(&values, width);
            let plain = smaller_form(&values, width, 0, |value| value);
            let swapped = smaller_form(&values, width, SWAPPED, |value| swap(value, width));
            let tried = if width > 1 && plain.bits > 8 && swapped.cost < plain.cost {
                swapped
            } else {
                plain
            };
            let parts = |form: Form| (form.tag, form.base, form.bits, form.cost);
            assert_eq!(parts(best), parts(tried), "width {width}");
            if best.bits <= 1 {
                continue;
            }
            let order = |value: u64| {
                if best.tag & SWAPPED == 0 {
                    value
                } else {
                    swap(value, width)
                }
            };
            let ordered: Vec<u64> = values.iter().map(|&value| order(value)).collect();
            if width == 1 && !bytes_may_share(&bytes_of(&values), best) {
                spared += 1;
                for low in 0..best.bits.min(MORE_LOW_BITS) {
                    let (mut entries, _) = distinct(&values, low).expect("at most 256 bytes");
                    entries.sort_unstable();
                    let list: u32 = gaps_of(&entries).map(|gap| bits_of(gap | 1).div_ceil(7)).sum();
                    let bits = bits_of(entries.len() as u64 - 1) + low;
                    assert!(packed_len(values.len(), bits) + list as usize >= best.cost);
                }
                assert!(best_dictionary(&values, width, best).is_none());
                continue;
            }
            let end = best.bits.min(LOW_BITS_MAX);
            let tried = (0..end).find_map(|low| Some((low, distinct(&ordered, low)?)));
            let found = fewest_low_bits(&ordered, best.bits);
            dictionaries[usize::from(found.is_some())] += 1;
            match found {
                Some(found) => assert_eq!(Some(found), tried, "width {width}, {} bits", best.bits),
                // Then none of them pays.
                None => assert!(tried.is_none_or(|(low, _)| low + 8 >= best.bits), "width {width}"),
            }
        }
        assert!(dictionaries.iter().all(|&count| count > 50), "{dictionaries:?}");
        assert!(spared > 3, "{spared}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes some 600 columns: too many steps to interpret")]
    fn bytes_are_written_as_numbers_are_and_come_back() {
        let mut as_they_are = 0;
        for (_, values) in columns().into_iter().filter(|(width, _)| *width == 1) {
            for count in [0, 1, 2, 85, 700] {
                let (values, mut numbers) = (&values[..count], Vec::new());
                let (mut out, mut expected) = (StreamWriter::default(), StreamWriter::default());
                write_bytes(&bytes_of(values), &mut numbers, &mut out);
                write_numbers(values, 1, 0, &mut expected);
                assert_eq!((&out.front, &out.tail), (&expected.front, &expected.tail));
                let mut reader = StreamReader::new(ImageReader::new("test", &out.front), &out.tail);
                match read_bytes(&mut reader, count, &mut numbers).expect("just written") {
                    Bytes::AsTheyAre(bytes) => {
                        as_they_are += 1;
                        assert_eq!(bytes, bytes_of(values));
                    }
                    Bytes::Numbers(nulls) => assert_eq!((nulls, &numbers[..]), (false, values)),
                }
                reader.end().expect("all was read");
            }
        }
        assert!(as_they_are > 5, "{as_they_are}");
    }

    #[test]
    fn numbers_come_back_in_every_form_and_width() {
        for width in (1..=8).step_by(if cfg!(miri) { 3 } else { 1 }) {
            let mask = mask_of(width);
            let mix = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            let of = |value: &dyn Fn(u64) -> u64| (0..600).map(|i| value(i) & mask).collect::<Vec<u64>>();
            round_trip(&[], width);
            round_trip(&[mask], width);
            round_trip(&[0, mask], width);
            round_trip(&of(&mix), width);
            assert!(round_trip(&of(&|_| mask - 3), width) < 12 + width);
            assert!(
                round_trip(&of(&|i| 7_u64.wrapping_sub(i * 3)), width) < 26,
                "steps"
            );
            assert!(round_trip(&of(&|i| mix(i) % 5), width) < 260, "base");
            assert!(
                round_trip(&of(&|i| (mix(i) % 5).wrapping_sub(2)), width) < 260,
                "base below zero"
            );
            assert!(
                round_trip(&of(&|i| swap(mix(i) % 5 + 1000, width)), width) < 260,
                "big-endian"
            );
            assert!(round_trip(&of(&|i| mix(mix(i) % 4)), width) < 200, "dictionary");
            if width > 1 {
                let months = |i| ((mix(i) % 5) << 9) | (((mix(i) >> 8) % 8) << 5) | ((mix(i) >> 16) % 32);
                assert!(
                    round_trip(&of(&months), width) < 600 * 11 / 8 + 50,
                    "dictionary of upper bits"
                );
            }
            round_trip(&of(&|i| mix(i) & 0xF0FF_00F0_FF00_0FF0), width);
        }
    }
}
