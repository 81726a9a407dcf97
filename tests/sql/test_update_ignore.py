"""Statements that skip rows, on keys whose values the server compares: UNIQUE over long values, periods WITHOUT OVERLAPS.

InnoDB in the same server is the oracle on the levels on which it skips rows; READ COMMITTED, where it refuses to, must give what the
others give. With several connections at once, arithmetic says what must hold: no value twice, no periods that overlap.
"""

import random

import pytest
from test_auto_increment import in_parallel

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
TABLES = [
    "CREATE TABLE t (n INT PRIMARY KEY, v TEXT, w INT, UNIQUE (v), UNIQUE (w)) ENGINE={engine}",
    "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, NULL, 4), (5, CONCAT('long', REPEAT('x', 9000)), 5)",
    "CREATE TABLE s (n INT, f DATE, u DATE, k INT PRIMARY KEY, PERIOD FOR p (f, u), UNIQUE (n, p WITHOUT OVERLAPS)) ENGINE={engine}",
    "INSERT INTO s VALUES (1, '2024-01-01', '2025-01-01', 1), (2, '2024-06-01', '2025-06-01', 2), (3, '2025-01-01', '2025-02-01', 3)",
    "INSERT INTO s VALUES (4, '2030-01-01', '2031-01-01', 4), (4, '2031-01-01', '2032-01-01', 5)",
    "CREATE TABLE p (a VARCHAR(3000), b TEXT, n INT, UNIQUE (a, b), UNIQUE (b(20))) ENGINE={engine}",
    "INSERT INTO p VALUES ('x', 'one', 1), ('X ', 'two', 2), ('y', CONCAT(REPEAT('z', 20), 'three'), 3)",
    "CREATE TABLE log (n INT, v TEXT) ENGINE={engine}",
    "CREATE TRIGGER tr AFTER UPDATE ON t FOR EACH ROW INSERT INTO log VALUES (NEW.n, NEW.v)",
    "CREATE PROCEDURE change_all(IN value TEXT) UPDATE IGNORE t SET v = value WHERE n > 1",
]
STATEMENTS = [
    "UPDATE IGNORE t SET v = 'a' WHERE n > 1",
    "UPDATE IGNORE t SET v = 'z', w = w + 10",
    "UPDATE IGNORE t SET v = CONCAT(v, '!') WHERE n < 4",
    "UPDATE IGNORE t SET v = CONCAT('long', REPEAT('x', 9000)) WHERE n IN (2, 4)",
    "UPDATE IGNORE t SET v = CONCAT('long', REPEAT('x', 8999), 'y') WHERE n = 2",
    "UPDATE IGNORE t SET v = 'q', w = 3 ORDER BY n DESC",
    "UPDATE IGNORE t SET v = NULL WHERE n IN (2, 3)",
    "UPDATE IGNORE t SET w = 11 WHERE n = 5",
    "UPDATE IGNORE t x JOIN t y ON y.n = x.n + 1 SET x.v = y.v",
    "UPDATE IGNORE t x JOIN t y ON y.n = x.n SET x.v = CONCAT('m', y.n MOD 2)",
    "INSERT IGNORE INTO t VALUES (9, 'm0', 9), (10, 'new', 10) ON DUPLICATE KEY UPDATE v = 'm1', w = 20",
    "INSERT IGNORE INTO t VALUES (11, 'new', 11) ON DUPLICATE KEY UPDATE v = CONCAT(t.v, '2')",
    "CALL change_all('m1')",
    "CALL change_all('other')",
    "UPDATE IGNORE s SET n = 1",
    "UPDATE IGNORE s SET f = '2024-01-01', u = '2026-01-01' WHERE n = 1",
    "UPDATE IGNORE s SET u = u + INTERVAL 40 DAY",
    "UPDATE IGNORE s FOR PORTION OF p FROM '2024-07-01' TO '2024-08-01' SET n = 3 WHERE n <= 2",
    "UPDATE IGNORE s SET f = f - INTERVAL 1 MONTH, u = u - INTERVAL 1 MONTH WHERE n = 4 ORDER BY f DESC",
    "UPDATE IGNORE p SET a = 'X', b = 'one'",
    "UPDATE IGNORE p SET b = CONCAT(REPEAT('z', 20), n)",
]


