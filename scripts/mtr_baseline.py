"""Results of the server's storage_engine suite, recorded again from what this server prints.

Why it exists: the results that the packages bring were last recorded many releases ago; more than half of them differ for *every* engine
(a new column in SHOW KEYS, a collation in SHOW CREATE), so as installed the suite tells nothing about one engine.
Rule: a result is replaced only where InnoDB and at least one of MyISAM, Aria and MyRocks print exactly the same text. No expectation
is written by hand, and PBXT has no part in it. A difference that only one engine shows keeps the installed result.
An expectation that none of the four engines prints measures nothing: a test that fails against it counts as skipped, unless the
overlay of its engine brings an expectation of its own.

Recording runs the suite with four engines (about five minutes on two cores), so it is done once per server version and kept in
tests/mtr/baseline/VERSION.json: not the texts, only what this server prints otherwise, as edits
[first line, lines that go, lines that come] of the installed result, which is known by its hash. `mtr_suites.py baseline` records anew.
"""

import hashlib
import json
from difflib import SequenceMatcher

from common import ROOT, Problem, server_version
from mtr_root import MtrRoot, replace_file
from mtr_run import run_mtr

KEPT = ROOT / "tests" / "mtr" / "baseline"
SUITE = "storage_engine"
LEADER = "innobase"
WITNESSES = ("myisam", "maria", "rocksdb")
PARTS = ("", "trx/", "parts/")


def suites_of(folder):
    """The names under which MTR runs the three parts of the suite for one overlay folder."""
    return [f"{SUITE}-{folder}", f"{SUITE}/trx-{folder}", f"{SUITE}/parts-{folder}"]


def results_in(folder):
    """{path inside the suite: text} of the recorded results below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.result"))}


def forget_results(root):
    """Removes every expectation, so that recording writes what each engine prints into its own overlay."""
    places = [root.tests / "suite" / SUITE, *(root.overlay(folder) for folder in (LEADER, *WITNESSES))]
    for place in places:
        for path in [*place.rglob("*.result"), *place.rglob("*.rdiff")]:
            path.unlink()
    (root.tests / "suite" / SUITE / "disabled.def").unlink(missing_ok=True)


def record(parallel):
    """The installed results, and what each engine prints: {path: text}, {overlay folder: {path: text}}."""
    with MtrRoot() as root:
        installed = results_in(root.tests / "suite" / SUITE)
        tests = sorted({path.stem for path in (root.tests / "suite" / SUITE).rglob("*.test")})
        forget_results(root)
        suites = ",".join(suite for folder in (LEADER, *WITNESSES) for suite in suites_of(folder))
        run_mtr(root, "baseline", [f"--suite={suites}", "--record"], tests, parallel)
        return installed, {folder: results_in(root.overlay(folder)) for folder in (LEADER, *WITNESSES)}


def agreed(printed):
    """{path: (text, witnesses)} where InnoDB and at least one witness print the same."""
    found = {}
    for path, text in printed[LEADER].items():
        witnesses = [folder for folder in WITNESSES if printed[folder].get(path) == text]
        if witnesses:
            found[path] = (text, witnesses)
    return found


def unprinted(installed, printed):
    """Paths of the installed results that no engine prints and no two engines replace."""
    replaced = agreed(printed)
    return sorted(
        path
        for path, text in installed.items()
        if path not in replaced and text not in [texts.get(path) for texts in printed.values()]
    )


def edits_between(old, new):
    """What turns one text into another: [first line, lines that go, lines that come], from the top down, counted in the old text."""
    old, new = old.decode("latin-1").splitlines(True), new.decode("latin-1").splitlines(True)
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [[start, end - start, new[first:last]] for kind, start, end, first, last in steps if kind != "equal"]


def edited(old, edits):
    """The text that the edits make of another one."""
    lines = old.decode("latin-1").splitlines(True)
    for start, count, come in reversed(edits):
        lines[start : start + count] = come
    return "".join(lines).encode("latin-1")


def hash_of(text):
    """Names a text; a change of one byte changes it."""
    return hashlib.sha256(text).hexdigest()[:32]


def changes(installed, replaced):
    """{path: change} of the results that this server prints otherwise than installed."""
    found = {}
    for path, (text, witnesses) in sorted(replaced.items()):
        old = installed.get(path, b"")
        if text != old:
            found[path] = {"installed": hash_of(old), "witnesses": witnesses, "edits": edits_between(old, text)}
    return found


def write_baseline(path, found, unmeasured):
    """Keeps a baseline, one edit per line, so that differences between two server versions can be read."""
    parts = []
    for name, change in found.items():
        edits = ",\n".join("   " + json.dumps(edit) for edit in change["edits"])
        start = json.dumps({"installed": change["installed"], "witnesses": change["witnesses"]})[:-1]
        parts.append(f' {json.dumps(name)}: {start}, "edits": [\n{edits}]}}')
    path.parent.mkdir(parents=True, exist_ok=True)
    text = '{"changed": {\n' + ",\n".join(parts) + '},\n"unprinted": ' + json.dumps(unmeasured, indent=1) + "}\n"
    path.write_text(text, encoding="utf-8")


def make_baseline(parallel=0, force=False):
    """Records the baseline of this server's version unless it is kept already; answers its file."""
    path = KEPT / f"{server_version()}.json"
    if path.exists() and not force:
        return path
    print("recording the results of the suite storage_engine again (once per server version, about five minutes)", flush=True)
    installed, printed = record(parallel)
    write_baseline(path, changes(installed, agreed(printed)), unprinted(installed, printed))
    print(f"recorded {path}: read it, and commit it")
    return path


def apply_baseline(root, path):
    """Puts the recorded results into a root; answers how many differ from the installed ones.

    Where a result changed, InnoDB and its witnesses print the new text, so their installed differences against the old one go.
    """
    found = json.loads(path.read_text(encoding="utf-8"))["changed"]
    root.make_results_real(SUITE)
    for name, change in found.items():
        target = root.tests / "suite" / SUITE / name
        old = target.read_bytes() if target.exists() else b""
        if hash_of(old) != change["installed"]:
            raise Problem(f"{path} was recorded against another {SUITE}/{name}: run `scripts/mtr_suites.py baseline`.")
        replace_file(target, edited(old, change["edits"]))
        for engine in (LEADER, *change["witnesses"]):
            for stale in (root.overlay(engine) / name, (root.overlay(engine) / name).with_suffix(".rdiff")):
                stale.unlink(missing_ok=True)
    (root.tests / "suite" / SUITE / "disabled.def").unlink(missing_ok=True)
    return len(found)


def measures_nothing(root, path, verdict):
    """Whether a failed test was compared with an expectation that no engine of this server prints."""
    result = f"{verdict.suite}/{verdict.test}.result".removeprefix(f"{SUITE}/")
    own = root.overlay(verdict.overlay) / result
    if own.exists() or own.with_suffix(".rdiff").exists():
        return False
    return result in json.loads(path.read_text(encoding="utf-8"))["unprinted"]
