/*
 * pbxt_optimize.h: everything of a table in as few and as full files as can be, while others use it.
 */
#ifndef PBXT_OPTIMIZE_H
#define PBXT_OPTIMIZE_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was left as it was. */
typedef struct pbxt_optimized {
  uint8_t is_held;      /* what older snapshots or unfinished transactions may need stays until they end */
  uint8_t is_scattered; /* rows that follow each other by primary key mostly stand in different blocks */
} pbxt_optimized;

/* OPTIMIZE: rows leave the log, all that is superseded or deleted goes, and so do the files of it. Readers
 * and writers go on. Can be stopped by kill; then, and after any other error, what was done stays done.
 * progress may be NULL. */
pbxt_status pbxt_table_optimize(pbxt_table* table, pbxt_session* session,
                                void (*progress)(void* ctx, uint64_t done, uint64_t total), void* ctx,
                                pbxt_optimized* out);

#ifdef __cplusplus
}
#endif
#endif
