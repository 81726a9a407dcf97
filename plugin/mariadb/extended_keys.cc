/*
 * extended_keys.cc: compares what the server derives from a table's definition with what the table has.
 */
#include "extended_keys.h"

#include <algorithm>

namespace pbxt {
namespace {

/* Longer primary keys are not put into row references: they would be sorted and kept many at a time. */
constexpr size_t kOrderBytesMax = 256;

}  // namespace

pbxt_status ExtendedKeys::learn(const TABLE* table, const Definition& definition, pbxt_table* core) {
  parts_.resize(table->s->keys);
  columns_.resize(table->s->keys);
  whole_columns_.resize(table->s->keys);
  for (uint i = 0; i < table->s->keys; i++) {
    uint32_t parts = 0;
    pbxt_status status = pbxt_index_parts(core, i, &parts);
    if (status != PBXT_OK) return status;
    const KEY& key = table->key_info[i];
    // Of a key over long values the engine has a hash, and nothing else.
    bool is_hash = key.algorithm == HA_KEY_ALG_LONG_HASH;
    parts_[i] = is_hash ? key.user_defined_key_parts : parts;
    const pbxt_index& described = definition.def.indexes[i];
    for (uint32_t j = 0; !is_hash && j < std::min(parts, described.part_count); j++) {
      columns_[i].push_back(described.parts[j].column);
      if (!described.parts[j].is_prefix) whole_columns_[i].push_back(described.parts[j].column);
    }
  }
  choose_order(table, definition);
  return PBXT_OK;
}

/* Rows under one key come by primary key where the index has it, and by row id where it has not. References
 * can have one order only. */
void ExtendedKeys::choose_order(const TABLE* table, const Definition& definition) {
  uint primary = table->s->primary_key;
  bool is_any_extended = false;
  for (uint i = 0; i < parts_.size(); i++)
    if (parts_[i] > table->key_info[i].user_defined_key_parts) is_any_extended = true;
  in_order_.assign(parts_.size(), true);
  has_reference_.assign(parts_.size(), true);
  if (!is_any_extended) return;
  size_t bytes = definition.image_bytes_max(primary);
  order_bytes_ = bytes <= kOrderBytesMax ? static_cast<uint>(bytes) : 0;
  const KEY& primary_key = table->key_info[primary];
  for (uint i = 0; i < parts_.size(); i++) {
    const KEY& key = table->key_info[i];
    bool is_single = (key.flags & HA_NOSAME) && !(key.flags & HA_NULL_PART_KEY);
    bool has_all = true;
    for (uint j = 0; j < primary_key.user_defined_key_parts; j++)
      has_all = has_all && has_column(i, primary_key.key_part[j].fieldnr - 1);
    has_reference_[i] = order_bytes_ == 0 || has_all;
    in_order_[i] = is_single || (order_bytes_ != 0 ? has_all : parts_[i] <= key.user_defined_key_parts);
  }
}

/* Whether the index has the column, whole. */
bool ExtendedKeys::has_column(uint index, uint field) const {
  const std::vector<uint>& columns = whole_columns_[index];
  return std::find(columns.begin(), columns.end(), field) != columns.end();
}

void ExtendedKeys::correct(TABLE* table) const {
  for (uint i = 0; i < parts_.size(); i++) {
    KEY& key = table->key_info[i];
    if (key.ext_key_parts <= parts_[i]) continue;
    key.ext_key_parts = key.user_defined_key_parts;
    key.ext_key_flags = key.flags;
    key.ext_key_part_map = 0;
  }
  uint primary = table->s->primary_key;
  if (primary == MAX_KEY) return;
  const KEY& primary_key = table->key_info[primary];
  for (uint j = 0; j < primary_key.user_defined_key_parts; j++) {
    uint number = primary_key.key_part[j].fieldnr - 1;
    Field* field = table->field[number];
    for (uint i = 0; i < parts_.size(); i++) {
      if (has_column(i, number)) continue;
      field->part_of_key.clear_bit(i);
      field->part_of_sortkey.clear_bit(i);
    }
  }
}

}  // namespace pbxt
