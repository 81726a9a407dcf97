/*
 * plugin.h: what all files of the MariaDB plugin share: server headers in their working order, the one open
 * database, settings, and the few functions that cross file borders.
 *
 * The plugin only translates between the server's handler interface and the C interface of the engine
 * (pbxt.h). It takes no storage decision, keeps no rows and no locks of its own, and starts no threads.
 * HOST_NOTES.md lists the server facts it relies on. No C++ exception leaves it: functions that allocate are
 * noexcept, so that a server without a few bytes of memory ends instead of unwinding through frames that
 * cannot be unwound.
 */
#ifndef PBXT_PLUGIN_H
#define PBXT_PLUGIN_H

// Services are called by their exported names: with MYSQL_DYNAMIC_PLUGIN the headers go through pointers that
// a library of the server's source tree would have to define. Only the file that declares the plugin needs
// it.
#ifndef PBXT_DECLARES_PLUGIN
#undef MYSQL_DYNAMIC_PLUGIN
#endif

#include "my_global.h"
// The server's headers need my_global.h first and this order.
#include "handler.h"
#include "key.h"
#include "sql_class.h"
#include "sql_show.h"
#include "table.h"

#include "pbxt.h"

#if MYSQL_VERSION_ID < 101100 || MYSQL_VERSION_ID >= 101200
#error \
    "This plugin translates the handler interface of MariaDB 10.11: build it with the headers of a 10.11 server."
#endif

/* Table options of CREATE TABLE; the server demands this name. */
struct ha_table_option_struct {
  uint conflict_mode; /* position in "DEFAULT,ERROR,WAIT" = pbxt_conflict_mode */
  uint compression;   /* position in "DEFAULT,NONE,LZ4,ZSTD" = pbxt_table_def.compression */
  uint encrypted;     /* position in "DEFAULT,YES,NO" */
  /* InnoDB's, taken so that its tables convert and its dumps load; without effect. */
  bool page_compressed;
  ulonglong page_compression_level;
  ulonglong encryption_key_id;
  uint atomic_writes; /* position in "DEFAULT,ON,OFF" */
};

namespace pbxt {

extern handlerton* hton;
extern pbxt_db* db; /* null until init() succeeded and after the close */

/* sysvars.cc */
struct Settings {
  const char* data_dir;
  uint64_t cache_bytes;
  uint8_t direct_io;
  uint32_t encryption_key; /* of new files that are encrypted */
  bool encrypts_all;
  bool restore_definitions;
};
Settings settings_at_start();
void apply_settings(); /* those that can be changed at any time; nothing while the database is not open */
void warn_about_old_settings();
uint8_t flush_at_commit();
ulong lock_wait_timeout_seconds(THD* thd);
bool is_applier(THD* thd);      /* of a replica */
bool restricts_drops(THD* thd); /* pbxt_foreign_key_drop */
bool leaves_out_damaged(THD* thd);
pbxt_conflict_mode session_conflict_mode(THD* thd);
extern struct st_mysql_sys_var* system_variables[];

/* status.cc */
extern struct st_mysql_show_var status_variables[];
bool show_engine_status(handlerton* hton, THD* thd, stat_print_fn* print, ha_stat_type type);

/* i_s.cc */
int init_txn_table(void* schema_table);
int init_lock_table(void* schema_table);
int init_lock_wait_table(void* schema_table);

/* i_s_storage.cc */
int init_tables_table(void* schema_table);
int init_indexes_table(void* schema_table);
int init_runs_table(void* schema_table);
int init_segments_table(void* schema_table);
int init_caches_table(void* schema_table);
int init_statistics_table(void* schema_table);
int init_index_statistics_table(void* schema_table);

/* host_callbacks.cc */
const pbxt_host* host_callbacks();

/* keys.cc */
const pbxt_keys* keys();
bool asks_for_encryption(const ha_table_option_struct* options);
const char* refuse_encryption(const ha_table_option_struct* options); /* null, or why they cannot be */

/* ha_pbxt_ddl.cc: options of InnoDB that are new and have no effect here; `before` may be null */
void warn_about_options(THD* thd, const ha_table_option_struct* options,
                        const ha_table_option_struct* before);

/* instruments.cc */
const pbxt_instruments* instruments(); /* null while the performance schema is off */

/* handlerton.cc and xa.cc fill in the server's table of entry points. */
void install_transaction_hooks(handlerton* hton);
void install_xa_hooks(handlerton* hton);
void install_table_hooks(handlerton* hton);

}  // namespace pbxt

#endif
