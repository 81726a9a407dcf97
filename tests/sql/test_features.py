"""What a user of the server expects of an engine, one feature a test: the rows of docs/features.md that no other test shows.

Where both engines can do it, the answers are compared with InnoDB's in the same server; what PBXT refuses is refused with the error
that the document prints.
"""

import re
import subprocess
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "features.md"

# Feature, as the document's row begins: what is asked for, the error's number, and its text.
REFUSED = {
    "FULLTEXT indexes": ("CREATE TABLE x (v TEXT, FULLTEXT KEY (v)) ENGINE={engine}", 1214),
    "SPATIAL indexes": ("CREATE TABLE x (g POINT NOT NULL, SPATIAL KEY (g)) ENGINE={engine}", 1464),
    "DISCARD and IMPORT TABLESPACE": ("ALTER TABLE t DISCARD TABLESPACE", 1031),
    "FLUSH TABLES ... FOR EXPORT": ("FLUSH TABLES t FOR EXPORT", 1031),
}


def row_of(feature):
    """The row of the document's tables that is about a feature."""
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {feature} |")]
    assert len(rows) == 1, f"{DOCUMENT.name} has {len(rows)} rows for {feature}"
    return rows[0]


def plain(db, text):
    """A text without quotes of names, and with d for the name of the test's database."""
    return text.replace("`", "").replace(f"{db.name}.", "d.")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("feature", REFUSED)
def test_what_is_refused_is_refused_with_the_error_that_the_document_prints(db, feature):
    statement, number = REFUSED[feature]
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    db.ok("SET sql_mode = 'STRICT_TRANS_TABLES'")
    text = plain(db, db.fails(statement, number))
    assert f"ERROR {number}: {text}" in plain(db, row_of(feature)), text


def test_temporary_sequences_count_for_their_session(db):
    db.ok("CREATE TEMPORARY SEQUENCE s START WITH 10 INCREMENT BY 5 CACHE 2 ENGINE={engine}")
    assert [db.value("SELECT NEXTVAL(s)") for _ in range(5)] == [10, 15, 20, 25, 30]
    db.ok("BEGIN")
    assert db.value("SELECT NEXTVAL(s)") == 35
    db.ok("ROLLBACK")
    assert db.value("SELECT NEXTVAL(s)") == 40
    assert db.rows("SELECT start_value, increment, cache_size FROM s") == [(10, 5, 2)]
    db.session().fails("SELECT NEXTVAL(s)", (1146, 4091))
    db.ok("CREATE SEQUENCE k ENGINE={engine}")
    db.ok("CREATE TEMPORARY SEQUENCE k START WITH 100 ENGINE={engine}")
    assert db.value("SELECT NEXTVAL(k)") == 100
    db.ok("DROP TEMPORARY SEQUENCE k")
    assert db.value("SELECT NEXTVAL(k)") == 1
    db.ok("INSERT INTO s VALUES (50, 1, 1000, 10, 5, 2, 0, 0)")
    assert db.value("SELECT NEXTVAL(s)") == 50


@pytest.mark.pbxt_only
def test_maintenance_that_is_not_needed_says_so(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    answers = {
        "DISABLE KEYS": (db.ok("ALTER TABLE t DISABLE KEYS"), db.rows("SHOW WARNINGS")[0][2])[1],
        "CACHE INDEX": db.rows("CACHE INDEX t IN default")[0][3],
    }
    for feature, text in answers.items():
        assert plain(db, text) in plain(db, row_of(feature)), (feature, text)


def test_columns_may_be_invisible_or_compressed(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, hidden INT INVISIBLE DEFAULT 7, long_text TEXT COMPRESSED, v VARCHAR(500) COMPRESSED)"
        " ENGINE={engine}"
    )
    twin.ok("INSERT INTO t VALUES (1, REPEAT('abc', 5000), REPEAT('x', 500)), (2, '', NULL), (3, 'short', 'y')")
    twin.ok("INSERT INTO t (n, hidden, v) VALUES (4, 8, REPEAT('ü', 100))")
    twin.ok("UPDATE t SET long_text = CONCAT(long_text, '!'), hidden = hidden + 1 WHERE n < 3")
    twin.same("SELECT * FROM t")
    twin.same("SELECT n, hidden, LENGTH(long_text), MD5(v) FROM t WHERE v LIKE 'x%' OR long_text = 'short' OR hidden = 8")
    twin.ok("ALTER TABLE t MODIFY long_text TEXT, MODIFY v VARCHAR(500), MODIFY hidden INT")
    twin.same_table("t")


