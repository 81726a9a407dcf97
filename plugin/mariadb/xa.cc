/*
 * xa.cc: two-phase commit as the server's coordinator drives it: prepare, ordered commit, recovery of
 * prepared transactions, and the answer to "is all committed work durable?".
 *
 * After a crash: init() has recovered the engine, so recover() only lists. The server reads the list with
 * repeated calls until one returns less than asked for, and may read it again from the start.
 */
#include "xa.h"

#include <string.h>

#include "decisions.h"
#include "error_map.h"
#include "session.h"

namespace pbxt {

size_t xid_to_bytes(const XID& xid, uint8_t* bytes) {
  int8store(bytes, static_cast<ulonglong>(xid.formatID));
  bytes[8] = static_cast<uint8_t>(xid.gtrid_length);
  bytes[9] = static_cast<uint8_t>(xid.bqual_length);
  size_t length = static_cast<size_t>(xid.gtrid_length + xid.bqual_length);
  memcpy(bytes + 10, xid.data, length);
  return 10 + length;
}

bool xid_from_bytes(const uint8_t* bytes, size_t length, XID* xid) {
  if (length < 10) return false;
  size_t global = bytes[8], branch = bytes[9];
  if (global + branch != length - 10 || global + branch > XIDDATASIZE) return false;
  xid->set(static_cast<long>(uint8korr(bytes)), reinterpret_cast<const char*>(bytes) + 10,
           static_cast<long>(global), reinterpret_cast<const char*>(bytes) + 10 + global,
           static_cast<long>(branch));
  return true;
}

namespace {

int prepare(handlerton*, THD* thd, bool all) {
  Session* session = Session::find(thd);
  return session ? session->prepare(all) : 0;
}

void commit_ordered(handlerton*, THD* thd, bool) {
  if (Session* session = Session::find(thd)) session->commit_ordered();
}

/* Next prepared transaction to list. Recovery runs in one thread, before the first connection. */
size_t recover_from = 0;

int recover(handlerton*, XID* list, uint room) {
  carry_out_decisions_in_later_engines();
  constexpr size_t kBatch = 64;
  pbxt_xid batch[kBatch];
  uint filled = 0;
  while (filled < room) {
    size_t wanted = room - filled < kBatch ? room - filled : kBatch;
    size_t got = pbxt_prepared_list(db, recover_from, batch, wanted);
    for (size_t i = 0; i < got; i++) {
      if (xid_from_bytes(batch[i].bytes, batch[i].len, &list[filled])) {
        filled++;
      } else {
        sql_print_error(
            "PBXT: a prepared transaction of another program is left in the database; its rows stay locked.");
      }
    }
    recover_from += got;
    if (got < wanted) break;
  }
  if (filled < room) recover_from = 0;
  return static_cast<int>(filled);
}

/* Answers of the X/Open XA specification. */
constexpr int kXaOk = 0, kXaFailed = -3 /* XAER_RMERR */, kXaUnknown = -4 /* XAER_NOTA */;

using PreparedCall = pbxt_status (*)(pbxt_db*, const uint8_t*, size_t);

/* The server finds an id by its two parts alone, whatever format the statement says, and then passes on what
 * the statement says (rule V16). */
pbxt_status decide_whatever_format(const XID& xid, PreparedCall decide) {
  constexpr size_t kFormatBytes = 8;
  uint8_t bytes[kXidBytesMax];
  size_t length = xid_to_bytes(xid, bytes);
  pbxt_status status = decide(db, bytes, length);
  pbxt_xid other;
  if (status != PBXT_NO_SUCH_XID || pbxt_prepared_alike(db, bytes, length, kFormatBytes, &other) != PBXT_OK)
    return status;
  return decide(db, other.bytes, other.len);
}

/* The coordinator asks every engine about every transaction: one that is not ours is no error worth a
 * message. */
int decide_prepared(const XID& xid, PreparedCall decide) {
  switch (decide_whatever_format(xid, decide)) {
    case PBXT_OK:
      return kXaOk;
    case PBXT_NO_SUCH_XID:
      return kXaUnknown;
    default:
      sql_print_error("PBXT: a prepared transaction could not be ended: %s", pbxt_error_text());
      return kXaFailed;
  }
}

int commit_by_xid(handlerton*, XID* xid) {
  return decide_prepared(*xid, pbxt_commit_prepared);
}

int rollback_by_xid(handlerton*, XID* xid) {
  return decide_prepared(*xid, pbxt_rollback_prepared);
}

/* The answer promises that all commits are durable, and lets the server forget its decisions about them.
   After a failed flush that would not be true: transactions would come back prepared and undecided. So there
   is no answer then; the binary logs are kept until the server is started again, which the engine needs
   anyway. */
void commit_checkpoint_request(void* cookie) {
  if (db && pbxt_flush(db) != PBXT_OK) {
    sql_print_error(
        "PBXT: could not flush the log at a binary log checkpoint: %s. Binary logs from now on are kept, and "
        "RESET "
        "MASTER waits, until the server is started again.",
        pbxt_error_text());
    return;
  }
  commit_checkpoint_notify_ha(cookie);
}

}  // namespace

void install_xa_hooks(handlerton* hton) {
  hton->prepare = prepare;
  hton->commit_ordered = commit_ordered;
  hton->recover = recover;
  hton->commit_by_xid = commit_by_xid;
  hton->rollback_by_xid = rollback_by_xid;
  hton->commit_checkpoint_request = commit_checkpoint_request;
}

}  // namespace pbxt
