"""System versioning by transaction: former rows with ids of transactions instead of times (rules T47 to T50 of docs/transactions.md).

Ids differ from engine to engine, so answers are compared with InnoDB's after ids have been numbered in their order.
"""

import itertools
import random
import shutil
import threading
import time

import pymysql
import pytest
from cross_engine import BINARY_LOG
from replica_pair import DATABASE, ReplicaPair
from sql_tools import Session

PERIOD = (
    "s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)"
)
TABLE = f"CREATE TABLE t (n INT PRIMARY KEY, v INT, {PERIOD}) ENGINE={{engine}} WITH SYSTEM VERSIONING"
CURRENT = 2**64 - 1
ADD = (
    "ADD COLUMN s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, ADD COLUMN e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,"
    " ADD PERIOD FOR SYSTEM_TIME (s, e), ADD SYSTEM VERSIONING"
)


def ids_of(session, table="t"):
    """All ids that are in rows of a table, in their order."""
    pairs = session.rows(f"SELECT s, e FROM {table} FOR SYSTEM_TIME ALL")
    return sorted({number for pair in pairs for number in pair} - {CURRENT})


def former(session, table="t", columns="n, v"):
    """All rows, former ones too, with ids numbered from 1."""
    numbers = {number: place for place, number in enumerate(ids_of(session, table), 1)}
    numbers[CURRENT] = "now"
    rows = session.rows(f"SELECT {columns}, s, e FROM {table} FOR SYSTEM_TIME ALL")
    return sorted(((*row[:-2], numbers[row[-2]], numbers[row[-1]]) for row in rows), key=repr)


def listed(session, table="t"):
    """Of each id in the table's rows whether the list of transactions has it, with a greater one for its commit."""
    found = dict(session.rows("SELECT transaction_id, commit_id FROM mysql.transaction_registry"))
    return [number in found and found[number] > number for number in ids_of(session, table)]


def same_former(twin, table="t", columns="n, v"):
    """Both engines have the same rows, of the same transactions, and PBXT's are all listed. Returns the rows.

    InnoDB does not list a transaction of which a rollback in part has taken back some and not all."""
    seen = former(twin.under_test, table, columns)
    assert seen == former(twin.oracle, table, columns), twin.history
    assert twin.under_test.engine != "PBXT" or all(listed(twin.under_test, table))
    return seen


def many(twin, *statements):
    for statement in statements:
        twin.ok(statement)


def test_changes_leave_former_rows(twin):
    many(twin, TABLE, "INSERT INTO t (n, v) VALUES (1, 1), (2, 2), (3, 3)", "UPDATE t SET v = v + 10 WHERE n < 3", "DELETE FROM t WHERE n > 1")
    assert same_former(twin) == [(1, 1, 1, 2), (1, 11, 2, "now"), (2, 12, 2, 3), (2, 2, 1, 2), (3, 3, 1, 3)]
    twin.same_table("t", "n, v")
    twin.run("UPDATE t SET v = v")
    many(twin, "DELETE HISTORY FROM t", "INSERT INTO t (n, v) VALUES (2, 20)")
    same_former(twin)
    twin.fails("INSERT INTO t (n, v) VALUES (2, 21)", 1062)
    twin.fails("TRUNCATE t", 4137)
    same_former(twin)


def test_rows_of_the_own_transaction_leave_none(twin):
    many(twin, TABLE, "INSERT INTO t (n, v) VALUES (1, 1), (2, 2)", "BEGIN", "INSERT INTO t (n, v) VALUES (3, 3)")
    many(twin, "UPDATE t SET v = v + 1", "UPDATE t SET v = v + 1", "DELETE FROM t WHERE n > 1", "INSERT INTO t (n, v) VALUES (2, 22)", "COMMIT")
    assert same_former(twin) == [(1, 1, 1, 2), (1, 3, 2, "now"), (2, 2, 1, 2), (2, 22, 2, "now")]


