//! Memory use: what the large structures of the engine have taken, for whoever keeps accounts of memory.
//!
//! Why it exists: single allocations are far too many to be told one by one (rule PS9 of docs/instruments.md); the structures that grow
//! with the data know how much they have.
//! Latches and I/O: none; a few loads a table.

use crate::database::Database;

/// Bytes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Log kept in memory.
    pub log: u64,
    /// Decoded blocks of rows and index entries.
    pub blocks: u64,
    /// Index entries that are in no run.
    pub indexes: u64,
    /// Which rows keys led to.
    pub hints: u64,
    /// Where the newest versions of rows are.
    pub row_map: u64,
}

impl Database {
    /// What the large structures have taken.
    pub fn memory_use(&self) -> MemoryUse {
        let tables = self.catalog.tables();
        MemoryUse {
            log: self.log.stats().cache_bytes,
            blocks: self.cache.stats().bytes,
            indexes: tables.iter().map(|table| table.index_bytes()).sum(),
            hints: tables.iter().map(|table| table.hint_bytes()).sum(),
            row_map: tables.iter().map(|table| table.map.memory_bytes() as u64).sum(),
        }
    }
}
