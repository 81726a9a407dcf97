//! Deadlock walk: looks for circles in the wait graph and makes their victims.
//!
//! Why it exists: a circle is found at the moment its last edge appears, or never; so every change of an edge
//! ends here, under the same latch.
//! State: none of its own; reads the queues and blockers of wait_graph.rs.
//! Rules: T14 (every new edge begins or ends at the transaction whose edges changed, so a walk from it sees
//! every new circle).
//! Latches and I/O: none inside; the owner's latch around the graph is held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pbxt_base::ids::TxnId;

use crate::deadlock::{CircleMember, DeadlockReport};
use crate::lock_mode::LockMode;
use crate::resource::Resource;
use crate::wait_graph::WaitGraph;
use crate::waiting::{WaitState, WaitToken};

impl WaitGraph {
    /// Looks for a way along the edges from `start` back to it.
    ///
    /// A waiter's edges to those before it in line are enumerated once per queue: what stands before an
    /// exclusive waiter already seen is on the list, so a queue of n waiters costs n steps and not n squared.
    pub(crate) fn find_circle(&self, start: TxnId) -> Option<Vec<CircleMember>> {
        let mut listed = BTreeMap::new();
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

    /// The edges of a waiter, less those to members of a queue that this walk has listed already. `listed`
    /// holds, per queue, the place up to which every member is on the list.
    fn unlisted_edges(&self, txn: TxnId, listed: &mut BTreeMap<Resource, usize>) -> Vec<TxnId> {
        let Some(wait) = self
            .waits
            .get(&txn)
            .filter(|wait| wait.state == WaitState::Waiting)
        else {
            return Vec::new();
        };
        let mut edges: Vec<TxnId> = wait.blockers.iter().copied().collect();
        let place = self
            .queues
            .get(&wait.resource)
            .and_then(|queue| queue.iter().position(|member| *member == txn));
        let (place, known) = (
            place.unwrap_or(0),
            listed.get(&wait.resource).copied().unwrap_or(0),
        );
        if place > known {
            edges.extend(self.ahead_of(txn, wait));
            if wait.mode == LockMode::Exclusive {
                listed.insert(wait.resource, place);
            }
        }
        edges
    }

    /// Makes a sleeping member of a circle its victim; its place in line is given up at once.
    pub(crate) fn strike(&mut self, circle: &[CircleMember], victim: usize) -> Vec<WaitToken> {
        let member = circle
            .get(victim)
            .expect("rule T14: the victim is a member of the circle")
            .clone();
        self.report(circle, member.txn);
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

    pub(crate) fn report(&mut self, circle: &[CircleMember], victim: TxnId) -> Arc<DeadlockReport> {
        let report = Arc::new(DeadlockReport {
            circle: circle.to_vec(),
            victim,
        });
        self.latest_deadlock = Some(Arc::clone(&report));
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
            })
        };
        pairs.filter_map(member).collect()
    }
}