def play(database):
    """Answers and warnings of the statements, and what is in the tables afterwards."""
    seen = []
    for statement in [*TABLES, *STATEMENTS]:
        answer = database.run(statement)
        assert answer.error is None, (statement, answer.error)
        warnings = [(level, number, text.replace(f"{database.name}.", "")) for level, number, text in database.rows("SHOW WARNINGS")]
        seen.append((statement, answer.affected, warnings))
    for table, key in (("t", "n"), ("s", "n, f"), ("p", "n"), ("log", "n, v")):
        seen.append((table, database.rows(f"SELECT * FROM {table} ORDER BY {key}")))
    return seen


@pytest.mark.parametrize("level", LEVELS)
def test_update_ignore_skips_rows_whose_long_value_or_period_is_taken(twin, level):
    twin.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    twin.oracle.ok("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    seen, wanted = play(twin.under_test), play(twin.oracle)
    for mine, theirs in zip(seen, wanted):
        assert mine == theirs
    changed = {statement: affected for statement, affected, *_ in seen}
    assert (changed[STATEMENTS[0]], changed[STATEMENTS[1]], changed["UPDATE IGNORE s SET n = 1"]) == (0, 1, 3)
    for table in "tsp":
        assert twin.under_test.rows(f"CHECK TABLE {table} EXTENDED")[0][3] == "OK"


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_taken_value_is_skipped_under_lock_tables_and_beside_open_transactions(db, level):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v TEXT, UNIQUE (v)) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    db.ok("LOCK TABLES t WRITE")
    assert db.affected("UPDATE IGNORE t SET v = 'a' WHERE n = 2") == 0
    db.fails("UPDATE t SET v = 'a' WHERE n = 2", 1062)
    assert db.affected("UPDATE IGNORE t SET v = IF(n = 2, 'a', 'd') WHERE n > 1") == 1
    db.ok("UNLOCK TABLES")
    for end, changed in (("COMMIT", 0), ("ROLLBACK", 1)):
        holder, other = db.session(), db.session()
        other.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        other.ok("SET SESSION pbxt_conflict_mode = 'WAIT'")
        holder.ok("BEGIN")
        holder.ok(f"UPDATE t SET v = '{end}' WHERE n = 1")
        waiting = other.later(f"UPDATE IGNORE t SET v = '{end}' WHERE n = 2")
        assert waiting.waits()
        holder.ok(end)
        answer = waiting.result()
        assert (answer.error, answer.affected) == (None, changed)
    assert db.rows("SELECT v FROM t ORDER BY n") == [("COMMIT",), ("ROLLBACK",), ("d",)]
    db.fails("UPDATE t SET v = 'd' WHERE n = 1", 1062)


def test_what_follows_from_a_skipped_row_is_taken_back_with_it(twin):
    """Actions of foreign keys."""
    twin.ok("CREATE TABLE a (n INT PRIMARY KEY, v TEXT, UNIQUE (v))")
    twin.ok("CREATE TABLE b (m INT PRIMARY KEY, n INT, FOREIGN KEY (n) REFERENCES a (n) ON UPDATE CASCADE)")
    twin.ok("INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, 'z')")
    twin.ok("INSERT INTO b VALUES (1, 1), (2, 2), (3, 3)")
    twin.ok("BEGIN")
    twin.ok("UPDATE IGNORE a SET n = n + 10, v = IF(n = 11, 'y', CONCAT(v, v)) ORDER BY n DESC")
    for table in "ab":
        twin.same_table(table)
    twin.ok("COMMIT")
    for table in "ab":
        twin.same_table(table)


