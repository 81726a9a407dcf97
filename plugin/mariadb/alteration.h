/*
 * alteration.h: what the columns and indexes of an altered table were before.
 */
#ifndef PBXT_PLUGIN_ALTERATION_H
#define PBXT_PLUGIN_ALTERATION_H

#include <vector>

#include "pbxt_alter.h"
#include "plugin.h"

namespace pbxt {

/* Says which column and which index of the table before each one of the altered table goes on from, and that
 * the values of the columns stay what they were; whether rows and keys can stay too, the engine says. */
class Alteration {
 public:
  Alteration() = default;
  Alteration(const Alteration&) = delete;
  Alteration& operator=(const Alteration&) = delete;

  /* Null, or why values change. */
  const char* find(const TABLE* before, const TABLE* altered, const Alter_inplace_info* info) noexcept;

  /* True if an index was none before. */
  bool adds_indexes() const;

  pbxt_alteration change{};

 private:
  const char* find_columns(const TABLE* altered, const Alter_inplace_info* info);
  const char* find_hashed_columns(const TABLE* before, const TABLE* altered, const Alter_inplace_info* info);
  bool is_same_index(const TABLE* before, const KEY& was, const TABLE* altered, const KEY& now) const;
  bool keeps_all_hashes(const TABLE* before, const TABLE* altered) const;
  void find_indexes(const TABLE* before, const TABLE* altered, const Alter_inplace_info* info);

  std::vector<int32_t> columns_, indexes_;
};

}  // namespace pbxt

#endif
