"""What the tests of encrypted files share: servers with keys, a table with a secret, and who finds it.

Keys come from the server's plugin file_key_management. It is named after PBXT on purpose: the server starts key management first,
whatever the order.
"""

import pytest
from common import Problem
from sql_tools import Session

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


def plant(session, options=""):
    """A table with the secret in rows, keys and large values."""
    session.ok(f"CREATE TABLE {TABLE} (n BIGINT PRIMARY KEY, {COLUMN} VARCHAR(60), b LONGBLOB, KEY ({COLUMN})) ENGINE=PBXT {options}")
    session.ok(f"INSERT INTO {TABLE} SELECT seq, CONCAT('{SECRET}', seq), IF(seq % 100, NULL, REPEAT('{SECRET}', 2000)) FROM seq_1_to_2000")


def content(session):
    return session.rows(f"SELECT COUNT(*), SUM(CRC32({COLUMN})), SUM(CRC32(b)), SUM(LENGTH(b)) FROM {TABLE}")


def check(session):
    assert session.rows(f"CHECK TABLE {TABLE} EXTENDED")[-1][3] == "OK"


def told_in(folder, words=(SECRET, TABLE, COLUMN)):
    """Which files have a word in plain."""
    found = []
    for path in sorted(folder.iterdir()):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            continue  # it has gone meanwhile
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
