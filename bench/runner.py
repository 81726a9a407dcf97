"""Runs works, turn by turn, the engines changing places from round to round, and collects every value and every failure.

Rules: an engine that fails is left out of the rest of that work, the failure stands in the report, and the run ends with status 1; the other
engines and works go on. What engines answer to the same statement must be the same. Nothing is ever compared across runs.
"""

import sys
import time

from tqdm import tqdm

from bench import machine
from bench.figures import Answers, Figures
from bench.fleet import Fleet, clear_leftovers, fresh_database
from bench.works.base import FLOOR, Meter, Turn
from common import Problem
from live_server import rows_of


class Runner:
    """One run of several works."""

    def __init__(self, options):
        self.options = options
        self.figures, self.answers = Figures(), Answers()
        self.failures = []  # sentences
        self.settings_used = {}  # {"engine, cache": command line of the server}
        self.seconds = {}  # {work: seconds it took in all}
        self.facts = {}  # machine, commit, server
        self.versions = {}  # {engine: version of its plugin}
        self.fleet = None

    def run(self, works):
        """All works in turn; the servers are gone afterwards, whatever happens."""
        clear_leftovers(self.options)
        with tqdm(total=sum(self._steps(work) for work in works), unit=" turns", file=sys.stdout, disable=None, dynamic_ncols=True) as bar:
            try:
                for work in works:
                    begin = time.monotonic()
                    bar.set_description(work.name)
                    self._guarded_work(work, bar)
                    self.seconds[work.name] = time.monotonic() - begin
                    tqdm.write(f"done: {work.name} in {self.seconds[work.name]:.0f} s", file=sys.stdout)
                    sys.stdout.flush()
            finally:
                self.end()
        self.failures += self.answers.differences()

    @staticmethod
    def _steps(work):
        """Turns of a work: preparing counts as one."""
        return 1 if work.tool else len(work.kinds()) * (1 + work.rounds())

    def _guarded_work(self, work, bar):
        try:
            if work.tool:
                self.end()
                work.run_tool(self)
                bar.update(1)
            else:
                self._run_work(work, bar)
        except (Problem, OSError) as error:
            self.fail(f"{work.name}: {error}")

    def fail(self, sentence):
        """Notes a failure and says it at once."""
        self.failures.append(sentence)
        tqdm.write(f"FAILED: {sentence}", file=sys.stdout)

    def _fleet_for(self, work):
        """Servers for a work: fresh ones, but in a quick run those of the work before if they fit."""
        cache = self.options.small_cache if work.small_cache else self.options.cache
        fits = self.fleet and self.options.quick and self.fleet.cache == cache
        if not fits:
            self.end()
            self.fleet = Fleet(self.options, cache)
        return self.fleet

    def end(self):
        """The servers go; called again when an interruption came meanwhile."""
        if self.fleet:
            self.settings_used |= {f"{name}, cache {self.fleet.cache}": line for name, line in self.fleet.settings_used.items()}
            self.fleet.end()
            self.fleet = None

    def _run_work(self, work, bar):
        """Prepares all engines, then round after round."""
        fleet, able = self._fleet_for(work), []
        for kind in work.kinds():
            bar.set_postfix_str(f"{kind.name}, preparing")
            if self._step(work, fleet, kind, 0, bar, preparing=True):
                able.append(kind)
            else:
                bar.update(work.rounds())
        for number in range(work.rounds()):
            for kind in able[:] if number % 2 == 0 else able[::-1]:
                bar.set_postfix_str(f"{kind.name}, round {number + 1} of {work.rounds()}")
                if not self._step(work, fleet, kind, number, bar):
                    able.remove(kind)
                    bar.update(work.rounds() - number - 1)
        for kind in work.kinds():
            self._clean(work, fleet, kind)

    def _step(self, work, fleet, kind, number, bar, preparing=False):
        """One turn, or the preparation of turns; False if the engine failed."""
        import pymysql  # pylint: disable=import-outside-toplevel  # lives in build/venv; --help works without it

        try:
            with fleet.at_work(kind) as lab:
                try:
                    self._turn(work, lab, number, preparing)
                except (Problem, pymysql.err.Error, OSError):
                    fleet.check(lab)  # a server that ended says more than the client that missed it
                    raise
                fleet.check(lab)
            return True
        except (Problem, pymysql.err.Error, OSError) as error:
            self.fail(f"{work.name}, {kind.name}, {'preparing' if preparing else f'round {number + 1}'}: {error}")
            return False
        finally:
            bar.update(1)

    def _turn(self, work, lab, number, preparing):
        if preparing:
            fresh_database(lab, work.name)
            self._note(lab)
        turn = Turn(work, lab, number, self.figures, self.answers)
        try:
            if preparing:
                if lab.kind.name != FLOOR or work.floor:
                    work.prepare(turn)
                    turn.settle()  # what loading left to the background is no part of the first turn
                return
            meter = Meter(lab)
            if lab.kind.name == FLOOR:
                work.floor_round(turn)
            else:
                work.round(turn)
            meter.read(turn, turn.settle())
        finally:
            turn.close()

    def _note(self, lab):
        """Machine and versions, once."""
        if not self.facts:
            self.facts = machine.facts(lab, self.options, lab.settings_used)
        if lab.kind.name not in self.versions:
            connection = lab.connect()
            question = "SELECT COALESCE(plugin_auth_version, plugin_version) FROM information_schema.plugins WHERE plugin_name = %s"
            found = rows_of(connection, question, (lab.kind.sql_name,))
            connection.close()
            self.versions[lab.kind.name] = found[0][0] if found else "unknown"

    def _clean(self, work, fleet, kind):
        """The work's database goes, so that the next work finds the memory and the disk free."""
        import pymysql  # pylint: disable=import-outside-toplevel

        if kind.name not in fleet.labs or not self.options.quick:
            return  # a full run ends the servers themselves
        try:
            with fleet.at_work(kind) as lab:
                connection = lab.connect()
                with connection.cursor() as cursor:
                    cursor.execute(f"DROP DATABASE IF EXISTS `{work.name}`")
                connection.close()
        except (Problem, pymysql.err.Error, OSError) as error:
            self.fail(f"{work.name}, {kind.name}, dropping its tables: {error}")
