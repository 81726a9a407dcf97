"""Encrypted tables among plain ones, with pbxt_encrypt=OFF: rules EN17 to EN21 of docs/encryption.md."""

import pytest
from encryption_tools import (
    COLUMN,
    KEY,
    OTHER_KEY,
    SECRET,
    TABLE,
    Keys,
    check,
    content,
    open_session,
    plant,
    refused,
    told_in,
)
from sql_tools import wait_for

pytestmark = pytest.mark.pbxt_only

OPEN = "Zt5qAnybodyMayRead"


def plant_open(session):
    """A plain table, in rows, keys and large values."""
    session.ok("CREATE TABLE prices (n BIGINT PRIMARY KEY, v VARCHAR(60), b LONGBLOB, KEY (v)) ENGINE=PBXT COMPRESSION=NONE")
    session.ok(f"INSERT INTO prices SELECT seq, CONCAT('{OPEN}', seq), IF(seq % 100, NULL, REPEAT('{OPEN}', 2000)) FROM seq_1_to_2000")
    session.ok(f"INSERT INTO prices VALUES (0, '{OPEN} in the log', NULL)")


def encrypts_new_files(session):
    report = session.rows("SHOW ENGINE PBXT STATUS")[0][2]
    assert ("New files are encrypted" in report) != ("New files are not encrypted" in report), report
    return "New files are encrypted" in report


def open_content(session):
    return session.rows("SELECT COUNT(*), SUM(CRC32(v)), SUM(CRC32(b)), SUM(LENGTH(b)) FROM prices")


def test_an_encrypted_table_among_plain_ones_is_in_no_file(own_server):
    server = own_server(start=False)
    arguments = Keys(server).given(KEY)
    server.start(*arguments)
    session = open_session(server)
    plant_open(session)
    folder = server.engine_dir()
    assert not encrypts_new_files(session)
    assert {line.split("-")[0] for line in told_in(folder, [OPEN])} >= {"blob", "hot"}, "the search finds what is plain"
    plant(session, "ENCRYPTED=YES COMPRESSION=NONE")
    assert encrypts_new_files(session)
    for number in range(30):
        session.ok(f"INSERT INTO {TABLE} VALUES ({number + 50000}, '{SECRET} by itself {number}', REPEAT('{SECRET}', 1000))")
        session.ok(f"UPDATE prices SET v = '{OPEN} by itself {number}' WHERE n = {number + 1}")
    before = content(session), open_content(session)
    server.kill()
    assert not told_in(folder), "EN18"
    assert any(line.startswith("blob-") for line in told_in(folder, [OPEN])), "plain files stand beside encrypted ones"
    server.start(*arguments)
    session = open_session(server)
    # Rows of these are in finished segments after the next start, and leave the log while the engine is idle.
    session.ok(f"INSERT INTO {TABLE} SELECT seq + 100000, CONCAT('w', seq), NULL FROM seq_1_to_200000")
    session.ok(f"DELETE FROM {TABLE} WHERE n > 100000")
    session.ok(f"ALTER TABLE {TABLE} ADD KEY by_both ({COLUMN}, n), ALGORITHM=INPLACE")
    server.restart(*arguments)
    wait_for(lambda: any(path.name.startswith("cold-") for path in folder.iterdir()), 60, "a file of homed rows")
    session = open_session(server)
    assert (content(session), open_content(session)) == before
    check(session)
    assert "`ENCRYPTED`=YES" in session.rows(f"SHOW CREATE TABLE {TABLE}")[0][1]
    server.stop()
    assert not told_in(folder), "EN18"


def test_alter_encrypts_a_table_and_gives_it_back(own_server):
    server = own_server(start=False)
    arguments = Keys(server).given(KEY)
    server.start(*arguments)
    session = open_session(server)
    plant(session, "COMPRESSION=NONE")
    folder = server.engine_dir()
    before = content(session)
    assert told_in(folder, [SECRET])
    for wanted in ("INSTANT", "NOCOPY", "INPLACE"):
        session.fails(f"ALTER TABLE {TABLE} ENCRYPTED=YES, ALGORITHM={wanted}", (1845, 1846))
    session.ok(f"ALTER TABLE {TABLE} ENCRYPTED=YES")
    plant_open(session)
    assert content(session) == before
    check(session)
    # What it was in plain goes with its files (EN21).
    server.restart(*arguments)
    wait_for(lambda: not told_in(folder), 120, "the plain files of the table to go")
    session = open_session(server)
    assert content(session) == before
    session.ok(f"ALTER TABLE {TABLE} ADD COLUMN m INT, ALGORITHM=INSTANT")
    session.ok(f"TRUNCATE TABLE {TABLE}")
    session.ok(f"INSERT INTO {TABLE} (n, {COLUMN}) VALUES (1, '{SECRET} again')")
    server.kill()
    assert not told_in(folder), "EN20"
    server.start(*arguments)
    session = open_session(server)
    session.ok(f"ALTER TABLE {TABLE} ENCRYPTED=NO")
    assert "`ENCRYPTED`=NO" in session.rows(f"SHOW CREATE TABLE {TABLE}")[0][1]
    assert session.rows(f"SELECT n, {COLUMN} FROM {TABLE}") == [(1, f"{SECRET} again")]
    server.restart(*arguments)
    session = open_session(server)
    session.ok(f"INSERT INTO {TABLE} (n, {COLUMN}) VALUES (2, '{SECRET} at last')")
    server.kill()
    assert told_in(folder, [f"{SECRET} at last"]), "EN20"
    server.start(*arguments)
    check(open_session(server))


