"""INFORMATION_SCHEMA.PBXT_TRX, PBXT_LOCKS, PBXT_LOCK_WAITS, the text of the latest deadlock, and what errors say about blockers.

Every set-up has a known answer; columns are compared with what the connections did.
"""

import re
import threading
import time

import pytest

from sql_tools import Database, wait_for

pytestmark = pytest.mark.pbxt_only

TRX = (
    "TXN_ID STATE STARTED AGE_SECONDS CONNECTION_ID QUERY ISOLATION_LEVEL CONFLICT_MODE ROWS_CHANGED ROWS_LOCKED SAVEPOINTS "
    "SNAPSHOT SNAPSHOT_AGE_SECONDS LOG_BYTES_HELD WAITS_FOR WAITS_SINCE WAITED_MILLIS BLOCKING_TXN_ID BLOCKING_CONNECTION_ID"
).split()
LOCKS = (
    "TXN_ID CONNECTION_ID TABLE_SCHEMA TABLE_NAME LOCK_KIND LOCK_MODE INDEX_NAME ROW_ID KEY_IMAGE LOCK_STATE LOCK_COUNT"
).split()
WAITS = (
    "WAITING_TXN_ID WAITING_CONNECTION_ID TABLE_SCHEMA TABLE_NAME LOCK_KIND LOCK_MODE INDEX_NAME ROW_ID KEY_IMAGE WAITS_SINCE "
    "WAITED_MILLIS BLOCKING_TXN_ID BLOCKING_CONNECTION_ID BLOCKED_BY BLOCKERS"
).split()


class Sight:
    """Looks at the three tables through a connection of its own, and only at what this test's connections did."""

    def __init__(self, db):
        self.db, self.looker = db, db.session()

    def _rows(self, table, columns, where):
        names = [row[0] for row in self.looker.rows(f"SHOW COLUMNS FROM information_schema.{table}")]
        assert names == columns, names
        rows = self.looker.rows(f"SELECT * FROM information_schema.{table} WHERE {where}")
        return [dict(zip(columns, row)) for row in rows]

    def trx(self, connection):
        """The one transaction of a connection, or None."""
        rows = self._rows("PBXT_TRX", TRX, f"CONNECTION_ID = {connection}")
        assert len(rows) <= 1, rows
        return rows[0] if rows else None

    def locks(self):
        """All locks on tables of this test's database."""
        return self._rows("PBXT_LOCKS", LOCKS, f"TABLE_SCHEMA = '{self.db.name}'")

    def waits(self):
        """All waits for locks on tables of this test's database, in the order of their coming."""
        return self._rows("PBXT_LOCK_WAITS", WAITS, f"TABLE_SCHEMA = '{self.db.name}' ORDER BY WAITING_TXN_ID, BLOCKED_BY")

    def until_waiting(self, count):
        """Returns when so many transactions wait."""
        wait_for(lambda: len({wait["WAITING_TXN_ID"] for wait in self.waits()}) == count, 30, f"{count} waits")


