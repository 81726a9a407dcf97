//! Bulk files: piece files of a load, of an index that is built, or of a step of background work, until something names them.
//!
//! Rules: L4, S21 what ends otherwise than by being made part of a table removes its files. B6 a file is held from its creation until
//! after the shape that names it was installed.
//! Latches and I/O: removes files when dropped.
//! After a crash: unnamed files are removed at open.

use crate::database::Database;
use pbxt_base::SegmentId;
use pbxt_segment::{SegmentClass, SegmentStore};
use std::sync::Arc;

/// Finished files; removed when dropped (rules L4, S21).
#[derive(Debug)]
pub(crate) struct LoadFiles {
    store: Arc<SegmentStore>,
    files: Vec<(SegmentClass, SegmentId)>,
}

impl LoadFiles {
    /// None so far.
    pub(crate) fn new(db: &Database) -> Self {
        Self {
            store: Arc::clone(&db.store),
            files: Vec::new(),
        }
    }

    /// A file is finished.
    pub(crate) fn add(&mut self, class: SegmentClass, id: SegmentId) {
        self.files.push((class, id));
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<(SegmentClass, SegmentId)> {
        self.files.clone()
    }

    /// From now on something names them.
    pub(crate) fn keep(&mut self) {
        self.files.clear();
    }
}

impl Drop for LoadFiles {
    fn drop(&mut self) {
        for &(class, id) in &self.files {
            // If it cannot go now, the next checkpoint or opening removes it as an orphan.
            let _ = self.store.remove_piece(class, id);
        }
    }
}

/// Keeps every piece file made since from being taken for an orphan (rule B6).
#[derive(Debug)]
pub(crate) struct Held {
    db: Arc<Database>,
    job: u64,
}

impl Held {
    pub(crate) fn begin(db: &Arc<Database>) -> Self {
        Self {
            db: Arc::clone(db),
            job: db.flight.begin(&db.store).detach(),
        }
    }

    /// Only these files are held from now on.
    pub(crate) fn narrow_to(&self, files: Vec<(SegmentClass, SegmentId)>) {
        let job = self.db.flight.resume(self.job);
        job.narrow_to(files);
        job.detach();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.db.flight.resume(self.job));
    }
}
