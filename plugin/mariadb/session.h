/*
 * session.h: one server connection as the engine sees it, and the one state machine of its transaction.
 */
#ifndef PBXT_PLUGIN_SESSION_H
#define PBXT_PLUGIN_SESSION_H

#include "plugin.h"
#include "rows_done.h"

namespace pbxt {

/* Added to ids of transactions that the server is told: its list has those of InnoDB too, which have 48 bits,
 * and a key that lets each id stand there once. */
constexpr uint64_t kFirstToldId = uint64_t{1} << 48;

/*
 *   kIdle --join--> kActive --prepare--> kPrepared --commit_ordered--> kOrdered
 *     ^                |                     |                            |
 *     +---- commit or rollback from any state (set_state is the only writer) ----+
 */
enum class SessionState : uint8_t {
  kIdle,     /* the server knows of no transaction here */
  kActive,   /* registered with the server */
  kPrepared, /* durable, decided by the server */
  kOrdered   /* visible; only the end is missing */
};

/* A row of a table that keeps former rows, and the transaction that wrote it. */
struct StampedRow {
  const TABLE_SHARE* table;
  uint64_t row, transaction;
  bool operator==(const StampedRow& other) const {
    return table == other.table && row == other.row && transaction == other.transaction;
  }
};

class Session {
 public:
  /* The connection's session; null if it has none yet. */
  static Session* find(THD* thd);
  /* As find(), opened if missing. Null on failure, with the server's error number in *error. */
  static Session* get(THD* thd, int* error);
  /* The engine's session of the running connection for DDL calls; null is allowed there. */
  static pbxt_session* core_of(THD* thd);

  /* A statement begins to use tables of the engine: registers with the server, takes over the settings.
   * Idempotent. */
  int join();
  int start_snapshot();

  /* The id of the commit and that of the transaction; 0 if no row has the latter, ULONGLONG_MAX on failure.
   */
  ulonglong commit_id(ulonglong* transaction_id);
  int prepare(bool all);
  void commit_ordered();
  int commit(bool all);
  int rollback(bool all);
  void close(); /* ends the session and deletes this */

  pbxt_session* core() const { return core_; }
  THD* thd() const { return thd_; }
  SessionState state() const { return state_; }
  RowsDone& rows_done() { return rows_done_; }
  /* The last new row with a stamp. Its handler's clone may take it back. */
  StampedRow& last_stamped() { return last_stamped_; }

 private:
  explicit Session(THD* thd)
      : thd_(thd), core_(nullptr), state_(SessionState::kIdle), in_statement_(false), is_listed_(false) {}
  bool is_whole_transaction(bool all) const;
  int configure();
  void set_state(SessionState state);
  int end_statement();
  int hold_those_behind();
  void await_list();

  THD* thd_;
  pbxt_session* core_;
  SessionState state_;
  bool in_statement_;
  wait_for_commit* those_behind_ = nullptr; /* transactions of a replica that wait for this one */
  bool is_listed_;                          /* the server has written the transaction's id into its list */
  RowsDone rows_done_;                      /* of the statement */
  StampedRow last_stamped_{};
};

}  // namespace pbxt

#endif
