/*
 * i_s.h: what the tables of INFORMATION_SCHEMA share: a row that is filled from left to right, names of
 * tables, who may look.
 */
#ifndef PBXT_PLUGIN_I_S_H
#define PBXT_PLUGIN_I_S_H

#include "plugin.h"

#include <string.h>

#include <string>

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_table.h"
#include "tztime.h"

namespace pbxt {

/* Stores the columns of one row from left to right. */
class Row {
 public:
  Row(THD* thd, TABLE* table) : thd_(thd), table_(table), next_(table->field) {}

  void number(uint64_t value) {
    Field* field = *next_++;
    field->set_notnull();
    field->store(static_cast<longlong>(value), true);
  }
  void null() { (*next_++)->set_null(); }
  void number_or_null(uint64_t value) {
    if (value == 0)
      null();
    else
      number(value);
  }
  void text(const char* bytes, size_t length) {
    Field* field = *next_++;
    field->set_notnull();
    field->store(bytes, length, system_charset_info);
  }
  void text(const std::string& value) { text(value.data(), value.size()); }
  void text_or_null(const char* bytes, size_t length) {
    if (length == 0)
      null();
    else
      text(bytes, length);
  }
  void text_or_null(const std::string& value) { text_or_null(value.data(), value.size()); }
  template <size_t N>
  void word(const char* const (&words)[N], uint32_t place) {
    const char* found = place < N ? words[place] : "";
    text(found, strlen(found));
  }
  void time_or_null(uint64_t unix_seconds) {
    if (unix_seconds == 0) {
      null();
      return;
    }
    MYSQL_TIME time;
    thd_->variables.time_zone->gmt_sec_to_TIME(&time, static_cast<my_time_t>(unix_seconds));
    Field* field = *next_++;
    field->set_notnull();
    field->store_time(&time);
  }
  bool store() { return schema_table_store_record(thd_, table_); }

 private:
  THD* thd_;
  TABLE* table_;
  Field** next_;
};

/* The list that a function called for each line writes to. */
struct Listing {
  THD* thd;
  TABLE* table;
  bool failed;
};

/* Three names, of a table, a part and a subpart, and what stands between them. */
constexpr uint kTableNameChars = 3 * NAME_CHAR_LEN + 7;

/* "./schema/table" as the two names that people know; a temporary table has a path of the server's own
 * making. */
void split_path(pbxt_text path, std::string* schema, std::string* table) noexcept;

/* There is a database, and the user has the PROCESS privilege. */
bool may_see(THD* thd);

int init_table(void* schema_table, ST_FIELD_INFO* columns, int (*fill)(THD*, TABLE_LIST*, Item*));

}  // namespace pbxt

#endif
