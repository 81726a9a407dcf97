"""Statements that bring many rows: they go around the log, and nobody may notice but by the clock.

The server has a small cache, so that these few rows fill many buffers.
"""

import shutil

import live_server
import pytest
from conftest import SMALL

ROWS = 60_000
TABLE = "(n INT PRIMARY KEY, u INT UNIQUE, c VARCHAR(40), d DATETIME, KEY c (c), KEY d (d, n)) ENGINE={engine}"
MANY = f"SELECT seq, seq * 2, CONCAT('some name ', seq % 1000), '2020-01-01' + INTERVAL seq % 500 HOUR FROM seq_1_to_{ROWS}"


@pytest.fixture(scope="module")
def shared_server(work_folder, engine, template):
    """Takes the place of the server that other tests share."""
    server = live_server.LiveServer(work_folder / "bulk", engine, [*SMALL, "--loose-pbxt-cache-size=16M"])
    shutil.copytree(template, server.data)
    server.start()
    yield server
    server.stop()


def check(db, name="t"):
    assert [row[3] for row in db.rows(f"CHECK TABLE {name}")] == ["OK"]


def test_insert_select_gives_the_same_rows_in_every_index(twin):
    twin.ok(f"CREATE TABLE t {TABLE}")
    twin.ok(f"INSERT INTO t {MANY}")
    twin.run("SELECT COUNT(*), SUM(n), SUM(u), COUNT(DISTINCT c), MIN(d), MAX(d) FROM t")
    twin.run("SELECT * FROM t WHERE n BETWEEN 30000 AND 30010 ORDER BY n")
    twin.run("SELECT * FROM t FORCE INDEX (c) WHERE c = 'some name 77' ORDER BY n")
    twin.run("SELECT n FROM t FORCE INDEX (d) WHERE d = '2020-01-05' ORDER BY n")
    twin.run("SELECT * FROM t WHERE u = 777")
    twin.run("SELECT * FROM t WHERE u = 778")
    twin.ok("UPDATE t SET c = 'changed', u = -u WHERE n % 100 = 5")
    twin.ok("DELETE FROM t WHERE n % 100 = 7")
    twin.run("SELECT COUNT(*), SUM(n), SUM(u), COUNT(DISTINCT c) FROM t")
    twin.run("SELECT * FROM t WHERE c = 'changed' ORDER BY n LIMIT 20")


def test_load_into_a_table_with_rows_inside_a_transaction(db):
    db.ok(f"CREATE TABLE t {TABLE}")
    db.ok("INSERT INTO t SELECT -seq, -seq, 'old', NOW() FROM seq_1_to_500")
    reader = db.session()
    reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    db.ok("BEGIN")
    assert db.affected(f"INSERT INTO t {MANY}") == ROWS
    assert db.value("SELECT COUNT(*) FROM t") == ROWS + 500
    assert db.value("SELECT COUNT(*) FROM t WHERE c LIKE 'some%'") == ROWS
    other = db.session()
    assert other.value("SELECT COUNT(*) FROM t") == 500
    assert other.affected("INSERT INTO t VALUES (-1000, -1000, 'meanwhile', NOW())") == 1
    db.ok("ROLLBACK")
    assert db.value("SELECT COUNT(*) FROM t") == 501
    db.ok("BEGIN")
    db.ok("SAVEPOINT a")
    db.ok(f"INSERT INTO t {MANY}")
    db.ok("ROLLBACK TO a")
    db.ok(f"INSERT INTO t {MANY}")
    db.ok("COMMIT")
    assert reader.value("SELECT COUNT(*) FROM t") == 500
    assert reader.value("SELECT COUNT(*) FROM t FORCE INDEX (c) WHERE c >= ''") == 500
    reader.ok("COMMIT")
    assert reader.value("SELECT COUNT(*) FROM t FORCE INDEX (c) WHERE c >= ''") == ROWS + 501
    check(db)


