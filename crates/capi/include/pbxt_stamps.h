/*
 * pbxt_stamps.h: ids of transactions for a host that writes them into rows (rules T47, T48 of
 * docs/transactions.md).
 */
#ifndef PBXT_STAMPS_H
#define PBXT_STAMPS_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The id of the running transaction, which is begun if need be: the next row that is written has it. Never
 * given again. */
pbxt_status pbxt_stamp(pbxt_session* session, uint64_t* txn_id);

/* Before the commit: the same id, and one for the commit that is greater than all ids given before. Both are
 * 0 if no row of the transaction has its id, or none is left after rollbacks in part. */
pbxt_status pbxt_commit_stamp(pbxt_session* session, uint64_t* txn_id, uint64_t* commit_id);

#ifdef __cplusplus
}
#endif
#endif
