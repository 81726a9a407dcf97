"""INFORMATION_SCHEMA.PBXT_TABLES, PBXT_INDEXES, PBXT_INDEX_STATISTICS, PBXT_RUNS, PBXT_SEGMENTS, PBXT_CACHES and PBXT_STATISTICS: what the database consists of.

Lines are compared with what was made, with each other, with status variables and with the files that are there.
"""

import pytest
from live_server import execute, rows_of

pytestmark = pytest.mark.pbxt_only

LISTS = {
    "PBXT_TABLES": "TABLE_SCHEMA TABLE_NAME TABLE_ID TABLE_ROWS MEAN_ROW_BYTES ROW_RUNS ROW_PIECES ROW_SLOTS ROW_BYTES INDEX_COUNT INDEX_BYTES"
    " GONE_ROWS ROW_MAP_BYTES NEXT_AUTO_INCREMENT COMPRESSION CONFLICT_MODE IS_TEMPORARY",
    "PBXT_INDEXES": "TABLE_SCHEMA TABLE_NAME INDEX_NAME INDEX_ID IS_UNIQUE ENTRIES RUNS PIECES RUN_BYTES MEMORY_BYTES",
    "PBXT_INDEX_STATISTICS": "TABLE_SCHEMA TABLE_NAME INDEX_NAME PREFIX_PARTS ROWS_PER_KEY ENTRIES_WHEN_SAMPLED NEIGHBOURS_COMPARED NEIGHBOURS_DIFFERING"
    " SAMPLED SAMPLED_BY IS_SAVED",
    "PBXT_RUNS": "TABLE_SCHEMA TABLE_NAME INDEX_NAME RUN_NUMBER RUN_LEVEL TXN_ID PIECES ENTRIES BYTES",
    "PBXT_SEGMENTS": "FILE_NAME HOLDS STATE BYTES NAMED_BYTES",
    "PBXT_CACHES": "NAME BYTES BUDGET_BYTES HITS MISSES",
    "PBXT_STATISTICS": "ID NAME VALUE SHORT_NAME",
}
ROWS = 60_000  # with their keys more than 8 MiB


def make(db):
    """A table whose rows went around the log, with a name that is no plain word."""
    db.ok("CREATE TABLE `a-b` (n INT AUTO_INCREMENT PRIMARY KEY, v INT, w VARCHAR(80), KEY kv (v), UNIQUE KEY kw (w)) ENGINE=PBXT COMPRESSION=LZ4 CONFLICT_MODE=WAIT")
    db.ok(f"INSERT INTO `a-b` (v, w) SELECT seq % 100, CONCAT(SHA1(seq), MD5(seq)) FROM seq_1_to_{ROWS}")


@pytest.mark.parametrize("table", LISTS)
def test_a_list_has_the_columns_that_the_guide_names(db, table):
    names = [row[0] for row in db.rows(f"SHOW COLUMNS FROM information_schema.{table}")]
    assert names == LISTS[table].split()


def test_a_table_and_its_indexes_are_listed_with_what_they_take(db):
    make(db)
    rows = db.rows(
        "SELECT TABLE_NAME, TABLE_ROWS, INDEX_COUNT, NEXT_AUTO_INCREMENT > TABLE_ROWS, COMPRESSION, CONFLICT_MODE, IS_TEMPORARY, ROW_SLOTS >= TABLE_ROWS - 1000, ROW_BYTES > 0"
        f" FROM information_schema.PBXT_TABLES WHERE TABLE_SCHEMA = '{db.name}'"
    )
    assert rows == [("a-b", ROWS, 3, 1, "LZ4", "WAIT", 0, 1, 1)]  # the first thousand may stand in the log
    indexes = db.rows(
        f"SELECT INDEX_NAME, IS_UNIQUE, ENTRIES >= {ROWS}, RUN_BYTES > 0 FROM information_schema.PBXT_INDEXES WHERE TABLE_SCHEMA = '{db.name}' ORDER BY INDEX_ID"
    )
    assert indexes == [("PRIMARY", 1, 1, 1), ("kw", 1, 1, 1), ("kv", 0, 1, 1)]


def test_parts_of_a_table_have_its_name_and_theirs(db):
    db.ok("CREATE TABLE `tä-b` (n INT PRIMARY KEY) ENGINE=PBXT PARTITION BY RANGE (n) (PARTITION `pü-1` VALUES LESS THAN (5), PARTITION q VALUES LESS THAN MAXVALUE)")
    long = "é" * 60
    db.ok(
        f"CREATE TABLE `{long}` (n INT, v INT) ENGINE=PBXT PARTITION BY RANGE (n) SUBPARTITION BY HASH (v)"
        f" (PARTITION p VALUES LESS THAN MAXVALUE (SUBPARTITION `{long}`, SUBPARTITION s))"
    )
    names = [row[0] for row in db.rows(f"SELECT TABLE_NAME FROM information_schema.PBXT_TABLES WHERE TABLE_SCHEMA = '{db.name}'")]
    assert set(names) == {"tä-b#P#pü-1", "tä-b#P#q", f"{long}#P#p#SP#{long}", f"{long}#P#p#SP#s"}
    db.ok("BEGIN")
    db.ok("INSERT INTO `tä-b` VALUES (1)")
    locks = db.rows("SELECT DISTINCT TABLE_NAME FROM information_schema.PBXT_LOCKS WHERE CONNECTION_ID = CONNECTION_ID()")
    assert ("tä-b#P#pü-1",) in locks
    db.ok("ROLLBACK")


