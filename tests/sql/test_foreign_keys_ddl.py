"""Definitions of foreign keys: CREATE, SHOW, INFORMATION_SCHEMA, ALTER, DROP, RENAME, TRUNCATE, dumps, conversion, refusals."""

import random
import re
import subprocess
import threading
import time

import pytest
from sql_tools import wait_for

PARENT = "CREATE TABLE p (id INT PRIMARY KEY, k INT, w VARCHAR(20), UNIQUE KEY (k), KEY (w)) ENGINE={engine}"
CHILD = "CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine}"


def family(session):
    session.ok(PARENT)
    session.ok(CHILD)
    session.ok("INSERT INTO p VALUES (1, 10, 'a'), (2, 20, 'b')")
    session.ok("INSERT INTO c VALUES (1, 1), (2, 2)")


def shown(session, table):
    """SHOW CREATE TABLE without what differs between engines and databases."""
    text = session.rows(f"SHOW CREATE TABLE {table}")[0][1]
    return re.sub(r"ENGINE=\w+", "ENGINE", text).replace(session.name, "d")


def same_shown(twin, *tables):
    for table in tables:
        assert shown(twin.under_test, table) == shown(twin.oracle, table)


def same_schema(twin):
    """INFORMATION_SCHEMA says the same of both databases."""
    queries = {
        "table_constraints": "constraint_name, table_name, constraint_type",
        "key_column_usage": "constraint_name, table_name, column_name, ordinal_position, position_in_unique_constraint, "
        "IF(referenced_table_schema = '{d}', 'd', referenced_table_schema), referenced_table_name, referenced_column_name",
        "referential_constraints": "constraint_name, unique_constraint_name, match_option, update_rule, delete_rule, table_name, referenced_table_name",
    }
    for table, columns in queries.items():
        answers = []
        for side in (twin.under_test, twin.oracle):
            query = f"SELECT {columns} FROM information_schema.{table} WHERE constraint_schema = '{side.name}'"
            answers.append(sorted(side.rows(query.replace("{d}", side.name)), key=repr))
        assert answers[0] == answers[1], table


@pytest.mark.parametrize("clause", [
    "CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)", "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE SET NULL",
    "CONSTRAINT `odd name-ü` FOREIGN KEY (p) REFERENCES p (k) ON DELETE NO ACTION", "FOREIGN KEY idx (p) REFERENCES p (id)",
    "CONSTRAINT a FOREIGN KEY b (p) REFERENCES p (id), FOREIGN KEY (w) REFERENCES p (w), FOREIGN KEY (q) REFERENCES p (id)",
    "CONSTRAINT z FOREIGN KEY (p) REFERENCES p (id), CONSTRAINT a FOREIGN KEY (q) REFERENCES p (k), CONSTRAINT M FOREIGN KEY (w) REFERENCES p (w)",
    ", ".join(["FOREIGN KEY (p) REFERENCES p (id)", "FOREIGN KEY (q) REFERENCES p (k)"] * 6),
    "KEY mine (p, q), FOREIGN KEY (p) REFERENCES p (id)", "FOREIGN KEY (P) REFERENCES p (ID)",
    "FOREIGN KEY (p) REFERENCES c (id)", "CONSTRAINT FOREIGN KEY (p) REFERENCES p (id)",
])  # fmt: skip
def test_definitions_are_shown_as_innodb_shows_them(twin, clause):
    twin.ok(PARENT)
    twin.ok(f"CREATE TABLE c (id INT PRIMARY KEY, p INT, q INT, w VARCHAR(50), {clause}) ENGINE={{engine}}")
    same_shown(twin, "c")
    same_schema(twin)


def test_what_is_shown_makes_the_same_table_again(db):
    family(db)
    db.ok(
        "CREATE TABLE s (id INT PRIMARY KEY, `a``b` INT, b VARCHAR(20), CONSTRAINT `odd ``name` FOREIGN KEY (`a``b`) REFERENCES s (id), "
        "FOREIGN KEY (b) REFERENCES p (w))"
    )
    for table in "cs":
        text = db.rows(f"SHOW CREATE TABLE {table}")[0][1]
        db.ok(f"DROP TABLE {table}")
        db.ok(text)
        assert db.rows(f"SHOW CREATE TABLE {table}")[0][1] == text


