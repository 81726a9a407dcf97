//! Budget: how much each thing that is not a living row may take of the disk before background work is due.
//!
//! Why it exists: log, superseded pieces and files that wait for a checkpoint are each bounded by a rule of its own; what
//! they take together must stay in proportion to what lives, or a small table has a log several times its size.
//! Rules (docs/storage.md): S32 sizes of pieces and files follow from what lives, S33 so does the log that is kept for
//! rows, S35 merges wait while a checkpoint has much to give back. D28, D29 (docs/durability.md): when a checkpoint is made for
//! what it gives back.
//! Latches and I/O: none. A look at the names of all pieces.

use crate::database::Database;
use crate::table::{Index, Table};
use std::ops::RangeInclusive;

/// Bytes of log that are kept for the rows in them, at most, before they are homed under way.
const HOT_BYTES_MAX: u64 = 256 << 20;
/// They may also be this part of what lives: one in so many bytes (rule S33).
const LIVE_PER_HOT: u64 = 12;
/// What a checkpoint would give back, when one is made for that: one in so many bytes of what lives (rule D28).
const LIVE_PER_GAIN: u64 = 20;
/// The same when the foreground is idle (rule D29).
const LIVE_PER_IDLE_GAIN: u64 = 64;
/// Least gain of a checkpoint that is made when idle.
const IDLE_GAIN_MIN: u64 = 256 << 10;
/// Superseded pieces that share files with living ones: one in so many bytes of what lives (rule S39).
pub(crate) const LIVE_PER_DEAD: u64 = 16;
/// The same in one file, if all is asked for (rule OP2).
pub(crate) const LIVE_PER_DEAD_POSSIBLE: u64 = 64;
/// Base pieces of what lives (rule S32).
const PIECES: u64 = 64;
/// Bytes of a base piece, which may become twice as large before it is divided.
const PIECE_BYTES: RangeInclusive<u64> = 8 << 20..=16 << 20;
/// Files of what lives, if all were shared ones (rule S32).
const FILES: u64 = 128;
/// Bytes after which a file gets no further section.
const FILE_BYTES: RangeInclusive<u64> = 1 << 20..=32 << 20;

/// Sizes of what is written next (rule S32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceSizes {
    /// A piece of the base, at least; none of twice as much is left as it is.
    pub base: u64,
    /// Bytes after which a file gets no further section.
    pub file: u64,
}

impl PieceSizes {
    /// Bytes at which a piece of the base ends that is made of so many: parts of like size.
    pub(crate) fn base_end(&self, input_bytes: u64) -> u64 {
        let part = input_bytes / (input_bytes / self.base).max(1);
        (part + part / 8).max(self.base)
    }

    /// Bytes of base pieces that an upper piece has passed when it ends with the next one.
    pub(crate) fn span(&self) -> u64 {
        self.base / 2
    }

    /// For a database in which so many bytes live.
    pub(crate) fn for_live(bytes: u64) -> Self {
        Self {
            base: within(&PIECE_BYTES, bytes / PIECES),
            file: within(&FILE_BYTES, bytes / FILES),
        }
    }
}

fn within(range: &RangeInclusive<u64>, bytes: u64) -> u64 {
    bytes.clamp(*range.start(), *range.end())
}

impl Database {
    /// Bytes of the oldest runs of all tables and indexes: about the compacted size.
    fn live_bytes(&self) -> u64 {
        let of_indexes = |table: &Table| -> u64 {
            let oldest = table.indexes.iter().map(Index::parts);
            let oldest = oldest.filter_map(|parts| parts.runs.last().map(|run| run.stored_bytes()));
            oldest.sum()
        };
        let of_rows = |table: &Table| {
            let shape = table.base.shape();
            shape.runs.last().map_or(0, |run| run.stored_bytes())
        };
        let tables = self.catalog.tables();
        tables
            .iter()
            .map(|table| of_rows(table) + of_indexes(table))
            .sum()
    }

    /// Sizes of what is written next.
    pub(crate) fn piece_sizes(&self) -> PieceSizes {
        PieceSizes::for_live(self.live_bytes())
    }

