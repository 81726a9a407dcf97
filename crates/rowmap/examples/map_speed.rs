//! What the row map costs: nanoseconds per load and per compare-and-swap, with and without a guard at hand.
//!
//! `cargo run --release -p pbxt-rowmap --example map_speed`.

use pbxt_base::{Addr, RowId};
use pbxt_rowmap::{MapWord, RowMap};
use std::hint::black_box;
use std::time::Instant;

const ROWS: u64 = 1 << 20;

/// The best of many short rounds, so that other work on the machine does not matter.
fn report(what: &str, mut each: impl FnMut(u64)) {
    let mut best = f64::MAX;
    for _ in 0..60 {
        let begun = Instant::now();
        (1..=ROWS).for_each(&mut each);
        best = best.min(begun.elapsed().as_secs_f64() * 1e9 / ROWS as f64);
    }
    println!("{what}: {best:.2} ns");
}

fn main() {
    let map = RowMap::new();
    for row in 1..=ROWS {
        map.store_recovered(RowId::new(row), MapWord::version(Addr::new(row << 3)));
    }
    let scattered = |n: u64| RowId::new(n.wrapping_mul(0x9e37_79b1) % ROWS + 1);
    report("load in order, not pinned", |n| {
        black_box(map.load(RowId::new(n)));
    });
    report("load scattered, not pinned", |n| {
        black_box(map.load(scattered(n)));
    });
    let swap = |row: RowId| {
        let word = map.load(row);
        black_box(map.compare_exchange(row, word, word.with_lock())).ok();
    };
    let guard = crossbeam_epoch::pin();
    report("load in order, guard at hand", |n| {
        black_box(map.load_in(RowId::new(n), &guard));
    });
    report("load in order, pinned, no guard given", |n| {
        black_box(map.load(RowId::new(n)));
    });
    report("load scattered, guard at hand", |n| {
        black_box(map.load_in(scattered(n), &guard));
    });
    report("load and swap in order, pinned", |n| swap(RowId::new(n)));
    report("load and swap in order, guard at hand", |n| {
        let word = map.load_in(RowId::new(n), &guard);
        black_box(map.compare_exchange_in(RowId::new(n), word, word.with_lock(), &guard)).ok();
    });
    drop(guard);
    report("load and swap in order, not pinned", |n| swap(RowId::new(n)));
}