def test_a_column_may_refer_by_itself(twin):
    twin.ok(PARENT)
    twin.ok("CREATE TABLE c (id INT PRIMARY KEY, p INT REFERENCES p (id) ON DELETE CASCADE) ENGINE={engine}")
    same_shown(twin, "c")


@pytest.mark.parametrize("definition, reason", [
    ("p INT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES none (id)", "there is no table"),
    ("p INT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (none)", "no column 'none'"),
    ("p BIGINT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)", "bigint"),
    ("p INT UNSIGNED, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)", "unsigned"),
    ("p INT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (plain)", "no index"),
    ("p VARCHAR(20) COLLATE utf8mb4_bin, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (w)", "utf8mb4_bin"),
    ("p INT NOT NULL, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL", "NULL"),
    ("p INT, s INT AS (p + 1) STORED, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE", "stored column"),
])  # fmt: skip
def test_refusals_name_constraint_column_and_reason(twin, definition, reason):
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY, w VARCHAR(20), plain INT, KEY (w)) ENGINE={engine}")
    answer = twin.run(f"CREATE TABLE c (id INT PRIMARY KEY, {definition}) ENGINE={{engine}}")
    assert answer.error and answer.error[0] in (1005, 1215, 1830, 1901)
    if answer.error[0] == 1005:
        assert "errno: 150" in answer.error[1]
        warnings = [row[2] for row in twin.under_test.rows("SHOW WARNINGS") if row[1] == 150]
        assert warnings and "'fk'" in warnings[0] and reason in warnings[0]
    twin.fails("SELECT * FROM c", 1146)


@pytest.mark.pbxt_only
def test_set_default_wants_a_constant_default(db):
    db.ok(PARENT)
    db.fails("CREATE TABLE c (p INT NOT NULL, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET DEFAULT)", 1005)
    assert any("constant default of column 'p'" in row[2] for row in db.rows("SHOW WARNINGS"))
    db.ok("CREATE TABLE c (p INT DEFAULT 1, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET DEFAULT)")


@pytest.mark.pbxt_only
def test_a_name_is_unique_in_its_database(db):
    family(db)
    db.ok("ALTER TABLE c ADD COLUMN more INT, ALGORITHM=COPY")
    db.ok("CREATE TABLE d (p INT, FOREIGN KEY (p) REFERENCES p (id), FOREIGN KEY (p) REFERENCES p (k))")
    db.ok("ALTER TABLE d ADD FOREIGN KEY (p) REFERENCES p (id)")
    assert all(f"CONSTRAINT `d_ibfk_{n}`" in shown(db, "d") for n in (1, 2, 3))
    db.ok("RENAME TABLE d TO e")
    db.ok("CREATE TABLE d (p INT, FOREIGN KEY (p) REFERENCES p (id))")
    assert "CONSTRAINT `d_ibfk_4`" in shown(db, "d")


ADD_TAKEN = "ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)"
CREATE_TAKEN = "CREATE TABLE e (p INT, CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine}"


@pytest.mark.parametrize("checks, statement, number, text", [
    (1, CREATE_TAKEN, 1005, "errno: 121"),
    (0, CREATE_TAKEN, 1005, "errno: 121"),
    (1, f"ALTER TABLE d {ADD_TAKEN}", 1005, "errno: 121"),
    (1, f"ALTER TABLE c {ADD_TAKEN}", 1005, "errno: 121"),
    (0, f"ALTER TABLE d {ADD_TAKEN}", 1826, "/fk'"),
    (0, f"ALTER TABLE c {ADD_TAKEN}", 1826, "/fk'"),
    (0, f"ALTER TABLE d {ADD_TAKEN}, ALGORITHM=COPY", 1005, "errno: 121"),
    (1, "CREATE TABLE e (p INT, CONSTRAINT x FOREIGN KEY (p) REFERENCES p (id), CONSTRAINT x FOREIGN KEY (p) REFERENCES p (k))", 1005, "errno: 150"),
])  # fmt: skip
def test_a_name_that_is_taken_is_refused_as_innodb_does(twin, checks, statement, number, text):
    """Rules FK1, FK51. InnoDB says 1823 where the name is another table's."""
    family(twin)
    twin.ok("CREATE TABLE d (p INT, KEY (p)) ENGINE={engine}")
    twin.ok(f"SET foreign_key_checks = {checks}")
    assert text in twin.oracle.fails(statement, (number, 1823))
    assert text in twin.under_test.fails(statement, number)
    told = [row[2] for row in twin.under_test.rows("SHOW WARNINGS")]
    assert any("another constraint of this name" in line or "/c' has a constraint of this name" in line for line in told), told
    twin.fails("SELECT * FROM e", 1146)
    twin.ok("SET foreign_key_checks = 1")
    for table in ("c", "d"):
        same_shown(twin, table)


