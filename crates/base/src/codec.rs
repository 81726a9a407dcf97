//! Codec: the only byte-order code. Little-endian numbers, varints, length-prefixed bytes.
//!
//! Rules: F3 every number on disk is little-endian; a read outside the bytes is an error, never a panic.

use crate::error::{Error, Result};

macro_rules! at {
    ($get:ident, $put:ident, $type:ty, $bytes:literal) => {
        /// Reads at `offset`; the caller has checked the bounds.
        #[inline]
        pub fn $get(bytes: &[u8], offset: usize) -> $type {
            let mut array = [0; $bytes];
            array.copy_from_slice(&bytes[offset..offset + $bytes]);
            <$type>::from_le_bytes(array)
        }

        /// Writes at `offset`; the caller has checked the bounds.
        #[inline]
        pub fn $put(bytes: &mut [u8], offset: usize, value: $type) {
            bytes[offset..offset + $bytes].copy_from_slice(&value.to_le_bytes());
        }
    };
}

at!(get_u16, put_u16, u16, 2);
at!(get_u32, put_u32, u32, 4);
at!(get_u64, put_u64, u64, 8);

macro_rules! push {
    ($name:ident, $type:ty) => {
        /// Appends a number.
        #[inline]
        pub fn $name(out: &mut Vec<u8>, value: $type) {
            out.extend_from_slice(&value.to_le_bytes());
        }
    };
}

push!(push_u8, u8);
push!(push_u16, u16);
push!(push_u32, u32);
push!(push_u64, u64);

/// First eight bytes as a number that compares like the bytes do; missing ones count as zero.
#[inline]
pub fn word_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk).swap_bytes(),
        None => bytes
            .iter()
            .zip([56, 48, 40, 32, 24, 16, 8])
            .fold(0, |word, (&byte, shift)| word | u64::from(byte) << shift),
    }
}

/// Appends a variable-length number: 7 bits a byte, lowest first, top bit = more follow.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
pub fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads fields in order; each read checks the bounds.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let taken = self.rest().get(..count).ok_or_else(|| Error::Corrupt {
            file: String::new(),
            offset: self.at as u64,
            expected: format!("{count} more bytes"),
            found: format!("{}", self.rest().len()),
        })?;
        self.at += count;
        Ok(taken)
    }

    /// Refuses bytes that are left: what was read had to be all.
    ///
    /// # Errors
    /// `Corrupt`, without a file's name.
    pub fn end(&self) -> Result<()> {
        match self.rest().len() {
            0 => Ok(()),
            more => Err(Error::Corrupt {
                file: String::new(),
                offset: self.at as u64,
                expected: "the end".into(),
                found: format!("{more} more bytes"),
            }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A variable-length number, in its shortest form (rule F19).
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(Error::Corrupt {
            file: String::new(),
            offset: self.at as u64,
            expected: "a varint of at most 64 bits in its shortest form".into(),
            found: "a longer one".into(),
        })
    }

    /// Bytes behind a varint length.
    pub fn length_prefixed(&mut self) -> Result<&'a [u8]> {
        let length = self.varint()?;
        self.bytes(usize::try_from(length).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint().expect("just written"), value);
            assert!(reader.rest().is_empty());
        }
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
        assert!(Reader::new(&[0x80]).varint().is_err());
    }

    #[test]
    fn a_varint_has_one_form() {
        for value in [0, 1, 127, 128, 16_384, u64::from(u32::MAX)] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            for zeros in 0..3 {
                let mut longer = out.clone();
                *longer.last_mut().expect("a byte") |= 0x80;
                longer.extend(std::iter::repeat_n(0x80, zeros));
                longer.push(0);
                let read = Reader::new(&longer).varint();
                assert!(read.is_err(), "{value} in {longer:x?}: {read:?}");
            }
        }
    }

    #[test]
    fn reads_outside_the_bytes_are_errors() {
        let mut reader = Reader::new(&[5, 1, 2]);
        assert!(
            reader.length_prefixed().is_err(),
            "five bytes are promised, two are there"
        );
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u16().expect("two bytes"), 0x0201);
        assert!(reader.u32().is_err());
        assert_eq!(
            (reader.position(), reader.u8().expect("the last byte")),
            (2, 3),
            "a failed read takes nothing"
        );
        let message = reader
            .u8()
            .expect_err("nothing is left")
            .in_file("hot-1")
            .to_string();
        assert!(
            message.starts_with("'hot-1' is damaged at offset 3: expected 1 more bytes, found 0"),
            "{message}"
        );
        reader.end().expect("nothing is left");
        let message = Reader::new(&[7, 7]).end().expect_err("two bytes").to_string();
        assert!(
            message.contains("expected the end, found 2 more bytes"),
            "{message}"
        );
        let endless = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert!(Reader::new(&endless).length_prefixed().is_err());
    }

    #[test]
    fn numbers_are_little_endian() {
        let mut out = Vec::new();
        push_u32(&mut out, 0x0102_0304);
        push_bytes(&mut out, b"ab");
        assert_eq!(out, [4, 3, 2, 1, 2, b'a', b'b']);
    }
}
