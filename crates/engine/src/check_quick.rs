//! Quick check: looks at the two ends of every piece of a table instead of at all of it.
//!
//! Why it exists: a check of a table of 100 GB reads 100 GB. Files that are missing, cut short, exchanged or overwritten from one end
//! are found in a thousandth of the time (CHECK TABLE ... QUICK, `mariadb-check --quick`).
//! What is checked: pieces of a run follow each other; the first and the last block of each piece are read from disk, decode, and
//! begin and end with the row or key that the piece says; every file can be opened again; trees in memory are in order. No block between, no version in the
//! log, no count.
//! Rules: B15 damage is a finding, as in the whole check (check.rs).
//! Latches and I/O: reads past the cache, a block or a stretch of blocks at a time; can be stopped by a kill.

use crate::block_owner::rows_in_words;
use crate::check::Check;
use crate::check_files::{check_files, files_of};
use crate::check_runs::{check_key_order, check_row_order, piece_place};
use crate::error::Result;
use crate::row_shape::RowPiece;
use crate::session::Session;
use crate::table::{Index, Table};
use pbxt_base::RowId;
use pbxt_index::{IndexParts, Run, RunCursor, RunPiece, SeekPos};
use std::sync::Arc;

/// See the module. Calls `tell` for findings and returns their number.
///
/// # Errors
/// Those of the disk, and a kill. Damage is a finding.
pub fn check_table_quickly(
    session: &mut Session,
    table: &Arc<Table>,
    tell: &mut dyn FnMut(&str),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let shape = table.base.shape();
    let indexes: Vec<_> = table.indexes.iter().map(Index::parts).collect();
    let of_rows: usize = shape.runs.iter().map(|run| run.pieces.len()).sum();
    let runs = indexes.iter().flat_map(|parts| &parts.runs);
    let of_indexes: usize = runs.map(|run| run.pieces.len()).sum();
    let mut check = Check::new(
        tell,
        progress,
        (of_rows + of_indexes + files_of(table).len()) as u64,
    );
    for run in &shape.runs {
        check_row_order(run, &mut check);
        for piece in &run.pieces {
            check_row_ends(table, piece, &mut check)?;
            check.step_far(session)?;
        }
    }
    for (index, parts) in table.indexes.iter().zip(&indexes) {
        check_index(session, index, parts, &mut check)?;
    }
    check_files(session, table, &mut check)?;
    check.end();
    Ok(check.findings())
}

fn check_row_ends(table: &Table, piece: &RowPiece, check: &mut Check<'_>) -> Result<()> {
    let end_row = |block: usize, is_first: bool| -> Result<Option<RowId>> {
        let mut raw = Vec::new();
        let stored = piece.file.read_blocks_ahead(piece.section, block, 1)?;
        stored.decode(block, &mut raw)?;
        let rows = piece.decode(table.versions(), block, &raw)?;
        let last = rows.len().checked_sub(1);
        Ok(last.map(|last| rows.row_id(if is_first { 0 } else { last })))
    };
    let Some(last_block) = piece.block_count().checked_sub(1) else {
        return Ok(());
    };
    let ends = [(0, true, piece.first), (last_block, false, piece.last)];
    for (block, is_first, expected) in ends {
        let what = || rows_in_words(piece.section(), block);
        let Some(found) = check.absorb_in(what, end_row(block, is_first))? else {
            continue;
        };
        if found != Some(expected) {
            let end = if is_first { "begin" } else { "end" };
            check.find(&format!(
                "{}, section {}: it does not {end} with row {expected}, as it says",
                piece.file.name(),
                piece.section
            ));
        }
    }
    Ok(())
}

fn check_index(session: &Session, index: &Index, parts: &IndexParts, check: &mut Check<'_>) -> Result<()> {
    let name = &index.def.name;
    for tree in std::iter::once(&parts.active).chain(&parts.frozen) {
        if let Err(problem) = tree.check() {
            check.find(&format!("index '{name}': {problem}"));
        }
    }
    for run in &parts.runs {
        check_key_order(name, run, check);
        for piece in &run.pieces {
            let alone = Arc::new(Run::of(run.index, run.tag, vec![Arc::clone(piece)]));
            for is_first in [true, false] {
                let is_right = ends_as_it_says(piece, &alone, is_first);
                let is_right = check.absorb(&format!("index '{name}'"), is_right)?;
                if is_right == Some(false) {
                    let (place, end) = (piece_place(name, piece), if is_first { "begin" } else { "end" });
                    check.find(&format!("{place} does not {end} with the key it names"));
                }
            }
            check.step_far(session)?;
        }
    }
    Ok(())
}

fn ends_as_it_says(piece: &RunPiece, alone: &Arc<Run>, is_first: bool) -> Result<bool> {
    let mut cursor = RunCursor::uncached(Arc::clone(alone));
    let (from, expected) = if is_first {
        (SeekPos::START, piece.first_key())
    } else {
        (SeekPos::END, piece.last_key())
    };
    cursor.seek(&from, is_first)?;
    Ok(cursor.peek().is_some_and(|entry| entry.key() == expected))
}
