/*
 * ha_pbxt_write.cc: insert, update, delete, and automatic values.
 *
 * A failed change leaves nothing behind in the engine, so the server may go on with the next row of the same
 * statement.
 */
#include "error_map.h"
#include "ha_pbxt.h"
#include "pbxt_inserts.h"
#include "session.h"

namespace pbxt {

/* Tells the server which key and which row are in the way, so that REPLACE and ON DUPLICATE KEY need no
 * second search. */
int ha_pbxt::key_duplicated() {
  uint32_t index = 0;
  uint64_t row_id = 0;
  pbxt_cursor_duplicate(cursor_, &index, &row_id);
  duplicate_index_ = index;
  return taken_by(row_id);
}

int ha_pbxt::taken_by(uint64_t row_id) {
  if (dup_ref) {
    memset(dup_ref, 0, ref_length);
    put_reference(dup_ref, row_id);
  }
  return HA_ERR_FOUND_DUPP_KEY;
}

/* A new row, or a new version of the row that was read last. */
int ha_pbxt::store_version(const uchar* old_record, const uchar* record) {
  pbxt_status status = old_record ? pbxt_update(cursor_, pbxt_cursor_row_id(cursor_), old_record, record)
                       : replaces_taken_ ? pbxt_insert_or_hold(cursor_, record)
                                         : pbxt_insert(cursor_, record);
  if (likely(status == PBXT_OK)) return changed(old_record ? RowsDone::kUpdated : RowsDone::kInserted);
  return status == PBXT_DUPLICATE_KEY ? key_duplicated() : fail(status);
}

void ha_pbxt::tell_changed(RowsDone::Deed deed) noexcept {
  if (session_) session_->rows_done().add(session_->thd(), deed);
}

int ha_pbxt::store(const uchar* old_record, const uchar* record) {
  bool server_looks_up = ha_table_flags() & HA_CHECK_UNIQUE_AFTER_WRITE;
  if (likely(server_looks_up) || !looks_written_rows_up()) return store_version(old_record, record);
  return store_looked_up(old_record, record);
}

/* The whole number in a column of automatic values, 0 for what is below. FLOAT and DOUBLE hold greater ones
 * than a number of 64 bits, and the server calls it an error to ask them for one. */
static uint64_t whole_number(Field* field) {
  if (field->result_type() == REAL_RESULT) {
    double value = field->val_real();
    if (!(value > 0)) return 0;
    return value < static_cast<double>(UINT64_MAX) ? static_cast<uint64_t>(value) : UINT64_MAX;
  }
  longlong value = field->val_int();
  return value <= 0 && !field->is_unsigned() ? 0 : static_cast<uint64_t>(value);
}

/* A value given by the user may lie above the engine's next one. The greatest number of all stands for "no
 * value left". */
int ha_pbxt::raise_auto_increment(Field* field) {
  if (field->is_null() || table->s->next_number_keypart != 0) return 0;
  uint64_t given = whole_number(field);
  if (given == 0) return 0;
  if (given < known_auto_increment_) return 0;
  uint64_t next = given == UINT64_MAX ? given : given + 1;
  if (int error = fail(pbxt_autoinc_raise(open_table_->core(), next))) return error;
  known_auto_increment_ = next;
  return 0;
}

/* CREATE TEMPORARY SEQUENCE writes the first row without having locked the table. The change commits by
 * itself, as all of sequences do. */
int ha_pbxt::write_unlocked_row(const uchar* record) {
  if (int error = bind(ha_thd(), TL_WRITE)) return error;
  int error = fail(pbxt_insert(cursor_, record));
  unbind();
  return error;
}

/* Of what FOR PORTION OF leaves of a row the server computes the generated columns before the triggers for
 * INSERT, which may change what they are computed from. */
int ha_pbxt::compute_after_triggers() {
  bool is_due = table_share->period.name && table->triggers;
  return is_due ? table->update_virtual_fields(this, VCOL_UPDATE_FOR_WRITE) : 0;
}

int ha_pbxt::write_row(const uchar* record) {
  if (unlikely(!session_)) return write_unlocked_row(record);
  bool in_place = record == table->record[0];
  if (unlikely(table->vfield && in_place))
    if (int error = compute_after_triggers()) return error;
  if (table->next_number_field && in_place)
    if (int error = update_auto_increment()) return error;
  if (unlikely(bulk_announced_))
    if (int error = begin_bulk()) return error;
  if (int error = unlikely(keeps_former_) ? insert_stamped(record) : store(nullptr, record)) return error;
  // Also values that the server made need it: SET INSERT_ID and replicas bring their own.
  if (table->next_number_field && in_place) return raise_auto_increment(table->next_number_field);
  return 0;
}

/* ---- many rows ---- */

/* INSERT ... SELECT calls this before it says IGNORE, REPLACE or ON DUPLICATE KEY UPDATE. Where each row is
 * looked up after it is written, others than itself are told by their row ids, and rows of a load have none
 * before its end. */
void ha_pbxt::start_bulk_insert(ha_rows rows, uint) {
  bulk_announced_ = !has_checked_keys();
  bulk_rows_ = rows;
}

int ha_pbxt::begin_bulk() {
  bulk_announced_ = false;
  bulk_open_ = true;
  return fail(pbxt_bulk_begin(cursor_, bulk_rows_, wants_row_answers_ ? PBXT_BULK_ROW_ANSWERS : 0));
}

/* The server prints the key of the record in its hand when this says that a key is taken, so the row that was
 * refused is put there. */
int ha_pbxt::end_bulk_insert() {
  bulk_announced_ = false;
  if (!bulk_open_) return 0;
  bulk_open_ = false;
  bool abort = ha_thd()->killed || ha_thd()->is_error();
  if (!abort && rows_changed_ >= RowsDone::kTold) ha_thd()->proc_info = "Sorting and writing the last rows";
  pbxt_status status = pbxt_bulk_end(cursor_, abort);
  if (likely(status == PBXT_OK)) return 0;
  if (status == PBXT_DUPLICATE_KEY) {
    prepare_record(table->record[0]);
    pbxt_bulk_refused(cursor_, reading_);
    open_table_->reset_nulls(reading_);
    if (table->vfield) compute_virtual_columns();
    my_errno = key_duplicated();
  } else {
    my_errno = fail(status);
  }
  return my_errno;  // some callers look at the one, some at the other
}

int ha_pbxt::update_row(const uchar* old_record, const uchar* new_record) {
  is_left_ = false;
  is_settled_ = true;
  int error =
      unlikely(keeps_former_) ? update_stamped(old_record, new_record) : store(old_record, new_record);
  if (error) return error;
  Field* number = table->found_next_number_field;
  if (number && new_record == table->record[0] && bitmap_is_set(table->write_set, number->field_index))
    return raise_auto_increment(number);
  return 0;
}

int ha_pbxt::delete_row(const uchar* record) {
  is_left_ = false;
  return unlikely(keeps_former_) ? delete_stamped(record) : remove(record);
}

int ha_pbxt::remove(const uchar* record) {
  pbxt_status status = pbxt_delete(cursor_, pbxt_cursor_row_id(cursor_), record);
  return likely(status == PBXT_OK) ? changed(RowsDone::kDeleted) : fail(status);
}

/* ---- DELETE of all rows ---- */

/* The server asks where it would do nothing with a row but hand it on, and no condition chooses. What else is
 * wanted row by row: an order, a limit, errors that are warnings (IGNORE), history, figures of ANALYZE; and
 * of parts the server loses the number of rows. */
int ha_pbxt::direct_delete_rows_init() {
  LEX* lex = ha_thd()->lex;
  const SELECT_LEX* select = lex->first_select_lex();
  const TABLE_LIST* list = table->pos_in_table_list;
  bool row_by_row = lex->sql_command != SQLCOM_DELETE || table->part_info || lex->ignore ||
                    lex->analyze_stmt || lex->has_returning() || table->versioned() ||
                    (list && list->has_period()) || select->order_list.elements != 0 ||
                    select->limit_params.explicit_limit;
  return row_by_row ? HA_ERR_WRONG_COMMAND : 0;
}

/* A stretch at a time, so that others see how far it is. */
int ha_pbxt::direct_delete_rows(ha_rows* deleted) {
  *deleted = 0;
  pending_ = Pending::kNothing;
  scan_open_ = true;
  int error = fail(pbxt_scan_start(cursor_));
  for (bool is_over = false; !error && !is_over;) {
    uint64_t rows = 0;
    pbxt_status status = pbxt_delete_scanned(cursor_, RowsDone::kTold, &rows);
    *deleted += rows;
    is_over = status == PBXT_END;
    if (!is_over && !(error = fail(status))) tell_changed(RowsDone::kDeleted);
  }
  int end_error = end_scan();
  if (!error) error = end_error;
  if (error) print_error(error, MYF(0));  // the server would not
  return error;
}

/* The column is not the first of its key: values count up among the rows that have the parts before it in
 * common. The server's own code looks for the last of them; it must find the newest one, also of transactions
 * that are still running, for which the read waits. */
void ha_pbxt::get_auto_increment_in_group(ulonglong offset, ulonglong increment, ulonglong wanted,
                                          ulonglong* first, ulonglong* reserved) {
  int error = read_newest(true);
  if (!error) handler::get_auto_increment(offset, increment, wanted, first, reserved);
  if (!error) error = read_newest(false);
  // The server has told of an error by itself and goes on with 1.
  if (error || ha_thd()->is_error()) *first = ULONGLONG_MAX;
}

void ha_pbxt::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong* first,
                                 ulonglong* reserved) {
  if (table->s->next_number_keypart != 0)
    return get_auto_increment_in_group(offset, increment, wanted, first, reserved);
  uint64_t first_value = 0, count = 0;
  if (fail(pbxt_autoinc_reserve(open_table_->core(), offset, increment, wanted, &first_value, &count)) != 0) {
    *first = ULONGLONG_MAX;  // the server reports that no value could be had
    return;
  }
  *first = first_value;
  *reserved = count;
  if (count > 0) known_auto_increment_ = first_value + (count - 1) * increment + 1;
}

int ha_pbxt::reset_auto_increment(ulonglong value) {
  known_auto_increment_ = 0;
  return fail(pbxt_autoinc_set(open_table_->core(), value == 0 ? 1 : value));
}

/* SHOW CREATE TABLE prints the next value, and a copying ALTER hands it on. */
void ha_pbxt::update_create_info(HA_CREATE_INFO* create_info) {
  if (create_info->used_fields & HA_CREATE_USED_AUTO) return;
  info(HA_STATUS_AUTO);
  create_info->auto_increment_value = stats.auto_increment_value;
}

}  // namespace pbxt
