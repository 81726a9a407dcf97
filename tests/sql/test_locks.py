"""Row and table locks between real connections: who waits, for how long, how a wait ends, and how a deadlock is found."""

import time

import pytest

from sql_tools import wait_for


@pytest.fixture
def two(db):
    """Two sessions over a table of ten rows."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_10")
    return db.session(), db.session()


def timeout_variable(engine):
    return "pbxt_lock_wait_timeout" if engine.upper() == "PBXT" else "innodb_lock_wait_timeout"


def test_readers_never_wait_for_writers(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 100")
    one.ok("DELETE FROM t WHERE n = 5")
    begin = time.monotonic()
    assert other.rows("SELECT n, v FROM t ORDER BY n") == [(n, n) for n in range(1, 11)]
    assert other.value("SELECT COUNT(*) FROM t") == 10
    assert time.monotonic() - begin < 1
    one.ok("ROLLBACK")


def test_a_writer_waits_for_a_writer_of_the_same_row_only(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 100 WHERE n = 1")
    assert other.affected("UPDATE t SET v = 200 WHERE n = 2") == 1
    waiting = other.later("UPDATE t SET v = 200 WHERE n = 1")
    assert waiting.waits()
    one.ok("ROLLBACK")
    assert waiting.result().affected == 1
    assert other.value("SELECT v FROM t WHERE n = 1") == 200


@pytest.mark.parametrize("lock", ["FOR UPDATE", "LOCK IN SHARE MODE"])
def test_a_locking_read_makes_writers_wait(two, lock):
    one, other = two
    one.ok("BEGIN")
    assert one.rows(f"SELECT v FROM t WHERE n = 3 {lock}") == [(3,)]
    waiting = other.later("UPDATE t SET v = 33 WHERE n = 3")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().affected == 1


LOCKING_SUBQUERIES = [
    "INSERT INTO log SELECT n, v FROM t WHERE n = 3 FOR UPDATE",
    "REPLACE INTO log SELECT n, v FROM t WHERE n = 3 FOR UPDATE",
    "INSERT INTO log VALUES ((SELECT n FROM t WHERE n = 3 FOR UPDATE), 0)",
    "UPDATE log SET v = (SELECT v FROM t WHERE n = 3 FOR UPDATE)",
    "DELETE FROM log WHERE n = (SELECT n FROM t WHERE n = 3 FOR UPDATE)",
    "CREATE TEMPORARY TABLE copied SELECT n, v FROM t WHERE n = 3 FOR UPDATE",
    "CALL look()",
]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("statement", LOCKING_SUBQUERIES, ids=lambda statement: "_".join(statement.split()[:2]).lower())
def test_a_locking_read_inside_another_statement_makes_writers_wait(db, two, statement, isolation):
    one, other = two
    db.ok("CREATE TABLE log (n INT, v INT) ENGINE={engine}")
    db.ok("INSERT INTO log VALUES (100, 0)")
    db.ok("CREATE PROCEDURE look() BEGIN IF (SELECT v FROM t WHERE n = 3 FOR UPDATE) > 100 THEN SELECT 1; END IF; END")
    one.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
    one.ok("BEGIN")
    one.ok(statement)
    waiting = other.later("UPDATE t SET v = 33 WHERE n = 3")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().affected == 1


def test_the_target_of_a_locking_insert_select_is_not_read(db, two):
    one, other = two
    db.ok("CREATE TABLE log (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    for n, session in enumerate(two, 1):
        session.ok("BEGIN")
        assert session.affected(f"INSERT INTO log SELECT n, v FROM t WHERE n = {n} FOR UPDATE") == 1
    for session in two:
        session.ok("COMMIT")
    assert db.value("SELECT COUNT(*) FROM log") == 2


def test_shared_locks_do_not_exclude_each_other(two):
    one, other = two
    for session in two:
        session.ok("BEGIN")
        assert session.rows("SELECT v FROM t WHERE n = 3 LOCK IN SHARE MODE") == [(3,)]
    waiting = one.later("UPDATE t SET v = 0 WHERE n = 3")
    assert waiting.waits()
    other.ok("COMMIT")
    assert waiting.result().affected == 1
    one.ok("ROLLBACK")


def test_for_update_waits_for_for_update(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("SELECT * FROM t WHERE n = 4 FOR UPDATE")
    waiting = other.later("SELECT v FROM t WHERE n = 4 FOR UPDATE")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().rows == [(4,)]


def test_nowait_fails_at_once(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 4")
    begin = time.monotonic()
    other.fails("SELECT * FROM t WHERE n = 4 FOR UPDATE NOWAIT", 1205)
    assert time.monotonic() - begin < 1
    assert other.rows("SELECT v FROM t WHERE n = 5 FOR UPDATE NOWAIT") == [(5,)]
    one.ok("ROLLBACK")


def test_skip_locked_leaves_out_the_locked_rows(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("SELECT * FROM t WHERE n IN (2, 4) FOR UPDATE")
    other.ok("BEGIN")
    rows = other.rows("SELECT n FROM t WHERE n <= 5 ORDER BY n FOR UPDATE SKIP LOCKED")
    assert rows == [(1,), (3,), (5,)]
    one.ok("ROLLBACK")
    other.ok("ROLLBACK")


@pytest.mark.parametrize("conflict_mode", ["error", "wait"])
def test_a_job_queue_gives_every_job_to_one_worker(db, conflict_mode):
    db.ok("CREATE TABLE job (id INT PRIMARY KEY) ENGINE={engine}")
    db.ok("INSERT INTO job SELECT seq FROM seq_1_to_200")
    db.ok("CREATE TABLE done (id INT, worker INT, KEY (id)) ENGINE={engine}")
    db.ok(
        "CREATE PROCEDURE work(w INT) BEGIN DECLARE j INT; DECLARE CONTINUE HANDLER FOR NOT FOUND SET j = NULL;"
        " l: LOOP START TRANSACTION; SET j = NULL; SELECT id INTO j FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;"
        " IF j IS NULL THEN COMMIT; LEAVE l; END IF;"
        " DELETE FROM job WHERE id = j; INSERT INTO done VALUES (j, w); COMMIT; END LOOP; END"
    )
    sessions = [db.session() for _ in range(4)]
    if db.engine.upper() == "PBXT":  # SKIP LOCKED leaves out a job that was done since the snapshot, in both modes
        for session in sessions:
            session.ok(f"SET SESSION pbxt_conflict_mode = '{conflict_mode}'")
    workers = [session.later(f"CALL work({number})") for number, session in enumerate(sessions)]
    for worker in workers:
        assert worker.result(60).error is None, worker.answer
    left = db.value("SELECT COUNT(*) FROM job")
    assert db.rows("SELECT COUNT(*), COUNT(DISTINCT id) FROM done") == [(200 - left, 200 - left)]
    assert left == 0


def test_a_lock_wait_ends_by_timeout_and_undoes_only_the_statement(two, engine):
    one, other = two
    other.ok(f"SET SESSION {timeout_variable(engine)} = 1")
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 4")
    other.ok("BEGIN")
    other.ok("UPDATE t SET v = 77 WHERE n = 1")
    begin = time.monotonic()
    other.fails("UPDATE t SET v = 88 WHERE n = 4", 1205)
    assert 0.8 <= time.monotonic() - begin <= 5
    other.ok("COMMIT")
    one.ok("ROLLBACK")
    assert one.rows("SELECT n, v FROM t WHERE n IN (1, 4) ORDER BY n") == [(1, 77), (4, 4)]


@pytest.mark.parametrize("kind, code", [("QUERY", 1317), ("CONNECTION", (1317, 1927, 2013, 2006))])
def test_kill_ends_a_wait(db, two, kind, code):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 4")
    ident = other.thread_id()
    waiting = other.later("UPDATE t SET v = 88 WHERE n = 4")
    assert waiting.waits()
    db.ok(f"KILL {kind} {ident}")
    answer = waiting.result(5)
    assert answer.error[0] in (code if isinstance(code, tuple) else (code,)), answer
    one.ok("COMMIT")
    assert db.value("SELECT v FROM t WHERE n = 4") == 0


def test_max_statement_time_ends_a_wait(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 4")
    begin = time.monotonic()
    other.fails("SET STATEMENT max_statement_time = 0.5 FOR UPDATE t SET v = 1 WHERE n = 4", 1969)
    assert time.monotonic() - begin < 4
    one.ok("ROLLBACK")


def test_a_disconnect_frees_the_rows_and_undoes_the_work(db, two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0")
    one.close()
    assert other.later("UPDATE t SET v = 5 WHERE n = 4").result(10).affected == 1
    assert db.value("SELECT SUM(v) FROM t") == 55 + 1


def test_the_deadlock_is_found_when_it_forms(db, two):
    one, other = two
    one.ok("BEGIN")
    other.ok("BEGIN")
    one.ok("UPDATE t SET v = 100 WHERE n = 1")
    other.ok("UPDATE t SET v = 200 WHERE n = 2")
    waiting = other.later("UPDATE t SET v = 200 WHERE n = 1")
    assert waiting.waits()
    begin = time.monotonic()
    answer = one.run("UPDATE t SET v = 100 WHERE n = 2")
    assert time.monotonic() - begin < 2
    second = waiting.result()
    codes = [a.error and a.error[0] for a in (answer, second)]
    assert sorted(codes, key=str) in ([1213, None], [1213, 1020]), codes
    one.run("ROLLBACK" if answer.error else "COMMIT")
    other.run("ROLLBACK" if second.error else "COMMIT")
    assert db.rows("SELECT n, v FROM t WHERE n < 3 ORDER BY n") in ([(1, 100), (2, 100)], [(1, 200), (2, 200)])


def test_the_victim_of_a_deadlock_loses_its_whole_transaction(db, two):
    one, other = two
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 7 WHERE n = 9")
    one.ok("UPDATE t SET v = 7 WHERE n = 1")
    other.ok("BEGIN")
    for n in range(2, 8):
        other.ok(f"UPDATE t SET v = 8 WHERE n = {n}")
    waiting = other.later("UPDATE t SET v = 8 WHERE n = 1")
    assert waiting.waits()
    answer = one.run("UPDATE t SET v = 7 WHERE n = 2")
    second = waiting.result()
    victim, winner, lost = (one, other, answer) if answer.error else (other, one, second)
    assert lost.error[0] == 1213
    victim.ok("COMMIT")
    winner.ok("ROLLBACK")
    assert db.value("SELECT SUM(v) FROM t") == 55


def test_a_circle_of_three_is_a_deadlock(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1,0),(2,0),(3,0)")
    sessions = [db.session() for _ in range(3)]
    for number, session in enumerate(sessions, 1):
        session.ok("BEGIN")
        session.ok(f"UPDATE t SET v = {number} WHERE n = {number}")
    waits = []
    for number in (1, 2):
        waits.append(sessions[number - 1].later(f"UPDATE t SET v = {number} WHERE n = {number + 1}"))
        assert waits[-1].waits()
    third = sessions[2].later("UPDATE t SET v = 3 WHERE n = 1")
    wait_for(lambda: any(w.answer and w.answer.error for w in [*waits, third]), 5, "the deadlock")
    codes = [w.answer.error[0] for w in [*waits, third] if w.answer and w.answer.error]
    assert 1213 in codes
    for session in sessions:  # the circle is broken; whoever still waits goes on when the others end
        session.run("ROLLBACK") if not any(w.session is session and w.is_alive() for w in [*waits, third]) else None
    for wait in [*waits, third]:
        wait.result()
        wait.session.run("ROLLBACK")
    assert db.rows("SELECT SUM(v) FROM t") == [(0,)]


def test_lock_tables_keeps_others_out_and_its_owner_in(two):
    one, other = two
    one.ok("LOCK TABLES t WRITE")
    waiting = other.later("SELECT COUNT(*) FROM t")
    assert waiting.waits()
    one.ok("INSERT INTO t VALUES (11, 11)")
    one.ok("DELETE FROM t WHERE n = 1")
    one.fails("SELECT * FROM t2", 1100)
    one.ok("UNLOCK TABLES")
    assert waiting.result().rows == [(10,)]
    one.ok("LOCK TABLES t READ")
    one.fails("INSERT INTO t VALUES (12, 12)", 1099)
    assert other.value("SELECT COUNT(*) FROM t") == 10
    waiting = other.later("INSERT INTO t VALUES (13, 13)")
    assert waiting.waits()
    one.ok("UNLOCK TABLES")
    assert waiting.result().affected == 1


def test_a_unique_value_of_an_unfinished_insert_makes_the_second_wait(two):
    one, other = two
    one.ok("BEGIN")
    one.ok("INSERT INTO t VALUES (50, 1)")
    waiting = other.later("INSERT INTO t VALUES (50, 2)")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().error[0] == 1062
    one.ok("BEGIN")
    one.ok("DELETE FROM t WHERE n = 50")
    waiting = other.later("INSERT INTO t VALUES (50, 3)")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().affected == 1
    one.ok("BEGIN")
    one.ok("INSERT INTO t VALUES (51, 1)")
    waiting = other.later("INSERT INTO t VALUES (51, 2)")
    assert waiting.waits()
    one.ok("ROLLBACK")
    assert waiting.result().affected == 1


def test_two_waiting_inserts_of_one_key_do_not_deadlock_each_other(db, two):
    one, other = two
    third = db.session()
    one.ok("BEGIN")
    one.ok("INSERT INTO t VALUES (60, 1)")
    waits = [session.later(f"INSERT INTO t VALUES (60, {value})") for value, session in ((2, other), (3, third))]
    assert all(wait.waits() for wait in waits)
    one.ok("ROLLBACK")
    outcomes = sorted((wait.result().error or [0])[0] for wait in waits)
    assert outcomes in ([0, 1062], [0, 1213]), outcomes
    assert db.value("SELECT COUNT(*) FROM t WHERE n = 60") == 1


def test_many_sessions_on_one_row_all_get_their_turn(db):
    db.ok("CREATE TABLE c (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO c VALUES (1, 0)")
    sessions = [db.session() for _ in range(20)]
    for session in sessions:
        session.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    db.ok("BEGIN")
    db.ok("UPDATE c SET v = 0 WHERE n = 1")
    waits = [session.later("UPDATE c SET v = v + 1 WHERE n = 1") for session in sessions]
    time.sleep(0.3)
    db.ok("COMMIT")
    assert [wait.result(20).affected for wait in waits] == [1] * 20
    assert db.value("SELECT v FROM c") == 20


def test_who_waited_for_a_row_is_shown_its_newest_spelling(db):
    """The index has all columns, and both spellings are one key: the entry that was met first is not the row's any more."""
    db.ok("CREATE TABLE t (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY) ENGINE={engine}")
    for statement, left in (("UPDATE t SET k = CONCAT(k, 'x') WHERE k = 'a'", [("Ax",)]), ("DELETE FROM t WHERE k = 'a' RETURNING k", [])):
        db.ok("DELETE FROM t")
        db.ok("INSERT INTO t VALUES ('a')")
        one, other = db.session(), db.session()
        other.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        one.ok("BEGIN")
        one.ok("UPDATE t SET k = 'A' WHERE k = 'a'")
        waiting = other.later(statement)
        assert waiting.waits()
        one.ok("COMMIT")
        answer = waiting.result()
        assert answer.rows == ([] if left else [("A",)])
        assert db.rows("SELECT k FROM t") == left


def test_who_reads_a_sequence_keeps_nobody_from_its_numbers(db):
    """Rule T52: the rows of a sequence are nobody's for longer than a change of them, whatever a statement asks for."""
    db.ok("CREATE SEQUENCE s CACHE 1 ENGINE={engine}")
    assert db.value("SELECT NEXTVAL(s)") == 1
    for number, lock in enumerate(("FOR UPDATE", "LOCK IN SHARE MODE"), 2):
        reading = db.session().later(f"SELECT SLEEP(6), minimum_value FROM s {lock}")
        assert reading.waits(1)
        begin = time.monotonic()
        assert db.value("SELECT NEXTVAL(s)") == number
        assert reading.is_alive(), "the number came while the other one read"
        assert time.monotonic() - begin < 4
        reading.result()
    begin = time.monotonic()
    assert db.rows("SELECT NEXTVAL(s), minimum_value FROM s FOR UPDATE") == [(4, 1)]
    assert time.monotonic() - begin < 4, "a statement waits for itself"
