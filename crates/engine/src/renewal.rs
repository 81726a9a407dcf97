//! Renewal: pieces that are written anew although nothing lies over them, because somebody asks for it.
//!
//! Why it exists: merges look at what is superseded. A piece can be whole and yet not be what would be written today: in a file whose
//! other sections are dead, with the columns of before an ALTER, encrypted with an older key, or with entries that still say
//! when and by whom they were made, which nobody asks any more.
//! Rules: OP2 (docs/storage.md). What is renewed is no reason to be renewed again, so a command ends.
//! Latches and I/O: none; headers of encrypted files are remembered, or read once.

use crate::database::Database;
use crate::errand::Errand;
use crate::row_merge_plan::Need;
use crate::row_shape::RowShape;
use crate::table::Table;
use pbxt_base::SegmentId;
use pbxt_index::RunPiece;
use pbxt_segment::SegmentClass;
use std::collections::HashSet;

impl Database {
    /// Files with rows of this table that would be written otherwise today: with other columns, or another key.
    pub(crate) fn outdated_row_files(&self, table: &Table, shape: &RowShape) -> HashSet<SegmentId> {
        let now = table.schema().version();
        let pieces = shape.runs.iter().flat_map(|run| &run.pieces);
        let outdated = pieces.filter(|piece| {
            piece.schema_version() != now || self.has_older_key(SegmentClass::Cold, piece.file.id())
        });
        outdated.map(|piece| piece.file.id()).collect()
    }

    /// A file that cannot be looked at is left to whoever reads it, who will say why.
    fn has_older_key(&self, class: SegmentClass, id: SegmentId) -> bool {
        !self.store.is_as_new_pieces(class, id).unwrap_or(true)
    }

    /// True if a command is to write this piece of an oldest run anew: for its file's sake or key's, or, once, because its entries
    /// have LSNs or transactions. `leave` is what `sparse_index_files` has said.
    pub(crate) fn renews_index_piece(
        &self,
        piece: &RunPiece,
        errand: &Errand<'_>,
        leave: &HashSet<SegmentId>,
    ) -> bool {
        let file = piece.reference().0;
        let keeps_stamps = piece.tag().is_some() || piece.greatest_lsn().raw() > 0;
        errand.is_command()
            && (leave.contains(&file)
                || keeps_stamps && errand.renews(file)
                || self.has_older_key(SegmentClass::Meta, file))
    }

    /// Bytes that a command has still to read of a table, about.
    pub(crate) fn bytes_to_merge(&self, table: &Table, errand: &Errand<'_>) -> u64 {
        let shape = table.base.shape();
        let mut leave = self.sparse_files(Need::Possible);
        leave.extend(self.outdated_row_files(table, &shape));
        let mut bytes = 0;
        if let Some((base, uppers)) = shape.runs.split_last() {
            let lies_under = |first, last| {
                uppers
                    .iter()
                    .any(|run| crate::row_merge::overlaps(&run.pieces, first, last))
            };
            let is_due = base
                .pieces
                .iter()
                .filter(|piece| leave.contains(&piece.file.id()) || lies_under(piece.first, piece.last));
            bytes += is_due.map(|piece| piece.stored_bytes()).sum::<u64>();
            bytes += uppers.iter().map(|run| run.stored_bytes()).sum::<u64>();
        }
        let leave = self.sparse_index_files(Need::Possible);
        for index in &table.indexes {
            let parts = index.parts();
            let pieces = parts.runs.iter().flat_map(|run| &run.pieces);
            let is_whole = parts.runs.len() > 1 || table.sweep.wants(index, errand.need).is_some();
            let is_due = pieces.filter(|piece| is_whole || self.renews_index_piece(piece, errand, &leave));
            bytes += is_due.map(|piece| piece.stored_bytes()).sum::<u64>();
        }
        bytes
    }
}
