//! T29, T31, T32, T33 on the graph alone: who is ended, and what is forgotten.

use super::*;

fn begin(graph: &mut SerialGraph) -> (SerialId, Arc<VictimFlag>) {
    graph.begin(false).expect("only readers may do without a node")
}

/// The graph's way of saying: `reader` has read what `writer` changes.
fn edge(graph: &mut SerialGraph, reader: SerialId, writer: SerialId) {
    graph.overwrote(writer, &[reader]);
}

fn write(graph: &mut SerialGraph, id: SerialId) {
    graph.note_write(id, TxnId::new(1000 + id.0), TableId::new(1));
}

fn write_all<const N: usize>(graph: &mut SerialGraph, ids: [SerialId; N]) {
    for id in ids {
        write(graph, id);
    }
}

fn commit(graph: &mut SerialGraph, id: SerialId) -> Result<(), Unserializable> {
    graph.may_commit(id)?;
    graph.committed(id, Arc::new(OwnFootprint::default()));
    Ok(())
}

fn prepare(graph: &mut SerialGraph, id: SerialId) -> Result<(), Unserializable> {
    graph.may_prepare(id)?;
    graph.prepared(id);
    Ok(())
}

#[test]
fn of_two_that_stand_before_each_other_the_first_to_commit_wins() {
    // T29: write skew.
    let mut graph = SerialGraph::default();
    let [(one, _), (two, victim)] = [begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [one, two]);
    edge(&mut graph, one, two);
    edge(&mut graph, two, one);
    assert!(!victim.is_chosen(), "nobody has committed");
    commit(&mut graph, one).unwrap();
    assert!(victim.is_chosen());
    assert_eq!(commit(&mut graph, two), Err(Unserializable));
}

#[test]
fn of_two_that_stand_before_each_other_it_does_not_matter_when_that_comes_out() {
    // T29: the same, found after the commit.
    let mut graph = SerialGraph::default();
    let [(one, _), (two, victim)] = [begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [one, two]);
    edge(&mut graph, one, two);
    commit(&mut graph, one).unwrap();
    graph.passed_over(two, TxnId::new(1000 + one.0));
    assert!(victim.is_chosen());
}

#[test]
fn two_in_a_row_are_no_danger_while_the_last_has_not_committed_first() {
    // T29: T1 -> T2 -> T3 in the order T1, T2, T3 and T2, T1, T3.
    for order in [[0, 1, 2], [1, 0, 2]] {
        let mut graph = SerialGraph::default();
        let txns = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
        write_all(&mut graph, txns.each_ref().map(|(id, _)| *id));
        edge(&mut graph, txns[0].0, txns[1].0);
        edge(&mut graph, txns[1].0, txns[2].0);
        for at in order {
            commit(&mut graph, txns[at].0).unwrap();
        }
    }
}

#[test]
fn the_pivot_is_ended_when_the_last_of_three_commits_first() {
    // T29.
    let mut graph = SerialGraph::default();
    let txns = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, txns.each_ref().map(|(id, _)| *id));
    edge(&mut graph, txns[0].0, txns[1].0);
    edge(&mut graph, txns[1].0, txns[2].0);
    commit(&mut graph, txns[2].0).unwrap();
    assert!(txns[1].1.is_chosen());
    commit(&mut graph, txns[0].0).unwrap();
}

/// T1 reads only, T2 stands after it and before T3, which commits before or after T1 begins.
fn with_a_reader(commits_before: bool) -> bool {
    let mut graph = SerialGraph::default();
    let [pivot, last] = [begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [pivot.0, last.0]);
    edge(&mut graph, pivot.0, last.0);
    if commits_before {
        commit(&mut graph, last.0).unwrap();
    }
    let (reader, flag) = graph.begin(true).expect("writers run beside it");
    edge(&mut graph, reader, pivot.0);
    if !commits_before {
        commit(&mut graph, last.0).unwrap();
    }
    commit(&mut graph, reader).unwrap();
    assert!(!flag.is_chosen(), "the pivot can be ended");
    commit(&mut graph, pivot.0).is_err()
}

#[test]
fn a_reader_is_dangerous_only_if_it_sees_the_last_of_the_three() {
    // T29: Fekete, O'Neil, O'Neil 2004; and the refinement of Ports and Grittner, section 4.1.
    assert!(with_a_reader(true));
    assert!(!with_a_reader(false));
}

#[test]
fn who_committed_without_a_change_was_a_reader() {
    // T29: it did not say so before.
    let mut graph = SerialGraph::default();
    let [reader, pivot, last] = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [pivot.0, last.0]);
    edge(&mut graph, reader.0, pivot.0);
    commit(&mut graph, reader.0).unwrap();
    edge(&mut graph, pivot.0, last.0);
    commit(&mut graph, last.0).unwrap();
    commit(&mut graph, pivot.0).unwrap();
}

#[test]
fn a_reader_needs_no_node_while_no_writer_runs() {
    // T30.
    let mut graph = SerialGraph::default();
    assert!(graph.begin(true).is_none());
    let (writer, _) = begin(&mut graph);
    let (reader, _) = graph.begin(true).expect("a writer runs");
    commit(&mut graph, writer).unwrap();
    assert!(
        graph.begin(true).is_none(),
        "readers do not stand in each other's way"
    );
    graph.aborted(reader);
    graph.adopt(TxnId::new(7), Vec::new());
    assert!(graph.begin(true).is_some(), "a prepared one may still commit");
}

