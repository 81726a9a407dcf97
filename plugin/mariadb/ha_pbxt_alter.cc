/*
 * ha_pbxt_alter.cc: ALTER TABLE without a copy.
 *
 * The engine reads rows that are there with the columns of now, so an ALTER of columns, or one that only
 * takes indexes away, is one record of its catalog (docs/alter.md). Indexes that come are built over the rows
 * that are there, while readers and writers go on. The engine is asked first: what
 * it refuses, and what would change values, goes the server's way of copying, whose rows are one ordinary
 * transaction that the server commits at the end of the copy.
 */
#include "alteration.h"
#include "definition_files.h"
#include "error_map.h"
#include "foreign_keys_ddl.h"
#include "ha_pbxt.h"
#include "session.h"

namespace pbxt {
namespace {

/* Changes that may leave rows and keys as they are. An index whose columns get longer is one that goes and
 * one that comes to the server; which one really is new the engine finds out. */
constexpr alter_table_operations kInstant =
    ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN |
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_DROP_CHECK_CONSTRAINT | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_INDEX_IGNORABILITY | ALTER_RENAME | ALTER_CHANGE_COLUMN | ALTER_CHANGE_CREATE_OPTION |
    ALTER_DROP_FOREIGN_KEY | ALTER_ADD_VIRTUAL_COLUMN | ALTER_ADD_STORED_BASE_COLUMN |
    ALTER_DROP_VIRTUAL_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER |
    ALTER_VIRTUAL_COLUMN_ORDER | ALTER_COLUMN_NULLABLE | ALTER_STORED_COLUMN_TYPE |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_DROP_PK_INDEX |
    ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX | ALTER_ADD_PK_INDEX | ALTER_RENAME_INDEX |
    ALTER_COLUMN_INDEX_LENGTH | ALTER_INDEX_ORDER | ALTER_PARTITIONED;

/* Options that belong to the definition alone: most mean something to other engines. The character set is
 * that of columns to come; a column that changes its own is told by itself. */
constexpr ulong kInstantOptions =
    HA_CREATE_USED_AUTO | HA_CREATE_USED_COMMENT | HA_CREATE_USED_MIN_ROWS | HA_CREATE_USED_MAX_ROWS |
    HA_CREATE_USED_AVG_ROW_LENGTH | HA_CREATE_USED_STATS_PERSISTENT | HA_CREATE_USED_STATS_AUTO_RECALC |
    HA_CREATE_USED_STATS_SAMPLE_PAGES | HA_CREATE_USED_CHARSET | HA_CREATE_USED_DEFAULT_CHARSET |
    HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE | HA_CREATE_USED_PACK_KEYS |
    HA_CREATE_USED_CHECKSUM | HA_CREATE_USED_DELAY_KEY_WRITE | HA_CREATE_USED_TRANSACTIONAL |
    HA_CREATE_USED_PAGE_CHECKSUM;

constexpr const char* kBuilds = "PBXT has to build an index: use ALGORITHM=NOCOPY";

/* Names the table of one handler: a partitioned table has several, which are altered together. */
class AlterContext final : public inplace_alter_handler_ctx {
 public:
  explicit AlterContext(std::string name) : name(std::move(name)) {}
  ~AlterContext() override { forget(); }

  /* Gives up what was built. */
  void forget() { pbxt_index_build_close(release()); }
  pbxt_index_build* release() {
    pbxt_index_build* released = build;
    build = nullptr;
    return released;
  }

