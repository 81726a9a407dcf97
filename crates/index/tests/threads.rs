//! Many threads at once: writers of several patterns, readers in both directions, and those who mark entries dead.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use pbxt_base::{Lsn, RowId, TxnId};
use pbxt_index::{Batch, SeekPos, Sign, Tree};

const EACH: u64 = if cfg!(miri) { 40 } else { 60_000 };

fn key_of(number: u64) -> [u8; 8] {
    let mut key = [0; 8];
    key.iter_mut()
        .enumerate()
        .for_each(|(index, byte)| *byte = (number >> (56 - 8 * index)) as u8);
    key
}

fn number_of(key: &[u8]) -> u64 {
    key.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn insert(tree: &Tree, number: u64) -> pbxt_index::EntryRef {
    let row = RowId::new(number + 1);
    tree.insert(&key_of(number), row, TxnId::new(1), Lsn::new(8), Sign::Entry, &[])
        .expect("an entry this small fits")
}

/// Writer `writer` of `writers` puts in the numbers that leave this remainder, in an order of its own.
fn numbers(writer: u64, writers: u64) -> impl Iterator<Item = u64> {
    let order = move |step: u64| match writer % 3 {
        0 => step,
        1 => EACH - 1 - step,
        _ => step * 7919 % EACH,
    };
    (0..EACH).map(move |step| order(step) * writers + writer)
}

/// One walk through the whole tree; returns how many entries it met and checks that they only go one way.
fn walk(tree: &Tree, forward: bool, batch: &mut Batch, max: usize) -> u64 {
    if forward {
        tree.read_batch_forward(&SeekPos::START, batch, max);
    } else {
        tree.read_batch_backward(&SeekPos::END, batch, max);
    }
    let (mut seen, mut last) = (0, None);
    while !batch.is_empty() {
        for entry in batch.entries(tree) {
            let number = number_of(entry.key());
            assert_eq!(
                entry.row().raw(),
                number + 1,
                "X2: an entry's fields belong together"
            );
            let goes_on = last.is_none_or(|last| if forward { last < number } else { last > number });
            assert!(goes_on, "X1: {number} after {last:?}");
            last = Some(number);
            seen += 1;
        }
        tree.read_batch_on(batch, max);
    }
    seen
}

#[test]
fn writers_of_every_pattern_and_readers_get_along() {
    const WRITERS: u64 = 4;
    let tree = Tree::new();
    let running = AtomicBool::new(true);
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (tree, inserted) = (&tree, &inserted);
                scope.spawn(move || {
                    for number in numbers(writer, WRITERS) {
                        insert(tree, number);
                        inserted.fetch_add(1, Ordering::AcqRel);
                    }
                })
            })
            .collect();
        for forward in [true, false] {
            let (tree, running, inserted) = (&tree, &running, &inserted);
            scope.spawn(move || {
                let mut batch = Batch::new();
                while running.load(Ordering::Acquire) {
                    let at_least = inserted.load(Ordering::Acquire);
                    let seen = walk(tree, forward, &mut batch, 100);
                    assert!(
                        seen >= at_least,
                        "X8: a walk misses nothing that was there when it began"
                    );
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        running.store(false, Ordering::Release);
    });
    assert_eq!(tree.check(), Ok(()));
    let mut batch = Batch::new();
    assert_eq!(walk(&tree, true, &mut batch, 1000), WRITERS * EACH);
    assert_eq!(walk(&tree, false, &mut batch, 1), WRITERS * EACH);
}

#[test]
fn dead_marks_and_splits_agree_on_the_counts() {
    let tree = Tree::new();
    thread::scope(|scope| {
        for writer in 0..3 {
            let tree = &tree;
            scope.spawn(move || {
                let mut recent = Vec::new();
                for number in numbers(writer, 3) {
                    recent.push(insert(tree, number));
                    if recent.len() == 8 {
                        // Seven of eight die, so that whole leaves do now and then.
                        for entry in recent.drain(..).skip(1) {
                            assert!(tree.mark_dead(entry));
                        }
                    }
                }
            });
        }
    });
    assert_eq!(tree.check(), Ok(()));
    let left = 3 * (EACH / 8 + EACH % 8);
    assert_eq!(walk(&tree, true, &mut Batch::new(), 50), left);
    assert_eq!(walk(&tree, false, &mut Batch::new(), 50), left);
}
