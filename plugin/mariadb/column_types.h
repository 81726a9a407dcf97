/*
 * column_types.h: what a column is for foreign keys: its type as a text, and whether it has a constant
 * default.
 */
#ifndef PBXT_PLUGIN_COLUMN_TYPES_H
#define PBXT_PLUGIN_COLUMN_TYPES_H

#include <string>

#include "plugin.h"

namespace pbxt {

/* The type of a column, so that equal texts say that values compare alike in keys (rule FK40). For people,
 * too. */
std::string type_text(const Field* field);

/* True if a value of so many bytes has no more characters than a column of this type whose field has so many.
 */
bool is_short_enough(const std::string& type, size_t field_bytes, const uint8_t* value, size_t length);

/* The default record has the column's default: not computed, not given out by a counter (rule FK41). */
bool has_constant_default(const Field* field);

/* True if a stored column of `table` is computed from `field` (rule FK9). */
bool is_base_of_stored_column(TABLE* table, const Field* field);

}  // namespace pbxt

#endif