@pytest.fixture
def sight(db):
    """The tables over a table of twenty rows."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, u INT, UNIQUE KEY by_u (u)) ENGINE=PBXT")
    db.ok("INSERT INTO t SELECT seq, seq, NULL FROM seq_1_to_20")
    return Sight(db)


def brief(locks):
    """(connection, kind, mode, row id or key, state, count), sorted."""
    lines = [
        (
            lock["CONNECTION_ID"],
            lock["LOCK_KIND"],
            lock["LOCK_MODE"],
            lock["ROW_ID"] or lock["KEY_IMAGE"] or "",
            lock["LOCK_STATE"],
            lock["LOCK_COUNT"],
        )
        for lock in locks
    ]
    return sorted(lines, key=repr)


def patient(db):
    """A connection that waits instead of failing with 1020."""
    session = db.session()
    session.ok("SET SESSION pbxt_conflict_mode = 'wait'")
    return session


def test_a_transaction_is_listed_with_all_its_figures(db, sight):
    one = patient(db)
    ident = one.thread_id()
    assert sight.trx(ident) is None
    one.ok("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = v + 1 WHERE n <= 3")
    one.ok("SAVEPOINT a")
    one.ok("INSERT INTO t VALUES (100, 1, 1)")
    one.ok("SAVEPOINT b")
    row = sight.trx(ident)
    now = sight.looker.value("SELECT NOW()")
    assert row["TXN_ID"] > 0 and row["STATE"] == "active"
    assert (row["ISOLATION_LEVEL"], row["CONFLICT_MODE"]) == ("SERIALIZABLE", "WAIT")
    assert (row["ROWS_CHANGED"], row["SAVEPOINTS"]) == (4, 2)
    assert row["ROWS_LOCKED"] >= 0 and row["LOG_BYTES_HELD"] > 0
    assert 0 <= (now - row["STARTED"]).total_seconds() <= row["AGE_SECONDS"] + 30
    waits = ("WAITS_FOR", "WAITS_SINCE", "WAITED_MILLIS", "BLOCKING_TXN_ID", "BLOCKING_CONNECTION_ID")
    assert all(row[column] is None for column in waits), row
    one.ok("ROLLBACK TO a")
    assert sight.trx(ident)["SAVEPOINTS"] == 1
    one.ok("ROLLBACK")
    assert sight.trx(ident) is None


def test_savepoints_released_or_set_again_are_forgotten(db, sight):
    """Rule T24: a loop that sets savepoints and releases them, or sets the same one again, keeps none of them."""
    one = db.session()
    ident = one.thread_id()
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 100 WHERE n = 1")
    one.ok("SAVEPOINT outermost")
    for turn in range(10):
        one.ok(f"UPDATE t SET v = {turn} WHERE n = 2")
        one.ok("SAVEPOINT same")
        assert sight.trx(ident)["SAVEPOINTS"] == 2, f"turn {turn}"
    for turn in range(10):
        one.ok("SAVEPOINT a")
        one.ok(f"UPDATE t SET v = {turn + 50} WHERE n = 3")
        one.ok("SAVEPOINT b")
        one.ok(f"UPDATE t SET v = {turn + 70} WHERE n = 3")
        one.ok("RELEASE SAVEPOINT a")
        assert sight.trx(ident)["SAVEPOINTS"] == 2, f"turn {turn}"
    one.ok("ROLLBACK TO same")
    assert one.rows("SELECT v FROM t WHERE n <= 3 ORDER BY n") == [(100,), (9,), (3,)]
    # Of two names at one place one goes; those that were set between stay when a name is set again.
    one.ok("SAVEPOINT twin")
    one.ok("RELEASE SAVEPOINT twin")
    one.ok("UPDATE t SET v = 7 WHERE n = 4")
    one.ok("SAVEPOINT outermost")
    one.ok("UPDATE t SET v = 8 WHERE n = 4")
    one.ok("ROLLBACK TO same")
    assert one.rows("SELECT v FROM t WHERE n <= 4 ORDER BY n") == [(100,), (9,), (3,), (4,)]
    one.ok("COMMIT")
    assert db.rows("SELECT v FROM t WHERE n <= 4 ORDER BY n") == [(100,), (9,), (3,), (4,)]


def test_a_reader_is_listed_with_its_snapshot_and_without_an_id(db, sight):
    one = db.session()
    one.ok("BEGIN")
    assert one.value("SELECT COUNT(*) FROM t") == 20
    row = sight.trx(one.thread_id())
    assert (row["TXN_ID"], row["ROWS_CHANGED"], row["STATE"]) == (None, 0, "active")
    assert row["SNAPSHOT"] > 0 and row["SNAPSHOT_AGE_SECONDS"] >= 0
    assert (row["ISOLATION_LEVEL"], row["CONFLICT_MODE"]) == ("REPEATABLE READ", "ERROR")
    one.ok("COMMIT")


def test_the_statement_of_a_connection_is_shown(db, sight):
    one = db.session()
    ident = one.thread_id()
    asleep = one.later("SELECT SLEEP(20), COUNT(*) FROM t /* größer */ WHERE n < 0 OR SLEEP(20) = 0")
    wait_for(lambda: sight.trx(ident) is not None, 30, "the transaction")
    wait_for(lambda: (sight.trx(ident) or {}).get("QUERY") is not None, 30, "its statement")
    assert sight.trx(ident)["QUERY"].startswith("SELECT SLEEP(20), COUNT(*) FROM t /* größer */")
    db.ok(f"KILL QUERY {ident}")
    asleep.result()


def test_a_prepared_transaction_is_listed_with_and_without_its_connection(db, sight):
    one = db.session()
    ident = one.thread_id()
    one.ok("XA START 'sight'")
    one.ok("UPDATE t SET v = 0 WHERE n = 1")
    one.ok("XA END 'sight'")
    one.ok("XA PREPARE 'sight'")
    assert sight.trx(ident)["STATE"] == "prepared"
    one.close()
    find = "SELECT STATE, ROWS_CHANGED FROM information_schema.PBXT_TRX WHERE CONNECTION_ID IS NULL"
    wait_for(lambda: sight.looker.rows(find) == [("detached", 1)], 30, "the connection's end")
    held = {(lock["LOCK_KIND"], lock["CONNECTION_ID"]) for lock in sight.locks()}
    assert held == {("table", None), ("rows", None), ("row", None)}
    db.ok("XA ROLLBACK 'sight'")
    assert sight.locks() == []


def test_locks_are_listed_as_they_were_taken(db, sight):
    one, other = db.session(), db.session()
    first, second = one.thread_id(), other.thread_id()
    one.ok("BEGIN")
    one.ok("INSERT INTO t VALUES (100, 1, 1), (101, 1, 2)")
    other.ok("BEGIN")
    for number in (3, 5):
        other.ok(f"SELECT * FROM t WHERE n = {number} LOCK IN SHARE MODE")
    locks = sight.locks()
    rows = [lock for lock in locks if lock["LOCK_KIND"] == "row"]
    assert len({lock["ROW_ID"] for lock in rows}) == 4 and all(lock["ROW_ID"] > 0 for lock in rows)
    nameless = [lock for lock in locks if lock["LOCK_KIND"] != "row"]
    assert brief(nameless) == sorted(
        [
            (first, "table", "intent", "", "granted", 1),
            (first, "rows", "exclusive", "", "changed", 2),
            (second, "rows", "shared", "", "granted", 2),
        ],
        key=repr,
    )
    kinds = sorted((lock["CONNECTION_ID"], lock["LOCK_MODE"], lock["LOCK_STATE"]) for lock in rows)
    assert kinds == sorted([(first, "exclusive", "changed")] * 2 + [(second, "shared", "granted")] * 2)
    assert {lock["TXN_ID"] for lock in locks if lock["CONNECTION_ID"] == first} == {sight.trx(first)["TXN_ID"]}
    for session in (one, other):
        session.ok("ROLLBACK")
    assert sight.locks() == []


def test_a_hundred_thousand_locked_rows_are_one_line(db, sight):
    db.ok("CREATE TABLE big (n INT PRIMARY KEY) ENGINE=PBXT")
    db.ok("INSERT INTO big SELECT seq FROM seq_1_to_100000")
    one = db.session()
    one.ok("BEGIN")
    assert len(one.rows("SELECT n FROM big FOR UPDATE")) == 100_000
    ident = one.thread_id()
    assert brief(sight.locks()) == [(ident, "rows", "exclusive", "", "granted", 100_000)]
    assert sight.trx(ident)["ROWS_LOCKED"] == 100_000
    other = patient(db)
    second = other.thread_id()
    waiting = other.later("DELETE FROM big WHERE n = 77777")
    sight.until_waiting(1)
    wait = sight.waits()[0]
    assert (wait["WAITING_CONNECTION_ID"], wait["BLOCKING_CONNECTION_ID"]) == (second, ident)
    held = [lock for lock in sight.locks() if lock["LOCK_KIND"] == "row"]
    assert sorted((lock["CONNECTION_ID"], lock["ROW_ID"], lock["LOCK_STATE"]) for lock in held) == sorted(
        [(ident, wait["ROW_ID"], "granted"), (second, wait["ROW_ID"], "waiting")]
    )
    one.ok("COMMIT")
    assert waiting.result().affected == 1


def test_who_waits_for_whom_is_told_from_both_sides(db, sight):
    one, other, third = db.session(), patient(db), patient(db)
    first, second, last = (session.thread_id() for session in (one, other, third))
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 7")
    begin = time.monotonic()
    waiting = [other.later("UPDATE t SET v = 1 WHERE n = 7")]
    sight.until_waiting(1)
    waiting.append(third.later("UPDATE t SET v = 2 WHERE n = 7"))
    sight.until_waiting(2)
    waits = sight.waits()
    ids = {ident: sight.trx(ident)["TXN_ID"] for ident in (first, second, last)}
    told = [
        (wait["WAITING_CONNECTION_ID"], wait["BLOCKING_CONNECTION_ID"], wait["BLOCKED_BY"], wait["BLOCKERS"]) for wait in waits
    ]
    assert told == [(second, first, "holder", 1), (last, first, "holder", 2), (last, second, "line", 2)]
    now = sight.looker.value("SELECT NOW()")
    for wait in waits:
        assert wait["WAITING_TXN_ID"] == ids[wait["WAITING_CONNECTION_ID"]]
        assert wait["BLOCKING_TXN_ID"] == ids[wait["BLOCKING_CONNECTION_ID"]]
        assert (wait["TABLE_NAME"], wait["LOCK_KIND"], wait["LOCK_MODE"]) == ("t", "row", "exclusive")
        assert wait["ROW_ID"] == waits[0]["ROW_ID"] and wait["INDEX_NAME"] is None and wait["KEY_IMAGE"] is None
        assert 0 <= wait["WAITED_MILLIS"] <= (time.monotonic() - begin) * 1000 + 1
        assert abs((now - wait["WAITS_SINCE"]).total_seconds()) <= time.monotonic() - begin + 2
    row = sight.trx(second)
    assert (row["STATE"], row["BLOCKING_TXN_ID"], row["BLOCKING_CONNECTION_ID"]) == ("waiting", ids[first], first)
    assert row["WAITS_FOR"] == f"row {waits[0]['ROW_ID']} of {db.name}.t (exclusive)"
    assert row["QUERY"] == "UPDATE t SET v = 1 WHERE n = 7" and row["WAITED_MILLIS"] >= 0
    joined = sight.looker.rows(
        "SELECT w.CONNECTION_ID, b.CONNECTION_ID FROM information_schema.PBXT_TRX w JOIN information_schema.PBXT_TRX b"
        f" ON w.BLOCKING_TXN_ID = b.TXN_ID WHERE w.CONNECTION_ID = {second}"
    )
    assert joined == [(second, first)]
    one.ok("COMMIT")
    assert [wait.result().affected for wait in waiting] == [1, 1]
    assert sight.waits() == []


def test_a_unique_key_that_is_waited_for_is_shown_in_hex(db, sight):
    one, other = db.session(), patient(db)
    one.ok("BEGIN")
    one.ok("INSERT INTO t VALUES (50, 1, 258)")
    waiting = other.later("INSERT INTO t VALUES (51, 2, 258)")
    sight.until_waiting(1)
    wait = sight.waits()[0]
    assert (wait["LOCK_KIND"], wait["INDEX_NAME"], wait["ROW_ID"]) == ("key", "by_u", None)
    # The image of a number compares as bytes: the sign bit is turned around. 258 = 0x102.
    assert re.fullmatch(r"0x[0-9a-f]*80000102", wait["KEY_IMAGE"]), wait
    keys = [lock for lock in sight.locks() if lock["LOCK_KIND"] == "key"]
    assert sorted(lock["LOCK_STATE"] for lock in keys) == ["changed", "waiting"]
    assert {lock["KEY_IMAGE"] for lock in keys} == {wait["KEY_IMAGE"]}
    one.ok("ROLLBACK")
    assert waiting.result().affected == 1


def test_names_with_special_characters_are_names_again(db, sight):
    db.ok("CREATE TABLE `Größe, in #` (n INT PRIMARY KEY) ENGINE=PBXT")
    one = db.session()
    one.ok("BEGIN")
    one.ok("INSERT INTO `Größe, in #` VALUES (1)")
    assert {lock["TABLE_NAME"] for lock in sight.locks()} == {"Größe, in #"}
    one.ok("ROLLBACK")


def test_only_users_with_the_process_privilege_see_the_tables(db, sight):
    one = db.session()
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 7")
    db.ok("CREATE USER nobody_special@localhost")
    try:
        db.ok("GRANT SELECT ON *.* TO nobody_special@localhost")
        looker = db.session(user="nobody_special")
        for table in ("PBXT_TRX", "PBXT_LOCKS", "PBXT_LOCK_WAITS"):
            assert looker.rows(f"SELECT * FROM information_schema.{table}") == []
        looker.close()
    finally:
        db.ok("DROP USER nobody_special@localhost")
    one.ok("ROLLBACK")


def close_circle(db, sight, count):
    """`count` connections that each have one row and ask for the next one's; their ids, and the answers in that order."""
    sessions = [patient(db) for _ in range(count)]
    idents = [session.thread_id() for session in sessions]
    for number, session in enumerate(sessions, 1):
        session.ok("BEGIN")
        session.ok(f"UPDATE t SET v = v + 1 WHERE n = {number}")
    waits = []
    for number, session in enumerate(sessions[:-1], 1):
        waits.append(session.later(f"UPDATE t SET v = -1\nWHERE n = {number + 1}"))
        sight.until_waiting(number)
    last = sessions[-1].run("UPDATE t SET v = -1\nWHERE n = 1")
    assert last.error and last.error[0] == 1213, last
    warnings = sessions[-1].rows("SHOW WARNINGS")
    sessions[-1].ok("ROLLBACK")
    for wait in reversed(waits):
        assert wait.result().affected == 1
        wait.session.ok("ROLLBACK")
    return idents, warnings