  const std::string name;
  pbxt_index_build* build = nullptr; /* null if the statement adds no index */
};

AlterContext* context_of(inplace_alter_handler_ctx* context) {
  return static_cast<AlterContext*>(context);
}

int collect_name(void* names, const char* name, size_t length) noexcept {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name, length);
  return 0;
}

/* What the parts of a table have answered to one question of one statement. */
struct PartsAnswer {
  query_id_t query = 0;
  const Alter_inplace_info* question = nullptr;
  pbxt_status status = PBXT_OK;
  int adds_indexes = 0;
  std::string why;
};

/* Of the parts of a table the server takes the least answer, and a refusal is the greatest of all: so each
 * part answers for every one of them. One that was exchanged may have other indexes than they (rule X47). */
pbxt_status ask_all_parts(const std::string& prefix, Definition* definition, const pbxt_alteration* change,
                          int* adds_indexes) {
  std::vector<std::string> names;
  pbxt_status status = pbxt_table_list(db, prefix.data(), prefix.size(), collect_name, &names);
  for (size_t i = 0; i < names.size() && status == PBXT_OK; i++) {
    definition->def.name = names[i].c_str();
    definition->def.name_len = names[i].size();
    int adds = 0;
    status = pbxt_table_check_alter(db, &definition->def, change, &adds);
    *adds_indexes |= adds;
  }
  return status;
}

/* Whether the table, with all of its parts if it has some, can be altered so; if not, why. The server asks
 * each of thousands of parts: the first one asks all, the others are told the same. */
PartsAnswer check_alter(THD* thd, const Alter_inplace_info* question, const std::string& name,
                        Definition* definition, const pbxt_alteration* change) {
  static thread_local PartsAnswer last;
  size_t part = name.find(kPartition, name.rfind('/'));
  bool is_part = part != std::string::npos;
  if (is_part && last.query == thd->query_id && last.question == question) return last;
  PartsAnswer answer;
  answer.query = thd->query_id;
  answer.question = question;
  answer.status =
      is_part ? ask_all_parts(name.substr(0, part) + kPartition, definition, change, &answer.adds_indexes)
              : pbxt_table_check_alter(db, &definition->def, change, &answer.adds_indexes);
  if (answer.status != PBXT_OK) answer.why = pbxt_error_text();
  if (is_part) last = answer;
  return answer;
}

void report_build(void* thd, uint64_t done, uint64_t total) {
  thd_progress_report(static_cast<THD*>(thd), done, total);
}

/* What the statement asks for beside columns and indexes. Null, or why it needs a copy. */
const char* refuse_kind(const TABLE* altered, const Alter_inplace_info* info) {
  const HA_CREATE_INFO* create_info = info->create_info;
  if (info->handler_flags & ~kInstant)
    return "PBXT would have to read or check the rows that are there: the table must be copied";
  if (create_info->sequence || altered->versioned())
    return "PBXT keeps sequences and former rows in another form: the table must be copied";
  if ((info->handler_flags & ALTER_CHANGE_CREATE_OPTION) && (create_info->used_fields & ~kInstantOptions))
    return "PBXT stores rows otherwise with another table option: the table must be copied";
  // The copy is refused with the same words, as an error.
  if (const char* why = refuse_encryption(altered->s->option_struct)) return why;
  if (info->error_if_not_empty)
    return "PBXT would have to look whether the table has rows: the table must be copied";
  return nullptr;
}

}  // namespace

