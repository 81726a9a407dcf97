"""One run of a selection of the server's own tests (mtr_selections.py) with one engine or several, and what its failures mean.

A failed test of PBXT is, in this order:
- excused, if a line of tests/mtr/deliberate.def names it and the report has the text that the line gives: a difference on purpose; if the whole of
  what it prints otherwise is recorded (mtr_differences.py), only if it prints just that; and if all that it prints otherwise are known lines;
- skipped, if the untouched test fails with InnoDB too, on this installation, in this run: then its recorded result is what is wrong;
- failed.
"""

from collections import defaultdict
from fnmatch import fnmatch

from common import ROOT, Problem
from mtr_differences import difference_of, read_known_lines, record, recorded, without_known
from mtr_lists import SELECTIONS
from mtr_root import MtrRoot
from mtr_run import DriverStopped, run_mtr
from mtr_selections import Chosen, altered_by_default, choose, copy_results, rename_default, replace_combinations, replace_engine, restrict_formats

DELIBERATE = ROOT / "tests" / "mtr" / "deliberate.def"
FAILS_TOO = "fails with InnoDB too"
OTHERWISE = "differs otherwise than tests/mtr/differences says"
NOT_DIFFERENT = "differs no more: remove its file of tests/mtr/differences"
MINUTES = 2  # for one test, unless --minutes says otherwise: those that wait for what an engine does not do would else take five each
# Under REPEATABLE READ the tests expect a change to go by the newest version, as InnoDB does.
MORE_OPTIONS = {"pbxt": ["pbxt-conflict-mode=WAIT", "pbxt-foreign-key-drop=RESTRICT"]}


def read_rules(path):
    """Rules of a file of excuses: (test pattern, combination, text, reason)."""
    rules = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            which, text, reason = (part.strip() for part in line.split(" : ", 2))
            test, _, combination = which.partition(" ")
            rules.append((test, combination.strip(), text, reason))
    return rules


def reason_of(rules, verdict, combination):
    """The reason that a rule gives for a failed test, or None."""
    name = f"{verdict.suite}.{verdict.test}"
    for test, wanted, text, reason in rules:
        if fnmatch(name, test) and (wanted in ("", combination) or wanted in combination.split(",")) and text in verdict.text:
            return reason
    return None


def is_default(option):
    """True for the option that makes an engine the server's default."""
    return option.startswith("default-storage-engine=")


def run_kind(root, run_name, suite, tests, server_options, options):
    """Verdicts of tests of a suite that run with the same options of the server, by test and combination."""
    if not tests:
        return {}
    arguments = [f"--suite={suite}", *[f"--mysqld=--{option}" for option in server_options]]
    if SELECTIONS[options.suite].past:
        arguments.append("--force")  # a second one: a test goes on after a failed statement
    names = [f"{suite}.{test}" for test in tests]
    try:
        verdicts = run_mtr(root, run_name, arguments, names, options.parallel, options.minutes or MINUTES).values()
    except DriverStopped as stopped:
        # The driver sometimes dies of a test that it has stopped for its time. The tests it had not begun are run by another one.
        verdicts = stopped.verdicts
        begun = {verdict.test for verdict in verdicts}
        rest = [test for test in tests if test not in begun]
        if len(rest) == len(tests):
            raise
        print(f"the driver stopped after {len(begun)} of {len(tests)} tests; another one runs the rest", flush=True)
        return named(verdicts) | run_kind(root, f"{run_name}-rest", suite, rest, server_options, options)
    return named(verdicts)


def full_name(verdict):
    """A test's name with that of its suite before it."""
    return f"{verdict.suite}.{verdict.test}"


def named(verdicts):
    """Verdicts by test and combination."""
    return {" ".join(filter(None, (full_name(verdict), verdict.combination))): verdict for verdict in verdicts}


def run_with(root, engine, engine_options, suite, chosen, run_name, options):
    """Both kinds of tests of a suite with one engine; for InnoDB the tests are left as they are."""
    rename_default(root, suite, chosen.plain, {"pbxt": "PBXT", "innodb": "InnoDB"}.get(engine, engine))
    if engine == "innodb":
        copy_results(root, suite, chosen.named)
    else:
        replace_engine(root, suite, chosen.named, engine, altered_by_default if SELECTIONS[options.suite].past else str)
    engine_options = [*engine_options, *MORE_OPTIONS.get(engine, ())]
    # Tests that name InnoDB switch it on themselves, and on some of their servers off again, which `--innodb` would undo.
    loaded = [option for option in engine_options if not is_default(option) and option != "innodb"]
    found = run_kind(root, f"{run_name}-named", suite, chosen.named, loaded, options)
    return found | run_kind(root, f"{run_name}-plain", suite, chosen.plain, engine_options, options)


