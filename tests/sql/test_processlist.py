"""How far a long statement is, in the State column of SHOW PROCESSLIST.

Each statement is made slow by work of the server's for every row, so that there is time to look.
"""

import re
import time

import pytest

from sql_tools import Session, wait_for

pytestmark = pytest.mark.pbxt_only

ROWS = 20_000
SLOW = "BENCHMARK(300, SHA1(w))"
# After so many seconds a statement is taken to hang. An instrumented plugin may need more than one minute for a load of 1.5 million rows.
HANGS_AFTER = 300


@pytest.fixture
def table(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, w VARCHAR(60)) ENGINE=PBXT")
    db.ok(f"INSERT INTO t SELECT seq, seq % 100, SHA1(seq) FROM seq_1_to_{ROWS}")
    db.ok("CREATE TABLE u LIKE t")
    return db


def states_of(db, statement):
    """Every State that a connection had while it ran a statement."""
    busy = db.session()
    number = busy.thread_id()
    running = busy.later(statement)
    seen = []

    def is_over():
        state = db.value(f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {number}")
        if state and state not in seen:
            seen.append(state)
        return not running.is_alive()

    wait_for(is_over, HANGS_AFTER, "the statement's end")
    running.result()
    busy.close()
    return seen


def figures(states, deed):
    """Numbers of rows behind a word, in the order in which they were seen."""
    found = [re.search(rf"{deed} about (\d+) rows", state) for state in states]
    return [int(match[1]) for match in found if match]


def test_a_scan_tells_rows_and_a_share_that_rises(table):
    states = states_of(table, f"SELECT SUM({SLOW}) FROM t")
    rows = figures(states, "Queried")
    assert len(rows) >= 3 and rows == sorted(rows) and rows[-1] <= ROWS, states
    shares = [int(match[1]) for match in (re.search(r"\((\d+) %\)$", state) for state in states) if match]
    assert len(shares) >= 3 and shares == sorted(shares) and 0 < shares[0] < shares[-1] <= 99, states


def test_changes_tell_rows_read_and_rows_changed(table):
    for statement, deed in [
        (f"UPDATE t SET v = v + 1 + {SLOW}", "Updated"),
        (f"INSERT INTO u SELECT n, {SLOW}, w FROM t", "Inserted"),
        (f"DELETE FROM t WHERE {SLOW} = 0", "Deleted"),
    ]:
        states = states_of(table, statement)
        assert len(figures(states, deed)) >= 3, f"{statement}: {states}"
        assert figures(states, "Queried"), f"{statement}: {states}"


def test_the_next_statement_of_a_connection_begins_at_nothing(table):
    busy = table.session()
    busy.ok(f"SELECT SUM({SLOW}) FROM t")
    number = busy.thread_id()
    running = busy.later(f"SELECT SUM({SLOW}) FROM t WHERE n <= 4000")
    seen = set()

    def is_over():
        seen.add(table.value(f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {number}") or "")
        return not running.is_alive()

    wait_for(is_over, HANGS_AFTER, "the statement's end")
    running.result()
    assert max(figures(seen, "Queried"), default=0) <= 4000, seen
    busy.close()


def test_short_statements_say_nothing_of_rows(table):
    states = states_of(table, "SELECT SUM(BENCHMARK(20000, SHA1(w))) FROM t WHERE n <= 100")
    assert not figures(states, "Queried"), states


def test_the_performance_schema_measures_stages_as_before(own_server):
    server = own_server(
        "--performance-schema=ON", "--performance-schema-consumer-events-stages-current=ON", "--performance-schema-consumer-events-stages-history-long=ON", "--performance-schema-instrument=stage/%=ON"
    )
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE t (n INT PRIMARY KEY, w VARCHAR(60)) ENGINE=PBXT")
    session.ok(f"INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_{ROWS}")
    begin = time.perf_counter()
    session.ok(f"SELECT SUM({SLOW}) FROM t")
    took = time.perf_counter() - begin
    longest = session.value(
        "SELECT MAX(timer_wait) / 1e12 FROM performance_schema.events_stages_history_long WHERE event_name = 'stage/sql/Sending data'"
    )
    assert float(longest) > took / 2, f"{longest} of {took} s"
    session.close()


def test_the_end_of_a_load_tells_how_far_it_is(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, b VARCHAR(60), c INT, KEY (a), KEY (b), KEY (c)) ENGINE=PBXT")
    states = states_of(db, "INSERT INTO t SELECT seq, seq * 7919 MOD 1000003, SHA1(seq), seq MOD 17 FROM seq_1_to_1500000")
    shares = [int(match[1]) for match in (re.search(r"^Sorting and writing the last rows \((\d+) %\)$", state) for state in states) if match]
    assert shares and shares == sorted(shares) and shares[-1] <= 100, states
    assert figures(states, "Inserted"), states
    # The server has a column of its own for statements of which it knows how far they are.
    busy = db.session()
    number = busy.thread_id()
    running = busy.later("ALTER TABLE t FORCE, ALGORITHM=COPY")
    seen = []

    def is_over():
        stage, progress = db.rows(f"SELECT STAGE, PROGRESS FROM information_schema.PROCESSLIST WHERE ID = {number}")[0]
        if stage == 2 and progress not in seen:
            seen.append(progress)
        return not running.is_alive()

    wait_for(is_over, HANGS_AFTER, "the ALTER's end")
    assert running.result().error is None
    assert len(seen) >= 3 and seen == sorted(seen), seen
    busy.close()
