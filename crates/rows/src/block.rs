//! RowBlock: rows of one table in rising row id order, column by column on disk, row payloads in memory.
//!
//! Why it exists:    settled rows are read often and written once. Equal columns next to each other shrink to a third of what a
//!                   compressor makes of whole rows; a reader wants payloads, so a block is turned into rows once and cached.
//! Format / state:   docs/format-rows.md#row-blocks.
//! Rules:            F30 payloads come back byte by byte, F31 rows rise, F20 total decoding with bounded memory.
//! Latches and I/O:  none; the caller compresses, checksums, stores and caches.
//! After a crash:    nothing; pieces of blocks become durable before a checkpoint names them.

mod bits;
mod builder;
mod letters;
mod numbers;
mod read;
mod streams;
mod values;

pub use builder::RowBlockBuilder;

use crate::error::Result;
use crate::remap::Remap;
use crate::schema::Schema;
use pbxt_base::RowId;

const FORMAT: u8 = 1;
/// Row ids have gaps, which are stored.
const SPARSE: u8 = 1;
/// Some rows are tombstones.
const TOMBSTONES: u8 = 2;

/// Most rows of a block.
pub const BLOCK_ROWS_MAX: usize = 1 << 16;
/// Most payload bytes of a block: bounds the memory that damaged bytes can make a reader ask for.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
const ROW_ID_MAX: u64 = (1 << 48) - 1;
/// Bytes of a line of memory.
const LINE_BYTES: usize = 64;

/// Bytes of a value inside some buffer.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    start: u32,
    len: u32,
}

impl View {
    #[inline]
    fn new(start: usize, len: usize) -> Self {
        Self {
            start: start as u32,
            len: len as u32,
        }
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        bytes
            .get(self.start as usize..self.start as usize + self.len as usize)
            .unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
enum RowIds {
    /// Every id from the first one on.
    Dense(u64),
    /// Rising.
    Sparse(Box<[u64]>),
}

/// Where payloads begin.
#[derive(Clone, Debug)]
enum Starts {
    /// Each has so many bytes.
    Even(u32),
    /// Where each row's begins, and the end of the last one. A tombstone has no bytes, a payload at least one.
    Listed(Box<[u32]>),
}

impl Starts {
    /// Rows that are all alike need no list: a reader of one has a line of memory less to wait for.
    fn of(listed: Vec<u32>) -> Self {
        let bytes = listed.get(1).copied().unwrap_or_default();
        let is_even = |(&start, row): (&u32, u64)| u64::from(start) == row * u64::from(bytes);
        if bytes > 0 && listed.iter().zip(0..).all(is_even) {
            Self::Even(bytes)
        } else {
            Self::Listed(listed.into_boxed_slice())
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Even(_) => 0,
            Self::Listed(starts) => size_of_val(&**starts),
        }
    }
}

/// A decoded block, ready for any number of readers. It has no more bytes than a line of memory, so that one wait brings all that
/// leads to a row; whoever keeps many has them begin with a line.
#[derive(Clone, Debug)]
pub struct RowBlock {
    schema_version: u16,
    /// Rows, tombstones included.
    rows: u32,
    ids: RowIds,
    starts: Starts,
    payloads: Box<[u8]>,
}

const _: () = assert!(size_of::<RowBlock>() <= LINE_BYTES);

impl RowBlock {
    /// The schema version of a block, to find the schema that `decode` needs.
    ///
    /// # Errors
    /// `Corrupt`, or `WrongFormat` for a block of a later version.
    pub fn schema_version_of(bytes: &[u8]) -> Result<u16> {
        read::schema_version_of(bytes)
    }

    /// Reads a block written with `schema`.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no such block, `WrongFormat` for a block of a later version.
    pub fn decode(schema: &Schema, bytes: &[u8]) -> Result<Self> {
        read::decode(schema, bytes)
    }

    /// The same rows with the columns of another schema version.
    pub(crate) fn remapped(mut self, remap: &Remap, version: u16) -> Result<Self> {
        self.schema_version = version;
        if remap.is_same() {
            return Ok(self);
        }
        let mut payloads = Vec::with_capacity(self.payloads.len());
        let mut starts = Vec::with_capacity(self.len() + 1);
        for index in 0..self.len() {
            starts.push(payloads.len() as u32);
            if let Some(payload) = self.payload(index) {
                remap.apply(payload, &mut payloads)?;
            }
        }
        starts.push(payloads.len() as u32);
        (self.payloads, self.starts) = (payloads.into_boxed_slice(), Starts::of(starts));
        Ok(self)
    }

    /// Bytes this block holds in memory.
    pub fn memory_bytes(&self) -> usize {
        let ids = match &self.ids {
            RowIds::Dense(_) => 0,
            RowIds::Sparse(ids) => size_of_val(&**ids),
        };
        size_of::<Self>() + ids + self.starts.memory_bytes() + self.payloads.len()
    }

    /// Rows, tombstones included.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows as usize
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the schema that payloads are read with.
    pub fn schema_version(&self) -> u16 {
        self.schema_version
    }

    /// Id of row number `index`, which must be below `len`.
    #[inline]
    pub fn row_id(&self, index: usize) -> RowId {
        assert!(index < self.len(), "F31: a block has ids for its rows only");
        match &self.ids {
            RowIds::Dense(first) => RowId::new(first + index as u64),
            RowIds::Sparse(ids) => RowId::new(ids[index]),
        }
    }

    /// Number of the row with this id.
    #[inline]
    pub fn find(&self, row: RowId) -> Option<usize> {
        match &self.ids {
            RowIds::Dense(first) => {
                let index = usize::try_from(row.raw().checked_sub(*first)?).ok()?;
                (index < self.len()).then_some(index)
            }
            RowIds::Sparse(ids) => ids.binary_search(&row.raw()).ok(),
        }
    }

    /// Number of the first row with this id or a larger one; `len` if there is none.
    #[inline]
    pub fn lower_bound(&self, row: RowId) -> usize {
        match &self.ids {
            RowIds::Dense(first) => {
                let distance = row.raw().saturating_sub(*first);
                usize::try_from(distance).map_or(self.len(), |index| index.min(self.len()))
            }
            RowIds::Sparse(ids) => ids.partition_point(|&id| id < row.raw()),
        }
    }

    /// Payload of row number `index`, which must be below `len`; None if the row was deleted.
    #[inline]
    pub fn payload(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = match &self.starts {
            &Starts::Even(bytes) => (index * bytes as usize, (index + 1) * bytes as usize),
            Starts::Listed(starts) => (starts[index] as usize, starts[index + 1] as usize),
        };
        let payload = &self.payloads[start..end];
        (!payload.is_empty()).then_some(payload)
    }
}
