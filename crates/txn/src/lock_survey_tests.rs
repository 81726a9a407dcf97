//! T35: a survey counts every locked row once per transaction and mode, and names rows only where they are few.

use std::convert::Infallible;

use pbxt_base::ids::{RowId, TableId, TxnId};

use crate::lock_mode::LockMode::{self, Exclusive, Shared};
use crate::lock_survey::{HeldRows, SurveyLimits};
use crate::row_locks::{RowLockList, RowLocks};

/// Rows of a transaction that has many.
const MANY: u64 = if cfg!(miri) { 400 } else { 20_000 };

/// More leaves than one step of a survey takes from each partition.
const LEAVES: u64 = if cfg!(miri) { 200 } else { 20_000 };

const LIMITS: SurveyLimits = SurveyLimits { few: 3, groups: 100 };

fn lock(
    locks: &RowLocks,
    list: &mut RowLockList,
    table: u32,
    rows: impl IntoIterator<Item = u64>,
    mode: LockMode,
) {
    for row in rows {
        locks
            .lock(list, TableId::new(table), RowId::new(row), mode, || {
                Ok::<(), Infallible>(())
            })
            .expect("the closure does not fail");
    }
}

fn list(id: u64) -> RowLockList {
    RowLockList::new(TxnId::new(id))
}

fn held(txn: u64, table: u32, mode: LockMode, count: u64, rows: &[u64]) -> HeldRows {
    HeldRows {
        txn: TxnId::new(txn),
        table: TableId::new(table),
        mode,
        count,
        rows: rows.iter().copied().map(RowId::new).collect(),
    }
}

#[test]
fn few_rows_are_named_and_many_are_counted() {
    let locks = RowLocks::new();
    let (mut one, mut two) = (list(1), list(2));
    lock(&locks, &mut one, 7, [5, 5000, 9], Exclusive);
    lock(&locks, &mut two, 7, [5001], Shared);
    lock(&locks, &mut two, 8, 1..=MANY, Exclusive);
    let survey = locks.survey(LIMITS);
    let expected = [
        held(1, 7, Exclusive, 3, &[5, 9, 5000]),
        held(2, 7, Shared, 1, &[5001]),
        held(2, 8, Exclusive, MANY, &[]),
    ];
    assert_eq!((survey.held.as_slice(), survey.left_out), (&expected[..], 0));
}

#[test]
fn rows_given_back_are_no_longer_counted() {
    let locks = RowLocks::new();
    let (mut one, mut two) = (list(1), list(2));
    lock(&locks, &mut one, 7, 1..=100, Shared);
    lock(&locks, &mut two, 7, [3, 4], Shared);
    assert!(locks.unlock(&two, TableId::new(7), RowId::new(4), Shared));
    locks.release_all(one);
    assert_eq!(locks.survey(LIMITS).held, [held(2, 7, Shared, 1, &[3])]);
    locks.release_all(two);
    assert_eq!(locks.survey(LIMITS).held, []);
}

#[test]
fn a_survey_goes_on_behind_the_leaves_of_one_step() {
    let locks = RowLocks::new();
    let mut one = list(1);
    lock(
        &locks,
        &mut one,
        7,
        (0..LEAVES).map(|leaf| leaf * 4096 + 17),
        Exclusive,
    );
    assert_eq!(locks.survey(LIMITS).held, [held(1, 7, Exclusive, LEAVES, &[])]);
}

#[test]
fn groups_beyond_the_limit_are_counted_as_left_out() {
    let locks = RowLocks::new();
    let mut lists: Vec<RowLockList> = (1..=5).map(list).collect();
    for list in &mut lists {
        lock(&locks, list, 7, [1, 2], Shared);
    }
    let survey = locks.survey(SurveyLimits { few: 3, groups: 2 });
    assert_eq!((survey.held.len(), survey.left_out), (2, 6));
}
