/*
 * decisions.cc: commits what the server's coordinator without binary log had decided before a crash.
 *
 * Why it exists: with log_bin=OFF a transaction of two engines is decided by a file, tc.log: the server
 * writes the transaction's number there, durably, when all engines have prepared it, then lets them commit
 * without a flush, and answers. But after a crash its recovery rolls back every prepared transaction, those
 * in the file too: an acknowledged commit would be gone from all engines, or from one of them. So the file is
 * read here, before the server's recovery, and what it names is committed in every engine that has it
 * prepared (docs/decisions/0007-decisions-of-tc-log.md).
 *
 * State: the decisions, from the start of the plugin to the server's first question for prepared
 * transactions. Rules of docs/two-phase.md: V7 (the file's numbers are committed, others left to the server),
 * V8 (a file is used once).
 *
 * After a crash in the middle: the same again; what was committed is prepared no more.
 */
#include "decisions.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "plugin.h"

namespace pbxt {
namespace {

/* The file begins with these four bytes and the number of engines; numbers of eight bytes follow from offset
 * 8 to the end, 0 where there is none. */
constexpr unsigned char kMagic[] = {254, 0x23, 0x05, 0x74};
constexpr size_t kFirstNumber = 8;

enum class Phase { kNothingToDo, kLaterEngines };

Phase phase = Phase::kNothingToDo;
std::vector<my_xid> decided; /* sorted */

bool read_whole(const char* path, std::vector<unsigned char>* bytes) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  unsigned char buffer[4096];
  ssize_t got;
  while ((got = read(file, buffer, sizeof(buffer))) > 0) bytes->insert(bytes->end(), buffer, buffer + got);
  close(file);
  return got == 0;
}

/* A file that is none, or was ended in good order, names nothing; the server says what is wrong with it. */
void read_decisions(const char* path) {
  decided.clear();
  std::vector<unsigned char> bytes;
  if (!read_whole(path, &bytes) || bytes.size() < kFirstNumber ||
      memcmp(bytes.data(), kMagic, sizeof(kMagic)))
    return;
  for (size_t at = kFirstNumber; at + sizeof(my_xid) <= bytes.size(); at += sizeof(my_xid)) {
    my_xid number;
    memcpy(&number, bytes.data() + at, sizeof(number));
    if (number) decided.push_back(number);
  }
  std::sort(decided.begin(), decided.end());
}

/* One call asks for all: an engine may begin anew with each, and forgets which ones it has listed only when
 * the list was not full. */
std::vector<XID> decided_in(handlerton* engine) {
  std::vector<XID> list(MAX_XID_LIST_SIZE);
  int got = engine->recover(engine, list.data(), MAX_XID_LIST_SIZE);
  list.resize(got > 0 ? static_cast<size_t>(got) : 0);
  auto is_other = [](XID& xid) {
    my_xid number = xid.get_my_xid();
    return number == 0 || !std::binary_search(decided.begin(), decided.end(), number);
  };
  list.erase(std::remove_if(list.begin(), list.end(), is_other), list.end());
  return list;
}

/* The server enters an engine in its own table, which hton_name() asks, only when the engine has started. */
const char* name_of(const handlerton* engine) {
  return engine == hton ? "PBXT" : hton_name(engine)->str;
}

/* False if one of them is still prepared afterwards. */
bool commit_decided_in(handlerton* engine) {
  std::vector<XID> list = decided_in(engine);
  if (list.empty()) return true;
  size_t failed = 0;
  for (XID& xid : list) failed += engine->commit_by_xid(engine, &xid) != 0;
  // Durable now: these commits. The server empties the file next; without this a power cut could bring back
  // prepared transactions that nothing decides any more.
  if (engine->flush_logs && engine->flush_logs(engine)) failed = list.size();
  if (failed == 0)
    sql_print_information("PBXT: committed %zu transactions in %s that tc.log had decided before the crash.",
                          list.size(), name_of(engine));
  else
    sql_print_error("PBXT: %zu of %zu transactions that tc.log had decided could not be committed in %s.",
                    failed, list.size(), name_of(engine));
  return failed == 0;
}

my_bool commit_in_other_engine(THD*, plugin_ref plugin, void* all_committed) {
  handlerton* engine = plugin_hton(plugin);
  if (engine != hton && engine->recover && engine->commit_by_xid && !commit_decided_in(engine))
    *static_cast<bool*>(all_committed) = false;
  return 0;
}

bool commit_in_other_engines() {
  bool all_committed = true;
  plugin_foreach(nullptr, commit_in_other_engine, MYSQL_STORAGE_ENGINE_PLUGIN, &all_committed);
  return all_committed;
}

void path_of_file(char* path) {
  fn_format(path, opt_tc_log_file, mysql_data_home, "", MY_UNPACK_FILENAME);
}

}  // namespace

bool carry_out_decisions() noexcept {
  // A plugin installed into a running server: the file, if there is one, is in use. And an administrator who
  // decides by hand has told the server so.
  if (mysqld_server_started || tc_heuristic_recover) return true;
  char path[FN_REFLEN];
  path_of_file(path);
  read_decisions(path);
  bool all_committed = decided.empty() || (commit_in_other_engines() && commit_decided_in(hton));
  phase = Phase::kLaterEngines;  // last, because this engine's own recover() ends it
  return all_committed;
}

void carry_out_decisions_in_later_engines() noexcept {
  if (phase == Phase::kNothingToDo) return;
  phase = Phase::kNothingToDo;
  if (!decided.empty()) commit_in_other_engines();
  decided.clear();
  decided.shrink_to_fit();
  // With a binary log the server neither reads nor removes the file. Its numbers begin anew with every start,
  // so it must not be found again later (rule V8).
  if (!opt_bin_log) return;
  char path[FN_REFLEN];
  path_of_file(path);
  if (unlink(path) == 0)
    sql_print_information(
        "PBXT: removed %s: what it had decided is committed, and the binary log decides now.", path);
}

}  // namespace pbxt
