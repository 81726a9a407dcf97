"""A statement that fails undoes itself and nothing else, whatever makes it fail and however deep in savepoints it stands.

The oracle is InnoDB: after each step both engines must have the same rows, by scan, by index and by count. Failures that come at a
moment of our choosing (a kill) are held there by a lock of the server.
"""

import pytest

from sql_tools import wait_for

SETUP = (
    "CREATE TABLE t (n INT PRIMARY KEY, v INT, u INT, w VARCHAR(20), KEY (v), UNIQUE KEY (u), CHECK (v <> 666)) ENGINE={engine}",
    "CREATE TABLE log (at INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(10), n INT, KEY (n)) ENGINE={engine}",
    "INSERT INTO t SELECT seq, seq, seq, CONCAT('row ', seq) FROM seq_1_to_20",
    "INSERT INTO t VALUES (30, 30, 30, 'no before'), (31, 31, 31, 'fine')",  # while there is no trigger yet
    *(
        f"CREATE TRIGGER {moment}_{event} {moment} {event} ON t FOR EACH ROW BEGIN INSERT INTO log (what, n) VALUES ('{event}', {row}.n);"
        f" IF {row}.w = 'no {moment}' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this row'; END IF; END"
        for moment in ("before", "after")
        for event, row in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD"))
    ),
)
SIGNALLED, DUPLICATE, CHECK_FAILED, TOO_LONG, KILLED = 1644, 1062, 4025, 1406, 1317

# (statement, error): each changes several rows before the one at which it fails.
FAILURES = {
    "duplicate of the primary key": ("INSERT INTO t VALUES (100, 1, 100, ''), (101, 1, 101, ''), (5, 1, 102, ''), (103, 1, 103, '')", DUPLICATE),
    "duplicate of a unique key": ("INSERT INTO t VALUES (100, 1, 100, ''), (101, 1, 7, ''), (102, 1, 102, '')", DUPLICATE),
    "duplicate within itself": ("INSERT INTO t VALUES (100, 1, 100, ''), (101, 1, 101, ''), (102, 1, 100, '')", DUPLICATE),
    "duplicate after many rows": ("INSERT INTO t SELECT IF(seq = 1300, 5, seq + 1000), 1, seq + 1000, '' FROM seq_1_to_1500", DUPLICATE),
    "update to one value of a unique key": ("UPDATE t SET u = 500, v = v + 1 WHERE n > 3 ORDER BY n", DUPLICATE),
    "update of the primary key": ("UPDATE t SET n = IF(n = 7, 8, n + 400), v = -v WHERE n <= 12 ORDER BY n", DUPLICATE),
    "signal before an insert": ("INSERT INTO t VALUES (100, 1, 100, ''), (101, 1, 101, 'no before'), (102, 1, 102, '')", SIGNALLED),
    "signal after an insert": ("INSERT INTO t VALUES (100, 1, 100, ''), (101, 1, 101, 'no after'), (102, 1, 102, '')", SIGNALLED),
    "signal before an update": ("UPDATE t SET v = v + 1, u = u + 100, w = IF(n = 9, 'no before', w) WHERE n <= 20 ORDER BY n", SIGNALLED),
    "signal after an update": ("UPDATE t SET v = v + 1, u = u + 100, w = IF(n = 9, 'no after', w) WHERE n <= 20 ORDER BY n", SIGNALLED),
    "signal before a delete": ("DELETE FROM t WHERE n > 8 ORDER BY n", SIGNALLED),
    "signal in a replacement": ("REPLACE INTO t VALUES (3, 0, 300, ''), (4, 0, 400, 'no after'), (6, 0, 600, '')", SIGNALLED),
    "check of an insert": ("INSERT INTO t VALUES (100, 1, 100, ''), (101, 666, 101, ''), (102, 1, 102, '')", CHECK_FAILED),
    "check of an update": ("UPDATE t SET u = u + 100, v = IF(n = 7, 666, v + 1) WHERE n <= 20 ORDER BY n", CHECK_FAILED),
    "value that does not fit": ("UPDATE t SET v = v + 1, w = IF(n = 7, REPEAT('x', 21), w) WHERE n <= 20 ORDER BY n", TOO_LONG),
    "duplicate in ON DUPLICATE KEY": ("INSERT INTO t VALUES (100, 1, 100, ''), (4, 1, 101, '') ON DUPLICATE KEY UPDATE v = 0, u = 7", DUPLICATE),
}


def prepare(session):
    """The tables; triggers write a log in the same transaction."""
    for statement in SETUP:
        session.ok(statement)


def same(twin):
    """Both engines have the same rows, whichever way one looks."""
    twin.same_table("t")
    twin.same_table("log", "what, n")
    for key in ("v", "u"):
        twin.same(f"SELECT n, {key} FROM t FORCE INDEX ({key}) WHERE {key} > -100000")
    twin.same("SELECT n FROM log FORCE INDEX (n) WHERE n > -100000")


@pytest.fixture
def nested(twin):
    """A transaction that has changed rows on three levels of savepoints."""
    prepare(twin)
    twin.ok("BEGIN")
    twin.ok("UPDATE t SET v = v + 1000 WHERE n IN (1, 5, 9)")
    for depth, name in enumerate(("outer_one", "middle_one", "inner_one")):
        twin.ok(f"SAVEPOINT {name}")
        twin.ok(f"INSERT INTO t VALUES ({200 + depth}, {depth}, {200 + depth}, '{name}')")
        twin.ok(f"UPDATE t SET v = v * 10, u = u + 10000 WHERE n IN ({depth + 1}, 9)")
        twin.ok(f"DELETE FROM t WHERE n = {18 + depth}")
    return twin


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_statement_undoes_itself_inside_nested_savepoints(nested, failure, end):
    statement, error = FAILURES[failure]
    for name in (None, "inner_one", "middle_one", "outer_one"):
        if name:
            nested.ok(f"ROLLBACK TO {name}")
            same(nested)
        nested.fails(statement, error)
        same(nested)
        nested.ok(f"UPDATE t SET w = 'goes on' WHERE n IN (2, {5 if name else 6})")
        nested.fails(statement, error)
        same(nested)
    nested.ok(end)
    same(nested)
    assert [row[-1] for row in nested.under_test.rows("CHECK TABLE t, log EXTENDED")] == ["OK", "OK"]


