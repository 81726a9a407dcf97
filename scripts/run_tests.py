#!/usr/bin/env python3
"""Runs the test suites one after the other and adds up their results.

  core     the crates' own tests, with expensive checks and stop points switched on; with --long ten times as many crash images
  loom     interleavings of the latches, of the log's tail and of the transaction table
  history  concurrent transactions on every isolation level, searched for what it forbids: 20,000, with --long 1,000,000 a level
  sim      random lives of a whole database, power cuts at every disk operation, 10,000 states  only with --long
  storage  lives in which statements, definitions, loads, votes, snapshots, background work, power cuts and damage come together:
           2,000 seeds, with --long 20,000
  paths    instructions of the engine's hot paths, against the recorded ones (scripts/hot_paths.py)
  bits     every bit written in the files of two small databases, flipped one by one            only with --long
  found    the fuzz targets on seeds and on what a fuzzer found, with checksums off             only with --long
  workshop tests of the scripts that others rely on
  compare  the comparison with other embedded stores: clippy, its tests, every store small       only with --long
  sql      real servers and real connections (tests/sql); with --long 50 kills and 200 random rounds
  package  the Debian package, installed, upgraded and removed, with a real server (tests/package)
  own      our tests for the server's test driver (tests/mtr/suite/pbxt)
  engine   the server's suite of what every storage engine must do; with --long four other engines beside PBXT
  iuds     the server's suite of inserts, updates and deletes
  rr_trx   the server's suite of clients side by side under REPEATABLE READ: 10 seconds, with --long 5 minutes
  trx      the server's tests of transactions, with PBXT in place of InnoDB                    only with --long
  binlog   the same of the binary log                                                          only with --long
  rpl      the same of replicas; most of an hour                                               only with --long
  fk       the same of foreign keys                                                            only with --long
  period, sequence, handler   the same of application periods, sequences and HANDLER           only with --long
  gcol, vcol, versioning, parts, funcs_1, innodb, main   its other suites; half an hour         only with --long
  funcs    the server's suite of SQL functions on the engine                                   only with --long
  orm      the tests of SQLAlchemy and Django, on PBXT and on InnoDB                           only with --long
  miri     undefined behaviour: the crates with unsafe code, under Rust's interpreter          only with --long
  asan, tsan           the crates' tests under AddressSanitizer and ThreadSanitizer             only with --long
  asan-sql, tsan-sql   the plugin under them in the server (scripts/sanitize.py)                only with --long

The output of each suite goes to build/test/NAME.log, that of its run before to NAME.log.before, and the end of it to the screen if the suite
fails. The last line of all is
`N passed, N failed, N skipped`; a suite that ends with an error although none of its tests failed counts as one failure.

usage: run_tests.py [--long] [--only NAME ...]
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

from common import BUILD, ROOT, Problem, guarded, need_nightly

LOGS = BUILD / "test"
# Leaks: what readers may still hold is freed late, or at the end of the process. Trees: crossbeam-epoch tags pointers as integers.
MIRI_FLAGS = "-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-tree-borrows -Zmiri-permissive-provenance"
MTR = ["scripts/mtr_suites.py"]
PYTEST = [str(BUILD / "venv/bin/python"), "-m", "pytest", "-q", "--color=no"]

Suite = namedtuple("Suite", "name command environment long_only long_options")
MTR_SELECTIONS = "trx binlog rpl fk period sequence handler gcol vcol versioning parts funcs_1 innodb main".split()
SANITIZED = {"asan": "address core", "tsan": "thread core", "asan-sql": "address server", "tsan-sql": "thread server"}

# One line of a suite's output states its result, in one of these forms.
CARGO = re.compile(r"^test result: \w+\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<skipped>\d+) ignored")
MTR_END = re.compile(r"^(?P<passed>\d+) passed, (?P<failed>\d+) failed, (?P<skipped>\d+) skipped$")
SIM_END = re.compile(r"^\d+ (?:states after power cuts agree|transactions show nothing that|storage lives agree) ")
PYTEST_END = re.compile(r"^(?:=+ )?(?=.* in [\d.]+s)(?:(?P<failed>\d+) failed)?(?:, )?(?:(?P<passed>\d+) passed)?(?P<rest>.*)$")
PYTEST_ERRORS = re.compile(r"(\d+) errors?")
PYTEST_SKIPPED = re.compile(r"(\d+) skipped")


def target_folder(name):
    """A target folder of its own, because other compiler flags would throw away the other suites' builds."""
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / name)


