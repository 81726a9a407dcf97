/*
 * pbxt_inventory.h: what a database consists of, for lists that people read.
 */
#ifndef PBXT_INVENTORY_H
#define PBXT_INVENTORY_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lines of cells, one function for all lists. The cells of a line stand in the order given here. */
typedef enum pbxt_list_kind {
  /* table, id, rows, mean row bytes, row runs, their pieces, slots, bytes, indexes, their bytes in runs and
     in memory, gone rows, bytes of the row map, next automatic value, COMPRESSION, CONFLICT_MODE, temporary
   */
  PBXT_LIST_TABLES = 0,
  /* table, index, id, unique, entries, runs, pieces, bytes, bytes of entries in no run */
  PBXT_LIST_INDEXES = 1,
  /* table, index or nothing for rows, number from the newest on, level, owner or nothing, pieces, slots or
     entries, bytes */
  PBXT_LIST_RUNS = 2,
  /* file, what it holds, state, bytes, bytes that are named or nothing */
  PBXT_LIST_SEGMENTS = 3,
  /* name, bytes, budget or nothing, hits or nothing, misses or nothing */
  PBXT_LIST_CACHES = 4,
  /* table, index, parts of a prefix, rows for each of its values, entries when sampled, neighbours compared,
     those that differ in the prefix, when, by whom, 1 if it outlives the process */
  PBXT_LIST_INDEX_STATISTICS = 5
} pbxt_list_kind;

typedef enum pbxt_cell_kind {
  PBXT_CELL_NOTHING = 0,
  PBXT_CELL_NUMBER = 1,
  PBXT_CELL_TEXT = 2,
  PBXT_CELL_TABLE = 3, /* text: a table's name as given at create */
  PBXT_CELL_TIME = 4   /* number: Unix seconds */
} pbxt_cell_kind;

typedef struct pbxt_cell {
  uint32_t kind; /* pbxt_cell_kind */
  uint64_t number;
  pbxt_text text;
} pbxt_cell;
/* Calls f for each line until it returns non-zero; what the cells point to is valid until f returns. */
pbxt_status pbxt_list(pbxt_db* db, uint32_t list, int (*f)(void* ctx, const pbxt_cell* cells, size_t count),
                      void* ctx);

#ifdef __cplusplus
}
#endif

#endif
