/*
 * open_table.cc: opens and closes the engine's tables.
 */
#include "open_table.h"

namespace pbxt {

pbxt_status OpenTable::open(const TABLE* table, const char* name) {
  definition_.build(table, name);
  return pbxt_table_open(db, &definition_.def, &core_);
}

OpenTable::~OpenTable() {
  if (core_) pbxt_table_close(core_);
}

}  // namespace pbxt
