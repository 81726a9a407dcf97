//! Check of files: opens each piece file of a table anew, as the next opening of the database will.
//!
//! Why it exists: a running server reads through files that it has open, with directories that it has in memory. One that is not there any more,
//! or was cut short or exchanged, or whose header or directory has rotted, answers as ever, until the next start is refused, or sets indexes
//! aside. Now the table can still be repaired.
//! Rules: B15. D39. SC4 what has gone meanwhile is no damage: it counts only if something still names the file.
//! Latches and I/O: past the caches; header, directory and tail of each file.

use crate::check::{Check, is_damage};
use crate::error::{Error, Result};
use crate::scrub_pass::Place;
use crate::session::Session;
use crate::table::{Index, Table};
use pbxt_base::SegmentId;
use pbxt_segment::{MaybePiece, PieceFile, SegmentClass, SegmentStore};
use std::collections::BTreeSet;

/// See the module.
pub(crate) fn check_files(session: &Session, table: &Table, check: &mut Check<'_>) -> Result<()> {
    let db = session.database();
    for (class, id) in files_of(table) {
        let (what, opened) = open_anew(&db.store, class, id);
        if opened.as_ref().is_err_and(is_damage) && !db.counts(Place::Segment(class, id)) {
            continue;
        }
        check.absorb(what, opened)?;
        check.step_far(session)?;
    }
    Ok(())
}

/// What the next opening would come to, and what it would meet.
fn open_anew(store: &SegmentStore, class: SegmentClass, id: SegmentId) -> (&'static str, Result<()>) {
    const REFUSED: &str = "the next start would be refused";
    if class != SegmentClass::Meta {
        let opened = PieceFile::open_past_cache(store, class, id);
        return (REFUSED, opened.map(drop).map_err(Error::from));
    }
    match PieceFile::open_past_cache_if_sound(store, class, id) {
        Ok(MaybePiece::Sound(_)) => (REFUSED, Ok(())),
        Ok(MaybePiece::Damaged(damaged)) => {
            let what = "the next start would set aside all indexes with entries in this file";
            (what, Err(damaged.damage().into()))
        }
        Err(error) => (REFUSED, Err(error.into())),
    }
}

/// Files with pieces of the table and its indexes, as they are now.
pub(crate) fn files_of(table: &Table) -> BTreeSet<(SegmentClass, SegmentId)> {
    let shape = table.base.shape();
    let of_rows = shape.runs.iter().flat_map(|run| &run.pieces);
    let mut files: BTreeSet<_> = of_rows
        .map(|piece| (piece.file.class(), piece.file.id()))
        .collect();
    for parts in table.indexes.iter().map(Index::parts) {
        let pieces = parts.runs.iter().flat_map(|run| &run.pieces);
        files.extend(pieces.map(|piece| (piece.file().class(), piece.file().id())));
    }
    files
}
