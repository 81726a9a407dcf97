//! Encrypted tables: before one is made, everything that a byte of it could reach is encrypted.
//!
//! Why it exists: a segment of the log, a file of runs and a checkpoint's image have rows of many tables, so a table of its own choice
//! makes all new files encrypted (docs/decisions/0013). Files that are being written when it comes would take its bytes all the same:
//! segments of the log and of large values are left for new ones. Piece files need no such step: whoever writes one has chosen its
//! tables before (rule EN19).
//! Rules: EN17 to EN20 (docs/encryption.md).
//! Latches and I/O: under the latch of DDL; segments are made and synced.
//! After a crash: files are encrypted that need not be, or the table is there and the opening begins with what is asked of it here.

use crate::catalog::Catalog;
use crate::database::Database;
use crate::definition::TableDef;
use crate::error::Result;
use pbxt_segment::SegmentStore;
use std::sync::atomic::Ordering;

impl Database {
    /// Sees to it that nothing written from now on reaches a plain file, if `def` asks for it (rule EN18). The caller has the latch of
    /// DDL and has logged nothing of the table.
    pub(crate) fn ready_files_for(&self, def: &TableDef) -> Result<()> {
        if !def.encrypted || self.all_encrypted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.store.encrypt_new_files()?;
        self.blobs.leave_segment();
        self.log.leave_segments()?;
        self.all_encrypted.store(true, Ordering::Release);
        Ok(())
    }
}

/// At an opening, before the log goes on: encrypts new files if a table asks for it (rule EN20). True if they are, for whatever reason.
pub(crate) fn ready_files_of(store: &SegmentStore, catalog: &Catalog) -> Result<bool> {
    if catalog.tables().iter().any(|table| table.def().encrypted) {
        store.encrypt_new_files()?;
    }
    Ok(store.encrypts_new_files())
}
