/*
 * i_s.cc: INFORMATION_SCHEMA.PBXT_TRX, PBXT_LOCKS and PBXT_LOCK_WAITS: what runs, who holds what, who waits
 * for whom.
 *
 * The engine copies each list, in steps, before it gives the first line; nobody is stopped meanwhile. Shown
 * to users with the PROCESS privilege. Table names come as the paths the server gave at CREATE.
 */
#include "i_s.h"

#include <stdio.h>
#include <string.h>

#include <string>

namespace Show {

static ST_FIELD_INFO pbxt_txn_columns[] = {Column("TXN_ID", ULonglong(), NULLABLE),
                                           Column("STATE", Varchar(16), NOT_NULL),
                                           Column("STARTED", Datetime(0), NULLABLE),
                                           Column("AGE_SECONDS", ULonglong(), NOT_NULL),
                                           Column("CONNECTION_ID", ULonglong(), NULLABLE),
                                           Column("QUERY", Varchar(1024), NULLABLE),
                                           Column("ISOLATION_LEVEL", Varchar(16), NOT_NULL),
                                           Column("CONFLICT_MODE", Varchar(8), NOT_NULL),
                                           Column("ROWS_CHANGED", ULonglong(), NOT_NULL),
                                           Column("ROWS_LOCKED", ULonglong(), NOT_NULL),
                                           Column("SAVEPOINTS", ULonglong(), NOT_NULL),
                                           Column("SNAPSHOT", ULonglong(), NULLABLE),
                                           Column("SNAPSHOT_AGE_SECONDS", ULonglong(), NULLABLE),
                                           Column("LOG_BYTES_HELD", ULonglong(), NOT_NULL),
                                           Column("WAITS_FOR", Varchar(512), NULLABLE),
                                           Column("WAITS_SINCE", Datetime(0), NULLABLE),
                                           Column("WAITED_MILLIS", ULonglong(), NULLABLE),
                                           Column("BLOCKING_TXN_ID", ULonglong(), NULLABLE),
                                           Column("BLOCKING_CONNECTION_ID", ULonglong(), NULLABLE),
                                           CEnd()};

/* What is locked: the same columns in both tables. */
#define PBXT_LOCKED_COLUMNS                                                                            \
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NULLABLE),                                            \
      Column("TABLE_NAME", Varchar(pbxt::kTableNameChars), NULLABLE),                                  \
      Column("LOCK_KIND", Varchar(16), NOT_NULL), Column("LOCK_MODE", Varchar(16), NOT_NULL),          \
      Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NULLABLE), Column("ROW_ID", ULonglong(), NULLABLE), \
      Column("KEY_IMAGE", Varchar(160), NULLABLE)

static ST_FIELD_INFO pbxt_lock_columns[] = {Column("TXN_ID", ULonglong(), NOT_NULL),
                                            Column("CONNECTION_ID", ULonglong(), NULLABLE),
                                            PBXT_LOCKED_COLUMNS,
                                            Column("LOCK_STATE", Varchar(16), NOT_NULL),
                                            Column("LOCK_COUNT", ULonglong(), NOT_NULL),
                                            CEnd()};

static ST_FIELD_INFO pbxt_lock_wait_columns[] = {Column("WAITING_TXN_ID", ULonglong(), NOT_NULL),
                                                 Column("WAITING_CONNECTION_ID", ULonglong(), NULLABLE),
                                                 PBXT_LOCKED_COLUMNS,
                                                 Column("WAITS_SINCE", Datetime(0), NOT_NULL),
                                                 Column("WAITED_MILLIS", ULonglong(), NOT_NULL),
                                                 Column("BLOCKING_TXN_ID", ULonglong(), NOT_NULL),
                                                 Column("BLOCKING_CONNECTION_ID", ULonglong(), NULLABLE),
                                                 Column("BLOCKED_BY", Varchar(16), NOT_NULL),
                                                 Column("BLOCKERS", ULonglong(), NOT_NULL),
                                                 CEnd()};

}  // namespace Show

