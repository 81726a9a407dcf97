//! Compactor: homes the settled rows of the oldest hot segments, so that the log can begin later.
//!
//! Why it exists: the log is where rows are written once and in order; there they are not compressed, take a word of memory
//! each, and keep recovery busy. A step reads some finished segments, writes the rows that count in row id order, and clears
//! their words. It is not the row's move that makes it durable but the next checkpoint; until then the log has it too.
//! States of a segment: not looked at -> needed (a transaction in it is not settled) -> free; the log's floor is the start of
//! the first one that is not free.
//! Rules: S1 to S6 (docs/storage.md), B1 the shape is installed before words are cleared, B6. S60 for a compaction on demand segments are
//! read, and rows judged, written and their words cleared, side by side; all of it is installed at once.
//! Latches and I/O: its own latch, held for a step: reads segments, writes and syncs cold files; the table's shape latch for
//! the exchange alone.
//! After a crash: the checkpoint's shapes and words fit together; what was homed since is homed again.

use crate::compact_batch::{CompactBatch, Keeper, KeptNo, SegmentPart, Settled};
use crate::database::Database;
use crate::errand::Errand;
use crate::error::{Error, Result};
use crate::home_range::{HomeRange, RowGroup, shares_of};
use crate::homing::{RowFate, fate_of};
use crate::pacing::Progress;
use crate::row_merge_plan::Need;
use crate::row_output::{RowOutput, WrittenRows};
use crate::row_pieces::{Cutter, Level, codec_of};
use crate::row_shape::{RowPiece, RowRun, RowShape, SETTLED};
use crate::row_writer::RowWriter;
use crate::table::Table;
use crossbeam_epoch::Guard;
use pbxt_base::{Addr, CommitTs, Lsn, RowId, SegmentId, TableId, planted, stop_point};
use pbxt_io::map_parallel;
use pbxt_rowmap::MapWord;
use pbxt_segment::SegmentClass;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of log that a step reads at most, but for the last segment.
const STEP_BYTES: u64 = 64 << 20;
/// Segments that a step reads at most: small ones of tests.
const STEP_SEGMENTS: u64 = 8;

/// What the compactor knows of segments at and beyond the floor.
#[derive(Debug, Default)]
pub(crate) struct Compactor {
    segments: BTreeMap<SegmentId, Keeper>,
}

/// A row that is homed, or whose word is cleared.
struct Homed {
    row: RowId,
    slot: Slot,
    /// Cleared after the install; ABSENT if none is.
    word: MapWord,
    is_gone: bool,
}

const _: () = assert!(size_of::<Homed>() == 40);

/// What is written of a row.
#[derive(Clone, Copy)]
enum Slot {
    Nothing,
    Tombstone,
    /// A payload of this part of the batch.
    Kept(u32, KeptNo),
    /// The payload of the record at this LSN.
    At(Lsn),
}

/// What one thread has made of its share.
struct HomedShare<'d> {
    /// By range of the share.
    rows: Vec<Vec<Homed>>,
    /// Owners are numbers of ranges.
    written: WrittenRows<'d>,
}

impl Database {
    /// No version below this is needed in the log, once a checkpoint has saved what is now in memory. It must be read before
    /// the words of the row maps are, and those before the shapes (rule S5).
    pub fn log_floor(&self) -> Lsn {
        Lsn::new(self.upkeep.floor()).max(self.log.start())
    }

    /// Bytes of log that are kept for the rows in them.
    pub fn hot_bytes(&self) -> u64 {
        self.log.tail().raw().saturating_sub(self.log_floor().raw())
    }

    /// Homes the settled rows of the oldest finished segments that have not been looked at, or are worth another look.
    pub fn compact_step(&self) -> Result<Progress> {
        self.compact_step_for(&Errand::of_upkeep(Need::Due), Lsn::new(u64::MAX))
    }

