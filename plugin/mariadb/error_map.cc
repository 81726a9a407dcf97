/*
 * error_map.cc: table of engine status -> server error number (the numbers of my_base.h).
 *
 * Statuses without a server counterpart get numbers above HA_ERR_LAST; the server then asks
 * get_error_message() for the text and shows ERROR 1296 with the engine's sentence. Numbers below 120 would
 * be read as errno values, so none is used.
 */
#include "error_map.h"

#include <stdio.h>
#include <string.h>

#include <mutex>
#include <set>
#include <string>

namespace pbxt {
namespace {

enum EngineError {
  kPoisoned = HA_ERR_LAST + 1,
  kCorrupt,
  kIo,
  kInvalid,
  kInUse,
  kWrongVersion,
  kInternal,
  kSnapshotTooOld,
  kNoKey,
  kTooLarge,
  kOtherLayout,
  kEngineErrorEnd
};

struct Row {
  pbxt_status status;
  int error;
};

const Row kTable[] = {
    {PBXT_OK, 0},
    {PBXT_NOT_FOUND, HA_ERR_KEY_NOT_FOUND},
    {PBXT_END, HA_ERR_END_OF_FILE},
    {PBXT_DUPLICATE_KEY, HA_ERR_FOUND_DUPP_KEY},
    {PBXT_WRITE_CONFLICT, HA_ERR_RECORD_CHANGED},
    {PBXT_DEADLOCK, HA_ERR_LOCK_DEADLOCK},
    {PBXT_LOCK_TIMEOUT, HA_ERR_LOCK_WAIT_TIMEOUT},
    {PBXT_KILLED, HA_ERR_ABORTED_BY_USER},
    {PBXT_NO_SPACE, HA_ERR_DISK_FULL},
    {PBXT_POISONED, kPoisoned},
    {PBXT_CORRUPT, kCorrupt},
    {PBXT_IO, kIo},
    {PBXT_DENIED, kIo},
    {PBXT_TOO_LARGE, kTooLarge},
    {PBXT_TABLE_EXISTS, HA_ERR_TABLE_EXIST},
    {PBXT_NO_SUCH_TABLE, HA_ERR_NO_SUCH_TABLE},
    {PBXT_DEF_CHANGED, HA_ERR_TABLE_DEF_CHANGED},
    {PBXT_ROW_DELETED, HA_ERR_RECORD_DELETED},
    {PBXT_INVALID, kInvalid},
    {PBXT_IN_USE, kInUse},
    {PBXT_WRONG_VERSION, kWrongVersion},
    {PBXT_READ_ONLY, HA_ERR_TABLE_READONLY},
    {PBXT_NO_SUCH_XID, HA_ERR_KEY_NOT_FOUND},
    {PBXT_SAME_ROW, HA_ERR_RECORD_IS_THE_SAME},
    {PBXT_INTERNAL, kInternal},
    {PBXT_TXN_ABORTED, HA_ERR_ROLLBACK},
    {PBXT_SNAPSHOT_TOO_OLD, kSnapshotTooOld},
    {PBXT_UNSERIALIZABLE, HA_ERR_LOCK_DEADLOCK},
    {PBXT_ROW_IS_REFERENCED, HA_ERR_ROW_IS_REFERENCED},
    {PBXT_NO_REFERENCED_ROW, HA_ERR_NO_REFERENCED_ROW},
    {PBXT_BAD_FOREIGN_KEY, HA_ERR_CANNOT_ADD_FOREIGN},
    {PBXT_FOREIGN_KEY_NAME_TAKEN, HA_ERR_FOUND_DUPP_KEY},
    {PBXT_NEEDS_COPY, HA_ERR_TABLE_DEF_CHANGED},
    {PBXT_NO_KEY, kNoKey},
    {PBXT_OTHER_LAYOUT, kOtherLayout},
};

thread_local char kept_text[512];

int number_of(pbxt_status status) {
  for (const Row& row : kTable)
    if (row.status == status) return row.error;
  return kInternal;
}

void keep_text() {
  const char* text = pbxt_error_text();
  strncpy(kept_text, text ? text : "", sizeof(kept_text) - 1);
  kept_text[sizeof(kept_text) - 1] = '\0';
}

/* Ends of scans and missed searches are everyday answers: nobody asks for their text. */
bool is_everyday(pbxt_status status) {
  return status == PBXT_NOT_FOUND || status == PBXT_END || status == PBXT_SAME_ROW ||
         status == PBXT_ROW_DELETED;
}

/* The number of an error whose text by the server says nothing of tables, rows and connections; 0 for others.
 */
uint terse_error(pbxt_status status) {
  switch (status) {
    case PBXT_LOCK_TIMEOUT:
      return ER_LOCK_WAIT_TIMEOUT;
    case PBXT_DEADLOCK:
      return ER_LOCK_DEADLOCK;
    case PBXT_WRITE_CONFLICT:
      return ER_CHECKREAD;
    default:
      return 0;
  }
}

/* True if the server's text has no place for a name. */
bool is_whole_text(uint error) {
  return error == ER_LOCK_WAIT_TIMEOUT || error == ER_LOCK_DEADLOCK;
}

/* A note that SHOW WARNINGS shows beside the error. Not a warning, which would become an error of its own in
 * strict mode; with the error's number, because it becomes condition 1 of GET DIAGNOSTICS. It begins with the
 * server's words: a replica writes each condition to its error log, where people and tools look for them. */
void say_more(pbxt_status status, THD* thd) {
  uint error = terse_error(status);
  if (!error) return;
  if (is_whole_text(error))
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, error, "%s: PBXT %s", ER_THD(thd, error),
                        kept_text);
  else
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, error, "PBXT: %s", kept_text);
}

