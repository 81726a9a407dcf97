"""Lines of waiters between real connections: a thousand on one row, circles of up to a hundred, and how a place in line is given up.

Statements are sent one after the other, each when the engine has said that the one before waits; no order here is left to chance.
"""

import pytest

from many_connections import error_code, line_of, send_and_see_waiting
from sql_tools import Database, wait_for

READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
SIZE, LONG_SIZE = 1000, 4000  # connections in one line; with --long
DEADLOCK, KILLED, TIMED_OUT = 1213, 1317, 1205


@pytest.fixture
def table(db):
    """Ten rows."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, 0 FROM seq_1_to_10")
    return db


def line(db, size, *setup):
    """Connections to the test's database, on the level where the newest version counts."""
    return line_of(db.server, db.name, size, [READ_COMMITTED, *setup])


def send_waiting(db, crowd, number, statement):
    """Sends a statement and returns when it stands in line."""
    send_and_see_waiting(crowd, number, statement, db.main.connection, db.engine)


def timeout(db, seconds):
    """The statement that sets the engine's own limit for waits."""
    return f"SET SESSION {'pbxt' if db.engine.upper() == 'PBXT' else 'innodb'}_lock_wait_timeout = {seconds}"


def test_a_thousand_waiters_get_the_row_in_the_order_in_which_they_came(own_server, engine, request):
    size = LONG_SIZE if request.config.getoption("--long") else SIZE
    patient = "--pbxt-lock-wait-timeout=600" if engine.upper() == "PBXT" else "--innodb-lock-wait-timeout=600"
    server = own_server(f"--max-connections={size + 100}", "--thread-stack=262144", patient)
    with Database(server, "line", engine) as db, line(db, size) as crowd:
        db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
        db.ok("INSERT INTO t VALUES (1, 0), (2, 0)")
        holder = db.session()
        for statement in ("SELECT v FROM t WHERE n = 1 FOR UPDATE", "UPDATE t SET v = (@place := v + 1) WHERE n = 1"):
            holder.ok("BEGIN")
            holder.ok("SELECT v FROM t WHERE n = 1 FOR UPDATE")
            for number in range(size):
                crowd.ask(number, "BEGIN")
                send_waiting(db, crowd, number, statement)
            holder.ok("COMMIT")
            order = []
            while crowd.under_way:
                number, answer = crowd.take_first()
                assert not error_code(answer), answer
                order.append(number)
                crowd.ask(number, "COMMIT")
            assert order == list(range(size)), statement
        assert [crowd.ask(number, "SELECT @place")[0][0] for number in range(size)] == list(range(1, size + 1))
        assert db.value("SELECT v FROM t WHERE n = 1") == size


@pytest.mark.parametrize("size", [2, 3, 100])
def test_a_circle_has_one_victim_and_the_others_go_on(own_server, engine, size):
    server = own_server("--max-connections=200")
    with Database(server, "circle", engine) as db, line(db, size) as crowd:
        db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
        db.ok(f"INSERT INTO t SELECT seq, -1 FROM seq_0_to_{size - 1}")
        db.ok("CREATE TABLE trace (who INT) ENGINE={engine}")
        for number in range(size):
            crowd.ask(number, "BEGIN")
            crowd.ask(number, f"INSERT INTO trace VALUES ({number})")
            crowd.ask(number, "SAVEPOINT s")
            crowd.ask(number, f"UPDATE t SET v = {number} WHERE n = {number}")
        for number in range(size - 1):
            send_waiting(db, crowd, number, f"UPDATE t SET v = {number} WHERE n = {number + 1}")
        crowd.send(size - 1, f"UPDATE t SET v = {size - 1} WHERE n = 0")
        victims = []
        while crowd.under_way:  # each end lets one more go on, so nobody may be left over
            number, answer = crowd.take_first()
            if error_code(answer):
                assert error_code(answer) == DEADLOCK, answer
                victims.append(number)
            crowd.ask(number, "COMMIT")  # of a victim: the transaction is gone, and this ends nothing
        assert len(victims) == 1, victims
        others = sorted(set(range(size)) - set(victims))
        assert db.rows("SELECT who FROM trace ORDER BY who") == [(number,) for number in others]
        # Its row was changed last by the one before it in the circle; all others twice, by themselves and by the one before.
        owners = {n: v for n, v in db.rows("SELECT n, v FROM t")}
        first = (victims[0] + 1) % size
        assert owners == {n: n if n == first else (n - 1) % size for n in range(size)}


