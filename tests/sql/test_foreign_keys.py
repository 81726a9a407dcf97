"""Foreign keys kept by statements: every action, every way a row comes, changes and goes, compared with InnoDB in the same server."""

import pytest

PARENT = "CREATE TABLE p (id INT PRIMARY KEY, k INT, w VARCHAR(20), UNIQUE KEY (k), UNIQUE KEY (w)) ENGINE={engine}"


def child(clause, columns="id INT PRIMARY KEY, p INT, KEY (p)", name="c"):
    return f"CREATE TABLE {name} ({columns}, CONSTRAINT fk_{name} FOREIGN KEY (p) REFERENCES p (id) {clause}) ENGINE={{engine}}"


def prepare(twin, clause="", columns="id INT PRIMARY KEY, p INT, KEY (p)"):
    twin.ok(PARENT)
    twin.ok(child(clause, columns))
    twin.ok("INSERT INTO p SELECT seq, seq * 10, CONCAT('w', seq) FROM seq_1_to_20")
    twin.ok("INSERT INTO c SELECT seq, 1 + seq % 20 FROM seq_1_to_100")
    twin.ok("INSERT INTO c VALUES (1000, NULL)")


def both(twin):
    twin.same_table("p")
    twin.same_table("c")


def test_the_session_of_departments_and_employees(db):
    db.ok("CREATE TABLE dept (deptid INT NOT NULL DEFAULT '0', deptname VARCHAR(20), PRIMARY KEY pk_deptid (deptid)) ENGINE=PBXT")
    db.ok(
        "CREATE TABLE emp (empid INT NOT NULL DEFAULT '0', deptid INT NOT NULL DEFAULT '0', PRIMARY KEY pk_empid (empid), "
        "KEY emp_deptid (deptid), CONSTRAINT FK_emp_1 FOREIGN KEY (deptid) REFERENCES dept (deptid)) ENGINE=PBXT"
    )
    assert db.affected("INSERT INTO dept VALUES (1,'HR'),(2,'IT'),(3,'FINANCE')") == 3
    assert db.affected("INSERT INTO emp VALUES (1,1),(2,2),(3,3)") == 3
    text = db.fails("INSERT INTO emp VALUES (4,4)", 1452)
    assert text.startswith("Cannot add or update a child row: a foreign key constraint fails (")
    assert "CONSTRAINT `FK_emp_1`" in text
    text = db.fails("DELETE FROM dept WHERE deptid = 2", 1451)
    assert text.startswith("Cannot delete or update a parent row: a foreign key constraint fails (")
    assert "CONSTRAINT `FK_emp_1`" in text
    db.ok("ALTER TABLE emp DROP FOREIGN KEY FK_emp_1")
    changed = db.affected(
        "ALTER TABLE emp ADD CONSTRAINT FK_emp_1 FOREIGN KEY FK_emp_1 (deptid) REFERENCES dept (deptid) "
        "ON DELETE CASCADE ON UPDATE RESTRICT, ENGINE = PBXT"
    )
    assert changed == 3
    assert db.affected("DELETE FROM dept WHERE deptid = 2") == 1
    assert db.rows("SELECT * FROM dept") == [(1, "HR"), (3, "FINANCE")]
    assert db.rows("SELECT * FROM emp") == [(1, 1), (3, 3)]


def test_violations_are_told_as_innodb_tells_them(twin):
    prepare(twin, "ON DELETE RESTRICT ON UPDATE NO ACTION")
    for statement, code in [
        ("INSERT INTO c VALUES (2000, 99)", 1452),
        ("UPDATE c SET p = 99 WHERE id = 1", 1452),
        ("DELETE FROM p WHERE id = 3", 1451),
        ("UPDATE p SET id = 300 WHERE id = 3", 1451),
    ]:
        told = [side.fails(statement, code).replace(side.name, "d") for side in (twin.under_test, twin.oracle)]
        assert told[0] == told[1]
    both(twin)


@pytest.mark.parametrize("clause", ["", "ON DELETE RESTRICT ON UPDATE RESTRICT", "ON DELETE NO ACTION ON UPDATE NO ACTION"])
def test_what_is_referred_to_stays(twin, clause):
    prepare(twin, clause)
    twin.fails("DELETE FROM p WHERE id = 5", 1451)
    twin.fails("UPDATE p SET id = 50 WHERE id = 5", 1451)
    twin.ok("UPDATE p SET k = -1, w = 'other' WHERE id = 5")
    twin.ok("UPDATE p SET id = 5 WHERE id = 5")
    twin.fails("UPDATE p SET id = id + 1000", 1451)
    twin.ok("DELETE FROM c WHERE p = 5")
    twin.ok("UPDATE p SET id = 50 WHERE id = 5")
    twin.ok("DELETE FROM p WHERE id = 50")
    twin.fails("REPLACE INTO p VALUES (7, 70, 'again')", 1451)
    both(twin)


