"""Conditions pushed to index scans: the same answers as without them, and rows that are not wanted are neither read nor locked.

InnoDB in the same server is the oracle of answers. What is read is counted by the server itself: Handler_read_next is a row handed to
it, Handler_icp_attempts an index entry held against the condition.
"""

import itertools

import pytest

ROWS = 6000
COLUMNS = "n INT NOT NULL PRIMARY KEY, a INT NOT NULL, b VARCHAR(20), c DECIMAL(8,2), d DATE, e DOUBLE, v INT, pad VARCHAR(100)"
KEYS = "KEY ab (a, b), KEY acd (a, c, d), KEY ba (b, a), KEY ea (e, a)"
FILL = (
    "INSERT INTO {table} SELECT seq, seq MOD 60, IF(seq MOD 11 = 0, NULL, CONCAT(CHAR(97 + seq MOD 7), seq MOD 13)), seq / 8,"
    " '2020-01-01' + INTERVAL seq MOD 400 DAY, IF(seq MOD 17 = 0, NULL, seq / 10), seq, REPEAT('p', seq MOD 100) FROM seq_1_to_{rows}"
)

CONDITIONS = [
    "a BETWEEN 10 AND 20 AND b LIKE 'c%'",
    "a BETWEEN 10 AND 20 AND b IS NULL",
    "a BETWEEN 10 AND 20 AND b NOT LIKE '%1'",
    "a > 40 AND LENGTH(b) = 3",
    "a < 12 AND c * 8 MOD 5 = 0",
    "a IN (3, 7, 9, 40) AND MONTH(d) = 5",
    "a = 7 AND DAYOFWEEK(d) = 2",
    "a BETWEEN 3 AND 50 AND c BETWEEN 100 AND 110 AND d > '2020-06-01'",
    "b > 'c' AND a = 9",
    "b LIKE 'd%' AND a MOD 3 = 1",
    "(b IS NULL OR b > 'f') AND a < 5",
    "e BETWEEN 100 AND 200 AND a = 4",
    "e < 50 AND a <> 7 AND a <> 9",
    "a BETWEEN 10 AND 20 AND UPPER(b) = 'C3' AND v MOD 2 = 0",
]


def fill(db, table="t", rows=ROWS, more=""):
    """A table of the module's columns and keys, its rows in the log or, if they are many, in runs."""
    db.ok(f"CREATE TABLE {table} ({COLUMNS}, {KEYS}) ENGINE={db.engine} {more}")
    db.ok(FILL.format(table=table, rows=rows))
    db.rows(f"ANALYZE TABLE {table}")


def handlers(session, query):
    """Rows of a query, and what the server counted for it."""
    session.ok("FLUSH STATUS")
    rows = session.rows(query)
    return rows, {name.removeprefix("Handler_"): int(value) for name, value in session.rows("SHOW SESSION STATUS LIKE 'Handler%'")}


def explained(session, query):
    """The Extra column of the first line of EXPLAIN."""
    return session.rows("EXPLAIN " + query)[0][-1] or ""


@pytest.fixture
def pair(twin):
    """The table in both engines."""
    for database in (twin.under_test, twin.oracle):
        fill(database)
    return twin


def compare_all(pair):
    """Every condition, in index order both ways, with and without LIMIT."""
    for condition in CONDITIONS:
        pair.same(f"SELECT n, a, b, c, d, e, v FROM t WHERE {condition}")
        pair.same(f"SELECT COUNT(*), SUM(v) FROM t FORCE INDEX (ab, acd, ba, ea) WHERE {condition}")
        for order, limit in itertools.product(("ASC", "DESC"), (1, 20, 40)):
            pair.run(f"SELECT a, n FROM t WHERE {condition} ORDER BY a {order}, n {order} LIMIT {limit}")


def test_answers_are_those_without_pushing(pair):
    compare_all(pair)
    assert "Using index condition" in explained(pair.under_test, f"SELECT v FROM t FORCE INDEX (ab) WHERE {CONDITIONS[0]}")


def test_answers_after_changes_of_keys(pair):
    for statement in (
        "UPDATE t SET a = a + 1 WHERE n MOD 3 = 0",
        "UPDATE t SET b = 'c3' WHERE n MOD 50 = 1",
        "DELETE FROM t WHERE n MOD 7 = 2",
        "INSERT INTO t SELECT n + 100000, a, b, c, d, e, v, pad FROM t WHERE n MOD 9 = 0",
    ):
        pair.ok(statement)
    compare_all(pair)
    pair.run("BEGIN")
    pair.ok("UPDATE t SET a = 15, b = 'c9' WHERE n BETWEEN 100 AND 200")
    compare_all(pair)
    pair.run("ROLLBACK")
    compare_all(pair)


