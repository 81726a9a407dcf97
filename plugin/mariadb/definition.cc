/*
 * definition.cc: TABLE -> pbxt_table_def: where each column sits in the record buffer, and how each key part
 * orders.
 *
 * All offsets come from the Field objects; none is computed. The same function runs at CREATE and at every
 * open, and the engine compares the two, so a definition must depend on nothing but the table's own
 * definition.
 */
#include "definition.h"

#include <string.h>

#include <algorithm>

#include "column_types.h"
#include "definition_files.h"

namespace pbxt {
namespace {

bool is_blob(const Field* field) {
  return field->flags & BLOB_FLAG;
}

bool is_varchar(const Field* field) {
  return field->real_type() == MYSQL_TYPE_VARCHAR || field->real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED;
}

uint8_t blob_kind(const Field* field) {
  switch (static_cast<const Field_blob*>(field)->pack_length_no_ptr()) {
    case 1:
      return PBXT_COL_BLOB1;
    case 2:
      return PBXT_COL_BLOB2;
    case 3:
      return PBXT_COL_BLOB3;
    default:
      return PBXT_COL_BLOB4;
  }
}

void set_kind(const Field* field, pbxt_column* column) {
  column->length = field->pack_length();
  column->kind = PBXT_COL_FIXED;
  if (is_blob(field)) {
    column->kind = blob_kind(field);
    column->length = 0;
  } else if (is_varchar(field)) {
    uint length_bytes = static_cast<const Field_varstring*>(field)->length_bytes;
    column->kind = length_bytes == 1 ? PBXT_COL_VAR1 : PBXT_COL_VAR2;
    column->length = field->pack_length() - length_bytes;
  } else if (Definition::is_char_column(field) && field->charset()->mbminlen == 1) {
    column->kind = PBXT_COL_PADDED;
    column->pad = field->charset() == &my_charset_bin ? 0 : field->charset()->pad_char;
  }
}

/* The parts of an index that are stored, in their order. */
using StoredParts = std::vector<const KEY_PART_INFO*>;

bool is_whole(const TABLE* table, const KEY_PART_INFO& part) {
  const Field* field = table->field[part.fieldnr - 1];
  return field->stored_in_db() && part.length == field->key_length();
}

/* What the server would put behind the columns of an index, did it know the engine of a partitioned table
 * when it reads the definition: the columns of the primary key before its first prefix that the index has
 * not, unless the index is unique, or has a prefix or a virtual column. */
void extend(const TABLE* table, const KEY& key, StoredParts* parts) {
  uint primary = table->s->primary_key;
  if (primary == MAX_KEY || (key.flags & HA_NOSAME)) return;
  for (const KEY_PART_INFO* part : *parts)
    if (!is_whole(table, *part)) return;
  const KEY& primary_key = table->key_info[primary];
  size_t declared = parts->size();
  for (uint i = 0; i < primary_key.user_defined_key_parts && parts->size() < MAX_REF_PARTS; i++) {
    const KEY_PART_INFO* part = &primary_key.key_part[i];
    if (!is_whole(table, *part)) return;
    auto is_it = [part](const KEY_PART_INFO* other) { return other->fieldnr == part->fieldnr; };
    if (std::none_of(parts->begin(), parts->begin() + declared, is_it)) parts->push_back(part);
  }
}

/* Those declared, and behind them those of the primary key, which the server says, or not of a part of a
 * partitioned table. Of a UNIQUE over long values the hidden hash column is stored; the list begins with the
 * hashed columns or with the hash itself, depending on who asks. */
StoredParts stored_parts(const TABLE* table, const KEY& key, bool is_partition) {
  if (key.algorithm == HA_KEY_ALG_LONG_HASH) return {Definition::hash_part(key)};
  StoredParts parts;
  for (uint i = 0; i < key.ext_key_parts; i++) parts.push_back(&key.key_part[i]);
  if (is_partition) extend(table, key, &parts);
  return parts;
}

/* Old-format TIME, TIMESTAMP and DATETIME with fractions are big-endian and comparable, without fractions
 * little-endian. */
uint8_t old_temporal_encoding(const Field* field, uint8_t little_endian) {
  return field->decimals() > 0 ? static_cast<uint8_t>(PBXT_KEY_RAW) : little_endian;
}

/* Encoding of everything that is not a character value with a collation. */
uint8_t plain_encoding(const Field* field) {
  uint8_t integer = field->is_unsigned() ? PBXT_KEY_UINT : PBXT_KEY_INT;
  switch (field->real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
      return integer;
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
      return PBXT_KEY_UINT;
    case MYSQL_TYPE_FLOAT:
      return PBXT_KEY_F32;
    case MYSQL_TYPE_DOUBLE:
      return PBXT_KEY_F64;
    case MYSQL_TYPE_TIME:
      return old_temporal_encoding(field, PBXT_KEY_INT);
    case MYSQL_TYPE_TIMESTAMP:
    case MYSQL_TYPE_DATETIME:
      return old_temporal_encoding(field, PBXT_KEY_UINT);
    case MYSQL_TYPE_VARCHAR:
      return PBXT_KEY_VARBINARY;
    default:
      // DECIMAL, TIME, TIMESTAMP and DATETIME of today, BIT, BINARY, INET4, INET6 and UUID are stored so that
      // bytes compare.
      return is_blob(field) ? PBXT_KEY_VARBINARY : PBXT_KEY_RAW;
  }
}

/* What the engine may compare in a table scan without the server: numbers, times and bytes. */
uint8_t order_of(const Field* field) {
  if (!field->stored_in_db() || is_blob(field) || Definition::has_collation(field)) return PBXT_ORDER_UNKNOWN;
  if (field->real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED) return PBXT_ORDER_UNKNOWN;
  switch (plain_encoding(field)) {
    case PBXT_KEY_UINT:
      return PBXT_ORDER_UINT;
    case PBXT_KEY_INT:
      return PBXT_ORDER_INT;
    case PBXT_KEY_F32:
      return PBXT_ORDER_F32;
    case PBXT_KEY_F64:
      return PBXT_ORDER_F64;
    default:
      return PBXT_ORDER_BYTES;
  }
}

}  // namespace

bool Definition::is_char_column(const Field* field) {
  return field->real_type() == MYSQL_TYPE_STRING && field->type_handler() == &type_handler_string;
}

bool Definition::has_collation(const Field* field) {
  if (!is_char_column(field) && !is_varchar(field) && !is_blob(field)) return false;
  return field->charset() != &my_charset_bin && field->type() != MYSQL_TYPE_GEOMETRY;
}

bool Definition::is_indexed_virtual(const Field* field) {
  return !field->stored_in_db() && (field->flags & (PART_KEY_FLAG | LONG_UNIQUE_HASH_FIELD));
}

const KEY_PART_INFO* Definition::hash_part(const KEY& key) {
  const KEY_PART_INFO* part = key.key_part;
  while (!(part->field->flags & LONG_UNIQUE_HASH_FIELD)) part++;
  return part;
}

uint Definition::hashed_parts(const KEY_PART_INFO* hash) {
  return static_cast<const Item_func_hash*>(hash->field->vcol_info->expr)->argument_count();
}

void Definition::add_columns(const TABLE* table) {
  columns_.reserve(table->s->fields);
  for (uint i = 0; i < table->s->fields; i++) {
    const Field* field = table->field[i];
    pbxt_column column{};
    column.offset = field->offset(table->record[0]);
    if (field->real_maybe_null()) {
      column.null_offset = static_cast<uint32_t>(field->null_ptr - table->record[0]);
      column.null_bit = field->null_bit;
    }
    column.stored = field->stored_in_db();
    column.order = order_of(field);
    set_kind(field, &column);
    columns_.push_back(column);
  }
}

void Definition::add_part(const TABLE* table, const KEY_PART_INFO& key_part) {
  // key_part.field of a prefix part is a shortened copy; the column itself tells the true type and length.
  const Field* field = table->field[key_part.fieldnr - 1];
  pbxt_key_part part{};
  part.column = key_part.fieldnr - 1;
  part.length = key_part.length;
  part.store_length = key_part.store_length;
  part.nullable = key_part.null_bit != 0;
  part.descending = (key_part.key_part_flag & HA_REVERSE_SORT) != 0;
  part.is_var = (key_part.key_part_flag & (HA_BLOB_PART | HA_VAR_LENGTH_PART)) != 0;
  part.is_prefix = is_blob(field) || key_part.length < field->key_length();
  PartWeights weights{};
  if (has_collation(field)) {
    part.collation = field->charset()->number;
    choose_weights(field->charset(), part.length, part.is_prefix, is_char_column(field), &weights, &part);
  } else {
    part.encoding = plain_encoding(field);
  }
  weights_.push_back(weights);
  parts_.push_back(part);
}

void Definition::add_indexes(const TABLE* table, bool is_partition) {
  std::vector<StoredParts> stored;
  size_t total = 0;
  for (uint i = 0; i < table->s->keys; i++) {
    stored.push_back(stored_parts(table, table->key_info[i], is_partition));
    total += stored.back().size();
  }
  parts_.reserve(total);
  weights_.reserve(total);  // no reallocation: parts point into it
  indexes_.reserve(table->s->keys);
  for (uint i = 0; i < table->s->keys; i++) {
    const KEY& key = table->key_info[i];
    uint count = static_cast<uint>(stored[i].size());
    pbxt_index index{};
    index.name = key.name.str;
    index.name_len = key.name.length;
    index.unique = (key.flags & HA_NOSAME) != 0 && key.algorithm != HA_KEY_ALG_LONG_HASH;
    index.primary = i == table->s->primary_key;
    index.part_count = count;
    index.extension_count = count > key.user_defined_key_parts ? count - key.user_defined_key_parts : 0;
    index.parts = parts_.data() + parts_.size();
    for (const KEY_PART_INFO* part : stored[i]) add_part(table, *part);
    indexes_.push_back(index);
  }
  for (size_t i = 0; i < parts_.size(); i++) parts_[i].ctx = &weights_[i];
}

size_t Definition::image_bytes_max(uint index) const {
  const pbxt_index& described = indexes_[index];
  size_t bytes = 0;
  for (uint32_t i = 0; i < described.part_count; i++) {
    const pbxt_key_part& part = described.parts[i];
    if (part.is_prefix) return SIZE_MAX;
    size_t weights =
        part.collation ? weights_max(*static_cast<const PartWeights*>(part.ctx), part.length) : 0;
    if (weights == SIZE_MAX) return SIZE_MAX;
    size_t chunk = part.pad_len ? 8 / part.pad_len * part.pad_len : 0;
    bytes += part.nullable ? 1 : 0;
    switch (part.encoding) {
      case PBXT_KEY_VARBINARY:
        bytes += 2 * part.length + 2;  // each zero byte takes two
        break;
      case PBXT_KEY_HOST_NOPAD:
        bytes += 2 * weights + 2;
        break;
      case PBXT_KEY_HOST_PAD:
        bytes += (weights / chunk + 1) * (chunk + 1);  // a byte behind each chunk
        break;
      case PBXT_KEY_HOST_FIXED:
        bytes += part.weight_len;
        break;
      default:
        bytes += part.length;
    }
  }
  return bytes;
}

void Definition::build(const TABLE* table, const char* name) noexcept {
  const TABLE_SHARE* share = table->s;
  add_columns(table);
  add_indexes(table, strstr(name, kPartition) != nullptr);
  def.name = name;
  def.name_len = strlen(name);
  def.record_length = share->reclength;
  def.column_count = static_cast<uint32_t>(columns_.size());
  def.columns = columns_.data();
  def.index_count = static_cast<uint32_t>(indexes_.size());
  def.indexes = indexes_.data();
  def.host_version = share->tabledef_version.str;
  def.host_version_len = share->tabledef_version.length;
  if (share->option_struct) {
    def.conflict_mode = static_cast<pbxt_conflict_mode>(share->option_struct->conflict_mode);
    def.compression = static_cast<uint8_t>(share->option_struct->compression);
    def.encrypted = asks_for_encryption(share->option_struct);
  }
  def.temporary = share->tmp_table != NO_TMP_TABLE;
}

/* CREATE has the definition at hand; an ALTER in place has written it to the file that takes the table's name
 * afterwards. */
void Definition::keep_image(const TABLE* table) noexcept {
  const TABLE_SHARE* share = table->s;
  // What no file can be restored of: a table that is gone with its connection, a part of a partitioned one.
  if (def.temporary || strstr(def.name, kPartition)) return;
  if (share->frm_image) {
    def.host_image = share->frm_image->str;
    def.host_image_len = share->frm_image->length;
  } else if (read_definition_file(share->normalized_path.str, &image_)) {
    def.host_image = image_.data();
    def.host_image_len = image_.size();
  } else {
    sql_print_warning(
        "PBXT: the definition of %s could not be read, so there is no copy of it to be restored", def.name);
  }
}

void Definition::describe_columns(const TABLE* table) noexcept {
  types_.reserve(columns_.size());  // no reallocation: columns point into it
  for (size_t i = 0; i < columns_.size(); i++) {
    const Field* field = table->field[i];
    // Rule FK50: a former row has the values of a row that is not there any more.
    types_.push_back(type_text(field) + (table->versioned() ? " with former rows" : ""));
    columns_[i].name = field->field_name.str;
    columns_[i].name_len = field->field_name.length;
    columns_[i].type = types_[i].data();
    columns_[i].type_len = types_[i].size();
    columns_[i].has_default = has_constant_default(field);
  }
  def.default_record = table->s->default_values;
}

}  // namespace pbxt
