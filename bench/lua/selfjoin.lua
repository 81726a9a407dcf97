-- The self-join of the comparison of 2010: a range of primary keys, each row joined with the one at the mirrored place.
-- "covering" reads nothing but the key. Run by bench/works/seed001.py.

sysbench.cmdline.options = {
   table_size = {"Rows of the table", 1000000},
   span = {"Rows that the range selects", 1000},
   covering = {"Read only the key", false}
}

function thread_init()
   local column = sysbench.opt.covering and "id" or "c"
   driver = sysbench.sql.driver()
   connection = driver:connect()
   statement = "SELECT t1." .. column .. ", t2." .. column .. " FROM sbtest t1, sbtest t2 WHERE t1.id BETWEEN %d AND %d AND t2.id = " ..
      string.format("%d", sysbench.opt.table_size) .. " - t1.id"
end

function event()
   local low = sysbench.rand.uniform(1, sysbench.opt.table_size - sysbench.opt.span)
   connection:query(string.format(statement, low, low + sysbench.opt.span - 1))
end

function thread_done()
   connection:disconnect()
end
