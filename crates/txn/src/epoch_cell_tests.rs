//! Tests of the epoch cell: the only unsafe code of the crate; run under Miri.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_epoch::pin;

use super::EpochCell;

/// Counts how many of it are alive, and knows whether it is whole.
struct Watched {
    number: usize,
    twice: Box<usize>,
    alive: Arc<AtomicUsize>,
}

impl Watched {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Watched {
            number,
            twice: Box::new(number * 2),
            alive: Arc::clone(alive),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn readers_hold_whole_values_while_a_writer_replaces_them() {
    let alive = Arc::new(AtomicUsize::new(0));
    let cell = EpochCell::new(Watched::new(0, &alive));
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 40 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut newest = 0;
                while !stop.load(Ordering::Acquire) {
                    let guard = pin();
                    let value = cell.load(&guard);
                    assert_eq!(*value.twice, value.number * 2);
                    assert!(value.number >= newest, "a reader never goes back in time");
                    newest = value.number;
                }
            });
        }
        for number in 1..=rounds {
            cell.replace(Watched::new(number, &alive), &pin());
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(cell.load(&pin()).number, rounds);
    assert!(alive.load(Ordering::SeqCst) >= 1);
}

#[test]
fn dropping_the_cell_drops_its_value() {
    let alive = Arc::new(AtomicUsize::new(0));
    drop(EpochCell::new(Watched::new(1, &alive)));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
