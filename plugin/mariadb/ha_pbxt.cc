/*
 * ha_pbxt.cc: opening and closing, statement begin (external_lock, start_stmt), statistics and costs of the
 * handler.
 */
#include "ha_pbxt.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "error_map.h"
#include "pushed_condition.h"
#include "session.h"
#include "sql_parse.h"

namespace pbxt {
namespace {

constexpr uint kBlockSize = 16384;
/* Microseconds that the optimizer goes by the same sizes (rule X54). */
constexpr ulonglong kNumbersLast = 10000;
/* Rows lie in the order they were written: reading them all costs far less than as many single reads. */
constexpr double kScanBytesPerUnit = 65536.0;
/* An entry of an index, read alone, takes about a twentieth of the time of a row read through one. By the
   blocks alone that entries fill, the server would read twenty thousand of them to spare a hundred rows. */
constexpr double kEntryUnits = 0.05;

/* Statements that change rows say so themselves; under all others a write lock means FOR UPDATE. */
bool only_reads(THD* thd) {
  switch (thd_sql_command(thd)) {
    case SQLCOM_SELECT:
    case SQLCOM_SET_OPTION:
    case SQLCOM_DO:
      return true;
    default:
      return false;
  }
}

/* What may copy a table's rows to a new one. */
bool may_copy(THD* thd) {
  int command = thd_sql_command(thd);
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX ||
         command == SQLCOM_REPAIR;
}

/* A write lock is that of FOR UPDATE also where the table's own SELECT says so, in a statement that changes
 * other tables. The server marks those that it changes. Tables that stored functions use have no SELECT here.
 */
bool is_locking_read(THD* thd, const TABLE* table) {
  if (only_reads(thd)) return true;
  const TABLE_LIST* list = table->pos_in_table_list ? table->pos_in_table_list->top_table() : nullptr;
  return list && list->select_lex && list->select_lex->select_lock == st_select_lex::FOR_UPDATE &&
         !list->updating;
}

}  // namespace

ha_pbxt::ha_pbxt(handlerton* hton, TABLE_SHARE* share) : handler(hton, share) {
  ref_length = sizeof(uint64_t);
}

ha_pbxt::~ha_pbxt() {
  close_cursor();
}

handler::Table_flags ha_pbxt::table_flags() const {
  // HA_PARTIAL_COLUMN_READ is left out: statements that change rows always read whole ones, so the server may
  // compare them.
  Table_flags flags = HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER | HA_CAN_VIRTUAL_COLUMNS |
                      HA_BINLOG_ROW_CAPABLE | HA_CAN_GEOMETRY | HA_REC_NOT_IN_SEQ |
                      HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS | HA_CONCURRENT_OPTIMIZE |
                      HA_CAN_SKIP_LOCKED | HA_CAN_DIRECT_UPDATE_AND_DELETE | HA_DUPLICATE_POS |
                      HA_CHECK_UNIQUE_AFTER_WRITE | HA_CRASH_SAFE | HA_ONLINE_ANALYZE | HA_AUTO_PART_KEY |
                      HA_CAN_TABLE_CONDITION_PUSHDOWN | HA_HAS_RECORDS | HA_PRIMARY_KEY_IN_READ_INDEX |
                      HA_PRIMARY_KEY_REQUIRED_FOR_POSITION;
  // But for the sake of rows that are set to what they are: where ids of transactions say from when to when a
  // row was there, that is a change, which the server sees in columns that are not read.
  if (keeps_former_) flags |= HA_PARTIAL_COLUMN_READ;
  if (!table_share || !has_checked_keys()) return flags;
  if (looks_up_itself()) flags &= ~HA_CHECK_UNIQUE_AFTER_WRITE;
  // What the server compares is told before or after all that the engine compares, whatever the order of the
  // keys: REPLACE may not take any for the last one.
  return flags | HA_DUPLICATE_KEY_NOT_IN_ORDER;
}

/* Actions of what a statement or its triggers delete may remove rows that scans merged in order have come to
 * already, and the server takes no row for an error there. Of references that are sorted first it passes over
 * those whose rows are gone. */
bool ha_pbxt::may_delete_ahead() const {
  THD* thd = ha_thd();
  int command = thd_sql_command(thd);
  bool deletes =
      command == SQLCOM_DELETE || command == SQLCOM_DELETE_MULTI || command == SQLCOM_REPLACE_SELECT;
  return (deletes || thd->lex->requires_prelocking()) && open_table_ &&
         pbxt_table_goes_with_parents(open_table_->core());
}

ulong ha_pbxt::index_flags(uint index, uint, bool) const {
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  bool is_in_order = !open_table_ || open_table_->extended_keys().gives_reference_order(index);
  if (!is_in_order || may_delete_ahead()) flags |= HA_KEY_SCAN_NOT_ROR;
  if (!table_share || !table_share->key_info || !table_share->field) return flags | HA_KEYREAD_ONLY;
  const KEY& key = table_share->key_info[index];
  // A hash of long values gives nothing back.
  if (key.algorithm == HA_KEY_ALG_LONG_HASH) return flags;
  flags |= HA_KEYREAD_ONLY;
  for (uint i = 0; i < key.user_defined_key_parts; i++)
    if (!table_share->field[key.key_part[i].fieldnr - 1]->stored_in_db()) return flags;
  flags |= HA_DO_INDEX_COND_PUSHDOWN;
  return can_filter(index) ? flags | HA_DO_RANGE_FILTER_PUSHDOWN : flags;
}

/* ---- life cycle ---- */

/* The table's shared object, made by the first handler. Null if the engine cannot open the table. */
TableShare* ha_pbxt::shared() {
  lock_shared_ha_data();
  TableShare* share = static_cast<TableShare*>(get_ha_share_ptr());
  if (!share && (share = new (std::nothrow) TableShare())) set_ha_share_ptr(share);
  unlock_shared_ha_data();
  return share;
}

/* Opens the current generation of the table if no other handler has. */
int ha_pbxt::use_share(const TABLE* of) {
  if (!(share_ = shared())) return HA_ERR_OUT_OF_MEM;
  pbxt_status status = PBXT_OK;
  lock_shared_ha_data();
  if (!share_->current) {
    std::shared_ptr<OpenTable> fresh = std::make_shared<OpenTable>();
    status = fresh->open(of, name_.c_str());
    if (status == PBXT_OK) share_->current = std::move(fresh);
  }
  open_table_ = share_->current;
  unlock_shared_ha_data();
  return to_ha_error(status, ha_thd());
}

int ha_pbxt::open_cursor() noexcept {
  if (int error = use_share(table)) return error;
  pbxt_status status = pbxt_cursor_open(open_table_->core(), &cursor_);
  if (status == PBXT_OK) status = pbxt_cursor_judge(cursor_, judge_entry, this);
  return to_ha_error(status, ha_thd());
}

void ha_pbxt::close_cursor() {
  if (cursor_) {
    unbind();
    pbxt_cursor_close(cursor_);
    cursor_ = nullptr;
    if (key_maker_) pbxt_cursor_close(key_maker_);
    key_maker_ = nullptr;
  }
  end_probe();
  open_table_.reset();
}

/* TRUNCATE through another handler of the same share may have replaced the generation this cursor belongs to.
   It does so under an exclusive metadata lock, so no lock is needed to look. */
int ha_pbxt::use_current_generation() {
  if (likely(cursor_ && share_->current == open_table_)) return 0;
  close_cursor();
  return open_cursor();
}

int ha_pbxt::open(const char* name, int, uint) noexcept {
  name_ = name;
  if (int error = open_cursor()) return to_open_error(error, name, ha_thd());
  stats.block_size = kBlockSize;
  key_used_on_scan = MAX_KEY;
  learn_former();
  open_table_->extended_keys().correct(table);
  ref_length = open_table_->extended_keys().order_bytes() + sizeof(uint64_t);
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
}

/* The server does not say to a clone how rows are to be read: it begins with what its original knows. */
handler* ha_pbxt::clone(const char* name, MEM_ROOT* mem_root) {
  handler* copy = handler::clone(name, mem_root);
  if (!copy) return nullptr;
  ha_pbxt* cloned = static_cast<ha_pbxt*>(copy);
  cloned->is_clone_ = true;
  cloned->sql_lock_ = sql_lock_;
  return copy;
}

int ha_pbxt::close() {
  close_cursor();
  return 0;
}

int ha_pbxt::extra(enum ha_extra_function operation) {
  switch (operation) {
    case HA_EXTRA_IGNORE_DUP_KEY:
      wants_row_answers_ = true;
      // REPLACE says no more than this of a table with triggers for DELETE.
      if (ha_thd()->lex->duplicates == DUP_REPLACE) replaces_taken_ = true;
      break;
    case HA_EXTRA_WRITE_CAN_REPLACE:
    case HA_EXTRA_INSERT_WITH_UPDATE:
      wants_row_answers_ = replaces_taken_ = true;
      break;
    case HA_EXTRA_NO_IGNORE_DUP_KEY:
    case HA_EXTRA_WRITE_CANNOT_REPLACE:
      wants_row_answers_ = replaces_taken_ = false;
      break;
    case HA_EXTRA_KEYREAD_PRESERVE_FIELDS:
      is_merged_ = true;
      break;
    case HA_EXTRA_NO_KEYREAD:
      is_merged_ = false;
      break;
    case HA_EXTRA_NO_CACHE:
      // Said between rnd_init and the first row by an UPDATE of several tables that comes back to those that
      // fit.
      refers_to_changes_ = !scan_open_ && pending_ == Pending::kNothing;
      break;
    case HA_EXTRA_BEGIN_COPY:
    case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY:
      return begin_copy();
    default:
      break;
  }
  return 0;
}

int ha_pbxt::reset() {
  bulk_announced_ = wants_row_answers_ = replaces_taken_ = is_merged_ = false;
  cond_pop();
  if (cursor_) pbxt_cursor_reset(cursor_);  // none after a TRUNCATE that could not open the table again
  pending_ = Pending::kNothing;
  seek_is_current_ = range_end_set_ = in_range_first_ = scan_open_ = is_left_ = is_settled_ = false;
  computes_ = Computed::kNothing;
  columns_changed_ = true;
  return 0;
}

/* ---- statements ---- */

THR_LOCK_DATA** ha_pbxt::store_lock(THD*, THR_LOCK_DATA** to, thr_lock_type lock_type) {
  // The server's table locks are not used: lock_count() is 0. The type tells how rows are to be read.
  if (lock_type != TL_IGNORE) sql_lock_ = lock_type;
  return to;
}

/* What a statement reads here while it changes tables of another engine is not locked until it ends (rule
 * T56): repeated in the order of commits it might read other rows. The server chooses rows for tables that
 * are written only, so it is told that the statement is not safe: MIXED then logs rows, STATEMENT warns. */
static void ask_for_rows(THD* thd, thr_lock_type lock_type) {
  if (lock_type == TL_READ_NO_INSERT && sqlcom_can_generate_row_events(thd))
    thd->lex->set_stmt_unsafe(LEX::BINLOG_STMT_UNSAFE_MULTIPLE_ENGINES_AND_SELF_LOGGING_ENGINE);
}

int ha_pbxt::bind(THD* thd, thr_lock_type lock_type) {
  ask_for_rows(thd, lock_type);
  if (int error = use_current_generation()) return error;
  if (unlikely(is_applier(thd)) && repeats_statement(thd) && thd->wait_for_prior_commit())
    return HA_ERR_ABORTED_BY_USER;
  int error = 0;
  Session* session = Session::get(thd, &error);
  if (!session || (error = session->join())) return error;
  // Rule T54: before the copy's snapshot is taken.
  if (unlikely(may_copy(thd)) &&
      (error = fail(pbxt_table_wait_for_prepared(open_table_->core(), session->core()))))
    return error;
  bool writes = lock_type >= TL_FIRST_WRITE;
  bool locking_read = writes && is_locking_read(thd, table);
  binding_ = pbxt_bind{};
  binding_.for_write = writes && !locking_read;
  binding_.autonomous = table->s->sequence != nullptr;
  binding_.check_foreign_keys = must_check_foreign_keys(thd);
  binding_.leave_out_damaged = leaves_out_damaged(thd);
  binding_.skip_locked = lock_type == TL_READ_SKIP_LOCKED || lock_type == TL_WRITE_SKIP_LOCKED;
  // Rule T52: a sequence has no rows to be locked.
  if (binding_.autonomous)
    binding_.lock_mode = PBXT_LOCK_NONE;
  else if (locking_read || lock_type == TL_WRITE_SKIP_LOCKED)
    binding_.lock_mode = PBXT_LOCK_EXCLUSIVE;
  else if (lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_SKIP_LOCKED)
    binding_.lock_mode = PBXT_LOCK_SHARED;
  bool by_snapshot = (binding_.for_write || is_clone_) && !pbxt_reads_newest(cursor_, session->core());
  holds_left_ = binding_.for_write && by_snapshot;
  // Rule T45: rows that a merged scan finds by its snapshot are judged when they are locked or changed. Only
  // the scan can leave out rows that others have locked.
  if (is_clone_ && by_snapshot) {
    binding_.for_write = 0;
    if (!binding_.skip_locked) binding_.lock_mode = PBXT_LOCK_NONE;
  }
  all_columns_ = binding_.for_write && !is_clone_;
  columns_changed_ = true;
  if ((error = to_ha_error(pbxt_cursor_bind(cursor_, session->core(), &binding_), thd))) return error;
  session_ = session;
  rows_found_ = rows_changed_ = 0;
  told_error_ = 0;
  return 0;
}

/* Reads find and hold the newest rows, also those of transactions younger than the snapshot, until it is
 * turned off again. */
int ha_pbxt::read_newest(bool on) {
  pbxt_bind wanted = binding_;
  if (on) {
    wanted.lock_mode = PBXT_LOCK_EXCLUSIVE;
    wanted.newest = 1;
  }
  reads_newest_ = on;
  columns_changed_ = true;
  return fail(pbxt_cursor_bind(cursor_, session_->core(), &wanted));
}

void ha_pbxt::unbind() {
  if (!session_) return;
  // The server ends what it began; what it did not belongs to a statement that failed.
  if (bulk_open_) pbxt_bulk_end(cursor_, 1);
  bulk_open_ = bulk_announced_ = false;
  reads_newest_ = holds_left_ = is_left_ = false;
  pbxt_cursor_unbind(cursor_);
  session_ = nullptr;
}

int ha_pbxt::external_lock(THD* thd, int lock_type) {
  if (lock_type == F_UNLCK) {
    unbind();
    sql_lock_ = TL_UNLOCK;
    return 0;
  }
  thr_lock_type type = sql_lock_;
  if (type == TL_UNLOCK) type = lock_type == F_WRLCK ? TL_WRITE : TL_READ;
  return bind(thd, type);
}

int ha_pbxt::start_stmt(THD* thd, thr_lock_type lock_type) {
  sql_lock_ = lock_type;
  cached_table_flags = table_flags();  // as the server does after external_lock
  return bind(thd, lock_type);
}

/* A change of a row changes the entries of indexes on virtual columns: the server must compute those columns.
 */
void ha_pbxt::column_bitmaps_signal() {
  columns_changed_ = true;
  if (!table->vfield || table->current_lock != F_WRLCK) return;
  for (Field** field = table->vfield; *field; field++)
    if (Definition::is_indexed_virtual(*field)) table->mark_virtual_column_with_deps(*field);
}

/* The server evaluates all of it again. A second condition replaces the first: to forget one is always right.
 * A statement that changes rows numbers those it reads, for its warnings: it gets them all. */
const COND* ha_pbxt::cond_push(const COND* condition) {
  const COND* pushed = binding_.for_write ? nullptr : condition;
  if (cursor_) condition_pushed_ = push_condition(ha_thd(), table, pushed, cursor_);
  return condition;
}

void ha_pbxt::cond_pop() {
  if (!condition_pushed_) return;
  condition_pushed_ = false;
  if (cursor_) push_condition(ha_thd(), table, nullptr, cursor_);
}

int ha_pbxt::fail(pbxt_status status) const {
  int error = to_ha_error(status, ha_thd());
  if (error == HA_ERR_NO_REFERENCED_ROW) explain_missing_parent();
  return error;
}

bool ha_pbxt::get_error_message(int error, String* buffer) {
  if (error == HA_ERR_ROW_IS_REFERENCED || error == HA_ERR_NO_REFERENCED_ROW) append_violation(buffer);
  if (is_engine_error(error) || error == HA_ERR_ROLLBACK) buffer->append(error_text(), strlen(error_text()));
  return false;
}

/* Fatal errors pass by the handlers of stored programs, but a conflict met while changing a row is theirs to
   catch. Under IGNORE it stays fatal: a row that could not be changed must not be skipped. */
bool ha_pbxt::is_fatal_error(int error, uint flags) {
  bool is_conflict =
      error == HA_ERR_RECORD_CHANGED || error == HA_ERR_LOCK_DEADLOCK || error == HA_ERR_LOCK_WAIT_TIMEOUT;
  return is_conflict ? ha_thd()->lex->ignore : handler::is_fatal_error(error, flags);
}

/* ---- statistics and costs ---- */

/* The optimizer takes no rows for a fact; a table that others write to has no such facts. */
static ha_rows rows_for_optimizer(uint64_t rows) {
  return std::max<uint64_t>(rows, 1);
}

/* Rule X54: what the engine said to the optimizer's last question is still good enough, with the number of
 * rows that there are now. */
bool ha_pbxt::numbers_will_do(uint flag) {
  if ((flag & ~HA_STATUS_NO_LOCK) != HA_STATUS_VARIABLE || table->part_info) return false;
  uint64_t rows = pbxt_rows_estimate(open_table_->core());
  uint64_t difference = rows > numbers_rows_ ? rows - numbers_rows_ : numbers_rows_ - rows;
  ulonglong now = my_hrtime_coarse().val;
  if (now - numbers_asked_at_ >= kNumbersLast || difference > numbers_rows_ / 10) {
    numbers_asked_at_ = now;
    numbers_rows_ = rows;
    return false;
  }
  stats.records = rows_for_optimizer(rows);
  return true;
}

/* When a table is opened the server asks its parts how many rows they have, and goes on to the next part for
 * history if one has reached the limit: what the running transaction has put there counts too. */
uint64_t ha_pbxt::rows_of_own_part() const {
  uint64_t rows = pbxt_rows_estimate(open_table_->core());
  Session* session = Session::find(ha_thd());
  int64_t own = session ? pbxt_rows_of_own(open_table_->core(), session->core()) : 0;
  return own < 0 && rows < static_cast<uint64_t>(-own) ? 0 : rows + own;
}

void ha_pbxt::read_table_size(uint flag) {
  pbxt_table_info size{};
  if (pbxt_get_table_info(open_table_->core(), &size) != PBXT_OK) return;
  if ((flag & HA_STATUS_OPEN) && table->part_info) size.rows_estimate = rows_of_own_part();
  bool is_shown = flag & (HA_STATUS_TIME | HA_STATUS_OPEN);  // SHOW gets the true number
  stats.records = is_shown ? size.rows_estimate : rows_for_optimizer(size.rows_estimate);
  stats.data_file_length = size.data_bytes;
  stats.index_file_length = size.index_bytes;
  stats.delete_length = size.superseded_bytes;
  stats.mean_rec_length = static_cast<ulong>(size.mean_row_bytes);
  stats.create_time = static_cast<time_t>(size.created_unix_seconds);
  if (flag & HA_STATUS_TIME) stats.update_time = static_cast<time_t>(size.updated_unix_seconds);
  if (flag & HA_STATUS_AUTO) stats.auto_increment_value = size.auto_increment_next;
}

/* The numbers belong to all handlers of the table, which write them at any time: only where they changed, and
 * each as a whole. The optimizer reads them so. */
void ha_pbxt::read_key_statistics() {
  uint64_t rows[MAX_REF_PARTS];
  for (uint i = 0; i < table->s->keys; i++) {
    KEY& key = table->key_info[i];
    uint parts = key.ext_key_parts;
    if (!key.rec_per_key || parts > MAX_REF_PARTS) continue;
    std::fill_n(rows, parts, 0);
    if (pbxt_rows_per_key(open_table_->core(), i, rows, parts) != PBXT_OK) continue;
    for (uint j = 0; j < parts; j++) {
      ulong* shared = &key.rec_per_key[j];
      ulong now = static_cast<ulong>(rows[j]);
      if (__atomic_load_n(shared, __ATOMIC_RELAXED) != now) __atomic_store_n(shared, now, __ATOMIC_RELAXED);
    }
  }
}

int ha_pbxt::info(uint flag) {
  if (!open_table_) return HA_ERR_NO_SUCH_TABLE;
  if (numbers_will_do(flag)) return 0;
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_AUTO | HA_STATUS_TIME)) read_table_size(flag);
  if (flag & HA_STATUS_CONST) stats.block_size = kBlockSize;
  // The optimizer asks once per statement and table; the engine samples only indexes that have grown. All
  // partitions write the same numbers, so there it must be the one partition that the server chooses.
  bool is_asked = flag & (table->part_info ? HA_STATUS_CONST : HA_STATUS_CONST | HA_STATUS_VARIABLE);
  if (is_asked) read_key_statistics();
  if (flag & HA_STATUS_ERRKEY) errkey = duplicate_index_;
  return 0;
}