def test_two_upgrades_of_one_shared_lock_are_a_circle(table):
    with line(table, 2) as crowd:
        for number in (0, 1):
            crowd.ask(number, "BEGIN")
            crowd.ask(number, "SELECT v FROM t WHERE n = 1 LOCK IN SHARE MODE")
        send_waiting(table, crowd, 0, "UPDATE t SET v = 1 WHERE n = 1")
        crowd.send(1, "UPDATE t SET v = 2 WHERE n = 1")
        answers = crowd.take_all()
        assert sorted(error_code(answer) for answer in answers.values()) == [0, DEADLOCK]
        winner = next(number for number, answer in answers.items() if not error_code(answer))
        crowd.ask(winner, "COMMIT")
        assert table.value("SELECT v FROM t WHERE n = 1") == winner + 1


def test_readers_that_share_a_row_do_not_go_past_a_writer_in_line(table):
    with line(table, 4) as crowd:
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "SELECT v FROM t WHERE n = 1 LOCK IN SHARE MODE")
        send_waiting(table, crowd, 1, "UPDATE t SET v = 1 WHERE n = 1")
        for number in (2, 3):
            send_waiting(table, crowd, number, "SELECT v FROM t WHERE n = 1 LOCK IN SHARE MODE")
        assert crowd.ask(0, "SELECT v FROM t WHERE n = 1 LOCK IN SHARE MODE") == ((0,),), "who has the lock asks nobody"
        crowd.ask(0, "COMMIT")
        answers = crowd.take_all()
        assert (answers[1], answers[2], answers[3]) == (1, [(1,)], [(1,)])


def test_shared_locks_in_line_are_given_together(table):
    with line(table, 4) as crowd:
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "UPDATE t SET v = 1 WHERE n = 1")
        for number in (1, 2):
            crowd.ask(number, "BEGIN")
            send_waiting(table, crowd, number, "SELECT v FROM t WHERE n = 1 LOCK IN SHARE MODE")
        send_waiting(table, crowd, 3, "UPDATE t SET v = v + 10 WHERE n = 1")
        crowd.ask(0, "COMMIT")
        seen = dict(crowd.take_first() for _ in range(2))  # neither of them ends its transaction
        assert seen == {1: [(1,)], 2: [(1,)]}
        crowd.ask(1, "COMMIT")
        crowd.ask(2, "COMMIT")
        assert crowd.take_first() == (3, 1)


@pytest.mark.parametrize("kind, codes", [("QUERY", (KILLED,)), ("CONNECTION", (KILLED, 1927, 2013, 2006))])
@pytest.mark.parametrize("statement", ["UPDATE t SET v = 1 WHERE n = 1", "SELECT v FROM t WHERE n = 1 FOR UPDATE"])
def test_a_killed_waiter_leaves_the_line_and_those_behind_go_on(table, statement, kind, codes):
    with line(table, 4) as crowd:
        victim = crowd.ask(1, "SELECT CONNECTION_ID()")[0][0]
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "SELECT v FROM t WHERE n = 1 FOR UPDATE")
        crowd.ask(1, "BEGIN")
        crowd.ask(1, "UPDATE t SET v = 5 WHERE n = 2")
        for number in (1, 2, 3):
            send_waiting(table, crowd, number, statement)
        table.ok(f"KILL {kind} {victim}")
        number, answer = crowd.take_first()
        assert number == 1 and error_code(answer) in codes, answer
        if kind == "QUERY":
            crowd.ask(1, "COMMIT")  # only the statement was undone
        crowd.ask(0, "COMMIT")
        answers = crowd.take_all()
        assert sorted(answers) == [2, 3] and not any(map(error_code, answers.values())), answers
        if kind == "CONNECTION":
            wait_for(lambda: not table.rows(f"SELECT 1 FROM information_schema.processlist WHERE id = {victim}"), what="the end")
        assert table.value("SELECT v FROM t WHERE n = 2") == (5 if kind == "QUERY" else 0)


def test_a_killed_holder_gives_the_row_to_the_first_in_line(table):
    with line(table, 3) as crowd:
        holder = crowd.ask(0, "SELECT CONNECTION_ID()")[0][0]
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "UPDATE t SET v = 7")
        send_waiting(table, crowd, 1, "UPDATE t SET v = v + 1 WHERE n = 1")
        send_waiting(table, crowd, 2, "UPDATE t SET v = v * 10 WHERE n = 1")
        table.ok(f"KILL CONNECTION {holder}")
        assert set(crowd.take_all().values()) == {1}
        assert table.rows("SELECT v FROM t WHERE n < 3 ORDER BY n") == [(10,), (0,)]


def test_a_waiter_that_gives_up_does_not_hold_up_those_behind_it(table):
    with line(table, 3) as crowd:
        crowd.ask(1, timeout(table, 1))
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "UPDATE t SET v = 1 WHERE n = 1")
        send_waiting(table, crowd, 1, "UPDATE t SET v = 2 WHERE n = 1")
        send_waiting(table, crowd, 2, "UPDATE t SET v = v + 2 WHERE n = 1")
        number, answer = crowd.take_first()
        assert (number, error_code(answer)) == (1, TIMED_OUT)
        crowd.ask(0, "COMMIT")
        assert crowd.take_first() == (2, 1)
        assert table.value("SELECT v FROM t WHERE n = 1") == 3


