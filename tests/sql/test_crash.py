"""kill -9 again and again under eight clients with multi-row transactions; see scripts/transfers.py for what is proved."""

import random
import time

import pytest
import transfers
from sql_tools import Session

CLIENTS = 8


@pytest.fixture
def rounds(request):
    asked = request.config.getoption("--crash-rounds")
    return asked or (50 if request.config.getoption("--long") else 3)


def test_kill_under_eight_clients_loses_nothing_and_leaves_nothing_in_part(own_server, engine, rounds, request):
    seed = request.config.getoption("--random-seed") or random.SystemRandom().randrange(1 << 30)
    replay = f"replay: build/venv/bin/python -m pytest tests/sql/test_crash.py --engine {engine} --crash-rounds {rounds} --random-seed {seed}"
    server = own_server()
    setup = Session(server, None, engine)
    setup.ok("CREATE DATABASE bank")
    setup.ok("USE bank")
    transfers.create_tables(setup.connection, engine)
    setup.close()
    crowd = transfers.Crowd(server, "bank", CLIENTS, seed)
    pause = random.Random(seed)
    for number in range(1, rounds + 1):
        before = crowd.commits()
        crowd.start()
        time.sleep(pause.uniform(0.5, 2.5))
        server.kill()
        crowd.finish()
        server.start()
        connection = server.connect("bank")
        complaints = transfers.verify(connection, crowd)
        connection.close()
        assert not complaints, f"round {number} of {rounds}, {crowd.commits()} commits:\n" + "\n".join(complaints) + f"\n{replay}"
        assert crowd.commits() > before, f"nobody could commit in round {number}; {replay}"


def test_kill_inside_one_large_transaction_leaves_no_row_of_it(own_server, engine):
    server = own_server()
    session = Session(server, None, engine)
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    session.ok("INSERT INTO t SELECT seq, 1 FROM seq_1_to_1000")
    for number in range(3):
        waiting = session.later("INSERT INTO t SELECT seq + 1000, 2 FROM seq_1_to_100000000")
        time.sleep(0.3 + number * 0.7)
        server.kill()
        waiting.result()
        server.start()
        session = Session(server, "d", engine)
        assert session.rows("SELECT COUNT(*), SUM(v) FROM t") == [(1000, 1000)]
        assert session.value("SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v = 2") == 0
        assert session.rows("SELECT COUNT(*), SUM(v) FROM t IGNORE INDEX (PRIMARY, v)") == [(1000, 1000)]
