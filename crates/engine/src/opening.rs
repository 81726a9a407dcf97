//! Opening: what an opening found and went on with, told to whoever runs the database.
//!
//! Why it exists: a database that opens says nothing by itself, and what was found will not be met again before it is needed.
//! Rules: D39 indexes that were set aside. F18 files that nothing names.
//! Latches and I/O: none; the host writes the lines.

use crate::database::Database;
use crate::recovery_image::Pieces;
use pbxt_base::{Error as StorageError, IndexId};
use pbxt_segment::Leftovers;

/// Files told by their names that were removed, and that were left alone; of more only the number.
const FILES_TOLD_MAX: usize = 10;
/// Indexes told by their names; of more only the number.
const INDEXES_TOLD_MAX: usize = 20;

impl Database {
    /// Tells of the indexes of which a file is damaged (rule D39).
    pub(crate) fn tell_of_aside(&self, pieces: &Pieces) {
        let mut others = 0_u64;
        for (told, (index, damage)) in pieces.set_aside().enumerate() {
            if told < INDEXES_TOLD_MAX {
                self.tell_damage_at_opening(&self.aside_in_words(index, &damage));
            } else {
                others += 1;
            }
        }
        if others > 0 {
            self.tell_damage_at_opening(&format!(
                "{others} more indexes are set aside for the same reason"
            ));
        }
    }

    fn aside_in_words(&self, index: IndexId, damage: &StorageError) -> String {
        let tables = self.catalog.tables();
        let found = tables
            .iter()
            .find_map(|table| Some((table, table.index_by_id(index)?)));
        let name = found.map_or_else(
            || format!("index {index} of a table that is gone"),
            |(table, index)| format!("index '{}' of table '{}'", index.def.name, table.name()),
        );
        format!(
            "{name} is set aside, statements that need it are refused: {damage}, or let REPAIR TABLE make it anew from the rows"
        )
    }

    /// Tells of files that nothing names (rule F18).
    pub(crate) fn tell_of_leftovers(&self) {
        let Some(observer) = &self.waits.observer else {
            return;
        };
        let Leftovers { removed, left_alone } = self.store.leftovers();
        for (file, why) in removed.iter().take(FILES_TOLD_MAX) {
            observer.removed(&format!("'{file}' was removed, nothing names it: {why}"));
        }
        for (file, how) in left_alone.iter().take(FILES_TOLD_MAX) {
            observer.left_alone(&format!(
                "'{file}' was left alone, though it has a name of this database's files and nothing names it: {how}; move it away"
            ));
        }
        let more = |files: usize| files.saturating_sub(FILES_TOLD_MAX);
        if more(removed.len()) > 0 {
            observer.removed(&format!(
                "{} more files that nothing names were removed",
                more(removed.len())
            ));
        }
        if more(left_alone.len()) > 0 {
            observer.left_alone(&format!(
                "{} more such files were left alone",
                more(left_alone.len())
            ));
        }
    }

    /// One line for whoever runs the database.
    pub(crate) fn tell_damage_at_opening(&self, text: &str) {
        if let Some(observer) = &self.waits.observer {
            observer.damage(text);
        }
    }
}
