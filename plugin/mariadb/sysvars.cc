/*
 * sysvars.cc: system variables pbxt_...: the current ones, and those of the PBXT of 2010, which are accepted
 * so that an old settings file still starts a server, with a warning that names what to use instead.
 *
 * pbxt_data_dir, pbxt_cache_size, pbxt_direct_io, pbxt_encrypt, pbxt_encryption_key_id and
 * pbxt_restore_definitions are read once at start. The others are read at the begin of each statement.
 */
#include "plugin.h"

namespace pbxt {
namespace {

char* data_dir;
ulonglong cache_size;
ulong direct_io;
my_bool encrypt_files;
uint encryption_key_id;
my_bool restore_definitions;
uint flush_log_at_trx_commit;
ulonglong max_snapshot_age;
my_bool print_all_deadlocks;
ulonglong scrub_hours;
my_bool scrub_now;

MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                 "Directory of all PBXT files; a relative path begins at the data directory", NULL, NULL,
                 "#pbxt");
MYSQL_SYSVAR_ULONGLONG(cache_size, cache_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                       "Memory budget of PBXT in bytes; 0 is a quarter of the machine's memory", NULL, NULL,
                       0, 0, ULONGLONG_MAX, 0);
/* The numbers are those of pbxt_options. */
const char* direct_io_names[] = {"OFF", "AUTO", NullS};
TYPELIB direct_io_typelib = {array_elements(direct_io_names) - 1, "pbxt_direct_io", direct_io_names, NULL};
MYSQL_SYSVAR_ENUM(
    direct_io, direct_io, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "How files of rows and indexes are read and commits written. AUTO: past the page cache of the "
    "operating system where it allows that, so that pbxt_cache_size is all the memory of data and "
    "a commit writes no whole pages. OFF: through it",
    NULL, NULL, 1, &direct_io_typelib);
MYSQL_SYSVAR_BOOL(
    encrypt, encrypt_files, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "Encrypt all new files of PBXT, with a key of the server's key management plugin. Files that are "
    "there stay as they are until they are replaced. OFF: they are encrypted while a table is there "
    "that has ENCRYPTED=YES",
    NULL, NULL, FALSE);
MYSQL_SYSVAR_UINT(encryption_key_id, encryption_key_id, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                  "Number of the key that new files are encrypted with, in its newest version", NULL, NULL, 1,
                  1, UINT_MAX32, 0);
MYSQL_SYSVAR_BOOL(restore_definitions, restore_definitions, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "Write the definition files of tables that have none, as after the engine's directory was "
                  "copied from another server",
                  NULL, NULL, FALSE);
MYSQL_SYSVAR_UINT(
    flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
    "1: a commit is on disk when it returns; 2: handed to the operating system, on disk within a second; "
    "0: both within a second",
    NULL, NULL, 1, 0, 2, 0);

void update_max_snapshot_age(THD*, struct st_mysql_sys_var*, void* target, const void* value) {
  max_snapshot_age = *static_cast<ulonglong*>(target) = *static_cast<const ulonglong*>(value);
  apply_settings();
}

MYSQL_SYSVAR_ULONGLONG(max_snapshot_age, max_snapshot_age, PLUGIN_VAR_RQCMDARG,
                       "Seconds after which the snapshot of a transaction is ended if it keeps more log than "
                       "is kept without need; "
                       "0: never",
                       NULL, update_max_snapshot_age, 24 * 3600, 0, 365ULL * 24 * 3600, 0);
void update_print_all_deadlocks(THD*, struct st_mysql_sys_var*, void* target, const void* value) {
  print_all_deadlocks = *static_cast<my_bool*>(target) = *static_cast<const my_bool*>(value);
  apply_settings();
}

MYSQL_SYSVAR_BOOL(
    print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
    "Write every deadlock to the error log; SHOW ENGINE PBXT STATUS has the newest one in any case", NULL,
    update_print_all_deadlocks, FALSE);
void update_scrub_hours(THD*, struct st_mysql_sys_var*, void* target, const void* value) {
  scrub_hours = *static_cast<ulonglong*>(target) = *static_cast<const ulonglong*>(value);
  apply_settings();
}

MYSQL_SYSVAR_ULONGLONG(scrub_hours, scrub_hours, PLUGIN_VAR_RQCMDARG,
                       "Hours in which all files are read once, evenly, and compared with their checksums; "
                       "damage is written to the error log. 0: only when pbxt_scrub_now asks for it",
                       NULL, update_scrub_hours, 7 * 24, 0, 365ULL * 24, 0);

/* An order and no state: the value stays OFF. */
void order_scrub(THD*, struct st_mysql_sys_var*, void*, const void* value) {
  if (db) pbxt_scrub_now(db, *static_cast<const my_bool*>(value));
}

MYSQL_SYSVAR_BOOL(
    scrub_now, scrub_now, PLUGIN_VAR_NOCMDOPT,
    "ON: read all files at once and compare them with their checksums; OFF: end that. The value is "
    "always OFF, the status variables pbxt_scrub_... say how far it is",
    NULL, order_scrub, FALSE);
MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                   "Seconds to wait for a row lock; the shorter one of this and lock_wait_timeout counts",
                   NULL, NULL, 50, 0, 365UL * 24 * 3600, 0);