@pytest.mark.parametrize("count", [2, 3])
def test_the_latest_deadlock_is_described(db, sight, count):
    idents, warnings = close_circle(db, sight, count)
    text = db.rows("SHOW ENGINE PBXT STATUS")[0][2]
    lines = text[text.index("LATEST DETECTED DEADLOCK") :].splitlines()
    assert re.fullmatch(rf"Deadlock \d+ at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC: {count} transactions in a circle", lines[1]), text
    # The last one closed the circle; it waits for the first one, which waits for the second one.
    order = [count - 1, *range(count - 1)]
    for place, who in enumerate(order):
        first, statement, holds, waits = lines[2 + 4 * place : 6 + 4 * place]
        begins = rf"\({place + 1}\) transaction \d+ of connection {idents[who]}, \d+ s old, 1 rows changed, \d+ rows locked"
        assert re.fullmatch(begins, first), text
        assert statement == f"    statement: UPDATE t SET v = -1 WHERE n = {(who + 1) % count + 1}", text
        assert re.fullmatch(rf"    holds: row \d+ of table {db.name}/t, exclusive", holds), text
        assert re.fullmatch(
            rf"    waits for: row \d+ of table {db.name}/t, exclusive, because of transaction \d+", waits
        ), text
    rows = [re.search(r"row (\d+)", line).group(1) for line in lines[2 : 2 + 4 * count] if "row " in line]
    holds, waits = rows[0::2], rows[1::2]
    assert waits == holds[1:] + holds[:1], "each waits for what the next one holds"
    assert re.fullmatch(
        rf"Victim: transaction \d+ of connection {idents[-1]}, because its request closed the circle. It is rolled back.",
        lines[2 + 4 * count],
    ), text
    told = [message for level, code, message in warnings if (level, code) == ("Note", 1213)]
    assert told[0].startswith("Deadlock found when trying to get lock; try restarting transaction: PBXT transaction "), told
    assert len(warnings) == 2 and len(told) == 1 and f"{db.name}/t" in told[0] and f"of connection {idents[0]}" in told[0], warnings


