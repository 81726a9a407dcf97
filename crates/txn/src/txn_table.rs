//! Transaction table: hands out transaction ids and commit timestamps and answers for the state of every id.
//!
//! Why it exists: commit and rollback are one store here, whatever the transaction wrote; readers judge
//! versions by what this table says about their writers. A table of fixed size, or one that keeps a slot per
//! id for ever, answers wrongly or grows without bound (rule T5).
//! State: one word per unfinished or recent transaction (status.rs), found through the directory
//! (directory.rs); the published commit timestamp; snapshots (snapshots.rs); void ranges (void_ranges.rs).
//! State diagram in docs/transactions.md, section 1.
//! Rules: T1 (changes of state), T2 (one critical section), T3 (word before published), T7 (words change
//! under the core latch), T8 (void ranges).
//! Latches and I/O: the core latch, for a few stores; `commit_critical` runs the caller's closure under it,
//! which reserves log space and must neither block nor wait. Readers take none, except that the versions of
//! void-carrying transactions cost a shard latch of the void ranges.
//! After a crash: `restore` starts from what recovery found in checkpoint and log (rule T12).

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_epoch::Guard;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_base::invariant;

use crate::directory::{Directory, Found, PAGE_SLOTS, Page};
use crate::epoch_cell::EpochCell;
use crate::exceptions::ExceptionSet;
use crate::image::TxnTableImage;
use crate::snapshots::{LiveSnapshots, Snapshot, SnapshotRegistry};
use crate::status::{Standing, TxnStatus, Word};
use crate::sync::{AtomicU64, Latch, Ordering, OwnLine};
use crate::void_ranges::VoidRanges;

/// The states of all transactions of a database.
#[derive(Debug)]
pub struct TxnTable {
    /// The next id to hand out.
    pub(crate) next: OwnLine<AtomicU64>,
    /// The newest commit timestamp a snapshot may see; all smaller ones are visible too.
    published: OwnLine<AtomicU64>,
    pub(crate) directory: EpochCell<Directory>,
    snapshots: SnapshotRegistry,
    pub(crate) voids: VoidRanges,
    pub(crate) core: Latch<Core>,
}

/// What the core latch protects, besides every store to a word and every replacement of the directory.
#[derive(Debug)]
pub(crate) struct Core {
    /// The last commit timestamp handed out.
    pub(crate) last_ts: CommitTs,
    /// Exceptions that may still join their neighbours: unfinished ones and plain commits.
    pub(crate) late: BTreeSet<TxnId>,
}

impl Default for TxnTable {
    fn default() -> Self {
        Self::new()
    }
}

impl TxnTable {
    /// The table of a new database: no transaction yet, the first id will be 1.
    pub fn new() -> Self {
        Self::restore(&TxnTableImage::default())
    }

    /// The table as recovery found it (rule T12): everything below `image.next` that is not listed is
    /// settled. Ids continue at the next page border.
    pub fn restore(image: &TxnTableImage) -> Self {
        let mut entries = image.exceptions.clone();
        entries.sort_unstable_by_key(|entry| entry.id);
        let words: Vec<(TxnId, Word)> = entries.iter().map(|entry| (entry.id, entry.word())).collect();
        invariant!(
            words.iter().all(|(id, _)| *id < image.next),
            "T12: every restored transaction was begun"
        );
        let first_page = image.next.raw().div_ceil(PAGE_SLOTS);
        let voids = VoidRanges::new();
        for entry in &entries {
            entry
                .voids
                .iter()
                .for_each(|range| voids.add(entry.id, range.clone()));
        }
        let late = words
            .iter()
            .filter(|(_, word)| word.may_join())
            .map(|(id, _)| *id)
            .collect();
        let directory = Directory {
            first_page,
            pages: vec![Arc::new(Page::new())],
            ranges: Arc::new([]),
            exceptions: ExceptionSet::new(&words),
        };
        TxnTable {
            next: OwnLine(AtomicU64::new((first_page * PAGE_SLOTS).max(1))),
            published: OwnLine(AtomicU64::new(image.last_ts.raw())),
            directory: EpochCell::new(directory),
            snapshots: SnapshotRegistry::new(image.last_ts),
            voids,
            core: Latch::new(Core {
                last_ts: image.last_ts,
                late,
            }),
        }
    }

