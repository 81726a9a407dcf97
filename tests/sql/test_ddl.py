"""Tables made, changed, moved between engines and dropped; triggers, views and rows must come along."""

import pytest

OTHERS = ["InnoDB", "MyISAM", "Aria", "MEMORY"]


def prepare(twin, rows=500):
    twin.ok(
        "CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT, w VARCHAR(40), KEY k (v), UNIQUE KEY u (w)) ENGINE={engine}"
    )
    twin.ok(f"INSERT INTO t (v, w) SELECT seq % 17, CONCAT('row ', seq) FROM seq_1_to_{rows}")


def test_truncate_empties_and_counts_from_one(twin):
    prepare(twin)
    twin.ok("TRUNCATE TABLE t")
    twin.same_table("t")
    twin.ok("INSERT INTO t (v, w) VALUES (1, 'first')")
    twin.same_table("t")


def test_rename_moves_rows_between_names_and_databases(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq FROM seq_1_to_100")
    db.ok("CREATE TABLE s (n INT PRIMARY KEY) ENGINE={engine}")
    db.ok("RENAME TABLE t TO x, s TO t, x TO s")
    assert (db.value("SELECT COUNT(*) FROM s"), db.value("SELECT COUNT(*) FROM t")) == (100, 0)
    db.ok(f"CREATE DATABASE {db.name}_2")
    try:
        db.ok(f"RENAME TABLE s TO {db.name}_2.`odd name-ü`")
        assert db.value(f"SELECT COUNT(*) FROM {db.name}_2.`odd name-ü`") == 100
        db.fails("SELECT * FROM s", 1146)
    finally:
        db.ok(f"DROP DATABASE {db.name}_2")


@pytest.mark.parametrize("change", [
    "ADD COLUMN x INT NOT NULL DEFAULT 7", "ADD COLUMN x VARCHAR(10) FIRST", "DROP COLUMN v", "MODIFY v BIGINT",
    "MODIFY w VARCHAR(400)", "MODIFY v VARCHAR(10)",
    "CHANGE v value INT", "ADD KEY x (w(3), v)", "DROP KEY k", "ADD UNIQUE KEY x (n, v)",
    "DROP PRIMARY KEY, MODIFY n INT, ADD PRIMARY KEY (w)", "CONVERT TO CHARACTER SET latin1",
    "ORDER BY v", "COMMENT 'changed'", "RENAME TO s, ADD COLUMN y INT", "ALTER COLUMN v SET DEFAULT 9", "RENAME KEY k TO kk",
    "FORCE", "AUTO_INCREMENT = 9000",
])  # fmt: skip
def test_alter_table_keeps_every_row(twin, change):
    prepare(twin)
    twin.ok("SET alter_algorithm = 'COPY'")  # so that both count the rows they copied
    twin.ok(f"ALTER TABLE t {change}")
    name = "s" if "TO s" in change else "t"
    twin.same_table(name)
    twin.run(f"INSERT INTO {name} (w) VALUES ('after')")
    twin.same_table(name)
    twin.same(
        f"SELECT column_name, column_type, is_nullable, column_key FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}'"
    )


def test_an_alter_that_fails_changes_nothing(twin):
    prepare(twin)
    twin.fails("ALTER TABLE t ADD UNIQUE KEY x (v)", 1062)
    twin.ok("SET sql_mode = 'STRICT_ALL_TABLES'")
    twin.fails("ALTER TABLE t MODIFY w VARCHAR(2)", 1265)
    twin.same_table("t")


@pytest.mark.parametrize("other", OTHERS)
def test_a_table_moves_to_another_engine_and_back_with_triggers_and_views(db, other):
    if other.upper() == db.engine.upper():
        pytest.skip("the same engine")
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT, w VARCHAR(40), KEY (v)) ENGINE={engine}")
    db.ok("INSERT INTO t (v, w) SELECT seq % 17, CONCAT('row ', seq) FROM seq_1_to_2000")
    db.ok("CREATE VIEW view_of_t AS SELECT v, COUNT(*) c FROM t GROUP BY v")
    db.ok("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.w = CONCAT('trigger ', NEW.v)")
    rows = db.rows("SELECT * FROM t ORDER BY n")
    for engine in (other, db.engine, other, db.engine):
        assert db.affected(f"ALTER TABLE t ENGINE={engine}") == len(rows)
        assert (
            db.value("SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 't'").lower()
            == engine.lower()
        )
        assert db.rows("SELECT * FROM t ORDER BY n") == rows
        assert db.value("SELECT SUM(c) FROM view_of_t") == len(rows)
        db.ok("INSERT INTO t (v) VALUES (99)")
        assert db.rows("SELECT w FROM t WHERE v = 99") == [("trigger 99",)]
        db.ok("DELETE FROM t WHERE v = 99")


