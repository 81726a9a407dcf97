"""What the engine tells about itself: engine list, table status, engine status, CHECK TABLE, variables."""

import time

import pytest


@pytest.mark.pbxt_only
def test_the_engine_is_listed_with_its_abilities(db):
    row = db.rows("SELECT support, transactions, xa, savepoints FROM information_schema.engines WHERE engine = 'PBXT'")
    assert row in ([("YES", "YES", "YES", "YES")], [("DEFAULT", "YES", "YES", "YES")])
    maturity, licence = db.rows(
        "SELECT plugin_maturity, plugin_license FROM information_schema.plugins WHERE plugin_name = 'PBXT'"
    )[0]
    assert maturity in ("Gamma", "Stable") and licence == "GPL"


def test_show_create_table_names_engine_and_options(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine} AVG_ROW_LENGTH=100 COMMENT='c'")
    text = db.rows("SHOW CREATE TABLE t")[0][1]
    assert f"ENGINE={db.engine}" in text and "COMMENT='c'" in text


def test_table_status_counts_rows_and_bytes(db):
    db.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200)) ENGINE={engine}")
    # Text that no compression makes shorter than half: stored bytes count.
    db.ok("INSERT INTO t (v) SELECT CONCAT(SHA1(seq), SHA1(seq + 0.5), SHA1(-seq), MD5(seq)) FROM seq_1_to_5000")
    db.ok("ANALYZE TABLE t")
    row = db.rows("SHOW TABLE STATUS LIKE 't'")[0]
    assert row[1].lower() == db.engine.lower()
    assert 4500 <= row[4] <= 5500, f"rows {row[4]}"
    assert 5000 * 60 <= row[6] <= 5000 * 400, f"data length {row[6]}"
    assert row[10] >= 5001, f"auto increment {row[10]}"


@pytest.mark.pbxt_only
def test_table_status_says_what_is_free(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(200)) ENGINE=PBXT")
    db.ok("INSERT INTO t SELECT seq, CONCAT(SHA1(seq), SHA1(seq + 0.5), SHA1(-seq), MD5(seq)) FROM seq_1_to_100000")

    def sizes():
        row = db.rows("SHOW TABLE STATUS LIKE 't'")[0]
        return row[6], row[9]

    length, free = sizes()
    assert length > 5_000_000 and free == 0
    db.ok("DELETE FROM t WHERE n MOD 2 = 0")
    length, free = sizes()
    assert 0.3 < free / length < 0.7, f"{free} of {length}"
    db.ok("OPTIMIZE TABLE t")
    length, free = sizes()
    assert free == 0 and length < 8_000_000, f"{free} of {length}"


@pytest.mark.pbxt_only
def test_count_star_takes_no_scan(db):
    db.ok("CREATE TABLE t (n INT) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq FROM seq_1_to_500000")
    db.value("SELECT COUNT(*) FROM t")
    begin = time.perf_counter()
    for _ in range(100):
        assert db.value("SELECT COUNT(*) FROM t") == 500_000
    assert time.perf_counter() - begin < 1.0


@pytest.mark.pbxt_only
def test_engine_status_has_the_lines_people_know(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY) ENGINE=PBXT")
    db.ok("INSERT INTO t VALUES (1)")
    kind, _name, text = db.rows("SHOW ENGINE PBXT STATUS")[0]
    assert kind == "PBXT"
    for line in (
        "PBXT",
        "STATUS OUTPUT",
        "Record cache usage",
        "Index cache usage",
        "Log cache usage",
        "Row runs",
        "Index runs",
        "Background jobs",
    ):
        assert line in text, f"{line} is missing in:\n{text}"


def status_values(db):
    return {row[0].lower(): int(row[1]) for row in db.rows("SHOW GLOBAL STATUS LIKE 'pbxt%'")}


