//! Status: what the database is doing, in numbers and in words.
//!
//! Why it exists: SHOW ENGINE STATUS, status variables and tools ask the same questions.
//! Rules: reading numbers disturbs nobody; only the size on disk asks the file system, and if that does not answer all others are told. No number costs more than a look at
//! the names of all runs: what would need a walk over rows or entries is not shown.

use crate::database::Database;
use crate::error::Result;
use crate::scrub::ScrubStatus;
use crate::session::Session;
use crate::snapshot_age::OldestSnapshot;
use crate::space::Space;
use crate::table::{Index, Table};
use pbxt_base::TableId;
use pbxt_segment::{BlockCacheStats, SegmentClass, SegmentStore};
use pbxt_txlog::LogStats;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Numbers that need a list of the files.
#[derive(Debug, Clone, Copy, Default)]
struct Listed {
    segments: u64,
    space: Space,
    background_jobs: u64,
}

/// Numbers of an open database; totals since open unless said otherwise.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it; bytes and micros are units")]
pub struct Status {
    pub committed: u64,
    pub rolled_back: u64,
    /// Now.
    pub active: u64,
    /// Now.
    pub prepared: u64,
    pub rows_inserted: u64,
    pub rows_updated: u64,
    pub rows_deleted: u64,
    pub rows_read: u64,
    /// Row blocks that scans passed over unread.
    pub blocks_skipped: u64,
    /// Ranges of indexes whose rows were counted and not shown.
    pub ranges_counted: u64,
    pub write_conflicts: u64,
    pub serialization_failures: u64,
    pub deadlocks: u64,
    pub lock_waits: u64,
    pub lock_timeouts: u64,
    /// Waits that a kill ended.
    pub lock_wait_kills: u64,
    /// Now.
    pub lock_waits_now: u64,
    /// Slept in waits that are over.
    pub lock_wait_millis: u64,
    pub lock_wait_millis_max: u64,
    pub log: LogStats,
    /// LSN, now.
    pub tail: u64,
    /// LSN, now.
    pub durable: u64,
    /// Now.
    pub index_bytes: u64,
    /// Now.
    pub row_map_bytes: u64,
    pub blob_bytes: u64,
    /// Now.
    pub segments: u64,
    /// What the bytes on disk are for, now.
    pub space: Space,
    /// False if the files could not be listed: numbers and sizes of files, and of background jobs, are zero then.
    pub is_listed: bool,
    pub recovery_micros: u64,
    pub recovery_bytes: u64,
    pub recovery_records: u64,
    pub checkpoints: u64,
    pub checkpoints_failed: u64,
    /// Milliseconds the last one took.
    pub checkpoint_millis: u64,
    /// Now, 0 or 1.
    pub checkpoints_running: u64,
    /// Bytes of log that recovery would read now.
    pub log_behind_checkpoint: u64,
    /// Bytes of log kept for the rows in it, now.
    pub hot_bytes: u64,
    /// Deleted rows of which index entries may be left, now.
    pub gone_rows: u64,
    pub block_cache: BlockCacheStats,
    pub block_cache_budget: u64,
    /// Of all tables, now.
    pub row_runs: RunTotals,
    /// Of all indexes, now.
    pub index_runs: RunTotals,
    pub segments_compacted: u64,
    pub rows_homed: u64,
    /// Rows that were written while an index was built and came into it beside writers.
    pub build_rows_beside: u64,
    /// The same, while nobody could write the table.
    pub build_rows_held: u64,
    pub merge_bytes_read: u64,
    pub merge_bytes_written: u64,
    /// Background work that is running or due now; see `Database::background_jobs`.
    pub background_jobs: u64,
    /// Live ones, now.
    pub snapshots: u64,
    /// Commits since the oldest live snapshot, now.
    pub oldest_snapshot_age: u64,
    /// Its age, and the log it keeps, now.
    pub oldest_snapshot: OldestSnapshot,
    pub scrub: ScrubStatus,
    /// Nothing can be written any more (rule D9).
    pub is_read_only: bool,
}

