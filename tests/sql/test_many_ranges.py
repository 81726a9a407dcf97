"""Lists of keys and other conditions of many ranges, which the engine reads as one scan (rule X53). InnoDB is the oracle of answers."""

import random

import pytest

ROWS = 6000
COLUMNS = (
    "id INT NOT NULL PRIMARY KEY, a INT, b INT NOT NULL, c VARCHAR(20) COLLATE utf8mb4_general_ci, d INT, pad VARCHAR(300),"
    " v INT AS (b * 2) VIRTUAL, KEY a (a), KEY ab (a, b DESC), KEY c (c), KEY part (c(2), b), UNIQUE KEY d (d), KEY v (v)"
)
FILL = (
    "INSERT INTO t (id, a, b, c, d, pad) SELECT seq * 3001 MOD {rows} + 1, IF(seq MOD 11 = 0, NULL, seq MOD 90), seq MOD 37, CONCAT('C', seq MOD 50),"
    " IF(seq MOD 3 = 0, seq, NULL), CONCAT('p', seq MOD 7, REPEAT('x', 150)) FROM seq_1_to_{rows}"
)
SETTINGS = [
    "",
    "SET SESSION optimizer_switch='index_condition_pushdown=off'",
    "SET SESSION optimizer_switch='mrr=on,mrr_cost_based=off,mrr_sort_keys=on'",
    "SET SESSION join_cache_level=8, optimizer_switch='mrr=on,mrr_cost_based=off,join_cache_bka=on'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
]
QUERIES = [
    "SELECT * FROM t WHERE id IN ({ids})",
    "SELECT * FROM t WHERE id IN ({ids}) ORDER BY id",
    "SELECT * FROM t WHERE id IN ({ids}) ORDER BY id DESC",
    "SELECT * FROM t WHERE id IN ({ids}) AND pad LIKE 'p3%'",
    "SELECT id, v, pad FROM t FORCE INDEX (v) WHERE v IN (2, 10, 11, 72, 74)",
    "SELECT * FROM t FORCE INDEX (a) WHERE a IN (1, 7, 33, 88) OR a IS NULL",
    "SELECT * FROM t FORCE INDEX (a) WHERE a < 3 OR a BETWEEN 20 AND 22 OR a > 86",
    "SELECT * FROM t FORCE INDEX (ab) WHERE a IN (1, 5, 6) AND b IN (3, 30, 31)",
    "SELECT * FROM t FORCE INDEX (ab) WHERE a IN (1, 5, 6) AND b BETWEEN 3 AND 12",
    "SELECT * FROM t FORCE INDEX (ab) WHERE a IN (1, 5, 6) ORDER BY a, b DESC",
    "SELECT * FROM t FORCE INDEX (ab) WHERE a IN (1, 5, 6) AND id MOD 3 = 1 AND b <> 7",
    "SELECT * FROM t FORCE INDEX (c) WHERE c IN ('c1', 'C7', 'c33', 'none')",
    "SELECT * FROM t FORCE INDEX (part) WHERE c IN ('c1', 'C17', 'c33') AND b IN (1, 2, 3)",
    "SELECT * FROM t FORCE INDEX (d) WHERE d IN (3, 300, 3000, 4, 5999)",
    "SELECT * FROM t FORCE INDEX (d) WHERE d IN (3, 300) OR d IS NULL",
    "SELECT id FROM t FORCE INDEX (d) WHERE d IN (3, 300, 3000)",
    "SELECT d FROM t FORCE INDEX (d) WHERE d IN (3, 300, 3000)",
    "SELECT COUNT(*), SUM(b), SUM(LENGTH(pad)) FROM t WHERE id IN ({ids}) OR a IN (3, 4)",
    "SELECT * FROM t WHERE d IN (3, 300, 600, 900) OR a IN (5, 6) OR c IN ('c9', 'c10')",
    "SELECT x.id, y.id, y.pad FROM t x JOIN t y ON y.id = x.b WHERE x.id IN ({ids})",
    "SELECT x.id, y.id, y.pad FROM t x JOIN t y ON y.a = x.b AND y.b IN (1, 5, 9) WHERE x.id IN ({few})",
    "SELECT x.id, y.pad FROM t x LEFT JOIN t y ON y.d = x.id WHERE x.id IN ({ids})",
    "SELECT * FROM t WHERE id IN (SELECT b FROM t WHERE a IN (3, 4, 5))",
    "SELECT id, (SELECT SUM(y.b) FROM t y WHERE y.a IN (x.b, x.b + 1, x.b + 2)) FROM t x WHERE id IN ({few})",
    "SELECT a, COUNT(*), MAX(pad) FROM t FORCE INDEX (a) WHERE a IN (1, 2, 3, 50, 51) GROUP BY a",
]
CHANGES = [
    "UPDATE t SET pad = CONCAT('changed', id) WHERE id IN ({ids})",
    "DELETE FROM t WHERE id IN ({few})",
    "UPDATE t SET a = a + 100 WHERE a IN (1, 7, 33)",
    "UPDATE t SET b = 5 WHERE a IN (2, 8) AND b IN (3, 4)",
    "INSERT INTO t (id, a, b, c) VALUES (100001, 7, 3, 'c7'), (100002, 33, 30, 'c33')",
    "DELETE FROM t WHERE a IN (6, 88) OR a IS NULL",
]


def numbers(seed, count):
    draw = random.Random(seed)
    return ", ".join(str(draw.randrange(0, ROWS + 50)) for _ in range(count))


