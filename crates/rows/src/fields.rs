//! Fields: numbers of any width up to 8 bytes, and a reader of catalog images on top of the base codec.
//!
//! Why it exists:    host columns have widths of 3, 5, 6 and 7 bytes too; errors in catalog images name the image and the byte.
//! Rules:            F20: a read outside the bytes is `Corrupt`. F23: every multi-byte field is little-endian.

use crate::error::{Error, Result};
use pbxt_base::codec;

/// Little-endian unsigned number of at most 8 bytes.
#[inline]
pub(crate) fn le_uint(bytes: &[u8]) -> u64 {
    match *bytes {
        [byte] => byte as u64,
        [_, _] => codec::get_u16(bytes, 0) as u64,
        [_, _, _, _] => codec::get_u32(bytes, 0) as u64,
        [_, _, _, _, _, _, _, _] => codec::get_u64(bytes, 0),
        [] => 0,
        [first, second, third] => first as u64 | (second as u64) << 8 | (third as u64) << 16,
        _ => {
            // Of five to seven the first four and the last four: where both have a byte, it is the same one.
            let behind = bytes.len() - 4;
            codec::get_u32(bytes, 0) as u64 | (codec::get_u32(bytes, behind) as u64) << (8 * behind)
        }
    }
}

/// Reads the fields of one catalog image in order.
pub(crate) struct ImageReader<'a> {
    image: &'static str,
    reader: codec::Reader<'a>,
}

impl<'a> ImageReader<'a> {
    pub(crate) fn new(image: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            image,
            reader: codec::Reader::new(bytes),
        }
    }

    pub(crate) fn corrupt(&self, expected: &'static str, found: u64) -> Error {
        Error::Corrupt {
            image: self.image,
            offset: self.reader.position(),
            expected,
            found,
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let left = self.reader.rest().len() as u64;
        let short = self.corrupt("more bytes", left);
        self.reader.bytes(count).map_err(|_| short)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(le_uint(self.take(1)?) as u8)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(le_uint(self.take(2)?) as u16)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(le_uint(self.take(4)?) as u32)
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let bad = self.corrupt(
            "a whole number of variable length",
            self.reader.rest().len() as u64,
        );
        self.reader.varint().map_err(|_| bad)
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.reader.position()
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> usize {
        self.reader.rest().len()
    }

    /// A byte that is 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.corrupt("a flag of 0 or 1", other as u64)),
        }
    }

    /// The format byte every catalog image begins with.
    pub(crate) fn format(&mut self, expected: u8) -> Result<()> {
        let found = self.u8()?;
        if found == expected {
            Ok(())
        } else {
            Err(Error::WrongFormat {
                image: self.image,
                found,
                expected,
            })
        }
    }

    /// Fails unless all bytes were read.
    pub(crate) fn end(&self) -> Result<()> {
        let left = self.reader.rest().len() as u64;
        if left == 0 {
            Ok(())
        } else {
            Err(self.corrupt("the end of the image", left))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_from_the_lowest_byte_up() {
        let bytes = [0x81, 0x02, 0xF3, 0x04, 0x95, 0x06, 0xA7, 0xFE];
        for length in 0..=8 {
            let digits = bytes[..length].iter().rev();
            let number = digits.fold(0_u64, |number, &byte| number << 8 | byte as u64);
            assert_eq!(le_uint(&bytes[..length]), number, "{length} bytes");
        }
    }
}
