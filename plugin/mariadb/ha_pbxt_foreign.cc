/*
 * ha_pbxt_foreign.cc: what the handler tells the server of foreign keys: lists, clauses, texts of violations.
 *
 * The server reads the lists to open the tables that a change may reach by actions, under their metadata
 * locks, and to refuse changes of definitions that constraints need. The engine alone keeps constraints.
 */
#include "error_map.h"
#include "foreign_keys_ddl.h"
#include "ha_pbxt.h"
#include "session.h"

// After the server's own headers, which it needs.
#include <mysql/service_print_check_msg.h>

namespace pbxt {

/* Rows that a copying ALTER copies were checked when they came; they are checked again only if it adds
 * constraints. */
bool ha_pbxt::must_check_foreign_keys(THD* thd) const {
  return checks_foreign_keys(thd) && (!is_interim(name_.c_str()) || adds_foreign_keys(thd));
}

/* What stands in parentheses in ERROR 1451 and 1452. Without a cursor it was a DROP TABLE. */
void ha_pbxt::append_violation(String* buffer) {
  pbxt_text constraint{}, child{}, parent{};
  if (!cursor_ || pbxt_cursor_violated(cursor_, &constraint, &child, &parent) != PBXT_OK) {
    buffer->append(refused_drop().data(), refused_drop().size());
    return;
  }
  std::string name(constraint.bytes, constraint.len);
  std::string text = violation_text(ha_thd(), name.c_str(), std::string(child.bytes, child.len));
  buffer->append(text.data(), text.size());
}

/* ---- CHECK TABLE ... EXTENDED (rules FK47 to FK49) ---- */

namespace {

struct Unkept {
  std::string constraint, parent, why;
  uint64_t orphans, example;
};

/* Lines are told when all of them are known: an example is read through the same cursor. */
struct ReferenceReport {
  THD* thd;
  std::vector<Unkept> unkept;
};

std::string string_of(const pbxt_text& text) {
  return std::string(text.bytes, text.len);
}

void note_unkept(void* context, const pbxt_unkept* line) noexcept {
  static_cast<ReferenceReport*>(context)->unkept.push_back({string_of(line->constraint),
                                                            string_of(line->parent), string_of(line->why),
                                                            line->orphans, line->example});
}

void note_progress(void* context, uint64_t done, uint64_t total) {
  thd_progress_report(static_cast<const ReferenceReport*>(context)->thd, done, total);
}

std::string quoted(THD* thd, const std::string& name) {
  String text;
  append_identifier(thd, &text, name.data(), name.size());
  return std::string(text.ptr(), text.length());
}

}  // namespace

/* "(`a`, `b`) = ('x', 2)" of the row in record[0]; nothing if the constraint is gone meanwhile. */
std::string ha_pbxt::values_of(const std::string& constraint) const {
  std::string names, values;
  for (const ForeignKey& key : foreign_keys_of(name_.c_str())) {
    if (key.name != constraint) continue;
    for (const std::string& column : child_columns(key)) {
      for (Field** each = table->field; *each; each++) {
        if (!same_name(column, (*each)->field_name.str)) continue;
        String buffer, *value = (*each)->val_str(&buffer);
        ErrConvString printable(value);
        bool is_text = (*each)->result_type() == STRING_RESULT;
        names += (names.empty() ? "" : ", ") + quoted(ha_thd(), column);
        values += (values.empty() ? "" : ", ") +
                  (is_text ? "'" + std::string(printable.ptr()) + "'" : std::string(printable.ptr()));
      }
    }
  }
  return "(" + names + ") = (" + values + ")";
}

/* The row of this id into record[0]. */
int ha_pbxt::read_example(uint64_t row_id) {
  table->use_all_columns();
  if (int error = ha_rnd_init(false)) return error;
  mi_int8store(ref + ref_length - sizeof(uint64_t), row_id);
  int error = ha_rnd_pos(table->record[0], ref);
  ha_rnd_end();
  return error;
}

pbxt_status ha_pbxt::check_references(THD* thd) {
  ReferenceReport report{thd, {}};
  pbxt_status status =
      pbxt_table_check_references(open_table_->core(), session_->core(), note_unkept, note_progress, &report);
  if (status != PBXT_OK) return status;
  const char *db_name = table->s->db.str, *table_name = table->s->table_name.str;
  for (const Unkept& line : report.unkept) {
    TableName name = TableName::of_path(line.parent);
    std::string parent = quoted(thd, name.db) + "." + quoted(thd, name.table);
    std::string text = "foreign key " + quoted(thd, line.constraint);
    if (line.orphans == 0) {
      text += " is not kept, and rows were not judged by it: of " + parent + ", " + line.why;
      print_check_msg(thd, db_name, table_name, "check", "note", text.c_str(), 0);
      continue;
    }
    text += ": " + std::to_string(line.orphans) + (line.orphans == 1 ? " row has" : " rows have") +
            " no parent in " + parent;
    if (read_example(line.example) == 0)
      text += (line.orphans == 1 ? ": " : ", for example ") + values_of(line.constraint);
    print_check_msg(thd, db_name, table_name, "check", "warning", text.c_str(), 0);
  }
  return PBXT_OK;
}

/* Why a new value was refused is not in the server's text. A row that is not there needs no reason; a parent
   that is not there, or does not fit, does. */
void ha_pbxt::explain_missing_parent() const {
  pbxt_text constraint{}, child{}, parent{};
  if (pbxt_cursor_violated(cursor_, &constraint, &child, &parent) != PBXT_OK) return;
  std::string name(constraint.bytes, constraint.len);
  for (const ForeignKey& key : foreign_keys_of(std::string(child.bytes, child.len).c_str()))
    if (key.name == name && !key.bound)
      push_warning_printf(ha_thd(), Sql_condition::WARN_LEVEL_NOTE, ER_NO_REFERENCED_ROW_2, "PBXT: %s",
                          error_text());
}

char* ha_pbxt::get_foreign_key_create_info() {
  std::string text, schema = TableName::of_path(name_).db;
  for (const ForeignKey& key : foreign_keys_of(name_.c_str()))
    text += ",\n  " + clause_of(ha_thd(), key, schema);
  return text.empty() ? nullptr : my_strndup(PSI_NOT_INSTRUMENTED, text.data(), text.size(), MYF(MY_WME));
}

void ha_pbxt::free_foreign_key_create_info(char* text) {
  my_free(text);
}

int ha_pbxt::get_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* list) {
  ForeignKeyList keys;
  keys.make(foreign_keys_of(name_.c_str()));
  return keys.add_to(thd, list) ? HA_ERR_OUT_OF_MEM : 0;
}

