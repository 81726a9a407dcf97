//! Bulk keys: index entries of many rows, sorted outside memory, and one run an index made of them.
//!
//! Why it exists: the keys of a load, and those of an index that is built over rows that are there, may be many times the memory.
//! State: entries of each index in sorted parts on disk; while there are too many parts of one level these are merged.
//! Rules: L2 (key bytes, row id) rises. L4, B6 (bulk_files).
//! Latches and I/O: none held; writes and reads piece files.
//! After a crash: unnamed files are removed at open.

use crate::bulk_chunk::{KeyArena, Ranks};
use crate::bulk_files::Held;
use crate::bulk_sort::{FAN_IN, MergedSource};
use crate::bulk_spill::{Part, Source, SpillWriter};
use crate::database::Database;
use crate::definition::IndexDef;
use crate::error::{Error, Result};
use pbxt_base::{Lsn, RowId, SegmentId, TxnId};
use pbxt_index::{Run, RunBuilder, Sign};
use pbxt_segment::{Codec, PieceWriter, SegmentClass};
use roaring::RoaringTreemap;
use std::sync::Arc;

/// Entries between two calls of a `Pulse`.
const PULSE_ENTRIES: u64 = 1 << 16;

/// Called now and then with the entries done since the last time; an error ends the work.
pub(crate) type Pulse<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// See the module.
#[derive(Debug)]
pub(crate) struct KeySorter {
    db: Arc<Database>,
    /// Sorted entries of each index.
    parts: Vec<Vec<Part>>,
    items: Vec<u128>,
    held: Held,
    /// Every file begun so far.
    begun: Vec<(SegmentClass, SegmentId)>,
}

/// One index's entries.
pub(crate) struct Built {
    pub run: Run,
    /// Rows whose key need not be the only one, for unique indexes.
    pub unclaimed: RoaringTreemap,
}

/// Why there is no run.
pub(crate) enum Unbuilt {
    /// These rows have one key that only one may have; the first one has the lower id.
    Twins(RowId, RowId),
    Error(Error),
}

impl<E: Into<Error>> From<E> for Unbuilt {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl KeySorter {
    pub(crate) fn new(db: &Arc<Database>, indexes: usize) -> Self {
        let held = Held::begin(db);
        held.narrow_to(Vec::new());
        Self {
            db: Arc::clone(db),
            parts: std::iter::repeat_with(Vec::new).take(indexes).collect(),
            items: Vec::new(),
            held,
            begun: Vec::new(),
        }
    }

    /// Begins a file, which is held from its first moment on (rule B6).
    pub(crate) fn create(&mut self, class: SegmentClass) -> Result<PieceWriter> {
        let newer = Held::begin(&self.db);
        let out = PieceWriter::create(&self.db.store, class)?;
        self.begun.push((class, out.id()));
        self.held.narrow_to(self.begun.clone());
        drop(newer);
        Ok(out)
    }

    /// Room for sorting, kept between chunks.
    pub(crate) fn items(&mut self) -> &mut Vec<u128> {
        &mut self.items
    }

    /// Sorts and spills the keys of a chunk, one arena for each index; its rows are numbered from `base`.
    pub(crate) fn spill(
        &mut self,
        arenas: &[KeyArena],
        ranks: Option<&Ranks>,
        base: RowId,
        pulse: Pulse<'_>,
    ) -> Result<()> {
        let mut items = std::mem::take(&mut self.items);
        let mut spill = self.new_spill()?;
        for (number, arena) in arenas.iter().enumerate() {
            pulse(0)?;
            arena.sort(ranks, &mut items);
            spill.begin(number);
            for &item in &items {
                spill.push(&arena.entry(item, base))?;
            }
            spill.end()?;
        }
        self.items = items;
        let parts = spill.finish(0)?;
        for (parts, part) in self.parts.iter_mut().zip(parts) {
            if part.entries > 0 {
                parts.push(part);
            }
        }
        (0..self.parts.len()).try_for_each(|number| self.reduce(number, &mut *pulse))
    }

    /// Begins a file of sorted entries.
    pub(crate) fn new_spill(&mut self) -> Result<SpillWriter> {
        let out = self.create(SegmentClass::Meta)?;
        Ok(SpillWriter::new(&self.db.store, out))
    }

    /// Merges the parts of an index while there are so many of one level that the last merge would take too much memory.
    fn reduce(&mut self, number: usize, pulse: Pulse<'_>) -> Result<()> {
        while let Some(level) = self.parts[number].last().map(|part| part.level) {
            let begin = self.parts[number].partition_point(|part| part.level > level);
            if self.parts[number].len() - begin < FAN_IN {
                return Ok(());
            }
            let mut spill = self.new_spill()?;
            let parts = self.parts[number].split_off(begin);
            let sources = parts.iter().map(Source::file).collect::<Result<_>>()?;
            let mut merged = MergedSource::new(sources);
            spill.begin(number);
            let mut entries = 0_u64;
            while let Some(entry) = merged.entry() {
                spill.push(&entry)?;
                merged.advance()?;
                entries += 1;
                if entries.is_multiple_of(PULSE_ENTRIES) {
                    pulse(0)?;
                }
            }
            spill.end()?;
            drop(merged);
            self.parts[number].extend(spill.finish(level + 1)?);
        }
        Ok(())
    }

    /// Makes the run of an index of all that was spilled and of what is still in memory.
    pub(crate) fn build_run(
        &self,
        number: usize,
        def: &IndexDef,
        (tag, codec): (Option<(TxnId, Lsn)>, Codec),
        last: Option<Source<'_>>,
        pulse: Pulse<'_>,
    ) -> std::result::Result<Built, Unbuilt> {
        let mut sources = self.parts[number]
            .iter()
            .map(Source::file)
            .collect::<Result<Vec<_>>>()?;
        sources.extend(last);
        let mut merged = MergedSource::new(sources);
        let mut builder = RunBuilder::new(&self.db.store, def.id, tag, codec)
            .with_filter(def.unique)
            .with_suffix(def.spec.suffix_bytes());
        let mut unclaimed = RoaringTreemap::new();
        let mut claimed = Claimed::default();
        while let Some(entry) = merged.entry() {
            let (none, txn) = (Lsn::new(0), TxnId::new(0));
            builder.push(entry.key, entry.row, none, Sign::Entry, txn, entry.unpack)?;
            if def.unique {
                if !entry.claim {
                    unclaimed.insert(entry.row.raw());
                } else if let Some(first) = claimed.pass(entry.key, entry.row) {
                    return Err(Unbuilt::Twins(first.min(entry.row), first.max(entry.row)));
                }
            }
            if builder.entries().is_multiple_of(PULSE_ENTRIES) {
                pulse(PULSE_ENTRIES)?;
            }
            merged.advance()?;
        }
        let run = builder.finish()?;
        Ok(Built { run, unclaimed })
    }

    /// What was spilled of an index.
    #[cfg(test)]
    pub(crate) fn parts_of(&self, number: usize) -> &[Part] {
        &self.parts[number]
    }
}

/// The key claimed last.
#[derive(Default)]
struct Claimed {
    key: Vec<u8>,
    row: Option<RowId>,
}

impl Claimed {
    /// Notes a claim; the row before it, if that has the same key.
    #[inline]
    fn pass(&mut self, key: &[u8], row: RowId) -> Option<RowId> {
        let before = self.row.replace(row).filter(|_| self.key == key);
        if before.is_none() {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        before
    }
}
