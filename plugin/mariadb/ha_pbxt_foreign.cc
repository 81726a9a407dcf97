/*
 * ha_pbxt_foreign.cc: what the handler tells the server of foreign keys: lists, clauses, texts of violations.
 *
 * The server reads the lists to open the tables that a change may reach by actions, under their metadata
 * locks, and to refuse changes of definitions that constraints need. The engine alone keeps constraints.
 */
#include "error_map.h"
#include "foreign_keys_ddl.h"
#include "ha_pbxt.h"

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
  for (const ForeignKey& key : foreign_keys_of(name_.c_str()))
    if (add_to_list(thd, key, list)) return HA_ERR_OUT_OF_MEM;
  return 0;
}

int ha_pbxt::get_parent_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* list) {
  if (!referenced_by_foreign_key()) return 0;
  for (const ForeignKey& key : foreign_keys_to(name_.c_str()))
    if (add_to_list(thd, key, list)) return HA_ERR_OUT_OF_MEM;
  return 0;
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
