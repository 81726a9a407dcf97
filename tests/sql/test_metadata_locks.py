"""Circles that lead through locks of the server: LOCK TABLES and DDL that wait for a transaction, which waits for them.

Two detectors, of which each sees its own locks: the server's for metadata locks, the engine's for rows. What the tests state is written
in docs/transactions.md, "Circles through locks of the server". The same holds for every transactional engine of the server.
"""

import pytest

from sql_tools import wait_for

WAITS_FOR_METADATA = "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {} AND state LIKE 'Waiting for table metadata%'"


@pytest.fixture
def tables(db):
    """Two tables of ten rows; the server locks tables in the order of their names."""
    for name in ("first", "second"):
        db.ok(f"CREATE TABLE {name} (n INT PRIMARY KEY, v INT) ENGINE={{engine}}")
        db.ok(f"INSERT INTO {name} SELECT seq, 0 FROM seq_1_to_10")
    return db


def later(db, session, statement):
    """A statement under way that the server lists as waiting for a metadata lock."""
    ident = session.thread_id()
    waiting = session.later(statement)
    wait_for(lambda: db.value(WAITS_FOR_METADATA.format(ident)) == 1, what=f"a wait of {statement}")
    return waiting


def test_a_circle_of_metadata_locks_costs_the_transaction_its_work(tables):
    writer, locker = tables.session(), tables.session()
    writer.ok("BEGIN")
    writer.ok("UPDATE second SET v = 1")
    locking = later(tables, locker, "LOCK TABLES first WRITE, second WRITE")
    writer.fails("UPDATE first SET v = 1", 1213)
    assert locking.result().error is None
    assert locker.value("SELECT SUM(v) FROM second") == 0, "the writer was rolled back whole, not only its statement"
    locker.ok("UNLOCK TABLES")
    writer.ok("COMMIT")
    assert tables.value("SELECT SUM(v) FROM second") == 0


def test_a_circle_of_metadata_locks_with_ddl_costs_the_transaction_its_work(tables):
    writer, changer = tables.session(), tables.session()
    writer.ok("BEGIN")
    writer.ok("UPDATE second SET v = 1")
    renaming = later(tables, changer, "RENAME TABLE first TO third, second TO fourth")
    writer.fails("UPDATE first SET v = 1", 1213)
    assert renaming.result().error is None
    assert tables.value("SELECT SUM(v) FROM fourth") == 0
    writer.ok("COMMIT")


@pytest.mark.parametrize("request_of_third", ["LOCK TABLES second WRITE", "ALTER TABLE second FORCE", "TRUNCATE second"])
def test_a_circle_through_both_kinds_of_locks_ends_with_the_lock_wait_timeout(tables, engine, request_of_third):
    one, two, third = (tables.session() for _ in range(3))
    two.ok(f"SET SESSION {'pbxt' if engine.upper() == 'PBXT' else 'innodb'}_lock_wait_timeout = 3")
    one.ok("BEGIN")
    one.ok("UPDATE first SET v = 1 WHERE n = 1")
    two.ok("BEGIN")
    two.ok("UPDATE second SET v = 2 WHERE n = 1")
    blocked = later(tables, third, request_of_third)  # for the transaction of two
    row_wait = two.later("UPDATE first SET v = 2 WHERE n = 1")  # for the row of one
    closing = later(tables, one, "UPDATE second SET v = 3 WHERE n = 9")  # behind the third: the circle is closed
    answer = row_wait.result()
    assert answer.error and answer.error[0] == 1205, "neither detector sees the whole circle; the shorter limit ends it"
    assert not closing.answer and not blocked.answer, "the statement was undone; the transaction has its locks still"
    two.ok("ROLLBACK")
    assert blocked.result().error is None
    third.ok("UNLOCK TABLES")
    # Made anew since the snapshot of one, the table is not the one it may read (T19).
    assert closing.result().error is None or closing.answer.error[0] == 1412
    one.ok("COMMIT")
    assert tables.value("SELECT SUM(v) FROM first") == 1


def test_a_kill_ends_a_circle_through_both_kinds_of_locks(tables):
    one, two, third = (tables.session() for _ in range(3))
    one.ok("BEGIN")
    one.ok("UPDATE first SET v = 1 WHERE n = 1")
    two.ok("BEGIN")
    two.ok("UPDATE second SET v = 2 WHERE n = 1")
    ident = two.thread_id()
    blocked = later(tables, third, "LOCK TABLES second WRITE")
    row_wait = two.later("UPDATE first SET v = 2 WHERE n = 1")
    closing = later(tables, one, "SELECT SUM(v) FROM second")
    tables.ok(f"KILL CONNECTION {ident}")
    assert row_wait.result().error[0] in (1317, 1927, 2013, 2006)
    assert blocked.result().error is None
    third.ok("UNLOCK TABLES")
    assert closing.result().rows == [(0,)]
    one.ok("ROLLBACK")


def test_ddl_that_waits_for_a_transaction_does_not_keep_it_from_going_on(tables):
    writer, changer = tables.session(), tables.session()
    writer.ok("BEGIN")
    writer.ok("UPDATE first SET v = 1 WHERE n = 1")
    changing = later(tables, changer, "ALTER TABLE first ADD COLUMN w INT")
    assert writer.affected("UPDATE first SET v = 2 WHERE n = 2") == 1, "it has its metadata lock already"
    assert writer.value("SELECT SUM(v) FROM first") == 3
    writer.ok("COMMIT")
    assert changing.result().error is None
    assert tables.value("SELECT SUM(v) FROM first") == 3
