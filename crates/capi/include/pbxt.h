/*
 * pbxt.h: the C interface of the PBXT storage engine.
 *
 * Rules of the border
 *  - Every function returns a pbxt_status unless said otherwise. After anything but PBXT_OK,
 *    pbxt_error_text() gives the sentence for people (valid until the next call on this thread).
 *  - No panic and no exception crosses it: an internal failure is PBXT_INTERNAL.
 *  - Strings are UTF-8 bytes with a length; names of tables are opaque byte strings.
 *  - A pbxt_db and a pbxt_table may be used from any thread; a pbxt_session and its cursors by one
 *    thread at a time, except pbxt_session_kill(), which any thread may call at any moment.
 *  - Nothing a caller passes is kept after the call returns, except contexts said to be kept.
 */
#ifndef PBXT_H
#define PBXT_H

#include <stddef.h>
#include <stdint.h>

#include "pbxt_instruments.h"
#include "pbxt_keys.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PBXT_ABI_VERSION 13u

typedef struct pbxt_db pbxt_db;           /* one open database directory */
typedef struct pbxt_session pbxt_session; /* one connection: at most one transaction at a time */
typedef struct pbxt_table pbxt_table;     /* one open table generation with a host's record layout */
typedef struct pbxt_cursor pbxt_cursor;   /* one position in one table */

typedef enum pbxt_status {
  PBXT_OK = 0,
  PBXT_NOT_FOUND = 1,      /* no row with that key or row id */
  PBXT_END = 2,            /* scan past the last row */
  PBXT_DUPLICATE_KEY = 3,  /* see pbxt_cursor_duplicate() */
  PBXT_WRITE_CONFLICT = 4, /* row changed since the snapshot (ERROR 1020) */
  PBXT_DEADLOCK = 5,       /* the whole transaction must be rolled back */
  PBXT_LOCK_TIMEOUT = 6,   /* also NOWAIT */
  PBXT_KILLED = 7,         /* wait or long step ended by pbxt_session_kill() */
  PBXT_NO_SPACE = 8,       /* disk full; nothing was changed */
  PBXT_POISONED = 9,       /* a failure made the database read-only until reopened */
  PBXT_CORRUPT = 10,
  PBXT_IO = 11,
  PBXT_TOO_LARGE = 12, /* row or key over a limit */
  PBXT_TABLE_EXISTS = 13,
  PBXT_NO_SUCH_TABLE = 14,
  PBXT_DEF_CHANGED = 15,   /* table newer than the snapshot (ERROR 1412), or altered since */
  PBXT_ROW_DELETED = 16,   /* row id known, no visible version */
  PBXT_INVALID = 17,       /* bad argument or absurd setting */
  PBXT_IN_USE = 18,        /* another process has the database open */
  PBXT_WRONG_VERSION = 19, /* files of another format version */
  PBXT_READ_ONLY = 20,     /* the medium cannot be written */
  PBXT_NO_SUCH_XID = 21,
  PBXT_SAME_ROW = 22, /* update with identical bytes: nothing written */
  PBXT_INTERNAL = 23,
  PBXT_TXN_ABORTED = 24,       /* transaction was rolled back by the engine; only rollback is accepted */
  PBXT_SNAPSHOT_TOO_OLD = 25,  /* the snapshot was ended because of its age; the transaction can be ended */
  PBXT_ROW_IS_REFERENCED = 27, /* foreign key: children forbid the change; see pbxt_cursor_violated() */
  PBXT_NO_REFERENCED_ROW = 28, /* foreign key: no such parent */
  PBXT_BAD_FOREIGN_KEY = 29,   /* definition refused: the text names constraint, column and reason */
  PBXT_FOREIGN_KEY_NAME_TAKEN = 30, /* definition refused: the text names constraint and who has its name */
  PBXT_NEEDS_COPY = 31,             /* an ALTER that needs rows or indexes written anew: the text says why */
  PBXT_NO_KEY = 32,        /* a key of encrypted files is missing or another one: the text names it */
  PBXT_DENIED = 33,        /* this user has no right to a file or directory: the text names it */
  PBXT_OTHER_LAYOUT = 34,  /* the host's definition of a table does not fit the stored one */
  PBXT_UNSERIALIZABLE = 26 /* fits into no serial order: rolled back whole; after pbxt_commit it is over */
} pbxt_status;

typedef struct pbxt_text { /* not terminated by a zero */
  const char* bytes;
  size_t len;
} pbxt_text;

const char* pbxt_error_text(void);
/* Name that the last error of this thread is about: of PBXT_FOREIGN_KEY_NAME_TAKEN the constraint's, else
   empty. Valid as long as the text. */
const char* pbxt_error_subject(void);
const char* pbxt_version_text(void); /* "PBXT 0.1.0 (format 1)" */

/* ---- host callbacks ------------------------------------------------------------------------ */

typedef enum pbxt_log_level { PBXT_LOG_ERROR = 0, PBXT_LOG_WARNING = 1, PBXT_LOG_NOTE = 2 } pbxt_log_level;

