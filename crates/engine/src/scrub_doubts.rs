//! Doubts of a scrub: bytes of blob segments that are no value that proves itself, and the search for rows that name one there.
//!
//! Why it exists: a blob segment alone does not tell damage from what a crash, a failed write or a hole of dead values has left; only rows
//! know which values there are. Asking all rows for each value would read the database by single rows; so the segments are read in order, and
//! rows are asked only if something was left in doubt.
//! Order: 1 the segments are read. 2 table by table the words, then the shape of one moment (rule B2), as a census does, some of them at a
//! time: a value that is named throughout is met in one or the other. 3 each value that is named in a doubtful place and is not known to be
//! dead is read; if that fails it is damage, with table and row.
//! State: ranges that no row named, so that they are not asked for again by each pass. In segments that nobody holds that cannot change (S26).
//! Rules: SC5. S15 what is dead counts no more, and S50 its room may have been given back.
//! Latches and I/O: none; reads the log through its cache, rows past the block cache.

use crate::blob_reclaim::{can_have_large, has_large, large_values, values_of};
use crate::check_runs::RowBlocks;
use crate::database::Database;
use crate::homing::fate_of;
use crate::row_shape::{RowPiece, RowShape};
use crate::scrub_pass::Place;
use crate::scrub_tell::Damage;
use crate::stored_values::{place_of, stored};
use crate::table::Table;
use pbxt_base::{Error as StorageError, Result as StorageResult, RowId, SegmentId};
use pbxt_io::is_passing_want;
use pbxt_rows::BlobRef;
use pbxt_segment::SegmentClass;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Rows of the log that are asked at a time.
const ROWS_AT_ONCE: usize = 4096;

/// Ranges by segment, rising.
#[derive(Debug, Default)]
pub(crate) struct Doubts(BTreeMap<SegmentId, Vec<Range<u64>>>);

/// Ranges of bytes that no row named when all were asked, and none ever will: segment, begin and end.
#[derive(Debug, Default)]
pub(crate) struct Nobodys(HashSet<(SegmentId, u64, u64)>);

/// The search under way.
#[derive(Debug)]
pub(crate) struct Search {
    doubts: Doubts,
    /// Ranges in which a value is named, by segment and begin.
    named: BTreeSet<(SegmentId, u64)>,
    /// Segments that get no further values, and of which all are named that ever will be.
    settled: BTreeSet<SegmentId>,
    /// Tables to be asked, the one at hand last.
    tables: Vec<Arc<Table>>,
    stage: Stage,
    /// Values in doubtful places that rows of the table at hand name, the one to be read next last.
    asked: Vec<(RowId, BlobRef)>,
    /// Something was lacking that will be there before long.
    pub(crate) is_put_off: bool,
    /// Rows could not be read, or have columns that their table did not have when the search began: what they name is not known.
    has_missed: bool,
    scratch: Vec<u8>,
}

/// How far it is with a table.
#[derive(Debug)]
enum Stage {
    /// Rows of the log from this one on.
    Words(RowId),
    /// Pieces of runs, the next one last.
    Slots(Vec<Arc<RowPiece>>),
}

impl Doubts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ranges of a segment come in rising order.
    pub(crate) fn note(&mut self, id: SegmentId, range: Range<u64>) {
        let ranges = self.0.entry(id).or_default();
        match ranges.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
    }

    /// The segment is read again from its beginning.
    pub(crate) fn forget(&mut self, id: SegmentId) {
        self.0.remove(&id);
    }

    /// Leaves out what is known to be nobody's.
    pub(crate) fn without(mut self, nobodys: &Nobodys) -> Self {
        self.0.retain(|id, ranges| {
            ranges.retain(|range| !nobodys.0.contains(&(*id, range.start, range.end)));
            !ranges.is_empty()
        });
        self
    }

    /// Where the first range begins that has bytes of the value.
    fn touched_by(&self, value: &BlobRef) -> Option<u64> {
        let ranges = self.0.get(&value.addr.segment())?;
        let (begin, end) = place_of(value);
        let next = ranges.partition_point(|range| range.end <= begin);
        let range = ranges.get(next).filter(|range| range.start < end)?;
        Some(range.start)
    }
}

impl Search {
    /// True if a value lies in a doubtful place.
    fn asks_for(&mut self, value: &BlobRef) -> bool {
        let touched = self.doubts.touched_by(value);
        self.named
            .extend(touched.map(|begin| (value.addr.segment(), begin)));
        touched.is_some()
    }

