//! Wait graph: who waits for what, behind whom; whose turn it is; and whether a circle has formed.
//!
//! Why it exists: a wait that is judged in one place and queued in another loses its wake-up; waking
//! everybody makes a storm; edges that change without a walk hide deadlocks. Here queues, turns and edges are
//! one structure under one latch, and every change ends with the same two steps: walk, then wake.
//! State: one queue per resource, in order of arrival; a waiter is `Waiting`, has the `Turn`, or is a
//! `Victim`. Edges are derived, never stored: a waiter waits for its blockers (who hold the resource) and for
//! every waiter before it in its queue whose mode does not go with its own. State diagram in
//! docs/transactions.md, section 5.
//! Rules: T13 (queue, turn, pass on), T14 (walk), T15 (newcomers).
//! Latches and I/O: none inside; the owner keeps the graph under one latch, judges blockers under it, and
//! wakes the returned tokens after releasing it.
//! After a crash: nobody waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use pbxt_base::ids::TxnId;
use pbxt_base::invariant;

use crate::deadlock::{CircleMember, DeadlockReport};
use crate::lock_mode::LockMode;
use crate::resource::Resource;
use crate::waiter_counts::WaiterCounts;
use crate::waiting::{Enqueued, WaitRequest, WaitState, WaitToken, Wakes};

#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) token: WaitToken,
    pub(crate) resource: Resource,
    pub(crate) mode: LockMode,
    pub(crate) blockers: BTreeSet<TxnId>,
    pub(crate) state: WaitState,
}

/// Chooses the victim of a circle: gets its members, the requester first, and returns a position.
pub type Preference = Box<dyn Fn(&[CircleMember]) -> usize + Send>;

/// The queues of all waiting transactions of a database.
pub struct WaitGraph {
    pub(crate) waits: BTreeMap<TxnId, Wait>,
    tokens: BTreeMap<WaitToken, TxnId>,
    pub(crate) queues: BTreeMap<Resource, VecDeque<TxnId>>,
    /// Waiters by blocker, so that an end finds them.
    pub(crate) blocked_by: BTreeMap<TxnId, BTreeSet<TxnId>>,
    next_token: u64,
    pub(crate) preference: Option<Preference>,
    counts: Arc<WaiterCounts>,
    /// Deadlocks that nobody has taken yet.
    pub(crate) found: Vec<Arc<DeadlockReport>>,
}

impl fmt::Debug for WaitGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGraph")
            .field("waits", &self.waits)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

impl Default for WaitGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitGraph {
    /// A graph whose deadlock victims are always the requesters.
    pub fn new() -> Self {
        WaitGraph {
            waits: BTreeMap::new(),
            tokens: BTreeMap::new(),
            queues: BTreeMap::new(),
            blocked_by: BTreeMap::new(),
            next_token: 1,
            preference: None,
            counts: Arc::new(WaiterCounts::new()),
            found: Vec::new(),
        }
    }

    /// Lets the host choose victims.
    #[must_use]
    pub fn with_preference(mut self, preference: Preference) -> Self {
        self.preference = Some(preference);
        self
    }

    /// The counters newcomers look at without the graph's latch.
    pub fn counts(&self) -> Arc<WaiterCounts> {
        Arc::clone(&self.counts)
    }

    /// Asks to wait (rule T13). A transaction that others in the queue are waiting for goes in before them:
    /// it holds the resource already and wants more of it.
    pub fn enqueue(&mut self, request: WaitRequest<'_>) -> Enqueued {
        let WaitRequest {
            txn,
            resource,
            mode,
            blockers,
        } = request;
        invariant!(
            !self.waits.contains_key(&txn),
            "T13: a transaction waits for one thing at a time"
        );
        let token = WaitToken(self.next_token);
        self.next_token += 1;
        let wait = Wait {
            token,
            resource,
            mode,
            blockers: BTreeSet::new(),
            state: WaitState::Waiting,
        };
        self.waits.insert(txn, wait);
        self.tokens.insert(token, txn);
        self.counts.came(resource);
        let queue = self.queues.entry(resource).or_default();
        let waits = &self.waits;
        let named = |member: &TxnId| waits.get(member).is_some_and(|wait| wait.blockers.contains(&txn));
        let is_named = self.blocked_by.contains_key(&txn);
        let at = is_named.then(|| queue.iter().position(named)).flatten();
        queue.insert(at.unwrap_or(queue.len()), txn);
        self.set_blockers(txn, blockers);
        self.settle_request(txn, token)
    }