def test_rollback_takes_former_rows_back(twin):
    many(twin, TABLE, "INSERT INTO t (n, v) VALUES (1, 1), (2, 2)", "BEGIN", "UPDATE t SET v = 5", "DELETE FROM t WHERE n = 1", "ROLLBACK")
    before = twin.ok("SELECT COUNT(*) FROM mysql.transaction_registry").rows
    assert same_former(twin) == [(1, 1, 1, "now"), (2, 2, 1, "now")]
    many(twin, "BEGIN", "SAVEPOINT a", "UPDATE t SET v = 6 WHERE n = 1", "ROLLBACK TO SAVEPOINT a", "COMMIT")
    assert twin.ok("SELECT COUNT(*) FROM mysql.transaction_registry").rows == before, "nothing is left, so nothing is listed"
    many(twin, "BEGIN", "UPDATE t SET v = 7 WHERE n = 1", "SAVEPOINT a", "UPDATE t SET v = 8", "DELETE FROM t", "ROLLBACK TO SAVEPOINT a", "COMMIT")
    assert same_former(twin) == [(1, 1, 1, 2), (1, 7, 2, "now"), (2, 2, 1, "now")]
    twin.fails("UPDATE t SET n = 2", 1062)
    assert len(same_former(twin)) == 3, "a statement that fails leaves no former row"


def test_replace_and_on_duplicate_key_update(twin):
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v INT UNIQUE, {PERIOD}) ENGINE={{engine}} WITH SYSTEM VERSIONING")
    many(twin, "INSERT INTO t (n, v) VALUES (1, 1), (2, 2), (3, 3)", "REPLACE INTO t (n, v) VALUES (1, 11)")
    same_former(twin)
    many(twin, "REPLACE INTO t (n, v) VALUES (1, 11)", "REPLACE INTO t (n, v) VALUES (2, 3)")
    same_former(twin)
    many(twin, "INSERT INTO t (n, v) VALUES (2, 5), (7, 7) ON DUPLICATE KEY UPDATE v = v + 100", "INSERT IGNORE INTO t (n, v) VALUES (7, 8), (8, 8)")
    same_former(twin)
    many(twin, "BEGIN", "REPLACE INTO t (n, v) VALUES (2, 50)", "REPLACE INTO t (n, v) VALUES (2, 51)", "REPLACE INTO t (n, v) VALUES (9, 51)", "COMMIT")
    same_former(twin)
    twin.run("UPDATE IGNORE t SET v = 11 WHERE n > 1")
    same_former(twin)


def test_columns_without_versioning_keys_and_generated_columns(twin):
    twin.ok(
        f"CREATE TABLE t (n INT, v TEXT UNIQUE, u INT WITHOUT SYSTEM VERSIONING, w BIT(3), {PERIOD}, x BIGINT UNSIGNED AS (s) VIRTUAL,"
        " y BIGINT UNSIGNED AS (e) VIRTUAL, z BIGINT UNSIGNED AS (y) VIRTUAL, KEY (s), KEY (e), KEY (x), KEY (z), KEY (n)) ENGINE={engine} WITH SYSTEM VERSIONING"
    )
    many(twin, "INSERT INTO t (n, v, u, w) VALUES (1, 'a', 1, 1), (2, 'b', 2, 2), (3, NULL, 3, NULL)", "UPDATE t SET u = u + 1")
    assert len(same_former(twin, columns="n, v, u")) == 3
    many(twin, "UPDATE t SET w = 5 WHERE n = 1", "UPDATE t SET v = 'c', u = 9 WHERE n = 2", "DELETE FROM t WHERE n > 2", "INSERT INTO t (n, v) VALUES (4, 'b')")
    twin.fails("INSERT INTO t (n, v) VALUES (5, 'a')", 1062)
    same_former(twin, columns="n, v, u")
    # InnoDB's indexes on virtual columns that follow from the ids miss rows.
    session = twin.under_test
    for key in ("s", "e", "x", "z") if session.engine == "PBXT" else ("s", "e"):
        column = {"x": "s", "z": "e"}.get(key, key)
        everything = session.rows(f"SELECT {column} FROM t FOR SYSTEM_TIME ALL FORCE INDEX ({key}) WHERE {key} > 0 ORDER BY {key}")
        assert everything == session.rows(f"SELECT {column} FROM t FOR SYSTEM_TIME ALL IGNORE INDEX (s, e, x, z) ORDER BY {column}"), key
    assert session.engine != "PBXT" or session.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"
    twin.ok("DELETE FROM t")
    same_former(twin, columns="n, v, u")


