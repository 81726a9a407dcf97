-- Load generator of bench/tpcc: a benchmark after the TPC-C specification, revision 5.11, for sysbench. bench/tpcc makes the tables,
-- starts this script and reads what it writes down; by hand:
--
--   sysbench bench/tpcc.lua --warehouses=2 --threads=2 --mysql-...=... load
--   sysbench bench/tpcc.lua --warehouses=2 --threads=16 --time=60 --records=/tmp/records --mysql-...=... run
--
-- Every client is a thread with a connection and no time to think. It takes transactions from a deck of a hundred cards: 45 new orders,
-- 43 payments, 4 each of order status, delivery and stock level, shuffled anew when it is used up (clause 5.2.4). The
-- home warehouse is drawn for each transaction, since there are fewer clients than the ten terminals of a warehouse.
--
-- A transaction that ends with 1020, 1205 or 1213 is rolled back and run again with the same input until it gets through; its time is
-- that from the first attempt to the last. Any other error, and an answer that cannot be, ends the run.
--
-- Records: a file per thread in the folder --records, a line per finished transaction:
--   begin    microseconds of CLOCK_MONOTONIC
--   time     microseconds from the first BEGIN to the end
--   kind     O order, P payment, S status, D delivery, L level
--   result   what the transaction returned, see tpcc_transactions.lua
--   1020s 1205s 1213s    attempts that ended so

local ffi = require("ffi")

package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local draw = require("tpcc_random")
local load_tables = require("tpcc_load")
local transactions = require("tpcc_transactions")

ffi.cdef [[
struct tpcc_time { long seconds; long nanoseconds; };
int clock_gettime(int clock, struct tpcc_time *time);
]]

sysbench.cmdline.options = {
   warehouses = {"Warehouses in the tables", 1},
   seed = {"Seed of the rows (load) or of the transactions (run)", 1},
   records = {"Folder for what each thread has done", ""},
}

local MIX = {
   {cards = 45, letter = "O", draw = transactions.draw_order, run = transactions.run_order},
   {cards = 43, letter = "P", draw = transactions.draw_payment, run = transactions.run_payment},
   {cards = 4, letter = "S", draw = transactions.draw_status, run = transactions.run_status},
   {cards = 4, letter = "D", draw = transactions.draw_delivery, run = transactions.run_delivery},
   {cards = 4, letter = "L", draw = transactions.draw_level, run = transactions.run_level},
}
local DECK = {}
for _, kind in ipairs(MIX) do
   for _ = 1, kind.cards do
      DECK[#DECK + 1] = kind
   end
end

local CLOCK_MONOTONIC = 1
local driver, connection, records
local order, place = {}, 0 -- of the cards, and how many of them are used up
local clock = ffi.new("struct tpcc_time")

local function microseconds()
   ffi.C.clock_gettime(CLOCK_MONOTONIC, clock)
   return tonumber(clock.seconds) * 1000000 + math.floor(tonumber(clock.nanoseconds) / 1000)
end

local function connect()
   driver = sysbench.sql.driver()
   connection = driver:connect()
end

local function load_share()
   connect()
   load_tables.share(connection, sysbench.tid % sysbench.opt.threads, sysbench.opt.threads, sysbench.opt.warehouses, sysbench.opt.seed)
   connection:disconnect()
end

sysbench.cmdline.commands = {load = {load_share, sysbench.cmdline.PARALLEL_COMMAND}}

function thread_init(id)
   draw.seed(sysbench.opt.seed * 1000003 + id)
   connect()
   records = assert(io.open(("%s/%d"):format(sysbench.opt.records, id), "w"))
   records:setvbuf("full", 65536)
end

function thread_done()
   records:close()
   connection:disconnect()
end

local function next_card()
   if place == #order then
      order, place = draw.shuffled(#DECK), 0
   end
   place = place + 1
   return DECK[order[place]]
end

-- One attempt; as pcall().
local function attempt(kind, input)
   connection:query("BEGIN")
   return kind.run(connection, input)
end

function event()
   local kind = next_card()
   local input = kind.draw(sysbench.opt.warehouses)
   local repeated = {[1020] = 0, [1205] = 0, [1213] = 0}
   local begin = microseconds()
   local done, result = pcall(attempt, kind, input)
   while not done do
      local number = type(result) == "table" and result.errcode == sysbench.error.RESTART_EVENT and tonumber(result.sql_errno)
      if not repeated[number] then
         error(type(result) == "table" and ("error %d: %s"):format(result.sql_errno, result.sql_errmsg) or result, 0)
      end
      repeated[number] = repeated[number] + 1
      connection:query("ROLLBACK")
      done, result = pcall(attempt, kind, input)
   end
   records:write(("%.0f %.0f %s %d %d %d %d\n"):format(
      begin, microseconds() - begin, kind.letter, result, repeated[1020], repeated[1205], repeated[1213]))
end
