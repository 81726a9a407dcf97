/*
 * definition_files.cc: finds tables of the engine that the server does not know, and makes them known.
 *
 * Why it exists: the server knows a table by its definition file, in the folder of its database; rows are in
 * the engine's directory. Who copies that directory alone to another server, or loses the files, has tables
 * that nobody can name. The engine keeps a copy of each table's definition, so it can write them again. The
 * server's own way of asking an engine for definitions (discover_table) is not taken: with it the server
 * writes the file of a new table only after the engine has made the table, and leaves more to be mended after
 * a crash in between.
 *
 * Rules: a file that is there is not touched. A new one has another name until it is whole and durable.
 * Not written: partitioned tables, whose list of partitions is a file that the engine has no copy of; tables
 * under names that the server gives while it alters, which its own recovery deals with.
 */
#include "definition_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "log.h"

namespace pbxt {
namespace {

/* Names that the server gives while it alters. */
constexpr const char* kOfAlter = "#sql";
constexpr size_t kToldAtMost = 10;

std::string absolute(const std::string& table) {
  return std::string(mysql_real_data_home) + table;
}

/* An empty one is what a power cut has left of one that was being written. */
bool is_there(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 && found.st_size > 0;
}

bool write_all(int file, const std::vector<uint8_t>& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    ssize_t written = write(file, bytes.data() + at, bytes.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += static_cast<size_t>(written);
  }
  return true;
}

bool sync_folder(const std::string& folder) {
  int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  bool synced = fsync(file) == 0;
  close(file);
  return synced;
}

/* False leaves errno. */
bool write_definition_file(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::string folder = path.substr(0, path.rfind('/')), fresh = path + ".new";
  if (mkdir(folder.c_str(), my_umask_dir) != 0 && errno != EEXIST) return false;
  int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, my_umask);
  if (file < 0) return false;
  bool whole = write_all(file, bytes) && fsync(file) == 0;
  whole = close(file) == 0 && whole;
  if (whole && rename(fresh.c_str(), path.c_str()) == 0) return sync_folder(folder);
  int why = errno;
  unlink(fresh.c_str());
  errno = why;
  return false;
}

int keep_name(void* names, const char* name, size_t length) noexcept {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name, length);
  return 0;
}

void keep_image(void* bytes, const uint8_t* image, size_t length) noexcept {
  static_cast<std::vector<uint8_t>*>(bytes)->assign(image, image + length);
}

/* What became of the tables without a file. */
class Search {
 public:
  explicit Search(bool writes) : writes_(writes) {}

  void look_at(const std::string& table) {
    size_t slash = table.rfind('/');
    // Temporary tables have paths of another kind.
    if (table.compare(0, 2, "./") != 0 || slash < 2) return;
    if (table.compare(slash + 1, strlen(kOfAlter), kOfAlter) == 0) return;
    size_t part = table.find(kPartition, slash);
    std::string whole = table.substr(0, part);
    if (whole == last_ || is_there(absolute(whole) + reg_ext)) return;
    last_ = whole;
    if (!writes_)
      tell_missing(whole);
    else if (part != std::string::npos)
      tell(whole,
           "it is partitioned, and its list of partitions is lost: take both files from the server that made "
           "it");
    else
      restore(whole);
  }

  void conclude() const {
    if (writes_ && restored_ > 0)
      sql_print_information("PBXT: wrote the definition files of %zu tables that had none.", restored_);
    if (!writes_ && missing_ > 0)
      sql_print_warning(
          "PBXT: %zu tables have no definition file, so that the server does not know them: %s%s. Start it "
          "once with "
          "pbxt_restore_definitions=ON to have the files written.",
          missing_, names_.c_str(), missing_ > kToldAtMost ? ", ..." : "");
  }

 private:
  void tell_missing(const std::string& table) {
    if (++missing_ > kToldAtMost) return;
    if (!names_.empty()) names_ += ", ";
    names_ += table;
  }

  void tell(const std::string& table, const char* why) {
    if (++failed_ <= kToldAtMost)
      sql_print_error("PBXT: the definition file of %s cannot be written: %s", table.c_str(), why);
  }

  void restore(const std::string& table) {
    std::vector<uint8_t> image;
    pbxt_status status = pbxt_table_host_image(db, table.data(), table.size(), keep_image, &image);
    if (status != PBXT_OK)
      tell(table, pbxt_error_text());
    else if (image.empty())
      tell(table, "the engine has no copy of it");
    else if (!write_definition_file(absolute(table) + reg_ext, image))
      tell(table, strerror(errno));
    else
      restored_++;
  }

  bool writes_;
  size_t missing_ = 0, restored_ = 0, failed_ = 0;
  std::string names_;
  std::string last_; /* parts of a partitioned table come one after the other */
};

/* What a crash has interrupted the server has still to end, with the files that belong to it. */
bool was_closed_in_order() {
  pbxt_counters counters{};
  return pbxt_get_counters(db, &counters) == PBXT_OK && counters.recovery_records == 0;
}

}  // namespace

bool read_definition_file(const char* path, std::vector<uint8_t>* bytes) noexcept {
  std::string name = std::string(path) + reg_ext;
  int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  uint8_t buffer[4096];
  ssize_t got;
  bytes->clear();
  while ((got = read(file, buffer, sizeof(buffer))) > 0) bytes->insert(bytes->end(), buffer, buffer + got);
  close(file);
  return got == 0;
}

void look_for_definition_files() noexcept {
  bool writes = settings_at_start().restore_definitions;
  if (!writes && !was_closed_in_order()) return;
  std::vector<std::string> names;
  if (pbxt_table_list(db, "./", 2, keep_name, &names) != PBXT_OK) {
    sql_print_error("PBXT: tables cannot be listed: %s", pbxt_error_text());
    return;
  }
  Search search(writes);
  for (const std::string& name : names) search.look_at(name);
  search.conclude();
}

}  // namespace pbxt
