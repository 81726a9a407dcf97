/*
 * pushed_condition.cc: ColumnTerm -> pbxt_condition.
 *
 * The server evaluates the whole condition again on every row it gets, so a term that is left out costs time
 * only; a term that says more than the server's comparison would lose rows.
 */
#include "pushed_condition.h"

#include <vector>

#include "column_terms.h"
#include "item_cmpfunc.h"

namespace pbxt {
namespace {

/* An empty value is a bound too, and has no address of its own. */
const uint8_t* address_of(const ColumnTerm::Bytes& value) {
  static const uint8_t kNothing = 0;
  return value.empty() ? &kNothing : value.data();
}

bool send(const ColumnTerms& terms, pbxt_cursor* cursor) {
  std::vector<pbxt_condition> conditions;
  conditions.reserve(terms.terms().size());
  for (const ColumnTerm& term : terms.terms()) {
    pbxt_condition condition{};
    condition.column = term.field->field_index;
    condition.kind = term.kind;
    condition.low_inclusive = term.low_inclusive;
    condition.high_inclusive = term.high_inclusive;
    if (term.has_low) condition.low = address_of(term.low);
    if (term.has_high) condition.high = address_of(term.high);
    condition.low_len = term.low.size();
    condition.high_len = term.high.size();
    conditions.push_back(condition);
  }
  uint32_t count = static_cast<uint32_t>(conditions.size());
  return pbxt_cursor_filter(cursor, conditions.data(), count) == PBXT_OK && count > 0;
}

/* A comparison of the column with constants, by the column's own type: the server makes a range of it. */
bool is_range_of(Item* condition, const Field* field) {
  if (condition->type() != Item::FUNC_ITEM) return false;
  Item_func* function = static_cast<Item_func*>(condition);
  switch (function->functype()) {
    case Item_func::EQ_FUNC:
    case Item_func::LT_FUNC:
    case Item_func::LE_FUNC:
    case Item_func::GE_FUNC:
    case Item_func::GT_FUNC:
      break;
    case Item_func::BETWEEN:
    case Item_func::IN_FUNC:
      if (static_cast<Item_func_opt_neg*>(function)->negated) return false;
      break;
    default:
      return false;
  }
  Domain domain = domain_of(field, TextColumns::kLeftOut);
  for (uint i = 0; i < function->argument_count(); i++) {
    Item* argument = function->arguments()[i];
    Item* real = argument->real_item();
    bool is_column = real->type() == Item::FIELD_ITEM && static_cast<Item_field*>(real)->field == field;
    if (is_column) continue;
    if (!argument->can_eval_in_optimize() || comparison_of(domain, argument) == ROW_RESULT) return false;
  }
  return true;
}

}  // namespace

bool push_condition(THD* thd, TABLE* table, const COND* condition, pbxt_cursor* cursor) noexcept {
  // The engine compares bytes.
  ColumnTerms terms(thd, table, TextColumns::kLeftOut);
  if (condition) terms.add(const_cast<COND*>(condition));
  return send(terms, cursor);
}

bool is_all_ranges(Item* condition, const Field* field) noexcept {
  if (condition->type() != Item::COND_ITEM) return is_range_of(condition, field);
  Item_cond* all = static_cast<Item_cond*>(condition);
  if (all->functype() != Item_func::COND_AND_FUNC) return false;
  List_iterator<Item> items(*all->argument_list());
  while (Item* item = items++)
    if (!is_range_of(item, field)) return false;
  return true;
}

}  // namespace pbxt
