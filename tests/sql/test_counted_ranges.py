"""COUNT(*) over a range of an index, which the engine counts without showing entries (rule X61). InnoDB is the oracle of answers.

What the engine counted is compared with a scan of the oracle's table: what the server's plans make of an index is not right for all conditions. So `exact BETWEEN 'K12' AND
'k12'` in a collation of bytes is a search for one key to it, which finds nothing, and `tiny = 3.5` one for 4. What is left to the server is compared with the same plan.
"""

import random
import threading

import pytest
from sql_tools import compare
from test_pushed_conditions import COLUMNS, VALUES

ROWS = 9000
MORE = {
    "word": ("VARCHAR(20) COLLATE utf8mb4_general_ci", ["'k12'", "'K7'", "'k12 '", "''", "'zz'", "5", "_latin1'k5'", "'k5' COLLATE utf8mb4_bin"]),
    "exact": ("VARCHAR(20) COLLATE utf8mb4_bin", ["'k12'", "'K12'", "'k9 '", "'k'"]),
    "open": ("VARCHAR(20) COLLATE utf8mb4_unicode_nopad_ci", ["'k12'", "'K12'", "'k12 '", "'k'"]),
    "few": ("TINYINT", ["3", "0", "9"]),
    "fixed": ("CHAR(8) CHARACTER SET latin1", ["'k12'", "'K12'", "'k9 '", "'\u00e4'"]),
}
ALL = COLUMNS | MORE
# Compared otherwise than their values order, or by too coarse a measure.
NEVER_COUNTED = ("stamp", "span", "bits", "kind", "fuzzy")


def value_of(name):
    return "n MOD 5" if name == "few" else VALUES.get(name, "CONCAT(IF(n MOD 2, 'K', 'k'), n MOD 40, IF(n MOD 5 = 0, ' ', ''))")


def counted(db):
    return int(db.rows("SHOW GLOBAL STATUS LIKE 'pbxt_ranges_counted'")[0][1])


def counts(db, query):
    """The answer, and whether the engine counted."""
    before = counted(db)
    answer = db.rows(query)
    return int(answer[0][0]), counted(db) - before == 1


@pytest.fixture
def typed(twin):
    """A table with an index on each column, of all types: NULLs, values that many rows have, and none of it in the log."""
    twin.ok("SET sql_mode = ''")
    twin.ok("SET time_zone = '+00:00'")
    columns = ", ".join(f"{name} {kind} NULL" for name, (kind, _values) in ALL.items())
    keys = ", ".join(f"KEY k_{name} ({name})" for name in ALL)
    for under in (twin.under_test, twin.oracle):
        under.ok(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n INT NOT NULL, {columns}, {keys}) ENGINE={{engine}}")
    values = ", ".join(f"IF(id MOD 20 = {number % 20}, NULL, {value_of(name)})" for number, name in enumerate(ALL))
    twin.ok(f"INSERT INTO t SELECT id, n, {values} FROM (SELECT seq AS id, CAST(seq * 7919 MOD 29989 AS SIGNED) AS n FROM seq_1_to_{ROWS}) AS numbers")
    return twin


def conditions(name):
    values = ALL[name][1]
    for value in values:
        for operator in ("=", "<", "<=", ">", ">=", "<>", "<=>"):
            yield f"{name} {operator} {value}"
        yield f"{value} < {name}"
        yield f"{name} IS NOT NULL AND {name} <= {value}"
        yield f"{name} > {value} AND id < 5000"
        yield f"{name} = {value} AND id BETWEEN 100 AND 8000"
        yield f"{name} = {value} AND {name} > {values[0]}"
    for low, high in zip(values, values[1:]):
        yield f"{name} BETWEEN {low} AND {high}"
        yield f"{name} BETWEEN {high} AND {low}"
        yield f"{name} > {low} AND {name} <= {high}"
        yield f"{name} >= {low} AND {name} < {high} AND id > 17"
    yield f"{name} IN ({', '.join(values[:3])})"
    yield f"{name} IS NULL"
    yield f"{name} IS NOT NULL"
    yield f"{name} IS NULL AND id < 7000"
    yield f"{name} IS NULL AND {name} = {values[0]}"


@pytest.mark.parametrize("name", ALL)
def test_counts_of_every_type_are_those_of_the_oracle(typed, name):
    before = counted(typed.under_test)
    for condition in conditions(name):
        number = counted(typed.under_test)
        seen = typed.under_test.run(f"SELECT COUNT(*) FROM t FORCE INDEX (k_{name}) WHERE {condition}")
        is_counted = counted(typed.under_test) > number
        how = "IGNORE" if is_counted else "FORCE"
        wanted = typed.oracle.run(f"SELECT COUNT(*) FROM t {how} INDEX (k_{name}) WHERE {condition}")
        assert not compare(seen, wanted), (condition, is_counted)
    # Tests for NULL are three of them.
    assert (counted(typed.under_test) > before + 3) == (name not in NEVER_COUNTED)


