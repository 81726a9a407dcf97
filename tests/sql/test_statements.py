"""Statements that write in special ways: AUTO_INCREMENT, IGNORE, REPLACE, ON DUPLICATE KEY, RETURNING, several tables at once."""

import random

import pytest


def test_auto_increment_counts_like_innodb(twin):
    twin.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    twin.ok("INSERT INTO t (v) VALUES (1), (2), (3)")
    twin.ok("SELECT LAST_INSERT_ID()")
    twin.ok("INSERT INTO t VALUES (10, 4), (NULL, 5), (0, 6)")
    twin.ok("DELETE FROM t WHERE n > 5")
    twin.ok("INSERT INTO t (v) VALUES (7)")
    twin.ok("ALTER TABLE t AUTO_INCREMENT = 100")
    twin.ok("INSERT INTO t (v) VALUES (8)")
    twin.same_table("t")
    twin.ok("TRUNCATE TABLE t")
    twin.ok("INSERT INTO t (v) VALUES (9)")
    twin.same_table("t")


def test_auto_increment_step_and_offset_are_obeyed(twin):
    twin.ok("SET auto_increment_increment = 10, auto_increment_offset = 3")
    twin.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    twin.ok("INSERT INTO t (v) VALUES (1), (2)")
    twin.ok("INSERT INTO t VALUES (50, 3)")
    twin.ok("INSERT INTO t (v) VALUES (4)")
    twin.same_table("t")


@pytest.mark.parametrize(
    "kind, last", [("TINYINT", 127), ("BIGINT", 9223372036854775807), ("BIGINT UNSIGNED", 18446744073709551615)]
)
def test_auto_increment_says_when_it_is_used_up(db, kind, last):
    db.ok(f"CREATE TABLE t (n {kind} AUTO_INCREMENT PRIMARY KEY) ENGINE={{engine}}")
    db.ok(f"INSERT INTO t VALUES ({last - 1})")
    db.run("INSERT INTO t VALUES (NULL)")
    db.fails("INSERT INTO t VALUES (NULL)", (1062, 167, 1467))
    assert db.value("SELECT MAX(n) FROM t") in (last, last - 1)
    assert db.value("SELECT COUNT(*) FROM t") <= 2


def test_auto_increment_survives_rollback_without_reuse(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO t (v) VALUES (1)")
    db.ok("BEGIN")
    db.ok("INSERT INTO t (v) VALUES (2)")
    db.ok("ROLLBACK")
    db.ok("INSERT INTO t (v) VALUES (3)")
    assert db.rows("SELECT n, v FROM t ORDER BY n") == [(1, 1), (3, 3)]


def test_auto_increment_gives_every_client_its_own_numbers(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, c INT) ENGINE={engine}")
    work = [db.session().later(f"INSERT INTO t (c) SELECT {c} FROM seq_1_to_2000") for c in range(4)]
    assert [each.result().affected for each in work] == [2000] * 4
    assert db.rows("SELECT COUNT(*), COUNT(DISTINCT n) FROM t") == [(8000, 8000)]


def test_insert_ignore_skips_only_the_duplicates(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, u INT UNIQUE, v INT) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1, 1, 1)")
    twin.ok("INSERT IGNORE INTO t VALUES (1, 5, 2), (2, 1, 3), (3, 3, 4), (3, 9, 5), (4, 4, 6)")
    twin.ok("SHOW WARNINGS")
    twin.ok("UPDATE IGNORE t SET u = 3")
    twin.same_table("t")


def test_replace_deletes_every_row_in_its_way(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, u INT UNIQUE, w INT UNIQUE, v INT) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1,1,1,1),(2,2,2,2),(3,3,3,3)")
    twin.ok("REPLACE INTO t VALUES (1, 2, 3, 100)")
    twin.same_table("t")
    twin.ok("REPLACE INTO t VALUES (1, 2, 3, 100), (1, 7, 7, 101)")
    twin.ok("REPLACE INTO t SELECT n + 1, u, w + 1, v FROM t")
    twin.same_table("t")


@pytest.mark.parametrize("column", ["TEXT", "LONGBLOB", "VARCHAR(12000)", "TEXT, c TEXT DEFAULT REPEAT('c', 9000)"])
def test_replace_by_the_same_row_changes_nothing(twin, column):
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v {column}) ENGINE={{engine}} CHARACTER SET latin1")
    for bytes_of_value in (10, 8191, 8192, 12000):
        for letter, affected in (("a", 1), ("a", 1), ("b", 2), ("b", 1)):
            statement = f"REPLACE INTO t (n, v) VALUES ({bytes_of_value}, CONCAT(REPEAT('x', {bytes_of_value - 1}), '{letter}'))"
            assert twin.ok(statement).affected == affected
        twin.ok(f"INSERT INTO t (n, v) VALUES ({bytes_of_value}, '') ON DUPLICATE KEY UPDATE v = CONCAT(REPEAT('x', {bytes_of_value - 1}), 'b')")
        twin.ok(f"UPDATE t SET v = CONCAT(REPEAT('x', {bytes_of_value - 1}), 'b')")
    twin.ok("BEGIN")
    twin.ok("REPLACE INTO t (n, v) SELECT n, v FROM t WHERE n > 8000")
    twin.ok("ROLLBACK")
    twin.same_table("t")


