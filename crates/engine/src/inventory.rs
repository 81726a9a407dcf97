//! Inventory: what a database consists of, a line for each table, index, run, segment and cache.
//!
//! Why it exists: totals say that there is much of something; whose it is, and why it is still there, takes lines with names.
//! State: none of its own; plain copies.
//! Rules: T35 (copied in steps, nobody is stopped). Parts of one list may be of different moments: a merge may end between them.
//! Latches and I/O: names of tables, each for a copy; `segments` asks the file system for the size of every file.

use crate::database::Database;
use crate::definition::{Compression, ConflictMode};
use crate::error::Result;
use crate::key_sample::{SampledBy, rows_per_value};
use crate::status::{RunTotals, TableInfo};
use crate::table::{Index, Table};
use pbxt_base::{IndexId, SegmentId, TxnId};
use pbxt_segment::{SegmentClass, segment_name};
use std::sync::Arc;

/// A table.
#[derive(Debug, Clone)]
pub struct TableLine {
    /// Its name as the host gave it.
    pub table: Arc<str>,
    /// What estimates go by.
    pub info: TableInfo,
    /// Of its rows.
    pub runs: RunTotals,
    /// In all runs: a row has a slot in each run that has it.
    pub slots: u64,
    /// Deleted rows of which index entries may be left.
    pub gone_rows: u64,
    /// Where the newest versions of rows are.
    pub row_map_bytes: u64,
    /// Number of them.
    pub indexes: u64,
    /// Table option.
    pub compression: Compression,
    /// Table option.
    pub conflict_mode: ConflictMode,
    /// Gone at the next opening.
    pub temporary: bool,
}

/// An index.
#[derive(Debug, Clone)]
pub struct IndexLine {
    /// Name of its table.
    pub table: Arc<str>,
    /// Its own name.
    pub index: String,
    /// Unique in the database.
    pub id: IndexId,
    /// Refuses a second row with the same key.
    pub unique: bool,
    /// Anti-entries and dead ones included.
    pub entries: u64,
    /// On disk.
    pub runs: RunTotals,
    /// Of entries that are in no run.
    pub memory_bytes: u64,
}

/// A prefix of an index that was sampled.
#[derive(Debug, Clone)]
pub struct IndexStatisticsLine {
    /// Name of its table.
    pub table: Arc<str>,
    /// Its own name.
    pub index: String,
    /// Columns of the prefix, those of the extension included.
    pub parts: u64,
    /// Rows for each value of the prefix, as the optimizer is told now.
    pub rows_per_value: u64,
    /// Entries the index had.
    pub entries: u64,
    /// Neighbours that were compared.
    pub compared: u64,
    /// Of those, how many differ in the prefix.
    pub differing: u64,
    /// When, in Unix seconds.
    pub taken: u64,
    /// Who asked for the sample.
    pub by: SampledBy,
    /// It outlives the process.
    pub saved: bool,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLevel {
    /// The oldest one.
    Base,
    /// Newer than the base.
    Upper,
    /// Of a transaction that is not settled.
    Tagged,
}

/// A run of rows or of index entries.
#[derive(Debug, Clone)]
pub struct RunLine {
    /// Name of its table.
    pub table: Arc<str>,
    /// Name of its index; none for rows.
    pub index: Option<String>,
    /// From 1, the newest.
    pub number: u64,
    /// Where it stands.
    pub level: RunLevel,
    /// Whose it is, if it is tagged.
    pub owner: Option<TxnId>,
    /// Pieces with their bytes.
    pub pieces: u64,
    /// Slots of rows, or entries.
    pub entries: u64,
    /// Stored ones.
    pub bytes: u64,
}

/// What a segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentUse {
    /// Log records.
    Log,
    /// Pieces of row runs.
    Rows,
    /// Pieces of index runs.
    Indexes,
    /// What a checkpoint has saved.
    Image,
    /// Large values.
    Values,
}

/// Whether a segment is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    /// Set aside for log that was not written yet.
    Ahead,
    /// The end of the log, or where large values are written.
    Current,
    /// Something names it, or rows need it.
    Needed,
    /// It goes with the next checkpoint, or is being written.
    Unneeded,
}

