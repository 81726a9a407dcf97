/*
 * ha_pbxt_checked_keys.cc: keys whose values the server compares: UNIQUE over long values, of which the
 * engine has a hash, and periods WITHOUT OVERLAPS.
 *
 * The server looks them up after a row is written, so that of two writers of one value one meets the other
 * (HA_CHECK_UNIQUE_AFTER_WRITE). It cannot take a new version back, and so refuses to skip a row. Statements
 * that skip rows have the keys looked up before the row is written, where nearly all taken values are found;
 * the row that is written is looked up once more here, and taken back if somebody was faster. So it is with
 * all statements on partitioned tables, whose periods the server cannot look up at all.
 */
#include "ha_pbxt.h"

#include <algorithm>

#include "ha_partition.h"
#include "session.h"
#include "sql_partition.h"

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

/* An update that leaves a key as it is takes no value that is not its own. What is not stored has to be
 * compared by who asks for it. */
bool has_same_bytes(const KEY& key, my_ptrdiff_t distance) {
  bool is_hash = key.algorithm == HA_KEY_ALG_LONG_HASH;
  uint parts = is_hash ? fields_in_hash_keyinfo(const_cast<KEY*>(&key)) : key.user_defined_key_parts;
  const KEY_PART_INFO* first = is_hash ? key.key_part - parts : key.key_part;
  for (const KEY_PART_INFO* part = first; part < first + parts; part++) {
    Field* field = part->field;
    if (!field->stored_in_db() || field->is_null() != field->is_null(distance)) return false;
    if (!field->is_null() && field->cmp_binary_offset(static_cast<uint>(distance))) return false;
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
  if (is_applier(thd) || thd->rgi_fake) return true;
  if (!thd->lex->ignore) return false;
  return command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI || thd->lex->duplicates == DUP_UPDATE;
}

/* In a partitioned table the server reads the next row of whichever part has one, and takes rows of other
 * values for it. So the parts look up by themselves what they have written. */
bool ha_pbxt::looks_up_itself() const {
  return (table && table->part_info) || skips_rows_it_cannot_change();
}

/* The server looks periods up in a partitioned table: it is told that nothing is in the way. */
bool ha_pbxt::is_asked_for_overlap(const uchar* record) const {
  return table->part_info && table_share->period.unique_keys != 0 && record == probed_record();
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

/* The server has memory for a key and a record. */
bool ha_pbxt::looks_written_rows_up() const {
  return table->file->lookup_buffer && has_checked_keys();
}

/* Stores a row so that it can be taken back, and does so if another one has its values. */
int ha_pbxt::store_looked_up(const uchar* old_record, const uchar* record) {
  if (int error = fail(pbxt_row_hold(session_->core()))) return error;
  int error = store_version(old_record, record);
  bool is_stored = !error;
  if (is_stored) error = find_taken(old_record);
  int release_error = fail(pbxt_row_release(session_->core(), !is_stored || !error));
  return release_error ? release_error : error;
}

/* Whether another row has values of the row in record[0], which this handler has just stored. */
int ha_pbxt::find_taken(const uchar* old_record) {
  my_ptrdiff_t to_old = old_record ? old_record - table->record[0] : 0;
  Field* end = table->versioned() ? table->vers_end_field() : nullptr;
  bool is_current = !end || end->is_max();
  table->file->lookup_errkey = static_cast<uint>(-1);
  for (uint i = 0; i < table_share->keys; i++) {
    const KEY& key = table->key_info[i];
    bool is_hash = key.algorithm == HA_KEY_ALG_LONG_HASH;
    if (is_hash ? key.key_part->field->is_real_null() : !key.without_overlaps || !is_current) continue;
    if (to_old && has_same_bytes(key, to_old)) continue;
    uint64_t other = 0;
    if (int error = is_hash ? find_value(i, &other) : find_overlap(i, &other)) return error;
    if (other == 0) continue;
    duplicate_index_ = table->file->lookup_errkey = i;
    return taken_by(other);
  }
  return 0;
}

/* ---- the search ---- */

/* A second cursor, because the first one is where the statement is. Of a statement that names parts of a
 * table the server opens no others: then this is the handler of one that is not open, and `of` another's. */
int ha_pbxt::begin_probe(const ha_pbxt& of, uint index) {
  if (unlikely(!open_table_ || share_->current != open_table_)) {
    end_probe();
    if (name_.empty()) name_ = of.name_of_part(*this);
    if (name_.empty()) return HA_ERR_NO_SUCH_TABLE;
    if (int error = use_share(of.table)) return error;
  }
  if (!probe_)
    if (int error = fail(pbxt_cursor_open(open_table_->core(), &probe_))) return error;
  pbxt_bind newest{};
  newest.lock_mode = PBXT_LOCK_EXCLUSIVE;
  newest.newest = 1;
  int error = fail(pbxt_cursor_bind(probe_, of.session_->core(), &newest));
  if (!error) error = fail(pbxt_cursor_columns(probe_, nullptr, 0));
  if (!error) error = fail(pbxt_index_start(probe_, index));
  if (error) pbxt_cursor_unbind(probe_);
  return error;
}

/* The server's room for a row that was found; that for a key is before it. */
uchar* ha_pbxt::probed_record() const {
  return table->file->lookup_buffer + table_share->max_unique_length + table_share->null_fields;
}

/* Looks for a row other than the stored one with the long values of record[0]. Equal values are in one part:
 * all columns that choose it are in the key. */
int ha_pbxt::find_value(uint index, uint64_t* other) {
  const KEY& key = table->key_info[index];
  uchar* tuple = table->file->lookup_buffer;
  uchar* record = probed_record();
  key_copy(tuple, table->record[0], &key, key.key_length, false);
  memcpy(record, table_share->default_values, table_share->null_bytes);
  if (int error = begin_probe(*this, index)) return error;
  pbxt_status status = pbxt_index_seek(probe_, tuple, key.user_defined_key_parts, PBXT_SEEK_EXACT, record);
  while (status == PBXT_OK && *other == 0) {
    uint64_t row = pbxt_cursor_row_id(probe_);
    if (row != pbxt_cursor_row_id(cursor_) && has_same_values(key, record - table->record[0]))
      *other = row;
    else
      status = pbxt_index_next_same(probe_, record);
  }
  return finish_probe(status);
}

/* Looks for a row other than the stored one whose period overlaps that of record[0]. Where columns of the
 * period choose the part, it may be in any. */
int ha_pbxt::find_overlap(uint index, uint64_t* other) {
  const KEY& key = table->key_info[index];
  uint begin = key.user_defined_key_parts - 1, end = begin - 1;
  for (uint i = 0; i < end; i++)
    if (key.key_part[i].field->is_null()) return 0;
  int error = find_overlap_in(this, index, other);
  const partition_info* parts = table->part_info;
  if (error || *other != 0 || !parts) return error;
  if (!bitmap_is_set(&parts->full_part_field_set, key.key_part[begin].fieldnr - 1) &&
      !bitmap_is_set(&parts->full_part_field_set, key.key_part[end].fieldnr - 1))
    return 0;
  handler** files = static_cast<ha_partition*>(table->file)->get_child_handlers();
  handler** files_end = files + table->part_info->get_tot_partitions();
  // ALTER fills new parts with the rows of those that are there.
  if (std::find(files, files_end, this) == files_end) return 0;
  for (handler** file = files; file < files_end && !error && *other == 0; file++)
    if (*file != this) error = find_overlap_in(static_cast<ha_pbxt*>(*file), index, other);
  return error;
}

/* Periods of one key do not overlap, and the key has their ends before their beginnings: of those that end
 * after this one begins only the first can, the stored one left out. */
int ha_pbxt::find_overlap_in(ha_pbxt* part, uint index, uint64_t* other) {
  const KEY& key = table->key_info[index];
  uint prefix = key.user_defined_key_parts - 2;
  Field *end = key.key_part[prefix].field, *begin = key.key_part[prefix + 1].field;
  uchar* tuple = table->file->lookup_buffer;
  uchar* record = probed_record();
  uint bound_length = key.key_part[prefix].length;
  uchar* end_bound = tuple + key.key_length - 2 * bound_length;
  key_copy(tuple, table->record[0], &key, 0, false);
  memcpy(end_bound, end_bound + bound_length, bound_length);
  memcpy(record, table_share->default_values, table_share->null_bytes);
  if (int error = part->begin_probe(*this, index)) return error;
  pbxt_cursor* probe = part->probe_;
  pbxt_status status = pbxt_index_end_range(probe, tuple, prefix, 1);
  if (status == PBXT_OK) status = pbxt_index_seek(probe, tuple, prefix + 1, PBXT_SEEK_AFTER, record);
  if (status == PBXT_OK && is_this_row(*part, key, record)) status = pbxt_index_next(probe, record);
  bool overlaps = status == PBXT_OK && begin->cmp(begin->ptr_in_record(record), end->ptr) < 0;
  if (overlaps) *other = pbxt_cursor_row_id(probe);
  return part->finish_probe(status);
}

/* Whether the row that was found is the one that is being written. An UPDATE that moves a row to another part
 * writes it there before it deletes the old one, which is the last that the old part has read. The parts of a
 * scan in order have all read one, so it must be the server's old row besides. INSERT ... ON DUPLICATE KEY
 * UPDATE may have the row of an earlier duplicate there, so it cannot move a row to where it was. */
bool ha_pbxt::is_this_row(const ha_pbxt& part, const KEY& key, const uchar* record) const {
  uint64_t found = pbxt_cursor_row_id(part.probe_);
  if (&part == this) return found == pbxt_cursor_row_id(cursor_);
  THD* thd = ha_thd();
  int command = thd_sql_command(thd);
  bool may_move =
      command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI || is_applier(thd) || thd->rgi_fake;
  if (!may_move || !part.cursor_ || found != pbxt_cursor_row_id(part.cursor_)) return false;
  for (uint i = 0; i < key.user_defined_key_parts; i++) {
    Field* field = key.key_part[i].field;
    if (!field->stored_in_db()) continue;
    if (field->is_null_in_record(table->record[1])) return false;
    if (field->cmp(field->ptr_in_record(record), field->ptr_in_record(table->record[1]))) return false;
  }
  return true;
}

int ha_pbxt::finish_probe(pbxt_status status) {
  int error = status == PBXT_NOT_FOUND || status == PBXT_END ? 0 : fail(status);
  int end_error = fail(pbxt_scan_end(probe_));
  pbxt_cursor_unbind(probe_);
  return error ? error : end_error;
}

void ha_pbxt::end_probe() {
  if (probe_) pbxt_cursor_close(probe_);
  probe_ = nullptr;
}

/* The name of the files of another part of this table, from the names in its definition. */
std::string ha_pbxt::name_of_part(const ha_pbxt& part) const {
  handler** files = static_cast<ha_partition*>(table->file)->get_child_handlers();
  const char* path = table_share->normalized_path.str;
  char name[FN_REFLEN + 1];
  List_iterator_fast<partition_element> elements(table->part_info->partitions);
  while (const partition_element* element = elements++) {
    if (!table->part_info->is_sub_partitioned()) {
      if (*files++ != &part) continue;
      bool is_named =
          !create_partition_name(name, sizeof name, path, element->partition_name, NORMAL_PART_NAME, true);
      return is_named ? name : "";
    }
    List_iterator_fast<partition_element> subelements(const_cast<partition_element*>(element)->subpartitions);
    while (const partition_element* subelement = subelements++) {
      if (*files++ != &part) continue;
      bool is_named = !create_subpartition_name(name, sizeof name, path, element->partition_name,
                                                subelement->partition_name, NORMAL_PART_NAME);
      return is_named ? name : "";
    }
  }
  return "";
}

}  // namespace pbxt