typedef struct pbxt_host {
  /* One line for the host's error log. Any thread. */
  void (*log)(pbxt_log_level level, const char* text);
  /* Collation weights of one key part. part_ctx is pbxt_key_part.ctx given at pbxt_table_open (kept while the
     table is open). src is the whole column value; the host cuts it to the part's prefix length at a
     character border. Writes at most cap bytes, returns the bytes needed. Foreground threads only. */
  size_t (*weights)(const void* part_ctx, const uint8_t* src, size_t len, uint8_t* dst, size_t cap);
  /* A session waits for another one (host pointers given at pbxt_session_open), which cannot end its
   * transaction during the call. May ask for the blocker to be killed by another thread; must not call the
   * engine. May be NULL. */
  void (*wait_report)(void* waiter, void* blocker);
  /* < 0: a should be the deadlock victim rather than b; > 0: b; 0: no preference, then it is the one whose
   * request closed the circle. Must not call the engine. May be NULL. */
  int (*victim_preference)(void* a, void* b);
  /* Around every wait of a session. May be NULL. */
  void (*wait_begin)(void* host_session);
  void (*wait_end)(void* host_session);
  /* True if the session's statement was killed. Polled in long steps. */
  int (*is_killed)(void* host_session);
  /* In pbxt_commit() of a transaction that pbxt_commit_ordered() did not see: the commit has its place in the
   * order of commits and is visible; what is left is to wait for the disk. May be NULL. */
  void (*commit_ordered)(void* host_session);
  /* Copies at most cap bytes of what the session is running and returns how many; 0 if nothing runs or it
     cannot be told at once. Taken for UTF-8; may be cut inside a character. Called by threads of other
     sessions, never after pbxt_session_close; must not wait for anything that a killer, or whoever closes a
     session, may hold. May be NULL. */
  size_t (*statement)(void* host_session, char* text, size_t cap);
  /* Context for `weights` of a key part of a table that the engine opens by itself, to act on rows that refer
     to others: number of the collation and length of the part as given at create, is_char for FIXED and
     PADDED columns. Kept until pbxt_close(); the same part may be asked for again. NULL: the collation is not
     known. May be NULL. */
  const void* (*weights_context)(uint32_t collation, uint32_t length, int is_prefix, int is_char);
  /* Computes the columns of `record`, of a table that the statement of the session changes by an action of a
     foreign key, which depend on others: the stored ones and those in indexes. Returns 0, or any other number
     if it cannot. Called by the session's own thread. May be NULL: then such tables are not changed. */
  int (*generate)(void* host_session, const char* table, size_t table_len, uint8_t* record);
  /* 1 if a text column of this type (pbxt_column.type_text), whose field has room for so many bytes, can hold
     the value, and 0 if that has too many characters. May be NULL: then bytes alone count. */
  int (*fits)(const char* type_text, size_t type_len, size_t field_bytes, const uint8_t* value, size_t len);
  /* How far a long step of the session's statement is: the end of a bulk load. Called by the session's own
     thread, some times a second. May be NULL. */
  void (*progress)(void* host_session, uint64_t done, uint64_t total);
} pbxt_host;

/* ---- database -------------------------------------------------------------------------------- */

typedef struct pbxt_options {
  uint32_t abi_version;  /* PBXT_ABI_VERSION */
  const char* directory; /* created if missing, kept private to the engine */
  uint64_t cache_bytes;  /* one memory budget; 0 = a quarter of the machine's memory */
  uint8_t read_only;
  uint8_t background_threads; /* 1 = normal operation; 0 = caller steps (tests) */
  uint8_t direct_io;          /* 1 = blocks and commits past the page cache where it can be; 0 = through it */
  const pbxt_instruments* instruments; /* NULL: nobody keeps accounts. The first table of a process is told of
                                          its threads and waits, for as long as the process runs */
  const pbxt_keys* keys;               /* NULL: encrypted files are refused */
  uint32_t encryption_key; /* new files that are encrypted are with the newest version of this key; 0: no
                              file and no table can be */
  uint8_t encrypt_all;     /* 1: every new file is encrypted; 0: while there is a table that asks for it */
} pbxt_options;

pbxt_status pbxt_open(const pbxt_options* options, const pbxt_host* host, pbxt_db** db);
pbxt_status pbxt_close(pbxt_db* db); /* all sessions and tables are closed before; NULL is allowed */
int pbxt_is_new(pbxt_db* db);        /* 1: it was made by this pbxt_open() */
/* Age in seconds beyond which a snapshot is ended if it keeps much log; 0 = never. Any time. */
pbxt_status pbxt_set_max_snapshot_age(pbxt_db* db, uint64_t seconds);
/* Write every deadlock to the host's log, not only the newest to the status report. Any time. */
pbxt_status pbxt_set_print_all_deadlocks(pbxt_db* db, uint8_t on);
/* Hours in which all files are read once and verified; 0 = only by pbxt_scrub_now(). Any time. */
pbxt_status pbxt_set_scrub_hours(pbxt_db* db, uint64_t hours);
/* Begins to read all files at once, or with 0 ends what was begun so. Needs background threads. Any time. */
pbxt_status pbxt_scrub_now(pbxt_db* db, uint8_t on);
pbxt_status pbxt_flush(pbxt_db* db); /* everything ended before this call is durable on return */

/* Text for people; *text is owned by the library until pbxt_text_free(). */
pbxt_status pbxt_status_report(pbxt_db* db, char** text, size_t* len);
void pbxt_text_free(char* text);

typedef struct pbxt_counters { /* totals since open unless "now" is said */
  uint64_t txns_committed, txns_rolled_back, txns_active_now, txns_prepared_now;
  uint64_t rows_inserted, rows_updated, rows_deleted, rows_read;
  uint64_t blocks_skipped; /* of rows, by table scans with a filter */
  uint64_t ranges_counted; /* by pbxt_range_count */
  uint64_t write_conflicts, serialization_failures, deadlocks, lock_waits, lock_timeouts;
  uint64_t lock_wait_kills, lock_waits_now, lock_wait_millis, lock_wait_millis_max;
  uint64_t log_bytes_written, log_batches, log_syncs, log_tail_lsn, log_durable_lsn;
  uint64_t cache_bytes_now, cache_hits, cache_misses;
  uint64_t index_memory_bytes_now, row_map_memory_bytes_now;
  uint64_t blob_bytes_written, segments_now, data_bytes_on_disk_now;
  /* data_bytes_on_disk_now by what they are for */
  uint64_t space_log_rows_now, space_log_unneeded_now, space_log_ahead_now;
  uint64_t space_row_base_now, space_row_upper_now, space_row_dead_now, space_row_unnamed_now;
  uint64_t space_index_base_now, space_index_upper_now, space_index_dead_now, space_index_unnamed_now;
  uint64_t space_image_now, space_blob_now, space_manifest_now;
  uint64_t recovery_micros, recovery_log_bytes, recovery_records;
  uint64_t snapshots_now, oldest_snapshot_age_commits, oldest_snapshot_age_seconds, oldest_snapshot_log_bytes;
  uint64_t block_cache_budget_bytes_now, block_cache_bytes_now, block_cache_hits, block_cache_misses;
  uint64_t checkpoints_made, checkpoints_failed, checkpoints_running_now, checkpoint_last_millis;
  uint64_t log_bytes_behind_checkpoint_now, hot_log_bytes_now, gone_rows_now;
  uint64_t segments_compacted, rows_homed;
  /* written while an index was built, and brought into it beside writers, or while nobody could write */
  uint64_t build_rows_beside, build_rows_held;
  uint64_t merge_bytes_read, merge_bytes_written;
  uint64_t row_runs_now, row_pieces_now, row_run_bytes_now;
  uint64_t index_runs_now, index_pieces_now, index_run_bytes_now;
  uint64_t background_jobs_now; /* 0: nothing is running or due */
  uint64_t scrub_passes, scrub_bytes_read, scrub_damage_found;
  uint64_t scrub_progress_now;                 /* percent of the pass under way; 0 without one */
  uint64_t scrub_last_pass_seconds, read_only; /* the latter 1: nothing is written until it is reopened */
} pbxt_counters;
pbxt_status pbxt_get_counters(pbxt_db* db, pbxt_counters* out);

