//! T13, T15: lines, turns, passing on, holders that want more.

use pbxt_base::ids::{RowId, TableId, TxnId};
use pbxt_txn::LockMode::{self, Exclusive, Intent, Shared};
use pbxt_txn::{Enqueued, Resource, WaitGraph, WaitRequest, WaitState, WaitToken, Wakes};

const ROW: Resource = Resource::Row(TableId::new(1), RowId::new(5));

fn txn(id: u64) -> TxnId {
    TxnId::new(id)
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

/// A request that must wait, and wakes nobody.
fn wait(graph: &mut WaitGraph, id: u64, resource: Resource, mode: LockMode, blockers: &[u64]) -> WaitToken {
    match ask(graph, id, resource, mode, blockers) {
        Enqueued::Waiting(token, Wakes(wakes)) if wakes.is_empty() => token,
        other => panic!("transaction {id} must wait: {other:?}"),
    }
}

#[test]
fn waiters_get_their_turn_one_by_one_in_order_of_arrival() {
    let mut graph = WaitGraph::new();
    let tokens: Vec<WaitToken> = (2..=5)
        .map(|id| wait(&mut graph, id, ROW, Exclusive, &[1]))
        .collect();
    assert_eq!(
        graph.released(txn(1)),
        Wakes(vec![tokens[0]]),
        "one is woken, not four"
    );
    for pair in tokens.windows(2) {
        assert_eq!(graph.state(pair[0]), WaitState::Turn);
        assert_eq!(graph.state(pair[1]), WaitState::Waiting);
        let taker = graph.waiting().next().expect("the line is not empty").0;
        assert_eq!(graph.take(pair[0]), Wakes(vec![]), "the row is held now");
        assert_eq!(graph.released(taker), Wakes(vec![pair[1]]));
    }
    assert_eq!(graph.take(tokens[3]), Wakes(vec![]));
    assert_eq!(graph.waiting().count(), 0);
}

#[test]
fn a_woken_waiter_that_leaves_passes_its_turn_on() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 2, ROW, Exclusive, &[1]);
    let second = wait(&mut graph, 3, ROW, Exclusive, &[1]);
    let third = wait(&mut graph, 4, ROW, Exclusive, &[1]);
    assert_eq!(
        graph.leave(second),
        Wakes(vec![]),
        "one that sleeps leaves nothing behind"
    );
    assert_eq!(graph.released(txn(1)), Wakes(vec![first]));
    assert_eq!(
        graph.leave(first),
        Wakes(vec![third]),
        "timeout after the wake-up: the row is free, the next one runs"
    );
}

#[test]
fn who_does_not_wait_is_told_whom_it_would_wait_for() {
    // T14: the answer is that of a request, and nothing changes.
    let mut graph = WaitGraph::new();
    let would = |graph: &WaitGraph, id: u64, mode: LockMode, blockers: &[u64]| {
        let blockers: Vec<TxnId> = blockers.iter().copied().map(txn).collect();
        graph.would_wait_for(WaitRequest {
            txn: txn(id),
            resource: ROW,
            mode,
            blockers: &blockers,
        })
    };
    assert_eq!(would(&graph, 1, Exclusive, &[1]), None, "it has the row itself");
    let waiter = wait(&mut graph, 2, ROW, Shared, &[1]);
    assert_eq!(would(&graph, 3, Exclusive, &[1]), Some(txn(1)), "the holder");
    assert_eq!(would(&graph, 3, Exclusive, &[]), Some(txn(2)), "who is before it");
    assert_eq!(would(&graph, 3, Shared, &[]), None, "the modes go together");
    assert_eq!(
        would(&graph, 1, Exclusive, &[]),
        None,
        "who waits for it is behind it"
    );
    assert_eq!(graph.waiting().count(), 1);
    assert_eq!(graph.released(txn(1)), Wakes(vec![waiter]));
}

#[test]
fn a_newcomer_stands_in_line() {
    let mut graph = WaitGraph::new();
    let counts = graph.counts();
    assert!(!counts.may_have_waiters(ROW));
    assert_eq!(
        ask(&mut graph, 9, ROW, Exclusive, &[]),
        Enqueued::Free,
        "nobody waits, nobody holds"
    );
    assert!(!counts.may_have_waiters(ROW), "who need not wait is not counted");
    let first = wait(&mut graph, 2, ROW, Exclusive, &[1]);
    assert!(counts.may_have_waiters(ROW));
    let Wakes(woken) = graph.released(txn(1));
    assert_eq!(woken, [first]);
    let newcomer = wait(&mut graph, 3, ROW, Exclusive, &[]);
    assert_eq!(
        graph.waits_for(txn(3)),
        [txn(2)],
        "the row is free, but it is not the newcomer's turn"
    );
    assert_eq!(graph.leave(first), Wakes(vec![newcomer]));
    assert_eq!(graph.take(newcomer), Wakes(vec![]));
    assert!(!counts.may_have_waiters(ROW), "T15: counted out");
}

