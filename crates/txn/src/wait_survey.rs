//! Wait survey: who waits for what, because of whom, as copies of plain words.
//!
//! Why it exists: the line of a resource may be thousands long and each waiter waits for all before it; whoever looks
//! wants to know who holds the resource and who stands right before, and must not keep the graph's latch for it.
//! State: none of its own; reads the queues of wait_graph.rs.
//! Rules: T35 (so many waits under one latch, so much for each of them).
//! Latches and I/O: none inside; the owner holds the graph's latch for one step at a time.

use std::ops::Bound;

use pbxt_base::ids::TxnId;

use crate::lock_mode::LockMode;
use crate::resource::Resource;
use crate::wait_graph::{Wait, WaitGraph};
use crate::waiting::WaitState;

/// Holders that a survey names for each wait.
pub const HOLDERS_SHOWN_MAX: usize = 8;

/// One wait as a survey found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSeen {
    /// Who waits.
    pub txn: TxnId,
    /// For what.
    pub resource: Resource,
    /// In which mode.
    pub mode: LockMode,
    /// How the wait stands.
    pub state: WaitState,
    holders: [TxnId; HOLDERS_SHOWN_MAX],
    /// Transactions that hold the resource in a mode that stands against it, those not named included.
    pub holder_count: usize,
    /// The last one before it in line whose mode does not go with its own.
    pub ahead: Option<TxnId>,
    /// All such ones before it in line.
    pub ahead_count: usize,
}

impl WaitSeen {
    /// The first `HOLDERS_SHOWN_MAX` holders, by id.
    pub fn holders(&self) -> impl Iterator<Item = TxnId> + '_ {
        self.holders.iter().take(self.holder_count).copied()
    }
}

/// The modes met in a line so far: how many, who came last and at which place.
#[derive(Default)]
struct Line {
    met: [(usize, Option<(usize, TxnId)>); LockMode::ALL.len()],
    length: usize,
}

impl Line {
    fn add(&mut self, txn: TxnId, mode: LockMode) {
        self.length += 1;
        let places = LockMode::ALL.into_iter().zip(&mut self.met);
        for (_, (count, last)) in places.filter(|(known, _)| *known == mode) {
            *count += 1;
            *last = Some((self.length, txn));
        }
    }

    /// How many stand against `mode`, and the last of them.
    fn against(&self, mode: LockMode) -> (usize, Option<TxnId>) {
        let met = LockMode::ALL.into_iter().zip(self.met);
        let against = met
            .filter(|(known, _)| !known.goes_with(mode))
            .map(|(_, met)| met);
        let (count, last) = against.fold((0, None), |(count, last), (more, other)| {
            (count + more, last.max(other))
        });
        (count, last.map(|(_, txn)| txn))
    }
}

impl WaitGraph {
    /// Copies the waits of whole lines behind `after` into `into`, until it has `at_most` of them; of a line that is
    /// longer than the room left, the waits that find room. The last resource looked at, if there may be more.
    ///
    /// Every step of a line costs the same, wherever it stands.
    pub fn survey(
        &self,
        after: Option<Resource>,
        at_most: usize,
        into: &mut Vec<WaitSeen>,
    ) -> Option<Resource> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (resource, queue) in self.queues.range((from, Bound::Unbounded)) {
            let mut line = Line::default();
            let room = at_most.saturating_sub(into.len());
            let waits = queue.iter().filter_map(|txn| Some((*txn, self.waits.get(txn)?)));
            for (txn, wait) in waits.take(room) {
                into.push(seen(txn, wait, &line));
                line.add(txn, wait.mode);
            }
            if into.len() >= at_most {
                return Some(*resource);
            }
        }
        None
    }
}

fn seen(txn: TxnId, wait: &Wait, line: &Line) -> WaitSeen {
    let mut holders = [TxnId::default(); HOLDERS_SHOWN_MAX];
    for (place, holder) in holders.iter_mut().zip(&wait.blockers) {
        *place = *holder;
    }
    let (ahead_count, ahead) = if wait.resource.can_be_held() {
        line.against(wait.mode)
    } else {
        (0, None)
    };
    WaitSeen {
        txn,
        resource: wait.resource,
        mode: wait.mode,
        state: wait.state,
        holders,
        holder_count: wait.blockers.len(),
        ahead,
        ahead_count,
    }
}
