//! Tests of explicit row locks: compatibility, the LOCKED bit protocol, memory of very many locks.

use std::cell::Cell;

use pbxt_base::ids::{RowId, TableId, TxnId};

use super::{RowAccess, RowLockList, RowLocks, StillLocked};
use crate::lock_mode::LockMode::{self, Exclusive, Shared};

const TABLE: TableId = TableId::new(3);

fn txn(id: u64) -> TxnId {
    TxnId::new(id)
}

fn lock(locks: &RowLocks, list: &mut RowLockList, row: u64, mode: LockMode) -> RowAccess<()> {
    locks
        .lock(list, TABLE, RowId::new(row), mode, || Ok::<(), ()>(()))
        .expect("the closure succeeds")
}

#[test]
fn shared_locks_go_together_and_exclusive_ones_do_not() {
    let locks = RowLocks::new();
    let mut lists: Vec<RowLockList> = (1..=3).map(|id| RowLockList::new(txn(id))).collect();
    assert_eq!(lock(&locks, &mut lists[0], 5, Shared), RowAccess::Granted(()));
    assert_eq!(lock(&locks, &mut lists[1], 5, Shared), RowAccess::Granted(()));
    assert_eq!(
        lock(&locks, &mut lists[2], 5, Exclusive),
        RowAccess::Blocked(vec![txn(1), txn(2)])
    );
    assert_eq!(
        lock(&locks, &mut lists[0], 5, Exclusive),
        RowAccess::Blocked(vec![txn(2)]),
        "an upgrade waits too"
    );
    assert_eq!(
        lock(&locks, &mut lists[2], 6, Exclusive),
        RowAccess::Granted(()),
        "the next row is free"
    );
    assert!(locks.unlock(&lists[1], TABLE, RowId::new(5), Shared));
    assert!(
        !locks.unlock(&lists[1], TABLE, RowId::new(5), Shared),
        "a lock is given up once"
    );
    assert_eq!(lock(&locks, &mut lists[0], 5, Exclusive), RowAccess::Granted(()));
    assert!(locks.holds(txn(1), TABLE, RowId::new(5), Exclusive));
    assert_eq!(locks.blockers(txn(3), TABLE, RowId::new(5), Shared), [txn(1)]);
    assert!(locks.unlock(&lists[0], TABLE, RowId::new(5), Exclusive));
    assert_eq!(locks.blockers(txn(3), TABLE, RowId::new(5), Shared), []);
    let against_writers = locks.blockers(txn(3), TABLE, RowId::new(5), Exclusive);
    assert_eq!(
        against_writers,
        [txn(1)],
        "the lock it had before it asked for more"
    );
}

#[test]
fn a_refused_bit_locks_nothing() {
    let locks = RowLocks::new();
    let mut list = RowLockList::new(txn(1));
    let refused = locks.lock(&mut list, TABLE, RowId::new(5), Shared, || {
        Err("the head is foreign and unfinished")
    });
    assert_eq!(refused, Err("the head is foreign and unfinished"));
    assert!(!locks.holds(txn(1), TABLE, RowId::new(5), Shared));
    assert!(list.is_empty(), "T16: nothing to hand back");
}

#[test]
fn a_writer_is_stopped_by_a_foreign_lock_and_keeps_the_bit_of_its_own() {
    let locks = RowLocks::new();
    let mut list = RowLockList::new(txn(1));
    lock(&locks, &mut list, 5, Shared);
    let ran = Cell::new(false);
    let foreign = locks.write(txn(2), TABLE, RowId::new(5), |_| ran.set(true));
    assert_eq!(foreign, RowAccess::Blocked(vec![txn(1)]));
    assert!(!ran.get(), "T16: a blocked writer does not swap");
    let own = locks.write(txn(1), TABLE, RowId::new(5), |still| still);
    assert_eq!(own, RowAccess::Granted(StillLocked(true)));
    locks.release_all(list);
    let later = locks.write(txn(2), TABLE, RowId::new(5), |still| still);
    assert_eq!(
        later,
        RowAccess::Granted(StillLocked(false)),
        "T17: a stale bit is dropped by the next writer"
    );
}

#[test]
fn locking_very_many_rows_costs_a_bit_each_and_release_touches_leaves_only() {
    let locks = RowLocks::new();
    let mut list = RowLockList::new(txn(1));
    let leaves = if cfg!(miri) { 1 } else { 256 };
    let rows = leaves * 4096;
    for row in 0..rows {
        lock(&locks, &mut list, row, Exclusive);
    }
    let usage = locks.usage();
    assert_eq!((usage.locks, usage.leaves), (rows, leaves));
    assert_eq!(
        list.leaves.len() as u64,
        leaves,
        "T17: one step of release per leaf"
    );
    assert!(
        usage.bytes < rows / 8 * 13 / 10,
        "T16: {} bytes for {rows} locks",
        usage.bytes
    );
    locks.release_all(list);
    assert_eq!(locks.usage().locks, 0);
    assert!(
        locks
            .partitions
            .iter()
            .all(|partition| partition.lock().is_empty()),
        "nothing is left behind"
    );
}

#[test]
fn locks_of_a_dropped_table_go_and_others_stay() {
    let locks = RowLocks::new();
    let mut list = RowLockList::new(txn(1));
    lock(&locks, &mut list, 5, Shared);
    locks
        .lock(&mut list, TableId::new(4), RowId::new(5), Shared, || {
            Ok::<(), ()>(())
        })
        .expect("succeeds");
    locks.forget_table(TABLE);
    assert!(!locks.holds(txn(1), TABLE, RowId::new(5), Shared));
    assert!(locks.holds(txn(1), TableId::new(4), RowId::new(5), Shared));
    locks.release_all(list);
}

#[test]
fn a_leaf_is_unlocked_when_nobody_holds_a_row_of_it() {
    let locks = RowLocks::new();
    let ran = |row: u64| {
        let ran = Cell::new(false);
        let said = locks.in_unlocked_leaf(TABLE, RowId::new(row), || ran.set(true));
        assert_eq!(said, ran.get());
        said
    };
    let mut list = RowLockList::new(txn(1));
    assert!(ran(1));
    lock(&locks, &mut list, 5, Shared);
    assert!(!ran(1), "T17: a row of the same leaf is locked");
    assert!(ran(5000), "T17: another leaf");
    assert!(locks.unlock(&list, TABLE, RowId::new(5), Shared));
    assert!(ran(1), "T17: the holder is still there, its lock is not");
    lock(&locks, &mut list, 6, Exclusive);
    assert!(!ran(1));
    locks.release_all(list);
    assert!(ran(1));
}