def test_a_table_does_not_bring_a_name_that_is_taken(twin):
    """Rules FK1, FK51. InnoDB says 1050, of a table that is not there."""
    family(twin)
    for side, number, text in ((twin.under_test, 1025, "errno: 121"), (twin.oracle, 1050, "exists")):
        other = f"{side.name}_x"
        side.ok(f"CREATE DATABASE {other}")
        try:
            side.ok(f"CREATE TABLE {other}.d (p INT, CONSTRAINT fk FOREIGN KEY (p) REFERENCES {side.name}.p (id)) ENGINE={{engine}}")
            assert text in side.fails(f"RENAME TABLE {other}.d TO d", number)
            if side is twin.under_test:
                told = [row[2] for row in side.rows("SHOW WARNINGS")]
                assert any("/c' has a constraint of this name" in line for line in told), told
            side.ok(f"RENAME TABLE {other}.d TO {other}.e")
        finally:
            side.ok(f"DROP DATABASE {other}")


@pytest.mark.parametrize("change", [
    "ADD COLUMN x INT", "ADD COLUMN x INT FIRST", "DROP COLUMN q", "ADD KEY (q)", "MODIFY q BIGINT", "ADD UNIQUE KEY (p, q)", "FORCE",
    "ORDER BY p", "COMMENT 'said'", "ALTER COLUMN p SET DEFAULT 1",
])  # fmt: skip
@pytest.mark.parametrize("table", ["p", "c"])
def test_alter_keeps_constraints_on_both_sides(twin, change, table):
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY, p INT, q INT) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, q INT, CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) ENGINE={engine}"
    )
    twin.ok("INSERT INTO p VALUES (1, 1, 1), (2, 2, 2)")
    twin.ok("INSERT INTO c VALUES (1, 1, 1), (2, 2, 2)")
    twin.ok("SET alter_algorithm = 'COPY'" if "ADD" in change else "SET alter_algorithm = 'DEFAULT'")
    answers = [side.run(f"ALTER TABLE {table} {change}") for side in (twin.under_test, twin.oracle)]
    assert [answer.error for answer in answers] == [None, None]
    same_shown(twin, "p", "c")
    same_schema(twin)
    twin.fails("INSERT INTO c (id, p) VALUES (3, 3)", 1452)
    twin.ok("DELETE FROM p WHERE id = 1")
    twin.same_table("c")


def test_renamed_columns_are_renamed_in_constraints_of_both_sides(twin):
    family(twin)
    twin.ok("ALTER TABLE p RENAME COLUMN id TO number")
    twin.ok("ALTER TABLE c CHANGE p parent INT")
    same_shown(twin, "p", "c")
    same_schema(twin)
    twin.fails("INSERT INTO c VALUES (3, 3)", 1452)
    twin.fails("DELETE FROM p WHERE number = 1", 1451)


def test_constraints_added_later_judge_the_rows_that_are_there(twin):
    twin.ok(PARENT)
    twin.ok("CREATE TABLE c (id INT PRIMARY KEY, p INT) ENGINE={engine}")
    twin.ok("INSERT INTO p VALUES (1, 1, 'a')")
    twin.ok("INSERT INTO c VALUES (1, 1), (2, 2)")
    twin.fails("ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)", 1452)
    assert "CONSTRAINT" not in shown(twin.under_test, "c")
    twin.same_table("c")
    twin.ok("DELETE FROM c WHERE id = 2")
    twin.ok("ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)")
    same_shown(twin, "c")
    twin.fails("DELETE FROM p", 1451)


