//! Waiting: the words of the wait graph: what is waited for, requests, answers, tokens.
//!
//! Why it exists: newcomers, reports and the graph itself speak of the same things and must not import each
//! other.
//! State: `WaitState` of one wait; diagram in docs/transactions.md, section 5.
//! Rules: T13 (turns).
//! Latches and I/O: none.

use std::sync::Arc;

use pbxt_base::ids::TxnId;

use crate::deadlock::DeadlockReport;
use crate::lock_mode::LockMode;
use crate::resource::Resource;

/// Names one wait, from `enqueue` to `take` or `leave`. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitToken(pub(crate) u64);

/// How a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitState {
    /// Sleep on.
    Waiting,
    /// Woken: judge again and try; then `take`, `leave` or `requeue`.
    Turn,
    /// Chosen as a deadlock victim: `leave` and roll back.
    Victim,
}

/// Tokens whose threads must be woken. Losing it loses wake-ups.
#[must_use = "whoever has got the turn sleeps until it is woken"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wakes(pub Vec<WaitToken>);

/// Answer to a request to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// Nothing to wait for: nobody holds the resource, nobody stands in line. Try.
    Free,
    /// Queued. Sleep on the token, after waking `wakes` (victims of a deadlock this request closed).
    Waiting(WaitToken, Wakes),
    /// This request would close a circle and is its victim. It is not queued.
    Deadlock(Arc<DeadlockReport>, Wakes),
}

/// A request to wait.
#[derive(Clone, Copy, Debug)]
pub struct WaitRequest<'a> {
    /// Who wants to wait; a transaction waits for one thing at a time.
    pub txn: TxnId,
    /// For what.
    pub resource: Resource,
    /// In which mode.
    pub mode: LockMode,
    /// The transactions that hold the resource in a mode that does not go with `mode`, judged under the
    /// graph's latch.
    pub blockers: &'a [TxnId],
}
