"""The test drive of 2007: one client over a table without keys, and a load of five kinds of transactions by up to 64 clients.

The user load of the original was a commercial tool's; its transactions were not published. Ours, one `event` each in bench/lua/userload.lua:

  cpu      sums, averages and a standard deviation of 200 neighbouring rows, grouped
  read     two rows by primary key, and 20 rows of one client through a secondary key
  update   one row by primary key, committed
  insert   one row with a counted key, committed
  mixed    all of these in one transaction
"""

import big_table
from bench.works.base import WITH_KEYS, Work


class BigTable(Work):
    """Test drive of 2007: one client, a table without keys
    The statements of the account, on its 1,120,500 rows: filled from another table, counted, scanned, updated, emptied and rolled back.
    The source is a MyISAM table in each server, so that reading it costs everybody the same. ARCHIVE cannot update; MyISAM, Aria and
    ARCHIVE cannot roll back, so that MyISAM and Aria empty the table as TRUNCATE does. BLACKHOLE shows what reading the source and handing rows over takes.
    """

    name = "big_table"
    seed = "000"
    floor = True
    full = {"rows": big_table.ROWS}
    quick = {"rows": 60_000}

    def prepare(self, turn):
        turn.run(big_table.create_statement("big_table", "MyISAM"))
        turn.run(big_table.fill_statement("big_table", self.size.rows))
        turn.rows("SELECT SUM(price) FROM big_table")

    def round(self, turn):
        turn.mark_disk()
        turn.run(big_table.create_statement("t", turn.sql_engine))
        turn.time("INSERT..SELECT", "INSERT INTO t SELECT * FROM big_table")
        turn.bytes_on_disk("bytes on disk", self.size.rows)
        turn.time("COUNT(*)", "SELECT COUNT(*) FROM t", 5)
        turn.time("scan with a sum", "SELECT SUM(number_of_units * price) FROM t", 3)
        turn.time("scan with a filter", "SELECT COUNT(*) FROM t WHERE broker_id = 17 AND action = 'sell'", 3)
        if turn.engine != "ARCHIVE":
            turn.time("UPDATE of all rows", "UPDATE t SET description = 'testing update of varchar column'")
            turn.agree("rows updated", "SELECT COUNT(*), SUM(client_transaction_id), MIN(description), MAX(description) FROM t")
            turn.run("SET autocommit = 0")
            turn.time("DELETE of all rows", "DELETE FROM t")
            if turn.lab.kind.transactions:
                turn.time("ROLLBACK", "ROLLBACK")
                turn.time("COUNT(*) after it", "SELECT COUNT(*) FROM t")
            turn.run("SET autocommit = 1")
        turn.run("DROP TABLE t")

    def floor_round(self, turn):
        turn.run(big_table.create_statement("t", turn.sql_engine))
        turn.time("INSERT..SELECT", "INSERT INTO t SELECT * FROM big_table")
        turn.run("DROP TABLE t")


class UserLoad(Work):
    """Test drive of 2007: transactions of 1, 8, 32 and 64 clients
    Five kinds of transactions over the same rows, now with a counted primary key and a key over the client's number; a flush for each
    commit, where the account had one a second. MyISAM and Aria run them without transactions. Figures are transactions a second.
    """

    name = "user_load"
    seed = "000"
    engines = WITH_KEYS
    quick_engines = ("PBXT", "InnoDB")
    scale = "clients"
    kinds_of_load = ("cpu", "read", "update", "insert", "mixed")
    full = {"rows": big_table.ROWS, "seconds": 5, "clients": (1, 8, 32, 64)}
    quick = {"rows": 60_000, "seconds": 1, "clients": (1, 32)}

    def prepare(self, turn):
        turn.run(big_table.create_statement("load_table", turn.sql_engine))
        turn.run(
            "ALTER TABLE load_table MODIFY client_transaction_id INT NOT NULL AUTO_INCREMENT, ADD PRIMARY KEY (client_transaction_id), ADD KEY client (client_id)"
        )
        turn.run(big_table.fill_statement("load_table", self.size.rows))
        turn.run("ANALYZE TABLE load_table")
        turn.warm("load_table", "description")

    def round(self, turn):
        for kind in self.kinds_of_load:
            words = turn.script("userload", f"--table-size={self.size.rows}", f"--kind={kind}")
            for clients in self.size.clients:
                turn.load(kind, words, clients, self.size.seconds, clients)
