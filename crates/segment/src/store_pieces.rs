//! Piece files of a store: creation, opening, removal.
//!
//! Why it exists: piece files are named by checkpoints and log records and not by the manifest, so their life is another
//! one than that of hot and blob segments, without a sync of the manifest a file.
//! Rules: F2 the number of a piece file is used once in a life; F13 what neither checkpoint nor log tail names is an
//! orphan of an earlier life and goes at opening, if it is ours (F18).
//! Latches and I/O: no latch; removing is durable only after `sync_dir`, so many removals share one sync.

use crate::header::SegmentHeader;
use crate::names::{SegmentClass, segment_name};
use crate::piece::is_missing;
use crate::store::SegmentStore;
use pbxt_base::{Error, Result, SegmentId, invariant};
use pbxt_io::DiskFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Next numbers of the two classes.
#[derive(Debug)]
pub(crate) struct PieceIds([AtomicU32; 2]);

impl PieceIds {
    pub(crate) fn new(next_cold: SegmentId, next_meta: SegmentId) -> Self {
        Self([AtomicU32::new(next_cold.raw()), AtomicU32::new(next_meta.raw())])
    }

    fn of(&self, class: SegmentClass) -> &AtomicU32 {
        invariant!(
            matches!(class, SegmentClass::Cold | SegmentClass::Meta),
            "F14: piece files are of class cold or meta, not {class:?}"
        );
        &self.0[usize::from(class == SegmentClass::Meta)]
    }
}

impl SegmentStore {
    /// Creates the next piece file of a class, without content; nothing of it is durable.
    pub(crate) fn create_piece(&self, class: SegmentClass) -> Result<(SegmentId, Arc<dyn DiskFile>)> {
        if self.read_only {
            return Err(Error::ReadOnlyMedia {
                path: self.location(),
            });
        }
        let ids = self.piece_ids.of(class);
        self.make_next(class, || SegmentId::new(ids.fetch_add(1, Ordering::Relaxed)))
    }

    /// Header of a piece file: its size is told by its tail.
    pub(crate) fn piece_header(&self, class: SegmentClass, id: SegmentId) -> SegmentHeader {
        SegmentHeader {
            segment_bytes: 0,
            ..self.plain_header(class, id)
        }
    }

    /// Opens a piece file for reading block by block; the handle is not shared with `file`.
    pub(crate) fn open_piece(&self, class: SegmentClass, id: SegmentId) -> Result<Arc<dyn DiskFile>> {
        let opened = self.disk.open_blocks(&segment_name(class, id));
        opened.map_err(|error| self.missing_piece(class, id, error))
    }

    /// True if a piece file that is made now would be encrypted as this one is.
    ///
    /// # Errors
    /// Those of the disk, and `NoKey`.
    pub fn is_as_new_pieces(&self, class: SegmentClass, id: SegmentId) -> Result<bool> {
        self.disk.is_as_new_files(&segment_name(class, id))
    }

    /// Opens a piece file that was not synced: the system still has its bytes, and reading past its cache would make it
    /// write them first.
    pub(crate) fn open_unsynced_piece(
        &self,
        class: SegmentClass,
        id: SegmentId,
    ) -> Result<Arc<dyn DiskFile>> {
        let opened = self.disk.open(&segment_name(class, id), false);
        opened.map_err(|error| self.missing_piece(class, id, error))
    }

    pub(crate) fn missing_piece(&self, class: SegmentClass, id: SegmentId, error: Error) -> Error {
        if is_missing(&error) {
            self.damaged(
                class,
                id,
                0,
                "a piece file that a checkpoint or log record names",
                "no such file",
            )
        } else {
            error
        }
    }

    /// How piece files are read, as a sentence without a subject.
    pub fn block_reads(&self) -> String {
        self.disk.block_reads()
    }

    /// How the log is written, as a sentence without a subject.
    pub fn log_writes(&self) -> String {
        self.disk.log_writes()
    }

    /// Number the next piece file of a class gets at least.
    pub fn next_piece_id(&self, class: SegmentClass) -> SegmentId {
        SegmentId::new(self.piece_ids.of(class).load(Ordering::Relaxed))
    }

    /// Tells of a piece file that a checkpoint or log record names: later ones get greater numbers.
    pub fn bump_next_piece_id(&self, class: SegmentClass, id: SegmentId) {
        self.piece_ids
            .of(class)
            .fetch_max(id.raw() + 1, Ordering::Relaxed);
    }

    /// Removes a piece file, if it is there; durable after `sync_dir`. Whoever has it open reads on.
    pub fn remove_piece(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        let _ = self.piece_ids.of(class);
        self.remove_if_there(class, id)
    }

    fn remove_if_there(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        match self.remove_file(class, id) {
            // Whoever made it, or a checkpoint, was faster.
            Err(error) if is_missing(&error) => Ok(()),
            removed => removed,
        }
    }

    /// Makes removals durable.
    pub fn sync_dir(&self) -> Result<()> {
        self.disk.sync_dir()
    }

    /// At opening, removes every piece file of a class, or segment of large values, that `keep` does not want and that is ours (rule F18), and
    /// says which. Nothing in read-only mode.
    pub fn remove_orphans(
        &self,
        class: SegmentClass,
        keep: &dyn Fn(SegmentId) -> bool,
    ) -> Result<Vec<SegmentId>> {
        if self.read_only {
            return Ok(Vec::new());
        }
        let why = if class == SegmentClass::Blob {
            "the manifest does not; a crash has left it, or it is another database's"
        } else {
            "neither the newest checkpoint nor the log behind it does; a crash has left it, or it is another database's"
        };
        let mut orphans = Vec::new();
        for id in self.list(class)?.into_iter().filter(|id| !keep(*id)) {
            if self.is_leftover(class, id, why)? {
                orphans.push(id);
            }
        }
        for id in &orphans {
            self.remove_if_there(class, *id)?;
        }
        if !orphans.is_empty() {
            // Durable now: the removals. Without it a power cut would bring the files back until the next opening.
            self.sync_dir()?;
        }
        Ok(orphans)
    }
}
