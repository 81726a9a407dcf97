/*
 * host_callbacks.cc: what the engine may ask of the server: a line in the error log, collation weights, help
 * with waits.
 *
 * The host pointer of a session is its Session. A prepared transaction whose connection is gone has none, so
 * pointers may be null. The engine calls from foreground threads, except for the log.
 */
#include "collation.h"
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

/* On a parallel replica a later transaction must not make an earlier one wait: the server then kills the
 * later one. */
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

int is_killed(void* host_session) {
  THD* thd = thd_of(host_session);
  return thd && thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

}  // namespace

const pbxt_host* host_callbacks() {
  static const pbxt_host callbacks = {write_log,  collation_weights, report_wait, victim_preference,
                                      begin_wait, end_wait,          is_killed};
  return &callbacks;
}

}  // namespace pbxt
