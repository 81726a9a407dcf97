"""The accounts of 2010: the self-join of sysbench's table by up to 1,024 clients, and COUNT(*) of 50 million rows."""

from bench.works.base import WITH_KEYS, Work

SBTEST = (
    "id INT UNSIGNED NOT NULL AUTO_INCREMENT, k INT UNSIGNED NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '',"
    " pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id), KEY k (k)"
)


class SelfJoin(Work):
    """Fast reads or fast scans: the self-join of 2010
    A range of 1 to 10,000 primary keys joined with the rows at the mirrored place, once with a column that only the row has, once with nothing
    but the key (covering); queries a second. Beside it, by one client: a twentieth of all rows through the secondary key, fetched.
    """

    name = "self_join"
    seed = "001"
    engines = WITH_KEYS
    quick_engines = ("PBXT", "InnoDB")
    scale = "clients"
    full = {
        "rows": 2_000_000,
        "seconds": 3,
        "spans": (1, 10, 100, 1000, 10_000),
        "clients": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    }
    quick = {"rows": 60_000, "seconds": 1, "spans": (10, 1000), "clients": (1, 16)}

    def prepare(self, turn):
        rows = self.size.rows
        turn.run(f"CREATE TABLE sbtest ({SBTEST}) ENGINE={turn.sql_engine} DEFAULT CHARSET=latin1")
        turn.run(f"INSERT INTO sbtest SELECT seq, (seq * 7919) % {rows}, REPEAT(MD5(seq), 3), MD5(seq + 1) FROM seq_1_to_{rows}")
        turn.run("ANALYZE TABLE sbtest")
        turn.warm("sbtest", "c")

    def round(self, turn):
        low, high = self.size.rows // 3, self.size.rows // 3 + self.size.rows // 20
        fetch = f"SELECT SUM(LENGTH(pad)), MAX(c) FROM sbtest FORCE INDEX (k) WHERE k BETWEEN {low} AND {high}"
        turn.time("secondary range and fetch", fetch, 3)
        for covering in (False, True):
            for span in self.size.spans:
                words = turn.script("selfjoin", f"--table-size={self.size.rows}", f"--span={span}", f"--covering={'on' if covering else 'off'}")
                for clients in self.size.clients:
                    turn.load(f"{span} row{'' if span == 1 else 's'}{', covering' if covering else ''}", words, clients, self.size.seconds, clients)


class CountAll(Work):
    """COUNT(*) of a large table, 2010
    A table of 50 million rows with a counted key and a second one, filled in pieces of a million rows; then counted as a whole, and over a tenth
    of the second index. MyISAM and Aria keep the number of rows, which they can because they have no transactions.
    """

    name = "count"
    seed = "001"
    engines = WITH_KEYS
    full = {"rows": 50_000_000, "piece": 1_000_000}
    quick = {"rows": 200_000, "piece": 100_000}

    def prepare(self, turn):
        turn.run(f"CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, KEY k (k)) ENGINE={turn.sql_engine}")
        for first in range(1, self.size.rows + 1, self.size.piece):
            turn.run(f"INSERT INTO t SELECT seq, seq DIV 100 FROM seq_{first}_to_{first + self.size.piece - 1}")
        turn.run("ANALYZE TABLE t")

    def round(self, turn):
        turn.time("COUNT(*)", "SELECT COUNT(*) FROM t", 5)
        low = self.size.rows // 300
        turn.time("COUNT(*) over an index range", f"SELECT COUNT(*) FROM t FORCE INDEX (k) WHERE k BETWEEN {low} AND {low + self.size.rows // 1000}", 3)
