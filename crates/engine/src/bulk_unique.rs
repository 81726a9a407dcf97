//! Bulk unique: looks for keys of a load that other rows have.
//!
//! Why it exists: a load claims all its keys at once by publishing its runs; this is the probe that follows. Key by key it would
//! take a look-up each; two sorted streams are walked side by side instead, and where one is far ahead the other one jumps.
//! Rules: X15, T20, L12. Twins inside the load were found when its run was built (bulk_writer).
//! Latches and I/O: none held; reads runs.

use crate::bulk_ingest::without_run;
use crate::bulk_writer::Loaded;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::homing::{Standing, standing_of};
use crate::session::Session;
use crate::table::Table;
use crate::unique::Probe;
use pbxt_base::checksum::xxh3;
use pbxt_base::{RowId, TxnId};
use pbxt_index::{IndexParts, MergedCursor, RunCursor, SeekPos};
use roaring::RoaringTreemap;
use std::cmp::Ordering;
use std::sync::Arc;

/// Steps after which a stream that is behind jumps.
const STEPS_MAX: u32 = 32;
/// Steps between two looks at the kill flag.
const KILL_CHECK: u64 = 1 << 14;

/// What the keys of a load met.
#[derive(Debug)]
pub(crate) enum Met {
    Nothing,
    /// A row that has one of the keys, and the row of the load that wants it.
    Row {
        index: usize,
        holder: RowId,
        row: RowId,
    },
    /// A transaction whose end must be waited for, and the hash of the key.
    Unfinished {
        index: usize,
        key: u64,
        txn: TxnId,
    },
    /// The snapshot still sees this row with one of the keys (rule T20).
    Newer {
        holder: RowId,
    },
}

impl Database {
    /// Leaves out the runs of loads that were rolled back (rule L12): they stay in the index until a checkpoint has passed them, and
    /// each of their keys would be looked up in vain.
    fn forget_dead_runs(&self, parts: &mut IndexParts) {
        let horizon = self.txns.horizon();
        let guard = crossbeam_epoch::pin();
        let is_dead = |(txn, lsn)| standing_of(self, txn, lsn, horizon, &guard) == Standing::Dead;
        parts.runs.retain(|run| !run.tag.is_some_and(is_dead));
    }
}

impl Session {
    /// Probes the published runs of all unique indexes.
    pub(crate) fn probe_load(&mut self, table: &Arc<Table>, loaded: &Loaded) -> Result<Met> {
        for (number, index) in table.indexes.iter().enumerate() {
            if !index.def.unique || loaded.runs[number].is_empty() {
                continue;
            }
            let met = self.probe_run(table, number, loaded, &loaded.unclaimed[number])?;
            if !matches!(met, Met::Nothing) {
                return Ok(met);
            }
        }
        Ok(Met::Nothing)
    }

    fn probe_run(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        loaded: &Loaded,
        unclaimed: &RoaringTreemap,
    ) -> Result<Met> {
        let run = &loaded.runs[number];
        // Kept until the end: who forgets transactions asks whether somebody has it (rule S23).
        let parts = table.indexes[number].parts();
        let mut others = without_run(&parts, run);
        self.db.forget_dead_runs(&mut others);
        let others = Arc::new(others);
        if others.entries() == 0 {
            return Ok(Met::Nothing);
        }
        let db = Arc::clone(&self.db);
        let mut ours = RunCursor::uncached(Arc::clone(run));
        ours.seek(&SeekPos::START, true)?;
        let mut theirs = MergedCursor::new();
        if let Some(first) = ours.peek() {
            theirs.seek(&others, &db.cache, &SeekPos::lower_bound(first.key()), true)?;
        }
        let (mut behind, mut steps) = (0, 0_u64);
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            let order = our.key().cmp(their.key());
            behind = if order == Ordering::Equal { 0 } else { behind + 1 };
            match order {
                Ordering::Equal => {
                    if !unclaimed.contains(our.row().raw()) {
                        let met = self.probe_key(table, number, &others, our.key(), our.row())?;
                        if !matches!(met, Met::Nothing) {
                            return Ok(met);
                        }
                    }
                    ours.advance()?;
                }
                Ordering::Less if behind < STEPS_MAX => ours.advance()?,
                Ordering::Less => {
                    ours.seek(&SeekPos::lower_bound(their.key()), true)?;
                    behind = 0;
                }
                Ordering::Greater if behind < STEPS_MAX => theirs.advance()?,
                Ordering::Greater => {
                    theirs.seek(&others, &db.cache, &SeekPos::lower_bound(our.key()), true)?;
                    behind = 0;
                }
            }
            steps += 1;
            if steps.is_multiple_of(KILL_CHECK) && db.waits.host_killed(&self.gate) {
                return Err(Error::Killed);
            }
        }
        Ok(Met::Nothing)
    }

    fn probe_key(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        others: &Arc<IndexParts>,
        key: &[u8],
        row: RowId,
    ) -> Result<Met> {
        Ok(match self.probe(table, others, key, row)? {
            Probe::Free => Met::Nothing,
            Probe::Taken(holder) => Met::Row { index, holder, row },
            Probe::Wait(txn) => Met::Unfinished {
                index,
                key: xxh3(key),
                txn,
            },
            Probe::Conflict(holder) => Met::Newer { holder },
        })
    }
}
