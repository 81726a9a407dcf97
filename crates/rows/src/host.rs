//! HostLayout: where a host keeps each column in its record buffer, and how to read and write one field of it.
//!
//! Why it exists:    a host hands over its native buffer; with this description, checked once, a row is encoded without one
//!                   callback. Only offsets are used, so any buffer of the host with the same layout will do.
//! Format / state:   not stored; given at every table open and compared with the stored schema by `RowCodec::new`.
//! Rules:            F26: fields lie inside the record and do not overlap; null bits are distinct and outside of fields.
//!                   F20: a field is read or written only inside its checked place.
//! Latches and I/O:  none.

use crate::error::{Error, Result};
use crate::fields::le_uint;
use crate::schema::{Column, ColumnKind, Schema};

/// How a host's record buffer holds a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// This many bytes.
    Fixed(u16),
    /// One length byte and room for this many (at most 255).
    Var1(u16),
    /// Two length bytes, little-endian, and room for this many.
    Var2(u16),
    /// This many length bytes (1 to 4), little-endian, and an unaligned 8-byte pointer in the machine's byte order.
    Blob(u8),
    /// `len` bytes, filled up with `pad`; the padding is not stored.
    Padded {
        /// Bytes with padding.
        len: u16,
        /// The padding byte.
        pad: u8,
    },
}

/// One column of a record buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostColumn {
    /// Offset of the field; of `Var` and `Blob` the offset of the length bytes.
    pub offset: u32,
    /// How the field is held.
    pub kind: HostKind,
    /// Offset of the byte with the null bit; ignored if `null_bit` is 0.
    pub null_offset: u32,
    /// Mask of the null bit; 0 = the column cannot be NULL.
    pub null_bit: u8,
    /// False for a column the host computes; its value is never stored, its key images may be.
    pub stored: bool,
}

/// Where all columns sit in a host's record buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayout {
    record_length: usize,
    columns: Vec<HostColumn>,
}

impl HostKind {
    /// Bytes of the field in the record buffer.
    pub fn width(self) -> usize {
        match self {
            Self::Fixed(len) | Self::Padded { len, .. } => len as usize,
            Self::Var1(max) => 1 + max as usize,
            Self::Var2(max) => 2 + max as usize,
            Self::Blob(length_bytes) => length_bytes as usize + 8,
        }
    }

    /// Longest value the field can hold, in bytes.
    pub fn value_max(self) -> usize {
        match self {
            Self::Fixed(len) | Self::Padded { len, .. } | Self::Var1(len) | Self::Var2(len) => len as usize,
            Self::Blob(length_bytes) => (1_usize << (8 * length_bytes.clamp(1, 4) as usize)) - 1,
        }
    }
}

impl HostLayout {
    /// Checks the description of a record buffer of `record_length` bytes.
    ///
    /// # Errors
    /// `BadLayout` names the first column that breaks F26.
    pub fn new(record_length: usize, columns: Vec<HostColumn>) -> Result<Self> {
        let layout = Self {
            record_length,
            columns,
        };
        layout.check_fields()?;
        layout.check_null_bits()?;
        Ok(layout)
    }

    /// Bytes of the record buffer.
    pub fn record_length(&self) -> usize {
        self.record_length
    }

    /// All columns in the host's order.
    pub fn columns(&self) -> &[HostColumn] {
        &self.columns
    }

    /// True if a record holds pointers to values.
    pub fn has_blobs(&self) -> bool {
        self.columns
            .iter()
            .any(|column| matches!(column.kind, HostKind::Blob(_)))
    }

    /// The schema that stores records of this layout.
    ///
    /// # Errors
    /// `BadLayout` for more than 4096 columns.
    pub fn schema(&self, version: u16) -> Result<Schema> {
        let column = |host: &HostColumn| Column {
            kind: host.stored_kind(),
            nullable: host.null_bit != 0,
        };
        Schema::new(version, self.columns.iter().map(column).collect())
    }

    pub(crate) fn field(&self, column: usize) -> Option<HostField> {
        let host = self.columns.get(column)?;
        let null_offset = if host.null_bit == 0 {
            0
        } else {
            host.null_offset as usize
        };
        Some(HostField {
            column,
            offset: host.offset as usize,
            kind: host.kind,
            null_offset,
            null_bit: host.null_bit,
        })
    }

    fn check_fields(&self) -> Result<()> {
        let mut fields = Vec::with_capacity(self.columns.len());
        for (column, host) in self.columns.iter().enumerate() {
            let bad = |why| Err(Error::BadLayout { column, why });
            let (start, width) = (host.offset as usize, host.kind.width());
            if matches!(host.kind, HostKind::Var1(max) if max > 255) {
                return bad("one length byte counts at most 255 bytes");
            }
            if matches!(host.kind, HostKind::Blob(bytes) if !(1..=4).contains(&bytes)) {
                return bad("a blob has 1 to 4 length bytes");
            }
            if start + width > self.record_length {
                return bad("the field ends behind the record");
            }
            if width > 0 {
                fields.push((start, start + width, column));
            }
        }
        fields.sort_unstable();
        for pair in fields.windows(2) {
            if let [(_, end, _), (start, _, column)] = *pair
                && start < end
            {
                return Err(Error::BadLayout {
                    column,
                    why: "the field overlaps another one",
                });
            }
        }
        Ok(())
    }

    fn check_null_bits(&self) -> Result<()> {
        let mut taken = std::collections::HashSet::new();
        for host in &self.columns {
            let start = host.offset as usize;
            taken.extend((start..start + host.kind.width()).map(|offset| (offset, 0)));
        }
        for (column, host) in self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, host)| host.null_bit != 0)
        {
            let bad = |why| Err(Error::BadLayout { column, why });
            let offset = host.null_offset as usize;
            if !host.null_bit.is_power_of_two() {
                return bad("the null bit is not a single bit");
            }
            if offset >= self.record_length {
                return bad("the null bit lies behind the record");
            }
            if taken.contains(&(offset, 0)) {
                return bad("the null bit lies inside a field");
            }
            if !taken.insert((offset, host.null_bit)) {
                return bad("two columns share a null bit");
            }
        }
        Ok(())
    }
}

impl HostColumn {
    /// How the column is stored.
    pub(crate) fn stored_kind(&self) -> ColumnKind {
        if self.stored {
            self.kind.column_kind()
        } else {
            ColumnKind::Virtual
        }
    }
}

impl HostKind {
    /// How a column held like this is stored if it is.
    pub(crate) fn column_kind(self) -> ColumnKind {
        match self {
            Self::Fixed(len) => ColumnKind::Fixed(len),
            Self::Padded { len, pad } => ColumnKind::Padded { len, pad },
            Self::Var1(_) | Self::Var2(_) | Self::Blob(_) => ColumnKind::Var,
        }
    }
}

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
