//! Space: what the bytes on disk are for.
//!
//! Why it exists: the files of a database take more than its rows need, for several reasons that different background work
//! puts an end to. One number for all of them would say that there is too much, and not why.
//! Rules: none of its own; the rules that bound each part are S32 to S38 (docs/storage.md) and D28 (docs/durability.md).
//! Latches and I/O: asks the file system for the size of every file. Files come and go meanwhile: the parts are as exact as
//! the moment allows, and none is ever less than 0.

use crate::database::Database;
use crate::error::Result;
use pbxt_base::SegmentId;
use pbxt_segment::{PieceFile, SegmentClass};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes on disk by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Log kept for the rows in it: from the floor to the tail.
    pub log_rows: u64,
    /// Log that no row needs; it goes with the next checkpoint.
    pub log_unneeded: u64,
    /// Set aside for log that was not written yet.
    pub log_ahead: u64,
    /// Pieces of the oldest runs of tables.
    pub row_base: u64,
    /// Pieces of their other runs.
    pub row_upper: u64,
    /// What else the files of these pieces have: superseded pieces, headers, directories.
    pub row_dead: u64,
    /// Files of rows that no shape names: they go with the next checkpoint, or are being written.
    pub row_unnamed: u64,
    /// As `row_base`, of indexes.
    pub index_base: u64,
    /// As `row_upper`, of indexes.
    pub index_upper: u64,
    /// As `row_dead`, of indexes.
    pub index_dead: u64,
    /// As `row_unnamed`, of indexes and of checkpoint images but the one that counts.
    pub index_unnamed: u64,
    /// The image of the newest checkpoint.
    pub image: u64,
    /// Large values, dead ones too.
    pub blob: u64,
    /// The manifest's files.
    pub manifest: u64,
}

impl Space {
    /// All of it.
    pub fn total(&self) -> u64 {
        let log = self.log_rows + self.log_unneeded + self.log_ahead;
        let rows = self.row_base + self.row_upper + self.row_dead + self.row_unnamed;
        let indexes = self.index_base + self.index_upper + self.index_dead + self.index_unnamed;
        log + rows + indexes + self.image + self.blob + self.manifest
    }
}

/// A file and its bytes.
type File = (SegmentClass, SegmentId, u64);

/// What the shapes of all tables name: bytes of pieces of oldest and of other runs, and their files.
#[derive(Default)]
pub(crate) struct Named {
    base: u64,
    upper: u64,
    files: HashMap<SegmentId, NamedFile>,
}

/// Bytes of a file, and of the pieces in it that are named.
#[derive(Default)]
struct NamedFile {
    bytes: u64,
    named: u64,
}

impl Named {
    fn add(&mut self, file: &Arc<PieceFile>, bytes: u64, is_base: bool) {
        *(if is_base { &mut self.base } else { &mut self.upper }) += bytes;
        let found = self.files.entry(file.id()).or_default();
        found.bytes = file.file_bytes();
        found.named += bytes;
    }

    /// Bytes of the pieces of a file that are named; nothing if none is.
    pub(crate) fn bytes_in(&self, file: SegmentId) -> Option<u64> {
        self.files.get(&file).map(|found| found.named)
    }

    /// Bytes of the files beyond what is named in them.
    fn dead(&self) -> u64 {
        let files: u64 = self.files.values().map(|file| file.bytes).sum();
        files.saturating_sub(self.base + self.upper)
    }

    /// Bytes of these files that are not among the named ones.
    fn unnamed<'s>(&self, files: impl Iterator<Item = &'s File>) -> u64 {
        let unnamed = files.filter(|(_, id, _)| !self.files.contains_key(id));
        unnamed.map(|(.., bytes)| bytes).sum()
    }
}

impl Database {
    /// What all shapes name now: pieces of rows, and pieces of indexes.
    pub(crate) fn named_pieces(&self) -> (Named, Named) {
        let (mut rows, mut indexes) = (Named::default(), Named::default());
        for table in self.catalog.tables() {
            let shape = table.base.shape();
            for (number, run) in shape.runs.iter().enumerate() {
                let is_base = number + 1 == shape.runs.len();
                for piece in &run.pieces {
                    rows.add(&piece.file, piece.stored_bytes(), is_base);
                }
            }
            for index in &table.indexes {
                let parts = index.parts();
                for (number, run) in parts.runs.iter().enumerate() {
                    let is_base = number + 1 == parts.runs.len();
                    for piece in &run.pieces {
                        indexes.add(piece.file(), piece.stored_bytes(), is_base);
                    }
                }
            }
        }
        (rows, indexes)
    }

    /// What the bytes on disk are for, now.
    pub fn space(&self) -> Result<Space> {
        // Shapes before files: what a job installs in between counts as named by nobody, not twice.
        let (rows, indexes) = self.named_pieces();
        let sizes = self.store.sizes()?;
        let of = |class| sizes.iter().filter(move |(found, ..)| *found == class);
        let total = |class| of(class).map(|(.., bytes)| bytes).sum::<u64>();
        let image = self.store.checkpoint().map(|checkpoint| checkpoint.image);
        let images = of(SegmentClass::Meta).filter(|(_, id, _)| Some(*id) == image);
        let image = images.map(|(.., bytes)| bytes).sum();
        let (hot, log_rows, log_ahead) = self.log_space(of(SegmentClass::Hot));
        Ok(Space {
            log_rows,
            log_unneeded: hot - log_rows - log_ahead,
            log_ahead,
            row_base: rows.base,
            row_upper: rows.upper,
            row_dead: rows.dead(),
            row_unnamed: rows.unnamed(of(SegmentClass::Cold)),
            index_base: indexes.base,
            index_upper: indexes.upper,
            index_dead: indexes.dead(),
            index_unnamed: indexes.unnamed(of(SegmentClass::Meta)).saturating_sub(image),
            image,
            blob: total(SegmentClass::Blob),
            manifest: self.store.manifest_bytes()?,
        })
    }

    /// Bytes of these hot segments: all, those that rows need, those that are not written yet.
    fn log_space<'s>(&self, segments: impl Iterator<Item = &'s File>) -> (u64, u64, u64) {
        let (floor, tail) = (self.log_floor().raw(), self.log.tail().raw());
        let bytes = self.store.geometry().hot_segment_bytes;
        let (mut hot, mut end) = (0, 0);
        for (_, id, size) in segments {
            hot += size;
            end = end.max(u64::from(id.raw()) * bytes + size);
        }
        let rows = (tail - floor.min(tail)).min(hot);
        (hot, rows, end.saturating_sub(tail).min(hot - rows))
    }
}
