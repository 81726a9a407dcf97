/*
 * pbxt_instruments.h: who is told what files, threads, waits and memory of the engine cost. Part of pbxt.h,
 * which includes it.
 */
#ifndef PBXT_INSTRUMENTS_H
#define PBXT_INSTRUMENTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- instruments ----------------------------------------------------------------------------- */

/* For a host that keeps accounts of files, threads, waits and memory: it is told when something begins and
 * when it ends, by the thread that does it (rules PS1 to PS9 of docs/instruments.md). `place` is memory of
 * PBXT_PLACE_WORDS words for the host's use, which stays where it is from a beginning to its end. A beginning
 * that answers 0 has no end. These functions call nothing of the engine. */
#define PBXT_PLACE_WORDS 16

typedef enum pbxt_file_kind {
  PBXT_FILE_LOG = 0,
  PBXT_FILE_ROWS = 1,
  PBXT_FILE_INDEXES = 2, /* and images of checkpoints */
  PBXT_FILE_BLOBS = 3,
  PBXT_FILE_MANIFEST = 4,
  PBXT_FILE_DIRECTORY = 5, /* that of all of them: its syncs make names durable */
  PBXT_FILE_OTHER = 6
} pbxt_file_kind;
#define PBXT_FILE_KINDS 7

typedef enum pbxt_file_work {
  PBXT_FILE_CLOSE = 0,
  PBXT_FILE_READ = 1, /* a batch counts once */
  PBXT_FILE_WRITE = 2,
  PBXT_FILE_SYNC = 3,
  PBXT_FILE_GIVE_BACK = 4 /* room inside the file */
} pbxt_file_work;
#define PBXT_FILE_WORKS 5

typedef enum pbxt_wait_kind {
  PBXT_WAIT_LOCK = 0,      /* of a row, key or table, or the end of another transaction */
  PBXT_WAIT_LOG = 1,       /* another thread writes the log */
  PBXT_WAIT_BACKGROUND = 2 /* background work is behind: writers are slowed down */
} pbxt_wait_kind;
#define PBXT_WAIT_KINDS 3

typedef enum pbxt_memory_kind {
  PBXT_MEMORY_LOG = 0,
  PBXT_MEMORY_BLOCKS = 1,  /* decoded ones of rows and index entries */
  PBXT_MEMORY_INDEXES = 2, /* entries that are in no run */
  PBXT_MEMORY_ROW_MAP = 3
} pbxt_memory_kind;
#define PBXT_MEMORY_KINDS 4

typedef struct pbxt_instruments { /* none may be NULL */
  /* A file is opened or made. `path` is valid until `opened`, which gives the host's handle of the file;
     NULL: the host wants to hear no more of it. */
  int (*opening)(uint64_t* place, uint32_t file_kind, const char* path, int is_new);
  void* (*opened)(uint64_t* place, int succeeded);
  /* Work on an open file. A handle is not used after PBXT_FILE_CLOSE, nor after the file was removed. */
  int (*begin)(uint64_t* place, void* file, uint32_t file_work, size_t bytes);
  void (*end)(uint64_t* place, size_t bytes, int succeeded); /* bytes: 0 if it failed */
  /* A file is removed. `path` is valid until `removed`. */
  int (*removing)(uint64_t* place, uint32_t file_kind, const char* path);
  void (*removed)(uint64_t* place, int succeeded);
  /* The calling thread, one of the engine's own; names begin with "pbxt-". */
  void (*thread_begins)(const char* name);
  void (*thread_ends)(void);
  /* The calling thread sleeps. May be called under a latch that others are waiting for. */
  int (*waiting)(uint64_t* place, uint32_t wait_kind);
  void (*waited)(uint64_t* place);
  /* Bytes that the large structures have now, once a second, and 0 at close. One thread at a time. */
  void (*memory)(uint32_t memory_kind, uint64_t bytes);
} pbxt_instruments;

#ifdef __cplusplus
}
#endif
#endif
