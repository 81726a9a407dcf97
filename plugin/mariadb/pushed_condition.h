/*
 * pushed_condition.h: the part of a statement's WHERE that the engine can judge by itself.
 */
#ifndef PBXT_PLUGIN_PUSHED_CONDITION_H
#define PBXT_PLUGIN_PUSHED_CONDITION_H

#include "plugin.h"

namespace pbxt {

/* Tells the cursor's table scans which rows of `table` they may leave out, as `condition` says; null: none.
   True if they may leave out some. */
bool push_condition(THD* thd, TABLE* table, const COND* condition, pbxt_cursor* cursor) noexcept;

/* True if the condition is nothing but comparisons of the column with constants, joined by AND: the ranges
   that the server makes of it have no entry that does not meet it. */
bool is_all_ranges(Item* condition, const Field* field) noexcept;

}  // namespace pbxt

#endif