@pytest.mark.parametrize("delete", ["RESTRICT", "CASCADE", "SET NULL", "NO ACTION"])
@pytest.mark.parametrize("update", ["RESTRICT", "CASCADE", "SET NULL", "NO ACTION"])
def test_every_pair_of_actions(twin, delete, update):
    prepare(twin, f"ON DELETE {delete} ON UPDATE {update}")
    twin.run("DELETE FROM p WHERE id IN (2, 3)")
    both(twin)
    twin.run("UPDATE p SET id = id + 500 WHERE id > 10 ORDER BY id DESC")
    both(twin)
    twin.run("UPDATE p SET id = 600 WHERE id = 4")
    twin.run("DELETE FROM p")
    both(twin)


def test_values_that_come_by_every_statement_are_looked_up(twin):
    prepare(twin)
    twin.fails("INSERT INTO c VALUES (2000, 1), (2001, 77)", 1452)
    twin.fails("INSERT INTO c SELECT seq + 5000, seq FROM seq_1_to_500", 1452)
    twin.fails("REPLACE INTO c VALUES (1, 77)", 1452)
    twin.fails("INSERT INTO c VALUES (1, 2) ON DUPLICATE KEY UPDATE p = 77", 1452)
    twin.fails("UPDATE c, p SET c.p = 77 WHERE c.p = p.id", 1452)
    twin.ok("INSERT IGNORE INTO c VALUES (3000, 1), (3001, 77), (3002, 2)")
    twin.ok("UPDATE IGNORE c SET p = id WHERE id BETWEEN 10 AND 30")
    twin.ok("DELETE IGNORE FROM p WHERE id < 5")
    twin.ok("INSERT INTO c VALUES (4000, NULL)")
    twin.ok("UPDATE c SET p = NULL WHERE id = 7")
    both(twin)


def test_a_statement_that_fails_half_way_leaves_nothing(twin):
    prepare(twin, "ON DELETE CASCADE")
    twin.ok("CREATE TABLE g (id INT PRIMARY KEY, c INT, KEY (c), FOREIGN KEY (c) REFERENCES c (id)) ENGINE={engine}")
    twin.ok("INSERT INTO g VALUES (1, 57)")
    twin.ok("BEGIN")
    twin.ok("DELETE FROM p WHERE id = 1")
    twin.fails("DELETE FROM p", 1451)
    both(twin)
    twin.same_table("g")
    twin.ok("ROLLBACK")
    both(twin)


def test_composite_keys_and_nulls(twin):
    twin.ok("CREATE TABLE p (a INT, b VARCHAR(10), c INT, PRIMARY KEY (a, b), KEY (b, a)) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, b VARCHAR(30), a INT, KEY (b, a), "
        "FOREIGN KEY (b, a) REFERENCES p (b, a) ON UPDATE CASCADE ON DELETE SET NULL) ENGINE={engine}"
    )
    twin.ok("INSERT INTO p VALUES (1, 'x', 1), (2, 'X y', 2), (3, '', 3)")
    twin.ok("INSERT INTO c VALUES (1, 'x', 1), (2, 'x ', 1), (3, 'X Y', 2), (4, NULL, 77), (5, 'none', NULL), (6, '', 3)")
    twin.fails("INSERT INTO c VALUES (7, 'x', 2)", 1452)
    twin.ok("UPDATE p SET b = 'z', a = 9 WHERE a = 1")
    both(twin)
    twin.ok("DELETE FROM p WHERE a = 2")
    both(twin)


