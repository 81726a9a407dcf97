/*
 * pbxt_statistics.h: what pbxt_rows_per_key goes by: options of a table, and ANALYZE.
 */
#ifndef PBXT_STATISTICS_H
#define PBXT_STATISTICS_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pbxt_statistics_options {
  uint32_t leaves;    /* of each index that are looked at; 0: as many as the engine finds best */
  uint8_t is_fixed;   /* only ANALYZE takes new samples once there are any */
  uint8_t is_passing; /* samples go with the process */
} pbxt_statistics_options;
/* After pbxt_table_open: what the table's definition says. Holds for whoever has the table open. */
pbxt_status pbxt_set_statistics_options(pbxt_table* table, const pbxt_statistics_options* options);

/* ANALYZE: samples all indexes and saves what it found, durable on return. It takes no lock; a kill of the
 * session's statement ends it with PBXT_KILLED. After any error statistics are as they were. `progress` is
 * told now and then how much of how much is done; it may be null. */
pbxt_status pbxt_table_analyze(pbxt_table* table, pbxt_session* session,
                               void (*progress)(void* ctx, uint64_t done, uint64_t total), void* ctx);

#ifdef __cplusplus
}
#endif
#endif
