"""Keys whose values the server compares, in partitioned tables: UNIQUE over long values, periods WITHOUT OVERLAPS.

The oracle of long values is InnoDB. Of periods the server asks InnoDB's parts for the next row of any of them, and so lets some
overlap and refuses others that do not: there the same statements on a table without parts, and arithmetic, say what must come out.
"""

import random

import pytest
from test_auto_increment import in_parallel

LEVELS = ["READ COMMITTED", "REPEATABLE READ"]
PARTS = {
    "by key": "PARTITION BY HASH (n) PARTITIONS 3",
    "by beginning": "PARTITION BY RANGE COLUMNS (f) (PARTITION a VALUES LESS THAN ('2024-04-01'),"
    " PARTITION b VALUES LESS THAN ('2024-07-01'), PARTITION c VALUES LESS THAN (MAXVALUE))",
    "by end": "PARTITION BY RANGE COLUMNS (u) (PARTITION a VALUES LESS THAN ('2024-06-01'), PARTITION b VALUES LESS THAN (MAXVALUE))",
    "by both": "PARTITION BY RANGE (n) SUBPARTITION BY HASH (TO_DAYS(f)) SUBPARTITIONS 2"
    " (PARTITION a VALUES LESS THAN (3), PARTITION b VALUES LESS THAN MAXVALUE)",
}
COLUMNS = "(n INT, f DATE, u DATE, w INT, PERIOD FOR p (f, u), UNIQUE (n, p WITHOUT OVERLAPS))"
OVERLAPS = "SELECT x.n, x.f, y.f FROM {0} x JOIN {0} y ON x.n = y.n AND (x.f, x.u) <> (y.f, y.u) AND x.f < y.u AND y.f < x.u"
STATEMENTS = [
    "INSERT INTO {0} SELECT seq, CONCAT('2024-0', seq, '-01'), CONCAT('2024-0', seq, '-20'), seq FROM seq_1_to_6",
    "INSERT INTO {0} VALUES (1, '2024-01-01', '2024-01-20', 10)",
    "INSERT INTO {0} VALUES (1, '2024-03-01', '2024-08-01', 11)",
    "INSERT INTO {0} VALUES (1, '2024-07-01', '2024-09-01', 12)",
    "INSERT INTO {0} VALUES (1, '2024-02-20', '2024-03-02', 13)",
    "INSERT INTO {0} VALUES (1, '2023-01-01', '2025-03-02', 14)",
    "INSERT INTO {0} VALUES (6, '2024-01-01', '2024-08-01', 15), (6, '2024-10-01', '2024-10-02', 16)",
    "INSERT IGNORE INTO {0} VALUES (6, '2024-01-01', '2024-08-01', 17), (6, '2024-10-01', '2024-10-02', 18), (1, '2024-08-01', '2024-08-02', 19)",
    "INSERT INTO {0} VALUES (NULL, '2024-01-01', '2024-08-01', 20), (NULL, '2024-01-05', '2024-08-01', 21)",
    "UPDATE {0} SET f = f - INTERVAL 1 DAY WHERE n IS NOT NULL ORDER BY w",
    "UPDATE {0} SET u = u + INTERVAL 40 DAY, f = f + INTERVAL 40 DAY WHERE n IN (2, 3)",
    "UPDATE {0} SET u = u + INTERVAL 1 DAY, f = f - INTERVAL 100 DAY WHERE n = 5",
    "UPDATE {0} SET n = n + 3 WHERE n IN (2, 4) ORDER BY w",
    "UPDATE {0} SET n = 1 WHERE w = 5",
    "UPDATE {0} SET w = w + 100",
    "UPDATE IGNORE {0} SET n = 1 ORDER BY w",
    "UPDATE {0} FOR PORTION OF p FROM '2024-05-01' TO '2024-06-01' SET n = 4 WHERE w = 111",
    "DELETE FROM {0} FOR PORTION OF p FROM '2024-06-20' TO '2024-07-10'",
    "INSERT INTO {0} SELECT n + 10, f, u, w + 1000 FROM {0}",
    "INSERT INTO {0} VALUES (14, '2024-05-05', '2024-05-06', 5000)",
    "DELETE FROM {0} WHERE n = 14",
    "INSERT INTO {0} VALUES (14, '2024-05-05', '2024-05-06', 5000)",
]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("parts", PARTS)
def test_periods_are_kept_apart_in_all_parts_as_in_one_table(db, level, parts):
    db.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    db.ok(f"CREATE TABLE one {COLUMNS}")
    db.ok(f"CREATE TABLE many {COLUMNS} {PARTS[parts]}")
    for statement in STATEMENTS:
        wanted, seen = (db.run(statement.format(table)) for table in ("one", "many"))
        texts = [answer.error and (answer.error[0], answer.error[1]) for answer in (wanted, seen)]
        assert (texts[0], wanted.affected) == (texts[1], seen.affected), statement
        rows = [db.rows(f"SELECT * FROM {table} ORDER BY n, f, w") for table in ("one", "many")]
        assert rows[0] == rows[1], statement
    assert db.rows(OVERLAPS.format("many")) == []
    assert db.rows("CHECK TABLE many EXTENDED")[-1][3] == "OK"


