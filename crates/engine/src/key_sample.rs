//! Key sample: what neighbouring entries of an index have in common; how it is taken, and its bytes.
//!
//! Why it exists: the optimizer of a host chooses indexes and join orders by rows per value; counting distinct values would cost a
//! read of the whole index.
//! How: entries are sorted, so a value of a prefix begins exactly where two neighbours differ in it. The share of such
//! neighbours among those compared, times the rows, is the number of distinct values. No assumption about how values are
//! spread is needed, only that the sampled leaves are no special ones. They are: a block of many equal keys has more entries and is
//! chosen more often. So each counts the less the more likely it is to be chosen (Horvitz and Thompson: A generalization of sampling without
//! replacement, JASA 1952), which took away errors of a quarter that no number of leaves did. Of an index in several parts all entries between the
//! ends of the leaf are compared.
//! Format: docs/statistics.md#format; one encoder and one decoder, here.
//! Rules: ST1, ST2, ST7.
//! Latches and I/O: none are held; leaves of trees are read as readers do, blocks of runs through the cache: one for each leaf, and of an index
//! in several parts one or two of each other part.
//! After a crash: what was saved of it is read again.

use crate::error::Result;
use pbxt_base::codec::{Reader, push_u8, push_u16, push_u64};
use pbxt_base::{Error as StorageError, Lsn, RowId};
use pbxt_index::{Batch, EntryView, IndexParts, MergedCursor, SeekPos, Sign};
use pbxt_io::Clock;
use pbxt_rows::KeyMaker;
use pbxt_segment::BlockCache;
use std::sync::Arc;

/// An index of up to so many entries for each leaf that would be looked at is read as a whole.
const ENTRIES_PER_LEAF: u64 = 64;
/// Entries of an index that is read as a whole which are copied at once.
const STRETCH_ENTRIES: usize = 4096;
/// Entries of all parts that are compared for a leaf of one of them, at most: beside a small part others have many between two of its own.
const BETWEEN_MAX: usize = 1024;

/// Who asked for a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledBy {
    /// A question of the optimizer, because there was no sample that would do.
    Use,
    /// ANALYZE.
    Analyze,
}

impl SampledBy {
    fn code(self) -> u8 {
        match self {
            Self::Use => 0,
            Self::Analyze => 1,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Use, Self::Analyze]
            .into_iter()
            .find(|by| by.code() == code)
    }
}

/// What neighbouring entries of an index have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySample {
    /// Entries the index had.
    pub entries: u64,
    /// When it was taken, in Unix seconds.
    pub taken: u64,
    /// Who asked for it.
    pub by: SampledBy,
    /// Neighbours compared.
    pub pairs: u64,
    /// Of those, how many differ in the first 1, 2, ... parts.
    pub changes: Vec<u64>,
}

/// An index to take a sample of.
pub(crate) struct SampleSource<'a> {
    pub parts: &'a Arc<IndexParts>,
    pub cache: &'a Arc<BlockCache>,
    pub maker: &'a KeyMaker,
    pub clock: &'a dyn Clock,
}

/// How much is looked at, and for whom.
pub(crate) struct SampleSize {
    pub by: SampledBy,
    pub leaves: u32,
}

impl SampleSize {
    fn reads_all(&self, entries: u64) -> bool {
        entries <= u64::from(self.leaves) * ENTRIES_PER_LEAF
    }

    /// How often a sample of an index of so many entries tells that it is a step further.
    pub(crate) fn steps(&self, entries: u64) -> u64 {
        if self.reads_all(entries) {
            entries / STRETCH_ENTRIES as u64
        } else {
            u64::from(self.leaves)
        }
    }
}

impl KeySample {
    /// Looks at an index. `step` is called between leaves, and ends it by an error.
    pub(crate) fn take(
        source: &SampleSource<'_>,
        size: &SampleSize,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let sample = Self {
            entries: source.parts.entries(),
            taken: source.clock.unix_seconds(),
            by: size.by,
            pairs: 0,
            changes: vec![0; source.maker.part_count()],
        };
        let reads_all = size.reads_all(sample.entries);
        let mut taking = Taking {
            source,
            sample,
            before: None,
        };
        if reads_all {
            taking.all_entries(step)?;
            Ok(taking.sample)
        } else {
            taking.some_leaves(size.leaves, step)
        }
    }

