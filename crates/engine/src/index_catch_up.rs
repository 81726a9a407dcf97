//! Index catch-up: brings an index that is being built up to what writers made of the table meanwhile.
//!
//! Why it exists: keeping writers away from a table for as long as its index is built, as long as the table is large, is what users
//! of other engines call downtime.
//! How: in rounds. Each takes the rows that were written since the last one, looks at each of them by the snapshot that the index
//! stands at and by a new one, and writes the differences as a small run. A round has less to do than the one before; the
//! last one is made while nobody writes.
//! Rules: AL28 to AL31 (docs/alter.md). X1, X11, X34, X35: a change is settled, and its LSN is the number of its round, so it comes after what
//! the run of the build says and before everything that is logged.
//! Latches and I/O: none held; reads rows, writes piece files.
//! After a crash: as the rest of the build.

use super::{IndexBuild, pulse_of};
use crate::bulk::{Share, duplicate, least_chunk};
use crate::bulk_files::Held;
use crate::bulk_keys::Pulse;
use crate::counters::{Counter, Counters};
use crate::cursor::{Bind, Cursor};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::index_keys::RowKeys;
use crate::session::Session;
use pbxt_base::{Lsn, RowId, TxnId, planted};
use pbxt_index::{Batch, Fate, IndexParts, Run, RunBuilder, RunCursor, SeekPos, Sign, Tree};
use pbxt_segment::SegmentClass;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Rows written meanwhile that are left to the last round: a tenth of a second, in which nobody writes.
const ROWS_LEFT: u64 = 10_000;
/// Rounds beside writers at most: who writes faster than this catches up waits in the last one.
pub(super) const ROUNDS_MAX: u64 = 20;
/// How often it looks.
const LOOK: Duration = Duration::from_millis(2);
/// Rows between two reports and looks at the kill flag.
const PULSE_ROWS: u64 = 1024;

/// What a round found that keeps it from its end.
type Twins = Option<(usize, RowId)>;

/// Key and unpack information that a row had in an index.
#[derive(Default)]
struct Before {
    is_there: bool,
    key: Vec<u8>,
    unpack: Vec<u8>,
}

/// Changes of one index, in memory until they are a run.
#[derive(Default)]
struct Changes {
    bytes: Vec<u8>,
    list: Vec<Change>,
}

#[derive(Clone, Copy)]
struct Change {
    start: usize,
    key: usize,
    unpack: usize,
    row: RowId,
    sign: Sign,
}

