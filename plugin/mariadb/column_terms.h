/*
 * column_terms.h: what a condition says of single columns of a table, in terms of the columns' own values.
 */
#ifndef PBXT_PLUGIN_COLUMN_TERMS_H
#define PBXT_PLUGIN_COLUMN_TERMS_H

#include <vector>

#include "plugin.h"

class Item_func_between;
class Item_func_in;

namespace pbxt {

/* How a column's values compare with constants. kText: by a collation, not by their bytes. */
enum class Domain { kNone, kInteger, kDecimal, kReal, kDateTime, kTimestamp, kBinary, kText };

enum class TextColumns { kLeftOut, kTaken };

/* kText only where text is taken. */
Domain domain_of(const Field* field, TextColumns text);

/* The type by which the server compares a column of the domain with the constant; ROW_RESULT: not as the
   column's values order. */
Item_result comparison_of(Domain domain, Item* constant);

/* Bounds of a column or a test for NULL. A bound is the column's bytes in a record; those of text and of
   binary strings are the value alone. */
struct ColumnTerm {
  using Bytes = std::vector<uint8_t>;

  Field* field;
  Domain domain;
  pbxt_condition_kind kind;
  bool has_low, has_high, low_inclusive, high_inclusive;
  Bytes low, high;
};

/* The terms of a condition that are joined by AND. */
class ColumnTerms {
 public:
  ColumnTerms(THD* thd, TABLE* table, TextColumns text) : thd_(thd), table_(table), text_(text) {}

  void add(Item* condition);
  const std::vector<ColumnTerm>& terms() const { return terms_; }
  /* The terms together say what the conditions said, and not less. */
  bool is_whole() const { return is_whole_; }

 private:
  using Bytes = ColumnTerm::Bytes;

  Field* own_field(Item* item) const;
  bool value_of(Field* field, Domain domain, Item* constant, Bytes* value) const;
  bool store(Field* copy, Domain domain, Item* constant) const;
  bool characters_of(Field* field, Domain domain, Item* constant, Bytes* value) const;
  bool seconds_of(Item* constant, my_time_t margin, Bytes* value) const;
  bool add_function(Item_func* function);
  bool add_null_test(Item_func* test, pbxt_condition_kind kind);
  bool add_comparison(Item_func* comparison);
  bool add_between(Item_func_between* between);
  bool add_in(Item_func_in* in);
  bool add_range(Field* field, Domain domain, Item* low, bool low_inclusive, Item* high, bool high_inclusive);
  bool bound_of(Field* field, Domain domain, Item* constant, bool is_low, bool* inclusive,
                Bytes* value) const;
  bool try_bound(Field* field, Domain domain, Item* constant, bool is_low, bool* inclusive,
                 Bytes* value) const;

  THD* thd_;
  TABLE* table_;
  TextColumns text_;
  std::vector<ColumnTerm> terms_;
  bool is_whole_ = true;
};

}  // namespace pbxt

#endif
