//! Ranges: which bytes of a file something holds for.
//!
//! Why it exists: written, written lately and durable are asked for at every write; sets of single bytes would be as large as the
//! files.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that do not touch: begin -> end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// The first part of `range` that is in one of these, looked for from its end.
    pub(crate) fn first_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (begin, end) = self.0.range(..range.end).next_back()?;
        let part = (*begin).max(range.start)..(*end).min(range.end);
        (!part.is_empty()).then_some(part)
    }

    /// True if all of `range` is in them.
    pub(crate) fn cover(&self, range: &Range<u64>) -> bool {
        self.first_in(range).is_some_and(|part| part == *range)
    }

    /// Adds a range and joins it with what it touches.
    pub(crate) fn add(&mut self, mut range: Range<u64>) {
        while let Some((begin, end)) = self.0.range(..=range.end).next_back().map(|(b, e)| (*b, *e)) {
            if end < range.start {
                break;
            }
            self.0.remove(&begin);
            range = range.start.min(begin)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    /// All of them, rising.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(begin, end)| *begin..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_overlaps_are_found() {
        let mut ranges = Ranges::default();
        ranges.add(100..110);
        ranges.add(120..130);
        assert_eq!(ranges.first_in(&(90..100)), None);
        assert_eq!(ranges.first_in(&(110..120)), None);
        assert_eq!(ranges.first_in(&(105..125)), Some(120..125));
        assert_eq!(ranges.first_in(&(0..101)), Some(100..101));
        assert!(!ranges.cover(&(105..125)));
        ranges.add(110..120);
        assert!(ranges.iter().eq(std::iter::once(100..130)));
        assert_eq!(ranges.first_in(&(129..500)), Some(129..130));
        assert!(ranges.cover(&(105..125)) && !ranges.cover(&(99..125)));
    }
}
