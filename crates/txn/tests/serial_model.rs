//! T29 to T32: whatever SERIALIZABLE transactions do, those that commit stand in one order.

#[path = "support/serial_world.rs"]
mod serial_world;

use proptest::prelude::*;
use serial_world::{CLIENTS, ROWS, Step, World};

fn any_step() -> impl Strategy<Value = Step> {
    let row = 0..ROWS;
    prop_oneof![
        4 => prop::bool::weighted(0.2).prop_map(|is_reader| Step::Begin { is_reader }),
        4 => row.clone().prop_map(Step::Row),
        2 => (row.clone(), row.clone(), any::<bool>()).prop_map(|(one, two, is_open)| Step::Range {
            first: one.min(two),
            last: one.max(two),
            is_open,
        }),
        1 => Just(Step::All),
        1 => Just(Step::Count),
        6 => (row, any::<bool>()).prop_map(|(row, deletes)| Step::Change { row, deletes }),
        1 => Just(Step::Prepare),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
    ]
}

fn play(steps: &[(usize, Step)], ended_max: usize) -> World {
    let mut world = World::new(ended_max);
    for &(client, step) in steps {
        world.step(client, step);
    }
    world.finish();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4000 }))]

    #[test]
    fn those_that_commit_stand_in_one_order(steps in prop::collection::vec((0..CLIENTS, any_step()), 0..60)) {
        play(&steps, 1024);
    }

    #[test]
    fn those_that_commit_stand_in_one_order_when_nearly_all_are_summarised(
        steps in prop::collection::vec((0..CLIENTS, any_step()), 0..60),
    ) {
        play(&steps, 2);
    }
}

/// Each of `steps` by the client in front of it; how many were ended.
fn ended(steps: &[(usize, Step)]) -> usize {
    play(steps, 1024).ended
}

const BEGIN: Step = Step::Begin { is_reader: false };

fn change(row: usize) -> Step {
    Step::Change { row, deletes: false }
}

#[test]
fn write_skew_ends_one_of_two() {
    // T29: rows 0 and 2 are there.
    let skew = [
        (0, BEGIN),
        (1, BEGIN),
        (0, Step::Row(0)),
        (1, Step::Row(2)),
        (0, change(2)),
        (1, change(0)),
        (0, Step::Commit),
    ];
    assert_eq!(ended(&skew), 1);
}

#[test]
fn two_that_insert_what_both_found_missing_in_a_range_do_not_both_commit() {
    // T30: rows 1 and 3 are not there.
    let range = |is_open| Step::Range {
        first: 1,
        last: 3,
        is_open,
    };
    for is_open in [false, true] {
        let gap = [
            (0, BEGIN),
            (1, BEGIN),
            (0, range(is_open)),
            (1, range(is_open)),
            (0, change(1)),
            (1, change(3)),
            (0, Step::Commit),
        ];
        assert_eq!(ended(&gap), 1);
    }
}

#[test]
fn a_trimmed_scan_minds_what_it_read_and_no_more() {
    // T30: client 0 reads up to row 1, client 1 inserts row 3 beyond it.
    let range = Step::Range {
        first: 0,
        last: 1,
        is_open: true,
    };
    let beyond = [
        (0, BEGIN),
        (1, BEGIN),
        (0, range),
        (1, Step::Row(0)),
        (0, change(0)),
        (1, change(3)),
        (0, Step::Commit),
    ];
    assert_eq!(ended(&beyond), 0);
}

#[test]
fn counts_mind_rows_that_come_and_go_and_not_those_that_change() {
    // T30: count skew; the same with an update is none.
    let skew = |deletes| {
        let change = |row| Step::Change { row, deletes };
        ended(&[
            (0, BEGIN),
            (1, BEGIN),
            (0, Step::Count),
            (1, Step::Count),
            (0, change(0)),
            (1, change(2)),
            (0, Step::Commit),
        ])
    };
    assert_eq!(skew(true), 1);
    assert_eq!(skew(false), 0);
}

#[test]
fn a_count_after_the_change_of_another_comes_before_it() {
    // T30: nobody notes the count any more when the change is made.
    let late = [
        (0, BEGIN),
        (1, BEGIN),
        (
            0,
            Step::Change {
                row: 0,
                deletes: true,
            },
        ),
        (0, Step::Row(2)),
        (1, Step::Count),
        (1, change(2)),
        (0, Step::Commit),
    ];
    assert_eq!(ended(&late), 1);
}

#[test]
fn a_reader_that_sees_the_later_of_two_ends_the_earlier() {
    // T29: batch processing (Ports, Grittner, figure 2). 0 adds a receipt to the batch it reads, 1 closes the batch, 2 reads
    // the closed batch and its receipts before 0 has added its own.
    let (batch, receipt) = (0, 1);
    let report = [
        (0, BEGIN),
        (0, Step::Row(batch)),
        (1, BEGIN),
        (1, change(batch)),
        (1, Step::Commit),
        (2, Step::Begin { is_reader: true }),
        (2, Step::Row(batch)),
        (
            2,
            Step::Range {
                first: receipt,
                last: receipt,
                is_open: false,
            },
        ),
        (2, Step::Commit),
        (0, change(receipt)),
    ];
    assert_eq!(ended(&report), 1);
    let without_report: Vec<_> = report.into_iter().filter(|(client, _)| *client != 2).collect();
    assert_eq!(ended(&without_report), 0);
}
