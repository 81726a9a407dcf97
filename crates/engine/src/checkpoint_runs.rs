//! Checkpoint runs: turns the frozen trees of all indexes into runs.
//!
//! Why it exists: entries leave memory here. Thousands of small indexes must not make thousands of files, and one of ten
//! million entries must not be written twice, so the small ones share files and the large ones have their own.
//! Rules: X35 what decides nothing any more is left out. X34 an event lies in one part: one of an operation that began before
//! the checkpoint's LSN and logged behind it moves to the active tree, as the log's tail will bring it there. B5, B6.
//! Latches and I/O: writes meta files; a table's shape latch for the exchange alone.
//! After a crash: runs that no image names are orphans; the tail and the image before have their entries.

use crate::checkpoint::Moment;
use crate::database::Database;
use crate::error::Result;
use crate::table::{Index, Table};
use crossbeam_epoch::Guard;
use pbxt_base::{CommitTs, Lsn, RowId, SegmentId, TxnId};
use pbxt_index::{
    EventStanding, IndexParts, MergeJudge, MergeRange, MergeSources, Run, RunBuilder, RunPiece, SeekPos,
    Tree, merge_events,
};
use pbxt_segment::{PieceFile, PieceWriter, SegmentClass};
use pbxt_txn::SettledAs;
use std::sync::Arc;

/// Frozen trees of an index that take more memory than this have files of their own.
const OWN_FILE_BYTES: u64 = 4 << 20;
/// Bytes after which a shared file is full.
const SHARED_FILE_BYTES: u64 = 32 << 20;
/// Pairs merged under one epoch.
const PAIRS_PER_EPOCH: u32 = 256;

/// What became of the trees of one index.
struct Built<'a> {
    table: &'a Table,
    index: &'a Index,
    trees: Vec<Arc<Tree>>,
    run: BuiltRun,
    /// Some of its events stay in memory.
    has_late: bool,
    /// Of the run (rule X36).
    swept: u64,
}

enum BuiltRun {
    Own(Run),
    /// Section of a shared file; none if nothing was left.
    Shared(Option<u32>),
}

/// Writes and installs runs of all frozen trees (step 3 of a checkpoint). Whatever fails: nothing is lost, and files that
/// were not installed go.
pub(crate) fn build_runs(db: &Database, moment: &Moment) -> Result<()> {
    let mut shared = Shared::default();
    let built = write_all(db, moment, &mut shared);
    if built.is_err() {
        shared.forget(db);
    }
    built
}

fn write_all<'a>(db: &Database, moment: &'a Moment, shared: &mut Shared<'a>) -> Result<()> {
    for (table, _) in &moment.tables {
        for index in &table.indexes {
            let parts = index.parts();
            if parts.frozen.is_empty() {
                continue;
            }
            let bytes: u64 = parts.frozen.iter().map(|tree| tree.memory_bytes() as u64).sum();
            if bytes > OWN_FILE_BYTES {
                let built = write_own(db, moment, table, index, &parts)?;
                install(moment.start, built, None)?;
            } else {
                shared.write(db, moment, table, index, &parts)?;
                if shared
                    .file
                    .as_ref()
                    .is_some_and(|file| file.file_bytes() > SHARED_FILE_BYTES)
                {
                    shared.install(db, moment.start)?;
                }
            }
        }
    }
    shared.install(db, moment.start)
}

/// A file that small runs share, and who has sections in it.
#[derive(Default)]
struct Shared<'a> {
    file: Option<PieceWriter>,
    built: Vec<Built<'a>>,
    /// Finished and not installed.
    finished: Option<SegmentId>,
}

impl<'a> Shared<'a> {
    fn write(
        &mut self,
        db: &Database,
        moment: &Moment,
        table: &'a Table,
        index: &'a Index,
        parts: &IndexParts,
    ) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self
                .file
                .insert(PieceWriter::create(&db.store, SegmentClass::Meta)?),
        };
        let codec = table.def().compression.upper();
        let mut out = RunBuilder::into_section(file, index.def.id, None, codec)
            .with_filter(index.def.unique)
            .with_suffix(index.def.spec.suffix_bytes());
        let (has_late, swept) = merge(db, moment, table, parts, &mut out)?;
        let section = out.finish_section()?;
        self.built.push(Built {
            table,
            index,
            trees: parts.frozen.clone(),
            run: BuiltRun::Shared(section),
            has_late,
            swept,
        });
        Ok(())
    }

    /// Makes the file durable and installs its runs.
    fn install(&mut self, db: &Database, start: Lsn) -> Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let is_empty = self
            .built
            .iter()
            .all(|built| matches!(built.run, BuiltRun::Shared(None)));
        let file = if is_empty {
            None
        } else {
            let id = file.finish()?;
            self.finished = Some(id);
            Some(PieceFile::open(&db.store, SegmentClass::Meta, id)?)
        };
        for built in self.built.drain(..) {
            install(start, built, file.as_ref())?;
        }
        self.finished = None;
        Ok(())
    }

    /// After a failure: an unfinished file removes itself; a finished one goes with the next removal of unnamed files, unless
    /// some of its runs are installed already.
    fn forget(&mut self, db: &Database) {
        let is_named = |id: SegmentId| {
            db.catalog.tables().iter().any(|table| {
                let indexes = table.indexes.iter();
                indexes
                    .flat_map(|index| index.parts().runs.clone())
                    .any(|run| run.pieces.iter().any(|piece| piece.reference().0 == id))
            })
        };
        if let Some(id) = self.finished.take().filter(|id| !is_named(*id)) {
            let _ = db.store.remove_piece(SegmentClass::Meta, id);
        }
    }
}

