/*
 * foreign_keys_ddl.h: the constraints of a table that is created or altered.
 */
#ifndef PBXT_PLUGIN_FOREIGN_KEYS_DDL_H
#define PBXT_PLUGIN_FOREIGN_KEYS_DDL_H

#include <deque>

#include "definition.h"
#include "foreign_keys.h"

namespace pbxt {

/* What a definition says of foreign keys. Owns all that it adds to the definition, which must not outlive it.
 */
class TableForeignKeys {
 public:
  TableForeignKeys() = default;
  TableForeignKeys(const TableForeignKeys&) = delete;
  TableForeignKeys& operator=(const TableForeignKeys&) = delete;

  /* CREATE TABLE, and the table that a copying ALTER makes. The server's error number, or 0. */
  int for_create(THD* thd, const char* path, TABLE* form, HA_CREATE_INFO* create_info,
                 Definition* definition) noexcept;
  /* ALTER in place: the table's own constraints but for those dropped. */
  int for_alter(THD* thd, const char* path, TABLE* altered, Alter_info* alter_info,
                Definition* definition) noexcept;
  /* The same for the question whether it can be done in place: reports nothing. */
  void for_question(THD* thd, const char* path, TABLE* altered, Alter_info* alter_info,
                    Definition* definition) noexcept;

 private:
  int add_kept(const char* original, Alter_info* alter_info, TABLE* form);
  void keep(ForeignKeys keys, Alter_info* alter_info);
  int add_new(THD* thd, const char* path, const char* original, Alter_info* alter_info, TABLE* form);
  int check_writes(THD* thd, TABLE* form) const;
  int check_versioning(THD* thd, const TABLE* form) const;
  int check_indexes(THD* thd, const char* original, TABLE* form, TABLE* before) const;
  int check_nulls(TABLE* form) const;
  void put_into(THD* thd, Definition* definition, TABLE* form);

  ForeignKeys keys_;
  size_t kept_count_ = 0; /* those that an altered table had already come first */
  std::string original_;  /* path of the table that is being altered by copying */
  std::vector<pbxt_foreign_key> items_;
  std::deque<std::vector<uint32_t>> columns_;
  std::deque<std::vector<pbxt_text>> parent_columns_;
};

/* The statement copies a table and adds constraints, which its rows are to be held to. */
bool adds_foreign_keys(THD* thd);

/* Drops a table unless constraints and settings forbid it. `thd` may be null. The server's error number, or
 * 0. */
int drop_table(THD* thd, const char* path) noexcept;
/* What stands in ERROR 1451 when drop_table() refused: child and constraint. */
const std::string& refused_drop();
/* Flags of pbxt_table_rename() for these paths. */
uint32_t rename_flags(THD* thd, const char* from, const char* to);

/* Why a constraint was refused: a warning with the engine's sentence and, if that is so, that the parent
   belongs to another engine. */
void explain_refusal(THD* thd, const Definition& definition) noexcept;

/* ERROR 1826 where it is the server's for a constraint's name that is taken; anywhere else the server makes
 * 1005 with errno 121 of the refusal. */
void report_taken_name(THD* thd, const char* path) noexcept;

}  // namespace pbxt

#endif
