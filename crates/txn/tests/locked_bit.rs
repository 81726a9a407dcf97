//! T16, T17: explicit locks and writers race for rows through the LOCKED bit of the map word.

use std::sync::atomic::{AtomicU64, Ordering};

use pbxt_base::ids::{RowId, TableId, TxnId};
use pbxt_txn::{LockMode, RowAccess, RowLockList, RowLocks, StillLocked};

const LOCKED: u64 = 1 << 63;
const TABLE: TableId = TableId::new(1);

/// A map word in which 0 stands for a committed head and anything else for the unfinished transaction that
/// wrote it.
struct Row {
    id: RowId,
    word: AtomicU64,
}

fn head(word: u64) -> u64 {
    word & !LOCKED
}

fn swap(row: &Row, old: u64, new: u64) -> Result<(), ()> {
    row.word
        .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        .map(drop)
        .map_err(drop)
}

/// Takes the lock, looks at the row while it holds it, gives it up. True if it got it.
fn lock_once(locks: &RowLocks, row: &Row, txn: TxnId, mode: LockMode) -> bool {
    let word = row.word.load(Ordering::Acquire);
    if head(word) != 0 {
        return false;
    }
    let mut list = RowLockList::new(txn);
    let got = locks.lock(&mut list, TABLE, row.id, mode, || swap(row, word, word | LOCKED));
    let got = got == Ok(RowAccess::Granted(()));
    for _ in 0..if got { 20 } else { 0 } {
        assert_eq!(
            row.word.load(Ordering::Acquire),
            LOCKED,
            "T16: nobody writes under an explicit lock"
        );
    }
    locks.release_all(list);
    got
}

/// Writes the row, looks at the locks while it is unfinished, commits. True if it got the row.
fn write_once(locks: &RowLocks, row: &Row, txn: TxnId) -> bool {
    let word = row.word.load(Ordering::Acquire);
    if head(word) != 0 {
        return false;
    }
    let got = if word & LOCKED == 0 {
        swap(row, word, txn.raw()).is_ok()
    } else {
        let keep = |StillLocked(still)| if still { LOCKED } else { 0 };
        locks.write(txn, TABLE, row.id, |still| {
            swap(row, word, txn.raw() | keep(still)).is_ok()
        }) == RowAccess::Granted(true)
    };
    if got {
        let holders = locks.blockers(txn, TABLE, row.id, LockMode::Exclusive);
        assert!(
            holders.is_empty(),
            "T16: {holders:?} hold a row that is being written"
        );
        assert_eq!(
            row.word.load(Ordering::Acquire),
            txn.raw(),
            "T17: the stale bit is dropped, the head is the writer's"
        );
        row.word.store(0, Ordering::Release);
    }
    got
}

#[test]
fn a_locker_and_a_writer_never_both_win() {
    let locks = RowLocks::new();
    let rows: Vec<Row> = (1..=2)
        .map(|id| Row {
            id: RowId::new(id),
            word: AtomicU64::new(0),
        })
        .collect();
    let rounds = if cfg!(miri) { 60 } else { 50_000 };
    let (locked, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let (locks, rows, locked, written) = (&locks, &rows, &locked, &written);
            scope.spawn(move || {
                for round in 0..rounds {
                    let txn = TxnId::new(1 + worker + round * 4);
                    let row = &rows[(round % 2) as usize];
                    let mode = if worker == 0 {
                        LockMode::Exclusive
                    } else {
                        LockMode::Shared
                    };
                    let (won, got) = if worker < 2 {
                        (locked, lock_once(locks, row, txn, mode))
                    } else {
                        (written, write_once(locks, row, txn))
                    };
                    won.fetch_add(u64::from(got), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(
        locked.into_inner() > 0 && written.into_inner() > 0,
        "both kinds got rows"
    );
    assert_eq!(locks.usage().locks, 0);
}

#[test]
fn the_owner_of_a_lock_writes_its_row_and_keeps_the_bit() {
    let locks = RowLocks::new();
    let row = Row {
        id: RowId::new(1),
        word: AtomicU64::new(0),
    };
    let mut list = RowLockList::new(TxnId::new(7));
    let got = locks.lock(&mut list, TABLE, row.id, LockMode::Exclusive, || {
        swap(&row, 0, LOCKED)
    });
    assert_eq!(got, Ok(RowAccess::Granted(())));
    let wrote = locks.write(TxnId::new(7), TABLE, row.id, |still| {
        assert_eq!(still, StillLocked(true));
        swap(&row, LOCKED, 7 | LOCKED)
    });
    assert_eq!(wrote, RowAccess::Granted(Ok(())));
    assert_eq!(row.word.load(Ordering::Acquire), 7 | LOCKED);
    locks.release_all(list);
}
