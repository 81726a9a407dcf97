//! Table scan: all rows in row id order, hot ones through the row map, the others straight from row blocks.
//!
//! Why it exists: a row that is not hot needs no look-up and mostly no judgement; walking blocks and words side by side
//! makes a scan of settled data as fast as decoding it.
//! State: a stretch of row ids at a time: first its words are copied, then the shape is taken (rule B2), so a row whose word
//! was clear is in the shape. Within the stretch both stay as they were: a change that came later is not for this scan, or
//! the row is looked up anew (`Step::Hot`).
//! A filter, if the scan has one, spares the reader rows that it turns away, and the disk whole blocks.
//! Rules: B2. B12 a block is passed over unread only if no older run has a slot in its range of row ids. B13 what cannot be read
//! is left out where that was asked for. B16 gaps of row ids are passed at once. Each row id is met once, so no row is missed or shown twice whatever moves meanwhile
//! (rule 14 of scans).
//! Latches and I/O: none held between calls; a stretch keeps its shape's files open.

use crate::database::Database;
use crate::error::Result;
use crate::row_ahead::ReadAhead;
use crate::row_shape::{CachedRows, RowPiece, RowRun, RowShape};
use crate::salvage::{LeftOut, Salvage};
use crate::table::Table;
use pbxt_base::RowId;
use pbxt_rowmap::{LEAF_WORDS, LEAF_WORDS_LOG2, MapWord};
use pbxt_rows::RowFilter;
use pbxt_txn::Stamp;
use std::sync::Arc;

/// Row ids of a stretch where no word is set but rows stand, at most.
const COLD_STRETCH: u64 = 1 << 18;
/// Rows turned away before the reader hears of it, so that it can be killed.
const TURNED_AWAY_MAX: u32 = 4096;

/// Position of a table scan.
#[derive(Debug, Default)]
pub(crate) struct TableScan {
    next: u64,
    /// Last row id of the scan.
    last: u64,
    /// First row id and first id behind the stretch.
    first: u64,
    end: u64,
    /// Words of the stretch; empty if none is set.
    words: Vec<u64>,
    shape: Option<Arc<RowShape>>,
    runs: Vec<RunScan>,
    /// Which run has the row at hand, and which row that is.
    least: Option<(usize, u64)>,
    filter: Option<Arc<RowFilter>>,
    /// Rows turned away since the last step.
    turned_away: u32,
    pub(crate) salvage: Salvage,
}

/// Place in one run.
#[derive(Debug)]
struct RunScan {
    run: Arc<RowRun>,
    /// Its shape, and its number in it.
    shape: Arc<RowShape>,
    number: usize,
    piece: usize,
    block_no: usize,
    block: Option<Arc<CachedRows>>,
    ahead: ReadAhead,
    at: usize,
    /// Row id at the place; `u64::MAX` at the end.
    row: u64,
    /// What cannot be read is left out: these ranges so far (rule B13).
    salvages: bool,
    left_out: Vec<LeftOut>,
    /// How many of them were told.
    told: usize,
}

/// What stands at the next row id.
pub(crate) enum Step {
    /// The row has a word: look it up.
    Hot(RowId),
    /// This slot of a block, with its run's stamp.
    Base(RowId, Arc<CachedRows>, usize, Stamp),
    /// Many rows were turned away by the filter; there may be more.
    TurnedAway,
    /// No further row.
    End,
}

impl TableScan {
    /// From the first row id to the last one handed out so far. Rows that are not hot come only if the filter admits them.
    pub(crate) fn start(&mut self, table: &Table, filter: Option<Arc<RowFilter>>) {
        self.filter = filter;
        self.turned_away = 0;
        self.next = 1;
        self.last = table.map.high_mark();
        (self.first, self.end) = (1, 1);
        self.words.clear();
        self.shape = None;
        self.runs.clear();
        self.least = None;
    }

    /// Goes on behind the row id it has come to, with what the table has now; a scan that was stopped stays so.
    pub(crate) fn resume(&mut self, table: &Table) {
        if self.last == 0 {
            return;
        }
        self.stop();
        self.last = table.map.high_mark();
        (self.first, self.end) = (self.next, self.next);
        self.words.clear();
    }

    /// Lets go of files and blocks.
    pub(crate) fn stop(&mut self) {
        self.collect_left_out();
        self.shape = None;
        self.runs.clear();
        self.least = None;
        self.last = 0;
    }

    /// What hot rows must be asked for too; to be put back before the next step.
    #[inline]
    pub(crate) fn take_filter(&mut self) -> Option<Arc<RowFilter>> {
        self.filter.take()
    }

    #[inline]
    pub(crate) fn put_filter(&mut self, filter: Arc<RowFilter>) {
        self.filter = Some(filter);
    }

