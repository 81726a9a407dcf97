//! Touched rows: which rows of a table are written while an index is built over it.
//!
//! Why it exists: an index is built of what one snapshot sees, and others go on changing rows meanwhile. Who writes a row says so here;
//! what became of those rows is looked up later, so nothing is said of keys, and nothing of it is logged.
//! State: in memory, as long as somebody watches; a table that nobody watches costs its writers one load.
//! Rules: AL17 a watch begins while the table is held exclusively, so no write is under way that has not heard of it. AL28 a row is
//! noted before its transaction can commit.
//! Latches and I/O: one latch of sixteen around an entry in a set; none is taken while another one is held.
//! After a crash: nothing; the build is gone with it.

use crate::table::Table;
use parking_lot::{Mutex, RwLock};
use pbxt_base::RowId;
use roaring::RoaringTreemap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets that writers of different rows note in.
const SHARDS: usize = 16;
/// Neighbouring rows share a set, and so a container of it.
const SHARD_ROWS_LOG2: u32 = 12;

/// Rows written since somebody asked last.
#[derive(Debug, Default)]
pub(crate) struct TouchedRows {
    shards: [Mutex<RoaringTreemap>; SHARDS],
}

impl TouchedRows {
    fn note(&self, row: RowId) {
        let shard = (row.raw() >> SHARD_ROWS_LOG2) as usize % SHARDS;
        self.shards[shard].lock().insert(row.raw());
    }

    /// Takes what was noted so far.
    pub(crate) fn take(&self) -> RoaringTreemap {
        let mut all = RoaringTreemap::new();
        for shard in &self.shards {
            all |= std::mem::take(&mut *shard.lock());
        }
        all
    }

    /// Notes rows again that were taken.
    pub(crate) fn put_back(&self, rows: RoaringTreemap) {
        *self.shards[0].lock() |= rows;
    }

    /// How many rows are noted, at least.
    pub(crate) fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// Of a table: who wants to know.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    any: AtomicBool,
    list: RwLock<Vec<Arc<TouchedRows>>>,
}

impl Watchers {
    /// A row was written.
    #[inline]
    pub(crate) fn note(&self, row: RowId) {
        if self.any.load(Ordering::Acquire) {
            self.note_range(row, row);
        }
    }

    /// Rows of a load are there.
    #[cold]
    pub(crate) fn note_range(&self, first: RowId, last: RowId) {
        for watcher in &*self.list.read() {
            (first.raw()..=last.raw()).for_each(|row| watcher.note(RowId::new(row)));
        }
    }
}

/// One who wants to know, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    table: Arc<Table>,
    rows: Arc<TouchedRows>,
}

impl Watch {
    /// Rows of `table` from now on; the caller holds it exclusively (rule AL17).
    pub(crate) fn begin(table: &Arc<Table>) -> Self {
        let rows = Arc::<TouchedRows>::default();
        let mut list = table.watchers.list.write();
        list.push(Arc::clone(&rows));
        table.watchers.any.store(true, Ordering::Release);
        drop(list);
        Self {
            table: Arc::clone(table),
            rows,
        }
    }

    /// What was written.
    pub(crate) fn rows(&self) -> &TouchedRows {
        &self.rows
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watchers = &self.table.watchers;
        let mut list = watchers.list.write();
        list.retain(|rows| !Arc::ptr_eq(rows, &self.rows));
        watchers.any.store(!list.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_noted_no_more_and_can_be_put_back() {
        let rows = TouchedRows::default();
        let all = [1, 2, 4095, 4096, 70_000, 1 << 40];
        for row in all {
            rows.note(RowId::new(row));
        }
        assert_eq!(rows.count(), all.len() as u64);
        let taken = rows.take();
        assert_eq!(taken.iter().collect::<Vec<_>>(), all);
        assert_eq!(rows.count(), 0);
        rows.note(RowId::new(3));
        rows.put_back(taken);
        assert_eq!(rows.take().len(), all.len() as u64 + 1);
    }
}