def test_constraints_are_dropped_by_name(twin):
    family(twin)
    twin.fails("ALTER TABLE c DROP FOREIGN KEY none", 1091)
    twin.ok("ALTER TABLE c DROP FOREIGN KEY IF EXISTS none")
    twin.ok("ALTER TABLE c DROP FOREIGN KEY FK")
    same_shown(twin, "c")
    twin.ok("DELETE FROM p")


def test_one_statement_may_drop_and_add(twin):
    family(twin)
    twin.ok("ALTER TABLE c DROP FOREIGN KEY fk, ADD CONSTRAINT fk2 FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")
    same_shown(twin, "c")
    twin.ok("DELETE FROM p WHERE id = 1")
    twin.same_table("c")


def test_what_a_constraint_needs_is_not_taken_away(twin):
    twin.ok("CREATE TABLE p (id INT NOT NULL, k INT, KEY the_key (id)) ENGINE={engine}")
    twin.ok("CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY its_key (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine}")
    twin.fails("ALTER TABLE c DROP KEY its_key", 1553)
    twin.fails("ALTER TABLE p DROP KEY the_key", 1553)
    for statement in ("ALTER TABLE c DROP COLUMN p", "ALTER TABLE p DROP COLUMN id", "ALTER TABLE p MODIFY id BIGINT", "ALTER TABLE c MODIFY p VARCHAR(9)"):
        for side in (twin.under_test, twin.oracle):
            side.fails(statement, (1553, 1828, 1829, 1832, 1833))
    twin.ok("ALTER TABLE c ADD KEY longer (p, id), DROP KEY its_key")
    same_shown(twin, "c", "p")


@pytest.mark.pbxt_only
@pytest.mark.parametrize(
    "statement, code",
    [
        ("ALTER TABLE c DROP KEY p, ALGORITHM=COPY", 1553),
        ("ALTER TABLE p DROP PRIMARY KEY, ALGORITHM=COPY", 1553),
        ("ALTER TABLE p RENAME TO q, ADD COLUMN more INT, ALGORITHM=COPY", 1846),
        ("ALTER TABLE n MODIFY p INT NOT NULL, ALGORITHM=COPY", 1830),
        ("CREATE TABLE e (id INT PRIMARY KEY) ENGINE=PBXT ENCRYPTED=YES", 1478),
    ],
)
def test_why_a_definition_is_refused_is_told_once(db, statement, code):
    family(db)
    db.ok("CREATE TABLE n (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL)")
    db.fails(statement, code)
    told = db.rows("SHOW WARNINGS")
    assert [row[1] for row in told] == [code], told


@pytest.mark.pbxt_only
def test_tables_go_in_any_order_and_come_back(db):
    family(db)
    db.ok("DROP TABLE p")
    assert db.rows("SELECT * FROM c ORDER BY id") == [(1, 1), (2, 2)]
    text = db.fails("INSERT INTO c VALUES (3, 1)", 1452)
    assert "CONSTRAINT `fk`" in text
    assert any("there is no such table" in row[2] for row in db.rows("SHOW WARNINGS"))
    db.fails("UPDATE c SET p = 2 WHERE id = 1", 1452)
    db.ok("UPDATE c SET id = 11 WHERE id = 1")
    db.ok("INSERT INTO c VALUES (4, NULL)")
    db.fails("CREATE TABLE p (id BIGINT PRIMARY KEY)", 1005)
    assert any("'fk'" in row[2] for row in db.rows("SHOW WARNINGS"))
    db.ok(PARENT)
    db.fails("INSERT INTO c VALUES (3, 1)", 1452)
    db.ok("INSERT INTO p VALUES (1, 1, 'a')")
    db.ok("INSERT INTO c VALUES (3, 1)")
    db.fails("DELETE FROM p", 1451)


