/*
 * ha_pbxt_checked_keys.cc: keys whose values the server compares: UNIQUE over long values, of which the
 * engine has a hash, and periods WITHOUT OVERLAPS.
 *
 * The server looks them up after a row is written, so that of two writers of one value one meets the other
 * (HA_CHECK_UNIQUE_AFTER_WRITE). It cannot take a new version back, and so refuses to skip a row. Statements
 * that skip rows have the keys looked up before the row is written, where nearly all taken values are found;
 * the row that is written is looked up once more here, and taken back if somebody was faster.
 */
#include "ha_pbxt.h"
#include "session.h"

namespace pbxt {
namespace {

bool searches_rows_to_change(THD* thd) {
  switch (thd_sql_command(thd)) {
    case SQLCOM_UPDATE:
    case SQLCOM_UPDATE_MULTI:
    case SQLCOM_DELETE:
    case SQLCOM_DELETE_MULTI:
      return true;
    default:
      return false;
  }
}

/* The values of record[0] and those of a record so far away from it, as the server compares them. Nobody has
 * computed what is not stored of a row that is read here: the others decide, and the hash that both have. */
bool has_same_values(const KEY& key, my_ptrdiff_t distance) {
  uint parts = fields_in_hash_keyinfo(const_cast<KEY*>(&key));
  for (const KEY_PART_INFO* part = key.key_part - parts; part < key.key_part; part++) {
    Field* field = part->field;
    if (!field->stored_in_db()) continue;
    if (field->is_null() || field->is_null(distance)) return false;
    bool is_prefix = (field->flags & BLOB_FLAG) && part->length != 0;
    if (is_prefix ? field->cmp_prefix(field->ptr, field->ptr + distance, part->length)
                  : field->cmp_offset(distance))
      return false;
  }
  return true;
}

}  // namespace

/* INSERT with ON DUPLICATE KEY UPDATE and IGNORE skips rows that it cannot update; ALTER IGNORE leaves out of
 * its copy what is there already, and does not take back what it has written. So does who applies events of a
 * binary log, a replica or a BINLOG statement, by slave_exec_mode or slave_skip_errors, of which the engine
 * is told nothing. */
bool ha_pbxt::skips_rows_it_cannot_change() const {
  THD* thd = ha_thd();
  if (!thd || !thd->lex) return false;
  int command = thd_sql_command(thd);
  if (command == SQLCOM_ALTER_TABLE) return thd->lex->ignore;
  if (table && table->part_info) return false;
  if (is_applier(thd) || thd->rgi_fake) return true;
  if (!thd->lex->ignore) return false;
  return command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI || thd->lex->duplicates == DUP_UPDATE;
}

/* The server reads these keys through this handler, or, where it is busy searching, through a clone. No
 * search uses a key over long values; one of periods may be used by a search for rows to change. */
bool ha_pbxt::checks_uniqueness(uint index) const {
  const KEY& key = table->key_info[index];
  if (!session_ || table->current_lock != F_WRLCK) return false;
  if (key.algorithm == HA_KEY_ALG_LONG_HASH) return true;
  return key.without_overlaps && (is_clone_ || !searches_rows_to_change(ha_thd()));
}

/* There are keys whose values the server compares. */
bool ha_pbxt::has_checked_keys() const {
  return table_share->long_unique_table || table_share->period.unique_keys != 0;
}

/* The server has a clone ready, and memory for a key and a record. */
bool ha_pbxt::looks_written_rows_up() const {
  return lookup_handler != this && lookup_buffer && has_checked_keys();
}

/* Stores a row so that it can be taken back, and does so if another one has its values. */
int ha_pbxt::store_looked_up(const uchar* old_record, const uchar* record) {
  if (int error = fail(pbxt_row_hold(session_->core()))) return error;
  int error = store_version(old_record, record);
  bool is_stored = !error;
  if (is_stored) error = find_taken();
  int release_error = fail(pbxt_row_release(session_->core(), !is_stored || !error));
  return release_error ? release_error : error;
}

/* Whether another row has values of the row in record[0], which this handler has just stored. */
int ha_pbxt::find_taken() {
  ha_pbxt* probe = static_cast<ha_pbxt*>(lookup_handler);
  uint64_t stored = pbxt_cursor_row_id(cursor_);
  Field* end = table->versioned() ? table->vers_end_field() : nullptr;
  bool is_current = !end || end->is_max();
  lookup_errkey = static_cast<uint>(-1);
  for (uint i = 0; i < table_share->keys; i++) {
    const KEY& key = table->key_info[i];
    bool is_hash = key.algorithm == HA_KEY_ALG_LONG_HASH;
    if (is_hash ? key.key_part->field->is_real_null() : !key.without_overlaps || !is_current) continue;
    int error = probe->index_init(i, false);
    bool is_taken = false;
    if (!error)
      error =
          is_hash ? probe->find_value(key, stored, &is_taken) : probe->find_overlap(key, stored, &is_taken);
    uint64_t other = pbxt_cursor_row_id(probe->cursor_);
    int end_error = probe->index_end();
    if (error || end_error) return error ? error : end_error;
    if (!is_taken) continue;
    lookup_errkey = i;
    return taken_by(other);
  }
  return 0;
}

/* In a clone: looks for a row other than the stored one with the long values of record[0]. */
int ha_pbxt::find_value(const KEY& key, uint64_t stored, bool* is_taken) {
  uchar* tuple = table->file->lookup_buffer;
  uchar* record = tuple + table_share->max_unique_length + table_share->null_fields;
  key_copy(tuple, table->record[0], &key, key.key_length, false);
  int error = index_read_map(record, tuple, HA_WHOLE_KEY, HA_READ_KEY_EXACT);
  while (!error) {
    *is_taken = pbxt_cursor_row_id(cursor_) != stored && has_same_values(key, record - table->record[0]);
    if (*is_taken) return 0;
    error = index_next_same(record, tuple, key.key_length);
  }
  return error == HA_ERR_KEY_NOT_FOUND || error == HA_ERR_END_OF_FILE ? 0 : error;
}

/* In a clone: looks for a row other than the stored one whose period overlaps that of record[0]. Periods of
 * one key do not overlap, and the key has their ends before their beginnings: of those that end after this
 * one begins only the first can, the stored one left out. */
int ha_pbxt::find_overlap(const KEY& key, uint64_t stored, bool* is_taken) {
  uchar* tuple = table->file->lookup_buffer;
  uchar* record = tuple + table_share->max_unique_length + table_share->null_fields;
  uint parts = key.user_defined_key_parts;
  uint bound_length = key.key_part[parts - 1].length;
  uchar* end_bound = tuple + key.key_length - 2 * bound_length;
  key_copy(tuple, table->record[0], &key, 0, false);
  memcpy(end_bound, end_bound + bound_length, bound_length);
  key_part_map map = (key_part_map{1} << (parts - 1)) - 1;
  int error = index_read_map(record, tuple, map, HA_READ_AFTER_KEY);
  if (!error && pbxt_cursor_row_id(cursor_) == stored) error = index_next(record);
  if (!error) *is_taken = TABLE::check_period_overlaps(key, table->record[0], record);
  return error == HA_ERR_KEY_NOT_FOUND || error == HA_ERR_END_OF_FILE ? 0 : error;
}

}  // namespace pbxt
