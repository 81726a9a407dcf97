//! Deadlock: the facts of a circle of waiting transactions, for the error, the log and `SHOW ENGINE PBXT STATUS`.
//!
//! Why it exists: a victim deserves to know which locks it met; the graph itself is gone a moment later.
//! State: ids, resources and modes, copied when the circle is found; wait_walk.rs finds it. Who knows names, connections
//! and statements adds them afterwards.
//! Rules: T14 (found when it forms), T36 (bounded, described without the graph's latch).
//! Latches and I/O: none.

use pbxt_base::ids::TxnId;

use crate::lock_mode::LockMode;
use crate::resource::Resource;

/// Members of a circle that its report has at most, beside the victim.
pub const CIRCLE_SHOWN_MAX: usize = 20;

/// One transaction of a circle and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircleMember {
    /// The waiting transaction.
    pub txn: TxnId,
    /// What it waits for.
    pub resource: Resource,
    /// In which mode.
    pub mode: LockMode,
    /// The next transaction of the circle, which holds the resource or stands before it in the queue.
    pub waits_for: TxnId,
    /// The next one holds nothing of the resource: it only stands before it in line.
    pub in_line: bool,
}

/// Why a member of a circle became its victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimBecause {
    /// Its request closed the circle, and nobody preferred another one.
    ClosedTheCircle,
    /// The host preferred it.
    HostPreferred,
}

/// A detected deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockReport {
    /// The circle, beginning with the transaction whose request closed it: its first `CIRCLE_SHOWN_MAX` members, and the
    /// victim if it is not among them.
    pub circle: Vec<CircleMember>,
    /// Members of the whole circle.
    pub members: usize,
    /// The transaction chosen to be rolled back.
    pub victim: TxnId,
    /// Why this one.
    pub because: VictimBecause,
}

impl DeadlockReport {
    /// A report of the circle whose member at `victim` is chosen.
    pub(crate) fn new(circle: &[CircleMember], victim: usize) -> Self {
        let mut shown = Vec::with_capacity(circle.len().min(CIRCLE_SHOWN_MAX) + 1);
        shown.extend(circle.iter().take(CIRCLE_SHOWN_MAX));
        shown.extend(circle.get(victim).filter(|_| victim >= CIRCLE_SHOWN_MAX));
        DeadlockReport {
            circle: shown,
            members: circle.len(),
            victim: circle.get(victim).map(|member| member.txn).unwrap_or_default(),
            because: if victim == 0 {
                VictimBecause::ClosedTheCircle
            } else {
                VictimBecause::HostPreferred
            },
        }
    }
}