/// A file of the database; the manifest's are not among them.
#[derive(Debug, Clone)]
pub struct SegmentLine {
    /// Its name in the database's directory.
    pub file: String,
    /// What it holds.
    pub holds: SegmentUse,
    /// Whether it is needed.
    pub state: SegmentState,
    /// On the medium.
    pub bytes: u64,
    /// Of pieces that are named; of files of pieces only.
    pub named_bytes: Option<u64>,
}

/// A part of memory that counts for the cache's budget, or beside it.
#[derive(Debug, Clone, Copy)]
pub struct CacheLine {
    /// What is in it, for people.
    pub name: &'static str,
    /// Now.
    pub bytes: u64,
    /// At most; none if it grows with what is done.
    pub budget: Option<u64>,
    /// Reads that found it here; none if nobody counts.
    pub hits: Option<u64>,
    /// Reads that did not.
    pub misses: Option<u64>,
}

impl RunLevel {
    fn of(is_tagged: bool, is_last: bool) -> Self {
        match (is_tagged, is_last) {
            (true, _) => Self::Tagged,
            (false, true) => Self::Base,
            (false, false) => Self::Upper,
        }
    }
}

impl Database {
    /// All tables, in the order of their names.
    pub fn list_tables(&self) -> Vec<TableLine> {
        let tables = self.tables_in_order();
        tables.iter().map(|table| table_line(table)).collect()
    }

    /// All indexes, by table.
    pub fn list_indexes(&self) -> Vec<IndexLine> {
        let tables = self.tables_in_order();
        let of = |table: &Arc<Table>| {
            let name = table.name();
            let lines = table.indexes.iter().map(|index| index_line(&name, index));
            lines.collect::<Vec<_>>()
        };
        tables.iter().flat_map(of).collect()
    }

    /// What is known of the keys of indexes, by table; an index that nobody has asked about has no line.
    pub fn list_index_statistics(&self) -> Vec<IndexStatisticsLine> {
        let mut lines = Vec::new();
        for table in self.tables_in_order() {
            let name = table.name();
            for index in &table.indexes {
                statistics_lines(&name, &table, index, &mut lines);
            }
        }
        lines
    }

    /// All runs: of each table those of its rows, then those of its indexes.
    pub fn list_runs(&self) -> Vec<RunLine> {
        let mut lines = Vec::new();
        for table in self.tables_in_order() {
            let name = table.name();
            row_run_lines(&name, &table, &mut lines);
            for index in &table.indexes {
                index_run_lines(&name, index, &mut lines);
            }
        }
        lines
    }

    /// All segments, by what they hold.
    pub fn list_segments(&self) -> Result<Vec<SegmentLine>> {
        // As in `space`: shapes before files.
        let (rows, indexes) = self.named_pieces();
        let image = self.store.checkpoint().map(|checkpoint| checkpoint.image);
        let state_of = |named: Option<u64>| match named {
            Some(_) => SegmentState::Needed,
            None => SegmentState::Unneeded,
        };
        let line = |(class, id, bytes): (SegmentClass, SegmentId, u64)| {
            let (holds, state, named_bytes) = match class {
                SegmentClass::Hot => (SegmentUse::Log, self.state_of_log(id), None),
                SegmentClass::Cold => (SegmentUse::Rows, state_of(rows.bytes_in(id)), rows.bytes_in(id)),
                SegmentClass::Meta if Some(id) == image => (SegmentUse::Image, SegmentState::Needed, None),
                SegmentClass::Meta => {
                    let named = indexes.bytes_in(id);
                    (SegmentUse::Indexes, state_of(named), named)
                }
                SegmentClass::Blob if self.store.sealed(class, id).is_none() => {
                    (SegmentUse::Values, SegmentState::Current, None)
                }
                SegmentClass::Blob => (SegmentUse::Values, SegmentState::Needed, None),
            };
            SegmentLine {
                file: segment_name(class, id),
                holds,
                state,
                bytes,
                named_bytes,
            }
        };
        Ok(self.store.sizes()?.into_iter().map(line).collect())
    }

