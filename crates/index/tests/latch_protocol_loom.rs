//! The latch protocol under loom: all interleavings of small cases, up to a number of preemptions.
//!
//! Nodes have two and three slots in this build, so a handful of entries brings splits of leaves, a new root and a split
//! inner node. Run with `RUSTFLAGS="--cfg loom" cargo test --release -p pbxt-index --test latch_protocol_loom`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use pbxt_base::{Lsn, RowId, TxnId};
use pbxt_index::{Batch, EntryRef, SeekPos, Sign, Tree};

fn insert(tree: &Tree, key: u8) -> EntryRef {
    tree.insert(
        &[key],
        RowId::new(1),
        TxnId::new(1),
        Lsn::new(8),
        Sign::Entry,
        &[],
    )
    .unwrap()
}

fn tree_of(keys: &[u8]) -> Arc<Tree> {
    let tree = Tree::new();
    for &key in keys {
        insert(&tree, key);
    }
    Arc::new(tree)
}

fn keys(tree: &Tree, forward: bool, max: usize) -> Vec<u8> {
    let mut batch = Batch::new();
    if forward {
        tree.read_batch_forward(&SeekPos::START, &mut batch, max);
    } else {
        tree.read_batch_backward(&SeekPos::END, &mut batch, max);
    }
    let mut keys = Vec::new();
    while !batch.is_empty() {
        keys.extend(batch.entries(tree).map(|entry| entry.key()[0]));
        tree.read_batch_on(&mut batch, max);
    }
    keys
}

fn explore(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(case);
}

/// What a reader may see that runs beside one insert: everything that was there, in order, with or without the new one.
fn assert_seen(mut seen: Vec<u8>, before: &[u8], new: u8, forward: bool) {
    if !forward {
        seen.reverse();
    }
    assert!(seen.is_sorted_by(|left, right| left < right), "X1: {seen:?}");
    seen.retain(|&key| key != new);
    assert_eq!(seen, before);
}

#[test]
fn two_inserts_into_one_full_leaf_both_arrive() {
    explore(2, || {
        let tree = tree_of(&[10, 20]);
        let other = Arc::clone(&tree);
        let worker = thread::spawn(move || {
            insert(&other, 15);
        });
        insert(&tree, 5);
        worker.join().unwrap();
        tree.check().unwrap();
        assert_eq!(keys(&tree, true, 10), [5, 10, 15, 20]);
    });
}

#[test]
fn two_ascending_inserts_at_the_right_edge_both_arrive() {
    explore(2, || {
        let tree = tree_of(&[10, 20]);
        let other = Arc::clone(&tree);
        let worker = thread::spawn(move || {
            insert(&other, 30);
        });
        insert(&tree, 40);
        worker.join().unwrap();
        tree.check().unwrap();
        assert_eq!(keys(&tree, true, 10), [10, 20, 30, 40]);
    });
}

#[test]
fn insert_that_splits_an_inner_node_and_insert_beside_it_both_arrive() {
    explore(2, || {
        let tree = tree_of(&[10, 20, 30, 40, 50]);
        assert_eq!(tree.depth(), 2);
        let other = Arc::clone(&tree);
        let worker = thread::spawn(move || {
            insert(&other, 25);
        });
        insert(&tree, 60);
        worker.join().unwrap();
        tree.check().unwrap();
        assert_eq!(tree.depth(), 3, "the full root was split");
        assert_eq!(keys(&tree, true, 10), [10, 20, 25, 30, 40, 50, 60]);
    });
}

/// A reader beside an insert into the leaves (10 15) (20) (30 40); `new` belongs into a full one and splits it.
fn read_beside_split(new: u8, forward: bool) {
    explore(2, move || {
        let tree = tree_of(&[10, 20, 30, 40, 15]);
        let other = Arc::clone(&tree);
        let worker = thread::spawn(move || {
            insert(&other, new);
        });
        assert_seen(keys(&tree, forward, 3), &[10, 15, 20, 30, 40], new, forward);
        worker.join().unwrap();
        tree.check().unwrap();
    });
}

#[test]
fn forward_reader_beside_a_split_sees_every_old_entry_once() {
    read_beside_split(12, true);
    read_beside_split(35, true);
}

#[test]
fn backward_reader_beside_a_split_sees_every_old_entry_once() {
    read_beside_split(12, false);
    read_beside_split(35, false);
}

#[test]
fn dead_mark_beside_a_split_is_counted_in_the_right_leaf() {
    explore(2, || {
        let tree = Tree::new();
        insert(&tree, 10);
        let dead = insert(&tree, 20);
        let tree = Arc::new(tree);
        let other = Arc::clone(&tree);
        let worker = thread::spawn(move || {
            insert(&other, 15);
        });
        assert!(tree.mark_dead(dead));
        worker.join().unwrap();
        tree.check().unwrap();
        assert!(!tree.mark_dead(dead));
        assert_eq!(keys(&tree, true, 10), [10, 15]);
    });
}

#[test]
fn of_two_who_insert_a_key_and_then_count_it_one_sees_both() {
    explore(2, || {
        let tree = tree_of(&[10, 20]);
        let other = Arc::clone(&tree);
        let claim = |tree: &Tree, row: u64| {
            tree.insert(
                &[15],
                RowId::new(row),
                TxnId::new(1),
                Lsn::new(8),
                Sign::Entry,
                &[],
            )
            .unwrap();
            tree.key_group(&[15]).entries()
        };
        let worker = thread::spawn(move || claim(&other, 1));
        let mine = claim(&tree, 2);
        let theirs = worker.join().unwrap();
        assert_eq!(mine.max(theirs), 2);
    });
}

#[test]
fn group_that_changed_before_the_question_is_seen_to_have_changed() {
    explore(2, || {
        let tree = tree_of(&[10, 20]);
        let group = tree.key_group(&[15]);
        let other = Arc::clone(&tree);
        let worker = thread::spawn(move || {
            insert(&other, 15);
        });
        insert(&tree, 12);
        worker.join().unwrap();
        assert!(tree.group_changed(&[15], &group));
        assert!(!tree.group_changed(&[17], &Tree::new().key_group(&[17])));
    });
}
