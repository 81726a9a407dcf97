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
use crate::host::strip_padding;
use crate::key_spec::{KeyEncoding, KeyPart, WeightScheme};
use crate::schema::ColumnKind;
use crate::weights::Weigher;
use std::cmp::Ordering;

pub(crate) const NULL: u8 = 0;
pub(crate) const NOT_NULL: u8 = 1;
const ESCAPED_ZERO: u8 = 0xFF;
const REST_LESS: u8 = 1;
const REST_EQUAL: u8 = 2;
const REST_GREATER: u8 = 3;
const TOP_BIT: u64 = 1 << 63;

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

/// What stands at one part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Null,
    /// The value was put into the scratch buffer.
    Value,
    /// Weights only: the value is not in the key.
    Weights,
}

fn corrupt(offset: usize, expected: &'static str, found: u64) -> Error {
    Error::Corrupt {
        image: "key image",
        offset,
        expected,
        found,
    }
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
                let fits = if self.prefix { value.len() >= width } else { value.len() == width };
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

    /// Reads the part that begins at `at`, moves `at` behind it and puts its value, if it is there, into `value`.
    pub(crate) fn take(&self, key: &[u8], at: &mut usize, value: &mut Vec<u8>) -> Result<Taken> {
        value.clear();
        let mut reader = KeyReader {
            key,
            at: *at,
            flip: if self.descending { 0xFF } else { 0 },
        };
        let taken = self.take_from(&mut reader, value)?;
        *at = reader.at;
        Ok(taken)
    }

    fn take_from(&self, reader: &mut KeyReader<'_>, value: &mut Vec<u8>) -> Result<Taken> {
        if self.nullable {
            match reader.byte()? {
                NULL => return Ok(Taken::Null),
                NOT_NULL => {}
                other => return Err(corrupt(reader.at, "a null marker of 0 or 1", other as u64)),
            }
        }
        match self.encoding {
            KeyEncoding::Raw => reader.bytes(self.length, value)?,
            KeyEncoding::VarBinary => reader.escaped(value)?,
            KeyEncoding::Host { scheme, .. } => {
                reader.weights(scheme)?;
                return Ok(Taken::Weights);
            }
            KeyEncoding::Uint | KeyEncoding::Int | KeyEncoding::F32 | KeyEncoding::F64 => {
                reader.bytes(self.length, value)?;
                value.reverse();
                let shift = 64 - 8 * self.length;
                let image = le_uint(value) << shift;
                let bits = match self.encoding {
                    KeyEncoding::Uint => image,
                    KeyEncoding::Int => image ^ TOP_BIT,
                    _ if image & TOP_BIT != 0 => image ^ TOP_BIT,
                    _ => !image >> shift << shift,
                };
                value.copy_from_slice(&(bits >> shift).to_le_bytes()[..self.length]);
            }
        }
        Ok(Taken::Value)
    }
}

/// Appends the `width` upper bytes of a number, most significant first.
#[inline]
fn put_number(upper: u64, width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&upper.swap_bytes().to_le_bytes()[..width]);
}

/// Turns the bits of a float (shifted to the top) into bits that order as the numbers do.
fn float_order(bits: u64) -> u64 {
    match bits {
        TOP_BIT => TOP_BIT, // -0 is 0
        negative if negative & TOP_BIT != 0 => !negative,
        positive => positive ^ TOP_BIT,
    }
}

/// X23: in `out[start..]`, zero bytes become 00 FF, and 00 00 ends the value. In place, from the end.
fn escape(out: &mut Vec<u8>, start: usize) {
    let zeros = out[start..].iter().filter(|&&byte| byte == 0).count();
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
fn chunk_bytes(unit: usize) -> usize {
    8 / unit * unit
}

/// X24: turns the weights in `out[start..]` into the pad-space form. In place, from the end.
fn pad_space(out: &mut Vec<u8>, start: usize, weight: [u8; 8], unit: usize) {
    let space = &weight[..unit];
    while out.len() > start && out.ends_with(space) && out.len() - start >= unit {
        out.truncate(out.len() - unit);
    }
    let chunk = chunk_bytes(unit);
    let chunks = (out.len() - start).div_ceil(chunk).max(1);
    while out.len() < start + chunks * chunk {
        out.extend_from_slice(space);
    }
    out.resize(start + chunks * (chunk + 1), 0);
    let mut verdict = REST_EQUAL;
    for number in (0..chunks).rev() {
        let (from, to) = (start + number * chunk, start + number * (chunk + 1));
        out.copy_within(from..from + chunk, to);
        out[to + chunk] = verdict;
        let units = out[to..to + chunk].chunks_exact(unit);
        verdict = match units
            .map(|one| one.cmp(space))
            .find(|&order| order != Ordering::Equal)
        {
            Some(Ordering::Less) => REST_LESS,
            Some(_) => REST_GREATER,
            None => verdict,
        };
    }
}

/// Reads a key image byte by byte, undoing the complement of descending parts.
struct KeyReader<'a> {
    key: &'a [u8],
    at: usize,
    flip: u8,
}

impl KeyReader<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8> {
        let byte = self
            .key
            .get(self.at)
            .ok_or_else(|| corrupt(self.at, "more bytes", self.key.len() as u64))?;
        self.at += 1;
        Ok(byte ^ self.flip)
    }

    fn slice(&mut self, count: usize) -> Result<&[u8]> {
        let rest = self.key.get(self.at..).unwrap_or_default();
        let slice = rest
            .get(..count)
            .ok_or_else(|| corrupt(self.at, "more bytes", rest.len() as u64))?;
        self.at += count;
        Ok(slice)
    }

    fn bytes(&mut self, count: usize, out: &mut Vec<u8>) -> Result<()> {
        let flip = self.flip;
        out.extend(self.slice(count)?.iter().map(|&byte| byte ^ flip));
        Ok(())
    }

    fn escaped(&mut self, out: &mut Vec<u8>) -> Result<()> {
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => return Ok(()),
                    ESCAPED_ZERO => out.push(0),
                    other => return Err(corrupt(self.at, "an escaped zero or the end", other as u64)),
                },
                byte => out.push(byte),
            }
        }
    }

    fn weights(&mut self, scheme: WeightScheme) -> Result<()> {
        match scheme {
            WeightScheme::FixedLen(bytes) => self.slice(bytes as usize).map(|_| ()),
            WeightScheme::NoPad => loop {
                if self.byte()? == 0 {
                    match self.byte()? {
                        0 => return Ok(()),
                        ESCAPED_ZERO => {}
                        other => return Err(corrupt(self.at, "an escaped zero or the end", other as u64)),
                    }
                }
            },
            WeightScheme::PadSpace { len, .. } => loop {
                self.slice(chunk_bytes(len as usize))?;
                match self.byte()? {
                    REST_EQUAL => return Ok(()),
                    REST_LESS | REST_GREATER => {}
                    other => return Err(corrupt(self.at, "a verdict of 1 to 3", other as u64)),
                }
            },
        }
    }
}