/* Asked for by every statement that changes rows of a parent. */
int ha_pbxt::get_parent_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* list) {
  if (!referenced_by_foreign_key()) return 0;
  // The number first: a change after it makes another one.
  uint64_t changes = pbxt_foreign_key_changes(db);
  if (!children_known_ || children_of_ != changes) {
    children_.make(foreign_keys_to(name_.c_str()));
    children_of_ = changes;
    children_known_ = true;
  }
  return children_.add_to(thd, list) ? HA_ERR_OUT_OF_MEM : 0;
}

bool ha_pbxt::referenced_by_foreign_key() const noexcept {
  return open_table_ && pbxt_table_is_referenced(open_table_->core());
}

/* MAX_KEY asks for the table. */
bool ha_pbxt::is_fk_defined_on_table_or_index(uint index) {
  ForeignKeys keys = foreign_keys_of(name_.c_str());
  if (index == MAX_KEY) return !keys.empty();
  for (const ForeignKey& key : keys)
    if (begins_with(table->key_info[index], child_columns(key))) return true;
  return false;
}

/* The server would make the table of the other engine without its constraints. */
bool ha_pbxt::can_switch_engines() {
  return !referenced_by_foreign_key() && foreign_keys_of(name_.c_str()).empty();
}

}  // namespace pbxt
