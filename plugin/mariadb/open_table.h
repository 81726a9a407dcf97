/*
 * open_table.h: the engine's table behind a server table, shared by all handlers of it.
 */
#ifndef PBXT_PLUGIN_OPEN_TABLE_H
#define PBXT_PLUGIN_OPEN_TABLE_H

#include <memory>

#include "definition.h"
#include "extended_keys.h"

namespace pbxt {

/* One opened generation of a table. Lives until the last handler that has a cursor in it lets go. */
class OpenTable {
 public:
  OpenTable() = default;
  OpenTable(const OpenTable&) = delete;
  OpenTable& operator=(const OpenTable&) = delete;
  ~OpenTable();

  pbxt_status open(const TABLE* table, const char* name);
  pbxt_table* core() const { return core_; }
  const ExtendedKeys& extended_keys() const { return extended_keys_; }

  /* Columns that are NULL get the bytes the server's own set_null() leaves in them: it compares whole records
     to find out whether an update changes anything, and its zero of a DECIMAL or DATETIME is not made of zero
     bytes. */
  void reset_nulls(uchar* record) const {
    for (const ResetBytes& field : resets_)
      if (record[field.null_offset] & field.null_bit)
        memcpy(record + field.offset, reset_record_.data() + field.offset, field.length);
  }

 private:
  struct ResetBytes {
    uint offset, length, null_offset;
    uchar null_bit;
  };
  void note_reset_bytes(const TABLE* table);
  pbxt_status tell_statistics_options(const TABLE* table);

  std::vector<ResetBytes> resets_; /* nullable columns whose bytes while NULL are not all zero */
  std::vector<uchar> reset_record_;
  Definition definition_; /* the engine keeps pointers to its key part contexts */
  ExtendedKeys extended_keys_;
  pbxt_table* core_ = nullptr;
};

/* Hangs on the server's TABLE_SHARE (or on a partition's place in it). TRUNCATE puts a new generation in. */
class TableShare : public Handler_share {
 public:
  std::shared_ptr<OpenTable> current;
};

}  // namespace pbxt

#endif