def test_many_rows_in_one_statement(twin):
    many(twin, TABLE, "INSERT INTO t (n, v) SELECT seq, seq FROM seq_1_to_20000", "UPDATE t SET v = v + 1 WHERE n % 2 = 0", "DELETE FROM t WHERE n % 5 = 0")
    query = "SELECT COUNT(*), SUM(n), SUM(v), COUNT(DISTINCT s), COUNT(DISTINCT e), SUM(e = 18446744073709551615) FROM t FOR SYSTEM_TIME ALL"
    twin.same(query)
    many(twin, "BEGIN", "INSERT INTO t (n, v) SELECT 30000 + seq, seq FROM seq_1_to_20000", "UPDATE t SET v = 1 WHERE n > 49000", "COMMIT")
    twin.same(query)
    assert all(listed(twin.under_test))
    many(twin, f"CREATE TABLE u (n INT, v INT, {PERIOD}) ENGINE={{engine}} WITH SYSTEM VERSIONING", "INSERT INTO u (n, v) SELECT n, v FROM t WHERE n < 100")
    many(twin, "UPDATE t, u SET t.v = 0, u.v = 0 WHERE t.n = u.n AND t.n < 50", "DELETE t, u FROM t JOIN u ON t.n = u.n WHERE t.n > 20")
    twin.same(query)
    same_former(twin, "u")


def test_rows_as_of_a_transaction(twin):
    many(twin, TABLE, "INSERT INTO t (n, v) VALUES (1, 1), (2, 2)", "UPDATE t SET v = 20 WHERE n = 2", "DELETE FROM t WHERE n = 1", "INSERT INTO t (n, v) VALUES (3, 3)")
    both = (twin.under_test, twin.oracle)
    for place in range(4):
        answers = [session.rows(f"SELECT n, v FROM t FOR SYSTEM_TIME AS OF TRANSACTION {ids_of(session)[place]} ORDER BY n") for session in both]
        assert answers[0] == answers[1], place
    for first, last in ((0, 1), (1, 3), (2, 2)):
        for way in ("FROM TRANSACTION {} TO TRANSACTION {}", "BETWEEN TRANSACTION {} AND TRANSACTION {}"):
            answers = []
            for session in both:
                ids = ids_of(session)
                span = way.format(ids[first], ids[last])
                answers.append(session.rows(f"SELECT n, v FROM t FOR SYSTEM_TIME {span} ORDER BY n, v"))
            assert answers[0] == answers[1], (first, last, way)


def test_rows_as_of_a_moment(own_server, engine):
    server = own_server()
    answers = {}
    # One server a table: its list of transactions is one for all engines.
    for number, name in enumerate({engine, "InnoDB"}):
        session = own_server().connect() if number else server.connect()
        with session.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("USE d")
            cursor.execute(TABLE.format(engine=name))
            changes = ("INSERT INTO t (n, v) VALUES (1, 1), (2, 2)", "UPDATE t SET v = 5", "DELETE FROM t WHERE n = 1")
            for place, change in enumerate(changes):
                for statement in (change, "DO SLEEP(0.02)", f"SELECT SYSDATE(6) INTO @moment{place}", "DO SLEEP(0.02)"):
                    cursor.execute(statement)
            # The server answers by the newest transaction, with any engine, until somebody has read its list otherwise.
            cursor.execute("SELECT * FROM mysql.transaction_registry")
            answers[name] = []
            for place in range(len(changes)):
                cursor.execute(f"SELECT n, v FROM t FOR SYSTEM_TIME AS OF TIMESTAMP @moment{place} ORDER BY n")
                answers[name].append(tuple(cursor.fetchall()))
    assert answers[engine] == [((1, 1), (2, 2)), ((1, 5), (2, 5)), ((2, 5),)]
    assert answers["InnoDB"] == answers[engine]


def test_alter_adds_and_drops_versioning(twin):
    many(twin, "CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}", "INSERT INTO t VALUES (1, 1), (2, 2)", "SET system_versioning_alter_history = KEEP")
    twin.under_test.ok(f"ALTER TABLE t {ADD}")
    twin.oracle.ok(f"ALTER TABLE t {ADD}")
    assert same_former(twin) == [(1, 1, 1, "now"), (2, 2, 1, "now")]
    many(twin, "UPDATE t SET v = 3 WHERE n = 1", "DELETE FROM t WHERE n = 2")
    rows = same_former(twin)
    for session in (twin.under_test, twin.oracle):
        ids = ids_of(session)
        session.ok("ALTER TABLE t ADD COLUMN z INT DEFAULT 4, ALGORITHM=COPY")
        assert ids_of(session) == ids, "a copy keeps what the rows have"
    assert same_former(twin) == rows
    for session in (twin.under_test, twin.oracle):
        session.ok("ALTER TABLE t DROP SYSTEM VERSIONING, DROP COLUMN s, DROP COLUMN e")
    assert twin.same("SELECT * FROM t").rows == [(1, 3, 4)]
    twin.fails("SELECT * FROM t FOR SYSTEM_TIME ALL", 4124)


