"""The scrubber in a server: damage at rest is found without anybody reading it, told once in the error log, and harms nobody else.

Rules SC1 to SC8 of docs/storage.md. Files are damaged beneath a running server, as a medium would.
"""

import threading

import pytest
from sql_tools import Session, wait_for
from test_bad_input import ROWS, files, find, flip

pytestmark = pytest.mark.pbxt_only


def open_session(server):
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE IF NOT EXISTS d")
    session.ok("USE d")
    return session


def figure(session, name):
    return int(session.rows(f"SHOW GLOBAL STATUS LIKE 'Pbxt_{name}'")[0][1])


def settle(session):
    wait_for(lambda: figure(session, "background_jobs_now") == 0, 120, "the end of background work")


def scrub(session):
    """A pass over all files."""
    before = figure(session, "scrub_passes")
    session.ok("SET GLOBAL pbxt_scrub_now = ON")
    wait_for(lambda: figure(session, "scrub_passes") > before, 120, "the end of a pass")


def told(server, mark):
    """Lines of the error log about damage."""
    return [line for line in server.log_text(mark).splitlines() if "scrub: " in line]


def test_damage_at_rest_is_found_and_told_once(own_server):
    server = own_server()
    session = open_session(server)
    session.ok("CREATE TABLE s (n INT PRIMARY KEY, v CHAR(200) CHARACTER SET latin1, b LONGBLOB) ENGINE=PBXT COMPRESSION=NONE")
    # So many bytes that they are loaded beside the log.
    session.ok(f"INSERT INTO s SELECT seq, CONCAT(SHA1(seq), SHA2(seq, 512)), NULL FROM seq_1_to_{ROWS * 20}")
    session.ok(
        "INSERT INTO s SELECT seq + 100000, 'large', CONCAT('BLOB-', LPAD(seq, 6, '0'), REPEAT('#', 40000)) FROM seq_1_to_10"
    )
    settle(session)
    mark = server.log_size()
    scrub(session)
    assert not told(server, mark) and figure(session, "scrub_damage_found") == 0
    folder = server.engine_dir()
    sizes = [path.stat().st_size for kind in ("cold-", "meta-", "blob-") for path in files(folder, kind)]
    read = figure(session, "scrub_bytes_read")
    assert read >= sum(sizes) * 9 // 10, f"{read} bytes read of {sizes}"

    rows = max(files(folder, "cold-"), key=lambda path: path.stat().st_size)
    flip(rows, rows.stat().st_size // 2)
    values, place = find(files(folder, "blob-"), b"BLOB-000007")
    flip(values, place + 5000)
    scrub(session)
    lines = told(server, mark)
    assert len(lines) == 3 and all("[ERROR]" in line for line in lines), lines
    assert any(rows.name in line and "damage in rows " in line and "of table './d/s'" in line for line in lines), lines
    assert any(values.name in line and "a large value of row " in line and "of table './d/s'" in line for line in lines), lines
    assert "2 damaged places found" in lines[-1], lines
    assert not any("BLOB-0" in line or "####" in line for line in lines), "TR13"
    assert figure(session, "scrub_damage_found") == 2

    mark = server.log_size()
    scrub(session)
    lines = told(server, mark)
    assert len(lines) == 1 and "are not told again" in lines[0], lines
    assert figure(session, "scrub_damage_found") == 2
    assert session.value("SELECT @@GLOBAL.pbxt_scrub_now") == 0, "an order, no state"
    report = session.rows("SHOW ENGINE PBXT STATUS")[0][2]
    assert "----- scrubbing" in report and "2 places found damaged" in report, report
    session.ok("INSERT INTO s VALUES (-1, 'the database goes on', NULL)")
    assert session.value("SELECT v FROM s WHERE n = -1") == "the database goes on"


def test_a_busy_server_is_sound(own_server):
    server = own_server("--pbxt-cache-size=32M")
    session = open_session(server)
    is_over = threading.Event()

    def work(number):
        own = open_session(server)
        turn = 0
        while not is_over.is_set():
            own.ok(f"CREATE OR REPLACE TABLE w{number} (n INT PRIMARY KEY, v VARCHAR(300), b BLOB, KEY (v)) ENGINE=PBXT")
            own.ok(f"INSERT INTO w{number} SELECT seq, SHA2(seq + {turn}, 512), IF(seq % 50, NULL, REPEAT('b', 20000)) FROM seq_1_to_5000")
            own.ok("BEGIN")
            own.ok(f"UPDATE w{number} SET v = SHA2(n, 512), b = IF(b IS NULL, NULL, REPEAT('c', 15000)) WHERE n % 3 = 0")
            own.ok("COMMIT" if turn % 2 else "ROLLBACK")
            own.ok(f"DELETE FROM w{number} WHERE n % 5 = 0")
            turn += 1
        own.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            scrub(session)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)
    assert not told(server, 0), told(server, 0)
    assert figure(session, "scrub_damage_found") == 0


def test_settings_of_the_scrubber(own_server):
    server = own_server("--pbxt-scrub-hours=0")
    session = open_session(server)
    assert session.value("SELECT @@GLOBAL.pbxt_scrub_hours") == 0
    assert figure(session, "scrub_passes") == 0
    session.ok("SET GLOBAL pbxt_scrub_hours = 1000000")
    assert session.value("SELECT @@GLOBAL.pbxt_scrub_hours") == 365 * 24, "the greatest there is"
    session.ok("SET GLOBAL pbxt_scrub_hours = DEFAULT")
    assert session.value("SELECT @@GLOBAL.pbxt_scrub_hours") == 7 * 24
    session.fails("SET SESSION pbxt_scrub_hours = 1", 1229)
    session.ok("SET GLOBAL pbxt_scrub_now = OFF")
    assert figure(session, "scrub_progress_now") in range(101)