/* ---- lists for people ------------------------------------------------------------------------ */

/* Lists are copies, taken in steps under one latch at a time: each line was true at some moment of the call.
 * They stop nobody, and their memory does not grow with the number of locked rows. `f` is called for each
 * line with no latch held, until it returns non-zero. What a line points to is valid until `f` returns. */

typedef enum pbxt_lock_kind {
  PBXT_LOCK_ON_TABLE = 0,
  PBXT_LOCK_ON_ROW = 1,
  PBXT_LOCK_ON_ROWS = 2, /* all that one transaction has in one mode in one table */
  PBXT_LOCK_ON_KEY = 3,  /* of a unique index */
  PBXT_LOCK_ON_TXN = 4   /* the end of another transaction */
} pbxt_lock_kind;

/* Modes in lists. */
typedef enum pbxt_held_mode {
  PBXT_HELD_INTENT = 0,
  PBXT_HELD_SHARED = 1,
  PBXT_HELD_EXCLUSIVE = 2
} pbxt_held_mode;

typedef struct pbxt_locked {
  pbxt_text table;   /* as given at create; empty if it is gone */
  pbxt_text index;   /* of a key */
  pbxt_text key;     /* first bytes of the key's image, as it is compared; empty if they are not known */
  uint64_t key_hash; /* of the whole image */
  uint64_t row_id;   /* of a row */
  uint32_t kind;     /* pbxt_lock_kind */
  uint32_t mode;     /* pbxt_held_mode */
} pbxt_locked;

typedef enum pbxt_txn_state {
  PBXT_TXN_ACTIVE = 0,
  PBXT_TXN_WAITING = 1,
  PBXT_TXN_PREPARED = 2,
  PBXT_TXN_DETACHED = 3 /* prepared, held by no connection */
} pbxt_txn_state;

typedef struct pbxt_txn_info {
  uint64_t txn_id; /* 0: it has changed and locked nothing */
  uint64_t host_thread_id;
  uint64_t started_unix_seconds; /* 0: before the database was opened */
  uint64_t age_seconds;
  uint64_t rows_changed;         /* those undone by savepoints and statements included */
  uint64_t rows_locked;          /* explicitly, once per mode */
  uint64_t snapshot_ts;          /* 0: none */
  uint64_t snapshot_age_seconds; /* since the first commit it does not see */
  uint64_t log_bytes_held; /* since its first change or lock, or the first commit its snapshot does not see */
  uint64_t savepoints;
  pbxt_text statement;    /* what its connection is running */
  uint32_t state;         /* pbxt_txn_state */
  uint32_t isolation;     /* pbxt_isolation */
  uint32_t conflict_mode; /* pbxt_conflict_mode of the session */
  uint32_t waits;         /* 1: what follows is set */
  pbxt_locked waits_for;
  uint64_t waits_since_unix_seconds, waited_millis;
  uint64_t blocking_txn, blocking_host_thread_id; /* one of those it waits for */
} pbxt_txn_info;
pbxt_status pbxt_list_txns(pbxt_db* db, int (*f)(void* ctx, const pbxt_txn_info* txn), void* ctx);

typedef enum pbxt_lock_state {
  PBXT_LOCK_BY_CHANGE = 0, /* held because the row was changed, or a row with the key written */
  PBXT_LOCK_GRANTED = 1,   /* held because it was asked for */
  PBXT_LOCK_WAITING = 2
} pbxt_lock_state;

typedef struct pbxt_lock_info {
  uint64_t txn_id, host_thread_id;
  pbxt_locked what;
  uint64_t count; /* locks in this line; for changed rows without names, changes */
  uint32_t state; /* pbxt_lock_state */
} pbxt_lock_info;
/* *left_out: locks that found no line. Keys are listed where somebody waits for them. */
pbxt_status pbxt_list_locks(pbxt_db* db, int (*f)(void* ctx, const pbxt_lock_info* lock), void* ctx,
                            uint64_t* left_out);

typedef struct pbxt_lock_wait_info {
  uint64_t waiting_txn, waiting_host_thread_id;
  pbxt_locked what;
  uint64_t since_unix_seconds, waited_millis;
  uint64_t blocking_txn, blocking_host_thread_id;
  uint64_t blockers; /* all it waits for; at most nine of them have a line */
  uint32_t in_line;  /* 1: the blocker holds nothing, it stands right before in line */
} pbxt_lock_wait_info;
/* *left_out: waits that found no line. */
pbxt_status pbxt_list_lock_waits(pbxt_db* db, int (*f)(void* ctx, const pbxt_lock_wait_info* wait), void* ctx,
                                 uint64_t* left_out);

/* How often latches that all sessions share were found taken. Names are texts for people. */
pbxt_status pbxt_list_latches(pbxt_db* db, int (*f)(void* ctx, pbxt_text name, uint64_t contended),
                              void* ctx);

/* ---- sessions and transactions --------------------------------------------------------------- */

typedef enum pbxt_isolation {
  PBXT_READ_COMMITTED = 1,
  PBXT_REPEATABLE_READ = 2,
  PBXT_SERIALIZABLE = 3
} pbxt_isolation;
typedef enum pbxt_conflict_mode {
  PBXT_CONFLICT_DEFAULT = 0,
  PBXT_CONFLICT_ERROR = 1,
  PBXT_CONFLICT_WAIT = 2
} pbxt_conflict_mode;

