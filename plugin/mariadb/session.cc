/*
 * session.cc: the transaction of one connection: joins the server's transaction list, carries statement
 * boundaries, prepare, commit and rollback to the engine.
 *
 * State: SessionState, changed by set_state() alone, so that no flag of one transaction can survive into the
 * next. Every function is O(1) beside the engine's own work. commit_ordered() may run in another thread,
 * under the server's LOCK_commit_ordered: it reports nothing and allocates nothing.
 */
#include "session.h"

#include <new>

#include "error_map.h"
#include "pbxt_stamps.h"
#include "xa.h"

namespace pbxt {
namespace {

bool in_multi_statement_transaction(THD* thd) {
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0;
}

/* Changes no rows of this engine: an autocommit SELECT, or a transaction the server lets change nothing. What
 * a SELECT in a trigger or function is part of may change rows behind it. */
bool is_read_only(THD* thd) {
  if (thd->tx_read_only) return true;
  if (in_multi_statement_transaction(thd) || thd->in_sub_stmt) return false;
  return thd_sql_command(thd) == SQLCOM_SELECT && !thd->lex->requires_prelocking();
}

/* An applier of a replica repeats changes that were right on the primary: it wants the newest rows, and no
   snapshot that a transaction before it in the primary's order could be newer than. */
pbxt_isolation isolation_of(THD* thd) {
  if (is_applier(thd)) return PBXT_READ_COMMITTED;
  switch (thd_tx_isolation(thd)) {
    case ISO_READ_UNCOMMITTED:
    case ISO_READ_COMMITTED:
      return PBXT_READ_COMMITTED;
    case ISO_REPEATABLE_READ:
      return PBXT_REPEATABLE_READ;
    default:
      // An applier of a replica repeats what was serialized elsewhere and must not be refused.
      return thd->slave_thread || thd->rgi_slave ? PBXT_REPEATABLE_READ : PBXT_SERIALIZABLE;
  }
}

}  // namespace

Session* Session::find(THD* thd) {
  return static_cast<Session*>(thd_get_ha_data(thd, hton));
}

Session* Session::get(THD* thd, int* error) {
  if (Session* session = find(thd)) return session;
  Session* session = new (std::nothrow) Session(thd);
  if (!session) {
    *error = HA_ERR_OUT_OF_MEM;
    return nullptr;
  }
  pbxt_status status = pbxt_session_open(db, session, thd_get_thread_id(thd), &session->core_);
  if (status != PBXT_OK) {
    *error = to_ha_error(status, thd);
    delete session;
    return nullptr;
  }
  thd_set_ha_data(thd, hton, session);
  return session;
}

pbxt_session* Session::core_of(THD* thd) {
  if (!thd) return nullptr;
  int error = 0;
  Session* session = get(thd, &error);
  if (!session) return nullptr;
  session->configure();  // lock timeouts count for DDL, too
  return session->core_;
}

void Session::set_state(SessionState state) {
  state_ = state;
  if (state != SessionState::kIdle) return;
  in_statement_ = false;
  if (likely(!is_listed_)) return;
  thd_->server_status &= ~(SERVER_STATUS_IN_TRANS | SERVER_STATUS_IN_TRANS_READONLY);
  if (those_behind_) thd_->resume_subsequent_commits(those_behind_);
  those_behind_ = nullptr;
  is_listed_ = false;
}

/* Rule T50: the engine of the list commits first, and would let the next transaction go on before this one
 * can be seen. With a binary log it is the server that does so, when both can. */
int Session::hold_those_behind() {
  if (!is_applier(thd_) || thd_test_options(thd_, OPTION_BIN_LOG)) return 0;
  if (thd_->wait_for_prior_commit()) return HA_ERR_ABORTED_BY_USER;
  those_behind_ = thd_->suspend_subsequent_commits();
  return 0;
}

bool Session::is_whole_transaction(bool all) const {
  return all || !in_multi_statement_transaction(thd_);
}

int Session::configure() {
  pbxt_session_config config{};
  config.isolation = isolation_of(thd_);
  config.conflict_mode = session_conflict_mode(thd_);
  config.lock_wait_timeout_ms = static_cast<uint64_t>(lock_wait_timeout_seconds(thd_)) * 1000;
  config.flush_at_commit = flush_at_commit();
  config.read_only = is_read_only(thd_);
  config.ordered = is_applier(thd_);
  return to_ha_error(pbxt_session_configure(core_, &config), thd_);
}

int Session::join() {
  if (int error = configure()) return error;
  trans_register_ha(thd_, false, hton, 0);
  if (in_multi_statement_transaction(thd_)) trans_register_ha(thd_, true, hton, 0);
  if (state_ == SessionState::kIdle) set_state(SessionState::kActive);
  if (in_statement_) return 0;
  rows_done_.begin();
  int error = to_ha_error(pbxt_statement_begin(core_), thd_);
  if (!error) in_statement_ = true;
  return error;
}

int Session::start_snapshot() {
  if (int error = join()) return error;
  return to_ha_error(pbxt_take_snapshot(core_), thd_);
}

int Session::end_statement() {
  if (!in_statement_) return 0;
  in_statement_ = false;
  return to_end_error(pbxt_statement_end(core_), thd_);
}

ulonglong Session::commit_id(ulonglong* transaction_id) {
  uint64_t transaction = 0, commit = 0;
  if (to_end_error(pbxt_commit_stamp(core_, &transaction, &commit), thd_)) return ULONGLONG_MAX;
  if (commit == 0) return 0;
  is_listed_ = true;
  if (hold_those_behind()) return ULONGLONG_MAX;
  *transaction_id = kFirstToldId + transaction;
  return kFirstToldId + commit;
}

int Session::prepare(bool all) {
  if (!is_whole_transaction(all)) return end_statement();
  // One that the engine has rolled back has changes in this sense, and is refused: the server may not know of
  // it yet. Of one that has not, nothing can be refused any more: its reads fit.
  if (!pbxt_session_has_changes(core_)) return 0;
  uint8_t bytes[kXidBytesMax];
  XID xid;
  thd_get_xid(thd_, reinterpret_cast<MYSQL_XID*>(&xid));
  size_t length = xid_to_bytes(xid, bytes);
  int error = to_end_error(pbxt_prepare(core_, bytes, length), thd_);
  if (!error) set_state(SessionState::kPrepared);
  return error;
}

void Session::commit_ordered() {
  // Readers and users of temporary tables alone are never prepared: commit() does all of their work.
  if (state_ != SessionState::kPrepared) return;
  if (pbxt_commit_ordered(core_) == PBXT_OK) set_state(SessionState::kOrdered);
}

/* A row must not outlive its transaction's entry in the list, which nobody can add later. The list's engine
 * has committed, but with InnoDB it is the answer to the client that waits for its log, not the commits of
 * others. A transaction that was voted for is decided, and on disk: there is nothing to wait for any more. */
void Session::await_list() {
  if (likely(!is_listed_) || state_ != SessionState::kActive) return;
  handlerton* list = ha_resolve_by_legacy_type(thd_, DB_TYPE_INNODB);
  if (list && list->flush_logs) list->flush_logs(list);
}

int Session::commit(bool all) {
  if (!is_whole_transaction(all)) return end_statement();
  await_list();
  if (state_ == SessionState::kIdle) return 0;
  set_state(SessionState::kIdle);
  return to_end_error(pbxt_commit(core_), thd_);
}

int Session::rollback(bool all) {
  if (is_whole_transaction(all)) {
    if (state_ == SessionState::kIdle) return 0;
    set_state(SessionState::kIdle);
    return to_ha_error(pbxt_rollback(core_), thd_);
  }
  if (!in_statement_) return 0;
  in_statement_ = false;
  return to_ha_error(pbxt_statement_rollback(core_), thd_);
}

void Session::close() {
  if (state_ == SessionState::kPrepared) pbxt_detach_prepared(core_);
  pbxt_session_close(core_);
  rows_done_.leave(thd_);
  delete this;
}

}  // namespace pbxt
