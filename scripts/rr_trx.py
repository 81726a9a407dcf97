#!/usr/bin/env python3
"""Runs the server's suite engines/rr_trx: many clients, each running the suite's transactions in random order on one table.

Why it exists: the suite's own starter needs a test driver of 2010. Its tests are scripts of the server's test client, which checks every
answer against the recorded one; here clients of that program run side by side, on a private server with the engine's name replaced.
Each test runs alone first: one whose recorded result is not what this server prints, alone, counts as skipped, and has no part afterwards.
In the end the table is checked as the suite's check_consistency.sql says.

  scripts/rr_trx.py                          20 seconds, 8 clients, PBXT
  scripts/rr_trx.py --engines PBXT,InnoDB --seconds 300 --clients 16      one after the other, and the figures side by side

Last line: `N passed, N failed, N skipped`, of the suite's tests and of the five checks at the end, of the first engine. Exit status 1 when
something failed with it.
"""

import argparse
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter, namedtuple
from pathlib import Path

from common import PREFIX, Problem, guarded
from live_server import LiveServer, execute, use_workshop_python, value_of
from mtr_root import WORK, MtrRoot, replace_file
from mtr_selections import read, renamed

SUITE = "suite/engines/rr_trx"
GAVE_UP = 62  # exit status of a test that ended itself after a deadlock, a conflict or a timeout
SUM = "`int1` + `int1_key` + `int1_unique` + `int2` + `int2_key` + `int2_unique`"
CHECKS = {
    "the sum of all rows is 0": (f"SELECT COALESCE(SUM({SUM}), 0) FROM t1", 0),
    "nothing uncommitted is left": ("SELECT COUNT(*) FROM t1 WHERE is_uncommitted = 1", 0),
    "every consistent row has the sum 0": (f"SELECT COUNT(*) FROM t1 WHERE {SUM} <> 0 AND is_consistent = 1", 0),
    "rows that nobody may delete are there": ("SELECT COUNT(*) FROM t1 WHERE pk MOD 5 = 0 AND pk BETWEEN 1 AND 1000", 200),
}


class Client:
    """Runs tests of the suite with the server's test client."""

    def __init__(self, root, server, number):
        self.root, self.number = root, number
        self.logs = root.path / f"client-{number}"
        self.logs.mkdir()
        _, *self.reach = server.client_program("mariadb-test")

    def run(self, test):
        """Exit status and what was printed: 0 is a pass."""
        suite = self.root.tests / SUITE
        options = [f"--logdir={self.logs}", f"--tmpdir={self.logs}", "--database=test", "--silent"]
        files = [f"--test-file={suite}/t/{test}.test", f"--result-file={suite}/r/{test}.result"]
        command = [str(PREFIX / "bin" / "mariadb-test"), *self.reach, *options, *files]
        done = subprocess.run(command, cwd=self.root.tests, capture_output=True, text=True, errors="replace", check=False)
        return done.returncode, done.stdout + done.stderr


Outcome = namedtuple("Outcome", "passed failed skipped runs rolled_back", defaults=[0, 0])


def prepare(root, engine):
    """The engine's name in the suite's files; the names of tests, in the order of the suite's list."""
    suite = root.tests / SUITE
    for path in [*suite.rglob("*.test"), *suite.rglob("*.inc"), *suite.rglob("*.result")]:
        text = read(path).replace("--source include/have_innodb.inc", "")
        text = text.replace("(rows INT)", "(wanted INT)").replace("> rows\n", "> wanted\n")  # "rows" is a reserved word by now
        replace_file(path, renamed(text, engine).encode("utf-8", errors="surrogateescape"))
    return (suite / "run.txt").read_text(encoding="utf-8").split()


