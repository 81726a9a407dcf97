//! Key images: one part of an index as bytes that compare with memcmp, and back.
//!
//! Why it exists:    trees, runs, merges and recovery compare keys without knowing types or collations.
//! Format / state:   docs/format-rows.md#key-images.
//! Rules:            X20 - X24; F20 for reading.
//! Latches and I/O:  none; `Host` parts call the host's `Weigher`.
//!
//! The pad-space form (X24) cuts the weights into chunks and says after each whether what follows is less than, equal to or
//! greater than endless padding; chunk and verdict together order strings as if both were padded for ever. The idea of a
//! verdict byte per segment is known from MyRocks' key format; this form differs in chunk size, values and end.

use crate::error::{Error, Result};
use crate::fields::le_uint;
use crate::host_field::strip_padding;
use crate::key_spec::{KeyEncoding, KeyPart, WeightScheme};
use crate::schema::ColumnKind;
use crate::weights::Weigher;
use pbxt_base::invariant;
use std::cmp::Ordering;

pub(crate) const NULL: u8 = 0;
pub(crate) const NOT_NULL: u8 = 1;
pub(crate) const ESCAPED_ZERO: u8 = 0xFF;
pub(crate) const REST_LESS: u8 = 1;
pub(crate) const REST_EQUAL: u8 = 2;
pub(crate) const REST_GREATER: u8 = 3;
pub(crate) const TOP_BIT: u64 = 1 << 63;

/// What it takes to write or read the image of one part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartCode {
    /// Position in the index.
    pub(crate) number: usize,
    pub(crate) column: usize,
    pub(crate) encoding: KeyEncoding,
    pub(crate) length: usize,
    pub(crate) prefix: bool,
    pub(crate) nullable: bool,
    pub(crate) descending: bool,
    /// Of a padded column: the byte that fills it up to `length`.
    pub(crate) pad: Option<u8>,
    /// The host's context for its weights.
    pub(crate) context: usize,
}

impl PartCode {
    pub(crate) fn new(number: usize, part: &KeyPart, kind: ColumnKind, context: usize) -> Self {
        let pad = match kind {
            ColumnKind::Padded { pad, .. } => Some(pad),
            ColumnKind::Fixed(_) | ColumnKind::Var | ColumnKind::Virtual => None,
        };
        Self {
            number,
            column: part.column as usize,
            encoding: part.encoding,
            length: part.length as usize,
            prefix: part.prefix,
            nullable: part.nullable,
            descending: part.descending,
            pad,
            context,
        }
    }

    /// True if the image of a value of so many bytes is the value.
    #[inline]
    pub(crate) fn is_plain(&self, bytes: usize) -> bool {
        let is_changed = self.nullable || self.descending || self.pad.is_some();
        self.encoding == KeyEncoding::Raw && self.length == bytes && !is_changed
    }

    /// True if the value can be had back from the image, with unpack information if `unpack`.
    pub(crate) fn restorable(&self, unpack: bool) -> bool {
        match self.encoding {
            KeyEncoding::Uint | KeyEncoding::Int | KeyEncoding::Raw | KeyEncoding::VarBinary => !self.prefix,
            KeyEncoding::F32 | KeyEncoding::F64 | KeyEncoding::Host { .. } => unpack && !self.prefix,
        }
    }

