//! Home range: rows of one table that one thread homes, out of all segments that a step of the compactor has read.
//!
//! Why it exists: who asks for a compaction waits while rows leave the log, before anything can be merged; all processors do it side by
//! side then (rule S60). To put what was read of the segments together, sort it and divide it again would take as long as homing.
//! Rules: S7 a range ends where a piece of the base does, so the pieces written of it are such as one thread would have cut. S60.
//! Latches and I/O: none.

use crate::compact_batch::{Candidate, CompactBatch};
use crate::table::Table;
use pbxt_base::RowId;
use std::sync::Arc;

/// Bytes of a segment for one version of the least share that is worth a file of its own: about the fourth part of a segment.
const SEGMENT_BYTES_PER_VERSION: u64 = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct HomeRange<'b> {
    pub table: &'b Arc<Table>,
    /// Parts of the batch by number, the oldest first, with their versions of these rows.
    slices: Vec<(usize, &'b [Candidate])>,
}

/// The versions of one row, the newest last, with the parts that they are in.
pub(crate) type RowGroup = [(usize, Candidate)];

/// Walks the rows of a range, rising.
pub(crate) struct Groups<'b> {
    slices: Vec<(usize, &'b [Candidate])>,
    group: Vec<(usize, Candidate)>,
}

/// All rows of the batch, in order of table and row id, as shares for so many threads at most. What is little is one share.
pub(crate) fn shares_of(batch: &CompactBatch, threads: usize, segment_bytes: u64) -> Vec<Vec<HomeRange<'_>>> {
    let least = (segment_bytes / SEGMENT_BYTES_PER_VERSION).max(1) as usize;
    let tables = batch.tables();
    let ranges: Vec<_> = tables
        .into_iter()
        .map(|(id, table)| HomeRange {
            table,
            slices: batch.rows_of(id).collect(),
        })
        .collect();
    let all: usize = ranges.iter().map(HomeRange::versions).sum();
    let count = (all / least).clamp(1, threads);
    let each = all.div_ceil(count);
    let (mut shares, mut share, mut room) = (Vec::new(), Vec::new(), each);
    for mut range in ranges {
        while range.versions() > room && shares.len() + 1 < count {
            let Some((head, rest)) = range.divided(room) else {
                break;
            };
            share.push(head);
            shares.push(std::mem::take(&mut share));
            (range, room) = (rest, each);
        }
        room = room.saturating_sub(range.versions());
        share.push(range);
        if room == 0 && shares.len() + 1 < count {
            shares.push(std::mem::take(&mut share));
            room = each;
        }
    }
    shares.extend((!share.is_empty()).then_some(share));
    shares
}

impl<'b> HomeRange<'b> {
    pub(crate) fn versions(&self) -> usize {
        self.slices.iter().map(|(_, slice)| slice.len()).sum()
    }

    pub(crate) fn groups(&self) -> Groups<'b> {
        Groups {
            slices: self.slices.clone(),
            group: Vec::new(),
        }
    }

    /// Two ranges, the first with about so many versions; none if no piece of the base ends between.
    fn divided(&self, first: usize) -> Option<(Self, Self)> {
        let all = self.versions().max(1);
        let below = |row: RowId| -> usize {
            let slices = self.slices.iter();
            slices
                .map(|(_, slice)| slice.partition_point(|found| found.row < row))
                .sum()
        };
        // Each part has a row at that place of its own; the one that is nearest to it among all.
        let rows = self.slices.iter();
        let rows = rows.filter_map(|(_, slice)| slice.get(slice.len() * first / all));
        let row = rows
            .map(|found| found.row)
            .min_by_key(|row| below(*row).abs_diff(first))?;
        let shape = self.table.base.shape();
        let base = &shape.runs.last()?.pieces;
        let at = base.partition_point(|piece| piece.last < row);
        let ends = [at.checked_sub(1), Some(at)].into_iter().flatten();
        ends.filter_map(|at| self.divided_behind(base.get(at)?.last))
            .min_by_key(|(head, _)| head.versions().abs_diff(first))
    }

    /// None if one of the two would have no rows.
    fn divided_behind(&self, last: RowId) -> Option<(Self, Self)> {
        let (mut head, mut rest) = (Vec::new(), Vec::new());
        for (part, slice) in &self.slices {
            let (low, high) = slice.split_at(slice.partition_point(|found| found.row <= last));
            head.push((*part, low));
            rest.push((*part, high));
        }
        let of = |slices| Self {
            table: self.table,
            slices,
        };
        let (head, rest) = (of(head), of(rest));
        (head.versions() > 0 && rest.versions() > 0).then_some((head, rest))
    }
}

