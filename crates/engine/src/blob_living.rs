//! Living values: which bytes of the segments under a census rows name.
//!
//! Why it exists: rows name values in any order, and there may be as many as there are rows. What stands side by side in a segment becomes one
//! range, so memory follows the number of gaps between living values, which are what the census is for, and not that of the values.
//! State: per segment its ranges; those behind the first `melted` came since they were sorted.
//! Rules: S27.
//! Latches and I/O: none.

use crate::stored_values::place_of;
use pbxt_base::SegmentId;
use pbxt_rows::BlobRef;
use std::collections::BTreeMap;

/// Ranges that come before any are sorted.
const UNSORTED: usize = 512;

/// Begin and end of ranges of one segment.
#[derive(Debug, Default)]
struct Ranges {
    ranges: Vec<(u64, u64)>,
    /// So many were left when they were last sorted.
    melted: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Living {
    segments: BTreeMap<SegmentId, Ranges>,
}

impl Living {
    /// For these segments; values in others are nobody's business.
    pub(super) fn of(segments: impl Iterator<Item = SegmentId>) -> Self {
        Self {
            segments: segments.map(|id| (id, Ranges::default())).collect(),
        }
    }

    /// Rows name these.
    pub(super) fn note(&mut self, values: &[BlobRef]) {
        for value in values {
            if let Some(found) = self.segments.get_mut(&value.addr.segment()) {
                let (begin, end) = place_of(value);
                found.insert(begin, end);
            }
        }
    }

    /// The segments, and their ranges from begin to end: rising, disjoint, not touching.
    pub(super) fn into_ranges(self) -> impl Iterator<Item = (SegmentId, Vec<(u64, u64)>)> {
        self.segments.into_iter().map(|(id, mut found)| {
            found.melt();
            (id, found.ranges)
        })
    }
}

impl Ranges {
    fn insert(&mut self, begin: u64, end: u64) {
        match self.ranges.last_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => self.ranges.push((begin, end)),
        }
        // Twice as many as were left the last time: each is sorted a few times at most, whatever their number.
        if self.ranges.len() >= 2 * self.melted.max(UNSORTED) {
            self.melt();
        }
    }

    fn melt(&mut self) {
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, before| {
            let meets = next.0 <= before.1;
            if meets {
                before.1 = before.1.max(next.1);
            }
            meets
        });
        self.melted = self.ranges.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_cover_what_was_named_and_nothing_else(values in prop::collection::vec((0_u64..4000, 1_u64..9), 0..3000)) {
            let mut found = Ranges::default();
            let mut named = vec![false; 4010];
            for (begin, bytes) in values {
                found.insert(begin, begin + bytes);
                (begin..begin + bytes).for_each(|at| named[at as usize] = true);
            }
            found.melt();
            prop_assert!(found.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "S27: they neither meet nor touch");
            let is_covered = |at: u64| found.ranges.iter().any(|(begin, end)| (*begin..*end).contains(&at));
            let all_agree = named.iter().zip(0..).all(|(named, at)| *named == is_covered(at));
            prop_assert!(all_agree, "S27");
        }
    }

    #[test]
    fn a_million_values_side_by_side_in_any_order_take_little() {
        let mut found = Ranges::default();
        let (mut most, mut place) = (0, 0);
        for _ in 0..1 << 20 {
            found.insert(8 * place, 8 * place + 8);
            most = most.max(found.ranges.capacity());
            // A generator that comes to each place once.
            place = (place * 1_664_525 + 1_013_904_223) % (1 << 20);
        }
        found.melt();
        assert_eq!(found.ranges, [(0, 8 << 20)], "S27");
        let mut rising = Ranges::default();
        (0..1_000_000).for_each(|place| rising.insert(8 * place, 8 * place + 8));
        assert!(
            rising.ranges.capacity() <= UNSORTED,
            "S27: in order they are one all the time"
        );
        assert!(
            most <= 1 << 19,
            "S27: {most}; a quarter of them are ranges at most, and as many come before they are sorted"
        );
    }
}
