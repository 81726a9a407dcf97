//! Row pieces: how the rows of a table are cut into pieces, and reading pieces in row id order.
//!
//! Why it exists: merges work piece by piece. They can only if a piece of an upper run lies over few pieces of the base, so
//! whoever writes a run looks at the base first.
//! Rules: S7 an upper piece has at most `UPPER_BYTES` and ends where a base piece does, unless these are small (S32); rows behind all older
//! ones get pieces of their own, compressed for good, as they will be moved down and not rewritten.
//! Latches and I/O: reading goes past the cache, with reads of some blocks.

use crate::budget::PieceSizes;
use crate::error::Result;
use crate::row_shape::{RowPiece, RowShape};
use crate::table::Table;
use pbxt_base::RowId;
use pbxt_rows::{RowBlock, Versions};
use pbxt_segment::{Codec, StoredBlocks};
use std::sync::Arc;

/// Bytes of a piece of an upper run.
const UPPER_BYTES: u64 = 8 << 20;
/// Bytes that a reader in order reads at once.
const READ_BYTES: usize = 1 << 20;

/// Where rows stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// In a run that will be merged down.
    Upper,
    /// In the oldest run, or where nothing older is beneath.
    Base,
}

/// How blocks of a table are compressed: upper runs are rewritten soon, the base is read and kept.
pub(crate) fn codec_of(table: &Table, level: Level) -> Codec {
    let compression = table.def().compression;
    match level {
        Level::Upper => compression.upper(),
        Level::Base => compression.base(),
    }
}

impl RowShape {
    /// True if a run has a slot for the row.
    pub(crate) fn has_slot(&self, row: RowId) -> bool {
        self.runs.iter().any(|run| run.has_slot(row))
    }
}

/// Where to end a section (rule S7).
#[derive(Debug)]
pub(crate) struct Cutter {
    /// Last row id and bytes of each piece of the base.
    base: Vec<(RowId, u64)>,
    /// The greatest row id of any run.
    last: RowId,
    /// The piece of `base` at hand, and bytes of base pieces passed since the last cut.
    at: usize,
    spanned: u64,
    level: Level,
    sizes: PieceSizes,
    /// Bytes at which a piece of the base ends.
    base_end: u64,
}

impl Cutter {
    /// For rows that go on top of the shape.
    pub(crate) fn for_patch(shape: &RowShape, sizes: PieceSizes) -> Self {
        let pieces = shape.runs.iter().flat_map(|run| &run.pieces);
        let last = pieces.map(|piece| piece.last).max().unwrap_or_default();
        Self::over(shape.runs.last().map_or(&[], |run| &run.pieces), last, sizes)
    }

    /// For rows of which those up to `last` lie over these pieces.
    pub(crate) fn over(base: &[Arc<RowPiece>], last: RowId, sizes: PieceSizes) -> Self {
        Self {
            base: base
                .iter()
                .map(|piece| (piece.last, piece.stored_bytes()))
                .collect(),
            last,
            at: 0,
            spanned: 0,
            level: Level::Upper,
            base_end: sizes.base_end(0),
            sizes,
        }
    }

    /// For rows of the base, made of pieces with so many bytes.
    pub(crate) fn for_base(input_bytes: u64, sizes: PieceSizes) -> Self {
        Self {
            level: Level::Base,
            base_end: sizes.base_end(input_bytes),
            ..Self::over(&[], RowId::new(0), sizes)
        }
    }

    /// True if a new section begins with this row. Rows come in rising order.
    pub(crate) fn cuts_before(&mut self, row: RowId, section_bytes: u64) -> bool {
        let mut crosses = false;
        while self.base.get(self.at).is_some_and(|(last, _)| *last < row) {
            self.spanned += self.base[self.at].1;
            self.at += 1;
            crosses = true;
        }
        let begins_base = self.level == Level::Upper && row > self.last;
        let limit = if self.level == Level::Upper {
            UPPER_BYTES
        } else {
            self.base_end
        };
        let cuts = begins_base || section_bytes >= limit || (crosses && self.spanned >= self.sizes.span());
        if begins_base {
            self.level = Level::Base;
        }
        if cuts {
            self.spanned = 0;
        }
        cuts
    }

    /// Where the rows of the section at hand stand.
    pub(crate) fn level(&self) -> Level {
        self.level
    }
}

/// Reads the slots of some pieces of one run, in order, with the columns of now (rule AL8).
#[derive(Debug)]
pub(crate) struct SlotReader<'t> {
    versions: &'t Versions,
    pieces: Vec<Arc<RowPiece>>,
    piece: usize,
    block_no: usize,
    ahead: Option<StoredBlocks>,
    raw: Vec<u8>,
    block: Option<RowBlock>,
    at: usize,
}

impl<'t> SlotReader<'t> {
    pub(crate) fn new(versions: &'t Versions, pieces: Vec<Arc<RowPiece>>) -> Result<Self> {
        let mut reader = Self {
            versions,
            pieces,
            piece: 0,
            block_no: 0,
            ahead: None,
            raw: Vec::new(),
            block: None,
            at: 0,
        };
        reader.load()?;
        Ok(reader)
    }

    /// Row id of the slot at hand; `None` behind the last one.
    #[inline]
    pub(crate) fn row(&self) -> Option<RowId> {
        self.block.as_ref().map(|block| block.row_id(self.at))
    }

    /// Payload of the slot at hand; `None` says "deleted".
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(|block| block.payload(self.at))
    }

    pub(crate) fn advance(&mut self) -> Result<()> {
        self.at += 1;
        if self.block.as_ref().is_some_and(|block| self.at < block.len()) {
            return Ok(());
        }
        self.block_no += 1;
        self.load()
    }

    fn load(&mut self) -> Result<()> {
        self.block = None;
        self.at = 0;
        while let Some(piece) = self.pieces.get(self.piece) {
            if self.block_no < piece.block_count() {
                let block = self.decode(&Arc::clone(piece))?;
                self.block = Some(block);
                return Ok(());
            }
            self.piece += 1;
            self.block_no = 0;
            self.ahead = None;
        }
        Ok(())
    }

    fn decode(&mut self, piece: &RowPiece) -> Result<RowBlock> {
        piece.check_known(self.versions)?;
        let block = self.block_no;
        if !self
            .ahead
            .as_ref()
            .is_some_and(|ahead| ahead.blocks().contains(&block))
        {
            let count = piece.section().blocks_within(block, READ_BYTES);
            self.ahead = Some(piece.file.read_blocks_ahead(piece.section, block, count)?);
        }
        if let Some(ahead) = &self.ahead {
            ahead.decode(block, &mut self.raw)?;
        }
        let decoded = self.versions.decode_block(&self.raw);
        Ok(decoded.map_err(|fault| piece.unreadable(block, &fault))?)
    }
}
