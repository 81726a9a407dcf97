/*
 * ha_pbxt.h: the handler: one use of one table by one connection at a time.
 *
 * The methods are spread over ha_pbxt.cc (life cycle, locks, statistics), ha_pbxt_read.cc,
 * ha_pbxt_ranges.cc, ha_pbxt_write.cc, ha_pbxt_former.cc, ha_pbxt_checked_keys.cc, ha_pbxt_ddl.cc and
 * ha_pbxt_alter.cc. A handler has one cursor for its whole life. It is bound to the connection's session once
 * a statement; nothing on the path of a single row allocates, locks, or looks anything up.
 */
#ifndef PBXT_PLUGIN_HA_PBXT_H
#define PBXT_PLUGIN_HA_PBXT_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "foreign_keys.h"
#include "open_table.h"
#include "pbxt_alter.h"
#include "pbxt_ranges.h"
#include "plugin.h"
#include "rows_done.h"

namespace pbxt {
class Session;

class ha_pbxt final : public handler {
 public:
  ha_pbxt(handlerton* hton, TABLE_SHARE* share);
  ~ha_pbxt() override;

  /* ---- what the engine can do ---- */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char* index_type(uint) override { return "BTREE"; }
  enum row_type get_row_type() const override { return ROW_TYPE_DYNAMIC; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_part_length() const override { return MAX_DATA_LENGTH_FOR_KEY; }
  const key_map* keys_to_use_for_scanning() override { return &key_map_full; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }

  /* ---- life cycle and locks: ha_pbxt.cc ---- */
  int open(const char* name, int mode, uint test_if_locked) noexcept override;
  handler* clone(const char* name, MEM_ROOT* mem_root) override;
  int close() override;
  int info(uint flag) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;
  int external_lock(THD* thd, int lock_type) override;
  int start_stmt(THD* thd, thr_lock_type lock_type) override;
  THR_LOCK_DATA** store_lock(THD* thd, THR_LOCK_DATA** to, thr_lock_type lock_type) override;
  uint lock_count() const override { return 0; }
  void column_bitmaps_signal() override;
  bool get_error_message(int error, String* buffer) override;
  bool is_fatal_error(int error, uint flags) override;
  const COND* cond_push(const COND* condition) override;
  void cond_pop() override;
  Item* idx_cond_push(uint index, Item* condition) override;
  bool rowid_filter_push(Rowid_filter* filter) override;

  /* ---- costs and counts ---- */
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  double keyread_time(uint index, uint ranges, ha_rows rows) override;
  double key_scan_time(uint index) override { return keyread_time(index, 1, stats.records); }
  ha_rows records() override;
  ha_rows estimate_rows_upper_bound() override { return HA_POS_ERROR; }
  ha_rows records_in_range(uint index, const key_range* low, const key_range* high,
                           page_range* pages) override;

  /* ---- reads: ha_pbxt_read.cc ---- */
  int rnd_init(bool scan) override;
  int rnd_next(uchar* record) override;
  int rnd_end() override;
  void position(const uchar* record) override;
  int rnd_pos(uchar* record, uchar* position) override;
  int rnd_pos_by_record(uchar* record) noexcept override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar* record, const uchar* key, key_part_map parts, ha_rkey_function mode) override;
  int index_read_last_map(uchar* record, const uchar* key, key_part_map parts) override;
  int index_next(uchar* record) override;
  int index_prev(uchar* record) override;
  int index_first(uchar* record) override;
  int index_last(uchar* record) override;
  int index_read_idx_map(uchar* record, uint index, const uchar* key, key_part_map map,
                         ha_rkey_function mode) override;
  int index_next_same(uchar* record, const uchar* key, uint key_length) override;
  int read_range_first(const key_range* start, const key_range* end, bool equal, bool sorted) override;
  /* ha_pbxt_ranges.cc */
  int multi_range_read_init(RANGE_SEQ_IF* sequence, void* parameter, uint ranges, uint mode,
                            HANDLER_BUFFER* buffer) override;
  int multi_range_read_next(range_id_t* range) override;
  void print_error(int error, myf flags) override;
  /* For counted_range.cc. */
  bool counts_ranges() const { return session_ && !takes_newest(); }
  int count_range(const pbxt_range& range, ulonglong* rows);
  void unlock_row() override { pbxt_unlock_row(cursor_); }
  /* Rule T45: while one of merged scans comes back to a row, the others go on. */
  void try_semi_consistent_read(bool on) override {
    pbxt_try_semi_consistent(cursor_, on && !may_be_merged());
  }
  /* The server asks this of each row that it is going to change, before it looks whether that would be a
     change. */
  bool was_semi_consistent_read() override {
    if (pbxt_was_semi_consistent(cursor_)) return true;
    if (holds_left_) note_match();
    return false;
  }

