/*
 * counted_range.cc: SELECT COUNT(*) ... WHERE <a range of an index> -> pbxt_range_count.
 *
 * Otherwise each entry of the range goes through the server: into a record, into the condition, into the sum.
 * The engine counts where nothing but the number of the range's rows is asked for: one table, no groups,
 * COUNT of what is never NULL, and a condition that says, as a whole, what one range of one index has:
 * equality for its first columns, and bounds or a test for NULL for the next one (rule X61 of
 * docs/indexes.md). The plan is still made, and EXPLAIN and ANALYZE show and run it; the status variables
 * count as it would have counted.
 */
#include "counted_range.h"

#include <algorithm>
#include <vector>

#include "column_terms.h"
#include "group_by_handler.h"
#include "ha_pbxt.h"
#include "sql_select.h"

namespace pbxt {
namespace {

/* A short range is read by the plan in less time than the table takes that the answer is put into. */
constexpr ha_rows kRowsWorthIt = 200;

using Tuple = std::vector<uint8_t>;

/* What all terms of one column say together. */
struct Interval {
  const ColumnTerm* low = nullptr;
  const ColumnTerm* high = nullptr;
  bool is_null = false, is_not_null = false;

  bool is_one_value() const {
    if (is_null) return true;
    return low && low == high && low->low_inclusive && low->high_inclusive && low->low == low->high;
  }
};

/* False if there is more than one bound of a kind, or if no row can be meant: that is left to the server. */
bool add_to(Interval* interval, const ColumnTerm& term) {
  switch (term.kind) {
    case PBXT_IS_NULL:
      interval->is_null = true;
      break;
    case PBXT_IS_NOT_NULL:
      interval->is_not_null = true;
      break;
    default:
      if ((term.has_low && interval->low) || (term.has_high && interval->high)) return false;
      if (term.has_low) interval->low = &term;
      if (term.has_high) interval->high = &term;
  }
  return !interval->is_null || !(interval->low || interval->high || interval->is_not_null);
}

/* A range of an index as search tuples. */
struct KeyRange {
  uint index = MAX_KEY;
  Tuple low, high;
  uint low_parts = 0, high_parts = 0;
  bool low_inclusive = true, high_inclusive = true;

  pbxt_range range() const {
    pbxt_range range{};
    range.low = low.data();
    range.high = high.data();
    range.low_parts = low_parts;
    range.high_parts = high_parts;
    range.low_inclusive = low_inclusive;
    range.high_inclusive = high_inclusive;
    return range;
  }
};

/* Appends the value, which the column can hold as it is. */
bool append(THD* thd, const KEY_PART_INFO& part, const ColumnTerm& term, const ColumnTerm::Bytes& value,
            Tuple* tuple) {
  Field* copy = term.field->clone(thd->mem_root, term.field->table);
  if (!copy) return false;
  std::vector<uint8_t> record(copy->pack_length());
  copy->move_field(record.data(), nullptr, 0);
  if (term.domain == Domain::kBinary || term.domain == Domain::kText) {
    const char* text = reinterpret_cast<const char*>(value.data());
    if (copy->store(text, value.size(), term.field->charset()) != 0) return false;
  } else {
    memcpy(record.data(), value.data(), record.size());
  }
  if (part.null_bit) tuple->push_back(0);
  size_t at = tuple->size();
  tuple->resize(at + part.store_length - (part.null_bit ? 1 : 0));
  copy->get_key_image(tuple->data() + at, part.length, Field::itRAW);
  return true;
}

void append_null(const KEY_PART_INFO& part, Tuple* tuple) {
  size_t at = tuple->size();
  tuple->resize(at + part.store_length);
  (*tuple)[at] = 1;
}

class RangeMaker {
 public:
  RangeMaker(THD* thd, TABLE* table) : thd_(thd), table_(table) {}

  /* Takes the terms in, which must outlive this; false if they are no range. */
  bool gather(const std::vector<ColumnTerm>& terms);
  /* True if one range of the index has exactly the rows that the terms mean. */
  bool make(uint index, KeyRange* range);

 private:
  struct Column {
    const Field* field;
    Interval interval;
  };

  const Interval* of(const Field* field) const;
  bool add_value(const KEY_PART_INFO& part, const Interval& interval, KeyRange* range);
  bool add_bounds(const KEY_PART_INFO& part, const Interval& interval, KeyRange* range);