    /// Begins a transaction: hands out the next id. Readers need none.
    pub fn begin(&self) -> TxnId {
        let id = TxnId::new(self.next.0.fetch_add(1, Ordering::AcqRel));
        let guard = crossbeam_epoch::pin();
        if !self.directory.load(&guard).covers(id) {
            self.grow(id, &guard);
        }
        id
    }

    /// Hands out the next id to no transaction (rule T47): nothing is ever written with it, and it keeps nobody from being settled.
    pub fn spend(&self) -> TxnId {
        let id = self.begin();
        let guard = crossbeam_epoch::pin();
        let mut core = self.core.lock();
        let ts = core.last_ts;
        self.change(id, &mut core, &guard, |word| word.committed(ts));
        id
    }

    /// Adds pages until `id` has a slot, so that ending a transaction never allocates (rule T2).
    #[cold]
    fn grow(&self, id: TxnId, guard: &Guard) {
        let core = self.core.lock();
        let current = self.directory.load(guard);
        if !current.covers(id) {
            let mut grown = current.clone();
            while !grown.covers(id) {
                grown.pages.push(Arc::new(Page::new()));
            }
            self.directory.replace(grown, guard);
        }
        drop(core);
    }

    /// The status of a transaction. `guard` is any epoch guard of the calling thread; take one per batch of
    /// rows.
    #[inline]
    pub fn status(&self, id: TxnId, guard: &Guard) -> TxnStatus {
        self.answer(id, guard).0
    }

    /// What a viewer must know about the writer of the version at `lsn`.
    #[inline]
    pub fn standing(&self, id: TxnId, lsn: Lsn, guard: &Guard) -> Standing {
        self.standing_with_voids(id, lsn, guard).0
    }

    /// The same, and whether any version of the transaction is void: then its versions must be judged one by one.
    #[inline]
    pub fn standing_with_voids(&self, id: TxnId, lsn: Lsn, guard: &Guard) -> (Standing, bool) {
        let (status, has_void) = self.answer(id, guard);
        let void = has_void && self.voids.contains(id, lsn);
        (Standing { status, void }, has_void)
    }

    /// True if a savepoint or statement rollback of its transaction undid the version at `lsn`.
    pub fn is_void(&self, id: TxnId, lsn: Lsn, guard: &Guard) -> bool {
        self.answer(id, guard).1 && self.voids.contains(id, lsn)
    }

    #[inline]
    fn answer(&self, id: TxnId, guard: &Guard) -> (TxnStatus, bool) {
        if id.raw() == 0 {
            return (TxnStatus::Settled, false);
        }
        match self.directory.load(guard).find(id) {
            Some(Found::Word(word)) => {
                let word = Word(word.load(Ordering::Acquire));
                (word.status(), word.has_void())
            }
            Some(Found::Shared(ts)) => (ts.map_or(TxnStatus::Settled, TxnStatus::Committed), false),
            // Rule T53.
            None => (TxnStatus::Active, false),
        }
    }

    /// False for an id that was never handed out: a file that names it is damaged (rule T53).
    #[cold]
    pub fn has_begun(&self, id: TxnId) -> bool {
        id < self.next_id()
    }

    /// Changes the word of a transaction that has one of its own. The caller holds the core latch.
    pub(crate) fn change(&self, id: TxnId, _core: &mut Core, guard: &Guard, new: impl FnOnce(Word) -> Word) {
        match self.directory.load(guard).find(id) {
            Some(Found::Word(slot)) => {
                let old = Word(slot.load(Ordering::Acquire));
                slot.store(new(old).0, Ordering::Release);
            }
            Some(Found::Shared(_)) => settled_cannot_change(id),
            None => never_begun(id),
        }
    }