def test_keys_may_be_ignored_descending_or_over_expressions(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, a INT, j JSON, b INT AS (JSON_VALUE(j, '$.b')) VIRTUAL, KEY down (a DESC, n), KEY (b),"
        " KEY unused (a) IGNORED) ENGINE={engine}"
    )
    twin.ok("INSERT INTO t (n, a, j) SELECT seq, seq % 7, JSON_OBJECT('b', seq % 11) FROM seq_1_to_200")
    twin.same("SELECT n FROM t WHERE b = 5")
    twin.ok("SELECT a, n FROM t FORCE INDEX (down) WHERE a BETWEEN 2 AND 4 ORDER BY a DESC, n")
    assert twin.under_test.rows("EXPLAIN SELECT * FROM t WHERE b = 5")[0][5] == "b"
    assert twin.under_test.run("SELECT * FROM t FORCE INDEX (unused)").error[0] == 1176
    for side in (twin.under_test, twin.oracle):
        side.ok("ALTER TABLE t ALTER KEY unused NOT IGNORED")
    twin.same("SELECT n FROM t FORCE INDEX (unused) WHERE a = 3")


def test_periods_are_cut_and_kept_apart(twin):
    twin.ok(
        "CREATE TABLE t (room INT, guest INT, s DATE, e DATE, PERIOD FOR stay (s, e), PRIMARY KEY (room, stay WITHOUT OVERLAPS))"
        " ENGINE={engine}"
    )
    twin.ok("INSERT INTO t VALUES (1, 1, '2024-01-01', '2024-02-01'), (1, 2, '2024-02-01', '2024-03-01'), (2, 3, '2024-01-01', '2025-01-01')")
    twin.fails("INSERT INTO t VALUES (1, 4, '2024-01-31', '2024-02-02')", 1062)
    twin.ok("DELETE FROM t FOR PORTION OF stay FROM '2024-01-10' TO '2024-02-10'")
    twin.same_table("t")
    twin.ok("UPDATE t FOR PORTION OF stay FROM '2024-06-01' TO '2024-07-01' SET guest = 9 WHERE room = 2")
    twin.same_table("t")
    twin.fails("UPDATE t SET e = '2024-12-31' WHERE room = 1 AND guest = 1", 1062)
    twin.same_table("t")


@pytest.mark.parametrize("ends", [[], ["COMMIT"], ["ROLLBACK"], ["SAVEPOINT a", "ROLLBACK TO a", "COMMIT"]])
def test_history_goes_to_the_next_part_when_one_has_reached_its_limit(twin, ends):
    """Also within a transaction, whose own rows count."""
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME LIMIT 3 PARTITIONS 5")
    twin.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    sizes = "SELECT " + ", ".join(f"(SELECT COUNT(*) FROM t PARTITION ({part}))" for part in ("p0", "p1", "p2", "p3", "pn"))
    for round_number in range(4):
        if ends:
            twin.ok("BEGIN")
        twin.ok("UPDATE t SET v = v + 1")
        twin.same(sizes)
        twin.ok("UPDATE t SET v = v + 1 WHERE n = 1")
        twin.same(sizes)
        for end in ends:
            twin.ok(end)
            if end.startswith("SAVEPOINT"):
                twin.ok("UPDATE t SET v = v + 1")
                twin.ok("DELETE FROM t WHERE n = 2")
                twin.same(sizes)
        twin.ok(f"INSERT INTO t VALUES ({round_number + 10}, 1)")
        twin.same(sizes)
    twin.same("SELECT n, v FROM t FOR SYSTEM_TIME ALL")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_parts_for_history_are_added_within_a_transaction(twin, end):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME LIMIT 3 AUTO")
    twin.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    twin.ok("BEGIN")
    for _ in range(5):
        twin.ok("UPDATE t SET v = v + 1")
    twin.ok(end)
    twin.ok("UPDATE t SET v = v + 1")
    for part in ("p0", "p1", "p2", "pn"):
        twin.same(f"SELECT n, v FROM t PARTITION ({part})")


