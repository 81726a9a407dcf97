//! Stage: what the sessions of a history share: random numbers, tables, the record, and figures.
//!
//! Why it exists: while one session waits inside the engine, others have their turn further up the same stack (see `theatre`);
//! so nothing here is held from one step to the next.

use crate::history::mix::Mix;
use crate::history::record::{Content, Level, Levels, Record, RowKey, TxnNo, VersionNo};
use crate::table::{PlayRow, PlayTable};
use pbxt::{Error, Result};
use pbxt_testkit::Rng;
use std::cell::{Cell, RefCell};

/// Figures of a history.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Statements that were told to wait and began anew later.
    pub waits: Cell<u64>,
    /// Waits inside the engine.
    pub waits_in_place: Cell<u64>,
    /// Those of them that reached their limit.
    pub timeouts: Cell<u64>,
    /// Statements that failed.
    pub failed: Cell<u64>,
    /// Transactions that the engine refused to go on with or to commit.
    pub refused: Cell<u64>,
    /// Circles of waits that were broken here.
    pub circles: Cell<u64>,
}

/// Counts one more.
pub(super) fn count(figure: &Cell<u64>) {
    figure.set(figure.get() + 1);
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stage {
    pub mix: Mix,
    levels: Levels,
    pub tables: Vec<PlayTable>,
    /// SERIALIZABLE locks the tables that it reads.
    pub by_locks: bool,
    /// Sessions that wait inside the engine.
    pub waiting: Cell<u64>,
    pub tally: Tally,
    pub record: RefCell<Record>,
    rng: RefCell<Rng>,
    /// Version of each stamp.
    stamps: RefCell<Vec<Option<VersionNo>>>,
}

impl Stage {
    pub(super) fn new(mix: Mix, levels: Levels, tables: Vec<PlayTable>, by_locks: bool, rng: Rng) -> Self {
        Self {
            mix,
            levels,
            tables,
            by_locks,
            waiting: Cell::new(0),
            tally: Tally::default(),
            record: RefCell::default(),
            rng: RefCell::new(rng),
            stamps: RefCell::default(),
        }
    }

    /// Level of a new transaction.
    pub(super) fn level(&self) -> Level {
        match self.levels {
            Levels::One(level) => level,
            Levels::Mixed => Level::ALL[self.below(Level::ALL.len() as u64) as usize],
        }
    }

    /// Draws from the random numbers.
    pub(super) fn draw<T>(&self, choose: impl FnOnce(&mut Rng) -> T) -> T {
        choose(&mut self.rng.borrow_mut())
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: u64) -> u64 {
        self.draw(|rng| rng.below(bound))
    }

    /// True so many times out of a hundred.
    pub(super) fn chance(&self, percent: u64) -> bool {
        self.draw(|rng| rng.chance(percent))
    }

    /// Enters something into the record.
    pub(super) fn note<T>(&self, enter: impl FnOnce(&mut Record) -> T) -> T {
        enter(&mut self.record.borrow_mut())
    }

    /// A number that no other version's row has.
    pub(super) fn stamp(&self) -> u64 {
        let mut stamps = self.stamps.borrow_mut();
        stamps.push(None);
        stamps.len() as u64 - 1
    }

    /// A version with this stamp was written.
    pub(super) fn wrote(&self, txn: TxnNo, stamp: u64, row: RowKey, content: Option<Content>) {
        let number = self.note(|record| record.write(txn, row, content));
        self.stamps.borrow_mut()[stamp as usize] = Some(number);
    }

    /// Which version a row that was read is.
    pub(super) fn version_of(&self, row: &PlayRow) -> Result<VersionNo> {
        let stamps = self.stamps.borrow();
        let stamp = row.memo.as_deref().and_then(|memo| memo.try_into().ok());
        let number = stamp.and_then(|stamp| stamps.get(u64::from_le_bytes(stamp) as usize).copied());
        let unknown = || Error::Invalid(format!("row {} was read, which nobody wrote", row.brief()));
        number.flatten().ok_or_else(unknown)
    }
}
