//! Fates: how every transaction ended, as far as checkpoint image and log tell.
//!
//! Why it exists: what a version is worth is decided by its transaction's outcome, and recovery asks for millions of versions.
//! State: outcomes told by the tail, by id; what the image said about those that were not settled when it was made.
//! Rules: D6 the tail's END and PREPARE win; else the image's word; a transaction older than the image that neither of them
//! lists had committed. D13. Everybody else is aborted: without END nobody was promised anything.
//! Latches and I/O: none.

use crate::error::Result;
use crate::image::damage;
use pbxt_base::{CommitTs, Lsn, TxnId};
use pbxt_txlog::VoidRange;
use pbxt_txn::{EndedAs, RestoredTxn, TxnTableImage};
use std::collections::{BTreeSet, HashMap};

/// Outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Fate {
    /// Neither PREPARE nor END(commit), here or below.
    #[default]
    Aborted,
    Committed,
    Prepared,
}

/// So far behind the last one an id gets no byte of its own: ids are dense, unless the image is wrong about where they begin.
const GAP_MAX: usize = 1 << 20;

/// Rule T8: what a file says of a void range.
pub(crate) fn check_void(range: VoidRange) -> Result<()> {
    if range.from < range.to {
        return Ok(());
    }
    let found = format!("one from {} to {}", range.from, range.to);
    Err(damage("a void range of at least one byte", found))
}

/// Outcomes of all transactions.
#[derive(Default, Debug)]
pub(crate) struct Fates {
    /// Ids from here on were handed out after the image: only the tail knows them.
    first_new: u64,
    /// Outcomes of new transactions told by the tail: one byte each, as ids are dense.
    new: Vec<Fate>,
    /// The same of ids far behind all others; usually of none.
    far: HashMap<TxnId, Fate>,
    /// Outcomes of older ones told by the tail.
    old: HashMap<TxnId, Fate>,
    /// What the image said.
    listed: HashMap<TxnId, EndedAs>,
    /// Sorted and disjoint after `settle`.
    voids: HashMap<TxnId, Vec<VoidRange>>,
    /// Commits told by the tail of transactions with void ranges.
    void_commits: HashMap<TxnId, CommitTs>,
}

impl Fates {
    /// Starts with what an image says. Its list of prepared transactions is the truth about those: one that its table calls
    /// prepared and the list does not have was being rolled back.
    pub(crate) fn of_image(image: TxnTableImage, prepared: &BTreeSet<TxnId>) -> Self {
        let mut fates = Self {
            first_new: image.next.raw(),
            ..Self::default()
        };
        for txn in image.exceptions {
            let is_prepared = prepared.contains(&txn.id);
            let ended = match txn.ended {
                EndedAs::Committed(ts) => EndedAs::Committed(ts),
                EndedAs::Prepared | EndedAs::Aborted if is_prepared => EndedAs::Prepared,
                EndedAs::Prepared | EndedAs::Aborted => EndedAs::Aborted,
            };
            fates.listed.insert(txn.id, ended);
            let ranges = txn.voids.iter().map(|range| VoidRange {
                from: range.start,
                to: range.end,
            });
            fates.add_voids(txn.id, ranges);
        }
        fates
    }

