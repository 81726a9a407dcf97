//! One session, one table: every way to write and read a row, and what is left after a restart.
//!
//! After every step the whole oracle is asked: table scan, each index in both directions, row count and `check_table`.

mod common;

use common::{Bench, row};
use pbxt::{Bind, Cursor, Error, Isolation, Seek, SessionConfig};
use pbxt_sim::table::{PlayRow, TAG_INDEX};
use std::sync::Arc;

fn ids(bench: &mut Bench) -> Vec<u32> {
    bench.rows().into_iter().map(|(_, row)| row.id).collect()
}

#[test]
fn what_is_inserted_is_found_by_every_way_of_reading() {
    let mut bench = Bench::new();
    for id in [5, 1, 9, 3, 7] {
        bench.client.insert(&bench.table, &row(id)).unwrap();
        bench.settle();
    }
    assert_eq!(
        ids(&mut bench),
        [5, 1, 9, 3, 7],
        "a table scan gives the order of insertion"
    );
    bench.client.session.commit().unwrap();
    bench.settle();
    bench.reopen();
    assert_eq!(ids(&mut bench), [5, 1, 9, 3, 7]);
}

#[test]
fn each_seek_mode_finds_the_row_it_names() {
    let mut bench = Bench::new();
    for id in [10, 20, 30, 40] {
        bench
            .client
            .insert(
                &bench.table,
                &PlayRow {
                    group: Some(id / 20),
                    ..row(id)
                },
            )
            .unwrap();
    }
    bench.client.session.commit().unwrap();
    for reopened in [false, true] {
        if reopened {
            bench.reopen();
        }
        let mut find = |id: u32, seek: Seek| {
            let key = bench.table.prefix(0, &[Some(id)]);
            let found = bench.client.seek(&bench.table, 0, &key, seek).unwrap();
            found.map(|(_, row)| row.id)
        };
        assert_eq!(find(20, Seek::Exact), Some(20));
        assert_eq!(find(25, Seek::Exact), None);
        assert_eq!(
            (
                find(20, Seek::OrNext),
                find(25, Seek::OrNext),
                find(45, Seek::OrNext)
            ),
            (Some(20), Some(30), None)
        );
        assert_eq!(
            (find(20, Seek::After), find(40, Seek::After), find(5, Seek::After)),
            (Some(30), None, Some(10))
        );
        assert_eq!(
            (
                find(20, Seek::OrPrev),
                find(25, Seek::OrPrev),
                find(5, Seek::OrPrev)
            ),
            (Some(20), Some(20), None)
        );
        assert_eq!(
            (
                find(20, Seek::Before),
                find(10, Seek::Before),
                find(99, Seek::Before)
            ),
            (Some(10), None, Some(40))
        );
        assert_eq!((find(20, Seek::Last), find(25, Seek::Last)), (Some(20), None));
        // The first part sorts downwards: group 1 has the rows 20 and 30, group 2 the row 40, group 0 the row 10.
        let mut in_group = |group: u32, seek: Seek| {
            let key = bench.table.prefix(1, &[Some(group)]);
            let found = bench.client.seek(&bench.table, 1, &key, seek).unwrap();
            found.map(|(_, row)| row.id)
        };
        assert_eq!(
            (in_group(1, Seek::Exact), in_group(1, Seek::Last)),
            (Some(20), Some(30))
        );
        assert_eq!(
            (in_group(1, Seek::After), in_group(1, Seek::Before)),
            (Some(10), Some(40))
        );
        bench.settle();
    }
}

#[test]
fn an_update_moves_the_row_in_the_indexes_whose_keys_changed() {
    let mut bench = Bench::new();
    let id = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    type Change = fn(&PlayRow) -> PlayRow;
    let changes: [Change; 6] = [
        |old| PlayRow {
            memo: Some(vec![7; 30].into()),
            ..old.clone()
        },
        |old| PlayRow {
            group: Some(4),
            ..old.clone()
        },
        |old| PlayRow {
            tag: Some(8),
            ..old.clone()
        },
        |old| PlayRow {
            name: b"another".to_vec(),
            ..old.clone()
        },
        |old| PlayRow {
            id: 2,
            tag: None,
            ..old.clone()
        },
        |old| PlayRow {
            id: 1,
            group: None,
            ..old.clone()
        },
    ];
    let mut last = row(1);
    for change in changes {
        last = change(&last);
        bench.client.update(&bench.table, id, change).unwrap();
        bench.settle();
        assert_eq!(bench.rows(), [(id, last.clone())]);
        bench.client.session.commit().unwrap();
        bench.reopen();
        assert_eq!(bench.rows(), [(id, last.clone())]);
    }
}