/// Runs on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RunTotals {
    pub runs: u64,
    pub pieces: u64,
    pub bytes: u64,
}

/// Numbers of one table.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TableInfo {
    pub id: TableId,
    pub rows: u64,
    /// Stored bytes of runs, and what the rows that are in none take in the log.
    pub data_bytes: u64,
    /// Stored bytes of runs, and bytes of entries in memory.
    pub index_bytes: u64,
    /// Of `data_bytes`, about what superseded and deleted rows take in runs: merges give it back.
    pub superseded_bytes: u64,
    /// Before compression.
    pub mean_row_bytes: u64,
    pub next_auto_increment: u64,
    pub created: u64,
    pub updated: u64,
}

impl Table {
    /// Committed rows now: one load.
    pub fn latest_rows(&self) -> u64 {
        u64::try_from(self.count.latest()).unwrap_or(0)
    }

    fn payload_bytes(&self) -> u64 {
        // Deltas of running transactions may make the estimate negative for a moment.
        let bytes = self.data_bytes.load(Ordering::Relaxed).cast_signed();
        u64::try_from(bytes).unwrap_or(0)
    }

    /// Bytes of a row before compression, for estimates: two loads.
    pub(crate) fn mean_row_bytes(&self) -> u64 {
        self.payload_bytes().checked_div(self.latest_rows()).unwrap_or(0)
    }

    /// Numbers of this table now, for estimates and listings.
    pub fn info(&self) -> TableInfo {
        let rows = self.latest_rows();
        let payload_bytes = self.payload_bytes();
        let mean_row_bytes = self.mean_row_bytes();
        let shape = self.base.shape();
        let slots = shape.slots();
        let data_bytes = match slots {
            0 => payload_bytes,
            // An updated row has a slot, which counts for it.
            _ => shape.stored_bytes() + rows.saturating_sub(slots) * mean_row_bytes,
        };
        let runs: u64 = self.indexes.iter().map(Index::run_bytes).sum();
        // Each row that is there has a slot at most; the others are all alike, as far as anybody knows.
        let superseded = slots.saturating_sub(rows);
        let share = superseded as f64 / slots.max(1) as f64;
        TableInfo {
            id: self.id,
            rows,
            data_bytes,
            index_bytes: self.index_bytes() + runs,
            superseded_bytes: (shape.stored_bytes() as f64 * share) as u64,
            mean_row_bytes,
            next_auto_increment: self.autoinc.next(),
            created: self.def().created,
            updated: self.updated.load(Ordering::Relaxed),
        }
    }
}

impl Index {
    fn run_bytes(&self) -> u64 {
        self.parts().runs.iter().map(|run| run.stored_bytes()).sum()
    }

    pub(crate) fn run_totals(&self) -> RunTotals {
        let parts = self.parts();
        RunTotals {
            runs: parts.runs.len() as u64,
            pieces: parts.runs.iter().map(|run| run.pieces.len() as u64).sum(),
            bytes: parts.runs.iter().map(|run| run.stored_bytes()).sum(),
        }
    }
}

impl Table {
    pub(crate) fn run_totals(&self) -> RunTotals {
        let shape = self.base.shape();
        RunTotals {
            runs: shape.runs.len() as u64,
            pieces: shape.runs.iter().map(|run| run.pieces.len() as u64).sum(),
            bytes: shape.stored_bytes(),
        }
    }
}

impl std::iter::Sum for RunTotals {
    fn sum<I: Iterator<Item = Self>>(totals: I) -> Self {
        totals.fold(Self::default(), |sum, more| Self {
            runs: sum.runs + more.runs,
            pieces: sum.pieces + more.pieces,
            bytes: sum.bytes + more.bytes,
        })
    }
}

