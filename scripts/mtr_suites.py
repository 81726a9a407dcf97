#!/usr/bin/env python3
"""Runs MariaDB's own test suites with PBXT and, for comparison, with the engines of the same server.

Each run has a private copy of the test tree, made of links; the installation is never written to and runs do not disturb each other.

  scripts/mtr_suites.py storage_engine                     what every engine must do, PBXT only
  scripts/mtr_suites.py storage_engine --engines pbxt,innodb,myisam,aria,rocksdb      side by side
  scripts/mtr_suites.py storage_engine type_int index      only these tests
  scripts/mtr_suites.py iuds | funcs                       insert, update, delete and functions (funcs takes minutes)
  scripts/mtr_suites.py trx | binlog | rpl                 the server's tests of transactions, binary log, replicas, with PBXT for InnoDB
  scripts/mtr_suites.py fk                                 its tests of foreign keys, of several suites
  scripts/mtr_suites.py gcol | vcol | versioning | period | sequence | handler | parts | innodb | funcs_1 | main       its other suites
  scripts/mtr_suites.py parts --record NAME...             keep what an excused test prints otherwise, as a whole; then read it
  scripts/mtr_suites.py trx --engines pbxt,innodb          beside InnoDB, whose tests are left as they are
  scripts/mtr_suites.py pbxt                               our own tests in tests/mtr/suite/pbxt
  scripts/mtr_suites.py pbxt --record NAME...              write NAME's result as the server prints it now; then read it
  scripts/mtr_suites.py baseline                           record the results of storage_engine again (done by itself when needed)

Why a baseline: the installed results of storage_engine are many releases old and more than half fail for every engine. They are
recorded again where InnoDB and another engine print the same; scripts/mtr_baseline.py has the rule. What PBXT does otherwise on
purpose is a `.rdiff` in tests/mtr/overlay/pbxt; what it does not have is a line with the reason in `disabled.def` there. The suites
iuds and funcs have no overlays: there it is `r/TEST,pbxt.rdiff` in tests/mtr/suite/engines, or a line in tests/mtr/not_offered.def.

Selections (from trx on): mtr_lists.py says which tests, mtr_selected.py what a failure means; differences on purpose are lines of
tests/mtr/deliberate.def ("excused"; skipped in the last line), with their whole extent in tests/mtr/differences (mtr_differences.py).

Output: counts per engine, a table of the tests that not every engine passes, the names of failed tests, and as last line
`N passed, N failed, N skipped` of the engine that decides (--decides, default pbxt). The driver's whole output and the verdicts as
JSON are kept in build/mtr/SUITE.log and build/mtr/SUITE.json. Exit status 1 when a test of the deciding engine failed.
"""

import argparse
import json
import shutil
from collections import defaultdict, namedtuple

from common import PLUGIN, ROOT, Problem, guarded, server_version
from mtr_baseline import apply_baseline, make_baseline, measures_nothing, suites_of
from mtr_lists import SELECTIONS
from mtr_root import OWN_SUITES, WORK, MtrRoot, replace_file
from mtr_run import run_mtr
from mtr_selected import name_of_run, read_rules, reason_of, run_selection

NOT_OFFERED = ROOT / "tests" / "mtr" / "not_offered.def"
Engine = namedtuple("Engine", "overlay options")
ENGINES = {
    "pbxt": Engine("pbxt", ["plugin-load-add=ha_pbxt", "ignore-db-dirs=#pbxt", "default-storage-engine=pbxt"]),
    "innodb": Engine("innobase", ["innodb", "default-storage-engine=innodb"]),
    "myisam": Engine("myisam", ["skip-innodb", "default-storage-engine=myisam"]),
    "aria": Engine("maria", ["skip-innodb", "default-storage-engine=aria"]),
    "rocksdb": Engine(
        "rocksdb", ["plugin-load-add=ha_rocksdb", "ignore-db-dirs=#rocksdb", "skip-innodb", "default-storage-engine=rocksdb"]
    ),
}


