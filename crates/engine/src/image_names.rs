//! Image names: the piece files that a checkpoint's image names, read without opening the database.
//!
//! Why it exists: the manifest lists no piece file, so only the image says which of them have to be there. Whoever verifies a directory or
//! judges damage has to know, and needs nothing else of it.
//! Format: docs/format-checkpoint.md. Rules: F15 what the newest image names is there. D36 an image that is damaged is an error.
//! Latches and I/O: reads the whole image once.

use crate::error::Result;
use crate::image::{ImageItem, ImageReader};
use pbxt_base::SegmentId;
use pbxt_segment::{SegmentClass, SegmentStore};
use std::collections::BTreeSet;

/// What an image names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageNames {
    /// The image's own file, and those with the runs of rows and of index entries.
    pub files: BTreeSet<(SegmentClass, SegmentId)>,
}

impl ImageNames {
    /// Reads an image.
    ///
    /// # Errors
    /// Those of the medium; `Corrupt` if it is not what a checkpoint writes.
    pub fn read(store: &SegmentStore, image: SegmentId) -> Result<Self> {
        let mut names = Self::default();
        names.files.insert((SegmentClass::Meta, image));
        let mut reader = ImageReader::open(store, image)?;
        while let Some(item) = reader.next_item()? {
            let (class, run) = match item {
                ImageItem::RowRun(run) => (SegmentClass::Cold, run),
                ImageItem::IndexRun(run) => (SegmentClass::Meta, run),
                _ => continue,
            };
            names
                .files
                .extend(run.pieces.iter().map(|(file, _)| (class, *file)));
        }
        Ok(names)
    }
}
