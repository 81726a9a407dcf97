//! Statistics: rows per distinct value of each prefix of an index, from samples of its entries.
//!
//! Why it exists: the optimizer of a host chooses indexes and join orders by these numbers, for every statement; counting
//! distinct values would cost a read of the whole index.
//! State: one estimate per index, in memory only, for as long as the database is open: who opens the table again, or alters it and
//! leaves the index as it is, finds it. It is made again when the index has a tenth more entries, or less.
//! How: entries are sorted, so a value of a prefix begins exactly where two neighbours differ in it. The share of such
//! neighbours among those sampled, times the rows, is the number of distinct values. No assumption about how values are
//! spread is needed, only that the sampled leaves are no special ones.
//! Latches: one per index, held to copy numbers. Another one is held while sampling, which may read blocks: nobody waits for it who has
//! an older sample to go by.
//! After a crash: sampled anew.

use crate::error::Result;
use parking_lot::Mutex;
use pbxt_index::{Batch, EntryView, IndexParts, MergedCursor, SeekPos, Sign};
use pbxt_rows::KeyMaker;
use pbxt_segment::BlockCache;
use std::sync::Arc;

/// Leaves looked at in an index that is not read as a whole.
const LEAVES_SAMPLED: usize = 64;
/// An index of up to this many entries is read as a whole.
const ENTRIES_READ: u64 = 4096;

/// The estimate of one index.
#[derive(Debug, Default)]
pub(crate) struct KeyStatistics {
    kept: Mutex<Kept>,
    /// Held by the one who samples.
    sampling: Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Entries the index had when it was sampled.
    entries: u64,
    sample: Option<Sample>,
}

/// What neighbouring entries have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    /// Neighbours compared.
    pairs: u64,
    /// Of those, how many differ in the first 1, 2, ... parts.
    changes: Vec<u64>,
}

impl KeyStatistics {
    /// Writes rows per distinct value of the prefixes of 1, 2, ... parts, at least 1 each, for a table of `rows` rows.
    pub(crate) fn rows_per_key(
        &self,
        parts: &Arc<IndexParts>,
        cache: &Arc<BlockCache>,
        maker: &KeyMaker,
        rows: u64,
        out: &mut [u64],
    ) -> Result<()> {
        let entries = parts.entries();
        if self.write(entries, rows, out, false) {
            return Ok(());
        }
        // One samples; the others do with what is there, and wait only if there is nothing.
        let _sampling = match self.sampling.try_lock() {
            Some(own) => own,
            None if self.write(entries, rows, out, true) => return Ok(()),
            None => self.sampling.lock(),
        };
        if self.write(entries, rows, out, false) {
            return Ok(());
        }
        self.sample(parts, cache, maker, (entries, rows), out)
    }

    /// Samples the index and answers from it; the caller holds `sampling`.
    fn sample(
        &self,
        parts: &Arc<IndexParts>,
        cache: &Arc<BlockCache>,
        maker: &KeyMaker,
        (entries, rows): (u64, u64),
        out: &mut [u64],
    ) -> Result<()> {
        let sample = Sample::of(parts, cache, maker)?;
        *self.kept.lock() = Kept {
            entries,
            sample: Some(sample),
        };
        self.write(entries, rows, out, true);
        Ok(())
    }

    /// Lets the next question sample the index again.
    pub(crate) fn forget(&self) {
        self.kept.lock().sample = None;
    }

    /// Answers from the sample at hand; false if there is none, or an old one that will not do.
    fn write(&self, entries: u64, rows: u64, out: &mut [u64], old_will_do: bool) -> bool {
        let kept = self.kept.lock();
        let is_recent = old_will_do || entries.abs_diff(kept.entries) <= kept.entries / 10;
        let Some(sample) = kept.sample.as_ref().filter(|_| is_recent) else {
            return false;
        };
        for (place, &changes) in out.iter_mut().zip(&sample.changes) {
            *place = rows_per_value(rows, changes, sample.pairs);
        }
        true
    }
}

/// Rows per distinct value when `changes` of `pairs` neighbours differ; rounded, 1 to `rows`.
fn rows_per_value(rows: u64, changes: u64, pairs: u64) -> u64 {
    if rows <= 1 || pairs == 0 {
        return 1;
    }
    let share = changes as f64 / pairs as f64;
    let distinct = 1.0 + (rows - 1) as f64 * share;
    ((rows as f64 / distinct).round() as u64).clamp(1, rows)
}

impl Sample {
    fn of(parts: &Arc<IndexParts>, cache: &Arc<BlockCache>, maker: &KeyMaker) -> Result<Self> {
        let mut sample = Self {
            pairs: 0,
            changes: vec![0; maker.part_count()],
        };
        let mut stretch = Stretch::default();
        if parts.entries() <= ENTRIES_READ {
            let mut entries = MergedCursor::new();
            entries.seek(parts, cache, &SeekPos::START, true)?;
            while let Some(entry) = entries.peek() {
                stretch.push(entry);
                entries.advance()?;
            }
            sample.add(maker, &stretch)?;
            return Ok(sample);
        }
        let mut batch = Batch::new();
        for leaf in 0..LEAVES_SAMPLED {
            stretch.clear();
            let share = (leaf as f64 + 0.5) / LEAVES_SAMPLED as f64;
            parts.sample(share, cache, &mut batch, |entry| stretch.push(entry))?;
            sample.add(maker, &stretch)?;
        }
        Ok(sample)
    }