def test_answers_from_runs(twin):
    for database in (twin.under_test, twin.oracle):
        fill(database, rows=60_000)
    compare_all(twin)


def test_a_join_pushes_what_compares_with_other_tables(pair):
    for database in (pair.under_test, pair.oracle):
        database.ok("CREATE TABLE small (k INT NOT NULL, w VARCHAR(20)) ENGINE={engine}")
        database.ok("INSERT INTO small SELECT seq, CONCAT('c', seq) FROM seq_1_to_9")
    for query in (
        "SELECT s.k, t.n FROM small s JOIN t ON t.a = s.k AND t.b > s.w",
        "SELECT s.k, COUNT(t.n) FROM small s LEFT JOIN t ON t.a = s.k AND t.b LIKE CONCAT('%', s.k) GROUP BY s.k",
        "SELECT s.k, t.n FROM small s JOIN t FORCE INDEX (acd) ON t.a = s.k AND MONTH(t.d) = s.k",
        "SELECT k FROM small WHERE k IN (SELECT a FROM t WHERE b LIKE 'd%' AND v > 100)",
        "SELECT k, (SELECT MAX(v) FROM t WHERE t.a = small.k AND LENGTH(t.b) = 3) FROM small",
    ):
        pair.same(query)


def test_a_row_that_the_server_keeps_for_the_next_search_is_judged_again(twin):
    """Of a unique key the server remembers the row last found: neighbours with the same key differ in what the condition says."""
    for database in (twin.under_test, twin.oracle):
        database.ok("CREATE TABLE one (n INT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL, v INT, UNIQUE KEY (a, b)) ENGINE={engine}")
        database.ok("INSERT INTO one SELECT seq, seq DIV 10, seq MOD 10, seq FROM seq_1_to_2000")
        database.ok("CREATE TABLE many (p INT PRIMARY KEY, k INT, w INT) ENGINE={engine}")
        database.ok("INSERT INTO many SELECT seq, seq DIV 8, (seq MOD 8) * 5 FROM seq_1_to_400")
        database.rows("ANALYZE TABLE one, many")
    for query in (
        "SELECT m.p, o.v FROM many m STRAIGHT_JOIN one o ON o.n = m.k WHERE o.n > m.w",
        "SELECT m.p, o.v FROM many m STRAIGHT_JOIN one o ON o.n = m.k + 0 WHERE o.n > m.w",
        "SELECT m.p, o.v FROM many m STRAIGHT_JOIN one o ON o.n = m.k AND o.n * 2 > m.w + 3",
        "SELECT m.p, o.v FROM many m LEFT JOIN one o ON o.n = m.k AND o.n > m.w",
        "SELECT m.p, o.v FROM many m STRAIGHT_JOIN one o ON o.a = m.k AND o.b = 3 AND o.a > m.w",
        "SELECT m.p, o.v FROM many m LEFT JOIN one o ON o.a = m.k AND o.b = 3 AND o.a + o.b > m.w ORDER BY m.p",
        "SELECT m.p, (SELECT o.v FROM one o WHERE o.n = m.k AND o.n > m.w) FROM many m",
        "SELECT m.p FROM many m WHERE EXISTS (SELECT 1 FROM one o WHERE o.n = m.k AND o.n > m.w)",
    ):
        for switch in ("on", "off"):
            for database in (twin.under_test, twin.oracle):
                database.ok(f"SET optimizer_switch = 'index_condition_pushdown={switch}'")
            twin.same(query)


def test_a_partitioned_table(twin):
    for database in (twin.under_test, twin.oracle):
        fill(database, more="PARTITION BY HASH (n) PARTITIONS 4")
    compare_all(twin)


def test_keys_with_prefixes_and_virtual_columns(twin):
    for database in (twin.under_test, twin.oracle):
        database.ok(
            "CREATE TABLE t (n INT PRIMARY KEY, s VARCHAR(100), x TEXT, y INT, w INT AS (y * 2) VIRTUAL, KEY (s(3), y), KEY (x(4), y),"
            " KEY (w, y), KEY (y, s)) ENGINE={engine}"
        )
        database.ok(
            "INSERT INTO t (n, s, x, y) SELECT seq, CONCAT('abc', seq MOD 50), CONCAT('abcd', seq MOD 40), seq MOD 90 FROM seq_1_to_3000"
        )
    for condition in ("s > 'abc2' AND y = 5", "s LIKE 'abc1%' AND y MOD 7 = 3", "x LIKE 'abcd1%' AND y = 8", "w > 20 AND y MOD 9 = 1",
                      "y BETWEEN 3 AND 30 AND s LIKE '%49'", "w = 40 AND y < 50"):  # fmt: skip
        for key in ("s", "x", "w", "y"):
            twin.same(f"SELECT n, s, x, y, w FROM t FORCE INDEX ({key}) WHERE {condition}")


