"""Statements that lock or change rows which scans of several indexes find together (index_merge, rule T45).

Each scan is read through a clone of the table's handler, but for the first one of an intersection that needs no rows.
"""

import pytest

LEVELS = ["READ COMMITTED", "REPEATABLE READ"]
WHERE = "FORCE INDEX (a, c) {change} WHERE a = 7 AND c = 4"


@pytest.fixture
def merged(db):
    """Rows of which an intersection finds 89: 67, 157, 247 and so on."""
    db.ok(
        "CREATE TABLE m (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, c INT NOT NULL, pad VARCHAR(2000), KEY a (a), KEY c (c))"
        " ENGINE={engine}"
    )
    db.ok("INSERT INTO m SELECT seq, seq MOD 10, seq MOD 9, CONCAT('p', seq MOD 7, REPEAT('x', 900)) FROM seq_1_to_8000")
    db.rows("ANALYZE TABLE m")
    return db


def begin(db, level):
    """A transaction that goes on with the newest rows, and has looked at the table before others change it."""
    session = db.session()
    session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    if session.engine.upper() == "PBXT":
        session.ok("SET SESSION pbxt_conflict_mode = 'WAIT'")
    session.ok("BEGIN")
    session.ok("SELECT COUNT(*), SUM(c) FROM m WHERE id < 500")
    db.ok("UPDATE m SET c = 4 WHERE id = 7")
    db.ok("UPDATE m SET a = 7 WHERE id = 4")
    db.ok("UPDATE m SET c = 5 WHERE id = 67")
    db.ok("UPDATE m SET a = 8 WHERE id = 157")
    db.ok("DELETE FROM m WHERE id = 337")
    return session


def is_intersection(session, statement):
    return "intersect" in session.rows("EXPLAIN " + statement)[0][9]


FOUND = [4, 7, 247, 427]  # the first of 88


@pytest.mark.parametrize("level", LEVELS)
def test_merged_scans_find_the_newest_rows(merged, level):
    mine = begin(merged, level)
    change = "UPDATE m " + WHERE.format(change="SET pad = 'new'")
    assert is_intersection(mine, change)
    assert mine.affected(change) == 88
    mine.ok("COMMIT")
    assert [row[0] for row in merged.rows("SELECT id FROM m WHERE pad = 'new' ORDER BY id LIMIT 4")] == FOUND


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("lock", ["FOR UPDATE", "LOCK IN SHARE MODE"])
def test_rows_that_merged_scans_read_without_a_row_are_the_newest(merged, level, lock):
    mine = begin(merged, level)
    query = f"SELECT id FROM m {WHERE.format(change='')} {lock}"
    assert is_intersection(mine, query)
    ids = sorted(row[0] for row in mine.rows(query))
    assert (ids[:4], len(ids)) == (FOUND, 88)
    mine.ok("COMMIT")


@pytest.mark.parametrize("level", LEVELS)
def test_a_change_of_what_merged_scans_have_read_is_that_of_the_newest_rows(merged, level):
    mine = begin(merged, level)
    change = "UPDATE m " + WHERE.format(change="SET c = 104")
    assert is_intersection(mine, change)
    assert mine.affected(change) == 88
    mine.ok("COMMIT")
    assert [row[0] for row in merged.rows("SELECT id FROM m WHERE c = 104 ORDER BY id LIMIT 4")] == FOUND
    assert merged.rows("CHECK TABLE m EXTENDED")[0][3] == "OK"


@pytest.mark.pbxt_only
def test_merged_scans_of_a_snapshot_meet_what_changed_since(merged):
    """Where a change since the snapshot is an error, the rows found are those of the snapshot, and it is one for them alone."""
    mine = merged.session()
    mine.ok("BEGIN")
    mine.ok("SELECT COUNT(*) FROM m")
    merged.ok("UPDATE m SET pad = 'other' WHERE id IN (17, 4)")
    assert mine.affected("UPDATE m " + WHERE.format(change="SET pad = 'new'")) == 89
    merged.ok("UPDATE m SET pad = 'other' WHERE id = 77")
    mine.ok("ROLLBACK")
    mine.ok("BEGIN")
    mine.ok("SELECT COUNT(*) FROM m")
    merged.ok("UPDATE m SET c = 5 WHERE id = 67")
    mine.fails("UPDATE m " + WHERE.format(change="SET pad = 'new'"), 1020)
    mine.ok("ROLLBACK")