def cargo_suites():
    """The suites that cargo runs."""
    core = ["cargo", "test", "--workspace", "--all-features", "--no-fail-fast"]
    yield Suite("core", core, {}, False, [])
    with_loom = {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": target_folder("loom")}
    loom = ["cargo", "test", "--profile", "loom", "--no-fail-fast"]
    yield Suite("loom", [*loom, *packages("index", "txn"), "--test", "*loom*"], with_loom, False, [])
    yield Suite("loom-log", [*loom, *packages("txlog"), "--lib", "_loom"], with_loom, False, [])
    sim = ["cargo", "run", "--release", "--package", "pbxt-sim", "--"]
    yield Suite("history", [*sim, "--histories", "40"], {}, False, ["--histories", "2000"])
    yield Suite("sim", [*sim, "--states", "10000"], {}, True, [])
    yield Suite("storage", [*sim, "--storage", "2000"], {}, False, ["--storage", "20000"])
    every_bit = ["cargo", "test", "--release", "--package", "pbxt", "--test", "every_bit", "--", "--nocapture"]
    yield Suite("bits", every_bit, {"PBXT_FLIP_STRIDE": "1"}, True, [])
    # What a fuzzer found behind a checksum gets there only where checksums let everything pass (rule FZ3).
    no_checksums = {"RUSTFLAGS": "--cfg fuzzing", "CARGO_TARGET_DIR": target_folder("found")}
    found = ["cargo", "test", *packages("fuzz"), "--test", "targets"]
    yield Suite("found", found, no_checksums, True, [])
    embedded = ["--release", "--locked", "--manifest-path", "bench/embedded/Cargo.toml"]
    clippy = ["cargo", "clippy", "--quiet", *embedded, "--all-targets", "--", "-D", "warnings"]
    compare = f"{' '.join(clippy)} && {' '.join(['cargo', 'test', *embedded])}"
    yield Suite("compare", ["bash", "-c", compare], {}, True, [])
    # Properties that do not say how many cases they try have 256, which takes hours there.
    with_miri = {"MIRIFLAGS": MIRI_FLAGS, "PROPTEST_CASES": "4", "CARGO_TARGET_DIR": target_folder("miri")}
    miri = ["cargo", "+nightly", "miri", "test", "--no-fail-fast"]
    yield Suite("miri", [*miri, *packages("index", "rowmap", "rows", "txn")], with_miri, True, [])
    yield Suite("miri-log", [*miri, *packages("txlog"), "--test", "log_memory"], with_miri, True, [])


def packages(*crates):
    """Options that choose crates."""
    return [f"--package=pbxt-{name}" for name in crates]


def all_suites():
    """Every suite, in the order in which they run: the quick and the telling first."""
    cargo = {suite.name: suite for suite in cargo_suites()}
    compared = ["--engines", "pbxt,innodb,myisam,aria,rocksdb"]
    return [
        cargo["core"],
        cargo["loom"],
        cargo["loom-log"],
        cargo["history"],
        cargo["sim"],
        cargo["storage"],
        Suite("paths", ["scripts/hot_paths.py"], {}, False, []),
        cargo["bits"],
        cargo["found"],
        Suite("workshop", [*PYTEST, "scripts/tests"], {}, False, []),
        cargo["compare"],
        Suite("sql", [*PYTEST, "tests/sql"], {}, False, ["--long"]),
        Suite("package", [*PYTEST, "tests/package"], {}, False, []),
        Suite("own", [*MTR, "pbxt"], {}, False, []),
        Suite("engine", [*MTR, "storage_engine"], {}, False, compared),
        Suite("iuds", [*MTR, "iuds"], {}, False, []),
        Suite("rr_trx", ["scripts/rr_trx.py", "--seconds", "10"], {}, False, ["--seconds", "300"]),
        *[Suite(name, [*MTR, name], {}, True, []) for name in MTR_SELECTIONS],
        Suite("funcs", [*MTR, "funcs"], {}, True, []),
        Suite("orm", ["scripts/orm_suites.py", "--mem"], {}, True, []),
        cargo["miri"],
        cargo["miri-log"],
        *[Suite(name, ["scripts/sanitize.py", *words.split()], {}, True, []) for name, words in SANITIZED.items()],
    ]


def add_up(lines):
    """(passed, failed, skipped) that the lines of one suite's output state."""
    passed = failed = skipped = 0
    for line in lines:
        passed += bool(SIM_END.match(line))
        found = CARGO.match(line) or MTR_END.match(line) or PYTEST_END.match(line)
        if found:
            groups = found.groupdict()
            passed += int(groups["passed"] or 0)
            failed += int(groups["failed"] or 0)
            skipped += int(groups.get("skipped") or 0)
            if "rest" in groups:
                failed += sum(map(int, PYTEST_ERRORS.findall(groups["rest"])))
                skipped += sum(map(int, PYTEST_SKIPPED.findall(groups["rest"])))
    return passed, failed, skipped


def follow(process, log_path, name):
    """Copies the output of a suite to its log while it runs; on a terminal the last line is shown."""
    lines = []
    with open(log_path, "w", encoding="utf-8", buffering=1) as log:
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
    """Runs one suite; answers (passed, failed, skipped, seconds)."""
    log_path = LOGS / f"{suite.name}.log"
    if log_path.exists():
        log_path.replace(LOGS / f"{suite.name}.log.before")
    command = [*suite.command, *(suite.long_options if long else [])]
    print(f"{suite.name}: {' '.join(command)}", flush=True)
    started, ended = time.monotonic(), threading.Event()
    threading.Thread(target=heartbeat, args=(suite.name, ended), daemon=True).start()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **({"PBXT_SWEEP_SEEDS": "10"} if long else {}), **suite.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = follow(process, log_path, suite.name)
    status = process.wait()
    ended.set()
    passed, failed, skipped = add_up(lines)
    if (status != 0 or passed == 0) and failed == 0:
        failed = 1
    if failed:
        print("\n".join("    " + line for line in lines[-60:]))
    seconds = time.monotonic() - started
    print(f"  {suite.name}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s ({log_path})", flush=True)
    return passed, failed, skipped, seconds


def chosen(options):
    """The suites to run, in order."""
    suites = all_suites()
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
    LOGS.mkdir(parents=True, exist_ok=True)
    suites = chosen(options)
    if any("miri" in suite.command for suite in suites):
        need_nightly("miri", "rust-src")
    results = [(suite.name, *run_suite(suite, options.long)) for suite in suites]
    print()
    for name, passed, failed, skipped, seconds in results:
        print(f"{name:10} {passed:6} passed {failed:5} failed {skipped:5} skipped {seconds:7.0f} s")
    passed, failed, skipped = (sum(row[column] for row in results) for column in (1, 2, 3))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    guarded(main)
