//! Tests of table locks: every pair of modes, own modes together, counts, restored locks.

use pbxt_base::ids::{TableId, TxnId};

use super::{TableAccess, TableLocks};
use crate::lock_mode::{LockMode, ModeSet};

const TABLE: TableId = TableId::new(3);
const ONE: TxnId = TxnId::new(1);
const TWO: TxnId = TxnId::new(2);

#[test]
fn each_pair_of_modes_of_two_transactions_is_granted_as_the_table_says() {
    for held in LockMode::ALL {
        for wanted in LockMode::ALL {
            let locks = TableLocks::new();
            assert_eq!(locks.lock(ONE, TABLE, held), TableAccess::Granted);
            let together = matches!(
                (held, wanted),
                (LockMode::Intent, LockMode::Intent) | (LockMode::Shared, LockMode::Shared)
            );
            let expected = if together {
                TableAccess::Granted
            } else {
                TableAccess::Blocked(vec![ONE])
            };
            assert_eq!(
                locks.lock(TWO, TABLE, wanted),
                expected,
                "T18: {held} against {wanted}"
            );
            assert_eq!(
                locks.lock(TWO, TableId::new(4), wanted),
                TableAccess::Granted,
                "another table is free"
            );
        }
    }
}

#[test]
fn a_serializable_reader_that_writes_holds_both_modes_and_stops_other_writers() {
    let locks = TableLocks::new();
    assert_eq!(locks.lock(ONE, TABLE, LockMode::Shared), TableAccess::Granted);
    assert_eq!(locks.lock(ONE, TABLE, LockMode::Intent), TableAccess::Granted);
    assert_eq!(locks.lock(ONE, TABLE, LockMode::Intent), TableAccess::AlreadyHeld);
    assert_eq!(
        locks.lock(TWO, TABLE, LockMode::Intent),
        TableAccess::Blocked(vec![ONE])
    );
    assert_eq!(
        locks.lock(TWO, TABLE, LockMode::Shared),
        TableAccess::Blocked(vec![ONE])
    );
    locks.unlock(ONE, TABLE, LockMode::Shared);
    assert_eq!(locks.lock(TWO, TABLE, LockMode::Intent), TableAccess::Granted);
    assert_eq!(
        locks.lock(ONE, TABLE, LockMode::Shared),
        TableAccess::Blocked(vec![TWO])
    );
}

#[test]
fn exclusive_waits_for_every_writer_and_a_prepared_one_holds_after_its_session_went() {
    let locks = TableLocks::new();
    for txn in 1..=5 {
        assert_eq!(
            locks.lock(TxnId::new(txn), TABLE, LockMode::Intent),
            TableAccess::Granted
        );
    }
    let ddl = TxnId::new(9);
    let writers: Vec<TxnId> = (1..=5).map(TxnId::new).collect();
    assert_eq!(
        locks.lock(ddl, TABLE, LockMode::Exclusive),
        TableAccess::Blocked(writers)
    );
    (1..=4).for_each(|txn| locks.release_all(TxnId::new(txn), [TABLE]));
    assert_eq!(
        locks.lock(ddl, TABLE, LockMode::Exclusive),
        TableAccess::Blocked(vec![TxnId::new(5)])
    );
    assert_eq!(locks.blockers(ddl, TABLE, LockMode::Exclusive), [TxnId::new(5)]);
    locks.release_all(TxnId::new(5), [TABLE, TableId::new(77)]);
    assert_eq!(locks.lock(ddl, TABLE, LockMode::Exclusive), TableAccess::Granted);
    assert_eq!(
        locks.lock(ddl, TABLE, LockMode::Shared),
        TableAccess::AlreadyHeld,
        "exclusive allows everything"
    );
    assert_eq!(
        locks.holders(TABLE),
        [(ddl, ModeSet::default().with(LockMode::Exclusive))]
    );
    locks.release_all(ddl, [TABLE]);
    assert!(locks.holders(TABLE).is_empty());
    assert!(
        locks.shard(TABLE).is_empty(),
        "a table nobody locks takes no memory"
    );
}
