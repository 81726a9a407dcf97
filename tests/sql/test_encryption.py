"""Encrypted files of the engine with the server's own key management: rules EN1 to EN15 of docs/encryption.md."""

import random

import pytest
import transfers
from encryption_tools import KEY, OTHER_KEY, SECRET, TABLE, Keys, check, content, open_session, plant, refused, told_in
from sql_tools import Session, wait_for

pytestmark = pytest.mark.pbxt_only


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


def test_what_the_table_option_may_say(own_server):
    server = own_server(start=False)
    keys = Keys(server)
    server.start(*keys.on(KEY))
    session = open_session(server)
    refusal = "PBXT encrypts all tables while pbxt_encrypt is ON: ENCRYPTED=NO contradicts it"
    assert refusal in session.fails("CREATE TABLE x (n INT) ENGINE=PBXT ENCRYPTED=NO", 1478)
    session.ok("CREATE TABLE x (n INT) ENGINE=PBXT ENCRYPTED=YES")
    session.ok("INSERT INTO x VALUES (1)")
    assert refusal in session.fails("ALTER TABLE x ENCRYPTED=NO", 1478)
    session.ok("ALTER TABLE x ADD COLUMN m INT, ALGORITHM=INSTANT")
    session.ok("ALTER TABLE x ENCRYPTED=DEFAULT")
    assert session.rows("SELECT * FROM x") == [(1, None)]
    session.ok("DROP TABLE x")
    session.ok("CREATE TABLE kept (n INT PRIMARY KEY, v VARCHAR(60)) ENGINE=PBXT ENCRYPTED=YES")
    folder = server.engine_dir()
    server.stop()
    # The setting has changed since: the table keeps what it was promised (EN17).
    server.start(*keys.given(KEY))
    session = open_session(server)
    session.ok(f"INSERT INTO kept VALUES (1, '{SECRET}')")
    server.kill()
    assert not told_in(folder, [SECRET]), "EN20"
    server.start(*keys.given(KEY))
    session = open_session(server)
    assert session.rows("SELECT * FROM kept") == [(1, SECRET)]
    session.ok("CREATE TABLE given (n INT) ENGINE=PBXT ENCRYPTED=NO")
    server.stop()
    # And the other way round: it is read and written, and an ALTER is asked to say what holds now.
    server.start(*keys.on(KEY))
    session = open_session(server)
    session.ok("INSERT INTO given VALUES (1)")
    session.fails("ALTER TABLE given ADD COLUMN m INT", 1478)
    session.ok("ALTER TABLE given ADD COLUMN m INT, ENCRYPTED=DEFAULT")
    assert session.rows("SELECT * FROM given") == [(1, None)]