    /// The bytes of a value that the image is made from; without padding.
    pub(crate) fn relevant<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        match self.encoding {
            KeyEncoding::Raw => {
                let cut = value.get(..self.length).unwrap_or(value);
                self.pad.map_or(cut, |pad| strip_padding(cut, pad))
            }
            KeyEncoding::VarBinary if self.prefix => value.get(..self.length).unwrap_or(value),
            _ => value,
        }
    }

    /// Appends the image of a value. `out` may hold part of it after an error.
    #[inline]
    pub(crate) fn put(&self, value: Option<&[u8]>, weigher: &dyn Weigher, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        match value {
            None if self.nullable => out.push(NULL),
            None => return Err(self.bad_value(0, "a value: the part cannot be NULL")),
            Some(value) => {
                if self.nullable {
                    out.push(NOT_NULL);
                }
                self.put_value(value, weigher, out)?;
            }
        }
        if self.descending {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        Ok(())
    }

    #[inline]
    fn put_value(&self, value: &[u8], weigher: &dyn Weigher, out: &mut Vec<u8>) -> Result<()> {
        let width = self.length;
        match self.encoding {
            KeyEncoding::Raw => {
                let fits = if self.prefix {
                    value.len() >= width
                } else {
                    value.len() == width
                };
                let fits = fits || self.pad.is_some() && value.len() <= width;
                if !fits {
                    return Err(self.bad_value(value.len(), "the length of the index part"));
                }
                let value = self.relevant(value);
                out.extend_from_slice(value);
                out.resize(out.len() + width - value.len(), self.pad.unwrap_or(0));
            }
            KeyEncoding::VarBinary => {
                let start = out.len();
                out.extend_from_slice(self.relevant(value));
                escape(out, start);
            }
            KeyEncoding::Host { scheme, .. } => return self.put_weights(value, scheme, weigher, out),
            _ if value.len() != width => {
                return Err(self.bad_value(value.len(), "exactly the width of the number"));
            }
            KeyEncoding::Uint => put_number(le_uint(value) << (64 - 8 * width), width, out),
            KeyEncoding::Int => put_number(le_uint(value) << (64 - 8 * width) ^ TOP_BIT, width, out),
            KeyEncoding::F32 | KeyEncoding::F64 => {
                put_number(float_order(le_uint(value) << (64 - 8 * width)), width, out);
            }
        }
        Ok(())
    }

    fn put_weights(
        &self,
        value: &[u8],
        scheme: WeightScheme,
        weigher: &dyn Weigher,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        weigher.weights(self.context, value, out);
        let found = out.len().saturating_sub(start);
        let bad = |expected| {
            Err(Error::BadWeights {
                part: self.number,
                found,
                expected,
            })
        };
        match scheme {
            WeightScheme::FixedLen(bytes) if found != bytes as usize => bad("exactly the fixed length"),
            WeightScheme::FixedLen(_) => Ok(()),
            WeightScheme::NoPad => {
                escape(out, start);
                Ok(())
            }
            WeightScheme::PadSpace { len, .. } if !found.is_multiple_of(len as usize) => {
                bad("a multiple of the length of a space's weight")
            }
            WeightScheme::PadSpace { weight, len } => {
                pad_space(out, start, weight, len as usize);
                Ok(())
            }
        }
    }

    fn bad_value(&self, found: usize, expected: &'static str) -> Error {
        Error::BadValue {
            column: self.column,
            found,
            expected,
        }
    }
}

/// Appends the `width` upper bytes of a number, most significant first.
#[inline]
fn put_number(upper: u64, width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&upper.swap_bytes().to_le_bytes()[..width]);
}

/// Turns the bits of a float (shifted to the top) into bits that order as the numbers do.
pub(crate) fn float_order(bits: u64) -> u64 {
    match bits {
        TOP_BIT => TOP_BIT, // -0 is 0
        negative if negative & TOP_BIT != 0 => !negative,
        positive => positive ^ TOP_BIT,
    }
}

/// X23: in `out[start..]`, zero bytes become 00 FF, and 00 00 ends the value. In place, from the end.
fn escape(out: &mut Vec<u8>, start: usize) {
    let zeros: usize = out[start..].iter().map(|&byte| usize::from(byte == 0)).sum();
    let mut from = out.len();
    let mut to = from + zeros;
    out.resize(to + 2, 0);
    while from < to {
        from -= 1;
        let byte = out[from];
        if byte == 0 {
            to -= 1;
            out[to] = ESCAPED_ZERO;
        }
        to -= 1;
        out[to] = byte;
    }
}

/// Bytes of weights in a chunk of the pad-space form: whole units only.
pub(crate) fn chunk_bytes(unit: usize) -> usize {
    8 / unit * unit
}

/// X24: turns the weights in `out[start..]` into the pad-space form. In place.
fn pad_space(out: &mut Vec<u8>, start: usize, weight: [u8; 8], unit: usize) {
    invariant!(
        (out.len() - start).is_multiple_of(unit),
        "X24: weights are whole units"
    );
    let space = &weight[..unit];
    while out.len() > start && out.ends_with(space) {
        out.truncate(out.len() - unit);
    }
    let mut spaces = [0; 8];
    spaces
        .chunks_exact_mut(unit)
        .for_each(|place| place.copy_from_slice(space));
    let chunk = chunk_bytes(unit);
    let len = out.len() - start;
    let chunks = len.div_ceil(chunk).max(1);
    out.extend_from_slice(&spaces[..chunks * chunk - len]); // whole units, as the weights and a chunk are
    out.resize(start + chunks * (chunk + 1), 0);
    match chunk {
        5 => spread::<5>(&mut out[start..], chunks, spaces),
        6 => spread::<6>(&mut out[start..], chunks, spaces),
        7 => spread::<7>(&mut out[start..], chunks, spaces),
        _ => spread::<8>(&mut out[start..], chunks, spaces),
    }
}

/// Moves chunks of C bytes apart, from the last, and puts the verdict about what follows behind each.
fn spread<const C: usize>(image: &mut [u8], chunks: usize, spaces: [u8; 8]) {
    let mut verdict = REST_EQUAL;
    for number in (0..chunks).rev() {
        let mut chunk = [0; C];
        chunk.copy_from_slice(&image[number * C..(number + 1) * C]);
        let place = &mut image[number * (C + 1)..=number * (C + 1) + C];
        place[..C].copy_from_slice(&chunk);
        place[C] = verdict;
        verdict = match chunk.as_slice().cmp(&spaces[..C]) {
            Ordering::Less => REST_LESS,
            Ordering::Equal => verdict,
            Ordering::Greater => REST_GREATER,
        };
    }
}