def run_together(root, server, tests, options):
    """Clients side by side until the time is over. Answers (runs by test, first report by failed test)."""
    runs, reports, end = Counter(), {}, time.monotonic() + options.seconds

    def work(number):
        client, dice = Client(root, server, number), random.Random(number)
        while time.monotonic() < end:
            test = dice.choice(tests)
            status, text = client.run(test)
            runs[test] += 1
            if status not in (0, GAVE_UP):
                reports.setdefault(test, text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, options.clients + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return runs, reports


def check(connection, engine):
    """The checks at the end that failed."""
    wrong = []
    for name, (statement, expected) in CHECKS.items():
        found = value_of(connection, statement)
        if found != expected:
            wrong.append(f"{name}: {found} instead of {expected} for {statement}")
    with connection.cursor() as cursor:
        cursor.execute("CHECK TABLE t1 EXTENDED")
        words = cursor.fetchall()
    if words[-1][-1] != "OK":
        wrong.append(f"CHECK TABLE with {engine}: {words}")
    return wrong


def play(root, server, engine, options):
    """The whole suite with one engine."""
    tests = prepare(root, engine)
    execute(server.connect(), "CREATE DATABASE IF NOT EXISTS test")
    first = Client(root, server, 0)
    _, text = first.run("init_innodb")
    connection = server.connect("test")
    if value_of(connection, "SELECT COUNT(*) FROM t1") != 1000:
        print(text)
        return Outcome(0, 1, 0)
    stale = {test: text for test in tests for status, text in [first.run(test)] if status}
    for test, text in stale.items():
        print(f"skipped {test}: alone, too, it prints something else than was recorded\n{text[:600]}")
    runs, reports = run_together(root, server, [test for test in tests if test not in stale], options)
    for test, text in reports.items():
        print(f"FAILED {test}:\n{text}")
    wrong = check(connection, engine)
    print("\n".join(f"FAILED {text}" for text in wrong) or "the table is consistent")
    errors = value_of(connection, "SELECT tx_errors FROM statistics")
    print(f"{sum(runs.values())} runs of {len(runs)} tests by {options.clients} clients, {errors} transactions rolled back and counted")
    failed = len(reports) + len(wrong)
    passed = len(tests) - len(stale) + len(CHECKS) + 1 - failed
    return Outcome(passed, failed, len(stale), sum(runs.values()), errors)


def run_engine(engine, options):
    """A server of its own for one engine, with the whole suite."""
    folder = Path(tempfile.mkdtemp(prefix="rr-", dir=WORK))
    timeout = f"--{engine.lower()}-lock-wait-timeout=2"
    server = LiveServer(folder / "data", engine, [timeout, "--sql-mode=NO_ENGINE_SUBSTITUTION,NO_UNSIGNED_SUBTRACTION", "--character-set-server=latin1"])
    with MtrRoot() as root:
        try:
            server.start()
            return play(root, server, engine, options)
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)


def print_beside(outcomes):
    """A line per engine."""
    print(f"{'':10}" + "".join(f"{word:>14}" for word in Outcome._fields))
    for engine, outcome in outcomes.items():
        print(f"{engine:10}" + "".join(f"{number:>14}" for number in outcome))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="PBXT", help="comma-separated, of PBXT and InnoDB (default PBXT)")
    parser.add_argument("--seconds", type=int, default=20, help="how long the clients run (default 20)")
    parser.add_argument("--clients", type=int, default=8, help="how many (default 8)")
    options = parser.parse_args()
    engines = options.engines.split(",")
    unknown = [engine for engine in engines if engine not in ("PBXT", "InnoDB")]
    if unknown:
        raise Problem(f"no engine {unknown[0]}: choose of PBXT and InnoDB.")
    use_workshop_python()
    WORK.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for engine in engines:
        print(f"--- {engine}", flush=True)
        outcomes[engine] = run_engine(engine, options)
    print_beside(outcomes)
    first = outcomes[engines[0]]
    print(f"{first.passed} passed, {first.failed} failed, {first.skipped} skipped")
    return 1 if first.failed else 0


if __name__ == "__main__":
    guarded(main)
