"""Parallel replicas: appliers that meet, kills of either server, XA; and what the primary's log has in MIXED format and after a rotation."""

import itertools
import random
import shutil

import pytest
from cross_engine import BINARY_LOG, kill
from replica_pair import DATABASE, ReplicaPair
from sql_tools import Session, wait_for

MODES = {
    "conservative": ("--slave-parallel-mode=conservative", "--skip-log-bin"),
    "optimistic": ("--slave-parallel-mode=optimistic", "--skip-log-bin"),
    "optimistic-binlog": ("--slave-parallel-mode=optimistic", "--log-bin=own", "--log-slave-updates", "--sync-binlog=1"),
}


_numbers = itertools.count(1)


@pytest.fixture
def pair_of(work_folder, engine, template):
    """Makes a primary and a replica: pair_of(mode, position)."""
    made = []

    def make(mode, position="auto", kind="MIXED"):
        folder = work_folder / f"pair{next(_numbers)}"
        pair = ReplicaPair(folder, engine, (f"--binlog-format={kind}",), MODES[mode], position)
        made.append(pair)
        for server in (pair.primary, pair.replica):
            shutil.copytree(template, server.data)
        pair.prepare()
        return pair

    yield make
    for pair in made:
        pair.end(wipe=True)


def modes(config):
    """One mode is enough for every change; all of them in long runs."""
    return list(MODES) if config.getoption("--long") else ["optimistic-binlog"]


def pytest_generate_tests(metafunc):
    if "killed_mode" in metafunc.fixturenames:
        metafunc.parametrize("killed_mode", modes(metafunc.config))


def test_kills_of_primary_and_replica_leave_the_same_tables(pair_of, killed_mode, request):
    rounds = request.config.getoption("--crash-rounds") or (20 if request.config.getoption("--long") else 2)
    seed = request.config.getoption("--random-seed") or random.SystemRandom().randrange(1 << 30)
    pair = pair_of(killed_mode, "alter" if killed_mode == "optimistic" else "auto")
    dice = random.Random(seed)
    for number in range(rounds):
        victim = pair.primary if number % 2 else pair.replica
        pair.start_load(4, dice.randrange(1 << 30), victim)
        for thread in pair.load:
            thread.join(dice.uniform(0.1, 0.6))
        pair.kill_and_start(victim)
        complaints = pair.stop_load() + pair.compare()
        assert not complaints, f"kill {number + 1}, seed {seed}:\n" + "\n".join(complaints)


@pytest.mark.parametrize("mode", ["optimistic", "optimistic-binlog"])
def test_transactions_applied_too_early_are_rolled_back_and_tried_again(pair_of, mode):
    # The same few rows again and again, one transaction after the other: what is applied at once must meet.
    pair = pair_of(mode)
    primary = Session(pair.primary, DATABASE, pair.engine)
    replica = Session(pair.replica, None, pair.engine)
    primary.ok("CREATE TABLE hot (n INT PRIMARY KEY, v BIGINT NOT NULL, u INT UNIQUE) ENGINE={engine}")
    primary.ok("INSERT INTO hot VALUES (1, 0, 1), (2, 0, 2)")
    assert not pair.compare()
    replica.ok("STOP SLAVE")
    for number in range(300):
        primary.ok("BEGIN")
        primary.ok(f"UPDATE hot SET v = v + {number} WHERE n = {number % 2 + 1}")
        primary.ok(f"DELETE FROM hot WHERE n = {100 + number - 1}")
        primary.ok(f"INSERT INTO hot VALUES ({100 + number}, {number}, {10 + number % 3})")
        primary.ok("UPDATE hot SET v = v * 2 % 1000003 WHERE n IN (1, 2)")
        primary.ok("COMMIT")
    replica.ok("START SLAVE")
    complaints = pair.compare()
    assert not complaints, "\n".join(complaints)
    assert pair.figure("Slave_retried_transactions") > 0, "nothing was applied too early: this was no optimistic replica"


