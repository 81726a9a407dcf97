"""OPTIMIZE TABLE: done inside the engine while others go on; its progress, its end on demand, and what it answers."""

import time

import pytest

from sql_tools import wait_for

pytestmark = pytest.mark.pbxt_only

PROGRESS = "SELECT stage, max_stage, progress FROM information_schema.processlist WHERE id = {}"
SCATTERED = "rows stay in the order in which they came; ALTER TABLE ... ORDER BY with the columns of the primary key sorts them, by a copy"
HELD = "what older snapshots or unfinished transactions may need stays until they end"
# Text that no compression makes shorter than half.
TEXT = "CONCAT(SHA1(seq), SHA1(seq + 0.5), SHA1(-seq), MD5(seq))"


def fill(db, rows, name="t"):
    db.ok(f"CREATE TABLE {name} (n INT PRIMARY KEY, a INT, v VARCHAR(200), KEY (a)) ENGINE=PBXT")
    db.ok(f"INSERT INTO {name} SELECT seq, seq * 7919 MOD 1000003, {TEXT} FROM seq_1_to_{rows}")


def answer(session, statement="OPTIMIZE TABLE t"):
    return [row[2:] for row in session.rows(statement)]


def length(db, name="t"):
    data, index = db.rows(f"SELECT data_length, index_length FROM information_schema.tables WHERE table_name = '{name}' AND table_schema = DATABASE()")[0]
    return data + index


def sound(db, name="t"):
    assert answer(db, f"CHECK TABLE {name}") == [("status", "OK")]


def test_optimize_gives_the_room_back_while_others_write(db):
    fill(db, 200000)
    before = length(db)
    db.ok("DELETE FROM t WHERE n MOD 4 <> 0")
    writer, reader = db.session(), db.session()
    reader.ok("CREATE TABLE beside (n INT) ENGINE=PBXT")
    running = db.later("OPTIMIZE TABLE t")
    done, longest = 0, 0.0
    while running.is_alive():
        begin = time.perf_counter()
        writer.ok(f"INSERT INTO t VALUES ({-1 - done}, {done}, 'new')")
        assert reader.value(f"SELECT v FROM t WHERE n = {-1 - done}") == "new"
        writer.ok(f"UPDATE t SET a = -1 WHERE n = {4 + 4 * done}")
        longest = max(longest, time.perf_counter() - begin)
        done += 1
    assert running.result(60).rows[-1][2:] == ("status", "OK")
    assert done > 2 and longest < 5, f"{done} changes, the longest took {longest} s"
    assert length(db) < before * 0.4, f"{length(db)} of {before}"
    assert db.value("SELECT COUNT(*) FROM t") == 50000 + done
    assert db.value("SELECT COUNT(*) FROM t FORCE INDEX (a) WHERE a = -1") == done
    sound(db)


def test_an_optimized_table_is_done_at_once(db):
    fill(db, 50000)
    assert answer(db) == [("status", "OK")]
    written = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'pbxt_merge_bytes_written'"
    before = db.value(written)
    assert answer(db) == [("status", "OK")]
    assert db.value(written) == before
    sound(db)


def test_an_old_snapshot_keeps_what_it_sees_and_the_answer_says_so(db):
    fill(db, 20000)
    old = db.session()
    old.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    db.ok("DELETE FROM t WHERE n > 10000")
    db.ok("UPDATE t SET a = 0")
    assert ("note", HELD) in answer(db)
    assert old.rows("SELECT COUNT(*), MAX(n), MIN(a) > 0 FROM t") == [(20000, 20000, 1)]
    old.ok("COMMIT")
    before = length(db)
    assert answer(db) == [("status", "OK")]
    assert length(db) < before
    assert db.rows("SELECT COUNT(*), MAX(a) FROM t") == [(10000, 0)]
    sound(db)