    /// The same for somebody, of segments that begin below `until`.
    pub(crate) fn compact_step_for(&self, errand: &Errand<'_>, until: Lsn) -> Result<Progress> {
        let mut compactor = errand.turn(self, &self.upkeep.compactor)?;
        self.poison.check()?;
        let mut horizon = self.txns.horizon();
        if planted!("homing.past_snapshots") {
            horizon = CommitTs::new(u64::MAX >> 2);
        }
        let segments = compactor.due(self, horizon, until)?;
        let parts = map_parallel(&segments, errand.threads, |segment| {
            errand.check(self)?;
            SegmentPart::read(self, *segment, horizon)
        })?;
        let mut batch = CompactBatch {
            parts: parts.into_iter().flatten().collect(),
        };
        let Some(last) = batch.parts.last().map(|part| part.segment) else {
            return Ok(Progress::Idle);
        };
        self.note_dead_values(&mut batch, horizon)?;
        let segment_bytes = self.store.geometry().hot_segment_bytes;
        let shares = shares_of(&batch, errand.threads, segment_bytes);
        let mut homed = map_parallel(&shares, errand.threads, |share| {
            self.home_share(&compactor, &batch, share, horizon, errand)
        })?;
        stop_point!("compact.before_install");
        for share in &mut homed {
            share.written.keep();
        }
        install(&shares, &homed);
        stop_point!("compact.after_install");
        let works: Vec<_> = shares.iter().zip(&homed).collect();
        map_parallel(&works, errand.threads, |(share, homed)| {
            clear_words(share, homed);
            Ok::<(), Error>(())
        })?;
        for table in batch.tables().values() {
            self.release_leaves_of(table);
        }
        let rows = homed.iter().flat_map(|share| &share.rows).map(Vec::len).sum();
        let bytes = homed.iter().map(|share| share.written.bytes()).sum();
        self.upkeep.counters.compacted(&batch, rows, bytes);
        self.upkeep
            .note_looked_at((u64::from(last.raw()) + 1) * segment_bytes);
        drop(works);
        drop(shares);
        let keepers = batch.parts.into_iter().map(|part| (part.segment, part.keeper));
        compactor.segments.extend(keepers);
        compactor.raise_floor(self)?;
        Ok(Progress::Worked)
    }

    /// Judges and writes the rows of some ranges, into files of their own.
    fn home_share(
        &self,
        compactor: &Compactor,
        batch: &CompactBatch,
        share: &[HomeRange<'_>],
        horizon: CommitTs,
        errand: &Errand<'_>,
    ) -> Result<HomedShare<'_>> {
        let judge = |range| self.decide(compactor, range, horizon, errand);
        let rows = share.iter().map(judge).collect::<Result<Vec<_>>>()?;
        let written = self.write_homed(batch, share, &rows, errand)?;
        Ok(HomedShare { rows, written })
    }

    /// Fate of every row of the range, in order of row id; each row once.
    fn decide(
        &self,
        compactor: &Compactor,
        range: &HomeRange<'_>,
        horizon: CommitTs,
        errand: &Errand<'_>,
    ) -> Result<Vec<Homed>> {
        // Of memory that is not touched none is used.
        let mut homed = Vec::with_capacity(range.versions());
        let mut guard = crossbeam_epoch::pin();
        let (mut groups, mut number) = (range.groups(), 0_u32);
        while let Some(group) = groups.next_group() {
            if number.is_multiple_of(256) {
                guard.repin_after(|| self.breathe());
                errand.check(self)?;
            }
            number = number.wrapping_add(1);
            let row = group[0].1.row;
            let fate = match known_fate(range.table, group, &guard) {
                Some(fate) => fate,
                None => fate_of(self, range.table, row, horizon, &guard, |_| {})?,
            };
            match fate {
                RowFate::None => {}
                RowFate::Clear(word) => homed.push(Homed {
                    row,
                    slot: Slot::Nothing,
                    word,
                    is_gone: false,
                }),
                RowFate::Home {
                    lsn,
                    is_tombstone,
                    word,
                } => homed.push(Homed {
                    row,
                    slot: slot_of(compactor, self, range.table, group, lsn, is_tombstone),
                    word: word.unwrap_or(MapWord::ABSENT),
                    is_gone: is_tombstone && word.is_some(),
                }),
            }
        }
        Ok(homed)
    }