impl Session {
    /// Exact number of rows of the table for this session, own changes included. O(log of recent commits).
    pub fn count(&mut self, table: &Table) -> Result<u64> {
        self.refuse_if_doomed()?;
        self.ensure_active();
        let snapshot = self.snapshot();
        self.note_count_read(table);
        let rows = table.count.at(snapshot) + self.row_delta(table);
        Ok(u64::try_from(rows).unwrap_or(0))
    }
}

impl Database {
    /// Numbers now.
    pub fn status(&self) -> Status {
        let files = self.listed();
        let listed = files.as_ref().copied().unwrap_or_default();
        let tables = self.catalog.tables();
        let live = self.txns.live_snapshots();
        let counters = &self.counters;
        let maintenance = self.maintenance_status();
        let upkeep = self.upkeep_counters();
        let tail = self.log.tail().raw();
        let indexes = tables.iter().flat_map(|table| &table.indexes);
        Status {
            committed: counters.committed.get(),
            rolled_back: counters.rolled_back.get(),
            active: self.waits.attached() as u64,
            prepared: self.prepared.count() as u64,
            rows_inserted: counters.rows_inserted.get(),
            rows_updated: counters.rows_updated.get(),
            rows_deleted: counters.rows_deleted.get(),
            rows_read: counters.rows_read.get(),
            blocks_skipped: counters.blocks_skipped.get(),
            ranges_counted: counters.ranges_counted.get(),
            write_conflicts: counters.write_conflicts.get(),
            serialization_failures: counters.serialization_failures.get(),
            deadlocks: self.waits.deadlocks.load(Ordering::Relaxed),
            lock_waits: self.waits.total.load(Ordering::Relaxed),
            lock_timeouts: self.waits.timeouts.load(Ordering::Relaxed),
            lock_wait_kills: self.waits.kills.load(Ordering::Relaxed),
            lock_waits_now: self.waits.waiting.load(Ordering::Relaxed),
            lock_wait_millis: self.waits.waited_millis.load(Ordering::Relaxed),
            lock_wait_millis_max: self.waits.waited_millis_max.load(Ordering::Relaxed),
            log: self.log.stats(),
            tail,
            durable: self.log.durable().raw(),
            index_bytes: tables.iter().map(|table| table.index_bytes()).sum(),
            row_map_bytes: tables.iter().map(|table| table.map.memory_bytes() as u64).sum(),
            blob_bytes: self.blobs.bytes_written(),
            segments: listed.segments,
            space: listed.space,
            is_listed: files.is_ok(),
            recovery_micros: counters.recovery_micros.get(),
            recovery_bytes: counters.recovery_bytes.get(),
            recovery_records: counters.recovery_records.get(),
            checkpoints: maintenance.checkpoints,
            checkpoints_failed: maintenance.failures,
            checkpoint_millis: maintenance.last_millis,
            checkpoints_running: maintenance.running,
            log_behind_checkpoint: self.log_behind_checkpoint(),
            hot_bytes: self.hot_bytes(),
            gone_rows: tables.iter().map(|table| table.gone.len()).sum(),
            block_cache: self.cache.stats(),
            block_cache_budget: self.cache.budget(),
            row_runs: tables.iter().map(|table| table.run_totals()).sum(),
            index_runs: indexes.map(Index::run_totals).sum(),
            segments_compacted: upkeep.segments_compacted.get(),
            rows_homed: upkeep.rows_homed.get(),
            build_rows_beside: counters.build_rows_beside.get(),
            build_rows_held: counters.build_rows_held.get(),
            merge_bytes_read: upkeep.merge_bytes_read.get(),
            merge_bytes_written: upkeep.merge_bytes_written.get(),
            background_jobs: listed.background_jobs,
            snapshots: live.timestamps().len() as u64,
            oldest_snapshot_age: live.frontier().raw() - live.horizon().raw(),
            oldest_snapshot: self.oldest_snapshot(self.clock.now_millis()),
            scrub: self.scrub_status(),
            is_read_only: self.poison.is_set(),
        }
    }

