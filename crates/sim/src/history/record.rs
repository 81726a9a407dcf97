//! Record: what transactions did, in the order in which it happened.
//!
//! Why it exists: a judge that looks at nothing but this can be tested with histories written by hand.
//! State: one clock for everything; each thing that happens gets the next moment. A version is a number; the value stored
//! with a row is its version's number, so a read names the versions it saw. Version order of a row is the order in which its
//! versions were written, the last one of each committed transaction (rule H1).

use pbxt::{ConflictMode, Isolation};

/// Number of a transaction in its record.
pub type TxnNo = usize;
/// Number of a version in its record.
pub type VersionNo = usize;
/// A moment; no two things happen at one.
pub type Moment = u64;
/// A row of a table: both numbers as the engine gave them.
pub type RowKey = (usize, u64);

/// Columns that predicates ask for: id, group, tag, name.
pub const COLUMNS: usize = 4;

/// What predicates can know of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Values of the columns.
    pub values: [Option<u32>; COLUMNS],
}

/// Rows of a table whose value of a column lies in a range, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// Table.
    pub table: usize,
    /// Column.
    pub column: usize,
    /// Least value.
    pub low: u32,
    /// Greatest value.
    pub high: u32,
}

impl Predicate {
    /// All rows of a table.
    pub fn all(table: usize) -> Self {
        Self {
            table,
            column: 0,
            low: 0,
            high: u32::MAX,
        }
    }

    /// True if a row with this content is meant; an absent one never is.
    pub fn holds(&self, content: Option<&Content>) -> bool {
        content
            .and_then(|content| content.values[self.column])
            .is_some_and(|value| self.low <= value && value <= self.high)
    }
}

/// Isolation level with what it does about a row that changed since the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Level.
    pub isolation: Isolation,
    /// ERROR or WAIT.
    pub conflict: ConflictMode,
}

impl Level {
    /// All that are told apart.
    pub const ALL: [Self; 5] = [
        Self::new(Isolation::ReadCommitted, ConflictMode::Error),
        Self::new(Isolation::RepeatableRead, ConflictMode::Error),
        Self::new(Isolation::RepeatableRead, ConflictMode::Wait),
        Self::new(Isolation::Serializable, ConflictMode::Error),
        Self::new(Isolation::Serializable, ConflictMode::Wait),
    ];

    const fn new(isolation: Isolation, conflict: ConflictMode) -> Self {
        Self { isolation, conflict }
    }

    /// True if a transaction reads by one snapshot and may change only what that snapshot sees as newest (rule T20).
    pub fn first_updater_wins(self) -> bool {
        self.isolation == Isolation::RepeatableRead && self.conflict == ConflictMode::Error
    }
}

/// The levels of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// All transactions have this one.
    One(Level),
    /// Each transaction draws its own.
    Mixed,
}

impl Levels {
    /// Every kind of history.
    pub fn all() -> impl Iterator<Item = Self> {
        Level::ALL.into_iter().map(Self::One).chain([Self::Mixed])
    }

    /// True if some transactions have this isolation level.
    pub fn have(self, isolation: Isolation) -> bool {
        match self {
            Self::One(level) => level.isolation == isolation,
            Self::Mixed => true,
        }
    }

    /// As options of the program.
    pub fn options(self) -> String {
        let Self::One(level) = self else {
            return "--level mixed".to_owned();
        };
        let conflict = if level.conflict == ConflictMode::Wait {
            "WAIT"
        } else {
            "ERROR"
        };
        match level.isolation {
            Isolation::ReadCommitted => "--level read-committed".to_owned(),
            Isolation::RepeatableRead => format!("--level repeatable-read --conflict {conflict}"),
            Isolation::Serializable => format!("--level serializable --conflict {conflict}"),
        }
    }
}

/// How a statement read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// What had been committed at this moment is what it should have seen; none: the newest version of each row at the
    /// moment when it came to the row.
    pub as_of: Option<Moment>,
    /// The rows seen stay as they are until the transaction ends.
    pub locks: bool,
    /// Every row that the predicate means was asked for.
    pub whole: bool,
}

/// One version of a row.
#[derive(Clone, Debug)]
pub struct Version {
    /// Who wrote it.
    pub writer: TxnNo,
    /// Which row.
    pub row: RowKey,
    /// None: the row is deleted.
    pub content: Option<Content>,
    /// When it was written.
    pub written: Moment,
    /// When it was rolled back alone, with a statement or to a savepoint.
    pub void: Option<Moment>,
}

/// One statement that read.
#[derive(Clone, Debug)]
pub struct Read {
    /// Which rows it asked for.
    pub predicate: Predicate,
    /// How.
    pub how: How,
    /// When the statement began; own versions written before are visible.
    pub began: Moment,
    /// When it had seen the last row.
    pub ended: Moment,
    /// What it saw: version and moment.
    pub seen: Vec<(VersionNo, Moment)>,
}