def test_deadlocks_are_counted_and_written_to_the_log_if_wanted(own_server, engine):
    server = own_server("--pbxt-print-all-deadlocks=ON")
    with Database(server, "circles", engine) as db:
        db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE=PBXT")
        db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_20")
        sight = Sight(db)
        close_circle(db, sight, 2)
        db.ok("SET GLOBAL pbxt_print_all_deadlocks = OFF")
        close_circle(db, sight, 3)
        assert int(db.rows("SHOW GLOBAL STATUS LIKE 'pbxt_deadlocks'")[0][1]) == 2
        log = server.log_text()
        assert len(re.findall(r"PBXT: Deadlock \d+ at ", log)) == 1, "the second one was not wanted"
        assert "PBXT: Victim: transaction" in log and "2 transactions in a circle" in log
        assert "UPDATE t SET v = -1 WHERE n = 1" in log


def status(db, name):
    return int(db.rows(f"SHOW GLOBAL STATUS LIKE 'pbxt_{name}'")[0][1])


@pytest.mark.parametrize("kind", ["QUERY", "CONNECTION"])
@pytest.mark.parametrize("what", ["row", "key"])
def test_a_kill_ends_a_wait_of_every_kind_and_is_counted(db, sight, kind, what):
    one, other = db.session(), patient(db)
    ident = other.thread_id()
    one.ok("BEGIN")
    taken = {"row": "UPDATE t SET v = 0 WHERE n = 1", "key": "INSERT INTO t VALUES (70, 1, 1)"}
    one.ok(taken[what])
    wanted = {"key": "INSERT INTO t VALUES (70, 1, 1)"}.get(what, "UPDATE t SET v = 77 WHERE n = 1")
    kills, waits = status(db, "lock_wait_kills"), status(db, "lock_waits")
    waiting = other.later(wanted)
    sight.until_waiting(1)
    assert sight.waits()[0]["LOCK_KIND"] == what
    assert status(db, "lock_waits_now") >= 1
    db.ok(f"KILL {kind} {ident}")
    answer = waiting.result(10)
    assert answer.error and answer.error[0] in ((1317,) if kind == "QUERY" else (1317, 1927, 2013, 2006)), answer
    # The client of a killed connection may hear of it before its thread wakes up and counts.
    wait_for(lambda: status(db, "lock_wait_kills") == kills + 1, what="the kill to be counted")
    assert status(db, "lock_waits") == waits + 1
    assert sight.waits() == []
    one.ok("COMMIT")