def test_runs_add_up_to_tables_and_indexes(db):
    make(db)
    of = f"FROM information_schema.PBXT_RUNS r WHERE r.TABLE_SCHEMA = '{db.name}'"
    in_runs = db.rows(f"SELECT COUNT(*), SUM(PIECES), SUM(ENTRIES), SUM(BYTES) {of} AND INDEX_NAME IS NULL")
    in_table = db.rows(f"SELECT ROW_RUNS, ROW_PIECES, ROW_SLOTS, ROW_BYTES FROM information_schema.PBXT_TABLES WHERE TABLE_SCHEMA = '{db.name}'")
    assert in_runs == in_table
    assert db.rows(f"SELECT DISTINCT RUN_LEVEL IN ('base', 'upper', 'tagged') {of}") == [(1,)]


def test_a_run_that_is_being_loaded_names_its_owner(db):
    make(db)
    loader = db.session()
    loader.ok("BEGIN")
    loader.ok(f"INSERT INTO `a-b` (v, w) SELECT seq % 100, CONCAT(SHA1(-seq), MD5(seq)) FROM seq_1_to_{ROWS}")
    number = loader.value("SELECT CONNECTION_ID()")
    owner = db.value(f"SELECT TXN_ID FROM information_schema.PBXT_TRX WHERE CONNECTION_ID = {number}")
    tagged = db.rows(
        f"SELECT DISTINCT TXN_ID FROM information_schema.PBXT_RUNS WHERE TABLE_SCHEMA = '{db.name}' AND RUN_LEVEL = 'tagged' AND INDEX_NAME IS NULL AND RUN_NUMBER = 1"
    )
    assert tagged == [(owner,)]
    loader.ok("ROLLBACK")
    loader.close()


def test_segments_are_the_files_that_are_there(own_server):
    server = own_server("--pbxt-cache-size=16M")
    connection = server.connect()
    execute(connection, "CREATE DATABASE d")
    execute(connection, "CREATE TABLE d.t (n INT PRIMARY KEY, b LONGBLOB) ENGINE=PBXT")
    execute(connection, "CREATE TABLE d.w (n INT PRIMARY KEY, w VARCHAR(200)) ENGINE=PBXT")
    execute(connection, "INSERT INTO d.w SELECT seq, REPEAT(SHA1(seq), 5) FROM d.seq_1_to_60000")
    execute(connection, "INSERT INTO d.t VALUES (0, REPEAT('x', 100000))")
    there = lambda: {path.name for path in server.engine_dir().glob("*.seg")}  # noqa: E731  # twice the same look
    before = there()
    lines = rows_of(connection, "SELECT FILE_NAME, HOLDS, STATE FROM information_schema.PBXT_SEGMENTS")
    after = there()
    names = {name for name, _, _ in lines}
    # A checkpoint may make and remove files between the looks.
    assert before & after <= names <= before | after
    assert {"log", "rows", "indexes", "values"} <= {holds for _, holds, _ in lines}
    assert [holds for _, holds, state in lines if state == "current" and holds == "log"] == ["log"]
    connection.close()


def test_caches_and_statistics_agree_with_status_variables(db):
    make(db)
    db.ok("SELECT SUM(v), MAX(w) FROM `a-b`")
    budget = int(dict(db.rows("SHOW GLOBAL STATUS LIKE 'pbxt_block_cache_budget_bytes_now'"))["Pbxt_block_cache_budget_bytes_now"])
    found = db.value("SELECT BUDGET_BYTES FROM information_schema.PBXT_CACHES WHERE NAME = 'blocks of rows and indexes'")
    assert abs(found - budget) <= budget // 8
    names = {row[0] for row in db.rows("SELECT NAME FROM information_schema.PBXT_CACHES")}
    assert {"recent log", "row map", "bulk loads", "explicit row locks"} <= names

    before = dict(db.rows("SELECT NAME, VALUE FROM information_schema.PBXT_STATISTICS"))
    for number in range(5):
        db.ok(f"UPDATE `a-b` SET v = 1000 + {number} WHERE n = {number + 1}")
    after = dict(db.rows("SELECT NAME, VALUE FROM information_schema.PBXT_STATISTICS"))
    assert after["Update Row Count"] >= before["Update Row Count"] + 5
    assert after["Commit Count"] >= before["Commit Count"] + 5
    ids = [row[0] for row in db.rows("SELECT ID FROM information_schema.PBXT_STATISTICS ORDER BY ID")]
    assert ids == list(range(1, len(ids) + 1))


def test_lists_of_the_inventory_need_the_process_privilege(db):
    make(db)
    db.ok("CREATE USER no_process@localhost")
    try:
        db.ok("GRANT SELECT ON *.* TO no_process@localhost")
        looker = db.session(user="no_process")
        for table in LISTS:
            assert looker.rows(f"SELECT * FROM information_schema.{table}") == [], table
            assert db.rows(f"SELECT * FROM information_schema.{table}") != [], table
        looker.close()
    finally:
        db.ok("DROP USER no_process@localhost")
