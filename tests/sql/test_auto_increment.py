"""Automatic values: every way to get or give one, from many connections, at the end of the type, after restart and kill -9."""

import threading

import pytest
from cross_engine import kill
from sql_tools import Session

CLIENTS = 6


def numbers(session, table="t"):
    """All values, rising."""
    return [row[0] for row in session.rows(f"SELECT n FROM {table} ORDER BY n")]


DUPLICATE = 1062


def in_parallel(db, work):
    """Runs work(session, client number) in CLIENTS connections; raises what one of them raised."""
    failures = []

    def run(client):
        try:
            work(db.session(), client)
        except BaseException as error:  # pylint: disable=broad-exception-caught  # an assertion of another thread, raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(client,), name=f"statement: client {client}") for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise failures[0]


def test_values_of_many_connections_are_different_and_rise_in_each(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, client INT, turn INT, KEY (client))")

    def work(session, client):
        for turn in range(40):
            session.ok(f"INSERT INTO t (client, turn) VALUES ({client}, {turn})")

    in_parallel(db, work)
    assert db.value("SELECT COUNT(*) FROM t") == CLIENTS * 40
    for client in range(CLIENTS):
        turns = [row[0] for row in db.rows(f"SELECT turn FROM t WHERE client = {client} ORDER BY n")]
        assert turns == list(range(40)), "a connection's values rise"