def test_a_table_with_versioning_keeps_its_engine(db):
    for number, columns in enumerate(("", f", {PERIOD}")):
        db.ok(f"CREATE TABLE t{number} (n INT{columns}) ENGINE={{engine}} WITH SYSTEM VERSIONING")
        db.ok("SET system_versioning_alter_history = KEEP")
        db.fails(f"ALTER TABLE t{number} ENGINE=Aria", 4120)
    db.ok("CREATE TABLE a (n INT) ENGINE=Aria WITH SYSTEM VERSIONING")
    db.fails("ALTER TABLE a ENGINE={engine}", 4120)


def test_partitions_keep_their_former_rows(twin):
    twin.ok(f"CREATE TABLE t (n INT, v INT, {PERIOD}, KEY (n)) ENGINE={{engine}} WITH SYSTEM VERSIONING PARTITION BY HASH (n) PARTITIONS 3")
    many(twin, "INSERT INTO t (n, v) SELECT seq, seq FROM seq_1_to_12", "UPDATE t SET v = v + 1 WHERE n < 6", "UPDATE t SET n = n + 1 WHERE n > 9", "DELETE FROM t WHERE n IN (2, 3)")
    same_former(twin)
    twin.fails(f"CREATE TABLE p (n INT, {PERIOD}) ENGINE={{engine}} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION h HISTORY, PARTITION c CURRENT)", 4110)
    twin.fails(f"CREATE TEMPORARY TABLE q (n INT, {PERIOD}) ENGINE={{engine}} WITH SYSTEM VERSIONING", 4137)


def test_the_transaction_is_over_after_its_commit(own_server, engine):
    """The server writes its list in the middle of the commit."""
    connection = own_server("--log-bin").connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("USE d")
        cursor.execute(TABLE.format(engine=engine))
        for isolation in ("READ COMMITTED", "REPEATABLE READ"):
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO t (n, v) SELECT COALESCE(MAX(n), 0) + 1, 1 FROM t")
            cursor.execute("COMMIT")
            cursor.execute("SELECT @@in_transaction")
            assert cursor.fetchone() == (0,)


def test_ids_grow_over_kills_and_the_list_knows_all_of_them(own_server, engine):
    server = own_server("--innodb-flush-log-at-trx-commit=1")
    last = 0
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("USE d")
        cursor.execute(TABLE.format(engine=engine))
    for round_number in range(4):
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("USE d")
            for step in range(10):
                cursor.execute(f"INSERT INTO t (n, v) VALUES ({round_number * 100 + step}, 0)")
                cursor.execute("UPDATE t SET v = v + 1 WHERE n % 3 = 0")
            cursor.execute("SELECT MIN(s), MAX(s) FROM t WHERE n >= %s", (round_number * 100,))
            first, newest = cursor.fetchone()
            assert last < first, "ids of before the kill are smaller"
            cursor.execute("BEGIN")
            cursor.execute("UPDATE t SET v = -1")
            cursor.execute("SELECT MAX(s), (SELECT MAX(commit_id) FROM mysql.transaction_registry) FROM t")
            last = max(newest, *cursor.fetchone())
            server.kill()
        server.start()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("USE d")
            cursor.execute("SELECT COUNT(*) FROM t WHERE v < 0")
            assert cursor.fetchone() == (0,)
            cursor.execute(
                "SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL WHERE s NOT IN (SELECT transaction_id FROM mysql.transaction_registry)"
                " OR e < 18446744073709551615 AND e NOT IN (SELECT transaction_id FROM mysql.transaction_registry)"
            )
            assert cursor.fetchone() == (0,), "every id in a row is listed"