typedef struct pbxt_session_config {
  pbxt_isolation isolation;         /* taken over at the next transaction start */
  pbxt_conflict_mode conflict_mode; /* table option wins over it */
  uint64_t lock_wait_timeout_ms;    /* 0 = do not wait */
  uint8_t flush_at_commit;          /* 0 at most once a second, 1 at commit (default), 2 write at commit */
  uint8_t read_only; /* the transaction changes no rows: under SERIALIZABLE it is held to that */
  uint8_t
      ordered; /* 1: its commits follow an order given from outside; wait_report also names those in line */
} pbxt_session_config;

pbxt_status pbxt_session_open(pbxt_db* db, void* host_session, uint64_t host_thread_id,
                              pbxt_session** session);
void pbxt_session_close(
    pbxt_session* session); /* rolls back; a prepared transaction is detached, not rolled back */
pbxt_status pbxt_session_configure(pbxt_session* session, const pbxt_session_config* config);
void pbxt_session_kill(pbxt_session* session); /* ends the running wait, any thread; takes no latch that is
                                                  held during a callback */

/* A statement: its work can be undone alone. Begin is O(1) and idempotent until the end. */
pbxt_status pbxt_statement_begin(pbxt_session* session);
pbxt_status pbxt_statement_end(pbxt_session* session);
pbxt_status pbxt_statement_rollback(pbxt_session* session);

/* One row: what is changed between the two is the change of a row and what followed from it, and is taken
 * back unless it stays. Inside a statement; not one within the other. */
pbxt_status pbxt_row_hold(pbxt_session* session);
pbxt_status pbxt_row_release(pbxt_session* session, int stays);

pbxt_status pbxt_take_snapshot(pbxt_session* session); /* START TRANSACTION WITH CONSISTENT SNAPSHOT */
pbxt_status pbxt_savepoint(pbxt_session* session, uint64_t* savepoint);
pbxt_status pbxt_rollback_to(pbxt_session* session, uint64_t savepoint);
/* Nobody returns to it any more, nor, with_newer, to those set after it. One not there is no mistake. */
pbxt_status pbxt_savepoint_release(pbxt_session* session, uint64_t savepoint, int with_newer);

pbxt_status pbxt_prepare(pbxt_session* session, const uint8_t* xid,
                         size_t xid_len); /* durable on return; xid_len <= 255 */
pbxt_status pbxt_commit_ordered(
    pbxt_session* session); /* after prepare: becomes visible; O(1), never blocks on I/O, any thread */
pbxt_status pbxt_commit(pbxt_session* session); /* finishes; without commit_ordered it does everything */
pbxt_status pbxt_rollback(pbxt_session* session);
void pbxt_detach_prepared(pbxt_session* session);

int pbxt_session_holds_locks(
    const pbxt_session* session); /* changes, locks, or reads to be minded until it ends */
int pbxt_session_has_changes(const pbxt_session* session); /* or its vote may be refused (rules V15, T46) */
int pbxt_session_is_prepared(const pbxt_session* session);

/* Prepared transactions without a session. Copies up to cap xids beginning at index `from`; returns the
 * number copied. */
typedef struct pbxt_xid {
  uint8_t len;
  uint8_t bytes[255];
} pbxt_xid;
size_t pbxt_prepared_list(pbxt_db* db, size_t from, pbxt_xid* out, size_t cap);
/* The id of a prepared transaction that is this one but for its first bytes; PBXT_NO_SUCH_XID if none is. */
pbxt_status pbxt_prepared_alike(pbxt_db* db, const uint8_t* xid, size_t xid_len, size_t but_for,
                                pbxt_xid* out);
pbxt_status pbxt_commit_prepared(pbxt_db* db, const uint8_t* xid,
                                 size_t xid_len); /* PBXT_NO_SUCH_XID if not ours */
pbxt_status pbxt_rollback_prepared(pbxt_db* db, const uint8_t* xid,
                                   size_t xid_len); /* PBXT_NO_SUCH_XID if not ours */

/* ---- table definitions ----------------------------------------------------------------------- */

typedef enum pbxt_column_kind {
  PBXT_COL_FIXED = 0, /* length bytes as they are */
  PBXT_COL_VAR1 = 1,  /* 1 length byte + up to length bytes */
  PBXT_COL_VAR2 = 2,  /* 2 length bytes + up to length bytes */
  PBXT_COL_BLOB1 = 3,
  PBXT_COL_BLOB2 = 4,
  PBXT_COL_BLOB3 = 5,
  PBXT_COL_BLOB4 = 6, /* length bytes + pointer */
  PBXT_COL_PADDED = 7 /* length bytes, trailing pad bytes not stored */
} pbxt_column_kind;

/* How values compare; what is not one of these the engine cannot compare in a table scan. */
typedef enum pbxt_column_order {
  PBXT_ORDER_UNKNOWN = 0,
  PBXT_ORDER_UINT = 1, /* FIXED, 1 to 8 bytes, little-endian; also the next three */
  PBXT_ORDER_INT = 2,
  PBXT_ORDER_F32 = 3,
  PBXT_ORDER_F64 = 4,
  PBXT_ORDER_BYTES = 5 /* as memcmp, a proper prefix first */
} pbxt_column_order;

typedef struct pbxt_column {
  uint32_t offset;      /* of the field in the record buffer (for VAR/BLOB: of its length bytes) */
  uint32_t length;      /* FIXED/PADDED: bytes; VAR: maximum data bytes; BLOB: ignored */
  uint32_t null_offset; /* byte in the record buffer */
  uint8_t null_bit;     /* mask; 0 = not nullable */
  uint8_t kind;         /* pbxt_column_kind */
  uint8_t pad;          /* PADDED: the byte */
  uint8_t stored;       /* 0 = virtual: not stored (its key images still are, if indexed) */
  uint8_t order;        /* pbxt_column_order, for pbxt_cursor_filter */
  uint8_t has_default;  /* pbxt_table_def.default_record has its default */
  const char* name;     /* this and the type are needed at create only */
  size_t name_len;
  const char* type; /* stands for the type: equal texts say that equal values have equal bytes in keys of the
                       same collation. Without the length of strings. */
  size_t type_len;
} pbxt_column;

