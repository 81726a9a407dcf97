//! Values: a column of variable length as one constant, a dictionary, or lengths and bytes.
//!
//! Why it exists:    names come again, texts are empty, ids are random letters of a small alphabet; each has a form that a
//!                   byte-wise compressor does not find by itself, and that is faster to read than its output.
//! Format / state:   docs/format-rows.md#values.
//! Rules:            F20 checked reads; F34: a value is a place in one arena, so a reader copies all forms alike.
//! After a crash:    nothing.

use super::View;
use super::bits::{bits_of, histogram, is_even, is_random, packed_len, repeats};
use super::letters::{LETTERS_MAX, Packing};
use super::numbers::{read_numbers, write_numbers};
use super::streams::{StreamReader, StreamWriter};
use crate::error::Result;
use pbxt_base::codec::{get_u32, get_u64, push_bytes, put_varint};

const CONSTANT: u8 = 0;
const CODES: u8 = 1;
const NEW_OR_CODE: u8 = 2;
const PLAIN: u8 = 3;
/// Form of bytes: packed letters of an alphabet.
const LETTERS: u8 = 1;
/// Form of bytes: they stand in the tail.
const TAIL: u8 = 2;
/// Form of letters: they stand in groups.
const GROUPS: u8 = 4;
/// Lengths and codes are numbers of this width.
const WIDTH: usize = 4;
/// Fewer letters do not pay for an alphabet.
const LETTERS_WORTH: usize = 256;
/// Fewer do not pay for the list of all groups, which a reader makes.
const GROUPS_WORTH: usize = 2048;

/// One column of the rows of a builder.
#[derive(Clone, Copy)]
pub(super) struct ValueColumn<'a> {
    pub(super) bytes: &'a [u8],
    /// Views of all columns, row by row.
    pub(super) views: &'a [View],
    pub(super) stride: usize,
    pub(super) ordinal: usize,
}

impl<'a> ValueColumn<'a> {
    fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let views = self.views.get(self.ordinal..).unwrap_or_default();
        views
            .iter()
            .step_by(self.stride)
            .map(move |view| view.of(self.bytes))
    }
}

struct Dictionary<'a> {
    /// In the order of their first appearance.
    entries: Vec<&'a [u8]>,
    codes: Vec<u64>,
}

/// Appends a column.
pub(super) fn write_values(column: ValueColumn<'_>, out: &mut StreamWriter) {
    let rows = column.iter().len();
    let Some(dictionary) = dictionary(column) else {
        return write_plain(column, out);
    };
    if let [only] = dictionary.entries[..] {
        out.front.push(CONSTANT);
        push_bytes(&mut out.front, only);
        return;
    }
    let entries = dictionary.entries.len();
    let bytes = |values: &mut dyn Iterator<Item = &[u8]>| values.map(<[u8]>::len).sum::<usize>() as u64;
    let total = bytes(&mut column.iter());
    let own = bytes(&mut dictionary.entries.iter().copied());
    let bits = bits_of(entries as u64 - 1);
    let codes = packed_len(rows, bits);
    let new_or_code = packed_len(rows, 1) + packed_len(rows - entries, bits);
    if own + codes.min(new_or_code) as u64 + entries as u64 >= total + rows as u64 / 2 {
        return write_plain(column, out);
    }
    out.front
        .push(if codes <= new_or_code { CODES } else { NEW_OR_CODE });
    put_varint(&mut out.front, entries as u64);
    write_all(&dictionary.entries, out);
    if codes <= new_or_code {
        return write_numbers(&dictionary.codes, WIDTH, 0, out);
    }
    let mut seen = 0;
    let mut known = Vec::with_capacity(rows - entries);
    let mut is_new = Vec::with_capacity(rows);
    for &code in &dictionary.codes {
        is_new.push(u64::from(code == seen));
        if code == seen {
            seen += 1;
        } else {
            known.push(code);
        }
    }
    write_numbers(&is_new, 1, 0, out);
    write_numbers(&known, WIDTH, 0, out);
}

fn write_plain(column: ValueColumn<'_>, out: &mut StreamWriter) {
    out.front.push(PLAIN);
    let values: Vec<_> = column.iter().collect();
    write_all(&values, out);
}

/// Bytes that are looked at first.
const LETTERS_SAMPLE: usize = 4096;

