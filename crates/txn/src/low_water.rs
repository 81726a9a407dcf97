//! Low-water mark: gives up the slots of pages whose transactions need none any more.
//!
//! Why it exists: ids are never reused, so the table would grow by 8 bytes per transaction for ever. Waiting
//! for the oldest transaction, or for the oldest snapshot, is no answer: a prepared transaction lives for
//! weeks, a dump for ten hours.
//! State: none; one step turns a directory into its successor.
//! Rules: T5 (what is below the mark), T6 (ranges and classes), T7 (words move under the core latch).
//! Latches and I/O: the core latch, for at most `PAGES_PER_STEP` pages per step.
//! After a crash: the restored table starts with an empty window.

use std::collections::BTreeMap;
use std::sync::Arc;

use pbxt_base::ids::{CommitTs, TxnId};
use pbxt_base::invariant;

use crate::directory::{CommitRange, Directory, PAGE_SLOTS, Page, page_of, shared_ts};
use crate::snapshots::LiveSnapshots;
use crate::status::Word;
use crate::sync::Ordering;
use crate::txn_table::{Core, TxnTable};

/// Pages looked at under one hold of the core latch: some 60,000 slots, a fraction of a millisecond.
const PAGES_PER_STEP: usize = 16;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowWaterStep {
    /// The mark after the step.
    pub mark: TxnId,
    /// Pages whose slots were given up.
    pub pages_freed: usize,
    /// The step stopped at its own limit: another one would find more.
    pub more: bool,
}

impl TxnTable {
    /// Raises the low-water mark by at most a few pages and settles what `live` allows. `live` may be an old
    /// look.
    pub fn advance_low_water(&self, live: &LiveSnapshots) -> LowWaterStep {
        let guard = crossbeam_epoch::pin();
        let mut core = self.core.lock();
        let current = self.directory.load(&guard);
        let mut next = current.clone();
        let mut ranges = current.ranges.to_vec();
        let ready = self.count_ready(current, live);
        let leaving = ready.min(PAGES_PER_STEP);
        for page in next.pages.drain(..leaving) {
            let split = split_page(next.first_page, &page, live);
            ranges.extend(split.range);
            core.late.extend(
                split
                    .exceptions
                    .iter()
                    .filter(|(_, word)| word.may_join())
                    .map(|(id, _)| *id),
            );
            next.exceptions.append(&split.exceptions);
            next.first_page += 1;
        }
        let ranges = merge_ranges(&ranges, live);
        let joined = join_late(&mut core, &next, &ranges, live);
        let step = LowWaterStep {
            mark: next.low_water(),
            pages_freed: leaving,
            more: ready > leaving,
        };
        if leaving > 0 || !joined.is_empty() || *ranges != *current.ranges {
            next.exceptions.remove(&joined);
            next.ranges = ranges.into();
            if next.pages.is_empty() {
                next.pages.push(Arc::new(Page::new()));
            }
            self.directory.replace(next, &guard);
        }
        step
    }

    /// Forgets what is special about an ended transaction, of which no version and no index event is left
    /// anywhere except plainly committed ones: an aborted one, or one with void ranges whose void work is
    /// gone. Returns false if the transaction still has a slot; then it is too early, and nothing changes.
    pub fn forget_traces(&self, id: TxnId) -> bool {
        self.forget_all_traces(&[id]) > 0
    }

    /// The same of many, whose ids rise; of how many nothing is special any more. All are taken out at once, as each exchange of the
    /// directory costs what there is in it.
    pub fn forget_all_traces(&self, ids: &[TxnId]) -> usize {
        let guard = crossbeam_epoch::pin();
        let mut core = self.core.lock();
        let current = self.directory.load(&guard);
        let (mut forgotten, mut removed) = (0, Vec::new());
        let mut found = Vec::new();
        for &id in ids.iter().filter(|id| page_of(**id) < current.first_page) {
            forgotten += 1;
            let Some(slot) = current.exceptions.find(id) else {
                continue;
            };
            found.push(id);
            let word = Word(slot.load(Ordering::Acquire));
            invariant!(
                !word.is_unfinished(),
                "T5: an unfinished transaction leaves traces until it has ended"
            );
            if word.without_void().plain_commit().is_some() {
                slot.store(word.without_void().0, Ordering::Release);
                core.late.insert(id);
            } else {
                removed.push(id);
            }
        }
        if !removed.is_empty() {
            let mut next = current.clone();
            next.exceptions.remove(&removed);
            self.directory.replace(next, &guard);
        }
        for id in found {
            self.voids.remove(id);
        }
        forgotten
    }

