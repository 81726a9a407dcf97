//! ColumnSet: a set of column numbers as a bitmap.
//!
//! Why it exists:    hosts say with a bitmap which columns a statement reads; projections, key restoring and covering
//!                   checks all ask the same question of it.
//! Rules:            F21: bit i of byte i/8 stands for column i (least significant bit first).

/// A set of column numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    words: Vec<u64>,
}

impl ColumnSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Columns 0 up to `count`, that one not included.
    pub fn all(count: usize) -> Self {
        (0..count).collect()
    }

    /// Reads a host's bitmap: bit i of byte i/8 is column i. Bits from `count` on are ignored, missing bytes are zero.
    pub fn from_bitmap(bitmap: &[u8], count: usize) -> Self {
        let set = |column: usize| {
            bitmap
                .get(column / 8)
                .is_some_and(|byte| byte >> (column % 8) & 1 == 1)
        };
        (0..count).filter(|&column| set(column)).collect()
    }

    /// Adds a column.
    pub fn insert(&mut self, column: usize) {
        let word = column / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            *word |= 1 << (column % 64);
        }
    }

    /// True if `column` is in the set.
    #[inline]
    pub fn contains(&self, column: usize) -> bool {
        self.words
            .get(column / 64)
            .is_some_and(|word| word >> (column % 64) & 1 == 1)
    }

    /// True if every column of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|column| other.contains(column))
    }

    /// True if no column is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The columns in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.words.len() * 64).filter(|&column| self.contains(column))
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = usize>>(columns: I) -> Self {
        let mut set = Self::new();
        for column in columns {
            set.insert(column);
        }
        set
    }
}
