-- Reads of user accounts, the four queries of the comparison of 2007: by primary key, by a key, by a key that has all columns, by a key with
-- LIMIT. Run by bench/works/seed004.py.

sysbench.cmdline.options = {
   table_size = {"Rows of the table", 1000000},
   countries = {"Different values of country_id", 10000},
   query = {"primary, key, covered or limit", "primary"}
}

local queries = {
   primary = "SELECT name FROM accounts WHERE id = %d",
   key = "SELECT name FROM accounts WHERE country_id = %d",
   covered = "SELECT state_id FROM accounts WHERE country_id = %d",
   limit = "SELECT name FROM accounts WHERE country_id = %d LIMIT 20"
}

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
   statement = queries[sysbench.opt.query]
   assert(statement, "there is no query " .. sysbench.opt.query)
   most = sysbench.opt.query == "primary" and sysbench.opt.table_size or sysbench.opt.countries
end

function event()
   connection:query(string.format(statement, sysbench.rand.uniform(1, most)))
end

function thread_done()
   connection:disconnect()
end
