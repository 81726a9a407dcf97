#!/usr/bin/env python3
"""Runs the test suites of two object-relational mappers on PBXT and on InnoDB, and compares their verdicts test by test.

Why it exists: what applications ask of an engine is in these suites, written by people who know nothing of PBXT: SQLAlchemy's tests of
dialects and of its own object mapper, Django's of models and schema changes. Each engine has a private server of its own;
`enforce_storage_engine` gives it every table, whatever the suite's CREATE TABLE names. The suites run as they are, from pinned sources
that are fetched into build/orm the first time, through PyMySQL.

A test that fails, or is not run, with PBXT and passes with InnoDB is a defect, unless a line of tests/orm/deliberate.def names it and
its report has the text of that line: then it is counted as skipped, with the reason given there. A test that fails with both engines is
counted as skipped, too: that is between suite and server. A line there that excuses nothing is counted as failed, when its suite ran whole.

  scripts/orm_suites.py                                        both suites, both engines
  scripts/orm_suites.py sqlalchemy                             one suite
  scripts/orm_suites.py django --tests schema transactions     parts of one: labels of Django, files or nodes of SQLAlchemy
  scripts/orm_suites.py sqlalchemy --tests test/dialect/test_suite.py::FetchLimitOffsetTest_mariadb+pymysql_10_11_18
  scripts/orm_suites.py sqlalchemy --compare                   only compare the results of the last run again

While a suite runs, a line a minute tells how far it is. Verdicts stay in build/orm/results/SUITE-ENGINE.jsonl, what the suite itself prints
in SUITE-ENGINE.log beside it. A line per engine, then every test whose verdicts differ; the last line is
`N passed, N failed, N skipped`, of PBXT's tests. Exit status 1 when something failed.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter, namedtuple
from fnmatch import fnmatchcase
from pathlib import Path

from common import Problem, guarded
from live_server import LiveServer, execute, use_workshop_python
from orm_sources import SOURCES, TESTS, VENV, WORK, fetch, folder_of, make_venv

RESULTS = WORK / "results"
DELIBERATE = TESTS / "deliberate.def"
MEMORY = Path("/dev/shm")
ENGINES = {"pbxt": "PBXT", "innodb": "InnoDB"}
DATABASES = ("test", "test_schema", "test_schema_2", "one", "two")
# The server's own default without NO_ENGINE_SUBSTITUTION, which would refuse a named engine instead of replacing it.
SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER"
RANK = {"passed": 0, "skipped": 1, "failed": 2}

Verdict = namedtuple("Verdict", "word text", defaults=[""])
Rule = namedtuple("Rule", "suite pattern text reason")
# What became of a test with PBXT: `word` is passed, failed or skipped; `why` is for the reader.
Judged = namedtuple("Judged", "word why", defaults=[""])


def read_rules(path):
    """The lines of a file of excuses."""
    rules = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            try:
                which, text, reason = (part.strip() for part in line.split(" : ", 2))
                suite, pattern = which.split(" ", 1)
            except ValueError:
                raise Problem(f"{path}: `{line}` is not `suite test : text in the report : reason`: write the line so.") from None
            rules.append(Rule(suite, pattern, text, reason))
    return rules


def read_verdicts(path):
    """Verdicts by test; of several lines about one test the worst counts, and of equal ones the first."""
    verdicts = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the line that a killed suite was writing
        verdict = Verdict(entry["verdict"], entry["text"])
        known = verdicts.get(entry["test"])
        if known is None or RANK[verdict.word] > RANK[known.word]:
            verdicts[entry["test"]] = verdict
    return verdicts


def judge(suite, ours, theirs, rules):
    """What became of each test, by test; and the rules that excused one."""
    judged, used = {}, set()
    for test in sorted(set(ours) | set(theirs)):
        mine, other = ours.get(test, Verdict("missing", "not run")), theirs.get(test, Verdict("missing", "not run"))
        if mine.word == "passed":
            judged[test] = Judged("passed")
        elif mine.word == other.word:
            judged[test] = Judged("skipped", "the same with InnoDB")
        elif other.word == "failed":
            judged[test] = Judged("skipped", "fails with InnoDB")
        else:
            rule = excuse(suite, test, mine.text, rules)
            used.add(rule)
            judged[test] = Judged("skipped", f"on purpose: {rule.reason}") if rule else Judged("failed", mine.text)
    return judged, used - {None}


def excuse(suite, test, text, rules):
    """The rule that excuses a test with this report, or None."""
    for rule in rules:
        if rule.suite == suite and (rule.pattern == test or fnmatchcase(test, rule.pattern)) and rule.text in text:
            return rule
    return None


def command_of(suite, server, labels):
    """Command, folder and environment of one run of a suite."""
    python, sources, socket = str(VENV / "bin/python"), folder_of(suite), str(server.socket)
    environment = {"ORM_SOCKET": socket, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0"}
    if suite == "sqlalchemy":
        url = f"mariadb+pymysql://root@localhost/test?unix_socket={socket}&charset=utf8mb4"
        # The suite's own options end after some failures, and write to files beside its sources.
        options = ["-o", "addopts=", "-p", "recording", "-p", "no:cacheprovider", "-q", "--tb=short", "--backend-only"]
        options += ["--ignore=test/aaa_profiling"]  # counts calls and memory of the library itself, for most of an hour
        options += ["-k", "not MatchTest"]  # needs FULLTEXT, and where that is refused leaves a table that seventy other tests find
        environment["PYTHONPATH"] = f"{sources / 'lib'}:{TESTS}"
        return [python, "-m", "pytest", *options, "--dburi", url, *labels], sources, environment
    environment["PYTHONPATH"] = f"{sources}:{TESTS}"
    options = ["--settings=django_settings", "--parallel=1", "--noinput"]
    return [python, "runtests.py", *options, *labels], sources / "tests", environment


def progress(name, path, ended):
    """A line a minute."""
    minutes = 0
    while not ended.wait(60):
        minutes += 1
        words = Counter(verdict.word for verdict in read_verdicts(path).values())
        print(f"  {name}: {minutes} min, {sum(words.values())} tests, {words['failed']} failed", flush=True)


def run_suite(suite, engine, options):
    """One suite with one engine, on a server of its own."""
    name = f"{suite}-{engine}"
    path, log = RESULTS / f"{name}.jsonl", RESULTS / f"{name}.log"
    path.unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="orm-", dir=MEMORY if options.mem else WORK))
    arguments = [f"--default-storage-engine={ENGINES[engine]}", f"--enforce-storage-engine={ENGINES[engine]}", f"--sql-mode={SQL_MODE}"]
    server = LiveServer(folder / "d", ENGINES[engine], [*arguments, "--max-connections=300"])
    ended = threading.Event()
    try:
        server.start()
        for database in DATABASES:
            execute(server.connect(), f"CREATE DATABASE {database}")
        command, place, environment = command_of(suite, server, options.tests or SOURCES[suite].labels)
        threading.Thread(target=progress, args=(name, path, ended), daemon=True).start()
        with open(log, "wb") as output:
            subprocess.run(
                command,
                cwd=place,
                env={**os.environ, **environment, "ORM_RECORD": str(path)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,  # the verdicts say what failed
            )
    finally:
        ended.set()
        server.stop()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if not read_verdicts(path):
        raise Problem(f"{suite} ran no test with {engine}: {log} ends so:\n{log.read_text(encoding='utf-8', errors='replace')[-1500:]}")


def compare(suite, options):
    """Prints what differs; answers PBXT's passed, failed, skipped as a Counter."""
    found = {engine: read_verdicts(RESULTS / f"{suite}-{engine}.jsonl") for engine in ENGINES}
    for engine, verdicts in found.items():
        if not verdicts:
            raise Problem(f"there are no results of {suite} with {engine}: run `scripts/orm_suites.py {suite}` first.")
        words = Counter(verdict.word for verdict in verdicts.values())
        print(f"{suite} {engine}: " + ", ".join(f"{words[word]} {word}" for word in RANK), flush=True)
    rules = read_rules(DELIBERATE)
    judged, used = judge(suite, found["pbxt"], found["innodb"], rules)
    total = Counter(verdict.word for verdict in judged.values())
    for test, verdict in judged.items():
        words = [found[engine].get(test, Verdict("missing")).word for engine in ENGINES]
        if words[0] != words[1]:
            print(f"differs: {suite} {test}: {words[0]} with PBXT, {words[1]} with InnoDB{tail_of(verdict, options.verbose)}")
    if not options.tests:
        whole = len(found["pbxt"])
        if whole < SOURCES[suite].expected:
            print(f"FAILED: {whole} tests of {suite} were run, {SOURCES[suite].expected} or more are expected: see {RESULTS / suite}-pbxt.log")
            total["failed"] += 1
        for rule in rules:
            if rule.suite == suite and rule not in used:
                print(f"FAILED: the line of {DELIBERATE.name} for `{rule.suite} {rule.pattern}` and `{rule.text}` excuses nothing: delete it")
                total["failed"] += 1
    return total