impl Changes {
    fn push(&mut self, row: RowId, sign: Sign, key: &[u8], unpack: &[u8]) {
        self.list.push(Change {
            start: self.bytes.len(),
            key: key.len(),
            unpack: unpack.len(),
            row,
            sign,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(unpack);
    }

    /// The row has this key now (rule X11).
    fn put(&mut self, row: RowId, before: &Before, key: &[u8], unpack: &[u8]) {
        if before.is_there && before.key == key {
            if before.unpack != unpack {
                self.push(row, Sign::Entry, key, unpack);
            }
            return;
        }
        self.take_away(row, before);
        self.push(row, Sign::Entry, key, unpack);
    }

    fn take_away(&mut self, row: RowId, before: &Before) {
        if before.is_there {
            self.push(row, Sign::Anti, &before.key, &[]);
        }
    }

    fn key(&self, change: &Change) -> &[u8] {
        &self.bytes[change.start..change.start + change.key]
    }

    fn unpack(&self, change: &Change) -> &[u8] {
        let start = change.start + change.key;
        &self.bytes[start..start + change.unpack]
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.list.len() * size_of::<Change>()
    }

    fn sort(&mut self) {
        let mut list = std::mem::take(&mut self.list);
        list.sort_unstable_by(|a, b| (self.key(a), a.row, a.sign).cmp(&(self.key(b), b.row, b.sign)));
        self.list = list;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
    }
}

impl IndexBuild {
    /// How long a round usually waits for the transactions that wrote its rows.
    pub const PATIENCE: Duration = Duration::from_secs(2);

    /// One round beside writers, if more rows have been written than the last round is to have. False if there is none to make, or it
    /// could not be made. For builds of several tables that become part of them together: what was built first falls behind while
    /// others are built (rule AL35). As often as may be; false too when as many were made as are worth it.
    ///
    /// # Errors
    /// As `catch_up`.
    pub fn catch_up_beside(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        Ok(self.rounds - self.rounds_before < ROUNDS_MAX && self.catch_up_if_many(progress)?)
    }

    pub(super) fn catch_up_if_many(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        if self.watch.rows().count() <= ROWS_LEFT {
            return Ok(false);
        }
        self.gather(Self::PATIENCE, progress, |counters| &counters.build_rows_beside)
    }

    /// One round: the index gets what was written so far. False if a transaction that has written rows is not over within
    /// `patience`; then nothing was done. `progress` is told how much is done, and of how much.
    ///
    /// # Errors
    /// `DuplicateKey` if two rows have a key that only one may have (see `show_refused`); `Killed`. No ALTER takes the build then.
    pub fn catch_up(&mut self, patience: Duration, progress: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        self.gather(patience, progress, |counters| &counters.build_rows_held)
    }

    /// As `catch_up`; says where the rows are counted.
    fn gather(
        &mut self,
        patience: Duration,
        progress: &mut dyn FnMut(u64, u64),
        counted: fn(&Counters) -> &Counter,
    ) -> Result<bool> {
        if self.watch.rows().count() == 0 {
            return Ok(true);
        }
        let first = self.watch.rows().take();
        match self.wait_for_writers(patience) {
            Ok(true) => {}
            waited => {
                self.watch.rows().put_back(first);
                return waited;
            }
        }
        self.round(first, progress, counted)?;
        Ok(true)
    }

    /// The last round; the caller holds the table exclusively.
    pub(crate) fn catch_up_last(&mut self) -> Result<()> {
        let rows = self.watch.rows().take();
        if rows.is_empty() {
            return Ok(());
        }
        self.round(rows, &mut |_, _| {}, |counters| &counters.build_rows_held)
    }

    /// Rule AL29: whoever wrote a row that is noted is over, and a snapshot taken now says what became of it.
    fn wait_for_writers(&self, patience: Duration) -> Result<bool> {
        let db = &self.db;
        let held = || db.table_locks.holders(self.table.id);
        let writers: Vec<TxnId> = held().into_iter().map(|(txn, _)| txn).collect();
        let started = db.clock.now_millis();
        while held().iter().any(|(txn, _)| writers.contains(txn)) {
            if db.waits.host_killed(self.reader.gate()) {
                return Err(Error::Killed);
            }
            let waited = Duration::from_millis(db.clock.now_millis() - started);
            if waited >= patience {
                return Ok(false);
            }
            self.reader.gate().sleep(LOOK);
        }
        Ok(true)
    }

    /// Writes what became of these rows, and of those written until the new snapshot.
    fn round(
        &mut self,
        mut rows: RoaringTreemap,
        progress: &mut dyn FnMut(u64, u64),
        counted: fn(&Counters) -> &Counter,
    ) -> Result<()> {
        let mut next = self.reader.guest();
        let stands_at = next.snapshot();
        // Rule AL29: some of these are seen by the snapshot, and some of their writers are not over.
        let late = self.watch.rows().take();
        rows |= &late;
        self.watch.rows().put_back(late);
        let mut pulse = pulse_of(&self.reader, rows.len(), progress);
        self.is_broken = true;
        self.rounds += 1;
        let known: Vec<usize> = self.changes.iter().map(Vec::len).collect();
        let unclaimed = self.write_changes(&rows, &mut next, &mut pulse)?;
        let before = std::mem::replace(&mut self.reader, next);
        drop(before);
        self.answers_from = stands_at;
        let twins = self.find_twins(&known, &unclaimed, &mut pulse)?;
        if let Some((number, second)) = twins {
            self.refused = Some((number, second));
            return Err(duplicate(&self.next, number, second));
        }
        self.is_broken = false;
        counted(&self.db.counters).add(rows.len());
        Ok(())
    }

    /// Adds runs with what `next` sees of these rows otherwise than the reader. Rows whose key need not be the only one, for each index.
    fn write_changes(
        &mut self,
        rows: &RoaringTreemap,
        next: &mut Session,
        pulse: Pulse<'_>,
    ) -> Result<Vec<RoaringTreemap>> {
        let indexes = self.numbers.len();
        let mut keys = RowKeys::new(&self.db, &self.next, &self.numbers)?;
        let (mut then, mut now) = (Cursor::new(&self.table), Cursor::new(&self.table));
        then.bind(&mut self.reader, Bind::default())?;
        now.bind(next, Bind::default())?;
        let mut before: Vec<Before> = std::iter::repeat_with(Before::default).take(indexes).collect();
        let mut changes: Vec<Changes> = std::iter::repeat_with(Changes::default).take(indexes).collect();
        let mut unclaimed = vec![RoaringTreemap::new(); indexes];
        // What a load would have for its chunks: each run is one more place to look (rule AL29).
        let share = Share::take(&self.db);
        let room = share.as_ref().map_or(0, Share::chunk_bytes).max(least_chunk());
        for (number, row) in rows.iter().enumerate() {
            let row = RowId::new(row);
            if planted!("build.change_missed") && row.raw() % 4 == 3 {
                continue;
            }
            for key in &mut before {
                key.is_there = false;
            }
            then.fetch(&mut self.reader, row, |version| {
                keys.each(version.payload(), |at, key, _, unpack| {
                    let before = &mut before[at];
                    before.is_there = true;
                    key.clone_into(&mut before.key);
                    unpack.clone_into(&mut before.unpack);
                })
            })?;
            let found = now.fetch(next, row, |version| {
                keys.each(version.payload(), |at, key, claim, unpack| {
                    changes[at].put(row, &before[at], key, unpack);
                    if !claim {
                        unclaimed[at].insert(row.raw());
                    }
                })
            })?;
            if !found {
                for (changes, before) in changes.iter_mut().zip(&before) {
                    changes.take_away(row, before);
                }
            }
            if changes.iter().map(Changes::memory_bytes).sum::<usize>() >= room {
                self.write_runs(&mut changes)?;
            }
            if (number as u64 + 1).is_multiple_of(PULSE_ROWS) {
                pulse(PULSE_ROWS)?;
            }
        }
        self.write_runs(&mut changes)?;
        Ok(unclaimed)
    }

    /// Makes a run of the changes of each index that has some.
    fn write_runs(&mut self, changes: &mut [Changes]) -> Result<()> {
        // Rule B6: files begun from here on, until those of all runs are held.
        let newer = Held::begin(&self.db);
        let codec = self.table.def().compression.base();
        let lsn = Lsn::new(self.rounds);
        for (at, changes) in changes
            .iter_mut()
            .enumerate()
            .filter(|(_, found)| !found.list.is_empty())
        {
            changes.sort();
            let def = &self.next.indexes[self.numbers[at]].def;
            let mut builder = RunBuilder::new(&self.db.store, def.id, None, codec)
                .with_filter(def.unique)
                .with_suffix(def.spec.suffix_bytes());
            for change in &changes.list {
                let (key, unpack) = (changes.key(change), changes.unpack(change));
                builder.push(key, change.row, lsn, change.sign, TxnId::new(0), unpack)?;
            }
            changes.clear();
            let run = Arc::new(builder.finish()?);
            for piece in &run.pieces {
                self.files.add(SegmentClass::Meta, piece.reference().0);
            }
            self.changes[at].push(run);
        }
        self.hold_files();
        drop(newer);
        Ok(())
    }

    /// Rule AL30: a row that has got a key of a unique index, and another row that has it too. `known` says how many runs there were before.
    fn find_twins(&self, known: &[usize], unclaimed: &[RoaringTreemap], pulse: Pulse<'_>) -> Result<Twins> {
        for (at, &number) in self.numbers.iter().enumerate() {
            if !self.next.indexes[number].def.unique {
                continue;
            }
            let parts = self.parts_of(at);
            for run in &self.changes[at][known[at]..] {
                let mut cursor = RunCursor::uncached(Arc::clone(run));
                cursor.seek(&SeekPos::START, true)?;
                let mut seen = 0_u64;
                while let Some(entry) = cursor.peek() {
                    if entry.sign() == Sign::Entry && !unclaimed[at].contains(entry.row().raw()) {
                        let twin = twin_of(&self.db, &parts, entry.key(), entry.row())?;
                        if let Some(twin) = twin {
                            return Ok(Some((number, twin)));
                        }
                    }
                    seen += 1;
                    if seen.is_multiple_of(PULSE_ROWS) {
                        pulse(0)?;
                    }
                    cursor.advance()?;
                }
            }
        }
        Ok(None)
    }

    /// What there is of the index at this place of `numbers`.
    pub(super) fn parts_of(&self, at: usize) -> IndexParts {
        let mut parts = IndexParts::of_tree(Arc::new(Tree::new()));
        parts.runs = self.changes[at].iter().rev().map(Arc::clone).collect();
        let base = self.runs.get(at).filter(|run: &&Arc<Run>| !run.is_empty());
        parts.runs.extend(base.map(Arc::clone));
        parts
    }
}

/// The greater one of two rows that are under this key, of which `row` is one.
fn twin_of(db: &Database, parts: &IndexParts, key: &[u8], row: RowId) -> Result<Option<RowId>> {
    let mut last: BTreeMap<RowId, (Lsn, Sign)> = BTreeMap::new();
    parts.for_each_under_key(key, &db.cache, &mut Batch::default(), |entry| {
        let event = (entry.lsn(), entry.sign());
        let known = last.entry(entry.row()).or_insert(event);
        *known = event.max(*known);
        Fate::Keep
    })?;
    let is_there = |row: &RowId| last.get(row).is_some_and(|(_, sign)| *sign == Sign::Entry);
    if !is_there(&row) {
        return Ok(None);
    }
    let mut others = last.keys().filter(|other| **other != row && is_there(other));
    Ok(others.next().map(|other| row.max(*other)))
}