fn write_own<'a>(
    db: &Database,
    moment: &Moment,
    table: &'a Table,
    index: &'a Index,
    parts: &IndexParts,
) -> Result<Built<'a>> {
    let codec = table.def().compression.upper();
    let mut out = RunBuilder::new(&db.store, index.def.id, None, codec)
        .with_filter(index.def.unique)
        .with_suffix(index.def.spec.suffix_bytes());
    let (has_late, swept) = merge(db, moment, table, parts, &mut out)?;
    Ok(Built {
        table,
        index,
        trees: parts.frozen.clone(),
        run: BuiltRun::Own(out.finish()?),
        has_late,
        swept,
    })
}

/// Writes what is left of the frozen trees; true if some events stay in memory, and the cut of what was written.
fn merge(
    db: &Database,
    moment: &Moment,
    table: &Table,
    parts: &IndexParts,
    out: &mut RunBuilder<'_>,
) -> Result<(bool, u64)> {
    let swept = if parts.runs.is_empty() {
        table.sweep.cut()
    } else {
        swept_of(&parts.frozen)
    };
    let mut judge = FreezeJudge {
        db,
        table,
        start: moment.start,
        horizon: db.txns.horizon(),
        guard: crossbeam_epoch::pin(),
        pairs: 0,
        has_late: false,
    };
    let sources = MergeSources {
        trees: &parts.frozen,
        runs: &[],
        covered_below: if parts.runs.is_empty() {
            MergeSources::ALL_COVERED
        } else {
            MergeSources::NONE_COVERED
        },
    };
    let all = MergeRange {
        from: SeekPos::START,
        until: None,
        bytes: u64::MAX,
    };
    merge_events(&sources, &all, &mut judge, out)?;
    Ok((judge.has_late, swept))
}

/// Judges events of frozen trees.
struct FreezeJudge<'a> {
    db: &'a Database,
    table: &'a Table,
    start: Lsn,
    horizon: CommitTs,
    guard: Guard,
    pairs: u32,
    has_late: bool,
}

impl MergeJudge for FreezeJudge<'_> {
    fn next_pair(&mut self) {
        self.pairs = self.pairs.wrapping_add(1);
        if self.pairs.is_multiple_of(PAIRS_PER_EPOCH) {
            self.guard.repin_after(|| self.db.breathe());
        }
    }

    fn standing(&mut self, txn: TxnId, lsn: Lsn) -> EventStanding {
        if lsn >= self.start {
            // Left out of the run: it moves to the active tree.
            self.has_late = true;
            return EventStanding::Aborted;
        }
        match self.db.txns.is_settled(txn, lsn, self.horizon, &self.guard) {
            SettledAs::Committed => EventStanding::Settled,
            SettledAs::Gone => EventStanding::Aborted,
            SettledAs::Unsettled => EventStanding::Unsettled,
        }
    }

    fn is_gone(&mut self, row: RowId) -> bool {
        self.table.gone.contains(row)
    }
}

/// Puts a run in the place of the trees it was made of.
fn install(start: Lsn, built: Built<'_>, file: Option<&Arc<PieceFile>>) -> Result<()> {
    let run = match built.run {
        BuiltRun::Own(run) => run,
        BuiltRun::Shared(section) => {
            let pieces = match (section, file) {
                (Some(section), Some(file)) => vec![RunPiece::open(Arc::clone(file), section)?],
                _ => Vec::new(),
            };
            Run::new(built.index.def.id, None, pieces)?
        }
    };
    for piece in &run.pieces {
        piece.swept().set(built.swept);
    }
    let _shaping = built.table.shaping.lock();
    let parts = built.index.parts();
    if built.has_late {
        parts.active.swept().lower(swept_of(&built.trees));
        for tree in &built.trees {
            keep_late(tree, &parts.active, start)?;
        }
    }
    let mut runs = Vec::with_capacity(parts.runs.len() + 1);
    if !run.is_empty() {
        runs.push(Arc::new(run));
    }
    runs.extend(parts.runs.iter().cloned());
    let is_built = |tree: &&Arc<Tree>| built.trees.iter().any(|built| Arc::ptr_eq(built, tree));
    let frozen = parts.frozen.iter().filter(|tree| !is_built(tree));
    built.index.install(IndexParts {
        active: Arc::clone(&parts.active),
        frozen: frozen.cloned().collect(),
        runs,
    });
    Ok(())
}

fn swept_of(trees: &[Arc<Tree>]) -> u64 {
    trees.iter().map(|tree| tree.swept().cut()).min().unwrap_or(0)
}

/// Copies the events at and behind `start`.
fn keep_late(from: &Tree, to: &Tree, start: Lsn) -> Result<()> {
    from.try_for_each(|entry| {
        if !entry.is_dead() && entry.lsn() >= start {
            to.insert(
                entry.key(),
                entry.row(),
                entry.txn(),
                entry.lsn(),
                entry.sign(),
                entry.unpack(),
            )?;
        }
        Ok(())
    })
}
