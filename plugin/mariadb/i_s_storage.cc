/*
 * i_s_storage.cc: INFORMATION_SCHEMA.PBXT_TABLES, PBXT_INDEXES, PBXT_RUNS, PBXT_SEGMENTS, PBXT_CACHES: what
 * the database consists of; PBXT_INDEX_STATISTICS: what the optimizer is told of keys, and why; and
 * PBXT_STATISTICS, as the PBXT of 2010 had it.
 *
 * The engine makes the lines, cell by cell; the columns here stand in the order of its cells (pbxt_list).
 * Shown to users with the PROCESS privilege.
 */
#include <stddef.h>

#include "i_s.h"
#include "pbxt_inventory.h"

namespace Show {

#define PBXT_TABLE_COLUMNS                                  \
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NULLABLE), \
      Column("TABLE_NAME", Varchar(pbxt::kTableNameChars), NULLABLE)
#define PBXT_NUMBER(name) Column(name, ULonglong(), NOT_NULL)
#define PBXT_NUMBER_OR_NULL(name) Column(name, ULonglong(), NULLABLE)

static ST_FIELD_INFO pbxt_table_columns[] = {PBXT_TABLE_COLUMNS,
                                             PBXT_NUMBER("TABLE_ID"),
                                             PBXT_NUMBER("TABLE_ROWS"),
                                             PBXT_NUMBER("MEAN_ROW_BYTES"),
                                             PBXT_NUMBER("ROW_RUNS"),
                                             PBXT_NUMBER("ROW_PIECES"),
                                             PBXT_NUMBER("ROW_SLOTS"),
                                             PBXT_NUMBER("ROW_BYTES"),
                                             PBXT_NUMBER("INDEX_COUNT"),
                                             PBXT_NUMBER("INDEX_BYTES"),
                                             PBXT_NUMBER("GONE_ROWS"),
                                             PBXT_NUMBER("ROW_MAP_BYTES"),
                                             PBXT_NUMBER("NEXT_AUTO_INCREMENT"),
                                             Column("COMPRESSION", Varchar(8), NOT_NULL),
                                             Column("CONFLICT_MODE", Varchar(8), NOT_NULL),
                                             PBXT_NUMBER("IS_TEMPORARY"),
                                             CEnd()};

static ST_FIELD_INFO pbxt_index_columns[] = {
    PBXT_TABLE_COLUMNS,          Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
    PBXT_NUMBER("INDEX_ID"),     PBXT_NUMBER("IS_UNIQUE"),
    PBXT_NUMBER("ENTRIES"),      PBXT_NUMBER("RUNS"),
    PBXT_NUMBER("PIECES"),       PBXT_NUMBER("RUN_BYTES"),
    PBXT_NUMBER("MEMORY_BYTES"), CEnd()};

static ST_FIELD_INFO pbxt_run_columns[] = {PBXT_TABLE_COLUMNS,
                                           Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NULLABLE),
                                           PBXT_NUMBER("RUN_NUMBER"),
                                           Column("RUN_LEVEL", Varchar(8), NOT_NULL),
                                           PBXT_NUMBER_OR_NULL("TXN_ID"),
                                           PBXT_NUMBER("PIECES"),
                                           PBXT_NUMBER("ENTRIES"),
                                           PBXT_NUMBER("BYTES"),
                                           CEnd()};

static ST_FIELD_INFO pbxt_segment_columns[] = {
    Column("FILE_NAME", Varchar(64), NOT_NULL), Column("HOLDS", Varchar(8), NOT_NULL),
    Column("STATE", Varchar(8), NOT_NULL),      PBXT_NUMBER("BYTES"),
    PBXT_NUMBER_OR_NULL("NAMED_BYTES"),         CEnd()};

static ST_FIELD_INFO pbxt_cache_columns[] = {
    Column("NAME", Varchar(32), NOT_NULL), PBXT_NUMBER("BYTES"),          PBXT_NUMBER_OR_NULL("BUDGET_BYTES"),
    PBXT_NUMBER_OR_NULL("HITS"),           PBXT_NUMBER_OR_NULL("MISSES"), CEnd()};

static ST_FIELD_INFO pbxt_index_statistics_columns[] = {
    PBXT_TABLE_COLUMNS,
    Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
    PBXT_NUMBER("PREFIX_PARTS"),
    PBXT_NUMBER("ROWS_PER_KEY"),
    PBXT_NUMBER("ENTRIES_WHEN_SAMPLED"),
    PBXT_NUMBER("NEIGHBOURS_COMPARED"),
    PBXT_NUMBER("NEIGHBOURS_DIFFERING"),
    Column("SAMPLED", Datetime(0), NULLABLE),
    Column("SAMPLED_BY", Varchar(8), NOT_NULL),
    PBXT_NUMBER("IS_SAVED"),
    CEnd()};

static ST_FIELD_INFO pbxt_statistic_columns[] = {PBXT_NUMBER("ID"), Column("NAME", Varchar(32), NOT_NULL),
                                                 PBXT_NUMBER("VALUE"),
                                                 Column("SHORT_NAME", Varchar(16), NOT_NULL), CEnd()};

}  // namespace Show

