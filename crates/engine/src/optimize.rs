//! Optimize: everything of one table in as few and as full files as can be, while others read and write it.
//!
//! Why it exists: upkeep weighs what a rewriting gives back against what it costs, and leaves a tenth (S37, S38). Who has deleted half
//! of a table, or has begun to use another key, would rather have it done, and of this table alone. A copy of the table does it
//! too, with room for a second one, and with writers waiting.
//! Course: rows of the table leave the log; a checkpoint turns entries in memory into runs; merges, until nothing is left for them; the
//! checkpoint that lets the files go. The last two again if that let more be done.
//! Rules: OP1 to OP6 (docs/storage.md). All is done by the steps that upkeep takes, so what holds for them holds here.
//! Latches and I/O: those of the steps, each waited for with a look at the kill flag.
//! After a crash: as after a crash in one of them; nothing on disk says that there was such a command.

use crate::database::Database;
use crate::errand::Errand;
use crate::error::Result;
use crate::homing::{RowFate, Standing, fate_of, standing_of};
use crate::host::HostTable;
use crate::pacing::Progress;
use crate::session::Session;
use crate::table::Table;
use crate::view::read_version;
use pbxt_base::{Lsn, RowId, SegmentId};
use pbxt_index::Batch;
use pbxt_segment::SegmentClass;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Merges read at most so many times the bytes that there are at the beginning, and so many more: who writes all the time gives them new
/// work for ever.
const READS_PER_BYTE: u64 = 3;
const READS_MIN: u64 = 64 << 20;
/// Checkpoints at most for what the one before has made possible.
const ROUNDS: u32 = 3;
/// Hot rows looked at between two looks at the kill flag.
const ROWS_PER_LOOK: usize = 256;
/// Leaves of the primary key looked at to see how rows stand.
const LEAVES: u32 = 16;
/// Neighbours in the order of the primary key that stand so many row ids apart are in different blocks.
const FAR_ROWS: u64 = 1024;

/// What was left as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Optimized {
    /// Versions or entries stay that an open snapshot or an unfinished transaction may need.
    pub is_held: bool,
    /// Most neighbours in the order of the primary key stand in different blocks: a range of it is read block by block.
    pub is_scattered: bool,
}

impl HostTable {
    /// Brings all of the table into as few and as full files as can be (rule OP1). `progress` is told how much of `total` is done.
    ///
    /// # Errors
    /// A kill, want of space, damage, a failed disk. What was done before stays done, and nothing is lost.
    pub fn optimize(&self, session: &Session, progress: &mut dyn FnMut(u64, u64)) -> Result<Optimized> {
        optimize_table(session, self.table(), progress)
    }
}

/// See [`HostTable::optimize`].
///
/// # Errors
/// The same.
pub fn optimize_table(
    session: &Session,
    table: &Arc<Table>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Optimized> {
    let (db, gate) = (Arc::clone(session.database()), Arc::clone(session.gate()));
    let is_over = || db.waits.host_killed(&gate);
    let read = AtomicU64::new(0);
    let mut course = Course {
        db: &db,
        table,
        errand: Errand::for_table(table.id, SegmentId::new(0), &read, &is_over),
        target: db.log.tail(),
        total: 0,
        done: 0,
        progress,
    };
    course.begin()?;
    let homed = course.home()?;
    if homed || course.needs_checkpoint() {
        db.checkpoint_for(&course.errand)?;
    }
    // What is written from here on was judged by a horizon that the command has waited for.
    let renews_before = db.store.next_piece_id(SegmentClass::Meta);
    course.errand = Errand::for_table(table.id, renews_before, &read, &is_over);
    course.merge(&read)?;
    (course.progress)(course.total, course.total);
    Ok(Optimized {
        is_held: course.is_held()?,
        is_scattered: is_scattered(&db, table)?,
    })
}

/// One command under way.
struct Course<'c> {
    db: &'c Arc<Database>,
    table: &'c Arc<Table>,
    errand: Errand<'c>,
    /// The log's end when it began: what is written behind it is left to upkeep.
    target: Lsn,
    total: u64,
    done: u64,
    progress: &'c mut dyn FnMut(u64, u64),
}

