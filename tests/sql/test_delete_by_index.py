"""DELETE through an index that has all columns the statement asks for: the row behind the entry is not read, and nobody may notice."""

import pytest

from sql_tools import Session

TABLE = "CREATE TABLE t (n INT PRIMARY KEY, a VARCHAR(20), b INT, c TEXT, KEY by_a (a), KEY by_b (b, a)) ENGINE={engine}"
ROWS = "INSERT INTO t SELECT seq, CONCAT('name ', seq % 7), seq % 11, REPEAT(seq, 50) FROM seq_1_to_300"
DELETE = "DELETE FROM t WHERE a LIKE 'name 3%'"


def fill(twin):
    twin.ok(TABLE)
    twin.ok(ROWS)


def test_rows_and_entries_of_all_keys_go(twin):
    fill(twin)
    twin.ok(DELETE)
    twin.ok("DELETE FROM t WHERE b = 4 AND a > 'name 5'")
    twin.same_table("t")
    for key in ("PRIMARY", "by_a", "by_b"):
        twin.ok(f"SELECT COUNT(*) FROM t FORCE INDEX ({key}) WHERE n > 0 AND a > '' AND b >= 0")


def test_a_rolled_back_deletion_leaves_everything(twin):
    fill(twin)
    for end in ("ROLLBACK", "ROLLBACK", "COMMIT"):
        twin.ok("BEGIN")
        twin.ok(DELETE)
        twin.ok("SELECT COUNT(*) FROM t WHERE a LIKE 'name 3%'")
        twin.ok(end)
        twin.same_table("t")


def test_triggers_see_the_whole_old_row(twin):
    fill(twin)
    twin.ok("CREATE TABLE log (n INT, a VARCHAR(20), b INT, c TEXT) ENGINE={engine}")
    twin.ok("CREATE TRIGGER gone AFTER DELETE ON t FOR EACH ROW INSERT INTO log VALUES (OLD.n, OLD.a, OLD.b, OLD.c)")
    twin.ok(DELETE)
    twin.same_table("log")
    twin.same_table("t")


def test_returning_has_columns_that_the_index_has_not(twin):
    fill(twin)
    twin.same(DELETE + " AND n < 100 RETURNING n, c")
    twin.same_table("t")


@pytest.mark.parametrize("what", ["DELETE t FROM t JOIN u ON t.a = u.a", "DELETE t, u FROM t JOIN u USING (a) WHERE t.b < 6"])
def test_deletions_from_joins(twin, what):
    fill(twin)
    twin.ok("CREATE TABLE u (a VARCHAR(20) PRIMARY KEY, d INT) ENGINE={engine}")
    twin.ok("INSERT INTO u VALUES ('name 1', 1), ('name 3', 2)")
    twin.ok(what)
    twin.same_table("t")
    twin.same_table("u")


def test_history_keeps_the_whole_row(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, a VARCHAR(20), c TEXT, KEY by_a (a)) ENGINE={engine} WITH SYSTEM VERSIONING")
    twin.ok("INSERT INTO t SELECT seq, CONCAT('name ', seq % 7), REPEAT(seq, 50) FROM seq_1_to_100")
    twin.ok(DELETE)
    twin.ok("SELECT n, a, c FROM t FOR SYSTEM_TIME ALL ORDER BY n")
    twin.ok("DELETE HISTORY FROM t")
    twin.ok("SELECT n, a, c FROM t FOR SYSTEM_TIME ALL ORDER BY n")


def test_what_is_left_of_a_period_is_a_whole_row(twin):
    twin.ok(
        "CREATE TABLE t (n INT, a VARCHAR(20), c TEXT, s DATE, e DATE, PERIOD FOR p (s, e), KEY by_a (a)) ENGINE={engine}"
    )
    twin.ok("INSERT INTO t SELECT seq, CONCAT('name ', seq % 7), REPEAT(seq, 50), '2020-01-01', '2020-12-31' FROM seq_1_to_50")
    twin.ok("DELETE FROM t FOR PORTION OF p FROM '2020-03-01' TO '2020-04-01' WHERE a = 'name 3'")
    twin.ok("SELECT * FROM t ORDER BY n, s")


def test_keys_over_virtual_columns_lose_their_entries(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, v INT AS (a * 3) VIRTUAL, KEY by_a (a), KEY by_v (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t (n, a) SELECT seq, seq % 20 FROM seq_1_to_200")
    twin.ok("DELETE FROM t WHERE a = 7")
    twin.ok("SELECT COUNT(*) FROM t FORCE INDEX (by_v) WHERE v = 21")
    twin.ok("SELECT n, v FROM t FORCE INDEX (by_v) WHERE v BETWEEN 18 AND 24 ORDER BY n")
    twin.same_table("t")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("level, reads", [("REPEATABLE READ", False), ("SERIALIZABLE", False), ("READ COMMITTED", True)])
def test_a_delete_by_a_covering_index_reads_no_row(own_server, level, reads):
    """A key's rows are strewn over all blocks. Only who waits for the newest version has to look at them."""
    server = own_server("--pbxt-cache-size=16M")
    first = Session(server, None, "PBXT")
    first.ok("CREATE DATABASE d")
    first.ok("USE d")
    first.ok("CREATE TABLE d.t (id INT PRIMARY KEY, k INT, pad VARBINARY(200), KEY k (k)) ENGINE=PBXT")
    first.ok(
        "INSERT INTO d.t SELECT seq, seq * 7919 MOD 600, CONCAT(UNHEX(SHA2(seq, 512)), UNHEX(SHA2(-seq, 512))) FROM seq_1_to_60000"
    )
    first.close()
    server.stop()
    server.start()
    session = Session(server, "d", "PBXT")

    def misses():
        return int(session.rows("SHOW GLOBAL STATUS LIKE 'pbxt_block_cache_misses'")[0][1])

    session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    session.ok("SELECT id FROM t FORCE INDEX (k) WHERE k BETWEEN 99 AND 100")
    before = misses()
    assert session.ok("DELETE FROM t WHERE k = 100") == 100
    read = misses() - before
    session.close()
    assert read >= 80 if reads else read < 20, f"{read} blocks for 100 rows"
