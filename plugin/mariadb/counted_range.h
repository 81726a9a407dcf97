/*
 * counted_range.h: SELECT COUNT(*) over a range of an index, counted by the engine.
 */
#ifndef PBXT_PLUGIN_COUNTED_RANGE_H
#define PBXT_PLUGIN_COUNTED_RANGE_H

#include "plugin.h"

struct Query;
class group_by_handler;

namespace pbxt {

/* For the server, behind its choice of a plan: null, or what runs the whole query instead of the plan. */
group_by_handler* count_range(THD* thd, Query* query) noexcept;

}  // namespace pbxt

#endif