@pytest.mark.pbxt_only
def test_rows_that_do_not_match_are_not_read(db):
    fill(db)
    query = "SELECT SUM(v) FROM t FORCE INDEX (ab) WHERE a BETWEEN 10 AND 20 AND b = 'c2'"
    _, counted = handlers(db, query)
    wanted = db.value("SELECT COUNT(*) FROM t WHERE a BETWEEN 10 AND 20 AND b = 'c2'")
    assert counted["read_next"] + counted["read_key"] <= wanted + 2
    assert counted["icp_attempts"] >= ROWS / 6 - 200 and counted["icp_match"] >= wanted
    before = int(db.rows("SHOW GLOBAL STATUS LIKE 'pbxt_rows_read'")[0][1])
    db.rows(query)
    assert int(db.rows("SHOW GLOBAL STATUS LIKE 'pbxt_rows_read'")[0][1]) - before == wanted
    db.ok("SET optimizer_switch = 'index_condition_pushdown=off'")
    assert "Using index condition" not in explained(db, query)


@pytest.mark.pbxt_only
def test_what_ranges_of_the_primary_key_say_is_not_asked_of_entries(db):
    fill(db)
    query = "SELECT n, v FROM t FORCE INDEX (PRIMARY) WHERE "
    for condition, first, last in [
        ("n BETWEEN 100 AND 199", 100, 199),
        ("n > 5950", 5951, ROWS),
        ("7 <= n AND n < 20", 7, 19),
        ("n IN (8, 9, 10, 11)", 8, 11),
    ]:
        assert "Using index condition" not in explained(db, query + condition), condition
        rows, counted = handlers(db, query + condition)
        assert sorted(rows) == [(n, n) for n in range(first, last + 1)] and counted["icp_attempts"] == 0, condition
    # What is no range is asked before rows are read.
    for condition, wanted in [
        ("n BETWEEN 100 AND 199 AND n MOD 10 = 3", 10),
        ("n BETWEEN 100 AND 199 AND n NOT BETWEEN 110 AND 189", 20),
        ("n BETWEEN 100 AND 199 AND n <> 150", 99),
    ]:
        assert "Using index condition" in explained(db, query + condition), condition
        rows, counted = handlers(db, query + condition)
        assert len(rows) == wanted and counted["icp_attempts"] >= wanted, condition


@pytest.mark.pbxt_only
def test_a_scan_that_is_left_early_tries_few_entries(db):
    fill(db)
    _, counted = handlers(db, "SELECT v FROM t FORCE INDEX (ab) WHERE a BETWEEN 0 AND 50 AND b LIKE 'c%' LIMIT 20")
    assert counted["read_next"] <= 20 and counted["icp_attempts"] < 1000


@pytest.mark.pbxt_only
def test_a_limit_bounds_the_entries_that_are_tried(db):
    fill(db)
    # The condition holds for every entry, so entries tried are rows read.
    wanted = "SELECT v FROM t FORCE INDEX (ab) WHERE a >= 0 AND b LIKE '%'"
    for tail, limit in [("LIMIT 60", 60), ("ORDER BY a LIMIT 60", 60), ("ORDER BY a DESC LIMIT 60", 60), ("LIMIT 20 OFFSET 80", 100)]:
        rows, counted = handlers(db, f"{wanted} {tail}")
        # Entries of NULL, one of eleven, are turned away.
        assert len(rows) in (20, 60) and counted["icp_attempts"] <= 16 + 2 * 32 + limit * 12 // 10, f"{tail}: {counted}"
    # Without a limit, or where all rows are needed for a few, every entry is tried.
    for statement in [wanted, f"{wanted} ORDER BY v LIMIT 60", f"SELECT MAX(v) FROM ({wanted} LIMIT 18446744073709551615) x LIMIT 1"]:
        _, counted = handlers(db, statement)
        assert counted["icp_attempts"] == ROWS, f"{statement}: {counted}"


