//! Judge: what a record holds that the levels of its transactions forbid.
//!
//! Why it exists: most of what snapshots forbid can be seen at one read or one write, because the record knows when each
//! snapshot was taken and each transaction committed. Adya's phenomena of snapshot isolation (G-SIa, G-SIb) are of this kind:
//! a cycle with one anti-dependency, closed by "committed before the snapshot was taken", is a version that was read
//! although it was superseded by then. What can only be seen in cycles is `graph`'s.
//! Rules: H2 to H9 of docs/testing.md; the name of a kind says which.

use crate::history::graph::{Edge, Graph};
use crate::history::orders::{Orders, as_of};
use crate::history::record::{How, Moment, Op, Read, Record, RowKey, TxnNo, VersionNo};
use pbxt::{ConflictMode, Isolation};
use std::fmt;

/// What is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// H2: two transactions overwrote each other's changes (G0), or one wrote over a version of an unfinished one.
    DirtyWrite,
    /// H3: read what was rolled back, or was not committed (G1a).
    AbortedRead,
    /// H4: read a version that its writer replaced (G1b).
    IntermediateRead,
    /// H5: transactions depend on each other in a circle (G1c).
    CircularFlow,
    /// H6: read what was committed after the snapshot (G-SIa).
    FutureRead,
    /// H6: read a version that had been superseded when the snapshot was taken, or missed a row (G-SIb, G-single).
    StaleRead,
    /// H7: changed a row that had been changed after the snapshot (lost update).
    LostUpdate,
    /// H8: a row that was read with a lock was changed by another transaction (G-cursor).
    LockIgnored,
    /// H9: serializable transactions depend on each other in a circle with anti-dependencies (G2).
    NotSerializable,
    /// H10: an answer that fits no state: a row twice, one that was not asked for, not the transaction's own version.
    WrongAnswer,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::DirtyWrite => "H2 dirty write (G0)",
            Self::AbortedRead => "H3 aborted read (G1a)",
            Self::IntermediateRead => "H4 intermediate read (G1b)",
            Self::CircularFlow => "H5 circular information flow (G1c)",
            Self::FutureRead => "H6 read from beyond the snapshot (G-SIa)",
            Self::StaleRead => "H6 read of what was superseded before the snapshot (G-SIb)",
            Self::LostUpdate => "H7 lost update",
            Self::LockIgnored => "H8 change of a row that another transaction has locked (G-cursor)",
            Self::NotSerializable => "H9 cycle of serializable transactions (G2)",
            Self::WrongAnswer => "H10 wrong answer",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// In words.
    pub what: String,
    /// Transactions that have to do with it.
    pub txns: Vec<TxnNo>,
    /// The cycle, if it is one.
    pub cycle: Vec<Edge>,
}

/// Everything that is wrong in a record all of whose transactions have ended.
pub fn judge(record: &Record) -> Vec<Anomaly> {
    let mut judge = Judge {
        record,
        orders: Orders::of(record),
        found: Vec::new(),
    };
    for txn in 0..record.txns.len() {
        judge.reads(txn);
        judge.writes(txn);
    }
    let Judge {
        orders, mut found, ..
    } = judge;
    let graph = Graph::of(record, &orders);
    if let Some(cycle) = graph.cycle(Edge::is_overwrite) {
        found.push(circle(Kind::DirtyWrite, cycle));
    } else if let Some(cycle) = graph.cycle(|edge| !edge.is_anti()) {
        found.push(circle(Kind::CircularFlow, cycle));
    } else if let Some(cycle) = graph.cycle(|edge| is_serializable(record, edge)) {
        found.push(circle(Kind::NotSerializable, cycle));
    }
    found
}

/// Anti-dependencies bind serializable transactions; a cycle of such edges and dependencies among them is forbidden.
fn is_serializable(record: &Record, edge: &Edge) -> bool {
    let level = |txn: TxnNo| record.txns[txn].level.isolation == Isolation::Serializable;
    level(edge.from) && level(edge.to)
}

fn circle(kind: Kind, cycle: Vec<Edge>) -> Anomaly {
    Anomaly {
        kind,
        what: format!("a cycle of {} transactions", cycle.len()),
        txns: cycle.iter().map(|edge| edge.from).collect(),
        cycle,
    }
}

