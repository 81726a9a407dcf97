"""Work of many kinds, each with a record of what it did: the plain ones. bench/wide_work.py has the others, bench/crew.py lets all of them work.

Why it exists: a kill cuts statements short, and a full disk refuses some and not others, in any order. So each worker remembers what was
acknowledged, and takes a refusal at its word: the statement left nothing. Only a change whose answer never came, because the server died,
may be there or not. Kinds of work here: single changes, loads and changes of many rows, large values, tables made, altered and dropped, long
transactions with savepoints. What must be there is computed here, never asked of the engine.
"""

import random
import re
from collections import Counter

from live_server import execute, rows_of

from bench.storm import Blobs as StormBlobs
from bench.storm import is_lost

DATABASE = "full"
# What a client may be told when there is no room: disk full, table full, and what the server makes of it in DDL.
REFUSALS = {1005, 1021, 1025, 1030, 1114}
CLEAR = re.compile(r"disk full|disk got full|no space left|table '.*' is full", re.IGNORECASE)
NUMBERS = re.compile(r"\d+")
BULK_ROWS = (5_000, 40_000)
TABLES_KEPT = 6
NUMBERS_MOST = max(BULK_ROWS)
SINGLES_KEPT = 2_000
LEDGER_KEPT = 6_000


def numbers(many):
    """What follows FROM for `seq` from 1 to `many`: always one table, because the server keeps what it knows of each table that was named once."""
    return f"seq_1_to_{NUMBERS_MOST} WHERE seq <= {many}"


class Stopped(Exception):
    """The worker cannot go on; its memory says why."""


class Memory:
    """One worker's record: what is there, what is in doubt, what was refused."""

    tables = ()  # those that CHECK TABLE looks at

    def __init__(self, seed):
        self.random = random.Random(f"{type(self).__name__} {seed}")
        self.acknowledged, self.failure = 0, ""
        self.in_doubt = None
        self.refused = Counter()  # (what, error number) -> times
        self.sentences = {}  # the same -> an example of what the client was told

    def ask(self, connection, what, statement, arguments=None):
        """True when the statement was done, False when there was no room for it."""
        return self.answer(connection, what, lambda: execute(connection, statement, arguments) or True) is not None

    def answer(self, connection, what, call):
        """What the call returns, None when there was no room for it."""
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            return call()
        except pymysql.err.Error as error:
            if is_lost(error):
                raise
            self.refuse(connection, what, error)
            return None

    def must_fail(self, connection, number, statement, arguments=None):
        """A statement that breaks a rule of the schema: it has to be refused with this error, or for want of room."""
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            execute(connection, statement, arguments)
        except pymysql.err.Error as error:
            if is_lost(error):
                raise
            if error.args[0] != number:
                self.refuse(connection, f"what fails with {number}", error)
            return
        self.failure = f"this was not refused with {number}: {statement} {arguments}"
        raise Stopped(self.failure)

    def transaction(self, connection, what, statements, after):
        """All statements, then COMMIT, or now and then ROLLBACK; True when `after` is what is there."""
        level = self.random.choice(("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"))
        execute(connection, f"SET TRANSACTION ISOLATION LEVEL {level}")
        execute(connection, "BEGIN")
        if not all(self.ask(connection, what, *statement) for statement in statements) or self.random.random() < 0.1:
            execute(connection, "ROLLBACK")
            return False
        self.in_doubt = after
        committed = self.ask(connection, "COMMIT", "COMMIT")
        if committed:
            self.done()
        else:
            execute(connection, "ROLLBACK")
        self.in_doubt = None
        return committed

    def refuse(self, connection, what, error):
        """Notes a refusal; anything but a clear sentence about room ends the worker."""
        number, text = error.args[0], str(error.args[-1])
        said = "; ".join([text, *(str(row[2]) for row in rows_of(connection, "SHOW WARNINGS"))])
        self.refused[(what, number)] += 1
        self.sentences.setdefault((what, number), said)
        if number not in REFUSALS or not CLEAR.search(said):
            self.failure = f"{what} was refused with {number} {said}"
            raise Stopped(self.failure)

    def done(self):
        """One more acknowledged step."""
        self.in_doubt = None
        self.acknowledged += 1


