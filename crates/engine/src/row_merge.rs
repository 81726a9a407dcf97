//! Row merge: keeps the runs of a table few and the space of superseded slots small, a few pieces at a time.
//!
//! Why it exists: every run that may have a row is one more place to look, and a slot that a newer run has too is dead weight.
//! Rewriting a whole table would bind twice its space and not end for hours; so a job takes a closed range of row ids: the
//! pieces of some neighbouring runs that lie in it, and none that lies half in it.
//! Rules: S8 a job replaces whole pieces of neighbouring settled runs, and its output takes its place in the oldest of them:
//! no slot of a row is left between a newer slot and the place where that slot went. S9 "deleted" goes only in a job of the
//! oldest run. S10 a piece over nothing older is moved down, not rewritten. S53 a merge that fails keeps no other from its turn.
//! S55 jobs of ranges that have no piece in common may run side by side. S21 the files of all parts of a step go if one of them fails.
//! Latches and I/O: the merge latch, held for a step: reads and writes cold files; a table's shape latch for an exchange.
//! After a crash: the checkpoint's shape names the pieces before or those after; files nobody names go.

use crate::blob_reclaim::DeadValues;
use crate::budget::PieceSizes;
use crate::database::Database;
use crate::errand::Errand;
use crate::error::{Error, Result};
use crate::pacing::Progress;
use crate::quiet::Quiet;
use crate::row_merge_plan::{Choice, Need, beside, plan};
use crate::row_output::{RowOutput, WrittenRows};
use crate::row_pieces::{Level, SlotReader, codec_of};
use crate::row_shape::{RowPiece, RowRun, RowShape};
use crate::row_writer::RowWriter;
use crate::set_aside::{SetAside, Turn};
use crate::table::Table;
use pbxt_base::{RowId, SegmentId, TableId, stop_point};
use pbxt_io::for_each_parallel;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// Bytes of pieces after which a step takes no further job.
const STEP_BYTES: u64 = 64 << 20;

/// What the merger remembers between steps.
#[derive(Debug, Default)]
pub(crate) struct RowMerger {
    /// Shapes that were looked at and need nothing.
    quiet: Quiet<TableId, RowShape>,
    aside: SetAside<TableId>,
}

/// Why a part of a step came to nothing.
enum Unmerged {
    /// The database is about to close.
    Stopping,
    /// With the table whose rows were being merged.
    Failed(Option<TableId>, Error),
}

/// Pieces that become others.
struct MergeJob {
    table: Arc<Table>,
    choice: Choice,
}

impl Database {
    /// Merges pieces of row runs where it is due, for up to 64 MiB.
    pub fn row_merge_step(&self) -> Result<Progress> {
        self.row_merge_step_for(&Errand::of_upkeep(Need::Due))
    }

    /// The same; when more is needed, also where it is merely useful (rule S37), or possible (rule S55).
    pub(crate) fn row_merge_step_for(&self, errand: &Errand<'_>) -> Result<Progress> {
        let mut merger = errand.turn(self, &self.upkeep.rows)?;
        self.poison.check()?;
        let (jobs, moved) = merger.find_jobs(self, errand);
        if jobs.is_empty() {
            return Ok(if moved { Progress::Worked } else { Progress::Idle });
        }
        let parts = parts_of(&jobs, self.piece_sizes());
        let written: Vec<OnceLock<WrittenRows<'_>>> = parts.iter().map(|_| OnceLock::new()).collect();
        let numbers: Vec<usize> = (0..parts.len()).collect();
        let merged = for_each_parallel(&numbers, errand.threads, |&part| {
            match self.merge_part(&jobs, &parts[part], errand)? {
                Some(rows) => drop(written[part].set(rows)),
                None => return Err(Unmerged::Stopping),
            }
            Ok(())
        });
        match merged {
            Ok(()) => {}
            Err(Unmerged::Stopping) => return Ok(Progress::Idle),
            Err(Unmerged::Failed(table, error)) => {
                self.tell_of_step(&error);
                if let Some(table) = table {
                    merger.aside.note(table, self.checkpoint_start(), &error);
                }
                return Err(error);
            }
        }
        let mut written: Vec<_> = written.into_iter().filter_map(OnceLock::into_inner).collect();
        stop_point!("merge.before_install");
        written.iter_mut().for_each(WrittenRows::keep);
        for (part, rows) in parts.iter().zip(&written) {
            for &number in part {
                jobs[number].install(&rows.of(number));
                merger.aside.forget(&jobs[number].table.id);
            }
        }
        stop_point!("merge.after_install");
        errand.note_read(jobs_bytes(&jobs));
        let bytes = written.iter().map(WrittenRows::bytes).sum();
        self.upkeep.counters.merged(jobs_bytes(&jobs), bytes);
        Ok(Progress::Worked)
    }

