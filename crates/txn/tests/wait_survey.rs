//! T35: a survey of waits names holders and neighbours in line, in steps, whatever the length of a line.

use pbxt_base::ids::{IndexId, RowId, TableId, TxnId};
use pbxt_txn::LockMode::{self, Exclusive, Shared};
use pbxt_txn::{
    Enqueued, HOLDERS_SHOWN_MAX, Resource, WaitGraph, WaitRequest, WaitSeen, WaitState, WaitToken, Wakes,
};

fn txn(id: u64) -> TxnId {
    TxnId::new(id)
}

fn row(id: u64) -> Resource {
    Resource::Row(TableId::new(1), RowId::new(id))
}

fn wait(graph: &mut WaitGraph, id: u64, resource: Resource, mode: LockMode, blockers: &[u64]) -> WaitToken {
    let blockers: Vec<TxnId> = blockers.iter().copied().map(txn).collect();
    let request = WaitRequest {
        txn: txn(id),
        resource,
        mode,
        blockers: &blockers,
    };
    match graph.enqueue(request) {
        Enqueued::Waiting(token, _) => token,
        other => panic!("transaction {id} must wait: {other:?}"),
    }
}

/// Who, its holders, how many they are, who stands before it, how many they are.
type Told = (u64, Vec<u64>, usize, Option<u64>, usize);

fn told(seen: &WaitSeen) -> Told {
    (
        seen.txn.raw(),
        seen.holders().map(TxnId::raw).collect(),
        seen.holder_count,
        seen.ahead.map(TxnId::raw),
        seen.ahead_count,
    )
}

/// All of it, in steps of at most so many.
fn survey(graph: &WaitGraph, at_most: usize) -> Vec<WaitSeen> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let mut step = Vec::new();
        after = graph.survey(after, at_most, &mut step);
        assert!(step.len() <= at_most, "T35: a step of {} waits", step.len());
        all.extend(step);
        if after.is_none() {
            return all;
        }
    }
}

#[test]
fn a_line_names_its_holders_and_who_stands_right_before() {
    let mut graph = WaitGraph::new();
    wait(&mut graph, 2, row(5), Exclusive, &[1, 9]);
    wait(&mut graph, 3, row(5), Shared, &[]);
    wait(&mut graph, 4, row(5), Shared, &[]);
    wait(&mut graph, 6, row(5), Exclusive, &[1]);
    wait(&mut graph, 7, row(5), Exclusive, &[1]);
    let found = survey(&graph, 100);
    let expected = [
        (2, vec![1, 9], 2, None, 0),
        (3, vec![], 0, Some(2), 1),
        (4, vec![], 0, Some(2), 1),
        (6, vec![1], 1, Some(4), 3),
        (7, vec![1], 1, Some(6), 4),
    ];
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), expected);
    assert!(
        found
            .iter()
            .all(|seen| seen.resource == row(5) && seen.state == WaitState::Waiting)
    );
    assert_eq!(found[1].mode, Shared);
    for seen in &found {
        let all = graph.waits_for(seen.txn);
        assert_eq!(all.len(), seen.holder_count + seen.ahead_count, "{seen:?}");
        assert_eq!(graph.first_blocker(seen.txn), all.first().copied());
    }
}

#[test]
fn who_has_the_turn_is_seen_to_have_it() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 2, row(5), Exclusive, &[1]);
    wait(&mut graph, 3, row(5), Exclusive, &[1]);
    assert_eq!(graph.released(txn(1)), Wakes(vec![first]));
    let found = survey(&graph, 100);
    let states: Vec<_> = found.iter().map(|seen| (seen.txn.raw(), seen.state)).collect();
    assert_eq!(states, [(2, WaitState::Turn), (3, WaitState::Waiting)]);
    assert_eq!(
        told(&found[1]),
        (3, vec![], 0, Some(2), 1),
        "T13: 3 waits for 2 in line"
    );
}

#[test]
fn many_holders_are_counted_and_the_first_are_named() {
    let mut graph = WaitGraph::new();
    let holders: Vec<u64> = (10..50).collect();
    wait(
        &mut graph,
        1,
        Resource::Table(TableId::new(3)),
        Exclusive,
        &holders,
    );
    let found = survey(&graph, 100);
    let named: Vec<u64> = (10..10 + HOLDERS_SHOWN_MAX as u64).collect();
    assert_eq!(told(&found[0]), (1, named, 40, None, 0));
}

#[test]
fn steps_together_see_every_wait_once() {
    let mut graph = WaitGraph::new();
    for id in 1..=50 {
        wait(&mut graph, id, row(id % 13), Exclusive, &[1000]);
    }
    wait(
        &mut graph,
        60,
        Resource::Key(IndexId::new(4), 77),
        Exclusive,
        &[1000],
    );
    let whole: Vec<Told> = survey(&graph, usize::MAX).iter().map(told).collect();
    assert_eq!(whole.len(), 51);
    for at_most in [4, 5, 7, 50] {
        let found: Vec<Told> = survey(&graph, at_most).iter().map(told).collect();
        let ids: std::collections::BTreeSet<u64> = found.iter().map(|told| told.0).collect();
        assert_eq!(ids.len(), found.len(), "nobody twice");
        assert!(found.iter().all(|told| whole.contains(told)));
    }
}

#[test]
fn a_line_longer_than_a_step_is_cut_and_others_are_still_seen() {
    let mut graph = WaitGraph::new();
    for id in 1..=30 {
        wait(&mut graph, id, row(1), Exclusive, &[1000]);
    }
    wait(&mut graph, 40, row(2), Exclusive, &[1000]);
    let found = survey(&graph, 10);
    let ids: Vec<u64> = found.iter().map(|seen| seen.txn.raw()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 40]);
}
