//! Reading key images: one part at a time, its value where the image still has it.
//!
//! Why it exists:    covering reads take column values from index entries; statistics and prefixes need the ends of parts.
//! Format / state:   docs/format-rows.md#key-images.
//! Rules:            F20: any bytes give a part or `Corrupt`. X21: a part shows its own end.
//! Latches and I/O:  none.

use crate::error::{Error, Result};
use crate::fields::le_uint;
use crate::image::{
    ESCAPED_ZERO, NOT_NULL, NULL, PartCode, REST_EQUAL, REST_GREATER, REST_LESS, TOP_BIT, chunk_bytes,
};
use crate::key_spec::{KeyEncoding, WeightScheme};

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

    /// Reads a number, as `take` would, without a buffer; none is NULL. For parts of `Uint` and `Int`.
    #[inline]
    pub(crate) fn take_number(&self, key: &[u8], at: &mut usize) -> Result<Option<u64>> {
        let mut reader = KeyReader {
            key,
            at: *at,
            flip: if self.descending { 0xFF } else { 0 },
        };
        let value = if self.nullable && reader.is_null()? {
            None
        } else {
            Some(self.number_of(reader.number(self.length)?))
        };
        *at = reader.at;
        Ok(value)
    }

    /// The number that an image stands for.
    #[inline]
    fn number_of(&self, image: u64) -> u64 {
        let bits = match self.encoding {
            KeyEncoding::Uint => image,
            KeyEncoding::Int => image ^ TOP_BIT,
            _ if image & TOP_BIT != 0 => image ^ TOP_BIT,
            _ => !image,
        };
        bits >> (64 - 8 * self.length)
    }

    fn take_from(&self, reader: &mut KeyReader<'_>, value: &mut Vec<u8>) -> Result<Taken> {
        if self.nullable && reader.is_null()? {
            return Ok(Taken::Null);
        }
        match self.encoding {
            KeyEncoding::Raw => reader.bytes(self.length, value)?,
            KeyEncoding::VarBinary => reader.escaped(value)?,
            KeyEncoding::Host { scheme, .. } => {
                reader.weights(scheme)?;
                return Ok(Taken::Weights);
            }
            KeyEncoding::Uint | KeyEncoding::Int | KeyEncoding::F32 | KeyEncoding::F64 => {
                let number = self.number_of(reader.number(self.length)?);
                value.extend_from_slice(&number.to_le_bytes()[..self.length]);
            }
        }
        Ok(Taken::Value)
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

    /// Reads the marker before a part that may be NULL.
    #[inline]
    fn is_null(&mut self) -> Result<bool> {
        match self.byte()? {
            NULL => Ok(true),
            NOT_NULL => Ok(false),
            other => Err(corrupt(self.at, "a null marker of 0 or 1", other as u64)),
        }
    }

    #[inline]
    fn slice(&mut self, count: usize) -> Result<&[u8]> {
        let rest = self.key.get(self.at..).unwrap_or_default();
        let slice = rest
            .get(..count)
            .ok_or_else(|| corrupt(self.at, "more bytes", rest.len() as u64))?;
        self.at += count;
        Ok(slice)
    }

    /// A number of `width` bytes, most significant first, shifted to the top.
    #[inline]
    fn number(&mut self, width: usize) -> Result<u64> {
        let flip = u64::from_le_bytes([self.flip; 8]) << (64 - 8 * width);
        Ok(le_uint(self.slice(width)?).swap_bytes() ^ flip)
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