@pytest.mark.pbxt_only
def test_of_many_who_want_one_long_value_one_gets_it(db):
    """Rule T42: the look-up before the row is written finds nobody, and the one afterwards must."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v TEXT, UNIQUE (v)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, CONCAT('own', seq) FROM seq_1_to_40")
    db.ok("CREATE TABLE s (n INT PRIMARY KEY, k INT, f DATE, u DATE, PERIOD FOR p (f, u), UNIQUE (k, p WITHOUT OVERLAPS)) ENGINE={engine}")
    db.ok("INSERT INTO s SELECT seq, seq, '2024-01-01', '2024-01-11' FROM seq_1_to_40")

    def work(session, client):
        picks = random.Random(client)
        session.ok("SET SESSION pbxt_conflict_mode = 'WAIT'")
        for _ in range(60):
            row, value = picks.randint(1, 40), picks.randint(1, 12)
            statement = picks.choice(
                [
                    f"UPDATE IGNORE t SET v = 'v{value}' WHERE n = {row}",
                    f"UPDATE IGNORE t SET v = 'own{row}' WHERE n = {row}",
                    f"UPDATE t SET v = 'v{value}' WHERE n = {row}",
                    f"UPDATE IGNORE s SET k = {value} + 100, f = '2024-01-01' + INTERVAL {value} DAY WHERE n = {row}",
                    f"UPDATE IGNORE s SET k = {row} WHERE n = {row}",
                ]
            )
            error = session.run(statement).error
            assert error is None or error[0] in (1062, 1213), (statement, error)

    in_parallel(db, work)
    assert db.rows("SELECT v, COUNT(*) FROM t GROUP BY v HAVING COUNT(*) > 1") == []
    overlaps = "SELECT x.n, y.n FROM s x JOIN s y ON x.k = y.k AND x.n < y.n AND x.f < y.u AND y.f < x.u"
    assert db.rows(overlaps) == []
    assert db.value("SELECT COUNT(*) FROM t WHERE v LIKE 'v%'") > 3
    for table in "ts":
        assert db.rows(f"CHECK TABLE {table} EXTENDED")[0][3] == "OK"


@pytest.mark.parametrize("kind", ["", " PARTITION BY HASH (n) PARTITIONS 3"])
def test_alter_ignore_and_create_ignore_leave_out_what_is_there_already(db, kind):
    key = "UNIQUE (n, v)" if kind else "UNIQUE (v)"
    db.ok(f"CREATE TABLE t (n INT, v TEXT, w INT){kind}")
    db.ok("INSERT INTO t SELECT seq MOD 2, REPEAT(CHAR(97 + seq MOD 5), 5000 + seq MOD 3), seq FROM seq_1_to_60")
    first = "SELECT MIN(w) FROM t GROUP BY n, v ORDER BY 1" if kind else "SELECT MIN(w) FROM t GROUP BY v ORDER BY 1"
    kept = len(db.rows(first))
    assert db.run(f"CREATE TABLE c ({key}){kind} IGNORE SELECT * FROM t").error is None
    db.ok(f"ALTER IGNORE TABLE t ADD {key}")
    for table in ("t", "c"):
        assert db.value(f"SELECT COUNT(*) FROM {table}") == kept
        assert db.value(f"SELECT COUNT(DISTINCT {'n, ' if kind else ''}v) FROM {table}") == kept
        assert db.rows(f"CHECK TABLE {table}")[-1][3] == "OK"
    db.fails("INSERT INTO t SELECT n, v, -1 FROM t LIMIT 1", 1062)


def test_alter_ignore_leaves_out_periods_that_overlap(db):
    db.ok("CREATE TABLE s (n INT, f DATE, u DATE, PERIOD FOR p (f, u))")
    db.ok("INSERT INTO s VALUES (1, '2020-01-01', '2020-02-01'), (1, '2020-01-05', '2020-03-01'), (1, '2020-02-01', '2020-03-01'), (2, '2020-01-01', '2020-02-01')")
    db.ok("ALTER IGNORE TABLE s ADD UNIQUE (n, p WITHOUT OVERLAPS)")
    assert [str(row[0]) for row in db.rows("SELECT f FROM s ORDER BY n, f")] == ["2020-01-01", "2020-02-01", "2020-01-01"]
