/*
 * pbxt_alter.h: tables that get other columns and indexes, and the indexes that are built for it.
 */
#ifndef PBXT_ALTER_H
#define PBXT_ALTER_H

#include "pbxt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What columns and indexes of a changed definition were before: their numbers then, or -1 for what is added.
 */
typedef struct pbxt_alteration {
  const int32_t* columns; /* one for each column of the definition */
  const int32_t* indexes; /* one for each index */
} pbxt_alteration;
/* Whether pbxt_tables_alter would do this: PBXT_NEEDS_COPY, and pbxt_error_text says why not. *adds_indexes
 * is 1 if indexes have to be built first. */
pbxt_status pbxt_table_check_alter(pbxt_db* db, const pbxt_table_def* def, const pbxt_alteration* change,
                                   int* adds_indexes);

/* For who is about to copy the rows of a table, before they are read: waits until no prepared transaction has
 * written to it. One that has no session any more holds no lock of the host's. Can be stopped by kill. */
pbxt_status pbxt_table_wait_for_prepared(pbxt_table* table, pbxt_session* session);

/* Indexes that a table is to get, built over the rows it has. Files of what is closed without having been
 * given to pbxt_tables_alter are removed. One thread at a time. */
typedef struct pbxt_index_build pbxt_index_build;
/* Waits until nobody changes the table, and takes a snapshot. From here on rows may be read and changed.
 * Definition and alteration have to be those of the ALTER. */
pbxt_status pbxt_index_build_open(pbxt_db* db, pbxt_session* session, const pbxt_table_def* def,
                                  const pbxt_alteration* change, pbxt_index_build** out);
/* Builds them, with most of what is changed meanwhile. Can be stopped by kill. PBXT_DUPLICATE_KEY: see
 * pbxt_index_build_refused. progress may be NULL. */
pbxt_status pbxt_index_build_run(pbxt_index_build* build,
                                 void (*progress)(void* ctx, uint64_t done, uint64_t total), void* ctx);
/* One round more beside writers, if many rows were changed since: for parts of a table that were built before
 * others. *made is 0 if there was none to make. Otherwise as pbxt_index_build_run. */
pbxt_status pbxt_index_build_catch_up_beside(pbxt_index_build* build,
                                             void (*progress)(void* ctx, uint64_t done, uint64_t total),
                                             void* ctx, int* made);
/* Adds what was changed since, as far as the transactions that did it are over. pbxt_tables_alter does so,
 * too; before it, while nobody can change the table any more, a row that is one too many can still be shown.
 * Otherwise as pbxt_index_build_run. */
pbxt_status pbxt_index_build_catch_up(pbxt_index_build* build,
                                      void (*progress)(void* ctx, uint64_t done, uint64_t total), void* ctx);
/* After PBXT_DUPLICATE_KEY: fills record, of the new definition, with the row whose key another row has in
 * the index *index; large values in it live until the build is closed. PBXT_NOT_FOUND if there is none. */
pbxt_status pbxt_index_build_refused(pbxt_index_build* build, uint8_t* record, uint32_t* index);
void pbxt_index_build_close(pbxt_index_build* build);

/* Gives tables other columns and indexes, all of them or none. No row is touched: rows that are there have in
 * added columns what the default record says. The definition holds for each of the tables, whose names are
 * given. Whoever has one of them open is told PBXT_DEF_CHANGED at the next bind. Indexes that are added
 * are built for each of the tables; the builds are closed by this call, whatever it answers. */
pbxt_status pbxt_tables_alter(pbxt_db* db, pbxt_session* session, const pbxt_table_def* def,
                              const pbxt_alteration* change, const pbxt_text* names, uint32_t name_count,
                              pbxt_index_build* const* builds, uint32_t build_count);

#ifdef __cplusplus
}
#endif
#endif
