//! A toy store of versions under `Serializer`, and the judge of what came out: the graph of all dependencies between the
//! transactions that committed.
//!
//! Why it exists: the rules look for pairs, the judge for circles, and neither knows of the other. The store does with
//! footprints what the engine does: note, read, pass over; change, look.

#![allow(dead_code, reason = "each user uses a part of this")]

use std::collections::BTreeSet;
use std::convert::Infallible;

use crossbeam_epoch::pin;
use pbxt_base::ids::{IndexId, RowId, TableId, TxnId};
use pbxt_txn::{KeyRange, RowChange, SerialTxn, Serializer, Snapshot, TxnStatus, TxnTable, WholeTable};

pub(crate) const ROWS: usize = 5;
pub(crate) const CLIENTS: usize = 4;
const TABLE: TableId = TableId::new(1);
const INDEX: IndexId = IndexId::new(1);

/// One step of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Begin {
        is_reader: bool,
    },
    Row(usize),
    Range {
        first: usize,
        last: usize,
        is_open: bool,
    },
    All,
    Count,
    /// Inserts a row that is not there; deletes or updates one that is.
    Change {
        row: usize,
        deletes: bool,
    },
    Prepare,
    Commit,
    Rollback,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    writer: usize,
    txn: TxnId,
    is_present: bool,
}

/// A read of a row: which of its versions was seen; `COUNT` asks only whether the row is there.
#[derive(Clone, Copy, Debug)]
struct Seen {
    reader: usize,
    row: usize,
    version: usize,
    counts_only: bool,
}

#[derive(Debug)]
struct Open {
    number: usize,
    snapshot: Snapshot,
    serial: Option<SerialTxn>,
    txn: Option<TxnId>,
    seen: Vec<Seen>,
    is_reader: bool,
    is_prepared: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    txns: TxnTable,
    pub(crate) serial: Serializer,
    /// Committed versions, oldest first.
    rows: [Vec<Version>; ROWS],
    pending: [Option<Version>; ROWS],
    clients: [Option<Open>; CLIENTS],
    seen: Vec<Seen>,
    begun: usize,
    pub(crate) committed: usize,
    /// Transactions that were ended, and those of them that would have closed no circle then.
    pub(crate) ended: usize,
    pub(crate) ended_in_vain: usize,
}

impl World {
    pub(crate) fn new(ended_max: usize) -> Self {
        let old = |row: usize| Version {
            writer: 0,
            txn: TxnId::new(0),
            is_present: row.is_multiple_of(2),
        };
        Self {
            txns: TxnTable::new(),
            serial: Serializer::with_ended_max(ended_max),
            rows: std::array::from_fn(|row| vec![old(row)]),
            pending: [None; ROWS],
            clients: [const { None }; CLIENTS],
            seen: Vec::new(),
            begun: 0,
            committed: 0,
            ended: 0,
            ended_in_vain: 0,
        }
    }

    pub(crate) fn step(&mut self, client: usize, step: Step) {
        let Some(mut open) = self.clients[client].take() else {
            if let Step::Begin { is_reader } = step {
                self.clients[client] = Some(self.begin(is_reader));
            }
            return;
        };
        let fits = match step {
            Step::Begin { .. } => true,
            Step::Commit => return self.commit(open),
            Step::Rollback => return self.roll_back(open),
            _ if open.is_prepared => true,
            Step::Prepare => {
                let vote =
                    |serial: &SerialTxn| self.serial.prepare(serial, || Ok::<_, Infallible>(())).is_ok();
                open.is_prepared = open.serial.as_ref().is_none_or(vote);
                open.is_prepared
            }
            Step::Row(row) => self.read_row(&mut open, row),
            Step::Range { first, last, is_open } => self.read_range(&mut open, first, last, is_open),
            Step::All => self.read_all(&mut open),
            Step::Count => self.count(&mut open),
            Step::Change { row, deletes } => self.change(&mut open, row, deletes),
        };
        let is_victim = open.serial.as_ref().is_some_and(SerialTxn::is_victim);
        if fits && (open.is_prepared || !is_victim) {
            self.clients[client] = Some(open);
        } else {
            self.end(open);
        }
    }