#[test]
fn a_key_that_goes_away_and_comes_back_in_one_transaction_is_found_once() {
    let mut bench = Bench::new();
    let id = bench
        .client
        .insert(
            &bench.table,
            &PlayRow {
                tag: Some(1),
                ..row(1)
            },
        )
        .unwrap();
    bench.client.session.commit().unwrap();
    for tag in [2, 1, 3, 1] {
        bench
            .client
            .update(&bench.table, id, |old| PlayRow {
                tag: Some(tag),
                ..old.clone()
            })
            .unwrap();
        bench.settle();
    }
    bench.client.session.commit().unwrap();
    bench.settle();
    bench.reopen();
    let key = bench.table.prefix(TAG_INDEX, &[Some(1)]);
    assert_eq!(
        bench
            .client
            .seek(&bench.table, TAG_INDEX, &key, Seek::Exact)
            .unwrap()
            .map(|found| found.0),
        Some(id)
    );
}

#[test]
fn a_deleted_row_is_gone_and_its_keys_are_free() {
    let mut bench = Bench::new();
    let id = bench
        .client
        .insert(
            &bench.table,
            &PlayRow {
                tag: Some(1),
                ..row(1)
            },
        )
        .unwrap();
    bench.client.session.commit().unwrap();
    assert!(bench.client.delete(&bench.table, id).unwrap().is_some());
    bench.settle();
    assert_eq!(bench.rows(), []);
    assert!(bench.client.delete(&bench.table, id).unwrap().is_none());
    let again = bench
        .client
        .insert(
            &bench.table,
            &PlayRow {
                tag: Some(1),
                ..row(1)
            },
        )
        .unwrap();
    bench.settle();
    bench.client.session.commit().unwrap();
    bench.reopen();
    assert_eq!(
        bench.rows().into_iter().map(|(id, _)| id).collect::<Vec<_>>(),
        [again]
    );
}

#[test]
fn rollback_leaves_nothing_and_frees_the_keys() {
    let mut bench = Bench::new();
    let kept = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    bench.client.insert(&bench.table, &row(2)).unwrap();
    bench
        .client
        .update(&bench.table, kept, |old| PlayRow { id: 3, ..old.clone() })
        .unwrap();
    bench.client.session.rollback().unwrap();
    bench.settle();
    assert_eq!(bench.rows(), [(kept, row(1))]);
    bench.client.delete(&bench.table, kept).unwrap();
    bench.client.session.rollback().unwrap();
    bench.settle();
    for id in [2, 3] {
        bench.client.insert(&bench.table, &row(id)).unwrap();
    }
    bench.client.session.commit().unwrap();
    bench.reopen();
    assert_eq!(ids(&mut bench), [1, 2, 3]);
}

#[test]
fn a_savepoint_gives_back_rows_keys_and_counts() {
    let mut bench = Bench::new();
    let first = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    bench.client.insert(&bench.table, &row(2)).unwrap();
    let outer = bench.client.session.savepoint().unwrap();
    bench
        .client
        .update(&bench.table, first, |old| PlayRow {
            id: 8,
            tag: Some(3),
            ..old.clone()
        })
        .unwrap();
    let inner = bench.client.session.savepoint().unwrap();
    bench.client.delete(&bench.table, first).unwrap();
    bench.settle();
    bench.client.session.rollback_to(inner).unwrap();
    bench.settle();
    assert_eq!(ids(&mut bench), [8, 2]);
    bench.client.session.rollback_to(outer).unwrap();
    bench.settle();
    assert_eq!(ids(&mut bench), [1, 2]);
    assert!(matches!(
        bench.client.session.rollback_to(inner),
        Err(Error::Invalid(_))
    ));
    bench
        .client
        .insert(
            &bench.table,
            &PlayRow {
                tag: Some(3),
                ..row(8)
            },
        )
        .unwrap();
    bench.settle();
    bench.client.session.commit().unwrap();
    bench.reopen();
    assert_eq!(ids(&mut bench), [1, 2, 8]);
}