def test_a_table_moves_to_archive_and_back(db):
    if not db.rows("SELECT 1 FROM information_schema.engines WHERE engine = 'ARCHIVE'"):
        db.ok("INSTALL SONAME 'ha_archive'")
    db.ok("CREATE TABLE insert_test (c1 INT, c2 VARCHAR(20), c3 DATE) ENGINE={engine}")
    db.ok("INSERT INTO insert_test SELECT 1, 'sample audit string', '2005-10-26' FROM seq_1_to_5000")
    for engine in ("ARCHIVE", db.engine, "MyISAM", db.engine):
        assert db.affected(f"ALTER TABLE insert_test ENGINE={engine}") == 5000
        assert (
            db.value("SELECT COUNT(*) FROM insert_test WHERE c1 = 1 AND c2 = 'sample audit string' AND c3 = '2005-10-26'") == 5000
        )


def test_create_like_and_create_select(twin):
    prepare(twin)
    twin.ok("CREATE TABLE a LIKE t")
    twin.ok("INSERT INTO a SELECT * FROM t WHERE n < 50")
    twin.ok("CREATE TABLE b (PRIMARY KEY (n)) ENGINE={engine} SELECT n, UPPER(w) AS big FROM t")
    twin.fails("CREATE TABLE c (PRIMARY KEY (v)) ENGINE={engine} SELECT v, w FROM t", 1062)
    twin.fails("SELECT * FROM c", 1146)
    twin.ok("CREATE OR REPLACE TABLE a ENGINE={engine} SELECT 1 AS one")
    for name in "ab":
        twin.same_table(name)


def test_temporary_tables_live_for_their_session_only(db):
    db.ok("CREATE TEMPORARY TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v TEXT, KEY (v(4))) ENGINE={engine}")
    db.ok("INSERT INTO t (v) SELECT REPEAT('x', seq) FROM seq_1_to_300")
    db.ok("BEGIN")
    db.ok("DELETE FROM t WHERE n > 100")
    db.ok("ROLLBACK")
    assert db.rows("SELECT COUNT(*), SUM(LENGTH(v)) FROM t") == [(300, 45150)]
    db.session().fails("SELECT * FROM t", 1146)
    db.ok("ALTER TABLE t ADD COLUMN z INT DEFAULT 3")
    assert db.value("SELECT SUM(z) FROM t") == 900
    db.ok("TRUNCATE TABLE t")
    assert db.value("SELECT COUNT(*) FROM t") == 0
    db.ok("DROP TEMPORARY TABLE t")
    session = db.session()
    session.ok("CREATE TEMPORARY TABLE t (n INT) ENGINE={engine}")
    session.close()


