//! Settling tags: what becomes of a bulk load's runs when its transaction has ended for good.
//!
//! Why it exists: a loaded run bears the stamp of its transaction, which every reader judges. When everybody sees the
//! transaction the stamp says nothing more; when it was rolled back, the run means nothing.
//! Rules: S1, S2; B5; S53; D23 nothing is done with a run that the log's tail would name again.
//! Latches and I/O: the shape latch for an exchange; a rolled-back run of a table with large values is read once (rule S15).
//! After a crash: the image or the log names run and stamp again.

use crate::blob_reclaim::DeadValues;
use crate::database::Database;
use crate::error::Result;
use crate::homing::{Standing, standing_of};
use crate::pacing::Progress;
use crate::row_pieces::SlotReader;
use crate::row_shape::{RowRun, RowShape, SETTLED};
use crate::set_aside::Turn;
use crate::table::{Index, Table};
use pbxt_base::CommitTs;
use pbxt_index::IndexParts;
use std::sync::Arc;

impl Database {
    /// Takes the stamp off runs whose transaction is settled, and runs away whose transaction was rolled back.
    pub fn settle_tags_step(&self) -> Result<Progress> {
        self.poison.check()?;
        let horizon = self.txns.horizon();
        let mut progress = Progress::Idle;
        // Rule S53: one table that cannot be read keeps no other from its turn.
        let mut failed = None;
        for table in self.catalog.tables() {
            match self.settle_rows_in_turn(&table, horizon) {
                Ok(true) => progress = Progress::Worked,
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
            for index in &table.indexes {
                if index.parts().runs.iter().any(|run| run.tag.is_some())
                    && self.settle_index(&table, index, horizon)
                {
                    progress = Progress::Worked;
                }
            }
        }
        match failed {
            Some(error) if progress == Progress::Idle => Err(error),
            _ => Ok(progress),
        }
    }

    /// The same for one table, though it failed before: who commands it is to hear why. True if something changed.
    pub(crate) fn settle_tags_of(&self, table: &Table) -> Result<bool> {
        self.poison.check()?;
        let horizon = self.txns.horizon();
        let is_tagged = table.base.shape().runs.iter().any(|run| run.is_tagged());
        let mut changed = is_tagged && self.settle_rows(table, horizon)?;
        for index in &table.indexes {
            let is_tagged = index.parts().runs.iter().any(|run| run.tag.is_some());
            changed |= is_tagged && self.settle_index(table, index, horizon);
        }
        Ok(changed)
    }

    /// True if a step would change something.
    pub(crate) fn settle_tags_due(&self) -> bool {
        let horizon = self.txns.horizon();
        let guard = crossbeam_epoch::pin();
        let is_dead = |(txn, lsn)| {
            standing_of(self, txn, lsn, horizon, &guard) == Standing::Dead && lsn < self.checkpoint_start()
        };
        let has_ended = |run: &Arc<RowRun>| {
            matches!(
                self.standing_of_run(run, horizon),
                Standing::Settled | Standing::Dead
            )
        };
        let start = self.checkpoint_start();
        let is_left = |table: &Table| self.upkeep.unsettled.lock().turn(&table.id, start) == Turn::NotYet;
        self.catalog.tables().iter().any(|table| {
            table.base.shape().runs.iter().any(has_ended) && !is_left(table)
                || table
                    .indexes
                    .iter()
                    .any(|index| index.parts().runs.iter().any(|run| run.tag.is_some_and(is_dead)))
        })
    }

    fn standing_of_run(&self, run: &RowRun, horizon: CommitTs) -> Standing {
        if !run.is_tagged() {
            return Standing::Unfinished;
        }
        let guard = crossbeam_epoch::pin();
        let standing = standing_of(self, run.stamp.txn, run.stamp.lsn, horizon, &guard);
        // Rule D23: the log's tail may name it again. Asked last: a load that settles in between has its record behind this start.
        if run.stamp.lsn >= self.checkpoint_start() {
            return Standing::Unfinished;
        }
        standing
    }

    /// Settles what can be settled of a table; one that failed is left alone until a checkpoint was made (rule S53).
    fn settle_rows_in_turn(&self, table: &Table, horizon: CommitTs) -> Result<bool> {
        let start = self.checkpoint_start();
        let is_tagged = table.base.shape().runs.iter().any(|run| run.is_tagged());
        if !is_tagged || self.upkeep.unsettled.lock().turn(&table.id, start) == Turn::NotYet {
            return Ok(false);
        }
        let settled = self.settle_rows(table, horizon);
        let mut unsettled = self.upkeep.unsettled.lock();
        match &settled {
            Ok(_) => unsettled.forget(&table.id),
            Err(error) => {
                // Rule S57, here, as little else comes by.
                unsettled.keep(|id| self.catalog.by_id(*id).is_some());
                unsettled.note(table.id, start, error);
            }
        }
        settled
    }

    fn settle_rows(&self, table: &Table, horizon: CommitTs) -> Result<bool> {
        for run in &table.base.shape().runs {
            if self.standing_of_run(run, horizon) == Standing::Dead {
                self.note_dead_run(table, run)?;
            }
        }
        let _latch = table.shaping.lock();
        let shape = table.base.shape();
        let mut changed = false;
        let mut runs = Vec::with_capacity(shape.runs.len());
        for run in &shape.runs {
            match self.standing_of_run(run, horizon) {
                Standing::Settled => {
                    changed = true;
                    runs.push(Arc::new(RowRun::new(SETTLED, run.pieces.clone())));
                }
                Standing::Dead => changed = true,
                Standing::Unfinished | Standing::Recent(_) => runs.push(Arc::clone(run)),
            }
        }
        if changed {
            table.base.install(RowShape { runs });
        }
        Ok(changed)
    }

    /// All large values that the rows of a rolled-back load name are dead.
    fn note_dead_run(&self, table: &Table, run: &RowRun) -> Result<()> {
        let Some(mut dead) = DeadValues::of(table) else {
            return Ok(());
        };
        let mut reader = SlotReader::new(table.versions(), run.pieces.clone())?;
        while reader.row().is_some() {
            dead.note_superseded([None, reader.payload()].into_iter())?;
            reader.advance()?;
        }
        dead.keep(self);
        Ok(())
    }

    /// Runs of rolled-back loads go; the others keep their tag, which a merge drops.
    fn settle_index(&self, table: &Table, index: &Index, horizon: CommitTs) -> bool {
        let _latch = table.shaping.lock();
        let parts = index.parts();
        let guard = crossbeam_epoch::pin();
        let is_dead = |(txn, lsn)| {
            standing_of(self, txn, lsn, horizon, &guard) == Standing::Dead && lsn < self.checkpoint_start()
        };
        let runs: Vec<_> = parts
            .runs
            .iter()
            .filter(|run| !run.tag.is_some_and(is_dead))
            .cloned()
            .collect();
        if runs.len() == parts.runs.len() {
            return false;
        }
        index.install(IndexParts {
            active: Arc::clone(&parts.active),
            frozen: parts.frozen.clone(),
            runs,
        });
        true
    }
}
