"""Commit, rollback, savepoints, statement atomicity and XA, compared with InnoDB statement by statement."""

import pytest

from sql_tools import wait_for


def prepare(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, u INT, KEY (v), UNIQUE KEY (u)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_20")


def test_rollback_brings_everything_back(twin):
    prepare(twin)
    twin.ok("BEGIN")
    twin.ok("INSERT INTO t VALUES (100, 1, 100), (101, 1, 101)")
    twin.ok("UPDATE t SET v = -v, u = u + 1000 WHERE n > 5")
    twin.ok("DELETE FROM t WHERE n % 2 = 0")
    twin.same_table("t")
    twin.ok("ROLLBACK")
    twin.same_table("t")
    twin.same("SELECT n, v FROM t FORCE INDEX (v) WHERE v > 0")
    twin.same("SELECT n, u FROM t FORCE INDEX (u) WHERE u > 0")


def test_rows_changed_many_times_in_one_transaction(twin):
    prepare(twin)
    twin.ok("BEGIN")
    for round_number in range(30):
        twin.ok(f"UPDATE t SET v = v + {round_number}, u = u + 10000 WHERE n <= 10")
        twin.ok(f"DELETE FROM t WHERE n = {round_number % 20 + 1}")
        twin.run(f"INSERT INTO t VALUES ({round_number % 20 + 1}, 0, {500 + round_number})")
    twin.same_table("t")
    twin.same("SELECT n FROM t FORCE INDEX (v) WHERE v BETWEEN 0 AND 500")
    twin.ok("COMMIT")
    twin.same_table("t")


def test_savepoints_nest_and_return(twin):
    prepare(twin)
    twin.ok("BEGIN")
    twin.ok("UPDATE t SET v = 1")
    twin.ok("SAVEPOINT a")
    twin.ok("UPDATE t SET v = 2, u = u + 100")
    twin.ok("DELETE FROM t WHERE n > 15")
    twin.ok("SAVEPOINT b")
    twin.ok("INSERT INTO t VALUES (100, 3, 1)")
    twin.ok("ROLLBACK TO b")
    twin.same_table("t")
    twin.ok("INSERT INTO t VALUES (100, 4, 1)")
    twin.ok("ROLLBACK TO a")
    twin.same_table("t")
    twin.fails("ROLLBACK TO b", 1305)
    twin.ok("UPDATE t SET v = 5 WHERE n = 1")
    twin.ok("ROLLBACK TO a")
    twin.ok("SAVEPOINT a")
    twin.ok("DELETE FROM t WHERE n = 2")
    twin.ok("RELEASE SAVEPOINT a")
    twin.fails("ROLLBACK TO a", 1305)
    twin.ok("COMMIT")
    twin.same_table("t")
    twin.same("SELECT n, u FROM t FORCE INDEX (u) WHERE u > 0")


def test_a_savepoint_gives_back_keys_and_count(twin):
    prepare(twin)
    for end in ("COMMIT", "ROLLBACK"):
        twin.ok("BEGIN")
        for _ in range(10):
            twin.ok("SAVEPOINT s")
            twin.ok("UPDATE t SET u = u + 1 ORDER BY u DESC")
            twin.ok("DELETE FROM t WHERE n > 10")
            twin.ok("INSERT INTO t VALUES (11, 0, 5000), (12, 0, 5001)")
            twin.ok("ROLLBACK TO s")
        twin.same_table("t")
        twin.ok(end)
        twin.same_table("t")


def test_a_row_freed_by_rollback_to_savepoint_may_be_taken_by_others(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    one, other = db.session(), db.session()
    other.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 10 WHERE n = 1")
    one.ok("ROLLBACK")
    one.ok("BEGIN")
    one.ok("SAVEPOINT s")
    one.ok("INSERT INTO t VALUES (3, 3)")
    one.ok("ROLLBACK TO s")
    waiting = other.later("INSERT INTO t VALUES (3, 33)")
    one.ok("COMMIT")
    assert waiting.result(10).affected == 1
    assert db.rows("SELECT * FROM t ORDER BY n") == [(1, 1), (2, 2), (3, 33)]


def test_a_failed_statement_leaves_nothing_and_keeps_the_transaction(twin):
    prepare(twin)
    twin.ok("BEGIN")
    twin.ok("INSERT INTO t VALUES (50, 50, 50)")
    twin.fails("INSERT INTO t VALUES (60, 0, 60), (61, 0, 61), (3, 0, 62)", 1062)
    twin.fails("INSERT INTO t SELECT 70 - n, v, u + 2000 FROM t WHERE n <= 20 ORDER BY n", 1062)
    twin.fails("UPDATE t SET u = 7 WHERE n > 3", 1062)
    twin.fails("UPDATE t SET n = n + 1 ORDER BY n", 1062)
    twin.same_table("t")
    twin.ok("UPDATE t SET v = 99 WHERE n = 50")
    twin.ok("COMMIT")
    twin.same_table("t")
    twin.same("SELECT n, u FROM t FORCE INDEX (u) WHERE u > 0")


def test_an_error_in_a_trigger_undoes_the_whole_statement(twin):
    prepare(twin)
    twin.ok("CREATE TABLE log (n INT) ENGINE={engine}")
    twin.ok(
        "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW BEGIN INSERT INTO log VALUES (NEW.n);"
        " IF NEW.v = -1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF; END"
    )
    twin.fails("INSERT INTO t VALUES (70, 1, 70), (71, -1, 71), (72, 1, 72)", 1644)
    twin.same_table("t")
    twin.same_table("log")


def test_autocommit_off_keeps_work_until_commit(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    one, other = db.session(), db.session()
    one.ok("SET autocommit = 0")
    one.ok("INSERT INTO t VALUES (1)")
    assert other.value("SELECT COUNT(*) FROM t") == 0
    one.ok("COMMIT")
    assert other.value("SELECT COUNT(*) FROM t") == 1
    one.ok("INSERT INTO t VALUES (2)")
    one.ok("ROLLBACK")
    assert one.value("SELECT COUNT(*) FROM t") == 1


def test_one_transaction_over_two_engines_commits_and_rolls_back_whole(db):
    db.ok("CREATE TABLE p (n INT PRIMARY KEY) ENGINE={engine}")
    db.ok("CREATE TABLE i (n INT PRIMARY KEY) ENGINE=InnoDB")
    for end, expected in (("ROLLBACK", 0), ("COMMIT", 1)):
        db.ok("BEGIN")
        db.ok("INSERT INTO p VALUES (1)")
        db.ok("INSERT INTO i VALUES (1)")
        db.ok(end)
        assert (db.value("SELECT COUNT(*) FROM p"), db.value("SELECT COUNT(*) FROM i")) == (expected, expected)


def test_xa_commits_rolls_back_and_reports_its_states(twin):
    prepare(twin)
    xid = f"'{twin.under_test.name}'"
    for end in ("COMMIT", "ROLLBACK"):
        for session in (twin.under_test, twin.oracle):
            mine = f"'{session.name}-{end}'"
            session.ok(f"XA START {mine}")
            session.ok("INSERT INTO t VALUES (200, 1, 200)" if end == "COMMIT" else "DELETE FROM t")
            session.fails("COMMIT", 1399)
            session.ok(f"XA END {mine}")
            session.ok(f"XA PREPARE {mine}")
            assert mine.strip("'") in [
                str(row[3]) if isinstance(row[3], str) else row[3].decode() for row in session.rows("XA RECOVER")
            ]
            session.ok(f"XA {end} {mine}")
        twin.same_table("t")
    for session in (twin.under_test, twin.oracle):
        session.ok(f"XA START {xid}")
        session.ok("UPDATE t SET v = 0")
        session.ok(f"XA END {xid}")
        session.ok(f"XA COMMIT {xid} ONE PHASE")
    twin.same_table("t")


def test_a_prepared_transaction_keeps_its_locks_after_its_client_left(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    xid = f"'{db.name}-left'"
    gone, other = db.session(), db.session()
    gone.ok(f"XA START {xid}")
    gone.ok("UPDATE t SET v = 10 WHERE n = 1")
    gone.ok(f"XA END {xid}")
    gone.ok(f"XA PREPARE {xid}")
    gone.close()
    other.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert other.rows("SELECT v FROM t ORDER BY n") == [(1,), (2,)]
    waiting = other.later("UPDATE t SET v = v + 1 WHERE n = 1")
    assert waiting.waits()
    closer = db.session()
    for _ in range(50):  # the server hands a prepared transaction over only when its old connection is quite gone
        if closer.run(f"XA COMMIT {xid}").error is None:
            break
    assert waiting.result(15).affected == 1
    assert db.value("SELECT v FROM t WHERE n = 1") == 11


COPIES = {
    "column": "ALTER TABLE t MODIFY v VARCHAR(20)",
    "force": "ALTER TABLE t FORCE, ALGORITHM=COPY",
    "sorted": "ALTER TABLE t ORDER BY v",
    "key": "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n, v)",
    "engine": "ALTER TABLE t ENGINE=Aria",
    "parts": "ALTER TABLE t PARTITION BY HASH (n) PARTITIONS 3",
    "repair": "REPAIR TABLE t",
}
COPIES_OF_PARTS = {
    "add": "ALTER TABLE t ADD PARTITION PARTITIONS 2",
    "coalesce": "ALTER TABLE t COALESCE PARTITION 1",
    "rebuild": "ALTER TABLE t REBUILD PARTITION ALL",
    "remove": "ALTER TABLE t REMOVE PARTITIONING",
    "parts_repair": "ALTER TABLE t REPAIR PARTITION ALL",
}


@pytest.mark.parametrize("copy", [*COPIES, *COPIES_OF_PARTS])
def test_a_copy_of_a_table_has_what_a_client_that_left_has_prepared(db, copy):
    # T54: the server has no lock for a prepared transaction without a connection.
    parts = "" if copy in COPIES else " PARTITION BY HASH (n) PARTITIONS 4"
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}" + parts)
    db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_40")
    xid = f"'{db.name}-copy'"
    gone, changer, closer = (db.session() for _ in range(3))
    changes = ("UPDATE t SET v = 99 WHERE n = 2", "INSERT INTO t VALUES (1000, 3)", "DELETE FROM t WHERE n > 30 AND n < 40")
    for statement in (f"XA START {xid}", *changes, f"XA END {xid}", f"XA PREPARE {xid}"):
        gone.ok(statement)
    gone.close()
    changing = changer.later((COPIES | COPIES_OF_PARTS)[copy])
    assert changing.waits()
    wait_for(lambda: closer.run(f"XA COMMIT {xid}").error is None, what="an end of the old connection")
    assert changing.result(30).error is None
    assert db.value("SELECT v FROM t WHERE n = 2") in (99, "99")
    assert db.value("SELECT COUNT(*) FROM t") == 32
    assert db.value("SELECT COUNT(*) FROM t WHERE n = 1000") == 1


@pytest.mark.pbxt_only
@pytest.mark.parametrize("end", ["timeout", "kill"])
def test_a_copy_that_does_not_wait_any_longer_leaves_one_table(db, end):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    xid = f"'{db.name}-stays'"
    gone, changer, closer = (db.session() for _ in range(3))
    ident = changer.thread_id()
    for statement in (f"XA START {xid}", "UPDATE t SET v = 9", f"XA END {xid}", f"XA PREPARE {xid}"):
        gone.ok(statement)
    gone.close()
    changer.ok(f"SET lock_wait_timeout = {1 if end == 'timeout' else 50}, pbxt_lock_wait_timeout = {1 if end == 'timeout' else 50}")
    changing = changer.later("ALTER TABLE t ENGINE=Aria")
    if end == "kill":
        assert changing.waits()
        db.ok(f"KILL QUERY {ident}")
    assert changing.result(15).error[0] == (1205 if end == "timeout" else 1317)
    wait_for(lambda: closer.run(f"XA COMMIT {xid}").error is None, what="an end of the old connection")
    assert db.rows("SELECT v FROM t") == [(9,), (9,)]
    assert db.value("SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 't'") == "PBXT"
    db.ok("DROP TABLE t")
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("end", ["XA", "COMMIT"])
def test_a_reader_that_fits_into_no_order_is_told_before_others_commit_with_it(db, end):
    # T29, T45: the reader comes before the writer, which comes before the one that the reader has seen. It is the last
    # SELECT that shows it, which ends before its scan does, and what comes next is the vote of the other engine.
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    db.ok("CREATE TABLE i (n INT PRIMARY KEY) ENGINE=InnoDB")
    reader, writer, early = (db.session() for _ in range(3))
    for session in (reader, writer, early):
        session.ok("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    xid = f"'{db.name}-reads'"
    writer.ok("BEGIN")
    writer.rows("SELECT v FROM t WHERE n = 2")
    early.ok("UPDATE t SET v = 20 WHERE n = 2")
    reader.ok(f"XA START {xid}" if end == "XA" else "BEGIN")
    assert reader.rows("SELECT v FROM t WHERE n = 2") == [(20,)]
    reader.ok("INSERT INTO i VALUES (1)")
    writer.ok("UPDATE t SET v = 10 WHERE n = 1")
    writer.ok("COMMIT")
    steps = ["SELECT v FROM t IGNORE INDEX (PRIMARY) LIMIT 1"]
    steps += [f"XA END {xid}", f"XA PREPARE {xid}", f"XA COMMIT {xid}"] if end == "XA" else ["COMMIT"]
    for step in steps:
        error = reader.run(step).error
        if error is not None:
            break
    assert error is not None and error[0] in (1213, 1402, 1614), f"{step}: {error}"
    assert step != f"XA COMMIT {xid}", f"it has voted: {error}"
    reader.run(f"XA END {xid}" if end == "XA" else "ROLLBACK")
    reader.run(f"XA ROLLBACK {xid}" if end == "XA" else "ROLLBACK")
    assert db.rows("SELECT n FROM i") == [], f"{step}: {error}, and the other engine has committed"


def test_a_removed_row_that_is_inserted_again_keeps_its_place(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, u INT, c VARCHAR(20), KEY (v), UNIQUE KEY (u)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, seq, seq, 'before' FROM seq_1_to_200")
    twin.ok("BEGIN")
    for number in (3, 70, 150):
        twin.ok(f"DELETE FROM t WHERE n = {number}")
        twin.same_table("t")
        twin.ok(f"INSERT INTO t VALUES ({number}, {number % 2 + 500}, {number}, 'again')")
        twin.same_table("t")
    twin.ok("SAVEPOINT a")
    twin.ok("DELETE FROM t WHERE n BETWEEN 90 AND 99")
    twin.ok("REPLACE INTO t SELECT seq, -seq, seq, 'back' FROM seq_92_to_95")
    twin.fails("INSERT INTO t VALUES (90, 1, 92, 'taken')", 1062)
    twin.ok("INSERT INTO t VALUES (90, 1, 91, 'other u'), (91, 1, 90, 'other u')")
    twin.same_table("t")
    twin.ok("ROLLBACK TO a")
    twin.same_table("t")
    twin.ok("COMMIT")
    for index in ("PRIMARY", "v", "u"):
        twin.same(f"SELECT n, v, u FROM t FORCE INDEX ({index}) WHERE n > 0 AND v > -1000 AND u > 0")
    # Rows of a scan come by their row ids: those that were removed and came back stand where they stood.
    twin.run("SELECT n FROM t IGNORE INDEX (PRIMARY, v, u) WHERE c <> ''")
    assert twin.under_test.run("CHECK TABLE t EXTENDED").rows[-1][-1] == "OK"