class Singles(Memory):
    """Rows inserted, updated and deleted one by one."""

    tables = ("single",)
    create = ("CREATE TABLE single (id INT PRIMARY KEY, k INT NOT NULL, pad VARCHAR(400) NOT NULL, KEY k (k))",)

    def __init__(self, seed):
        super().__init__(seed)
        self.rows, self.next = {}, 0

    def step(self, connection):
        """One change."""
        dice = self.random.random()
        if not self.rows or (dice < 0.5 and len(self.rows) < SINGLES_KEPT):
            self.next += 1
            ident, what = self.next, "insert"
        else:
            ident = self.random.choice(list(self.rows))
            what = "update" if dice < 0.75 else "delete"
        after = None if what == "delete" else (self.random.randrange(1000), "s" * self.random.randint(1, 400))
        statement, arguments = {
            "insert": ("INSERT INTO single VALUES (%s, %s, %s)", (ident, *(after or ()))),
            "update": ("UPDATE single SET k = %s, pad = %s WHERE id = %s", (*(after or ()), ident)),
            "delete": ("DELETE FROM single WHERE id = %s", (ident,)),
        }[what]
        self.in_doubt = (ident, after)
        if self.ask(connection, f"single {what}", statement, arguments):
            self.put(ident, after)
            self.done()
        self.in_doubt = None

    def put(self, ident, after):
        """The row is so from now on; None: it is gone."""
        if after is None:
            self.rows.pop(ident, None)
        else:
            self.rows[ident] = after

    def verify(self, connection):
        """Complaints."""
        seen = {row[0]: row[1:] for row in rows_of(connection, "SELECT id, k, pad FROM single IGNORE INDEX (k)")}
        if self.in_doubt and seen.get(self.in_doubt[0]) == self.in_doubt[1]:
            self.put(*self.in_doubt)
        self.in_doubt = None
        keys = sorted(rows_of(connection, "SELECT k, id FROM single FORCE INDEX (k) WHERE k >= 0"))
        return differences("table single", self.rows, seen) + (
            [] if keys == sorted((k, ident) for ident, (k, _) in seen.items()) else ["table single: index k and the rows differ"]
        )


