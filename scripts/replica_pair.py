"""A primary and a parallel replica under a mixed load, either of them killed, and the comparison of their tables.

Why it exists: a replica is right when it has the same rows and goes on by itself, whatever was cut off; this is what bench/replicaloop
repeats for long and tests/sql for a moment.
What the load does, at random from a seed: inserts with automatic values, updates and deletes of ranges, REPLACE, multi-row transactions
over several tables (some rolled back), values of some hundred kilobytes, a table without any key, and now and then DDL. Primary clients meet
on few rows on purpose, so that the replica's appliers meet too.
Server facts it takes into account: DDL on a replica and its position are two transactions, so all DDL here can be repeated; a killed
replica reads its relay log anew (relay_log_recovery); TRUNCATE is written to the binary log after the engine has done it and is in no DDL
log, so a primary killed in between is empty and its replica is not, with any engine (InnoDB: 13 of 25 kills of a server that did little else).
There is no TRUNCATE in a load whose primary is going to be killed.
"""

import random
import socket
import threading
import time

from common import Problem
from cross_engine import kill
from live_server import LiveServer, execute, rows_of, value_of
from transfers import CONFLICTS, FIRST_LOST

DATABASE = "shop"
PASSING = CONFLICTS | {1412, 1146, 1062}  # definition changed, scratch table not there, key taken: try something else
TABLES = {
    "item": "(n BIGINT AUTO_INCREMENT PRIMARY KEY, v INT, w VARCHAR(300), KEY (v))",
    "stock": "(id INT PRIMARY KEY, amount BIGINT NOT NULL, code INT UNIQUE)",
    "picture": "(id INT PRIMARY KEY, b LONGBLOB)",
    "journal": "(at INT, line VARCHAR(60))",  # no key: the replica looks rows up by all their columns
}
DEFINITIONS = (  # DDL that may be done twice
    "CREATE OR REPLACE TABLE scratch (n INT PRIMARY KEY) ENGINE={engine}",
    "ALTER TABLE item ADD COLUMN IF NOT EXISTS x INT DEFAULT 7",
    "ALTER TABLE item DROP COLUMN IF EXISTS x",
    "DROP TABLE IF EXISTS scratch",
    "ALTER TABLE stock FORCE",
)
SMALL = ("--innodb-buffer-pool-size=48M", "--innodb-log-file-size=32M", "--max-connections=100", "--max-allowed-packet=64M")
PRIMARY = (
    "--server-id=1", "--log-bin=bin", "--sync-binlog=1", "--lock-wait-timeout=5",
    "--binlog-commit-wait-count=4", "--binlog-commit-wait-usec=3000",  # so that there are groups to be applied in parallel
)  # fmt: skip
REPLICA = ("--server-id=2", "--relay-log=relay", "--relay-log-recovery=1", "--slave-parallel-threads=4", "--slave-transaction-retries=100")