/// T24: what only a released savepoint could bring back need not be kept.
#[test]
fn a_released_savepoint_is_forgotten_and_the_others_are_not() {
    let mut bench = Bench::new();
    let first = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    let set = |bench: &mut Bench| bench.client.session.savepoint().unwrap();
    let add = |bench: &mut Bench, id: u32| bench.client.insert(&bench.table, &row(id)).unwrap();
    let marks = |bench: &Bench| bench.db.list_txns()[0].savepoints;
    add(&mut bench, 2);
    let outer = set(&mut bench);
    let same_place = set(&mut bench);
    assert_eq!(outer, same_place);
    for round in 0..20 {
        let inner = set(&mut bench);
        let change = |old: &PlayRow| PlayRow {
            group: Some(round),
            ..old.clone()
        };
        bench.client.update(&bench.table, first, change).unwrap();
        set(&mut bench);
        bench.client.session.release_savepoint(inner, true);
        assert_eq!(marks(&bench), 1, "of the outer one alone, after round {round}");
    }
    // A name that is used again: those set in between stay.
    let replaced = set(&mut bench);
    add(&mut bench, 3);
    let between = set(&mut bench);
    add(&mut bench, 4);
    bench.client.session.release_savepoint(replaced, false);
    bench.client.session.rollback_to(between).unwrap();
    assert_eq!(ids(&mut bench), [1, 2, 3]);
    assert!(bench.client.session.rollback_to(replaced).is_err(), "released");
    bench.client.session.release_savepoint(same_place, false);
    bench.client.session.rollback_to(outer).unwrap();
    bench.settle();
    assert_eq!(ids(&mut bench), [1, 2]);
    bench.client.session.release_savepoint(outer, true);
    assert_eq!(marks(&bench), 0);
    bench.client.session.release_savepoint(outer, true);
    bench.client.session.commit().unwrap();
}

/// T42, between an insert and an update of the same transaction that stay.
#[test]
fn a_row_that_the_host_judges_afterwards_is_taken_back_alone() {
    let mut bench = Bench::new();
    let first = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    let renumbered = |id: u32| move |old: &PlayRow| PlayRow { id, ..old.clone() };
    bench.client.insert(&bench.table, &row(2)).unwrap();
    bench.client.update(&bench.table, first, renumbered(8)).unwrap();
    for stays in [false, true, false] {
        bench.client.session.hold_row().unwrap();
        let id = if stays { 9 } else { 7 };
        bench.client.update(&bench.table, first, renumbered(id)).unwrap();
        bench.client.insert(&bench.table, &row(id + 20)).unwrap();
        bench.client.session.release_row(stays).unwrap();
        bench.settle();
    }
    assert_eq!(ids(&mut bench), [9, 2, 29]);
    bench.client.session.hold_row().unwrap();
    bench.client.delete(&bench.table, first).unwrap();
    bench.client.session.release_row(false).unwrap();
    bench.client.session.release_row(false).unwrap();
    assert_eq!(bench.client.count(&bench.table).unwrap(), 3);
    bench.client.session.commit().unwrap();
    bench.reopen();
    assert_eq!(ids(&mut bench), [9, 2, 29]);
}

/// T43.
#[test]
fn a_reader_holds_no_locks_and_a_rollback_to_a_savepoint_gives_none_back() {
    let mut bench = Bench::new();
    let first = bench.client.insert(&bench.table, &row(1)).unwrap();
    assert!(bench.client.session.holds_locks());
    bench.client.session.commit().unwrap();
    let savepoint = bench.client.session.savepoint().unwrap();
    bench.client.scan(&bench.table).unwrap();
    assert!(!bench.client.session.holds_locks());
    bench.client.session.rollback_to(savepoint).unwrap();
    assert!(!bench.client.session.holds_locks());
    bench.client.delete(&bench.table, first).unwrap();
    bench.client.session.rollback_to(savepoint).unwrap();
    assert!(bench.client.session.holds_locks());
    bench.client.session.rollback().unwrap();
    assert!(!bench.client.session.holds_locks());
    bench.client.session.configure(SessionConfig {
        isolation: Isolation::Serializable,
        ..SessionConfig::default()
    });
    let savepoint = bench.client.session.savepoint().unwrap();
    bench.client.scan(&bench.table).unwrap();
    bench.client.session.rollback_to(savepoint).unwrap();
    assert!(bench.client.session.holds_locks(), "what was read is minded");
    bench.client.session.commit().unwrap();
}

#[test]
fn a_failed_statement_undoes_only_itself() {
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(1)).unwrap();
    let result = bench.client.insert_all(&bench.table, &[row(2), row(3), row(1)]);
    assert!(
        matches!(result, Err(Error::DuplicateKey { index_no: 0, .. })),
        "{result:?}"
    );
    bench.settle();
    assert_eq!(ids(&mut bench), [1]);
    bench.client.insert_all(&bench.table, &[row(3), row(2)]).unwrap();
    bench.client.session.commit().unwrap();
    bench.reopen();
    assert_eq!(ids(&mut bench), [1, 3, 2]);
}

