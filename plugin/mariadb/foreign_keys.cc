/*
 * foreign_keys.cc: constraints between the engine's names (paths, columns) and the server's (identifiers,
 * clauses, lists).
 *
 * The engine's catalog is the only place where constraints are kept: the server's definition files do not
 * have them. So everything here is read from the engine, when it is asked for.
 */
#include "foreign_keys.h"

#include <string.h>

#include "sql_base.h"
#include "sql_table.h"

/* Exported by the server, declared in none of its headers. */
TABLE* find_fk_open_table(THD* thd, const char* db, size_t db_length, const char* table, size_t table_length);

namespace pbxt {
namespace {

std::string string_of(const pbxt_text& text) {
  return std::string(text.bytes, text.len);
}

int collect_key(void* target, const pbxt_foreign_key_info* info) noexcept {
  ForeignKey key;
  key.name = string_of(info->name);
  key.child = string_of(info->child);
  key.parent = string_of(info->parent);
  for (uint32_t i = 0; i < info->column_count; i++)
    key.columns.push_back({string_of(info->columns[i]), string_of(info->parent_columns[i]),
                           info->nullable[i] != 0, info->parent_nullable[i] != 0});
  key.on_delete = info->on_delete;
  key.on_update = info->on_update;
  key.bound = info->bound != 0;
  key.parent_index = string_of(info->parent_index);
  static_cast<ForeignKeys*>(target)->push_back(std::move(key));
  return 0;
}

/* The server has no identifier for the tables that ALTER makes by the way, and calls them tables of old
 * versions. */
std::string identifier_of_file(const std::string& file) {
  if (file.compare(0, tmp_file_prefix_length, tmp_file_prefix) == 0) return file;
  char name[NAME_LEN + 1];
  size_t length = filename_to_tablename(file.c_str(), name, sizeof(name), true);
  return std::string(name, length);
}

void append_name(THD* thd, String* out, const std::string& name) {
  append_identifier(thd, out, name.data(), name.size());
}

template <class NameOf>
void append_columns(THD* thd, String* out, const ForeignKey& key, NameOf name_of) {
  const char* before = "(";
  for (const ForeignKey::Column& column : key.columns) {
    out->append(before, strlen(before));
    append_name(thd, out, name_of(column));
    before = ", ";
  }
  out->append(')');
}

const char* action_text(uint8_t action) {
  switch (action) {
    case PBXT_FK_CASCADE:
      return "CASCADE";
    case PBXT_FK_SET_NULL:
      return "SET NULL";
    case PBXT_FK_NO_ACTION:
      return "NO ACTION";
    case PBXT_FK_SET_DEFAULT:
      return "SET DEFAULT";
    default:
      return nullptr;  // RESTRICT is what stands for no clause
  }
}

void append_action(String* out, const char* event, uint8_t action) {
  const char* text = action_text(action);
  if (!text) return;
  out->append(event, strlen(event));
  out->append(text, strlen(text));
}

enum_fk_option option_of(uint8_t action) {
  switch (action) {
    case PBXT_FK_CASCADE:
      return FK_OPTION_CASCADE;
    case PBXT_FK_SET_NULL:
      return FK_OPTION_SET_NULL;
    case PBXT_FK_NO_ACTION:
      return FK_OPTION_NO_ACTION;
    case PBXT_FK_SET_DEFAULT:
      return FK_OPTION_SET_DEFAULT;
    default:
      return FK_OPTION_RESTRICT;
  }
}

}  // namespace

TableName TableName::of_path(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", identifier_of_file(path)};
  size_t before = slash == 0 ? std::string::npos : path.rfind('/', slash - 1);
  size_t start = before == std::string::npos ? 0 : before + 1;
  return {identifier_of_file(path.substr(start, slash - start)), identifier_of_file(path.substr(slash + 1))};
}

std::string path_of(const char* db, const char* table) {
  char path[FN_REFLEN + 1];
  size_t length = build_table_filename(path, sizeof(path) - 1, db, table, "", 0);
  return std::string(path, length);
}

bool same_name(const std::string& a, const char* b) {
  return my_strcasecmp(system_charset_info, a.c_str(), b) == 0;
}

bool is_interim(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* name = slash ? slash + 1 : path;
  return strncmp(name, tmp_file_prefix, tmp_file_prefix_length) == 0;
}

ForeignKeys foreign_keys_of(const char* path) noexcept {
  ForeignKeys keys;
  pbxt_foreign_keys_of(db, path, strlen(path), collect_key, &keys);
  return keys;
}

ForeignKeys foreign_keys_to(const char* path) noexcept {
  ForeignKeys keys;
  pbxt_foreign_keys_to(db, path, strlen(path), collect_key, &keys);
  return keys;
}

std::vector<std::string> child_columns(const ForeignKey& key) {
  std::vector<std::string> names;
  for (const ForeignKey::Column& column : key.columns) names.push_back(column.child);
  return names;
}

std::vector<std::string> parent_columns(const ForeignKey& key) {
  std::vector<std::string> names;
  for (const ForeignKey::Column& column : key.columns) names.push_back(column.parent);
  return names;
}

bool begins_with(const KEY& index, const std::vector<std::string>& columns) {
  if (index.user_defined_key_parts < columns.size() || index.algorithm == HA_KEY_ALG_LONG_HASH) return false;
  for (size_t i = 0; i < columns.size(); i++) {
    const KEY_PART_INFO& part = index.key_part[i];
    if (part.key_part_flag & HA_PART_KEY_SEG || !same_name(columns[i], part.field->field_name.str))
      return false;
  }
  return true;
}

bool checks_foreign_keys(const THD* thd) {
  return !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
}

std::string clause_of(THD* thd, const ForeignKey& key, const std::string& db) {
  String out;
  out.append(STRING_WITH_LEN("CONSTRAINT "));
  append_name(thd, &out, key.name);
  out.append(STRING_WITH_LEN(" FOREIGN KEY "));
  append_columns(thd, &out, key, [](const ForeignKey::Column& column) { return column.child; });
  out.append(STRING_WITH_LEN(" REFERENCES "));
  TableName parent = TableName::of_path(key.parent);
  if (parent.db != db) {
    append_name(thd, &out, parent.db);
    out.append('.');
  }
  append_name(thd, &out, parent.table);
  out.append(' ');
  append_columns(thd, &out, key, [](const ForeignKey::Column& column) { return column.parent; });
  append_action(&out, " ON DELETE ", key.on_delete);
  append_action(&out, " ON UPDATE ", key.on_update);
  return std::string(out.ptr(), out.length());
}

std::string violation_text(THD* thd, const char* constraint, const std::string& child) {
  TableName name = TableName::of_path(child);
  for (const ForeignKey& key : foreign_keys_of(child.c_str())) {
    if (key.name != constraint) continue;
    String table;
    append_name(thd, &table, name.db);
    table.append('.');
    append_name(thd, &table, name.table);
    return std::string(table.ptr(), table.length()) + ", " + clause_of(thd, key, name.db);
  }
  return std::string("CONSTRAINT ") + constraint;
}

ForeignKeyList::Text ForeignKeyList::keep(const std::string& text) {
  Text place{texts_.size(), text.size()};
  texts_.append(text).push_back('\0');
  return place;
}

void ForeignKeyList::make(const ForeignKeys& keys) {
  texts_.clear();
  lines_.clear();
  columns_.clear();
  for (const ForeignKey& key : keys) {
    TableName child = TableName::of_path(key.child), parent = TableName::of_path(key.parent);
    lines_.push_back({keep(key.name), keep(child.db), keep(child.table), keep(parent.db), keep(parent.table),
                      keep(key.parent_index), key.bound, key.on_delete, key.on_update, columns_.size(),
                      key.columns.size()});
    for (const ForeignKey::Column& column : key.columns)
      columns_.push_back(
          {keep(column.child), keep(column.parent), column.child_nullable, column.parent_nullable});
  }
}

bool ForeignKeyList::add_to(THD* thd, List<FOREIGN_KEY_INFO>* list) const {
  constexpr size_t kTextsOfLine = 6, kTextsOfColumn = 2;
  size_t count = lines_.size() * kTextsOfLine + columns_.size() * kTextsOfColumn;
  char* texts = static_cast<char*>(thd->memdup(texts_.data(), texts_.size()));
  LEX_CSTRING* next = static_cast<LEX_CSTRING*>(thd->alloc(count * sizeof(LEX_CSTRING)));
  auto* infos = static_cast<FOREIGN_KEY_INFO*>(thd->alloc(lines_.size() * sizeof(FOREIGN_KEY_INFO)));
  if (!texts || !next || !infos) return true;
  auto put = [&](const Text& text) {
    *next = {texts + text.at, text.length};
    return next++;
  };
  for (const Line& line : lines_) {
    FOREIGN_KEY_INFO* info = new (infos++) FOREIGN_KEY_INFO();
    info->foreign_id = put(line.name);
    info->foreign_db = put(line.child_db);
    info->foreign_table = put(line.child_table);
    info->referenced_db = put(line.parent_db);
    info->referenced_table = put(line.parent_table);
    info->update_method = option_of(line.on_update);
    info->delete_method = option_of(line.on_delete);
    info->referenced_key_name = line.bound ? put(line.parent_index) : nullptr;
    unsigned columns = static_cast<unsigned>(line.column_count);
    for (unsigned i = 0; i < columns; i++) {
      const Column& column = columns_[line.first_column + i];
      if (info->foreign_fields.push_back(put(column.child), thd->mem_root)) return true;
      if (info->referenced_fields.push_back(put(column.parent), thd->mem_root)) return true;
      if (column.child_nullable) info->set_nullable(thd, false, i, columns);
      if (column.parent_nullable) info->set_nullable(thd, true, i, columns);
    }
    if (list->push_back(info, thd->mem_root)) return true;
  }
  return false;
}

int generate_columns(THD* thd, const std::string& path, uchar* record) noexcept {
  TableName name = TableName::of_path(path);
  TABLE* table =
      find_fk_open_table(thd, name.db.data(), name.db.size(), name.table.data(), name.table.size());
  if (!table) return HA_ERR_NO_SUCH_TABLE;
  if (!table->vfield) return 0;
  MY_BITMAP *reads = table->read_set, *writes = table->write_set;
  table->use_all_columns();
  table->move_fields(table->field, record, table->record[0]);
  int error = table->update_virtual_fields(table->file, VCOL_UPDATE_FOR_WRITE);
  // A long value lies in its field, and the record points to it. The row before an action and the row after
  // it are made one behind the other and compared then: the second must not come into the first one's memory.
  for (Field** field = table->vfield; *field; field++)
    if ((*field)->flags & BLOB_FLAG) static_cast<Field_blob*>(*field)->swap_value_and_read_value();
  table->move_fields(table->field, table->record[0], record);
  table->read_set = reads;
  table->write_set = writes;
  return error;
}

}  // namespace pbxt