def test_values_of_one_statement_follow_each_other_beside_others(db, work_folder):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, client INT, turn INT, place INT)")
    path = work_folder / "rows.tsv"
    path.write_text("".join(f"99\t0\t{place}\n" for place in range(500)), encoding="ascii")

    def work(session, client):
        for turn in range(8):
            if client % 3 == 0:
                session.ok(f"INSERT INTO t (client, turn, place) SELECT {client}, {turn}, seq FROM seq_0_to_299 ORDER BY seq")
            elif client % 3 == 1:
                rows = ", ".join(f"({client}, {turn}, {place})" for place in range(50))
                session.ok(f"INSERT INTO t (client, turn, place) VALUES {rows}")
                first = session.value("SELECT LAST_INSERT_ID()")
                assert session.value(f"SELECT place FROM t WHERE n = {first} AND client = {client} AND turn = {turn}") == 0
            elif turn == 0:
                session.ok(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t (client, turn, place) SET client = {client}")

    in_parallel(db, work)
    total = db.value("SELECT COUNT(*) FROM t")
    assert total == db.value("SELECT COUNT(DISTINCT n) FROM t") == 2 * 8 * 300 + 2 * 8 * 50 + 2 * 500
    wrong = db.rows("SELECT client, turn FROM (SELECT client, turn, place, ROW_NUMBER() OVER (PARTITION BY client, turn ORDER BY n) - 1 AS r FROM t) x WHERE r <> place")
    assert wrong == [], "rows of one statement get rising values in the order in which they come"


def test_values_that_are_given_beside_automatic_ones(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT)")

    def value(v):
        return db.value(f"SELECT n FROM t WHERE v = {v}")

    db.ok("INSERT INTO t VALUES (NULL, 1), (0, 2), (10, 3), (NULL, 4)")
    assert [value(1), value(2), value(3)] == [1, 2, 10] and value(4) > 10
    db.ok("INSERT INTO t VALUES (-5, 5), (NULL, 6)")
    assert value(5) == -5 and value(6) > value(4), "a negative value is stored and raises nothing"
    db.ok("INSERT INTO t VALUES (5, 7), (NULL, 8), (1000, 9)")
    assert value(7) == 5 and value(6) < value(8) < 1000
    db.ok("INSERT INTO t (v) VALUES (10)")
    assert value(10) > 1000 and db.value("SELECT LAST_INSERT_ID()") == value(10)
    db.ok("SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')")
    db.ok("INSERT INTO t VALUES (0, 11)")
    db.fails("INSERT INTO t VALUES (0, 12)", 1062)
    db.ok("INSERT INTO t VALUES (NULL, 13)")
    assert value(11) == 0 and value(13) > value(10)
    db.ok("SET sql_mode = DEFAULT")
    db.ok("SET INSERT_ID = 5000")
    db.ok("INSERT INTO t (v) VALUES (14)")
    db.ok("INSERT INTO t (v) VALUES (15)")
    assert value(14) == 5000 and value(15) > 5000


def test_an_update_to_a_greater_value_is_passed_by(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY)")
    db.ok("INSERT INTO t VALUES (NULL), (NULL)")
    db.ok("UPDATE t SET n = 50 WHERE n = 2")
    db.ok("INSERT INTO t VALUES (NULL)")
    assert numbers(db) == [1, 50, 51]
    db.ok("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE n = 200")
    db.ok("INSERT INTO t VALUES (NULL)")
    found = numbers(db)
    assert found[:3] == [50, 51, 200] and found[3] > 200


@pytest.mark.parametrize(("increment", "offset"), [(1, 1), (10, 3), (5, 5), (7, 20)])
def test_increment_and_offset(twin, increment, offset):
    twin.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    twin.ok(f"SET auto_increment_increment = {increment}, auto_increment_offset = {offset}")
    for value in range(4):
        twin.ok(f"INSERT INTO t (v) VALUES ({value})")
    twin.ok("INSERT INTO t VALUES (57, 4)")
    twin.ok("INSERT INTO t (v) VALUES (5), (6)")
    twin.ok("SET auto_increment_increment = 1, auto_increment_offset = 1")
    twin.same_table("t")


@pytest.mark.parametrize(("kind", "greatest"), [("TINYINT", 127), ("TINYINT UNSIGNED", 255), ("SMALLINT", 32767), ("BIGINT", (1 << 63) - 1)])
def test_the_end_of_the_type_is_an_error_and_nothing_wraps(twin, kind, greatest):
    twin.ok(f"CREATE TABLE t (n {kind} AUTO_INCREMENT PRIMARY KEY, v INT)")
    twin.ok(f"INSERT INTO t VALUES ({greatest - 1}, 1)")
    twin.ok("INSERT INTO t (v) VALUES (2)")
    for _ in range(2):
        answer = twin.under_test.run("INSERT INTO t (v) VALUES (3)")
        wanted = twin.oracle.run("INSERT INTO t (v) VALUES (3)")
        assert answer.error and wanted.error, (answer, wanted)
        assert answer.error[0] in (167, 1062, 1264, 1467), answer.error
    twin.same_table("t")
    twin.ok(f"DELETE FROM t WHERE n = {greatest}")
    twin.ok("INSERT INTO t VALUES (5, 4)")
    twin.same_table("t")


def test_the_greatest_unsigned_value_is_not_passed(db):
    db.ok("CREATE TABLE t (n BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY)")
    db.ok("INSERT INTO t VALUES (18446744073709551613), (NULL)")
    assert numbers(db)[-1] == 18446744073709551614
    db.fails("INSERT INTO t VALUES (NULL)", (167, 1467))
    db.ok("INSERT INTO t VALUES (18446744073709551615)")
    db.fails("INSERT INTO t VALUES (NULL)", (167, 1467))


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_no_value_is_given_again_after_the_server_comes_back(own_server, how):
    server = own_server()
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    given = set()
    for turn in range(3):
        session.ok("INSERT INTO t (v) VALUES (1), (2), (3)")
        session.ok("INSERT INTO t (v) SELECT seq FROM seq_1_to_2000")
        given.update(numbers(session))
        session.ok("DELETE FROM t ORDER BY n DESC LIMIT 1500")  # the greatest are gone, and used all the same
        session.ok("BEGIN")
        session.ok("INSERT INTO t (v) VALUES (4)")
        if how == "restart":
            given.update(numbers(session))  # a kill may forget a value that was never committed
        session.ok("ROLLBACK")
        if turn == 1:
            session.ok("UPDATE t SET n = 1000000 WHERE v = 1 LIMIT 1")
            session.ok("DELETE FROM t WHERE n = 1000000")
            given.add(1000000)
        if how == "kill":
            kill(server)
        else:
            server.stop()
        server.start()
        session = Session(server, "d", server.engine)
        before = set(numbers(session))
        session.ok("INSERT INTO t (v) VALUES (5), (6)")
        fresh = set(numbers(session)) - before
        assert len(fresh) == 2 and min(fresh) > max(given), (sorted(fresh), max(given))
        given |= fresh
    if how == "restart":
        session.ok("TRUNCATE TABLE t")
        session.ok("INSERT INTO t (v) VALUES (1)")
        assert numbers(session) == [1], "TRUNCATE begins anew"


@pytest.mark.pbxt_only
def test_an_orderly_restart_leaves_no_gap_and_a_kill_a_small_one(own_server):
    # A1, A2.
    server = own_server()
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE d")
    session.ok("CREATE TABLE d.t (n INT AUTO_INCREMENT PRIMARY KEY) ENGINE={engine}")
    session.ok("INSERT INTO d.t VALUES (NULL)")
    server.restart()
    session = Session(server, "d", server.engine)
    session.ok("INSERT INTO t VALUES (NULL)")
    assert numbers(session) == [1, 2]
    kill(server)
    server.start()
    session = Session(server, "d", server.engine)
    session.ok("INSERT INTO t VALUES (NULL)")
    assert numbers(session)[:2] == [1, 2] and 3 <= numbers(session)[2] <= 3 + 2 * 1024


@pytest.mark.parametrize(("kind", "first"), [("TINYINT", 1), ("TINYINT UNSIGNED", 200), ("SMALLINT", 32600)])
def test_small_types_have_values_left_after_kills(own_server, kind, first):
    server = own_server()
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE d")
    session.ok(f"CREATE TABLE d.t (n {kind} AUTO_INCREMENT PRIMARY KEY) ENGINE={{engine}} AUTO_INCREMENT = {first}")
    for turn in range(3):
        session.ok("INSERT INTO d.t VALUES (NULL), (NULL), (NULL)")
        kill(server)
        server.start()
        session = Session(server, "d", server.engine)
        assert len(numbers(session)) == 3 * (turn + 1)
    session.ok("INSERT INTO t VALUES (NULL)")
    assert len(set(numbers(session))) == 10


def test_the_next_value_set_by_alter_table_survives_a_kill_at_once(own_server):
    server = own_server()
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE d")
    session.ok("CREATE TABLE d.t (n INT AUTO_INCREMENT PRIMARY KEY) ENGINE={engine}")
    session.ok("ALTER TABLE d.t AUTO_INCREMENT = 500000")
    kill(server)
    server.start()
    session = Session(server, "d", server.engine)
    session.ok("INSERT INTO t VALUES (NULL)")
    assert numbers(session)[0] >= 500000


def test_alter_table_sets_the_next_value_but_not_below_what_is_there(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 7")
    db.ok("INSERT INTO t (v) VALUES (1)")
    db.ok("ALTER TABLE t AUTO_INCREMENT = 100")
    db.ok("INSERT INTO t (v) VALUES (2)")
    db.ok("ALTER TABLE t AUTO_INCREMENT = 3")
    db.ok("INSERT INTO t (v) VALUES (3)")
    assert numbers(db) == [7, 100, 101]
    db.ok("ALTER TABLE t ADD COLUMN w INT")
    db.ok("INSERT INTO t (v) VALUES (4)")
    assert numbers(db) == [7, 100, 101, 102]
    db.ok("TRUNCATE TABLE t")
    db.ok("INSERT INTO t (v) VALUES (5)")
    assert numbers(db) == [1]


@pytest.mark.pbxt_only
def test_a_column_behind_the_first_counts_in_its_group(db):
    db.ok("CREATE TABLE t (g INT, n INT AUTO_INCREMENT, client INT, PRIMARY KEY (g, n))")

    def work(session, client):
        for turn in range(15):
            # The greatest number of a group plus one: who was overtaken is told so, and asks again.
            while (answer := session.run(f"INSERT INTO t (g, client) VALUES ({turn % 2}, {client})")).error:
                assert answer.error[0] == DUPLICATE, answer

    in_parallel(db, work)
    for group in (0, 1):
        found = [row[0] for row in db.rows(f"SELECT n FROM t WHERE g = {group} ORDER BY n")]
        assert found == list(range(1, len(found) + 1)), "no gap and nothing twice"


def test_a_column_that_loses_the_attribute_by_a_copy_leaves_no_value_behind(db):
    db.ok("CREATE TABLE t (n INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 2147483648")
    db.ok("INSERT INTO t (v) VALUES (1)")
    db.ok("SET STATEMENT sql_mode = '' FOR ALTER TABLE t CHANGE n n INT DEFAULT 0")
    assert "AUTO_INCREMENT" not in db.rows("SHOW CREATE TABLE t")[0][1]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("change", ["MODIFY n INT NOT NULL", "MODIFY n INT NOT NULL, DROP PRIMARY KEY", "DROP PRIMARY KEY, DROP COLUMN n"])
def test_a_column_that_loses_the_attribute_at_once_leaves_no_value_behind(db, change):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    db.ok("INSERT INTO t (v) VALUES (1), (2), (3)")
    db.ok(f"ALTER TABLE t {change}, ALGORITHM=INSTANT")
    assert "AUTO_INCREMENT" not in db.rows("SHOW CREATE TABLE t")[0][1]
    db.ok("ALTER TABLE t AUTO_INCREMENT = 70, ALGORITHM=INSTANT")
    assert "AUTO_INCREMENT=70" in db.rows("SHOW CREATE TABLE t")[0][1], "one that is asked for stays"


def test_double_counts_beyond_what_64_bits_hold_with_a_sign(db):
    db.ok("SET sql_mode = 'STRICT_ALL_TABLES'")
    db.ok("CREATE TABLE t (n DOUBLE NOT NULL AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 10000000000000000000")
    db.ok("INSERT INTO t VALUES ()")
    assert numbers(db) == [1e19]
    db.ok("TRUNCATE TABLE t")
    db.ok("INSERT INTO t VALUES (-5.5), (7.9), (NULL)")
    assert db.value("SELECT MAX(n) FROM t") in (8, 9)  # above 7.9; InnoDB rounds first