const char* conflict_mode_names[] = {"ERROR", "WAIT", NullS};
TYPELIB conflict_mode_typelib = {array_elements(conflict_mode_names) - 1, "pbxt_conflict_mode",
                                 conflict_mode_names, NULL};
MYSQL_THDVAR_ENUM(
    conflict_mode, PLUGIN_VAR_RQCMDARG,
    "What an update of a row changed since the snapshot does: ERROR gives error 1020, WAIT goes on with the "
    "newest committed version. The table option CONFLICT_MODE wins over it; SERIALIZABLE is always ERROR",
    NULL, NULL, 0, &conflict_mode_typelib);

const char* foreign_key_drop_names[] = {"ANY", "RESTRICT", NullS};
TYPELIB foreign_key_drop_typelib = {array_elements(foreign_key_drop_names) - 1, "pbxt_foreign_key_drop",
                                    foreign_key_drop_names, NULL};
MYSQL_THDVAR_ENUM(
    foreign_key_drop, PLUGIN_VAR_RQCMDARG,
    "Whether DROP TABLE takes a table that foreign keys of other tables refer to. ANY: tables go in "
    "any order, and children without parent accept no new values until one is there again. "
    "RESTRICT: not while foreign_key_checks is on",
    NULL, NULL, 0, &foreign_key_drop_typelib);
MYSQL_THDVAR_BOOL(
    leave_out_damaged, PLUGIN_VAR_OPCMDARG,
    "Table scans of statements that neither change nor lock rows leave out rows that cannot be read "
    "because a file is damaged, and a note says which ones, instead of ending with an error. For "
    "saving what is left of a table: with it REPAIR TABLE does without these rows",
    NULL, NULL, FALSE);

/* ---- settings of the PBXT of 2010 ---- */

#define PBXT_OLD_SETTINGS(X)                                                       \
  X(index_cache_size, "pbxt_cache_size (one memory budget for everything)")        \
  X(record_cache_size, "pbxt_cache_size (one memory budget for everything)")       \
  X(log_cache_size, "pbxt_cache_size (one memory budget for everything)")          \
  X(transaction_buffer_size, "pbxt_cache_size (one memory budget for everything)") \
  X(log_buffer_size, "pbxt_cache_size (one memory budget for everything)")         \
  X(log_file_threshold, "nothing: it has no counterpart")                          \
  X(log_file_count, "nothing: it has no counterpart")                              \
  X(checkpoint_frequency, "nothing: it has no counterpart")                        \
  X(data_log_threshold, "nothing: it has no counterpart")                          \
  X(data_file_grow_size, "nothing: it has no counterpart")                         \
  X(row_file_grow_size, "nothing: it has no counterpart")                          \
  X(garbage_threshold, "nothing: it has no counterpart")                           \
  X(auto_increment_mode, "nothing: automatic values are never given twice")        \
  X(offline_log_function, "nothing: it has no counterpart")                        \
  X(sweeper_priority, "nothing: it has no counterpart")                            \
  X(support_xa, "nothing: two-phase commit is always on")                          \
  X(max_threads, "nothing: there is no limit of threads")                          \
  X(index_dirty_threshold, "nothing: it has no counterpart")                       \
  X(record_write_threshold, "nothing: it has no counterpart")                      \
  X(trx_log_buffer_size, "pbxt_cache_size (one memory budget for everything)")     \
  X(trx_log_cache_size, "pbxt_cache_size (one memory budget for everything)")      \
  X(trx_log_threshold, "nothing: it has no counterpart")                           \
  X(data_log_cache_size, "pbxt_cache_size (one memory budget for everything)")     \
  X(data_log_buffer_size, "pbxt_cache_size (one memory budget for everything)")    \
  X(dlog_lev2_cache_file, "nothing: it has no counterpart")                        \
  X(dlog_lev2_cache_size, "nothing: it has no counterpart")                        \
  X(dlog_lev2_cache_enabled, "nothing: it has no counterpart")                     \
  X(enable_replication, "the server's replication: see the guide")