    /// Ends everybody and asks the judge.
    pub(crate) fn finish(&mut self) {
        for client in 0..CLIENTS {
            self.step(client, Step::Commit);
        }
        assert_eq!(
            self.circle(None),
            None,
            "T29: no circle among those that committed"
        );
        let usage = self.serial.usage();
        assert_eq!(
            (usage.txns, usage.footprints),
            (0, 0),
            "T31: nothing is left of them"
        );
    }

    fn begin(&mut self, is_reader: bool) -> Open {
        self.begun += 1;
        let (snapshot, serial) = self.serial.begin(&self.txns, is_reader);
        Open {
            number: self.begun,
            snapshot,
            serial,
            txn: None,
            seen: Vec::new(),
            is_reader,
            is_prepared: false,
        }
    }

    /// The version that the transaction sees; none if it is its own.
    fn visible(&self, open: &Open, row: usize) -> Option<usize> {
        if self.pending[row].is_some_and(|version| version.writer == open.number) {
            return None;
        }
        let guard = pin();
        let is_seen = |version: &Version| match self.txns.status(version.txn, &guard) {
            TxnStatus::Settled => true,
            TxnStatus::Committed(ts) => ts <= open.snapshot.ts(),
            TxnStatus::Active | TxnStatus::Prepared | TxnStatus::Aborted => false,
        };
        let seen = self.rows[row].iter().rposition(is_seen);
        Some(seen.expect("the first version is settled"))
    }

    /// Reads a row that is noted.
    fn read(&self, open: &mut Open, row: usize) {
        let Some(version) = self.visible(open, row) else {
            return;
        };
        let newer = self.rows[row][version + 1..].iter().chain(&self.pending[row]);
        if let Some(serial) = &open.serial {
            newer.for_each(|newer| self.serial.passed_over(serial.reader(), newer.txn));
        }
        open.seen.push(Seen {
            reader: open.number,
            row,
            version,
            counts_only: false,
        });
    }

    fn note_row(&self, open: &mut Open, row: usize) {
        if let Some(serial) = &mut open.serial {
            self.serial.note_row(serial, TABLE, row_id(row));
        }
    }

    fn read_row(&self, open: &mut Open, row: usize) -> bool {
        let is_there = |version: usize| self.rows[row][version].is_present;
        if self.visible(open, row).is_some_and(is_there) {
            self.note_row(open, row);
            self.read(open, row);
        }
        true
    }

    fn read_range(&self, open: &mut Open, first: usize, last: usize, is_open: bool) -> bool {
        let range = KeyRange::new(key(first), Some(key(last + 1)));
        let scan = open.serial.as_mut().and_then(|serial| {
            if is_open {
                let all = KeyRange::everything().from(&key(first));
                return Some(self.serial.open_scan(serial, INDEX, all));
            }
            self.serial.note_range(serial, INDEX, range.clone());
            None
        });
        for row in first..=last {
            self.note_row(open, row);
            self.read(open, row);
        }
        if let Some(scan) = scan {
            self.serial.close_scan(scan, range);
        }
        true
    }

    fn read_all(&self, open: &mut Open) -> bool {
        if let Some(serial) = &mut open.serial {
            self.serial.note_table(serial, TABLE, WholeTable::ALL);
        }
        (0..ROWS).for_each(|row| self.read(open, row));
        true
    }

    fn count(&self, open: &mut Open) -> bool {
        if let Some(serial) = &mut open.serial {
            self.serial.note_count(serial, TABLE);
        }
        for row in 0..ROWS {
            open.seen.extend(self.visible(open, row).map(|version| Seen {
                reader: open.number,
                row,
                version,
                counts_only: true,
            }));
        }
        true
    }

