-- The five transactions of the TPC-C specification (clauses 2.4 to 2.8): what goes in, and the statements.
--
-- Each has two functions: one draws the input, the other runs the statements with it, and returns a number that bench/tpcc adds up and
-- compares with the tables (order: 1 if it was committed, 0 if it was rolled back by the rule of the unused item; delivery: orders that
-- were delivered; else 1). The input is drawn once: a transaction that ends with a deadlock or a conflict is run again with the same input.
-- A read whose row is written afterwards is FOR UPDATE: what is written depends on what was read. An answer that cannot be (no such
-- customer, an order without lines) ends the run.

local draw = require("tpcc_random")

local M = {}

local DISTRICTS, UNUSED_ITEM = 10, 100001

-- The only row of a query as a list, or nil.
local function row(connection, query, ...)
   local result = connection:query(query:format(...))
   if result == nil or result.nrows == 0 then
      return nil
   end
   return result:fetch_row()
end

-- As row(), where there must be one.
local function one(connection, query, ...)
   local found = row(connection, query, ...)
   if found == nil then
      error("no row: " .. query:format(...), 0)
   end
   return found
end

local function run(connection, statement, ...)
   connection:query(statement:format(...))
end

-- Another warehouse than w; w if it is the only one.
local function other_warehouse(w, warehouses)
   if warehouses == 1 then
      return w
   end
   local other = draw.number(1, warehouses - 1)
   return other < w and other or other + 1
end

-- A customer by last name in six of ten cases, else by number.
local function who(input)
   if draw.number(1, 100) <= 60 then
      input.last = draw.name_to_find()
   else
      input.c = draw.customer()
   end
   return input
end

-- The number of the customer: of those of one name the middle one by first name, rounded up.
local function customer_of(connection, w, d, input)
   if input.c then
      return input.c
   end
   local result = connection:query(
      ("SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' ORDER BY c_first"):format(w, d, input.last))
   local count = tonumber(result.nrows)
   if count == 0 then
      error("no customer is called " .. input.last, 0)
   end
   local found
   for _ = 1, math.ceil(count / 2) do
      found = result:fetch_row()
   end
   return tonumber(found[1])
end

-- New order, 2.4 -----------------------------------------------------------------------------------------------------------------------

