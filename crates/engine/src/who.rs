//! Who: the sessions of a database as others see them, what they run, and which of them wait.
//!
//! Why it exists: lists and deadlock reports start from a transaction id or from nothing and need connections, figures and
//! statements; waits.rs is about sleeping and waking.
//! State: the maps of `Waits`.
//! Rules: T35 (steps), T38 (the host's pointer of another session).
//! Latches and I/O: one at a time: the sessions, the transactions with a session, the graph, or the host latch of a session
//! around one call of the host.

use crate::error::Blocker;
use crate::shown::Shown;
use crate::waits::{SessionGate, Waits};
use pbxt_base::TxnId;
use pbxt_txn::WaitSeen;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Waits that one step of a survey looks at under the graph latch (rule T35).
const WAITS_PER_STEP: usize = 1024;

/// A session as other threads see it.
#[derive(Debug, Clone)]
pub(crate) struct SessionView {
    pub(crate) gate: Arc<SessionGate>,
    pub(crate) shown: Arc<Shown>,
}

impl Waits {
    /// A session is opened; the number under which it is known.
    pub(crate) fn register(&self, view: SessionView) -> u64 {
        let number = self.last_session.fetch_add(1, Ordering::Relaxed) + 1;
        self.sessions.lock().insert(number, view);
        number
    }

    pub(crate) fn unregister(&self, number: u64) {
        self.sessions.lock().remove(&number);
    }

    /// The newest deadlock, in words.
    pub fn latest_deadlock(&self) -> Option<Arc<str>> {
        self.latest.lock().1.clone()
    }

    /// All waits, in steps, until there are `at_most` (rule T35).
    pub(crate) fn survey(&self, at_most: usize) -> Vec<WaitSeen> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let mut step = Vec::with_capacity(WAITS_PER_STEP);
            after = self.queues.lock().graph.survey(after, WAITS_PER_STEP, &mut step);
            all.append(&mut step);
            if after.is_none() || all.len() >= at_most {
                all.truncate(at_most);
                return all;
            }
        }
    }

    /// Transactions with a session.
    pub(crate) fn attached_txns(&self) -> Vec<(TxnId, SessionView)> {
        self.gates.all()
    }

    /// The session of a transaction, if it has one.
    pub(crate) fn session_of(&self, txn: TxnId) -> Option<SessionView> {
        self.gates.of(txn, SessionView::clone)
    }

    /// All sessions, in the order of their coming.
    pub(crate) fn all_sessions(&self) -> Vec<SessionView> {
        self.sessions.lock().values().cloned().collect()
    }

    /// A transaction and the connection that holds it.
    pub(crate) fn blocker(&self, txn: TxnId) -> Blocker {
        let host_thread = self.gates.of(txn, |view| view.gate.host_thread);
        Blocker {
            txn,
            host_thread: host_thread.unwrap_or(0),
        }
    }

    /// What a session is running, if its host says so (rule T38).
    pub(crate) fn statement_of(&self, gate: &SessionGate, bytes_max: usize) -> Option<String> {
        let observer = self.observer.as_ref()?;
        let is_open = gate.is_open.lock();
        is_open
            .then(|| observer.statement(gate.host_session, bytes_max))
            .flatten()
    }

    /// Tells the host about a deadlock, if that is wanted.
    pub(crate) fn print_deadlock(&self, text: &str) {
        if let (Some(observer), true) = (&self.observer, self.print_deadlocks.load(Ordering::Relaxed)) {
            observer.deadlock(text);
        }
    }

    /// How often the latches that all sessions share were found taken: name and times.
    pub(crate) fn contended(&self) -> [(&'static str, u64); 3] {
        [
            ("wait graph", self.queues.contended()),
            ("transactions with a session", self.gates.contended()),
            ("sessions", self.sessions.contended()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::database::{Database, Options};
    use crate::session::Session;
    use crate::waits::WaitObserver;
    use pbxt_testkit::SimDisk;
    use std::sync::Arc;

    #[derive(Debug)]
    struct Host;

    impl WaitObserver for Host {
        fn waiting(&self, _waiter: usize, _blocker: usize) {}
        fn begin(&self, _host_session: usize) {}
        fn end(&self, _host_session: usize) {}
        fn is_killed(&self, _host_session: usize) -> bool {
            false
        }
        fn statement(&self, host_session: usize, _bytes_max: usize) -> Option<String> {
            Some(format!("statement of {host_session}"))
        }
        fn deadlock(&self, _text: &str) {}
    }

    #[test]
    fn the_host_is_not_asked_about_a_session_that_is_gone() {
        let options = Options {
            background: false,
            observer: Some(Arc::new(Host)),
            ..Options::default()
        };
        let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
        let session = Session::open(&db, 9, 1);
        let gate = Arc::clone(session.gate());
        let asked = || db.waits.statement_of(&gate, 100);
        assert_eq!(asked().as_deref(), Some("statement of 9"));
        drop(session.for_ddl());
        assert!(
            asked().is_some(),
            "T38: the session outlives that of its DDL statement"
        );
        drop(session);
        assert_eq!(asked(), None, "T38");
    }
}