@pytest.mark.pbxt_only
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_locking_reads_lock_what_matches_and_nothing_else(db, level):
    fill(db)
    reader, writer = db.session(), db.session()
    for session in (reader, writer):
        session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    reader.ok("BEGIN")
    rows = reader.rows("SELECT n, b FROM t FORCE INDEX (ab) WHERE a = 12 AND b LIKE 'c%' FOR UPDATE")
    locked = {n for n, _ in rows}
    others = [n for (n,) in db.rows("SELECT n FROM t WHERE a = 12") if n not in locked]
    assert locked and others
    writer.ok("SET pbxt_lock_wait_timeout = 1")
    for n in others:
        writer.ok(f"SELECT n FROM t WHERE n = {n} FOR UPDATE NOWAIT")
    for n in list(locked)[:3]:
        writer.fails(f"SELECT n FROM t WHERE n = {n} FOR UPDATE NOWAIT", 1205)
    reader.ok("ROLLBACK")


@pytest.mark.pbxt_only
def test_a_locking_read_finds_rows_that_come_under_the_condition_while_it_waits(db):
    fill(db, rows=500)
    reader, writer = db.session(), db.session()
    for session in (reader, writer):
        session.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    in_row, out_row = 12, 72  # both have a = 12
    db.ok(f"UPDATE t SET b = IF(n = {in_row}, 'no', 'yes') WHERE a = 12")
    writer.ok("BEGIN")
    writer.ok(f"UPDATE t SET b = 'yes2' WHERE n = {in_row}")
    writer.ok(f"UPDATE t SET b = 'no2' WHERE n = {out_row}")
    query = "SELECT n FROM t FORCE INDEX (ab) WHERE a = 12 AND b LIKE 'yes%' FOR UPDATE"
    waiting = reader.later(query)
    assert waiting.waits()
    writer.ok("COMMIT")
    found = {n for (n,) in waiting.result().rows}
    assert in_row in found and out_row not in found
    assert found == {n for (n,) in db.rows("SELECT n FROM t WHERE a = 12 AND b LIKE 'yes%'")}


@pytest.mark.pbxt_only
def test_a_snapshot_judges_the_entries_it_sees(db):
    fill(db, rows=500)
    reader = db.session()
    reader.ok("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query = "SELECT n, v FROM t FORCE INDEX (ab) WHERE a BETWEEN 5 AND 25 AND b LIKE 'c%'"
    reader.ok("BEGIN")
    before = sorted(reader.rows(query))
    db.ok("UPDATE t SET b = IF(b LIKE 'c%', 'x', 'c0'), v = v + 1")
    db.ok("DELETE FROM t WHERE n MOD 2 = 0")
    assert sorted(reader.rows(query)) == before
    reader.ok("COMMIT")
    assert sorted(reader.rows(query)) == sorted(db.rows("SELECT n, v FROM t WHERE a BETWEEN 5 AND 25 AND b LIKE 'c%'"))


@pytest.mark.pbxt_only
def test_a_row_that_comes_under_the_condition_of_a_serializable_reader_is_noticed(db):
    """Write skew over the condition alone: the first finds no row that matches, the second brings one."""
    fill(db, rows=500)
    one, two = db.session(), db.session()
    for session in (one, two):
        session.ok("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        session.ok("SET pbxt_lock_wait_timeout = 2")
        session.ok("BEGIN")
    query = "SELECT COUNT(v) FROM t FORCE INDEX (ab) WHERE a = {a} AND b LIKE 'none%'"
    assert one.value(query.format(a=12)) == 0 and two.value(query.format(a=13)) == 0
    answers = [one.run("UPDATE t SET b = 'none' WHERE n = 13"), two.run("UPDATE t SET b = 'none' WHERE n = 12")]
    answers += [one.run("COMMIT"), two.run("COMMIT")]
    assert any(answer.error and answer.error[0] == 1213 for answer in answers)


@pytest.mark.pbxt_only
def test_kill_ends_a_scan_whose_condition_admits_nothing(db):
    fill(db, rows=60_000)
    session = db.session()
    query = "SELECT SUM(v) FROM t FORCE INDEX (ab) WHERE a >= 0 AND SHA2(REPEAT(b, 200000), 512) = 'none'"
    assert "Using index condition" in explained(session, query)
    waiting = session.later(query)
    assert waiting.waits(0.5)
    db.ok(f"KILL QUERY {session.connection.thread_id()}")
    answer = waiting.result(5)
    assert answer.error and answer.error[0] == 1317