typedef enum pbxt_key_encoding {
  PBXT_KEY_UINT = 0,
  PBXT_KEY_INT = 1,
  PBXT_KEY_F32 = 2,
  PBXT_KEY_F64 = 3,
  PBXT_KEY_RAW = 4,        /* fixed length, bytes compare as they are */
  PBXT_KEY_VARBINARY = 5,  /* variable length, no padding */
  PBXT_KEY_HOST_FIXED = 6, /* weights, always weight_len bytes */
  PBXT_KEY_HOST_NOPAD = 7, /* weights of any length, shorter is less */
  PBXT_KEY_HOST_PAD = 8    /* weights of any length, compared as if padded with pad_weight */
} pbxt_key_encoding;

typedef struct pbxt_key_part {
  uint32_t column;       /* position in pbxt_table_def.columns */
  uint32_t length;       /* part length in bytes (as in the host's search tuple) */
  uint32_t store_length; /* bytes the part takes in a search tuple, with null and length bytes */
  uint32_t weight_len;   /* HOST_FIXED */
  uint8_t encoding;      /* pbxt_key_encoding */
  uint8_t nullable;
  uint8_t descending;
  uint8_t is_prefix; /* only the first length bytes (host: characters) of the column */
  uint8_t is_var;    /* search tuple value has a 2-byte length */
  uint8_t pad_len;   /* HOST_PAD: bytes used of pad_weight */
  uint8_t pad_weight[8];
  uint32_t collation; /* host's number of the collation, kept in the catalog */
  const void* ctx;    /* for pbxt_host.weights; kept while the table is open */
} pbxt_key_part;

typedef struct pbxt_index {
  const char* name;
  size_t name_len;
  uint8_t unique; /* rows with NULL in any part are never duplicates */
  uint8_t primary;
  uint32_t part_count;
  const pbxt_key_part* parts;
  uint32_t
      extension_count; /* of the parts, the last ones: columns of the primary key that were not declared */
} pbxt_index;

typedef enum pbxt_fk_action { /* SQL:2016 part 2, 15.17 */
                              PBXT_FK_RESTRICT = 0,
                              PBXT_FK_CASCADE = 1,
                              PBXT_FK_SET_NULL = 2,
                              PBXT_FK_NO_ACTION = 3, /* as RESTRICT, kept apart for people */
                              PBXT_FK_SET_DEFAULT = 4
} pbxt_fk_action;

/* The values of `columns` are those of `parent_columns` in some row of table `parent`, or one of them is
 * NULL. */
typedef struct pbxt_foreign_key {
  pbxt_text name;   /* unique among the tables whose names agree up to the last '/' */
  pbxt_text parent; /* table name, which may be that of no table yet */
  uint32_t column_count;
  const uint32_t* columns;         /* positions in pbxt_table_def.columns */
  const pbxt_text* parent_columns; /* as many */
  uint8_t on_delete;               /* pbxt_fk_action */
  uint8_t on_update;
} pbxt_foreign_key;

typedef struct pbxt_table_def {
  const char* name;
  size_t name_len; /* unique in the database; by convention "./schema/table" */
  uint32_t record_length;
  uint32_t column_count;
  const pbxt_column* columns;
  uint32_t index_count;
  const pbxt_index* indexes;
  const uint8_t* host_image;
  size_t host_image_len; /* opaque: the host's own definition (frm image) */
  const uint8_t* host_version;
  size_t host_version_len; /* opaque: host's version id of the definition */
  uint64_t auto_increment; /* next value; 0 = 1 */
  pbxt_conflict_mode conflict_mode;
  uint8_t temporary;   /* gone at the next open */
  uint8_t compression; /* of settled rows and index entries: 0 default, 1 none, 2 lz4, 3 zstd */
  uint8_t encrypted;   /* every file made while the table lives is encrypted; create answers PBXT_NO_KEY
                          without a key for that */
  /* What follows is needed at create and redefine only. */
  uint8_t check_foreign_keys;    /* 0: constraints that cannot be kept wait until they can */
  const uint8_t* default_record; /* record_length bytes. NULL: nothing of columns' names, types and defaults
                                    is kept, and the table takes no part in foreign keys */
  const pbxt_foreign_key* foreign_keys;
  uint32_t foreign_key_count;
  const char* replaces; /* name of the table whose place it will take: till then it is nobody's parent, and
                           its constraints may have the names of those of the other */
  size_t replaces_len;
} pbxt_table_def;

/* DDL. Each is atomic and durable on return. `session` may be NULL; its lock timeout and kill apply to the
   wait for writers (and prepared transactions) of the table. */
pbxt_status pbxt_table_create(pbxt_db* db, pbxt_session* session, const pbxt_table_def* def);

#define PBXT_DROP_UNLESS_REFERENCED \
  1u /* PBXT_ROW_IS_REFERENCED if another table that is not about to be replaced refers to it */
pbxt_status pbxt_table_drop(pbxt_db* db, pbxt_session* session, const char* name, size_t name_len,
                            uint32_t flags);

/* Constraints that name the table name it by its new name, unless flags say otherwise. */
#define PBXT_RENAME_KEEP_REFERENCES 1u /* they go on to name whichever table has the old name */
#define PBXT_RENAME_SETS_ASIDE 2u /* another table will have its name: it is nobody's parent from now on */
#define PBXT_RENAME_TAKES_PLACE \
  4u /* it was made to replace another, or set aside, and is a table in its own right now */
#define PBXT_CHECK_FOREIGN_KEYS 8u /* refuse if constraints that name `to` do not fit it */
pbxt_status pbxt_table_rename(pbxt_db* db, pbxt_session* session, const char* from, size_t from_len,
                              const char* to, size_t to_len, uint32_t flags);
/* Gives a table other names, defaults, foreign keys and another host image; what is stored must be the same.
 * Constraints of other tables follow columns that have other names now. */
