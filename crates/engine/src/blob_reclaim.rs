//! Blob reclaim: which large values nobody will read again, and blob segments that hold no others.
//!
//! Why it exists: a value lives in a file of its own kind and dies with the last version that names it. Nobody counts while
//! rows are written: it is the compactor and the merges that meet every version that no longer counts, once or twice.
//! State: per segment the ranges of dead values. Noting a value twice changes nothing, so what is met again after a crash does
//! no harm; neighbours melt, so a dead segment is one range. A value that is not met (its row was never written, its table was
//! dropped) is found by a census.
//! Rules: S15 a value is dead if a version that counts no more names it, and no version of the row that counts does. S16 a
//! segment goes when all its bytes are dead, and a checkpoint has begun since that was known: then neither a shape nor the
//! part of the log that recovery reads names a value of it.
//! What is dead in a segment that lives in part gives its room back in place: `room` (rules S50 to S52).
//! Latches and I/O: its own, for look-ups; a turn over the step that drops segments and gives room back, which writes the manifest.
//! After a crash: the ranges come back from the image; what is not in it is met again.

use crate::compact_batch::CompactBatch;
use crate::database::Database;
use crate::error::Result;
use crate::homing::fate_of;
use crate::image::damage;
use crate::pacing::Progress;
use crate::row_shape::Slot;
use crate::stored_values::place_of;
use crate::table::Table;
use census::CensusState;
use parking_lot::Mutex;
use pbxt_base::codec::{Reader, put_varint};
use pbxt_base::{CommitTs, Lsn, RowId, SegmentId, planted};
use pbxt_rows::{BlobRef, ColumnKind, RowView, Schema, Value};
use pbxt_segment::{BlobStore, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use pbxt_txlog::RowRef;
use room::Room;
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) use pbxt_rows::names_external as has_large;

#[path = "blob_census.rs"]
mod census;
#[path = "blob_room.rs"]
mod room;

pub use room::dead_values;

/// Numbers of segments have 29 bits.
const SEGMENT_IDS: u32 = 1 << 29;

/// Dead ranges of one segment.
#[derive(Debug, Default, PartialEq, Eq)]
struct DeadRanges {
    /// Begin to end; disjoint, not touching.
    ranges: BTreeMap<u64, u64>,
    /// Where the first checkpoint may begin that knows all of it to be dead.
    dead_since: Option<Lsn>,
    room: Room,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BlobAccounts {
    segments: Mutex<BTreeMap<SegmentId, DeadRanges>>,
    census: Mutex<CensusState>,
    /// Who drops segments and gives room back, one at a time.
    step: Mutex<()>,
}

/// True if rows of the table can name large values.
pub(crate) fn can_have_large(table: &Table) -> bool {
    let mut columns = table.schema().columns().iter();
    columns.any(|column| can_be_large(column.kind))
}

/// True if values of such a column can stand outside the row. Those of a padded one are stored without their padding, so they are of any
/// length, and leave a row that is too long as all others do.
pub(crate) fn can_be_large(kind: ColumnKind) -> bool {
    matches!(kind, ColumnKind::Var | ColumnKind::Padded { .. })
}

/// The large values a payload names.
pub(crate) fn large_values(schema: &Schema, payload: &[u8]) -> Result<Vec<BlobRef>> {
    let mut values = Vec::new();
    if has_large(payload) {
        let view = RowView::new(schema, payload)?;
        for column in 0..view.column_count() {
            if let Value::External(value) = view.get(column)? {
                values.push(value);
            }
        }
    }
    Ok(values)
}

/// The large values that a version of the log names in columns of now (rule AL14).
pub(crate) fn values_of(table: &Table, version: &RowRef<'_>) -> Result<Vec<BlobRef>> {
    if !has_large(version.payload()) {
        return Ok(Vec::new());
    }
    let mut scratch = Vec::new();
    large_values(table.schema(), table.payload_of(version, &mut scratch)?)
}

/// What of the ranges lies before the end of the segment: of values that were never synced a power cut may leave nothing, and they are
/// known to be dead all the same.
fn within(ranges: &BTreeMap<u64, u64>, segment_end: u64) -> impl Iterator<Item = (u64, u64)> {
    let before_end = ranges.range(..segment_end);
    before_end.map(move |(begin, end)| (*begin, (*end).min(segment_end)))
}

impl DeadRanges {
    fn insert(&mut self, mut begin: u64, mut end: u64) {
        self.room.note(end - begin);
        if let Some((left, left_end)) = self.ranges.range(..=begin).next_back().map(|(a, b)| (*a, *b))
            && left_end >= begin
        {
            begin = left;
            end = end.max(left_end);
        }
        while let Some((right, right_end)) = self.ranges.range(begin..=end).next().map(|(a, b)| (*a, *b)) {
            self.ranges.remove(&right);
            end = end.max(right_end);
        }
        self.ranges.insert(begin, end);
    }

