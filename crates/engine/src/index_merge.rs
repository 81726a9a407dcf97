//! Index merge: keeps the runs of an index few, in stretches of keys that a step can do.
//!
//! Why it exists: see index_merge_plan.rs for what is merged; here it is done, over as many steps as it takes. A job's output
//! is installed when it is whole; until then readers go on with its inputs, which never change.
//! States of a job: planned -> stretches written -> installed; dropped at any time, with its files.
//! Rules: S17 to S19 (index_merge_plan.rs), S20 a run that could take no part when a job began is older than nothing that the job
//! drops. S21 a job that fails takes its files along, S53 and keeps no other from its turn. X35, X48 say what a merge drops. AL23 an index whose run the log's tail may name is left alone.
//! Latches and I/O: the merge latch, held for a step: reads and writes meta files; the shape latch for an exchange.
//! After a crash: files of unfinished jobs are removed at open.

use crate::bulk_files::LoadFiles;
use crate::database::Database;
use crate::errand::Errand;
use crate::error::{Error, Result};
use crate::gone::GoneSet;
use crate::homing::{Standing, standing_of};
use crate::index_merge_plan::{IndexChoice, is_in, move_down, plan_index, plan_leaving, plan_renewal};
use crate::pacing::Progress;
use crate::pieces::PieceJob;
use crate::quiet::Quiet;
use crate::row_merge_plan::Need;
use crate::row_pieces::{Level, codec_of};
use crate::set_aside::{SetAside, Turn};
use crate::table::{Index, Table};
use pbxt_base::{CommitTs, IndexId, Lsn, RowId, SegmentId, TxnId, planted, stop_point};
use pbxt_index::{
    EventStanding, IndexParts, MergeJudge, MergeRange, MergeSources, MergeStop, Run, RunBuilder, RunPiece,
    SeekPos, merge_events,
};
use pbxt_segment::{Codec, PieceFile, PieceWriter, SegmentClass};
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes that a step writes or reads at most, about.
const STEP_BYTES: u64 = 64 << 20;
/// Jobs up to this size share a file.
const SHARED_BYTES: u64 = 4 << 20;
/// Bytes of a piece.
const PIECE_BYTES: u64 = 32 << 20;
/// Bytes after which a command looks whether it is still wanted.
const SLICE_BYTES: u64 = 4 << 20;

/// What the merger remembers between steps.
#[derive(Debug, Default)]
pub(crate) struct IndexMerger {
    quiet: Quiet<IndexId, IndexParts>,
    /// One for a table at most: upkeep's, and those of commands.
    large: Vec<LargeJob>,
    aside: SetAside<IndexId>,
}

/// One merge.
#[derive(Debug)]
struct IndexJob {
    table: Arc<Table>,
    number: usize,
    choice: IndexChoice,
    sources: Vec<Arc<Run>>,
    horizon: CommitTs,
    /// Rule X48.
    covered_below: Lsn,
    /// Of the output (rule X36).
    swept: u64,
}

/// What the jobs of a step are for.
struct Wanted<'w> {
    need: Need,
    /// Files to be left (rules S14, S39).
    sparse: &'w HashSet<SegmentId>,
    /// What a command has written anew (rule OP2).
    renews: &'w dyn Fn(&RunPiece) -> bool,
    horizon: CommitTs,
}

/// True if a run has a piece in one of these files.
fn has_piece_in(parts: &IndexParts, files: &HashSet<SegmentId>) -> bool {
    let mut pieces = parts.runs.iter().flat_map(|run| &run.pieces);
    !files.is_empty() && pieces.any(|piece| is_in(piece, files))
}

/// A merge that takes several steps.
#[derive(Debug)]
struct LargeJob {
    job: IndexJob,
    /// Where the next stretch begins, and how many cuts lie before it.
    next: Option<MergeStop>,
    cuts_passed: usize,
    writer: Option<PieceWriter>,
    /// Sections of `writer`.
    sections: Vec<u32>,
    done: Vec<Arc<RunPiece>>,
    /// The same as files, which go with the job unless it ends well (rule S21).
    files: LoadFiles,
    /// Number of the detached piece job (rule B6).
    flight: u64,
}