def run_storage_engine(root, options):
    """The suite storage_engine: one overlay per engine chooses the engine. Answers {engine: {test: Verdict}}."""
    baseline = make_baseline(options.parallel)
    changed = apply_baseline(root, baseline)
    print(f"suite storage_engine: {changed} results recorded again for MariaDB {server_version()}")
    by_overlay = {ENGINES[name].overlay: name for name in options.engines}
    suites = ",".join(suite for overlay in by_overlay for suite in suites_of(overlay))
    verdicts = run_mtr(root, "storage_engine", [f"--suite={suites}"], options.tests, options.parallel)
    found = defaultdict(dict)
    for verdict in verdicts.values():
        if verdict.word == "failed" and measures_nothing(root, baseline, verdict):
            verdict = verdict._replace(word="skipped", reason="no engine of this server prints what is expected")
        found[by_overlay[verdict.overlay]][f"{verdict.suite}.{verdict.test}"] = verdict
    return found


def run_engines_suite(root, options):
    """engines/iuds and engines/funcs: a combinations file of ours chooses the engine."""
    suite = f"engines/{options.suite}"
    root.make_results_real(suite)
    lines = []
    for name in options.engines:
        lines += [f"[{name}]", *ENGINES[name].options, "partition", ""]
    replace_file(root.tests / "suite" / suite / "combinations", "\n".join(lines).encode())
    verdicts = run_mtr(root, options.suite, [f"--suite={suite}"], options.tests, options.parallel)
    found = defaultdict(dict)
    rules = read_rules(NOT_OFFERED)
    for verdict in verdicts.values():
        chosen = [word for word in verdict.combination.split(",") if word in ENGINES]
        rest = ",".join(word for word in verdict.combination.split(",") if word and word not in ENGINES)
        reason = reason_of(rules, verdict, rest) if verdict.word == "failed" and "pbxt" in chosen else None
        if reason:
            verdict = verdict._replace(word="skipped", reason=reason)
        for name in chosen or options.engines:
            found[name][f"{verdict.suite}.{verdict.test}" + (f" {rest}" if rest else "")] = verdict
    return found


def fail_without_result(tests):
    """The driver lets a test without a recorded result pass; here it is a Problem."""
    names = tests or [path.stem for path in sorted((OWN_SUITES / "pbxt" / "t").glob("*.test"))]
    missing = [name for name in names if not (OWN_SUITES / "pbxt" / "r" / f"{name}.result").exists()]
    if missing:
        raise Problem(f"no recorded result of {', '.join(missing)}: record it with `mtr_suites.py pbxt --record {missing[0]}`, then read it.")


def run_own_suite(root, options):
    """tests/mtr/suite/pbxt: tests written for PBXT."""
    if not (OWN_SUITES / "pbxt" / "t").is_dir():
        raise Problem(f"{OWN_SUITES}/pbxt/t has no tests: a test is a file t/NAME.test with its result in r/NAME.result.")
    if options.record and not options.tests:
        raise Problem("name the tests to record: mtr_suites.py pbxt --record NAME...")
    if not options.record:
        fail_without_result(options.tests)
    results = root.tests / "suite" / "pbxt" / "r"
    results.mkdir(exist_ok=True)  # without this folder the driver writes results beside the tests
    arguments = ["--suite=pbxt", *[f"--mysqld=--{option}" for option in ENGINES["pbxt"].options]]
    verdicts = run_mtr(root, "pbxt", arguments + ["--record"] * options.record, options.tests, options.parallel)
    if options.record:
        for name in options.tests:
            recorded = results / f"{name}.result"
            if recorded.exists():
                shutil.copy(recorded, OWN_SUITES / "pbxt" / "r" / recorded.name)
    return {"pbxt": {" ".join(filter(None, verdict[2:4])): verdict for verdict in verdicts.values()}}


def run_selected(root, options):
    """Tests of the server that name InnoDB or no engine, with another one."""
    return run_selection(root, options, ENGINES)


RUNNERS = {
    "storage_engine": run_storage_engine,
    "iuds": run_engines_suite,
    "funcs": run_engines_suite,
    "pbxt": run_own_suite,
    **dict.fromkeys(SELECTIONS, run_selected),
}


