-- The five kinds of transactions of the user load of 2007: cpu, read, update, insert, mixed. The table is the one of the test drive with a
-- counted primary key and a key over client_id. Run by bench/works/seed000.py, whose header says what each kind does.

sysbench.cmdline.options = {
   table_size = {"Rows of the table at the beginning", 1000000},
   clients_known = {"Different values of client_id", 5000},
   kind = {"cpu, read, update, insert or mixed", "read"}
}

function sysbench.hooks.before_restart_event()
   connection:query("ROLLBACK") -- a transaction that is repeated begins anew
end

local function any_row()
   return sysbench.rand.uniform(1, sysbench.opt.table_size)
end

local function any_client()
   return sysbench.rand.uniform(1, sysbench.opt.clients_known)
end

local function read_row()
   connection:query(string.format("SELECT description, price FROM load_table WHERE client_transaction_id = %d", any_row()))
end

local function read_client()
   connection:query(string.format("SELECT investment_id, price FROM load_table WHERE client_id = %d LIMIT 20", any_client()))
end

local kinds = {}

function kinds.cpu()
   local low = sysbench.rand.uniform(1, sysbench.opt.table_size - 200)
   connection:query(string.format("SELECT action, COUNT(*), SUM(price * number_of_units), AVG(SQRT(price)), STD(number_of_units) " ..
      "FROM load_table WHERE client_transaction_id BETWEEN %d AND %d GROUP BY action", low, low + 199))
end

function kinds.read()
   read_row()
   read_row()
   read_client()
end

function kinds.update()
   connection:query(string.format("UPDATE load_table SET number_of_units = number_of_units + 1, description = 'updated' " ..
      "WHERE client_transaction_id = %d", any_row()))
end

function kinds.insert()
   connection:query(string.format("INSERT INTO load_table (client_id, investment_id, action, price, number_of_units, description) " ..
      "VALUES (%d, %d, 'buy', 17.50, 100, 'inserted by the user load')", any_client(), sysbench.rand.uniform(1, 800)))
end

function kinds.mixed()
   connection:query("BEGIN")
   read_row()
   read_row()
   read_client()
   kinds.cpu()
   kinds.update()
   kinds.insert()
   connection:query("COMMIT")
end

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
   transaction = kinds[sysbench.opt.kind]
   assert(transaction, "there is no kind " .. sysbench.opt.kind)
end

function event()
   transaction()
end

function thread_done()
   connection:disconnect()
end