@pytest.mark.parametrize("kind, values", [
    ("BIGINT UNSIGNED", ["0", "18446744073709551615"]), ("DECIMAL(12,3)", ["-1.5", "999999999.999"]),
    ("DATE", ["'2026-01-01'", "'1970-12-31'"]), ("DATETIME(3)", ["'2026-01-01 10:00:00.125'", "'2026-01-01 10:00:00.126'"]),
    ("TIME", ["'-10:00:00'", "'10:00:00'"]), ("TIMESTAMP", ["'2026-01-01 10:00:00'", "'2020-01-01 10:00:00'"]), ("YEAR", ["1999", "2026"]),
    ("CHAR(10)", ["'ab'", "'b'"]), ("VARCHAR(300)", ["REPEAT('y', 200)", "'ä'"]), ("VARBINARY(40)", ["X'00FF'", "X'00'"]),
    ("BINARY(8)", ["X'0102'", "'z'"]), ("ENUM('a','b','c')", ["'a'", "'c'"]), ("SET('a','b','c')", ["'a,b'", "''"]),
    ("VARCHAR(20) COLLATE utf8mb4_bin", ["'A'", "'a'"]), ("VARCHAR(20) COLLATE utf8mb4_unicode_ci", ["'Ä'", "'b'"]),
    ("INET6", ["'::1'", "'fe80::1'"]), ("UUID", ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000001'"]),
    ("BIT(12)", ["b'101'", "b'111111111111'"]), ("DOUBLE", ["1.5", "-0.25"]),
])  # fmt: skip
def test_columns_of_every_type(twin, kind, values):
    first, second = values
    twin.ok(f"CREATE TABLE p (v {kind} NOT NULL PRIMARY KEY) ENGINE={{engine}}")
    twin.ok(
        f"CREATE TABLE c (n INT PRIMARY KEY, v {kind} NULL, KEY (v), FOREIGN KEY (v) REFERENCES p (v) "
        "ON DELETE SET NULL ON UPDATE CASCADE) ENGINE={engine}"
    )
    twin.ok(f"INSERT INTO p VALUES ({first})")
    twin.ok(f"INSERT INTO c VALUES (1, {first}), (2, NULL)")
    twin.fails(f"INSERT INTO c VALUES (3, {second})", 1452)
    twin.ok(f"UPDATE p SET v = {second}")
    twin.same_table("c")
    twin.ok("DELETE FROM p")
    twin.same_table("c")


@pytest.mark.pbxt_only
def test_binary_columns_of_two_lengths_have_no_value_in_common(db):
    db.ok("CREATE TABLE p (v BINARY(4) PRIMARY KEY) ENGINE={engine}")
    db.ok("INSERT INTO p VALUES (X'61620000')")
    assert db.rows("SELECT COUNT(*) FROM p WHERE v = CAST('ab' AS BINARY(2))") == [(0,)]
    refers = "CREATE TABLE c (v BINARY({length}), KEY (v), FOREIGN KEY (v) REFERENCES p (v)) ENGINE={{engine}}"
    db.fails(refers.format(length=2), 1005)
    db.ok(refers.format(length=4))
    db.ok("INSERT INTO c VALUES ('ab')")


def test_a_table_that_refers_to_itself(twin):
    twin.ok(
        "CREATE TABLE t (id INT PRIMARY KEY, boss INT, KEY (boss), FOREIGN KEY (boss) REFERENCES t (id) ON DELETE CASCADE) ENGINE={engine}"
    )
    twin.ok("INSERT INTO t VALUES (1, 1)")
    twin.ok("INSERT INTO t VALUES (2, 1), (3, 2), (4, 3), (5, NULL), (6, 5)")
    twin.fails("INSERT INTO t VALUES (7, 8), (8, 1)", 1452)
    twin.ok("DELETE FROM t WHERE id = 2")
    twin.same_table("t")
    twin.ok("DELETE FROM t WHERE id = 1")
    twin.same_table("t")


def test_two_tables_that_refer_to_each_other(twin):
    twin.ok("SET foreign_key_checks = 0")
    twin.ok("CREATE TABLE a (id INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES b (id) ON DELETE CASCADE) ENGINE={engine}")
    twin.ok("CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE) ENGINE={engine}")
    twin.ok("INSERT INTO a VALUES (1, 1), (2, 2)")
    twin.ok("INSERT INTO b VALUES (1, 2), (2, 1)")
    twin.ok("SET foreign_key_checks = 1")
    twin.ok("INSERT INTO b VALUES (3, 2)")
    twin.fails("INSERT INTO b VALUES (4, 3)", 1452)
    twin.ok("DELETE FROM a WHERE id = 1")
    twin.same_table("a")
    twin.same_table("b")


@pytest.mark.pbxt_only
def test_set_default_takes_the_default_and_looks_it_up(db):
    db.ok(PARENT)
    db.ok(child("ON DELETE SET DEFAULT ON UPDATE SET DEFAULT", "id INT PRIMARY KEY, p INT DEFAULT 1, KEY (p)"))
    db.ok("INSERT INTO p VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    db.ok("INSERT INTO c VALUES (1, 2), (2, 3)")
    db.ok("DELETE FROM p WHERE id = 2")
    db.ok("UPDATE p SET id = 33 WHERE id = 3")
    assert db.rows("SELECT * FROM c ORDER BY id") == [(1, 1), (2, 1)]
    db.fails("DELETE FROM p WHERE id = 1", (1451, 1452))
    assert db.rows("SELECT * FROM c ORDER BY id") == [(1, 1), (2, 1)]
    assert "ON DELETE SET DEFAULT ON UPDATE SET DEFAULT" in db.rows("SHOW CREATE TABLE c")[0][1]


def test_triggers_do_not_fire_for_actions(twin):
    prepare(twin, "ON DELETE CASCADE ON UPDATE CASCADE")
    twin.ok("CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(40)) ENGINE={engine}")
    twin.ok("CREATE TRIGGER c_gone AFTER DELETE ON c FOR EACH ROW INSERT INTO log (what) VALUES ('child gone')")
    twin.ok("CREATE TRIGGER c_changed AFTER UPDATE ON c FOR EACH ROW INSERT INTO log (what) VALUES ('child changed')")
    twin.ok("CREATE TRIGGER p_gone AFTER DELETE ON p FOR EACH ROW INSERT INTO log (what) VALUES ('parent gone')")
    twin.ok("DELETE FROM p WHERE id = 3")
    twin.ok("UPDATE p SET id = 400 WHERE id = 4")
    twin.same_table("log")
    both(twin)


def test_triggers_and_procedures_are_held_to_constraints(twin):
    prepare(twin)
    twin.ok("CREATE TABLE other (n INT PRIMARY KEY) ENGINE={engine}")
    twin.ok("CREATE TRIGGER makes AFTER INSERT ON other FOR EACH ROW INSERT INTO c VALUES (NEW.n, NEW.n)")
    twin.fails("INSERT INTO other VALUES (5000)", 1452)
    twin.ok("CREATE PROCEDURE remove(n INT) DELETE FROM p WHERE id = n")
    twin.fails("CALL remove(3)", 1451)
    twin.same_table("other")
    both(twin)


def test_prepared_statements_see_each_change_of_definitions(twin):
    prepare(twin)
    twin.ok("PREPARE del FROM 'DELETE FROM p WHERE id = ?'")
    twin.ok("SET @n = 3")
    twin.fails("EXECUTE del USING @n", 1451)
    twin.ok("ALTER TABLE c DROP FOREIGN KEY fk_c")
    twin.ok("EXECUTE del USING @n")
    twin.ok("DELETE FROM c WHERE p = 3")
    twin.ok("ALTER TABLE c ADD CONSTRAINT fk_c FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")
    twin.ok("SET @n = 4")
    twin.ok("EXECUTE del USING @n")
    both(twin)


def test_under_lock_tables_actions_reach_tables_that_were_not_named(twin):
    prepare(twin, "ON DELETE CASCADE")
    twin.ok("LOCK TABLES p WRITE")
    twin.ok("DELETE FROM p WHERE id = 3")
    twin.ok("UNLOCK TABLES")
    both(twin)


def test_savepoints_undo_what_actions_did(twin):
    prepare(twin, "ON DELETE CASCADE ON UPDATE CASCADE")
    twin.ok("BEGIN")
    twin.ok("DELETE FROM p WHERE id = 3")
    twin.ok("SAVEPOINT s")
    twin.ok("DELETE FROM p WHERE id < 10")
    twin.ok("UPDATE p SET id = id + 100 ORDER BY id DESC")
    twin.ok("ROLLBACK TO SAVEPOINT s")
    both(twin)
    twin.ok("COMMIT")
    both(twin)


def test_checks_switched_off_look_nothing_up_and_act_on_nothing(twin):
    prepare(twin, "ON DELETE CASCADE")
    twin.ok("SET foreign_key_checks = 0")
    twin.ok("DELETE FROM p WHERE id = 3")
    twin.ok("INSERT INTO c VALUES (6000, 88)")
    both(twin)
    twin.ok("SET foreign_key_checks = 1")
    twin.fails("INSERT INTO c VALUES (6001, 3)", 1452)
    twin.fails("UPDATE c SET p = 89 WHERE id = 6000", 1452)
    both(twin)


@pytest.mark.pbxt_only
def test_a_value_that_stays_is_not_looked_up_again(db):
    db.ok(PARENT)
    db.ok(child(""))
    db.ok("SET foreign_key_checks = 0")
    db.ok("INSERT INTO c VALUES (1, 88)")
    db.ok("SET foreign_key_checks = 1")
    db.ok("UPDATE c SET id = 2, p = 88 WHERE id = 1")
    db.fails("UPDATE c SET p = 89 WHERE id = 2", 1452)


def test_generated_columns_and_their_indexes_follow_actions(twin):
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, twice INT AS (p * 2) VIRTUAL, KEY (twice), KEY (p), "
        "FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET NULL) ENGINE={engine}"
    )
    twin.ok("INSERT INTO p VALUES (1), (2), (3)")
    twin.ok("INSERT INTO c (id, p) SELECT seq, 1 + seq % 3 FROM seq_1_to_30")
    twin.ok("UPDATE p SET id = 30 WHERE id = 3")
    twin.ok("DELETE FROM p WHERE id = 2")
    twin.same("SELECT id FROM c FORCE INDEX (twice) WHERE twice = 60")
    twin.same("SELECT id FROM c FORCE INDEX (twice) WHERE twice IS NULL")
    twin.same("SELECT id FROM c FORCE INDEX (twice) WHERE twice = 6")
    both(twin)


def test_long_virtual_columns_and_their_indexes_follow_actions(twin):
    twin.ok("CREATE TABLE p (a VARCHAR(300) PRIMARY KEY) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, a VARCHAR(300), v TEXT AS (CONCAT('x', a)) VIRTUAL, KEY v (v(20)), KEY (a), "
        "FOREIGN KEY (a) REFERENCES p (a) ON UPDATE CASCADE ON DELETE SET NULL) ENGINE={engine}"
    )
    twin.ok("INSERT INTO p VALUES ('one'), ('other')")
    twin.ok("INSERT INTO c (id, a) SELECT seq, IF(seq % 2, 'one', 'other') FROM seq_1_to_30")
    values = ["one", "two", "much longer than before", "s", "z" * 250, "zz"]
    for old, new in zip(values, values[1:]):
        twin.ok(f"UPDATE p SET a = '{new}' WHERE a = '{old}'")
        for value in (old, new, "other"):
            twin.same(f"SELECT id FROM c FORCE INDEX (v) WHERE v = 'x{value}'")
    twin.ok("DELETE FROM p WHERE a = 'zz'")
    twin.same("SELECT id FROM c FORCE INDEX (v) WHERE v = 'xzz'")
    twin.same("SELECT id FROM c FORCE INDEX (v) WHERE v IS NULL")
    both(twin)


def test_several_constraints_between_the_same_tables(twin):
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE, "
        "FOREIGN KEY (b) REFERENCES p (id) ON DELETE SET NULL) ENGINE={engine}"
    )
    twin.ok("INSERT INTO p VALUES (1), (2), (3)")
    twin.ok("INSERT INTO c VALUES (1, 1, 2), (2, 2, 1), (3, 3, 3), (4, 1, 1)")
    twin.ok("DELETE FROM p WHERE id = 1")
    both(twin)


