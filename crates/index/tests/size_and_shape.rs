//! What a tree costs and what shape it takes.
#![cfg(all(not(loom), not(miri)))]

use pbxt_base::{Error, Lsn, RowId, TxnId};
use pbxt_index::{Batch, KEY_BYTES_MAX, SeekPos, Sign, Tree};

fn insert(tree: &Tree, key: &[u8], row: u64) -> pbxt_index::EntryRef {
    tree.insert(key, RowId::new(row), TxnId::new(1), Lsn::new(8), Sign::Entry, &[])
        .expect("an entry this small fits")
}

fn number_key(number: u32) -> [u8; 4] {
    [
        (number >> 24) as u8,
        (number >> 16) as u8,
        (number >> 8) as u8,
        number as u8,
    ]
}

#[test]
fn empty_and_tiny_trees_are_cheap() {
    let tree = Tree::new();
    assert!(tree.memory_bytes() < 200);
    assert_eq!((tree.len(), tree.depth()), (0, 0));
    insert(&tree, b"k", 1);
    assert!(tree.memory_bytes() < 2048, "{} bytes", tree.memory_bytes());
    assert_eq!((tree.len(), tree.depth()), (1, 1));
}

#[test]
fn empty_tree_answers_every_question() {
    let tree = Tree::new();
    let mut batch = Batch::new();
    tree.read_batch_forward(&SeekPos::START, &mut batch, 10);
    assert!(batch.is_empty() && batch.reached_end());
    tree.read_batch_on(&mut batch, 10);
    assert!(batch.is_empty());
    assert_eq!(tree.range_count_estimate(&SeekPos::START, &SeekPos::END), 0);
    let group = tree.key_group(b"k");
    assert!(!tree.group_changed(b"k", &group));
    insert(&tree, b"k", 1);
    assert!(tree.group_changed(b"k", &group));
    assert_eq!(tree.check(), Ok(()));
}

#[test]
fn ascending_load_leaves_full_leaves_behind() {
    let (ascending, scattered) = (Tree::new(), Tree::new());
    for number in 0..200_000_u32 {
        insert(&ascending, &number_key(number), 1);
        insert(&scattered, &number_key(number.wrapping_mul(2_654_435_761)), 1);
    }
    assert_eq!(ascending.check(), Ok(()));
    assert_eq!(scattered.check(), Ok(()));
    // 32 bytes of entry and 8 of slot; a leaf that is 94 % full adds a few bytes, one that is half full adds 8.
    assert!(
        ascending.memory_bytes() < 200_000 * 43,
        "{}",
        ascending.memory_bytes()
    );
    assert!(
        scattered.memory_bytes() < 200_000 * 48,
        "{}",
        scattered.memory_bytes()
    );
}

#[test]
fn estimates_of_long_ranges_are_close() {
    let tree = Tree::new();
    for number in 0..200_000_u32 {
        insert(&tree, &number_key(number.wrapping_mul(2_654_435_761)), 1);
    }
    for (from, to) in [(0, u32::MAX / 2), (1 << 30, 3 << 30), (1 << 28, 1 << 29)] {
        let expected = (f64::from(to) - f64::from(from)) / f64::from(u32::MAX) * 200_000.0;
        let (low, high) = (number_key(from), number_key(to));
        let guess =
            tree.range_count_estimate(&SeekPos::lower_bound(&low), &SeekPos::upper_bound(&high)) as f64;
        assert!(
            (guess - expected).abs() < expected * 0.25,
            "expected {expected}, estimated {guess}"
        );
    }
}

#[test]
fn poll_of_a_queue_with_a_dead_head_passes_whole_leaves() {
    const JOBS: u32 = 100_000;
    let tree = Tree::new();
    let jobs: Vec<_> = (0..JOBS)
        .map(|number| insert(&tree, &number_key(number), 1))
        .collect();
    jobs.iter()
        .take(JOBS as usize - 1)
        .for_each(|&job| assert!(tree.mark_dead(job)));
    let mut batch = Batch::new();
    tree.read_batch_forward(&SeekPos::START, &mut batch, 1);
    let found = batch.entry(&tree, 0).unwrap();
    assert_eq!(found.key(), number_key(JOBS - 1));
    assert_eq!(tree.check(), Ok(()));
}

#[test]
fn longest_keys_are_taken_and_longer_ones_refused() {
    let tree = Tree::new();
    let mut key = vec![7; KEY_BYTES_MAX];
    for last in 0..=255 {
        key[KEY_BYTES_MAX - 1] = last;
        tree.insert(&key, RowId::new(1), TxnId::new(1), Lsn::new(8), Sign::Entry, &key)
            .unwrap();
    }
    assert_eq!(tree.check(), Ok(()));
    key.push(0);
    let refused = tree.insert(&key, RowId::new(1), TxnId::new(1), Lsn::new(8), Sign::Entry, &[]);
    assert!(matches!(
        refused,
        Err(Error::TooLarge {
            bytes: 65_536,
            limit: 65_535,
            ..
        })
    ));
    assert_eq!(tree.len(), 256);
}

#[test]
#[should_panic(expected = "X8")]
fn entry_of_another_tree_is_refused() {
    let (one, other) = (Tree::new(), Tree::new());
    let entry = insert(&one, b"k", 1);
    insert(&other, b"k", 1);
    other.mark_dead(entry);
}

#[test]
#[should_panic(expected = "X8")]
fn batch_of_another_tree_is_refused() {
    let (one, other) = (Tree::new(), Tree::new());
    insert(&one, b"k", 1);
    insert(&other, b"k", 1);
    let mut batch = Batch::new();
    one.read_batch_forward(&SeekPos::START, &mut batch, 1);
    batch.entry(&other, 0);
}

#[test]
#[expect(clippy::big_endian_bytes, reason = "keys order as big-endian numbers do")]
fn samples_come_from_all_over_the_tree_in_its_order() {
    let tree = Tree::new();
    let mut batch = Batch::new();
    tree.sample(0.5, &mut batch);
    assert!(batch.is_empty());
    for number in 0..20_000_u32 {
        insert(&tree, &number_key(number.wrapping_mul(7919) % 20_000), 1);
    }
    let mut last = 0;
    for step in 0..20_u32 {
        tree.sample((f64::from(step) + 0.5) / 20.0, &mut batch);
        let keys: Vec<u32> = batch
            .entries(&tree)
            .map(|entry| u32::from_be_bytes(entry.key().try_into().expect("four bytes")))
            .collect();
        assert!(
            keys.len() > 30 && keys.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{keys:?}"
        );
        assert!(keys[0] > last || step == 0, "step {step} begins at {}", keys[0]);
        assert!(
            keys[0].abs_diff(step * 1000) < 2500,
            "step {step} begins at {}",
            keys[0]
        );
        last = keys[0];
    }
    tree.sample(0.0, &mut batch);
    assert_eq!(
        batch.entry(&tree, 0).map(|entry| entry.key().to_vec()),
        Some(vec![0; 4])
    );
    tree.sample(7.0, &mut batch);
    let end = batch
        .entry(&tree, batch.len() - 1)
        .map(|entry| entry.key().to_vec());
    assert_eq!(end, Some(number_key(19_999).to_vec()));
}
