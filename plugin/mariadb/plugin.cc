/*
 * plugin.cc: the plugin's declaration, its start and its end.
 *
 * init() opens the engine's directory, which includes crash recovery: when it returns, all prepared
 * transactions are known and can be asked for. A server of another patch level than the headers is refused in
 * one sentence, because it would load and then misread the server's structures.
 */
#define PBXT_DECLARES_PLUGIN 1
#undef MYSQL_DYNAMIC_PLUGIN
#define MYSQL_DYNAMIC_PLUGIN 1

#include "plugin.h"

#include <mysql/plugin.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "decisions.h"
#include "definition_files.h"
#include "log.h"

namespace pbxt {

handlerton* hton = nullptr;
pbxt_db* db = nullptr;

namespace {

bool server_matches() {
  size_t length = strlen(MYSQL_SERVER_VERSION);
  // The server appends the Debian revision and "-log" to the version the headers name.
  if (strncmp(server_version, MYSQL_SERVER_VERSION, length) == 0 && !isdigit(server_version[length]))
    return true;
  sql_print_error(
      "PBXT: this plugin was built for MariaDB %s, but the server is %s: install the plugin built for this "
      "version.",
      MYSQL_SERVER_VERSION, server_version);
  return false;
}

std::string absolute_directory(const char* directory) {
  if (directory[0] == '/') return directory;
  return std::string(mysql_real_data_home) + directory;
}

bool database_exists() noexcept {
  Settings settings = settings_at_start();
  return settings.data_dir && access(absolute_directory(settings.data_dir).c_str(), F_OK) == 0;
}

bool open_database() noexcept {
  Settings settings = settings_at_start();
  if (!settings.data_dir || !*settings.data_dir) {
    sql_print_error(
        "PBXT: pbxt_data_dir is empty: name a directory, or leave the setting out for the default.");
    return false;
  }
  std::string directory = absolute_directory(settings.data_dir);
  pbxt_options options{};
  options.abi_version = PBXT_ABI_VERSION;
  options.directory = directory.c_str();
  options.cache_bytes = settings.cache_bytes;
  options.background_threads = 1;
  options.direct_io = settings.direct_io;
  options.instruments = instruments();
  options.keys = keys();
  options.encryption_key = settings.encryption_key;
  options.encrypt_all = settings.encrypts_all;
  if (pbxt_open(&options, host_callbacks(), &db) == PBXT_OK) {
    apply_settings();
    // Whoever expected tables has named another directory, or its file system is not mounted.
    if (pbxt_is_new(db))
      sql_print_information("PBXT: a new, empty database was made in %s", directory.c_str());
    return true;
  }
  sql_print_error("PBXT: cannot open the database in %s: %s", directory.c_str(), pbxt_error_text());
  db = nullptr;
  return false;
}

/* Safe after a failed init and when called twice. */
void close_database() {
  if (!db) return;
  pbxt_db* closing = db;
  db = nullptr;
  if (pbxt_close(closing) != PBXT_OK)
    sql_print_error("PBXT: closing the database failed: %s", pbxt_error_text());
}

int panic(handlerton*, enum ha_panic_function flag) {
  if (flag == HA_PANIC_CLOSE) close_database();
  return 0;
}

int init(void* server_hton) {
  if (!server_matches()) return 1;
  hton = static_cast<handlerton*>(server_hton);
  install_table_hooks(hton);
  install_transaction_hooks(hton);
  install_xa_hooks(hton);
  hton->panic = panic;
  warn_about_old_settings();
  bool is_new = !database_exists();
  if (!open_database()) return 1;
  // What a coordinator decided before there was a database here concerns others.
  if (!is_new && !carry_out_decisions()) {
    close_database();
    return 1;
  }
  look_for_definition_files();
  sql_print_information("PBXT: %s started.", pbxt_version_text());
  return 0;
}

int deinit(void*) {
  close_database();
  return 0;
}

struct st_mysql_storage_engine interface_version = {MYSQL_HANDLERTON_INTERFACE_VERSION};
struct st_mysql_information_schema information_schema_version = {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

}  // namespace
}  // namespace pbxt

#define PBXT_INFORMATION_SCHEMA(name, description, init) \
  {MYSQL_INFORMATION_SCHEMA_PLUGIN,                      \
   &pbxt::information_schema_version,                    \
   name,                                                 \
   "The PBXT developers",                                \
   description,                                          \
   PLUGIN_LICENSE_GPL,                                   \
   pbxt::init,                                           \
   nullptr,                                              \
   0x0001,                                               \
   nullptr,                                              \
   nullptr,                                              \
   "0.1.0",                                              \
   MariaDB_PLUGIN_MATURITY_GAMMA}

maria_declare_plugin(pbxt){
    MYSQL_STORAGE_ENGINE_PLUGIN,
    &pbxt::interface_version,
    "PBXT",
    "The PBXT developers",
    "Write-once, log-structured transactional engine with MVCC",
    PLUGIN_LICENSE_GPL,
    pbxt::init,
    pbxt::deinit,
    0x0001,
    pbxt::status_variables,
    pbxt::system_variables,
    "0.1.0",
    MariaDB_PLUGIN_MATURITY_GAMMA,
},
    PBXT_INFORMATION_SCHEMA("PBXT_TRX", "Running and prepared transactions of PBXT", init_txn_table),
    PBXT_INFORMATION_SCHEMA("PBXT_LOCKS", "Locks of PBXT that are held or waited for", init_lock_table),
    PBXT_INFORMATION_SCHEMA("PBXT_LOCK_WAITS", "Transactions of PBXT that wait, and for whom",
                            init_lock_wait_table),
    PBXT_INFORMATION_SCHEMA("PBXT_TABLES", "Tables of PBXT and what they take", init_tables_table),
    PBXT_INFORMATION_SCHEMA("PBXT_INDEXES", "Indexes of PBXT and what they take", init_indexes_table),
    PBXT_INFORMATION_SCHEMA("PBXT_RUNS", "Runs of rows and index entries of PBXT", init_runs_table),
    PBXT_INFORMATION_SCHEMA("PBXT_SEGMENTS", "Files of PBXT and what they are for", init_segments_table),
    PBXT_INFORMATION_SCHEMA("PBXT_CACHES", "Memory of PBXT by what is in it", init_caches_table),
    PBXT_INFORMATION_SCHEMA("PBXT_STATISTICS", "Figures of PBXT under their names of 2010",
                            init_statistics_table),
    PBXT_INFORMATION_SCHEMA("PBXT_INDEX_STATISTICS", "Rows per key of PBXT and what they were estimated from",
                            init_index_statistics_table) maria_declare_plugin_end;