@pytest.mark.parametrize("rule", [
    "PARTITION BY HASH (n) PARTITIONS 5", "PARTITION BY KEY (n) PARTITIONS 3",
    "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (250), PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "PARTITION BY RANGE (n) SUBPARTITION BY HASH (n) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (200), PARTITION p1 VALUES LESS THAN MAXVALUE)",
])  # fmt: skip
def test_partitioned_tables(twin, rule):
    twin.ok(f"CREATE TABLE t (n INT AUTO_INCREMENT, v INT, w VARCHAR(20), PRIMARY KEY (n), KEY (v)) ENGINE={{engine}} {rule}")
    twin.ok("INSERT INTO t SELECT seq, seq % 13, CONCAT('p', seq) FROM seq_1_to_400")
    twin.ok("UPDATE t SET n = n + 1000 WHERE n % 10 = 0")
    twin.ok("DELETE FROM t WHERE v = 5")
    twin.ok("SELECT n, v FROM t WHERE v BETWEEN 3 AND 7 ORDER BY v, n")
    twin.ok("BEGIN")
    twin.ok("DELETE FROM t")
    twin.ok("ROLLBACK")
    twin.same_table("t")
    if "p1" in rule:
        twin.ok("ALTER TABLE t TRUNCATE PARTITION p0")
        twin.same_table("t")
        twin.ok("ALTER TABLE t DROP PARTITION p1")
        twin.same_table("t")
    twin.ok("ALTER TABLE t REMOVE PARTITIONING")
    twin.same_table("t")


def test_exchange_partition_swaps_rows(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    )
    twin.ok("CREATE TABLE s (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, 1 FROM seq_50_to_150")
    twin.ok("INSERT INTO s SELECT seq, 2 FROM seq_1_to_20")
    twin.ok("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE s")
    for name in "ts":
        twin.same_table(name)


@pytest.mark.parametrize(
    "low, came",
    [(50, "EXCHANGE PARTITION p0 WITH TABLE s"), (150, "EXCHANGE PARTITION p1 WITH TABLE s"), (250, "CONVERT TABLE s TO PARTITION p2 VALUES LESS THAN (300)")],
)
@pytest.mark.parametrize(
    "change",
    ["ADD COLUMN w INT DEFAULT 4 FIRST", "ADD KEY (n, v)", "RENAME COLUMN v TO vv", "ALTER v SET DEFAULT 'd'", "COMMENT 'c'", "DROP KEY v, ADD KEY v (v)"],
)
def test_a_table_is_altered_after_another_one_became_its_partition(twin, low, came, change):
    """Indexes of tables have the columns of the primary key behind their own, those of partitions have not (rule X47)."""
    columns = "n INT NOT NULL, k INT NOT NULL, v VARCHAR(10), PRIMARY KEY (n, k), KEY v (v)"
    twin.ok(
        f"CREATE TABLE t ({columns}) ENGINE={{engine}} PARTITION BY RANGE (k) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))"
    )
    twin.ok(f"CREATE TABLE s ({columns}) ENGINE={{engine}}")
    twin.ok("INSERT INTO t SELECT seq, seq, CONCAT('t', seq) FROM seq_90_to_110")
    twin.ok(f"INSERT INTO s SELECT seq, seq, CONCAT('s', seq MOD 5) FROM seq_{low}_to_{low + 9}")
    twin.ok(f"ALTER TABLE t {came}")
    twin.same_table("t")
    for side in (twin.under_test, twin.oracle):
        side.ok(f"ALTER TABLE t {change}")
    twin.same_table("t")
    twin.same("SELECT n FROM t FORCE INDEX (v) WHERE k > 0 AND n > 60")
    twin.ok("INSERT INTO t (n, k) VALUES (60, 60)")
    twin.same_table("t")
    assert twin.under_test.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


def test_generated_columns_stored_and_virtual_with_keys(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, v INT, s INT GENERATED ALWAYS AS (v * 2) STORED, w INT GENERATED ALWAYS AS (v % 10) VIRTUAL,"
        " x VARCHAR(30) GENERATED ALWAYS AS (CONCAT('<', v, '>')) VIRTUAL, KEY (s), KEY kw (w), KEY kx (x)) ENGINE={engine}"
    )
    twin.ok("INSERT INTO t (n, v) SELECT seq, seq * 3 FROM seq_1_to_100")
    twin.ok("UPDATE t SET v = v + 1 WHERE n % 3 = 0")
    twin.ok("DELETE FROM t WHERE w = 6")
    twin.same("SELECT * FROM t FORCE INDEX (kw) WHERE w IN (1, 2, 3)")
    twin.same("SELECT n, x FROM t FORCE INDEX (kx) WHERE x > '<2'")
    twin.same("SELECT n, s FROM t FORCE INDEX (s) WHERE s < 100")
    twin.same_table("t")


