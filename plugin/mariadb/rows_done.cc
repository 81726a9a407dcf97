/*
 * rows_done.cc: "Queried about 5120 rows, Updated about 4096 rows (40 %)".
 *
 * SHOW PROCESSLIST of another connection keeps the pointer to a State for as long as it likes. So the memory
 * of texts is never given back: a connection that ends leaves its text to the next one that needs one. A text
 * is two, of which one is shown while the other is written. Their last byte is 0 from the beginning, so who
 * reads while another writes meets an end in any case. The State alone is set, not the stage: the server's
 * stage goes on, and the performance schema measures it.
 */
#include "rows_done.h"

#include <stdio.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace pbxt {

struct Text {
  static constexpr size_t kBytes = 128;

  char bytes[2][kBytes];
  uint shown;
  Text* next;
};

namespace {

std::mutex free_latch;
Text* free_texts = nullptr;

Text* take_text() noexcept {
  {
    std::lock_guard<std::mutex> guard(free_latch);
    if (Text* text = free_texts) {
      free_texts = text->next;
      return text;
    }
  }
  return new (std::nothrow) Text();
}

void leave_text(Text* text) noexcept {
  std::lock_guard<std::mutex> guard(free_latch);
  text->next = free_texts;
  free_texts = text;
}

/* What snprintf has written of what it was asked for. */
size_t written(int wanted, size_t room) {
  return std::min(static_cast<size_t>(wanted), room);
}

}  // namespace

RowsDone::~RowsDone() {
  if (text_) leave_text(text_);
}

void RowsDone::leave(THD* thd) noexcept {
  if (text_ && thd->proc_info == text_->bytes[text_->shown]) thd->proc_info = nullptr;
}

void RowsDone::found(THD* thd, const TABLE* table, uint64_t whole) noexcept {
  if (whole > 0 && !scanner_) scanner_ = table;
  if (whole > 0 && table == scanner_) {
    scanned_ += kTold;
    scanned_of_ = whole;
  }
  add(thd, kQueried);
}

void RowsDone::end(THD* thd, uint percent) noexcept {
  if (!text_ && !(text_ = take_text())) return;
  char* fresh = text_->bytes[text_->shown ^= 1];
  snprintf(fresh, Text::kBytes - 1, "Sorting and writing the last rows (%u %%)", percent);
  thd->proc_info = fresh;
}

void RowsDone::add(THD* thd, Deed deed) noexcept {
  static const char* const kDeedNames[kDeeds] = {"Queried", "Inserted", "Updated", "Deleted"};
  rows_[deed] += kTold;
  if (!text_ && !(text_ = take_text())) return;
  char* fresh = text_->bytes[text_->shown ^= 1];
  size_t length = 0;
  for (int i = 0; i < kDeeds; i++) {
    if (rows_[i] == 0) continue;
    size_t room = Text::kBytes - 1 - length;
    length += written(snprintf(fresh + length, room, "%s%s about %llu rows", length ? ", " : "",
                               kDeedNames[i], static_cast<ulonglong>(rows_[i])),
                      room);
  }
  if (scanner_) {
    uint64_t percent = std::min<uint64_t>(scanned_ * 100 / scanned_of_, 99);
    snprintf(fresh + length, Text::kBytes - 1 - length, " (%u %%)", static_cast<uint>(percent));
  }
  thd->proc_info = fresh;
}

}  // namespace pbxt
