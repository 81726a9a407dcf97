/*
 * column_terms.cc: COND -> ColumnTerm: comparisons of a column with constants, joined by AND.
 *
 * A constant becomes a bound only where the server compares as the column's own type does, and where the
 * column can hold the constant as it is: it is stored into a copy of the field, and what the field then has
 * must be the constant. A constant that is an error or has a warning is left to the server, which says so
 * when it evaluates it. What is left out, or said less exactly, makes the terms less than whole.
 */
#include "column_terms.h"

#include <string.h>

#include "item_cmpfunc.h"
#include "my_decimal.h"
#include "sql_time.h"
#include "tztime.h"

namespace pbxt {
namespace {

using Bytes = ColumnTerm::Bytes;

/* Conversions are tried out here: the user does not hear what they complain about. */
class Silence {
 public:
  explicit Silence(THD* thd) : thd_(thd), check_(thd->count_cuted_fields) {
    thd->count_cuted_fields = CHECK_FIELD_IGNORE;
    thd->push_internal_handler(&handler_);
  }
  ~Silence() {
    thd_->pop_internal_handler();
    thd_->count_cuted_fields = check_;
  }
  bool was_broken() { return handler_.any_error(); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  THD* thd_;
  enum_check_fields check_;
  Dummy_error_handler handler_;
};

/* Local times, by which the server compares, may be out of step with points in time for so long when clocks
   are changed; whole days have been left out. */
constexpr my_time_t kClockChangeSeconds = 2 * 86400;

/* True if the constant may be evaluated now. A subquery keeps its value: its error nobody would hear. */
bool is_constant(Item* item) {
  if (!item->can_eval_in_optimize() || item->with_subquery()) return false;
  if (item->type() != Item::CACHE_ITEM) return true;
  const Item* kept = static_cast<Item_cache*>(item)->get_example();
  return !kept || !kept->with_subquery();
}

/* The server keeps the values of constants: this one it is to evaluate itself. */
void forget_value(Item* constant) {
  if (constant->type() != Item::CACHE_ITEM) return;
  Item_cache* cache = static_cast<Item_cache*>(constant);
  if (cache->get_example()) cache->clear();
}

}  // namespace

Domain domain_of(const Field* field, TextColumns text) {
  if (!field->stored_in_db()) return Domain::kNone;
  const Type_handler* handler = field->type_handler();
  switch (field->real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
      return Domain::kInteger;
    case MYSQL_TYPE_YEAR:
      // Of two digits the server compares the digits, and the column orders the years they stand for.
      return field->field_length == 4 ? Domain::kInteger : Domain::kNone;
    case MYSQL_TYPE_NEWDECIMAL:
      return Domain::kDecimal;
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
      // With a fixed number of decimals the server takes close values for equal.
      return field->decimals() >= NOT_FIXED_DEC ? Domain::kReal : Domain::kNone;
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_DATETIME2:
      return Domain::kDateTime;
    case MYSQL_TYPE_TIMESTAMP2:
      return Domain::kTimestamp;
    case MYSQL_TYPE_STRING:
    case MYSQL_TYPE_VARCHAR:
      if (handler != &type_handler_string && handler != &type_handler_varchar) return Domain::kNone;
      if (field->charset() == &my_charset_bin) return Domain::kBinary;
      // Under NO PAD a condition compares CHAR without the spaces at its end, and an index with them.
      if (handler == &type_handler_string && field->charset()->state & MY_CS_NOPAD) return Domain::kNone;
      return text == TextColumns::kTaken ? Domain::kText : Domain::kNone;
    default:
      return Domain::kNone;
  }
}

/* The type by which the server compares a column of the domain with the constant; ROW_RESULT: not as the
   column's values order. */
Item_result comparison_of(Domain domain, Item* constant) {
  Item_result type = constant->cmp_type();
  switch (domain) {
    case Domain::kInteger:
      return type == INT_RESULT ? INT_RESULT : ROW_RESULT;
    case Domain::kDecimal:
      return type == INT_RESULT || type == DECIMAL_RESULT ? DECIMAL_RESULT : ROW_RESULT;
    case Domain::kReal:
      return type == INT_RESULT || type == DECIMAL_RESULT || type == REAL_RESULT ? REAL_RESULT : ROW_RESULT;
    case Domain::kDateTime:
    case Domain::kTimestamp: {
      if (type == STRING_RESULT) return TIME_RESULT;
      enum_mysql_timestamp_type kind = constant->type_handler()->mysql_timestamp_type();
      bool has_date = kind == MYSQL_TIMESTAMP_DATE || kind == MYSQL_TIMESTAMP_DATETIME;
      return type == TIME_RESULT && has_date ? TIME_RESULT : ROW_RESULT;
    }
    case Domain::kBinary:
    case Domain::kText:
      return type == STRING_RESULT ? STRING_RESULT : ROW_RESULT;
    default:
      return ROW_RESULT;
  }
}

/* The stored column of this table that the item is, if it is one. */
Field* ColumnTerms::own_field(Item* item) const {
  Item* real = item->real_item();
  if (real->type() != Item::FIELD_ITEM) return nullptr;
  Field* field = static_cast<Item_field*>(real)->field;
  return field && field->table == table_ ? field : nullptr;
}

/* Stores the constant; true if the field then has exactly its value. */
bool ColumnTerms::store(Field* copy, Domain domain, Item* constant) const {
  switch (domain) {
    case Domain::kInteger: {
      longlong number = constant->val_int();
      if (constant->null_value || (number < 0 && constant->unsigned_flag != copy->is_unsigned()))
        return false;
      return copy->store(number, constant->unsigned_flag) == 0 && copy->val_int() == number;
    }
    case Domain::kDecimal: {
      my_decimal buffer, stored;
      my_decimal* number = constant->val_decimal(&buffer);
      if (!number || constant->null_value || copy->store_decimal(number)) return false;
      return my_decimal_cmp(copy->val_decimal(&stored), number) == 0;
    }
    case Domain::kReal: {
      double number = constant->val_real();
      return !constant->null_value && copy->store(number) == 0 && copy->val_real() == number;
    }
    case Domain::kDateTime: {
      longlong packed = constant->val_datetime_packed(thd_);
      if (constant->null_value || packed == 0) return false;
      MYSQL_TIME time;
      unpack_time(packed, &time, MYSQL_TIMESTAMP_DATETIME);
      return copy->store_time_dec(&time, TIME_SECOND_PART_DIGITS) == 0 &&
             copy->val_datetime_packed(thd_) == packed;
    }
    default:
      return false;
  }
}

/* A time stamp as stored, moved by the margin and without its fraction. */
bool ColumnTerms::seconds_of(Item* constant, my_time_t margin, Bytes* value) const {
  longlong packed = constant->val_datetime_packed(thd_);
  if (constant->null_value || packed == 0) return false;
  MYSQL_TIME time;
  unpack_time(packed, &time, MYSQL_TIMESTAMP_DATETIME);
  uint error = 0;
  my_time_t seconds = TIME_to_timestamp(thd_, &time, &error);
  // A time that the clocks leave out is close enough to the next one that they show.
  if ((error && error != ER_WARN_INVALID_TIMESTAMP) || seconds <= kClockChangeSeconds) return false;
  seconds += margin;
  if (seconds > static_cast<my_time_t>(UINT_MAX32)) return false;
  mi_int4store(value->data(), static_cast<uint32>(seconds));
  return true;
}

/* The constant as the column stores it; false if it has no place in the column's order. */
bool ColumnTerms::value_of(Field* field, Domain domain, Item* constant, Bytes* value) const {
  value->assign(field->pack_length(), 0);
  Field* copy = field->clone(thd_->mem_root, table_);
  if (!copy) return false;
  copy->move_field(value->data(), nullptr, 0);
  return store(copy, domain, constant);
}

bool ColumnTerms::bound_of(Field* field, Domain domain, Item* constant, bool is_low, bool* inclusive,
                           Bytes* value) const {
  Silence silence(thd_);
  bool is_bound = try_bound(field, domain, constant, is_low, inclusive, value);
  if (!silence.was_broken()) return is_bound;
  forget_value(constant);
  return false;
}

/* The characters as they are. Where text is taken, false if the column cannot hold them so: it cuts them off,
 * or fills them up with what the comparison would see. */
bool ColumnTerms::characters_of(Field* field, Domain domain, Item* constant, Bytes* value) const {
  StringBuffer<64> buffer, kept_buffer;
  String* text = constant->val_str(&buffer);
  if (!text || constant->null_value) return false;
  const uint8_t* begin = reinterpret_cast<const uint8_t*>(text->ptr());
  value->assign(begin, begin + text->length());
  if (text_ == TextColumns::kLeftOut) return true;
  if (domain == Domain::kText && !my_charset_same(text->charset(), field->charset())) return false;
  Bytes record(field->pack_length());
  Field* copy = field->clone(thd_->mem_root, table_);
  if (!copy) return false;
  copy->move_field(record.data(), nullptr, 0);
  if (copy->store(text->ptr(), text->length(), field->charset()) != 0) return false;
  String* kept = copy->val_str(&kept_buffer);
  return kept->length() == value->size() &&
         (value->empty() || memcmp(kept->ptr(), value->data(), value->size()) == 0);
}

bool ColumnTerms::try_bound(Field* field, Domain domain, Item* constant, bool is_low, bool* inclusive,
                            Bytes* value) const {
  switch (domain) {
    case Domain::kBinary:
    case Domain::kText:
      return characters_of(field, domain, constant, value);
    case Domain::kTimestamp:
      *inclusive = true;
      value->assign(field->pack_length(), 0);
      return seconds_of(constant, is_low ? -kClockChangeSeconds : kClockChangeSeconds, value);
    default:
      return value_of(field, domain, constant, value);
  }
}

/* Constants have been checked to compare by the column's type. A bound that cannot be had is left out. */
bool ColumnTerms::add_range(Field* field, Domain domain, Item* low, bool low_inclusive, Item* high,
                            bool high_inclusive) {
  ColumnTerm term{field, domain, PBXT_IS_BETWEEN, false, false, low_inclusive, high_inclusive, {}, {}};
  term.has_low = low && bound_of(field, domain, low, true, &term.low_inclusive, &term.low);
  term.has_high = high && bound_of(field, domain, high, false, &term.high_inclusive, &term.high);
  bool is_whole = term.has_low == (low != nullptr) && term.has_high == (high != nullptr);
  if (term.has_low || term.has_high) terms_.push_back(std::move(term));
  return is_whole && domain != Domain::kTimestamp;
}

bool ColumnTerms::add_comparison(Item_func* function) {
  Item_bool_rowready_func2* comparison = static_cast<Item_bool_rowready_func2*>(function);
  Item_func::Functype operation = function->functype();
  Item** arguments = comparison->arguments();
  Field* field = own_field(arguments[0]);
  Item* constant = arguments[1];
  bool is_swapped = !field;
  if (is_swapped) {
    field = own_field(arguments[1]);
    constant = arguments[0];
  }
  if (!field || !is_constant(constant)) return false;
  Domain domain = domain_of(field, text_);
  Item_result type = comparison_of(domain, constant);
  if (type == ROW_RESULT || comparison->compare_type_handler()->cmp_type() != type) return false;
  if (type == STRING_RESULT && comparison->compare_collation() != field->charset()) return false;
  bool is_equal = operation == Item_func::EQ_FUNC;
  bool is_less = operation == Item_func::LT_FUNC || operation == Item_func::LE_FUNC;
  bool inclusive = operation != Item_func::LT_FUNC && operation != Item_func::GT_FUNC;
  bool is_upper = is_less != is_swapped;
  return add_range(field, domain, is_equal || !is_upper ? constant : nullptr, inclusive,
                   is_equal || is_upper ? constant : nullptr, inclusive);
}

bool ColumnTerms::add_between(Item_func_between* between) {
  Item** arguments = between->arguments();
  Field* field = own_field(arguments[0]);
  if (!field || between->negated) return false;
  Domain domain = domain_of(field, text_);
  for (uint i = 1; i < 3; i++) {
    if (!is_constant(arguments[i])) return false;
    if (comparison_of(domain, arguments[i]) == ROW_RESULT) return false;
  }
  bool is_string = domain == Domain::kBinary || domain == Domain::kText;
  if (is_string && between->compare_collation() != field->charset()) return false;
  return add_range(field, domain, arguments[1], true, arguments[2], true);
}

/* The least and the greatest of the constants. NULL among them matches nothing, but is left to the server.
 * False: there is more between them. */
bool ColumnTerms::add_in(Item_func_in* in) {
  Item** arguments = in->arguments();
  Field* field = own_field(arguments[0]);
  if (!field || in->negated || in->argument_count() < 2) return false;
  Domain domain = domain_of(field, text_);
  if (domain == Domain::kTimestamp || domain == Domain::kBinary || domain == Domain::kText) return false;
  Bytes least, greatest, value;
  for (uint i = 1; i < in->argument_count(); i++) {
    Item* constant = arguments[i];
    bool inclusive = true;
    if (!is_constant(constant) || comparison_of(domain, constant) == ROW_RESULT) return false;
    if (!bound_of(field, domain, constant, true, &inclusive, &value)) return false;
    if (i == 1 || field->cmp(value.data(), least.data()) < 0) least = value;
    if (i == 1 || field->cmp(value.data(), greatest.data()) > 0) greatest = value;
  }
  terms_.push_back({field, domain, PBXT_IS_BETWEEN, true, true, true, true, least, greatest});
  return false;
}

bool ColumnTerms::add_null_test(Item_func* test, pbxt_condition_kind kind) {
  Field* field = own_field(test->arguments()[0]);
  if (!field || !field->stored_in_db() || !field->real_maybe_null()) return false;
  terms_.push_back({field, domain_of(field, text_), kind, false, false, false, false, {}, {}});
  return true;
}

bool ColumnTerms::add_function(Item_func* function) {
  switch (function->functype()) {
    case Item_func::EQ_FUNC:
    case Item_func::LT_FUNC:
    case Item_func::LE_FUNC:
    case Item_func::GE_FUNC:
    case Item_func::GT_FUNC:
      return add_comparison(function);
    case Item_func::BETWEEN:
      return add_between(static_cast<Item_func_between*>(function));
    case Item_func::IN_FUNC:
      return add_in(static_cast<Item_func_in*>(function));
    case Item_func::ISNULL_FUNC:
      return add_null_test(function, PBXT_IS_NULL);
    case Item_func::ISNOTNULL_FUNC:
      return add_null_test(function, PBXT_IS_NOT_NULL);
    default:
      return false;
  }
}

void ColumnTerms::add(Item* condition) {
  bool is_and = condition->type() == Item::COND_ITEM &&
                static_cast<Item_cond*>(condition)->functype() == Item_func::COND_AND_FUNC;
  if (is_and) {
    List_iterator<Item> items(*static_cast<Item_cond*>(condition)->argument_list());
    while (Item* item = items++) add(item);
  } else if (condition->type() != Item::FUNC_ITEM || !add_function(static_cast<Item_func*>(condition))) {
    is_whole_ = false;
  }
}

}  // namespace pbxt
