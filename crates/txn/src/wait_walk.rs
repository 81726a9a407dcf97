//! Deadlock walk: looks for circles in the wait graph and makes their victims.
//!
//! Why it exists: a circle is found at the moment its last edge appears, or never; so every change of an edge
//! ends here, under the same latch.
//! State: none of its own; reads the queues and blockers of wait_graph.rs.
//! Rules: T14 (every new edge begins or ends at the transaction whose edges changed, so a walk from it sees
//! every new circle).
//! Latches and I/O: none inside; the owner's latch around the graph is held.

use std::collections::BTreeSet;
use std::sync::Arc;

use pbxt_base::ids::TxnId;

use crate::deadlock::{CircleMember, DeadlockReport};
use crate::lock_mode::LockMode;
use crate::wait_graph::WaitGraph;
use crate::waiting::{WaitState, WaitToken};

impl WaitGraph {
    /// Looks for a way along the edges from `start` back to it.
    ///
    /// A waiter's edges to those before it in line are enumerated once per queue: what stands before an
    /// exclusive waiter already seen is on the list, so a queue of n waiters costs n steps and not n squared.
    pub(crate) fn find_circle(&self, start: TxnId) -> Option<Vec<CircleMember>> {
        if !self.is_waited_for(start) {
            return None;
        }
        let mut listed = BTreeSet::new();
        let mut seen = BTreeSet::from([start]);
        let mut path = vec![(start, self.unlisted_edges(start, &mut listed).into_iter())];
        while let Some((_, edges)) = path.last_mut() {
            match edges.next() {
                Some(next) if next == start => return Some(self.describe(&path)),
                Some(next) if seen.insert(next) => {
                    path.push((next, self.unlisted_edges(next, &mut listed).into_iter()));
                }
                Some(_) => {}
                None => {
                    path.pop();
                }
            }
        }
        None
    }

    /// True if an edge leads to `txn`: somebody waits for what it holds, or stands behind it in line.
    fn is_waited_for(&self, txn: TxnId) -> bool {
        let line = self
            .waits
            .get(&txn)
            .and_then(|wait| self.queues.get(&wait.resource));
        self.blocked_by.contains_key(&txn) || line.is_some_and(|line| line.back() != Some(&txn))
    }

    /// The edges of a waiter, less those to members of a queue that this walk has listed already. `listed` holds the
    /// waiters everybody before whom is on the list.
    fn unlisted_edges(&self, txn: TxnId, listed: &mut BTreeSet<TxnId>) -> Vec<TxnId> {
        let Some(wait) = self
            .waits
            .get(&txn)
            .filter(|wait| wait.state == WaitState::Waiting)
        else {
            return Vec::new();
        };
        let mut edges: Vec<TxnId> = wait.blockers.iter().copied().collect();
        if !listed.contains(&txn) {
            let holders = edges.len();
            edges.extend(self.ahead_of(txn, wait));
            // Nothing goes with an exclusive waiter, so these are all that stand before it.
            if wait.mode == LockMode::Exclusive {
                listed.extend(edges.iter().skip(holders));
            }
        }
        edges
    }

    /// Makes a sleeping member of a circle its victim; its place in line is given up at once.
    pub(crate) fn strike(&mut self, circle: &[CircleMember], victim: usize) -> Vec<WaitToken> {
        let member = *circle
            .get(victim)
            .expect("rule T14: the victim is a member of the circle");
        self.report(circle, victim);
        self.unlink(member.txn);
        self.set_state(member.txn, WaitState::Victim);
        let mut wakes: Vec<WaitToken> = self
            .waits
            .get(&member.txn)
            .map(|wait| wait.token)
            .into_iter()
            .collect();
        wakes.extend(self.wake_ready(member.resource));
        wakes
    }

    pub(crate) fn choose(&self, circle: &[CircleMember]) -> usize {
        let wanted = self.preference.as_ref().map_or(0, |choose| choose(circle));
        if wanted < circle.len() { wanted } else { 0 }
    }

    /// Keeps the facts of a circle until whoever holds the graph's latch has given it back (rule T36).
    pub(crate) fn report(&mut self, circle: &[CircleMember], victim: usize) -> Arc<DeadlockReport> {
        let report = Arc::new(DeadlockReport::new(circle, victim));
        self.found.push(Arc::clone(&report));
        report
    }

    fn describe(&self, path: &[(TxnId, std::vec::IntoIter<TxnId>)]) -> Vec<CircleMember> {
        let members = path.iter().map(|(txn, _)| *txn);
        let followers = members.clone().skip(1).chain(members.clone().take(1));
        let pairs = members.zip(followers);
        let member = |(txn, waits_for): (TxnId, TxnId)| {
            let wait = self.waits.get(&txn)?;
            Some(CircleMember {
                txn,
                resource: wait.resource,
                mode: wait.mode,
                waits_for,
                in_line: !wait.blockers.contains(&waits_for),
            })
        };
        pairs.filter_map(member).collect()
    }
}