    /// Whom a request would wait for: a holder, or one that would be before it in line. Nothing changes: who does not wait stands in no
    /// line, and closes no circle (rule T14).
    pub fn would_wait_for(&self, request: WaitRequest<'_>) -> Option<TxnId> {
        let WaitRequest {
            txn,
            resource,
            mode,
            blockers,
        } = request;
        let holder = blockers.iter().copied().filter(|blocker| *blocker != txn).min();
        let line = self.queues.get(&resource).into_iter().flatten();
        let waits = line.filter_map(|member| Some((*member, self.waits.get(member)?)));
        // Who waits for this transaction would stand behind it, as in `enqueue`.
        let mut before = waits.take_while(|(_, wait)| !wait.blockers.contains(&txn));
        holder.or_else(|| {
            let in_the_way = |wait: &Wait| resource.can_be_held() && !wait.mode.goes_with(mode);
            before
                .find(|(_, wait)| in_the_way(wait))
                .map(|(member, _)| member)
        })
    }

    /// The waiter that has the turn has judged again and met other holders: it keeps its place and waits on.
    /// With no blockers the answer is `Free` and it keeps the turn.
    pub fn requeue(&mut self, token: WaitToken, blockers: &[TxnId]) -> Enqueued {
        let txn = self.owner(token);
        invariant!(
            self.state_of(txn) == Some(WaitState::Turn),
            "T13: only the waiter that has the turn waits again"
        );
        self.set_blockers(txn, blockers);
        if self.is_ready(txn) {
            return Enqueued::Free;
        }
        self.set_state(txn, WaitState::Waiting);
        self.settle_request(txn, token)
    }

    /// How a wait stands.
    pub fn state(&self, token: WaitToken) -> WaitState {
        let txn = self
            .tokens
            .get(&token)
            .expect("rule T13: a token is asked for only until take or leave");
        self.state_of(*txn)
            .expect("rule T13: every token belongs to a wait")
    }

    /// The waiter that has the turn now holds the resource: those behind it wait for it as the holder.
    /// Waiters whose mode goes with its own get the turn too.
    pub fn take(&mut self, token: WaitToken) -> Wakes {
        let txn = self.owner(token);
        invariant!(
            self.state_of(txn) == Some(WaitState::Turn),
            "T13: only the waiter that has the turn takes"
        );
        let (resource, mode) = self.remove(txn);
        self.hand_over(txn, resource, mode)
    }

    /// A transaction has got the resource without waiting for its turn, past a queue: the queue waits for it.
    pub fn taken_by_newcomer(&mut self, txn: TxnId, resource: Resource, mode: LockMode) -> Wakes {
        self.hand_over(txn, resource, mode)
    }

    /// The waiter goes without the resource: timeout, kill, the row no longer matches, or deadlock victim. If
    /// it had the turn, the turn passes on.
    pub fn leave(&mut self, token: WaitToken) -> Wakes {
        let txn = self.owner(token);
        let (resource, _) = self.remove(txn);
        Wakes(self.wake_ready(resource))
    }

    /// A transaction has ended: per resource the first in line gets the turn. The state is stored in the
    /// transaction table before this is called.
    pub fn released(&mut self, txn: TxnId) -> Wakes {
        self.rolled_back(txn, |_, _| false)
    }

    /// A transaction has rolled back to a savepoint; its void range is entered before this is called.
    /// `still_holds` is asked for everything others wait for because of it: does it still stand against this
    /// mode? Where that cannot be told cheaply `false` is right too: whoever gets the turn judges again. But
    /// until then a circle through the forgotten edge is not found, so `true` is better where it is known.
    pub fn rolled_back(
        &mut self,
        txn: TxnId,
        mut still_holds: impl FnMut(Resource, LockMode) -> bool,
    ) -> Wakes {
        let waiters = self.blocked_by.get(&txn).cloned().unwrap_or_default();
        let mut resources = BTreeSet::new();
        for waiter in waiters {
            let Some((resource, mode)) = self.waits.get(&waiter).map(|wait| (wait.resource, wait.mode))
            else {
                continue;
            };
            if !still_holds(resource, mode) {
                self.drop_blocker(waiter, txn);
                resources.insert(resource);
            }
        }
        Wakes(
            resources
                .into_iter()
                .flat_map(|resource| self.wake_ready(resource))
                .collect(),
        )
    }

