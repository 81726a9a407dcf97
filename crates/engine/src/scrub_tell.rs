//! What a scrub tells: damage in one line each, whose it is, and what of it was told before.
//!
//! Why it exists: a line that names a file and an offset is for whoever mends the medium; whoever has to mend the database wants to know
//! which table it is. And what is told again every week is soon read by nobody.
//! Rules: SC4 damage is told and counted, and nothing else follows from it. SC6 each place once; a pass that met places which were told
//! before says so at its end, in one line. TR11, TR13: names of files, tables and indexes and row ids, no values. EN11 want of a key is no
//! damage.
//! State: places that were told, and by which pass they were met last; so many at most.
//! Latches and I/O: the catalog's for a look-up.

use crate::block_owner::{block_in_words, owners_in_words};
use crate::database::Database;
use crate::scrub_pass::{Pass, Place};
use pbxt_base::Error as StorageError;
use pbxt_segment::{PieceDamage, PieceFile, Section, SegmentClass};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Lines of a pass about single places.
const LINES_MAX: u64 = 100;
/// Places that are remembered.
const KNOWN_MAX: usize = 10_000;

/// Something that is not what was written, or cannot be read.
#[derive(Debug)]
pub(crate) struct Damage {
    pub place: Place,
    pub offset: u64,
    /// What is there.
    pub whose: String,
    pub error: StorageError,
}

impl Damage {
    /// For the error log. An error of the medium may not say where.
    fn line(&self) -> String {
        let place = match self.error {
            StorageError::Corrupt { .. } => String::new(),
            _ => format!(" at offset {}", self.offset),
        };
        format!("scrub: damage in {}{place}: {}", self.whose, self.error)
    }
}

/// What a pass has told so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Places that nobody had told of.
    new: u64,
    /// Those that an earlier pass had.
    again: u64,
    /// Files that could not be looked at for want of a key, and what was said of the first.
    unread: u64,
    first_unread: String,
}

/// Places that were told, with the number of the pass that met them last.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<(Place, u64), u64>);

/// Whether a place is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Never,
    ByEarlierPass,
    ByThisPass,
}

impl Known {
    fn meet(&mut self, place: (Place, u64), pass: u64) -> Seen {
        let is_full = self.0.len() >= KNOWN_MAX;
        match self.0.get_mut(&place) {
            Some(last) if *last == pass => Seen::ByThisPass,
            Some(last) => {
                *last = pass;
                Seen::ByEarlierPass
            }
            None => {
                if !is_full {
                    self.0.insert(place, pass);
                }
                Seen::Never
            }
        }
    }
}

impl Tally {
    /// What is to be said at the end of a pass; nothing if nothing was found.
    fn sentence(&self) -> Option<String> {
        let mut parts = Vec::new();
        let found = self.new + self.again;
        if found > 0 {
            parts.push(format!("{found} damaged places found"));
        }
        if self.again > 0 {
            let again = self.again;
            parts.push(format!(
                "{again} of them were told by an earlier pass and are not told again"
            ));
        }
        if self.new > LINES_MAX {
            let untold = self.new - LINES_MAX;
            parts.push(format!(
                "of {untold} more than {LINES_MAX} only the number is told"
            ));
        }
        if self.unread > 0 {
            let (unread, first) = (self.unread, &self.first_unread);
            parts.push(format!("{unread} files could not be looked at: {first}"));
        }
        (!parts.is_empty()).then(|| format!("scrub: the pass has ended; {}", parts.join("; ")))
    }
}

impl Database {
    /// Tells of damage, once (rule SC6).
    pub(crate) fn tell_damage(&self, known: &mut Known, pass: &mut Pass, damage: &Damage) {
        let tally = &mut pass.tally;
        if matches!(
            damage.error,
            StorageError::Encrypted { .. } | StorageError::NoKey { .. }
        ) {
            if tally.unread == 0 {
                tally.first_unread = damage.error.to_string();
            }
            tally.unread += 1;
            return;
        }
        match known.meet((damage.place, damage.offset), pass.number) {
            Seen::ByThisPass => {}
            Seen::ByEarlierPass => tally.again += 1,
            Seen::Never => {
                tally.new += 1;
                self.scrub.figures.damage.add(1);
                if tally.new <= LINES_MAX {
                    self.say(&damage.line());
                }
            }
        }
    }

    /// Tells what a pass came to.
    pub(crate) fn tell_end(&self, pass: &Pass) {
        if let Some(sentence) = pass.tally.sentence() {
            self.say(&sentence);
        }
    }