def excuse(name, verdict, rules, known):
    """A failed test's verdict as rules and known lines have it: excused, or still failed."""
    whole, lines = recorded(name), difference_of(verdict.text)
    whole = whole and without_known(name, whole, known)[0]
    rest, reasons = without_known(name, lines, known) if lines else (lines, [])
    if reasons and not rest and whole is None:
        return verdict._replace(word="excused", reason="; ".join(reasons))
    reason = reason_of(rules, verdict, verdict.combination)
    if reason and whole in (None, rest):
        return verdict._replace(word="excused", reason="; ".join([reason, *reasons]))
    return verdict._replace(reason=OTHERWISE if reason else "")


def judge(verdicts, compare):
    """PBXT's verdicts with its failures explained, as far as they can be; `compare` runs tests untouched with InnoDB."""
    rules, known = read_rules(DELIBERATE), read_known_lines()
    failed = {}
    for name, verdict in verdicts.items():
        if verdict.word == "passed" and recorded(name) is not None:
            verdicts[name] = verdict._replace(word="failed", reason=NOT_DIFFERENT)
        elif verdict.word == "failed":
            verdicts[name] = excuse(name, verdict, rules, known)
            if verdicts[name].word == "failed":
                failed[name] = verdicts[name]
    theirs = compare({full_name(verdict) for verdict in failed.values()}) if failed else {}
    for name, verdict in failed.items():
        fails_too = name in theirs and theirs[name].word == "failed"
        verdicts[name] = verdict._replace(word="skipped", reason=FAILS_TOO) if fails_too else verdict
    return verdicts


def keep_differences(verdicts):
    """Records what the excused tests, and those that differ from their record, print otherwise."""
    known = read_known_lines()
    for name, verdict in sorted(verdicts.items()):
        if verdict.word == "excused" or verdict.reason == OTHERWISE:
            print(record(name, verdict.text, known))


def only(chosen, names):
    """Of the tests chosen, by suite, those that have one of these full names."""
    return {
        suite: Chosen(*([test for test in kind if f"{suite}.{test}" in names] for kind in kinds)) for suite, kinds in chosen.items()
    }


def name_of_run(options):
    """What the files of a run are called: runs with different formats can go on side by side."""
    return "-".join([options.suite, *(options.formats.split(",") if options.formats else [])])


def run_selection(root, options, engines):
    """A selection with the engines of `options`. Answers {engine: {test: Verdict}}."""
    selection = SELECTIONS[options.suite]
    chosen = {part.suite: choose(root, part, options.tests) for part in selection.parts}
    if not any(kinds.named or kinds.plain for kinds in chosen.values()):
        raise Problem(f"no test of {options.suite} is called {' or '.join(options.tests)}, or none of them is about an engine.")
    formats = options.formats.split(",") if options.formats else selection.formats
    name = name_of_run(options)
    for suite, kinds in chosen.items():
        print(f"selection {name}, {suite}: {len(kinds.named)} tests name InnoDB, {len(kinds.plain)} no engine", flush=True)

    def run(engine, tests, suffix):
        found = {}
        with MtrRoot(options.keep, options.mem) as own_root:
            restrict_formats(own_root, selection, formats)
            replace_combinations(own_root, engine)
            for suite, kinds in tests.items():
                run_name = "-".join([name, suffix, *([suite.replace("/", "-")] if len(tests) > 1 else [])])
                found |= run_with(own_root, engine, engines[engine].options, suite, kinds, run_name, options)
        return found

    def compare(names):
        return run("innodb", only(chosen, names), "compared")

    found = defaultdict(dict)
    # Others first: what InnoDB fails need not be run again to find out.
    for engine in sorted(options.engines, key=lambda name: name == "pbxt"):
        found[engine] = run(engine, chosen, engine)
        if engine == "pbxt":
            judge(found[engine], (lambda _: found["innodb"]) if "innodb" in found else compare)
            if options.record:
                keep_differences(found[engine])
    return found