#[test]
fn who_wants_what_nobody_waits_for_stands_behind_nobody() {
    let mut graph = WaitGraph::new();
    let last = if cfg!(miri) { 3_000 } else { 9_000 };
    let neighbours = (6..last).map(|id| Resource::Row(TableId::new(1), RowId::new(id)));
    wait(&mut graph, 2, ROW, Shared, &[1]);
    assert!(graph.stands_against(ROW, Exclusive), "T15");
    assert!(!graph.stands_against(ROW, Shared), "T15: modes that go together");
    let counts = graph.counts();
    let suspected: Vec<Resource> = neighbours.filter(|row| counts.may_have_waiters(*row)).collect();
    assert!(!suspected.is_empty(), "a counter serves many rows");
    assert!(
        suspected.iter().all(|row| !graph.stands_against(*row, Exclusive)),
        "T15: the graph knows"
    );
}

#[test]
fn a_hand_over_in_a_long_line_tells_the_next_one_and_the_others_wait_through_it() {
    let mut graph = WaitGraph::new();
    let tokens = [2, 3, 4].map(|id| wait(&mut graph, id, ROW, Exclusive, &[1]));
    assert_eq!(graph.released(txn(1)), Wakes(vec![tokens[0]]));
    assert_eq!(graph.take(tokens[0]), Wakes(vec![]));
    assert_eq!(
        (graph.waits_for(txn(3)), graph.waits_for(txn(4))),
        (vec![txn(2)], vec![txn(3)])
    );
    assert_eq!(
        graph.leave(tokens[1]),
        Wakes(vec![tokens[2]]),
        "T13: nobody told the last one who holds the row: it judges again"
    );
    assert!(matches!(
        graph.requeue(tokens[2], &[txn(2)]),
        Enqueued::Waiting(..)
    ));
    assert_eq!(graph.waits_for(txn(4)), [txn(2)]);
    let other = Resource::Table(TableId::new(8));
    let closed = ask(&mut graph, 2, other, Exclusive, &[4]);
    assert!(
        matches!(closed, Enqueued::Deadlock(..)),
        "T14: 2 waits for 4, which waits for 2"
    );
}

#[test]
fn shared_waiters_get_the_turn_together_and_an_exclusive_one_parts_them() {
    let mut graph = WaitGraph::new();
    let shared = [2, 3].map(|id| wait(&mut graph, id, ROW, Shared, &[1]));
    let exclusive = wait(&mut graph, 4, ROW, Exclusive, &[1]);
    let late = wait(&mut graph, 5, ROW, Shared, &[1]);
    assert_eq!(graph.released(txn(1)), Wakes(shared.to_vec()));
    assert_eq!(graph.take(shared[0]), Wakes(vec![]));
    assert_eq!(graph.take(shared[1]), Wakes(vec![]));
    assert_eq!(
        graph.waits_for(txn(4)),
        [txn(2), txn(3)],
        "hand-over: the takers are the holders"
    );
    assert_eq!(graph.released(txn(2)), Wakes(vec![]));
    assert_eq!(graph.released(txn(3)), Wakes(vec![exclusive]));
    assert_eq!(graph.leave(exclusive), Wakes(vec![late]));
}

#[test]
fn one_resource_given_up_early_wakes_its_line_only() {
    let mut graph = WaitGraph::new();
    let other = Resource::Table(TableId::new(8));
    let for_row = wait(&mut graph, 2, ROW, Exclusive, &[1]);
    let for_table = wait(&mut graph, 3, other, Intent, &[1]);
    assert_eq!(graph.released_one(txn(1), ROW), Wakes(vec![for_row]));
    assert_eq!(graph.released(txn(1)), Wakes(vec![for_table]));
}