    fn say(&self, text: &str) {
        if let Some(observer) = &self.waits.observer {
            observer.damage(text);
        }
    }

    /// Damage of a file as a whole, or of a part that has no owner.
    pub(crate) fn damage_of_file(&self, place: Place, error: StorageError) -> Damage {
        let whose = match place {
            Place::Manifest => "the manifest".into(),
            Place::Segment(SegmentClass::Hot, _) => "the log".into(),
            Place::Segment(SegmentClass::Blob, _) => "a file of large values".into(),
            Place::Segment(class, id) => {
                let mut owners = BTreeSet::new();
                self.for_each_owner(|found, owner| {
                    if found.class() == class && found.id() == id {
                        owners.insert(owner());
                    }
                });
                owners_in_words(owners)
            }
        };
        Damage {
            place,
            offset: offset_of(&error),
            whose,
            error,
        }
    }

    /// Damage of a piece file that is open.
    pub(crate) fn damage_of_piece(&self, piece: &Arc<PieceFile>, damage: PieceDamage) -> Damage {
        let place = Place::Segment(piece.class(), piece.id());
        let Some((number, block)) = damage.block else {
            return self.damage_of_file(place, damage.error);
        };
        let Some(section) = piece.sections().get(number as usize) else {
            return self.damage_of_file(place, damage.error);
        };
        Damage {
            place,
            offset: section.block_offset(block),
            whose: self.owner_of_block(section, block),
            error: damage.error,
        }
    }

    fn owner_of_block(&self, section: &Section, block: usize) -> String {
        let tables = self.catalog.tables();
        let table = |owner| {
            let table = tables.iter().find(|table| u64::from(table.id.raw()) == owner);
            table.map_or_else(
                || "a table that is gone".into(),
                |table| format!("table '{}'", table.name()),
            )
        };
        let index = |owner| {
            let mut all = tables
                .iter()
                .flat_map(|table| table.indexes.iter().map(move |index| (table, index)));
            let found = all.find(|(_, index)| u64::from(index.def.id.raw()) == owner);
            found.map_or_else(
                || "an index that is gone".into(),
                |(table, index)| format!("index '{}' of table '{}'", index.def.name, table.name()),
            )
        };
        block_in_words(section, block, table, index)
    }

    /// Calls `visit` with the file of each piece and what makes the name of whose it is.
    fn for_each_owner(&self, mut visit: impl FnMut(&PieceFile, &dyn Fn() -> String)) {
        for table in self.catalog.tables() {
            for piece in table.base.shape().runs.iter().flat_map(|run| &run.pieces) {
                visit(piece.file.as_ref(), &|| {
                    format!("rows of table '{}'", table.name())
                });
            }
            for index in &table.indexes {
                let name = || {
                    format!(
                        "entries of index '{}' of table '{}'",
                        index.def.name,
                        table.name()
                    )
                };
                for piece in index.parts().runs.iter().flat_map(|run| &run.pieces) {
                    visit(piece.file(), &name);
                }
            }
        }
    }
}

fn offset_of(error: &StorageError) -> u64 {
    match error {
        StorageError::Corrupt { offset, .. } => *offset,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pbxt_base::SegmentId;

    #[test]
    fn a_place_is_new_once_and_met_once_in_each_pass() {
        let mut known = Known::default();
        let place = (Place::Segment(SegmentClass::Cold, SegmentId::new(7)), 4096);
        assert_eq!(known.meet(place, 1), Seen::Never);
        assert_eq!(known.meet(place, 1), Seen::ByThisPass);
        assert_eq!(known.meet(place, 2), Seen::ByEarlierPass, "SC6");
        assert_eq!(known.meet(place, 2), Seen::ByThisPass);
        assert_eq!(known.meet((Place::Manifest, 4096), 2), Seen::Never);
    }

    #[test]
    fn the_end_of_a_pass_is_told_only_if_it_found_something() {
        assert_eq!(Tally::default().sentence(), None);
        let tally = Tally {
            new: LINES_MAX + 3,
            again: 2,
            unread: 1,
            first_unread: "'f' is encrypted".into(),
        };
        let sentence = tally.sentence().expect("something was found");
        for part in [
            "105 damaged",
            "2 of them were told by an earlier pass",
            "of 3 more",
            "1 files could not",
            "'f' is encrypted",
        ] {
            assert!(sentence.contains(part), "SC6: {part}: {sentence}");
        }
    }
}
