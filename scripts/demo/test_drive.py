"""Part 2: the test drive that a reader of "PBXT under the hood" (MySQL AB, 2007) took, with two real connections.

Each statement is printed with its answer. What is proved: readers do not wait for a locked row; after the other side commits, the
waiting update gets ERROR 1020, after it rolls back the update goes through; the deadlock is found at once (1213); a dump taken
with --single-transaction while rows change holds the state at its beginning.
"""

import subprocess
import threading
import time

import pymysql

from live_server import execute, rows_of, value_of

DUMP_ROWS = 60_000


class Session:
    """One named connection whose statements are printed."""

    def __init__(self, name, server, screen):
        self.name, self.screen = name, screen
        self.connection = server.connect("hr")

    def run(self, statement):
        """Runs and prints; returns rows, or the error number of a refused statement."""
        begin = time.monotonic()
        try:
            with self.connection.cursor() as cursor:
                affected = cursor.execute(statement)
                rows = list(cursor.fetchall())
        except pymysql.err.Error as error:
            self.screen.step(self.name, statement, f"ERROR {error.args[0]}: {error.args[-1]}"[:70])
            return error.args[0]
        spent = time.monotonic() - begin
        answer = " ".join(str(row[0]) for row in rows) if rows else f"OK, {affected} row{'' if affected == 1 else 's'}"
        self.screen.step(self.name, statement, f"{answer} ({spent:.2f} s)")
        return rows if rows else affected

    def later(self, statement):
        """Starts a statement that will wait; `join` returns its answer."""
        return Waiting(self, statement)


class Waiting(threading.Thread):
    """A statement that runs in the background because it waits for a row."""

    def __init__(self, session, statement):
        super().__init__(daemon=True)
        self.session, self.statement, self.answer = session, statement, None
        session.screen.step(session.name, statement, "waits ...")
        self.start()

    def run(self):
        self.answer = self.session.run(self.statement)

    def still_waiting(self, seconds=0.4):
        """True when the statement has not come back after `seconds`."""
        self.join(seconds)
        return self.is_alive()

    def result(self):
        """The answer; None when it does not come within a minute."""
        self.join(60)
        return self.answer


def engines(session, engine, screen):
    """The list of engines, as the article prints it."""
    statement = "SELECT engine, support, transactions, xa, savepoints FROM information_schema.engines ORDER BY 1"
    rows = rows_of(session.connection, statement)
    screen.table("  Engines of this server", ["engine", "support", "transactions", "xa", "savepoints"], rows, left=5)
    mine = next((row[1:] for row in rows if row[0].upper() == engine.upper()), None)
    supported = mine is not None and mine[0] in ("YES", "DEFAULT") and mine[1:] == ("YES", "YES", "YES")
    screen.prove(f"{engine} is listed with transactions, XA and savepoints", supported, mine)


def conflict(one, two, engine, screen):
    """Reading a locked row, then what a waiting update gets after COMMIT and after ROLLBACK."""
    one.run(f"create table t (c1 int) engine={engine.lower()}")
    one.run("insert into t values (1),(2),(3)")
    one.run("set autocommit=0")
    one.run("update t set c1=4 where c1=3")
    screen.equal("a reader sees the old rows at once while the row is locked", two.run("select * from t"), [(1,), (2,), (3,)])
    waiting = two.later("update t set c1=5 where c1=3")
    screen.prove("the second update of the row waits", waiting.still_waiting())
    one.run("commit")
    expected = 1020 if engine.upper() == "PBXT" else 0
    screen.equal(f"after COMMIT of session 1 the waiting update answers {expected or 'zero rows'}", waiting.result(), expected)
    one.run("update t set c1=3 where c1=4")
    one.run("commit")
    one.run("update t set c1=4 where c1=3")
    waiting = two.later("update t set c1=5 where c1=3")
    screen.prove("the second update waits again", waiting.still_waiting())
    one.run("rollback")
    screen.equal("after ROLLBACK of session 1 the waiting update goes through", waiting.result(), 1)


