"""Rows per key: ANALYZE TABLE, what outlives a restart, table options, and what DDL does to statistics (rules ST2 to ST10).

What the optimizer is told shows as `rows` of EXPLAIN for a table that is joined by a key; what it was made from is in
INFORMATION_SCHEMA.PBXT_INDEX_STATISTICS.
"""

import pytest

from sql_tools import Session, wait_for

pytestmark = pytest.mark.pbxt_only

ROWS = 40_000
LINES = (
    "SELECT TABLE_NAME AS name, INDEX_NAME, PREFIX_PARTS, ENTRIES_WHEN_SAMPLED, NEIGHBOURS_COMPARED, NEIGHBOURS_DIFFERING, SAMPLED, SAMPLED_BY, IS_SAVED"
    " FROM information_schema.PBXT_INDEX_STATISTICS WHERE TABLE_SCHEMA = '{}' HAVING name LIKE '{}%' ORDER BY 1, 2, 3"
)
OK = "OK"


def fill(session, name="t", options="", rows=ROWS):
    session.ok(f"CREATE TABLE {name} (n INT PRIMARY KEY, v INT, w INT, KEY kv (v), KEY kw (w, v)) ENGINE=PBXT {options}")
    session.ok(f"INSERT INTO {name} SELECT seq, seq * 7919 MOD {rows // 10}, seq MOD 7 FROM seq_1_to_{rows}")


def analyze(session, table="t", statement="ANALYZE TABLE {}"):
    answer = session.rows(statement.format(table))
    assert [row[2:] for row in answer if row[2] != "status" or row[3] != OK] == [], answer


def lines(session, database, table="t"):
    return session.rows(LINES.format(database, table))


def analyzed(session, database, table="t"):
    """Indexes of which ANALYZE took the sample."""
    return sorted({(line[0], line[1]) for line in lines(session, database, table) if line[7] == "ANALYZE"})


def rows_told(session, table="t", index="kv"):
    plan = session.rows(f"EXPLAIN SELECT STRAIGHT_JOIN * FROM (SELECT 1 AS x UNION SELECT 2) d, {table} FORCE INDEX ({index}) WHERE {table}.v = d.x")
    return int(next(line[8] for line in plan if line[2] == table))


@pytest.fixture
def server(own_server):
    return own_server()


def enter(server):
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE IF NOT EXISTS d")
    session.ok("USE d")
    return session


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_explain_tells_the_same_rows_after(server, how):
    session = enter(server)
    fill(session)
    analyze(session)
    told = rows_told(session)
    assert told == 10
    # Not a tenth more, but as many values as before: whoever samples anew tells half as many rows.
    session.ok(f"INSERT INTO t SELECT seq, seq, seq FROM seq_1000001_to_{1_000_000 + ROWS * 9 // 100}")
    assert abs(rows_told(session) - told) <= 1
    told, before = rows_told(session), lines(session, "d")
    session.close()
    if how == "kill":
        server.kill()
    else:
        server.stop()
    server.start()
    session = enter(server)
    assert lines(session, "d") == before, "there before anybody has asked"
    assert rows_told(session) == told
    assert lines(session, "d") == before, "nothing was sampled anew"
    analyze(session)
    assert rows_told(session) <= 6
    session.close()


def test_what_a_question_sampled_outlives_a_restart(server):
    session = enter(server)
    fill(session)
    told, before = rows_told(session), lines(session, "d")
    assert before and {line[7] for line in before} == {"use"}
    session.close()
    server.stop()
    server.start()
    session = enter(server)
    assert (rows_told(session), lines(session, "d")) == (told, before)
    session.close()


def test_analyze_looks_closer_than_a_question(db):
    fill(db, rows=200_000)
    rows_told(db)
    by_use = {line[1:3]: line[4] for line in lines(db, db.name)}
    analyze(db)
    by_analyze = {line[1:3]: line[4] for line in lines(db, db.name)}
    assert analyzed(db, db.name) == [("t", "PRIMARY"), ("t", "kv"), ("t", "kw")]
    assert all(by_analyze[prefix] > by_use[prefix] for prefix in by_analyze), (by_use, by_analyze)
    per_key = db.rows(
        "SELECT INDEX_NAME, PREFIX_PARTS, ROWS_PER_KEY FROM information_schema.PBXT_INDEX_STATISTICS"
        f" WHERE TABLE_SCHEMA = '{db.name}' ORDER BY 1, 2"
    )
    found = {(index, parts): rows for index, parts, rows in per_key}
    # 7 and 20,000 have no common factor.
    truth = {("PRIMARY", 1): 1, ("kv", 1): 10, ("kv", 2): 1, ("kw", 1): 200_000 // 7, ("kw", 2): 10 / 7, ("kw", 3): 1}
    assert found.keys() == truth.keys()
    near = {key: abs(found[key] - rows) <= max(1, rows / 2) for key, rows in truth.items()}
    assert all(near.values()), (found, truth)


LONG = "STATS_SAMPLE_PAGES=65535"
PROGRESS = "SELECT STAGE, PROGRESS FROM information_schema.PROCESSLIST WHERE ID = {}"


def make_long(db):
    """A table whose ANALYZE reads some million entries."""
    keys = ", ".join(f"KEY k{number} (v, w)" for number in range(12))
    db.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v INT, w INT, {keys}) ENGINE=PBXT {LONG}")
    db.ok("INSERT INTO t SELECT seq, seq MOD 1000, seq FROM seq_1_to_400000")


