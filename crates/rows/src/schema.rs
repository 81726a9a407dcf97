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
            columns,
            placed,
            shape,
        })
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
        for column in &self.columns {
            let (kind, len, pad) = match column.kind {
                ColumnKind::Fixed(len) => (0, len, 0),
                ColumnKind::Var => (1, 0, 0),
                ColumnKind::Padded { len, pad } => (2, len, pad),
                ColumnKind::Virtual => (3, 0, 0),
            };
            out.extend_from_slice(&[kind, u8::from(column.nullable)]);
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
        for _ in 0..count {
            columns.push(decode_column(&mut reader)?);
        }
        reader.end()?;
        Self::new(version, columns)
    }
}

fn decode_column(reader: &mut ImageReader<'_>) -> Result<Column> {
    let kind = reader.u8()?;
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
    Ok(Column { kind, nullable })
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