class Ledger(Memory):
    """Long transactions: many rows, changed again, part of it taken back, then COMMIT or ROLLBACK."""

    tables = ("ledger",)
    create = ("CREATE TABLE ledger (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(200) NOT NULL, KEY n (n))",)

    def __init__(self, seed):
        super().__init__(seed)
        self.rows, self.next = {}, 0

    def step(self, connection):
        """One transaction."""
        execute(connection, "BEGIN")
        after = dict(self.rows)
        if len(after) > LEDGER_KEPT and self.ask(connection, "long delete", "DELETE FROM ledger WHERE id <= %s", (self.next - LEDGER_KEPT // 2,)):
            after = {ident: row for ident, row in after.items() if ident > self.next - LEDGER_KEPT // 2}
        for _ in range(self.random.randint(1, 30)):
            self.insert(connection, after)
        if self.random.random() < 0.5:
            execute(connection, "SAVEPOINT s")
            self.insert(connection, {})
            execute(connection, "ROLLBACK TO SAVEPOINT s")
        low = self.next - self.random.randint(1, 200)
        if self.ask(connection, "long update", "UPDATE ledger SET n = n + 1 WHERE id > %s", (low,)):
            after = {ident: (n + 1, size) if ident > low else (n, size) for ident, (n, size) in after.items()}
        if self.random.random() < 0.2:
            execute(connection, "ROLLBACK")
            self.done()
            return
        self.in_doubt = after
        if self.ask(connection, "COMMIT", "COMMIT"):
            self.rows = after
            self.done()
        else:
            execute(connection, "ROLLBACK")
        self.in_doubt = None

    def insert(self, connection, rows):
        """Some rows in one statement; all of them are in `rows` or none."""
        first = self.next + 1
        self.next += self.random.randint(1, 20)
        new = {ident: (self.random.randrange(100), self.random.randint(0, 200)) for ident in range(first, self.next + 1)}
        values = ", ".join(f"({ident}, {n}, REPEAT('l', {size}))" for ident, (n, size) in new.items())
        if self.ask(connection, "long insert", f"INSERT INTO ledger VALUES {values}"):
            rows.update(new)

    def verify(self, connection):
        """Complaints; a transaction in doubt is there as a whole or not at all."""
        seen = {row[0]: row[1:] for row in rows_of(connection, "SELECT id, n, LENGTH(pad) FROM ledger IGNORE INDEX (n)")}
        if self.in_doubt is not None and seen == self.in_doubt:
            self.rows = self.in_doubt
        self.in_doubt = None
        by_key = rows_of(connection, "SELECT COUNT(*), COALESCE(SUM(id), 0) FROM ledger FORCE INDEX (n) WHERE n >= 0")[0]
        keyed = [] if by_key == (len(seen), sum(seen)) else [f"table ledger: {len(seen)} rows, by index n (rows, sum of ids) {by_key}"]
        return differences("table ledger", self.rows, seen) + keyed


class Bulk(Memory):
    """A table that is loaded, changed as a whole, thinned out and emptied."""

    tables = ("load_here",)
    create = ("CREATE TABLE load_here (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(60) NOT NULL, KEY a (a), KEY b (b))",)

    def __init__(self, seed):
        super().__init__(seed)
        self.at = (0, 0, False)  # rows loaded, times one was added to a, every third deleted

    def step(self, connection):
        """One statement of many rows."""
        rows, added, thinned = self.at
        if rows == 0:
            many = self.random.randint(*BULK_ROWS)
            after = (many, 0, False)
            what = "load"
            statement = f"INSERT INTO load_here SELECT seq, seq * 7 % 1000, REPEAT('b', seq % 60) FROM {numbers(many)}"
        elif added < 2:
            after, what, statement = (rows, added + 1, thinned), "bulk update", "UPDATE load_here SET a = a + 1"
        elif not thinned:
            after, what, statement = (rows, added, True), "bulk delete", "DELETE FROM load_here WHERE id % 3 = 0"
        else:
            after, what = (0, 0, False), "empty"
            statement = self.random.choice(("TRUNCATE TABLE load_here", "DELETE FROM load_here"))
        self.in_doubt = after
        if self.ask(connection, what, statement):
            self.at = after
            self.done()
        elif self.random.random() < 0.3 and rows:
            # So that it does not stand before one statement for ever.
            self.in_doubt = (0, 0, False)
            if self.ask(connection, "empty", "DELETE FROM load_here"):
                self.at = (0, 0, False)
                self.done()
        self.in_doubt = None

    @staticmethod
    def sums(at):
        """(rows, sum of ids, sum of a, bytes of b) that the table has then."""
        rows, added, thinned = at
        ids = [ident for ident in range(1, rows + 1) if not (thinned and ident % 3 == 0)]
        return len(ids), sum(ids), sum(ident * 7 % 1000 + added for ident in ids), sum(ident % 60 for ident in ids)

    def verify(self, connection):
        """Complaints."""
        columns = "COUNT(*), COALESCE(SUM(id), 0), COALESCE(SUM(a), 0), COALESCE(SUM(LENGTH(b)), 0)"
        seen = {tuple(map(int, rows_of(connection, f"SELECT {columns} FROM load_here {hint}")[0])) for hint in HINTS}
        possible = [self.at] if self.in_doubt is None else [self.at, self.in_doubt]
        self.in_doubt = None
        for at in possible:
            if seen == {self.sums(at)}:
                self.at = at
                return []
        return [f"table load_here has (rows, ids, a, b) {seen}, by rows and indexes, expected one of {[self.sums(at) for at in possible]}"]


HINTS = ("IGNORE INDEX (a, b)", "FORCE INDEX (a) WHERE a >= 0", "FORCE INDEX (b) WHERE b >= ''")


class Blobs(Memory, StormBlobs):
    """Large values written and deleted; every value follows from its number."""

    tables = ("large",)
    create = ("CREATE TABLE large (n INT PRIMARY KEY, b LONGBLOB)",)

    def __init__(self, seed, most_bytes=1 << 20):
        StormBlobs.__init__(self, seed, most_bytes)
        Memory.__init__(self, seed)

    def step(self, connection):
        """The step of the storm, refusals included."""
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            StormBlobs.step(self, connection)
        except pymysql.err.Error as error:
            if is_lost(error):
                raise
            what = f"large value {self.in_doubt[0]}" if self.in_doubt else "large value"
            self.in_doubt = None
            self.refuse(connection, what, error)


class Ddl(Memory):
    """Tables made, filled, altered, emptied, renamed and dropped."""

    create = ()

    def __init__(self, seed):
        super().__init__(seed)
        self.made, self.next = {}, 0  # name -> (rows, what it has beyond id and a)

    @property
    def tables(self):  # pylint: disable=invalid-overridden-method
        """Those that are there now."""
        return tuple(self.made)

    def step(self, connection):
        """One statement."""
        full = len(self.made) >= TABLES_KEPT
        if not self.made or (not full and self.random.random() < 0.3):
            self.next += 1
            name = f"made_{self.next}"
            self.change(connection, "CREATE", f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT NOT NULL)", {name: (0, frozenset())})
            return
        name = self.random.choice(list(self.made))
        rows, has = self.made[name]
        many = self.random.randint(50, 4000)
        choices = [
            ("fill", f"INSERT INTO {name} (id, a) SELECT seq + {rows}, seq FROM {numbers(many)}", {name: (rows + many, has)}),
            ("TRUNCATE", f"TRUNCATE TABLE {name}", {name: (0, has)}),
            ("RENAME", f"RENAME TABLE {name} TO {name}x", {name: None, f"{name}x": (rows, has)}),
            ("DROP", f"DROP TABLE {name}", {name: None}),
            ("ALTER, copy", f"ALTER TABLE {name} FORCE, ALGORITHM=COPY", {}),
        ]
        for part, add, drop in (("KEY", "KEY ka (a)", "KEY ka"), ("COLUMN", "COLUMN extra VARCHAR(20) DEFAULT 'e'", "COLUMN extra")):
            if part in has:
                choices.append((f"DROP {part}", f"ALTER TABLE {name} DROP {drop}", {name: (rows, has - {part})}))
            else:
                choices.append((f"ADD {part}", f"ALTER TABLE {name} ADD {add}", {name: (rows, has | {part})}))
        if full:
            choices = choices[3:4]
        what, statement, changes = self.random.choice(choices)
        self.change(connection, what, statement, changes)

    def change(self, connection, what, statement, changes):
        """Runs it; `changes` names what becomes of which table, None for one that goes."""
        after = {name: state for name, state in {**self.made, **changes}.items() if state is not None}
        self.in_doubt = after
        if self.ask(connection, f"DDL {what}", statement):
            self.made = after
            self.done()
        self.in_doubt = None

    def verify(self, connection):
        """Complaints."""
        names = [row[0] for row in rows_of(connection, "SHOW TABLES LIKE 'made%'")]
        seen, complaints = {}, []
        for name in names:
            text = rows_of(connection, f"SHOW CREATE TABLE {name}")[0][1]
            has = frozenset(part for part, sign in (("KEY", "KEY `ka`"), ("COLUMN", "`extra`")) if sign in text)
            rows, ids = rows_of(connection, f"SELECT COUNT(*), COALESCE(SUM(id), 0) FROM {name}")[0]
            seen[name] = (rows, has)
            if int(ids) != rows * (rows + 1) // 2:
                complaints.append(f"table {name} has {rows} rows and {ids} as the sum of ids, which were given in order")
        if self.in_doubt is not None and seen == self.in_doubt:
            self.made = self.in_doubt
        self.in_doubt = None
        return complaints + differences("tables made", self.made, seen)


def differences(what, expected, seen):
    """A complaint with the first three differences, or none."""
    wrong = sorted((key for key in expected.keys() | seen.keys() if expected.get(key) != seen.get(key)), key=str)
    told = "; ".join(f"{key}: has {str(seen.get(key))[:80]}, expected {str(expected.get(key))[:80]}" for key in wrong[:3])
    return [f"{what}: {len(wrong)} differ, {told}"] if wrong else []
