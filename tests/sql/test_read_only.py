"""What a server says of a database that takes no more writes: rule D9 of docs/durability.md, in the error log and in SHOW STATUS.

A disk that fails: a process may write no file beyond RLIMIT_FSIZE, and gets EFBIG for such a write if it ignores the signal that comes with
it. So of a running server the log of the engine cannot go on, while its short error log can.
"""

import contextlib
import os
import resource

import pytest
from sql_tools import Session

pytestmark = pytest.mark.pbxt_only

LIMIT = 256 << 10
SENTENCE = "PBXT: the database is read-only since a disk failure (cannot write '"


def read_only(session):
    return session.rows("SHOW GLOBAL STATUS LIKE 'Pbxt_read_only'")[0][1]


def limit(server, length):
    resource.prlimit(server.pid(), resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))


@contextlib.contextmanager
def failing_disk(server):
    """Writes behind byte LIMIT of a file fail."""
    limit(server, LIMIT)
    try:
        yield
    finally:
        limit(server, resource.RLIM_INFINITY)


def test_a_disk_that_fails_is_told_in_the_error_log_and_in_a_status_variable(own_server, monkeypatch):
    under = os.environ.get("PBXT_SERVER_UNDER", "")
    monkeypatch.setenv("PBXT_SERVER_UNDER", f"env --ignore-signal=XFSZ {under}")
    # No other engine may fail at the limit.
    server = own_server("--skip-innodb", "--default-storage-engine=PBXT")
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(1000)) ENGINE=PBXT")
    insert = "INSERT INTO d.t (v) SELECT REPEAT('r', 1000) FROM seq_1_to_40"
    for _ in range(20):
        session.ok(insert)
    assert read_only(session) == "0" and server.log_size() < LIMIT // 2
    mark = server.log_size()
    with failing_disk(server):
        assert session.run(insert).error, f"the log lies behind byte {LIMIT} of its file"
        assert "read-only since a disk failure" in session.fails(insert, 1296)
        assert session.value("SELECT COUNT(*) FROM d.t WHERE v LIKE 'r%'") >= 800
    assert read_only(session) == "1"
    told = [line for line in server.log_text(mark).splitlines() if "PBXT" in line]
    assert len(told) == 1 and SENTENCE in told[0] and "[ERROR]" in told[0], told
    assert "READ-ONLY" in session.rows("SHOW ENGINE PBXT STATUS")[0][2]
    assert session.run(insert).error, "D9: nothing is tried again"
    server.kill()
    server.start()
    session = Session(server, "d", "PBXT")
    assert read_only(session) == "0"
    assert session.value("SELECT COUNT(*) FROM d.t") in (800, 840)
    session.ok(insert)
    session.close()
    server.stop()
