//! Payload: the bytes of a stored row, taken apart for reading and put together for writing.
//!
//! Why it exists:    one reader and one writer of the format, shared by the record codec and by `RowView`/`RowBuilder`.
//! Format / state:   docs/format-rows.md#row-payload:
//!                   flags(1) | null bitmap | fixed columns | [bitmap of external values] | end offsets (2 or 4 each) | values.
//! Rules:            F20: every read is checked; `parse` proves the parts before the values inside the bytes. F27: one row has
//!                   one encoding: NULL fixed columns are zero, unused bits are zero, wide only where narrow cannot.
//! After a crash:    none; payloads are checked by the log's checksums before they come here.

use crate::blob::BlobRef;
use crate::error::{Error, Result};
use crate::fields::le_uint;
use crate::schema::Shape;

/// End offsets have 4 bytes, not 2.
pub(crate) const WIDE: u8 = 1;
/// A bitmap says which values are blob references.
pub(crate) const EXTERNAL: u8 = 2;

pub(crate) fn corrupt(offset: usize, expected: &'static str, found: u64) -> Error {
    Error::Corrupt {
        image: "row payload",
        offset,
        expected,
        found,
    }
}

/// A payload whose fixed part and offset table are known to be inside the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    bytes: &'a [u8],
    shape: Shape,
    table_at: usize,
    data_at: usize,
    wide: bool,
    external: bool,
}

impl<'a> Payload<'a> {
    #[inline]
    pub(crate) fn parse(shape: Shape, bytes: &'a [u8]) -> Result<Self> {
        let flags = *bytes.first().ok_or_else(|| corrupt(0, "a byte of flags", 0))?;
        if flags & !(WIDE | EXTERNAL) != 0 {
            return Err(corrupt(0, "known flags", flags as u64));
        }
        let (wide, external) = (flags & WIDE != 0, flags & EXTERNAL != 0);
        let table_at = shape.fixed_end + if external { shape.external_bytes() } else { 0 };
        let data_at = table_at + shape.var_count * if wide { 4 } else { 2 };
        if bytes.len() < data_at {
            return Err(corrupt(
                bytes.len(),
                "fixed columns and end offsets of the schema",
                bytes.len() as u64,
            ));
        }
        let payload = Self {
            bytes,
            shape,
            table_at,
            data_at,
            wide,
            external,
        };
        let end = if shape.var_count == 0 {
            0
        } else {
            payload.end_of(shape.var_count - 1)
        };
        if data_at + end != bytes.len() {
            return Err(corrupt(
                data_at,
                "a last end offset that is the end of the payload",
                end as u64,
            ));
        }
        Ok(payload)
    }

    #[inline]
    fn end_of(&self, ordinal: usize) -> usize {
        if self.wide {
            let at = self.table_at + ordinal * 4;
            le_uint(&self.bytes[at..at + 4]) as usize
        } else {
            let at = self.table_at + ordinal * 2;
            le_uint(&self.bytes[at..at + 2]) as usize
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the values begin.
    #[inline]
    pub(crate) fn values_start(&self) -> usize {
        self.data_at
    }

    #[inline]
    pub(crate) fn is_null(&self, null_ordinal: usize) -> bool {
        self.bytes[1 + null_ordinal / 8] >> (null_ordinal % 8) & 1 == 1
    }

    #[inline]
    pub(crate) fn fixed(&self, offset: usize, len: usize) -> &'a [u8] {
        &self.bytes[offset..offset + len]
    }

    /// Value number `ordinal` as stored: of an external value, its reference.
    #[inline]
    pub(crate) fn var(&self, ordinal: usize) -> Result<&'a [u8]> {
        let start = if ordinal == 0 { 0 } else { self.end_of(ordinal - 1) };
        let end = self.end_of(ordinal);
        self.bytes
            .get(self.data_at + start..self.data_at + end)
            .ok_or_else(|| corrupt(self.table_at, "rising end offsets inside the payload", end as u64))
    }

    #[inline]
    pub(crate) fn is_external(&self, ordinal: usize) -> bool {
        self.external && self.bytes[self.shape.fixed_end + ordinal / 8] >> (ordinal % 8) & 1 == 1
    }

    /// The reference of an external value.
    pub(crate) fn blob(&self, ordinal: usize) -> Result<BlobRef> {
        BlobRef::from_value(self.var(ordinal)?, self.data_at)
    }

