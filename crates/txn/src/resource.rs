//! Resource: what a transaction can wait for.
//!
//! Why it exists: counters, queues and reports name the same things.
//! State: none.
//! Rules: T13 (what can be held has turns, what cannot wakes everybody).
//! Latches and I/O: none.

use std::fmt;

use pbxt_base::ids::{IndexId, RowId, TableId, TxnId};

/// What a transaction can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A row: its exclusive lock by the row map, or an explicit lock.
    Row(TableId, RowId),
    /// The right to claim a unique key: index and hash of the key bytes.
    Key(IndexId, u64),
    /// A table lock.
    Table(TableId),
    /// Only that another transaction ends. Nobody holds it afterwards: all its waiters are woken.
    Txn(TxnId),
}

impl Resource {
    /// Spreads resources over counters; not collision-free.
    pub(crate) fn hash(self) -> u64 {
        match self {
            Resource::Row(table, row) => (u64::from(table.raw()) << 48) ^ row.raw(),
            Resource::Key(index, hash) => (u64::from(index.raw()) << 32) ^ hash ^ (1 << 63),
            Resource::Table(table) => u64::from(table.raw()) ^ (1 << 62),
            Resource::Txn(txn) => txn.raw() ^ (1 << 61),
        }
    }

    /// False for resources all of whose waiters may go on together.
    pub(crate) fn can_be_held(self) -> bool {
        !matches!(self, Resource::Txn(_))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Row(table, row) => write!(f, "row {} of table {}", row.raw(), table.raw()),
            Resource::Key(index, hash) => write!(f, "key {hash:016x} of index {}", index.raw()),
            Resource::Table(table) => write!(f, "table {}", table.raw()),
            Resource::Txn(txn) => write!(f, "the end of transaction {}", txn.raw()),
        }
    }
}
