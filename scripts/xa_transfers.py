"""Transfers whose commits are decided from outside: XA transactions beside ordinary ones, and the coordinator that ends them.

Why it exists: XA PREPARE is a promise that outlives the connection and the server. Here every client is also the coordinator of its
XA transactions: it remembers which promise was made and which decision was sent, over any number of kills, and afterwards compares
that with XA RECOVER and with the tables (transfers.verify).
Rules of the coordinator, those of the XA specification: without the answer to XA PREPARE the decision is ROLLBACK; a decision that
was sent is sent again until it is answered; what was decided and answered is not prepared any more in PBXT. InnoDB does not flush the
end of XA ROLLBACK, so after a crash it may list such an id again: then the decision is sent once more, and PBXT must have nothing of it.
Rows of a prepared transaction stay locked until its end: start the server with a short lock_wait_timeout.
"""

import time
from dataclasses import dataclass, field

import transfers
from live_server import execute, rows_of

NOT_YET = 1397  # XAER_NOTA: the connection that prepared it is not gone yet
OVER = {1397, 1399, 1402}  # XA END or XA ROLLBACK of what the server has rolled back already
DETACH_SECONDS = 30


@dataclass
class Promise:
    """An XA transaction from XA PREPARE to the answer of its end."""

    legs: dict
    thread: int  # the connection that made it
    answered: bool = False  # XA PREPARE
    sent: str = ""  # COMMIT or ROLLBACK


@dataclass
class XaWitness(transfers.Witness):
    """As its parent, and every promise that is not over."""

    promises: dict = field(default_factory=dict)
    over: dict = field(default_factory=dict)  # what was answered, by name
    xa_commits: int = 0


class XaClient(transfers.Client):
    """Ordinary transfers, and transfers by XA in connections of their own."""

    def _step(self, connection):
        dice = self.random.random()
        waiting = [ident for ident, promise in self.witness.promises.items() if promise.answered]
        if waiting and dice < 0.5:
            self._end_from_other(waiting[0])
        elif dice < 0.4:
            self._promise()
        else:
            super()._step(connection)

    def _finish(self, connection):
        for ident in list(self.witness.promises):
            self._end_from_other(ident)

    def _promise(self):
        """One XA transaction up to XA PREPARE; then it is ended here, by another connection, or later."""
        branch = self.server.connect(self.database, read_timeout=60)
        ident = self._prepare(branch)
        if ident is None:
            branch.close()
            return
        dice = self.random.random()
        if dice < 0.4:
            self._end(branch, ident, self._decision())
            branch.close()
        elif dice < 0.6:
            self._end_from_other(ident, f"KILL CONNECTION {branch.thread_id()}")
        else:
            branch.close()
            if dice < 0.9:
                self._end_from_other(ident)

    def _prepare(self, branch):
        """Id of a prepared transfer; None after a conflict."""
        import pymysql  # pylint: disable=import-outside-toplevel

        name = f"x{self.witness.number}-{self.witness.next_id + 1}"
        execute(branch, f"XA START '{name}'")
        try:
            ident, legs = self._write_transfer(branch)
        except pymysql.err.Error as error:
            if error.args[0] not in transfers.CONFLICTS:
                raise
            self.witness.conflicts += 1
            _try(branch, f"XA END '{name}'")
            _try(branch, f"XA ROLLBACK '{name}'")
            return None
        execute(branch, f"XA END '{name}'")
        self.witness.promises[ident] = Promise(legs, branch.thread_id())
        execute(branch, f"XA PREPARE '{name}'")
        self.witness.promises[ident].answered = True
        return ident

    def _decision(self):
        return "COMMIT" if self.random.random() < 0.8 else "ROLLBACK"

    def _end_from_other(self, ident, first=None):
        """Ends it in a connection that is not the one that prepared it; such a one must be in autocommit mode."""
        connection = self.server.connect(self.database, read_timeout=60)
        if first:
            execute(connection, first)
        self._wait_until_let_go(connection, self.witness.promises[ident].thread)
        self._end(connection, ident, self.witness.promises[ident].sent or self._decision())
        connection.close()

    def _wait_until_let_go(self, connection, thread):
        """PBXT needs no help here: it waits by itself for the connection that is being closed."""

    def _end(self, connection, ident, decision):
        promise = self.witness.promises[ident]
        promise.sent = decision
        _end_when_detached(connection, f"XA {decision} '{name_of(ident)}'")
        note_end(self.witness, ident)
        self.witness.xa_commits += decision == "COMMIT"
        self.witness.commits += decision == "COMMIT"


