"""What others may see: files of the engine, its error log, its lists. docs/security.md says what is promised; rules TR10 to TR13.

A value that occurs nowhere else is planted in rows, keys and large values; then everything goes wrong that can, and the error log must
not have it, in letters or in hexadecimal.
"""

import stat
from pathlib import Path

import pytest
from common import Problem
from sql_tools import Session, wait_for
from test_bad_input import files, find, flip

pytestmark = pytest.mark.pbxt_only

SECRET = "Kq7zWv4NeverLogMe"
NUMBER = 7260154398217
BLOB_BYTES = 30_000


def open_session(server):
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE IF NOT EXISTS d CHARACTER SET utf8mb4")
    session.ok("USE d")
    return session


def plant(session):
    """Tables with the secret in every kind of column and key."""
    session.ok(
        "CREATE TABLE t (n BIGINT PRIMARY KEY, u VARCHAR(60) UNIQUE, v VARCHAR(60) CHECK (v <> 'never'), b LONGBLOB, KEY (v)) ENGINE=PBXT"
    )
    session.ok("CREATE TABLE child (n BIGINT PRIMARY KEY, p VARCHAR(60), CONSTRAINT c FOREIGN KEY (p) REFERENCES t (u)) ENGINE=PBXT")
    for add in range(4):
        session.ok(
            f"INSERT INTO t VALUES ({NUMBER + add}, '{SECRET}{add}', '{SECRET}', REPEAT('{SECRET}', {BLOB_BYTES // len(SECRET)}))"
        )
    session.ok("INSERT INTO t SELECT seq, CONCAT('u', seq), 'v', NULL FROM seq_1_to_2000")
    session.ok(f"INSERT INTO child VALUES (1, '{SECRET}1')")


def let_rows_leave_the_log(server, folder):
    """After an opening all segments before it are finished, and an idle engine homes the rows in them. Homed rows are read from the log
    again until a checkpoint names them; those of a load, which are in files as well, never were in it."""
    open_session(server).ok("INSERT INTO t SELECT seq + 10000, CONCAT('w', seq), 'v', NULL FROM seq_1_to_400000")
    server.restart()
    wait_for(lambda: any(path.name.startswith("cold-") for path in folder.iterdir()), 60, "a file of homed rows")


def assert_silent(server, start=0):
    """The error log has no form of the secret."""
    log = server.log_text(start)
    image = SECRET.encode().hex()
    for form in (SECRET, SECRET.upper(), image, image.upper(), str(NUMBER), f"{NUMBER:x}"):
        lines = [line for line in log.splitlines() if form.lower() in line.lower()]
        assert not lines, f"the error log tells {form}:\n" + "\n".join(lines[:3])


def provoke_statements(server):
    """Every error that names a row, a key or a value to its client."""
    session = open_session(server)
    assert SECRET in session.fails(f"INSERT INTO t VALUES (1000001, '{SECRET}1', 'x', NULL)", 1062)
    assert str(NUMBER) in session.fails(f"INSERT INTO t (n) VALUES ({NUMBER})", 1062)
    session.ok("CREATE TABLE twice (v VARCHAR(60)) ENGINE=PBXT AS SELECT v FROM t")
    session.fails("ALTER TABLE twice ADD UNIQUE KEY (v)", 1062)
    session.fails(f"INSERT INTO child VALUES (2, '{SECRET}, nobody')", 1452)
    session.fails(f"DELETE FROM t WHERE u = '{SECRET}1'", 1451)
    session.fails(f"UPDATE t SET u = '{SECRET}, another' WHERE u = '{SECRET}1'", 1451)
    session.fails("UPDATE t SET v = 'never' WHERE n = 1", 4025)
    session.fails(f"INSERT INTO t (n, v) VALUES (1000002, REPEAT('{SECRET}', 20))", 1406)


def provoke_conflicts(server):
    """A changed record, a lock that was waited for too long, a deadlock."""
    one, two = open_session(server), open_session(server)
    for session in (one, two):
        session.ok("SET pbxt_lock_wait_timeout = 1")
    one.ok("BEGIN")
    one.rows("SELECT COUNT(*) FROM t")
    two.ok(f"UPDATE t SET v = CONCAT(v, '2') WHERE u = '{SECRET}2'")
    one.fails(f"UPDATE t SET v = CONCAT(v, '3') WHERE u = '{SECRET}2'", 1020)
    one.ok("ROLLBACK")
    one.ok("BEGIN")
    one.ok(f"UPDATE t SET v = CONCAT(v, '1') WHERE u = '{SECRET}3'")
    two.ok("BEGIN")
    two.fails(f"SELECT * FROM t WHERE u = '{SECRET}3' FOR UPDATE", 1205)
    for session in (one, two):
        session.ok("SET pbxt_lock_wait_timeout = 20")
    two.ok(f"UPDATE t SET v = CONCAT(v, '1') WHERE u = '{SECRET}0'")
    waiting = one.later(f"SELECT * FROM t WHERE u = '{SECRET}0' FOR UPDATE")
    assert waiting.waits()
    two.fails(f"SELECT * FROM t WHERE u = '{SECRET}3' FOR UPDATE", 1213)
    assert waiting.result().error is None
    for session in (one, two):
        session.ok("ROLLBACK")


