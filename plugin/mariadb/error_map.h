/*
 * error_map.h: the one place where engine statuses become the server's error numbers.
 */
#ifndef PBXT_PLUGIN_ERROR_MAP_H
#define PBXT_PLUGIN_ERROR_MAP_H

#include "plugin.h"

namespace pbxt {

/* The server's error number for `status` (0 for PBXT_OK). Keeps the engine's sentence for error_text(), and
   asks the server to roll the whole transaction back where the engine demands it. `thd` may be null. */
int to_ha_error(pbxt_status status, THD* thd);

/* As to_ha_error(), for statements that create or change tables: the engine's sentence is also pushed as a
   warning, since the server's own message then only carries the number. */
int to_ddl_error(pbxt_status status, THD* thd);

/* What opening the table of this path answers instead of `error`, which to_ha_error() gave. Of a definition
   file that does not fit it must not be HA_ERR_TABLE_DEF_CHANGED (rule K7 of docs/format-catalog.md): to that
   the server answers by removing the file and asking the engines for another one. */
int to_open_error(int error, const char* path, THD* thd);

/* As to_ha_error(), for what ends a transaction: the server reports its failure as ERROR 1180 with the number
   alone, so the engine's sentence is pushed as a note. Of several errors of a statement the client gets the
   first, and 1213 is the one that says "try again". */
int to_end_error(pbxt_status status, THD* thd);

/* The sentence kept by the last to_ha_error() of this thread. */
const char* error_text();

/* True if `error` is one of the numbers above the server's own that only this engine uses. */
bool is_engine_error(int error);

}  // namespace pbxt

#endif
