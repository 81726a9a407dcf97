"""What goes on while the server is killed again and again: bulk work, large values, counted transfers by COMMIT and by XA, and the proof of what
survived.

Why it exists: scripts/transfers.py and xa_transfers.py prove small transactions; here statements that change hundreds of thousands of rows, and values stored
outside their rows, are in the air as well, because their recovery takes other paths. Every worker remembers what was acknowledged
and the one change whose answer never came; both outcomes of that one are right, everything else must be there exactly.
What the bulk table must hold is computed from the source table, a MyISAM table that is only ever read.
"""

import hashlib
import random
import threading

import transfers
import xa_transfers
from live_server import execute, rows_of

FINGERPRINT = "COUNT(*), COALESCE(SUM(id), 0), COALESCE(BIT_XOR(CRC32(CONCAT_WS('|', id, {artist}, title, video, date))), 0)"
# What each step does with the bulk table, and what the table then holds as a question to the source: (artist, condition).
STEPS = (
    ("INSERT INTO work SELECT * FROM source", ("artist", "TRUE")),
    ("UPDATE work SET artist = CONCAT(artist, ' ok')", ("CONCAT(artist, ' ok')", "TRUE")),
    ("DELETE FROM work WHERE artist LIKE 'ni%'", ("CONCAT(artist, ' ok')", "artist NOT LIKE 'ni%'")),
    (
        "UPDATE work SET title = 'again', artist = CONCAT('x', artist) WHERE date < '2009-12-01'",
        None,  # two questions, see Bulk.expected
    ),
    ("DELETE FROM work WHERE id % 3 = 0", None),
    ("{empty}", ("artist", "FALSE")),
)
LATER = "IF(date < '2009-12-01', {0}, {1})"
BLOBS_KEPT = 24


def is_lost(error):
    """True for what a client sees when the server was killed; False for an error of the statement."""
    return isinstance(error, OSError) or (error.args and error.args[0] in transfers.FIRST_LOST)


class Worker(threading.Thread):
    """One connection in a loop; the memory lives in `memory`, which outlives the thread."""

    def __init__(self, memory, server, database, stop):
        super().__init__(name=type(memory).__name__, daemon=True)
        self.memory, self.server, self.database, self.stop_signal = memory, server, database, stop

    def run(self):
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            connection = self.server.connect(self.database)
            while not self.stop_signal.is_set():
                self.memory.step(connection)
            connection.close()
        except (pymysql.err.Error, OSError) as error:
            if not is_lost(error):
                self.memory.failure = f"{type(error).__name__} {error}"


class Bulk:
    """One table that is filled, changed and emptied; `at` is the last acknowledged step (-1: empty)."""

    def __init__(self, seed):
        self.at, self.in_doubt, self.failure, self.acknowledged = -1, False, "", 0
        self.random = random.Random(seed)
        self.known = {}

    def step(self, connection):
        """The next statement of the circle."""
        number = (self.at + 1) % len(STEPS)
        statement = STEPS[number][0].format(empty=self.random.choice(("DELETE FROM work", "TRUNCATE TABLE work")))
        self.in_doubt = True
        execute(connection, statement)
        self.at, self.in_doubt = number, False
        self.acknowledged += 1

    def expected(self, connection, at):
        """Fingerprint of the table after step `at`, from the source."""
        if at not in self.known:
            self.known[at] = rows_of(connection, self.question(at))[0]
        return self.known[at]

    @staticmethod
    def question(at):
        """The statement that asks the source for it."""
        late = at in (3, 4)
        artist, condition = STEPS[2 if late else at][1] if at >= 0 else ("artist", "FALSE")
        title = "title"
        if late:
            artist = LATER.format("CONCAT('x', artist, ' ok')", artist)
            title = LATER.format("'again'", "title")
            condition += " AND id % 3 <> 0" if at == 4 else ""
        columns = FINGERPRINT.format(artist=artist).replace("title", title)
        return f"SELECT {columns} FROM source WHERE {condition}"

    def verify(self, connection):
        """Complaints; afterwards `at` is what the table shows."""
        seen = rows_of(connection, f"SELECT {FINGERPRINT.format(artist='artist')} FROM work")[0]
        possible = [self.at, (self.at + 1) % len(STEPS)] if self.in_doubt else [self.at]
        fits = [at for at in possible if self.expected(connection, at) == seen]
        complaints = []
        if fits:
            self.at = fits[0]
        else:
            wanted = {at: self.expected(connection, at) for at in possible}
            complaints.append(f"table work has (rows, sum of ids, checksum) {seen}; after step {self.at}, in doubt {self.in_doubt}, expected one of {wanted}")
        self.in_doubt = False
        counts = {
            name: rows_of(connection, f"SELECT COUNT(*) FROM work FORCE INDEX ({name}) WHERE {where}")[0][0]
            for name, where in (("PRIMARY", "id > 0"), ("video_artist_ix", "artist >= ''"), ("video", "video >= ''"), ("date_id", "date > '1990-01-01'"))
        }
        if set(counts.values()) != {seen[0]}:
            complaints.append(f"table work has {seen[0]} rows, by its keys {counts}")
        return complaints


