"""Encrypted files of the engine with the server's own key management: rules EN1 to EN15 of docs/encryption.md.

Keys come from the server's plugin file_key_management. It is named after PBXT on purpose: the server starts key management first,
whatever the order.
"""

import random

import pytest
import transfers
from common import Problem
from sql_tools import Session, wait_for

pytestmark = pytest.mark.pbxt_only

SECRET = "Kq7zWv4NeverOnDisk"
TABLE = "payroll_of_nobody"
COLUMN = "salary_of_nobody"
KEY = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
OTHER_KEY = "ff" * 32


class Keys:
    """The settings that give a server keys, with and without encryption of new files."""

    def __init__(self, server):
        self.server = server

    def given(self, *keys):
        """Arguments for a server with key 1, 2, ... as they stand here."""
        self.server.home.mkdir(parents=True, exist_ok=True)
        path = self.server.home / "keys.txt"
        path.write_text("".join(f"{number};{key}\n" for number, key in enumerate(keys, 1)), encoding="ascii")
        return ["--plugin-load-add=file_key_management", f"--file-key-management-filename={path}"]

    def on(self, *keys, key_id=1):
        """The same, and new files are encrypted."""
        return [*self.given(*keys), "--pbxt-encrypt=ON", f"--pbxt-encryption-key-id={key_id}"]


def open_session(server):
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE IF NOT EXISTS d CHARACTER SET utf8mb4")
    session.ok("USE d")
    return session


def plant(session):
    """A table with the secret in rows, keys and large values."""
    session.ok(f"CREATE TABLE {TABLE} (n BIGINT PRIMARY KEY, {COLUMN} VARCHAR(60), b LONGBLOB, KEY ({COLUMN})) ENGINE=PBXT")
    session.ok(f"INSERT INTO {TABLE} SELECT seq, CONCAT('{SECRET}', seq), IF(seq % 100, NULL, REPEAT('{SECRET}', 2000)) FROM seq_1_to_2000")


def content(session):
    return session.rows(f"SELECT COUNT(*), SUM(CRC32({COLUMN})), SUM(CRC32(b)), SUM(LENGTH(b)) FROM {TABLE}")


def check(session):
    assert session.rows(f"CHECK TABLE {TABLE} EXTENDED")[-1][3] == "OK"


def told_in(folder, words=(SECRET, TABLE, COLUMN)):
    """Which files have a word in plain."""
    found = []
    for path in sorted(folder.iterdir()):
        text = path.read_bytes()
        found += [f"{path.name} has {word}" for word in words if word.encode() in text]
    return found


def refused(server, arguments, serves=True):
    """Starts a server whose engine must refuse; what the error log says of it. Without the engine the server serves, unless it crashed
    before: then it wants all engines back that may have promised something."""
    mark = server.log_size()
    with pytest.raises(Problem, match="refused the plugin" if serves else None):
        server.start(*arguments)
    if serves:
        server.connect().close()
    server.stop()
    lines = [line for line in server.log_text(mark).splitlines() if "PBXT: cannot open the database" in line]
    assert len(lines) == 1, server.log_text(mark)[-2000:]
    assert KEY[:16] not in server.log_text(mark) and OTHER_KEY[:16] not in server.log_text(mark), "EN13"
    return lines[0]


@pytest.mark.parametrize("is_on", [True, False])
def test_no_file_of_an_encrypted_database_has_a_value_or_a_name(own_server, is_on):
    server = own_server(start=False)
    arguments = Keys(server).on(KEY) if is_on else Keys(server).given(KEY)
    server.start(*arguments)
    session = open_session(server)
    plant(session)
    folder = server.engine_dir()
    before = content(session)
    server.kill()
    in_the_log = told_in(folder)
    server.start(*arguments)
    session = open_session(server)
    # Rows of these are in finished segments after the next start, and leave the log while the engine is idle.
    session.ok(f"INSERT INTO {TABLE} SELECT seq + 10000, CONCAT('w', seq), NULL FROM seq_1_to_200000")
    session.ok(f"DELETE FROM {TABLE} WHERE n > 10000")
    server.restart(*arguments)
    wait_for(lambda: any(path.name.startswith("cold-") for path in folder.iterdir()), 60, "a file of homed rows")
    session = open_session(server)
    assert content(session) == before
    check(session)
    server.stop()
    at_rest = told_in(folder)
    if is_on:
        assert not in_the_log and not at_rest, (in_the_log, at_rest)
    else:
        # The net itself: without encryption the same search finds log, catalog and large values.
        kinds = {line.split("-")[0] for line in in_the_log + at_rest if SECRET in line}
        assert {"hot", "blob"} <= kinds and any(TABLE in line for line in in_the_log + at_rest), (in_the_log, at_rest)


