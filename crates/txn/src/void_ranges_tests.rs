//! Tests of void ranges against a plain set of bytes.

use pbxt_base::ids::{Lsn, TxnId};
use proptest::prelude::*;

use super::VoidRanges;

fn lsn(at: u64) -> Lsn {
    Lsn::new(at)
}

#[test]
fn a_range_is_half_open() {
    let voids = VoidRanges::new();
    let id = TxnId::new(7);
    voids.add(id, lsn(16)..lsn(32));
    let answers: Vec<bool> = [8, 16, 24, 32].map(|at| voids.contains(id, lsn(at))).to_vec();
    assert_eq!(answers, [false, true, true, false]);
    assert!(
        !voids.contains(TxnId::new(8), lsn(16)),
        "ranges belong to one transaction"
    );
}

#[test]
fn a_rollback_to_an_older_savepoint_swallows_younger_ranges() {
    let voids = VoidRanges::new();
    let id = TxnId::new(7);
    voids.add(id, lsn(40)..lsn(48));
    voids.add(id, lsn(64)..lsn(72));
    voids.add(id, lsn(32)..lsn(80));
    assert_eq!(voids.of(id), vec![lsn(32)..lsn(80)]);
    voids.remove(id);
    assert!(voids.of(id).is_empty());
}

#[test]
#[should_panic(expected = "T7")]
fn an_empty_range_is_refused() {
    VoidRanges::new().add(TxnId::new(7), lsn(8)..lsn(8));
}

proptest! {
    #[test]
    fn merged_ranges_hold_exactly_the_bytes_that_were_added(
        adds in prop::collection::vec((0u64..60, 1u64..12), 0..12)
    ) {
        let voids = VoidRanges::new();
        let id = TxnId::new(3);
        let mut bytes = [false; 80];
        for (start, len) in adds {
            voids.add(id, lsn(start)..lsn(start + len));
            bytes[start as usize..(start + len) as usize].fill(true);
        }
        for (at, expected) in bytes.iter().enumerate() {
            prop_assert_eq!(voids.contains(id, lsn(at as u64)), *expected);
        }
        let ranges = voids.of(id);
        let apart = ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        prop_assert!(apart, "T7: sorted, disjoint, not touching: {:?}", ranges);
    }
}