def killed_in_the_middle(database, statement, holder):
    """Runs a statement that stops at a lock of the server after some rows, and kills it there; its answer."""
    session = database.main
    ident = session.thread_id()
    holder.ok(f"DO GET_LOCK('{database.name}', 60)")
    waiting = session.later(statement.format(lock=f"GET_LOCK('{database.name}', 60)"))
    at_lock = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {ident} AND state = 'User lock'"
    wait_for(lambda: holder.value(at_lock) == 1, what="the statement's stop")
    holder.ok(f"KILL QUERY {ident}")
    answer = waiting.result()
    holder.ok(f"DO RELEASE_LOCK('{database.name}')")
    return answer


# Rows are met in the order in which they were inserted; the first nine are changed before the stop.
KILLED_STATEMENTS = {
    "update": "UPDATE t SET v = v + 1, u = u + 100000 WHERE n <= 9 OR {lock} = 1",
    "delete": "DELETE FROM t WHERE n <= 9 OR {lock} = 1",
    "insert": "INSERT INTO t SELECT seq + 1000, 1, seq + 5000, '' FROM seq_1_to_20 WHERE seq <= 9 OR {lock} = 1",
}


@pytest.mark.parametrize("statement", KILLED_STATEMENTS)
def test_a_killed_statement_undoes_itself_inside_nested_savepoints(nested, statement):
    for database in (nested.under_test, nested.oracle):
        answer = killed_in_the_middle(database, KILLED_STATEMENTS[statement], database.session())
        assert answer.error and answer.error[0] == KILLED, answer
    same(nested)
    nested.ok("UPDATE t SET v = v + 7 WHERE n < 7")
    nested.ok("ROLLBACK TO middle_one")
    same(nested)
    nested.ok("COMMIT")
    same(nested)


def test_a_victim_of_a_deadlock_loses_its_transaction_and_all_savepoints(db):
    prepare(db)
    one, other = db.session(), db.session()
    before = db.rows("SELECT * FROM t ORDER BY n"), db.rows("SELECT what, n FROM log ORDER BY at")
    for session, row in ((one, 1), (other, 2)):
        session.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        session.ok("BEGIN")
        session.ok(f"UPDATE t SET v = v + 1, u = u + 100 WHERE n = {row}")
        session.ok("SAVEPOINT a")
        session.ok(f"INSERT INTO t VALUES ({300 + row}, 0, {300 + row}, 'x')")
        session.ok("SAVEPOINT b")
        session.fails(f"INSERT INTO t VALUES ({310 + row}, 0, {310 + row}, ''), (9, 0, 0, '')", DUPLICATE)
        session.ok("ROLLBACK TO a")
        session.ok(f"DELETE FROM t WHERE n = {10 + row}")
    waiting = one.later("UPDATE t SET v = v + 1 WHERE n = 2")
    assert waiting.waits()
    closing = other.run("UPDATE t SET v = v + 1 WHERE n = 1")
    answers = {one: waiting.result(), other: closing}
    lost = [session for session, answer in answers.items() if answer.error]
    assert len(lost) == 1 and answers[lost[0]].error[0] == 1213, answers
    victim, winner = lost[0], one if lost[0] is other else other
    victim.fails("ROLLBACK TO a", 1305)
    victim.ok("COMMIT")
    winner.ok("ROLLBACK")
    assert (db.rows("SELECT * FROM t ORDER BY n"), db.rows("SELECT what, n FROM log ORDER BY at")) == before
    assert [row[-1] for row in db.rows("CHECK TABLE t, log EXTENDED")] == ["OK", "OK"]
    assert db.run("INSERT INTO t VALUES (301, 0, 301, ''), (302, 0, 302, '')").affected == 2, "no key is held"


def test_a_write_conflict_undoes_its_statement_inside_nested_savepoints(db):
    if db.engine.upper() != "PBXT":
        pytest.skip("only PBXT has write conflicts")
    prepare(db)
    other = db.session()
    db.ok("BEGIN")
    db.ok("UPDATE t SET v = v + 1 WHERE n = 1")
    db.ok("SAVEPOINT a")
    db.ok("UPDATE t SET v = v + 1 WHERE n = 2")
    other.ok("UPDATE t SET v = -12 WHERE n = 12")
    mine = db.rows("SELECT * FROM t ORDER BY n"), db.value("SELECT COUNT(*) FROM log")
    db.fails("UPDATE t SET v = v + 5, u = u + 50 WHERE n BETWEEN 1 AND 20 ORDER BY n", 1020)
    assert (db.rows("SELECT * FROM t ORDER BY n"), db.value("SELECT COUNT(*) FROM log")) == mine
    db.ok("ROLLBACK TO a")
    db.fails("DELETE FROM t WHERE n BETWEEN 1 AND 20 ORDER BY n", 1020)
    db.ok("COMMIT")
    assert db.rows("SELECT n, v FROM t WHERE n IN (1, 2, 12) ORDER BY n") == [(1, 2), (2, 2), (12, -12)]
