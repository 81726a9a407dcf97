//! Row writer: writes rows of one table, in row id order, as sections of piece files.
//!
//! Why it exists: compactor, merges and bulk loads all end in the same blocks; how large a block is and what a section
//! carries beside them is decided here.
//! Size of blocks: a look-up of one row reads and decodes its whole block, so small ones are better, unless the compressor
//! needs more at once. Which it is shows in the rows: the first ones of a job are packed both ways (rule S31). So is how thoroughly
//! the compressor had better look: what has nothing to find is packed quickly (rule S59).
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

/// Raw bytes of a block whose rows shrink more when they are packed together; larger ones save little.
const BLOCK_BYTES: usize = 96 << 10;
/// Raw bytes of a block whose rows do not.
const SMALL_BLOCK_BYTES: usize = 16 << 10;
/// What small blocks may cost: this part of the space.
const SMALL_COST: usize = 16;
/// The level of Zstandard that does no more than what is quick (rule S59), and what it may cost: this part of the space.
const QUICK_LEVEL: i8 = 1;
const QUICK_COST: usize = 32;
/// Rows of a block at most.
const BLOCK_ROWS: usize = 2048;

/// See the module.
#[derive(Debug)]
pub(crate) struct RowWriter {
    block: RowBlockBuilder,
    /// Raw bytes at which a block is full.
    full_at: usize,
    trial: Option<Trial>,
    zones: ZoneBuilder,
    codec: Codec,
    raw: Vec<u8>,
    rows: RoaringTreemap,
    /// First and last of rows that follow each other and are not in `rows` yet.
    stretch: Option<(u64, u64)>,
    last: Option<RowId>,
}

/// The rows of the first full block once more, in small blocks that are packed and thrown away (rule S31).
#[derive(Debug)]
struct Trial {
    block: RowBlockBuilder,
    /// Bytes that the small blocks would take in the file.
    stored: usize,
}

impl RowWriter {
    /// A writer for rows of this schema.
    pub(crate) fn new(schema: &Schema, codec: Codec) -> Self {
        // What is not compressed costs the same in any size.
        let (full_at, trial) = if codec == Codec::Plain {
            (SMALL_BLOCK_BYTES, None)
        } else {
            let block = RowBlockBuilder::new(schema);
            (BLOCK_BYTES, Some(Trial { block, stored: 0 }))
        };
        Self {
            block: RowBlockBuilder::new(schema),
            full_at,
            trial,
            zones: ZoneBuilder::new(schema),
            codec,
            raw: Vec::new(),
            rows: RoaringTreemap::new(),
            stretch: None,
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
        self.note_row(row.raw());
        self.last = Some(row);
        if let Some(trial) = &mut self.trial {
            // The same row fitted just now.
            let _ = trial.block.push(row, payload);
            if trial.block.raw_bytes() >= SMALL_BLOCK_BYTES {
                trial.pack(out, &mut self.raw, self.codec)?;
            }
        }
        if self.block.raw_bytes() >= self.full_at || self.block.rows() >= BLOCK_ROWS {
            self.flush_full(out)?;
        }
        Ok(())
    }

    #[inline]
    fn note_row(&mut self, row: u64) {
        match &mut self.stretch {
            Some((_, last)) if *last + 1 == row => *last = row,
            _ => {
                self.end_stretch();
                self.stretch = Some((row, row));
            }
        }
    }

    fn end_stretch(&mut self) {
        if let Some((first, last)) = self.stretch.take() {
            self.rows.insert_range(first..=last);
        }
    }

    /// A full block; the first one decides about the others.
    fn flush_full(&mut self, out: &mut PieceWriter) -> Result<()> {
        let before = out.section_bytes();
        self.flush(out)?;
        if let Some(mut trial) = self.trial.take() {
            out.settle()?;
            let together = (out.section_bytes() - before) as usize;
            // First: the small blocks are packed with the memory of the large one.
            let is_quick = self.is_quick_enough(out, together)?;
            trial.pack(out, &mut self.raw, self.codec)?;
            if is_quick {
                self.codec = Codec::Zstd(QUICK_LEVEL);
            }
            if trial.stored <= together + together / SMALL_COST {
                self.full_at = SMALL_BLOCK_BYTES;
            }
        }
        Ok(())
    }

    /// Whether the block just written would be about as small packed quickly (rule S59).
    fn is_quick_enough(&self, out: &mut PieceWriter, stored: usize) -> Result<bool> {
        if !matches!(self.codec, Codec::Zstd(level) if level > QUICK_LEVEL) {
            return Ok(false);
        }
        let quick = out.trial_bytes(&self.raw, Codec::Zstd(QUICK_LEVEL))?;
        Ok(quick <= stored + stored / QUICK_COST)
    }

    /// Ends the section; its number.
    pub(crate) fn end(&mut self, out: &mut PieceWriter) -> Result<u32> {
        self.flush(out)?;
        out.settle()?;
        self.end_stretch();
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

impl Trial {
    fn pack(&mut self, out: &mut PieceWriter, raw: &mut Vec<u8>, codec: Codec) -> Result<()> {
        if self.block.rows() > 0 {
            raw.clear();
            self.block.finish(raw);
            self.stored += out.trial_bytes(raw, codec)?;
        }
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

#[cfg(test)]
#[path = "row_writer_tests.rs"]
pub(crate) mod row_writer_tests;