namespace pbxt {
namespace {

/* The name behind one part of a path: special characters are written as codes there. */
std::string decoded(const std::string& part) {
  char name[NAME_LEN + 1];
  size_t length = filename_to_tablename(part.c_str(), name, sizeof(name), true);
  return std::string(name, length);
}

/* Parts of a table are `table#P#part`, and with subparts `table#P#part#SP#subpart`: in a path these are the
 * only '#' of a name that somebody gave. */
std::string decoded_table(const std::string& file) {
  std::string name;
  size_t from = 0;
  for (const char* mark : {"#P#", "#SP#"}) {
    size_t at = file.find(mark, from);
    if (at == std::string::npos) break;
    name += decoded(file.substr(from, at - from)) + mark;
    from = at + strlen(mark);
  }
  return name + decoded(file.substr(from));
}

const char* const kTxnStates[] = {"active", "waiting", "prepared", "detached"};
const char* const kIsolations[] = {"", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};
const char* const kConflictModes[] = {"", "ERROR", "WAIT"};
const char* const kKinds[] = {"table", "row", "rows", "key", "transaction"};
const char* const kModes[] = {"intent", "shared", "exclusive"};
const char* const kLockStates[] = {"changed", "granted", "waiting"};

/* The key as it is compared, or its hash where the bytes are not known. */
std::string key_image(const pbxt_locked& what) noexcept {
  char buffer[40];
  if (what.kind != PBXT_LOCK_ON_KEY) return std::string();
  if (what.key.len == 0) {
    snprintf(buffer, sizeof(buffer), "hash %016llx", static_cast<unsigned long long>(what.key_hash));
    return buffer;
  }
  std::string hex = "0x";
  for (size_t i = 0; i < what.key.len; i++) {
    snprintf(buffer, sizeof(buffer), "%02x", static_cast<uchar>(what.key.bytes[i]));
    hex += buffer;
  }
  return hex;
}

void store_locked(Row* row, const pbxt_locked& what) noexcept {
  std::string schema, table;
  split_path(what.table, &schema, &table);
  row->text_or_null(schema);
  row->text_or_null(table);
  row->word(kKinds, what.kind);
  row->word(kModes, what.mode);
  row->text_or_null(what.index.bytes, what.index.len);
  row->number_or_null(what.row_id);
  row->text_or_null(key_image(what));
}

/* One sentence for the same: "row 5 of bank.account (exclusive)". */
std::string sentence(const pbxt_locked& what) noexcept {
  std::string schema, table, text = kKinds[what.kind <= PBXT_LOCK_ON_TXN ? what.kind : 0];
  split_path(what.table, &schema, &table);
  if (what.kind == PBXT_LOCK_ON_ROW) text += " " + std::to_string(what.row_id) + " of";
  if (what.kind == PBXT_LOCK_ON_KEY)
    text += " " + key_image(what) + " of index " + std::string(what.index.bytes, what.index.len) + " of";
  text += " " + schema + "." + table;
  return text + " (" + kModes[what.mode <= PBXT_HELD_EXCLUSIVE ? what.mode : 0] + ")";
}

int store_txn(void* context, const pbxt_txn_info* txn) noexcept {
  Listing* list = static_cast<Listing*>(context);
  Row row(list->thd, list->table);
  row.number_or_null(txn->txn_id);
  row.word(kTxnStates, txn->state);
  row.time_or_null(txn->started_unix_seconds);
  row.number(txn->age_seconds);
  row.number_or_null(txn->host_thread_id);
  row.text_or_null(txn->statement.bytes, txn->statement.len);
  row.word(kIsolations, txn->isolation);
  row.word(kConflictModes, txn->conflict_mode);
  row.number(txn->rows_changed);
  row.number(txn->rows_locked);
  row.number(txn->savepoints);
  row.number_or_null(txn->snapshot_ts);
  if (txn->snapshot_ts == 0)
    row.null();
  else
    row.number(txn->snapshot_age_seconds);
  row.number(txn->log_bytes_held);
  if (txn->waits) {
    row.text(sentence(txn->waits_for));
    row.time_or_null(txn->waits_since_unix_seconds);
    row.number(txn->waited_millis);
    row.number_or_null(txn->blocking_txn);
    row.number_or_null(txn->blocking_host_thread_id);
  } else {
    for (int column = 0; column < 5; column++) row.null();
  }
  list->failed = row.store();
  return list->failed;
}

int store_lock(void* context, const pbxt_lock_info* lock) noexcept {
  Listing* list = static_cast<Listing*>(context);
  Row row(list->thd, list->table);
  row.number(lock->txn_id);
  row.number_or_null(lock->host_thread_id);
  store_locked(&row, lock->what);
  row.word(kLockStates, lock->state);
  row.number(lock->count);
  list->failed = row.store();
  return list->failed;
}

int store_lock_wait(void* context, const pbxt_lock_wait_info* wait) noexcept {
  const char* const blocked_by[] = {"holder", "line"};
  Listing* list = static_cast<Listing*>(context);
  Row row(list->thd, list->table);
  row.number(wait->waiting_txn);
  row.number_or_null(wait->waiting_host_thread_id);
  store_locked(&row, wait->what);
  row.time_or_null(wait->since_unix_seconds);
  row.number(wait->waited_millis);
  row.number(wait->blocking_txn);
  row.number_or_null(wait->blocking_host_thread_id);
  row.word(blocked_by, wait->in_line);
  row.number(wait->blockers);
  list->failed = row.store();
  return list->failed;
}

void warn_of_left_out(THD* thd, uint64_t left_out, const char* what) {
  if (left_out > 0)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "PBXT: the list is cut: %llu %s have no line of their own", (ulonglong)left_out,
                        what);
}

int fill_txns(THD* thd, TABLE_LIST* tables, Item*) {
  if (!may_see(thd)) return 0;
  Listing list{thd, tables->table, false};
  return pbxt_list_txns(db, store_txn, &list) != PBXT_OK || list.failed;
}

int fill_locks(THD* thd, TABLE_LIST* tables, Item*) {
  if (!may_see(thd)) return 0;
  Listing list{thd, tables->table, false};
  uint64_t left_out = 0;
  if (pbxt_list_locks(db, store_lock, &list, &left_out) != PBXT_OK || list.failed) return 1;
  warn_of_left_out(thd, left_out, "locks");
  return 0;
}

int fill_lock_waits(THD* thd, TABLE_LIST* tables, Item*) {
  if (!may_see(thd)) return 0;
  Listing list{thd, tables->table, false};
  uint64_t left_out = 0;
  if (pbxt_list_lock_waits(db, store_lock_wait, &list, &left_out) != PBXT_OK || list.failed) return 1;
  warn_of_left_out(thd, left_out, "waits");
  return 0;
}

}  // namespace

void split_path(pbxt_text path, std::string* schema, std::string* table) noexcept {
  std::string all(path.bytes, path.len);
  size_t last = all.rfind('/');
  if (last == std::string::npos) {
    *table = decoded_table(all);
    return;
  }
  size_t first = last == 0 ? std::string::npos : all.rfind('/', last - 1);
  first = first == std::string::npos ? 0 : first + 1;
  *schema = decoded(all.substr(first, last - first));
  *table = decoded_table(all.substr(last + 1));
}

bool may_see(THD* thd) {
  return db && !check_global_access(thd, PROCESS_ACL, true);
}

int init_table(void* schema_table, ST_FIELD_INFO* columns, int (*fill)(THD*, TABLE_LIST*, Item*)) {
  ST_SCHEMA_TABLE* table = static_cast<ST_SCHEMA_TABLE*>(schema_table);
  table->fields_info = columns;
  table->fill_table = fill;
  return 0;
}

int init_txn_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_txn_columns, fill_txns);
}

int init_lock_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_lock_columns, fill_locks);
}

int init_lock_wait_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_lock_wait_columns, fill_lock_waits);
}

}  // namespace pbxt
