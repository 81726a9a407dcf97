/*
 * ha_pbxt_read.cc: table scans, index reads and reads by row reference.
 *
 * A scan starts at its first read, not at rnd_init or index_init, because the server may still change the
 * list of wanted columns in between. A row reference is the row's primary key in a form that compares as
 * bytes, filled up with zeros, and the engine's row id, 8 bytes big-endian: references compare as rows come
 * under one key of an extended index. Where nobody compares them so, there are zeros for the key. Only the
 * row id is used to find the row again.
 */
#include "error_map.h"
#include "ha_partition.h"
#include "ha_pbxt.h"
#include "pushed_condition.h"
#include "row_limit.h"
#include "session.h"

namespace pbxt {
namespace {

/* A deletion needs of a row what the statement reads of it, and the engine its row id. What does more than
 * delete needs whole rows: one that keeps the old row as history, or what is left of its period. */
bool only_deletes(const TABLE* table, THD* thd) {
  int command = thd_sql_command(thd);
  bool is_delete = command == SQLCOM_DELETE || command == SQLCOM_DELETE_MULTI;
  return is_delete && !table->versioned() && !table->s->period.name;
}

bool updates_several(THD* thd) {
  return thd_sql_command(thd) == SQLCOM_UPDATE_MULTI;
}

/* Rule T45: rows that are read by reference are judged when they are changed, deleted or held, of which a
 * statement like these does one with each that fits. */
bool judges_changes(THD* thd) {
  int command = thd_sql_command(thd);
  return command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI || command == SQLCOM_DELETE ||
         command == SQLCOM_DELETE_MULTI;
}

/* The server gives search modes for DESC parts in index order already. */
bool seek_mode(ha_rkey_function mode, pbxt_seek* seek) {
  switch (mode) {
    case HA_READ_KEY_EXACT:
    case HA_READ_PREFIX:
      *seek = PBXT_SEEK_EXACT;
      return true;
    case HA_READ_KEY_OR_NEXT:
      *seek = PBXT_SEEK_OR_NEXT;
      return true;
    case HA_READ_KEY_OR_PREV:
    case HA_READ_PREFIX_LAST_OR_PREV:
      *seek = PBXT_SEEK_OR_PREV;
      return true;
    case HA_READ_AFTER_KEY:
      *seek = PBXT_SEEK_AFTER;
      return true;
    case HA_READ_BEFORE_KEY:
      *seek = PBXT_SEEK_BEFORE;
      return true;
    case HA_READ_PREFIX_LAST:
      *seek = PBXT_SEEK_LAST;
      return true;
    default:
      return false;  // spatial modes
  }
}

}  // namespace

/* A statement that changes rows needs whole ones, except to delete them: the engine stores a new version with
 * all columns. */
int ha_pbxt::choose_columns() {
  columns_changed_ = false;
  const MY_BITMAP* wanted = table->read_set;
  bool whole = reads_newest_ || (all_columns_ && !only_deletes(table, ha_thd()));
  if (whole || bitmap_is_set_all(wanted)) return fail(pbxt_cursor_columns(cursor_, nullptr, 0));
  size_t bytes = (table->s->fields + 7) / 8;
  return fail(pbxt_cursor_columns(cursor_, reinterpret_cast<const uint8_t*>(wanted->bitmap), bytes));
}

/* A read of the index alone may use no other columns; the server's list may have more. */
int ha_pbxt::choose_index_columns() {
  uint8_t columns[(MAX_FIELDS + 7) / 8] = {};
  for (uint column : open_table_->extended_keys().columns(active_index)) {
    if (bitmap_is_set(table->read_set, column)) columns[column / 8] |= static_cast<uint8_t>(1u << column % 8);
  }
  columns_changed_ = true;  // for who reads otherwise next
  return fail(pbxt_cursor_columns(cursor_, columns, (table->s->fields + 7) / 8));
}

/* Where a row is read after all, as by a read that locks it, its virtual columns are still to be computed:
 * the server takes them for read as long as it believes in a read of the index alone. */
int ha_pbxt::compute_virtual_columns(enum_vcol_update_mode mode) {
  uchar* record = table->record[0];
  uint index = keyread;
  if (reading_ != record) table->move_fields(table->field, reading_, record);
  keyread = MAX_KEY;
  // Also those that others are computed from.
  MY_BITMAP* wanted = tmp_use_all_columns(table, &table->read_set);
  int error = table->update_virtual_fields(this, mode);
  tmp_restore_column_map(&table->read_set, wanted);
  keyread = index;
  if (reading_ != record) table->move_fields(table->field, record, reading_);
  return error;
}

/* Rows of the parts of a table are merged by their keys before the server computes virtual columns, which it
 * does of the row that comes first alone. */
int ha_pbxt::compute_key() {
  if (reading_ == table->record[0]) return 0;
  table->move_fields(table->field, reading_, table->record[0]);
  int error = table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  table->move_fields(table->field, table->record[0], reading_);
  return error;
}

bool ha_pbxt::has_virtual_part(uint index) const {
  const KEY& key = table->key_info[index];
  for (uint i = 0; i < key.user_defined_key_parts; i++)
    if (!table->field[key.key_part[i].fieldnr - 1]->stored_in_db()) return true;
  return false;
}

/* Rule T57. The server compares a row to be changed with what it would become, and says nothing of one that
 * stays what it is: it is held when the next row is asked for. Behind the last row of LIMIT, and of rows read
 * by reference, nothing need be asked for any more: those are held at once, changed or not. An error here
 * ends the statement when it fills the columns. */
void ha_pbxt::note_match() {
  is_left_ = true;
  matched_++;
  ha_rows limit = ha_thd()->lex->unit.lim.get_select_limit();
  bool fills_limit = limit != HA_POS_ERROR && (table->part_info || matched_ >= limit);
  if (scan_open_ && !fills_limit) return;
  if (int error = hold_left_row()) print_error(error, MYF(0));
}

int ha_pbxt::hold_left_row() {
  is_left_ = false;
  return fail(pbxt_hold_row(cursor_));
}

/* The handler that read the row which the server has in its hand: scans that are merged belong to clones,
 * and of a partitioned table it is that of a part. */
ha_pbxt* ha_pbxt::shows_row() {
  if (!table->part_info) return static_cast<ha_pbxt*>(table->file);
  table->file->position(table->record[1]);
  handler** files = static_cast<ha_partition*>(table->file)->get_child_handlers();
  return static_cast<ha_pbxt*>(files[uint2korr(table->file->ref)]);
}

/* An UPDATE of several tables changes rows of the first one as they come, and marks those that fit. */
int ha_pbxt::hold_marked_row() {
  ha_pbxt* file = shows_row();
  bool is_settled = file->is_settled_;
  file->is_settled_ = true;
  return is_settled ? 0 : file->hold_left_row();
}

int ha_pbxt::leave_row_to_change() {
  int error = table->status & STATUS_UPDATED ? hold_marked_row() : is_left_ ? hold_left_row() : 0;
  is_settled_ = false;
  return error;
}

int ha_pbxt::start_pending() {
  Pending what = pending_;
  pending_ = Pending::kNothing;
  computes_ = Computed::kNothing;
  bool by_index_alone = what == Pending::kIndex && table->vfield && keyread_enabled();
  // Merges and filters read an index alone for references to its rows; where those begin with the primary
  // key, it has to be there.
  bool can_refer = by_index_alone && (!always_orders_references() ||
                                      open_table_->extended_keys().gives_reference(active_index));
  if (int error = can_refer ? choose_index_columns() : choose_columns()) return error;
  scan_open_ = true;
  scans_table_ = what == Pending::kScan;
  if (what == Pending::kScan) return fail(pbxt_scan_start(cursor_));
  int error = fail(pbxt_index_start(cursor_, active_index));
  if (in_order_ && table->part_info && !keyread_enabled() && has_virtual_part(active_index))
    computes_ = Computed::kKey;
  if (by_index_alone && !error && !(can_refer && pbxt_index_covers(cursor_))) {
    computes_ = Computed::kAll;
    columns_changed_ = true;
    error = fail(pbxt_cursor_columns(cursor_, nullptr, 0));
  }
  if (uint64_t wanted = error ? 0 : rows_wanted(ha_thd(), table, in_order_))
    error = fail(pbxt_index_expect(cursor_, wanted));
  bool has_condition = pushed_idx_cond && pushed_idx_cond_keyno == active_index;
  asks_filter_ = pushed_rowid_filter && can_filter(active_index);
  if (error || !(has_condition || asks_filter_)) return error;
  return fail(pbxt_index_judge_entries(cursor_));
}

/* ---- table scans and row references ---- */

int ha_pbxt::rnd_init(bool scan) {
  seek_is_current_ = range_end_set_ = false;
  pending_ = scan ? Pending::kScan : Pending::kNothing;
  matched_ = 0;
  refers_to_changes_ = table->part_info != nullptr;
  return 0;
}

/* Row references are read between rnd_init(false) and rnd_end, without a scan. */
int ha_pbxt::rnd_end() {
  return end_scan();
}

int ha_pbxt::end_scan() {
  // Behind the last row of LIMIT nothing was asked for.
  if (unlikely(holds_left_ && scan_open_ && table->status & STATUS_UPDATED))
    if (int error = hold_marked_row()) print_error(error, MYF(0));
  is_left_ = false;
  pending_ = Pending::kNothing;
  computes_ = Computed::kNothing;
  seek_is_current_ = range_end_set_ = false;
  if (!scan_open_) return 0;
  scan_open_ = false;
  int error = fail(pbxt_scan_end(cursor_));
  if (binding_.leave_out_damaged) tell_left_out();
  return error;
}

namespace {

struct LeftOut {
  THD* thd;
  const char* schema;
  const char* table;
};

/* A note, because a warning would be an error in strict mode; and a line of the error log, because the answer
 * of REPAIR TABLE has no notes. */
void tell_range(void* context, uint64_t first, uint64_t last, const char* why) {
  auto* of = static_cast<const LeftOut*>(context);
  char text[MYSQL_ERRMSG_SIZE];
  snprintf(text, sizeof text, "rows %llu to %llu of %s.%s were left out, as far as there are any: %s",
           static_cast<unsigned long long>(first), static_cast<unsigned long long>(last), of->schema,
           of->table, why);
  push_warning_printf(of->thd, Sql_condition::WARN_LEVEL_NOTE, ER_CRASHED_ON_USAGE, "PBXT: %s", text);
  sql_print_warning("PBXT: %s", text);
}

}  // namespace

void ha_pbxt::tell_left_out() {
  LeftOut of{ha_thd(), table->s->db.str, table->s->table_name.str};
  uint64_t more = 0;
  if (fail(pbxt_cursor_left_out(cursor_, tell_range, &of, &more)) || more == 0) return;
  push_warning_printf(of.thd, Sql_condition::WARN_LEVEL_NOTE, ER_CRASHED_ON_USAGE,
                      "PBXT: %llu more ranges of rows of %s.%s were left out",
                      static_cast<unsigned long long>(more), of.schema, of.table);
}

/* A scan with a condition is not told of the rows it passes over: it is further than it says. Of a
 * partitioned table this is the handler of one part. */
void ha_pbxt::tell_found() noexcept {
  if (!session_) return;
  uint64_t whole = scans_table_ ? table->file->stats.records : 0;
  session_->rows_done().found(session_->thd(), table, whole);
}

int ha_pbxt::rnd_next(uchar* record) {
  if (unlikely(pending_ != Pending::kNothing))
    if (int error = start_pending()) return error;
  if (int error = leave_row()) return error;
  prepare_record(record);
  return found(pbxt_scan_next(cursor_, record), HA_ERR_END_OF_FILE);
}

void ha_pbxt::put_reference(uchar* reference, uint64_t row_id) const {
  mi_int8store(reference + ref_length - sizeof(uint64_t), row_id);
}

/* A reference has to be in the order of rows under one key only where scans of several indexes are merged: by
 * a clone for each, and by the table's own handler for the first of them if the indexes have all that is
 * wanted. There the merge refers to a row when the scan has come to it, and whoever is given the row
 * afterwards. All others ask at most whether two references of one handler are the same; but for partitions,
 * whose rows are merged by reference, and keys that the server checks through a clone. */
bool ha_pbxt::orders_references() {
  bool is_first = scan_moved_;
  scan_moved_ = false;
  return always_orders_references() || (is_merged_ && is_first);
}

bool ha_pbxt::always_orders_references() const {
  return is_clone_ || table->part_info || table_share->long_unique_table ||
         table_share->period.unique_keys != 0;
}

/* The server has asked for the columns of the primary key, where it wants references. While a filter is asked
 * about an entry, the reference is that entry's; nobody merges a scan with a filter. */
void ha_pbxt::position(const uchar* record) {
  bool is_entry = filtered_row_ != 0;
  // The rows of parts are referred to where they are merged, too.
  if (record == table->record[0]) is_left_ = false;
  if (uint order_bytes = open_table_->extended_keys().order_bytes()) {
    memset(ref, 0, order_bytes);
    if (is_entry ? always_orders_references() : orders_references())
      pbxt_cursor_key(is_entry ? key_maker_ : cursor_, table->s->primary_key,
                      is_entry ? filtered_record_ : record, ref, order_bytes);
  }
  put_reference(ref, is_entry ? filtered_row_ : pbxt_cursor_row_id(cursor_));
}

/* Row-based replication has the primary key and no reference. The server computes virtual columns of rows
 * read by reference, and not of these; a change of the row takes what they were out of their indexes. */
int ha_pbxt::rnd_pos_by_record(uchar* record) noexcept {
  const KEY& key = table->key_info[table->s->primary_key];
  primary_tuple_.resize(key.key_length);  // memory is taken for the first row only
  key_copy(primary_tuple_.data(), record, &key, key.key_length);
  int error = index_init(table->s->primary_key, false);
  if (!error) error = index_read_map(record, primary_tuple_.data(), HA_WHOLE_KEY, HA_READ_KEY_EXACT);
  int end_error = index_end();
  if (!error) error = end_error;
  return error || !table->vfield ? error : compute_virtual_columns();
}

/* Of a row that another one is to replace the server computes virtual columns itself, an applier of a replica
 * does not. */
int ha_pbxt::rnd_pos(uchar* record, uchar* position) {
  if (unlikely(columns_changed_))
    if (int error = choose_columns()) return error;
  if (int error = leave_row()) return error;
  prepare_record(record);
  uint64_t row_id = mi_uint8korr(position + ref_length - sizeof(uint64_t));
  bool judges_later = holds_left_ && judges_changes(ha_thd());
  pbxt_status status =
      judges_later ? pbxt_fetch_unjudged(cursor_, row_id, record) : pbxt_fetch(cursor_, row_id, record);
  int error = found(status, HA_ERR_KEY_NOT_FOUND);
  if (unlikely(judges_later && refers_to_changes_ && !error && updates_several(ha_thd())))
    error = hold_left_row();
  if (likely(!table->vfield || record == table->record[0]) || error || !is_applier(ha_thd())) return error;
  return compute_virtual_columns(VCOL_UPDATE_FOR_REPLACE);
}

/* ---- index reads ---- */

int ha_pbxt::index_init(uint index, bool sorted) {
  active_index = index;
  in_order_ = sorted;
  seek_is_current_ = range_end_set_ = false;
  pending_ = Pending::kIndex;
  matched_ = 0;
  return checks_uniqueness(index) ? read_newest(true) : 0;
}

int ha_pbxt::index_end() {
  active_index = MAX_KEY;
  int error = end_scan();
  int bind_error = reads_newest_ && session_ ? read_newest(false) : 0;
  return error ? error : bind_error;
}

int ha_pbxt::seek(uchar* record, const uchar* key, uint parts, pbxt_seek mode) {
  if (unlikely(pending_ != Pending::kNothing))
    if (int error = start_pending()) return error;
  if (range_end_set_ && !in_range_first_)
    if (int error = set_end_of_range(nullptr)) return error;
  if (int error = leave_row()) return error;
  prepare_record(record);
  int error = found(pbxt_index_seek(cursor_, key, parts, mode, record), HA_ERR_KEY_NOT_FOUND);
  seek_is_current_ = !error;
  return error;
}

int ha_pbxt::index_read_map(uchar* record, const uchar* key, key_part_map map, ha_rkey_function mode) {
  if (!key) return index_first(record);
  if (unlikely(is_asked_for_overlap(record))) return HA_ERR_KEY_NOT_FOUND;
  pbxt_seek how;
  if (!seek_mode(mode, &how)) return HA_ERR_UNSUPPORTED;
  uint parts = parts_in(active_index, map);
  const KEY_PART_INFO* part = table->key_info[active_index].key_part;
  seek_length_ = 0;
  for (uint i = 0; i < parts; i++) seek_length_ += part[i].store_length;
  return seek(record, key, parts, how);
}

/* The one row of a table, read before its join begins. */
int ha_pbxt::index_read_idx_map(uchar* record, uint index, const uchar* key, key_part_map map,
                                ha_rkey_function mode) {
  int error = handler::index_read_idx_map(record, index, key, map, mode);
  return !error && holds_left_ && updates_several(ha_thd()) ? hold_left_row() : error;
}

int ha_pbxt::index_read_last_map(uchar* record, const uchar* key, key_part_map map) {
  return index_read_map(record, key, map, HA_READ_PREFIX_LAST);
}

int ha_pbxt::index_next(uchar* record) {
  if (int error = leave_row()) return error;
  prepare_record(record);
  if (unlikely(shows_ranges_)) return next_of_ranges(record);
  return found(pbxt_index_next(cursor_, record), HA_ERR_END_OF_FILE);
}

int ha_pbxt::index_prev(uchar* record) {
  if (int error = leave_row()) return error;
  prepare_record(record);
  return found(pbxt_index_prev(cursor_, record), HA_ERR_END_OF_FILE);
}

int ha_pbxt::index_first(uchar* record) {
  if (unlikely(pending_ != Pending::kNothing))
    if (int error = start_pending()) return error;
  seek_is_current_ = false;
  if (range_end_set_ && !in_range_first_)
    if (int error = set_end_of_range(nullptr)) return error;
  if (int error = leave_row()) return error;
  prepare_record(record);
  return found(pbxt_index_first(cursor_, record), HA_ERR_END_OF_FILE);
}

int ha_pbxt::index_last(uchar* record) {
  if (unlikely(pending_ != Pending::kNothing))
    if (int error = start_pending()) return error;
  seek_is_current_ = false;
  if (range_end_set_)
    if (int error = set_end_of_range(nullptr)) return error;
  if (int error = leave_row()) return error;
  prepare_record(record);
  return found(pbxt_index_last(cursor_, record), HA_ERR_END_OF_FILE);
}

/* The engine compares with the prefix of its last search; another prefix is compared by the server's own
 * code. */
int ha_pbxt::index_next_same(uchar* record, const uchar* key, uint key_length) {
  if (!seek_is_current_ || key_length != seek_length_)
    return handler::index_next_same(record, key, key_length);
  if (int error = leave_row()) return error;
  prepare_record(record);
  return found(pbxt_index_next_same(cursor_, record), HA_ERR_END_OF_FILE);
}

/* ---- pushed index conditions ---- */

/* Prefixes of columns are not what conditions speak of, and values of virtual columns are the server's to
 * compute.
 */
bool ha_pbxt::has_whole_columns(uint index) const {
  const KEY& key = table->key_info[index];
  for (uint i = 0; i < key.ext_key_parts; i++) {
    const Field* field = table->field[key.key_part[i].fieldnr - 1];
    if (!field->stored_in_db() || key.key_part[i].length < field->key_length()) return false;
    if (field->flags & BLOB_FLAG) return false;
  }
  return true;
}

/* The condition is read when the scan starts: the server takes it back before, where it cannot do with it.
 * Most conditions on a primary key are what its ranges were made of and turn no entry away: the server
 * evaluates those with the rows, for less than the look at an entry costs. */
Item* ha_pbxt::idx_cond_push(uint index, Item* condition) {
  if (!has_whole_columns(index)) return condition;
  const KEY& key = table->key_info[index];
  if (index == table->s->primary_key && is_all_ranges(condition, key.key_part->field)) return condition;
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = index;
  return nullptr;
}

/* A reference can be made of an entry without its row, and references compare as bytes. */
bool ha_pbxt::can_filter(uint index) const {
  return open_table_ && open_table_->extended_keys().gives_reference(index) && has_whole_columns(index);
}

/* Rows that the filter does not have are not wanted, whatever else is known of them; the server does not rely
 * on it. Reads that lock rows look at every one of their range, as it is when its turn comes. */
bool ha_pbxt::rowid_filter_push(Rowid_filter* filter) {
  if (binding_.lock_mode != PBXT_LOCK_NONE || binding_.for_write) return true;
  bool needs_keys = always_orders_references() && open_table_->extended_keys().order_bytes() != 0;
  if (needs_keys && !key_maker_ && pbxt_cursor_open(open_table_->core(), &key_maker_) != PBXT_OK) return true;
  pushed_rowid_filter = filter;
  return false;
}

check_result_t ha_pbxt::filter_entry(const uchar* record, uint64_t row_id) {
  filtered_record_ = record;
  filtered_row_ = row_id;
  check_result_t verdict = handler_rowid_filter_check(static_cast<handler*>(this));
  filtered_row_ = 0;
  return verdict;
}

void ha_pbxt::move_key_columns(my_ptrdiff_t distance) {
  for (uint column : open_table_->extended_keys().columns(active_index))
    table->field[column]->move_field_offset(distance);
}

/* The server evaluates the condition where columns are, which is its first record buffer: they are moved for
 * reads into another. The first of the two functions also looks at the end of the range and at the kill flag.
 */
int ha_pbxt::judge_entry(void* self, uint8_t* record, uint64_t row_id) {
  ha_pbxt* file = static_cast<ha_pbxt*>(self);
  my_ptrdiff_t distance = record - file->table->record[0];
  if (unlikely(distance)) file->move_key_columns(distance);
  check_result_t verdict = CHECK_POS;
  if (file->pushed_idx_cond && file->pushed_idx_cond_keyno == file->active_index)
    verdict = handler_index_cond_check(static_cast<handler*>(file));
  // A filter that would have had too many rows was not made.
  bool has_filter = file->asks_filter_ && file->pushed_rowid_filter && file->rowid_filter_is_active;
  if (verdict == CHECK_POS && has_filter) verdict = file->filter_entry(record, row_id);
  if (unlikely(distance)) file->move_key_columns(-distance);
  switch (verdict) {
    case CHECK_NEG:
      return PBXT_ENTRY_UNWANTED;
    case CHECK_POS:
      return PBXT_ENTRY_WANTED;
    case CHECK_OUT_OF_RANGE:
      return PBXT_ENTRY_BEYOND;
    default:
      return PBXT_ENTRY_STOP;
  }
}

int ha_pbxt::set_end_of_range(const key_range* end) {
  range_end_set_ = end != nullptr;
  if (!end) return fail(pbxt_index_end_range(cursor_, nullptr, 0, 0));
  int inclusive = end->flag != HA_READ_BEFORE_KEY;
  return fail(pbxt_index_end_range(cursor_, end->key, parts_in(active_index, end->keypart_map), inclusive));
}

/* The server's own steps, with the end of the range told to the engine before, so that it need not fetch rows
 * beyond. */
int ha_pbxt::read_range_first(const key_range* start, const key_range* end, bool equal, bool sorted) {
  if (unlikely(pending_ != Pending::kNothing))
    if (int error = start_pending()) return error;
  if (end || range_end_set_)
    if (int error = set_end_of_range(end)) return error;
  in_range_first_ = true;
  int error = handler::read_range_first(start, end, equal, sorted);
  in_range_first_ = false;
  return error;
}

}  // namespace pbxt
