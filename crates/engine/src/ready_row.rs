//! Ready row: the row behind an index entry, found before its turn comes.
//!
//! Why it exists: rows that stand together in an index are strewn over the row blocks, so each is a wait for memory. A short scan
//! cannot sort them (fetch_ahead.rs), but it knows the next entry: its row is found, and asked for from memory, before the
//! present one is shown, and then it is there. So is the row of a seek, while the events of its entry are judged.
//! Rows that were changed lately come together: behind one that is in the log the next one is looked for there, and its record asked for.
//! State: a row id and its place in the shape of a moment. It says nothing about what the row's word says.
//! Rules: B2 it is used only if the word, loaded when the row's turn comes, says BASE, and the shape is still the one of that moment. S54 a
//! block that is not on its shelf is left to the reader, and so is a tagged run that is not for all (B14).
//! Latches and I/O: none.

use crate::cursor::{Access, Cursor};
use crate::database::Database;
use crate::row_shape::{CachedRows, RowBase, RowPiece, RowShape};
use crate::table::Table;
use crate::version::RowVersion;
use pbxt_base::{RowId, prefetch};
use pbxt_rows::Versions;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Rows that are made ready together at most: more would be gone again before their turn comes.
pub(crate) const READY_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadyRow {
    row: RowId,
    /// How often the shape had been exchanged.
    installs: u64,
    block: Arc<CachedRows>,
    at: usize,
}

impl ReadyRow {
    /// True if it is this row, and stands in the shape of now. The row's word was loaded before and says BASE (rule B2).
    #[inline]
    pub(crate) fn is_current(&self, row: RowId, base: &RowBase) -> bool {
        self.row == row && base.is_unchanged(self.installs)
    }

    #[inline]
    pub(crate) fn version(&self) -> RowVersion<'_> {
        let payload = self.block.payload(self.at).unwrap_or(&[]);
        RowVersion::new(self.row, payload, self.block.schema_version())
    }
}

impl RowBase {
    /// The row's place, if it is settled and in memory; its bytes are on their way then.
    fn ready(&self, db: &Database, versions: &Versions, row: RowId) -> Option<ReadyRow> {
        let installs = self.installs();
        let shape = self.now();
        let (run, piece) = shape.piece_of(row)?;
        if !run.is_for_all(db) {
            return None;
        }
        let block = piece.block_on_shelf(versions, &db.cache, piece.block_of(row))?;
        let at = block.find(row)?;
        prefetch(block.payload(at)?);
        Some(ReadyRow {
            row,
            installs,
            block,
            at,
        })
    }
}

/// Rows found together: the blocks that have them, each held once, and how often the shape had been exchanged then.
#[derive(Debug, Default)]
pub(crate) struct ReadyRows {
    installs: u64,
    blocks: Vec<Arc<CachedRows>>,
}

/// A row of those: the number of its block, and its place in that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadyPlace {
    block: u32,
    at: u32,
}

impl ReadyRows {
    /// Lets go of the blocks.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// True if all stand in the shape of now. The row's word was loaded before and says BASE (rule B2).
    #[inline]
    pub(crate) fn are_current(&self, base: &RowBase) -> bool {
        base.is_unchanged(self.installs)
    }

    #[inline]
    pub(crate) fn version(&self, row: RowId, place: ReadyPlace) -> RowVersion<'_> {
        let block = &self.blocks[place.block as usize];
        let payload = block.payload(place.at as usize).unwrap_or(&[]);
        RowVersion::new(row, payload, block.schema_version())
    }
}

/// Finds the blocks of rows that are looked for together. Rows that were loaded in the order of the index stand in one block.
struct Places<'s> {
    shape: &'s RowShape,
    /// Runs that may have one of the rows.
    runs: u64,
    /// Where the row before was found, and the rows that its block can have.
    before: Option<(&'s RowPiece, usize, RangeInclusive<RowId>)>,
}

impl<'s> Places<'s> {
    /// For rows between these two.
    fn new(shape: &'s RowShape, first: RowId, last: RowId) -> Self {
        Self {
            shape,
            runs: shape.runs_within(first, last),
            before: None,
        }
    }