def test_without_its_key_the_engine_refuses_in_one_sentence_and_nothing_is_lost(own_server):
    server = own_server(start=False)
    keys = Keys(server)
    server.start(*keys.on(KEY))
    session = open_session(server)
    plant(session)
    before = content(session)
    server.kill()
    for has_crashed in (True, False):
        line = refused(server, [], serves=not has_crashed)
        assert "is encrypted with version 1 of key 1: there is no such key: load the key management plugin" in line, line
        line = refused(server, keys.on(OTHER_KEY), serves=not has_crashed)
        assert "of key 1: the key of that number and version is another one now" in line, line
        line = refused(server, keys.on(KEY, key_id=7), serves=not has_crashed)
        assert "are to be encrypted with key 7: there is no such key" in line, line
        server.start(*keys.on(KEY))
        session = open_session(server)
        assert content(session) == before
        check(session)
        server.stop()
    # A second key: new files have it, old ones keep theirs, and both are needed.
    server.start(*keys.on(KEY, OTHER_KEY, key_id=2))
    session = open_session(server)
    session.ok(f"INSERT INTO {TABLE} VALUES (1000000, 'two', REPEAT('{SECRET}', 2000))")
    after = content(session)
    server.stop()
    line = refused(server, keys.on(KEY))
    assert "of key 2: there is no such key" in line, line
    server.start(*keys.given(KEY, OTHER_KEY))
    session = open_session(server)
    assert content(session) == after
    check(session)


def test_switched_on_and_off_old_files_stay_readable(own_server):
    server = own_server()
    session = open_session(server)
    assert session.rows("SHOW VARIABLES LIKE 'pbxt_encrypt%'") == [("pbxt_encrypt", "OFF"), ("pbxt_encryption_key_id", "1")]
    plant(session)
    folder = server.engine_dir()
    keys = Keys(server)
    for number, arguments in enumerate([keys.on(KEY), keys.given(KEY), keys.on(KEY)]):
        before = content(session)
        server.restart(*arguments)
        session = open_session(server)
        assert content(session) == before
        word = f"{SECRET}Round{number}"
        session.ok(f"INSERT INTO {TABLE} SELECT seq + {10_000 * (number + 1)}, CONCAT('{word}', seq), NULL FROM seq_1_to_1000")
        before = content(session)
        server.kill()
        assert bool(told_in(folder, [word])) == ("--pbxt-encrypt=ON" not in arguments), "EN3"
        server.start(*arguments)
        session = open_session(server)
        assert content(session) == before
        check(session)
    server.stop()
    assert "there is no such key" in refused(server, [])


def test_kills_lose_nothing_of_an_encrypted_database(own_server, request):
    seed = request.config.getoption("--random-seed") or random.SystemRandom().randrange(1 << 30)
    server = own_server(start=False)
    arguments = Keys(server).on(KEY)
    server.start(*arguments)
    setup = Session(server, None, "PBXT")
    setup.ok("CREATE DATABASE bank")
    setup.ok("USE bank")
    transfers.create_tables(setup.connection, "PBXT")
    setup.close()
    crowd = transfers.Crowd(server, "bank", 4, seed)
    for number in range(2):
        before = crowd.commits()
        crowd.start()
        wait_for(lambda before=before: crowd.commits() > before + 200, 60, "200 commits")
        server.kill()
        crowd.finish()
        server.start(*arguments)
        connection = server.connect("bank")
        complaints = transfers.verify(connection, crowd)
        connection.close()
        assert not complaints, f"round {number}, --random-seed {seed}:\n" + "\n".join(complaints)


def test_the_table_option_must_say_what_the_setting_says(own_server):
    server = own_server(start=False)
    keys = Keys(server)
    for arguments, right, wrong in ((keys.given(KEY), "NO", "YES"), (keys.on(KEY), "YES", "NO")):
        server.start(*arguments)
        session = open_session(server)
        text = session.fails(f"CREATE TABLE x (n INT) ENGINE=PBXT ENCRYPTED={wrong}", 1478)
        assert f"PBXT encrypts the files of all tables or of none: ENCRYPTED={wrong} contradicts pbxt_encrypt=" in text, text
        session.ok(f"CREATE TABLE x (n INT) ENGINE=PBXT ENCRYPTED={right}")
        session.ok("INSERT INTO x VALUES (1)")
        session.fails(f"ALTER TABLE x ENCRYPTED={wrong}", 1478)
        session.ok("ALTER TABLE x ADD COLUMN m INT")
        session.ok("ALTER TABLE x ENCRYPTED=DEFAULT")
        assert session.rows("SELECT * FROM x") == [(1, None)]
        session.ok("DROP TABLE x")
        session.ok(f"CREATE TABLE kept{right} (n INT) ENGINE=PBXT ENCRYPTED={right}")
        server.stop()
    # The setting has changed since: the table is read and written, and an ALTER is asked to say what holds now.
    server.start(*keys.on(KEY))
    session = open_session(server)
    session.ok("INSERT INTO keptNO VALUES (1)")
    session.fails("ALTER TABLE keptNO ADD COLUMN m INT", 1478)
    session.ok("ALTER TABLE keptNO ADD COLUMN m INT, ENCRYPTED=DEFAULT")
    assert session.rows("SELECT * FROM keptNO") == [(1, None)]