    /// What is kept in memory.
    pub fn list_caches(&self) -> Vec<CacheLine> {
        let (log, blocks, trees) = (self.log.stats(), self.cache.stats(), self.tree_bytes());
        let of = |name, bytes, budget| CacheLine {
            name,
            bytes,
            budget,
            hits: None,
            misses: None,
        };
        let read = |line, hits, misses| CacheLine {
            hits: Some(hits),
            misses: Some(misses),
            ..line
        };
        let memory = self.memory_use();
        vec![
            read(
                of("recent log", log.cache_bytes, Some(self.cache_bytes / 4)),
                log.cache_hits,
                log.cache_misses,
            ),
            read(
                of(
                    "blocks of rows and indexes",
                    blocks.bytes,
                    Some(self.cache.budget()),
                ),
                blocks.hits,
                blocks.misses,
            ),
            of("index entries in no run", memory.indexes, Some(trees.1)),
            of("bulk loads", self.loads.taken(), Some(self.cache_bytes / 4)),
            of("rows fetched ahead", self.fetches.taken(), None),
            of("key hints", memory.hints, Some(self.hint_budget())),
            of("row map", memory.row_map, None),
            of("explicit row locks", self.row_locks.usage().bytes, None),
        ]
    }

    fn tables_in_order(&self) -> Vec<Arc<Table>> {
        let mut tables = self.catalog.tables();
        tables.sort_by_cached_key(|table| table.name());
        tables
    }

    /// Of a segment of the log.
    fn state_of_log(&self, id: SegmentId) -> SegmentState {
        let bytes = self.store.geometry().hot_segment_bytes;
        let start = u64::from(id.raw()) * bytes;
        let (floor, tail) = (self.log_floor().raw(), self.log.tail().raw());
        if start > tail {
            SegmentState::Ahead
        } else if start + bytes > tail {
            SegmentState::Current
        } else if start + bytes > floor {
            SegmentState::Needed
        } else {
            SegmentState::Unneeded
        }
    }
}

fn table_line(table: &Table) -> TableLine {
    let def = table.def();
    TableLine {
        table: table.name(),
        info: table.info(),
        runs: table.run_totals(),
        slots: table.base.shape().slots(),
        gone_rows: table.gone.len(),
        row_map_bytes: table.map.memory_bytes() as u64,
        indexes: table.indexes.len() as u64,
        compression: def.compression,
        conflict_mode: def.conflict_mode,
        temporary: def.temporary,
    }
}

fn statistics_lines(name: &Arc<str>, table: &Table, index: &Index, lines: &mut Vec<IndexStatisticsLine>) {
    let Some(sample) = index.statistics().sample() else {
        return;
    };
    let saved = !table.temporary && index.statistics().is_saved();
    for (parts, &differing) in (1..).zip(&sample.changes) {
        lines.push(IndexStatisticsLine {
            table: Arc::clone(name),
            index: index.def.name.clone(),
            parts,
            rows_per_value: rows_per_value(table.latest_rows(), differing, sample.pairs),
            entries: sample.entries,
            compared: sample.pairs,
            differing,
            taken: sample.taken,
            by: sample.by,
            saved,
        });
    }
}

fn index_line(table: &Arc<str>, index: &Index) -> IndexLine {
    IndexLine {
        table: Arc::clone(table),
        index: index.def.name.clone(),
        id: index.def.id,
        unique: index.def.unique,
        entries: index.parts().entries(),
        runs: index.run_totals(),
        memory_bytes: index.memory_bytes(),
    }
}

fn row_run_lines(name: &Arc<str>, table: &Table, lines: &mut Vec<RunLine>) {
    let shape = table.base.shape();
    let count = shape.runs.len();
    lines.extend(shape.runs.iter().zip(1..).map(|(run, number)| RunLine {
        table: Arc::clone(name),
        index: None,
        number: number as u64,
        level: RunLevel::of(run.is_tagged(), number == count),
        owner: run.is_tagged().then_some(run.stamp.txn),
        pieces: run.pieces.len() as u64,
        entries: run.slots(),
        bytes: run.stored_bytes(),
    }));
}

fn index_run_lines(name: &Arc<str>, index: &Index, lines: &mut Vec<RunLine>) {
    let parts = index.parts();
    let count = parts.runs.len();
    lines.extend(parts.runs.iter().zip(1..).map(|(run, number)| RunLine {
        table: Arc::clone(name),
        index: Some(index.def.name.clone()),
        number: number as u64,
        level: RunLevel::of(run.tag.is_some(), number == count),
        owner: run.tag.map(|(txn, _)| txn),
        pieces: run.pieces.len() as u64,
        entries: run.entries(),
        bytes: run.stored_bytes(),
    }));
}
