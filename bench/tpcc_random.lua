-- Random values of bench/tpcc.lua, as the TPC-C specification draws them (clauses 2.1.6, 4.3.2 and 4.3.3).
--
-- Why not sysbench's own: LuaJIT's generator belongs to the interpreter, and each thread has an interpreter of its own, so a warehouse
-- that seeds it has the same rows whichever thread loads it, and both engines get the same data.
-- Strings are drawn letter by letter. Cutting them out of a prepared text would be quicker and would give an engine that compresses
-- something to compress that the specification does not have.

local bit = require("bit")
local ffi = require("ffi")

local M = {}

local random = math.random
local LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
local letters = ffi.new("uint8_t[?]", #LETTERS)
ffi.copy(letters, LETTERS, #LETTERS)
local buffer = ffi.new("uint8_t[512]")

local SYLLABLES = {[0] = "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

-- The constants C of NURand. Those of names differ by 66 between loading and running: from 65 to 119, but not 96 or 112 (2.1.6.1).
local C_LAST_LOAD, C_LAST_RUN, C_CUSTOMER, C_ITEM = 157, 223, 259, 7911

M.number = random

function M.seed(number)
   math.randomseed(number)
end

-- A string of `least` to `most` letters and digits.
function M.letters(least, most)
   local length = random(least, most)
   for i = 0, length - 1 do
      buffer[i] = letters[random(0, #LETTERS - 1)]
   end
   return ffi.string(buffer, length)
end

-- A string of digits.
function M.digits(length)
   for i = 0, length - 1 do
      buffer[i] = 48 + random(0, 9)
   end
   return ffi.string(buffer, length)
end

-- As letters(), but one in ten has ORIGINAL somewhere (i_data and s_data).
function M.original(least, most)
   local text = M.letters(least, most)
   if random(1, 10) > 1 then
      return text
   end
   local place = random(0, #text - 8)
   return text:sub(1, place) .. "ORIGINAL" .. text:sub(place + 9)
end

-- A postal code (4.3.2.7).
function M.zip()
   return M.digits(4) .. "11111"
end

-- An amount of hundredths, or ten-thousandths with `places` = 4, as SQL writes it.
function M.decimal(least, most, places)
   if places == 4 then
      return string.format("%.4f", random(least, most) / 10000)
   end
   return string.format("%.2f", random(least, most) / 100)
end

-- The name that three digits stand for (4.3.2.3).
function M.last_name(number)
   return SYLLABLES[math.floor(number / 100)] .. SYLLABLES[math.floor(number / 10) % 10] .. SYLLABLES[number % 10]
end

local function nurand(a, c, least, most)
   return (bit.bor(random(0, a), random(least, most)) + c) % (most - least + 1) + least
end

function M.name_to_load()
   return M.last_name(nurand(255, C_LAST_LOAD, 0, 999))
end

function M.name_to_find()
   return M.last_name(nurand(255, C_LAST_RUN, 0, 999))
end

function M.customer()
   return nurand(1023, C_CUSTOMER, 1, 3000)
end

function M.item()
   return nurand(8191, C_ITEM, 1, 100000)
end

-- 1 to `count`, each once, in random order.
function M.shuffled(count)
   local list = {}
   for i = 1, count do
      local place = random(1, i)
      list[i] = list[place]
      list[place] = i
   end
   return list
end

return M