def test_char_whose_spaces_are_not_compared_is_left_to_the_server(twin):
    """Under NO PAD an index compares CHAR(n) as n characters, and a condition without the spaces at its end: `abc` is before or behind `abc` and a tab."""
    twin.ok("CREATE TABLE t (id INT PRIMARY KEY, c CHAR(10) COLLATE utf8mb4_nopad_bin, KEY (c)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, ELT(1 + seq MOD 3, 'abc', 'abc\\t', 'abc\\tz') FROM seq_1_to_1500")
    for under in (twin.under_test, twin.oracle):
        under.ok("ANALYZE TABLE t")
    for operator in ("<", "<=", "=", ">=", ">"):
        where = f"WHERE c {operator} 'abc\\t'"
        rows = twin.same(f"SELECT c FROM t {where}").rows
        assert int(twin.under_test.value(f"SELECT COUNT(*) FROM t {where}")) == len(rows), where


COUNTED = [
    "tiny > 5",
    "5 < tiny",
    "few = 3",
    "tiny IS NULL",
    "tiny IS NULL AND id > 100",
    "tiny IS NOT NULL",
    "tiny IS NOT NULL AND tiny < 100",
    "few = 3 AND id BETWEEN 10 AND 8000",
    "few = 1 + 2",
    "whole BETWEEN -10000 AND 10000",
    "whole > -10000 AND whole < 10000",
    "price < 12.5",
    "ratio >= 0.5",
    "day > '2020-03-01'",
    "day BETWEEN DATE'2020-02-01' AND DATE'2020-05-01'",
    "moment < '2020-03-01 01:00:00'",
    "year = 2001",
    "bytes > 'k12'",
    "bytes <= 'k2'",
    "word = 'k7'",
    "word BETWEEN 'k1' AND 'K3'",
    "exact < 'k2'",
    "open >= 'k2'",
    "fixed = 'k7'",
    "id < 4000",
]
LEFT_TO_THE_SERVER = [
    "tiny > 5.5",  # compared as decimals
    "tiny + 0 > 5",
    "tiny IN (5, 6, 7)",
    "tiny > 5 OR tiny < 2",
    "tiny > 5 AND whole > 5",  # not of one index
    "tiny > 5 AND id > 10",  # no value for the first column
    "tiny > 5 AND n > 10",
    "tiny <> 7",
    "tiny > (SELECT MIN(other.few) FROM t AS other)",
    "word LIKE 'k1%'",
    "word > 'k1' COLLATE utf8mb4_bin",
    "stamp > '2020-05-01'",  # compared as local times
    "block > 'k12'",  # the column has zeros behind it
    "single < 0.1",  # which is no FLOAT
    "day > '2020-02-01' AND day > '2020-03-01'",
    "id = 5",  # a constant table
    "id BETWEEN 1 AND 20",  # too few
]


def test_the_engine_counts_what_is_one_range_and_nothing_else(typed):
    db = typed.under_test
    for condition in COUNTED:
        rows, is_counted = counts(db, f"SELECT COUNT(*) FROM t WHERE {condition}")
        assert is_counted, condition
        assert rows == int(typed.oracle.rows(f"SELECT COUNT(*) FROM t WHERE {condition}")[0][0]), condition
    for condition in LEFT_TO_THE_SERVER:
        rows, is_counted = counts(db, f"SELECT COUNT(*) FROM t WHERE {condition}")
        assert not is_counted, condition
        assert rows == int(typed.oracle.rows(f"SELECT COUNT(*) FROM t WHERE {condition}")[0][0]), condition