    /// Notes what no row has named, once all were asked; nothing if some could not be.
    fn settle(&self, nobodys: &mut Nobodys) {
        if self.has_missed {
            return;
        }
        for (id, ranges) in self.doubts.0.iter().filter(|(id, _)| self.settled.contains(id)) {
            let unnamed = ranges
                .iter()
                .filter(|range| !self.named.contains(&(*id, range.start)));
            nobodys
                .0
                .extend(unnamed.map(|range| (*id, range.start, range.end)));
        }
    }
}

fn pieces_of(shape: &RowShape) -> Vec<Arc<RowPiece>> {
    shape
        .runs
        .iter()
        .flat_map(|run| run.pieces.iter().cloned())
        .collect()
}

impl Database {
    pub(crate) fn begin_search(&self, doubts: Doubts) -> Search {
        let mut tables = self.catalog.tables();
        tables.retain(|table| can_have_large(table));
        Search {
            doubts,
            named: BTreeSet::new(),
            // Before any row is asked. Without the list nothing is remembered.
            settled: self.blobs.examinable().unwrap_or_default(),
            tables,
            stage: Stage::Words(RowId::new(0)),
            asked: Vec::new(),
            is_put_off: false,
            has_missed: false,
            scratch: Vec::new(),
        }
    }

    /// Asks some rows. The bytes that were read for that; none if all were asked.
    pub(crate) fn search_on(
        &self,
        search: &mut Search,
        nobodys: &mut Nobodys,
        damages: &mut Vec<Damage>,
    ) -> Option<u64> {
        let Some(table) = search.tables.last().cloned() else {
            search.settle(nobodys);
            return None;
        };
        if !search.asked.is_empty() {
            self.read_asked(search, &table, damages);
            return Some(0);
        }
        let (mut named, mut bytes) = (Vec::new(), 0);
        match &mut search.stage {
            Stage::Words(from) => {
                let next = self.name_values_of_log(&table, *from, &mut named, &mut search.has_missed);
                search.stage = match next {
                    Some(next) => Stage::Words(next),
                    None => Stage::Slots(pieces_of(&table.base.shape())),
                };
            }
            Stage::Slots(pieces) => {
                if let Some(piece) = pieces.pop() {
                    bytes = piece.stored_bytes();
                    search.has_missed |= !name_values_of_piece(&table, &piece, &mut named);
                } else {
                    search.tables.pop();
                    search.stage = Stage::Words(RowId::new(0));
                }
            }
        }
        named.retain(|(_, value)| search.asks_for(value));
        named.reverse();
        search.asked = named;
        self.read_asked(search, &table, damages);
        Some(bytes)
    }

    /// Reads the values that are asked for; where something is lacking, those that are left wait for the next step.
    fn read_asked(&self, search: &mut Search, table: &Table, damages: &mut Vec<Damage>) {
        while let Some(&(row, value)) = search.asked.last() {
            match self.read_value(&value, &mut search.scratch) {
                Ok(()) => {}
                Err(error) if is_passing_want(&error) => {
                    search.is_put_off = true;
                    return;
                }
                Err(error) => damages.extend(self.damage_of_value(table, row, &value, error)),
            }
            search.asked.pop();
        }
    }

    /// Values of some rows whose newest versions are in the log. Where to go on; none if those were the last ones. What cannot be read is
    /// damage of another file, and `has_missed` says that there was some.
    fn name_values_of_log(
        &self,
        table: &Table,
        from: RowId,
        named: &mut Vec<(RowId, BlobRef)>,
        has_missed: &mut bool,
    ) -> Option<RowId> {
        let rows = table.map.rows_from(from).take(ROWS_AT_ONCE);
        let rows: Vec<RowId> = rows.map(|(row, _)| row).collect();
        let horizon = self.txns.horizon();
        for row in &rows {
            let guard = crossbeam_epoch::pin();
            let mut is_read = true;
            let fate = fate_of(self, table, *row, horizon, &guard, |version| {
                match values_of(table, version) {
                    Ok(values) => named.extend(values.into_iter().map(|value| (*row, value))),
                    Err(_) => is_read = false,
                }
            });
            *has_missed |= fate.is_err() || !is_read;
        }
        let last = rows.last().filter(|_| rows.len() == ROWS_AT_ONCE)?;
        Some(RowId::new(last.raw() + 1))
    }

    /// Reads a value past the cache.
    fn read_value(&self, value: &BlobRef, scratch: &mut Vec<u8>) -> StorageResult<()> {
        let file = self
            .store
            .open_past_cache(SegmentClass::Blob, value.addr.segment())?;
        self.blobs.read_from(&*file, &stored(value), scratch)
    }