def test_a_waiter_is_nothing_to_a_statement_that_wants_other_rows(table):
    table.ok("CREATE TABLE other (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    table.ok("INSERT INTO other SELECT seq, 0 FROM seq_1_to_20000")
    with line(table, 3) as crowd:
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "UPDATE t SET v = 1 WHERE n = 1")
        send_waiting(table, crowd, 1, "UPDATE t SET v = v + 1 WHERE n = 1")
        crowd.send(2, "UPDATE other SET v = 1")
        assert crowd.take_first(30) == (2, 20000), "the waiter still waits, and nothing of it is wanted"
        skipping = crowd.ask(2, "SELECT COUNT(*), SUM(v) FROM other FOR UPDATE SKIP LOCKED")
        assert skipping == ((20000, 20000),)
        crowd.ask(0, "COMMIT")
        assert crowd.take_first() == (1, 1)


@pytest.mark.parametrize("kind", ["NOWAIT", "WAIT 0", "WAIT 1"])
@pytest.mark.parametrize("lock", ["FOR UPDATE", "LOCK IN SHARE MODE"])
def test_a_locking_read_says_itself_how_long_it_waits(table, lock, kind):
    with line(table, 3) as crowd:
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "UPDATE t SET v = 1 WHERE n = 1")
        crowd.send(1, f"SELECT v FROM t WHERE n = 1 {lock} {kind}")
        number, answer = crowd.take_first(20)
        assert error_code(answer) == TIMED_OUT, answer
        assert crowd.ask(1, f"SELECT v FROM t WHERE n = 2 {lock} {kind}") == ((0,),)
        send_waiting(table, crowd, 2, f"SELECT v FROM t WHERE n = 1 {lock} WAIT 50")
        crowd.ask(0, "COMMIT")
        assert crowd.take_first() == (2, [(1,)])


def test_skip_locked_leaves_out_what_stands_against_its_own_mode(table):
    with line(table, 3) as crowd:
        crowd.ask(0, "BEGIN")
        crowd.ask(0, "SELECT v FROM t WHERE n = 2 FOR UPDATE")
        crowd.ask(0, "SELECT v FROM t WHERE n = 3 LOCK IN SHARE MODE")
        shared = crowd.ask(1, "SELECT n FROM t WHERE n <= 4 ORDER BY n LOCK IN SHARE MODE SKIP LOCKED")
        assert [row[0] for row in shared] == [1, 3, 4]
        exclusive = crowd.ask(2, "SELECT n FROM t WHERE n <= 4 ORDER BY n FOR UPDATE SKIP LOCKED")
        assert [row[0] for row in exclusive] == [1, 4]


@pytest.mark.parametrize("statement", ["UPDATE t SET v = 1 WHERE v + n = 5", "SELECT n FROM t WHERE v + n = 5 FOR UPDATE"])
@pytest.mark.parametrize("level, kept", [("READ COMMITTED", [5]), ("REPEATABLE READ", list(range(1, 11)))])
def test_rows_that_do_not_match_are_unlocked_where_a_later_look_may_differ(table, level, kept, statement):
    one, other = table.session(), table.session()
    for session in (one, other):
        session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        if table.engine.upper() == "PBXT":
            session.ok("SET SESSION pbxt_conflict_mode = 'wait'")
    one.ok("BEGIN")
    one.ok(statement)
    free = [row[0] for row in other.rows("SELECT n FROM t FOR UPDATE SKIP LOCKED")]
    assert free == [n for n in range(1, 11) if n not in kept]


def test_no_lock_and_no_waiter_is_left_behind(table):
    """After kills in the middle of the line the rows are free."""
    with line(table, 30) as crowd:
        idents = [crowd.ask(number, "SELECT CONNECTION_ID()")[0][0] for number in range(30)]
        for _ in range(3):
            crowd.ask(0, "BEGIN")
            crowd.ask(0, "UPDATE t SET v = v + 1 WHERE n = 1")
            for number in range(1, 30):
                send_waiting(table, crowd, number, "SELECT v FROM t WHERE n = 1 FOR UPDATE")
            for number in range(1, 30, 3):
                table.ok(f"KILL QUERY {idents[number]}")
            crowd.ask(0, "COMMIT")
            crowd.take_all()
        assert table.rows("SELECT n FROM t FOR UPDATE NOWAIT") == [(n,) for n in range(1, 11)]
        if table.engine.upper() == "PBXT":
            waiting = "SELECT COUNT(*) FROM information_schema.pbxt_trx WHERE waits_for IS NOT NULL"
            assert table.value(waiting) == 0