def test_a_child_in_another_database(db):
    db.ok(PARENT)
    db.ok("INSERT INTO p VALUES (1, 1, 'a'), (2, 2, 'b')")
    other = f"{db.name}_x"
    db.ok(f"CREATE DATABASE {other}")
    try:
        db.ok(f"CREATE TABLE {other}.c (p INT, FOREIGN KEY (p) REFERENCES {db.name}.p (id) ON DELETE CASCADE) ENGINE={{engine}}")
        assert f"REFERENCES `{db.name}`.`p` (`id`)" in db.rows(f"SHOW CREATE TABLE {other}.c")[0][1]
        db.ok(f"INSERT INTO {other}.c VALUES (1), (2)")
        db.fails(f"INSERT INTO {other}.c VALUES (3)", 1452)
        db.ok("DELETE FROM p WHERE id = 1")
        assert db.rows(f"SELECT * FROM {other}.c") == [(2,)]
    finally:
        db.ok(f"DROP DATABASE {other}")


def test_check_table_finds_nothing_after_actions(db):
    db.ok(PARENT)
    db.ok(child("ON DELETE CASCADE ON UPDATE CASCADE"))
    db.ok("INSERT INTO p SELECT seq, seq, CONCAT('w', seq) FROM seq_1_to_200")
    db.ok("INSERT INTO c SELECT seq, 1 + seq % 200 FROM seq_1_to_4000")
    db.ok("UPDATE p SET id = id + 1000 WHERE id % 3 = 0")
    db.ok("DELETE FROM p WHERE id % 5 = 0")
    for name in "pc":
        assert db.rows(f"CHECK TABLE {name} EXTENDED")[-1][-1] == "OK"
    assert db.value("SELECT COUNT(*) FROM c LEFT JOIN p ON c.p = p.id WHERE p.id IS NULL") == 0