@pytest.mark.pbxt_only
def test_background_jobs_come_to_an_end_and_the_figures_say_where_the_rows_are(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(200), KEY (v)) ENGINE=PBXT")
    db.ok("INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_20000")
    end = time.perf_counter() + 60
    while (now := status_values(db))["pbxt_background_jobs_now"] > 0:
        assert time.perf_counter() < end, now
        time.sleep(0.2)
    assert now["pbxt_checkpoints_failed"] == 0, now
    assert now["pbxt_block_cache_budget_bytes_now"] > 0, now
    assert now["pbxt_block_cache_bytes_now"] <= now["pbxt_block_cache_budget_bytes_now"], now
    assert now["pbxt_hot_log_bytes_now"] > 0 or now["pbxt_row_run_bytes_now"] > 0, now
    parts = sum(value for name, value in now.items() if name.startswith("pbxt_space_"))
    assert parts == now["pbxt_data_bytes_on_disk_now"], now
    for what in ("row", "index"):
        runs, pieces = now[f"pbxt_{what}_runs_now"], now[f"pbxt_{what}_pieces_now"]
        assert runs <= pieces, now
        assert (pieces > 0) == (now[f"pbxt_{what}_run_bytes_now"] > 0), now
    assert db.rows("CHECK TABLE t")[-1][2:] == ("status", "OK")


@pytest.mark.pbxt_only
def test_engine_status_shows_the_latest_deadlock(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE=PBXT")
    db.ok("INSERT INTO t VALUES (1, 0), (2, 0)")
    one, other = db.session(), db.session()
    one.ok("BEGIN")
    other.ok("BEGIN")
    one.ok("UPDATE t SET v = 1 WHERE n = 1")
    other.ok("UPDATE t SET v = 1 WHERE n = 2")
    waiting = other.later("UPDATE t SET v = 2 WHERE n = 1")
    assert waiting.waits()
    one.run("UPDATE t SET v = 2 WHERE n = 2")
    waiting.result()
    text = db.rows("SHOW ENGINE PBXT STATUS")[0][2]
    assert "deadlock" in text.lower(), text
    one.run("ROLLBACK")
    other.run("ROLLBACK")


def test_check_table_finds_a_sound_table_sound(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, w TEXT, KEY (v), KEY (w(10))) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq % 77, REPEAT('w', seq % 300) FROM seq_1_to_3000")
    db.ok("BEGIN")
    db.ok("UPDATE t SET v = v + 1 WHERE n < 1000")
    db.ok("ROLLBACK")
    db.ok("UPDATE t SET v = v + 1, w = 'short' WHERE n BETWEEN 500 AND 900")
    db.ok("DELETE FROM t WHERE n % 3 = 0")
    for extra in ("", "QUICK", "EXTENDED"):
        rows = db.rows(f"CHECK TABLE t {extra}")
        assert rows[-1][2:] == ("status", "OK"), rows


@pytest.mark.pbxt_only
def test_variables_are_there_and_refuse_nonsense(db):
    names = {row[0] for row in db.rows("SHOW GLOBAL VARIABLES LIKE 'pbxt%'")}
    expected = {
        "pbxt_cache_size",
        "pbxt_flush_log_at_trx_commit",
        "pbxt_lock_wait_timeout",
        "pbxt_conflict_mode",
        "pbxt_data_dir",
    }
    assert expected <= names, f"missing: {expected - names}"
    db.fails("SET SESSION pbxt_conflict_mode = 'sometimes'", 1231)
    db.fails("SET SESSION pbxt_lock_wait_timeout = 'long'", 1232)


@pytest.mark.pbxt_only
def test_the_engine_folder_is_no_database(db):
    names = [row[0] for row in db.rows("SHOW DATABASES")]
    assert not [name for name in names if "pbxt" in name.lower()], names


def test_explain_and_key_statistics_answer(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_10000")
    db.ok("ANALYZE TABLE t")
    assert db.rows("EXPLAIN SELECT * FROM t WHERE n = 5")[0][5] == "PRIMARY"
    keys = {row[2]: row[6] for row in db.rows("SHOW KEYS FROM t")}
    assert keys["PRIMARY"] and 5000 <= int(keys["PRIMARY"]) <= 20000, keys


def test_unsupported_kinds_of_key_are_refused_by_name(db):
    for key in ("FULLTEXT KEY (v)", "SPATIAL KEY (g)"):
        answer = db.run(f"CREATE TABLE t (n INT PRIMARY KEY, v TEXT, g POINT NOT NULL, {key}) ENGINE={{engine}}")
        if db.engine.upper() == "PBXT":
            assert answer.error and answer.error[0] in (1214, 1464, 1178), answer
        db.run("DROP TABLE IF EXISTS t")
