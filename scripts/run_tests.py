#!/usr/bin/env python3
"""Runs the test suites one after the other and adds up their results.

  core     the crates' own tests, with expensive checks and stop points switched on
  loom     every interleaving of the latches and of the transaction table, for the crates that have loom tests
  workshop tests of the scripts that others rely on
  sql      real servers and real connections (tests/sql)
  own      our tests for the server's test driver (tests/mtr/suite/pbxt)
  engine   the server's suite of what every storage engine must do
  iuds     the server's suite of inserts, updates and deletes
  funcs    the server's suite of SQL functions on the engine                                   only with --long
  miri     undefined behaviour: the crates with unsafe code, under Rust's interpreter          only with --long

The output of each suite goes to build/test/NAME.log, and the end of it to the screen if the suite fails. The last line of all is
`N passed, N failed`; a suite that ends with an error although none of its tests failed counts as one failure.

usage: run_tests.py [--long] [--only NAME ...]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

from common import BUILD, ROOT, Problem, guarded

LOGS = BUILD / "test"
MTR = ["scripts/mtr_suites.py"]
PYTEST = [str(BUILD / "venv/bin/python"), "-m", "pytest", "-q", "--color=no"]

Suite = namedtuple("Suite", "name command environment long_only long_options exists")

# One line of a suite's output states its result, in one of these forms.
CARGO = re.compile(r"^test result: \w+\. (?P<passed>\d+) passed; (?P<failed>\d+) failed")
MTR_END = re.compile(r"^(?P<passed>\d+) passed, (?P<failed>\d+) failed, \d+ skipped$")
PYTEST_END = re.compile(r"^(?:=+ )?(?=.* in [\d.]+s)(?:(?P<failed>\d+) failed)?(?:, )?(?:(?P<passed>\d+) passed)?(?P<rest>.*)$")
PYTEST_ERRORS = re.compile(r"(\d+) errors?")


def crates_with(pattern):
    """Names of the crates in which a source file or test contains a text."""
    found = set()
    for path in (ROOT / "crates").rglob("*.rs"):
        if pattern in path.read_text(encoding="utf-8"):
            found.add(path.relative_to(ROOT / "crates").parts[0])
    return sorted("pbxt-" + name if name != "engine" else "pbxt" for name in found)


def target_folder(name):
    """A target folder of its own, because other compiler flags would throw away the other suites' builds."""
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / name)


def cargo_suites():
    """The suites that cargo runs."""
    loom = [f"--package={name}" for name in crates_with("loom::model")]
    miri = [f"--package={name}" for name in crates_with("unsafe {")]
    with_loom = {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": target_folder("loom")}
    with_miri = {"MIRIFLAGS": "-Zmiri-disable-isolation", "CARGO_TARGET_DIR": target_folder("miri")}
    core = ["cargo", "test", "--workspace", "--all-features", "--no-fail-fast"]
    yield Suite("core", core, {}, False, [], True)
    command = ["cargo", "test", "--release", *loom, "--test", "*loom*"]
    yield Suite("loom", command, with_loom, False, [], bool(loom))
    command = ["cargo", "+nightly", "miri", "test", *miri]
    yield Suite("miri", command, with_miri, True, [], bool(miri))


def all_suites():
    """Every suite, in the order in which they run: the quick and the telling first."""
    cargo = {suite.name: suite for suite in cargo_suites()}
    own = (ROOT / "tests/mtr/suite/pbxt/t").is_dir()
    compared = ["--engines", "pbxt,innodb,myisam,aria,rocksdb"]
    return [
        cargo["core"],
        cargo["loom"],
        Suite("workshop", [*PYTEST, "scripts/tests"], {}, False, [], True),
        Suite("sql", [*PYTEST, "tests/sql"], {}, False, ["--long"], True),
        Suite("own", [*MTR, "pbxt"], {}, False, [], own),
        Suite("engine", [*MTR, "storage_engine"], {}, False, compared, True),
        Suite("iuds", [*MTR, "iuds"], {}, False, [], True),
        Suite("funcs", [*MTR, "funcs"], {}, True, [], True),
        cargo["miri"],
    ]


def add_up(lines):
    """(passed, failed) that the lines of one suite's output state."""
    passed = failed = 0
    for line in lines:
        found = CARGO.match(line) or MTR_END.match(line) or PYTEST_END.match(line)
        if found:
            passed += int(found["passed"] or 0)
            failed += int(found["failed"] or 0)
            if "rest" in found.groupdict():
                failed += sum(map(int, PYTEST_ERRORS.findall(found["rest"])))
    return passed, failed


def follow(process, log_path, name):
    """Copies the output of a suite to its log while it runs; on a terminal the last line is shown."""
    lines = []
    with open(log_path, "w", encoding="utf-8") as log:
        for raw in process.stdout:
            line = raw.decode("utf-8", errors="replace").rstrip("\n")
            lines.append(line)
            log.write(line + "\n")
            if sys.stderr.isatty():
                print(f"\r{name}: {line:<100.100}", end="\r", file=sys.stderr, flush=True)
    return lines


def heartbeat(name, ended):
    """A sign of life every minute, for a reader of a log."""
    minutes = 0
    while not ended.wait(60):
        minutes += 1
        print(f"  {name}: {minutes} min", flush=True)


def run_suite(suite, long):
    """Runs one suite; answers (passed, failed)."""
    log_path = LOGS / f"{suite.name}.log"
    command = [*suite.command, *(suite.long_options if long else [])]
    print(f"{suite.name}: {' '.join(command)}", flush=True)
    started, ended = time.monotonic(), threading.Event()
    threading.Thread(target=heartbeat, args=(suite.name, ended), daemon=True).start()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **suite.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = follow(process, log_path, suite.name)
    status = process.wait()
    ended.set()
    passed, failed = add_up(lines)
    if (status != 0 or passed == 0) and failed == 0:
        failed = 1
    if failed:
        print("\n".join("    " + line for line in lines[-60:]))
    print(f"  {suite.name}: {passed} passed, {failed} failed in {time.monotonic() - started:.0f} s ({log_path})", flush=True)
    return passed, failed


def chosen(options):
    """The suites to run, in order."""
    suites = [suite for suite in all_suites() if suite.exists]
    unknown = set(options.only) - {suite.name for suite in suites}
    if unknown:
        raise Problem(f"no suite {', '.join(sorted(unknown))}: choose of {', '.join(suite.name for suite in suites)}.")
    if options.only:
        return [suite for suite in suites if suite.name in options.only]
    return [suite for suite in suites if options.long or not suite.long_only]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="whole suites and long random runs")
    parser.add_argument("--only", action="append", default=[], help="this suite; may be given several times")
    options = parser.parse_args()
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    results = [(suite.name, *run_suite(suite, options.long)) for suite in chosen(options)]
    print()
    for name, passed, failed in results:
        print(f"{name:10} {passed:6} passed {failed:5} failed")
    passed, failed = sum(row[1] for row in results), sum(row[2] for row in results)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    guarded(main)
