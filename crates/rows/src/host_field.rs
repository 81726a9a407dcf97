//! HostRecord and HostField: a host's record buffer, and one field of it to read and write.
//!
//! Why it exists:    row codec and key maker read the same fields; the pointers of blob columns are followed in this file only.
//! Format / state:   `HostKind` says how each kind of field is held; nothing here is stored.
//! Rules:            F20: a field is read or written only inside its place, which `HostLayout::new` checked against the record
//!                   length and `HostRecord::checked` (or a slice of that length) holds the record to.
//! Latches and I/O:  none.

use crate::error::{Error, Result};
use crate::fields::le_uint;
use crate::host::HostKind;

/// A host's record buffer for reading, pointers in it included.
#[derive(Clone, Copy)]
pub struct HostRecord<'a> {
    bytes: &'a [u8],
}

impl<'a> HostRecord<'a> {
    /// Wraps a record buffer.
    ///
    /// # Safety
    /// The record is used only with `RowCodec`s and `KeyMaker`s of the layout it was filled by, and while `'a` lasts every
    /// blob column in it that is not NULL has a length of 0 or names, by a pointer whose provenance is exposed (every
    /// pointer that came from C is), that many readable bytes nobody writes to.
    pub unsafe fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The buffer itself.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The buffer cut to `length`, after which offsets below `length` are inside.
    #[inline]
    pub(crate) fn checked(self, length: usize) -> Result<Self> {
        let short = || Error::TooShort {
            what: "the record",
            found: self.bytes.len(),
            expected: length,
        };
        Ok(Self {
            bytes: self.bytes.get(..length).ok_or_else(short)?,
        })
    }
}

impl std::fmt::Debug for HostRecord<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRecord")
            .field("length", &self.bytes.len())
            .finish()
    }
}

/// The bytes of a value without its trailing padding.
#[inline]
pub(crate) fn strip_padding(value: &[u8], pad: u8) -> &[u8] {
    let end = value
        .iter()
        .rposition(|&byte| byte != pad)
        .map_or(0, |last| last + 1);
    value.get(..end).unwrap_or_default()
}

/// One column of a checked layout: offsets are inside every record that passed `HostRecord::checked`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostField {
    pub(crate) column: usize,
    pub(crate) offset: usize,
    pub(crate) kind: HostKind,
    pub(crate) null_offset: usize,
    pub(crate) null_bit: u8,
}

impl HostField {
    #[inline]
    pub(crate) fn is_null(&self, record: &[u8]) -> bool {
        record[self.null_offset] & self.null_bit != 0
    }