    /// Merges some jobs into files of their own; none if the database is about to close.
    fn merge_part(
        &self,
        jobs: &[MergeJob],
        part: &[usize],
        errand: &Errand<'_>,
    ) -> std::result::Result<Option<WrittenRows<'_>>, Unmerged> {
        let mut out = RowOutput::new(self);
        for &number in part {
            let job = &jobs[number];
            let merged = self.merge_into(job, number, &mut out, errand);
            if !merged.map_err(|error| Unmerged::Failed(Some(job.table.id), error))? {
                return Ok(None);
            }
        }
        out.finish()
            .map(Some)
            .map_err(|error| Unmerged::Failed(None, error))
    }

    /// Merges the pieces of a job. False if the database is about to close.
    fn merge_into(
        &self,
        job: &MergeJob,
        number: usize,
        out: &mut RowOutput<'_>,
        errand: &Errand<'_>,
    ) -> Result<bool> {
        let Choice {
            inputs, is_oldest, ..
        } = &job.choice;
        let table = &job.table;
        let mut readers = Vec::with_capacity(inputs.len());
        for pieces in inputs {
            readers.push(SlotReader::new(table.versions(), pieces.clone())?);
        }
        let level = if *is_oldest { Level::Base } else { Level::Upper };
        let mut cutter = job.choice.cutter(out.sizes());
        let mut writer = RowWriter::new(table.schema(), codec_of(table, level));
        let mut dead = DeadValues::of(table);
        let mut slots = 0_u64;
        while let Some(row) = readers.iter().filter_map(SlotReader::row).min() {
            slots += 1;
            if slots.is_multiple_of(64) {
                self.breathe();
                errand.check(self)?;
                if self.upkeep.is_stopping() {
                    return Ok(false);
                }
            }
            let newest = readers.iter().position(|reader| reader.row() == Some(row));
            let newest = &readers[newest.unwrap_or_default()];
            if newest.payload().is_some() || !*is_oldest {
                if cutter.cuts_before(row, out.section_bytes()) {
                    out.end_section(number, &mut writer)?;
                }
                out.push(&mut writer, table.id, row, newest.payload())?;
            }
            if let Some(dead) = &mut dead {
                let slots = readers.iter().filter(|reader| reader.row() == Some(row));
                dead.note_superseded(slots.map(SlotReader::payload))?;
            }
            for reader in &mut readers {
                if reader.row() == Some(row) {
                    reader.advance()?;
                }
            }
        }
        out.end_section(number, &mut writer)?;
        if let Some(dead) = dead {
            dead.keep(self);
        }
        Ok(true)
    }
}

impl RowMerger {
    /// True if there is a merge to do, or a shape that nobody has looked at.
    pub(crate) fn is_due(&self, db: &Database) -> bool {
        let (sparse, start) = (db.sparse_files(Need::Useful), db.checkpoint_start());
        db.catalog.tables().iter().any(|table| {
            let shape = table.base.shape();
            if self.aside.turn(&table.id, start) == Turn::NotYet {
                return false;
            }
            let is_quiet = self.quiet.has(table.id, Need::Useful, &shape);
            let is_new = !shape.runs.is_empty() && !is_quiet;
            // A shape that needs nothing by itself may have a piece in a file that got sparse.
            is_new || is_quiet && !sparse.is_empty() && plan(&shape, &sparse, Need::Useful).is_some()
        })
    }

    /// Jobs for one step, and whether pieces were moved down meanwhile.
    fn find_jobs(&mut self, db: &Database, errand: &Errand<'_>) -> (Vec<MergeJob>, bool) {
        let need = errand.need;
        let mut jobs = Vec::new();
        let mut moved = false;
        let mut bytes = 0;
        let mut alone = Vec::new();
        let (mut sparse, start) = (db.sparse_files(need), db.checkpoint_start());
        self.quiet.forget_replaced();
        self.aside.keep(|id| db.catalog.by_id(*id).is_some());
        for table in db
            .catalog
            .tables()
            .into_iter()
            .filter(|table| errand.is_for(table.id))
        {
            if bytes >= STEP_BYTES {
                break;
            }
            let shape = table.base.shape();
            if errand.is_command() {
                sparse.extend(db.outdated_row_files(&table, &shape));
            }
            let is_quiet = self.quiet.has(table.id, need, &shape);
            if shape.runs.is_empty() || (is_quiet && sparse.is_empty()) {
                continue;
            }
            match self.aside.turn(&table.id, start) {
                Turn::InLine => {}
                // Who commands it is to hear of what is in its way.
                _ if errand.is_command() => {}
                Turn::Alone => {
                    alone.push(table);
                    continue;
                }
                Turn::NotYet => continue,
            }
            moved |= move_down(&table);
            match MergeJob::of(&table, &sparse, need) {
                Ok(job) => {
                    bytes += job.choice.bytes();
                    jobs.push(job);
                    if errand.threads > 1 {
                        bytes += push_beside(&mut jobs, STEP_BYTES.saturating_sub(bytes), need);
                    }
                }
                Err(shape) => self.quiet.note(table.id, need, &shape),
            }
        }
        // Rule S53.
        for table in alone {
            if moved || !jobs.is_empty() {
                break;
            }
            moved |= move_down(&table);
            match MergeJob::of(&table, &sparse, need) {
                Ok(job) => jobs.push(job),
                Err(shape) => self.quiet.note(table.id, need, &shape),
            }
        }
        (jobs, moved)
    }
}

