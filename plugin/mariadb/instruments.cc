/*
 * instruments.cc: files, threads, waits and memory of the engine in the server's performance schema.
 *
 * While the performance schema is off the server gives no keys; then the engine gets no table of functions,
 * and nothing here is called again (rule PS1 of docs/instruments.md). Calls go through PSI_server: the
 * functions that the server's own files call by name are not exported. Between a beginning and its end the
 * server's state lies in memory of the caller, in the thread that waits.
 */
#include "plugin.h"

#include <string.h>

#include <new>

#include "mysql/psi/psi.h"

namespace pbxt {
namespace {

constexpr char CATEGORY[] = "pbxt";

/* ---- keys ---- */

PSI_file_key file_keys[PBXT_FILE_KINDS];
PSI_file_info file_infos[PBXT_FILE_KINDS] = {
    {&file_keys[PBXT_FILE_LOG], "log", 0},           {&file_keys[PBXT_FILE_ROWS], "rows", 0},
    {&file_keys[PBXT_FILE_INDEXES], "indexes", 0},   {&file_keys[PBXT_FILE_BLOBS], "blobs", 0},
    {&file_keys[PBXT_FILE_MANIFEST], "manifest", 0}, {&file_keys[PBXT_FILE_DIRECTORY], "directory", 0},
    {&file_keys[PBXT_FILE_OTHER], "other", 0},
};

/* Threads by the names that the engine gives them, without the beginning that all have. */
constexpr char THREAD_PREFIX[] = "pbxt-";
constexpr int THREADS = 8;
PSI_thread_key thread_keys[THREADS];
PSI_thread_info thread_infos[THREADS] = {
    {&thread_keys[0], "log", PSI_FLAG_GLOBAL},
    {&thread_keys[1], "checkpoint", PSI_FLAG_GLOBAL},
    {&thread_keys[2], "upkeep", PSI_FLAG_GLOBAL},
    {&thread_keys[3], "housekeeper", PSI_FLAG_GLOBAL},
    {&thread_keys[4], "memory", PSI_FLAG_GLOBAL},
    {&thread_keys[5], "load", 0},
    {&thread_keys[6], "helper", 0},
    {&thread_keys[7], "scrub", PSI_FLAG_GLOBAL},
};

PSI_cond_key wait_keys[PBXT_WAIT_KINDS];
PSI_cond_info wait_infos[PBXT_WAIT_KINDS] = {
    {&wait_keys[PBXT_WAIT_LOCK], "lock", PSI_FLAG_GLOBAL},
    {&wait_keys[PBXT_WAIT_LOG], "log", PSI_FLAG_GLOBAL},
    {&wait_keys[PBXT_WAIT_BACKGROUND], "background", PSI_FLAG_GLOBAL},
};
/* One for all who wait for the same kind of thing. They stay: the engine's table of functions does too. */
PSI_cond* wait_conds[PBXT_WAIT_KINDS];

PSI_memory_key memory_keys[PBXT_MEMORY_KINDS];
PSI_memory_info memory_infos[PBXT_MEMORY_KINDS] = {
    {&memory_keys[PBXT_MEMORY_LOG], "log", PSI_FLAG_GLOBAL},
    {&memory_keys[PBXT_MEMORY_BLOCKS], "block_cache", PSI_FLAG_GLOBAL},
    {&memory_keys[PBXT_MEMORY_INDEXES], "index_entries", PSI_FLAG_GLOBAL},
    {&memory_keys[PBXT_MEMORY_ROW_MAP], "row_map", PSI_FLAG_GLOBAL},
};

template <typename Key, size_t N>
bool any_given(const Key (&keys)[N]) {
  for (Key key : keys)
    if (key) return true;
  return false;
}

/* The same names get the same keys when the plugin is installed again. */
bool take_keys() {
  PSI_server->register_file(CATEGORY, file_infos, PBXT_FILE_KINDS);
  PSI_server->register_thread(CATEGORY, thread_infos, THREADS);
  PSI_server->register_cond(CATEGORY, wait_infos, PBXT_WAIT_KINDS);
  PSI_server->register_memory(CATEGORY, memory_infos, PBXT_MEMORY_KINDS);
  for (int kind = 0; kind < PBXT_WAIT_KINDS; kind++)
    if (wait_keys[kind] && !wait_conds[kind])
      wait_conds[kind] = PSI_server->init_cond(wait_keys[kind], &wait_conds[kind]);
  return any_given(file_keys) || any_given(thread_keys) || any_given(wait_keys) || any_given(memory_keys);
}

/* ---- files ---- */

struct FileNote {
  PSI_file_locker* locker;
  PSI_file_locker_state state;
  bool closes;
};
static_assert(sizeof(FileNote) <= PBXT_PLACE_WORDS * sizeof(uint64_t), "a place has room for a file's note");

template <typename Note>
Note* begun(uint64_t* place) {
  return std::launder(reinterpret_cast<Note*>(place));
}

int opening(uint64_t* place, uint32_t kind, const char* path, int is_new) {
  FileNote* note = new (place) FileNote;
  note->locker = PSI_server->get_thread_file_name_locker(
      &note->state, file_keys[kind], is_new ? PSI_FILE_CREATE : PSI_FILE_OPEN, path, place);
  if (!note->locker) return 0;
  PSI_server->start_file_open_wait(note->locker, __FILE__, __LINE__);
  return 1;
}

void* opened(uint64_t* place, int succeeded) {
  return PSI_server->end_file_open_wait(begun<FileNote>(place)->locker, succeeded ? place : nullptr);
}

int begin(uint64_t* place, void* file, uint32_t work, size_t bytes) {
  // In the order of pbxt_file_work. There is no name for giving room back; this one changes sizes too.
  static const PSI_file_operation operations[PBXT_FILE_WORKS] = {
      PSI_FILE_CLOSE, PSI_FILE_READ, PSI_FILE_WRITE, PSI_FILE_SYNC, PSI_FILE_CHSIZE};
  FileNote* note = new (place) FileNote;
  note->closes = work == PBXT_FILE_CLOSE;
  note->locker =
      PSI_server->get_thread_file_stream_locker(&note->state, static_cast<PSI_file*>(file), operations[work]);
  if (!note->locker) return 0;
  if (note->closes)
    PSI_server->start_file_close_wait(note->locker, __FILE__, __LINE__);
  else
    PSI_server->start_file_wait(note->locker, bytes, __FILE__, __LINE__);
  return 1;
}

void end(uint64_t* place, size_t bytes, int succeeded) {
  FileNote* note = begun<FileNote>(place);
  if (note->closes)
    PSI_server->end_file_close_wait(note->locker, succeeded ? 0 : 1);
  else
    PSI_server->end_file_wait(note->locker, bytes);
}

int removing(uint64_t* place, uint32_t kind, const char* path) {
  FileNote* note = new (place) FileNote;
  note->locker =
      PSI_server->get_thread_file_name_locker(&note->state, file_keys[kind], PSI_FILE_DELETE, path, place);
  if (!note->locker) return 0;
  PSI_server->start_file_close_wait(note->locker, __FILE__, __LINE__);
  return 1;
}

void removed(uint64_t* place, int succeeded) {
  PSI_server->end_file_close_wait(begun<FileNote>(place)->locker, succeeded ? 0 : 1);
}

/* ---- threads ---- */

PSI_thread_key key_of(const char* name) {
  size_t prefix = sizeof(THREAD_PREFIX) - 1;
  if (strncmp(name, THREAD_PREFIX, prefix) != 0) return 0;
  for (const PSI_thread_info& info : thread_infos)
    if (strcmp(name + prefix, info.m_name) == 0) return *info.m_key;
  return 0;
}

void thread_begins(const char* name) {
  PSI_thread_key key = key_of(name);
  PSI_thread* thread = key ? PSI_server->new_thread(key, nullptr, 0) : nullptr;
  if (!thread) return;
  PSI_server->set_thread(thread);
  PSI_server->set_thread_os_id(thread);
}

void thread_ends() {
  PSI_server->delete_current_thread();
}

/* ---- waits ---- */

struct WaitNote {
  PSI_cond_locker* locker;
  PSI_cond_locker_state state;
};
static_assert(sizeof(WaitNote) <= PBXT_PLACE_WORDS * sizeof(uint64_t), "a place has room for a wait's note");

int waiting(uint64_t* place, uint32_t kind) {
  if (!wait_conds[kind]) return 0;
  WaitNote* note = new (place) WaitNote;
  note->locker =
      PSI_server->start_cond_wait(&note->state, wait_conds[kind], nullptr, PSI_COND_WAIT, __FILE__, __LINE__);
  return note->locker != nullptr;
}

void waited(uint64_t* place) {
  PSI_server->end_cond_wait(begun<WaitNote>(place)->locker, 0);
}

/* ---- memory ---- */

/* What the server was told last: one allocation of that size. */
struct Account {
  PSI_memory_key key; /* 0: the instrument was off then */
  size_t bytes;
  PSI_thread* owner;
};
Account accounts[PBXT_MEMORY_KINDS];

void memory(uint32_t kind, uint64_t bytes) {
  Account& account = accounts[kind];
  if (account.key && account.bytes == bytes) return;
  if (account.key) PSI_server->memory_free(account.key, account.bytes, account.owner);
  account = Account{0, bytes, nullptr};
  if (bytes) account.key = PSI_server->memory_alloc(memory_keys[kind], bytes, &account.owner);
}

}  // namespace

const pbxt_instruments* instruments() {
  static const pbxt_instruments table = {opening,       opened,      begin,   end,    removing, removed,
                                         thread_begins, thread_ends, waiting, waited, memory};
  return take_keys() ? &table : nullptr;
}

}  // namespace pbxt