function M.draw_order(warehouses)
   local w = draw.number(1, warehouses)
   local input = {w = w, d = draw.number(1, DISTRICTS), c = draw.customer(), lines = {}, all_local = 1}
   for number = 1, draw.number(5, 15) do
      local supply = draw.number(1, 100) == 1 and other_warehouse(w, warehouses) or w
      input.lines[number] = {item = draw.item(), supply = supply, quantity = draw.number(1, 10)}
      if supply ~= w then
         input.all_local = 0
      end
   end
   if draw.number(1, 100) == 1 then
      input.lines[#input.lines].item = UNUSED_ITEM
   end
   return input
end

-- One line; its amount without tax, or nil if there is no such item.
local function order_line(connection, input, o, number, line)
   local item = row(connection, "SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", line.item)
   if item == nil then
      return nil
   end
   local stock = one(connection, "SELECT s_quantity, s_data, s_dist_%02d FROM stock WHERE s_w_id = %d AND s_i_id = %d FOR UPDATE",
                     input.d, line.supply, line.item)
   local left = tonumber(stock[1]) - line.quantity
   if left < 10 then
      left = left + 91
   end
   local amount = tonumber(item[1]) * line.quantity
   run(connection, "UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, " ..
                   "s_remote_cnt = s_remote_cnt + %d WHERE s_w_id = %d AND s_i_id = %d",
       left, line.quantity, line.supply == input.w and 0 or 1, line.supply, line.item)
   run(connection, "INSERT INTO order_line VALUES (%d, %d, %d, %d, %d, %d, NULL, %d, %.2f, '%s')",
       o, input.d, input.w, number, line.item, line.supply, line.quantity, amount, stock[3])
   return amount
end

function M.run_order(connection, input)
   one(connection, "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id " ..
                   "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", input.w, input.d, input.c)
   local district = one(connection, "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %d AND d_id = %d FOR UPDATE", input.w, input.d)
   local o = tonumber(district[1])
   run(connection, "UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d", o + 1, input.w, input.d)
   run(connection, "INSERT INTO orders VALUES (%d, %d, %d, %d, NOW(), NULL, %d, %d)",
       o, input.d, input.w, input.c, #input.lines, input.all_local)
   run(connection, "INSERT INTO new_orders VALUES (%d, %d, %d)", o, input.d, input.w)
   for number, line in ipairs(input.lines) do
      if order_line(connection, input, o, number, line) == nil then
         connection:query("ROLLBACK")
         return 0
      end
   end
   connection:query("COMMIT")
   return 1
end

-- Payment, 2.5 -------------------------------------------------------------------------------------------------------------------------

function M.draw_payment(warehouses)
   local w, d = draw.number(1, warehouses), draw.number(1, DISTRICTS)
   local input = {w = w, d = d, c_w = w, c_d = d, amount = draw.decimal(100, 500000)}
   if draw.number(1, 100) > 85 then
      input.c_w, input.c_d = other_warehouse(w, warehouses), draw.number(1, DISTRICTS)
   end
   return who(input)
end

function M.run_payment(connection, input)
   local w, d, c_w, c_d = input.w, input.d, input.c_w, input.c_d
   run(connection, "UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %d", input.amount, w)
   local warehouse = one(connection, "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = %d", w)
   run(connection, "UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %d AND d_id = %d", input.amount, w, d)
   local district = one(connection, "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district " ..
                                    "WHERE d_w_id = %d AND d_id = %d", w, d)
   local c = customer_of(connection, c_w, c_d, input)
   local customer = one(connection, "SELECT c_credit, c_balance, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, " ..
                                    "c_zip, c_phone, c_since, c_credit_lim, c_discount FROM customer " ..
                                    "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d FOR UPDATE", c_w, c_d, c)
   local note = ""
   if customer[1] == "BC" then
      local data = one(connection, "SELECT c_data FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", c_w, c_d, c)
      local text = ("%d %d %d %d %d %s "):format(c, c_d, c_w, d, w, input.amount)
      note = ", c_data = '" .. (text .. data[1]):sub(1, 500) .. "'"
   end
   run(connection, "UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + %s, " ..
                   "c_payment_cnt = c_payment_cnt + 1%s WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d",
       input.amount, input.amount, note, c_w, c_d, c)
   run(connection, "INSERT INTO history VALUES (%d, %d, %d, %d, %d, NOW(), %s, '%s')",
       c, c_d, c_w, d, w, input.amount, warehouse[1] .. "    " .. district[1])
   connection:query("COMMIT")
   return 1
end

-- Order status, 2.6 --------------------------------------------------------------------------------------------------------------------

function M.draw_status(warehouses)
   return who({w = draw.number(1, warehouses), d = draw.number(1, DISTRICTS)})
end

function M.run_status(connection, input)
   local w, d = input.w, input.d
   local c = customer_of(connection, w, d, input)
   one(connection, "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", w, d, c)
   local order = one(connection, "SELECT o_id, o_ol_cnt, o_carrier_id, o_entry_d FROM orders " ..
                                 "WHERE o_w_id = %d AND o_d_id = %d AND o_c_id = %d ORDER BY o_id DESC LIMIT 1", w, d, c)
   local lines = connection:query(
      ("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line " ..
       "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s"):format(w, d, order[1]))
   if tonumber(lines.nrows) ~= tonumber(order[2]) then
      error(("order %s of district %d of warehouse %d has %d lines, and says %s"):format(order[1], d, w, tonumber(lines.nrows), order[2]), 0)
   end
   for _ = 1, tonumber(lines.nrows) do
      lines:fetch_row()
   end
   connection:query("COMMIT")
   return 1
end

-- Delivery, 2.7: the ten districts in one transaction, and at once ---------------------------------------------------------------------

function M.draw_delivery(warehouses)
   return {w = draw.number(1, warehouses), carrier = draw.number(1, 10)}
end

local function deliver(connection, w, d, carrier)
   local oldest = row(connection, "SELECT no_o_id FROM new_orders WHERE no_w_id = %d AND no_d_id = %d ORDER BY no_o_id LIMIT 1 FOR UPDATE", w, d)
   if oldest == nil then
      return 0
   end
   local o = tonumber(oldest[1])
   run(connection, "DELETE FROM new_orders WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %d", w, d, o)
   local order = one(connection, "SELECT o_c_id FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_id = %d FOR UPDATE", w, d, o)
   run(connection, "UPDATE orders SET o_carrier_id = %d WHERE o_w_id = %d AND o_d_id = %d AND o_id = %d", carrier, w, d, o)
   run(connection, "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", w, d, o)
   local total = one(connection, "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", w, d, o)
   if total[1] == nil then
      error(("order %d of district %d of warehouse %d has no lines"):format(o, d, w), 0)
   end
   run(connection, "UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 " ..
                   "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %s", total[1], w, d, order[1])
   return 1
end

function M.run_delivery(connection, input)
   local delivered = 0
   for d = 1, DISTRICTS do
      delivered = delivered + deliver(connection, input.w, d, input.carrier)
   end
   connection:query("COMMIT")
   return delivered
end

-- Stock level, 2.8 ---------------------------------------------------------------------------------------------------------------------

function M.draw_level(warehouses)
   return {w = draw.number(1, warehouses), d = draw.number(1, DISTRICTS), threshold = draw.number(10, 20)}
end

function M.run_level(connection, input)
   local w, d = input.w, input.d
   local next_order = tonumber(one(connection, "SELECT d_next_o_id FROM district WHERE d_w_id = %d AND d_id = %d", w, d)[1])
   one(connection, "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id " ..
                   "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id >= %d AND ol_o_id < %d AND s_quantity < %d",
       w, d, next_order - 20, next_order, input.threshold)
   connection:query("COMMIT")
   return 1
end

return M