    fn change(&mut self, open: &mut Open, row: usize, deletes: bool) -> bool {
        let newest = self.rows[row].len() - 1;
        let is_free = self.pending[row].is_none() && self.visible(open, row) == Some(newest);
        if open.is_reader || !is_free {
            return true;
        }
        let Some(serial) = &mut open.serial else {
            return true;
        };
        let txn = *open.txn.get_or_insert_with(|| self.txns.begin());
        self.serial.note_write(serial, txn, TABLE);
        let was_present = self.rows[row][newest].is_present;
        let change = match (was_present, deletes) {
            (false, _) => RowChange::Insert,
            (true, true) => RowChange::Delete,
            (true, false) => RowChange::Update,
        };
        self.pending[row] = Some(Version {
            writer: open.number,
            txn,
            is_present: change != RowChange::Delete,
        });
        let mut met = self.serial.changed_row(serial, TABLE, row_id(row), change);
        if change == RowChange::Insert {
            met = met.and(self.serial.changed_key(serial, INDEX, &key(row)));
        }
        met.is_ok()
    }

    fn commit(&mut self, mut open: Open) {
        let txn = open.txn;
        let publish = |txn| self.txns.commit_critical(txn, |_| Ok::<_, Infallible>(()));
        let done = match (&mut open.serial, txn) {
            (None, _) => Ok(()),
            (Some(serial), None) => self.serial.commit_unchanged(serial),
            (Some(serial), Some(txn)) => self.serial.commit(serial, || publish(txn)).map(|_| ()),
        };
        if done.is_err() {
            assert!(!open.is_prepared, "T32: a prepared transaction commits");
            return self.end(open);
        }
        for (row, pending) in self.rows.iter_mut().zip(&mut self.pending) {
            if pending.is_some_and(|version| version.writer == open.number) {
                row.extend(pending.take());
            }
        }
        self.seen.append(&mut open.seen);
        self.committed += 1;
        if let Some(serial) = open.serial {
            self.serial.end(serial);
        }
    }

    /// The serializer has ended it.
    fn end(&mut self, open: Open) {
        self.ended += 1;
        self.ended_in_vain += usize::from(self.circle(Some(&open)).is_none());
        self.roll_back(open);
    }

    fn roll_back(&mut self, open: Open) {
        if let Some(txn) = open.txn {
            self.txns.abort(txn);
        }
        for pending in &mut self.pending {
            pending.take_if(|version| version.writer == open.number);
        }
        if let Some(serial) = open.serial {
            self.serial.end(serial);
        }
    }

    /// A circle of dependencies among those that committed, and one more if it had.
    fn circle(&self, more: Option<&Open>) -> Option<Vec<usize>> {
        let mut edges = BTreeSet::new();
        let rows: Vec<Vec<Version>> = self
            .rows
            .iter()
            .zip(&self.pending)
            .map(|(row, pending)| {
                let own = pending.filter(|version| more.is_some_and(|more| version.writer == more.number));
                row.iter().copied().chain(own).collect()
            })
            .collect();
        for row in &rows {
            edges.extend(row.windows(2).map(|pair| (pair[0].writer, pair[1].writer)));
        }
        let more_seen = more.map_or(&[][..], |more| more.seen.as_slice());
        for seen in self.seen.iter().chain(more_seen) {
            let row = &rows[seen.row];
            let same =
                |version: &Version| seen.counts_only && version.is_present == row[seen.version].is_present;
            let from = (1..=seen.version)
                .rev()
                .find(|at| !seen.counts_only || !same(&row[at - 1]))
                .unwrap_or(0);
            edges.insert((row[from].writer, seen.reader));
            let next = row[seen.version + 1..].iter().find(|version| !same(version));
            edges.extend(next.map(|next| (seen.reader, next.writer)));
        }
        edges.retain(|(from, to)| from != to);
        find_circle(&edges)
    }
}

/// Takes away transactions that nobody stands before until none is left, or only circles and what comes after them.
fn find_circle(edges: &BTreeSet<(usize, usize)>) -> Option<Vec<usize>> {
    let mut left: BTreeSet<usize> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    loop {
        let has_one_before = |txn: &usize| edges.iter().any(|(from, to)| to == txn && left.contains(from));
        let rest: BTreeSet<usize> = left.iter().copied().filter(has_one_before).collect();
        if rest.len() == left.len() {
            return (!rest.is_empty()).then(|| rest.into_iter().collect());
        }
        left = rest;
    }
}

fn row_id(row: usize) -> RowId {
    RowId::new(row as u64 + 1)
}

fn key(row: usize) -> Vec<u8> {
    vec![row as u8]
}
