"""Closing and opening again: clean and after kill -9, prepared transactions, counters, and DDL caught in the middle."""

import threading
import time

import pymysql
import pytest

from sql_tools import Session, wait_for

FILL = "INSERT INTO t (v, w) SELECT seq % 100, REPEAT('w', seq % 500) FROM seq_1_to_5000"
DIGEST = "SELECT COUNT(*), SUM(n), SUM(v), SUM(CRC32(w)) FROM t"


@pytest.fixture
def server(own_server):
    return own_server()


def open_table(server, fill=True):
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE IF NOT EXISTS d CHARACTER SET utf8mb4")
    session.ok("USE d")
    if fill:
        session.ok(
            "CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT, w TEXT COLLATE utf8mb4_unicode_ci, KEY (v), KEY (w(20))) ENGINE={engine}"
        )
        session.ok(FILL)
    return session


@pytest.mark.pbxt_only
def test_a_new_database_is_told_of_and_no_other(server):
    made = "PBXT: a new, empty database was made in "
    assert server.log_text().count(made) == 1
    server.stop()
    server.start()
    assert server.log_text().count(made) == 1, "it is there"


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_rows_keys_and_counters_are_there_after(server, how):
    session = open_table(server)
    session.ok("UPDATE t SET v = -v WHERE n % 4 = 0")
    session.ok("DELETE FROM t WHERE n % 9 = 0 OR n > 4990")
    session.ok("CREATE TABLE empty (n INT PRIMARY KEY) ENGINE={engine}")
    session.ok("CREATE TABLE big (n INT PRIMARY KEY, b LONGBLOB) ENGINE={engine}")
    session.ok("INSERT INTO big SELECT seq, REPEAT(CHAR(seq), seq * 20000) FROM seq_1_to_20")
    questions = [
        DIGEST,
        "SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v < 0",
        "SELECT COUNT(*), SUM(n) FROM t FORCE INDEX (w) WHERE w LIKE 'ww%'",
        "SELECT COUNT(*) FROM empty",
        "SELECT n, LENGTH(b), MD5(b) FROM big ORDER BY n",
        "SELECT column_name, column_type, collation_name, column_key FROM information_schema.columns WHERE table_schema = 'd' ORDER BY 1, 2",
    ]
    before = [session.rows(question) for question in questions]
    if how == "kill":
        server.kill()
    else:
        server.stop()
    server.start()
    session = open_table(server, fill=False)
    assert [session.rows(question) for question in questions] == before
    assert session.rows("CHECK TABLE t, big, empty")[-1][3] == "OK"
    session.ok("INSERT INTO t (v) VALUES (1)")
    assert session.value("SELECT MAX(n) FROM t") > 5000, "a number that was given once must not come back"


def test_unfinished_work_is_gone_after_a_kill(server):
    session = open_table(server)
    before = session.rows(DIGEST)
    session.ok("BEGIN")
    session.ok("DELETE FROM t WHERE n < 3000")
    session.ok("UPDATE t SET v = 12345")
    session.ok("INSERT INTO t (v) SELECT 99999 FROM seq_1_to_3000")
    server.kill()
    server.start()
    session = open_table(server, fill=False)
    assert session.rows(DIGEST) == before
    assert session.value("SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v IN (12345, 99999)") == 0


def test_rolled_back_savepoints_stay_rolled_back_after_a_kill(server):
    session = open_table(server)
    session.ok("BEGIN")
    session.ok("UPDATE t SET v = 1000 WHERE n <= 10")
    session.ok("SAVEPOINT s")
    session.ok("UPDATE t SET v = 2000 WHERE n <= 20")
    session.ok("DELETE FROM t WHERE n > 100")
    session.ok("ROLLBACK TO s")
    session.ok("UPDATE t SET v = 3000 WHERE n = 20")
    session.ok("COMMIT")
    before = session.rows(DIGEST)
    server.kill()
    server.start()
    session = open_table(server, fill=False)
    assert session.rows(DIGEST) == before
    assert session.rows("SELECT n FROM t FORCE INDEX (v) WHERE v IN (1000, 2000, 3000) ORDER BY n") == [
        (n,) for n in [*range(1, 11), 20]
    ]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_prepared_transaction_survives_a_kill_with_its_locks(server, end):
    session = open_table(server)
    before = session.rows(DIGEST)
    session.ok("XA START 'p1'")
    session.ok("UPDATE t SET v = v + 1000 WHERE n <= 10")
    session.ok("DELETE FROM t WHERE n BETWEEN 11 AND 20")
    session.ok("INSERT INTO t (n, v) VALUES (100000, 5)")
    inside = session.rows(DIGEST)
    session.ok("XA END 'p1'")
    session.ok("XA PREPARE 'p1'")
    server.kill()
    server.start()
    session = open_table(server, fill=False)
    assert [row[3] for row in session.rows("XA RECOVER")] in (["p1"], [b"p1"])
    assert session.rows(DIGEST) == before, "prepared is not committed"
    other = Session(server, "d", server.engine)
    other.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    waiting = other.later("UPDATE t SET w = 'other' WHERE n = 1")
    assert waiting.waits(), "row 1 is still locked by the prepared transaction"
    session.ok(f"XA {end} 'p1'")
    assert waiting.result().affected == 1
    other.ok("UPDATE t SET w = REPEAT('w', 1) WHERE n = 1")
    assert session.rows(DIGEST) == (inside if end == "COMMIT" else before)
    server.kill()
    server.start()
    session = open_table(server, fill=False)
    assert session.rows("XA RECOVER") == []
    assert session.rows(DIGEST) == (inside if end == "COMMIT" else before)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("killed", [False, True])
