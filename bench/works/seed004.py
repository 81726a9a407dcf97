"""The comparison of 2007: reads of user accounts, sysbench's transactions in memory and larger than memory."""

import time

from bench import sysbench
from bench.works.base import TRANSACTIONAL, WITH_KEYS, Work

ACCOUNTS = (
    "id INT UNSIGNED NOT NULL AUTO_INCREMENT, name VARCHAR(64) NOT NULL DEFAULT '', email VARCHAR(64) NOT NULL DEFAULT '',"
    " password VARCHAR(64) NOT NULL DEFAULT '', dob DATE DEFAULT NULL, address VARCHAR(128) NOT NULL DEFAULT '',"
    " city VARCHAR(64) NOT NULL DEFAULT '', state_id TINYINT UNSIGNED NOT NULL DEFAULT 0, zip VARCHAR(8) NOT NULL DEFAULT '',"
    " country_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, PRIMARY KEY (id), KEY country_id (country_id, state_id, city)"
)
ROWS_OF_A_COUNTRY = 100


class Accounts(Work):
    """Comparison of 2007: reads of user accounts
    By primary key; by a key over the country, which finds 100 rows; by the same key with all columns in it (covered); with LIMIT 20.
    Queries a second, each by 1 to 128 clients.
    """

    name = "accounts"
    seed = "004"
    engines = WITH_KEYS
    quick_engines = ("PBXT", "InnoDB")
    scale = "clients"
    queries = {"by primary key": "primary", "by a key": "key", "by a covering key": "covered", "by a key, LIMIT 20": "limit"}
    full = {"rows": 1_000_000, "seconds": 5, "clients": (1, 4, 16, 64, 128)}
    quick = {"rows": 60_000, "seconds": 1, "clients": (1, 16)}

    def countries(self):
        """Different values of country_id."""
        return self.size.rows // ROWS_OF_A_COUNTRY

    def prepare(self, turn):
        turn.run(f"CREATE TABLE accounts ({ACCOUNTS}) ENGINE={turn.sql_engine} DEFAULT CHARSET=latin1")
        turn.run(
            "INSERT INTO accounts SELECT seq, CONCAT('name ', MD5(seq)), CONCAT('user', seq, '@example.com'), MD5(seq + 1),"
            " '1950-01-01' + INTERVAL (seq * 31) % 20000 DAY, CONCAT(seq % 999, ' ', MD5(seq + 2), ' Street'), CONCAT('city ', seq % 5000),"
            f" seq % 50, LPAD(seq % 99999, 5, '0'), 1 + (seq * 7919) % {self.countries()} FROM seq_1_to_{self.size.rows}"
        )
        turn.run("ANALYZE TABLE accounts")
        turn.warm("accounts", "name")

    def round(self, turn):
        for measure, query in self.queries.items():
            words = turn.script("accounts", f"--table-size={self.size.rows}", f"--countries={self.countries()}", f"--query={query}")
            for clients in self.size.clients:
                turn.load(measure, words, clients, self.size.seconds, clients)


class SysbenchWork(Work):
    """What the two works with sysbench's own table share."""

    def words(self, turn, test, *more):
        """sysbench's command line for one of its tests."""
        return sysbench.command(turn.lab, test, self.size.rows, f"--mysql-storage-engine={turn.sql_engine.lower()}", *more, database=self.name)

    def fill(self, turn):
        """sysbench makes and fills its table by INSERTs of many rows."""
        sysbench.call([*self.words(turn, "oltp_read_write"), "prepare"], turn.work.options.limit)


class Oltp(SysbenchWork):
    """sysbench's transactions in memory, 16 connections
    One table that fits into the cache, a flush for each commit; transactions a second, and the slowest second of a run in percent of its
    median second (the first second does not count). Transactions that end with 1020 (PBXT's default where InnoDB goes on), 1205 or 1213 are repeated
    and count once. BLACKHOLE takes inserts and finds nothing: what parsing and the way there and back allow.
    """

    name = "sysbench"
    seed = "004"
    engines = TRANSACTIONAL
    quick_engines = ("PBXT", "InnoDB")
    floor = True
    tests = ("oltp_point_select", "oltp_update_non_index", "oltp_update_index", "oltp_insert", "oltp_read_write")
    floor_tests = ("oltp_point_select", "oltp_insert")
    full = {"rows": 500_000, "seconds": 20, "clients": 16}
    quick = {"rows": 30_000, "seconds": 3, "clients": 16}

    def prepare(self, turn):
        self.fill(turn)
        turn.warm("sbtest1", "c")

    def round(self, turn):
        self._tests(turn, self.tests)

    def floor_round(self, turn):
        self._tests(turn, self.floor_tests)

    def _tests(self, turn, tests):
        for test in tests:
            load = turn.load(test, self.words(turn, test), self.size.clients, self.size.seconds)
            turn.record_seconds(test, load)


class LargerThanMemory(SysbenchWork):
    """sysbench's transactions over a table larger than the cache
    The comparison's 100 million rows and 2 GB of buffers, scaled down at the same proportion: some 20 times the cache, rows drawn uniformly,
    16 connections. Beside transactions a second: loading by INSERTs of many rows, and bytes on disk, with CHAR as sysbench has it and with
    VARCHAR. PBXT and InnoDB read past the system's page cache, MyRocks has it beside its own.
    """

    name = "larger_than_memory"
    seed = "004"
    engines = TRANSACTIONAL
    quick_engines = ("PBXT", "InnoDB")
    small_cache = True
    full = {"rows": 6_000_000, "seconds": 60, "clients": 16}
    quick = {"rows": 150_000, "seconds": 2, "clients": 16}

    def prepare(self, turn):
        turn.mark_disk()
        begin = time.perf_counter()
        self.fill(turn)
        turn.record("INSERTs of many rows", time.perf_counter() - begin)
        turn.bytes_on_disk("bytes on disk, CHAR", self.size.rows)
        turn.run("ANALYZE TABLE sbtest1")

    def round(self, turn):
        self._varchar(turn)
        for test in ("oltp_read_only", "oltp_read_write"):
            load = turn.load(test, self.words(turn, test, "--rand-type=uniform"), self.size.clients, self.size.seconds)
            turn.record_seconds(test, load)

    def _varchar(self, turn):
        """The same rows in columns of variable length, loaded by one statement."""
        turn.mark_disk()
        turn.run(
            f"CREATE TABLE loose (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, c VARCHAR(120) NOT NULL, pad VARCHAR(60) NOT NULL, KEY k (k))"
            f" ENGINE={turn.sql_engine} DEFAULT CHARSET=latin1"
        )
        turn.time("INSERT..SELECT into VARCHAR", "INSERT INTO loose SELECT * FROM sbtest1")
        turn.bytes_on_disk("bytes on disk, VARCHAR", self.size.rows)
        turn.run("DROP TABLE loose")