    /// Appends the image in checkpoints and in the log.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_u64(out, self.entries);
        push_u64(out, self.taken);
        push_u8(out, self.by.code());
        push_u64(out, self.pairs);
        push_u16(
            out,
            u16::try_from(self.changes.len()).expect("ST7: an index has at most 65535 parts"),
        );
        for &changes in &self.changes {
            push_u64(out, changes);
        }
    }

    /// Reads the image, all of it (rule ST7).
    ///
    /// # Errors
    /// `Corrupt` if it is not one that `encode` writes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (entries, taken, by) = (reader.u64()?, reader.u64()?, reader.u8()?);
        let by = SampledBy::from_code(by)
            .ok_or_else(|| damaged(16, "who sampled an index, 0 or 1", u64::from(by)))?;
        let pairs = reader.u64()?;
        let mut changes: Vec<u64> = Vec::new();
        for _ in 0..reader.u16()? {
            let found = reader.u64()?;
            let least = changes.last().copied().unwrap_or(0);
            if !(least..=pairs).contains(&found) {
                let expected = format!("{least} to {pairs} neighbours that differ");
                return Err(damaged(27 + 8 * changes.len() as u64, &expected, found).into());
            }
            changes.push(found);
        }
        if !reader.rest().is_empty() {
            let at = (bytes.len() - reader.rest().len()) as u64;
            return Err(damaged(at, "the end of a sample of an index", reader.rest().len() as u64).into());
        }
        Ok(Self {
            entries,
            taken,
            by,
            pairs,
            changes,
        })
    }
}

fn damaged(offset: u64, expected: &str, found: u64) -> StorageError {
    StorageError::Corrupt {
        file: String::new(),
        offset,
        expected: expected.to_owned(),
        found: found.to_string(),
    }
}

/// Rows per distinct value when `changes` of `pairs` neighbours differ; rounded, 1 to `rows`.
pub(crate) fn rows_per_value(rows: u64, changes: u64, pairs: u64) -> u64 {
    if rows <= 1 || pairs == 0 {
        return 1;
    }
    let share = changes as f64 / pairs as f64;
    let distinct = 1.0 + (rows - 1) as f64 * share;
    ((rows as f64 / distinct).round() as u64).clamp(1, rows)
}

/// A sample that is being taken.
struct Taking<'a> {
    source: &'a SampleSource<'a>,
    sample: KeySample,
    /// Key of the row before the next one, if that is its neighbour.
    before: Option<Vec<u8>>,
}

impl Taking<'_> {
    fn all_entries(&mut self, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut stretch = Stretch::default();
        let mut entries = MergedCursor::new();
        entries.seek(self.source.parts, self.source.cache, &SeekPos::START, true)?;
        while let Some(entry) = entries.peek() {
            // Events of one row under one key are judged together.
            if stretch.entries.len() >= STRETCH_ENTRIES && !stretch.ends_with_row_of(entry) {
                self.compare(&stretch)?;
                stretch.clear();
                step()?;
            }
            stretch.push(entry);
            entries.advance()?;
        }
        self.compare(&stretch)
    }

    fn some_leaves(mut self, leaves: u32, step: &mut dyn FnMut() -> Result<()>) -> Result<KeySample> {
        let (mut stretch, mut batch) = (Stretch::default(), Batch::new());
        let (mut all, mut merged) = (Weighed::default(), MergedCursor::new());
        let has_one_part = self.source.parts.filled() <= 1;
        for leaf in 0..leaves {
            stretch.clear();
            let share = (f64::from(leaf) + 0.5) / f64::from(leaves);
            let copy = |entry: EntryView<'_>| stretch.push(entry);
            let cache = self.source.cache;
            let mut weight = self.source.parts.sample(share, cache, &mut batch, copy)?;
            if !has_one_part {
                weight *= self.take_all_parts(&mut stretch, &mut merged)?;
            }
            self.before = None;
            self.compare(&stretch)?;
            all.add(weight, &mut self.sample);
            step()?;
        }
        all.write(&mut self.sample);
        Ok(self.sample)
    }

    /// Takes the entries that all parts have where the stretch has those of a leaf: neighbours in one part may have others between them (rule
    /// ST1). The answer is the leaf's share of them: the leaves of each part come to be chosen, so each place counts once in all.
    fn take_all_parts(&self, stretch: &mut Stretch, merged: &mut MergedCursor) -> Result<f64> {
        let ends = (
            stretch.entry(0),
            stretch.entry(stretch.entries.len().wrapping_sub(1)),
        );
        let (Some((first, first_row)), Some((last, last_row))) = ends else {
            return Ok(1.0);
        };
        let (first, last, of_leaf) = (first.to_vec(), last.to_vec(), stretch.entries.len());
        let from = SeekPos::before(&first, RowId::new(first_row), Lsn::new(0), Sign::Anti);
        merged.seek(self.source.parts, self.source.cache, &from, true)?;
        stretch.clear();
        for _ in 0..BETWEEN_MAX {
            let is_within = |entry: &EntryView<'_>| (entry.key(), entry.row().raw()) <= (&last, last_row);
            let Some(entry) = merged.peek().filter(is_within) else {
                break;
            };
            stretch.push(entry);
            merged.advance()?;
        }
        Ok(of_leaf as f64 / stretch.entries.len().max(1) as f64)
    }

    /// Compares each row of a stretch of entries with the one before it.
    fn compare(&mut self, stretch: &Stretch) -> Result<()> {
        let mut scratch = Vec::new();
        let carried = self.before.take();
        let mut before = carried.as_deref();
        for key in stretch.rows_under_keys() {
            if let Some(before) = before {
                let equal = equal_parts(self.source.maker, before, key, &mut scratch)?;
                self.sample.pairs += 1;
                let differing = self.sample.changes.iter_mut().skip(equal);
                differing.for_each(|changes| *changes += 1);
            }
            before = Some(key);
        }
        self.before = before.map(<[u8]>::to_vec);
        Ok(())
    }
}