class Blobs:
    """Large values written, read back and deleted; every value follows from its number."""

    def __init__(self, seed, most_bytes):
        self.random, self.most_bytes = random.Random(seed), most_bytes
        self.there, self.in_doubt, self.next, self.failure, self.acknowledged = {}, None, 0, "", 0

    def step(self, connection):
        """Writes a value, or deletes one when there are many."""
        if len(self.there) >= BLOBS_KEPT:
            number = self.random.choice(list(self.there))
            self.in_doubt = ("delete", number, self.there[number])
            execute(connection, "DELETE FROM large WHERE n = %s", (number,))
            del self.there[number]
        else:
            self.next += 1
            value = random.Random(self.next).randbytes(int(self.most_bytes * self.random.random() ** 3))
            entry = (len(value), hashlib.md5(value).hexdigest())
            self.in_doubt = ("insert", self.next, entry)
            execute(connection, "INSERT INTO large VALUES (%s, %s)", (self.next, value))
            self.there[self.next] = entry
        self.in_doubt = None
        self.acknowledged += 1

    def verify(self, connection):
        """Complaints; afterwards the change in doubt counts as what the table shows."""
        seen = {n: (length, digest) for n, length, digest in rows_of(connection, "SELECT n, LENGTH(b), MD5(b) FROM large")}
        if self.in_doubt:
            _, number, entry = self.in_doubt
            self.there.pop(number, None)
            if number in seen:
                self.there[number] = entry
            self.in_doubt = None
        wrong = [n for n in self.there.keys() | seen.keys() if self.there.get(n) != seen.get(n)]
        return [f"table large: {len(wrong)} values differ, first number {n}: has {seen.get(n)}, expected {self.there.get(n)}" for n in sorted(wrong)[:1]]


class Storm:
    """All workers over any number of kills."""

    def __init__(self, server, database, seed, clients, most_bytes, client_kind=xa_transfers.XaClient):
        self.server, self.database = server, database
        self.bulk, self.blobs = Bulk(seed), Blobs(seed, most_bytes)
        self.crowd = transfers.Crowd(server, database, clients, seed, (client_kind, xa_transfers.XaWitness))
        self.random = random.Random(seed)
        self.stop_signal = threading.Event()
        self.threads = []

    def start(self):
        """Everybody goes to work."""
        self.stop_signal.clear()
        self.threads = [Worker(memory, self.server, self.database, self.stop_signal) for memory in (self.bulk, self.blobs)]
        for thread in self.threads:
            thread.start()
        self.crowd.start()

    def finish(self):
        """After the kill: everybody ends by himself."""
        self.stop_signal.set()
        self.crowd.finish()
        for thread in self.threads:
            thread.join(600)

    def acknowledged(self):
        """(bulk statements, large values, transfers, those of them by XA) so far."""
        return self.bulk.acknowledged, self.blobs.acknowledged, self.crowd.commits(), sum(witness.xa_commits for witness in self.crowd.witnesses)

    def verify(self, connection):
        """Ends the XA transactions that are prepared; all complaints; empty when nothing is lost and nothing is there in part."""
        complaints = [f"{name} ended with: {memory.failure}" for name, memory in (("bulk", self.bulk), ("blobs", self.blobs)) if memory.failure]
        complaints += xa_transfers.coordinate(connection, self.crowd, self.random)
        complaints += self.bulk.verify(connection) + self.blobs.verify(connection) + transfers.verify(connection, self.crowd)
        lines = rows_of(connection, "CHECK TABLE work, large EXTENDED")
        return complaints + [f"CHECK TABLE {line[0]}: {line[2]} {line[3]}" for line in lines if line[2] == "error" or (line[2] == "status" and line[3] != "OK")]
