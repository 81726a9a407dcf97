//! T14: a circle is found by the request that closes it, through holders, lines, upgrades and hand-overs.

use pbxt_base::ids::{IndexId, RowId, TableId, TxnId};
use pbxt_txn::LockMode::{self, Exclusive, Shared};
use pbxt_txn::{
    CIRCLE_SHOWN_MAX, CircleMember, DeadlockReport, Enqueued, Resource, VictimBecause, WaitGraph,
    WaitRequest, WaitState, WaitToken, Wakes,
};
use std::sync::Arc;

fn txn(id: u64) -> TxnId {
    TxnId::new(id)
}

fn row(id: u64) -> Resource {
    Resource::Row(TableId::new(1), RowId::new(id))
}

fn ask(graph: &mut WaitGraph, id: u64, resource: Resource, mode: LockMode, blockers: &[u64]) -> Enqueued {
    let blockers: Vec<TxnId> = blockers.iter().copied().map(txn).collect();
    graph.enqueue(WaitRequest {
        txn: txn(id),
        resource,
        mode,
        blockers: &blockers,
    })
}

fn wait(graph: &mut WaitGraph, id: u64, resource: Resource, mode: LockMode, blockers: &[u64]) -> WaitToken {
    match ask(graph, id, resource, mode, blockers) {
        Enqueued::Waiting(token, _) => token,
        other => panic!("transaction {id} must wait: {other:?}"),
    }
}

fn deadlock(answer: Enqueued) -> DeadlockReport {
    match answer {
        Enqueued::Deadlock(report, Wakes(wakes)) if wakes.is_empty() => (*report).clone(),
        other => panic!("a deadlock was expected: {other:?}"),
    }
}

fn members(report: &DeadlockReport) -> Vec<u64> {
    report.circle.iter().map(|member| member.txn.raw()).collect()
}

#[test]
fn two_transactions_that_take_two_rows_crosswise_are_found_and_the_requester_is_the_victim() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 1, row(2), Exclusive, &[2]);
    let report = deadlock(ask(&mut graph, 2, row(1), Exclusive, &[1]));
    assert_eq!((members(&report), report.victim), (vec![2, 1], txn(2)));
    assert_eq!(graph.waiting().count(), 1, "the victim is not queued");
    assert_eq!(
        graph.released(txn(2)),
        Wakes(vec![first]),
        "its rollback lets the other one go on"
    );
    let member = |id, resource, waits_for| CircleMember {
        txn: txn(id),
        resource,
        mode: Exclusive,
        waits_for: txn(waits_for),
        in_line: false,
    };
    assert_eq!(report.circle, [member(2, row(1), 1), member(1, row(2), 2)]);
    assert_eq!(
        (report.members, report.because),
        (2, VictimBecause::ClosedTheCircle)
    );
    let kept = graph.take_deadlocks();
    assert_eq!(kept, [Arc::new(report)], "whoever holds the latch can take it");
    assert_eq!(graph.take_deadlocks(), [], "once");
}

#[test]
fn circles_lead_through_tables_keys_and_ends_of_transactions() {
    let mut graph = WaitGraph::new();
    wait(&mut graph, 1, Resource::Table(TableId::new(9)), Exclusive, &[2]);
    wait(
        &mut graph,
        2,
        Resource::Key(IndexId::new(3), 0xfeed),
        Exclusive,
        &[3],
    );
    wait(&mut graph, 3, Resource::Txn(txn(4)), Exclusive, &[4]);
    let report = deadlock(ask(&mut graph, 4, row(1), Shared, &[1, 77]));
    assert_eq!(members(&report), [4, 1, 2, 3]);
}

#[test]
fn two_upgrades_of_one_shared_row_are_a_circle() {
    let mut graph = WaitGraph::new();
    wait(&mut graph, 1, row(1), Exclusive, &[2]);
    let report = deadlock(ask(&mut graph, 2, row(1), Exclusive, &[1]));
    assert_eq!(members(&report), [2, 1]);
}

#[test]
fn a_circle_through_the_line_is_found_although_no_holder_is_in_it() {
    let mut graph = WaitGraph::new();
    // 1 holds the row shared; 2 wants it exclusive; 3 would share it with 1 but stands behind 2.
    wait(&mut graph, 2, row(1), Exclusive, &[1]);
    wait(&mut graph, 3, row(1), Shared, &[]);
    let report = deadlock(ask(&mut graph, 1, row(7), Exclusive, &[3]));
    assert_eq!(
        members(&report),
        [1, 3, 2],
        "1 waits for 3, 3 for its turn after 2, 2 for 1"
    );
    let in_line: Vec<bool> = report.circle.iter().map(|member| member.in_line).collect();
    assert_eq!(in_line, [false, true, false], "2 holds nothing that 3 wants");
}

#[test]
fn a_hand_over_moves_the_edges_and_the_next_request_sees_them() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 2, row(1), Exclusive, &[1]);
    wait(&mut graph, 3, row(1), Exclusive, &[1]);
    assert_eq!(graph.released(txn(1)), Wakes(vec![first]));
    let during_turn = graph.waits_for(txn(3));
    assert_eq!(graph.take(first), Wakes(vec![]));
    assert_eq!(
        graph.waits_for(txn(3)),
        during_turn,
        "3 waits for 2 before, during and after the hand-over"
    );
    let report = deadlock(ask(&mut graph, 2, row(8), Exclusive, &[3]));
    assert_eq!(members(&report), [2, 3]);
}