def test_history_can_be_partitioned_and_deleted(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME"
        " (PARTITION p0 HISTORY, PARTITION pn CURRENT)"
    )
    twin.ok("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    twin.ok("UPDATE t SET v = v * 10")
    twin.ok("DELETE FROM t WHERE n = 2")
    twin.same("SELECT n, v FROM t FOR SYSTEM_TIME ALL")
    twin.same("SELECT n, v FROM t PARTITION (pn)")
    twin.ok("DELETE HISTORY FROM t")
    twin.same("SELECT n, v FROM t FOR SYSTEM_TIME ALL")
    for change in ("REMOVE PARTITIONING", "DROP SYSTEM VERSIONING"):
        for side in (twin.under_test, twin.oracle):
            side.ok(f"ALTER TABLE t {change}")
        twin.same_table("t")


def test_former_rows_are_read_as_of_a_moment(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING")
    moments = []
    for value in (1, 2, 3):
        db.ok("SET timestamp = %s", (1_700_000_000 + value * 10,))
        db.ok("REPLACE INTO t VALUES (1, %s)", (value,))
        moments.append(f"FROM_UNIXTIME({1_700_000_005 + value * 10})")
    db.ok("SET timestamp = DEFAULT")
    for value, moment in enumerate(moments, 1):
        assert db.rows(f"SELECT v FROM t FOR SYSTEM_TIME AS OF {moment}") == [(value,)]
    assert db.rows(f"SELECT v FROM t FOR SYSTEM_TIME BETWEEN {moments[0]} AND {moments[1]} ORDER BY v") == [(1,), (2,)]


def test_backup_stages_hold_ddl_and_let_readers_go_on(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    other = db.session()
    db.ok("BACKUP STAGE START")
    other.ok("INSERT INTO t VALUES (1)")
    db.ok("BACKUP STAGE FLUSH")
    other.ok("INSERT INTO t VALUES (2)")
    db.ok("BACKUP STAGE BLOCK_DDL")
    ddl = other.later("ALTER TABLE t ADD COLUMN v INT")
    assert ddl.waits()
    db.ok("BACKUP STAGE BLOCK_COMMIT")
    third = db.session()
    assert third.rows("SELECT COUNT(*) FROM t") == [(2,)]
    db.ok("BACKUP STAGE END")
    assert ddl.result().error is None
    assert db.rows("SELECT COUNT(*), COUNT(v) FROM t") == [(2, 0)]


def test_flush_tables_with_read_lock_holds_commits(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    other = db.session()
    other.ok("BEGIN")
    other.ok("INSERT INTO t VALUES (1)")
    db.ok("FLUSH TABLES WITH READ LOCK")
    commit = other.later("COMMIT")
    assert commit.waits()
    assert db.rows("SELECT * FROM t") == []
    db.ok("UNLOCK TABLES")
    assert commit.result().error is None
    assert db.rows("SELECT * FROM t") == [(1,)]


def test_statistics_of_users_indexes_and_the_performance_schema_count(own_server, engine):
    server = own_server("--userstat=1", "--performance-schema=1")
    connection = server.connect()
    with connection.cursor() as cursor:

        def rows(statement):
            cursor.execute(statement)
            return list(cursor.fetchall())

        rows("CREATE DATABASE d")
        rows("USE d")
        rows(f"CREATE TABLE d.t (n INT PRIMARY KEY, v INT, KEY k (v)) ENGINE={engine}")
        rows("INSERT INTO d.t SELECT seq, seq % 10 FROM seq_1_to_100")
        assert len(rows("SELECT n FROM d.t FORCE INDEX (k) WHERE v = 3")) == 10
        assert rows("SELECT rows_read FROM information_schema.index_statistics WHERE table_name = 't' AND index_name = 'k'") == [(10,)]
        assert rows("SELECT rows_changed FROM information_schema.table_statistics WHERE table_name = 't'") == [(100,)]
        inserted, fetched = rows(
            "SELECT SUM(count_insert), SUM(count_fetch) FROM performance_schema.table_io_waits_summary_by_index_usage WHERE object_name = 't'"
        )[0]
        assert inserted == 100 and fetched >= 10
        locks = rows("SELECT count_write FROM performance_schema.table_lock_waits_summary_by_table WHERE object_name = 't'")
        assert locks[0][0] >= 1


def test_a_dump_in_one_transaction_sees_one_moment(db, shared_server):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, 0 FROM seq_1_to_20000")
    writer = db.session()
    dump = subprocess.Popen(
        [*shared_server.client_program("mariadb-dump"), "--single-transaction", "--skip-extended-insert", db.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for value in range(1, 20):
        writer.ok(f"UPDATE t SET v = {value}")
    text, errors = dump.communicate(timeout=60)
    assert dump.returncode == 0, errors
    values = set(re.findall(r"^INSERT INTO `t` VALUES \(\d+,(\d+)\);$", text, re.MULTILINE))
    assert len(values) == 1, values
    assert text.count("INSERT INTO `t`") == 20000


def test_checksum_table_agrees_with_innodb(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(20), b BLOB, d DOUBLE) ENGINE={engine} ROW_FORMAT=DYNAMIC")
    twin.ok("INSERT INTO t SELECT seq, IF(seq % 3, CONCAT('v', seq), NULL), REPEAT('b', seq), seq / 7 FROM seq_1_to_300")
    sums = [side.rows("CHECKSUM TABLE t")[0][1] for side in (twin.under_test, twin.oracle)]
    assert sums[0] == sums[1] and sums[0]


def test_table_status_tells_when_a_table_was_made_and_changed(twin):
    twin.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY) ENGINE={engine} COMMENT='c'")
    twin.ok("INSERT INTO t VALUES (NULL), (NULL)")
    twin.ok("SELECT create_time IS NOT NULL, update_time IS NOT NULL, row_format, auto_increment, table_collation, table_comment"
            " FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 't'")  # fmt: skip


@pytest.mark.parametrize("change", [
    "ALTER v SET DEFAULT 9", "RENAME COLUMN v TO value", "CHANGE v value INT DEFAULT 3", "COMMENT 'changed'", "DROP CONSTRAINT positive",
    "DROP FOREIGN KEY to_p", "AUTO_INCREMENT = 9000", "MODIFY v INT DEFAULT 3 COMMENT 'c'",
])  # fmt: skip
def test_changes_of_the_definition_alone_copy_nothing(twin, change):
    twin.ok("CREATE TABLE p (n INT PRIMARY KEY) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT DEFAULT 3, p INT, KEY k (v), CONSTRAINT positive CHECK (v > 0),"
        " CONSTRAINT to_p FOREIGN KEY (p) REFERENCES p (n)) ENGINE={engine}"
    )
    twin.ok("INSERT INTO t (v) VALUES (1), (2)")
    twin.ok(f"ALTER TABLE t {change}, ALGORITHM=INSTANT")
    twin.ok("INSERT INTO t (p) VALUES (NULL)")
    twin.run("INSERT INTO t (p) VALUES (77)")
    twin.same_table("t")
    shown = [re.sub(r"ENGINE=\w+", "", side.rows("SHOW CREATE TABLE t")[0][1]) for side in (twin.under_test, twin.oracle)]
    assert shown[0] == shown[1]


def test_partitions_become_tables_and_back(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine} PARTITION BY RANGE (n)"
        " (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))"
    )
    twin.ok("INSERT INTO t SELECT seq, seq % 7 FROM seq_50_to_150")
    twin.ok("ALTER TABLE t CONVERT PARTITION p1 TO TABLE s")
    for name in "ts":
        twin.same_table(name)
    twin.ok("UPDATE s SET v = v + 1")
    twin.ok("ALTER TABLE t CONVERT TABLE s TO PARTITION p1 VALUES LESS THAN (200)")
    twin.same_table("t")
    twin.fails("SELECT * FROM s", 1146)
    twin.ok("ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (60), PARTITION b VALUES LESS THAN (100))")
    twin.ok("SELECT n FROM t PARTITION (a) ORDER BY n")
    twin.same_table("t")


@pytest.mark.pbxt_only
def test_the_query_cache_keeps_nothing(own_server, engine):
    connection = own_server("--query-cache-type=1", "--query-cache-size=1M").connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        for name in (engine, "MyISAM"):
            cursor.execute(f"CREATE TABLE d.{name} (n INT) ENGINE={name}")
            cursor.execute(f"SELECT * FROM d.{name}")
        cursor.execute("SHOW STATUS LIKE 'Qcache_queries_in_cache'")
        assert cursor.fetchone()[1] == "1"


@pytest.mark.pbxt_only
def test_directories_of_tables_are_ignored_with_a_warning(db, tmp_path):
    db.ok(f"CREATE TABLE t (n INT) ENGINE={{engine}} DATA DIRECTORY='{tmp_path}' INDEX DIRECTORY='{tmp_path}'")
    warnings = [row[2] for row in db.rows("SHOW WARNINGS")]
    assert [text for text in warnings if "DATA DIRECTORY" in text] and [text for text in warnings if "INDEX DIRECTORY" in text], warnings
    db.ok("INSERT INTO t VALUES (1)")
    assert list(tmp_path.iterdir()) == []


INNODB_OPTIONS = ("PAGE_COMPRESSED=1", "PAGE_COMPRESSION_LEVEL=6", "ENCRYPTION_KEY_ID=1", "ATOMIC_WRITES='ON'")


def ignored_options(db):
    """The options of InnoDB that the last statement's warnings name."""
    names = {option.partition("=")[0] for option in INNODB_OPTIONS}
    return [name for name in sorted(names) for row in db.rows("SHOW WARNINGS") if row[1] == 1618 and f"<{name}>" in row[2]]


@pytest.mark.pbxt_only
def test_the_dump_of_a_table_with_options_of_innodb_loads(db):
    db.ok(f"CREATE TABLE t (n INT PRIMARY KEY, w TEXT) ENGINE={{engine}} ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8 STATS_PERSISTENT=1 {' '.join(INNODB_OPTIONS)}")
    assert ignored_options(db) == sorted(option.partition("=")[0] for option in INNODB_OPTIONS)
    db.ok("INSERT INTO t VALUES (1, 'one')")
    shown = db.rows("SHOW CREATE TABLE t")[0][1]
    for option in INNODB_OPTIONS:
        name, _, value = option.partition("=")
        assert f"`{name}`={value}" in shown, shown
    db.ok("DROP TABLE t")
    db.ok(shown)
    assert db.rows("SELECT COUNT(*) FROM t") == [(0,)]


@pytest.mark.pbxt_only
def test_a_table_with_options_of_innodb_changes_its_engine(db):
    db.ok(f"CREATE TABLE t (n INT PRIMARY KEY, w TEXT) ENGINE=InnoDB {INNODB_OPTIONS[0]} {INNODB_OPTIONS[1]}")
    db.ok("INSERT INTO t VALUES (1, 'one')")
    db.ok("ALTER TABLE t ENGINE={engine}")
    assert ignored_options(db) == ["PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"]
    assert db.rows("SELECT * FROM t") == [(1, "one")]
    # Only what is new is told, and nothing is copied for it.
    db.ok("ALTER TABLE t ATOMIC_WRITES=OFF, ALGORITHM=INSTANT")
    assert ignored_options(db) == ["ATOMIC_WRITES"]
    db.ok("ALTER TABLE t COMMENT='x', ALGORITHM=INSTANT")
    assert ignored_options(db) == []


def test_a_table_without_its_definition_file_is_not_there(own_server, engine):
    server = own_server()
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute(f"CREATE TABLE d.t (n INT) ENGINE={engine}")
        cursor.execute("INSERT INTO d.t VALUES (1)")
        cursor.execute("FLUSH TABLES")
        definition = server.data / "d" / "t.frm"
        kept = definition.read_bytes()
        definition.unlink()
        with pytest.raises(Exception, match="1146"):
            cursor.execute("SELECT * FROM d.t")
        definition.write_bytes(kept)
        cursor.execute("FLUSH TABLES")
        cursor.execute("SELECT * FROM d.t")
        assert cursor.fetchall() == ((1,),)


@pytest.mark.pbxt_only
def test_an_index_answers_for_virtual_columns_alone(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, KEY (v), KEY (a)) ENGINE={engine}")
    db.ok("INSERT INTO t (n, a) SELECT seq, seq FROM seq_1_to_1000")
    for query in ("SELECT v FROM t WHERE v < 10", "SELECT n, v FROM t WHERE v BETWEEN 5 AND 9", "SELECT a FROM t WHERE a < 10"):
        assert "Using index" in (db.rows(f"EXPLAIN {query}")[0][9] or ""), query
    assert sorted(db.rows("SELECT v FROM t WHERE v < 10")) == [(v,) for v in range(2, 10)]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("before", ["SELECT * FROM s", "SELECT * FROM s FOR UPDATE", "INSERT INTO s VALUES (5)"])
@pytest.mark.parametrize("since", ["SELECT * FROM t", "SELECT * FROM t LOCK IN SHARE MODE", "DELETE FROM t"])
def test_rollback_to_a_savepoint_lets_ddl_at_tables_that_were_read(db, level, before, since):
    for name in "st":
        db.ok(f"CREATE TABLE {name} (n INT PRIMARY KEY) ENGINE={{engine}}")
        db.ok(f"INSERT INTO {name} VALUES (1), (2)")
    reader, other = db.session(), db.session()
    reader.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    reader.ok("BEGIN")
    reader.ok(before)
    reader.ok("SAVEPOINT here")
    reader.ok(since)
    reader.ok("ROLLBACK TO here")
    has_locks = (before, since) != ("SELECT * FROM s", "SELECT * FROM t") or level == "SERIALIZABLE"
    alter = other.later("ALTER TABLE t ADD COLUMN v INT DEFAULT 7, ALGORITHM=COPY")
    if has_locks:
        assert alter.waits()
    else:
        assert alter.result().error is None
        if level == "READ COMMITTED":
            assert reader.rows("SELECT * FROM t ORDER BY n") == [(1, 7), (2, 7)]
        else:
            reader.fails("SELECT * FROM t", 1412)
        assert reader.rows("SELECT * FROM s ORDER BY n") == [(1,), (2,)]
        drop = db.session().later("DROP TABLE s")
        assert drop.waits(), "it was read before the savepoint"
        reader.ok("COMMIT")
        assert drop.result().error is None
    reader.ok("COMMIT")
    assert alter.result().error is None
    assert db.rows("SELECT COUNT(*), SUM(v) FROM t") == [(2, 14)]


@pytest.mark.pbxt_only
def test_analyze_has_no_figures_of_pages(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT)")
    db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
    told = db.value("ANALYZE FORMAT=JSON SELECT SUM(v) FROM t WHERE n > 5")
    assert '"r_engine_stats": {}' in told and "pages_accessed" not in told


def test_a_sequence_needs_no_repair(db):
    db.ok("CREATE SEQUENCE s")
    assert [tuple(row[2:]) for row in db.rows("REPAIR TABLE s")] == [("note", "The storage engine for the table doesn't support repair")]
    assert db.value("SELECT NEXT VALUE FOR s") == 1