def test_a_kill_between_statements_ends_no_later_one(db, sight):
    one, other = db.session(), patient(db)
    ident = other.thread_id()
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 1")
    other.ok("BEGIN")
    other.ok("UPDATE t SET v = 5 WHERE n = 2")
    db.ok(f"KILL QUERY {ident}")
    waiting = other.later("UPDATE t SET v = 1 WHERE n = 1")
    sight.until_waiting(1)
    one.ok("COMMIT")
    assert waiting.result().affected == 1
    other.ok("COMMIT")


def test_a_timeout_names_table_and_blocker_in_a_note_and_its_time_is_counted(db, sight):
    one, other = db.session(), patient(db)
    first = one.thread_id()
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 1")
    timeouts, millis = status(db, "lock_timeouts"), status(db, "lock_wait_millis")
    other.ok("SET SESSION pbxt_lock_wait_timeout = 1")
    other.fails("UPDATE t SET v = 1 WHERE n = 1", 1205)
    notes = [message for level, _, message in other.rows("SHOW WARNINGS") if level == "Note"]
    ident = sight.trx(first)["TXN_ID"]
    assert len(notes) == 1 and f"{db.name}/t" in notes[0], notes
    assert notes[0].startswith("Lock wait timeout exceeded; try restarting transaction: PBXT waited "), notes
    assert f"because of transaction {ident} of connection {first}" in notes[0], notes
    assert status(db, "lock_timeouts") == timeouts + 1
    assert status(db, "lock_wait_millis") >= millis + 900 and status(db, "lock_wait_millis_max") >= 900
    one.ok("ROLLBACK")