@pytest.mark.pbxt_only
def test_drop_may_follow_the_rule_of_other_engines(twin):
    family(twin)
    twin.under_test.ok("SET pbxt_foreign_key_drop = 'RESTRICT'")
    twin.fails("DROP TABLE p", 1451)
    assert "`c`, CONSTRAINT `fk` FOREIGN KEY (`p`) REFERENCES `p` (`id`)" in twin.under_test.fails("DROP TABLE p", 1451)
    twin.run("DROP TABLE p, c")
    twin.run("SHOW TABLES LIKE 'c'")
    twin.ok("DROP TABLE IF EXISTS c")
    twin.ok("DROP TABLE p")
    family(twin)
    twin.ok("SET foreign_key_checks = 0")
    twin.ok("DROP TABLE p")
    twin.ok("SET foreign_key_checks = 1")
    twin.ok("DROP TABLE c")


@pytest.mark.pbxt_only
def test_drop_database_takes_a_family_but_no_parent_of_others(db):
    db.ok("SET pbxt_foreign_key_drop = 'RESTRICT'")
    other = f"{db.name}_x"
    db.ok(f"CREATE DATABASE {other}")
    db.ok(f"CREATE TABLE {other}.p (id INT PRIMARY KEY) ENGINE=PBXT")
    db.ok(f"CREATE TABLE {other}.c (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=PBXT")
    db.ok(f"DROP DATABASE {other}")
    db.ok(f"CREATE DATABASE {other}")
    db.ok(f"CREATE TABLE {other}.p (id INT PRIMARY KEY) ENGINE=PBXT")
    db.ok(f"CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES {other}.p (id)) ENGINE=PBXT")
    db.fails(f"DROP DATABASE {other}", (1451, 1217, 1010))
    db.ok("DROP TABLE c")
    db.ok(f"DROP DATABASE {other}")


def test_truncate_is_refused_for_a_parent_with_children(twin):
    family(twin)
    twin.fails("TRUNCATE TABLE p", 1701)
    twin.ok("TRUNCATE TABLE c")
    twin.fails("INSERT INTO c VALUES (1, 9)", 1452)
    twin.ok("SET foreign_key_checks = 0")
    twin.ok("TRUNCATE TABLE p")
    twin.ok("SET foreign_key_checks = 1")
    twin.fails("INSERT INTO c VALUES (1, 1)", 1452)
    same_shown(twin, "c")


def test_renamed_tables_stay_joined(twin):
    family(twin)
    twin.ok("RENAME TABLE p TO parents")
    twin.ok("RENAME TABLE c TO children")
    same_shown(twin, "children")
    twin.fails("INSERT INTO children VALUES (3, 3)", 1452)
    twin.fails("DELETE FROM parents", 1451)
    twin.ok("ALTER TABLE parents RENAME TO p")
    same_shown(twin, "children")


@pytest.mark.pbxt_only
def test_a_rename_beside_other_changes_is_refused_for_a_parent(db):
    family(db)
    db.fails("ALTER TABLE p RENAME TO q, ADD COLUMN more INT, ALGORITHM=COPY", 1846)
    db.ok("ALTER TABLE c RENAME TO d, ADD COLUMN more INT, ALGORITHM=COPY")
    db.fails("INSERT INTO d VALUES (3, 3, 3)", 1452)


def test_tables_that_take_no_part(twin):
    twin.ok(PARENT)
    twin.fails("CREATE TEMPORARY TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine}", 1005)
    twin.fails("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine} PARTITION BY HASH (p)", 1506)
    twin.ok("CREATE TEMPORARY TABLE q (id INT PRIMARY KEY) ENGINE={engine}")
    twin.fails("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES q (id)) ENGINE={engine}", 1005)
    twin.ok("CREATE TABLE r (id INT PRIMARY KEY) ENGINE={engine} PARTITION BY HASH (id)")
    twin.fails("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES r (id)) ENGINE={engine}", 1005)
    twin.ok("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=Aria")
    twin.fails("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES m (id)) ENGINE={engine}", 1005)


