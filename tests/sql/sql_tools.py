"""What the SQL tests are written with: databases, sessions, statements that wait, and the comparison of two engines."""

import threading
import time
from collections import namedtuple

import pymysql
import pytest

Answer = namedtuple("Answer", "rows affected error")

WAIT_SECONDS = 0.3  # a statement that has not answered after this long is waiting for a lock


class Session:
    """One connection; `run` never raises for an error of the server, it returns it."""

    def __init__(self, server, database, engine, **options):
        self.engine = engine
        self.connection = server.connect(database, **options)

    def run(self, statement, arguments=None):
        """Answer of one statement; `{engine}` in it becomes the engine's name."""
        if "{engine}" in statement:
            statement = statement.replace("{engine}", self.engine)
        try:
            with self.connection.cursor() as cursor:
                affected = cursor.execute(statement, arguments)
                return Answer(list(cursor.fetchall()), affected, None)
        except pymysql.err.Error as error:
            return Answer(None, None, error.args)

    def ok(self, statement, arguments=None):
        """Rows of a statement that must succeed; its affected rows when it has no result."""
        answer = self.run(statement, arguments)
        assert answer.error is None, f"{statement}\nfailed: {answer.error}"
        return answer.rows if answer.rows else answer.affected if not _reads(statement) else []

    def rows(self, statement, arguments=None):
        """All rows of a statement that must succeed."""
        answer = self.run(statement, arguments)
        assert answer.error is None, f"{statement}\nfailed: {answer.error}"
        return answer.rows

    def value(self, statement, arguments=None):
        """First value of the first row."""
        return self.rows(statement, arguments)[0][0]

    def affected(self, statement, arguments=None):
        """Number of affected rows of a statement that must succeed."""
        answer = self.run(statement, arguments)
        assert answer.error is None, f"{statement}\nfailed: {answer.error}"
        return answer.affected

    def fails(self, statement, code, arguments=None):
        """The text of the error that a statement must give."""
        answer = self.run(statement, arguments)
        assert answer.error is not None, f"{statement}\nshould give error {code}, it succeeded: {answer.rows or answer.affected}"
        codes = code if isinstance(code, tuple) else (code,)
        assert answer.error[0] in codes, f"{statement}\nshould give error {code}, it gave {answer.error}"
        return answer.error[-1]

    def later(self, statement):
        """Runs a statement in the background; it is expected to wait."""
        return Waiting(self, statement)

    def thread_id(self):
        """Connection id, for KILL."""
        return self.value("SELECT CONNECTION_ID()")

    def close(self):
        """Closes the connection; harmless twice."""
        if self.connection.open:
            self.connection.close()


def _reads(statement):
    return statement.lstrip(" (").split(None, 1)[0].upper() in ("SELECT", "SHOW", "WITH", "TABLE", "VALUES", "XA", "CHECK")


class Waiting(threading.Thread):
    """A statement under way in the background."""

    def __init__(self, session, statement):
        super().__init__(daemon=True, name=f"statement: {statement[:40]}")
        self.session, self.statement, self.answer = session, statement, None
        self.begin = time.monotonic()
        self.start()

    def run(self):
        self.answer = self.session.run(self.statement)

    def waits(self, seconds=WAIT_SECONDS):
        """True when it has not answered within `seconds`."""
        self.join(seconds)
        return self.is_alive()

    def result(self, seconds=30):
        """Its answer; fails the test when none comes."""
        self.join(seconds)
        if self.is_alive():
            pytest.fail(f"still waiting after {seconds} s: {self.statement}")
        return self.answer

    def seconds(self):
        """How long it took so far."""
        return time.monotonic() - self.begin


class Database:
    """A database of its own; used as one session, and as the maker of more."""

    def __init__(self, server, name, engine):
        self.server, self.name, self.engine, self.sessions = server, name, engine, []
        setup = Session(server, None, engine)
        setup.ok(f"DROP DATABASE IF EXISTS {name}")
        setup.ok(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        setup.close()
        self.main = self.session()

    def session(self, **options):
        """A new connection to this database."""
        session = Session(self.server, self.name, self.engine, **options)
        session.run(f"SET default_storage_engine = {self.engine}")
        self.sessions.append(session)
        return session

    def __getattr__(self, attribute):
        return getattr(self.main, attribute)

    def __enter__(self):
        return self

    def __exit__(self, *_failure):
        for session in self.sessions:
            session.close()
        cleaner = Session(self.server, None, self.engine)
        cleaner.run("SET lock_wait_timeout = 20")
        cleaner.run(f"DROP DATABASE {self.name}")
        cleaner.close()


class Twin:
    """The engine under test and the oracle, given the same statements; every difference fails the test."""

    def __init__(self, under_test, oracle):
        self.under_test, self.oracle = under_test, oracle
        self.history = []

    def run(self, statement, arguments=None, ordered=True):
        """Runs a statement in both; rows, affected rows and error number must agree. Returns the answer of the engine under test."""
        self.history.append(statement)
        seen = self.under_test.run(statement, arguments)
        wanted = self.oracle.run(statement, arguments)
        difference = compare(seen, wanted, ordered)
        assert not difference, f"{self._replay()}\n{self.under_test.engine} and InnoDB differ: {difference}"
        return seen

    def ok(self, statement, arguments=None):
        """Runs a statement that must succeed in both."""
        answer = self.run(statement, arguments)
        assert answer.error is None, f"{statement}\nfailed in both engines: {answer.error}"
        return answer

    def fails(self, statement, code):
        """Runs a statement that both must refuse with this error."""
        answer = self.run(statement)
        assert answer.error and answer.error[0] == code, f"{statement}\nshould give {code}: {answer.error or answer.affected}"

    def same(self, query):
        """Compares a query's rows without regard to their order."""
        return self.run(query, ordered=False)

    def same_table(self, name, columns="*"):
        """Compares all rows of a table, and its count by COUNT(*)."""
        self.run(f"SELECT COUNT(*) FROM {name}")
        return self.same(f"SELECT {columns} FROM {name}")

    def _replay(self):
        return "statements so far:\n  " + ";\n  ".join(" ".join(text.split())[:200] for text in self.history[-30:])


def compare(seen, wanted, ordered=True):
    """A sentence that says how two answers differ, or ''."""
    code, other = (answer.error and answer.error[0] for answer in (seen, wanted))
    if code != other:
        return f"error {seen.error} against {wanted.error}"
    if code:
        return ""
    if seen.affected != wanted.affected:
        return f"{seen.affected} affected rows against {wanted.affected}"
    left, right = seen.rows, wanted.rows
    if not ordered:
        left, right = sorted(left, key=repr), sorted(right, key=repr)
    if repr(left) == repr(right):
        return ""
    for number, (a, b) in enumerate(zip(left, right)):
        if repr(a) != repr(b):
            return f"row {number}: {a!r} against {b!r} ({len(left)} and {len(right)} rows)"
    return f"{len(left)} rows against {len(right)}: {left[:5]} against {right[:5]}"


def wait_for(condition, seconds=10, what="condition"):
    """Returns when condition() is true; fails the test when it does not become so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail(f"{what} did not come true within {seconds} s")
