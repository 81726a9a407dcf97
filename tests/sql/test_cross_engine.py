"""Transactions over PBXT and InnoDB, and XA: what a coordinator decided survives kill -9, with the binary log and without."""

import random
import struct

import pytest
from cross_engine import BINARY_LOG, COORDINATORS, SETTINGS, CrossBank, kill
from sql_tools import Session, wait_for
from xa_transfers import rolled_back_without_pbxt as without_pbxt


@pytest.fixture
def rounds(request):
    asked = request.config.getoption("--crash-rounds")
    return asked or (50 if request.config.getoption("--long") else 1)


def open_pair(server):
    """One table in each engine."""
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE IF NOT EXISTS d")
    session.ok("USE d")
    session.ok("CREATE TABLE IF NOT EXISTS p (n INT PRIMARY KEY) ENGINE={engine}")
    session.ok("CREATE TABLE IF NOT EXISTS i (n INT PRIMARY KEY) ENGINE=InnoDB")
    return session


def both(session):
    """Numbers in either table."""
    return [[row[0] for row in session.rows(f"SELECT n FROM {table} ORDER BY n")] for table in ("p", "i")]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_two_engines_and_xa_lose_and_split_nothing(own_server, engine, rounds, request, coordinator):
    seed = request.config.getoption("--random-seed") or random.SystemRandom().randrange(1 << 30)
    replay = f"replay: build/venv/bin/python -m pytest tests/sql/test_cross_engine.py -k two_engines --crash-rounds {rounds} --random-seed {seed}"
    server = own_server(*SETTINGS, *COORDINATORS[coordinator])
    bank = CrossBank(server, coordinator, (engine, "InnoDB"), random.Random(seed))
    for number in range(1, rounds + 1):
        complaints = bank.round(longest=1.5, again=0.2)
        assert not complaints, f"kill {number}, {bank.commits()} commits:\n" + "\n".join(complaints) + f"\n{replay}"
    assert bank.xa_commits() > 0, replay


@pytest.mark.pbxt_only
def test_the_check_of_answered_rollbacks_tells_pbxt_from_innodb(own_server):
    # InnoDB may list an id again whose XA ROLLBACK was answered; of PBXT that is a complaint.
    server = own_server("--skip-log-bin")
    for number, (name, tables) in enumerate((("one", "p"), ("two", "i"), ("three", "pi"))):
        session = open_pair(server)
        session.ok(f"XA START '{name}'")
        for table in tables:
            session.ok(f"INSERT INTO {table} VALUES ({number})")
        session.ok(f"XA END '{name}'")
        session.ok(f"XA PREPARE '{name}'")
        session.close()
    kill(server)
    server.start()
    connection = server.connect()
    try:
        assert [without_pbxt(connection, name) for name in ("one", "two", "three")] == [False, True, False]
    finally:
        connection.close()


@pytest.mark.pbxt_only
@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_a_commit_over_two_engines_is_there_after_a_kill_at_once(own_server, coordinator):
    # Rule V7. Neither engine has flushed its commit when the answer comes: the coordinator's word is all there is.
    server = own_server(*COORDINATORS[coordinator])
    session = open_pair(server)
    for number in range(1, 4):
        session.ok("BEGIN")
        session.ok(f"INSERT INTO p VALUES ({number})")
        session.ok(f"INSERT INTO i VALUES ({number})")
        session.ok("COMMIT")
        kill(server)
        server.start()
        session = open_pair(server)
        wanted = list(range(1, number + 1))
        assert both(session) == [wanted, wanted]
    assert "had decided before the crash" in server.log_text() or coordinator == "binlog"


@pytest.mark.pbxt_only
def test_what_tc_log_decided_is_committed_also_when_a_binary_log_decides_from_now_on(own_server):
    # Rule V8: and the file is gone then, because numbers of transactions begin anew.
    server = own_server("--skip-log-bin")
    session = open_pair(server)
    for number in (1, 2):
        session.ok("BEGIN")
        session.ok(f"INSERT INTO p VALUES ({number})")
        session.ok(f"INSERT INTO i VALUES ({number})")
        session.ok("COMMIT")
    kill(server)
    assert (server.data / "tc.log").exists()
    server.start(*BINARY_LOG)
    session = open_pair(server)
    assert both(session) == [[1, 2], [1, 2]]
    assert not (server.data / "tc.log").exists()
    server.restart()
    session = open_pair(server)
    assert both(session) == [[1, 2], [1, 2]]


@pytest.mark.pbxt_only
def test_numbers_that_tc_log_does_not_have_are_left_to_the_server(own_server):
    # Rule V7: prepared and not decided is rolled back. The file's entries are wiped out here, as if the power had failed before them.
    server = own_server("--skip-log-bin")
    undone = False
    for number in range(1, 6):  # an engine that flushed by itself between answer and kill has committed for good
        if undone:
            break
        session = open_pair(server)
        session.ok("BEGIN")
        session.ok(f"INSERT INTO p VALUES ({number})")
        session.ok(f"INSERT INTO i VALUES ({number})")
        session.ok("COMMIT")
        kill(server)
        path = server.data / "tc.log"
        content = path.read_bytes()
        assert any(value for (value,) in struct.iter_unpack("<Q", content[8:])), "the commit went through the file"
        path.write_bytes(content[:8] + bytes(len(content) - 8))
        server.start()
        session = open_pair(server)
        undone = undone or all(number not in table for table in both(session))
    assert undone, "five commits that neither engine had flushed and nobody decided are there"


@pytest.mark.pbxt_only
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_an_answered_end_of_xa_is_not_prepared_again(own_server, end):
    # Rule V2: of a transaction in the hands of its own connection too. InnoDB does not flush the rollback of a prepared transaction.
    server = own_server("--skip-log-bin")
    session = open_pair(server)
    for number in range(1, 3):
        session.ok(f"XA START 'x{number}'")
        session.ok(f"INSERT INTO p VALUES ({number})")
        if end == "COMMIT":
            session.ok(f"INSERT INTO i VALUES ({number})")
        session.ok(f"XA END 'x{number}'")
        session.ok(f"XA PREPARE 'x{number}'")
        session.ok(f"XA {end} 'x{number}'")
        kill(server)
        server.start()
        session = open_pair(server)
        assert session.rows("XA RECOVER") == []
        wanted = list(range(1, number + 1)) if end == "COMMIT" else []
        assert both(session) == [wanted, wanted]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_xa_commit_at_the_moment_the_connection_goes_away_is_done(own_server, coordinator):
    # Rule V3: the server lets others end it before it has closed the connection in the engine.
    server = own_server(*COORDINATORS[coordinator])
    session = open_pair(server)
    count = 30
    for number in range(count):
        branch = Session(server, "d", server.engine)
        branch.ok(f"XA START 'x{number}'")
        branch.ok(f"INSERT INTO p VALUES ({number})")
        branch.ok(f"XA END 'x{number}'")
        branch.ok(f"XA PREPARE 'x{number}'")
        branch.close()
        wait_for(lambda n=number: session.run(f"XA COMMIT 'x{n}'").error is None, 20, "XA COMMIT")
        assert session.value(f"SELECT COUNT(*) FROM p WHERE n = {number}") == 1, "the commit was answered"
    assert session.value("SELECT COUNT(*) FROM p") == count
    assert session.rows("XA RECOVER") == []