#[test]
fn a_duplicate_names_index_and_row_and_leaves_no_trace() {
    let mut bench = Bench::new();
    let holder = bench
        .client
        .insert(
            &bench.table,
            &PlayRow {
                tag: Some(6),
                ..row(1)
            },
        )
        .unwrap();
    bench
        .client
        .insert(&bench.table, &PlayRow { tag: None, ..row(2) })
        .unwrap();
    let result = bench.client.insert(
        &bench.table,
        &PlayRow {
            tag: Some(6),
            ..row(3)
        },
    );
    assert!(
        matches!(result, Err(Error::DuplicateKey { index_no: TAG_INDEX, row, .. }) if row == holder),
        "{result:?}"
    );
    bench.settle();
    bench
        .client
        .insert(&bench.table, &PlayRow { tag: None, ..row(3) })
        .unwrap();
    bench.settle();
    let log_before = bench.db.log().tail();
    assert!(bench.client.insert(&bench.table, &row(3)).is_err());
    assert_eq!(
        bench.db.log().tail(),
        log_before,
        "T23: a row that failed wrote no record"
    );
}

#[test]
fn the_same_row_again_is_no_change() {
    let mut bench = Bench::new();
    let id = bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    let before = bench.db.log().tail();
    bench.client.update(&bench.table, id, PlayRow::clone).unwrap();
    assert_eq!(bench.db.log().tail(), before);
}

#[test]
fn large_values_come_back_whole_after_a_restart() {
    let mut bench = Bench::new();
    let lengths = [0, 1, 699, 700, 5_000, 70_000, 300_000];
    for (id, length) in (1..).zip(lengths) {
        let memo = (0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        bench
            .client
            .insert(
                &bench.table,
                &PlayRow {
                    memo: Some(memo.into()),
                    ..row(id)
                },
            )
            .unwrap();
    }
    bench.settle();
    let before = bench.rows();
    bench.client.session.commit().unwrap();
    bench.reopen();
    assert_eq!(bench.rows(), before);
    assert_eq!(
        before
            .iter()
            .map(|(_, row)| row.memo.as_ref().map_or(0, |memo| memo.len()))
            .collect::<Vec<_>>(),
        lengths
    );
}

#[test]
fn an_open_transaction_is_gone_after_a_restart() {
    let mut bench = Bench::new();
    bench.client.insert(&bench.table, &row(1)).unwrap();
    bench.client.session.commit().unwrap();
    bench.client.insert(&bench.table, &row(2)).unwrap();
    bench.db.flush().unwrap();
    bench.crash_reopen();
    assert_eq!(ids(&mut bench), [1]);
    bench.client.insert(&bench.table, &row(2)).unwrap();
    bench.client.session.commit().unwrap();
    bench.settle();
}

#[test]
fn a_thousand_rows_over_many_segments_come_back() {
    let mut bench = Bench::new();
    for id in 0..1000 {
        let memo = Some(vec![id as u8; 300].into());
        bench
            .client
            .insert(
                &bench.table,
                &PlayRow {
                    group: Some(id % 7),
                    tag: Some(id),
                    memo,
                    ..row(id)
                },
            )
            .unwrap();
        if id % 10 == 9 {
            bench.client.session.commit().unwrap();
        }
    }
    bench.settle();
    bench.reopen();
    assert_eq!(ids(&mut bench), (0..1000).collect::<Vec<_>>());
    assert!(
        bench
            .db
            .store()
            .list(pbxt_segment::SegmentClass::Hot)
            .unwrap()
            .len()
            > 2,
        "the test should cross segments"
    );
}

#[test]
fn a_scan_goes_on_behind_the_prefix_its_rows_were_fetched_ahead_for() {
    let mut bench = Bench::new();
    for id in 0..800 {
        let content = PlayRow {
            group: Some(1 + id % 2),
            ..row(id)
        };
        bench.client.insert(&bench.table, &content).unwrap();
    }
    bench.client.session.commit().unwrap();
    // The index has the greater group first.
    let prefix = bench.table.prefix(1, &[Some(2)]);
    let table = bench.table.clone();
    let counted = bench.client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 1)?;
        let mut found = usize::from(cursor.seek(session, &prefix, Seek::Exact, |_| Ok(()))?);
        // Rows at hand are fetched ahead late (rule X55).
        while found < 300 {
            assert!(
                cursor.index_move(session, true, true, |_| Ok(()))?,
                "400 rows have the prefix"
            );
            found += 1;
        }
        while cursor.index_move(session, true, false, |_| Ok(()))? {
            found += 1;
        }
        Ok(found)
    });
    assert_eq!(counted.unwrap(), 800);
}

#[test]
fn a_search_that_meets_nothing_but_rows_of_an_unfinished_transaction_can_be_killed() {
    let mut bench = Bench::new();
    let mut writer = bench.other(2);
    let rows: Vec<_> = (0..10_000).map(row).collect();
    writer.insert_all(&bench.table, &rows).unwrap();
    let (table, gate) = (bench.table.clone(), Arc::clone(bench.client.session.gate()));
    let killed = bench.client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 0)?;
        gate.kill();
        cursor.index_edge(session, false, |_| Ok(()))
    });
    assert!(matches!(killed, Err(Error::Killed)), "{killed:?}");
}