    /// Bytes of log that rows may keep although they could be homed, whatever else lives.
    pub fn hot_bytes_limit(&self) -> u64 {
        let segment = self.store.geometry().hot_segment_bytes;
        HOT_BYTES_MAX.min(self.cache_bytes / 4).max(2 * segment)
    }

    /// Bytes of log beyond which rows are homed although the database is busy (rule S33).
    pub fn homing_limit(&self) -> u64 {
        let segment = self.store.geometry().hot_segment_bytes;
        self.hot_bytes_limit()
            .min((self.live_bytes() / LIVE_PER_HOT).max(2 * segment))
    }

    /// Bytes of files that the next checkpoint would give back: segments of the log whose rows have all been homed, pieces that
    /// merges have superseded, dropped tables. Only a checkpoint can.
    pub(crate) fn checkpoint_gain(&self) -> u64 {
        let homed = self.log_floor().raw().saturating_sub(self.log.start().raw());
        homed + self.upkeep.superseded_bytes() + self.maintenance.dropped_bytes()
    }

    /// What a checkpoint gives back when it is made for that under load.
    fn gain_limit(&self) -> u64 {
        let segment = self.store.geometry().hot_segment_bytes;
        (self.live_bytes() / LIVE_PER_GAIN).max(segment)
    }

    /// True if a checkpoint is due for what it gives back: merges, which would add to that, wait for it (rules D28, S35).
    pub(crate) fn gain_is_due(&self) -> bool {
        self.checkpoint_gain() >= self.gain_limit()
    }

    /// True if an idle database should make a checkpoint: for what it gives back, or for a segment of the log that recovery
    /// would read (rule D29). Both are next to nothing right after a checkpoint, so there is none without work between.
    pub(crate) fn idle_gain_is_due(&self) -> bool {
        let segment = self.store.geometry().hot_segment_bytes;
        let enough = (self.live_bytes() / LIVE_PER_IDLE_GAIN)
            .max(IDLE_GAIN_MIN)
            .min(segment);
        self.checkpoint_gain() >= enough
            || self.log_behind_checkpoint() >= segment
            || self.unnamed_bytes() >= enough
    }

    /// Bytes of the files that nothing but the newest checkpoint names. A file goes whole, so the last of its pieces that a merge
    /// supersedes may free much more than itself. All files are looked at once after each merge.
    fn unnamed_bytes(&self) -> u64 {
        if self.upkeep.superseded_bytes() == 0 {
            return 0;
        }
        let merged = self.upkeep.merged_away();
        let mut unnamed = self.maintenance.unnamed.lock();
        if unnamed.0 != merged {
            // A listing that fails tells nothing; the next merge has it tried again.
            let bytes = self
                .space()
                .map_or(0, |space| space.row_unnamed + space.index_unnamed);
            *unnamed = (merged, bytes);
        }
        unnamed.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_files_are_a_part_of_what_lives() {
        const MIB: u64 = 1 << 20;
        let sizes = |live| {
            let PieceSizes { base, file } = PieceSizes::for_live(live);
            (base / MIB, file / MIB)
        };
        assert_eq!(sizes(0), (8, 1));
        assert_eq!(sizes(640 * MIB), (10, 5));
        assert_eq!(sizes(1024 * MIB), (16, 8));
        assert_eq!(sizes(u64::MAX), (16, 32));
    }

    #[test]
    fn a_base_piece_is_divided_evenly_and_not_before_it_has_twice_its_size() {
        const MIB: u64 = 1 << 20;
        let sizes = PieceSizes::for_live(0);
        assert_eq!(sizes.base_end(MIB), 8 * MIB);
        assert_eq!(
            sizes.base_end(15 * MIB),
            15 * MIB + 15 * MIB / 8,
            "S32: all of it"
        );
        assert_eq!(
            sizes.base_end(16 * MIB),
            9 * MIB,
            "S32: two halves, and room for what comes on top"
        );
        assert_eq!(sizes.base_end(80 * MIB), 9 * MIB);
    }
}
