/*
 * ha_pbxt_ddl.cc: CREATE, DROP, RENAME, TRUNCATE, ALTER, CHECK and ANALYZE.
 *
 * Tables are named by the server's path, byte for byte. Each change of the catalog is atomic and durable in
 * the engine when the call returns. ALTER in place is offered only where nothing the engine stores would
 * change; everything else goes the server's way of copying, whose rows are one ordinary transaction that the
 * server commits at the end of the copy.
 */
#include "error_map.h"
#include "foreign_keys_ddl.h"
#include "ha_pbxt.h"
#include "session.h"

// After the server's own headers, which it needs.
#include <mysql/service_print_check_msg.h>

namespace pbxt {
namespace {

void warn_about_ignored_options(THD* thd, const HA_CREATE_INFO* create_info) {
  if (create_info->data_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                        ER_THD(thd, WARN_OPTION_IGNORED), "DATA DIRECTORY");
  if (create_info->index_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                        ER_THD(thd, WARN_OPTION_IGNORED), "INDEX DIRECTORY");
}

/* Changes that concern the server's definition file alone, given that both definitions store alike. */
constexpr alter_table_operations kDefinitionOnly =
    ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN |
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_DROP_CHECK_CONSTRAINT | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_INDEX_IGNORABILITY | ALTER_RENAME | ALTER_CHANGE_COLUMN | ALTER_CHANGE_CREATE_OPTION |
    ALTER_DROP_FOREIGN_KEY;

constexpr ulong kDefinitionOnlyOptions = HA_CREATE_USED_AUTO | HA_CREATE_USED_COMMENT |
                                         HA_CREATE_USED_MIN_ROWS | HA_CREATE_USED_MAX_ROWS |
                                         HA_CREATE_USED_AVG_ROW_LENGTH | HA_CREATE_USED_STATS_PERSISTENT |
                                         HA_CREATE_USED_STATS_AUTO_RECALC | HA_CREATE_USED_STATS_SAMPLE_PAGES;

struct CheckReport {
  THD* thd;
  TABLE* table;
};

void report_finding(void* context, const char* text) {
  const CheckReport* report = static_cast<const CheckReport*>(context);
  const TABLE_SHARE* share = report->table->s;
  print_check_msg(report->thd, share->db.str, share->table_name.str, "check", "error", text, 1);
}

void report_progress(void* context, uint64_t done, uint64_t total) {
  thd_progress_report(static_cast<const CheckReport*>(context)->thd, done, total);
}

}  // namespace

int ha_pbxt::create(const char* name, TABLE* form, HA_CREATE_INFO* create_info) {
  THD* thd = ha_thd();
  warn_about_ignored_options(thd, create_info);
  Definition definition;
  definition.build(form, name);
  definition.def.auto_increment = create_info->auto_increment_value;
  definition.def.temporary = create_info->tmp_table();
  definition.describe_columns(form);
  TableForeignKeys foreign_keys;
  if (int error = foreign_keys.for_create(thd, name, form, create_info, &definition)) return error;
  int error = to_ddl_error(pbxt_table_create(db, Session::core_of(thd), &definition.def), thd);
  if (error == HA_ERR_CANNOT_ADD_FOREIGN) explain_refusal(thd, definition);
  if (error == HA_ERR_FOUND_DUPP_KEY) report_taken_name(thd, name);
  return error;
}

int ha_pbxt::delete_table(const char* name) {
  THD* thd = ha_thd();
  return pbxt::drop_table(thd, name);
}

int ha_pbxt::rename_table(const char* from, const char* to) {
  THD* thd = ha_thd();
  return to_ddl_error(pbxt_table_rename(db, Session::core_of(thd), from, strlen(from), to, strlen(to),
                                        rename_flags(thd, from, to)),
                      thd);
}

/* The engine gives the table a new generation; the share takes it over, and other handlers find it at their
 * next bind. */
int ha_pbxt::truncate() {
  THD* thd = ha_thd();
  thr_lock_type lock = session_ ? (sql_lock_ == TL_UNLOCK ? TL_WRITE : sql_lock_) : TL_UNLOCK;
  close_cursor();
  lock_shared_ha_data();
  share_->current.reset();
  unlock_shared_ha_data();
  int error = to_ddl_error(pbxt_table_truncate(db, Session::core_of(thd), name_.data(), name_.size()), thd);
  known_auto_increment_ = 0;
  int open_error = lock == TL_UNLOCK ? open_cursor() : bind(thd, lock);
  return error ? error : open_error;
}

ulonglong ha_pbxt::table_version() const {
  pbxt_table_info size{};
  return pbxt_get_table_info(open_table_->core(), &size) == PBXT_OK ? size.table_id : 0;
}

/* ---- ALTER ---- */

enum_alter_inplace_result ha_pbxt::check_if_supported_inplace_alter(TABLE* altered,
                                                                    Alter_inplace_info* info) {
  const HA_CREATE_INFO* create_info = info->create_info;
  info->unsupported_reason = "PBXT stores the table differently after this change: it must be copied";
  if (info->handler_flags & ~kDefinitionOnly) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (create_info->sequence || altered->versioned()) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (info->handler_flags & ALTER_CHANGE_CREATE_OPTION) {
    if (create_info->used_fields & ~kDefinitionOnlyOptions) return HA_ALTER_INPLACE_NOT_SUPPORTED;
    // A lower next value needs the largest one in the table, which the copy finds.
    if (create_info->used_fields & HA_CREATE_USED_AUTO) {
      ha_pbxt::info(HA_STATUS_AUTO);
      if (create_info->auto_increment_value < stats.auto_increment_value)
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
    }
  }
  Definition before, after;
  before.build(table, name_.c_str());
  after.build(altered, name_.c_str());
  if (!before.stores_like(after)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  info->unsupported_reason = nullptr;
  return HA_ALTER_INPLACE_INSTANT;
}

/* Asked by EXCHANGE PARTITION: may the two tables take each other's place? */
bool ha_pbxt::check_if_incompatible_data(HA_CREATE_INFO* create_info, uint changes) {
  if (changes != IS_EQUAL_YES) return COMPATIBLE_DATA_NO;
  if ((create_info->used_fields & HA_CREATE_USED_AUTO) && create_info->auto_increment_value != 0)
    return COMPATIBLE_DATA_NO;
  const ha_table_option_struct *mine = table->s->option_struct, *other = create_info->option_struct;
  bool same_mode = (mine ? mine->conflict_mode : 0) == (other ? other->conflict_mode : 0);
  same_mode = same_mode && (mine ? mine->compression : 0) == (other ? other->compression : 0);
  return same_mode ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

/* What the catalog keeps for foreign keys and for reading without a server follows the new definition file.
 */
int ha_pbxt::redefine(TABLE* altered, Alter_inplace_info* info) {
  THD* thd = ha_thd();
  Definition definition;
  definition.build(altered, name_.c_str());
  definition.describe_columns(altered);
  definition.def.temporary = table->s->tmp_table != NO_TMP_TABLE;
  TableForeignKeys foreign_keys;
  if (int error = foreign_keys.for_alter(thd, name_.c_str(), altered, info->alter_info, &definition))
    return error;
  return to_ddl_error(pbxt_table_redefine(db, Session::core_of(thd), &definition.def), thd);
}

bool ha_pbxt::commit_inplace_alter_table(TABLE* altered, Alter_inplace_info* info, bool commit) {
  info->group_commit_ctx = nullptr;
  if (!commit) return false;
  if (int error = redefine(altered, info)) {
    if (!ha_thd()->is_error()) print_error(error, MYF(0));
    return true;
  }
  const HA_CREATE_INFO* create_info = info->create_info;
  bool sets_next_value =
      (info->handler_flags & ALTER_CHANGE_CREATE_OPTION) && (create_info->used_fields & HA_CREATE_USED_AUTO);
  if (!sets_next_value) return false;
  int error = fail(pbxt_autoinc_raise(open_table_->core(), create_info->auto_increment_value));
  // Durable now: the next value. No commit follows whose flush would bring it along.
  if (!error) error = fail(pbxt_flush(db));
  if (error) print_error(error, MYF(0));
  return error != 0;
}

/* ---- maintenance ---- */

int ha_pbxt::check(THD* thd, HA_CHECK_OPT* options) {
  if (!session_) return HA_ADMIN_INTERNAL_ERROR;
  bool asks_parents = options->flags & T_EXTEND;
  CheckReport report{thd, table};
  uint64_t findings = 0;
  thd_progress_init(thd, asks_parents ? 2 : 1);
  pbxt_status status = pbxt_table_check(open_table_->core(), session_->core(), report_finding,
                                        report_progress, &report, &findings);
  // What a damaged table shows says nothing of its parents.
  if (status == PBXT_OK && findings == 0 && asks_parents) {
    thd_progress_next_stage(thd);
    status = check_references(thd);
  }
  thd_progress_end(thd);
  if (status == PBXT_OK) return findings == 0 ? HA_ADMIN_OK : HA_ADMIN_CORRUPT;
  if (int error = fail(status))
    report_finding(&report, error == HA_ERR_ABORTED_BY_USER ? "stopped" : error_text());
  return status == PBXT_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
}

int ha_pbxt::analyze(THD*, HA_CHECK_OPT*) {
  if (fail(pbxt_table_analyze(open_table_->core())) != 0) return HA_ADMIN_FAILED;
  info(HA_STATUS_CONST | HA_STATUS_VARIABLE | HA_STATUS_TIME);
  return HA_ADMIN_OK;
}

}  // namespace pbxt