/// How one job's events stand.
struct Judge<'d> {
    db: &'d Database,
    table: &'d Table,
    horizon: CommitTs,
    guard: crossbeam_epoch::Guard,
    /// The table's gone rows, as of some pairs ago: whoever was gone stays so.
    gone: Arc<GoneSet>,
    pairs: u32,
}

impl MergeJudge for Judge<'_> {
    fn next_pair(&mut self) {
        self.pairs = self.pairs.wrapping_add(1);
        if self.pairs.is_multiple_of(256) {
            self.guard.repin_after(|| self.db.breathe());
            self.gone = self.table.gone.now();
        }
    }

    fn standing(&mut self, txn: TxnId, lsn: Lsn) -> EventStanding {
        match standing_of(self.db, txn, lsn, self.horizon, &self.guard) {
            Standing::Settled => EventStanding::Settled,
            Standing::Dead => EventStanding::Aborted,
            Standing::Unfinished | Standing::Recent(_) => EventStanding::Unsettled,
        }
    }

    fn is_gone(&mut self, row: RowId) -> bool {
        self.gone.contains(row) || planted!("merge.entry_lost") && row.raw() % 16 == 7
    }
}

impl Database {
    /// Merges runs of indexes where it is due, for about 64 MiB.
    pub fn index_merge_step(&self) -> Result<Progress> {
        self.index_merge_step_for(&Errand::of_upkeep(Need::Due))
    }

    /// The same; when more is needed, also where it is merely useful (rule S38), or possible (rule S55).
    pub(crate) fn index_merge_step_for(&self, errand: &Errand<'_>) -> Result<Progress> {
        let mut merger = errand.turn(self, &self.upkeep.indexes)?;
        self.poison.check()?;
        if let Some(mut large) = merger.take_large(errand) {
            let flight = self.flight.resume(large.flight);
            // What this step makes.
            let made = self.flight.begin(&self.store);
            match large.step(self, errand) {
                Ok(true) => {
                    flight.narrow_to(large.own_files());
                    // In front: what it has written is of use when all of it is there.
                    merger.large.insert(0, large);
                    flight.detach();
                }
                ended => {
                    merger.note_end(self, &large.job, ended.as_ref().err());
                    // In this order: a checkpoint removes what nobody holds.
                    drop(large);
                    drop((made, flight));
                    ended?;
                }
            }
            return Ok(Progress::Worked);
        }
        let (jobs, moved) = merger.find_jobs(self, errand);
        let (small, large): (Vec<_>, Vec<_>) = jobs
            .into_iter()
            .partition(|job| job.choice.bytes() <= SHARED_BYTES);
        if !small.is_empty() {
            self.merge_small(&mut merger, &small)?;
            errand.note_read(small.iter().map(|job| job.choice.bytes()).sum());
            return Ok(Progress::Worked);
        }
        let Some(job) = large.into_iter().next() else {
            return Ok(if moved { Progress::Worked } else { Progress::Idle });
        };
        merger.large.push(LargeJob::begin(self, job));
        Ok(Progress::Worked)
    }

    /// Merges small jobs into sections of one file.
    fn merge_small(&self, merger: &mut IndexMerger, jobs: &[IndexJob]) -> Result<()> {
        let flight: PieceJob<'_> = self.flight.begin(&self.store);
        let mut writer = PieceWriter::create(&self.store, SegmentClass::Meta)?;
        let mut sections = Vec::with_capacity(jobs.len());
        for job in jobs {
            let section = job.merge_whole(self, &mut writer);
            merger.note_end(self, job, section.as_ref().err());
            sections.push(section?);
        }
        let mut files = LoadFiles::new(self);
        let outputs = open_sections(self, writer, &sections, &mut files)?;
        stop_point!("merge.before_install");
        files.keep();
        for (job, output) in jobs.iter().zip(outputs) {
            let pieces = output.as_slice();
            job.install(pieces);
            self.upkeep.counters.merged(job.choice.bytes(), bytes_of(pieces));
        }
        drop(flight);
        Ok(())
    }
}

