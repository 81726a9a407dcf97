/*
 * handlerton.cc: the server's entry points of the engine as a whole: connections, transactions, savepoints,
 * logs, and the operations on tables by path alone.
 *
 * The operations by path are also called by the server's DDL recovery, without a table definition and
 * possibly again for work already done: the engine does each of them completely or not at all, and "not
 * there" is a plain answer.
 */
#include <string.h>

#include <string>
#include <vector>

#include "counted_range.h"
#include "definition_files.h"
#include "error_map.h"
#include "foreign_keys_ddl.h"
#include "ha_pbxt.h"
#include "session.h"

namespace pbxt {
namespace {

/* ---- connections ---- */

int close_connection(handlerton* hton, THD* thd) {
  Session* session = Session::find(thd);
  if (!session) return 0;
  thd_set_ha_data(thd, hton, nullptr);  // first: from here on no killer finds the session
  session->close();
  return 0;
}

/* Runs in the killer's thread, which holds the victim's LOCK_thd_data. */
void kill_query(handlerton*, THD* thd, enum thd_kill_levels) {
  if (Session* session = Session::find(thd)) pbxt_session_kill(session->core());
}

/* ---- transactions ---- */

int commit(handlerton*, THD* thd, bool all) {
  Session* session = Session::find(thd);
  return session ? session->commit(all) : 0;
}

/* For mysql.transaction_registry, which the server writes. */
ulonglong prepare_commit_versioned(THD* thd, ulonglong* transaction_id) {
  Session* session = Session::find(thd);
  return session ? session->commit_id(transaction_id) : 0;
}

int rollback(handlerton*, THD* thd, bool all) {
  Session* session = Session::find(thd);
  return session ? session->rollback(all) : 0;
}

int savepoint_set(handlerton*, THD* thd, void* place) {
  int error = 0;
  Session* session = Session::get(thd, &error);
  if (!session) return error;
  uint64_t savepoint = 0;
  error = to_ha_error(pbxt_savepoint(session->core(), &savepoint), thd);
  memcpy(place, &savepoint, sizeof(savepoint));
  return error;
}

int savepoint_rollback(handlerton*, THD* thd, void* place) {
  Session* session = Session::find(thd);
  if (!session) return HA_ERR_NO_SAVEPOINT;
  uint64_t savepoint = 0;
  memcpy(&savepoint, place, sizeof(savepoint));
  return to_ha_error(pbxt_rollback_to(session->core(), savepoint), thd);
}

/* Also called for a savepoint whose name is set again: those in between stay then. RELEASE SAVEPOINT drops
 * them without another call. */
int savepoint_release(handlerton*, THD* thd, void* place) {
  Session* session = Session::find(thd);
  if (!session) return 0;
  uint64_t savepoint = 0;
  memcpy(&savepoint, place, sizeof(savepoint));
  bool with_newer = thd_sql_command(thd) == SQLCOM_RELEASE_SAVEPOINT;
  return to_ha_error(pbxt_savepoint_release(session->core(), savepoint, with_newer), thd);
}

/* A rollback to a savepoint gives no locks back, and which of them are older than it the server does not ask.
 * The snapshot needs no table: who comes back to one that was changed meanwhile is told so. */
bool savepoint_rollback_can_release_mdl(handlerton*, THD* thd) {
  Session* session = Session::find(thd);
  return !session || !pbxt_session_holds_locks(session->core());
}

/* One snapshot for all engines. A failure here would fail the other engines' snapshots too, so it becomes a
 * warning. */
int start_consistent_snapshot(handlerton*, THD* thd) {
  int error = 0;
  Session* session = Session::get(thd, &error);
  if (session) error = session->start_snapshot();
  if (error)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR, "PBXT took no snapshot: %s",
                        error_text());
  else if (thd_tx_isolation(thd) < ISO_REPEATABLE_READ)
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                 "PBXT: WITH CONSISTENT SNAPSHOT lasts for one statement only below REPEATABLE READ.");
  return 0;
}

bool flush_logs(handlerton*) {
  pbxt_status status = pbxt_flush(db);
  if (status != PBXT_OK) sql_print_error("PBXT: FLUSH LOGS failed: %s", pbxt_error_text());
  return status != PBXT_OK;
}

/* ---- tables by path ---- */