def free_port():
    """A TCP port nobody listens on now; it stays the primary's over restarts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Load(threading.Thread):
    """One client of the primary."""

    def __init__(self, pair, number, seed, definitions):
        super().__init__(name=f"load-{number}", daemon=True)
        self.pair, self.random, self.definitions = pair, random.Random(seed), definitions
        self.failure, self.commits = "", 0

    def run(self):
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            connection = self.pair.primary.connect(DATABASE, autocommit=False, read_timeout=60)
            while not self.pair.stop_signal.is_set():
                try:
                    self._step(connection)
                except pymysql.err.Error as error:
                    if error.args[0] not in PASSING:
                        raise
                    connection.rollback()
            connection.close()
        except (pymysql.err.Error, OSError) as error:
            code = error.args[0] if error.args else 0
            if not (code in FIRST_LOST or isinstance(error, OSError)):
                self.failure = f"{type(error).__name__} {error}"

    def _step(self, connection):
        dice = self.random.random()
        if dice < 0.02:
            self._define(connection)
            return
        for _ in range(self.random.randint(1, 4)):
            self._change(connection)
        if dice > 0.9:
            connection.rollback()
        else:
            connection.commit()
            self.commits += 1

    def _change(self, connection):
        """One statement."""
        r = self.random
        low = r.randint(1, 30)
        statement, *arguments = r.choice((
            ("INSERT INTO item (v, w) VALUES (%s, %s), (%s, 'second')", r.randint(0, 99), "w" * r.randint(0, 300), r.randint(0, 99)),
            ("UPDATE item SET v = v + 1, w = CONCAT('u', LEFT(w, 200)) WHERE v BETWEEN %s AND %s", low, low + 3),
            ("DELETE FROM item WHERE v = %s LIMIT 20", r.randint(0, 99)),
            ("INSERT INTO item (v, w) SELECT v + 1, 'copy' FROM item ORDER BY n DESC LIMIT %s", r.randint(1, 40)),
            ("UPDATE stock SET amount = amount + %s WHERE id = %s", r.randint(-5, 5), r.randint(1, 8)),
            ("UPDATE stock SET code = NULL WHERE id = %s", r.randint(1, 8)),
            ("UPDATE stock SET code = %s WHERE id = %s", r.randint(1, 12), r.randint(1, 8)),
            ("REPLACE INTO stock VALUES (%s, %s, %s)", r.randint(1, 20), r.randint(0, 9), r.randint(1, 12)),
            ("DELETE FROM stock WHERE id = %s", r.randint(9, 20)),
            ("REPLACE INTO picture VALUES (%s, %s)", r.randint(1, 10), r.randbytes(r.randint(10, 400_000))),
            ("DELETE FROM picture WHERE id = %s", r.randint(1, 10)),
            ("INSERT INTO journal VALUES (%s, %s)", r.randint(1, 20), f"line {r.randint(1, 5)}"),
            ("UPDATE journal SET line = CONCAT(LEFT(line, 40), '+') WHERE at = %s LIMIT 3", r.randint(1, 20)),
            ("DELETE FROM journal WHERE at = %s", r.randint(1, 20)),
        ))  # fmt: skip
        execute(connection, statement, arguments)

    def _define(self, connection):
        """One definition."""
        execute(connection, self.random.choice(self.definitions).format(engine=self.pair.engine))


class ReplicaPair:
    """Both servers and the load."""

    def __init__(self, folder, engine="PBXT", primary=(), replica=(), position="auto"):
        self.engine, self.port = engine, free_port()
        self.primary = LiveServer(folder / "primary", engine, [*SMALL, *PRIMARY, f"--port={self.port}", *primary], networking=True)
        own = ["--gtid-pos-auto-engines=" + engine] if position == "auto" else []
        self.replica = LiveServer(folder / "replica", engine, [*SMALL, *REPLICA, *own, *replica])
        self.position = position
        self.stop_signal, self.load, self.commits = threading.Event(), [], 0

    def prepare(self):
        """Both servers with empty tables, the replica following."""
        for server in (self.primary, self.replica):
            server.start()
        connection = self.primary.connect()
        execute(connection, "CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'r'")
        execute(connection, "GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'")
        execute(connection, f"CREATE DATABASE {DATABASE}")
        execute(connection, f"USE {DATABASE}")
        for name, columns in TABLES.items():
            execute(connection, f"CREATE TABLE {name} {columns} ENGINE={self.engine}")
        execute(connection, "INSERT INTO stock SELECT seq, 100, NULL FROM seq_1_to_8")
        connection.close()
        connection = self.replica.connect()
        if self.position == "alter":
            execute(connection, f"ALTER TABLE mysql.gtid_slave_pos ENGINE={self.engine}")
        execute(
            connection,
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={self.port}, MASTER_USER='repl', MASTER_PASSWORD='r',"
            " MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
        )
        execute(connection, "START SLAVE")
        connection.close()

    def start_load(self, clients, seed, victim=None):
        """Clients begin to work on the primary, as hard as it may be for the server that is going to be killed."""
        self.stop_signal.clear()
        definitions = DEFINITIONS if victim is self.primary else (*DEFINITIONS, "TRUNCATE TABLE journal")
        self.load = [Load(self, number, seed * 100 + number, definitions) for number in range(clients)]
        for thread in self.load:
            thread.start()

    def stop_load(self):
        """They end; returns what went wrong with them."""
        self.stop_signal.set()
        for thread in self.load:
            thread.join(90)
        self.commits += sum(thread.commits for thread in self.load)
        return [f"{thread.name} ended with: {thread.failure}" for thread in self.load if thread.failure]

    def kill_and_start(self, server):
        """kill -9 and a new start; the replica goes on by itself."""
        kill(server)
        server.start()

    def compare(self, patience=120):
        """Waits until the replica has everything; returns how the servers differ."""
        one, two = self.primary.connect(DATABASE), self.replica.connect()
        try:
            goal = value_of(one, "SELECT @@gtid_binlog_pos")
            complaints = self._wait_for(two, goal, patience)
            if complaints:
                return complaints
            execute(two, f"USE {DATABASE}")
            tables = [row[0] for row in rows_of(one, "SHOW TABLES")]
            if tables != [row[0] for row in rows_of(two, "SHOW TABLES")]:
                return [f"the replica has other tables than {tables}"]
            for side, connection in (("primary", one), ("replica", two)):
                complaints += self._of_other_engines(side, connection)
            for name in tables:
                complaints += self._compare_table(one, two, name)
            return complaints
        finally:
            one.close()
            two.close()

    def _of_other_engines(self, side, connection):
        """Tables that were made without saying of which engine, and so are of the server's own: they would prove nothing."""
        question = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = %s AND engine <> %s"
        return [f"{side}: table {name} is of {engine}" for name, engine in rows_of(connection, question, (DATABASE, self.engine))]

    def _wait_for(self, connection, goal, patience):
        """The replica stops for good on an error, so that is looked for while waiting."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if value_of(connection, f"SELECT MASTER_GTID_WAIT('{goal}', 1)") == 0:
                return []
            status = self.status(connection)
            if status["Last_SQL_Errno"] or status["Slave_SQL_Running"] != "Yes":
                return [f"the replica stopped: {status['Last_SQL_Errno']} {status['Last_SQL_Error']}"]
        status = self.status(connection)
        return [f"the replica has not reached {goal} after {patience} s: {status['Slave_SQL_Running_State']}, {status['Last_IO_Error']}"]

    @staticmethod
    def status(connection):
        """SHOW SLAVE STATUS by column name."""
        with connection.cursor() as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            row = cursor.fetchone()
            if row is None:
                raise Problem("the replica has no primary: CHANGE MASTER is lost.")
            return dict(zip((column[0] for column in cursor.description), row))

    @staticmethod
    def _compare_table(one, two, name):
        found = []
        for question in (f"SELECT COUNT(*) FROM {name}", f"CHECKSUM TABLE {name} EXTENDED"):
            left, right = rows_of(one, question), rows_of(two, question)
            if left != right:
                found.append(f"{question}: {left[0][-1]} on the primary, {right[0][-1]} on the replica")
        for side, connection in (("primary", one), ("replica", two)):
            for line in rows_of(connection, f"CHECK TABLE {name} EXTENDED"):
                if line[2] == "error" or (line[2] == "status" and line[3] != "OK"):
                    found.append(f"{side}, CHECK TABLE {name}: {line[3]}")
        return found

    def figure(self, name):
        """A status variable of the replica."""
        connection = self.replica.connect()
        rows = rows_of(connection, f"SHOW GLOBAL STATUS LIKE '{name}'")
        connection.close()
        return int(rows[0][1]) if rows else 0

    def end(self, wipe):
        """Stops both servers."""
        self.stop_signal.set()
        for server in (self.replica, self.primary):
            if wipe:
                server.wipe()
            else:
                server.stop()