  /* ---- changes: ha_pbxt_write.cc ---- */
  int write_row(const uchar* record) override;
  int update_row(const uchar* old_record, const uchar* new_record) override;
  int delete_row(const uchar* record) override;
  int direct_delete_rows_init() override;
  int direct_delete_rows(ha_rows* deleted) override;
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong* first,
                          ulonglong* reserved) override;
  int reset_auto_increment(ulonglong value) override;
  void update_create_info(HA_CREATE_INFO* create_info) override;

  /* ---- tables: ha_pbxt_ddl.cc, ha_pbxt_alter.cc ---- */
  int create(const char* name, TABLE* form, HA_CREATE_INFO* create_info) override;
  int delete_table(const char* name) override;
  int rename_table(const char* from, const char* to) override;
  int truncate() override;
  ulonglong table_version() const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE* altered,
                                                             Alter_inplace_info* info) override;
  bool prepare_inplace_alter_table(TABLE* altered, Alter_inplace_info* info) override;
  bool inplace_alter_table(TABLE* altered, Alter_inplace_info* info) override;
  bool commit_inplace_alter_table(TABLE* altered, Alter_inplace_info* info, bool commit) override;
  bool check_if_incompatible_data(HA_CREATE_INFO* create_info, uint changes) override;
  int check(THD* thd, HA_CHECK_OPT* options) override;
  int analyze(THD* thd, HA_CHECK_OPT* options) override;
  int optimize(THD* thd, HA_CHECK_OPT* options) override;
  /* A copy reads the rows in a table scan, which no index has part in, and makes every index anew. */
  /* By a copy. A sequence has one row and no index, and the server cannot analyze its copy. */
  int repair(THD*, HA_CHECK_OPT*) override {
    return table_share->table_type == TABLE_TYPE_SEQUENCE ? HA_ADMIN_NOT_IMPLEMENTED : HA_ADMIN_TRY_ALTER;
  }

  /* ---- foreign keys: ha_pbxt_foreign.cc ---- */
  char* get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char* text) override;
  int get_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* list) override;
  int get_parent_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* list) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool is_fk_defined_on_table_or_index(uint index) override;
  bool can_switch_engines() override;

 private:
  /* What the next read must do first. */
  enum class Pending : uint8_t { kNothing, kScan, kIndex };

  TableShare* shared();
  int use_share(const TABLE* of);
  int open_cursor() noexcept;
  void close_cursor();
  int use_current_generation();
  void put_reference(uchar* reference, uint64_t row_id) const;
  /* Parts of a table are not told that their scans are merged; those that are read the index alone. */
  bool may_be_merged() { return is_merged_ || (table->part_info && keyread_enabled()); }
  bool orders_references();
  bool always_orders_references() const;
  int bind(THD* thd, thr_lock_type lock_type);
  void unbind();
  int read_newest(bool on);

  /* Reads lock rows, or are not of what the snapshot sees. */
  bool takes_newest() const {
    return binding_.lock_mode != PBXT_LOCK_NONE || binding_.for_write || reads_newest_;
  }
  bool skips_rows_it_cannot_change() const;
  bool may_delete_ahead() const;
  int create_table(const char* name, TABLE* form, HA_CREATE_INFO* create_info);
  bool looks_up_itself() const;
  bool is_asked_for_overlap(const uchar* record) const;
  bool checks_uniqueness(uint index) const;
  bool has_checked_keys() const;
  bool looks_written_rows_up() const;
  int store_looked_up(const uchar* old_record, const uchar* record);
  int find_taken(const uchar* old_record);
  int find_value(uint index, uint64_t* other);
  int find_overlap(uint index, uint64_t* other);
  int find_overlap_in(ha_pbxt* part, uint index, uint64_t* other);
  bool is_this_row(const ha_pbxt& part, const KEY& key, const uchar* record) const;
  int begin_probe(const ha_pbxt& of, uint index);
  int finish_probe(pbxt_status status);
  void end_probe();
  uchar* probed_record() const;
  std::string name_of_part(const ha_pbxt& part) const;

  bool must_check_foreign_keys(THD* thd) const;
  void append_violation(String* buffer);
  void explain_missing_parent() const;
  pbxt_status check_references(THD* thd);
  int read_example(uint64_t row_id);
  std::string values_of(const std::string& constraint) const;

  bool numbers_will_do(uint flag);
  uint64_t rows_of_own_part() const;
  void read_table_size(uint flag);
  void read_key_statistics();

  int fail(pbxt_status status) const;
  int found(pbxt_status status, int nothing_found) {
    if (likely(status == PBXT_OK)) {
      scan_moved_ = true;
      if (unlikely(++rows_found_ % RowsDone::kTold == 0)) tell_found();
      if (all_columns_) open_table_->reset_nulls(reading_);
      if (likely(computes_ == Computed::kNothing)) return 0;
      return computes_ == Computed::kKey ? compute_key() : compute_virtual_columns();
    }
    return status == PBXT_NOT_FOUND || status == PBXT_END ? nothing_found : fail(status);
  }
  /* The engine fills in what it has; the bits no column owns must be as in the default record, because the
     server compares whole records before an update. */
  void prepare_record(uchar* record) {
    reading_ = record;
    memcpy(record, table_share->default_values, table_share->null_bytes);
  }
  void note_match();
  int hold_left_row();
  /* Before the next row. */
  int leave_row() { return unlikely(holds_left_) ? leave_row_to_change() : 0; }
  int leave_row_to_change();
  int hold_marked_row();
  ha_pbxt* shows_row();
  uint parts_in(uint index, key_part_map map) const;
  int start_pending();
  int compute_key();
  bool has_virtual_part(uint index) const;
  int end_scan();
  int choose_columns();
  int choose_index_columns();
  int compute_virtual_columns(enum_vcol_update_mode mode = VCOL_UPDATE_FOR_READ);
  int seek(uchar* record, const uchar* key, uint parts, pbxt_seek mode);
  bool has_whole_columns(uint index) const;
  bool can_filter(uint index) const;
  check_result_t filter_entry(const uchar* record, uint64_t row_id);
  void move_key_columns(my_ptrdiff_t distance);
  static int judge_entry(void* self, uint8_t* record, uint64_t row_id);
  int set_end_of_range(const key_range* end);
  int begin_ranges();
  int next_of_all_ranges(range_id_t* range);
  int next_of_ranges(uchar* record);
  static int next_range(void* self, pbxt_range* range) noexcept;
  int alter(TABLE* altered, Alter_inplace_info* info);
  int raise_next_value(const Alter_inplace_info* info);
  void forget_next_value(const TABLE* altered, const Alter_inplace_info* info);
  using BuildReport = void(void* thd, uint64_t done, uint64_t total);
  /* One of the pbxt_index_build_... that take long. */
  using BuildStep = std::function<pbxt_status(pbxt_index_build*, BuildReport*, void*)>;
  int begin_build(TABLE* altered, Alter_inplace_info* info);
  int build_indexes(TABLE* altered, pbxt_index_build* build, const BuildStep& step);
  int catch_up_parts(TABLE* altered, inplace_alter_handler_ctx** contexts);
  int report_duplicate(TABLE* altered, pbxt_index_build* build);
  int key_duplicated();
  int taken_by(uint64_t row_id);
  int store(const uchar* old_record, const uchar* record);
  int store_version(const uchar* old_record, const uchar* record);
  int compute_after_triggers();
  int write_unlocked_row(const uchar* record);
  int remove(const uchar* record);

  void learn_former();
  int own_id(uint64_t* id);
  int begin_copy();
  int stamp(const uchar* record, ulonglong start, ulonglong end);
  static bool repeats_statement(THD* thd);
  int insert_stamped(const uchar* record);
  int update_stamped(const uchar* old_record, const uchar* new_record);
  int store_and_keep(const uchar* old_record, uint64_t own);
  int delete_stamped(const uchar* record);

  int begin_bulk();
  void tell_found() noexcept;
  int changed(RowsDone::Deed deed) {
    if (unlikely(++rows_changed_ % RowsDone::kTold == 0)) tell_changed(deed);
    return 0;
  }
  void tell_changed(RowsDone::Deed deed) noexcept;
  void tell_left_out();
  int raise_auto_increment(Field* field);
  void get_auto_increment_in_group(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong* first,
                                   ulonglong* reserved);

  TableShare* share_ = nullptr; /* outlives the handler */
  std::shared_ptr<OpenTable> open_table_;
  pbxt_cursor* cursor_ = nullptr;
  pbxt_cursor* key_maker_ = nullptr; /* reads nothing: makes keys while the other is being read */
  pbxt_cursor* probe_ = nullptr;     /* looks for rows in the way of one that was written */
  /* The entry that a filter is asked about; 0: none is. */
  uint64_t filtered_row_ = 0;
  const uchar* filtered_record_ = nullptr;
  Session* session_ = nullptr; /* while bound */
  pbxt_bind binding_{};
  thr_lock_type sql_lock_ = TL_UNLOCK; /* of the statement; a clone has its original's */
  Pending pending_ = Pending::kNothing;
  bool seek_is_current_ = false; /* the cursor was placed by a search with seek_length_ bytes */
  bool range_end_set_ = false;
  bool in_range_first_ = false;
  bool reads_ranges_ = false; /* many as one scan */
  bool ranges_begun_ = false; /* the engine has been told */
  bool shows_ranges_ = false; /* the next row of the index is the next one of them */
  range_id_t shown_range_{};  /* whose row was the last */
  bool in_order_ = false;     /* the statement wants rows in the order of the index */
  bool asks_filter_ = false;  /* the present scan may ask one about its entries */
  bool all_columns_ = false;
  bool reads_newest_ = false;   /* read_newest(true) was the last call */
  uchar* reading_ = nullptr;    /* the record being read */
  bool columns_changed_ = true; /* since they were last told to the cursor */
  bool scan_open_ = false;
  /* Virtual columns of rows read: by the server; those of the index, by which it merges rows of parts; or
   * all, which it takes for read with the index, and they are not. */
  enum class Computed { kNothing, kKey, kAll };
  Computed computes_ = Computed::kNothing;
  bool scan_moved_ = false; /* since position() was last called */
  bool holds_left_ = false; /* rule T57: rows to be changed that are left as they are */
  bool is_left_ = false;    /* the row read last, so far */
  bool is_settled_ = false; /* it has been changed, or held */
  /* Rows are read by reference because they are going to be changed, or may be. */
  bool refers_to_changes_ = false;
  ha_rows matched_ = 0; /* rows to be changed that the present reads have found */
  bool is_clone_ = false;
  bool is_merged_ = false;        /* its scan is the first of those that are merged by row reference */
  bool condition_pushed_ = false; /* table scans may leave out rows */
  /* Rows are announced; the engine is told at the first one, when the server has said all it wants to know.
   */
  bool bulk_announced_ = false;
  bool bulk_open_ = false;
  bool wants_row_answers_ = false; /* IGNORE, REPLACE or ON DUPLICATE KEY UPDATE */
  bool replaces_taken_ = false;    /* the last two: the statement goes on with the row that has a key */
  ha_rows bulk_rows_ = 0;
  ulonglong numbers_asked_at_ = 0; /* microseconds of the clock; 0: the engine was not asked yet */
  uint64_t numbers_rows_ = 0;      /* that the table had then */
  uint64_t rows_found_ = 0;        /* since the statement began */
  uint64_t rows_changed_ = 0;
  int told_error_ = 0;            /* of a range or a new table: the server's code may tell it again */
  bool keeps_former_ = false;     /* rows, by transaction: two columns have ids of transactions */
  std::vector<Field*> following_; /* columns computed from those, each after what it is computed from */
  std::vector<uchar> stamped_;
  bool scans_table_ = false;
  uint seek_length_ = 0;
  uint duplicate_index_ = 0;
  uint64_t known_auto_increment_ = 0; /* the engine's next value is at least this */
  std::string name_;
  std::vector<uchar> primary_tuple_; /* of rnd_pos_by_record */
  ForeignKeyList children_;          /* constraints that lead to the table, as of children_of_ */
  uint64_t children_of_ = 0;
  bool children_known_ = false;
};

}  // namespace pbxt

using pbxt::ha_pbxt;

#endif