@pytest.mark.pbxt_only
def test_xa_transactions_reach_a_parallel_replica(pair_of):
    pair = pair_of("conservative")
    primary = Session(pair.primary, DATABASE, pair.engine)
    for number in range(30):
        branch = Session(pair.primary, DATABASE, pair.engine)
        branch.ok(f"XA START 'x{number}'")
        branch.ok(f"UPDATE stock SET amount = amount + 1 WHERE id = {number % 8 + 1}")
        branch.ok(f"INSERT INTO item (v) VALUES ({number})")
        branch.ok(f"XA END 'x{number}'")
        branch.ok(f"XA PREPARE 'x{number}'")
        branch.close()
        end = "ROLLBACK" if number % 5 == 0 else "COMMIT"
        wait_for(lambda n=number, e=end: primary.run(f"XA {e} 'x{n}'").error is None, 20, "the end of XA")
        primary.ok(f"UPDATE stock SET amount = amount * 2 WHERE id = {number % 8 + 1}")
    complaints = pair.compare()
    assert not complaints, "\n".join(complaints)
    assert Session(pair.replica, None, pair.engine).rows("XA RECOVER") == []


@pytest.mark.pbxt_only
def test_mixed_format_writes_rows_for_every_change(own_server):
    # Statements could repeat otherwise on a replica, because rows are read without locks on ranges.
    server = own_server("--log-bin=bin", "--binlog-format=MIXED")
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    session.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    session.ok("UPDATE t SET v = v + 1 WHERE n > 0")
    session.ok("UPDATE t SET v = RAND() * 100 LIMIT 1")
    session.ok("DELETE FROM t WHERE n = 2")
    kinds = [row[2] for row in session.rows("SHOW BINLOG EVENTS IN 'bin.000001'")]
    statements = [row[5] for row in session.rows("SHOW BINLOG EVENTS IN 'bin.000001'") if row[2] == "Query"]
    assert not [text for text in statements if any(word in text for word in ("INSERT", "UPDATE", "DELETE"))], statements
    for kind, count in (("Write_rows_v1", 1), ("Update_rows_v1", 2), ("Delete_rows_v1", 1)):
        assert kinds.count(kind) == count, kinds


@pytest.mark.pbxt_only
def test_a_rotation_of_the_binary_log_forgets_no_commit(own_server):
    # Recovery reads the binary logs from the last checkpoint on, which the engine answers when its commits are durable.
    server = own_server(*BINARY_LOG)
    session = Session(server, None, server.engine)
    session.ok("CREATE DATABASE d")
    session.ok("CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE={engine}")
    for number in range(1, 4):
        session.ok(f"INSERT INTO d.t VALUES ({number})")
        session.ok("FLUSH BINARY LOGS")
        newest = session.rows("SHOW BINARY LOGS")[-1][0]

        def checkpoint_is(name=newest, connection=session):
            events = connection.rows(f"SHOW BINLOG EVENTS IN '{name}'")
            return any(row[2] == "Binlog_checkpoint" and row[5] == name for row in events)

        wait_for(checkpoint_is, 20, "the checkpoint of the binary log")
        session.ok(f"PURGE BINARY LOGS TO '{newest}'")
        kill(server)
        server.start()
        session = Session(server, None, server.engine)
        assert [row[0] for row in session.rows("SELECT n FROM d.t ORDER BY n")] == list(range(1, number + 1))