def test_on_duplicate_key_update_sees_the_rows_of_its_own_statement(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, u INT UNIQUE, v INT) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1,1,0),(1,1,0),(1,2,0) ON DUPLICATE KEY UPDATE v = v + 1")
    twin.ok("INSERT INTO t VALUES (2,1,0) ON DUPLICATE KEY UPDATE v = v + 10, n = n + 100")
    twin.ok("INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_200 ON DUPLICATE KEY UPDATE v = t.v + VALUES(v)")
    twin.ok("INSERT INTO t SELECT seq, seq, seq FROM seq_100_to_300 ON DUPLICATE KEY UPDATE v = -VALUES(v)")
    twin.same_table("t")
    twin.fails("INSERT INTO t VALUES (5,5,5) ON DUPLICATE KEY UPDATE n = 6", 1062)
    twin.same_table("t")


@pytest.mark.pbxt_only
def test_a_null_that_stays_null_is_no_change_to_a_column_with_a_default(db):
    """It counts 0; where an engine leaves the default in the row that it hands over, the server counts 1."""
    session = db.session()
    kinds = {"i": ("INT", "1"), "b": ("BIT(11)", "1"), "c": ("CHAR(5)", "'x'"), "v": ("VARCHAR(9)", "'y'"), "d": ("DATETIME(3)", "'2000-02-29'")}
    columns = ", ".join(f"{name} {kind} DEFAULT {default}" for name, (kind, default) in kinds.items())
    session.ok(f"CREATE TABLE t (n INT PRIMARY KEY, {columns}) ENGINE={db.engine}")
    session.ok("INSERT INTO t VALUES (1, NULL, NULL, NULL, NULL, NULL)")
    nulls = ", ".join(f"{name} = NULL" for name in kinds)
    for change in (*(f"{name} = NULL" for name in kinds), nulls):
        assert session.affected(f"INSERT INTO t (n) VALUES (1) ON DUPLICATE KEY UPDATE {change}") == 0, change
        assert session.affected(f"UPDATE t SET {change}") == 0, change
    session.ok("UPDATE t SET b = 2, c = 'z'")
    assert session.affected(f"INSERT INTO t (n) VALUES (1) ON DUPLICATE KEY UPDATE {nulls}") == 2


def test_returning_gives_the_rows_as_written(twin):
    twin.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10)) ENGINE={engine}")
    twin.ok("INSERT INTO t (v) VALUES ('a'), ('b') RETURNING n, v, UPPER(v)")
    twin.ok("REPLACE INTO t VALUES (2, 'c') RETURNING *")
    twin.same("DELETE FROM t WHERE n > 0 RETURNING n, v")
    twin.same_table("t")