  THD* thd_;
  TABLE* table_;
  std::vector<Column> columns_;
};

bool RangeMaker::gather(const std::vector<ColumnTerm>& terms) {
  for (const ColumnTerm& term : terms) {
    auto is_same = [&](const Column& column) { return column.field == term.field; };
    auto column = std::find_if(columns_.begin(), columns_.end(), is_same);
    if (column == columns_.end()) column = columns_.insert(columns_.end(), Column{term.field, {}});
    if (!add_to(&column->interval, term)) return false;
  }
  return !columns_.empty();
}

const Interval* RangeMaker::of(const Field* field) const {
  for (const Column& column : columns_)
    if (column.field == field) return &column.interval;
  return nullptr;
}

bool RangeMaker::add_value(const KEY_PART_INFO& part, const Interval& interval, KeyRange* range) {
  if (interval.is_null)
    append_null(part, &range->low);
  else if (!append(thd_, part, *interval.low, interval.low->low, &range->low))
    return false;
  range->high = range->low;
  range->low_parts = ++range->high_parts;
  return true;
}

/* NULLs stand in front of all values, and no bound means them. */
bool RangeMaker::add_bounds(const KEY_PART_INFO& part, const Interval& interval, KeyRange* range) {
  if (interval.low) {
    if (!append(thd_, part, *interval.low, interval.low->low, &range->low)) return false;
    range->low_inclusive = interval.low->low_inclusive;
    range->low_parts++;
  } else if (part.null_bit) {
    append_null(part, &range->low);
    range->low_inclusive = false;
    range->low_parts++;
  }
  if (interval.high) {
    if (!append(thd_, part, *interval.high, interval.high->high, &range->high)) return false;
    range->high_inclusive = interval.high->high_inclusive;
    range->high_parts++;
  }
  return true;
}

bool RangeMaker::make(uint index, KeyRange* range) {
  const KEY& key = table_->key_info[index];
  *range = KeyRange{};
  range->index = index;
  size_t used = 0;
  for (uint i = 0; i < key.ext_key_parts && used < columns_.size(); i++) {
    const KEY_PART_INFO& part = key.key_part[i];
    const Field* field = table_->field[part.fieldnr - 1];
    const Interval* interval = of(field);
    bool is_whole = part.length >= field->key_length() && !(field->flags & BLOB_FLAG);
    if (!interval || !is_whole || (part.key_part_flag & HA_REVERSE_SORT)) return false;
    used++;
    if (interval->is_one_value()) {
      if (!add_value(part, *interval, range)) return false;
      continue;
    }
    return used == columns_.size() && add_bounds(part, *interval, range);
  }
  return used == columns_.size();
}

/* COUNT of what is never NULL, and nothing else. */
bool asks_for_counts_only(List<Item>* select) {
  List_iterator_fast<Item> items(*select);
  while (Item* item = items++) {
    if (item->type() != Item::SUM_FUNC_ITEM) return false;
    Item_sum* sum = static_cast<Item_sum*>(item);
    if (sum->sum_func() != Item_sum::COUNT_FUNC || sum->get_arg_count() != 1) return false;
    Item* argument = sum->get_arg(0);
    bool is_plain = argument->basic_const_item() || argument->real_item()->type() == Item::FIELD_ITEM;
    if (!is_plain || argument->maybe_null()) return false;
  }
  return !select->is_empty();
}

/* The only table of the query, if it is one of this engine whose rows are still to be read. */
TABLE* only_table(THD* thd, const Query& query) {
  if (!query.where || query.group_by || query.order_by || query.having || query.distinct) return nullptr;
  const JOIN* join = thd->lex->current_select->join;
  bool is_alone = join && join->table_count == 1 && join->const_tables == 0 && !join->zero_result_cause;
  if (!is_alone || join->tables_list != query.from || query.from->next_local) return nullptr;
  TABLE* table = join->join_tab->table;
  if (!table || table != query.from->table || table->file->ht != hton) return nullptr;
  bool is_limited = query.limit->get_offset_limit() != 0 || query.limit->get_select_limit() == 0;
  return is_limited || thd->lex->limit_rows_examined ? nullptr : table;
}

/* Answers with one row. */
class RangeCounter final : public group_by_handler {
 public:
  RangeCounter(THD* thd, ha_pbxt* file, KeyRange range)
      : group_by_handler(thd, hton), file_(file), range_(std::move(range)) {}

  int init_scan() override {
    is_told_ = false;
    return 0;
  }
  int next_row() override;
  int end_scan() override { return 0; }
  void print_error(int error, myf flags) override { file_->print_error(error, flags); }

 private:
  int count(ulonglong* rows);

  ha_pbxt* file_;
  KeyRange range_;
  bool is_told_ = false;
};

int RangeCounter::count(ulonglong* rows) {
  int error = file_->ha_index_init(range_.index, false);
  if (error) return error;
  error = file_->count_range(range_.range(), rows);
  int end_error = file_->ha_index_end();
  return error ? error : end_error;
}

int RangeCounter::next_row() {
  if (is_told_) return HA_ERR_END_OF_FILE;
  is_told_ = true;
  ulonglong rows = 0;
  if (int error = count(&rows)) return error;
  for (Field** field = table->field; *field; field++) {
    (*field)->store(static_cast<longlong>(rows), true);
    (*field)->set_notnull();
  }
  thd->limit_found_rows = 1;  // for FOUND_ROWS(): the server says so of its own plans only
  return 0;
}

}  // namespace

group_by_handler* count_range(THD* thd, Query* query) noexcept {
  if (thd->lex->describe || thd->lex->analyze_stmt) return nullptr;
  TABLE* table = only_table(thd, *query);
  if (!table || !asks_for_counts_only(query->select)) return nullptr;
  ha_pbxt* file = static_cast<ha_pbxt*>(table->file);
  if (!file->counts_ranges()) return nullptr;
  auto is_long = [table](uint index) {
    return table->opt_range_keys.is_set(index) && table->opt_range[index].rows >= kRowsWorthIt;
  };
  uint first = 0;
  while (first < table->s->keys && !is_long(first)) first++;
  if (first == table->s->keys) return nullptr;
  ColumnTerms terms(thd, table, TextColumns::kTaken);
  terms.add(query->where);
  RangeMaker maker(thd, table);
  if (!terms.is_whole() || !maker.gather(terms.terms())) return nullptr;
  for (uint i = first; i < table->s->keys; i++) {
    KeyRange range;
    if (is_long(i) && maker.make(i, &range)) return new RangeCounter(thd, file, std::move(range));
  }
  return nullptr;
}

}  // namespace pbxt