WORDS = ("passed", "failed", "skipped", "excused")


def counts(verdicts):
    """How many tests of one engine have which of WORDS."""
    words = [verdict.word for verdict in verdicts.values()]
    return tuple(words.count(word) for word in WORDS)


def print_table(found):
    """Counts per engine, and each test that not all of them pass."""
    engines = list(found)
    print(f"{'':46}" + "".join(f"{name:>10}" for name in engines))
    for index, word in enumerate(WORDS):
        print(f"{word:46}" + "".join(f"{counts(found[name])[index]:>10}" for name in engines))
    if len(engines) > 1:
        for test in sorted({test for verdicts in found.values() for test in verdicts}):
            row = [found[name][test].word if test in found[name] else "-" for name in engines]
            if set(row) != {"passed"}:
                print(f"{test[:45]:46}" + "".join(f"{word if word != 'passed' else 'ok':>10}" for word in row))


def write_json(options, found):
    """The verdicts for other programs."""
    content = {
        "suite": options.suite,
        "server": server_version(),
        "engines": {
            name: {
                **dict(zip(WORDS, counts(verdicts))),
                "tests": {test: {"verdict": verdict.word, "reason": verdict.reason} for test, verdict in sorted(verdicts.items())},
            }
            for name, verdicts in found.items()
        },
    }
    path = options.json or WORK / f"{name_of_run(options)}.json"
    with open(path, "w", encoding="utf-8") as out:
        json.dump(content, out, indent=1)
    return path


def report(options, found):
    """Prints what was found; exit status 1 when the deciding engine failed a test."""
    print_table(found)
    path = write_json(options, found)
    decides = options.decides if options.decides in found else next(iter(found))
    failed = [test for test, verdict in sorted(found[decides].items()) if verdict.word == "failed"]
    for test in failed:
        reason = found[decides][test].reason
        print(f"failed with {decides}: {test}" + (f": {reason}" if reason else ""))
    print(f"details: {WORK / (name_of_run(options) + '*.log')}, {path}")
    passed, failures, skipped, excused = counts(found[decides])
    print(f"{passed} passed, {failures} failed, {skipped + excused} skipped")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=[*RUNNERS, "baseline"])
    parser.add_argument("tests", nargs="*", help="only these tests")
    parser.add_argument("--engines", default="pbxt", help=f"comma-separated, of {', '.join(ENGINES)}")
    parser.add_argument("--formats", help="binlog and rpl: only these formats of the binary log, of row, mix")
    parser.add_argument("--minutes", type=int, help="trx, binlog and rpl: how long one test may take (default 2)")
    parser.add_argument("--decides", default="pbxt", choices=ENGINES, help="the engine whose failures are an error")
    parser.add_argument("--json", help="where to write the verdicts (default: build/mtr/SUITE.json)")
    parser.add_argument("--parallel", type=int, default=0, help="servers at a time (default: one per processor)")
    parser.add_argument("--mem", action="store_true", help="servers' files in memory: what waits for the disk takes a tenth of the time")
    parser.add_argument("--keep", action="store_true", help="keep the private root for a closer look")
    parser.add_argument("--record", action="store_true", help="suite pbxt: write the results of the named tests; selections: their differences")
    options = parser.parse_intermixed_args()
    if options.suite == "baseline":
        print(make_baseline(options.parallel, force=True))
        return 0
    options.engines = options.engines.split(",")
    unknown = [name for name in options.engines if name not in ENGINES]
    if unknown:
        raise Problem(f"no engine {unknown[0]}: choose of {', '.join(ENGINES)}.")
    if ("pbxt" in options.engines or options.suite == "pbxt") and not PLUGIN.exists():
        raise Problem(f"{PLUGIN} is missing: run `make plugin` first, or choose other --engines.")
    with MtrRoot(options.keep, options.mem) as root:
        return report(options, RUNNERS[options.suite](root, options))


if __name__ == "__main__":
    guarded(main)