@pytest.mark.parametrize("statement", [
    "INSERT IGNORE INTO t (n, x) VALUES (4, 'b')", "REPLACE INTO t (n, x) VALUES (1, 'q'), (8, 'b')",
    "REPLACE INTO t (n, x) VALUES (7, 'b')", "INSERT INTO t (n, x) VALUES (5, 'b'), (9, 'a') ON DUPLICATE KEY UPDATE x = CONCAT(x, n)",
])  # fmt: skip
@pytest.mark.parametrize("reads", [False, True])
def test_a_row_refused_for_a_key_that_the_server_compares_was_never_there(own_server, statement, reads):
    session = Session(own_server(), None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, x TEXT, s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,"
        " PERIOD FOR SYSTEM_TIME (s, e), UNIQUE (x)) WITH SYSTEM VERSIONING ENGINE=PBXT"
    )
    session.ok("INSERT INTO t (n, x) VALUES (1, 'a'), (2, 'b')")
    if reads:
        session.ok("UPDATE t SET x = x WHERE n = 0")
    session.ok(statement)
    rows = session.rows("SELECT n, x, s, e FROM t FOR SYSTEM_TIME ALL")
    assert all(0 < since < until for _, _, since, until in rows), rows
    former = sorted((n, x) for n, x, _, until in rows if until < 2**64 - 1)
    assert set(former) <= {(1, "a"), (2, "b")}, rows
    now = session.rows("SELECT x FROM t")
    assert len(now) == len(set(now)), now
    assert session.rows("CHECK TABLE t")[-1][3] == "OK"