def test_progress_is_shown_and_a_kill_ends_optimize(db):
    fill(db, 600000)
    db.ok("DELETE FROM t WHERE n MOD 3 = 0")
    db.ok("UPDATE t SET a = a + 1 WHERE n MOD 3 = 1")
    rows = db.rows("SELECT COUNT(*), SUM(a), SUM(n) FROM t")
    busy = db.session()
    number = busy.thread_id()
    running = busy.later("OPTIMIZE TABLE t")
    seen = []

    def is_under_way():
        seen[:] = db.rows(PROGRESS.format(number))
        return not running.is_alive() or seen[0][1] == 1 and float(seen[0][2]) > 0

    wait_for(is_under_way, 120, "progress")
    assert running.is_alive(), seen
    begin = time.perf_counter()
    db.ok(f"KILL QUERY {number}")
    killed = running.result(60)
    took = time.perf_counter() - begin
    assert took < 3, f"{took} s"
    assert killed.error and killed.error[0] == 1317 or ("error", "stopped") in [row[2:] for row in killed.rows], killed
    assert db.rows("SELECT COUNT(*), SUM(a), SUM(n) FROM t") == rows
    sound(db)
    assert busy.value("SELECT COUNT(*) FROM t WHERE a >= 0") == rows[0][0], "the kill was for the statement before"
    assert answer(busy) == [("status", "OK")]
    assert db.rows("SELECT COUNT(*), SUM(a), SUM(n) FROM t") == rows
    sound(db)


def test_parts_of_a_table_are_optimized_by_name(db):
    rule = "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (20001), PARTITION p1 VALUES LESS THAN (40001), PARTITION p2 VALUES LESS THAN MAXVALUE)"
    db.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(200)) ENGINE=PBXT {rule}")
    db.ok(f"INSERT INTO t SELECT seq, {TEXT} FROM seq_1_to_60000")
    db.ok("OPTIMIZE TABLE t")
    size = "SELECT data_length FROM information_schema.partitions WHERE table_name = 't' AND table_schema = DATABASE() AND partition_name = 'p{}'"
    before = [db.value(size.format(part)) for part in range(3)]
    db.ok("DELETE FROM t WHERE n MOD 2 = 0")
    assert answer(db, "ALTER TABLE t OPTIMIZE PARTITION p1") == [("status", "OK")]
    assert db.value(size.format(1)) < before[1] * 0.7
    assert answer(db) == [("status", "OK")]
    assert all(db.value(size.format(part)) < before[part] * 0.7 for part in range(3))
    assert db.value("SELECT COUNT(*) FROM t") == 30000
    sound(db)


def test_a_temporary_table_is_optimized(db):
    db.ok("CREATE TEMPORARY TABLE t (n INT PRIMARY KEY, v VARCHAR(200)) ENGINE=PBXT")
    db.ok(f"INSERT INTO t SELECT seq, {TEXT} FROM seq_1_to_5000")
    db.ok("DELETE FROM t WHERE n > 1000")
    assert answer(db) == [("status", "OK")]
    assert db.value("SELECT COUNT(*) FROM t") == 1000


def test_rows_in_another_order_than_the_primary_keys_are_told(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(200)) ENGINE=PBXT")
    for part in range(3):
        db.ok(f"INSERT INTO t SELECT seq * 3 + {part}, SHA1(seq) FROM seq_1_to_1500")
    assert answer(db) == [("note", SCATTERED), ("status", "OK")]
    db.ok("ALTER TABLE t ORDER BY n")
    assert answer(db) == [("status", "OK")]
    sound(db)


def test_optimize_under_lock_tables(db):
    fill(db, 1000)
    db.ok("LOCK TABLES t WRITE")
    db.ok("DELETE FROM t WHERE n > 10")
    assert answer(db) == [("status", "OK")]
    assert db.value("SELECT COUNT(*) FROM t") == 10
    db.ok("UNLOCK TABLES")
    sound(db)


def test_optimize_ends_the_transaction_and_keeps_its_rows(db):
    fill(db, 100)
    db.ok("BEGIN")
    db.ok("DELETE FROM t WHERE n > 10")
    assert answer(db) == [("status", "OK")]
    db.ok("ROLLBACK")
    assert db.value("SELECT COUNT(*) FROM t") == 10
