"""The workloads: which tables, which statements, what is measured. Each class is one line of `bench/run --list`.

A workload's `prepare` makes what all rounds share; `measure` runs one round for one engine and returns {measure: value}. Values are
seconds unless the measure's name ends with its unit. Targets stand beside the measures, as the greatest allowed ratio to InnoDB
(or, for names in ABSOLUTE, as the greatest allowed value).
"""

import random
import time

import big_table
from common import Problem
from live_server import execute, value_of


def timed(connection, statement, arguments=None):
    """Seconds of one statement, its rows fetched."""
    begin = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        cursor.fetchall()
    return time.perf_counter() - begin


class Workload:
    """What all workloads share: one connection, one database, the number of rows."""

    name = ""
    rows = 1_000_000
    most_rounds = 100
    targets = {}  # measure: greatest ratio to InnoDB
    absolute = {}  # measure: greatest value, in the measure's own unit

    def __init__(self, server, options):
        self.server, self.options = server, options
        self.rows = options.rows or type(self).rows
        self.connection = None
        self.database = f"bench_{self.name}"

    def open(self):
        """A new connection to the workload's database."""
        self.connection = self.server.connect(self.database)

    def run(self, statement):
        """A statement that is not measured."""
        return execute(self.connection, statement)

    def time(self, statement, arguments=None):
        """Seconds of a measured statement."""
        return timed(self.connection, statement, arguments)

    def fast(self, statement, repeats):
        """Median seconds of a statement too short to measure once."""
        return sorted(self.time(statement) for _ in range(repeats))[repeats // 2]

    def prepare(self, engines):
        """Tables that all rounds share."""

    def measure(self, engine):
        """One round for one engine."""
        raise NotImplementedError


class Bulk(Workload):
    """The 2007 test drive: a table without keys is filled, scanned, updated, emptied and rolled back."""

    name = "bulk"
    rows = big_table.ROWS
    targets = {"insert..select": 0.6, "scan with sum": 0.7, "scan with filter": 0.5, "update all": 0.25, "delete all": 0.25}
    absolute = {"rollback": 0.010, "count(*)": 0.0001}

    def prepare(self, engines):
        self.run(big_table.create_statement("big_table", "InnoDB"))
        self.run(big_table.fill_statement("big_table", self.rows))
        value_of(self.connection, "SELECT SUM(price) FROM big_table")

    def measure(self, engine):
        self.run(big_table.create_statement("t", engine))
        result = {"insert..select": self.time("INSERT INTO t SELECT * FROM big_table")}
        result["count(*)"] = self.fast("SELECT COUNT(*) FROM t", 5)
        result["scan with sum"] = self.time("SELECT SUM(number_of_units * price) FROM t")
        result["scan with filter"] = self.time("SELECT COUNT(*) FROM t WHERE broker_id = 17 AND action = 'sell'")
        result["update all"] = self.time("UPDATE t SET description = 'testing update of varchar column'")
        self.run("SET autocommit = 0")
        result["delete all"] = self.time("DELETE FROM t")
        result["rollback"] = self.time("ROLLBACK")
        self.run("SET autocommit = 1")
        self.run("DROP TABLE t")
        return result


class Keys(Workload):
    """The video table of the 2011 comparison (4 indexes) is filled; an indexed column of all rows is updated; counts through a key."""

    name = "keys"
    rows = 1_000_000
    targets = {"insert..select, 4 keys": 0.25, "update of an indexed column": 0.35, "count through a key": 0.6}

    COLUMNS = (
        "id INT NOT NULL, artist VARCHAR(100) NOT NULL, title VARCHAR(100) NOT NULL, video VARCHAR(20) NOT NULL, date DATE NOT NULL,"
        " PRIMARY KEY (id), KEY artist (artist), KEY video (video), KEY date_id (date, id)"
    )

    def prepare(self, engines):
        self.run(f"CREATE TABLE source ({self.COLUMNS}) ENGINE=InnoDB CHARSET=latin1")
        self.run(
            "INSERT INTO source SELECT seq, CONCAT('artist ', (seq * 7919) % 50000), CONCAT('title ', MD5(seq)), LEFT(MD5(seq + 1), 11),"
            f" '2010-01-01' + INTERVAL (seq * 31) % 365 DAY FROM seq_1_to_{self.rows}"
        )
        value_of(self.connection, "SELECT SUM(LENGTH(title)) FROM source")

    def measure(self, engine):
        self.run(f"CREATE TABLE t ({self.COLUMNS}) ENGINE={engine} CHARSET=latin1")
        result = {"insert..select, 4 keys": self.time("INSERT INTO t SELECT * FROM source")}
        self.run("ANALYZE TABLE t")
        result["count through a key"] = self.fast("SELECT COUNT(*) FROM t FORCE INDEX (artist) WHERE artist LIKE 'artist 1%'", 3)
        result["key range and fetch"] = self.fast(
            "SELECT SUM(LENGTH(title)) FROM t FORCE INDEX (date_id) WHERE date = '2010-11-11'", 5
        )
        result["update of an indexed column"] = self.time("UPDATE t SET artist = CONCAT(artist, ' ok')")
        result["delete by key"] = self.time("DELETE FROM t WHERE artist LIKE 'artist 2%'")
        self.run("DROP TABLE t")
        return result


class Procedure(Workload):
    """The 2005 test drive: single-row INSERTs in a stored procedure, in one transaction; then a count with a condition."""

    name = "procedure"
    rows = 300_000
    targets = {"single-row inserts": 0.95, "count with a condition": 0.5}

    def measure(self, engine):
        self.run(f"CREATE TABLE insert_test (c1 INT, c2 VARCHAR(20), c3 DATE) ENGINE={engine}")
        self.run(
            "CREATE OR REPLACE PROCEDURE test_insert(k INT) BEGIN DECLARE v INT DEFAULT 0;"
            " WHILE v < k DO INSERT INTO insert_test VALUES (1, 'sample audit string', NOW()); SET v = v + 1; END WHILE; END"
        )
        self.run("BEGIN")
        result = {"single-row inserts": self.time(f"CALL test_insert({self.rows})")}
        self.run("COMMIT")
        result["count with a condition"] = self.fast("SELECT COUNT(*) FROM insert_test WHERE c1 = 1", 3)
        result["1,000 inserts, a commit each"] = self.time("CALL test_insert(1000)")
        self.run("DROP TABLE insert_test")
        return result


class Lookups(Workload):
    """sysbench's table: point selects by one connection, primary-key range join, secondary range and fetch."""

    name = "lookups"
    rows = 1_000_000
    targets = {"secondary range and fetch": 0.5, "primary key range join": 0.85, "point selects, one connection": 0.95}
    POINTS = 5_000

    def prepare(self, engines):
        for engine in engines:
            table = f"sb_{engine.lower()}"
            self.run(
                f"CREATE TABLE {table} (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT UNSIGNED NOT NULL DEFAULT 0,"
                f" c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k (k)) ENGINE={engine} CHARSET=latin1"
            )
            self.run(
                f"INSERT INTO {table} SELECT seq, (seq * 7919) % {self.rows}, REPEAT(MD5(seq), 3), MD5(seq + 1) FROM seq_1_to_{self.rows}"
            )
            self.run(f"ANALYZE TABLE {table}")

    def measure(self, engine):
        table, draw = f"sb_{engine.lower()}", random.Random(5)
        low = draw.randint(1, self.rows // 2)
        fetch = f"SELECT SUM(LENGTH(pad)), MAX(c) FROM {table} FORCE INDEX (k) WHERE k BETWEEN {low} AND {low + self.rows // 20}"
        join = f"SELECT t1.c, t2.c FROM {table} t1, {table} t2 WHERE t1.id BETWEEN %s AND %s AND t2.id = {self.rows} - t1.id"
        covering = f"SELECT COUNT(*) FROM {table} FORCE INDEX (k) WHERE k BETWEEN {low} AND {low + self.rows // 4}"
        return {
            "secondary range and fetch": self.fast(fetch, 3),
            "count over a key range": self.fast(covering, 3),
            "primary key range join": sum(self.time(join, (s, s + 999)) for s in self.starts(draw, 60)),
            "point selects, one connection": self.points(table, draw),
        }

    def starts(self, draw, number):
        """Where the ranges of the join begin."""
        return [draw.randint(1, self.rows - 2000) for _ in range(number)]

    def points(self, table, draw):
        """Seconds for POINTS selects of one row each, sent one by one."""
        idents = [draw.randint(1, self.rows) for _ in range(self.POINTS)]
        statement = f"SELECT c FROM {table} WHERE id = "
        begin = time.perf_counter()
        with self.connection.cursor() as cursor:
            for ident in idents:
                cursor.execute(statement + str(ident))
                cursor.fetchall()
        return time.perf_counter() - begin


class Huge(Workload):
    """One transaction of five million rows: its commit, its rollback, and the memory it takes. One round, a fresh server each."""

    name = "huge"
    rows = 5_000_000
    most_rounds = 1
    absolute = {"commit": 0.01, "rollback": 0.01}

    def measure(self, engine):
        if value_of(self.connection, "SELECT transactions FROM information_schema.engines WHERE engine = %s", (engine,)) != "YES":
            return {}
        self.connection.close()
        self.server.restart()
        self.open()
        self.run(f"CREATE TABLE t (n INT NOT NULL PRIMARY KEY, v INT NOT NULL, w VARCHAR(30)) ENGINE={engine}")
        before = self.server.resident_bytes()
        self.server.reset_peak()
        fill = f"INSERT INTO t SELECT seq, seq % 1000, CONCAT('row number ', seq) FROM seq_1_to_{self.rows}"
        result = {}
        self.run("BEGIN")
        result["insert, rolled back"] = self.time(fill)
        result["rollback"] = self.time("ROLLBACK")
        self.expect_rows(0)
        self.run("BEGIN")
        result["insert, committed"] = self.time(fill)
        result["commit"] = self.time("COMMIT")
        result["memory gained (MiB)"] = (self.server.peak_bytes() - before) / 2**20
        self.expect_rows(self.rows)
        self.run("DROP TABLE t")
        return result

    def expect_rows(self, expected):
        """A measurement of a wrong answer is worth nothing."""
        seen = value_of(self.connection, "SELECT COUNT(*) FROM t")
        if seen != expected:
            raise Problem(f"table t has {seen} rows, {expected} were expected: the numbers of this run would be of no use.")


ALL = [Bulk, Keys, Procedure, Lookups, Huge]