@pytest.mark.parametrize("held", [67, 247, 7987])
@pytest.mark.parametrize("set_clause", ["SET c = 104", "SET pad = 'new'"])
def test_merged_scans_lose_no_row_that_they_wait_for(merged, held, set_clause):
    """Of semi-consistent reads (rule T40): a row is not come back to while the other scan goes on."""
    other = merged.session()
    other.ok("BEGIN")
    other.ok(f"UPDATE m SET pad = 'held' WHERE id = {held}")
    mine = merged.session()
    mine.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    change = "UPDATE m " + WHERE.format(change=set_clause)
    assert is_intersection(mine, change)
    waiting = mine.later(change)
    assert waiting.waits()
    other.ok("ROLLBACK")
    assert waiting.result().affected == 89


def test_merged_scans_of_parts_lose_no_row_that_they_wait_for(merged):
    merged.ok("ALTER TABLE m PARTITION BY HASH (id) PARTITIONS 3")
    other = merged.session()
    other.ok("BEGIN")
    other.ok("UPDATE m SET pad = 'held' WHERE id = 247")
    mine = merged.session()
    mine.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    waiting = mine.later("UPDATE m " + WHERE.format(change="SET c = 104"))
    assert waiting.waits()
    other.ok("ROLLBACK")
    assert waiting.result().affected == 89


ORDERED = {
    "parts with a virtual column": ("v INT AS (f + 1) VIRTUAL, PRIMARY KEY (g, id)", "PARTITION BY KEY (id) PARTITIONS 3"),
    "a long unique value": ("b LONGTEXT AS (CONCAT('b', id)) STORED, PRIMARY KEY (g, id), UNIQUE (b)", ""),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_a_row_that_merged_scans_meet_twice_is_one_row(twin, kind):
    """References of these tables begin with the primary key, which a UNIQUE index does not have."""
    columns, parts = ORDERED[kind]
    twin.ok(
        "CREATE TABLE t (id INT NOT NULL, g INT NOT NULL, f INT, w INT DEFAULT 0, pad VARCHAR(200) DEFAULT (REPEAT('x', 200)),"
        f" {columns}, KEY f (f), UNIQUE KEY u (id)) ENGINE={{engine}} {parts}"
    )
    twin.ok("INSERT INTO t (id, g, f) SELECT seq, seq * 7919 MOD 13, seq MOD 50 FROM seq_1_to_9000")
    for under in (twin.under_test, twin.oracle):
        under.ok("ANALYZE TABLE t")
    where = "WHERE f = 5 OR id BETWEEN 50 AND 160"
    assert "sort_union" in twin.under_test.rows(f"EXPLAIN SELECT * FROM t {where}")[0][9]
    twin.same(f"SELECT id, g, f FROM t {where}")
    twin.run(f"SELECT COUNT(*) FROM t {where}")
    twin.run(f"UPDATE t SET w = w + 1 {where}")
    twin.run(f"DELETE FROM t {where} AND g < 6")
    twin.same("SELECT id, g, f, w FROM t")
    both = "WHERE f IN (5, 6, 7) AND id BETWEEN 1000 AND 1300"
    for under in (twin.under_test, twin.oracle):
        under.ok("SET optimizer_switch = 'index_merge_sort_intersection=on'")
    assert "sort_intersect" in twin.under_test.rows(f"EXPLAIN SELECT COUNT(*), SUM(w) FROM t FORCE INDEX (f, u) {both}")[0][9]
    twin.run(f"SELECT COUNT(*), SUM(w) FROM t FORCE INDEX (f, u) {both}")


def test_a_row_found_by_a_unique_key_and_by_another_one_is_one_row(twin):
    """Where a table has a virtual column, a merge that reads a UNIQUE index alone has no primary key of the row."""
    twin.ok(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, x INT NOT NULL, f INT, w INT DEFAULT 0, v INT AS (f + 1) VIRTUAL, KEY f (f), UNIQUE KEY u (x))"
        " ENGINE={engine}"
    )
    twin.ok("INSERT INTO t (id, x, f) SELECT seq, 3001 - seq, seq MOD 50 FROM seq_1_to_3000")
    for under in (twin.under_test, twin.oracle):
        under.ok("ANALYZE TABLE t")
    where = "WHERE x = 46 OR f = 5"
    assert "union(" in twin.under_test.rows(f"EXPLAIN SELECT * FROM t {where}")[0][9]
    twin.same(f"SELECT id, x, f FROM t {where}")
    twin.run(f"SELECT COUNT(*) FROM t {where}")
    twin.run(f"UPDATE t SET w = w + 1 {where}")
    twin.same("SELECT id, x, f, w FROM t")


