//! Row output: sections with rows of many tables, written to as few piece files as their sizes allow.
//!
//! Why it exists: compactor and merges write rows of many small tables at once, and many pieces of one large table; a file
//! of its own for each section would drown the directory, one file for all would live as long as its last section.
//! Rules: S32 how large a file becomes. B6 (held in flight until the shapes that name it are installed). S21 what is not installed leaves no
//! file behind, whether it ended early or somebody else's part of the same step did.
//! Latches and I/O: writes piece files; `finish` makes them durable.
//! After a crash: files that no shape of the checkpoint names are removed at open.

use crate::budget::PieceSizes;
use crate::bulk_files::LoadFiles;
use crate::database::Database;
use crate::error::Result;
use crate::pieces::PieceJob;
use crate::row_shape::RowPiece;
use crate::row_writer::RowWriter;
use pbxt_base::{RowId, SegmentId, TableId};
use pbxt_segment::{PieceFile, PieceWriter, SegmentClass};
use std::sync::Arc;

/// See the module. Dropped before `finish`, it removes its files.
pub(crate) struct RowOutput<'db> {
    db: &'db Database,
    writer: Option<PieceWriter>,
    /// Whose the sections of `writer` are.
    sections: Vec<(usize, u32)>,
    /// Finished files with the owners of their sections.
    finished: Vec<(SegmentId, Vec<(usize, u32)>)>,
    /// A section is open in `writer`.
    is_open: bool,
    sizes: PieceSizes,
    /// The finished files once more, to be removed.
    files: LoadFiles,
    // Behind the files: a checkpoint removes what nobody holds.
    job: PieceJob<'db>,
}

/// Durable pieces with their owners, held in flight (rule B6) until this is dropped. Unless they are kept their files go then.
pub(crate) struct WrittenRows<'db> {
    pub pieces: Vec<(usize, Arc<RowPiece>)>,
    files: LoadFiles,
    // Behind the files: a checkpoint removes what nobody holds.
    _job: PieceJob<'db>,
}

impl WrittenRows<'_> {
    /// The pieces are about to be installed, which cannot fail.
    pub(crate) fn keep(&mut self) {
        self.files.keep();
    }

    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| piece.stored_bytes()).sum()
    }

    /// Pieces of one owner, in the order in which they were written.
    pub(crate) fn of(&self, owner: usize) -> Vec<Arc<RowPiece>> {
        let own = self.pieces.iter().filter(|(found, _)| *found == owner);
        own.map(|(_, piece)| Arc::clone(piece)).collect()
    }
}

impl<'db> RowOutput<'db> {
    pub(crate) fn new(db: &'db Database) -> Self {
        Self {
            db,
            job: db.flight.begin(&db.store),
            writer: None,
            sections: Vec::new(),
            finished: Vec::new(),
            is_open: false,
            sizes: db.piece_sizes(),
            files: LoadFiles::new(db),
        }
    }

    /// Adds a row; begins a section if none is open.
    pub(crate) fn push(
        &mut self,
        rows: &mut RowWriter,
        table: TableId,
        row: RowId,
        payload: Option<&[u8]>,
    ) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self
                .writer
                .insert(PieceWriter::create(&self.db.store, SegmentClass::Cold)?),
        };
        if !self.is_open {
            RowWriter::begin(writer, table);
            self.is_open = true;
        }
        rows.push(writer, row, payload)
    }

    /// Sizes of what is written.
    pub(crate) fn sizes(&self) -> PieceSizes {
        self.sizes
    }

    /// Bytes of the open section, but for the block that is being filled.
    pub(crate) fn section_bytes(&self) -> u64 {
        match &self.writer {
            Some(writer) if self.is_open => writer.section_bytes(),
            _ => 0,
        }
    }

    /// Ends the section, if one is open, as a piece of `owner`.
    pub(crate) fn end_section(&mut self, owner: usize, rows: &mut RowWriter) -> Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|_| self.is_open) else {
            return Ok(());
        };
        self.is_open = false;
        self.sections.push((owner, rows.end(writer)?));
        if writer.file_bytes() >= self.sizes.file {
            self.end_file()?;
        }
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let id = writer.finish()?;
            self.files.add(SegmentClass::Cold, id);
            self.finished.push((id, std::mem::take(&mut self.sections)));
        }
        Ok(())
    }

    /// Makes all durable and opens the pieces.
    pub(crate) fn finish(mut self) -> Result<WrittenRows<'db>> {
        self.end_file()?;
        let mut pieces = Vec::new();
        for (id, sections) in &self.finished {
            let file = PieceFile::open(&self.db.store, SegmentClass::Cold, *id)?;
            for (owner, section) in sections {
                pieces.push((*owner, Arc::new(RowPiece::open(Arc::clone(&file), *section)?)));
            }
        }
        Ok(WrittenRows {
            pieces,
            files: self.files,
            _job: self.job,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Options;
    use crate::row_writer::row_writer_tests::schema;
    use pbxt_rows::RowBuilder;
    use pbxt_segment::{Codec, Geometry};
    use pbxt_testkit::SimDisk;

    /// Rule S21: as when another thread of the same step fails.
    #[test]
    fn what_was_finished_and_is_not_installed_leaves_no_file() {
        let options = Options {
            geometry: Geometry::small(),
            cache_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        let db = Database::open(Arc::new(SimDisk::new()), &options).expect("a new database");
        let (schema, mut payload) = (schema(), Vec::new());
        let mut row = RowBuilder::new(&schema);
        row.set(0, Some(b"value")).expect("a value");
        row.finish(&mut payload).expect("a payload");
        let mut out = RowOutput::new(&db);
        let mut writer = RowWriter::new(&schema, Codec::Plain);
        out.push(&mut writer, TableId::new(1), RowId::new(1), Some(&payload))
            .expect("written");
        out.end_section(0, &mut writer).expect("written");
        let written = out.finish().expect("durable");
        let files = || db.store.list(SegmentClass::Cold).expect("listed").len();
        assert_eq!((files(), written.of(0).len()), (1, 1));
        drop(written);
        assert_eq!(files(), 0, "S21");
    }
}