    /// What only a list of the files tells.
    fn listed(&self) -> Result<Listed> {
        Ok(Listed {
            segments: self.store.list(SegmentClass::Hot)?.len() as u64
                + self.store.list(SegmentClass::Blob)?.len() as u64,
            space: self.space()?,
            background_jobs: self.background_jobs()?,
        })
    }

    /// Everything above in words, for people.
    pub fn status_report(&self) -> String {
        let mut out = String::new();
        self.write_report(&mut out, &self.status());
        if let Err(error) = self.listed() {
            let _ = writeln!(
                out,
                "Sizes and numbers of files, and background jobs, are not known: {error}"
            );
        }
        out
    }

    fn write_report(&self, out: &mut String, now: &Status) {
        const MIB: u64 = 1 << 20;
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!("PBXT {} STATUS OUTPUT", env!("CARGO_PKG_VERSION")));
        line(format!("Database: {}", self.store.location()));
        write_files(&mut line, &self.store);
        line(format!(
            "Health: {}",
            self.poisoned()
                .map_or("good".into(), |why| format!("READ-ONLY, {why}"))
        ));
        write_caches(&mut line, now, self.cache_bytes);
        line("----- transaction log".into());
        line(format!(
            "Data log files: {}, {} MiB on disk",
            now.segments,
            now.space.total() / MIB
        ));
        line(format!("Tail LSN {}, durable LSN {}", now.tail, now.durable));
        line(format!(
            "{} bytes in {} batches and {} syncs",
            now.log.bytes_written, now.log.batches, now.log.syncs
        ));
        line(format!(
            "Last recovery: {} records in {} ms",
            now.recovery_records,
            now.recovery_micros / 1000
        ));
        line(format!(
            "{} checkpoints ({} failed), the last one in {} ms, {} running; {} MiB of log behind it",
            now.checkpoints,
            now.checkpoints_failed,
            now.checkpoint_millis,
            now.checkpoints_running,
            now.log_behind_checkpoint / MIB
        ));
        write_storage(&mut line, now);
        write_scrub(&mut line, &now.scrub);
        write_transactions(&mut line, now);
        line("----- locks".into());
        line(format!(
            "{} waits, {} timeouts, {} kills of waits, {} write conflicts, {} deadlocks",
            now.lock_waits, now.lock_timeouts, now.lock_wait_kills, now.write_conflicts, now.deadlocks
        ));
        line(format!(
            "{} waits now; {} ms waited in all, {} ms at most",
            now.lock_waits_now, now.lock_wait_millis, now.lock_wait_millis_max
        ));
        let serial = self.serial_usage();
        line(format!(
            "SERIALIZABLE: {} transactions, {} of them ended and kept because of others, {} footprints; {} transactions ended by rule T29",
            serial.txns, serial.ended, serial.footprints, now.serialization_failures
        ));
        let usage = self.row_locks.usage();
        line(format!(
            "Explicit row locks: {} in {} bytes",
            usage.locks, usage.bytes
        ));
        if let Some(deadlock) = self.waits.latest_deadlock() {
            out.push_str("----- LATEST DETECTED DEADLOCK\n");
            out.push_str(&deadlock);
        }
    }
}

/// How files are read and written.
fn write_files(line: &mut impl FnMut(String), store: &SegmentStore) {
    line(format!("Rows and indexes are read {}", store.block_reads()));
    line(format!("The log is written {}", store.log_writes()));
    let not = if store.encrypts_new_files() { "" } else { "not " };
    line(format!("New files are {not}encrypted"));
}