    /// Goes to the next row id that has anything.
    #[inline]
    pub(crate) fn step(&mut self, db: &Database, table: &Table) -> Result<Step> {
        loop {
            if self.turned_away >= TURNED_AWAY_MAX {
                self.turned_away = 0;
                return Ok(Step::TurnedAway);
            }
            if self.next >= self.end {
                if self.next > self.last {
                    return Ok(Step::End);
                }
                self.take_stretch(db, table)?;
            }
            let least = self.least.map_or(u64::MAX, |(_, row)| row);
            if self.words.is_empty() {
                if least >= self.end {
                    self.next = self.end;
                    continue;
                }
                self.next = least + 1;
                if self.is_turned_away() {
                    self.pass_base(db, table)?;
                    continue;
                }
                return self.take_base(db, table);
            }
            while self.next < self.end {
                let row = self.next;
                self.next += 1;
                let word = MapWord::from_raw(self.words[(row - self.first) as usize]);
                if !word.is_absent() {
                    if row == least {
                        self.pass_base(db, table)?;
                    }
                    return Ok(Step::Hot(RowId::new(row)));
                }
                if row == least {
                    if self.is_turned_away() {
                        self.pass_base(db, table)?;
                        break;
                    }
                    return self.take_base(db, table);
                }
            }
        }
    }

    /// Copies the words of the next stretch, then takes the shape (rule B2).
    fn take_stretch(&mut self, db: &Database, table: &Table) -> Result<()> {
        self.first = self.next;
        let leaf = self.first >> LEAF_WORDS_LOG2;
        self.words.clear();
        let found = table.map.next_leaf(leaf);
        if found == Some(leaf) {
            let leaf_first = leaf << LEAF_WORDS_LOG2;
            self.end = leaf_first + LEAF_WORDS as u64;
            if table.map.words(leaf, &mut self.words) {
                let passed = (self.first - leaf_first) as usize;
                self.words.drain(..passed.min(self.words.len()));
            }
            self.end = self.end.min(self.last + 1).max(self.first + 1);
            self.words.truncate((self.end - self.first) as usize);
            return self.take_shape(db, table);
        }
        // No word up to there; and the shape, taken behind this look, may have no row for longer than a stretch.
        let no_words_to = found
            .map_or(u64::MAX, |found| found << LEAF_WORDS_LOG2)
            .min(self.last + 1);
        self.take_shape(db, table)?;
        let least = self.least.map_or(u64::MAX, |(_, row)| row);
        self.end = (self.first + COLD_STRETCH).max(least).min(no_words_to);
        Ok(())
    }

    fn take_shape(&mut self, db: &Database, table: &Table) -> Result<()> {
        let shape = table.base.shape();
        if self.shape.as_ref().is_some_and(|old| Arc::ptr_eq(old, &shape)) {
            return Ok(());
        }
        self.collect_left_out();
        self.runs.clear();
        for number in 0..shape.runs.len() {
            let filter = self.filter.as_deref();
            let mut run = RunScan::new(&shape, number, self.first, self.salvage.is_on);
            run.seek(db, table, self.first, filter)?;
            self.runs.push(run);
        }
        self.shape = Some(shape);
        self.find_least();
        Ok(())
    }

    /// The run whose next row id is the lowest; of equal ones the newest.
    #[inline]
    fn find_least(&mut self) {
        let mut least = None;
        let mut least_row = u64::MAX;
        for (number, run) in self.runs.iter().enumerate() {
            if run.row < least_row {
                least_row = run.row;
                least = Some((number, least_row));
            }
        }
        self.least = least;
    }

    /// Moves every run beyond the row at hand.
    #[inline]
    fn pass_base(&mut self, db: &Database, table: &Table) -> Result<()> {
        let Some((_, row)) = self.least else { return Ok(()) };
        for run in &mut self.runs {
            if run.row == row {
                run.advance(db, table, self.filter.as_deref())?;
            }
        }
        self.find_least();
        Ok(())
    }

    /// Tells what the runs have left out.
    pub(crate) fn collect_left_out(&mut self) {
        for run in &mut self.runs {
            run.left_out[run.told..]
                .iter()
                .for_each(|range| self.salvage.note(range));
            run.told = run.left_out.len();
        }
    }

    /// True if a newer version of the row at hand may be in what a newer run could not read.
    #[cold]
    fn may_be_newer(&self) -> bool {
        let Some((number, row)) = self.least else {
            return false;
        };
        let newer = self.runs[..number].iter().flat_map(|run| &run.left_out);
        newer.into_iter().any(|range| range.covers(RowId::new(row)))
    }