    /// Number of pages at the front of the window that may go: all ids handed out, no commit beyond the
    /// frontier.
    fn count_ready(&self, directory: &Directory, live: &LiveSnapshots) -> usize {
        let full = (self.next_id().raw() / PAGE_SLOTS).saturating_sub(directory.first_page) as usize;
        let old_enough = |page: &Page, number: u64| {
            page.words(number)
                .all(|(_, word)| word.plain_commit().is_none_or(|ts| live.class_of(ts).is_some()))
        };
        let candidates = (directory.first_page..).zip(directory.pages.iter().take(full));
        candidates
            .take(PAGES_PER_STEP + 1)
            .take_while(|(number, page)| old_enough(page, *number))
            .count()
    }
}

/// The class of timestamps that every live and future snapshot sees.
const SETTLED_CLASS: Option<usize> = Some(0);

struct SplitPage {
    range: Option<CommitRange>,
    exceptions: Vec<(TxnId, Word)>,
}

/// Splits a page into what its plain commits share, that is the most frequent class of timestamps, and the
/// rest.
fn split_page(number: u64, page: &Page, live: &LiveSnapshots) -> SplitPage {
    let mut classes: BTreeMap<Option<usize>, (usize, CommitTs)> = BTreeMap::new();
    for ts in page.words(number).filter_map(|(_, word)| word.plain_commit()) {
        let (count, greatest) = classes.entry(live.class_of(ts)).or_insert((0, ts));
        *count += 1;
        *greatest = ts.max(*greatest);
    }
    let winner = classes.iter().max_by_key(|(_, (count, _))| *count);
    let (class, ts) = winner.map_or((SETTLED_CLASS, CommitTs::new(0)), |(class, (_, ts))| {
        (*class, *ts)
    });
    let shares = |word: Word| word.plain_commit().is_some_and(|ts| live.class_of(ts) == class);
    let exceptions = page
        .words(number)
        .filter(|(id, word)| id.raw() > 0 && !shares(*word))
        .collect();
    let range = (class != SETTLED_CLASS).then_some(CommitRange {
        first_page: number,
        end_page: number + 1,
        ts,
    });
    SplitPage { range, exceptions }
}

/// Melts neighbouring ranges no snapshot tells apart and drops those that everybody sees.
fn merge_ranges(ranges: &[CommitRange], live: &LiveSnapshots) -> Vec<CommitRange> {
    let mut merged: Vec<CommitRange> = Vec::new();
    for range in ranges
        .iter()
        .filter(|range| live.class_of(range.ts) != SETTLED_CLASS)
    {
        match merged.last_mut() {
            Some(last) if last.end_page == range.first_page && same_class(live, last.ts, range.ts) => {
                last.end_page = range.end_page;
                last.ts = last.ts.max(range.ts);
            }
            _ => merged.push(range.clone()),
        }
    }
    merged
}

fn same_class(live: &LiveSnapshots, one: CommitTs, other: CommitTs) -> bool {
    live.class_of(one).is_some() && live.class_of(one) == live.class_of(other)
}

/// The exceptions that can now share their neighbours' answer; they leave `late`, as do those that never can.
fn join_late(core: &mut Core, next: &Directory, ranges: &[CommitRange], live: &LiveSnapshots) -> Vec<TxnId> {
    let mut joined = Vec::new();
    core.late.retain(|id| {
        let Some(slot) = next.exceptions.find(*id) else {
            return false;
        };
        let word = Word(slot.load(Ordering::Acquire));
        let Some(ts) = word.plain_commit() else {
            return word.is_unfinished();
        };
        let joins = match shared_ts(ranges, page_of(*id)) {
            Some(shared) => same_class(live, ts, shared),
            None => live.class_of(ts) == SETTLED_CLASS,
        };
        if joins {
            joined.push(*id);
        }
        !joins
    });
    joined
}