/// Lengths, then bytes.
fn write_all(values: &[&[u8]], out: &mut StreamWriter) {
    let lengths: Vec<u64> = values.iter().map(|value| value.len() as u64).collect();
    write_numbers(&lengths, WIDTH, 0, out);
    let bytes = values.concat();
    let letters_of = |counts: &[u64; 256]| counts.iter().filter(|&&count| count != 0).count();
    // Most texts have too many letters, and show that soon.
    if letters_of(&histogram(&bytes[..bytes.len().min(LETTERS_SAMPLE)])) > LETTERS_MAX {
        return write_bytes(&bytes, out);
    }
    let counts = histogram(&bytes);
    let letters = letters_of(&counts);
    if !(2..=LETTERS_MAX).contains(&letters) || bytes.len() < LETTERS_WORTH {
        return write_bytes(&bytes, out);
    }
    let packing = if bytes.len() < GROUPS_WORTH {
        Packing::single(letters)
    } else {
        Packing::grouped(letters)
    };
    if !is_even(&counts, packing.slots_64ths()) || repeats(&bytes) {
        return write_bytes(&bytes, out);
    }
    let alphabet: Vec<u8> = (0..=u8::MAX).filter(|&byte| counts[byte as usize] != 0).collect();
    let form = if packing.is_single() { 0 } else { GROUPS };
    out.front
        .extend_from_slice(&[LETTERS | TAIL | form, letters as u8]);
    out.front.extend_from_slice(&alphabet);
    packing.pack(&alphabet, &bytes, &mut out.tail);
}

fn write_bytes(bytes: &[u8], out: &mut StreamWriter) {
    let in_tail = is_random(bytes);
    out.front.push(if in_tail { TAIL } else { 0 });
    out.push(in_tail, bytes);
}

