//! Row set: which of the 4096 rows of one map leaf a transaction has locked.
//!
//! Why it exists: FOR UPDATE on a hundred million rows must cost a bit per row, and FOR UPDATE on one row
//! must not cost a bitmap.
//! State: a sorted list while it is small, then a bitmap of 512 bytes; it never goes back.
//! Rules: T16 (one set per transaction, leaf and mode).
//! Latches and I/O: none; lives under a partition latch of row_locks.rs.

/// Rows per map leaf.
pub const LEAF_ROWS: u64 = 4096;
const WORDS: usize = LEAF_ROWS as usize / 64;
/// A list of this many positions still takes less than a quarter of the bitmap.
const LIST_MAX: usize = 48;

#[derive(Clone, Debug)]
pub(crate) enum RowSet {
    List(Vec<u16>),
    Bitmap(Box<[u64; WORDS]>),
}

impl Default for RowSet {
    fn default() -> Self {
        RowSet::List(Vec::new())
    }
}

fn split(at: u16) -> (usize, u64) {
    (usize::from(at) / 64, 1 << (at % 64))
}

impl RowSet {
    pub(crate) fn contains(&self, at: u16) -> bool {
        match self {
            RowSet::List(list) => list.binary_search(&at).is_ok(),
            RowSet::Bitmap(words) => {
                let (word, bit) = split(at);
                words.get(word).is_some_and(|bits| bits & bit != 0)
            }
        }
    }

    pub(crate) fn insert(&mut self, at: u16) {
        if let RowSet::List(list) = self {
            let Err(place) = list.binary_search(&at) else {
                return;
            };
            if list.len() < LIST_MAX {
                list.insert(place, at);
                return;
            }
            *self = RowSet::Bitmap(bitmap_of(list));
        }
        if let RowSet::Bitmap(words) = self {
            let (word, bit) = split(at);
            words.get_mut(word).into_iter().for_each(|bits| *bits |= bit);
        }
    }

    /// True if it was in the set.
    pub(crate) fn remove(&mut self, at: u16) -> bool {
        let had = self.contains(at);
        match self {
            RowSet::List(list) => list.retain(|other| *other != at),
            RowSet::Bitmap(words) => {
                let (word, bit) = split(at);
                words.get_mut(word).into_iter().for_each(|bits| *bits &= !bit);
            }
        }
        had
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            RowSet::List(list) => list.len(),
            RowSet::Bitmap(words) => words.iter().map(|bits| bits.count_ones() as usize).sum(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            RowSet::List(list) => list.is_empty(),
            RowSet::Bitmap(words) => words.iter().all(|bits| *bits == 0),
        }
    }

    /// Calls `found` for every position in the set, rising.
    pub(crate) fn for_each(&self, mut found: impl FnMut(u16)) {
        match self {
            RowSet::List(list) => list.iter().for_each(|at| found(*at)),
            RowSet::Bitmap(words) => {
                for (word, bits) in (0u16..).zip(words.iter()) {
                    let mut left = *bits;
                    while left != 0 {
                        found(word * 64 + left.trailing_zeros() as u16);
                        left &= left - 1;
                    }
                }
            }
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            RowSet::List(list) => list.capacity() * size_of::<u16>(),
            RowSet::Bitmap(_) => size_of::<[u64; WORDS]>(),
        }
    }
}

fn bitmap_of(list: &[u16]) -> Box<[u64; WORDS]> {
    let mut words = Box::new([0; WORDS]);
    for at in list {
        let (word, bit) = split(*at);
        words
            .get_mut(word)
            .into_iter()
            .for_each(|bits: &mut u64| *bits |= bit);
    }
    words
}

#[cfg(test)]
#[path = "row_set_tests.rs"]
mod row_set_tests;