UNIONS = {
    "sort_union": "t FORCE INDEX (v, wv) {} WHERE (w IN (1, 3) OR v = 3) AND s <> 's1'",
    "union": "t FORCE INDEX (v, w) {} WHERE (w = 3 OR v = 3) AND s <> 's1'",
    "intersect": "t FORCE INDEX (v, w) {} WHERE w = 3 AND v = 3 AND s <> 's1'",
}
CHANGES = {
    "update": ("UPDATE", "SET s = 'new'"),
    "delete": ("DELETE FROM", ""),
    "update of several tables": ("UPDATE other,", "SET t.s = 'new'"),
    "for update": ("SELECT id FROM", ""),
}


def change_of(kind, plan):
    verb, middle = CHANGES[kind]
    table = UNIONS[plan].format(middle) + (" FOR UPDATE" if kind == "for update" else "")
    # DELETE of one table knows no hints.
    return f"{verb} " + (table.replace("FORCE INDEX (v, wv) ", "").replace("FORCE INDEX (v, w) ", "") if kind == "delete" else table)


@pytest.fixture
def unions(db):
    """Rows that scans of two indexes find together."""
    db.ok(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL, w INT NOT NULL, s VARCHAR(200), KEY v (v), KEY w (w), KEY wv (w, v)) ENGINE={engine}"
    )
    db.ok("CREATE TABLE other (n INT PRIMARY KEY, x INT) ENGINE={engine}")
    db.ok("INSERT INTO other VALUES (1, 0)")
    db.ok("INSERT INTO t SELECT seq, IF(seq % 500 = 3, 3, seq % 1313 + 10), IF(seq % 500 = 3, 3, seq % 919 + 10), REPEAT('s', 150) FROM seq_1_to_10000")
    db.rows("ANALYZE TABLE t")
    return db


def newest(session, level):
    session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    if session.engine.upper() == "PBXT":
        session.ok("SET SESSION pbxt_conflict_mode = 'WAIT'")
        session.ok("SET SESSION pbxt_lock_wait_timeout = 1")
    else:
        session.ok("SET SESSION innodb_lock_wait_timeout = 1")
    return session