    /// A transaction has given up one resource before its end.
    pub fn released_one(&mut self, txn: TxnId, resource: Resource) -> Wakes {
        for waiter in self.queues.get(&resource).cloned().unwrap_or_default() {
            self.drop_blocker(waiter, txn);
        }
        Wakes(self.wake_ready(resource))
    }

    /// True if a newcomer that wants the resource in this mode has somebody to stand behind (rule T15).
    pub fn stands_against(&self, resource: Resource, mode: LockMode) -> bool {
        let line = self.queues.get(&resource).into_iter().flatten();
        resource.can_be_held()
            && line
                .filter_map(|member| self.waits.get(member))
                .any(|wait| !wait.mode.goes_with(mode))
    }

    /// The deadlocks found since the last call. Whoever has made a change of the graph takes them before it gives back the
    /// latch, and describes them afterwards (rule T36).
    pub fn take_deadlocks(&mut self) -> Vec<Arc<DeadlockReport>> {
        std::mem::take(&mut self.found)
    }

    /// All waits in order of resource and place in line: (transaction, resource, mode, state).
    pub fn waiting(&self) -> impl Iterator<Item = (TxnId, Resource, LockMode, WaitState)> + '_ {
        self.queues.values().flatten().filter_map(|txn| {
            let wait = self.waits.get(txn)?;
            Some((*txn, wait.resource, wait.mode, wait.state))
        })
    }

    /// The transactions `txn` waits for at this moment: holders first, then those before it in line.
    pub fn waits_for(&self, txn: TxnId) -> Vec<TxnId> {
        let wait = self
            .waits
            .get(&txn)
            .filter(|wait| wait.state == WaitState::Waiting);
        wait.into_iter()
            .flat_map(move |wait| wait.blockers.iter().copied().chain(self.ahead_of(txn, wait)))
            .collect()
    }

    /// One of the transactions `txn` waits for at this moment: a holder, or else one before it in line.
    pub fn first_blocker(&self, txn: TxnId) -> Option<TxnId> {
        let wait = self.waits.get(&txn)?;
        let holder = wait.blockers.first().copied();
        holder.or_else(|| self.ahead_of(txn, wait).next())
    }

    pub(crate) fn ahead_of<'a>(&'a self, txn: TxnId, wait: &'a Wait) -> impl Iterator<Item = TxnId> + 'a {
        let before = self
            .queues
            .get(&wait.resource)
            .into_iter()
            .flatten()
            .take_while(move |member| **member != txn);
        before
            .copied()
            .filter(|member| self.waits.get(member).is_some_and(|ahead| conflicts(ahead, wait)))
    }

    fn owner(&self, token: WaitToken) -> TxnId {
        *self
            .tokens
            .get(&token)
            .expect("rule T13: a token is used only until take or leave")
    }

    fn state_of(&self, txn: TxnId) -> Option<WaitState> {
        self.waits.get(&txn).map(|wait| wait.state)
    }

    pub(crate) fn set_state(&mut self, txn: TxnId, state: WaitState) {
        if let Some(wait) = self.waits.get_mut(&txn) {
            wait.state = state;
        }
    }

    fn is_ready(&self, txn: TxnId) -> bool {
        let ready = |wait: &Wait| wait.blockers.is_empty() && self.ahead_of(txn, wait).next().is_none();
        self.waits.get(&txn).is_some_and(ready)
    }

    fn set_blockers(&mut self, txn: TxnId, blockers: &[TxnId]) {
        for blocker in blockers.iter().filter(|blocker| **blocker != txn) {
            self.add_blocker(txn, *blocker);
        }
    }

    fn add_blocker(&mut self, waiter: TxnId, blocker: TxnId) {
        if let Some(wait) = self.waits.get_mut(&waiter) {
            wait.blockers.insert(blocker);
            self.blocked_by.entry(blocker).or_default().insert(waiter);
        }
    }

    fn drop_blocker(&mut self, waiter: TxnId, blocker: TxnId) {
        if let Some(wait) = self.waits.get_mut(&waiter) {
            wait.blockers.remove(&blocker);
        }
        if let Some(waiters) = self.blocked_by.get_mut(&blocker) {
            waiters.remove(&waiter);
            if waiters.is_empty() {
                self.blocked_by.remove(&blocker);
            }
        }
    }

    /// Takes a wait out of the queue and the blockers' lists; a victim is in none of them any more.
    pub(crate) fn unlink(&mut self, txn: TxnId) {
        let Some(wait) = self.waits.get_mut(&txn) else {
            return;
        };
        let resource = wait.resource;
        for blocker in std::mem::take(&mut wait.blockers) {
            self.drop_blocker(txn, blocker);
        }
        let Some(queue) = self.queues.get_mut(&resource) else {
            return;
        };
        let before = queue.len();
        queue.retain(|member| *member != txn);
        if queue.len() < before {
            self.counts.left(resource);
        }
        if queue.is_empty() {
            self.queues.remove(&resource);
        }
    }

    fn remove(&mut self, txn: TxnId) -> (Resource, LockMode) {
        self.unlink(txn);
        let wait = self.waits.remove(&txn).expect("rule T13: a wait is removed once");
        self.tokens.remove(&wait.token);
        (wait.resource, wait.mode)
    }

    /// Rule T13: gives the turn to every waiter at the front that nothing stands against any more.
    pub(crate) fn wake_ready(&mut self, resource: Resource) -> Vec<WaitToken> {
        let mut woken = Vec::new();
        let Some(queue) = self.queues.get(&resource) else {
            return woken;
        };
        let mut ahead: Vec<LockMode> = Vec::new();
        for member in queue {
            let Some(wait) = self.waits.get_mut(member) else {
                continue;
            };
            if resource.can_be_held() && ahead.iter().any(|mode| !mode.goes_with(wait.mode)) {
                break;
            }
            if wait.state == WaitState::Waiting && wait.blockers.is_empty() {
                wait.state = WaitState::Turn;
                woken.push(wait.token);
            }
            if !ahead.contains(&wait.mode) {
                ahead.push(wait.mode);
            }
        }
        woken
    }

    /// Makes `txn` the blocker of everybody in the queue whose mode does not go with `mode`, directly or through one before
    /// it; then walks and wakes.
    fn hand_over(&mut self, txn: TxnId, resource: Resource, mode: LockMode) -> Wakes {
        let mut wakes = Vec::new();
        if resource.can_be_held() {
            for waiter in self.next_behind(txn, resource, mode) {
                self.add_blocker(waiter, txn);
            }
            // T14: every new edge leads to `txn`, so every new circle does.
            while let Some(circle) = self.find_circle(txn) {
                wakes.extend(self.strike(&circle, self.choose(&circle)));
            }
        }
        wakes.extend(self.wake_ready(resource));
        Wakes(wakes)
    }

    /// The waiters that a new holder stands against: all of them, but no further back than the first exclusive one behind an
    /// exclusive holder. Whoever is behind that one waits for it (rule T13), so a long line costs no more than a short one.
    fn next_behind(&self, holder: TxnId, resource: Resource, mode: LockMode) -> Vec<TxnId> {
        let mut next = Vec::new();
        for waiter in self.queues.get(&resource).into_iter().flatten() {
            let Some(wait) = self.waits.get(waiter).filter(|_| *waiter != holder) else {
                continue;
            };
            if wait.state == WaitState::Waiting && !mode.goes_with(wait.mode) {
                next.push(*waiter);
            }
            if mode == LockMode::Exclusive && wait.mode == LockMode::Exclusive {
                break;
            }
        }
        next
    }

    /// Ends `enqueue` and `requeue`: walk, then answer (rule T14).
    fn settle_request(&mut self, txn: TxnId, token: WaitToken) -> Enqueued {
        let mut wakes = Vec::new();
        while let Some(circle) = self.find_circle(txn) {
            let victim = self.choose(&circle);
            if circle.get(victim).is_some_and(|member| member.txn == txn) {
                let report = self.report(&circle, victim);
                let (resource, _) = self.remove(txn);
                wakes.extend(self.wake_ready(resource));
                return Enqueued::Deadlock(report, Wakes(wakes));
            }
            wakes.extend(self.strike(&circle, victim));
        }
        if self.is_ready(txn) && self.state_of(txn) == Some(WaitState::Waiting) && wakes.is_empty() {
            self.remove(txn);
            return Enqueued::Free;
        }
        Enqueued::Waiting(token, Wakes(wakes))
    }
}

fn conflicts(ahead: &Wait, wait: &Wait) -> bool {
    wait.resource.can_be_held() && !ahead.mode.goes_with(wait.mode)
}
