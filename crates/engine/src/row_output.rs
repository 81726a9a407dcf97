//! Row output: sections with rows of many tables, written to as few piece files as their sizes allow.
//!
//! Why it exists: compactor and merges write rows of many small tables at once, and many pieces of one large table; a file
//! of its own for each section would drown the directory, one file for all would live as long as its last section.
//! Rules: S32 how large a file becomes. B6 (held in flight until the shapes that name it are installed); P1 whatever ends early leaves no file behind.
//! Latches and I/O: writes piece files; `finish` makes them durable.
//! After a crash: files that no shape of the checkpoint names are removed at open.

use crate::budget::PieceSizes;
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
    job: Option<PieceJob<'db>>,
    writer: Option<PieceWriter>,
    /// Whose the sections of `writer` are.
    sections: Vec<(usize, u32)>,
    /// Finished files with the owners of their sections.
    files: Vec<(SegmentId, Vec<(usize, u32)>)>,
    /// A section is open in `writer`.
    is_open: bool,
    sizes: PieceSizes,
}

/// Durable pieces with their owners, held in flight (rule B6) until this is dropped.
pub(crate) struct WrittenRows<'db> {
    pub pieces: Vec<(usize, Arc<RowPiece>)>,
    _job: Option<PieceJob<'db>>,
}

impl WrittenRows<'_> {
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
            job: Some(db.flight.begin(&db.store)),
            writer: None,
            sections: Vec::new(),
            files: Vec::new(),
            is_open: false,
            sizes: db.piece_sizes(),
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
            self.files.push((id, std::mem::take(&mut self.sections)));
        }
        Ok(())
    }

    /// Makes all durable and opens the pieces.
    pub(crate) fn finish(mut self) -> Result<WrittenRows<'db>> {
        self.end_file()?;
        let mut pieces = Vec::new();
        for (id, sections) in &self.files {
            let file = PieceFile::open(&self.db.store, SegmentClass::Cold, *id)?;
            for (owner, section) in sections {
                pieces.push((*owner, Arc::new(RowPiece::open(Arc::clone(&file), *section)?)));
            }
        }
        self.files.clear();
        Ok(WrittenRows {
            pieces,
            _job: self.job.take(),
        })
    }
}

impl Drop for RowOutput<'_> {
    fn drop(&mut self) {
        for (id, _) in &self.files {
            // Nothing names it. If it cannot go now, the next checkpoint or opening removes it.
            let _ = self.db.store.remove_piece(SegmentClass::Cold, *id);
        }
    }
}
