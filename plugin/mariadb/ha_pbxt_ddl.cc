/*
 * ha_pbxt_ddl.cc: CREATE, DROP, RENAME, TRUNCATE, CHECK, ANALYZE and OPTIMIZE.
 *
 * Tables are named by the server's path, byte for byte. Each change of the catalog is atomic and durable in
 * the engine when the call returns. ALTER: ha_pbxt_alter.cc.
 */
#include "error_map.h"
#include "foreign_keys_ddl.h"
#include "ha_pbxt.h"
#include "pbxt_optimize.h"
#include "pbxt_statistics.h"
#include "session.h"

// After the server's own headers, which it needs.
#include <mysql/service_print_check_msg.h>

namespace pbxt {
namespace {

void warn_about(THD* thd, bool is_given, const char* option) {
  if (is_given)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                        ER_THD(thd, WARN_OPTION_IGNORED), option);
}

void warn_about_directories(THD* thd, const HA_CREATE_INFO* create_info) {
  warn_about(thd, create_info->data_file_name, "DATA DIRECTORY");
  warn_about(thd, create_info->index_file_name, "INDEX DIRECTORY");
}

/* Where an administrative statement answers to. */
struct AdminReport {
  THD* thd;
  TABLE* table;
  const char* operation;
};

void report_finding(void* context, const char* text) {
  const AdminReport* report = static_cast<const AdminReport*>(context);
  const TABLE_SHARE* share = report->table->s;
  print_check_msg(report->thd, share->db.str, share->table_name.str, report->operation, "error", text, 1);
}

/* A line of the answer to OPTIMIZE. */
void say(const AdminReport& report, const char* kind, const char* text) {
  const TABLE_SHARE* share = report.table->s;
  print_check_msg(report.thd, share->db.str, share->table_name.str, report.operation, kind, text, 0);
}

void report_progress(void* context, uint64_t done, uint64_t total) {
  thd_progress_report(static_cast<const AdminReport*>(context)->thd, done, total);
}

}  // namespace

void warn_about_options(THD* thd, const ha_table_option_struct* options,
                        const ha_table_option_struct* before) {
  static const ha_table_option_struct kNone{};
  const ha_table_option_struct &now = options ? *options : kNone, &then = before ? *before : kNone;
  warn_about(thd, now.page_compressed && !then.page_compressed, "PAGE_COMPRESSED");
  bool is_new_level = now.page_compression_level != then.page_compression_level;
  warn_about(thd, now.page_compression_level && is_new_level, "PAGE_COMPRESSION_LEVEL");
  bool is_new_key = now.encryption_key_id != then.encryption_key_id;
  warn_about(thd, now.encryption_key_id && is_new_key, "ENCRYPTION_KEY_ID");
  warn_about(thd, now.atomic_writes && now.atomic_writes != then.atomic_writes, "ATOMIC_WRITES");
}

/* The server tells of an error once more, in words of its own for the code. */
int ha_pbxt::create(const char* name, TABLE* form, HA_CREATE_INFO* create_info) {
  int error = create_table(name, form, create_info);
  if (error && ha_thd()->is_error()) told_error_ = error;
  return error;
}

int ha_pbxt::create_table(const char* name, TABLE* form, HA_CREATE_INFO* create_info) {
  THD* thd = ha_thd();
  warn_about_directories(thd, create_info);
  const ha_table_option_struct* options =
      create_info->option_struct ? create_info->option_struct : form->s->option_struct;
  warn_about_options(thd, options, nullptr);
  if (const char* why = refuse_encryption(options)) {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "%s", MYF(0), why);
    return HA_WRONG_CREATE_OPTION;
  }
  Definition definition;
  definition.build(form, name);
  // A column that loses the attribute leaves no value behind; one that is asked for stays even without a
  // column.
  if (form->found_next_number_field || (create_info->used_fields & HA_CREATE_USED_AUTO))
    definition.def.auto_increment = create_info->auto_increment_value;
  definition.def.temporary = create_info->tmp_table();
  definition.def.encrypted = asks_for_encryption(options);  // a partition may have its own
  definition.describe_columns(form);
  definition.keep_image(form);
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

/* ---- maintenance ---- */

int ha_pbxt::check(THD* thd, HA_CHECK_OPT* options) {
  if (!session_) return HA_ADMIN_INTERNAL_ERROR;
  bool asks_parents = options->flags & T_EXTEND;
  AdminReport report{thd, table, "check"};
  uint64_t findings = 0;
  thd_progress_init(thd, asks_parents ? 2 : 1);
  bool is_quick = (options->flags & T_QUICK) && !asks_parents;
  pbxt_status status = pbxt_table_check(open_table_->core(), session_->core(), is_quick, report_finding,
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

int ha_pbxt::optimize(THD* thd, HA_CHECK_OPT*) {
  if (!session_) return HA_ADMIN_INTERNAL_ERROR;
  AdminReport report{thd, table, "optimize"};
  pbxt_optimized done{};
  thd_progress_init(thd, 1);
  pbxt_status status =
      pbxt_table_optimize(open_table_->core(), session_->core(), report_progress, &report, &done);
  thd_progress_end(thd);
  if (int error = fail(status)) {
    say(report, "error", error == HA_ERR_ABORTED_BY_USER ? "stopped" : error_text());
    return status == PBXT_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  }
  if (done.is_held)
    say(report, "note", "what older snapshots or unfinished transactions may need stays until they end");
  if (done.is_scattered)
    say(report, "note",
        "rows stay in the order in which they came; "
        "ALTER TABLE ... ORDER BY with the columns of the primary key sorts them, by a copy");
  info(HA_STATUS_CONST | HA_STATUS_VARIABLE | HA_STATUS_TIME);
  return HA_ADMIN_OK;
}

int ha_pbxt::analyze(THD* thd, HA_CHECK_OPT*) {
  if (!session_) return HA_ADMIN_INTERNAL_ERROR;
  AdminReport report{thd, table, "analyze"};
  thd_progress_init(thd, 1);
  pbxt_status status = pbxt_table_analyze(open_table_->core(), session_->core(), report_progress, &report);
  thd_progress_end(thd);
  if (int error = fail(status)) {
    report_finding(&report, error == HA_ERR_ABORTED_BY_USER ? "stopped" : error_text());
    return HA_ADMIN_FAILED;
  }
  info(HA_STATUS_CONST | HA_STATUS_VARIABLE | HA_STATUS_TIME);
  return HA_ADMIN_OK;
}

}  // namespace pbxt
