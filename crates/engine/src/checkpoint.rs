//! Checkpoint: makes everything below one LSN of the log findable without the log.
//!
//! Why it exists: recovery must read a bounded tail and not the whole log, and index entries must leave memory. A checkpoint
//! writes the entries of all trees as runs, then an image of what else is in memory, and then says one word in the manifest.
//! Order (docs/durability.md, checkpoints): 1 begin: LSN, timestamp and tables of one moment. 2 drain, freeze, drain. 3 runs
//! of the frozen trees, installed. 4 image. 5 durable log, durable image, manifest record. 6 only now the log's start rises
//! and files go that nothing names.
//! Rules: D17, D19 to D27, G1, B2, B5, B6. A step can fail anywhere: what it wrote goes, frozen trees stay readable and are
//! built by the next one.
//! Latches and I/O: its own turn; the DDL latch and the commit section for the beginning, a table's shape latch for an
//! exchange; no I/O under them except that a DDL statement may hold its latch while it flushes.
//! After a crash: the manifest names the old image or the new one, each with all its files; others are orphans.

use crate::checkpoint_runs::build_runs;
use crate::database::Database;
use crate::definition::TableDef;
use crate::error::{Error, Result};
use crate::image::{ImageHead, ImageWriter, PreparedImage, RunImage, TableHead};
use crate::row_shape::SETTLED;
use crate::table::Table;
use pbxt_base::{CommitTs, Lsn, SegmentId, planted, stop_point};
use pbxt_index::{IndexParts, Tree};
use pbxt_segment::{Checkpoint, SegmentClass};
use pbxt_txlog::Space;
use pbxt_txn::{EndedAs, Snapshot, Stamp, TxnTableImage};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A record of this length, given up at once, makes sure that the log has a batch at the checkpoint's LSN (rule D17).
const MARK_BYTES: usize = 16;

/// Files by class and number.
pub(crate) type FileSet = HashSet<(SegmentClass, SegmentId)>;

/// What a checkpoint is about: one moment.
pub(crate) struct Moment {
    /// Everything below is in what the checkpoint saves, and nothing below is replayed.
    pub start: Lsn,
    /// No version below this is needed in the log (read before any word is).
    pub floor: Lsn,
    /// All commits up to this one have their END below `start`, and no other has.
    ts: CommitTs,
    /// Keeps the row counts of `ts`.
    _snapshot: Snapshot,
    /// Tables that existed, with their definitions; temporary ones too, whose entries leave memory and whose image is not made.
    pub tables: Vec<(Arc<Table>, Arc<TableDef>)>,
    last_ids: (u32, u32),
}

impl Database {
    /// Makes a checkpoint. On an error other than a poisoned database everything is as before, and it can be tried again.
    pub fn checkpoint_step(&self) -> Result<()> {
        let _turn = self.maintenance.begin(self);
        self.poison.check()?;
        let superseded = self.upkeep.merged_away();
        let dropped = self.maintenance.dropped_bytes();
        let job = self.flight.begin(&self.store);
        let samples = self.maintenance.samples();
        let moment = self.begin_checkpoint()?;
        stop_point!("checkpoint.after_begin");
        self.guards.drain();
        freeze(&moment);
        stop_point!("checkpoint.after_freeze");
        self.guards.drain();
        build_runs(self, &moment)?;
        stop_point!("checkpoint.after_install");
        self.release_leaves();
        let (image, named) = self.write_image(&moment)?;
        if planted!("checkpoint.removal_first") {
            self.remove_unnamed(&named)?;
        }
        let log_start = moment.floor.min(moment.start);
        self.store.note_checkpoint(Checkpoint {
            image,
            start: moment.start,
            log_start,
        })?;
        drop(job);
        self.maintenance.note_done(moment.start, dropped);
        self.maintenance.note_samples_saved(samples);
        self.upkeep.note_given_back(superseded);
        self.log.set_start(log_start);
        self.store.drop_below_log()?;
        self.remove_unnamed(&named)?;
        stop_point!("checkpoint.after_removal");
        Ok(())
    }

    /// Step 1.
    fn begin_checkpoint(&self) -> Result<Moment> {
        let floor = self.log_floor();
        let _ddl = self.ddl.lock();
        drop(self.log.reserve_patiently(MARK_BYTES, Space::Spare)?);
        let (start, snapshot) = loop {
            let snapshot = self.txns.open_snapshot();
            let (ts, start) = self.txns.in_commit_section(|ts| (ts, self.log.tail()));
            if ts == snapshot.ts() {
                break (start, snapshot);
            }
        };
        let tables = self.catalog.tables().into_iter();
        Ok(Moment {
            start,
            floor,
            ts: snapshot.ts(),
            _snapshot: snapshot,
            tables: tables
                .map(|table| {
                    let def = table.def();
                    (table, def)
                })
                .collect(),
            last_ids: self.catalog.last_ids(),
        })
    }

    /// Steps 4 and 5: the image's file, durable together with all that it was made of, and the files it names.
    fn write_image(&self, moment: &Moment) -> Result<(SegmentId, FileSet)> {
        let votes = self.prepared.votes();
        let mut txns = self.txns.image();
        let prepared = self.settle_votes(votes, &mut txns);
        let head = ImageHead {
            start: moment.start,
            log_start: moment.floor.min(moment.start),
            last_table: moment.last_ids.0,
            last_index: moment.last_ids.1,
            blobs: self.upkeep.blobs.encode(),
        };
        let mut out = ImageWriter::create(&self.store, &head)?;
        out.txns(&txns)?;
        for found in &prepared {
            out.prepared(found)?;
        }
        stop_point!("checkpoint.after_txns");
        let mut named = FileSet::from([(SegmentClass::Meta, out.id())]);
        let lasting = moment.tables.iter().filter(|(table, _)| !table.temporary);
        for (table, def) in lasting {
            save_table(self, &mut out, moment, table, def, &mut named)?;
        }
        stop_point!("checkpoint.before_log_wait");
        // Durable now: every record the image may have an effect of. Without it the image could know what never happened.
        self.log.wait_durable(self.log.tail())?;
        let image = out.finish()?;
        stop_point!("checkpoint.after_image");
        Ok((image, named))
    }

