//! Visibility: the one function that says what a viewer may see of a version, and the one that combines the
//! index events of a row.
//!
//! Why it exists: every read, lock, conflict and unique check asks the same question; asked in two places it
//! would get two answers.
//! State: none, pure functions. Truth table in docs/transactions.md, section 3.
//! Rules: T8 (void and aborted do not exist, for the owner too), T9 (cursor LSN), T10 (newest first, modes),
//! T11 (index events).
//! Latches and I/O: none.

use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_base::planted;

use crate::status::{Standing, TxnStatus};

/// How a viewer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// Consistent read: what was committed when the snapshot was taken, and own work before the cursor LSN.
    Snapshot,
    /// Newest committed or own version; waits for unfinished foreign work. For look-ups by position,
    /// duplicate look-ups and foreign-key probes. Ignores the cursor LSN.
    Current,
    /// Like `Current`, for a row that is to be locked or changed; honours the cursor LSN, which acts only
    /// where a scan sets it.
    Write {
        /// A committed version newer than the snapshot is a write conflict instead of being re-read.
        error_on_newer: bool,
    },
    /// Newest committed or own version; passes over unfinished foreign work instead of waiting for it.
    ReadCommittedNoWait,
}

/// Who is looking, from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// Sees what committed at or before this.
    pub snapshot: CommitTs,
    /// The viewer's own transaction; id 0 if it has not begun to write.
    pub own: TxnId,
    /// Own versions at or beyond this LSN were written after the cursor was opened and are passed over
    /// (Halloween protection, rule T9); `Viewer::NO_CURSOR` switches that off.
    pub cursor: Lsn,
    /// How the viewer reads.
    pub mode: ReadMode,
}

impl Viewer {
    /// A cursor LSN greater than that of any version.
    pub const NO_CURSOR: Lsn = Lsn::new(u64::MAX);

    /// A consistent read by a cursor opened when the log ended at `cursor`.
    pub fn snapshot(snapshot: CommitTs, own: TxnId, cursor: Lsn) -> Self {
        Viewer {
            snapshot,
            own,
            cursor,
            mode: ReadMode::Snapshot,
        }
    }

    /// A look-up of the newest committed or own version.
    pub fn current(own: TxnId) -> Self {
        Viewer {
            snapshot: CommitTs::new(0),
            own,
            cursor: Self::NO_CURSOR,
            mode: ReadMode::Current,
        }
    }

    /// A lock or a change of a row the caller already stands on. A scan that locks as it goes adds
    /// `with_cursor`.
    pub fn write(snapshot: CommitTs, own: TxnId, error_on_newer: bool) -> Self {
        Viewer {
            snapshot,
            own,
            cursor: Self::NO_CURSOR,
            mode: ReadMode::Write { error_on_newer },
        }
    }

    /// The same viewer, blind for own versions at or beyond `cursor` (not in `Current` mode).
    pub fn with_cursor(self, cursor: Lsn) -> Self {
        Viewer { cursor, ..self }
    }
}

/// Identity of a version or index event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The transaction that wrote it; id 0 for one that lost its stamp because it is settled.
    pub txn: TxnId,
    /// Where in the log.
    pub lsn: Lsn,
}

/// The answer about one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// This version is the one (a tombstone: the row is absent).
    Visible,
    /// Not for this viewer: judge its predecessor.
    Skip,
    /// The viewer must wait until this transaction ends or rolls back, then judge again from the head.
    Wait(TxnId),
    /// Write conflict: committed after the viewer's snapshot.
    Conflict,
}

/// Judges one version. A chain is judged from its head; the first answer other than `Skip` is the chain's
/// answer (rule T10).
#[inline]
pub fn judge(viewer: &Viewer, stamp: Stamp, standing: Standing) -> Verdict {
    if standing.void || standing.status == TxnStatus::Aborted {
        return Verdict::Skip; // T8
    }
    if stamp.txn == viewer.own && viewer.own.raw() != 0 {
        return judge_own(viewer, stamp.lsn);
    }
    match standing.status {
        TxnStatus::Settled => Verdict::Visible,
        TxnStatus::Committed(ts) => judge_committed(viewer, ts),
        TxnStatus::Active | TxnStatus::Prepared => judge_unfinished(viewer, stamp.txn),
        TxnStatus::Aborted => Verdict::Skip,
    }
}

fn judge_own(viewer: &Viewer, lsn: Lsn) -> Verdict {
    if viewer.mode != ReadMode::Current && lsn >= viewer.cursor {
        Verdict::Skip // T9
    } else {
        Verdict::Visible
    }
}

fn judge_committed(viewer: &Viewer, ts: CommitTs) -> Verdict {
    let newer = ts > viewer.snapshot;
    match viewer.mode {
        ReadMode::Snapshot if newer => Verdict::Skip,
        ReadMode::Write { error_on_newer: true } if newer && !planted!("write.no_conflict") => {
            Verdict::Conflict
        }
        _ => Verdict::Visible,
    }
}

fn judge_unfinished(viewer: &Viewer, txn: TxnId) -> Verdict {
    match viewer.mode {
        ReadMode::Snapshot if planted!("read.unfinished") => Verdict::Visible,
        ReadMode::Snapshot | ReadMode::ReadCommittedNoWait => Verdict::Skip,
        ReadMode::Current | ReadMode::Write { .. } => Verdict::Wait(txn),
    }
}

/// Whether an index event says that the row has the key or has it no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// The row got the key.
    Entry,
    /// The row lost the key.
    AntiEntry,
}

/// One index event of one (key, row id), with its writer's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexEvent {
    /// Entry or anti-entry.
    pub sign: Sign,
    /// Identity of the event.
    pub stamp: Stamp,
    /// Standing of its writer.
    pub standing: Standing,
}

/// What the events of one (key, row id) say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventDecision {
    /// The row has the key in the viewer's eyes. Whether the row exists is the row map's answer: a delete
    /// writes no event.
    Present,
    /// It has not.
    Absent,
    /// An unfinished foreign event decides: wait for it, then look again.
    Wait(TxnId),
    /// A foreign event newer than the snapshot decides: write conflict.
    Conflict,
}

/// Combines the events of one (key, row id), given in any order: of those that are not skipped the greatest
/// LSN decides, at equal LSN the entry wins (rule T11).
pub fn decide_events(viewer: &Viewer, events: impl IntoIterator<Item = IndexEvent>) -> EventDecision {
    let mut best: Option<(Lsn, bool)> = None;
    let mut decision = EventDecision::Absent;
    for event in events {
        let rank = (event.stamp.lsn, event.sign == Sign::Entry);
        if best.is_some_and(|known| known >= rank) {
            continue;
        }
        let said = match (judge(viewer, event.stamp, event.standing), event.sign) {
            (Verdict::Skip, _) => continue,
            (Verdict::Wait(txn), _) => EventDecision::Wait(txn),
            (Verdict::Conflict, _) => EventDecision::Conflict,
            (Verdict::Visible, Sign::Entry) => EventDecision::Present,
            (Verdict::Visible, Sign::AntiEntry) => EventDecision::Absent,
        };
        best = Some(rank);
        decision = said;
    }
    decision
}
