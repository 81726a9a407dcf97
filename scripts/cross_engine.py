"""Transactions over two engines and XA, the server killed under them, and the proof that all engines and the binary log agree.

Why it exists: a commit that changes PBXT and another engine is decided by the server's coordinator: the binary log, or the file tc.log
without one. This is the round that bench/crossloop repeats and tests/sql repeats shortly: clients work (xa_transfers, XA by half of
them), the server is killed, started again, promises are ended, and everything is compared.
What is proved: transfers.verify (acknowledged ones are there whole in both engines, others not in part), XA promises are kept, and with a
binary log its committed rows are those of the tables.
"""

import os
import signal
import threading
import time
from pathlib import Path

import transfers
import xa_transfers
from binlog_rows import BinlogRows
from common import Problem
from live_server import execute

DATABASE = "bank"
BINARY_LOG = ("--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW")
# Two engines' lock waits make circles that neither can see, so waits are short; and without READ COMMITTED InnoDB locks gaps between transfers.
SETTINGS = ("--lock-wait-timeout=2", "--innodb-lock-wait-timeout=2", "--transaction-isolation=READ-COMMITTED")
COORDINATORS = {"binlog": BINARY_LOG, "tc.log": ("--skip-log-bin",)}


class CrossBank:
    """The bank on one server, over any number of kills. The server has been started with SETTINGS and a coordinator's."""

    def __init__(self, server, coordinator, engines, random, clients=6):
        self.server, self.random = server, random
        xa_client = xa_transfers.XaClientBesideInnoDB if "InnoDB" in engines else xa_transfers.XaClient
        self.crowds = [
            transfers.Crowd(server, DATABASE, clients - clients // 2, random.randrange(1 << 30)),
            transfers.Crowd(server, DATABASE, clients // 2, random.randrange(1 << 30), (xa_client, xa_transfers.XaWitness)),
        ]
        if "ROCKSDB" in engines:
            for crowd in self.crowds:
                crowd.client_kind = type("WithoutSavepoints", (crowd.client_kind,), {"savepoints": False})
        for witness in self.crowds[1].witnesses:
            witness.number += clients  # numbers make ids
        connection = server.connect()
        execute(connection, f"CREATE DATABASE {DATABASE}")
        execute(connection, f"USE {DATABASE}")
        transfers.create_tables(connection, *engines)
        connection.close()
        self.everybody = transfers.Crowd(server, DATABASE, 0)
        self.everybody.witnesses = [witness for crowd in self.crowds for witness in crowd.witnesses]
        self.binlog = BinlogRows(server, {"transfer": 1, "leg": 2}) if coordinator == "binlog" else None

    def commits(self):
        """Acknowledged commits so far, XA included."""
        return self.everybody.commits()

    def xa_commits(self):
        """Acknowledged XA COMMITs so far."""
        return sum(witness.xa_commits for witness in self.crowds[1].witnesses)

    def round(self, longest, again=0.0):
        """Work, kill, start, verify; returns complaints."""
        before, before_xa = self.commits(), self.xa_commits()
        for crowd in self.crowds:
            crowd.start()
        time.sleep(self.random.uniform(0.2, longest))
        deadline = time.monotonic() + 20  # a machine that is busy with something else has not come far by then
        while self.xa_commits() == before_xa and time.monotonic() < deadline:
            time.sleep(0.02)
        kill(self.server)
        for crowd in self.crowds:
            crowd.finish()
        if self.random.random() < again:
            self._kill_while_opening()
        self.server.start()
        if self.commits() == before:
            return [*self._failures(), "nobody could commit"]
        return self.verify()

    def _failures(self):
        return [f"client {w.number} ended with: {w.failure}" for w in self.everybody.witnesses if w.failure]

    def verify(self):
        """The tables, the promises and the binary log against what the clients know."""
        connection = self.server.connect(DATABASE)
        try:
            complaints = xa_transfers.coordinate(connection, self.crowds[1], self.random)
            complaints += transfers.verify(connection, self.everybody)
            if self.binlog:
                self.binlog.catch_up(connection)
                complaints += self.binlog.complaints(connection)
        finally:
            connection.close()
        return complaints

    def _kill_while_opening(self):
        """Recovery that does not get to its end."""
        starter = threading.Thread(target=self._start_and_be_killed)
        starter.start()
        while self.server.pid() is None and starter.is_alive():
            time.sleep(0.005)
        time.sleep(self.random.uniform(0.05, 0.8))
        kill(self.server, must=False)
        starter.join()

    def _start_and_be_killed(self):
        try:
            self.server.start()
        except Problem:
            pass  # it was killed before it answered, as was intended


def kill(server, must=True):
    """kill -9 at once, without starting a program for it first: what was answered a moment ago is in no file yet."""
    pid = server.pid()
    try:
        os.kill(pid, signal.SIGKILL)
    except (TypeError, ProcessLookupError):
        if must:
            raise Problem("the server ended by itself: see its error log.") from None
        return
    deadline = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    server.home.joinpath("pid").unlink(missing_ok=True)


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