    /// Of one segment of the image.
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut dead = Self::default();
        let mut at = 0_u64;
        for number in 0..reader.varint()? {
            let (gap, bytes) = (reader.varint()?, reader.varint()?);
            let begin = at.checked_add(gap);
            let end = begin.and_then(|begin| begin.checked_add(bytes));
            let (Some(begin), Some(end)) = (begin, end.filter(|end| *end <= SEGMENT_BYTES_MAX)) else {
                let found = format!("one of {bytes} bytes, {gap} behind {at}");
                return Err(damage("dead bytes inside a blob segment", found));
            };
            if number > 0 && gap == 0 {
                return Err(damage(
                    "dead bytes that do not touch",
                    format!("two ranges at {at}"),
                ));
            }
            dead.insert(begin, end);
            at = end;
        }
        Ok(dead)
    }

    /// Dead bytes of a segment that ends at `end`.
    fn bytes(&self, end: u64) -> u64 {
        within(&self.ranges, end).map(|(begin, to)| to - begin).sum()
    }

    /// True if everything between header and `end` is dead.
    fn covers(&self, end: u64) -> bool {
        let first = SEGMENT_HEADER_BYTES as u64;
        self.ranges
            .first_key_value()
            .is_some_and(|(begin, to)| *begin <= first && *to >= end)
    }
}

impl BlobAccounts {
    fn note(&self, values: &[BlobRef]) {
        let mut segments = self.segments.lock();
        for value in values {
            let (begin, end) = place_of(value);
            segments
                .entry(value.addr.segment())
                .or_default()
                .insert(begin, end);
        }
    }

    /// What is known to be dead in a segment, rising.
    pub(crate) fn dead_ranges(&self, id: SegmentId) -> Vec<Range<u64>> {
        let segments = self.segments.lock();
        let dead = segments.get(&id).into_iter().flat_map(|dead| &dead.ranges);
        dead.map(|(begin, end)| *begin..*end).collect()
    }

    /// True if all of these bytes are known to be dead.
    pub(crate) fn is_dead(&self, id: SegmentId, bytes: Range<u64>) -> bool {
        let segments = self.segments.lock();
        let dead = segments.get(&id);
        let range = dead.and_then(|dead| dead.ranges.range(..=bytes.start).next_back());
        range.is_some_and(|(_, end)| *end >= bytes.end)
    }

    /// For the checkpoint image (docs/storage.md, large values).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let segments = self.segments.lock();
        let mut out = Vec::new();
        put_varint(&mut out, segments.len() as u64);
        for (id, dead) in &*segments {
            put_varint(&mut out, u64::from(id.raw()));
            put_varint(&mut out, dead.ranges.len() as u64);
            let mut before = 0;
            for (begin, end) in &dead.ranges {
                put_varint(&mut out, begin - before);
                put_varint(&mut out, end - begin);
                before = *end;
            }
        }
        out
    }

    /// From the image; no bytes are an empty state.
    ///
    /// # Errors
    /// `Corrupt`, without a file's name, if they are not what `encode` writes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut segments = BTreeMap::new();
        let mut reader = Reader::new(bytes);
        let count = if bytes.is_empty() { 0 } else { reader.varint()? };
        for _ in 0..count {
            let number = reader.varint()?;
            let last = segments
                .last_key_value()
                .map_or(0, |(last, _): (&SegmentId, _)| last.raw());
            let id = u32::try_from(number)
                .ok()
                .filter(|id| (last + 1..SEGMENT_IDS).contains(id));
            let id = id.ok_or_else(|| damage(format!("a blob segment behind {last}"), number.to_string()))?;
            segments.insert(SegmentId::new(id), DeadRanges::decode(&mut reader)?);
        }
        reader.end()?;
        Ok(Self {
            segments: Mutex::new(segments),
            ..Self::default()
        })
    }

    /// After an opening that found no record behind this checkpoint, whose image has the state: nothing that recovery reads names what was
    /// noted while it was made, so all of it counts as known before (rule S16).
    pub(crate) fn known_before(&self, checkpoint: Lsn, blobs: &BlobStore) -> Result<()> {
        let mut segments = self.segments.lock();
        if segments.is_empty() {
            return Ok(());
        }
        for (id, end) in blobs.segments()? {
            if let Some(dead) = segments.get_mut(&id).filter(|dead| dead.covers(end)) {
                dead.dead_since = Some(checkpoint);
            }
        }
        Ok(())
    }
}

/// Dead values that a merge meets.
pub(crate) struct DeadValues<'t> {
    schema: &'t Schema,
    values: Vec<BlobRef>,
}