namespace pbxt {
namespace {

int store_line(void* context, const pbxt_cell* cells, size_t count) noexcept {
  Listing* list = static_cast<Listing*>(context);
  Row row(list->thd, list->table);
  for (const pbxt_cell* cell = cells; cell < cells + count; cell++) {
    std::string schema, table;
    switch (cell->kind) {
      case PBXT_CELL_NUMBER:
        row.number(cell->number);
        break;
      case PBXT_CELL_TEXT:
        row.text(cell->text.bytes, cell->text.len);
        break;
      case PBXT_CELL_TABLE:
        split_path(cell->text, &schema, &table);
        row.text_or_null(schema);
        row.text_or_null(table);
        break;
      case PBXT_CELL_TIME:
        row.time_or_null(cell->number);
        break;
      default:
        row.null();
    }
  }
  list->failed = row.store();
  return list->failed;
}

template <uint32_t list_kind>
int fill_list(THD* thd, TABLE_LIST* tables, Item*) {
  if (!may_see(thd)) return 0;
  Listing list{thd, tables->table, false};
  if (pbxt_list(db, list_kind, store_line, &list) == PBXT_OK) return list.failed;
  my_printf_error(ER_UNKNOWN_ERROR, "PBXT: no list: %s", MYF(0), pbxt_error_text());
  return 1;
}

/* A figure that still means what it meant in 2010, by its name of then. */
struct Statistic {
  const char* name;
  const char* short_name; /* of the monitor that came with it */
  size_t place;           /* in pbxt_counters */
};

#define PBXT_STATISTIC(name, short_name, counter) {name, short_name, offsetof(pbxt_counters, counter)}

const Statistic kStatistics[] = {
    PBXT_STATISTIC("Commit Count", "commt", txns_committed),
    PBXT_STATISTIC("Rollback Count", "rollb", txns_rolled_back),
    PBXT_STATISTIC("Wait for Xact Count", "waits", lock_waits),
    PBXT_STATISTIC("Dirty Xact Count", "dirty", txns_active_now),
    PBXT_STATISTIC("Record Cache Hits", "rec-hits", cache_hits),
    PBXT_STATISTIC("Record Cache Misses", "rec-miss", cache_misses),
    PBXT_STATISTIC("Record Cache Usage", "rec-use", cache_bytes_now),
    PBXT_STATISTIC("Index Cache Hits", "ind-hits", block_cache_hits),
    PBXT_STATISTIC("Index Cache Misses", "ind-miss", block_cache_misses),
    PBXT_STATISTIC("Index Cache Usage", "ind-use", block_cache_bytes_now),
    PBXT_STATISTIC("Xact Log Bytes Out", "xlog-out", log_bytes_written),
    PBXT_STATISTIC("Xact Log File Syncs", "xlog-syncs", log_syncs),
    PBXT_STATISTIC("Data Log Bytes Out", "data-out", blob_bytes_written),
    PBXT_STATISTIC("Bytes to Checkpoint", "to-chkpt", log_bytes_behind_checkpoint_now),
    PBXT_STATISTIC("Log Bytes to Sweep", "to-sweep", hot_log_bytes_now),
    PBXT_STATISTIC("Select Row Count", "row-sel", rows_read),
    PBXT_STATISTIC("Insert Row Count", "row-ins", rows_inserted),
    PBXT_STATISTIC("Update Row Count", "row-upd", rows_updated),
    PBXT_STATISTIC("Delete Row Count", "row-del", rows_deleted)};

int fill_statistics(THD* thd, TABLE_LIST* tables, Item*) {
  if (!may_see(thd)) return 0;
  pbxt_counters counters{};
  if (pbxt_get_counters(db, &counters) != PBXT_OK) return 1;
  uint64_t id = 0;
  for (const Statistic& statistic : kStatistics) {
    uint64_t value;
    memcpy(&value, reinterpret_cast<const char*>(&counters) + statistic.place, sizeof(value));
    Row row(thd, tables->table);
    row.number(++id);
    row.text(statistic.name, strlen(statistic.name));
    row.number(value);
    row.text(statistic.short_name, strlen(statistic.short_name));
    if (row.store()) return 1;
  }
  return 0;
}

}  // namespace

int init_tables_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_table_columns, fill_list<PBXT_LIST_TABLES>);
}

int init_indexes_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_index_columns, fill_list<PBXT_LIST_INDEXES>);
}

int init_runs_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_run_columns, fill_list<PBXT_LIST_RUNS>);
}

int init_segments_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_segment_columns, fill_list<PBXT_LIST_SEGMENTS>);
}

int init_caches_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_cache_columns, fill_list<PBXT_LIST_CACHES>);
}

int init_index_statistics_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_index_statistics_columns, fill_list<PBXT_LIST_INDEX_STATISTICS>);
}

int init_statistics_table(void* schema_table) {
  return init_table(schema_table, Show::pbxt_statistic_columns, fill_statistics);
}

}  // namespace pbxt