#[inline]
fn hash(value: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |state: u64, word: u64| (state.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let mut state = value.len() as u64;
    let len = value.len();
    if len >= 8 {
        for word in value.chunks_exact(8) {
            state = mix(state, get_u64(word, 0));
        }
        state = mix(state, get_u64(value, len - 8));
    } else if len >= 4 {
        state = mix(
            state,
            (get_u32(value, 0) as u64) << 32 | get_u32(value, len - 4) as u64,
        );
    } else {
        state = mix(state, value.iter().fold(0, |word, &byte| word << 8 | byte as u64));
    }
    state ^ state >> 32
}

/// None if values hardly come again, or if they were made to collide.
fn dictionary(column: ValueColumn<'_>) -> Option<Dictionary<'_>> {
    const PROBES_MAX: usize = 64;
    let rows = column.iter().len();
    let slots_count = (rows * 2).next_power_of_two();
    let mut slots = vec![0_u32; slots_count];
    let mut codes = Vec::with_capacity(rows);
    let mut entries: Vec<&[u8]> = Vec::with_capacity(rows);
    for (row, value) in column.iter().enumerate() {
        if row.is_power_of_two() && row >= 256 && entries.len() > row / 16 * 15 {
            return None;
        }
        let home = hash(value) as usize;
        let code = (home..home.wrapping_add(PROBES_MAX)).find_map(|slot| {
            let slot = &mut slots[slot & (slots_count - 1)];
            if *slot == 0 {
                entries.push(value);
                *slot = entries.len() as u32;
                return Some(entries.len() - 1);
            }
            (entries[*slot as usize - 1] == value).then_some(*slot as usize - 1)
        })?;
        codes.push(code as u64);
    }
    Some(Dictionary { entries, codes })
}

/// The values of all columns while a block is read.
pub(super) struct Values {
    pub(super) arena: Vec<u8>,
    /// Row by row.
    pub(super) views: Vec<View>,
    pub(super) stride: usize,
    /// Most bytes a column can have: those of the block's payloads.
    pub(super) limit: usize,
}

impl Values {
    /// Reads column `ordinal` of `rows` rows.
    pub(super) fn read(&mut self, reader: &mut StreamReader<'_>, ordinal: usize, rows: usize) -> Result<()> {
        let mut numbers = Vec::new();
        match reader.u8()? {
            CONSTANT => {
                let len = reader.size(self.limit)?;
                let view = View::new(self.arena.len(), len);
                self.arena.extend_from_slice(reader.take(false, len)?);
                self.fill(ordinal, std::iter::repeat(view));
            }
            PLAIN => {
                let base = self.arena.len();
                self.read_bytes(reader, rows, &mut numbers)?;
                self.fill(ordinal, views_of(base, &numbers));
            }
            CODES => {
                let entries = self.read_entries(reader, rows, &mut numbers)?;
                read_numbers(reader, rows, WIDTH, &mut numbers)?;
                check_codes(reader, &numbers, entries.len())?;
                self.fill(ordinal, numbers.iter().map(|&code| entries[code as usize]));
            }
            NEW_OR_CODE => {
                let entries = self.read_entries(reader, rows, &mut numbers)?;
                let mut is_new = Vec::new();
                read_numbers(reader, rows, 1, &mut is_new)?;
                read_numbers(reader, rows - entries.len(), WIDTH, &mut numbers)?;
                check_codes(reader, &numbers, entries.len())?;
                let (mut new, mut known) = (entries.iter(), numbers.iter());
                let views = is_new.iter().map_while(|&is_new| match is_new {
                    0 => known.next().map(|&code| entries[code as usize]),
                    _ => new.next().copied(),
                });
                if self.fill(ordinal, views) != rows {
                    return Err(reader.corrupt(
                        "one new value for each entry of the dictionary",
                        entries.len() as u64,
                    ));
                }
            }
            other => return Err(reader.corrupt("a known form of values", other as u64)),
        }
        Ok(())
    }

    fn fill(&mut self, ordinal: usize, views: impl Iterator<Item = View>) -> usize {
        let places = self.views.iter_mut().skip(ordinal).step_by(self.stride);
        places.zip(views).map(|(place, view)| *place = view).count()
    }

    fn read_entries(
        &mut self,
        reader: &mut StreamReader<'_>,
        rows: usize,
        numbers: &mut Vec<u64>,
    ) -> Result<Vec<View>> {
        let count = reader.size(rows)?;
        let base = self.arena.len();
        self.read_bytes(reader, count, numbers)?;
        Ok(views_of(base, numbers).collect())
    }

    /// Lengths to `lengths`, bytes to the arena.
    fn read_bytes(
        &mut self,
        reader: &mut StreamReader<'_>,
        count: usize,
        lengths: &mut Vec<u64>,
    ) -> Result<()> {
        read_numbers(reader, count, WIDTH, lengths)?;
        let total = lengths.iter().sum::<u64>();
        if total > self.limit as u64 {
            return Err(reader.corrupt("values within the size of the block", total));
        }
        let total = total as usize;
        let tag = reader.u8()?;
        if tag & !(LETTERS | TAIL | GROUPS) != 0 || tag & (LETTERS | GROUPS) == GROUPS {
            return Err(reader.corrupt("a known form of bytes", tag as u64));
        }
        if tag & LETTERS == 0 {
            self.arena.extend_from_slice(reader.take(tag & TAIL != 0, total)?);
            return Ok(());
        }
        let letters = reader.u8()? as usize;
        if !(2..=LETTERS_MAX).contains(&letters) {
            return Err(reader.corrupt("an alphabet of 2 to 64 letters", letters as u64));
        }
        let mut alphabet = [0; LETTERS_MAX];
        alphabet[..letters].copy_from_slice(reader.take(false, letters)?);
        let packing = if tag & GROUPS == 0 {
            Packing::single(letters)
        } else {
            Packing::grouped(letters)
        };
        if tag & GROUPS != 0 && packing.is_single() {
            return Err(reader.corrupt("groups only where they take less", letters as u64));
        }
        let packed = reader.take(tag & TAIL != 0, packing.packed_len(total))?;
        if packing.unpack(packed, total, &alphabet, &mut self.arena) {
            Ok(())
        } else {
            Err(reader.corrupt("groups of letters of the alphabet", letters as u64))
        }
    }
}

fn views_of(base: usize, lengths: &[u64]) -> impl Iterator<Item = View> {
    lengths.iter().scan(base, |at, &len| {
        let view = View::new(*at, len as usize);
        *at += len as usize;
        Some(view)
    })
}

fn check_codes(reader: &StreamReader<'_>, codes: &[u64], entries: usize) -> Result<()> {
    let last = codes.iter().copied().max();
    match last {
        Some(code) if code >= entries as u64 => Err(reader.corrupt("codes of dictionary entries", code)),
        _ => Ok(()),
    }
}