pbxt_status pbxt_table_redefine(pbxt_db* db, pbxt_session* session, const pbxt_table_def* def);

pbxt_status pbxt_table_truncate(pbxt_db* db, pbxt_session* session, const char* name, size_t name_len);
int pbxt_table_exists(pbxt_db* db, const char* name, size_t name_len);
/* Calls f for each table whose name begins with prefix, in name order, until f returns non-zero. No latch is
 * held in f. */
pbxt_status pbxt_table_list(pbxt_db* db, const char* prefix, size_t prefix_len,
                            int (*f)(void* ctx, const char* name, size_t len), void* ctx);

typedef struct pbxt_foreign_key_info {
  pbxt_text name, child, parent; /* tables by their names */
  uint32_t column_count;
  const pbxt_text* columns; /* names */
  const pbxt_text* parent_columns;
  const uint8_t* nullable;        /* of each column, 1: it may be NULL */
  const uint8_t* parent_nullable; /* 0 while there is no parent */
  uint8_t on_delete, on_update;   /* pbxt_fk_action */
  uint8_t bound;                  /* 1: there is a fitting parent */
  pbxt_text parent_index;         /* by which its rows are found; empty if not bound */
} pbxt_foreign_key_info;
/* Calls f for each constraint of a table, in the order of their names' bytes, until f returns non-zero. No
 * latch is held in f; what a line points to is valid until f returns. */
pbxt_status pbxt_foreign_keys_of(pbxt_db* db, const char* table, size_t table_len,
                                 int (*f)(void* ctx, const pbxt_foreign_key_info* key), void* ctx);
/* The same for constraints that are bound to this table as their parent, ordered by child. Tables about to be
 * replaced are left out. */
pbxt_status pbxt_foreign_keys_to(pbxt_db* db, const char* table, size_t table_len,
                                 int (*f)(void* ctx, const pbxt_foreign_key_info* key), void* ctx);
/* Another number whenever lists of constraints made before may be wrong. Who keeps a list reads the number
 * first and makes the list then. */
uint64_t pbxt_foreign_key_changes(pbxt_db* db);

/* Opens with the host's layout: the same columns and indexes as at create (checked: PBXT_OTHER_LAYOUT
 * otherwise). */
pbxt_status pbxt_table_open(pbxt_db* db, const pbxt_table_def* def, pbxt_table** table);
void pbxt_table_close(pbxt_table* table);
/* Parts that an index has, those of its extension included. A table opened may have been made without
 * extensions, or with some that `def` does not ask for: what it has counts. */
pbxt_status pbxt_index_parts(const pbxt_table* table, uint32_t index, uint32_t* out);

typedef struct pbxt_table_info {
  uint64_t rows_estimate; /* committed rows now */
  uint64_t data_bytes, index_bytes;
  uint64_t superseded_bytes; /* of data_bytes, about what merges will give back */
  uint64_t mean_row_bytes;
  uint64_t auto_increment_next;
  uint64_t created_unix_seconds, updated_unix_seconds;
  uint64_t table_id;
} pbxt_table_info;
pbxt_status pbxt_get_table_info(pbxt_table* table, pbxt_table_info* out);
uint64_t pbxt_rows_estimate(pbxt_table* table); /* that of pbxt_table_info alone: one load */
/* How many rows more, or fewer, it will be when the running transaction commits. */
int64_t pbxt_rows_of_own(pbxt_table* table, pbxt_session* session);
/* Rows per distinct value for each prefix of 1..parts parts, at least 1, estimated from samples
   (pbxt_statistics.h). `out` has room for `parts` initialized numbers. */
pbxt_status pbxt_rows_per_key(pbxt_table* table, uint32_t index, uint64_t* out, uint32_t parts);
/* The host's definition version kept with the table. *len in: capacity; out: bytes. */
pbxt_status pbxt_table_host_version(pbxt_db* db, const char* name, size_t name_len, uint8_t* out,
                                    size_t* len);
/* The host's own definition kept with the table; gives no bytes where there is none. */
pbxt_status pbxt_table_host_image(pbxt_db* db, const char* name, size_t name_len,
                                  void (*give)(void* ctx, const uint8_t* image, size_t len), void* ctx);

/* Verifies rows, chains and indexes against each other for the session's snapshot, or if quick the ends of
 * all pieces; report() gets one line a finding. Can be stopped by kill. progress may be NULL. */
pbxt_status pbxt_table_check(pbxt_table* table, pbxt_session* session, int quick,
                             void (*report)(void* ctx, const char* text),
                             void (*progress)(void* ctx, uint64_t done, uint64_t total), void* ctx,
                             uint64_t* findings);

/* A constraint of which a check has something to tell. */
typedef struct pbxt_unkept {
  pbxt_text constraint, parent;
  uint64_t orphans; /* rows without parent; 0: the constraint is bound to none and nothing was judged */
  uint64_t example; /* row id of one of them */
  pbxt_text why;    /* why it is not bound */
} pbxt_unkept;
/* Looks all rows of a table up by its constraints, as the session's snapshot shows both tables; report() gets
 * one line a constraint that is not kept. Can be stopped by kill; waits for DDL of parents, up to the lock
 * timeout. progress may be NULL. */
pbxt_status pbxt_table_check_references(pbxt_table* table, pbxt_session* session,
                                        void (*report)(void* ctx, const pbxt_unkept* unkept),
                                        void (*progress)(void* ctx, uint64_t done, uint64_t total),
                                        void* ctx);

/* Auto-increment: values are never given twice, also not after a restart. */
pbxt_status pbxt_autoinc_reserve(pbxt_table* table, uint64_t offset, uint64_t increment, uint64_t count,
                                 uint64_t* first, uint64_t* reserved);
pbxt_status pbxt_autoinc_raise(pbxt_table* table, uint64_t next); /* the next value is at least this */
pbxt_status pbxt_autoinc_set(
    pbxt_table* table,
    uint64_t next); /* ALTER TABLE ... AUTO_INCREMENT; not below existing rows: host's duty */

/* ---- cursors --------------------------------------------------------------------------------- */