fn bytes_of(pieces: &[Arc<RunPiece>]) -> u64 {
    pieces.iter().map(|piece| piece.stored_bytes()).sum()
}

/// Finishes a file and opens a piece of each section; one without any is removed.
fn open_sections(
    db: &Database,
    writer: PieceWriter,
    sections: &[Option<u32>],
    files: &mut LoadFiles,
) -> Result<Vec<Option<Arc<RunPiece>>>> {
    if sections.iter().all(Option::is_none) {
        return Ok(vec![None; sections.len()]);
    }
    let id = writer.finish()?;
    files.add(SegmentClass::Meta, id);
    let file = PieceFile::open(&db.store, SegmentClass::Meta, id)?;
    let open = |section: u32| RunPiece::open(Arc::clone(&file), section).map_err(Error::from);
    sections
        .iter()
        .map(|section| section.map(open).transpose())
        .collect()
}

impl IndexMerger {
    /// True if there is a merge to do or to go on with, or parts that nobody has looked at.
    pub(crate) fn is_due(&self, db: &Database) -> bool {
        let (horizon, start) = (db.txns.horizon(), db.checkpoint_start());
        let sparse = db.sparse_index_files(Need::Useful);
        let is_due = |table: &Table, index: &Index| {
            let parts = index.parts();
            if self.aside.turn(&index.def.id, start) == Turn::NotYet {
                return false;
            }
            let is_quiet =
                self.quiet.has(index.def.id, Need::Useful, &parts) && !has_piece_in(&parts, &sparse);
            let cut = table.sweep.wants(index, Need::Useful);
            if is_quiet && cut.is_none() || parts.runs.is_empty() || index.is_named_behind(start) {
                return false;
            }
            // An unsettled tag keeps a merge waiting that is not due.
            parts.runs.iter().all(|run| run.tag.is_none())
                || move_down(&parts.runs).is_some()
                || plan_index(&parts.runs, cut, Need::Useful, |run| {
                    is_settled_run(db, run, horizon)
                })
                .is_some()
                || plan_leaving(&parts.runs, &sparse, |run| is_settled_run(db, run, horizon)).is_some()
        };
        !self.large.is_empty()
            || db
                .catalog
                .tables()
                .iter()
                .any(|table| table.indexes.iter().any(|index| is_due(table, index)))
    }

    /// A job that has begun, of a table that the errand is for: that of another one is not a command's to do, to fail with, or to end (rule OP1).
    fn take_large(&mut self, errand: &Errand<'_>) -> Option<LargeJob> {
        let is_wanted = |large: &LargeJob| errand.is_for(large.job.table.id);
        let at = self.large.iter().position(is_wanted)?;
        Some(self.large.remove(at))
    }

    /// Rule S53.
    fn note_end(&mut self, db: &Database, job: &IndexJob, error: Option<&Error>) {
        let index = job.index().def.id;
        match error {
            Some(error) => {
                db.tell_of_step(error);
                self.aside.note(index, db.checkpoint_start(), error);
            }
            None => self.aside.forget(&index),
        }
    }