@pytest.mark.pbxt_only
@pytest.mark.parametrize("parts", PARTS)
def test_a_table_with_periods_is_cut_into_parts_and_put_together_again(db, parts):
    db.ok(f"CREATE TABLE t {COLUMNS}")
    db.ok("INSERT INTO t SELECT seq MOD 5, '2024-01-01' + INTERVAL seq * 5 DAY, '2024-01-26' + INTERVAL seq * 5 DAY, seq FROM seq_1_to_60")
    rows = db.rows("SELECT * FROM t ORDER BY w")
    changes = [PARTS[parts], "REMOVE PARTITIONING", PARTS[parts], "REBUILD PARTITION ALL", "FORCE"]
    if parts == "by beginning":
        changes.append("REORGANIZE PARTITION a, b INTO (PARTITION x VALUES LESS THAN ('2024-02-01'), PARTITION y VALUES LESS THAN ('2024-07-01'))")
    if parts == "by key":
        changes += ["ADD PARTITION PARTITIONS 2", "COALESCE PARTITION 3"]
    for change in changes:
        db.ok(f"ALTER TABLE t {change}")
        assert db.rows("SELECT * FROM t ORDER BY w") == rows, change
        assert db.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"
        db.fails("INSERT INTO t VALUES (2, '2024-03-01', '2024-03-02', 99)", 1062)
    db.ok("ALTER TABLE t DROP INDEX n")
    db.ok("INSERT INTO t VALUES (2, '2024-03-01', '2024-11-02', 99)")
    db.fails("ALTER TABLE t ADD UNIQUE (n, p WITHOUT OVERLAPS)", 1062)
    db.ok("ALTER IGNORE TABLE t ADD UNIQUE (n, p WITHOUT OVERLAPS)")
    assert db.rows(OVERLAPS.format("t")) == []


@pytest.mark.pbxt_only
def test_a_statement_that_names_a_part_looks_into_the_others_too(db):
    for kind in ("by beginning", "by both"):
        db.ok(f"CREATE OR REPLACE TABLE t {COLUMNS} {PARTS[kind]}")
        db.ok("INSERT INTO t VALUES (1, '2024-01-01', '2024-12-01', 1), (2, '2024-05-01', '2024-08-01', 2)")
        last = "c" if kind == "by beginning" else "a"
        for statement in (
            f"INSERT INTO t PARTITION ({last}) VALUES (1, '2024-11-01', '2025-01-01', 3)",
            f"INSERT INTO t PARTITION ({last}) VALUES (1, '2024-11-02', '2025-01-01', 3), (1, '2024-11-03', '2025-01-01', 3)",
        ):
            db.ok("FLUSH TABLES")
            db.fails(statement, 1062)
        db.ok("FLUSH TABLES")
        assert db.affected(f"INSERT IGNORE INTO t PARTITION ({last}) VALUES (1, '2024-11-01', '2025-01-01', 3), (1, '2024-12-01', '2025-01-01', 4)") == 1
        db.ok("TRUNCATE TABLE t")
        db.ok("INSERT INTO t VALUES (1, '2024-11-01', '2024-12-01', 1)")
        db.ok("FLUSH TABLES")
        db.ok(f"INSERT INTO t PARTITION ({last}) VALUES (1, '2024-12-01', '2025-01-01', 2)")
        db.ok("ALTER TABLE t REBUILD PARTITION ALL")
        assert db.rows("SELECT w FROM t ORDER BY w") == [(1,), (2,)]


@pytest.mark.pbxt_only
def test_what_cannot_be_replaced_is_refused_whatever_the_part(db):
    db.ok(f"CREATE TABLE t {COLUMNS} {PARTS['by beginning']}")
    db.ok("INSERT INTO t VALUES (1, '2024-01-01', '2024-12-01', 1)")
    db.fails("REPLACE INTO t VALUES (1, '2024-11-01', '2025-01-01', 2)", 1235)
    db.fails("INSERT INTO t VALUES (1, '2024-11-01', '2025-01-01', 2) ON DUPLICATE KEY UPDATE w = 3", 1235)
    db.ok("LOCK TABLES t WRITE")
    db.fails("INSERT INTO t VALUES (1, '2024-11-01', '2025-01-01', 2)", 1062)
    db.ok("UPDATE t SET f = '2024-08-01'")
    db.ok("INSERT INTO t VALUES (1, '2024-01-01', '2024-08-01', 2)")
    db.ok("UNLOCK TABLES")
    assert db.rows("SELECT w FROM t ORDER BY w") == [(1,), (2,)]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("parts", PARTS)
