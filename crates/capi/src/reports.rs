//! Reports: status text and counters.

use crate::database::{PbxtDb, database};
use crate::guard::call;
use crate::status::Status;
use pbxt::{ScrubStatus, Space};
use std::ffi::{CString, c_char};

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_status_report(
    db: *mut PbxtDb,
    text: *mut *mut c_char,
    len: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let report = unsafe { database(db)? }.db.status_report();
        let report = CString::new(report.replace('\0', " ")).unwrap_or_default();
        // SAFETY: places of the caller.
        unsafe {
            *len = report.as_bytes().len();
            *text = report.into_raw();
        }
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the text came from `pbxt_status_report` and is given back once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// `pbxt_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtCounters {
    pub txns_committed: u64,
    pub txns_rolled_back: u64,
    pub txns_active_now: u64,
    pub txns_prepared_now: u64,
    pub rows_inserted: u64,
    pub rows_updated: u64,
    pub rows_deleted: u64,
    pub rows_read: u64,
    pub blocks_skipped: u64,
    pub ranges_counted: u64,
    pub write_conflicts: u64,
    pub serialization_failures: u64,
    pub deadlocks: u64,
    pub lock_waits: u64,
    pub lock_timeouts: u64,
    pub lock_wait_kills: u64,
    pub lock_waits_now: u64,
    pub lock_wait_millis: u64,
    pub lock_wait_millis_max: u64,
    pub log_bytes_written: u64,
    pub log_batches: u64,
    pub log_syncs: u64,
    pub log_tail_lsn: u64,
    pub log_durable_lsn: u64,
    pub cache_bytes_now: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub index_memory_bytes_now: u64,
    pub row_map_memory_bytes_now: u64,
    pub blob_bytes_written: u64,
    pub segments_now: u64,
    pub data_bytes_on_disk_now: u64,
    pub space_log_rows_now: u64,
    pub space_log_unneeded_now: u64,
    pub space_log_ahead_now: u64,
    pub space_row_base_now: u64,
    pub space_row_upper_now: u64,
    pub space_row_dead_now: u64,
    pub space_row_unnamed_now: u64,
    pub space_index_base_now: u64,
    pub space_index_upper_now: u64,
    pub space_index_dead_now: u64,
    pub space_index_unnamed_now: u64,
    pub space_image_now: u64,
    pub space_blob_now: u64,
    pub space_manifest_now: u64,
    pub recovery_micros: u64,
    pub recovery_log_bytes: u64,
    pub recovery_records: u64,
    pub snapshots_now: u64,
    pub oldest_snapshot_age_commits: u64,
    pub oldest_snapshot_age_seconds: u64,
    pub oldest_snapshot_log_bytes: u64,
    pub block_cache_budget_bytes_now: u64,
    pub block_cache_bytes_now: u64,
    pub block_cache_hits: u64,
    pub block_cache_misses: u64,
    pub checkpoints_made: u64,
    pub checkpoints_failed: u64,
    pub checkpoints_running_now: u64,
    pub checkpoint_last_millis: u64,
    pub log_bytes_behind_checkpoint_now: u64,
    pub hot_log_bytes_now: u64,
    pub gone_rows_now: u64,
    pub segments_compacted: u64,
    pub rows_homed: u64,
    pub build_rows_beside: u64,
    pub build_rows_held: u64,
    pub merge_bytes_read: u64,
    pub merge_bytes_written: u64,
    pub row_runs_now: u64,
    pub row_pieces_now: u64,
    pub row_run_bytes_now: u64,
    pub index_runs_now: u64,
    pub index_pieces_now: u64,
    pub index_run_bytes_now: u64,
    pub background_jobs_now: u64,
    pub scrub_passes: u64,
    pub scrub_bytes_read: u64,
    pub scrub_damage_found: u64,
    pub scrub_progress_now: u64,
    pub scrub_last_pass_seconds: u64,
    pub read_only: u64,
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_get_counters(db: *mut PbxtDb, out: *mut PbxtCounters) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let now = unsafe { database(db)? }.db.status();
        let counters = PbxtCounters {
            txns_committed: now.committed,
            txns_rolled_back: now.rolled_back,
            txns_active_now: now.active,
            txns_prepared_now: now.prepared,
            rows_inserted: now.rows_inserted,
            rows_updated: now.rows_updated,
            rows_deleted: now.rows_deleted,
            rows_read: now.rows_read,
            blocks_skipped: now.blocks_skipped,
            ranges_counted: now.ranges_counted,
            write_conflicts: now.write_conflicts,
            serialization_failures: now.serialization_failures,
            deadlocks: now.deadlocks,
            lock_waits: now.lock_waits,
            lock_timeouts: now.lock_timeouts,
            lock_wait_kills: now.lock_wait_kills,
            lock_waits_now: now.lock_waits_now,
            lock_wait_millis: now.lock_wait_millis,
            lock_wait_millis_max: now.lock_wait_millis_max,
            log_bytes_written: now.log.bytes_written,
            log_batches: now.log.batches,
            log_syncs: now.log.syncs,
            log_tail_lsn: now.tail,
            log_durable_lsn: now.durable,
            cache_bytes_now: now.log.cache_bytes,
            cache_hits: now.log.cache_hits,
            cache_misses: now.log.cache_misses,
            index_memory_bytes_now: now.index_bytes,
            row_map_memory_bytes_now: now.row_map_bytes,
            blob_bytes_written: now.blob_bytes,
            segments_now: now.segments,
            data_bytes_on_disk_now: now.space.total(),
            recovery_micros: now.recovery_micros,
            recovery_log_bytes: now.recovery_bytes,
            recovery_records: now.recovery_records,
            snapshots_now: now.snapshots,
            oldest_snapshot_age_commits: now.oldest_snapshot_age,
            oldest_snapshot_age_seconds: now.oldest_snapshot.age_seconds,
            oldest_snapshot_log_bytes: now.oldest_snapshot.log_bytes,
            block_cache_budget_bytes_now: now.block_cache_budget,
            block_cache_bytes_now: now.block_cache.bytes,
            block_cache_hits: now.block_cache.hits,
            block_cache_misses: now.block_cache.misses,
            checkpoints_made: now.checkpoints,
            checkpoints_failed: now.checkpoints_failed,
            checkpoints_running_now: now.checkpoints_running,
            checkpoint_last_millis: now.checkpoint_millis,
            log_bytes_behind_checkpoint_now: now.log_behind_checkpoint,
            hot_log_bytes_now: now.hot_bytes,
            gone_rows_now: now.gone_rows,
            segments_compacted: now.segments_compacted,
            rows_homed: now.rows_homed,
            merge_bytes_read: now.merge_bytes_read,
            merge_bytes_written: now.merge_bytes_written,
            row_runs_now: now.row_runs.runs,
            row_pieces_now: now.row_runs.pieces,
            row_run_bytes_now: now.row_runs.bytes,
            index_runs_now: now.index_runs.runs,
            index_pieces_now: now.index_runs.pieces,
            index_run_bytes_now: now.index_runs.bytes,
            background_jobs_now: now.background_jobs,
            read_only: u64::from(now.is_read_only),
            ..space_scrub_and_builds(&now)
        };
        // SAFETY: a place of the caller.
        unsafe { *out = counters };
        Ok(())
    })
}