def test_a_killed_analyze_leaves_the_old_statistics(db):
    make_long(db)
    analyze(db)
    db.ok("INSERT INTO t SELECT seq, seq, seq FROM seq_500001_to_500100")
    before = lines(db, db.name)
    busy = db.session()
    number = busy.thread_id()
    for _ in range(20):
        running = busy.later("ANALYZE TABLE t")
        wait_for(lambda: not running.is_alive() or float(db.rows(PROGRESS.format(number))[0][1]) > 0, 60, "progress")
        db.ok(f"KILL QUERY {number}")
        answer = running.result(60)
        if answer.error is None and answer.rows[-1][3] == OK:
            before = lines(db, db.name)
            continue
        told = str(answer.error or answer.rows)
        assert "interrupted" in told or "stopped" in told, answer
        break
    else:
        pytest.fail("no ANALYZE took long enough to be killed")
    assert lines(db, db.name) == before
    busy.ok("SELECT 1")
    analyze(db)
    assert lines(db, db.name) != before


def test_analyze_shows_its_progress(db):
    make_long(db)
    busy = db.session()
    number = busy.thread_id()
    seen = []
    running = busy.later("ANALYZE TABLE t")

    def is_over():
        stage, progress = db.rows(PROGRESS.format(number))[0]
        if stage == 1 and progress not in seen:
            seen.append(progress)
        return not running.is_alive()

    wait_for(is_over, 120, "the end of ANALYZE")
    assert running.result().rows[-1][3] == OK
    assert len(seen) >= 2 and seen == sorted(seen), seen


def test_analyze_waits_for_nobody_and_nobody_for_it(db):
    make_long(db)
    writer, reader = db.session(), db.session()
    writer.ok("BEGIN")
    writer.ok("UPDATE t SET v = v + 1 WHERE n <= 100")
    writer.ok("INSERT INTO t VALUES (1000000, 1, 1)")
    reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    busy = db.session()
    done = 0
    running = busy.later("ANALYZE TABLE t")
    while running.is_alive():
        done += 1
        writer.ok(f"INSERT INTO t VALUES ({1_000_000 + done}, 1, 1)")
        assert reader.value("SELECT COUNT(*) FROM t") == 400_000
        assert reader.value("SELECT v FROM t WHERE n = 7") == 7
    assert running.result().rows[-1][3] == OK
    assert done >= 3, f"{done} statements beside it"
    writer.ok("COMMIT")
    reader.ok("COMMIT")
    assert db.value("SELECT COUNT(*) FROM t") == 400_001 + done
    assert db.rows("CHECK TABLE t")[-1][3] == OK


PARTITIONS = "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (20000), PARTITION p1 VALUES LESS THAN MAXVALUE)"
OF_PARTITION = [("PRIMARY",), ("kv",), ("kw",)]


def test_partitions_are_analyzed_each_and_together(server):
    session = enter(server)
    fill(session, options=PARTITIONS)
    analyze(session, statement="ALTER TABLE {} ANALYZE PARTITION p1")
    assert analyzed(session, "d") == [("t#P#p1", *index) for index in OF_PARTITION]
    analyze(session)
    assert analyzed(session, "d") == [(f"t#P#{part}", *index) for part in ("p0", "p1") for index in OF_PARTITION]
    before, told = lines(session, "d"), rows_told(session)
    session.close()
    server.kill()
    server.start()
    session = enter(server)
    assert (rows_told(session), lines(session, "d")) == (told, before)
    session.close()


def test_an_exchange_of_a_partition_takes_the_statistics_along(db):
    fill(db, options=PARTITIONS)
    db.ok("CREATE TABLE x (n INT PRIMARY KEY, v INT, w INT, KEY kv (v), KEY kw (w, v)) ENGINE=PBXT")
    db.ok("INSERT INTO x SELECT seq, 1, 1 FROM seq_1_to_500")
    analyze(db, "x")
    analyze(db)

    def entries(table):
        return {line[3] for line in lines(db, db.name, table) if line[7] == "ANALYZE"}

    assert (entries("x"), entries("t#P#p0")) == ({500}, {19_999})
    db.ok("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE x")
    assert (entries("x"), entries("t#P#p0")) == ({19_999}, {500})
    assert rows_told(db, "x") in range(3, 8), "half of each value's rows"


