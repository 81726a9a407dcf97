//! Table: one generation of a table in memory: row map, indexes, row count, auto-increment counter.
//!
//! Why it exists: readers and writers need these together, found once per statement and then shared by pointer.
//! State: everything here is derived from the log and rebuilt at open; nothing here is ever written to disk.
//! Rules: T19 a snapshot older than `created_ts` must not read this generation. The name may change under a
//! running reader (RENAME): it is only for messages.
//! Latches: the name only; the parts have their own.

use crate::autoinc::AutoIncrement;
use crate::counts::RowCount;
use crate::definition::{IndexDef, TableDef};
use parking_lot::RwLock;
use pbxt_base::{CommitTs, IndexId, TableId};
use pbxt_index::Tree;
use pbxt_rowmap::RowMap;
use pbxt_rows::Schema;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One index in memory.
#[derive(Debug)]
pub struct Index {
    /// Its definition.
    pub def: IndexDef,
    /// Keys can be made from the row payload alone, so row records carry no image of them.
    pub derivable: bool,
    /// All entries.
    pub tree: Tree,
}

/// One table generation in memory.
#[derive(Debug)]
pub struct Table {
    name: RwLock<Arc<str>>,
    def: RwLock<Arc<TableDef>>,
    /// Generation id.
    pub id: TableId,
    /// Row id -> newest version.
    pub map: RowMap,
    /// Indexes in the definition's order.
    pub indexes: Vec<Index>,
    /// Exact row counts.
    pub count: RowCount,
    /// Auto-increment counter.
    pub autoinc: AutoIncrement,
    /// Payload bytes appended and not deleted; an estimate for the optimizer.
    pub data_bytes: AtomicU64,
    /// Unix seconds of the last commit that changed the table.
    pub updated: AtomicU64,
    /// Not kept over a restart.
    pub temporary: bool,
    created_ts: CommitTs,
    dropped: AtomicBool,
}

impl Table {
    /// An empty generation.
    pub fn new(def: TableDef, created_ts: CommitTs, next_auto_increment: u64, rows: i64) -> Self {
        let indexes = def
            .indexes
            .iter()
            .map(|index| Index::new(index, &def.schema))
            .collect();
        Self {
            name: RwLock::new(Arc::from(def.name.as_str())),
            id: def.id,
            temporary: def.temporary,
            updated: AtomicU64::new(def.created),
            def: RwLock::new(Arc::new(def)),
            map: RowMap::new(),
            indexes,
            count: RowCount::starting_at(rows),
            autoinc: AutoIncrement::starting_at(next_auto_increment),
            data_bytes: AtomicU64::new(0),
            created_ts,
            dropped: AtomicBool::new(false),
        }
    }

    /// Name now.
    pub fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// Definition now.
    pub fn def(&self) -> Arc<TableDef> {
        self.def.read().clone()
    }

    /// Takes over a changed definition of the same generation (RENAME).
    pub fn redefine(&self, def: TableDef) {
        *self.name.write() = Arc::from(def.name.as_str());
        *self.def.write() = Arc::new(def);
    }

    /// Commit at which this generation came to be.
    pub fn created_ts(&self) -> CommitTs {
        self.created_ts
    }

    /// True once the generation was dropped or truncated away.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Notes what a commit changed, for estimates.
    pub fn note_commit(&self, bytes: i64, now: u64) {
        self.data_bytes
            .fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
        self.updated.store(now, Ordering::Relaxed);
    }

    /// Marks the generation as gone.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Index by its id.
    pub fn index_by_id(&self, id: IndexId) -> Option<&Index> {
        self.indexes.iter().find(|index| index.def.id == id)
    }

    /// Bytes of index entries in memory.
    pub fn index_bytes(&self) -> u64 {
        self.indexes
            .iter()
            .map(|index| index.tree.memory_bytes() as u64)
            .sum()
    }
}

impl Index {
    fn new(def: &IndexDef, schema: &Schema) -> Self {
        Self {
            def: def.clone(),
            derivable: def.spec.derivable(schema),
            tree: Tree::new(),
        }
    }
}
