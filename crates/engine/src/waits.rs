//! Waits: threads that sleep until a lock may be theirs, and end by turn, timeout, kill or deadlock.
//!
//! Why it exists: `txn::WaitGraph` decides who waits for whom and who is next, without threads; here a thread sleeps
//! on its session's gate and is woken by token.
//! Rules: T13 (queues, turns) and T14 (a walk for every new edge) are the graph's. T13 whoever ends a transaction stores its
//! state first, then looks for waiters; a waiter announces itself first, then judges again under the graph latch. So
//! one of them sees the other and no wake-up is lost.
//! Latches and I/O: the graph latch, for map work only; nobody sleeps, reads a file or calls the host under it.

use crate::error::{Error, Result};
use crate::session::Session;
use crate::table::Table;
use parking_lot::{Condvar, Mutex};
use pbxt_base::{TxnId, stop_point};
use pbxt_txn::{
    DeadlockReport, Enqueued, LockMode, Resource, WaitGraph, WaitRequest, WaitState, WaitToken, WaiterCounts,
    Wakes,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// What a host gets to know about waits. Called without any latch.
pub trait WaitObserver: Send + Sync + std::fmt::Debug {
    /// `waiter` is about to wait for `blocker` (host session pointers given at session open).
    fn waiting(&self, waiter: usize, blocker: usize);
    /// Brackets the sleep of a session.
    fn begin(&self, host_session: usize);
    /// Ends the bracket.
    fn end(&self, host_session: usize);
    /// True if the session's statement was killed.
    fn is_killed(&self, host_session: usize) -> bool;
}

/// Figures of a running transaction, for listings.
#[derive(Debug, Default)]
pub struct Shown {
    /// Rows written.
    pub rows_written: AtomicU64,
    /// Milliseconds of the database's clock when it began.
    pub started_millis: AtomicU64,
    /// Commit timestamp of its snapshot, 0 if it has none.
    pub snapshot: AtomicU64,
}

/// The part of a session that other threads may touch.
#[derive(Debug)]
pub struct SessionGate {
    /// The host's own session, opaque.
    pub host_session: usize,
    /// The host's number of the connection.
    pub host_thread: u64,
    /// What listings show of the running transaction; written by the session, read by anybody.
    pub shown: Shown,
    killed: AtomicBool,
    signal: Mutex<bool>,
    woken: Condvar,
}

impl SessionGate {
    /// A gate of a session of the host.
    pub fn new(host_session: usize, host_thread: u64) -> Arc<Self> {
        Arc::new(Self {
            host_session,
            host_thread,
            shown: Shown::default(),
            killed: AtomicBool::new(false),
            signal: Mutex::new(false),
            woken: Condvar::new(),
        })
    }

    /// Ends the running wait or long step of the session. Any thread, any time.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.wake();
    }

    /// True from a kill to the end of the statement.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    pub(crate) fn clear_kill(&self) {
        self.killed.store(false, Ordering::Release);
    }

    fn wake(&self) {
        *self.signal.lock() = true;
        self.woken.notify_one();
    }

    /// Sleeps until woken, at most this long; false if nobody did.
    fn sleep(&self, at_most: Duration) -> bool {
        let mut signal = self.signal.lock();
        self.woken.wait_while_for(&mut signal, |woken| !*woken, at_most);
        std::mem::take(&mut *signal)
    }
}

#[derive(Debug)]
struct Queues {
    graph: WaitGraph,
    sleepers: HashMap<WaitToken, Arc<SessionGate>>,
}

impl Queues {
    fn wake(&self, wakes: &Wakes) {
        for gate in wakes.0.iter().filter_map(|token| self.sleepers.get(token)) {
            gate.wake();
        }
    }
}

/// All waits of a database.
#[derive(Debug)]
pub struct Waits {
    queues: Mutex<Queues>,
    counts: Arc<WaiterCounts>,
    /// Sessions waiting or about to.
    waiting: AtomicU64,
    gates: Mutex<HashMap<TxnId, Arc<SessionGate>>>,
    observer: Option<Arc<dyn WaitObserver>>,
    /// Waits since open.
    pub total: AtomicU64,
    /// Waits that reached their limit.
    pub timeouts: AtomicU64,
    /// Deadlocks found.
    pub deadlocks: AtomicU64,
}