def filled_in(query, seed):
    return query.format(ids=numbers(seed, 400), few=numbers(seed + 1, 25))


@pytest.fixture(params=["heap", "PARTITION BY HASH (id) PARTITIONS 5"])
def filled(twin, request):
    keys = COLUMNS if request.param == "heap" else COLUMNS.replace("UNIQUE KEY d (d)", "KEY d (d)")
    partitions = "" if request.param == "heap" else request.param
    twin.ok(f"CREATE TABLE t ({keys}) ENGINE={{engine}} CHARSET utf8mb4 {partitions}")
    twin.ok(FILL.format(rows=ROWS))
    for side in (twin.under_test, twin.oracle):
        side.ok("ANALYZE TABLE t")
    return twin


@pytest.mark.parametrize("setting", SETTINGS)
def test_lists_of_keys_give_the_rows_of_innodb(filled, setting):
    if setting:
        filled.ok(setting)
    for seed, query in enumerate(QUERIES):
        text = filled_in(query, seed)
        if "ORDER BY id" in query:
            filled.run(text)
        else:
            filled.same(text)


def test_lists_of_keys_see_what_the_statement_may_see(filled):
    filled.ok("BEGIN")
    for seed, statement in enumerate(CHANGES):
        filled.ok(filled_in(statement, seed))
        for query in QUERIES:
            filled.same(filled_in(query, seed))
    filled.ok("ROLLBACK")
    for seed, query in enumerate(QUERIES):
        filled.same(filled_in(query, seed))
    for seed, statement in enumerate(CHANGES):
        filled.ok(filled_in(statement, seed))
        filled.same_table("t")


def test_lists_of_keys_that_are_left_early_or_read_again(filled):
    for limit in (1, 2, 17, 33, 100, 300):
        filled.run(filled_in(f"SELECT * FROM t WHERE id IN ({{ids}}) ORDER BY id LIMIT {limit}", limit))
        filled.run(filled_in(f"SELECT id, pad FROM t FORCE INDEX (a) WHERE a IN (5, 9, 40) ORDER BY a, id LIMIT {limit}", limit))
    filled.ok("PREPARE p FROM 'SELECT * FROM t WHERE id IN (?, ?, ?, 17, 300, 5999) ORDER BY id'")
    for values in ((1, 2, 3), (5, 5, 5), (9000, 17, 4)):
        filled.ok("SET @x = {}, @y = {}, @z = {}".format(*values))
        filled.run("EXECUTE p USING @x, @y, @z")
    filled.run("SELECT id FROM t WHERE id IN (1, 2, 3, 4, 5, 6) AND EXISTS (SELECT 1 FROM t y WHERE y.id IN (t.id, t.id + 7) AND y.pad <> '') ORDER BY id")
    for lock in ("FOR UPDATE", "LOCK IN SHARE MODE"):
        filled.run(filled_in(f"SELECT * FROM t WHERE id IN ({{ids}}) ORDER BY id {lock}", 5))


def test_ranges_are_counted_as_reads(db):
    db.ok(f"CREATE TABLE t ({COLUMNS}) ENGINE={{engine}} CHARSET utf8mb4")
    db.ok(FILL.format(rows=ROWS))
    db.ok("ANALYZE TABLE t")

    def reads(query):
        db.ok("FLUSH STATUS")
        found = len(db.rows(query))
        return found, {row[0]: int(row[1]) for row in db.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")}

    found, counts = reads("SELECT * FROM t WHERE id IN (1, 17, 300, 3999, 100000)")
    assert (found, counts["Handler_read_key"]) == (4, 5), counts
    found, counts = reads("SELECT * FROM t FORCE INDEX (a) WHERE a IN (1, 7, 33)")
    assert counts["Handler_read_key"] == 3, counts
    assert found - 3 <= counts["Handler_read_next"] <= found, (found, counts)
    answer = db.run("SELECT * FROM t FORCE INDEX (a) WHERE a IN (1, 7, 33) LIMIT ROWS EXAMINED 20")
    assert answer.error is None and len(answer.rows) < 60, "the limit ends the read"


@pytest.mark.pbxt_only
def test_a_list_of_keys_reads_each_block_once(own_server):
    """Ten rows a key, strewn over all blocks, of which few have room in memory: key by key, most rows cost a block."""
    server = own_server("--pbxt-cache-size=4M")
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("USE d")
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, k INT, pad VARBINARY(200), KEY k (k)) ENGINE=PBXT")
        cursor.execute("INSERT INTO t SELECT seq, seq * 7919 MOD 6000, CONCAT(UNHEX(SHA2(seq, 512)), UNHEX(SHA2(-seq, 512))) FROM seq_1_to_60000")
    connection.close()
    wanted = [str(number) for number in range(0, 6000, 7)]
    misses = []
    for at_once in (len(wanted), 1):
        server.stop()
        server.start()
        connection = server.connect()
        with connection.cursor() as cursor:
            rows = []
            for begin in range(0, len(wanted), at_once):
                cursor.execute(f"SELECT * FROM d.t FORCE INDEX (k) WHERE k IN ({', '.join(wanted[begin : begin + at_once])})")
                rows += cursor.fetchall()
            assert len(rows) == 10 * len(wanted)
            cursor.execute("SHOW GLOBAL STATUS LIKE 'pbxt_block_cache_misses'")
            misses.append(int(cursor.fetchone()[1]))
        connection.close()
    assert misses[0] * 4 < misses[1], f"{misses[0]} blocks for all at once, {misses[1]} one by one"