typedef enum pbxt_lock_mode {
  PBXT_LOCK_NONE = 0,
  PBXT_LOCK_SHARED = 1,
  PBXT_LOCK_EXCLUSIVE = 2
} pbxt_lock_mode;

typedef struct pbxt_bind {
  uint8_t lock_mode;   /* pbxt_lock_mode of rows read */
  uint8_t for_write;   /* the statement may change this table */
  uint8_t skip_locked; /* rows locked by others are left out */
  uint8_t no_wait;     /* rows locked by others: PBXT_LOCK_TIMEOUT at once */
  uint8_t autonomous;  /* each change commits by itself, visible at once (sequences), and waits no longer
                          than the session */
  uint8_t newest;      /* the newest versions count, whatever the snapshot sees */
  uint8_t check_foreign_keys; /* changes are held to foreign keys, and their actions done */
  uint8_t leave_out_damaged;  /* table scans of a statement that neither changes nor locks rows leave out
                                 what cannot be read: see pbxt_cursor_left_out() */
} pbxt_bind;

/* Calls f for each range of row ids whose rows, if there were any, scans of the cursor have left out because
 * they could not be read, and forgets them. The text says what is damaged. *more: ranges beyond those. */
pbxt_status pbxt_cursor_left_out(pbxt_cursor* cursor,
                                 void (*f)(void* ctx, uint64_t first, uint64_t last, const char* why),
                                 void* ctx, uint64_t* more);
pbxt_status pbxt_cursor_open(pbxt_table* table, pbxt_cursor** cursor);
void pbxt_cursor_close(pbxt_cursor* cursor);
pbxt_status pbxt_cursor_bind(pbxt_cursor* cursor, pbxt_session* session,
                             const pbxt_bind* bind); /* joins the session's transaction */
/* 1 if the newest versions of rows count where statements of the session change or lock them (rule T22). */
int pbxt_reads_newest(pbxt_cursor* cursor, pbxt_session* session);
void pbxt_cursor_unbind(pbxt_cursor* cursor);
/* Bit i of the bitmap = column i must be filled by reads. NULL = all. Takes effect at the next
 * scan_start/index_start/fetch. A row that is given to pbxt_update has been read with all columns. */
pbxt_status pbxt_cursor_columns(pbxt_cursor* cursor, const uint8_t* bitmap, size_t bytes);

/* What must hold for the value of a column. Bounds are values as they stand in the record, of VAR and BLOB
   columns the bytes alone; NULL: no bound. */
typedef enum pbxt_condition_kind {
  PBXT_IS_BETWEEN = 0, /* and not NULL */
  PBXT_IS_NULL = 1,
  PBXT_IS_NOT_NULL = 2
} pbxt_condition_kind;
typedef struct pbxt_condition {
  uint32_t column;
  uint8_t kind; /* pbxt_condition_kind */
  uint8_t low_inclusive;
  uint8_t high_inclusive;
  const uint8_t* low;
  size_t low_len;
  const uint8_t* high;
  size_t high_len;
} pbxt_condition;
/* Table scans that start from now on may leave out rows for which not all conditions hold, until the next
   call; which ones they leave out is theirs to decide. Conditions the engine cannot judge are ignored. None:
   count 0. */
pbxt_status pbxt_cursor_filter(pbxt_cursor* cursor, const pbxt_condition* conditions, uint32_t count);

/* Reads fill `record` (the host's record buffer). BLOB pointers stay valid until the next read on this
   cursor, pbxt_cursor_reset or pbxt_cursor_close. */
pbxt_status pbxt_scan_start(pbxt_cursor* cursor);
pbxt_status pbxt_scan_next(pbxt_cursor* cursor, uint8_t* record);

typedef enum pbxt_seek {
  PBXT_SEEK_EXACT = 0,   /* first entry equal to the prefix */
  PBXT_SEEK_OR_NEXT = 1, /* first entry >= */
  PBXT_SEEK_AFTER = 2,   /* first entry > every entry equal to the prefix */
  PBXT_SEEK_OR_PREV = 3, /* last entry <= (equal to the prefix counts) */
  PBXT_SEEK_BEFORE = 4,  /* last entry < */
  PBXT_SEEK_LAST = 5     /* last entry equal to the prefix */
} pbxt_seek;

pbxt_status pbxt_index_start(pbxt_cursor* cursor, uint32_t index);
/* After pbxt_index_start: about so many rows will be asked for, 0: all. A wrong number costs time alone. */
pbxt_status pbxt_index_expect(pbxt_cursor* cursor, uint64_t rows);
/* After pbxt_index_start: 1 if all wanted columns are filled from entries of the index, virtual ones too. */
int pbxt_index_covers(pbxt_cursor* cursor);
pbxt_status pbxt_index_seek(pbxt_cursor* cursor, const uint8_t* tuple, uint32_t parts, pbxt_seek mode,
                            uint8_t* record);
pbxt_status pbxt_index_first(pbxt_cursor* cursor, uint8_t* record);
pbxt_status pbxt_index_last(pbxt_cursor* cursor, uint8_t* record);
pbxt_status pbxt_index_next(pbxt_cursor* cursor, uint8_t* record);
pbxt_status pbxt_index_prev(pbxt_cursor* cursor, uint8_t* record);
/* Next entry that still equals the prefix of the last pbxt_index_seek (PBXT_END otherwise). */
pbxt_status pbxt_index_next_same(pbxt_cursor* cursor, uint8_t* record);
/* Upper border for forward moves: entries beyond it are not fetched (PBXT_END). parts = 0 removes it. */
pbxt_status pbxt_index_end_range(pbxt_cursor* cursor, const uint8_t* tuple, uint32_t parts, int inclusive);
pbxt_status pbxt_scan_end(pbxt_cursor* cursor); /* ends a table or index scan */
void pbxt_cursor_reset(pbxt_cursor* cursor);    /* end of statement: frees read buffers */

/* Pushed conditions: entries of an index are shown to the host before their rows are read, locked or noted.
   Columns of the index are put into the record of the read under way, other columns are what they were;
   row_id is the row's. The judge must not use the cursor. It may be asked about entries whose rows the
   statement does not see, and about entries ahead of the next row, in index order. */
