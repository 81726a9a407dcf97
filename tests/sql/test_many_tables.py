"""Many tables in one database: what they cost in memory, file handles and time, and that all of them are there afterwards.

With --long there are ten thousand.
"""

import os
import time

import pytest
from live_server import execute, rows_of, value_of

pytestmark = pytest.mark.pbxt_only

CREATE = "CREATE TABLE d.t{number} (n INT PRIMARY KEY, v INT, w VARCHAR(40), KEY (v)) ENGINE=PBXT"


def handles_of(server):
    """Files that the server has open in the engine's directory."""
    folder, count = str(server.engine_dir()), 0
    for entry in os.scandir(f"/proc/{server.pid()}/fd"):
        try:
            count += os.readlink(entry.path).startswith(folder)
        except OSError:
            pass  # closed meanwhile
    return count


def settle(connection):
    """Waits until background work is over."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if value_of(connection, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'pbxt_background_jobs_now'") == "0":
            return
        time.sleep(0.2)
    pytest.fail("background work went on for two minutes")


def test_many_tables_are_cheap_and_all_there_after_a_kill(own_server, request):
    count = 10_000 if request.config.getoption("--long") else 400
    server = own_server("--pbxt-cache-size=64M", "--table-open-cache=400", "--table-definition-cache=400", "--open-files-limit=5000")
    connection = server.connect()
    execute(connection, "CREATE DATABASE d")
    execute(connection, "CREATE TABLE d.first (n INT PRIMARY KEY) ENGINE=PBXT")
    before = server.resident_bytes()
    for number in range(count):
        execute(connection, CREATE.format(number=number))
        execute(connection, f"INSERT INTO d.t{number} VALUES (1, {number}, 'row of {number}'), (2, -{number}, NULL)")
    settle(connection)
    # Entries of small indexes share files (rule S20 and its kin), so there are far fewer files than tables.
    assert handles_of(server) < 200, f"{handles_of(server)} files are open"
    assert len(list(server.engine_dir().glob("*.seg"))) < 200
    per_table = (server.resident_bytes() - before) / count
    assert per_table < 80_000, f"{per_table:.0f} bytes of memory a table"
    assert value_of(connection, "SELECT COUNT(*) FROM information_schema.PBXT_TABLES WHERE TABLE_SCHEMA = 'd'") == count + 1
    server.kill()
    took = server.start()
    assert took < 20, f"{took:.1f} s to open {count} tables"
    connection = server.connect()
    for number in range(0, count, 7):
        assert rows_of(connection, f"SELECT * FROM d.t{number} ORDER BY n") == [(1, number, f"row of {number}"), (2, -number, None)]
        assert rows_of(connection, f"SELECT n FROM d.t{number} WHERE v = {number} ORDER BY n")[0] == (1,)
    execute(connection, "DROP DATABASE d")
    settle(connection)
    assert value_of(connection, "SELECT COUNT(*) FROM information_schema.PBXT_TABLES") == 0
    assert value_of(connection, "SELECT COUNT(*) FROM information_schema.PBXT_SEGMENTS WHERE STATE = 'needed' AND HOLDS IN ('rows', 'indexes')") == 0
    connection.close()