    /// Writes the slots, range by range, in sections of as few files as can be.
    fn write_homed(
        &self,
        batch: &CompactBatch,
        share: &[HomeRange<'_>],
        homed: &[Vec<Homed>],
        errand: &Errand<'_>,
    ) -> Result<WrittenRows<'_>> {
        let mut out = RowOutput::new(self);
        let mut scratch = Vec::new();
        for (number, (range, rows)) in share.iter().zip(homed).enumerate() {
            let table = range.table;
            let shape = table.base.shape();
            let mut cutter = Cutter::for_patch(&shape, out.sizes());
            let mut writer = RowWriter::new(table.schema(), codec_of(table, Level::Upper));
            let mut level = Level::Upper;
            let slots = rows.iter().filter(|found| !matches!(found.slot, Slot::Nothing));
            for (count, found) in slots.enumerate() {
                if count % 64 == 0 {
                    self.breathe();
                    errand.check(self)?;
                }
                if cutter.cuts_before(found.row, out.section_bytes()) {
                    out.end_section(number, &mut writer)?;
                }
                if cutter.level() != level {
                    level = cutter.level();
                    writer = RowWriter::new(table.schema(), codec_of(table, level));
                }
                self.write_slot(batch, table, found, &mut writer, &mut out, &mut scratch)?;
            }
            out.end_section(number, &mut writer)?;
        }
        out.finish()
    }

    /// `scratch` is for a row with columns of before.
    fn write_slot(
        &self,
        batch: &CompactBatch,
        table: &Table,
        found: &Homed,
        writer: &mut RowWriter,
        out: &mut RowOutput<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        match found.slot {
            Slot::Nothing => Ok(()),
            Slot::Tombstone => out.push(writer, table.id, found.row, None),
            Slot::Kept(part, kept) => {
                let payload = batch.payload(table, (part as usize, kept), scratch)?;
                out.push(writer, table.id, found.row, Some(payload))
            }
            Slot::At(lsn) => {
                let guard = crossbeam_epoch::pin();
                let record = self.log.read_sequential(lsn, &guard)?;
                let payload = match record.as_row() {
                    Some(row) => Some(table.payload_of(&row, scratch)?),
                    None => None,
                };
                out.push(writer, table.id, found.row, payload)
            }
        }
    }
}

/// The fate of a row whose word still names a version that the scan found settled (rule S3): what `fate_of` would say, but
/// without reading from the log at random what was just read in order.
fn known_fate(table: &Table, group: &RowGroup, guard: &Guard) -> Option<RowFate> {
    // By LSN the last of the group.
    let (_, head) = group.last()?;
    let is_tombstone = head.settled_head? == Settled::Tombstone;
    let word = table.map.load_in(head.row, guard);
    (word.addr() == Addr::hot(head.lsn)).then_some(RowFate::Home {
        lsn: head.lsn,
        is_tombstone,
        word: Some(word),
    })
}

/// What of the version at `lsn` is written: nothing if it was homed before, or is a tombstone of a row that no run has.
fn slot_of(
    compactor: &Compactor,
    db: &Database,
    table: &Table,
    group: &RowGroup,
    lsn: Lsn,
    is_tombstone: bool,
) -> Slot {
    if compactor.has_homed(db, lsn) {
        return Slot::Nothing;
    }
    let row = group[0].1.row;
    if is_tombstone {
        return if table.base.shape().has_slot(row) {
            Slot::Tombstone
        } else {
            Slot::Nothing
        };
    }
    let own = group.iter().find(|(_, candidate)| candidate.lsn == lsn);
    own.and_then(|(part, candidate)| Some(Slot::Kept(*part as u32, candidate.kept?)))
        .unwrap_or(Slot::At(lsn))
}

