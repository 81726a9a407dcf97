//! Count of large values: collects what rows name, for a census, in steps that others can stand between.
//!
//! Why it exists: rows may be far more than one step of background work should read, and a census that is taken under load must not keep
//! compactor and merges from their turns (rule S21).
//! Order: table by table the words, then the pieces of the shape of one moment (rule B2). Every value that is asked about is named by a row
//! now, or never will be (S26), and only by versions of this row (S28). While rows are homed and merged between steps, a value that is named
//! throughout is met in one or the other: a row that had no word when its table's words were read is in the shape that is taken later (B1,
//! B4), and so is whatever it shares with versions that came since. What is met in neither is named by no version that counts.
//! A table that is altered meanwhile keeps words and shape; where rows are of a version that the definition at hand does not know it is begun
//! again with the newer one (AL11).
//! Rules: S27 which versions and slots count.
//! Latches and I/O: none; reads the log through its cache, rows past the block cache.

use crate::blob_reclaim::{can_have_large, has_large, large_values, values_of};
use crate::database::Database;
use crate::error::Result;
use crate::homing::{RowFate, fate_of};
use crate::row_pieces::SlotReader;
use crate::row_shape::RowPiece;
use crate::table::Table;
use living::Living;
use pbxt_base::{RowId, SegmentId};
use roaring::RoaringTreemap;
use std::sync::Arc;

/// What a row of the log costs beside the bytes of pieces: it may be read from the medium alone.
const ROW_COST: u64 = 1 << 10;
/// What beginning and ending a table costs.
const TABLE_COST: u64 = 4 << 10;
/// Rows between two looks at whether the database closes.
const ROWS_AT_ONCE: u64 = 4096;

#[path = "blob_living.rs"]
mod living;

/// How far it is.
#[derive(Debug)]
pub(super) struct Count {
    /// Of the segments that are asked about only.
    living: Living,
    /// Those that are left, the one at hand last.
    tables: Vec<Arc<Table>>,
    stage: Stage,
    /// Rows of the table at hand whose newest settled version is in the log: their slots are nobody's.
    hidden: RoaringTreemap,
}

/// How far it is with a table.
#[derive(Debug)]
enum Stage {
    /// Rows of the log from this one on.
    Words(RowId),
    /// Pieces of runs, in any order.
    Slots(Vec<Arc<RowPiece>>),
}

impl Count {
    /// What the values that were met cover, by segment.
    pub(super) fn into_living(self) -> impl Iterator<Item = (SegmentId, Vec<(u64, u64)>)> {
        self.living.into_ranges()
    }

    /// The table at hand, by another definition. What was met by the one before stays: it lives, or is met again by the next census.
    fn begin_again(&mut self, table: Arc<Table>) {
        self.next_table();
        self.tables.push(table);
    }

    fn next_table(&mut self) {
        self.tables.pop();
        self.stage = Stage::Words(RowId::new(0));
        self.hidden.clear();
    }
}

impl Database {
    /// Of these segments no further values will be named.
    pub(super) fn begin_count(&self, segments: impl Iterator<Item = SegmentId>) -> Count {
        let mut tables = self.catalog.tables();
        tables.retain(|table| can_have_large(table));
        Count {
            living: Living::of(segments),
            tables,
            stage: Stage::Words(RowId::new(0)),
            hidden: RoaringTreemap::new(),
        }
    }

    /// Reads about so many bytes of rows, a piece or some rows of the log at least. True if that were the last ones.
    pub(super) fn count_on(&self, count: &mut Count, bytes_max: u64) -> Result<bool> {
        let mut left = bytes_max;
        while let Some(table) = count.tables.last().cloned() {
            let cost = match self.count_some(&table, count, left) {
                Ok(cost) => cost,
                // Its values are dead, whatever could not be read.
                Err(_) if table.is_dropped() => {
                    count.next_table();
                    TABLE_COST
                }
                // Rows may be of a version by now that the definition at hand does not know.
                Err(error) => {
                    let newer = self
                        .catalog
                        .by_id(table.id)
                        .filter(|newer| !Arc::ptr_eq(newer, &table));
                    count.begin_again(newer.ok_or(error)?);
                    TABLE_COST
                }
            };
            if cost >= left || self.upkeep.is_stopping() {
                return Ok(count.tables.is_empty());
            }
            left -= cost;
        }
        Ok(true)
    }

    /// Some rows or a piece of a table; what they cost.
    fn count_some(&self, table: &Arc<Table>, count: &mut Count, left: u64) -> Result<u64> {
        match &mut count.stage {
            Stage::Words(from) => {
                let rows_max = (left / ROW_COST).clamp(1, ROWS_AT_ONCE) as usize;
                let rows: Vec<RowId> = table
                    .map
                    .rows_from(*from)
                    .take(rows_max)
                    .map(|(row, _)| row)
                    .collect();
                for row in &rows {
                    if self.count_versions(table, *row, &mut count.living)? {
                        count.hidden.insert(row.raw());
                    }
                }
                if let Some(last) = rows.last().filter(|_| rows.len() == rows_max) {
                    *from = RowId::new(last.raw() + 1);
                } else {
                    let shape = table.base.shape();
                    let pieces = shape.runs.iter().flat_map(|run| run.pieces.iter().cloned());
                    count.stage = Stage::Slots(pieces.collect());
                }
                Ok(rows.len() as u64 * ROW_COST)
            }
            Stage::Slots(pieces) => {
                let Some(piece) = pieces.pop() else {
                    count.next_table();
                    return Ok(TABLE_COST);
                };
                let bytes = piece.stored_bytes();
                count_piece(table, piece, &count.hidden, &mut count.living)?;
                Ok(bytes)
            }
        }
    }

    /// Collects the values of a row's versions in the log. True if they hide all slots of it.
    fn count_versions(&self, table: &Table, row: RowId, living: &mut Living) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        let mut found = Ok(());
        let fate = fate_of(
            self,
            table,
            row,
            self.txns.horizon(),
            &guard,
            |version| match values_of(table, version) {
                Ok(values) => living.note(&values),
                Err(error) => found = Err(error),
            },
        )?;
        found?;
        Ok(matches!(fate, RowFate::Home { .. }))
    }
}

/// Collects the values that slots of a piece name.
fn count_piece(
    table: &Table,
    piece: Arc<RowPiece>,
    hidden: &RoaringTreemap,
    living: &mut Living,
) -> Result<()> {
    let mut reader = SlotReader::new(table.versions(), vec![piece])?;
    while let Some(row) = reader.row() {
        let large = reader.payload().filter(|payload| has_large(payload));
        if let Some(payload) = large.filter(|_| !hidden.contains(row.raw())) {
            living.note(&large_values(table.schema(), payload)?);
        }
        reader.advance()?;
    }
    Ok(())
}