def test_what_else_is_asked_for_is_left_to_the_server(typed):
    db = typed.under_test
    where = "WHERE tiny > 5"
    for query in (
        f"SELECT COUNT(*) FROM t {where}",
        f"SELECT COUNT(1), COUNT(id), COUNT('x') FROM t {where}",
        f"SELECT COUNT(*) AS c FROM t AS other WHERE other.tiny > 5 LIMIT 1",
    ):
        assert counts(db, query)[1], query
        typed.same(query)
    for query in (
        f"SELECT COUNT(*) FROM (SELECT * FROM t) AS d {where}",
        f"SELECT COUNT(tiny) FROM t {where}",
        f"SELECT COUNT(NULL) FROM t {where}",
        f"SELECT COUNT(*), MIN(id) FROM t {where}",
        f"SELECT COUNT(*) + 1 FROM t {where}",
        f"SELECT COUNT(DISTINCT id) FROM t {where}",
        f"SELECT COUNT(*) FROM t {where} HAVING COUNT(*) > 1",
        f"SELECT COUNT(*) FROM t {where} LIMIT 0",
        f"SELECT COUNT(*) FROM t {where} LIMIT 1 OFFSET 1",
        f"SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.tiny > 5",
        f"SELECT COUNT(*) FROM t {where} FOR UPDATE",
        f"SELECT COUNT(*) FROM t {where} LIMIT ROWS EXAMINED 100000",
    ):
        typed.same(query)
    for query in (
        f"SELECT tiny, COUNT(*) FROM t {where} GROUP BY tiny",
        f"SELECT COUNT(*) FROM t {where} GROUP BY tiny WITH ROLLUP",
        f"SELECT id, COUNT(*) OVER (ORDER BY id) FROM t {where} AND id < 30",
        f"SELECT id, (SELECT COUNT(*) FROM t WHERE tiny > s.id) FROM t AS s WHERE id IN (1, 5, 100)",
        f"SELECT id, (SELECT COUNT(*) FROM t {where}) FROM t AS s WHERE id < 9",
        f"SELECT COUNT(*) FROM t {where} UNION SELECT COUNT(*) FROM t WHERE whole < 50",
        f"SELECT * FROM t WHERE id = (SELECT COUNT(*) FROM t WHERE whole < -11000)",
        f"SELECT COUNT(*) FROM t {where} ORDER BY 1",
        "SELECT id FROM t ORDER BY id LIMIT 7",
        f"SELECT COUNT(*) FROM t {where}",
        "SELECT FOUND_ROWS()",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 7",
        f"SELECT SQL_CALC_FOUND_ROWS COUNT(*) FROM t {where}",
        "SELECT FOUND_ROWS()",
    ):
        typed.same(query)


def test_counts_in_views_procedures_prepared_statements_and_inserts(typed):
    typed.ok("CREATE VIEW v AS SELECT id, tiny, whole FROM t WHERE tiny > 5")
    typed.ok("CREATE VIEW pairs AS SELECT a.id, a.tiny FROM t AS a JOIN t AS b ON a.id = b.id + 1")
    typed.ok("CREATE TABLE s (what INT, many INT) ENGINE={engine}")
    for query in (
        "SELECT COUNT(*) FROM v",
        "SELECT COUNT(*) FROM v WHERE tiny < 60",
        "SELECT COUNT(*) FROM pairs WHERE tiny > 5",
        "SELECT COUNT(*) FROM (SELECT tiny FROM t LIMIT 100) AS d WHERE tiny > 5",
    ):
        typed.same(query)
    typed.ok("PREPARE p FROM 'SELECT COUNT(*) FROM t WHERE whole BETWEEN ? AND ?'")
    for low, high in ((-15000, 0), (-10, 14000), ("NULL", 5), (0, 1), ("'x'", 10), (1.5, 10000), (-15000, 14000)):
        typed.ok(f"SET @low = {low}, @high = {high}")
        typed.run("EXECUTE p USING @low, @high")
    typed.ok("CREATE PROCEDURE fill_s() BEGIN DECLARE i INT DEFAULT 0; WHILE i < 20 DO INSERT INTO s SELECT i, COUNT(*) FROM t WHERE tiny > i; SET i = i + 1; END WHILE; END")
    typed.ok("CALL fill_s()")
    typed.ok("CREATE FUNCTION above(low INT) RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM t WHERE whole > low)")
    typed.same("SELECT id, above(id) FROM t WHERE id IN (1, 50, 900)")
    typed.ok("INSERT INTO s SELECT 100, COUNT(*) FROM t WHERE word = 'K7'")
    typed.ok("UPDATE s SET many = (SELECT COUNT(*) FROM t WHERE price < 0) WHERE what = 3")
    typed.same_table("s", "what, many")