@pytest.mark.pbxt_only
def test_rows_of_temporary_tables_are_changed_after_definitions_with_keys(twin):
    # A temporary table has a name like the copy that ALTER makes; what the statement before it defined is over.
    for _ in range(3):
        family(twin)
        twin.ok("ALTER TABLE c ADD CONSTRAINT more FOREIGN KEY (id) REFERENCES p (id), ADD v INT")
        twin.ok("CREATE TEMPORARY TABLE q (id INT PRIMARY KEY, k INT, KEY (k)) ENGINE={engine}")
        twin.ok("BEGIN")
        twin.ok("INSERT INTO q VALUES (4, 40), (5, 50)")
        twin.ok("INSERT INTO p SELECT id, k, 'q' FROM q")
        twin.ok("UPDATE q SET k = k + 1")
        twin.ok("INSERT INTO c SELECT id, id, k FROM q")
        twin.ok("DELETE FROM q WHERE id = 4")
        twin.ok("DROP TEMPORARY TABLE q")
        twin.ok("COMMIT")
        twin.same("SELECT * FROM c ORDER BY id")
        twin.ok("DROP TABLE c, p")


def test_a_parent_of_another_engine_is_named(db):
    db.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=InnoDB")
    db.fails("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=PBXT", 1005)
    assert any("belongs to engine InnoDB" in row[2] for row in db.rows("SHOW WARNINGS"))


@pytest.mark.pbxt_only
def test_conversion_wants_the_constraints_dropped_first(db):
    family(db)
    for table in "pc":
        db.fails(f"ALTER TABLE {table} ENGINE=InnoDB", (1217, 1451))
    db.ok("ALTER TABLE c DROP FOREIGN KEY fk")
    for table in "pc":
        db.ok(f"ALTER TABLE {table} ENGINE=InnoDB")
    db.ok("ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)")
    for table in "pc":
        db.fails(f"ALTER TABLE {table} ENGINE=PBXT", (1217, 1451))
    db.ok("ALTER TABLE c DROP FOREIGN KEY fk")
    for table in "pc":
        db.ok(f"ALTER TABLE {table} ENGINE=PBXT")
    db.ok("ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)")
    db.fails("DELETE FROM p", 1451)


def test_a_dump_with_a_cycle_comes_back(db, shared_server):
    db.ok("SET foreign_key_checks = 0")
    db.ok("CREATE TABLE a (id INT PRIMARY KEY, b INT, CONSTRAINT a_to_b FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL) ENGINE={engine}")
    db.ok("CREATE TABLE b (id INT PRIMARY KEY, a INT, CONSTRAINT b_to_a FOREIGN KEY (a) REFERENCES a (id) ON UPDATE CASCADE) ENGINE={engine}")
    db.ok("CREATE TABLE t (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES t (id)) ENGINE={engine}")
    db.ok("INSERT INTO a VALUES (1, 1), (2, 2)")
    db.ok("INSERT INTO b VALUES (1, 2), (2, 1)")
    db.ok("SET foreign_key_checks = 1")
    db.ok("INSERT INTO t VALUES (1, NULL), (2, 1)")
    before = [shown(db, name) for name in "abt"] + [db.rows(f"SELECT * FROM {name} ORDER BY 1") for name in "abt"]
    
    dump = subprocess.run([*shared_server.client_program("mariadb-dump"), db.name], capture_output=True, check=True).stdout
    for name in "abt":
        db.ok("SET foreign_key_checks = 0")
        db.ok(f"DROP TABLE {name}")
    db.ok("SET foreign_key_checks = 1")
    subprocess.run([*shared_server.client_program("mariadb"), db.name], input=dump, check=True)
    after = [shown(db, name) for name in "abt"] + [db.rows(f"SELECT * FROM {name} ORDER BY 1") for name in "abt"]
    assert before == after
    db.fails("INSERT INTO a VALUES (3, 9)", 1452)
    db.ok("UPDATE a SET id = 22 WHERE id = 2")
    assert db.rows("SELECT * FROM b ORDER BY id") == [(1, 22), (2, 1)]


def test_constraints_outlive_a_restart(own_server, engine):
    server = own_server()
    from sql_tools import Session

    session = Session(server, None, engine)
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok(f"SET default_storage_engine = {engine}")
    family(session)
    session.ok("ALTER TABLE c ADD COLUMN more INT, ALGORITHM=COPY")
    text = session.rows("SHOW CREATE TABLE c")
    session.close()
    server.restart()
    session = Session(server, "d", engine)
    assert session.rows("SHOW CREATE TABLE c") == text
    session.fails("INSERT INTO c VALUES (3, 3, 3)", 1452)
    session.fails("DELETE FROM p", 1451)
    session.close()
    server.kill()
    server.start()
    session = Session(server, "d", engine)
    assert session.rows("SHOW CREATE TABLE c") == text
    session.fails("DELETE FROM p", 1451)
    session.close()


