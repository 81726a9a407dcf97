//! How fast the tree is on this machine: inserts ascending and random, seeks, scans, bytes per entry.
//!
//! Usage: `cargo run --release -p pbxt-index --example tree_speed [million entries] [ascending|random|read|threads]`

use std::time::{Duration, Instant};

use pbxt_base::{Lsn, RowId, TxnId};
use pbxt_index::{Batch, SeekPos, Sign, Tree};

/// A permutation of `0..2^bits`: numbers that look random and never repeat (xorshift and odd multiplier).
fn scramble(number: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let mut mixed = number;
    for _ in 0..3 {
        mixed = (mixed ^ mixed >> (bits / 2)).wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    }
    mixed
}

/// Eight key bytes that compare like the number, as a BIGINT column has them.
fn key_of(number: u64) -> [u8; 8] {
    let mut key = [0; 8];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = (number >> (56 - 8 * index)) as u8;
    }
    key[0] ^= 0x80;
    key
}

fn report(what: &str, time: Duration, count: u64) {
    println!("{what:<44} {:>8.1} ns", time.as_secs_f64() * 1e9 / count as f64);
}

fn insert_all(tree: &Tree, range: std::ops::Range<u64>, number_of: impl Fn(u64) -> u64) {
    for row in range {
        let number = number_of(row);
        let inserted = tree.insert(
            &key_of(number),
            RowId::new(row + 1),
            TxnId::new(7),
            Lsn::new(row * 64),
            Sign::Entry,
            &[],
        );
        inserted.expect("a tree of this size fits");
    }
}

fn scan(tree: &Tree, what: &str, forward: bool) {
    let mut batch = Batch::new();
    let (mut found, mut sum) = (0_u64, 0_u64);
    let start = Instant::now();
    if forward {
        tree.read_batch_forward(&SeekPos::START, &mut batch, 256);
    } else {
        tree.read_batch_backward(&SeekPos::END, &mut batch, 256);
    }
    while !batch.is_empty() {
        found += batch.len() as u64;
        sum = batch
            .entries(tree)
            .fold(sum, |sum, entry| sum.wrapping_add(entry.row().raw()));
        tree.read_batch_on(&mut batch, 256);
    }
    assert!(found == tree.len() && sum != 0);
    report(what, start.elapsed(), found);
}

fn seeks(tree: &Tree, count: u64, bits: u32) {
    let mut batch = Batch::new();
    let start = Instant::now();
    let mut hits = 0;
    for row in 0..count {
        let key = key_of(scramble(row.wrapping_mul(7919) % count, bits));
        tree.read_batch_forward(&SeekPos::lower_bound(&key), &mut batch, 1);
        hits += u64::from(batch.entry(tree, 0).is_some_and(|entry| entry.key() == key));
    }
    assert_eq!(hits, count);
    report("seek and read one, random", start.elapsed(), count);
    let start = Instant::now();
    let mut sum = 0;
    for row in 0..count / 4 {
        let key = key_of(scramble(row, bits));
        sum += tree.range_count_estimate(&SeekPos::lower_bound(&key), &SeekPos::END);
    }
    assert!(sum > 0);
    report("range estimate", start.elapsed(), count / 4);
}

fn ascending(count: u64) {
    let tree = Tree::new();
    let start = Instant::now();
    insert_all(&tree, 0..count, |row| row);
    report("insert ascending", start.elapsed(), count);
    println!(
        "{:<44} {:>8.1}",
        "bytes per entry, ascending",
        tree.memory_bytes() as f64 / count as f64
    );
    scan(&tree, "next entry, ascending insert, forward", true);
}

fn random(count: u64, bits: u32, read_too: bool) {
    let tree = Tree::new();
    let start = Instant::now();
    insert_all(&tree, 0..count, |row| scramble(row, bits));
    report("insert random", start.elapsed(), count);
    if read_too {
        println!(
            "{:<44} {:>8.1}",
            "bytes per entry, random",
            tree.memory_bytes() as f64 / count as f64
        );
        scan(&tree, "next entry, random insert, forward", true);
        scan(&tree, "next entry, random insert, backward", false);
        seeks(&tree, count, bits);
    }
}

fn two_threads(count: u64, bits: u32) {
    let tree = Tree::new();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let tree = &tree;
            scope.spawn(move || {
                insert_all(tree, part * count / 2..(part + 1) * count / 2, |row| {
                    scramble(row, bits)
                });
            });
        }
    });
    report("insert random, two threads, wall time", start.elapsed(), count);
    tree.check().expect("the tree is sound");
}

fn main() {
    let millions: u64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(5);
    let part = std::env::args().nth(2).unwrap_or_default();
    let count = millions * 1_000_000;
    let bits = u64::BITS - count.leading_zeros() + 1;
    if part.is_empty() || part == "ascending" {
        ascending(count);
    }
    if part.is_empty() || part == "random" || part == "read" {
        random(count, bits, part != "random");
    }
    if part.is_empty() || part == "threads" {
        two_threads(count, bits);
    }
}
