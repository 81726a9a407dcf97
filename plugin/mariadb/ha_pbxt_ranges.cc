/*
 * ha_pbxt_ranges.cc: many ranges of an index read as one scan, as conditions like `id IN (...)` give them.
 *
 * The engine asks for ranges ahead of the rows it shows, reads the rows of many of them in the order in which
 * they stand, and shows them in the order of the ranges; so nothing is sorted here, and no buffer of the
 * server's is needed. It tells the server's own code to read range by range where that is needed (rule X53),
 * and so does this file for single ranges, and for reads of the index alone. Joins by key in batches are not
 * offered: their conditions are judged with rows of the join buffer.
 */
#include "error_map.h"
#include "ha_pbxt.h"

namespace pbxt {

int ha_pbxt::multi_range_read_init(RANGE_SEQ_IF* sequence, void* parameter, uint ranges, uint mode,
                                   HANDLER_BUFFER* buffer) {
  reads_ranges_ = ranges > 1 && !(mode & HA_MRR_INDEX_ONLY) && !keyread_enabled() && !takes_newest();
  ranges_begun_ = false;
  return handler::multi_range_read_init(sequence, parameter, ranges, mode, buffer);
}

/* Conditions are judged by entries of many ranges, ahead of the row that is shown: the end of one range must
 * not end all. */
int ha_pbxt::begin_ranges() {
  if (pending_ != Pending::kNothing)
    if (int error = start_pending()) return error;
  ranges_begun_ = true;
  pbxt_status status = pbxt_ranges_start(cursor_);
  reads_ranges_ = status != PBXT_NOT_FOUND;
  if (!reads_ranges_) return 0;
  seek_is_current_ = false;
  range_end_set_ = true;  // by the ranges, until the next search
  end_range = nullptr;
  shown_range_ = nullptr;
  return fail(status);
}

int ha_pbxt::next_range(void* self, pbxt_range* range) noexcept {
  ha_pbxt* file = static_cast<ha_pbxt*>(self);
  KEY_MULTI_RANGE& next = file->mrr_cur_range;
  if (file->mrr_funcs.next(file->mrr_iter, &next)) return 0;
  // As the server counts a search; the limit of rows examined is looked at with the next row.
  THD* thd = file->table->in_use;
  status_var_increment(thd->status_var.ha_read_key_count);
  thd->accessed_rows_and_keys++;
  range->low = next.start_key.key;
  range->low_parts = file->parts_in(file->active_index, next.start_key.keypart_map);
  range->low_inclusive = next.start_key.flag != HA_READ_AFTER_KEY;
  range->high = next.end_key.key;
  range->high_parts = file->parts_in(file->active_index, next.end_key.keypart_map);
  range->high_inclusive = next.end_key.flag != HA_READ_BEFORE_KEY;
  range->tag = reinterpret_cast<uint64_t>(next.ptr);
  return 1;
}

/* By way of the server's code for the next row of an index, which counts it, measures the time and computes
 * virtual columns. The first row of a range counts as found by its key, and the end as nothing. */
int ha_pbxt::next_of_all_ranges(range_id_t* range) {
  if (int error = leave_row()) return error;  // the server may go to the next range without a read
  if (reads_ranges_ && !ranges_begun_)
    if (int error = begin_ranges()) return error;
  if (!reads_ranges_) return handler::multi_range_read_next(range);
  range_id_t before = shown_range_;
  shows_ranges_ = true;
  int error = ha_index_next(table->record[0]);
  shows_ranges_ = false;
  if (error || shown_range_ != before) decrement_statistics(&SSV::ha_read_next_count);
  *range = shown_range_;
  return error;
}

/* Who merges scans takes an error for the end of memory, or for that of the rows, so it is told here. */
int ha_pbxt::multi_range_read_next(range_id_t* range) {
  int error = next_of_all_ranges(range);
  if (unlikely(error && error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND)) {
    print_error(error, MYF(0));
    told_error_ = error;
  }
  return error;
}

/* Others tell an error that was told, too: it is told once. */
void ha_pbxt::print_error(int error, myf flags) {
  bool is_told = error == told_error_ && ha_thd()->is_error();
  told_error_ = 0;
  if (!is_told) handler::print_error(error, flags);
}

int ha_pbxt::next_of_ranges(uchar* record) {
  uint64_t tag = 0;
  int error = found(pbxt_ranges_next(cursor_, next_range, this, record, &tag), HA_ERR_END_OF_FILE);
  if (!error) shown_range_ = reinterpret_cast<range_id_t>(tag);
  return error;
}

/* Rule X61: counted as the rows of a scan of the range would be. */
int ha_pbxt::count_range(const pbxt_range& range, ulonglong* rows) {
  if (pending_ != Pending::kNothing)
    if (int error = start_pending()) return error;
  uint64_t counted = 0;
  if (int error = fail(pbxt_range_count(cursor_, &range, &counted))) return error;
  *rows = counted;
  THD* thd = ha_thd();
  status_var_increment(thd->status_var.ha_read_key_count);
  status_var_add(thd->status_var.ha_read_next_count, counted);
  thd->inc_examined_row_count(counted);
  rows_read += counted;
  index_rows_read[active_index] += counted;
  return 0;
}

}  // namespace pbxt
