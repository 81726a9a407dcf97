//! Key ranges: sets of intervals of key bytes.
//!
//! Why it exists: a reader of an index must hear of keys that come where it found none; what it has seen is a set of stretches
//! of the index, not of entries.
//! State: disjoint intervals in key order. Beyond a number of intervals or bytes the set is everything.
//! Rules: T30 (bounded).
//! Latches and I/O: none. After a crash: nothing of it survives.

/// Intervals of one set at most.
const RANGES_MAX: usize = 512;
/// Bytes of the borders of one set at most.
const BYTES_MAX: usize = 64 << 10;

/// The keys from `low` on and below `high`; without `high`, all from `low` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl KeyRange {
    /// From `low` on and below `high`.
    pub fn new(low: Vec<u8>, high: Option<Vec<u8>>) -> Self {
        Self { low, high }
    }

    /// Every key.
    pub fn everything() -> Self {
        Self::new(Vec::new(), None)
    }

    /// All keys that begin with `prefix`.
    pub fn of_prefix(prefix: &[u8]) -> Self {
        Self::new(prefix.to_vec(), behind_prefix(prefix))
    }

    /// The part of it up to `key`, which stays in.
    pub fn up_to(mut self, key: &[u8]) -> Self {
        let mut behind = key.to_vec();
        behind.push(0);
        if self.high.as_ref().is_none_or(|high| behind < *high) {
            self.high = Some(behind);
        }
        self
    }

    /// The part of it from `key` on.
    pub fn from(mut self, key: &[u8]) -> Self {
        if key > self.low.as_slice() {
            self.low = key.to_vec();
        }
        self
    }

    /// The part of it below `high`, all if there is none.
    pub fn below(mut self, high: Option<Vec<u8>>) -> Self {
        if let Some(high) = high
            && self.high.as_ref().is_none_or(|old| high < *old)
        {
            self.high = Some(high);
        }
        self
    }

    /// True if `key` is in it.
    pub fn has(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_ref().is_none_or(|high| key < high.as_slice())
    }

    fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    fn bytes(&self) -> usize {
        self.low.len() + self.high.as_ref().map_or(0, Vec::len)
    }
}

/// The least byte string above all that begin with `prefix`; none if there is no such.
pub fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRanges {
    /// Disjoint, ascending, none touching the next.
    ranges: Vec<KeyRange>,
    bytes: usize,
}

impl KeyRanges {
    pub(crate) fn add(&mut self, mut range: KeyRange) {
        if range.is_empty() {
            return;
        }
        // The first one that does not end before the new one begins, and the first that begins behind its end.
        let from = self
            .ranges
            .partition_point(|old| old.high.as_ref().is_some_and(|high| *high < range.low));
        let to = self
            .ranges
            .partition_point(|old| range.high.as_ref().is_none_or(|high| old.low <= *high));
        let touched = self.ranges.get(from..to).unwrap_or_default();
        if let (Some(first), Some(last)) = (touched.first(), touched.last()) {
            if first.low < range.low {
                range.low.clone_from(&first.low);
            }
            match (&last.high, &range.high) {
                (None, _) => range.high = None,
                (Some(old), Some(new)) if old > new => range.high = Some(old.clone()),
                _ => {}
            }
        }
        self.bytes -= touched.iter().map(KeyRange::bytes).sum::<usize>();
        self.bytes += range.bytes();
        self.ranges.splice(from..to.max(from), [range]);
        if self.ranges.len() > RANGES_MAX || self.bytes > BYTES_MAX {
            self.ranges.clear();
            self.ranges.push(KeyRange::everything());
            self.bytes = 0;
        }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let behind = self.ranges.partition_point(|range| range.low.as_slice() <= key);
        behind > 0 && self.ranges.get(behind - 1).is_some_and(|range| range.has(key))
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        others.ranges.iter().for_each(|range| self.add(range.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(low: &[u8], high: &[u8]) -> KeyRange {
        KeyRange::new(low.to_vec(), Some(high.to_vec()))
    }

    #[test]
    fn a_prefix_has_all_keys_that_begin_with_it_and_no_others() {
        // T30.
        let keys: [(&[u8], bool); 5] = [
            (b"b", true),
            (b"b\xff\xff", true),
            (b"a\xff", false),
            (b"c", false),
            (b"", false),
        ];
        for (key, is_in) in keys {
            assert_eq!(KeyRange::of_prefix(b"b").has(key), is_in, "{key:?}");
        }
        assert!(KeyRange::of_prefix(b"\xff").has(b"\xff\xff\x01"));
        assert!(!KeyRange::of_prefix(b"a\xff").has(b"b"));
        assert!(KeyRange::of_prefix(b"").has(b"anything"));
    }

    #[test]
    fn a_trimmed_range_keeps_the_key_it_is_trimmed_to() {
        // T30.
        let open = KeyRange::new(b"b".to_vec(), None);
        let upper = open.clone().up_to(b"d");
        assert!(upper.has(b"d") && upper.has(b"b") && !upper.has(b"d\0"));
        let lower = open.from(b"d");
        assert!(lower.has(b"d") && !lower.has(b"c\xff"));
    }

    #[test]
    fn a_set_that_grows_too_large_is_everything() {
        // T30: bounded by number and by bytes.
        let mut many = KeyRanges::default();
        for n in 0..=RANGES_MAX as u32 {
            let n = 2 * n;
            many.add(KeyRange::of_prefix(&[(n >> 8) as u8, n as u8]));
        }
        assert_eq!(many.ranges, [KeyRange::everything()]);
        let mut long = KeyRanges::default();
        for n in 0..20_u8 {
            long.add(KeyRange::of_prefix(&[vec![2 * n], vec![7; 4000]].concat()));
        }
        assert_eq!(long.ranges, [KeyRange::everything()]);
    }

    proptest! {
        #[test]
        fn a_set_has_what_any_of_its_ranges_has(
            given in prop::collection::vec((0_u8..40, 0_u8..40, any::<bool>()), 0..30),
        ) {
            // T30.
            let ranges: Vec<KeyRange> = given
                .iter()
                .map(|&(low, high, is_open)| if is_open && low > 30 { KeyRange::new(vec![low], None) } else { range(&[low], &[high]) })
                .collect();
            let mut set = KeyRanges::default();
            for range in &ranges {
                set.add(range.clone());
            }
            for key in 0..=50_u8 {
                for key in [vec![key], vec![key, 0], vec![key, 255]] {
                    prop_assert_eq!(set.has(&key), ranges.iter().any(|range| range.has(&key)), "{:?} in {:?}", key, &set);
                }
            }
            prop_assert!(set.ranges.windows(2).all(|pair| pair[0].high.as_ref().is_some_and(|high| *high < pair[1].low)));
            prop_assert_eq!(set.bytes, set.ranges.iter().map(KeyRange::bytes).sum::<usize>());
        }
    }
}
