//! Image names: the piece files, tables and indexes that a checkpoint's image names, read without opening the database.
//!
//! Why it exists: the manifest lists no piece file, so only the image says which of them have to be there. Whoever verifies a directory or
//! judges damage has to know, and whose the files are, and needs nothing else of it.
//! Format: docs/format-checkpoint.md. Rules: F15 what the newest image names is there. D36 an image that is damaged is an error.
//! Latches and I/O: reads the whole image once.

use crate::block_owner::{block_in_words, owners_in_words};
use crate::definition::TableDef;
use crate::error::Result;
use crate::image::{ImageItem, ImageReader};
use pbxt_base::SegmentId;
use pbxt_segment::{Section, SegmentClass, SegmentStore};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What an image names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageNames {
    /// The image's own file, and those with the runs of rows and of index entries, and whose they are.
    pub files: BTreeMap<(SegmentClass, SegmentId), BTreeSet<String>>,
    tables: HashMap<u64, String>,
    /// Names with those of their tables.
    indexes: HashMap<u64, String>,
}

impl ImageNames {
    /// Reads an image.
    ///
    /// # Errors
    /// Those of the medium; `Corrupt` if it is not what a checkpoint writes.
    pub fn read(store: &SegmentStore, image: SegmentId) -> Result<Self> {
        let mut names = Self::default();
        names.note((SegmentClass::Meta, image), "the image of a checkpoint");
        let mut reader = ImageReader::open(store, image)?;
        let (mut table, mut index) = (String::new(), String::new());
        while let Some(item) = reader.next_item()? {
            match item {
                ImageItem::Table(head) => table = names.note_table(&head.def),
                ImageItem::Index(id) => index = names.index(u64::from(id.raw())),
                ImageItem::RowRun(run) => {
                    for (file, _) in run.pieces {
                        names.note((SegmentClass::Cold, file), &format!("rows of {table}"));
                    }
                }
                ImageItem::IndexRun(run) => {
                    for (file, _) in run.pieces {
                        names.note((SegmentClass::Meta, file), &format!("entries of {index}"));
                    }
                }
                _ => {}
            }
        }
        Ok(names)
    }

    /// What is in a block of a piece file. Tables and indexes that the image does not name are called by their numbers.
    pub fn block_in_words(&self, section: &Section, block: usize) -> String {
        block_in_words(section, block, |id| self.table(id), |id| self.index(id))
    }

    /// What is in a file, if the image names it.
    pub fn file_in_words(&self, file: (SegmentClass, SegmentId)) -> Option<String> {
        self.files.get(&file).cloned().map(owners_in_words)
    }

    fn note(&mut self, file: (SegmentClass, SegmentId), owner: &str) {
        let owners = self.files.entry(file).or_default();
        if !owners.contains(owner) {
            owners.insert(owner.to_owned());
        }
    }

    /// Takes over the names of a table and of its indexes. How the table is called.
    fn note_table(&mut self, def: &TableDef) -> String {
        let id = u64::from(def.id.raw());
        self.tables.insert(id, format!("table '{}'", def.name));
        for index in &def.indexes {
            let name = format!("index '{}' of table '{}'", index.name, def.name);
            self.indexes.insert(u64::from(index.id.raw()), name);
        }
        self.table(id)
    }

    fn table(&self, id: u64) -> String {
        self.tables
            .get(&id)
            .cloned()
            .unwrap_or_else(|| format!("table {id}"))
    }

    fn index(&self, id: u64) -> String {
        self.indexes
            .get(&id)
            .cloned()
            .unwrap_or_else(|| format!("index {id}"))
    }
}