def lines_of_check(session, table, options="EXTENDED"):
    """Kind and text of the lines of CHECK TABLE."""
    return [(row[2], row[3]) for row in session.rows(f"CHECK TABLE {table} {options}")]


@pytest.mark.pbxt_only
def test_check_table_extended_tells_of_orphans(db):
    db.ok(PARENT)
    db.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, w VARCHAR(40), q INT AS (p + 1) VIRTUAL, KEY (q), CONSTRAINT fk_id FOREIGN KEY (p) "
        "REFERENCES p (id), CONSTRAINT fk_w FOREIGN KEY (w) REFERENCES p (w), CONSTRAINT fk_q FOREIGN KEY (q) REFERENCES p (k))"
    )
    db.ok("INSERT INTO p VALUES (1, 2, 'one'), (2, 3, 'two')")
    db.ok("INSERT INTO c (id, p, w) VALUES (1, 1, 'ONE '), (2, NULL, NULL), (3, 2, NULL)")
    assert lines_of_check(db, "c") == [("status", "OK")]
    db.ok("SET foreign_key_checks = 0")
    db.ok("INSERT INTO c (id, p, w) VALUES (4, 7, 'two'), (5, 6, 'it''s gone'), (6, 7, NULL)")
    parent = f"`{db.name}`.`p`"
    told = [
        ("warning", f"foreign key `fk_id`: 3 rows have no parent in {parent}, for example (`p`) = (6)"),
        ("warning", f"foreign key `fk_w`: 1 row has no parent in {parent}: (`w`) = ('it's gone')"),
        ("warning", f"foreign key `fk_q`: 3 rows have no parent in {parent}, for example (`q`) = (7)"),
        ("status", "OK"),
    ]
    assert lines_of_check(db, "c") == told
    assert lines_of_check(db, "c", "") == lines_of_check(db, "c", "MEDIUM") == [("status", "OK")]
    db.ok("SET foreign_key_checks = 1")
    assert lines_of_check(db, "c") == told
    db.ok("INSERT INTO p VALUES (6, 7, 'it''s gone'), (7, 8, NULL)")
    assert lines_of_check(db, "c") == [("status", "OK")]


@pytest.mark.pbxt_only
def test_check_table_extended_names_several_columns_and_tables_that_are_not_there(db):
    db.ok("CREATE TABLE p (a INT, b VARCHAR(10), PRIMARY KEY (a, b))")
    db.ok("CREATE TABLE c (id INT PRIMARY KEY, b VARCHAR(20), a INT, CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES p (a, b))")
    db.ok("INSERT INTO p VALUES (1, 'x')")
    db.ok("INSERT INTO c VALUES (1, 'X', 1)")
    db.ok("SET foreign_key_checks = 0")
    db.ok("INSERT INTO c VALUES (2, 'far too long for p', 1), (3, 'y', NULL)")
    assert lines_of_check(db, "c")[0] == (
        "warning", f"foreign key `fk`: 1 row has no parent in `{db.name}`.`p`: (`a`, `b`) = (1, 'far too long for p')"
    )  # fmt: skip
    db.ok("DROP TABLE p")
    kind, text = lines_of_check(db, "c")[0]
    assert kind == "note" and text.startswith(f"foreign key `fk` is not kept, and rows were not judged by it: of `{db.name}`.`p`, ")
    assert lines_of_check(db, "c")[-1] == ("status", "OK")


STORED = "id INT PRIMARY KEY, p INT, s INT AS ({expression}) STORED, KEY (p)"


