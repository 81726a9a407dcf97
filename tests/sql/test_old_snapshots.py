"""Snapshots that are older than they may be: ended, told so, and the transaction goes on to its end (rules T27, T28)."""

import time

import pytest
from sql_tools import Session

pytestmark = pytest.mark.pbxt_only

ROW_BYTES = 4000
BATCH = 2000  # rows of one statement: 8 MB of log
BATCHES = 14  # 112 MB at most; a server with the smallest cache keeps 8 MiB without need
ENGINE_ERROR = 1296
PATIENCE = 60


def changed_by_others(session, batch):
    session.ok(f"UPDATE t SET v = REPEAT(CHAR(65 + {batch % 26}), {ROW_BYTES}) WHERE n <= {BATCH}")


@pytest.mark.parametrize("limit", [1, 0])
def test_a_snapshot_ends_at_its_greatest_age_and_never_without_one(own_server, limit):
    server = own_server("--pbxt-cache-size=16M", f"--pbxt-max-snapshot-age={limit}")
    writer = Session(server, None, "PBXT")
    writer.ok("CREATE DATABASE d")
    writer.ok("USE d")
    writer.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR({ROW_BYTES})) CHARSET latin1 ENGINE=PBXT")
    writer.ok(f"INSERT INTO t SELECT seq, 'first' FROM seq_1_to_{BATCH}")
    reader = Session(server, "d", "PBXT")
    reader.ok("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    assert reader.rows("SELECT v FROM t WHERE n = 7") == [("first",)]

    outcome, batch, deadline = None, 0, time.monotonic() + PATIENCE
    while outcome is None and batch < BATCHES and time.monotonic() < deadline:
        changed_by_others(writer, batch)
        batch += 1
        seen = reader.run("SELECT v FROM t WHERE n = 7")
        if seen.error:
            outcome = seen
        else:
            assert seen.rows == [("first",)], "T28: until it is ended, a snapshot shows what it always showed"
            if limit:
                time.sleep(0.1)

    if limit == 0:
        assert outcome is None and batch == BATCHES, "0 means that no snapshot is too old"
        reader.ok("COMMIT")
        return
    assert outcome is not None, f"no end after {batch} batches"
    assert outcome.error[0] == ENGINE_ERROR, outcome
    warnings = " ".join(str(row) for row in reader.rows("SHOW WARNINGS"))
    assert "pbxt_max_snapshot_age" in warnings, warnings
    reader.fails("SELECT COUNT(*) FROM t", ENGINE_ERROR)
    reader.ok("COMMIT")
    last = chr(65 + (batch - 1) % 26)
    assert reader.rows("SELECT LEFT(v, 1), LENGTH(v) FROM t WHERE n = 7") == [(last, ROW_BYTES)]
