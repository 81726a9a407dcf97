"""Tables whose definition files are missing: told of at the start, and known again with pbxt_restore_definitions.

The ordinary case is the engine's directory, copied alone from another server.
"""

import shutil

import pytest
from live_server import execute, rows_of
from sql_tools import Session

pytestmark = pytest.mark.pbxt_only

TABLES = ("parent", "child", "`a-b`", "altered", "history", "numbers")
RESTORE = "--pbxt-restore-definitions=ON"


def make_tables(connection):
    """Tables of many kinds, and definitions that changed after CREATE."""
    for statement in (
        "CREATE DATABASE d",
        "CREATE DATABASE `e-e`",
        "USE d",
        "CREATE TABLE parent (id INT PRIMARY KEY, w VARCHAR(30) NOT NULL DEFAULT 'x', UNIQUE KEY (w)) ENGINE=PBXT CONFLICT_MODE=WAIT COMMENT='first'",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT to_parent FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE) ENGINE=PBXT",
        "CREATE TABLE `a-b` (n INT, g INT AS (n + 1) STORED, CHECK (n > 0)) ENGINE=PBXT",
        "CREATE TABLE altered (n INT PRIMARY KEY, old INT) ENGINE=PBXT",
        "INSERT INTO altered SELECT seq, seq FROM seq_1_to_100",
        "ALTER TABLE altered ADD COLUMN late VARCHAR(10) DEFAULT 'late' AFTER n, RENAME COLUMN old TO newer, ALGORITHM=INSTANT",
        "ALTER TABLE altered ADD INDEX by_newer (newer), ALGORITHM=NOCOPY",
        "CREATE TABLE history (n INT) ENGINE=PBXT WITH SYSTEM VERSIONING",
        "CREATE SEQUENCE numbers ENGINE=PBXT",
        "CREATE TABLE `e-e`.t (n INT PRIMARY KEY) ENGINE=PBXT",
        "INSERT INTO parent SELECT seq, CONCAT('w', seq) FROM seq_1_to_50",
        "INSERT INTO child SELECT seq, seq FROM seq_1_to_50",
        "INSERT INTO `a-b` (n) SELECT seq FROM seq_1_to_50",
        "INSERT INTO history VALUES (1)",
        "UPDATE history SET n = 2",
        "DO NEXTVAL(numbers)",
        "INSERT INTO `e-e`.t VALUES (1)",
        "RENAME TABLE parent TO elder",
        "RENAME TABLE elder TO parent",
    ):
        execute(connection, statement)


def described(connection):
    """What the server says of each table, and its rows."""
    seen = {}
    for table in TABLES:
        definition = rows_of(connection, f"SHOW CREATE TABLE d.{table}")[0][1]
        rows = None if table == "numbers" else sorted(rows_of(connection, f"SELECT * FROM d.{table}"))
        seen[table] = definition, rows
    return seen


def test_tables_of_a_copied_directory_are_known_again(own_server):
    origin, other = own_server(), own_server()
    connection = origin.connect()
    make_tables(connection)
    wanted = described(connection)
    connection.close()
    folder = origin.engine_dir()
    origin.stop()
    target = other.engine_dir()
    other.stop()
    shutil.rmtree(target)
    shutil.copytree(folder, target)

    mark = other.log_size()
    other.start()
    said = other.log_text(mark)
    assert "7 tables have no definition file" in said and "./d/altered" in said and "pbxt_restore_definitions" in said, said
    other.stop()

    mark = other.log_size()
    other.start(RESTORE)
    assert "wrote the definition files of 7 tables" in other.log_text(mark)
    connection = other.connect()
    assert described(connection) == wanted
    assert rows_of(connection, "SELECT * FROM `e-e`.t") == [(1,)]
    assert rows_of(connection, "SELECT COUNT(*) FROM d.history FOR SYSTEM_TIME ALL") == [(2,)]
    assert rows_of(connection, "SELECT NEXTVAL(d.numbers)")[0][0] > 1
    for table in TABLES[:-1]:  # sequences cannot be checked
        answer = rows_of(connection, f"CHECK TABLE d.{table} EXTENDED")
        assert answer[-1][-1] == "OK", answer
    execute(connection, "DELETE FROM d.parent WHERE id <= 10")
    assert rows_of(connection, "SELECT COUNT(*) FROM d.child") == [(40,)]
    execute(connection, "ALTER TABLE d.altered DROP COLUMN late, ALGORITHM=INSTANT")
    connection.close()
    mark = other.log_size()
    other.restart()
    assert "definition file" not in other.log_text(mark)