class XaClientBesideInnoDB(XaClient):
    """The server lets others end an XA transaction before it closes the connection in the engines, InnoDB then answers that it knows no
    such id, and the server says that all is well. So nobody asks before InnoDB has let go."""

    def _wait_until_let_go(self, connection, thread):
        deadline = time.monotonic() + DETACH_SECONDS
        while f"thread id {thread}," in rows_of(connection, "SHOW ENGINE INNODB STATUS")[0][2] and time.monotonic() < deadline:
            time.sleep(0.01)


def name_of(ident):
    """The XA id of a transfer."""
    return f"x{ident // 10_000_000}-{ident % 10_000_000}"


def note_end(witness, ident):
    """The decision was answered."""
    promise = witness.promises.pop(ident)
    witness.over[name_of(ident)] = promise.sent
    if promise.sent == "COMMIT":
        witness.legs[ident] = promise.legs


def _end_when_detached(connection, statement):
    import pymysql  # pylint: disable=import-outside-toplevel

    deadline = time.monotonic() + DETACH_SECONDS
    while True:
        try:
            execute(connection, statement)
            return
        except pymysql.err.Error as error:
            if error.args[0] != NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def _try(connection, statement):
    import pymysql  # pylint: disable=import-outside-toplevel

    try:
        execute(connection, statement)
    except pymysql.err.Error as error:
        if error.args[0] not in OVER:
            raise


def coordinate(connection, crowd, random):
    """After a crash: ends every promise as its coordinator must; returns complaints about what XA RECOVER shows."""
    listed = {row[3] if isinstance(row[3], str) else row[3].decode() for row in rows_of(connection, "XA RECOVER")}
    complaints = []
    for witness in crowd.witnesses:
        for name in sorted(witness.over.keys() & listed):
            if witness.over[name] == "COMMIT" or not rolled_back_without_pbxt(connection, name):
                complaints.append(f"XA {witness.over[name]} '{name}' of client {witness.number} was answered, and it is prepared again")
        for ident in list(witness.promises):
            complaints += _settle(connection, witness, ident, name_of(ident) in listed, random)
            listed.discard(name_of(ident))
    unknown = sorted(listed - {name for witness in crowd.witnesses for name in witness.over})
    if unknown:
        complaints.append(f"XA transactions {unknown[:5]} are prepared, and nobody sent XA PREPARE for them")
    return complaints


def rolled_back_without_pbxt(connection, name):
    """Rolls it back once more; true if PBXT had no part of it."""
    before = _prepared_in_pbxt(connection)
    execute(connection, f"XA ROLLBACK '{name}'")
    return _prepared_in_pbxt(connection) == before


def _prepared_in_pbxt(connection):
    return int(rows_of(connection, "SHOW GLOBAL STATUS LIKE 'Pbxt_txns_prepared_now'")[0][1])


def _settle(connection, witness, ident, is_listed, random):
    promise = witness.promises[ident]
    name = name_of(ident)
    if not is_listed:
        if promise.answered and not promise.sent:
            witness.promises.pop(ident)
            return [f"XA transaction {name} was prepared and answered, and is gone"]
        promise.sent = promise.sent or "ROLLBACK"  # XA PREPARE did not get so far
        note_end(witness, ident)
        return []
    if not promise.sent:
        promise.sent = random.choice(("COMMIT", "ROLLBACK")) if promise.answered else "ROLLBACK"
    execute(connection, f"XA {promise.sent} '{name}'")
    note_end(witness, ident)
    return []
