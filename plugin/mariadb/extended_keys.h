/*
 * extended_keys.h: what the server may believe of indexes with the primary key's columns behind their own.
 */
#ifndef PBXT_PLUGIN_EXTENDED_KEYS_H
#define PBXT_PLUGIN_EXTENDED_KEYS_H

#include <vector>

#include "definition.h"

namespace pbxt {

/* The server takes it for granted that the columns of the primary key stand behind those of every other index
 * that can be extended, and of partitioned tables believes it of what an index answers alone. Which of them
 * do so is decided when a table is made (rule X47), so an open table says what it has. */
class ExtendedKeys {
 public:
  /* Asks the engine. After the table was opened. */
  pbxt_status learn(const TABLE* table, const Definition& definition, pbxt_table* core);

  /* Takes back what the server believes and the table has not; for each server table by itself. */
  void correct(TABLE* table) const;

  /* Bytes of a row reference before the row id: the primary key, so that references are in the order in which
     rows come under one key of an extended index. 0 if no index is extended, or keys are too long for it. */
  uint order_bytes() const { return order_bytes_; }

  /* The columns that an entry of the index has, by their numbers. */
  const std::vector<uint>& columns(uint index) const { return columns_[index]; }

  /* Rows under one key of the index come in the order of their references. */
  bool gives_reference_order(uint index) const { return in_order_[index]; }

  /* An entry of the index, with its row id, has all that a reference is made of. */
  bool gives_reference(uint index) const { return has_reference_[index]; }

 private:
  bool has_column(uint index, uint field) const;
  void choose_order(const TABLE* table, const Definition& definition);

  std::vector<uint> parts_; /* that each index has */
  std::vector<std::vector<uint>> columns_;
  std::vector<std::vector<uint>> whole_columns_; /* those of which it has no prefix */
  std::vector<bool> in_order_;
  std::vector<bool> has_reference_;
  uint order_bytes_ = 0;
};

}  // namespace pbxt

#endif
