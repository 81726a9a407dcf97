"""The performance schema: files, threads, waits and memory of the engine, with figures that agree with what was done.

Figures of the server are read between two readings of the engine's own status variables, so what both count must lie between them.
Rules: PS1 to PS9 of docs/instruments.md.
"""

import os
import threading
from pathlib import Path

import pytest

from sql_tools import Database, wait_for

pytestmark = pytest.mark.pbxt_only

# Waits and memory are off in the server's defaults, files and threads are on.
ON = [
    "--performance-schema=1",
    "--performance-schema-instrument=wait/synch/cond/pbxt/%=ON",
    "--performance-schema-instrument=memory/pbxt/%=ON",
    "--performance-schema-consumer-events-waits-current=ON",
    "--performance-schema-consumer-events-waits-history=ON",
    "--performance-schema-consumer-events-waits-history-long=ON",
]
LOG = "wait/io/file/pbxt/log"
BACKGROUND_THREADS = {"log", "checkpoint", "upkeep", "housekeeper", "scrub", "memory"}


@pytest.fixture
def measured(own_server, engine):
    """A database in a server that keeps accounts."""
    with Database(own_server(*ON), "d", engine) as db:
        yield db


def status(db):
    return {row[0].lower(): int(row[1]) for row in db.rows("SHOW GLOBAL STATUS LIKE 'pbxt%'")}


def file_totals(db, event):
    """Reads, bytes read, writes, bytes written, and the other operations of one kind of file."""
    row = db.rows(
        "SELECT count_read, sum_number_of_bytes_read, count_write, sum_number_of_bytes_write, count_misc"
        f" FROM performance_schema.file_summary_by_event_name WHERE event_name = '{event}'"
    )[0]
    return dict(zip(("reads", "bytes_read", "writes", "bytes_written", "others"), map(int, row)))


def between_readings(db, event):
    """The engine's figures before, the server's of its files, and the engine's after."""
    return status(db), file_totals(db, event), status(db)


def listed_files(db, kind="%"):
    """Names of the files that the server has, without folders."""
    rows = db.rows(f"SELECT file_name FROM performance_schema.file_instances WHERE event_name LIKE 'wait/io/file/pbxt/{kind}'")
    return {Path(row[0]).name for row in rows}


def at_rest(db):
    """Background work has nothing left to do."""
    wait_for(lambda: status(db)["pbxt_background_jobs_now"] == 0, 60, "the end of background work")


def my_events(db, name):
    """What this connection's thread waited for, the latest first: operation, bytes, file, time in picoseconds."""
    return db.rows(
        "SELECT operation, number_of_bytes, object_name, timer_wait FROM performance_schema.events_waits_history_long"
        " JOIN performance_schema.threads USING (thread_id)"
        f" WHERE processlist_id = CONNECTION_ID() AND event_name = '{name}' ORDER BY event_id DESC"
    )


def test_the_files_that_the_performance_schema_lists_are_those_that_are_there(measured):
    folder = measured.server.engine_dir()
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(60), KEY (v)) ENGINE={engine}")
    measured.ok("INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_50000")
    at_rest(measured)
    for kind, beginning in (("log", "hot-"), ("rows", "cold-"), ("indexes", "meta-"), ("manifest", "pbxt.manifest.")):
        names = listed_files(measured, kind)
        assert names and all(name.startswith(beginning) for name in names), (kind, names)
    paths = measured.rows("SELECT file_name FROM performance_schema.file_instances WHERE event_name LIKE '%/pbxt/directory'")
    assert [os.path.realpath(path[0]) for path in paths] == [str(folder)]
    measured.ok("DROP TABLE t")

    def agree():
        there = {path.name for path in folder.iterdir()} | {folder.name}
        return listed_files(measured) <= there and not any(name.startswith("cold-") for name in there)

    # What is removed goes from the list, although caches may have it open (PS4).
    wait_for(agree, 60, "a list without removed files")


