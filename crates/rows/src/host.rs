//! HostLayout: where a host keeps each column in its record buffer.
//!
//! Why it exists:    a host hands over its native buffer; with this description, checked once, a row is encoded without one
//!                   callback. Only offsets are used, so any buffer of the host with the same layout will do.
//! Format / state:   not stored; given at every table open and compared with the stored schema by `RowCodec::new`.
//! Rules:            F26: fields lie inside the record, which has 1 MiB at most, and do not overlap; null bits are distinct and outside
//!                   of fields.
//! Latches and I/O:  none.

use crate::error::{Error, Result};
use crate::host_field::{HostField, HostRecord};
use crate::schema::{Column, ColumnKind, Order, Schema};
use pbxt_base::limits::RECORD_BYTES_MAX;

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
    /// What is known of the orders of the columns; those behind the end are unknown.
    orders: Vec<Order>,
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
    /// `BadLayout` names the first column that breaks F26; an empty record holds no columns. `TooLarge` beyond 1 MiB.
    pub fn new(record_length: usize, columns: Vec<HostColumn>) -> Result<Self> {
        if record_length == 0 && !columns.is_empty() {
            return Err(Error::BadLayout {
                column: 0,
                why: "the record has no bytes",
            });
        }
        if record_length > RECORD_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "a record",
                found: record_length as u64,
                limit: RECORD_BYTES_MAX as u64,
            });
        }
        let layout = Self {
            record_length,
            columns,
            orders: Vec::new(),
        };
        let owned = layout.check_fields()?;
        layout.check_null_bits(owned)?;
        Ok(layout)
    }

    /// The same layout with what is known of the orders of its columns, for the schema: one entry each.
    #[must_use]
    pub fn with_orders(mut self, orders: Vec<Order>) -> Self {
        self.orders = orders;
        self
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
    /// `BadLayout` for more than 4096 columns, or an order that values of its column cannot have.
    pub fn schema(&self, version: u16) -> Result<Schema> {
        let column = |host: &HostColumn| Column {
            kind: host.stored_kind(),
            nullable: host.null_bit != 0,
        };
        Schema::new(version, self.columns.iter().map(column).collect())?.with_orders(&self.orders)
    }

    /// The value of a column in a record of this layout; `None` if it is NULL.
    ///
    /// # Errors
    /// `BadLayout` if there is no such column; `TooShort`, `BadValue` for a record that is none of this layout.
    pub fn value<'a>(&self, column: usize, record: HostRecord<'a>) -> Result<Option<&'a [u8]>> {
        let field = self.column_field(column)?;
        let record = record.checked(self.record_length)?;
        if field.is_null(record.bytes()) {
            return Ok(None);
        }
        field.value(record).map(Some)
    }

    /// Puts a value, or NULL, into a column of a record. Values behind pointers are refused: nobody here keeps them.
    ///
    /// # Errors
    /// `BadLayout` if there is no such column, it cannot be NULL, or it holds a pointer; `TooShort`; `BadValue` if the value does not fit.
    pub fn set_value(&self, column: usize, value: Option<&[u8]>, record: &mut [u8]) -> Result<()> {
        let field = self.column_field(column)?;
        let bad = |why| Error::BadLayout { column, why };
        if matches!(field.kind, HostKind::Blob(_)) {
            return Err(bad("its values stand elsewhere"));
        }
        let (found, expected) = (record.len(), self.record_length);
        let record = record.get_mut(..expected).ok_or(Error::TooShort {
            what: "the record",
            found,
            expected,
        })?;
        let Some(value) = value else {
            if field.null_bit == 0 {
                return Err(bad("it cannot be NULL"));
            }
            field.set_null(record, true);
            field.write_null(record);
            return Ok(());
        };
        field.write(record, value, value.as_ptr())?;
        if field.null_bit != 0 {
            field.set_null(record, false);
        }
        Ok(())
    }

    fn column_field(&self, column: usize) -> Result<HostField> {
        self.field(column).ok_or(Error::BadLayout {
            column,
            why: "the table has no such column",
        })
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

    /// Marks the bits each field owns; a bit owned twice is an overlap.
    fn check_fields(&self) -> Result<Vec<u8>> {
        let mut owned = vec![0_u8; self.record_length];
        for (column, host) in self.columns.iter().enumerate() {
            let bad = |why| Err(Error::BadLayout { column, why });
            if matches!(host.kind, HostKind::Var1(max) if max > 255) {
                return bad("one length byte counts at most 255 bytes");
            }
            if matches!(host.kind, HostKind::Blob(bytes) if !(1..=4).contains(&bytes)) {
                return bad("a blob has 1 to 4 length bytes");
            }
            let start = host.offset as usize;
            let Some(field) = owned.get_mut(start..start + host.kind.width()) else {
                return bad("the field ends behind the record");
            };
            if field.iter().any(|&bits| bits != 0) {
                return bad("the field overlaps another one");
            }
            field.fill(0xFF);
        }
        Ok(owned)
    }

    fn check_null_bits(&self, mut owned: Vec<u8>) -> Result<()> {
        for (column, host) in self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, host)| host.null_bit != 0)
        {
            let bad = |why| Err(Error::BadLayout { column, why });
            if !host.null_bit.is_power_of_two() {
                return bad("the null bit is not a single bit");
            }
            let Some(bits) = owned.get_mut(host.null_offset as usize) else {
                return bad("the null bit lies behind the record");
            };
            if *bits & host.null_bit != 0 {
                return bad("the null bit lies inside a field or is another column's");
            }
            *bits |= host.null_bit;
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
