//! Shown: what other threads may know of a session's transaction while it goes on.
//!
//! Why it exists: lists of transactions and locks are asked for when something is stuck, so they must not wait for the
//! sessions they tell about. A session writes plain words as it goes; whoever wants to know reads them.
//! State: figures of the running transaction, and for each table it has entered how many rows it changed and which ones,
//! while they are few.
//! Rules: T37 (figures without order, lists of tables with the id they belong to).
//! Latches and I/O: one latch for the list of tables, taken when a transaction enters a table and when it ends, never for a
//! row; one for the key that is waited for.
//! After a crash: nothing is left.

use crate::definition::ConflictMode;
use crate::session::Isolation;
use parking_lot::Mutex;
use pbxt_base::{CommitTs, Lsn, RowId, TableId, TxnId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Changed or locked rows of one transaction and table up to which a list names them.
pub(crate) const FEW_ROWS: usize = 16;
/// Entries kept for the tables of later transactions of the session.
const SPARE_TABLES: usize = 8;
/// Bytes kept of a key that is waited for.
const KEY_BYTES_MAX: usize = 64;

/// Where a transaction is in its life, for lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnState {
    /// Between two statements, or in one.
    Active,
    /// In a wait for a lock.
    Waiting,
    /// Voted yes; its connection is there.
    Prepared,
    /// Voted yes; no connection holds it.
    Detached,
}

/// Changes of one transaction in one table.
#[derive(Debug)]
pub(crate) struct TableShown {
    pub(crate) table: TableId,
    changed: AtomicU64,
    rows: [AtomicU64; FEW_ROWS],
}

impl TableShown {
    pub(crate) fn new(table: TableId) -> Self {
        Self {
            table,
            changed: AtomicU64::new(0),
            rows: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// A row was changed. Called by one thread only.
    #[inline]
    pub(crate) fn note(&self, row: RowId) {
        let before = self.changed.load(Ordering::Relaxed);
        if let Some(place) = self.rows.get(before as usize) {
            place.store(row.raw(), Ordering::Relaxed);
        }
        self.changed.store(before + 1, Ordering::Release);
    }

    /// Many rows came at once.
    pub(crate) fn note_many(&self, count: u64) {
        self.changed.fetch_add(count, Ordering::Release);
    }

    /// Changes so far, those undone included.
    pub(crate) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }

    /// The changed rows, sorted, if they are few.
    pub(crate) fn few(&self) -> Option<Vec<RowId>> {
        let changed = usize::try_from(self.changed()).ok()?;
        let rows = self.rows.get(..changed)?;
        let mut rows: Vec<RowId> = rows
            .iter()
            .map(|row| RowId::new(row.load(Ordering::Relaxed)))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        // A load brings rows without their ids.
        rows.first().is_none_or(|row| row.raw() != 0).then_some(rows)
    }
}

#[derive(Debug, Default)]
struct Tables {
    txn: TxnId,
    /// The first `used` ones belong to `txn`.
    entries: Vec<Arc<TableShown>>,
    used: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// 0 idle, 1 active, 2 prepared.
    phase: AtomicU8,
    txn: AtomicU64,
    started_millis: AtomicU64,
    snapshot: AtomicU64,
    first_lsn: AtomicU64,
    rows_locked: AtomicU64,
    rows_loading: AtomicU64,
    savepoints: AtomicU64,
    isolation: AtomicU8,
    conflict_mode: AtomicU8,
    /// Milliseconds of the database's clock, and 1; 0 = it does not wait.
    waiting_since: AtomicU64,
    key: Mutex<Vec<u8>>,
    tables: Mutex<Tables>,
}

/// The figures of a running transaction at one moment, as far as words written without order give one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) txn: TxnId,
    pub(crate) is_prepared: bool,
    pub(crate) started_millis: u64,
    pub(crate) snapshot: CommitTs,
    pub(crate) first_lsn: Lsn,
    pub(crate) rows_changed: u64,
    pub(crate) rows_locked: u64,
    pub(crate) savepoints: u64,
    pub(crate) isolation: Isolation,
    pub(crate) conflict_mode: ConflictMode,
    pub(crate) waiting_since: Option<u64>,
}

