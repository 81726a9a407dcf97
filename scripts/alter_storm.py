"""kill -9 in the middle of ALTERs of every kind: afterwards each table is the old or the new one, with all its rows, and nothing is left over.

Why it exists: an ALTER is two things, the engine's catalog and the server's definition files; a kill between them is where a table could be
neither the old nor the new one, or both. This is the round that bench/alterstorm repeats and tests/sql repeats shortly.
How: a plan of statements is made at random. InnoDB, in the same server, runs it first and says what the database looks like after each
statement: tables, columns, indexes, partitions, rows. Then the engine under test runs it until the server is killed. It must look as after
the last statement that was acknowledged, or as after the next one. The rest of the plan is run then, and compared again.

Two windows of the server's own are passed by; InnoDB under test shows them as often (9 times in 250 kills, this engine twice). Its handler of partitions keeps
the list of them in a file beside the definition file, and what the server does after a kill knows the definition file alone:
- after an ALTER in place of a partitioned table `#sql-alter-*.par` may stay; it is in nobody's way, and removed here;
- after an ALTER of one by a copy the list may be missing under the table's name, ERROR 1696; all is made anew then.
"""

import re
import threading
import time

import pymysql
from common import Problem
from cross_engine import kill
from live_server import execute, rows_of

DATABASE, ORACLE = "altered", "oracle"
ROWS = 400
FILES = {".frm", ".par", ".opt"}
LEFT_BY_THE_SERVER = re.compile(r"#sql-alter-[0-9a-f]+-[0-9a-f]+\.par")
NO_PARTITIONS = 1696
COLUMNS = (
    "SELECT table_name, column_name, ordinal_position, column_default, is_nullable, column_type, collation_name, extra, generation_expression"
    " FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position"
)
INDEXES = (
    "SELECT table_name, index_name, seq_in_index, column_name, non_unique, sub_part, ignored"
    " FROM information_schema.statistics WHERE table_schema = %s ORDER BY table_name, index_name, seq_in_index"
)
PARTITIONS = (
    "SELECT table_name, partition_name, partition_ordinal_position FROM information_schema.partitions"
    " WHERE table_schema = %s AND partition_name IS NOT NULL ORDER BY 1, 3"
)


