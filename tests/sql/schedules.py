"""Schedules: statements of several connections in one fixed order, each of which may wait.

Why it exists: what two transactions see of each other depends on the order of their statements, and whether a statement waits is part
of the answer. Every connection has a thread of its own, so a statement that waits holds up nobody else; later statements of the same
connection follow when it has ended.
When a step is over: it has answered, or the server lists its connection as waiting (the engine's list of transactions, or the
process list for locks of the server); the same must hold for all steps before it. No step is judged by the clock.
What a client does: after an error it rolls back and leaves the rest of its transaction out.
"""

import queue
import threading
import time
from dataclasses import dataclass

PREVENTING = {1020, 1205, 1213}  # write conflict, lock wait timeout, deadlock: what a client has to reckon with
PATIENCE = 30
QUICK_SECONDS = 0.002  # answers that come within this time need no look at the server's lists
WAITERS = {
    "PBXT": "SELECT connection_id, 'lock' FROM information_schema.pbxt_trx WHERE waits_for IS NOT NULL",
    "INNODB": "SELECT trx_mysql_thread_id, 'lock' FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
SERVER_WAITERS = (
    "SELECT id, IF(state = 'User lock', 'pause', 'lock') FROM information_schema.processlist"
    " WHERE state = 'User lock' OR state LIKE 'Waiting for table%'"
)
INNODB_LIST_SECONDS = 0.12  # InnoDB makes its list anew when nobody has read it for a tenth of a second


@dataclass
class Step:
    """One statement of one connection, and what became of it."""

    number: int
    label: str
    statement: str
    answer: object = None  # stays None if an earlier error ended the transaction
    waited: bool = False


def step_of(text):
    """'1: COMMIT' and '2 a: SELECT ...': connection, label if the answer is to be looked at, statement."""
    head, _, statement = text.partition(": ")
    number, _, label = head.partition(" ")
    return Step(int(number), label, statement)


class Actor:
    """One connection and the thread that speaks for it."""

    def __init__(self, session, changed):
        self.session, self.changed = session, changed
        self.ident = session.thread_id()
        self.orders = queue.SimpleQueue()
        self.sent = self.done = 0
        self.step = None
        self.has_failed = False
        self.thread = threading.Thread(target=self._work, daemon=True, name=f"actor of connection {self.ident}")
        self.thread.start()

    def begin(self, level):
        """A new transaction; it looks at nothing yet."""
        self.has_failed = False
        self.session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        self.session.ok("BEGIN")

    def send(self, step):
        """One more statement."""
        self.sent += 1
        self.orders.put(step)

    def is_busy(self):
        """True while a statement has not answered."""
        return self.sent != self.done

    def _work(self):
        for step in iter(self.orders.get, None):
            if not self.has_failed:
                self.step = step
                step.answer = self.session.run(step.statement)
                if step.answer.error:
                    self.has_failed = True
                    self.session.run("ROLLBACK")
            with self.changed:
                self.done += 1
                self.changed.notify_all()

    def close(self):
        """Ends the thread and the connection."""
        self.orders.put(None)
        self.thread.join(PATIENCE)
        self.session.close()


class History:
    """What came of a schedule."""

    def __init__(self, steps, end):
        self.steps = steps
        self.end = end  # rows of t afterwards: {n: v}

    def rows(self, label):
        """Rows of a labelled step, as a plain list of values if they have one column; None if it was not reached."""
        step = next(step for step in self.steps if step.label == label)
        if step.answer is None or step.answer.error:
            return None
        rows = step.answer.rows
        return [row[0] for row in rows] if all(len(row) == 1 for row in rows) else rows

    def committed(self, *numbers):
        """True if all these transactions were committed."""
        ends = {step.number: step for step in self.steps}  # the last step of each
        return all(ends[n].statement == "COMMIT" and ends[n].answer and not ends[n].answer.error for n in numbers)

    def how(self):
        """What the clients met: the errors, or 'waits', or nothing but 'values'."""
        codes = {step.answer.error[0] for step in self.steps if step.answer and step.answer.error}
        assert codes <= PREVENTING, f"a client met error {codes - PREVENTING}:\n{self}"
        if codes:
            return " ".join(str(code) for code in sorted(codes))
        return "waits" if any(step.waited for step in self.steps) else "values"

    def __str__(self):
        lines = []
        for step in self.steps:
            answer = step.answer and (step.answer.error or step.answer.rows or step.answer.affected)
            lines.append(f"  {step.number}: {step.statement}  ->  {'waited, then ' if step.waited else ''}{answer}")
        return "\n".join([*lines, f"  in the end: {self.end}"])


class Stage:
    """Connections on which schedules are played, one schedule after the other."""

    def __init__(self, database, engine, actors=3):
        self.database, self.engine = database, engine.upper()
        self.changed = threading.Condition()
        self.watcher = database.session()
        self.actors = {number: Actor(database.session(), self.changed) for number in range(1, actors + 1)}
        self.waiters = " UNION ALL ".join(filter(None, (WAITERS.get(self.engine), SERVER_WAITERS)))

    def play(self, texts, level, start="DELETE FROM t; INSERT INTO t VALUES (1, 10), (2, 20)"):
        """Plays a schedule on the rows that `start` makes."""
        for statement in start.split("; "):
            self.database.ok(statement)
        for actor in self.actors.values():
            actor.begin(level)
        steps = [step_of(text) for text in texts]
        for step in steps:
            self.actors[step.number].send(step)
            self._settle()
        # Lists still name who has just been woken; whoever really waits at the end goes on waiting.
        with self.changed:
            self.changed.wait_for(lambda: not self._busy(), PATIENCE)
        stuck = [actor.step.statement for actor in self.actors.values() if actor.is_busy()]
        assert not stuck, f"the schedule is over, and these still wait: {stuck}"
        for actor in self.actors.values():
            actor.session.ok("ROLLBACK")
        return History(steps, dict(self.database.rows("SELECT n, v FROM t")))

    def _settle(self):
        """Returns when every connection has answered or is known to wait."""
        end = time.monotonic() + PATIENCE
        while True:
            with self.changed:
                self.changed.wait_for(lambda: not self._busy(), QUICK_SECONDS)
            done = [actor.done for actor in self.actors.values()]
            busy = self._busy()
            if not busy:
                return
            if self.engine == "INNODB":
                time.sleep(INNODB_LIST_SECONDS)
            waiting = dict(self.watcher.rows(self.waiters))
            if all(actor.ident in waiting for actor in busy) and done == [actor.done for actor in self.actors.values()]:
                for actor in busy:
                    actor.step.waited |= waiting[actor.ident] == "lock"
                return
            assert time.monotonic() < end, f"neither answers nor waits: {[actor.step.statement for actor in busy]}, waiting: {waiting}"

    def _busy(self):
        return [actor for actor in self.actors.values() if actor.is_busy()]

    def close(self):
        """Ends all threads."""
        for actor in self.actors.values():
            actor.close()
