/*
 * rows_done.h: how far a statement is, in the State column of SHOW PROCESSLIST.
 */
#ifndef PBXT_PLUGIN_ROWS_DONE_H
#define PBXT_PLUGIN_ROWS_DONE_H

#include "plugin.h"

namespace pbxt {

/* Rows that a statement of one connection has dealt with, over all its handlers. Handlers count for
 * themselves and tell of every kTold rows, so that a row costs an addition and a look, and a short statement
 * nothing more: figures are about right, and below kTold rows there are none. */
class RowsDone {
 public:
  enum Deed { kQueried, kInserted, kUpdated, kDeleted, kDeeds };
  static constexpr uint64_t kTold = 1024;

  ~RowsDone();
  void begin() {
    memset(rows_, 0, sizeof rows_);
    scanned_ = 0;
    scanned_of_ = 0;
    scanner_ = nullptr;
  }
  /* kTold more rows of a table were read; `whole` of a table scan, 0 where nobody knows how many there will
   * be. Of a join the first table that is scanned counts: the others are scanned again and again. */
  void found(THD* thd, const TABLE* table, uint64_t whole) noexcept;
  /* kTold more rows. */
  void add(THD* thd, Deed deed) noexcept;
  /* All rows have come; what is left of a bulk load to be done. */
  void end(THD* thd, uint percent) noexcept;
  /* The connection ends: nobody is to see there what is written for the next one. */
  void leave(THD* thd) noexcept;

 private:
  uint64_t rows_[kDeeds] = {};
  uint64_t scanned_ = 0, scanned_of_ = 0;
  const TABLE* scanner_ = nullptr;
  struct Text* text_ = nullptr;
};

}  // namespace pbxt

#endif
