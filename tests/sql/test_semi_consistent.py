"""Semi-consistent reads: below REPEATABLE READ an UPDATE judges rows that others have locked before it waits for them (rule T40).

What both engines do is tested with `--engine InnoDB` too; PBXT does it with every scan of an index, InnoDB with those of the primary key.
"""

import time

import pytest

from test_locks import timeout_variable

LEVELS = ["READ COMMITTED", "READ UNCOMMITTED"]


@pytest.fixture(params=LEVELS)
def two(db, request):
    """Two sessions over ten rows: v is 1 to 10, k is 1 for all."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, k INT, v INT, KEY (k)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, 1, seq FROM seq_1_to_10")
    sessions = db.session(), db.session()
    for session in sessions:
        session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {request.param}")
    return sessions


def values(session):
    return [v for (v,) in session.rows("SELECT v FROM t ORDER BY n")]


def test_an_update_does_not_wait_for_rows_that_do_not_fit(two):
    one, other = two
    one.ok("BEGIN")
    assert one.affected("UPDATE t SET v = 30 WHERE v = 3") == 1
    other.ok("BEGIN")
    assert other.affected("UPDATE t SET v = 50 WHERE v = 5") == 1
    assert one.affected("UPDATE t SET v = 70 WHERE v = 7") == 1
    assert other.affected("UPDATE t SET v = 20 WHERE n < 3 AND v = 2") == 1
    one.ok("COMMIT")
    other.ok("COMMIT")
    assert values(one) == [1, 20, 30, 4, 50, 6, 70, 8, 9, 10]


@pytest.mark.parametrize("end, affected, value", [("ROLLBACK", 1, 33), ("COMMIT", 0, 30)])
def test_a_row_that_fits_is_waited_for_and_judged_again(two, end, affected, value):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    waiting = other.later("UPDATE t SET v = 33 WHERE v = 3")
    assert waiting.waits()
    one.ok(end)
    assert waiting.result().affected == affected
    assert values(one) == [1, 2, value, 4, 5, 6, 7, 8, 9, 10]


def test_what_is_not_committed_fits_nobody_else(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    one.ok("INSERT INTO t VALUES (11, 1, 30)")
    assert other.affected("UPDATE t SET v = 0 WHERE v = 30") == 0
    one.ok("COMMIT")
    assert other.affected("UPDATE t SET v = 0 WHERE v = 30") == 2


@pytest.mark.parametrize("end, affected", [("ROLLBACK", 1), ("COMMIT", 0)])
def test_a_row_that_is_being_deleted_is_waited_for_if_it_fits(two, end, affected):
    one, other = two
    one.ok("BEGIN")
    one.ok("DELETE FROM t WHERE n = 3")
    assert other.affected("UPDATE t SET v = 4 WHERE v = 5") == 1
    waiting = other.later("UPDATE t SET v = 33 WHERE v = 3")
    assert waiting.waits()
    one.ok(end)
    assert waiting.result().affected == affected


@pytest.mark.parametrize("lock", ["FOR UPDATE", "LOCK IN SHARE MODE"])
def test_a_row_that_is_only_locked_is_passed_over_or_waited_for(two, lock):
    one, other = two
    one.ok("BEGIN")
    one.ok(f"SELECT * FROM t WHERE n = 3 {lock}")
    assert other.affected("UPDATE t SET v = 50 WHERE v = 5") == 1
    waiting = other.later("UPDATE t SET v = 33 WHERE v = 3")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().affected == 1


def test_a_shared_lock_outlives_an_update_that_turns_its_row_away(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("SELECT * FROM t WHERE n = 3 LOCK IN SHARE MODE")
    assert one.affected("UPDATE t SET v = 50 WHERE v = 5") == 1
    waiting = other.later("UPDATE t SET v = 33 WHERE n = 3")
    assert waiting.waits()
    assert one.value("SELECT v FROM t WHERE n = 3 LOCK IN SHARE MODE") == 3
    one.ok("COMMIT")
    assert waiting.result().affected == 1


def test_rows_that_do_not_fit_are_free_afterwards(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 50 WHERE v = 5")
    begin = time.monotonic()
    for n in (4, 6, 10):
        assert other.affected(f"UPDATE t SET v = v + 100 WHERE n = {n}") == 1
    assert other.affected("DELETE FROM t WHERE n = 9") == 1
    assert time.monotonic() - begin < 1
    one.ok("COMMIT")


def test_a_timeout_undoes_the_statement_and_leaves_the_transaction(two, engine):
    one, other = two
    other.ok(f"SET SESSION {timeout_variable(engine)} = 1")
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    other.ok("BEGIN")
    other.ok("UPDATE t SET v = 90 WHERE v = 9")
    other.fails("UPDATE t SET v = v + 1000 WHERE v < 8", 1205)
    other.ok("COMMIT")
    one.ok("COMMIT")
    assert values(one) == [1, 2, 30, 4, 5, 6, 7, 8, 90, 10]


def test_a_deadlock_is_found_and_the_other_goes_on(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE v = 3")
    other.ok("BEGIN")
    other.ok("UPDATE t SET v = 50 WHERE v = 5")
    first = one.later("UPDATE t SET v = 55 WHERE v = 5")
    assert first.waits()
    second = other.later("UPDATE t SET v = 33 WHERE v = 3")
    errors = [answer.error and answer.error[0] for answer in (first.result(), second.result())]
    assert sorted(map(str, errors)) == ["1213", "None"]
    one.ok("COMMIT")
    other.ok("COMMIT")
    assert values(one) in ([1, 2, 30, 4, 55, 6, 7, 8, 9, 10], [1, 2, 33, 4, 50, 6, 7, 8, 9, 10])


def test_a_search_for_one_row_waits(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    waiting = other.later("UPDATE t SET v = 0 WHERE n = 3 AND v = 77")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().affected == 0


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE v = 5",
        "SELECT n FROM t WHERE v = 5 FOR UPDATE",
        "UPDATE t a JOIN t b USING (n) SET a.v = 50 WHERE a.v = 5",
    ],
)
def test_other_statements_wait_as_ever(two, statement):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    waiting = other.later(statement)
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().error is None


def test_an_update_that_moves_rows_along_its_own_scan_looks_too(two):
    """It collects the places of its rows first."""
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    assert other.affected("UPDATE t SET n = n + 100 WHERE n > 0 AND v IN (2, 5)") == 2
    waiting = other.later("UPDATE t SET n = n + 100 WHERE n > 0 AND v = 3")
    assert waiting.waits()
    one.ok("ROLLBACK")
    assert waiting.result().affected == 1
    assert [n for (n,) in one.rows("SELECT n FROM t ORDER BY n")] == [1, 4, 6, 7, 8, 9, 10, 102, 103, 105]


@pytest.mark.pbxt_only
def test_scans_of_other_indexes_look_too(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    for index in ("WHERE k = 1", "WHERE k BETWEEN 0 AND 5", "WHERE k >= 1"):
        assert other.affected(f"UPDATE t FORCE INDEX (k) SET v = v + 100 {index} AND v % 100 = 5") == 1
    assert other.affected("UPDATE t FORCE INDEX (k) SET v = v + 100 WHERE v % 100 = 7 ORDER BY k DESC LIMIT 3") == 1
    waiting = other.later("UPDATE t FORCE INDEX (k) SET v = 33 WHERE k = 1 AND v = 3")
    assert waiting.waits()
    one.ok("ROLLBACK")
    assert waiting.result().affected == 1
    assert values(one) == [1, 2, 33, 4, 305, 6, 107, 8, 9, 10]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("end, moved", [("COMMIT", 0), ("ROLLBACK", 8)])
def test_a_row_on_its_way_to_another_key_is_met_under_one_of_them(two, end, moved):
    one, other = two
    one.ok("UPDATE t SET k = n")
    one.ok("BEGIN")
    one.ok("UPDATE t SET k = 0 WHERE n = 8")
    waiting = other.later("UPDATE t FORCE INDEX (k) SET v = k + 200 WHERE k >= 0 AND v = 8")
    assert waiting.waits()
    one.ok(end)
    assert waiting.result().affected == 1
    assert one.value("SELECT v FROM t WHERE n = 8") == 200 + moved


@pytest.mark.pbxt_only
def test_above_read_committed_rows_are_waited_for(two):
    one, other = two
    other.ok("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.ok("SET SESSION pbxt_conflict_mode = 'wait'")
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 30 WHERE n = 3")
    waiting = other.later("UPDATE t SET v = 50 WHERE v = 5")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().affected == 1


def test_partitions_look_each_for_itself(two, db):
    one, other = two
    db.ok(
        "CREATE TABLE p (n INT, v INT) ENGINE={engine} PARTITION BY RANGE (n)"
        " (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN MAXVALUE)"
    )
    db.ok("INSERT INTO p SELECT seq, seq FROM seq_1_to_10")
    one.ok("BEGIN")
    assert one.affected("UPDATE p SET v = 0 WHERE v IN (3, 8)") == 2
    assert other.affected("UPDATE p SET v = 50 WHERE v IN (2, 7)") == 2
    waiting = other.later("UPDATE p SET v = 60 WHERE v IN (4, 8)")
    assert waiting.waits()
    one.ok("ROLLBACK")
    assert waiting.result().affected == 2


def test_long_values_of_a_locked_row_are_judged(two, db):
    one, other = two
    db.ok("CREATE TABLE b (n INT PRIMARY KEY, t LONGTEXT) ENGINE={engine}")
    db.ok("INSERT INTO b SELECT seq, REPEAT(CHAR(96 + seq), 200000) FROM seq_1_to_5")
    one.ok("BEGIN")
    one.ok("UPDATE b SET t = REPEAT('x', 300000) WHERE n = 2")
    assert other.affected("UPDATE b SET t = 'short' WHERE t LIKE 'c%'") == 1
    waiting = other.later("UPDATE b SET t = CONCAT(t, '!') WHERE t LIKE 'b%'")
    assert waiting.waits()
    one.ok("ROLLBACK")
    assert waiting.result().affected == 1
    assert one.rows("SELECT n, LENGTH(t), RIGHT(t, 1) FROM b WHERE n IN (2, 3)") == [(2, 200001, "!"), (3, 5, "t")]


def test_every_change_counts_once_when_many_update(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT NOT NULL, done INT NOT NULL) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, 0, 0 FROM seq_1_to_40")
    db.ok(
        "CREATE PROCEDURE work(w INT) BEGIN DECLARE i INT DEFAULT 0; DECLARE changed INT DEFAULT 0;"
        " WHILE i < 40 DO UPDATE t SET v = v + 1 WHERE n % 4 = w OR v % 7 = w; SET changed = changed + ROW_COUNT();"
        " SET i = i + 1; END WHILE; UPDATE t SET done = done + changed WHERE n = 1; END"
    )
    sessions = [db.session() for _ in range(4)]
    for session in sessions:
        session.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    workers = [session.later(f"CALL work({number})") for number, session in enumerate(sessions)]
    for worker in workers:
        assert worker.result(60).error is None, worker.answer
    assert db.value("SELECT SUM(v) = MAX(done) FROM t") == 1
    assert db.value("SELECT MIN(v) >= 40 FROM t") == 1
