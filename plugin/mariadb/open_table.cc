/*
 * open_table.cc: opens and closes the engine's tables.
 */
#include "open_table.h"

#include <algorithm>

#include "pbxt_statistics.h"

namespace pbxt {

pbxt_status OpenTable::open(const TABLE* table, const char* name) {
  definition_.build(table, name);
  note_reset_bytes(table);
  pbxt_status status = pbxt_table_open(db, &definition_.def, &core_);
  if (status == PBXT_OK) status = tell_statistics_options(table);
  return status == PBXT_OK ? extended_keys_.learn(table, definition_, core_) : status;
}

/* Options of the server's own, which most know from InnoDB (rule ST9 of docs/statistics.md). */
pbxt_status OpenTable::tell_statistics_options(const TABLE* table) {
  pbxt_statistics_options options{};
  options.leaves = table->s->stats_sample_pages;
  options.is_fixed = table->s->stats_auto_recalc == HA_STATS_AUTO_RECALC_OFF;
  options.is_passing = (table->s->db_create_options & HA_OPTION_NO_STATS_PERSISTENT) != 0;
  return pbxt_set_statistics_options(core_, &options);
}

/* Lets every nullable column of fixed length reset itself in a record of its own and keeps what it wrote. */
void OpenTable::note_reset_bytes(const TABLE* table) {
  uchar* record = table->record[0];
  std::vector<uchar> before(record, record + table->s->reclength);
  for (Field** each = table->field; *each; each++) {
    Field* field = *each;
    if (!field->real_maybe_null() || (field->flags & BLOB_FLAG) || field->real_type() == MYSQL_TYPE_VARCHAR)
      continue;
    field->reset();
    uint offset = static_cast<uint>(field->ptr - record);
    uint length = field->pack_length();
    bool zero = std::all_of(field->ptr, field->ptr + length, [](uchar byte) { return byte == 0; });
    uint null_offset = static_cast<uint>(field->null_ptr - record);
    if (!zero) resets_.push_back({offset, length, null_offset, field->null_bit});
  }
  reset_record_.assign(record, record + table->s->reclength);
  memcpy(record, before.data(), before.size());
}

OpenTable::~OpenTable() {
  if (core_) pbxt_table_close(core_);
}

}  // namespace pbxt