def deadlock(one, two, engine, screen):
    """Two sessions that wait for each other; the one that closes the circle gets 1213 without any delay."""
    if engine.upper() != "PBXT":  # InnoDB locks every row that such a scan passes, unless it may release those that do not match
        one.run("set session transaction isolation level read committed")
        two.run("set session transaction isolation level read committed")
    one.run("truncate table t")
    one.run("insert into t values (1),(4),(5)")
    one.run("commit")
    two.run("set autocommit=0")
    two.run("commit")
    one.run("update t set c1=6 where c1=1")
    two.run("update t set c1=7 where c1=4")
    waiting = two.later("update t set c1=8 where c1=1")
    screen.prove("session 2 waits for session 1", waiting.still_waiting())
    begin = time.monotonic()
    answer = one.run("update t set c1=9 where c1=4")
    spent = time.monotonic() - begin
    first = waiting.result()
    screen.prove(
        "the deadlock is found at once", 1213 in (answer, first) and spent < 2, f"answers {answer} and {first}, {spent:.3f} s"
    )
    one.run("rollback")
    two.run("rollback")
    one.run("set autocommit=1")
    two.run("set autocommit=1")
    screen.equal(
        "both rolled back: the rows are as before", rows_of(one.connection, "select c1 from t order by 1"), [(1,), (4,), (5,)]
    )


def online_dump(server, one, engine, screen):
    """mariadb-dump --single-transaction while another connection changes rows; the dump is restored and compared."""
    execute(
        one.connection, f"CREATE TABLE stock (id INT PRIMARY KEY, qty INT NOT NULL, note VARCHAR(60), KEY (qty)) ENGINE={engine}"
    )
    execute(one.connection, f"INSERT INTO stock SELECT seq, 100, CONCAT('item ', seq) FROM seq_1_to_{DUMP_ROWS}")
    stop, ready, changes = threading.Event(), threading.Event(), [0]
    thread = threading.Thread(target=_keep_changing, args=(server, stop, ready, changes), daemon=True)
    thread.start()
    ready.wait(10)
    before = changes[0]
    command = [*server.client_program("mariadb-dump"), "--single-transaction", "--skip-lock-tables", "hr", "stock"]
    dump = subprocess.run(command, capture_output=True, check=False)
    during = changes[0] - before
    stop.set()
    thread.join(20)
    screen.prove("rows change while the dump runs", dump.returncode == 0 and during > 0, f"{during} transactions during the dump")
    execute(one.connection, "CREATE DATABASE restored")
    restore = subprocess.run([*server.client_program("mariadb"), "restored"], input=dump.stdout, capture_output=True, check=False)
    screen.prove("the dump restores", restore.returncode == 0, restore.stderr.decode()[:80])
    count, total = rows_of(one.connection, "SELECT COUNT(*), SUM(qty) FROM restored.stock")[0]
    screen.equal(
        "the dump is one moment: every move of stock is in it whole or not at all",
        (count, int(total)),
        (DUMP_ROWS, DUMP_ROWS * 100),
    )
    moved = value_of(one.connection, "SELECT COUNT(*) FROM stock a JOIN restored.stock b USING (id) WHERE a.qty <> b.qty")
    screen.prove("and the live table has moved on since", moved > 0, f"{moved} rows differ by now")


def _keep_changing(server, stop, ready, changes):
    """Moves one piece from one item to another, in small transactions; the sum of all pieces never changes."""
    connection = server.connect("hr", autocommit=False)
    number = 0
    while not stop.is_set():
        number += 1
        source, target = 1 + (number * 7919) % DUMP_ROWS, 1 + (number * 104729 + 1) % DUMP_ROWS
        execute(connection, "UPDATE stock SET qty = qty - 1 WHERE id = %s", (source,))
        execute(connection, "UPDATE stock SET qty = qty + 1 WHERE id = %s", (target,))
        connection.commit()
        changes[0] += 1
        if number == 20:
            ready.set()
    connection.close()


def run(server, engine, screen):
    """The whole part."""
    screen.heading("The 2007 test drive, with two connections")
    setup = server.connect()
    for name in ("hr", "restored"):
        execute(setup, f"DROP DATABASE IF EXISTS {name}")
    execute(setup, "CREATE DATABASE hr")
    setup.close()
    one, two = Session("session 1", server, screen), Session("session 2", server, screen)
    engines(one, engine, screen)
    conflict(one, two, engine, screen)
    deadlock(one, two, engine, screen)
    screen.heading("Online backup: mariadb-dump --single-transaction while rows change")
    online_dump(server, one, engine, screen)
    one.connection.close()
    two.connection.close()
