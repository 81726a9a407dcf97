//! Schema: the physical columns of a table and where each sits in a row payload.
//!
//! Why it exists:    payloads must be readable where no host is: recovery, `check`, the tools and Rust programs know rows only
//!                   through the schema kept in the catalog.
//! Format / state:   docs/format-rows.md#schema (catalog image) and #row-payload (what the places mean).
//! Rules:            F22: places follow from the column list alone; equal lists give equal payloads.
//! After a crash:    comes back with the catalog; a row record names the schema version it was written with.

use crate::error::{Error, Result};
use crate::fields::ImageReader;
use pbxt_base::codec::push_u16;

/// Most columns a table may have.
pub(crate) const COLUMNS_MAX: usize = 4096;
const IMAGE: &str = "schema image";
const FORMAT: u8 = 1;
/// The order of a column stands in the upper half of the byte that says its kind.
const ORDER_SHIFT: u32 = 4;

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Always this many bytes.
    Fixed(u16),
    /// Any number of bytes.
    Var,
    /// `len` bytes for the user, of which trailing `pad` bytes are not stored.
    Padded {
        /// Bytes with padding.
        len: u16,
        /// The padding byte.
        pad: u8,
    },
    /// Not stored: the host computes it. Keeps its number so that column numbers are the host's.
    Virtual,
}

/// How values of a column compare, as far as the core can tell without the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Only the host knows.
    #[default]
    Unknown,
    /// Unsigned little-endian number of 1 to 8 bytes.
    Uint,
    /// Two's complement little-endian number of 1 to 8 bytes.
    Int,
    /// IEEE single, little-endian.
    F32,
    /// IEEE double, the same.
    F64,
    /// As the bytes do.
    Bytes,
}

/// All orders, by the number that stands for them in images.
const ORDERS: [Order; 6] = [
    Order::Unknown,
    Order::Uint,
    Order::Int,
    Order::F32,
    Order::F64,
    Order::Bytes,
];

impl Order {
    /// The order of this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        ORDERS.get(code as usize).copied()
    }

    /// True if values of such a column can have it.
    fn fits(self, kind: ColumnKind) -> bool {
        match self {
            Self::Unknown => true,
            Self::Uint | Self::Int => matches!(kind, ColumnKind::Fixed(1..=8)),
            Self::F32 => kind == ColumnKind::Fixed(4),
            Self::F64 => kind == ColumnKind::Fixed(8),
            Self::Bytes => kind != ColumnKind::Virtual,
        }
    }
}

/// One column of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// How it is stored.
    pub kind: ColumnKind,
    /// True if it may be NULL.
    pub nullable: bool,
}

/// Where a column sits in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Fixed { offset: u32, len: u16 },
    Var { ordinal: u16 },
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) place: Place,
    /// Number among the nullable stored columns.
    pub(crate) null_ordinal: Option<u16>,
}

/// Offsets every payload of a schema shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of the null bitmap, which begins at byte 1.
    pub(crate) null_bytes: usize,
    /// Nullable stored columns.
    pub(crate) null_count: usize,
    /// End of the fixed columns.
    pub(crate) fixed_end: usize,
    /// Columns of variable length.
    pub(crate) var_count: usize,
}

impl Shape {
    /// Bytes of the bitmap of external values, where a payload has one.
    pub(crate) fn external_bytes(self) -> usize {
        self.var_count.div_ceil(8)
    }
}

/// The columns of one version of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    version: u16,
    columns: Vec<Column>,
    /// One for each column.
    orders: Vec<Order>,
    placed: Vec<Placed>,
    shape: Shape,
}

impl Schema {
    /// Lays the columns out. `version` is written into every row record made with it.
    ///
    /// # Errors
    /// `BadLayout` for more than 4096 columns.
    pub fn new(version: u16, columns: Vec<Column>) -> Result<Self> {
        if columns.len() > COLUMNS_MAX {
            return Err(Error::BadLayout {
                column: columns.len(),
                why: "a table has at most 4096 columns",
            });
        }
        let (placed, shape) = place(&columns);
        Ok(Self {
            version,
            orders: vec![Order::Unknown; columns.len()],
            columns,
            placed,
            shape,
        })
    }

    /// The same columns with what is known of their orders: one entry each, those left out are unknown.
    ///
    /// # Errors
    /// `BadLayout` for an order that values of its column cannot have.
    pub fn with_orders(mut self, orders: &[Order]) -> Result<Self> {
        for (column, (own, order)) in self.orders.iter_mut().zip(orders).enumerate() {
            if !order.fits(self.columns[column].kind) {
                return Err(Error::BadLayout {
                    column,
                    why: "its values cannot have the order it is given",
                });
            }
            *own = *order;
        }
        Ok(self)
    }

