//! Table scan: all rows in row id order, hot ones through the row map, the others straight from row blocks.
//!
//! Why it exists: a row that is not hot needs no look-up and mostly no judgement; walking blocks and words side by side
//! makes a scan of settled data as fast as decoding it.
//! State: a stretch of row ids at a time: first its words are copied, then the shape is taken (rule B2), so a row whose word
//! was clear is in the shape. Within the stretch both stay as they were: a change that came later is not for this scan, or
//! the row is looked up anew (`Step::Hot`).
//! Rules: B2. Each row id is met once, so no row is missed or shown twice whatever moves meanwhile (rule 14 of scans).
//! Latches and I/O: none held between calls; a stretch keeps its shape's files open.

use crate::database::Database;
use crate::error::Result;
use crate::row_shape::{CachedRows, RowRun, RowShape};
use crate::table::Table;
use pbxt_base::RowId;
use pbxt_rowmap::{LEAF_WORDS, LEAF_WORDS_LOG2, MapWord};
use pbxt_txn::Stamp;
use std::sync::Arc;

/// Row ids of a stretch where no word is set, at most.
const COLD_STRETCH: u64 = 1 << 18;

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
}

/// Place in one run.
#[derive(Debug)]
struct RunScan {
    run: Arc<RowRun>,
    piece: usize,
    block_no: usize,
    block: Option<Arc<CachedRows>>,
    at: usize,
    /// Row id at the place; `u64::MAX` at the end.
    row: u64,
}

/// What stands at the next row id.
pub(crate) enum Step {
    /// The row has a word: look it up.
    Hot(RowId),
    /// This slot of a block, with its run's stamp.
    Base(RowId, Arc<CachedRows>, usize, Stamp),
    /// No further row.
    End,
}

impl TableScan {
    /// From the first row id to the last one handed out so far.
    pub(crate) fn start(&mut self, table: &Table) {
        self.next = 1;
        self.last = table.map.high_mark();
        (self.first, self.end) = (1, 1);
        self.words.clear();
        self.shape = None;
        self.runs.clear();
        self.least = None;
    }

    /// Lets go of files and blocks.
    pub(crate) fn stop(&mut self) {
        self.shape = None;
        self.runs.clear();
        self.least = None;
        self.last = 0;
    }

    /// Goes to the next row id that has anything.
    #[inline]
    pub(crate) fn step(&mut self, db: &Database, table: &Table) -> Result<Step> {
        loop {
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
        match table.map.next_leaf(leaf) {
            Some(found) if found == leaf => {
                let leaf_first = leaf << LEAF_WORDS_LOG2;
                self.end = leaf_first + LEAF_WORDS as u64;
                if table.map.words(leaf, &mut self.words) {
                    let passed = (self.first - leaf_first) as usize;
                    self.words.drain(..passed.min(self.words.len()));
                }
            }
            Some(found) => self.end = (found << LEAF_WORDS_LOG2).min(self.first + COLD_STRETCH),
            None => self.end = self.first + COLD_STRETCH,
        }
        self.end = self.end.min(self.last + 1).max(self.first + 1);
        self.words.truncate((self.end - self.first) as usize);
        self.take_shape(db, table)
    }

    fn take_shape(&mut self, db: &Database, table: &Table) -> Result<()> {
        let shape = table.base.shape();
        if self.shape.as_ref().is_some_and(|old| Arc::ptr_eq(old, &shape)) {
            return Ok(());
        }
        self.runs.clear();
        for run in &shape.runs {
            self.runs.push(RunScan::seek(db, table, run, self.first)?);
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
                run.advance(db, table)?;
            }
        }
        self.find_least();
        Ok(())
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
            .map(|block| (Arc::clone(block), run.at, run.run.stamp));
        self.pass_base(db, table)?;
        Ok(match found {
            Some((block, at, stamp)) => Step::Base(RowId::new(row), block, at, stamp),
            None => Step::End,
        })
    }
}

impl RunScan {
    /// The first slot at or behind `from`.
    fn seek(db: &Database, table: &Table, run: &Arc<RowRun>, from: u64) -> Result<Self> {
        let row = RowId::new(from);
        let piece = run.piece_at(row);
        let mut scan = Self {
            run: Arc::clone(run),
            piece,
            block_no: run.pieces.get(piece).map_or(0, |piece| piece.block_of(row)),
            block: None,
            at: 0,
            row: u64::MAX,
        };
        scan.load(db, table)?;
        if let Some(block) = &scan.block {
            scan.at = block.lower_bound(row);
            scan.settle(db, table)?;
        }
        Ok(scan)
    }

    #[inline]
    fn advance(&mut self, db: &Database, table: &Table) -> Result<()> {
        self.at += 1;
        self.settle(db, table)
    }

    /// Notes the row id at the place; goes on to the next block where this one ends.
    #[inline]
    fn settle(&mut self, db: &Database, table: &Table) -> Result<()> {
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
            self.load(db, table)?;
        }
    }

    fn load(&mut self, db: &Database, table: &Table) -> Result<()> {
        self.block = None;
        while let Some(piece) = self.run.pieces.get(self.piece) {
            if self.block_no < piece.block_count() {
                self.block = Some(piece.block(table.schema(), &db.cache, self.block_no)?);
                return Ok(());
            }
            self.piece += 1;
            self.block_no = 0;
        }
        Ok(())
    }
}