def test_no_error_brings_a_value_into_the_error_log(own_server):
    server = own_server()
    session = open_session(server)
    plant(session)
    provoke_statements(server)
    provoke_conflicts(server)
    assert_silent(server)
    session.ok("XA START 'x'")
    session.ok(f"UPDATE t SET v = '{SECRET}, promised' WHERE n = {NUMBER}")
    session.ok("XA END 'x'")
    session.ok("XA PREPARE 'x'")
    other = open_session(server)
    other.ok("BEGIN")
    other.ok(f"DELETE FROM t WHERE n = {NUMBER + 2}")
    server.kill()
    server.start()
    session = open_session(server)
    assert session.rows("CHECK TABLE t, child EXTENDED")[-1][3] == "OK"
    session.ok("XA ROLLBACK 'x'")
    server.stop()
    assert_silent(server)


def test_the_net_itself_would_notice(own_server):
    server = own_server("--pbxt-print-all-deadlocks=ON")
    plant(open_session(server))
    provoke_conflicts(server)
    with pytest.raises(AssertionError, match="the error log tells"):
        assert_silent(server)  # this setting prints statements, as it says


@pytest.mark.parametrize("kind", ["hot-", "blob-", "cold-", "meta-"])
def test_what_is_said_of_damage_has_no_byte_of_a_row(own_server, kind):
    server = own_server()
    plant(open_session(server))
    folder = server.engine_dir()
    if kind == "hot-":
        server.kill()  # the log still has the rows, and recovery reads them
    else:
        let_rows_leave_the_log(server, folder)
        server.stop()
    damaged = files(folder, kind)
    if kind in ("hot-", "blob-"):
        path, place = find(damaged, SECRET.encode())
        flip(path, place + 3)
    else:
        # In every page: what a merge has superseded is not read.
        for path in damaged:
            for place in range(4096 + 20, path.stat().st_size, 4096):
                flip(path, place)
    mark = server.log_size()
    said = ""
    try:
        server.start()
        session = open_session(server)
        for statement in ("SELECT SUM(LENGTH(b)), SUM(CRC32(b)), MAX(v) FROM t", "SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v > ''"):
            said += str(session.run(statement).error or "")
        said += str(session.run("CHECK TABLE t, child EXTENDED"))
    except Problem:
        pass  # the server does not start without its engine's tables, or the engine refused; the log says why
    server.stop()
    said += server.log_text(mark)
    assert "is damaged at offset" in said
    assert_silent(server, mark)


def test_no_file_is_open_to_others(own_server):
    server = own_server()
    session = open_session(server)
    plant(session)
    session.ok("CREATE TEMPORARY TABLE tmp (n INT PRIMARY KEY, v LONGBLOB) ENGINE=PBXT")
    session.ok("INSERT INTO tmp SELECT seq, REPEAT('t', 20000) FROM seq_1_to_10")
    folder = server.engine_dir()
    let_rows_leave_the_log(server, folder)
    status = Path(f"/proc/{server.pid()}/status").read_text(encoding="ascii")
    umask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), 8)
    paths = [folder, *folder.iterdir()]
    for kind in ("hot-", "blob-", "cold-", "meta-", "pbxt.manifest"):
        assert any(path.name.startswith(kind) for path in paths), f"no file {kind}* among {[path.name for path in paths]}"
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & umask == 0, f"{path.name} has mode {mode:o}, the server's umask is {umask:o}"
        if path != folder:  # a folder that is made is closed to others too: `a_new_directory_is_closed_to_others`
            assert mode & stat.S_IRWXO == 0, f"{path.name} has mode {mode:o}: others may use it"


def test_lists_of_transactions_and_locks_and_the_report_need_the_privilege_process(own_server):
    server = own_server()
    admin = open_session(server)
    plant(admin)
    admin.ok("CREATE USER plain@localhost")
    admin.ok("GRANT SELECT, INSERT, UPDATE ON d.* TO plain@localhost")
    admin.ok("BEGIN")
    admin.ok(f"UPDATE t SET u = '{SECRET}, new' WHERE n = {NUMBER}")
    plain = Session(server, "d", "PBXT", user="plain")
    assert admin.value("SELECT COUNT(*) FROM information_schema.PBXT_TRX") > 0
    for table in ("PBXT_TRX", "PBXT_LOCKS", "PBXT_LOCK_WAITS"):
        answer = plain.run(f"SELECT * FROM information_schema.{table}")
        assert not answer.rows, f"{table} shows a user without PROCESS: {answer.rows}"
    plain.fails("SHOW ENGINE PBXT STATUS", 1227)
    admin.ok("ROLLBACK")