    /// How values of the column compare.
    pub fn order(&self, number: usize) -> Order {
        self.orders.get(number).copied().unwrap_or_default()
    }

    /// The same columns as another version of a table.
    #[must_use]
    pub fn with_version(self, version: u16) -> Self {
        Self { version, ..self }
    }

    /// Version number given at construction.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// All columns, virtual ones included.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Column `number`, if there is one.
    pub fn column(&self, number: usize) -> Option<Column> {
        self.columns.get(number).copied()
    }

    pub(crate) fn placed(&self, number: usize) -> Option<Placed> {
        self.placed.get(number).copied()
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Appends the catalog image (docs/format-rows.md#schema).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        push_u16(out, self.version);
        push_u16(out, self.columns.len() as u16);
        for (column, order) in self.columns.iter().zip(&self.orders) {
            let (kind, len, pad) = match column.kind {
                ColumnKind::Fixed(len) => (0, len, 0),
                ColumnKind::Var => (1, 0, 0),
                ColumnKind::Padded { len, pad } => (2, len, pad),
                ColumnKind::Virtual => (3, 0, 0),
            };
            out.extend_from_slice(&[kind | (*order as u8) << ORDER_SHIFT, u8::from(column.nullable)]);
            push_u16(out, len);
            out.push(pad);
        }
    }

    /// Reads a catalog image; `bytes` must be exactly one image.
    ///
    /// # Errors
    /// `Corrupt`, or `WrongFormat` for an image of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = ImageReader::new(IMAGE, bytes);
        reader.format(FORMAT)?;
        let version = reader.u16()?;
        let count = reader.u16()? as usize;
        let mut columns = Vec::with_capacity(count.min(COLUMNS_MAX));
        let mut orders = Vec::with_capacity(count.min(COLUMNS_MAX));
        for _ in 0..count {
            let (column, order) = decode_column(&mut reader)?;
            columns.push(column);
            orders.push(order);
        }
        reader.end()?;
        Self::new(version, columns)?.with_orders(&orders)
    }
}

fn decode_column(reader: &mut ImageReader<'_>) -> Result<(Column, Order)> {
    let code = reader.u8()?;
    let order = Order::from_code(code >> ORDER_SHIFT)
        .ok_or_else(|| reader.corrupt("a known kind and order of a column", code as u64))?;
    let kind = code & ((1 << ORDER_SHIFT) - 1);
    let nullable = reader.flag()?;
    let len = reader.u16()?;
    let pad = reader.u8()?;
    let kind = match (kind, len, pad) {
        (0, len, 0) => ColumnKind::Fixed(len),
        (1, 0, 0) => ColumnKind::Var,
        (2, len, pad) => ColumnKind::Padded { len, pad },
        (3, 0, 0) => ColumnKind::Virtual,
        _ => return Err(reader.corrupt("a known column kind with its length and padding", kind as u64)),
    };
    Ok((Column { kind, nullable }, order))
}

fn place(columns: &[Column]) -> (Vec<Placed>, Shape) {
    let stored = |column: &&Column| column.kind != ColumnKind::Virtual;
    let null_count = columns
        .iter()
        .filter(stored)
        .filter(|column| column.nullable)
        .count();
    let null_bytes = null_count.div_ceil(8);
    let mut shape = Shape {
        null_bytes,
        null_count,
        fixed_end: 1 + null_bytes,
        var_count: 0,
    };
    let mut null_ordinal = 0;
    let placed = columns.iter().map(|column| {
        let place = match column.kind {
            ColumnKind::Fixed(len) => {
                let offset = shape.fixed_end as u32;
                shape.fixed_end += len as usize;
                Place::Fixed { offset, len }
            }
            ColumnKind::Var | ColumnKind::Padded { .. } => {
                shape.var_count += 1;
                Place::Var {
                    ordinal: (shape.var_count - 1) as u16,
                }
            }
            ColumnKind::Virtual => {
                return Placed {
                    place: Place::Nowhere,
                    null_ordinal: None,
                };
            }
        };
        let ordinal = column.nullable.then_some(null_ordinal);
        null_ordinal += u16::from(column.nullable);
        Placed {
            place,
            null_ordinal: ordinal,
        }
    });
    (placed.collect(), shape)
}
