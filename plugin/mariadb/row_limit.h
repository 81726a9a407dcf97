/*
 * row_limit.h: how many rows a statement will ask a scan for.
 */
#ifndef PBXT_PLUGIN_ROW_LIMIT_H
#define PBXT_PLUGIN_ROW_LIMIT_H

#include "plugin.h"

namespace pbxt {

/* By its LIMIT, offset included; 0 where that says nothing. `in_order`: the scan gives the order that the
 * statement wants. A condition may turn rows away, so it is a hint. */
uint64_t rows_wanted(THD* thd, const TABLE* table, bool in_order);

}  // namespace pbxt

#endif