impl Shown {
    /// A transaction begins; it has no id yet.
    pub(crate) fn begin(&self, now_millis: u64, isolation: Isolation, conflict_mode: ConflictMode) {
        self.started_millis.store(now_millis, Ordering::Relaxed);
        self.snapshot.store(0, Ordering::Relaxed);
        self.rows_locked.store(0, Ordering::Relaxed);
        self.savepoints.store(0, Ordering::Relaxed);
        self.rows_loading.store(0, Ordering::Relaxed);
        self.isolation.store(isolation as u8, Ordering::Relaxed);
        self.configured(conflict_mode);
        self.phase.store(1, Ordering::Release);
    }

    pub(crate) fn configured(&self, conflict_mode: ConflictMode) {
        self.conflict_mode.store(conflict_mode as u8, Ordering::Relaxed);
    }

    /// The transaction has got an id; what it writes lies behind `first_lsn`.
    pub(crate) fn named(&self, txn: TxnId, first_lsn: Lsn) {
        self.first_lsn.store(first_lsn.raw(), Ordering::Relaxed);
        self.tables.lock().txn = txn;
        self.txn.store(txn.raw(), Ordering::Release);
    }

    /// The transaction has entered a table: where its changes there are counted.
    pub(crate) fn enter(&self, table: TableId) -> Arc<TableShown> {
        let mut tables = self.tables.lock();
        let used = tables.used;
        tables.used += 1;
        match tables.entries.get_mut(used) {
            // An entry of an earlier transaction that a list still looks at stays as it is.
            Some(entry) => match Arc::get_mut(entry) {
                Some(free) => *free = TableShown::new(table),
                None => *entry = Arc::new(TableShown::new(table)),
            },
            None => tables.entries.push(Arc::new(TableShown::new(table))),
        }
        Arc::clone(&tables.entries[used])
    }

    pub(crate) fn prepared(&self) {
        self.phase.store(2, Ordering::Release);
    }

    /// The transaction has ended, or goes on without this session.
    pub(crate) fn end(&self) {
        self.phase.store(0, Ordering::Release);
        if self.txn.load(Ordering::Relaxed) != 0 {
            self.txn.store(0, Ordering::Release);
            let mut tables = self.tables.lock();
            (tables.txn, tables.used) = (TxnId::default(), 0);
            tables.entries.truncate(SPARE_TABLES);
        }
    }

    pub(crate) fn snapshot(&self, ts: CommitTs) {
        self.snapshot.store(ts.raw(), Ordering::Relaxed);
    }