def test_a_write_conflict_names_table_and_row_in_a_note(db, sight):
    one, other = db.session(), db.session()
    one.ok("BEGIN")
    one.value("SELECT COUNT(*) FROM t")
    other.ok("UPDATE t SET v = 0 WHERE n = 1")
    assert "'t'" in one.fails("UPDATE t SET v = 77 WHERE n = 1", 1020)
    notes = [message for level, _, message in one.rows("SHOW WARNINGS") if level == "Note"]
    assert len(notes) == 1 and re.search(rf"row \d+ of table '\./{db.name}/t'", notes[0]), notes
    one.ok("ROLLBACK")


def test_a_timeout_in_strict_mode_is_an_error_that_a_handler_can_catch(db, sight):
    db.ok(
        "CREATE PROCEDURE p() BEGIN DECLARE number INT; DECLARE state CHAR(5); DECLARE EXIT HANDLER FOR 1205"
        " BEGIN GET DIAGNOSTICS CONDITION 1 number = MYSQL_ERRNO, state = RETURNED_SQLSTATE; SELECT number, state; END;"
        " UPDATE t SET v = 5 WHERE n = 1; END"
    )
    one, other = db.session(), patient(db)
    other.ok("SET SESSION sql_mode = 'STRICT_ALL_TABLES', pbxt_lock_wait_timeout = 0")
    one.ok("BEGIN")
    one.ok("UPDATE t SET v = 0 WHERE n = 1")
    assert other.rows("CALL p()") == [(1205, "HY000")]
    one.ok("ROLLBACK")