impl Waits {
    /// No waits yet.
    pub fn new(observer: Option<Arc<dyn WaitObserver>>) -> Self {
        let graph = WaitGraph::new();
        Self {
            counts: graph.counts(),
            queues: Mutex::new(Queues {
                graph,
                sleepers: HashMap::new(),
            }),
            waiting: AtomicU64::new(0),
            gates: Mutex::new(HashMap::new()),
            observer,
            total: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
        }
    }

    pub(crate) fn attach(&self, txn: TxnId, gate: &Arc<SessionGate>) {
        self.gates.lock().insert(txn, Arc::clone(gate));
    }

    pub(crate) fn detach(&self, txn: TxnId) {
        self.gates.lock().remove(&txn);
    }

    /// True if somebody may wait for the resource: a newcomer then queues too.
    #[inline]
    pub(crate) fn has_queue(&self, resource: Resource) -> bool {
        self.counts.may_have_waiters(resource)
    }

    /// A transaction ended or rolled back in part (its state is stored already, rule T13): its waiters judge again.
    pub(crate) fn released(&self, txn: TxnId) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut queues = self.queues.lock();
        let wakes = queues.graph.released(txn);
        queues.wake(&wakes);
    }

    /// One lock was given back before its owner's end.
    pub(crate) fn released_one(&self, txn: TxnId, resource: Resource) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut queues = self.queues.lock();
        let wakes = queues.graph.released_one(txn, resource);
        queues.wake(&wakes);
    }

    /// The newest deadlock, in words.
    pub fn latest_deadlock(&self) -> Option<Arc<DeadlockReport>> {
        self.queues.lock().graph.latest_deadlock()
    }

    /// (waiting transaction, one transaction it waits for).
    pub fn waiting_pairs(&self) -> Vec<(TxnId, TxnId)> {
        let queues = self.queues.lock();
        let waiters: Vec<TxnId> = queues.graph.waiting().map(|(txn, ..)| txn).collect();
        let first_of = |txn: TxnId| queues.graph.waits_for(txn).first().map(|blocker| (txn, *blocker));
        waiters.into_iter().filter_map(first_of).collect()
    }

    /// Transactions with a session.
    pub fn attached(&self) -> usize {
        self.gates.lock().len()
    }

    /// Transactions with a session, and its gate.
    pub fn attached_txns(&self) -> Vec<(TxnId, Arc<SessionGate>)> {
        self.gates
            .lock()
            .iter()
            .map(|(txn, gate)| (*txn, Arc::clone(gate)))
            .collect()
    }

    fn report(&self, waiter: &SessionGate, blockers: &[TxnId]) {
        let Some(observer) = &self.observer else { return };
        let hosts: Vec<usize> = {
            let gates = self.gates.lock();
            blockers
                .iter()
                .filter_map(|txn| gates.get(txn))
                .map(|gate| gate.host_session)
                .collect()
        };
        for blocker in hosts {
            observer.waiting(waiter.host_session, blocker);
        }
    }

    /// True if the host says that the session's statement was killed.
    pub(crate) fn host_killed(&self, gate: &SessionGate) -> bool {
        gate.is_killed()
            || self
                .observer
                .as_ref()
                .is_some_and(|observer| observer.is_killed(gate.host_session))
    }
}

/// A place in the queue of one resource, from the first wait to `took`; given up when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    waits: &'a Waits,
    token: Option<WaitToken>,
}

impl<'a> Turn<'a> {
    pub(crate) fn none(waits: &'a Waits) -> Self {
        Self { waits, token: None }
    }