@pytest.mark.parametrize("clause", [
    "", "ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE", "ON UPDATE SET NULL", "ON DELETE SET NULL ON UPDATE RESTRICT",
    "ON DELETE CASCADE ON UPDATE CASCADE", "ON DELETE RESTRICT ON UPDATE NO ACTION",
])  # fmt: skip
@pytest.mark.parametrize("way", ["create", "add constraint", "add column"])
def test_actions_on_columns_that_stored_ones_are_computed_from(twin, clause, way):
    """Rule FK9: what InnoDB refuses is refused; what it takes is done and leaves the stored column right."""
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    twin.ok("INSERT INTO p VALUES (1), (2), (3)")
    constraint = f"CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) {clause}"
    steps = {
        "create": [f"CREATE TABLE c ({STORED.format(expression='p + 1')}, {constraint}) ENGINE={{engine}}"],
        "add constraint": [
            f"CREATE TABLE c ({STORED.format(expression='p + 1')}) ENGINE={{engine}}",
            f"ALTER TABLE c ADD {constraint}, ALGORITHM=COPY",
        ],
        "add column": [
            f"CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY (p), {constraint}) ENGINE={{engine}}",
            "ALTER TABLE c ADD COLUMN s INT AS (p + 1) STORED, ALGORITHM=COPY",
        ],
    }[way]
    for step in steps:
        answers = [side.run(step) for side in (twin.under_test, twin.oracle)]
        assert [bool(answer.error) for answer in answers] in ([False, False], [True, True]), [answer.error for answer in answers]
    if any(answer.error for answer in answers):
        return
    twin.ok("INSERT INTO c (id, p) VALUES (1, 1), (2, 2), (3, 3), (4, NULL)")
    twin.run("DELETE FROM p WHERE id = 1")
    twin.run("UPDATE p SET id = 20 WHERE id = 2")
    both(twin)
    twin.same("SELECT COUNT(*) FROM c WHERE NOT s <=> p + 1")


@pytest.mark.parametrize("clause", ["", "ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE", "ON UPDATE SET NULL"])
@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
def test_a_computed_column_refers_but_is_not_written_by_actions(twin, clause, kind):
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    twin.ok("INSERT INTO p VALUES (1), (2), (3)")
    made = [
        side.run(
            f"CREATE TABLE c (id INT PRIMARY KEY, b INT, p INT AS (b - 1) {kind}, KEY (p), "
            f"FOREIGN KEY (p) REFERENCES p (id) {clause}) ENGINE={{engine}}"
        )
        for side in (twin.under_test, twin.oracle)
    ]
    assert bool(made[0].error) == bool(made[1].error), [answer.error for answer in made]
    if made[0].error:
        return
    twin.ok("INSERT INTO c (id, b) VALUES (1, 2), (2, 3), (3, NULL)")
    twin.fails("INSERT INTO c (id, b) VALUES (4, 99)", 1452)
    twin.run("DELETE FROM p WHERE id = 1")
    twin.run("UPDATE p SET id = 20 WHERE id = 2")
    both(twin)


def test_statements_know_at_once_which_tables_refer_to_theirs(twin):
    """The list of children that statements are prepared with is made anew after each change of a name or a constraint."""
    prepare(twin, "ON DELETE CASCADE")
    twin.ok("DELETE FROM p WHERE id = 1")
    twin.ok("RENAME TABLE c TO d")
    twin.ok("DELETE FROM p WHERE id = 2")
    twin.same_table("d")
    twin.ok("CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL) ENGINE={engine}")
    twin.ok("INSERT INTO c VALUES (1, 3), (2, 4)")
    twin.ok("DELETE FROM p WHERE id = 3")
    twin.ok("ALTER TABLE c CHANGE p parent INT")
    twin.ok("DELETE FROM p WHERE id = 4")
    twin.same_table("d")
    twin.same_table("c")
    twin.ok("ALTER TABLE d DROP FOREIGN KEY fk_c")
    twin.ok("DELETE FROM p WHERE id = 5")
    twin.same_table("d")
    twin.ok("DROP TABLE c, d")
    twin.ok("DELETE FROM p")


CHECKED = {
    "UNIQUE u (p, w)": "id INT PRIMARY KEY, p INT DEFAULT 9, w TEXT, KEY (p)",
    "UNIQUE u (w, p)": "id INT PRIMARY KEY, p INT DEFAULT 9, w VARCHAR(3000), KEY (p)",
    "UNIQUE u (p, e WITHOUT OVERLAPS)": "id INT PRIMARY KEY, p INT DEFAULT 9, w TEXT, a DATE DEFAULT '2020-01-01', b DATE DEFAULT '2021-01-01', PERIOD FOR e (a, b), KEY (p)",
}  # fmt: skip


def refused(db, statement):
    """Some of these the server refuses itself (ERROR 4171)."""
    if db.fails(statement, (1005, 4171)).startswith("Key"):
        return
    assert "index 'u' has the values already" in str(db.rows("SHOW WARNINGS"))