def test_a_late_duplicate_names_its_key_and_undoes_the_statement(db):
    db.ok(f"CREATE TABLE t {TABLE}")
    db.ok("INSERT INTO t VALUES (-1, 40000, 'in the way', NOW())")
    assert "'40000' for key 'u'" in db.fails(f"INSERT INTO t {MANY}", 1062)
    assert db.rows("SELECT n, u FROM t") == [(-1, 40000)]
    double = f"SELECT seq % 50000, seq + 100000, 'x', NOW() FROM seq_1_to_{ROWS}"
    assert "for key 'PRIMARY'" in db.fails(f"INSERT INTO t {double}", 1062)
    assert db.rows("SELECT n, u FROM t") == [(-1, 40000)]
    db.ok("DELETE FROM t")
    assert db.affected(f"INSERT INTO t {MANY}") == ROWS
    check(db)


@pytest.mark.parametrize("rows", [5002, 20002, 60002])
def test_a_late_duplicate_in_a_part_names_its_key(db, rows):
    db.ok("CREATE TABLE t (a INT, b INT, p INT, PRIMARY KEY (a, p), UNIQUE KEY u (b, p)) ENGINE={engine} PARTITION BY HASH (p) PARTITIONS 4")
    said = db.fails(f"INSERT INTO t SELECT seq, IF(seq = {rows - 6}, 8, seq), seq % 4 FROM seq_1_to_{rows}", 1062)
    assert said == "Duplicate entry '8-0' for key 'u'"
    assert db.value("SELECT COUNT(*) FROM t") == 0


def test_a_late_duplicate_of_a_virtual_column_is_told_with_its_value(db):
    db.ok("CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a * 2) VIRTUAL, w TEXT AS (CONCAT('w', a)) VIRTUAL) ENGINE={engine}")
    db.ok("INSERT INTO t (id, a) SELECT seq, IF(seq = 5000, 4999, seq) FROM seq_1_to_6000")
    assert db.fails("ALTER TABLE t ADD UNIQUE KEY v (v)", 1062) == "Duplicate entry '9998' for key 'v'"
    assert db.fails("ALTER TABLE t ADD UNIQUE KEY w (w(10))", 1062) == "Duplicate entry 'w4999' for key 'w'"


def test_ignore_and_replace_still_answer_row_by_row(twin):
    twin.ok(f"CREATE TABLE t {TABLE}")
    twin.ok("INSERT INTO t VALUES (5, 40000, 'five', '2020-01-01'), (-7, 14, 'seven', '2020-01-01')")
    twin.ok(f"INSERT IGNORE INTO t {MANY}")
    twin.run("SELECT COUNT(*), SUM(n), SUM(u) FROM t")
    twin.ok(f"REPLACE INTO t {MANY}")
    twin.run("SELECT COUNT(*), SUM(n), SUM(u) FROM t")
    twin.ok(f"INSERT INTO t {MANY} ON DUPLICATE KEY UPDATE u = -t.u")
    twin.run("SELECT COUNT(*), SUM(n), SUM(u) FROM t")


def test_many_rows_come_where_the_server_looks_keys_up(twin):
    twin.ok("CREATE TABLE t (v TEXT, n INT, UNIQUE (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT CONCAT('value ', seq), seq FROM seq_1_to_5000")
    twin.ok("ALTER TABLE t FORCE, ALGORITHM=COPY")
    twin.ok("INSERT IGNORE INTO t SELECT CONCAT('value ', seq), 0 FROM seq_4001_to_9000 ON DUPLICATE KEY UPDATE n = -1")
    twin.fails("INSERT INTO t SELECT CONCAT('value ', seq), 0 FROM seq_6000_to_12000", 1062)
    twin.ok("CREATE TABLE s (k INT, f DATE, u DATE, PERIOD FOR p (f, u), UNIQUE (k, p WITHOUT OVERLAPS)) ENGINE={engine}")
    twin.ok("INSERT INTO s SELECT seq, '2024-01-01', '2025-01-01' FROM seq_1_to_5000")
    twin.ok("ALTER TABLE s FORCE, ALGORITHM=COPY")
    twin.fails("INSERT INTO s SELECT seq, '2024-06-01', '2025-06-01' FROM seq_5000_to_9000", 1062)
    for table in "ts":
        twin.same_table(table)
        check(twin.under_test, table)


