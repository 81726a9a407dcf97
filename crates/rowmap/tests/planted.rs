//! Faults that only a sanitizer sees: `scripts/sanitize.py KIND core` runs each alone and wants its report, so that a run without
//! reports means something.
#![cfg(all(sanitizing, feature = "planted-faults"))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pbxt_base::{Addr, RowId, planted};
use pbxt_rowmap::{MapWord, RowMap};

/// Leaves come and go with the fault planted while another thread reads them, until the sanitizer ends the process, or for a while.
fn leaves_come_and_go(fault: &'static str) {
    let (map, is_over) = (RowMap::new(), AtomicBool::new(false));
    let (row, word) = (RowId::new(7), MapWord::version(Addr::new(64)));
    map.bump_to(row);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let seen = map.load(row);
                assert!(seen == word || seen == MapWord::ABSENT, "{seen:?}");
            }
        });
        let _planted = planted::plant(fault);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            map.compare_exchange(row, MapWord::ABSENT, word)
                .expect("nobody else writes");
            map.compare_exchange(row, word, MapWord::ABSENT)
                .expect("nobody else writes");
            map.release_leaves(0..u64::MAX, |_, _| {});
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
#[ignore = "must end with a report of AddressSanitizer"]
fn a_leaf_is_freed_while_it_is_read() {
    leaves_come_and_go("map.freed_early");
}

#[test]
#[ignore = "must end with a report of ThreadSanitizer"]
fn a_leaf_is_published_before_it_is_written() {
    leaves_come_and_go("map.unpublished");
}