handler* create_handler(handlerton* hton, TABLE_SHARE* share, MEM_ROOT* mem_root) {
  return new (mem_root) ha_pbxt(hton, share);
}

int drop_table_by_path(handlerton*, const char* path) {
  return drop_table(current_thd, path);
}

int collect_name(void* names, const char* name, size_t length) noexcept {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name, length);
  return 0;
}

/* The server has dropped the tables it knows of; what is left here has no definition file any more. */
void drop_database(handlerton* hton, char* path) {
  std::vector<std::string> names;
  pbxt_status status = pbxt_table_list(db, path, strlen(path), collect_name, &names);
  if (status != PBXT_OK)
    sql_print_error("PBXT: DROP DATABASE could not list %s: %s", path, pbxt_error_text());
  for (const std::string& name : names)
    if (drop_table_by_path(hton, name.c_str()) != 0)
      sql_print_error("PBXT: could not drop %s: %s", name.c_str(), error_text());
}

/* Did an ALTER in place win before the crash? The server installs the definition file that has the version
 * which the engine's catalog names. Of a partitioned table it names the whole; all parts change at once, so
 * any of them answers. */
int check_version(handlerton*, const char* path, const LEX_CUSTRING* version, ulonglong) {
  std::string name = path;
  if (!pbxt_table_exists(db, name.data(), name.size())) {
    std::vector<std::string> parts;
    std::string prefix = name + kPartition;
    if (pbxt_table_list(db, prefix.data(), prefix.size(), collect_name, &parts) != PBXT_OK || parts.empty())
      return 1;
    name = parts.front();
  }
  uint8_t kept[MY_UUID_SIZE];
  size_t length = sizeof(kept);
  if (pbxt_table_host_version(db, name.data(), name.size(), kept, &length) != PBXT_OK) return 1;
  return length == version->length && memcmp(kept, version->str, length) == 0 ? 0 : 1;
}

const char* no_file_extensions[] = {NullS};

ha_create_table_option table_options[] = {
    HA_TOPTION_ENUM("CONFLICT_MODE", conflict_mode, "DEFAULT,ERROR,WAIT", 0),
    HA_TOPTION_ENUM("COMPRESSION", compression, "DEFAULT,NONE,LZ4,ZSTD", 0),
    HA_TOPTION_ENUM("ENCRYPTED", encrypted, "DEFAULT,YES,NO", 0),
    HA_TOPTION_BOOL("PAGE_COMPRESSED", page_compressed, 0),
    HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, 9, 1),
    HA_TOPTION_NUMBER("ENCRYPTION_KEY_ID", encryption_key_id, 0, 0, UINT_MAX32, 1),
    HA_TOPTION_ENUM("ATOMIC_WRITES", atomic_writes, "DEFAULT,ON,OFF", 0),
    HA_TOPTION_END};

}  // namespace

void install_transaction_hooks(handlerton* hton) {
  hton->savepoint_offset = sizeof(uint64_t);
  hton->close_connection = close_connection;
  hton->kill_query = kill_query;
  hton->commit = commit;
  hton->prepare_commit_versioned = prepare_commit_versioned;
  hton->rollback = rollback;
  hton->savepoint_set = savepoint_set;
  hton->savepoint_rollback = savepoint_rollback;
  hton->savepoint_release = savepoint_release;
  hton->savepoint_rollback_can_release_mdl = savepoint_rollback_can_release_mdl;
  hton->start_consistent_snapshot = start_consistent_snapshot;
  hton->flush_logs = flush_logs;
}

void install_table_hooks(handlerton* hton) {
  hton->db_type = DB_TYPE_PBXT;
  hton->flags = HTON_REQUIRES_CLOSE_AFTER_TRUNCATE | HTON_SUPPORTS_FOREIGN_KEYS |
                HTON_SUPPORTS_EXTENDED_KEYS | HTON_NATIVE_SYS_VERSIONING;
  hton->create = create_handler;
  hton->drop_table = drop_table_by_path;
  hton->drop_database = drop_database;
  hton->check_version = check_version;
  hton->table_options = table_options;
  hton->tablefile_extensions = no_file_extensions;
  hton->show_status = show_engine_status;
  hton->create_group_by = count_range;
}

}  // namespace pbxt