    /// Votes that are still open; what the table says of others is corrected: the list is what recovery believes.
    fn settle_votes(&self, mut votes: Vec<PreparedImage>, txns: &mut TxnTableImage) -> Vec<PreparedImage> {
        let guard = crossbeam_epoch::pin();
        votes.retain(|vote| self.txns.status(vote.txn, &guard).is_unfinished());
        let open: BTreeSet<_> = votes.iter().map(|vote| vote.txn).collect();
        for entry in &mut txns.exceptions {
            match entry.ended {
                EndedAs::Prepared | EndedAs::Aborted if open.contains(&entry.id) => {
                    entry.ended = EndedAs::Prepared;
                }
                // Its PREPARE lies behind the checkpoint, or its END is being written.
                EndedAs::Prepared => entry.ended = EndedAs::Aborted,
                _ => {}
            }
        }
        votes
    }

    /// Step 6: removes the piece files that neither the image that counts nor any table nor a job names (rule D24). Jobs are
    /// asked before tables: a file goes from the one to the other.
    fn remove_unnamed(&self, named: &FileSet) -> Result<()> {
        let mut gone = FileSet::new();
        for class in [SegmentClass::Cold, SegmentClass::Meta] {
            let unnamed = self.store.list(class)?.into_iter();
            gone.extend(
                unnamed
                    .map(|id| (class, id))
                    .filter(|file| !named.contains(file) && !self.flight.holds(file.0, file.1)),
            );
        }
        if gone.is_empty() || planted!("pieces.leaked") {
            return Ok(());
        }
        self.for_each_named_file(|class, id| {
            gone.remove(&(class, id));
        });
        // In their order, so that a run can be repeated.
        let mut in_order: Vec<_> = gone.iter().copied().collect();
        in_order.sort_unstable_by_key(|(class, id)| (*class as u8, *id));
        for (class, id) in in_order {
            self.store.remove_piece(class, id)?;
        }
        self.cache.forget_segments(&gone);
        // Durable now: the removals. Without it a power cut could bring files back, which the next opening would remove.
        self.store.sync_dir()?;
        Ok(())
    }
}

/// Step 2: new trees take the inserts. Who loaded the parts before inserts into the old ones until it leaves its guard.
fn freeze(moment: &Moment) {
    for (table, _) in &moment.tables {
        let _shaping = table.shaping.lock();
        for index in &table.indexes {
            let parts = index.parts();
            if parts.active.is_empty() {
                continue;
            }
            let active = Tree::new();
            active.swept().set(table.sweep.cut());
            let mut frozen = vec![Arc::clone(&parts.active)];
            frozen.extend(parts.frozen.iter().cloned());
            index.install(IndexParts {
                active: Arc::new(active),
                frozen,
                runs: parts.runs.clone(),
            });
        }
    }
}

/// Words of all rows that are hot.
fn save_words(db: &Database, out: &mut ImageWriter, table: &Table, floor: Lsn) -> Result<()> {
    let mut words = Vec::new();
    let mut next = table.map.next_leaf(0);
    while let Some(leaf) = next {
        db.breathe();
        words.clear();
        if table.map.words(leaf, &mut words) {
            out.words(leaf << pbxt_rowmap::LEAF_WORDS_LOG2, &words, floor)?;
        }
        next = table.map.next_leaf(leaf + 1);
    }
    Ok(())
}

/// One table: numbers, words, deleted rows, and then shapes.
fn save_table(
    db: &Database,
    out: &mut ImageWriter,
    moment: &Moment,
    table: &Table,
    def: &Arc<TableDef>,
    named: &mut FileSet,
) -> Result<()> {
    out.table(&TableHead {
        def: TableDef::clone(def),
        next_auto_increment: table.autoinc.mark(),
        rows: table.count.at(moment.ts),
        high_mark: table.map.high_mark(),
        data_bytes: table.data_bytes.load(Ordering::Relaxed),
        updated: table.updated.load(Ordering::Relaxed),
    })?;
    save_words(db, out, table, moment.floor)?;
    // Before the shapes of rows and indexes (rule B11).
    let gone = table
        .gone
        .encode()
        .map_err(|source| Error::Invalid(format!("a set of row ids cannot be written: {source}")))?;
    out.gone(&gone)?;
    // Rule B2: the shape after the words.
    for run in &table.base.shape().runs {
        let pieces: Vec<_> = run.pieces.iter().map(|piece| piece.reference()).collect();
        named.extend(pieces.iter().map(|(id, _)| (SegmentClass::Cold, *id)));
        out.row_run(&RunImage {
            stamp: run.stamp,
            pieces,
        })?;
    }
    for index in &table.indexes {
        let parts = index.parts();
        out.index(index.def.id)?;
        if let Some(sample) = index.statistics().saved_sample() {
            out.sample(&sample)?;
        }
        for run in &parts.runs {
            let pieces: Vec<_> = run.pieces.iter().map(|piece| piece.reference()).collect();
            named.extend(pieces.iter().map(|(id, _)| (SegmentClass::Meta, *id)));
            out.index_run(&RunImage {
                stamp: run.tag.map_or(SETTLED, |(txn, lsn)| Stamp { txn, lsn }),
                pieces,
            })?;
        }
    }
    Ok(())
}