def test_a_definition_file_that_is_there_is_not_touched(own_server):
    server = own_server()
    connection = server.connect()
    make_tables(connection)
    connection.close()
    server.stop()
    missing, kept = server.data / "d" / "child.frm", server.data / "d" / "parent.frm"
    of_child = missing.read_bytes()
    missing.unlink()
    before = kept.stat()
    server.start(RESTORE)
    assert missing.read_bytes() == of_child
    after = kept.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not list(server.data.glob("*/*.frm.new"))


def test_a_definition_file_that_does_not_fit_is_kept_and_told(own_server):
    server = own_server()
    connection = server.connect()
    for statement in (
        "CREATE DATABASE d",
        "CREATE TABLE d.t (n INT PRIMARY KEY, v VARCHAR(10)) ENGINE=PBXT",
        "INSERT INTO d.t VALUES (1, 'one')",
        "CREATE TABLE d.columns (n INT PRIMARY KEY, v BIGINT) ENGINE=PBXT",
        "CREATE TABLE d.indexes (n INT PRIMARY KEY, v VARCHAR(10), KEY (v)) ENGINE=PBXT",
    ):
        execute(connection, statement)
    connection.close()
    file = server.data / "d" / "t.frm"
    fitting = file.read_bytes()
    for other in ("columns", "indexes"):
        server.stop()
        wrong = (server.data / "d" / f"{other}.frm").read_bytes()
        file.write_bytes(wrong)
        mark = server.log_size()
        server.start()
        session = Session(server, None, "PBXT")
        for statement in ("SELECT * FROM d.t", "INSERT INTO d.t (n) VALUES (2)", "FLUSH TABLES", "SELECT n FROM d.t"):
            error = session.run(statement).error
            if statement != "FLUSH TABLES":
                assert error and error[0] == 1296 and "./d/t" in error[1] and other in error[1], (statement, error)
            assert file.exists() and file.read_bytes() == wrong, "the server has not removed it"
        told = [line for line in server.log_text(mark).splitlines() if "./d/t.frm" in line]
        assert len(told) == 1 and "pbxt_restore_definitions" in told[0] and "[ERROR] PBXT" in told[0], told
        session.close()
    file.write_bytes(fitting)
    session = Session(server, None, "PBXT")
    session.ok("FLUSH TABLES")
    assert session.rows("SELECT * FROM d.t") == [(1, "one")]
    session.close()
    server.stop()
    file.unlink()
    server.start(RESTORE)
    assert file.read_bytes() == fitting, "what the sentence says helps"


def test_a_partitioned_table_without_its_files_is_told(own_server):
    server = own_server()
    connection = server.connect()
    execute(connection, "CREATE DATABASE d")
    execute(connection, "CREATE TABLE d.p (n INT PRIMARY KEY) ENGINE=PBXT PARTITION BY HASH (n) PARTITIONS 4")
    connection.close()
    server.stop()
    for path in (server.data / "d").glob("p.*"):
        path.unlink()
    mark = server.log_size()
    server.start(RESTORE)
    said = server.log_text(mark)
    assert said.count("the definition file of ./d/p cannot be written: it is partitioned") == 1, said


def test_a_folder_that_cannot_be_written_is_told(own_server):
    server = own_server()
    connection = server.connect()
    execute(connection, "CREATE DATABASE d")
    execute(connection, "CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=PBXT")
    connection.close()
    server.stop()
    shutil.rmtree(server.data / "d")
    (server.data / "d").write_text("in the way", encoding="ascii")
    mark = server.log_size()
    server.start(RESTORE)
    said = server.log_text(mark)
    assert "the definition file of ./d/t cannot be written: Not a directory" in said, said
