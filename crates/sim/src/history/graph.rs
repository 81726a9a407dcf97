//! Graph: which committed transaction depends on which (Adya's direct serialization graph), and the shortest cycle in it.
//!
//! Why it exists: what serializability and G0, G1c forbid are cycles of any length.
//! Edges: *ww* to who wrote the next version of a row; *wr* to who read a version, or read by a predicate what the version took
//! out of it; *rw* from who read a version to who replaced it, also where a predicate missed a row that a later version
//! brought into it. Only the nearest version on either side gives an edge: the ww edges lead on.

use crate::history::orders::{Orders, as_of};
use crate::history::record::{Op, Read, Record, TxnNo, VersionNo};
use std::collections::VecDeque;

/// Why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It wrote the version that the other one replaced.
    Overwritten,
    /// It wrote what the other one read.
    ReadBy,
    /// It read what the other one replaced.
    ReadBefore,
}

/// An edge.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Comes first.
    pub from: TxnNo,
    /// Comes later.
    pub to: TxnNo,
    /// Why.
    pub why: Why,
    /// The version it is about: the one written (ww, wr) or the one that came after the read (rw).
    pub version: VersionNo,
    /// The read was by a predicate that the version does not meet.
    pub by_predicate: bool,
}

impl Edge {
    /// True for ww.
    pub fn is_overwrite(&self) -> bool {
        self.why == Why::Overwritten
    }

    /// True for rw.
    pub fn is_anti(&self) -> bool {
        self.why == Why::ReadBefore
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Graph {
    /// By first transaction.
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// Of the committed transactions of a record.
    pub(super) fn of(record: &Record, orders: &Orders) -> Self {
        let mut graph = Self {
            edges: vec![Vec::new(); record.txns.len()],
        };
        let writer = |number: VersionNo| record.versions[number].writer;
        for order in orders.rows() {
            for pair in order.windows(2) {
                graph.add(writer(pair[0]), writer(pair[1]), Why::Overwritten, pair[1], false);
            }
        }
        for (txn, done) in record.txns.iter().enumerate() {
            if record.committed(txn).is_none() {
                continue;
            }
            for op in &done.ops {
                let Op::Read(read) = op else { continue };
                for (number, _) in &read.seen {
                    graph.add(writer(*number), txn, Why::ReadBy, *number, false);
                    if let Some(next) = orders.next(*number) {
                        graph.add(txn, writer(next), Why::ReadBefore, next, false);
                    }
                }
                if read.how.whole {
                    graph.add_missed(record, orders, txn, read);
                }
            }
        }
        graph
    }

    fn add(&mut self, from: TxnNo, to: TxnNo, why: Why, version: VersionNo, by_predicate: bool) {
        if from != to {
            self.edges[from].push(Edge {
                from,
                to,
                why,
                version,
                by_predicate,
            });
        }
    }

    /// Edges of a read to the rows it did not see: to who took them out of the predicate before, and who brings them in next.
    fn add_missed(&mut self, record: &Record, orders: &Orders, txn: TxnNo, read: &Read) {
        let moment = read.how.as_of.unwrap_or(read.began);
        let holds = |number: VersionNo| read.predicate.holds(record.versions[number].content.as_ref());
        for order in orders.of_table(read.predicate.table) {
            let row = record.versions[order[0]].row;
            let is_seen = |(number, _): &(VersionNo, _)| record.versions[*number].row == row;
            if read.seen.iter().any(is_seen) || record.own(txn, row, read.began).is_some() {
                continue;
            }
            let place = as_of(record, order, moment)
                .and_then(|number| order.iter().position(|other| *other == number));
            let (past, future) = order.split_at(place.map_or(0, |place| place + 1));
            if let Some(next) = future.iter().copied().find(|number| holds(*number)) {
                self.add(txn, record.versions[next].writer, Why::ReadBefore, next, true);
            }
            if let Some(last) = past.iter().rposition(|number| holds(*number))
                && let Some(took_out) = past.get(last + 1)
            {
                self.add(
                    record.versions[*took_out].writer,
                    txn,
                    Why::ReadBy,
                    *took_out,
                    true,
                );
            }
        }
    }

    /// A shortest cycle of edges that count.
    pub(super) fn cycle(&self, counts: impl Fn(&Edge) -> bool) -> Option<Vec<Edge>> {
        let left = self.left(&counts);
        let mut shortest: Option<Vec<Edge>> = None;
        for start in (0..left.len()).filter(|txn| left[*txn]) {
            let found = self.way_back(start, &left, &counts);
            if let Some(found) = found
                && shortest.as_ref().is_none_or(|best| found.len() < best.len())
            {
                let is_shortest = found.len() == 2;
                shortest = Some(found);
                if is_shortest {
                    break;
                }
            }
        }
        shortest
    }

    /// Transactions that are left when those that nothing leads to are taken away, again and again: none without a cycle.
    fn left(&self, counts: &impl Fn(&Edge) -> bool) -> Vec<bool> {
        let mut before = vec![0_u32; self.edges.len()];
        for edge in self.edges.iter().flatten().filter(|edge| counts(edge)) {
            before[edge.to] += 1;
        }
        let mut free: Vec<TxnNo> = (0..before.len()).filter(|txn| before[*txn] == 0).collect();
        while let Some(txn) = free.pop() {
            for edge in self.edges[txn].iter().filter(|edge| counts(edge)) {
                before[edge.to] -= 1;
                if before[edge.to] == 0 {
                    free.push(edge.to);
                }
            }
        }
        before.into_iter().map(|count| count > 0).collect()
    }

    /// The shortest way from a transaction back to it.
    fn way_back(&self, start: TxnNo, left: &[bool], counts: &impl Fn(&Edge) -> bool) -> Option<Vec<Edge>> {
        let mut came: Vec<Option<Edge>> = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(txn) = queue.pop_front() {
            for edge in self.edges[txn]
                .iter()
                .filter(|edge| left[edge.to] && counts(edge))
            {
                if edge.to == start {
                    let mut way = vec![*edge];
                    while let Some(last) = way.last().filter(|last| last.from != start) {
                        let previous = came[last.from]?;
                        way.push(previous);
                    }
                    way.reverse();
                    return Some(way);
                }
                if came[edge.to].is_none() {
                    came[edge.to] = Some(*edge);
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }
}