#[test]
fn a_rollback_to_a_savepoint_wakes_only_where_something_became_free() {
    let mut graph = WaitGraph::new();
    let kept = Resource::Row(TableId::new(1), RowId::new(6));
    let for_row = wait(&mut graph, 2, ROW, Exclusive, &[1]);
    let for_kept = wait(&mut graph, 3, kept, Exclusive, &[1]);
    let woken = graph.rolled_back(txn(1), |resource, mode| {
        assert_eq!(mode, Exclusive);
        resource == kept
    });
    assert_eq!(woken, Wakes(vec![for_row]));
    assert_eq!(
        graph.waits_for(txn(3)),
        [txn(1)],
        "T14: an edge that is still true is never forgotten"
    );
    assert_eq!(graph.released(txn(1)), Wakes(vec![for_kept]));
}

#[test]
fn a_woken_waiter_that_meets_a_new_holder_keeps_its_place() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 2, ROW, Exclusive, &[1]);
    let second = wait(&mut graph, 3, ROW, Exclusive, &[1]);
    assert_eq!(
        graph.released(txn(1)),
        Wakes(vec![first]),
        "rolled back to a savepoint: judge again"
    );
    assert_eq!(graph.requeue(first, &[]), Enqueued::Free);
    assert_eq!(graph.state(first), WaitState::Turn, "free: still its turn");
    assert_eq!(
        graph.requeue(first, &[txn(1)]),
        Enqueued::Waiting(first, Wakes(vec![])),
        "the row was not void"
    );
    assert_eq!(graph.state(first), WaitState::Waiting);
    assert_eq!(graph.waits_for(txn(3)), [txn(2)]);
    assert_eq!(graph.released(txn(1)), Wakes(vec![first]));
    assert_eq!(graph.leave(first), Wakes(vec![second]));
}

#[test]
fn a_holder_that_wants_more_goes_in_before_those_that_wait_for_it() {
    let mut graph = WaitGraph::new();
    let waiter = wait(&mut graph, 3, ROW, Exclusive, &[1, 2]);
    let upgrade = wait(&mut graph, 1, ROW, Exclusive, &[2]);
    assert_eq!(
        graph.released(txn(2)),
        Wakes(vec![upgrade]),
        "T13: otherwise 1 would wait for 3, which waits for 1"
    );
    assert_eq!(graph.take(upgrade), Wakes(vec![]));
    assert_eq!(graph.released(txn(1)), Wakes(vec![waiter]));
}

#[test]
fn the_end_of_a_transaction_wakes_all_that_wait_for_nothing_else() {
    let mut graph = WaitGraph::new();
    let end = Resource::Txn(txn(1));
    let tokens: Vec<WaitToken> = (2..=6)
        .map(|id| wait(&mut graph, id, end, Exclusive, &[1]))
        .collect();
    assert!(
        graph.waits_for(txn(6)) == [txn(1)],
        "claims of different keys do not wait for each other"
    );
    assert_eq!(graph.released(txn(1)), Wakes(tokens.clone()));
    for token in tokens {
        assert_eq!(graph.take(token), Wakes(vec![]));
    }
    assert_eq!(graph.waiting().count(), 0);
}

#[test]
fn past_a_line_the_holder_is_who_the_line_waits_for() {
    let mut graph = WaitGraph::new();
    let first = wait(&mut graph, 2, ROW, Exclusive, &[1]);
    assert_eq!(graph.taken_by_newcomer(txn(7), ROW, Shared), Wakes(vec![]));
    assert_eq!(graph.released(txn(1)), Wakes(vec![]));
    assert_eq!(graph.released(txn(7)), Wakes(vec![first]));
}

#[test]
fn hundreds_of_waiters_on_one_row_are_served_without_a_storm() {
    let mut graph = WaitGraph::new();
    let waiters = if cfg!(miri) { 20 } else { 500 };
    let tokens: Vec<WaitToken> = (2..2 + waiters)
        .map(|id| wait(&mut graph, id, ROW, Exclusive, &[1]))
        .collect();
    let mut owner = txn(1);
    for (id, token) in (2..).zip(tokens) {
        assert_eq!(
            graph.released(owner),
            Wakes(vec![token]),
            "T13: one wake-up per release"
        );
        assert_eq!(graph.take(token), Wakes(vec![]));
        owner = txn(id);
    }
}

#[test]
#[should_panic(expected = "T13")]
fn a_transaction_waits_for_one_thing_at_a_time() {
    let mut graph = WaitGraph::new();
    wait(&mut graph, 2, ROW, Exclusive, &[1]);
    wait(&mut graph, 2, Resource::Table(TableId::new(8)), Shared, &[1]);
}