def create_tables(connection, database, engine):
    """A plain table, a partitioned one, and one that can take the place of a partition."""
    execute(connection, f"DROP DATABASE IF EXISTS {database}")
    execute(connection, f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    execute(connection, f"USE {database}")
    execute(
        connection,
        f"CREATE TABLE t (n INT NOT NULL, a INT, w VARCHAR(20), b TEXT, c SMALLINT NOT NULL DEFAULT 3, PRIMARY KEY (n), KEY a (a), KEY w (w))"
        f" ENGINE={engine} CHARACTER SET utf8mb4",
    )
    parts = "PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (250), PARTITION p2 VALUES LESS THAN MAXVALUE"
    execute(connection, f"CREATE TABLE p (n INT NOT NULL PRIMARY KEY, a INT, KEY a (a)) ENGINE={engine} PARTITION BY RANGE (n) ({parts})")
    execute(connection, f"CREATE TABLE x (n INT NOT NULL PRIMARY KEY, a INT, KEY a (a)) ENGINE={engine}")
    execute(connection, f"INSERT INTO t SELECT seq, seq % 17, CONCAT('row ', seq), REPEAT('b', seq % 50 * 300), seq % 7 FROM seq_1_to_{ROWS}")
    execute(connection, f"INSERT INTO p SELECT seq, seq % 17 FROM seq_1_to_{ROWS}")
    execute(connection, "INSERT INTO x SELECT seq, -seq FROM seq_1_to_50")


class Maker:
    """Makes statements; knows of columns and indexes only what it takes to make such as mostly succeed."""

    def __init__(self, random):
        self.random = random
        self.next = 0
        self.columns = {"t": ["a", "w", "b", "c"], "p": ["a"]}
        self.indexes = {"t": ["a", "w"], "p": ["a"]}
        self.widths = {}
        self.wide = set()

    def _new(self, prefix):
        self.next += 1
        return f"{prefix}{self.next}"

    def _place(self, table):
        return self.random.choice(["", " FIRST", f" AFTER {self.random.choice(['n', *self.columns[table]])}"])

    def statement(self):
        """The next statement, for either database."""
        table = self.random.choice("tttp")
        kinds = [
            self.add, self.add, self.add_default, self.drop, self.move, self.rename_column, self.longer, self.wider, self.nullable, self.virtual,
            self.add_index, self.drop_index, self.rename_index, self.ignored, self.default, self.force, self.write, self.write,
            self.partition, self.exchange, self.rename, self.charset, self.copied,
        ]  # fmt: skip
        return self.random.choice(kinds)(table)

    def add(self, table):
        name = self._new("c")
        kind = self.random.choice(["INT", "VARCHAR(30)", "DECIMAL(8,2)", "DATETIME", "TEXT", "DOUBLE", "ENUM('x', 'y')"])
        place = self._place(table)
        self.columns[table].append(name)
        return f"ALTER TABLE {table} ADD COLUMN {name} {kind}{place}"

    def add_default(self, table):
        name = self._new("d")
        kind = self.random.choice(["INT NOT NULL DEFAULT 42", "VARCHAR(30) DEFAULT 'later'", "BIGINT UNSIGNED NOT NULL DEFAULT 7"])
        place = self._place(table)
        self.columns[table].append(name)
        return f"ALTER TABLE {table} ADD COLUMN {name} {kind}{place}"

    def drop(self, table):
        free = [name for name in self.columns[table] if name[0] in "cd" and name not in self.indexes[table] and name != "c"]
        if not free:
            return self.add(table)
        name = self.random.choice(free)
        self.columns[table].remove(name)
        return f"ALTER TABLE {table} DROP COLUMN {name}"

    def move(self, table):
        return f"ALTER TABLE {table} MODIFY a INT{self.random.choice([' FIRST', ' AFTER n'])}"

    def rename_column(self, table):
        free = [name for name in self.columns[table] if name[0] == "c" and len(name) > 1]
        if not free:
            return self.add(table)
        old, new = self.random.choice(free), self._new("c")
        self.columns[table][self.columns[table].index(old)] = new
        return f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"

    def longer(self, _table):
        width = self.widths["w"] = self.widths.get("w", 20) + self.random.choice([5, 100, 300])
        if width > 700:
            return self.force("t")
        return f"ALTER TABLE t MODIFY w VARCHAR({width})"

    def wider(self, _table):
        self.wide.add("c")
        return "ALTER TABLE t MODIFY c BIGINT NOT NULL DEFAULT 3"

    def nullable(self, _table):
        return "ALTER TABLE t MODIFY c BIGINT NULL" if "c" in self.wide else "ALTER TABLE t MODIFY c SMALLINT NULL"

    def virtual(self, table):
        name = self._new("d")
        self.columns[table].append(name)
        return f"ALTER TABLE {table} ADD COLUMN {name} INT GENERATED ALWAYS AS (n % 10) VIRTUAL"

    def add_index(self, table):
        name = self._new("k")
        self.indexes[table].append(name)
        kinds = [f"KEY {name} (n, a)", f"KEY {name} (a DESC, n)", f"UNIQUE {name} (a, n)"]
        if table == "t":
            kinds += [f"KEY {name} (w(5))", f"KEY {name} (b(10), a)"]
        return f"ALTER TABLE {table} ADD {self.random.choice(kinds)}"

    def drop_index(self, table):
        free = [name for name in self.indexes[table] if name[0] == "k"]
        if not free:
            return self.add_index(table)
        name = self.random.choice(free)
        self.indexes[table].remove(name)
        return f"ALTER TABLE {table} DROP KEY {name}"

    def rename_index(self, table):
        free = [name for name in self.indexes[table] if name[0] == "k"]
        if not free:
            return self.add_index(table)
        old, new = self.random.choice(free), self._new("k")
        self.indexes[table][self.indexes[table].index(old)] = new
        return f"ALTER TABLE {table} RENAME KEY {old} TO {new}"

    def ignored(self, table):
        return f"ALTER TABLE {table} ALTER INDEX a {self.random.choice(['', 'NOT '])}IGNORED"

    def default(self, table):
        return f"ALTER TABLE {table} ALTER COLUMN a SET DEFAULT {self.random.randint(1, 99)}"

    def force(self, table):
        return f"ALTER TABLE {table} FORCE"

    def copied(self, table):
        name = self._new("d")
        self.columns[table].append(name)
        return f"ALTER TABLE {table} ADD COLUMN {name} INT NOT NULL DEFAULT 5, ALGORITHM=COPY"

    def write(self, table):
        number = self.random.randint(1, ROWS)
        return self.random.choice([
            f"UPDATE {table} SET a = {number} WHERE n % 13 = {number % 13}",
            f"DELETE FROM {table} WHERE n = {number}",
            f"INSERT IGNORE INTO {table} (n, a) VALUES ({ROWS + number}, {number})",
        ])  # fmt: skip

    def partition(self, _table):
        number = self.random.randint(1, 3)
        return self.random.choice([
            "ALTER TABLE p REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE p TRUNCATE PARTITION p0",
            f"ALTER TABLE x ADD COLUMN y INT, DROP COLUMN y, COMMENT 'try {number}'",
            "ALTER TABLE p REBUILD PARTITION p1",
        ])  # fmt: skip

    def exchange(self, _table):
        return "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE x WITHOUT VALIDATION"

    def rename(self, _table):
        return self.random.choice(["RENAME TABLE x TO y, t TO x, x TO t, y TO x", "ALTER TABLE x RENAME TO y", "ALTER TABLE y RENAME TO x"])

    def charset(self, _table):
        return f"ALTER TABLE t MODIFY b TEXT CHARACTER SET {self.random.choice(['latin1', 'utf8mb4'])}"


class Storm:
    """Rounds over one server, which loads the engine under test and InnoDB."""

    def __init__(self, server, engine, random, plan_length=8):
        self.server, self.engine, self.random, self.plan_length = server, engine, random, plan_length
        self.maker = Maker(random)
        self.statements = self.kills = self.inside = self.windows = 0
        self.seconds = 0.05  # a statement takes, about
        connection = server.connect()
        create_tables(connection, DATABASE, engine)
        create_tables(connection, ORACLE, "InnoDB")
        connection.close()

    def renew(self):
        """Both databases as at the beginning."""
        self.maker = Maker(self.random)
        connection = self.server.connect()
        create_tables(connection, DATABASE, self.engine)
        create_tables(connection, ORACLE, "InnoDB")
        connection.close()

    def round(self):
        """One plan, one kill; returns complaints."""
        connection = self.server.connect(ORACLE)
        plan, images = [], [image(connection, ORACLE)]
        while len(plan) < self.plan_length:
            statement = self.maker.statement()
            answer = run(connection, statement)
            plan.append((statement, answer))
            images.append(image(connection, ORACLE))
        connection.close()
        done, differs = self._run_and_kill(plan)
        self.kills += 1
        self.server.start()
        self._remove_lists()
        connection = self.server.connect(DATABASE)
        try:
            return self._compare(connection, plan, images, done, differs)
        except pymysql.MySQLError as error:
            if error.args[0] != NO_PARTITIONS or done == len(plan) or not plan[done][0].startswith("ALTER TABLE p "):
                raise
            self.windows += 1
            self._start_anew()
            return []
        finally:
            connection.close()

    def _remove_lists(self):
        """Lists of partitions that the server has left behind."""
        for path in (self.server.data / DATABASE).iterdir():
            if LEFT_BY_THE_SERVER.fullmatch(path.name):
                path.unlink()
                self.windows += 1

    def _start_anew(self):
        """A table whose list of partitions is missing cannot be dropped; without any file of it the engine drops its parts."""
        for path in (self.server.data / DATABASE).iterdir():
            if path.suffix == ".par" or path.stem == "p":
                path.unlink()
        self.renew()

    def _run_and_kill(self, plan):
        """How many statements were answered before the kill, and what was answered otherwise than by InnoDB."""
        done, differs = [0], []
        connection = self.server.connect(DATABASE)
        started = threading.Event()

        def work():
            started.set()
            for statement, wanted in plan:
                try:
                    begin = time.monotonic()
                    answer = run(connection, statement)
                    self.seconds = 0.9 * self.seconds + 0.1 * (time.monotonic() - begin)
                except (pymysql.err.Error, OSError):
                    return
                if answer in LOST:
                    return
                if (answer is None) != (wanted is None):
                    differs.append(f"{statement}: {answer} against {wanted}")
                done[0] += 1

        worker = threading.Thread(target=work)
        worker.start()
        started.wait()
        time.sleep(self.random.uniform(0, self.seconds * len(plan)))
        kill(self.server)
        worker.join()
        return done[0], differs

    def _compare(self, connection, plan, images, done, differs):
        """Old or new, then the rest of the plan."""
        complaints = list(differs)
        found = image(connection, DATABASE)
        place = next((at for at in (done, min(done + 1, len(plan))) if found == images[at]), None)
        if place is None:
            one = first_difference(found, images[done]), first_difference(found, images[min(done + 1, len(plan))])
            running = plan[done][0] if done < len(plan) else "nothing"
            return [*complaints, f"killed in: {running}", f"not the old one: {one[0]}", f"not the new one: {one[1]}", self.leftovers(connection)]
        self.statements += len(plan)
        self.inside += done < len(plan)
        for statement, wanted in plan[place:]:
            answer = run(connection, statement)
            if (answer is None) != (wanted is None):
                complaints.append(f"after the kill, {statement}: {answer} against {wanted}")
        last = image(connection, DATABASE)
        if last != images[-1]:
            complaints.append(f"after the whole plan: {first_difference(last, images[-1])}")
        for name in table_names(connection, DATABASE):
            for row in rows_of(connection, f"CHECK TABLE {DATABASE}.{name} EXTENDED"):
                if row[3] != "OK":
                    complaints.append(f"CHECK TABLE {name}: {row[3]}")
        left = self.leftovers(connection)
        return [*complaints, left] if left else complaints

    def leftovers(self, connection):
        """Files of the database that belong to no table, in words."""
        names = set(table_names(connection, DATABASE))
        folder = self.server.data / DATABASE
        strays = [path.name for path in folder.iterdir() if path.suffix not in FILES or (path.stem not in names and path.name != "db.opt")]
        return f"left over in {folder}: {', '.join(sorted(strays))}" if strays else ""

    def nothing_is_left(self):
        """Drops everything; what the engine then still keeps of rows, entries and values, in words."""
        connection = self.server.connect()
        execute(connection, f"DROP DATABASE {DATABASE}")
        deadline = time.monotonic() + 120
        while True:
            status = dict(rows_of(connection, "SHOW GLOBAL STATUS LIKE 'pbxt_space%'"))
            kept = {name: int(size) for name, size in status.items() if any(part in name.lower() for part in ("_row_", "_index_", "_blob")) and int(size)}
            if not kept or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        create_tables(connection, DATABASE, self.engine)
        connection.close()
        self.renew()
        return f"files without a table: {kept}" if kept else ""


LOST = (2006, 2013, 2014, 2055, 1053)


def run(connection, statement):
    """None, or the number of the error."""
    try:
        execute(connection, statement)
        return None
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError) as error:
        number = error.args[0] if error.args else 0
        return 2013 if number in (0, *LOST) else number
    except pymysql.err.Error as error:
        return error.args[0]