/// What is kept in memory; `cache_bytes` is the setting.
fn write_caches(line: &mut impl FnMut(String), now: &Status, cache_bytes: u64) {
    const MIB: u64 = 1 << 20;
    line("----- caches".into());
    line(format!(
        "Record cache size: part of the {} MiB of all caches",
        cache_bytes / MIB
    ));
    line(format!(
        "Record cache usage: {} MiB ({} hits, {} misses)",
        now.log.cache_bytes / MIB,
        now.log.cache_hits,
        now.log.cache_misses
    ));
    line(format!(
        "Index cache size: {} MiB, for blocks of rows and of indexes",
        now.block_cache_budget / MIB
    ));
    line(format!(
        "Index cache usage: {} MiB ({} hits, {} misses), and {} MiB of entries not yet in runs",
        now.block_cache.bytes / MIB,
        now.block_cache.hits,
        now.block_cache.misses,
        now.index_bytes / MIB
    ));
    line(format!("Row map usage: {} MiB", now.row_map_bytes / MIB));
    line("Log cache size: part of the record cache".into());
    line(format!(
        "Log cache usage: {} MiB not yet durable",
        (now.tail - now.durable.min(now.tail)) / MIB
    ));
}

fn write_transactions(line: &mut impl FnMut(String), now: &Status) {
    line("----- transactions".into());
    line(format!(
        "{} committed, {} rolled back, {} running, {} prepared",
        now.committed, now.rolled_back, now.active, now.prepared
    ));
    line(format!(
        "{} snapshots, the oldest {} commits and {} s old; it keeps {} MiB of log",
        now.snapshots,
        now.oldest_snapshot_age,
        now.oldest_snapshot.age_seconds,
        now.oldest_snapshot.log_bytes >> 20
    ));
    line(format!(
        "Rows: {} inserted, {} updated, {} deleted",
        now.rows_inserted, now.rows_updated, now.rows_deleted
    ));
}

/// Where rows and entries are, and what moves them.
fn write_storage(line: &mut impl FnMut(String), now: &Status) {
    const MIB: u64 = 1 << 20;
    line("----- storage".into());
    line(format!(
        "Log kept for rows: {} MiB; {} deleted rows have index entries left",
        now.hot_bytes / MIB,
        now.gone_rows
    ));
    for (what, totals) in [("Row", now.row_runs), ("Index", now.index_runs)] {
        line(format!(
            "{what} runs: {} MiB in {} runs of {} pieces",
            totals.bytes / MIB,
            totals.runs,
            totals.pieces
        ));
    }
    let space = now.space;
    line(format!(
        "Log on disk: {} MiB for rows, {} MiB until the next checkpoint, {} MiB set aside",
        space.log_rows / MIB,
        space.log_unneeded / MIB,
        space.log_ahead / MIB
    ));
    for (what, [base, upper, dead, unnamed]) in [
        (
            "Rows",
            [space.row_base, space.row_upper, space.row_dead, space.row_unnamed],
        ),
        (
            "Indexes",
            [
                space.index_base,
                space.index_upper,
                space.index_dead,
                space.index_unnamed,
            ],
        ),
    ] {
        line(format!(
            "{what} on disk: {} MiB in oldest runs, {} MiB in newer ones, {} MiB superseded beside them, {} MiB until the next checkpoint",
            base / MIB,
            upper / MIB,
            dead / MIB,
            unnamed / MIB
        ));
    }
    line(format!(
        "Compaction: {} rows moved from {} log segments; merges: {} MiB read, {} MiB written",
        now.rows_homed,
        now.segments_compacted,
        now.merge_bytes_read / MIB,
        now.merge_bytes_written / MIB
    ));
    line(format!("Background jobs running or due: {}", now.background_jobs));
}

/// How far the files were read through, and what came of it.
fn write_scrub(line: &mut impl FnMut(String), now: &ScrubStatus) {
    line("----- scrubbing".into());
    line(match now.hours {
        0 => "All files are read when it is asked for".into(),
        hours => format!("All files are read once in {hours} hours"),
    });
    line(if now.is_running {
        format!("A pass is under way: {} %", now.percent)
    } else {
        "No pass is under way".into()
    });
    line(format!(
        "Passes: {}, the last one in {} s; {} MiB read; {} places found damaged",
        now.passes,
        now.last_pass_seconds,
        now.bytes_read >> 20,
        now.damage_found
    ));
}
