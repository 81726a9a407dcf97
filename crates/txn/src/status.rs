//! Status: what can be said about a transaction, and the one word that says it.
//!
//! Why it exists: a reader judges every version by its writer's state, so the state must be one atomic load.
//! State: bits 0-1 state (0 active, 1 prepared, 2 committed, 3 aborted), bit 2 "has void ranges", bits 3-63
//! commit timestamp (0 unless committed). Diagram in docs/transactions.md, section 1.
//! Rules: T1 (legal changes of state).
//! After a crash: a word is memory only; recovery writes new ones from END and PREPARE records.

use pbxt_base::ids::CommitTs;

/// What the transaction table answers about one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxnStatus {
    /// Begun, neither prepared nor ended.
    Active,
    /// Voted yes in two-phase commit; its outcome is not known yet.
    Prepared,
    /// Committed with this timestamp. Below the low-water mark the timestamp may be a later one that no live
    /// or future snapshot can tell from the true one (rule T6).
    Committed(CommitTs),
    /// Committed so long ago that every live and future snapshot sees it.
    Settled,
    /// Rolled back as a whole: its versions do not exist for anybody.
    Aborted,
}

impl TxnStatus {
    /// True while the transaction may still commit or abort: its versions are locks.
    pub fn is_unfinished(self) -> bool {
        matches!(self, TxnStatus::Active | TxnStatus::Prepared)
    }
}

/// What a viewer must know about the writer of one version: its status, and whether a savepoint or statement
/// rollback made this very version void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// Status of the writing transaction.
    pub status: TxnStatus,
    /// The version's LSN lies in a void range of its transaction.
    pub void: bool,
}

impl Standing {
    /// A version of a settled transaction without void ranges.
    pub const SETTLED: Standing = Standing {
        status: TxnStatus::Settled,
        void: false,
    };
}

const STATE_MASK: u64 = 0b11;
const ACTIVE: u64 = 0;
const PREPARED: u64 = 1;
const COMMITTED: u64 = 2;
const ABORTED: u64 = 3;
const VOID: u64 = 0b100;
const TS_SHIFT: u32 = 3;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) const NEW: Word = Word(ACTIVE);

    pub(crate) fn status(self) -> TxnStatus {
        match self.0 & STATE_MASK {
            ACTIVE => TxnStatus::Active,
            PREPARED => TxnStatus::Prepared,
            ABORTED => TxnStatus::Aborted,
            _ => TxnStatus::Committed(CommitTs::new(self.0 >> TS_SHIFT)),
        }
    }

    pub(crate) fn is_unfinished(self) -> bool {
        self.status().is_unfinished()
    }

    pub(crate) fn has_void(self) -> bool {
        self.0 & VOID != 0
    }

    /// The commit timestamp of a committed transaction without void ranges: the only kind that may become
    /// settled.
    pub(crate) fn plain_commit(self) -> Option<CommitTs> {
        match self.status() {
            TxnStatus::Committed(ts) if !self.has_void() => Some(ts),
            _ => None,
        }
    }

    /// True if the transaction may yet become settled: unfinished, or plainly committed.
    pub(crate) fn may_join(self) -> bool {
        self.is_unfinished() || self.plain_commit().is_some()
    }

    pub(crate) fn with_void(self) -> Word {
        Word(self.0 | VOID)
    }

    pub(crate) fn without_void(self) -> Word {
        Word(self.0 & !VOID)
    }

    pub(crate) fn prepared(self) -> Word {
        Word((self.0 & VOID) | PREPARED)
    }

    pub(crate) fn aborted(self) -> Word {
        Word((self.0 & VOID) | ABORTED)
    }

    pub(crate) fn committed(self, ts: CommitTs) -> Word {
        Word((self.0 & VOID) | COMMITTED | (ts.raw() << TS_SHIFT))
    }
}