def table_names(connection, database):
    return [row[0] for row in rows_of(connection, "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1", [database])]


def image(connection, database):
    """All that a client can see of a database."""
    found = {"tables": table_names(connection, database)}
    for name, query in (("columns", COLUMNS), ("indexes", INDEXES), ("partitions", PARTITIONS)):
        found[name] = rows_of(connection, query, [database])
    for name in found["tables"]:
        found[f"rows of {name}"] = rows_of(connection, f"SELECT * FROM {database}.{name} ORDER BY n")
    return found


def first_difference(found, wanted):
    """A sentence."""
    for name in sorted({*found, *wanted}):
        left, right = found.get(name), wanted.get(name)
        if left != right:
            if left is None or right is None:
                return f"{name}: {'missing' if left is None else 'not to be there'}"
            pairs = [pair for pair in zip(left, right) if pair[0] != pair[1]]
            return f"{name}: {str(pairs[:1])[:600]}, {len(left)} lines against {len(right)}"
    return "nothing differs"


def check_round(storm, number, where):
    """One round; a Problem names what went wrong."""
    try:
        complaints = storm.round()
    except pymysql.MySQLError as error:
        raise Problem("\n  ".join([f"kill {number}:", f"a statement of the check failed: {error}", where])) from error
    if complaints:
        raise Problem("\n  ".join([f"kill {number}:", *complaints, where]))