def test_latches_are_listed_with_how_often_they_were_taken(db):
    rows = db.rows("SHOW ENGINE PBXT MUTEX")
    names = {name for _, name, _ in rows}
    assert {"wait graph", "explicit row locks", "table locks", "transaction table", "sessions"} <= names, rows
    assert all(kind == "PBXT" and re.fullmatch(r"waits=\d+", times) for kind, _, times in rows), rows


def test_lists_are_read_while_sixteen_connections_update(db, sight):
    is_over = threading.Event()
    sessions = [patient(db) for _ in range(16)]

    def work(session, number):
        step = 0
        while not is_over.is_set():
            step += 1
            answer = session.run(f"UPDATE t SET v = v + 1 WHERE n IN ({(number + step) % 20 + 1}, {number % 5 + 1})")
            assert answer.error is None or answer.error[0] in (1213, 1205), answer

    threads = [
        threading.Thread(target=work, args=(session, number), name=f"worker {number}") for number, session in enumerate(sessions)
    ]
    for thread in threads:
        thread.start()
    try:
        mine = {session.connection.thread_id() for session in sessions}
        seen = looks = 0
        deadline = time.monotonic() + 60  # a busy machine may let one connection work at a time
        while looks < 200 or (seen == 0 and time.monotonic() < deadline):
            looks += 1
            for wait in sight.waits():
                seen += 1
                assert wait["WAITING_CONNECTION_ID"] in mine, wait
            for lock in sight.locks():
                assert lock["CONNECTION_ID"] in mine or lock["CONNECTION_ID"] is None, lock
            sight.trx(sessions[0].connection.thread_id())
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert seen > 0, "sixteen connections on twenty rows wait now and then"
    assert sight.waits() == [] and sight.locks() == []
    assert db.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


@pytest.mark.parametrize("definition", ["TRUNCATE TABLE u", "ALTER TABLE u ADD KEY (v)", "ALTER TABLE u FORCE", "ANALYZE TABLE u", "DROP TABLE u"])
def test_a_kill_after_a_statement_that_defines_ends_no_later_one(db, definition):
    one, other = db.session(), patient(db)
    one.ok("CREATE TABLE w (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    one.ok("INSERT INTO w VALUES (1, 1)")
    one.ok("CREATE TABLE u (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    ident = other.thread_id()
    one.ok("BEGIN")
    one.ok("UPDATE w SET v = 0 WHERE n = 1")
    other.run(definition)
    db.ok(f"KILL QUERY {ident}")
    waiting = other.later("UPDATE w SET v = 2 WHERE n = 1")
    waits = waiting.waits()
    one.ok("COMMIT")
    assert waits and waiting.result().affected == 1
