"""Many connections served by one thread: statements are sent without waiting for the answers, which are taken as they come.

Why it exists: a line of a thousand connections that wait for one row needs a thousand connections, but a thousand threads of Python
would measure Python. Here a statement is written to the connection's socket, and `take_first` sleeps until some answer is there.
Rule: a connection has at most one statement under way.
"""

import select
import time
from contextlib import contextmanager

from live_server import rows_of

WAITS_BEGUN = {"PBXT": "Pbxt_lock_waits", "INNODB": "Innodb_row_lock_waits"}  # status variables that count them
PATIENCE = 60


class Line:
    """Connections to one database, numbered from 0, and who of them has not answered yet."""

    def __init__(self, server, database, size, setup=()):
        self.connections = []
        self.under_way = {}  # number by file descriptor
        self.poll = select.poll()
        try:
            for _ in range(size):
                self.connections.append(server.connect(database))
                for statement in setup:
                    self.ask(len(self.connections) - 1, statement)
        except BaseException:
            self.close()
            raise

    def ask(self, number, statement):
        """Sends a statement and waits for its answer: rows, or the number of affected rows; an error is raised."""
        connection = self.connections[number]
        with connection.cursor() as cursor:
            affected = cursor.execute(statement)
            return cursor.fetchall() or affected

    def send(self, number, statement):
        """Sends a statement; its answer is taken later."""
        connection = self.connections[number]
        connection._execute_command(3, statement)  # pylint: disable=protected-access  # COM_QUERY; PyMySQL has no public way to send only
        descriptor = connection._sock.fileno()  # pylint: disable=protected-access
        self.under_way[descriptor] = number
        self.poll.register(descriptor, select.POLLIN)

    def take_first(self, patience=PATIENCE):
        """Number and answer of a connection that has answered; the answer is rows, affected rows, or the error."""
        ready = self.poll.poll(patience * 1000)
        if not ready:
            raise TimeoutError(f"none of {len(self.under_way)} connections has answered within {patience} s")
        descriptor = ready[0][0]
        number = self.under_way.pop(descriptor)
        self.poll.unregister(descriptor)
        return number, self._answer(number)

    def take_all(self, patience=PATIENCE):
        """Answers of all that are under way, by number, in the order in which they were seen."""
        answers = {}
        while self.under_way:
            number, answer = self.take_first(patience)
            answers[number] = answer
        return answers

    def _answer(self, number):
        import pymysql  # pylint: disable=import-outside-toplevel  # lives in build/venv; --help works without it

        connection = self.connections[number]
        try:
            affected = connection._read_query_result()  # pylint: disable=protected-access
        except pymysql.err.Error as error:
            return error
        rows = connection._result.rows  # pylint: disable=protected-access
        return affected if rows is None else list(rows)

    def close(self):
        """Closes all connections, those with an open answer too."""
        for connection in self.connections:
            connection._force_close()  # pylint: disable=protected-access  # a polite end would wait for the answer
        self.connections = []


@contextmanager
def line_of(server, database, size, setup=()):
    """A Line that is closed at the end."""
    line = Line(server, database, size, setup)
    try:
        yield line
    finally:
        line.close()


def waits_begun(watcher, engine):
    """How many waits for locks the server has seen begin, by an engine's own count."""
    return int(rows_of(watcher, f"SHOW GLOBAL STATUS LIKE '{WAITS_BEGUN[engine.upper()]}'")[0][1])


def send_and_see_waiting(line, number, statement, watcher, engine):
    """Sends a statement that has to wait, and returns when the engine says that it does."""
    before = waits_begun(watcher, engine)
    line.send(number, statement)
    end = time.monotonic() + PATIENCE
    while waits_begun(watcher, engine) == before:
        if time.monotonic() > end:
            raise TimeoutError(f"connection {number} does not wait: {statement}")


def error_code(answer):
    """The server's number of an error, 0 for any other answer."""
    return answer.args[0] if isinstance(answer, Exception) else 0
