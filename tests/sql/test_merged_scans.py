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
