//! Check of runs: reads every block of a table's row runs and index runs from disk and compares it with what its piece says.
//!
//! Why it exists: a reader meets a damaged block when it happens to need it, and the block cache may hide it for weeks; slots
//! that newer ones hide are never read. Whoever asks for a check wants to know now.
//! What is checked: every block decodes; row ids and keys rise; a piece has exactly the row ids of its set, and as many
//! entries as it says; pieces of a run follow each other.
//! Latches and I/O: reads past the cache, some blocks at a time, where the disk refuses them one by one; the pieces stay open meanwhile.

use crate::block_owner::rows_in_words;
use crate::check::Check;
use crate::error::{Error, Result};
use crate::row_shape::{RowPiece, RowRun};
use crate::session::Session;
use crate::table::{Index, Table};
use pbxt_base::RowId;
use pbxt_index::{IndexParts, Run, RunCursor, RunPiece, SeekPos};
use pbxt_segment::StoredBlocks;
use std::sync::Arc;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Checks the blocks of all row runs.
pub(crate) fn check_row_runs(session: &Session, table: &Table, check: &mut Check<'_>) -> Result<()> {
    let shape = table.base.shape();
    for run in &shape.runs {
        check_row_order(run, check);
        for piece in &run.pieces {
            check_row_piece(session, table, piece, check)?;
        }
    }
    Ok(())
}

/// Pieces of a run follow each other.
pub(crate) fn check_row_order(run: &RowRun, check: &mut Check<'_>) {
    for pair in run.pieces.windows(2).filter(|pair| pair[0].last >= pair[1].first) {
        check.find(&format!(
            "{}, section {}: it begins with row {}, but the piece before it ends with row {}",
            pair[1].file.name(),
            pair[1].section,
            pair[1].first,
            pair[0].last
        ));
    }
}

/// Reads the blocks of a piece in their order; one that cannot be read hides no other.
pub(crate) struct RowBlocks<'p> {
    piece: &'p RowPiece,
    ahead: Option<StoredBlocks>,
    /// Those before this one are read one by one, because one of them cannot be read.
    alone_until: usize,
}

impl<'p> RowBlocks<'p> {
    pub(crate) fn of(piece: &'p RowPiece) -> Self {
        Self {
            piece,
            ahead: None,
            alone_until: 0,
        }
    }

    pub(crate) fn read(&mut self, block: usize, raw: &mut Vec<u8>) -> Result<()> {
        let (file, section) = (&self.piece.file, self.piece.section);
        self.ahead = self.ahead.take().filter(|ahead| ahead.blocks().contains(&block));
        if self.ahead.is_none() && block >= self.alone_until {
            let count = self.piece.section().blocks_within(block, READ_BYTES);
            match file.read_blocks_ahead(section, block, count).map_err(Error::from) {
                Err(error) if error.is_unreadable() => self.alone_until = block + count,
                ahead => self.ahead = Some(ahead?),
            }
        }
        let decoded = match &self.ahead {
            Some(ahead) => ahead.decode(block, raw),
            None => file.read_blocks_ahead(section, block, 1)?.decode(block, raw),
        };
        Ok(decoded?)
    }
}

fn check_row_piece(session: &Session, table: &Table, piece: &RowPiece, check: &mut Check<'_>) -> Result<()> {
    let mut raw = Vec::new();
    let mut blocks = RowBlocks::of(piece);
    let (mut before, mut slots, mut is_whole) = (RowId::new(0), 0, true);
    for block in 0..piece.block_count() {
        let read = blocks.read(block, &mut raw);
        let decoded = read.and_then(|()| Ok(piece.decode(table.versions(), block, &raw)?));
        let what = || rows_in_words(piece.section(), block);
        let Some(rows) = check.absorb_in(what, decoded)? else {
            is_whole = false;
            continue;
        };
        for at in 0..rows.len() {
            let row = rows.row_id(at);
            slots += 1;
            if row <= before || !piece.rows.contains(row.raw()) {
                check.find(&format!(
                    "{}, block at {}: row {row} is not in the piece's set of rows, or not behind row {before}",
                    piece.file.name(),
                    piece.section().block_offset(block)
                ));
            }
            before = row;
            check.step(session)?;
        }
    }
    let (said, listed) = (piece.section().entries, piece.rows.len());
    if is_whole && (slots != said || slots != listed) {
        check.find(&format!(
            "{}, section {}: it has {slots} rows, says {said}, and lists {listed}",
            piece.file.name(),
            piece.section
        ));
    }
    Ok(())
}

/// Checks the blocks of all runs of an index.
pub(crate) fn check_index_runs(
    session: &Session,
    index: &Index,
    parts: &IndexParts,
    check: &mut Check<'_>,
) -> Result<()> {
    let name = &index.def.name;
    for run in &parts.runs {
        check_key_order(name, run, check);
        for piece in &run.pieces {
            let alone = Arc::new(Run::of(run.index, run.tag, vec![Arc::clone(piece)]));
            let checked = check_index_piece(session, name, piece, alone, check);
            check.absorb(&format!("index '{name}'"), checked)?;
        }
    }
    Ok(())
}

/// Pieces of a run follow each other.
pub(crate) fn check_key_order(name: &str, run: &Run, check: &mut Check<'_>) {
    let pairs = run.pieces.windows(2);
    for pair in pairs.filter(|pair| pair[0].last_key() > pair[1].first_key()) {
        check.find(&format!(
            "{} begins with a key below the end of the piece before it",
            piece_place(name, &pair[1])
        ));
    }
}

/// How a finding names a piece.
pub(crate) fn piece_place(name: &str, piece: &RunPiece) -> String {
    let (file, section) = piece.reference();
    format!("index '{name}': section {section} of meta segment {file}")
}

/// `alone`: a run of nothing but the piece.
fn check_index_piece(
    session: &Session,
    name: &str,
    piece: &RunPiece,
    alone: Arc<Run>,
    check: &mut Check<'_>,
) -> Result<()> {
    let place = piece_place(name, piece);
    let mut cursor = RunCursor::uncached(alone);
    cursor.seek(&SeekPos::START, true)?;
    let (mut key, mut row, mut entries) = (Vec::new(), RowId::new(0), 0_u64);
    while let Some(entry) = cursor.peek() {
        let is_first = entries == 0;
        if is_first && entry.key() != piece.first_key() {
            check.find(&format!("{place} does not begin with the key it names"));
        }
        if !is_first && (entry.key(), entry.row()) < (key.as_slice(), row) {
            check.find(&format!(
                "{place}: entry {entries}, of row {}, is out of order",
                entry.row()
            ));
        }
        key.clear();
        key.extend_from_slice(entry.key());
        row = entry.row();
        entries += 1;
        check.step(session)?;
        cursor.advance()?;
    }
    if key != piece.last_key() {
        check.find(&format!("{place} does not end with the key it names"));
    }
    if entries != piece.entries() {
        check.find(&format!(
            "{place} has {entries} entries and says {}",
            piece.entries()
        ));
    }
    Ok(())
}