def test_an_xa_transaction_is_ended_whatever_format_its_id_has(server, end, killed):
    # Rule V16: the server finds it by the two parts of the id alone.
    session = open_table(server)
    before = session.value("SELECT COUNT(*) FROM t")
    branch = Session(server, "d", server.engine)
    branch.ok("XA START 'q1', 'b', 7")
    branch.ok("INSERT INTO t (v) VALUES (1)")
    branch.ok("XA END 'q1', 'b', 7")
    branch.ok("XA PREPARE 'q1', 'b', 7")
    if killed:
        server.kill()
        server.start()
        session = open_table(server, fill=False)
    else:
        branch.close()
    assert [row[0] for row in session.rows("XA RECOVER")] == [7]
    wait_for(lambda: session.run(f"XA {end} 'q1', 'b'").error is None, 20, f"XA {end}")
    assert session.value("SELECT COUNT(*) FROM t") == before + (end == "COMMIT"), "as it was answered"
    assert session.rows("XA RECOVER") == []
    server.kill()
    server.start()
    session = open_table(server, fill=False)
    assert session.value("SELECT COUNT(*) FROM t") == before + (end == "COMMIT")
    assert session.rows("XA RECOVER") == []


def test_ten_kills_in_a_row_lose_nothing(server):
    session = open_table(server, fill=False)
    session.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    for number in range(10):
        session.ok(f"INSERT INTO t SELECT seq + {number * 1000}, {number} FROM seq_1_to_100")
        session.ok(f"UPDATE t SET v = v + 100 WHERE n % 100 = {number}")
        session.ok("BEGIN")
        session.ok("DELETE FROM t")
        expected = (number + 1) * 100
        server.kill()
        server.start()
        session = open_table(server, fill=False)
        assert session.rows("SELECT COUNT(*), COUNT(DISTINCT n) FROM t") == [(expected, expected)]
    assert session.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


@pytest.mark.parametrize("statement", [
    "ALTER TABLE t ADD COLUMN x INT DEFAULT 1", "ALTER TABLE t ENGINE=Aria", "CREATE TABLE s AS SELECT * FROM t",
    "DROP TABLE t", "RENAME TABLE t TO s", "TRUNCATE TABLE t",
])  # fmt: skip
def test_a_kill_during_ddl_leaves_the_old_table_or_the_new_one(server, statement):
    session = open_table(server)
    for _ in range(3):
        session.ok("INSERT INTO t (v, w) SELECT v, w FROM t")
    rows = session.value("SELECT COUNT(*) FROM t")
    worker = Session(server, "d", server.engine)
    thread = threading.Thread(target=lambda: worker.run(statement), daemon=True)
    thread.start()
    time.sleep(0.05)
    server.kill()
    thread.join(20)
    server.start()
    session = open_table(server, fill=False)
    tables = {row[0] for row in session.rows("SHOW TABLES")}
    counts = {name: session.value(f"SELECT COUNT(*) FROM `{name}`") for name in tables if not name.startswith("#")}
    for name, count in counts.items():
        assert count == session.value(f"SELECT COUNT(*) FROM (SELECT v FROM `{name}`) x"), "count and scan must agree"
        assert count in (rows, 0), counts
    if not statement.startswith(("DROP", "TRUNCATE")):
        assert rows in counts.values(), f"the rows are gone: {counts}"
    session.ok("CREATE TABLE fresh (n INT PRIMARY KEY) ENGINE={engine}")
    session.ok("INSERT INTO fresh VALUES (1)")


def test_a_commit_is_not_answered_before_it_is_durable(server):
    session = open_table(server, fill=False)
    session.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    acknowledged = []

    def write():
        client = server.connect("d")
        try:
            for number in range(1_000_000):
                with client.cursor() as cursor:
                    cursor.execute("INSERT INTO t VALUES (%s)", (number,))
                acknowledged.append(number)
        except (pymysql.err.Error, OSError):
            pass

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    wait_for(lambda: len(acknowledged) > 500, 30, "500 commits")
    server.kill()
    thread.join(20)
    server.start()
    session = open_table(server, fill=False)
    there = {row[0] for row in session.rows("SELECT n FROM t")}
    assert set(acknowledged) <= there
    assert len(there) <= len(acknowledged) + 1, "more rows than statements were sent"