    /// True if the filter turns the row at hand away, or it is left out.
    #[inline]
    fn is_turned_away(&mut self) -> bool {
        if self.salvage.is_on && self.may_be_newer() {
            self.turned_away += 1;
            return true;
        }
        let (Some(filter), Some((number, _))) = (&self.filter, self.least) else {
            return false;
        };
        let run = &self.runs[number];
        let is_admitted = run.block.as_ref().is_none_or(|block| {
            let payload = block.payload(run.at);
            payload.is_some_and(|payload| filter.admits(payload, block.schema_version()))
        });
        self.turned_away += u32::from(!is_admitted);
        !is_admitted
    }

    #[inline]
    fn take_base(&mut self, db: &Database, table: &Table) -> Result<Step> {
        let Some((number, row)) = self.least else {
            return Ok(Step::End);
        };
        let run = &self.runs[number];
        let found = run
            .block
            .as_ref()
            .map(|block| (Arc::clone(block), run.at, run.run.judged_stamp()));
        self.pass_base(db, table)?;
        Ok(match found {
            Some((block, at, stamp)) => Step::Base(RowId::new(row), block, at, stamp),
            None => Step::End,
        })
    }
}

impl RunScan {
    /// A place in the block that has, or would have, `from`.
    fn new(shape: &Arc<RowShape>, number: usize, from: u64, salvages: bool) -> Self {
        let row = RowId::new(from);
        let run = &shape.runs[number];
        let piece = run.piece_at(row);
        Self {
            run: Arc::clone(run),
            shape: Arc::clone(shape),
            number,
            piece,
            block_no: run.pieces.get(piece).map_or(0, |piece| piece.block_of(row)),
            block: None,
            ahead: ReadAhead::default(),
            at: 0,
            row: u64::MAX,
            salvages,
            left_out: Vec::new(),
            told: 0,
        }
    }

    /// Goes to the first slot at or behind `from`.
    fn seek(&mut self, db: &Database, table: &Table, from: u64, filter: Option<&RowFilter>) -> Result<()> {
        self.load(db, table, filter)?;
        if let Some(block) = &self.block {
            self.at = block.lower_bound(RowId::new(from));
            self.settle(db, table, filter)?;
        }
        Ok(())
    }

    #[inline]
    fn advance(&mut self, db: &Database, table: &Table, filter: Option<&RowFilter>) -> Result<()> {
        self.at += 1;
        self.settle(db, table, filter)
    }

    /// Notes the row id at the place; goes on to the next block where this one ends.
    #[inline]
    fn settle(&mut self, db: &Database, table: &Table, filter: Option<&RowFilter>) -> Result<()> {
        loop {
            let Some(block) = &self.block else {
                self.row = u64::MAX;
                return Ok(());
            };
            if self.at < block.len() {
                self.row = block.row_id(self.at).raw();
                return Ok(());
            }
            self.block_no += 1;
            self.at = 0;
            self.load(db, table, filter)?;
        }
    }

    /// The next block from the place on that may have rows for the filter.
    fn load(&mut self, db: &Database, table: &Table, filter: Option<&RowFilter>) -> Result<()> {
        self.block = None;
        while let Some(piece) = self.run.pieces.get(self.piece) {
            if self.block_no < piece.block_count() {
                if filter.is_some_and(|filter| self.may_pass_over(table, piece, filter)) {
                    db.counters.blocks_skipped.add(1);
                    self.block_no += 1;
                    continue;
                }
                let read = self
                    .ahead
                    .block(table.versions(), &db.cache, piece, self.block_no);
                match read {
                    Ok(block) => {
                        self.block = Some(block);
                        return Ok(());
                    }
                    Err(error) if !self.salvages || !error.is_unreadable() => return Err(error),
                    Err(_) => {}
                }
                // Of those that were to be read ahead with it, another one may be what could not be read.
                self.ahead = ReadAhead::default();
                match piece.block(table.versions(), &db.cache, self.block_no) {
                    Ok(block) => {
                        self.block = Some(block);
                        return Ok(());
                    }
                    Err(error) if !error.is_unreadable() => return Err(error),
                    Err(error) => {
                        let (first, last) = piece.ids_of_block(self.block_no);
                        self.left_out.push(LeftOut::new(first, last, &error));
                        self.block_no += 1;
                        continue;
                    }
                }
            }
            self.piece += 1;
            self.block_no = 0;
        }
        Ok(())
    }

    /// True if the block at the place has no row for the filter, and hides none of an older run (rule B12).
    fn may_pass_over(&self, table: &Table, piece: &RowPiece, filter: &RowFilter) -> bool {
        if piece.admits_block(table.versions(), filter, self.block_no) {
            return false;
        }
        let (first, last) = piece.ids_of_block(self.block_no);
        let older = &self.shape.runs[self.number + 1..];
        !older.iter().any(|run| run.has_piece_within(first, last))
    }
}