struct Judge<'a> {
    record: &'a Record,
    orders: Orders,
    found: Vec<Anomaly>,
}

impl Judge<'_> {
    fn tell(&mut self, kind: Kind, txns: &[TxnNo], what: String) {
        let mut txns = txns.to_vec();
        txns.dedup();
        self.found.push(Anomaly {
            kind,
            what,
            txns,
            cycle: Vec::new(),
        });
    }

    fn reads(&mut self, txn: TxnNo) {
        let record = self.record;
        for op in &record.txns[txn].ops {
            let Op::Read(read) = op else { continue };
            for (version, at) in &read.seen {
                self.seen(txn, read, *version, *at);
            }
            self.answer(txn, read);
            if read.how.whole {
                self.missed(txn, read);
            }
        }
    }

    /// One version that a read saw.
    fn seen(&mut self, txn: TxnNo, read: &Read, number: VersionNo, at: Moment) {
        let version = &self.record.versions[number];
        let writer = version.writer;
        let own = self.record.own(txn, version.row, read.began);
        if writer == txn || own.is_some() {
            if own != Some(number) {
                let what = format!("T{txn} saw v{number} where its own newest version is {own:?}");
                self.tell(Kind::WrongAnswer, &[txn], what);
            }
            return;
        }
        let Some(committed) = self.record.committed(writer).filter(|_| version.void.is_none()) else {
            let what = format!("T{txn} saw v{number}, which T{writer} rolled back");
            return self.tell(Kind::AbortedRead, &[txn, writer], what);
        };
        if !self.orders.is_committed(number) {
            let what = format!("T{txn} saw v{number}, which T{writer} replaced by another one");
            return self.tell(Kind::IntermediateRead, &[txn, writer], what);
        }
        let limit = read.how.as_of.unwrap_or(at);
        if committed > limit {
            let (kind, known) = match read.how.as_of {
                Some(_) => (Kind::FutureRead, "the read is as of"),
                None => (Kind::AbortedRead, "the read was at"),
            };
            let what =
                format!("T{txn} saw v{number} of T{writer}, committed at {committed}; {known} {limit}");
            return self.tell(kind, &[txn, writer], what);
        }
        self.superseded(txn, number, read.how, limit);
    }

    /// What was read must have been the newest then, and stay it if it was locked.
    fn superseded(&mut self, txn: TxnNo, number: VersionNo, how: How, limit: Moment) {
        let Some(next) = self.orders.next(number) else {
            return;
        };
        let successor = &self.record.versions[next];
        let writer = successor.writer;
        if writer == txn {
            return;
        }
        let committed = self.record.committed(writer).unwrap_or(Moment::MAX);
        if committed <= limit {
            let what = format!(
                "T{txn} saw v{number}; v{next} of T{writer} replaced it at {committed}, the read is as of {limit}"
            );
            self.tell(Kind::StaleRead, &[txn, writer], what);
        } else if how.locks && successor.written < self.record.ended(txn) {
            let what = format!(
                "T{txn} locked v{number}; T{writer} wrote v{next} over it at {}",
                successor.written
            );
            self.tell(Kind::LockIgnored, &[txn, writer], what);
        }
    }

    /// What can be said of an answer by itself.
    fn answer(&mut self, txn: TxnNo, read: &Read) {
        let record = self.record;
        let version = |number: &VersionNo| &record.versions[*number];
        for (place, (number, _)) in read.seen.iter().enumerate() {
            let content = version(number).content.as_ref();
            if !read.predicate.holds(content) {
                let what = format!(
                    "T{txn} asked for {:?} and got v{number}: {content:?}",
                    read.predicate
                );
                self.tell(Kind::WrongAnswer, &[txn], what);
            }
            for (other, _) in &read.seen[..place] {
                let is_twice = version(other).row == version(number).row;
                let shares_key = read.how.as_of.is_some() && self.shares_unique_key(txn, *other, *number);
                if is_twice || shares_key {
                    let same = if is_twice {
                        "one row"
                    } else {
                        "rows with one unique key"
                    };
                    let what =
                        format!("T{txn} saw v{other} and v{number} in one answer, which are of {same}");
                    self.tell(
                        Kind::WrongAnswer,
                        &[txn, version(number).writer, version(other).writer],
                        what,
                    );
                }
            }
        }
    }

    /// Two different rows with one id, or with one tag.
    fn shares_unique_key(&self, txn: TxnNo, one: VersionNo, other: VersionNo) -> bool {
        [0, 2].into_iter().any(|column| {
            let value = value_of(self.record, one, column);
            value.is_some()
                && value == value_of(self.record, other, column)
                && !self.has_overtaken(txn, one, column)
                && !self.has_overtaken(txn, other, column)
        })
    }

    /// True if the version is the transaction's own, in conflict mode wait, and lies over one that is newer than its snapshot and had
    /// the same value: the key was taken by whoever wrote that.
    fn has_overtaken(&self, txn: TxnNo, number: VersionNo, column: usize) -> bool {
        let record = self.record;
        let version = &record.versions[number];
        let made = &record.txns[txn];
        if version.writer != txn || made.level.conflict != ConflictMode::Wait {
            return false;
        }
        let beneath = as_of(record, self.orders.of_row(version.row), version.written);
        beneath.is_some_and(|beneath| {
            record.committed(record.versions[beneath].writer) > made.snapshot
                && value_of(record, beneath, column) == value_of(record, number, column)
        })
    }

    /// Rows that a read should have seen.
    fn missed(&mut self, txn: TxnNo, read: &Read) {
        let record = self.record;
        let mut rows: Vec<RowKey> = read
            .seen
            .iter()
            .map(|(number, _)| record.versions[*number].row)
            .collect();
        rows.sort_unstable();
        let mut expected = Vec::new();
        for order in self.orders.of_table(read.predicate.table) {
            let row = record.versions[order[0]].row;
            if record.own(txn, row, read.began).is_none()
                && let Some(number) = visible(record, order, read)
                && read.predicate.holds(record.versions[number].content.as_ref())
            {
                expected.push(number);
            }
        }
        for number in &record.txns[txn].versions {
            let row = record.versions[*number].row;
            if row.0 == read.predicate.table
                && record.own(txn, row, read.began) == Some(*number)
                && read.predicate.holds(record.versions[*number].content.as_ref())
            {
                expected.push(*number);
            }
        }
        for number in expected {
            let version = &record.versions[number];
            if rows.binary_search(&version.row).is_ok() {
                continue;
            }
            let writer = version.writer;
            let kind = if writer == txn {
                Kind::WrongAnswer
            } else {
                Kind::StaleRead
            };
            let what = format!(
                "T{txn} asked for {:?} and did not get v{number} of T{writer}",
                read.predicate
            );
            self.tell(kind, &[txn, writer], what);
        }
    }

    fn writes(&mut self, txn: TxnNo) {
        let record = self.record;
        let made = &record.txns[txn];
        for number in &made.versions {
            let version = &record.versions[*number];
            let Some(before) = self.orders.before(*number) else {
                continue;
            };
            let other = record.versions[before].writer;
            let committed = record.committed(other).unwrap_or(Moment::MAX);
            if committed > version.written {
                let what =
                    format!("T{txn} wrote v{number} over v{before} before T{other} had committed that");
                self.tell(Kind::DirtyWrite, &[txn, other], what);
            } else if made.level.first_updater_wins()
                && made.snapshot.is_some_and(|snapshot| committed > snapshot)
            {
                let what = format!(
                    "T{txn} wrote v{number} over v{before} of T{other}, committed at {committed}, after its snapshot"
                );
                self.tell(Kind::LostUpdate, &[txn, other], what);
            }
        }
    }
}

fn value_of(record: &Record, number: VersionNo, column: usize) -> Option<u32> {
    record.versions[number]
        .content
        .and_then(|content| content.values[column])
}

/// The committed version of a row that a read must have come upon. A row that changed while the newest version counted may
/// have been met before or after: nothing is said of it.
fn visible(record: &Record, order: &[VersionNo], read: &Read) -> Option<VersionNo> {
    let number = as_of(record, order, read.how.as_of.unwrap_or(read.began))?;
    if read.how.as_of.is_none() {
        let place = order.iter().position(|version| *version == number)?;
        let next = order.get(place + 1).map(|next| record.versions[*next].written);
        if next.is_some_and(|written| written < read.ended) {
            return None;
        }
    }
    Some(number)
}