def test_sequences_count_and_survive_rollback(db):
    db.ok("CREATE SEQUENCE s START WITH 10 INCREMENT BY 5 CACHE 3 ENGINE={engine}")
    assert [db.value("SELECT NEXTVAL(s)") for _ in range(5)] == [10, 15, 20, 25, 30]
    db.ok("BEGIN")
    assert db.value("SELECT NEXT VALUE FOR s") == 35
    db.ok("ROLLBACK")
    assert db.value("SELECT NEXTVAL(s)") == 40
    db.ok("SELECT SETVAL(s, 100)")
    assert db.value("SELECT NEXTVAL(s)") == 105
    db.ok("ALTER SEQUENCE s RESTART WITH 7")
    assert db.value("SELECT NEXTVAL(s)") == 7
    db.ok("CREATE TABLE t (n INT DEFAULT NEXTVAL(s), v INT) ENGINE={engine}")
    db.ok("INSERT INTO t (v) VALUES (1), (2)")
    assert db.rows("SELECT n FROM t ORDER BY v") == [(12,), (17,)]
    db.ok("DROP TABLE t")
    db.ok("DROP SEQUENCE s")


def test_system_versioned_tables_keep_their_history(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING")
    twin.ok("INSERT INTO t VALUES (1, 1), (2, 2)")
    twin.ok("UPDATE t SET v = 10 WHERE n = 1")
    twin.ok("DELETE FROM t WHERE n = 2")
    twin.same("SELECT n, v FROM t")
    twin.same("SELECT n, v FROM t FOR SYSTEM_TIME ALL")


def test_drop_and_create_of_one_name_never_shows_old_rows(db):
    for round_number in range(15):
        db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
        assert db.value("SELECT COUNT(*) FROM t") == 0
        db.ok(f"INSERT INTO t SELECT seq, {round_number} FROM seq_1_to_50")
        assert db.rows("SELECT COUNT(*), MIN(v), MAX(v) FROM t") == [(50, round_number, round_number)]
        db.ok("DROP TABLE t")


def test_a_hundred_tables_live_and_die_together(db):
    for number in range(100):
        db.ok(f"CREATE TABLE t{number} (n INT PRIMARY KEY) ENGINE={{engine}}")
        db.ok(f"INSERT INTO t{number} VALUES ({number})")
    assert sum(db.value(f"SELECT n FROM t{number}") for number in range(100)) == 4950
    db.ok("DROP TABLE " + ", ".join(f"t{number}" for number in range(100)))
    assert db.rows("SHOW TABLES") == []


def test_ddl_waits_for_the_transaction_that_uses_the_table(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    one, other = db.session(), db.session()
    one.ok("BEGIN")
    one.ok("INSERT INTO t VALUES (1)")
    waiting = other.later("ALTER TABLE t ADD COLUMN v INT DEFAULT 5")
    assert waiting.waits()
    one.ok("COMMIT")
    assert waiting.result().error is None
    assert db.rows("SELECT * FROM t") == [(1, 5)]


def test_an_old_snapshot_does_not_read_a_truncated_table_as_empty(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE={engine}")
    db.ok("CREATE TABLE other (n INT PRIMARY KEY) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1)")
    mine = db.session()
    mine.ok("BEGIN")
    mine.ok("SELECT * FROM other")
    db.ok("TRUNCATE TABLE t")
    db.ok("INSERT INTO t VALUES (2)")
    answer = mine.run("SELECT * FROM t")
    assert (answer.error and answer.error[0] == 1412) or (db.engine.upper() != "PBXT"), answer


def test_optimize_repair_and_analyze_leave_the_rows(twin):
    prepare(twin)
    for word in ("OPTIMIZE", "ANALYZE", "REPAIR", "CHECK"):
        answer = twin.under_test.rows(f"{word} TABLE t")
        assert not [row for row in answer if row[2].lower() == "error"], answer
    twin.ok("FLUSH TABLES")
    twin.same_table("t")
