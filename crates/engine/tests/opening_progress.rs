//! An opening that takes long says how far it is: rule D40 of docs/durability.md.

mod common;
#[path = "common/image_numbers.rs"]
mod image_numbers;
#[path = "common/store.rs"]
mod store;
#[path = "common/told.rs"]
mod told;

use image_numbers::{ROWS_FROM_END, with_numbers};
use pbxt_io::Clock;
use pbxt_testkit::SimDisk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Store;

const ROWS: u32 = 300;

/// Time that goes on by so many milliseconds each time that somebody asks for it.
#[derive(Debug)]
struct Strides {
    millis: AtomicU64,
    stride: u64,
}

impl Clock for Strides {
    fn now_millis(&self) -> u64 {
        self.millis.fetch_add(self.stride, Ordering::Relaxed)
    }

    fn unix_seconds(&self) -> u64 {
        1_600_000_000
    }
}

/// A database with two tables in a checkpoint, and some segments of log behind it; one of them says that it has less than no rows.
fn crashed() -> SimDisk {
    let mut store = Store::new();
    store.insert(0..ROWS);
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    for from in (1000..1400).step_by(50) {
        store.insert(from..from + 50);
    }
    store.db.flush().expect("flushed");
    with_numbers(&store.disk.kill(), ROWS_FROM_END, i64::MIN)
}

/// What an opening said by a clock with such strides.
fn said(disk: &SimDisk, stride: u64) -> Vec<String> {
    let clock = Arc::new(Strides {
        millis: AtomicU64::new(0),
        stride,
    });
    let (db, told) = told::open_by(&disk.kill(), Some(clock));
    db.expect("opens");
    told.opening
}

/// The numbers that stand in the lines with this in them, in order.
fn numbers(lines: &[String], part: &str) -> Vec<u64> {
    let of_it = lines.iter().filter(|line| line.contains(part));
    of_it
        .filter_map(|line| {
            line.split(|c: char| !c.is_ascii_digit())
                .find(|word| !word.is_empty())
        })
        .map(|word| word.parse().expect("a number"))
        .collect()
}

#[test]
fn a_long_opening_says_what_it_does_and_how_far_it_is() {
    let disk = crashed();
    let lines = said(&disk, 6000);
    assert!(
        lines
            .iter()
            .all(|line| line.starts_with("the database is being opened: ")),
        "{lines:?}"
    );
    for part in [
        "the log is read,",
        "the checkpoint is read,",
        "rows of the log are found,",
        "index entries of the log's rows are made,",
        "are counted anew,",
    ] {
        let told = numbers(&lines, part);
        assert!(!told.is_empty() && told.is_sorted(), "D40: {part} {lines:?}");
    }
    let segments = numbers(&lines, "rows of the log are found,");
    let last = format!("{0} of {0} segments so far", segments.len());
    assert!(
        segments.len() > 3 && lines.iter().filter(|line| line.ends_with(&last)).count() == 2,
        "{lines:?}"
    );
}

#[test]
fn lines_come_five_seconds_apart_and_none_before() {
    let disk = crashed();
    let all = said(&disk, 6000).len();
    assert!(all > 20, "{all}");
    // A line takes two looks at this clock's time, or three.
    let some = said(&disk, 2500).len();
    assert!(some > all / 4 && some < all * 2 / 3, "D40: {some} of {all}");
    assert_eq!(said(&disk, 0), [""; 0], "D40: a quick opening says nothing");
}