    fn find_jobs(&mut self, db: &Database, errand: &Errand<'_>) -> (Vec<IndexJob>, bool) {
        let need = errand.need;
        let sparse = db.sparse_index_files(need);
        let (mut horizon, start) = (db.txns.horizon(), db.checkpoint_start());
        if planted!("merge.past_snapshots") {
            horizon = CommitTs::new(u64::MAX >> 2);
        }
        let is_left_piece = |piece: &RunPiece| db.renews_index_piece(piece, errand, &sparse);
        let wanted = Wanted {
            need,
            sparse: &sparse,
            renews: &is_left_piece,
            horizon,
        };
        let mut jobs: Vec<IndexJob> = Vec::new();
        let mut alone = Vec::new();
        let mut moved = false;
        let mut bytes = 0;
        let tables = db.catalog.tables();
        self.quiet.forget_replaced();
        self.aside
            .keep(|id| tables.iter().any(|table| table.index_by_id(*id).is_some()));
        for table in tables.into_iter().filter(|table| errand.is_for(table.id)) {
            for (number, index) in table.indexes.iter().enumerate() {
                let parts = index.parts();
                let is_quiet = self.quiet.has(index.def.id, need, &parts) && !has_piece_in(&parts, &sparse);
                let cut = table.sweep.wants(index, need);
                let is_left = is_quiet && cut.is_none() && !errand.is_command() || bytes >= STEP_BYTES;
                if parts.runs.is_empty() || is_left || index.is_named_behind(start) {
                    continue;
                }
                match self.aside.turn(&index.def.id, start) {
                    Turn::InLine => {}
                    // Who commands it is to hear of what is in its way.
                    _ if errand.is_command() => {}
                    Turn::Alone => {
                        alone.push((Arc::clone(&table), number, cut));
                        continue;
                    }
                    Turn::NotYet => continue,
                }
                moved |= move_pieces_down(&table, index);
                match IndexJob::of(db, (&table, number), cut, &wanted) {
                    Ok(job) => {
                        bytes += job.choice.bytes();
                        jobs.push(job);
                    }
                    Err(parts) => self.note_quiet(index.def.id, need, &parts),
                }
            }
        }
        // Rule S53.
        for (table, number, cut) in alone {
            if moved || !jobs.is_empty() {
                break;
            }
            let index = &table.indexes[number];
            moved |= move_pieces_down(&table, index);
            match IndexJob::of(db, (&table, number), cut, &wanted) {
                Ok(job) => jobs.push(job),
                Err(parts) => self.note_quiet(index.def.id, need, &parts),
            }
        }
        (jobs, moved)
    }

    /// These parts need nothing. An unsettled tag may settle without a change of the parts.
    fn note_quiet(&mut self, index: IndexId, need: Need, parts: &Arc<IndexParts>) {
        if parts.runs.iter().all(|run| run.tag.is_none()) {
            self.quiet.note(index, need, parts);
        }
    }
}

/// Rules S18, D23.
fn is_settled_run(db: &Database, run: &Run, horizon: CommitTs) -> bool {
    run.tag.is_none_or(|(txn, lsn)| {
        let guard = crossbeam_epoch::pin();
        // In this order: a load that settles in between has a record behind the start that is asked for then.
        standing_of(db, txn, lsn, horizon, &guard) == Standing::Settled && lsn < db.checkpoint_start()
    })
}

/// Tagged runs that take no part in a merge (rule S18).
struct LeftOut(Vec<(TxnId, Lsn)>);

impl LeftOut {
    fn of(db: &Database, runs: &[Arc<Run>], horizon: CommitTs) -> Self {
        let left_out = runs.iter().filter(|run| !is_settled_run(db, run, horizon));
        Self(left_out.filter_map(|run| run.tag).collect())
    }

    fn has(&self, run: &Run) -> bool {
        run.tag.is_some_and(|tag| self.0.contains(&tag))
    }

    /// Below this LSN nobody can have written an event about a row of theirs: their entries bear their stamps, and every other
    /// event of these rows was logged afterwards (rule S20).
    fn begin(&self) -> Lsn {
        let stamps = self.0.iter().map(|(_, lsn)| *lsn);
        stamps.min().unwrap_or(MergeSources::ALL_COVERED)
    }
}

fn move_pieces_down(table: &Table, index: &Index) -> bool {
    let _latch = table.shaping.lock();
    let parts = index.parts();
    let Some(runs) = move_down(&parts.runs) else {
        return false;
    };
    index.install(with_runs(&parts, runs));
    true
}

fn with_runs(parts: &IndexParts, runs: Vec<Arc<Run>>) -> IndexParts {
    IndexParts {
        active: Arc::clone(&parts.active),
        frozen: parts.frozen.clone(),
        runs,
    }
}

impl IndexJob {
    /// What an index needs; else the parts that need nothing.
    fn of(
        db: &Database,
        (table, number): (&Arc<Table>, usize),
        cut: Option<u64>,
        wanted: &Wanted<'_>,
    ) -> std::result::Result<Self, Arc<IndexParts>> {
        let parts = table.indexes[number].parts();
        let left_out = LeftOut::of(db, &parts.runs, wanted.horizon);
        let may_take = |run: &Run| !left_out.has(run);
        let plan = plan_index(&parts.runs, cut, wanted.need, may_take)
            .or_else(|| plan_renewal(&parts.runs, wanted.renews, may_take))
            .or_else(|| plan_leaving(&parts.runs, wanted.sparse, may_take));
        match plan {
            Some(choice) => Ok(Self::new(table, number, choice, wanted.horizon, &left_out)),
            None => Err(parts),
        }
    }

