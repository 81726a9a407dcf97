//! ColumnOrder: one column's values as numbers that order as the values do.
//!
//! Why it exists:    least and greatest values of a block, and the bounds of a condition, are compared without knowing types; a
//!                   number of 8 bytes takes no memory of its own and compares in one step. Key images would do neither.
//! Format / state:   docs/format-rows.md#zones. A number is the key image of the value, cut to 8 bytes, as a big-endian number.
//! Rules:            F35: if one value is less than another, its number is not greater. Numbers of columns that are `exact`
//!                   are equal only if the values compare as equal.
//! Latches and I/O:  none.

use crate::fields::le_uint;
use crate::image::{TOP_BIT, float_order};
use crate::payload::Payload;
use crate::schema::{Order, Place, Schema, Shape};

/// Most bytes of a value that count.
const BYTES_MAX: usize = 8;

/// What a row has in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    /// The number of its value.
    Number(u64),
    /// A value that is not in the row, or not known how it orders.
    Unknown,
}

/// Reads the numbers of one column of payloads of one schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnOrder {
    order: Order,
    place: Place,
    /// Byte of the payload and bit in it that say the column is NULL.
    null: Option<(usize, u8)>,
    shape: Shape,
    width: usize,
}

impl ColumnOrder {
    /// None if the column is not stored.
    pub(crate) fn new(schema: &Schema, column: usize) -> Option<Self> {
        let placed = schema.placed(column)?;
        let order = schema.order(column);
        let width = match (order, placed.place) {
            (_, Place::Nowhere) => return None,
            (Order::Unknown, _) => 0,
            (_, Place::Fixed { len, .. }) => (len as usize).min(BYTES_MAX),
            (_, Place::Var { .. }) => BYTES_MAX,
        };
        let null = placed
            .null_ordinal
            .map(|ordinal| (1 + ordinal as usize / 8, 1 << (ordinal % 8)));
        Some(Self {
            order,
            place: placed.place,
            null,
            shape: schema.shape(),
            width,
        })
    }

    /// Upper bytes of numbers that can differ from zero; 0 if the order is not known.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn nullable(&self) -> bool {
        self.null.is_some()
    }

    /// True if different values have different numbers.
    pub(crate) fn exact(&self) -> bool {
        let whole = matches!(self.place, Place::Fixed { len, .. } if len as usize <= BYTES_MAX);
        self.order != Order::Unknown && whole
    }

    /// The number of a value as stored; None if no value of the column looks so.
    pub(crate) fn number(&self, value: &[u8]) -> Option<u64> {
        if let Place::Fixed { len, .. } = self.place
            && value.len() != len as usize
        {
            return None;
        }
        (self.order != Order::Unknown).then(|| self.number_of(value))
    }

    #[inline]
    fn number_of(&self, value: &[u8]) -> u64 {
        let upper = || le_uint(value) << (64 - 8 * value.len());
        match self.order {
            Order::Uint => upper(),
            Order::Int => upper() ^ TOP_BIT,
            // Of a negative number all bits are inverted, those below a single's too: zones have no room for them.
            Order::F32 => float_order(upper()) & u64::MAX << 32,
            Order::F64 => float_order(upper()),
            Order::Bytes => big_endian(value),
            Order::Unknown => 0,
        }
    }

    /// What a row has; `Unknown` for a payload that is none.
    #[inline]
    pub(crate) fn cell(&self, payload: &[u8]) -> Cell {
        if let Some((byte, bit)) = self.null {
            match payload.get(byte) {
                Some(byte) if byte & bit != 0 => return Cell::Null,
                Some(_) => {}
                None => return Cell::Unknown,
            }
        }
        if self.width == 0 {
            return Cell::Unknown;
        }
        if let Place::Fixed { offset, len } = self.place {
            let start = offset as usize;
            let value = payload.get(start..start + len as usize);
            return value.map_or(Cell::Unknown, |value| Cell::Number(self.number_of(value)));
        }
        self.variable(payload)
    }

    fn variable(&self, payload: &[u8]) -> Cell {
        let (Place::Var { ordinal }, Ok(payload)) = (self.place, Payload::parse(self.shape, payload)) else {
            return Cell::Unknown;
        };
        match payload.var(ordinal as usize) {
            Ok(value) if !payload.is_external(ordinal as usize) => Cell::Number(self.number_of(value)),
            _ => Cell::Unknown,
        }
    }
}

/// The first 8 bytes, as if followed by zeros.
#[inline]
pub(crate) fn big_endian(bytes: &[u8]) -> u64 {
    let count = bytes.len().min(BYTES_MAX);
    le_uint(&bytes[..count]).swap_bytes()
}