/// The counters that say what the bytes on disk are for, what came of reading them, and of builds of indexes.
fn space_scrub_and_builds(now: &pbxt::Status) -> PbxtCounters {
    let (space, scrub): (&Space, &ScrubStatus) = (&now.space, &now.scrub);
    PbxtCounters {
        build_rows_beside: now.build_rows_beside,
        build_rows_held: now.build_rows_held,
        scrub_passes: scrub.passes,
        scrub_bytes_read: scrub.bytes_read,
        scrub_damage_found: scrub.damage_found,
        scrub_progress_now: scrub.percent,
        scrub_last_pass_seconds: scrub.last_pass_seconds,
        space_log_rows_now: space.log_rows,
        space_log_unneeded_now: space.log_unneeded,
        space_log_ahead_now: space.log_ahead,
        space_row_base_now: space.row_base,
        space_row_upper_now: space.row_upper,
        space_row_dead_now: space.row_dead,
        space_row_unnamed_now: space.row_unnamed,
        space_index_base_now: space.index_base,
        space_index_upper_now: space.index_upper,
        space_index_dead_now: space.index_dead,
        space_index_unnamed_now: space.index_unnamed,
        space_image_now: space.image,
        space_blob_now: space.blob,
        space_manifest_now: space.manifest,
        ..PbxtCounters::default()
    }
}