/* The server's text of an engine error has room for so many bytes of the engine's sentence. */
constexpr size_t kSentenceShown = 200;
constexpr size_t kToldAtMost = 1000;

/* What is wrong with files is for whoever runs the server, too: each sentence once. */
void log_once(const char* what) {
  static std::mutex latch;
  static std::set<std::string> told;
  std::lock_guard<std::mutex> guard(latch);
  if (told.size() < kToldAtMost && told.insert(kept_text).second)
    sql_print_error("PBXT: %s%s", what, kept_text);
}

/* The end of a long sentence, which says what to do, is in no message but this note. */
void say_all(int error, THD* thd) {
  if (is_engine_error(error) && strlen(kept_text) > kSentenceShown)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_GET_ERRMSG, "PBXT: %s", kept_text);
}

}  // namespace

int to_ha_error(pbxt_status status, THD* thd) {
  if (status == PBXT_OK) return 0;
  if (is_everyday(status)) return number_of(status);
  keep_text();
  if (status == PBXT_CORRUPT) log_once("a statement met damage: ");
  if (thd) {
    say_more(status, thd);
    say_all(number_of(status), thd);
  }
  if (thd && (status == PBXT_DEADLOCK || status == PBXT_UNSERIALIZABLE || status == PBXT_TXN_ABORTED))
    thd->mark_transaction_to_rollback(true);
  // The server asserts that a statement reported as killed really was; a wake-up without a kill is a wait
  // that ended.
  if (status == PBXT_KILLED && thd && thd_kill_level(thd) == THD_IS_NOT_KILLED)
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  return number_of(status);
}

int to_ddl_error(pbxt_status status, THD* thd) {
  int error = to_ha_error(status, thd);
  bool is_refusal = status == PBXT_BAD_FOREIGN_KEY || status == PBXT_FOREIGN_KEY_NAME_TAKEN;
  uint number = is_refusal ? error : ER_UNKNOWN_ERROR;
  if (error && thd && !is_everyday(status) && !terse_error(status) && kept_text[0] != '\0') {
    // In strict mode the server makes errors of warnings while indexes are built: this would be the error.
    Abort_on_warning_instant_set stays_a_warning(thd, false);
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, number, "PBXT: %s", kept_text);
  }
  return error;
}

int to_open_error(int error, const char* path, THD* thd) {
  if (error != kOtherLayout && error != HA_ERR_TABLE_DEF_CHANGED) return error;
  // All parts of a table have one definition file.
  const char* part = strstr(path, "#P#");
  std::string file(path, part ? static_cast<size_t>(part - path) : strlen(path));
  std::string sentence(kept_text);
  snprintf(kept_text, sizeof(kept_text),
           "%s; '%s.frm' stays as it is: put back the file that fits, or move this one away and start the "
           "server once with pbxt_restore_definitions",
           sentence.c_str(), file.c_str());
  log_once("");
  if (thd) say_all(kOtherLayout, thd);
  return kOtherLayout;
}

int to_end_error(pbxt_status status, THD* thd) {
  if (status == PBXT_UNSERIALIZABLE) my_error(ER_LOCK_DEADLOCK, MYF(0));
  int error = to_ha_error(status, thd);
  bool is_told = is_everyday(status) || terse_error(status) ||
                 (is_engine_error(error) && strlen(kept_text) > kSentenceShown);
  if (error && thd && !is_told)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_GET_ERRMSG, "PBXT: %s", kept_text);
  return error;
}

const char* error_text() {
  return kept_text;
}

bool is_engine_error(int error) {
  return error > HA_ERR_LAST && error < kEngineErrorEnd;
}

}  // namespace pbxt
