/*
 * pbxt_inserts.h: inserts of callers that have another row in mind as well.
 */
#ifndef PBXT_INSERTS_H
#define PBXT_INSERTS_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pbxt_insert of a caller that goes on with the row that has a key of the record (REPLACE, ON DUPLICATE KEY
 * UPDATE): when PBXT_DUPLICATE_KEY names a row, it is locked and has the key (rule T22). */
pbxt_status pbxt_insert_or_hold(pbxt_cursor* cursor, const uint8_t* record);

/* pbxt_insert, after which the cursor is at the row at which it was. */
pbxt_status pbxt_insert_beside(pbxt_cursor* cursor, const uint8_t* record);

#ifdef __cplusplus
}
#endif
#endif