def test_of_many_who_want_one_time_one_gets_it_whatever_the_part(db, parts):
    """Rule T42, with writers of different parts."""
    db.ok(f"CREATE TABLE t {COLUMNS} {PARTS[parts]}")
    db.ok("INSERT INTO t SELECT seq + 100, '2024-01-01', '2024-12-01', seq FROM seq_1_to_20")

    def work(session, client):
        picks = random.Random(client)
        session.ok("SET SESSION pbxt_conflict_mode = 'WAIT'")
        for _ in range(60):
            begin = f"'2024-01-01' + INTERVAL {picks.randint(0, 300)} DAY"
            end = f"{begin} + INTERVAL {picks.randint(1, 60)} DAY"
            key, row = picks.randint(1, 4), picks.randint(1, 20)
            statement = picks.choice(
                [
                    f"INSERT INTO t VALUES ({key}, {begin}, {end}, {row})",
                    f"INSERT IGNORE INTO t VALUES ({key}, {begin}, {end}, {row})",
                    f"UPDATE t SET n = {key}, f = {begin}, u = {end} WHERE w = {row}",
                    f"UPDATE IGNORE t SET n = {key}, f = {begin}, u = {end} WHERE w = {row}",
                    f"DELETE FROM t WHERE w = {row} AND n < 100",
                ]
            )
            error = session.run(statement).error
            assert error is None or error[0] in (1062, 1213), (statement, error)

    in_parallel(db, work)
    assert db.rows(OVERLAPS.format("t")) == []
    assert db.value("SELECT COUNT(*) FROM t WHERE n < 100") > 3
    assert db.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


@pytest.mark.parametrize("level", LEVELS)
def test_long_values_are_unique_in_partitioned_tables(twin, level):
    twin.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    twin.oracle.ok("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    twin.ok("CREATE TABLE t (n INT, v TEXT, w INT, UNIQUE (n, v)) ENGINE={engine} PARTITION BY HASH (n) PARTITIONS 3")
    for statement in (
        "INSERT INTO t SELECT seq, REPEAT('x', 9000 + seq MOD 2), seq FROM seq_1_to_9",
        "INSERT INTO t VALUES (10, 'a', 10), (1, REPEAT('x', 9001), 11)",
        "INSERT IGNORE INTO t VALUES (10, 'a', 10), (1, REPEAT('x', 9001), 11)",
        "REPLACE INTO t VALUES (10, 'a', 12), (2, REPEAT('x', 9000), 13), (3, 'b', 14)",
        "INSERT INTO t VALUES (10, 'a', 15), (11, 'a', 16) ON DUPLICATE KEY UPDATE w = w + 100",
        "UPDATE t SET n = n + 1 WHERE v = 'a' ORDER BY n DESC",
        "UPDATE t SET n = n + 1 WHERE v = 'a' ORDER BY n",
        "UPDATE t SET n = n + 3 WHERE v = 'a' ORDER BY n DESC",
        "UPDATE IGNORE t SET n = 15 WHERE v = 'a' ORDER BY n",
        "UPDATE IGNORE t SET n = 5",
        "UPDATE t SET w = w + 1",
        "DELETE FROM t WHERE n = 5 AND v = 'a'",
        "INSERT INTO t VALUES (5, 'a', 17)",
        "INSERT INTO t VALUES (5, 'a', 17)",
    ):
        twin.run(statement)
        twin.same_table("t")
    assert twin.under_test.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


def test_an_update_of_one_part_finds_a_long_value_in_another(db):
    db.ok("CREATE TABLE t (n INT, v TEXT, UNIQUE (n, v)) PARTITION BY LIST (n) (PARTITION a VALUES IN (1), PARTITION b VALUES IN (2, 3))")
    db.ok("INSERT INTO t VALUES (1, 'x'), (2, 'x')")
    db.fails("UPDATE t SET n = 2 WHERE n = 1", 1062)
    assert db.affected("UPDATE IGNORE t SET n = 2 WHERE n = 1") == 0
    assert db.affected("UPDATE t SET n = 3 WHERE n = 1") == 1
