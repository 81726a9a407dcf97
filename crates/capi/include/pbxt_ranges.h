/*
 * pbxt_ranges.h: many ranges of an index read as one scan, for IN lists and the like; and ranges counted.
 */
#ifndef PBXT_RANGES_H
#define PBXT_RANGES_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pbxt_range {
  const uint8_t* low;  /* search tuples, as of pbxt_index_seek; not read where there are no parts */
  const uint8_t* high; /* valid until the next call */
  uint32_t low_parts;  /* 0: from the first entry */
  uint32_t high_parts; /* 0: to the last one */
  uint8_t low_inclusive;
  uint8_t high_inclusive;
  uint64_t tag; /* the host's name for the range */
} pbxt_range;
/* Fills in the next range; 0: there is none. It must not use the cursor. */
typedef int (*pbxt_next_range)(void* ctx, pbxt_range* range);

/* After pbxt_index_start: begins a read of many ranges. PBXT_NOT_FOUND: this cursor reads ranges one by one,
 * because its reads lock or note rows, or take them from the entries of the index. */
pbxt_status pbxt_ranges_start(pbxt_cursor* cursor);
/* Next row of the ranges that `next` gives, in their order; *tag: whose it is. Ranges are asked for ahead of
 * the rows that are shown. A row that is in two ranges is shown twice. PBXT_END at the end. */
pbxt_status pbxt_ranges_next(pbxt_cursor* cursor, pbxt_next_range next, void* ctx, uint8_t* record,
                             uint64_t* tag);

/* After pbxt_index_start: *rows is the number of rows that the range has for the statement. No row is shown,
 * and entries are not judged (pbxt_index_judge_entries). The tag is not read. */
pbxt_status pbxt_range_count(pbxt_cursor* cursor, const pbxt_range* range, uint64_t* rows);

#ifdef __cplusplus
}
#endif
#endif
