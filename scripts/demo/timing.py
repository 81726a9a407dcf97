"""Part 3: the timing table of the 2007 test drive, PBXT beside InnoDB in the same server, statement by statement.

The same statements on the same 1,120,500 rows, the two engines taking turns, and who goes first alternates from line to line.
Proved: affected rows and whole-table fingerprints agree; after the ROLLBACK nothing has changed.
"""

import time

import big_table
from live_server import execute, rows_of, value_of

# In 2007, on one CPU: seconds for InnoDB and PBXT, for the curious. Source: the article's own transcript.
THEN = {
    "insert into ... select": (24.30, 9.38),
    "select count(*)": (1.06, 7.17),
    "update all rows": (55.94, 17.08),
    "delete all rows": (21.42, 13.44),
    "rollback": (15.27, 0.00),
}

TRANSACTIONAL = {"PBXT", "InnoDB"}  # a comparison with Aria or MyISAM is allowed, a rollback is not expected of them


def prepare(connection, screen):
    """The source table; an in-memory engine would be unfair to none, InnoDB is what the article used."""
    execute(connection, "DROP DATABASE IF EXISTS timing")
    execute(connection, "CREATE DATABASE timing")
    connection.select_db("timing")
    with screen.progress(big_table.ROWS, "making big_table") as bar:
        execute(connection, big_table.create_statement("big_table", "InnoDB"))
        execute(connection, big_table.fill_statement("big_table"))
        bar.update(big_table.ROWS)
    screen.equal(
        "big_table has the article's number of rows", value_of(connection, "SELECT COUNT(*) FROM big_table"), big_table.ROWS
    )


def timed(connection, statement):
    """Seconds and affected rows of one statement."""
    begin = time.perf_counter()
    affected = execute(connection, statement)
    return time.perf_counter() - begin, affected


class Race:
    """Seconds per statement and engine, filled line by line."""

    def __init__(self, connection, engines, screen):
        self.connection, self.engines, self.screen = connection, engines, screen
        self.seconds, self.affected, self.line = {}, {}, 0

    def both(self, name, statement):
        """Runs one statement for each engine; the order alternates."""
        order = self.engines if self.line % 2 == 0 else self.engines[::-1]
        self.line += 1
        with self.screen.progress(len(order), name, "engines") as bar:
            for engine in order:
                self.seconds[name, engine], self.affected[name, engine] = timed(
                    self.connection, statement.format(t=f"t_{engine.lower()}", engine=engine)
                )
                bar.update(1)

    def fingerprints(self):
        """One fingerprint per engine."""
        return {e: rows_of(self.connection, big_table.FINGERPRINT.format(table=f"t_{e.lower()}"))[0] for e in self.engines}


def race(connection, engines, screen):
    """All statements of the article."""
    run_of = Race(connection, engines, screen)
    run_of.both("create table like", "CREATE TABLE {t} LIKE big_table")
    run_of.both("alter table engine", "ALTER TABLE {t} ENGINE={engine}")
    run_of.both("insert into ... select", "INSERT INTO {t} SELECT * FROM big_table")
    original = rows_of(connection, big_table.FINGERPRINT.format(table="big_table"))[0]
    screen.prove("insert..select: all rows equal the source", set(run_of.fingerprints().values()) == {original}, original[0])
    run_of.both("select count(*)", "SELECT COUNT(*) FROM {t}")
    run_of.both("update all rows", "UPDATE {t} SET description = 'testing update of varchar column'")
    after_update = run_of.fingerprints()
    screen.prove("update: both engines hold the same rows", len(set(after_update.values())) == 1)
    execute(connection, "SET autocommit = 0")
    screen.say("delete from t; rollback; for each engine in turn")
    for engine in engines:
        table = f"t_{engine.lower()}"
        run_of.seconds["delete all rows", engine], run_of.affected["delete all rows", engine] = timed(
            connection, f"DELETE FROM {table}"
        )
        inside = value_of(connection, f"SELECT COUNT(*) FROM {table}")
        screen.equal(f"{engine}: inside the transaction the table is empty", inside, 0)
        run_of.seconds["rollback", engine], _ = timed(connection, "ROLLBACK")
    execute(connection, "SET autocommit = 1")
    unchanged = {
        engine: seen == after_update[engine] for engine, seen in run_of.fingerprints().items() if engine in TRANSACTIONAL
    }
    screen.prove("rollback: every row is back, unchanged", all(unchanged.values()), ", ".join(unchanged))
    for name in ("insert into ... select", "update all rows", "delete all rows"):
        seen = {run_of.affected[name, engine] for engine in engines}
        screen.equal(f"{name}: affected rows", seen, {big_table.ROWS})
    return run_of


def clock(seconds):
    """Seconds with enough digits to be worth reading."""
    return f"{seconds * 1000:.2f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def show(run_of, engines, screen):
    """The table, engine under test first, with the article's numbers at the right."""
    mine, other = engines
    lines = []
    for name in dict.fromkeys(name for name, _ in run_of.seconds):
        a, b = run_of.seconds[name, mine], run_of.seconds[name, other]
        then = [f"{seconds:.2f} s" for seconds in THEN[name][::-1]] if name in THEN else ["", ""]
        lines.append((name, clock(a), clock(b), f"{a / b:.3f}", *then))
    headings = ["statement", mine, other, f"{mine}/{other}", "PBXT 2007", "InnoDB 2007"]
    screen.table(f"{big_table.ROWS:,} rows without keys, one connection", headings, lines)


def run(server, engine, screen):
    """The whole part."""
    other = "InnoDB" if engine.upper() != "INNODB" else "Aria"
    screen.heading(f"The article's timing table: {engine} beside {other}, the same statements in turn")
    connection = server.connect()
    prepare(connection, screen)
    engines = [engine, other]
    run_of = race(connection, engines, screen)
    instant = run_of.seconds["rollback", engine]
    if engine.upper() == "PBXT":
        screen.prove("rollback of a million deletes is instant (at most 0.1 s)", instant <= 0.1, clock(instant))
    connection.close()
    return lambda: show(run_of, engines, screen)