def test_truncate_and_drop_take_the_statistics_away(server):
    session = enter(server)
    fill(session)
    analyze(session)
    session.ok("TRUNCATE TABLE t")
    assert analyzed(session, "d") == []
    session.ok("INSERT INTO t SELECT seq, 1, 1 FROM seq_1_to_3000")
    assert rows_told(session) == 3000
    analyze(session)
    session.ok("DROP TABLE t")
    assert lines(session, "d") == []
    fill(session)
    assert analyzed(session, "d") == []
    session.close()
    server.kill()
    server.start()
    session = enter(server)
    assert analyzed(session, "d") == []
    session.close()


def test_alter_keeps_the_statistics_of_indexes_that_stay(server):
    session = enter(server)
    fill(session)
    analyze(session)
    before = {line[1:] for line in lines(session, "d")}
    session.ok("ALTER TABLE t ADD COLUMN x INT, ALGORITHM=INSTANT")
    session.ok("RENAME TABLE t TO tt")
    assert {line[1:] for line in lines(session, "d", "tt")} == before
    session.ok("ALTER TABLE tt RENAME INDEX kv TO kx, ALGORITHM=INSTANT")
    assert analyzed(session, "d", "tt") == [("tt", index) for index in ("PRIMARY", "kw", "kx")]
    session.ok("ALTER TABLE tt DROP INDEX kw")
    # Another index under the name of one that was dropped.
    session.ok("ALTER TABLE tt DROP INDEX kx, ADD INDEX kw (v, w), ALGORITHM=NOCOPY")
    assert analyzed(session, "d", "tt") == [("tt", "PRIMARY")]
    assert rows_told(session, "tt", "kw") in range(9, 12)
    session.close()
    server.kill()
    server.start()
    session = enter(server)
    assert analyzed(session, "d", "tt") == [("tt", "PRIMARY")]
    session.ok("ALTER TABLE tt FORCE, ALGORITHM=COPY")
    assert analyzed(session, "d", "tt") == [], "a copy has other indexes"
    assert rows_told(session, "tt", "kw") in range(8, 13)
    session.close()


def test_with_stats_auto_recalc_0_only_analyze_changes_what_is_told(server):
    session = enter(server)
    fill(session, options="STATS_AUTO_RECALC=0")
    analyze(session)
    before = lines(session, "d")
    session.ok("INSERT INTO t SELECT seq, seq, seq FROM seq_1000001_to_1060000")
    told = rows_told(session)
    assert told in range(9, 12), "10 rows for each value, although most have one now"
    session.close()
    server.stop()
    server.start()
    session = enter(server)
    assert (rows_told(session), lines(session, "d")) == (told, before)
    session.ok("ALTER TABLE t STATS_AUTO_RECALC=DEFAULT")
    assert rows_told(session) < 5
    session.ok("ALTER TABLE t STATS_AUTO_RECALC=0")
    analyze(session)
    assert rows_told(session) < 5
    session.close()


def test_stats_sample_pages_says_how_much_is_looked_at(db):
    fill(db, rows=200_000)
    analyze(db)
    compared = {line[1]: line[4] for line in lines(db, db.name)}
    db.ok("ALTER TABLE t STATS_SAMPLE_PAGES=3, ALGORITHM=INSTANT")
    analyze(db)
    few = {line[1]: line[4] for line in lines(db, db.name)}
    assert all(few[index] < compared[index] / 20 for index in few), (few, compared)
    db.ok("ALTER TABLE t STATS_SAMPLE_PAGES=65535")
    analyze(db)
    assert {line[4] for line in lines(db, db.name)} == {199_999}, "all of them"
    assert rows_told(db) == 10


def test_with_stats_persistent_0_statistics_go_with_the_server(server):
    session = enter(server)
    fill(session, options="STATS_PERSISTENT=0")
    analyze(session)
    assert {line[8] for line in lines(session, "d")} == {0}
    assert len(analyzed(session, "d")) == 3
    session.close()
    server.stop()
    server.start()
    session = enter(server)
    assert lines(session, "d") == []
    assert rows_told(session) in range(8, 13)
    session.close()


def test_a_temporary_table_is_analyzed_and_nothing_of_it_is_saved(db):
    db.ok("CREATE TEMPORARY TABLE t (n INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE=PBXT")
    db.ok("INSERT INTO t SELECT seq, seq DIV 20 FROM seq_1_to_30000")
    analyze(db)
    assert rows_told(db) == 20