impl MergeJob {
    /// What a table needs; else the shape that needs nothing.
    fn of(
        table: &Arc<Table>,
        sparse: &HashSet<SegmentId>,
        need: Need,
    ) -> std::result::Result<Self, Arc<RowShape>> {
        let shape = table.base.shape();
        let table = Arc::clone(table);
        match plan(&shape, sparse, need) {
            Some(choice) => Ok(Self { table, choice }),
            None => Err(shape),
        }
    }

    /// Exchanges the pieces (rule S8). Runs that came meanwhile stay on top.
    fn install(&self, pieces: &[Arc<RowPiece>]) {
        if self.table.is_dropped() {
            return;
        }
        let _latch = self.table.shaping.lock();
        let shape = self.table.base.shape();
        let is_input = |piece: &Arc<RowPiece>| {
            self.choice
                .inputs
                .iter()
                .flatten()
                .any(|input| Arc::ptr_eq(input, piece))
        };
        let mut runs = Vec::with_capacity(shape.runs.len());
        for run in &shape.runs {
            // Another job of the same step may have made another run of it.
            let is_target = Arc::ptr_eq(run, &self.choice.target)
                || run.pieces.iter().any(|piece| self.choice.has_base(piece));
            if !is_target && !run.pieces.iter().any(&is_input) {
                runs.push(Arc::clone(run));
                continue;
            }
            let mut left: Vec<_> = run
                .pieces
                .iter()
                .filter(|piece| !is_input(piece))
                .cloned()
                .collect();
            if is_target {
                left.extend(pieces.iter().cloned());
                left.sort_by_key(|piece| piece.first);
            }
            if !left.is_empty() {
                runs.push(Arc::new(RowRun::new(run.stamp, left)));
            }
        }
        self.table.base.install(RowShape { runs });
    }
}

/// Moves pieces as far down as nothing is beneath them (rule S10). True if there were any.
fn move_down(table: &Table) -> bool {
    let _latch = table.shaping.lock();
    let shape = table.base.shape();
    let mut runs: Vec<Vec<Arc<RowPiece>>> = shape.runs.iter().map(|run| run.pieces.clone()).collect();
    let mut moved = false;
    // From old to new, so that what is moved meets what has been moved before.
    for from in (0..runs.len()).rev() {
        if shape.runs[from].is_tagged() {
            continue;
        }
        for piece in std::mem::take(&mut runs[from]) {
            let mut to = from;
            for (below, pieces) in runs.iter().enumerate().skip(from + 1) {
                if overlaps(pieces, piece.first, piece.last) {
                    break;
                }
                if !shape.runs[below].is_tagged() {
                    to = below;
                }
            }
            moved |= to != from;
            let at = runs[to].partition_point(|other| other.first < piece.first);
            runs[to].insert(at, piece);
        }
    }
    if moved {
        let runs = runs
            .into_iter()
            .zip(&shape.runs)
            .filter(|(pieces, _)| !pieces.is_empty());
        let runs = runs.map(|(pieces, run)| Arc::new(RowRun::new(run.stamp, pieces)));
        table.base.install(RowShape { runs: runs.collect() });
    }
    moved
}

/// True if one of the pieces of a run lies in part between these rows.
pub(crate) fn overlaps(pieces: &[Arc<RowPiece>], first: RowId, last: RowId) -> bool {
    let at = pieces.partition_point(|piece| piece.last < first);
    pieces.get(at).is_some_and(|piece| piece.first <= last)
}

/// Adds what can be merged beside the last job, of the same table, for about so many bytes; the bytes that were added.
fn push_beside(jobs: &mut Vec<MergeJob>, bytes_max: u64, need: Need) -> u64 {
    let Some(first) = jobs.last() else { return 0 };
    let (table, shape) = (Arc::clone(&first.table), first.table.base.shape());
    let room = bytes_max + first.choice.bytes();
    let choices = beside(&shape, &first.choice, room, need);
    let bytes = choices.iter().map(Choice::bytes).sum();
    jobs.extend(choices.into_iter().map(|choice| MergeJob {
        table: Arc::clone(&table),
        choice,
    }));
    bytes
}

/// Jobs by the files they are written to: those that fill a file have one of their own, the others share.
fn parts_of(jobs: &[MergeJob], sizes: PieceSizes) -> Vec<Vec<usize>> {
    let (large, small): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|number| jobs[*number].choice.bytes() >= sizes.file);
    let mut parts: Vec<Vec<usize>> = large.into_iter().map(|number| vec![number]).collect();
    parts.extend((!small.is_empty()).then_some(small));
    parts
}

fn jobs_bytes(jobs: &[MergeJob]) -> u64 {
    jobs.iter().map(|job| job.choice.bytes()).sum()
}