/// One thing that a transaction did.
#[derive(Clone, Debug)]
pub enum Op {
    /// Took its snapshot.
    Snapshot(Moment),
    /// Read.
    Read(Read),
    /// Wrote a version.
    Write(VersionNo),
    /// Set a savepoint.
    Savepoint(Moment),
    /// Undid what it had written since an earlier moment.
    RolledBackTo(Moment, Moment),
    /// A statement failed and was undone.
    Failed(Moment, &'static str),
    /// A statement had to wait, and was undone until it could begin anew.
    Waited(Moment),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has not.
    Open,
    /// Committed.
    Committed(Moment),
    /// Rolled back, by itself or by the engine.
    Aborted(Moment),
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Txn {
    /// Level.
    pub level: Level,
    /// When it began.
    pub began: Moment,
    /// When it took the snapshot that all its plain reads use.
    pub snapshot: Option<Moment>,
    /// How it ended.
    pub end: End,
    /// What it did.
    pub ops: Vec<Op>,
    /// Versions it wrote, in order.
    pub versions: Vec<VersionNo>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Transactions.
    pub txns: Vec<Txn>,
    /// Versions, in the order in which they were written.
    pub versions: Vec<Version>,
    clock: Moment,
}

impl Record {
    /// The next moment.
    pub fn tick(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// A transaction begins.
    pub fn begin(&mut self, level: Level) -> TxnNo {
        let began = self.tick();
        self.txns.push(Txn {
            level,
            began,
            snapshot: None,
            end: End::Open,
            ops: Vec::new(),
            versions: Vec::new(),
        });
        self.txns.len() - 1
    }

    /// A transaction takes its snapshot, if it has none; when it did.
    pub fn snapshot(&mut self, txn: TxnNo) -> Moment {
        if let Some(taken) = self.txns[txn].snapshot {
            return taken;
        }
        let now = self.tick();
        self.txns[txn].snapshot = Some(now);
        self.txns[txn].ops.push(Op::Snapshot(now));
        now
    }

    /// The number that the next version will have.
    pub fn next_version(&self) -> VersionNo {
        self.versions.len()
    }

    /// A transaction wrote a version; an absent content is a deletion.
    pub fn write(&mut self, txn: TxnNo, row: RowKey, content: Option<Content>) -> VersionNo {
        let written = self.tick();
        let number = self.versions.len();
        self.versions.push(Version {
            writer: txn,
            row,
            content,
            written,
            void: None,
        });
        self.txns[txn].versions.push(number);
        self.txns[txn].ops.push(Op::Write(number));
        number
    }

    /// A statement has read.
    pub fn read(&mut self, txn: TxnNo, read: Read) {
        self.txns[txn].ops.push(Op::Read(read));
    }

    /// What a transaction has written since a moment is undone.
    pub fn undo(&mut self, txn: TxnNo, since: Moment) -> Moment {
        let now = self.tick();
        for version in self.txns[txn].versions.iter().rev() {
            let version = &mut self.versions[*version];
            if version.written <= since {
                break;
            }
            version.void.get_or_insert(now);
        }
        now
    }

    /// A transaction rolled back to a savepoint of an earlier moment.
    pub fn roll_back_to(&mut self, txn: TxnNo, since: Moment) {
        let now = self.undo(txn, since);
        self.txns[txn].ops.push(Op::RolledBackTo(now, since));
    }

    /// A statement that began at a moment failed; what it wrote is undone.
    pub fn fail(&mut self, txn: TxnNo, since: Moment, why: &'static str) {
        let now = self.undo(txn, since);
        self.txns[txn].ops.push(Op::Failed(now, why));
    }

    /// A statement that began at a moment has to wait; what it wrote is undone.
    pub fn wait(&mut self, txn: TxnNo, since: Moment) {
        let now = self.undo(txn, since);
        self.txns[txn].ops.push(Op::Waited(now));
    }

    /// A transaction committed.
    pub fn commit(&mut self, txn: TxnNo) {
        let now = self.tick();
        self.txns[txn].end = End::Committed(now);
    }

    /// A transaction is rolled back.
    pub fn abort(&mut self, txn: TxnNo) {
        let now = self.tick();
        self.txns[txn].end = End::Aborted(now);
    }

    /// When a transaction committed, if it did.
    pub fn committed(&self, txn: TxnNo) -> Option<Moment> {
        match self.txns[txn].end {
            End::Committed(at) => Some(at),
            End::Open | End::Aborted(_) => None,
        }
    }

    /// When a transaction ended; never, if it has not.
    pub fn ended(&self, txn: TxnNo) -> Moment {
        match self.txns[txn].end {
            End::Committed(at) | End::Aborted(at) => at,
            End::Open => Moment::MAX,
        }
    }

    /// The version of a row that a transaction itself had made by a moment and not undone.
    pub fn own(&self, txn: TxnNo, row: RowKey, before: Moment) -> Option<VersionNo> {
        let is_own = |number: &VersionNo| {
            let version = &self.versions[*number];
            version.row == row && version.written < before && version.void.is_none_or(|void| void > before)
        };
        let mut own = self.txns[txn].versions.iter().rev().copied();
        own.find(is_own)
    }
}
