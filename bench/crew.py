"""Everybody at work at once, on a connection each, and the proof of it all: what bench/diskfull, soak and killstorm have in common."""

import threading
from collections import Counter

from live_server import execute, rows_of

from bench.full_work import DATABASE, Blobs, Bulk, Ddl, Ledger, Singles, Stopped
from bench.storm import is_lost
from bench.wide_work import Families, Sealed, Spread

KINDS = (Singles, Ledger, Bulk, Blobs, Ddl, Families, Spread, Sealed)


class Worker(threading.Thread):
    """One connection in a loop, until told to stop or until the server is gone."""

    def __init__(self, memory, server, stop):
        super().__init__(name=type(memory).__name__, daemon=True)
        self.memory, self.server, self.stop_signal = memory, server, stop
        self.rests = threading.Event()

    def run(self):
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            connection = self.server.connect(DATABASE)
            while not self.stop_signal.is_set() and not self.rests.is_set():
                before = sum(self.memory.refused.values())
                self.memory.step(connection)
                if sum(self.memory.refused.values()) > before:
                    self.stop_signal.wait(0.01)  # whoever is refused at once would ask ten thousand times a second
            connection.close()
        except Stopped:
            pass  # the memory says why
        except (pymysql.err.Error, OSError) as error:
            if not is_lost(error):
                self.memory.failure = f"{type(error).__name__} {error}"


class Crew:
    """All workers over any number of rounds."""

    def __init__(self, server, seed, kinds=KINDS):
        self.server = server
        self.memories = [kind(seed) for kind in kinds]
        self.stop_signal = threading.Event()
        self.threads = []

    def create(self, connection):
        """The tables of all."""
        for memory in self.memories:
            for statement in memory.create:
                execute(connection, statement)

    def start(self):
        """Everybody goes to work."""
        self.stop_signal.clear()
        self.threads = [Worker(memory, self.server, self.stop_signal) for memory in self.memories]
        for thread in self.threads:
            thread.start()

    def finish(self):
        """Everybody ends; complaints about those who do not."""
        self.stop_signal.set()
        for thread in self.threads:
            thread.join(120)
        return [f"{thread.name} has had no answer for 120 s" for thread in self.threads if thread.is_alive()]

    def rest(self, kind):
        """Workers of this kind end their step and begin no other; the rest goes on."""
        threads = [thread for thread in self.threads if isinstance(thread.memory, kind)]
        for thread in threads:
            thread.rests.set()
        for thread in threads:
            thread.join(120)

    def acknowledged(self):
        """Steps of each so far."""
        return [memory.acknowledged for memory in self.memories]

    def told(self):
        """The same, with names."""
        return ", ".join(f"{type(memory).__name__} {memory.acknowledged:,}" for memory in self.memories)

    def refusals(self):
        """(what, error number) -> times, of all."""
        return sum((memory.refused for memory in self.memories), Counter())

    def sentences(self):
        """An example for each of them."""
        return {refusal: text for memory in self.memories for refusal, text in memory.sentences.items()}

    def verify(self, connection):
        """All complaints; empty when nothing is lost, nothing is there in part and nothing that was refused."""
        complaints = [f"{type(memory).__name__}: {memory.failure}" for memory in self.memories if memory.failure]
        for memory in self.memories:
            complaints += memory.verify(connection)
        names = [name for memory in self.memories for name in memory.tables]
        lines = rows_of(connection, f"CHECK TABLE {', '.join(names)} EXTENDED")
        return complaints + [f"CHECK TABLE {line[0]}: {line[2]} {line[3]}" for line in lines if line[2] == "error" or (line[2] == "status" and line[3] != "OK")]