/// Puts the pieces on top of their tables' shapes, those of all shares at once (rules B1, B5, S60).
fn install(shares: &[Vec<HomeRange<'_>>], homed: &[HomedShare<'_>]) {
    let mut written: BTreeMap<TableId, (&Table, Vec<Arc<RowPiece>>)> = BTreeMap::new();
    for (share, homed) in shares.iter().zip(homed) {
        for (number, range) in share.iter().enumerate() {
            let pieces = homed.written.of(number);
            let of_table = written.entry(range.table.id);
            of_table.or_insert((range.table, Vec::new())).1.extend(pieces);
        }
    }
    for (table, pieces) in written.into_values() {
        if pieces.is_empty() || table.is_dropped() {
            continue;
        }
        let _latch = table.shaping.lock();
        let mut runs = vec![Arc::new(RowRun::new(SETTLED, pieces))];
        runs.extend(table.base.shape().runs.iter().cloned());
        table.base.install(RowShape { runs });
    }
}

/// Tells of rows that are gone, then clears the words of rows that nobody changed since. A lock bit stays.
fn clear_words(share: &[HomeRange<'_>], homed: &HomedShare<'_>) {
    for (range, rows) in share.iter().zip(&homed.rows) {
        let table = range.table;
        // First, as a clear word without this says that the row is as its index entries are (rule S6); also where there is no index,
        // for one may come.
        if rows.iter().any(|found| found.is_gone) {
            let gone = rows.iter().filter(|found| found.is_gone);
            table.gone.add(gone.map(|found| found.row));
        }
        let guard = crossbeam_epoch::pin();
        for found in rows.iter().filter(|found| !found.word.is_absent()) {
            let word = found.word;
            let mut now = word;
            loop {
                let cleared = MapWord::ABSENT.keeping_lock_of(now);
                match table.map.compare_exchange_in(found.row, now, cleared, &guard) {
                    Err(other) if other.addr() == word.addr() => now = other,
                    _ => break,
                }
            }
        }
    }
}

impl Compactor {
    /// True if a step would read a segment.
    pub(crate) fn is_due(&self, db: &Database) -> Result<bool> {
        for segment in self.due(db, db.txns.horizon(), Lsn::new(u64::MAX))? {
            if db.log.scan_finished(segment)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Segments to read next, oldest first, of those that begin below `until`.
    fn due(&self, db: &Database, horizon: CommitTs, until: Lsn) -> Result<Vec<SegmentId>> {
        let segment_bytes = db.store.geometry().hot_segment_bytes;
        let count = (STEP_BYTES / segment_bytes).clamp(1, STEP_SEGMENTS);
        let is_due = |segment: &SegmentId| match self.segments.get(segment) {
            Some(keeper) => !keeper.is_free() && keeper.is_worth_a_look(db, horizon),
            None => true,
        };
        Ok(segments_from_floor(db)?
            .into_iter()
            .take_while(|segment| u64::from(segment.raw()) * segment_bytes < until.raw())
            .filter(is_due)
            .take(count as usize)
            .collect())
    }

    /// True if the version at `lsn`, which is settled, was homed by an earlier step: a segment is free only if all settled
    /// versions in it that counted have been.
    fn has_homed(&self, db: &Database, lsn: Lsn) -> bool {
        let segment = SegmentId::new((lsn.raw() / db.store.geometry().hot_segment_bytes) as u32);
        lsn < db.log_floor() || self.segments.get(&segment).is_some_and(Keeper::is_free)
    }

    fn raise_floor(&mut self, db: &Database) -> Result<()> {
        let is_needed = |segment: &SegmentId| !self.segments.get(segment).is_some_and(Keeper::is_free);
        let Some(first) = segments_from_floor(db)?.into_iter().find(is_needed) else {
            return Ok(());
        };
        self.segments = self.segments.split_off(&first);
        let segment_bytes = db.store.geometry().hot_segment_bytes;
        db.upkeep.raise_floor(u64::from(first.raw()) * segment_bytes);
        Ok(())
    }
}

/// The segments of the log from the floor on, up to the one that is being written.
fn segments_from_floor(db: &Database) -> Result<Vec<SegmentId>> {
    let segment_bytes = db.store.geometry().hot_segment_bytes;
    let first = (db.log_floor().raw() / segment_bytes) as u32;
    let last = (db.log.tail().raw() / segment_bytes) as u32;
    let mut segments = db.store.list(SegmentClass::Hot)?;
    segments.retain(|segment| (first..=last).contains(&segment.raw()));
    Ok(segments)
}