def test_create_like_and_create_or_replace(twin):
    family(twin)
    twin.ok("CREATE TABLE l LIKE c")
    same_shown(twin, "l")
    twin.ok("CREATE OR REPLACE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (k)) ENGINE={engine}")
    same_shown(twin, "c")
    twin.ok("INSERT INTO c VALUES (1, 10)")
    twin.fails("INSERT INTO c VALUES (2, 1)", 1452)


def test_sql_modes_decide_how_names_are_quoted(twin):
    family(twin)
    twin.ok("SET sql_mode = 'ANSI_QUOTES'")
    same_shown(twin, "c")


@pytest.mark.pbxt_only
def test_tables_that_keep_former_rows_take_no_part(db):
    """Rule FK50: a former row would keep its parent for ever, or be a parent that is gone."""
    db.ok(PARENT)
    versioned = "CREATE TABLE {name} (id INT PRIMARY KEY, p INT{more}) WITH SYSTEM VERSIONING"
    db.fails(versioned.format(name="c", more=", FOREIGN KEY (p) REFERENCES p (id)"), 1005)
    assert any("SYSTEM VERSIONING" in row[2] for row in db.rows("SHOW WARNINGS"))
    db.ok(versioned.format(name="v", more=""))
    db.fails("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES v (id))", 1005)
    assert any("int with former rows" in row[2] for row in db.rows("SHOW WARNINGS"))
    db.fails("ALTER TABLE v ADD FOREIGN KEY (p) REFERENCES p (id)", 1005)
    db.ok(CHILD)
    db.fails("ALTER TABLE c ADD SYSTEM VERSIONING", 1005)
    db.fails("ALTER TABLE p ADD SYSTEM VERSIONING", 1005)
    db.ok("ALTER TABLE c DROP FOREIGN KEY fk")
    db.ok("ALTER TABLE c ADD SYSTEM VERSIONING")
    db.ok("ALTER TABLE p ADD SYSTEM VERSIONING")
    db.ok("ALTER TABLE p DROP SYSTEM VERSIONING")
    db.ok("ALTER TABLE c DROP SYSTEM VERSIONING")
    db.ok("ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)")


def table_and_reader(db, child, added):
    """A parent, a child whose transaction keeps an ALTER from its end, and the ALTER when it has copied and waits for it."""
    db.ok("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO p VALUES (1, 0), (2, 0)")
    db.ok(f"CREATE TABLE c (id INT PRIMARY KEY, p INT, q INT, KEY (p), KEY (q){child}) ENGINE={{engine}}")
    db.ok("INSERT INTO c VALUES (1, 1, 2)")
    reader, changer = db.session(), db.session()
    reader.ok("BEGIN")
    reader.ok("SELECT * FROM c")
    altering = changer.later(f"ALTER TABLE c {added}, ALGORITHM=COPY")
    waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE c%' AND state LIKE 'Waiting for table metadata lock'"
    wait_for(lambda: db.value(waits) == 1, what="the ALTER waits for the reader")
    return reader, altering


@pytest.mark.pbxt_only
@pytest.mark.parametrize("change", ["DELETE FROM p WHERE id = 1", "UPDATE p SET id = 9 WHERE id = 1", "TRUNCATE TABLE p"])
def test_a_parent_stays_while_the_constraint_that_needs_it_comes(db, change):
    reader, altering = table_and_reader(db, "", "ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT")
    changing = db.session().later(change)
    changing.waits()
    reader.ok("COMMIT")
    assert altering.result().error is None
    assert changing.result().error[0] in (1451, 1701)
    assert [row[2:] for row in db.rows("CHECK TABLE c EXTENDED")] == [("status", "OK")]


