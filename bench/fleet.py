"""A private server for each engine, all with the same cache and durability, of which one works at a time.

Why it exists: engines are to be measured in turns within one run, so that a slow minute of the machine meets all of them, and yet processor
time, memory and bytes on disk must belong to one engine. So each engine has a server process of its own, and while one works the others are
held (SIGSTOP): none of their background work takes a core or the disk from it. What an engine leaves to its background it does in
turns of its own, or in the rest after one, which is measured.

A server is started when its engine is first needed. A server that ended by itself is started anew, empty, for the next work.
"""

import os
import signal
from contextlib import contextmanager, suppress

from bench.lab import KINDS, Lab
from common import Problem
from live_server import execute

# Last words win: these stand behind the settings of bench/lab.py.
COMMON = ("--max-connections=1200", "--back-log=1200", "--innodb-autoinc-lock-mode=2")
ARCHIVE = "--plugin-load-add=ha_archive"  # tables are altered to it from every engine


class HeldLab(Lab):
    """A server that can be held."""

    def hold(self):
        """The process stands still; its connections stay."""
        self._signal(signal.SIGSTOP)

    def go_on(self):
        """It runs again."""
        self._signal(signal.SIGCONT)

    def _signal(self, how):
        pid = self.pid()
        if pid is not None and self.serves(pid):
            os.kill(pid, how)

    def serves(self, pid):
        """Whether the process of that number is this server: an old file may name a number that is another's by now."""
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return str(self.home).encode() in file.read()
        except OSError:
            return False

    def wipe(self):
        """Stops the server, also one that an interrupted run left held, and removes its files."""
        self.go_on()
        super().wipe()


class Fleet:
    """The servers of all engines, with one size of the cache."""

    def __init__(self, options, cache):
        self.options, self.cache = options, cache
        self.labs = {}  # engine's name: server, started
        self.settings_used = {}  # engine's name: the server's command line

    def _start(self, kind):
        more = (*COMMON, *(() if ARCHIVE in kind.arguments else (ARCHIVE,)))
        lab = HeldLab(kind, _with_datadir(self.options, self.options.datadir / kind.name.lower()), self.cache, more)
        self.settings_used[kind.name] = lab.settings_used
        try:
            lab.begin()
        except BaseException:
            lab.wipe()
            raise
        self.labs[kind.name] = lab
        return lab

    @contextmanager
    def at_work(self, kind):
        """The engine's server, running while all others stand still; a Problem when it does not start or has ended."""
        lab = self.labs.get(kind.name)
        if lab is not None and not lab.alive():
            self._forget(lab)
            lab = None
        if lab is None:
            lab = self._start(kind)
        lab.go_on()
        try:
            yield lab
        finally:
            if lab.alive():
                lab.hold()

    def _forget(self, lab):
        """Removes what a server that ended left behind."""
        del self.labs[lab.kind.name]
        lab.wipe()

    def check(self, lab):
        """A Problem with the last words of a server that ended by itself; it is not there any more then."""
        if not lab.alive():
            words = lab.last_words()
            self._forget(lab)
            raise Problem(f"the server of {lab.kind.name} ended by itself. Its log ends so:\n{words}")

    def end(self):
        """Stops all servers and removes their files, unless they are to be kept; may be called again when it was interrupted."""
        while self.labs:
            name, lab = next(iter(self.labs.items()))
            if self.options.keep:
                lab.go_on()
                lab.stop()
            else:
                if lab.alive():
                    lab.kill()  # an orderly end would write what nobody reads again
                lab.wipe()
            del self.labs[name]
        with suppress(OSError):
            self.options.datadir.rmdir()  # if nothing else lies there


def clear_leftovers(options):
    """Removes servers that an interrupted run left, held or not."""
    for home in options.datadir.glob("*.server"):
        if home.stem in KINDS:
            HeldLab(KINDS[home.stem], _with_datadir(options, home.with_suffix("")), options.cache).wipe()


def fresh_database(lab, name):
    """An empty database of that name."""
    connection = lab.connect()
    try:
        execute(connection, f"DROP DATABASE IF EXISTS `{name}`")
        execute(connection, f"CREATE DATABASE `{name}` CHARACTER SET latin1")
    finally:
        connection.close()


def _with_datadir(options, datadir):
    """The options with another data directory."""
    copy = type(options)(**vars(options))
    copy.datadir = datadir
    return copy