#[test]
fn a_prepared_transaction_is_no_victim() {
    // T32: as the first of the two, as the pivot and as the last.
    for prepared in 0..3 {
        let mut graph = SerialGraph::default();
        let txns = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
        write_all(&mut graph, txns.each_ref().map(|(id, _)| *id));
        edge(&mut graph, txns[0].0, txns[1].0);
        edge(&mut graph, txns[1].0, txns[2].0);
        let before = prepare(&mut graph, txns[prepared].0);
        assert_eq!(before, Ok(()));
        let ends = [2, 1, 0].map(|at| {
            let end = commit(&mut graph, txns[at].0);
            if end.is_err() {
                graph.aborted(txns[at].0);
            }
            end.is_ok()
        });
        assert!(ends[2 - prepared], "transaction {prepared} was prepared");
        assert!(
            !ends.iter().all(|committed| *committed),
            "T3 would have committed first of all three"
        );
    }
}

#[test]
fn two_prepared_ones_never_stand_before_each_other() {
    // T32: the vote is the moment at which it is decided.
    let mut graph = SerialGraph::default();
    let [one, two] = [begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [one.0, two.0]);
    edge(&mut graph, one.0, two.0);
    edge(&mut graph, two.0, one.0);
    prepare(&mut graph, one.0).unwrap();
    assert_eq!(prepare(&mut graph, two.0), Err(Unserializable));
    commit(&mut graph, one.0).unwrap();
}

#[test]
fn who_does_not_see_an_adopted_one_is_ended_until_it_is_decided() {
    // T33.
    let mut graph = SerialGraph::default();
    let found = TxnId::new(7);
    let (adopted, _) = graph.adopt(found, vec![TableId::new(3)]);
    let [one, two, three] = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    graph.passed_over(one.0, found);
    assert!(one.1.is_chosen());
    graph.counted(two.0, TableId::new(3));
    assert!(two.1.is_chosen(), "it has changed how many rows there are");
    graph.counted(three.0, TableId::new(4));
    assert!(!three.1.is_chosen());
    commit(&mut graph, adopted).unwrap();
    graph.passed_over(three.0, found);
    assert!(three.1.is_chosen(), "it began before");
    let later = begin(&mut graph);
    graph.counted(later.0, TableId::new(3));
    assert!(!later.1.is_chosen(), "it sees the changes");
}

#[test]
fn nothing_is_kept_when_nobody_runs_any_more() {
    // T31.
    let mut graph = SerialGraph::default();
    let (old, _) = begin(&mut graph);
    let mut released = Vec::new();
    for _ in 0..10 {
        let (id, _) = begin(&mut graph);
        write(&mut graph, id);
        commit(&mut graph, id).unwrap();
        graph.sweep(&mut released);
    }
    assert_eq!(
        (graph.len(), released.len()),
        (11, 0),
        "the old one runs beside all of them"
    );
    graph.aborted(old);
    graph.sweep(&mut released);
    assert_eq!((graph.len(), graph.by_txn.len(), released.len()), (0, 0, 10));
}

#[test]
fn a_prepared_transaction_keeps_nobody_else() {
    // T31: it reads and changes nothing any more.
    let mut graph = SerialGraph::default();
    let (prepared, _) = begin(&mut graph);
    write(&mut graph, prepared);
    prepare(&mut graph, prepared).unwrap();
    let (other, _) = begin(&mut graph);
    commit(&mut graph, other).unwrap();
    graph.sweep(&mut Vec::new());
    assert_eq!(graph.len(), 1);
}

#[test]
fn a_summary_knows_enough_to_end_who_would_close_a_circle() {
    // T31: as the one before the pivot, as the one after it, and as the pivot.
    let one_summarised = |graph: &mut SerialGraph, id: SerialId| {
        commit(graph, id).unwrap();
        graph.summarise(&[id], &mut Vec::new());
        assert!(!graph.nodes.contains_key(&id));
    };
    let mut graph = SerialGraph::default();
    let [first, pivot, last] = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [first.0, pivot.0, last.0]);
    one_summarised(&mut graph, last.0);
    one_summarised(&mut graph, first.0);
    edge(&mut graph, SerialId::SUMMARY, pivot.0);
    graph.passed_over(pivot.0, TxnId::new(1000 + last.0.0));
    assert!(
        pivot.1.is_chosen(),
        "the first is in the summary, by its footprint"
    );

    let mut graph = SerialGraph::default();
    let [first, pivot, last] = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [first.0, pivot.0, last.0]);
    one_summarised(&mut graph, last.0);
    edge(&mut graph, first.0, pivot.0);
    graph.passed_over(pivot.0, TxnId::new(1000 + last.0.0));
    assert!(pivot.1.is_chosen(), "the last is in the summary");

    let mut graph = SerialGraph::default();
    let [first, pivot, last] = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [first.0, pivot.0, last.0]);
    edge(&mut graph, pivot.0, last.0);
    one_summarised(&mut graph, last.0);
    commit(&mut graph, pivot.0).unwrap();
    graph.summarise(&[pivot.0], &mut Vec::new());
    graph.passed_over(first.0, TxnId::new(1000 + pivot.0.0));
    assert!(first.1.is_chosen(), "the pivot is in the summary");
}

#[test]
fn an_antidependency_from_before_the_summary_still_counts() {
    // T31.
    let mut graph = SerialGraph::default();
    let [first, pivot, last] = [begin(&mut graph), begin(&mut graph), begin(&mut graph)];
    write_all(&mut graph, [first.0, pivot.0, last.0]);
    edge(&mut graph, first.0, pivot.0);
    commit(&mut graph, last.0).unwrap();
    commit(&mut graph, first.0).unwrap();
    // Oldest first: the last one goes too.
    graph.summarise(&[last.0, first.0], &mut Vec::new());
    graph.passed_over(pivot.0, TxnId::new(1000 + last.0.0));
    assert!(pivot.1.is_chosen());
}
