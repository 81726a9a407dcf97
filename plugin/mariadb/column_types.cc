/*
 * column_types.cc: the text that stands for a column's type in the engine's catalog.
 *
 * A child's value is looked up in its parent's index as bytes, so types agree only if equal values have equal
 * bytes there (rules FK4, FK40): numbers by width and sign, DECIMAL by precision and scale, times by format
 * and fraction, ENUM and SET by width, strings by collation, BINARY by length, because its zeros count. The
 * length of other strings is left out where weights do not depend on it.
 */
#include "column_types.h"

#include "collation.h"
#include "definition.h"

namespace pbxt {
namespace {

std::string in_parentheses(uint number) {
  return "(" + std::to_string(number) + ")";
}

/* Character strings. Under NO PAD collations CHAR(n) compares as n characters; collations with weights of a
   fixed length give as many as the column is long. */
std::string string_text(const Field* field, bool is_char) {
  PartWeights weights{};
  pbxt_key_part part{};
  choose_weights(field->charset(), field->key_length(), false, is_char, &weights, &part);
  std::string text = "string";
  if (weights.pad_chars != 0) text = "char" + in_parentheses(weights.pad_chars);
  if (weights.form == WeightForm::kFixed) text += in_parentheses(weights.max_chars);
  return text + " " + field->charset()->coll_name.str;
}

/* BINARY and CHAR, VARBINARY and VARCHAR have names in common. */
std::string name_of_type(const Field* field) {
  if (field->charset() == &my_charset_bin) {
    if (Definition::is_char_column(field)) return "binary" + in_parentheses(field->field_length);
    if (field->real_type() == MYSQL_TYPE_VARCHAR) return "varbinary";
  }
  return field->type_handler()->name().ptr();
}

/* What the name of the type leaves open. */
std::string details(const Field* field) {
  switch (field->real_type()) {
    case MYSQL_TYPE_NEWDECIMAL:
      return "(" + std::to_string(static_cast<const Field_new_decimal*>(field)->precision) + "," +
             std::to_string(field->decimals()) + ")";
    case MYSQL_TYPE_TIME:
    case MYSQL_TYPE_TIMESTAMP:
    case MYSQL_TYPE_DATETIME:
      return in_parentheses(field->decimals()) + " of the old format";
    case MYSQL_TYPE_TIME2:
    case MYSQL_TYPE_TIMESTAMP2:
    case MYSQL_TYPE_DATETIME2:
    case MYSQL_TYPE_BIT:
      return field->real_type() == MYSQL_TYPE_BIT ? in_parentheses(field->field_length)
                                                  : in_parentheses(field->decimals());
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
      return " of " + std::to_string(field->pack_length()) + " bytes";
    default:
      return "";
  }
}

}  // namespace

std::string type_text(const Field* field) {
  if (Definition::has_collation(field)) return string_text(field, Definition::is_char_column(field));
  std::string text = name_of_type(field) + details(field);
  // Some names say so already.
  if (field->is_unsigned() && text.find("unsigned") == std::string::npos) text += " unsigned";
  return text;
}

/* The collation is the text's last word. Of what has none every byte is a character. */
bool is_short_enough(const std::string& type, size_t field_bytes, const uint8_t* value, size_t length) {
  std::string collation = type.substr(type.rfind(' ') + 1);
  CHARSET_INFO* charset = get_charset_by_name(collation.c_str(), MYF(0));
  if (!charset || charset->mbmaxlen == 1 || length * charset->mbmaxlen <= field_bytes) return true;
  const char* text = reinterpret_cast<const char*>(value);
  return charset->numchars(text, text + length) <= field_bytes / charset->mbmaxlen;
}

bool has_constant_default(const Field* field) {
  if (field->vcol_info || field->default_value || (field->flags & (NO_DEFAULT_VALUE_FLAG | BLOB_FLAG)))
    return false;
  return field->unireg_check != Field::NEXT_NUMBER && !field->has_default_now_unireg_check();
}

bool is_base_of_stored_column(TABLE* table, const Field* field) {
  if (!table->vfield) return false;
  my_bitmap_map* words = static_cast<my_bitmap_map*>(my_alloca(bitmap_buffer_size(table->s->fields)));
  MY_BITMAP bases;
  my_bitmap_init(&bases, words, table->s->fields);
  bitmap_clear_all(&bases);
  MY_BITMAP* before = table->read_set;
  table->read_set = &bases;
  for (Field** each = table->vfield; *each; each++)
    if ((*each)->stored_in_db() && *each != field)
      (*each)->vcol_info->expr->walk(&Item::register_field_in_read_map, true, nullptr);
  table->read_set = before;
  return bitmap_is_set(&bases, field->field_index);
}

}  // namespace pbxt
