/*
 * definition.h: a server table described in the engine's terms.
 */
#ifndef PBXT_PLUGIN_DEFINITION_H
#define PBXT_PLUGIN_DEFINITION_H

#include <string>
#include <vector>

#include "collation.h"
#include "plugin.h"

namespace pbxt {

/* Owns all that a pbxt_table_def points to, except the name, which must outlive it. Not movable once built.
 */
class Definition {
 public:
  Definition() = default;
  Definition(const Definition&) = delete;
  Definition& operator=(const Definition&) = delete;

  /* Describes `table`. `share` gives what belongs to the table alone (version id, options). */
  void build(const TABLE* table, const char* name) noexcept;

  /* Adds what is kept of columns at CREATE and ALTER: names, types, defaults. After build(). */
  void describe_columns(const TABLE* table) noexcept;

  /* Adds the server's own definition, which a copied database is opened with elsewhere (definition_files.cc).
   */
  void keep_image(const TABLE* table) noexcept;

  /* True if an index part is a virtual column: its value must be computed for every change. */
  static bool is_indexed_virtual(const Field* field);
  /* CHAR(n) proper; INET6, UUID and the like also say MYSQL_TYPE_STRING. */
  static bool is_char_column(const Field* field);
  /* Compares by a collation, not by bytes. */
  static bool has_collation(const Field* field);
  /* The hidden column of an index over long values, behind the parts that are hashed. */
  static const KEY_PART_INFO* hash_part(const KEY& key);
  /* How many parts before it are hashed. */
  static uint hashed_parts(const KEY_PART_INFO* hash);

  /* No image of a key of the index has more bytes; SIZE_MAX where no limit is known, or the index has
     prefixes of columns. */
  size_t image_bytes_max(uint index) const;

  pbxt_table_def def{};

 private:
  void add_columns(const TABLE* table);
  void add_indexes(const TABLE* table, bool is_partition);
  void add_part(const TABLE* table, const KEY_PART_INFO& key_part);
  std::vector<pbxt_column> columns_;
  std::vector<std::string> types_;
  std::vector<pbxt_key_part> parts_;
  std::vector<PartWeights> weights_;
  std::vector<pbxt_index> indexes_;
  std::vector<uint8_t> image_;
};

}  // namespace pbxt

#endif