@pytest.mark.pbxt_only
def test_an_action_waits_for_the_copy_of_its_children(db):
    key = "CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE"
    reader, altering = table_and_reader(db, f", {key}", "ADD CONSTRAINT other FOREIGN KEY (q) REFERENCES p (id) ON DELETE SET NULL")
    deleting = db.session().later("DELETE FROM p")
    assert deleting.waits()
    reader.ok("COMMIT")
    for waiting in (altering, deleting):
        assert waiting.result().error is None
    assert db.rows("SELECT * FROM c") == []
    assert [row[2:] for row in db.rows("CHECK TABLE c EXTENDED")] == [("status", "OK")]


@pytest.mark.pbxt_only
def test_an_alter_that_is_given_up_refuses_nothing_any_more(db):
    db.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    db.ok("INSERT INTO p VALUES (1)")
    db.ok("CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY (p)) ENGINE={engine}")
    db.ok("INSERT INTO c VALUES (1, 1)")
    reader = db.session()
    reader.ok("BEGIN")
    reader.ok("SELECT * FROM c")
    changer = db.session()
    changer.ok("SET lock_wait_timeout = 1")
    changer.fails("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id), ALGORITHM=COPY", 1205)
    db.ok("DELETE FROM p WHERE id = 1")
    reader.ok("COMMIT")
    changer.fails("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id), ALGORITHM=COPY", 1452)


def delete_parents(session, draw, end, seen):
    """Deletes one parent after the other; the number of each that went and what other errors came."""
    while not end.is_set():
        number = draw.randrange(1, 1001)
        answer = session.run(f"DELETE FROM p WHERE id = {number}")
        if answer.error is None and answer.affected:
            seen.append(number)
        elif answer.error and answer.error[0] != 1451:
            seen.append(answer.error)
        time.sleep(draw.random() * 0.01)


@pytest.mark.pbxt_only
@pytest.mark.parametrize("action", ["RESTRICT", "CASCADE", "SET NULL"])
def test_no_child_is_left_behind_while_tables_are_exchanged(db, action):
    db.ok("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO p SELECT seq, 0 FROM seq_1_to_1000")
    db.ok(f"CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) ON DELETE {action}) ENGINE={{engine}}")
    db.ok("INSERT INTO c SELECT seq, seq FROM seq_1_to_1000")
    end, gone = threading.Event(), []
    threads = [threading.Thread(target=delete_parents, args=(db.session(), random.Random(seed), end, gone)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        db.ok("ALTER TABLE c FORCE, ALGORITHM=COPY")
    end.set()
    for thread in threads:
        thread.join()
    assert [answer for answer in gone if action == "RESTRICT" or isinstance(answer, tuple)] == []
    assert [row[2:] for row in db.rows("CHECK TABLE c EXTENDED")] == [("status", "OK")]
    assert db.value("SELECT COUNT(*) FROM c WHERE p IS NOT NULL") == 1000 - len(gone)


def add_children(session, numbers, end, refused):
    """One child after the other, of a parent that stays."""
    for number in numbers:
        if end.is_set():
            return
        if answer := session.run(f"INSERT INTO c VALUES ({number}, {number % 100 + 1})").error:
            refused.append(answer)


@pytest.mark.pbxt_only
def test_children_come_while_their_parent_is_exchanged(db):
    db.ok("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    db.ok("INSERT INTO p SELECT seq, 0 FROM seq_1_to_100")
    db.ok("CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine}")
    end, refused = threading.Event(), []
    threads = [threading.Thread(target=add_children, args=(db.session(), range(first, 1 << 30, 4), end, refused)) for first in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        db.ok("ALTER TABLE p FORCE, ALGORITHM=COPY")
    end.set()
    for thread in threads:
        thread.join()
    assert refused == []
    assert [row[2:] for row in db.rows("CHECK TABLE c EXTENDED")] == [("status", "OK")]


def test_the_copy_that_alter_makes_is_named_as_it_is(db):
    db.ok("CREATE TABLE p (n INT PRIMARY KEY)")
    db.ok("CREATE TABLE c (n INT, KEY (n))")
    db.ok("INSERT INTO c VALUES (1)")
    answer = db.run("ALTER TABLE c ADD FOREIGN KEY (n) REFERENCES p (n), ALGORITHM=COPY")
    assert answer.error[0] == 1452 and "#mysql50#" not in answer.error[1] and "#sql-alter" in answer.error[1], answer
