//! Table: one generation of a table: row map, row shape, indexes, row count, auto-increment counter.
//!
//! Why it exists: readers and writers need these together, found once per statement and then shared by pointer.
//! State: hot rows by the map and new index entries in trees, both in memory; the others by immutable runs on disk. The map
//! and the trees come back from the checkpoint image and the log's tail.
//! Rules: T19 a snapshot older than `created_ts` must not read this generation. The name may change under a
//! running reader (RENAME): it is only for messages. B5 shapes of one table are changed under its shape latch only.
//! Latches: the name; `shaping`, held while shapes are exchanged, never across I/O.

use crate::autoinc::AutoIncrement;
use crate::counts::RowCount;
use crate::definition::{IndexDef, TableDef};
use crate::error::Result;
use crate::gone::GoneRows;
use crate::gone_sweep::Sweep;
use crate::references::References;
use crate::row_shape::{BlockSource, RowBase, Slot};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use pbxt_base::{CommitTs, IndexId, Lsn, RowId, TableId, TxnId, stop_point};
use pbxt_index::{EntryRef, IndexParts, Sign, Tree};
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
    /// Where its entries are: trees and runs.
    parts: ArcSwap<IndexParts>,
    /// Bulk loads that published a run of this index (rule X15).
    loads: AtomicU64,
}

/// One table generation in memory.
#[derive(Debug)]
pub struct Table {
    name: RwLock<Arc<str>>,
    def: RwLock<Arc<TableDef>>,
    /// Generation id.
    pub id: TableId,
    /// Row id -> newest version, of rows that are hot.
    pub map: RowMap,
    /// All other rows.
    pub(crate) base: RowBase,
    /// Rows whose deletion is settled: their index entries mean nothing any more.
    pub(crate) gone: GoneRows,
    /// How rows leave `gone`.
    pub(crate) sweep: Sweep,
    /// Held by whoever exchanges `base` or the parts of an index (rule B5).
    pub(crate) shaping: Mutex<()>,
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
    schema: Schema,
    references: ArcSwap<References>,
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
            map: RowMap::new(),
            base: RowBase::default(),
            gone: GoneRows::default(),
            sweep: Sweep::default(),
            shaping: Mutex::default(),
            schema: def.schema.clone(),
            indexes,
            count: RowCount::starting_at(rows),
            autoinc: AutoIncrement::starting_at(next_auto_increment),
            data_bytes: AtomicU64::new(0),
            references: ArcSwap::default(),
            created_ts,
            dropped: AtomicBool::new(false),
            def: RwLock::new(Arc::new(def)),
        }
    }

    /// Columns; the same for the whole life of a generation.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The row outside the hot log. The row's word was loaded before (rule B2).
    #[inline]
    pub(crate) fn find_base(&self, blocks: &impl BlockSource, row: RowId) -> Result<Slot> {
        stop_point!("read.before_shape");
        if self.base.is_empty() {
            return Ok(Slot::None);
        }
        self.base.find(&self.schema, blocks, row)
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

    /// Its constraints and those that lead to it, as they are bound now.
    pub fn references(&self) -> Arc<References> {
        self.references.load_full()
    }

    /// Exchanges the bindings; the caller counts it (rule FK23).
    pub(crate) fn bind(&self, references: References) {
        self.references.store(Arc::new(references));
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

    /// Bytes of its runs on disk.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let runs = |index: &Index| -> u64 { index.parts().runs.iter().map(|run| run.stored_bytes()).sum() };
        self.base.shape().stored_bytes() + self.indexes.iter().map(runs).sum::<u64>()
    }

    /// Bytes of index entries in memory.
    pub fn index_bytes(&self) -> u64 {
        self.indexes.iter().map(Index::memory_bytes).sum()
    }
}

impl Index {
    fn new(def: &IndexDef, schema: &Schema) -> Self {
        Self {
            def: def.clone(),
            derivable: def.spec.derivable(schema),
            parts: ArcSwap::from_pointee(IndexParts::new()),
            loads: AtomicU64::new(0),
        }
    }

    /// The parts now.
    #[inline]
    pub(crate) fn parts(&self) -> Arc<IndexParts> {
        self.parts.load_full()
    }

    /// Bulk loads so far.
    #[inline]
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::SeqCst)
    }

    /// Tells claims that a run is about to be published (rule X15).
    pub(crate) fn note_load(&self) {
        self.loads.fetch_add(1, Ordering::SeqCst);
    }

    /// True if these are the parts now.
    #[inline]
    pub(crate) fn has_parts(&self, parts: &Arc<IndexParts>) -> bool {
        Arc::ptr_eq(&self.parts.load(), parts)
    }

    /// Adds an event to the active tree. The caller is inside an operation guard (rule G1).
    #[inline]
    pub(crate) fn insert(
        &self,
        key: &[u8],
        row: RowId,
        txn: TxnId,
        lsn: Lsn,
        sign: Sign,
        unpack: &[u8],
    ) -> Result<EntryRef> {
        Ok(self
            .parts
            .load()
            .active
            .insert(key, row, txn, lsn, sign, unpack)?)
    }

    /// Exchanges the parts. The caller holds the table's shape latch (rule B5).
    pub(crate) fn install(&self, parts: IndexParts) {
        self.parts.store(Arc::new(parts));
    }

    /// Bytes of trees.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let parts = self.parts.load();
        let trees = std::iter::once(&parts.active).chain(&parts.frozen);
        trees.map(|tree: &Arc<Tree>| tree.memory_bytes() as u64).sum()
    }
}