def test_several_tables_are_updated_and_deleted_in_one_statement(twin):
    twin.ok("CREATE TABLE a (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    twin.ok("CREATE TABLE b (n INT PRIMARY KEY, a INT, v INT, KEY (a)) ENGINE={engine}")
    twin.ok("INSERT INTO a SELECT seq, 0 FROM seq_1_to_50")
    twin.ok("INSERT INTO b SELECT seq, 1 + seq % 60, seq FROM seq_1_to_200")
    twin.ok("UPDATE a JOIN b ON b.a = a.n SET a.v = a.v + 1, b.v = -b.v WHERE b.n > 20")
    twin.ok("UPDATE a LEFT JOIN b ON b.a = a.n SET a.v = 99 WHERE b.n IS NULL")
    twin.ok("DELETE a, b FROM a JOIN b ON b.a = a.n WHERE a.n % 7 = 0")
    twin.ok("DELETE b FROM b LEFT JOIN a ON b.a = a.n WHERE a.n IS NULL")
    twin.ok("DELETE FROM a WHERE n IN (SELECT a FROM b WHERE v < -150)")
    for table in "ab":
        twin.same_table(table)


def test_a_statement_may_read_the_table_it_writes(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1, 1)")
    for _ in range(8):
        twin.ok("INSERT INTO t SELECT n + (SELECT MAX(n) FROM t), v + 1 FROM t")
    twin.ok("DELETE FROM t WHERE v = (SELECT MAX(v) FROM (SELECT v FROM t) x)")
    twin.ok("UPDATE t SET v = (SELECT COUNT(*) FROM (SELECT * FROM t) y) WHERE n % 3 = 0")
    twin.same_table("t")


def test_a_delete_of_all_rows_is_a_delete_of_each(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    fill = "INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_3000"
    twin.ok(fill)
    twin.ok("DELETE FROM t")  # affected rows are compared
    twin.same("SELECT COUNT(*) FROM t")
    twin.ok(fill)
    twin.ok("BEGIN")
    twin.ok("INSERT INTO t VALUES (5000, 5)")
    twin.ok("SAVEPOINT a")
    twin.ok("DELETE FROM t")
    twin.same_table("t")
    twin.ok("ROLLBACK TO a")
    twin.same_table("t")
    twin.ok("ROLLBACK")
    twin.same_table("t")
    twin.same("DELETE FROM t RETURNING n + v")
    twin.ok(fill)
    twin.ok("DELETE FROM t ORDER BY n DESC LIMIT 2000")
    twin.same_table("t")
    twin.ok("CREATE TABLE log (n INT)")
    twin.ok("CREATE TRIGGER ad AFTER DELETE ON t FOR EACH ROW INSERT INTO log VALUES (OLD.n)")
    twin.ok("DELETE FROM t")
    twin.same("SELECT COUNT(*), SUM(n) FROM log")


def test_a_delete_of_all_rows_with_children(twin):
    twin.ok("CREATE TABLE p (n INT PRIMARY KEY) ENGINE={engine}")
    twin.ok("CREATE TABLE c (n INT, FOREIGN KEY (n) REFERENCES p (n) ON DELETE CASCADE) ENGINE={engine}")
    twin.ok("CREATE TABLE r (n INT, FOREIGN KEY (n) REFERENCES p (n)) ENGINE={engine}")
    twin.ok("INSERT INTO p SELECT seq FROM seq_1_to_2000")
    twin.ok("INSERT INTO c SELECT seq FROM seq_1_to_2000")
    twin.ok("INSERT INTO r VALUES (1500)")
    twin.fails("DELETE FROM p", 1451)
    for table in ("p", "c"):
        twin.same_table(table)
    twin.ok("DELETE IGNORE FROM p")
    for table in ("p", "c"):
        twin.same_table(table)
    twin.ok("DELETE FROM r")
    twin.ok("DELETE FROM p")
    for table in ("p", "c"):
        twin.same_table(table)


def test_a_delete_of_all_rows_keeps_history_and_what_lies_outside_a_period(twin):
    twin.ok("CREATE TABLE v (n INT PRIMARY KEY) ENGINE={engine} WITH SYSTEM VERSIONING")
    twin.ok("INSERT INTO v SELECT seq FROM seq_1_to_1500")
    twin.ok("DELETE FROM v")
    twin.same("SELECT COUNT(*) FROM v FOR SYSTEM_TIME ALL")
    twin.ok("CREATE TABLE a (n INT, b DATE, e DATE, PERIOD FOR p (b, e)) ENGINE={engine}")
    twin.ok("INSERT INTO a SELECT seq, '2020-01-01', '2020-12-31' FROM seq_1_to_1500")
    twin.ok("DELETE FROM a FOR PORTION OF p FROM '2020-03-01' TO '2020-06-01'")
    twin.same("SELECT b, e, COUNT(*) FROM a GROUP BY b, e ORDER BY b")
    twin.ok("CREATE TABLE h (n INT PRIMARY KEY) ENGINE={engine} PARTITION BY HASH (n) PARTITIONS 4")
    twin.ok("INSERT INTO h SELECT seq FROM seq_1_to_4000")
    twin.ok("DELETE FROM h PARTITION (p1)")
    twin.same("SELECT COUNT(*), SUM(n) FROM h")
    twin.ok("DELETE FROM h")
    twin.same("SELECT COUNT(*) FROM h")


def test_order_by_and_limit_bound_what_is_changed(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, CAST(seq AS SIGNED) * 37 % 101 - 50 FROM seq_1_to_300")
    twin.ok("UPDATE t SET v = v + 1000 ORDER BY v, n LIMIT 40")
    twin.ok("DELETE FROM t ORDER BY v DESC, n DESC LIMIT 25")
    twin.ok("UPDATE t SET n = n + 1 ORDER BY n DESC LIMIT 100")
    twin.same_table("t")


def test_load_data_and_its_replace_and_ignore(twin, tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text("1\ta\n2\tb\n\\N\t\\N\n1\tc\n3\td\n", encoding="utf-8")
    twin.ok("CREATE TABLE t (n INT, v VARCHAR(5), UNIQUE KEY (n)) ENGINE={engine}")
    for how in ("IGNORE", "REPLACE"):
        twin.ok(f"LOAD DATA LOCAL INFILE '{file}' {how} INTO TABLE t")
        twin.same_table("t")


def test_handler_statements_walk_a_key(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY k (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, seq * 10 FROM seq_1_to_20")
    twin.ok("HANDLER t OPEN")
    for move in (
        "k FIRST",
        "k NEXT",
        "k = (100)",
        "k NEXT",
        "k PREV",
        "k > (150)",
        "k LAST",
        "k PREV",
        "`PRIMARY` >= (5)",
        "`PRIMARY` PREV",
    ):
        twin.ok(f"HANDLER t READ {move}")
    twin.ok("HANDLER t CLOSE")


@pytest.mark.parametrize("index", ["`PRIMARY`", "k", "u"])
def test_handler_goes_on_from_where_it_found_nothing(twin, index):
    # X62.
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, w INT, KEY k (v), UNIQUE u (w)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq * 3, seq DIV 4 * 2, seq * 3 FROM seq_1_to_20")
    twin.ok("DELETE FROM t WHERE n % 15 = 0")
    twin.ok("HANDLER t OPEN")
    for ends in (("FIRST", "PREV", "NEXT", "NEXT"), ("LAST", "NEXT", "PREV", "PREV"), ("= (100)", "PREV"), ("= (4)", "NEXT"), ("= (4)", "PREV", "NEXT")):
        for move in ends:
            twin.ok(f"HANDLER t READ {index} {move}")
    choose = random.Random(f"62 {index}")
    for _ in range(400):
        key = choose.randrange(-2, 66 if index != "k" else 14)
        search = f"{choose.choice(['=', '>=', '>', '<=', '<'])} ({key})"
        twin.ok(f"HANDLER t READ {index} {choose.choice([search, 'NEXT', 'PREV', 'NEXT', 'PREV', choose.choice(['FIRST', 'LAST'])])}")
    twin.ok("HANDLER t CLOSE")


@pytest.mark.parametrize("index", ["`PRIMARY`", "k", ""])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_handler_statements_see_what_was_changed_since_the_one_before(twin, index, in_transaction):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, w INT, KEY k (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, seq * 10, 0 FROM seq_1_to_20")
    twin.ok("HANDLER t OPEN")
    if in_transaction:
        twin.ok("BEGIN")
    twin.ok(f"HANDLER t READ {index} FIRST")
    twin.ok("UPDATE t SET w = 1")
    twin.ok(f"HANDLER t READ {index} NEXT")
    twin.ok("DELETE FROM t WHERE n IN (3, 5, 6)")
    twin.ok(f"HANDLER t READ {index} NEXT LIMIT 2")
    twin.ok("UPDATE t SET w = 2")
    twin.ok("INSERT INTO t VALUES (21, 210, 3)")
    twin.ok(f"HANDLER t READ {index} NEXT LIMIT 30")
    if index:
        twin.ok(f"HANDLER t READ {index} LAST")
        twin.ok("UPDATE t SET w = 4")
        twin.ok("DELETE FROM t WHERE n = 20")
        twin.ok(f"HANDLER t READ {index} PREV LIMIT 3")
    twin.ok("HANDLER t CLOSE")


def test_triggers_procedures_and_views_work_over_the_table(twin):
    twin.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    twin.ok("CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20)) ENGINE={engine}")
    twin.ok("CREATE TRIGGER ai AFTER INSERT ON t FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT('ins ', NEW.v))")
    twin.ok("CREATE TRIGGER bu BEFORE UPDATE ON t FOR EACH ROW SET NEW.v = NEW.v * 2")
    twin.ok("CREATE TRIGGER ad AFTER DELETE ON t FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT('del ', OLD.v))")
    twin.ok("CREATE VIEW w AS SELECT n, v FROM t WHERE v > 2 WITH CHECK OPTION")
    twin.ok(
        "CREATE PROCEDURE p() BEGIN DECLARE i INT DEFAULT 0; WHILE i < 10 DO INSERT INTO t (v) VALUES (i); SET i = i + 1; END WHILE; END"
    )
    twin.ok("CALL p()")
    twin.ok("UPDATE w SET v = v + 1")
    twin.fails("INSERT INTO w (v) VALUES (1)", 1369)
    twin.ok("DELETE FROM w WHERE n > 8")
    for table in ("t", "log"):
        twin.same_table(table)


def test_foreign_columns_defaults_and_checks(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY DEFAULT 5, v INT CHECK (v > 0), w DATETIME(6) DEFAULT '2020-01-01 00:00:00.5', x VARCHAR(10) NOT NULL DEFAULT 'd') ENGINE={engine}"
    )
    twin.ok("INSERT INTO t () VALUES ()")
    twin.fails("INSERT INTO t (n, v) VALUES (6, -1)", 4025)
    twin.fails("INSERT INTO t (n, x) VALUES (7, NULL)", 1048)
    twin.same_table("t")
