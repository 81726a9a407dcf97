"""Snapshots over two engines, and transactions that only read: what START TRANSACTION promises, and what reading costs."""

import pytest

from sql_tools import Database, wait_for

LOOKS, LONG_LOOKS = 150, 3000
COUNTERS = ("Pbxt_txns_committed", "Pbxt_txns_rolled_back", "Pbxt_log_tail_lsn")

# Both engines get one row for each transfer; half of the transfers write the engines in the other order, some are rolled back.
TRANSFERS = (
    "CREATE PROCEDURE transfers(client INT) BEGIN DECLARE i INT DEFAULT 0;"
    " WHILE (SELECT goes FROM control) DO START TRANSACTION;"
    " IF i % 2 THEN INSERT INTO ours VALUES (client, i, 7); INSERT INTO theirs VALUES (client, i, 7);"
    " ELSE INSERT INTO theirs VALUES (client, i, 7); INSERT INTO ours VALUES (client, i, 7); END IF;"
    " IF i % 7 = 3 THEN ROLLBACK; ELSE COMMIT; END IF; SET i = i + 1; END WHILE; END"
)
TOTALS = "SELECT COUNT(*), COALESCE(SUM(amount), 0), COUNT(DISTINCT client) FROM {}"


def look(reader, looks):
    """Looks at both tables again and again, each time in one snapshot; the numbers of transfers seen."""
    seen = []
    for number in range(looks):
        reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        tables = ("ours", "theirs") if number % 2 else ("theirs", "ours")
        first, second = (reader.rows(TOTALS.format(name)) for name in tables)
        assert first == second, f"look {number}: {tables[0]} has {first}, {tables[1]} has {second}"
        assert reader.rows(TOTALS.format(tables[0])) == first, "the snapshot stands"
        reader.ok("COMMIT")
        seen.append(first[0][0])
    return seen


def test_a_consistent_snapshot_is_one_moment_of_both_engines(own_server, engine, request):
    server = own_server("--log-bin=bin", "--binlog-format=ROW", "--sync-binlog=0")
    with Database(server, "moments", engine) as db:
        for name, kind in (("ours", engine), ("theirs", "InnoDB")):
            db.ok(f"CREATE TABLE {name} (client INT, i INT, amount INT, PRIMARY KEY (client, i)) ENGINE={kind}")
        db.ok("CREATE TABLE control (goes INT) ENGINE=Aria")
        db.ok("INSERT INTO control VALUES (1)")
        db.ok(TRANSFERS)
        clients = [db.session().later(f"CALL transfers({number})") for number in range(4)]
        try:
            wait_for(lambda: db.value("SELECT COUNT(*) FROM ours") > 20, what="20 transfers")
            seen = look(db.session(), LONG_LOOKS if request.config.getoption("--long") else LOOKS)
        finally:
            db.ok("UPDATE control SET goes = 0")
        for client in clients:
            assert client.result(60).error is None, client.answer
        assert seen == sorted(seen) and seen[0] < seen[-1], "there were transfers between the looks"
        assert db.rows(TOTALS.format("ours")) == db.rows(TOTALS.format("theirs"))


@pytest.fixture
def table(db):
    """A thousand rows with a secondary key."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
    return db


def counters(db):
    """Totals that no reader may move."""
    return [int(db.rows(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1]) for name in COUNTERS]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("begin", ["START TRANSACTION READ ONLY", "BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"])
def test_a_transaction_that_only_reads_takes_no_id_and_writes_no_record(table, begin, level):
    reader = table.session()
    reader.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    listed = f"SELECT COUNT(*) FROM information_schema.pbxt_trx WHERE txn_id IS NOT NULL AND connection_id = {reader.thread_id()}"

    def read_twenty_times():
        before = counters(table)
        for number in range(20):
            reader.ok(begin)
            reader.ok("SELECT SUM(v) FROM t")
            reader.ok("SELECT n FROM t FORCE INDEX (v) WHERE v BETWEEN 10 AND 20")
            reader.ok("SELECT COUNT(*) FROM t")
            assert table.value(listed) == 0, "T21: no id"
            reader.ok("COMMIT" if number % 2 else "ROLLBACK")
        return counters(table) == before

    # Background work of earlier tests may log something meanwhile, but not for ever.
    wait_for(read_twenty_times, 20, "twenty transactions without a record")
    reader.ok("START TRANSACTION READ ONLY")
    reader.fails("UPDATE t SET v = 0 WHERE n = 1", 1792)
    reader.ok("COMMIT")


@pytest.mark.pbxt_only
def test_the_first_change_takes_an_id_and_its_commit_is_counted(table):
    """The other side of the test above: these counters move for who writes."""
    writer = table.session()
    before = counters(table)
    writer.ok("BEGIN")
    writer.ok("SELECT SUM(v) FROM t")
    writer.ok("UPDATE t SET v = 0 WHERE n = 1")
    listed = f"SELECT COUNT(*) FROM information_schema.pbxt_trx WHERE txn_id IS NOT NULL AND connection_id = {writer.thread_id()}"
    assert table.value(listed) == 1
    writer.ok("COMMIT")
    after = counters(table)
    assert after[0] > before[0] and after[2] > before[2]
