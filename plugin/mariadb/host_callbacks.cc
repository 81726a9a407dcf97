/*
 * host_callbacks.cc: what the engine may ask of the server: a line in the error log, collation weights, help
 * with waits, the text of a statement.
 *
 * The host pointer of a session is its Session. A prepared transaction whose connection is gone has none, so
 * pointers may be null. The engine calls from foreground threads, except for the log.
 */
#include <map>
#include <mutex>
#include <tuple>

#include "collation.h"
#include "column_types.h"
#include "foreign_keys.h"
#include "session.h"

/* Exported by the server, declared in none of its headers. */
extern "C" int thd_need_wait_reports(const THD* thd);
extern "C" int thd_rpl_deadlock_check(THD* waiter, THD* blocker);
extern "C" int thd_deadlock_victim_preference(const THD* a, const THD* b);

namespace pbxt {
namespace {

THD* thd_of(void* host_session) {
  return host_session ? static_cast<Session*>(host_session)->thd() : nullptr;
}

void write_log(pbxt_log_level level, const char* text) {
  switch (level) {
    case PBXT_LOG_ERROR:
      sql_print_error("PBXT: %s", text);
      return;
    case PBXT_LOG_WARNING:
      sql_print_warning("PBXT: %s", text);
      return;
    case PBXT_LOG_NOTE:
      sql_print_information("PBXT: %s", text);
      return;
  }
}

/* On a parallel replica a later transaction must not make an earlier one wait: the server then has the later
 * one killed, by a thread of its own. It looks at both connections, which the engine keeps from ending
 * meanwhile. */
void report_wait(void* waiter, void* blocker) {
  THD *waiting = thd_of(waiter), *blocking = thd_of(blocker);
  if (waiting && blocking && thd_need_wait_reports(waiting)) thd_rpl_deadlock_check(waiting, blocking);
}

int victim_preference(void* a, void* b) {
  THD *first = thd_of(a), *second = thd_of(b);
  return first && second ? thd_deadlock_victim_preference(first, second) : 0;
}

void begin_wait(void* host_session) {
  if (THD* thd = thd_of(host_session)) thd_wait_begin(thd, THD_WAIT_ROW_LOCK);
}

void end_wait(void* host_session) {
  if (THD* thd = thd_of(host_session)) thd_wait_end(thd);
}

/* Transactions of a parallel replica that have to commit after this one need not wait for its flush: they get
 * later places in the same log, and one flush is for all. */
void let_next_commit(void* host_session) {
  if (THD* thd = thd_of(host_session)) thd_wakeup_subsequent_commits(thd, 0);
}

int is_killed(void* host_session) {
  THD* thd = thd_of(host_session);
  return thd && thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

/* The connection of another thread: thd_query_safe does not wait for LOCK_thd_data, which a killer holds when
 * it comes to the engine. */
size_t statement(void* host_session, char* text, size_t capacity) {
  THD* thd = thd_of(host_session);
  if (!thd || capacity == 0) return 0;
  return thd_query_safe(thd, text, capacity);
}

/* Few enough to be kept until the server ends: one for each kind of part that ever took part in an action. */
const void* weights_context(uint32_t collation, uint32_t length, int is_prefix, int is_char) noexcept {
  static std::mutex latch;
  static std::map<std::tuple<uint32_t, uint32_t, bool, bool>, PartWeights> contexts;  // nodes do not move
  std::lock_guard<std::mutex> guard(latch);
  auto key = std::make_tuple(collation, length, is_prefix != 0, is_char != 0);
  auto found = contexts.find(key);
  if (found != contexts.end()) return &found->second;
  CHARSET_INFO* charset = get_charset(collation, MYF(0));
  if (!charset) return nullptr;
  PartWeights weights{};
  pbxt_key_part part{};
  choose_weights(charset, length, is_prefix != 0, is_char != 0, &weights, &part);
  return &contexts.emplace(key, weights).first->second;
}

int generate(void* host_session, const char* table, size_t length, uint8_t* record) noexcept {
  THD* thd = thd_of(host_session);
  return thd ? generate_columns(thd, std::string(table, length), record) : HA_ERR_INTERNAL_ERROR;
}

int fits(const char* type_text, size_t type_length, size_t field_bytes, const uint8_t* value,
         size_t length) noexcept {
  return is_short_enough(std::string(type_text, type_length), field_bytes, value, length);
}

/* Statements of which the server itself shows the progress are in their last stage by then; for others the
 * report counts for nothing. */
void report_progress(void* host_session, uint64_t done, uint64_t total) {
  THD* thd = thd_of(host_session);
  if (!thd) return;
  static_cast<Session*>(host_session)->rows_done().end(thd, static_cast<uint>(done * 100 / total));
  thd_progress_report(thd, done, total);
}

}  // namespace

const pbxt_host* host_callbacks() {
  static const pbxt_host callbacks = {write_log,      collation_weights, report_wait, victim_preference,
                                      begin_wait,     end_wait,          is_killed,   let_next_commit,
                                      statement,      weights_context,   generate,    fits,
                                      report_progress};
  return &callbacks;
}

}  // namespace pbxt