/* HA_WHOLE_KEY has all bits set and means the declared parts: whoever says so has copied no others. */
uint ha_pbxt::parts_in(uint index, key_part_map map) const {
  const KEY& key = table->key_info[index];
  return map == HA_WHOLE_KEY ? key.user_defined_key_parts : std::min(my_count_bits(map), key.ext_key_parts);
}

/* Whole units (rule X57). */
double ha_pbxt::scan_time() {
  return std::ceil(static_cast<double>(stats.data_file_length) / kScanBytesPerUnit) + 2;
}

double ha_pbxt::read_time(uint, uint ranges, ha_rows rows) {
  return static_cast<double>(ranges + rows);
}

double ha_pbxt::keyread_time(uint index, uint ranges, ha_rows rows) {
  return handler::keyread_time(index, ranges, rows) + kEntryUnits * static_cast<double>(rows);
}

ha_rows ha_pbxt::records() {
  if (!session_) return stats.records;
  if (binding_.lock_mode != PBXT_LOCK_NONE) return HA_POS_ERROR;  // rows to be locked must be read
  uint64_t rows = 0;
  return pbxt_count(cursor_, session_->core(), &rows) == PBXT_OK ? rows : HA_POS_ERROR;
}

ha_rows ha_pbxt::records_in_range(uint index, const key_range* low, const key_range* high, page_range*) {
  uint64_t rows = 0;
  pbxt_status status = pbxt_range_estimate(
      open_table_->core(), index, low ? low->key : nullptr, low ? parts_in(index, low->keypart_map) : 0,
      low && low->flag != HA_READ_AFTER_KEY, high ? high->key : nullptr,
      high ? parts_in(index, high->keypart_map) : 0, high && high->flag != HA_READ_BEFORE_KEY, &rows);
  if (status != PBXT_OK) return HA_POS_ERROR;
  return rows == 0 ? 1 : rows;  // 0 would be taken for a fact, and the statement not run at all
}

}  // namespace pbxt
