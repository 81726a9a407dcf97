//! Inspect: looks at the transaction table as a whole, for checkpoints and status reports.
//!
//! Why it exists: everything else asks about one transaction at a time.
//! State: none of its own.
//! Rules: T2, T12, T25.
//! Latches and I/O: images are read under the core latch, so an image never holds a timestamp whose END is not
//! reserved, nor misses one that is.

use crossbeam_epoch::Guard;
use pbxt_base::ids::{CommitTs, TxnId};

use crate::directory::PAGE_SLOTS;
use crate::image::{EndedAs, RestoredTxn, TxnTableImage};
use crate::status::{TxnStatus, Word};
use crate::txn_table::{Core, TxnTable};

impl TxnTable {
    /// The image of this moment (T25).
    pub fn image(&self) -> TxnTableImage {
        self.image_with(|_| ()).0
    }

    /// The image of this moment, and what `work` says at the same moment: it runs as by `in_commit_section`.
    pub fn image_with<R>(&self, work: impl FnOnce(CommitTs) -> R) -> (TxnTableImage, R) {
        let guard = crossbeam_epoch::pin();
        let core = self.core.lock();
        let result = work(core.last_ts);
        (self.image_under(&core, &guard), result)
    }

    /// Runs `work` between two commits: it gets the timestamp of the last one, whose END's log space is reserved and
    /// whose state is published; the next one has not begun to reserve. The same holds for PREPARE records reserved by
    /// `prepare_critical`. `work` must not block, wait, or call this table.
    pub fn in_commit_section<R>(&self, work: impl FnOnce(CommitTs) -> R) -> R {
        work(self.core.lock().last_ts)
    }

    fn image_under(&self, core: &Core, guard: &Guard) -> TxnTableImage {
        let directory = self.directory.load(guard);
        // Who has an id and waits for the page of its word has written nothing: all it will write lies behind this image.
        let covered = (directory.first_page + directory.pages.len() as u64) * PAGE_SLOTS;
        let next = self.next_id().min(TxnId::new(covered));
        let slots = (directory.first_page..)
            .zip(&directory.pages)
            .flat_map(|(number, page)| page.words(number));
        let begun = slots.filter(|(id, _)| id.raw() > 0 && *id < next);
        let listed = directory
            .exceptions
            .iter()
            .chain(begun)
            .filter(|(_, word)| word.plain_commit().is_none());
        let exceptions = listed.map(|(id, word)| self.restored(id, word)).collect();
        TxnTableImage {
            next,
            last_ts: core.last_ts,
            exceptions,
        }
    }

    fn restored(&self, id: TxnId, word: Word) -> RestoredTxn {
        let ended = match word.status() {
            TxnStatus::Prepared => EndedAs::Prepared,
            TxnStatus::Committed(ts) => EndedAs::Committed(ts),
            TxnStatus::Active | TxnStatus::Aborted | TxnStatus::Settled => EndedAs::Aborted,
        };
        let voids = if word.has_void() {
            self.voids.of(id)
        } else {
            Vec::new()
        };
        RestoredTxn { id, ended, voids }
    }

    /// Times that somebody found the core latch taken.
    pub fn contended(&self) -> u64 {
        self.core.contended()
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
