//! Host record: how the host's record buffer holds the columns of a table, as the catalog keeps it.
//!
//! Why it exists: actions of foreign keys change rows of tables that no host has open; with the buffer's layout in the catalog
//! the engine opens such a table by itself, in the very layout the host would give, so that keys, large values and
//! computed columns go the same way as in any other change.
//! Format: docs/format-catalog.md#table-definition; one encoder and one decoder, here.
//! Rules: K1 a definition is self-contained. FK4 equal type texts compare alike.

use crate::definition::{damaged, text};
use crate::error::Result;
use pbxt_base::codec::{Reader, push_bytes, push_u8, push_u16, push_u32};
use pbxt_rows::{HostColumn, HostKind, HostLayout, Order, Schema};

/// What the host told of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordColumn {
    /// Its name.
    pub name: String,
    /// Stands for its type; without the length of strings (rule FK4).
    pub type_text: String,
    /// Where the buffer has it.
    pub place: HostColumn,
    /// The default record has its default.
    pub has_default: bool,
}

/// A host's record buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRecordDef {
    /// All columns, in the schema's order.
    pub columns: Vec<RecordColumn>,
    /// A record of defaults, as long as the buffer; in place of pointers zeros.
    pub defaults: Vec<u8>,
}

const STORED: u8 = 1;
const HAS_DEFAULT: u8 = 2;

impl HostRecordDef {
    /// The layout, with the orders that the schema has.
    pub fn layout(&self, schema: &Schema) -> Result<HostLayout> {
        let places = self.columns.iter().map(|column| column.place).collect();
        let orders: Vec<Order> = (0..self.columns.len())
            .map(|column| schema.order(column))
            .collect();
        Ok(HostLayout::new(self.defaults.len(), places)?.with_orders(orders))
    }

    /// Number of the column of this name; small and capital letters are the same.
    pub fn column(&self, name: &str) -> Option<usize> {
        let wanted = name.to_lowercase();
        let is_it = |column: &RecordColumn| column.name == name || column.name.to_lowercase() == wanted;
        self.columns.iter().position(is_it)
    }

    /// Appends the catalog image; `None` as its absence.
    pub(crate) fn encode(record: Option<&Self>, out: &mut Vec<u8>) {
        let Some(record) = record else {
            push_u32(out, 0);
            return;
        };
        push_u32(
            out,
            u32::try_from(record.defaults.len()).expect("K1: a record buffer is shorter than 4 GiB"),
        );
        for column in &record.columns {
            column.encode(out);
        }
        out.extend_from_slice(&record.defaults);
    }

    /// Reads what `encode` wrote for a schema of so many columns.
    pub(crate) fn decode(reader: &mut Reader<'_>, columns: usize) -> Result<Option<Self>> {
        let bytes = reader.u32()? as usize;
        if bytes == 0 {
            return Ok(None);
        }
        let columns = (0..columns)
            .map(|_| RecordColumn::decode(reader))
            .collect::<Result<Vec<_>>>()?;
        let defaults = reader.bytes(bytes)?.to_vec();
        Ok(Some(Self { columns, defaults }))
    }
}

impl RecordColumn {
    fn encode(&self, out: &mut Vec<u8>) {
        push_bytes(out, self.name.as_bytes());
        push_bytes(out, self.type_text.as_bytes());
        let (kind, width, pad) = match self.place.kind {
            HostKind::Fixed(width) => (0, width, 0),
            HostKind::Var1(width) => (1, width, 0),
            HostKind::Var2(width) => (2, width, 0),
            HostKind::Blob(length_bytes) => (2 + length_bytes, 0, 0),
            HostKind::Padded { len, pad } => (7, len, pad),
        };
        push_u8(out, kind);
        push_u16(out, width);
        push_u8(out, pad);
        push_u32(out, self.place.offset);
        push_u32(out, self.place.null_offset);
        push_u8(out, self.place.null_bit);
        let flag = |on, bit| if on { bit } else { 0 };
        push_u8(
            out,
            flag(self.place.stored, STORED) | flag(self.has_default, HAS_DEFAULT),
        );
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let name = text(reader.length_prefixed()?)?;
        let type_text = text(reader.length_prefixed()?)?;
        let code = reader.u8()?;
        let (width, pad) = (reader.u16()?, reader.u8()?);
        let kind = match code {
            0 => HostKind::Fixed(width),
            1 => HostKind::Var1(width),
            2 => HostKind::Var2(width),
            3..=6 => HostKind::Blob(code - 2),
            7 => HostKind::Padded { len: width, pad },
            other => return Err(damaged("a kind of column in a record", u64::from(other))),
        };
        let (offset, null_offset) = (reader.u32()?, reader.u32()?);
        let (null_bit, flags) = (reader.u8()?, reader.u8()?);
        Ok(Self {
            name,
            type_text,
            place: HostColumn {
                offset,
                kind,
                null_offset,
                null_bit,
                stored: flags & STORED != 0,
            },
            has_default: flags & HAS_DEFAULT != 0,
        })
    }
}