enum_alter_inplace_result ha_pbxt::check_if_supported_inplace_alter(TABLE* altered,
                                                                    Alter_inplace_info* info) {
  const HA_CREATE_INFO* create_info = info->create_info;
  info->unsupported_reason = refuse_kind(altered, info);
  if (info->unsupported_reason) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // A lower next value needs the largest one in the table, which the copy finds.
  if ((info->handler_flags & ALTER_CHANGE_CREATE_OPTION) &&
      (create_info->used_fields & HA_CREATE_USED_AUTO)) {
    ha_pbxt::info(HA_STATUS_AUTO);
    if (create_info->auto_increment_value < stats.auto_increment_value) {
      info->unsupported_reason = "PBXT would have to look for the largest value: the table must be copied";
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    }
  }
  Alteration alteration;
  info->unsupported_reason = alteration.find(table, altered, info);
  if (info->unsupported_reason) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  Definition definition;
  definition.build(altered, name_.c_str());
  definition.describe_columns(altered);
  definition.def.temporary = table->s->tmp_table != NO_TMP_TABLE;
  TableForeignKeys foreign_keys;
  foreign_keys.for_question(ha_thd(), name_.c_str(), altered, info->alter_info, &definition);
  PartsAnswer answer = check_alter(ha_thd(), info, name_, &definition, &alteration.change);
  if (answer.status != PBXT_OK) {
    info->unsupported_reason = thd_strdup(ha_thd(), answer.why.c_str());
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (!answer.adds_indexes) return HA_ALTER_INPLACE_INSTANT;
  if (info->ignore) {
    info->unsupported_reason = "PBXT leaves out no rows with IGNORE: the table must be copied";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  info->unsupported_reason = kBuilds;
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}

/* Asked by EXCHANGE PARTITION: may the two tables take each other's place? Each keeps the versions of its own
 * columns; what they are now the server has compared. */
bool ha_pbxt::check_if_incompatible_data(HA_CREATE_INFO* create_info, uint changes) {
  if (changes != IS_EQUAL_YES) return COMPATIBLE_DATA_NO;
  if ((create_info->used_fields & HA_CREATE_USED_AUTO) && create_info->auto_increment_value != 0)
    return COMPATIBLE_DATA_NO;
  const ha_table_option_struct *mine = table->s->option_struct, *other = create_info->option_struct;
  bool same_mode = (mine ? mine->conflict_mode : 0) == (other ? other->conflict_mode : 0);
  same_mode = same_mode && (mine ? mine->compression : 0) == (other ? other->compression : 0);
  same_mode = same_mode && asks_for_encryption(mine) == asks_for_encryption(other);
  return same_mode ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

/* Nobody else uses the table here, and it is not the place to wait: transactions of other tables may have
 * rows of it by their foreign keys. */
bool ha_pbxt::prepare_inplace_alter_table(TABLE* altered, Alter_inplace_info* info) {
  warn_about_options(ha_thd(), altered->s->option_struct, table->s->option_struct);
  info->handler_ctx = new AlterContext(name_);
  return false;
}

/* What ends a build. The server has its own words for a kill, and a warning beside them would become another
 * error. */
static int to_build_error(pbxt_status status, THD* thd) {
  return status == PBXT_KILLED ? to_ha_error(status, thd) : to_ddl_error(status, thd);
}

/* Tells the server of the row that has the key of another one. */
int ha_pbxt::report_duplicate(TABLE* altered, pbxt_index_build* build) {
  uint32_t index = 0;
  pbxt_status status = pbxt_index_build_refused(build, altered->record[0], &index);
  if (status != PBXT_OK) return to_ddl_error(status, ha_thd());
  print_keydup_error(altered, &altered->key_info[index], MYF(0));
  return HA_ERR_FOUND_DUPP_KEY;
}

/* Takes note of what is there and of what is changed from now on, if indexes are added. */
int ha_pbxt::begin_build(TABLE* altered, Alter_inplace_info* info) {
  THD* thd = ha_thd();
  Alteration alteration;
  if (alteration.find(table, altered, info)) return HA_ERR_TABLE_DEF_CHANGED;
  if (!alteration.adds_indexes()) return 0;
  Definition definition;
  definition.build(altered, name_.c_str());
  definition.describe_columns(altered);
  definition.def.temporary = table->s->tmp_table != NO_TMP_TABLE;
  AlterContext* context = context_of(info->handler_ctx);
  pbxt_status status =
      pbxt_index_build_open(db, Session::core_of(thd), &definition.def, &alteration.change, &context->build);
  return to_build_error(status, thd);
}

/* Builds the indexes that are added, one handler after the other, or adds what was changed since. */
int ha_pbxt::build_indexes(TABLE* altered, pbxt_index_build* build, const BuildStep& step) {
  if (!build) return 0;
  THD* thd = ha_thd();
  thd_progress_init(thd, 1);
  pbxt_status status = step(build, report_build, thd);
  thd_progress_end(thd);
  if (status == PBXT_DUPLICATE_KEY) return report_duplicate(altered, build);
  return to_build_error(status, thd);
}

/* Rule AL35: parts fall behind while others are built, or catch up. */
int ha_pbxt::catch_up_parts(TABLE* altered, inplace_alter_handler_ctx** contexts) {
  int made = 0;
  BuildStep round = [&made](pbxt_index_build* build, BuildReport* report, void* thd) {
    int is_made = 0;
    pbxt_status status = pbxt_index_build_catch_up_beside(build, report, thd, &is_made);
    made += is_made;
    return status;
  };
  do {
    made = 0;
    for (inplace_alter_handler_ctx** each = contexts; *each; each++) {
      if (int error = build_indexes(altered, context_of(*each)->build, round)) return error;
    }
  } while (made);
  return 0;
}

/* Of a table with parts, called for one after the other. */
bool ha_pbxt::inplace_alter_table(TABLE* altered, Alter_inplace_info* info) {
  int error = begin_build(altered, info);
  if (!error) error = build_indexes(altered, context_of(info->handler_ctx)->build, pbxt_index_build_run);
  inplace_alter_handler_ctx **parts = info->group_commit_ctx, **last = parts;
  while (last && last[0] && last[1]) last++;
  if (!error && last && *last == info->handler_ctx) error = catch_up_parts(altered, parts);
  if (error && !ha_thd()->is_error()) print_error(error, MYF(0));
  return error != 0;
}

/* Tells the engine of the new definition, for all handlers of the table at once. */
int ha_pbxt::alter(TABLE* altered, Alter_inplace_info* info) {
  THD* thd = ha_thd();
  Definition definition;
  definition.build(altered, name_.c_str());
  definition.describe_columns(altered);
  definition.def.temporary = table->s->tmp_table != NO_TMP_TABLE;
  definition.keep_image(altered);
  TableForeignKeys foreign_keys;
  if (int error = foreign_keys.for_alter(thd, name_.c_str(), altered, info->alter_info, &definition))
    return error;
  Alteration alteration;
  if (alteration.find(table, altered, info)) return HA_ERR_TABLE_DEF_CHANGED;
  std::vector<pbxt_text> names;
  std::vector<pbxt_index_build*> builds;
  inplace_alter_handler_ctx* alone[] = {info->handler_ctx, nullptr};
  inplace_alter_handler_ctx** contexts = info->group_commit_ctx ? info->group_commit_ctx : alone;
  /* Nobody changes the table any more; whose key is one too many can still be told. */
  for (inplace_alter_handler_ctx** each = contexts; *each; each++) {
    if (int error = build_indexes(altered, context_of(*each)->build, pbxt_index_build_catch_up)) return error;
  }
  for (inplace_alter_handler_ctx** each = contexts; *each; each++) {
    AlterContext* context = context_of(*each);
    names.push_back({context->name.data(), context->name.size()});
    builds.push_back(context->release());
  }
  info->group_commit_ctx = nullptr;
  return to_ddl_error(pbxt_tables_alter(db, Session::core_of(thd), &definition.def, &alteration.change,
                                        names.data(), static_cast<uint32_t>(names.size()), builds.data(),
                                        static_cast<uint32_t>(builds.size())),
                      thd);
}

/* ALTER TABLE ... AUTO_INCREMENT. Durable now: no commit follows whose flush would bring it along. */
int ha_pbxt::raise_next_value(const Alter_inplace_info* info) {
  const HA_CREATE_INFO* create_info = info->create_info;
  bool sets_next_value =
      (info->handler_flags & ALTER_CHANGE_CREATE_OPTION) && (create_info->used_fields & HA_CREATE_USED_AUTO);
  if (!sets_next_value) return 0;
  int error = fail(pbxt_autoinc_raise(open_table_->core(), create_info->auto_increment_value));
  return error ? error : fail(pbxt_flush(db));
}

/* A column that is gone, or counts no more, leaves no value behind, as with a copy; one that is asked for
 * stays. It is only shown. The server asks for 0 where the column is dropped. */
void ha_pbxt::forget_next_value(const TABLE* altered, const Alter_inplace_info* info) {
  const HA_CREATE_INFO* create_info = info->create_info;
  bool has_lost_it = table->s->found_next_number_field && !altered->s->found_next_number_field;
  bool is_asked_for =
      (create_info->used_fields & HA_CREATE_USED_AUTO) && create_info->auto_increment_value != 0;
  if (has_lost_it && !is_asked_for) reset_auto_increment(1);
}

/* The server keeps its old definition if this fails, so the engine's new one is the last thing that can fail;
 * a next value that is raised for nothing harms nobody. */
bool ha_pbxt::commit_inplace_alter_table(TABLE* altered, Alter_inplace_info* info, bool commit) {
  if (!commit) {
    if (info->handler_ctx) context_of(info->handler_ctx)->forget();
    info->group_commit_ctx = nullptr;
    return false;
  }
  int error = raise_next_value(info);
  if (!error) error = alter(altered, info);
  if (!error) forget_next_value(altered, info);
  if (error && !ha_thd()->is_error()) print_error(error, MYF(0));
  return error != 0;
}

}  // namespace pbxt