impl Groups<'_> {
    /// The next row.
    pub(crate) fn next_group(&mut self) -> Option<&RowGroup> {
        let firsts = self.slices.iter().filter_map(|(_, slice)| slice.first());
        let row = firsts.map(|found| found.row).min()?;
        self.group.clear();
        for (part, slice) in &mut self.slices {
            while let Some((found, rest)) = slice.split_first().filter(|(found, _)| found.row == row) {
                self.group.push((*part, *found));
                *slice = rest;
            }
        }
        Some(&self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact_batch::SegmentPart;
    use crate::database::{Database, Options};
    use crate::definition::TableDef;
    use crate::errand::Errand;
    use crate::keys::KeyChanges;
    use crate::session::Session;
    use crate::write::NewVersion;
    use pbxt_base::Lsn;
    use pbxt_rows::{Column, ColumnKind, RowBuilder, Schema};
    use pbxt_segment::{Geometry, SegmentClass};
    use pbxt_testkit::SimDisk;
    use std::collections::BTreeMap;

    /// Rows of a base piece.
    const PIECE_ROWS: u64 = 2000;
    const PIECES: u64 = 3;

    fn database() -> Arc<Database> {
        let options = Options {
            geometry: Geometry::small(),
            cache_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        Database::open(Arc::new(SimDisk::new()), &options).expect("a new database")
    }

    fn table(db: &Arc<Database>, name: &str) -> Arc<Table> {
        let column = Column {
            kind: ColumnKind::Fixed(8),
            nullable: false,
        };
        let schema = Schema::new(1, vec![column]).expect("a column");
        db.create_table(TableDef::new(name, schema, Vec::new()), 1)
            .expect("a new table")
    }

    /// One transaction on the database; what it has logged can be homed afterwards.
    fn change(db: &Arc<Database>, work: impl FnOnce(&mut Session)) {
        let mut session = Session::open(db, 1, 1);
        session.begin_statement().expect("begun");
        work(&mut session);
        session.end_statement();
        session.commit().expect("committed");
        db.finish_segment().expect("a full segment");
        db.flush().expect("flushed");
        db.housekeeping_step();
    }

    /// A table whose base has some pieces.
    fn with_pieces(db: &Arc<Database>, name: &str) -> Arc<Table> {
        let table = table(db, name);
        for piece in 0..PIECES {
            change(db, |session| {
                for number in 0..PIECE_ROWS {
                    let (mut row, mut payload) = (RowBuilder::new(table.schema()), Vec::new());
                    let value = (piece * PIECE_ROWS + number).to_le_bytes();
                    row.set(0, Some(&value)).expect("a number");
                    row.finish(&mut payload).expect("a row");
                    let version = NewVersion {
                        payload: &payload,
                        schema_version: 1,
                        keys: &KeyChanges::new(),
                    };
                    session.insert(&table, version).expect("inserted");
                }
            });
            while db.compact_step().expect("homed") == crate::pacing::Progress::Worked {}
            db.row_merge_step().expect("moved down");
        }
        let shape = table.base.shape();
        assert_eq!((shape.runs.len(), shape.runs[0].pieces.len() as u64), (1, PIECES));
        table
    }

    fn rows_of(table: &Table) -> Vec<RowId> {
        let shape = table.base.shape();
        let rows = shape.runs.iter().flat_map(|run| &run.pieces);
        rows.flat_map(|piece| piece.rows.iter().map(RowId::new)).collect()
    }

    /// Removes all but every third row, from the last one on in odd places, as a hash would meet them.
    fn remove(db: &Arc<Database>, tables: &[Arc<Table>]) -> Vec<RowId> {
        let rows: Vec<RowId> = rows_of(&tables[0])
            .into_iter()
            .filter(|row| row.raw() % 3 > 0)
            .collect();
        change(db, |session| {
            for at in 0..rows.len() {
                for table in tables {
                    session.delete(table, rows[at * 7 % rows.len()]).expect("deleted");
                }
            }
        });
        rows
    }

    fn batch_of(db: &Database) -> CompactBatch {
        let segments = db.store.list(SegmentClass::Hot).expect("a list");
        let horizon = db.txns.horizon();
        let parts = segments
            .into_iter()
            .map(|segment| SegmentPart::read(db, segment, horizon));
        CompactBatch {
            parts: parts.filter_map(|part| part.expect("readable")).collect(),
        }
    }

    #[test]
    fn shares_have_each_row_once_and_end_where_pieces_of_the_base_do() {
        let db = database();
        let tables = ["a", "b"].map(|name| with_pieces(&db, name));
        let rows = remove(&db, &tables);
        assert_ne!(rows.len() % 7, 0, "steps of 7 meet all of them");
        let batch = batch_of(&db);
        assert!(batch.parts.len() > 1, "a walk over several parts");
        let expected: Vec<_> = tables
            .iter()
            .flat_map(|table| rows.iter().map(|row| (table.id, *row)))
            .collect();
        for threads in 1..8 {
            let shares = shares_of(&batch, threads, 100 * SEGMENT_BYTES_PER_VERSION);
            // There are six pieces of the base to be shared.
            assert!(
                (threads.min(3)..=threads).contains(&shares.len()),
                "S60: {} of {threads}",
                shares.len()
            );
            let (mut found, mut ends) = (Vec::new(), BTreeMap::new());
            for range in shares.iter().flatten() {
                let mut groups = range.groups();
                while let Some(group) = groups.next_group() {
                    assert!(group.is_sorted_by(|a, b| a.1.lsn < b.1.lsn), "{group:?}");
                    let row = group[0].1.row;
                    assert!(group.iter().all(|(_, version)| version.row == row), "{group:?}");
                    found.push((range.table.id, row));
                    ends.insert((range.table.id, range.slices.as_ptr()), row);
                }
            }
            assert!(found == expected, "S60: {threads} threads");
            for ((table, _), end) in ends {
                let base = &tables
                    .iter()
                    .find(|found| found.id == table)
                    .expect("one of the two")
                    .base;
                let shape = base.shape();
                let piece = shape.runs[0].pieces.iter().find(|piece| end <= piece.last);
                let last = rows.iter().rfind(|row| **row <= piece.expect("a piece").last);
                assert_eq!(last, Some(&end), "S7, S60: {threads} threads");
            }
        }
        assert_eq!(
            shares_of(&batch, 4, 1 << 30).len(),
            1,
            "S60: of little there is one"
        );
    }

    #[test]
    fn rows_homed_side_by_side_are_one_run_and_all_words_are_clear() {
        let [alone, together] = [1, 4].map(|threads| {
            let db = database();
            let tables = ["a", "b"].map(|name| with_pieces(&db, name));
            let rows = remove(&db, &tables);
            let errand = Errand::of_compaction(threads);
            while db.compact_step_for(&errand, Lsn::new(u64::MAX)).expect("homed")
                == crate::pacing::Progress::Worked
            {}
            let guard = crossbeam_epoch::pin();
            tables.map(|table| {
                for row in &rows {
                    assert!(table.map.load_in(*row, &guard).is_absent(), "S3: {row:?}");
                    assert!(table.gone.contains(*row), "B7: {row:?}");
                }
                assert_eq!(table.gone.len(), rows.len() as u64, "B7");
                let shape = table.base.shape();
                let uppers = &shape.runs[..shape.runs.len() - 1];
                for run in uppers {
                    assert!(
                        run.pieces.is_sorted_by(|a, b| a.last < b.first),
                        "S60: {:?}",
                        run.pieces
                    );
                }
                let mut slots: Vec<u64> = uppers
                    .iter()
                    .flat_map(|run| &run.pieces)
                    .flat_map(|piece| piece.rows.iter())
                    .collect();
                slots.sort_unstable();
                assert!(slots.iter().copied().eq(rows.iter().map(|row| row.raw())), "S6");
                uppers.len()
            })
        });
        assert_eq!(alone, together, "S60");
    }
}
