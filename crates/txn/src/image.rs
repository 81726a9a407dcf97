//! Image: the part of the transaction table that outlives the process.
//!
//! Why it exists: a checkpoint must save what the log below it said about transactions, and recovery must
//! build the table from checkpoint and tail without knowing slots and pages.
//! State: next id, last commit timestamp, and every transaction that is not plainly committed. Its bytes on
//! disk belong to the checkpoint.
//! Rules: T12 (what is not listed is settled).
//! Latches and I/O: none; inspect.rs makes the image of a live table.

use std::ops::Range;

use pbxt_base::ids::{CommitTs, Lsn, TxnId};

use crate::status::Word;

/// How a transaction stands that is not settled when a table is restored. An active one does not exist:
/// without PREPARE or END it is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndedAs {
    /// PREPARE without END.
    Prepared,
    /// END(abort), or neither PREPARE nor END.
    Aborted,
    /// END(commit), listed because of void ranges.
    Committed(CommitTs),
}

/// One transaction that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredTxn {
    /// Its id.
    pub id: TxnId,
    /// Its outcome as far as known.
    pub ended: EndedAs,
    /// Its void ranges, in any order.
    pub voids: Vec<Range<Lsn>>,
}

impl RestoredTxn {
    pub(crate) fn word(&self) -> Word {
        let word = match self.ended {
            EndedAs::Prepared => Word::NEW.prepared(),
            EndedAs::Aborted => Word::NEW.aborted(),
            EndedAs::Committed(ts) => Word::NEW.committed(ts),
        };
        if self.voids.is_empty() {
            word
        } else {
            word.with_void()
        }
    }
}

/// What is needed to build a transaction table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnTableImage {
    /// Greater than every id ever handed out.
    pub next: TxnId,
    /// The greatest commit timestamp ever handed out.
    pub last_ts: CommitTs,
    /// Every transaction below `next` that is not plainly committed, in any order.
    pub exceptions: Vec<RestoredTxn>,
}