/* Some were switches, which an old settings file may name without a value. */
#define PBXT_DECLARE_OLD(name, instead)                                         \
  char* old_##name;                                                             \
  MYSQL_SYSVAR_STR(name, old_##name, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY, \
                   "Setting of an earlier PBXT, accepted without effect; use " instead, NULL, NULL, NULL);
PBXT_OLD_SETTINGS(PBXT_DECLARE_OLD)
#undef PBXT_DECLARE_OLD

}  // namespace

#define PBXT_LIST_OLD(name, instead) MYSQL_SYSVAR(name),
struct st_mysql_sys_var* system_variables[] = {MYSQL_SYSVAR(data_dir),
                                               MYSQL_SYSVAR(cache_size),
                                               MYSQL_SYSVAR(direct_io),
                                               MYSQL_SYSVAR(flush_log_at_trx_commit),
                                               MYSQL_SYSVAR(max_snapshot_age),
                                               MYSQL_SYSVAR(lock_wait_timeout),
                                               MYSQL_SYSVAR(conflict_mode),
                                               MYSQL_SYSVAR(print_all_deadlocks),
                                               MYSQL_SYSVAR(scrub_hours),
                                               MYSQL_SYSVAR(scrub_now),
                                               MYSQL_SYSVAR(foreign_key_drop),
                                               MYSQL_SYSVAR(encrypt),
                                               MYSQL_SYSVAR(encryption_key_id),
                                               MYSQL_SYSVAR(leave_out_damaged),
                                               MYSQL_SYSVAR(restore_definitions),
                                               PBXT_OLD_SETTINGS(PBXT_LIST_OLD) NULL};
#undef PBXT_LIST_OLD

/* A number without its M or G would leave the engine no room to work in. */
constexpr ulonglong kCacheLeast = 1 << 20;

Settings settings_at_start() {
  if (cache_size != 0 && cache_size < kCacheLeast) {
    sql_print_warning("PBXT: pbxt_cache_size is given in bytes, and %llu are too few: %llu are used",
                      cache_size, kCacheLeast);
    cache_size = kCacheLeast;
  }
  return Settings{data_dir,          cache_size,         static_cast<uint8_t>(direct_io),
                  encryption_key_id, encrypt_files != 0, static_cast<bool>(restore_definitions)};
}

void warn_about_old_settings() {
#define PBXT_WARN_OLD(name, instead)                                                         \
  if (old_##name)                                                                            \
    sql_print_warning("PBXT: pbxt_" #name                                                    \
                      "=%s is a setting of an earlier PBXT and has no effect; use " instead, \
                      old_##name);
  PBXT_OLD_SETTINGS(PBXT_WARN_OLD)
#undef PBXT_WARN_OLD
}

void apply_settings() {
  if (!db) return;
  pbxt_set_max_snapshot_age(db, max_snapshot_age);
  pbxt_set_print_all_deadlocks(db, print_all_deadlocks);
  pbxt_set_scrub_hours(db, scrub_hours);
}

uint8_t flush_at_commit() {
  return static_cast<uint8_t>(flush_log_at_trx_commit);
}

/* NOWAIT and WAIT n of a statement change only the server's own lock_wait_timeout, so the shorter one must
 * win. */
ulong lock_wait_timeout_seconds(THD* thd) {
  ulong own = THDVAR(thd, lock_wait_timeout);
  ulong servers = static_cast<ulong>(thd->variables.lock_wait_timeout);
  return own < servers ? own : servers;
}

bool restricts_drops(THD* thd) {
  return THDVAR(thd, foreign_key_drop) == 1;
}

bool leaves_out_damaged(THD* thd) {
  return THDVAR(thd, leave_out_damaged);
}

bool is_applier(THD* thd) {
  return thd->slave_thread || thd->rgi_slave;
}

pbxt_conflict_mode session_conflict_mode(THD* thd) {
  // An applier of a replica must reach the primary's result: it never gives up a row the primary has changed.
  if (is_applier(thd)) return PBXT_CONFLICT_WAIT;
  return THDVAR(thd, conflict_mode) == 0 ? PBXT_CONFLICT_ERROR : PBXT_CONFLICT_WAIT;
}

}  // namespace pbxt
