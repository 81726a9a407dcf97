"""What every work of the report is made of: tables, statements, what is measured. One class is one heading of the report.

A work says which engines can do it and how large it is, in full and in a quick run. `prepare` makes once per engine what all its turns share;
`round` is one turn of one engine and puts figures into it; `floor_round` is the same for BLACKHOLE, which throws rows
away: what it takes is the server's own part, and no engine can be faster.
The first line of the class's docstring is its heading, the rest says what a reader must know to judge the figures.
"""

import hashlib
import os
import statistics
import time
from types import SimpleNamespace

from bench import figures, sysbench
from bench.lab import kind_of
from live_server import execute, rows_of

TRANSACTIONAL = ("PBXT", "InnoDB", "MyRocks")
WITH_KEYS = (*TRANSACTIONAL, "Aria", "MyISAM")
ALL_ENGINES = (*WITH_KEYS, "ARCHIVE")
FLOOR = "BLACKHOLE"
LONG_ANSWER = 120  # characters
SHORT, OFTEN = 0.02, 5  # a statement of less seconds that is repeated is repeated so many times as often


class Work:
    """One heading of the report; subclasses say what is done."""

    name = ""  # in figures, targets and --only; a database is called so
    seed = ""  # the account of an old measurement that it repeats
    engines = ALL_ENGINES
    quick_engines = None  # in a quick run: these only
    floor = False  # BLACKHOLE has a part in it
    small_cache = False  # the cache is much smaller than the data
    most_rounds = 100
    tool = False  # a program of its own does it, see bench/works/tools.py
    scale = ""  # what `at` of its measures counts, for charts
    unsteady = 1  # first seconds of its curves that do not count
    full, quick = {}, {}  # sizes

    def __init__(self, options):
        self.options = options
        self.size = SimpleNamespace(**{**self.full, **(self.quick if options.quick else {})})
        if options.seconds and hasattr(self.size, "seconds"):
            self.size.seconds = options.seconds

    def kinds(self):
        """The engines that take part, as kinds, those not asked for left out."""
        wanted = {kind_of(name).name for name in self.options.engine} if self.options.engine else None
        names = self.quick_engines if self.options.quick and self.quick_engines else self.engines
        chosen = [name for name in names if wanted is None or name in wanted]
        return [kind_of(name) for name in (*chosen, *((FLOOR,) if self.floor and chosen else ()))]

    def rounds(self):
        """Repetitions."""
        return min(self.options.rounds, self.most_rounds)

    def heading(self):
        """The first line of the docstring."""
        return self.__doc__.strip().splitlines()[0]

    def explanation(self):
        """The other lines, as one paragraph."""
        return " ".join(line.strip() for line in self.__doc__.strip().splitlines()[1:] if line.strip())

    def prepare(self, turn):
        """Tables that all turns of an engine share."""

    def round(self, turn):
        """One turn of one engine."""
        raise NotImplementedError

    def floor_round(self, turn):
        """One turn of BLACKHOLE, for works that have a floor."""
        raise NotImplementedError


