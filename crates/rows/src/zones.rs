//! Zones: least and greatest value, and whether any is NULL, of columns in each block of a section.
//!
//! Why it exists:    a scan with a condition passes over blocks that cannot have a row for it, without reading them. Zones stand
//!                   beside the blocks for that reason, in memory as long as the section is open.
//! Format / state:   docs/format-rows.md#zones. Only columns whose order the core knows have values in them.
//! Rules:            F35 numbers order as values do. F36: a zone covers every row of its block that is no tombstone. F20 total
//!                   decoding; memory is a few bytes a column, records are read where they stand.
//! Latches and I/O:  none.
//! After a crash:    nothing; zones are part of the piece file.

use crate::block::RowBlockBuilder;
use crate::column_order::{Cell, ColumnOrder, big_endian};
use crate::error::Result;
use crate::fields::ImageReader;
use crate::schema::{COLUMNS_MAX, Schema};
use pbxt_base::codec::{push_u16, put_varint};

const IMAGE: &str = "zones of row blocks";
/// Bytes of a block's record at most; columns beyond get no zones, as those would cost more than they spare.
const RECORD_BYTES_MAX: usize = 512;
/// A row is NULL in the column.
const HAS_NULL: u8 = 1;
/// A row has a value in the column.
const HAS_VALUE: u8 = 2;

/// What the rows of one block have in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Some row is NULL.
    pub has_null: bool,
    /// Least and greatest number of a value (rule F35); none if every row is NULL.
    pub values: Option<(u64, u64)>,
}

/// A column that has zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tracked {
    column: usize,
    /// Bytes of the least value, and of the greatest.
    width: usize,
    /// Place in a block's record.
    offset: usize,
}

impl Tracked {
    fn end(&self) -> usize {
        self.offset + 1 + 2 * self.width
    }
}

/// Collects the zones of a section, block by block.
#[derive(Clone, Debug)]
pub struct ZoneBuilder {
    version: u16,
    columns: Vec<(Tracked, ColumnOrder)>,
    records: Vec<u8>,
}

impl ZoneBuilder {
    /// For blocks of this schema.
    pub fn new(schema: &Schema) -> Self {
        let mut columns: Vec<(Tracked, ColumnOrder)> = Vec::new();
        let mut offset = 0;
        for column in 0..schema.columns().len() {
            let Some(order) = ColumnOrder::new(schema, column) else {
                continue;
            };
            let width = order.width();
            let tracked = Tracked {
                column,
                width,
                offset,
            };
            if (width > 0 || order.nullable()) && tracked.end() <= RECORD_BYTES_MAX {
                offset = tracked.end();
                columns.push((tracked, order));
            }
        }
        Self {
            version: schema.version(),
            columns,
            records: Vec::new(),
        }
    }

    /// Adds the zones of the rows in `block`, which is about to be finished.
    pub fn push(&mut self, block: &RowBlockBuilder) {
        for (tracked, order) in &self.columns {
            let zone = zone_of(order, block);
            let flags = u8::from(zone.has_null) * HAS_NULL + u8::from(zone.values.is_some()) * HAS_VALUE;
            self.records.push(flags);
            let (least, greatest) = zone.values.unwrap_or_default();
            for number in [least, greatest] {
                let bytes = number.swap_bytes().to_le_bytes();
                self.records.extend_from_slice(&bytes[..tracked.width]);
            }
        }
    }

    /// Appends the zones of all blocks and starts the next section.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        push_u16(out, self.version);
        put_varint(out, self.columns.len() as u64);
        for (tracked, _) in &self.columns {
            put_varint(out, tracked.column as u64);
            out.push(tracked.width as u8);
        }
        out.extend_from_slice(&self.records);
        self.records.clear();
    }
}

fn zone_of(order: &ColumnOrder, block: &RowBlockBuilder) -> Zone {
    let (mut least, mut greatest) = (u64::MAX, 0);
    let (mut has_null, mut has_value) = (false, false);
    for payload in block.payloads() {
        match order.cell(payload) {
            Cell::Null => has_null = true,
            Cell::Number(number) => {
                has_value = true;
                least = least.min(number);
                greatest = greatest.max(number);
            }
            Cell::Unknown => {
                has_value = true;
                (least, greatest) = (0, u64::MAX);
            }
        }
    }
    Zone {
        has_null,
        values: has_value.then_some((least, greatest)),
    }
}

/// Where the zones of a section's blocks stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    version: u16,
    columns: Box<[Tracked]>,
    /// Offset of the first record in the bytes that were decoded.
    start: usize,
    record_bytes: usize,
    blocks: usize,
}

impl Zones {
    /// Checks the zones of a section with `blocks` blocks; `bytes` has nothing else.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn decode(bytes: &[u8], blocks: usize) -> Result<Self> {
        Self::decode_behind(bytes, 0, blocks)
    }

    /// The same where they begin at `start` and go to the end.
    pub(crate) fn decode_behind(bytes: &[u8], start: usize, blocks: usize) -> Result<Self> {
        let mut reader = ImageReader::new(IMAGE, bytes);
        reader.take(start)?;
        let version = reader.u16()?;
        let count = reader.varint()?;
        if count > RECORD_BYTES_MAX as u64 {
            return Err(reader.corrupt("at most 512 columns with zones", count));
        }
        let mut columns: Vec<Tracked> = Vec::with_capacity(count as usize);
        let mut offset = 0;
        for _ in 0..count {
            let column = reader.varint()?;
            let after = columns.last().map_or(0, |last| last.column as u64 + 1);
            if column < after || column >= COLUMNS_MAX as u64 {
                return Err(reader.corrupt("rising column numbers below 4096", column));
            }
            let width = reader.u8()? as usize;
            let column = column as usize;
            let tracked = Tracked {
                column,
                width,
                offset,
            };
            if width > 8 || tracked.end() > RECORD_BYTES_MAX {
                return Err(reader.corrupt(
                    "a width of at most 8 in a record of at most 512 bytes",
                    width as u64,
                ));
            }
            offset = tracked.end();
            columns.push(tracked);
        }
        if blocks.checked_mul(offset) != Some(reader.left()) {
            return Err(reader.corrupt("one record for each block", reader.left() as u64));
        }
        Ok(Self {
            version,
            columns: columns.into(),
            start: reader.position(),
            record_bytes: offset,
            blocks,
        })
    }

    /// Version of the schema that the blocks were written with.
    pub fn schema_version(&self) -> u16 {
        self.version
    }

    /// Numbers of the columns that have zones.
    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().map(|tracked| tracked.column)
    }

    /// The zone of a column in a block, from the bytes that were decoded; None if it has none.
    pub fn zone(&self, bytes: &[u8], block: usize, column: usize) -> Option<Zone> {
        let at = self
            .columns
            .binary_search_by_key(&column, |tracked| tracked.column);
        let tracked = self.columns[at.ok()?];
        if block >= self.blocks {
            return None;
        }
        let record = bytes.get(self.start + block * self.record_bytes..)?;
        let field = record.get(tracked.offset..tracked.end())?;
        let (flags, numbers) = field.split_first()?;
        let (least, greatest) = numbers.split_at(tracked.width);
        let values = if tracked.width == 0 {
            (0, u64::MAX)
        } else {
            (big_endian(least), big_endian(greatest))
        };
        Some(Zone {
            has_null: flags & HAS_NULL != 0,
            values: (flags & HAS_VALUE != 0).then_some(values),
        })
    }
}