impl Course<'_> {
    fn begin(&mut self) -> Result<()> {
        self.errand.check(self.db)?;
        self.db.poison.check()?;
        self.db.let_checkpoint_end(&self.errand)?;
        self.db.housekeeping_step();
        self.total = self.left().max(1);
        self.report();
        Ok(())
    }

    /// Bytes of the log and of pieces that are still to be read, about.
    fn left(&self) -> u64 {
        let looked_at = self.db.upkeep.looked_at().max(self.db.log_floor().raw());
        let log = if self.is_hot() {
            self.target.raw().saturating_sub(looked_at)
        } else {
            0
        };
        log + self.db.bytes_to_merge(self.table, &self.errand)
    }

    /// Tells how far it is: never less than before, and not all of it before the end.
    fn report(&mut self) {
        let done = self.total.saturating_sub(self.left().max(1));
        self.done = self.done.max(done);
        (self.progress)(self.done, self.total);
    }

    /// True if some version of the table is in the log.
    fn is_hot(&self) -> bool {
        self.table.map.rows_from(RowId::new(1)).next().is_some()
    }

    /// Rows leave the log, as far as it reached when the command began. True if any did.
    fn home(&mut self) -> Result<bool> {
        let mut worked = false;
        for fills in [false, true] {
            if fills {
                // The segment that is being written is looked at only when it is full.
                if !self.has_settled_rows_from(self.open_segment())? {
                    break;
                }
                self.db.finish_segment()?;
            }
            while self.is_hot() && self.db.compact_step_for(&self.errand, self.target)? == Progress::Worked {
                worked = true;
                self.report();
            }
        }
        Ok(worked)
    }

    /// Start of the segment of the log that is being written.
    fn open_segment(&self) -> Lsn {
        let bytes = self.db.store.geometry().hot_segment_bytes;
        Lsn::new(self.db.log.tail().raw() / bytes * bytes)
    }

    /// True if a row of the table could be homed if the log from here to the target could be read.
    fn has_settled_rows_from(&self, start: Lsn) -> Result<bool> {
        let (db, horizon) = (self.db, self.db.txns.horizon());
        for (count, (row, _)) in self.table.map.rows_from(RowId::new(1)).enumerate() {
            if count % ROWS_PER_LOOK == 0 {
                self.errand.check(db)?;
            }
            let guard = crossbeam_epoch::pin();
            if let RowFate::Home { lsn, .. } = fate_of(db, self.table, row, horizon, &guard, |_| {})?
                && (start..self.target).contains(&lsn)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if a checkpoint would bring entries into runs, or let stamps be dropped.
    fn needs_checkpoint(&self) -> bool {
        let start = self.db.checkpoint_start();
        let of_indexes = self.table.indexes.iter().any(|index| {
            let parts = index.parts();
            let has_entries = parts.trees().any(|tree| !tree.is_empty());
            let is_named = |(_, lsn): (_, Lsn)| lsn >= start;
            has_entries
                || index.is_named_behind(start)
                || parts.runs.iter().any(|run| run.tag.is_some_and(is_named))
        });
        let shape = self.table.base.shape();
        let is_named = |run: &Arc<crate::row_shape::RowRun>| run.is_tagged() && run.stamp.lsn >= start;
        of_indexes || shape.runs.iter().any(is_named)
    }

    /// Merges until nothing is left for them, with the checkpoints that give the files back.
    fn merge(&mut self, read: &AtomicU64) -> Result<()> {
        let reads_max = self.table.stored_bytes() * READS_PER_BYTE + READS_MIN;
        for _ in 0..ROUNDS {
            let mut worked = false;
            while self.step()? && read.load(Ordering::Relaxed) <= reads_max {
                worked = true;
                self.report();
                if self.db.gain_is_due() {
                    self.db.checkpoint_for(&self.errand)?;
                }
            }
            if !worked {
                return Ok(());
            }
            self.db.checkpoint_for(&self.errand)?;
        }
        Ok(())
    }

    /// One step of everything. False if there was nothing to do.
    fn step(&self) -> Result<bool> {
        let (db, errand) = (self.db, &self.errand);
        errand.check(db)?;
        db.housekeeping_step();
        let mut worked = db.settle_tags_of(self.table)?;
        worked |= db.row_merge_step_for(errand)? == Progress::Worked;
        worked |= db.index_merge_step_for(errand)? == Progress::Worked;
        worked |= db.gone_step_of(self.table)? == Progress::Worked;
        Ok(worked)
    }

    /// True if something that was there when the command began waits for a transaction to end.
    fn is_held(&self) -> Result<bool> {
        let (db, horizon) = (self.db, self.db.txns.horizon());
        let shape = self.table.base.shape();
        if shape.runs.iter().any(|run| run.is_tagged()) {
            return Ok(true);
        }
        for (count, (_, word)) in self.table.map.rows_from(RowId::new(1)).enumerate() {
            if count % ROWS_PER_LOOK == 0 {
                self.errand.check(db)?;
            }
            let (addr, guard) = (word.addr(), crossbeam_epoch::pin());
            if addr.is_none() || addr.lsn() >= self.target {
                continue;
            }
            let Some(version) = read_version(db, addr, &guard)? else {
                continue;
            };
            let standing = standing_of(db, version.txn(), addr.lsn(), horizon, &guard);
            if matches!(standing, Standing::Unfinished | Standing::Recent(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// See [`Optimized::is_scattered`]: by a look at some leaves of the primary key.
fn is_scattered(db: &Database, table: &Table) -> Result<bool> {
    let Some(primary) = table.indexes.iter().find(|index| index.def.primary) else {
        return Ok(false);
    };
    let parts = primary.parts();
    let (mut neighbours, mut far) = (0_u64, 0_u64);
    let mut batch = Batch::new();
    for leaf in 0..LEAVES {
        let mut before: Option<RowId> = None;
        let share = (f64::from(leaf) + 0.5) / f64::from(LEAVES);
        parts.sample(share, &db.cache, &mut batch, |entry| {
            if let Some(before) = before {
                neighbours += 1;
                far += u64::from(before.raw().abs_diff(entry.row().raw()) > FAR_ROWS);
            }
            before = Some(entry.row());
        })?;
    }
    Ok(far * 2 > neighbours)
}