def test_bytes_and_syncs_of_the_log_agree_with_the_engines_own_figures(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    at_rest(measured)
    before, files, after = between_readings(measured, LOG)
    for number in range(100):
        measured.ok(f"INSERT INTO t VALUES ({number}, 0)")
    later_before, later_files, later_after = between_readings(measured, LOG)

    def may_be(name):
        return range(later_before[name] - after[name], later_after[name] - before[name] + 1)

    # No segment of 64 MiB was begun, so nothing but batches was written; headers of segments are no batches.
    assert before["pbxt_log_tail_lsn"] >> 26 == later_after["pbxt_log_tail_lsn"] >> 26
    assert later_files["bytes_written"] - files["bytes_written"] in may_be("pbxt_log_bytes_written")
    assert later_files["writes"] - files["writes"] >= 100
    assert may_be("pbxt_log_syncs").start >= 100
    # Besides syncs, segments that are made ahead are created, synced and opened.
    others = later_files["others"] - files["others"]
    assert may_be("pbxt_log_syncs").start <= others <= may_be("pbxt_log_syncs").stop + 6
    assert later_files["bytes_read"] == files["bytes_read"]


def test_a_commit_is_a_write_and_a_sync_of_its_own_thread(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    at_rest(measured)
    for number in range(10):
        measured.ok(f"INSERT INTO t VALUES ({number}, 0)")
        events = my_events(measured, LOG)[:2]
        # Unless the log's own thread, which looks once a second, was faster.
        if [event[0] for event in events] == ["sync", "write"]:
            break
    (_, _, synced, sync_time), (_, bytes_written, written, write_time) = events
    assert synced == written and Path(written).name.startswith("hot-"), events
    assert bytes_written > 0 and bytes_written % 512 == 0, "D30: whole sectors"
    assert sync_time > 0 and write_time > 0


def test_reading_rows_again_after_a_start_reads_their_files_once(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(60)) ENGINE={engine}")
    measured.ok("INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_100000")
    at_rest(measured)

    def bytes_read(session):
        return sum(event[1] for event in my_events(session, "wait/io/file/pbxt/rows") if event[0] == "read")

    def merged(session):
        return status(session)["pbxt_merge_bytes_written"]

    for _ in range(5):
        measured.server.restart()
        session = measured.session()
        at_rest(session)
        before = merged(session)
        assert session.value("SELECT COUNT(DISTINCT v) FROM t") == 100_000
        first = bytes_read(session)
        assert session.value("SELECT COUNT(DISTINCT v) FROM t") == 100_000
        second = bytes_read(session)
        size = status(session)["pbxt_row_run_bytes_now"]
        # A merge would have put other files in their place meanwhile.
        if merged(session) == before:
            break
    assert size > 100_000 * 20, "half a digest of text does not get shorter"
    # Each block once, because the cache is large; but for the frame of the files nothing else.
    assert 0.9 * size <= first <= 1.1 * size + (64 << 10), (size, first)
    assert second == first, "all of it is in the cache"


def test_threads_of_the_engine_are_background_threads(measured):
    rows = measured.rows(
        "SELECT name, type, processlist_id, thread_os_id FROM performance_schema.threads WHERE name LIKE 'thread/pbxt/%'"
    )
    assert {row[0].removeprefix("thread/pbxt/") for row in rows} >= BACKGROUND_THREADS
    tasks = Path(f"/proc/{measured.server.pid()}/task")
    for name, kind, connection, number in rows:
        assert (kind, connection) == ("BACKGROUND", None), name
        # The system keeps 15 characters.
        assert (tasks / str(number) / "comm").read_text().strip() == f"pbxt-{name.removeprefix('thread/pbxt/')}"[:15]
    named = {task.name for task in tasks.iterdir() if (task / "comm").read_text().startswith("pbxt-")}
    assert named == {str(row[3]) for row in rows}


def test_what_a_background_thread_writes_is_counted_at_it(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(60)) ENGINE={engine}")
    at_rest(measured)
    # Commits write nothing; the log's own thread does, within a second.
    measured.ok("SET GLOBAL pbxt_flush_log_at_trx_commit = 0")
    written = (
        "SELECT COUNT(*) FROM performance_schema.events_waits_history_long JOIN performance_schema.threads USING (thread_id)"
        f" WHERE name = 'thread/pbxt/log' AND event_name = '{LOG}' AND operation = 'write'"
    )
    before = measured.value(written)
    measured.ok("INSERT INTO t VALUES (1, 'a')")
    wait_for(lambda: measured.value(written) > before, 10, "a write by the log's own thread")


def test_a_wait_for_a_row_lock_is_an_event(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    measured.ok("INSERT INTO t VALUES (1, 0)")
    holder, waiter = measured.session(), measured.session()
    thread = f"(SELECT thread_id FROM performance_schema.threads WHERE processlist_id = {waiter.thread_id()})"
    event = "event_name = 'wait/synch/cond/pbxt/lock'"
    total = f"SELECT count_star FROM performance_schema.events_waits_summary_global_by_event_name WHERE {event}"
    assert measured.value(total) == 0
    holder.ok("BEGIN")
    holder.ok("UPDATE t SET v = 1")
    blocked = waiter.later("UPDATE t SET v = 2")
    assert blocked.waits(0.5)
    current = f"SELECT end_event_id, operation FROM performance_schema.events_waits_current WHERE {event} AND thread_id = {thread}"
    assert measured.rows(current) == [(None, "wait")]
    holder.ok("COMMIT")
    blocked.result()
    past = f"SELECT timer_wait FROM performance_schema.events_waits_history_long WHERE {event} AND thread_id = {thread}"
    waits = measured.rows(past)
    assert len(waits) == measured.value(total) == status(measured)["pbxt_lock_waits"] == 1
    # The server's clock counts ticks of the processor, which it has measured at its start.
    assert 0.4e12 < waits[0][0] < 60e12


def test_commits_that_wait_for_the_flush_of_another_are_events(measured):
    measured.ok("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    total = (
        "SELECT count_star FROM performance_schema.events_waits_summary_global_by_event_name"
        " WHERE event_name = 'wait/synch/cond/pbxt/log'"
    )

    def insert(session):
        for number in range(50):
            session.ok(f"INSERT INTO t (v) VALUES ({number})")

    def seen():
        threads = [threading.Thread(target=insert, args=(measured.session(),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return measured.value(total) > 0

    wait_for(seen, 60, "a commit that waits for another")


def test_memory_of_the_large_structures_is_told(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(60), KEY (v)) ENGINE={engine}")
    measured.ok("INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_100000")
    at_rest(measured)
    measured.value("SELECT COUNT(DISTINCT v) FROM t IGNORE INDEX (v)")
    variables = {
        "log": "pbxt_cache_bytes_now",
        "block_cache": "pbxt_block_cache_bytes_now",
        "index_entries": "pbxt_index_memory_bytes_now",
        "row_map": "pbxt_row_map_memory_bytes_now",
    }

    def agree():
        before = status(measured)
        told = dict(
            measured.rows(
                "SELECT SUBSTRING_INDEX(event_name, '/', -1), current_number_of_bytes_used"
                " FROM performance_schema.memory_summary_global_by_event_name WHERE event_name LIKE 'memory/pbxt/%'"
            )
        )
        return before == status(measured) and {name: before[of] for name, of in variables.items()} == told

    wait_for(agree, 30, "memory as the status variables have it")
    assert status(measured)["pbxt_block_cache_bytes_now"] > 0


def test_without_the_performance_schema_there_is_nothing_to_see_and_nothing_is_missed(own_server, engine):
    with Database(own_server("--performance-schema=0"), "d", engine) as db:
        db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
        db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
        assert db.value("SELECT SUM(v) FROM t") == 500_500
        assert db.value("SELECT COUNT(*) FROM performance_schema.setup_instruments WHERE name LIKE '%pbxt%'") == 0
        assert db.value("SELECT COUNT(*) FROM performance_schema.file_instances") == 0
        comms = [path.read_text().strip() for path in Path(f"/proc/{db.server.pid()}/task").glob("*/comm")]
        # Nobody wants to hear of memory.
        assert {comm for comm in comms if comm.startswith("pbxt-")} >= {f"pbxt-{name}"[:15] for name in BACKGROUND_THREADS - {"memory"}}
        assert "pbxt-memory" not in comms


def test_instruments_can_be_switched_off_one_by_one(own_server, engine):
    off = ["--performance-schema=1", "--performance-schema-instrument=wait/io/file/pbxt/log=OFF"]
    with Database(own_server(*off), "d", engine) as db:
        db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
        db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
        assert db.value("SELECT SUM(v) FROM t") == 500_500
        assert listed_files(db, "log") == set() and listed_files(db, "manifest") != set()


def test_the_guide_lists_the_instruments_that_the_server_has(measured):
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "performance-schema.md").read_text(encoding="utf-8")
    names = {row[0] for row in measured.rows("SELECT name FROM performance_schema.setup_instruments WHERE name LIKE '%pbxt%'")}
    kinds = {kind: {name.rpartition("/")[2] for name in names if name.startswith(kind)} for kind in ("wait/io", "wait/synch", "memory")}
    assert kinds["wait/io"] == {"log", "rows", "indexes", "blobs", "manifest", "directory", "other"}
    assert kinds["wait/synch"] == {"lock", "log", "background"}
    assert kinds["memory"] == {"log", "block_cache", "index_entries", "row_map"}
    assert len(names) == 14, names
    for name in names:
        assert f"`{name}`" in guide or f"`.../{name.rpartition('/')[2]}`" in guide, name


def test_latches_of_the_engine_are_not_in_the_performance_schema(measured):
    for kind in ("mutex", "rwlock", "sxlock"):
        assert measured.value(f"SELECT COUNT(*) FROM performance_schema.setup_instruments WHERE name LIKE 'wait/synch/{kind}/pbxt/%'") == 0


def test_a_server_that_keeps_accounts_survives_a_kill(measured):
    measured.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    measured.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
    measured.server.kill()
    measured.server.start()
    session = measured.session()
    assert session.value("SELECT SUM(v) FROM d.t") == 500_500
    assert file_totals(session, LOG)["bytes_read"] > 0, "recovery reads the log"