    /// Piece and number of the row's block, if all see its run; a block other than the one before is on its way then.
    #[inline]
    fn of(&mut self, db: &Database, row: RowId) -> Option<(&'s RowPiece, usize)> {
        if self.runs.is_power_of_two()
            && let Some((piece, block, rows)) = &self.before
            && rows.contains(&row)
            && piece.has_slot(row)
        {
            return Some((piece, *block));
        }
        let (run, piece) = self.shape.piece_among(self.runs, row)?;
        if !run.is_for_all(db) {
            return None;
        }
        let block = piece.block_of(row);
        piece.prefetch_block(block);
        let (first, last) = piece.ids_of_block(block);
        self.before = Some((piece, block, first..=last));
        Some((piece, block))
    }
}

impl RowBase {
    /// Several rows made ready: all their blocks are asked for first, then all rows.
    fn make_all_ready<'r>(
        &self,
        db: &Database,
        versions: &Versions,
        found: &mut ReadyRows,
        rows: impl Iterator<Item = (RowId, &'r mut Option<ReadyPlace>)>,
    ) {
        found.installs = self.installs();
        let shape = self.now();
        let mut wanted = [const { None }; READY_MAX];
        let (mut first, mut last) = (RowId::new(u64::MAX), RowId::new(0));
        for (place, (row, ready)) in wanted.iter_mut().zip(rows) {
            (first, last) = (first.min(row), last.max(row));
            *place = Some((row, ready));
        }
        let mut places = Places::new(&shape, first, last);
        let mut found_in = [const { None }; READY_MAX];
        for (place, (row, ready)) in found_in.iter_mut().zip(wanted.into_iter().flatten()) {
            *place = places.of(db, row).map(|at| (at, row, ready));
        }
        let (mut before, mut is_held) = (None, false);
        for ((piece, number), row, ready) in found_in.into_iter().flatten() {
            let is_same =
                before.is_some_and(|(of, block)| std::ptr::eq::<RowPiece>(of, piece) && block == number);
            if !is_same {
                before = Some((piece, number));
                let block = piece.block_on_shelf(versions, &db.cache, number);
                is_held = block.is_some();
                found.blocks.extend(block);
            }
            let Some(block) = found.blocks.last().filter(|_| is_held) else {
                continue;
            };
            let Some(at) = block.find(row) else { continue };
            let Some(payload) = block.payload(at) else {
                continue;
            };
            prefetch(payload);
            *ready = Some(ReadyPlace {
                block: found.blocks.len() as u32 - 1,
                at: at as u32,
            });
        }
    }
}

impl Table {
    /// Asks for the words of rows that are made ready next: loaded one by one each would be a wait for memory.
    pub(crate) fn prefetch_words(&self, rows: impl Iterator<Item = RowId>) {
        let guard = crossbeam_epoch::pin();
        rows.for_each(|row| self.map.prefetch(row, &guard));
    }

    /// Makes these rows ready, at most `READY_MAX` of them, each where it says; those of the log are asked for.
    pub(crate) fn make_all_ready<'r>(
        &self,
        db: &Database,
        found: &mut ReadyRows,
        rows: impl Iterator<Item = (RowId, &'r mut Option<ReadyPlace>)>,
    ) {
        let guard = crossbeam_epoch::pin();
        let cold = rows.filter(|(row, _)| {
            let word = self.map.load_in(*row, &guard);
            if !word.is_absent() {
                db.log.prefetch(word.addr().lsn(), &guard);
            }
            word.is_absent()
        });
        self.base.make_all_ready(db, self.versions(), found, cold);
    }

    /// True if the row is in the log; its newest version is on its way then.
    #[inline]
    fn is_hot(&self, db: &Database, row: RowId) -> bool {
        let guard = crossbeam_epoch::pin();
        let word = self.map.load_in(row, &guard);
        if word.is_absent() {
            return false;
        }
        db.log.prefetch(word.addr().lsn(), &guard);
        true
    }
}

impl Cursor {
    /// Makes a row ready whose entry comes next, or is the present one, unless that was tried before.
    #[inline]
    pub(crate) fn make_ready(&mut self, db: &Database, row: RowId) {
        if self.access == Access::Snapshot && self.ready_of != row {
            self.ready_of = row;
            let table = &self.table;
            self.ready = if self.was_hot && table.is_hot(db, row) {
                None
            } else {
                table.base.ready(db, table.versions(), row)
            };
        }
    }

    /// Takes what was made ready as the present row.
    #[inline]
    pub(crate) fn take_ready(&mut self) {
        self.ready_of = RowId::new(0);
        self.at_hand = self.ready.take();
    }
}