    fn new(
        table: &Arc<Table>,
        number: usize,
        choice: IndexChoice,
        horizon: CommitTs,
        left_out: &LeftOut,
    ) -> Self {
        let index = table.indexes[number].def.id;
        let inputs = choice.inputs.iter().filter(|pieces| !pieces.is_empty());
        let sources = inputs.map(|pieces| {
            let tag = table.indexes[number]
                .parts()
                .runs
                .iter()
                .find(|run| run.pieces.iter().any(|piece| Arc::ptr_eq(piece, &pieces[0])))
                .and_then(|run| run.tag);
            let pieces = pieces.clone();
            Arc::new(Run::of(index, tag, pieces))
        });
        let inputs = choice.inputs.iter().flatten();
        let swept = if choice.covers_all {
            table.sweep.cut()
        } else {
            inputs.map(|piece| piece.swept().cut()).min().unwrap_or(0)
        };
        let covered_below = if choice.covers_all {
            left_out.begin()
        } else {
            MergeSources::NONE_COVERED
        };
        Self {
            sources: sources.collect(),
            covered_below,
            swept,
            table: Arc::clone(table),
            number,
            choice,
            horizon,
        }
    }

    fn index(&self) -> &Index {
        &self.table.indexes[self.number]
    }

    fn codec(&self) -> Codec {
        let level = if self.choice.covers_base {
            Level::Base
        } else {
            Level::Upper
        };
        codec_of(&self.table, level)
    }

    /// Merges everything into one section.
    fn merge_whole(&self, db: &Database, writer: &mut PieceWriter) -> Result<Option<u32>> {
        let def = &self.index().def;
        let mut builder = RunBuilder::into_section(writer, def.id, None, self.codec())
            .with_filter(def.unique)
            .with_suffix(def.spec.suffix_bytes());
        self.merge(db, &SeekPos::START, None, u64::MAX, &mut builder)?;
        Ok(builder.finish_section()?)
    }

    /// Merges the stretch from `from` to the key `until`, for so many bytes.
    fn merge(
        &self,
        db: &Database,
        from: &SeekPos<'_>,
        until: Option<&[u8]>,
        bytes: u64,
        out: &mut RunBuilder<'_>,
    ) -> Result<Option<MergeStop>> {
        let mut judge = Judge {
            db,
            table: &self.table,
            horizon: self.horizon,
            guard: crossbeam_epoch::pin(),
            gone: self.table.gone.now(),
            pairs: 0,
        };
        let sources = MergeSources {
            trees: &[],
            runs: &self.sources,
            covered_below: self.covered_below,
        };
        let range = MergeRange {
            from: *from,
            until,
            bytes,
        };
        Ok(merge_events(&sources, &range, &mut judge, out)?)
    }

    /// Exchanges the pieces. Trees and runs that came meanwhile stay. False if nobody wants the pieces any more.
    fn install(&self, pieces: &[Arc<RunPiece>]) -> bool {
        if self.table.is_dropped() {
            return false;
        }
        for piece in pieces {
            piece.swept().set(self.swept);
        }
        let _latch = self.table.shaping.lock();
        let index = self.index();
        let parts = index.parts();
        let mut runs = Vec::with_capacity(parts.runs.len());
        for run in &parts.runs {
            let is_target = Arc::ptr_eq(run, &self.choice.target);
            if !is_target && !run.pieces.iter().any(|piece| self.choice.has(piece)) {
                runs.push(Arc::clone(run));
                continue;
            }
            let left = run.pieces.iter().filter(|piece| !self.choice.has(piece));
            let mut left: Vec<_> = left.cloned().collect();
            let mut tag = run.tag;
            if is_target {
                tag = None;
                left.extend(pieces.iter().cloned());
                left.sort_by(|a, b| (a.first_key(), a.last_key()).cmp(&(b.first_key(), b.last_key())));
            }
            if !left.is_empty() {
                runs.push(Arc::new(Run::of(index.def.id, tag, left)));
            }
        }
        index.install(with_runs(&parts, runs));
        stop_point!("merge.after_install");
        true
    }
}