    /// Checks what single reads do not: unused bits, offsets of all values, references, and that no shorter form exists.
    pub(crate) fn check(&self) -> Result<()> {
        check_unused_bits(&self.bytes[1..=self.shape.null_bytes], self.shape.null_count, 1)?;
        let marks = if self.external {
            &self.bytes[self.shape.fixed_end..self.table_at]
        } else {
            &[]
        };
        check_unused_bits(marks, self.shape.var_count, self.shape.fixed_end)?;
        if self.external && marks.iter().all(|&mark| mark == 0) {
            return Err(corrupt(
                0,
                "an external value where the flag says so",
                EXTERNAL as u64,
            ));
        }
        for ordinal in 0..self.shape.var_count {
            self.var(ordinal)?;
            if self.is_external(ordinal) {
                self.blob(ordinal)?;
            }
        }
        let data = self.bytes.len() - self.data_at;
        if self.wide && u16::try_from(data).is_ok() {
            return Err(corrupt(0, "narrow end offsets for short values", data as u64));
        }
        Ok(())
    }
}

fn check_unused_bits(bitmap: &[u8], used: usize, offset: usize) -> Result<()> {
    let unused = bitmap.last().map_or(0, |&last| {
        if used.is_multiple_of(8) {
            0
        } else {
            last >> (used % 8)
        }
    });
    if unused == 0 {
        Ok(())
    } else {
        Err(corrupt(offset, "zero in unused bits of a bitmap", unused as u64))
    }
}

/// Appends the values of one payload behind its fixed part.
pub(crate) struct VarWriter<'o> {
    out: &'o mut Vec<u8>,
    external_at: usize,
    table_at: usize,
    data_at: usize,
    wide: bool,
}

impl VarWriter<'_> {
    /// Writes value number `ordinal`; false if its end does not fit narrow offsets.
    #[inline]
    pub(crate) fn push(&mut self, ordinal: usize, value: &[u8]) -> bool {
        self.out.extend_from_slice(value);
        self.end(ordinal)
    }

    /// Writes a reference in place of value number `ordinal`.
    pub(crate) fn push_external(&mut self, ordinal: usize, blob: BlobRef) -> bool {
        self.out[self.external_at + ordinal / 8] |= 1 << (ordinal % 8);
        self.push(ordinal, &blob.to_bytes())
    }

    #[inline]
    fn end(&mut self, ordinal: usize) -> bool {
        let end = self.out.len() - self.data_at;
        if self.wide {
            let at = self.table_at + ordinal * 4;
            self.out[at..at + 4].copy_from_slice(&(end as u32).to_le_bytes());
            return true;
        }
        let at = self.table_at + ordinal * 2;
        self.out[at..at + 2].copy_from_slice(&(end as u16).to_le_bytes());
        u16::try_from(end).is_ok()
    }
}

/// Appends one payload to `out`: `fixed` fills the zeroed part up to the fixed columns' end, `values` pushes every value in
/// order and reports whether all fitted; it is called a second time, with wide offsets, if not. `out` is as before on an error.
#[inline]
pub(crate) fn write_payload(
    shape: Shape,
    external: bool,
    out: &mut Vec<u8>,
    fixed: impl FnOnce(&mut [u8]),
    mut values: impl FnMut(&mut VarWriter<'_>) -> Result<bool>,
) -> Result<()> {
    let start = out.len();
    let external_at = start + shape.fixed_end;
    let table_at = external_at + if external { shape.external_bytes() } else { 0 };
    let data_at = table_at + shape.var_count * 2;
    out.resize(data_at, 0);
    fixed(&mut out[start..external_at]);
    out[start] = if external { EXTERNAL } else { 0 };
    match values(&mut VarWriter {
        out,
        external_at,
        table_at,
        data_at,
        wide: false,
    }) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    }
    out[start] |= WIDE;
    out[external_at..table_at].fill(0);
    let data_at = table_at + shape.var_count * 4;
    out.truncate(table_at);
    out.resize(data_at, 0);
    let result = values(&mut VarWriter {
        out,
        external_at,
        table_at,
        data_at,
        wide: true,
    });
    let len = (out.len() - start) as u64;
    let result = match result {
        Ok(_) if len > u32::MAX as u64 => Err(Error::TooLarge {
            what: "a row payload",
            found: len,
            limit: u32::MAX as u64,
        }),
        other => other.map(|_| ()),
    };
    if result.is_err() {
        out.truncate(start);
    }
    result
}