    /// True if this thread has waited and has the turn.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The resource is ours: those behind wait for us.
    pub(crate) fn took(mut self) {
        if let Some(token) = self.token.take() {
            let mut queues = self.waits.queues.lock();
            let wakes = queues.graph.take(token);
            queues.sleepers.remove(&token);
            queues.wake(&wakes);
            self.waits.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            let mut queues = self.waits.queues.lock();
            let wakes = queues.graph.leave(token);
            queues.sleepers.remove(&token);
            queues.wake(&wakes);
            self.waits.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Session {
    /// Waits for `resource`. `blockers` judges again under the graph latch and lists who holds it now; an empty list
    /// and an empty queue mean "try at once". On return the caller tries again, then calls `Turn::took` or drops it.
    pub(crate) fn wait(
        &self,
        turn: &mut Turn<'_>,
        table: &Table,
        resource: Resource,
        mode: LockMode,
        no_wait: bool,
        blockers: impl FnOnce() -> Vec<TxnId>,
    ) -> Result<()> {
        let waits = &self.db.waits;
        stop_point!("wait.before_enqueue");
        if turn.token.is_none() {
            waits.waiting.fetch_add(1, Ordering::SeqCst);
        }
        let entered = self.enter_queue(turn, resource, mode, blockers);
        if turn.token.is_none() {
            waits.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let Some(blockers) = entered? else { return Ok(()) };
        stop_point!("wait.after_enqueue");
        waits.total.fetch_add(1, Ordering::Relaxed);
        let limit = if no_wait {
            0
        } else {
            self.config.lock_wait_timeout_ms
        };
        if limit == 0 {
            return Err(self.timeout(table, &blockers, 0));
        }
        waits.report(&self.gate, &blockers);
        self.sleep(turn, table, &blockers, limit)
    }

    /// Under the graph latch: judges, queues. `None` = no need to sleep.
    fn enter_queue(
        &self,
        turn: &mut Turn<'_>,
        resource: Resource,
        mode: LockMode,
        blockers: impl FnOnce() -> Vec<TxnId>,
    ) -> Result<Option<Vec<TxnId>>> {
        let waits = &self.db.waits;
        let mut queues = waits.queues.lock();
        let blockers = blockers();
        let answer = if let Some(token) = turn.token {
            queues.graph.requeue(token, &blockers)
        } else {
            let txn = self.work.txn;
            let blockers = &blockers;
            queues.graph.enqueue(WaitRequest {
                txn,
                resource,
                mode,
                blockers,
            })
        };
        match answer {
            Enqueued::Free => Ok(None),
            Enqueued::Waiting(token, wakes) => {
                turn.token = Some(token);
                queues.sleepers.insert(token, Arc::clone(&self.gate));
                queues.wake(&wakes);
                Ok(Some(blockers))
            }
            Enqueued::Deadlock(_, wakes) => {
                if let Some(token) = turn.token.take() {
                    queues.sleepers.remove(&token);
                }
                queues.wake(&wakes);
                waits.deadlocks.fetch_add(1, Ordering::Relaxed);
                Err(Error::Deadlock { txn: self.work.txn })
            }
        }
    }

    fn sleep(&self, turn: &mut Turn<'_>, table: &Table, blockers: &[TxnId], limit: u64) -> Result<()> {
        let Some(token) = turn.token else { return Ok(()) };
        let waits = &self.db.waits;
        let started = self.db.clock.now_millis();
        let waited = || self.db.clock.now_millis().saturating_sub(started);
        if let Some(observer) = &waits.observer {
            observer.begin(self.gate.host_session);
        }
        let result = loop {
            match waits.queues.lock().graph.state(token) {
                WaitState::Turn => break Ok(()),
                WaitState::Victim => break Err(Error::Deadlock { txn: self.work.txn }),
                WaitState::Waiting => {}
            }
            if waits.host_killed(&self.gate) {
                break Err(Error::Killed);
            }
            let woken = self
                .gate
                .sleep(Duration::from_millis(limit.saturating_sub(waited())));
            if !woken && waits.queues.lock().graph.state(token) == WaitState::Waiting {
                break Err(self.timeout(table, blockers, waited()));
            }
        };
        if let Some(observer) = &waits.observer {
            observer.end(self.gate.host_session);
        }
        result
    }

    fn timeout(&self, table: &Table, blockers: &[TxnId], waited_ms: u64) -> Error {
        self.db.waits.timeouts.fetch_add(1, Ordering::Relaxed);
        let holder = blockers.first().copied().unwrap_or_default();
        Error::LockTimeout {
            table: table.name().to_string(),
            holder,
            waited_ms,
        }
    }
}