    /// The value without padding; empty for an unset blob.
    ///
    /// # Errors
    /// `BadValue` if the length bytes say more than the column holds.
    #[inline]
    pub(crate) fn value<'a>(&self, record: HostRecord<'a>) -> Result<&'a [u8]> {
        let bytes = record.bytes();
        let at = self.offset;
        let (start, len, max) = match self.kind {
            HostKind::Fixed(len) => return Ok(&bytes[at..at + len as usize]),
            HostKind::Padded { len, pad } => return Ok(strip_padding(&bytes[at..at + len as usize], pad)),
            HostKind::Var1(max) => (at + 1, bytes[at] as usize, max as usize),
            HostKind::Var2(max) => (at + 2, le_uint(&bytes[at..at + 2]) as usize, max as usize),
            HostKind::Blob(length_bytes) => return Ok(blob_value(record, at, length_bytes as usize)),
        };
        if len > max {
            return Err(self.bad_value(len));
        }
        Ok(&bytes[start..start + len])
    }

    pub(crate) fn bad_value(&self, found: usize) -> Error {
        Error::BadValue {
            column: self.column,
            found,
            expected: "at most what its field holds",
        }
    }

    #[inline]
    pub(crate) fn set_null(&self, record: &mut [u8], null: bool) {
        let byte = &mut record[self.null_offset];
        *byte = if null {
            *byte | self.null_bit
        } else {
            *byte & !self.null_bit
        };
    }

    /// Writes a value that lies at `address` (used by blobs only).
    #[inline]
    pub(crate) fn write(&self, record: &mut [u8], value: &[u8], address: *const u8) -> Result<()> {
        let (at, len) = (self.offset, value.len());
        let exact = matches!(self.kind, HostKind::Fixed(_)) && len != self.kind.width();
        if exact || len > self.kind.value_max() {
            return Err(self.bad_value(len));
        }
        match self.kind {
            HostKind::Fixed(_) => record[at..at + len].copy_from_slice(value),
            HostKind::Padded { len: width, pad } => {
                record[at..at + len].copy_from_slice(value);
                record[at + len..at + width as usize].fill(pad);
            }
            HostKind::Var1(_) => {
                record[at] = len as u8;
                record[at + 1..at + 1 + len].copy_from_slice(value);
            }
            HostKind::Var2(_) => {
                record[at..at + 2].copy_from_slice(&(len as u16).to_le_bytes());
                record[at + 2..at + 2 + len].copy_from_slice(value);
            }
            HostKind::Blob(length_bytes) => write_blob(record, at, length_bytes as usize, len, address),
        }
        Ok(())
    }

    /// Writes a number into a field of `Fixed` bytes, its lowest ones.
    #[inline]
    pub(crate) fn write_number(&self, record: &mut [u8], number: u64) {
        let (at, bytes) = (self.offset, number.to_le_bytes());
        match self.kind.width() {
            4 => record[at..at + 4].copy_from_slice(&bytes[..4]),
            8 => record[at..at + 8].copy_from_slice(&bytes),
            width => record[at..at + width].copy_from_slice(&bytes[..width]),
        }
    }

    /// What a field holds while its column is NULL: zeros, padding, an empty value.
    pub(crate) fn write_null(&self, record: &mut [u8]) {
        let at = self.offset;
        match self.kind {
            HostKind::Fixed(len) => record[at..at + len as usize].fill(0),
            HostKind::Padded { len, pad } => record[at..at + len as usize].fill(pad),
            HostKind::Var1(_) => record[at] = 0,
            HostKind::Var2(_) => record[at..at + 2].fill(0),
            HostKind::Blob(length_bytes) => record[at..at + length_bytes as usize + 8].fill(0),
        }
    }
}

#[expect(
    clippy::host_endian_bytes,
    reason = "a pointer in memory has the machine's byte order and never reaches the disk"
)]
fn blob_value(record: HostRecord<'_>, at: usize, length_bytes: usize) -> &[u8] {
    let len = le_uint(&record.bytes()[at..at + length_bytes]) as usize;
    if len == 0 {
        return &[];
    }
    let mut pointer = [0; size_of::<usize>()];
    let field = at + length_bytes;
    pointer.copy_from_slice(&record.bytes()[field..field + size_of::<usize>()]);
    let address = std::ptr::with_exposed_provenance::<u8>(usize::from_ne_bytes(pointer));
    // SAFETY: the caller of HostRecord::new promised that the pointer of a non-empty blob of this layout is exposed and names
    // `len` readable bytes that nobody writes to while 'a lasts; callers ask for the value of columns that are not NULL only.
    unsafe { std::slice::from_raw_parts(address, len) }
}

#[expect(
    clippy::host_endian_bytes,
    reason = "a pointer in memory has the machine's byte order and never reaches the disk"
)]
fn write_blob(record: &mut [u8], at: usize, length_bytes: usize, len: usize, address: *const u8) {
    let field = at + length_bytes;
    record[at..field].copy_from_slice(&(len as u32).to_le_bytes()[..length_bytes]);
    record[field..field + size_of::<usize>()].copy_from_slice(&address.expose_provenance().to_ne_bytes());
}

const _: () = assert!(size_of::<usize>() == 8, "a host's blob pointer has 8 bytes");
