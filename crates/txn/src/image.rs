//! Image: the part of the transaction table that outlives the process.
//!
//! Why it exists: a checkpoint must save what the log below it said about transactions, and recovery must
//! build the table from checkpoint and tail without knowing slots and pages.
//! State: next id, last commit timestamp, and every transaction that is not plainly committed. Its bytes:
//! image_codec.rs.
//! Rules: T12 (what is not listed is settled), T25 (what a checkpoint says about those that run).
//! Latches and I/O: none; inspect.rs makes the image of a live table.

use std::ops::Range;

use pbxt_base::ids::{CommitTs, Lsn, TxnId};

use crate::status::Word;

/// How a transaction stands that is not settled. An active one is listed as aborted, which it is unless the log beyond
/// the image says otherwise (`TxnTableImage::note`).
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

impl TxnTableImage {
    /// Adds what the log beyond the image says about one transaction: its outcome, and void ranges that join those
    /// known already. A plain commit is listed no more (T12). `next` and `last_ts` grow as needed.
    pub fn note(&mut self, found: RestoredTxn) {
        self.next = self.next.max(TxnId::new(found.id.raw() + 1));
        if let EndedAs::Committed(ts) = found.ended {
            self.last_ts = self.last_ts.max(ts);
        }
        self.exceptions.sort_unstable_by_key(|entry| entry.id);
        let place = self.exceptions.binary_search_by_key(&found.id, |entry| entry.id);
        let at = place.unwrap_or_else(|at| at);
        match self.exceptions.get_mut(at).filter(|_| place.is_ok()) {
            Some(entry) => {
                entry.ended = found.ended;
                entry.voids.extend(found.voids);
            }
            None => self.exceptions.insert(at, found),
        }
        let is_plain =
            |entry: &RestoredTxn| matches!(entry.ended, EndedAs::Committed(_)) && entry.voids.is_empty();
        if self.exceptions.get(at).is_some_and(is_plain) {
            self.exceptions.remove(at);
        }
    }
}
