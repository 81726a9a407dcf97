//! Waits: threads that sleep until a lock may be theirs, and end by turn, timeout, kill or deadlock.
//!
//! Why it exists: `txn::WaitGraph` decides who waits for whom and who is next, without threads; here a thread sleeps
//! on its session's gate and is woken by token.
//! Rules: T13 (queues, turns) and T14 (a walk for every new edge) are the graph's. T13 whoever ends a transaction stores its
//! state first, then looks for waiters; a waiter announces itself first, then judges again under the graph latch. So
//! one of them sees the other and no wake-up is lost. T13 of a claim of a key only its owner's state can be judged again there: claims given
//! up before that are counted, and who has met one before it was counted probes again. V4 a host hears of a wait while the blocker cannot end.
//! T36 deadlocks are described when the graph latch is given back, by who closed the circle, before it rolls back. T38 the
//! host's pointer of another session is used under that session's host latch only, or while V4 keeps the session there.
//! Latches and I/O: the graph latch, then one of the transactions with a session (`gates`), for map work only; nobody sleeps or
//! reads a file under them. The host is called under the first to choose a victim: all of a circle wait, and who waits takes that latch
//! before it goes on, so their sessions are there. It is called under the second to hear of waits, which keeps the blocker's session
//! there, and under the host latch of a session to tell its statement; it waits for nothing there.