    /// The tail tells an outcome.
    pub(crate) fn set(&mut self, txn: TxnId, fate: Fate) {
        let Some(at) = txn.raw().checked_sub(self.first_new) else {
            self.old.insert(txn, fate);
            return;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if at.saturating_sub(self.new.len()) > GAP_MAX || self.far.contains_key(&txn) {
            self.far.insert(txn, fate);
            return;
        }
        if at >= self.new.len() {
            self.new.resize(at + 1, Fate::default());
        }
        if let Some(slot) = self.new.get_mut(at) {
            *slot = fate;
        }
    }

    /// The tail tells a commit, after all its void ranges.
    pub(crate) fn commit(&mut self, txn: TxnId, ts: CommitTs) {
        self.set(txn, Fate::Committed);
        if self.voids.contains_key(&txn) {
            self.void_commits.insert(txn, ts);
        }
    }

    pub(crate) fn add_voids(&mut self, txn: TxnId, ranges: impl Iterator<Item = VoidRange>) {
        let mut ranges = ranges.peekable();
        if ranges.peek().is_some() {
            self.voids.entry(txn).or_default().extend(ranges);
        }
    }

    /// Call it when everything is told: puts void ranges in order.
    pub(crate) fn settle(&mut self) {
        for ranges in self.voids.values_mut() {
            ranges.sort_unstable_by_key(|range| range.from);
            let mut merged: Vec<VoidRange> = Vec::with_capacity(ranges.len());
            for range in ranges.iter() {
                match merged.last_mut() {
                    Some(last) if range.from <= last.to => last.to = last.to.max(range.to),
                    _ => merged.push(*range),
                }
            }
            *ranges = merged;
        }
    }

    /// Outcome of a transaction. Transaction 0 is settled.
    pub(crate) fn fate(&self, txn: TxnId) -> Fate {
        if let Some(at) = txn.raw().checked_sub(self.first_new) {
            return match self.new.get(at as usize) {
                Some(fate) if *fate != Fate::Aborted => *fate,
                _ => self.far.get(&txn).copied().unwrap_or_default(),
            };
        }
        if let Some(fate) = self.old.get(&txn) {
            return *fate;
        }
        match self.listed.get(&txn) {
            Some(EndedAs::Prepared) => Fate::Prepared,
            Some(EndedAs::Aborted) => Fate::Aborted,
            Some(EndedAs::Committed(_)) | None => Fate::Committed,
        }
    }

    /// Void ranges of a transaction.
    pub(crate) fn voids(&self, txn: TxnId) -> &[VoidRange] {
        self.voids.get(&txn).map_or(&[], Vec::as_slice)
    }

    fn is_void(&self, txn: TxnId, lsn: Lsn) -> bool {
        let Some(ranges) = self.voids.get(&txn) else {
            return false;
        };
        let after = ranges.partition_point(|range| range.from <= lsn);
        after > 0 && lsn < ranges[after - 1].to
    }

    /// Rule D13 for what `txn` wrote at `lsn`.
    pub(crate) fn survives(&self, txn: TxnId, lsn: Lsn) -> bool {
        self.fate(txn) != Fate::Aborted && !self.is_void(txn, lsn)
    }

    /// True for a version that only its transaction's outcome can make visible.
    pub(crate) fn is_prepared(&self, txn: TxnId) -> bool {
        self.fate(txn) == Fate::Prepared
    }

    /// Everything that is not plainly committed and may have left traces in words, chains and runs: what the image lists,
    /// what carries void ranges, and what `traces` names.
    pub(crate) fn exceptions(&self, traces: &BTreeSet<TxnId>) -> Vec<RestoredTxn> {
        let mut ids: BTreeSet<TxnId> = traces.clone();
        ids.extend(self.listed.keys());
        ids.extend(self.voids.keys());
        ids.into_iter().filter_map(|id| self.exception(id)).collect()
    }

    fn exception(&self, id: TxnId) -> Option<RestoredTxn> {
        let voids = self.voids(id).iter().map(|range| range.from..range.to);
        let voids: Vec<_> = voids.collect();
        let ended = match self.fate(id) {
            Fate::Aborted => EndedAs::Aborted,
            Fate::Prepared => EndedAs::Prepared,
            Fate::Committed if voids.is_empty() => return None,
            Fate::Committed => match (self.void_commits.get(&id), self.listed.get(&id)) {
                (Some(ts), _) | (None, Some(EndedAs::Committed(ts))) => EndedAs::Committed(*ts),
                (None, _) => EndedAs::Committed(CommitTs::new(0)),
            },
        };
        Some(RestoredTxn { id, ended, voids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(raw: u64) -> TxnId {
        TxnId::new(raw)
    }

    fn void(from: u64, to: u64) -> VoidRange {
        VoidRange {
            from: Lsn::new(from),
            to: Lsn::new(to),
        }
    }

    fn listed(id: u64, ended: EndedAs, voids: &[VoidRange]) -> RestoredTxn {
        RestoredTxn {
            id: txn(id),
            ended,
            voids: voids.iter().map(|range| range.from..range.to).collect(),
        }
    }

    /// Image: next id 10; 1 aborted, 2 prepared, 3 prepared but not in the list, 4 committed with voids, 5 active with
    /// voids, 6 active, 7 active; the rest settled.
    fn fates() -> Fates {
        let exceptions = vec![
            listed(1, EndedAs::Aborted, &[]),
            listed(2, EndedAs::Prepared, &[]),
            listed(3, EndedAs::Prepared, &[]),
            listed(4, EndedAs::Committed(CommitTs::new(8)), &[void(100, 200)]),
            listed(5, EndedAs::Aborted, &[void(100, 200)]),
            listed(6, EndedAs::Aborted, &[]),
            listed(7, EndedAs::Aborted, &[]),
        ];
        let image = TxnTableImage {
            next: txn(10),
            last_ts: CommitTs::new(9),
            exceptions,
        };
        Fates::of_image(image, &BTreeSet::from([txn(2)]))
    }

    #[test]
    fn ids_far_behind_all_others_take_no_memory_between() {
        let mut fates = fates();
        let far = (1 << 59) + 7;
        fates.commit(txn(far), CommitTs::new(21));
        fates.set(txn(far + 1), Fate::Prepared);
        fates.set(txn(11), Fate::Prepared);
        // Comes near, and has its place already.
        let near = GAP_MAX as u64 + 12;
        fates.set(txn(near + 2), Fate::Prepared);
        fates.set(txn(near), Fate::Committed);
        fates.set(txn(near + 2), Fate::Aborted);
        fates.set(txn(near + 3), Fate::Committed);
        fates.settle();
        let expected = [
            (far, Fate::Committed),
            (far + 1, Fate::Prepared),
            (far + 2, Fate::Aborted),
            (11, Fate::Prepared),
            (12, Fate::Aborted),
            (near, Fate::Committed),
            (near + 1, Fate::Aborted),
            (near + 2, Fate::Aborted),
            (near + 3, Fate::Committed),
        ];
        for (id, fate) in expected {
            assert_eq!(fates.fate(txn(id)), fate, "transaction {id}");
        }
        assert!(fates.new.capacity() < 1 << 23);
    }

    #[test]
    fn the_tail_wins_over_the_image_and_the_image_over_nothing() {
        let mut fates = fates();
        fates.set(txn(6), Fate::Prepared);
        fates.add_voids(txn(5), [void(300, 400)].into_iter());
        fates.commit(txn(5), CommitTs::new(20));
        fates.commit(txn(12), CommitTs::new(21));
        fates.settle();
        let expected = [
            (1, Fate::Aborted),
            (2, Fate::Prepared),
            (3, Fate::Aborted),
            (4, Fate::Committed),
            (5, Fate::Committed),
            (6, Fate::Prepared),
            (7, Fate::Aborted),
            (8, Fate::Committed),
            (10, Fate::Aborted),
            (12, Fate::Committed),
            (99, Fate::Aborted),
        ];
        for (id, fate) in expected {
            assert_eq!(fates.fate(txn(id)), fate, "transaction {id}");
        }
        let alive = |id, lsn| fates.survives(txn(id), Lsn::new(lsn));
        assert_eq!(
            [99, 100, 199, 200, 300, 400].map(|lsn| alive(5, lsn)),
            [true, false, false, true, false, true]
        );
        let kept = fates.exceptions(&BTreeSet::from([txn(11), txn(12)]));
        let kept: Vec<(u64, EndedAs, usize)> = kept
            .iter()
            .map(|txn| (txn.id.raw(), txn.ended, txn.voids.len()))
            .collect();
        assert_eq!(
            kept,
            [
                (1, EndedAs::Aborted, 0),
                (2, EndedAs::Prepared, 0),
                (3, EndedAs::Aborted, 0),
                (4, EndedAs::Committed(CommitTs::new(8)), 1),
                (5, EndedAs::Committed(CommitTs::new(20)), 2),
                (6, EndedAs::Prepared, 0),
                (7, EndedAs::Aborted, 0),
                (11, EndedAs::Aborted, 0),
            ]
        );
    }

    #[test]
    fn without_an_image_only_the_log_speaks() {
        let mut fates = Fates::default();
        fates.commit(txn(3), CommitTs::new(1));
        assert_eq!(
            [1, 3, 4].map(|id| fates.fate(txn(id))),
            [Fate::Aborted, Fate::Committed, Fate::Aborted]
        );
    }
}
