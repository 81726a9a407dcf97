-- Fills the tables of bench/tpcc_tables.py with the rows that clause 4.3.3 of the TPC-C specification asks for.
--
-- Threads share the warehouses; the first one loads the items too. Rows go in by INSERTs of some hundred rows, a commit each. Each
-- warehouse seeds the generator, so its rows do not depend on the number of threads. Foreign keys are not checked meanwhile, as in a
-- dump that is loaded: parents and children of one warehouse come from this file alone.

local draw = require("tpcc_random")

local M = {}

local ITEMS, DISTRICTS, CUSTOMERS, DELIVERED = 100000, 10, 3000, 2100
local NOW = "'2026-01-01 00:00:00'" -- of all dates: the rows are to be the same for every engine

-- Collects rows, given as text of their values, and inserts `size` of them at a time.
local function writer(connection, name, size)
   local rows, count = {}, 0
   local self = {}
   function self.flush()
      if count > 0 then
         connection:query("INSERT INTO " .. name .. " VALUES (" .. table.concat(rows, "),(", 1, count) .. ")")
         count = 0
      end
   end
   function self.add(...)
      count = count + 1
      rows[count] = table.concat({...}, ",")
      if count == size then
         self.flush()
      end
   end
   return self
end

local function quoted(text)
   return "'" .. text .. "'"
end

-- Values of street 1, street 2, city, state and postal code.
local function address()
   return table.concat({
      quoted(draw.letters(10, 20)), quoted(draw.letters(10, 20)), quoted(draw.letters(10, 20)), quoted(draw.letters(2, 2)),
      quoted(draw.zip()),
   }, ",")
end

local function load_items(connection)
   local item = writer(connection, "item", 1000)
   for i = 1, ITEMS do
      item.add(i, draw.number(1, 10000), quoted(draw.letters(14, 24)), draw.decimal(100, 10000), quoted(draw.original(26, 50)))
   end
   item.flush()
end

local function load_stock(connection, w)
   local stock = writer(connection, "stock", 500)
   local dist = {}
   for i = 1, ITEMS do
      for d = 1, DISTRICTS do
         dist[d] = quoted(draw.letters(24, 24))
      end
      stock.add(i, w, draw.number(10, 100), table.concat(dist, ","), 0, 0, 0, quoted(draw.original(26, 50)))
   end
   stock.flush()
end

local function load_customers(connection, w, d)
   local customer, history = writer(connection, "customer", 300), writer(connection, "history", 1000)
   for c = 1, CUSTOMERS do
      local last = c <= 1000 and draw.last_name(c - 1) or draw.name_to_load()
      local credit = draw.number(1, 10) == 1 and "'BC'" or "'GC'"
      customer.add(c, d, w, quoted(draw.letters(8, 16)), "'OE'", quoted(last), address(), quoted(draw.digits(16)), NOW, credit,
                   "50000.00", draw.decimal(0, 5000, 4), "-10.00", "10.00", 1, 0, quoted(draw.letters(300, 500)))
      history.add(c, d, w, d, w, NOW, "10.00", quoted(draw.letters(12, 24)))
   end
   customer.flush()
   history.flush()
end

local function load_orders(connection, w, d)
   local orders, open = writer(connection, "orders", 1000), writer(connection, "new_orders", 1000)
   local lines = writer(connection, "order_line", 1000)
   local customers = draw.shuffled(CUSTOMERS)
   for o = 1, CUSTOMERS do
      local delivered = o <= DELIVERED
      local count = draw.number(5, 15)
      orders.add(o, d, w, customers[o], NOW, delivered and draw.number(1, 10) or "NULL", count, 1)
      for number = 1, count do
         lines.add(o, d, w, number, draw.number(1, ITEMS), w, delivered and NOW or "NULL", 5,
                   delivered and "0.00" or draw.decimal(1, 999999), quoted(draw.letters(24, 24)))
      end
      if not delivered then
         open.add(o, d, w)
      end
   end
   orders.flush()
   open.flush()
   lines.flush()
end

local function load_warehouse(connection, w)
   local warehouse, district = writer(connection, "warehouse", 1), writer(connection, "district", DISTRICTS)
   warehouse.add(w, quoted(draw.letters(6, 10)), address(), draw.decimal(0, 2000, 4), "300000.00")
   for d = 1, DISTRICTS do
      district.add(d, w, quoted(draw.letters(6, 10)), address(), draw.decimal(0, 2000, 4), "30000.00", CUSTOMERS + 1)
   end
   load_stock(connection, w)
   for d = 1, DISTRICTS do
      load_customers(connection, w, d)
      load_orders(connection, w, d)
   end
end

-- The share of thread `id` of `threads`. A line is printed for each warehouse: bench/tpcc counts them.
function M.share(connection, id, threads, warehouses, seed)
   connection:query("SET foreign_key_checks = 0")
   if id == 0 then
      draw.seed(seed)
      load_items(connection)
   end
   for w = id + 1, warehouses, threads do
      draw.seed(seed * 100003 + w)
      load_warehouse(connection, w)
      print("loaded warehouse " .. w)
      io.stdout:flush()
   end
end

return M