@pytest.mark.pbxt_only
@pytest.mark.parametrize("key", CHECKED)
@pytest.mark.parametrize("clause", ["ON DELETE SET DEFAULT", "ON UPDATE SET DEFAULT", "ON UPDATE CASCADE"])
def test_actions_pass_by_no_key_that_the_server_checks(db, key, clause):
    """Rule FK9, whichever of key and constraint comes first."""
    db.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    db.ok("INSERT INTO p VALUES (1), (2), (9)")
    constraint = f"CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) {clause}"
    refused(db, f"CREATE TABLE c ({CHECKED[key]}, {key}, {constraint}) ENGINE={{engine}}")
    db.ok(f"CREATE TABLE c ({CHECKED[key]}, {key}) ENGINE={{engine}}")
    refused(db, f"ALTER TABLE c ADD {constraint}")
    db.ok("DROP TABLE c")
    db.ok(f"CREATE TABLE c ({CHECKED[key]}, {constraint}) ENGINE={{engine}}")
    refused(db, f"ALTER TABLE c ADD {key}")
    db.ok("INSERT INTO c (id, p, w) VALUES (1, 1, 'a'), (2, 2, 'a')")
    db.ok("ALTER TABLE c DROP FOREIGN KEY fk, ADD FOREIGN KEY (p) REFERENCES p (id)")
    db.ok(f"ALTER TABLE c ADD {key}")


@pytest.mark.parametrize("key", CHECKED)
@pytest.mark.parametrize("clause", ["", "ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE SET NULL"])
def test_actions_leave_keys_that_the_server_checks_right(twin, key, clause):
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    twin.ok("INSERT INTO p VALUES (1), (2), (9)")
    twin.ok(f"CREATE TABLE c ({CHECKED[key]}, {key}, CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id) {clause}) ENGINE={{engine}}")
    twin.ok("INSERT INTO c (id, p, w) VALUES (1, 1, 'a'), (2, 2, 'a')")
    twin.run("DELETE FROM p WHERE id = 1")
    twin.run("UPDATE p SET id = 3 WHERE id = 2")
    both(twin)
    twin.run("INSERT INTO c (id, p, w) VALUES (3, 9, 'a')")
    twin.run("INSERT INTO c (id, p, w) VALUES (4, 9, 'a')")
    twin.run("INSERT INTO c (id, p, w) VALUES (5, NULL, 'a')")
    both(twin)


def test_a_row_that_is_there_already_is_updated_whatever_parent_the_new_one_has(twin):
    """ON DUPLICATE KEY UPDATE: of the values that are not inserted nothing is asked but whether their keys are taken."""
    twin.ok("CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    twin.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, u INT, b VARCHAR(20), UNIQUE KEY (u), KEY (p), CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id))"
        " ENGINE={engine}"
    )
    twin.ok("INSERT INTO p VALUES (1), (2)")
    twin.ok("INSERT INTO c VALUES (1, 1, 10, 'ten'), (2, 2, 20, 'twenty')")
    twin.ok("INSERT INTO c VALUES (1, 99, 11, 'x') ON DUPLICATE KEY UPDATE b = CONCAT(c.b, '!')")
    twin.ok("INSERT INTO c VALUES (3, 99, 20, 'x') ON DUPLICATE KEY UPDATE id = 4")
    twin.ok("INSERT INTO c (id, p, u) SELECT 4, 98, 5 ON DUPLICATE KEY UPDATE u = 21")
    twin.ok("INSERT IGNORE INTO c VALUES (1, 99, 11, 'x')")
    twin.fails("INSERT INTO c VALUES (1, 99, 11, 'x') ON DUPLICATE KEY UPDATE p = 99", 1452)
    twin.fails("INSERT INTO c VALUES (5, 99, 11, 'x') ON DUPLICATE KEY UPDATE p = 1", 1452)
    twin.fails("INSERT INTO c VALUES (1, 99, 11, 'x')", 1062)
    twin.same_table("c")


def test_children_take_over_another_spelling_of_the_same_word(twin):
    twin.ok("CREATE TABLE p (k VARCHAR(20) PRIMARY KEY, n INT) ENGINE={engine}")
    twin.ok("CREATE TABLE c (n INT PRIMARY KEY, k VARCHAR(20), FOREIGN KEY (k) REFERENCES p (k) ON UPDATE CASCADE) ENGINE={engine}")
    twin.ok("INSERT INTO p VALUES ('paris', 1), ('rome', 2)")
    twin.ok("INSERT INTO c VALUES (1, 'paris'), (2, 'PARIS'), (3, 'Rome')")
    twin.ok("UPDATE p SET k = 'Paris' WHERE n = 1")
    twin.same("SELECT n, HEX(k) FROM c")


LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