    /// Compares each row of a stretch of entries with the one before it.
    fn add(&mut self, maker: &KeyMaker, stretch: &Stretch) -> Result<()> {
        let mut scratch = Vec::new();
        let mut before: Option<&[u8]> = None;
        for key in stretch.rows_under_keys() {
            if let Some(before) = before {
                let equal = equal_parts(maker, before, key, &mut scratch)?;
                self.pairs += 1;
                self.changes
                    .iter_mut()
                    .skip(equal)
                    .for_each(|changes| *changes += 1);
            }
            before = Some(key);
        }
        Ok(())
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
mod tests {
    use super::*;
    use pbxt_base::{Lsn, RowId, TxnId};
    use pbxt_rows::{HostColumn, HostKind, HostLayout, KeyEncoding, KeyPart, KeySpec};

    /// Two numbers of four bytes.
    fn maker() -> KeyMaker {
        let column = |offset| HostColumn {
            offset,
            kind: HostKind::Fixed(4),
            null_offset: 0,
            null_bit: 0,
            stored: true,
        };
        let layout = HostLayout::new(8, vec![column(0), column(4)]).expect("two fields side by side");
        let encoding = KeyEncoding::Uint;
        let part = |column| KeyPart {
            column,
            length: 4,
            prefix: false,
            nullable: false,
            descending: false,
            encoding,
        };
        let spec = KeySpec::new(vec![part(0), part(1)], false).expect("two parts");
        KeyMaker::new(&spec, &layout, &[0, 0]).expect("parts fit the columns")
    }

    #[expect(clippy::big_endian_bytes, reason = "keys order as big-endian numbers do")]
    fn put(parts: &Arc<IndexParts>, row: u64, first: u32, second: u32, lsn: u64, sign: Sign) {
        let key = [first.to_be_bytes(), second.to_be_bytes()].concat();
        parts
            .active
            .insert(&key, RowId::new(row), TxnId::new(1), Lsn::new(lsn), sign, &[])
            .expect("a short key");
    }

    fn estimate(statistics: &KeyStatistics, tree: &Arc<IndexParts>, rows: u64) -> [u64; 2] {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let mut out = [0, 0];
        statistics
            .rows_per_key(tree, &cache, &maker(), rows, &mut out)
            .expect("the keys are whole");
        out
    }

    #[test]
    fn a_small_index_is_counted_exactly() {
        let tree = Arc::new(IndexParts::new());
        for row in 0..60_u32 {
            put(&tree, u64::from(row), row / 20, row / 2, 8, Sign::Entry);
        }
        assert_eq!(estimate(&KeyStatistics::default(), &tree, 60), [20, 2]);
    }

    #[test]
    fn an_index_without_entries_has_one_row_per_key() {
        assert_eq!(
            estimate(&KeyStatistics::default(), &Arc::new(IndexParts::new()), 0),
            [1, 1]
        );
    }

    #[test]
    fn rows_that_left_a_key_do_not_count() {
        let tree = Arc::new(IndexParts::new());
        for row in 0..40 {
            put(&tree, u64::from(row), 1, row, 8, Sign::Entry);
            put(&tree, u64::from(row), 1, row, 16, Sign::Anti);
            put(&tree, u64::from(row), 100 + row, 0, 16, Sign::Entry);
        }
        assert_eq!(estimate(&KeyStatistics::default(), &tree, 40), [1, 1]);
    }

    #[test]
    fn a_large_index_is_estimated_within_a_quarter() {
        for per_value in [1_u64, 7, 50] {
            let tree = Arc::new(IndexParts::new());
            let rows = 100_000_u64;
            for row in 0..rows {
                let shuffled = row * 7_919 % rows;
                put(
                    &tree,
                    row,
                    (shuffled / per_value) as u32,
                    row as u32,
                    8,
                    Sign::Entry,
                );
            }
            let [first, both] = estimate(&KeyStatistics::default(), &tree, rows);
            assert!(
                first.abs_diff(per_value) * 4 <= per_value,
                "{first} rows per key, {per_value} expected"
            );
            assert_eq!(both, 1);
        }
    }

    #[test]
    fn an_estimate_is_kept_until_the_index_grew_by_a_tenth_or_it_is_forgotten() {
        let (tree, statistics) = (Arc::new(IndexParts::new()), KeyStatistics::default());
        (0..100).for_each(|row| put(&tree, row, 1, row as u32, 8, Sign::Entry));
        assert_eq!(estimate(&statistics, &tree, 100), [100, 1]);
        (100..110).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
        assert_eq!(
            estimate(&statistics, &tree, 110),
            [110, 1],
            "the sample at hand knows one value only"
        );
        statistics.forget();
        assert_eq!(estimate(&statistics, &tree, 110), [10, 1]);
        (110..130).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
        assert_eq!(estimate(&statistics, &tree, 130), [4, 1]);
    }

    #[test]
    fn while_one_samples_the_others_go_by_the_sample_before() {
        let (tree, statistics) = (Arc::new(IndexParts::new()), KeyStatistics::default());
        (0..100).for_each(|row| put(&tree, row, 1, row as u32, 8, Sign::Entry));
        assert_eq!(estimate(&statistics, &tree, 100), [100, 1]);
        (100..200).for_each(|row| put(&tree, row, row as u32, 1, 8, Sign::Entry));
        let sampling = statistics.sampling.lock();
        assert_eq!(estimate(&statistics, &tree, 200), [200, 1], "the old sample");
        drop(sampling);
        assert_eq!(estimate(&statistics, &tree, 200), [2, 1]);
    }
}