    /// What is told of a value that could not be read; nothing if it is dead.
    fn damage_of_value(
        &self,
        table: &Table,
        row: RowId,
        value: &BlobRef,
        error: StorageError,
    ) -> Option<Damage> {
        let (id, (begin, end)) = (value.addr.segment(), place_of(value));
        // Only now: what has died meanwhile may be a hole.
        let place = Place::Segment(SegmentClass::Blob, id);
        let is_dead = self.upkeep.blobs.is_dead(id, begin..end) || table.is_dropped() || !self.counts(place);
        (!is_dead).then(|| Damage {
            place,
            offset: begin,
            whose: format!("a large value of row {row} of table '{}'", table.name()),
            error,
        })
    }
}

/// Values that the slots of a piece name; those of slots that newer ones hide as well, unless they are known to be dead. False if not all
/// could be read: that is damage of another file, and hides none of the rows beside it.
fn name_values_of_piece(table: &Table, piece: &RowPiece, named: &mut Vec<(RowId, BlobRef)>) -> bool {
    let mut blocks = RowBlocks::of(piece);
    let mut raw = Vec::new();
    let mut is_read = true;
    for block in 0..piece.block_count() {
        let read = blocks.read(block, &mut raw);
        let Ok(rows) = read.and_then(|()| Ok(piece.decode(table.versions(), block, &raw)?)) else {
            is_read = false;
            continue;
        };
        for at in 0..rows.len() {
            let Some(payload) = rows.payload(at).filter(|payload| has_large(payload)) else {
                continue;
            };
            match large_values(table.schema(), payload) {
                Ok(values) => named.extend(values.into_iter().map(|value| (rows.row_id(at), value))),
                Err(_) => is_read = false,
            }
        }
    }
    is_read
}

#[cfg(test)]
mod tests {
    use super::*;
    use pbxt_base::{Addr, AddrClass};

    fn value(id: u32, offset: u64, len: u64) -> BlobRef {
        BlobRef {
            addr: Addr::in_segment(AddrClass::Blob, SegmentId::new(id), offset),
            len,
            hash: 0,
        }
    }

    #[test]
    fn values_that_lie_in_part_in_a_doubtful_range_are_touched() {
        let mut doubts = Doubts::default();
        assert!(doubts.is_empty());
        doubts.note(SegmentId::new(1), 8192..8200);
        doubts.note(SegmentId::new(1), 8200..8208);
        doubts.note(SegmentId::new(1), 12_288..20_480);
        assert!(!doubts.is_empty());
        // A value of 40 bytes takes 48.
        for (offset, touched) in [
            (8144, false),
            (8152, true),
            (8200, true),
            (8208, false),
            (12_240, false),
        ] {
            let begin = doubts.touched_by(&value(1, offset, 40));
            assert_eq!(begin, touched.then_some(8192), "SC5: {offset}");
        }
        let whole = doubts.touched_by(&value(1, 4096, 100_000));
        assert_eq!(whole, Some(8192), "SC5: it has the ranges inside");
        assert_eq!(doubts.touched_by(&value(2, 8192, 40)), None, "another segment");
    }

    #[test]
    fn what_no_row_named_is_not_asked_for_again_unless_it_may_still_be_named() {
        let doubts = || {
            let mut doubts = Doubts::default();
            for id in [1, 2] {
                doubts.note(SegmentId::new(id), 4096..8192);
                doubts.note(SegmentId::new(id), 12_288..16_384);
            }
            doubts
        };
        let mut search = Search {
            doubts: doubts(),
            named: BTreeSet::new(),
            settled: BTreeSet::from([SegmentId::new(1)]),
            tables: Vec::new(),
            stage: Stage::Words(RowId::new(0)),
            asked: Vec::new(),
            is_put_off: false,
            has_missed: false,
            scratch: Vec::new(),
        };
        assert!(search.asks_for(&value(1, 12_296, 40)));
        assert!(!search.asks_for(&value(1, 20_000, 40)));
        let mut nobodys = Nobodys::default();
        search.settle(&mut nobodys);
        let left = doubts().without(&nobodys);
        assert_eq!(left.touched_by(&value(1, 4096, 40)), None, "SC5: nobody named it");
        assert!(left.touched_by(&value(1, 12_288, 40)).is_some(), "named");
        assert!(left.touched_by(&value(2, 4096, 40)).is_some(), "held by somebody");
    }
}