def client_seconds():
    """Processor time of all programs that this one has started and that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


class Turn:
    """One engine at work: its server, a connection to the work's database, and where its figures go."""

    def __init__(self, work, lab, number, results, answers):
        self.work, self.lab, self.number = work, lab, number
        self.engine, self.sql_engine = lab.kind.name, lab.kind.sql_name
        self.results, self.answers = results, answers
        self.connection = lab.connect(work.name)
        limit = work.options.limit
        execute(self.connection, f"SET max_statement_time = {limit}, lock_wait_timeout = {limit}")

    def close(self):
        """Ends the connection."""
        self.connection.close()

    def run(self, statement):
        """A statement that is not measured; returns the rows it affected."""
        return execute(self.connection, statement)

    def rows(self, statement):
        """Rows of a statement that is not measured."""
        return rows_of(self.connection, statement)

    def record(self, measure, value, unit="s", at=None):
        """One figure."""
        self.results.add(self.work.name, measure, self.engine, value, unit, at)

    def record_seconds(self, measure, load):
        """What sysbench counted in each second of a run, for a chart, and the slowest second in percent of the median one."""
        self.results.add_curve(self.work.name, measure, self.engine, load.seconds)
        if load.slowest is not None:
            self.record(f"{measure}, slowest second", load.slowest, "%")

    def time(self, measure, statement, repeats=1, compare=True):
        """Records the seconds of a statement, the median where it runs several times (a short one more often), or of a list of statements
        together. The answer, of a list the last one, is compared with the other engines', unless they may differ in it."""
        times, answer = [], None
        while not times or len(times) < repeats * (OFTEN if repeats > 1 and times[0] < SHORT else 1):
            seconds, answer = self._once(statement)
            times.append(seconds)
        self.record(measure, statistics.median(times))
        if compare and self.engine != FLOOR:
            self.answers.add(self.work.name, measure, self.engine, short(answer))

    def agree(self, about, statement):
        """Compares the answer to a statement that is not measured with the other engines'."""
        self.answers.add(self.work.name, about, self.engine, short(self.rows(statement)))

    def _once(self, statements):
        answer = None
        begin = time.perf_counter()
        with self.connection.cursor() as cursor:
            for statement in [statements] if isinstance(statements, str) else statements:
                affected = cursor.execute(statement)
                answer = cursor.fetchall() or affected
        return time.perf_counter() - begin, answer

    def load(self, measure, words, clients, seconds, at=None, unit="1/s", factor=1):
        """A run of sysbench; records its transactions a second (times a factor), and the processor time of the server and of sysbench for each.
        Returns all it said. sysbench does the same whatever the engine: where its own time differs, the machine's speed did (bench/evenness.py)."""
        server, client = self.lab.cpu_seconds(), client_seconds()
        load = sysbench.run(words, clients, seconds, self.number + 1)
        self.record(measure, load.rate * factor, unit, at)
        self.record(f"{figures.CPU} each, {measure}", (self.lab.cpu_seconds() - server) / load.count, "s", at)
        self.record(f"{figures.CPU} of the client each, {measure}", (client_seconds() - client) / load.count, "s", at)
        return load

    def script(self, script, *words):
        """sysbench's command line for a script of bench/lua on this server."""
        return sysbench.script_command(self.lab, script, self.work.name, *words)

    def bytes_on_disk(self, measure, rows):
        """Records the bytes a row takes, of all that came to the data directory since mark_disk(). Not in a quick run: logs and files are
        allocated ahead in pieces larger than its tables, so that the figure would be one of these pieces, or none."""
        self.settle()
        if not self.work.options.quick:
            self.record(measure, max(self.lab.disk_bytes(), 0) / rows, "bytes/row")

    def warm(self, table, column):
        """Reads a table once: one engine still has in its cache what was loaded, another would read it from the disk in its first turn."""
        self.rows(f"SELECT SUM(LENGTH({column})) FROM {table}")

    def mark_disk(self):
        """Files that are there now do not count."""
        self.settle()
        self.lab.mark_empty()

    def settle(self):
        """Waits until background work is over; in a quick run only for engines whose files change behind the client's back."""
        if not self.work.options.quick:
            return self.lab.wait_for_background()
        if self.engine == "PBXT":
            return self.lab.wait_for_background(60)
        if self.engine == "MyRocks":
            self.run("SET GLOBAL rocksdb_force_flush_memtable_now = 1")
        return None


def short(answer):
    """An answer as text, a long one as its digest."""
    text = repr(answer)
    return text if len(text) <= LONG_ANSWER else f"rows with digest {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]}"


class Meter:
    """What one turn costs the server beside time."""

    def __init__(self, lab):
        self.lab = lab
        lab.reset_peak()
        self.cpu, self.written = lab.cpu_seconds(), lab.written_bytes()

    def read(self, turn, background):
        """Records the costs; `background` is None where nobody waited for its end."""
        turn.record(figures.CPU, self.lab.cpu_seconds() - self.cpu, "s")
        turn.record(figures.PEAK, self.lab.peak_bytes(), "bytes")
        turn.record(figures.WRITTEN, self.lab.written_bytes() - self.written, "bytes")
        if background is not None:
            turn.record(figures.BACKGROUND, background, "s")
