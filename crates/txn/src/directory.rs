//! Directory: where the state word of a transaction id is found.
//!
//! Why it exists: ids grow for ever and every version names one, so slots must be found in two loads and
//! given up as soon as they say nothing any more.
//! State: ids at or beyond the low-water mark have slots, in pages of 4096; below it, in this order: an entry
//! in the exception set, a range of pages that share one commit timestamp, else settled. A directory is
//! immutable and replaced whole; its pages and exception chunks are shared with its successors. Only words
//! change, always under the core latch of the transaction table. Picture in docs/transactions.md, section 2.
//! Rules: T5 (below the mark), T6 (ranges), T7 (a word moves once, under the core latch).
//! Latches and I/O: readers none.

use std::sync::Arc;

use pbxt_base::ids::{CommitTs, TxnId};

use crate::exceptions::ExceptionSet;
use crate::status::Word;
use crate::sync::{AtomicU64, Ordering};

/// Slots per page.
#[cfg(not(loom))]
pub(crate) const PAGE_SLOTS: u64 = 4096;
#[cfg(loom)]
pub(crate) const PAGE_SLOTS: u64 = 4;

pub(crate) fn page_of(id: TxnId) -> u64 {
    id.raw() / PAGE_SLOTS
}

/// The slots of 4096 neighbouring ids; zero is `Active`, so a new page needs no further step before its ids
/// are used.
#[derive(Debug)]
pub(crate) struct Page {
    words: Box<[AtomicU64]>,
}

impl Page {
    pub(crate) fn new() -> Self {
        Page {
            words: (0..PAGE_SLOTS).map(|_| AtomicU64::new(Word::NEW.0)).collect(),
        }
    }

    pub(crate) fn slot(&self, id: TxnId) -> &AtomicU64 {
        let at = (id.raw() % PAGE_SLOTS) as usize;
        self.words.get(at).expect("rule T5: a page has PAGE_SLOTS slots")
    }

    /// All words with their ids, `number` being the page's own number.
    pub(crate) fn words(&self, number: u64) -> impl Iterator<Item = (TxnId, Word)> + '_ {
        let ids = (number * PAGE_SLOTS..).map(TxnId::new);
        ids.zip(self.words.iter().map(|slot| Word(slot.load(Ordering::Acquire))))
    }
}

/// Pages whose plain commits are all answered with one timestamp (rule T6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitRange {
    pub(crate) first_page: u64,
    /// One past the last page.
    pub(crate) end_page: u64,
    /// The greatest true timestamp among the members.
    pub(crate) ts: CommitTs,
}

#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// Number of the first page with slots; its first id is the low-water mark.
    pub(crate) first_page: u64,
    pub(crate) pages: Vec<Arc<Page>>,
    /// Sorted by page, disjoint.
    pub(crate) ranges: Arc<[CommitRange]>,
    pub(crate) exceptions: ExceptionSet,
}

/// What the directory knows about an id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// It has a word of its own.
    Word(&'a AtomicU64),
    /// It shares its answer with its neighbours: committed at about this timestamp, or settled.
    Shared(Option<CommitTs>),
}

impl Directory {
    pub(crate) fn low_water(&self) -> TxnId {
        TxnId::new(self.first_page * PAGE_SLOTS)
    }

    /// True if `id` has a slot or never needs one again.
    pub(crate) fn covers(&self, id: TxnId) -> bool {
        page_of(id) < self.first_page + self.pages.len() as u64
    }

    /// `None` if the id was never handed out.
    #[inline]
    pub(crate) fn find(&self, id: TxnId) -> Option<Found<'_>> {
        match page_of(id).checked_sub(self.first_page) {
            Some(at) => Some(Found::Word(self.pages.get(at as usize)?.slot(id))),
            None => Some(self.find_below(id)),
        }
    }

    #[cold]
    fn find_below(&self, id: TxnId) -> Found<'_> {
        match self.exceptions.find(id) {
            Some(word) => Found::Word(word),
            None => Found::Shared(shared_ts(&self.ranges, page_of(id))),
        }
    }
}

/// The timestamp the plain commits of `page` are answered with; `None` means settled.
pub(crate) fn shared_ts(ranges: &[CommitRange], page: u64) -> Option<CommitTs> {
    let after = ranges.partition_point(|range| range.first_page <= page);
    let range = ranges.get(after.checked_sub(1)?)?;
    (page < range.end_page).then_some(range.ts)
}