    /// Marks the transaction prepared: it can still commit or abort, in this life or after a crash.
    pub fn prepare(&self, id: TxnId) {
        let result = self.prepare_critical(id, || Ok::<(), std::convert::Infallible>(()));
        match result {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// `prepare` in one step with `reserve_prepare`, which reserves the log space of PREPARE: an image never lists as
    /// active a transaction whose PREPARE lies before it (T25). When the closure returns `Err`, nothing has happened.
    ///
    /// # Errors
    /// The error of the closure, which must not block, wait or take a latch ranked above the core latch.
    pub fn prepare_critical<R, E>(
        &self,
        id: TxnId,
        reserve_prepare: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let guard = crossbeam_epoch::pin();
        let mut core = self.core.lock();
        let reserved = reserve_prepare()?;
        self.change(id, &mut core, &guard, |word| {
            invariant!(
                word.status() == TxnStatus::Active,
                "T1: only an active transaction is prepared"
            );
            word.prepared()
        });
        Ok(reserved)
    }

    /// Rolls the transaction back: from now on nothing it wrote exists. Takes no commit timestamp.
    pub fn abort(&self, id: TxnId) {
        let guard = crossbeam_epoch::pin();
        self.change(id, &mut self.core.lock(), &guard, |word| {
            invariant!(
                word.is_unfinished(),
                "T1: only an unfinished transaction is aborted"
            );
            word.aborted()
        });
    }

    /// Commits (rule T2). `reserve_end` gets the commit timestamp and reserves the log space of END; the
    /// closures of all commits run one after the other in timestamp order. When it returns `Ok`, the state is
    /// stored and the timestamp published before the next closure can start. When it returns `Err`, or
    /// panics, nothing has happened: the transaction is unfinished as before and the next commit gets the
    /// same timestamp.
    ///
    /// The closure must not block, wait or take a latch ranked above the core latch.
    pub fn commit_critical<R, E>(
        &self,
        id: TxnId,
        reserve_end: impl FnOnce(CommitTs) -> Result<R, E>,
    ) -> Result<(CommitTs, R), E> {
        // Pinned before the latch is taken: pinning may free memory.
        let guard = crossbeam_epoch::pin();
        let mut core = self.core.lock();
        let Some(Found::Word(slot)) = self.directory.load(&guard).find(id) else {
            settled_cannot_change(id)
        };
        let word = Word(slot.load(Ordering::Acquire));
        invariant!(word.is_unfinished(), "T1: only an unfinished transaction commits");
        let ts = CommitTs::new(core.last_ts.raw() + 1);
        let reserved = reserve_end(ts)?;
        slot.store(word.committed(ts).0, Ordering::Release);
        core.last_ts = ts;
        self.published.0.store(ts.raw(), Ordering::Release); // T3: after the word
        Ok((ts, reserved))
    }

    /// Makes everything the transaction wrote at LSNs in `range` void, for everybody (rule T8): the rollback
    /// of a statement or to a savepoint.
    pub fn add_void(&self, id: TxnId, range: Range<Lsn>) {
        let guard = crossbeam_epoch::pin();
        let mut core = self.core.lock();
        self.voids.add(id, range);
        self.change(id, &mut core, &guard, |word| {
            invariant!(
                word.is_unfinished(),
                "T8: only an unfinished transaction rolls back to a savepoint"
            );
            word.with_void() // T7: after the range, so that whoever sees the bit finds the range
        });
    }

    /// The void ranges of a transaction, sorted and disjoint, as PREPARE and END carry them.
    pub fn void_ranges(&self, id: TxnId) -> Vec<Range<Lsn>> {
        self.voids.of(id)
    }

    /// The newest published commit timestamp.
    pub fn published(&self) -> CommitTs {
        CommitTs::new(self.published.0.load(Ordering::Acquire))
    }

    /// Takes and registers a snapshot of everything committed so far.
    pub fn open_snapshot(&self) -> Snapshot {
        self.snapshots.register(&self.published.0)
    }

    /// Ends the snapshots at or below `ts` by which nobody reads now (rule T27); how many. Their owners learn it when they
    /// enter again.
    pub fn end_snapshots(&self, ts: CommitTs) -> usize {
        self.snapshots.end_to(ts)
    }

    /// Looks at all live snapshots, for whoever wants to free or forget something.
    pub fn live_snapshots(&self) -> LiveSnapshots {
        self.snapshots.scan(&self.published.0)
    }

    /// The oldest timestamp any live or future snapshot can have.
    pub fn horizon(&self) -> CommitTs {
        self.live_snapshots().horizon()
    }

    /// The low-water mark: smaller ids have no slot any more.
    pub fn low_water(&self) -> TxnId {
        self.directory.load(&crossbeam_epoch::pin()).low_water()
    }

    /// The id the next transaction will get.
    pub fn next_id(&self) -> TxnId {
        TxnId::new(self.next.0.load(Ordering::Acquire))
    }
}

#[cold]
fn never_begun(id: TxnId) -> ! {
    panic!(
        "T1: transaction {} cannot change its state: it was never begun",
        id.raw()
    )
}

#[cold]
fn settled_cannot_change(id: TxnId) -> ! {
    panic!(
        "T1: transaction {} ended long ago and cannot change its state",
        id.raw()
    )
}
