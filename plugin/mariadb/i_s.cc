/*
 * i_s.cc: INFORMATION_SCHEMA.PBXT_TRANSACTIONS: one row for each running or prepared transaction.
 *
 * The engine copies the list at the moment of the query; nothing is locked meanwhile. Shown to users with the
 * PROCESS privilege.
 */
#include "plugin.h"

#include <vector>

#include "sql_acl.h"
#include "sql_i_s.h"

namespace Show {

static ST_FIELD_INFO pbxt_transaction_columns[] = {
    Column("TXN_ID", ULonglong(), NOT_NULL),          Column("STATE", Varchar(16), NOT_NULL),
    Column("THREAD_ID", ULonglong(), NOT_NULL),       Column("AGE_SECONDS", ULonglong(), NOT_NULL),
    Column("ROWS_WRITTEN", ULonglong(), NOT_NULL),    Column("SNAPSHOT", ULonglong(), NULLABLE),
    Column("WAITING_FOR_TXN", ULonglong(), NULLABLE), CEnd()};

}  // namespace Show

namespace pbxt {
namespace {

void store_or_null(Field* field, uint64_t value) {
  if (value == 0) {
    field->set_null();
    return;
  }
  field->set_notnull();
  field->store(static_cast<longlong>(value), true);
}

bool store_row(THD* thd, TABLE* table, const pbxt_txn_info& row) {
  const LEX_CSTRING states[] = {{STRING_WITH_LEN("active")}, {STRING_WITH_LEN("prepared")}};
  const LEX_CSTRING& state = states[row.state == 1 ? 1 : 0];
  Field** fields = table->field;
  fields[0]->store(static_cast<longlong>(row.txn_id), true);
  fields[1]->store(state.str, state.length, system_charset_info);
  fields[2]->store(static_cast<longlong>(row.host_thread_id), true);
  fields[3]->store(static_cast<longlong>(row.age_seconds), true);
  fields[4]->store(static_cast<longlong>(row.rows_written), true);
  store_or_null(fields[5], row.snapshot_ts);
  store_or_null(fields[6], row.waiting_for_txn);
  return schema_table_store_record(thd, table);
}

/* The list may grow between two calls; what does not fit the last try is left out. */
std::vector<pbxt_txn_info> running_transactions() noexcept {
  std::vector<pbxt_txn_info> rows(64);
  for (;;) {
    size_t count = pbxt_list_txns(db, rows.data(), rows.size());
    if (count < rows.size() || rows.size() > 100000) {
      rows.resize(count);
      return rows;
    }
    rows.resize(rows.size() * 2);
  }
}

int fill_transactions(THD* thd, TABLE_LIST* tables, Item*) {
  if (!db || check_global_access(thd, PROCESS_ACL, true)) return 0;
  for (const pbxt_txn_info& row : running_transactions())
    if (store_row(thd, tables->table, row)) return 1;
  return 0;
}

}  // namespace

int init_transactions_table(void* schema_table) {
  ST_SCHEMA_TABLE* table = static_cast<ST_SCHEMA_TABLE*>(schema_table);
  table->fields_info = Show::pbxt_transaction_columns;
  table->fill_table = fill_transactions;
  return 0;
}

}  // namespace pbxt
