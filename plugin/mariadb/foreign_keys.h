/*
 * foreign_keys.h: constraints as the engine lists them, as the server wants them, and as people read them.
 */
#ifndef PBXT_PLUGIN_FOREIGN_KEYS_H
#define PBXT_PLUGIN_FOREIGN_KEYS_H

#include <string>
#include <vector>

#include "plugin.h"

namespace pbxt {

/* Database and table behind a path of the server, as identifiers. */
struct TableName {
  std::string db, table;
  static TableName of_path(const std::string& path);
};

/* The path of a table: the engine's name for it. */
std::string path_of(const char* db, const char* table);

/* As the server compares identifiers. */
bool same_name(const std::string& a, const char* b);

/* The last part of a path begins as the server's names of tables that it makes on the way. */
bool is_interim(const char* path);

/* One constraint; tables by their paths. */
struct ForeignKey {
  struct Column {
    std::string child, parent;
    bool child_nullable = false, parent_nullable = false;
  };
  std::string name, child, parent;
  std::vector<Column> columns;
  uint8_t on_delete = PBXT_FK_RESTRICT, on_update = PBXT_FK_RESTRICT;
  bool bound = false;
  std::string parent_index;
};
using ForeignKeys = std::vector<ForeignKey>;

ForeignKeys foreign_keys_of(const char* path) noexcept;
/* Without tables about to be replaced. */
ForeignKeys foreign_keys_to(const char* path) noexcept;

std::vector<std::string> child_columns(const ForeignKey& key);
std::vector<std::string> parent_columns(const ForeignKey& key);
/* The index begins with these columns, whole, in this order. */
bool begins_with(const KEY& index, const std::vector<std::string>& columns);

/* The statement's changes are to be held to foreign keys. */
bool checks_foreign_keys(const THD* thd);

/* The clause of SHOW CREATE TABLE; the parent's database is named where it is another. */
std::string clause_of(THD* thd, const ForeignKey& key, const std::string& db);

/* What stands in ERROR 1451 and 1452: child, constraint, columns, parent, actions. */
std::string violation_text(THD* thd, const char* constraint, const std::string& child);

/* A list of constraints ready to be handed to the server. The server asks for a parent's list at every change
 * of its rows: names are turned into identifiers once, and a statement gets a copy of them in one piece. */
class ForeignKeyList {
 public:
  void make(const ForeignKeys& keys);
  /* For INFORMATION_SCHEMA and the server's own decisions; on the statement's memory. True if that is full.
   */
  bool add_to(THD* thd, List<FOREIGN_KEY_INFO>* list) const;

 private:
  /* A place in texts_, where a zero byte follows. */
  struct Text {
    size_t at, length;
  };
  struct Line {
    Text name, child_db, child_table, parent_db, parent_table, parent_index;
    bool bound;
    uint8_t on_delete, on_update;
    size_t first_column, column_count;
  };
  struct Column {
    Text child, parent;
    bool child_nullable, parent_nullable;
  };
  Text keep(const std::string& text);

  std::string texts_;
  std::vector<Line> lines_;
  std::vector<Column> columns_;
};

/* Computes columns of a record of another table of the statement (pbxt_host.generate). */
int generate_columns(THD* thd, const std::string& path, uchar* record) noexcept;

}  // namespace pbxt

#endif
