//! Row writer: writes rows of one table, in row id order, as sections of piece files.
//!
//! Why it exists: compactor, merges and bulk loads all end in the same blocks; how large a block is and what a section
//! carries beside them is decided here.
//! Format: docs/format-rows.md, row blocks; docs/format.md, piece files. The section's extra bytes are the set of its row ids
//! and the zones of its blocks.
//! Latches and I/O: writes the piece file; nothing is durable before the file is finished.
//! After a crash: a file that was not named is removed at open.

use crate::error::{Error, Result};
use crate::row_shape::fence_of;
use pbxt_base::{Error as StorageError, RowId, TableId};
use pbxt_rows::{RowBlockBuilder, Schema, SectionExtra, ZoneBuilder};
use pbxt_segment::{Codec, PieceWriter};
use roaring::RoaringTreemap;

/// Kind of a section with rows.
pub(crate) const SECTION_ROWS: u8 = 1;
/// Kind of a section with a checkpoint image.
pub(crate) const SECTION_IMAGE: u8 = 3;

/// Raw bytes of a block: a look-up of one row decodes its whole block, and larger ones save little.
const BLOCK_BYTES: usize = 96 << 10;
/// Rows of a block at most, for the same reason.
const BLOCK_ROWS: usize = 2048;

/// See the module.
#[derive(Debug)]
pub(crate) struct RowWriter<'s> {
    block: RowBlockBuilder<'s>,
    zones: ZoneBuilder,
    codec: Codec,
    raw: Vec<u8>,
    rows: RoaringTreemap,
    last: Option<RowId>,
}

impl<'s> RowWriter<'s> {
    /// A writer for rows of this schema.
    pub(crate) fn new(schema: &'s Schema, codec: Codec) -> Self {
        Self {
            block: RowBlockBuilder::new(schema),
            zones: ZoneBuilder::new(schema),
            codec,
            raw: Vec::new(),
            rows: RoaringTreemap::new(),
            last: None,
        }
    }

    /// Begins a section of the table.
    pub(crate) fn begin(out: &mut PieceWriter, table: TableId) {
        out.begin_section(u64::from(table.raw()), SECTION_ROWS);
    }

    /// Adds a row with a greater id than the one before; no payload means "deleted".
    #[inline]
    pub(crate) fn push(&mut self, out: &mut PieceWriter, row: RowId, payload: Option<&[u8]>) -> Result<()> {
        self.block
            .push(row, payload)
            .map_err(|fault| unfit(row, &fault))?;
        self.rows.insert(row.raw());
        self.last = Some(row);
        if self.block.raw_bytes() >= BLOCK_BYTES || self.block.rows() >= BLOCK_ROWS {
            self.flush(out)?;
        }
        Ok(())
    }

    /// Ends the section; its number.
    pub(crate) fn end(&mut self, out: &mut PieceWriter) -> Result<u32> {
        self.flush(out)?;
        self.rows.optimize();
        let mut rows = Vec::with_capacity(self.rows.serialized_size());
        self.rows
            .serialize_into(&mut rows)
            .map_err(|source| Error::Invalid(format!("a set of row ids cannot be written: {source}")))?;
        let last = fence_of(self.last.take().unwrap_or(RowId::new(0)));
        self.rows.clear();
        Ok(out.end_section(&last, &SectionExtra::encode(&rows, &mut self.zones)))
    }

    fn flush(&mut self, out: &mut PieceWriter) -> Result<()> {
        let rows = self.block.rows();
        let Some(first) = self.block.first_row().map(fence_of) else {
            return Ok(());
        };
        self.raw.clear();
        self.zones.push(&self.block);
        self.block.finish(&mut self.raw);
        out.push_block(&first, rows as u32, &self.raw, self.codec)?;
        Ok(())
    }
}

fn unfit(row: RowId, fault: &pbxt_rows::Error) -> StorageError {
    StorageError::Corrupt {
        file: format!("row {row}"),
        offset: 0,
        expected: "a payload that fits the table's columns".into(),
        found: fault.to_string(),
    }
}