impl DeadValues<'_> {
    /// Slots of one row, the newest first: all but the newest count no more.
    pub(crate) fn note_superseded<'p>(
        &mut self,
        mut slots: impl Iterator<Item = Option<&'p [u8]>>,
    ) -> Result<()> {
        let newest = slots.next().flatten();
        let mut live = None;
        for slot in slots.flatten().filter(|slot| has_large(slot)) {
            let live = match &mut live {
                Some(live) => live,
                None => live.insert(newest.map_or(Ok(Vec::new()), |row| large_values(self.schema, row))?),
            };
            let dead = large_values(self.schema, slot)?;
            self.values.extend(
                dead.into_iter()
                    .filter(|value| live.iter().all(|other| other.addr != value.addr)),
            );
        }
        Ok(())
    }

    /// Notes them; before the shape without them is installed.
    pub(crate) fn keep(self, db: &Database) {
        db.upkeep.blobs.note(&self.values);
    }
}

impl<'t> DeadValues<'t> {
    /// A place for the dead values of a merge; none for tables without columns that could have any.
    pub(crate) fn of(table: &'t Table) -> Option<Self> {
        can_have_large(table).then(|| Self {
            schema: table.schema(),
            values: Vec::new(),
        })
    }
}

impl Database {
    /// Notes the values that dead versions of the batch name and no version that counts (rule S15).
    pub(crate) fn note_dead_values(&self, batch: &mut CompactBatch, horizon: CommitTs) -> Result<()> {
        let mut dead = Vec::new();
        let large = batch.take_large();
        let tables = batch.tables();
        for group in large.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (table, row, _) = group[0];
            let live = self.live_values(tables[&table], row, horizon)?;
            let named = group.iter().map(|(_, _, value)| *value);
            dead.extend(named.filter(|value| live.iter().all(|other| other.addr != value.addr)));
        }
        if !dead.is_empty() {
            self.upkeep.blobs.note(&dead);
        }
        Ok(())
    }

    /// Values that versions of a row name which count: all that are not settled, and the newest settled one.
    fn live_values(&self, table: &Table, row: RowId, horizon: CommitTs) -> Result<Vec<BlobRef>> {
        let guard = crossbeam_epoch::pin();
        let mut live = Vec::new();
        let mut failed = None;
        let fate = fate_of(self, table, row, horizon, &guard, |version| {
            match values_of(table, version) {
                Ok(values) => live.extend(values),
                Err(error) => failed = Some(error),
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let is_in_shape = !matches!(fate, crate::homing::RowFate::Home { .. });
        if is_in_shape && let Slot::Row(base) = table.find_base(&*self.cache, row)? {
            live.extend(large_values(
                table.schema(),
                base.block.payload(base.at).unwrap_or(&[]),
            )?);
        }
        Ok(live)
    }

    /// Drops blob segments of which all is dead (rule S16), and gives back the room of what is dead in others (S50).
    pub fn blob_step(&self) -> Result<Progress> {
        if self.upkeep.blobs.segments.lock().is_empty() {
            return Ok(Progress::Idle);
        }
        let _turn = self.upkeep.blobs.step.lock();
        // One listing for both. What is noted later is none of this step, so both judge before either acts.
        let bytes: BTreeMap<_, _> = self.blobs.segments()?.into_iter().collect();
        let droppable = self.droppable_blobs(&bytes);
        let mut progress = self.give_room_back(self.room_to_give(&bytes))?;
        for (id, end) in droppable {
            if self.blobs.drop_segment(id, end)? {
                self.upkeep.blobs.segments.lock().remove(&id);
                progress = Progress::Worked;
            }
        }
        Ok(progress)
    }

    /// Where only checkpoints begin that have not begun yet: each makes the log longer before it does. One that is being made may have
    /// begun where the log still ends, and does not know what is found out now (rules S16, S50).
    fn next_checkpoint(&self) -> Lsn {
        Lsn::new(self.log.tail().raw() + 1)
    }

    /// Segments that may go, with their bytes. What only waits for a checkpoint makes that due sooner.
    fn droppable_blobs(&self, bytes: &BTreeMap<SegmentId, u64>) -> Vec<(SegmentId, u64)> {
        let next = self.next_checkpoint();
        let checkpoint = self.store.checkpoint().map_or(Lsn::new(0), |found| found.start);
        let mut ready = Vec::new();
        let mut segments = self.upkeep.blobs.segments.lock();
        segments.retain(|id, _| bytes.contains_key(id));
        for (id, dead) in segments.iter_mut() {
            let is_dead = |end: &&u64| dead.covers(**end) || planted!("blob.dropped_alive");
            let Some(end) = bytes.get(id).filter(is_dead) else {
                dead.dead_since = None;
                continue;
            };
            if dead.dead_since.is_none() {
                self.maintenance.note_dropped(*end);
            }
            if *dead.dead_since.get_or_insert(next) <= checkpoint {
                ready.push((*id, *end));
            }
        }
        ready
    }
}

#[cfg(test)]
#[path = "blob_reclaim_tests.rs"]
mod blob_reclaim_tests;