def test_a_count_is_of_the_snapshot_and_of_own_changes(typed):
    db = typed.under_test
    query = "SELECT COUNT(*) FROM t WHERE whole BETWEEN -10000 AND 10000"
    before, is_counted = counts(db, query)
    assert is_counted
    other = db.session()
    db.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    other.ok("DELETE FROM t WHERE whole BETWEEN 0 AND 5000")
    other.ok("UPDATE t SET whole = 20000 WHERE whole BETWEEN -5000 AND -1")
    assert counts(db, query) == (before, True)
    db.ok("INSERT INTO t (id, n, whole) VALUES (100001, 1, 1), (100002, 1, 2)")
    assert counts(db, query) == (before + 2, True)
    db.ok("SAVEPOINT here")
    db.ok("DELETE FROM t WHERE whole BETWEEN -10000 AND -9000")
    less = int(db.rows("SELECT SUM(whole BETWEEN -10000 AND 10000) FROM t")[0][0])
    assert less < before
    assert counts(db, query) == (less, True)
    db.ok("ROLLBACK TO here")
    assert counts(db, query) == (before + 2, True)
    db.ok("ROLLBACK")
    now = int(db.rows("SELECT SUM(whole BETWEEN -10000 AND 10000) FROM t")[0][0])
    assert now < before
    assert counts(db, query) == (now, True)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_counts_agree_with_scans_while_others_change_rows(typed, level):
    db = typed.under_test
    stop = threading.Event()

    def change(number):
        other, rng = db.session(), random.Random(number)
        while not stop.is_set():
            row, value = rng.randrange(1, ROWS), rng.randrange(-128, 128)
            other.run(rng.choice((
                f"UPDATE t SET tiny = {value} WHERE id = {row}",
                f"DELETE FROM t WHERE id = {row}",
                f"REPLACE INTO t (id, n, tiny) VALUES ({row}, 1, {value})",
            )))

    threads = [threading.Thread(target=change, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        db.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        compared = 0
        for low in list(range(-128, 100, 7)) * 3:
            db.ok("BEGIN")
            # One statement has one snapshot on every level; a reader may be the victim of SERIALIZABLE.
            both = db.run(
                f"SELECT (SELECT COUNT(*) FROM t WHERE tiny > {low}), (SELECT COUNT(*) FROM t IGNORE INDEX (k_tiny) WHERE tiny + 0 > {low})"
            )
            db.run("ROLLBACK")
            if both.error is None:
                by_range, by_scan = both.rows[0]
                assert by_range == by_scan, low
                compared += 1
        assert compared > 40
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    db.ok("CHECK TABLE t")


def test_what_a_count_read_is_counted_as_if_it_had_been_scanned(typed):
    names = "('handler_read_key', 'handler_read_next', 'handler_read_rnd_next')"
    figures = {}
    for name, db in (("PBXT", typed.under_test), ("InnoDB", typed.oracle)):
        db.ok("FLUSH STATUS")
        assert db.rows("SELECT COUNT(*) FROM t WHERE whole > 0")
        figures[name] = {row[0]: row[1] for row in db.rows(f"SHOW SESSION STATUS WHERE variable_name IN {names}")}
    keys = ("Handler_read_key", "Handler_read_next")
    assert {key: figures["PBXT"][key] for key in keys} == {key: figures["InnoDB"][key] for key in keys}


def test_explain_and_analyze_show_the_plan(typed):
    db = typed.under_test
    plan = db.rows("EXPLAIN SELECT COUNT(*) FROM t WHERE whole > 0")[0]
    assert (plan[3], plan[5], plan[9]) == ("range", "k_whole", "Using where; Using index")
    read = db.rows("ANALYZE SELECT COUNT(*) FROM t WHERE whole > 0")[0]
    assert float(read[9]) == float(db.rows("SELECT COUNT(*) FROM t WHERE whole > 0")[0][0])


def test_a_count_ends_when_it_is_killed(typed):
    db = typed.under_test
    db.ok("CREATE TABLE big (id INT NOT NULL PRIMARY KEY, a INT, KEY a (a)) ENGINE={engine}")
    db.ok("INSERT INTO big SELECT seq, seq MOD 1000 FROM seq_1_to_300000")
    for _ in range(3):
        db.fails("SET STATEMENT max_statement_time = 0.0001 FOR SELECT COUNT(*) FROM big WHERE a > 1", 1969)


def test_descending_columns_and_prefixes_are_left_to_the_server(typed):
    for under in (typed.under_test, typed.oracle):
        under.ok("CREATE TABLE d (id INT NOT NULL PRIMARY KEY, a INT, b INT, c VARCHAR(30), KEY ab (a, b DESC), KEY c (c(2))) ENGINE={engine}")
    typed.ok("INSERT INTO d SELECT seq, seq MOD 7, seq MOD 900, CONCAT('c', seq) FROM seq_1_to_5000")
    db = typed.under_test
    for condition, is_counted in (("a = 3", True), ("a > 3", True), ("a = 3 AND b > 5", False), ("a = 3 AND b = 5", False), ("c > 'c2'", False)):
        query = f"SELECT COUNT(*) FROM d WHERE {condition}"
        assert counts(db, query)[1] == is_counted, condition
        typed.same(query)