    pub(crate) fn savepoints(&self, count: usize) {
        self.savepoints.store(count as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn rows_locked(&self, count: u64) {
        self.rows_locked.store(count, Ordering::Relaxed);
    }

    /// Rows of a load that is not part of its table yet.
    pub(crate) fn rows_loading(&self, count: u64) {
        self.rows_loading.store(count, Ordering::Relaxed);
    }

    /// The key that the next wait for a key is about.
    pub(crate) fn about_key(&self, key: &[u8]) {
        let mut kept = self.key.lock();
        kept.clear();
        kept.extend(key.iter().take(KEY_BYTES_MAX));
    }

    /// First bytes of the key that is waited for.
    pub(crate) fn key(&self) -> Vec<u8> {
        self.key.lock().clone()
    }

    pub(crate) fn waits_since(&self, millis: Option<u64>) {
        let since = millis.map_or(0, |millis| millis + 1);
        self.waiting_since.store(since, Ordering::Relaxed);
    }

    /// The tables that `txn` has entered; none if it is not the transaction of this session any more (rule T37).
    pub(crate) fn tables_of(&self, txn: TxnId) -> Vec<Arc<TableShown>> {
        let tables = self.tables.lock();
        if tables.txn == txn {
            tables.entries[..tables.used].to_vec()
        } else {
            Vec::new()
        }
    }

    /// The figures now; none if no transaction runs, or one began while they were read (rule T37).
    pub(crate) fn figures(&self) -> Option<Figures> {
        let phase = self.phase.load(Ordering::Acquire);
        let txn = TxnId::new(self.txn.load(Ordering::Acquire));
        let started_millis = self.started_millis.load(Ordering::Relaxed);
        let changed = self
            .tables_of(txn)
            .iter()
            .map(|table| table.changed())
            .sum::<u64>();
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let figures = Figures {
            txn,
            is_prepared: phase == 2,
            started_millis,
            snapshot: CommitTs::new(word(&self.snapshot)),
            first_lsn: Lsn::new(word(&self.first_lsn)),
            rows_changed: changed + word(&self.rows_loading),
            rows_locked: word(&self.rows_locked),
            savepoints: word(&self.savepoints),
            isolation: isolation_of(self.isolation.load(Ordering::Relaxed)),
            conflict_mode: conflict_mode_of(self.conflict_mode.load(Ordering::Relaxed)),
            waiting_since: word(&self.waiting_since).checked_sub(1),
        };
        let is_same =
            self.txn.load(Ordering::Acquire) == txn.raw() && word(&self.started_millis) == started_millis;
        (phase != 0 && is_same && self.phase.load(Ordering::Acquire) == phase).then_some(figures)
    }
}

fn isolation_of(word: u8) -> Isolation {
    let all = [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    all.into_iter()
        .find(|isolation| *isolation as u8 == word)
        .unwrap_or_default()
}

fn conflict_mode_of(word: u8) -> ConflictMode {
    let all = [ConflictMode::Default, ConflictMode::Error, ConflictMode::Wait];
    all.into_iter()
        .find(|mode| *mode as u8 == word)
        .unwrap_or(ConflictMode::Default)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TXN: TxnId = TxnId::new(5);

    fn begun() -> Shown {
        let shown = Shown::default();
        shown.begin(7, Isolation::Serializable, ConflictMode::Wait);
        shown.named(TXN, Lsn::new(100));
        shown
    }

    fn rows(ids: &[u64]) -> Vec<RowId> {
        ids.iter().copied().map(RowId::new).collect()
    }

    #[test]
    fn figures_are_those_of_the_running_transaction() {
        let shown = begun();
        let table = shown.enter(TableId::new(3));
        table.note(RowId::new(8));
        shown.rows_loading(2);
        shown.waits_since(Some(0));
        let figures = shown.figures().expect("a transaction runs");
        assert_eq!(
            (figures.txn, figures.first_lsn.raw(), figures.started_millis),
            (TXN, 100, 7)
        );
        assert_eq!((figures.rows_changed, figures.waiting_since), (3, Some(0)));
        assert_eq!(
            (figures.isolation, figures.conflict_mode),
            (Isolation::Serializable, ConflictMode::Wait)
        );
        shown.end();
        assert!(shown.figures().is_none(), "it has ended");
    }

    #[test]
    fn few_changed_rows_are_named_once_and_many_not() {
        let table = TableShown::new(TableId::new(3));
        for row in [9, 4, 9] {
            table.note(RowId::new(row));
        }
        assert_eq!((table.few(), table.changed()), (Some(rows(&[4, 9])), 3));
        (10..30).for_each(|row| table.note(RowId::new(row)));
        assert_eq!((table.few(), table.changed()), (None, 23));
    }

    #[test]
    fn rows_that_came_without_ids_are_not_named() {
        let table = TableShown::new(TableId::new(3));
        table.note(RowId::new(4));
        table.note_many(2);
        assert_eq!((table.few(), table.changed()), (None, 3));
    }

    #[test]
    fn what_a_list_holds_does_not_change_with_the_next_transaction() {
        let shown = begun();
        shown.enter(TableId::new(3)).note(RowId::new(8));
        let listed = shown.tables_of(TXN);
        shown.end();
        shown.begin(9, Isolation::default(), ConflictMode::Error);
        shown.named(TxnId::new(6), Lsn::new(200));
        let next = shown.enter(TableId::new(4));
        assert_eq!((next.table, next.changed()), (TableId::new(4), 0));
        assert_eq!(
            (listed[0].table, listed[0].changed()),
            (TableId::new(3), 1),
            "T37"
        );
        assert!(
            shown.tables_of(TXN).is_empty(),
            "T37: it is not this session's any more"
        );
    }

    #[test]
    fn entries_are_used_again_and_few_are_kept() {
        let shown = begun();
        let first = Arc::as_ptr(&shown.enter(TableId::new(1)));
        (2..100).for_each(|table| drop(shown.enter(TableId::new(table))));
        shown.end();
        assert_eq!(shown.tables.lock().entries.len(), SPARE_TABLES);
        shown.named(TxnId::new(6), Lsn::new(0));
        assert_eq!(
            Arc::as_ptr(&shown.enter(TableId::new(9))),
            first,
            "nothing is allocated"
        );
    }
}