#[test]
fn a_waiter_that_waits_again_for_somebody_else_is_walked_again() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 2, row(1), Exclusive, &[1]);
    wait(&mut graph, 5, row(9), Exclusive, &[2]);
    assert_eq!(graph.released(txn(1)), Wakes(vec![first]));
    let report = deadlock(graph.requeue(first, &[txn(5)]));
    assert_eq!(members(&report), [2, 5]);
    assert_eq!(graph.waiting().count(), 1, "the victim has left the line");
}

#[test]
fn the_host_may_prefer_another_victim_which_is_woken_and_leaves() {
    let youngest = |circle: &[CircleMember]| {
        let ids = circle.iter().map(|member| member.txn);
        ids.enumerate().max_by_key(|(_, id)| *id).map_or(0, |(at, _)| at)
    };
    let mut graph = WaitGraph::new().with_preference(Box::new(youngest));
    let struck = wait(&mut graph, 9, row(1), Exclusive, &[1]);
    let behind = wait(&mut graph, 10, row(1), Exclusive, &[1]);
    let Enqueued::Waiting(token, Wakes(wakes)) = ask(&mut graph, 1, row(2), Exclusive, &[9]) else {
        panic!("the requester waits, another one is the victim");
    };
    assert_eq!(wakes, [struck]);
    assert_eq!(graph.state(struck), WaitState::Victim);
    let found = graph.take_deadlocks();
    let told: Vec<_> = found
        .iter()
        .map(|report| (report.victim, report.because))
        .collect();
    assert_eq!(told, [(txn(9), VictimBecause::HostPreferred)]);
    assert_eq!(graph.leave(struck), Wakes(vec![]));
    assert_eq!(
        graph.released(txn(9)),
        Wakes(vec![token]),
        "the victim rolls back, the requester goes on"
    );
    assert_eq!(graph.take(token), Wakes(vec![]));
    assert_eq!(graph.released(txn(1)), Wakes(vec![behind]));
}

#[test]
fn one_request_may_close_several_circles_and_each_gets_a_victim() {
    let not_the_requester = |circle: &[CircleMember]| circle.len() - 1;
    let mut graph = WaitGraph::new().with_preference(Box::new(not_the_requester));
    let one = wait(&mut graph, 2, row(1), Exclusive, &[1]);
    let two = wait(&mut graph, 3, row(4), Exclusive, &[1]);
    let Enqueued::Waiting(_, Wakes(mut wakes)) = ask(&mut graph, 1, row(7), Exclusive, &[2, 3]) else {
        panic!("the requester waits");
    };
    wakes.sort_unstable();
    assert_eq!(wakes, [one, two]);
    assert!(
        [one, two]
            .iter()
            .all(|token| graph.state(*token) == WaitState::Victim)
    );
}

#[test]
fn a_preference_out_of_range_means_the_requester() {
    let mut graph = WaitGraph::new().with_preference(Box::new(|circle| circle.len() + 3));
    wait(&mut graph, 1, row(2), Exclusive, &[2]);
    assert_eq!(
        deadlock(ask(&mut graph, 2, row(1), Exclusive, &[1])).victim,
        txn(2)
    );
}

#[test]
fn a_long_circle_wakes_its_victim_alone_and_its_report_is_short() {
    const MEMBERS: u64 = if cfg!(miri) { 40 } else { 1000 };
    const CHOSEN: usize = MEMBERS as usize * 7 / 10;
    for (wanted, shown) in [(0, CIRCLE_SHOWN_MAX), (CHOSEN, CIRCLE_SHOWN_MAX + 1)] {
        let mut graph = WaitGraph::new().with_preference(Box::new(move |_| wanted));
        let tokens: Vec<WaitToken> = (1..MEMBERS)
            .map(|id| wait(&mut graph, id, row(id + 1), Exclusive, &[id + 1]))
            .collect();
        let woken = match ask(&mut graph, MEMBERS, row(1), Exclusive, &[1]) {
            Enqueued::Deadlock(_, Wakes(woken)) | Enqueued::Waiting(_, Wakes(woken)) => woken,
            Enqueued::Free => panic!("the circle is closed"),
        };
        let found = graph.take_deadlocks();
        let [report] = found.as_slice() else {
            panic!("one circle was closed: {found:?}");
        };
        assert_eq!((report.circle.len(), report.members as u64), (shown, MEMBERS));
        assert_eq!(report.circle[0].txn, txn(MEMBERS));
        let victim = report.circle.iter().find(|member| member.txn == report.victim);
        assert!(victim.is_some(), "{report:?}");
        assert_eq!(victim.unwrap().txn == txn(MEMBERS), wanted == 0);
        // The walk goes from the last one to 1, 2, 3 and so on: the member at `CHOSEN` is the transaction of that number.
        let expected = if wanted == 0 {
            vec![]
        } else {
            vec![tokens[CHOSEN - 1]]
        };
        assert_eq!(woken, expected, "nobody but the victim is woken by the finding");
    }
}
