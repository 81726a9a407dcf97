/*
 * pbxt_keys.h: where the keys of encrypted files come from (docs/encryption.md). Part of pbxt.h, which
 * includes it.
 */
#ifndef PBXT_KEYS_H
#define PBXT_KEYS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBXT_NO_KEY_VERSION 0xFFFFFFFFu
#define PBXT_KEY_BYTES_MIN 16
#define PBXT_KEY_BYTES_MAX 256

/* For a host that has keys. Called by any thread when a file is made or met for the first time, and never
 * after pbxt_close(). The functions call nothing of the engine. */
typedef struct pbxt_keys { /* none may be NULL */
  /* Newest version of a key; PBXT_NO_KEY_VERSION: there is no such key now. */
  uint32_t (*latest_version)(uint32_t key_id);
  /* Copies a key to `bytes`, which has room for *len bytes (PBXT_KEY_BYTES_MAX), and says in *len how many it
     has (PBXT_KEY_BYTES_MIN at least). Returns 0, or any other number if there is no such key now. The engine
     wipes what it was given. */
  int (*key)(uint32_t key_id, uint32_t version, uint8_t* bytes, uint32_t* len);
  /* What to do where a key is missing, as the end of a sentence. Copied by pbxt_open(). */
  const char* remedy;
} pbxt_keys;

#ifdef __cplusplus
}
#endif
#endif
