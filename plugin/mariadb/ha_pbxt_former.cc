/*
 * ha_pbxt_former.cc: tables that keep former rows by transaction (system versioning with columns BIGINT
 * UNSIGNED GENERATED ALWAYS AS ROW START and ROW END; rule T49 of docs/transactions.md).
 *
 * Such columns hold ids of transactions, which only the engine knows. So it is the handler that makes of a
 * change of a row the change of the row and one more row, where the server does this by itself with
 * timestamps. The records of the server stay as they are: what is stored is a copy.
 */
#include "error_map.h"
#include "ha_pbxt.h"
#include "pbxt_inserts.h"
#include "pbxt_stamps.h"
#include "session.h"

namespace pbxt {
namespace {

/* Whether the column is computed from one of those. */
bool depends_on(Field* field, TABLE* table, const MY_BITMAP* wanted) {
  MY_BITMAP reads;
  if (my_bitmap_init(&reads, nullptr, table->s->fields)) return true;
  field->vcol_info->expr->walk(&Item::register_field_in_bitmap, true, &reads);
  bool depends = bitmap_is_overlapping(&reads, wanted);
  my_bitmap_free(&reads);
  return depends;
}

}  // namespace

/* Which columns follow from the two. Others may follow from those: looked for until there are no more. */
void ha_pbxt::learn_former() {
  keeps_former_ = table->versioned(VERS_TRX_ID);
  following_.clear();
  if (!keeps_former_ || !table->vfield) return;
  MY_BITMAP stamps;
  if (my_bitmap_init(&stamps, nullptr, table->s->fields)) return;
  bitmap_set_bit(&stamps, table->s->vers.start_fieldno);
  bitmap_set_bit(&stamps, table->s->vers.end_fieldno);
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (Field** field = table->vfield; *field; field++) {
      if (bitmap_is_set(&stamps, (*field)->field_index) || !depends_on(*field, table, &stamps)) continue;
      bitmap_set_bit(&stamps, (*field)->field_index);
      following_.push_back(*field);
      is_new = true;
    }
  }
  my_bitmap_free(&stamps);
}

/* An applier of a replica does what the primary did, instead of what became of the rows. The server logs it
 * so if a table is among those that keep former rows by transaction (rule T50). */
bool ha_pbxt::repeats_statement(THD* thd) {
  for (const TABLE_LIST* list = thd->lex->query_tables; list; list = list->next_global)
    if (list->table && list->table->versioned(VERS_TRX_ID)) return true;
  return false;
}

/* A copy of the record with other ids in the two columns. */
int ha_pbxt::stamp(const uchar* record, ulonglong start, ulonglong end) {
  stamped_.assign(record, record + table->s->reclength);
  uchar* copy = stamped_.data();
  Field *since = table->vers_start_field(), *until = table->vers_end_field();
  int8store(copy + (since->ptr - table->record[0]), start);
  int8store(copy + (until->ptr - table->record[0]), end);
  if (likely(following_.empty())) return 0;
  MY_BITMAP *reads = table->read_set, *writes = table->write_set;
  table->use_all_columns();
  table->move_fields(table->field, copy, table->record[0]);
  int error = 0;
  for (Field* field : following_)
    if (!error && table->update_virtual_field(field, false)) error = HA_ERR_INTERNAL_ERROR;
  table->move_fields(table->field, table->record[0], copy);
  table->read_set = reads;
  table->write_set = writes;
  return error;
}

int ha_pbxt::own_id(uint64_t* id) {
  int error = fail(pbxt_stamp(session_->core(), id));
  *id += kFirstToldId;
  return error;
}

/* Who copies a table and makes it keep former rows is listed, even if there is no row. */
int ha_pbxt::begin_copy() {
  uint64_t own = 0;
  return keeps_former_ && table->vers_write && session_ ? own_id(&own) : 0;
}

int ha_pbxt::insert_stamped(const uchar* record) {
  uint64_t own = 0;
  if (int error = own_id(&own)) return error;
  // A copy of the table keeps what the rows have.
  if (!table->vers_write) return store(nullptr, record);
  if (int error = stamp(record, own, ULONGLONG_MAX)) return error;
  int error = store(nullptr, stamped_.data());
  if (!error) session_->last_stamped() = {table->s, pbxt_cursor_row_id(cursor_), own};
  return error;
}

/* The server has seen to it that vers_write is false if only columns WITHOUT SYSTEM VERSIONING are set. A row
 * that is set to what it is gets a former row, as with times. */
int ha_pbxt::update_stamped(const uchar* old_record, const uchar* new_record) {
  if (!table->vers_write) return store(old_record, new_record);
  uint64_t own = 0;
  if (int error = own_id(&own)) return error;
  if (int error = stamp(new_record, own, table->vers_end_id(new_record))) return error;
  if (table->vers_start_id(old_record) == own) {
    int error = store(old_record, stamped_.data());
    return error == HA_ERR_RECORD_IS_THE_SAME ? 0 : error;
  }
  return store_and_keep(old_record, own);
}

/* The stamped record takes the place of the old one, which becomes a former row. Both or none. */
int ha_pbxt::store_and_keep(const uchar* old_record, uint64_t own) {
  if (int error = fail(pbxt_row_hold(session_->core()))) return error;
  int error = store_version(old_record, stamped_.data());
  bool is_looked_up = !(ha_table_flags() & HA_CHECK_UNIQUE_AFTER_WRITE) && looks_written_rows_up();
  if (!error && is_looked_up) error = find_taken(old_record);
  if (!error) error = stamp(old_record, table->vers_start_id(old_record), own);
  if (!error) {
    pbxt_status status = pbxt_insert_beside(cursor_, stamped_.data());
    error = status == PBXT_DUPLICATE_KEY ? key_duplicated() : fail(status);
  }
  int release_error = fail(pbxt_row_release(session_->core(), !error));
  return release_error ? release_error : error;
}

/* A row of an earlier transaction becomes a former row; one of this transaction, and one that is a former
 * row, goes. So does one that the server takes back because a key that it compares itself is taken: its
 * record is the one before the stamp. */
int ha_pbxt::delete_stamped(const uchar* record) {
  if (!table->vers_write || table->vers_end_id(record) != ULONGLONG_MAX) return remove(record);
  uint64_t own = 0;
  if (int error = own_id(&own)) return error;
  uint64_t since = table->vers_start_id(record);
  bool is_taken_back = session_->last_stamped() == StampedRow{table->s, pbxt_cursor_row_id(cursor_), own};
  if (since == own || is_taken_back) return remove(record);
  if (int error = stamp(record, since, own)) return error;
  pbxt_status status = pbxt_update(cursor_, pbxt_cursor_row_id(cursor_), record, stamped_.data());
  if (likely(status == PBXT_OK)) return changed(RowsDone::kDeleted);
  return status == PBXT_DUPLICATE_KEY ? key_duplicated() : fail(status);
}

}  // namespace pbxt