/// Counts of leaves that stand for more or less than others.
#[derive(Default)]
struct Weighed {
    compared: u64,
    pairs: f64,
    changes: Vec<f64>,
}

impl Weighed {
    /// Takes the counts of a leaf away.
    fn add(&mut self, weight: f64, leaf: &mut KeySample) {
        self.compared += leaf.pairs;
        self.pairs += weight * leaf.pairs as f64;
        self.changes.resize(leaf.changes.len(), 0.0);
        for (sum, changes) in self.changes.iter_mut().zip(&mut leaf.changes) {
            *sum += weight * std::mem::take(changes) as f64;
        }
        leaf.pairs = 0;
    }

    /// Of so many neighbours as were compared, how many would differ if all leaves were alike likely to be chosen.
    fn write(&self, sample: &mut KeySample) {
        sample.pairs = self.compared;
        if self.compared == 0 {
            return;
        }
        for (changes, sum) in sample.changes.iter_mut().zip(&self.changes) {
            let share = (sum / self.pairs).min(1.0);
            *changes = (share * self.compared as f64).round() as u64;
        }
    }
}

/// Neighbouring entries, copied: key end, row and sign of each.
#[derive(Default)]
struct Stretch {
    keys: Vec<u8>,
    entries: Vec<(usize, u64, Sign)>,
}

impl Stretch {
    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    fn push(&mut self, entry: EntryView<'_>) {
        if entry.is_dead() {
            return;
        }
        self.keys.extend_from_slice(entry.key());
        self.entries
            .push((self.keys.len(), entry.row().raw(), entry.sign()));
    }

    /// Key and row of an entry.
    fn entry(&self, at: usize) -> Option<(&[u8], u64)> {
        let (end, row, _) = *self.entries.get(at)?;
        let from = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
        Some((&self.keys[from..end], row))
    }

    /// True if the last entry is of the row and key of this one.
    fn ends_with_row_of(&self, entry: EntryView<'_>) -> bool {
        let from = self.entries.len().checked_sub(2);
        let from = from.map_or(0, |before| self.entries[before].0);
        let last = self.entries.last();
        last.is_some_and(|(end, row, _)| *row == entry.row().raw() && self.keys[from..*end] == *entry.key())
    }

    /// The key of every row that is under one now. Events of one row under one key are neighbours, the latest one last.
    fn rows_under_keys(&self) -> impl Iterator<Item = &[u8]> {
        let key = |at: usize| {
            let from = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
            &self.keys[from..self.entries[at].0]
        };
        (0..self.entries.len()).filter_map(move |at| {
            let (_, row, sign) = self.entries[at];
            let is_same = |next: &(usize, u64, Sign)| next.1 == row && key(at + 1) == key(at);
            let is_latest = !self.entries.get(at + 1).is_some_and(is_same);
            (is_latest && sign == Sign::Entry).then(|| key(at))
        })
    }
}

/// How many leading parts two keys have in common.
fn equal_parts(maker: &KeyMaker, before: &[u8], key: &[u8], scratch: &mut Vec<u8>) -> Result<usize> {
    if before == key {
        return Ok(maker.part_count());
    }
    let common = before
        .iter()
        .zip(key)
        .take_while(|(one, other)| one == other)
        .count();
    let mut equal = 0;
    while equal + 1 < maker.part_count() && maker.prefix_length(key, equal + 1, scratch)? <= common {
        equal += 1;
    }
    Ok(equal)
}

#[cfg(test)]
#[path = "key_sample_tests.rs"]
pub(crate) mod tests;
