//! Deadlock: the report of a circle of waiting transactions, for the error, the log and `SHOW ENGINE PBXT
//! STATUS`.
//!
//! Why it exists: a victim deserves to know which locks it met; the graph itself is gone a moment later.
//! State: a finished description; wait_walk.rs finds the circle.
//! Rules: T14 (found when it forms).
//! Latches and I/O: none.

use std::fmt;

use pbxt_base::ids::TxnId;

use crate::lock_mode::LockMode;
use crate::resource::Resource;

/// One transaction of a circle and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircleMember {
    /// The waiting transaction.
    pub txn: TxnId,
    /// What it waits for.
    pub resource: Resource,
    /// In which mode.
    pub mode: LockMode,
    /// The next transaction of the circle, which holds the resource or stands before it in the queue.
    pub waits_for: TxnId,
}

/// A detected deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockReport {
    /// The circle, beginning with the transaction whose request closed it.
    pub circle: Vec<CircleMember>,
    /// The transaction chosen to be rolled back.
    pub victim: TxnId,
}

impl fmt::Display for DeadlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "LATEST DETECTED DEADLOCK")?;
        for member in &self.circle {
            let CircleMember {
                txn,
                resource,
                mode,
                waits_for,
            } = member;
            let (txn, waits_for) = (txn.raw(), waits_for.raw());
            writeln!(
                f,
                "Transaction {txn} waits for {resource} ({mode}) because of transaction {waits_for}."
            )?;
        }
        writeln!(
            f,
            "Transaction {} is the victim and is rolled back.",
            self.victim.raw()
        )
    }
}
