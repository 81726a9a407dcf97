//! Own footprint: what one SERIALIZABLE transaction has read, as its session remembers it.
//!
//! Why it exists: most reads are of what was read before, and need no latch then; and who forgets a footprint must know where
//! it lies.
//! State: per table how finely it is kept and which groups of rows; the indexes of which ranges were read.
//! Rules: T30 (bounded: rows, then groups of 64, then the table).
//! Latches and I/O: none. After a crash: nothing of it survives.

use std::collections::HashMap;

use pbxt_base::ids::{IndexId, RowId, TableId};

/// Groups of rows per table and level that one transaction keeps at most.
pub(crate) const GROUPS_MAX: usize = 512;
/// Rows, or groups of the level below, in a group: 1 << this.
const GROUP_LOG2: u32 = 6;
/// Levels: groups of 64 rows with a bit for each, groups of 4096 with a bit for each 64.
pub(crate) const LEVELS: u8 = 2;

/// What was read of a table as a whole: of which changes its reader must hear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeTable(u8);

impl WholeTable {
    /// Its existing rows.
    pub const ROWS: Self = Self(0b110);
    /// How many rows it has.
    pub const COUNT: Self = Self(0b101);
    /// All there is.
    pub const ALL: Self = Self(0b111);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn meets(self, change: RowChange) -> bool {
        self.0 & change as u8 != 0
    }
}

/// How a row is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RowChange {
    /// It comes.
    Insert = 0b001,
    /// It stays.
    Update = 0b010,
    /// It goes.
    Delete = 0b100,
}

/// Names a group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub(crate) table: TableId,
    pub(crate) level: u8,
    pub(crate) number: u64,
}

impl Group {
    /// The group of a row, and the row's bit in it.
    pub(crate) fn of(table: TableId, row: RowId, level: u8) -> (Self, u64) {
        let place = row.raw() >> (GROUP_LOG2 * u32::from(level));
        let group = Self {
            table,
            level,
            number: place >> GROUP_LOG2,
        };
        (group, 1 << (place & 63))
    }

    /// The group above, and this one's bit in it.
    pub(crate) fn above(self) -> (Self, u64) {
        let group = Self {
            level: self.level + 1,
            number: self.number >> GROUP_LOG2,
            ..self
        };
        (group, 1 << (self.number & 63))
    }
}

/// What was read of one table.
#[derive(Debug, Default)]
pub(crate) struct OwnTable {
    pub(crate) whole: WholeTable,
    pub(crate) level: u8,
    pub(crate) groups: HashMap<u64, u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OwnFootprint {
    pub(crate) tables: HashMap<TableId, OwnTable>,
    pub(crate) indexes: Vec<IndexId>,
    pub(crate) scans: u64,
}

impl OwnFootprint {
    pub(crate) fn note_index(&mut self, index: IndexId) {
        if !self.indexes.contains(&index) {
            self.indexes.push(index);
        }
    }
}