use crate::error::{Error, Result};
use crate::gates::Gates;
use crate::latch::CountedLatch;
use crate::session::Session;
use crate::table::Table;
use crate::who::SessionView;
use parking_lot::{Condvar, Mutex};
use pbxt_base::{TxnId, stop_point};
use pbxt_io::{Poison, WaitKind, while_waiting};
use pbxt_txn::{
    CircleMember, DeadlockReport, Enqueued, LockMode, Preference, Resource, WaitGraph, WaitRequest,
    WaitState, WaitToken, WaiterCounts, Wakes,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// What a host gets to know about waits, commits, damage and failures.
pub trait WaitObserver: Send + Sync + std::fmt::Debug {
    /// `waiter` is about to wait for `blocker` (host session pointers given at session open). Called under the
    /// latch of the blocker's place among the sessions with a transaction, so that neither can end its transaction meanwhile (rule V4).
    fn waiting(&self, waiter: usize, blocker: usize);
    /// Which of two members of a circle should rather give way: below 0 `a`, above 0 `b`. Called under latches.
    fn prefer_victim(&self, _a: usize, _b: usize) -> i32 {
        0
    }
    /// The session's commit has its place in the order of commits and is visible; it is not durable yet.
    fn ordered(&self, _host_session: usize) {}
    /// Brackets the sleep of a session.
    fn begin(&self, host_session: usize);
    /// Ends the bracket.
    fn end(&self, host_session: usize);
    /// True if the session's statement was killed.
    fn is_killed(&self, host_session: usize) -> bool;
    /// How far a long step of the session's statement is; called by the session's own thread.
    fn progress(&self, _host_session: usize, _done: u64, _total: u64) {}
    /// What the session is running, for people: at most so many bytes. Called by threads of other sessions; waits for
    /// nothing that a session which is killed or closed may hold.
    fn statement(&self, _host_session: usize, _bytes_max: usize) -> Option<String> {
        None
    }
    /// A deadlock in words, if they are wanted (`Waits::print_deadlocks`).
    fn deadlock(&self, _text: &str) {}
    /// Damage of a file that the scrubber met (rule SC6) or an opening went on without (D39), in one line, for whoever runs the database.
    fn damage(&self, _text: &str) {}
    /// How far an opening is that takes long, in one line, for whoever runs the database (rule D40). Called by any thread of the opening.
    fn opening(&self, _text: &str) {}
    /// Why background work could not be done, in one line, for whoever runs the database (rule S65).
    fn failure(&self, _text: &str) {}
    /// A file that nothing named and that the opening has removed, in one line, for whoever runs the database (rule F18).
    fn removed(&self, _text: &str) {}
    /// The same of one that was left alone, because it is not the engine's.
    fn left_alone(&self, _text: &str) {}
    /// The database takes no more writes, and why, in one line: once, by whoever met the failure (rule D9). Called under latches of the
    /// engine, so it must not come back to it.
    fn read_only(&self, _text: &str) {}
}

/// The part of a session that other threads may touch.
#[derive(Debug)]
pub struct SessionGate {
    /// The host's own session, opaque.
    pub host_session: usize,
    /// The host's number of the connection.
    pub host_thread: u64,
    killed: AtomicBool,
    /// The host's session is there (rule T38).
    pub(crate) is_open: Mutex<bool>,
    signal: Mutex<bool>,
    woken: Condvar,
    /// Waits of the session that have slept.
    sleeps: AtomicU64,
}

impl SessionGate {
    /// A gate of a session of the host.
    pub fn new(host_session: usize, host_thread: u64) -> Arc<Self> {
        Arc::new(Self {
            host_session,
            host_thread,
            killed: AtomicBool::new(false),
            is_open: Mutex::new(true),
            signal: Mutex::new(false),
            woken: Condvar::new(),
            sleeps: AtomicU64::new(0),
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

    /// A number that changes when the session sleeps in a wait: what it read ahead is old then.
    #[inline]
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    pub(crate) fn clear_kill(&self) {
        self.killed.store(false, Ordering::Release);
    }

    /// The host's session goes away when this has returned (rule T38).
    pub(crate) fn close(&self) {
        *self.is_open.lock() = false;
    }

    fn wake(&self) {
        *self.signal.lock() = true;
        self.woken.notify_one();
    }

    /// Sleeps until woken, at most this long; false if nobody did.
    pub(crate) fn sleep(&self, at_most: Duration) -> bool {
        let mut signal = self.signal.lock();
        self.woken.wait_while_for(&mut signal, |woken| !*woken, at_most);
        std::mem::take(&mut *signal)
    }
}

#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) graph: WaitGraph,
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
    pub(crate) queues: CountedLatch<Queues>,
    counts: Arc<WaiterCounts>,
    /// Sessions waiting or about to.
    pub(crate) waiting: AtomicU64,
    /// How often a transaction gave up claims of keys before its end.
    given_up: AtomicU64,
    /// Sessions whose transaction has an id. A session leaves before its transaction's end is answered.
    pub(crate) gates: Arc<Gates>,
    /// All sessions, by the order of their coming.
    pub(crate) sessions: CountedLatch<BTreeMap<u64, SessionView>>,
    pub(crate) last_session: AtomicU64,
    pub(crate) observer: Option<Arc<dyn WaitObserver>>,
    /// The newest deadlock: its number, and the text for people.
    pub(crate) latest: Mutex<(u64, Option<Arc<str>>)>,
    /// Tell the observer about every deadlock.
    pub print_deadlocks: AtomicBool,
    /// Waits since open.
    pub total: AtomicU64,
    /// Waits that reached their limit.
    pub timeouts: AtomicU64,
    /// Deadlocks found.
    pub deadlocks: AtomicU64,
    /// Waits ended by a kill.
    pub kills: AtomicU64,
    /// Milliseconds slept in waits, those under way not included.
    pub waited_millis: AtomicU64,
    /// The longest of them.
    pub waited_millis_max: AtomicU64,
}

impl Waits {
    /// No waits yet.
    pub fn new(observer: Option<Arc<dyn WaitObserver>>) -> Self {
        let gates = Arc::<Gates>::default();
        let mut graph = WaitGraph::new();
        if let Some(observer) = &observer {
            graph = graph.with_preference(preference(Arc::clone(observer), Arc::clone(&gates)));
        }
        Self {
            counts: graph.counts(),
            queues: CountedLatch::new(Queues {
                graph,
                sleepers: HashMap::new(),
            }),
            waiting: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            gates,
            sessions: CountedLatch::default(),
            last_session: AtomicU64::new(0),
            observer,
            latest: Mutex::default(),
            print_deadlocks: AtomicBool::new(false),
            total: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            kills: AtomicU64::new(0),
            waited_millis: AtomicU64::new(0),
            waited_millis_max: AtomicU64::new(0),
        }
    }

    /// Lets the observer know when the database takes no more writes (rule D9).
    pub(crate) fn watch(&self, poison: &Poison) {
        if let Some(observer) = self.observer.clone() {
            poison.watch(move |error| observer.read_only(&error.to_string()));
        }
    }

    pub(crate) fn attach(&self, txn: TxnId, view: SessionView) {
        self.gates.insert(txn, view);
    }

    /// The session's transaction has ended or is left to others. One that only read has no id and was never here.
    pub(crate) fn detach(&self, txn: TxnId) {
        if txn.raw() != 0 {
            self.gates.remove(txn);
        }
    }

    /// True if somebody stands in line against a newcomer with this mode, who then stands in line too (rule T15). The
    /// counters say "maybe" without cause, so the graph has the last word: who asks again would else never get on.
    #[inline]
    pub(crate) fn stands_against(&self, resource: Resource, mode: LockMode) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
            && self.counts.may_have_waiters(resource)
            && self.queues.lock().graph.stands_against(resource, mode)
    }

    /// A transaction that goes on has given up claims of keys, and nobody finds them any more (rule T13): its waiters judge again, and
    /// so does who met such a claim and is not in line yet.
    pub(crate) fn gave_up(&self, txn: TxnId) {
        self.given_up.fetch_add(1, Ordering::SeqCst);
        self.released(txn);
    }

    /// How often claims were given up so far. Who reads it before a probe and finds another number under the graph latch must probe again:
    /// the claim that it met may be gone, and its owner, who still runs, has nobody to wake.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::SeqCst)
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

    /// True if the session stands in a line and has not got the turn yet.
    pub fn is_waiting(&self, host_session: usize) -> bool {
        let queues = self.queues.lock();
        let mut sleepers = queues.sleepers.iter();
        sleepers.any(|(token, gate)| {
            gate.host_session == host_session && queues.graph.state(*token) == WaitState::Waiting
        })
    }

    /// Transactions that stand in a line, those that have got the turn among them.
    pub fn in_line(&self) -> Vec<TxnId> {
        self.queues.lock().graph.waiting().map(|(txn, ..)| txn).collect()
    }

    /// True if anybody stands in a line and has not got the turn yet.
    pub fn has_waiters(&self) -> bool {
        let queues = self.queues.lock();
        queues
            .graph
            .waiting()
            .any(|(.., state)| state == WaitState::Waiting)
    }

    /// Transactions with a session.
    pub fn attached(&self) -> usize {
        self.gates.len()
    }

    fn note_sleep(&self, millis: u64) {
        self.waited_millis.fetch_add(millis, Ordering::Relaxed);
        self.waited_millis_max.fetch_max(millis, Ordering::Relaxed);
    }

    /// Rule V4: tells the host of each blocker, while none of them can end.
    fn report(&self, waiter: &SessionGate, blockers: &[TxnId]) {
        let Some(observer) = &self.observer else { return };
        for blocker in blockers {
            self.gates.of(*blocker, |view| {
                observer.waiting(waiter.host_session, view.gate.host_session);
            });
        }
    }

    /// Rule V5: a session's commit has its place and waits only for the disk.
    pub(crate) fn ordered(&self, gate: &SessionGate) {
        if let Some(observer) = &self.observer {
            observer.ordered(gate.host_session);
        }
    }

    /// Tells the host how far a long step is: what was done of how much; 0 if nobody knows.
    pub(crate) fn host_progress(&self, gate: &SessionGate, (done, total): (u64, u64)) {
        if let (Some(observer), true) = (&self.observer, total > 0) {
            observer.progress(gate.host_session, done, total);
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

/// The victim of a circle as the host wants it: the requester, unless the host would rather have another one give way.
fn preference(observer: Arc<dyn WaitObserver>, gates: Arc<Gates>) -> Preference {
    Box::new(move |circle| {
        let host_of = |member: &CircleMember| gates.of(member.txn, |view| view.gate.host_session);
        let host_of = |member: &CircleMember| host_of(member).unwrap_or(0);
        let hosts: Vec<usize> = circle.iter().map(host_of).collect();
        let mut victim = 0;
        for (at, &other) in hosts.iter().enumerate().skip(1) {
            let chosen = hosts.get(victim).copied().unwrap_or(0);
            if chosen != 0 && other != 0 && observer.prefer_victim(chosen, other) > 0 {
                victim = at;
            }
        }
        victim
    })
}

/// A place in the queue of one resource, from the first wait to `took`; given up when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    waits: &'a Waits,
    token: Option<WaitToken>,
    /// The graph has said that nothing stands against this thread: it stands in no line any more.
    may_pass: bool,
    /// Milliseconds of the database's clock when the first sleep began.
    since: Option<u64>,
}

/// What came of a request to wait.
struct Asked {
    answer: Answer,
    /// Deadlocks it has closed, to be described (rule T36).
    found: Vec<Arc<DeadlockReport>>,
}

enum Answer {
    /// No need to wait.
    Try,
    /// In line; who holds the resource.
    Queued(Vec<TxnId>),
    Victim(Arc<DeadlockReport>),
}

impl<'a> Turn<'a> {
    pub(crate) fn none(waits: &'a Waits) -> Self {
        Self {
            waits,
            token: None,
            may_pass: false,
            since: None,
        }
    }

    /// True if this thread need not stand in line: it has waited and has the turn, or there was nobody to wait for.
    pub(crate) fn is_due(&self) -> bool {
        self.token.is_some() || self.may_pass
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
        let limit = if no_wait {
            0
        } else {
            self.config.lock_wait_timeout_ms
        };
        if limit == 0 {
            return self.pass_or_fail(turn, table, resource, mode, blockers);
        }
        if turn.token.is_none() {
            waits.waiting.fetch_add(1, Ordering::SeqCst);
            // The other half of `released`: on AArch64 the judging loads that follow may else be done before the addition can be seen, even
            // though it is sequentially consistent, and then neither side sees the other.
            fence(Ordering::SeqCst);
        }
        let asked = self.enter_queue(turn, resource, mode, blockers);
        if turn.token.is_none() {
            waits.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        self.db.note_deadlocks(&asked.found);
        let blockers = match asked.answer {
            Answer::Try => {
                turn.may_pass = true;
                return Ok(());
            }
            Answer::Queued(blockers) => blockers,
            Answer::Victim(report) => {
                let next = report.circle.first().map(|member| member.waits_for);
                return Err(self.deadlock(table, next));
            }
        };
        stop_point!("wait.after_enqueue");
        waits.total.fetch_add(1, Ordering::Relaxed);
        waits.report(&self.gate, &blockers);
        self.sleep(turn, table, limit)
    }

    /// `wait` for who does not wait (rule T14).
    fn pass_or_fail(
        &self,
        turn: &mut Turn<'_>,
        table: &Table,
        resource: Resource,
        mode: LockMode,
        blockers: impl FnOnce() -> Vec<TxnId>,
    ) -> Result<()> {
        let waits = &self.db.waits;
        let holder = {
            let queues = waits.queues.lock();
            let blockers = &blockers();
            let txn = self.work.txn;
            queues.graph.would_wait_for(WaitRequest {
                txn,
                resource,
                mode,
                blockers,
            })
        };
        let Some(holder) = holder else {
            turn.may_pass = true;
            return Ok(());
        };
        waits.total.fetch_add(1, Ordering::Relaxed);
        Err(self.timed_out(table, holder, 0))
    }

    /// Under the graph latch: judges, queues.
    fn enter_queue(
        &self,
        turn: &mut Turn<'_>,
        resource: Resource,
        mode: LockMode,
        blockers: impl FnOnce() -> Vec<TxnId>,
    ) -> Asked {
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
        let answer = match answer {
            Enqueued::Free => Answer::Try,
            Enqueued::Waiting(token, wakes) => {
                turn.token = Some(token);
                queues.sleepers.insert(token, Arc::clone(&self.gate));
                queues.wake(&wakes);
                // Rule V4: who is before us in line will hold it next, and nothing will wake us to say so.
                let with_line = self.config.ordered.then(|| queues.graph.waits_for(self.work.txn));
                Answer::Queued(with_line.unwrap_or(blockers))
            }
            Enqueued::Deadlock(report, wakes) => {
                if let Some(token) = turn.token.take() {
                    queues.sleepers.remove(&token);
                }
                queues.wake(&wakes);
                Answer::Victim(report)
            }
        };
        let found = queues.graph.take_deadlocks();
        Asked { answer, found }
    }

    fn sleep(&self, turn: &mut Turn<'_>, table: &Table, limit: u64) -> Result<()> {
        let Some(token) = turn.token else { return Ok(()) };
        let waits = &self.db.waits;
        self.gate.sleeps.fetch_add(1, Ordering::Relaxed);
        let started = self.db.clock.now_millis();
        let waited = || self.db.clock.now_millis().saturating_sub(started);
        self.shown.waits_since(Some(*turn.since.get_or_insert(started)));
        if let Some(observer) = &waits.observer {
            observer.begin(self.gate.host_session);
        }
        let result = while_waiting(WaitKind::Lock, || {
            loop {
                match waits.queues.lock().graph.state(token) {
                    WaitState::Turn => break Ok(()),
                    WaitState::Victim => break Err(self.deadlock(table, None)),
                    WaitState::Waiting => {}
                }
                if waits.host_killed(&self.gate) {
                    waits.kills.fetch_add(1, Ordering::Relaxed);
                    break Err(Error::Killed);
                }
                let woken = self
                    .gate
                    .sleep(Duration::from_millis(limit.saturating_sub(waited())));
                if !woken && waits.queues.lock().graph.state(token) == WaitState::Waiting {
                    break Err(self.timeout(table, waited()));
                }
            }
        });
        self.shown.waits_since(None);
        waits.note_sleep(waited());
        if let Some(observer) = &waits.observer {
            observer.end(self.gate.host_session);
        }
        result
    }

    /// The wait has reached its limit; its place in line is still there.
    fn timeout(&self, table: &Table, waited_ms: u64) -> Error {
        let holder = self.db.waits.queues.lock().graph.first_blocker(self.work.txn);
        self.timed_out(table, holder.unwrap_or_default(), waited_ms)
    }

    fn timed_out(&self, table: &Table, holder: TxnId, waited_ms: u64) -> Error {
        let waits = &self.db.waits;
        waits.timeouts.fetch_add(1, Ordering::Relaxed);
        Error::LockTimeout {
            table: table.name().to_string(),
            holder: waits.blocker(holder),
            waited_ms,
        }
    }

    fn deadlock(&self, table: &Table, next: Option<TxnId>) -> Error {
        Error::Deadlock {
            txn: self.work.txn,
            table: table.name().to_string(),
            other: next.map(|txn| self.db.waits.blocker(txn)),
        }
    }
}
