//! Checkpoints of a store: which image counts, and which hot segments it makes superfluous.
//!
//! Why it exists: one word in the manifest replaces the image that recovery starts from, and with it the first segment of
//! the log; a crash finds the old one or the new one, with all its files.
//! Format: docs/format.md#manifest-records, kind 8.
//! Rules: F15 the image and every piece it names are durable before the record; files that the record makes superfluous
//! go after it. The record itself takes hot segments below its log start out of the manifest, so removing them needs no
//! further word, and what a crash leaves of them goes at the next opening.
//! Latches and I/O: the manifest's, for one append and one sync.

use crate::manifest::is_as_before;
use crate::manifest_record::{Checkpoint, ManifestRecord};
use crate::names::SegmentClass;
use crate::store::SegmentStore;
use pbxt_base::{Result, SegmentId, invariant, stop_point};

impl SegmentStore {
    /// The newest checkpoint; its image was there when the database was opened.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.manifest.checkpoint()
    }

    /// Makes a checkpoint count whose image and pieces are durable; durable on return. A failure but `NoSpace` and want of a
    /// descriptor or of memory is final (rule D9); after these the image is gone, as every further attempt would leave another
    /// one (rule F10). Afterwards `list` leaves out hot segments below its log start; `drop_below_log` removes them.
    pub fn note_checkpoint(&self, checkpoint: Checkpoint) -> Result<()> {
        let before = self
            .checkpoint()
            .map_or(checkpoint.log_start, |before| before.log_start);
        invariant!(
            before <= checkpoint.log_start && checkpoint.log_start <= checkpoint.start,
            "F15: the log's start only grows, and recovery starts in the log"
        );
        stop_point!("checkpoint.before_note");
        let noted = self.manifest.append(ManifestRecord::Checkpoint(checkpoint));
        if noted.as_ref().is_err_and(is_as_before) {
            let _ = self.remove_piece(SegmentClass::Meta, checkpoint.image);
        }
        noted?;
        stop_point!("checkpoint.after_note");
        Ok(())
    }

    /// Removes the files of hot segments below the log's start, and says which. Who has one open reads on.
    pub fn drop_below_log(&self) -> Result<Vec<SegmentId>> {
        self.drop_all(self.below_log()?)
    }

    /// The same of what an earlier life has left.
    pub(crate) fn drop_leftovers_below_log(&self) -> Result<()> {
        let why = "the newest checkpoint needs no log as old as this";
        let mut ours = Vec::new();
        for id in self.below_log()? {
            if self.is_leftover(SegmentClass::Hot, id, why)? {
                ours.push(id);
            }
        }
        self.drop_all(ours).map(drop)
    }

    fn below_log(&self) -> Result<Vec<SegmentId>> {
        let Some(first) = self.manifest.first_hot() else {
            return Ok(Vec::new());
        };
        let mut below = self.files_of(SegmentClass::Hot)?;
        below.retain(|id| *id < first);
        Ok(below)
    }

    fn drop_all(&self, below: Vec<SegmentId>) -> Result<Vec<SegmentId>> {
        for id in &below {
            self.remove_file(SegmentClass::Hot, *id)?;
        }
        if !below.is_empty() {
            // Durable now: the removals. Without it they would be made again at the next opening, no more.
            self.sync_dir()?;
        }
        Ok(below)
    }

    /// Refuses if the image that counts is not there.
    pub(crate) fn check_image(&self) -> Result<()> {
        match self.checkpoint() {
            Some(Checkpoint { image, .. }) if !self.files_of(SegmentClass::Meta)?.contains(&image) => {
                Err(self.damaged(
                    SegmentClass::Meta,
                    image,
                    0,
                    "the image of the newest checkpoint",
                    "no such file",
                ))
            }
            _ => Ok(()),
        }
    }
}