@pytest.mark.parametrize("partitions", ["", "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("plan", UNIONS)
@pytest.mark.parametrize("kind", CHANGES)
def test_merged_scans_tell_of_a_wait_that_ended(unions, kind, plan, level, partitions):
    """The server takes an error of a scan that is merged for the end of memory, or of the rows, if the engine has not told it."""
    if partitions:
        unions.ok(partitions)
    one, mine = unions.session(), newest(unions.session(), level)
    change = change_of(kind, plan)
    one.ok("BEGIN")
    one.ok("UPDATE t SET s = 'mine' WHERE id = 503")
    mine.ok("BEGIN")
    mine.ok("INSERT INTO other VALUES (2, 0)")
    mine.fails(change, 1205)
    mine.ok("COMMIT")
    one.ok("ROLLBACK")
    assert unions.rows("SELECT n FROM other ORDER BY n") == [(1,), (2,)], "the statement is undone, the transaction is not"


@pytest.mark.parametrize("plan", UNIONS)
@pytest.mark.parametrize("kind", CHANGES)
def test_merged_scans_tell_the_victim_of_a_deadlock(unions, kind, plan):
    one, mine = newest(unions.session(), "READ COMMITTED"), newest(unions.session(), "READ COMMITTED")
    for session in (one, mine):
        session.ok("BEGIN")
    if unions.engine.upper() == "PBXT":
        one.ok("SET SESSION pbxt_lock_wait_timeout = 30")
    else:
        one.ok("SET SESSION innodb_lock_wait_timeout = 30")
    mine.ok("INSERT INTO other VALUES (2, 0)")
    one.ok("UPDATE t SET s = 'mine' WHERE id = 503")
    one.ok("INSERT INTO other VALUES (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)")
    waiting = one.later("UPDATE other SET x = 1 WHERE n = 2")
    assert waiting.waits()
    mine.fails(change_of(kind, plan), 1213)
    assert waiting.result().error is None
    one.ok("COMMIT")
    mine.ok("COMMIT")
    assert (2,) not in unions.rows("SELECT n FROM other")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("plan", UNIONS)
@pytest.mark.parametrize("kind", CHANGES)
def test_merged_scans_tell_that_a_table_is_younger_than_the_snapshot(unions, kind, plan):
    mine = unions.session()
    mine.ok("BEGIN")
    mine.ok("SELECT * FROM other")
    unions.ok("TRUNCATE TABLE t")
    mine.fails(change_of(kind, plan), 1412)
    mine.ok("ROLLBACK")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("plan", UNIONS)
@pytest.mark.parametrize("kind", ["update", "delete"])
def test_rows_of_merged_scans_that_do_not_match_are_not_judged(unions, kind, plan):
    unions.ok("UPDATE t SET s = 's1' WHERE id = 1003")
    mine = unions.session()
    mine.ok("BEGIN")
    mine.ok("SELECT * FROM other")
    unions.ok("UPDATE t SET v = v + 1000 WHERE id = 1003")
    assert mine.affected(change_of(kind, plan)) == 19
    mine.ok("ROLLBACK")
    unions.ok("UPDATE t SET v = v + 1000 WHERE id = 1503")
    mine.ok("BEGIN")
    mine.ok("SELECT * FROM other")
    unions.ok("UPDATE t SET v = v + 1000 WHERE id = 2003")
    mine.fails(change_of(kind, plan), 1020)
    mine.ok("ROLLBACK")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("partitions", ["", "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3"])
@pytest.mark.parametrize("lock", ["FOR UPDATE", "LOCK IN SHARE MODE"])
@pytest.mark.parametrize("level", [*LEVELS, "SERIALIZABLE"])
@pytest.mark.parametrize("plan", UNIONS)
def test_merged_scans_leave_out_locked_rows(unions, plan, level, lock, partitions):
    """SKIP LOCKED: a row that others hold is passed over by the scan that comes to it, for it is too late when it is read by reference."""
    if partitions:
        unions.ok(partitions)
    mine, other = unions.session(), unions.session()
    mine.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    other.ok("BEGIN")
    other.ok("UPDATE t SET s = 'taken' WHERE id = 503")
    other.ok("DELETE FROM t WHERE id = 1003")
    other.ok("SELECT id FROM t WHERE id = 1503 FOR UPDATE")
    question = "SELECT id FROM " + UNIONS[plan].format("") + " ORDER BY s, id LIMIT 4 " + lock + " SKIP LOCKED"
    assert plan in mine.rows("EXPLAIN " + question)[0][9]
    mine.ok("BEGIN")
    assert mine.rows(question) == [(3,), (2003,), (2503,), (3003,)]
    unions.run("SET SESSION pbxt_lock_wait_timeout = 1")
    unions.fails("UPDATE t SET s = 'late' WHERE id = 2003", 1205)
    other.ok("ROLLBACK")
    assert mine.rows(question) == [(3,), (503,), (1003,), (1503,)]
    mine.ok("COMMIT")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("verb", ["DELETE FROM t", "DELETE t FROM t"])
@pytest.mark.parametrize("where", ["v = 3 OR w = 3", "v < 4 OR w IN (3, 4)", "v = 3 AND w = 3"])
def test_a_delete_passes_over_rows_that_its_actions_have_removed(unions, verb, where):
    """Children of rows that it deletes, to which its scans would come afterwards, or have come already."""
    unions.ok("ALTER TABLE t ADD up INT, ADD FOREIGN KEY (up) REFERENCES t (id) ON DELETE CASCADE")
    unions.ok("UPDATE t SET w = 3 WHERE id % 500 = 7")
    unions.ok("UPDATE t SET up = id - 500 WHERE id % 500 = 3 AND id > 503")
    unions.ok("UPDATE t SET up = id - 4 WHERE id % 500 = 7")
    unions.ok("UPDATE t SET up = 503 WHERE id BETWEEN 20 AND 29")
    unions.rows("ANALYZE TABLE t")
    unions.ok(f"{verb} WHERE {where}")
    assert unions.value("SELECT COUNT(*) FROM t") == 10000 - 20 - 20 - 10
    assert unions.rows(f"SELECT id FROM t IGNORE INDEX (v, w, wv) WHERE up IS NOT NULL OR ({where})") == []
    assert unions.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


@pytest.mark.pbxt_only
@pytest.mark.parametrize(
    "statement, plan",
    [
        ("DELETE p FROM p STRAIGHT_JOIN c {hint} WHERE c.v = p.v OR c.w = 5", "Range checked"),
        ("DELETE p, c FROM p STRAIGHT_JOIN c {hint} WHERE c.v = p.v OR c.w = 5", "Range checked"),
        ("REPLACE INTO p SELECT up, v, 0 FROM c {hint} WHERE v = 3 OR w = 5", "v,w"),
        ("REPLACE INTO p SELECT up, v, 0 FROM c {hint} WHERE v < 7 AND v > 2 OR w = 5", "v,w"),
        ("INSERT INTO gone SELECT up FROM c {hint} WHERE v = 3 OR w = 5", "v,w"),
    ],
)
def test_rows_that_go_with_those_of_another_table_are_passed_over(db, statement, plan):
    """Children whose parents the statement removes, by itself or by a trigger, before its scans come to them."""
    db.ok("CREATE TABLE p (id INT PRIMARY KEY, v INT, w INT)")
    db.ok(
        "CREATE TABLE c (id INT PRIMARY KEY, v INT, w INT, up INT, pad VARCHAR(100), KEY v (v), KEY w (w), KEY (up),"
        " FOREIGN KEY (up) REFERENCES p (id) ON DELETE CASCADE)"
    )
    db.ok("CREATE TABLE gone (id INT)")
    db.ok("CREATE TRIGGER away AFTER INSERT ON gone FOR EACH ROW DELETE FROM p WHERE id = NEW.id")
    db.ok("INSERT INTO p SELECT seq, seq % 500, seq % 500 FROM seq_1_to_20")
    db.ok("INSERT INTO c SELECT seq, seq % 500, seq % 500, seq % 20 + 1, REPEAT('x', 90) FROM seq_1_to_10000")
    db.rows("ANALYZE TABLE c PERSISTENT FOR ALL")
    left = []
    for hint in ("IGNORE INDEX (v, w)", ""):
        statement_now = statement.format(engine=db.engine, hint=hint)
        assert any(plan in str(row) for row in db.rows("EXPLAIN " + statement_now)) == (not hint)
        db.ok("BEGIN")
        db.ok(statement_now)
        left.append([db.rows(f"SELECT id FROM {table} ORDER BY id") for table in ("p", "c")])
        db.ok("ROLLBACK")
    assert left[0] == left[1]
    assert 0 < len(left[0][1]) < 10000
