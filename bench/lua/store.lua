-- One visit to a shop for films, after the Dell DVD Store's mix: log in and see the last purchases (or, one visit in ten, register), look
-- through the shelves three times, buy one to five films in one transaction. Run by bench/works/seed004_store.py, which makes the tables.

sysbench.cmdline.options = {
   customers = {"Customers at the beginning", 20000},
   products = {"Films", 10000}
}

function sysbench.hooks.before_restart_event()
   connection:query("ROLLBACK") -- a visit that is repeated begins anew
end

local function ask(text, ...)
   connection:query(string.format(text, ...))
end

local function log_in()
   local customer = sysbench.rand.uniform(1, sysbench.opt.customers)
   if sysbench.rand.uniform(1, 10) == 1 then
      ask("INSERT INTO customers (username, password, firstname, lastname, email, creditcard, age, income) VALUES " ..
         "(CONCAT('new', UUID_SHORT()), 'password', 'First', 'Last', 'new@example.com', '4000000000000000', 30, 50000)")
   else
      ask("SELECT customerid, password FROM customers WHERE username = 'user%d'", customer)
      ask("SELECT p.title, p.actor FROM cust_hist h JOIN products p ON p.prod_id = h.prod_id " ..
         "WHERE h.customerid = %d ORDER BY h.orderid DESC LIMIT 10", customer)
   end
   return customer
end

local function browse()
   ask("SELECT prod_id, title, actor, price FROM products WHERE category = %d AND special = 1 LIMIT 10", sysbench.rand.uniform(1, 16))
   ask("SELECT prod_id, title, actor, price FROM products WHERE actor = 'actor %d' LIMIT 10",
      sysbench.rand.uniform(0, math.floor(sysbench.opt.products / 20)))
   ask("SELECT prod_id, title, actor, price FROM products WHERE title LIKE 'film %d%%' LIMIT 10", sysbench.rand.uniform(1, sysbench.opt.products))
end

local function basket()
   local chosen, films = {}, {}
   for _ = 1, sysbench.rand.uniform(1, 5) do
      chosen[sysbench.rand.uniform(1, sysbench.opt.products)] = true
   end
   for film in pairs(chosen) do
      films[#films + 1] = film
   end
   table.sort(films) -- everybody in the same order: no deadlocks by chance
   return films
end

local function buy(customer)
   connection:query("BEGIN")
   ask("INSERT INTO orders (orderdate, customerid, netamount, tax, totalamount) VALUES (CURDATE(), %d, 20.00, 1.65, 21.65)", customer)
   for line, film in ipairs(basket()) do
      ask("SELECT price FROM products WHERE prod_id = %d", film)
      ask("UPDATE inventory SET quan_in_stock = quan_in_stock - 1, sales = sales + 1 WHERE prod_id = %d", film)
      ask("INSERT INTO orderlines (orderid, orderlineid, prod_id, quantity, orderdate) VALUES (LAST_INSERT_ID(), %d, %d, 1, CURDATE())", line, film)
      ask("INSERT INTO cust_hist (customerid, orderid, prod_id) VALUES (%d, LAST_INSERT_ID(), %d)", customer, film)
   end
   connection:query("COMMIT")
end

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
end

function event()
   local customer = log_in()
   browse()
   buy(customer)
end

function thread_done()
   connection:disconnect()
end
