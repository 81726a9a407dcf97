/*
 * foreign_keys_ddl.cc: which constraints a new or altered table has, and what DROP and RENAME mean to
 * constraints.
 *
 * A copying ALTER makes a table under another name, sets the old one aside and gives the new one its name
 * (rules FK7, FK8). The server passes only the clauses of the statement, so the constraints that the table
 * has already come from the engine, less those dropped, with the new names of columns.
 */
#include "foreign_keys_ddl.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "column_types.h"
#include "error_map.h"
#include "session.h"

namespace pbxt {
namespace {

uint8_t action_of(enum_fk_option option) {
  switch (option) {
    case FK_OPTION_CASCADE:
      return PBXT_FK_CASCADE;
    case FK_OPTION_SET_NULL:
      return PBXT_FK_SET_NULL;
    case FK_OPTION_NO_ACTION:
      return PBXT_FK_NO_ACTION;
    case FK_OPTION_SET_DEFAULT:
      return PBXT_FK_SET_DEFAULT;
    default:
      return PBXT_FK_RESTRICT;
  }
}

std::string in_stored_case(const char* name) {
  std::string text = name;
  if (lower_case_table_names) {
    text.resize(text.size() * files_charset_info->casedn_multiply());
    size_t length = strlen(name);
    length = files_charset_info->casedn(name, length, &text[0], text.size());
    text.resize(length);
  }
  return text;
}

/* The table that the statement copies, if it is one of this engine. */
TABLE* table_being_copied(THD* thd, const char* path) {
  if (!is_interim(path)) return nullptr;
  TABLE_LIST* list = thd->lex->query_tables;
  TABLE* table = list ? list->table : nullptr;
  return table && table->file && table->file->ht == hton ? table : nullptr;
}

/* The number of the field of this name; -1 if there is none. */
int position_of(TABLE* table, const std::string& name) {
  for (uint i = 0; i < table->s->fields; i++)
    if (same_name(name, table->field[i]->field_name.str)) return static_cast<int>(i);
  return -1;
}

/* A column of the table before the ALTER, as it is called after it. */
std::string new_name_of(const std::string& name, Alter_info* alter_info) {
  List_iterator<Create_field> fields(alter_info->create_list);
  while (Create_field* field = fields++)
    if (field->field && same_name(name, field->field->field_name.str)) return field->field_name.str;
  return name;
}

bool is_dropped(const std::string& name, Alter_info* alter_info) {
  List_iterator<Alter_drop> drops(alter_info->drop_list);
  while (Alter_drop* drop = drops++)
    if (drop->type == Alter_drop::FOREIGN_KEY && same_name(name, drop->name)) return true;
  return false;
}

/* DROP FOREIGN KEY of what the table does not have. */
int check_drops(const ForeignKeys& keys, Alter_info* alter_info) {
  List_iterator<Alter_drop> drops(alter_info->drop_list);
  while (Alter_drop* drop = drops++) {
    if (drop->type != Alter_drop::FOREIGN_KEY) continue;
    auto is_it = [&](const ForeignKey& key) { return same_name(key.name, drop->name); };
    if (drop->drop_if_exists || std::any_of(keys.begin(), keys.end(), is_it)) continue;
    my_error(ER_CANT_DROP_FIELD_OR_KEY, MYF(0), drop->type_name(), drop->name);
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  return 0;
}

int collect_path(void* target, const char* path, size_t length) noexcept {
  static_cast<std::vector<std::string>*>(target)->emplace_back(path, length);
  return 0;
}

/* The first number that makes `prefix` a name which no constraint of the database has. */
ulong free_number(const std::string& schema, const std::string& prefix, const ForeignKeys& own) {
  ulong greatest = 0;
  auto look = [&](const ForeignKeys& keys) {
    for (const ForeignKey& key : keys)
      if (key.name.size() > prefix.size() && same_name(key.name.substr(0, prefix.size()), prefix.c_str()))
        greatest = std::max(greatest, strtoul(key.name.c_str() + prefix.size(), nullptr, 10));
  };
  std::vector<std::string> paths;
  pbxt_table_list(db, schema.data(), schema.size(), collect_path, &paths);
  for (const std::string& path : paths) look(foreign_keys_of(path.c_str()));
  look(own);
  return greatest + 1;
}

const KEY* index_of(const TABLE* table, const std::vector<std::string>& columns) {
  for (uint i = 0; i < table->s->keys; i++)
    if (begins_with(table->key_info[i], columns)) return &table->key_info[i];
  return nullptr;
}

bool writes_columns(const ForeignKey& key) {
  auto writes = [](uint8_t action) { return action == PBXT_FK_SET_NULL || action == PBXT_FK_SET_DEFAULT; };
  return writes(key.on_delete) || writes(key.on_update) || key.on_update == PBXT_FK_CASCADE;
}

/* NULL is in no unique key twice, other values may be. */
bool gives_values(const ForeignKey& key) {
  return key.on_delete == PBXT_FK_SET_DEFAULT || key.on_update == PBXT_FK_SET_DEFAULT ||
         key.on_update == PBXT_FK_CASCADE;
}

/* The key of which the column is a part, if the server compares its values: it is not asked about rows that
 * actions change. */
const KEY* checked_key_of(const TABLE* table, const Field* field) {
  for (uint i = 0; i < table->s->keys; i++) {
    const KEY& key = table->key_info[i];
    bool is_hash = key.algorithm == HA_KEY_ALG_LONG_HASH;
    if (!is_hash && !key.without_overlaps) continue;
    const KEY_PART_INFO* part = is_hash ? Definition::hash_part(key) : key.key_part;
    uint count = is_hash ? Definition::hashed_parts(part) : key.user_defined_key_parts;
    if (is_hash) part -= count;
    for (uint j = 0; j < count; j++)
      if (part[j].fieldnr == field->field_index + 1) return &key;
  }
  return nullptr;
}

/* Rule FK9: why actions of the constraint cannot change the column; nothing if they can. */
std::string refuse_writes(TABLE* form, const ForeignKey& key, const Field* field) {
  std::string change = std::string("its actions would change column '") + field->field_name.str + "', ";
  if (is_base_of_stored_column(form, field))
    return change + "from which a stored column is computed: use RESTRICT, or compute a virtual column";
  const KEY* checked = gives_values(key) ? checked_key_of(form, field) : nullptr;
  if (!checked) return "";
  return change + "and nobody would look whether unique index '" + checked->name.str +
         "' has the values already, for it is one over long values or WITHOUT OVERLAPS: use RESTRICT, SET "
         "NULL, or ON DELETE CASCADE";
}

void refuse(THD* thd, const ForeignKey& key, const std::string& why) {
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN,
                      "PBXT: foreign key '%s': %s", key.name.c_str(), why.c_str());
}

bool is_renamed_too(THD* thd) {
  return thd->lex->sql_command == SQLCOM_ALTER_TABLE && (thd->lex->alter_info.flags & ALTER_RENAME);
}

}  // namespace

/* ---- CREATE and ALTER ---- */

int TableForeignKeys::for_create(THD* thd, const char* path, TABLE* form, HA_CREATE_INFO* create_info,
                                 Definition* definition) noexcept {
  definition->def.check_foreign_keys = checks_foreign_keys(thd);
  Alter_info* alter_info = create_info->alter_info;
  if (!alter_info) return 0;
  TABLE* before = table_being_copied(thd, path);
  if (before) {
    original_ = before->s->normalized_path.str;
    definition->def.replaces = original_.data();
    definition->def.replaces_len = original_.size();
    if (int error = add_kept(original_.c_str(), alter_info, form)) return error;
  }
  if (int error = add_new(thd, path, before ? original_.c_str() : path, alter_info, form)) return error;
  if (int error = check_versioning(thd, form)) return error;
  if (int error = check_writes(thd, form)) return error;
  if (before)
    if (int error = check_indexes(thd, original_.c_str(), form, before)) return error;
  put_into(thd, definition, form);
  return 0;
}

int TableForeignKeys::for_alter(THD* thd, const char* path, TABLE* altered, Alter_info* alter_info,
                                Definition* definition) noexcept {
  definition->def.check_foreign_keys = checks_foreign_keys(thd);
  if (int error = add_kept(path, alter_info, altered)) return error;
  put_into(thd, definition, altered);
  return 0;
}

void TableForeignKeys::for_question(THD* thd, const char* path, TABLE* altered, Alter_info* alter_info,
                                    Definition* definition) noexcept {
  definition->def.check_foreign_keys = checks_foreign_keys(thd);
  keep(foreign_keys_of(path), alter_info);
  put_into(thd, definition, altered);
}

int TableForeignKeys::add_kept(const char* original, Alter_info* alter_info, TABLE*) {
  ForeignKeys keys = foreign_keys_of(original);
  if (int error = check_drops(keys, alter_info)) return error;
  keep(std::move(keys), alter_info);
  return 0;
}

void TableForeignKeys::keep(ForeignKeys keys, Alter_info* alter_info) {
  for (ForeignKey& key : keys) {
    if (is_dropped(key.name, alter_info)) continue;
    for (ForeignKey::Column& column : key.columns) column.child = new_name_of(column.child, alter_info);
    keys_.push_back(std::move(key));
  }
  kept_count_ = keys_.size();
}

int TableForeignKeys::add_new(THD* thd, const char* path, const char* original, Alter_info* alter_info,
                              TABLE*) {
  TableName name = TableName::of_path(original);
  std::string schema = std::string(path, strrchr(path, '/') + 1);
  ulong number = 0;
  List_iterator<Key> given(alter_info->key_list);
  while (Key* each = given++) {
    if (each->type != Key::FOREIGN_KEY || each->old) continue;
    Foreign_key* foreign = static_cast<Foreign_key*>(each);
    ForeignKey key;
    key.child = path;
    const LEX_CSTRING& said = foreign->constraint_name.str ? foreign->constraint_name : foreign->name;
    if (said.str) {
      key.name = said.str;
    } else {
      std::string prefix = name.table + "_ibfk_";
      if (number == 0) number = free_number(schema, prefix, keys_);
      key.name = prefix + std::to_string(number++);
    }
    std::string parent_db = foreign->ref_db.str ? in_stored_case(foreign->ref_db.str) : name.db;
    key.parent = path_of(parent_db.c_str(), in_stored_case(foreign->ref_table.str).c_str());
    key.on_delete = action_of(foreign->delete_opt);
    key.on_update = action_of(foreign->update_opt);
    if (foreign->ref_columns.elements != foreign->columns.elements) {
      refuse(thd, key,
             "it names no columns of table " + TableName::of_path(key.parent).table + ": name them");
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    List_iterator<Key_part_spec> columns(foreign->columns), parents(foreign->ref_columns);
    while (Key_part_spec* column = columns++)
      key.columns.push_back({column->field_name.str, (parents++)->field_name.str, false, false});
    keys_.push_back(std::move(key));
  }
  return 0;
}

/* Rule FK50. Parents are told by the types of their columns. */
int TableForeignKeys::check_versioning(THD* thd, const TABLE* form) const {
  if (keys_.empty() || !form->versioned()) return 0;
  refuse(thd, keys_.front(),
         "the table keeps its former rows (WITH SYSTEM VERSIONING), which would refer to rows that are gone: "
         "leave out one of the two");
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

/* Rule FK9. */
int TableForeignKeys::check_writes(THD* thd, TABLE* form) const {
  for (const ForeignKey& key : keys_) {
    if (!writes_columns(key)) continue;
    for (const ForeignKey::Column& column : key.columns) {
      int position = position_of(form, column.child);
      std::string why = position < 0 ? "" : refuse_writes(form, key, form->field[position]);
      if (why.empty()) continue;
      refuse(thd, key, why);
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
  }
  return 0;
}

/* A copying ALTER must not take away an index that a constraint needs (rule FK42), unless checks are off. */
int TableForeignKeys::check_indexes(THD* thd, const char* original, TABLE* form, TABLE* before) const {
  ForeignKeys incoming = foreign_keys_to(original);
  auto is_own = [&](const ForeignKey& key) { return key.parent == original; };
  bool is_parent = !incoming.empty() || std::any_of(keys_.begin(), keys_.end(), is_own);
  if (is_parent && is_renamed_too(thd)) {
    my_error(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON, MYF(0), "RENAME with changes that copy the table",
             "foreign keys refer to the table", "to rename it in a statement of its own");
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  if (int error = check_nulls(form)) return error;
  if (!checks_foreign_keys(thd)) return 0;
  auto lost = [&](const std::vector<std::string>& columns) {
    const KEY* had = index_of(before, columns);
    if (!had || index_of(form, columns)) return false;
    my_error(ER_DROP_INDEX_FK, MYF(0), had->name.str);
    return true;
  };
  for (size_t i = 0; i < kept_count_; i++)
    if (lost(child_columns(keys_[i]))) return HA_ERR_DROP_INDEX_FK;
  for (const ForeignKey& key : incoming)
    if (key.child != original && lost(parent_columns(key))) return HA_ERR_DROP_INDEX_FK;
  return 0;
}

/* SET NULL of a constraint that is there already, and a column that is to allow no NULL any more. */
int TableForeignKeys::check_nulls(TABLE* form) const {
  for (size_t i = 0; i < kept_count_; i++) {
    const ForeignKey& key = keys_[i];
    if (key.on_delete != PBXT_FK_SET_NULL && key.on_update != PBXT_FK_SET_NULL) continue;
    for (const ForeignKey::Column& column : key.columns) {
      int position = position_of(form, column.child);
      if (position < 0 || form->field[position]->real_maybe_null()) continue;
      my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), column.child.c_str(), key.name.c_str());
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
  }
  return 0;
}

void TableForeignKeys::put_into(THD*, Definition* definition, TABLE* form) {
  for (const ForeignKey& key : keys_) {
    columns_.emplace_back();
    parent_columns_.emplace_back();
    for (const ForeignKey::Column& column : key.columns) {
      columns_.back().push_back(static_cast<uint32_t>(position_of(form, column.child)));
      parent_columns_.back().push_back({column.parent.data(), column.parent.size()});
    }
    pbxt_foreign_key item{};
    item.name = {key.name.data(), key.name.size()};
    item.parent = {key.parent.data(), key.parent.size()};
    item.column_count = static_cast<uint32_t>(key.columns.size());
    item.columns = columns_.back().data();
    item.parent_columns = parent_columns_.back().data();
    item.on_delete = key.on_delete;
    item.on_update = key.on_update;
    items_.push_back(item);
  }
  definition->def.foreign_keys = items_.data();
  definition->def.foreign_key_count = static_cast<uint32_t>(items_.size());
}

bool adds_foreign_keys(THD* thd) {
  // Other statements leave the list as a statement before them left it, in memory that is gone.
  if (thd->lex->sql_command != SQLCOM_ALTER_TABLE) return false;
  List_iterator<Key> keys(thd->lex->alter_info.key_list);
  while (Key* key = keys++)
    if (key->type == Key::FOREIGN_KEY && !key->old) return true;
  return false;
}

void explain_refusal(THD* thd, const Definition& definition) noexcept {
  for (uint32_t i = 0; i < definition.def.foreign_key_count; i++) {
    const pbxt_foreign_key& key = definition.def.foreign_keys[i];
    if (pbxt_table_exists(db, key.parent.bytes, key.parent.len)) continue;
    TableName name = TableName::of_path(std::string(key.parent.bytes, key.parent.len));
    LEX_CSTRING schema = {name.db.data(), name.db.size()}, table = {name.table.data(), name.table.size()};
    handlerton* engine = nullptr;
    if (!ha_table_exists(thd, &schema, &table, nullptr, nullptr, &engine) || !engine || engine == hton)
      continue;
    push_warning_printf(
        thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN,
        "PBXT: table `%s`.`%s` belongs to engine %s: parent and child of a foreign key have to be "
        "PBXT tables without partitions",
        name.db.c_str(), name.table.c_str(), hton_name(engine)->str);
  }
}

/* With checks off other engines add constraints in place, and then the error has the constraint's name. */
void report_taken_name(THD* thd, const char* path) noexcept {
  if (thd->lex->sql_command != SQLCOM_ALTER_TABLE || checks_foreign_keys(thd)) return;
  if (thd->lex->alter_info.algorithm(thd) == Alter_info::ALTER_TABLE_ALGORITHM_COPY) return;
  std::string name = TableName::of_path(path).db + "/" + pbxt_error_subject();
  my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", name.c_str());
}

/* ---- DROP and RENAME ---- */

/* DROP DATABASE takes children of the same database along (rule FK43). */
static uint32_t drop_flags(THD* thd, const char* path) {
  if (!thd || is_interim(path) || !restricts_drops(thd) || !checks_foreign_keys(thd)) return 0;
  if (thd->lex->sql_command != SQLCOM_DROP_DB) return PBXT_DROP_UNLESS_REFERENCED;
  std::string schema = TableName::of_path(path).db;
  for (const ForeignKey& key : foreign_keys_to(path))
    if (TableName::of_path(key.child).db != schema) return PBXT_DROP_UNLESS_REFERENCED;
  return 0;
}

/* By which constraint the last refused drop of this thread was refused. */
static thread_local std::string refused_by;

int drop_table(THD* thd, const char* path) noexcept {
  uint32_t flags = drop_flags(thd, path);
  int error = to_ha_error(pbxt_table_drop(db, Session::core_of(thd), path, strlen(path), flags), thd);
  if (error != HA_ERR_ROW_IS_REFERENCED) return error;
  refused_by = error_text();
  for (const ForeignKey& key : foreign_keys_to(path)) {
    if (key.child == path) continue;
    refused_by = violation_text(thd, key.name.c_str(), key.child);
    break;
  }
  return error;
}

const std::string& refused_drop() {
  return refused_by;
}

uint32_t rename_flags(THD* thd, const char* from, const char* to) {
  bool leaves = is_interim(to), comes = is_interim(from);
  uint32_t flags = leaves || comes ? PBXT_RENAME_KEEP_REFERENCES : 0;
  if (leaves && !comes) flags |= PBXT_RENAME_SETS_ASIDE;
  if (comes && !leaves) flags |= PBXT_RENAME_TAKES_PLACE;
  if (!leaves && thd && checks_foreign_keys(thd)) flags |= PBXT_CHECK_FOREIGN_KEYS;
  return flags;
}

}  // namespace pbxt
