//! Dead ranges: they melt, cover, and come back from their bytes.

use super::*;
use pbxt_base::{Addr, AddrClass};

fn value(segment: u32, offset: u64, len: u64) -> BlobRef {
    BlobRef {
        addr: Addr::in_segment(AddrClass::Blob, SegmentId::new(segment), offset),
        len,
        hash: 0,
    }
}

#[test]
fn neighbours_melt_and_repetition_changes_nothing() {
    let mut dead = DeadRanges::default();
    for (begin, end) in [(40, 48), (8, 16), (24, 32), (16, 24), (8, 16), (32, 40)] {
        dead.insert(begin, end);
    }
    assert_eq!(dead.ranges, BTreeMap::from([(8, 48)]));
    dead.insert(56, 64);
    dead.insert(0, 60);
    assert_eq!(dead.ranges, BTreeMap::from([(0, 64)]));
}

#[test]
fn a_segment_is_dead_when_its_last_value_is() {
    let accounts = BlobAccounts::default();
    let first = SEGMENT_HEADER_BYTES as u64;
    let second = first + 8 + 1000;
    accounts.note(&[value(3, first, 1000), value(4, first, 5)]);
    let covers = |end| accounts.segments.lock()[&SegmentId::new(3)].covers(end);
    assert!(!covers(second + 16), "the second value lives");
    accounts.note(&[value(3, second, 8)]);
    assert!(covers(second + 16));
}

#[test]
fn what_lies_behind_the_end_of_the_file_does_not_count() {
    let mut dead = DeadRanges::default();
    for (begin, end) in [(5000, 6000), (8000, 10_000), (20_000, 30_000)] {
        dead.insert(begin, end);
    }
    let counted = [4096, 5000, 5500, 8000, 9000, 40_000].map(|end| dead.bytes(end));
    assert_eq!(counted, [0, 0, 500, 1000, 2000, 13_000]);
}

#[test]
fn a_segment_without_values_is_dead_when_that_is_known() {
    let first = SEGMENT_HEADER_BYTES as u64;
    let accounts = BlobAccounts::default();
    let covers = |accounts: &BlobAccounts| accounts.segments.lock()[&SegmentId::new(3)].covers(first);
    accounts.note(&[value(3, 9000, 1000)]);
    assert!(!covers(&accounts), "nobody knows what was before that");
    accounts
        .segments
        .lock()
        .entry(SegmentId::new(3))
        .or_default()
        .insert(first, first);
    assert!(covers(&accounts));
    let back = BlobAccounts::decode(&accounts.encode()).expect("what was written");
    assert!(covers(&back));
}

#[test]
fn state_comes_back_from_its_bytes() {
    let accounts = BlobAccounts::default();
    accounts.note(&[value(1, 4096, 10), value(1, 8192, 3), value(900, 65536, 100_000)]);
    let bytes = accounts.encode();
    let back = BlobAccounts::decode(&bytes).expect("what was written");
    let ranges = |accounts: &BlobAccounts| -> Vec<_> {
        let segments = accounts.segments.lock();
        segments
            .iter()
            .map(|(id, dead)| (*id, dead.ranges.clone()))
            .collect()
    };
    assert_eq!(ranges(&back), ranges(&accounts));
    assert!(
        BlobAccounts::decode(&[])
            .expect("nothing")
            .segments
            .lock()
            .is_empty()
    );
    assert!(
        BlobAccounts::decode(&bytes[..bytes.len() - 1]).is_err(),
        "cut short"
    );
    // segments; id, ranges; gap, bytes ...
    let golden = [2, 1, 2, 128, 32, 24, 232, 31, 16];
    assert_eq!(&bytes[..golden.len()], &golden);
}