def test_nulls_in_unique_keys_are_no_duplicates(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, u INT UNIQUE) ENGINE={engine}")
    twin.ok(f"INSERT INTO t SELECT seq, IF(seq % 2, NULL, seq) FROM seq_1_to_{ROWS}")
    twin.run("SELECT COUNT(*), COUNT(u) FROM t")
    twin.run("SELECT COUNT(*) FROM t WHERE u IS NULL")


def test_load_data_and_alter_by_copy(twin, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("".join(f"{n}\t{n * 3}\tname {n % 99}\t2021-01-{n % 28 + 1:02} 00:00:00\n" for n in range(ROWS)))
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    twin.ok(f"CREATE TABLE t {TABLE}")
    twin.ok(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t")
    twin.ok("ALTER TABLE t ADD e VARCHAR(20) DEFAULT 'later', ADD KEY e (e, n), ALGORITHM=COPY")
    twin.run("SELECT COUNT(*), SUM(n), SUM(u), MIN(e), COUNT(DISTINCT c) FROM t")
    twin.run("SELECT n FROM t FORCE INDEX (e) WHERE e = 'later' ORDER BY n LIMIT 5")
    twin.fails("ALTER TABLE t ADD UNIQUE KEY cc (c), ALGORITHM=COPY", 1062)
    twin.run("SELECT COUNT(*) FROM t")


def test_auto_increment_goes_on_behind_a_load(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok(f"INSERT INTO t (v) SELECT seq FROM seq_1_to_{ROWS}")
    db.ok("INSERT INTO t (v) VALUES (-1)")
    assert db.value("SELECT n FROM t WHERE v = -1") > ROWS - 1
    assert db.value("SELECT COUNT(DISTINCT n) FROM t") == ROWS + 1


def test_a_trigger_that_reads_the_table_sees_the_rows_before(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, seen INT) ENGINE={engine}")
    db.ok("CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET NEW.seen = (SELECT COUNT(*) FROM t)")
    db.ok("INSERT INTO t SELECT seq, 0 FROM seq_1_to_3000")
    assert db.value("SELECT COUNT(*) FROM t WHERE seen = n - 1") == 3000


def test_one_key_for_a_load_and_a_row(db):
    db.ok(f"CREATE TABLE t {TABLE}")
    row = db.session()
    row.ok("BEGIN")
    row.ok("INSERT INTO t VALUES (777, -1, 'first', NOW())")
    load = db.later(f"INSERT INTO t {MANY}")
    assert load.waits(2)
    row.ok("ROLLBACK")
    assert load.result().affected == ROWS
    row.fails("INSERT INTO t VALUES (777, -1, 'second', NOW())", 1062)
    check(db)


def test_a_killed_load_leaves_nothing(db):
    db.ok(f"CREATE TABLE t {TABLE}")
    loader = db.session()
    number = loader.thread_id()
    load = loader.later("INSERT INTO t SELECT seq, seq, 'x', NOW() FROM seq_1_to_20000000")
    assert load.waits(2)
    db.ok(f"KILL QUERY {number}")
    assert load.result(60).error[0] in (1317, 1028)
    assert db.value("SELECT COUNT(*) FROM t") == 0
    assert db.affected(f"INSERT INTO t {MANY}") == ROWS
    check(db)


def test_partitions_are_loaded_side_by_side(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(100), KEY v (v)) ENGINE={engine} PARTITION BY HASH (n) PARTITIONS 7"
    )
    twin.ok(f"INSERT INTO t SELECT seq, REPEAT(CHAR(97 + seq % 26), 90) FROM seq_1_to_{ROWS}")
    twin.run("SELECT COUNT(*), SUM(n), MIN(v), MAX(v) FROM t")
    twin.run("SELECT COUNT(*), SUM(n) FROM t WHERE v LIKE 'c%'")

