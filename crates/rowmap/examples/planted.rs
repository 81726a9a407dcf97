//! A fault that only a sanitizer sees, so that its runs without reports mean something: `scripts/sanitize.py KIND planted` runs this
//! and wants a report.
//!
//! `planted map.freed_early`: leaves of the row map are freed while another thread reads them. `planted map.unpublished`: they are
//! published before what is in them. Without a sanitizer it ends after 20 seconds, or anyhow.

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

fn main() {
    let wanted = std::env::args().nth(1).expect("the name of a fault");
    let fault = planted::NAMES.iter().find(|name| **name == wanted);
    leaves_come_and_go(fault.expect("a fault of crates/base/src/planted.rs"));
}