impl LargeJob {
    fn begin(db: &Database, job: IndexJob) -> Self {
        let flight = db.flight.begin(&db.store);
        flight.narrow_to(Vec::new());
        Self {
            job,
            next: None,
            cuts_passed: 0,
            writer: None,
            sections: Vec::new(),
            done: Vec::new(),
            files: LoadFiles::new(db),
            flight: flight.detach(),
        }
    }

    /// What is held between two steps (rule B6): not what others make, and supersede, while it goes on.
    fn own_files(&self) -> Vec<(SegmentClass, SegmentId)> {
        let writer = self.writer.iter();
        let begun = writer.map(|writer| (SegmentClass::Meta, writer.id()));
        self.files.list().into_iter().chain(begun).collect()
    }

    /// Some stretches. False if the job has ended.
    fn step(&mut self, db: &Database, errand: &Errand<'_>) -> Result<bool> {
        if self.job.table.is_dropped() || db.upkeep.is_stopping() {
            return Ok(false);
        }
        let mut written = 0;
        while written < STEP_BYTES {
            written += self.write_stretch(db, errand)?;
            if self.next.is_some() {
                continue;
            }
            if self.cuts_passed == self.job.choice.cuts.len() {
                self.end_file(db)?;
                stop_point!("merge.before_install");
                if self.job.install(&self.done) {
                    self.files.keep();
                }
                let counters = &db.upkeep.counters;
                counters.merged(self.job.choice.bytes(), bytes_of(&self.done));
                errand.note_read(self.job.choice.bytes());
                return Ok(false);
            }
            self.cuts_passed += 1;
        }
        Ok(true)
    }

    /// One section, up to the next cut or to its full size; its bytes.
    fn write_stretch(&mut self, db: &Database, errand: &Errand<'_>) -> Result<u64> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self
                .writer
                .insert(PieceWriter::create(&db.store, SegmentClass::Meta)?),
        };
        let cuts = &self.job.choice.cuts;
        let begin = match self.cuts_passed {
            0 => SeekPos::START,
            passed => SeekPos::lower_bound(&cuts[passed - 1]),
        };
        let until = cuts.get(self.cuts_passed).map(Vec::as_slice);
        let index = self.job.index();
        let mut builder = RunBuilder::into_section(writer, index.def.id, None, self.job.codec())
            .with_filter(index.def.unique)
            .with_suffix(index.def.spec.suffix_bytes());
        // Upkeep stops where a piece ends, a command more often, to look whether it is still wanted.
        let slice = if errand.is_command() {
            SLICE_BYTES
        } else {
            PIECE_BYTES
        };
        let mut stop = self.next.take();
        loop {
            let from = stop.as_ref().map_or(begin, MergeStop::pos);
            stop = self.job.merge(db, &from, until, slice, &mut builder)?;
            if stop.is_none() || builder.stored_bytes() >= PIECE_BYTES {
                break;
            }
            errand.check(db)?;
        }
        let section = builder.finish_section()?;
        self.sections.extend(section);
        let bytes = if section.is_some() {
            writer.section_bytes()
        } else {
            0
        };
        let is_full = writer.file_bytes() >= db.piece_sizes().file;
        self.next = stop;
        if is_full {
            self.end_file(db)?;
        }
        Ok(bytes)
    }

    fn end_file(&mut self, db: &Database) -> Result<()> {
        let sections = std::mem::take(&mut self.sections);
        let Some(writer) = self.writer.take().filter(|_| !sections.is_empty()) else {
            return Ok(());
        };
        let id = writer.finish()?;
        self.files.add(SegmentClass::Meta, id);
        let file = PieceFile::open(&db.store, SegmentClass::Meta, id)?;
        for section in sections {
            self.done.push(RunPiece::open(Arc::clone(&file), section)?);
        }
        Ok(())
    }
}
