/*
 * alteration.cc: old and new columns and indexes of an ALTER, in the server's terms.
 *
 * The server says of each column of the altered table from which one it comes, and of renamed indexes what
 * they were called. What it calls another type may have the same values: longer strings, wider integers. Of
 * hidden columns it says nothing: where there are any, all columns have to stay what they are (rule AL27).
 */
#include "alteration.h"

#include <string.h>

#include <algorithm>

#include "definition.h"

namespace pbxt {
namespace {

constexpr const char* kComputed =
    "PBXT adds a column at once only if its default is a constant: the table must be copied";
constexpr const char* kChecked =
    "PBXT does not check rows that are there already: a new condition needs a copy of the table";
constexpr const char* kOtherValues =
    "PBXT would have to change the values of a column: the table must be copied";
constexpr const char* kHashed =
    "PBXT has a unique index over long values, whose hidden column depends on others: the table must be "
    "copied";
constexpr const char* kGenerated =
    "PBXT cannot tell whether stored or indexed generated columns keep their values: the table must be "
    "copied";
constexpr const char* kPadded =
    "PBXT does not check rows that are there already, and zeros behind their values may break a condition: "
    "the table must be copied";
constexpr const char* kRead =
    "PBXT does not check rows that are there already, and values that read otherwise may break a condition: "
    "the table must be copied";
constexpr const char* kPeriods =
    "PBXT does not look for periods that overlap among rows that are there already: the table must be copied";
constexpr const char* kPartitioned =
    "PBXT cannot tell whether rows stay in their partitions: the table must be copied";

const Create_field* given_field(Alter_info* alter_info, const Field* field) {
  List_iterator<Create_field> fields(alter_info->create_list);
  while (const Create_field* each = fields++)
    if (my_strcasecmp(system_charset_info, each->field_name.str, field->field_name.str) == 0) return each;
  return nullptr;
}

bool is_plain_integer(const Field* field) {
  switch (field->real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
      return true;
    default:
      return false;
  }
}

/* Strings of the same kind and collation whose values all fit. */
bool is_longer_string(const Field* before, const Field* now) {
  if (before->charset() != now->charset() || before->real_type() != now->real_type()) return false;
  if (before->real_type() == MYSQL_TYPE_VARCHAR || Definition::is_char_column(before))
    return before->type_handler() == now->type_handler() && before->field_length <= now->field_length;
  return before->real_type() == MYSQL_TYPE_BLOB &&
         static_cast<const Field_blob*>(before)->pack_length_no_ptr() <=
             static_cast<const Field_blob*>(now)->pack_length_no_ptr();
}

/* Integers into which all values fit. */
bool is_wider_integer(const Field* before, const Field* now) {
  return is_plain_integer(before) && is_plain_integer(now) && before->pack_length() < now->pack_length() &&
         (before->is_unsigned() || !now->is_unsigned()) && !((before->flags | now->flags) & ZEROFILL_FLAG);
}

bool keeps_values(const Field* before, const Field* now) {
  return is_longer_string(before, now) || is_wider_integer(before, now);
}

bool has_letters_of(const TYPELIB* before, const TYPELIB* now) {
  for (uint i = 0; i < before->count && i < now->count; i++)
    if (before->type_lengths[i] != now->type_lengths[i] ||
        memcmp(before->type_names[i], now->type_names[i], before->type_lengths[i]) != 0)
      return false;
  return true;
}

/* What is computed of the column may get other values although its own stay: a number has other zeros before
 * it, or is shown with other decimals, or a value of an ENUM or SET has other letters that compare alike. */
bool reads_otherwise(const Field* before, const Field* now) {
  if ((before->flags ^ now->flags) & ZEROFILL_FLAG) return true;
  switch (now->real_type()) {
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
      return !has_letters_of(static_cast<const Field_enum*>(before)->typelib,
                             static_cast<const Field_enum*>(now)->typelib);
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
      if (before->decimals() != now->decimals()) return true;
      break;
    default:
      break;
  }
  return (now->flags & ZEROFILL_FLAG) && before->field_length != now->field_length;
}

bool counts_up(const Field* field) {
  return field->unireg_check == Field::NEXT_NUMBER;
}

const char* refuse_added(const Field* field) {
  if (field->check_constraint) return kChecked;
  if (!field->stored_in_db()) return nullptr;
  bool is_computed = field->vcol_info || field->default_value || field->has_default_now_unireg_check() ||
                     counts_up(field) || (field->flags & (VERS_ROW_START | VERS_ROW_END));
  return is_computed ? kComputed : nullptr;
}

const char* refuse_kept(const Field* before, const Field* now, const Create_field* given,
                        bool has_generated) {
  bool was_stored = before->stored_in_db();
  if (was_stored != now->stored_in_db() || (counts_up(now) && !counts_up(before))) return kOtherValues;
  // The server hands on the condition of a column that the statement does not define anew.
  if (now->check_constraint && given->check_constraint != before->check_constraint) return kChecked;
  if (before->is_equal(*given)) return has_generated && reads_otherwise(before, now) ? kGenerated : nullptr;
  if (!was_stored || !keeps_values(before, now)) return kOtherValues;
  if ((before->flags | now->flags) & FIELD_IN_PART_FUNC_FLAG) return kPartitioned;
  return has_generated ? kGenerated : nullptr;
}

/* BINARY values that get more zeros behind them, which a condition sees. */
bool is_padded(const Field* before, const Field* now) {
  return Definition::is_char_column(before) && before->charset() == &my_charset_bin &&
         before->field_length < now->field_length;
}

bool has_conditions(const TABLE* table) {
  return table->s->table_check_constraints || table->s->field_check_constraints;
}

/* Some column's stored or indexed value follows from others. */
bool has_generated_values(const TABLE* table) {
  for (Field** field = table->field; *field; field++) {
    bool is_kept = (*field)->stored_in_db() || Definition::is_indexed_virtual(*field);
    if ((*field)->vcol_info && is_kept) return true;
  }
  return false;
}

bool has_hashes(const TABLE* table) {
  for (uint i = 0; i < table->s->keys; i++)
    if (table->key_info[i].algorithm == HA_KEY_ALG_LONG_HASH) return true;
  return false;
}

/* A hidden column of a unique index over long values: nobody has given it. */
bool is_hash(const Field* field) {
  return field->flags & LONG_UNIQUE_HASH_FIELD;
}

/* The same column in the same place, with the same values. */
const char* refuse_moved(const Field* now, const Create_field* given) {
  const Field* was = given ? given->field : nullptr;
  if (!was || was->field_index != now->field_index || !was->is_equal(*given)) return kHashed;
  return refuse_kept(was, now, given, true);
}

/* The hashes that are stored are those that would be computed now. */
bool keeps_hashes(const KEY& before, const KEY& now) {
  if (before.algorithm != HA_KEY_ALG_LONG_HASH) return false;
  const KEY_PART_INFO *was = Definition::hash_part(before), *is = Definition::hash_part(now);
  uint count = Definition::hashed_parts(was);
  if (was->fieldnr != is->fieldnr || count != Definition::hashed_parts(is)) return false;
  for (uint i = 1; i <= count; i++) {
    const KEY_PART_INFO &one = was[-static_cast<int>(i)], &other = is[-static_cast<int>(i)];
    if (one.fieldnr != other.fieldnr || one.length != other.length ||
        one.field->charset() != other.field->charset())
      return false;
  }
  return true;
}

bool same_name(const char* one, const char* other) {
  return my_strcasecmp(system_charset_info, one, other) == 0;
}

/* What the index of this name was called. Null if another name was given to the one that was called so; two
 * may have exchanged their names. */
const char* old_name_of(const char* name, const Alter_inplace_info* info) {
  for (const Alter_inplace_info::Rename_key_pair& pair : info->rename_keys)
    if (same_name(pair.new_key->name.str, name)) return pair.old_key->name.str;
  for (const Alter_inplace_info::Rename_key_pair& pair : info->rename_keys)
    if (same_name(pair.old_key->name.str, name)) return nullptr;
  return name;
}

/* Bytes of the column that count; 0: all of them. */
uint prefix_of(const TABLE* table, const KEY_PART_INFO& part) {
  const Field* field = table->field[part.fieldnr - 1];
  return (field->flags & BLOB_FLAG) || part.length < field->key_length() ? part.length : 0;
}

}  // namespace

/* The index has the parts that it had. One of the same name that has others is another index, but for a
 * primary key, in whose order rows stand, and for those whose hashes rule AL27 compares. */
bool Alteration::is_same_index(const TABLE* before, const KEY& was, const TABLE* altered,
                               const KEY& now) const {
  if (altered->s->primary_key == static_cast<uint>(&now - altered->key_info)) return true;
  if (was.algorithm == HA_KEY_ALG_LONG_HASH || now.algorithm == HA_KEY_ALG_LONG_HASH) return true;
  if (((was.flags ^ now.flags) & HA_NOSAME) || was.user_defined_key_parts != now.user_defined_key_parts)
    return false;
  for (uint i = 0; i < now.user_defined_key_parts; i++) {
    const KEY_PART_INFO &part = now.key_part[i], &part_before = was.key_part[i];
    if (columns_[part.fieldnr - 1] != static_cast<int32_t>(part_before.fieldnr) - 1 ||
        ((part.key_part_flag ^ part_before.key_part_flag) & HA_REVERSE_SORT) ||
        prefix_of(altered, part) != prefix_of(before, part_before))
      return false;
  }
  return true;
}

const char* Alteration::find_columns(const TABLE* altered, const Alter_inplace_info* info) {
  bool has_generated = has_generated_values(altered);
  columns_.reserve(altered->s->fields);
  for (uint i = 0; i < altered->s->fields; i++) {
    const Field* now = altered->field[i];
    const Create_field* given = given_field(info->alter_info, now);
    if (!given) return kOtherValues;
    const Field* was = given->field;
    const char* refused = was ? refuse_kept(was, now, given, has_generated) : refuse_added(now);
    if (refused) return refused;
    if (was && has_conditions(altered)) {
      if (is_padded(was, now)) return kPadded;
      if (was->is_equal(*given) && reads_otherwise(was, now)) return kRead;
    }
    columns_.push_back(was ? was->field_index : -1);
  }
  return nullptr;
}

/* Rule AL27: the hashes of rows that are there go with the values in their places. */
const char* Alteration::find_hashed_columns(const TABLE* before, const TABLE* altered,
                                            const Alter_inplace_info* info) {
  if (before->s->fields != altered->s->fields || before->s->keys != altered->s->keys) return kHashed;
  for (uint i = 0; i < altered->s->fields; i++) {
    const Field* now = altered->field[i];
    if (is_hash(now) != is_hash(before->field[i])) return kHashed;
    const char* refused = is_hash(now) ? nullptr : refuse_moved(now, given_field(info->alter_info, now));
    if (refused) return refused;
    columns_.push_back(static_cast<int32_t>(i));
  }
  return nullptr;
}

void Alteration::find_indexes(const TABLE* before, const TABLE* altered, const Alter_inplace_info* info) {
  for (uint i = 0; i < altered->s->keys; i++) {
    const char* name = old_name_of(altered->key_info[i].name.str, info);
    int32_t found = -1;
    for (uint j = 0; name && j < before->s->keys; j++)
      if (same_name(before->key_info[j].name.str, name) &&
          is_same_index(before, before->key_info[j], altered, altered->key_info[i]))
        found = static_cast<int32_t>(j);
    indexes_.push_back(found);
  }
}

bool Alteration::keeps_all_hashes(const TABLE* before, const TABLE* altered) const {
  for (uint i = 0; i < altered->s->keys; i++) {
    const KEY& now = altered->key_info[i];
    if (now.algorithm != HA_KEY_ALG_LONG_HASH) continue;
    if (indexes_[i] < 0 || !keeps_hashes(before->key_info[indexes_[i]], now)) return false;
  }
  return true;
}

bool Alteration::adds_indexes() const {
  return std::find(indexes_.begin(), indexes_.end(), -1) != indexes_.end();
}

const char* Alteration::find(const TABLE* before, const TABLE* altered,
                             const Alter_inplace_info* info) noexcept {
  bool is_hashed = has_hashes(before) || has_hashes(altered);
  const char* refused = is_hashed ? find_hashed_columns(before, altered, info) : find_columns(altered, info);
  if (refused) return refused;
  find_indexes(before, altered, info);
  if (is_hashed && (adds_indexes() || !keeps_all_hashes(before, altered))) return kHashed;
  for (uint i = 0; i < altered->s->keys; i++)
    if (indexes_[i] < 0 && altered->key_info[i].without_overlaps) return kPeriods;
  change.columns = columns_.data();
  change.indexes = indexes_.data();
  return nullptr;
}

}  // namespace pbxt