@pytest.mark.parametrize("mode", ["conservative", "optimistic"])
def test_actions_of_foreign_keys_are_done_by_the_replica_itself(pair_of, mode):
    pair = pair_of(mode)
    primary = Session(pair.primary, DATABASE, pair.engine)
    primary.ok("CREATE TABLE p (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    primary.ok(
        "CREATE TABLE c (n INT PRIMARY KEY, p INT, twice INT AS (p * 2) VIRTUAL, KEY (twice), "
        "FOREIGN KEY (p) REFERENCES p (n) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE={engine}"
    )
    primary.ok("CREATE TABLE g (n INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (n) ON DELETE SET NULL) ENGINE={engine}")
    primary.ok("INSERT INTO p SELECT seq, 0 FROM seq_1_to_100")
    primary.ok("INSERT INTO c (n, p) SELECT seq, 1 + seq % 100 FROM seq_1_to_1000")
    primary.ok("INSERT INTO g SELECT seq, seq FROM seq_1_to_1000")
    for number in range(1, 50):
        primary.ok(f"DELETE FROM p WHERE n = {number}")
        primary.ok(f"UPDATE p SET n = n + 1000 WHERE n = {101 - number}")
    primary.ok("SET foreign_key_checks = 0")
    primary.ok("DELETE FROM p WHERE n = 1090")
    primary.ok("SET foreign_key_checks = 1")
    assert not pair.compare()
    replica = Session(pair.replica, DATABASE, pair.engine)
    assert replica.rows("SELECT * FROM c ORDER BY n") == primary.rows("SELECT * FROM c ORDER BY n")
    assert replica.value("SELECT COUNT(*) FROM c") == primary.value("SELECT COUNT(*) FROM c") < 1000
    # Its children were left alone by both.
    assert replica.value("SELECT COUNT(*) FROM c FORCE INDEX (twice) WHERE twice = 2180") == 10
    assert replica.value("SELECT COUNT(*) FROM g WHERE c IS NULL") == 1000 - primary.value("SELECT COUNT(*) FROM c")
    assert "REFERENCES `p` (`n`) ON DELETE CASCADE ON UPDATE CASCADE" in replica.rows("SHOW CREATE TABLE c")[0][1]


def test_indexes_of_virtual_columns_follow_on_a_replica(pair_of):
    """Row events look rows up by primary key; what the old row had computed leaves its indexes with it."""
    pair = pair_of("conservative")
    primary = Session(pair.primary, DATABASE, pair.engine)
    primary.ok(
        "CREATE TABLE v (n INT PRIMARY KEY, a INT, body TEXT, twice INT AS (a * 2) VIRTUAL, half VARCHAR(9) AS (LEFT(body, 3)) VIRTUAL, "
        "KEY (twice), UNIQUE KEY (body), KEY (half)) ENGINE={engine}"
    )
    primary.ok("INSERT INTO v (n, a, body) SELECT seq, seq, CONCAT(seq, 'body') FROM seq_1_to_100")
    primary.ok("UPDATE v SET a = a + 1000, body = CONCAT('new', body) WHERE n <= 50")
    primary.ok("UPDATE v SET a = NULL WHERE n > 90")
    primary.ok("UPDATE v SET body = NULL WHERE n = 60")
    assert not pair.compare()
    replica = Session(pair.replica, DATABASE, pair.engine)
    for query, count in (
        ("SELECT COUNT(*) FROM v FORCE INDEX (twice) WHERE twice BETWEEN 0 AND 200", 40),
        ("SELECT COUNT(*) FROM v FORCE INDEX (twice) WHERE twice IS NULL", 10),
        ("SELECT COUNT(*) FROM v FORCE INDEX (half) WHERE half < 'a'", 49),
        ("SELECT COUNT(*) FROM v FORCE INDEX (half) WHERE half = 'new'", 50),
    ):
        assert replica.value(query) == primary.value(query) == count, query
    assert replica.rows("CHECK TABLE v EXTENDED")[0][3] == "OK"


@pytest.mark.pbxt_only
def test_an_idempotent_replica_replaces_rows_and_what_they_had_computed(pair_of):
    pair = pair_of("conservative")
    primary = Session(pair.primary, DATABASE, pair.engine)
    primary.ok("CREATE TABLE w (n INT PRIMARY KEY, a INT, twice INT AS (a * 2) VIRTUAL, KEY (twice)) ENGINE={engine}")
    assert not pair.compare()
    replica = Session(pair.replica, DATABASE, pair.engine)
    replica.ok("STOP SLAVE")
    replica.ok("SET GLOBAL slave_exec_mode = 'IDEMPOTENT'")
    replica.ok("INSERT INTO w (n, a) VALUES (1, 7), (2, 8)")
    primary.ok("INSERT INTO w (n, a) VALUES (1, 70), (2, NULL), (3, 7)")
    replica.ok("START SLAVE")
    assert not pair.compare()
    for value, count in ((14, 1), (140, 1), (16, 0)):
        assert replica.value(f"SELECT COUNT(*) FROM w FORCE INDEX (twice) WHERE twice = {value}") == count
    assert replica.rows("CHECK TABLE w EXTENDED")[0][3] == "OK"