@pytest.mark.parametrize("level", LEVELS)
def test_a_deletion_does_not_count_what_its_actions_delete(twin, level):
    """Rule FK53: neither are those rows limited, returned, nor have they triggers. The order says which rows of a family come first."""
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, up INT, KEY (up), FOREIGN KEY (up) REFERENCES t (n) ON DELETE CASCADE) ENGINE={engine}")
    twin.ok("CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20)) ENGINE={engine}")
    twin.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    for statement in (
        "DELETE FROM t",
        "DELETE FROM t WHERE n > 0",
        "DELETE FROM t WHERE n BETWEEN 1 AND 4",
        "DELETE FROM t ORDER BY n",
        "DELETE FROM t ORDER BY n LIMIT 2",
        "DELETE FROM t WHERE n <= 4 LIMIT 2",
        "DELETE FROM t LIMIT 2",
    ):
        twin.ok("INSERT INTO t VALUES (1, NULL), (2, 1), (3, 2), (4, NULL), (5, 4), (6, NULL)")
        twin.ok(statement)
        twin.same_table("t")
        twin.ok("DELETE FROM t ORDER BY n")
    twin.ok("CREATE TRIGGER b BEFORE DELETE ON t FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT('before ', OLD.n))")
    twin.ok("CREATE TRIGGER a AFTER DELETE ON t FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT('after ', OLD.n))")
    twin.ok("INSERT INTO t VALUES (1, NULL), (2, 1), (3, 2), (4, NULL), (5, 4)")
    twin.ok("BEGIN")
    twin.same("DELETE FROM t RETURNING n, up")
    twin.same("SELECT what FROM log ORDER BY n")
    twin.ok("ROLLBACK")
    twin.ok("DELETE FROM t WHERE up IS NULL OR up > 0")
    twin.same("SELECT what FROM log ORDER BY n")
    twin.same_table("t")


def families(session, trigger):
    """Two parents with two children each, and what a trigger of the children does."""
    session.ok("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    session.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, KEY (p), "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE={engine}"
    )
    session.ok("INSERT INTO p VALUES (1, 0), (2, 0), (3, 0)")
    session.ok("INSERT INTO c VALUES (1, 1, 0), (2, 1, 0), (3, 2, 0), (4, 2, 0), (5, 3, 0)")
    session.ok(f"CREATE TRIGGER t {trigger}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
def test_a_trigger_may_delete_the_parent_of_the_row_that_is_deleted(twin, when, level):
    """Rule FK53: its action comes between the reading of the row and its deletion."""
    families(twin, f"{when} DELETE ON c FOR EACH ROW DELETE FROM p WHERE id = OLD.p")
    twin.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    for statement in (
        "DELETE FROM c WHERE id = 1",
        "DELETE FROM c WHERE id IN (3, 5) ORDER BY id",
        "INSERT INTO p VALUES (1, 0), (2, 0)",
        "INSERT INTO c VALUES (1, 1, 0), (2, 1, 0), (3, 2, 0), (4, 2, 0)",
        "DELETE FROM c",
    ):
        twin.ok(statement)
        both(twin)


@pytest.mark.pbxt_only
@pytest.mark.parametrize("order", ["", " ORDER BY id"])
@pytest.mark.parametrize("trigger", ["BEFORE UPDATE", "AFTER UPDATE"])
@pytest.mark.parametrize("change", ["UPDATE p SET id = id + 10 WHERE id = OLD.p", "DELETE FROM p WHERE id = OLD.p"])
def test_a_trigger_may_not_change_the_row_that_is_updated_by_way_of_its_parent(db, trigger, change, order):
    """Rule FK53: InnoDB writes the columns that are set, into whatever the row has become, or into one that is deleted."""
    families(db, f"{trigger} ON c FOR EACH ROW {change}")
    text = db.fails("UPDATE c SET v = v + 1 WHERE p < 3" + order, 1451) if trigger == "BEFORE UPDATE" else ""
    assert trigger == "AFTER UPDATE" or "`c`" in text
    if trigger == "AFTER UPDATE":
        db.run("UPDATE c SET v = v + 1 WHERE p < 3" + order)
    assert not db.rows("SELECT c.id FROM c LEFT JOIN p ON p.id = c.p WHERE p.id IS NULL")
    assert db.rows("SELECT id, p FROM c FORCE INDEX (p) WHERE p > 0 ORDER BY id") == db.rows("SELECT id, p FROM c IGNORE INDEX (p) ORDER BY id")
    for table in "pc":
        assert db.rows(f"CHECK TABLE {table} EXTENDED")[-1][3] == "OK"


@pytest.mark.parametrize("charset", ["utf8mb4", "utf8mb3", "latin1", "ucs2"])
@pytest.mark.parametrize("kind", ["VARCHAR", "CHAR"])
def test_a_cascade_gives_a_child_no_more_characters_than_its_column_has(twin, charset, kind):
    # FK27: five characters of utf8mb4 have room for twenty letters.
    twin.ok(f"CREATE TABLE p (w VARCHAR(20) CHARACTER SET {charset} PRIMARY KEY) ENGINE={{engine}}")
    child = f"w {kind}(5) CHARACTER SET {charset}"
    twin.ok(f"CREATE TABLE c (id INT PRIMARY KEY, {child}, FOREIGN KEY (w) REFERENCES p (w) ON UPDATE CASCADE) ENGINE={{engine}}")
    twin.ok("INSERT INTO p VALUES ('ab'), ('z')")
    twin.ok("INSERT INTO c VALUES (1, 'ab'), (2, 'z')")
    for value in ("1234567890", "123456", "\u00e4\u00f6\u00fc\u00df\u00e9x"):
        twin.fails(f"UPDATE p SET w = '{value}' WHERE w = 'ab'", 1451)
    twin.same_table("c")
    for value in ("\u00e4\u00f6\u00fc\u00df\u00e9", "12345"):
        twin.ok(f"UPDATE p SET w = '{value}' WHERE w <> 'z'")
        twin.same_table("c")
    twin.same_table("p")