def test_what_is_prepared_by_xa_has_rows_and_is_not_listed(own_server, engine):
    server = own_server()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("USE d")
        cursor.execute(TABLE.format(engine=engine))
        cursor.execute("INSERT INTO t (n, v) VALUES (1, 1)")
        for statement in ("XA START 'x'", "UPDATE t SET v = 2", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"):
            cursor.execute(statement)
        cursor.execute("SELECT v, e = 18446744073709551615 FROM t FOR SYSTEM_TIME ALL ORDER BY v")
        assert list(cursor.fetchall()) == [(1, 0), (2, 1)]
        cursor.execute("SELECT COUNT(*) FROM mysql.transaction_registry")
        assert cursor.fetchone() == (1,)


@pytest.mark.pbxt_only
def test_a_replica_repeats_statements_behind_the_commits_before_them(work_folder, engine, template):
    """Each statement reads what the one before it has committed, and there are four appliers (rule T50)."""
    pair = ReplicaPair(work_folder / "former_pair", engine, ("--binlog-format=ROW",), ("--slave-parallel-mode=conservative", "--skip-log-bin"))
    for server in (pair.primary, pair.replica):
        shutil.copytree(template, server.data)
    try:
        pair.prepare()
        primary, replica = Session(pair.primary, DATABASE, engine), Session(pair.replica, None, engine)
        for name in (engine, "InnoDB"):
            primary.ok(TABLE.replace("TABLE t", f"TABLE t_{name}").replace("{engine}", name))
            primary.ok(f"CREATE TABLE p_{name} (n INT PRIMARY KEY, v INT) ENGINE={name}")
            primary.ok(f"INSERT INTO t_{name} (n, v) VALUES (1, 10), (2, 20), (3, 30)")
            primary.ok(f"UPDATE t_{name} SET v = v + 1")
            primary.ok(f"REPLACE INTO t_{name} (n, v) VALUES (3, 33), (4, 40)")
            primary.ok(f"DELETE FROM t_{name} WHERE n = 2")
            for number in range(5, 40):
                primary.ok(f"INSERT INTO t_{name} (n, v) VALUES ({number}, (SELECT COUNT(*) FROM p_{name}))")
                primary.ok(f"UPDATE t_{name} SET v = v + 1")
                primary.ok(f"INSERT INTO p_{name} VALUES ({number}, {number})")
                primary.ok(f"DELETE FROM t_{name} WHERE v = {number} ORDER BY n LIMIT 1")
        pair.compare()  # waits; its complaint is that there are tables of InnoDB
        replica.ok(f"USE {DATABASE}")
        there = former(primary, f"t_{engine}")
        assert len(there) > 500
        for session, name in itertools.product((primary, replica), (engine, "InnoDB")):
            assert former(session, f"t_{name}") == there, (session is replica, name)
        assert all(listed(replica, f"t_{engine}"))
    finally:
        pair.end(wipe=True)


@pytest.mark.pbxt_only
@pytest.mark.parametrize("log", [(), BINARY_LOG], ids=["alone", "with-binary-log"])
def test_versions_of_a_row_follow_each_other_without_a_gap_over_kills(own_server, engine, log, request):
    server = own_server(*log)
    session = Session(server, None, engine)
    for statement in ("CREATE DATABASE d", "USE d", TABLE, "INSERT INTO t (n, v) SELECT seq, 0 FROM seq_1_to_8"):
        session.ok(statement)
    last = 0
    for round_number in range(request.config.getoption("--crash-rounds") or 2):
        clients = [threading.Thread(target=count_up, args=(server, engine, number)) for number in range(1, 9)]
        for client in clients:
            client.start()
        time.sleep(0.7)
        server.kill()
        for client in clients:
            client.join()
        server.start()
        session = Session(server, "d", engine)
        for number in range(1, 9):
            versions = sorted(session.rows(f"SELECT v, s, e FROM t FOR SYSTEM_TIME ALL WHERE n = {number}"))
            assert [row[0] for row in versions] == list(range(len(versions)))
            assert all(before[2] == after[1] for before, after in itertools.pairwise(versions)) and versions[-1][2] == CURRENT
        ids = ids_of(session)
        commits = dict(session.rows("SELECT transaction_id, commit_id FROM mysql.transaction_registry"))
        assert log or set(ids) <= set(commits), "a binary log alone lets rows outlive their entries in the list"
        assert len(set(commits) - set(ids)) <= 8 * (round_number + 1), "of each client the transaction that was not answered"
        last = max(last, *ids, *commits.values())
        session.ok("UPDATE t SET v = v + 1 WHERE n = 1")
        assert session.value("SELECT s FROM t WHERE n = 1") > last


def count_up(server, engine, number):
    """Until the server is gone."""
    try:
        session = Session(server, "d", engine)
        while session.run(f"UPDATE t SET v = v + 1 WHERE n = {number}").error is None:
            pass
    except (OSError, pymysql.err.Error):
        return


@pytest.mark.parametrize("key", ["PRIMARY KEY (n)", "KEY (v)", "UNIQUE KEY (v)", "PRIMARY KEY (n), KEY (s), KEY (e, v)"])
def test_random_changes_under_every_kind_of_key(twin, key, request):
    dice = random.Random(request.config.getoption("--random-seed") or 1)
    twin.ok(f"CREATE TABLE t (n INT NOT NULL, v INT, w BLOB, {PERIOD}, {key}) ENGINE={{engine}} WITH SYSTEM VERSIONING")
    for _ in range(60):
        n, v = dice.randrange(12), dice.randrange(1000)
        changes = (
            f"INSERT IGNORE INTO t (n, v, w) VALUES ({n}, {v}, REPEAT('x', {v * 20}))",
            f"INSERT INTO t (n, v) VALUES ({n}, {v}) ON DUPLICATE KEY UPDATE v = v + 1, n = n + 20",
            f"UPDATE IGNORE t SET n = n + 3, v = {v} WHERE n = {n}",
            f"UPDATE t SET w = '{v}' WHERE n < {n}",
            f"DELETE FROM t WHERE n = {n} OR v = {v}",
            f"REPLACE INTO t (n, v) VALUES ({n}, {v})",
            "BEGIN",
            "SAVEPOINT a",
            "ROLLBACK TO a",
            "ROLLBACK",
            "COMMIT",
            "COMMIT",
        )
        twin.run(dice.choice(changes))
    twin.run("COMMIT")
    same_former(twin, columns="n, v, MD5(w)")
    twin.same_table("t", "n, v, MD5(w)")
    assert twin.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"


def test_of_transactions_side_by_side_the_list_says_who_saw_whom(twin):
    """The first begins before the second and commits after it: neither sees the other; the third sees both."""
    many(twin, TABLE, "INSERT INTO t (n, v) VALUES (1, 10), (2, 20), (3, 30)")
    for base in (twin.under_test, twin.oracle):
        one, two = base.session(), base.session()
        for session, statement in (
            (one, "BEGIN"),
            (one, "UPDATE t SET v = 11 WHERE n = 1"),
            (two, "BEGIN"),
            (two, "UPDATE t SET v = 21 WHERE n = 2"),
            (two, "COMMIT"),
            (one, "COMMIT"),
            (base, "UPDATE t SET v = 31 WHERE n = 3"),
        ):
            session.ok(statement)
    for number in (1, 2, 3):
        twin.ok(f"SELECT s INTO @a FROM t WHERE n = {number}")
        twin.same("SELECT n, v FROM t FOR SYSTEM_TIME AS OF TRANSACTION @a")
    same_former(twin)
