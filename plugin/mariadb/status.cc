/*
 * status.cc: SHOW STATUS LIKE 'Pbxt%', SHOW ENGINE PBXT STATUS and MUTEX.
 *
 * The counters are the engine's own, copied under no lock at each SHOW. The copy is shared by all
 * connections: two that ask at the same moment may see each other's, equally fresh, numbers.
 */
#include "plugin.h"

#include <stdio.h>
#include <string.h>

namespace pbxt {
namespace {

pbxt_counters counters;

#define PBXT_COUNTER(name) {#name, reinterpret_cast<char*>(&counters.name), SHOW_ULONGLONG}

SHOW_VAR counter_variables[] = {PBXT_COUNTER(txns_committed),
                                PBXT_COUNTER(txns_rolled_back),
                                PBXT_COUNTER(txns_active_now),
                                PBXT_COUNTER(txns_prepared_now),
                                PBXT_COUNTER(rows_inserted),
                                PBXT_COUNTER(rows_updated),
                                PBXT_COUNTER(rows_deleted),
                                PBXT_COUNTER(rows_read),
                                PBXT_COUNTER(blocks_skipped),
                                PBXT_COUNTER(ranges_counted),
                                PBXT_COUNTER(write_conflicts),
                                PBXT_COUNTER(serialization_failures),
                                PBXT_COUNTER(deadlocks),
                                PBXT_COUNTER(lock_waits),
                                PBXT_COUNTER(lock_timeouts),
                                PBXT_COUNTER(lock_wait_kills),
                                PBXT_COUNTER(lock_waits_now),
                                PBXT_COUNTER(lock_wait_millis),
                                PBXT_COUNTER(lock_wait_millis_max),
                                PBXT_COUNTER(log_bytes_written),
                                PBXT_COUNTER(log_batches),
                                PBXT_COUNTER(log_syncs),
                                PBXT_COUNTER(log_tail_lsn),
                                PBXT_COUNTER(log_durable_lsn),
                                PBXT_COUNTER(cache_bytes_now),
                                PBXT_COUNTER(cache_hits),
                                PBXT_COUNTER(cache_misses),
                                PBXT_COUNTER(index_memory_bytes_now),
                                PBXT_COUNTER(row_map_memory_bytes_now),
                                PBXT_COUNTER(blob_bytes_written),
                                PBXT_COUNTER(segments_now),
                                PBXT_COUNTER(data_bytes_on_disk_now),
                                PBXT_COUNTER(space_log_rows_now),
                                PBXT_COUNTER(space_log_unneeded_now),
                                PBXT_COUNTER(space_log_ahead_now),
                                PBXT_COUNTER(space_row_base_now),
                                PBXT_COUNTER(space_row_upper_now),
                                PBXT_COUNTER(space_row_dead_now),
                                PBXT_COUNTER(space_row_unnamed_now),
                                PBXT_COUNTER(space_index_base_now),
                                PBXT_COUNTER(space_index_upper_now),
                                PBXT_COUNTER(space_index_dead_now),
                                PBXT_COUNTER(space_index_unnamed_now),
                                PBXT_COUNTER(space_image_now),
                                PBXT_COUNTER(space_blob_now),
                                PBXT_COUNTER(space_manifest_now),
                                PBXT_COUNTER(recovery_micros),
                                PBXT_COUNTER(recovery_log_bytes),
                                PBXT_COUNTER(recovery_records),
                                PBXT_COUNTER(snapshots_now),
                                PBXT_COUNTER(oldest_snapshot_age_commits),
                                PBXT_COUNTER(oldest_snapshot_age_seconds),
                                PBXT_COUNTER(oldest_snapshot_log_bytes),
                                PBXT_COUNTER(block_cache_budget_bytes_now),
                                PBXT_COUNTER(block_cache_bytes_now),
                                PBXT_COUNTER(block_cache_hits),
                                PBXT_COUNTER(block_cache_misses),
                                PBXT_COUNTER(checkpoints_made),
                                PBXT_COUNTER(checkpoints_failed),
                                PBXT_COUNTER(checkpoints_running_now),
                                PBXT_COUNTER(checkpoint_last_millis),
                                PBXT_COUNTER(log_bytes_behind_checkpoint_now),
                                PBXT_COUNTER(hot_log_bytes_now),
                                PBXT_COUNTER(gone_rows_now),
                                PBXT_COUNTER(segments_compacted),
                                PBXT_COUNTER(rows_homed),
                                PBXT_COUNTER(build_rows_beside),
                                PBXT_COUNTER(build_rows_held),
                                PBXT_COUNTER(merge_bytes_read),
                                PBXT_COUNTER(merge_bytes_written),
                                PBXT_COUNTER(row_runs_now),
                                PBXT_COUNTER(row_pieces_now),
                                PBXT_COUNTER(row_run_bytes_now),
                                PBXT_COUNTER(index_runs_now),
                                PBXT_COUNTER(index_pieces_now),
                                PBXT_COUNTER(index_run_bytes_now),
                                PBXT_COUNTER(background_jobs_now),
                                PBXT_COUNTER(scrub_passes),
                                PBXT_COUNTER(scrub_bytes_read),
                                PBXT_COUNTER(scrub_damage_found),
                                PBXT_COUNTER(scrub_progress_now),
                                PBXT_COUNTER(scrub_last_pass_seconds),
                                PBXT_COUNTER(read_only),
                                {NullS, NullS, SHOW_LONG}};

int fill_counters(MYSQL_THD, SHOW_VAR* variable, void*, struct system_status_var*, enum enum_var_type) {
  pbxt_counters fresh{};
  if (db && pbxt_get_counters(db, &fresh) == PBXT_OK) counters = fresh;
  variable->type = SHOW_ARRAY;
  variable->value = counter_variables;
  return 0;
}

}  // namespace

struct st_mysql_show_var status_variables[] = {SHOW_FUNC_ENTRY("pbxt", &fill_counters),
                                               {NullS, NullS, SHOW_LONG}};

namespace {

struct LatchPrinter {
  THD* thd;
  stat_print_fn* print;
  bool failed;
};

int print_latch(void* context, pbxt_text name, uint64_t contended) {
  LatchPrinter* printer = static_cast<LatchPrinter*>(context);
  char times[32];
  size_t length = static_cast<size_t>(snprintf(times, sizeof(times), "waits=%llu", (ulonglong)contended));
  printer->failed =
      printer->print(printer->thd, STRING_WITH_LEN("PBXT"), name.bytes, name.len, times, length);
  return printer->failed;
}

/* The engine's latches are its own; the server's performance schema does not know them. */
bool show_latches(THD* thd, stat_print_fn* print) {
  LatchPrinter printer{thd, print, false};
  return pbxt_list_latches(db, print_latch, &printer) != PBXT_OK || printer.failed;
}

}  // namespace

bool show_engine_status(handlerton*, THD* thd, stat_print_fn* print, ha_stat_type type) {
  if (type == HA_ENGINE_MUTEX) return show_latches(thd, print);
  if (type != HA_ENGINE_STATUS) return false;
  char* text = nullptr;
  size_t length = 0;
  if (pbxt_status_report(db, &text, &length) != PBXT_OK) {
    my_printf_error(ER_UNKNOWN_ERROR, "PBXT: no status report: %s", MYF(0), pbxt_error_text());
    return true;
  }
  bool failed = print(thd, STRING_WITH_LEN("PBXT"), STRING_WITH_LEN(""), text, length);
  pbxt_text_free(text);
  return failed;
}

}  // namespace pbxt
