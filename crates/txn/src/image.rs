//! Image: the part of the transaction table that outlives the process.
//!
//! Why it exists: a checkpoint must save what the log below it said about transactions, and recovery must build the
//! table from checkpoint and tail without knowing slots and pages.
//! State: next id, last commit timestamp, and every transaction that is not plainly committed. Its bytes on disk
//! belong to the checkpoint.
//! Rules: T12 (what is not listed is settled).
//! Latches and I/O: `TxnTable::image` reads under the core latch, so an image never holds a timestamp whose END is
//! not reserved, nor misses one that is.

use std::ops::Range;

use pbxt_base::ids::{CommitTs, Lsn, TxnId};

use crate::directory::PAGE_SLOTS;
use crate::status::{TxnStatus, Word};
use crate::txn_table::TxnTable;

/// How a transaction stands that is not settled when a table is restored. An active one does not exist: without
/// PREPARE or END it is aborted.
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
        if self.voids.is_empty() { word } else { word.with_void() }
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

impl TxnTable {
    /// The image of this moment. Active transactions are listed as aborted, which they are unless the log beyond this
    /// moment says otherwise.
    pub fn image(&self) -> TxnTableImage {
        let guard = crossbeam_epoch::pin();
        let core = self.core.lock();
        let directory = self.directory.load(&guard);
        let next = self.next_id();
        let slots = (directory.first_page..).zip(&directory.pages).flat_map(|(number, page)| page.words(number));
        let begun = slots.filter(|(id, _)| id.raw() > 0 && *id < next);
        let listed = directory.exceptions.iter().chain(begun).filter(|(_, word)| word.plain_commit().is_none());
        let exceptions = listed.map(|(id, word)| self.restored(id, word)).collect();
        TxnTableImage { next, last_ts: core.last_ts, exceptions }
    }

    fn restored(&self, id: TxnId, word: Word) -> RestoredTxn {
        let ended = match word.status() {
            TxnStatus::Prepared => EndedAs::Prepared,
            TxnStatus::Committed(ts) => EndedAs::Committed(ts),
            TxnStatus::Active | TxnStatus::Aborted | TxnStatus::Settled => EndedAs::Aborted,
        };
        let voids = if word.has_void() { self.voids.of(id) } else { Vec::new() };
        RestoredTxn { id, ended, voids }
    }

    /// Bytes held for slots and exceptions, for status reports.
    pub fn memory_bytes(&self) -> u64 {
        let guard = crossbeam_epoch::pin();
        let directory = self.directory.load(&guard);
        let slots = directory.pages.len() as u64 * PAGE_SLOTS * 8;
        let entries = directory.exceptions.len() as u64 * 16;
        slots + entries + directory.ranges.len() as u64 * 24
    }
}