def test_new_files_are_plain_again_from_the_start_after_the_last_encrypted_table_went(own_server):
    server = own_server(start=False)
    arguments = Keys(server).given(KEY)
    server.start(*arguments)
    session = open_session(server)
    plant_open(session)
    session.ok("CREATE TEMPORARY TABLE passing (n INT PRIMARY KEY, v VARCHAR(60)) ENGINE=PBXT ENCRYPTED=YES")
    session.ok(f"INSERT INTO passing VALUES (1, '{SECRET} in passing')")
    folder = server.engine_dir()
    plant(session, "ENCRYPTED=YES")
    session.ok(f"DROP TABLE {TABLE}")
    words = [f"{OPEN} word {number}" for number in range(2)]
    for number, word in enumerate(words):
        session.ok(f"UPDATE prices SET v = '{word}' WHERE n = {number + 1}")
        server.kill()
        assert bool(told_in(folder, [word])) == (number == 1), "EN20"
        server.start(*arguments)
        session = open_session(server)
    assert session.rows("SELECT v FROM prices WHERE n BETWEEN 1 AND 2") == [(word,) for word in words] and not encrypts_new_files(session)
    server.stop()
    assert not told_in(folder)


def test_without_its_key_an_encrypted_table_is_refused_and_nothing_is_lost(own_server):
    server = own_server()
    refusal = "PBXT has no key to encrypt the table with: load a key management plugin that has the key of pbxt_encryption_key_id"
    keys = Keys(server)
    session = open_session(server)
    plant_open(session)
    for arguments in ([], [*keys.given(KEY), "--pbxt-encryption-key-id=7"]):
        server.restart(*arguments)
        session = open_session(server)
        assert refusal in session.fails("CREATE TABLE x (n INT) ENGINE=PBXT ENCRYPTED=YES", 1478)
        assert refusal in session.fails("ALTER TABLE prices ENCRYPTED=YES", 1478)
        assert session.rows("SHOW TABLES") == [("prices",)]
        session.ok("ALTER TABLE prices ENCRYPTED=NO")
    server.restart(*keys.given(KEY))
    session = open_session(server)
    plant(session, "ENCRYPTED=YES")
    before = content(session), open_content(session)
    server.stop()
    line = refused(server, [])
    assert "is encrypted with version 1 of key 1: there is no such key: load the key management plugin" in line, line
    line = refused(server, keys.given(OTHER_KEY))
    assert "of key 1: the key of that number and version is another one now" in line, line
    line = refused(server, [*keys.given(KEY), "--pbxt-encryption-key-id=7"])
    assert "are to be encrypted with key 7: there is no such key" in line, line
    server.start(*keys.given(KEY))
    session = open_session(server)
    assert (content(session), open_content(session)) == before
    check(session)


def test_partitions_are_encrypted_with_their_table(own_server):
    server = own_server(start=False)
    arguments = Keys(server).given(KEY)
    server.start(*arguments)
    session = open_session(server)
    columns = f"(n BIGINT PRIMARY KEY, {COLUMN} VARCHAR(60)) ENGINE=PBXT"
    session.ok(f"CREATE TABLE {TABLE} {columns} ENCRYPTED=YES PARTITION BY HASH (n) PARTITIONS 3")
    session.ok(f"INSERT INTO {TABLE} SELECT seq, CONCAT('{SECRET}', seq) FROM seq_1_to_50")
    session.ok(f"CREATE TABLE plain {columns}")
    session.ok(f"CREATE TABLE other {columns} ENCRYPTED=YES")
    session.fails(f"ALTER TABLE {TABLE} EXCHANGE PARTITION p0 WITH TABLE plain", (1731, 1736))
    session.ok(f"ALTER TABLE {TABLE} EXCHANGE PARTITION p0 WITH TABLE other")
    session.ok(f"ALTER TABLE {TABLE} ADD COLUMN m INT, ALGORITHM=INSTANT")
    folder = server.engine_dir()
    server.kill()
    assert not told_in(folder), "EN18"
    server.start(*arguments)
    session = open_session(server)
    assert session.value(f"SELECT COUNT(*) FROM {TABLE}") + session.value("SELECT COUNT(*) FROM other") == 50
    check(session)
