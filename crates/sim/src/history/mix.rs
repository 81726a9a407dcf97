//! Mix: which statements transactions are made of.
//!
//! Why it exists: what is found depends on the mix; it stands in one place. Few rows, few values: transactions meet all the time.
//! Rules held: every choice comes from the random numbers of the stage.

use crate::history::record::{COLUMNS, Predicate};
use crate::table::{NAME_INDEX, TAG_INDEX};
use pbxt::Busy;
use pbxt_testkit::Rng;
use pbxt_txn::LockMode;

/// Sizes of what a history plays with.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Tables.
    pub tables: usize,
    /// Sessions.
    pub sessions: usize,
    /// How many of them may wait inside the engine at a time.
    pub waiters: u64,
    /// Statements of a hundred that wait there if they have to and may.
    pub patience: u64,
    /// Number of values of each column.
    pub values: [u32; COLUMNS],
}

/// How rows are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// All rows, in row id order; the condition may be passed down.
    Table { filtered: bool },
    /// Entries of the predicate's column, up or down.
    Range { forward: bool },
    /// All entries of an index, up or down.
    Whole { index: usize, forward: bool },
}

/// What is done with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Look,
    Lock(LockMode, Busy),
    /// Gives a column a value; none: changes no key.
    Update(Option<(usize, Option<u32>)>),
    Delete,
}

/// Statements.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    Insert {
        table: usize,
        rows: Vec<[Option<u32>; COLUMNS]>,
    },
    Rows {
        predicate: Predicate,
        path: Path,
        action: Action,
        /// Ends behind so many rows.
        at_most: usize,
    },
    Savepoint,
    RollBackTo,
}

/// What a transaction is going to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub statements: u64,
    pub only_reads: bool,
    /// Takes its snapshot at once.
    pub early: bool,
    pub commits: bool,
    /// Ends in two phases.
    pub prepares: bool,
}

impl Mix {
    /// Sizes of the history of a seed.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self {
            tables: 1 + rng.below(3) as usize,
            sessions: 3 + rng.below(6) as usize,
            waiters: 1 + rng.below(4),
            patience: 20 + 25 * rng.below(4),
            values: [
                6 + rng.below(20) as u32,
                2 + rng.below(5) as u32,
                4 + rng.below(12) as u32,
                2 + rng.below(6) as u32,
            ],
        }
    }

    pub(super) fn plan(rng: &mut Rng) -> Plan {
        let (statements, only_reads) = match rng.below(10) {
            0..2 => (1 + rng.below(8), true),
            2 => (8 + rng.below(20), false),
            _ => (1 + rng.below(5), false),
        };
        Plan {
            statements,
            only_reads,
            early: rng.chance(20),
            commits: only_reads || rng.chance(85),
            prepares: rng.chance(6),
        }
    }

    fn value(&self, rng: &mut Rng, column: usize) -> Option<u32> {
        let may_be_null = column == 1 || column == TAG_INDEX;
        if may_be_null && rng.chance(20) {
            return None;
        }
        Some(rng.below(u64::from(self.values[column])) as u32)
    }

    /// Values of a new row.
    pub(super) fn row(&self, rng: &mut Rng) -> [Option<u32>; COLUMNS] {
        std::array::from_fn(|column| self.value(rng, column))
    }

    pub(super) fn statement(&self, rng: &mut Rng, plan: Plan) -> Statement {
        let choice = if plan.only_reads { 0 } else { rng.below(100) };
        match choice {
            0..32 => self.rows(rng, Action::Look),
            32..42 => self.lock(rng),
            42..68 => self.update(rng),
            68..76 => self.rows(rng, Action::Delete),
            76..92 => self.insert(rng),
            92..96 => Statement::Savepoint,
            _ => Statement::RollBackTo,
        }
    }

    fn insert(&self, rng: &mut Rng) -> Statement {
        let count = if rng.chance(80) { 1 } else { 2 + rng.below(2) };
        Statement::Insert {
            table: rng.below(self.tables as u64) as usize,
            rows: (0..count).map(|_| self.row(rng)).collect(),
        }
    }

    fn lock(&self, rng: &mut Rng) -> Statement {
        let mode = [LockMode::Shared, LockMode::Exclusive][rng.below(2) as usize];
        let busy = [Busy::Wait, Busy::Wait, Busy::Fail, Busy::Skip][rng.below(4) as usize];
        self.rows(rng, Action::Lock(mode, busy))
    }

    fn update(&self, rng: &mut Rng) -> Statement {
        let column =
            [None, Some(0), Some(1), Some(1), Some(TAG_INDEX), Some(NAME_INDEX)][rng.below(6) as usize];
        let change = column.map(|column| (column, self.value(rng, column)));
        self.rows(rng, Action::Update(change))
    }

    fn rows(&self, rng: &mut Rng, action: Action) -> Statement {
        let is_change = matches!(action, Action::Update(_) | Action::Delete);
        let (predicate, path) = self.predicate(rng, is_change);
        let at_most = if is_change {
            1 + rng.below(3) as usize
        } else if rng.chance(15) {
            1 + rng.below(4) as usize
        } else {
            usize::MAX
        };
        Statement::Rows {
            predicate,
            path,
            action,
            at_most,
        }
    }

    fn predicate(&self, rng: &mut Rng, is_change: bool) -> (Predicate, Path) {
        let table = rng.below(self.tables as u64) as usize;
        let forward = rng.chance(70);
        let choice = rng.below(if is_change { 96 } else { 103 });
        let column = match choice {
            0..45 => 0,
            45..60 => 1,
            60..70 => TAG_INDEX,
            70..75 => NAME_INDEX,
            _ => rng.below(COLUMNS as u64) as usize,
        };
        let value = rng.below(u64::from(self.values[column])) as u32;
        let (low, high, path) = match choice {
            0..75 => (value, value, Path::Range { forward }),
            75..85 => (value, value + rng.below(4) as u32, Path::Range { forward }),
            85..93 => {
                let filtered = column != NAME_INDEX && rng.chance(50);
                (value, value + rng.below(4) as u32, Path::Table { filtered })
            }
            93..96 => {
                // Rows that the index brings and the condition turns away.
                let index = rng.below(COLUMNS as u64) as usize;
                (value, value + rng.below(4) as u32, Path::Whole { index, forward })
            }
            _ => {
                let index = rng.below(COLUMNS as u64) as usize;
                return (Predicate::all(table), Path::Whole { index, forward });
            }
        };
        let predicate = Predicate {
            table,
            column,
            low,
            high,
        };
        (predicate, path)
    }
}