typedef enum pbxt_verdict {
  PBXT_ENTRY_UNWANTED = 0,
  PBXT_ENTRY_WANTED = 1,
  PBXT_ENTRY_BEYOND = 2, /* no entry from here on is wanted: the read ends */
  PBXT_ENTRY_STOP = 3    /* the statement was killed: the read ends with PBXT_KILLED */
} pbxt_verdict;
typedef int (*pbxt_judge)(void* ctx, uint8_t* record, uint64_t row_id); /* a pbxt_verdict */
/* The judge of a cursor; ctx is kept. */
pbxt_status pbxt_cursor_judge(pbxt_cursor* cursor, pbxt_judge judge, void* ctx);
/* After pbxt_index_start: entries are judged, until the next one. PBXT_INVALID for an index that does not
   have all of its columns whole. */
pbxt_status pbxt_index_judge_entries(pbxt_cursor* cursor);

uint64_t pbxt_cursor_row_id(const pbxt_cursor* cursor); /* of the row last read or inserted; 0 in a load */
/* Writes the key of `record` in an index, as bytes that compare as keys do, and at most cap of them. The
 * record needs the columns of the index only. */
pbxt_status pbxt_cursor_key(pbxt_cursor* cursor, uint32_t index, const uint8_t* record, uint8_t* out,
                            size_t cap);
pbxt_status pbxt_fetch(pbxt_cursor* cursor, uint64_t row_id,
                       uint8_t* record); /* by row id: what the cursor's mode can see; own changes included */
/* The same for who then changes or holds the row if it is one to be changed, and else lets it be: where the
   snapshot counts, that a row has been changed since is told when it is changed or held. */
pbxt_status pbxt_fetch_unjudged(pbxt_cursor* cursor, uint64_t row_id, uint8_t* record);
void pbxt_unlock_row(
    pbxt_cursor* cursor); /* the row last read did not match: its lock may go (READ COMMITTED) */
/* The row last read is one to be changed, and what it would be changed to is what it is: locked, and a write
   conflict if somebody has changed it since the snapshot. Nothing where reads lock. */
pbxt_status pbxt_hold_row(pbxt_cursor* cursor);
/* While it is on, a scan for rows to change under READ COMMITTED shows a row that others have locked as it
   was last committed, without a lock, instead of waiting for it. After a row that matches the caller asks
   whether it was shown so; if it was, it must not be changed yet: the next move of the scan is to the same
   row again, locked, as it is then, unless it is gone. Off when the statement ends. */
void pbxt_try_semi_consistent(pbxt_cursor* cursor, int on);
int pbxt_was_semi_consistent(pbxt_cursor* cursor);

pbxt_status pbxt_insert(pbxt_cursor* cursor, const uint8_t* record);
/* Change or delete the row `row_id` as last read through this session. */
pbxt_status pbxt_update(pbxt_cursor* cursor, uint64_t row_id, const uint8_t* old_record,
                        const uint8_t* new_record);
pbxt_status pbxt_delete(pbxt_cursor* cursor, uint64_t row_id, const uint8_t* record);
/* Deletes the rows that the table scan comes to next, at most `limit`. PBXT_END: fewer, the scan is over. */
pbxt_status pbxt_delete_scanned(pbxt_cursor* cursor, uint64_t limit, uint64_t* deleted);

/* Many rows: between begin and end the engine may take the rows of pbxt_insert into a load, which is sorted
 * and written beside the log and becomes part of the table at the end, or before anything else is done with
 * the table. It decides by itself, from the expected number of rows (0: unknown) and those that come. Call
 * begin before the first row, when it is known whether the statement wants an answer for each row. Rows in a
 * load have no row id yet: pbxt_cursor_row_id gives 0. One bracket per cursor's table and session; begin
 * forgets an older one. */
#define PBXT_BULK_ROW_ANSWERS 1u /* each row's answer is wanted: IGNORE, REPLACE, ON DUPLICATE KEY UPDATE */
pbxt_status pbxt_bulk_begin(pbxt_cursor* cursor, uint64_t expected_rows, uint32_t flags);
/* Without abort: every row taken in is in the table, or an error tells why not; then the statement must be
 * rolled back. With abort: what was taken in and is not yet in the table is forgotten. PBXT_DUPLICATE_KEY:
 * see pbxt_cursor_duplicate. */
pbxt_status pbxt_bulk_end(pbxt_cursor* cursor, int abort);
/* After PBXT_DUPLICATE_KEY of pbxt_bulk_end, or of a call that ended a load before: fills `record` with the
 * new row that was refused. PBXT_NOT_FOUND if there is none: it was the row of the call itself. */
pbxt_status pbxt_bulk_refused(pbxt_cursor* cursor, uint8_t* record);

/* After PBXT_DUPLICATE_KEY: which index (position in the definition) and the row that has the key. */
void pbxt_cursor_duplicate(const pbxt_cursor* cursor, uint32_t* index, uint64_t* row_id);

/* After PBXT_ROW_IS_REFERENCED or PBXT_NO_REFERENCED_ROW: constraint and tables, valid until the next call
   with this cursor. PBXT_NOT_FOUND if its last error was another. */
pbxt_status pbxt_cursor_violated(const pbxt_cursor* cursor, pbxt_text* constraint, pbxt_text* child,
                                 pbxt_text* parent);

/* True if constraints are bound to the table as their parent, its own included. O(1). */
int pbxt_table_is_referenced(const pbxt_table* table);

/* True if deletes of other rows may remove rows of it: a constraint has ON DELETE CASCADE. O(constraints). */
int pbxt_table_goes_with_parents(const pbxt_table* table);

/* Exact number of rows the session's snapshot sees (own changes included), O(log recent commits). */
pbxt_status pbxt_count(pbxt_cursor* cursor, pbxt_session* session, uint64_t* rows);
/* Estimated entries between two search tuples (parts 0 = open end); 0: the range is certainly empty. */
pbxt_status pbxt_range_estimate(pbxt_table* table, uint32_t index, const uint8_t* low, uint32_t low_parts,
                                int low_inclusive, const uint8_t* high, uint32_t high_parts,
                                int high_inclusive, uint64_t* rows);

#ifdef __cplusplus
}
#endif
#endif