def tail_of(verdict, verbose):
    """What to say behind a difference: the reason, or the end of the report."""
    if verdict.word == "failed":
        lines = verdict.why.strip().splitlines()
        return "\n    " + "\n    ".join(lines if verbose else lines[-4:])
    return f" ({verdict.why})" if verdict.why else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SOURCES)} (default: all)")
    parser.add_argument("--engines", default="pbxt,innodb", help="run these (default: pbxt,innodb); of the others the last results count")
    parser.add_argument("--tests", nargs="+", default=[], help="these tests of one suite, as its own runner names them")
    parser.add_argument("--compare", action="store_true", help="run nothing")
    parser.add_argument("--mem", action="store_true", help="the servers' files in memory")
    parser.add_argument("--keep", action="store_true", help="keep the servers' files")
    parser.add_argument("--verbose", action="store_true", help="whole reports of tests that failed")
    options = parser.parse_args()
    suites, engines = options.suites or list(SOURCES), [] if options.compare else options.engines.split(",")
    for word, known in [*((suite, SOURCES) for suite in suites), *((engine, ENGINES) for engine in engines)]:
        if word not in known:
            raise Problem(f"`{word}` is not known: choose of {', '.join(known)}.")
    if options.tests and len(suites) != 1:
        raise Problem("--tests are tests of one suite: name it before them.")
    use_workshop_python()
    RESULTS.mkdir(parents=True, exist_ok=True)
    make_venv()
    total = Counter()
    for suite in suites:
        fetch(suite)
        for engine in engines:
            began = time.monotonic()
            run_suite(suite, engine, options)
            print(f"  {suite} with {ENGINES[engine]}: {time.monotonic() - began:.0f} s", flush=True)
        total += compare(suite, options)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    guarded(main)
