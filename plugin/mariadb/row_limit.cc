/*
 * row_limit.cc: looks into the server's plan, which a handler is not told of.
 */
#include "row_limit.h"

#include "sql_select.h"

namespace pbxt {

namespace {

/* DELETE and UPDATE of one table have no plan to look into. */
uint64_t rows_to_change(THD* thd, st_select_lex* select, bool in_order) {
  int command = thd_sql_command(thd);
  if (command != SQLCOM_DELETE && command != SQLCOM_UPDATE) return 0;
  ha_rows limit = select->master_unit()->lim.get_select_limit();
  return limit == HA_POS_ERROR || (select->order_list.elements > 0 && !in_order) ? 0 : limit;
}

}  // namespace

uint64_t rows_wanted(THD* thd, const TABLE* table, bool in_order) {
  const TABLE_LIST* list = table->pos_in_table_list;
  if (!list || !list->select_lex) return 0;
  const JOIN* join = list->select_lex->join;
  if (!join) return rows_to_change(thd, list->select_lex, in_order);
  // Of a join each table is read as often as the others say, but for those of one known row; groups and sums
  // need all rows.
  bool is_alone = join->table_count - join->const_tables == 1;
  if (!is_alone || join->implicit_grouping || join->group_list || join->select_distinct) return 0;
  if ((join->select_options & OPTION_FOUND_ROWS) || (join->order && !in_order)) return 0;
  // Where there is an order the other one is that of rows behind a sort.
  ha_rows limit = join->order ? join->select_limit : join->row_limit;
  return limit == HA_POS_ERROR ? 0 : limit;
}

}  // namespace pbxt
